/* SPDX-License-Identifier: Apache-2.0
 *
 * Replies: JSON, text, and errors in OpenAI's shape.
 */
#define _GNU_SOURCE
#include "server/api.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- JSON ------------------------------------------------------------------------------ */

json_t *ig_json_time(time_t seconds) {
    char text[64];
    struct tm t;
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&seconds, &t));
    return json_string(text);
}

json_t *ig_json_if(bool ok, json_t *v) {
    if (ok) return v;
    json_decref(v);
    return NULL;
}

json_t *ig_reply_bytes(const char *bytes, size_t n) {
    json_t *list = json_array();
    bool ok = list != NULL;
    for (size_t i = 0; i < n && ok; i++) ok = json_array_append_new(list, json_integer((unsigned char)bytes[i])) == 0;
    return ig_json_if(ok, list);
}

/* ---- what goes out ------------------------------------------------------------------------ */

static const char *reason_of(unsigned status) {
    static const struct {
        unsigned status;
        const char *reason;
    } reasons[] = {{200, "OK"},
                   {400, "Bad Request"},
                   {401, "Unauthorized"},
                   {403, "Forbidden"},
                   {404, "Not Found"},
                   {405, "Method Not Allowed"},
                   {408, "Request Timeout"},
                   {411, "Length Required"},
                   {413, "Content Too Large"},
                   {414, "URI Too Long"},
                   {415, "Unsupported Media Type"},
                   {417, "Expectation Failed"},
                   {431, "Request Header Fields Too Large"},
                   {500, "Internal Server Error"},
                   {503, "Service Unavailable"},
                   {505, "HTTP Version Not Supported"}};
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (reasons[i].status == status) return reasons[i].reason;
    return "";
}

enum { HEAD_BYTES = 2048 };

/* Status line and fields; `length` is a line of its own. Its bytes. */
static size_t write_head(char head[HEAD_BYTES], ig_call *c, unsigned status, const char *type, const char *fields,
                         const char *length) {
    char date[64], origin[IG_ORIGIN_BYTES + 64] = "";
    struct tm t;
    time_t now = time(NULL);
    strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", gmtime_r(&now, &t));
    c->closes |= atomic_load(&c->server->is_draining);
    if (c->origin) snprintf(origin, sizeof origin, "Access-Control-Allow-Origin: %s\r\nVary: Origin\r\n", c->origin);
    int n = snprintf(head, HEAD_BYTES,
                     "HTTP/1.1 %u %s\r\nDate: %s\r\nConnection: %s\r\nContent-Type: %s\r\n%s"
                     "X-Content-Type-Options: nosniff\r\nCache-Control: no-cache\r\n%s%s\r\n",
                     status, reason_of(status), date, c->closes ? "close" : "keep-alive", type, length, origin, fields);
    c->is_answered = true;
    ig_server_count_reply(c, status);
    return n < HEAD_BYTES ? (size_t)n : HEAD_BYTES - 1;
}

void ig_reply(ig_call *c, unsigned status, const char *type, const char *fields, const char *body, size_t n) {
    char head[HEAD_BYTES], length[64];
    snprintf(length, sizeof length, "Content-Length: %zu\r\n", n);
    size_t n_head = write_head(head, c, status, type, fields, length);
    struct iovec parts[] = {{head, n_head}, {(void *)body, n}};
    ig_wire_send(c->wire, parts, c->is_head ? 1 : 2);
}

char *ig_reply_text(const json_t *value) {
    return ig_json_take_loss() ? NULL : ig_text_of_json(value, JSON_COMPACT | JSON_REAL_PRECISION(17));
}

/* Takes `value`. */
static void reply_json(ig_call *c, unsigned status, const char *fields, json_t *value) {
    char *text = ig_reply_text(value);
    static const char none[] = "{\"error\":{\"message\":\"out of memory\",\"type\":\"server_error\"}}";
    json_decref(value);
    ig_reply(c, text ? status : 500, "application/json", fields, text ? text : none,
             text ? strlen(text) : strlen(none));
    free(text);
}

void ig_reply_json(ig_call *c, json_t *value) { reply_json(c, 200, "", value); }

/* HTTP/1.0 knows no chunks: there the connection's end is the reply's. */
bool ig_reply_begin(ig_call *c, const char *type, const char *fields) {
    char head[HEAD_BYTES];
    c->closes |= c->head->is_1_0;
    struct iovec part = {
        head, write_head(head, c, 200, type, fields, c->head->is_1_0 ? "" : "Transfer-Encoding: chunked\r\n")};
    return ig_wire_send(c->wire, &part, 1);
}

bool ig_reply_part(ig_call *c, const char *data, size_t n) {
    char size[32];
    int n_size = c->head->is_1_0 ? 0 : snprintf(size, sizeof size, "%zx\r\n", n);
    struct iovec parts[] = {{size, (size_t)n_size}, {(void *)data, n}, {"\r\n", c->head->is_1_0 ? 0 : 2}};
    return n == 0 || ig_wire_send(c->wire, parts, 3);
}

bool ig_reply_end(ig_call *c) {
    struct iovec part = {"0\r\n\r\n", 5};
    return c->head->is_1_0 || ig_wire_send(c->wire, &part, 1);
}

/* ---- errors ----------------------------------------------------------------------------------- */

static const char *type_of(unsigned status) {
    return status == 401   ? "authentication_error"
           : status == 403 ? "permission_error"
           : status == 404 ? "not_found_error"
           : status == 503 ? "unavailable_error"
           : status >= 500 ? "server_error"
                           : "invalid_request_error";
}

bool ig_refuse(ig_call *c, unsigned status, const char *field, const char *format, ...) {
    ig_refusal *r = &c->refusal;
    if (r->status) return false;
    va_list args;
    va_start(args, format);
    vsnprintf(r->text, sizeof r->text, format, args);
    va_end(args);
    r->status = status;
    r->type = type_of(status);
    snprintf(r->field, sizeof r->field, "%s", field ? field : "");
    return false;
}

bool ig_refuse_error(ig_call *c, const char *field, const ig_error *err) {
    bool is_theirs = err->status == IG_E_ARG || err->status == IG_E_LIMIT || err->status == IG_E_UNSUPPORTED ||
                     err->status == IG_E_NOT_FOUND;
    return ig_refuse(c, is_theirs ? 400 : 500, field, "%s", err->text);
}

json_t *ig_refusal_json(const ig_refusal *r) {
    json_t *text = ig_text_string(r->text), *field = r->field[0] ? json_string(r->field) : json_null();
    if (!field) field = ig_text_string(r->field);
    return json_pack("{s:{s:o, s:s, s:o, s:s?}}", "error", "message", text, "type", r->type, "param", field, "code",
                     r->code);
}

/* Whose form errors have; NULL: OpenAI's. What cannot be read has no path. */
static const ig_api *api_of(const ig_call *c) {
    const char *path = c->head && c->head->path ? c->head->path : "";
    return c->route ? c->route->api : strncmp(path, "/api/", 5) == 0 ? &ig_api_ollama_chat : NULL;
}

void ig_reply_refusal(ig_call *c) {
    const ig_refusal *r = &c->refusal;
    char fields[256];
    snprintf(fields, sizeof fields, "%s%s%s%s%s%s", r->status == 401 ? "WWW-Authenticate: Bearer\r\n" : "",
             r->status == 405 ? "Allow: " : "", r->status == 405 ? c->route->methods : "",
             r->status == 405 ? "\r\n" : "", r->may_retry ? "Retry-After: 1\r\n" : "",
             r->status >= 500 && !r->may_retry ? "x-should-retry: false\r\n" : "");
    c->closes |= r->status == 413;
    const ig_api *api = api_of(c);
    reply_json(c, r->status, fields, api && api->refusal ? api->refusal(r) : ig_refusal_json(r));
}
