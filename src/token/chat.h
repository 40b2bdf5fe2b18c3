/* SPDX-License-Identifier: Apache-2.0
 *
 * Chat prompts for the formats this program knows, recognised by marks in the model's own template.
 */
#ifndef IG_TOKEN_CHAT_H
#define IG_TOKEN_CHAT_H

#include "base/buffer.h"
#include "infinigen.h"

typedef enum ig_chat_format {
    IG_CHAT_UNKNOWN,
    IG_CHAT_CHATML,
    IG_CHAT_LLAMA2,
    IG_CHAT_LLAMA3,
    IG_CHAT_MISTRAL,
} ig_chat_format;

/* IG_CHAT_UNKNOWN for NULL and for templates that are not recognised. */
ig_chat_format ig_chat_detect(const char *jinja_template);
const char *ig_chat_name(ig_chat_format format); /* "chatml", ...; "" if unknown */
/* Appends the prompt text, without BOS. A format's default system message (as its template has it) is included. */
ig_status ig_chat_render(ig_buffer *out, ig_chat_format format, const char *jinja_template,
                         const ig_chat_message *messages, size_t n, bool add_assistant, ig_error *err);

#endif
