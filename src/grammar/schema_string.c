/* SPDX-License-Identifier: Apache-2.0
 *
 * Strings of a length or a format.
 */
#include <string.h>

#include "grammar/schema_parts.h"

/* The shortest and longest texts of the common rules: `minLength` and `maxLength` beside them may say no more. */
static const struct {
    const char *name;
    ig_schema_common rule;
    ig_schema_span length;
} formats[] = {
    {"date-time", IG_COMMON_DATE_TIME, {20, 32}},
    {"date", IG_COMMON_DATE, {10, 10}},
    {"time", IG_COMMON_TIME, {9, 21}},
    {"duration", IG_COMMON_DURATION, {3, 44}},
    {"uuid", IG_COMMON_UUID, {36, 36}},
    {"email", IG_COMMON_EMAIL, {6, 219}},
    {"uri", IG_COMMON_URI, {5, 2065}},
    {"hostname", IG_COMMON_HOSTNAME, {1, 239}},
    {"ipv4", IG_COMMON_IPV4, {7, 15}},
    {"ipv6", IG_COMMON_IPV6, {2, 39}},
};

/* Whether a format constrains a value, as JSON Schema or OpenAPI says. */
static bool is_defined(const char *format) {
    static const char *const others[] = {
        "idn-email", "idn-hostname", "uri-reference",         "iri",   "iri-reference", "uri-template", "json-pointer",
        "regex",     "byte",         "relative-json-pointer", "int32", "int64",         "float",        "double"};
    for (size_t i = 0; i < IG_COUNT(others); i++)
        if (strcmp(format, others[i]) == 0) return true;
    for (size_t i = 0; i < IG_COUNT(formats); i++)
        if (strcmp(format, formats[i].name) == 0) return true;
    return false;
}

const json_t *ig_schema_format(const ig_schema_at *at) {
    const json_t *format = json_object_get(at->schema, "format");
    return json_is_string(format) && !is_defined(json_string_value(format)) ? NULL : format;
}

ig_status ig_schema_refuse_format(const ig_schema_writer *w, const ig_schema_at *at) {
    const json_t *format = ig_schema_format(at);
    if (!format) return IG_OK;
    if (!json_is_string(format)) return ig_fail(w->err, IG_E_FORMAT, "%s: 'format' is not a text", at->place);
    return ig_fail(w->err, IG_E_UNSUPPORTED, "%s: 'format' of '%.64s' is not supported", at->place,
                   json_string_value(format));
}

static ig_status write_format(ig_schema_writer *w, const ig_schema_at *at, const char *format, ig_schema_span span) {
    for (size_t i = 0; i < IG_COUNT(formats); i++) {
        if (strcmp(format, formats[i].name) != 0) continue;
        if (formats[i].length.min < span.min || formats[i].length.max > span.max)
            return ig_fail(w->err, IG_E_UNSUPPORTED, "%s: 'format' of '%s' and a length are not supported together",
                           at->place, format);
        ig_buffer_format(&w->line, "\"\\\"\" %s \"\\\"\"", w->rules[formats[i].rule].name);
        w->used |= IG_BIT(formats[i].rule);
        return IG_OK;
    }
    return ig_schema_refuse_format(w, at);
}

ig_status ig_schema_string(ig_schema_writer *w, const ig_schema_at *at) {
    const json_t *format = ig_schema_format(at), *pattern = json_object_get(at->schema, "pattern");
    ig_schema_span span;
    ig_status s = ig_schema_read_span(w, &span, at, "minLength", "maxLength");
    if (s) return s;
    bool has_length = span.min || span.max != SIZE_MAX;
    if (pattern && (format || has_length))
        return ig_fail(w->err, IG_E_UNSUPPORTED, "%s: 'pattern' and %s are not supported together", at->place,
                       format ? "'format'" : "a length");
    if (pattern) return ig_schema_pattern(w, at);
    if (format && !json_is_string(format)) return ig_schema_refuse_format(w, at);
    if (format) return write_format(w, at, json_string_value(format), span);
    if (!span.max) return ig_buffer_text(&w->line, "\"\\\"\\\"\""), IG_OK;
    w->used |= IG_BIT(IG_COMMON_CHAR);
    ig_buffer_text(&w->line, "\"\\\"\" char");
    s = ig_schema_repeat(w, at, span);
    ig_buffer_text(&w->line, " \"\\\"\"");
    return s;
}
