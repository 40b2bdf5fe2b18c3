/* SPDX-License-Identifier: Apache-2.0
 *
 * The HTTP server: OpenAI's API over one model. It sees infinigen.h and nothing below it.
 */
#ifndef IG_SERVER_SERVER_H
#define IG_SERVER_SERVER_H

#include "infinigen.h"

typedef struct ig_server_options {
    const char *host;      /* to listen at; loopback, unless there is a key */
    int port;              /* 0: any that is free */
    const char *unix_path; /* a socket there instead; NULL: none */
    const char *key;       /* that clients must give; NULL: none */
    const char *key_file;  /* with one a line, read again at SIGHUP; NULL: none */
    const char *alias;     /* the model's name for clients */
    ig_model *model;
    ig_scheduler_options scheduler;
    const char *const *sketches; /* [policies] of each policy, in the order of ig_cache_policy(); NULL: none */
    double drain_seconds;        /* at the end, for what is being answered */
    bool is_sandboxed;           /* gives up other calls than a server needs before it takes requests */
    /* Says what goes on, a line without its end, from any thread. */
    void (*say)(void *user, const char *line);
    void *user;
} ig_server_options;

/* Serves until SIGTERM or SIGINT: then it takes no more, answers what it has taken, and returns. A second one ends at
 * once. No other thread of the program may take these signals, nor SIGHUP. */
ig_status ig_server_run(const ig_server_options *o, ig_error *err);

#endif
