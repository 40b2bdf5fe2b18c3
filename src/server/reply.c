/* SPDX-License-Identifier: Apache-2.0
 *
 * Replies: JSON, text, and errors in OpenAI's shape.
 */
#define _GNU_SOURCE
#include "server/parts.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

double ig_server_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

ig_status ig_server_fail(ig_error *err, ig_status status, const char *format, ...) {
    if (!err) return status;
    va_list args;
    va_start(args, format);
    err->status = status;
    vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    return status;
}

/* ---- JSON ------------------------------------------------------------------------------ */

/* Bytes of the UTF-8 character at text; 0: there is none. */
static size_t character_bytes(const unsigned char *text, size_t n) {
    static const struct {
        unsigned char first, last, low, high; /* lead bytes; what may follow them */
        size_t n;
    } forms[] = {{0x00, 0x7f, 0, 0, 1},       {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
                 {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
                 {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4}};
    for (size_t f = 0; f < sizeof forms / sizeof forms[0]; f++) {
        if (text[0] < forms[f].first || text[0] > forms[f].last) continue;
        if (forms[f].n > n || (forms[f].n > 1 && (text[1] < forms[f].low || text[1] > forms[f].high))) return 0;
        for (size_t i = 2; i < forms[f].n; i++)
            if ((text[i] & 0xc0) != 0x80) return 0;
        return forms[f].n;
    }
    return 0;
}

json_t *ig_reply_string(const char *text, size_t n) {
    json_t *whole = json_stringn(text, n);
    if (whole) return whole;
    char *copy = malloc(3 * n + 1);
    if (!copy) return NULL;
    size_t out = 0;
    for (size_t i = 0; i < n;) {
        size_t k = character_bytes((const unsigned char *)text + i, n - i);
        memcpy(copy + out, k ? text + i : "\xef\xbf\xbd", k ? k : 3);
        out += k ? k : 3;
        i += k ? k : 1;
    }
    whole = json_stringn(copy, out);
    free(copy);
    return whole;
}

/* ---- what goes out ------------------------------------------------------------------------ */

enum MHD_Result ig_reply_response(ig_call *c, unsigned status, struct MHD_Response *r, const char *type) {
    if (!r) return MHD_NO;
    MHD_add_response_header(r, "Content-Type", type);
    MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
    MHD_add_response_header(r, "Cache-Control", "no-cache");
    enum MHD_Result queued = MHD_queue_response(c->http, status, r);
    MHD_destroy_response(r);
    c->is_answered = true;
    ig_server_count_reply(c, status);
    return queued;
}

static struct MHD_Response *json_response(json_t *value) {
    char *text = value ? json_dumps(value, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(value);
    return text ? MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE) : NULL;
}

enum MHD_Result ig_reply_json(ig_call *c, unsigned status, json_t *value) {
    return ig_reply_response(c, status, json_response(value), "application/json");
}

enum MHD_Result ig_reply_text(ig_call *c, const char *type, const char *text, size_t n) {
    struct MHD_Response *r = MHD_create_response_from_buffer(n, (void *)text, MHD_RESPMEM_MUST_COPY);
    return ig_reply_response(c, 200, r, type);
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
    json_t *text = ig_reply_string(r->text, strlen(r->text)),
           *field = r->field[0] ? json_string(r->field) : json_null();
    if (!field) field = ig_reply_string(r->field, strlen(r->field));
    return json_pack("{s:{s:o, s:s, s:o, s:s?}}", "error", "message", text, "type", r->type, "param", field, "code",
                     r->code);
}

enum MHD_Result ig_reply_refusal(ig_call *c) {
    const ig_refusal *r = &c->refusal;
    struct MHD_Response *out = json_response(ig_refusal_json(r));
    if (!out) return MHD_NO;
    if (r->status == 401) MHD_add_response_header(out, "WWW-Authenticate", "Bearer");
    if (r->status == 405) MHD_add_response_header(out, "Allow", c->route->methods);
    if (r->may_retry) MHD_add_response_header(out, "Retry-After", "1");
    if (r->status >= 500 && !r->may_retry) MHD_add_response_header(out, "x-should-retry", "false");
    if (r->status == 413) MHD_add_response_header(out, "Connection", "close");
    return ig_reply_response(c, r->status, out, "application/json");
}
