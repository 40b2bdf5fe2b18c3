/* SPDX-License-Identifier: Apache-2.0
 *
 * One request after the other of a connection, as libmicrohttpd hands them over: looked at, read, routed. What is
 * refused is still read to its end, within limits, so that the client sees the answer.
 */
#define _GNU_SOURCE
#include "server/parts.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

const ig_route ig_server_routes[] = {
    {"/", "GET, HEAD", true, ig_route_page},
    {"/health", "GET, HEAD", true, ig_route_health},
    {"/v1/health", "GET, HEAD", true, ig_route_health},
    {"/version", "GET, HEAD", true, ig_route_version},
    {"/v1/models", "GET, HEAD", false, ig_route_models},
    {"/v1/models/", "GET, HEAD", false, ig_route_models},
    {"/models", "GET, HEAD", false, ig_route_models},
    {"/v1/chat/completions", "POST", false, ig_route_chat},
    {"/chat/completions", "POST", false, ig_route_chat},
    {"/v1/completions", "POST", false, ig_route_completions},
    {"/completions", "POST", false, ig_route_completions},
    {"/tokenize", "POST", false, ig_route_tokenize},
    {"/v1/tokenize", "POST", false, ig_route_tokenize},
    {"/detokenize", "POST", false, ig_route_detokenize},
    {"/v1/detokenize", "POST", false, ig_route_detokenize},
    {"/tokenizer_info", "GET, HEAD", false, ig_route_tokenizer_info},
    {"/v1/tokenizer_info", "GET, HEAD", false, ig_route_tokenizer_info},
    {"/apply-template", "POST", false, ig_route_apply_template},
    {"/props", "GET, HEAD", false, ig_route_props},
    {"/slots", "GET, HEAD", false, ig_route_slots},
    {"/metrics", "GET, HEAD", false, ig_route_metrics},
    {"/openapi.json", "GET, HEAD", false, ig_route_openapi},
    {NULL, NULL, false, NULL},
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

typedef struct header_count {
    size_t n, n_bytes;
    int n_lengths, n_hosts, n_encodings, n_keys;
} header_count;

static enum MHD_Result count_header(void *user, enum MHD_ValueKind kind, const char *name, const char *value) {
    header_count *h = user;
    (void)kind;
    h->n++;
    h->n_bytes += strlen(name) + (value ? strlen(value) : 0) + 4;
    h->n_lengths += strcasecmp(name, "Content-Length") == 0;
    h->n_encodings += strcasecmp(name, "Transfer-Encoding") == 0;
    h->n_hosts += strcasecmp(name, "Host") == 0;
    h->n_keys += strcasecmp(name, "Authorization") == 0;
    return MHD_YES;
}

/* What could be read in two ways, by a proxy in one and here in the other, is refused. */
static bool check_headers(ig_call *c) {
    header_count h = {0};
    MHD_get_connection_values(c->http, MHD_HEADER_KIND, count_header, &h);
    if (h.n > IG_SERVER_FIELDS_MAX || h.n_bytes > IG_SERVER_HEADER_MAX)
        return ig_refuse(c, 431, NULL, "more than %d header fields, or %d bytes of them", IG_SERVER_FIELDS_MAX,
                         IG_SERVER_HEADER_MAX);
    if (h.n_lengths > 1 || h.n_hosts > 1 || h.n_encodings > 1 || h.n_keys > 1 || (h.n_lengths && h.n_encodings))
        return ig_refuse(c, 400, NULL, "header fields that contradict each other");
    const char *coding = MHD_lookup_connection_value(c->http, MHD_HEADER_KIND, "Transfer-Encoding");
    if (coding && strcasecmp(coding, "chunked") != 0)
        return ig_refuse(c, 400, NULL, "Transfer-Encoding other than chunked");
    const char *length = MHD_lookup_connection_value(c->http, MHD_HEADER_KIND, "Content-Length");
    if (!length) return true;
    if (!*length || length[strspn(length, "0123456789")]) return ig_refuse(c, 400, NULL, "Content-Length is no number");
    errno = 0;
    unsigned long long n = strtoull(length, NULL, 10);
    if (errno || n > IG_SERVER_BODY_MAX) {
        ig_refuse(c, 413, NULL, "a body has at most %d bytes", IG_SERVER_BODY_MAX);
        c->n_seen = IG_SERVER_BODY_MAX + 1;
    }
    return errno == 0;
}

static bool check_type(ig_call *c) {
    const char *type = MHD_lookup_connection_value(c->http, MHD_HEADER_KIND, "Content-Type");
    static const char json[] = "application/json";
    size_t n = sizeof json - 1;
    if (type && strncasecmp(type, json, n) == 0 && (!type[n] || type[n] == ';' || type[n] == ' ')) return true;
    return ig_refuse(c, 415, NULL, "the body must be JSON, and Content-Type: application/json");
}

/* Route and permission are decided on the same path. */
static void look_at(ig_call *c, const char *method) {
    check_headers(c);
    c->route = find_route(c->url);
    c->is_post = strcmp(method, "POST") == 0;
    snprintf(c->method, sizeof c->method, "%s", method);
    if (!ig_server_may_enter(c, c->route && c->route->is_public)) return;
    if (!c->route)
        ig_refuse(c, 404, NULL, "there is no %s here", c->url);
    else if (!is_one_of(c->route->methods, method))
        ig_refuse(c, 405, NULL, "%s takes %s", c->route->path, c->route->methods);
    else if (c->is_post)
        check_type(c);
}

/* ---- reading it -------------------------------------------------------------------------------- */

/* False: no more of it is taken. */
static bool take_body(ig_call *c, const char *data, size_t n) {
    c->n_seen += n;
    if (c->n_seen > 2 * (size_t)IG_SERVER_BODY_MAX) return false;
    if (c->n_seen > IG_SERVER_BODY_MAX) ig_refuse(c, 413, NULL, "a body has at most %d bytes", IG_SERVER_BODY_MAX);
    if (c->refusal.status) return true;
    if (c->n_body + n > c->cap_body) {
        size_t cap = 2 * c->cap_body + n + 4096;
        char *more = realloc(c->body, cap);
        if (!more) {
            ig_refuse(c, 500, NULL, "out of memory for a body of %zu bytes", cap);
            return true;
        }
        c->body = more;
        c->cap_body = cap;
    }
    memcpy(c->body + c->n_body, data, n);
    c->n_body += n;
    return true;
}

static enum MHD_Result answer(ig_call *c) {
    enum MHD_Result done = MHD_YES;
    /* However long it takes; from its end on the client must read. */
    MHD_set_connection_option(c->http, MHD_CONNECTION_OPTION_TIMEOUT, 0u);
    ig_watch_stage(&c->server->watch, c->connection, IG_STAGE_REPLY);
    if (!c->refusal.status) done = c->route->handle(c);
    if (c->refusal.status && !c->is_answered) done = ig_reply_refusal(c);
    MHD_set_connection_option(c->http, MHD_CONNECTION_OPTION_TIMEOUT, (unsigned)IG_SERVER_IDLE_SECONDS);
    return done;
}

static ig_call *open_call(ig_server *s, struct MHD_Connection *http, const char *url) {
    ig_call *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(http, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    c->server = s;
    c->http = http;
    c->url = url;
    c->connection = info ? info->socket_context : NULL;
    c->began = ig_server_seconds();
    pthread_mutex_lock(&s->lock);
    s->n_calls++;
    pthread_mutex_unlock(&s->lock);
    return c;
}

static enum MHD_Result on_request(void *user, struct MHD_Connection *http, const char *url, const char *method,
                                  const char *version, const char *data, size_t *n_data, void **context) {
    ig_call *c = *context;
    (void)version;
    if (!c) {
        c = *context = open_call(user, http, url);
        if (!c) return MHD_NO;
        ig_watch_stage(&c->server->watch, c->connection, IG_STAGE_BODY);
        look_at(c, method);
        return c->n_seen > IG_SERVER_BODY_MAX ? answer(c) : MHD_YES; /* it is not waited for */
    }
    if (!*n_data) return answer(c);
    ig_watch_received(&c->server->watch, c->connection, *n_data);
    bool goes_on = take_body(c, data, *n_data);
    *n_data = 0;
    return goes_on ? MHD_YES : MHD_NO;
}

static void on_completed(void *user, struct MHD_Connection *http, void **context, enum MHD_RequestTerminationCode how) {
    ig_server *s = user;
    ig_call *c = *context;
    (void)http;
    if (!c) return;
    *context = NULL;
    ig_watch_call(&s->watch, c->connection, NULL);
    ig_server_record_call(c, how == MHD_REQUEST_TERMINATED_COMPLETED_OK);
    ig_exchange_close(c->exchange);
    ig_watch_stage(&s->watch, c->connection, IG_STAGE_IDLE);
    pthread_mutex_lock(&s->numbers.lock);
    s->numbers.gone += how != MHD_REQUEST_TERMINATED_COMPLETED_OK;
    pthread_mutex_unlock(&s->numbers.lock);
    pthread_mutex_lock(&s->lock);
    s->n_calls--;
    pthread_cond_broadcast(&s->idle);
    pthread_mutex_unlock(&s->lock);
    free(c->body);
    free(c);
}

static void on_connection(void *user, struct MHD_Connection *http, void **context,
                          enum MHD_ConnectionNotificationCode what) {
    ig_server *s = user;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info = MHD_get_connection_info(http, MHD_CONNECTION_INFO_CONNECTION_FD);
        *context = info ? ig_watch_add(&s->watch, info->connect_fd) : NULL;
    } else {
        ig_watch_remove(&s->watch, *context);
        *context = NULL;
    }
}

/* ---- the daemon ------------------------------------------------------------------------------------ */

/* Names of fields and paths come as they were sent: a NUL is not the end of them. */
static size_t unescape(void *user, struct MHD_Connection *http, char *text) {
    (void)user, (void)http;
    size_t n = MHD_http_unescape(text);
    if (strlen(text) != n) text[0] = 0;
    return strlen(text);
}

static void log_line(void *user, const char *format, va_list args) {
    (void)user, (void)format, (void)args; /* of clients' mistakes, which they are told */
}

struct MHD_Daemon *ig_http_start(ig_server *s) {
    enum { STACK_BYTES = 1 << 20, CONNECTION_BYTES = 2 * IG_SERVER_HEADER_MAX };
    return MHD_start_daemon(
        MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION | MHD_USE_POLL | MHD_USE_ERROR_LOG, 0, NULL,
        NULL, on_request, s, MHD_OPTION_EXTERNAL_LOGGER, log_line, NULL, MHD_OPTION_LISTEN_SOCKET, s->listener,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, s, MHD_OPTION_NOTIFY_CONNECTION, on_connection, s,
        MHD_OPTION_UNESCAPE_CALLBACK, unescape, NULL, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IG_SERVER_IDLE_SECONDS,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)IG_SERVER_CONNECTIONS, MHD_OPTION_PER_IP_CONNECTION_LIMIT,
        (unsigned)IG_SERVER_CONNECTIONS_EACH, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_BYTES,
        MHD_OPTION_THREAD_STACK_SIZE, (size_t)STACK_BYTES, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_END);
}
