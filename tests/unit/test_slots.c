/* SPDX-License-Identifier: Apache-2.0
 *
 * Entries dropped for ever: lists of slots against a plain model, and stores, in RAM and on disk and of every type of
 * row, in which each entry that is left must still be what was written for its token.
 */
#define _GNU_SOURCE
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/random.h"
#include "kv/slots.h"
#include "kv/store.h"
#include "temp_dir.h"

enum { CAPACITY = 300 };

static ig_random rnd;

static int any(int limit) { return (int)(ig_random_u64(&rnd) % (uint64_t)limit); }

/* Ascending numbers below n, n_kept of them. */
static void choose(int32_t *index, int n, int n_kept) {
    for (int i = 0, k = 0; i < n; i++)
        if (any(n - i) < n_kept - k) index[k++] = i;
}

/* ---- lists ----------------------------------------------------------------------- */

/* What lies in each slot, by way of which the list's moves are followed. */
static int content[CAPACITY];

static void move(void *user, int from, int to) {
    int *n_moves = user;
    assert_int_equal(content[to], -1);
    content[to] = content[from];
    content[from] = -1;
    ++*n_moves;
}

static void check_list(const ig_slots *s, const int *tokens, int n) {
    bool used[CAPACITY] = {false};
    assert_int_equal(s->n, n);
    assert_int_equal(s->n_slots, n + s->n_spare);
    for (int i = 0; i < n; i++) {
        int slot = s->order[i];
        assert_true(slot >= 0 && slot < s->n_slots && !used[slot]);
        used[slot] = true;
        assert_int_equal(content[slot], tokens[i]);
    }
    for (int i = 0; i < s->n_spare; i++) {
        assert_true(s->spare[i] < s->n_slots && !used[s->spare[i]]);
        used[s->spare[i]] = true;
    }
}

static void lists_follow_their_entries(void **state) {
    (void)state;
    static int32_t memory[2 * CAPACITY], index[CAPACITY];
    for (int round = 0; round < 50; round++) {
        ig_slots s = {.order = memory, .spare = memory + CAPACITY};
        int tokens[CAPACITY], n = 2 + any(CAPACITY - 1), n_seen = n, n_moves = 0;
        uint64_t lost = 0;
        for (int i = 0; i < CAPACITY; i++) content[i] = i < n ? i : -1;
        for (int i = 0; i < n; i++) tokens[i] = i;
        for (int step = 0; step < 60; step++) {
            if (step == 0 || (any(2) && n > 1)) {
                int n_kept = any(3) ? n - 1 : any(n);
                choose(index, n, n_kept);
                if (n_kept == n - 1 && any(2)) {
                    int gone = 0;
                    while (gone < n_kept && index[gone] == gone) gone++;
                    ig_slots_drop(&s, n, gone);
                } else {
                    ig_slots_keep(&s, n, index, n_kept);
                }
                for (int i = 0; i < n_kept; i++) tokens[i] = tokens[index[i]];
                for (int i = 0; i < s.n_spare; i++) content[s.spare[i]] = -1;
                lost += (uint64_t)(n - n_kept);
                n = n_kept;
            } else {
                int n_new = any(CAPACITY - n + 1), n_slots = ig_slots_after(&s, n_new);
                if (any(2) && n_new > 2) n_new = 2, n_slots = ig_slots_after(&s, 2);
                ig_slots_add(&s, n_new);
                assert_int_equal(s.n_slots, n_slots);
                for (int i = 0; i < n_new; i++) {
                    content[s.order[n + i]] = n_seen;
                    tokens[n + i] = n_seen++;
                }
                n += n_new;
            }
            check_list(&s, tokens, n);
            assert_int_equal(s.n + s.n_dropped, n_seen);
            assert_true(s.lost == lost);
            if (any(5)) continue;
            ig_slots_pack(&s, move, &n_moves);
            assert_int_equal(s.n_slots, n);
            check_list(&s, tokens, n);
        }
        assert_true(n_moves > 0);
        ig_slots_clear(&s);
        assert_int_equal(s.n_dropped, 0);
    }
}

/* ---- stores ------------------------------------------------------------------------ */

enum { LAYERS = 3, HEADS = 2, N_CTX = 700, BATCH = 64, DROPS = 1 /* first layer that drops */ };

typedef struct model {
    ig_kv *kv;
    ig_kv_options o;
    int dim, n_seen, n[LAYERS];
    int tokens[LAYERS][HEADS][N_CTX];
    int slots[LAYERS][HEADS][N_CTX]; /* what moved() said lies in each slot: a token */
} model;

static uint8_t stamp(int layer, int head, int token, size_t byte) {
    return (uint8_t)(layer * 31 + head * 7 + token * 131 + token / 256 + (int)byte * 3);
}

static uint64_t least_ram(const ig_kv_shape *shape, ig_kv_options o) {
    ig_kv *kv;
    ig_error err = {0};
    o.ram_bytes = 1;
    assert_int_equal(ig_kv_open(&kv, shape, &o, &err), IG_E_LIMIT);
    return strtoull(strstr(err.text, "at least ") + strlen("at least "), NULL, 10);
}

static void write_row(model *m, int layer, int head, int token) {
    int slot = ig_kv_slot(m->kv, layer, head, token);
    size_t bytes = ig_kv_row_bytes(m->o.type, m->dim);
    ig_kv_row row = ig_kv_at(m->kv, layer, head, slot);
    uint8_t *k = row.key, *v = row.value;
    for (size_t i = 0; i < bytes; i++) {
        k[i] = stamp(layer, head, token, i);
        v[i] = (uint8_t)~stamp(layer, head, token, i);
    }
    ig_kv_line *lines = row.lines;
    for (size_t i = 0; lines && i < 2 * ig_kv_row_lines(m->o.type, m->dim); i++)
        lines[i] = (ig_kv_line){(uint16_t)(token * 2), (uint16_t)(token + (int)i)};
    m->slots[layer][head][slot] = token;
}

static void add(model *m, int n_new) {
    ig_error err = {0};
    for (int l = 0; l < LAYERS; l++) {
        if (ig_kv_extend(m->kv, l, m->n_seen + n_new, &err)) fail_msg("%s", err.text);
        for (int h = 0; h < HEADS; h++)
            for (int i = 0; i < n_new; i++) {
                m->tokens[l][h][m->n[l] + i] = m->n_seen + i;
                write_row(m, l, h, m->n_seen + i);
            }
        m->n[l] += n_new;
        if (ig_kv_seal(m->kv, l, &err)) fail_msg("%s", err.text);
    }
    m->n_seen += n_new;
}

static void check_row(const model *m, const ig_kv_view *v, int layer, int head, int i) {
    int slot = v->index ? v->index[i] : i, token = m->tokens[layer][head][i];
    const uint8_t *k = ig_kv_view_row(v, slot);
    assert_int_equal(m->slots[layer][head][slot], token);
    for (size_t b = 0; b < v->row_bytes; b++) {
        assert_int_equal(k[b], stamp(layer, head, token, b));
        assert_int_equal(k[v->v_offset + b], (uint8_t)~stamp(layer, head, token, b));
    }
    size_t n_lines = 2 * ig_kv_row_lines(m->o.type, m->dim);
    for (size_t j = 0; v->lines && j < n_lines; j++) {
        assert_int_equal(ig_kv_view_lines(v, slot)[j].step, (uint16_t)(token * 2));
        assert_int_equal(ig_kv_view_lines(v, slot)[j].min, (uint16_t)(token + (int)j));
    }
}

static void check_store(const model *m) {
    assert_int_equal(ig_kv_length(m->kv), m->n_seen);
    for (int l = 0; l < LAYERS; l++)
        for (int h = 0; h < HEADS; h++) {
            ig_entries e = ig_kv_entries(m->kv, l, h);
            assert_int_equal(e.n, m->n[l]);
            if (!ig_kv_in_ram(m->kv, l, 0, INT_MAX)) {
                assert_null(e.slot);
                continue; /* never dropped from: rows on disk are test_tier_disk.c's */
            }
            ig_kv_view v = ig_kv_fetch(m->kv, l, h, e.slot, 0, e.n);
            for (int i = 0; i < e.n; i++) check_row(m, &v, l, h, i);
        }
}

static void keep(model *m, int layer, int n_kept) {
    static int32_t index[N_CTX];
    for (int h = 0; h < HEADS; h++) {
        choose(index, m->n[layer], n_kept);
        int gone = 0;
        while (gone < n_kept && index[gone] == gone) gone++;
        if (n_kept == m->n[layer] - 1)
            ig_kv_drop(m->kv, layer, h, gone);
        else
            ig_kv_keep(m->kv, layer, h, index, n_kept);
        for (int i = 0; i < n_kept; i++) m->tokens[layer][h][i] = m->tokens[layer][h][index[i]];
    }
    m->n[layer] = n_kept;
}

static void moved(void *user, int layer, int head, int from, int to) {
    model *m = user;
    m->slots[layer][head][to] = m->slots[layer][head][from];
}

static uint64_t ram_bytes(const ig_kv *kv) {
    ig_kv_stats st;
    ig_kv_get_stats(kv, &st);
    return st.ram_bytes;
}

typedef struct variant {
    ig_kv_type type;
    int dim;
    bool on_disk;
} variant;

static void what_is_kept_stays(void **state) {
    const variant *var = *state;
    static model m;
    temp_dir dir = temp_dir_open();
    ig_kv_shape shape = {
        .n_layers = LAYERS, .n_kv_heads = HEADS, .head_dim = var->dim, .n_ctx = N_CTX, .n_batch = BATCH};
    m = (model){.dim = var->dim, .o = {.type = var->type, .n_dropping = LAYERS - DROPS}};
    if (var->on_disk) {
        m.o.disk_bytes = 64 << 20;
        m.o.disk_path = dir.path;
        m.o.ram_bytes = least_ram(&shape, m.o);
    }
    ig_error err = {0};
    if (ig_kv_open(&m.kv, &shape, &m.o, &err)) fail_msg("%s", err.text);
    if (ig_kv_may_drop(m.kv, &err)) fail_msg("%s", err.text);
    for (int round = 0; round < 3; round++) {
        while (m.n_seen + BATCH < 500) add(&m, 1 + any(BATCH));
        check_store(&m);
        uint64_t before = ram_bytes(m.kv);
        for (int l = DROPS; l < LAYERS; l++) {
            keep(&m, l, 40 + l);
            if (ig_kv_compact(m.kv, l, moved, &m, &err)) fail_msg("%s", err.text);
        }
        assert_true(ig_kv_has_dropped(m.kv));
        check_store(&m);
        if (!var->on_disk) assert_true(ram_bytes(m.kv) < before / 2);
        for (int step = 0; step < 60; step++) {
            for (int l = DROPS; l < LAYERS; l++) {
                if (any(4)) keep(&m, l, m.n[l] - 1);
                if (any(8) == 0 && ig_kv_compact(m.kv, l, moved, &m, &err)) fail_msg("%s", err.text);
            }
            add(&m, 1);
            check_store(&m);
        }
        add(&m, BATCH);
        check_store(&m);
        if (var->on_disk) assert_true(ram_bytes(m.kv) <= m.o.ram_bytes);
        ig_kv_stats st;
        ig_kv_get_stats(m.kv, &st);
        assert_true(st.entries == (uint64_t)((m.n[0] + m.n[1] + m.n[2]) * HEADS));
        /* A part of what was seen cannot be gone back to. */
        assert_int_equal(ig_kv_cut(m.kv, m.n_seen, &err), IG_OK);
        check_store(&m);
        assert_int_equal(ig_kv_cut(m.kv, m.n_seen - 1, &err), IG_OK);
        assert_int_equal(ig_kv_length(m.kv), 0);
        assert_false(ig_kv_has_dropped(m.kv));
        memset(m.n, 0, sizeof m.n);
        m.n_seen = 0;
    }
    ig_kv_close(m.kv);
    temp_dir_close(&dir);
}

static void slots_are_used_again(void **state) {
    (void)state;
    enum { LIMIT = 100 };
    static model m;
    ig_kv_shape shape = {.n_layers = LAYERS, .n_kv_heads = HEADS, .head_dim = 64, .n_ctx = N_CTX, .n_batch = BATCH};
    m = (model){.dim = 64, .o = {.limit = LIMIT, .n_dropping = LAYERS - DROPS}};
    ig_error err = {0};
    uint64_t plan, all;
    assert_int_equal(ig_kv_plan_slots(&shape, &m.o), LIMIT + BATCH);
    assert_int_equal(ig_kv_plan(&plan, &shape, &m.o, NULL), IG_OK);
    assert_int_equal(ig_kv_plan(&all, &shape, NULL, NULL), IG_OK);
    assert_true(plan < all * 6 / 10);
    if (ig_kv_open(&m.kv, &shape, &m.o, &err)) fail_msg("%s", err.text);
    if (ig_kv_may_drop(m.kv, &err)) fail_msg("%s", err.text);
    while (m.n_seen < N_CTX) {
        int n = m.n_seen < 400 ? BATCH : 1;
        add(&m, n < N_CTX - m.n_seen ? n : N_CTX - m.n_seen);
        for (int l = DROPS; l < LAYERS; l++)
            if (m.n[l] > LIMIT) keep(&m, l, LIMIT);
        check_store(&m);
        for (int l = DROPS; l < LAYERS; l++) {
            ig_entries e = ig_kv_entries(m.kv, l, 0);
            assert_true(e.n <= LIMIT && e.n_slots <= LIMIT + BATCH);
        }
        assert_true(ram_bytes(m.kv) <= plan);
    }
    ig_kv_stats st;
    ig_kv_get_stats(m.kv, &st);
    assert_true(st.dropped == (uint64_t)(N_CTX - LIMIT) * (LAYERS - DROPS) * HEADS);
    ig_kv_close(m.kv);
}

/* Bytes of this process that are in RAM. */
static size_t resident_bytes(void) {
    size_t n_pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%*u %zu", &n_pages), 1);
    fclose(f);
    return n_pages * (size_t)sysconf(_SC_PAGESIZE);
}

static void moved_anywhere(void *user, int layer, int head, int from, int to) {
    (void)user, (void)layer, (void)head, (void)from, (void)to;
}

/* Memory of what is dropped goes back to the system, also where frames are no whole pages: heads of 80 take 2560 bytes.
 */
static void memory_goes_back(void **state) {
    enum { MANY = 40000, FEW = 16 };
    static const int dims[] = {64, 80};
    (void)state;
    if (sysconf(_SC_PAGESIZE) != 4096) skip();
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        ig_kv_shape shape = {.n_layers = 1, .n_kv_heads = 1, .head_dim = dims[i], .n_ctx = MANY, .n_batch = MANY};
        ig_kv_options o = {.n_dropping = 1};
        size_t bytes = (size_t)(MANY * dims[i]) * 2 * sizeof(uint16_t);
        int32_t kept[FEW];
        ig_error err = {0};
        ig_kv *kv;
        if (ig_kv_open(&kv, &shape, &o, &err)) fail_msg("%s", err.text);
        if (ig_kv_may_drop(kv, &err) || ig_kv_extend(kv, 0, MANY, &err)) fail_msg("%s", err.text);
        for (int t = 0; t < MANY; t++) {
            ig_kv_row row = ig_kv_at(kv, 0, 0, t);
            memset(row.key, 1, (size_t)dims[i] * sizeof(uint16_t));
            memset(row.value, 2, (size_t)dims[i] * sizeof(uint16_t));
        }
        size_t before = resident_bytes();
        for (int k = 0; k < FEW; k++) kept[k] = k * (MANY / FEW);
        ig_kv_keep(kv, 0, 0, kept, FEW);
        if (ig_kv_compact(kv, 0, moved_anywhere, NULL, &err)) fail_msg("%s", err.text);
        size_t after = resident_bytes();
        if (after + bytes * 3 / 4 > before)
            fail_msg("%zu bytes of RAM became %zu, %zu of which were given up", before, after, bytes);
        ig_kv_close(kv);
    }
}

int main(void) {
    static variant variants[] = {{IG_KV_F16, 64, false}, {IG_KV_Q8, 80, false}, {IG_KV_Q4, 128, false},
                                 {IG_KV_F16, 128, true}, {IG_KV_Q8, 64, true},  {IG_KV_Q4, 96, true},
                                 {IG_KV_Q2, 256, false}, {IG_KV_Q1, 128, true}};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_follow_their_entries),
        cmocka_unit_test(slots_are_used_again),
        cmocka_unit_test(memory_goes_back),
        {"f16", what_is_kept_stays, NULL, NULL, &variants[0]},
        {"q8", what_is_kept_stays, NULL, NULL, &variants[1]},
        {"q4", what_is_kept_stays, NULL, NULL, &variants[2]},
        {"f16 on disk", what_is_kept_stays, NULL, NULL, &variants[3]},
        {"q8 on disk", what_is_kept_stays, NULL, NULL, &variants[4]},
        {"q4 on disk", what_is_kept_stays, NULL, NULL, &variants[5]},
        {"q2", what_is_kept_stays, NULL, NULL, &variants[6]},
        {"q1 on disk", what_is_kept_stays, NULL, NULL, &variants[7]},
    };
    rnd.state = 11;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
