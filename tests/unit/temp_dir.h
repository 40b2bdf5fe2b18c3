/* SPDX-License-Identifier: Apache-2.0
 *
 * A temporary directory with files for one test. Define _GNU_SOURCE before the first include.
 */
#ifndef TESTS_TEMP_DIR_H
#define TESTS_TEMP_DIR_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct temp_dir {
    char path[256];
} temp_dir;

static inline temp_dir temp_dir_open(void) {
    temp_dir d;
    const char *base = getenv("TMPDIR");
    snprintf(d.path, sizeof d.path, "%s/infinigen_XXXXXX", base && *base ? base : P_tmpdir);
    if (!mkdtemp(d.path)) abort();
    return d;
}

static inline void temp_dir_path(const temp_dir *d, const char *name, char *path, size_t cap) {
    snprintf(path, cap, "%s/%s", d->path, name);
}

static inline void temp_dir_write(const temp_dir *d, const char *name, const void *bytes, size_t n) {
    char path[512];
    temp_dir_path(d, name, path, sizeof path);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(bytes, 1, n, f) != n || fclose(f)) abort();
}

/* Removes the directory and the plain files in it. */
static inline void temp_dir_close(const temp_dir *d) {
    char path[512];
    DIR *list = opendir(d->path);
    for (struct dirent *e; list && (e = readdir(list));) {
        temp_dir_path(d, e->d_name, path, sizeof path);
        if (e->d_name[0] != '.') unlink(path);
    }
    if (list) closedir(list);
    rmdir(d->path);
}

#endif
