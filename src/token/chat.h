/* SPDX-License-Identifier: Apache-2.0
 *
 * How a conversation becomes a prompt: the model's own template.
 */
#ifndef IG_TOKEN_CHAT_H
#define IG_TOKEN_CHAT_H

#include "jinja/jinja.h"
#include "token/tokenizer.h"

typedef struct ig_chat {
    ig_jinja *template; /* NULL: there is none that can be used */
    ig_error why;       /* why not; its status is IG_OK if there is none at all */
    ig_buffer bos, eos; /* what these tokens are in a text; empty if there are none */
    bool drops_bos;     /* tokenising puts it before a text in any case */
} ig_chat;

/* Of a tokenizer, which may go before it. IG_E_MEMORY. */
ig_status ig_chat_open(ig_chat *c, const ig_tokenizer *t, ig_error *err);
void ig_chat_close(ig_chat *c);
/* Appends the prompt that the variables, a JSON object to which the tokens' names are added, make: without a BOS at its
 * beginning if tokenising adds one. Errors are those of ig_jinja_render(). */
ig_status ig_chat_render(ig_buffer *out, const ig_chat *c, json_t *variables, ig_error *err);

#endif
