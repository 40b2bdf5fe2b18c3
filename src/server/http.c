/* SPDX-License-Identifier: Apache-2.0
 *
 * One request after the other of a connection: looked at, read, answered. What is refused is still read to its end,
 * within limits, so that the client sees the answer.
 */
#define _GNU_SOURCE
#include "server/api.h"
#include "server/router.h"
#include "text/clock.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

const ig_route ig_server_routes[] = {
    {"/", "GET, HEAD", true, ig_route_page, NULL},
    {"/health", "GET, HEAD", true, ig_route_health, NULL},
    {"/v1/health", "GET, HEAD", true, ig_route_health, NULL},
    {"/version", "GET, HEAD", true, ig_route_version, NULL},
    {"/v1/models", "GET, HEAD", false, ig_route_models, NULL},
    {"/v1/models/", "GET, HEAD", false, ig_route_models, NULL},
    {"/models", "GET, HEAD", false, ig_route_models, NULL},
    {"/models/load", "POST", false, ig_route_load, NULL},
    {"/models/unload", "POST", false, ig_route_unload, NULL},
    {"/v1/chat/completions", "POST", false, ig_route_answers, &ig_api_chat},
    {"/chat/completions", "POST", false, ig_route_answers, &ig_api_chat},
    {"/v1/messages", "POST", false, ig_route_answers, &ig_api_messages},
    {"/v1/messages/count_tokens", "POST", false, ig_route_count_tokens, &ig_api_messages},
    {"/v1/responses", "POST", false, ig_route_answers, &ig_api_responses},
    {"/v1/responses/input_tokens", "POST", false, ig_route_input_tokens, &ig_api_responses},
    {"/v1/completions", "POST", false, ig_route_answers, &ig_api_completions},
    {"/completions", "POST", false, ig_route_answers, &ig_api_completions},
    {"/completion", "POST", false, ig_route_answers, &ig_api_native},
    {"/infill", "POST", false, ig_route_answers, &ig_api_infill},
    {"/api/chat", "POST", false, ig_route_ollama, &ig_api_ollama_chat},
    {"/api/generate", "POST", false, ig_route_ollama, &ig_api_ollama_prompt},
    {"/api/tags", "GET, HEAD", false, ig_route_ollama_models, &ig_api_ollama_chat},
    {"/api/ps", "GET, HEAD", false, ig_route_ollama_loaded, &ig_api_ollama_chat},
    {"/api/show", "POST", false, ig_route_ollama_show, &ig_api_ollama_chat},
    {"/api/version", "GET, HEAD", true, ig_route_ollama_version, NULL},
    {"/api/embed", "POST", false, ig_route_ollama_embed, &ig_api_ollama_embed},
    {"/api/embeddings", "POST", false, ig_route_answers, &ig_api_ollama_embeddings},
    {"/v1/embeddings", "POST", false, ig_route_answers, &ig_api_embeddings},
    {"/embeddings", "POST", false, ig_route_answers, &ig_api_embeddings},
    {"/v1/rerank", "POST", false, ig_route_answers, &ig_api_rerank},
    {"/v1/reranking", "POST", false, ig_route_answers, &ig_api_rerank},
    {"/v2/rerank", "POST", false, ig_route_answers, &ig_api_rerank},
    {"/rerank", "POST", false, ig_route_answers, &ig_api_rerank},
    {"/reranking", "POST", false, ig_route_answers, &ig_api_rerank},
    {"/tokenize", "POST", false, ig_route_tokenize, NULL},
    {"/v1/tokenize", "POST", false, ig_route_tokenize, NULL},
    {"/detokenize", "POST", false, ig_route_detokenize, NULL},
    {"/v1/detokenize", "POST", false, ig_route_detokenize, NULL},
    {"/tokenizer_info", "GET, HEAD", false, ig_route_tokenizer_info, NULL},
    {"/v1/tokenizer_info", "GET, HEAD", false, ig_route_tokenizer_info, NULL},
    {"/apply-template", "POST", false, ig_route_apply_template, NULL},
    {"/props", "GET, HEAD", false, ig_route_props, NULL},
    {"/lora-adapters", "GET, HEAD, POST", false, ig_route_adapters, NULL},
    {"/slots", "GET, HEAD", false, ig_route_slots, NULL},
    {"/metrics", "GET, HEAD", false, ig_route_metrics, NULL},
    {"/openapi.json", "GET, HEAD", false, ig_route_openapi, NULL},
    {NULL, NULL, false, NULL, NULL},
};

/* ---- looking at it ------------------------------------------------------------------------- */

static const ig_route *find_route(const char *url) {
    for (const ig_route *r = ig_server_routes; r->path; r++) {
        size_t n = strlen(r->path);
        if (n > 1 && r->path[n - 1] == '/' ? strncmp(url, r->path, n) == 0 && url[n] : strcmp(url, r->path) == 0)
            return r;
    }
    return NULL;
}

/* "POST" is one of "GET, HEAD". */
static bool is_one_of(const char *methods, const char *method) {
    size_t n = strlen(method);
    for (const char *at = methods; at; at = strchr(at, ' ')) {
        at += strspn(at, ", ");
        if (strncmp(at, method, n) == 0 && (at[n] == 0 || at[n] == ',')) return true;
    }
    return false;
}

static bool refuse_size(ig_call *c) {
    return ig_refuse(c, 413, NULL, "a body has at most %llu bytes",
                     (unsigned long long)c->server->o->limits.body_bytes);
}

/* "application/json" and "application/json; charset=utf-8" are. */
static bool is_type(const char *given, const char *type) {
    size_t n = strlen(type);
    return given && strncasecmp(given, type, n) == 0 && (!given[n] || given[n] == ';' || given[n] == ' ');
}

/* What curl says of a body if it is told nothing else, or nothing, as many clients. A page could send both anywhere
 * without asking before, but no browser lets it leave out the other two. */
static bool is_of_no_page(const ig_head *h, const char *type) {
    return (!type || is_type(type, "application/x-www-form-urlencoded")) && !ig_head_value(h, "Origin") &&
           !ig_head_value(h, "Sec-Fetch-Site");
}

static bool check_type(ig_call *c) {
    const char *type = ig_head_value(c->head, "Content-Type"), *coding = ig_head_value(c->head, "Content-Encoding");
    if (coding && strcasecmp(coding, "identity") != 0)
        return ig_refuse(c, 415, NULL, "the body must be as it is, without a Content-Encoding");
    if (is_type(type, "application/json") || is_of_no_page(c->head, type)) return true;
    return ig_refuse(c, 415, NULL, "the body must be JSON, and its header Content-Type: application/json");
}

/* The question that a browser asks before a page of elsewhere may send something. */
static bool is_preflight(const ig_call *c) {
    return c->origin && strcmp(c->head->method, "OPTIONS") == 0 &&
           ig_head_value(c->head, "Access-Control-Request-Method");
}

static void allow_page(ig_call *c) {
    ig_reply(c, 200, "text/plain",
             "Access-Control-Allow-Methods: GET, POST\r\nAccess-Control-Allow-Headers: Authorization, *\r\n"
             "Access-Control-Max-Age: 600\r\n",
             "", 0);
}

static const ig_route preflight = {"*", "OPTIONS", true, allow_page, NULL};

/* Route and permission are decided on the same path. */
static bool look_at(ig_call *c) {
    const ig_head *h = c->head;
    c->route = find_route(h->path);
    c->is_post = strcmp(h->method, "POST") == 0;
    c->is_head = strcmp(h->method, "HEAD") == 0;
    if (h->length > c->server->o->limits.body_bytes) refuse_size(c);
    if (!ig_server_may_enter(c, (c->route && c->route->is_public) || strcmp(h->method, "OPTIONS") == 0)) return false;
    if (is_preflight(c)) {
        c->route = &preflight;
        return true;
    }
    if (!c->route) return ig_refuse(c, 404, NULL, "there is no %s here", h->path);
    if (!is_one_of(c->route->methods, h->method))
        return ig_refuse(c, 405, NULL, "%s takes %s", c->route->path, c->route->methods);
    if (c->is_post && !h->has_length && !h->is_chunked) return ig_refuse(c, 411, NULL, "Content-Length is missing");
    return !c->is_post || check_type(c);
}

/* ---- reading it -------------------------------------------------------------------------------- */

/* Of what is refused nothing is kept. */
static void take_body(ig_call *c, const char *data, size_t n) {
    c->n_seen += n;
    ig_watch_received(&c->server->watch, c->wire->connection, n);
    if (c->n_seen > c->server->o->limits.body_bytes) refuse_size(c);
    if (c->refusal.status) return;
    if (c->n_body + n > c->cap_body) {
        size_t cap = 2 * c->cap_body + n + 4096;
        char *more = realloc(c->body, cap);
        if (!more) {
            ig_refuse(c, 500, NULL, "out of memory for a body of %zu bytes", cap);
            return;
        }
        c->body = more;
        c->cap_body = cap;
    }
    memcpy(c->body + c->n_body, data, n);
    c->n_body += n;
}

/* The next n bytes of the body. False: they do not come, or nobody waits for so many. */
static bool read_bytes(ig_call *c, uint64_t n) {
    const char *data;
    size_t have;
    for (; n; n -= have) {
        if (c->n_seen > c->server->o->limits.body_bytes || !ig_wire_some(c->wire, (size_t)n, &data, &have))
            return false;
        take_body(c, data, have);
    }
    return true;
}

static bool refuse_chunk(ig_call *c) { return ig_refuse(c, 400, NULL, "the body's chunks are not as they must be"); }

/* Length, bytes and a line's end, again and again; the last one has no bytes, and trailers, which nobody wants. */
static bool read_chunks(ig_call *c) {
    const char *line;
    size_t n, n_trailers = 0;
    uint64_t size = 1;
    while (size) {
        if (!ig_wire_line(c->wire, &line, &n)) return false;
        if (!line || !ig_chunk_size(&size, line, n)) return refuse_chunk(c);
        if (size > c->server->o->limits.body_bytes) return refuse_size(c);
        if (!size) break;
        if (!read_bytes(c, size) || !ig_wire_line(c->wire, &line, &n)) return false;
        if (!line || n != 1 || line[0] != '\r') return refuse_chunk(c);
    }
    for (;;) {
        if (!ig_wire_line(c->wire, &line, &n)) return false;
        if (line && n == 1 && line[0] == '\r') return true;
        if (!line || !ig_chunk_is_trailer(line, n) || ++n_trailers > IG_HEAD_FIELDS_MAX) return refuse_chunk(c);
    }
}

/* False: it was not read to its end, and so nothing can come after it. */
static bool read_body(ig_call *c) {
    const ig_head *h = c->head;
    if (!h->has_length && !h->is_chunked) return true;
    if (c->refusal.status && (h->wants_continue || c->refusal.status == 413)) return false;
    struct iovec go_on = {"HTTP/1.1 100 Continue\r\n\r\n", 25};
    if (h->wants_continue && !ig_wire_send(c->wire, &go_on, 1)) return false;
    ig_watch_stage(&c->server->watch, c->wire->connection, IG_STAGE_BODY);
    if (h->is_chunked ? read_chunks(c) : read_bytes(c, h->length)) return true;
    ig_refuse(c, 408, NULL, "the body did not come to its end in time");
    return false;
}

/* ---- answering it ------------------------------------------------------------------------------------ */

static void begin(ig_call *c) {
    c->began = ig_text_seconds();
    pthread_mutex_lock(&c->server->lock);
    c->server->n_calls++;
    pthread_mutex_unlock(&c->server->lock);
}

static void end(ig_call *c) {
    ig_server *s = c->server;
    ig_watch_call(&s->watch, c->wire->connection, NULL);
    ig_server_record_call(c);
    ig_exchange_close(c->exchange);
    pthread_mutex_lock(&s->numbers.lock);
    s->numbers.gone += !c->is_answered || c->wire->is_broken;
    pthread_mutex_unlock(&s->numbers.lock);
    pthread_mutex_lock(&s->lock);
    s->n_calls--;
    pthread_mutex_unlock(&s->lock);
    free(c->body);
}

static void answer(ig_call *c) {
    look_at(c);
    if (!read_body(c)) c->closes = true;
    ig_watch_stage(&c->server->watch, c->wire->connection, IG_STAGE_REPLY);
    if (!c->refusal.status) (c->server->children ? ig_router_answer : c->route->handle)(c);
    if (c->refusal.status && !c->is_answered) ig_reply_refusal(c);
}

/* False: the connection ends. */
static bool serve_request(ig_wire *w) {
    ig_head head = {.closes = true};
    char *text;
    size_t n = 0;
    const char *why = NULL;
    unsigned status = ig_wire_head(w, &text, &n);
    if (status == IG_WIRE_GONE) return false;
    if (status == 408) why = "the head of the request did not come to its end in time";
    if (status == 414) why = "the first line is too long";
    if (status == 431) why = "the header fields are too long";
    if (status == 500) why = "out of memory";
    if (!status) status = ig_head_read(&head, text, n, &why);
    ig_call c = {.server = w->server, .wire = w, .head = &head, .closes = head.closes};
    begin(&c);
    if (status) {
        c.closes = true;
        ig_refuse(&c, status, NULL, "%s", why);
        ig_reply_refusal(&c);
    } else {
        answer(&c);
    }
    bool goes_on = c.is_answered && !c.closes && !w->is_broken && !atomic_load(&w->server->is_draining);
    end(&c);
    free(text);
    ig_watch_stage(&w->server->watch, w->connection, goes_on ? IG_STAGE_IDLE : IG_STAGE_END);
    return goes_on;
}

void ig_http_serve(ig_wire *w) {
    while (serve_request(w)) continue;
    if (!w->is_broken) ig_wire_end(w);
}
