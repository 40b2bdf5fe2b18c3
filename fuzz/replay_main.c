/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a fuzz target over the files it is given and the files in the folders it is given: how the tests replay a corpus
 * without libFuzzer. Each input lies in a block of exactly its size, so that a sanitizer sees any step beyond it.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

enum { MAX_INPUT_BYTES = 16 << 20 };

static int replay_file(const char *path) {
    char *text;
    size_t n;
    ig_error err;
    if (ig_file_read(&text, &n, path, MAX_INPUT_BYTES, &err)) {
        fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
    uint8_t *exact = malloc(n ? n : 1);
    if (!exact) exit(1);
    memcpy(exact, text, n);
    free(text);
    LLVMFuzzerTestOneInput(exact, n);
    free(exact);
    return 1;
}

static int replay_folder(const char *folder) {
    int n = 0;
    char path[4096];
    DIR *list = opendir(folder);
    for (struct dirent *e; list && (e = readdir(list));) {
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (e->d_name[0] != '.') n += replay_file(path);
    }
    if (list) closedir(list);
    return n;
}

int main(int argc, char **argv) {
    int n = 0;
    for (int i = 1; i < argc; i++) n += ig_path_is_directory(argv[i]) ? replay_folder(argv[i]) : replay_file(argv[i]);
    printf("%d inputs replayed\n", n);
    return n ? 0 : 1;
}
