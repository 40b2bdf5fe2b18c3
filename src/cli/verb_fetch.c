/* SPDX-License-Identifier: Apache-2.0
 *
 * `infinigen fetch`: known models and texts by name, and finding the model of -m.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/hub.h"

/* That nothing is known by the name, and which may have been meant. */
static int complain_of_name(const ig_cli_options *o, const ig_cli_sources *sources, const char *name,
                            const char *what) {
    const char *near = ig_cli_sources_nearest(sources, name);
    return near ? ig_cli_complain(o, "%s: %s; did you mean '%s'?", name, what, near)
                : ig_cli_complain(o, "%s: %s", name, what);
}

/* Neither a file nor a name; what looks like a path was meant as one. */
static int complain_of_model(const ig_cli_options *o, const char *model, const ig_cli_sources *sources) {
    size_t n = strlen(model);
    if (ig_cli_hub_is_name(model) && access(strndupa(model, strcspn(model, "/")), F_OK) != 0)
        return ig_cli_complain(o, "%s: no such file (-hf%s %s gets a model of this name from the Hugging Face hub)",
                               model, model == o->draft_model ? "d" : "", model);
    if (strchr(model, '/') || (n > 5 && strcasecmp(model + n - 5, ".gguf") == 0))
        return ig_cli_complain(o, "%s: no such file", model);
    return complain_of_name(o, sources, model, "no such file, nor a model that 'infinigen fetch' knows");
}

static int find_model(char *path, size_t cap, const ig_cli_options *o, const char *model) {
    ig_cli_sources sources;
    struct stat st;
    if (stat(model, &st) == 0) {
        if (strlen(model) >= cap) return ig_cli_complain(o, "the model's path is too long");
        strcpy(path, model);
        return IG_EXIT_OK;
    }
    if (errno != ENOENT && errno != ENOTDIR) return ig_cli_complain(o, "%s: %s", model, strerror(errno));
    int code = ig_cli_sources_load(&sources, o, false);
    if (!code) {
        const ig_cli_source *found = ig_cli_sources_find(&sources, model);
        code = found ? ig_cli_source_get(path, cap, found, o) : complain_of_model(o, model, &sources);
    }
    ig_cli_sources_free(&sources);
    return code;
}

int ig_cli_find_model(char *path, size_t cap, const ig_cli_options *o) {
    return o->hub ? ig_cli_hub_get(path, cap, o->hub, false, o) : find_model(path, cap, o, o->model);
}

int ig_cli_find_draft_model(char *path, size_t cap, const ig_cli_options *o) {
    *path = 0;
    if (o->draft_hub) return ig_cli_hub_get(path, cap, o->draft_hub, false, o);
    return o->draft_model ? find_model(path, cap, o, o->draft_model) : IG_EXIT_OK;
}

/* Names of files in the hub's cache are anybody's. */
static void print_row(const char *flag, const char *name, const char *size, const char *place) {
    int room = 24 - (int)(strlen(flag) + strlen(name));
    fputs(flag, stdout);
    ig_cli_put(name, strlen(name));
    printf("%*s %8s  ", room > 0 ? room : 0, "", size);
    ig_cli_put(place, strlen(place));
    putchar('\n');
}

/* Prints what is known, or adds it to `report`; the exit code. */
static int list(json_t *report, const ig_cli_options *o, bool texts) {
    ig_cli_sources sources;
    json_t *entries = json_array();
    int code = ig_cli_sources_load(&sources, o, texts);
    for (size_t i = 0; !code && i < sources.n; i++) {
        const ig_cli_source *s = &sources.list[i];
        char path[4200] = "", size[32] = "-";
        bool is_present = false;
        if (ig_cli_sources_find(&sources, s->name) != s) continue; /* an earlier table has it */
        ig_cli_source_path(path, sizeof path, s, &is_present);
        if (s->bytes) ig_cli_size(size, s->bytes);
        const char *flag = texts ? "--text " : "";
        if (!o->json) print_row(flag, s->name, size, is_present ? path : "not fetched");
        json_t *entry = json_pack("{s:s, s:b}", "name", s->name, "present", is_present);
        if (s->bytes) json_object_set_new(entry, "bytes", json_integer((json_int_t)s->bytes));
        json_object_set_new(entry, "path", ig_text_string(path));
        json_array_append_new(entries, entry);
    }
    json_object_set_new(report, texts ? "texts" : "models", entries);
    ig_cli_sources_free(&sources);
    return code;
}

static int list_all(const ig_cli_options *o) {
    json_t *report = json_object();
    int code = o->text ? IG_EXIT_OK : list(report, o, false);
    /* The file of --sources is of models or of texts, not of both. */
    if (!code && (o->text || !o->sources)) code = list(report, o, true);
    if (!code && o->json) return ig_cli_print_json(report);
    json_decref(report);
    return code;
}

/* Of a name that is of the other kind, how to get it. */
static int complain_of_unknown(const ig_cli_options *o, const ig_cli_sources *sources, const char *name) {
    ig_cli_sources others;
    int code = ig_cli_sources_load(&others, o, !o->text);
    bool is_other = !code && ig_cli_sources_find(&others, name);
    ig_cli_sources_free(&others);
    if (code) return code;
    if (is_other)
        return ig_cli_complain(o, "%s is a %s: infinigen fetch %s%s", name, o->text ? "model" : "text",
                               o->text ? "" : "--text ", name);
    return complain_of_name(o, sources, name,
                            o->text ? "no text of this name is known: 'infinigen fetch' lists them"
                                    : "no model of this name is known: 'infinigen fetch' lists them");
}

static int get(const ig_cli_options *o, const char *name) {
    ig_cli_sources sources;
    char path[4200];
    int code = ig_cli_sources_load(&sources, o, o->text);
    const ig_cli_source *s = code ? NULL : ig_cli_sources_find(&sources, name);
    if (!code && !o->text && ig_cli_hub_is_name(name))
        code = ig_cli_hub_get(path, sizeof path, name, true, o);
    else if (!code)
        code = s ? ig_cli_source_get(path, sizeof path, s, o) : complain_of_unknown(o, &sources, name);
    if (!code && o->json)
        code = ig_cli_print_json(json_pack("{s:s, s:o}", "name", name, "path", ig_text_string(path)));
    else if (!code)
        printf("%s\n", path);
    ig_cli_sources_free(&sources);
    return code;
}

int ig_cli_fetch(const ig_cli_options *o) { return o->rest ? get(o, o->rest) : list_all(o); }
