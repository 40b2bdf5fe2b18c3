/* SPDX-License-Identifier: Apache-2.0
 *
 * The GPU's operations but attention and products against the scalar CPU's, those that join their neighbours among
 * them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "matrices.h"

static void norms(void **state) {
    (void)state;
    static const int widths[] = {1, 8, 64, 577};
    for (size_t i = 0; i < 4; i++)
        for (int kind = 0; kind < 8; kind++) {
            int n = widths[i], rows = 5;
            bool rms = kind & 1;
            int n_w = 1 + (int)i % 3;
            both x = make_both((size_t)(rows * n), 4), w = make_both((size_t)(n_w * n), 2),
                 b = make_both((size_t)(n_w * n), 2), y = make_both((size_t)(rows * n), 1);
            if (kind & 4) x.host[n] = 1e30f, x.host[2 * n] = NAN, put(&x);
            for (int d = 0; d < DEVICES; d++) {
                ig_norm norm = {.n = n, .is_rms = rms, .eps = 1e-5f, .n_w = n_w};
                if (kind & 2) norm.w = w.on[d];
                if (kind & 2 && !rms) norm.b = b.on[d];
                devices[d]->ops->norm(devices[d], kind & 4 ? x.on[d] : y.on[d], x.on[d], &norm, rows);
            }
            expect_near(kind & 4 ? &x : &y, 1e-6, "norm");
            free_both(&x), free_both(&y), free_both(&w), free_both(&b);
        }
}

/* What a decode step asks for between two products: state, its norm and the product of that; an FFN's hidden layer and
 * its product; heads that are rotated, and their largest numbers. */
enum { STEP_ROWS = 3, WIDE = 4160, HIDDEN = 96, N_OUT = 7, STEP_HEADS = 3, HEAD = 24, HEADS_WIDTH = STEP_HEADS * HEAD };
typedef struct steps {
    both h, part, normed, product, gate, up, down, q, k, v, cs;
    float *peaks; /* [3], page-locked */
} steps;

/* With a wait behind each, so that none finds another one before it, or without. */
static void run_steps(steps *x, const ig_matrix *w, const ig_matrix *w_down, const both *norm, ig_activation kind,
                      bool together) {
    ig_device *d = devices[GPU];
    const ig_device_ops *ops = d->ops;
    ops->add(d, x->h.on[GPU], x->part.on[GPU], STEP_ROWS * WIDE);
    if (!together) finish(GPU);
    ops->norm(d, x->normed.on[GPU], x->h.on[GPU],
              &(ig_norm){.n = WIDE, .is_rms = true, .eps = 1e-5f, .w = norm->on[GPU]}, STEP_ROWS);
    if (!together) finish(GPU);
    ops->matmul(d, &x->product.on[GPU], &w, 1, x->normed.on[GPU], NULL, STEP_ROWS, true);
    if (!together) finish(GPU);
    ops->activate(d, kind, x->gate.on[GPU], x->up.on[GPU], STEP_ROWS * HIDDEN);
    if (!together) finish(GPU);
    ops->matmul(d, &x->down.on[GPU], &w_down, 1, x->gate.on[GPU], NULL, STEP_ROWS, true);
    const ig_rotation by = {x->cs.on[GPU], HEAD - 8, false};
    ops->rope(d, x->q.on[GPU], &by, STEP_ROWS, STEP_HEADS, HEAD);
    if (!together) finish(GPU);
    ops->rope(d, x->k.on[GPU], &by, STEP_ROWS, 1, HEAD);
    if (!together) finish(GPU);
    const ig_floats seen[] = {{x->q.on[GPU], x->q.n}, {x->k.on[GPU], x->k.n}, {x->v.on[GPU], x->v.n}};
    ops->peak(d, x->peaks, seen, 3);
    finish(GPU);
}

static void operations_that_join(void **state) {
    (void)state;
    ig_matrix w = make_matrix(7, N_OUT, WIDE, NULL), w_down = make_matrix(7, N_OUT, HIDDEN, NULL);
    both norm = make_both(WIDE, 2);
    for (int kind = 0; kind < IG_ACTIVATIONS; kind++) {
        uint64_t dice_before = dice.state, launches[2] = {0};
        float *before[9] = {NULL};
        for (int together = 0; together < 2; together++) {
            dice.state = dice_before;
            steps x = {
                make_both(STEP_ROWS * WIDE, 4),   make_both(STEP_ROWS * WIDE, 3),
                make_both(STEP_ROWS * WIDE, 1),   make_both(STEP_ROWS * N_OUT, 1),
                make_both(STEP_ROWS * HIDDEN, 2), make_both(STEP_ROWS * HIDDEN, 2),
                make_both(STEP_ROWS * N_OUT, 1),  make_both(STEP_ROWS * HEADS_WIDTH, 2),
                make_both(STEP_ROWS * HEAD, 2),   make_both(STEP_ROWS * HEAD, 2),
                make_both(STEP_ROWS * HEAD, 1),   ig_device_alloc(devices[GPU], IG_PLACE_HOST, 3 * sizeof(float))};
            if (cuda_on_cpu_count) launches[together] -= cuda_on_cpu_count("cudaLaunchKernel");
            run_steps(&x, &w, &w_down, &norm, (ig_activation)kind, together);
            if (cuda_on_cpu_count) launches[together] += cuda_on_cpu_count("cudaLaunchKernel");
            both *all[] = {&x.h, &x.part, &x.normed, &x.product, &x.gate, &x.up, &x.down, &x.q, &x.k, &x.v, &x.cs};
            float most = 0;
            for (int i = 0; i < 9; i++) {
                const float *now = get(all[i], GPU);
                if (!together) before[i] = memcpy(malloc(all[i]->n * sizeof *now), now, all[i]->n * sizeof *now);
                assert_memory_equal(before[i], now, all[i]->n * sizeof *now);
                if (together) free(before[i]);
            }
            for (size_t i = 0; i < x.q.n; i++) most = fmaxf(most, fabsf(get(&x.q, GPU)[i]));
            assert_true(x.peaks[0] == most);
            for (int i = 0; i < 11; i++) free_both(all[i]);
            ig_device_free(devices[GPU], IG_PLACE_HOST, x.peaks, 3 * sizeof(float));
        }
        /* Addition, norm and codes; activation and codes; two rotations and a look. */
        if (cuda_on_cpu_count) assert_int_equal(launches[0] - launches[1], 5);
    }
    free_matrix(&w), free_matrix(&w_down), free_both(&norm);
}

static void rotations(void **state) {
    (void)state;
    for (int adjacent = 0; adjacent < 2; adjacent++)
        for (int n_rot = 8; n_rot <= 24; n_rot += 16) {
            both x = make_both(6 * 5 * 24, 2), cs = make_both((size_t)(6 * n_rot), 1);
            for (int d = 0; d < DEVICES; d++)
                devices[d]->ops->rope(devices[d], x.on[d], &(ig_rotation){cs.on[d], n_rot, adjacent}, 6, 5, 24);
            expect_near(&x, 1e-6, "rope");
            free_both(&x), free_both(&cs);
        }
}

static void elements(void **state) {
    (void)state;
    static const size_t sizes[] = {1, 31, 129, 140001};
    static const struct {
        ig_activation kind;
        const char *name;
    } gated[] = {{IG_SILU_GATED, "silu"},
                 {IG_SIGMOID_GATED, "sigmoid"},
                 {IG_SOFTPLUS_GATED, "softplus"},
                 {IG_GELU_GATED, "gelu"},
                 {IG_SWIGLU_OAI, "swiglu_oai"}};
    for (size_t i = 0; i < 4; i++)
        for (int strange = 0; strange < 2; strange++) {
            both x = make_both(sizes[i], 20), y = make_both(sizes[i], 3);
            if (strange) x.host[sizes[i] / 2] = NAN, y.host[sizes[i] - 1] = -INFINITY, put(&x), put(&y);
            for (int d = 0; d < DEVICES; d++) devices[d]->ops->add(devices[d], y.on[d], x.on[d], sizes[i]);
            expect_near(&y, 0, "add");
            for (size_t k = 0; k < IG_COUNT(gated); k++, put(&x)) {
                for (int d = 0; d < DEVICES; d++)
                    devices[d]->ops->activate(devices[d], gated[k].kind, x.on[d], y.on[d], sizes[i]);
                expect_near(&x, 1e-6, gated[k].name);
            }
            for (int d = 0; d < DEVICES; d++) devices[d]->ops->activate(devices[d], IG_RELU, y.on[d], NULL, sizes[i]);
            expect_near(&y, 0, "relu");
            for (int d = 0; d < DEVICES; d++) devices[d]->ops->scale(devices[d], y.on[d], 0.7f, sizes[i]);
            expect_near(&y, 0, "scale");
            both p = make_both(4, 1);
            for (int d = 0; d < DEVICES; d++)
                devices[d]->ops->activate(devices[d], IG_XIELU, y.on[d], p.on[d], sizes[i]);
            expect_near(&y, 1e-6, "xielu");
            free_both(&p);
            for (int d = 0; d < DEVICES; d++) devices[d]->ops->activate(devices[d], IG_TANH, y.on[d], NULL, sizes[i]);
            expect_near(&y, 1e-6, "tanh");
            free_both(&x), free_both(&y);
        }
}

static void rows_that_join(void **state) {
    (void)state;
    static const int widths[] = {1, 31, 300, 2049};
    for (size_t i = 0; i < 4; i++) {
        int n = widths[i];
        both x = make_both(5 * (size_t)n, 3), y = make_both(9 * (size_t)n, 2);
        for (int d = 0; d < DEVICES; d++) {
            int32_t *rows = ig_device_alloc(devices[d], IG_PLACE_HOST, 5 * sizeof *rows);
            float *shares = ig_device_alloc(devices[d], IG_PLACE_HOST, 5 * sizeof *shares);
            for (int r = 0; r < 5; r++) rows[r] = (r * 4 + 1) % 9, shares[r] = 0.25f * (float)(r + 1);
            devices[d]->ops->add_rows(devices[d], y.on[d], x.on[d], rows, shares, 5, n);
            finish(d);
            ig_device_free(devices[d], IG_PLACE_HOST, rows, 5 * sizeof *rows);
            ig_device_free(devices[d], IG_PLACE_HOST, shares, 5 * sizeof *shares);
        }
        for (int k = 0; k < n; k++) {
            float want = y.host[3 * n + k];
            for (int r = 0; r < 5; r++) want += (r * 4 + 1) % 9 == 3 ? 0.25f * (float)(r + 1) * x.host[r * n + k] : 0;
            assert_true(fabsf(y.on[CPU][3 * n + k] - want) <= 1e-5f * (1 + fabsf(want)));
        }
        expect_near(&y, 1e-6, "rows that join");
        free_both(&x), free_both(&y);
    }
}

static void rows_that_are_gated(void **state) {
    (void)state;
    static const int widths[] = {1, 32, 300};
    for (size_t i = 0; i < 6; i++) {
        bool is_softplus = i >= 3;
        int n = widths[i % 3];
        both x = make_both(700 * (size_t)n, 3), gates = make_both(700, 4);
        for (int d = 0; d < DEVICES; d++) {
            devices[d]->ops->gate_rows(devices[d], is_softplus ? IG_SOFTPLUS_GATED : IG_SIGMOID_GATED, x.on[d],
                                       gates.on[d], 700, n);
            finish(d);
        }
        for (int k = 0; k < n; k++) {
            double gate = gates.host[99], share = is_softplus ? log1p(exp(gate)) : 1 / (1 + exp(-gate)),
                   want = (double)x.host[99 * n + k] * share;
            assert_true(fabs((double)x.on[CPU][99 * n + k] - want) <= 1e-6 * (1 + fabs(want)));
        }
        expect_near(&x, 1e-6, "rows that are gated");
        free_both(&x), free_both(&gates);
    }
}

static void peaks(void **state) {
    (void)state;
    static const float odd[] = {0, -70, INFINITY, NAN};
    ig_device *g = devices[GPU];
    float *a = ig_device_alloc(devices[CPU], IG_PLACE_HOST, 32 * sizeof *a),
          *b = ig_device_alloc(g, IG_PLACE_HOST, 32 * sizeof *b);
    b[20] = 1;
    g->ops->peak(g, &b[20], &(ig_floats){NULL, 0}, 1);
    finish(GPU);
    assert_true(b[20] == 0);
    for (int i = 0; i < 4; i++) {
        both x = make_both(i < 3 ? 5000 : 70000, 7); /* few, and many */
        x.host[x.n - 1 - (size_t)i] = odd[i];
        put(&x);
        for (int d = 0; d < DEVICES; d++) {
            ig_floats all[] = {
                {x.on[d], x.n}, {x.on[d], 3}, {x.on[d] + 7, 1000}, {x.on[d] + 1, x.n - 1}, {x.on[d], 40}};
            float *out = (d == GPU ? b : a) + 5 * i;
            devices[d]->ops->peak(devices[d], out, all, 5);
            finish(d);
        }
        free_both(&x);
    }
    assert_memory_equal(a, b, 20 * sizeof *a);
    ig_device_free(devices[CPU], IG_PLACE_HOST, a, 32 * sizeof *a);
    ig_device_free(g, IG_PLACE_HOST, b, 32 * sizeof *b);
}

static void memory(void **state) {
    (void)state;
    ig_device *g = devices[GPU];
    both x = make_both(100, 1);
    float *more = ig_device_alloc(g, IG_PLACE_DEVICE, 300 * sizeof *more), host[300], kept[100];
    memcpy(kept, x.host, sizeof kept);
    g->ops->copy(g, host, more, sizeof host);
    finish(GPU);
    for (int i = 0; i < 300; i++) assert_true(host[i] == 0); /* new memory is zero */
    g->ops->copy(g, more + 100, x.on[GPU], 100 * sizeof *more);
    g->ops->copy(g, more + 150, more + 100, 50 * sizeof *more);
    g->ops->clear(g, more + 160, 10 * sizeof *more);
    g->ops->copy(g, host, more, sizeof host);
    finish(GPU);
    assert_memory_equal(host + 100, kept, 50 * sizeof *kept);
    assert_memory_equal(host + 150, kept, 10 * sizeof *kept);
    assert_memory_equal(host + 170, kept + 20, 30 * sizeof *kept);
    for (int i = 160; i < 170; i++) assert_true(host[i] == 0);
    assert_null(ig_device_alloc(g, IG_PLACE_DEVICE, SIZE_MAX / 4));
    ig_device_free(g, IG_PLACE_DEVICE, more, sizeof host);
    ig_error err = {0};
    assert_int_equal(ig_device_open_cuda(&g, ig_cuda_count(), 1, &err), IG_E_NOT_FOUND);
    free_both(&x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory),
        cmocka_unit_test(norms),
        cmocka_unit_test(operations_that_join),
        cmocka_unit_test(rotations),
        cmocka_unit_test(elements),
        cmocka_unit_test(rows_that_join),
        cmocka_unit_test(rows_that_are_gated),
        cmocka_unit_test(peaks),
    };
    int missing = missing_gpu();
    return missing ? missing : cmocka_run_group_tests(tests, open_and_reserve, close_devices);
}
