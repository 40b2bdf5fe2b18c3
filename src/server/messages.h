/* SPDX-License-Identifier: Apache-2.0
 *
 * Anthropic's API: requests become those of a chat (messages_ask.c), and what answers a chat becomes theirs
 * (messages.c). What is common to both is written once, for chats.
 */
#ifndef IG_SERVER_MESSAGES_H
#define IG_SERVER_MESSAGES_H

#include "server/answers.h"

/* Takes `body`. A chat's body that asks for the same; NULL: refused. */
json_t *ig_messages_body(ig_call *c, json_t *body);

/* Takes `chat`, a chat's whole reply. */
json_t *ig_messages_json(const ig_exchange *x, json_t *chat);
/* Adds the events for a chat's chunk, whose choice this is, which it takes. False: no memory. */
bool ig_messages_tell(ig_exchange *x, json_t *choice);
json_t *ig_messages_error(const ig_refusal *r);

#endif
