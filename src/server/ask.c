/* SPDX-License-Identifier: Apache-2.0
 *
 * The fields of a request for answers, as options of the scheduler's requests.
 */
#define _GNU_SOURCE
#include "server/api.h"

#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

enum { STOPS_MAX = 64, STOP_BYTES_MAX = 256, BIASES_MAX = 1024, N_MAX = 16, SALT_BYTES_MAX = 1024 };

static const char *const known_by_all[] = {"model",
                                           "stream",
                                           "stream_options",
                                           "n_predict",
                                           "max_tokens",
                                           "max_completion_tokens",
                                           "n",
                                           "best_of",
                                           "stop",
                                           "seed",
                                           "temperature",
                                           "top_p",
                                           "top_k",
                                           "min_p",
                                           "typical_p",
                                           "top_n_sigma",
                                           "xtc_probability",
                                           "xtc_threshold",
                                           "dynatemp_range",
                                           "dynatemp_exponent",
                                           "dry_multiplier",
                                           "dry_base",
                                           "dry_allowed_length",
                                           "dry_penalty_last_n",
                                           "dry_sequence_breakers",
                                           "repeat_penalty",
                                           "repetition_penalty",
                                           "repeat_last_n",
                                           "presence_penalty",
                                           "frequency_penalty",
                                           "logit_bias",
                                           "logprobs",
                                           "return_tokens_as_token_ids",
                                           "return_token_ids",
                                           "return_tokens",
                                           "skip_special_tokens",
                                           "timings_per_token",
                                           "return_progress",
                                           "ignore_eos",
                                           "min_tokens",
                                           "stop_token_ids",
                                           "include_stop_str_in_output",
                                           "cache_prompt",
                                           "cache_salt",
                                           "lora",
                                           "infinigen",
                                           "response_format",
                                           "grammar",
                                           "json_schema",
                                           "guided_grammar",
                                           "guided_json",
                                           "guided_json_object",
                                           "guided_choice",
                                           "guided_regex",
                                           "regex",
                                           "structured_outputs",
                                           "modalities",
                                           "prediction",
                                           NULL};

/* ---- sampling ----------------------------------------------------------------------------- */

static bool read_float(ig_exchange *x, const char *name, double min, double max, float *out) {
    double v = (double)*out;
    bool ok = ig_field_number(x->call, x->body, name, min, max, &v);
    *out = (float)v;
    return ok;
}

static bool read_whole(ig_exchange *x, const char *name, int64_t min, int64_t max, int *out) {
    int64_t v = *out;
    bool ok = ig_field_int(x->call, x->body, name, min, max, &v);
    *out = (int)v;
    return ok;
}

static bool read_seed(ig_exchange *x) {
    int64_t seed = -1;
    uint32_t random = (uint32_t)time(NULL);
    if (!ig_field_int(x->call, x->body, "seed", INT64_MIN, INT64_MAX, &seed)) return false;
    if (seed == -1 && getrandom(&random, sizeof random, GRND_NONBLOCK) != sizeof random) random ^= (uint32_t)x->created;
    x->seed = seed == -1 ? random : (uint64_t)seed;
    return true;
}

/* DRY, as llama-server calls its numbers. */
static bool read_dry(ig_exchange *x, ig_sampler_options *s) {
    static const char name[] = "dry_sequence_breakers";
    const json_t *all = ig_field(x->body, name);
    size_t i, n = json_array_size(all);
    json_t *text;
    if (!read_float(x, "dry_multiplier", 0, 1000, &s->dry_multiplier) ||
        !read_float(x, "dry_base", 1, 1000, &s->dry_base) ||
        !read_whole(x, "dry_allowed_length", 1, INT_MAX, &s->dry_allowed_length) ||
        !read_whole(x, "dry_penalty_last_n", -1, INT_MAX, &s->dry_last_n))
        return false;
    if (!all) return true;
    if (!json_is_array(all) || n > STOPS_MAX)
        return ig_refuse(x->call, 400, name, "%s must be a list of at most %d strings", name, STOPS_MAX);
    x->dry_breakers = calloc(STOPS_MAX, sizeof *x->dry_breakers);
    if (!x->dry_breakers) return ig_refuse(x->call, 500, NULL, "out of memory for %s", name);
    json_array_foreach(all, i, text) {
        size_t size = json_string_length(text);
        if (!size || size > IG_DRY_BREAKER_MAX)
            return ig_refuse(x->call, 400, name, "%s: all must be strings of 1 to %d bytes", name, IG_DRY_BREAKER_MAX);
        x->dry_breakers[i] = json_string_value(text);
    }
    s->dry_breakers = x->dry_breakers;
    s->n_dry_breakers = n;
    return true;
}

static bool read_sampler(ig_exchange *x) {
    ig_sampler_options *s = &x->ask.sampler;
    *s = x->api->samples_as_run ? x->call->server->o->native_sampler : x->call->server->o->sampler;
    bool ok = read_float(x, "temperature", 0, 1000, &s->temperature) && read_float(x, "top_p", 0, 1, &s->top_p) &&
              read_whole(x, "top_k", -1, INT_MAX, &s->top_k) && read_float(x, "min_p", 0, 1, &s->min_p) &&
              read_float(x, "typical_p", 0.001, 1, &s->typical_p) &&
              read_float(x, "top_n_sigma", -1, 1000, &s->top_n_sigma) &&
              read_float(x, "xtc_probability", 0, 1, &s->xtc_probability) &&
              read_float(x, "xtc_threshold", 0, 1, &s->xtc_threshold) &&
              read_float(x, "repetition_penalty", 0.01, 100, &s->repeat_penalty) &&
              read_float(x, "repeat_penalty", 0.01, 100, &s->repeat_penalty) &&
              read_whole(x, "repeat_last_n", -1, INT_MAX, &s->repeat_last_n) &&
              read_float(x, "presence_penalty", -1000, 1000, &s->presence_penalty) &&
              read_float(x, "frequency_penalty", -1000, 1000, &s->frequency_penalty) &&
              read_float(x, "dynatemp_range", 0, 1000, &s->dynatemp_range) &&
              read_float(x, "dynatemp_exponent", 0, 1000, &s->dynatemp_exponent) && read_dry(x, s) && read_seed(x);
    if (s->top_k < 0) s->top_k = 0;             /* -1 stands for all as well */
    if (s->top_p < FLT_MIN) s->top_p = FLT_MIN; /* the likeliest one is always left */
    return ok;
}

/* One more. Lists may have false in place of a number: never. */
static bool add_bias(ig_exchange *x, const char *name, long id, const json_t *value, bool may_be_false) {
    double bias = may_be_false && json_is_false(value) ? -100 : json_is_number(value) ? json_number_value(value) : NAN;
    int n_vocab = x->call->server->info.n_vocab;
    if (id < 0 || id >= n_vocab || !(fabs(bias) <= 100))
        return ig_refuse(x->call, 400, "logit_bias",
                         "logit_bias: %.40s must be a token of the vocabulary of %d, with a number from -100 to 100",
                         name, n_vocab);
    if (x->ask.sampler.n_logit_bias == BIASES_MAX)
        return ig_refuse(x->call, 400, "logit_bias", "logit_bias has more than %d tokens", BIASES_MAX);
    x->bias[x->ask.sampler.n_logit_bias++] = (ig_logit_bias){(int32_t)id, bias <= -100 ? -INFINITY : (float)bias};
    return true;
}

/* One of a list: a token, or a text, of which all tokens are meant, and the number. */
static bool add_pair(ig_exchange *x, const char *name, const json_t *pair) {
    const json_t *token = json_array_get(pair, 0), *value = json_array_get(pair, 1);
    int64_t id;
    if (!ig_json_whole(token, &id) || id > INT_MAX) id = -1;
    if (!json_is_string(token)) return add_bias(x, name, (long)id, value, true);
    ig_token_list all = {0};
    bool are_more, ok = ig_tokens_up_to(x->call, "logit_bias", json_string_value(token), json_string_length(token), 0,
                                        BIASES_MAX, &all, &are_more);
    for (size_t i = 0; ok && i < all.n; i++) ok = add_bias(x, name, all.v[i], value, true);
    free(all.v);
    if (ok && are_more)
        return ig_refuse(x->call, 400, "logit_bias", "logit_bias: %s has more than %d tokens", name, BIASES_MAX);
    if (ok && !all.n) return ig_refuse(x->call, 400, "logit_bias", "logit_bias: %s has no tokens", name);
    return ok;
}

/* OpenAI's object of tokens, or llama-server's list of pairs. */
static bool read_bias(ig_exchange *x) {
    size_t i;
    char text[48];
    const char *name;
    json_t *value, *all = ig_field(x->body, "logit_bias");
    if (!all) return true;
    size_t n = json_is_array(all) ? json_array_size(all) : json_object_size(all);
    if ((!json_is_object(all) && !json_is_array(all)) || n > BIASES_MAX)
        return ig_refuse(x->call, 400, "logit_bias", "logit_bias must be an object or a list of at most %d tokens",
                         BIASES_MAX);
    x->bias = calloc(BIASES_MAX, sizeof *x->bias);
    if (!x->bias) return ig_refuse(x->call, 500, NULL, "out of memory for logit_bias");
    x->ask.sampler.logit_bias = x->bias;
    x->ask.sampler.n_logit_bias = 0;
    json_array_foreach(all, i, value) {
        snprintf(text, sizeof text, "item %zu", i);
        if (!add_pair(x, text, value)) return false;
    }
    json_object_foreach(all, name, value) {
        char *end;
        long id = strtol(name, &end, 10);
        snprintf(text, sizeof text, "'%.32s'", name);
        if (!add_bias(x, text, *end || end == name ? -1 : id, value, false)) return false;
    }
    return true;
}

/* Some clients send empty ones. */
static bool add_stop(ig_exchange *x, const json_t *text) {
    size_t n = json_string_length(text);
    if (!json_is_string(text)) return ig_refuse(x->call, 400, "stop", "stop: all of the list must be strings");
    if (n > STOP_BYTES_MAX)
        return ig_refuse(x->call, 400, "stop", "stop: a stop string has at most %d bytes", STOP_BYTES_MAX);
    if (n) x->stops[x->ask.generate.n_stops++] = json_string_value(text);
    return true;
}

static bool read_stops(ig_exchange *x) {
    const json_t *v = ig_field(x->body, "stop");
    size_t i, n = json_array_size(v);
    json_t *text;
    if (!v) return true;
    x->stops = calloc(STOPS_MAX, sizeof *x->stops);
    if (!x->stops) return ig_refuse(x->call, 500, NULL, "out of memory for stop strings");
    x->ask.generate.stops = x->stops;
    if (json_is_string(v)) return add_stop(x, v);
    if (!json_is_array(v) || n > STOPS_MAX)
        return ig_refuse(x->call, 400, "stop", "stop must be a string or a list of at most %d strings", STOPS_MAX);
    json_array_foreach(v, i, text) if (!add_stop(x, text)) return false;
    return true;
}

/* Other tokens that end an answer, and how long none may. */
static bool read_ends(ig_exchange *x) {
    ig_generate_options *g = &x->ask.generate;
    const json_t *v = ig_field(x->body, "stop_token_ids");
    size_t i, n = json_array_size(v);
    json_t *id;
    if (!ig_field_bool(x->call, x->body, "ignore_eos", &g->ignore_end) ||
        !ig_field_bool(x->call, x->body, "include_stop_str_in_output", &g->shows_stop) ||
        !read_whole(x, "min_tokens", 0, g->n_predict >= 0 ? g->n_predict : INT_MAX, &g->n_least))
        return false;
    if (!v) return true;
    if (!json_is_array(v) || n > BIASES_MAX)
        return ig_refuse(x->call, 400, "stop_token_ids", "stop_token_ids must be a list of at most %d tokens",
                         BIASES_MAX);
    x->stop_ids = calloc(n + 1, sizeof *x->stop_ids);
    if (!x->stop_ids) return ig_refuse(x->call, 500, NULL, "out of memory for stop_token_ids");
    json_array_foreach(v, i, id) {
        if (!ig_json_token(id, INT_MAX, &x->stop_ids[i]))
            return ig_refuse(x->call, 400, "stop_token_ids", "stop_token_ids: item %zu is no token", i);
    }
    g->stop_ids = x->stop_ids;
    g->n_stop_ids = n;
    return true;
}

/* What the answer is expected to be, as OpenAI's clients say it. No more of it than the context holds
 * is looked at. */
static bool read_prediction(ig_exchange *x) {
    const json_t *v = ig_field(x->body, "prediction");
    ig_generate_options *g = &x->ask.generate;
    ig_token_list expected = {0};
    if (!v) return true;
    const char *type = json_string_value(ig_field(v, "type"));
    if (!json_is_object(v) || !type || strcmp(type, "content") != 0)
        return ig_refuse(x->call, 400, "prediction", "prediction must be an object of type \"content\"");
    json_t *text = ig_content_text(x->call, ig_field(v, "content"), false, "prediction.content");
    bool ok = text && ig_tokens_of_part(x->call, "prediction", json_string_value(text), json_string_length(text),
                                        (size_t)ig_scheduler_ctx(x->call->server->scheduler), false, &expected);
    json_decref(text);
    g->expected = x->expected = expected.v;
    g->n_expected = expected.n;
    return ok;
}

/* ---- what is not there ------------------------------------------------------------------------ */

static bool is_text(const json_t *v, const char *text) {
    const char *have = json_string_value(v);
    return have && strcmp(have, text) == 0;
}

/* Those whose value that asks for nothing is more than a word or a number; the others are in absent.c. */
static bool check_absent(ig_exchange *x) {
    ig_call *c = x->call;
    json_t *v;
    int64_t n;
    if ((v = ig_field(x->body, "modalities")) && (json_array_size(v) != 1 || !is_text(json_array_get(v, 0), "text")))
        return ig_refuse(c, 400, "modalities", "modalities other than text are not supported");
    if ((v = ig_field(x->body, "best_of")) && (!ig_json_whole(v, &n) || n != x->n))
        return ig_refuse(c, 400, "best_of", "best_of other than n is not supported");
    return true;
}

/* ---- the KV cache ------------------------------------------------------------------------------- */

static bool read_policy(ig_exchange *x, const json_t *own) {
    const ig_policy_info *policy;
    const char *name = NULL;
    if (!ig_field_text(x->call, own, "policy", &name)) return false;
    if (!name) return true;
    for (size_t i = 0; (policy = ig_cache_policy(i)); i++)
        if (strcmp(policy->name, name) == 0) {
            x->cache.policy = policy->name;
            x->cache.sketch = x->call->server->o->sketches ? x->call->server->o->sketches[i] : NULL;
            x->cache.budget = x->cache.budget_entries = 0;
            return true;
        }
    return ig_refuse(x->call, 400, "infinigen.policy", "infinigen.policy: there is no '%.32s'", name);
}

/* Up to 1 a share; above a number. */
static bool read_budget(ig_exchange *x, const json_t *own) {
    double budget = 0;
    if (!ig_field_number(x->call, own, "budget", 0.0001, IG_CTX_MAX, &budget)) return false;
    if (budget == 0) return true;
    if (budget > 1 && budget != floor(budget))
        return ig_refuse(x->call, 400, "infinigen.budget",
                         "infinigen.budget must be a share up to 1, or a whole number");
    x->cache.budget = budget > 1 ? 0 : budget;
    x->cache.budget_entries = budget > 1 ? (int)budget : 0;
    return true;
}

static bool read_cache(ig_exchange *x) {
    static const char *const known[] = {"policy",  "budget",   "mass",           "locality", "inertia",
                                        "n_sinks", "n_recent", "n_dense_layers", NULL};
    const json_t *own = ig_field(x->body, "infinigen");
    ig_cache_options *k = &x->cache;
    int64_t sinks = k->n_sinks, recent = k->n_recent, dense = k->n_dense_layers;
    bool takes_earlier = true;
    x->ask.cache = k;
    if (!ig_field_bool(x->call, x->body, "cache_prompt", &takes_earlier)) return false;
    k->no_share |= !takes_earlier;
    if (!ig_field_text(x->call, x->body, "cache_salt", &k->salt)) return false;
    if (k->salt && strlen(k->salt) > SALT_BYTES_MAX)
        return ig_refuse(x->call, 400, "cache_salt", "cache_salt has at most %d bytes", SALT_BYTES_MAX);
    if (!own) return true;
    if (!json_is_object(own)) return ig_refuse(x->call, 400, "infinigen", "infinigen must be an object");
    bool ok = ig_field_only(x->call, own, "infinigen.", known) && read_policy(x, own) && read_budget(x, own) &&
              ig_field_number(x->call, own, "mass", 0.001, 1, &k->mass) &&
              ig_field_number(x->call, own, "locality", 0, 1, &k->locality) &&
              ig_field_number(x->call, own, "inertia", 0, 1000, &k->inertia) &&
              ig_field_int(x->call, own, "n_sinks", 0, IG_CTX_MAX, &sinks) &&
              ig_field_int(x->call, own, "n_recent", 1, IG_CTX_MAX, &recent) &&
              ig_field_int(x->call, own, "n_dense_layers", -1, 100000, &dense);
    if (!ok && strncmp(x->call->refusal.field, "infinigen", 9) != 0) {
        char name[64];
        snprintf(name, sizeof name, "%.50s", x->call->refusal.field);
        snprintf(x->call->refusal.field, sizeof x->call->refusal.field, "infinigen.%s", name);
    }
    k->n_sinks = (int)sinks;
    k->n_recent = (int)recent;
    k->n_dense_layers = (int)dense;
    return ok;
}

/* ---- what comes back -------------------------------------------------------------------------------- */

static bool read_logprobs(ig_exchange *x) {
    int64_t n = -1;
    x->n_top = -1;
    if (!x->api->is_chat) {
        const json_t *v = ig_field(x->body, "logprobs"); /* false, as some send it, is none */
        if (!json_is_false(v) && !ig_field_int(x->call, x->body, "logprobs", 0, IG_REQUEST_TOP_MAX, &n)) return false;
    } else {
        bool wanted = false;
        int64_t top = 0;
        if (!ig_field_bool(x->call, x->body, "logprobs", &wanted) ||
            !ig_field_int(x->call, x->body, "top_logprobs", 0, IG_REQUEST_TOP_MAX, &top))
            return false;
        if (top && !wanted) return ig_refuse(x->call, 400, "top_logprobs", "top_logprobs wants logprobs to be true");
        if (wanted) n = top;
    }
    if (x->api->is_native) {
        if (n >= 0) return ig_refuse(x->call, 400, "logprobs", "logprobs: not supported here, but n_probs");
        if (!ig_field_int(x->call, x->body, "n_probs", 0, IG_REQUEST_TOP_MAX, &n)) return false;
        if (n == 0) n = -1;
    }
    x->n_top = (int)n;
    x->ask.has_scores = n >= 0;
    x->ask.n_top = n > 0 ? (int)n : 0;
    return true;
}

/* As vLLM and llama-server ask for them. */
static bool read_tokens(ig_exchange *x) {
    bool skips_special = true;
    bool ok = ig_field_bool(x->call, x->body, "return_tokens", &x->returns_ids) &&
              ig_field_bool(x->call, x->body, "return_token_ids", &x->returns_ids) &&
              ig_field_bool(x->call, x->body, "skip_special_tokens", &skips_special);
    x->shows_special = x->ask.generate.special = !skips_special;
    return ok;
}

static bool read_stream(ig_exchange *x) {
    static const char *const known[] = {"include_usage", "continuous_usage_stats", NULL};
    const json_t *o = ig_field(x->body, "stream_options");
    if (!ig_field_bool(x->call, x->body, "stream", &x->is_stream) ||
        !ig_field_bool(x->call, x->body, "timings_per_token", &x->has_running_timings) ||
        !ig_field_bool(x->call, x->body, "return_progress", &x->has_progress))
        return false;
    if (!o) return true;
    if (!json_is_object(o)) return ig_refuse(x->call, 400, "stream_options", "stream_options must be an object");
    if (!x->is_stream) return ig_refuse(x->call, 400, "stream_options", "stream_options wants stream to be true");
    return ig_field_others(x->call, o, "stream_options.", known) &&
           ig_field_bool(x->call, o, "include_usage", &x->has_usage) &&
           ig_field_bool(x->call, o, "continuous_usage_stats", &x->has_running_usage);
}

static bool read_length(ig_exchange *x) {
    static const char *const names[] = {"n_predict", "max_tokens", "max_completion_tokens"}; /* the last one decides */
    bool is_native = x->api->is_native;
    int64_t own = x->api->is_chat || is_native ? -1 : 16, most_ms = 0; /* -1: to the end of the context */
    int64_t most = x->call->server->o->n_predict > 0 ? x->call->server->o->n_predict : own;
    for (int i = 0; i < 3; i++)
        if (!ig_field_int(x->call, x->body, names[i], -1, INT_MAX, &most)) return false;
    if (is_native && !ig_field_int(x->call, x->body, "t_max_predict_ms", -1, INT_MAX, &most_ms)) return false;
    x->most_seconds = most_ms > 0 ? (double)most_ms / 1e3 : 0;
    x->only_reads = most == 0 && !x->is_echo;
    most += x->only_reads;
    x->ask.generate.n_predict = (int)most;
    return true;
}

/* Whether thoughts are told apart from the answer. */
static bool read_thoughts(ig_exchange *x) {
    static const char *const formats[] = {"none", "auto", "deepseek", NULL}; /* as llama.cpp has them */
    const char *format = x->call->server->o->shows_thoughts ? "none" : "auto";
    size_t i = 0;
    if (!ig_field_text(x->call, x->body, "reasoning_format", &format)) return false;
    while (formats[i] && strcmp(format, formats[i]) != 0) i++;
    if (!formats[i])
        return ig_refuse(x->call, 400, "reasoning_format", "reasoning_format must be none, auto or deepseek");
    const ig_thought_marks *marks = x->call->server->thoughts;
    x->thoughts = i ? marks : NULL;
    x->has_channels = marks && marks->channels;
    return true;
}

static bool read_chat(ig_exchange *x) {
    return !x->api->is_chat || (ig_tools_read(x->call, x->body, &x->tools) && read_thoughts(x));
}

static bool check_known(ig_exchange *x) {
    const char *all[80];
    size_t n = 0;
    const char *const *const lists[] = {known_by_all, x->api->fields};
    for (int l = 0; l < 2; l++)
        for (const char *const *name = lists[l]; *name; name++) all[n++] = *name;
    all[n] = NULL;
    return ig_field_others(x->call, x->body, "", all);
}

bool ig_exchange_read(ig_exchange *x) {
    int64_t n = 1;
    x->ask = ig_request_defaults();
    x->cache = x->call->server->o->scheduler.session.cache;
    x->ask.generate.on_text = NULL;
    if (!check_known(x) || !ig_field_model(x->call, x->body) || !ig_exchange_read_adapters(x) ||
        !ig_field_int(x->call, x->body, "n", 1, N_MAX, &n))
        return false;
    x->n = (int)n;
    if (x->call->server->info.ranks && !x->api->wants_states)
        return ig_refuse(x->call, 400, "model", "this model ranks texts, and writes none: POST /v1/rerank");
    if (x->api->is_native && n != 1) return ig_refuse(x->call, 400, "n", "n other than 1 is not supported here");
    return check_absent(x) &&
           (x->api->is_chat || x->api->is_native || ig_field_bool(x->call, x->body, "echo", &x->is_echo)) &&
           ig_field_bool(x->call, x->body, "return_tokens_as_token_ids", &x->names_tokens) && read_tokens(x) &&
           read_length(x) && read_ends(x) && read_prediction(x) && read_stream(x) && read_sampler(x) && read_bias(x) &&
           read_stops(x) && read_logprobs(x) && read_cache(x) && ig_exchange_read_form(x) && read_chat(x);
}
