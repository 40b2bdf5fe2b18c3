/* SPDX-License-Identifier: Apache-2.0
 *
 * The clients are libcurl's transfers, all driven by one thread, so that times need no locks.
 */
#define _GNU_SOURCE
#include "eval/load.h"

#include <curl/curl.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "eval/load_reply.h"
#include "eval/random.h"
#include "eval/numbers.h"
#include "text/json.h"
#include "text/text.h"
#include "text/clock.h"

enum { PROBE_TOKENS = 8, WAIT_MS_MOST = 100, VOCAB_LEAST = 32000, URL_BYTES = 1024 };

struct ig_eval_load {
    ig_eval_load_options o;
    char base[URL_BYTES];        /* ends with "/v1" */
    char model[256], title[256]; /* as the server knows it; as it is shown */
    int n_vocab;
    bool takes_tokens;
    struct curl_slist *headers;
    uint64_t n_asked; /* prompts made so far: no two tests have one in common */
};

typedef struct client {
    struct run *run;
    CURL *http;
    char *body; /* of the request that is under way or to be begun; NULL: none */
    bool is_busy;
    int n_left;
    double began, not_before; /* seconds */
    ig_eval_load_reply reply;
    ig_eval_samples between; /* of the request that is under way */
} client;

/* A test that is being made. */
typedef struct run {
    ig_eval_load *load;
    const ig_eval_load_test *test;
    ig_eval_load_result *out;
    CURLM *all;
    client *clients; /* [n_clients] */
    int n_busy;
    double began;    /* seconds; < 0: not yet */
    uint64_t shared; /* seed of what prompts have in common */
    ig_eval_samples first, between, whole;
} run;

static ig_status no_memory(ig_error *err) { return ig_text_fail(err, IG_E_MEMORY, "out of memory for a request"); }
static ig_status interrupted(ig_error *err) { return ig_text_fail(err, IG_E_INTERRUPTED, "interrupted"); }

/* ---- requests ------------------------------------------------------------------------- */

static ig_eval_random random_of(uint64_t seed, uint64_t number) {
    char text[64];
    snprintf(text, sizeof text, "load %llu %llu", (unsigned long long)seed, (unsigned long long)number);
    return ig_eval_random_of(text);
}

/* From the middle of the vocabulary: special tokens are at its ends. */
static json_t *random_token(const ig_eval_load *load, ig_eval_random *r) {
    return json_integer(load->n_vocab / 4 + (int)ig_eval_random_below(r, (uint64_t)load->n_vocab / 2 + 1));
}

static const char *random_word(ig_eval_random *r) {
    static const char *const words[] = {" time",   " house",  " water", " light", " night",  " world",  " story",
                                        " hand",   " people", " door",  " river", " stone",  " young",  " green",
                                        " long",   " small",  " road",  " book",  " voice",  " field",  " winter",
                                        " garden", " king",   " song",  " bread", " silver", " letter", " morning",
                                        " window", " horse",  " bird",  " sea"};
    return words[ig_eval_random_below(r, sizeof words / sizeof *words)];
}

/* A prompt that begins with what `shared` gives and goes on with what nobody else has. */
static json_t *make_prompt(ig_eval_load *load, int n, int n_shared, uint64_t shared) {
    ig_eval_random common = random_of(load->o.seed, shared), own = random_of(load->o.seed, ++load->n_asked);
    json_t *ids = json_array();
    char *text = load->takes_tokens ? NULL : calloc((size_t)n + 1, 16), *end = text;
    for (int i = 0; i < n; i++) {
        ig_eval_random *r = i < n_shared ? &common : &own;
        if (load->takes_tokens)
            json_array_append_new(ids, random_token(load, r));
        else if (text)
            end = stpcpy(end, random_word(r));
    }
    if (load->takes_tokens) return ids;
    json_decref(ids);
    json_t *prompt = text ? json_string(text) : NULL;
    free(text);
    return prompt;
}

/* A body to be freed; NULL: no memory. Takes `prompt`. */
static char *make_body(const ig_eval_load *load, json_t *prompt, int n_gen) {
    json_t *body =
        json_pack("{s:s, s:o, s:i, s:i, s:b, s:b, s:{s:b}}", "model", load->model, "prompt", prompt, "max_tokens",
                  n_gen, "temperature", 0, "ignore_eos", 1, "stream", 1, "stream_options", "include_usage", 1);
    char *text = ig_text_of_json(body, JSON_COMPACT);
    json_decref(body);
    return text;
}

static CURL *open_http(const ig_eval_load *load, const char *path) {
    char url[URL_BYTES + 32];
    CURL *h = curl_easy_init();
    if (!h) return NULL;
    snprintf(url, sizeof url, "%s%s", load->base, path);
    curl_easy_setopt(h, CURLOPT_URL, url);
    curl_easy_setopt(h, CURLOPT_HTTPHEADER, load->headers);
    curl_easy_setopt(h, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(h, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(h, CURLOPT_NOPROXY, "*"); /* a proxy's times are not the server's */
    curl_easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(h, CURLOPT_CONNECTTIMEOUT, 10L);
    return h;
}

static size_t on_bytes(char *data, size_t size, size_t n, void *user) {
    client *k = user;
    long status = 0;
    curl_easy_getinfo(k->http, CURLINFO_RESPONSE_CODE, &status);
    k->reply.is_stream = status == 200;
    bool ok = ig_eval_load_reply_take(&k->reply, data, size * n, ig_text_seconds(), &k->between);
    return ok ? size * n : 0;
}

/* ---- one client --------------------------------------------------------------------------- */

static ig_status prepare(run *r, client *k, ig_error *err) {
    const ig_eval_load_test *t = r->test;
    k->body = make_body(r->load, make_prompt(r->load, t->n_prompt, t->n_shared, r->shared), t->n_gen);
    return k->body ? IG_OK : no_memory(err);
}

static ig_status begin(run *r, client *k, ig_error *err) {
    ig_eval_load_reply_reset(&k->reply);
    k->between.n = 0;
    curl_easy_setopt(k->http, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(k->body));
    curl_easy_setopt(k->http, CURLOPT_POSTFIELDS, k->body);
    k->began = ig_text_seconds();
    if (r->began < 0) r->began = k->began;
    k->is_busy = true;
    k->n_left--;
    r->n_busy++;
    return curl_multi_add_handle(r->all, k->http) ? no_memory(err) : IG_OK;
}

/* What went wrong with a reply; false: nothing. */
static bool has_failed(char text[320], client *k, CURLcode code) {
    long status = 0;
    curl_easy_getinfo(k->http, CURLINFO_RESPONSE_CODE, &status);
    if (status != 200 && status != 0) ig_eval_load_reply_end(&k->reply);
    const char *why = k->reply.error[0] ? k->reply.error : code ? curl_easy_strerror(code) : NULL;
    if (status == 0)
        snprintf(text, 320, "no reply: %s", why ? why : "nothing came");
    else if (status != 200)
        snprintf(text, 320, "status %ld: %s", status, why ? why : "no message");
    else if (why)
        snprintf(text, 320, "within a stream: %s", why);
    else if (!k->reply.is_done)
        snprintf(text, 320, "a stream ended before its last event");
    else
        return false;
    return true;
}

static bool add_times(run *r, const client *k, double now) {
    bool ok = k->reply.first < 0 || ig_eval_samples_add(&r->first, k->reply.first - k->began); /* tokens without text */
    for (size_t i = 0; ok && i < k->between.n; i++) ok = ig_eval_samples_add(&r->between, k->between.v[i]);
    return ok && ig_eval_samples_add(&r->whole, now - k->began);
}

/* Tokens, as the server counts them. */
static void add_tokens(run *r, const ig_eval_load_reply *reply) {
    uint64_t n_prompt = r->load->takes_tokens ? (uint64_t)r->test->n_prompt : 0;
    r->out->prompt_tokens += reply->has_usage ? reply->prompt_tokens : n_prompt;
    r->out->answer_tokens += reply->has_usage ? reply->answer_tokens : reply->n_chunks;
    r->out->cached_tokens += reply->cached_tokens;
}

static ig_status finish(run *r, client *k, CURLcode code, ig_error *err) {
    ig_eval_load_result *out = r->out;
    char why[320];
    double now = ig_text_seconds();
    out->seconds = now - r->began;
    curl_multi_remove_handle(r->all, k->http);
    free(k->body);
    k->body = NULL;
    k->is_busy = false;
    r->n_busy--;
    if (has_failed(why, k, code)) {
        curl_off_t seconds = 0;
        if (!out->n_failed++) memcpy(out->error, why, sizeof why);
        curl_easy_getinfo(k->http, CURLINFO_RETRY_AFTER, &seconds);
        k->not_before = now + (seconds > 0 ? (double)(seconds < 60 ? seconds : 60) : 0.1);
        return IG_OK;
    }
    out->n_done++;
    add_tokens(r, &k->reply);
    return add_times(r, k, now) ? IG_OK : no_memory(err);
}

/* ---- all of them --------------------------------------------------------------------------- */

static bool open_clients(run *r) {
    r->all = curl_multi_init();
    r->clients = calloc((size_t)r->test->n_clients, sizeof *r->clients);
    if (!r->all || !r->clients) return false;
    curl_multi_setopt(r->all, CURLMOPT_MAXCONNECTS, (long)r->test->n_clients);
    for (int i = 0; i < r->test->n_clients; i++) {
        client *k = &r->clients[i];
        k->run = r;
        k->n_left = r->test->n_requests;
        k->http = open_http(r->load, "/completions");
        if (!k->http) return false;
        curl_easy_setopt(k->http, CURLOPT_PRIVATE, k);
        curl_easy_setopt(k->http, CURLOPT_WRITEFUNCTION, on_bytes);
        curl_easy_setopt(k->http, CURLOPT_WRITEDATA, k);
    }
    return true;
}

static void close_clients(run *r) {
    for (int i = 0; r->clients && i < r->test->n_clients; i++) {
        client *k = &r->clients[i];
        if (k->is_busy) curl_multi_remove_handle(r->all, k->http);
        if (k->http) curl_easy_cleanup(k->http);
        free(k->body);
        free(k->reply.line);
        free(k->between.v);
    }
    if (r->all) curl_multi_cleanup(r->all);
    free(r->clients);
    free(r->first.v);
    free(r->between.v);
    free(r->whole.v);
}

/* Starts whoever may ask now: nobody's time begins before all their prompts are made. True while requests are to come.
 */
static bool begin_all(run *r, ig_status *status, ig_error *err) {
    bool goes_on = false;
    double now = ig_text_seconds();
    for (int i = 0; !*status && i < r->test->n_clients; i++) {
        client *k = &r->clients[i];
        if (!k->body && k->n_left && now >= k->not_before) *status = prepare(r, k, err);
    }
    for (int i = 0; !*status && i < r->test->n_clients; i++) {
        client *k = &r->clients[i];
        if (k->body && !k->is_busy) *status = begin(r, k, err);
        goes_on |= k->is_busy || k->n_left;
    }
    return goes_on;
}

static ig_status finish_all(run *r, ig_error *err) {
    ig_status status = IG_OK;
    CURLMsg *m;
    int left;
    while (!status && (m = curl_multi_info_read(r->all, &left))) {
        client *k = NULL;
        if (m->msg != CURLMSG_DONE) continue;
        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &k);
        status = finish(r, k, m->data.result, err);
    }
    return status;
}

/* Until something comes, or a client may ask again. */
static void wait_for_more(const run *r) {
    double now = ig_text_seconds(), until = now + WAIT_MS_MOST * 1e-3;
    for (int i = 0; i < r->test->n_clients; i++) {
        const client *k = &r->clients[i];
        if (!k->is_busy && k->n_left && k->not_before < until) until = k->not_before;
    }
    if (until > now) curl_multi_poll(r->all, NULL, 0, (int)ceil((until - now) * 1e3), NULL);
}

static ig_status drive(run *r, ig_error *err) {
    const ig_eval_load_options *o = &r->load->o;
    uint64_t total = (uint64_t)r->test->n_clients * (uint64_t)r->test->n_requests;
    ig_status status = IG_OK;
    while (!status && begin_all(r, &status, err)) {
        uint64_t done = (uint64_t)(r->out->n_done + r->out->n_failed);
        int running, n_busy = r->n_busy;
        if (o->progress && o->progress(o->user, done, total)) {
            r->out->is_interrupted = true;
            break;
        }
        if (curl_multi_perform(r->all, &running)) return no_memory(err);
        status = finish_all(r, err);
        if (!status && r->n_busy == n_busy) wait_for_more(r);
    }
    return status;
}

/* By nearest rank. */
static ig_eval_quantiles quantiles_of(ig_eval_samples *s) {
    if (!s->n) return (ig_eval_quantiles){0, 0, 0};
    qsort(s->v, s->n, sizeof *s->v, ig_eval_compare);
    return (ig_eval_quantiles){s->v[(s->n - 1) / 2], s->v[(s->n * 9 + 9) / 10 - 1], s->v[(s->n * 99 + 99) / 100 - 1]};
}

ig_status ig_eval_load_run(ig_eval_load_result *out, ig_eval_load *load, const ig_eval_load_test *test, ig_error *err) {
    run r = {.load = load, .test = test, .out = out, .shared = ++load->n_asked, .began = -1};
    *out = (ig_eval_load_result){0};
    ig_status status = open_clients(&r) ? drive(&r, err) : no_memory(err);
    out->first_token = quantiles_of(&r.first);
    out->between_tokens = quantiles_of(&r.between);
    out->whole = quantiles_of(&r.whole);
    close_clients(&r);
    return status;
}

/* ---- the server ------------------------------------------------------------------------------- */

static bool set_url(ig_eval_load *load) {
    const char *url = load->o.url;
    size_t n = strlen(url);
    while (n && url[n - 1] == '/') n--;
    bool is_whole = n >= 3 && memcmp(url + n - 3, "/v1", 3) == 0;
    int got = snprintf(load->base, sizeof load->base, "%s%.*s%s", strstr(url, "://") ? "" : "http://", (int)n, url,
                       is_whole ? "" : "/v1");
    return n && got > 0 && (size_t)got < sizeof load->base;
}

static bool add_header(ig_eval_load *load, const char *name, const char *value) {
    char line[1024];
    int n = snprintf(line, sizeof line, "%s%s", name, value);
    struct curl_slist *more = n > 0 && (size_t)n < sizeof line ? curl_slist_append(load->headers, line) : NULL;
    if (more) load->headers = more;
    return more != NULL;
}

/* Name and vocabulary from the list of models. */
static void read_models(ig_eval_load *load, const ig_eval_load_reply *reply) {
    bool failed;
    json_t *list = ig_json_of_text(reply->line ? reply->line : "", reply->n_line, 0, NULL, &failed), *one;
    size_t i;
    json_array_foreach(json_object_get(list, "data"), i, one) {
        const char *id = json_string_value(json_object_get(one, "id"));
        json_int_t n = json_integer_value(json_object_get(json_object_get(one, "meta"), "n_vocab"));
        if (!id || (load->o.model && strcmp(id, load->o.model) != 0)) continue;
        snprintf(load->model, sizeof load->model, "%s", id);
        if (n > 0 && n < 1 << 30) load->n_vocab = (int)n;
        break;
    }
    json_decref(list);
}

static size_t on_list(char *data, size_t size, size_t n, void *user) {
    return ig_eval_load_reply_take(user, data, size * n, 0, NULL) ? size * n : 0;
}

/* As libcurl wants it: other than 0 ends the transfer. */
static int on_waiting(void *user, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d) {
    const ig_eval_load_options *o = user;
    (void)a, (void)b, (void)c, (void)d;
    return o->progress && o->progress(o->user, 0, 0);
}

static ig_status ask_models(ig_eval_load *load, ig_error *err) {
    ig_eval_load_reply reply = {0};
    long code = 0;
    CURL *http = open_http(load, "/models");
    if (!http) return no_memory(err);
    curl_easy_setopt(http, CURLOPT_WRITEFUNCTION, on_list);
    curl_easy_setopt(http, CURLOPT_WRITEDATA, &reply);
    curl_easy_setopt(http, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(http, CURLOPT_XFERINFOFUNCTION, on_waiting);
    curl_easy_setopt(http, CURLOPT_XFERINFODATA, &load->o);
    CURLcode failed = curl_easy_perform(http);
    curl_easy_getinfo(http, CURLINFO_RESPONSE_CODE, &code);
    ig_status status = IG_OK;
    if (code != 200) ig_eval_load_reply_end(&reply);
    if (failed == CURLE_ABORTED_BY_CALLBACK)
        status = interrupted(err);
    else if (failed)
        status =
            ig_text_fail(err, IG_E_IO, "%s: %s", load->base, reply.error[0] ? reply.error : curl_easy_strerror(failed));
    else if (code == 401 || code == 403)
        status = ig_text_fail(err, IG_E_IO, "%s: status %ld: %s", load->base, code, reply.error);
    else if (code == 200)
        read_models(load, &reply);
    if (!status && !load->model[0])
        status = ig_text_fail(err, IG_E_IO, "%s/models: it lists no model: -m says which one to ask for", load->base);
    curl_easy_cleanup(http);
    free(reply.line);
    return status;
}

/* A short request, with tokens and then with a text. */
static ig_status probe(ig_eval_load *load, ig_error *err) {
    const ig_eval_load_test test = {.n_clients = 1, .n_requests = 1, .n_prompt = PROBE_TOKENS, .n_gen = 2};
    ig_eval_load_result r = {0};
    ig_status status = IG_OK;
    for (int form = 0; !status && !r.n_done && form < 2; form++) {
        load->takes_tokens = form == 0;
        status = ig_eval_load_run(&r, load, &test, err);
        if (r.is_interrupted) status = interrupted(err);
    }
    if (!status && !r.n_done) status = ig_text_fail(err, IG_E_IO, "%s: %s", load->base, r.error);
    return status;
}

ig_status ig_eval_load_open(ig_eval_load **out, const ig_eval_load_options *options, ig_error *err) {
    *out = NULL;
    if (curl_global_init(CURL_GLOBAL_DEFAULT)) return no_memory(err);
    ig_eval_load *load = calloc(1, sizeof *load);
    if (!load) return no_memory(err);
    load->o = *options;
    load->n_vocab = VOCAB_LEAST;
    if (options->model) snprintf(load->model, sizeof load->model, "%s", options->model);
    ig_status status = set_url(load) ? IG_OK : ig_text_fail(err, IG_E_ARG, "%s: is no address", options->url);
    /* Bodies are sent without asking first. */
    if (!status && (!add_header(load, "Content-Type: application/json", "") || !add_header(load, "Expect:", "") ||
                    (options->key && !add_header(load, "Authorization: Bearer ", options->key))))
        status = no_memory(err);
    if (!status) status = ask_models(load, err);
    if (!status) status = probe(load, err);
    snprintf(load->title, sizeof load->title, "%s", load->model);
    ig_text_make_harmless(load->title);
    if (status)
        ig_eval_load_close(load);
    else
        *out = load;
    return status;
}

void ig_eval_load_close(ig_eval_load *load) {
    if (!load) return;
    curl_slist_free_all(load->headers);
    free(load);
    curl_global_cleanup();
}

const char *ig_eval_load_model(const ig_eval_load *load) { return load->title; }
bool ig_eval_load_takes_tokens(const ig_eval_load *load) { return load->takes_tokens; }
