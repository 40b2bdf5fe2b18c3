/* SPDX-License-Identifier: Apache-2.0
 *
 * --kv-trace: a line of CSV for every layer of every decode step. tools/plot_trace.py draws them.
 */
#include "cli/app.h"

#include <errno.h>
#include <string.h>

int ig_cli_open_trace(ig_cli_app *app) {
    const char *path = app->o->kv_trace;
    if (!path) return IG_EXIT_OK;
    app->trace.file = fopen(path, "we");
    if (!app->trace.file) return ig_cli_complain(app->o, "%s: %s", path, strerror(errno));
    fputs("step,layer,entries,selected,fetched_bytes,hits,misses,ram_bytes,disk_bytes,stall_us\n", app->trace.file);
    return IG_EXIT_OK;
}

void ig_cli_on_step(void *user, const ig_cache_step *s) {
    const ig_cli_trace *t = user;
    fprintf(t->file, "%d,%d,%llu,%llu,%llu,%llu,%llu,%llu,%llu,%.0f\n", s->step, s->layer,
            (unsigned long long)s->entries, (unsigned long long)s->selected, (unsigned long long)s->fetched_bytes,
            (unsigned long long)s->hits, (unsigned long long)s->misses, (unsigned long long)s->ram_bytes,
            (unsigned long long)s->disk_bytes, s->stall_seconds * 1e6);
}

int ig_cli_close_trace(ig_cli_app *app) {
    FILE *f = app->trace.file;
    if (!f) return IG_EXIT_OK;
    bool failed = ferror(f) != 0;
    app->trace.file = NULL;
    if (fclose(f) == 0 && !failed) return IG_EXIT_OK;
    return ig_cli_complain(app->o, "%s: the trace could not be written", app->o->kv_trace);
}
