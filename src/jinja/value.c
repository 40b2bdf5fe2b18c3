/* SPDX-License-Identifier: Apache-2.0
 *
 * Values: where they lie, how they compare, what they hold.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "jinja/parts.h"

/* ---- memory and bounds --------------------------------------------------- */

bool ig_j_pool_open(ig_j_pool *p, size_t size) {
    *p = (ig_j_pool){ig_pages_reserve(size), 0, size};
    return p->base != NULL;
}

void *ig_j_pool_take(ig_j_pool *p, size_t n_bytes) {
    size_t at = ig_round_up(p->used, sizeof(int64_t));
    if (at > p->size || n_bytes > p->size - at) return NULL;
    p->used = at + n_bytes;
    return p->base + at;
}

void ig_j_pool_close(ig_j_pool *p) { ig_pages_release(p->base, p->size); }

ig_j_value ig_j_refuse(ig_j_render *r, ig_status status, const char *format, ...) {
    char text[256];
    va_list args;
    if (r->status) return ig_j_none();
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    r->status = ig_fail(r->err, status, "chat template, line %d: %s", r->line, text);
    return ig_j_none();
}

bool ig_j_spend(ig_j_render *r, size_t n) {
    if (n > r->steps) ig_j_refuse(r, IG_E_LIMIT, "the template takes too long");
    if (r->status) return false;
    r->steps -= n;
    return true;
}

bool ig_j_enter(ig_j_render *r) {
    if (r->depth >= IG_JINJA_DEPTH) ig_j_refuse(r, IG_E_LIMIT, "calls or values are nested too deeply");
    if (!ig_j_spend(r, 1)) return false;
    r->depth++;
    return true;
}

void *ig_j_take(ig_j_render *r, size_t n_bytes) {
    void *p = r->status ? NULL : ig_j_pool_take(&r->pool, n_bytes);
    if (!p) ig_j_refuse(r, IG_E_LIMIT, "the template makes too much");
    return p;
}

/* ---- lists and dicts ----------------------------------------------------- */

/* Room for more items than `cap`; NULL after a failure. */
static void *grow(ig_j_render *r, const void *items, uint32_t *cap, size_t item_bytes) {
    uint32_t more = *cap ? 2 * *cap : 4; /* the pool is too small for 2^32 */
    void *to = ig_j_take(r, more * item_bytes);
    if (!to) return NULL;
    if (*cap) memcpy(to, items, *cap * item_bytes);
    *cap = more;
    return to;
}

void ig_j_list_add(ig_j_render *r, ig_j_list *l, ig_j_value v) {
    if (l->n == l->cap) {
        ig_j_value *to = grow(r, l->v, &l->cap, sizeof *to);
        if (!to) return;
        l->v = to;
    }
    l->v[l->n++] = v;
}

ig_j_value ig_j_iterator(ig_j_render *r, ig_j_list list) {
    ig_j_list *rest = ig_j_take(r, sizeof *rest);
    if (!rest) return ig_j_none();
    *rest = list;
    return (ig_j_value){.kind = IG_J_ITERATOR, .rest = rest};
}

ig_j_value *ig_j_dict_find(ig_j_render *r, const ig_j_dict *d, ig_j_value key) {
    size_t bytes = 0; /* that were compared */
    for (uint32_t i = 0; i < d->n; i++) {
        ig_j_value other = d->v[i].key;
        bool is_it = false;
        if (key.kind != IG_J_STRING) {
            is_it = ig_j_equal(r, other, key);
        } else if (other.kind == IG_J_STRING && other.text.size == key.text.size) {
            is_it = ig_j_same(other.text, key.text);
            bytes += key.text.size;
        }
        if (is_it) return ig_j_spend(r, i / 8 + bytes / IG_JINJA_STEP_BYTES) ? &d->v[i].value : NULL;
    }
    ig_j_spend(r, d->n / 8 + bytes / IG_JINJA_STEP_BYTES);
    return NULL;
}

ig_j_value *ig_j_dict_named(ig_j_render *r, const ig_j_dict *d, ig_text name) {
    return ig_j_dict_find(r, d, ig_j_string(name));
}

static bool can_be_key(ig_j_value v) {
    bool can = v.kind != IG_J_LIST && v.kind != IG_J_DICT;
    for (uint32_t i = 0; v.kind == IG_J_TUPLE && i < v.list.n; i++) can = can && v.list.v[i].kind <= IG_J_STRING;
    return can;
}

void ig_j_dict_add(ig_j_render *r, ig_j_dict *d, ig_j_value key, ig_j_value v) {
    if (d->n == d->cap) {
        ig_j_pair *to = grow(r, d->v, &d->cap, sizeof *to);
        if (!to) return;
        d->v = to;
    }
    d->v[d->n++] = (ig_j_pair){key, v};
}

void ig_j_dict_set(ig_j_render *r, ig_j_dict *d, ig_j_value key, ig_j_value v) {
    ig_j_value *at = ig_j_dict_find(r, d, key);
    if (!can_be_key(key)) ig_j_refuse(r, IG_E_FORMAT, "'%s' cannot be a key", ig_j_kind_name(key));
    if (at)
        *at = v;
    else if (!r->status)
        ig_j_dict_add(r, d, key, v);
}

ig_j_value ig_j_dict_item(ig_j_render *r, ig_j_pair pair) {
    ig_j_list item = {0};
    ig_j_list_add(r, &item, pair.key);
    ig_j_list_add(r, &item, pair.value);
    return ig_j_listed(IG_J_TUPLE, item);
}

/* ---- what they are ------------------------------------------------------- */

const char *ig_j_kind_name(ig_j_value v) {
    static const char *const names[] = {
        "undefined value", "none", "bool",      "int",    "float", "str",   "list",     "tuple", "view",
        "iterator",        "dict", "namespace", "cycler", "loop",  "macro", "function", "method"};
    return names[v.kind];
}

static bool is_listed(ig_j_value v) { return v.kind == IG_J_LIST || v.kind == IG_J_TUPLE || v.kind == IG_J_VIEW; }

bool ig_j_truth(ig_j_value v) {
    if (v.kind == IG_J_BOOL) return v.yes;
    if (v.kind == IG_J_INT) return v.i != 0;
    if (v.kind == IG_J_FLOAT) return v.f != 0;
    if (v.kind == IG_J_STRING) return v.text.size > 0;
    if (v.kind == IG_J_DICT) return v.dict.n > 0;
    return is_listed(v) ? v.list.n > 0 : v.kind > IG_J_NONE;
}

bool ig_j_length(ig_j_render *r, ig_j_value v, int64_t *n) {
    *n = 0;
    if (v.kind == IG_J_STRING)
        *n = (int64_t)ig_j_char_count(r, v.text);
    else if (v.kind == IG_J_DICT)
        *n = v.dict.n;
    else if (is_listed(v))
        *n = v.list.n;
    else
        return v.kind == IG_J_UNDEFINED;
    return true;
}

static ig_j_list characters(ig_j_render *r, ig_text text) {
    ig_j_list all = {0};
    int32_t code;
    for (size_t at = 0, n; at < text.size && ig_j_spend(r, 1); at += n) {
        n = ig_j_char((ig_text){text.data + at, text.size - at}, &code);
        ig_j_list_add(r, &all, ig_j_string((ig_text){text.data + at, n}));
    }
    return all;
}

ig_j_list ig_j_iterate(ig_j_render *r, ig_j_value v) {
    ig_j_list all = {0};
    if (is_listed(v)) return v.list;
    if (v.kind == IG_J_STRING) return characters(r, v.text);
    if (v.kind == IG_J_ITERATOR) {
        all = *v.rest;
        *v.rest = (ig_j_list){0};
    } else if (v.kind == IG_J_DICT) {
        for (uint32_t i = 0; i < v.dict.n; i++) ig_j_list_add(r, &all, v.dict.v[i].key);
    } else if (v.kind != IG_J_UNDEFINED) {
        ig_j_refuse(r, IG_E_FORMAT, "'%s' is not a list of anything", ig_j_kind_name(v));
    }
    return all;
}

/* ---- comparing ----------------------------------------------------------- */

static bool lists_equal(ig_j_render *r, ig_j_list a, ig_j_list b) {
    bool equal = a.n == b.n;
    for (uint32_t i = 0; equal && i < a.n; i++) equal = ig_j_equal(r, a.v[i], b.v[i]);
    return equal;
}

static bool dicts_equal(ig_j_render *r, ig_j_dict a, ig_j_dict b) {
    bool equal = a.n == b.n;
    for (uint32_t i = 0; equal && i < a.n; i++) {
        const ig_j_value *other = ig_j_dict_find(r, &b, a.v[i].key);
        equal = other && ig_j_equal(r, a.v[i].value, *other);
    }
    return equal;
}

static bool equal_inside(ig_j_render *r, ig_j_value a, ig_j_value b) {
    if (ig_j_is_whole(a) && ig_j_is_whole(b)) return ig_j_whole(a) == ig_j_whole(b);
    if (ig_j_is_number(a) && ig_j_is_number(b)) return ig_j_number(a) == ig_j_number(b);
    if (a.kind != b.kind) return false;
    if (a.kind == IG_J_STRING) return ig_j_same(a.text, b.text) && ig_j_spend(r, a.text.size / IG_JINJA_STEP_BYTES);
    if (is_listed(a)) return lists_equal(r, a.list, b.list);
    if (a.kind == IG_J_DICT) return dicts_equal(r, a.dict, b.dict);
    if (a.kind == IG_J_METHOD)
        return a.method->builtin == b.method->builtin && ig_j_equal(r, a.method->self, b.method->self);
    return a.kind <= IG_J_NONE || a.names == b.names; /* as all that remain, a pointer */
}

bool ig_j_equal(ig_j_render *r, ig_j_value a, ig_j_value b) {
    if (!ig_j_enter(r)) return false;
    bool equal = equal_inside(r, a, b);
    r->depth--;
    return equal;
}

#define ORDER(a, b) (((a) > (b)) - ((a) < (b)))

static int compare_strings(ig_j_render *r, ig_text a, ig_text b) {
    size_t n = a.size < b.size ? a.size : b.size;
    int order = n && ig_j_spend(r, n / IG_JINJA_STEP_BYTES) ? memcmp(a.data, b.data, n) : 0;
    return order ? order : ORDER(a.size, b.size);
}

static int compare_inside(ig_j_render *r, ig_j_value a, ig_j_value b) {
    if (ig_j_is_whole(a) && ig_j_is_whole(b)) return ORDER(ig_j_whole(a), ig_j_whole(b));
    if (ig_j_is_number(a) && ig_j_is_number(b)) return ORDER(ig_j_number(a), ig_j_number(b));
    if (a.kind == IG_J_STRING && b.kind == IG_J_STRING) return compare_strings(r, a.text, b.text);
    if (a.kind != b.kind || (a.kind != IG_J_LIST && a.kind != IG_J_TUPLE)) {
        ig_j_refuse(r, IG_E_FORMAT, "'%s' and '%s' have no order", ig_j_kind_name(a), ig_j_kind_name(b));
        return 0;
    }
    for (uint32_t i = 0; i < a.list.n && i < b.list.n; i++)
        if (!ig_j_equal(r, a.list.v[i], b.list.v[i])) return ig_j_compare(r, a.list.v[i], b.list.v[i]);
    return ORDER(a.list.n, b.list.n);
}

int ig_j_compare(ig_j_render *r, ig_j_value a, ig_j_value b) {
    if (!ig_j_enter(r)) return 0;
    int order = compare_inside(r, a, b);
    r->depth--;
    return order;
}

bool ig_j_contains(ig_j_render *r, ig_j_value in, ig_j_value v) {
    if (in.kind == IG_J_STRING) return ig_j_find(r, in.text, ig_j_want_string(r, v), 0) != IG_J_ABSENT;
    if (in.kind == IG_J_DICT && !can_be_key(v)) ig_j_refuse(r, IG_E_FORMAT, "'%s' cannot be a key", ig_j_kind_name(v));
    if (in.kind == IG_J_DICT) return ig_j_dict_find(r, &in.dict, v) != NULL;
    ig_j_list all = ig_j_iterate(r, in);
    for (uint32_t i = 0; i < all.n && !r->status; i++)
        if (ig_j_equal(r, all.v[i], v)) return true;
    return false;
}

/* ---- sorting ------------------------------------------------------------- */

/* Merges the sorted halves [from, middle) and [middle, to) of `order` by way of `room`. Equal ones keep their order. */
static void merge(ig_j_render *r, const ig_j_value *keys, uint32_t *order, uint32_t *room, const uint32_t at[3],
                  bool reverse) {
    uint32_t a = at[0], b = at[1];
    for (uint32_t i = at[0]; i < at[2]; i++) {
        bool second = a == at[1];
        if (!second && b < at[2]) {
            int relation = ig_j_compare(r, keys[order[b]], keys[order[a]]);
            second = reverse ? relation > 0 : relation < 0;
        }
        room[i] = order[second ? b++ : a++];
    }
    memcpy(order + at[0], room + at[0], (at[2] - at[0]) * sizeof *order);
}

ig_j_list ig_j_sorted(ig_j_render *r, ig_j_list values, ig_j_list keys, bool reverse) {
    ig_j_list sorted = {0};
    uint32_t n = values.n, *order = ig_j_take(r, 2 * (size_t)n * sizeof *order);
    if (!order || keys.n != n) return sorted;
    for (uint32_t i = 0; i < n; i++) order[i] = i;
    for (uint32_t width = 1; width < n && !r->status; width *= 2)
        for (uint32_t from = 0; from + width < n; from += 2 * width) {
            uint32_t to = from + 2 * width < n ? from + 2 * width : n;
            merge(r, keys.v, order, order + n, (uint32_t[]){from, from + width, to}, reverse);
        }
    for (uint32_t i = 0; i < n; i++) ig_j_list_add(r, &sorted, values.v[order[i]]);
    return sorted;
}
