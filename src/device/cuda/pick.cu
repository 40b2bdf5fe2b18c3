/* SPDX-License-Identifier: Apache-2.0
 *
 * Picking by weights, as ig_chooser_choose() of policy/choose.h and ig_pick() of policy/pick.c do it; a block of
 * threads is a list. The weight that parts the chosen from the others is found digit by digit: the bits of a
 * non-negative float rise with its value, so that counts and sums of the weights that have a digit tell which digit it
 * has. Sums are of whole units of 2^-40, and do not depend on their order.
 */
#include "device/cuda/scan.cuh"

#include <math.h>

enum { THREADS = 512, WARPS = THREADS / IG_WARP, DIGITS = 4, DIGIT_BITS = 8, BINS = 1 << DIGIT_BITS };
enum { COPIES = 8 }; /* of a bin, one for every so many lanes: most weights of a list have few upper digits */

typedef unsigned long long units;

#define IG_UNITS 0x1p40f
#define IG_ALL_UNITS (~0ull)

static __device__ __forceinline__ units units_of(float w) { return w > 0 ? (units)(fminf(w, 0x1p20f) * IG_UNITS) : 0; }

/* Shared memory of a block of threads. */
typedef struct board {
    units sums[BINS][COPIES]; /* of weights that have a digit, and their number; then all in the first copy */
    unsigned counts[BINS][COPIES];
    units part_sums[IG_WARP]; /* of the bins of a lane */
    unsigned part_counts[IG_WARP];
    int counted[THREADS], totals[WARPS]; /* of each thread and warp */
    units all, always, more; /* weights: all, those of entries that are chosen anyway, what favour has added */
    units mass;              /* what is still to be chosen, at most so many and until they weigh so much */
    int count;
    bool picks;       /* any by weight */
    unsigned digits;  /* of the threshold, as far as they are known */
    unsigned n_equal; /* of the weights that are equal to it the first ones are chosen */
} board;

/* Entries that are chosen by their weight: the others are sinks or recent. */
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

static __device__ void add_units(units *to, units mine) {
    mine = ig_warp_sum(mine);
    if (threadIdx.x % IG_WARP == 0) atomicAdd(to, mine);
}

/* A thread is a block of the KV store. */
static __device__ void favour(board *b, float *w, const ig_scan_list *x, range of) {
    const ig_pick_favour *f = &x->favour;
    units all = 0, always = 0, more = 0;
    for (int k = (int)threadIdx.x, begin = k * f->block; begin < x->n; k += THREADS, begin = k * f->block) {
        int end = x->n - begin < f->block ? x->n : begin + f->block;
        bool used = f->inertia > 0 && k < f->n_known && f->used[k];
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

/* What is to be chosen by weight. By one thread. */
static __device__ void set_out(board *b, const ig_scan_list *x, range of) {
    double group = x->group, mass = x->rule.mass;
    int left = x->rule.count - of.begin - (x->n - of.end);
    if (x->favour.inertia > 0) mass = 1 - (1 - mass) * group / (group + (double)b->more / (double)IG_UNITS);
    double until = mass * (double)b->all - (double)b->always;
    b->mass = !(mass < 1) ? IG_ALL_UNITS : until > 0 ? (units)until : 0;
    b->count = left;
    b->picks = of.begin < of.end && left > 0 && b->mass;
    b->digits = b->n_equal = 0;
}

/* ---- the threshold ---------------------------------------------------------------------- */

/* Of weights whose upper digits are those of the threshold, so many for each value of the next one. */
static __device__ void count_digits(board *b, const float *w, range of, int shift) {
    int bin = (int)threadIdx.x, copy = (int)threadIdx.x % COPIES;
    for (int i = 0; i < COPIES && bin < BINS; i++) b->counts[bin][i] = 0, b->sums[bin][i] = 0;
    __syncthreads();
    for (int i = of.begin + (int)threadIdx.x; i < of.end; i += THREADS) {
        unsigned bits = __float_as_uint(w[i]), digit = bits >> shift & (BINS - 1);
        if (shift + DIGIT_BITS < 32 && bits >> (shift + DIGIT_BITS) != b->digits) continue;
        atomicAdd(&b->counts[digit][copy], 1u);
        atomicAdd(&b->sums[digit][copy], units_of(w[i]));
    }
    __syncthreads();
    for (int i = 1; i < COPIES && bin < BINS; i++)
        b->counts[bin][0] += b->counts[bin][i], b->sums[bin][0] += b->sums[bin][i];
    __syncthreads();
}

/* The digit at which what lies above is too much; lanes of the first warp share the bins. What lies above the digit is
 * chosen. Where nothing is too much digits stay 0. */
static __device__ void find_digit(board *b) {
    enum { EACH = BINS / IG_WARP };
    int lane = (int)threadIdx.x, last = BINS - 1 - lane * EACH;
    if (lane < IG_WARP) {
        unsigned count = 0;
        units sum = 0;
        for (int i = last; i > last - EACH; i--) count += b->counts[i][0], sum += b->sums[i][0];
        b->part_counts[lane] = count, b->part_sums[lane] = sum;
    }
    __syncthreads();
    unsigned count = 0, most = (unsigned)b->count;
    units sum = 0, mass = b->mass;
    for (int i = 0; i < lane && lane < IG_WARP; i++) count += b->part_counts[i], sum += b->part_sums[i];
    __syncthreads();
    if (lane >= IG_WARP || count > most || sum >= mass) return; /* it is an earlier lane's */
    for (int i = last; i > last - EACH; i--) {
        if (count + b->counts[i][0] > most || sum + b->sums[i][0] >= mass) {
            b->digits = b->digits << DIGIT_BITS | (unsigned)i;
            b->count -= (int)count;
            if (mass != IG_ALL_UNITS) b->mass -= sum;
            return;
        }
        count += b->counts[i][0], sum += b->sums[i][0];
    }
}

static __device__ void find_threshold(board *b, const float *w, range of) {
    for (int digit = DIGITS - 1; digit >= 0; digit--) {
        count_digits(b, w, of, digit * DIGIT_BITS);
        find_digit(b);
        __syncthreads();
    }
    if (threadIdx.x) return;
    units each = units_of(__uint_as_float(b->digits)), enough = each ? (b->mass - 1) / each + 1 : IG_ALL_UNITS;
    b->n_equal = enough < (units)b->count ? (unsigned)enough : (unsigned)b->count;
}

/* ---- the list ----------------------------------------------------------------------------- */

/* Whether an entry is chosen, where n_before equal ones come before it. */
static __device__ __forceinline__ bool is_chosen(const board *b, const float *w, int i, range of, unsigned n_before) {
    if (i < of.begin || i >= of.end) return true;
    unsigned bits = __float_as_uint(w[i]);
    return b->picks && (bits > b->digits || (bits == b->digits && n_before < b->n_equal));
}

static __device__ __forceinline__ bool is_equal(const board *b, const float *w, int i, range of) {
    return i >= of.begin && i < of.end && __float_as_uint(w[i]) == b->digits;
}

/* Slots in order, a thread a run of entries; returns their number. */
static __device__ int list_chosen(int *picked, board *b, const float *w, int n, range of) {
    int each = (n + THREADS - 1) / THREADS, first = (int)threadIdx.x * each, last = first + each < n ? first + each : n;
    int n_equal = 0, n_chosen = 0;
    for (int i = first; i < last; i++) n_equal += is_equal(b, w, i, of);
    unsigned before = (unsigned)ig_count_before(b->counted, b->totals, n_equal), equal = before;
    for (int i = first; i < last; i++) {
        n_chosen += is_chosen(b, w, i, of, equal);
        equal += is_equal(b, w, i, of);
    }
    int at = ig_count_before(b->counted, b->totals, n_chosen), all = 0;
    for (int i = first; i < last; i++) {
        if (is_chosen(b, w, i, of, before)) picked[at++] = i;
        before += is_equal(b, w, i, of);
    }
    for (int i = 0; i < WARPS; i++) all += b->totals[i];
    return all;
}

static __global__ void pick(const ig_scan_list *lists) {
    IG_SHARED(board, b);
    const ig_scan_list *x = &lists[blockIdx.x];
    ig_cuda_scratch s = ig_cuda_scratch_of(x);
    range of = weighed_range(x);
    if (threadIdx.x == 0) b->all = b->always = b->more = 0;
    __syncthreads();
    favour(b, s.weights, x, of);
    __syncthreads();
    if (threadIdx.x == 0) set_out(b, x, of);
    __syncthreads();
    if (b->picks) find_threshold(b, s.weights, of);
    int n = list_chosen(s.picked, b, s.weights, x->n, of);
    __syncthreads();
    for (int i = (int)threadIdx.x; i < n; i += THREADS) {
        int slot = s.picked[i];
        if (x->index) x->index[i] = slot;
        if (x->picked) x->picked[i] = slot;
        for (int g = 0; g < x->group; g++) s.exps[(size_t)g * s.stride + (size_t)slot] = 0; /* no part of the rest */
    }
    if (threadIdx.x) return;
    if (x->index) *x->n_index = n;
    if (x->picked) *x->n_picked = n;
}

void ig_cuda_pick(cudaStream_t s, const ig_scan_list *lists, int n) {
    IG_LAUNCH(pick, dim3((unsigned)n), dim3(THREADS), sizeof(board), s, lists);
}
