/* SPDX-License-Identifier: Apache-2.0
 *
 * The merge loop against the definition: while some pair merges, join the best one, the leftmost of equals. Random
 * vocabularies over a small alphabet, by merge table and by score.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "token/merge.h"

enum { ALPHABET = 4, TOKENS = 60, WORD_MAX = 6000 };

typedef struct piece {
    int at, size, id;
} piece;

/* The rank of joining two neighbours, UINT32_MAX if they don't. */
static uint32_t pair_rank(const ig_merge_rules *r, const char *word, piece a, piece b, int *id) {
    if (r->ranks) {
        *id = ig_vocab_find(r->vocab, word + a.at, (size_t)(a.size + b.size));
        return *id < 0 ? UINT32_MAX : r->ranks[*id];
    }
    const ig_merge_slot *slot = ig_merges_find(&r->merges, a.id, b.id);
    *id = slot ? slot->id : -1;
    return slot ? slot->rank : UINT32_MAX;
}

static int merge_slowly(const ig_merge_rules *r, const char *word, int n, int *ids) {
    static piece pieces[WORD_MAX];
    for (int i = 0; i < n; i++) pieces[i] = (piece){i, 1, ig_vocab_find(r->vocab, word + i, 1)};
    for (;;) {
        uint32_t best = UINT32_MAX;
        int at = -1, best_id = -1, id;
        for (int i = 0; i + 1 < n; i++) {
            uint32_t rank = pair_rank(r, word, pieces[i], pieces[i + 1], &id);
            if (rank < best) best = rank, at = i, best_id = id;
        }
        if (at < 0) break;
        pieces[at] = (piece){pieces[at].at, pieces[at].size + pieces[at + 1].size, best_id};
        for (int i = at + 1; i + 1 < n; i++) pieces[i] = pieces[i + 1];
        n--;
    }
    for (int i = 0; i < n; i++) ids[i] = pieces[i].id;
    return n;
}

/* Tokens: the letters, then joins of two earlier ones. */
static void make_rules(ig_merge_rules *r, ig_vocab *v, ig_random *random, bool by_score) {
    static uint32_t ranks[TOKENS];
    ig_error err;
    *r = (ig_merge_rules){.vocab = v, .bytewise = !by_score, .unknown = -1};
    assert_true(ig_vocab_open(v, TOKENS) && ig_merges_open(&r->merges, TOKENS));
    for (int i = 0; i < 256; i++) r->byte_ids[i] = -1;
    for (int32_t id = 0; id < TOKENS; id++) {
        char text[512] = {(char)('a' + id)};
        size_t size = 1;
        int flags = IG_TOKEN_MODEL;
        if (id >= ALPHABET) {
            int32_t left = (int32_t)(ig_random_u64(random) % (uint64_t)id),
                    right = (int32_t)(ig_random_u64(random) % (uint64_t)id);
            ig_text a = ig_vocab_text(v, left), b = ig_vocab_text(v, right);
            if (a.size + b.size > 12) b.size = 0;
            size = a.size + b.size;
            memcpy(text, a.data, a.size);
            memcpy(text + a.size, b.data, b.size);
            for (int32_t k = 0; k < id; k++) { /* no duplicates in the hash */
                ig_text c = ig_vocab_text(v, k);
                if (c.size == size && memcmp(c.data, text, size) == 0) flags = 0;
            }
            if (flags) ig_merges_put(&r->merges, left, right, (uint32_t)id, id);
        } else {
            r->byte_ids['a' + id] = id;
        }
        assert_true(ig_vocab_put(v, id, text, size, IG_TOKEN_NORMAL, flags));
        ranks[id] = (uint32_t)(ig_random_u64(random) % 9); /* equal ranks are common */
    }
    assert_int_equal(ig_vocab_index(v, "test", &err), IG_OK);
    if (by_score) r->ranks = ranks;
}

/* Words of up to `longest` letters. */
static void check_random(uint64_t seed, bool by_score, int rounds, int longest) {
    ig_random random = {seed};
    ig_merge_rules r;
    ig_vocab v;
    ig_merge_space space = {0};
    ig_error err;
    make_rules(&r, &v, &random, by_score);
    for (int round = 0; round < rounds; round++) {
        static char word[WORD_MAX];
        static int32_t ids[WORD_MAX], want[WORD_MAX];
        int n = longest - (int)(ig_random_u64(&random) % 80), letters = 1 + (int)(ig_random_u64(&random) % ALPHABET);
        for (int i = 0; i < n; i++) word[i] = (char)('a' + (int)(ig_random_u64(&random) % (uint64_t)letters));
        ig_ids out = {.ids = ids, .cap = WORD_MAX};
        assert_int_equal(ig_merge_word(&r, &space, word, (size_t)n, &out, &err), IG_OK);
        int n_want = merge_slowly(&r, word, n, want);
        assert_int_equal(out.n, n_want);
        assert_memory_equal(ids, want, (size_t)n_want * sizeof *ids);
    }
    ig_merge_space_close(&space);
    ig_merges_close(&r.merges);
    ig_vocab_close(&v);
}

static void test_by_table(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 40; seed++) check_random(seed, false, 60, 80);
}

static void test_by_score(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 40; seed++) check_random(seed, true, 60, 80);
}

/* Words with more pairs than are held at a time. */
static void test_long_words(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 4; seed++) check_random(seed, seed % 2, 2, WORD_MAX);
}

/* As in vocab.c: pairs that fall together can be made by anyone who reads it. */
static uint64_t mix(uint64_t x) {
    for (int i = 0; i < 2; i++) x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
    return x ^ x >> 32;
}

static void test_crowded_table(void **state) {
    (void)state;
    enum { N = 1 << 12 };
    ig_merges m;
    assert_true(ig_merges_open(&m, N));
    int n = 0;
    bool ok = true;
    for (uint64_t pair = 0; n < N && ok; pair++) {
        if ((mix(pair) & (2 * N - 1)) != 7) continue;
        ok = ig_merges_put(&m, (int32_t)(pair >> 32), (int32_t)pair, 1, n);
        n += ok;
    }
    assert_int_equal(n, IG_PROBES_MAX);
    assert_null(ig_merges_find(&m, 1, 1 << 30));
    ig_merges_close(&m);
}

/* What no token covers: its bytes' tokens, else the unknown token, else nothing. */
static void test_unknown(void **state) {
    (void)state;
    ig_vocab v;
    ig_merge_rules r = {.vocab = &v, .unknown = 3, .ranks = (uint32_t[4]){0}};
    ig_merge_space space = {0};
    ig_error err;
    int32_t ids[8];
    assert_true(ig_vocab_open(&v, 4) && ig_vocab_put(&v, 0, "a", 1, IG_TOKEN_NORMAL, IG_TOKEN_MODEL));
    assert_true(ig_vocab_put(&v, 1, "<0xC3>", 6, IG_TOKEN_BYTE, 0) &&
                ig_vocab_put(&v, 2, "<0xA9>", 6, IG_TOKEN_BYTE, 0));
    assert_true(ig_vocab_put(&v, 3, "<unk>", 5, IG_TOKEN_UNKNOWN, 0) && !ig_vocab_index(&v, "test", &err));
    for (int i = 0; i < 256; i++) r.byte_ids[i] = -1;
    r.byte_ids[0xc3] = 1;
    r.byte_ids[0xa9] = 2;
    const char *text = "a\xc3\xa9zza"; /* e acute has byte tokens, z has none */
    ig_ids out = {.ids = ids, .cap = 8};
    assert_int_equal(ig_merge_word(&r, &space, text, 6, &out, &err), IG_OK);
    assert_int_equal(out.n, 6);
    assert_memory_equal(ids, ((int32_t[]){0, 1, 2, 3, 3, 0}), 6 * sizeof *ids);
    r.fuse_unknown = true;
    out = (ig_ids){.ids = ids, .cap = 8};
    assert_int_equal(ig_merge_word(&r, &space, text, 6, &out, &err), IG_OK);
    assert_memory_equal(ids, ((int32_t[]){0, 1, 2, 3, 0}), 5 * sizeof *ids);
    r.unknown = -1;
    out = (ig_ids){.ids = ids, .cap = 8};
    assert_int_equal(ig_merge_word(&r, &space, text, 6, &out, &err), IG_OK);
    assert_int_equal(out.n, 4);
    assert_int_equal(out.n_lost, 2);
    ig_merge_space_close(&space);
    ig_vocab_close(&v);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_by_table), cmocka_unit_test(test_by_score),
                                       cmocka_unit_test(test_long_words), cmocka_unit_test(test_crowded_table),
                                       cmocka_unit_test(test_unknown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
