/* SPDX-License-Identifier: Apache-2.0
 *
 * The books of what the GPU has copies of (device/residency.h), kept by the GPU: before an attention one kernel goes
 * through its lists of rows, has each block's place in the table that attention reads, and copies what is worth it.
 * Small copies by the driver reach a tenth of the bus's rate, loads of a kernel all of it: a warp takes a block, all of
 * its loads under way at once. A block of threads is a KV head of the layer: no other one touches its books.
 */
#include "device/cuda/gpu.cuh"
#include "device/cuda/rows.cuh"

enum {
    MOST_THREADS = 512, /* as many rows of a list, or blocks of it, at a time */
    WARPS = MOST_THREADS / IG_WARP,
    LOADS = 8 /* of 16 bytes, of each lane at a time: 4 KiB of a warp */
};

/* A copy that is to be made. */
typedef struct order {
    const uint8_t *from;
    uint32_t block, copy;
} order;

/* Shared memory of a block of threads. */
typedef struct board {
    order orders[MOST_THREADS];
    uint32_t found[MOST_THREADS]; /* copies that can be had */
    int counted[MOST_THREADS], totals[WARPS];
    ig_resident_table table;
    unsigned looked;             /* of its copies, by the hand */
    unsigned hits, copied, rows; /* of a job */
} board;

/* What is looked through. */
typedef struct touching {
    ig_resident_books books;
    size_t first_table, table_len; /* of the layer; blocks of a table */
    size_t copy_bytes, block_bytes, line_bytes;
    const uint8_t *lines;
    int n_heads, begin, end; /* rows of each view */
    uint32_t step;
    bool ahead;              /* the lists are foreseen: they are not read now */
    const uint32_t *written; /* [n_written] blocks of the layer whose copies are of no use any more */
    int n_written;
} touching;

/* Rows of a view that lie in one block of the sequence; n == 0: none. */
typedef struct run {
    int block, n;
} run;

/* Rows [begin, end) of a view, and how many threads have a run of them each. */
typedef struct span {
    int begin, end, n;
} span;

static __device__ span span_of(const touching *t, const ig_kv_view *v) {
    int n = ig_cuda_rows(v);
    span s = {t->begin, t->end < n ? t->end : n, 0};
    if (s.begin >= s.end) return s;
    s.n = s.end - s.begin;
    if (!v->index) s.n = ((v->first + s.end - 1) >> v->shift) - ((v->first + s.begin) >> v->shift) + 1;
    return s;
}

/* Number i of the span: of a list one for each row, which the first of its block's rows stands for. */
static __device__ run run_at(const ig_kv_view *v, const span *s, int i) {
    run r = {0, 0};
    if (i >= s->n) return r;
    if (v->index) {
        int at = s->begin + i;
        r.block = v->index[at] >> v->shift;
        if (i && v->index[at - 1] >> v->shift == r.block) return r;
        while (at + r.n < s->end && v->index[at + r.n] >> v->shift == r.block) r.n++;
        return r;
    }
    r.block = ((v->first + s->begin) >> v->shift) + i;
    int begin = r.block << v->shift, end = begin + (1 << v->shift);
    if (begin < v->first + s->begin) begin = v->first + s->begin;
    if (end > v->first + s->end) end = v->first + s->end;
    r.n = end - begin;
    return r;
}

/* ---- copies --------------------------------------------------------------------------- */

static __device__ __forceinline__ const uint8_t *address_of(const touching *t, uint32_t copy) {
    return t->books.copies + (size_t)copy * t->copy_bytes + 1;
}

/* Whether the block that has the copy was not wanted of late, or has it no more. */
static __device__ bool is_idle(const touching *t, uint32_t copy) {
    uint32_t block = t->books.owner[copy];
    return t->books.where[block] != address_of(t, copy) || t->books.blocks[block].used + IG_IDLE_STEPS < t->step;
}

/* Copies of the table that nothing needs, up to as many as are wanted, to b->found; their number. As long as there are
 * some that were never used, these. By all threads, which meet in between. */
static __device__ int find_copies(board *b, const touching *t, int wanted) {
    ig_resident_table *own = &b->table;
    int thread = (int)threadIdx.x, n = (int)(own->n - own->n_fresh);
    if (n > wanted) n = wanted;
    if (thread < n) b->found[thread] = own->first + own->n_fresh + (uint32_t)thread;
    __syncthreads();
    if (thread == 0) {
        own->n_fresh += (unsigned)n;
        if (!n && own->swept != t->step) own->swept = t->step, own->looks = own->n;
    }
    __syncthreads();
    while (n < wanted && own->looks) {
        unsigned most = own->looks < blockDim.x ? own->looks : blockDim.x, hand = own->hand + threadIdx.x;
        uint32_t copy = own->first + (hand < own->n ? hand : hand - own->n);
        bool idle = threadIdx.x < most && is_idle(t, copy);
        int at = n + ig_sum_before(b->counted, b->totals, (int)idle);
        if (thread == 0) b->looked = most;
        __syncthreads();
        if (idle && at < wanted) {
            b->found[at] = copy;
            if (at == wanted - 1) b->looked = threadIdx.x + 1;
            uint32_t block = t->books.owner[copy];
            if (t->books.where[block] == address_of(t, copy)) t->books.where[block] = NULL;
        }
        for (unsigned i = 0; i < blockDim.x / IG_WARP; i++) n += b->totals[i];
        if (n > wanted) n = wanted;
        __syncthreads();
        if (thread == 0) {
            own->looks -= b->looked;
            own->hand = (own->hand + b->looked) % own->n;
        }
        __syncthreads();
    }
    return n;
}

/* n bytes, rounded up to 16, by a warp. */
static __device__ __forceinline__ void copy_bytes(uint8_t *to, const uint8_t *from, size_t n, int lane) {
    for (size_t first = 16 * (size_t)lane; first < n; first += 16 * IG_WARP * LOADS) {
        uint4 x[LOADS];
        for (int i = 0; i < LOADS; i++)
            if (first + 16 * IG_WARP * (size_t)i < n) x[i] = *(const uint4 *)(from + first + 16 * IG_WARP * (size_t)i);
        for (int i = 0; i < LOADS; i++)
            if (first + 16 * IG_WARP * (size_t)i < n) *(uint4 *)(to + first + 16 * IG_WARP * (size_t)i) = x[i];
    }
}

static __device__ void copy_blocks(const board *b, const touching *t, int n) {
    int lane = (int)threadIdx.x % IG_WARP;
    for (int i = (int)threadIdx.x / IG_WARP; i < n; i += (int)blockDim.x / IG_WARP) {
        order o = b->orders[i];
        uint8_t *to = t->books.copies + (size_t)o.copy * t->copy_bytes;
        copy_bytes(to, o.from, t->block_bytes, lane);
        if (t->line_bytes) copy_bytes(to + t->block_bytes, t->lines + o.block * t->line_bytes, t->line_bytes, lane);
    }
}

/* ---- lists ---------------------------------------------------------------------------- */

/* A run of each thread: its block's copy is wanted again; or it gets one; or its rows are read in place. All is counted
 * before the last barrier. A block that will hold no row before the step's own is there is left out. */
static __device__ void touch_runs(board *b, const touching *t, const ig_kv_view *v, run r) {
    if (r.block << v->shift >= v->n_slots) r.n = 0;
    size_t block = 0;
    const uint8_t *home = NULL;
    ig_resident own = {0, 0};
    bool has_copy = false, wants = false;
    if (r.n) {
        size_t number = ig_cuda_block(v, r.block << v->shift);
        block = v->table * t->table_len + number;
        const uint8_t *at = t->books.where[block];
        has_copy = (size_t)at & 1;
        if (at) own = t->books.blocks[block];
        if (!has_copy) home = ig_cuda_home(v, r.block, number);
        bool may_grow = (r.block + 1) << v->shift > v->n_slots;
        wants = home && !may_grow && own.paid + (unsigned)r.n >= 1u << v->shift;
    }
    own.used = t->step;
    if (has_copy) t->books.blocks[block] = own;
    if (has_copy && !t->ahead) atomicAdd(&b->hits, 1u);
    int rank = ig_sum_before(b->counted, b->totals, (int)wants), n = 0;
    for (unsigned i = 0; i < blockDim.x / IG_WARP; i++) n += b->totals[i];
    if (!n && t->ahead) return;
    if (n) n = find_copies(b, t, n);
    if (wants && rank < n) {
        uint32_t copy = b->found[rank];
        order o = {home, (uint32_t)block, copy};
        b->orders[rank] = o;
        own.paid = 0;
        t->books.blocks[block] = own;
        t->books.where[block] = address_of(t, copy);
        t->books.owner[copy] = (uint32_t)block;
        atomicAdd(&b->copied, 1u);
    } else if (r.n && !has_copy && !t->ahead) {
        own.paid += (unsigned)r.n;
        t->books.blocks[block] = own;
        t->books.where[block] = home;
        atomicAdd(&b->rows, (unsigned)r.n);
    }
    __syncthreads();
    copy_blocks(b, t, n);
}

/* What was found of a job is added up. */
static __device__ void count(const board *b, const touching *t, const ig_kv_view *views, int shift) {
    unsigned long long *sums = (unsigned long long *)(void *)views[0].traffic;
    unsigned long long bytes = t->block_bytes + t->line_bytes, n_rows = ((uint64_t)b->copied << shift) + b->rows;
    atomicAdd(&sums[0], (unsigned long long)b->hits);
    atomicAdd(&sums[1], (unsigned long long)b->copied);
    atomicAdd(&sums[2], (unsigned long long)b->rows);
    atomicAdd(&sums[3], bytes * n_rows >> shift);
}

/* Of a table. */
static __device__ void forget_written(const touching *t, size_t table) {
    size_t first = table * t->table_len;
    for (int i = (int)threadIdx.x; i < t->n_written; i += (int)blockDim.x)
        if (t->written[i] - first < t->table_len) t->books.where[t->written[i]] = NULL;
}

static __global__ void __launch_bounds__(MOST_THREADS)
    touch(touching t, const ig_attention *jobs, int n_jobs, int n_views) {
    IG_SHARED(board, b);
    int head = (int)blockIdx.x, first = head * n_views / t.n_heads, end = (head + 1) * n_views / t.n_heads;
    ig_resident_table *table = &t.books.tables[t.first_table + (size_t)head];
    if (threadIdx.x == 0) b->table = *table;
    forget_written(&t, t.first_table + (size_t)head);
    for (int j = 0; j < n_jobs; j++) {
        const ig_kv_view *views = jobs[j].views;
        if (threadIdx.x == 0) b->hits = b->copied = b->rows = 0;
        __syncthreads();
        for (int v = first; v < end; v++) {
            span s = span_of(&t, &views[v]);
            for (int i = (int)threadIdx.x; i - (int)threadIdx.x < s.n; i += (int)blockDim.x)
                touch_runs(b, &t, &views[v], run_at(&views[v], &s, i));
        }
        if (threadIdx.x == 0) count(b, &t, views, views[0].shift);
    }
    if (threadIdx.x == 0) *table = b->table;
}

/* Threads for rows [begin, end) of the views: no more than have something to look at. */
static unsigned count_threads(const ig_attention *jobs, int n_jobs, int n_views, int begin, int end) {
    int most = 1;
    for (int j = 0; j < n_jobs; j++)
        for (int i = 0; i < n_views; i++) {
            const ig_kv_view *v = &jobs[j].views[i];
            int n = (v->n < end ? v->n : end) - begin;
            if (!v->index) n = (n >> v->shift) + 2;
            if (n > most) most = n;
        }
    if (most > MOST_THREADS) most = MOST_THREADS;
    return (unsigned)(most + IG_WARP - 1) / IG_WARP * IG_WARP;
}

void ig_cuda_touch(ig_queue q, const ig_residency *r, const ig_cuda_touched *x) {
    const ig_residency_shape *shape = &r->shape;
    size_t n_heads = (size_t)shape->n_heads;
    touching t = {r->books,
                  (size_t)x->layer * n_heads,
                  shape->table_len,
                  r->copy_bytes,
                  shape->block_bytes,
                  shape->line_bytes,
                  (const uint8_t *)shape->lines,
                  shape->n_heads,
                  x->begin,
                  x->end,
                  r->step,
                  x->ahead,
                  x->written,
                  x->n_written};
    unsigned threads = count_threads(x->jobs, x->n_jobs, x->n_views, x->begin, x->end);
    ig_launch(touch, dim3((unsigned)n_heads), dim3(threads), sizeof(board), q, t, x->sent, x->n_jobs, x->n_views);
}

/* ---- what was written ------------------------------------------------------------------ */

/* The books begin anew. */
static void open_books(gpu *g, ig_residency *r) {
    ig_queue_clear(g->work, r->books.where, r->n_blocks * sizeof *r->books.where);
    ig_queue_copy(g->work, r->books.tables, r->tables, r->n_tables * sizeof *r->tables);
    ig_cuda_wait(g); /* the tables are memory of the host's alone */
    r->is_new = false;
}

/* What was noted as written goes to the GPU, but for the last blocks of it, which go with the layer's jobs. */
static void tell_written(gpu *g, ig_residency *r, int layer) {
    while (ig_residency_take_written(r, layer) == IG_RESIDENCY_TOLD) {
        if (ig_cuda_mail_bytes(sizeof r->told) > ig_cuda_mail_room(&g->mail)) ig_cuda_wait(g);
        ig_cuda_touched x = {};
        x.layer = layer;
        x.written = ig_cuda_mail_list(&g->mail, r->told, IG_RESIDENCY_TOLD);
        x.n_written = IG_RESIDENCY_TOLD;
        ig_cuda_touch(g->work, r, &x);
        r->n_told = 0;
    }
}

/* Before jobs are sent. Foreseen ones are of the step under way. */
void ig_cuda_begin_touching(gpu *g, const ig_attention *job, bool ahead) {
    ig_residency *r = job->views->copies;
    if (!r) return;
    int layer = ig_residency_layer(r, job->views);
    if (r->is_new) open_books(g, r);
    if (!ahead) ig_residency_begin(r, layer);
    tell_written(g, r, layer);
}

/* ---- opening ----------------------------------------------------------------------------- */

void ig_cuda_close_copies(ig_device *d, ig_residency *r) {
    gpu *g = enter(d);
    ig_cuda_wait(g);
    note(g, cudaFree(r->books.copies));
    leave(g);
    ig_residency_close(r);
}

ig_status ig_cuda_open_copies(ig_device *d, ig_residency **out, const ig_residency_shape *shape, ig_error *err) {
    ig_residency *r;
    ig_arena a = {};
    ig_status s = ig_residency_open(&r, shape, err);
    *out = NULL;
    if (s) return s;
    ig_residency_lay_out(r, &a);
    a.size = a.used;
    a.used = 0;
    gpu *g = enter(d);
    a.base = (char *)ig_cuda_take(g, a.size);
    leave(g);
    if (a.base) {
        ig_residency_lay_out(r, &a);
        *out = r;
        return IG_OK;
    }
    ig_residency_close(r);
    return ig_cuda_fail(err, g, "copies of K and V (--kv-vram)", cudaErrorMemoryAllocation);
}
