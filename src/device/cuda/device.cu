/* SPDX-License-Identifier: Apache-2.0
 *
 * A GPU as a device. Operations are written down in the order of their calls, and submitted where the host waits.
 * Weights are copied to the GPU's memory when they are bound, and found by the host's addresses; what is in page-locked
 * memory of the host is used in place, under the same address, but for blocks of K and V that have copies
 * (device/residency.h); these come beside other work if they are foreseen. The host's side of a step runs on a pool of
 * threads.
 */
#include "device/cuda/gpu.cuh"
#include "device/cuda/lane.cuh"

#include <stdlib.h>
#include <string.h>

extern "C" {
#include "base/memory.h"
}

enum { PAGE = 4096 };

ig_status ig_cuda_fail(ig_error *err, const gpu *g, const char *what, cudaError_t e) {
    if (e == cudaErrorMemoryAllocation)
        return ig_fail(err, IG_E_MEMORY, "cuda:%d, %s: out of memory: %s", g->number, g->name, what);
    return ig_fail(err, IG_E_DEVICE, "cuda:%d, %s: %s: %s", g->number, g->name, what, cudaGetErrorString(e));
}

static void add_traffic(ig_kv_traffic *sum, const ig_kv_traffic *x) {
    sum->hits += x->hits;
    sum->copied += x->copied;
    sum->rows += x->rows;
    sum->bytes += x->bytes;
}

void ig_cuda_wait(gpu *g) {
    size_t n_bytes = g->n_counted ? IG_CUDA_COUNTS * sizeof *g->counts : 0; /* graphs change no number of bytes */
    ig_cuda_await_ahead(g);
    ig_queue_copy(g->work, g->host_counts, g->counts, n_bytes);
    ig_queue_clear(g->work, g->counts, n_bytes);
    note(g, ig_commands_finish(g->commands));
    for (int i = 0; i < g->n_counted && g->failure == cudaSuccess; i++) {
        add_traffic(g->counted[i].sum, &g->host_counts[i]);
        add_traffic(g->counted[i].total, &g->host_counts[i]);
    }
    g->n_counted = 0;
    ig_cuda_mail_empty(&g->mail);
}

static ig_status gpu_finish(ig_device *d, ig_error *err) {
    gpu *g = enter(d);
    note(g, cudaGetLastError());
    ig_cuda_wait(g);
    cudaError_t e = g->failure;
    const char *culprit = ig_commands_culprit(g->commands);
    g->failure = cudaSuccess;
    leave(g);
    return e == cudaSuccess ? IG_OK : ig_cuda_fail(err, g, culprit ? culprit : "an operation failed", e);
}

/* ---- memory --------------------------------------------------------------------------- */

void *ig_cuda_take(gpu *g, size_t n_bytes) {
    void *p = NULL;
    if (cudaMalloc(&p, n_bytes ? n_bytes : 1) != cudaSuccess) {
        cudaGetLastError();
        return NULL;
    }
    note(g, cudaMemsetAsync(p, 0, n_bytes, ig_commands_stream(g->commands)));
    return p;
}

/* The same of the host's, page-locked. All of it is taken at once: more than there is would end some process. It begins
 * at a page, as files that are read past the system's cache want it, where CUDA promises a multiple of 256 bytes only:
 * the last page from which on it fits, with the address that CUDA gave before it. */
static void *take_host(size_t n_bytes) {
    uint8_t *given = NULL;
    if (n_bytes > ig_memory_available()) return NULL;
    if (cudaHostAlloc((void **)&given, n_bytes + PAGE, cudaHostAllocPortable | cudaHostAllocMapped) != cudaSuccess) {
        cudaGetLastError();
        return NULL;
    }
    uint8_t *p = given + PAGE - (uintptr_t)given % PAGE;
    memcpy(p - sizeof given, &given, sizeof given);
    return memset(p, 0, n_bytes);
}

/* Nothing of NULL, which CUDA does not promise to take. */
static cudaError_t free_host(void *p) {
    void *given;
    if (!p) return cudaSuccess;
    memcpy(&given, (uint8_t *)p - sizeof given, sizeof given);
    return cudaFreeHost(given);
}

/* Managed memory, whose new pages are zero. Not every system lets the host touch it while kernels run. */
static void *take_paged(const gpu *g, size_t n_bytes) {
    int fits = 0;
    void *p = NULL;
    cudaError_t e = cudaDeviceGetAttribute(&fits, cudaDevAttrConcurrentManagedAccess, g->number);
    if (e == cudaSuccess && fits) e = cudaMallocManaged(&p, n_bytes ? n_bytes : 1, cudaMemAttachGlobal);
    cudaGetLastError();
    return e == cudaSuccess ? p : NULL;
}

static void *gpu_alloc(ig_device *d, ig_place place, size_t n_bytes) {
    gpu *g = enter(d);
    void *p = place == IG_PLACE_HOST    ? take_host(n_bytes)
              : place == IG_PLACE_PAGED ? take_paged(g, n_bytes)
                                        : ig_cuda_take(g, n_bytes);
    leave(g);
    return p;
}

static void gpu_free(ig_device *d, ig_place place, void *p) {
    gpu *g = enter(d);
    ig_cuda_wait(g);
    note(g, place == IG_PLACE_HOST ? free_host(p) : cudaFree(p));
    leave(g);
}

static uint64_t gpu_room(ig_device *d) {
    gpu *g = enter(d);
    size_t left = 0, all;
    note(g, cudaMemGetInfo(&left, &all));
    leave(g);
    return left;
}

static bool grow_bound(gpu *g) {
    size_t cap = g->cap_bound ? 2 * g->cap_bound : 64;
    if (g->n_bound < g->cap_bound) return true;
    binding *more = (binding *)realloc(g->bound, cap * sizeof *more);
    if (!more) return false;
    g->bound = more;
    g->cap_bound = cap;
    return true;
}

/* From mapped files, by way of the driver's own page-locked buffers. */
static cudaError_t upload(gpu *g, void *to, const void *from, size_t n_bytes) {
    cudaStream_t s = ig_commands_stream(g->commands);
    cudaError_t e = cudaMemcpyAsync(to, from, n_bytes, cudaMemcpyDefault, s);
    cudaError_t waited = cudaStreamSynchronize(s);
    return e != cudaSuccess ? e : waited;
}

static ig_status gpu_bind(ig_device *d, const void *p, size_t n_bytes, ig_error *err) {
    gpu *g = enter(d);
    size_t i = bound_behind(g, p);
    uint8_t *copy = NULL;
    if (i > 0 && g->bound[i - 1].host == p && g->bound[i - 1].n_bytes == n_bytes) {
        g->bound[i - 1].n_users++;
        leave(g);
        return IG_OK;
    }
    cudaError_t e = cudaMalloc((void **)&copy, n_bytes);
    if (e == cudaSuccess) e = upload(g, copy, p, n_bytes);
    if (e == cudaSuccess && !grow_bound(g)) e = cudaErrorMemoryAllocation;
    if (e == cudaSuccess) {
        memmove(g->bound + i + 1, g->bound + i, (g->n_bound++ - i) * sizeof *g->bound);
        g->bound[i] = binding{(const uint8_t *)p, copy, n_bytes, 1};
    } else {
        cudaGetLastError();
        cudaFree(copy);
    }
    leave(g);
    return e == cudaSuccess ? IG_OK : ig_cuda_fail(err, g, "copying the weights", e);
}

static void gpu_unbind(ig_device *d, const void *p) {
    gpu *g = enter(d);
    size_t i = bound_behind(g, p);
    if (i > 0 && g->bound[i - 1].host == p && --g->bound[i - 1].n_users == 0) {
        ig_cuda_wait(g);
        note(g, cudaFree(g->bound[i - 1].copy));
        memmove(g->bound + i - 1, g->bound + i, (g->n_bound-- - i) * sizeof *g->bound);
    }
    leave(g);
}

static void gpu_copy(ig_device *d, void *to, const void *from, size_t n_bytes) {
    gpu *g = enter(d);
    if (to != from) ig_queue_copy(g->work, to, from, n_bytes);
    leave(g);
}

static void gpu_copy_rows(ig_device *d, float *to, size_t to_row, const float *from, size_t from_row, int n,
                          int n_rows) {
    gpu *g = enter(d);
    ig_cuda_copy_rows(g->work, to, to_row, from, from_row, n, n_rows);
    leave(g);
}

static void gpu_clear(ig_device *d, void *to, size_t n_bytes) {
    gpu *g = enter(d);
    ig_queue_clear(g->work, to, n_bytes);
    leave(g);
}

/* ---- lanes ------------------------------------------------------------------------------- */

static ig_status gpu_open_lane(ig_device *d, ig_lane **out, int n_marks, ig_error *err) {
    gpu *g = enter(d);
    cudaError_t e = ig_cuda_lane_open(out, ig_commands_stream(g->commands), n_marks);
    cudaGetLastError();
    leave(g);
    return e == cudaSuccess ? IG_OK : ig_cuda_fail(err, g, "opening a stream for copies", e);
}

static void gpu_close_lane(ig_device *d, ig_lane *l) {
    gpu *g = enter(d);
    ig_cuda_lane_close(l);
    leave(g);
}

static void gpu_send(ig_device *d, ig_lane *l, int mark, void *to, const void *from, size_t n_bytes) {
    gpu *g = enter(d);
    note(g, ig_cuda_lane_send(l, mark, to, from, n_bytes));
    leave(g);
}

static void gpu_follow(ig_device *d, ig_lane *l) {
    gpu *g = enter(d);
    submit(g);
    note(g, ig_cuda_lane_follow(l));
    leave(g);
}

static void gpu_await(ig_device *d, ig_lane *l, int mark) {
    gpu *g = enter(d);
    submit(g);
    note(g, ig_cuda_lane_await(l, mark));
    leave(g);
}

static double gpu_waited(ig_device *d, ig_lane *l) {
    gpu *g = enter(d);
    double seconds = ig_cuda_lane_waited(l);
    leave(g);
    return seconds;
}

/* ---- scratch ---------------------------------------------------------------------------- */

/* The two passes of an arena: sizes, then pointers. */
static void lay_out(gpu *g, ig_arena *a, const ig_device_need *need) {
    ig_gpu_scratch n = ig_gpu_scratch_of(need);
    g->n_parts = n.parts;
    g->n_state = n.state;
    g->n_sums = n.sums;
    g->n_rows = n.rows;
    g->act = (uint8_t *)ig_arena_take(a, n.act);
    g->parts = (float *)ig_arena_take(a, g->n_parts * sizeof(float));
    g->state = (float *)ig_arena_take(a, g->n_state * sizeof(float));
    g->sums = (float *)ig_arena_take(a, g->n_sums * sizeof(float));
    g->rows = (uint16_t *)ig_arena_take(a, g->n_rows * sizeof(uint16_t));
    g->low_rank = (float *)ig_arena_take(a, n.low_rank * sizeof(float));
}

/* A mail of so many bytes, with what lies behind it, instead of the one before. */
static ig_status open_mail(gpu *g, size_t n_bytes, ig_error *err) {
    size_t counts = IG_CUDA_COUNTS * sizeof *g->counts;
    uint8_t *host = (uint8_t *)take_host(n_bytes), *dev = (uint8_t *)ig_cuda_take(g, n_bytes);
    ig_cuda_wait(g);
    if (!host || !dev) {
        free_host(host);
        cudaFree(dev);
        return ig_cuda_fail(err, g, "jobs of attention", cudaErrorMemoryAllocation);
    }
    free_host(g->mail.host);
    cudaFree(g->mail.dev);
    g->mail.host = host;
    g->mail.dev = dev;
    g->mail.size = (n_bytes - counts - sizeof *g->peak) / IG_ALIGN * IG_ALIGN;
    g->counts = (ig_kv_traffic *)(void *)(dev + g->mail.size);
    g->host_counts = (ig_kv_traffic *)(void *)(host + g->mail.size);
    g->peak = (unsigned *)(void *)(dev + g->mail.size + counts);
    return IG_OK;
}

static ig_status grow(gpu *g, const ig_device_need *want, ig_error *err) {
    gpu counted = {};
    ig_arena a = {};
    lay_out(&counted, &a, want);
    size_t n_bytes = a.used;
    ig_status s = want->mail_bytes > g->have.mail_bytes ? open_mail(g, IG_GPU_MAIL + want->mail_bytes, err) : IG_OK;
    if (s) return s;
    g->have.mail_bytes = want->mail_bytes;
    a.base = (char *)ig_cuda_take(g, n_bytes);
    if (!a.base) return ig_cuda_fail(err, g, "scratch of the device", cudaErrorMemoryAllocation);
    ig_cuda_wait(g);
    note(g, cudaFree(g->scratch));
    a.size = n_bytes;
    a.used = 0;
    lay_out(g, &a, want);
    g->scratch = (uint8_t *)a.base;
    g->scratch_bytes = n_bytes;
    g->have = *want;
    return IG_OK;
}

static ig_status gpu_reserve(ig_device *d, const ig_device_need *need, ig_error *err) {
    gpu *g = enter(d);
    const ig_device_need *have = &g->have;
    ig_device_need want = ig_device_need_both(have, need);
    ig_status s = ig_device_serves(have, &want) ? IG_OK : grow(g, &want, err);
    leave(g);
    return s;
}

static void gpu_plan(const ig_device *, uint64_t bytes[IG_PLACES], const ig_device_need *need) {
    ig_gpu_plan_scratch(bytes, need);
}

static size_t gpu_scratch_bytes(ig_device *d) {
    gpu *g = enter(d);
    size_t n_bytes = g->scratch_bytes + IG_GPU_MAIL + g->have.mail_bytes;
    leave(g);
    return n_bytes;
}

/* ---- operations -------------------------------------------------------------------------- */

static bool gpu_few_as_many(const ig_device *d, const ig_matrix *m) {
    (void)d, (void)m;
    return false;
}

static void gpu_norm(ig_device *d, float *y, const float *x, const ig_norm *norm, int n_rows) {
    gpu *g = enter(d);
    ig_norm own = *norm;
    if (own.w) own.w = find(g, own.w);
    if (own.b) own.b = find(g, own.b);
    if (!own.n_w) own.n_w = 1;
    ig_cuda_norm(g->work, y, (float *)(uintptr_t)x, &own, n_rows);
    leave(g);
}

static void gpu_rope(ig_device *d, float *x, const ig_rotation *by, int n_rows, int n_heads, int head_dim) {
    gpu *g = enter(d);
    ig_cuda_rope(g->work, x, by, n_rows, n_heads, head_dim);
    leave(g);
}

static void gpu_add(ig_device *d, float *y, const float *x, size_t n) {
    gpu *g = enter(d);
    ig_cuda_add(g->work, y, x, n);
    leave(g);
}

static void gpu_add_rows(ig_device *d, float *y, const float *x, const int32_t *rows, const float *shares, int n_rows,
                         int n) {
    gpu *g = enter(d);
    ig_cuda_add_rows(g->work, y, x, rows, shares, n_rows, n);
    leave(g);
}

static void gpu_gate_rows(ig_device *d, ig_activation kind, float *x, const float *gates, int n_rows, int n) {
    gpu *g = enter(d);
    ig_cuda_gate_rows(g->work, kind, x, gates, n_rows, n);
    leave(g);
}

static void gpu_scale(ig_device *d, float *x, float factor, size_t n) {
    gpu *g = enter(d);
    ig_cuda_scale(g->work, x, factor, n);
    leave(g);
}

static void gpu_activate(ig_device *d, ig_activation kind, float *gate, const float *up, size_t n) {
    gpu *g = enter(d);
    ig_cuda_activate(g->work, kind, gate, up, n);
    leave(g);
}

static void gpu_peak(ig_device *d, float *out, const ig_floats *x, int n_x) {
    gpu *g = enter(d);
    for (int i = 0, n = 0; i < n_x; i += n, n = 0) {
        while (i + n < n_x && n < IG_CUDA_PEAKS && x[i + n].n <= IG_CUDA_FEW) n++;
        if (n) {
            ig_cuda_peaks(g->work, out + i, x + i, n);
            continue;
        }
        ig_queue_clear(g->work, g->peak, sizeof *g->peak);
        ig_cuda_peak(g->work, g->peak, x + i);
        ig_queue_copy(g->work, out + i, g->peak, sizeof *out);
        n = 1;
    }
    leave(g);
}

static void gpu_parallel(ig_device *d, int n_tasks, ig_task_fn fn, void *arg) {
    ig_pool_run(gpu_of(d)->pool, n_tasks, fn, arg);
}

static ig_pool_work gpu_worked(const ig_device *d) { return ig_pool_worked(((const gpu *)d)->pool); }

/* ---- opening --------------------------------------------------------------------------------- */

static void gpu_close(ig_device *d) {
    gpu *g = gpu_of(d);
    cudaSetDevice(g->number);
    ig_commands_close(g->commands);
    if (g->chosen) cudaEventDestroy(g->chosen);
    for (size_t i = 0; i < g->n_bound; i++) cudaFree(g->bound[i].copy);
    cudaFree(g->scratch);
    cudaFree(g->mail.dev);
    free_host(g->mail.host);
    cudaGetLastError();
    free(g->bound);
    ig_pool_close(g->pool);
    pthread_mutex_destroy(&g->turn);
    free(g);
}

static ig_device_ops make_ops(void) {
    ig_device_ops o = {};
    o.name = "cuda";
    o.close = gpu_close;
    o.alloc = gpu_alloc;
    o.free = gpu_free;
    o.bind = gpu_bind;
    o.unbind = gpu_unbind;
    o.copy = gpu_copy;
    o.clear = gpu_clear;
    o.copy_rows = gpu_copy_rows;
    o.open_lane = gpu_open_lane;
    o.close_lane = gpu_close_lane;
    o.send = gpu_send;
    o.follow = gpu_follow;
    o.await = gpu_await;
    o.waited = gpu_waited;
    o.finish = gpu_finish;
    o.reserve = gpu_reserve;
    o.plan = gpu_plan;
    o.scratch_bytes = gpu_scratch_bytes;
    o.embed = ig_cuda_embed_rows;
    o.matmul = ig_cuda_multiply;
    o.matmul_heads = ig_cuda_multiply_heads;
    o.few_as_many = gpu_few_as_many;
    o.norm = gpu_norm;
    o.rope = gpu_rope;
    o.add = gpu_add;
    o.add_rows = gpu_add_rows;
    o.gate_rows = gpu_gate_rows;
    o.scale = gpu_scale;
    o.activate = gpu_activate;
    o.convolve = ig_cuda_convolve;
    o.recur = ig_cuda_recur;
    o.peak = gpu_peak;
    o.attend = ig_cuda_attend;
    o.weigh = ig_cuda_weigh_rows;
    o.room = gpu_room;
    o.open_copies = ig_cuda_open_copies;
    o.close_copies = ig_cuda_close_copies;
    o.append = ig_cuda_append_rows;
    o.prefetch = ig_cuda_prefetch;
    o.choose = ig_cuda_choose_lists;
    o.parallel = gpu_parallel;
    o.worked = gpu_worked;
    return o;
}

static const ig_device_ops gpu_ops = make_ops();

/* Runs an operation: a program that has no code for this GPU is told here, not in the first step of a model. */
static ig_status try_kernel(gpu *g, const cudaDeviceProp *p, ig_error *err) {
    float *zero = (float *)(void *)g->mail.dev;
    ig_cuda_add(g->work, zero, zero, 1);
    note(g, cudaGetLastError());
    ig_cuda_wait(g);
    if (g->failure == cudaSuccess) return IG_OK;
    if (g->failure != cudaErrorNoKernelImageForDevice) return ig_cuda_fail(err, g, "trying the device", g->failure);
    return ig_fail(err, IG_E_UNSUPPORTED,
                   "cuda:%d, %s: this program was not built for its compute capability, %d.%d "
                   "(CMAKE_CUDA_ARCHITECTURES)",
                   g->number, g->name, p->major, p->minor);
}

static ig_status open_gpu(gpu *g, int n_threads, ig_error *err) {
    cudaDeviceProp p = {};
    cudaError_t e = cudaGetDeviceProperties(&p, g->number);
    memcpy(g->name, p.name, sizeof g->name);
    g->n_multiprocessors = p.multiProcessorCount;
    if (e == cudaSuccess) e = cudaSetDevice(g->number);
    if (e == cudaSuccess) e = ig_cuda_allow_prefill();
    if (e == cudaSuccess) e = ig_commands_open(&g->commands, &g->mail);
    if (e == cudaSuccess) e = cudaEventCreateWithFlags(&g->chosen, cudaEventDisableTiming);
    if (e != cudaSuccess) return ig_cuda_fail(err, g, "opening the device", e);
    g->work = ig_queue{g->commands, 0};
    g->ahead = ig_queue{g->commands, 1};
    ig_status s = open_mail(g, IG_GPU_MAIL, err);
    if (!s) s = try_kernel(g, &p, err);
    return s ? s : ig_pool_open(&g->pool, n_threads, err);
}

/* Why there is no GPU of this number. Versions are 1000 major + 10 minor. */
static ig_status fail_missing(int number, ig_error *err) {
    int n = 0, driver = 0, needed = 0;
    cudaError_t e = cudaGetDeviceCount(&n);
    if (cudaDriverGetVersion(&driver) != cudaSuccess || cudaRuntimeGetVersion(&needed) != cudaSuccess || e)
        cudaGetLastError();
    if (e == cudaSuccess)
        return ig_fail(err, IG_E_NOT_FOUND, "cuda:%d: there is no such GPU; the driver knows %d", number, n);
    if (driver == 0) return ig_fail(err, IG_E_NOT_FOUND, "cuda:%d: there is no driver for it (libcuda.so.1)", number);
    if (e == cudaErrorInsufficientDriver)
        return ig_fail(err, IG_E_NOT_FOUND,
                       "cuda:%d: the driver knows CUDA up to %d.%d, this program was built with %d.%d", number,
                       driver / 1000, driver % 1000 / 10, needed / 1000, needed % 1000 / 10);
    return ig_fail(err, IG_E_NOT_FOUND, "cuda:%d: no GPU can be used: %s", number, cudaGetErrorString(e));
}

ig_status ig_device_open_cuda(ig_device **out, int number, int n_threads, ig_error *err) {
    *out = NULL;
    if (number < 0 || number >= ig_cuda_count()) return fail_missing(number, err);
    gpu *g = (gpu *)calloc(1, sizeof *g);
    if (!g) return ig_fail_memory(err, "CUDA device", sizeof *g);
    g->base.ops = &gpu_ops;
    g->number = number;
    pthread_mutex_init(&g->turn, NULL);
    ig_status s = open_gpu(g, n_threads, err);
    if (s)
        gpu_close(&g->base);
    else
        *out = &g->base;
    return s;
}

bool ig_cuda_is_built(void) { return true; }

int ig_cuda_count(void) {
    int n = 0;
    if (cudaGetDeviceCount(&n) == cudaSuccess) return n;
    cudaGetLastError();
    return 0;
}

bool ig_cuda_describe(int number, ig_cuda_info *out) {
    cudaDeviceProp p;
    size_t left = 0, all;
    bool exists = number >= 0 && number < ig_cuda_count() && cudaGetDeviceProperties(&p, number) == cudaSuccess;
    if (exists && cudaSetDevice(number) == cudaSuccess) cudaMemGetInfo(&left, &all);
    cudaGetLastError();
    if (!exists) return false;
    *out = ig_cuda_info{};
    memcpy(out->name, p.name, sizeof out->name - 1);
    out->memory_bytes = p.totalGlobalMem;
    out->free_bytes = left;
    out->major = p.major;
    out->minor = p.minor;
    return true;
}
