/* SPDX-License-Identifier: Apache-2.0
 *
 * Choosing the heaviest entries without sorting: the bits of a non-negative float rise with its value, so a
 * histogram over their upper part finds the bucket in which the threshold lies, a second one over the next
 * bits refines it. Two passes over the weights whatever the shape of the distribution.
 */
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "policy/policy.h"

int ig_pick_budget(double budget, int n) {
    double k = budget <= 1 ? ceil(budget * n) : floor(budget);
    return k >= n ? n : k < 1 ? 1 : (int)k;
}

enum { BUCKETS = 1024, UPPER_SHIFT = 18, LOWER_SHIFT = 8 };

typedef struct histogram {
    int count[BUCKETS];
    double mass[BUCKETS];
} histogram;

/* What is still to be chosen: entries, and weight (choosing stops once either is used up). */
typedef struct want {
    int count;
    double mass;
} want;

/* Distance of a weight from the largest one in steps of the upper bits (32 steps an octave), at most BUCKETS - 1. */
static unsigned upper_bucket(uint32_t top, float w) {
    unsigned b = (top - ig_f32_bits(w)) >> UPPER_SHIFT;
    return b < BUCKETS ? b : BUCKETS - 1;
}

/* The next bits, within an upper bucket; the last upper bucket, a mixed one, is not told apart further. */
static unsigned lower_bucket(uint32_t top, float w) {
    if (upper_bucket(top, w) == BUCKETS - 1) return 0;
    return (top - ig_f32_bits(w)) >> LOWER_SHIFT & (BUCKETS - 1);
}

/* First bucket that cannot be taken whole; BUCKETS if all can. Lowers `left` by those before it. */
static int boundary(const histogram *h, want *left) {
    int b = 0;
    for (; b < BUCKETS; b++) {
        if (h->count[b] > left->count || (h->count[b] && h->mass[b] >= left->mass)) break;
        left->count -= h->count[b];
        left->mass -= h->mass[b];
    }
    return b;
}

int ig_pick(int32_t *index, const float *w, int n, int n_sinks, int n_recent, int count, double mass) {
    if (n_sinks > n) n_sinks = n;
    if (n_recent > n - n_sinks) n_recent = n - n_sinks;
    int begin = n_sinks, end = n - n_recent, n_out = 0;
    want left = {.count = count - n_sinks - n_recent, .mass = INFINITY};
    float top_weight = 0;
    for (int i = begin; i < end; i++)
        if (w[i] > top_weight) top_weight = w[i];
    if (mass < 1) {
        double sum = 0, always = 0;
        for (int i = 0; i < n; i++) sum += w[i];
        for (int i = 0; i < n_sinks; i++) always += w[i];
        for (int i = end; i < n; i++) always += w[i];
        left.mass = mass * sum - always;
    }
    if (left.mass <= 0) left.count = 0;
    if (left.count < 0) left.count = 0;
    if (left.count > end - begin) left.count = end - begin;

    const uint32_t top = ig_f32_bits(top_weight);
    histogram h = {0};
    int upper = 0, lower = 0;
    if (left.count) {
        for (int i = begin; i < end; i++) {
            unsigned b = upper_bucket(top, w[i]);
            h.count[b]++;
            h.mass[b] += w[i];
        }
        upper = boundary(&h, &left);
        memset(&h, 0, sizeof h);
        for (int i = begin; i < end && upper < BUCKETS; i++)
            if (upper_bucket(top, w[i]) == (unsigned)upper) {
                unsigned b = lower_bucket(top, w[i]);
                h.count[b]++;
                h.mass[b] += w[i];
            }
        lower = boundary(&h, &left);
    }

    for (int i = 0; i < begin; i++) index[n_out++] = i;
    for (int i = begin; i < end; i++) {
        int u = (int)upper_bucket(top, w[i]), l = u == upper ? (int)lower_bucket(top, w[i]) : 0;
        bool take = u < upper || (u == upper && l < lower);
        if (u == upper && l == lower && left.count > 0 && left.mass > 0) { /* ties: in order, while any is wanted */
            take = true;
            left.count--;
            left.mass -= w[i];
        }
        if (take) index[n_out++] = i;
    }
    for (int i = end; i < n; i++) index[n_out++] = i;
    return n_out;
}
