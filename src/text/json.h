/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON and texts of it, by jansson, where memory may end at any moment.
 */
#ifndef IG_TEXT_JSON_H
#define IG_TEXT_JSON_H

#include <stdbool.h>

#include <jansson.h>

/* Before threads use JSON; the calls below do it where it was not done. */
void ig_json_begin(void);
/* Whether there was no memory for some value that this thread has put together since this was asked last: it may lack
 * parts. */
bool ig_json_take_loss(void);
/* JSON from a text, as json_loadb() has it; *failed: there was no memory for it. */
json_t *ig_json_of_text(const char *text, size_t n, size_t flags, json_error_t *error, bool *failed);
/* A text of JSON, as json_dumps() has it, to be freed; NULL: there is no value, or no memory. */
char *ig_text_of_json(const json_t *value, size_t flags);

#endif
