/* SPDX-License-Identifier: Apache-2.0
 *
 * Embeddings, as OpenAI and Ollama have them: the states of a text's tokens as one vector of length 1. Their requests
 * become those of completions, which are answered with states instead of a text.
 */
#include "server/api.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- requests -------------------------------------------------------------------------------- */

/* What requests of any API may have. */
#define EXTRA "lora", "cache_salt", "infinigen"

static const char *const formats[] = {"float", "base64", NULL};

/* What both have: which texts, in a field of this name, and by which model. */
static bool add_texts(ig_translation *t, const char *field, const char *const *known) {
    static const char *const kept[] = {EXTRA, NULL};
    json_t *texts = ig_field(t->body, field), *model = ig_field(t->body, "model");
    const char *name = json_string_value(model),
               *own = name && t->call->route->api->are_lines ? ig_ollama_own_name(t->call->server, name) : NULL;
    int64_t dimensions;
    if (t->call->server->o->pooling == IG_POOLING_OTHER)
        return ig_refuse(t->call, 400, field,
                         "how this model makes embeddings is not supported here: --pooling, when "
                         "the server is started, may say otherwise");
    if (!ig_field_others(t->call, t->body, "", known) ||
        !ig_field_int(t->call, t->body, "dimensions", 1, t->call->server->info.d_model, &dimensions))
        return false;
    if (!json_is_string(texts) && json_array_size(texts) == 0)
        return ig_refuse(t->call, 400, field, "%s must be a string, a list of strings, or tokens", field);
    json_object_clear(t->out);
    ig_translation_set(t, t->out, "prompt", json_incref(texts));
    if (model) ig_translation_set(t, t->out, "model", own ? json_string(own) : json_incref(model));
    for (const char *const *k = kept; *k; k++)
        if (ig_field(t->body, *k)) ig_translation_set(t, t->out, *k, json_incref(ig_field(t->body, *k)));
    return true;
}

static bool translate(ig_translation *t) {
    static const char *const known[] = {"input", "model", "encoding_format", "dimensions", "user", EXTRA, NULL};
    const char *format = formats[0], *const *f = formats;
    if (!ig_field_text(t->call, t->body, "encoding_format", &format)) return false;
    while (*f && strcmp(*f, format) != 0) f++;
    if (!*f) return ig_refuse(t->call, 400, "encoding_format", "encoding_format must be float or base64");
    return add_texts(t, "input", known);
}

static bool translate_ollama(ig_translation *t) {
    static const char *const known[] = {"input",      "model",    "dimensions", "options",
                                        "keep_alive", "truncate", EXTRA,        NULL};
    bool is_cut; /* what is too long is refused in any case */
    return ig_field_bool(t->call, t->body, "truncate", &is_cut) && ig_ollama_options(t, ig_field(t->body, "options")) &&
           add_texts(t, "input", known);
}

static bool translate_ollama_one(ig_translation *t) {
    static const char *const known[] = {"prompt", "model", "options", "keep_alive", EXTRA, NULL};
    if (!json_is_string(ig_field(t->body, "prompt")))
        return ig_refuse(t->call, 400, "prompt", "prompt must be a string");
    return ig_ollama_options(t, ig_field(t->body, "options")) && add_texts(t, "prompt", known);
}

static json_t *body(ig_call *c, const json_t *body) { return ig_translate(c, body, translate); }
static json_t *ollama_body(ig_call *c, const json_t *body) { return ig_translate(c, body, translate_ollama); }
static json_t *ollama_one_body(ig_call *c, const json_t *body) { return ig_translate(c, body, translate_ollama_one); }

/* ---- states to a vector ---------------------------------------------------------------------- */

bool ig_choice_pool(void *user, int first, int n_rows, const float *states) {
    ig_choice *k = user;
    const ig_server *s = k->exchange->call->server;
    int d = s->info.d_model;
    (void)first;
    for (int r = s->o->pooling == IG_POOLING_MEAN ? 0 : n_rows - 1; r < n_rows; r++)
        for (int i = 0; i < d; i++) {
            float x = states[(size_t)r * (size_t)d + (size_t)i];
            k->vector[i] = s->o->pooling == IG_POOLING_MEAN ? k->vector[i] + x : x;
        }
    return false;
}

/* Its first numbers, if not all are wanted, with length 1. */
static int normalise(const ig_choice *k) {
    int64_t n = k->exchange->call->server->info.d_model;
    double squares = 0;
    ig_field_int(k->exchange->call, k->exchange->given, "dimensions", 1, n, &n);
    for (int i = 0; i < n; i++) squares += (double)k->vector[i] * (double)k->vector[i];
    for (int i = 0; i < n && squares > 0; i++) k->vector[i] = (float)((double)k->vector[i] / sqrt(squares));
    return (int)n;
}

/* ---- replies --------------------------------------------------------------------------------- */

static json_t *numbers(const float *v, int n) {
    json_t *list = json_array();
    bool ok = list != NULL;
    for (int i = 0; i < n && ok; i++) ok = json_array_append_new(list, json_real((double)v[i])) == 0;
    return ig_json_if(ok, list);
}

/* Of the floats' bytes, the lowest of each first. */
static json_t *base64(const float *v, int n) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t n_bytes = (size_t)n * sizeof *v, at = 0;
    const unsigned char *bytes = (const void *)v;
    char *text = malloc((n_bytes + 2) / 3 * 4 + 1);
    if (!text) return NULL;
    for (size_t i = 0; i < n_bytes; i += 3) {
        size_t left = n_bytes - i;
        unsigned group = (unsigned)bytes[i] << 16 | (left > 1 ? (unsigned)bytes[i + 1] << 8 : 0) |
                         (left > 2 ? (unsigned)bytes[i + 2] : 0);
        for (unsigned d = 0; d < 4; d++) text[at++] = d > left ? '=' : digits[group >> (18 - 6 * d) & 63];
    }
    json_t *out = json_stringn(text, at);
    free(text);
    return out;
}

static json_t *vector_json(const ig_choice *k, bool is_base64) {
    int n = normalise(k);
    return is_base64 ? base64(k->vector, n) : numbers(k->vector, n);
}

static json_int_t count_tokens(const ig_exchange *x) {
    json_int_t n = 0;
    for (size_t i = 0; i < x->n_prompts; i++) n += x->prompts[i].n_ids;
    return n;
}

static json_t *reply(ig_exchange *x) {
    const char *format = json_string_value(ig_field(x->given, "encoding_format"));
    json_t *list = json_array();
    bool ok = list != NULL, is_base64 = format && strcmp(format, "base64") == 0;
    for (size_t i = 0; i < x->n_choices && ok; i++)
        ok = json_array_append_new(list, json_pack("{s:s, s:I, s:o}", "object", "embedding", "index", (json_int_t)i,
                                                   "embedding", vector_json(&x->choices[i], is_base64))) == 0;
    json_int_t n = count_tokens(x);
    list = ig_json_if(ok, list);
    return list ? json_pack("{s:s, s:o, s:s, s:{s:I, s:I}}", "object", "list", "data", list, "model", x->model_name,
                            "usage", "prompt_tokens", n, "total_tokens", n)
                : NULL;
}

static json_t *ollama_reply(ig_exchange *x) {
    json_t *list = json_array();
    bool ok = list != NULL;
    double seconds = 0;
    for (size_t i = 0; i < x->n_choices && ok; i++) {
        ok = json_array_append_new(list, vector_json(&x->choices[i], false)) == 0;
        seconds = fmax(seconds, x->choices[i].result.seconds);
    }
    list = ig_json_if(ok, list);
    return list ? json_pack("{s:s, s:o, s:I, s:i, s:I}", "model", x->model_name, "embeddings", list, "total_duration",
                            (json_int_t)(seconds * 1e9), "load_duration", 0, "prompt_eval_count", count_tokens(x))
                : NULL;
}

static json_t *ollama_one_reply(ig_exchange *x) {
    json_t *vector = vector_json(&x->choices[0], false);
    return vector ? json_pack("{s:o}", "embedding", vector) : NULL;
}

static const char *const fields[] = {"prompt", NULL};

#define OF_STATES \
    .prefix = "embd-", .object = "list", .fields = fields, .read = ig_exchange_read_prompts, .wants_states = true
const ig_api ig_api_embeddings = {OF_STATES, .texts = "input", .translate = body, .reply = reply},
             ig_api_ollama_embed = {OF_STATES,
                                    .texts = "input",
                                    .translate = ollama_body,
                                    .reply = ollama_reply,
                                    .refusal = ig_ollama_refusal,
                                    .are_lines = true},
             ig_api_ollama_embeddings = {OF_STATES,
                                         .texts = "prompt",
                                         .translate = ollama_one_body,
                                         .reply = ollama_one_reply,
                                         .refusal = ig_ollama_refusal,
                                         .are_lines = true};

/* Of nothing there are none, which Ollama's clients ask to have a model loaded. */
void ig_route_ollama_embed(ig_call *c) {
    json_t *body = ig_body_object(c), *texts = ig_field(body, "input");
    if (!body) return;
    const char *name = json_string_value(ig_field(body, "model")), *own = c->server->o->alias;
    bool is_empty =
        json_is_string(texts) ? json_string_length(texts) == 0 : json_is_array(texts) && json_array_size(texts) == 0;
    if (is_empty && (!name || c->server->o->any_model || ig_ollama_own_name(c->server, name)))
        ig_reply_json(c, json_pack("{s:s, s:[]}", "model", own, "embeddings"));
    else
        ig_answer(c, c->route->api);
    json_decref(body);
}
