/* SPDX-License-Identifier: Apache-2.0
 *
 * `oracle`: chooses as `infinigen` does, but by exact scores: it keeps a 16-bit copy of every post-RoPE key and scores
 * them all in each step. It saves neither memory nor time; it shows what the best sketch could do with the same share
 * of the entries.
 */
#include <string.h>

#include "policy/choose.h"

typedef struct oracle_policy {
    ig_chooser chooser;
    ig_unit_table keys; /* units: [16][head_dim], 16-bit floats */
} oracle_policy;

static size_t key_bytes(const ig_policy_shape *s, int n) { return (size_t)n * (size_t)s->head_dim * sizeof(uint16_t); }

static uint64_t oracle_plan(const ig_policy_shape *s, const ig_cache_options *o, int n) {
    return ig_policy_sparse_heads(s, o) * (key_bytes(s, n) + ig_chooser_head_bytes(s, o, n));
}

static void oracle_close(ig_policy *base) {
    oracle_policy *p = (oracle_policy *)base;
    ig_unit_table_close(&p->keys);
    ig_chooser_close(&p->chooser);
}

static ig_status oracle_open(ig_policy *base, ig_error *err) {
    oracle_policy *p = (oracle_policy *)base;
    ig_status s =
        ig_policy_open_table(&p->keys, base, "copy of the keys", 0, key_bytes(&base->shape, IG_UNIT_SLOTS), err);
    return s ? s : ig_chooser_open(&p->chooser, err);
}

/* Where a key lies in its unit. */
static size_t key_offset(const oracle_policy *p, int slot) {
    return (size_t)(slot % IG_UNIT_SLOTS) * (size_t)p->chooser.base.shape.head_dim;
}

static const uint16_t *key_at(const oracle_policy *p, size_t head, int slot) {
    return (const uint16_t *)ig_unit_table_at(&p->keys, head, slot / IG_UNIT_SLOTS) + key_offset(p, slot);
}

static void oracle_append(ig_policy *base, int layer, int head, int slot, const uint16_t *key, const uint16_t *value) {
    oracle_policy *p = (oracle_policy *)base;
    size_t of = ig_policy_head(base, layer, head);
    uint16_t *keys = ig_unit_table_edit(&p->keys, of, slot / IG_UNIT_SLOTS);
    ig_chooser_append(&p->chooser, of, slot, value);
    memcpy(keys + key_offset(p, slot), key, (size_t)base->shape.head_dim * sizeof *key);
}

static size_t oracle_scratch_bytes(const ig_policy_shape *s) {
    ig_arena counted = {.size = SIZE_MAX};
    ig_choice_lay_out(&counted, s, ig_policy_slots(s));
    return counted.used;
}

/* The queries' scores of a part of the slots. */
static void oracle_scan(ig_policy *base, ig_choosing *x, int part) {
    enum { PIECE = 64 }; /* keys of one call of the kernel */
    const ig_policy_shape *s = &base->shape;
    const oracle_policy *p = (const oracle_policy *)base;
    if (ig_chooser_takes_all(base, x->e.n)) return;
    ig_arena arena = {.base = x->scratch, .size = SIZE_MAX};
    ig_choice_scratch c = ig_choice_lay_out(&arena, s, x->e.n_slots);
    const uint16_t *keys[PIECE];
    size_t head = ig_policy_head(base, x->layer, x->list);
    int first, end;
    for (ig_choice_part(x, part, &first, &end); first < end; first += PIECE) {
        int n = end - first < PIECE ? end - first : PIECE;
        for (int i = 0; i < n; i++) keys[i] = key_at(p, head, first + i);
        s->kernels->attn_scores(c.scores + first, c.stride, x->q, s->n_heads / s->n_kv_heads, s->head_dim, s->scale,
                                keys, n);
    }
    ig_chooser_scored(base, x, &c, part);
}

static int oracle_tables(const ig_policy *base, const ig_unit_table *tables[IG_POLICY_TABLES]) {
    const oracle_policy *p = (const oracle_policy *)base;
    tables[0] = &p->keys;
    return 1 + ig_chooser_table(&p->chooser, &tables[1]);
}

const ig_policy_ops ig_policy_oracle = {
    .info = {.name = "oracle",
             .help = "like infinigen with exact scores: the best that a sketch could do",
             .takes_mass = true},
    .takes_limit = true,
    .n_whole = IG_CHOICE_WHOLE,
    .plan = oracle_plan,
    .size = sizeof(oracle_policy),
    .open = oracle_open,
    .close = oracle_close,
    .append = oracle_append,
    .takes_all = ig_chooser_takes_all,
    .stages = IG_CHOOSER_STAGES(oracle_scan),
    .scratch_bytes = oracle_scratch_bytes,
    .tables = oracle_tables,
    .undo = ig_chooser_undo,
    .cut = ig_chooser_cut,
    .resume = ig_chooser_resume,
};
