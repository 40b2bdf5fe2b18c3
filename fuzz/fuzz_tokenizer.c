/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz target: tokenizer files. The first byte says which: 'g' a GGUF file, 'j' tokenizer.json, 's' tokenizer.model,
 * 'm' vocab.json and, after a NUL, merges.txt. A tokenizer that opens then takes texts apart and puts them together.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "token/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static char folder[256]; /* holds the file of one input */

static void remove_folder(void) { rmdir(folder); }

static const char *path_of(const char *name) {
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void write_file(const char *name, const uint8_t *data, size_t n) {
    FILE *f = fopen(path_of(name), "wb");
    if (!f || fwrite(data, 1, n, f) != n || fclose(f)) abort();
}

static void open_folder(void) {
    const char *base = getenv("TMPDIR");
    if (folder[0]) return;
    snprintf(folder, sizeof folder, "%s/infinigen_XXXXXX", base && *base ? base : P_tmpdir);
    if (!mkdtemp(folder)) abort();
    atexit(remove_folder);
}

static ig_status open_hf(ig_tokenizer **t, int kind, const uint8_t *data, size_t n, ig_error *err) {
    static const char *const names[] = {"tokenizer.json", "tokenizer.model", "vocab.json", "merges.txt"};
    const uint8_t *end = memchr(data, 0, n);
    size_t first = kind == 'm' && end ? (size_t)(end - data) : n;
    open_folder();
    write_file(names[kind == 'j' ? 0 : kind == 's' ? 1 : 2], data, first);
    if (kind == 'm' && end) write_file("merges.txt", end + 1, n - first - 1);
    ig_status s = ig_tokenizer_from_hf(t, folder, 0, err);
    for (int i = 0; i < 4; i++) unlink(path_of(names[i]));
    return s;
}

static void use(const ig_tokenizer *t, const char *text, size_t n) {
    enum { CAP = 4096 };
    static int32_t ids[CAP + 8];
    char piece[64];
    ig_ids out = {.ids = ids, .cap = CAP}, few = {.ids = ids + CAP, .cap = 8, .is_capped = true};
    ig_error err;
    int flags = IG_TOKENIZE_ADD_SPECIAL | IG_TOKENIZE_PARSE_SPECIAL;
    ig_status s = ig_tokenizer_encode(t, &out, text, n, flags, &err);
    ig_status s_few = ig_tokenizer_encode(t, &few, text, n, flags, &err);
    if (s) return;
    if ((s_few != IG_OK) != (out.n > few.cap) || few.n > out.n) abort();
    if (!s_few && memcmp(ids, ids + CAP, out.n * sizeof *ids) != 0) abort();
    for (size_t i = 0; i < out.n && i < CAP; i++) {
        if (ids[i] < 0 || ids[i] >= ig_tokenizer_n_vocab(t)) abort();
        ig_tokenizer_piece(t, ids[i], true, piece, sizeof piece);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    static const char text[] =
        "Hello world,  12345 it's \xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80 \xff\xc3 \n\n\t<s></s><|im_end|> \xe2\x96\x81x";
    ig_tokenizer *t = NULL;
    ig_gguf *g = NULL;
    ig_error err = {0};
    ig_status s;
    if (n_bytes < 1) return 0;
    size_t n = n_bytes - 1;
    uint8_t *copy = malloc(n ? n : 1); /* aligned, and of exactly this size */
    if (!copy) return 0;
    memcpy(copy, data + 1, n);
    if (data[0] == 'g') {
        s = ig_gguf_open_memory(&g, copy, n, "input", &err);
        if (!s) s = ig_tokenizer_from_gguf(&t, g, &err);
    } else {
        s = open_hf(&t, data[0], copy, n, &err);
    }
    if (s && (err.status != s || !err.text[0])) abort();
    if (!s) {
        use(t, text, sizeof text - 1);
        use(t, (const char *)copy, n < 1024 ? n : 1024);
        ig_tokenizer_close(t);
    }
    ig_gguf_close(g);
    free(copy);
    return 0;
}
