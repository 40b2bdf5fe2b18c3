/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists of commands, and graphs of them: see commands.cuh.
 */
#include "device/cuda/commands.cuh"
#include "device/cuda/mail.cuh"

#include <stdlib.h>
#include <string.h>

enum {
    MOST = 4096, /* commands of a list */
    LONG = 32,   /* as many at least can be worth a graph */
    PATIENCE = 3 /* long lists unlike its own that a graph outlives, as when a prompt comes between decode steps */
};

typedef struct list {
    ig_command at[MOST]; /* [n] */
    int n;
    bool is_marked; /* has marks, which graphs of ours have not */
} list;

/* A graph that does what a list says: the node of each command, NULL if it is a join. */
typedef struct graph {
    cudaGraph_t made;
    cudaGraphExec_t exec;
    cudaGraphNode_t node[MOST];
} graph;

struct ig_commands {
    ig_cuda_mail *mail;
    cudaStream_t stream[IG_QUEUES];
    cudaEvent_t joint;  /* between the two */
    list *now, *before; /* what is written down; what the graph does or, if there is none, the long one before */
    graph steps;
    int n_unlike;       /* long lists that the graph could not do, since the last one that it did */
    bool has_no_graphs; /* the driver would not make one */
    bool one_by_one;    /* each command is waited for */
    const char *culprit;
    bool is_side_busy; /* the second stream has work that was submitted since the last finish */
    cudaError_t failure;
};

static void note(ig_commands *c, cudaError_t e) {
    if (e != cudaSuccess && c->failure == cudaSuccess) c->failure = e;
}

/* ---- writing down ------------------------------------------------------------------------- */

static ig_command *add(ig_queue q, ig_command_kind kind) {
    ig_commands *c = q.list;
    if (c->now->n == MOST) note(c, ig_commands_submit(c));
    ig_command *x = &c->now->at[c->now->n++];
    x->kind = kind;
    x->queue = q.number;
    x->kernel = NULL;
    x->n_values = 0;
    return x;
}

ig_command *ig_queue_add_launch(ig_queue q, const void *kernel, dim3 grid, dim3 block, size_t shared_bytes) {
    ig_command *x = add(q, IG_COMMAND_LAUNCH);
    x->kernel = kernel;
    x->grid = grid;
    x->block = block;
    x->shared_bytes = shared_bytes;
    return x;
}

const ig_command *ig_queue_last(ig_queue q, const void *kernel) {
    const list *l = q.list->now;
    const ig_command *x = l->n ? &l->at[l->n - 1] : NULL;
    return x && x->kind == IG_COMMAND_LAUNCH && x->queue == q.number && x->kernel == kernel ? x : NULL;
}

void ig_queue_drop_last(ig_queue q) { q.list->now->n--; }

void ig_queue_copy(ig_queue q, void *to, const void *from, size_t n_bytes) {
    if (n_bytes == 0) return;
    ig_command *x = add(q, IG_COMMAND_COPY);
    x->to = to;
    x->from = from;
    x->n_bytes = n_bytes;
}

void ig_queue_clear(ig_queue q, void *to, size_t n_bytes) {
    if (n_bytes == 0) return;
    ig_command *x = add(q, IG_COMMAND_CLEAR);
    x->to = to;
    x->n_bytes = n_bytes;
}

void ig_queue_join(ig_queue q) { add(q, IG_COMMAND_JOIN); }

void ig_queue_mark(ig_queue q, cudaEvent_t event) {
    add(q, IG_COMMAND_MARK)->event = event;
    q.list->now->is_marked = true;
}

/* ---- one by one ------------------------------------------------------------------------- */

/* What a stream gets from now on waits for all that the other one has. */
static cudaError_t join(ig_commands *c, int queue) {
    cudaError_t e = cudaEventRecord(c->joint, c->stream[1 - queue]);
    return e == cudaSuccess ? cudaStreamWaitEvent(c->stream[queue], c->joint, 0) : e;
}

static cudaError_t run(ig_commands *c, ig_command *x) {
    cudaStream_t s = c->stream[x->queue];
    switch (x->kind) {
        case IG_COMMAND_LAUNCH:
            return cudaLaunchKernel(x->kernel, x->grid, x->block, x->args, x->shared_bytes, s);
        case IG_COMMAND_COPY:
            return cudaMemcpyAsync(x->to, x->from, x->n_bytes, cudaMemcpyDefault, s);
        case IG_COMMAND_CLEAR:
            return cudaMemsetAsync(x->to, 0, x->n_bytes, s);
        case IG_COMMAND_JOIN:
            return join(c, x->queue);
        case IG_COMMAND_MARK:
            return cudaEventRecord(x->event, s);
    }
    return cudaErrorUnknown;
}

static const char *name_of(const ig_command *x) {
    const char *name = x->kind == IG_COMMAND_LAUNCH ? "a kernel" : "a copy, or a wait";
    if (x->kind == IG_COMMAND_LAUNCH) cudaFuncGetName(&name, x->kernel);
    return name;
}

static cudaError_t run_and_wait(ig_commands *c, ig_command *x) {
    const char *name = name_of(x); /* once it has failed the driver may not tell */
    cudaError_t e = run(c, x);
    if (e == cudaSuccess) e = cudaStreamSynchronize(c->stream[x->queue]);
    if (e != cudaSuccess && !c->culprit) c->culprit = name;
    return e;
}

const char *ig_commands_culprit(const ig_commands *c) { return c->culprit; }

static void run_all(ig_commands *c) {
    for (int i = 0; i < c->now->n; i++) {
        note(c, c->one_by_one ? run_and_wait(c, &c->now->at[i]) : run(c, &c->now->at[i]));
        c->is_side_busy = c->is_side_busy || c->now->at[i].queue != 0;
    }
}

/* ---- as a graph --------------------------------------------------------------------------- */

static cudaKernelNodeParams kernel_params(ig_command *x) {
    cudaKernelNodeParams p = {};
    p.func = (void *)x->kernel;
    p.gridDim = x->grid;
    p.blockDim = x->block;
    p.sharedMemBytes = (unsigned)x->shared_bytes;
    p.kernelParams = x->args;
    return p;
}

static cudaMemsetParams clear_params(const ig_command *x) {
    cudaMemsetParams p = {};
    p.dst = x->to;
    p.elementSize = 1;
    p.width = x->n_bytes;
    p.height = 1;
    return p;
}

static cudaError_t add_node(graph *g, cudaGraphNode_t *node, ig_command *x, const cudaGraphNode_t *after, size_t n) {
    cudaKernelNodeParams launch;
    cudaMemsetParams clear;
    switch (x->kind) {
        case IG_COMMAND_LAUNCH:
            launch = kernel_params(x);
            return cudaGraphAddKernelNode(node, g->made, after, n, &launch);
        case IG_COMMAND_CLEAR:
            clear = clear_params(x);
            return cudaGraphAddMemsetNode(node, g->made, after, n, &clear);
        default:
            return cudaGraphAddMemcpyNode1D(node, g->made, after, n, x->to, x->from, x->n_bytes, cudaMemcpyDefault);
    }
}

static cudaError_t change_node(graph *g, cudaGraphNode_t node, ig_command *x) {
    cudaKernelNodeParams launch;
    cudaMemsetParams clear;
    switch (x->kind) {
        case IG_COMMAND_LAUNCH:
            launch = kernel_params(x);
            return cudaGraphExecKernelNodeSetParams(g->exec, node, &launch);
        case IG_COMMAND_CLEAR:
            clear = clear_params(x);
            return cudaGraphExecMemsetNodeSetParams(g->exec, node, &clear);
        default:
            return cudaGraphExecMemcpyNodeSetParams1D(g->exec, node, x->to, x->from, x->n_bytes, cudaMemcpyDefault);
    }
}

static void drop_graph(graph *g) {
    if (g->exec) cudaGraphExecDestroy(g->exec);
    if (g->made) cudaGraphDestroy(g->made);
    g->exec = NULL;
    g->made = NULL;
}

/* A launch behind another one that comes to the multiprocessors as that one leaves them, and waits there. */
static cudaError_t add_early(graph *g, cudaGraphNode_t *node, ig_command *x, cudaGraphNode_t before) {
    cudaError_t e = add_node(g, node, x, NULL, 0);
    return e == cudaSuccess ? ig_graph_follow(g->made, before, *node) : e;
}

/* Each node waits for the one before it in its queue, and for the other queue where it was joined. */
static cudaError_t make_graph(graph *g, list *l) {
    cudaGraphNode_t last[IG_QUEUES] = {}, joined[IG_QUEUES] = {};
    bool was_launch[IG_QUEUES] = {}, is_known = false, early = false;
    cudaError_t e = cudaGraphCreate(&g->made, 0);
    for (int i = 0; i < l->n && e == cudaSuccess; i++) {
        ig_command *x = &l->at[i];
        int q = x->queue;
        g->node[i] = NULL;
        if (x->kind == IG_COMMAND_JOIN) {
            joined[q] = last[1 - q];
            continue;
        }
        cudaGraphNode_t after[2];
        size_t n = 0;
        if (last[q]) after[n++] = last[q];
        if (joined[q]) after[n++] = joined[q];
        bool is_launch = x->kind == IG_COMMAND_LAUNCH;
        if (is_launch && !is_known) early = ig_kernel_waits(x->kernel), is_known = true;
        e = early && is_launch && was_launch[q] && n == 1 ? add_early(g, &g->node[i], x, last[q])
                                                          : add_node(g, &g->node[i], x, after, n);
        last[q] = g->node[i];
        joined[q] = NULL;
        was_launch[q] = is_launch;
    }
    return e == cudaSuccess ? cudaGraphInstantiateWithFlags(&g->exec, g->made, 0) : e;
}

static bool is_same(const ig_command *x, const ig_command *y) {
    return x->to == y->to && x->from == y->from && x->n_bytes == y->n_bytes;
}

static bool is_same_launch(const ig_command *x, const ig_command *y) {
    return memcmp(&x->grid, &y->grid, sizeof x->grid) == 0 && memcmp(&x->block, &y->block, sizeof x->block) == 0 &&
           x->shared_bytes == y->shared_bytes && memcmp(x->values, y->values, x->n_values) == 0;
}

static cudaError_t change_graph(graph *g, list *l, const list *was) {
    cudaError_t e = cudaSuccess;
    for (int i = 0; i < l->n && e == cudaSuccess; i++) {
        ig_command *x = &l->at[i];
        bool same = x->kind == IG_COMMAND_LAUNCH ? is_same_launch(x, &was->at[i]) : is_same(x, &was->at[i]);
        if (g->node[i] && !same) e = change_node(g, g->node[i], x);
    }
    return e;
}

/* Whether two lists are the same but for numbers. */
static bool is_alike(const list *x, const list *y) {
    bool alike = x->n == y->n;
    for (int i = 0; i < x->n && alike; i++) {
        const ig_command *a = &x->at[i], *b = &y->at[i];
        alike = a->kind == b->kind && a->queue == b->queue && a->kernel == b->kernel && a->n_values == b->n_values;
    }
    return alike;
}

/* False: it is not to be one. */
static bool run_graph(ig_commands *c) {
    graph *g = &c->steps;
    if (!is_alike(c->now, c->before)) return false;
    if (!g->exec || change_graph(g, c->now, c->before) != cudaSuccess) { /* a driver may refuse some changes */
        drop_graph(g);
        c->has_no_graphs = make_graph(g, c->now) != cudaSuccess;
        cudaGetLastError();
    }
    if (c->has_no_graphs) { /* one by one they will tell what is wrong with them */
        drop_graph(g);
        return false;
    }
    if (c->is_side_busy) note(c, join(c, 0));
    note(c, cudaGraphLaunch(g->exec, c->stream[0]));
    note(c, join(c, 1));
    return true;
}

/* What was written down is what the next ones are compared with. */
static void keep_list(ig_commands *c) {
    list *l = c->now;
    c->now = c->before;
    c->before = l;
    c->n_unlike = 0;
}

static void run_list(ig_commands *c) {
    bool is_long = c->now->n >= LONG && !c->now->is_marked && !c->has_no_graphs && !c->one_by_one;
    if (is_long && run_graph(c)) {
        keep_list(c);
        return;
    }
    run_all(c);
    if (!is_long || (c->steps.exec && ++c->n_unlike < PATIENCE)) return;
    drop_graph(&c->steps);
    keep_list(c);
}

/* The first failure since the last time. */
static cudaError_t take_failure(ig_commands *c) {
    cudaError_t e = c->failure;
    c->failure = cudaSuccess;
    return e;
}

cudaError_t ig_commands_submit(ig_commands *c) {
    note(c, ig_cuda_mail_send(c->mail, c->stream[0]));
    run_list(c);
    c->now->n = 0;
    c->now->is_marked = false;
    return take_failure(c);
}

cudaError_t ig_commands_finish(ig_commands *c) {
    note(c, ig_commands_submit(c));
    if (c->is_side_busy) note(c, cudaStreamSynchronize(c->stream[1]));
    note(c, cudaStreamSynchronize(c->stream[0]));
    c->is_side_busy = false;
    return take_failure(c);
}

/* ---- opening ------------------------------------------------------------------------------ */

cudaStream_t ig_commands_stream(const ig_commands *c) { return c->stream[0]; }

cudaError_t ig_commands_open(ig_commands **out, ig_cuda_mail *mail) {
    ig_commands *c = (ig_commands *)calloc(1, sizeof *c);
    cudaError_t e = cudaErrorMemoryAllocation;
    *out = NULL;
    if (!c) return e;
    const char *blocking = getenv("CUDA_LAUNCH_BLOCKING");
    c->one_by_one = blocking && strcmp(blocking, "1") == 0;
    c->mail = mail;
    c->now = (list *)calloc(1, sizeof *c->now);
    c->before = (list *)calloc(1, sizeof *c->before);
    if (c->now && c->before) e = cudaEventCreateWithFlags(&c->joint, cudaEventDisableTiming);
    for (int i = 0; i < IG_QUEUES && e == cudaSuccess; i++)
        e = cudaStreamCreateWithFlags(&c->stream[i], cudaStreamNonBlocking);
    if (e == cudaSuccess)
        *out = c;
    else
        ig_commands_close(c);
    return e;
}

void ig_commands_close(ig_commands *c) {
    if (!c) return;
    for (int i = 0; i < IG_QUEUES; i++)
        if (c->stream[i]) cudaStreamSynchronize(c->stream[i]);
    drop_graph(&c->steps);
    for (int i = 0; i < IG_QUEUES; i++)
        if (c->stream[i]) cudaStreamDestroy(c->stream[i]);
    if (c->joint) cudaEventDestroy(c->joint);
    free(c->now);
    free(c->before);
    free(c);
}
