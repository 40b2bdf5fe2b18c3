/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON texts of model files, schemas and templates, parsed by jansson with its strict settings.
 */
#ifndef IG_FORMAT_JSON_H
#define IG_FORMAT_JSON_H

#include <jansson.h>

#include "infinigen.h"

/* Before threads use JSON; the calls below do it where it was not done. */
void ig_json_begin_use(void);
/* Refuses duplicate keys, invalid UTF-8 and NULs in strings; integers of more than 64 bits are real numbers. Errors
 * name `path`, line and column. The caller gives *out back with json_decref(). */
ig_status ig_json_parse(json_t **out, const char *text, size_t n_bytes, const char *path, ig_error *err);
/* The same of a text that may also be neither an object nor an array. */
ig_status ig_json_parse_any(json_t **out, const char *text, size_t n_bytes, const char *path, ig_error *err);
/* Reads an object from a file of at most 256 MiB. IG_E_NOT_FOUND if there is no such file. */
ig_status ig_json_load(json_t **out, size_t *n_bytes, const char *path, ig_error *err);
/* Any value, also one that is neither an object nor an array; NULL: it is none, or no memory. */
json_t *ig_json_value(const char *text, size_t n_bytes);
/* A text of JSON, as json_dumps() has it, to be freed; NULL: there is no value, or no memory. */
char *ig_json_write(const json_t *value, size_t flags);

#endif
