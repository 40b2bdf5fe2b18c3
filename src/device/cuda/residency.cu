/* SPDX-License-Identifier: Apache-2.0
 *
 * The books of what the GPU has copies of (device/residency.h), kept by the GPU: before an attention one kernel goes
 * through its lists of rows, has each block's place in the table that attention reads, and orders copies of what is
 * worth it; a second one makes them.
 *
 * A block of threads looks at PART blocks of a KV head's sequences, those with the same numbers in all lists. Sequences
 * that share a block have it in the same place: so one thread looks at it for all lists, in their order, and needs
 * nothing of others. What is to be copied it puts on a list of the head. The last part of a head to be done has all
 * marks of the launch before it, and gives out the copies. Only which blocks get these, where there are too few,
 * depends on the order of the parts.
 *
 * Small copies by the driver reach a tenth of the bus's rate, loads of a kernel all of it, if there are enough of them
 * in enough multiprocessors: COPY_BLOCKS blocks of threads share a layer's orders, however few KV heads it has. A warp
 * takes a block, all of its loads under way at once. Both kernels run in the same queue, and all queues join before
 * another one looks: so orders stay until they are carried out.
 */
#include "device/cuda/gpu.cuh"
#include "device/cuda/rows.cuh"

enum {
    PART = 512,          /* blocks of a sequence that a block of threads looks at, a thread each */
    MOST_THREADS = PART, /* that look, and look for copies */
    WARPS = MOST_THREADS / IG_WARP,
    COPY_THREADS = 256,
    COPY_BLOCKS = 16, /* of these, at least, for all KV heads */
    LOADS = 8         /* of 16 bytes, of each lane at a time: 4 KiB of a warp */
};

/* Shared memory of a block of threads. */
typedef struct board {
    uint32_t found[MOST_THREADS]; /* copies that can be had */
    int totals[WARPS];
    unsigned listed[PART]; /* rows of each block in a list */
    ig_resident_table table;
    unsigned looked;     /* of its copies, by the hand */
    unsigned n_before;   /* wants on the list */
    unsigned hits, rows; /* of a job */
    bool is_last;
} board;

/* What is looked through. */
typedef struct touching {
    ig_resident_books books;
    size_t first_table, table_len; /* of the layer; blocks of a table */
    size_t copy_bytes, block_bytes, line_bytes, n_wants;
    int n_heads, begin, end; /* rows of each view */
    uint32_t step;
    bool ahead;              /* the lists are foreseen: they are not read now */
    const uint32_t *written; /* [n_written] blocks of the layer whose copies are of no use any more */
    int n_written;
} touching;

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
        int at = n + ig_sum_before(b->totals, (int)idle);
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

/* ---- lists ---------------------------------------------------------------------------- */

/* The first of entries [low, high) of an ascending list whose slot is not below this one; by a warp. */
static __device__ int first_from(const int32_t *index, int low, int high, int slot) {
    int lane = (int)threadIdx.x % IG_WARP;
    while (low < high) {
        int each = (high - low + IG_WARP - 1) / IG_WARP, at = low + lane * each;
        int below = ig_warp_sum((int)(at < high && index[at] < slot));
        if (!below) break;
        if (low + below * each < high) high = low + below * each;
        low += (below - 1) * each + 1;
    }
    return low;
}

/* Rows [begin, end) of a list, as far as they lie in the part that begins with block `first`, are added up by block. */
static __device__ void count_listed(unsigned *listed, const ig_kv_view *v, int begin, int end, int first) {
    if (v->is_ascending && first) begin = first_from(v->index, begin, end, first << v->shift);
    for (int i = begin + (int)threadIdx.x; i < end; i += (int)blockDim.x) {
        int at = (v->index[i] >> v->shift) - first;
        if (at >= 0 && at < PART) atomicAdd(&listed[at], 1u);
        if (at >= PART && v->is_ascending) break;
    }
}

/* How many of the rows lie in the thread's block of the part. */
static __device__ unsigned rows_here(board *b, const touching *t, const ig_kv_view *v, int first) {
    int n = ig_cuda_rows(v), begin = t->begin, end = t->end < n ? t->end : n;
    if (v->index) {
        count_listed(b->listed, v, begin, end, first);
        __syncthreads();
        unsigned here = b->listed[threadIdx.x];
        b->listed[threadIdx.x] = 0; /* until the next one there is a barrier */
        return here;
    }
    int low = (first + (int)threadIdx.x) << v->shift, high = low + (1 << v->shift);
    if (low < v->first + begin) low = v->first + begin;
    if (high > v->first + end) high = v->first + end;
    return low < high ? (unsigned)(high - low) : 0;
}

/* What the lists of a job were found to read. */
typedef struct reads {
    unsigned hits, rows;
} reads;

/* A want of each thread goes on the head's list, in their order; false: of this thread none does, or there is no room.
 */
static __device__ bool put_wants(board *b, const touching *t, ig_resident_want want) {
    unsigned rank = (unsigned)ig_sum_before(b->totals, (int)(want.n > 0)), n = 0;
    for (unsigned i = 0; i < blockDim.x / IG_WARP; i++) n += (unsigned)b->totals[i];
    if (!n) return false;
    if (threadIdx.x == 0) b->n_before = atomicAdd(&t->books.tables[t->first_table + blockIdx.y].n_wanted, n);
    __syncthreads();
    bool fits = want.n && b->n_before + rank < t->n_wants;
    if (fits) t->books.wanted[blockIdx.y * t->n_wants + b->n_before + rank] = want;
    return fits;
}

/* What the books say of a block of the sequence. */
typedef struct entry {
    size_t number, block;
    const uint8_t *at;
    ig_resident was;
} entry;

static __device__ __forceinline__ entry entry_of(const touching *t, const ig_kv_view *v, int in_sequence) {
    entry e = {0, 0, NULL, {0, 0}};
    if (in_sequence << v->shift >= v->n_slots) return e;
    e.number = ig_cuda_block(v, in_sequence << v->shift);
    e.block = v->table * t->table_len + e.number;
    e.at = t->books.where[e.block];
    e.was = t->books.blocks[e.block];
    return e;
}

/* Whether the block's number was sent whatever the list has; of a list of the host's those that are in it were. */
static __device__ __forceinline__ bool has_number(const ig_kv_view *v, int in_sequence) {
    int n_slots = !v->index ? v->first + v->n : v->n_listed ? v->n_slots : 0;
    return in_sequence << v->shift < n_slots;
}

/* Each thread's n rows of a block of the sequence: its copy is wanted again; or it is to get one; or the rows are read
 * in place. A block that may still grow gets one as soon as a step before has read it too, since the host has written
 * to it. Where lists are foreseen it is left out: the step's own row is not there yet. */
static __device__ void touch_blocks(board *b, const touching *t, const ig_kv_view *v, int job, int in_sequence, entry e,
                                    unsigned n, reads *found) {
    const ig_resident_table *own = &b->table;
    bool can_be = own->n_fresh < own->n || (own->n && (own->swept != t->step || own->looks));
    unsigned whole = 1u << v->shift, paid = 0;
    const uint8_t *home = NULL;
    ig_resident_want want = {0, 0, 0, 0};
    if (in_sequence << v->shift >= v->n_slots) n = 0;
    if (n && (size_t)e.at & 1) {
        t->books.blocks[e.block].used = t->step;
        if (!t->ahead) found->hits++;
        n = 0;
    } else if (n) {
        home = ig_cuda_home(v, in_sequence, e.number);
        if (e.at) paid = e.was.paid;
    }
    bool may_grow = (in_sequence + 1) << v->shift > v->n_slots, waits = paid >= whole;
    bool is_worth_it =
        may_grow ? e.at && !t->ahead && (waits || e.was.used != t->step) : paid + n >= whole && !(waits && t->ahead);
    if (n && home && can_be && is_worth_it) want = {(uint32_t)e.block, (unsigned)job, n, !waits};
    bool is_put = put_wants(b, t, want);
    if (!n || (t->ahead && !is_put)) return;
    if (!is_put) found->rows += n;
    paid = is_put && may_grow ? paid + whole : is_put || paid + n < whole ? paid + n : waits ? paid : whole - 1;
    t->books.blocks[e.block] = {t->step, paid};
    t->books.where[e.block] = home;
}

/* Adds to what is counted of a job. */
static __device__ void count(const touching *t, const ig_kv_view *v, unsigned hits, unsigned copied, unsigned rows) {
    unsigned long long *sums = ig_global((unsigned long long *)(void *)v->traffic);
    unsigned long long bytes = t->block_bytes + t->line_bytes, n_rows = ((uint64_t)copied << v->shift) + rows;
    if (hits) atomicAdd(&sums[0], (unsigned long long)hits);
    if (copied) atomicAdd(&sums[1], (unsigned long long)copied);
    if (rows) atomicAdd(&sums[2], (unsigned long long)rows);
    if (n_rows) atomicAdd(&sums[3], bytes * n_rows >> v->shift);
}

/* What all threads have found of a job. */
static __device__ void count_reads(board *b, const touching *t, const ig_kv_view *v, reads found) {
    found.hits = ig_warp_sum(found.hits), found.rows = ig_warp_sum(found.rows);
    if (threadIdx.x % IG_WARP == 0 && found.hits) atomicAdd(&b->hits, found.hits);
    if (threadIdx.x % IG_WARP == 0 && found.rows) atomicAdd(&b->rows, found.rows);
    __syncthreads();
    if (threadIdx.x == 0) {
        count(t, v, b->hits, 0, b->rows);
        b->hits = b->rows = 0; /* until others add to them there are barriers */
    }
}

/* ---- what is wanted ----------------------------------------------------------------------- */

/* Whether all other parts of the head are done. What their threads wrote was gathered by the barrier of count_reads()
 * before one of them fenced it and counted up; here one thread counts up and fences before a barrier, behind which no
 * thread reads what was in its L1 before. So plain loads and stores do. */
static __device__ bool is_last(board *b, ig_resident_table *table) {
    if (threadIdx.x == 0) {
        b->is_last = gridDim.x == 1;
        if (!b->is_last) {
            __threadfence();
            b->is_last = atomicAdd(&table->n_done, 1u) == gridDim.x - 1;
            __threadfence();
        }
    }
    __syncthreads();
    return b->is_last;
}

/* A want of each thread. The first of those that want a block asks for a copy, which is for all of them. Without one
 * all read in place, and the next row that is wanted asks again. Returns how many copies were ordered. */
static __device__ int give_copies(board *b, const touching *t, const ig_attention *jobs, const ig_resident_want *want,
                                  ig_resident_order *orders) {
    bool asks = want && want->is_first;
    int rank = ig_sum_before(b->totals, (int)asks), n = 0;
    for (unsigned i = 0; i < blockDim.x / IG_WARP; i++) n += b->totals[i];
    if (n) n = find_copies(b, t, n);
    if (asks && rank < n) {
        uint32_t copy = b->found[rank];
        orders[rank] = {t->books.where[want->block], want->block, copy};
        t->books.where[want->block] = address_of(t, copy);
        t->books.owner[copy] = want->block;
    } else if (asks) {
        unsigned *paid = &t->books.blocks[want->block].paid;
        *paid = t->ahead ? *paid - want->n : (1u << jobs[want->job].views->shift) - 1;
    }
    __syncthreads();
    if (want) {
        bool has_copy = (size_t)t->books.where[want->block] & 1, copied = has_copy && want->is_first;
        if (has_copy || !t->ahead) count(t, jobs[want->job].views, has_copy && !copied, copied, has_copy ? 0 : want->n);
    }
    return n;
}

static __device__ void give_all_copies(board *b, const touching *t, const ig_attention *jobs, int head,
                                       ig_resident_table *table) {
    const ig_resident_want *wanted = t->books.wanted + (size_t)head * t->n_wants;
    ig_resident_order *orders = t->books.orders + (size_t)head * t->table_len;
    unsigned n = table->n_wanted < t->n_wants ? table->n_wanted : (unsigned)t->n_wants;
    int n_ordered = 0;
    for (unsigned i = threadIdx.x; i - threadIdx.x < n; i += blockDim.x)
        n_ordered += give_copies(b, t, jobs, i < n ? &wanted[i] : NULL, orders + n_ordered);
    if (threadIdx.x) return;
    b->table.n_wanted = b->table.n_done = 0;
    b->table.n_ordered = (uint32_t)n_ordered;
    *table = b->table;
}

/* ---- making the copies ------------------------------------------------------------------ */

/* n bytes, rounded up to 16, by a warp. */
static __device__ __forceinline__ void copy_bytes(uint8_t *to, const uint8_t *from, size_t n, int lane) {
    for (size_t first = 16 * (size_t)lane; first < n; first += 16 * IG_WARP * LOADS) {
        uint4 x[LOADS] = {}; /* or what is not loaded costs twice the registers */
        for (int i = 0; i < LOADS; i++)
            if (first + 16 * IG_WARP * (size_t)i < n) x[i] = *(const uint4 *)(from + first + 16 * IG_WARP * (size_t)i);
        for (int i = 0; i < LOADS; i++)
            if (first + 16 * IG_WARP * (size_t)i < n) *(uint4 *)(to + first + 16 * IG_WARP * (size_t)i) = x[i];
    }
}

/* Orders of a layer, and where the blocks go. */
typedef struct copying {
    const ig_resident_order *orders; /* [n_heads][table_len] */
    const ig_resident_table *tables; /* [n_heads] */
    uint8_t *copies;
    const uint8_t *lines;
    size_t table_len, copy_bytes, block_bytes, line_bytes;
} copying;

static __global__ void __launch_bounds__(COPY_THREADS) copy_blocks(copying c) {
    ig_begin();
    const ig_resident_order *orders = c.orders + blockIdx.y * c.table_len;
    unsigned n = c.tables[blockIdx.y].n_ordered, warps = blockDim.x / IG_WARP, lane = threadIdx.x % IG_WARP;
    for (unsigned i = blockIdx.x * warps + threadIdx.x / IG_WARP; i < n; i += gridDim.x * warps) {
        ig_resident_order o = orders[i];
        uint8_t *to = c.copies + (size_t)o.copy * c.copy_bytes;
        copy_bytes(to, o.from, c.block_bytes, (int)lane);
        if (c.line_bytes) copy_bytes(to + c.block_bytes, c.lines + o.block * c.line_bytes, c.line_bytes, (int)lane);
    }
}

/* No more blocks of threads than a table could keep busy. */
static void carry_out_orders(ig_queue q, const ig_residency *r, size_t first_table, int n_tables) {
    const ig_residency_shape *s = &r->shape;
    int share = (COPY_BLOCKS + n_tables - 1) / n_tables;
    size_t most = (s->table_len * IG_WARP + COPY_THREADS - 1) / COPY_THREADS;
    dim3 grid((unsigned)min_int(share, (int)most), (unsigned)n_tables);
    copying c = {r->books.orders, r->books.tables + first_table,
                 r->books.copies, (const uint8_t *)s->lines,
                 s->table_len,    r->copy_bytes,
                 s->block_bytes,  s->line_bytes};
    ig_launch(copy_blocks, grid, dim3(COPY_THREADS), 0, q, c);
}

/* ---- launches ------------------------------------------------------------------------------ */

/* Of a table that no other block of threads looks at. */
static __device__ void forget_written(const touching *t, size_t table) {
    size_t first = table * t->table_len;
    for (int i = (int)threadIdx.x; i < t->n_written; i += (int)blockDim.x)
        if (t->written[i] - first < t->table_len) t->books.where[t->written[i]] = NULL;
}

/* Of all tables, before others look at them. */
static __global__ void forget(const uint8_t **where, const uint32_t *written, int n) {
    ig_begin();
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) where[written[i]] = NULL;
}

static __global__ void __launch_bounds__(MOST_THREADS, 2)
    touch(touching t, const ig_attention *jobs, int n_jobs, int n_views) {
    ig_begin();
    IG_SHARED(board, b);
    int head = (int)blockIdx.y, begin = head * n_views / t.n_heads, end = (head + 1) * n_views / t.n_heads;
    int first = (int)blockIdx.x * PART, in_sequence = first + (int)threadIdx.x;
    ig_resident_table *table = &t.books.tables[t.first_table + (size_t)head];
    b->listed[threadIdx.x] = 0;
    if (threadIdx.x == 0) b->table = *table, b->hits = b->rows = 0;
    forget_written(&t, t.first_table + (size_t)head);
    __syncthreads();
    for (int j = 0; j < n_jobs; j++) {
        const ig_kv_view *views = jobs[j].views;
        reads found = {0, 0};
        for (int i = begin; i < end; i++) {
            bool early = has_number(&views[i], in_sequence); /* it is on its way while the rows are counted */
            entry e = early ? entry_of(&t, &views[i], in_sequence) : entry{0, 0, NULL, {0, 0}};
            unsigned n = rows_here(b, &t, &views[i], first);
            if (n && !early) e = entry_of(&t, &views[i], in_sequence);
            touch_blocks(b, &t, &views[i], j, in_sequence, e, n, &found);
        }
        count_reads(b, &t, views, found);
    }
    if (is_last(b, table)) give_all_copies(b, &t, jobs, head, table);
}

/* Blocks of the sequences that are looked at, at most, and threads of a block of them. */
typedef struct extent {
    int blocks, threads;
} extent;

static extent measure(const ig_cuda_touched *x) {
    extent most = {x->n_jobs ? 1 : 0, 1};
    for (int j = 0; j < x->n_jobs; j++)
        for (int i = 0; i < x->n_views; i++) {
            const ig_kv_view *v = &x->jobs[j].views[i];
            int blocks = (v->n_slots + (1 << v->shift) - 1) >> v->shift, rows = v->index ? v->n : 0;
            most.blocks = max_int(most.blocks, blocks);
            most.threads = max_int(most.threads, max_int(blocks, rows));
        }
    most.threads = (min_int(most.threads, MOST_THREADS) + IG_WARP - 1) / IG_WARP * IG_WARP;
    return most;
}

void ig_cuda_touch(ig_queue q, const ig_residency *r, const ig_cuda_touched *x) {
    const ig_residency_shape *shape = &r->shape;
    const ig_kv_view *views = x->n_jobs ? x->jobs->views : NULL;
    int n_tables = views ? (int)(views[x->n_views - 1].table - views->table) + 1 : shape->n_heads;
    touching t = {r->books,
                  (size_t)x->layer * (size_t)shape->n_heads,
                  shape->table_len,
                  r->copy_bytes,
                  shape->block_bytes,
                  shape->line_bytes,
                  r->n_wants,
                  n_tables,
                  x->begin,
                  x->end,
                  r->step,
                  x->ahead,
                  x->written,
                  x->n_written};
    extent most = measure(x);
    unsigned parts = (unsigned)(most.blocks + PART - 1) / PART;
    if (parts != 1) {
        dim3 grid((unsigned)(x->n_written + MOST_THREADS - 1) / MOST_THREADS);
        ig_launch(forget, grid, dim3(MOST_THREADS), 0, q, r->books.where, x->written, x->n_written);
        t.n_written = 0;
    }
    ig_launch(touch, dim3(parts, (unsigned)n_tables), dim3((unsigned)most.threads), sizeof(board), q, t, x->sent,
              x->n_jobs, x->n_views);
    if (parts && r->n_copies) carry_out_orders(q, r, t.first_table, n_tables);
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
        x.written = ig_cuda_mail_put(&g->mail, r->told, IG_RESIDENCY_TOLD);
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
