/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding the models of a server of several.
 */
#define _GNU_SOURCE
#include "cli/serve_models.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/hub.h"
#include "text/text.h"

const char *ig_cli_model_name(char name[256], const char *path) {
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    size_t first = n;
    while (first > 0 && path[first - 1] != '/') first--;
    snprintf(name, 256, "%.*s", (int)(n - first < 255 ? n - first : 255), path + first);
    size_t number = ig_cli_number_of_part(name);
    char *end = strrchr(name, '.');
    if (number > 1)
        name[number - 1] = 0;
    else if (end && end != name && strcmp(end, ".gguf") == 0)
        *end = 0;
    return name;
}

/* The first of a name is the one that counts. False: no memory. */
static bool add_named(ig_cli_models *m, const char *name, const char *path, uint64_t bytes) {
    for (size_t i = 0; i < m->n; i++)
        if (strcmp(m->list[i].name, name) == 0) return true;
    if (m->n == m->cap) {
        size_t cap = 2 * m->cap + 16;
        ig_server_model *more = realloc(m->list, cap * sizeof *more);
        if (!more) return false;
        m->list = more;
        m->cap = cap;
    }
    char *own_name = strdup(name), *own_path = strdup(path);
    if (own_name && own_path) {
        m->list[m->n++] = (ig_server_model){own_name, own_path, bytes};
        return true;
    }
    free(own_name);
    free(own_path);
    return false;
}

/* Clients' JSON is UTF-8: so is what they call it. */
static bool add(ig_cli_models *m, const char *name, const char *path, uint64_t bytes) {
    json_t *text = ig_text_string(name);
    bool ok = text && add_named(m, json_string_value(text), path, bytes);
    json_decref(text);
    return ok;
}

/* What 'infinigen fetch' has. */
static int add_fetched(ig_cli_models *m, const ig_cli_options *o) {
    ig_cli_sources sources;
    char path[4200];
    bool is_there = false, ok = true;
    int code = ig_cli_sources_load(&sources, o, false);
    for (size_t i = 0; !code && ok && i < sources.n; i++)
        if (ig_cli_source_path(path, sizeof path, &sources.list[i], &is_there) && is_there)
            ok = add(m, sources.list[i].name, path, sources.list[i].bytes);
    ig_cli_sources_free(&sources);
    return ok ? code : ig_cli_complain(o, "out of memory");
}

/* A GGUF file, of several that are one model the first, or a Hugging Face directory. */
static bool is_model(const char *path, uint64_t *bytes) {
    char config[4400];
    struct stat st;
    size_t n = strlen(path), number = ig_cli_number_of_part(path);
    snprintf(config, sizeof config, "%s/config.json", path);
    if (stat(path, &st) != 0) return false;
    *bytes = S_ISREG(st.st_mode) && !number ? (uint64_t)st.st_size : 0;
    if (S_ISDIR(st.st_mode)) return access(config, R_OK) == 0;
    bool is_gguf = n > 5 && strcmp(path + n - 5, ".gguf") == 0 && strncmp(basename(path), "mmproj", 6) != 0;
    return S_ISREG(st.st_mode) && is_gguf && (!number || atoi(path + number) == 1);
}

static int add_folder(ig_cli_models *m, const ig_cli_options *o, const char *folder) {
    struct dirent **entries;
    int n = scandir(folder, &entries, NULL, alphasort);
    bool ok = true;
    if (n < 0) return ig_cli_complain(o, "--models-dir %s: %s", folder, strerror(errno));
    for (int i = 0; i < n; i++) {
        char path[4300], name[256];
        uint64_t bytes;
        int length = snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        bool fits = entries[i]->d_name[0] != '.' && length < (int)sizeof path;
        if (ok && fits && is_model(path, &bytes)) ok = add(m, ig_cli_model_name(name, path), path, bytes);
        free(entries[i]);
    }
    free(entries);
    return ok ? IG_EXIT_OK : ig_cli_complain(o, "out of memory");
}

/* What is of this server alone is not for the processes. */
static bool make_command(ig_cli_models *m, const ig_cli_options *o) {
    const void *const dropped[] = {
        &o->host,       &o->port,       &o->unix_path, &o->api_key,  &o->api_key_file, &o->allowed_origins,
        &o->models_dir, &o->models_max, &o->any_model, &o->log_name, &o->sleep_idle,   NULL};
    m->command = calloc((size_t)o->argc + 1, sizeof *m->command);
    if (!m->command) return false;
    m->command[0] = o->argv[0];
    m->command[1] = o->verb->name;
    ig_cli_pass_on(m->command + 2, o, dropped);
    return true;
}

int ig_cli_models_find(ig_cli_models *out, const ig_cli_options *o) {
    *out = (ig_cli_models){0};
    if (o->alias) {
        ig_cli_complain(o, "--alias is for one model: give -m");
        return IG_EXIT_USAGE;
    }
    int code = o->models_dir ? add_folder(out, o, o->models_dir) : IG_EXIT_OK;
    if (!code) code = add_fetched(out, o);
    if (!code && !out->n)
        code = ig_cli_complain(o, "no model is here: -m MODEL, 'infinigen fetch NAME', or --models-dir DIR");
    if (!code && !make_command(out, o)) code = ig_cli_complain(o, "out of memory");
    if (code) ig_cli_models_free(out);
    return code;
}

void ig_cli_models_free(ig_cli_models *m) {
    for (size_t i = 0; i < m->n; i++) {
        free((char *)(uintptr_t)m->list[i].name);
        free((char *)(uintptr_t)m->list[i].path);
    }
    free(m->list);
    free(m->command);
    *m = (ig_cli_models){0};
}
