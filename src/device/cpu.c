/* SPDX-License-Identifier: Apache-2.0
 *
 * The CPU device: cuts operations into tasks for the thread pool and calls kernels in them. Small operations run
 * on the calling thread: handing out a task costs about as much as 2,000 floats of elementwise work.
 */
#include "device/cpu.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/error.h"
#include "base/half.h"

enum {
    SMALL = 4096, /* elements below which an elementwise operation is not shared out */
    MAX_MATRICES = 32,
    ROW_UNIT = 32,  /* rows of a matrix are shared out in multiples of this: gemm's widest panel */
    MOST_UNITS = 8, /* that a gemm's task takes: more rows would not be faster (matmul_amx.c) */
};

static ig_cpu_device *cpu(ig_device *d) { return (ig_cpu_device *)d; }

/* ---- matrix products ------------------------------------------------------ */

typedef struct matmul_job {
    ig_cpu_device *d;
    const float *x;
    int n_rows, n_in, n_m;
    int rows_per_prepare; /* of x, in a task that prepares them */
    size_t act_stride;
    ig_act form;
    float *const *y;
    const ig_matrix *const *m;
    ig_matmul_fn fn[MAX_MATRICES];
    size_t row_bytes[MAX_MATRICES];   /* of what fn reads */
    int first_task[MAX_MATRICES + 1]; /* tasks of matrix i: first_task[i] .. first_task[i + 1] */
    int rows_per_task[MAX_MATRICES];
} matmul_job;

static void prepare_task(void *arg, int task, int thread) {
    matmul_job *j = arg;
    (void)thread;
    for (int r = task * j->rows_per_prepare; r < ig_min_int((task + 1) * j->rows_per_prepare, j->n_rows); r++)
        j->d->k->act_prepare[j->form](j->d->act + (size_t)r * j->act_stride, j->x + (size_t)r * (size_t)j->n_in,
                                      j->n_in);
}

static void add_bias(const matmul_job *j, const ig_matrix *m, float *y, int begin, int end) {
    for (int r = 0; r < j->n_rows; r++)
        j->d->k->add(y + (size_t)r * (size_t)m->n_out + begin, m->bias + begin, end - begin);
}

static void matmul_task(void *arg, int task, int thread) {
    matmul_job *j = arg;
    int i = 0;
    while (task >= j->first_task[i + 1]) i++;
    const ig_matrix *m = j->m[i];
    int begin = (task - j->first_task[i]) * j->rows_per_task[i];
    int end = ig_min_int(begin + j->rows_per_task[i], m->n_out);
    ig_matmul args = {
        .w = m->panels ? m->panels : m->w,
        .row_bytes = j->row_bytes[i],
        .n_in = m->n_in,
        .act = j->d->act,
        .act_stride = j->act_stride,
        .n_cols = j->n_rows,
        .out = j->y[i],
        .out_stride = (size_t)m->n_out,
        .scratch = j->d->thread_scratch + (size_t)thread * j->d->thread_bytes,
    };
    j->fn[i](&args, begin, end);
    if (m->bias) add_bias(j, m, j->y[i], begin, end);
}

/* Cuts the rows of all matrices into tasks: several per thread, so that a thread that is late takes fewer. */
static int cut_rows(matmul_job *j, bool few) {
    int tasks = 0;
    for (int i = 0; i < j->n_m; i++) {
        const ig_matrix *m = j->m[i];
        int units = (m->n_out + ROW_UNIT - 1) / ROW_UNIT;
        int per_task = units / (j->d->n_threads * (few ? 4 : 3));
        if (per_task > MOST_UNITS && !few) per_task = MOST_UNITS;
        if (per_task < 1) per_task = 1;
        if (j->d->n_threads == 1) per_task = units;
        j->first_task[i] = tasks;
        j->rows_per_task[i] = per_task * ROW_UNIT;
        tasks += (m->n_out + j->rows_per_task[i] - 1) / j->rows_per_task[i];
    }
    j->first_task[j->n_m] = tasks;
    return tasks;
}

static ig_act form_of(const ig_kernels *k, const ig_matrix *m, bool few) {
    return few ? ig_kernels_act(m->type) : k->many_act[m->type];
}

static void choose_kernel(matmul_job *j, int i, bool few) {
    const ig_kernels *k = j->d->k;
    const ig_matrix *m = j->m[i];
    const ig_panels *panels = &k->panels[m->type];
    if (m->panels)
        j->fn[i] = few ? panels->gemv : panels->gemm;
    else
        j->fn[i] = few ? k->gemv[m->type] : k->gemm[m->type];
    j->row_bytes[i] = m->panels ? panels->bytes(m->n_in) / IG_PANEL_ROWS : m->row_bytes;
}

static void cpu_matmul(ig_device *dev, float *const *y, const ig_matrix *const *m, int n_m, const float *x, int n_rows,
                       bool few) {
    ig_cpu_device *d = cpu(dev);
    matmul_job j = {.d = d, .x = x, .n_rows = n_rows, .n_in = m[0]->n_in, .y = y, .m = m, .n_m = n_m};
    if (!n_rows) return;
    pthread_mutex_lock(&d->turn);
    /* Matrices of another activation form come in a second round (mixed types share an input in K-quant files only
     * among quantised types, which all have one form). */
    int done = 0;
    while (done < n_m) {
        j.form = form_of(d->k, m[done], few);
        j.act_stride = d->k->act_bytes(j.form, j.n_in);
        int n = 1;
        while (done + n < n_m && n < MAX_MATRICES && form_of(d->k, m[done + n], few) == j.form) n++;
        j.n_m = n;
        j.y = y + done;
        j.m = m + done;
        for (int i = 0; i < n; i++) choose_kernel(&j, i, few);
        int tasks = (size_t)n_rows * (size_t)j.n_in < SMALL ? 1 : ig_min_int(n_rows, 4 * d->n_threads);
        j.rows_per_prepare = (n_rows + tasks - 1) / tasks;
        ig_pool_run(d->pool, (n_rows + j.rows_per_prepare - 1) / j.rows_per_prepare, prepare_task, &j);
        ig_pool_run(d->pool, cut_rows(&j, few), matmul_task, &j);
        done += n;
    }
    pthread_mutex_unlock(&d->turn);
}

static bool cpu_few_as_many(const ig_device *dev, const ig_matrix *m) {
    const ig_kernels *k = ((const ig_cpu_device *)dev)->k;
    const ig_panels *panels = &k->panels[m->type];
    return m->panels ? panels->gemv == panels->gemm : k->gemv[m->type] == k->gemm[m->type];
}

/* ---- panels --------------------------------------------------------------- */

typedef struct panel_job {
    const ig_panels *k;
    const ig_matrix *m;
    char *to;
    size_t panel_bytes;
} panel_job;

static int count_panels(const ig_matrix *m) { return (m->n_out + IG_PANEL_ROWS - 1) / IG_PANEL_ROWS; }

static size_t cpu_panel_bytes(ig_device *dev, const ig_matrix *m) {
    const ig_panels *k = &cpu(dev)->k->panels[m->type];
    return k->put ? (size_t)count_panels(m) * k->bytes(m->n_in) : 0;
}

static void put_panel_task(void *arg, int task, int thread) {
    const panel_job *j = arg;
    int row = task * IG_PANEL_ROWS;
    (void)thread;
    j->k->put(j->to + (size_t)task * j->panel_bytes, (const uint8_t *)j->m->w + (size_t)row * j->m->row_bytes,
              j->m->row_bytes, ig_min_int(j->m->n_out - row, IG_PANEL_ROWS), j->m->n_in);
}

static void cpu_put_panels(ig_device *dev, void *to, const ig_matrix *m) {
    const ig_panels *k = &cpu(dev)->k->panels[m->type];
    panel_job j = {k, m, to, k->bytes(m->n_in)};
    ig_pool_run(cpu(dev)->pool, count_panels(m), put_panel_task, &j);
}

/* ---- row and element operations --------------------------------------------- */

typedef struct rows_job {
    ig_cpu_device *d;
    float *y;
    const float *x, *w, *b;
    const ig_matrix *m;
    const int32_t *ids;
    bool flag; /* embed: add; norm: rms; rope: adjacent */
    float eps, scale;
    int n_rows, n, n_w, n_heads, n_rot, rows_per_task;
} rows_job;

/* Runs fn over rows, shared out if the whole is worth it. */
static void run_rows(rows_job *j, ig_task_fn fn, size_t elements) {
    if (elements < SMALL) {
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
    rows_job j = {.d = cpu(dev), .y = out, .m = m, .scale = scale, .ids = ids, .flag = add, .n_rows = n_rows};
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

static void cpu_norm(ig_device *dev, float *y, const float *x, const float *w, const float *b, int n_w, bool rms,
                     float eps, int n_rows, int n) {
    rows_job j = {
        .d = cpu(dev), .y = y, .x = x, .w = w, .b = b, .n_w = n_w, .flag = rms, .eps = eps, .n_rows = n_rows, .n = n};
    run_rows(&j, norm_task, (size_t)n_rows * (size_t)n);
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

static void cpu_rope(ig_device *dev, float *x, const float *cs, int n_rot, bool adjacent, int n_rows, int n_heads,
                     int head_dim) {
    rows_job j = {.d = cpu(dev),
                  .y = x,
                  .x = cs,
                  .n_rot = n_rot,
                  .flag = adjacent,
                  .n_rows = n_rows,
                  .n_heads = n_heads,
                  .n = head_dim};
    run_rows(&j, rope_task, (size_t)n_rows * (size_t)n_heads * (size_t)head_dim);
}

/* Elementwise: "rows" of SMALL elements. */
static void flat_range(const rows_job *j, int task, size_t total, size_t *at, int *n) {
    *at = (size_t)task * (size_t)j->rows_per_task * SMALL;
    size_t left = total - *at, most = (size_t)j->rows_per_task * SMALL;
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
    j->rows = (rows_job){.d = cpu(dev), .y = y, .x = x, .n_rows = (int)((n + SMALL - 1) / SMALL)};
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
        j->d->k->add_scaled(j->y + (size_t)j->ids[r] * (size_t)j->n, j->x + (size_t)r * (size_t)j->n, j->w[r], j->n);
}

static void cpu_add_rows(ig_device *dev, float *y, const float *x, const int32_t *rows, const float *shares, int n_rows,
                         int n) {
    rows_job j = {.d = cpu(dev), .y = y, .x = x, .w = shares, .ids = rows, .n_rows = n_rows, .n = n};
    run_rows(&j, add_rows_task, (size_t)n_rows * (size_t)n);
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

static ig_status cpu_finish(ig_device *dev, ig_error *err) {
    (void)dev, (void)err;
    return IG_OK;
}

static void cpu_parallel(ig_device *dev, int n_tasks, ig_task_fn fn, void *arg) {
    ig_pool_run(cpu(dev)->pool, n_tasks, fn, arg);
}

static ig_pool_work cpu_worked(const ig_device *dev) { return ig_pool_worked(((const ig_cpu_device *)dev)->pool); }

/* ---- open, reserve, close ------------------------------------------------------- */

/* The two passes of the arena: sizes, then pointers. */
static void lay_out(ig_cpu_device *d, const ig_device_need *need) {
    size_t act = 0;
    for (int f = 0; f < IG_ACT_COUNT; f++) {
        size_t n = d->k->act_bytes((ig_act)f, need->max_in);
        if (n > act) act = n;
    }
    size_t thread = d->k->scratch_bytes(need->max_in), attention = ig_cpu_attention_thread_bytes(d->k, &need->heads);
    if (thread < attention) thread = attention;
    if (thread < (size_t)need->max_in * sizeof(float)) thread = (size_t)need->max_in * sizeof(float);
    d->thread_bytes = ig_round_up(thread, 4096) + IG_ALIGN * 3; /* odd multiple: threads do not share cache sets */
    d->partial_floats = ig_cpu_attention_partial_floats(need);
    d->act = ig_arena_take(&d->arena, (size_t)need->max_rows * act);
    d->thread_scratch = ig_arena_take(&d->arena, (size_t)d->n_threads * d->thread_bytes);
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
    ig_cpu_device *d = cpu(dev);
    pthread_mutex_lock(&d->turn);
    ig_device_need want = {
        .max_rows = ig_max_int(d->have.max_rows, need->max_rows),
        .max_in = ig_max_int(d->have.max_in, need->max_in),
        .max_entries = ig_max_int(d->have.max_entries, need->max_entries),
        .heads = {.n_heads = ig_max_int(d->have.heads.n_heads, need->heads.n_heads),
                  .n_kv_heads = ig_max_int(d->have.heads.n_kv_heads, need->heads.n_kv_heads),
                  .head_dim = ig_max_int(d->have.heads.head_dim, need->heads.head_dim)},
    };
    ig_status s = ig_device_serves(&d->have, &want) ? IG_OK : grow(d, &want, err);
    pthread_mutex_unlock(&d->turn);
    return s;
}

static size_t cpu_scratch_bytes(ig_device *dev) {
    ig_cpu_device *d = cpu(dev);
    pthread_mutex_lock(&d->turn);
    size_t bytes = d->arena.size;
    pthread_mutex_unlock(&d->turn);
    return bytes;
}

static void cpu_close(ig_device *dev) {
    ig_cpu_device *d = cpu(dev);
    ig_pool_close(d->pool);
    ig_arena_close(&d->arena);
    pthread_mutex_destroy(&d->turn);
    free(d);
}

static const ig_device_ops cpu_ops = {
    .name = "cpu",
    .is_host = true,
    .close = cpu_close,
    .panel_bytes = cpu_panel_bytes,
    .put_panels = cpu_put_panels,
    .copy = cpu_copy,
    .clear = cpu_clear,
    .finish = cpu_finish,
    .reserve = cpu_reserve,
    .plan = cpu_plan,
    .scratch_bytes = cpu_scratch_bytes,
    .embed = cpu_embed,
    .matmul = cpu_matmul,
    .few_as_many = cpu_few_as_many,
    .norm = cpu_norm,
    .rope = cpu_rope,
    .add = cpu_add,
    .scale = cpu_scale,
    .add_rows = cpu_add_rows,
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
