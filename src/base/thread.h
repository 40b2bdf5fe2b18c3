/* SPDX-License-Identifier: Apache-2.0
 *
 * How the library starts threads of its own, and how they wait for each other where that is short.
 */
#ifndef IG_BASE_THREAD_H
#define IG_BASE_THREAD_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/error.h"

enum { IG_THREAD_STACK = 1 << 20 }; /* bytes; the deepest calls need a fifth */

/* Starts a thread that takes no signals of the program's, and whose stack does not depend on `ulimit -s`. `what` names
 * it in the error. */
ig_status ig_thread_start(pthread_t *thread, void *(*fn)(void *), void *arg, const char *what, ig_error *err);

/* Returns when *n is `wanted` or more, which threads that are at work make it soon; all that they did before is seen.
 */
void ig_thread_await(const atomic_int *n, int wanted);

#endif
