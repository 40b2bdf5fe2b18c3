/* SPDX-License-Identifier: Apache-2.0
 *
 * Arrays: first the items that have schemas of their own (`prefixItems`, or `items` in its older form), all of them,
 * then those that are alike.
 */
#include <stdio.h>

#include "grammar/schema_parts.h"

typedef struct array {
    const json_t *prefix;
    const char *prefix_keyword;
    ig_schema_at items; /* a schema of NULL if there are none */
    ig_schema_span span;
} array;

static ig_status read_array(array *a, ig_schema_writer *w, const ig_schema_at *at) {
    const json_t *items = json_object_get(at->schema, "items");
    a->prefix_keyword = "prefixItems";
    a->prefix = json_object_get(at->schema, a->prefix_keyword);
    ig_status s = ig_schema_read_span(w, &a->span, at, "minItems", "maxItems");
    if (s) return s;
    if (a->prefix && !json_is_array(a->prefix))
        return ig_fail(w->err, IG_E_FORMAT, "%s: 'prefixItems' is not an array", at->place);
    if (json_is_array(items)) {
        if (a->prefix) return ig_fail(w->err, IG_E_FORMAT, "%s: 'items' is an array beside 'prefixItems'", at->place);
        a->prefix_keyword = "items";
        a->prefix = items;
        items = json_object_get(at->schema, "additionalItems");
    }
    if (!items && !a->prefix) items = json_true();
    if (items && !json_is_false(items)) a->items = ig_schema_child(at, items, "items", NULL);
    return IG_OK;
}

static ig_status write_item(ig_schema_writer *w, const ig_schema_rule *rule, const ig_schema_at *at, const char *key) {
    size_t number;
    ig_status s = ig_schema_rule_of(w, &number, at, rule->name, key);
    if (!s) ig_buffer_text(&w->line, w->rules[number].name);
    return s;
}

static ig_status write_prefix(ig_schema_writer *w, const ig_schema_rule *rule, const array *a, size_t n) {
    ig_status s = IG_OK;
    for (size_t i = 0; i < n && !s; i++) {
        char key[24];
        snprintf(key, sizeof key, "%zu", i);
        ig_schema_at child = ig_schema_child(&rule->at, json_array_get(a->prefix, i), a->prefix_keyword, key);
        ig_buffer_text(&w->line, i ? " \",\" space " : "");
        s = write_item(w, rule, &child, key);
    }
    return s;
}

/* Items that are alike, `span` of them, after others or as the first. */
static ig_status write_items(ig_schema_writer *w, const ig_schema_rule *rule, const array *a, ig_schema_span span,
                             bool is_first) {
    ig_status s = IG_OK;
    if (is_first) {
        s = write_item(w, rule, &a->items, "item");
        if (span.min) span.min--;
        if (span.max != SIZE_MAX) span.max--;
    }
    if (s || !span.max) return s;
    ig_buffer_text(&w->line, " (\",\" space ");
    s = write_item(w, rule, &a->items, "item");
    ig_buffer_text(&w->line, ")");
    return s ? s : ig_schema_repeat(w, &rule->at, span);
}

ig_status ig_schema_array(ig_schema_writer *w, const ig_schema_rule *rule) {
    array a = {0};
    ig_status s = read_array(&a, w, &rule->at);
    if (s) return s;
    size_t n_prefix = json_array_size(a.prefix);
    ig_schema_span rest = a.span; /* of those after the prefix */
    if (n_prefix > rest.max) n_prefix = rest.max;
    rest.min = rest.min > n_prefix ? rest.min - n_prefix : 0;
    if (rest.max != SIZE_MAX) rest.max -= n_prefix;
    if (!a.items.schema) rest.max = 0;
    if (rest.min > rest.max)
        return ig_fail(w->err, IG_E_UNSUPPORTED, "%s: 'minItems' asks for more than are allowed", rule->at.place);
    bool may_be_empty = !n_prefix && !rest.min, is_empty = !n_prefix && !rest.max;
    ig_buffer_text(&w->line, is_empty ? "\"[\" space " : may_be_empty ? "\"[\" space (" : "\"[\" space ");
    s = write_prefix(w, rule, &a, n_prefix);
    if (!s && rest.max) s = write_items(w, rule, &a, rest, !n_prefix);
    if (!is_empty) ig_buffer_text(&w->line, may_be_empty ? " space)? " : " space ");
    ig_buffer_text(&w->line, "\"]\"");
    w->used |= IG_BIT(IG_COMMON_SPACE);
    return s;
}
