/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON texts.
 */
#include "format/json.h"

#include "base/error.h"

ig_status ig_json_parse(json_t **out, const char *text, size_t n_bytes, const char *path, ig_error *err) {
    json_error_t at;
    *out = json_loadb(text, n_bytes, JSON_REJECT_DUPLICATES, &at);
    if (*out) return IG_OK;
    /* Where memory fails, jansson mostly says nothing at all. */
    if (!at.text[0] || json_error_code(&at) == json_error_out_of_memory) return ig_fail_memory(err, path, n_bytes);
    return ig_fail(err, IG_E_FORMAT, "%s: line %d column %d: %s", path, at.line, at.column, at.text);
}
