/* SPDX-License-Identifier: Apache-2.0
 *
 * A body of /v1/responses as one of /v1/chat/completions. Items of the input that an assistant has made one behind the
 * other become one message.
 */
#define _GNU_SOURCE
#include "server/api.h"

#include <stdio.h>
#include <string.h>

/* ---- content -------------------------------------------------------------------------------- */

/* Adds a message's parts of text to a list, as a chat has them; a string is one of them. */
static bool add_parts(ig_translation *t, json_t *to, json_t *content, const char *where) {
    static const char *const types[] = {"input_text", "output_text", "text", "refusal", NULL};
    size_t i;
    json_t *part;
    if (json_is_string(content))
        ig_translation_append(t, to, json_pack("{s:s, s:O}", "type", "text", "text", content));
    else if (!json_is_array(content))
        return ig_refuse(t->call, 400, where, "%s must be a string or a list of parts", where);
    json_array_foreach(content, i, part) {
        size_t k = 0;
        while (types[k] && !ig_is_type(part, types[k])) k++;
        json_t *text = ig_field(part, k == 3 ? "refusal" : "text");
        if (!types[k] || !json_is_string(text))
            return ig_refuse(t->call, 400, where,
                             "%s[%zu]: only parts of type input_text, output_text and refusal are supported", where, i);
        ig_translation_append(t, to, json_pack("{s:s, s:O}", "type", "text", "text", text));
    }
    return true;
}

/* ---- items ------------------------------------------------------------------------------------ */

typedef struct items {
    ig_translation *t;
    ig_said said;
    bool is_said; /* there is one, which is not among the messages yet */
} items;

static void end_said(items *x) {
    if (x->is_said) ig_said_end(x->t, &x->said);
    x->is_said = false;
}

/* Thoughts, one text and calls are one message, in this order. */
static void begin_said(items *x, bool is_call) {
    bool is_full = x->is_said && (json_array_size(x->said.calls) || json_array_size(x->said.texts));
    if (is_full && !is_call) end_said(x);
    if (!x->is_said) ig_said_begin(x->t, &x->said);
    x->is_said = true;
}

static bool add_message(items *x, const json_t *item, const char *where) {
    const char *role = NULL;
    char field[64];
    snprintf(field, sizeof field, "%s.content", where);
    if (!ig_field_text(x->t->call, item, "role", &role)) return false;
    if (!role) return ig_refuse(x->t->call, 400, where, "%s: a message has a role", where);
    if (strcmp(role, "assistant") == 0) {
        begin_said(x, false);
        return add_parts(x->t, x->said.texts, ig_field(item, "content"), field);
    }
    end_said(x);
    json_t *parts = json_array();
    bool ok = add_parts(x->t, parts, ig_field(item, "content"), field);
    ig_translation_append(x->t, x->t->messages, json_pack("{s:s, s:o}", "role", role, "content", parts));
    return ok;
}

static bool add_call(items *x, const json_t *item, const char *where) {
    const char *id = NULL, *name = NULL, *arguments = NULL;
    if (!ig_field_text(x->t->call, item, "call_id", &id) || !ig_field_text(x->t->call, item, "name", &name) ||
        !ig_field_text(x->t->call, item, "arguments", &arguments))
        return false;
    if (!name || !id) return ig_refuse(x->t->call, 400, where, "%s: a function_call has a call_id and a name", where);
    begin_said(x, true);
    ig_translation_append(x->t, x->said.calls,
                          json_pack("{s:s, s:s, s:{s:s, s:s}}", "id", id, "type", "function", "function", "name", name,
                                    "arguments", arguments ? arguments : ""));
    return true;
}

static bool add_result(items *x, const json_t *item, const char *where) {
    const char *id = NULL;
    char field[64];
    snprintf(field, sizeof field, "%s.output", where);
    if (!ig_field_text(x->t->call, item, "call_id", &id)) return false;
    if (!id) return ig_refuse(x->t->call, 400, where, "%s: a function_call_output has a call_id", where);
    end_said(x);
    json_t *parts = json_array();
    bool ok = add_parts(x->t, parts, ig_field(item, "output"), field);
    ig_translation_append(x->t, x->t->messages,
                          json_pack("{s:s, s:s, s:o}", "role", "tool", "tool_call_id", id, "content", parts));
    return ok;
}

/* What has been thought before the answer; without it, its summary. What only its maker can read is passed over. */
static bool add_thoughts(items *x, const json_t *item, const char *where) {
    const json_t *list = ig_field(item, "content");
    size_t i;
    json_t *part;
    if (json_array_size(list) == 0) list = ig_field(item, "summary");
    if (list && !json_is_array(list))
        return ig_refuse(x->t->call, 400, where, "%s: thoughts must be a list of parts", where);
    if (json_array_size(list)) begin_said(x, false);
    json_array_foreach(list, i, part) {
        const char *text = NULL;
        if (!ig_field_text(x->t->call, part, "text", &text)) return false;
        ig_said_think(x->t, &x->said, text ? text : "");
    }
    return true;
}

static bool add_item(items *x, const json_t *item, size_t i) {
    char where[32];
    snprintf(where, sizeof where, "input[%zu]", i);
    const char *type = json_string_value(ig_field(item, "type"));
    if (ig_is_type(item, "message") || (!type && ig_field(item, "role"))) return add_message(x, item, where);
    if (ig_is_type(item, "function_call")) return add_call(x, item, where);
    if (ig_is_type(item, "function_call_output")) return add_result(x, item, where);
    if (ig_is_type(item, "reasoning")) return add_thoughts(x, item, where);
    return ig_refuse(x->t->call, 400, where,
                     "%s: only items of type message, function_call, function_call_output and reasoning are supported",
                     where);
}

static bool add_input(ig_translation *t, json_t *input) {
    items x = {.t = t};
    json_t *item;
    size_t i;
    bool ok = true;
    if (json_is_string(input)) {
        ig_translation_append(t, t->messages, json_pack("{s:s, s:O}", "role", "user", "content", input));
        return true;
    }
    if (json_array_size(input) == 0)
        return ig_refuse(t->call, 400, "input", "input must be a string or a list of items, not empty");
    json_array_foreach(input, i, item) { ok = ok && add_item(&x, item, i); }
    end_said(&x);
    return ok;
}

/* ---- tools -------------------------------------------------------------------------------------- */

/* A word is the same in a chat. */
static void add_choice(ig_translation *t, json_t *choice) {
    if (ig_is_type(choice, "function"))
        ig_translation_set(
            t, t->out, "tool_choice",
            json_pack("{s:s, s:{s:O*}}", "type", "function", "function", "name", ig_field(choice, "name")));
    else if (choice)
        t->ok &= json_object_set(t->out, "tool_choice", choice) == 0;
}

/* ---- the rest ------------------------------------------------------------------------------------- */

static bool add_text(ig_translation *t, const json_t *text) {
    static const char *const known[] = {"format", "verbosity", NULL};
    json_t *format = ig_field(text, "format"), *verbosity = ig_field(text, "verbosity");
    if (!text) return true;
    if (!json_is_object(text)) return ig_refuse(t->call, 400, "text", "text must be an object");
    if (!ig_field_others(t->call, text, "text.", known)) return false;
    if (verbosity) t->ok &= json_object_set(t->out, "verbosity", verbosity) == 0;
    if (ig_is_type(format, "json_schema"))
        ig_translation_set(t, t->out, "response_format",
                           json_pack("{s:s, s:{s:O*, s:O*, s:O*}}", "type", "json_schema", "json_schema", "name",
                                     ig_field(format, "name"), "schema", ig_field(format, "schema"), "strict",
                                     ig_field(format, "strict")));
    else if (format)
        t->ok &= json_object_set(t->out, "response_format", format) == 0;
    return true;
}

static bool add_reasoning(ig_translation *t, const json_t *reasoning) {
    json_t *effort = ig_field(reasoning, "effort");
    if (reasoning && !json_is_object(reasoning))
        return ig_refuse(t->call, 400, "reasoning", "reasoning must be an object");
    if (effort) t->ok &= json_object_set(t->out, "reasoning_effort", effort) == 0;
    return true;
}

/* Scores are asked for by either of two fields. */
static bool add_scores(ig_translation *t, const json_t *include) {
    int64_t top = 0;
    bool is_wanted = false;
    size_t i;
    json_t *what;
    if (include && !json_is_array(include)) return ig_refuse(t->call, 400, "include", "include must be a list");
    if (!ig_field_int(t->call, t->body, "top_logprobs", 0, IG_REQUEST_TOP_MAX, &top)) return false;
    json_array_foreach(include, i, what) {
        const char *name = json_string_value(what);
        is_wanted |= name && strcmp(name, "message.output_text.logprobs") == 0;
    }
    if (!is_wanted && !top) json_object_del(t->out, "top_logprobs");
    if (is_wanted || top) ig_translation_set(t, t->out, "logprobs", json_true());
    return true;
}

/* Nothing is kept of a response, and nothing cut off a conversation. */
static bool check_others(const ig_translation *t) {
    const char *truncation = NULL;
    bool is_later = false;
    if (!ig_field_text(t->call, t->body, "truncation", &truncation) ||
        !ig_field_bool(t->call, t->body, "background", &is_later))
        return false;
    if (truncation && strcmp(truncation, "disabled") != 0)
        return ig_refuse(t->call, 400, "truncation", "truncation other than disabled is not supported here");
    if (is_later) return ig_refuse(t->call, 400, "background", "background is not supported here");
    static const char *const kept[] = {"previous_response_id", "conversation", NULL};
    for (const char *const *name = kept; *name; name++)
        if (ig_field(t->body, *name))
            return ig_refuse(t->call, 400, *name,
                             "%s: responses are not kept here; input must be the whole conversation", *name);
    return true;
}

static bool translate(ig_translation *t) {
    static const char *const absent[] = {"n",        "best_of", "logprobs",        "stop", "max_tokens",
                                         "messages", "prompt",  "response_format", NULL},
                             *const theirs[] = {"input",      "instructions", "tools",          "tool_choice",
                                                "text",       "reasoning",    "include",        "max_output_tokens",
                                                "truncation", "background",   "max_tool_calls", "stream_options",
                                                NULL};
    const json_t *body = t->body;
    json_t *instructions = ig_field(body, "instructions"), *most = ig_field(body, "max_output_tokens");
    if (ig_translation_refuses(t, absent) || !check_others(t)) return false;
    ig_translation_drop(t, theirs);
    if (instructions)
        ig_translation_append(t, t->messages, json_pack("{s:s, s:O}", "role", "system", "content", instructions));
    if (most) t->ok &= json_object_set(t->out, "max_tokens", most) == 0;
    add_choice(t, ig_field(body, "tool_choice"));
    return add_input(t, ig_field(body, "input")) && ig_translation_tools(t, "function", true, "parameters") &&
           add_text(t, ig_field(body, "text")) && add_reasoning(t, ig_field(body, "reasoning")) &&
           add_scores(t, ig_field(body, "include"));
}

json_t *ig_responses_body(ig_call *c, const json_t *body) { return ig_translate(c, body, translate); }

void ig_route_input_tokens(ig_call *c) { ig_translation_count(c, &ig_api_responses, "response.input_tokens"); }
