/* SPDX-License-Identifier: Apache-2.0
 *
 * Choosing the heaviest entries without sorting: the bits of a non-negative float rise with its value, so the weight
 * that parts the chosen from the others is found by bisecting over the bits, counting what lies above: 31 passes of a
 * vector compare, exact whatever the distribution. docs/speed-log.md has the histograms that this replaced.
 */
#include <math.h>

#include "base/half.h"
#include "policy/policy.h"

int ig_pick_budget(double budget, int n) {
    double k = budget <= 1 ? ceil(budget * n) : floor(budget);
    return k >= n ? n : k < 1 ? 1 : (int)k;
}

/* What is to be chosen of the candidates: at most `count`, and no more once their weight reaches `mass`. */
typedef struct want {
    int count;
    double mass; /* INFINITY: no end by weight */
} want;

/* The lowest threshold above which there is not more than wanted; `left` is what is still wanted then, of those at it.
 */
static float find_threshold(const ig_kernels *k, const float *w, int n, want *left) {
    bool by_mass = !isinf(left->mass);
    uint32_t low = 0, high = ig_f32_bits(k->max(w, n)); /* above `high` there is nothing */
    int count = 0;
    float sum = 0;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        count = k->count_above(w, n, ig_bits_f32(middle), by_mass ? &sum : NULL);
        if (count <= left->count && (double)sum < left->mass)
            high = middle;
        else
            low = middle + 1;
    }
    count = k->count_above(w, n, ig_bits_f32(high), &sum);
    left->count -= count;
    left->mass -= (double)sum;
    return ig_bits_f32(high);
}

/* Entries at the threshold are taken in order while any are wanted: the number of candidates up to the last one taken.
 */
static int end_of_ties(const float *w, int n, float threshold, want left) {
    int end = 0;
    for (int i = 0; i < n && left.count > 0 && left.mass > 0; i++)
        if (w[i] == threshold) {
            left.count--;
            left.mass -= (double)threshold;
            end = i + 1;
        }
    return end;
}

static double sum_of(const float *w, int begin, int end) {
    double sum = 0;
    for (int i = begin; i < end; i++) sum += (double)w[i];
    return sum;
}

int ig_pick(const ig_kernels *k, int32_t *index, const float *w, int n, const ig_pick_rule *rule) {
    int begin = rule->n_sinks < n ? rule->n_sinks : n;
    int end = rule->n_recent < n - begin ? n - rule->n_recent : begin, n_out = 0;
    want left = {.count = rule->count - begin - (n - end), .mass = INFINITY};
    if (rule->mass < 1) left.mass = rule->mass * sum_of(w, 0, n) - sum_of(w, 0, begin) - sum_of(w, end, n);

    for (int i = 0; i < begin; i++) index[n_out++] = i;
    if (left.count > 0 && left.mass > 0 && begin < end) {
        const float *candidates = w + begin;
        float threshold = find_threshold(k, candidates, end - begin, &left);
        int ties = end_of_ties(candidates, end - begin, threshold, left);
        float just_below = threshold > 0 ? ig_bits_f32(ig_f32_bits(threshold) - 1) : -1;
        n_out += k->list_above(index + n_out, candidates, begin, ties, just_below);
        n_out += k->list_above(index + n_out, candidates + ties, begin + ties, end - begin - ties, threshold);
    }
    for (int i = end; i < n; i++) index[n_out++] = i;
    return n_out;
}
