/* SPDX-License-Identifier: Apache-2.0
 *
 * Entries are weighed, softmax weights summed over a group, and picked by their weights, as ig_chooser_choose() of
 * policy/choose.h and ig_pick() of policy/pick.c do it. The weight that parts the chosen from the others is found digit
 * by digit: the bits of a non-negative float rise with its value, so that counts and sums of the weights that have a
 * digit tell which digit it has. Many blocks of threads share a list, each a page of its entries, a thread EACH side by
 * side; what they count meets on the list's board, and the kernel behind finds the digit there, each block of threads
 * by itself. All they add up are whole numbers, whose sums do not depend on their order.
 */
#include "device/cuda/scan.cuh"

#include <math.h>

enum {
    THREADS = 256,
    WARPS = THREADS / IG_WARP,
    EACH = 4,
    PAGE = EACH * THREADS,
    AHEAD = 4 /* numbers of each kind that a lane has under way */
};
static_assert(IG_SCAN_PART == EACH * IG_WARP, "a warp has a part of the scan");

#define IG_ALL_UNITS (~0ull)

static __device__ __forceinline__ ig_cuda_units units_of(float w) {
    return w > 0 ? (ig_cuda_units)(fminf(w, 0x1p20f) * IG_CUDA_UNITS) : 0;
}

/* Entries [begin, end) are chosen by their weight: the others are sinks or recent. */
typedef struct range {
    int begin, end;
} range;

static __device__ range weighed_range(const ig_scan_list *x) {
    const ig_pick_rule *r = &x->rule;
    range of;
    of.begin = r->n_sinks < x->n ? r->n_sinks : x->n;
    of.end = r->n_recent < x->n - of.begin ? x->n - r->n_recent : of.begin;
    return of;
}

static __device__ __forceinline__ bool is_in(range of, int i) { return i >= of.begin && i < of.end; }

/* The first entry of a thread, of a page. */
static __device__ __forceinline__ int first_of(int page) { return page * PAGE + (int)threadIdx.x * EACH; }

/* A thread's weights, as bits; 0 where there are none. */
typedef struct weights {
    unsigned bits[EACH];
} weights;

static __device__ __forceinline__ weights fetch_weights(const ig_cuda_scratch *s, const ig_scan_list *x, int first) {
    uint4 w = {0, 0, 0, 0};
    if (first < x->n) w = *(const uint4 *)(const void *)(s->weights + first);
    return weights{{w.x, w.y, w.z, w.w}};
}

/* ---- digits ----------------------------------------------------------------------------- */

/* Shared memory of a block of threads that counts digits. Sums are in halves, as there are few units that add 64 bits
 * there. */
typedef struct tally {
    unsigned low[IG_PICK_BINS], high[IG_PICK_BINS], counts[IG_PICK_BINS];
} tally;

static __device__ void clear_tally(tally *t) {
    uint4 *all = (uint4 *)(void *)t;
    for (int i = (int)threadIdx.x; i < (int)(sizeof *t / sizeof *all); i += THREADS) all[i] = uint4{0, 0, 0, 0};
}

static __device__ __forceinline__ void add_weight(tally *t, unsigned bin, ig_cuda_units w) {
    unsigned low = (unsigned)w, high = (unsigned)(w >> 32);
    atomicAdd(&t->counts[bin], 1u);
    high += atomicAdd(&t->low[bin], low) + low < low;
    if (high) atomicAdd(&t->high[bin], high);
}

static __device__ __forceinline__ int shift_of(int digit) { return (IG_PICK_DIGITS - 1 - digit) * IG_PICK_BITS; }

/* Of the threads' weights whose upper digits are the threshold's, so many for each value of this one. */
static __device__ void count_digits(tally *t, ig_cuda_board *b, const weights *w, int first, range of, int digit,
                                    unsigned upper) {
    int shift = shift_of(digit);
    IG_UNROLL for (int i = 0; i < EACH; i++) {
        unsigned bits = w->bits[i];
        bool counts = is_in(of, first + i) && (digit == 0 || bits >> (shift + IG_PICK_BITS) == upper);
        if (counts) add_weight(t, bits >> shift & (IG_PICK_BINS - 1), units_of(__uint_as_float(bits)));
    }
    __syncthreads();
    IG_UNROLL for (int i = 0; i < IG_PICK_BINS; i += THREADS) {
        int bin = i + (int)threadIdx.x;
        if (!t->counts[bin]) continue;
        atomicAdd(&b->counts[digit][bin], t->counts[bin]);
        atomicAdd(&b->sums[digit][bin], (ig_cuda_units)t->high[bin] << 32 | t->low[bin]);
    }
}

/* Shared memory of a block of threads that finds a digit. */
typedef struct search {
    ig_cuda_units sums[WARPS];
    unsigned counts[WARPS];
    ig_cuda_goal before, goal; /* by the digits above, and by this one too */
} search;

/* Of lists that choose in common: so many entries each, on the average of those that are near the best; by a warp. */
static __device__ int common_count(const ig_scan_list *x, int most) {
    const ig_scan_list *first = x - x->columns.list;
    ig_cuda_units sum = 0;
    for (int i = (int)threadIdx.x % IG_WARP; i < x->columns.n_lists; i += IG_WARP)
        sum += ig_cuda_scratch_of(&first[i]).board->all;
    int mean = (int)(ig_warp_sum(sum) / (ig_cuda_units)x->columns.n_lists);
    return mean > most ? most : mean < 1 ? 1 : mean;
}

/* What is to be chosen by weight, of all; by a warp. */
static __device__ ig_cuda_goal first_goal(const ig_cuda_board *b, const ig_scan_list *x, range of) {
    double mass = x->rule.mass, more = (double)b->more / (double)IG_CUDA_UNITS;
    double sum = x->sink_scores ? (double)(b->all - b->more) / (double)IG_CUDA_UNITS : x->group;
    if (x->favour.inertia > 0) mass = 1 - (1 - mass) * sum / (sum + more);
    double until = mass * (double)b->all - (double)b->always;
    ig_cuda_goal goal = {IG_PICK_NONE, 0, x->rule.count - of.begin - (x->n - of.end), 0};
    goal.mass = !(mass < 1) ? IG_ALL_UNITS : until > 0 ? (ig_cuda_units)until : 0;
    if (x->columns.n) goal.count = common_count(x, goal.count);
    if (of.begin < of.end && goal.count > 0 && goal.mass) goal.picks = IG_PICK_SOME;
    return goal;
}

/* The next digit of the threshold: the one at which what lies above becomes too much. A thread looks at a few bins, the
 * first one at the highest. Where nothing is too much, which the first digit shows, all are chosen. One warp computes
 * the first goal: many GPUs have few units for its 64 bits. */
static __device__ void find_digit(search *s, const ig_cuda_board *b, const ig_scan_list *x, range of, int digit) {
    enum { BINS = IG_PICK_BINS / THREADS };
    int thread = (int)threadIdx.x, warp = thread / IG_WARP, lowest = IG_PICK_BINS - (thread + 1) * BINS;
    const uint4 *own_counts = (const uint4 *)(const void *)&b->counts[digit][lowest];
    const uint4 *own_sums = (const uint4 *)(const void *)&b->sums[digit][lowest];
    unsigned counts[BINS], count = 0;
    ig_cuda_units sums[BINS], sum = 0;
    IG_UNROLL for (int i = 0; i < BINS / 4; i++) {
        uint4 c = own_counts[i];
        counts[4 * i] = c.x, counts[4 * i + 1] = c.y, counts[4 * i + 2] = c.z, counts[4 * i + 3] = c.w;
    }
    IG_UNROLL for (int i = 0; i < BINS / 2; i++) {
        uint4 c = own_sums[i];
        sums[2 * i] = (ig_cuda_units)c.y << 32 | c.x, sums[2 * i + 1] = (ig_cuda_units)c.w << 32 | c.z;
    }
    if (warp == WARPS - 1) {
        ig_cuda_goal before = digit > 0 ? b->goals[digit - 1] : first_goal(b, x, of);
        if (thread % IG_WARP == 0) {
            s->before = s->goal = before;
            if (before.picks == IG_PICK_SOME && digit == 0) s->goal.picks = IG_PICK_ALL;
        }
    }
    IG_UNROLL for (int i = 0; i < BINS; i++) count += counts[i], sum += sums[i];
    unsigned own_count = count;
    ig_cuda_units own_sum = sum;
    count = ig_warp_sum_before(count), sum = ig_warp_sum_before(sum);
    if (thread % IG_WARP == IG_WARP - 1) s->counts[warp] = count + own_count, s->sums[warp] = sum + own_sum;
    __syncthreads();
    for (int i = 0; i < warp; i++) count += s->counts[i], sum += s->sums[i];
    const ig_cuda_goal goal = s->before;
    const unsigned most = (unsigned)goal.count;
    bool is_sought = goal.picks == IG_PICK_SOME && count <= most && sum < goal.mass;
    IG_UNROLL for (int i = BINS - 1; i >= 0; i--) {
        if (is_sought && (count + counts[i] > most || sum + sums[i] >= goal.mass)) {
            s->goal.picks = IG_PICK_SOME;
            s->goal.digits = goal.digits << IG_PICK_BITS | (unsigned)(lowest + i);
            s->goal.count = goal.count - (int)count;
            if (goal.mass != IG_ALL_UNITS) s->goal.mass = goal.mass - sum;
            is_sought = false;
        }
        count += counts[i], sum += sums[i];
    }
    __syncthreads();
}

/* ---- weights ------------------------------------------------------------------------------ */

/* Shared memory of a block of threads; shares [WARPS][group] are behind it. */
typedef struct weighing {
    tally t;
    float w[PAGE];
    float mean[PAGE], more[PAGE]; /* of blocks of the KV store: what their weights get of the mean, and gain */
} weighing;

/* What a query's exponentials of the page's parts of the scan are to be multiplied by: lane i of a warp gets that of
 * part i. */
static __device__ float share_of(const ig_cuda_scratch *s, const ig_scan_list *x, int g) {
    int lane = (int)threadIdx.x % IG_WARP, n = ig_cuda_scan_parts(x->n), part = (int)blockIdx.x * WARPS + lane;
    const float *tops = s->top + (size_t)g * (size_t)n, *totals = s->total + (size_t)g * (size_t)n;
    float top = -INFINITY, total = 0, own = lane < WARPS && part < n ? tops[part] : -INFINITY;
    for (int first = lane; first < n; first += AHEAD * IG_WARP) {
        float t[AHEAD], sum[AHEAD], before = top;
        IG_UNROLL for (int k = 0; k < AHEAD; k++) {
            int p = first + k * IG_WARP;
            t[k] = p < n ? tops[p] : -INFINITY;
            sum[k] = p < n ? totals[p] : 0;
        }
        IG_UNROLL for (int k = 0; k < AHEAD; k++) top = fmaxf(top, t[k]);
        if (top == -INFINITY) continue;
        total *= expf(before - top);
        IG_UNROLL for (int k = 0; k < AHEAD; k++) total += sum[k] * expf(t[k] - top);
    }
    float most = ig_warp_max(top);
    total = ig_warp_sum(top > -INFINITY ? total * expf(top - most) : 0.0f);
    if (x->sink_scores) total += expf(x->sink_scores[g] - most);
    return total > 0 && own > -INFINITY ? expf(own - most) / total : 0;
}

/* Shares of the page's parts for all queries, to shared memory and for what comes later. */
static __device__ void share_out(float *shares, const ig_cuda_scratch *s, const ig_scan_list *x) {
    int lane = (int)threadIdx.x % IG_WARP, n = ig_cuda_scan_parts(x->n), part = (int)blockIdx.x * WARPS + lane;
    for (int g = (int)threadIdx.x / IG_WARP; g < x->group; g += WARPS) {
        float share = share_of(s, x, g);
        if (lane >= WARPS) continue;
        shares[lane * x->group + g] = share;
        if (part < n) s->share[(size_t)g * (size_t)n + (size_t)part] = share;
    }
}

/* The group's shares of the attention of a thread's entries, added up in the order of the queries. */
static __device__ void add_shares(float w[EACH], const float *shares, const ig_cuda_scratch *s, const ig_scan_list *x,
                                  int first) {
    const float *row = s->exps + first, *own = shares + (int)threadIdx.x / IG_WARP * x->group;
    for (int i = 0; i < EACH; i++) w[i] = 0;
    if (first >= x->n) return;
    for (int g = 0; g < x->group; g += AHEAD) {
        float4 e[AHEAD];
        IG_UNROLL for (int k = 0; k < AHEAD; k++) if (g + k < x->group) e[k] =
            *(const float4 *)(const void *)(row + (size_t)(g + k) * s->stride);
        IG_UNROLL for (int k = 0; k < AHEAD; k++) {
            if (g + k >= x->group) break;
            float share = own[g + k];
            w[0] += share * e[k].x, w[1] += share * e[k].y, w[2] += share * e[k].z, w[3] += share * e[k].w;
        }
    }
}

static __device__ void add_units(ig_cuda_units *to, ig_cuda_units mine) {
    mine = ig_warp_sum(mine);
    if (threadIdx.x % IG_WARP == 0 && mine) atomicAdd(to, mine);
}

/* A thread is a block of the KV store, of which a page has whole ones: what its weights get. */
static __device__ void look_at_blocks(weighing *b, const ig_scan_list *x) {
    const ig_pick_favour *f = &x->favour;
    int page = (int)blockIdx.x * PAGE;
    for (int k = (int)threadIdx.x; k * f->block < PAGE && page + k * f->block < x->n; k += THREADS) {
        int begin = k * f->block, end = x->n - page - begin < f->block ? x->n - page : begin + f->block;
        int block = page / f->block + k;
        bool used = f->inertia > 0 && block < f->n_known && f->used[block >> 3] >> (block & 7) & 1;
        float sum = 0;
        for (int i = begin; i < end; i++) sum += b->w[i];
        b->mean[k] = f->locality * (sum / (float)(end - begin));
        b->more[k] = used ? f->inertia : 0;
    }
}

/* What becomes of a thread's weights, and what they add up to. */
static __device__ void favour(weighing *b, ig_cuda_board *board, float w[EACH], const ig_scan_list *x, int first,
                              range of) {
    const ig_pick_favour *f = &x->favour;
    ig_cuda_units all = 0, always = 0, more = 0;
    int at = (int)threadIdx.x * EACH;
    for (int i = 0; i < EACH; i++) b->w[at + i] = w[i];
    __syncthreads();
    look_at_blocks(b, x);
    __syncthreads();
    for (int i = 0; i < EACH; i++) {
        if (first + i >= x->n) break;
        int k = (at + i) / f->block;
        if (f->locality > 0) w[i] = (1 - f->locality) * w[i] + b->mean[k];
        float gain = b->more[k] * w[i];
        w[i] += gain;
        more += units_of(gain);
        ig_cuda_units own = units_of(w[i]);
        all += own;
        if (!is_in(of, first + i)) always += own;
    }
    add_units(&board->all, all);
    add_units(&board->always, always);
    add_units(&board->more, more);
}

/* Of scores by columns: what they are above the lowest; and how many of the page's are near the best, on the board. */
static __device__ void weigh_scores(float w[EACH], const ig_cuda_scratch *s, const ig_scan_list *x, int first) {
    int lane = (int)threadIdx.x % IG_WARP, n = ig_cuda_scan_parts(x->n), end = x->n - (x->k ? 1 : 0);
    float top = -INFINITY, low = -INFINITY;
    for (int p = lane; p < n; p += IG_WARP) top = fmaxf(top, s->top[p]), low = fmaxf(low, -s->total[p]);
    top = ig_warp_max(top), low = -ig_warp_max(low);
    ig_cuda_units near = 0;
    float4 four = {0, 0, 0, 0};
    if (first < end) four = *(const float4 *)(const void *)(s->exps + first);
    const float score[EACH] = {four.x, four.y, four.z, four.w};
    for (int i = 0; i < EACH; i++) {
        bool is_there = first + i < end;
        w[i] = is_there ? score[i] - low : 0;
        near += is_there && score[i] > top - x->columns.alpha;
    }
    add_units(&s->board->all, near);
}

static __global__ void __launch_bounds__(THREADS) weigh(const ig_scan_list *lists) {
    ig_begin();
    IG_SHARED(weighing, b);
    const ig_scan_list *x = &lists[blockIdx.y];
    int page = (int)blockIdx.x, first = first_of(page);
    range of = weighed_range(x);
    if (page * PAGE >= x->n) return;
    ig_cuda_scratch s = ig_cuda_scratch_of(x);
    float w[EACH];
    clear_tally(&b->t);
    if (x->columns.n) {
        weigh_scores(w, &s, x, first);
        __syncthreads();
    } else {
        float *shares = (float *)(void *)(b + 1);
        share_out(shares, &s, x);
        __syncthreads();
        add_shares(w, shares, &s, x, first);
        favour(b, s.board, w, x, first, of);
    }
    if (first < x->n) *(float4 *)(void *)(s.weights + first) = float4{w[0], w[1], w[2], w[3]};
    weights own = {};
    for (int i = 0; i < EACH; i++) own.bits[i] = __float_as_uint(w[i]);
    count_digits(&b->t, s.board, &own, first, of, 0, 0);
}

/* ---- the threshold ---------------------------------------------------------------------- */

/* Shared memory of a block of threads. */
typedef struct narrowing {
    tally t;
    search s;
} narrowing;

/* Finds digit - 1 of the threshold, and counts what this one may be. */
static __global__ void __launch_bounds__(THREADS) narrow(const ig_scan_list *lists, int digit) {
    ig_begin();
    IG_SHARED(narrowing, n);
    const ig_scan_list *x = &lists[blockIdx.y];
    int page = (int)blockIdx.x, first = first_of(page);
    range of = weighed_range(x);
    if (page * PAGE >= x->n) return;
    ig_cuda_scratch s = ig_cuda_scratch_of(x);
    weights w = fetch_weights(&s, x, first);
    clear_tally(&n->t);
    find_digit(&n->s, s.board, x, of, digit - 1);
    if (page == 0 && threadIdx.x == 0) s.board->goals[digit - 1] = n->s.goal;
    if (n->s.goal.picks == IG_PICK_SOME) count_digits(&n->t, s.board, &w, first, of, digit, n->s.goal.digits);
}

/* ---- the list ----------------------------------------------------------------------------- */

/* Shared memory of a block of threads. */
typedef struct listing {
    int slots[PAGE];
    search s;
    ig_cuda_units totals[WARPS], before[WARPS];
    int page;
} listing;

/* Whether an entry is chosen in any case; and where it is not whether it is at the threshold. */
static __device__ __forceinline__ bool is_above(const ig_cuda_goal *goal, unsigned bits, int i, range of) {
    if (!is_in(of, i) || goal->picks == IG_PICK_ALL) return true;
    return goal->picks == IG_PICK_SOME && bits > goal->digits;
}

static __device__ __forceinline__ bool is_equal(const ig_cuda_goal *goal, unsigned bits, int i, range of) {
    return goal->picks == IG_PICK_SOME && is_in(of, i) && bits == goal->digits;
}

/* Of the entries at the threshold so many are chosen, the first ones. */
static __device__ int count_equal(const ig_cuda_goal *goal) {
    if (goal->picks != IG_PICK_SOME) return 0;
    ig_cuda_units each = units_of(__uint_as_float(goal->digits));
    ig_cuda_units enough = each && goal->mass != IG_ALL_UNITS ? (goal->mass - 1) / each + 1 : IG_ALL_UNITS;
    return enough < (ig_cuda_units)goal->count ? (int)enough : goal->count;
}

/* How many entries are above the threshold, in the upper half, and how many at it; on the board with a mark in front,
 * since 0 says that a page was not counted yet. */
#define IG_COUNTED (1ull << 63)

static __device__ __forceinline__ ig_cuda_units both(int above, int equal) {
    return (ig_cuda_units)above << 32 | (unsigned)equal;
}

/* Of these entries, which are the first ones of the list, so many are chosen. */
static __device__ __forceinline__ int chosen_of(ig_cuda_units counted, int most_equal) {
    int above = (int)(counted >> 32), equal = (int)(counted & 0xffffffffu);
    return above + (equal < most_equal ? equal : most_equal);
}

/* What the pages before this one have counted; to all threads. These pages were begun before it, so that none waits for
 * one that does not run. */
static __device__ ig_cuda_units count_before(listing *b, const volatile ig_cuda_units *pages) {
    ig_cuda_units sum = 0;
    for (int i = (int)threadIdx.x; i < b->page; i += THREADS) {
        ig_cuda_units counted;
        do counted = pages[i];
        while (!counted);
        sum += counted & ~IG_COUNTED;
    }
    sum = ig_warp_sum(sum);
    if (threadIdx.x % IG_WARP == 0) b->before[threadIdx.x / IG_WARP] = sum;
    __syncthreads();
    sum = 0;
    for (int i = 0; i < WARPS; i++) sum += b->before[i];
    return sum;
}

/* What is written where the host, or attention, reads it, and is no part of the rest. */
static __device__ void write_page(const listing *b, const ig_scan_list *x, int begin, int n) {
    for (int i = (int)threadIdx.x; i < n; i += THREADS) {
        int slot = b->slots[i];
        if (x->index) x->index[begin + i] = slot;
        if (x->picked) x->picked[begin + i] = slot;
    }
    if (threadIdx.x || (b->page + 1) * PAGE < x->n) return;
    if (x->index) *x->n_index = begin + n;
    if (x->picked) *x->n_picked = begin + n;
}

/* Slots of a page that are chosen, in order. Pages are given out in the order in which blocks of threads begin. */
static __global__ void __launch_bounds__(THREADS) list(const ig_scan_list *lists) {
    ig_begin();
    IG_SHARED(listing, l);
    const ig_scan_list *x = &lists[blockIdx.y];
    range of = weighed_range(x);
    if ((int)blockIdx.x * PAGE >= x->n) return;
    ig_cuda_scratch s = ig_cuda_scratch_of(x);
    if (threadIdx.x == 0) l->page = (int)atomicAdd(&s.board->n_listed, 1u);
    find_digit(&l->s, s.board, x, of, IG_PICK_DIGITS - 1);
    ig_cuda_goal goal = l->s.goal;
    int first = first_of(l->page), end = x->n, group = x->rest ? x->group : 0, n_above = 0, n_equal = 0;
    weights w = fetch_weights(&s, x, first);
    IG_UNROLL for (int i = 0; i < EACH; i++) {
        if (first + i >= end) break;
        bool equal = is_equal(&goal, w.bits[i], first + i, of);
        n_equal += equal;
        n_above += !equal && is_above(&goal, w.bits[i], first + i, of);
    }
    ig_cuda_units here = ig_sum_before(l->totals, both(n_above, n_equal)), page = 0;
    for (int i = 0; i < WARPS; i++) page += l->totals[i];
    if (threadIdx.x == 0) *(volatile ig_cuda_units *)&s.pages[l->page] = page | IG_COUNTED;
    int most = count_equal(&goal);
    ig_cuda_units before = count_before(l, s.pages);
    int begin = chosen_of(before, most), equal = (int)((before + here) & 0xffffffffu);
    int to = chosen_of(before + here, most) - begin;
    IG_UNROLL for (int i = 0; i < EACH; i++) {
        if (first + i >= end) break;
        bool at = is_equal(&goal, w.bits[i], first + i, of);
        bool take = at ? equal < most : is_above(&goal, w.bits[i], first + i, of);
        equal += at;
        if (!take) continue;
        l->slots[to++] = first + i;
        for (int g = 0; g < group; g++) s.exps[(size_t)g * s.stride + (size_t)(first + i)] = 0;
    }
    __syncthreads();
    write_page(l, x, begin, chosen_of(before + page, most) - begin);
}

void ig_cuda_pick(ig_queue q, const ig_scan_list *lists, int n, const ig_scan_list *most) {
    dim3 grid((unsigned)(most->n + PAGE - 1) / PAGE, (unsigned)n), block(THREADS);
    ig_launch(weigh, grid, block, sizeof(weighing) + WARPS * (size_t)most->group * sizeof(float), q, lists);
    for (int digit = 1; digit < IG_PICK_DIGITS; digit++)
        ig_launch(narrow, grid, block, sizeof(narrowing), q, lists, digit);
    ig_launch(list, grid, block, sizeof(listing), q, lists);
}
