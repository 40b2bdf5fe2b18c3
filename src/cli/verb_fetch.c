/* SPDX-License-Identifier: Apache-2.0
 *
 * `infinigen fetch`: known models by name, and finding the model of -m.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/sources.h"

int ig_cli_find_model(char *path, size_t cap, const ig_cli_options *o) {
    ig_cli_sources sources;
    struct stat st;
    if (stat(o->model, &st) == 0) {
        if (strlen(o->model) >= cap) return ig_cli_complain(o, "the model's path is too long");
        strcpy(path, o->model);
        return IG_EXIT_OK;
    }
    if (errno != ENOENT && errno != ENOTDIR) return ig_cli_complain(o, "%s: %s", o->model, strerror(errno));
    int code = ig_cli_sources_load(&sources, o);
    if (!code) {
        const ig_cli_source *found = ig_cli_sources_find(&sources, o->model);
        code = found ? ig_cli_source_get(path, cap, found, o)
                     : ig_cli_complain(o, "%s: no such file, nor a model that 'infinigen fetch' knows", o->model);
    }
    ig_cli_sources_free(&sources);
    return code;
}

static int list_models(const ig_cli_options *o, const ig_cli_sources *sources) {
    json_t *list = json_array();
    for (size_t i = 0; i < sources->n; i++) {
        const ig_cli_source *s = &sources->list[i];
        char path[4200] = "", size[32] = "-";
        bool is_present = false;
        if (ig_cli_sources_find(sources, s->name) != s) continue; /* an earlier table has it */
        ig_cli_source_path(path, sizeof path, s, &is_present);
        if (s->bytes) ig_cli_size(size, s->bytes);
        if (!o->json) printf("%-24s %8s  %s\n", s->name, size, is_present ? path : "not fetched");
        json_t *entry = json_pack("{s:s, s:b}", "name", s->name, "present", is_present);
        if (s->bytes) json_object_set_new(entry, "bytes", json_integer((json_int_t)s->bytes));
        json_object_set_new(entry, "path", ig_cli_json_text(path, strlen(path)));
        json_array_append_new(list, entry);
    }
    json_t *report = json_pack("{s:o}", "models", list);
    if (o->json) return ig_cli_print_json(report);
    json_decref(report);
    return IG_EXIT_OK;
}

int ig_cli_fetch(const ig_cli_options *o) {
    ig_cli_sources sources;
    char path[4200];
    int code = ig_cli_sources_load(&sources, o);
    if (!code && !o->rest[0]) {
        code = list_models(o, &sources);
    } else if (!code) {
        const ig_cli_source *s = ig_cli_sources_find(&sources, o->rest[0]);
        code = s ? ig_cli_source_get(path, sizeof path, s, o)
                 : ig_cli_complain(o, "'%s' is not a known model: 'infinigen fetch' lists them", o->rest[0]);
        if (!code && o->json)
            code = ig_cli_print_json(
                json_pack("{s:s, s:o}", "name", s->name, "path", ig_cli_json_text(path, strlen(path))));
        else if (!code)
            printf("%s\n", path);
    }
    ig_cli_sources_free(&sources);
    return code;
}
