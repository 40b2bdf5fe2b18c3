/* SPDX-License-Identifier: Apache-2.0
 *
 * What choosing the entries of one KV head costs, part by part: scores from the sketch, weights from the scores, the
 * choice among the weights, what the others would add; one thread, at every kernel level. `from memory` uses the
 * sketches of as many heads in turn as do not fit a cache, as the layers of a step do: those of the keys for the
 * scores, those of the values for the sums that are most of what the others add.
 *
 *   cmake --build build/release --target libinfinigen.a
 *   gcc -O2 -std=c11 -D_GNU_SOURCE -Iinclude -Isrc bench/select.c build/release/libinfinigen.a -o select \
 *       -lxxhash -lm -lpthread && ./select [tokens]
 *
 * Prints microseconds, the best of many rounds.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/half.h"
#include "base/memory.h"
#include "base/random.h"
#include "policy/choose.h"

enum { GROUP = 6, DIM = 128, HEADS = 56, ROUNDS = 400, BLOCK_TOKENS = 8, VALUES = 64 };

typedef struct bench {
    const ig_kernels *k;
    ig_policy policy;
    ig_chooser chooser;
    ig_rest rest; /* value NULL: is not asked for */
    int n, n_chosen;
    size_t stride;
    uint8_t *sketches; /* [HEADS] */
    float q[GROUP * DIM];
    float *given, *scores; /* [GROUP][stride]: what a step finds, and what is worked on */
    float *left;           /* [GROUP][stride]: the weights of what is not read */
    float *weights, *ordered, *share;
    int32_t *index;
    uint16_t value[VALUES][DIM]; /* of the entries, in turn */
    float sums[GROUP * DIM], sums_share[GROUP];
    int round;
} bench;

static size_t sketch_bytes(const bench *b) { return ig_sketch_block_bytes(DIM) * b->stride / IG_SKETCH_TOKENS; }

static void score(bench *b, int head) {
    b->k->sketch_scores(b->scores, b->stride, b->q, GROUP, DIM, 0.0884f, b->sketches + (size_t)head * sketch_bytes(b),
                        (int)(b->stride / IG_SKETCH_TOKENS));
}
static void score_cached(bench *b) { score(b, 0); }
static void score_from_memory(bench *b) { score(b, b->round % HEADS); }

static void softmax(bench *b) {
    for (int g = 0; g < GROUP; g++) b->k->softmax_add(b->weights, b->scores + (size_t)g * b->stride, b->n);
}

static void choose(bench *b) {
    ig_entries e = {.n = b->n, .n_slots = b->n, .has_own = true};
    ig_choice_scratch x = {b->scores, b->stride, b->weights, b->ordered, b->share};
    b->n_chosen = ig_chooser_choose(&b->chooser, &b->policy, 0, &e, &x, b->index, b->rest.value ? &b->rest : NULL);
}

static void pick(bench *b) {
    ig_pick_rule rule = {4, 32, ig_policy_count(&b->policy, b->n), b->policy.options.mass};
    b->n_chosen = ig_pick(b->k, b->index, b->weights, b->n, &rule);
}

static void sum_values(bench *b, int head) {
    ig_rest rest = {b->sums, b->sums_share};
    ig_values_estimate(&b->chooser.values, (size_t)head, (int)b->stride, b->left, b->stride, b->share, GROUP, &rest);
}
static void sum_values_cached(bench *b) { sum_values(b, 0); }
static void sum_values_from_memory(bench *b) { sum_values(b, b->round % HEADS); }

/* Best of the rounds; every round finds the same scores and the weights of the round before. */
static double measure(bench *b, void (*run)(bench *)) {
    double best = INFINITY;
    for (b->round = 0; b->round < ROUNDS; b->round++) {
        memcpy(b->scores, b->given, GROUP * b->stride * sizeof(float));
        double start = ig_clock_seconds();
        run(b);
        best = fmin(best, ig_clock_seconds() - start);
    }
    return best * 1e6;
}

static double normal(ig_random *r) {
    return sqrt(-2 * log(1 - ig_random_unit(r))) * cos(6.283185307179586 * ig_random_unit(r));
}

/* Scores that stand out by several units here and there, near one another for the queries of a group. */
static void fill(bench *b) {
    ig_random r = {1};
    double topic = 0;
    for (int i = 0; i < b->n; i++) {
        topic = 0.98 * topic + 0.2 * normal(&r);
        double own = normal(&r);
        for (int g = 0; g < GROUP; g++)
            b->given[(size_t)g * b->stride + (size_t)i] = (float)(2 * topic + own + normal(&r) + (i < 4 ? 8 : 0));
    }
    for (int i = 0; i < GROUP * DIM; i++) b->q[i] = (float)normal(&r);
    for (int i = 0; i < VALUES * DIM; i++) b->value[i / DIM][i % DIM] = ig_f32_f16((float)normal(&r));
    for (size_t i = 0; i < HEADS * sketch_bytes(b); i++) b->sketches[i] = (uint8_t)(ig_random_u64(&r) >> 56);
    for (size_t i = 0; i < HEADS * b->stride / IG_SKETCH_TOKENS; i++) {
        float *line = (float *)(void *)(b->sketches + i * ig_sketch_block_bytes(DIM));
        for (int t = 0; t < 2 * IG_SKETCH_TOKENS; t++) line[t] = t < IG_SKETCH_TOKENS ? 0.2f : -1.5f;
    }
}

static void *room(size_t n, size_t size) {
    void *p = aligned_alloc(64, (n * size + 63) / 64 * 64);
    if (!p) exit(1);
    memset(p, 0, n * size);
    return p;
}

static void run_level(bench *b, ig_cpu_level level) {
    b->k = b->policy.shape.kernels = ig_kernels_get(level);
    if (ig_chooser_open(&b->chooser, &b->policy.shape, &b->policy.options, NULL)) exit(1);
    for (int h = 0; h < HEADS; h++)
        for (int i = 0; i < b->n; i++) ig_chooser_append(&b->chooser, (size_t)h, i, b->value[i % VALUES]);
    double scores_memory = measure(b, score_from_memory), scores = measure(b, score_cached);
    memset(b->weights, 0, (size_t)b->n * sizeof *b->weights);
    double soft = measure(b, softmax), chosen = measure(b, choose);
    int n_chosen = b->n_chosen;
    double picked = measure(b, pick);
    if (b->n_chosen != n_chosen) printf("chosen: %d, then %d\n", n_chosen, b->n_chosen);
    b->rest = (ig_rest){b->sums, b->sums_share};
    double with_rest = measure(b, choose);
    b->rest = (ig_rest){0};
    memcpy(b->left, b->scores, GROUP * b->stride * sizeof(float));
    double values_memory = measure(b, sum_values_from_memory), values = measure(b, sum_values_cached);
    double rest = with_rest - chosen;
    printf("| %s | %.1f | %.1f | %.1f | %.1f | %.1f | %.1f | %.1f | %.1f |\n", ig_cpu_level_name(level), scores_memory,
           scores, chosen - picked, picked, rest - values + values_memory, rest,
           scores_memory + with_rest - values + values_memory, soft);
    ig_chooser_close(&b->chooser);
}

int main(int argc, char **argv) {
    bench b = {.n = argc > 1 ? atoi(argv[1]) : 16384};
    if (b.n < 1 || b.n > 1 << 20) return 1;
    b.stride = ((size_t)b.n + IG_SKETCH_TOKENS - 1) / IG_SKETCH_TOKENS * IG_SKETCH_TOKENS;
    b.sketches = ig_pages_reserve(HEADS * sketch_bytes(&b)); /* as the policy does */
    if (!b.sketches) return 1;
    b.given = room(GROUP * b.stride, sizeof(float)), b.scores = room(GROUP * b.stride, sizeof(float));
    b.left = room(GROUP * b.stride, sizeof(float));
    b.weights = room(b.stride, sizeof(float)), b.ordered = room(b.stride, sizeof(float));
    b.index = room(b.stride, sizeof(int32_t));
    b.share = room(GROUP, sizeof(float));
    b.policy.shape = (ig_policy_shape){.n_layers = HEADS,
                                       .n_heads = GROUP,
                                       .n_kv_heads = 1,
                                       .head_dim = DIM,
                                       .n_ctx = b.n,
                                       .block_tokens = BLOCK_TOKENS};
    b.policy.options =
        (ig_cache_options){.budget = 0.1, .mass = 0.95, .locality = 0.25, .inertia = 4, .n_sinks = 4, .n_recent = 32};
    fill(&b);
    printf(
        "| %d tokens, us | scores, from memory | scores, from cache | weights | choice | rest, from memory | rest, "
        "from cache | all | "
        "softmax_add |\n",
        b.n);
    printf("|---|---:|---:|---:|---:|---:|---:|---:|---:|\n");
    for (ig_cpu_level level = IG_CPU_SCALAR + 1; level <= ig_cpu_detect(); level++)
        if (ig_cpu_has(level)) run_level(&b, level);
    ig_pages_release(b.sketches, HEADS * sketch_bytes(&b));
    free(b.given), free(b.scores), free(b.left), free(b.weights), free(b.ordered), free(b.share), free(b.index);
    return 0;
}
