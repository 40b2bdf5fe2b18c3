/* SPDX-License-Identifier: Apache-2.0
 *
 * Replies of /v1/responses: a list of items, each a message, thoughts or a call. A whole reply is made as a stream is,
 * but that its events are not told.
 */
#define _GNU_SOURCE
#include "server/api.h"

#include <stdlib.h>
#include <string.h>

/* ---- the response ------------------------------------------------------------------------------ */

static bool is_cut_off(const ig_exchange *x) { return strcmp(ig_choice_finish(&x->choices[0]), "length") == 0; }

static json_t *usage_of(const ig_exchange *x) {
    const ig_choice *k = &x->choices[0];
    json_int_t in = x->prompts[0].n_ids, out = k->has_ended ? k->result.n_tokens : k->n_seen;
    return json_pack("{s:I, s:{s:i, s:i}, s:I, s:{s:I}, s:I}", "input_tokens", in, "input_tokens_details",
                     "cached_tokens", k->has_ended ? k->result.n_cached : 0, "cache_write_tokens", 0, "output_tokens",
                     out, "output_tokens_details", "reasoning_tokens", (json_int_t)x->items.n_thoughts, "total_tokens",
                     in + out);
}

/* What was asked for; what was not has the value that it has then. */
static bool add_question(json_t *to, const ig_exchange *x) {
    static const struct {
        const char *name, *otherwise;
    } fields[] = {{"instructions", "null"},        {"max_output_tokens", "null"},
                  {"max_tool_calls", "null"},      {"metadata", "{}"},
                  {"parallel_tool_calls", "true"}, {"reasoning", "{\"effort\": null, \"summary\": null}"},
                  {"safety_identifier", "null"},   {"text", "{\"format\": {\"type\": \"text\"}}"},
                  {"tool_choice", "\"auto\""},     {"tools", "[]"},
                  {"top_logprobs", "0"},           {"user", "null"}};
    bool ok = true;
    for (size_t i = 0; i < sizeof fields / sizeof *fields && ok; i++) {
        json_t *given = ig_field(x->given, fields[i].name);
        ok = json_object_set_new(to, fields[i].name,
                                 given ? json_incref(given) : json_loads(fields[i].otherwise, JSON_DECODE_ANY, NULL)) ==
             0;
    }
    return ok;
}

/* `status`: "in_progress", "completed", "incomplete" or "failed"; `why`: of the last. */
static json_t *response_of(const ig_exchange *x, const char *status, const ig_refusal *why) {
    const ig_sampler_options *s = &x->ask.sampler;
    json_t *error = json_null(), *cut = json_null(), *usage = json_null();
    bool goes_on = strcmp(status, "in_progress") == 0;
    if (why)
        error =
            json_pack("{s:s, s:o}", "code", why->code ? why->code : why->type, "message", ig_text_string(why->text));
    if (strcmp(status, "incomplete") == 0) cut = json_pack("{s:s}", "reason", "max_output_tokens");
    if (!goes_on) usage = usage_of(x);
    json_t *out = json_pack("{s:s, s:s, s:I, s:s, s:b, s:o, s:o, s:s, s:O, s:n, s:b, s:f, s:f, s:s, s:o}", "id", x->id,
                            "object", "response", "created_at", (json_int_t)x->created, "status", status, "background",
                            0, "error", error, "incomplete_details", cut, "model", x->model_name, "output",
                            x->items.done, "previous_response_id", "store", 0, "temperature", (double)s->temperature,
                            "top_p", (double)s->top_p, "truncation", "disabled", "usage", usage);
    bool ok = out && add_question(out, x);
    if (ok && !goes_on && !why)
        ok = json_object_set_new(out, "timings", ig_choice_timings(&x->choices[0])) == 0 &&
             json_object_set_new(out, "infinigen", ig_choice_cost(&x->choices[0])) == 0;
    return ig_json_if(ok, out);
}

/* ---- events -------------------------------------------------------------------------------------- */

/* Takes `value`, which gets its type and number. Where no events are told, this is all. */
static bool tell(ig_exchange *x, const char *type, json_t *value) {
    bool ok = value && json_object_set_new(value, "type", json_string(type)) == 0 &&
              json_object_set_new(value, "sequence_number", json_integer(x->items.n_events++)) == 0;
    if (ok && x->is_stream) return ig_stream_event(x, type, value);
    json_decref(value);
    return ok;
}

static bool tell_response(ig_exchange *x, const char *type, const char *status, const ig_refusal *why) {
    return tell(x, type, json_pack("{s:o}", "response", response_of(x, status, why)));
}

/* An event of the open item; takes `value`, which becomes `name` of it. */
static bool tell_item(ig_exchange *x, const char *type, const char *name, json_t *value) {
    return tell(x, type,
                json_pack("{s:O, s:i, s:o}", "item_id", json_object_get(x->items.open, "id"), "output_index",
                          (int)json_array_size(x->items.done), name, value));
}

/* The same of its only part. Takes `logprobs`; NULL: it has none. */
static bool tell_part(ig_exchange *x, const char *type, const char *name, json_t *value, json_t *logprobs) {
    return tell(x, type,
                json_pack("{s:O, s:i, s:i, s:o, s:o*}", "item_id", json_object_get(x->items.open, "id"), "output_index",
                          (int)json_array_size(x->items.done), "content_index", 0, name, value, "logprobs", logprobs));
}

static bool tell_whole_item(ig_exchange *x, const char *type) {
    return tell(x, type,
                json_pack("{s:i, s:O}", "output_index", (int)json_array_size(x->items.done), "item", x->items.open));
}

/* ---- items ---------------------------------------------------------------------------------------- */

static bool is_open(const ig_exchange *x, const char *type) { return ig_is_type(x->items.open, type); }

static json_t *part_of(const char *text, size_t n, json_t *logprobs, bool is_text) {
    if (!is_text) return json_pack("{s:s, s:s%}", "type", "reasoning_text", "text", text, n);
    return json_pack("{s:s, s:s%, s:[], s:O}", "type", "output_text", "text", text, n, "annotations", "logprobs",
                     logprobs);
}

/* Tokens of the thoughts. */
static void count_thoughts(ig_exchange *x) {
    ig_response_items *r = &x->items;
    size_t n = 0;
    if (!ig_tokenize(&n, x->call->server->o->model, r->text, r->n_text, 0, NULL, 0, NULL)) r->n_thoughts += n;
}

/* Its text is whole: it goes into the item, and is told. */
static bool end_text(ig_exchange *x) {
    ig_response_items *r = &x->items;
    if (is_open(x, "function_call")) {
        json_t *name = json_object_get(r->open, "name");
        return json_object_set_new(r->open, "arguments", json_stringn(r->text, r->n_text)) == 0 &&
               tell(x, "response.function_call_arguments.done",
                    json_pack("{s:O, s:i, s:O, s:O}", "item_id", json_object_get(r->open, "id"), "output_index",
                              (int)json_array_size(r->done), "name", name, "arguments",
                              json_object_get(r->open, "arguments")));
    }
    bool is_text = is_open(x, "message");
    if (!is_text) count_thoughts(x);
    json_t *parts = json_object_get(r->open, "content");
    return json_array_append_new(parts, part_of(r->text, r->n_text, r->logprobs, is_text)) == 0 &&
           tell_part(x, is_text ? "response.output_text.done" : "response.reasoning_text.done", "text",
                     json_stringn(r->text, r->n_text), is_text ? json_incref(r->logprobs) : NULL) &&
           tell_part(x, "response.content_part.done", "part", json_incref(json_array_get(parts, 0)), NULL);
}

/* The open one is whole. */
static bool end_item(ig_exchange *x, const char *status) {
    ig_response_items *r = &x->items;
    if (!r->open) return true;
    bool ok = fclose(r->to) == 0;
    r->to = NULL;
    ok = ok && json_object_set_new(r->open, "status", json_string(status)) == 0 && end_text(x) &&
         tell_whole_item(x, "response.output_item.done") && json_array_append(r->done, r->open) == 0;
    json_decref(r->open);
    json_decref(r->logprobs);
    r->open = NULL;
    r->logprobs = json_array();
    free(r->text);
    r->text = NULL;
    return ok;
}

/* Takes `item`, which gets an id and the text that it will have. */
static bool begin_item(ig_exchange *x, const char *prefix, json_t *item) {
    ig_response_items *r = &x->items;
    if (!end_item(x, "completed")) {
        json_decref(item);
        return false;
    }
    r->open = item;
    r->to = open_memstream(&r->text, &r->n_text);
    const char *own = x->id + strlen(x->api->prefix);
    return r->to &&
           json_object_set_new(item, "id", json_sprintf("%s%s_%zu", prefix, own, json_array_size(r->done))) == 0 &&
           json_object_set_new(item, "status", json_string("in_progress")) == 0 &&
           tell_whole_item(x, "response.output_item.added");
}

static bool begin_text(ig_exchange *x, bool is_text) {
    json_t *item = is_text ? json_pack("{s:s, s:s, s:[]}", "type", "message", "role", "assistant", "content")
                           : json_pack("{s:s, s:[], s:[]}", "type", "reasoning", "summary", "content");
    if (!begin_item(x, is_text ? "msg_" : "rs_", item)) return false;
    json_t *none = json_array();
    bool ok = tell_part(x, "response.content_part.added", "part", part_of("", 0, none, is_text), NULL);
    json_decref(none);
    return ok;
}

/* More of the open item's text. */
static bool add_to_item(ig_exchange *x, const json_t *text) {
    size_t n = json_string_length(text);
    return fwrite(json_string_value(text), 1, n, x->items.to) == n;
}

/* More text, or more thoughts. Takes `logprobs`. */
static bool tell_text(ig_exchange *x, bool is_text, json_t *text, json_t *logprobs) {
    bool ok = is_open(x, is_text ? "message" : "reasoning") || begin_text(x, is_text);
    ok = ok && add_to_item(x, text);
    if (ok && is_text) return tell_part(x, "response.output_text.delta", "delta", json_incref(text), logprobs);
    json_decref(logprobs);
    return ok && tell_part(x, "response.reasoning_text.delta", "delta", json_incref(text), NULL);
}

/* A call, or more of its arguments. */
static bool tell_call(ig_exchange *x, const json_t *call) {
    const json_t *function = json_object_get(call, "function");
    json_t *id = json_object_get(call, "id"), *arguments = json_object_get(function, "arguments");
    if (id && !begin_item(x, "fc_",
                          json_pack("{s:s, s:O, s:O, s:s}", "type", "function_call", "call_id", id, "name",
                                    json_object_get(function, "name"), "arguments", "")))
        return false;
    if (json_string_length(arguments) == 0) return true;
    return add_to_item(x, arguments) &&
           tell_item(x, "response.function_call_arguments.delta", "delta", json_incref(arguments));
}

static size_t count_bytes(const json_t *score) { return json_array_size(json_object_get(score, "bytes")); }

/* Where in the tokens' bytes, n of them, the text stands at last; n: nowhere, or no memory. */
static size_t find_text(const json_t *scores, size_t n, const char *text, size_t n_text) {
    char *all = malloc(n + 1), *hit = NULL, *at = all;
    size_t i, k, found = n;
    json_t *score, *byte;
    json_array_foreach(scores, i, score) json_array_foreach(json_object_get(score, "bytes"), k, byte) {
        if (at) *at++ = (char)json_integer_value(byte);
    }
    for (at = all; n_text && at && (hit = memmem(at, n - (size_t)(at - all), text, n_text)); at = hit + 1)
        found = (size_t)(hit - all);
    free(all);
    return found;
}

/* Leaves of scores those of a text, before which there are thoughts, and behind which, if they are cut, calls. */
static void keep_scores_of_text(json_t *scores, const json_t *text, bool are_cut) {
    size_t n = 0, at = 0, n_text = json_string_length(text), i;
    json_t *score;
    json_array_foreach(scores, i, score) n += count_bytes(score);
    size_t begin = find_text(scores, n, json_string_value(text), n_text);
    json_t *kept = json_array();
    bool ok = kept && begin < n;
    json_array_foreach(scores, i, score) {
        size_t end = at + count_bytes(score);
        if (ok && end > begin && (!are_cut || at < begin + n_text)) ok = json_array_append(kept, score) == 0;
        at = end;
    }
    if (ok) json_array_clear(scores), json_array_extend(scores, kept);
    json_decref(kept);
}

/* What a chat's message or a chunk of it says. The scores of an unfinished character come before its text. */
static bool tell_message(ig_exchange *x, const json_t *message, const json_t *logprobs) {
    json_t *text = json_object_get(message, "content"), *thoughts = json_object_get(message, "reasoning_content"),
           *calls = json_object_get(message, "tool_calls"), *scores = json_object_get(logprobs, "content");
    bool ok = !json_string_length(thoughts) || tell_text(x, false, thoughts, NULL);
    text = json_is_string(text) ? json_incref(text) : json_string("");
    scores = scores ? json_incref(scores) : json_array();
    if (x->items.open && !is_open(x, "message")) {
        ok = ok && json_array_extend(x->items.earlier, scores) == 0;
        if (json_string_length(text)) {
            json_decref(scores);
            scores = x->items.earlier;
            x->items.earlier = json_array();
            keep_scores_of_text(scores, text, calls != NULL);
        }
    } else if (json_string_length(text) && calls) {
        keep_scores_of_text(scores, text, true);
    }
    bool is_news = json_string_length(text) || (json_array_size(scores) && is_open(x, "message"));
    if (ok && is_news) ok = tell_text(x, true, text, json_incref(scores));
    if (ok && (!x->items.open || is_open(x, "message"))) ok = json_array_extend(x->items.logprobs, scores) == 0;
    for (size_t i = 0; i < json_array_size(calls) && ok; i++) ok = tell_call(x, json_array_get(calls, i));
    json_decref(text);
    json_decref(scores);
    return ok;
}

/* ---- the reply --------------------------------------------------------------------------------------- */

static bool begin(ig_exchange *x) {
    x->items.done = json_array();
    x->items.logprobs = json_array();
    x->items.earlier = json_array();
    return tell_response(x, "response.created", "in_progress", NULL) &&
           tell_response(x, "response.in_progress", "in_progress", NULL);
}

static const char *status_of(const ig_exchange *x) { return is_cut_off(x) ? "incomplete" : "completed"; }

/* An answer of nothing is a message without a text. */
static bool end(ig_exchange *x) {
    bool is_nothing = !x->items.open && json_array_size(x->items.done) == 0;
    return (!is_nothing || begin_text(x, true)) && end_item(x, status_of(x));
}

static bool tell_chunk(ig_exchange *x, json_t *choice) {
    const json_t *delta = json_object_get(choice, "delta");
    bool ok = choice != NULL;
    if (json_object_get(delta, "role")) ok = ok && begin(x);
    ok = ok && tell_message(x, delta, json_object_get(choice, "logprobs"));
    if (json_is_string(json_object_get(choice, "finish_reason")))
        ok = ok && end(x) &&
             tell_response(x, is_cut_off(x) ? "response.incomplete" : "response.completed", status_of(x), NULL);
    json_decref(choice);
    return ok;
}

static json_t *reply(ig_exchange *x) {
    json_t *chat = ig_exchange_json(x);
    const json_t *choice = json_array_get(json_object_get(chat, "choices"), 0),
                 *message = json_object_get(choice, "message"), *logprobs = json_object_get(choice, "logprobs");
    bool ok = chat && begin(x) && tell_message(x, message, logprobs) && end(x);
    json_decref(chat);
    return ok ? response_of(x, status_of(x), NULL) : NULL;
}

static bool stop(ig_exchange *x) {
    (void)x;
    return true;
}

static bool fail(ig_exchange *x, const ig_refusal *r) {
    if (!x->items.done && !begin(x)) return false;
    return tell_response(x, "response.failed", "failed", r);
}

void ig_exchange_close_items(ig_exchange *x) {
    ig_response_items *r = &x->items;
    if (r->to) fclose(r->to);
    free(r->text);
    json_decref(r->done);
    json_decref(r->open);
    json_decref(r->logprobs);
    json_decref(r->earlier);
}

const ig_api ig_api_responses = {.prefix = "resp_",
                                 IG_API_OF_CHAT,
                                 .translate = ig_responses_body,
                                 .reply = reply,
                                 .tell = tell_chunk,
                                 .end = stop,
                                 .fail = fail,
                                 .close = ig_exchange_close_items};
