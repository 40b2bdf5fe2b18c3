/* SPDX-License-Identifier: Apache-2.0
 *
 * The CPU device: cuts operations into tasks for the thread pool and calls kernels in them. Small operations run
 * on the calling thread: handing out a task costs about as much as 2,000 floats of elementwise work.
 */
#include "device/cpu.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/error.h"
#include "base/half.h"

/* ---- row and element operations --------------------------------------------- */

typedef struct rows_job {
    ig_cpu_device *d;
    float *y;
    const float *x, *w, *b;
    const ig_matrix *m;
    const int32_t *ids;
    bool flag; /* embed: add; norm: rms; rope: adjacent; gate_rows: softplus */
    float eps, scale;
    int n_rows, n, n_w, n_heads, n_rot, rows_per_task;
} rows_job;

/* Runs fn over rows, shared out if the whole is worth it. */
static void run_rows(rows_job *j, ig_task_fn fn, size_t elements) {
    if (elements < IG_CPU_SMALL) {
        j->rows_per_task = j->n_rows;
        fn(j, 0, 0);
        return;
    }
    int tasks = ig_min_int(j->n_rows, j->d->n_threads * 4);
    j->rows_per_task = (j->n_rows + tasks - 1) / tasks;
    ig_pool_run(j->d->pool, (j->n_rows + j->rows_per_task - 1) / j->rows_per_task, fn, j);
}

static void embed_task(void *arg, int task, int thread) {
    rows_job *j = arg;
    const ig_matrix *m = j->m;
    size_t n = (size_t)m->n_in;
    float *row = (float *)(void *)(j->d->thread_scratch + (size_t)thread * j->d->thread_bytes);
    for (int r = task * j->rows_per_task; r < ig_min_int((task + 1) * j->rows_per_task, j->n_rows); r++) {
        const uint8_t *src = (const uint8_t *)m->w + (size_t)j->ids[r] * m->row_bytes;
        float *out = j->y + (size_t)r * n;
        float *to = j->flag ? row : out;
        j->d->k->dequantize[m->type](to, src, m->n_in);
        for (int i = 0; j->scale != 1 && i < m->n_in; i++) to[i] *= j->scale;
        if (j->flag) j->d->k->add(out, row, m->n_in);
    }
}

static void cpu_embed(ig_device *dev, float *out, const ig_matrix *m, float scale, const int32_t *ids, int n_rows,
                      bool add) {
    rows_job j = {.d = ig_cpu(dev), .y = out, .m = m, .scale = scale, .ids = ids, .flag = add, .n_rows = n_rows};
    pthread_mutex_lock(&j.d->turn);
    run_rows(&j, embed_task, (size_t)n_rows * (size_t)m->n_in);
    pthread_mutex_unlock(&j.d->turn);
}

static void norm_task(void *arg, int task, int thread) {
    rows_job *j = arg;
    (void)thread;
    for (int r = task * j->rows_per_task; r < ig_min_int((task + 1) * j->rows_per_task, j->n_rows); r++) {
        size_t at = (size_t)r * (size_t)j->n, w_at = (size_t)(r % j->n_w) * (size_t)j->n;
        const float *w = j->w ? j->w + w_at : NULL, *b = j->b ? j->b + w_at : NULL;
        if (j->flag)
            j->d->k->rms_norm(j->y + at, j->x + at, w, j->n, j->eps);
        else
            j->d->k->layer_norm(j->y + at, j->x + at, w, b, j->n, j->eps);
    }
}

static void cpu_norm(ig_device *dev, float *y, const float *x, const ig_norm *norm, int n_rows) {
    rows_job j = {.d = ig_cpu(dev),
                  .y = y,
                  .x = x,
                  .w = norm->w,
                  .b = norm->b,
                  .n_w = norm->n_w ? norm->n_w : 1,
                  .flag = norm->is_rms,
                  .eps = norm->eps,
                  .n_rows = n_rows,
                  .n = norm->n};
    run_rows(&j, norm_task, (size_t)n_rows * (size_t)norm->n);
}

static void rope_task(void *arg, int task, int thread) {
    rows_job *j = arg;
    (void)thread;
    void (*rotate)(float *, const float *, int) = j->flag ? j->d->k->rope_adjacent : j->d->k->rope_half;
    for (int r = task * j->rows_per_task; r < ig_min_int((task + 1) * j->rows_per_task, j->n_rows); r++)
        for (int h = 0; h < j->n_heads; h++)
            rotate(j->y + ((size_t)r * (size_t)j->n_heads + (size_t)h) * (size_t)j->n,
                   j->x + (size_t)r * (size_t)j->n_rot, j->n_rot);
}

static void cpu_rope(ig_device *dev, float *x, const ig_rotation *by, int n_rows, int n_heads, int head_dim) {
    rows_job j = {.d = ig_cpu(dev),
                  .y = x,
                  .x = by->cs,
                  .n_rot = by->n_rot,
                  .flag = by->is_adjacent,
                  .n_rows = n_rows,
                  .n_heads = n_heads,
                  .n = head_dim};
    run_rows(&j, rope_task, (size_t)n_rows * (size_t)n_heads * (size_t)head_dim);
}

/* Elementwise: "rows" of IG_CPU_SMALL elements. */
static void flat_range(const rows_job *j, int task, size_t total, size_t *at, int *n) {
    *at = (size_t)task * (size_t)j->rows_per_task * IG_CPU_SMALL;
    size_t left = total - *at, most = (size_t)j->rows_per_task * IG_CPU_SMALL;
    *n = (int)(left < most ? left : most);
}

typedef struct flat_job {
    rows_job rows;
    float factor;
    size_t total;
    ig_activation kind;
    _Atomic uint32_t peak; /* bits */
} flat_job;

static void add_task(void *arg, int task, int thread) {
    flat_job *j = arg;
    size_t at;
    int n;
    (void)thread;
    flat_range(&j->rows, task, j->total, &at, &n);
    j->rows.d->k->add(j->rows.y + at, j->rows.x + at, n);
}

static void scale_task(void *arg, int task, int thread) {
    const flat_job *j = arg;
    size_t at;
    int n;
    (void)thread;
    flat_range(&j->rows, task, j->total, &at, &n);
    for (int i = 0; i < n; i++) j->rows.y[at + (size_t)i] *= j->factor;
}

static void activate_task(void *arg, int task, int thread) {
    flat_job *j = arg;
    size_t at;
    int n;
    (void)thread;
    flat_range(&j->rows, task, j->total, &at, &n);
    const ig_kernels *k = j->rows.d->k;
    float *gate = j->rows.y + at;
    switch (j->kind) {
        case IG_SILU_GATED:
            k->silu_mul(gate, j->rows.x + at, n);
            break;
        case IG_SIGMOID_GATED:
            k->sigmoid_mul(gate, j->rows.x + at, n);
            break;
        case IG_SOFTPLUS_GATED:
            k->softplus_mul(gate, j->rows.x + at, n);
            break;
        case IG_PRODUCT:
            k->multiply(gate, j->rows.x + at, n);
            break;
        case IG_GELU_GATED:
            k->gelu_mul(gate, j->rows.x + at, n);
            break;
        case IG_SWIGLU_OAI:
            k->swiglu_oai(gate, j->rows.x + at, n);
            break;
        case IG_RELU:
            k->relu(gate, n);
            break;
        case IG_RELU_SQUARED:
            k->relu_squared(gate, n);
            break;
        case IG_GELU:
            k->gelu(gate, n);
            break;
        case IG_GELU_ERF:
            k->gelu_erf(gate, n);
            break;
        case IG_XIELU:
            k->xielu(gate, j->rows.x, n);
            break;
        case IG_TANH:
            k->tanh(gate, n);
            break;
        case IG_ACTIVATIONS:
            break;
    }
}

static void peak_task(void *arg, int task, int thread) {
    flat_job *j = arg;
    size_t at;
    int n;
    (void)thread;
    flat_range(&j->rows, task, j->total, &at, &n);
    uint32_t mine = ig_f32_bits(j->rows.d->k->peak(j->rows.x + at, n)), top = atomic_load(&j->peak);
    while (mine > top && !atomic_compare_exchange_weak(&j->peak, &top, mine)) {
    }
}

static void run_flat(flat_job *j, ig_device *dev, ig_task_fn fn, float *y, const float *x, size_t n) {
    j->rows = (rows_job){.d = ig_cpu(dev), .y = y, .x = x, .n_rows = (int)((n + IG_CPU_SMALL - 1) / IG_CPU_SMALL)};
    j->total = n;
    run_rows(&j->rows, fn, n);
}

static void cpu_add(ig_device *dev, float *y, const float *x, size_t n) {
    run_flat(&(flat_job){0}, dev, add_task, y, x, n);
}

static void add_rows_task(void *arg, int task, int thread) {
    const rows_job *j = arg;
    (void)thread;
    for (int r = task * j->rows_per_task; r < ig_min_int((task + 1) * j->rows_per_task, j->n_rows); r++)
        j->d->k->add_scaled(j->y + (size_t)j->ids[r] * (size_t)j->n, j->x + (size_t)r * (size_t)j->n,
                            j->w ? j->w[r] : 1, j->n);
}

static void cpu_add_rows(ig_device *dev, float *y, const float *x, const int32_t *rows, const float *shares, int n_rows,
                         int n) {
    rows_job j = {.d = ig_cpu(dev), .y = y, .x = x, .w = shares, .ids = rows, .n_rows = n_rows, .n = n};
    run_rows(&j, add_rows_task, (size_t)n_rows * (size_t)n);
}

static void gate_rows_task(void *arg, int task, int thread) {
    const rows_job *j = arg;
    (void)thread;
    for (int r = task * j->rows_per_task; r < ig_min_int((task + 1) * j->rows_per_task, j->n_rows); r++) {
        float share = j->flag ? ig_softplus(j->w[r]) : ig_sigmoid(j->w[r]), *x = j->y + (size_t)r * (size_t)j->n;
        for (int i = 0; i < j->n; i++) x[i] *= share;
    }
}

static void cpu_gate_rows(ig_device *dev, ig_activation kind, float *x, const float *gates, int n_rows, int n) {
    rows_job j = {.d = ig_cpu(dev), .y = x, .w = gates, .n_rows = n_rows, .n = n, .flag = kind == IG_SOFTPLUS_GATED};
    run_rows(&j, gate_rows_task, (size_t)n_rows * (size_t)n);
}

static void cpu_scale(ig_device *dev, float *x, float factor, size_t n) {
    run_flat(&(flat_job){.factor = factor}, dev, scale_task, x, NULL, n);
}

static void cpu_activate(ig_device *dev, ig_activation kind, float *gate, const float *up, size_t n) {
    run_flat(&(flat_job){.kind = kind}, dev, activate_task, gate, up, n);
}

static void cpu_peak(ig_device *dev, float *out, const ig_floats *x, int n_x) {
    for (int i = 0; i < n_x; i++) {
        flat_job j = {0};
        run_flat(&j, dev, peak_task, NULL, x[i].x, x[i].n);
        out[i] = ig_bits_f32(atomic_load(&j.peak));
    }
}

static void cpu_copy(ig_device *dev, void *to, const void *from, size_t n_bytes) {
    (void)dev;
    if (to != from) memcpy(to, from, n_bytes);
}

static void cpu_clear(ig_device *dev, void *to, size_t n_bytes) {
    (void)dev;
    memset(to, 0, n_bytes);
}

static void cpu_copy_rows(ig_device *dev, float *to, size_t to_row, const float *from, size_t from_row, int n,
                          int n_rows) {
    (void)dev;
    for (int r = 0; r < n_rows; r++)
        memcpy(to + (size_t)r * to_row, from + (size_t)r * from_row, (size_t)n * sizeof *to);
}

static ig_status cpu_finish(ig_device *dev, ig_error *err) {
    (void)dev, (void)err;
    return IG_OK;
}

static void cpu_parallel(ig_device *dev, int n_tasks, ig_task_fn fn, void *arg) {
    ig_pool_run(ig_cpu(dev)->pool, n_tasks, fn, arg);
}

static ig_pool_work cpu_worked(const ig_device *dev) { return ig_pool_worked(((const ig_cpu_device *)dev)->pool); }

/* ---- open, reserve, close ------------------------------------------------------- */

/* The two passes of the arena: sizes, then pointers. */
static void lay_out(ig_cpu_device *d, const ig_device_need *need) {
    d->act_bytes = 0;
    for (int f = 0; f < IG_ACT_COUNT; f++) {
        size_t n = d->k->act_bytes((ig_act)f, need->max_in);
        if (n > d->act_bytes) d->act_bytes = n;
    }
    size_t thread = d->k->scratch_bytes(need->max_in), attention = ig_cpu_attention_thread_bytes(d->k, &need->heads);
    if (thread < attention) thread = attention;
    if (thread < (size_t)need->max_in * sizeof(float)) thread = (size_t)need->max_in * sizeof(float);
    d->thread_bytes = ig_round_up(thread, 4096) + IG_ALIGN * 3; /* odd multiple: threads do not share cache sets */
    d->partial_floats = ig_cpu_attention_partial_floats(need);
    d->act = ig_arena_take(&d->arena, (size_t)need->max_rows * d->act_bytes);
    d->thread_scratch = ig_arena_take(&d->arena, (size_t)d->n_threads * d->thread_bytes);
    d->low_rank_floats = ig_device_low_rank_floats(need);
    d->low_rank = ig_arena_take(&d->arena, d->low_rank_floats * sizeof(float));
    d->partial = ig_arena_take(&d->arena, d->partial_floats * sizeof(float));
    d->chunks = ig_arena_take(&d->arena, ig_cpu_attention_chunk_bytes(d->k, need));
    d->carry = ig_arena_take(&d->arena, ig_cpu_attention_carry_floats(d->k, need) * sizeof(float));
}

static ig_status grow(ig_cpu_device *d, const ig_device_need *want, ig_error *err) {
    ig_cpu_device next = {.k = d->k, .n_threads = d->n_threads};
    lay_out(&next, want);
    size_t bytes = next.arena.used;
    if (!ig_arena_open(&next.arena)) return ig_fail_memory(err, "scratch of the CPU device", bytes);
    ig_arena_close(&d->arena);
    d->arena = next.arena;
    lay_out(d, want);
    d->have = *want;
    return IG_OK;
}

static void cpu_plan(const ig_device *dev, uint64_t bytes[IG_PLACES], const ig_device_need *need) {
    const ig_cpu_device *d = (const ig_cpu_device *)(const void *)dev;
    ig_cpu_device planned = {.k = d->k, .n_threads = d->n_threads};
    lay_out(&planned, need);
    bytes[IG_PLACE_HOST] += planned.arena.used;
}

static ig_status cpu_reserve(ig_device *dev, const ig_device_need *need, ig_error *err) {
    ig_cpu_device *d = ig_cpu(dev);
    pthread_mutex_lock(&d->turn);
    ig_device_need want = ig_device_need_both(&d->have, need);
    ig_status s = ig_device_serves(&d->have, &want) ? IG_OK : grow(d, &want, err);
    pthread_mutex_unlock(&d->turn);
    return s;
}

static size_t cpu_scratch_bytes(ig_device *dev) {
    ig_cpu_device *d = ig_cpu(dev);
    pthread_mutex_lock(&d->turn);
    size_t bytes = d->arena.size;
    pthread_mutex_unlock(&d->turn);
    return bytes;
}

static void cpu_close(ig_device *dev) {
    ig_cpu_device *d = ig_cpu(dev);
    ig_pool_close(d->pool);
    ig_arena_close(&d->arena);
    pthread_mutex_destroy(&d->turn);
    free(d);
}

static const ig_device_ops cpu_ops = {
    .name = "cpu",
    .is_host = true,
    .close = cpu_close,
    .panel_bytes = ig_cpu_panel_bytes,
    .put_panels = ig_cpu_put_panels,
    .copy = cpu_copy,
    .clear = cpu_clear,
    .copy_rows = cpu_copy_rows,
    .finish = cpu_finish,
    .reserve = cpu_reserve,
    .plan = cpu_plan,
    .scratch_bytes = cpu_scratch_bytes,
    .embed = cpu_embed,
    .matmul = ig_cpu_matmul,
    .matmul_heads = ig_cpu_matmul_heads,
    .few_as_many = ig_cpu_few_as_many,
    .norm = cpu_norm,
    .rope = cpu_rope,
    .add = cpu_add,
    .scale = cpu_scale,
    .add_rows = cpu_add_rows,
    .gate_rows = cpu_gate_rows,
    .activate = cpu_activate,
    .peak = cpu_peak,
    .convolve = ig_cpu_convolve,
    .recur = ig_cpu_recur,
    .attend = ig_cpu_attend,
    .weigh = ig_cpu_weigh,
    .parallel = cpu_parallel,
    .worked = cpu_worked,
};

ig_status ig_device_open_cpu(ig_device **out, ig_cpu_level level, int n_threads, ig_error *err) {
    *out = NULL;
    ig_cpu_device *d = calloc(1, sizeof *d);
    if (!d) return ig_fail_memory(err, "CPU device", sizeof *d);
    d->base.ops = &cpu_ops;
    d->k = ig_kernels_get(level);
    ig_status s = ig_pool_open(&d->pool, n_threads, err);
    if (s) {
        free(d);
        return s;
    }
    d->n_threads = n_threads;
    pthread_mutex_init(&d->turn, NULL);
    *out = &d->base;
    return IG_OK;
}

void ig_device_close(ig_device *d) {
    if (d) d->ops->close(d);
}
