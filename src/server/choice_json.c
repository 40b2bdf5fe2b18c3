/* SPDX-License-Identifier: Apache-2.0
 *
 * Answers as JSON: what both kinds of replies, whole and streamed, are made of.
 */
#define _GNU_SOURCE
#include "server/api.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- tokens ---------------------------------------------------------------------------------- */

size_t ig_token_bytes(const ig_server *s, int32_t id, char bytes[IG_TOKEN_BYTES_MAX]) {
    size_t n = ig_detokenize(s->o->model, (const int32_t[]){id, id}, 2, true, NULL, 0);
    /* Twice, since of the first one of a text some tokenizers leave a blank out. */
    char twice[2 * IG_TOKEN_BYTES_MAX];
    if (n > sizeof twice) n = sizeof twice;
    n = ig_detokenize(s->o->model, (const int32_t[]){id, id}, 2, true, twice, n);
    size_t last = (n + 1) / 2;
    memcpy(bytes, twice + n - last, last);
    return last;
}

static json_t *token_name(const ig_exchange *x, int32_t id) {
    char text[IG_TOKEN_BYTES_MAX];
    if (x->names_tokens) return json_sprintf("token_id:%d", id);
    return ig_text_stringn(text, ig_token_bytes(x->call->server, id, text));
}

/* JSON has no infinity; what has no logprob is null. */
static json_t *logprob_json(double v) { return isnan(v) ? json_null() : json_real(v < -9999 ? -9999 : v); }

static json_t *chat_token(const ig_exchange *x, const ig_token_score *t) {
    char text[IG_TOKEN_BYTES_MAX];
    size_t n = ig_token_bytes(x->call->server, t->id, text);
    return json_pack("{s:o, s:o, s:o}", "token", token_name(x, t->id), "logprob", logprob_json(t->logprob), "bytes",
                     ig_reply_bytes(text, n));
}

static json_t *native_token(const ig_exchange *x, const ig_token_score *t) {
    json_t *one = chat_token(x, t);
    return ig_json_if(json_object_set_new(one, "id", json_integer(t->id)) == 0, one);
}

/* Each token with the likeliest ones in its place. */
static json_t *list_tokens(ig_choice *k, size_t n, json_t *(*token)(const ig_exchange *x, const ig_token_score *t)) {
    json_t *all = json_array();
    bool ok = true;
    for (size_t end = k->n_tokens_sent + n; k->n_tokens_sent < end; k->n_tokens_sent++) {
        const ig_token_record *r = &k->tokens[k->n_tokens_sent];
        json_t *one = token(k->exchange, &r->token), *top = json_array();
        for (int i = 0; i < r->n_top; i++) ok &= json_array_append_new(top, token(k->exchange, &r->top[i])) == 0;
        ok &= json_object_set_new(one, "top_logprobs", top) == 0;
        ok &= json_array_append_new(all, one) == 0;
    }
    return ig_json_if(ok, all);
}

static json_t *chat_logprobs(ig_choice *k, size_t n) {
    return json_pack("{s:o, s:n}", "content", list_tokens(k, n, chat_token), "refusal");
}

/* With the token itself, as those who look for the likeliest one expect. */
static json_t *top_object(const ig_exchange *x, const ig_token_record *r) {
    if (isnan(r->token.logprob) || x->n_top == 0) return json_null();
    json_t *top = json_object();
    bool ok = true;
    for (int i = r->n_top; i-- > 0;) { /* of tokens with the same text the likelier one stays */
        json_t *name = token_name(x, r->top[i].id);
        ok &= json_object_set_new(top, json_string_value(name), logprob_json(r->top[i].logprob)) == 0;
        json_decref(name);
    }
    json_t *own = token_name(x, r->token.id);
    if (own && !json_object_get(top, json_string_value(own)))
        ok &= json_object_set_new(top, json_string_value(own), logprob_json(r->token.logprob)) == 0;
    ok &= own != NULL;
    json_decref(own);
    return ig_json_if(ok, top);
}

static json_t *legacy_logprobs(ig_choice *k, size_t n) {
    const ig_exchange *x = k->exchange;
    json_t *tokens = json_array(), *scores = json_array(), *tops = json_array(), *offsets = json_array();
    bool ok = true;
    for (size_t end = k->n_tokens_sent + n; k->n_tokens_sent < end; k->n_tokens_sent++) {
        const ig_token_record *r = &k->tokens[k->n_tokens_sent];
        char text[IG_TOKEN_BYTES_MAX];
        ok &= json_array_append_new(tokens, token_name(x, r->token.id)) == 0;
        ok &= json_array_append_new(scores, logprob_json(r->token.logprob)) == 0;
        ok &= json_array_append_new(tops, top_object(x, r)) == 0;
        ok &= json_array_append_new(offsets, json_integer((json_int_t)k->n_characters)) == 0;
        k->n_characters += ig_text_count(text, ig_token_bytes(x->call->server, r->token.id, text));
    }
    return ig_json_if(ok, json_pack("{s:o, s:o, s:o, s:o}", "tokens", tokens, "token_logprobs", scores, "top_logprobs",
                                    tops, "text_offset", offsets));
}

json_t *ig_choice_logprobs(ig_choice *k, size_t n) {
    if (k->exchange->n_top < 0) return json_null();
    if (k->exchange->api->is_native) return list_tokens(k, n, native_token); /* as llama-server has them */
    return k->exchange->api->is_chat ? chat_logprobs(k, n) : legacy_logprobs(k, n);
}

static json_t *list_ids(const int32_t *ids, size_t n) {
    json_t *list = json_array();
    bool ok = true;
    for (size_t i = 0; i < n; i++) ok &= json_array_append_new(list, json_integer(ids[i])) == 0;
    return ig_json_if(ok, list);
}

json_t *ig_choice_new_ids(ig_choice *k) {
    json_t *list = list_ids(k->ids + k->n_ids_sent, k->n_ids - k->n_ids_sent);
    k->n_ids_sent = k->n_ids;
    return list;
}

json_t *ig_choice_prompt_ids(const ig_choice *k) {
    const ig_prompt *p = &k->exchange->prompts[k->prompt];
    return list_ids(p->ids, (size_t)p->n_ids);
}

/* ---- numbers -------------------------------------------------------------------------------------- */

const char *ig_choice_finish(const ig_choice *k) {
    ig_finish f = k->result.finish;
    if (k->reader.calls.n_calls && f == IG_FINISH_END) return "tool_calls";
    return f == IG_FINISH_END || f == IG_FINISH_STOP ? "stop" : "length";
}

json_t *ig_exchange_usage(const ig_exchange *x) {
    json_int_t prompt = 0, made = 0, cached = 0, expected = 0, came = 0;
    for (size_t i = 0; i < x->n_choices; i++) {
        const ig_choice *k = &x->choices[i];
        made += k->has_ended ? k->result.n_tokens : k->n_seen;
        expected += k->has_ended ? (json_int_t)k->result.stats.n_expected : 0;
        came += k->has_ended ? (json_int_t)k->result.stats.n_expected_hits : 0;
        cached += k->has_ended && i % (size_t)x->n == 0 ? k->result.n_cached : 0;
    }
    for (size_t p = 0; p < x->n_prompts; p++) prompt += x->prompts[p].n_ids;
    json_t *usage = json_pack("{s:I, s:I, s:I, s:{s:I}}", "prompt_tokens", prompt, "completion_tokens", made,
                              "total_tokens", prompt + made, "prompt_tokens_details", "cached_tokens", cached);
    if (x->expected)
        json_object_set_new(
            usage, "completion_tokens_details",
            json_pack("{s:I, s:I}", "accepted_prediction_tokens", came, "rejected_prediction_tokens", expected - came));
    return usage;
}

static double rate(double n, double seconds) { return seconds > 0 ? n / seconds : 0; }

json_t *ig_choice_progress(const ig_choice *k) {
    const ig_request_progress *p = &k->progress;
    return json_pack("{s:i, s:i, s:i, s:I}", "total", p->n_prompt, "cache", p->n_cached, "processed", p->n_held,
                     "time_ms", (json_int_t)(p->seconds * 1e3));
}

/* As far as it is: what is told at the end is in `result`. */
static ig_request_result result_so_far(const ig_choice *k) {
    const ig_request_progress *p = &k->progress;
    if (k->has_ended) return k->result;
    return (ig_request_result){.n_prompt = p->n_prompt,
                               .n_cached = p->n_cached,
                               .n_tokens = k->n_seen,
                               .prompt_seconds = p->seconds,
                               .seconds = p->seconds + (k->n_seen ? k->last_token - k->answered : 0)};
}

json_t *ig_choice_timings(const ig_choice *k) {
    const ig_request_result so_far = result_so_far(k), *r = &so_far;
    int computed = r->n_prompt - r->n_cached;
    double answer = r->seconds - r->wait_seconds - r->prompt_seconds;
    json_t *timings =
        json_pack("{s:i, s:i, s:f, s:f, s:i, s:f, s:f, s:f}", "cache_n", r->n_cached, "prompt_n", computed, "prompt_ms",
                  r->prompt_seconds * 1e3, "prompt_per_second", rate(computed, r->prompt_seconds), "predicted_n",
                  r->n_tokens, "predicted_ms", answer * 1e3, "predicted_per_second", rate(r->n_tokens, answer),
                  "wait_ms", r->wait_seconds * 1e3);
    if (r->stats.n_drafted) {
        json_object_set_new(timings, "draft_n", json_integer((json_int_t)r->stats.n_drafted));
        json_object_set_new(timings, "draft_n_accepted", json_integer((json_int_t)r->stats.n_draft_hits));
    }
    return timings;
}

json_t *ig_choice_cost(const ig_choice *k) {
    const ig_session_stats *st = &k->result.stats;
    return json_pack("{s:s, s:s, s:I, s:f, s:i, s:I, s:I, s:I, s:f}", "policy", st->policy ? st->policy : "", "kv_type",
                     st->kv_type ? st->kv_type : "", "entries", (json_int_t)st->n_entries, "selected_share",
                     st->selected_share, "cached_tokens", k->result.n_cached, "kv_bytes", (json_int_t)st->kv_bytes,
                     "disk_bytes", (json_int_t)st->disk_bytes, "fetched_bytes", (json_int_t)st->read_bytes,
                     "stall_seconds", st->stall_seconds);
}

/* ---- the reply --------------------------------------------------------------------------------------- */

json_t *ig_exchange_head(const ig_exchange *x, const char *object) {
    return json_pack("{s:s, s:s, s:I, s:s, s:s}", "id", x->id, "object", object, "created", (json_int_t)x->created,
                     "model", x->model_name, "system_fingerprint", x->call->server->fingerprint);
}

static json_t *whole_text(const ig_choice *k) { return ig_text_stringn(k->text ? k->text : "", k->n_text); }

typedef struct message_parts {
    char *texts[2]; /* thoughts, text */
    size_t n[2];
    json_t *calls;
} message_parts;

static bool add_parts(message_parts *m, ig_choice *k) {
    const char *answer = k->text ? k->text : "";
    ig_part p;
    for (size_t i = 0; i < 2; i++)
        if (!(m->texts[i] = malloc(k->n_text + 1))) return false;
    while ((p = ig_part_next(&k->reader, k->exchange, answer, k->n_text, true)).kind != IG_PART_WAIT) {
        if (p.kind == IG_PART_CALL) {
            if (json_array_append_new(m->calls, p.call) != 0) return false;
            continue;
        }
        size_t i = p.kind == IG_PART_TEXT;
        memcpy(m->texts[i] + m->n[i], answer + p.at, p.n);
        m->n[i] += p.n;
    }
    return true;
}

/* With calls and without any text, its content is null. */
static json_t *message_json(ig_choice *k) {
    message_parts m = {.calls = json_array()};
    bool ok = add_parts(&m, k);
    bool is_null = m.n[1] == 0 && json_array_size(m.calls);
    json_t *content = !ok || is_null ? json_null() : ig_text_stringn(m.texts[1], m.n[1]),
           *message = json_pack("{s:s, s:o, s:n}", "role", "assistant", "content", content, "refusal");
    if (ok && m.n[0]) ok = json_object_set_new(message, "reasoning_content", ig_text_stringn(m.texts[0], m.n[0])) == 0;
    if (ok && json_array_size(m.calls)) ok = json_object_set(message, "tool_calls", m.calls) == 0;
    json_decref(m.calls);
    free(m.texts[0]);
    free(m.texts[1]);
    return ig_json_if(ok, message);
}

static json_t *choice_json(ig_choice *k, size_t i) {
    const ig_exchange *x = k->exchange;
    json_t *logprobs = ig_choice_logprobs(k, k->n_tokens);
    json_t *text = x->api->is_chat ? message_json(k) : whole_text(k); /* a message's calls are counted */
    json_t *out = json_pack("{s:i, s:o, s:o, s:s}", "index", (int)i, x->api->is_chat ? "message" : "text", text,
                            "logprobs", logprobs, "finish_reason", ig_choice_finish(k));
    bool ok = !x->returns_ids || json_object_set_new(out, "token_ids", ig_choice_new_ids(k)) == 0;
    if (x->returns_ids && !x->api->is_chat)
        ok &= json_object_set_new(out, "prompt_token_ids", ig_choice_prompt_ids(k)) == 0;
    return ig_json_if(ok, out);
}

json_t *ig_exchange_json(ig_exchange *x) {
    json_t *out = ig_exchange_head(x, x->api->object), *choices = json_array();
    bool ok = true;
    for (size_t i = 0; i < x->n_choices; i++) ok &= json_array_append_new(choices, choice_json(&x->choices[i], i)) == 0;
    ok &= json_object_set_new(out, "choices", choices) == 0;
    if (x->returns_ids && x->api->is_chat)
        ok &= json_object_set_new(out, "prompt_token_ids", ig_choice_prompt_ids(&x->choices[0])) == 0;
    ok &= json_object_set_new(out, "usage", ig_exchange_usage(x)) == 0;
    ok &= json_object_set_new(out, "timings", ig_choice_timings(&x->choices[0])) == 0;
    ok &= json_object_set_new(out, "infinigen", ig_choice_cost(&x->choices[0])) == 0;
    return ig_json_if(ok, out);
}

bool ig_exchange_failed(const ig_exchange *x, ig_refusal *out) {
    bool is_late = atomic_load(&x->call->ended) == IG_CALL_LATE;
    for (size_t i = 0; i < x->n_choices; i++) {
        const ig_choice *k = &x->choices[i];
        bool is_interrupted = k->result.finish == IG_FINISH_INTERRUPTED;
        if (!k->result.error.status && !k->has_failed && !is_interrupted) continue;
        bool is_theirs = k->result.error.status == IG_E_ARG; /* a form, or biases, that leave no token */
        *out =
            (ig_refusal){.status = is_theirs ? 400 : 500, .type = is_theirs ? "invalid_request_error" : "server_error"};
        if (k->has_failed)
            snprintf(out->text, sizeof out->text, "out of memory for the answer");
        else if (k->result.error.status)
            snprintf(out->text, sizeof out->text, "%s", k->result.error.text);
        else
            snprintf(out->text, sizeof out->text,
                     is_late        ? "the answer took longer than is allowed"
                     : k->is_unread ? "the client does not read the answer"
                                    : "the server is being shut down");
        if (!k->has_failed && !k->result.error.status) out->status = 503;
        if (out->status == 503) out->type = "unavailable_error";
        out->may_retry = out->status == 503 && !is_late && !k->is_unread;
        if (out->status == 503 && is_late) out->code = "request_timeout";
        return true;
    }
    return false;
}
