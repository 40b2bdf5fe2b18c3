/* SPDX-License-Identifier: Apache-2.0
 *
 * `infinigen prepare`: writes the sketch of a model's keys where later runs look for it. Also where a run's sketch
 * comes from: --kv-sketch, or that place. The skew of the policy infinigen-osdi24 lies beside the sketch of infinigen,
 * and is made when it is first wanted.
 */
#define _GNU_SOURCE
#include "cli/app.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "infinigen_tools.h"
#include "text/clock.h"

static bool wants_skew(const char *policy) {
    const ig_policy_info *info = ig_cache_policy_find(policy);
    return info && info->sketch == IG_SKETCH_SKEW;
}

/* Where the sketch of a model lies by default. */
static bool default_path(char *path, size_t cap, const ig_model *model, bool skew) {
    char rest[64];
    snprintf(rest, sizeof rest, "sketches/%016llx%s.igs", (unsigned long long)ig_model_identity(model),
             skew ? "-skew" : "");
    return ig_cli_path(path, cap, IG_PLACE_CACHE, rest);
}

static bool is_own(const char *sketch) { return !sketch || strcmp(sketch, "own") == 0; }

const char *ig_cli_sketch(ig_cli_app *app, const char *policy, const char *sketch) {
    const ig_cli_options *o = app->o;
    ig_sketch_info info;
    ig_error err = {0};
    if (!is_own(sketch)) return strcmp(sketch, "none") == 0 ? NULL : sketch;
    if (!default_path(app->sketch, sizeof app->sketch, app->model, wants_skew(policy))) return NULL;
    if (access(app->sketch, F_OK) != 0) return NULL;
    if (ig_sketch_get_info(&info, app->sketch, &err)) {
        if (o->verbose || isatty(STDERR_FILENO))
            fprintf(stderr, "infinigen %s: %s; not used\n", o->verb->name, err.text);
        return NULL;
    }
    return app->sketch;
}

int ig_cli_calibrate(ig_cli_app *app) {
    const ig_cli_options *o = app->o;
    ig_sketch_info info;
    ig_error err = {0};
    bool wanted = false, own = !o->kv_sketch.n;
    for (int i = 0; i < o->kv_policy.n; i++) wanted = wanted || wants_skew(o->kv_policy.v[i]);
    for (int i = 0; i < o->kv_sketch.n; i++) own = own || is_own(o->kv_sketch.v[i]);
    if (!wanted || !own || o->verb->bit == IG_VERB_INSPECT) return IG_EXIT_OK;

    if (!default_path(app->sketch, sizeof app->sketch, app->model, true) || !ig_cli_make_folders(app->sketch))
        return ig_cli_complain(o,
                               "no folder for the skew of infinigen-osdi24 can be made: see prepare and --kv-sketch");
    if (access(app->sketch, F_OK) == 0 && !ig_sketch_get_info(&info, app->sketch, NULL)) return IG_EXIT_OK;
    if (!app->info.has_tokenizer)
        return ig_cli_complain(o,
                               "%s has no tokenizer: 'infinigen prepare --kind skew --tokens FILE' makes the skew that "
                               "infinigen-osdi24 needs, and --kv-sketch none does without",
                               app->path);
    ig_cli_progress bar = ig_cli_progress_start("calibrating", "steps");
    ig_prepare_options options = ig_prepare_defaults();
    options.skew = true;
    options.progress = ig_cli_on_progress;
    options.progress_user = &bar;
    ig_status status = ig_prepare(NULL, app->model, app->sketch, &options, &err);
    ig_cli_progress_end(&bar);
    if (!status) return IG_EXIT_OK;
    if (status == IG_E_INTERRUPTED) return ig_cli_fail(o, &err);
    return ig_cli_complain(o, "%s: the skew of infinigen-osdi24 cannot be made; --kv-sketch none does without",
                           err.text);
}

static int report(const ig_cli_app *app, const ig_sketch_info *info, const char *path, double seconds) {
    char size[32];
    if (app->o->json)
        return ig_cli_print_json(json_pack("{s:o, s:o, s:s, s:s, s:i, s:i, s:i, s:I, s:f, s:I}", "path",
                                           ig_text_string(path), "model", ig_text_string(app->path), "architecture",
                                           app->info.architecture, "kind", app->o->sketch_kind, "rank", info->rank,
                                           "bits", info->bits, "context", info->n_ctx, "bytes", (json_int_t)info->bytes,
                                           "seconds", seconds, "peak_rss_bytes", (json_int_t)ig_cli_peak_rss()));
    ig_cli_put(path, strlen(path));
    putchar('\n');
    if (!app->o->verbose && !isatty(STDERR_FILENO)) return IG_EXIT_OK;
    if (info->kind == IG_SKETCH_SKEW)
        fprintf(stderr, "skew of %d dimensions, from %d tokens; %s; %.1f s\n", info->head_dim, info->n_ctx,
                ig_cli_size(size, info->bytes), seconds);
    else
        fprintf(stderr, "rank %d of %d, %d bits, for %d tokens of context; %s; %.1f s\n", info->rank, info->head_dim,
                info->bits, info->n_ctx, ig_cli_size(size, info->bytes), seconds);
    return IG_EXIT_OK;
}

static int prepare(ig_cli_app *app, const char *path, const int32_t *ids, size_t n_ids) {
    const ig_cli_options *o = app->o;
    ig_sketch_info info;
    ig_error err = {0};
    ig_prepare_options options = ig_prepare_defaults();
    ig_cli_progress bar = ig_cli_progress_start("preparing", "steps");
    options.skew = strcmp(o->sketch_kind, "skew") == 0;
    options.ids = ids;
    options.n_ids = n_ids < INT_MAX ? (int)n_ids : INT_MAX;
    options.n_ctx = o->ctx;
    options.rank = o->rank;
    options.progress = ig_cli_on_progress;
    options.progress_user = &bar;
    ig_status status = ig_prepare(&info, app->model, path, &options, &err);
    ig_cli_progress_end(&bar);
    return status ? ig_cli_fail(o, &err) : report(app, &info, path, ig_text_seconds() - bar.start);
}

/* Before hours of work for it. */
static int check_folder(const ig_cli_options *o) {
    char folder[4096] = ".";
    const char *slash = strrchr(o->output, '/');
    if (slash) snprintf(folder, sizeof folder, "%.*s", (int)(slash - o->output + 1), o->output);
    return access(folder, W_OK) == 0 ? IG_EXIT_OK : ig_cli_complain(o, "%s: %s", o->output, strerror(errno));
}

int ig_cli_prepare(const ig_cli_options *o) {
    ig_cli_app app;
    ig_cli_text text = {0};
    int32_t *ids = NULL;
    size_t n = 0;
    if (o->file && o->tokens) {
        ig_cli_complain(o, "-f and --tokens are both texts to calibrate on: give one");
        return IG_EXIT_USAGE;
    }
    if (o->file) {
        int code = ig_cli_read_file(&text, o, o->file);
        if (code) return code;
    }
    int code = o->output ? check_folder(o) : IG_EXIT_OK;
    if (code) {
        free(text.data);
        return code;
    }
    code = ig_cli_open(&app, o, false);
    if (!code && (text.data || o->tokens)) code = ig_cli_file_tokens(&ids, &n, &app, &text);
    const char *path = o->output;
    if (!code && !path) {
        path = app.sketch;
        if (!default_path(app.sketch, sizeof app.sketch, app.model, strcmp(o->sketch_kind, "skew") == 0) ||
            !ig_cli_make_folders(app.sketch))
            code = ig_cli_complain(o, "no folder for the sketch can be made: say where with -o FILE");
    }
    if (!code) code = ig_cli_check_output(o, app.path, path);
    if (!code) code = prepare(&app, path, ids, n);
    free(ids);
    free(text.data);
    return ig_cli_close(&app, code);
}
