/* SPDX-License-Identifier: Apache-2.0
 *
 * Entries are weighed, softmax weights summed over a group, and picked by their weights, as ig_chooser_choose() of
 * policy/choose.h and ig_pick() of policy/pick.c do it. The weight that parts the chosen from the others is found digit
 * by digit: the bits of a non-negative float rise with its value, so that counts and sums of the weights that have a
 * digit tell which digit it has. Many blocks of threads share a list, each PART entries of it; what they count meets on
 * the list's board, and the kernel behind finds the digit there, each block of threads by itself. All they add up are
 * whole numbers, whose sums do not depend on their order.
 */
#include "device/cuda/scan.cuh"

#include <math.h>

enum {
    THREADS = 512,
    WARPS = THREADS / IG_WARP,
    RUNS = 4, /* parts of the scan */
    PART = RUNS * IG_SCAN_PART,
    EACH = PART / THREADS
};

#define IG_UNITS 0x1p40f
#define IG_ALL_UNITS (~0ull)

static __device__ __forceinline__ ig_cuda_units units_of(float w) {
    return w > 0 ? (ig_cuda_units)(fminf(w, 0x1p20f) * IG_UNITS) : 0;
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

/* Entries of a block of threads. */
static __device__ range part_of(const ig_scan_list *x) {
    range of;
    of.begin = (int)blockIdx.x * PART;
    of.end = x->n - of.begin < PART ? x->n : of.begin + PART;
    return of;
}

/* ---- digits ----------------------------------------------------------------------------- */

/* Shared memory of a block of threads that counts digits. */
typedef struct tally {
    ig_cuda_units sums[IG_PICK_BINS];
    unsigned counts[IG_PICK_BINS];
} tally;

static __device__ void clear_tally(tally *t) {
    for (int i = (int)threadIdx.x; i < IG_PICK_BINS; i += THREADS) t->sums[i] = 0, t->counts[i] = 0;
}

static __device__ __forceinline__ int shift_of(int digit) { return (IG_PICK_DIGITS - 1 - digit) * IG_PICK_BITS; }

/* Of the part's weights whose upper digits are the threshold's, so many for each value of this one. */
static __device__ void count_digits(tally *t, ig_cuda_board *b, const float *w, range part, range of, int digit,
                                    unsigned upper) {
    int shift = shift_of(digit), first = part.begin > of.begin ? part.begin : of.begin,
        end = part.end < of.end ? part.end : of.end;
    for (int i = first + (int)threadIdx.x; i < end; i += THREADS) {
        unsigned bits = __float_as_uint(w[i]), bin = bits >> shift & (IG_PICK_BINS - 1);
        if (digit > 0 && bits >> (shift + IG_PICK_BITS) != upper) continue;
        atomicAdd(&t->counts[bin], 1u);
        atomicAdd(&t->sums[bin], units_of(w[i]));
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < IG_PICK_BINS; i += THREADS) {
        if (!t->counts[i]) continue;
        atomicAdd(&b->counts[digit][i], t->counts[i]);
        atomicAdd(&b->sums[digit][i], t->sums[i]);
    }
}

/* Shared memory of a block of threads that finds a digit. */
typedef struct search {
    ig_cuda_units sums[THREADS], sum_totals[WARPS];
    unsigned counts[THREADS], count_totals[WARPS];
    ig_cuda_goal before, goal; /* by the digits above, and by this one too */
} search;

/* Of lists that choose in common: so many entries each, on the average of those that are near the best. */
static __device__ int common_count(const ig_scan_list *x, int most) {
    const ig_scan_list *first = x - x->columns.list;
    ig_cuda_units sum = 0;
    for (int i = 0; i < x->columns.n_lists; i++) sum += ig_cuda_scratch_of(&first[i]).board->all;
    int mean = (int)(sum / (ig_cuda_units)x->columns.n_lists);
    return mean > most ? most : mean < 1 ? 1 : mean;
}

/* What is to be chosen by weight, of all. */
static __device__ ig_cuda_goal first_goal(const ig_cuda_board *b, const ig_scan_list *x, range of) {
    double group = x->group, mass = x->rule.mass;
    if (x->favour.inertia > 0) mass = 1 - (1 - mass) * group / (group + (double)b->more / (double)IG_UNITS);
    double until = mass * (double)b->all - (double)b->always;
    ig_cuda_goal goal = {IG_PICK_NONE, 0, x->rule.count - of.begin - (x->n - of.end), 0};
    goal.mass = !(mass < 1) ? IG_ALL_UNITS : until > 0 ? (ig_cuda_units)until : 0;
    if (x->columns.n) goal.count = common_count(x, goal.count);
    if (of.begin < of.end && goal.count > 0 && goal.mass) goal.picks = IG_PICK_SOME;
    return goal;
}

/* The next digit of the threshold: the one at which what lies above becomes too much. A thread looks at a few bins, the
 * first one at the highest. Where nothing is too much, which the first digit shows, all are chosen. One thread computes
 * the first goal: many GPUs have few units for its 64 bits. */
static __device__ void find_digit(search *s, const ig_cuda_board *b, const ig_scan_list *x, range of, int digit) {
    enum { BINS = IG_PICK_BINS / THREADS };
    const ig_cuda_units *sums = b->sums[digit];
    const unsigned *counts = b->counts[digit];
    int last = IG_PICK_BINS - 1 - (int)threadIdx.x * BINS;
    unsigned count = 0;
    ig_cuda_units sum = 0;
    if (threadIdx.x == 0) {
        s->before = s->goal = digit > 0 ? b->goals[digit - 1] : first_goal(b, x, of);
        if (s->goal.picks == IG_PICK_SOME && digit == 0) s->goal.picks = IG_PICK_ALL;
    }
    for (int i = last; i > last - BINS; i--) count += counts[i], sum += sums[i];
    count = ig_sum_before(s->counts, s->count_totals, count);
    sum = ig_sum_before(s->sums, s->sum_totals, sum);
    const ig_cuda_goal goal = s->before;
    const unsigned most = (unsigned)goal.count;
    if (goal.picks == IG_PICK_SOME && count <= most && sum < goal.mass)
        for (int i = last; i > last - BINS; i--) {
            if (count + counts[i] > most || sum + sums[i] >= goal.mass) {
                s->goal.picks = IG_PICK_SOME;
                s->goal.digits = goal.digits << IG_PICK_BITS | (unsigned)i;
                s->goal.count = goal.count - (int)count;
                if (goal.mass != IG_ALL_UNITS) s->goal.mass = goal.mass - sum;
                break;
            }
            count += counts[i], sum += sums[i];
        }
    __syncthreads();
}

/* ---- weights ------------------------------------------------------------------------------ */

/* What a query's exponentials of a part of the scan are to be multiplied by; by a warp, to all its lanes. */
static __device__ float share_of(const ig_cuda_scratch *s, const ig_scan_list *x, int part, int g) {
    int lane = (int)threadIdx.x % IG_WARP, n = ig_cuda_scan_parts(x->n);
    float top = -INFINITY, total = 0;
    for (int p = lane; p < n; p += IG_WARP) top = fmaxf(top, s->top[p * x->group + g]);
    top = ig_warp_max(top);
    for (int p = lane; p < n; p += IG_WARP) {
        float own = s->top[p * x->group + g];
        if (own > -INFINITY) total += s->total[p * x->group + g] * expf(own - top);
    }
    total = ig_warp_sum(total);
    float own = s->top[part * x->group + g];
    return total > 0 && own > -INFINITY ? expf(own - top) / total : 0;
}

static __device__ void add_units(ig_cuda_units *to, ig_cuda_units mine) {
    mine = ig_warp_sum(mine);
    if (threadIdx.x % IG_WARP == 0 && mine) atomicAdd(to, mine);
}

/* A thread is a block of the KV store, of which a part has whole ones. */
static __device__ void favour(ig_cuda_board *b, float *w, const ig_scan_list *x, range part, range of) {
    const ig_pick_favour *f = &x->favour;
    ig_cuda_units all = 0, always = 0, more = 0;
    int begin = part.begin + (int)threadIdx.x * f->block;
    for (; begin < part.end; begin += THREADS * f->block) {
        int end = x->n - begin < f->block ? x->n : begin + f->block, k = begin / f->block;
        bool used = f->inertia > 0 && k < f->n_known && f->used[k >> 3] >> (k & 7) & 1;
        float sum = 0, mean, before = 0;
        for (int i = begin; i < end; i++) sum += w[i];
        mean = f->locality * (sum / (float)(end - begin));
        for (int i = begin; i < end; i++) {
            float own = w[i];
            if (f->locality > 0) own = (1 - f->locality) * own + mean;
            before += own;
            if (used) own += f->inertia * own;
            w[i] = own;
            all += units_of(own);
            if (i < of.begin || i >= of.end) always += units_of(own);
        }
        if (used) more += units_of(f->inertia * before);
    }
    add_units(&b->all, all);
    add_units(&b->always, always);
    add_units(&b->more, more);
}

/* Of scores by columns: what they are above the lowest; and how many of the part's are near the best, on the board. */
static __device__ void weigh_scores(ig_cuda_scratch *s, const ig_scan_list *x, range part) {
    int lane = (int)threadIdx.x % IG_WARP, n = ig_cuda_scan_parts(x->n), end = x->n - (x->k ? 1 : 0);
    float top = -INFINITY, low = -INFINITY;
    for (int p = lane; p < n; p += IG_WARP) top = fmaxf(top, s->top[p]), low = fmaxf(low, -s->total[p]);
    top = ig_warp_max(top), low = -ig_warp_max(low);
    ig_cuda_units near = 0;
    for (int i = part.begin + (int)threadIdx.x; i < part.end; i += THREADS) {
        s->weights[i] = i < end ? s->exps[i] - low : 0;
        near += i < end && s->exps[i] > top - x->columns.alpha;
    }
    add_units(&s->board->all, near);
}

static __global__ void weigh(const ig_scan_list *lists) {
    ig_begin();
    IG_SHARED(tally, t);
    float *shares = (float *)(void *)(t + 1); /* [RUNS][group] */
    const ig_scan_list *x = &lists[blockIdx.y];
    range part = part_of(x), of = weighed_range(x);
    if (part.begin >= x->n) return;
    ig_cuda_scratch s = ig_cuda_scratch_of(x);
    clear_tally(t);
    if (x->columns.n) {
        weigh_scores(&s, x, part);
        __syncthreads();
        count_digits(t, s.board, s.weights, part, of, 0, 0);
        return;
    }
    for (int k = (int)threadIdx.x / IG_WARP; k < RUNS * x->group; k += WARPS) {
        int run = (int)blockIdx.x * RUNS + k / x->group, g = k % x->group;
        if (run >= ig_cuda_scan_parts(x->n)) break;
        float share = share_of(&s, x, run, g);
        if (threadIdx.x % IG_WARP == 0) s.share[run * x->group + g] = shares[k] = share;
    }
    __syncthreads();
    for (int i = part.begin + (int)threadIdx.x; i < part.end; i += THREADS) {
        const float *own = shares + (i - part.begin) / IG_SCAN_PART * x->group;
        float sum = 0;
        for (int g = 0; g < x->group; g++) sum += own[g] * s.exps[(size_t)g * s.stride + (size_t)i];
        s.weights[i] = sum;
    }
    __syncthreads();
    favour(s.board, s.weights, x, part, of);
    __syncthreads();
    count_digits(t, s.board, s.weights, part, of, 0, 0);
}

/* ---- the threshold ---------------------------------------------------------------------- */

/* Shared memory of a block of threads. */
typedef struct narrowing {
    search s;
    tally t;
} narrowing;

/* Finds digit - 1 of the threshold, and counts what this one may be. */
static __global__ void narrow(const ig_scan_list *lists, int digit) {
    ig_begin();
    IG_SHARED(narrowing, b);
    const ig_scan_list *x = &lists[blockIdx.y];
    range part = part_of(x), of = weighed_range(x);
    if (part.begin >= x->n) return;
    ig_cuda_scratch s = ig_cuda_scratch_of(x);
    clear_tally(&b->t);
    find_digit(&b->s, s.board, x, of, digit - 1);
    if (blockIdx.x == 0 && threadIdx.x == 0) s.board->goals[digit - 1] = b->s.goal;
    if (b->s.goal.picks == IG_PICK_SOME) count_digits(&b->t, s.board, s.weights, part, of, digit, b->s.goal.digits);
}

/* Whether an entry is chosen in any case; and where it is not whether it is at the threshold. */
static __device__ __forceinline__ bool is_above(const ig_cuda_goal *goal, const float *w, int i, range of) {
    if (i < of.begin || i >= of.end || goal->picks == IG_PICK_ALL) return true;
    return goal->picks == IG_PICK_SOME && __float_as_uint(w[i]) > goal->digits;
}

static __device__ __forceinline__ bool is_equal(const ig_cuda_goal *goal, const float *w, int i, range of) {
    return goal->picks == IG_PICK_SOME && i >= of.begin && i < of.end && __float_as_uint(w[i]) == goal->digits;
}

/* Entries of the part that are chosen, and that are at the threshold. */
static __global__ void count(const ig_scan_list *lists) {
    ig_begin();
    IG_SHARED(search, found);
    const ig_scan_list *x = &lists[blockIdx.y];
    range part = part_of(x), of = weighed_range(x);
    if (part.begin >= x->n) return;
    ig_cuda_scratch s = ig_cuda_scratch_of(x);
    int n_above = 0, n_equal = 0;
    find_digit(found, s.board, x, of, IG_PICK_DIGITS - 1);
    ig_cuda_goal goal = found->goal;
    for (int i = part.begin + (int)threadIdx.x; i < part.end; i += THREADS) {
        n_above += is_above(&goal, s.weights, i, of);
        n_equal += is_equal(&goal, s.weights, i, of);
    }
    ig_cuda_units both = (ig_cuda_units)n_above << 32 | (unsigned)n_equal, all = 0;
    ig_sum_before(found->sums, found->sum_totals, both);
    if (threadIdx.x) return;
    for (int i = 0; i < WARPS; i++) all += found->sum_totals[i];
    s.above[blockIdx.x] = (int)(all >> 32), s.equal[blockIdx.x] = (int)(all & 0xffffffffu);
    if (blockIdx.x == 0) s.board->goals[IG_PICK_DIGITS - 1] = goal;
}

/* ---- the list ----------------------------------------------------------------------------- */

/* Shared memory of a block of threads. */
typedef struct page {
    int slots[PART];
    int counted[THREADS], totals[WARPS];
} page;

/* Of the entries at the threshold so many are chosen, the first ones. */
static __device__ int count_equal(const ig_cuda_goal *goal) {
    if (goal->picks != IG_PICK_SOME) return 0;
    ig_cuda_units each = units_of(__uint_as_float(goal->digits));
    ig_cuda_units enough = each && goal->mass != IG_ALL_UNITS ? (goal->mass - 1) / each + 1 : IG_ALL_UNITS;
    return enough < (ig_cuda_units)goal->count ? (int)enough : goal->count;
}

/* Slots of the part that are chosen, in order, a thread a run of entries. */
static __global__ void list(const ig_scan_list *lists) {
    ig_begin();
    IG_SHARED(page, p);
    const ig_scan_list *x = &lists[blockIdx.y];
    range part = part_of(x), of = weighed_range(x);
    if (part.begin >= x->n) return;
    ig_cuda_scratch s = ig_cuda_scratch_of(x);
    ig_cuda_goal goal = s.board->goals[IG_PICK_DIGITS - 1];
    int first = part.begin + (int)threadIdx.x * EACH, last = part.end - first < EACH ? part.end : first + EACH;
    int most = count_equal(&goal), above = 0, equal = 0, chosen = 0, n = 0;
    for (int i = 0; i < (int)blockIdx.x; i++) above += s.above[i], equal += s.equal[i];
    int begin = above + (equal < most ? equal : most);
    int own = 0;
    for (int i = first; i < last; i++) own += is_equal(&goal, s.weights, i, of);
    equal += ig_sum_before(p->counted, p->totals, own);
    unsigned takes = 0; /* a bit for each */
    for (int i = first; i < last; i++) {
        bool at = is_equal(&goal, s.weights, i, of), take = at ? equal < most : is_above(&goal, s.weights, i, of);
        equal += at;
        chosen += take;
        takes |= (unsigned)take << (i - first);
    }
    int to = ig_sum_before(p->counted, p->totals, chosen);
    for (int i = first; i < last; i++)
        if (takes >> (i - first) & 1) p->slots[to++] = i;
    for (int i = 0; i < WARPS; i++) n += p->totals[i];
    __syncthreads();
    for (int i = (int)threadIdx.x; i < n; i += THREADS) {
        int slot = p->slots[i];
        if (x->index) x->index[begin + i] = slot;
        if (x->picked) x->picked[begin + i] = slot;
        for (int g = 0; g < x->group; g++) s.exps[(size_t)g * s.stride + (size_t)slot] = 0; /* no part of the rest */
    }
    if (threadIdx.x || part.end < x->n) return;
    if (x->index) *x->n_index = begin + n;
    if (x->picked) *x->n_picked = begin + n;
}

void ig_cuda_pick(ig_queue q, const ig_scan_list *lists, int n, const ig_scan_list *most) {
    dim3 grid((unsigned)(most->n + PART - 1) / PART, (unsigned)n), block(THREADS);
    ig_launch(weigh, grid, block, sizeof(tally) + RUNS * (size_t)most->group * sizeof(float), q, lists);
    for (int digit = 1; digit < IG_PICK_DIGITS; digit++)
        ig_launch(narrow, grid, block, sizeof(narrowing), q, lists, digit);
    ig_launch(count, grid, block, sizeof(search), q, lists);
    ig_launch(list, grid, block, sizeof(page), q, lists);
}
