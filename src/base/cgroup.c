/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cgroup.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"

enum { PATH_BYTES = 4096 };

typedef struct group {
    char path[PATH_BYTES];
    size_t top; /* bytes of it that name the topmost group */
    bool is_v1;
} group;

/* Whether the list "cpu,cpuacct" has the name. */
static bool has_name(const char *list, const char *name) {
    size_t n = strlen(name);
    for (; *list; list += strcspn(list, ","), list += *list == ',')
        if (strcspn(list, ",") == n && memcmp(list, name, n) == 0) return true;
    return false;
}

/* The group that a controller keeps this process in: that of v1, which has a tree of groups for each controller, or
 * else that of v2. In a container the groups above may not be seen; then the topmost that is seen is the container's.
 */
static bool find_group(group *g, const char *root, const char *controller) {
    char line[PATH_BYTES], path[PATH_BYTES], own[PATH_BYTES] = "";
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *f = fopen(path, "re");
    g->is_v1 = false;
    while (f && !g->is_v1 && fgets(line, sizeof line, f)) {
        char *names = strchr(line, ':'), *at = names ? strchr(names + 1, ':') : NULL;
        if (!at) continue;
        *at++ = 0;
        g->is_v1 = has_name(++names, controller);
        if (!g->is_v1 && *names) continue;
        at[strcspn(at, "\n")] = 0;
        strcpy(own, at);
    }
    if (f) fclose(f);
    int n = snprintf(g->path, sizeof g->path, "%s/sys/fs/cgroup%s%s", root, g->is_v1 ? "/" : "",
                     g->is_v1 ? controller : "");
    if (n < 0 || (size_t)n >= sizeof g->path) return false;
    g->top = (size_t)n;
    size_t room = sizeof g->path - g->top, n_own = strlen(own);
    while (n_own && own[n_own - 1] == '/') own[--n_own] = 0;
    if (n_own < room && !strstr(own, "..")) memcpy(g->path + g->top, own, n_own + 1);
    return true;
}

/* The group above; false: it was the topmost. */
static bool go_up(group *g) {
    char *end = strrchr(g->path + g->top, '/');
    if (end) *end = 0;
    return end != NULL;
}

static uint64_t number(const group *g, const char *file, const char *format) {
    char path[PATH_BYTES + 64];
    snprintf(path, sizeof path, "%s/%s", g->path, file);
    return ig_file_number(path, format);
}

/* ---- memory ---------------------------------------------------------------- */

static uint64_t memory_of(const group *g) {
    /* Without a limit v2 says "max", which is no number, and v1 a very large one. */
    uint64_t most = number(g, g->is_v1 ? "memory.limit_in_bytes" : "memory.max", "%llu");
    if (most == UINT64_MAX) return most;
    uint64_t used = number(g, g->is_v1 ? "memory.usage_in_bytes" : "memory.current", "%llu");
    uint64_t idle = number(g, "memory.stat", g->is_v1 ? "total_inactive_file %llu" : "inactive_file %llu");
    if (used == UINT64_MAX) return most;
    if (idle != UINT64_MAX) used -= idle < used ? idle : used;
    return used < most ? most - used : 0;
}

uint64_t ig_cgroup_memory(const char *root) {
    group g;
    uint64_t left = UINT64_MAX;
    for (bool more = find_group(&g, root, "memory"); more; more = go_up(&g)) {
        uint64_t here = memory_of(&g);
        if (here < left) left = here;
    }
    return left;
}

/* ---- processors ------------------------------------------------------------ */

static int cpus_of(const group *g) {
    /* Without a quota v2 says "max 100000" and v1 -1, which reads as UINT64_MAX. */
    uint64_t quota = number(g, g->is_v1 ? "cpu.cfs_quota_us" : "cpu.max", "%llu");
    uint64_t period = number(g, g->is_v1 ? "cpu.cfs_period_us" : "cpu.max", g->is_v1 ? "%llu" : "%*u %llu");
    if (quota == UINT64_MAX || period == UINT64_MAX || !quota || !period) return 0;
    uint64_t n = quota / period + (quota % period != 0);
    return n < INT_MAX ? (int)n : 0;
}

int ig_cgroup_cpus(const char *root) {
    group g;
    int least = 0;
    for (bool more = find_group(&g, root, "cpu"); more; more = go_up(&g)) {
        int here = cpus_of(&g);
        if (here && (!least || here < least)) least = here;
    }
    return least;
}
