/* SPDX-License-Identifier: Apache-2.0
 *
 * Choosing the heaviest entries without sorting: the bits of a non-negative float rise with its value, so the weight
 * that parts the chosen from the others is found by searching over the bits, counting what lies above three of them at
 * a time. The search begins around the mean, and once few weights are left between its ends it looks at these alone:
 * some four passes over all weights, and exact whatever the distribution. docs/speed-log.md has what this replaced.
 */
#include <math.h>

#include "base/half.h"
#include "policy/policy.h"

int ig_pick_share(double share, int n) {
    double k = ceil(share * n);
    return k >= n ? n : k < 1 ? 1 : (int)k;
}

/* What is to be chosen of the candidates: at most `count`, and no more once their weight reaches `mass`. */
typedef struct want {
    int count;
    double mass; /* INFINITY: no end by weight */
} want;

/* What lies above a threshold. */
typedef struct above {
    int count;
    double sum;
} above;

static bool fits(const above *a, const want *wanted) {
    return a->count <= wanted->count && (isinf(wanted->mass) || a->sum < wanted->mass);
}

static double sum_of(const float *w, int begin, int end) {
    double sum = 0;
    for (int i = begin; i < end; i++) sum += (double)w[i];
    return sum;
}

/* The sum of n weights, or of those that are numbers. */
static double sum_all(const ig_kernels *k, const float *w, int n) {
    enum { PIECE = 1024 }; /* that a float sums up well */
    double sum = 0;
    for (int i = 0; i < n; i += PIECE) {
        float piece;
        k->count_above(w + i, n - i < PIECE ? n - i : PIECE, -1, &piece);
        sum += (double)piece;
    }
    return sum;
}

/* Just below the float of these bits: what is above it is at least that float. */
static float below(uint32_t bits) { return bits ? ig_bits_f32(bits - 1) : -1; }

/* Where the threshold is sought: among floats of bits low..high. Nothing but weights of such bits can be it, and the
 * others matter by what lies above `high` alone, so that few of them are left to look at soon. */
typedef struct search {
    const float *w; /* weights to look at */
    int n;
    uint32_t low, high;
    above outside;   /* above `high` and not in w */
    above over_high; /* above `high` */
    int n_from_low;  /* weights of `low` and more */
} search;

enum { FEW = 1024 };

/* Counts above three thresholds, low <= t <= high, and narrows the search accordingly. */
static void narrow(search *s, const ig_kernels *k, const uint32_t t[3], const want *wanted) {
    float thresholds[3], sums[3] = {0};
    int counts[3];
    for (int i = 0; i < 3; i++) thresholds[i] = ig_bits_f32(t[i]);
    k->count_above3(s->w, s->n, thresholds, counts, isinf(wanted->mass) ? NULL : sums);
    for (int i = 0; i < 3; i++) {
        above a = {s->outside.count + counts[i], s->outside.sum + (double)sums[i]};
        if (fits(&a, wanted)) {
            s->high = t[i];
            s->over_high = a;
            return;
        }
        s->low = t[i] + 1;
        s->n_from_low = a.count;
    }
}

/* Lists the candidates of `low` and more, and leaves only those up to `high` to look at. Returns the list's length. */
static int keep_few(search *s, const ig_kernels *k, float few[FEW + 1], int32_t *list, int first) {
    int n = k->list_above(list, s->w, first, s->n, below(s->low)), n_few = 0;
    float high = ig_bits_f32(s->high);
    s->outside = s->over_high;
    for (int i = 0; i < n; i++) {
        float x = few[n_few] = s->w[list[i] - first]; /* taken back without a branch, which nobody could predict */
        n_few += x <= high;
    }
    s->w = few;
    s->n = n_few;
    return n;
}

/* Around a mean, or evenly spread without one. */
static void choose_thresholds(uint32_t t[3], const search *s, const float *mean) {
    enum { OCTAVE = 1 << 23 };
    uint32_t span = s->high - s->low;
    for (uint32_t i = 0; i < 3; i++) t[i] = s->low + span / 4 * (i + 1);
    if (span < 4) t[0] = s->low, t[1] = s->low + span / 2, t[2] = s->high - 1;
    if (!mean || !(*mean > 0)) return;
    int64_t first = (int64_t)ig_f32_bits(*mean) - 2 * OCTAVE;
    for (int i = 0; i < 3; i++, first += 2 * OCTAVE)
        t[i] = first < s->low ? s->low : first < s->high ? (uint32_t)first : s->high - 1;
}

/* Lists the wanted ones of n candidates, the first of which has the number `first`. */
static int list_heaviest(const ig_kernels *k, int32_t *list, const float *w, int first, int n, float mean, want left) {
    float few[FEW + 1];
    search s = {.w = w, .n = n, .high = ig_f32_bits(INFINITY), .n_from_low = n};
    int n_listed = -1, n_out = 0;
    for (const float *start = &mean; s.low < s.high; start = NULL) {
        if (n_listed < 0 && s.n_from_low - s.over_high.count <= FEW) n_listed = keep_few(&s, k, few, list, first);
        uint32_t t[3];
        choose_thresholds(t, &s, start);
        narrow(&s, k, t, &left);
    }
    float threshold = ig_bits_f32(s.high);
    if (n_listed < 0) n_listed = k->list_above(list, w, first, n, below(s.high));
    left.count -= s.over_high.count;
    left.mass -= s.over_high.sum;
    for (int i = 0; i < n_listed; i++) {
        float x = w[list[i] - first];
        if (x == threshold) { /* of equal ones the first, while any are wanted */
            if (left.count <= 0 || !(left.mass > 0)) continue;
            left.count--;
            left.mass -= (double)x;
            list[n_out++] = list[i];
        } else {
            list[n_out] = list[i];
            n_out += x > threshold;
        }
    }
    return n_out;
}

int ig_pick(const ig_kernels *k, int32_t *index, const float *w, int n, const ig_pick_rule *rule) {
    int begin = rule->n_sinks < n ? rule->n_sinks : n;
    int end = rule->n_recent < n - begin ? n - rule->n_recent : begin, n_out = 0;
    want left = {.count = rule->count - begin - (n - end), .mass = INFINITY};

    for (int i = 0; i < begin; i++) index[n_out++] = i;
    if (left.count > 0 && begin < end) {
        double sum = sum_all(k, w + begin, end - begin), always = sum_of(w, 0, begin) + sum_of(w, end, n);
        if (rule->mass < 1) left.mass = rule->mass * (sum + always) - always;
        if (left.mass > 0)
            n_out += list_heaviest(k, index + n_out, w + begin, begin, end - begin, (float)(sum / (end - begin)), left);
    }
    for (int i = end; i < n; i++) index[n_out++] = i;
    return n_out;
}
