/* SPDX-License-Identifier: Apache-2.0
 *
 * A server of several models: a process of its own serves each (children.h), and requests are handed on to it. What
 * this server answers itself is which models there are.
 */
#ifndef IG_SERVER_ROUTER_H
#define IG_SERVER_ROUTER_H

#include "server/call.h"

/* Answers the call, or has it answered by the process of the model that it names. */
void ig_router_answer(ig_call *c);

#endif
