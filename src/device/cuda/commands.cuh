/* SPDX-License-Identifier: Apache-2.0
 *
 * What the GPU is to do, written down: launches, copies and clears, in two queues that run side by side but where one
 * is said to wait for the other. A launch can take the place of the one before it, and do its work too: between two
 * there is as much time as small ones take. The list is submitted where the host waits, or when it is full; what was
 * put in the mail goes first. A long list with the kernels of the long one before goes as a CUDA graph, in which only
 * what is different is changed: one call for hundreds of launches, with less time between them. So go decode steps that
 * follow each other. With CUDA_LAUNCH_BLOCKING=1, CUDA's own variable, there are no graphs and each command is waited
 * for, so that it is known which one fails.
 */
#ifndef IG_DEVICE_CUDA_COMMANDS_H
#define IG_DEVICE_CUDA_COMMANDS_H

#include <stddef.h>

#include "device/cuda/cuda.cuh"

enum { IG_QUEUES = 2, IG_COMMAND_ARGS = 8, IG_COMMAND_BYTES = 416 };

typedef enum ig_command_kind {
    IG_COMMAND_LAUNCH, /* `kernel` with `args`, which point to `values` */
    IG_COMMAND_COPY,   /* n_bytes from `from` to `to` */
    IG_COMMAND_CLEAR,  /* n_bytes at `to` */
    IG_COMMAND_JOIN,   /* what follows in the queue waits for all that the other one has so far */
    IG_COMMAND_MARK,   /* records `event` */
} ig_command_kind;

typedef struct ig_command {
    ig_command_kind kind;
    int queue;
    const void *kernel;
    dim3 grid, block;
    size_t shared_bytes;
    void *args[IG_COMMAND_ARGS];
    alignas(16) uint8_t values[IG_COMMAND_BYTES]; /* [n_values] */
    size_t n_values;
    void *to;
    const void *from;
    size_t n_bytes;
    cudaEvent_t event;
} ig_command;

typedef struct ig_commands ig_commands;

/* One of the two queues of a list. */
typedef struct ig_queue {
    ig_commands *list;
    int number;
} ig_queue;

struct ig_cuda_mail;

/* After a failure *out is NULL. */
cudaError_t ig_commands_open(ig_commands **out, struct ig_cuda_mail *mail);
/* What was submitted has ended. NULL: nothing. */
void ig_commands_close(ig_commands *c);
/* Hands over what was written down. The first failure since the last time. */
cudaError_t ig_commands_submit(ig_commands *c);
/* That, and waits until all of it has ended. */
cudaError_t ig_commands_finish(ig_commands *c);
/* The command that was the first to fail, if each is waited for and one has; else NULL. */
const char *ig_commands_culprit(const ig_commands *c);
/* The stream that queue number 0 is submitted to. */
cudaStream_t ig_commands_stream(const ig_commands *c);

void ig_queue_copy(ig_queue q, void *to, const void *from, size_t n_bytes);
void ig_queue_clear(ig_queue q, void *to, size_t n_bytes);
void ig_queue_join(ig_queue q);
void ig_queue_mark(ig_queue q, cudaEvent_t event);
/* A launch without arguments. */
ig_command *ig_queue_add_launch(ig_queue q, const void *kernel, dim3 grid, dim3 block, size_t shared_bytes);
/* The last command of all, if it is a launch of this kernel in this queue; else NULL. */
const ig_command *ig_queue_last(ig_queue q, const void *kernel);
/* That one is taken back. */
void ig_queue_drop_last(ig_queue q);

template <typename T>
static inline void ig_command_put(ig_command *c, int i, const T &value) {
    size_t at = (c->n_values + alignof(T) - 1) / alignof(T) * alignof(T);
    memset(c->values + c->n_values, 0, at - c->n_values);
    memcpy(c->values + at, &value, sizeof value);
    c->args[i] = c->values + at;
    c->n_values = at + sizeof value;
}

/* What a launch is called with. */
template <typename T>
static inline T ig_command_value(const ig_command *c, int i) {
    T value;
    memcpy(&value, c->args[i], sizeof value);
    return value;
}

/* None where the grid has no blocks. */
template <typename... P, typename... A>
static inline void ig_launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared_bytes, ig_queue q, A... args) {
    static_assert(sizeof...(P) <= IG_COMMAND_ARGS && (0 + ... + (sizeof(P) + alignof(P) - 1)) <= IG_COMMAND_BYTES);
    if (!grid.x || !grid.y || !grid.z) return;
    ig_command *c = ig_queue_add_launch(q, IG_KERNEL(kernel), grid, block, shared_bytes);
    int i = 0;
    (ig_command_put<P>(c, i++, args), ...);
}

#endif
