/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of the key sketch. Blocks are decoded here by the layout that kernel.h states: a key must come
 * back no worse than from plain rounding between its extremes, and scores must be those of the
 * decoded keys up to the 8-bit query.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "check.h"

enum { MOST_DIMS = 576, MOST_BLOCKS = 5, MOST_QUERIES = 33 };

static const int dims[] = {8, 16, 24, 40, 64, 80, 128, 136, 256, 512, 576};

static void decode(double *x, const uint8_t *block, int t, int d) {
    float step, min;
    memcpy(&step, block + 4 * t, sizeof step);
    memcpy(&min, block + 64 + 4 * t, sizeof min);
    for (int j = 0; j < d / 8; j++)
        for (int i = 0; i < 4; i++) {
            int pair = block[128 + 64 * j + 4 * t + i];
            x[8 * j + i] = (double)step * (pair & 15) + min;
            x[8 * j + 4 + i] = (double)step * (pair >> 4) + min;
        }
}

/* What rounding to 16 evenly spaced values from the smallest to the largest leaves. */
static double rounding_error(const double *x, int d) {
    double lo = x[0], hi = x[0], sum = 0;
    for (int i = 0; i < d; i++) lo = fmin(lo, x[i]), hi = fmax(hi, x[i]);
    double step = (hi - lo) / 15;
    for (int i = 0; i < d; i++) {
        double e = step > 0 ? x[i] - lo - step * rint((x[i] - lo) / step) : 0;
        sum += e * e;
    }
    return sum;
}

static void random_key(check *c, uint16_t *key, int d, check_shape shape) {
    float x[MOST_DIMS];
    check_fill(c, x, d, shape);
    for (int i = 0; i < d; i++) key[i] = ig_f32_f16(x[i]);
}

static void check_put_at(check *c, int d, check_shape shape) {
    size_t bytes = ig_sketch_block_bytes(d);
    uint8_t *block = check_buffer(bytes, (size_t)check_int(c, 0, 15) * 4), *before = malloc(bytes);
    uint16_t *key = check_fenced((size_t)d * sizeof *key);
    memset(block, 0, bytes);
    for (int round = 0; round < 40; round++) {
        int t = round < 16 ? round : check_int(c, 0, 15);
        double want[MOST_DIMS], got[MOST_DIMS], other[MOST_DIMS], error = 0, size = 0;
        random_key(c, key, d, shape);
        for (int i = 0; i < d; i++) want[i] = ig_f16_f32(key[i]), size = fmax(size, fabs(want[i]));
        memcpy(before, block, bytes);
        c->k->sketch_put(block, t, key, d);
        decode(got, block, t, d);
        for (int i = 0; i < d; i++) error += (got[i] - want[i]) * (got[i] - want[i]);
        double limit = 1.0001 * rounding_error(want, d) + d * 1e-12 * size * size;
        check_that(c, error <= limit, "d=%d slot %d: squared error %g, plain rounding has %g", d, t, error, limit);
        for (int u = 0; u < IG_SKETCH_TOKENS; u++) {
            if (u == t) continue;
            decode(got, block, u, d), decode(other, before, u, d);
            check_that(c, !memcmp(got, other, (size_t)d * sizeof *got), "d=%d: slot %d changed slot %d", d, t, u);
        }
    }
    check_that(c, check_guards(block), "d=%d: wrote outside", d);
    check_fenced_free(key, (size_t)d * sizeof *key);
    check_buffer_free(block);
    free(before);
}

/* Keys that no model should make must still give finite scores, those of the same key made finite. */
static void check_put_hostile(check *c, int d) {
    static const uint16_t odd[] = {0x7c00, 0xfc00, 0x7e00, 0x7bff, 0xfbff, 0x0001, 0x8000, 0x3c00};
    size_t bytes = ig_sketch_block_bytes(d);
    uint8_t *block = check_buffer(bytes, 0), *plain = check_buffer(bytes, 0);
    uint16_t key[MOST_DIMS];
    float q[MOST_DIMS], s[IG_SKETCH_TOKENS];
    memset(block, 0, bytes), memset(plain, 0, bytes);
    for (int t = 0; t < 14; t++) {
        for (int i = 0; i < d; i++) key[i] = odd[t < 8 ? t : check_int(c, 0, (int)IG_COUNT(odd) - 1)];
        c->k->sketch_put(block, t, key, d);
        double got[MOST_DIMS], want[MOST_DIMS];
        decode(got, block, t, d);
        for (int i = 0; i < d; i++)
            key[i] = (key[i] & 0x7fff) > 0x7c00 ? 0 : (key[i] & 0x7fff) == 0x7c00 ? key[i] - 1 : key[i];
        c->ref->sketch_put(plain, t, key, d);
        decode(want, plain, t, d);
        for (int i = 0; i < d; i++)
            check_that(c, fabs(got[i] - want[i]) <= 10, "d=%d slot %d: [%d] is %g, not %g", d, t, i, got[i], want[i]);
    }
    check_fill(c, q, d, CHECK_NORMAL);
    c->k->sketch_scores(s, IG_SKETCH_TOKENS, q, 1, d, 1.0f, block, 1);
    for (int t = 0; t < IG_SKETCH_TOKENS; t++)
        check_that(c, isfinite(s[t]), "d=%d: score of slot %d is %g", d, t, s[t]);
    check_that(c, s[14] == 0 && s[15] == 0, "d=%d: slots not written score %g, %g", d, s[14], s[15]);
    for (int round = 0; round < 3; round++) {
        q[d / 2] = round == 0 ? NAN : INFINITY;
        if (round == 2) memset(q, 0, sizeof q);
        c->k->sketch_scores(s, IG_SKETCH_TOKENS, q, 1, d, 1.0f, block, 1);
        for (int t = 0; t < IG_SKETCH_TOKENS; t++)
            check_that(c, s[t] == 0, "d=%d: a query without direction scores %g", d, s[t]);
    }
    check_buffer_free(block), check_buffer_free(plain);
}

static void check_scores_at(check *c, int d, int n_q, int n_blocks, check_shape shape) {
    size_t block_bytes = ig_sketch_block_bytes(d), bytes = block_bytes * (size_t)n_blocks;
    int n = n_blocks * IG_SKETCH_TOKENS;
    uint8_t *blocks = check_fenced(bytes);
    uint16_t key[MOST_DIMS];
    memset(blocks, 0, bytes);
    for (int i = 0; i < n; i++) {
        random_key(c, key, d, CHECK_NORMAL);
        c->ref->sketch_put(blocks + block_bytes * (size_t)(i / IG_SKETCH_TOKENS), i % IG_SKETCH_TOKENS, key, d);
    }
    size_t stride = (size_t)n + (size_t)check_int(c, 0, 5), n_floats = (size_t)n_q * (size_t)d;
    float *q = check_fenced(n_floats * sizeof *q), *s = check_buffer((size_t)n_q * stride * sizeof *s, 4);
    float *ref = malloc((size_t)n_q * stride * sizeof *ref + 1),
          *twin = malloc((size_t)n_q * stride * sizeof *twin + 1);
    check_fill(c, q, (int)n_floats, shape);
    for (size_t i = 0; i < (size_t)n_q * stride; i++) ref[i] = s[i] = -1;
    c->k->sketch_scores(s, stride, q, n_q, d, 0.125f, blocks, n_blocks);
    c->ref->sketch_scores(ref, stride, q, n_q, d, 0.125f, blocks, n_blocks);
    check_that(c, check_guards(s), "d=%d n_q=%d n=%d: wrote outside", d, n_q, n);
    if (c->twin) {
        for (size_t i = 0; i < (size_t)n_q * stride; i++) twin[i] = -1;
        c->twin->sketch_scores(twin, stride, q, n_q, d, 0.125f, blocks, n_blocks);
        check_that(c, !memcmp(twin, s, (size_t)n_q * stride * sizeof *s), "d=%d n_q=%d n=%d: other bits", d, n_q, n);
    }
    for (int g = 0; g < n_q; g++) {
        float *row = s + (size_t)g * stride, *ref_row = ref + (size_t)g * stride;
        float largest = 0;
        for (int i = 0; i < d; i++) largest = fmaxf(largest, fabsf(q[g * d + i]));
        for (int i = 0; i < n; i++) {
            double x[MOST_DIMS], sum = 0, size = 0;
            decode(x, blocks + block_bytes * (size_t)(i / IG_SKETCH_TOKENS), i % IG_SKETCH_TOKENS, d);
            for (int j = 0; j < d; j++) sum += q[g * d + j] * x[j], size += x[j] * x[j];
            /* The error of an 8-bit query is spread evenly over +-1/254 of its largest; the error of the sum is about
             * normal, 6 times its deviation will do. */
            double limit = 0.125 * 6 * largest / 254 / sqrt(3) * sqrt(size),
                   close = 0.125 * 2e-5 * largest * sqrt(size * d);
            check_that(c, fabs(row[i] - 0.125 * sum) <= limit, "d=%d n_q=%d: [%d][%d] is %g, not %g", d, n_q, g, i,
                       row[i], 0.125 * sum);
            check_that(c, fabsf(row[i] - ref_row[i]) <= close, "d=%d n_q=%d: [%d][%d] is %g, scalar %g", d, n_q, g, i,
                       row[i], ref_row[i]);
        }
        for (size_t i = (size_t)n; i < stride; i++)
            check_that(c, row[i] == -1, "d=%d n_q=%d n=%d: wrote between", d, n_q, n);
        float alone[MOST_BLOCKS * IG_SKETCH_TOKENS];
        c->k->sketch_scores(alone, 0, q + (size_t)g * (size_t)d, 1, d, 0.125f, blocks, n_blocks);
        check_that(c, !memcmp(alone, row, (size_t)n * sizeof *alone), "d=%d n_q=%d: row %d depends on the others", d,
                   n_q, g);
    }
    free(ref);
    free(twin);
    check_buffer_free(s);
    check_fenced_free(q, n_floats * sizeof *q), check_fenced_free(blocks, bytes);
}

/* ---- time ----------------------------------------------------------------------- */

typedef struct bench {
    const ig_kernels *k;
    int n_q, d, n_blocks;
    int n_heads, head; /* in turn, so that a cache does not hold them */
    float *q, *s;
    uint8_t *blocks;
    uint16_t *key;
} bench;

static void run_scores(void *arg) {
    bench *b = arg;
    size_t head_bytes = ig_sketch_block_bytes(b->d) * (size_t)b->n_blocks;
    b->head = (b->head + 1) % b->n_heads;
    b->k->sketch_scores(b->s, (size_t)b->n_blocks * IG_SKETCH_TOKENS, b->q, b->n_q, b->d, 0.125f,
                        b->blocks + (size_t)b->head * head_bytes, b->n_blocks);
}

static void run_put(void *arg) {
    bench *b = arg;
    for (int t = 0; t < IG_SKETCH_TOKENS; t++) b->k->sketch_put(b->blocks, t, b->key, b->d);
}

static void bench_one(check *c, int n_q, int d, int n_blocks, int n_heads) {
    bench b = {.k = c->k, .n_q = n_q, .d = d, .n_blocks = n_blocks, .n_heads = n_heads};
    size_t bytes = ig_sketch_block_bytes(d) * (size_t)n_blocks, n = (size_t)n_blocks * IG_SKETCH_TOKENS;
    b.blocks = check_buffer(bytes * (size_t)n_heads, 0), b.q = check_buffer((size_t)n_q * (size_t)d * 4, 0);
    b.s = check_buffer((size_t)n_q * n * 4, 0), b.key = check_buffer((size_t)d * 2, 0);
    memset(b.blocks, 0, bytes * (size_t)n_heads);
    check_fill(c, b.q, n_q * d, CHECK_NORMAL);
    random_key(c, b.key, d, CHECK_NORMAL);
    char line[64];
    snprintf(line, sizeof line, "scores %dq d%d %d x %d tokens", n_q, d, n_heads, (int)n);
    check_report(c, line, check_time(run_scores, &b), (double)bytes, (double)n * n_q * d);
    if (n_blocks < 100) check_report(c, "put 16 keys", check_time(run_put, &b), 32.0 * d, 0);
    check_buffer_free(b.blocks), check_buffer_free(b.q), check_buffer_free(b.s), check_buffer_free(b.key);
}

enum { HEADS = 400 }; /* more than caches hold */

static void bench_sketch(check *c) {
    if (!check_begin(c, "sketch")) return;
    bench_one(c, 3, 64, 16, 1);
    bench_one(c, 3, 64, 500, 1);
    bench_one(c, 3, 64, 500, HEADS);
    bench_one(c, 6, 128, 16, 1);
    bench_one(c, 6, 128, 500, 1);
    bench_one(c, 6, 128, 500, HEADS / 2);
}

void check_sketch(check *c) {
    if (c->is_bench) {
        bench_sketch(c);
        return;
    }
    if (!check_begin(c, "sketch")) return;
    for (size_t i = 0; i < IG_COUNT(dims); i++) {
        for (int s = 0; s < CHECK_SHAPES; s++) check_put_at(c, dims[i], (check_shape)s);
        check_put_hostile(c, dims[i]);
        for (int n_q = 1; n_q <= 9; n_q++)
            check_scores_at(c, dims[i], n_q, check_int(c, 0, MOST_BLOCKS),
                            (check_shape)check_int(c, 0, CHECK_SHAPES - 1));
        check_scores_at(c, dims[i], 17, 3, CHECK_NORMAL);
        check_scores_at(c, dims[i], MOST_QUERIES, 2, CHECK_OUTLIER);
    }
}
