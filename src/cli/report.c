/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run did, as JSON (names that other programs rely on) and as lines
 * for people. Sizes are bytes, times seconds.
 */
#define _GNU_SOURCE
#include "cli/pairs.h"

#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

uint64_t ig_cli_peak_rss(void) {
    char line[256];
    unsigned long long kib = 0;
    FILE *f = fopen("/proc/self/status", "re");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "VmHWM: %llu kB", &kib) == 1) break;
    if (f) fclose(f);
    if (kib == 0) {
        struct rusage usage;
        if (getrusage(RUSAGE_SELF, &usage) == 0) kib = (unsigned long long)usage.ru_maxrss;
    }
    return kib * 1024;
}

void ig_cli_reset_peak_rss(void) {
    int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
    if (fd < 0) return;
    ssize_t written = write(fd, "5", 1); /* 5: forget the high-water mark */
    (void)written;
    close(fd);
}

static double share(double part, double whole) { return whole > 0 ? part / whole : 0; }

/* What the disk tier did. fetched_bytes_per_token and stall: of decoding and prefill together; read_bytes_per_token,
 * decode_stall and stall_share: of decoding alone, as for several policies. */
static void add_tiers(json_t *kv, const ig_session_stats *st) {
    uint64_t n = st->n_prefilled + st->n_decoded;
    json_object_set_new(kv, "disk", json_integer((json_int_t)st->disk_bytes));
    json_object_set_new(kv, "fetched_bytes_per_token", json_real(n ? (double)st->read_bytes / (double)n : 0));
    json_object_set_new(kv, "written_bytes", json_integer((json_int_t)st->written_bytes));
    json_object_set_new(kv, "prefetch_hits", json_integer((json_int_t)st->prefetch_hits));
    json_object_set_new(kv, "prefetch_misses", json_integer((json_int_t)st->prefetch_misses));
    json_object_set_new(kv, "demoted", json_integer((json_int_t)st->demoted));
    json_object_set_new(kv, "recalled", json_integer((json_int_t)st->recalled));
    json_object_set_new(kv, "stall", json_real(st->stall_seconds));
    json_object_set_new(kv, "read_bytes_per_token",
                        json_real(st->n_decoded ? (double)st->decode_read_bytes / (double)st->n_decoded : 0));
    json_object_set_new(kv, "decode_stall", json_real(st->decode_stall_seconds));
    json_object_set_new(kv, "stall_share", json_real(share(st->decode_stall_seconds, st->decode_seconds)));
}

/* What a GPU had copies of, and what came to it from RAM. */
static void add_vram(json_t *kv, const ig_session_stats *st) {
    json_object_set_new(
        kv, "vram",
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:f}", "bytes", (json_int_t)st->vram_bytes, "hits",
                  (json_int_t)st->vram_hits, "copied", (json_int_t)st->vram_copied, "rows", (json_int_t)st->vram_rows,
                  "read_bytes", (json_int_t)st->vram_read_bytes, "read_bytes_per_token",
                  st->n_decoded ? (double)st->decode_vram_read_bytes / (double)st->n_decoded : 0));
}

/* How much of dense attention the entries used held: over all audited heads, and per layer that is not dense. */
static void add_audit(json_t *report, const ig_session *s, int n_layers) {
    ig_cli_tally tally = {0};
    ig_cli_tally_session(&tally, s);
    json_t *audit = ig_cli_tally_audit(&tally);
    json_t *layers = json_array();
    for (int l = 0; l < n_layers; l++) {
        double mass = ig_session_audit(s, l);
        json_array_append_new(layers, mass < 0 ? json_null() : json_real(mass));
    }
    json_object_set_new(audit, "layers", layers);
    json_object_set_new(report, "audit", audit);
}

static void add_session(json_t *report, const ig_cli_app *app, const ig_session *s) {
    ig_session_stats st;
    ig_session_get_stats(s, &st);
    json_object_set_new(report, "policy", json_string(st.policy));
    json_object_set_new(report, "context", json_integer(ig_session_ctx(s)));
    json_t *speed = json_object_get(report, "speed"), *memory = json_object_get(report, "memory");
    if (st.n_prefilled)
        json_object_set_new(speed, "prompt_tps", json_real(ig_cli_per_second(st.n_prefilled, st.prefill_seconds)));
    if (app->o->kv_store) json_object_set_new(report, "tokens_stored", json_integer((json_int_t)st.n_taken));
    if (st.n_decoded)
        json_object_set_new(speed, "generation_tps", json_real(ig_cli_per_second(st.n_decoded, st.decode_seconds)));
    if (st.n_drafted)
        json_object_set_new(
            report, "drafts",
            json_pack("{s:I, s:I}", "computed", (json_int_t)st.n_drafted, "came_true", (json_int_t)st.n_draft_hits));
    json_object_set_new(memory, "kv", json_integer((json_int_t)st.kv_bytes));
    json_object_set_new(memory, "sketch", json_integer((json_int_t)st.sketch_bytes));
    json_object_set_new(memory, "scratch", json_integer((json_int_t)st.scratch_bytes));
    json_object_set_new(
        report, "kv",
        json_pack("{s:s, s:I, s:I, s:f, s:f, s:f, s:I}", "type", st.kv_type, "ram", (json_int_t)st.kv_bytes, "entries",
                  (json_int_t)st.n_entries, "selected_share", st.selected_share, "fetched_share", st.fetched_share,
                  "block_share", st.block_share, "dropped", (json_int_t)st.dropped));
    if (st.n_decoded) {
        ig_cli_tally tally = {0};
        ig_cli_tally_session(&tally, s);
        json_object_set_new(report, "step", ig_cli_tally_step(&tally));
    }
    if (st.vram_read_bytes) add_vram(json_object_get(report, "kv"), &st);
    if (st.written_bytes) add_tiers(json_object_get(report, "kv"), &st);
    if (st.n_audits) add_audit(report, s, app->info.n_attention_layers);
}

void ig_cli_report_weights(json_t *report, const ig_cli_app *app) {
    ig_weight_stats st;
    ig_model_get_weight_stats(app->model, &st);
    if (!st.ram_bytes && !st.vram_bytes) return;
    json_object_set_new(
        report, "weights",
        json_pack("{s:I, s:I, s:i, s:i, s:i, s:I, s:I, s:f, s:b}", "ram", (json_int_t)st.ram_bytes, "vram",
                  (json_int_t)st.vram_bytes, "streamed_layers", st.n_streamed_layers, "experts", st.n_experts,
                  "held_experts", st.n_held_experts, "read_bytes_per_step", (json_int_t)st.step_bytes, "read_bytes",
                  (json_int_t)st.read_bytes, "stall", st.wait_seconds, "direct", st.is_direct));
}

/* Bytes of memory that the weights take, those on a GPU too. */
static uint64_t count_weights(const ig_cli_app *app) {
    ig_weight_stats limited;
    ig_model_get_weight_stats(app->model, &limited);
    uint64_t held = limited.ram_bytes + limited.vram_bytes;
    return held ? held : app->info.weight_bytes;
}

json_t *ig_cli_report(const ig_cli_app *app, const ig_session *s) {
    const ig_model_info *info = &app->info;
    json_t *report = json_object();
    json_object_set_new(report, "model", ig_text_string(app->path));
    if (info->architecture[0]) json_object_set_new(report, "architecture", json_string(info->architecture));
    json_object_set_new(report, "threads", json_integer(ig_context_threads(app->ctx)));
    json_object_set_new(report, "device", json_string(ig_context_device(app->ctx)));
    json_object_set_new(report, "cpu", json_string(ig_context_cpu(app->ctx)));
    json_object_set_new(report, "speed", json_pack("{s:f}", "load", app->load_seconds));
    json_object_set_new(
        report, "memory",
        json_pack("{s:I, s:I}", "weights", (json_int_t)count_weights(app), "private", (json_int_t)info->private_bytes));
    if (s) add_session(report, app, s);
    ig_cli_report_weights(report, app);
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) == 0)
        json_object_set_new(
            json_object_get(report, "memory"), "page_faults",
            json_pack("{s:I, s:I}", "major", (json_int_t)usage.ru_majflt, "minor", (json_int_t)usage.ru_minflt));
    json_object_set_new(json_object_get(report, "memory"), "peak_rss", json_integer((json_int_t)ig_cli_peak_rss()));
    return report;
}

void ig_cli_report_first_token(json_t *report, double seconds) {
    json_object_set_new(json_object_get(report, "speed"), "first_token", json_real(seconds));
}

int ig_cli_print_json(json_t *value) {
    int failed = !value || json_dumpf(value, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) != 0;
    if (!failed) failed = putchar('\n') == EOF;
    json_decref(value);
    if (failed) fprintf(stderr, "infinigen: the report could not be written\n");
    return failed ? IG_EXIT_FAILED : IG_EXIT_OK;
}

/* As JSON has it, so that a share of 1.0 is no number of entries. */
static void print_csv_real(double value) {
    char text[32];
    snprintf(text, sizeof text, "%.9g", value);
    printf("%s%s", text, text[strspn(text, "-0123456789")] ? "" : ".0");
}

static void print_csv_text(const char *text) {
    putchar('"');
    for (; *text; text++) printf(*text == '"' ? "\"\"" : "%c", *text);
    putchar('"');
}

void ig_cli_print_csv(const char *const *columns, const json_t *row, bool with_names) {
    for (int i = 0; with_names && columns[i]; i++) printf("%s%s", columns[i], columns[i + 1] ? "," : "\n");
    for (int i = 0; columns[i]; i++) {
        const json_t *value = json_object_get(row, columns[i]);
        if (json_is_string(value))
            print_csv_text(json_string_value(value));
        else if (json_is_integer(value))
            printf("%lld", (long long)json_integer_value(value));
        else if (json_is_real(value))
            print_csv_real(json_real_value(value));
        else if (json_is_boolean(value))
            fputs(json_is_true(value) ? "true" : "false", stdout);
        putchar(columns[i + 1] ? ',' : '\n');
    }
}

/* What steps read of the weights, if they do. */
static void print_weights(const ig_cli_app *app) {
    ig_weight_stats st;
    char vram[32], ram[32], step[32], read[32];
    ig_model_get_weight_stats(app->model, &st);
    if (!st.step_bytes) return;
    ig_cli_size(ram, st.ram_bytes), ig_cli_size(step, st.step_bytes), ig_cli_size(read, st.read_bytes);
    if (st.vram_bytes) {
        fprintf(stderr, "weights     %s on the GPU, %s page-locked, %s%s copied in a step, %s in all; %.2f s waited\n",
                ig_cli_size(vram, st.vram_bytes), ram, st.n_experts ? "up to " : "", step, read, st.wait_seconds);
        return;
    }
    fprintf(stderr, "weights     %s in RAM, %s%s read in a step, %s in all%s; %.2f s waited\n", ram,
            st.n_experts ? "up to " : "", step, read, st.is_direct ? "" : " through the page cache", st.wait_seconds);
}

void ig_cli_print_audits(const ig_session *s) {
    ig_cli_tally tally = {0};
    ig_cli_flush();
    ig_cli_tally_session(&tally, s);
    ig_cli_print_audit(stderr, "audit      ", &tally);
}

void ig_cli_print_stats(const ig_cli_app *app, const ig_session *s) {
    ig_session_stats st;
    char weights[32], kv[32], sketch[32], peak[32];
    ig_session_get_stats(s, &st);
    ig_cli_flush(); /* what they are about comes first, also where both streams go to one place */
    fprintf(stderr, "prompt      %7llu tokens  %8.1f tokens/s", (unsigned long long)st.n_prefilled,
            ig_cli_per_second(st.n_prefilled, st.prefill_seconds));
    if (st.n_taken) fprintf(stderr, "  and %llu that were stored", (unsigned long long)st.n_taken);
    fputc('\n', stderr);
    if (st.n_decoded)
        fprintf(stderr, "generation  %7llu tokens  %8.1f tokens/s  policy %s, %.1f %% of the KV entries used\n",
                (unsigned long long)st.n_decoded, ig_cli_per_second(st.n_decoded, st.decode_seconds), st.policy,
                st.selected_share * 100);
    if (st.n_drafted)
        fprintf(stderr, "drafts      %7llu tokens computed ahead, of which %llu came", (unsigned long long)st.n_drafted,
                (unsigned long long)st.n_draft_hits);
    if (st.draft_seconds > 0)
        fprintf(stderr, "; the draft model took %.1f s of %.1f", st.draft_seconds, st.decode_seconds);
    if (st.n_drafted || st.draft_seconds > 0) fputc('\n', stderr);
    fprintf(stderr, "memory      weights %s, KV %s, sketch %s, peak %s; %d threads, %s\n",
            ig_cli_size(weights, count_weights(app)), ig_cli_size(kv, st.kv_bytes),
            ig_cli_size(sketch, st.sketch_bytes), ig_cli_size(peak, ig_cli_peak_rss()), ig_context_threads(app->ctx),
            ig_context_cpu(app->ctx));
    print_weights(app);
    ig_cli_print_audits(s);
    if (st.dropped) fprintf(stderr, "dropped     %llu entries\n", (unsigned long long)st.dropped);
    char disk[32], read[32];
    if (st.vram_read_bytes)
        fprintf(stderr, "GPU         %s of keys and values came from RAM, %s a step\n",
                ig_cli_size(read, st.vram_read_bytes),
                ig_cli_size(kv, st.n_decoded ? st.decode_vram_read_bytes / st.n_decoded : 0));
    if (!st.written_bytes) return;
    if (app->o->kv_map) {
        struct rusage usage = {0};
        getrusage(RUSAGE_SELF, &usage);
        fprintf(stderr, "pages       %s in the file, %s read when touched, %llu let go in %.2f s; %ld major faults\n",
                ig_cli_size(disk, st.disk_bytes), ig_cli_size(read, st.read_bytes), (unsigned long long)st.demoted,
                st.stall_seconds, usage.ru_majflt);
        return;
    }
    uint64_t wanted = st.prefetch_hits + st.prefetch_misses;
    fprintf(stderr,
            "disk        %s kept, %s read, %.0f %% of the blocks wanted were there in time; %.2f s waited, %.2f s "
            "in the generation (%.0f %% of it)\n",
            ig_cli_size(disk, st.disk_bytes), ig_cli_size(read, st.read_bytes),
            wanted ? 100.0 * (double)st.prefetch_hits / (double)wanted : 100.0, st.stall_seconds,
            st.decode_stall_seconds, share(st.decode_stall_seconds, st.decode_seconds) * 100);
}
