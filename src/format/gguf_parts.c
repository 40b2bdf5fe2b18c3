/* SPDX-License-Identifier: Apache-2.0
 *
 * Models of several GGUF files, as llama.cpp's gguf-split writes them: NAME-00001-of-00003.gguf and so on. The first
 * one has the metadata. Tensors of all become one list. Any of the files may be given.
 */
#include "format/gguf_parts.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* ---- names ---------------------------------------------------------------------- */

enum { PART_CHARACTERS = sizeof "-00001-of-00001.gguf" - 1 };

/* How many files a model has of which this is one by its name; 1: it is a whole one. *n_stem: bytes of the name that
 * all of them begin with. */
static int parts_of_name(const char *path, size_t *n_stem) {
    static const char form[] = "-#####-of-#####.gguf";
    size_t n = strlen(path);
    if (n <= PART_CHARACTERS) return 1;
    const char *end = path + n - PART_CHARACTERS;
    for (int i = 0; i < PART_CHARACTERS; i++)
        if (form[i] == '#' ? !isdigit((unsigned char)end[i]) : end[i] != form[i]) return 1;
    int number = atoi(end + 1), n_parts = atoi(end + sizeof "-#####-of-" - 1);
    *n_stem = n - PART_CHARACTERS;
    return number >= 1 && number <= n_parts ? n_parts : 1;
}

/* The reader of part number i, from 0. */
static ig_gguf *new_part(const char *path, size_t n_stem, int i, int n_parts) {
    if (n_parts == 1) return ig_gguf_new(path);
    size_t cap = n_stem + PART_CHARACTERS + 16;
    char *name = malloc(cap);
    if (!name) return NULL;
    snprintf(name, cap, "%.*s-%05d-of-%05d.gguf", (int)n_stem, path, i + 1, n_parts);
    ig_gguf *g = ig_gguf_new(name);
    free(name);
    return g;
}

/* ---- all files ------------------------------------------------------------------ */

/* All are open before the first is read: their sizes are known then. */
static ig_status open_files(ig_gguf **out, const char *path, ig_loading *copy, ig_error *err) {
    size_t n_stem = 0;
    int n_parts = parts_of_name(path, &n_stem);
    if (n_parts > IG_GGUF_PARTS_MAX)
        return ig_fail(err, IG_E_LIMIT, "%s: a model of %d files, at most %d are allowed", path, n_parts,
                       IG_GGUF_PARTS_MAX);
    ig_gguf *first = *out = new_part(path, n_stem, 0, n_parts);
    if (first) first->others = calloc((size_t)n_parts, sizeof *first->others);
    for (int i = 0; i < n_parts; i++) {
        ig_gguf *g = i ? new_part(path, n_stem, i, n_parts) : first;
        if (!g || !first->others) return ig_fail_memory(err, "GGUF reader", sizeof *first);
        if (i) first->others[first->n_others++] = g;
        ig_status s = ig_file_open(&g->file, g->path, err);
        if (s) return s;
        if (copy) copy->total += g->file.size;
    }
    return IG_OK;
}

static ig_gguf *part(ig_gguf *g, size_t i) { return i ? g->others[i - 1] : g; }

static ig_status read_files(ig_gguf *first, ig_loading *copy, ig_error *err) {
    ig_status s = IG_OK;
    for (size_t i = 0; !s && i <= first->n_others; i++) {
        ig_gguf *g = part(first, i);
        s = ig_file_take(&g->file, g->path, copy, err);
        if (!s) s = ig_gguf_parse(g, err);
        if (!s) s = ig_gguf_check_part(g, (int)i, (int)first->n_others + 1, err);
    }
    return s;
}

/* The first file's list of tensors becomes that of all. */
static ig_status join_tensors(ig_gguf *first, ig_error *err) {
    size_t n = first->n_tensors;
    for (size_t i = 0; i < first->n_others; i++) n += first->others[i]->n_tensors;
    if (n > IG_GGUF_TENSORS_MAX)
        return ig_fail(err, IG_E_LIMIT, "%s: %zu tensors in all files, at most %d are allowed", first->path, n,
                       IG_GGUF_TENSORS_MAX);
    ig_status s = IG_OK;
    int64_t stated = (int64_t)n;
    ig_gguf_int(first, "split.tensors.count", 0, IG_GGUF_TENSORS_MAX, &stated, &s, err);
    if (s) return s;
    if (stated != (int64_t)n)
        return ig_fail(err, IG_E_FORMAT, "%s: key 'split.tensors.count' is %lld, and all files have %zu", first->path,
                       (long long)stated, n);
    ig_tensor *tensors = realloc(first->tensors, (n + 1) * sizeof *tensors);
    if (tensors) first->tensors = tensors;
    ig_name *names = realloc(first->names, (n + 1) * sizeof *names);
    if (names) first->names = names;
    if (!tensors || !names) return ig_fail_memory(err, "GGUF metadata", n * (sizeof *tensors + sizeof *names));
    for (size_t i = 0; i < first->n_others; i++) {
        const ig_gguf *g = first->others[i];
        memcpy(tensors + first->n_tensors, g->tensors, g->n_tensors * sizeof *tensors);
        first->n_tensors += g->n_tensors;
    }
    return ig_gguf_index_tensors(first, err);
}

ig_status ig_gguf_open(ig_gguf **out, const char *path, ig_loading *copy, ig_error *err) {
    ig_gguf *g = NULL;
    *out = NULL;
    ig_status s = open_files(&g, path, copy, err);
    if (!s) s = read_files(g, copy, err);
    if (!s && g->n_others) s = join_tensors(g, err);
    if (s)
        ig_gguf_close(g);
    else
        *out = g;
    return s;
}

size_t ig_gguf_n_files(const ig_gguf *g) { return 1 + g->n_others; }

const ig_file *ig_gguf_file(const ig_gguf *g, size_t i, const char **path) {
    const ig_gguf *one = part((ig_gguf *)(uintptr_t)g, i);
    *path = one->path;
    return &one->file;
}

const char *ig_gguf_changed(const ig_gguf *g) {
    for (size_t i = 0; i < ig_gguf_n_files(g); i++) {
        const char *path;
        if (ig_file_is_changed(ig_gguf_file(g, i, &path))) return path;
    }
    return NULL;
}
