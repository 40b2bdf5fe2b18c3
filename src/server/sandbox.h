/* SPDX-License-Identifier: Apache-2.0
 *
 * What the process gives up, so that who takes it over gains little: by Landlock all files but those it is told of, and
 * by seccomp all calls that a server does not need once it runs.
 */
#ifndef IG_SERVER_SANDBOX_H
#define IG_SERVER_SANDBOX_H

#include "infinigen.h"

typedef struct ig_sandbox {
    const char *const *own; /* ends with NULL: folders with files to be read, written, made and removed */
    const char *const
        *read;          /* ends with NULL: files, and folders with files, to be read; what is not there is left out */
    const char *socket; /* folder in which a socket is made; NULL: none */
} ig_sandbox;

/* For this thread and those it will start, for ever: to be called before there are others. IG_E_UNSUPPORTED where the
 * kernel has no Landlock. */
ig_status ig_sandbox_files(const ig_sandbox *s, ig_error *err);
/* For all threads, for ever: no new connections, sockets and programs, no memory that can be executed. IG_E_UNSUPPORTED
 * where the kernel has no seccomp. */
ig_status ig_sandbox_calls(ig_error *err);

#endif
