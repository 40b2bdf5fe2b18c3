/* SPDX-License-Identifier: Apache-2.0
 *
 * What tests of the KV store with a disk tier share: a store in a directory of its own, tokens with known keys and
 * values, and picks of them. Define _GNU_SOURCE before the first include.
 */
#ifndef TESTS_KV_DISK_RIG_H
#define TESTS_KV_DISK_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kv/store.h"
#include "temp_dir.h"

enum { LAYERS = 12, HEADS = 3, DIM = 64, TOKENS = 2048, BATCH = 128, PER_BLOCK = 16 };

static ig_kv_shape shape = {
    .n_layers = LAYERS, .n_kv_heads = HEADS, .head_dim = DIM, .n_ctx = TOKENS + 64, .n_batch = BATCH};
static bool with_threads; /* instead of io_uring */
static int n_dropping;    /* layers that entries are dropped of */

typedef struct rig {
    temp_dir dir;
    ig_kv_options options;
    ig_kv *kv;
    int32_t index[HEADS][TOKENS];
    ig_kv_pick picks[HEADS];
} rig;

static inline void expect_ok(ig_status s, const ig_error *err) {
    if (s) fail_msg("%s", err->text);
}

static inline ig_kv_stats stats(const rig *r) {
    ig_kv_stats st;
    ig_kv_get_stats(r->kv, &st);
    return st;
}

/* What r->picks says of a layer; a step begins with the first one. */
static inline ig_status load(rig *r, int layer, ig_error *err) {
    if (layer == 0) ig_kv_begin_step(ig_kv_memory_of(r->kv));
    return ig_kv_load(r->kv, layer, r->picks, HEADS, err);
}

static inline ig_status prefetch(rig *r, int layer, ig_error *err) {
    return ig_kv_prefetch_all(ig_kv_memory_of(r->kv), layer,
                              &(ig_kv_want){.kv = r->kv, .picks = r->picks, .n_picks = HEADS}, 1, err);
}

static inline uint16_t stamp(int layer, int head, int token, int c) {
    return (uint16_t)(layer * 31 + head * 7 + token * 131 + c);
}

/* Tokens [n, n + count) of all layers, as a model brings them. */
static inline ig_status try_tokens(rig *r, int n, int count, ig_error *err) {
    for (int l = 0; l < LAYERS; l++) {
        ig_status s = ig_kv_extend(r->kv, l, n + count, err);
        if (s) return s;
        for (int h = 0; h < HEADS; h++)
            for (int t = n; t < n + count; t++) {
                uint16_t row[2][DIM];
                for (int c = 0; c < DIM; c++) {
                    row[0][c] = stamp(l, h, t, c);
                    row[1][c] = (uint16_t)~row[0][c];
                }
                ig_kv_view v = ig_kv_fetch(r->kv, l, h, NULL, 0, n + count);
                uint8_t *at = (uint8_t *)(uintptr_t)ig_kv_view_row(&v, t);
                memcpy(at, row[0], sizeof row[0]);
                memcpy(at + v.v_offset, row[1], sizeof row[1]);
            }
        s = ig_kv_seal(r->kv, l, err);
        if (s) return s;
    }
    return IG_OK;
}

static inline void add_tokens(rig *r, int n, int count) {
    ig_error err = {0};
    expect_ok(try_tokens(r, n, count, &err), &err);
}

/* What an error says that a store needs. */
static inline uint64_t least_of(const ig_error *err) {
    const char *at = strstr(err->text, "at least ");
    assert_non_null(at);
    return strtoull(at + strlen("at least "), NULL, 10);
}

/* A store whose limit is `share` of the way from the least to all. */
static inline void open_rig(rig *r, ig_evict_rule evict, double share) {
    ig_error err = {0};
    *r = (rig){.dir = temp_dir_open()};
    r->options = (ig_kv_options){.ram_bytes = 1,
                                 .disk_bytes = 64 << 20,
                                 .disk_path = r->dir.path,
                                 .evict = evict,
                                 .n_dropping = n_dropping,
                                 .no_uring = with_threads};
    assert_int_equal(ig_kv_open(&r->kv, &shape, &r->options, &err), IG_E_LIMIT);
    uint64_t least = least_of(&err);
    uint64_t all = (uint64_t)LAYERS * HEADS * TOKENS * DIM * 4;
    assert_true(least < all);
    r->options.ram_bytes = least + (uint64_t)(share * (double)(all - least));
    expect_ok(ig_kv_open(&r->kv, &shape, &r->options, &err), &err);
    expect_ok(ig_kv_may_drop(r->kv, &err), &err);
}

static inline void close_rig(rig *r) {
    ig_kv_close(r->kv);
    temp_dir_close(&r->dir);
}

/* Every `stride`th block of each head, two tokens of it; `first` differs by head. */
static inline int pick_blocks(rig *r, int first, int stride, int n_tokens) {
    int n_blocks = 0;
    for (int h = 0; h < HEADS; h++) {
        int n = 0;
        for (int b = (first + h) % stride; b < n_tokens / PER_BLOCK; b += stride, n_blocks++) {
            r->index[h][n++] = b * PER_BLOCK + (b + h) % 8;
            r->index[h][n++] = b * PER_BLOCK + 8 + b % 8;
        }
        r->picks[h] = (ig_kv_pick){r->index[h], n};
    }
    return n_blocks;
}

static inline void check_picks(const rig *r, int layer) {
    for (int h = 0; h < HEADS; h++) {
        ig_kv_view v = ig_kv_fetch(r->kv, layer, h, r->picks[h].index, 0, r->picks[h].n);
        for (int i = 0; i < v.n; i++) {
            int token = v.index[i];
            const uint8_t *at = ig_kv_view_row(&v, token);
            for (int c = 0; c < DIM; c++) {
                uint16_t key, value;
                memcpy(&key, at + c * 2, 2);
                memcpy(&value, at + v.v_offset + c * 2, 2);
                assert_int_equal(key, stamp(layer, h, token, c));
                assert_int_equal(value, (uint16_t)~key);
            }
        }
    }
}

#endif
