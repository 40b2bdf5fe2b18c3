/* SPDX-License-Identifier: Apache-2.0
 *
 * Rules for arguments with quotes, from their schemas. Each schema has a rule, which is written when its turn comes, so
 * that those that refer to themselves are as any other. Of texts `enum`, `const`, `minLength` and `maxLength` count, of
 * lists `items`, of objects `properties` and `required`; numbers are those of JSON. What else there is may be anything.
 */
#include "server/answer_rules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { SCHEMAS_MAX = 4096, WORK_OF_ONE = 192 }; /* there is no work left before there is no room */

typedef struct quoted {
    const ig_answer_rules *w;
    const json_t *function;
    size_t i, n;            /* the function's number; schemas */
    const json_t **schemas; /* [SCHEMAS_MAX]; the rule of number k is toolI-k */
} quoted;

/* ---- values of any kind ---------------------------------------------------------------------- */

void ig_answer_any_quoted(const ig_answer_rules *w) {
    fputs(
        "any ::= any-text | any-object | any-list | any-number | \"true\" | \"false\" | \"null\"\n"
        "any-object ::= \"{\" (any-member (\",\" any-member)*)? \"}\"\n"
        "any-member ::= any-name \":\" any\n"
        "any-name ::= [^\\x00-\\x20\\x22\\x2c\\x3a\\x3c\\x3e\\x5b-\\x5d\\x7b-\\x7f]{1,64}\n"
        "any-list ::= \"[\" (any (\",\" any)*)? \"]\"\n"
        "any-number ::= \"-\"? (\"0\" | [1-9] [0-9]{0,15}) (\".\" [0-9]{1,16})? ([eE] [-+]? [0-9]{1,2})?\n"
        "any-text ::= any-quote any-characters any-quote\n"
        "any-quote ::=",
        w->to);
    ig_answer_mark(w, w->format->quote);
    fputc('\n', w->to);
    ig_answer_text(w, "any-characters", w->format->quote);
}

/* ---- schemas ------------------------------------------------------------------------------------ */

/* The rule of a schema, with a blank before it. */
static void put_rule_of(quoted *q, const json_t *schema) {
    size_t k = 0;
    schema = ig_tool_schema(q->function, schema);
    while (k < q->n && q->schemas[k] != schema) k++;
    if (!json_is_object(schema) || !ig_answer_may_work(q->w, WORK_OF_ONE + k / 16) || k == SCHEMAS_MAX) {
        fputs(" any", q->w->to);
        return;
    }
    if (k == q->n) q->schemas[q->n++] = schema;
    fprintf(q->w->to, " tool%zu-%zu", q->i, k);
}

/* Of `enum` and `const`: what is no object and no list. False: there are none. */
static bool put_values(const quoted *q, const json_t *schema) {
    const json_t *one = json_object_get(schema, "const"), *all = json_object_get(schema, "enum");
    size_t n = 0;
    for (size_t i = 0; i < (one ? 1 : json_array_size(all)); i++) {
        const json_t *v = one ? one : json_array_get(all, i);
        char text[40] = "";
        if (!json_is_string(v) &&
            json_dumpb(v, text, sizeof text - 1, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15)) >= sizeof text)
            continue;
        if (json_is_object(v) || json_is_array(v)) continue;
        fputs(n++ ? " |" : "", q->w->to);
        if (json_is_string(v)) fputs(" any-quote", q->w->to);
        ig_form_literal(q->w->to, json_is_string(v) ? json_string_value(v) : text,
                        json_is_string(v) ? json_string_length(v) : strlen(text));
        if (json_is_string(v)) fputs(" any-quote", q->w->to);
    }
    return n > 0;
}

static void put_text(const quoted *q, const json_t *schema) {
    fputs(" any-quote ", q->w->to);
    if (!ig_answer_sized(q->w, schema, q->w->format->quote)) fputs("any-characters", q->w->to);
    fputs(" any-quote", q->w->to);
}

/* A number of items from 0 to `most`; `otherwise` if it is none. */
static int count_of(const json_t *schema, const char *name, int otherwise) {
    enum { MOST = 1000 };
    const json_t *v = json_object_get(schema, name);
    bool is_count = json_is_integer(v) && json_integer_value(v) >= 0 && json_integer_value(v) <= MOST;
    return is_count ? (int)json_integer_value(v) : otherwise;
}

static void put_list(quoted *q, const json_t *schema) {
    FILE *to = q->w->to;
    const json_t *items = json_object_get(schema, "items");
    int least = count_of(schema, "minItems", 0), most = count_of(schema, "maxItems", -1);
    fputs(" \"[\"", to);
    if (most) {
        fputs(" (", to);
        put_rule_of(q, items);
        fputs(" (\",\"", to);
        put_rule_of(q, items);
        fprintf(to, "){%d,", least ? least - 1 : 0);
        if (most > 0) fprintf(to, "%d", most - 1);
        fputs(least ? "})" : "})?", to);
    }
    fputs(" \"]\"", to);
}

/* ---- objects -------------------------------------------------------------------------------------- */

/* True: rules for its members are still to be written. */
static bool put_object(quoted *q, const json_t *schema, size_t k) {
    FILE *to = q->w->to;
    const json_t *properties = json_object_get(schema, "properties"),
                 *more = json_object_get(schema, "additionalProperties");
    if (json_object_size(properties)) {
        fprintf(to, " \"{\" tool%zu-%zu-0 \"}\"", q->i, k);
        return true;
    }
    if (json_is_false(more) || (properties && !more)) {
        fputs(" \"{}\"", to);
    } else if (json_is_object(more)) {
        fputs(" \"{\" (any-name \":\"", to);
        put_rule_of(q, more);
        fputs(" (\",\" any-name \":\"", to);
        put_rule_of(q, more);
        fputs(")*)? \"}\"", to);
    } else {
        fputs(" any-object", to);
    }
    return false;
}

static int compare_names(const void *a, const void *b) {
    const char *const *x = a, *const *y = b;
    int order = strcasecmp(*x, *y);
    return order ? order : strcmp(*x, *y);
}

static void put_member(quoted *q, const json_t *properties, const char *name) {
    ig_form_literal(q->w->to, name, strlen(name));
    fputs(" \":\"", q->w->to);
    put_rule_of(q, json_object_get(properties, name));
}

/* Sorted, as the template shows them to the model. K-J is what may come from member J on as the first, K-J-next the
 * same behind another. */
static void put_members(quoted *q, json_t *schema, size_t k) {
    FILE *to = q->w->to;
    json_t *properties = json_object_get(schema, "properties"), *v;
    size_t n = 0, n_all = json_object_size(properties);
    const char *name, **names = malloc(n_all * sizeof *names);
    json_object_foreach(names ? properties : NULL, name, v) names[n++] = name;
    if (!ig_answer_may_work(q->w, n_all * json_array_size(json_object_get(schema, "required")))) n = 0;
    if (n) qsort(names, n, sizeof *names, compare_names);
    for (size_t j = 0; j < n; j++) {
        bool must_be = ig_answer_is_required(schema, names[j]);
        fprintf(to, "tool%zu-%zu-%zu ::= ", q->i, k, j);
        put_member(q, properties, names[j]);
        fprintf(to, " tool%zu-%zu-%zu-next", q->i, k, j + 1);
        if (!must_be) fprintf(to, " | tool%zu-%zu-%zu", q->i, k, j + 1);
        fprintf(to, "\ntool%zu-%zu-%zu-next ::= (\",\"", q->i, k, j);
        put_member(q, properties, names[j]);
        fprintf(to, ")%s tool%zu-%zu-%zu-next\n", must_be ? "" : "?", q->i, k, j + 1);
    }
    fprintf(to, "tool%zu-%zu-%zu ::= \"\"\ntool%zu-%zu-%zu-next ::= \"\"\n", q->i, k, n, q->i, k, n);
    free(names);
}

/* ---- the whole -------------------------------------------------------------------------------------- */

/* A rule for numbers of a type within the schema's bounds; false: there is none. */
static bool put_number(const quoted *q, const json_t *schema, const char *type, size_t k) {
    static const char *const bounds[] = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"};
    char prefix[64];
    json_t *own = json_pack("{s:s}", "type", type);
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
        json_t *v = json_object_get(schema, bounds[i]);
        if (own && v) json_object_set(own, bounds[i], v);
    }
    snprintf(prefix, sizeof prefix, "tool%zu-%zu-%s-", q->i, k, type);
    bool ok = own && ig_answer_json(q->w, q->function, own, prefix);
    json_decref(own);
    return ok;
}

enum { TEXT, NUMBER, INTEGER, OBJECT, LIST, BOOLEAN, NONE, N_KINDS };
static const char *const kinds[] = {"string", "number", "integer", "object", "array", "boolean", "null"};

static unsigned kinds_of(const json_t *type) {
    unsigned all = 0;
    for (size_t i = 0; i < (json_is_array(type) ? json_array_size(type) : 1); i++) {
        const char *word = json_string_value(json_is_array(type) ? json_array_get(type, i) : type);
        for (int k = 0; word && k < N_KINDS; k++) all |= (unsigned)(strcmp(word, kinds[k]) == 0) << k;
    }
    return all;
}

/* Of these kinds; true as of put_object(). */
static bool put_kinds(quoted *q, const json_t *schema, unsigned all, unsigned numbers, size_t k) {
    FILE *to = q->w->to;
    bool has_members = false, is_first = true;
    for (int kind = 0; kind < N_KINDS; kind++) {
        if (!(all >> kind & 1)) continue;
        if (!is_first) fputs(" |", to);
        is_first = false;
        if (numbers >> kind & 1)
            fprintf(to, " tool%zu-%zu-%s-root", q->i, k, kinds[kind]);
        else if (kind == TEXT)
            put_text(q, schema);
        else if (kind == OBJECT)
            has_members = put_object(q, schema, k);
        else if (kind == LIST)
            put_list(q, schema);
        else
            fputs(kind == BOOLEAN ? " \"true\" | \"false\"" : kind == NONE ? " \"null\"" : " any-number", to);
    }
    return has_members;
}

static bool put_choices(quoted *q, const json_t *schema) {
    static const char *const words[] = {"anyOf", "oneOf", "allOf"};
    const json_t *list = NULL;
    for (int i = 0; i < 3 && !list; i++) list = json_object_get(schema, words[i]);
    size_t n = json_array_size(list);
    if (!n || (list == json_object_get(schema, "allOf") && n > 1)) return false;
    for (size_t i = 0; i < n; i++) {
        if (i) fputs(" |", q->w->to);
        put_rule_of(q, json_array_get(list, i));
    }
    return true;
}

/* The first one's values are objects, whatever it says. */
static void put_schema(quoted *q, size_t k) {
    const json_t *schema = q->schemas[k];
    bool is_root = k == 0, has_members = false;
    unsigned all = is_root ? 1u << OBJECT : kinds_of(json_object_get(schema, "type")), numbers = 0;
    if (!all && json_object_get(schema, "properties")) all = 1u << OBJECT;
    for (unsigned kind = NUMBER; kind <= INTEGER; kind++)
        if (all >> kind & 1 && put_number(q, schema, kinds[kind], k)) numbers |= 1u << kind;
    fprintf(q->w->to, "tool%zu-%zu ::=", q->i, k);
    bool is_told = !is_root && (put_values(q, schema) || put_choices(q, schema));
    if (!is_told && all) has_members = put_kinds(q, schema, all, numbers, k);
    if (!is_told && !all) fputs(" any", q->w->to);
    fputc('\n', q->w->to);
    if (has_members) put_members(q, (json_t *)(uintptr_t)schema, k);
}

void ig_answer_quoted(const ig_answer_rules *w, const json_t *function, size_t i) {
    quoted q = {w, function, i, 0, calloc(SCHEMAS_MAX, sizeof *q.schemas)};
    const json_t *parameters = ig_field(function, "parameters");
    bool is_loose = w->is_loose && !json_is_true(ig_field(function, "strict"));
    fprintf(w->to, "tool%zu-root ::=", i);
    if (!parameters || is_loose || !q.schemas)
        fputs(parameters ? " any-object" : " \"{}\"", w->to);
    else
        put_rule_of(&q, parameters);
    fputc('\n', w->to);
    for (size_t k = 0; k < q.n; k++) put_schema(&q, k);
    free(q.schemas);
}
