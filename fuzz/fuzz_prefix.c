/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz target: files of stored prefixes. The first byte says which: 'p' a file of pieces, 'n' a note, 'i' the index of
 * a store with one good piece. Files are tried as they are and with their checksums, places and store put right, so
 * that what lies behind these checks is reached; by a reader, a writer and the tools.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <xxhash.h>

#include "kv/prefix_record.h"
#include "infinigen_tools.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

enum { PAGE = IG_PREFIX_PAGE, BYTES = 100 };

static char folder[256]; /* holds the store of one input */
static const ig_prefix_id root = {1, 2}, store = {3, 4};

static void empty_folder(void) {
    char path[600];
    DIR *list = opendir(folder);
    for (struct dirent *e; list && (e = readdir(list));) {
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (e->d_name[0] != '.') unlink(path);
    }
    if (list) closedir(list);
}

static void remove_folder(void) {
    empty_folder();
    rmdir(folder);
}

static void open_folder(void) {
    const char *base = getenv("TMPDIR");
    if (folder[0]) return;
    snprintf(folder, sizeof folder, "%s/infinigen_XXXXXX", base && *base ? base : P_tmpdir);
    if (!mkdtemp(folder)) abort();
    atexit(remove_folder);
}

static void write_file(const char *name, const uint8_t *data, size_t n) {
    char path[600];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, n, f) != n || fclose(f)) abort();
}

static void put_hash(uint8_t *to, const uint8_t *data, size_t n) {
    XXH128_hash_t h = XXH3_128bits(data, n);
    ig_prefix_put_id(to, &(ig_prefix_id){h.low64, h.high64});
}

/* What begins like a header gets its store, place and checksums. */
static void put_right(uint8_t *data, size_t n_bytes) {
    for (size_t at = 0; at + PAGE <= n_bytes; at += PAGE) {
        uint8_t *page = data + at;
        uint64_t n_payload;
        if (memcmp(page, "IGPREFIX", 8) != 0 && memcmp(page, "IGKVNOTE", 8) != 0) continue;
        memcpy(&n_payload, page + 88, sizeof n_payload);
        ig_prefix_put_id(page + 16, &store);
        if (n_payload <= n_bytes - at - PAGE) put_hash(page + 96, page + PAGE, (size_t)n_payload);
        if (page[2] == 'P') {
            memset(page + 112, 0, 16);
            page[112] = 1;
            for (int i = 0; i < 8; i++) page[120 + i] = (uint8_t)((uint64_t)at >> 8 * i);
        }
        put_hash(page + PAGE - 16, page, PAGE - 16);
    }
}

static bool count(void *user, const ig_stored_item *item) {
    *(uint64_t *)user += strlen(item->model) + strlen(item->kind) + strlen(item->note) + item->bytes;
    return false;
}

static void use_tools(void) {
    uint64_t sum = 0;
    for (int write = 0; write < 2; write++) {
        ig_stored *s;
        ig_stored_health h;
        ig_stored_freed freed;
        ig_error err = {0};
        ig_status status = ig_stored_open(&s, folder, write, &err);
        if (status) {
            if (err.status != status || !err.text[0]) abort();
            continue;
        }
        ig_stored_list(s, count, &sum, NULL);
        ig_stored_verify(&h, s, count, NULL, &sum, NULL);
        if (write) ig_stored_remove(&freed, s, IG_STORED_ID, "1", NULL);
        if (write) ig_stored_gc(&freed, s, 1, NULL);
        ig_stored_close(s);
    }
}

/* The piece that all these files may hold: served as it was written, or not. */
static void use_store(bool read_only, uint64_t max_bytes) {
    uint8_t bytes[BYTES], expected[BYTES];
    int32_t tokens[16];
    struct iovec area = {bytes, BYTES}, from = {expected, BYTES};
    ig_prefix_store *s;
    void *text;
    size_t n;
    for (int i = 0; i < 16; i++) tokens[i] = i;
    memset(expected, 'x', sizeof expected);
    const ig_prefix_piece p = {{5, 6}, root, 0, tokens};
    const ig_prefix_store_options o = {.directory = folder,
                                       .root = root,
                                       .model = "m",
                                       .kind = "k",
                                       .piece_tokens = 16,
                                       .piece_bytes = BYTES,
                                       .max_bytes = max_bytes,
                                       .read_only = read_only};
    if (ig_prefix_store_open(&s, &o, NULL)) return;
    for (int i = 0; i < 2; i++) {
        bool has = ig_prefix_store_has(s, &p);
        ig_status status = ig_prefix_store_read(s, &p, &area, 1, NULL);
        if (!has && status == IG_OK) abort();
        if (status == IG_E_FORMAT && ig_prefix_store_has(s, &p)) abort();
    }
    if (ig_prefix_store_note_get(s, "a", &text, &n, NULL) == IG_OK) free(text);
    bool was_there = ig_prefix_store_has(s, &p);
    if (!read_only && !ig_prefix_store_put(s, &p, &from, 1, NULL) && !ig_prefix_store_commit(s, NULL) && !was_there) {
        if (ig_prefix_store_read(s, &p, &area, 1, NULL) || memcmp(bytes, expected, BYTES) != 0) abort();
    }
    ig_prefix_store_close(s);
}

static void write_good_store(void) {
    static uint8_t data[2 * PAGE];
    memset(data, 0, sizeof data);
    memset(data + PAGE, 'x', BYTES);
    ig_prefix_record r = {
        .root = root, .payload_bytes = BYTES, .id = {5, 6}, .parent = root, .n_tokens = 16, .file = 1};
    for (int i = 0; i < 16; i++) r.tokens[i] = i;
    ig_prefix_record_write(data, &r);
    put_right(data, sizeof data);
    write_file("kv-0000000000000001.igkv", data, sizeof data);
    ig_prefix_record id = {.store = store, .is_note = true, .name = "store"};
    ig_prefix_record_write(data, &id);
    write_file("store.id", data, PAGE);
}

static void try_store(int kind, const uint8_t *data, size_t n) {
    static const char digits[] = "note-0123456789abcdef0123456789abcdef.igkv";
    bool tools_first = n % 2; /* who comes first may repair it */
    empty_folder();
    if (kind != 'p') write_good_store();
    write_file(kind == 'p' ? "kv-0000000000000001.igkv" : kind == 'n' ? digits : "index.db", data, n);
    if (tools_first) use_tools();
    use_store(true, 0);
    use_store(false, tools_first ? 3 * PAGE : 0);
    if (!tools_first) use_tools();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    static ig_prefix_record r;
    if (n_bytes < 1) return 0;
    size_t n = n_bytes - 1;
    uint8_t *copy = malloc(n ? n : 1);
    if (!copy) return 0;
    memcpy(copy, data + 1, n);
    open_folder();
    if (n >= PAGE) ig_prefix_record_read(&r, copy);
    try_store(data[0], copy, n);
    if (data[0] != 'i') {
        put_right(copy, n);
        if (n >= PAGE && ig_prefix_record_read(&r, copy) == IG_PREFIX_VALID) {
            uint8_t page[PAGE]; /* what is read can be written, and is then the same */
            static ig_prefix_record again;
            ig_prefix_record_write(page, &r);
            if (ig_prefix_record_read(&again, page) != IG_PREFIX_VALID || memcmp(&again, &r, sizeof r) != 0) abort();
        }
        try_store(data[0], copy, n);
    }
    free(copy);
    return 0;
}
