/* SPDX-License-Identifier: Apache-2.0
 *
 * Replies of /v1/messages: those of a chat in another form, whole, as events, and where they fail.
 */
#include "server/api.h"

#include <string.h>

/* ---- what both forms have ------------------------------------------------------------------ */

static const char *reason_of(const ig_exchange *x) {
    const ig_choice *k = &x->choices[0];
    if (k->result.finish == IG_FINISH_STOP) return "stop_sequence";
    const char *finish = ig_choice_finish(k);
    if (strcmp(finish, "tool_calls") == 0) return "tool_use";
    return strcmp(finish, "stop") == 0 ? "end_turn" : "max_tokens";
}

/* The sequence that has ended the answer. */
static json_t *stop_of(const ig_exchange *x) {
    const ig_choice *k = &x->choices[0];
    return k->result.finish == IG_FINISH_STOP ? json_string(x->stops[k->result.stop]) : json_null();
}

/* Tokens of the prompt that were taken from others are counted by themselves. */
static json_t *usage_of(const ig_exchange *x) {
    const ig_choice *k = &x->choices[0];
    json_int_t cached = k->has_ended ? k->result.n_cached : 0;
    return json_pack("{s:I, s:I, s:i, s:i}", "input_tokens", x->prompts[0].n_ids - cached, "cache_read_input_tokens",
                     cached, "cache_creation_input_tokens", 0, "output_tokens",
                     k->has_ended ? k->result.n_tokens : k->n_seen);
}

static json_t *head_of(const ig_exchange *x) {
    return json_pack("{s:s, s:s, s:s, s:s}", "id", x->id, "type", "message", "role", "assistant", "model",
                     x->model_name);
}

/* ---- whole ------------------------------------------------------------------------------------ */

static json_t *text_block(const char *type, const char *name, json_t *text) {
    return json_pack("{s:s, s:O}", "type", type, name, text);
}

/* What is no object a model may write where no form binds it. */
json_t *ig_call_input(const char *arguments, size_t n) {
    bool has_no_memory = false;
    json_t *input = ig_json_of_text(arguments ? arguments : "", n, 0, NULL, &has_no_memory);
    if (json_is_object(input) || has_no_memory) return input;
    json_decref(input);
    return json_pack("{s:o}", "arguments", ig_text_stringn(arguments ? arguments : "", n));
}

static json_t *call_block(const json_t *call) {
    const json_t *function = json_object_get(call, "function"), *arguments = json_object_get(function, "arguments");
    return json_pack("{s:s, s:O, s:O, s:o}", "type", "tool_use", "id", json_object_get(call, "id"), "name",
                     json_object_get(function, "name"), "input",
                     ig_call_input(json_string_value(arguments), json_string_length(arguments)));
}

static json_t *blocks_of(const json_t *message) {
    json_t *blocks = json_array(), *thoughts = json_object_get(message, "reasoning_content"),
           *text = json_object_get(message, "content"), *call;
    bool ok = true;
    size_t i;
    if (thoughts) {
        json_t *block = text_block("thinking", "thinking", thoughts);
        ok &= json_object_set_new(block, "signature", json_string("")) == 0;
        ok &= json_array_append_new(blocks, block) == 0;
    }
    if (json_string_length(text)) ok &= json_array_append_new(blocks, text_block("text", "text", text)) == 0;
    json_array_foreach(json_object_get(message, "tool_calls"), i, call) {
        ok &= json_array_append_new(blocks, call_block(call)) == 0;
    }
    return ig_json_if(ok, blocks);
}

static json_t *reply(ig_exchange *x) {
    json_t *chat = ig_exchange_json(x);
    const json_t *choice = json_array_get(json_object_get(chat, "choices"), 0);
    json_t *out = head_of(x), *more = NULL;
    if (chat)
        more = json_pack("{s:o, s:s, s:o, s:o, s:O, s:O}", "content", blocks_of(json_object_get(choice, "message")),
                         "stop_reason", reason_of(x), "stop_sequence", stop_of(x), "usage", usage_of(x), "timings",
                         json_object_get(chat, "timings"), "infinigen", json_object_get(chat, "infinigen"));
    bool ok = json_object_update(out, more) == 0;
    json_decref(more);
    json_decref(chat);
    return ig_json_if(ok, out);
}

/* ---- events ------------------------------------------------------------------------------------- */

/* Takes `value`. Its type is the event's name. */
static bool tell(ig_exchange *x, json_t *value) {
    const char *name = json_string_value(json_object_get(value, "type"));
    return ig_stream_event(x, name ? name : "error", value);
}

static bool begin(ig_exchange *x) {
    json_t *message = head_of(x),
           *more = json_pack("{s:[], s:n, s:n, s:o}", "content", "stop_reason", "stop_sequence", "usage", usage_of(x));
    bool ok = json_object_update(message, more) == 0;
    json_decref(more);
    if (ok) return tell(x, json_pack("{s:s, s:o}", "type", "message_start", "message", message));
    json_decref(message);
    return false;
}

static bool end_block(ig_exchange *x) {
    ig_message_blocks *b = &x->blocks;
    if (!b->open) return true;
    b->open = NULL;
    return tell(x, json_pack("{s:s, s:i}", "type", "content_block_stop", "index", b->n - 1));
}

/* Takes `block`. */
static bool begin_block(ig_exchange *x, const char *type, json_t *block) {
    ig_message_blocks *b = &x->blocks;
    if (!end_block(x)) {
        json_decref(block);
        return false;
    }
    b->open = type;
    return tell(x,
                json_pack("{s:s, s:i, s:o}", "type", "content_block_start", "index", b->n++, "content_block", block));
}

/* More of the block that is open. Empty is what a chat's chunk says where it has nothing new. */
static bool add_to_block(ig_exchange *x, const char *type, const char *name, json_t *text) {
    if (json_string_length(text) == 0) return true;
    return tell(x, json_pack("{s:s, s:i, s:{s:s, s:O}}", "type", "content_block_delta", "index", x->blocks.n - 1,
                             "delta", "type", type, name, text));
}

/* More text, or more thoughts: in a block that is open, or a new one. */
static bool tell_text(ig_exchange *x, const char *type, json_t *text) {
    bool is_text = strcmp(type, "text") == 0, is_new = !x->blocks.open || strcmp(x->blocks.open, type) != 0;
    json_t *empty = NULL;
    if (json_string_length(text) == 0) return true;
    if (is_new && is_text) empty = json_pack("{s:s, s:s}", "type", type, "text", "");
    if (is_new && !is_text) empty = json_pack("{s:s, s:s, s:s}", "type", type, "thinking", "", "signature", "");
    return (!is_new || begin_block(x, type, empty)) &&
           add_to_block(x, is_text ? "text_delta" : "thinking_delta", type, text);
}

static bool tell_call(ig_exchange *x, const json_t *call) {
    const json_t *function = json_object_get(call, "function");
    json_t *id = json_object_get(call, "id");
    if (id && !begin_block(x, "tool_use",
                           json_pack("{s:s, s:O, s:O, s:{}}", "type", "tool_use", "id", id, "name",
                                     json_object_get(function, "name"), "input")))
        return false;
    return add_to_block(x, "input_json_delta", "partial_json", json_object_get(function, "arguments"));
}

static bool end(ig_exchange *x) {
    return end_block(x) &&
           tell(x, json_pack("{s:s, s:{s:s, s:o}, s:o}", "type", "message_delta", "delta", "stop_reason", reason_of(x),
                             "stop_sequence", stop_of(x), "usage", usage_of(x)));
}

static bool tell_chunk(ig_exchange *x, json_t *choice) {
    const json_t *delta = json_object_get(choice, "delta"), *calls = json_object_get(delta, "tool_calls");
    json_t *text = json_object_get(delta, "content"), *thoughts = json_object_get(delta, "reasoning_content");
    bool ok = choice != NULL;
    if (json_object_get(delta, "role")) ok = ok && begin(x);
    if (thoughts) ok = ok && tell_text(x, "thinking", thoughts);
    if (text) ok = ok && tell_text(x, "text", text);
    for (size_t i = 0; i < json_array_size(calls) && ok; i++) ok = tell_call(x, json_array_get(calls, i));
    if (json_is_string(json_object_get(choice, "finish_reason"))) ok = ok && end(x);
    json_decref(choice);
    return ok;
}

static bool stop(ig_exchange *x) { return tell(x, json_pack("{s:s}", "type", "message_stop")); }

/* ---- failures ------------------------------------------------------------------------------------- */

static json_t *refusal(const ig_refusal *r) {
    const char *type = r->status == 401   ? "authentication_error"
                       : r->status == 403 ? "permission_error"
                       : r->status == 404 ? "not_found_error"
                       : r->status == 413 ? "request_too_large"
                       : r->status == 503 ? "overloaded_error"
                       : r->status >= 500 ? "api_error"
                                          : "invalid_request_error";
    json_t *details = NULL; /* by which Anthropic's client knows that it has to send the whole conversation */
    if (strcmp(r->field, IG_MESSAGES_THREAD) == 0)
        details = json_pack("{s:s, s:[s]}", "error_code", "thread_unsupported_request", "unsupported", r->field);
    return json_pack("{s:s, s:{s:s, s:o, s:o*}}", "type", "error", "error", "type", type, "message",
                     ig_text_string(r->text), "details", details);
}

static bool fail(ig_exchange *x, const ig_refusal *r) { return ig_stream_event(x, "error", refusal(r)); }

const ig_api ig_api_messages = {.prefix = "msg_",
                                IG_API_OF_CHAT,
                                .translate = ig_messages_body,
                                .reply = reply,
                                .tell = tell_chunk,
                                .end = stop,
                                .refusal = refusal,
                                .fail = fail};
