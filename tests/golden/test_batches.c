/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps of several sessions, pieces of prompts among single tokens: each session gets the bits that it gets alone,
 * whatever becomes of the others. Sessions come in pairs: one is stepped in batches, of the other the same is asked by
 * ig_session_sync() and ig_session_decode(). The functions that the disk tier's threads call are those of this file.
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

#include "base/compiler.h"
#include "base/random.h"
#include "engine/session.h"
#include "golden/tiny_session.h"
#include "sanitized.h"

enum { N_CTX = 640, N_BATCH = 48, MOST = 16, MOST_PIECE = 24 };

/* ---- a device that fails for one session --------------------------------------------------- */

static char bad_folder[] = "/tmp/infinigen-bad-XXXXXX";
static atomic_bool broken;
static atomic_int n_failed;

static bool fails(int fd) {
    char link[64], path[256];
    if (!broken) return false;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[n < 0 ? 0 : n] = 0;
    if (!strstr(path, bad_folder)) return false;
    n_failed++;
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

/* ---- pairs ------------------------------------------------------------------------------------ */

typedef struct kind {
    const char *policy, *type;
    bool disk;
    double limit;
} kind;

static const kind kinds[] = {
    {"infinigen", "f16", true, 0}, {"full", "q8", true, 0},         {"infinigen-osdi24", "f16", true, 0},
    {"quest", "q4", true, 0},      {"h2o", "f16", false, 0},        {"window", "f16", true, 0},
    {"infinigen", "q4", false, 0}, {"oracle", "q8", true, 0},       {"infinigen-osdi24", "q8", false, 0},
    {"full", "q1", false, 0},      {"infinigen", "q8", false, 0.3}, {"h2o", "q2", true, 0},
};

typedef struct pair {
    ig_session *together, *alone;
    int32_t ids[N_CTX];
    int n; /* tokens that both hold */
    bool has_logits;
} pair;

static ig_random dice = {5};
static int n_ctx;       /* N_CTX, or fewer */
static bool has_window; /* in all layers: nothing is dropped by a limit */
static bool shares;     /* the last layers read keys of others: nothing is ever dropped */

static int any(int limit) { return (int)(ig_random_u64(&dice) % (uint64_t)limit); }

static void open_pair(pair *p, const kind *k, const char *where) {
    ig_session_options o = ig_session_defaults();
    o.n_ctx = n_ctx;
    o.n_batch = N_BATCH;
    o.cache.policy = shares && strcmp(k->policy, "h2o") == 0 ? "quest" : k->policy;
    o.cache.memory.type = k->type;
    o.cache.memory.limit = has_window ? 0 : k->limit;
    o.cache.budget = 0.15;
    o.cache.n_recent = 16;
    o.cache.n_dense_layers = 1;
    *p = (pair){.alone = open_session(&o)};
    if (k->disk) {
        o.cache.memory.disk_bytes = 64 << 20;
        o.cache.memory.disk_path = where;
        o.cache.memory.no_uring = true;
        o.cache.memory.ram_bytes = least_ram(o);
    }
    p->together = open_session(&o);
}

static void close_pair(const pair *p) {
    ig_session_close(p->together);
    ig_session_close(p->alone);
}

static void agree(const pair *p) {
    const int32_t *held;
    assert_int_equal(ig_session_tokens(p->together, &held), p->n);
    assert_memory_equal(held, p->ids, (size_t)p->n * sizeof *held);
    assert_int_equal(ig_session_logits(p->together) != NULL, p->has_logits);
    if (p->has_logits) same(p->together, p->alone);
}

/* Both hold n tokens of another text, from the first one on, by prompts alone. */
static void restart(pair *p, int n) {
    int32_t first = p->ids[0];
    for (int i = 0; i < n; i++) p->ids[i] = any(N_VOCAB);
    p->ids[0] = (first + 1) % N_VOCAB;
    put(p->together, p->ids, n);
    put(p->alone, p->ids, n);
    p->n = n;
    p->has_logits = true;
    agree(p);
}

/* The other session gets what this one got. */
static void follow(pair *p, const ig_batch_item *x) {
    memcpy(p->ids + p->n, x->ids, (size_t)x->n * sizeof *x->ids);
    if (x->prompt)
        put(p->alone, p->ids, p->n + x->n);
    else
        step(p->alone, x->ids[0]);
    p->n += x->n;
    p->has_logits = !x->more;
    agree(p);
}

/* Something for a session: more often than not a token. */
static ig_batch_item ask(const pair *p, int32_t *ids) {
    bool prompt = any(3) == 0;
    ig_batch_item x = {.session = p->together, .ids = ids, .n = prompt ? 1 + any(MOST_PIECE) : 1, .prompt = prompt};
    x.more = prompt && any(2);
    for (int i = 0; i < x.n; i++) ids[i] = any(N_VOCAB);
    return x;
}

/* Items of some of n pairs, in any order, that fit a step; which[] says whose they are. */
static int ask_some(const pair *p, int n, ig_batch_item *items, int32_t (*ids)[MOST_PIECE], int *which) {
    int order[MOST], n_items = 0, n_rows = 0;
    for (int i = 0; i < n; i++) order[i] = i;
    for (int i = n - 1; i > 0; i--) {
        int j = any(i + 1), t = order[i];
        order[i] = order[j];
        order[j] = t;
    }
    for (int i = 0, wanted = 1 + any(n); i < n && n_items < wanted; i++) {
        ig_batch_item x = ask(&p[order[i]], ids[n_items]);
        if (p[order[i]].n + x.n > n_ctx || n_rows + x.n > N_BATCH) continue;
        n_rows += x.n;
        which[n_items] = order[i];
        items[n_items++] = x;
    }
    return n_items;
}

static void run_step(ig_batch_item *items, int n) {
    ig_error err = {0};
    if (n) expect_ok(ig_batch_step(items, (size_t)n, &err), &err);
}

/* ---- steps in which nothing fails ----------------------------------------------------------- */

static void each_as_if_alone(void **state) {
    enum { N_ROUNDS = TIMES(20) };
    static pair p[MOST];
    (void)state;
    for (int i = 0; i < MOST; i++) {
        open_pair(&p[i], &kinds[(size_t)i % IG_COUNT(kinds)], folder);
        if (i % 5) restart(&p[i], i % 7 ? 1 + i * 12 : 530); /* others begin within a step */
    }
    for (int round = 0; round < N_ROUNDS; round++) {
        ig_batch_item items[MOST];
        int32_t ids[MOST][MOST_PIECE];
        int which[MOST], n = ask_some(p, 1 + any(MOST), items, ids, which);
        run_step(items, n);
        for (int i = 0; i < n; i++) {
            expect_ok(items[i].status, &items[i].error);
            follow(&p[which[i]], &items[i]);
        }
    }
    for (int i = 0; i < MOST; i++) close_pair(&p[i]);
}

/* Tokens are counted as what they were, and a step's seconds once. */
static void statistics(void **state) {
    pair p[3];
    int32_t ids[3][MOST_PIECE] = {{0}};
    (void)state;
    for (int i = 0; i < 3; i++) {
        open_pair(&p[i], &kinds[0], folder);
        restart(&p[i], 200);
    }
    ig_session_stats before[3], after[3];
    for (int i = 0; i < 3; i++) before[i] = stats(p[i].together);
    ig_batch_item items[3] = {{.session = p[0].together, .ids = ids[0], .n = 1},
                              {.session = p[1].together, .ids = ids[1], .n = 20, .prompt = true},
                              {.session = p[2].together, .ids = ids[2], .n = 1, .prompt = true}};
    run_step(items, 3);
    for (int i = 0; i < 3; i++) after[i] = stats(p[i].together);
    assert_int_equal(after[0].n_decoded - before[0].n_decoded, 1);
    assert_int_equal(after[0].n_prefilled - before[0].n_prefilled, 0);
    assert_int_equal(after[1].n_prefilled - before[1].n_prefilled, 20);
    assert_int_equal(after[1].n_decoded - before[1].n_decoded, 0);
    assert_int_equal(after[2].n_prefilled - before[2].n_prefilled, 1);
    double parts = 0;
    for (int k = 0; k < IG_STEP_PARTS; k++) {
        assert_true(after[0].parts[k].seconds >= 0 && after[1].parts[k].seconds >= before[1].parts[k].seconds);
        parts += after[0].parts[k].seconds;
    }
    assert_true(fabs(after[0].decode_seconds - parts) <= 1e-9 && after[0].parts[IG_STEP_FFN].seconds > 0);
    if (!test_device()) /* a GPU's work is no task */
        assert_true(after[0].parts[IG_STEP_FFN].n_tasks > 0 && after[0].parts[IG_STEP_FFN].busy_seconds > 0);
    assert_true(after[0].parts[IG_STEP_FFN].busy_seconds <= 2 * after[0].parts[IG_STEP_FFN].seconds + 1e-6);
    assert_true(after[0].decode_seconds > 0 && after[0].prefill_seconds == before[0].prefill_seconds);
    double one = after[2].prefill_seconds - before[2].prefill_seconds;
    double twenty = after[1].prefill_seconds - before[1].prefill_seconds;
    assert_true(one > 0 && fabs(twenty - 20 * one) < 1e-9);
    for (int i = 0; i < 3; i++) follow(&p[i], &items[i]);
    for (int i = 0; i < 3; i++) close_pair(&p[i]);
}

/* ---- steps in which some fail ------------------------------------------------------------------ */

/* Of a step one item is harmed; it fails, with this status, and nothing changes for its session. */
static void refused_among_others(ig_batch_item *items, int n, pair *p, const int *which, int victim, ig_status wanted) {
    run_step(items, n);
    for (int i = 0; i < n; i++) {
        if (i == victim) {
            if (items[i].status != wanted || items[i].error.status != wanted)
                fail_msg("%d: %s", (int)items[i].status, items[i].error.text);
            assert_int_not_equal(items[i].error.text[0], 0);
            agree(&p[which[i]]);
            continue;
        }
        expect_ok(items[i].status, &items[i].error);
        follow(&p[which[i]], &items[i]);
    }
}

/* Refused before the step: it is as if it had not been asked for, also by a session that a failed step would empty. */
static void what_cannot_be_asked(void **state) {
    enum { N = (int)IG_COUNT(kinds), N_ROUNDS = TIMES(24) };
    static int32_t too_many[N_CTX];
    pair p[N];
    int n_tried = 0;
    (void)state;
    for (int i = 0; i < N; i++) {
        open_pair(&p[i], &kinds[i], folder);
        restart(&p[i], i % 3 ? 10 + i * 10 : n_ctx - 2 - i);
    }
    for (int round = 0; round < N_ROUNDS; round++) {
        ig_batch_item items[MOST];
        int32_t ids[MOST][MOST_PIECE];
        int which[MOST], n = ask_some(p, N, items, ids, which);
        if (!n) continue;
        int v = any(n), left = n_ctx - p[which[v]].n;
        ig_batch_item *x = &items[v];
        if (left + 1 <= MOST_PIECE && any(2)) {
            x->ids = too_many;
            x->n = left + 1;
            x->prompt = left > 0 || any(2);
            int rows = 0;
            for (int i = 0; i < n; i++) rows += items[i].n;
            if (rows > N_BATCH) continue;
            refused_among_others(items, n, p, which, v, IG_E_LIMIT);
        } else {
            ids[v][any(x->n)] = any(2) ? -1 : N_VOCAB;
            refused_among_others(items, n, p, which, v, IG_E_ARG);
        }
        n_tried++;
    }
    assert_true(n_tried > N_ROUNDS / 2);
    for (int i = 0; i < N; i++) close_pair(&p[i]);
}

/* What the whole call may not be is said by every item. */
static void refused_as_a_whole(void **state) {
    pair p[2];
    int32_t ids[N_BATCH + 1] = {0};
    ig_error err = {0};
    (void)state;
    for (int i = 0; i < 2; i++) {
        open_pair(&p[i], &kinds[i], folder);
        restart(&p[i], 50);
    }
    for (int try = 0; try < 2; try++) {
        ig_batch_item items[2] = {{.session = p[0].together, .ids = ids, .n = 1},
                                  {.session = p[1].together, .ids = ids, .n = N_BATCH, .prompt = true}};
        if (try) items[1] = items[0];
        ig_status status = ig_batch_step(items, 2, &err);
        assert_int_equal(status, try ? IG_E_ARG : IG_E_LIMIT);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(items[i].status, status);
            assert_string_equal(items[i].error.text, err.text);
            agree(&p[i]);
        }
    }
    ig_batch_item all = {.session = p[0].together, .ids = ids, .n = N_BATCH, .prompt = true};
    run_step(&all, 1);
    expect_ok(all.status, &all.error);
    follow(&p[0], &all);
    for (int i = 0; i < 2; i++) close_pair(&p[i]);
}

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

/* Both are cut to n tokens. */
static void cut_both(pair *p, int n) {
    ig_error err = {0};
    expect_ok(ig_session_cut(p->together, n, &err), &err);
    expect_ok(ig_session_cut(p->alone, n, &err), &err);
    p->n = ig_session_tokens(p->alone, NULL);
    p->has_logits = false;
    agree(p);
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

static int open_folders(void **state) {
    (void)state;
    return mkdtemp(folder) && mkdtemp(bad_folder) ? 0 : -1;
}

static int close_folders(void **state) {
    (void)state;
    return rmdir(folder) || rmdir(bad_folder);
}

static int set_up(const char *path, int n_threads, int n) {
    open_tiny(path, n_threads);
    ig_model_info info;
    ig_model_get_info(model, &info);
    has_window = info.sliding_window > 0;
    shares = info.n_sharing_layers > 0;
    n_ctx = n;
    return 0;
}

static int open_llama_single(void **state) { return (void)state, set_up(TINY_LLAMA, 1, N_CTX); }
static int open_llama_short(void **state) { return (void)state, set_up(TINY_LLAMA, 2, 192); }
static int open_llama(void **state) { return (void)state, set_up(TINY_LLAMA, 2, N_CTX); }
static int open_model(void **state) { return set_up(*state, 2, N_CTX); }
static int open_few_experts(void **state) { return (void)state, set_up("tests/golden/models/granitemoe", 2, 192); }
static int open_post_norm(void **state) { return (void)state, set_up("tests/golden/models/opt-350m-like", 2, 192); }

int main(void) {
    if (access(TINY_LLAMA, R_OK) != 0) return 77;
#define ALONE(what, path) \
    { "each as if alone, " what, each_as_if_alone, open_model, close_tiny, path }
    const struct CMUnitTest tests[] = {
        {"each as if alone, a thread", each_as_if_alone, open_llama_single, close_tiny, NULL},
        ALONE("two threads", TINY_LLAMA),
        ALONE("a sliding window", TINY_MISTRAL),
        ALONE("two sets of frequencies", "tests/golden/models/gemma3"),
        ALONE("norms of parts alone", "tests/golden/models/olmo3"),
        ALONE("layers that do not rotate", "tests/golden/models/smollm3"),
        ALONE("experts", "tests/golden/models/olmoe"),
        ALONE("an expert for all", "tests/golden/models/glm4moe"),
        ALONE("gated attention", "tests/golden/models/afmoe"),
        ALONE("queries that grow", "tests/golden/models/ministral3"),
        ALONE("recurrences", "tests/golden/models/qwen3.5"),
        ALONE("short convolutions", "tests/golden/models/lfm2-moe"),
        ALONE("Mamba 2", "tests/golden/models/granite4-h"),
        ALONE("layers that have no feed-forward part", "tests/golden/models/nemotron-h-moe"),
        ALONE("experts beside, other heads", "tests/golden/models/gemma4-moe"),
        ALONE("layers that share keys", "tests/golden/models/gemma4-e"),
        cmocka_unit_test_setup_teardown(statistics, open_llama, close_tiny),
        cmocka_unit_test_setup_teardown(what_cannot_be_asked, open_llama_short, close_tiny),
        cmocka_unit_test_setup_teardown(refused_as_a_whole, open_llama_short, close_tiny),
        {"not finite", numbers_that_are_not_finite, open_llama_short, close_tiny, NULL},
        {"not finite, norms after the layers", numbers_that_are_not_finite, open_post_norm, close_tiny, NULL},
        {"not finite, recurrences", numbers_that_are_not_finite, open_model, close_tiny, "tests/golden/models/qwen3.5"},
        {"not finite, shared keys", numbers_that_are_not_finite, open_model, close_tiny,
         "tests/golden/models/gemma4-e"},
        {"not finite, heads wider than the state", numbers_that_are_not_finite, open_model, close_tiny,
         "tests/golden/models/gemma4-moe"},
        {"not finite, experts", numbers_that_are_not_finite, open_few_experts, close_tiny, NULL},
        cmocka_unit_test_setup_teardown(a_prompt_that_fails, open_llama, close_tiny),
        cmocka_unit_test_setup_teardown(a_first_step_that_fails, open_llama, close_tiny),
        cmocka_unit_test_setup_teardown(a_step_that_fails_where_another_was_cut, open_llama, close_tiny),
        cmocka_unit_test_setup_teardown(a_disk_that_fails, open_llama, close_tiny),
    };
    return cmocka_run_group_tests(tests, open_folders, close_folders);
}
