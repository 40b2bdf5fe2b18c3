/* SPDX-License-Identifier: Apache-2.0
 *
 * Processes that serve one model each, of a server of several (router.h). They are started when somebody asks for their
 * model, and end when the memory is wanted for another one. One thread starts and ends them all.
 */
#ifndef IG_SERVER_CHILDREN_H
#define IG_SERVER_CHILDREN_H

#include "server/call.h"

typedef enum ig_child_stage {
    IG_CHILD_OFF,
    IG_CHILD_LOADING,
    IG_CHILD_READY,
    IG_CHILD_LEAVING, /* it gets no more requests, and ends once it has answered those it has */
    IG_CHILD_ENDING
} ig_child_stage;

typedef struct ig_children ig_children;

/* For the models of the server's options, which outlive it. */
ig_status ig_children_open(ig_children **out, const ig_server *s, ig_error *err);
/* Ends all that run. Harmless on NULL. */
void ig_children_close(ig_children *k);

/* A connection to the process of model number i, which is waited for as long as the call goes on, and stays until
 * ig_children_give() closes it. -1: it could not be started, and the call is refused. */
int ig_children_take(ig_children *k, size_t i, ig_call *c);
void ig_children_give(ig_children *k, size_t i, int connection);
/* It ends, once it has answered what it has. */
void ig_children_leave(ig_children *k, size_t i);

ig_child_stage ig_children_stage(ig_children *k, size_t i);
/* The one that is loaded and was asked last; -1: none is. */
int ig_children_latest(ig_children *k);

#endif
