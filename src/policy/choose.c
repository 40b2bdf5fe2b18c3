/* SPDX-License-Identifier: Apache-2.0
 *
 * Choosing among scored entries: see choose.h.
 */
#include "policy/choose.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"

/* ---- what is remembered ---------------------------------------------------------- */

size_t ig_chooser_head_bytes(const ig_policy_shape *s, const ig_cache_options *o, int n) {
    return ig_history_head_bytes(n, s->block_tokens) + (o->no_rest ? 0 : ig_values_head_bytes(n, s->head_dim));
}

ig_status ig_chooser_open(ig_chooser *c, const ig_policy *p, ig_error *err) {
    const ig_policy_shape *s = &p->shape;
    *c = (ig_chooser){0};
    ig_status status = ig_history_open(&c->history, ig_policy_heads(s), ig_policy_slots(s), s->block_tokens, err);
    if (!status && !p->options.no_rest) status = ig_values_open(&c->values, p, err);
    return status;
}

void ig_chooser_close(ig_chooser *c) {
    ig_history_close(&c->history);
    ig_values_close(&c->values);
}

void ig_chooser_append(ig_chooser *c, size_t head, int slot, const uint16_t *value) {
    ig_history_append(&c->history, head, slot);
    if (c->values.kernels) ig_values_append(&c->values, head, slot, value);
}

int ig_chooser_table(const ig_chooser *c, const ig_unit_table **table) {
    *table = &c->values.sketch;
    return c->values.kernels != NULL;
}

void ig_chooser_undo(ig_chooser *c, int n_tokens) {
    for (size_t head = 0; head < c->history.heads.n_heads; head++) ig_history_undo(&c->history, head, n_tokens);
}

void ig_chooser_resume(ig_chooser *c, int n_tokens) {
    for (size_t head = 0; head < c->history.heads.n_heads; head++) ig_history_resume(&c->history, head, n_tokens);
}

/* ---- choosing ---------------------------------------------------------------------- */

ig_choice_scratch ig_choice_lay_out(ig_arena *arena, const ig_policy_shape *s, int n_slots) {
    size_t group = (size_t)(s->n_heads / s->n_kv_heads), stride = ig_round_up((size_t)n_slots, 16);
    return (ig_choice_scratch){.scores = ig_arena_take(arena, group * stride * sizeof(float)),
                               .stride = stride,
                               .weights = ig_arena_take(arena, stride * sizeof(float)),
                               .ordered = ig_arena_take(arena, stride * sizeof(float)),
                               .share = ig_arena_take(arena, group * sizeof(float))};
}

bool ig_chooser_takes_all(const ig_policy *p, int n) {
    double asked = p->options.mass;
    return (asked == 0 || asked >= 1) && ig_policy_count(p, n) >= n;
}

/* Softmax-normalises the queries' scores, in order of slot, and adds them up to weights in order of position. The
 * exponentials take the place of the scores; times x->share they are the normalised ones. */
static void add_up(const ig_kernels *k, const ig_entries *e, const ig_choice_scratch *x, int group) {
    for (int g = 0; g < group; g++) {
        float *row = x->scores + (size_t)g * x->stride, top = -INFINITY, total = 0;
        if (e->slot) {
            for (int i = 0; i < e->n; i++) x->ordered[i] = row[e->slot[i]];
            memcpy(row, x->ordered, (size_t)e->n * sizeof *row);
        }
        k->softmax_step(row, e->n, &top, &total);
        x->share[g] = total > 0 ? 1 / total : 0;
    }
    k->sum_rows(x->weights, x->share, x->scores, x->stride, group, e->n);
}

/* Makes the exponentials those of the entries that are not read, in order of slot: all others 0. */
static void keep_unread(const ig_entries *e, const ig_choice_scratch *x, int group, const int32_t *index,
                        int n_chosen) {
    for (int g = 0; g < group; g++) {
        float *row = x->scores + (size_t)g * x->stride;
        for (int i = 0; i < n_chosen; i++) row[index[i]] = 0;
        if (!e->slot) {
            memset(row + e->n, 0, (x->stride - (size_t)e->n) * sizeof *row);
            continue;
        }
        memset(x->ordered, 0, x->stride * sizeof *row);
        for (int i = 0; i < e->n; i++) x->ordered[e->slot[i]] = row[i];
        memcpy(row, x->ordered, x->stride * sizeof *row);
    }
}

int ig_chooser_choose(ig_chooser *c, const ig_policy *p, size_t head, const ig_entries *e, ig_choice_scratch *x,
                      int32_t *index, const ig_rest *rest) {
    const ig_cache_options *o = &p->options;
    const ig_kernels *k = p->shape.kernels;
    int n = e->n, group = p->shape.n_heads / p->shape.n_kv_heads;
    double mass = o->mass > 0 ? o->mass : IG_POLICY_MASS;
    add_up(k, e, x, group);
    ig_pick_rule rule = {o->n_sinks, o->n_recent, ig_policy_count(p, n), mass};
    bool whole = !e->slot; /* where entries were dropped nothing has to be moved, and blocks hold what they hold */
    if (whole && o->locality > 0) k->smooth(x->weights, n, p->shape.block_tokens, (float)o->locality);
    if (whole && o->inertia > 0) {
        /* What may be left is a share of the weights as they were: each query's sum to 1. */
        double more = ig_history_favour(&c->history, head, x->weights, n, (float)o->inertia);
        rule.mass = 1 - (1 - mass) * group / (group + more);
    }
    int n_chosen = ig_pick(k, index, x->weights, n, &rule);
    if (whole && e->has_own) ig_history_note(&c->history, head, index, n_chosen, n);
    if (rest && c->values.kernels) {
        double start = ig_clock_seconds();
        keep_unread(e, x, group, index, n_chosen);
        ig_values_estimate(&c->values, head, (int)x->stride, x->scores, x->stride, x->share, group, rest);
        if (rest->seconds) *rest->seconds += ig_clock_seconds() - start;
    }
    ig_policy_name_slots(index, n_chosen, e);
    return n_chosen;
}
