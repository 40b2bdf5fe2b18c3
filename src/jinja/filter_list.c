/* SPDX-License-Identifier: Apache-2.0
 *
 * Filters of lists and dicts.
 */
#include "jinja/node.h"

/* ---- parts of items ---------------------------------------------------------- */

/* What a part of a path stands for: a number is an index. */
static ig_j_value step_of(ig_text name) {
    int64_t i = 0;
    for (size_t k = 0; k < name.size; k++) {
        if (name.data[k] < '0' || name.data[k] > '9' || k > 17) return ig_j_string(name);
        i = i * 10 + (name.data[k] - '0');
    }
    return name.size ? ig_j_int(i) : ig_j_string(name);
}

/* What a path such as "function.name" leads to; the item itself without one. */
static ig_j_value follow(ig_j_render *r, ig_j_value item, ig_j_value path, const ig_j_value *otherwise) {
    if (path.kind == IG_J_UNDEFINED || path.kind == IG_J_NONE) return item;
    if (path.kind != IG_J_STRING) return ig_j_item(r, item, path);
    ig_j_list steps = ig_j_split(r, path.text, IG_J_NAMED("."), -1);
    for (uint32_t i = 0; i < steps.n && !r->status; i++) {
        item = ig_j_item(r, item, step_of(steps.v[i].text));
        if (item.kind == IG_J_UNDEFINED && otherwise) item = *otherwise;
    }
    return item;
}

/* By what an item is ordered. */
static ig_j_value key_of(ig_j_render *r, ig_j_value item, ig_j_value path, bool case_sensitive) {
    ig_j_value key = follow(r, item, path, NULL);
    return key.kind == IG_J_STRING && !case_sensitive ? ig_j_in_case(r, key.text, IG_J_LOWER) : key;
}

static ig_j_list keys_of(ig_j_render *r, ig_j_list items, ig_j_value path, bool case_sensitive) {
    ig_j_list keys = {0};
    for (uint32_t i = 0; i < items.n && !r->status; i++)
        ig_j_list_add(r, &keys, key_of(r, items.v[i], path, case_sensitive));
    return keys;
}

/* ---- sizes, ends, order -------------------------------------------------------- */

static ig_j_value filter_length(ig_j_render *r, ig_j_call *c) {
    int64_t n = 0;
    if (c->self.kind == IG_J_LOOP) return ig_j_attribute(r, c->self, IG_J_NAMED("length"));
    if (!ig_j_length(r, c->self, &n)) return ig_j_refuse(r, IG_E_FORMAT, "'%s' has no length", ig_j_kind_name(c->self));
    return ig_j_int(n);
}

static ig_j_value filter_first(ig_j_render *r, ig_j_call *c) {
    if (c->self.kind == IG_J_STRING) return ig_j_item(r, c->self, ig_j_int(0));
    ig_j_list items = ig_j_iterate(r, c->self);
    return items.n ? items.v[0] : ig_j_undefined(IG_J_NAMED("first"));
}

static ig_j_value filter_last(ig_j_render *r, ig_j_call *c) {
    if (c->self.kind == IG_J_STRING) return ig_j_item(r, c->self, ig_j_int(-1));
    if (c->self.kind == IG_J_ITERATOR) return ig_j_refuse(r, IG_E_FORMAT, "an iterator has no end");
    ig_j_list items = ig_j_iterate(r, c->self);
    return items.n ? items.v[items.n - 1] : ig_j_undefined(IG_J_NAMED("last"));
}

static ig_j_value filter_reverse(ig_j_render *r, ig_j_call *c) {
    if (c->self.kind == IG_J_STRING)
        return ig_j_slice(r, c->self, (ig_j_value[]){ig_j_none(), ig_j_none(), ig_j_int(-1)});
    ig_j_list items = ig_j_iterate(r, c->self), turned = {0};
    for (uint32_t i = items.n; i-- > 0 && !r->status;) ig_j_list_add(r, &turned, items.v[i]);
    return c->self.kind == IG_J_ITERATOR ? ig_j_listed(IG_J_LIST, turned) : ig_j_iterator(r, turned);
}

/* sort(reverse, case_sensitive, attribute): by several attributes if they have commas between. */
static ig_j_value filter_sort(ig_j_render *r, ig_j_call *c) {
    ig_j_list items = ig_j_iterate(r, c->self), keys = {0};
    ig_j_list paths =
        c->v[2].kind == IG_J_STRING ? ig_j_split(r, c->v[2].text, IG_J_NAMED(","), -1) : (ig_j_list){&c->v[2], 1, 1};
    for (uint32_t i = 0; i < items.n && !r->status; i++) {
        ig_j_list key = {0};
        for (uint32_t k = 0; k < paths.n; k++)
            ig_j_list_add(r, &key, key_of(r, items.v[i], paths.v[k], ig_j_truth(c->v[1])));
        ig_j_list_add(r, &keys, ig_j_listed(IG_J_LIST, key));
    }
    return ig_j_listed(IG_J_LIST, ig_j_sorted(r, items, keys, ig_j_truth(c->v[0])));
}

/* dictsort(case_sensitive, by, reverse) */
static ig_j_value filter_dictsort(ig_j_render *r, ig_j_call *c) {
    bool by_value = c->v[1].kind != IG_J_UNDEFINED && ig_j_same(ig_j_want_string(r, c->v[1]), IG_J_NAMED("value"));
    ig_j_list items = {0};
    if (c->self.kind != IG_J_DICT) return ig_j_refuse(r, IG_E_FORMAT, "'%s' is no dict", ig_j_kind_name(c->self));
    for (uint32_t i = 0; i < c->self.dict.n && !r->status; i++)
        ig_j_list_add(r, &items, ig_j_dict_item(r, c->self.dict.v[i]));
    ig_j_list keys = keys_of(r, items, ig_j_int(by_value), ig_j_truth(c->v[0]));
    return ig_j_listed(IG_J_LIST, ig_j_sorted(r, items, keys, ig_j_truth(c->v[2])));
}

/* min(case_sensitive, attribute) and max: of equal ones the first. */
static ig_j_value extreme(ig_j_render *r, ig_j_call *c, int sign) {
    ig_j_list items = ig_j_iterate(r, c->self), keys = keys_of(r, items, c->v[1], ig_j_truth(c->v[0]));
    uint32_t best = 0;
    for (uint32_t i = 1; i < keys.n && !r->status; i++)
        if (ig_j_compare(r, keys.v[i], keys.v[best]) * sign > 0) best = i;
    return keys.n ? items.v[best] : ig_j_undefined(IG_J_NAMED("item"));
}

static ig_j_value filter_min(ig_j_render *r, ig_j_call *c) { return extreme(r, c, -1); }
static ig_j_value filter_max(ig_j_render *r, ig_j_call *c) { return extreme(r, c, 1); }

/* unique(case_sensitive, attribute) */
static ig_j_value filter_unique(ig_j_render *r, ig_j_call *c) {
    ig_j_list items = ig_j_iterate(r, c->self), keys = keys_of(r, items, c->v[1], ig_j_truth(c->v[0])), kept = {0};
    ig_j_dict seen = {0};
    for (uint32_t i = 0; i < keys.n && !r->status; i++) {
        if (ig_j_dict_find(r, &seen, keys.v[i])) continue;
        ig_j_dict_set(r, &seen, keys.v[i], ig_j_none());
        ig_j_list_add(r, &kept, items.v[i]);
    }
    return ig_j_iterator(r, kept);
}

/* ---- making others -------------------------------------------------------------- */

static ig_j_value filter_list(ig_j_render *r, ig_j_call *c) { return ig_j_listed(IG_J_LIST, ig_j_iterate(r, c->self)); }

static ig_j_value filter_items(ig_j_render *r, ig_j_call *c) {
    ig_j_list all = {0};
    if (c->self.kind != IG_J_DICT && c->self.kind != IG_J_UNDEFINED)
        return ig_j_refuse(r, IG_E_FORMAT, "'%s' is no dict", ig_j_kind_name(c->self));
    for (uint32_t i = 0; c->self.kind == IG_J_DICT && i < c->self.dict.n && !r->status; i++)
        ig_j_list_add(r, &all, ig_j_dict_item(r, c->self.dict.v[i]));
    return ig_j_iterator(r, all);
}

/* join(d, attribute) */
static ig_j_value filter_join(ig_j_render *r, ig_j_call *c) {
    ig_j_list items = ig_j_iterate(r, c->self);
    ig_text between = ig_j_to_text(r, c->v[0]);
    ig_buffer out = {0};
    for (uint32_t i = 0; i < items.n && !r->status; i++) {
        if (i) ig_j_put(r, &out, between);
        ig_j_put_value(r, &out, follow(r, items.v[i], c->v[1], NULL));
    }
    return ig_j_take_string(r, &out);
}

/* sum(attribute, start) */
static ig_j_value filter_sum(ig_j_render *r, ig_j_call *c) {
    ig_j_list items = ig_j_iterate(r, c->self);
    ig_j_value sum = c->v[1].kind == IG_J_UNDEFINED ? ig_j_int(0) : c->v[1];
    if (sum.kind == IG_J_STRING) return ig_j_refuse(r, IG_E_FORMAT, "sum() of strings");
    for (uint32_t i = 0; i < items.n && !r->status; i++)
        sum = ig_j_operate(r, IG_J_OP_ADD, sum, follow(r, items.v[i], c->v[0], NULL));
    return sum;
}

/* batch(linecount, fill_with) */
static ig_j_value filter_batch(ig_j_render *r, ig_j_call *c) {
    ig_j_list items = ig_j_iterate(r, c->self), all = {0};
    int64_t size = ig_j_want_int(r, c->v[0], 0);
    bool fills = c->v[1].kind != IG_J_UNDEFINED && c->v[1].kind != IG_J_NONE;
    if (size < 1) return ig_j_refuse(r, IG_E_FORMAT, "batch() of %lld", (long long)size);
    for (uint32_t i = 0; i < items.n && !r->status;) {
        ig_j_list line = {0};
        for (int64_t k = 0; k < size && (i < items.n || fills) && !r->status; k++, i++)
            ig_j_list_add(r, &line, i < items.n ? items.v[i] : c->v[1]);
        ig_j_list_add(r, &all, ig_j_listed(IG_J_LIST, line));
    }
    return ig_j_iterator(r, all);
}

/* ---- by other filters and tests -------------------------------------------------- */

/* map(filter, its arguments) or map(attribute=, default=) */
static ig_j_value filter_map(ig_j_render *r, ig_j_call *c) {
    const ig_j_value *path = c->n ? NULL : ig_j_dict_named(r, &c->named, IG_J_NAMED("attribute"));
    const ig_j_value *otherwise = ig_j_dict_named(r, &c->named, IG_J_NAMED("default"));
    ig_text name = c->n ? ig_j_want_string(r, c->v[0]) : IG_J_NAMED("");
    const ig_j_builtin *f = ig_j_filter_named(name);
    ig_j_list all = {0};
    if (!f && !path) return ig_j_refuse(r, IG_E_UNSUPPORTED, "map: there is no filter '%.*s'", IG_SHOW(name));
    ig_j_list items = ig_j_truth(c->self) ? ig_j_iterate(r, c->self) : all;
    for (uint32_t i = 0; i < items.n && !r->status; i++) {
        if (path) {
            ig_j_list_add(r, &all, follow(r, items.v[i], *path, otherwise));
            continue;
        }
        ig_j_call call = {items.v[i], c->v + 1, c->n - 1, c->named};
        ig_j_list_add(r, &all, ig_j_builtin_call(r, f, &call));
    }
    return ig_j_iterator(r, all);
}

/* Those that pass, or do not pass, a test; of which the part at the path of the first argument does if by_part. */
static ig_j_value choose_items(ig_j_render *r, ig_j_call *c, bool by_part, bool keep) {
    uint32_t n = by_part ? 2 : 1; /* arguments that are not the test's own */
    const ig_j_builtin *test = NULL;
    ig_j_list chosen = {0}, items = ig_j_truth(c->self) ? ig_j_iterate(r, c->self) : chosen;
    if (c->n < by_part) return ig_j_refuse(r, IG_E_FORMAT, "the name of an attribute is wanted");
    if (c->n >= n) {
        ig_text name = ig_j_want_string(r, c->v[n - 1]);
        test = ig_j_test_named(name);
        if (!test) return ig_j_refuse(r, IG_E_UNSUPPORTED, "there is no test '%.*s'", IG_SHOW(name));
    }
    for (uint32_t i = 0; i < items.n && ig_j_spend(r, 1); i++) {
        ig_j_value part = by_part ? follow(r, items.v[i], c->v[0], NULL) : items.v[i];
        if (test) {
            ig_j_call call = {part, c->v + n, c->n - n, c->named};
            part = ig_j_builtin_call(r, test, &call);
        }
        if (ig_j_truth(part) == keep) ig_j_list_add(r, &chosen, items.v[i]);
    }
    return ig_j_iterator(r, chosen);
}

static ig_j_value filter_select(ig_j_render *r, ig_j_call *c) { return choose_items(r, c, false, true); }
static ig_j_value filter_reject(ig_j_render *r, ig_j_call *c) { return choose_items(r, c, false, false); }
static ig_j_value filter_selectattr(ig_j_render *r, ig_j_call *c) { return choose_items(r, c, true, true); }
static ig_j_value filter_rejectattr(ig_j_render *r, ig_j_call *c) { return choose_items(r, c, true, false); }

static const ig_j_builtin filters[] = {
    {"length count", filter_length, "", 0},
    {"first", filter_first, "", 0},
    {"last", filter_last, "", 0},
    {"reverse", filter_reverse, "", 0},
    {"sort", filter_sort, "reverse case_sensitive attribute", 0},
    {"dictsort", filter_dictsort, "case_sensitive by reverse", 0},
    {"min", filter_min, "case_sensitive attribute", 0},
    {"max", filter_max, "case_sensitive attribute", 0},
    {"unique", filter_unique, "case_sensitive attribute", 0},
    {"list", filter_list, "", 0},
    {"items", filter_items, "", 0},
    {"join", filter_join, "d attribute", 0},
    {"sum", filter_sum, "attribute start", 0},
    {"batch", filter_batch, "linecount fill_with", 1},
    {"map", filter_map, NULL, 0},
    {"select", filter_select, NULL, 0},
    {"reject", filter_reject, NULL, 0},
    {"selectattr", filter_selectattr, NULL, 0},
    {"rejectattr", filter_rejectattr, NULL, 0},
};

const ig_j_builtin *ig_j_list_filter_named(ig_text name) { return ig_j_builtin_find(filters, IG_COUNT(filters), name); }
