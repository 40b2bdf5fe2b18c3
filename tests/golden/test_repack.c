/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights in an order of their own, of a model with a matrix of each type that has one: which matrices are in it, what
 * memory that takes, that it changes no bit beside weights where they lie, copied or streamed ones, and that it can be
 * interrupted.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/random.h"
#include "golden/tiny_session.h"
#include "model/model.h"
#include "unit/temp_dir.h"
#include "unit/tiny_gguf.h"

enum { D = 256, D_KV = 128, D_FF = 512, N_EXPERTS = 6, N_CTX = 128, N_PROMPT = 70, N_STEPS = 4, N_BATCH = 3 };

/* What a model of a test is like. */
typedef enum kind { UNTIED, TIED, EXPERTS } kind;

static temp_dir dir;
static char path[512];
static int32_t ids[N_CTX];

/* ---- the model ---- */

/* A feed-forward matrix, or one of all experts. */
static void add_ffn(tiny *t, int layer, const char *name, ig_type type, int n_in, int n_out, kind k) {
    char full[64];
    snprintf(full, sizeof full, "blk.%d.%s%s.weight", layer, name, k == EXPERTS ? "_exps" : "");
    tiny_tensor *x = tiny_add(t, full, type, (uint64_t)n_in, (uint64_t)n_out);
    if (k == EXPERTS) x->n_dims = 3, x->dims[2] = N_EXPERTS;
}

static tiny describe(kind k) {
    static const struct {
        const char *name;
        ig_type type;
        int n_in, n_out;
    } parts[] = {{"attn_q", IG_TYPE_Q4_0, D, D},
                 {"attn_k", IG_TYPE_Q4_1, D, D_KV},
                 {"attn_v", IG_TYPE_Q5_0, D, D_KV},
                 {"attn_output", IG_TYPE_Q5_1, D, D},
                 {"attn_norm", IG_TYPE_F32, D, 0},
                 {"ffn_norm", IG_TYPE_F32, D, 0},
                 {"ffn_gate_inp", IG_TYPE_F32, D, N_EXPERTS}};
    const size_t n_parts = sizeof parts / sizeof *parts - (k != EXPERTS);
    tiny t = tiny_valid();
    t.n_tensors = 0;
    tiny_u32(&t, "llama.block_count", 2);
    tiny_u32(&t, "llama.context_length", N_CTX);
    tiny_u32(&t, "llama.embedding_length", D);
    tiny_u32(&t, "llama.feed_forward_length", D_FF);
    tiny_u32(&t, "llama.attention.head_count", 4);
    tiny_u32(&t, "llama.attention.head_count_kv", 2);
    tiny_u32(&t, "llama.vocab_size", N_VOCAB);
    if (k == EXPERTS) tiny_u32(&t, "llama.expert_count", N_EXPERTS), tiny_u32(&t, "llama.expert_used_count", 2);
    tiny_add(&t, "token_embd.weight", k == TIED ? IG_TYPE_Q6_K : IG_TYPE_Q8_0, D, N_VOCAB);
    if (k != TIED) tiny_add(&t, "output.weight", IG_TYPE_Q6_K, D, N_VOCAB);
    tiny_add(&t, "output_norm.weight", IG_TYPE_F32, D, 0);
    for (int l = 0; l < 2; l++) {
        for (size_t i = 0; i < n_parts; i++) {
            char name[64];
            snprintf(name, sizeof name, "blk.%d.%s.weight", l, parts[i].name);
            tiny_add(&t, name, parts[i].type, (uint64_t)parts[i].n_in, (uint64_t)parts[i].n_out);
        }
        add_ffn(&t, l, "ffn_gate", IG_TYPE_Q4_K, D, D_FF, k);
        add_ffn(&t, l, "ffn_up", IG_TYPE_Q5_K, D, D_FF, k);
        add_ffn(&t, l, "ffn_down", IG_TYPE_Q6_K, D_FF, D, k);
    }
    return t;
}

/* Codes are any; scales are small. So are the numbers of a router; norms are ones. */
static void fill(uint8_t *p, const tiny_tensor *x, ig_random *rng) {
    static const float one = 1;
    const size_t n = tiny_bytes(x), block = (size_t)ig_type_get(x->type)->block_bytes;
    const int at = x->type == IG_TYPE_Q6_K ? 208 : 0;
    const bool has_min = x->type != IG_TYPE_Q4_0 && x->type != IG_TYPE_Q5_0 && at == 0;
    for (size_t i = 0; i < n; i++) p[i] = (uint8_t)ig_random_u64(rng);
    for (size_t b = 0; b < n; b += block) {
        if (x->type == IG_TYPE_F32) {
            const float small = (float)p[b] / 256 - 0.5f;
            memcpy(p + b, x->n_dims == 1 ? &one : &small, sizeof one);
            continue;
        }
        p[b + (size_t)at + 1] = 0x10; /* about 0.0005 */
        if (has_min) p[b + 3] = 0x90;
    }
}

static void write_model(kind k) {
    tiny t = describe(k);
    size_t n, n_data = 0;
    uint8_t *bytes = tiny_write(&t, &n);
    ig_random rng = {.state = 7};
    for (int i = 0; i < t.n_tensors; i++) n_data += ig_round_up(tiny_bytes(&t.tensors[i]), t.alignment);
    uint8_t *at = bytes + n - n_data;
    for (int i = 0; i < t.n_tensors; at += ig_round_up(tiny_bytes(&t.tensors[i++]), t.alignment))
        fill(at, &t.tensors[i], &rng);
    dir = temp_dir_open();
    temp_dir_write(&dir, "tiny.gguf", bytes, n);
    temp_dir_path(&dir, "tiny.gguf", path, sizeof path);
    free(bytes);
}

static int set_up(void **state) {
    write_model(*state ? *(const kind *)*state : UNTIED);
    open_tiny(path, 2);
    for (int i = 0; i < N_CTX; i++) ids[i] = (i * i + 3 * i) % N_VOCAB;
    return 0;
}

static int tear_down(void **state) {
    close_tiny(state);
    temp_dir_close(&dir);
    return 0;
}

/* ---- tests ---- */

static ig_model *open_with(const ig_model_options *o) {
    ig_model *m;
    ig_error err = {0};
    expect_ok(ig_model_open(&m, ctx, path, o, &err), &err);
    return m;
}

static ig_session *open_on(ig_model *m) {
    ig_session_options o = ig_session_defaults();
    ig_session *s;
    ig_error err = {0};
    o.n_ctx = N_CTX;
    o.n_batch = 32;
    o.cache.policy = "full";
    expect_ok(ig_session_open(&s, m, &o, &err), &err);
    return s;
}

/* Prompts, steps of one sequence and of three. */
static void compare(ig_model *other, int round) {
    ig_session *a[N_BATCH], *b[N_BATCH];
    ig_error err = {0};
    for (int i = 0; i < N_BATCH; i++) {
        a[i] = open_on(model);
        b[i] = open_on(other);
        put(a[i], ids, N_PROMPT + i);
        put(b[i], ids, N_PROMPT + i);
        same(a[i], b[i]);
    }
    for (int t = 0; t < N_STEPS; t++) {
        const int32_t next[N_BATCH] = {t + 29 * round, 2 * t, 3 * t};
        int n = t % 2 ? N_BATCH : 1;
        expect_ok(ig_session_decode(a, next, n, &err), &err);
        expect_ok(ig_session_decode(b, next, n, &err), &err);
        for (int i = 0; i < n; i++) same(a[i], b[i]);
    }
    for (int i = 0; i < N_BATCH; i++) ig_session_close(a[i]), ig_session_close(b[i]);
}

static void no_bit_changes(void **state) {
    const ig_model_options kinds[] = {
        {.no_repack = true}, {.no_mmap = true}, {.no_mmap = true, .no_repack = true}, {.weights_ram = 64 << 20}};
    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        ig_model *m = open_with(&kinds[i]);
        compare(m, 0);
        ig_model_close(m);
    }
}

/* Experts that pass through, are there from the start, or are put in panels because they are used often. */
static void no_bit_of_experts_changes(void **state) {
    ig_error err = {0};
    ig_model *m;
    (void)state;
    assert_int_equal(open_limited(&m, path, 1, 0, &err), IG_E_LIMIT);
    const uint64_t least = least_in(&err);
    m = open_with(&(ig_model_options){.weights_ram = 64 << 20});
    const uint64_t most = weight_stats(m).ram_bytes;
    ig_model_close(m);
    const uint64_t rams[] = {least, (least + most) / 2, most - 1, most};
    for (int i = 0; i < 4; i++) {
        expect_ok(open_limited(&m, path, rams[i], 0, &err), &err);
        for (int round = 0; round < 8; round++) compare(m, round);
        assert_int_equal(weight_stats(m).read_bytes == 0, i == 3);
        ig_model_close(m);
    }
}

static bool has_panels(const ig_matrix *m) {
    bool wanted = ctx->device->ops->is_host && ctx->device->ops->panel_bytes(ctx->device, m) > 0;
    assert_true(wanted == (m->panels != NULL));
    return wanted;
}

static void memory_is_counted(void **state) {
    ig_model *plain = open_with(&(ig_model_options){.no_repack = true}),
             *copy = open_with(&(ig_model_options){.no_mmap = true});
    const ig_model *models[] = {model, plain, copy};
    ig_model_info info[3];
    ig_cache_plan_info plan[3];
    ig_error err = {0};
    const bool tied = *state != NULL;
    for (int i = 0; i < 3; i++) {
        ig_model_get_info(models[i], &info[i]);
        expect_ok(ig_cache_plan(&plan[i], models[i], NULL, &err), &err);
    }
    const ig_layer *l = &model->weights.layers[1];
    const ig_matrix *matrices[] = {
        &l->q, &l->k, &l->v, &l->o, &l->experts->gate, &l->experts->up, &l->experts->down, &model->weights.head};
    uint64_t repacked = 0;
    for (int i = 0; i < 8; i++)
        if (has_panels(matrices[i])) repacked += (i < 7 ? 2 : 1) * matrices[i]->row_bytes * (size_t)matrices[i]->n_out;
    assert_null(model->weights.embed.panels);
    assert_true(plain->weights.panels.size == 0 && plain->weights.replaced_bytes == 0);
    assert_true(model->weights.replaced_bytes ==
                repacked - (tied && repacked ? l->experts->down.row_bytes / 2 * N_VOCAB : 0));
    uint64_t panels = info[0].private_bytes - info[1].private_bytes;
    assert_true(panels >= repacked && panels <= repacked + repacked / 20 + 4096);
    assert_true(plan[0].weights == plan[1].weights + panels - model->weights.replaced_bytes);
    /* A copy keeps the embedding and q, which are read by rows. */
    assert_true(copy->weights.replaced_bytes ==
                model->weights.replaced_bytes - (repacked ? 2 * l->q.row_bytes * D : 0));
    assert_true(info[2].private_bytes + copy->weights.replaced_bytes == info[0].private_bytes + copy->copied_bytes);
    ig_model_close(plain);
    ig_model_close(copy);
}

static bool stop_half_way(void *user, uint64_t done, uint64_t total) {
    (void)user;
    assert_true(done <= total);
    return done > total / 2;
}

static void loading_is_interrupted(void **state) {
    ig_model_options o = {.progress = stop_half_way};
    ig_error err = {0};
    ig_model *m;
    (void)state;
    assert_int_equal(ig_model_open(&m, ctx, path, &o, &err), IG_E_INTERRUPTED);
    assert_null(m);
}

int main(void) {
    static kind tied = TIED, experts = EXPERTS;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(no_bit_changes, set_up, tear_down),
        {"no_bit_changes, tied", no_bit_changes, set_up, tear_down, &tied},
        {"no_bit_changes, experts", no_bit_changes, set_up, tear_down, &experts},
        {"no_bit_of_experts_changes", no_bit_of_experts_changes, set_up, tear_down, &experts},
        cmocka_unit_test_setup_teardown(memory_is_counted, set_up, tear_down),
        {"memory_is_counted, tied", memory_is_counted, set_up, tear_down, &tied},
        cmocka_unit_test_setup_teardown(loading_is_interrupted, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
