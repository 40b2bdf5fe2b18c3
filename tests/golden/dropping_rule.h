/* SPDX-License-Identifier: Apache-2.0
 *
 * The rule by which a policy drops entries, in the first layer and in double precision: from the queries and keys that
 * the model makes of the tokens.
 */
#ifndef TESTS_DROPPING_RULE_H
#define TESTS_DROPPING_RULE_H

#include <math.h>

#include "base/half.h"
#include "golden/dropping.h"

typedef struct reference {
    const ig_session *s;
    double sums[KV_HEADS][N_CTX];
    float keys[N_CTX][KV_HEADS][DIM], queries[N_CTX][HEADS * DIM];
    bool held[KV_HEADS][N_CTX];
    int n;     /* tokens seen */
    int begin; /* of the latest prompt */
    int end;   /* of it */
} reference;

/* The keys of n tokens of the step. */
static inline void add_keys(reference *ref, const ig_batch *b, int head, int n) {
    for (int i = 0; i < n; i++) {
        ref->held[head][ref->n + i] = true;
        for (int c = 0; c < DIM; c++)
            ref->keys[ref->n + i][head][c] = ig_f16_f32(ig_f32_f16(b->rows.k.host[(i * KV_HEADS + head) * DIM + c]));
    }
}

static inline void weigh_one(reference *ref, int head, const float *q, int position) {
    double score[N_CTX], most = -INFINITY, sum = 0;
    for (int t = 0; t <= position; t++) {
        if (!ref->held[head][t]) continue;
        score[t] = 0;
        for (int c = 0; c < DIM; c++) score[t] += (double)q[c] * (double)ref->keys[t][head][c];
        score[t] *= model->config.attn_scale;
        most = fmax(most, score[t]);
    }
    for (int t = 0; t <= position; t++)
        if (ref->held[head][t]) sum += exp(score[t] - most);
    for (int t = 0; t <= position; t++)
        if (ref->held[head][t]) ref->sums[head][t] += exp(score[t] - most) / sum;
}

/* What a token's queries [HEADS][DIM] give the entries that the head holds. */
static inline void weigh(reference *ref, int head, const float *q, int position) {
    for (int g = 0; g < HEADS / KV_HEADS; g++)
        weigh_one(ref, head, q + (head * (HEADS / KV_HEADS) + g) * DIM, position);
}

/* A session under the rule, and one that holds all. */
typedef struct rule_pair {
    reference *ref;
    ig_session *s, *all;
} rule_pair;

static inline rule_pair open_rule(const char *policy, double budget, void (*see)(void *, ig_tap_place, int)) {
    ig_session_options o = options("full");
    rule_pair p = {.ref = calloc(1, sizeof *p.ref), .all = open_session(&o)};
    assert_non_null(p.ref);
    o = options(policy);
    o.cache.budget = budget;
    p.ref->s = p.s = open_session(&o);
    p.s->model->batch.tap = see;
    p.s->model->batch.tap_user = p.ref;
    return p;
}

/* Something was dropped. */
static inline void close_rule(rule_pair *p) {
    assert_true(stats(p->s).dropped > 0);
    p->s->model->batch.tap = NULL;
    ig_session_close(p->s);
    ig_session_close(p->all);
    free(p->ref);
}

/* Both get tokens [n, until), as a prompt if these are several. */
static inline void put_both(rule_pair *p, const int32_t *ids, int n, int until) {
    ig_session *both[] = {p->s, p->all};
    for (int i = 0; i < 2; i++) {
        if (until > n + 1)
            put(both[i], ids, until);
        else
            step(both[i], ids[n]);
    }
}

/* The session holds what the rule says; the other has seen the same tokens in the same pieces. */
static inline void expect_held(const rule_pair *p) {
    const reference *ref = p->ref;
    for (int h = 0; h < KV_HEADS; h++) {
        int positions[N_CTX], count = held_positions(positions, p->s, p->all, h), n_held = 0;
        for (int i = 0; i < count; i++) assert_true(ref->held[h][positions[i]]);
        for (int t = 0; t < ref->n; t++) n_held += ref->held[h][t];
        assert_int_equal(count, n_held);
    }
}

#endif
