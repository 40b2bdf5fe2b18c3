/* SPDX-License-Identifier: Apache-2.0
 *
 * Objects. Their members come in order, so that the rules are as long as the list of members: after a first member
 * there is one sequence of those that may follow, and the rules x--2, x--3, ... are its ends. Names of further members
 * are none of the declared ones: x--key-0, x--key-1, ... follow these character by character.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/names.h"
#include "grammar/schema_parts.h"
#include "token/utf8.h"

enum { MAX_PARTS = 32 };

typedef struct member {
    const char *name;
    const json_t *schema;
    const ig_schema_at *part; /* that has it among its properties; NULL: it is required only, and one of the further */
    const ig_schema_at *required; /* the part that says so */
} member;

/* What `allOf` and `$ref` put together. */
typedef struct object {
    ig_schema_writer *w;
    const ig_schema_rule *rule;
    ig_schema_at parts[MAX_PARTS];
    size_t n_parts;
    member *members;
    size_t n, cap;
    json_t *numbers;   /* of members, by name */
    ig_schema_at more; /* of further members; a schema of NULL if there are none */
} object;

/* ---- the schemas that an object is made of ----------------------------------- */

static ig_status add_part(object *o, const ig_schema_at *at) {
    for (size_t i = 0; i < o->n_parts; i++)
        if (o->parts[i].schema == at->schema) return IG_OK;
    if (o->n_parts == MAX_PARTS)
        return ig_fail(o->w->err, IG_E_LIMIT, "%s: an object of more than %d schemas", at->place, MAX_PARTS);
    o->parts[o->n_parts++] = *at;
    return IG_OK;
}

static ig_status add_parts_of(object *o, const ig_schema_at *at) {
    const uint64_t allowed = IG_KEY_TYPE | IG_KEY_REF | IG_KEY_ALL | IG_BIT(IG_COMMON_OBJECT);
    const json_t *all = json_object_get(at->schema, "allOf");
    uint64_t keys, types;
    ig_schema_at target = *at;
    ig_status s = ig_schema_keys(o->w, &keys, at);
    if (!s && o->n_parts > 1) s = ig_schema_refuse(o->w, at, keys & ~allowed);
    if (!s) s = ig_schema_types(o->w, &types, at);
    if (!s && types && !(types & IG_BIT(IG_COMMON_OBJECT))) s = ig_schema_refuse(o->w, at, IG_KEY_TYPE);
    if (!s && (keys & IG_KEY_REF)) s = ig_schema_follow(o->w, &target);
    if (!s && (keys & IG_KEY_REF)) s = add_part(o, &target);
    if (!s && all && !json_array_size(all))
        return ig_fail(o->w->err, IG_E_FORMAT, "%s: 'allOf' is not a list of schemas", at->place);
    for (size_t i = 0; i < json_array_size(all) && !s; i++) {
        char key[24];
        snprintf(key, sizeof key, "%zu", i);
        ig_schema_at child = ig_schema_child(at, json_array_get(all, i), "allOf", key);
        s = add_part(o, &child);
    }
    return s;
}

static ig_status add_member(object *o, const char *name, const json_t *schema, const ig_schema_at *part) {
    if (o->n == o->cap) {
        size_t cap = o->cap ? 2 * o->cap : 16;
        member *members = realloc(o->members, cap * sizeof *members);
        if (!members) return ig_fail_memory(o->w->err, "members", cap * sizeof *members);
        o->members = members;
        o->cap = cap;
    }
    o->members[o->n] = (member){name, schema, part, NULL};
    if (json_object_set_new(o->numbers, name, json_integer((json_int_t)o->n)) != 0)
        return ig_fail_memory(o->w->err, "names of members", sizeof(member));
    o->n++;
    return IG_OK;
}

static ig_status add_members(object *o, const ig_schema_at *part) {
    json_t *properties = json_object_get(part->schema, "properties"), *value;
    const char *name;
    ig_status s = IG_OK;
    if (properties && !json_is_object(properties))
        return ig_fail(o->w->err, IG_E_FORMAT, "%s: 'properties' is not an object", part->place);
    json_object_foreach(properties, name, value) {
        if (!s && json_object_get(o->numbers, name))
            s = ig_fail(o->w->err, IG_E_UNSUPPORTED, "%s: property '%.64s' in several schemas", part->place, name);
        if (!s) s = add_member(o, name, value, part);
    }
    return s;
}

/* What closes one of several schemas closes them all, so it has to know all the members. */
static ig_status find_more(object *o) {
    bool is_said = false, is_open = true;
    for (size_t i = 0; i < o->n_parts; i++) {
        const ig_schema_at *part = &o->parts[i];
        json_t *more = json_object_get(part->schema, "additionalProperties");
        if (json_object_get(part->schema, "properties")) is_open = false;
        if (!more || (json_is_true(more) && o->n_parts > 1)) continue;
        if (is_said || json_object_size(json_object_get(part->schema, "properties")) != o->n)
            return ig_fail(o->w->err, IG_E_UNSUPPORTED, "%s: 'additionalProperties' is not supported in one of several",
                           part->place);
        is_said = true;
        if (!json_is_false(more)) o->more = ig_schema_child(part, more, "additionalProperties", NULL);
    }
    if (!is_said && is_open) o->more = ig_schema_child(&o->parts[0], json_true(), "additionalProperties", NULL);
    return IG_OK;
}

static ig_status read_required(object *o, const ig_schema_at *part) {
    const json_t *list = json_object_get(part->schema, "required");
    ig_status s = IG_OK;
    if (list && !json_is_array(list))
        return ig_fail(o->w->err, IG_E_FORMAT, "%s: 'required' is not an array", part->place);
    for (size_t i = 0; i < json_array_size(list) && !s; i++) {
        const char *name = json_string_value(json_array_get(list, i));
        if (!name) return ig_fail(o->w->err, IG_E_FORMAT, "%s: 'required' has other things than names", part->place);
        const json_t *number = json_object_get(o->numbers, name);
        if (!number && !o->more.schema)
            return ig_fail(o->w->err, IG_E_UNSUPPORTED, "%s: '%.64s' is required and not allowed", part->place, name);
        size_t at = number ? (size_t)json_integer_value(number) : o->n;
        if (!number) s = add_member(o, name, o->more.schema, NULL);
        if (s) return s;
        if (o->members[at].required == part)
            return ig_fail(o->w->err, IG_E_FORMAT, "%s: '%.64s' is required twice", part->place, name);
        o->members[at].required = part;
    }
    return s;
}

static ig_status check_counts(const object *o, const ig_schema_at *part) {
    ig_schema_span span;
    size_t n_required = 0;
    ig_status s = ig_schema_read_span(o->w, &span, part, "minProperties", "maxProperties");
    for (size_t i = 0; i < o->n; i++) n_required += o->members[i].required != NULL;
    if (!s && (span.min > n_required || span.max < (o->more.schema ? SIZE_MAX : o->n)))
        return ig_fail(o->w->err, IG_E_UNSUPPORTED, "%s: 'minProperties' and 'maxProperties' are not supported",
                       part->place);
    return s;
}

static ig_status read_object(object *o) {
    ig_status s = add_part(o, &o->rule->at);
    for (size_t i = 0; i < o->n_parts && !s; i++) s = add_parts_of(o, &o->parts[i]);
    for (size_t i = 0; i < o->n_parts && !s; i++) s = add_members(o, &o->parts[i]);
    if (!s) s = find_more(o);
    for (size_t i = 0; i < o->n_parts && !s; i++) s = read_required(o, &o->parts[i]);
    for (size_t i = 0; i < o->n_parts && !s; i++) s = check_counts(o, &o->parts[i]);
    return s;
}

/* ---- names of further members ------------------------------------------------ */

/* Declared names that begin alike; the rest of a name that begins so too is the rule x--key-i. */
typedef struct branch {
    size_t from, to; /* of the sorted names */
    size_t n_alike;  /* bytes */
} branch;

/* The names from..to of one character after those of `b`: how many, and the character. */
static size_t same_character(const ig_name *names, const branch *b, size_t from, uint32_t *code, size_t *n_bytes) {
    const char *text = names[from].text + b->n_alike;
    size_t to = from + 1;
    *n_bytes = ig_utf8_next(text, 4, code); /* it is valid, and ends before any NUL */
    while (to < b->to && strncmp(names[to].text + b->n_alike, text, *n_bytes) == 0) to++;
    return to - from;
}

static void write_branch(ig_buffer *below, ig_buffer *branches, const ig_name *names, const char *rule, size_t i) {
    branch b;
    ig_buffer others = {0};
    memcpy(&b, branches->data + i * sizeof b, sizeof b);
    bool is_name = !names[b.from].text[b.n_alike];
    ig_buffer_format(below, is_name ? "%s--key-%zu ::= " : "%s--key-%zu ::= | ", rule, i);
    for (size_t from = b.from + is_name, n; from < b.to; from += n) {
        uint32_t code;
        size_t n_bytes;
        const char *text = names[from].text + b.n_alike;
        n = same_character(names, &b, from, &code, &n_bytes);
        if (code < 0x20 || code == '"' || code == '\\' || code == 0x7f)
            continue; /* written with escapes: never allowed */
        branch next = {from, from + n, b.n_alike + n_bytes};
        ig_schema_class_char(&others, code);
        ig_schema_literal(below, text, n_bytes);
        if (n == 1 && !text[n_bytes]) {
            ig_buffer_text(below, " char+ | ");
        } else {
            ig_buffer_format(below, " %s--key-%zu | ", rule, branches->size / sizeof b);
            ig_buffer_add(branches, &next, sizeof next);
        }
    }
    ig_buffer_text(below, "[^\"\\\\\\x00-\\x1F\\x7F");
    ig_buffer_add(below, others.data, others.size);
    ig_buffer_text(below, "] char*\n");
    branches->failed |= others.failed;
    ig_buffer_close(&others);
}

/* Until they differ from every declared name they have no escapes, which could spell one of these. */
static ig_status write_keys(object *o) {
    ig_schema_writer *w = o->w;
    ig_buffer branches = {0};
    ig_name *names = calloc(o->n, sizeof *names);
    ig_status s = IG_OK;
    if (!names) return ig_fail_memory(w->err, "names of members", o->n * sizeof *names);
    for (size_t i = 0; i < o->n; i++) names[i].text = o->members[i].name;
    ig_names_sort(names, o->n);
    ig_buffer_add(&branches, &(branch){0, o->n, 0}, sizeof(branch));
    for (size_t i = 0; i < branches.size / sizeof(branch) && !s; i++) {
        write_branch(&w->below, &branches, names, o->rule->name, i);
        s = ig_schema_check_size(w);
    }
    w->below.failed |= branches.failed;
    ig_buffer_close(&branches);
    free(names);
    w->used |= IG_BIT(IG_COMMON_CHAR);
    return s;
}

/* x--more: a further member */
static ig_status write_more(object *o) {
    ig_schema_writer *w = o->w;
    size_t number;
    ig_status s = ig_schema_rule_of(w, &number, &o->more, o->rule->name, "more");
    if (s) return s;
    ig_buffer_format(&w->below, "%s--more ::= ", o->rule->name);
    if (o->n)
        ig_buffer_format(&w->below, "\"\\\"\" %s--key-0 \"\\\":\"", o->rule->name);
    else
        ig_buffer_text(&w->below, "string \":\"");
    ig_buffer_format(&w->below, " space %s\n", w->rules[number].name);
    if (!o->n) w->used |= IG_BIT(IG_COMMON_STRING);
    return o->n ? write_keys(o) : IG_OK;
}

/* ---- members ----------------------------------------------------------------- */

/* A member, its name and the value's rule. The one after the declared ones stands for all further ones. */
static ig_status write_member(object *o, ig_buffer *b, size_t i) {
    ig_schema_writer *w = o->w;
    size_t number;
    if (i == o->n) {
        ig_buffer_format(b, "%s--more", o->rule->name);
        return IG_OK;
    }
    const member *m = &o->members[i];
    ig_schema_at at = m->part ? ig_schema_child(m->part, m->schema, "properties", m->name) : o->more;
    ig_status s = ig_schema_rule_of(w, &number, &at, o->rule->name, m->name);
    json_t *name = json_string(m->name);
    char *text = name ? ig_json_write(name, JSON_ENCODE_ANY) : NULL;
    json_decref(name);
    if (!s && !text) s = ig_fail_memory(w->err, "the name of a member", strlen(m->name));
    if (!s) {
        ig_schema_literal(b, text, strlen(text));
        ig_buffer_format(b, " \":\" space %s", w->rules[number].name);
    }
    free(text);
    return s;
}

/* The same, behind another member. */
static ig_status write_next(object *o, ig_buffer *b, size_t i) {
    bool is_required = i < o->n && o->members[i].required;
    ig_buffer_text(b, is_required ? " \",\" space " : " (\",\" space ");
    ig_status s = write_member(o, b, i);
    if (!is_required) ig_buffer_text(b, i < o->n ? ")?" : ")*");
    return s;
}

/* All that may follow member i - 1. */
static ig_status write_rest(object *o, ig_buffer *b, size_t i) {
    ig_status s = IG_OK;
    for (; i < o->n + (o->more.schema != NULL) && !s; i++) s = write_next(o, b, i);
    return s;
}

/* Any of the members up to `last` may be the first. */
static ig_status write_firsts(object *o, size_t last) {
    ig_buffer *line = &o->w->line, *below = &o->w->below;
    ig_status s = IG_OK;
    for (size_t i = 0; i <= last && !s; i++) {
        ig_buffer_text(line, i ? " | " : "(");
        s = write_member(o, line, i);
        if (!s && i == o->n) s = write_next(o, line, i);
        if (!s && i == last && i < o->n) s = write_rest(o, line, i + 1);
        if (i < last) ig_buffer_format(line, " %s--%zu", o->rule->name, i + 2);
    }
    for (size_t i = 1; i <= last && !s; i++) {
        ig_buffer_format(below, "%s--%zu ::=", o->rule->name, i + 1);
        s = write_next(o, below, i);
        if (!s && i == last && i < o->n) s = write_rest(o, below, i + 1);
        if (i < last) ig_buffer_format(below, " %s--%zu", o->rule->name, i + 2);
        ig_buffer_text(below, "\n");
    }
    ig_buffer_text(line, ")");
    return s;
}

static ig_status write_object(object *o) {
    ig_buffer *line = &o->w->line;
    size_t n = o->n + (o->more.schema != NULL), first = 0;
    ig_status s = IG_OK;
    while (first < o->n && !o->members[first].required) first++;
    bool may_be_empty = first == o->n;
    if (first == n && n) first--;
    ig_buffer_text(line, may_be_empty && n ? "\"{\" space (" : "\"{\" space ");
    if (n && first == 0 && !may_be_empty) {
        s = write_member(o, line, 0);
        if (!s) s = write_rest(o, line, 1);
    } else if (n) {
        s = write_firsts(o, first);
    }
    if (n) ig_buffer_text(line, may_be_empty ? " space)? " : " space ");
    ig_buffer_text(line, "\"}\"");
    if (!s && o->more.schema) s = write_more(o);
    o->w->used |= IG_BIT(IG_COMMON_SPACE);
    return s;
}

ig_status ig_schema_object(ig_schema_writer *w, const ig_schema_rule *rule) {
    object *o = calloc(1, sizeof *o);
    if (!o) return ig_fail_memory(w->err, "an object", sizeof *o);
    o->w = w;
    o->rule = rule;
    o->numbers = json_object();
    ig_status s = o->numbers ? read_object(o) : ig_fail_memory(w->err, "an object", sizeof *o);
    if (!s) s = write_object(o);
    json_decref(o->numbers);
    free(o->members);
    free(o);
    return s;
}
