/* SPDX-License-Identifier: Apache-2.0
 *
 * Server-sent events of OpenAI's API: times of texts, usage, errors.
 */
#define _GNU_SOURCE
#include "eval/load_reply.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/json.h"
#include "text/text.h"

enum { LINE_MAX_BYTES = 8 << 20 };

bool ig_eval_samples_add(ig_eval_samples *s, double value) {
    if (s->n == s->cap) {
        size_t cap = 2 * s->cap + 256;
        double *more = realloc(s->v, cap * sizeof *more);
        if (!more) return false;
        s->v = more;
        s->cap = cap;
    }
    s->v[s->n++] = value;
    return true;
}

void ig_eval_load_reply_reset(ig_eval_load_reply *r) {
    *r = (ig_eval_load_reply){.line = r->line, .cap_line = r->cap_line, .first = -1, .last = -1};
}

static bool fail(ig_eval_load_reply *r, const char *why) {
    if (r->error[0]) return false;
    snprintf(r->error, sizeof r->error, "%s", why);
    ig_text_make_harmless(r->error);
    return false;
}

/* {"error": {"message": ...}}, or {"error": "..."}; false: it is neither. */
static bool read_error(ig_eval_load_reply *r, const json_t *o) {
    const json_t *e = json_object_get(o, "error"), *text = json_is_object(e) ? json_object_get(e, "message") : e;
    if (!json_is_string(text)) return false;
    fail(r, json_string_value(text));
    return true;
}

static uint64_t count_of(const json_t *o, const char *name) {
    json_int_t n = json_integer_value(json_object_get(o, name));
    return n > 0 ? (uint64_t)n : 0;
}

static void read_usage(ig_eval_load_reply *r, const json_t *usage) {
    if (!json_is_object(usage)) return;
    r->has_usage = true;
    r->prompt_tokens = count_of(usage, "prompt_tokens");
    r->answer_tokens = count_of(usage, "completion_tokens");
    r->cached_tokens = count_of(json_object_get(usage, "prompt_tokens_details"), "cached_tokens");
}

static bool has_text(const json_t *event) {
    const json_t *choice = json_array_get(json_object_get(event, "choices"), 0);
    const json_t *delta = json_object_get(choice, "delta");
    return json_string_length(json_object_get(choice, "text")) + json_string_length(json_object_get(delta, "content")) +
               json_string_length(json_object_get(delta, "reasoning_content")) >
           0;
}

static bool take_event(ig_eval_load_reply *r, const char *data, size_t n, double now, ig_eval_samples *between) {
    if (n == 6 && memcmp(data, "[DONE]", 6) == 0) {
        r->is_done = true;
        return true;
    }
    bool failed;
    json_t *event = ig_json_of_text(data, n, JSON_ALLOW_NUL, NULL, &failed);
    bool ok = json_is_object(event) || fail(r, "an event of the stream is no JSON object");
    if (ok && has_text(event)) {
        if (r->last >= 0) ok = ig_eval_samples_add(between, now - r->last) || fail(r, "out of memory");
        if (r->first < 0) r->first = now;
        r->last = now;
        r->n_chunks++;
    }
    if (ok) {
        read_error(r, event);
        read_usage(r, json_object_get(event, "usage"));
    }
    json_decref(event);
    return ok;
}

/* A line without its end; all but data is passed over. */
static bool take_line(ig_eval_load_reply *r, const char *line, size_t n, double now, ig_eval_samples *between) {
    while (n && line[n - 1] == '\r') n--;
    if (n < 5 || memcmp(line, "data:", 5) != 0) return true;
    size_t at = 5 + (n > 5 && line[5] == ' ');
    return take_event(r, line + at, n - at, now, between);
}

static bool keep(ig_eval_load_reply *r, const char *data, size_t n) {
    if (n > LINE_MAX_BYTES - r->n_line) return fail(r, "a line of the reply is longer than 8 MiB");
    if (r->n_line + n > r->cap_line) {
        size_t cap = 2 * (r->n_line + n) + 1024;
        char *more = realloc(r->line, cap);
        if (!more) return fail(r, "out of memory");
        r->line = more;
        r->cap_line = cap;
    }
    memcpy(r->line + r->n_line, data, n);
    r->n_line += n;
    return true;
}

bool ig_eval_load_reply_take(ig_eval_load_reply *r, const char *data, size_t n, double now, ig_eval_samples *between) {
    const char *end = data + n, *stop;
    while (r->is_stream && (stop = memchr(data, '\n', (size_t)(end - data)))) {
        if (!keep(r, data, (size_t)(stop - data)) || !take_line(r, r->line, r->n_line, now, between)) return false;
        r->n_line = 0;
        data = stop + 1;
    }
    return keep(r, data, (size_t)(end - data));
}

void ig_eval_load_reply_end(ig_eval_load_reply *r) {
    bool failed;
    json_t *o = r->n_line ? ig_json_of_text(r->line, r->n_line, JSON_ALLOW_NUL, NULL, &failed) : NULL;
    read_error(r, o);
    json_decref(o);
}
