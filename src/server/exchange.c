/* SPDX-License-Identifier: Apache-2.0
 *
 * From a request to answers: prompts to tokens, one request of the scheduler for each choice, and what its callbacks
 * bring, kept until the connection's thread sends it.
 */
#define _GNU_SOURCE
#include "server/api.h"
#include "text/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

enum { FORMS_BYTES_MAX = 64 << 20 }; /* of all choices of a request, each of which has its own */

/* ---- prompts ------------------------------------------------------------------------------ */

static bool keep_echo(ig_exchange *x, ig_prompt *p, const char *text, size_t n) {
    if (!x->is_echo) return true;
    p->text = malloc(n + 1);
    if (!p->text) return ig_refuse(x->call, 500, NULL, "out of memory for the prompt");
    memcpy(p->text, text, n);
    p->n_text = n;
    return true;
}

static bool add_text(ig_exchange *x, const char *field, const char *text, size_t n) {
    ig_prompt *p = &x->prompts[x->n_prompts++];
    ig_token_list tokens = {0};
    bool ok =
        keep_echo(x, p, text, n) &&
        ig_tokens_of_prompt(x->call, field, text, n, IG_TOKENIZE_ADD_SPECIAL | IG_TOKENIZE_PARSE_SPECIAL, &tokens);
    p->ids = tokens.v;
    p->n_ids = (int)tokens.n;
    return ok;
}

static bool add_ids(ig_exchange *x, const json_t *list) {
    ig_prompt *p = &x->prompts[x->n_prompts++];
    size_t n = json_array_size(list), i;
    json_t *id;
    if (n > (size_t)ig_scheduler_ctx(x->call->server->scheduler)) return ig_refuse_long(x->call, x->api->texts, n);
    p->ids = malloc((n + 1) * sizeof *p->ids);
    if (!p->ids) return ig_refuse(x->call, 500, NULL, "out of memory for %zu tokens", n);
    json_array_foreach(list, i, id) {
        if (!ig_json_token(id, x->call->server->info.n_vocab, &p->ids[i]))
            return ig_refuse(x->call, 400, x->api->texts, "%s: item %zu is no token of the vocabulary of %d",
                             x->api->texts, i, x->call->server->info.n_vocab);
    }
    p->n_ids = (int)n;
    if (!x->is_echo) return true;
    size_t n_text = ig_detokenize(x->call->server->o->model, p->ids, n, false, NULL, 0);
    char *text = malloc(n_text + 1);
    if (!text) return ig_refuse(x->call, 500, NULL, "out of memory for the prompt");
    p->n_text = ig_detokenize(x->call->server->o->model, p->ids, n, false, text, n_text);
    p->text = text;
    return true;
}

/* A prompt that is a string, and what comes after the answer. */
static bool read_both_sides(ig_exchange *x, const char *suffix) {
    const json_t *v = ig_field(x->body, "prompt");
    if (!json_is_string(v)) return ig_refuse(x->call, 400, "prompt", "with a suffix the prompt must be a string");
    if (x->is_echo) return ig_refuse(x->call, 400, "echo", "echo: not together with a suffix");
    return ig_infill_prompt(x, &(ig_infill){.before_field = "prompt",
                                            .before = json_string_value(v),
                                            .n_before = json_string_length(v),
                                            .after_field = "suffix",
                                            .after = suffix,
                                            .n_after = strlen(suffix)});
}

bool ig_exchange_read_prompts(ig_exchange *x) {
    const char *suffix = NULL;
    if (!ig_field_text(x->call, x->body, "suffix", &suffix)) return false;
    if (suffix && *suffix) return read_both_sides(x, suffix);
    const json_t *v = ig_field(x->body, "prompt"), *first = json_array_get(v, 0);
    bool is_one = json_is_string(v) || json_is_number(first);
    size_t n = is_one ? 1 : json_array_size(v);
    if (!v || n == 0 || (!is_one && !json_is_array(v)))
        return ig_refuse(x->call, 400, x->api->texts, "%s must be a string, a list of tokens, or a list of these",
                         x->api->texts);
    if (n * (size_t)x->n > IG_SERVER_CHOICES_MAX && !x->api->wants_states) /* of which a reply has room for many */
        return ig_refuse(x->call, 400, "prompt", "%zu prompts and n = %d: more than %d choices", n, x->n,
                         IG_SERVER_CHOICES_MAX);
    x->prompts = calloc(n, sizeof *x->prompts);
    if (!x->prompts) return ig_refuse(x->call, 500, NULL, "out of memory for %zu prompts", n);
    for (size_t i = 0; i < n; i++) {
        const json_t *one = is_one ? v : json_array_get(v, i);
        if (json_is_string(one)) {
            if (!add_text(x, x->api->texts, json_string_value(one), json_string_length(one))) return false;
        } else if (!json_is_array(one)) {
            return ig_refuse(x->call, 400, x->api->texts, "%s: item %zu is neither a string nor a list of tokens",
                             x->api->texts, i);
        } else if (!add_ids(x, one)) {
            return false;
        }
        if (x->prompts[i].n_ids == 0)
            return ig_refuse(x->call, 400, x->api->texts, "%s %zu has no tokens", x->api->texts, i);
    }
    return true;
}

static bool read_messages(ig_exchange *x) {
    char *text = NULL;
    size_t n;
    x->prompts = calloc(1, sizeof *x->prompts);
    if (!x->prompts) return ig_refuse(x->call, 500, NULL, "out of memory for a prompt");
    bool ok = ig_conversation_prompt(x->call, x->body, &text, &n, &x->stage) && add_text(x, "messages", text, n);
    if (!x->thoughts && !x->has_channels) x->stage = IG_THOUGHTS_OVER;
    free(text);
    return ok && ig_exchange_constrain(x);
}

/* ---- opening ----------------------------------------------------------------------------------- */

static void name_exchange(ig_exchange *x) {
    unsigned char random[12];
    if (getrandom(random, sizeof random, GRND_NONBLOCK) != sizeof random) memset(random, 0, sizeof random);
    int n = snprintf(x->id, sizeof x->id, "%s", x->api->prefix);
    for (size_t i = 0; i < sizeof random; i++) n += snprintf(x->id + n, sizeof x->id - (size_t)n, "%02x", random[i]);
    x->created = (int64_t)time(NULL);
}

/* How long one waits does not depend on what the time of day is set to. */
static void init_condition(pthread_cond_t *condition) {
    pthread_condattr_t how;
    pthread_condattr_init(&how);
    pthread_condattr_setclock(&how, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &how);
    pthread_condattr_destroy(&how);
}

/* From the body of the call; NULL: refused. */
static ig_exchange *open_exchange(ig_call *c, const ig_api *api) {
    ig_exchange *x = calloc(1, sizeof *x);
    if (!x) {
        ig_refuse(c, 500, NULL, "out of memory");
        return NULL;
    }
    x->call = c;
    x->api = api;
    pthread_mutex_init(&x->lock, NULL);
    init_condition(&x->changed);
    name_exchange(x);
    x->given = ig_body_object(c);
    if (x->given) x->body = api->translate ? api->translate(c, x->given) : json_incref(x->given);
    bool ok = x->body && ig_exchange_read(x) && (api->read ? api->read(x) : read_messages(x));
    /* Copies leave out what there is no memory for. */
    if (ok && ig_json_take_loss()) ok = ig_refuse(c, 500, NULL, "out of memory for a request");
    if (ok) return x;
    ig_exchange_close(x);
    return NULL;
}

void ig_exchange_close(ig_exchange *x) {
    if (!x) return;
    for (size_t i = 0; i < x->n_choices; i++) {
        if (x->is_submitted) ig_request_close(x->requests[i]);
        free(x->choices[i].text);
        free(x->choices[i].tokens);
        free(x->choices[i].ids);
        free(x->choices[i].vector);
    }
    for (size_t i = 0; i < x->n_prompts; i++) {
        free(x->prompts[i].ids);
        free(x->prompts[i].text);
    }
    free(x->choices);
    free(x->requests);
    free(x->prompts);
    free(x->adapter_scales);
    free(x->bias);
    free(x->stops);
    free(x->dry_breakers);
    free(x->stop_ids);
    free(x->expected);
    free(x->grammar);
    free(x->out);
    if (x->api->close) x->api->close(x);
    ig_tools_close(&x->tools);
    json_decref(x->body);
    json_decref(x->given);
    pthread_cond_destroy(&x->changed);
    pthread_mutex_destroy(&x->lock);
    free(x);
}

/* Room for one more of `size`; false: no memory. */
static bool make_room(void **list, size_t n, size_t *cap, size_t more, size_t size) {
    if (n + more <= *cap) return true;
    size_t want = 2 * *cap + more + 16;
    void *grown = realloc(*list, want * size);
    if (!grown) return false;
    *list = grown;
    *cap = want;
    return true;
}

static bool add_to_text(ig_choice *k, const char *text, size_t n) {
    if (!n) return true;
    void *to = k->text;
    bool ok = make_room(&to, k->n_text, &k->cap_text, n, 1);
    k->text = to;
    if (!ok) return false;
    memcpy(k->text + k->n_text, text, n);
    k->n_text += n;
    return true;
}

/* Of /infill, where a line is what is wanted most. */
static bool takes_too_long(const ig_choice *k) {
    double most = k->exchange->most_seconds;
    bool is_over = most > 0 && k->last_token - k->first_token > most;
    return is_over && k->n_text && memchr(k->text, '\n', k->n_text);
}

/* ---- callbacks, on the scheduler's thread --------------------------------------------------------- */

static bool on_text(void *user, const char *text, size_t n) {
    ig_choice *k = user;
    ig_exchange *x = k->exchange;
    pthread_mutex_lock(&x->lock);
    k->has_failed |= !x->only_reads && !add_to_text(k, text, n);
    /* Who does not read is not waited for. */
    size_t told = k->n_sent < k->n_echo ? k->n_echo : k->n_sent;
    k->is_unread = x->is_stream && k->n_text - told > IG_SERVER_UNSENT_MAX;
    bool stops = k->has_failed || k->is_unread;
    k->is_late = !stops && takes_too_long(k);
    stops |= k->is_late;
    pthread_cond_broadcast(&x->changed);
    pthread_mutex_unlock(&x->lock);
    return stops;
}

static void note_times(ig_choice *k) {
    ig_server *s = k->exchange->call->server;
    double now = ig_text_seconds();
    if (k->n_seen == 1) {
        k->first_token = now;
        ig_server_note_time(s, &s->numbers.first_token, now - k->exchange->call->began);
    } else {
        ig_server_note_time(s, &s->numbers.between_tokens, now - k->last_token);
    }
    k->last_token = now;
}

static void note_id(ig_choice *k, int32_t id) {
    ig_exchange *x = k->exchange;
    pthread_mutex_lock(&x->lock);
    void *to = k->ids;
    k->has_failed |= !make_room(&to, k->n_ids, &k->cap_ids, 1, sizeof *k->ids);
    k->ids = to;
    if (!k->has_failed) k->ids[k->n_ids++] = id;
    pthread_mutex_unlock(&x->lock);
}

static void on_token(void *user, const ig_request_token *t) {
    ig_choice *k = user;
    ig_exchange *x = k->exchange;
    if (x->only_reads && !t->is_prompt) return;
    if (!t->is_prompt && !t->is_end) {
        pthread_mutex_lock(&x->lock);
        k->n_seen++;
        note_times(k);
        pthread_mutex_unlock(&x->lock);
    }
    if (!t->is_prompt && x->returns_ids) note_id(k, t->token.id);
    /* An end token counts where tokens of the prompt do: who scores texts wants exactly one after them. */
    if (x->n_top < 0 || (t->is_end && !x->is_echo)) return;
    pthread_mutex_lock(&x->lock);
    void *to = k->tokens;
    k->has_failed |= !make_room(&to, k->n_tokens, &k->cap_tokens, 1, sizeof *k->tokens);
    k->tokens = to;
    if (!k->has_failed) {
        ig_token_record *r = &k->tokens[k->n_tokens++];
        k->n_prompt_scores += t->is_prompt;
        r->token = t->token;
        r->is_end = t->is_end;
        r->n_top = t->n_top;
        memcpy(r->top, t->top, (size_t)t->n_top * sizeof *t->top);
    }
    pthread_mutex_unlock(&x->lock);
}

size_t ig_choice_bytes(const ig_choice *k, int32_t id) {
    const ig_exchange *x = k->exchange;
    const int32_t two[] = {id, id}; /* as ig_token_bytes() has it */
    return (ig_detokenize(x->call->server->o->model, two, 2, x->ask.generate.special, NULL, 0) + 1) / 2;
}

/* Scores of tokens that begin where the text has ended, as those of a stop string. */
static void drop_stop(ig_choice *k) {
    size_t left = k->n_text - k->n_echo, n = k->n_prompt_scores;
    for (; n < k->n_tokens && left > 0; n++) {
        size_t bytes = ig_choice_bytes(k, k->tokens[n].token.id);
        left -= bytes < left ? bytes : left;
    }
    if (n < k->n_tokens) k->n_tokens = n > k->n_tokens_sent ? n : k->n_tokens_sent; /* none of them has been told */
}

static void on_progress(void *user, const ig_request_progress *p) {
    ig_choice *k = user;
    ig_exchange *x = k->exchange;
    pthread_mutex_lock(&x->lock);
    k->progress = *p;
    k->is_progress_new = x->is_stream && x->has_progress && (!x->api->tell || x->api->is_native);
    if (p->n_held == p->n_prompt) k->answered = ig_text_seconds();
    if (k->is_progress_new) pthread_cond_broadcast(&x->changed);
    pthread_mutex_unlock(&x->lock);
}

static void on_end(void *user, const ig_request_result *result) {
    ig_choice *k = user;
    ig_exchange *x = k->exchange;
    ig_server_note_end(x->call->server, result);
    ig_server_see_failure(x->call->server, &result->error);
    pthread_mutex_lock(&x->lock);
    k->result = *result;
    if (k->is_late && result->finish == IG_FINISH_INTERRUPTED) k->result.finish = IG_FINISH_LENGTH;
    if (x->only_reads) k->result.n_tokens = 0;
    if (x->only_reads && result->finish != IG_FINISH_INTERRUPTED) k->result.finish = IG_FINISH_LENGTH;
    if (k->result.finish == IG_FINISH_STOP && !x->ask.generate.shows_stop) drop_stop(k);
    k->has_ended = true;
    x->n_ended++;
    pthread_cond_broadcast(&x->changed);
    pthread_mutex_unlock(&x->lock);
}

/* ---- handing over ------------------------------------------------------------------------------------ */

/* Clients share out the places: with keys those that have one in common, however they write it, else those of an
 * address; a server of several models, which hands requests on, says whose they are. */
uint64_t ig_call_owner(const ig_call *c) {
    const char *name = c->key;
    if (!name && c->server->o->is_handed_on) name = ig_head_value(c->head, IG_OWNER_FIELD);
    const unsigned char *of = name ? (const void *)name : c->wire->connection->address.s6_addr;
    size_t n = name ? strlen(name) : sizeof c->wire->connection->address;
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < n; i++) hash = (hash ^ of[i]) * 1099511628211u;
    return hash;
}

/* Tokens that an answer may have: with its prompt no more than a context, as clients count, though the last one needs
 * no room there. Behind a prompt that fills it there is one. */
static int most_made(const ig_exchange *x, const ig_prompt *p) {
    int n_ctx = ig_scheduler_ctx(x->call->server->scheduler), most = x->ask.generate.n_predict;
    int n_left = p->n_ids < n_ctx ? n_ctx - p->n_ids : 1;
    return most < 0 || most > n_left ? n_left : most;
}

static ig_request_options request_of(ig_exchange *x, ig_choice *k, size_t i) {
    ig_request_options o = x->ask;
    o.ids = x->prompts[k->prompt].ids;
    o.n_ids = x->prompts[k->prompt].n_ids;
    o.cache = &x->cache;
    o.sampler.grammar = x->grammar;
    o.sampler.seed = x->seed + i % (size_t)x->n;
    o.score_prompt = x->is_echo && x->n_top >= 0;
    o.whole_characters = true;
    o.owner = ig_call_owner(x->call);
    o.generate.n_predict = most_made(x, &x->prompts[k->prompt]);
    o.generate.on_text = on_text;
    o.generate.user = k;
    o.on_token = on_token;
    o.on_progress = on_progress;
    o.on_states = x->api->wants_states ? ig_choice_pool : NULL;
    o.on_end = on_end;
    o.user = k;
    return o;
}

static void refuse_submit(ig_exchange *x, bool is_full, const ig_error *err) {
    ig_refusal *r = &x->call->refusal;
    ig_server_see_failure(x->call->server, err);
    if (is_full || err->status == IG_E_INTERRUPTED) {
        ig_refuse(x->call, 503, NULL, "%s", err->text);
        r->may_retry = true;
        if (is_full) r->code = "queue_full";
    } else {
        ig_refuse_error(x->call, ig_field(x->body, "infinigen") ? "infinigen" : NULL, err);
    }
}

/* With the prompt's own, if that is wanted, and room for a vector instead. */
static bool begin_choice(ig_choice *k) {
    const ig_prompt *p = &k->exchange->prompts[k->prompt];
    if (k->exchange->api->wants_states)
        k->vector = calloc((size_t)k->exchange->call->server->info.d_model, sizeof *k->vector);
    if (k->exchange->api->wants_states && !k->vector) return false;
    if (!p->text || !add_to_text(k, p->text, p->n_text)) return !p->text;
    k->n_echo = k->n_text;
    return true;
}

/* Tokens of a prompt's answer that the reply lists at most; a stream lists them part by part. */
static size_t most_listed(const ig_exchange *x, const ig_prompt *p) {
    return x->is_stream ? 0 : (size_t)most_made(x, p);
}

/* False, and refused, where more could come than a reply may list. */
static bool check_lists(ig_exchange *x) {
    size_t n_scores = 0, n_ids = 0;
    for (size_t i = 0; i < x->n_prompts; i++) {
        const ig_prompt *p = &x->prompts[i];
        n_scores += most_listed(x, p) + (x->is_echo ? (size_t)p->n_ids : 0);
        n_ids += most_listed(x, p) + (x->is_stream ? 0 : (size_t)p->n_ids);
    }
    size_t n_numbers = x->api->wants_states ? x->n_prompts * (size_t)x->call->server->info.d_model : 0;
    if (n_numbers > IG_SERVER_NODES_MAX)
        return ig_refuse(x->call, 400, x->api->texts, "%zu numbers are too much for a reply: at most %d", n_numbers,
                         IG_SERVER_NODES_MAX);
    n_scores *= (size_t)x->n * (size_t)(1 + x->n_top); /* n_top -1: there are none */
    n_ids *= x->returns_ids ? (size_t)x->n : 0;
    if (n_scores + n_ids <= IG_SERVER_NODES_MAX) return true;
    return ig_refuse(
        x->call, 400, x->n_top >= 0 ? "logprobs" : "return_token_ids",
        "up to %zu scores and ids of tokens of prompts and answers are too much for a reply: at most %d; a "
        "smaller max_tokens or top_logprobs makes fewer, and a stream has no limit for answers",
        n_scores + n_ids, IG_SERVER_NODES_MAX);
}

/* Hands it over; false: refused. */
static bool submit(ig_exchange *x) {
    size_t n = x->n_prompts * (size_t)x->n, refused = 0;
    int n_queue = x->call->server->o->scheduler.n_queue, most = n_queue - n_queue / 8; /* of one client */
    ig_error err = {0};
    if (n > (size_t)most)
        return ig_refuse(x->call, 400, x->n > 1 ? "n" : x->api->texts, "%zu choices at once: at most %d may wait", n,
                         most);
    if (!check_lists(x)) return false;
    if (x->grammar && strlen(x->grammar) > FORMS_BYTES_MAX / n)
        return ig_refuse(x->call, 400, NULL, "a form of %zu bytes for each of %zu choices is too much",
                         strlen(x->grammar), n);
    x->choices = calloc(n, sizeof *x->choices);
    x->requests = calloc(n, sizeof *x->requests);
    ig_request_options *all = calloc(n, sizeof *all);
    bool has_memory = true;
    if (!x->choices || !x->requests || !all) {
        free(all);
        return ig_refuse(x->call, 500, NULL, "out of memory for %zu choices", n);
    }
    x->n_choices = n;
    for (size_t i = 0; i < n; i++) {
        x->choices[i].exchange = x;
        x->choices[i].prompt = (int)(i / (size_t)x->n);
        x->choices[i].reader.stage = x->stage;
        x->choices[i].reader.calls.is_single = x->tools.is_single;
        x->choices[i].reader.calls.must_call = x->tools.must_call;
        has_memory &= begin_choice(&x->choices[i]);
        all[i] = request_of(x, &x->choices[i], i);
    }
    if (!has_memory) {
        free(all);
        return ig_refuse(x->call, 500, NULL, "out of memory for %zu choices", n);
    }
    if (atomic_load(&x->call->server->is_draining))
        ig_text_fail(&err, IG_E_INTERRUPTED, "the server is being shut down");
    else if (!ig_scheduler_submit(x->requests, &refused, x->call->server->scheduler, all, n, &err))
        x->is_submitted = true;
    free(all);
    if (!x->is_submitted) refuse_submit(x, refused == n && err.status == IG_E_LIMIT, &err);
    return x->is_submitted;
}

void ig_exchange_cancel(ig_exchange *x) {
    for (size_t i = 0; x->is_submitted && i < x->n_choices; i++) ig_request_cancel(x->requests[i]);
}

/* ---- the routes --------------------------------------------------------------------------------------- */

static void wait_for_end(ig_exchange *x) {
    pthread_mutex_lock(&x->lock);
    while (x->n_ended < x->n_choices) pthread_cond_wait(&x->changed, &x->lock);
    pthread_mutex_unlock(&x->lock);
}

/* Takes x; NULL: refused. */
static void complete(ig_call *c, ig_exchange *x) {
    if (!x) return;
    if (!submit(x)) {
        ig_exchange_close(x);
        return;
    }
    c->exchange = x;
    ig_watch_call(&c->server->watch, c->wire->connection, c);
    if (x->is_stream) {
        ig_exchange_stream(x);
        return;
    }
    wait_for_end(x);
    ig_watch_call(&c->server->watch, c->wire->connection, NULL);
    if (atomic_load(&c->ended) == IG_CALL_GONE)
        c->closes = true; /* nobody is there to be answered */
    else if (!ig_exchange_failed(x, &c->refusal))
        ig_reply_json(c, x->api->reply ? x->api->reply(x) : ig_exchange_json(x));
}

void ig_answer(ig_call *c, const ig_api *api) { complete(c, open_exchange(c, api)); }

void ig_route_answers(ig_call *c) { ig_answer(c, c->route->api); }

/* ---- OpenAI's ------------------------------------------------------------------------------------------ */

static const char *const completions_fields[] = {"prompt", "echo", "suffix", NULL};

const char *const ig_chat_fields[] = {IG_CONVERSATION_FIELDS, "top_logprobs", "reasoning_format", NULL};
const ig_api ig_api_chat = {.prefix = "chatcmpl-", IG_API_OF_CHAT},
             ig_api_completions = {.prefix = "cmpl-",
                                   .texts = "prompt",
                                   .object = "text_completion",
                                   .chunk = "text_completion",
                                   .fields = completions_fields,
                                   .read = ig_exchange_read_prompts};
