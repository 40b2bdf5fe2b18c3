/* SPDX-License-Identifier: Apache-2.0
 *
 * `infinigen bench --server`: every combination of clients, prompt and answer lengths as load on a server, a line for
 * each as it is done.
 */
#define _GNU_SOURCE
#include "cli/app.h"

#include <string.h>

#include "eval/load.h"

typedef struct bench {
    const ig_cli_options *o;
    ig_eval_load *load;
    uint64_t seed;
    int n_rows;
    bool has_failed; /* a request */
    ig_cli_progress bar;
} bench;

/* ---- output ------------------------------------------------------------------ */

static void print_md_head(void) {
    printf("| %-24s | %7s | %-24s | %8s | %6s | %10s | %9s | %26s | %26s | %22s | %7s |\n", "model", "clients", "test",
           "requests", "failed", "prompt t/s", "t/s", "first token, ms", "between tokens, ms", "whole, s", "cached");
    printf(
        "| %.24s | ------: | %.24s | -------: | -----: | ---------: | --------: | %.25s: | %.25s: | %.21s: | ------: "
        "|\n",
        "--------------------------", "--------------------------", "--------------------------",
        "--------------------------", "--------------------------");
}

/* "812.1 / 1530.0 / 1911.8": median, 90 and 99 of 100, times `unit`. */
static const char *format_times(char out[64], const ig_eval_quantiles *q, double unit) {
    snprintf(out, 64, "%.*f / %.*f / %.*f", unit > 1 ? 1 : 2, q->median * unit, unit > 1 ? 1 : 2, q->p90 * unit,
             unit > 1 ? 1 : 2, q->p99 * unit);
    return out;
}

static void print_md(const bench *b, const ig_eval_load_test *t, const ig_eval_load_result *r) {
    char test[64], first[64], between[64], whole[64];
    if (b->n_rows == 0) print_md_head();
    int n = snprintf(test, sizeof test, "pp%d tg%d", t->n_prompt, t->n_gen);
    if (t->n_shared) snprintf(test + n, sizeof test - (size_t)n, ", %d shared", t->n_shared);
    printf("| %-24.24s | %7d | %-24s | %8d | %6d | %10.2f | %9.2f | %26s | %26s | %22s | %5.1f %% |\n",
           ig_eval_load_model(b->load), t->n_clients, test, r->n_done, r->n_failed,
           ig_cli_per_second(r->prompt_tokens, r->seconds), ig_cli_per_second(r->answer_tokens, r->seconds),
           format_times(first, &r->first_token, 1e3), format_times(between, &r->between_tokens, 1e3),
           format_times(whole, &r->whole, 1),
           r->prompt_tokens ? 100 * (double)r->cached_tokens / (double)r->prompt_tokens : 0);
}

static void add_times(json_t *o, const char *name, const ig_eval_quantiles *q) {
    const struct {
        const char *suffix;
        double seconds;
    } parts[] = {{"median", q->median}, {"p90", q->p90}, {"p99", q->p99}};
    for (int i = 0; i < 3; i++) {
        char key[64];
        snprintf(key, sizeof key, "%s_%s", name, parts[i].suffix);
        json_object_set_new(o, key, json_real(parts[i].seconds));
    }
}

static json_t *json_of(const bench *b, const ig_eval_load_test *t, const ig_eval_load_result *r) {
    const char *model = ig_eval_load_model(b->load);
    json_t *o = json_pack(
        "{s:o, s:o, s:i, s:i, s:i, s:i, s:I, s:b, s:i, s:i, s:f, s:I, s:I, s:I, s:f, s:f}", "server",
        ig_text_string(b->o->server), "model", ig_text_string(model), "n_clients", t->n_clients, "n_prompt",
        t->n_prompt, "n_shared", t->n_shared, "n_gen", t->n_gen, "seed", (json_int_t)b->seed, "prompt_is_tokens",
        ig_eval_load_takes_tokens(b->load), "requests", r->n_done, "failed", r->n_failed, "seconds", r->seconds,
        "prompt_tokens", (json_int_t)r->prompt_tokens, "cached_tokens", (json_int_t)r->cached_tokens,
        "generated_tokens", (json_int_t)r->answer_tokens, "prompt_ts", ig_cli_per_second(r->prompt_tokens, r->seconds),
        "generated_ts", ig_cli_per_second(r->answer_tokens, r->seconds));
    add_times(o, "first_token_seconds", &r->first_token);
    add_times(o, "between_tokens_seconds", &r->between_tokens);
    add_times(o, "request_seconds", &r->whole);
    json_object_set_new(o, "first_error", r->error[0] ? ig_text_string(r->error) : json_null());
    return o;
}

/* The columns are the fields of the JSON object, in their order. */
static void print_csv(json_t *o, bool with_names) {
    const char *columns[32], *name;
    json_t *value;
    size_t n = 0;
    json_object_foreach(o, name, value) columns[n++] = name;
    columns[n] = NULL;
    ig_cli_print_csv(columns, o, with_names);
}

static void print_row(bench *b, const ig_eval_load_test *t, const ig_eval_load_result *r) {
    ig_cli_progress_end(&b->bar);
    if (strcmp(b->o->format, "md") == 0) {
        print_md(b, t, r);
    } else {
        json_t *o = json_of(b, t, r);
        if (strcmp(b->o->format, "csv") == 0) {
            print_csv(o, b->n_rows == 0);
        } else {
            fputs(b->n_rows ? ",\n" : "[\n", stdout);
            json_dumpf(o, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
        }
        json_decref(o);
    }
    ig_cli_flush();
    b->n_rows++;
}

/* ---- the tests ----------------------------------------------------------------- */

static bool on_request(void *user, uint64_t done, uint64_t total) {
    bench *b = user;
    ig_cli_progress_show(&b->bar, done, total);
    return ig_cli_interrupted() != 0;
}

/* Not IG_EXIT_OK: no further test. */
static int run_test(bench *b, const ig_eval_load_test *t) {
    ig_eval_load_result r;
    ig_error err = {0};
    b->bar = ig_cli_progress_start("measuring", "requests");
    ig_status status = ig_eval_load_run(&r, b->load, t, &err);
    ig_cli_progress_end(&b->bar);
    if (status) return ig_cli_fail(b->o, &err);
    if (r.n_done || !r.is_interrupted) print_row(b, t, &r);
    b->has_failed |= r.n_failed > 0;
    if (r.n_failed)
        ig_cli_complain(b->o, "%d of %d requests failed; the first: %s", r.n_failed, r.n_failed + r.n_done, r.error);
    if (r.is_interrupted) return ig_cli_fail(b->o, &(ig_error){IG_E_INTERRUPTED, "interrupted"});
    return r.n_done ? IG_EXIT_OK : IG_EXIT_FAILED;
}

/* Tokens that all prompts begin with; at least one is each prompt's own. */
static int count_shared(const ig_cli_options *o, int n_prompt) {
    double n = o->shared.share > 0 ? o->shared.share * n_prompt : (double)o->shared.number;
    return n < n_prompt ? (int)n : n_prompt - 1;
}

static int run_all(bench *b) {
    const ig_cli_options *o = b->o;
    static const ig_cli_ints one = {.n = 1, .v = {1}};
    const ig_cli_ints *clients = o->clients.n ? &o->clients : &one;
    int code = IG_EXIT_OK;
    for (int p = 0; !code && p < o->n_prompt.n; p++)
        for (int g = 0; !code && g < o->n_gen.n; g++)
            for (int c = 0; !code && c < clients->n; c++) {
                const ig_eval_load_test t = {.n_clients = clients->v[c],
                                             .n_requests = o->repetitions,
                                             .n_prompt = o->n_prompt.v[p],
                                             .n_shared = count_shared(o, o->n_prompt.v[p]),
                                             .n_gen = o->n_gen.v[g]};
                code = run_test(b, &t);
            }
    return code || !b->has_failed ? code : IG_EXIT_FAILED;
}

int ig_cli_bench_server(const ig_cli_options *o) {
    bench b = {.o = o, .seed = ig_cli_seed(o) & 0x7fffffff};
    ig_error err = {0};
    for (int i = 0; i < o->n_prompt.n + o->n_gen.n; i++)
        if ((i < o->n_prompt.n ? o->n_prompt.v[i] : o->n_gen.v[i - o->n_prompt.n]) < 1) {
            ig_cli_complain(o, "--server: a request has a prompt and an answer: -p and -n must be 1 or more");
            return IG_EXIT_USAGE;
        }
    ig_cli_catch_interrupts(false);
    const char *key = o->api_key ? o->api_key : ig_cli_read_environment().api_key;
    const ig_eval_load_options options = {
        .url = o->server, .key = key, .model = o->model, .seed = b.seed, .progress = on_request, .user = &b};
    if (ig_eval_load_open(&b.load, &options, &err)) return ig_cli_fail(o, &err);
    int code = run_all(&b);
    if (b.n_rows && strcmp(o->format, "json") == 0) fputs("\n]\n", stdout);
    ig_eval_load_close(b.load);
    return code;
}
