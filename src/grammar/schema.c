/* SPDX-License-Identifier: Apache-2.0
 *
 * From a JSON schema to rules: the list of those to be written, and schemas that are made of others.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/rules.h"
#include "grammar/schema_parts.h"

enum {
    MAX_BYTES = 1 << 20,
    MAX_RULES = 4096 + IG_N_COMMON,
    MAX_STEPS = 64 /* references, and choices of choices, in a row */
};

/* ---- which rule is a schema's ------------------------------------------------ */

static bool find(const ig_schema_writer *w, size_t *rule, const json_t *schema) {
    char address[32];
    snprintf(address, sizeof address, ":%p", (const void *)schema);
    const json_t *number = json_object_get(w->known, address);
    if (number) *rule = (size_t)json_integer_value(number);
    return number != NULL;
}

static ig_status remember(ig_schema_writer *w, const json_t *schema, size_t rule) {
    char address[32];
    snprintf(address, sizeof address, ":%p", (const void *)schema);
    if (json_object_set_new(w->known, address, json_integer((json_int_t)rule)) == 0) return IG_OK;
    return ig_fail_memory(w->err, "rules of schemas", sizeof address);
}

/* The common rule for a schema that names a type and no more; IG_N_COMMON if it says more. */
static ig_status find_common(size_t *rule, ig_schema_writer *w, const ig_schema_at *at, uint64_t keys) {
    uint64_t types;
    ig_status s = ig_schema_types(w, &types, at);
    *rule = IG_N_COMMON;
    if (s || keys & ~IG_KEY_TYPE) return s;
    if (!types) *rule = IG_COMMON_VALUE;
    for (size_t i = 0; IG_BIT(i) & IG_TYPES; i++)
        if (types == IG_BIT(i)) *rule = i;
    if (*rule < IG_N_COMMON) w->used |= IG_BIT(*rule);
    return IG_OK;
}

static ig_status add_rule(ig_schema_writer *w, const ig_schema_at *at, uint64_t keys, const char *hint,
                          const char *key) {
    char wish[IG_SCHEMA_NAME];
    bool is_first = w->n_rules == IG_N_COMMON, is_inner = *hint && strcmp(hint, "root") != 0;
    if (w->n_rules == MAX_RULES)
        return ig_fail(w->err, IG_E_LIMIT, "%s: more than %d schemas", at->place, MAX_RULES - IG_N_COMMON);
    ig_schema_rule *rule = &w->rules[w->n_rules++];
    snprintf(wish, sizeof wish, "%.30s%s%.30s", is_inner ? hint : "", is_inner ? "-" : "", is_first ? "root" : key);
    rule->at = *at;
    rule->keys = keys;
    return ig_schema_name(w, rule->name, wish) ? IG_OK : ig_fail_memory(w->err, "names of rules", sizeof wish);
}

/* From a schema that only says which other it is to that one; `key` becomes that one's name. */
static ig_status pass(const ig_schema_writer *w, bool *is_passed, ig_schema_at *at, uint64_t keys, const char **key) {
    const json_t *all = json_object_get(at->schema, "allOf");
    *is_passed = keys == IG_KEY_REF || (keys == IG_KEY_ALL && json_array_size(all) == 1);
    if (!*is_passed) return IG_OK;
    if (keys == IG_KEY_ALL) {
        *at = ig_schema_child(at, json_array_get(all, 0), "allOf", "0");
        return IG_OK;
    }
    const char *ref = json_string_value(json_object_get(at->schema, "$ref")), *name = ref ? strrchr(ref, '/') : NULL;
    *key = name ? name + 1 : "root";
    return ig_schema_follow(w, at);
}

ig_status ig_schema_rule_of(ig_schema_writer *w, size_t *rule, const ig_schema_at *at, const char *hint,
                            const char *key) {
    const json_t *passed[MAX_STEPS];
    ig_schema_at target = *at;
    const char *name = key;
    size_t n = 0;
    ig_status s = IG_OK;
    for (bool goes_on = true; goes_on && !find(w, rule, target.schema);) {
        uint64_t keys;
        if (n == MAX_STEPS)
            return ig_fail(w->err, IG_E_UNSUPPORTED, "%s: leads back to itself, or over too many others", at->place);
        passed[n++] = target.schema;
        s = ig_schema_keys(w, &keys, &target);
        if (!s) s = pass(w, &goes_on, &target, keys, &name);
        if (!s && !goes_on) s = find_common(rule, w, &target, keys);
        if (s) return s;
        if (goes_on || *rule < IG_N_COMMON) continue;
        *rule = w->n_rules;
        s = add_rule(w, &target, keys, name == key ? hint : "", name);
    }
    for (size_t i = 0; i < n && !s; i++) s = remember(w, passed[i], *rule);
    return s;
}

/* ---- values and choices ------------------------------------------------------ */

/* 1.0 is an integer, too. */
static uint64_t type_of(const json_t *value) {
    static const uint64_t types[] = {
        [JSON_OBJECT] = IG_BIT(IG_COMMON_OBJECT), [JSON_ARRAY] = IG_BIT(IG_COMMON_ARRAY),
        [JSON_STRING] = IG_BIT(IG_COMMON_STRING), [JSON_INTEGER] = IG_BIT(IG_COMMON_INTEGER) | IG_BIT(IG_COMMON_NUMBER),
        [JSON_REAL] = IG_BIT(IG_COMMON_NUMBER),   [JSON_TRUE] = IG_BIT(IG_COMMON_BOOLEAN),
        [JSON_FALSE] = IG_BIT(IG_COMMON_BOOLEAN), [JSON_NULL] = IG_BIT(IG_COMMON_NULL),
    };
    double x = json_real_value(value);
    return types[json_typeof(value)] | (json_is_real(value) && x == floor(x) ? IG_BIT(IG_COMMON_INTEGER) : 0);
}

/* With as few digits as give the same numbers. */
static char *text_of(const json_t *value) {
    for (unsigned n_digits = 15;; n_digits++) {
        char *text = ig_json_write(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(n_digits));
        json_t *again = text && n_digits < 17 ? ig_json_value(text, strlen(text)) : NULL;
        bool is_same = again && json_equal(again, value);
        json_decref(again);
        if (!text || is_same || n_digits == 17) return text;
        free(text);
    }
}

static ig_status write_value(ig_schema_writer *w, const json_t *value) {
    char *text = text_of(value);
    if (!text) return ig_fail_memory(w->err, "a value", 1);
    if (w->line.size) ig_buffer_text(&w->line, " | ");
    ig_schema_literal(&w->line, text, strlen(text));
    free(text);
    return IG_OK;
}

static ig_status write_values(ig_schema_writer *w, const ig_schema_at *at) {
    const json_t *one = json_object_get(at->schema, "const"), *several = json_object_get(at->schema, "enum");
    uint64_t types;
    ig_status s = ig_schema_types(w, &types, at);
    if (!s && several && one) s = ig_schema_refuse(w, at, IG_KEY_VALUE);
    if (!s && several && !json_is_array(several))
        return ig_fail(w->err, IG_E_FORMAT, "%s: 'enum' is not an array", at->place);
    for (size_t i = 0; i < (one ? 1 : json_array_size(several)) && !s; i++) {
        const json_t *value = one ? one : json_array_get(several, i);
        if (!types || type_of(value) & types) s = write_value(w, value);
    }
    if (!s && !w->line.size && !w->line.failed)
        return ig_fail(w->err, IG_E_UNSUPPORTED, "%s: no value is allowed", at->place);
    return s;
}

static ig_status write_choices(ig_schema_writer *w, ig_schema_rule *rule) {
    const char *keyword = json_object_get(rule->at.schema, "anyOf") ? "anyOf" : "oneOf";
    const json_t *list = json_object_get(rule->at.schema, keyword);
    ig_status s = IG_OK;
    if (!json_array_size(list))
        return ig_fail(w->err, IG_E_FORMAT, "%s: '%s' is not a list of schemas", rule->at.place, keyword);
    if (*keyword == 'a' && json_object_get(rule->at.schema, "oneOf")) return ig_schema_refuse(w, &rule->at, IG_KEY_ANY);
    rule->choice = w->choices.size / sizeof(uint32_t);
    rule->n_choices = json_array_size(list);
    for (size_t i = 0, number; i < rule->n_choices && !s; i++) {
        char key[24];
        snprintf(key, sizeof key, "%zu", i);
        ig_schema_at child = ig_schema_child(&rule->at, json_array_get(list, i), keyword, key);
        s = ig_schema_rule_of(w, &number, &child, rule->name, key);
        if (s) return s;
        ig_buffer_format(&w->line, i ? " | %s" : "%s", w->rules[number].name);
        ig_buffer_add(&w->choices, &(uint32_t){(uint32_t)number}, sizeof(uint32_t));
    }
    return s;
}

/* No rule may begin with itself. Each is looked at once, and the first that does ends it all. */
static ig_status ground(ig_schema_writer *w, ig_schema_rule *rule, int depth) {
    ig_status s = IG_OK;
    if (rule->is_grounded) return IG_OK;
    if (depth == MAX_STEPS)
        return ig_fail(w->err, IG_E_UNSUPPORTED, "%s: is a choice of itself, or of too many others in a row",
                       rule->at.place);
    for (size_t i = 0; i < rule->n_choices && !s; i++) {
        uint32_t number;
        memcpy(&number, w->choices.data + (rule->choice + i) * sizeof number, sizeof number);
        s = ground(w, &w->rules[number], depth + 1);
    }
    rule->is_grounded = !s;
    return s;
}

/* ---- rules ------------------------------------------------------------------- */

static ig_status write_type(ig_schema_writer *w, const ig_schema_rule *rule, ig_schema_common type) {
    uint64_t kind = type == IG_COMMON_INTEGER ? IG_BIT(IG_COMMON_NUMBER) : IG_BIT(type);
    if (w->line.size) ig_buffer_text(&w->line, " | ");
    if (!(rule->keys & kind)) {
        ig_buffer_text(&w->line, w->rules[type].name);
        w->used |= IG_BIT(type);
        return IG_OK;
    }
    switch (type) {
        case IG_COMMON_OBJECT:
            return ig_schema_object(w, rule);
        case IG_COMMON_ARRAY:
            return ig_schema_array(w, rule);
        case IG_COMMON_STRING:
            return ig_schema_string(w, &rule->at);
        case IG_COMMON_NUMBER:
            return ig_schema_number(w, &rule->at);
        default:
            return ig_schema_integer(w, &rule->at);
    }
}

/* Formats of what is no string: those that the common rules keep to. */
static ig_status check_format(const ig_schema_writer *w, const ig_schema_at *at) {
    static const char *const formats[] = {"int64", "float", "double"};
    const char *format = json_string_value(json_object_get(at->schema, "format"));
    for (size_t i = 0; i < IG_COUNT(formats) && format; i++)
        if (strcmp(format, formats[i]) == 0) return IG_OK;
    return ig_schema_refuse_format(w, at);
}

/* Where no type is said, keywords that matter to one mean that one. */
static ig_status write_types(ig_schema_writer *w, const ig_schema_rule *rule) {
    uint64_t types;
    ig_status s = ig_schema_types(w, &types, &rule->at);
    if (!types) types = rule->keys & IG_TYPES;
    if (!s && !(types & IG_BIT(IG_COMMON_STRING))) s = check_format(w, &rule->at);
    for (int i = 0; IG_BIT(i) & IG_TYPES && !s; i++)
        if (types & IG_BIT(i)) s = write_type(w, rule, (ig_schema_common)i);
    return s;
}

static ig_status write_rule(ig_schema_writer *w, ig_schema_rule *rule) {
    const uint64_t merged = IG_KEY_REF | IG_KEY_ALL, object = IG_KEY_TYPE | IG_BIT(IG_COMMON_OBJECT);
    ig_status s;
    w->line.size = w->below.size = 0;
    if (rule->keys & IG_KEY_VALUE) {
        s = ig_schema_refuse(w, &rule->at, ~(IG_KEY_VALUE | IG_KEY_TYPE));
        if (!s) s = write_values(w, &rule->at);
    } else if (rule->keys & IG_KEY_ANY) {
        s = ig_schema_refuse(w, &rule->at, ~IG_KEY_ANY);
        if (!s) s = write_choices(w, rule);
    } else if (rule->keys & merged) {
        s = ig_schema_refuse(w, &rule->at, ~(merged | object));
        if (!s) s = ig_schema_object(w, rule);
    } else {
        s = write_types(w, rule);
    }
    ig_buffer_format(&w->out, "%s ::= ", rule->name);
    ig_buffer_add(&w->out, w->line.data, w->line.size);
    ig_buffer_text(&w->out, "\n");
    ig_buffer_add(&w->out, w->below.data, w->below.size);
    return s ? s : ig_schema_check_size(w);
}

static ig_status write_all(ig_schema_writer *w) {
    size_t first;
    ig_schema_at root = {w->root, "#"};
    ig_status s = ig_schema_rule_of(w, &first, &root, "", "root");
    if (s) return s;
    if (first < IG_N_COMMON) ig_buffer_format(&w->out, "root ::= %s\n", w->rules[first].name);
    for (size_t i = IG_N_COMMON; i < w->n_rules && !s; i++) s = write_rule(w, &w->rules[i]);
    ig_schema_write_common(w);
    if (!s && (w->out.failed || w->line.failed || w->below.failed || w->choices.failed))
        return ig_fail_memory(w->err, "a grammar", w->out.size);
    for (size_t i = IG_N_COMMON; i < w->n_rules && !s; i++) s = ground(w, &w->rules[i], 0);
    return s;
}

/* Schemas that ask for themselves, such as for a member of the same kind, have no values. */
static ig_status check_end(const ig_schema_writer *w) {
    ig_rules rules;
    ig_error err;
    if (ig_rules_parse(&rules, w->out.data, &err)) return IG_OK; /* who opens the grammar is told */
    bool is_endless = rules.is_endless;
    ig_rules_close(&rules);
    return is_endless ? ig_fail(w->err, IG_E_UNSUPPORTED, "#: no value that it allows ever ends") : IG_OK;
}

ig_status ig_schema_to_gbnf(char **out, const char *schema, size_t n_bytes, ig_error *err) {
    ig_schema_writer w = {.err = err};
    json_t *root = NULL;
    if (out) *out = NULL;
    if (!out || !schema) return ig_fail(err, IG_E_ARG, "ig_schema_to_gbnf: a schema and a result are needed");
    if (n_bytes > MAX_BYTES) return ig_fail(err, IG_E_LIMIT, "schema: larger than %d MiB", MAX_BYTES >> 20);
    ig_status s = ig_json_parse_any(&root, schema, n_bytes, "schema", err);
    if (s) return s;
    w.root = root;
    w.known = json_object();
    w.rules = calloc(MAX_RULES, sizeof *w.rules);
    if (!w.known || !w.rules || !ig_schema_names_open(&w))
        s = ig_fail_memory(err, "rules of a grammar", MAX_RULES * sizeof *w.rules);
    if (!s) s = write_all(&w);
    if (!s) s = check_end(&w);
    if (!s)
        *out = w.out.data;
    else
        ig_buffer_close(&w.out);
    ig_buffer_close(&w.line);
    ig_buffer_close(&w.below);
    ig_buffer_close(&w.choices);
    free(w.rules);
    json_decref(w.known);
    json_decref(root);
    return s;
}
