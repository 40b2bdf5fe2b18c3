/* SPDX-License-Identifier: Apache-2.0
 *
 * How the library starts threads of its own.
 */
#ifndef IG_BASE_THREAD_H
#define IG_BASE_THREAD_H

#include <pthread.h>

#include "base/error.h"

enum { IG_THREAD_STACK = 1 << 20 }; /* bytes; the deepest calls need a fifth */

/* Starts a thread that takes no signals of the program's, and whose stack does not depend on `ulimit -s`. `what` names
 * it in the error. */
ig_status ig_thread_start(pthread_t *thread, void *(*fn)(void *), void *arg, const char *what, ig_error *err);

#endif
