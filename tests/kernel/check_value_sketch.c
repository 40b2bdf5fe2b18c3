/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of the value sketch and its transform. Blocks are decoded here by the layout that kernel.h states: a value
 * must come back no worse than from four levels spaced by its deviation, and sums must be those of the decoded values
 * up to the 8-bit weights.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "check.h"

enum { MOST_DIMS = 576, MOST_BLOCKS = 70, MOST_QUERIES = 33 };

static const int dims[] = {8, 16, 24, 40, 64, 80, 96, 128, 136, 256, 512, 576};

static double step_of(const uint8_t *block, int t) {
    uint16_t step;
    memcpy(&step, block + 2 * t, sizeof step);
    return ig_f16_f32(step);
}

static int code_of(const uint8_t *block, int t, int i) { return block[32 + 4 * i + t % 4] >> 2 * (t / 4) & 3; }

static void decode(double *x, const uint8_t *block, int t, int d) {
    for (int i = 0; i < d; i++) x[i] = step_of(block, t) * (code_of(block, t, i) - 1.5);
}

/* ---- value_put ------------------------------------------------------------------ */

/* What rounding to the nearest of +-1/2 and +-3/2 of about the deviation leaves. */
static double rounding_error(const double *x, int d) {
    double squares = 0, sum = 0;
    for (int i = 0; i < d; i++) squares += x[i] * x[i];
    double step = 0.9957 * sqrt(squares / d);
    for (int i = 0; i < d; i++) {
        double e = fabs(x[i]) - step * (fabs(x[i]) < step ? 0.5 : 1.5);
        sum += e * e;
    }
    return sum;
}

static void check_put_at(check *c, int d, check_shape shape) {
    size_t bytes = ig_value_sketch_block_bytes(d);
    uint8_t *block = check_buffer(bytes, (size_t)check_int(c, 0, 31) * 2), *before = malloc(bytes);
    float *x = check_fenced((size_t)d * sizeof *x);
    for (size_t i = 0; i < bytes; i++) block[i] = (uint8_t)check_int(c, 0, 255);
    for (int t = 0; t < IG_SKETCH_TOKENS; t++) memset(block + 2 * t, t, 2); /* finite steps */
    for (int round = 0; round < 40; round++) {
        int t = round < 16 ? round : check_int(c, 0, 15);
        double want[MOST_DIMS], got[MOST_DIMS], other[MOST_DIMS], squares = 0, xc = 0, cc = 0;
        check_fill(c, x, d, shape);
        for (int i = 0; i < d; i++) want[i] = x[i], squares += want[i] * want[i];
        memcpy(before, block, bytes);
        c->k->value_put(block, t, x, d);
        for (int i = 0; i < d; i++) {
            double level = code_of(block, t, i) - 1.5;
            xc += want[i] * level, cc += level * level;
        }
        double left = squares - xc * xc / cc, limit = 1.0001 * rounding_error(want, d) + 1e-5 * squares;
        check_that(c, left <= limit, "d=%d slot %d: squared error %g, plain rounding has %g", d, t, left, limit);
        /* 16-bit floats: 11 bits, or half the smallest */
        double product = step_of(block, t) * xc, off = 0.0005 * squares + 0x1.01p-25 * xc;
        check_that(c, fabs(product - squares) <= off, "d=%d slot %d: product %g, not %g", d, t, product, squares);
        for (int i = 0; i < d; i++)
            if (want[i] != 0)
                check_that(c, (want[i] > 0) == (code_of(block, t, i) > 1), "d=%d: %g has code %d", d, want[i],
                           code_of(block, t, i));
        for (int u = 0; u < IG_SKETCH_TOKENS; u++) {
            if (u == t) continue;
            decode(got, block, u, d), decode(other, before, u, d);
            check_that(c, !memcmp(got, other, (size_t)d * sizeof *got), "d=%d: slot %d changed slot %d", d, t, u);
        }
    }
    check_that(c, check_guards(block), "d=%d: wrote outside", d);
    check_fenced_free(x, (size_t)d * sizeof *x);
    check_buffer_free(block);
    free(before);
}

/* Values that no model should make are kept as the same made finite, and every sum is finite. */
static void check_put_hostile(check *c, int d) {
    static const float odd[] = {INFINITY, -INFINITY, NAN, 3e38f, -3e38f, 65504, 1e-45f, -0.0f, 1};
    enum { ODD = sizeof odd / sizeof *odd };
    size_t bytes = ig_value_sketch_block_bytes(d);
    uint8_t *block = check_buffer(bytes, 0), *plain = check_buffer(bytes, 0);
    float x[MOST_DIMS], w[IG_SKETCH_TOKENS], sum[MOST_DIMS];
    for (int round = 0; round < 20; round++) {
        memset(block, 0, bytes), memset(plain, 0, bytes);
        for (int t = 0; t < 14; t++) {
            for (int i = 0; i < d; i++) x[i] = odd[round == 0 && t < ODD ? t : check_int(c, 0, ODD - 1)];
            if (round == 1)
                for (int i = 0; i < d; i++) x[i] = i == t % d ? INFINITY : 63300; /* the best step is out of range */
            c->k->value_put(block, t, x, d);
            for (int i = 0; i < d; i++) x[i] = isnan(x[i]) ? 0 : fminf(fmaxf(x[i], -65504), 65504);
            c->ref->value_put(plain, t, x, d);
            double got[MOST_DIMS], want[MOST_DIMS];
            decode(got, block, t, d), decode(want, plain, t, d);
            for (int i = 0; i < d; i++)
                check_that(c, fabs(got[i] - want[i]) <= fabs(want[i]) / 500, "d=%d slot %d: [%d] is %g, not %g", d, t,
                           i, got[i], want[i]);
        }
        for (int t = 0; t < IG_SKETCH_TOKENS; t++) w[t] = (float)check_int(c, 0, 1) * 1e30f;
        memset(sum, 0, sizeof sum);
        c->k->value_sums(sum, w, 0, 1, d, block, 1);
        for (int i = 0; i < d; i++) check_that(c, isfinite(sum[i]), "d=%d: sum %d is %g", d, i, sum[i]);
        for (int t = 0; t < IG_SKETCH_TOKENS; t++) w[t] = t < 14 ? 0 : 1e30f;
        memset(sum, 0, sizeof sum);
        c->k->value_sums(sum, w, 0, 1, d, block, 1);
        for (int i = 0; i < d; i++) check_that(c, sum[i] == 0, "d=%d: slots not written add %g", d, sum[i]);
    }
    check_buffer_free(block), check_buffer_free(plain);
}

/* ---- value_sums ----------------------------------------------------------------- */

/* How weights are spread: as a softmax has them, with blocks of zeros, all zeros, all the same, near and below what
 * counts. */
typedef enum spread { SOFTMAX, SPARSE, NOTHING, EVEN, TINY, SPREADS } spread;

static void fill_weights(check *c, float *w, int n, spread kind) {
    for (int i = 0; i < n; i++) {
        if (kind == SPARSE && i % IG_SKETCH_TOKENS == 0 && check_int(c, 0, 1)) {
            memset(w + i, 0, IG_SKETCH_TOKENS * sizeof *w);
            i += IG_SKETCH_TOKENS - 1;
            continue;
        }
        w[i] = (float)exp(2 * check_normal(c));
        if (kind == SPARSE && check_int(c, 0, 2)) w[i] = 0;
        if (kind == NOTHING) w[i] = 0;
        if (kind == EVEN) w[i] = 0.25f;
        if (kind == TINY) w[i] *= ldexpf(1, check_int(c, -149, -90));
    }
}

static void fill_blocks(check *c, uint8_t *blocks, int n_blocks, int d) {
    for (int b = 0; b < n_blocks; b++, blocks += ig_value_sketch_block_bytes(d)) {
        for (int i = 0; i < 4 * d; i++) blocks[32 + i] = (uint8_t)check_int(c, 0, 255);
        for (int t = 0; t < IG_SKETCH_TOKENS; t++) {
            uint16_t step = ig_f32_f16(check_int(c, 0, 15) ? (float)exp(check_normal(c)) : 0);
            memcpy(blocks + 2 * t, &step, sizeof step);
        }
    }
}

/* sum[i] of the decoded values; limit: at most half a unit of 1/255 of the largest step * weight of its block is off
 * each weight, and a code is 1.5 steps or less. size: what floats round. */
static void sums_in_double(double *sum, double *limit, double *size, const float *w, const uint8_t *blocks,
                           int n_blocks, int d) {
    *limit = *size = 0;
    memset(sum, 0, (size_t)d * sizeof *sum);
    for (int b = 0; b < n_blocks; b++, blocks += ig_value_sketch_block_bytes(d), w += IG_SKETCH_TOKENS) {
        double top = 0, block_size = 0;
        for (int t = 0; t < IG_SKETCH_TOKENS; t++) {
            double share = w[t] * step_of(blocks, t), x[MOST_DIMS];
            decode(x, blocks, t, d);
            for (int i = 0; i < d; i++) sum[i] += w[t] * x[i];
            top = fmax(top, share);
            block_size += 1.5 * share;
        }
        *limit += top > 1e-30 ? 16 * 1.5 * top / 510 : block_size;
        *size += block_size;
    }
}

static void check_sums_at(check *c, int d, int n_q, int n_blocks, int kind) {
    size_t bytes = ig_value_sketch_block_bytes(d) * (size_t)n_blocks;
    int n = n_blocks * IG_SKETCH_TOKENS;
    uint8_t *blocks = check_fenced(bytes);
    fill_blocks(c, blocks, n_blocks, d);
    size_t stride = (size_t)n + (size_t)check_int(c, 0, 5), n_acc = (size_t)n_q * (size_t)d;
    size_t w_bytes = n ? ((size_t)(n_q - 1) * stride + (size_t)n) * sizeof(float) : 0;
    float *w = check_fenced(w_bytes), *ref = malloc(n_acc * sizeof *ref);
    float *acc = check_buffer(n_acc * sizeof *acc, (size_t)check_int(c, 0, 15) * 4);
    for (size_t i = 0; i < w_bytes / sizeof *w; i++) w[i] = NAN; /* between the rows */
    for (int g = 0; g < n_q; g++)
        fill_weights(c, w + (size_t)g * stride, n, (spread)(kind < SPREADS ? kind : check_int(c, 0, SPREADS - 1)));
    memset(acc, 0, n_acc * sizeof *acc);
    memset(ref, 0, n_acc * sizeof *ref);
    int cut = check_int(c, 0, n_blocks); /* in two calls */
    c->k->value_sums(acc, w, stride, n_q, d, blocks, cut);
    c->k->value_sums(acc, w + (size_t)cut * IG_SKETCH_TOKENS, stride, n_q, d,
                     blocks + (size_t)cut * ig_value_sketch_block_bytes(d), n_blocks - cut);
    if (c->twin) {
        c->twin->value_sums(ref, w, stride, n_q, d, blocks, n_blocks);
        check_that(c, !memcmp(ref, acc, n_acc * sizeof *ref), "d=%d n_q=%d n=%d: other bits", d, n_q, n);
        memset(ref, 0, n_acc * sizeof *ref);
    }
    c->ref->value_sums(ref, w, stride, n_q, d, blocks, n_blocks);
    check_that(c, check_guards(acc), "d=%d n_q=%d n=%d: wrote outside", d, n_q, n);
    for (int g = 0; g < n_q; g++) {
        double sum[MOST_DIMS], limit, size;
        float *row = acc + (size_t)g * (size_t)d, alone[MOST_DIMS];
        sums_in_double(sum, &limit, &size, w + (size_t)g * stride, blocks, n_blocks, d);
        for (int i = 0; i < d; i++) {
            check_that(c, fabs(row[i] - sum[i]) <= limit + 1e-5 * size, "d=%d n_q=%d: [%d][%d] is %g, not %g", d, n_q,
                       g, i, row[i], sum[i]);
            /* The same integers: only the sum over the blocks rounds in its own way. */
            check_that(c, fabsf(row[i] - ref[(size_t)g * (size_t)d + (size_t)i]) <= 1e-6 * size,
                       "d=%d n_q=%d: [%d][%d] is %g, scalar %g", d, n_q, g, i, row[i],
                       ref[(size_t)g * (size_t)d + (size_t)i]);
        }
        memset(alone, 0, sizeof alone);
        c->k->value_sums(alone, w + (size_t)g * stride, 0, 1, d, blocks, n_blocks);
        check_that(c, !memcmp(alone, row, (size_t)d * sizeof *alone), "d=%d n_q=%d: row %d depends on the others", d,
                   n_q, g);
    }
    free(ref);
    check_buffer_free(acc);
    check_fenced_free(w, w_bytes), check_fenced_free(blocks, bytes);
}

/* ---- hadamard ------------------------------------------------------------------- */

static void check_hadamard_at(check *c, int d, check_shape shape) {
    int n = d & -d;
    float x[MOST_DIMS], ref[MOST_DIMS], *y = check_fenced((size_t)d * sizeof *y);
    float *guarded = check_buffer((size_t)d * sizeof *guarded, (size_t)check_int(c, 0, 15) * 4);
    check_fill(c, x, d, shape);
    size_t bytes = (size_t)d * sizeof *x;
    memcpy(y, x, bytes), memcpy(ref, x, bytes), memcpy(guarded, x, bytes);
    c->k->hadamard(y, d), c->ref->hadamard(ref, d), c->k->hadamard(guarded, d);
    check_that(c, check_guards(guarded), "d=%d: wrote outside", d);
    check_that(c, !memcmp(y, ref, bytes), "d=%d: other than scalar", d);
    check_that(c, !memcmp(y, guarded, bytes), "d=%d: depends on the alignment", d);
    double before = 0, after = 0;
    for (int i = 0; i < d; i++) {
        double want = 0, size = 0;
        for (int j = i / n * n; j < i / n * n + n; j++) {
            want += __builtin_parity((unsigned)(i & j & (n - 1))) ? -(double)x[j] : (double)x[j];
            size += fabs((double)x[j]);
        }
        want /= sqrt(n), size /= sqrt(n);
        check_that(c, fabs(y[i] - want) <= 1e-6 * size, "d=%d: [%d] is %g, not %g", d, i, y[i], want);
        before += (double)x[i] * x[i], after += (double)y[i] * y[i];
    }
    check_that(c, fabs(after - before) <= 1e-5 * before, "d=%d: length^2 %g, was %g", d, after, before);
    double largest = 0;
    for (int i = 0; i < d; i++)
        if (fabs((double)x[i]) > largest) largest = fabs((double)x[i]);
    c->k->hadamard(y, d);
    for (int i = 0; i < d; i++)
        check_that(c, fabsf(y[i] - x[i]) <= 1e-5 * largest, "d=%d: [%d] twice is %g, was %g", d, i, y[i], x[i]);
    check_fenced_free(y, bytes);
    check_buffer_free(guarded);
}

/* ---- time ----------------------------------------------------------------------- */

enum { HEADS = 64 }; /* whose sketches are used in turn, as the layers of a step do */

typedef struct bench {
    const ig_kernels *k;
    int n_q, d, n_blocks, n_heads, head;
    float *w, *acc, *x;
    uint8_t *blocks;
} bench;

static void run_sums(void *arg) {
    bench *b = arg;
    size_t bytes = ig_value_sketch_block_bytes(b->d) * (size_t)b->n_blocks;
    b->k->value_sums(b->acc, b->w, (size_t)b->n_blocks * IG_SKETCH_TOKENS, b->n_q, b->d,
                     b->blocks + (size_t)b->head * bytes, b->n_blocks);
    b->head = (b->head + 1) % b->n_heads;
}

static void run_put(void *arg) {
    bench *b = arg;
    for (int t = 0; t < IG_SKETCH_TOKENS; t++) b->k->value_put(b->blocks, t, b->x, b->d);
}

static void run_hadamard(void *arg) {
    bench *b = arg;
    for (int t = 0; t < IG_SKETCH_TOKENS; t++) b->k->hadamard(b->x, b->d);
}

static void bench_one(check *c, int n_q, int d, int n_blocks, int n_heads) {
    bench b = {.k = c->k, .n_q = n_q, .d = d, .n_blocks = n_blocks, .n_heads = n_heads};
    size_t bytes = ig_value_sketch_block_bytes(d) * (size_t)n_blocks, n = (size_t)n_blocks * IG_SKETCH_TOKENS;
    b.blocks = check_buffer((size_t)n_heads * bytes, 0), b.w = check_buffer((size_t)n_q * n * 4, 0);
    b.acc = check_buffer((size_t)n_q * (size_t)d * 4, 0), b.x = check_buffer((size_t)d * 4, 0);
    for (int h = 0; h < n_heads; h++) fill_blocks(c, b.blocks + (size_t)h * bytes, n_blocks, d);
    fill_weights(c, b.w, n_q * (int)n, SOFTMAX);
    check_fill(c, b.x, d, CHECK_NORMAL);
    char line[64];
    snprintf(line, sizeof line, "%s %dq d%d %d tokens", n_heads > 1 ? "mem" : "sums", n_q, d, (int)n);
    check_report(c, line, check_time(run_sums, &b), (double)bytes, (double)n * d * n_q);
    if (n_heads == 1) {
        snprintf(line, sizeof line, "put d%d 16 tokens", d);
        check_report(c, line, check_time(run_put, &b), 64.0 * d, 0);
        snprintf(line, sizeof line, "hadamard d%d 16 tokens", d);
        check_report(c, line, check_time(run_hadamard, &b), 64.0 * d, 0);
    }
    check_buffer_free(b.blocks), check_buffer_free(b.w), check_buffer_free(b.acc), check_buffer_free(b.x);
}

static void bench_values(check *c) {
    if (!check_begin(c, "value_sketch")) return;
    bench_one(c, 3, 64, 1024, 1);
    bench_one(c, 3, 64, 1024, 2 * HEADS);
    bench_one(c, 6, 128, 1024, 1);
    bench_one(c, 6, 128, 1024, HEADS);
    bench_one(c, 1, 256, 1024, 1);
}

void check_value_sketch(check *c) {
    if (c->is_bench) {
        bench_values(c);
        return;
    }
    if (check_begin(c, "value_sketch"))
        for (size_t i = 0; i < IG_COUNT(dims); i++) {
            for (int s = 0; s < CHECK_SHAPES; s++) check_put_at(c, dims[i], (check_shape)s);
            check_put_hostile(c, dims[i]);
            for (int n_q = 1; n_q <= 9; n_q++) check_sums_at(c, dims[i], n_q, check_int(c, 0, 9), SPREADS);
            for (int kind = 0; kind < SPREADS; kind++) check_sums_at(c, dims[i], 3, check_int(c, 0, 5), kind);
            check_sums_at(c, dims[i], 6, check_int(c, 31, MOST_BLOCKS), SPREADS);
            check_sums_at(c, dims[i], MOST_QUERIES, 2, SOFTMAX);
        }
    if (check_begin(c, "hadamard"))
        for (int d = 8; d <= MOST_DIMS; d += 8)
            for (int s = 0; s < CHECK_SHAPES; s++) check_hadamard_at(c, d, (check_shape)s);
}
