/* SPDX-License-Identifier: Apache-2.0
 *
 * Text that comes from anywhere, made fit for terminals and JSON; and errors of the program's own. For all above the
 * wall.
 */
#ifndef IG_TEXT_TEXT_H
#define IG_TEXT_TEXT_H

#include <jansson.h>

#include "infinigen.h"

/* Bytes of the UTF-8 character at text, n > 0; 0: there is none. */
size_t ig_text_character(const char *text, size_t n);
/* Bytes at its end that begin a character of which more may come; 0 to 3. */
size_t ig_text_unfinished(const char *text, size_t n);
/* Characters of a text in UTF-8. */
size_t ig_text_count(const char *text, size_t n);
/* Whether n bytes begin with one of U+0080 to U+009F, which terminals obey. */
bool ig_text_is_c1(const char *text, size_t n);
/* What others have written: control characters become '?', so that it cannot drive a terminal. */
void ig_text_make_harmless(char *text);
/* As jansson's functions of these names, but that bytes which are not UTF-8 become U+FFFD. NULL: no memory. */
json_t *ig_text_string(const char *text);
json_t *ig_text_stringn(const char *text, size_t n);
/* Fills *err with a harmless text, unless it is NULL, and returns `status`. */
ig_status ig_text_fail(ig_error *err, ig_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
