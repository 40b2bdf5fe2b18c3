/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps of several sessions in which one fails while it is computed, by a number that is not finite or by its disk: it
 * holds what it held before or says that it does not, and the others get the bits that they get alone. The functions
 * that the disk tier's threads call are those of this file.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include <cmocka.h>

#include "golden/batch_pairs.h"

/* ---- numbers that are not finite --------------------------------------------------------------- */

/* The number that a layer's attention adds to, in one session's last row. */
typedef struct plant {
    const ig_sequence *seq;
    int layer, n_planted; /* layer: of those that attend */
} plant;

/* The model's layer that is number i of those that attend. */
static int layer_that_attends(int i) {
    int l = 0;
    while (model->config.is_recurrent[l] || i-- > 0) l++;
    return l;
}

static void put_nan(void *user, ig_tap_place at, int layer) {
    static const float nan = NAN;
    plant *x = user;
    ig_batch *b = &model->batch;
    for (int s = 0; s < b->n_segments; s++) {
        const ig_segment *seg = &b->segments[s];
        if (at != IG_TAP_HEADS || layer != x->layer || seg->seq != x->seq || seg->status) continue;
        float *h = &b->h[(size_t)(seg->row + seg->n) * (size_t)model->config.d_model - 3];
        ctx->device->ops->copy(ctx->device, h, &nan, sizeof nan);
        x->n_planted++;
    }
}

/* Its item failed, and what comes next is another one. A session that has lost what it held is given another text. */
static void recover(pair *p) {
    assert_true(ig_session_tokens(p->together, NULL) <= p->n);
    if (ig_session_tokens(p->together, NULL) < p->n)
        restart(p, p->n);
    else
        agree(p);
}

static void numbers_that_are_not_finite(void **state) {
    enum { N = (int)IG_COUNT(kinds), N_ROUNDS = TIMES(24) };
    pair p[N];
    plant x = {.n_planted = 0};
    (void)state;
    for (int i = 0; i < N; i++) {
        open_pair(&p[i], &kinds[i], folder);
        restart(&p[i], n_ctx / 16 * (1 + i));
    }
    model->batch.tap_user = &x;
    for (int round = 0; round < N_ROUNDS; round++) {
        ig_batch_item items[MOST];
        int32_t ids[MOST][MOST_PIECE];
        char place[64];
        int which[MOST], n = ask_some(p, N, items, ids, which), v = n ? any(n) : 0;
        if (!n) continue;
        x = (plant){&items[v].session->seq, any(ig_config_attention_layers(&model->config)), x.n_planted};
        model->batch.tap = put_nan;
        run_step(items, n);
        model->batch.tap = NULL;
        assert_int_equal(items[v].status, IG_E_NUMBER);
        snprintf(place, sizeof place, "after the attention of layer %d at position %d", layer_that_attends(x.layer),
                 p[which[v]].n + items[v].n - 1);
        if (!strstr(items[v].error.text, place)) fail_msg("%s, not %s", items[v].error.text, place);
        for (int i = 0; i < n; i++) {
            if (i == v) continue;
            expect_ok(items[i].status, &items[i].error);
            follow(&p[which[i]], &items[i]);
        }
        recover(&p[which[v]]);
    }
    assert_int_equal(x.n_planted, N_ROUNDS);
    for (int i = 0; i < N; i++) close_pair(&p[i]);
}

/* The session's item fails in a layer. */
static void fail_at(const pair *p, ig_batch_item *item, int layer) {
    plant x = {&p->together->seq, layer, 0};
    model->batch.tap_user = &x;
    model->batch.tap = put_nan;
    run_step(item, 1);
    model->batch.tap = NULL;
    assert_int_equal(item->status, IG_E_NUMBER);
}

/* Behind nearly all layers. */
static void fail_late(const pair *p, ig_batch_item *item) {
    fail_at(p, item, ig_config_attention_layers(&model->config) - 1);
}

/* A piece of a prompt fails again and again behind nearly all layers, and what comes instead is another text: of the
 * piece nothing is left, in what a policy has counted of the prompt neither. */
static void a_prompt_that_fails(void **state) {
    (void)state;
    for (size_t i = 0; i < IG_COUNT(kinds); i++) {
        pair p;
        int32_t ids[MOST_PIECE], token = 0;
        open_pair(&p, &kinds[i], folder);
        restart(&p, 60);
        for (int k = 0; k < MOST_PIECE; k++) ids[k] = 7;
        ig_batch_item piece = {.session = p.together, .ids = ids, .n = MOST_PIECE, .prompt = true};
        for (int round = 0; round < 8; round++) {
            fail_late(&p, &piece);
            if (ig_session_tokens(p.together, NULL) < p.n) restart(&p, 60);
        }
        ig_batch_item next = {.session = p.together, .ids = &token, .n = 1};
        for (; token < 8; token++) {
            run_step(&next, 1);
            expect_ok(next.status, &next.error);
            follow(&p, &next);
        }
        close_pair(&p);
    }
}

/* The first step after a prompt fails, and the prompt goes on: nothing is left of what was chosen in that step. */
static void a_first_step_that_fails(void **state) {
    (void)state;
    for (size_t i = 0; i < IG_COUNT(kinds); i++) {
        pair p;
        int32_t ids[MOST_PIECE], token = 7;
        open_pair(&p, &kinds[i], folder);
        restart(&p, 60);
        ig_batch_item item = {.session = p.together, .ids = &token, .n = 1};
        fail_late(&p, &item);
        recover(&p);
        for (int k = 0; k < MOST_PIECE; k++) ids[k] = k;
        item = (ig_batch_item){.session = p.together, .ids = ids, .n = MOST_PIECE, .prompt = true};
        for (int round = 0; round < 8; round++) {
            run_step(&item, 1);
            expect_ok(item.status, &item.error);
            follow(&p, &item);
            item = (ig_batch_item){.session = p.together, .ids = &token, .n = 1};
        }
        close_pair(&p);
    }
}

static void go_on(pair *p, ig_batch_item item) {
    run_step(&item, 1);
    expect_ok(item.status, &item.error);
    follow(p, &item);
}

/* A step fails where another one succeeded before the session was cut: it takes nothing back that this one has left,
 * neither in the layers that it came to nor in the others. */
static void a_step_that_fails_where_another_was_cut(void **state) {
    (void)state;
    for (size_t i = 0; i < 3 * IG_COUNT(kinds); i++) {
        pair p;
        int32_t ids[MOST_PIECE], way = (int32_t)(i / IG_COUNT(kinds));
        ig_batch_item piece, token;
        open_pair(&p, &kinds[i % IG_COUNT(kinds)], folder);
        restart(&p, 200);
        for (int k = 0; k < MOST_PIECE; k++) ids[k] = any(N_VOCAB);
        piece = (ig_batch_item){.session = p.together, .ids = ids, .n = MOST_PIECE, .prompt = true};
        token = (ig_batch_item){.session = p.together, .ids = ids, .n = 1};
        if (way == 0) { /* a piece is taken back, and another comes */
            go_on(&p, piece);
            cut_both(&p, 200);
        } else if (way == 1) { /* a piece behind a decoded token, and another token comes */
            go_on(&p, token);
            go_on(&p, piece);
            cut_both(&p, 201);
        } else { /* as many tokens come back as were there when the first one was decoded */
            go_on(&p, token);
            cut_both(&p, 200 - MOST_PIECE);
            go_on(&p, piece);
        }
        fail_at(&p, way ? &token : &piece, way == 2 ? model->config.n_layers - 1 : 0);
        recover(&p);
        if (way == 0) go_on(&p, piece);
        for (int round = 0; round < 8; round++) go_on(&p, token);
        close_pair(&p);
    }
}

/* ---- a disk that fails for one session ---------------------------------------------------------- */

static char bad_folder[] = "/tmp/infinigen-bad-XXXXXX";
static atomic_bool broken, heals; /* at once: one request fails */
static atomic_int n_failed;

static bool fails(int fd) {
    char link[64], path[256];
    if (!broken) return false;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[n < 0 ? 0 : n] = 0;
    if (!strstr(path, bad_folder)) return false;
    n_failed++;
    if (heals) broken = false;
    errno = EIO;
    return true;
}

ssize_t preadv(int fd, const struct iovec *iov, int n, off_t at) {
    return fails(fd) ? -1 : syscall(SYS_preadv, fd, iov, (long)n, (long)at, 0L);
}
ssize_t pwritev(int fd, const struct iovec *iov, int n, off_t at) {
    return fails(fd) ? -1 : syscall(SYS_pwritev, fd, iov, (long)n, (long)at, 0L);
}
ssize_t pread(int fd, void *to, size_t n, off_t at) { return preadv(fd, &(struct iovec){to, n}, 1, at); }

static void a_disk_that_fails(void **state) {
    enum { N = (int)IG_COUNT(kinds), N_PAIRS = 3, N_ROUNDS = TIMES(12) };
    int n_errors = 0;
    (void)state;
    for (int victim = 0; victim < N; victim++) {
        static pair p[N_PAIRS];
        if (!kinds[victim].disk) continue;
        open_pair(&p[0], &kinds[victim], bad_folder);
        for (int i = 1; i < N_PAIRS; i++) open_pair(&p[i], &kinds[(victim + i) % N], folder);
        for (int i = 0; i < N_PAIRS; i++) restart(&p[i], i ? 40 * i : 560);
        for (int round = 0; round < N_ROUNDS; round++) {
            ig_batch_item items[MOST];
            int32_t ids[MOST][MOST_PIECE];
            int which[MOST], n = ask_some(p, N_PAIRS, items, ids, which);
            broken = any(4) > 0;
            run_step(items, n);
            for (int i = 0; i < n; i++) {
                pair *q = &p[which[i]];
                if (q != p || !items[i].status) {
                    expect_ok(items[i].status, &items[i].error);
                    follow(q, &items[i]);
                    continue;
                }
                assert_true(n_failed > 0); /* perhaps in a step before: writes go on behind them */
                assert_int_equal(items[i].status, IG_E_IO);
                if (!strstr(items[i].error.text, bad_folder)) fail_msg("%s", items[i].error.text);
                broken = false;
                n_failed = 0;
                n_errors++;
                recover(q);
            }
            broken = false;
        }
        for (int i = 0; i < N_PAIRS; i++) close_pair(&p[i]);
    }
    if (n_errors < TIMES(12)) fail_msg("only %d errors", n_errors);
}

/* Where what was computed ahead cannot be taken back without a loss, the step fails, whether it is one of items or not,
 * and is not made of the tokens that are left. */
static void a_disk_that_fails_under_guesses(void **state) {
    static const kind quest = {"quest", "q8", true, 0};
    static pair p;
    int n_lost = 0;
    (void)state;
    open_pair(&p, &quest, bad_folder);
    restart(&p, 560);
    heals = true;
    for (int i = 0; i < 400 && n_lost < 2; i++) {
        ig_error err = {0};
        bool breaks = p.together->n_ahead > 0;
        int32_t id = breaks ? (p.together->tokens[p.n] + 1) % N_VOCAB : next_token(p.ids, p.n);
        ig_batch_item item = {.session = p.together, .ids = &id, .n = 1};
        broken = breaks;
        if (n_lost % 2) {
            item.status = ig_session_decode(&p.together, &id, 1, &item.error);
        } else {
            expect_ok(ig_batch_step(&item, 1, &err), &err);
        }
        broken = false;
        if (!item.status) {
            follow(&p, &item);
        } else {
            assert_int_equal(item.status, IG_E_IO);
            n_lost += ig_session_tokens(p.together, NULL) < p.n;
            recover(&p);
        }
        if (p.n > n_ctx - 40) restart(&p, 560);
    }
    heals = false;
    assert_int_equal(n_lost, 2);
    close_pair(&p);
}

static int open_folders(void **state) {
    (void)state;
    return mkdtemp(folder) && mkdtemp(bad_folder) ? 0 : -1;
}

static int close_folders(void **state) {
    (void)state;
    return rmdir(folder) || rmdir(bad_folder);
}

static int open_few_experts(void **state) { return (void)state, set_up("tests/golden/models/granitemoe", 2, 192); }
static int open_post_norm(void **state) { return (void)state, set_up("tests/golden/models/opt-350m-like", 2, 192); }

int main(void) {
    if (access(TINY_LLAMA, R_OK) != 0) return 77;
    const struct CMUnitTest tests[] = {
        {"not finite", numbers_that_are_not_finite, open_llama_short, close_tiny, NULL},
        {"not finite, norms after the layers", numbers_that_are_not_finite, open_post_norm, close_tiny, NULL},
        {"not finite, recurrences", numbers_that_are_not_finite, open_model, close_tiny, "tests/golden/models/qwen3.5"},
        {"not finite, shared keys", numbers_that_are_not_finite, open_model, close_tiny,
         "tests/golden/models/gemma4-e"},
        {"not finite, latents", numbers_that_are_not_finite, open_model, close_tiny, "tests/golden/models/glm4-lite"},
        {"not finite, heads wider than the state", numbers_that_are_not_finite, open_model, close_tiny,
         "tests/golden/models/gemma4-moe"},
        {"not finite, other heads of queries", numbers_that_are_not_finite, open_model, close_tiny,
         "tests/golden/models/laguna"},
        {"not finite, experts", numbers_that_are_not_finite, open_few_experts, close_tiny, NULL},
        cmocka_unit_test_setup_teardown(a_prompt_that_fails, open_llama, close_tiny),
        cmocka_unit_test_setup_teardown(a_first_step_that_fails, open_llama, close_tiny),
        cmocka_unit_test_setup_teardown(a_step_that_fails_where_another_was_cut, open_llama, close_tiny),
        cmocka_unit_test_setup_teardown(a_disk_that_fails, open_llama, close_tiny),
        {"a_disk_that_fails_under_guesses", a_disk_that_fails_under_guesses, start_guessing, stop_guessing, TINY_LLAMA},
        {"a_disk_that_fails, guesses", a_disk_that_fails, start_guessing, stop_guessing, TINY_LLAMA},
    };
    return cmocka_run_group_tests(tests, open_folders, close_folders);
}
