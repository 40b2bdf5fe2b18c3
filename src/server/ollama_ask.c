/* SPDX-License-Identifier: Apache-2.0
 *
 * Bodies of Ollama's /api/chat and /api/generate as those of chats, and of completions where no template is wanted.
 */
#define _GNU_SOURCE
#include "server/api.h"

#include <string.h>

/* ---- options ----------------------------------------------------------------------------------- */

/* Numbers of the sampler and the answer's length, which stand in an object of their own. */
bool ig_ollama_options(ig_translation *t, json_t *options) {
    static const struct {
        const char *name, *ours; /* NULL: of no use here */
    } known[] = {{"num_predict", "max_tokens"},
                 {"temperature", "temperature"},
                 {"top_k", "top_k"},
                 {"top_p", "top_p"},
                 {"min_p", "min_p"},
                 {"typical_p", "typical_p"},
                 {"repeat_last_n", "repeat_last_n"},
                 {"repeat_penalty", "repeat_penalty"},
                 {"presence_penalty", "presence_penalty"},
                 {"frequency_penalty", "frequency_penalty"},
                 {"seed", "seed"},
                 {"stop", "stop"},
                 {"penalize_newline", NULL},
                 {"num_ctx", NULL}, /* the server's context is what it is */
                 {"num_keep", NULL},
                 {"num_batch", NULL},
                 {"num_gpu", NULL},
                 {"main_gpu", NULL},
                 {"num_thread", NULL},
                 {"numa", NULL},
                 {"low_vram", NULL},
                 {"f16_kv", NULL},
                 {"vocab_only", NULL},
                 {"use_mmap", NULL},
                 {"use_mlock", NULL}};
    const char *name;
    json_t *value;
    if (options && !json_is_object(options)) return ig_refuse(t->call, 400, "options", "options must be an object");
    if (!ig_field(t->body, "max_tokens") && t->call->server->o->n_predict <= 0)
        ig_translation_set(t, t->out, "max_tokens", json_integer(-1));
    json_object_foreach(options, name, value) {
        size_t i = 0, n = sizeof known / sizeof *known;
        if (json_is_null(value)) continue;
        while (i < n && strcmp(known[i].name, name) != 0) i++;
        if (i == n) {
            ig_field_note(t->call->server, name); /* as Ollama passes over what it does not know */
            continue;
        }
        bool fills = known[i].ours && strcmp(name, "num_predict") == 0 && json_is_integer(value) &&
                     json_integer_value(value) <= 0;
        if (known[i].ours && !fills) t->ok &= json_object_set(t->out, known[i].ours, value) == 0;
    }
    return true;
}

/* "json", or a schema. */
static bool add_format(ig_translation *t, json_t *format) {
    const char *name = json_string_value(format);
    if (!format || (name && !*name)) return true;
    if (name && strcmp(name, "json") == 0)
        ig_translation_set(t, t->out, "response_format", json_pack("{s:s}", "type", "json_object"));
    else if (json_is_object(format))
        ig_translation_set(
            t, t->out, "response_format",
            json_pack("{s:s, s:{s:s, s:O}}", "type", "json_schema", "json_schema", "name", "answer", "schema", format));
    else
        return ig_refuse(t->call, 400, "format", "format must be \"json\" or a schema");
    return true;
}

/* Whether to think, or how much. */
static bool add_thinking(ig_translation *t, json_t *think) {
    if (!think) return true;
    if (json_is_string(think))
        t->ok &= json_object_set(t->out, "reasoning_effort", think) == 0;
    else if (json_is_boolean(think))
        ig_translation_think(t, json_is_true(think));
    else
        return ig_refuse(t->call, 400, "think", "think must be true, false or a level");
    return true;
}

const char *ig_ollama_own_name(const ig_server *s, const char *name) {
    static const char latest[] = ":latest";
    size_t n = strlen(name), n_latest = sizeof latest - 1;
    int own = ig_server_find(s, name, n);
    if (own < 0 && n >= n_latest && strcmp(name + n - n_latest, latest) == 0)
        own = ig_server_find(s, name, n - n_latest);
    return own < 0 ? NULL : ig_server_name(s, (size_t)own);
}

/* What is common to all three. A stream is what comes unless it is not wanted. */
static bool add_rest(ig_translation *t) {
    static const char *const absent[] = {"n", "best_of", "stream_options", "response_format", NULL},
                             *const theirs[] = {"options", "format", "think",    "keep_alive", "truncate", "shift",
                                                "raw",     "system", "template", "images",     "context",  NULL};
    const json_t *body = t->body;
    const ig_server *s = t->call->server;
    const char *name = json_string_value(ig_field(body, "model")), *own = name ? ig_ollama_own_name(s, name) : NULL;
    if (ig_translation_refuses(t, absent)) return false;
    if (json_string_length(ig_field(body, "template")))
        return ig_refuse(t->call, 400, "template",
                         "template is not supported: the model's own is used, or none with raw");
    if (json_array_size(ig_field(body, "images")))
        return ig_refuse(t->call, 400, "images", "pictures are not supported");
    if (json_array_size(ig_field(body, "context")))
        return ig_refuse(t->call, 400, "context", "context is not supported: /api/chat goes on with a conversation");
    ig_translation_drop(t, theirs);
    if (!ig_field(body, "stream")) ig_translation_set(t, t->out, "stream", json_true());
    if (own) ig_translation_set(t, t->out, "model", json_string(own));
    return ig_ollama_options(t, ig_field(body, "options")) && add_format(t, ig_field(body, "format")) &&
           add_thinking(t, ig_field(body, "think"));
}

/* ---- messages ---------------------------------------------------------------------------------- */

static json_t *calls_of(ig_translation *t, const json_t *list) {
    json_t *calls = json_array(), *call;
    size_t i;
    json_array_foreach(list, i, call) {
        const json_t *function = ig_field(call, "function");
        ig_translation_append(t, calls,
                              json_pack("{s:s, s:{s:O*, s:O*}}", "type", "function", "function", "name",
                                        ig_field(function, "name"), "arguments", ig_field(function, "arguments")));
    }
    return calls;
}

static bool add_message(ig_translation *t, const json_t *m, bool is_last) {
    json_t *role = ig_field(m, "role"), *content = ig_field(m, "content"), *calls = ig_field(m, "tool_calls");
    const char *name = json_string_value(role);
    if (!name) return ig_refuse(t->call, 400, "messages", "messages: each is an object with a role");
    if (json_array_size(ig_field(m, "images")))
        return ig_refuse(t->call, 400, "messages", "messages: pictures are not supported");
    json_t *out =
        json_pack("{s:O, s:o, s:O*, s:O*}", "role", role, "content", content ? json_incref(content) : json_string(""),
                  "reasoning_content", ig_field(m, "thinking"), "name", ig_field(m, "tool_name"));
    if (json_array_size(calls)) ig_translation_set(t, out, "tool_calls", calls_of(t, calls));
    ig_translation_append(t, t->messages, out);
    if (!is_last || strcmp(name, "assistant") != 0 || json_array_size(calls)) return true;
    ig_translation_set(t, t->out, "continue_final_message", json_true()); /* an answer that is gone on with */
    ig_translation_set(t, t->out, "add_generation_prompt", json_false());
    return true;
}

static bool translate_chat(ig_translation *t) {
    const json_t *list = ig_field(t->body, "messages"), *m;
    size_t i;
    if (!add_rest(t)) return false;
    if (!json_is_array(list)) return ig_refuse(t->call, 400, "messages", "messages must be a list");
    json_array_foreach(list, i, m) if (!add_message(t, m, i + 1 == json_array_size(list))) return false;
    return true;
}

static bool translate_prompt(ig_translation *t) {
    json_t *system = ig_field(t->body, "system"), *prompt = ig_field(t->body, "prompt");
    if (!add_rest(t)) return false;
    if (!json_is_string(prompt)) return ig_refuse(t->call, 400, "prompt", "prompt must be a string");
    json_object_del(t->out, "prompt");
    if (json_string_length(system))
        ig_translation_append(t, t->messages, json_pack("{s:s, s:O}", "role", "system", "content", system));
    ig_translation_append(t, t->messages, json_pack("{s:s, s:O}", "role", "user", "content", prompt));
    return true;
}

/* Scores of completions are asked for in another way: there are none here. */
static bool translate_raw(ig_translation *t) {
    static const char *const scores[] = {"logprobs", "top_logprobs", NULL};
    for (const char *const *name = scores; *name; name++) {
        const json_t *v = ig_field(t->body, *name);
        if (v && !json_is_false(v) && !(json_is_integer(v) && json_integer_value(v) == 0))
            return ig_refuse(t->call, 400, *name, "%s is not supported with raw", *name);
    }
    ig_translation_drop(t, scores);
    return add_rest(t);
}

json_t *ig_ollama_chat_body(ig_call *c, const json_t *body) { return ig_translate(c, body, translate_chat); }
json_t *ig_ollama_prompt_body(ig_call *c, const json_t *body) { return ig_translate(c, body, translate_prompt); }

json_t *ig_ollama_raw_body(ig_call *c, const json_t *body) {
    json_t *out = ig_translate(c, body, translate_raw);
    if (out) json_object_del(out, "messages");
    return out;
}
