/* SPDX-License-Identifier: Apache-2.0
 *
 * Arguments of a tool and their schemas: how they are written where they are no object, as texts or as JSON; and
 * whether they are valid.
 */
#include "server/answers.h"

#include <string.h>

/* What "#/$defs/NAME" of a schema is. */
static const json_t *refer(const json_t *schema, const char *to) {
    char part[128];
    if (*to != '#') return NULL;
    for (to++; schema && *to == '/'; to += strlen(part)) {
        size_t n = strcspn(++to, "/");
        if (n >= sizeof part) return NULL;
        memcpy(part, to, n);
        part[n] = '\0';
        schema = json_object_get(schema, part);
    }
    return *to ? NULL : schema;
}

const json_t *ig_tool_schema(const json_t *function, const json_t *schema) {
    enum { REFERENCES_MAX = 8 };
    const char *to;
    for (int i = 0; i < REFERENCES_MAX && (to = json_string_value(json_object_get(schema, "$ref"))); i++)
        schema = refer(ig_field(function, "parameters"), to);
    return schema;
}

const json_t *ig_tool_parameter(const json_t *function, const char *name) {
    const json_t *properties = json_object_get(ig_field(function, "parameters"), "properties");
    return ig_tool_schema(function, json_object_get(properties, name));
}

/* Whether all of a list are texts; *none: no one is. */
static bool are_texts(const json_t *list, bool *none) {
    size_t n_texts = 0, i;
    json_t *v;
    json_array_foreach(list, i, v) n_texts += json_is_string(v);
    *none = n_texts == 0;
    return n_texts && n_texts == json_array_size(list);
}

ig_tool_value ig_tool_value_of(const json_t *p) {
    const json_t *type = json_object_get(p, "type"), *values = json_object_get(p, "enum"),
                 *one = json_object_get(p, "const");
    const char *word = json_string_value(type);
    bool none = false;
    if (are_texts(values, &none) || json_is_string(one) || (word && strcmp(word, "string") == 0))
        return IG_TOOL_TEXT_VALUE;
    if ((values && none) || (one && !json_is_string(one)) || word) return IG_TOOL_JSON_VALUE;
    bool takes_text = !json_is_array(type);
    size_t i;
    json_t *v;
    json_array_foreach(type, i, v) takes_text |= json_is_string(v) && strcmp(json_string_value(v), "string") == 0;
    return takes_text ? IG_TOOL_ANY_VALUE : IG_TOOL_JSON_VALUE;
}

static bool is_of(const json_t *v, const char *type) {
    static const char *const names[] = {
        [JSON_OBJECT] = "object", [JSON_ARRAY] = "array",   [JSON_INTEGER] = "integer", [JSON_REAL] = "number",
        [JSON_TRUE] = "boolean",  [JSON_FALSE] = "boolean", [JSON_NULL] = "null",       [JSON_STRING] = "string"};
    return strcmp(type, names[json_typeof(v)]) == 0 || (json_is_number(v) && strcmp(type, "number") == 0);
}

/* Whether one of these is a type of a value, or a schema that has one; what is not known may be. */
static bool are_of(const json_t *list, const json_t *v) {
    size_t i;
    json_t *one;
    json_array_foreach(list, i, one) {
        const json_t *type = json_is_object(one) ? json_object_get(one, "type") : one;
        if (!json_is_string(type) || is_of(v, json_string_value(type))) return true;
    }
    return json_array_size(list) == 0;
}

bool ig_tool_takes(const json_t *p, const json_t *v) {
    return are_of(json_object_get(p, "type"), v) && are_of(json_object_get(p, "anyOf"), v) &&
           are_of(json_object_get(p, "oneOf"), v);
}

static bool is_among(const json_t *list, const json_t *v) {
    size_t i;
    json_t *one;
    json_array_foreach(list, i, one) if (json_equal(one, v)) return true;
    return !list;
}

static bool has_all(const json_t *object, const json_t *names) {
    size_t i;
    json_t *name;
    json_array_foreach(names, i, name) {
        const char *text = json_string_value(name);
        if (text && !json_object_get(object, text)) return false;
    }
    return true;
}

/* Where schemas refer to themselves each step down goes down in the value too. */
bool ig_tool_fits(const json_t *function, const json_t *schema, const json_t *v) {
    const json_t *s = ig_tool_schema(function, schema), *one = json_object_get(s, "const");
    const json_t *properties = json_object_get(s, "properties"), *others = json_object_get(s, "additionalProperties");
    const char *name, *type = json_string_value(json_object_get(s, "type"));
    json_t *member;
    size_t i;
    if (json_is_false(s) || (type && !is_of(v, type)) || !ig_tool_takes(s, v) || (one && !json_equal(one, v)) ||
        !is_among(json_object_get(s, "enum"), v))
        return false;
    json_array_foreach(v, i, member) if (!ig_tool_fits(function, json_object_get(s, "items"), member)) return false;
    if (!json_is_object(v)) return true;
    json_object_foreach((json_t *)(uintptr_t)v, name, member) {
        const json_t *own = json_object_get(properties, name);
        if (!ig_tool_fits(function, own ? own : others, member)) return false;
    }
    return has_all(v, json_object_get(s, "required"));
}
