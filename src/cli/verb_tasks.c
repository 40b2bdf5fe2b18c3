/* SPDX-License-Identifier: Apache-2.0
 *
 * `infinigen tasks`: has samples made, each fitted to its length, and writes
 * them as a task file. A line depends on its task, length, number and seed
 * alone, and on what counts and fills it, not on what else is asked for.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/app.h"
#include "eval/make.h"

/* A token, where there is no tokenizer to ask. */
enum { CHARACTERS_OF_TOKEN = 4 };

typedef struct making {
    ig_cli_app app; /* without a model where lengths are of characters */
    ig_eval_filler *filler;
    FILE *out;
    const char *out_name;
    ig_cli_progress bar;
    uint64_t done, total;
} making;

static int64_t count_characters(void *user, const char *text, size_t n, ig_error *err) {
    (void)user;
    (void)err;
    return (int64_t)ig_text_count(text, n);
}

static int64_t count_tokens(void *user, const char *text, size_t n, ig_error *err) {
    const making *m = user;
    size_t tokens;
    if (ig_tokenize(&tokens, m->app.model, text, n, 0, NULL, 0, err)) return -1;
    return (int64_t)tokens + ig_token_adds_bos(m->app.model);
}

static int open_filler(making *m, const ig_cli_options *o) {
    ig_cli_text text = {0};
    ig_error err = {0};
    int code = o->file ? ig_cli_read_file(&text, o, o->file) : IG_EXIT_OK;
    if (code) return code;
    /* What is not UTF-8 has no place in JSON. */
    json_t *clean = o->file ? ig_text_stringn(text.data, text.n) : NULL;
    if (o->file && !clean)
        code = ig_cli_complain(o, "%s: out of memory for %zu bytes", o->file, text.n);
    else if (ig_eval_filler_open(&m->filler, o->file ? o->file : "filler", json_string_value(clean),
                                 json_string_length(clean), &err))
        code = ig_cli_fail(o, &err);
    json_decref(clean);
    free(text.data);
    return code;
}

static int fail_writing(const making *m, const ig_cli_options *o) {
    return ig_cli_complain(o, "%s: %s", m->out_name, errno ? strerror(errno) : "writing failed");
}

static const char *unit_of(const making *m) { return m->app.model ? "tokens" : "characters"; }

static int make_one(json_t **line, making *m, const ig_cli_options *o, const char *task, int length, int i) {
    ig_error err = {0};
    bool has_model = m->app.model != NULL;
    ig_eval_make_options options = {.length = length,
                                    .i_sample = i,
                                    .n_all = o->each,
                                    .seed = o->sample_seed,
                                    .filler = m->filler,
                                    .count = has_model ? count_tokens : count_characters,
                                    .user = m,
                                    .token_units = has_model ? 1 : CHARACTERS_OF_TOKEN};
    if (ig_cli_interrupted()) {
        ig_cli_complain(o, "interrupted");
        return IG_EXIT_INTERRUPTED;
    }
    ig_status status = ig_eval_make(line, task, &options, &err);
    if (status == IG_E_LIMIT)
        return ig_cli_complain(o, "%s %s (-c; --task says which tasks to make)", err.text, unit_of(m));
    return status ? ig_cli_fail(o, &err) : IG_EXIT_OK;
}

static int write_one(making *m, const ig_cli_options *o, const char *task, int length, int i) {
    json_t *line;
    int code = make_one(&line, m, o, task, length, i);
    if (code) return code;
    json_object_set_new(line, "unit", json_string(unit_of(m)));
    errno = 0;
    bool written = json_dumpf(line, m->out, JSON_COMPACT) == 0 && fputc('\n', m->out) != EOF;
    json_decref(line);
    ig_cli_progress_show(&m->bar, ++m->done, m->total);
    return written ? IG_EXIT_OK : fail_writing(m, o);
}

static size_t n_tasks(const ig_cli_options *o) {
    size_t n = 0;
    while (ig_eval_make_name(n)) n++;
    return o->recipes.n ? (size_t)o->recipes.n : n;
}

static const char *task_name(const ig_cli_options *o, size_t i) {
    return o->recipes.n ? o->recipes.v[i] : ig_eval_make_name(i);
}

/* Whether each task fits into the shortest length, before anything is written. */
static int check_lengths(making *m, const ig_cli_options *o) {
    int shortest = o->lengths.v[0], code = IG_EXIT_OK;
    for (int l = 1; l < o->lengths.n; l++)
        if (o->lengths.v[l] < shortest) shortest = o->lengths.v[l];
    for (size_t t = 0; !code && t < n_tasks(o); t++) {
        json_t *line = NULL;
        code = make_one(&line, m, o, task_name(o, t), shortest, 0);
        json_decref(line);
    }
    return code;
}

static int make_all(making *m, const ig_cli_options *o) {
    int code = IG_EXIT_OK;
    size_t n = n_tasks(o);
    m->total = (uint64_t)n * (uint64_t)o->lengths.n * (uint64_t)o->each;
    m->bar = ig_cli_progress_start("making", "questions");
    for (size_t t = 0; t < n; t++) {
        for (int l = 0; l < o->lengths.n; l++)
            for (int i = 0; !code && i < o->each; i++) code = write_one(m, o, task_name(o, t), o->lengths.v[l], i);
    }
    ig_cli_progress_end(&m->bar);
    return code;
}

static int write_all(making *m, const ig_cli_options *o) {
    int code = check_lengths(m, o);
    if (code) return code;
    bool is_file = o->output && strcmp(o->output, "-") != 0;
    m->out = stdout;
    m->out_name = is_file ? o->output : "standard output";
    if (is_file) code = ig_cli_create_file(&m->out, o, m->app.path, o->output);
    if (code) return code;
    code = make_all(m, o);
    return is_file ? ig_cli_end_file(m->out, o, o->output, code) : code;
}

int ig_cli_tasks(const ig_cli_options *o) {
    making m = {.app = {.o = o}};
    int code = open_filler(&m, o);
    ig_cli_catch_interrupts(false);
    if (!code && o->model) code = ig_cli_open(&m.app, o, true);
    if (!code && o->model && !m.app.info.has_tokenizer) code = ig_cli_complain(o, "%s has no tokenizer", m.app.path);
    if (!code) code = write_all(&m, o);
    ig_eval_filler_close(m.filler);
    return ig_cli_close(&m.app, code);
}
