/* SPDX-License-Identifier: Apache-2.0
 *
 * The keywords of schemas. What is not in the table is refused by name.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/schema_parts.h"

#define OBJECT IG_BIT(IG_COMMON_OBJECT)
#define ARRAY IG_BIT(IG_COMMON_ARRAY)
#define STRING IG_BIT(IG_COMMON_STRING)
#define NUMBER IG_BIT(IG_COMMON_NUMBER)

enum { MAX_KEYS = 200, MAX_REFERENCE = 1024 };

static const struct {
    const char *name;
    uint64_t keys; /* 0: constrains nothing */
    bool is_false; /* taken as false only, which constrains nothing */
} known[] = {
    {"type", IG_KEY_TYPE, false},
    {"$ref", IG_KEY_REF, false},
    {"allOf", IG_KEY_ALL, false},
    {"anyOf", IG_KEY_ANY, false},
    {"oneOf", IG_KEY_ANY, false},
    {"enum", IG_KEY_VALUE, false},
    {"const", IG_KEY_VALUE, false},
    {"properties", OBJECT, false},
    {"required", OBJECT, false},
    {"additionalProperties", OBJECT, false},
    {"minProperties", OBJECT, false},
    {"maxProperties", OBJECT, false},
    {"items", ARRAY, false},
    {"prefixItems", ARRAY, false},
    {"additionalItems", ARRAY, false},
    {"minItems", ARRAY, false},
    {"maxItems", ARRAY, false},
    {"uniqueItems", 0, true},
    {"minLength", STRING, false},
    {"maxLength", STRING, false},
    {"pattern", STRING, false},
    {"format", STRING, false},
    {"minimum", NUMBER, false},
    {"maximum", NUMBER, false},
    {"exclusiveMinimum", NUMBER, false},
    {"exclusiveMaximum", NUMBER, false},
    {"multipleOf", NUMBER, false},
    {"nullable", 0, true},
    {"$defs", 0, false},
    {"definitions", 0, false},
    {"$schema", 0, false},
    {"$id", 0, false},
    {"$comment", 0, false},
    {"title", 0, false},
    {"description", 0, false},
    {"default", 0, false},
    {"example", 0, false},
    {"examples", 0, false},
    {"deprecated", 0, false},
    {"readOnly", 0, false},
    {"writeOnly", 0, false},
    {"discriminator", 0, false},
    {"contentMediaType", 0, false},
};

static const char *const type_names[] = {"object", "array", "string", "number", "integer", "boolean", "null"};

ig_schema_at ig_schema_child(const ig_schema_at *at, const json_t *schema, const char *keyword, const char *key) {
    ig_schema_at child = {.schema = schema};
    int n = snprintf(child.place, sizeof child.place, "%s/%s%s%s", at->place, keyword, key ? "/" : "", key ? key : "");
    if (n < (int)sizeof child.place) return child;
    char *end = child.place + sizeof child.place - 4;
    while ((*end & 0xc0) == 0x80) end--;
    memcpy(end, "...", 4);
    return child;
}

static ig_status check_keyword(const ig_schema_writer *w, uint64_t *keys, const ig_schema_at *at, const char *key) {
    if (strncmp(key, "x-", 2) == 0) return IG_OK;
    for (size_t i = 0; i < IG_COUNT(known); i++) {
        if (strcmp(known[i].name, key) != 0) continue;
        if (known[i].is_false && !json_is_false(json_object_get(at->schema, key))) break;
        if (strcmp(key, "$id") == 0 && at->schema != w->root) break; /* references would mean something else */
        *keys |= known[i].keys;
        return IG_OK;
    }
    return ig_fail(w->err, IG_E_UNSUPPORTED, "%s: '%.64s' is not supported", at->place, key);
}

ig_status ig_schema_keys(const ig_schema_writer *w, uint64_t *keys, const ig_schema_at *at) {
    const char *key;
    json_t *value;
    ig_status s = IG_OK;
    *keys = 0;
    if (json_is_true(at->schema)) return IG_OK;
    if (json_is_false(at->schema)) return ig_fail(w->err, IG_E_UNSUPPORTED, "%s: 'false' allows nothing", at->place);
    if (!json_is_object(at->schema)) return ig_fail(w->err, IG_E_FORMAT, "%s: is not a schema", at->place);
    if (json_object_size(at->schema) > MAX_KEYS)
        return ig_fail(w->err, IG_E_LIMIT, "%s: more than %d keywords", at->place, MAX_KEYS);
    json_object_foreach((json_t *)at->schema, key, value) if (!s) s = check_keyword(w, keys, at, key);
    return s;
}

static bool is_there(const ig_schema_at *at, const char *key) {
    return strcmp(key, "format") == 0 ? ig_schema_format(at) != NULL : json_object_get(at->schema, key) != NULL;
}

ig_status ig_schema_refuse(const ig_schema_writer *w, const ig_schema_at *at, uint64_t keys) {
    for (size_t i = 0; i < IG_COUNT(known); i++)
        if ((known[i].keys & keys) && is_there(at, known[i].name))
            return ig_fail(w->err, IG_E_UNSUPPORTED, "%s: '%s' is not supported here", at->place, known[i].name);
    return IG_OK;
}

static ig_status add_type(const ig_schema_writer *w, uint64_t *types, const ig_schema_at *at, const json_t *type) {
    for (size_t i = 0; i < IG_COUNT(type_names) && json_is_string(type); i++)
        if (strcmp(json_string_value(type), type_names[i]) == 0) return *types |= IG_BIT(i), IG_OK;
    return ig_fail(w->err, IG_E_FORMAT, "%s: 'type' is not a type", at->place);
}

ig_status ig_schema_types(const ig_schema_writer *w, uint64_t *types, const ig_schema_at *at) {
    const json_t *type = json_object_get(at->schema, "type");
    ig_status s = IG_OK;
    *types = 0;
    if (type && !json_is_array(type)) return add_type(w, types, at, type);
    if (type && (!json_array_size(type) || json_array_size(type) > IG_COUNT(type_names)))
        return ig_fail(w->err, IG_E_FORMAT, "%s: 'type' is no list of types", at->place);
    for (size_t i = 0; i < json_array_size(type) && !s; i++) s = add_type(w, types, at, json_array_get(type, i));
    if (*types & NUMBER) *types &= ~IG_BIT(IG_COMMON_INTEGER); /* one of these */
    return s;
}

static ig_status read_count(const ig_schema_writer *w, size_t *count, const ig_schema_at *at, const char *key) {
    const json_t *value = json_object_get(at->schema, key);
    if (!value) return IG_OK;
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return ig_fail(w->err, IG_E_FORMAT, "%s: '%s' is not a count", at->place, key);
    if (json_integer_value(value) > IG_SCHEMA_REPEAT)
        return ig_fail(w->err, IG_E_LIMIT, "%s: '%s' is larger than %d", at->place, key, IG_SCHEMA_REPEAT);
    *count = (size_t)json_integer_value(value);
    return IG_OK;
}

ig_status ig_schema_read_span(const ig_schema_writer *w, ig_schema_span *span, const ig_schema_at *at, const char *min,
                              const char *max) {
    *span = (ig_schema_span){0, SIZE_MAX};
    ig_status s = read_count(w, &span->min, at, min);
    if (!s) s = read_count(w, &span->max, at, max);
    if (!s && span->min > span->max)
        return ig_fail(w->err, IG_E_UNSUPPORTED, "%s: '%s' over '%s' allows nothing", at->place, min, max);
    return s;
}

/* ---- references -------------------------------------------------------------- */

/* The next part of a pointer, decoded; false if it is damaged. */
static bool next_part(ig_buffer *part, const char **pointer) {
    part->size = 0;
    for (const char *p = ++*pointer; *p && *p != '/'; p = ++*pointer) {
        char c = *p;
        if (c == '%') { /* of a URI */
            if (!isxdigit((unsigned char)p[1]) || !isxdigit((unsigned char)p[2])) return false;
            c = (char)strtoul((char[3]){p[1], p[2], 0}, NULL, 16);
            *pointer += 2;
        }
        ig_buffer_add(part, &c, 1);
    }
    ig_buffer_add(part, "", 1);
    if (part->failed) return false;
    char *to = part->data;
    for (const char *from = part->data; *from; from++) {
        bool is_escape = *from == '~';
        if (is_escape && from[1] != '0' && from[1] != '1') return false;
        *to++ = (char)(!is_escape ? *from : *++from == '0' ? '~' : '/');
    }
    *to = 0;
    return true;
}

static const json_t *step(const json_t *value, const char *part) {
    if (!json_is_array(value)) return json_object_get(value, part);
    size_t n = strspn(part, "0123456789");
    return n && n < 10 && !part[n] ? json_array_get(value, strtoul(part, NULL, 10)) : NULL;
}

ig_status ig_schema_follow(const ig_schema_writer *w, ig_schema_at *at) {
    const char *ref = json_string_value(json_object_get(at->schema, "$ref")), *p = ref;
    const json_t *value = w->root;
    ig_buffer part = {0};
    if (!ref) return ig_fail(w->err, IG_E_FORMAT, "%s: '$ref' is not a text", at->place);
    if (*p++ != '#' || (*p && *p != '/'))
        return ig_fail(w->err, IG_E_UNSUPPORTED, "%s: '$ref' to '%.64s' is not supported, only '#/...'", at->place,
                       ref);
    if (strlen(ref) > MAX_REFERENCE)
        return ig_fail(w->err, IG_E_LIMIT, "%s: '$ref' is longer than %d bytes", at->place, MAX_REFERENCE);
    while (*p && value) value = next_part(&part, &p) ? step(value, part.data) : NULL;
    bool failed = part.failed;
    ig_buffer_close(&part);
    if (failed) return ig_fail_memory(w->err, "a reference", strlen(ref));
    if (!value) return ig_fail(w->err, IG_E_FORMAT, "%s: '$ref' to '%.64s': there is no such thing", at->place, ref);
    at->schema = value;
    snprintf(at->place, sizeof at->place, "%s", ref);
    return IG_OK;
}
