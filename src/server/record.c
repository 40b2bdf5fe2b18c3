/* SPDX-License-Identifier: Apache-2.0
 *
 * What is told of a request once it is over: who asked for what, and what it took. No text of it, unless the program
 * that gets the record wants to show it.
 */
#define _GNU_SOURCE
#include "server/exchange.h"
#include "text/clock.h"

#include <arpa/inet.h>
#include <string.h>
#include <netinet/in.h>
#include <sys/socket.h>

const char *ig_call_client(const ig_call *c, char text[INET6_ADDRSTRLEN]) {
    const struct in6_addr *at = &c->wire->connection->address;
    const char *told = c->server->o->is_handed_on ? ig_head_value(c->head, IG_ADDRESS_FIELD) : NULL;
    if (told && strlen(told) < INET6_ADDRSTRLEN) return told;
    if (IN6_IS_ADDR_UNSPECIFIED(at)) return "unix";
    bool is_4 = IN6_IS_ADDR_V4MAPPED(at);
    return inet_ntop(is_4 ? AF_INET : AF_INET6, at->s6_addr + (is_4 ? 12 : 0), text, INET6_ADDRSTRLEN);
}

/* Ends what is still being made for a client that has gone away, and adds up the choices. */
static void add_exchange(ig_server_record *r, ig_exchange *x) {
    ig_exchange_cancel(x);
    pthread_mutex_lock(&x->lock);
    while (x->n_ended < x->n_choices) pthread_cond_wait(&x->changed, &x->lock);
    for (size_t i = 0; i < x->n_choices; i++) {
        const ig_request_result *one = &x->choices[i].result;
        double first = one->wait_seconds + one->prompt_seconds;
        r->n_prompt += x->prompts[x->choices[i].prompt].n_ids;
        r->n_cached += one->n_cached;
        r->n_new += one->n_tokens;
        if (one->n_tokens && (r->first_token_seconds < 0 || first < r->first_token_seconds))
            r->first_token_seconds = first;
    }
    pthread_mutex_unlock(&x->lock);
    r->is_exchange = true;
    r->id = x->id;
}

void ig_server_record_call(ig_call *c) {
    const ig_server_options *o = c->server->o;
    char address[INET6_ADDRSTRLEN];
    if (!o->on_request || c->is_handed_on || (!c->exchange && c->status >= 200 && c->status < 400)) return;
    ig_server_record r = {.client = ig_call_client(c, address),
                          .method = c->head->method ? c->head->method : "",
                          .path = c->head->path ? c->head->path : "",
                          .status = c->status,
                          .is_whole = c->is_answered && !c->wire->is_broken,
                          .refusal = c->refusal.status ? c->refusal.type : NULL,
                          .failure = c->refusal.status >= 500 ? c->refusal.text : NULL,
                          .first_token_seconds = -1,
                          .body = c->body,
                          .n_body = c->n_body};
    if (c->exchange) add_exchange(&r, c->exchange);
    r.seconds = ig_text_seconds() - c->began;
    o->on_request(o->user, &r);
}
