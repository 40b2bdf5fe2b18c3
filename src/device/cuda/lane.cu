/* SPDX-License-Identifier: Apache-2.0
 *
 * A lane: see lane.cuh. How long operations stood still is told by events on both sides of each wait, which are looked
 * at later: nothing here waits on the host, but for the oldest of MOST_WAITS that are all under way.
 */
#include "device/cuda/lane.cuh"

#include <stdlib.h>

enum { MOST_WAITS = 64 };

struct ig_lane {
    cudaStream_t work, copies;
    cudaEvent_t worked; /* operations so far, for follow() */
    cudaEvent_t *marks; /* [n_marks] */
    int n_marks;
    cudaEvent_t before[MOST_WAITS], after[MOST_WAITS]; /* of waits number first .. next - 1, modulo MOST_WAITS */
    unsigned first, next;
    double waited; /* seconds, of earlier ones */
};

static void add(cudaError_t *e, cudaError_t more) {
    if (*e == cudaSuccess) *e = more;
}

cudaError_t ig_cuda_lane_open(ig_lane **out, cudaStream_t work, int n_marks) {
    ig_lane *l = (ig_lane *)calloc(1, sizeof *l);
    cudaError_t e = cudaErrorMemoryAllocation;
    *out = NULL;
    if (l) l->marks = (cudaEvent_t *)calloc((size_t)n_marks, sizeof *l->marks);
    if (l && l->marks) e = cudaStreamCreateWithFlags(&l->copies, cudaStreamNonBlocking);
    if (e != cudaSuccess) {
        ig_cuda_lane_close(l);
        return e;
    }
    l->work = work;
    l->n_marks = n_marks;
    add(&e, cudaEventCreateWithFlags(&l->worked, cudaEventDisableTiming));
    for (int i = 0; i < n_marks; i++) add(&e, cudaEventCreateWithFlags(&l->marks[i], cudaEventDisableTiming));
    for (int i = 0; i < MOST_WAITS; i++) add(&e, cudaEventCreateWithFlags(&l->before[i], cudaEventDefault));
    for (int i = 0; i < MOST_WAITS; i++) add(&e, cudaEventCreateWithFlags(&l->after[i], cudaEventDefault));
    if (e == cudaSuccess)
        *out = l;
    else
        ig_cuda_lane_close(l);
    return e;
}

static void destroy(cudaEvent_t *events, int n) {
    for (int i = 0; i < n; i++)
        if (events[i]) cudaEventDestroy(events[i]);
}

void ig_cuda_lane_close(ig_lane *l) {
    if (!l) return;
    if (l->copies) {
        cudaStreamSynchronize(l->copies);
        cudaStreamDestroy(l->copies);
    }
    destroy(&l->worked, 1);
    destroy(l->marks, l->n_marks);
    destroy(l->before, MOST_WAITS);
    destroy(l->after, MOST_WAITS);
    free(l->marks);
    free(l);
}

cudaError_t ig_cuda_lane_send(ig_lane *l, int mark, void *to, const void *from, size_t n_bytes) {
    cudaError_t e = cudaMemcpyAsync(to, from, n_bytes, cudaMemcpyDefault, l->copies);
    add(&e, cudaEventRecord(l->marks[mark], l->copies));
    return e;
}

cudaError_t ig_cuda_lane_follow(ig_lane *l) {
    cudaError_t e = cudaEventRecord(l->worked, l->work);
    add(&e, cudaStreamWaitEvent(l->copies, l->worked, 0));
    return e;
}

/* Adds up the waits that are over. */
static void collect(ig_lane *l) {
    float ms;
    for (; l->first != l->next; l->first++) {
        unsigned i = l->first % MOST_WAITS;
        if (cudaEventElapsedTime(&ms, l->before[i], l->after[i]) != cudaSuccess) break;
        l->waited += (double)ms / 1e3;
    }
    cudaGetLastError(); /* that one is not over is no error */
}

cudaError_t ig_cuda_lane_await(ig_lane *l, int mark) {
    collect(l);
    cudaError_t e = cudaSuccess;
    if (l->next - l->first == MOST_WAITS) {
        e = cudaEventSynchronize(l->after[l->first % MOST_WAITS]);
        if (e == cudaSuccess)
            collect(l);
        else
            l->first++;
    }
    unsigned i = l->next++ % MOST_WAITS;
    add(&e, cudaEventRecord(l->before[i], l->work));
    add(&e, cudaStreamWaitEvent(l->work, l->marks[mark], 0));
    add(&e, cudaEventRecord(l->after[i], l->work));
    return e;
}

double ig_cuda_lane_waited(ig_lane *l) {
    collect(l);
    return l->waited;
}
