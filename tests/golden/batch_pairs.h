/* SPDX-License-Identifier: Apache-2.0
 *
 * What tests of steps of several sessions share. Sessions come in pairs: one is stepped in batches, of the other the
 * same is asked by ig_session_sync() and ig_session_decode(). Include after cmocka.h.
 */
#ifndef TESTS_BATCH_PAIRS_H
#define TESTS_BATCH_PAIRS_H

#include "base/compiler.h"
#include "base/random.h"
#include "engine/session.h"
#include "golden/tiny_session.h"
#include "sanitized.h"

enum { N_CTX = 640, N_BATCH = 48, MOST = 16, MOST_PIECE = 24 };

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
    {"snapkv", "f16", false, 0},   {"pyramidkv", "q8", true, 0},
};

typedef struct pair {
    ig_session *together, *alone;
    int32_t ids[N_CTX];
    int n; /* tokens that both hold */
    bool has_logits;
} pair;

static ig_random dice = {5};
static int n_ctx;             /* N_CTX, or fewer */
static bool has_window;       /* in all layers: nothing is dropped by a limit */
static bool shares;           /* the last layers read keys of others: nothing is ever dropped */
static bool has_index;        /* the model brings an indexer along */
static int n_draft;           /* of `together` */
static ig_model *draft_model; /* of `together`; NULL: none */

static inline int any(int limit) { return (int)(ig_random_u64(&dice) % (uint64_t)limit); }

/* Whether the policy drops entries. */
static inline bool drops(const kind *k) { return strcmp(k->policy, "h2o") == 0 || strstr(k->policy, "kv"); }

/* Whether it can stand back for an indexer. */
static inline bool chooses_alone(const kind *k) {
    return !k->limit &&
           (!strcmp(k->policy, "infinigen") || !strcmp(k->policy, "quest") || !strcmp(k->policy, "window"));
}

static inline void open_pair(pair *p, const kind *k, const char *where) {
    ig_session_options o = ig_session_defaults();
    o.n_ctx = n_ctx;
    o.n_batch = N_BATCH;
    o.cache.policy = shares && drops(k) ? "quest" : has_index && chooses_alone(k) ? "indexer" : k->policy;
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
    o.n_draft = n_draft;
    o.draft_model = draft_model;
    p->together = open_session(&o);
}

static inline void close_pair(const pair *p) {
    ig_session_close(p->together);
    ig_session_close(p->alone);
}

static inline void agree(const pair *p) {
    const int32_t *held;
    assert_int_equal(ig_session_tokens(p->together, &held), p->n);
    assert_memory_equal(held, p->ids, (size_t)p->n * sizeof *held);
    assert_int_equal(ig_session_logits(p->together) != NULL, p->has_logits);
    if (p->has_logits) same(p->together, p->alone);
}

/* Both hold n tokens of another text, from the first one on, by prompts alone. */
static inline void restart(pair *p, int n) {
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
static inline void follow(pair *p, const ig_batch_item *x) {
    memcpy(p->ids + p->n, x->ids, (size_t)x->n * sizeof *x->ids);
    if (x->prompt)
        put(p->alone, p->ids, p->n + x->n);
    else
        step(p->alone, x->ids[0]);
    p->n += x->n;
    p->has_logits = !x->more;
    agree(p);
}

/* What comes after n tokens: anything, or with guesses mostly what came some tokens before. */
static inline int32_t next_token(const int32_t *ids, int n) {
    enum { PERIOD = 21 };
    return !n_draft || n < PERIOD || any(8) == 0 ? any(N_VOCAB) : ids[n - PERIOD];
}

/* The same of a pair; with a draft model, which is the same model, mostly what is likeliest. */
static inline int32_t next_of(const pair *p) {
    const float *logits = draft_model && any(8) ? ig_session_logits(p->alone) : NULL;
    return logits ? ig_kernels_get(ctx->level)->argmax(logits, N_VOCAB) : next_token(p->ids, p->n);
}

/* Something for a session: more often than not a token. With guesses, which are made where all get one, mostly. */
static inline ig_batch_item ask(const pair *p, int32_t *ids) {
    bool prompt = any(n_draft ? 20 : 3) == 0;
    ig_batch_item x = {.session = p->together, .ids = ids, .n = prompt ? 1 + any(MOST_PIECE) : 1, .prompt = prompt};
    /* The other session's prompts end with each piece, and what a prompt's end attends to is not that of its middle. */
    x.more = prompt && any(2) && !p->alone->seq.policy->ops->observes_ends;
    int32_t text[N_CTX + MOST_PIECE];
    memcpy(text, p->ids, (size_t)p->n * sizeof *text);
    for (int i = 0; i < x.n; i++) ids[i] = text[p->n + i] = next_token(text, p->n + i);
    if (!prompt) ids[0] = next_of(p);
    return x;
}

/* Items of some of n pairs, in any order, that fit a step; which[] says whose they are. */
static inline int ask_some(const pair *p, int n, ig_batch_item *items, int32_t (*ids)[MOST_PIECE], int *which) {
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

static inline void run_step(ig_batch_item *items, int n) {
    ig_error err = {0};
    if (n) expect_ok(ig_batch_step(items, (size_t)n, &err), &err);
}

/* A step of some of n pairs, in which none fails. */
static inline void step_some(pair *p, int n) {
    ig_batch_item items[MOST];
    int32_t ids[MOST][MOST_PIECE];
    int which[MOST], n_items = ask_some(p, n, items, ids, which);
    run_step(items, n_items);
    for (int i = 0; i < n_items; i++) {
        expect_ok(items[i].status, &items[i].error);
        follow(&p[which[i]], &items[i]);
    }
}

/* Both are cut to n tokens. With guesses there are more states to go back to: where that differs, they get another
 * text. */
static inline void cut_both(pair *p, int n) {
    ig_error err = {0};
    expect_ok(ig_session_cut(p->together, n, &err), &err);
    expect_ok(ig_session_cut(p->alone, n, &err), &err);
    p->n = ig_session_tokens(p->alone, NULL);
    p->has_logits = false;
    if (n_draft && ig_session_tokens(p->together, NULL) > p->n)
        restart(p, 50);
    else
        agree(p);
}

/* The model of the tests that follow, and the context that they have. */
static inline int set_up(const char *path, int n_threads, int n) {
    open_tiny(path, n_threads);
    ig_model_info info;
    ig_model_get_info(model, &info);
    has_window = info.sliding_window > 0;
    shares = info.n_sharing_layers > 0;
    has_index = info.n_index_heads > 0;
    n_ctx = n;
    return 0;
}

static inline int open_model(void **state) { return set_up(*state, 2, N_CTX); }

/* As many guesses as there may be, whatever they cost; in a folder that is there. */
static inline int start_guessing(void **state) {
    int failed = open_model(state);
    n_draft = IG_DRAFT_MAX;
    model->batch.costs.are_nothing = true;
    return failed;
}

static inline int stop_guessing(void **state) {
    n_draft = 0;
    return close_tiny(state);
}

/* A draft model is as good as can be: the same. */
static inline int open_drafting(void **state) {
    ig_error err = {0};
    int failed = start_guessing(state) || !mkdtemp(folder);
    expect_ok(ig_model_open(&draft_model, ctx, *state, NULL, &err), &err);
    return failed;
}

static inline int close_drafting(void **state) {
    n_draft = 0;
    ig_model_close(draft_model);
    draft_model = NULL;
    return close_tiny_and_folder(state);
}

static inline int open_guessing(void **state) { return start_guessing(state) || !mkdtemp(folder); }

static inline int close_guessing(void **state) {
    n_draft = 0;
    return close_tiny_and_folder(state);
}

static inline int open_llama(void **state) { return (void)state, set_up(TINY_LLAMA, 2, N_CTX); }
static inline int open_llama_short(void **state) { return (void)state, set_up(TINY_LLAMA, 2, 192); }

#endif
