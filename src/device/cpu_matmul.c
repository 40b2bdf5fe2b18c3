/* SPDX-License-Identifier: Apache-2.0
 *
 * The CPU device's products of matrices: columns are prepared in the form that a matrix's type wants, then rows are
 * shared out.
 */
#include <limits.h>

#include "base/compiler.h"
#include "device/cpu.h"

enum {
    MAX_MATRICES = 32,
    MAX_ADDED = IG_ADAPTERS_MAX, /* at once: at least those of one matrix */
    ROW_UNIT = 32,               /* rows of a matrix are shared out in multiples of this: gemm's widest panel */
    MOST_UNITS = 8,              /* that a gemm's task takes: more rows would not be faster (matmul_amx.c) */
};

/* ---- matrix products ------------------------------------------------------ */

/* How a matrix is multiplied: the kernel, and what it reads. */
typedef struct product {
    ig_matmul_fn fn;
    const void *w;
    size_t row_bytes;
} product;

/* What an adapter adds to the products of a matrix. */
typedef struct addition {
    const ig_low_rank_part *part;
    float *inner; /* [n_rows][rank] its first product, times what each row takes of it */
} addition;

typedef struct matmul_job {
    ig_cpu_device *d;
    const float *x;
    const ig_shares *shares;
    int n_rows, n_in, n_m;
    int rows_per_prepare; /* of x, in a task that prepares them */
    size_t act_stride;
    ig_act form;
    float *const *y;
    const ig_matrix *const *m;
    product product[MAX_MATRICES];
    int first_task[MAX_MATRICES + 1]; /* tasks of matrix i: first_task[i] .. first_task[i + 1] */
    int rows_per_task[MAX_MATRICES];
    addition added[MAX_ADDED];
    int first_added[MAX_MATRICES + 1]; /* of matrix i: added[first_added[i]] .. added[first_added[i + 1]] */
} matmul_job;

static void prepare_task(void *arg, int task, int thread) {
    matmul_job *j = arg;
    (void)thread;
    for (int r = task * j->rows_per_prepare; r < ig_min_int((task + 1) * j->rows_per_prepare, j->n_rows); r++)
        j->d->k->act_prepare[j->form](j->d->act + (size_t)r * j->act_stride, j->x + (size_t)r * (size_t)j->n_in,
                                      j->n_in);
}

/* What a matrix has beside its weights. */
static void scale_and_add(const matmul_job *j, const ig_matrix *m, float *y, int begin, int end) {
    for (int r = 0; r < j->n_rows; r++) {
        float *row = y + (size_t)r * (size_t)m->n_out;
        for (int i = begin; m->scale && i < end; i++) row[i] *= *m->scale;
        if (m->bias) j->d->k->add(row + begin, m->bias + begin, end - begin);
    }
}

enum { LOW_RANK_NUMBERS = 256 /* of a row that are added at once */ };

static float share_of(const matmul_job *j, const ig_low_rank *l, int adapter, int row) {
    return j->shares->of_rows[(size_t)row * (size_t)l->n_adapters + (size_t)adapter];
}

/* To numbers [at, at + n) of each row of a matrix's products. */
static void add_part(const matmul_job *j, int i, const addition *added, int at, int n) {
    const ig_matrix *m = j->m[i];
    const ig_low_rank_part *part = added->part;
    size_t stride = (size_t)m->low_rank->n_out, rank = (size_t)part->a.n_out;
    float sum[LOW_RANK_NUMBERS];
    for (int row = 0; row < j->n_rows; row++) {
        if (share_of(j, m->low_rank, part->adapter, row) == 0) continue;
        j->d->k->sum_rows(sum, added->inner + (size_t)row * rank, part->b + m->low_rank_row + at, stride, (int)rank, n);
        j->d->k->add(j->y[i] + (size_t)row * (size_t)m->n_out + at, sum, n);
    }
}

static void add_low_rank(const matmul_job *j, int i, int begin, int end) {
    for (int at = begin; at < end; at += LOW_RANK_NUMBERS)
        for (int k = j->first_added[i]; k < j->first_added[i + 1]; k++)
            add_part(j, i, &j->added[k], at, ig_min_int(LOW_RANK_NUMBERS, end - at));
}

static void matmul_task(void *arg, int task, int thread) {
    matmul_job *j = arg;
    int i = 0;
    while (task >= j->first_task[i + 1]) i++;
    const ig_matrix *m = j->m[i];
    int begin = (task - j->first_task[i]) * j->rows_per_task[i];
    int end = ig_min_int(begin + j->rows_per_task[i], m->n_out);
    ig_matmul args = {
        .w = j->product[i].w,
        .row_bytes = j->product[i].row_bytes,
        .n_in = m->n_in,
        .act = j->d->act,
        .act_stride = j->act_stride,
        .n_cols = j->n_rows,
        .out = j->y[i],
        .out_stride = (size_t)m->n_out,
        .scratch = j->d->thread_scratch + (size_t)thread * j->d->thread_bytes,
        .scales = m->block_scales,
    };
    j->product[i].fn(&args, begin, end);
    if (m->bias || m->scale) scale_and_add(j, m, j->y[i], begin, end);
    add_low_rank(j, i, begin, end);
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

static product product_of(const ig_kernels *k, const ig_matrix *m, bool few) {
    const ig_panels *panels = &k->panels[m->type];
    if (m->panels)
        return (product){few ? panels->gemv : panels->gemm, m->panels, panels->bytes(m->n_in) / IG_PANEL_ROWS};
    return (product){few ? k->gemv[m->type] : k->gemm[m->type], m->w, m->row_bytes};
}

/* Matrices of one form: the columns are prepared in it, then rows are shared out. */
static void multiply(matmul_job *j, float *const *y, const ig_matrix *const *m, int n_m, bool few) {
    j->form = form_of(j->d->k, m[0], few);
    j->act_stride = j->d->k->act_bytes(j->form, j->n_in);
    j->n_m = n_m;
    j->y = y;
    j->m = m;
    for (int i = 0; i < n_m; i++) j->product[i] = product_of(j->d->k, m[i], few);
    int tasks = (size_t)j->n_rows * (size_t)j->n_in < IG_CPU_SMALL ? 1 : ig_min_int(j->n_rows, 4 * j->d->n_threads);
    j->rows_per_prepare = (j->n_rows + tasks - 1) / tasks;
    ig_pool_run(j->d->pool, (j->n_rows + j->rows_per_prepare - 1) / j->rows_per_prepare, prepare_task, j);
    ig_pool_run(j->d->pool, cut_rows(j, few), matmul_task, j);
}

/* How many of the first matrices are of one form. */
static int count_alike(const matmul_job *j, const ig_matrix *const *m, int n_m, bool few) {
    int n = 1;
    while (n < n_m && n < MAX_MATRICES && form_of(j->d->k, m[n], few) == form_of(j->d->k, m[0], few)) n++;
    return n;
}

/* What rows take of each number that an adapter's first product has. */
static void take_shares(const matmul_job *j, const ig_low_rank *l, const addition *added) {
    int rank = added->part->a.n_out;
    for (int row = 0; row < j->n_rows; row++) {
        float share = share_of(j, l, added->part->adapter, row), *inner = added->inner + (size_t)row * (size_t)rank;
        for (int k = 0; k < rank; k++) inner[k] *= share;
    }
}

/* Parts of a low rank that are taken, behind the first *n additions, and *used floats of their products; false: there
 * is no room for all. */
static bool list_parts(matmul_job *j, const ig_low_rank *l, int *n, size_t *used) {
    for (int p = 0; l && p < l->n_parts; p++) {
        const ig_low_rank_part *part = &l->parts[p];
        size_t floats = (size_t)j->n_rows * (size_t)part->a.n_out;
        if (!(j->shares->taken >> part->adapter & 1)) continue;
        if (*n == MAX_ADDED || floats > j->d->low_rank_floats - *used) return false;
        j->added[(*n)++] = (addition){part, j->d->low_rank + *used};
        *used += floats;
    }
    return true;
}

/* What the adapters of the first matrices have, multiplied by x: the number of those whose products there is room for,
 * at least one. */
static int multiply_low_rank(matmul_job *j, const ig_matrix *const *m, int n_m, bool few) {
    matmul_job inner = {.d = j->d, .x = j->x, .n_rows = j->n_rows, .n_in = j->n_in};
    const ig_matrix *a[MAX_ADDED];
    float *to[MAX_ADDED];
    size_t used = 0;
    int n = 0, n_added = 0;
    j->first_added[0] = 0;
    while (n < n_m && list_parts(j, m[n]->low_rank, &n_added, &used)) j->first_added[++n] = n_added;
    n_added = j->first_added[n];
    for (int k = 0; k < n_added; k++) a[k] = &j->added[k].part->a, to[k] = j->added[k].inner;
    for (int done = 0, alike; done < n_added; done += alike) {
        alike = count_alike(&inner, a + done, n_added - done, few);
        multiply(&inner, to + done, a + done, alike, few);
    }
    for (int i = 0; i < n; i++)
        for (int k = j->first_added[i]; k < j->first_added[i + 1]; k++) take_shares(j, m[i]->low_rank, &j->added[k]);
    return n;
}

void ig_cpu_matmul(ig_device *dev, float *const *y, const ig_matrix *const *m, int n_m, const float *x,
                   const ig_shares *shares, int n_rows, bool few) {
    ig_cpu_device *d = ig_cpu(dev);
    matmul_job j = {.d = d, .x = x, .shares = shares, .n_rows = n_rows, .n_in = m[0]->n_in};
    if (!n_rows) return;
    pthread_mutex_lock(&d->turn);
    /* Matrices of another activation form come in a second round (mixed types share an input in K-quant files only
     * among quantised types, which all have one form). */
    for (int done = 0, n; done < n_m; done += n) {
        n = count_alike(&j, m + done, n_m - done, few);
        n = multiply_low_rank(&j, m + done, n, few);
        multiply(&j, y + done, m + done, n, few);
    }
    pthread_mutex_unlock(&d->turn);
}

/* ---- products of heads ------------------------------------------------------ */

typedef struct heads_job {
    ig_cpu_device *d;
    const ig_head_product *p;
    ig_matmul args; /* but what a head has of its own */
    ig_matmul_fn fn;
    ig_act form;
    int first_head, n_rows, rows_per_prepare, prepares_of_head, rows_per_task, tasks_of_head;
} heads_job;

/* Columns of heads from first_head on, [heads][n_rows]. */
static uint8_t *head_columns(const heads_job *j, int i) {
    return j->d->act + (size_t)i * (size_t)j->n_rows * j->args.act_stride;
}

static void prepare_heads_task(void *arg, int task, int thread) {
    const heads_job *j = arg;
    int i = task / j->prepares_of_head, begin = task % j->prepares_of_head * j->rows_per_prepare;
    const float *x = j->p->x + (size_t)(j->first_head + i) * j->p->x_head;
    (void)thread;
    for (int r = begin; r < ig_min_int(begin + j->rows_per_prepare, j->n_rows); r++)
        j->d->k->act_prepare[j->form](head_columns(j, i) + (size_t)r * j->args.act_stride,
                                      x + (size_t)(r * j->p->n_heads) * j->p->x_head, j->args.n_in);
}

static void multiply_heads_task(void *arg, int task, int thread) {
    const heads_job *j = arg;
    int i = task / j->tasks_of_head, begin = task % j->tasks_of_head * j->rows_per_task;
    size_t head = (size_t)(j->first_head + i), row = head * (size_t)j->p->of_head + (size_t)j->p->first;
    ig_matmul args = j->args;
    args.w = (const uint8_t *)j->args.w + row * j->args.row_bytes;
    args.act = head_columns(j, i);
    args.out = j->p->y + head * j->p->y_head;
    args.scratch = j->d->thread_scratch + (size_t)thread * j->d->thread_bytes;
    j->fn(&args, begin, ig_min_int(begin + j->rows_per_task, j->p->n));
}

/* As many heads at a time as there is room for columns of; each is cut into tasks if heads alone are too few. */
void ig_cpu_matmul_heads(ig_device *dev, const ig_head_product *p, int n_rows, bool few) {
    ig_cpu_device *d = ig_cpu(dev);
    const ig_matrix *m = p->m;
    const product with = product_of(d->k, m, few);
    heads_job j = {.d = d, .p = p, .fn = with.fn, .form = form_of(d->k, m, few), .n_rows = n_rows};
    if (!n_rows) return;
    pthread_mutex_lock(&d->turn);
    j.args = (ig_matmul){.w = with.w,
                         .row_bytes = with.row_bytes,
                         .n_in = m->n_in,
                         .act_stride = d->k->act_bytes(j.form, m->n_in),
                         .n_cols = n_rows,
                         .out_stride = (size_t)p->n_heads * p->y_head};
    size_t room = (size_t)d->have.max_rows * d->act_bytes / ((size_t)n_rows * j.args.act_stride);
    int at_once = ig_min_int(p->n_heads, room < INT_MAX ? (int)room : INT_MAX), parts = 4 * d->n_threads / at_once + 1;
    j.rows_per_prepare = (n_rows + parts - 1) / parts;
    j.prepares_of_head = (n_rows + j.rows_per_prepare - 1) / j.rows_per_prepare;
    j.rows_per_task = ig_min_int((p->n / parts + ROW_UNIT) / ROW_UNIT, few ? INT_MAX : MOST_UNITS) * ROW_UNIT;
    j.tasks_of_head = (p->n + j.rows_per_task - 1) / j.rows_per_task;
    for (int n; j.first_head < p->n_heads; j.first_head += n) {
        n = ig_min_int(at_once, p->n_heads - j.first_head);
        ig_pool_run(d->pool, n * j.prepares_of_head, prepare_heads_task, &j);
        ig_pool_run(d->pool, n * j.tasks_of_head, multiply_heads_task, &j);
    }
    pthread_mutex_unlock(&d->turn);
}

bool ig_cpu_few_as_many(const ig_device *dev, const ig_matrix *m) {
    const ig_kernels *k = ((const ig_cpu_device *)dev)->k;
    const ig_panels *panels = &k->panels[m->type];
    bool is_same = m->panels ? panels->gemv == panels->gemm : k->gemv[m->type] == k->gemm[m->type];
    for (int i = 0; m->low_rank && i < m->low_rank->n_parts; i++)
        is_same = is_same && ig_cpu_few_as_many(dev, &m->low_rank->parts[i].a);
    return is_same;
}

/* ---- panels --------------------------------------------------------------- */

typedef struct panel_job {
    const ig_panels *k;
    const ig_matrix *m;
    char *to;
    size_t panel_bytes;
} panel_job;

static int count_panels(const ig_matrix *m) { return (m->n_out + IG_PANEL_ROWS - 1) / IG_PANEL_ROWS; }

size_t ig_cpu_panel_bytes(ig_device *dev, const ig_matrix *m) {
    const ig_panels *k = &ig_cpu(dev)->k->panels[m->type];
    return k->put ? (size_t)count_panels(m) * k->bytes(m->n_in) : 0;
}

static void put_panel_task(void *arg, int task, int thread) {
    const panel_job *j = arg;
    int row = task * IG_PANEL_ROWS;
    (void)thread;
    j->k->put(j->to + (size_t)task * j->panel_bytes, (const uint8_t *)j->m->w + (size_t)row * j->m->row_bytes,
              j->m->row_bytes, ig_min_int(j->m->n_out - row, IG_PANEL_ROWS), j->m->n_in);
}

void ig_cpu_put_panels(ig_device *dev, void *to, const ig_matrix *m) {
    const ig_panels *k = &ig_cpu(dev)->k->panels[m->type];
    panel_job j = {k, m, to, k->bytes(m->n_in)};
    ig_pool_run(ig_cpu(dev)->pool, count_panels(m), put_panel_task, &j);
}
