/* SPDX-License-Identifier: Apache-2.0
 *
 * The scheduler's parts: requests (request.c), what waits and what runs (scheduler.c), who may take memory that is
 * short (room.c). Everything of a request that changes is its scheduler's thread's, but for what `lock` guards.
 */
#ifndef IG_ENGINE_SCHEDULER_H
#define IG_ENGINE_SCHEDULER_H

#include <pthread.h>
#include <stdatomic.h>

#include "engine/answer.h"
#include "infinigen_requests.h"

/* For what is not the cache's, a request's names are its own. */
enum { IG_REQUEST_NAMES = 5 };

struct ig_request {
    ig_scheduler *scheduler;
    ig_request_options o;    /* pointers to copies */
    ig_session_options want; /* of its session */
    char *names[IG_REQUEST_NAMES];
    uint64_t number;
    atomic_bool is_cancelled;
    ig_request *next; /* in the queue; guarded */
    bool has_ended;   /* no callback comes any more; guarded */

    ig_session *session; /* NULL: not begun */
    ig_sampler *sampler;
    ig_answer answer;
    bool is_alone;     /* its prompt is computed by steps of its own */
    bool is_answering; /* its prompt is held */
    int32_t next_id;   /* to be decoded */
    int most;          /* tokens that it may hold after the next step */
    uint64_t n_turn;   /* tokens of prompts, of its owner: who has fewer comes first */
    double arrived, begun, answered;
    ig_request_result result;
};

/* Checks and copies. `c` is only kept. */
ig_status ig_request_open(ig_request **out, ig_scheduler *c, const ig_request_options *o, ig_error *err);
/* Of one that was never handed over, or has ended. */
void ig_request_free(ig_request *r);

/* Gives it a session and a sampler. */
ig_status ig_request_begin(ig_request *r, ig_error *err);
/* What can be taken over from others is; tokens of the prompt that are to be computed then, as far as it may. */
int ig_request_rest(ig_request *r);
/* Computes the next n tokens of the prompt of one that is alone. */
ig_status ig_request_compute(ig_request *r, int n, ig_error *err);
/* After a step that it was part of: takes the next token, if the prompt is held. True once the answer has ended. */
bool ig_request_advance(ig_request *r);
/* Gives up session and sampler, and says so to the caller. */
void ig_request_end(ig_request *r);

/* Says of all that run how much they may hold after the next step (room.c). */
void ig_scheduler_share_room(ig_scheduler *c);

struct ig_scheduler {
    ig_model *model;
    ig_cache *cache;
    ig_scheduler_options o;
    pthread_t thread;
    bool has_thread;

    pthread_mutex_t lock;   /* of what follows, and of what requests say is guarded */
    pthread_cond_t changed; /* something was handed over, cancelled, or has ended; or the end */
    ig_request *first, **last;
    int n_waiting;
    bool is_closing;
    uint64_t n_submitted;
    ig_scheduler_stats stats;
    ig_scheduler_place *places; /* [o.session.cache.memory.n_sessions] */

    ig_request **running; /* [the same], in the order in which they were begun; the thread's, as all that follows */
    int n_running;
    ig_batch_item *items;            /* [n_sessions] of a step */
    ig_request **of_item;            /* [n_sessions] */
    ig_request **prompts;            /* [n_sessions] in the order in which they come */
    ig_kv **kvs;                     /* [n_sessions] of those that run */
    size_t *held;                    /* [n_sessions] pieces that a running one and all later ones have */
    int piece;                       /* tokens of prompts in a step, while there are answers */
    double answer_seconds;           /* that a token of an answer took in the last step without prompts */
    double committed, next_observed; /* when the store was last made safe; when statistics are taken again */
    bool is_dirty;                   /* something for the store was computed since */
    bool is_failing;                 /* the latest commit did, which has been told: a disk that stays full is no news */
};

#endif
