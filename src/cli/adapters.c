/* SPDX-License-Identifier: Apache-2.0
 *
 * --lora [NAME=]FILE[:SCALE],...: a list of adapters.
 */
#define _GNU_SOURCE
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/app.h"

/* Cuts the scale off a text, unless there is a file of the whole name. */
static double take_scale(char *text) {
    char *colon = strrchr(text, ':'), *end;
    if (!colon || !colon[1] || access(text, F_OK) == 0) return 1;
    double scale = strtod(colon + 1, &end);
    if (*end) return 1;
    *colon = 0;
    return scale;
}

/* Whether the text, or what stands before a scale, is a file. */
static bool is_path(char *text) {
    char *colon = strrchr(text, ':');
    if (access(text, F_OK) == 0) return true;
    if (!colon) return false;
    *colon = 0;
    bool is_there = access(text, F_OK) == 0;
    *colon = ':';
    return is_there;
}

/* What stands before the path, if anything does that is no part of it; NULL: nothing. */
static char *take_name(char *text) {
    size_t n = strcspn(text, "=/");
    if (n == 0 || text[n] != '=' || is_path(text)) return NULL;
    char *name = strndup(text, n);
    if (name) memmove(text, text + n + 1, strlen(text + n + 1) + 1);
    return name;
}

static int add(ig_cli_adapters *a, const ig_cli_options *o, const char *text, size_t length) {
    if (a->n == IG_ADAPTERS_MAX) return ig_cli_complain(o, "--lora: at most %d adapters", IG_ADAPTERS_MAX);
    ig_adapter *list = realloc(a->list, ((size_t)a->n + 1) * sizeof *list);
    if (list) a->list = list;
    char *path = list ? strndup(text, length) : NULL;
    if (!path) return ig_cli_complain(o, "out of memory for a list of adapters");
    char *name = take_name(path);
    double scale = a->scales[a->n] = take_scale(path);
    a->list[a->n++] = (ig_adapter){.path = path, .scale = o->lora_waits ? 0 : scale, .name = name};
    if (!*path)
        ig_cli_complain(o, "--lora: a name is empty");
    else if (!(fabs(scale) <= IG_ADAPTER_SCALE_MAX))
        ig_cli_complain(o, "--lora: %s: the scale of an adapter must be a number from -%d to %d", path,
                        IG_ADAPTER_SCALE_MAX, IG_ADAPTER_SCALE_MAX);
    else
        return IG_EXIT_OK;
    return IG_EXIT_USAGE;
}

int ig_cli_read_adapters(ig_cli_adapters *a, const ig_cli_options *o) {
    int code = IG_EXIT_OK;
    for (int i = 0; i < o->adapters.n && !code; i++)
        for (const char *at = o->adapters.v[i]; at && !code;) {
            size_t length = strcspn(at, ",");
            code = add(a, o, at, length);
            at = at[length] ? at + length + 1 : NULL;
        }
    return code;
}

void ig_cli_free_adapters(ig_cli_adapters *a) {
    for (int i = 0; i < a->n; i++) {
        free((char *)(uintptr_t)a->list[i].path);
        free((char *)(uintptr_t)a->list[i].name);
    }
    free(a->list);
    *a = (ig_cli_adapters){0};
}
