/* SPDX-License-Identifier: Apache-2.0
 *
 * The GPU's layers with a recurrence against the scalar CPU's; and that a token's bits depend neither on how its text
 * is cut nor on what shares the call.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "two_devices.h"

enum { ROWS = 96, STATES = 12, NONE = -1 };

#define DELTA(...) \
    { IG_GATED_DELTA_NET, __VA_ARGS__ }
#define KIMI(heads, dim, taps) \
    { IG_KIMI_DELTA, heads, heads, dim, dim, false, taps, false }
#define CONVOLUTION(n, taps) \
    { IG_SHORT_CONVOLUTION, 0, 1, 0, n, false, taps, false }
#define MAMBA(...) \
    { IG_MAMBA_2, __VA_ARGS__ }
static const ig_recurrence_shape shapes[] = {DELTA(2, 4, 16, 32, false, 4, false),
                                             DELTA(2, 6, 48, 16, false, 4, true),
                                             DELTA(1, 3, 128, 64, true, 2, false),
                                             DELTA(3, 3, 64, 80, false, 8, true),
                                             DELTA(1, 2, 256, 112, false, 5, false),
                                             DELTA(2, 4, 128, 128, false, 4, true),
                                             DELTA(1, 1, 96, 256, false, 3, false),
                                             DELTA(1, 1, 16, 16, false, 1, false),
                                             DELTA(2, 6, 32, 48, true, 4, false),
                                             KIMI(3, 128, 4),
                                             KIMI(2, 48, 3),
                                             MAMBA(1, 3, 16, 48, false, 4, false),
                                             MAMBA(2, 4, 128, 64, false, 4, false),
                                             MAMBA(3, 3, 256, 16, false, 2, false),
                                             CONVOLUTION(72, 3),
                                             CONVOLUTION(1024, 4)};

/* A layer of a shape with rows and states of its sequences. */
typedef struct layer {
    ig_recurrence_shape s;
    ig_recurrence_weights w;
    float *weights; /* the host's, which the GPU has a copy of */
    both x, beta, alpha, mixed, out;
    both states; /* [STATES] */
    size_t channels, floats;
} layer;

static layer open_layer(const ig_recurrence_shape *s) {
    size_t channels = ig_recurrence_channels(s), heads = (size_t)s->n_value_heads, taps = (size_t)s->n_taps * channels;
    layer l = {.s = *s, .channels = channels, .floats = ig_recurrence_floats(s)};
    bool is_mamba = s->kind == IG_MAMBA_2;
    size_t decays = heads * (size_t)ig_recurrence_decays(s), n = taps + channels + 2 * heads + decays;
    l.weights = malloc(n * sizeof *l.weights);
    for (size_t i = 0; i < n; i++) l.weights[i] = (float)(2 * ig_random_unit(&dice) - 1);
    float *bias = l.weights + taps, *decay = bias + channels, *decay_bias = decay + heads;
    for (size_t i = 0; i < heads; i++) decay[i] = (float)-exp(3 * ig_random_unit(&dice) - 2);
    for (size_t i = 0; i < decays; i++) decay_bias[i] = (float)(4 * ig_random_unit(&dice) - 3);
    l.w = (ig_recurrence_weights){l.weights, is_mamba ? bias : NULL, decay, decay_bias, decay_bias + decays};
    ig_error err = {0};
    ig_device *d = devices[GPU];
    if (d->ops->bind(d, l.weights, n * sizeof *l.weights, &err)) fail_msg("%s", err.text);
    l.x = make_both(ROWS * channels, 2);
    l.beta = make_both(2 * ROWS * heads, 3); /* pairs are all in it */
    l.alpha = make_both(ROWS * decays, 3);
    l.mixed = make_both(ROWS * channels, 1);
    l.out = make_both(ROWS * heads * (size_t)s->value_dim, 1);
    l.states = make_both(STATES * l.floats, 1);
    return l;
}

static void close_layer(layer *l) {
    both *all[] = {&l->x, &l->beta, &l->alpha, &l->mixed, &l->out, &l->states};
    devices[GPU]->ops->unbind(devices[GPU], l->weights);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free_both(all[i]);
    free(l->weights);
}

/* A job with numbers of states instead of places. */
typedef struct plan {
    int row, n, from, n_kept;
    struct {
        int after, state;
    } kept[IG_RECURRENCE_KEPT];
} plan;

static void run(const layer *l, int d, const plan *plans, int n) {
    ig_recurrence jobs[STATES] = {0};
    float *states = l->states.on[d];
    for (int i = 0; i < n; i++) {
        const plan *p = &plans[i];
        jobs[i] = (ig_recurrence){.row = p->row, .n = p->n, .n_kept = p->n_kept};
        if (p->from != NONE) jobs[i].from = states + (size_t)p->from * l->floats;
        for (int k = 0; k < p->n_kept; k++) {
            jobs[i].kept[k].after = p->kept[k].after;
            jobs[i].kept[k].state = states + (size_t)p->kept[k].state * l->floats;
        }
    }
    size_t group = l->s.n_key_heads ? (size_t)(l->s.n_value_heads / l->s.n_key_heads) : 0;
    const float *beta = l->beta.on[d], *alpha = l->s.has_gate_pairs ? beta + group : l->alpha.on[d];
    const ig_device_ops *ops = devices[d]->ops;
    ops->convolve(devices[d], l->mixed.on[d], l->x.on[d], &l->s, &l->w, jobs, n);
    if (l->s.kind != IG_SHORT_CONVOLUTION)
        ops->recur(devices[d], l->out.on[d], l->mixed.on[d], beta, alpha, &l->s, &l->w, jobs, n);
    memset(jobs, 0xff, sizeof jobs); /* they were taken */
}

/* A decode step, a long prompt, nobody, a prompt that goes on, a short one that begins; some rows are nobody's. */
static const plan mixed[] = {{4, 1, 0, 1, {{1, 1}}},
                             {10, 70, NONE, 3, {{32, 2}, {33, 3}, {70, 4}}},
                             {7, 0, NONE, 0, {{0, 0}}},
                             {8, 2, 5, 2, {{1, 6}, {2, 7}}},
                             {0, 3, NONE, 2, {{2, 8}, {3, 9}}},
                             {81, 9, 10, 1, {{9, 11}}}};
enum { MIXED = sizeof mixed / sizeof *mixed, LONG_ONE = 1 };

static void like_the_host(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        layer l = open_layer(&shapes[i]);
        for (int d = 0; d < DEVICES; d++) run(&l, d, mixed, MIXED);
        expect_near(&l.mixed, 1e-5, "what is convolved");
        expect_near(&l.out, 1e-4, "what is read");
        expect_near(&l.states, 1e-4, "states");
        close_layer(&l);
    }
}

/* What is not finite stays in its head, and there. */
static void strange_numbers(void **state) {
    (void)state;
    layer l = open_layer(&shapes[0]);
    int heads = l.s.n_value_heads;
    l.alpha.host[20 * heads + 1] = NAN, put(&l.alpha);
    l.beta.host[41 * heads + 2] = NAN, put(&l.beta);
    for (int d = 0; d < DEVICES; d++) run(&l, d, mixed, MIXED);
    expect_near(&l.out, 1e-4, "what is read");
    expect_near(&l.states, 1e-4, "states");
    l.x.host[11 * l.channels] = INFINITY, put(&l.x);
    for (int d = 0; d < DEVICES; d++) run(&l, d, mixed, MIXED);
    expect_near(&l.out, 1e-4, "what is read");
    close_layer(&l);
}

/* The GPU's numbers, to be freed. */
static float *copy_of(const both *x) {
    const float *now = get(x, GPU);
    return memcpy(malloc(x->n * sizeof *now), now, x->n * sizeof *now);
}

/* The long prompt by itself, cut at kept states and elsewhere, token by token. */
static void any_cut(void **state) {
    (void)state;
    static const plan alone[] = {{10, 70, NONE, 1, {{70, 4}}}};
    static const plan cut[] = {
        {10, 31, NONE, 1, {{31, 1}}}, {41, 2, 1, 2, {{1, 2}, {2, 3}}}, {43, 37, 3, 1, {{37, 4}}}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        layer l = open_layer(&shapes[i]);
        size_t width = (size_t)l.s.n_value_heads * (size_t)l.s.value_dim, at = 10 * width, n = 70 * width;
        run(&l, GPU, mixed, MIXED);
        both *given = l.s.kind == IG_SHORT_CONVOLUTION ? &l.mixed : &l.out;
        float *out = copy_of(given), *states = copy_of(&l.states);
        for (int way = 0; way < 3; way++) {
            memset(given->host, 0, given->n * sizeof(float)), put(given);
            memset(l.states.host, 0, l.states.n * sizeof(float)), put(&l.states);
            if (way == 0) run(&l, GPU, alone, 1);
            for (int k = 0; way == 1 && k < 3; k++) run(&l, GPU, &cut[k], 1);
            for (int k = 0; way == 2 && k < 70; k++) /* two states take turns, the second is the last */
                run(&l, GPU, &(plan){10 + k, 1, k == 0 ? NONE : k % 2 ? 1 : 4, 1, {{1, k % 2 ? 4 : 1}}}, 1);
            assert_memory_equal(get(given, GPU) + at, out + at, n * sizeof *out);
            get(&l.states, GPU);
            assert_memory_equal(l.states.host + 4 * l.floats, states + 4 * l.floats, l.floats * sizeof *states);
            if (way == 1)
                assert_memory_equal(l.states.host + 2 * l.floats, states + 2 * l.floats, l.floats * sizeof *states);
        }
        free(out), free(states);
        close_layer(&l);
    }
}

static int open_and_reserve(void **state) {
    open_devices(state);
    reserve_both(&(ig_device_need){.max_rows = ROWS, .max_in = 64, .max_entries = 1, .heads = {1, 1, 8, 0}});
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(like_the_host), cmocka_unit_test(strange_numbers),
                                       cmocka_unit_test(any_cut)};
    int missing = missing_gpu();
    return missing ? missing : cmocka_run_group_tests(tests, open_and_reserve, close_devices);
}
