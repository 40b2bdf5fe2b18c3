/* SPDX-License-Identifier: Apache-2.0
 *
 * Connections, and who watches them: a thread that ends those that are too slow, and calls whose client has gone away.
 */
#ifndef IG_SERVER_WATCH_H
#define IG_SERVER_WATCH_H

#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>

#include "server/server.h"

typedef struct ig_call ig_call; /* call.h */

/* What a connection does: all but one wait for the client. */
typedef enum ig_server_stage {
    IG_STAGE_HEADERS,
    IG_STAGE_BODY,
    IG_STAGE_REPLY,
    IG_STAGE_SEND, /* the client does not read */
    IG_STAGE_IDLE,
    IG_STAGE_END /* its last reply has been sent */
} ig_server_stage;

typedef struct ig_connection {
    struct ig_connection *next, **link;
    int fd;
    struct in6_addr address; /* all zero: a socket in the file system */
    ig_server_stage stage;
    double since;    /* seconds, when the stage began */
    size_t received; /* bytes of the body */
    double latest;   /* seconds, when some of them came last, or the stage began */
    bool is_dropped; /* it is told to end */
    /* Its thread waits for bytes, or has not begun to. It takes them only once this is false again: what has come and
     * was not seen is in the socket for as long as this is true. */
    atomic_bool is_waiting;
    ig_call *call; /* that ends if the client goes away; NULL: none */
} ig_connection;

typedef struct ig_watch {
    const ig_server_limits *limits;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* one has ended */
    pthread_t thread;
    bool has_thread;
    atomic_bool is_ending;
    int wake[2]; /* pipe */
    struct pollfd *polled;
    size_t cap_polled; /* all connections and one */
    ig_connection *first;
    size_t n;
} ig_watch;

ig_status ig_watch_open(ig_watch *w, const ig_server_limits *limits, ig_error *err);
void ig_watch_close(ig_watch *w);
/* Where there are too many, of this address or in all, the one that has waited longest for its client makes room, but
 * none that has sent what nobody has read yet. NULL: none could, or there is no memory. */
ig_connection *ig_watch_add(ig_watch *w, int fd, const struct in6_addr *address);
/* Where nothing is left to take one more: the one that has waited longest is told to end, if any waits. */
void ig_watch_make_room(ig_watch *w);
void ig_watch_remove(ig_watch *w, ig_connection *k);
void ig_watch_stage(ig_watch *w, ig_connection *k, ig_server_stage stage);
/* The first byte of a request has come. */
void ig_watch_begin(ig_watch *w, ig_connection *k);
void ig_watch_received(ig_watch *w, ig_connection *k, size_t n);
/* From here on, until it is NULL again, the call ends with its client. */
void ig_watch_call(ig_watch *w, ig_connection *k, ig_call *c);
/* Since the server ends. */
void ig_watch_end_calls(ig_watch *w);
/* Ends all connections, and waits until they have ended. */
void ig_watch_end_all(ig_watch *w);

#endif
