/* SPDX-License-Identifier: Apache-2.0
 *
 * What the server counts, in Prometheus' text format.
 */
#define _GNU_SOURCE
#include "server/call.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static const double bounds[IG_SERVER_BUCKETS] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                                 0.5,   1,      2.5,   5,    10,    30,   60,  300};

void ig_server_count_reply(ig_call *c, unsigned status) {
    ig_server *s = c->server;
    c->status = status;
    pthread_mutex_lock(&s->numbers.lock);
    s->numbers.replies[status / 100 < 6 ? status / 100 : 5]++;
    pthread_mutex_unlock(&s->numbers.lock);
}

void ig_server_note_time(ig_server *s, ig_histogram *h, double seconds) {
    int i = 0;
    while (i < IG_SERVER_BUCKETS && seconds > bounds[i]) i++;
    pthread_mutex_lock(&s->numbers.lock);
    h->counts[i]++;
    h->n++;
    h->sum += seconds;
    pthread_mutex_unlock(&s->numbers.lock);
}

void ig_server_note_end(ig_server *s, const ig_request_result *r) {
    ig_server_note_time(s, &s->numbers.wait, r->wait_seconds);
    if (r->n_tokens) ig_server_note_time(s, &s->numbers.prompt, r->prompt_seconds);
    ig_server_note_time(s, &s->numbers.whole, r->seconds);
}

/* ---- the page ------------------------------------------------------------------------------ */

static void head(FILE *f, const char *name, const char *type, const char *help) {
    fprintf(f, "# HELP infinigen_%s %s\n# TYPE infinigen_%s %s\n", name, help, name, type);
}

static void counter(FILE *f, const char *name, const char *help, uint64_t value) {
    head(f, name, "counter", help);
    fprintf(f, "infinigen_%s %" PRIu64 "\n", name, value);
}

static void gauge(FILE *f, const char *name, const char *help, uint64_t value) {
    head(f, name, "gauge", help);
    fprintf(f, "infinigen_%s %" PRIu64 "\n", name, value);
}

static void histogram(FILE *f, const char *name, const char *help, const ig_histogram *h) {
    uint64_t below = 0;
    head(f, name, "histogram", help);
    for (int i = 0; i < IG_SERVER_BUCKETS; i++) {
        below += h->counts[i];
        fprintf(f, "infinigen_%s_bucket{le=\"%g\"} %" PRIu64 "\n", name, bounds[i], below);
    }
    fprintf(f, "infinigen_%s_bucket{le=\"+Inf\"} %" PRIu64 "\n", name, h->n);
    fprintf(f, "infinigen_%s_sum %.9g\ninfinigen_%s_count %" PRIu64 "\n", name, h->sum, name, h->n);
}

static void write_requests(FILE *f, const ig_scheduler_stats *t) {
    gauge(f, "requests_running", "Answers being made.", (uint64_t)t->n_running);
    gauge(f, "requests_waiting", "Requests that wait for a place.", (uint64_t)t->n_waiting);
    gauge(f, "places", "Answers that can be made at the same time.", (uint64_t)t->n_places);
    counter(f, "requests_total", "Requests handed to the scheduler, one for each choice.", t->n_requests);
    counter(f, "requests_cancelled_total",
            "Requests ended before their answer: clients that went away, limits of time.", t->n_cancelled);
    counter(f, "requests_failed_total", "Requests that failed.", t->n_failed);
    counter(f, "prompt_tokens_total", "Tokens of prompts, computed or taken from earlier ones.", t->prompt_tokens);
    counter(f, "prompt_tokens_cached_total", "Tokens of prompts taken from earlier ones.", t->cached_tokens);
    counter(f, "generated_tokens_total", "Tokens made.", t->answer_tokens);
    counter(f, "draft_tokens_total", "Tokens computed ahead, of ended requests.", t->drafted_tokens);
    counter(f, "draft_hits_total", "Of these those that came.", t->draft_hits);
    counter(f, "steps_total", "Steps computed.", t->n_steps);
    head(f, "step_seconds_total", "counter", "Time spent in steps.");
    fprintf(f, "infinigen_step_seconds_total %.9g\n", t->step_seconds);
    gauge(f, "piece_tokens", "Tokens of a piece of a prompt beside running answers.", (uint64_t)t->piece_tokens);
}

/* 0: none. */
static void limit(FILE *f, const char *tier, uint64_t bytes) {
    if (bytes)
        fprintf(f, "infinigen_kv_limit_bytes{tier=\"%s\"} %" PRIu64 "\n", tier, bytes);
    else
        fprintf(f, "infinigen_kv_limit_bytes{tier=\"%s\"} +Inf\n", tier);
}

static void write_cache(FILE *f, const ig_scheduler_stats *t, const ig_cache_options *o) {
    const ig_cache_stats *k = &t->cache;
    head(f, "kv_limit_bytes", "gauge", "Most that a tier may hold.");
    limit(f, "ram", o->memory.ram_bytes);
    if (o->memory.disk_bytes) limit(f, "disk", o->memory.disk_bytes < UINT64_MAX >> 2 ? o->memory.disk_bytes : 0);
    head(f, "kv_bytes", "gauge", "Keys, values and their tables, by tier.");
    fprintf(f, "infinigen_kv_bytes{tier=\"ram\"} %" PRIu64 "\ninfinigen_kv_bytes{tier=\"disk\"} %" PRIu64 "\n",
            k->kv_bytes, k->disk_bytes);
    if (k->vram_bytes) fprintf(f, "infinigen_kv_bytes{tier=\"vram\"} %" PRIu64 "\n", k->vram_bytes);
    gauge(f, "kv_sketch_bytes",
          "What policies keep of these tokens beside keys and values, but for what is of one sequence alone.",
          k->sketch_bytes);
    gauge(f, "kv_tokens", "Tokens held for running requests.", k->tokens);
    gauge(f, "kv_kept_tokens", "Tokens kept for later prompts.", k->kept_tokens);
    counter(f, "kv_fetched_bytes_total", "Read from the disk tier.", k->read_bytes);
    counter(f, "kv_spilled_bytes_total", "Written to the disk tier.", k->written_bytes);
    counter(f, "kv_blocks_demoted_total", "Blocks of 4 KiB that left RAM.", k->demoted);
    counter(f, "kv_blocks_recalled_total", "Blocks of 4 KiB brought back.", k->recalled);
    counter(f, "kv_vram_hits_total", "Blocks that a GPU had copies of.", k->vram_hits);
    counter(f, "kv_vram_copied_total", "Blocks copied to a GPU.", k->vram_copied);
    counter(f, "kv_vram_rows_total", "Entries that a GPU read from RAM in place.", k->vram_rows);
    counter(f, "kv_vram_read_bytes_total", "Of both, from RAM to a GPU.", k->vram_read_bytes);
    head(f, "kv_stall_seconds_total", "counter", "Time in which steps stood still for the disk.");
    fprintf(f, "infinigen_kv_stall_seconds_total %.9g\n", k->stall_seconds);
    counter(f, "prefetch_hits_total", "Blocks that a prefetch had ready, of ended requests.", t->prefetch_hits);
    counter(f, "prefetch_misses_total", "Blocks that had to be waited for, of ended requests.", t->prefetch_misses);
    counter(f, "store_read_tokens_total", "Tokens that came from the store of prefixes.", k->read_tokens);
    counter(f, "store_put_tokens_total", "Tokens that went to the store of prefixes.", k->put_tokens);
}

static void write_http(FILE *f, ig_server *s) {
    ig_server_numbers *n = &s->numbers;
    pthread_mutex_lock(&n->lock);
    head(f, "http_replies_total", "counter", "Replies, by hundreds of their status.");
    for (int i = 2; i < 6; i++)
        fprintf(f, "infinigen_http_replies_total{status=\"%dxx\"} %" PRIu64 "\n", i, n->replies[i]);
    counter(f, "http_connections_lost_total", "Exchanges that did not come to their end.", n->gone);
    histogram(f, "time_to_first_token_seconds", "From a request's headers to its first token.", &n->first_token);
    histogram(f, "time_between_tokens_seconds", "Between two tokens of an answer.", &n->between_tokens);
    histogram(f, "request_wait_seconds", "Until a request got a place.", &n->wait);
    histogram(f, "request_prompt_seconds", "From there to its first token.", &n->prompt);
    histogram(f, "request_seconds", "From a request being handed to the scheduler to its end.", &n->whole);
    pthread_mutex_unlock(&n->lock);
    pthread_mutex_lock(&s->watch.lock);
    gauge(f, "http_connections", "Open connections.", s->watch.n);
    pthread_mutex_unlock(&s->watch.lock);
}

void ig_route_metrics(ig_call *c) {
    ig_scheduler_stats st;
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    if (f) {
        ig_scheduler_get_stats(c->server->scheduler, &st);
        write_requests(f, &st);
        head(f, "build_info", "gauge", "The program.");
        fprintf(f, "infinigen_build_info{version=\"%s\"} 1\n", ig_version());
        write_cache(f, &st, &c->server->o->scheduler.session.cache);
        write_http(f, c->server);
    }
    if (f && fclose(f) == 0)
        ig_reply(c, 200, "text/plain; version=0.0.4; charset=utf-8", "", text, n);
    else
        ig_refuse(c, 500, NULL, "out of memory");
    free(text);
}
