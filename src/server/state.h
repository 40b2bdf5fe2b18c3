/* SPDX-License-Identifier: Apache-2.0
 *
 * What a running server has. A connection has a thread (connection.c), which reads a request, hands what is to be
 * computed to the scheduler and sends what comes back: a call (call.h). The scheduler's thread only fills buffers of
 * calls. One more thread takes connections, and one watches them (watch.h).
 */
#ifndef IG_SERVER_STATE_H
#define IG_SERVER_STATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "server/watch.h"
#include "text/text.h"

typedef struct ig_tool_format ig_tool_format; /* answers.h */
typedef struct ig_thought_marks ig_thought_marks;
typedef struct ig_children ig_children; /* children.h */

/* ---- keys (guard.c) -------------------------------------------------------------------------- */

enum { IG_SERVER_KEYS_MAX = 256, IG_SERVER_KEY_BYTES = 256 };

typedef struct ig_server_keys {
    pthread_mutex_t lock;
    size_t n;
    char (*keys)[IG_SERVER_KEY_BYTES]; /* filled up with zeros */
} ig_server_keys;

/* Reads those of the options, for the first time or again; after a failure the old ones stay. */
ig_status ig_server_read_keys(ig_server *s, ig_error *err);
void ig_server_free_keys(ig_server_keys *k);
/* Whether clients need one: this does not change. */
bool ig_server_has_keys(const ig_server *s);

/* ---- numbers (metrics.c) --------------------------------------------------------------------- */

enum { IG_SERVER_BUCKETS = 16 };

typedef struct ig_histogram {
    uint64_t counts[IG_SERVER_BUCKETS + 1], n;
    double sum;
} ig_histogram;

typedef struct ig_server_numbers {
    pthread_mutex_t lock;
    uint64_t replies[6]; /* by hundreds of the status */
    uint64_t gone;       /* clients that left before their answer */
    ig_histogram first_token, between_tokens, wait, prompt, whole;
} ig_server_numbers;

void ig_server_note_time(ig_server *s, ig_histogram *h, double seconds);
void ig_server_note_end(ig_server *s, const ig_request_result *r);

/* ---- fields that are not known, which are logged once each (absent.c) ------------------------ */

enum { IG_SERVER_FIELDS_NOTED = 64, IG_SERVER_FIELD_BYTES = 64 };

typedef struct ig_server_fields {
    pthread_mutex_t lock;
    size_t n;
    char names[IG_SERVER_FIELDS_NOTED][IG_SERVER_FIELD_BYTES];
} ig_server_fields;

/* ---- adapters (adapters.c) -------------------------------------------------------------------- */

typedef struct ig_server_adapters {
    json_t *names;  /* the model's, and then those of all, as clients call them */
    double *scales; /* what requests take of each that say nothing; under the server's lock */
} ig_server_adapters;

ig_status ig_server_open_adapters(ig_server *s, ig_error *err); /* of s->info */
void ig_server_close_adapters(ig_server *s);
/* The model's name, 0, and those of its adapters, from 1; NULL past the end. */
const char *ig_server_name(const ig_server *s, size_t i);
/* The first of them that these n bytes are; -1: none. */
int ig_server_find(const ig_server *s, const char *name, size_t n);

/* ---- the server (server.c) ------------------------------------------------------------------- */

/* Tokens of a model around the parts of a prompt for a text between two others; -1: it has none. */
typedef struct ig_infill_marks {
    int32_t prefix, suffix, middle, file, repository;
} ig_infill_marks;

struct ig_server {
    const ig_server_options *o;
    ig_scheduler *scheduler;
    ig_children *children; /* of a server of several models, which has no scheduler; else NULL */
    ig_model_info info;
    int listener;
    pthread_t accepting; /* takes connections */
    bool is_accepting;
    atomic_bool is_ready; /* answers; before, who asks is told to come back */
    bool is_handed_over;  /* the socket, which goes on listening after the server, for the next one started with it */
    bool is_unix;         /* listens at a socket in the file system */
    dev_t socket_device;  /* the socket that it made there; 0: none */
    ino_t socket_inode;
    bool has_no_threads; /* which has been told */
    ig_server_keys keys;
    ig_watch watch;
    ig_server_numbers numbers;
    ig_server_fields fields;
    ig_server_adapters adapters;
    int64_t created; /* seconds since 1970 */
    char fingerprint[32];
    ig_tool_format *tool_format;
    const ig_thought_marks *thoughts; /* of the model; NULL: it has none */
    ig_infill_marks infill;
    atomic_bool is_draining; /* takes no more */
    pthread_t thread;        /* that ig_server_run() was called on, and takes signals */
    ig_error failure;        /* why it ends by itself; status 0: it does not. Read once all has ended */
    pthread_mutex_t lock;
    int n_calls; /* being answered */
};

/* A line for whoever runs the server. */
void ig_server_say(const ig_server *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Listens (listen.c), says where, and no more: nobody new gets in. */
ig_status ig_server_listen(ig_server *s, ig_error *err);
void ig_server_say_where(const ig_server *s);
void ig_server_stop_listening(ig_server *s);

/* If after this error no request can be answered any more, the server ends as after SIGTERM, and with it. */
void ig_server_see_failure(ig_server *s, const ig_error *why);

/* Takes connections from now on, and no more. (connection.c) */
ig_status ig_server_accept(ig_server *s, ig_error *err);
void ig_server_accept_no_more(ig_server *s);

#endif
