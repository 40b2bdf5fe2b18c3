/* SPDX-License-Identifier: Apache-2.0
 *
 * --kv-trace: a line of CSV for every layer of every decode step. tools/plot_trace.py draws them. --audit-trace: a line
 * for every query head that is audited.
 */
#include "cli/app.h"

/* `path` is NULL if it was not asked for. */
static int open_file(FILE **out, const ig_cli_app *app, const char *path, const char *columns) {
    if (!path) return IG_EXIT_OK;
    int code = ig_cli_create_file(out, app->o, app->path, path);
    if (!code) fputs(columns, *out);
    return code;
}

int ig_cli_open_trace(ig_cli_app *app) {
    app->trace.keys = &app->o->audit_keys;
    int code = open_file(&app->trace.file, app, app->o->kv_trace,
                         "step,layer,entries,selected,fetched_bytes,hits,misses,ram_bytes,disk_bytes,stall_us\n");
    if (!code)
        code = open_file(&app->trace.audits, app, app->o->audit_trace,
                         "step,layer,head,seen,used,needed,mass,cosine,output_cosine");
    if (code || !app->trace.audits) return code;
    for (int i = 0; i < app->trace.keys->n; i++) fprintf(app->trace.audits, ",key_%d", app->trace.keys->v[i]);
    fputc('\n', app->trace.audits);
    return IG_EXIT_OK;
}

void ig_cli_on_step(void *user, const ig_cache_step *s) {
    const ig_cli_trace *t = user;
    fprintf(t->file, "%d,%d,%llu,%llu,%llu,%llu,%llu,%llu,%llu,%.0f\n", s->step, s->layer,
            (unsigned long long)s->entries, (unsigned long long)s->selected, (unsigned long long)s->fetched_bytes,
            (unsigned long long)s->hits, (unsigned long long)s->misses, (unsigned long long)s->ram_bytes,
            (unsigned long long)s->disk_bytes, s->stall_seconds * 1e6);
}

void ig_cli_on_audit(void *user, const ig_cache_audit *a) {
    const ig_cli_trace *t = user;
    fprintf(t->audits, "%d,%d,%d,%d,%d,%d,%.6f,%.6f,%.6f", a->step, a->layer, a->head, a->seen, a->used, a->needed,
            a->mass, a->cosine, a->output_cosine);
    for (int i = 0; i < t->keys->n; i++) {
        int key = t->keys->v[i];
        fputc(',', t->audits);
        if (key < a->seen) fprintf(t->audits, "%.4g", (double)a->weights[key]);
    }
    fputc('\n', t->audits);
}

static int close_file(FILE **file, const ig_cli_app *app, const char *path) {
    FILE *f = *file;
    if (!f) return IG_EXIT_OK;
    bool failed = ferror(f) != 0;
    *file = NULL;
    if (fclose(f) == 0 && !failed) return IG_EXIT_OK;
    return ig_cli_complain(app->o, "%s: the trace could not be written", path);
}

int ig_cli_close_trace(ig_cli_app *app) {
    if (!app->trace.file && !app->trace.audits) return IG_EXIT_OK; /* perhaps nothing was opened */
    int code = close_file(&app->trace.file, app, app->o->kv_trace);
    int audits = close_file(&app->trace.audits, app, app->o->audit_trace);
    return code ? code : audits;
}
