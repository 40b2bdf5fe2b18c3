/* SPDX-License-Identifier: Apache-2.0
 *
 * Arguments of a tool and their schemas: how they are written where they are no object, as texts or as JSON; and
 * whether they are valid.
 */
#include "server/answers.h"

#include <math.h>
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

/* 4.0 is an integer. */
static bool is_of_type(const json_t *type, const json_t *v) {
    size_t i;
    json_t *one;
    const char *name = json_string_value(type);
    double x = json_number_value(v);
    if (name) return is_of(v, name) || (strcmp(name, "integer") == 0 && json_is_real(v) && floor(x) >= x);
    json_array_foreach(type, i, one) if (is_of_type(one, v)) return true;
    return !json_is_array(type);
}

static bool any_takes(const json_t *list, const json_t *v) {
    size_t i;
    json_t *one;
    json_array_foreach(list, i, one) if (ig_tool_takes(one, v)) return true;
    return json_array_size(list) == 0;
}

bool ig_tool_takes(const json_t *p, const json_t *v) {
    return is_of_type(json_object_get(p, "type"), v) && any_takes(json_object_get(p, "anyOf"), v) &&
           any_takes(json_object_get(p, "oneOf"), v);
}

/* Numbers are equal by their value. */
static bool is_equal(const json_t *a, const json_t *b) {
    if (!json_is_number(a) || !json_is_number(b)) return json_equal(a, b);
    double x = json_number_value(a), y = json_number_value(b);
    return x <= y && x >= y;
}

static bool is_among(const json_t *list, const json_t *v) {
    size_t i;
    json_t *one;
    json_array_foreach(list, i, one) if (is_equal(one, v)) return true;
    return !json_is_array(list);
}

/* Whether a size is within two limits of these names, as far as there are any. */
static bool is_within(const json_t *schema, const char *least, const char *most, double size) {
    const json_t *from = json_object_get(schema, least), *to = json_object_get(schema, most);
    return !(json_is_number(from) && size < json_number_value(from)) &&
           !(json_is_number(to) && size > json_number_value(to));
}

static size_t count_characters(const json_t *text) {
    size_t n = 0;
    for (const char *at = json_string_value(text); *at; at++) n += (*at & 0xc0) != 0x80;
    return n;
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

/* Schemas may refer to themselves without an end, and to others in ever more ways. */
enum { FITTING_STEPS = 20000, FITTING_DEPTH = 200 };

typedef struct fitting {
    const json_t *function;
    int n_left, depth;
} fitting;

static bool fits(fitting *f, const json_t *schema, const json_t *v);

static bool fits_any(fitting *f, const json_t *schemas, const json_t *v) {
    size_t i;
    json_t *one;
    json_array_foreach(schemas, i, one) if (fits(f, one, v)) return true;
    return json_array_size(schemas) == 0;
}

static bool fits_members(fitting *f, const json_t *s, const json_t *v) {
    const json_t *properties = json_object_get(s, "properties"), *others = json_object_get(s, "additionalProperties");
    const char *name;
    json_t *member;
    json_object_foreach((json_t *)(uintptr_t)v, name, member) {
        const json_t *own = json_object_get(properties, name);
        if (!fits(f, own ? own : others, member)) return false;
    }
    return has_all(v, json_object_get(s, "required")) &&
           is_within(s, "minProperties", "maxProperties", (double)json_object_size(v));
}

/* The first items have schemas of their own, if there are any ("prefixItems"). */
static bool fits_items(fitting *f, const json_t *s, const json_t *v) {
    const json_t *first = json_object_get(s, "prefixItems"), *others = json_object_get(s, "items");
    size_t i;
    json_t *item;
    json_array_foreach(v, i, item) {
        if (!fits(f, i < json_array_size(first) ? json_array_get(first, i) : others, item)) return false;
    }
    return is_within(s, "minItems", "maxItems", (double)json_array_size(v));
}

static bool fits_all(fitting *f, const json_t *schema, const json_t *v) {
    const json_t *s = ig_tool_schema(f->function, schema), *one = json_object_get(s, "const");
    if (json_is_null(v) && json_is_true(json_object_get(s, "nullable"))) return true;
    if (json_is_false(s) || !is_of_type(json_object_get(s, "type"), v) || (one && !is_equal(one, v)) ||
        !is_among(json_object_get(s, "enum"), v) || !fits_any(f, json_object_get(s, "anyOf"), v) ||
        !fits_any(f, json_object_get(s, "oneOf"), v))
        return false;
    if (json_is_object(v)) return fits_members(f, s, v);
    if (json_is_array(v)) return fits_items(f, s, v);
    if (json_is_string(v)) return is_within(s, "minLength", "maxLength", (double)count_characters(v));
    return !json_is_number(v) || is_within(s, "minimum", "maximum", json_number_value(v));
}

static bool fits(fitting *f, const json_t *schema, const json_t *v) {
    if (f->n_left == 0 || f->depth == FITTING_DEPTH) return false;
    f->n_left--;
    f->depth++;
    bool all = fits_all(f, schema, v);
    f->depth--;
    return all;
}

bool ig_tool_fits(const json_t *function, const json_t *schema, const json_t *v) {
    return fits(&(fitting){.function = function, .n_left = FITTING_STEPS}, schema, v);
}
