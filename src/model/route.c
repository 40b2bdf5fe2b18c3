/* SPDX-License-Identifier: Apache-2.0 */
#include "model/route.h"

#include <math.h>
#include <string.h>

#include "base/compiler.h"

enum { ROWS_PER_TASK = 8 };

void ig_routes_lay_out(ig_space *s, ig_routes *r, const ig_config *c, int max_rows, int ffn_rows) {
    size_t rows = (size_t)max_rows, pairs = rows * (size_t)c->experts.n_used, d = (size_t)c->d_model;
    size_t of_expert = (size_t)ig_max_int(c->d_model, c->experts.width);
    size_t together = rows < (size_t)ffn_rows ? rows : (size_t)ffn_rows;
    if (!c->experts.n) return;
    r->scores = ig_space_twin(s, rows * (size_t)c->experts.n);
    r->shared = ig_space_twin(s, c->experts.is_shared_gated ? rows : 0);
    r->all = ig_space_host(s, rows * sizeof *r->all);
    r->beside = ig_space_device(s, c->experts.is_shared_beside ? rows * d * sizeof(float) : 0);
    r->in = ig_space_device(s, rows * (size_t)c->experts.width * sizeof(float));
    r->sum = ig_space_device(s, rows * (size_t)c->experts.width * sizeof(float));
    r->x = ig_space_device(s, together * of_expert * sizeof(float));
    r->y = ig_space_device(s, together * of_expert * sizeof(float));
    r->adapter_shares = ig_space_device(s, together * (size_t)c->n_adapters * sizeof(float));
    r->hidden = ig_space_device(s, 2 * (size_t)c->experts.n_used * (size_t)c->d_ff * sizeof(float));
    r->chosen = ig_space_host(s, pairs * sizeof *r->chosen);
    r->weights = ig_space_host(s, pairs * sizeof *r->weights);
    r->rows = ig_space_host(s, pairs * sizeof *r->rows);
    r->shares = ig_space_host(s, pairs * sizeof *r->shares);
    r->begin = ig_space_host(s, ((size_t)c->experts.n + 1) * sizeof *r->begin);
}

typedef struct choice {
    const ig_routes *r;
    const ig_config *c;
    const float *bias, *scales;
    int first, n_rows;
} choice;

/* The largest value that is not taken. */
static int find_top(const float *value, const bool *is_taken, int n) {
    int top = -1;
    for (int i = 0; i < n; i++)
        if (!is_taken[i] && (top < 0 || value[i] > value[top])) top = i;
    return top;
}

/* A group of n experts counts as much as its best two (DeepSeek-V3), or its best one (V2). */
static float group_value(const float *value, int n, bool are_two) {
    float first = -INFINITY, second = -INFINITY;
    for (int i = 0; i < n; i++) {
        if (value[i] > first)
            second = first, first = value[i];
        else if (value[i] > second)
            second = value[i];
    }
    return are_two && n > 1 ? first + second : first;
}

/* Experts of all groups but the best ones are out of question. */
static void leave_groups(bool *is_taken, const float *value, const ig_config *c) {
    float of_group[IG_MAX_EXPERTS];
    bool is_best[IG_MAX_EXPERTS] = {false};
    int n = c->experts.n / c->experts.n_groups;
    for (int g = 0; g < c->experts.n_groups; g++)
        of_group[g] = group_value(value + g * n, n, c->experts.routing == IG_ROUTING_SIGMOID);
    for (int i = 0; i < c->experts.n_groups_used; i++) is_best[find_top(of_group, is_best, c->experts.n_groups)] = true;
    for (int e = 0; e < c->experts.n; e++) is_taken[e] = !is_best[e / n];
}

/* The best scores with their biases, the best one first. */
static void find_best(int32_t *best, const float *scores, const float *bias, const ig_config *c) {
    float value[IG_MAX_EXPERTS];
    bool is_taken[IG_MAX_EXPERTS] = {false};
    for (int e = 0; e < c->experts.n; e++) value[e] = scores[e] + (bias ? bias[e] : 0);
    if (c->experts.n_groups > 1) leave_groups(is_taken, value, c);
    for (int i = 0; i < c->experts.n_used; i++) {
        best[i] = find_top(value, is_taken, c->experts.n);
        is_taken[best[i]] = true;
    }
}

/* Softmax of those that are used, or of all. */
static void share_by_softmax(float *weights, const int32_t *best, const float *scores, const ig_config *c) {
    float top = scores[best[0]], sum = 0;
    for (int i = 0; i < c->experts.n_used; i++) sum += weights[i] = expf(scores[best[i]] - top);
    if (c->experts.is_share_of_all) {
        sum = 0;
        for (int e = 0; e < c->experts.n; e++) sum += expf(scores[e] - top);
    }
    for (int i = 0; i < c->experts.n_used; i++) weights[i] /= sum;
}

/* NaN of what is not finite. */
static float sigmoid(float x) { return 1 / (1 + expf(-x)) + (x - x); }

static void weigh_all(float *scores, const ig_config *c) {
    float top = scores[0], sum = 0;
    int n = c->experts.n;
    for (int e = 0; e < n && c->experts.routing == IG_ROUTING_SIGMOID; e++) scores[e] = sigmoid(scores[e]);
    if (c->experts.routing != IG_ROUTING_SOFTMAX_FIRST) return;
    for (int e = 1; e < n; e++) top = scores[e] > top ? scores[e] : top;
    for (int e = 0; e < n; e++) sum += scores[e] = expf(scores[e] - top);
    for (int e = 0; e < n; e++) scores[e] /= sum;
}

/* Of scores that are weights. */
static void share_by_sum(float *weights, const int32_t *best, const float *scores, const ig_config *c) {
    float sum = 1e-20f;
    for (int i = 0; i < c->experts.n_used; i++) sum += weights[i] = scores[best[i]];
    for (int i = 0; i < c->experts.n_used && !c->experts.is_share_of_all; i++) weights[i] /= sum;
}

/* Of scores that are none yet. */
static void share_by_sigmoid(float *weights, const int32_t *best, const float *scores, const ig_config *c) {
    for (int i = 0; i < c->experts.n_used; i++) weights[i] = sigmoid(scores[best[i]]);
}

static void choose_row(const choice *j, int row) {
    const ig_config *c = j->c;
    float *scores = j->r->scores.host + (size_t)row * (size_t)c->experts.n;
    int32_t *best = j->r->chosen + (size_t)row * (size_t)c->experts.n_used;
    float *weights = j->r->weights + (size_t)row * (size_t)c->experts.n_used;
    float odd = 0; /* NaN, if any score is not finite */
    for (int e = 0; e < c->experts.n; e++) odd += scores[e] - scores[e];
    weigh_all(scores, c);
    find_best(best, scores, j->bias, c);
    (c->experts.routing == IG_ROUTING_SOFTMAX        ? share_by_softmax
     : c->experts.routing == IG_ROUTING_SIGMOID_LAST ? share_by_sigmoid
                                                     : share_by_sum)(weights, best, scores, c);
    for (int i = 0; i < c->experts.n_used; i++)
        weights[i] = weights[i] * (float)c->experts.scale * (j->scales ? j->scales[best[i]] : 1) + odd;
}

static void choose_task(void *arg, int task, int thread) {
    const choice *j = arg;
    int begin = j->first + task * ROWS_PER_TASK;
    (void)thread;
    for (int row = begin; row < ig_min_int(begin + ROWS_PER_TASK, j->n_rows); row++) choose_row(j, row);
}

/* Sorts the rows by their experts: counts each expert's, and puts each row behind those before it. */
static void sort_rows(const ig_routes *r, const ig_config *c, int first, int n_rows) {
    int k = c->experts.n_used;
    memset(r->begin, 0, ((size_t)c->experts.n + 1) * sizeof *r->begin);
    for (int i = first * k; i < n_rows * k; i++) r->begin[r->chosen[i] + 1]++;
    for (int e = 0; e < c->experts.n; e++) r->begin[e + 1] += r->begin[e];
    for (int i = first * k; i < n_rows * k; i++) {
        int at = r->begin[r->chosen[i]]++;
        r->rows[at] = i / k;
        r->shares[at] = r->weights[i];
    }
    memmove(r->begin + 1, r->begin, (size_t)c->experts.n * sizeof *r->begin);
    r->begin[0] = 0;
}

void ig_routes_share(ig_routes *r, int first, int n_rows) {
    for (int row = first; row < n_rows; row++) r->shared.host[row] = sigmoid(r->shared.host[row]);
}

void ig_routes_choose(ig_routes *r, ig_device *d, const ig_config *c, const float *bias, const float *scales, int first,
                      int n_rows) {
    choice j = {r, c, bias, scales, first, n_rows};
    d->ops->parallel(d, (n_rows - first + ROWS_PER_TASK - 1) / ROWS_PER_TASK, choose_task, &j);
    sort_rows(r, c, first, n_rows);
    for (int row = 0; row < n_rows; row++) r->all[row] = row;
}
