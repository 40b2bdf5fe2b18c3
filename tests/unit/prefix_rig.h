/* SPDX-License-Identifier: Apache-2.0
 *
 * A prefix store in a temporary directory, and chains of pieces whose tokens and payloads follow from their chain and
 * number. Define _GNU_SOURCE before the first include.
 */
#ifndef TESTS_PREFIX_RIG_H
#define TESTS_PREFIX_RIG_H

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "base/random.h"
#include "kv/prefix_store.h"
#include "temp_dir.h"

enum { RIG_TOKENS = 16, RIG_BYTES = 10001, RIG_RECORD = 4096 + 12288, RIG_AREAS = 40 };

typedef struct prefix_rig {
    temp_dir dir;
    ig_prefix_store_options o;
    ig_prefix_store *store;
    ig_error err;
} prefix_rig;

/* A piece with all that belongs to it. */
typedef struct rig_piece {
    ig_prefix_piece piece;
    int32_t tokens[RIG_TOKENS];
    uint8_t bytes[RIG_BYTES];
} rig_piece;

static const ig_prefix_id rig_root = {17, 4};

static inline ig_prefix_id rig_id(const ig_prefix_store_options *o, uint64_t chain, int number) {
    if (number < 0) return o->root;
    ig_random a = {o->root.low + chain * 1000003 + (uint64_t)number};
    uint64_t low = ig_random_u64(&a);
    return (ig_prefix_id){low, ig_random_u64(&a)};
}

static inline void rig_make(rig_piece *p, const ig_prefix_store_options *o, uint64_t chain, int number) {
    ig_random a = {chain * 7919 + (uint64_t)number + 1};
    p->piece = (ig_prefix_piece){rig_id(o, chain, number), rig_id(o, chain, number - 1), number, p->tokens};
    for (int i = 0; i < RIG_TOKENS; i++) p->tokens[i] = (int32_t)(ig_random_u64(&a) % 50000);
    for (int i = 0; i < RIG_BYTES; i++) p->bytes[i] = (uint8_t)ig_random_u64(&a);
}

/* Cuts bytes into areas of all sizes, some of them empty; their number. */
static inline int rig_scatter(struct iovec areas[RIG_AREAS], uint8_t *bytes, size_t n_bytes) {
    static const size_t sizes[] = {1, 0, 4096, 7, 512, 0, 64, 333};
    int n = 0;
    for (size_t at = 0; n < RIG_AREAS && at < n_bytes; n++) {
        size_t n_now = n + 1 < RIG_AREAS ? sizes[n % 8] : n_bytes;
        if (n_now > n_bytes - at) n_now = n_bytes - at;
        areas[n] = (struct iovec){bytes + at, n_now};
        at += n_now;
    }
    return n;
}

static inline ig_status rig_put(prefix_rig *r, uint64_t chain, int number) {
    struct iovec areas[RIG_AREAS];
    rig_piece p;
    rig_make(&p, &r->o, chain, number);
    return ig_prefix_store_put(r->store, &p.piece, areas, rig_scatter(areas, p.bytes, RIG_BYTES), &r->err);
}

/* Reads a piece; if that works it must be what was put. */
static inline ig_status rig_read_of(ig_prefix_store *store, const ig_prefix_store_options *o, uint64_t chain,
                                    int number, ig_error *err) {
    struct iovec areas[RIG_AREAS];
    rig_piece p;
    uint8_t bytes[RIG_BYTES];
    rig_make(&p, o, chain, number);
    memset(bytes, 0xee, sizeof bytes);
    ig_status status = ig_prefix_store_read(store, &p.piece, areas, rig_scatter(areas, bytes, RIG_BYTES), err);
    if (!status) assert_memory_equal(bytes, p.bytes, RIG_BYTES);
    return status;
}

static inline ig_status rig_read(prefix_rig *r, uint64_t chain, int number) {
    return rig_read_of(r->store, &r->o, chain, number, &r->err);
}

static inline bool rig_has(prefix_rig *r, uint64_t chain, int number) {
    rig_piece p;
    rig_make(&p, &r->o, chain, number);
    return ig_prefix_store_has(r->store, &p.piece);
}

#define RIG_OK(r, call)                                     \
    do {                                                    \
        if ((call) != IG_OK) fail_msg("%s", (r)->err.text); \
    } while (0)

static inline void rig_open(prefix_rig *r) { RIG_OK(r, ig_prefix_store_open(&r->store, &r->o, &r->err)); }

static inline void rig_close_store(prefix_rig *r) {
    ig_prefix_store_close(r->store);
    r->store = NULL;
}

static inline void rig_reopen(prefix_rig *r) {
    rig_close_store(r);
    rig_open(r);
}

static inline void rig_commit(prefix_rig *r) { RIG_OK(r, ig_prefix_store_commit(r->store, &r->err)); }

/* Puts and commits pieces first..last of a chain. */
static inline void rig_keep(prefix_rig *r, uint64_t chain, int first, int last) {
    for (int i = first; i <= last; i++) RIG_OK(r, rig_put(r, chain, i));
    rig_commit(r);
}

static inline void rig_init(prefix_rig *r) {
    *r = (prefix_rig){.dir = temp_dir_open()};
    r->o = (ig_prefix_store_options){.directory = r->dir.path,
                                     .root = rig_root,
                                     .notes = rig_root,
                                     .model = "smollm2-135m q8_0",
                                     .kind = "f16 infinigen",
                                     .piece_tokens = RIG_TOKENS,
                                     .piece_bytes = RIG_BYTES};
}

static inline void rig_start(prefix_rig *r) {
    rig_init(r);
    rig_open(r);
}

static inline void rig_start_with(prefix_rig *r, ig_prefix_fault_fn fault, void *user) {
    rig_init(r);
    r->o.fault = fault;
    r->o.fault_user = user;
    rig_open(r);
}

static inline void rig_end(prefix_rig *r) {
    rig_close_store(r);
    temp_dir_close(&r->dir);
}

/* The path of the file number `at`, by name, whose name begins and ends so; false if there are fewer. */
static inline bool rig_find_file(const prefix_rig *r, const char *beginning, const char *ending, int at,
                                 char path[512]) {
    struct dirent **list;
    bool found = false;
    int n = scandir(r->dir.path, &list, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        const char *name = list[i]->d_name;
        size_t k = strlen(name), m = strlen(ending);
        bool is = strncmp(name, beginning, strlen(beginning)) == 0 && k >= m && strcmp(name + k - m, ending) == 0;
        if (is && !found && at-- == 0) {
            temp_dir_path(&r->dir, name, path, 512);
            found = true;
        }
        free(list[i]);
    }
    if (n >= 0) free(list);
    return found;
}

static inline int rig_count_files(const prefix_rig *r, const char *beginning, const char *ending) {
    char path[512];
    int n = 0;
    while (rig_find_file(r, beginning, ending, n, path)) n++;
    return n;
}

static inline void rig_remove_index(const prefix_rig *r) {
    char path[512];
    while (rig_find_file(r, "index.db", "", 0, path)) assert_int_equal(unlink(path), 0);
}

/* ---- files, and disks that say no ---- */

static inline ig_prefix_store_stats stats_of(prefix_rig *r) {
    ig_prefix_store_stats stats;
    ig_prefix_store_get_stats(r->store, &stats);
    return stats;
}

/* The whole of a small file. */
typedef struct rig_bytes {
    uint8_t *data;
    size_t n;
} rig_bytes;

static inline rig_bytes load(const char *path) {
    struct stat st;
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0 && fstat(fd, &st) == 0);
    rig_bytes b = {malloc((size_t)st.st_size + 1), (size_t)st.st_size};
    assert_int_equal(read(fd, b.data, b.n), b.n);
    close(fd);
    return b;
}

static inline void save(const char *path, const void *data, size_t n) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, n), n);
    close(fd);
}

static inline void flip(const char *path, size_t at) {
    uint8_t byte = 0;
    int fd = open(path, O_RDWR);
    if (fd < 0) return; /* a writer has removed it */
    if (pread(fd, &byte, 1, (off_t)at) == 1) {
        byte ^= 0x10;
        assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
    }
    close(fd);
}

static inline void save_text(const char *path, const char *text) { save(path, text, strlen(text)); }

typedef struct trouble {
    ig_prefix_call call;
    int result, after, n_left;
    size_t most; /* bytes that a call moves, if no error */
} trouble;

static inline int make_trouble(void *user, ig_prefix_call call, int result) {
    trouble *t = user;
    if (call != t->call || t->after-- > 0 || t->n_left <= 0) return result;
    t->n_left--;
    return t->result;
}

#endif
