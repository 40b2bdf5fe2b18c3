/* SPDX-License-Identifier: Apache-2.0
 *
 * `infinigen logits`: raw logits after every token of a list, written row by
 * row as they are computed. Both files are little-endian, as this program's
 * machines are.
 */
#define _GNU_SOURCE
#include "cli/app.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

typedef struct logits_file {
    FILE *f;
    int n_vocab;
    int error; /* errno of a failed write */
} logits_file;

static bool write_rows(void *user, int first, int n_rows, const float *logits) {
    logits_file *out = user;
    (void)first;
    size_t n = (size_t)n_rows * (size_t)out->n_vocab;
    if (fwrite(logits, sizeof *logits, n, out->f) != n) out->error = errno;
    return out->error != 0 || ig_cli_interrupted() != 0;
}

static int check_tokens(const ig_cli_app *app, const ig_cli_text *file) {
    const ig_cli_options *o = app->o;
    if (file->n == 0 || file->n % sizeof(int32_t) != 0)
        return ig_cli_complain(o, "%s: %zu bytes are not a list of 32-bit token ids", o->tokens, file->n);
    if (file->n / sizeof(int32_t) > INT_MAX / 4) return ig_cli_complain(o, "%s: too many tokens", o->tokens);
    for (size_t i = 0; i < file->n / sizeof(int32_t); i++) {
        int32_t id;
        memcpy(&id, file->data + i * sizeof id, sizeof id);
        if (id < 0 || id >= app->info.n_vocab)
            return ig_cli_complain(o, "%s: token %zu is %d, not between 0 and %d", o->tokens, i, id,
                                   app->info.n_vocab - 1);
    }
    return IG_EXIT_OK;
}

static int compute(ig_cli_app *app, const int32_t *ids, int n, FILE *f) {
    const ig_cli_options *o = app->o;
    ig_session *s = NULL;
    ig_error err = {0};
    logits_file out = {f, app->info.n_vocab, 0};
    ig_session_options options = ig_session_defaults();
    options.n_ctx = n;
    options.n_batch = o->batch;
    options.cache.policy = ig_cli_prompt_policy(app->info.policy);
    options.progress = ig_cli_on_progress;
    options.progress_user = &app->prompt;
    app->prompt = ig_cli_progress_start("computing", "tokens");

    ig_status status = ig_session_open(&s, app->model, &options, &err);
    if (!status) status = ig_session_sync_logits(s, ids, n, write_rows, &out, &err);
    ig_cli_progress_end(&app->prompt);
    ig_session_close(s);
    if (out.error) return ig_cli_complain(o, "%s: %s", o->output, strerror(out.error));
    if (status) return ig_cli_fail(o, &err);
    return IG_EXIT_OK;
}

int ig_cli_logits(const ig_cli_options *o) {
    ig_cli_app app;
    ig_cli_text file = {0};
    FILE *f = NULL;
    if (!o->tokens || !o->output) {
        ig_cli_complain(o, "%s FILE is missing (see 'infinigen logits --help')", o->tokens ? "-o" : "--tokens");
        return IG_EXIT_USAGE;
    }
    int code = ig_cli_read_file(&file, o, o->tokens);
    if (code) return code;
    code = ig_cli_open(&app, o, false);
    if (!code) code = check_tokens(&app, &file);
    if (!code) {
        bool to_stdout = strcmp(o->output, "-") == 0;
        f = stdout;
        if (!to_stdout) code = ig_cli_create_file(&f, o, app.path, o->output);
        if (!code) {
            /* malloc aligned the file's bytes for any type. */
            code = compute(&app, (const int32_t *)(const void *)file.data, (int)(file.n / sizeof(int32_t)), f);
            if (!to_stdout)
                code = ig_cli_end_file(f, o, o->output, code);
            else if (fflush(f) != 0 && !code)
                code = ig_cli_complain(o, "%s: %s", o->output, strerror(errno));
        }
    }
    free(file.data);
    return ig_cli_close(&app, code);
}
