/* SPDX-License-Identifier: Apache-2.0
 *
 * `infinigen bench`: runs every combination of the lists and prints a line for
 * each as it is done, in llama-bench's manner.
 */
#define _GNU_SOURCE
#include "cli/pairs.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "eval/speed.h"

typedef struct bench_row {
    const ig_cli_pair *pair;
    int n_prompt, n_gen, depth, batch; /* one of n_prompt, n_gen is 0 */
    int n_samples;
    double seconds[1000];
    double selected_share; /* < 0: does not apply */
    bool has_disk;         /* generations only; then, over all samples: */
    double stall_seconds;
    double weight_seconds; /* of generations: stood still for weights */
    ig_cli_tally work;     /* of generations, over all samples */
    int n_stored;          /* samples of a prompt that was read from the store; 0: does not apply */
    double stored_ns[1000];
    uint64_t peak_rss;
    char test_time[32];
} bench_row;

typedef struct bench {
    ig_cli_app app;
    int32_t *ids; /* of -f, or NULL */
    size_t n_ids;
    char model_type[96];
    double read_speed; /* bytes a second of memory; 0: not known */
    bool has_disk;     /* the KV cache has a disk tier */
    bool has_gpu;
    uint64_t streamed; /* bytes of weights that a step reads from the file */
    bool has_store;
    ig_eval_speed *speed; /* of one depth */
    int n_rows;           /* printed so far */
    uint64_t done, total; /* runs */
    ig_cli_progress bar;
} bench;

/* ---- what is measured --------------------------------------------------------- */

/* "qwen2 494M Q4_K": architecture, size, and the type most weights are stored in. */
static void name_model_type(bench *b) {
    unsigned long long millions = (b->app.info.n_params + 500000) / 1000000;
    char params[48];
    if (millions < 1000)
        snprintf(params, sizeof params, "%lluM", millions);
    else
        snprintf(params, sizeof params, "%llu.%02lluB", millions / 1000, millions % 1000 / 10);
    snprintf(b->model_type, sizeof b->model_type, "%.20s %s %.15s", b->app.info.architecture, params,
             b->app.info.weight_type);
}

static int largest(const ig_cli_ints *list) {
    int most = 0;
    for (int i = 0; i < list->n; i++)
        if (list->v[i] > most) most = list->v[i];
    return most;
}

/* Of the row's sessions, which have room for all tests at its depth. */
static int context_of(const bench *b, const bench_row *row) {
    return ig_eval_speed_tokens(row->depth, largest(&b->app.o->n_prompt), largest(&b->app.o->n_gen));
}

/* ---- output ------------------------------------------------------------------ */

typedef struct row_result {
    ig_eval_summary ns, ts; /* time of a run; tokens per second */
    double gb_per_s;        /* 0 for prompts */
    double read, stall;     /* bytes of a step from disk; share of the time that was waited for it */
    double weight_stall;    /* the same for weights that are not in RAM */
    double stored_ns;       /* median */
} row_result;

static int tokens_of(const bench_row *row) { return row->n_prompt ? row->n_prompt : row->n_gen * row->batch; }

static row_result evaluate(const bench *b, const bench_row *row) {
    double ns[1000], ts[1000], seconds = 0;
    for (int i = 0; i < row->n_samples; i++) {
        seconds += row->seconds[i];
        ns[i] = row->seconds[i] * 1e9;
        ts[i] = tokens_of(row) / row->seconds[i];
    }
    row_result r = {ig_eval_summarize(ns, row->n_samples), ig_eval_summarize(ts, row->n_samples), 0, 0, 0, 0, 0};
    if (row->n_stored) r.stored_ns = ig_eval_summarize(row->stored_ns, row->n_stored).median;
    if (row->has_disk) {
        r.read = ig_cli_mean(row->work.read, row->work.n_decoded);
        r.stall = row->stall_seconds / seconds;
    }
    if (row->n_gen) r.weight_stall = row->weight_seconds / seconds;
    if (row->n_gen) r.gb_per_s = (double)b->app.info.decode_bytes * row->n_gen / r.ns.median;
    return r;
}

static void print_md_head(const bench *b) {
    char gb[32] = "GB/s";
    if (b->read_speed > 0) snprintf(gb, sizeof gb, "GB/s of %.1f", b->read_speed * 1e-9);
    printf("| %-24s | %8s | %8s | %7s | %-9s | %5s | %-14s | %20s | %9s | %12s | %7s | %8s |", "model", "size",
           "params", "threads", "policy", "batch", "test", "t/s", "median", gb, "KV used", "peak RSS");
    fputs(b->has_disk ? " read/step | stalled |" : "", stdout);
    fputs(b->has_gpu ? " to GPU/step |" : "", stdout);
    fputs(b->streamed ? " weights/step | for them |" : "", stdout);
    fputs(b->has_store ? "     stored |" : "", stdout);
    fputs(b->app.o->kv_budget.n > 1 ? "  budget |" : "", stdout);
    puts(ig_cli_has_settings(b->app.o) ? " settings             |" : "");
    printf(
        "| %s | -------: | -------: | ------: | %s | ----: | %s | -------------------: | --------: | -----------: | "
        "------: | -------: |",
        "------------------------", "---------", "--------------");
    fputs(b->has_disk ? " --------: | ------: |" : "", stdout);
    fputs(b->has_gpu ? " ----------: |" : "", stdout);
    fputs(b->streamed ? " -----------: | -------: |" : "", stdout);
    fputs(b->has_store ? " ---------: |" : "", stdout);
    fputs(b->app.o->kv_budget.n > 1 ? " ------: |" : "", stdout);
    puts(ig_cli_has_settings(b->app.o) ? " :------------------- |" : "");
}

static void print_md(const bench *b, const bench_row *row) {
    row_result r = evaluate(b, row);
    char test[64], rate[64], size[32], peak[32], gb[32] = "", share[32] = "", read[32] = "", stall[32] = "";
    char stored[32] = "", budget[32], settings[96];
    if (b->n_rows == 0) print_md_head(b);
    int n =
        snprintf(test, sizeof test, "%s%d", row->n_prompt ? "pp" : "tg", row->n_prompt ? row->n_prompt : row->n_gen);
    if (row->depth) snprintf(test + n, sizeof test - (size_t)n, " @ d%d", row->depth);
    snprintf(rate, sizeof rate, "%.2f ± %.2f", r.ts.mean, r.ts.deviation);
    if (r.gb_per_s > 0) snprintf(gb, sizeof gb, "%.2f", r.gb_per_s);
    if (row->selected_share >= 0) snprintf(share, sizeof share, "%.1f %%", row->selected_share * 100);
    /* The sign in the rate is two bytes but one column. */
    printf("| %-24s | %8s | %6.2f M | %7d | %-9s | %5d | %-14s | %21s | %9.2f | %12s | %7s | %8s |", b->model_type,
           ig_cli_size(size, b->app.info.weight_bytes), (double)b->app.info.n_params / 1e6,
           ig_context_threads(b->app.ctx), row->pair->cache.policy, row->batch, test, rate, r.ts.median, gb, share,
           ig_cli_size(peak, row->peak_rss));
    if (row->has_disk) {
        snprintf(read, sizeof read, "%.2f MB", r.read / 1e6);
        snprintf(stall, sizeof stall, "%.1f %%", r.stall * 100);
    }
    if (b->has_disk) printf(" %9s | %7s |", read, stall);
    if (b->has_gpu && row->n_gen)
        snprintf(read, sizeof read, "%.2f MB", ig_cli_mean(row->work.vram_read, row->work.n_decoded) / 1e6);
    if (b->has_gpu) printf(" %11s |", row->n_gen ? read : "");
    if (b->streamed) {
        snprintf(stall, sizeof stall, "%.1f %%", r.weight_stall * 100);
        printf(" %12s | %8s |", ig_cli_size(read, b->streamed), row->n_gen ? stall : "");
    }
    if (row->n_stored) snprintf(stored, sizeof stored, "%.1f ms", r.stored_ns / 1e6);
    if (b->has_store) printf(" %10s |", stored);
    if (b->app.o->kv_budget.n > 1) printf(" %7s |", ig_cli_pair_budget(budget, row->pair));
    if (ig_cli_has_settings(b->app.o))
        printf(" %-20s |", ig_cli_pair_settings(settings, row->pair, context_of(b, row), b->app.o));
    putchar('\n');
}

static json_t *json_of_row(const bench *b, const bench_row *row) {
    row_result r = evaluate(b, row);
    const ig_model_info *info = &b->app.info;
    json_t *o = json_object(), *ns = json_array(), *ts = json_array();
    for (int i = 0; i < row->n_samples; i++) {
        json_array_append_new(ns, json_integer((json_int_t)(row->seconds[i] * 1e9)));
        json_array_append_new(ts, json_real(tokens_of(row) / row->seconds[i]));
    }
    json_object_set_new(o, "build_commit", json_string(ig_version()));
    json_object_set_new(o, "device", json_string(ig_context_device(b->app.ctx)));
    json_object_set_new(o, "cpu", json_string(ig_context_cpu(b->app.ctx)));
    json_object_set_new(o, "model_filename", ig_text_string(b->app.path));
    json_object_set_new(o, "model_type", ig_text_string(b->model_type));
    json_object_set_new(o, "model_size", json_integer((json_int_t)info->weight_bytes));
    json_object_set_new(o, "model_n_params", json_integer((json_int_t)info->n_params));
    json_object_set_new(o, "n_batch", json_integer(b->app.o->batch));
    json_object_set_new(o, "n_threads", json_integer(ig_context_threads(b->app.ctx)));
    ig_cli_pair_fields(o, row->pair, context_of(b, row));
    json_object_set_new(o, "batch", json_integer(row->batch));
    json_object_set_new(o, "n_prompt", json_integer(row->n_prompt));
    json_object_set_new(o, "n_gen", json_integer(row->n_gen));
    json_object_set_new(o, "n_depth", json_integer(row->depth));
    json_object_set_new(o, "test_time", json_string(row->test_time));
    json_object_set_new(o, "avg_ns", json_integer((json_int_t)r.ns.mean));
    json_object_set_new(o, "stddev_ns", json_integer((json_int_t)r.ns.deviation));
    json_object_set_new(o, "avg_ts", json_real(r.ts.mean));
    json_object_set_new(o, "stddev_ts", json_real(r.ts.deviation));
    json_object_set_new(o, "median_ts", json_real(r.ts.median));
    json_object_set_new(o, "gb_per_s", r.gb_per_s > 0 ? json_real(r.gb_per_s) : json_null());
    if (b->read_speed > 0) json_object_set_new(o, "read_gb_per_s", json_real(b->read_speed * 1e-9));
    json_object_set_new(o, "selected_share", row->selected_share >= 0 ? json_real(row->selected_share) : json_null());
    json_object_set_new(o, "read_bytes_per_step", row->has_disk ? json_real(r.read) : json_null());
    json_object_set_new(o, "stall_share", row->has_disk ? json_real(r.stall) : json_null());
    json_object_set_new(o, "kv_on", json_string(row->pair->cache.memory.disk_bytes ? "disk" : "ram"));
    json_object_set_new(o, "step", row->n_gen ? ig_cli_tally_step(&row->work) : json_null());
    json_object_set_new(o, "weight_bytes_per_step", json_integer((json_int_t)b->streamed));
    json_object_set_new(o, "weight_stall_share", row->n_gen ? json_real(r.weight_stall) : json_null());
    json_object_set_new(o, "stored_ns", row->n_stored ? json_integer((json_int_t)r.stored_ns) : json_null());
    json_object_set_new(o, "peak_rss", json_integer((json_int_t)row->peak_rss));
    json_object_set_new(o, "samples_ns", ns);
    json_object_set_new(o, "samples_ts", ts);
    return o;
}

/* Under the parts of a step's time: how busy all threads were in them, in percent, and how many tasks they had. */
static void print_threads(const bench *b, const ig_cli_tally *t, double n) {
    static const char *const names[] = {"busy, %", "tasks"};
    double n_threads = ig_context_threads(b->app.ctx), all[2] = {0};
    for (int p = 0; p < IG_STEP_PARTS; p++) all[0] += t->parts[p].busy_seconds, all[1] += t->parts[p].n_tasks / n;
    all[0] *= t->seconds > 0 ? 100 / (t->seconds * n_threads) : 0;
    for (int row = 0; row < 2; row++) {
        printf("| %7s | %16s | %7s | %20s | %5s | %-14s | %4s | %8.*f |", "", "", "", "", "", names[row], "", 1 - row,
               all[row]);
        for (int p = 0; p < IG_STEP_PARTS; p++) {
            const ig_part_work *w = &t->parts[p];
            double busy = w->seconds > 0 ? 100 * w->busy_seconds / (w->seconds * n_threads) : 0;
            printf(" %7.*f |", 1 - row, row ? w->n_tasks / n : busy);
        }
        printf(" %9s | %9s | %9s |\n", "", "", "");
    }
}

/* The parts of a step's time. */
static void print_breakdown(const bench *b, const bench_row *row) {
    const ig_cli_tally *t = &row->work;
    char budget[32], settings[96], test[32];
    double n = (double)(t->n_decoded ? t->n_decoded : 1), ms = 1e3 / n;
    if (b->n_rows == 0) {
        printf("| %7s | %-16s | %7s | %-20s | %5s | %-14s | %4s | %8s |", "threads", "policy", "budget", "settings",
               "batch", "test", "KV", "step ms");
        for (int p = 0; p < IG_STEP_PARTS; p++) printf(" %7s |", ig_cli_part_names[p]);
        printf(" %9s | %9s | %9s |\n", "used", "seen", "read/step");
        printf(
            "| ------: | :--------------- | ------: | :------------------- | ----: | :------------- | ---: | -------: "
            "|");
        for (int p = 0; p < IG_STEP_PARTS; p++) printf(" ------: |");
        printf(" --------: | --------: | --------: |\n");
    }
    snprintf(test, sizeof test, "tg%d @ d%d", row->n_gen, row->depth);
    printf("| %7d | %-16s | %7s | %-20s | %5d | %-14s | %4s | %8.3f |", ig_context_threads(b->app.ctx),
           row->pair->cache.policy, ig_cli_pair_budget(budget, row->pair),
           ig_cli_pair_settings(settings, row->pair, context_of(b, row), b->app.o), row->batch, test,
           row->has_disk ? "disk" : "RAM", t->seconds * ms);
    for (int p = 0; p < IG_STEP_PARTS; p++) printf(" %7.3f |", t->parts[p].seconds * ms);
    printf(" %9.0f | %9.0f | %6.2f MB |\n", t->used / n, t->seen / n, t->read / n / 1e6);
    print_threads(b, t, n);
}

/* The columns are the names of the JSON fields, without the samples. */
static void print_csv(const bench *b, const bench_row *row) {
    json_t *o = json_of_row(b, row);
    json_object_update(o, json_object_get(o, "step")); /* its parts and counts are columns too */
    json_object_update(o, json_object_get(json_object_get(o, "step"), "parts"));
    static const char *const columns[] = {"build_commit",
                                          "device",
                                          "cpu",
                                          "model_filename",
                                          "model_type",
                                          "model_size",
                                          "model_n_params",
                                          "n_batch",
                                          "n_threads",
                                          "policy",
                                          "budget",
                                          "kv_type",
                                          "alpha",
                                          "partial",
                                          "limit",
                                          "evict",
                                          "sketch",
                                          "batch",
                                          "n_prompt",
                                          "n_gen",
                                          "n_depth",
                                          "test_time",
                                          "avg_ns",
                                          "stddev_ns",
                                          "avg_ts",
                                          "stddev_ts",
                                          "median_ts",
                                          "gb_per_s",
                                          "read_gb_per_s",
                                          "selected_share",
                                          "read_bytes_per_step",
                                          "stall_share",
                                          "stored_ns",
                                          "peak_rss",
                                          "weight_bytes_per_step",
                                          "weight_stall_share",
                                          "kv_on",
                                          "seconds",
                                          "entries_used",
                                          "entries_seen",
                                          "read_bytes",
#define PART_COLUMN(name, text) text,
                                          IG_STEP_PART_LIST(PART_COLUMN)
#undef PART_COLUMN
                                              NULL};
    ig_cli_print_csv(columns, o, b->n_rows == 0);
    json_decref(o);
}

static void print_row(bench *b, const bench_row *row) {
    ig_cli_progress_end(&b->bar);
    if (strcmp(b->app.o->format, "csv") == 0) {
        print_csv(b, row);
    } else if (strcmp(b->app.o->format, "json") == 0) {
        json_t *o = json_of_row(b, row);
        fputs(b->n_rows ? ",\n" : "[\n", stdout);
        json_dumpf(o, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
        json_decref(o);
    } else if (b->app.o->breakdown) {
        print_breakdown(b, row);
    } else {
        print_md(b, row);
    }
    ig_cli_flush();
    b->n_rows++;
}

/* ---- the runs ----------------------------------------------------------------- */

static bool stopped(void) { return ig_cli_interrupted() != 0; }

/* Of sessions: nothing is drawn while the clock runs. */
static bool on_step(void *user, uint64_t done, uint64_t total) {
    (void)user, (void)done, (void)total;
    return stopped();
}

/* A prompt is computed into the store, if it is not there yet, and read in each repetition, if the policy takes it. */
static ig_status run_stored(bench *b, bench_row *row, ig_error *err) {
    double seconds = 0;
    row->n_stored = 0;
    ig_status status = ig_eval_speed_store(b->speed, row->n_prompt, err);
    for (int r = 0; !status && r < b->app.o->repetitions; r++) {
        if (stopped()) return (*err = (ig_error){IG_E_INTERRUPTED, "interrupted"}).status;
        status = ig_eval_speed_stored(&seconds, b->speed, row->n_prompt, err);
        if (seconds < 0) break;
        if (!status) row->stored_ns[row->n_stored++] = seconds * 1e9;
    }
    return status;
}

/* Steps, whatever the number of their sequences. */
static void count_work(ig_cli_tally *sum, const ig_eval_generation *done, int n_steps) {
    ig_cli_tally more = {.n_decoded = (uint64_t)n_steps,
                         .seconds = done->seconds,
                         .read = done->read_bytes,
                         .vram_read = done->vram_read_bytes,
                         .used = done->used_entries,
                         .seen = done->seen_entries};
    memcpy(more.parts, done->parts, sizeof more.parts);
    ig_cli_tally_add(sum, &more);
}

/* One untimed run, then the repetitions. */
static int run_row(bench *b, bench_row *row) {
    ig_error err = {0};
    time_t now = time(NULL);
    struct tm utc;
    strftime(row->test_time, sizeof row->test_time, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    ig_cli_reset_peak_rss();
    row->selected_share = -1;
    row->n_samples = 0;
    row->has_disk = row->pair->cache.memory.disk_bytes && row->n_gen;
    for (int r = -1; r < b->app.o->repetitions; r++) {
        ig_eval_generation done = {.selected_share = -1};
        /* A short generation warms up as well as a long one. */
        int n_gen = r < 0 && row->n_gen > 4 ? 4 : row->n_gen;
        ig_status status = row->n_prompt ? ig_eval_speed_prompt(&done.seconds, b->speed, row->n_prompt, &err)
                                         : ig_eval_speed_generate(&done, b->speed, n_gen, row->batch, &err);
        /* A prompt of one step is not asked while it is computed. */
        if (!status && stopped() && r + 1 < b->app.o->repetitions)
            err = (ig_error){status = IG_E_INTERRUPTED, "interrupted"};
        if (status) {
            ig_cli_progress_end(&b->bar);
            return ig_cli_fail(b->app.o, &err);
        }
        ig_cli_progress_show(&b->bar, ++b->done, b->total);
        if (r < 0) continue;
        row->seconds[row->n_samples++] = done.seconds;
        row->selected_share = done.selected_share;
        row->stall_seconds += done.stall_seconds;
        count_work(&row->work, &done, row->n_gen);
        row->weight_seconds += done.weight_seconds;
    }
    row->peak_rss = ig_cli_peak_rss();
    if (b->has_store && row->n_prompt && run_stored(b, row, &err)) {
        ig_cli_progress_end(&b->bar);
        return ig_cli_fail(b->app.o, &err);
    }
    print_row(b, row);
    return IG_EXIT_OK;
}

/* Runs of all tests: a number that is 0 is no test, and --breakdown has no prompts, but a second row with a disk. */
static uint64_t count_runs(const bench *b, int n_pairs) {
    const ig_cli_options *o = b->app.o;
    int n = 0;
    for (int i = 0; i < o->n_prompt.n && !o->breakdown; i++) n += o->n_prompt.v[i] > 0;
    for (int i = 0; i < o->n_gen.n; i++) n += o->n_gen.v[i] > 0 ? o->batches.n : 0;
    if (o->breakdown && b->has_disk) n *= 2;
    return (uint64_t)n * (uint64_t)n_pairs * (uint64_t)o->depth.n * (uint64_t)(o->repetitions + 1);
}

/* The tokens of -f, enough for every test. */
static int read_text(bench *b, const ig_cli_text *text) {
    const ig_cli_options *o = b->app.o;
    int code = ig_cli_tokens(&b->ids, &b->n_ids, &b->app, text->data, text->n, IG_TOKENIZE_ADD_SPECIAL);
    size_t need = (size_t)ig_eval_speed_tokens(largest(&o->depth), largest(&o->n_prompt), largest(&o->n_gen));
    if (!code && b->n_ids < need)
        code =
            ig_cli_complain(o, "%s: %zu tokens are less than the %zu that -d, -p and -n need", o->file, b->n_ids, need);
    return code;
}

/* Sessions for a pair's tests at one depth: those of the pair before, which hold what stands before the tests, if there
 * are any. */
static ig_status open_speed(bench *b, const ig_cache_options *cache, int depth, ig_error *err) {
    const ig_cli_options *o = b->app.o;
    if (b->speed) return ig_eval_speed_set_cache(b->speed, cache, err);
    ig_eval_speed_options options = {
        .session = ig_cli_session_options(&b->app),
        .depth = depth,
        .n_prompt = largest(&o->n_prompt),
        .n_gen = largest(&o->n_gen),
        .max_batch = largest(&o->batches),
        .ids = b->ids,
        .n_ids = b->n_ids < INT_MAX ? (int)b->n_ids : INT_MAX,
        .bos = ig_token_adds_bos(b->app.model) ? ig_token_bos(b->app.model) : -1,
        .stopped = stopped,
    };
    options.session.cache = *cache;
    options.session.progress = on_step;
    return ig_eval_speed_open(&b->speed, b->app.model, &options, err);
}

/* All tests of one pair at one depth, or its generations alone. */
static int run_pair(bench *b, const ig_cli_pair *pair, int depth, bool prompts) {
    static bench_row row;
    const ig_cli_options *o = b->app.o;
    ig_error err = {0};
    if (open_speed(b, &pair->cache, depth, &err)) return ig_cli_fail(o, &err);
    int code = IG_EXIT_OK;
    for (int i = 0; !code && prompts && i < o->n_prompt.n; i++) {
        row = (bench_row){.pair = pair, .n_prompt = o->n_prompt.v[i], .depth = depth, .batch = 1};
        if (row.n_prompt) code = run_row(b, &row);
    }
    for (int k = 0; !code && k < o->batches.n; k++)
        for (int i = 0; !code && i < o->n_gen.n; i++) {
            row = (bench_row){.pair = pair, .n_gen = o->n_gen.v[i], .depth = depth, .batch = o->batches.v[k]};
            if (row.n_gen) code = run_row(b, &row);
        }
    return code;
}

/* All pairs at one depth; with --breakdown also what generations take without a slower tier. */
static int run_depth(bench *b, const ig_cli_pairs *pairs, int depth) {
    const ig_cli_options *o = b->app.o;
    int code = IG_EXIT_OK;
    for (int p = 0; !code && p < pairs->n; p++) {
        ig_cli_pair ideal = pairs->v[p];
        code = run_pair(b, &pairs->v[p], depth, !o->breakdown);
        if (!o->breakdown || !ideal.cache.memory.disk_bytes) continue;
        ideal.cache.memory.ram_bytes = ideal.cache.memory.disk_bytes = 0;
        ideal.cache.memory.disk_path = NULL;
        if (!code) code = run_pair(b, &ideal, depth, false);
    }
    ig_eval_speed_close(b->speed);
    b->speed = NULL;
    return code;
}

/* Whether every pair can be opened at every depth: better said now than after hours. */
static int check_pairs(bench *b, const ig_cli_pairs *pairs) {
    const ig_cli_options *o = b->app.o;
    int code = IG_EXIT_OK, n_prompt = largest(&o->n_prompt), n_gen = largest(&o->n_gen), batch = largest(&o->batches);
    for (int d = 0; !code && d < o->depth.n; d++)
        code = ig_cli_check_pairs(&b->app, pairs, ig_eval_speed_tokens(o->depth.v[d], n_prompt, n_gen), batch);
    return code;
}

/* All tests with a number of threads. */
static int run_threads(bench *b, const ig_cli_options *o, const ig_cli_text *text) {
    ig_cli_pairs pairs = {0};
    int code = ig_cli_open(&b->app, o, false);
    if (!code && o->file) code = read_text(b, text);
    if (!code) {
        ig_session_options session = ig_cli_session_options(&b->app);
        code = ig_cli_open_pairs(&pairs, &b->app, &session.cache);
        if (!code) code = check_pairs(b, &pairs);
        name_model_type(b);
        ig_weight_stats weights;
        ig_model_get_weight_stats(b->app.model, &weights);
        b->streamed = weights.step_bytes;
        b->has_gpu = strcmp(ig_context_device(b->app.ctx), "cpu") != 0;
        ig_context_read_speed(&b->read_speed, b->app.ctx, NULL); /* without it a table says less */
        b->done = 0;
        b->total = count_runs(b, pairs.n);
        b->bar = ig_cli_progress_start("measuring", "runs");
    }
    for (int d = 0; !code && d < o->depth.n; d++) code = run_depth(b, &pairs, o->depth.v[d]);
    ig_cli_progress_end(&b->bar);
    ig_cli_close_pairs(&pairs);
    free(b->ids);
    b->ids = NULL;
    return ig_cli_close(&b->app, code);
}

int ig_cli_bench(const ig_cli_options *o) {
    if (o->server) return ig_cli_bench_server(o);
    bench b = {.has_disk = (o->kv_ram || o->kv_disk) && !o->kv_map, .has_store = o->kv_store != NULL};
    ig_cli_text text = {0};
    if (o->breakdown && largest(&o->n_gen) == 0) {
        ig_cli_complain(o, "--breakdown is of generations, and -n is 0");
        return IG_EXIT_USAGE;
    }
    if (largest(&o->n_prompt) == 0 && largest(&o->n_gen) == 0) {
        ig_cli_complain(o, "-p and -n are both 0: nothing to measure");
        return IG_EXIT_USAGE;
    }
    if (largest(&o->n_gen) && largest(&o->batches) > o->batch) {
        ig_cli_complain(o, "-b %d: steps of at most %d tokens hold fewer; give -ub", largest(&o->batches), o->batch);
        return IG_EXIT_USAGE;
    }
    int code = o->file ? ig_cli_read_file(&text, o, o->file) : IG_EXIT_OK;
    for (int t = 0; !code && t < o->thread_counts.n; t++) {
        ig_cli_options one = *o;
        one.threads = o->thread_counts.v[t];
        code = run_threads(&b, &one, &text);
    }
    free(text.data);
    if (b.n_rows && strcmp(o->format, "json") == 0) fputs("\n]\n", stdout);
    return code;
}
