/* SPDX-License-Identifier: Apache-2.0
 *
 * Ollama's API: replies of /api/chat and /api/generate, whole or line by line, and what the server has.
 */
#define _GNU_SOURCE
#include "server/api.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- what all have -------------------------------------------------------------------------------- */

/* Takes `calls`; NULL: there are none. text and thoughts may be NULL, too. */
static json_t *head_of(const char *model, bool is_message, json_t *text, json_t *thoughts, json_t *calls) {
    json_t *out = json_pack("{s:s, s:o, s:b}", "model", model, "created_at", ig_json_time(time(NULL)), "done", 0),
           *to = is_message ? json_pack("{s:s}", "role", "assistant") : json_incref(out);
    json_t *said = text ? json_incref(text) : json_string("");
    bool ok = json_object_set_new(to, is_message ? "content" : "response", said) == 0;
    if (json_string_length(thoughts)) ok &= json_object_set(to, "thinking", thoughts) == 0;
    if (calls) ok &= json_object_set_new(to, "tool_calls", calls) == 0;
    if (is_message) ok &= json_object_set(out, "message", to) == 0;
    json_decref(to);
    return ig_json_if(ok, out);
}

/* Takes `out`, which gets the scores of a choice's tokens, if it has any. */
static json_t *with_scores(json_t *out, const json_t *choice) {
    json_t *list = json_object_get(json_object_get(choice, "logprobs"), "content");
    return ig_json_if(!list || json_object_set(out, "logprobs", list) == 0, out);
}

static json_int_t nanoseconds(double seconds) { return (json_int_t)(seconds * 1e9); }

/* Takes `out`, which becomes the last part of an answer, or all of it. */
static json_t *finish(json_t *out, const ig_choice *k) {
    const ig_request_result *r = &k->result;
    bool is_cut = strcmp(ig_choice_finish(k), "length") == 0;
    json_t *more =
        json_pack("{s:b, s:s, s:I, s:i, s:i, s:I, s:i, s:I}", "done", 1, "done_reason", is_cut ? "length" : "stop",
                  "total_duration", nanoseconds(r->seconds), "load_duration", 0, "prompt_eval_count", r->n_prompt,
                  "prompt_eval_duration", nanoseconds(r->prompt_seconds), "eval_count", r->n_tokens, "eval_duration",
                  nanoseconds(r->seconds - r->wait_seconds - r->prompt_seconds));
    bool ok = json_object_update(out, more) == 0;
    json_decref(more);
    return ig_json_if(ok, out);
}

static bool is_message(const ig_exchange *x) { return x->api == &ig_api_ollama_chat; }

/* ---- whole -------------------------------------------------------------------------------------------- */

static json_t *call_json(const json_t *name, const char *arguments, size_t n) {
    return json_pack("{s:{s:O, s:o}}", "function", "name", name, "arguments", ig_call_input(arguments, n));
}

static json_t *reply(ig_exchange *x) {
    json_t *whole = ig_exchange_json(x), *choice = json_array_get(json_object_get(whole, "choices"), 0),
           *message = json_object_get(choice, "message"),
           *text = json_object_get(message ? message : choice, message ? "content" : "text"),
           *list = json_object_get(message, "tool_calls"), *calls = list ? json_array() : NULL, *call;
    bool ok = whole != NULL;
    size_t i;
    json_array_foreach(list, i, call) {
        const json_t *function = json_object_get(call, "function"), *arguments = json_object_get(function, "arguments");
        ok &= json_array_append_new(calls, call_json(json_object_get(function, "name"), json_string_value(arguments),
                                                     json_string_length(arguments))) == 0;
    }
    if (json_is_null(text)) text = NULL;
    json_t *out = head_of(x->model_name, is_message(x), text, json_object_get(message, "reasoning_content"), calls);
    out = with_scores(out, choice);
    json_decref(whole);
    if (ok) return finish(out, &x->choices[0]);
    json_decref(out);
    return NULL;
}

/* ---- line by line --------------------------------------------------------------------------------------- */

/* Calls are told of when they are whole. */
static bool end_call(ig_exchange *x) {
    ig_response_items *r = &x->items;
    if (!r->open) return true;
    bool ok = fclose(r->to) == 0;
    r->to = NULL;
    json_t *calls = ok ? json_pack("[o]", call_json(r->open, r->text, r->n_text)) : NULL;
    ok = calls && ig_stream_event(x, NULL, head_of(x->model_name, is_message(x), NULL, NULL, calls));
    json_decref(r->open);
    free(r->text);
    *r = (ig_response_items){0};
    return ok;
}

static bool add_to_call(ig_exchange *x, const json_t *call) {
    ig_response_items *r = &x->items;
    const json_t *function = json_object_get(call, "function"), *arguments = json_object_get(function, "arguments");
    json_t *name = json_object_get(function, "name");
    size_t n = json_string_length(arguments);
    if (name) {
        if (!end_call(x) || !(r->to = open_memstream(&r->text, &r->n_text))) return false;
        r->open = json_incref(name);
    }
    return !n || (r->open && fwrite(json_string_value(arguments), 1, n, r->to) == n);
}

static bool tell(ig_exchange *x, json_t *choice) {
    const json_t *delta = json_object_get(choice, "delta"), *calls = json_object_get(delta, "tool_calls"), *call;
    json_t *text = json_object_get(delta ? delta : choice, delta ? "content" : "text"),
           *thoughts = json_object_get(delta, "reasoning_content");
    bool ok = choice != NULL;
    size_t i;
    if (json_string_length(text) || json_string_length(thoughts) || json_is_object(json_object_get(choice, "logprobs")))
        ok = ok &&
             ig_stream_event(x, NULL, with_scores(head_of(x->model_name, is_message(x), text, thoughts, NULL), choice));
    json_array_foreach(calls, i, call) ok = ok && add_to_call(x, call);
    if (json_is_string(json_object_get(choice, "finish_reason")))
        ok = ok && end_call(x) &&
             ig_stream_event(x, NULL, finish(head_of(x->model_name, is_message(x), NULL, NULL, NULL), &x->choices[0]));
    json_decref(choice);
    return ok;
}

/* Nothing follows the line that says "done". */
static bool end(ig_exchange *x) {
    (void)x;
    return true;
}

json_t *ig_ollama_refusal(const ig_refusal *r) { return json_pack("{s:o}", "error", ig_text_string(r->text)); }

static bool fail(ig_exchange *x, const ig_refusal *r) { return ig_stream_event(x, NULL, ig_ollama_refusal(r)); }

#define AS_OLLAMA                                                                                                      \
    .are_lines = true, .samples_as_run = true, .reply = reply, .tell = tell, .end = end, .refusal = ig_ollama_refusal, \
    .fail = fail, .close = ig_exchange_close_items

static const char *const raw_fields[] = {"prompt", "suffix", NULL};

const ig_api ig_api_ollama_chat = {.prefix = "chat-", IG_API_OF_CHAT, .translate = ig_ollama_chat_body, AS_OLLAMA},
             ig_api_ollama_prompt = {.prefix = "gen-", IG_API_OF_CHAT, .translate = ig_ollama_prompt_body, AS_OLLAMA},
             ig_api_ollama_raw = {.prefix = "gen-",
                                  .texts = "prompt",
                                  .object = "text_completion",
                                  .fields = raw_fields,
                                  .translate = ig_ollama_raw_body,
                                  .read = ig_exchange_read_prompts,
                                  AS_OLLAMA};

/* ---- the routes -------------------------------------------------------------------------------------------- */

/* False, and refused, if another model is asked for. */
static bool names_own(ig_call *c, const json_t *body) {
    const ig_server *s = c->server;
    const char *name = NULL;
    if (!ig_field_text(c, body, "name", &name) || !ig_field_text(c, body, "model", &name)) return false;
    return !name || s->o->any_model || ig_ollama_own_name(s, name) || ig_refuse_model(c, name);
}

static bool has_question(const ig_call *c, const json_t *body) {
    if (c->route->api == &ig_api_ollama_chat) return json_array_size(ig_field(body, "messages")) > 0;
    return json_string_length(ig_field(body, "prompt")) > 0 || json_string_length(ig_field(body, "suffix")) > 0;
}

static bool is_nothing(const json_t *time) {
    const char *text = json_string_value(time);
    return text ? strcmp(text, "0") == 0 || strcmp(text, "0s") == 0
                : json_is_number(time) && json_number_value(time) == 0;
}

bool ig_ollama_sends_away(const ig_call *c, const json_t *body) {
    return !has_question(c, body) && is_nothing(ig_field(body, "keep_alive"));
}

void ig_ollama_say_done(ig_call *c, const char *model, const char *reason) {
    json_t *out = head_of(model, c->route->api == &ig_api_ollama_chat, NULL, NULL, NULL);
    bool ok = json_object_set_new(out, "done", json_true()) == 0 &&
              json_object_set_new(out, "done_reason", json_string(reason)) == 0;
    ig_reply_json(c, ig_json_if(ok, out));
}

/* Who asks for no answer wants the model to be there, which it is. */
static void say_loaded(ig_call *c, const json_t *body) {
    const char *name = json_string_value(ig_field(body, "model")),
               *own = name ? ig_ollama_own_name(c->server, name) : NULL;
    ig_ollama_say_done(c, own ? own : c->server->o->alias, "load");
}

void ig_route_ollama(ig_call *c) {
    const ig_api *api = c->route->api;
    json_t *body = ig_body_object(c);
    if (!body) return;
    bool is_chat = api == &ig_api_ollama_chat, is_raw = false;
    bool has_suffix = !is_chat && json_string_length(ig_field(body, "suffix")) > 0;
    bool ok = (is_chat || ig_field_bool(c, body, "raw", &is_raw)) && names_own(c, body);
    if (ok && !has_question(c, body))
        say_loaded(c, body);
    else if (ok)
        ig_answer(c, is_raw || has_suffix ? &ig_api_ollama_raw : api);
    json_decref(body);
}

/* As in "134.5M". */
static json_t *count_json(uint64_t n) {
    static const char units[] = " KMBT";
    double x = (double)n;
    size_t i = 0;
    for (; x >= 1000 && i + 2 < sizeof units; i++) x /= 1000;
    return i ? json_sprintf("%.1f%c", x, units[i]) : json_sprintf("%.0f", x);
}

static json_t *details_json(const ig_model_info *m) {
    return json_pack("{s:s, s:s, s:s, s:[s], s:o, s:s}", "parent_model", "", "format", "gguf", "family",
                     m->architecture, "families", m->architecture, "parameter_size", count_json(m->n_params),
                     "quantization_level", m->weight_type);
}

/* Clients take models with the same digest for one: 64 digits that another name or size makes others of (FNV-1a). */
static void digest_of(char out[65], const char *name, uint64_t bytes) {
    for (int part = 0; part < 4; part++) {
        uint64_t h = 0xcbf29ce484222325u + bytes + (uint64_t)part;
        for (const char *c = name; *c; c++) h = (h ^ (unsigned char)*c) * 0x100000001b3u;
        snprintf(out + 16 * part, 17, "%016llx", (unsigned long long)h);
    }
}

json_t *ig_ollama_model(const char *name, int64_t created, uint64_t bytes, json_t *details) {
    char digest[65];
    digest_of(digest, name, bytes);
    return json_pack("{s:s, s:s, s:o, s:I, s:s, s:o}", "name", name, "model", name, "modified_at",
                     ig_json_time((time_t)created), "size", (json_int_t)bytes, "digest", digest, "details", details);
}

/* Of Ollama's API, below which some clients ask for nothing. */
void ig_route_ollama_version(ig_call *c) { ig_reply_json(c, json_pack("{s:s}", "version", "0.12.0")); }

static json_t *model_json(const ig_server *s, const char *name) {
    return ig_ollama_model(name, s->created, s->info.weight_bytes, details_json(&s->info));
}

void ig_route_ollama_models(ig_call *c) {
    const ig_server *s = c->server;
    json_t *list = json_array();
    const char *name;
    bool ok = true;
    for (size_t i = 0; ok && (name = ig_server_name(s, i)); i++)
        ok = json_array_append_new(list, model_json(s, name)) == 0;
    list = ig_json_if(ok, list);
    ig_reply_json(c, list ? json_pack("{s:o}", "models", list) : NULL);
}

/* That it is loaded, as long as the server runs. */
void ig_route_ollama_loaded(ig_call *c) {
    json_t *model = model_json(c->server, c->server->o->alias);
    bool ok = json_object_set_new(model, "size_vram", json_integer(0)) == 0 &&
              json_object_set_new(model, "context_length", json_integer(ig_scheduler_ctx(c->server->scheduler))) == 0;
    model = ig_json_if(ok, model);
    ig_reply_json(c, model ? json_pack("{s:[o]}", "models", model) : NULL);
}

/* Of a directory that is not loaded there is no more than its name. */
static json_t *info_json(const ig_model_info *m, const char *name) {
    char length[160];
    json_t *out = json_pack("{s:s, s:s, s:I}", "general.architecture", m->architecture, "general.basename", name,
                            "general.parameter_count", (json_int_t)m->n_params);
    snprintf(length, sizeof length, "%.100s.context_length", m->architecture);
    bool ok = !*m->architecture || json_object_set_new(out, length, json_integer(m->n_ctx_train)) == 0;
    return ig_json_if(ok, out);
}

json_t *ig_ollama_shown(const ig_model_info *m, const char *name, bool has_infill) {
    const char *template = m->chat_template ? m->chat_template : "", *tools = m->chat_template ? "tools" : NULL,
               *thinking = ig_thought_marks_find(m->chat_template) ? "thinking" : NULL;
    json_t *can = json_pack("[s, s*, s*, s*]", "completion", tools, thinking, has_infill ? "insert" : NULL);
    return json_pack("{s:s, s:s, s:o, s:o, s:o, s:o}", "modelfile", "", "parameters", "", "template",
                     ig_text_string(template), "details", details_json(m), "model_info", info_json(m, name),
                     "capabilities", can);
}

void ig_route_ollama_show(ig_call *c) {
    const ig_server *s = c->server;
    json_t *body = ig_body_object(c);
    if (body && names_own(c, body)) ig_reply_json(c, ig_ollama_shown(&s->info, s->o->alias, s->infill.middle >= 0));
    json_decref(body);
}
