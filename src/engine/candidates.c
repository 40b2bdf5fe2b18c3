/* SPDX-License-Identifier: Apache-2.0
 *
 * Filters over candidates. Some want them in descending order, but seldom many of them: a heap gives them one by one.
 */
#include "engine/candidates.h"

#include <math.h>
#include <stdlib.h>

bool ig_candidates_open(ig_candidates *c, int n_vocab) {
    c->v = malloc((size_t)n_vocab * sizeof *c->v);
    c->spare = malloc((size_t)n_vocab * sizeof *c->spare);
    return c->v && c->spare;
}

void ig_candidates_close(ig_candidates *c) {
    free(c->v);
    free(c->spare);
}

float ig_candidates_top(const ig_candidates *c) {
    float top = -INFINITY;
    for (int i = 0; i < c->n; i++) top = c->v[i].logit > top ? c->v[i].logit : top;
    return top;
}

static double weight(const ig_candidate *c, float top) { return exp((double)c->logit - (double)top); }

static double total_weight(const ig_candidates *c, float top) {
    double total = 0;
    for (int i = 0; i < c->n; i++) total += weight(&c->v[i], top);
    return total;
}

double ig_candidates_total(const ig_candidates *c) { return total_weight(c, ig_candidates_top(c)); }

static void keep_from(ig_candidates *c, float least_logit) {
    int n = 0;
    for (int i = 0; i < c->n; i++)
        if (c->v[i].logit >= least_logit) c->v[n++] = c->v[i];
    c->n = n;
}

/* ---- order ---------------------------------------------------------------- */

/* Higher key first; ties to the lower id, so that the order never depends on the heap. */
static bool before(ig_candidate a, ig_candidate b) { return a.key > b.key || (a.key == b.key && a.id < b.id); }

static void sift_down(ig_candidate *heap, int n, int i) {
    ig_candidate c = heap[i];
    for (int child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && before(heap[child + 1], heap[child])) child++;
        if (!before(heap[child], c)) break;
        heap[i] = heap[child];
    }
    heap[i] = c;
}

/* The same with the last one on top. */
static void sift_down_last(ig_candidate *heap, int n, int i) {
    ig_candidate c = heap[i];
    for (int child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && before(heap[child], heap[child + 1])) child++;
        if (!before(c, heap[child])) break;
        heap[i] = heap[child];
    }
    heap[i] = c;
}

/* Keeps those with the highest keys, in descending order: at most `most`, and no more once they have so much weight;
 * INFINITY: no end by that. */
static void keep_best(ig_candidates *c, int most, double wanted) {
    ig_candidate *heap = c->v;
    float top = wanted < INFINITY ? ig_candidates_top(c) : 0;
    double sum = 0;
    int n = 0;
    for (int i = c->n / 2 - 1; i >= 0; i--) sift_down(heap, c->n, i);
    for (int left = c->n; left > 0 && n < most && !(sum >= wanted); n++) {
        c->spare[n] = heap[0];
        if (wanted < INFINITY) sum += weight(&heap[0], top);
        heap[0] = heap[--left];
        sift_down(heap, left, 0);
    }
    c->v = c->spare;
    c->spare = heap;
    c->n = n;
}

/* ---- filling --------------------------------------------------------------- */

void ig_candidates_fill(ig_candidates *c, const float *logits, int n_vocab) {
    c->n = 0;
    for (int i = 0; i < n_vocab; i++)
        if (logits[i] > -INFINITY) c->v[c->n++] = (ig_candidate){logits[i], logits[i], i};
}

void ig_candidates_fill_above(ig_candidates *c, const ig_kernels *kernels, const float *logits, int n_vocab,
                              float least) {
    int32_t *list = (int32_t *)(void *)c->spare;
    c->n = kernels->list_above(list, logits, 0, n_vocab, least);
    for (int i = 0; i < c->n; i++) c->v[i] = (ig_candidate){logits[list[i]], logits[list[i]], list[i]};
}

void ig_candidates_fill_top_k(ig_candidates *c, const float *logits, int n_vocab, int k) {
    ig_candidate *heap = c->v;
    int i = 0;
    c->n = 0;
    for (; i < n_vocab && c->n < k; i++)
        if (logits[i] > -INFINITY) heap[c->n++] = (ig_candidate){logits[i], logits[i], i};
    for (int at = c->n / 2 - 1; at >= 0; at--) sift_down_last(heap, c->n, at);
    for (; i < n_vocab; i++) /* few are better than the last of those before; of equals the first is */
        if (logits[i] > heap[0].key) {
            heap[0] = (ig_candidate){logits[i], logits[i], i};
            sift_down_last(heap, c->n, 0);
        }
    for (int left = c->n - 1; left > 0; left--) {
        ig_candidate last = heap[0];
        heap[0] = heap[left];
        heap[left] = last;
        sift_down_last(heap, left, 0);
    }
}

/* ---- filters -------------------------------------------------------------- */

void ig_candidates_top_n_sigma(ig_candidates *c, float n) {
    double mean = 0, square = 0;
    for (int i = 0; i < c->n; i++) mean += (double)c->v[i].logit / c->n;
    for (int i = 0; i < c->n; i++) square += pow((double)c->v[i].logit - mean, 2) / c->n;
    keep_from(c, (float)((double)ig_candidates_top(c) - (double)n * sqrt(square)));
}

void ig_candidates_top_k(ig_candidates *c, int k) {
    if (k < c->n) keep_best(c, k, INFINITY);
}

void ig_candidates_typical(ig_candidates *c, float p) {
    float top = ig_candidates_top(c);
    double total = total_weight(c, top), log_total = log(total), entropy = 0;
    for (int i = 0; i < c->n; i++) {
        double surprise = log_total + (double)top - (double)c->v[i].logit;
        entropy += exp(-surprise) * surprise;
    }
    for (int i = 0; i < c->n; i++) {
        double surprise = log_total + (double)top - (double)c->v[i].logit;
        c->v[i].key = (float)-fabs(surprise - entropy);
    }
    keep_best(c, c->n, (double)p * total);
    for (int i = 0; i < c->n; i++) c->v[i].key = c->v[i].logit;
}

void ig_candidates_top_p(ig_candidates *c, float p, double total) { keep_best(c, c->n, (double)p * total); }

void ig_candidates_min_p(ig_candidates *c, float p) { keep_from(c, ig_candidates_top(c) + logf(p)); }

void ig_candidates_xtc(ig_candidates *c, float threshold) {
    float top = ig_candidates_top(c);
    double least = (double)top + log((double)threshold * total_weight(c, top)); /* a logit */
    int n = 0, stays = -1;                                                      /* -1: none is so likely */
    for (int i = 0; i < c->n; i++)
        if ((double)c->v[i].logit >= least && (stays < 0 || before(c->v[stays], c->v[i]))) stays = i;
    for (int i = 0; i < c->n; i++)
        if (i == stays || (double)c->v[i].logit < least) c->v[n++] = c->v[i];
    c->n = n;
}
