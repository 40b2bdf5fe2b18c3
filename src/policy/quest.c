/* SPDX-License-Identifier: Apache-2.0
 *
 * `quest`: whole pages of 16 entries, chosen by an upper bound of the scores they can hold (Tang et al. 2024): of each
 * page the smallest and the largest key value per channel are kept, and a query's bound is
 * sum over channels of max(q * min, q * max).
 *
 * The paper selects per query head; with grouped queries the bounds of a group are softmax-normalised and summed, so
 * that a KV head has one selection, as with the other policies here. Sinks and recent entries are used as well
 * (--kv-sinks 0 --kv-recent 1 for the paper's selection), and of the last page only what the budget has left, so that
 * policies are compared by the same number of entries.
 */
#include <string.h>

#include "base/compiler.h"
#include "base/half.h"
#include "policy/policy.h"

enum { PAGE = IG_UNIT_SLOTS };

typedef struct quest_policy {
    ig_policy base;
    ig_unit_table bounds; /* units: [2][head_dim]: smallest, largest, 16-bit floats */
} quest_policy;

static int n_pages(int n_tokens) { return (n_tokens + PAGE - 1) / PAGE; }

static size_t page_bytes(const ig_policy_shape *s) { return 2 * (size_t)s->head_dim * sizeof(uint16_t); }

static uint64_t quest_plan(const ig_policy_shape *s, const ig_cache_options *o, int n) {
    return ig_policy_sparse_heads(s, o) * (size_t)n_pages(n) * page_bytes(s);
}

static void quest_close(ig_policy *p) { ig_unit_table_close(&((quest_policy *)p)->bounds); }

static ig_status quest_open(ig_policy *p, ig_error *err) {
    return ig_policy_open_table(&((quest_policy *)p)->bounds, p, "page bounds", 0, page_bytes(&p->shape), err);
}

static void quest_append(ig_policy *base, int layer, int head, int token, const uint16_t *key, const uint16_t *value) {
    int d = base->shape.head_dim;
    const quest_policy *p = (quest_policy *)base;
    uint16_t *low = ig_unit_table_edit(&p->bounds, ig_policy_head(base, layer, head), token / PAGE), *high = low + d;
    (void)value;
    /* The page's first token also clears what a longer text may have left there. */
    if (token % PAGE == 0) {
        memcpy(low, key, (size_t)d * sizeof *low);
        memcpy(high, key, (size_t)d * sizeof *high);
        return;
    }
    for (int c = 0; c < d; c++) {
        float x = ig_f16_f32(key[c]);
        if (x < ig_f16_f32(low[c])) low[c] = key[c];
        if (x > ig_f16_f32(high[c])) high[c] = key[c];
    }
}

/* Scratch: weights [pages], bounds [group][pages], and the queries' parts [group][2][head_dim]. */
static size_t quest_scratch_bytes(const ig_policy_shape *s) {
    size_t group = (size_t)(s->n_heads / s->n_kv_heads), pages = (size_t)n_pages(s->n_ctx);
    return ((1 + group) * pages + group * 2 * (size_t)s->head_dim) * sizeof(float);
}

/* Softmax-normalised bounds of all pages, summed over the group. What of a query is negative meets the smallest keys,
 * what is positive the largest: a bound is the sum of both products. */
static void weigh_pages(const quest_policy *p, int layer, int head, const float *q, int pages, float *weights,
                        float *scratch) {
    enum { PIECE = 64 }; /* pages of one call of the kernel */
    const ig_policy_shape *s = &p->base.shape;
    int d = s->head_dim, group = s->n_heads / s->n_kv_heads;
    float *bounds = scratch, *parts = scratch + (size_t)group * (size_t)pages;
    const uint16_t *page[PIECE];
    size_t of = ig_policy_head(&p->base, layer, head);
    for (int g = 0; g < group; g++)
        for (int c = 0; c < d; c++) {
            float x = q[g * d + c];
            parts[g * 2 * d + c] = x < 0 ? x : 0;
            parts[g * 2 * d + d + c] = x < 0 ? 0 : x;
        }
    for (int first = 0; first < pages; first += PIECE) {
        int n = pages - first < PIECE ? pages - first : PIECE;
        for (int i = 0; i < n; i++) page[i] = ig_unit_table_at(&p->bounds, of, first + i);
        s->kernels->attn_scores(bounds + first, (size_t)pages, parts, group, 2 * d, s->scale, page, n);
    }
    ig_cap_scores(s->kernels, s->cap, bounds, (size_t)pages, group, pages);
    memset(weights, 0, (size_t)pages * sizeof *weights);
    for (int g = 0; g < group; g++) s->kernels->softmax_add(weights, bounds + (size_t)g * (size_t)pages, pages);
}

/* Entries [*first, *end) of a page that are not used in any case, as sinks and recent ones are; their number. */
static int page_entries(const ig_policy *base, int n, int page, int *first, int *end) {
    const ig_cache_options *o = &base->options;
    *first = ig_max_int(page * PAGE, o->n_sinks);
    *end = ig_min_int(page * PAGE + PAGE, n - o->n_recent);
    return *end - *first;
}

/* Of the pages from number `skip` on the heaviest, so many that they hold `wanted` entries; their number. *beyond: how
 * many more they hold, of which the lightest page is to go without. */
static int pick_pages(const ig_policy *base, int n, int wanted, int32_t *chosen, const float *weights, int n_open,
                      int skip, int *beyond) {
    for (int count = (wanted + PAGE - 1) / PAGE;; count++) {
        int entries = 0, first, end;
        ig_pick_rule rule = {.count = count, .mass = 1};
        int n_chosen = ig_pick(base->shape.kernels, chosen, weights + skip, n_open, &rule);
        for (int i = 0; i < n_chosen; i++) entries += page_entries(base, n, skip + chosen[i], &first, &end);
        *beyond = ig_max_int(entries - wanted, 0);
        if (count >= n_open || entries >= wanted) return n_chosen;
    }
}

/* Of the chosen pages the lightest; whole ones among the *beyond entries that are too many are dropped. */
static int drop_lightest(const ig_policy *base, int n, int *beyond, int32_t *chosen, int *n_chosen,
                         const float *weights, int skip) {
    for (;;) {
        int least = 0, first, end;
        for (int i = 1; i < *n_chosen; i++)
            if (weights[skip + chosen[i]] < weights[skip + chosen[least]]) least = i;
        if (*n_chosen == 0 || page_entries(base, n, skip + chosen[least], &first, &end) > *beyond) return least;
        *beyond -= end - first;
        --*n_chosen;
        memmove(chosen + least, chosen + least + 1, (size_t)(*n_chosen - least) * sizeof *chosen);
    }
}

static void quest_choose(ig_policy *base, ig_choosing *x, int part) {
    const ig_cache_options *o = &base->options;
    int n = x->e.n, count = ig_policy_count(base, n), pages = n_pages(n), n_out = 0;
    int skip = o->n_sinks / PAGE; /* pages that are used whatever their bounds are: sinks, or recent */
    int32_t *index = x->index;
    (void)part;
    x->n = n;
    if (ig_policy_has_room(base, n)) return;
    float *weights = x->scratch;
    weigh_pages((const quest_policy *)base, x->layer, x->list, x->q, pages, weights, weights + pages);
    int32_t *chosen = (int32_t *)(void *)(weights + pages); /* the scores are not needed any more */
    int wanted = count - o->n_sinks - o->n_recent, n_open = n_pages(n - o->n_recent) - skip, n_chosen = 0, beyond = 0;
    if (wanted > 0 && n_open > 0) n_chosen = pick_pages(base, n, wanted, chosen, weights, n_open, skip, &beyond);
    int cut = drop_lightest(base, n, &beyond, chosen, &n_chosen, weights, skip);
    for (int i = 0; i < o->n_sinks; i++) index[n_out++] = i;
    for (int i = 0; i < n_chosen; i++) {
        int first, end;
        page_entries(base, n, skip + chosen[i], &first, &end);
        if (i == cut) end -= beyond;
        for (int t = first; t < end; t++) index[n_out++] = t;
    }
    for (int t = n - o->n_recent; t < n; t++) index[n_out++] = t;
    x->n = n_out;
}

static int quest_tables(const ig_policy *p, const ig_unit_table *tables[IG_POLICY_TABLES]) {
    tables[0] = &((const quest_policy *)p)->bounds;
    return 1;
}

const ig_policy_ops ig_policy_quest = {
    .info = {.name = "quest", .help = "use pages of 16 entries by a bound of their scores (Quest)"},
    .n_dense_layers = 2,
    .sums_up = true,
    .plan = quest_plan,
    .size = sizeof(quest_policy),
    .open = quest_open,
    .close = quest_close,
    .append = quest_append,
    .takes_all = ig_policy_has_room,
    .stages = {{.run = quest_choose}},
    .scratch_bytes = quest_scratch_bytes,
    .tables = quest_tables,
};
