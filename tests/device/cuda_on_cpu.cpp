/* SPDX-License-Identifier: Apache-2.0
 *
 * CUDA on the CPU: see cuda_on_cpu.h. Built without sanitizers, which do not know fibers.
 */
#include "cuda_on_cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/random.h"

__thread uint3 threadIdx, blockIdx, blockDim, gridDim;

/* Stacks a power of two apart would lie in the same lines of every cache. */
enum { MAX_THREADS = 1024, WARP = 32, STACK_BYTES = (128 << 10) + 320, PAGE = 4096 };
enum { SHARED_BYTES = 48 << 10, MOST_SHARED_BYTES = 64 << 10 }; /* of a block; what a kernel may be allowed at most */

[[noreturn]] static void die(const char *what) {
    fprintf(stderr, "cuda on cpu: %s (block %u %u %u, thread %u %u %u)\n", what, blockIdx.x, blockIdx.y, blockIdx.z,
            threadIdx.x, threadIdx.y, threadIdx.z);
    abort();
}

static const char *failing; /* calls of this name */
static int failing_with;

void cuda_on_cpu_fail(const char *call, int error) {
    failing = call;
    failing_with = error;
}

static std::atomic<cudaError_t> last_error{cudaSuccess};

static cudaError_t failure_of(const char *call) {
    return failing && strcmp(failing, call) == 0 ? (cudaError_t)failing_with : cudaSuccess;
}

static std::mutex counting;
static std::map<std::string, uint64_t> counted;
static std::atomic<uint64_t> n_copied; /* bytes */

/* The failure of a call that is counted. */
static cudaError_t call(const char *name) {
    std::lock_guard<std::mutex> guard(counting);
    counted[name]++;
    return failure_of(name);
}

uint64_t cuda_on_cpu_count(const char *name) {
    std::lock_guard<std::mutex> guard(counting);
    return counted[name];
}

uint64_t cuda_on_cpu_copied(void) { return n_copied; }

/* ---- fibers ------------------------------------------------------------------------- */

#if defined(__x86_64__)
/* Saves what a call keeps on this stack, and goes on from where another one stopped. */
extern "C" void cuda_on_cpu_switch(void **from, void *to);
asm(R"(
.text
.globl cuda_on_cpu_switch
.type cuda_on_cpu_switch, @function
cuda_on_cpu_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    retq
.size cuda_on_cpu_switch, . - cuda_on_cpu_switch
)");

typedef void *context;
static void enter(context *from, context *to) { cuda_on_cpu_switch(from, *to); }
static void prepare(context *c, char *stack, size_t bytes, void (*run)(void)) {
    void **top = (void **)(stack + bytes);
    *--top = nullptr; /* keeps the stack as a call would */
    *--top = (void *)run;
    for (int i = 0; i < 6; i++) *--top = nullptr;
    *c = top;
}
#else
typedef ucontext_t context;
static void enter(context *from, context *to) { swapcontext(from, to); }
static void prepare(context *c, char *stack, size_t bytes, void (*run)(void)) {
    getcontext(c);
    c->uc_stack.ss_sp = stack;
    c->uc_stack.ss_size = bytes;
    c->uc_link = nullptr;
    makecontext(c, run, 0);
}
#endif

/* ---- a block of threads ---------------------------------------------------------------- */

struct meeting {
    unsigned round, waiting, members;
};

/* 16 bytes that are under way. */
struct parcel {
    void *to;
    const void *from;
    int group;
};

struct fiber {
    context at;
    uint3 index;
    meeting *waits; /* NULL: it can go on */
    unsigned round; /* of the meeting that it waits for */
    bool done;
    std::vector<parcel> sent; /* in groups, of which the last one is open and has this number */
    int group;
};

struct warp {
    meeting meet;
    uint64_t values[2][WARP];         /* of rounds with even and odd numbers */
    double a[2][16][16], b[2][8][16]; /* likewise: the factors of a product, each row whole */
};

struct machine {
    char *stacks; /* [MAX_THREADS][STACK_BYTES]; shared memory ends behind them, at a closed page */
    char *shared; /* a launch's */
    size_t shared_bytes;
    fiber fibers[MAX_THREADS];
    warp warps[MAX_THREADS / WARP];
    meeting block;
    context host;
    int now;
    const std::function<void()> *body;
    ig_random random;
    unsigned n_launches;
    size_t n_begun; /* threads of the launch that came by ig_begin() */

    machine() {
        stacks = (char *)mmap(nullptr, bytes + PAGE, PROT_READ | PROT_WRITE, flags, -1, 0);
        if (stacks == MAP_FAILED) die("no memory for stacks");
        mprotect(stacks + bytes, PAGE, PROT_NONE);
    }
    ~machine() { munmap(stacks, bytes + PAGE); }
    void share(size_t n_bytes) {
        shared_bytes = (n_bytes + 15) / 16 * 16;
        shared = stacks + bytes - shared_bytes;
    }
    static constexpr size_t bytes = (size_t)MAX_THREADS * STACK_BYTES + MOST_SHARED_BYTES;
    static constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
};

static thread_local std::unique_ptr<machine> owned;
static __thread machine *m;

void cuda_on_cpu_seed(uint64_t seed) {
    if (!m) {
        owned.reset(new machine());
        m = owned.get();
    }
    m->random = ig_random{seed};
}

void *cuda_on_cpu_shared(void) { return m->shared; }

int cuda_on_cpu_lane(void) { return m->now % WARP; }

static void run_fiber(void) {
    (*m->body)();
    fiber *f = &m->fibers[m->now];
    f->done = true;
    m->block.members--;
    m->warps[m->now / WARP].meet.members--;
    enter(&f->at, &m->host);
    abort();
}

static void meet(meeting *x) {
    fiber *f = &m->fibers[m->now];
    if (++x->waiting >= x->members) {
        x->waiting = 0;
        x->round++;
        return;
    }
    f->waits = x;
    f->round = x->round;
    enter(&f->at, &m->host);
}

void __syncthreads(void) { meet(&m->block); }

uint64_t cuda_on_cpu_exchange(uint64_t v, int from) {
    warp *w = &m->warps[m->now / WARP];
    uint64_t *values = w->values[w->meet.round % 2];
    if (w->meet.members != WARP) die("an exchange in a warp that has lost lanes");
    values[m->now % WARP] = v;
    meet(&w->meet);
    return values[from % WARP];
}

static double half_of(uint32_t two, int i) { return (double)ig_f16_f32((uint16_t)(two >> 16 * i)); }

void cuda_on_cpu_mma(float *sum, const uint32_t *a, const uint32_t *b) {
    warp *w = &m->warps[m->now / WARP];
    int round = w->meet.round % 2, row = m->now % WARP / 4, pair = 2 * (m->now % 4);
    if (w->meet.members != WARP) die("a product in a warp that has lost lanes");
    for (int k = 0; k < 4; k++) {
        int col = k / 2 * 8 + pair + k % 2;
        w->a[round][row][col] = half_of(a[k / 2 * 2], k % 2);
        w->a[round][row + 8][col] = half_of(a[k / 2 * 2 + 1], k % 2);
        w->b[round][row][col] = half_of(b[k / 2], k % 2);
    }
    meet(&w->meet);
    for (int i = 0; i < 4; i++) {
        const double *left = w->a[round][row + i / 2 * 8], *right = w->b[round][pair + i % 2];
        double x = (double)sum[i];
        for (int k = 0; k < 16; k++) x += left[k] * right[k];
        sum[i] = (float)x;
        if (fabs((double)sum[i]) > fabs(x)) sum[i] = nextafterf(sum[i], 0); /* they cut off */
    }
}

void cuda_on_cpu_load_matrices(uint32_t *x, const uint16_t *row, bool down) {
    warp *w = &m->warps[m->now / WARP];
    uint64_t *rows = w->values[w->meet.round % 2];
    int lane = m->now % WARP;
    if (w->meet.members != WARP) die("matrices for a warp that has lost lanes");
    if ((uintptr_t)row % 16) die("a row of a matrix at an odd address");
    rows[lane] = (uintptr_t)row;
    meet(&w->meet);
    for (int i = 0; i < 8; i++) {
        int j = i / 2, long_way = lane / 4, pair = lane % 4 * 2 + i % 2;
        const uint16_t *from = (const uint16_t *)(uintptr_t)rows[8 * j + (down ? pair : long_way)];
        uint32_t half = from[down ? long_way : pair];
        x[j] = i % 2 ? x[j] | half << 16 : half;
    }
}

void cuda_on_cpu_send(void *to, const void *from) {
    fiber *f = &m->fibers[m->now];
    if ((uintptr_t)to % 16 || (uintptr_t)from % 16) die("16 bytes are sent to or from an odd address");
    if (ig_random_unit(&m->random) < 0.5)
        memcpy(to, from, 16);
    else
        f->sent.push_back(parcel{to, from, f->group});
}

void cuda_on_cpu_send_end(void) { m->fibers[m->now].group++; }

void cuda_on_cpu_await_sent(int n) {
    fiber *f = &m->fibers[m->now];
    size_t left = 0;
    for (const parcel &p : f->sent)
        if (p.group < f->group - n)
            memcpy(p.to, p.from, 16);
        else
            f->sent[left++] = p;
    f->sent.resize(left);
}

/* A barrier that the last thread to come has left before it came: those that ended do not count. */
static bool may_go_on(fiber *f) {
    meeting *x = f->waits;
    if (!x) return true;
    if (x->round == f->round && x == &m->block && x->waiting == x->members) x->waiting = 0, x->round++;
    if (x->round == f->round) return false;
    f->waits = nullptr;
    return true;
}

/* Numbers of n things, in an order by lot. */
static void shuffle(int *order, int n) {
    for (int i = 0; i < n; i++) {
        int j = (int)(ig_random_unit(&m->random) * (i + 1));
        order[i] = order[j];
        order[j] = i;
    }
}

/* Runs each thread of a list until it waits or ends; true if any could run. */
static bool run_threads(const int *order, int n, int *left) {
    bool moved = false;
    for (int i = 0; i < n; i++) {
        fiber *f = &m->fibers[order[i]];
        if (f->done || !may_go_on(f)) continue;
        m->now = order[i];
        threadIdx = f->index;
        enter(&m->host, &f->at);
        moved = true;
        *left -= f->done;
    }
    return moved;
}

/* All threads in turn, or warp after warp, each as far as it gets alone. */
static void run_in_order(int n) {
    int order[MAX_THREADS], warps[MAX_THREADS / WARP], n_warps = (n + WARP - 1) / WARP, left = n;
    bool by_warp = ig_random_unit(&m->random) < 0.5;
    shuffle(order, n);
    shuffle(warps, n_warps);
    while (left) {
        bool moved = false;
        if (!by_warp) moved = run_threads(order, n, &left);
        for (int w = 0; by_warp && w < n_warps; w++) {
            int lanes[WARP], first = warps[w] * WARP, size = n - first < WARP ? n - first : WARP;
            shuffle(lanes, size);
            for (int i = 0; i < size; i++) lanes[i] += first;
            while (run_threads(lanes, size, &left)) moved = true;
        }
        if (!moved) die("threads wait for each other for ever");
    }
}

static void run_block(int n) {
    m->block = meeting{0, 0, (unsigned)n};
    memset(m->shared, 0xff, m->shared_bytes);
    for (int i = 0; i < n; i++) {
        unsigned x = blockDim.x, y = blockDim.y;
        fiber *f = &m->fibers[i];
        f->index = uint3{(unsigned)i % x, (unsigned)i / x % y, (unsigned)i / x / y};
        f->waits = nullptr;
        f->done = false;
        f->sent.clear();
        f->group = 0;
        prepare(&f->at, m->stacks + (size_t)i * STACK_BYTES, STACK_BYTES, run_fiber);
        if (i % WARP == 0) m->warps[i / WARP].meet = meeting{0, 0, (unsigned)(n - i < WARP ? n - i : WARP)};
    }
    run_in_order(n);
}

static void run_grid(dim3 grid, dim3 block, size_t shared_bytes, const std::function<void()> &body) {
    unsigned n_blocks = grid.x * grid.y * grid.z, n = block.x * block.y * block.z;
    if (!m) cuda_on_cpu_seed(1);
    if (n == 0 || n > MAX_THREADS || grid.y > 65535 || grid.z > 65535) die("a launch that no GPU would take");
    gridDim = uint3{grid.x, grid.y, grid.z};
    blockDim = uint3{block.x, block.y, block.z};
    m->body = &body;
    m->share(shared_bytes);
    m->n_begun = 0;
    bool backwards = m->n_launches++ % 2;
    for (unsigned i = 0; i < n_blocks; i++) {
        unsigned b = backwards ? n_blocks - 1 - i : i;
        blockIdx = uint3{b % grid.x, b / grid.x % grid.y, b / grid.x / grid.y};
        run_block((int)n);
    }
    if (m->n_begun != (size_t)n_blocks * n) die("a kernel that does not begin with ig_begin()");
}

void ig_begin(void) { m->n_begun++; }
bool ig_kernel_waits(const void *kernel) { return kernel; }

/* ---- memory ---------------------------------------------------------------------------- */

struct region {
    void *p;    /* as it was given out */
    char *base; /* of whole pages */
    size_t n_bytes, mapped;
    bool is_host;
};

static std::mutex lock;
static std::vector<region> regions;
static int n_running;
static size_t room[2] = {(size_t)1 << 36, SIZE_MAX}, used[2]; /* bytes of the device's memory, and page-locked */

size_t cuda_on_cpu_room(bool is_host, size_t n_bytes) {
    room[is_host] = n_bytes;
    return used[is_host];
}

enum { PIECE = 2 << 20 };

/* A closed page lies up to 15 bytes behind its end, or 63 where the host computes with it, too. */
static cudaError_t take(void **out, size_t n_bytes, bool is_host) {
    size_t rounded = (n_bytes + PAGE - 1) / PAGE * PAGE, mapped = rounded + PAGE;
    std::lock_guard<std::mutex> guard(lock);
    if (n_bytes > (size_t)1 << 40 || used[is_host] + rounded > room[is_host]) return cudaErrorMemoryAllocation;
    char *p = (char *)mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return cudaErrorMemoryAllocation;
    mprotect(p + rounded, PAGE, PROT_NONE);
    if (!is_host) memset(p, 0xff, rounded);
    if (!is_host && !n_running) mprotect(p, rounded, PROT_NONE);
    size_t unit = is_host ? 64 : 16;
    *out = p + rounded - (n_bytes + unit - 1) / unit * unit;
    regions.push_back(region{*out, p, rounded, mapped, is_host});
    used[is_host] += rounded;
    return cudaSuccess;
}

static cudaError_t give(void *p) {
    std::lock_guard<std::mutex> guard(lock);
    if (!p) return cudaSuccess;
    for (size_t i = 0; i < regions.size(); i++) {
        if (regions[i].p != p) continue;
        munmap(regions[i].base, regions[i].mapped);
        used[regions[i].is_host] -= regions[i].n_bytes;
        regions[i] = regions.back();
        regions.pop_back();
        return cudaSuccess;
    }
    return cudaErrorInvalidValue;
}

/* The device's memory is open while a stream runs. */
static void open_memory(int more) {
    std::lock_guard<std::mutex> guard(lock);
    int before = n_running;
    n_running += more;
    if ((before == 0) == (n_running == 0)) return;
    for (const region &r : regions)
        if (!r.is_host) mprotect(r.base, r.n_bytes, n_running ? PROT_READ | PROT_WRITE : PROT_NONE);
}

cudaError_t cudaMalloc(void **p, size_t n_bytes) { return take(p, n_bytes, false); }
cudaError_t cudaHostAlloc(void **p, size_t n_bytes, unsigned flags) {
    (void)flags;
    return take(p, n_bytes, true);
}
cudaError_t cudaMallocManaged(void **p, size_t n_bytes, unsigned flags) { return cudaHostAlloc(p, n_bytes, flags); }
cudaError_t cudaFree(void *p) { return give(p); }
/* That drivers take NULL is not promised. */
cudaError_t cudaFreeHost(void *p) {
    cudaError_t e = p ? give(p) : cudaErrorInvalidValue;
    if (e != cudaSuccess) last_error = e;
    return e;
}

/* In whole pieces of a driver's. */
cudaError_t cudaMemGetInfo(size_t *left, size_t *all) {
    size_t free_bytes = room[false] - (used[false] < room[false] ? used[false] : room[false]);
    *all = room[false];
    *left = free_bytes - free_bytes % PIECE;
    return cudaSuccess;
}

/* ---- streams ------------------------------------------------------------------------------ */

/* One call of cudaEventRecord(). */
struct record {
    cudaStream_t stream;
    bool done;
    std::chrono::steady_clock::time_point time;
};

struct cuda_on_cpu_event {
    std::shared_ptr<record> last;
};

struct item {
    std::function<void()> run;
    std::shared_ptr<record> after; /* NULL: what is before it in its stream is enough */
};

struct cuda_on_cpu_stream {
    std::deque<item> work;
    bool is_running;
};

static std::recursive_mutex turn; /* of streams and events */
static std::vector<cudaStream_t> streams;
static ig_random lots = {1};

static void run_first(cudaStream_t s) {
    item first = s->work.front();
    s->work.pop_front();
    first.run();
}

/* What the other streams can do by themselves. */
static void run_others(void) {
    for (bool moved = true; moved;) {
        moved = false;
        for (cudaStream_t s : streams)
            for (; !s->is_running && !s->work.empty(); moved = true) {
                const record *after = s->work.front().after.get();
                if (after && !after->done) break;
                run_first(s);
            }
    }
}

/* A stream up to a record, or its end. */
static void run_stream(cudaStream_t s, const record *until, bool others_first) {
    if (s->is_running) die("streams wait for each other for ever");
    s->is_running = true;
    while (!s->work.empty() && !(until && until->done)) {
        if (others_first) run_others();
        std::shared_ptr<record> after = s->work.front().after;
        if (after && !after->done) run_stream(after->stream, after.get(), others_first);
        run_first(s);
    }
    s->is_running = false;
}

static cudaError_t wait_for(cudaStream_t s, const record *until) {
    std::lock_guard<std::recursive_mutex> guard(turn);
    if (s->work.empty() || (until && until->done)) return cudaSuccess;
    open_memory(1);
    run_stream(s, until, ig_random_unit(&lots) < 0.5);
    open_memory(-1);
    return cudaSuccess;
}

static const double AT_ONCE = 0.1; /* of all work: run, with what it waits for, when it comes */

static void push(cudaStream_t s, std::function<void()> run, std::shared_ptr<record> after = nullptr) {
    std::lock_guard<std::recursive_mutex> guard(turn);
    s->work.push_back(item{run, after});
    if (ig_random_unit(&lots) < AT_ONCE) wait_for(s, nullptr);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags) {
    (void)flags;
    std::lock_guard<std::recursive_mutex> guard(turn);
    streams.push_back(*s = new cuda_on_cpu_stream());
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t s) {
    std::lock_guard<std::recursive_mutex> guard(turn);
    if (!s->work.empty()) die("a stream is destroyed that has work left");
    streams.erase(std::find(streams.begin(), streams.end(), s));
    delete s;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t s) {
    cudaError_t waited = wait_for(s, nullptr), failed = failure_of(__func__);
    return failed ? failed : waited;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags) {
    (void)flags;
    if (e->last)
        push(
            s, [] {}, e->last);
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags) {
    (void)flags;
    *e = new cuda_on_cpu_event();
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t e) {
    delete e;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
    std::shared_ptr<record> r(new record{s, false, {}});
    e->last = r;
    push(s, [r] {
        r->done = true;
        r->time = std::chrono::steady_clock::now();
    });
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t e) {
    return e->last ? wait_for(e->last->stream, e->last.get()) : cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to) {
    if (!from->last || !to->last) return cudaErrorInvalidValue;
    if (!from->last->done || !to->last->done) return cudaErrorNotReady;
    *ms = std::chrono::duration<float, std::milli>(to->last->time - from->last->time).count();
    return cudaSuccess;
}

/* What commands do. */
static std::function<void()> copying(void *to, const void *from, size_t n_bytes) {
    return [=] { memcpy(to, from, n_bytes); };
}

static std::function<void()> clearing(void *to, int byte, size_t n_bytes) {
    return [=] { memset(to, byte, n_bytes); };
}

static std::map<const void *, cuda_on_cpu_binder> kernels;

void cuda_on_cpu_know(const void *kernel, cuda_on_cpu_binder binder) {
    std::lock_guard<std::recursive_mutex> guard(turn);
    kernels[kernel] = binder;
}

static std::map<const void *, size_t> allowed; /* bytes of shared memory, more than all kernels may have */

cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute attribute, int value) {
    std::lock_guard<std::recursive_mutex> guard(turn);
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value > MOST_SHARED_BYTES)
        return cudaErrorInvalidValue;
    allowed[kernel] = (size_t)value;
    return call(__func__);
}

static std::function<void()> launching(const cudaKernelNodeParams *p) {
    std::lock_guard<std::recursive_mutex> guard(turn);
    if (!kernels.count(p->func)) die("a launch of what is no kernel");
    if (p->sharedMemBytes > (allowed.count(p->func) ? allowed[p->func] : (size_t)SHARED_BYTES))
        die("a launch with more shared memory than the kernel may have");
    std::function<void()> body = kernels[p->func](p->func, p->kernelParams);
    cudaKernelNodeParams own = *p;
    return [=] { run_grid(own.gridDim, own.blockDim, own.sharedMemBytes, body); };
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n_bytes, cudaMemcpyKind kind, cudaStream_t s) {
    (void)kind;
    push(s, copying(to, from, n_bytes));
    n_copied += n_bytes;
    return call(__func__);
}

cudaError_t cudaMemsetAsync(void *to, int byte, size_t n_bytes, cudaStream_t s) {
    push(s, clearing(to, byte, n_bytes));
    return call(__func__);
}

cudaError_t cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **args, size_t shared_bytes,
                             cudaStream_t s) {
    cudaKernelNodeParams p = {(void *)kernel, grid, block, (unsigned)shared_bytes, args, nullptr};
    push(s, launching(&p));
    return call(__func__);
}

/* ---- graphs --------------------------------------------------------------------------------- */

struct cuda_on_cpu_node {
    size_t number;
    const void *kernel; /* of launches */
    std::function<void()> run;
    std::vector<size_t> after; /* numbers of others */
};

struct cuda_on_cpu_graph {
    std::vector<std::unique_ptr<cuda_on_cpu_node>> nodes;
};

struct cuda_on_cpu_exec {
    std::vector<cuda_on_cpu_node> nodes;
};

cudaError_t cudaGraphCreate(cudaGraph_t *g, unsigned flags) {
    (void)flags;
    *g = new cuda_on_cpu_graph();
    return call(__func__);
}

cudaError_t cudaGraphDestroy(cudaGraph_t g) {
    delete g;
    return cudaSuccess;
}

static void add_node(cudaGraphNode_t *node, cudaGraph_t g, const cudaGraphNode_t *after, size_t n, const void *kernel,
                     std::function<void()> run) {
    cuda_on_cpu_node *made = new cuda_on_cpu_node{g->nodes.size(), kernel, run, {}};
    for (size_t i = 0; i < n; i++) made->after.push_back(after[i]->number);
    for (size_t i = 1; i < n; i++)
        if (after[i] == after[0]) die("a graph's node that waits for another one twice");
    g->nodes.emplace_back(*node = made);
}

cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t *node, cudaGraph_t g, const cudaGraphNode_t *after, size_t n,
                                   const cudaKernelNodeParams *p) {
    add_node(node, g, after, n, p->func, launching(p));
    return call(__func__);
}

cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t *node, cudaGraph_t g, const cudaGraphNode_t *after, size_t n,
                                   const cudaMemsetParams *p) {
    add_node(node, g, after, n, nullptr, clearing(p->dst, (int)p->value, p->width));
    return p->elementSize == 1 && p->height == 1 ? call(__func__) : cudaErrorInvalidValue;
}

cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t *node, cudaGraph_t g, const cudaGraphNode_t *after, size_t n,
                                     void *to, const void *from, size_t n_bytes, cudaMemcpyKind kind) {
    (void)kind;
    add_node(node, g, after, n, nullptr, copying(to, from, n_bytes));
    return call(__func__);
}

cudaError_t ig_graph_follow(cudaGraph_t g, cudaGraphNode_t before, cudaGraphNode_t node) {
    if (!before->kernel || !node->kernel) die("what is no launch follows a launch");
    g->nodes[node->number]->after.push_back(before->number);
    return call(__func__);
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *x, cudaGraph_t g, unsigned long long flags) {
    (void)flags;
    *x = new cuda_on_cpu_exec();
    for (const auto &node : g->nodes) (*x)->nodes.push_back(*node);
    return call(__func__);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t x) {
    delete x;
    return cudaSuccess;
}

cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t x, cudaGraphNode_t node, const cudaKernelNodeParams *p) {
    if (x->nodes[node->number].kernel != p->func) return cudaErrorInvalidValue;
    x->nodes[node->number].run = launching(p);
    return call(__func__);
}

cudaError_t cudaGraphExecMemsetNodeSetParams(cudaGraphExec_t x, cudaGraphNode_t node, const cudaMemsetParams *p) {
    x->nodes[node->number].run = clearing(p->dst, (int)p->value, p->width);
    return p->elementSize == 1 && p->height == 1 ? call(__func__) : cudaErrorInvalidValue;
}

cudaError_t cudaGraphExecMemcpyNodeSetParams1D(cudaGraphExec_t x, cudaGraphNode_t node, void *to, const void *from,
                                               size_t n_bytes, cudaMemcpyKind kind) {
    (void)kind;
    x->nodes[node->number].run = copying(to, from, n_bytes);
    return call(__func__);
}

/* Nodes run in an order by lot, each behind those that it waits for. */
static void run_nodes(const std::vector<cuda_on_cpu_node> &nodes) {
    std::vector<size_t> waiting(nodes.size()), ready;
    std::vector<std::vector<size_t>> then(nodes.size());
    for (const cuda_on_cpu_node &node : nodes) {
        waiting[node.number] = node.after.size();
        for (size_t before : node.after) then[before].push_back(node.number);
        if (node.after.empty()) ready.push_back(node.number);
    }
    while (!ready.empty()) {
        size_t i = (size_t)(ig_random_unit(&lots) * (double)ready.size()), number = ready[i];
        ready[i] = ready.back();
        ready.pop_back();
        nodes[number].run();
        for (size_t next : then[number])
            if (--waiting[next] == 0) ready.push_back(next);
    }
}

/* What is changed afterwards is changed for later launches only. */
cudaError_t cudaGraphLaunch(cudaGraphExec_t x, cudaStream_t s) {
    std::vector<cuda_on_cpu_node> nodes = x->nodes;
    push(s, [=] { run_nodes(nodes); });
    return call(__func__);
}

/* ---- the rest ------------------------------------------------------------------------------- */

cudaError_t cudaDriverGetVersion(int *version) {
    *version = 12040;
    return failure_of(__func__);
}

cudaError_t cudaRuntimeGetVersion(int *version) {
    *version = 13000;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *n) {
    *n = 1;
    return failure_of(__func__);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device) {
    *p = cudaDeviceProp{};
    snprintf(p->name, sizeof p->name, "fibers on the CPU");
    p->totalGlobalMem = room[false];
    p->major = 7, p->minor = 5, p->multiProcessorCount = 1;
    return device == 0 ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaDeviceGetAttribute(int *v, cudaDeviceAttr attribute, int device) {
    *v = attribute == cudaDevAttrConcurrentManagedAccess;
    return device == 0 ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaSetDevice(int device) { return device == 0 ? failure_of(__func__) : cudaErrorInvalidValue; }
cudaError_t cudaGetLastError(void) {
    cudaError_t e = last_error.exchange(cudaSuccess);
    return e != cudaSuccess ? e : failure_of(__func__);
}
cudaError_t cudaFuncGetName(const char **name, const void *kernel) {
    std::lock_guard<std::recursive_mutex> guard(turn);
    *name = kernels.count(kernel) ? "a kernel of the tests" : "no kernel";
    return cudaSuccess;
}
const char *cudaGetErrorString(cudaError_t e) {
    return e == cudaSuccess ? "success" : e == cudaErrorMemoryAllocation ? "out of memory" : "invalid";
}
