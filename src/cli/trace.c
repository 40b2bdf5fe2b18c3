/* SPDX-License-Identifier: Apache-2.0
 *
 * --kv-trace: a line of CSV for every layer of every decode step. tools/plot_trace.py draws them. --audit-trace: a line
 * for every query head that is audited.
 */
#define _GNU_SOURCE
#include "cli/app.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static int open_file(ig_cli_trace_file *t, const ig_cli_app *app, const char *path) {
    t->path = path;
    return path ? ig_cli_open_file(&t->file, app->o, app->path, path, true) : IG_EXIT_OK;
}

int ig_cli_open_trace(ig_cli_app *app) {
    ig_cli_trace *t = &app->trace;
    t->keys = &app->o->audit_keys;
    int code = open_file(&t->steps, app, app->o->kv_trace);
    return code ? code : open_file(&t->audits, app, app->o->audit_trace);
}

/* What was in a file goes; a pipe cannot be cut, and has nothing. */
static void begin(ig_cli_trace_file *t) {
    t->has_begun = true;
    if (truncate(t->path, 0) != 0 && errno != EINVAL) t->why = errno;
}

static void end_line(ig_cli_trace_file *t) {
    fputc('\n', t->file);
    if (ferror(t->file) && !t->why) t->why = errno;
}

static FILE *begin_step(ig_cli_trace *t) {
    FILE *f = t->steps.file;
    if (t->steps.has_begun) return f;
    begin(&t->steps);
    fputs("step,layer,entries,selected,fetched_bytes,hits,misses,ram_bytes,disk_bytes,stall_us", f);
    end_line(&t->steps);
    return f;
}

static FILE *begin_audit(ig_cli_trace *t) {
    FILE *f = t->audits.file;
    if (t->audits.has_begun) return f;
    begin(&t->audits);
    fputs("step,layer,head,seen,used,needed,mass,cosine,output_cosine", f);
    for (int i = 0; i < t->keys->n; i++) fprintf(f, ",key_%d", t->keys->v[i]);
    end_line(&t->audits);
    return f;
}

void ig_cli_on_step(void *user, const ig_cache_step *s) {
    ig_cli_trace *t = user;
    fprintf(begin_step(t), "%d,%d,%llu,%llu,%llu,%llu,%llu,%llu,%llu,%.0f", s->step, s->layer,
            (unsigned long long)s->entries, (unsigned long long)s->selected, (unsigned long long)s->fetched_bytes,
            (unsigned long long)s->hits, (unsigned long long)s->misses, (unsigned long long)s->ram_bytes,
            (unsigned long long)s->disk_bytes, s->stall_seconds * 1e6);
    end_line(&t->steps);
}

void ig_cli_on_audit(void *user, const ig_cache_audit *a) {
    ig_cli_trace *t = user;
    FILE *f = begin_audit(t);
    fprintf(f, "%d,%d,%d,%d,%d,%d,%.6f,%.6f,%.6f", a->step, a->layer, a->head, a->seen, a->used, a->needed, a->mass,
            a->cosine, a->output_cosine);
    for (int i = 0; i < t->keys->n; i++) {
        int key = t->keys->v[i];
        fputc(',', f);
        if (key < a->seen) fprintf(f, "%.4g", (double)a->weights[key]);
    }
    end_line(&t->audits);
}

static int close_file(ig_cli_trace_file *t, const ig_cli_app *app) {
    if (!t->file) return IG_EXIT_OK;
    errno = 0;
    if (fclose(t->file) != 0 && !t->why) t->why = errno;
    t->file = NULL;
    if (!t->why) return IG_EXIT_OK;
    return ig_cli_complain(app->o, "%s: the trace could not be written: %s", t->path, strerror(t->why));
}

int ig_cli_close_trace(ig_cli_app *app, int code) {
    ig_cli_trace *t = &app->trace;
    if (!code && t->steps.file) begin_step(t); /* one without steps has its columns */
    if (!code && t->audits.file) begin_audit(t);
    int steps = close_file(&t->steps, app);
    int audits = close_file(&t->audits, app);
    return code ? code : steps ? steps : audits;
}
