/* SPDX-License-Identifier: Apache-2.0
 *
 * The templates in which models say how a conversation becomes a prompt: the part of Jinja 2 that they use, with
 * trim_blocks, lstrip_blocks, loop controls and Python's values, as Hugging Face's libraries run them. Templates come
 * with model files from anywhere, so every rendering has bounds (parts.h).
 *
 * Refused by name are other templates (include, extends, import, block), recursive loops, formatting by %, arguments
 * from lists (*, **), integers beyond 64 bits, numbers in another form than decimal digits, and the filters and methods
 * that such templates do not use. `self`, `varargs`, `kwargs` and attributes of macros are undefined. Letters change
 * their case one by one (Python makes two of a few), and only decimal digits are digits. What Python shows an address
 * of (functions, iterators) is shown as "<function>", and filters work at once where Jinja's may be lazy.
 */
#ifndef IG_JINJA_JINJA_H
#define IG_JINJA_JINJA_H

#include <jansson.h>
#include <time.h>

#include "base/buffer.h"
#include "infinigen.h"

/* Immutable once parsed: any thread may render it. */
typedef struct ig_jinja ig_jinja;

/* The text is copied. Errors name the line. IG_E_UNSUPPORTED: a tag, filter or test that is not there. */
ig_status ig_jinja_parse(ig_jinja **out, const char *text, size_t n_bytes, ig_error *err);
void ig_jinja_close(ig_jinja *t);

/* Appends what the template makes of `variables`, a JSON object (messages, tools, add_generation_prompt, bos_token);
 * nothing after an error. `now` is the time that strftime_now() shows, as local time.
 * IG_E_ARG: the template refuses the variables by raise_exception(), whose text is the error's. IG_E_FORMAT: it does
 * what cannot be done with a value. IG_E_UNSUPPORTED. IG_E_LIMIT: it takes too long or makes too much. IG_E_MEMORY. */
ig_status ig_jinja_render(ig_buffer *out, const ig_jinja *t, const json_t *variables, time_t now, ig_error *err);

#endif
