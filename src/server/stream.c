/* SPDX-License-Identifier: Apache-2.0
 *
 * Answers as server-sent events, or as lines. The connection's thread sleeps until the scheduler has some, or
 * long enough that proxies would think the connection dead.
 */
#define _GNU_SOURCE
#include "server/api.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static bool add_out(ig_exchange *x, const char *text, size_t n) {
    char *more = realloc(x->out, x->n_out + n);
    if (!more) return false;
    memcpy(more + x->n_out, text, n);
    x->out = more;
    x->n_out += n;
    return true;
}

/* JSON without what Unicode has as ends of lines: some clients take them for ends of the stream's lines. */
static bool add_json(ig_exchange *x, const char *text) {
    static const struct {
        const char *bytes, *escape;
    } ends[] = {{"\xc2\x85", "\\u0085"}, {"\xe2\x80\xa8", "\\u2028"}, {"\xe2\x80\xa9", "\\u2029"}};
    const size_t n_ends = sizeof ends / sizeof *ends;
    for (const char *at = text; (at = strpbrk(at, "\xc2\xe2")); at++) {
        size_t e = 0;
        while (e < n_ends && strncmp(at, ends[e].bytes, strlen(ends[e].bytes)) != 0) e++;
        if (e == n_ends) continue;
        if (!add_out(x, text, (size_t)(at - text)) || !add_out(x, ends[e].escape, strlen(ends[e].escape))) return false;
        text = at + strlen(ends[e].bytes);
    }
    return add_out(x, text, strlen(text));
}

static bool add_text(ig_exchange *x, const char *text) { return add_out(x, text, strlen(text)); }

bool ig_stream_event(ig_exchange *x, const char *name, json_t *value) {
    char *text = ig_reply_text(value);
    bool ok = text != NULL;
    if (x->api->are_lines)
        ok = ok && add_json(x, text) && add_text(x, "\n");
    else
        ok = ok && (!name || (add_text(x, "event: ") && add_text(x, name) && add_text(x, "\n"))) &&
             add_text(x, "data: ") && add_json(x, text) && add_text(x, "\n\n");
    free(text);
    json_decref(value);
    return ok;
}

void ig_stream_add_course(ig_exchange *x, json_t *event, const json_t *choice) {
    ig_choice *k = &x->choices[json_integer_value(json_object_get(choice, "index"))];
    if (k->is_progress_new) json_object_set_new(event, "prompt_progress", ig_choice_progress(k));
    if (x->has_running_timings && k->n_seen) json_object_set_new(event, "timings", ig_choice_timings(k));
}

static bool add_chunk(ig_exchange *x, json_t *choice, const ig_choice *last) {
    if (x->api->tell) return x->api->tell(x, choice);
    json_t *chunk = ig_exchange_head(x, x->api->chunk);
    if (x->returns_ids && x->api->is_chat && !x->choices[0].has_begun)
        json_object_set_new(chunk, "prompt_token_ids", ig_choice_prompt_ids(&x->choices[0]));
    json_t *choices = json_array();
    if (choice) json_array_append_new(choices, choice);
    json_object_set_new(chunk, "choices", choices);
    if (!choice || x->has_running_usage) json_object_set_new(chunk, "usage", ig_exchange_usage(x));
    if (choice) ig_stream_add_course(x, chunk, choice);
    if (last) {
        json_object_set_new(chunk, "timings", ig_choice_timings(last));
        json_object_set_new(chunk, "infinigen", ig_choice_cost(last));
    }
    return ig_stream_event(x, NULL, chunk);
}

/* Takes `choice`. False: no memory, for it neither. */
static bool add_delta(ig_exchange *x, json_t *choice, const ig_choice *last) {
    return choice && add_chunk(x, choice, last);
}

static json_t *end_delta(ig_choice *k, json_t *one, json_t *logprobs, const char *finish) {
    if (k->exchange->returns_ids) {
        if (!k->n_ids_sent && !k->exchange->api->is_chat)
            json_object_set_new(one, "prompt_token_ids", ig_choice_prompt_ids(k));
        json_object_set_new(one, "token_ids", ig_choice_new_ids(k));
    }
    json_object_set_new(one, "logprobs", logprobs);
    json_object_set_new(one, "finish_reason", finish ? json_string(finish) : json_null());
    return one;
}

/* The first one of a chat tells the role. */
static json_t *delta(ig_choice *k, size_t i, const char *text, size_t n, json_t *logprobs, const char *finish) {
    json_t *one;
    if (!k->exchange->api->is_chat)
        one = json_pack("{s:i, s:o}", "index", (int)i, "text", ig_text_stringn(text, n));
    else if (!k->has_begun)
        one = json_pack("{s:i, s:{s:s, s:s}}", "index", (int)i, "delta", "role", "assistant", "content", "");
    else
        one = json_pack("{s:i, s:{}}", "index", (int)i, "delta");
    return end_delta(k, one, logprobs, finish);
}

/* Of a chunk that tells how far a prompt is. */
static json_t *empty_delta(const ig_choice *k, size_t i) {
    bool is_chat = k->exchange->api->is_chat;
    return json_pack("{s:i, s:o, s:n, s:n}", "index", (int)i, is_chat ? "delta" : "text",
                     is_chat ? json_object() : json_string(""), "logprobs", "finish_reason");
}

/* What a stream tells of a call: all that is known of it at first, then its arguments piece by piece. Takes p->call. */
static json_t *call_delta(const ig_choice *k, const ig_part *p) {
    json_t *call = p->call;
    if (p->kind == IG_PART_ARGUMENTS)
        call = json_pack("{s:{s:o}}", "function", "arguments", ig_text_stringn(k->text + p->at, p->n));
    json_object_set_new(call, "index", json_integer(k->reader.calls.n_calls - 1));
    return json_pack("[o]", call);
}

/* Takes p->call. */
static json_t *part_delta(ig_choice *k, size_t i, const ig_part *p, json_t *logprobs) {
    bool is_call = p->kind == IG_PART_CALL || p->kind == IG_PART_ARGUMENTS;
    json_t *value = is_call ? call_delta(k, p) : ig_text_stringn(k->text + p->at, p->n);
    const char *name = is_call ? "tool_calls" : p->kind == IG_PART_TEXT ? "content" : "reasoning_content";
    return end_delta(k, json_pack("{s:i, s:{s:o}}", "index", (int)i, "delta", name, value), logprobs, NULL);
}

/* Bytes of the text that a stream can send: whole characters, of which the prompt may have begun one. */
static size_t unsent(const ig_choice *k) {
    size_t n = k->n_text - (k->exchange->api->is_chat ? k->n_read : k->n_sent);
    return k->has_ended || !n ? n : n - ig_text_unfinished(k->text + k->n_text - n, n);
}

/* What is new of an answer in a chat, with the tokens listed at the first of it. */
static bool tell_parts(ig_exchange *x, ig_choice *k, size_t i, size_t listed) {
    bool ok = true, is_listed = listed == 0;
    for (ig_part p; ok;) {
        p = ig_part_next(&k->reader, x, k->text ? k->text : "", k->n_text, k->has_ended);
        if (p.kind == IG_PART_WAIT && is_listed) break;
        json_t *logprobs = is_listed ? json_null() : ig_choice_logprobs(k, listed);
        is_listed = true;
        ok = add_delta(x, p.kind == IG_PART_WAIT ? delta(k, i, "", 0, logprobs, NULL) : part_delta(k, i, &p, logprobs),
                       NULL);
    }
    k->n_read = k->n_text;
    k->n_sent = ig_part_told(&k->reader);
    return ok;
}

/* Of the answer's text that come of the token that will be listed as number i from now on. */
static size_t bytes_listed(const ig_choice *k, size_t i) {
    i += k->n_tokens_sent;
    return i < k->n_prompt_scores ? 0 : ig_choice_bytes(k, k->tokens[i].token.id);
}

/* Tokens that can be listed, at most so many: their text has been shown, as what might begin a stop string has not. */
static size_t count_listable(const ig_choice *k, size_t most) {
    size_t n = 0, n_new = k->n_tokens - k->n_tokens_sent, n_bytes = k->n_bytes_listed;
    bool is_sure = k->has_ended || !k->exchange->ask.generate.n_stops;
    if (most > n_new) most = n_new;
    if (is_sure) return most;
    for (; n < most; n++) {
        n_bytes += bytes_listed(k, n);
        if (n_bytes > k->n_text - k->n_echo) break;
    }
    return n;
}

static size_t take_listable(ig_choice *k, size_t most) {
    size_t n = count_listable(k, most);
    for (size_t i = 0; i < n && k->exchange->ask.generate.n_stops; i++) k->n_bytes_listed += bytes_listed(k, i);
    return n;
}

/* What is new of a choice, with at most *left tokens listed: the scheduler's thread waits for the lock, which this has,
 * as the next two do. */
static bool tell_choice(ig_exchange *x, ig_choice *k, size_t i, size_t *left) {
    size_t listed = take_listable(k, *left);
    bool ok = true;
    if (!k->has_begun) {
        if (x->api->is_chat) ok = add_delta(x, delta(k, i, "", 0, json_null(), NULL), NULL);
        k->has_begun = true;
    }
    if (ok && k->is_progress_new) {
        ok = add_delta(x, empty_delta(k, i), NULL);
        k->is_progress_new = false;
    }
    size_t n = unsent(k);
    if (ok && x->api->is_chat && (listed || k->n_tokens_sent == k->n_tokens)) {
        ok = tell_parts(x, k, i, listed);
        *left -= listed;
    } else if (ok && (listed || (n && k->n_tokens_sent == k->n_tokens))) {
        json_t *logprobs = ig_choice_logprobs(k, listed);
        ok = add_delta(x, delta(k, i, k->text ? k->text + k->n_sent : "", n, logprobs, NULL), NULL);
        k->n_sent += n;
        *left -= listed;
    }
    if (ok && k->has_ended && !k->is_told && k->n_tokens_sent == k->n_tokens) {
        k->is_told = true;
        ok = add_delta(x, delta(k, i, "", 0, json_null(), ig_choice_finish(k)), k);
    }
    return ok;
}

static bool tell_end(ig_exchange *x) {
    x->is_finished = true;
    if (x->api->end) return x->api->end(x);
    if (x->has_usage && !add_chunk(x, NULL, NULL)) return false;
    return add_text(x, "data: [DONE]\n\n");
}

/* It failed: which is told when all have ended. */
static bool is_broken(const ig_choice *k) {
    bool is_interrupted = k->has_ended && k->result.finish == IG_FINISH_INTERRUPTED;
    return k->has_failed || k->result.error.status || is_interrupted;
}

/* The last event is an error. */
static bool tell_failure(ig_exchange *x) {
    const ig_refusal *why = &x->call->refusal; /* which is logged as well */
    x->is_finished = true;
    return x->api->fail ? x->api->fail(x, why) : ig_stream_event(x, NULL, ig_refusal_json(why));
}

/* In place of events that there is no memory for, or that may lack parts. */
static bool tell_loss(ig_exchange *x) {
    x->n_out = 0;
    ig_json_take_loss(); /* of what is not sent */
    ig_refuse(x->call, 500, NULL, "out of memory for a stream");
    return tell_failure(x);
}

/* What is new, as events; if that is much, a part of it. */
static bool tell_news(ig_exchange *x) {
    size_t left = 64, n_told = 0;
    bool ok = true;
    if (x->n_ended == x->n_choices && ig_exchange_failed(x, &x->call->refusal)) return tell_failure(x);
    for (size_t i = 0; i < x->n_choices && ok; i++)
        if (!is_broken(&x->choices[i])) ok = tell_choice(x, &x->choices[i], i, &left);
    for (size_t i = 0; i < x->n_choices; i++) n_told += x->choices[i].is_told || is_broken(&x->choices[i]);
    return ok && n_told == x->n_choices ? tell_end(x) : ok;
}

static bool has_news(const ig_exchange *x) {
    if (x->n_ended == x->n_choices) return true;
    for (size_t i = 0; i < x->n_choices; i++) {
        const ig_choice *k = &x->choices[i];
        if (is_broken(k)) continue;
        bool is_new = !k->has_begun || k->is_progress_new || count_listable(k, 1) ||
                      (unsent(k) && k->n_tokens_sent == k->n_tokens);
        if (is_new || (k->has_ended && !k->is_told)) return true;
    }
    return false;
}

/* Sleeps until there is something to tell; a comment, if that takes long. False: nobody is there to be told. */
static bool fill(ig_exchange *x) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += IG_SERVER_PING_SECONDS;
    x->n_out = 0;
    pthread_mutex_lock(&x->lock);
    int waited = 0;
    while (!has_news(x) && waited != ETIMEDOUT) waited = pthread_cond_timedwait(&x->changed, &x->lock, &until);
    bool is_there = atomic_load(&x->call->ended) != IG_CALL_GONE, ok = is_there;
    if (ok) ok = has_news(x) ? tell_news(x) : x->api->are_lines || add_text(x, ": ping\n\n");
    if (is_there && (!ok || ig_json_take_loss())) ok = tell_loss(x);
    pthread_mutex_unlock(&x->lock);
    return ok;
}

/* An end without its last event says that it is broken. */
void ig_exchange_stream(ig_exchange *x) {
    ig_call *c = x->call;
    const char *type = x->api->are_lines ? "application/x-ndjson" : "text/event-stream; charset=utf-8";
    bool ok = ig_reply_begin(c, type, "X-Accel-Buffering: no\r\n");
    while (ok && !x->is_finished) {
        ok = fill(x) && ig_reply_part(c, x->out, x->n_out);
    }
    if (!ok || !ig_reply_end(c)) c->closes = c->wire->is_broken = true;
}
