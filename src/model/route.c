/* SPDX-License-Identifier: Apache-2.0 */
#include "model/route.h"

#include <math.h>
#include <string.h>

#include "base/compiler.h"

enum { ROWS_PER_TASK = 8 };

void ig_routes_lay_out(ig_space *s, ig_routes *r, const ig_config *c, int max_rows, int ffn_rows) {
    size_t rows = (size_t)max_rows, pairs = rows * (size_t)c->n_experts_used, d = (size_t)c->d_model;
    size_t together = rows < (size_t)ffn_rows ? rows : (size_t)ffn_rows;
    if (!c->n_experts) return;
    r->scores = ig_space_twin(s, rows * (size_t)c->n_experts);
    r->x = ig_space_device(s, together * d * sizeof(float));
    r->y = ig_space_device(s, together * d * sizeof(float));
    r->hidden = ig_space_device(s, 2 * (size_t)c->n_experts_used * (size_t)c->d_ff * sizeof(float));
    r->chosen = ig_space_host(s, pairs * sizeof *r->chosen);
    r->weights = ig_space_host(s, pairs * sizeof *r->weights);
    r->rows = ig_space_host(s, pairs * sizeof *r->rows);
    r->shares = ig_space_host(s, pairs * sizeof *r->shares);
    r->begin = ig_space_host(s, ((size_t)c->n_experts + 1) * sizeof *r->begin);
}

/* The k best of n scores, the best one first. */
static void find_best(int32_t *best, int k, const float *scores, int n) {
    bool is_taken[IG_MAX_EXPERTS] = {false};
    for (int i = 0; i < k; i++) {
        int top = -1;
        for (int e = 0; e < n; e++)
            if (!is_taken[e] && (top < 0 || scores[e] > scores[top])) top = e;
        is_taken[top] = true;
        best[i] = top;
    }
}

static void choose_row(const ig_routes *r, const ig_config *c, int row) {
    const float *scores = r->scores.host + (size_t)row * (size_t)c->n_experts;
    int32_t *best = r->chosen + (size_t)row * (size_t)c->n_experts_used;
    float *weights = r->weights + (size_t)row * (size_t)c->n_experts_used, sum = 0;
    find_best(best, c->n_experts_used, scores, c->n_experts);
    float top = scores[best[0]];
    for (int i = 0; i < c->n_experts_used; i++) sum += weights[i] = expf(scores[best[i]] - top);
    if (c->is_share_of_all) {
        sum = 0;
        for (int e = 0; e < c->n_experts; e++) sum += expf(scores[e] - top);
    }
    for (int i = 0; i < c->n_experts_used; i++) weights[i] /= sum;
}

typedef struct choice {
    const ig_routes *r;
    const ig_config *c;
    int first, n_rows;
} choice;

static void choose_task(void *arg, int task, int thread) {
    const choice *j = arg;
    int begin = j->first + task * ROWS_PER_TASK;
    (void)thread;
    for (int row = begin; row < ig_min_int(begin + ROWS_PER_TASK, j->n_rows); row++) choose_row(j->r, j->c, row);
}

/* Sorts the rows by their experts: counts each expert's, and puts each row behind those before it. */
static void sort_rows(const ig_routes *r, const ig_config *c, int first, int n_rows) {
    int k = c->n_experts_used;
    memset(r->begin, 0, ((size_t)c->n_experts + 1) * sizeof *r->begin);
    for (int i = first * k; i < n_rows * k; i++) r->begin[r->chosen[i] + 1]++;
    for (int e = 0; e < c->n_experts; e++) r->begin[e + 1] += r->begin[e];
    for (int i = first * k; i < n_rows * k; i++) {
        int at = r->begin[r->chosen[i]]++;
        r->rows[at] = i / k;
        r->shares[at] = r->weights[i];
    }
    memmove(r->begin + 1, r->begin, (size_t)c->n_experts * sizeof *r->begin);
    r->begin[0] = 0;
}

void ig_routes_choose(ig_routes *r, ig_device *d, const ig_config *c, int first, int n_rows) {
    choice j = {r, c, first, n_rows};
    d->ops->parallel(d, (n_rows - first + ROWS_PER_TASK - 1) / ROWS_PER_TASK, choose_task, &j);
    sort_rows(r, c, first, n_rows);
}
