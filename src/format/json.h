/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON texts of model files, parsed by jansson with its strict settings.
 */
#ifndef IG_FORMAT_JSON_H
#define IG_FORMAT_JSON_H

#include <jansson.h>

#include "infinigen.h"

/* Refuses duplicate keys, invalid UTF-8 and NULs in strings. Errors name `path`, line and column. The
 * caller gives *out back with json_decref(). */
ig_status ig_json_parse(json_t **out, const char *text, size_t n_bytes, const char *path, ig_error *err);

#endif
