/* SPDX-License-Identifier: Apache-2.0
 *
 * Choosing among scored entries: see choose.h.
 */
#include "policy/choose.h"

#include <math.h>
#include <string.h>

/* ---- what is remembered ---------------------------------------------------------- */

size_t ig_chooser_head_bytes(const ig_policy_shape *s, const ig_cache_options *o, int n) {
    return ig_history_head_bytes(n, s->block_tokens, s->n_ahead) +
           (o->no_rest ? 0 : ig_values_head_bytes(n, s->head_dim));
}

ig_status ig_chooser_open(ig_chooser *c, ig_error *err) {
    const ig_policy_shape *s = &c->base.shape;
    ig_status status =
        ig_history_open(&c->history, ig_policy_heads(s), ig_policy_slots(s), s->block_tokens, s->n_ahead, err);
    if (!status && !c->base.options.no_rest) status = ig_values_open(&c->values, &c->base, err);
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

bool ig_chooser_undo(ig_policy *p, int n_tokens) {
    ig_history *h = &((ig_chooser *)p)->history;
    for (size_t head = 0; head < h->heads.n_heads; head++) ig_history_undo(h, head, n_tokens);
    return false;
}

int ig_chooser_cut(ig_policy *p, int n_tokens) {
    ig_history *h = &((ig_chooser *)p)->history;
    for (size_t head = 0; head < h->heads.n_heads; head++) ig_history_cut(h, head);
    return n_tokens;
}

void ig_chooser_resume(ig_policy *p, int n_tokens) {
    ig_history *h = &((ig_chooser *)p)->history;
    for (size_t head = 0; head < h->heads.n_heads; head++) ig_history_resume(h, head, n_tokens);
}

/* ---- scratch ----------------------------------------------------------------------- */

static size_t count_parts(int n_slots) { return ((size_t)n_slots + IG_POLICY_PART - 1) / IG_POLICY_PART; }

static int group_of(const ig_policy *p) { return p->shape.n_heads / p->shape.n_kv_heads; }

ig_choice_scratch ig_choice_lay_out(ig_arena *arena, const ig_policy_shape *s, int n_slots) {
    size_t group = (size_t)(s->n_heads / s->n_kv_heads), stride = ig_round_up((size_t)n_slots, 16);
    size_t each = group * count_parts(n_slots);
    return (ig_choice_scratch){.scores = ig_arena_take(arena, group * stride * sizeof(float)),
                               .stride = stride,
                               .weights = ig_arena_take(arena, stride * sizeof(float)),
                               .ordered = ig_arena_take(arena, stride * sizeof(float)),
                               .top = ig_arena_take(arena, each * sizeof(float)),
                               .total = ig_arena_take(arena, each * sizeof(float)),
                               .share = ig_arena_take(arena, each * sizeof(float)),
                               .left = ig_arena_take(arena, each * sizeof(float)),
                               .sum = ig_arena_take(arena, each * (size_t)s->head_dim * sizeof(float))};
}

static ig_choice_scratch scratch_of(const ig_policy *p, const ig_choosing *x) {
    ig_arena arena = {.base = x->scratch, .size = SIZE_MAX};
    return ig_choice_lay_out(&arena, &p->shape, x->e.n_slots);
}

/* ---- choosing ---------------------------------------------------------------------- */

bool ig_chooser_takes_all(const ig_policy *p, int n) {
    double asked = p->options.mass;
    return (asked == 0 || asked >= 1) && ig_policy_has_room(p, n);
}

void ig_choice_part(const ig_choosing *x, int part, int *begin, int *end) {
    *begin = part * IG_POLICY_PART;
    *end = x->e.n_slots - *begin < IG_POLICY_PART ? x->e.n_slots : *begin + IG_POLICY_PART;
}

/* Where entries were dropped, slots may be empty: those in use are brought in order first, all parts together. */
void ig_chooser_scored(const ig_policy *p, const ig_choosing *x, const ig_choice_scratch *s, int part) {
    int group = group_of(p), begin, end;
    ig_choice_part(x, part, &begin, &end);
    ig_cap_scores(p->shape.kernels, p->shape.cap, s->scores + begin, s->stride, group, end - begin);
    for (int g = 0; g < group && !x->e.slot; g++) {
        size_t at = (size_t)part * (size_t)group + (size_t)g;
        s->top[at] = -INFINITY, s->total[at] = 0;
        p->shape.kernels->softmax_step(s->scores + (size_t)g * s->stride + begin, end - begin, &s->top[at],
                                       &s->total[at]);
    }
}

/* Those of the list [group], or NULL. */
static const float *sink_scores_of(const ig_policy *p, const ig_choosing *x) {
    return p->shape.sink_scores ? p->shape.sink_scores[x->layer] + x->list * group_of(p) : NULL;
}

/* Of one query: what the exponentials of each part are to be multiplied by. Returns what entries get of its attention.
 */
static float share_out(const ig_choice_scratch *s, int group, int g, size_t n_parts, const float *sink_scores) {
    float top = -INFINITY, total = 0;
    size_t stride = (size_t)group;
    const float *tops = s->top + g, *totals = s->total + g;
    float *share = s->share + g;
    for (size_t i = 0; i < n_parts; i++)
        if (tops[i * stride] > top) top = tops[i * stride];
    for (size_t i = 0; i < n_parts; i++) {
        share[i * stride] = tops[i * stride] > -INFINITY ? expf(tops[i * stride] - top) : 0;
        total += totals[i * stride] * share[i * stride];
    }
    float all = sink_scores ? total + expf(sink_scores[g] - top) : total;
    for (size_t i = 0; i < n_parts; i++) share[i * stride] = all > 0 ? share[i * stride] / all : 0;
    return sink_scores ? total / all : 1;
}

/* The group's shares of the attention, added up to weights in order of position. Returns their sum. */
static double add_up(const ig_policy *p, const ig_choosing *x, const ig_choice_scratch *s) {
    const ig_kernels *k = p->shape.kernels;
    const ig_entries *e = &x->e;
    int group = group_of(p), begin, end;
    size_t n_parts = count_parts(e->n_slots);
    double sum = 0;
    for (int g = 0; g < group; g++) {
        float *row = s->scores + (size_t)g * s->stride;
        if (e->slot) {
            for (int i = 0; i < e->n; i++) s->ordered[i] = row[e->slot[i]];
            memcpy(row, s->ordered, (size_t)e->n * sizeof *row);
            s->top[g] = -INFINITY, s->total[g] = 0;
            k->softmax_step(row, e->n, &s->top[g], &s->total[g]);
            for (size_t i = 1; i < n_parts; i++) s->top[i * (size_t)group + (size_t)g] = s->top[g];
            for (size_t i = 1; i < n_parts; i++) s->total[i * (size_t)group + (size_t)g] = 0;
        }
        sum += (double)share_out(s, group, g, n_parts, sink_scores_of(p, x));
    }
    if (e->slot) {
        k->sum_rows(s->weights, s->share, s->scores, s->stride, group, e->n);
        return sum;
    }
    for (size_t i = 0; i < n_parts; i++) {
        ig_choice_part(x, (int)i, &begin, &end);
        k->sum_rows(s->weights + begin, s->share + i * (size_t)group, s->scores + begin, s->stride, group, end - begin);
    }
    return sum;
}

/* Makes the exponentials those of the entries that are not read, in order of slot: all others 0. */
static void keep_unread(const ig_choosing *x, const ig_choice_scratch *s, int group) {
    const ig_entries *e = &x->e;
    for (int g = 0; g < group; g++) {
        float *row = s->scores + (size_t)g * s->stride;
        for (int i = 0; i < x->n; i++) row[x->index[i]] = 0;
        if (!e->slot) {
            memset(row + e->n, 0, (s->stride - (size_t)e->n) * sizeof *row);
            continue;
        }
        memset(s->ordered, 0, s->stride * sizeof *row);
        for (int i = 0; i < e->n; i++) s->ordered[e->slot[i]] = row[i];
        memcpy(row, s->ordered, s->stride * sizeof *row);
    }
}

static bool estimates(const ig_policy *p, const ig_choosing *x) {
    return x->rest && x->n < x->e.n && ((const ig_chooser *)p)->values.kernels;
}

static ig_pick_rule rule_of(const ig_policy *p, int n) {
    const ig_cache_options *o = &p->options;
    return (ig_pick_rule){o->n_sinks, o->n_recent, ig_policy_count(p, n), o->mass > 0 ? o->mass : IG_POLICY_MASS};
}

/* What the step uses. A guess is none. */
static void note(ig_policy *p, const ig_choosing *x) {
    ig_history *h = &((ig_chooser *)p)->history;
    if (x->e.has_own) ig_history_note(h, ig_policy_head(p, x->layer, x->list), x->index, x->n, x->e.n);
}

void ig_chooser_choose(ig_policy *p, ig_choosing *x, int part) {
    const ig_cache_options *o = &p->options;
    const ig_kernels *k = p->shape.kernels;
    int n = x->e.n, group = group_of(p);
    (void)part;
    x->n = n;
    if (ig_chooser_takes_all(p, n)) return;
    ig_choice_scratch s = scratch_of(p, x);
    ig_pick_rule rule = rule_of(p, n);
    bool whole = !x->e.slot; /* where entries were dropped nothing has to be moved, and blocks hold what they hold */
    double sum = add_up(p, x, &s);
    if (whole && o->locality > 0) k->smooth(s.weights, n, p->shape.block_tokens, (float)o->locality);
    if (whole && o->inertia > 0) {
        /* What may be left is a share of the weights as they were. */
        double more = ig_history_favour(&((ig_chooser *)p)->history, ig_policy_head(p, x->layer, x->list), s.weights, n,
                                        (float)o->inertia);
        rule.mass = 1 - (1 - rule.mass) * sum / (sum + more);
    }
    x->n = ig_pick(k, x->index, s.weights, n, &rule);
    if (whole) note(p, x);
    if (estimates(p, x)) keep_unread(x, &s, group);
    ig_policy_name_slots(x);
}

void ig_chooser_estimate(ig_policy *p, ig_choosing *x, int part) {
    if (!estimates(p, x)) return;
    ig_choice_scratch s = scratch_of(p, x);
    int group = group_of(p), begin, end;
    size_t at = (size_t)part * (size_t)group;
    ig_choice_part(x, part, &begin, &end);
    end = (int)ig_round_up((size_t)end, IG_SKETCH_TOKENS);
    ig_values_sum(&((const ig_chooser *)p)->values, ig_policy_head(p, x->layer, x->list), begin, end, s.scores,
                  s.stride, group, s.left + at, s.sum + at * (size_t)p->shape.head_dim);
}

void ig_chooser_join(ig_policy *p, ig_choosing *x, int part) {
    (void)part;
    if (!estimates(p, x)) return;
    ig_choice_scratch s = scratch_of(p, x);
    ig_values_join(&((const ig_chooser *)p)->values, (int)count_parts(x->e.n_slots), s.left, s.sum, s.share,
                   group_of(p), x->rest);
}

/* ---- on a device --------------------------------------------------------------------- */

void ig_chooser_describe(const ig_chooser *c, const ig_choosing *x, ig_scan_list *out) {
    const ig_policy *p = &c->base;
    const ig_kv_home *home = &p->shape.home;
    ig_pick_favour *favour = &out->favour;
    int own = x->e.n - x->e.has_own; /* a guess is for a step that has yet to bring it */
    if (c->values.kernels) out->values = ig_policy_units(p, &c->values.sketch, x);
    if (home->memory) out->pieces = home->pieces, out->shift = home->shift;
    out->n = x->e.n;
    out->group = group_of(p);
    out->head_dim = p->shape.head_dim;
    out->q = x->dev_q;
    out->k = x->e.has_own ? x->dev_k : NULL;
    out->scale = p->shape.scale;
    out->sink_scores = sink_scores_of(p, x);
    out->rule = rule_of(p, x->e.n);
    favour->block = p->shape.block_tokens;
    favour->locality = (float)p->options.locality, favour->inertia = (float)p->options.inertia;
    favour->used = ig_history_used(&c->history, ig_policy_head(p, x->layer, x->list), own, &favour->n_known);
}

void ig_chooser_take(ig_policy *p, const ig_choosing *x) { note(p, x); }
