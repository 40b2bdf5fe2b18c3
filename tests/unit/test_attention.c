/* SPDX-License-Identifier: Apache-2.0
 *
 * The CPU device's attention: against a reference in double precision, and in several calls against one, bitwise.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/half.h"
#include "base/random.h"
#include "cpu_level.h"
#include "device/device.h"

enum {
    HEADS = 6,
    KV_HEADS = 2,
    DIM = 32,
    SHIFT = 3,
    ROW = DIM * 2,
    BLOCK = ROW << (SHIFT + 1),
    MAX_ROWS = 2400,
    MAX_BLOCKS = MAX_ROWS >> SHIFT
};

static uint8_t frames[KV_HEADS][MAX_BLOCKS][BLOCK];
static const uint8_t *blocks[KV_HEADS][MAX_BLOCKS];
static const ig_head_shape shape = {HEADS, KV_HEADS, DIM, 0.17f};
static ig_device *device;

static uint16_t *row_of(int head, int slot, bool value) {
    return (uint16_t *)(void *)(frames[head][slot >> SHIFT] + (value ? BLOCK / 2 : 0) +
                                (slot & ((1 << SHIFT) - 1)) * ROW);
}

static int open_device(void **state) {
    (void)state;
    ig_random r = {3};
    ig_error err = {0};
    if (ig_device_open_cpu(&device, test_cpu_level(), 3, &err)) fail_msg("%s", err.text);
    ig_device_need need = {.max_rows = 160, .max_in = 64, .max_entries = MAX_ROWS, .heads = shape};
    if (device->ops->reserve(device, &need, &err)) fail_msg("%s", err.text);
    for (int h = 0; h < KV_HEADS; h++)
        for (int s = 0; s < MAX_ROWS; s++) {
            blocks[h][s >> SHIFT] = frames[h][s >> SHIFT];
            for (int c = 0; c < DIM; c++) {
                row_of(h, s, false)[c] = ig_f32_f16((float)(4 * ig_random_unit(&r) - 2));
                row_of(h, s, true)[c] = ig_f32_f16((float)(2 * ig_random_unit(&r) - 1));
            }
        }
    return 0;
}

static int close_device(void **state) {
    (void)state;
    ig_device_close(device);
    return 0;
}

static void set_views(ig_kv_view *views, const int32_t *index, int n) {
    for (int h = 0; h < KV_HEADS; h++)
        views[h] = (ig_kv_view){
            .blocks = blocks[h], .shift = SHIFT, .row_bytes = ROW, .v_offset = BLOCK / 2, .index = index, .n = n};
}

/* The definition, for query t of n_tokens over the rows of a view; sink_scores may be NULL. */
static void reference(double *out, const float *q, int t, int n_tokens, int head, const ig_kv_view *v, ig_window window,
                      const float *sink_scores) {
    static double p[MAX_ROWS];
    int last = v->n - n_tokens + t, first = 0, kv = head / (HEADS / KV_HEADS);
    double max = -INFINITY, sum = 0;
    if (window.in_chunks)
        first = last - last % window.n;
    else if (window.n && last + 1 > window.n)
        first = last + 1 - window.n;
    for (int i = first; i <= last; i++) {
        int slot = v->index ? v->index[i] : v->first + i;
        p[i] = 0;
        for (int c = 0; c < DIM; c++) p[i] += (double)q[c] * (double)ig_f16_f32(row_of(kv, slot, false)[c]);
        p[i] *= (double)shape.scale;
        if (p[i] > max) max = p[i];
    }
    for (int c = 0; c < DIM; c++) out[c] = 0;
    for (int i = first; i <= last; i++) {
        int slot = v->index ? v->index[i] : v->first + i;
        double w = exp(p[i] - max);
        sum += w;
        for (int c = 0; c < DIM; c++) out[c] += w * (double)ig_f16_f32(row_of(kv, slot, true)[c]);
    }
    if (sink_scores) sum += exp((double)sink_scores[head] - max);
    for (int c = 0; c < DIM; c++) out[c] /= sum;
}

static float *queries(int n_tokens, uint64_t seed) {
    ig_random r = {seed};
    float *q = malloc((size_t)n_tokens * HEADS * DIM * sizeof *q);
    for (int i = 0; i < n_tokens * HEADS * DIM; i++) q[i] = (float)(4 * ig_random_unit(&r) - 2);
    return q;
}

/* A prompt's kernels may err as 16-bit floats do, by 2^-12. */
static void check(const ig_attention *a) {
    double most = a->prompt ? 2e-4 : 2e-5;
    for (int t = 0; t < a->n_tokens; t++)
        for (int h = 0; h < HEADS; h++) {
            double want[DIM];
            size_t at = ((size_t)t * HEADS + (size_t)h) * DIM;
            reference(want, a->q + at, t, a->n_tokens, h, &a->views[h / (HEADS / KV_HEADS)], a->window, a->sink_scores);
            for (int c = 0; c < DIM; c++) assert_true(fabs(want[c] - (double)a->out[at + (size_t)c]) < most);
        }
}

enum { STEP }; /* of decoding, in the place of a prompt's number of tokens */
static const ig_window no_window = {0, false};

/* One call and several must agree bitwise, and with the reference. */
static void run(int prompt, int n, ig_window window, const int32_t *index, int unit) {
    ig_kv_view views[KV_HEADS];
    int n_tokens = prompt == STEP ? 1 : prompt;
    size_t bytes = (size_t)n_tokens * HEADS * DIM * sizeof(float);
    float *q = queries(n_tokens, (uint64_t)n), *one = malloc(bytes), *several = malloc(bytes);
    float *carry = malloc(ig_attend_carry_floats(&shape, prompt, n) * sizeof(float));
    set_views(views, index, n);
    ig_attention a = {
        .q = q, .out = one, .n_tokens = n_tokens, .prompt = prompt != STEP, .window = window, .views = views};
    device->ops->attend(device, &shape, &a, 1);
    check(&a);
    if (!index) {
        ig_kv_view part[KV_HEADS];
        ig_attention b = a;
        b.out = several, b.views = part, b.rows = IG_ROWS_IN_ORDER, b.carry = carry;
        for (b.begin = 0; b.begin < n; b.begin = b.end) {
            b.end = b.begin + unit < n ? b.begin + unit : n;
            for (int h = 0; h < KV_HEADS; h++) { /* a table of these blocks only */
                part[h] = views[h];
                part[h].is_staged = true;
                part[h].block_base = b.begin >> SHIFT;
                part[h].blocks = blocks[h] + part[h].block_base;
            }
            device->ops->attend(device, &shape, &b, 1);
        }
        assert_memory_equal(one, several, bytes);
    }
    free(q);
    free(one);
    free(several);
    free(carry);
}

static void decode(void **state) {
    (void)state;
    static const int lengths[] = {1, 7, 128, 511, 512, 513, 1024, 2100};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        run(STEP, lengths[i], no_window, NULL, IG_ATTEND_UNIT);
        run(STEP, lengths[i], no_window, NULL, 2 * IG_ATTEND_UNIT);
    }
}

static void decode_of_chosen_rows(void **state) {
    (void)state;
    static int32_t index[MAX_ROWS];
    for (int stride = 1; stride < 9; stride += 2) {
        int n = 0;
        for (int s = stride / 2; s < MAX_ROWS; s += stride) index[n++] = s;
        run(STEP, n, no_window, index, 0);
    }
}

/* A step over the chosen rows, and one over half of them, by views of as many heads: in one call, and with so many of
 * 16 blocks coming after a first call. The second then gives the bits of the one, and the first reads nothing that is
 * not there. */
static void attend_before_all_is_there(const int32_t *index, int n, int n_views, int missing_of_16) {
    static const uint8_t *partly[HEADS][MAX_BLOCKS];
    enum { QUERY = HEADS * DIM };
    const ig_head_shape seen = {HEADS, n_views, DIM, shape.scale};
    ig_random r = {11};
    float *q = queries(2, 7), *one = malloc(2 * QUERY * sizeof *one), *two = malloc(2 * QUERY * sizeof *two);
    float *carry = malloc(ig_attend_carry_floats(&shape, 0, n) * sizeof *carry);
    ig_kv_view all[HEADS], some[HEADS], half[HEADS];
    for (int h = 0; h < n_views; h += KV_HEADS) set_views(all + h, index, n), set_views(half + h, index, n / 2);
    memcpy(some, all, (size_t)n_views * sizeof *all);
    ig_attention jobs[] = {{.q = q, .out = one, .n_tokens = 1, .views = all},
                           {.q = q + QUERY, .out = one + QUERY, .n_tokens = 1, .views = half}};
    device->ops->attend(device, &seen, jobs, 2);
    for (int h = 0; h < n_views; h++) {
        some[h].blocks = partly[h];
        for (int b = 0; b < MAX_BLOCKS; b++)
            partly[h][b] = (int)(ig_random_unit(&r) * 16) < missing_of_16 ? NULL : all[h].blocks[b];
    }
    jobs[0].views = some, jobs[0].rows = IG_ROWS_THERE, jobs[0].carry = carry;
    jobs[0].out = NULL; /* nothing is written yet */
    device->ops->attend(device, &seen, jobs, 1);
    for (int h = 0; h < n_views; h++) memcpy(partly[h], all[h].blocks, sizeof partly[h]);
    jobs[0].rows = IG_ROWS_LEFT, jobs[0].out = two, jobs[1].out = two + QUERY;
    device->ops->attend(device, &seen, jobs, 2);
    assert_memory_equal(one, two, 2 * QUERY * sizeof *one);
    free(q), free(one), free(two), free(carry);
}

static void decode_before_all_is_there(void **state) {
    (void)state;
    static int32_t index[MAX_ROWS];
    for (int stride = 1; stride < 9; stride += 3) {
        int n = 0;
        for (int s = 0; s < MAX_ROWS; s += stride) index[n++] = s;
        for (int missing = 0; missing <= 16; missing += 4) {
            attend_before_all_is_there(index, n, KV_HEADS, missing);
            attend_before_all_is_there(index, n, HEADS, missing);
        }
        attend_before_all_is_there(index, n, KV_HEADS, 1);
    }
}

static void prefill(void **state) {
    (void)state;
    run(2, 2, no_window, NULL, IG_ATTEND_UNIT);
    run(50, 50, no_window, NULL, IG_ATTEND_UNIT);
    run(61, 700, no_window, NULL, IG_ATTEND_UNIT);
    run(33, 2100, no_window, NULL, IG_ATTEND_UNIT);
    run(130, 2100, no_window, NULL, 3 * IG_ATTEND_UNIT);
    run(50, 2400, no_window, NULL, 4 * IG_ATTEND_UNIT);
}

static void windows_of_a_prompt(bool in_chunks) {
    run(40, 40, (ig_window){16, in_chunks}, NULL, IG_ATTEND_UNIT);
    run(70, 1500, (ig_window){100, in_chunks}, NULL, IG_ATTEND_UNIT);
    run(70, 1500, (ig_window){900, in_chunks}, NULL, IG_ATTEND_UNIT);
    run(70, 1500, (ig_window){5000, in_chunks}, NULL, IG_ATTEND_UNIT);
    run(70, 2400, (ig_window){2200, in_chunks}, NULL, IG_ATTEND_UNIT);
}

static void prefill_with_window(void **state) {
    (void)state;
    windows_of_a_prompt(false);
}

static void prefill_in_chunks(void **state) {
    (void)state;
    windows_of_a_prompt(true);
}

/* A prompt's queries one by one, and a few at a time: each gets the same bits. */
static void pieces_of_a_prompt(void **state) {
    enum { N = 150, BEFORE = 60 };
    static const ig_window windows[] = {{0, false}, {16, false}, {100, false}, {16, true}, {100, true}};
    size_t row = HEADS * DIM;
    float *q = queries(N, 9), *whole = malloc(N * row * sizeof *whole), *cut = malloc(N * row * sizeof *cut);
    (void)state;
    for (size_t w = 0; w < IG_COUNT(windows); w++)
        for (int piece = 1; piece < 80; piece += piece < 9 ? 1 : 23) {
            ig_kv_view views[KV_HEADS];
            set_views(views, NULL, BEFORE + N);
            ig_attention a = {
                .q = q, .out = whole, .n_tokens = N, .prompt = true, .window = windows[w], .views = views};
            device->ops->attend(device, &shape, &a, 1);
            for (int t = 0; t < N; t += a.n_tokens) {
                a.n_tokens = N - t < piece ? N - t : piece;
                a.q = q + (size_t)t * row;
                a.out = cut + (size_t)t * row;
                set_views(views, NULL, BEFORE + t + a.n_tokens);
                device->ops->attend(device, &shape, &a, 1);
            }
            assert_memory_equal(whole, cut, N * row * sizeof *whole);
        }
    free(q);
    free(whole);
    free(cut);
}

/* Queries scaled on the way are like queries scaled before, to the bit, and so are the weights of rows. */
static void run_scaled(int prompt, int n) {
    static float scale[HEADS * DIM], weights[2][KV_HEADS * MAX_ROWS];
    ig_kv_view views[KV_HEADS];
    int n_tokens = prompt == STEP ? 1 : prompt;
    size_t n_q = (size_t)n_tokens * HEADS * DIM, bytes = n_q * sizeof(float);
    float *q = queries(n_tokens, 5), *scaled = malloc(bytes), *out[2] = {malloc(bytes), malloc(bytes)};
    float *lse = malloc((size_t)n_tokens * HEADS * sizeof *lse);
    for (int i = 0; i < HEADS * DIM; i++) scale[i] = (float)(1 + i % 7) / 4;
    for (size_t i = 0; i < n_q; i++) scaled[i] = q[i] * scale[i % (HEADS * DIM)];
    set_views(views, NULL, n);
    memset(weights, 0, sizeof weights);
    for (int k = 0; k < 2; k++) {
        ig_attention a = {.q = k ? q : scaled,
                          .q_scale = k ? scale : NULL,
                          .out = out[k],
                          .lse = lse,
                          .n_tokens = n_tokens,
                          .prompt = prompt != STEP,
                          .views = views};
        device->ops->attend(device, &shape, &a, 1);
        device->ops->weigh(device, &shape, &a, 0, n, weights[k], MAX_ROWS);
    }
    assert_memory_equal(out[0], out[1], bytes);
    assert_memory_equal(weights[0], weights[1], sizeof weights[0]);
    free(q);
    free(scaled);
    free(out[0]);
    free(out[1]);
    free(lse);
}

static void scaled_queries(void **state) {
    (void)state;
    run_scaled(STEP, 1300);
    run_scaled(61, 700);
}

/* What sinks get is missing in the results and in the weights, and not in the sums. */
static void run_sinks(int prompt, int n, int window) {
    static const float sinks[HEADS] = {-60, -1, 0, 2.5f, 6, 60};
    static float weights[KV_HEADS * MAX_ROWS];
    ig_kv_view views[KV_HEADS];
    int n_tokens = prompt == STEP ? 1 : prompt, group = HEADS / KV_HEADS;
    float *q = queries(n_tokens, 9), *out = malloc((size_t)n_tokens * HEADS * DIM * sizeof *out);
    float *lse = malloc((size_t)n_tokens * HEADS * sizeof *lse);
    ig_attention a = {.q = q,
                      .out = out,
                      .lse = lse,
                      .n_tokens = n_tokens,
                      .prompt = prompt != STEP,
                      .window = {window, false},
                      .sink_scores = sinks,
                      .views = views};
    set_views(views, NULL, n);
    memset(weights, 0, sizeof weights);
    device->ops->attend(device, &shape, &a, 1);
    check(&a);
    device->ops->weigh(device, &shape, &a, 0, n, weights, MAX_ROWS);
    for (int kv = 0; kv < KV_HEADS; kv++) {
        double sum = 0;
        for (int i = 0; i < n; i++) sum += (double)weights[kv * MAX_ROWS + i];
        for (int t = 0; t < n_tokens; t++)
            for (int h = kv * group; h < (kv + 1) * group; h++)
                sum += exp((double)sinks[h] - (double)lse[t * HEADS + h]);
        assert_true(fabs(sum - n_tokens * group) < 1e-3 * n_tokens);
    }
    free(q), free(out), free(lse);
}

static void sinks(void **state) {
    (void)state;
    run_sinks(STEP, 1300, 0);
    run_sinks(STEP, 1, 0);
    run_sinks(61, 700, 0);
    run_sinks(61, 700, 40);
}

/* Of a decode step whose heads read lists of different lengths, each head's weights are of its own list, and add up to
 * the queries of the group. */
static void weights_of_uneven_lists(void **state) {
    static const int lengths[KV_HEADS] = {40, 900};
    static float weights[KV_HEADS * MAX_ROWS];
    ig_kv_view views[KV_HEADS];
    float *q = queries(1, 6), out[HEADS * DIM], lse[HEADS];
    ig_attention a = {.q = q, .out = out, .lse = lse, .n_tokens = 1, .views = views};
    (void)state;
    set_views(views, NULL, 900);
    for (int h = 0; h < KV_HEADS; h++) views[h].n = lengths[h];
    memset(weights, 0, sizeof weights);
    device->ops->attend(device, &shape, &a, 1);
    device->ops->weigh(device, &shape, &a, 0, 900, weights, MAX_ROWS);
    for (int h = 0; h < KV_HEADS; h++) {
        double sum = 0;
        for (int i = 0; i < MAX_ROWS; i++) {
            assert_true(i < lengths[h] ? weights[h * MAX_ROWS + i] > 0 : weights[h * MAX_ROWS + i] == 0);
            sum += (double)weights[h * MAX_ROWS + i];
        }
        assert_true(fabs(sum - HEADS / KV_HEADS) < 1e-4);
    }
    free(q);
}

/* So many sequences that threads share the merging of their parts: each has the bits that it has alone. */
static void many_steps_at_once(void **state) {
    enum { N = 48, QUERY = HEADS * DIM };
    static const int lengths[] = {2100, 40, 512, 1300};
    static ig_kv_view views[N][KV_HEADS];
    ig_device_need need = {.max_rows = N, .max_in = 64, .max_entries = N * MAX_ROWS, .heads = shape};
    float *q = queries(N, 13), *out = malloc(2 * N * QUERY * sizeof *out), *alone = out + N * QUERY;
    float *lse = malloc(2 * N * HEADS * sizeof *lse), share[HEADS] = {0, 0.5f, 0.25f, 0, 1, 0.125f};
    ig_attention jobs[N];
    ig_error err = {0};
    (void)state;
    if (device->ops->reserve(device, &need, &err)) fail_msg("%s", err.text);
    for (int i = 0; i < N; i++) {
        set_views(views[i], NULL, lengths[i % 4]);
        jobs[i] = (ig_attention){.q = q + i * QUERY,
                                 .out = out + i * QUERY,
                                 .lse = lse + i * HEADS,
                                 .rest = i % 3 ? q : NULL,
                                 .rest_share = share,
                                 .n_tokens = 1,
                                 .views = views[i]};
    }
    device->ops->attend(device, &shape, jobs, N);
    for (int i = 0; i < N; i++) {
        jobs[i].out = alone + i * QUERY;
        jobs[i].lse = lse + (N + i) * HEADS;
        device->ops->attend(device, &shape, &jobs[i], 1);
    }
    assert_memory_equal(out, alone, N * QUERY * sizeof *out);
    assert_memory_equal(lse, lse + N * HEADS, N * HEADS * sizeof *lse);
    free(q), free(out), free(lse);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decode),
        cmocka_unit_test(decode_of_chosen_rows),
        cmocka_unit_test(decode_before_all_is_there),
        cmocka_unit_test(prefill),
        cmocka_unit_test(prefill_with_window),
        cmocka_unit_test(prefill_in_chunks),
        cmocka_unit_test(pieces_of_a_prompt),
        cmocka_unit_test(scaled_queries),
        cmocka_unit_test(sinks),
        cmocka_unit_test(weights_of_uneven_lists),
        cmocka_unit_test(many_steps_at_once),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
