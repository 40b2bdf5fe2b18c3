/* SPDX-License-Identifier: Apache-2.0
 *
 * UTF-8 as tokenisers need it: stepping over text that may be invalid, normal forms in linear time,
 * and the alphabet in which byte-level vocabularies write bytes as letters.
 */
#ifndef IG_TOKEN_UTF8_H
#define IG_TOKEN_UTF8_H

#include "base/buffer.h"
#include "infinigen.h"

/* Length (1..4) of the valid character at `text`, or 0 if it is invalid or cut off. n > 0. */
size_t ig_utf8_next(const char *text, size_t n, uint32_t *code);
bool ig_utf8_is_space(uint32_t code); /* White_Space */
bool ig_utf8_is_word(uint32_t code);  /* letters, marks, digits, connectors */

/* A view of `text` with the same offsets that is valid UTF-8: each byte outside a character becomes
 * U+001A, which like U+FFFD is neither letter, number nor space. Returns `text` itself if there
 * is nothing to replace, else a copy held in `copy`; NULL without memory. */
const char *ig_utf8_repair(ig_buffer *copy, const char *text, size_t n);

typedef enum ig_normal_form {
    IG_NORMAL_NONE,
    IG_NORMAL_NFC,
    IG_NORMAL_NFD,
    IG_NORMAL_NFKC,
    IG_NORMAL_NFKD
} ig_normal_form;
/* Appends the normal form of `text`; invalid bytes pass unchanged. False without memory. */
bool ig_utf8_normalize(ig_buffer *out, const char *text, size_t n, ig_normal_form form);

/* Byte-level vocabularies (GPT-2) write printable Latin-1 bytes as that character and the
 * others as U+0100 onwards. Decodes such a text; false if a character is not in that alphabet. */
bool ig_utf8_decode_letters(ig_buffer *out, const char *text, size_t n);

#endif
