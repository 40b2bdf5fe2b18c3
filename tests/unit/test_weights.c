/* SPDX-License-Identifier: Apache-2.0
 *
 * Binding weights: every part of the model points to the tensor of the right name, vectors are converted, biases are
 * found, and what is missing, misshapen or left over is refused by name. GGUF comes from the tiny writer, safetensors
 * from lists of names and shapes in which every tensor is filled with its own number.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/half.h"
#include "model/weights.h"
#include "unit/count_memory.h"
#include "unit/tiny_gguf.h"
#include "unit/tiny_safetensors.h"

/* ---- models as lists ---- */

typedef struct part {
    char name[64];
    int rows, columns; /* columns 0: a vector */
} part;

typedef struct model {
    const char *config;
    part parts[64];
    int n_parts;
} model;

static void add(model *m, const char *name, int rows, int columns) {
    part *p = &m->parts[m->n_parts++];
    assert_true(m->n_parts <= 64);
    snprintf(p->name, sizeof p->name, "%s", name);
    p->rows = rows;
    p->columns = columns;
}

static int number_of(const model *m, const char *name) {
    for (int i = 0; i < m->n_parts; i++)
        if (strcmp(m->parts[i].name, name) == 0) return i + 1;
    fail_msg("no part %s", name);
    return 0;
}

static void drop(model *m, const char *name) {
    int i = number_of(m, name) - 1;
    m->parts[i] = m->parts[--m->n_parts];
}

typedef struct bound {
    ig_config c;
    ig_safetensors *st;
    ig_weights w;
    uint8_t *bytes;
} bound;

/* Part i is filled with the F32 number i + 1. */
static ig_status bind(bound *b, const model *m, ig_error *err) {
    ig_buffer header = {0};
    size_t n = 0, n_bytes;
    for (int i = 0; i < m->n_parts; i++) {
        const part *p = &m->parts[i];
        size_t count = (size_t)p->rows * (size_t)(p->columns ? p->columns : 1);
        ig_buffer_format(&header, "%c\"%s\":{\"dtype\":\"F32\",\"shape\":[%d", i ? ',' : '{', p->name, p->rows);
        if (p->columns) ig_buffer_format(&header, ",%d", p->columns);
        ig_buffer_format(&header, "],\"data_offsets\":[%zu,%zu]}", n, n + 4 * count);
        n += 4 * count;
    }
    ig_buffer_text(&header, "}");
    *b = (bound){0};
    b->bytes = tiny_safetensors(header.data, n, &n_bytes);
    float *data = (float *)(void *)(b->bytes + n_bytes - n);
    for (int i = 0; i < m->n_parts; i++)
        for (int k = m->parts[i].rows * (m->parts[i].columns ? m->parts[i].columns : 1); k > 0; k--)
            *data++ = (float)(i + 1);
    ig_buffer_close(&header);
    ig_status s = ig_config_from_json(&b->c, m->config, strlen(m->config), "config.json", err);
    if (!s) s = ig_safetensors_open_memory(&b->st, b->bytes, n_bytes, "tiny", err);
    if (!s) s = ig_weights_bind(&b->w, &b->c, NULL, b->st, NULL, err);
    return s;
}

static void unbind(bound *b) {
    ig_weights_close(&b->w);
    ig_safetensors_close(b->st);
    free(b->bytes);
}

static void expect_refusal(const model *m, ig_status wanted, const char *field) {
    bound b;
    ig_error err = {0};
    ig_status s = bind(&b, m, &err);
    if (s != wanted || !strstr(err.text, field) || !strstr(err.text, "tiny: "))
        fail_msg("status %d, wanted %d naming %s: %s", s, wanted, field, err.text);
    assert_null(b.w.layers);
    unbind(&b);
}

static void check_matrix(const model *m, const ig_matrix *x, const char *name, int n_out, int n_in) {
    assert_non_null(x->w);
    assert_int_equal(*(const float *)x->w, number_of(m, name));
    assert_int_equal(x->n_out, n_out);
    assert_int_equal(x->n_in, n_in);
    assert_int_equal(x->type, IG_TYPE_F32);
    assert_int_equal(x->row_bytes, 4 * n_in);
}

static void check_vector(const model *m, const float *x, const char *name, int n) {
    assert_non_null(x);
    for (int i = 0; i < n; i++) assert_int_equal(x[i], number_of(m, name));
}

/* ---- llama and qwen ---- */

static model llama_model(const char *type, bool tied) {
    static char config[512];
    model m = {.config = config};
    snprintf(
        config, sizeof config,
        "{\"model_type\":\"%s\",\"vocab_size\":5,\"hidden_size\":8,\"num_hidden_layers\":2,\"num_attention_heads\":4,"
        "\"num_key_value_heads\":2,\"head_dim\":4,\"intermediate_size\":12,\"max_position_embeddings\":16,"
        "\"tie_word_embeddings\":%s}",
        type, tied ? "true" : "false");
    add(&m, "model.embed_tokens.weight", 5, 8);
    add(&m, "model.norm.weight", 8, 0);
    if (!tied) add(&m, "lm_head.weight", 5, 8);
    for (int l = 0; l < 2; l++) {
        static const struct {
            const char *name;
            int rows, columns;
        } parts[] = {{"input_layernorm", 8, 0},   {"post_attention_layernorm", 8, 0},
                     {"self_attn.q_proj", 16, 8}, {"self_attn.k_proj", 8, 8},
                     {"self_attn.v_proj", 8, 8},  {"self_attn.o_proj", 8, 16},
                     {"mlp.gate_proj", 12, 8},    {"mlp.up_proj", 12, 8},
                     {"mlp.down_proj", 8, 12}};
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
            char name[64];
            snprintf(name, sizeof name, "model.layers.%d.%s.weight", l, parts[i].name);
            add(&m, name, parts[i].rows, parts[i].columns);
        }
    }
    return m;
}

static void binds_llama(void **state) {
    (void)state;
    model m = llama_model("llama", false);
    bound b;
    ig_error err = {0};
    add(&m, "model.layers.0.self_attn.rotary_emb.inv_freq", 2, 0); /* a buffer of old checkpoints */
    if (bind(&b, &m, &err)) fail_msg("%s", err.text);
    check_matrix(&m, &b.w.embed, "model.embed_tokens.weight", 5, 8);
    check_matrix(&m, &b.w.head, "lm_head.weight", 5, 8);
    check_vector(&m, b.w.final_norm.w, "model.norm.weight", 8);
    assert_null(b.w.final_norm.b);
    assert_null(b.w.positions.w);
    assert_null(b.w.rope_factors);
    const ig_layer *l = &b.w.layers[1];
    check_vector(&m, l->attn_norm.w, "model.layers.1.input_layernorm.weight", 8);
    check_vector(&m, l->ffn_norm.w, "model.layers.1.post_attention_layernorm.weight", 8);
    check_matrix(&m, &l->q, "model.layers.1.self_attn.q_proj.weight", 16, 8);
    check_matrix(&m, &l->k, "model.layers.1.self_attn.k_proj.weight", 8, 8);
    check_matrix(&m, &l->v, "model.layers.1.self_attn.v_proj.weight", 8, 8);
    check_matrix(&m, &l->o, "model.layers.1.self_attn.o_proj.weight", 8, 16);
    check_matrix(&m, &l->experts->gate, "model.layers.1.mlp.gate_proj.weight", 12, 8);
    check_matrix(&m, &l->experts->up, "model.layers.1.mlp.up_proj.weight", 12, 8);
    check_matrix(&m, &l->experts->down, "model.layers.1.mlp.down_proj.weight", 8, 12);
    assert_null(l->q.bias);
    assert_null(l->q_norm);
    uint64_t wanted = 2 * 5 * 8 + 8 + 2 * (16 + 128 + 64 + 64 + 128 + 3 * 96);
    assert_int_equal(b.w.n_params, wanted);
    assert_int_equal(b.w.stored_bytes, 4 * wanted);
    unbind(&b);
}

static void binds_tied(void **state) {
    (void)state;
    model m = llama_model("llama", true);
    bound b;
    ig_error err = {0};
    if (bind(&b, &m, &err)) fail_msg("%s", err.text);
    assert_ptr_equal(b.w.head.w, b.w.embed.w);
    unbind(&b);
    add(&m, "lm_head.weight", 5, 8); /* a copy of the embedding, or not */
    if (bind(&b, &m, &err)) fail_msg("%s", err.text);
    assert_true(b.w.head.w && b.w.head.w != b.w.embed.w && !b.w.is_tied);
    unbind(&b);
    drop(&m, "lm_head.weight");
    add(&m, "lm_head.weight", 6, 8);
    expect_refusal(&m, IG_E_FORMAT, "'lm_head.weight' has shape");
    m = llama_model("llama", false);
    drop(&m, "lm_head.weight");
    expect_refusal(&m, IG_E_FORMAT, "'lm_head.weight' is missing");
}

static void binds_biases(void **state) {
    (void)state;
    model m = llama_model("qwen2", true);
    bound b;
    ig_error err = {0};
    add(&m, "model.layers.0.self_attn.k_proj.bias", 8, 0);
    expect_refusal(&m, IG_E_FORMAT, "'model.layers.1.self_attn.k_proj.bias' is missing");
    add(&m, "model.layers.1.self_attn.k_proj.bias", 8, 0);
    if (bind(&b, &m, &err)) fail_msg("%s", err.text);
    check_vector(&m, b.w.layers[1].k.bias, "model.layers.1.self_attn.k_proj.bias", 8);
    assert_null(b.w.layers[1].q.bias);
    unbind(&b);
    add(&m, "model.layers.1.self_attn.q_proj.bias", 16, 0); /* not in layer 0 */
    expect_refusal(&m, IG_E_UNSUPPORTED, "'model.layers.1.self_attn.q_proj.bias' is not used");
}

/* Under each of the prefixes that files have, beside tensors that are none of the text's. */
static void binds_text_parts(void **state) {
    static const char *const prefixes[] = {"model.", "model.language_model.", "language_model.model."};
    (void)state;
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        char config[800];
        bound b;
        ig_error err = {0};
        model m = llama_model("mistral", false);
        snprintf(config, sizeof config, "{\"model_type\":\"mistral3\",\"text_config\":%s}", m.config);
        m.config = config;
        for (int k = 0; k < m.n_parts; k++) {
            char name[64];
            bool is_head = strcmp(m.parts[k].name, "lm_head.weight") == 0;
            if (is_head)
                strcpy(name, i == 2 ? "language_model.lm_head.weight" : "lm_head.weight");
            else
                snprintf(name, sizeof name, "%s%s", prefixes[i], m.parts[k].name + strlen("model."));
            strcpy(m.parts[k].name, name);
        }
        add(&m, "vision_tower.patch.weight", 3, 0);
        if (bind(&b, &m, &err)) fail_msg("%s", err.text);
        assert_int_equal(b.w.layers[1].experts->down.n_out, 8);
        assert_false(b.w.is_tied);
        unbind(&b);
        drop(&m, i == 2 ? "language_model.lm_head.weight" : "lm_head.weight");
        if (bind(&b, &m, &err)) fail_msg("%s", err.text);
        assert_true(b.w.is_tied && b.w.head.w == b.w.embed.w);
        unbind(&b);
        char other[64];
        snprintf(other, sizeof other, "%slayers.0.self_attn.sinks", prefixes[i]);
        add(&m, other, 4, 0);
        expect_refusal(&m, IG_E_UNSUPPORTED, "sinks' is not used");
    }
}

static void binds_head_norms(void **state) {
    (void)state;
    model m = llama_model("qwen3", true);
    bound b;
    ig_error err = {0};
    expect_refusal(&m, IG_E_FORMAT, "'model.layers.0.self_attn.q_norm.weight' is missing");
    for (int l = 0; l < 2; l++)
        for (const char *c = "qk"; *c; c++) {
            char name[64];
            snprintf(name, sizeof name, "model.layers.%d.self_attn.%c_norm.weight", l, *c);
            add(&m, name, 4, 0);
        }
    if (bind(&b, &m, &err)) fail_msg("%s", err.text);
    check_vector(&m, b.w.layers[0].q_norm, "model.layers.0.self_attn.q_norm.weight", 4);
    check_vector(&m, b.w.layers[1].k_norm, "model.layers.1.self_attn.k_norm.weight", 4);
    unbind(&b);
    m.config = llama_model("qwen2", true).config;
    expect_refusal(&m, IG_E_UNSUPPORTED, "_norm.weight' is not used by architecture 'qwen2'");
}

static void refuses_wrong_tensors(void **state) {
    (void)state;
    model m = llama_model("llama", false);
    for (int i = 0; i < m.n_parts; i++) {
        model less = m, wrong = m, turned = m;
        char field[160];
        drop(&less, m.parts[i].name);
        snprintf(field, sizeof field, "'%s' is missing", m.parts[i].name);
        expect_refusal(&less, IG_E_FORMAT, field);
        wrong.parts[i].rows++;
        snprintf(field, sizeof field, "'%s' has shape", m.parts[i].name);
        expect_refusal(&wrong, IG_E_FORMAT, field);
        turned.parts[i].columns = m.parts[i].columns ? 0 : 1;
        expect_refusal(&turned, IG_E_FORMAT, field);
    }
    add(&m, "model.layers.0.self_attn.sinks", 4, 0);
    expect_refusal(&m, IG_E_UNSUPPORTED, "'model.layers.0.self_attn.sinks' is not used");
}

/* ---- OPT ---- */

static model opt_model(const char *prefix, bool is_projected) {
    model m = {.config = is_projected ? "{\"model_type\":\"opt\",\"vocab_size\":5,\"hidden_size\":8,\"num_hidden_"
                                        "layers\":1,\"num_attention_heads\":2,"
                                        "\"max_position_embeddings\":16,\"ffn_dim\":12,\"word_embed_proj_dim\":4,\"do_"
                                        "layer_norm_before\":false}"
                                      : "{\"model_type\":\"opt\",\"vocab_size\":5,\"hidden_size\":8,\"num_hidden_"
                                        "layers\":1,\"num_attention_heads\":2,"
                                        "\"max_position_embeddings\":16,\"ffn_dim\":12}"};
    static const struct {
        const char *name;
        int rows, columns, kind; /* 0: both models, 1: plain, 2: projected */
    } parts[] = {
        {"embed_positions.weight", 18, 8, 0},
        {"embed_tokens.weight", 5, 8, 1},
        {"embed_tokens.weight", 5, 4, 2},
        {"project_in.weight", 8, 4, 2},
        {"project_out.weight", 4, 8, 2},
        {"final_layer_norm.weight", 8, 0, 1},
        {"final_layer_norm.bias", 8, 0, 1},
        {"layers.0.fc1.weight", 12, 8, 0},
        {"layers.0.fc1.bias", 12, 0, 0},
        {"layers.0.fc2.weight", 8, 12, 0},
        {"layers.0.fc2.bias", 8, 0, 0},
        {"layers.0.final_layer_norm.weight", 8, 0, 0},
        {"layers.0.final_layer_norm.bias", 8, 0, 0},
        {"layers.0.self_attn.k_proj.weight", 8, 8, 0},
        {"layers.0.self_attn.k_proj.bias", 8, 0, 0},
        {"layers.0.self_attn.out_proj.weight", 8, 8, 0},
        {"layers.0.self_attn.out_proj.bias", 8, 0, 0},
        {"layers.0.self_attn.q_proj.weight", 8, 8, 0},
        {"layers.0.self_attn.q_proj.bias", 8, 0, 0},
        {"layers.0.self_attn.v_proj.weight", 8, 8, 0},
        {"layers.0.self_attn.v_proj.bias", 8, 0, 0},
        {"layers.0.self_attn_layer_norm.weight", 8, 0, 0},
        {"layers.0.self_attn_layer_norm.bias", 8, 0, 0},
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char name[64];
        if (parts[i].kind == (is_projected ? 1 : 2)) continue;
        snprintf(name, sizeof name, "%s%s", prefix, parts[i].name);
        add(&m, name, parts[i].rows, parts[i].columns);
    }
    return m;
}

static void binds_opt(void **state) {
    (void)state;
    static const char *const prefixes[] = {"model.decoder.", "decoder."};
    for (size_t i = 0; i < 2; i++) {
        model m = opt_model(prefixes[i], false);
        bound b;
        char name[64];
        ig_error err = {0};
        if (bind(&b, &m, &err)) fail_msg("%s", err.text);
        snprintf(name, sizeof name, "%sembed_positions.weight", prefixes[i]);
        check_matrix(&m, &b.w.positions, name, 18, 8);
        snprintf(name, sizeof name, "%slayers.0.fc1.bias", prefixes[i]);
        check_vector(&m, b.w.layers[0].experts->up.bias, name, 12);
        snprintf(name, sizeof name, "%sfinal_layer_norm.bias", prefixes[i]);
        check_vector(&m, b.w.final_norm.b, name, 8);
        snprintf(name, sizeof name, "%slayers.0.final_layer_norm.weight", prefixes[i]);
        check_vector(&m, b.w.layers[0].ffn_norm.w, name, 8);
        assert_null(b.w.layers[0].experts->gate.w);
        assert_null(b.w.embed_in.w);
        assert_ptr_equal(b.w.head.w, b.w.embed.w);
        unbind(&b);
    }
}

static void binds_projected_opt(void **state) {
    (void)state;
    model m = opt_model("model.decoder.", true);
    bound b;
    ig_error err = {0};
    if (bind(&b, &m, &err)) fail_msg("%s", err.text);
    check_matrix(&m, &b.w.embed, "model.decoder.embed_tokens.weight", 5, 4);
    check_matrix(&m, &b.w.embed_in, "model.decoder.project_in.weight", 8, 4);
    check_matrix(&m, &b.w.embed_out, "model.decoder.project_out.weight", 4, 8);
    assert_null(b.w.final_norm.w);
    unbind(&b);
    add(&m, "model.decoder.final_layer_norm.weight", 8, 0); /* post-norm models have none */
    expect_refusal(&m, IG_E_UNSUPPORTED, "'model.decoder.final_layer_norm.weight' is not used");
}

/* ---- GGUF ---- */

static ig_status bind_gguf(const tiny *t, void (*look)(const ig_gguf *, const ig_weights *),
                           void (*fill)(uint8_t *, const ig_gguf *), ig_error *err) {
    size_t n;
    ig_gguf *g;
    ig_config c;
    ig_weights w;
    uint8_t *bytes = tiny_write(t, &n);
    ig_status s = ig_gguf_open_memory(&g, bytes, n, "tiny.gguf", err);
    if (!s && fill) fill((uint8_t *)(uintptr_t)ig_gguf_tensor(g, "blk.0.ffn_norm.weight")->data, g);
    if (!s) s = ig_config_from_gguf(&c, g, err);
    if (!s) s = ig_weights_bind(&w, &c, g, NULL, NULL, err);
    if (!s && look) look(g, &w);
    if (!s) ig_weights_close(&w);
    ig_gguf_close(g);
    free(bytes);
    return s;
}

static void fill_half(uint8_t *data, const ig_gguf *g) {
    (void)g;
    for (int i = 0; i < TINY_D; i++) {
        uint16_t half = ig_f32_f16((float)i - 2.5f);
        memcpy(data + 2 * i, &half, 2);
    }
}

static void fill_bias(uint8_t *data, const ig_gguf *g) {
    float *bias = (float *)(uintptr_t)ig_gguf_tensor(g, "blk.0.attn_qkv.bias")->data;
    (void)data;
    for (int i = 0; i < 3 * TINY_D; i++) bias[i] = (float)i;
}

static void fill_nan(uint8_t *data, const ig_gguf *g) {
    (void)g;
    memcpy(data + 2, "\xff\x7f", 2);
}

static void look_at(const ig_gguf *g, const ig_weights *w) {
    assert_ptr_equal(w->embed.w, ig_gguf_tensor(g, "token_embd.weight")->data);
    assert_ptr_equal(w->head.w, w->embed.w);
    assert_ptr_equal(w->layers[0].q.w, ig_gguf_tensor(g, "blk.0.attn_q.weight")->data);
    assert_int_equal(w->layers[0].q.type, IG_TYPE_F16);
    assert_int_equal(w->layers[0].v.type, IG_TYPE_BF16);
    assert_int_equal(w->layers[0].experts->down.row_bytes, 2 * TINY_FF);
    for (int i = 0; i < TINY_D; i++) assert_true(w->layers[0].ffn_norm.w[i] == (float)i - 2.5f);
}

static void binds_gguf(void **state) {
    (void)state;
    tiny t = tiny_valid();
    ig_error err = {0};
    if (bind_gguf(&t, look_at, fill_half, &err)) fail_msg("%s", err.text);
    assert_int_equal(bind_gguf(&t, NULL, fill_nan, &err), IG_E_FORMAT);
    assert_non_null(strstr(err.text, "tiny.gguf: tensor 'blk.0.ffn_norm.weight' holds a value that is not finite"));
}

static void add_stack(tiny *t, const char *name, uint64_t dim0, uint64_t dim1, uint64_t n) {
    tiny_tensor *x = tiny_add(t, name, IG_TYPE_F16, dim0, dim1);
    x->n_dims = 3;
    x->dims[2] = n;
}

static void look_at_experts(const ig_gguf *g, const ig_weights *w) {
    const ig_layer *l = &w->layers[0];
    const uint8_t *up = ig_gguf_tensor(g, "blk.0.ffn_up_exps.weight")->data,
                  *down = ig_gguf_tensor(g, "blk.0.ffn_down_exps.weight")->data;
    assert_int_equal(l->n_experts, 3);
    assert_true(l->router.n_out == 3 && l->router.n_in == TINY_D && l->router.type == IG_TYPE_F32);
    for (int e = 0; e < 3; e++) {
        assert_ptr_equal(l->experts[e].up.w, up + (size_t)e * 2 * TINY_FF * TINY_D);
        assert_ptr_equal(l->experts[e].down.w, down + (size_t)e * 2 * TINY_FF * TINY_D);
        assert_true(l->experts[e].gate.n_out == TINY_FF && l->experts[e].down.n_out == TINY_D);
    }
}

static void binds_gguf_experts(void **state) {
    (void)state;
    tiny t = tiny_valid();
    ig_error err = {0};
    tiny_u32(&t, "llama.expert_count", 3);
    tiny_u32(&t, "llama.expert_used_count", 2);
    for (int i = 0; i < 3; i++)
        tiny_drop_tensor(&t,
                         (const char *[]){"blk.0.ffn_gate.weight", "blk.0.ffn_up.weight", "blk.0.ffn_down.weight"}[i]);
    tiny_add(&t, "blk.0.ffn_gate_inp.weight", IG_TYPE_F32, TINY_D, 3);
    add_stack(&t, "blk.0.ffn_gate_exps.weight", TINY_D, TINY_FF, 3);
    add_stack(&t, "blk.0.ffn_up_exps.weight", TINY_D, TINY_FF, 3);
    assert_int_equal(bind_gguf(&t, NULL, NULL, &err), IG_E_FORMAT);
    assert_non_null(strstr(err.text, "'blk.0.ffn_down_exps.weight' is missing"));
    add_stack(&t, "blk.0.ffn_down_exps.weight", TINY_FF, TINY_D, 3);
    if (bind_gguf(&t, look_at_experts, NULL, &err)) fail_msg("%s", err.text);
    tiny_tensor_named(&t, "blk.0.ffn_up_exps.weight")->dims[2] = 2;
    assert_int_equal(bind_gguf(&t, NULL, NULL, &err), IG_E_FORMAT);
    assert_non_null(strstr(err.text, "'blk.0.ffn_up_exps.weight' has shape [8, 16, 2], must be [8, 16, 3]"));
}

static void look_at_fused(const ig_gguf *g, const ig_weights *w) {
    const ig_layer *l = &w->layers[0];
    const uint8_t *all = ig_gguf_tensor(g, "blk.0.attn_qkv.weight")->data;
    size_t bytes = (size_t)2 * TINY_D * TINY_D;
    assert_ptr_equal(l->q.w, all);
    assert_ptr_equal(l->k.w, all + bytes);
    assert_ptr_equal(l->v.w, all + 2 * bytes);
    for (int i = 0; i < TINY_D; i++)
        assert_true(l->q.bias[i] == (float)i && l->k.bias[i] == (float)(TINY_D + i) &&
                    l->v.bias[i] == (float)(2 * TINY_D + i));
}

static void binds_gguf_fused(void **state) {
    (void)state;
    tiny t = tiny_valid();
    ig_error err = {0};
    for (int i = 0; i < 3; i++)
        tiny_drop_tensor(&t, (const char *[]){"blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.0.attn_v.weight"}[i]);
    tiny_add(&t, "blk.0.attn_qkv.weight", IG_TYPE_F16, TINY_D, 3 * TINY_D);
    if (bind_gguf(&t, NULL, NULL, &err)) fail_msg("%s", err.text);
    tiny_add(&t, "blk.0.attn_qkv.bias", IG_TYPE_F32, 3 * TINY_D, 0);
    if (bind_gguf(&t, look_at_fused, fill_bias, &err)) fail_msg("%s", err.text);
    tiny_tensor_named(&t, "blk.0.attn_qkv.bias")->dims[0] = 2 * TINY_D;
    assert_int_equal(bind_gguf(&t, NULL, NULL, &err), IG_E_FORMAT);
    assert_non_null(strstr(err.text, "'blk.0.attn_qkv.bias' has shape"));
}

static void survives_failing_memory(void **state) {
    (void)state;
#ifndef MEMORY_IS_COUNTED
    skip();
#endif
    model m = llama_model("llama", false);
    bound b;
    ig_error err = {0};
    if (bind(&b, &m, &err)) fail_msg("%s", err.text);
    for (long fail_at = 0;; fail_at++) {
        ig_weights w;
        memory_count_start(fail_at);
        ig_status s = ig_weights_bind(&w, &b.c, NULL, b.st, NULL, &err);
        ig_weights_close(&w);
        memory_count_stop();
        assert_int_equal(memory_count.n_taken, memory_count.n_given);
        if (memory_count.fail_at >= 0) {
            assert_int_equal(s, IG_OK);
            assert_true(fail_at > 0);
            break;
        }
        assert_int_equal(s, IG_E_MEMORY);
    }
    unbind(&b);
}

/* ---- the reference models beside the repository, where they are ---- */

static void binds_fixtures(void **state) {
    (void)state;
    static const char *const names[] = {"opt", "opt-350m-like", "llama2", "llama31", "qwen2", "qwen3", "mistral"};
    if (access("../shared/fixtures/models", R_OK) != 0) skip();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[128];
        ig_config c;
        ig_weights w;
        ig_safetensors *st = NULL;
        ig_error err = {0};
        snprintf(path, sizeof path, "../shared/fixtures/models/%s", names[i]);
        ig_status s = ig_config_from_hf(&c, path, &err);
        if (!s) s = ig_safetensors_open(&st, path, "model", NULL, &err);
        if (!s) s = ig_weights_bind(&w, &c, NULL, st, NULL, &err);
        if (s) fail_msg("%s", err.text);
        ig_weights_close(&w);
        ig_safetensors_close(st);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(binds_llama),           cmocka_unit_test(binds_tied),
        cmocka_unit_test(binds_biases),          cmocka_unit_test(binds_head_norms),
        cmocka_unit_test(refuses_wrong_tensors), cmocka_unit_test(binds_opt),
        cmocka_unit_test(binds_projected_opt),   cmocka_unit_test(binds_gguf),
        cmocka_unit_test(binds_gguf_experts),    cmocka_unit_test(survives_failing_memory),
        cmocka_unit_test(binds_fixtures),        cmocka_unit_test(binds_text_parts),
        cmocka_unit_test(binds_gguf_fused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
