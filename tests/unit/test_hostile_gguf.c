/* SPDX-License-Identifier: Apache-2.0
 *
 * Malformed GGUF files, each a valid one with one thing changed: every one must be refused with the right status and
 * a text that names file and field, without taking more memory than the file's size justifies.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "model/weights.h"
#include "unit/count_memory.h"
#include "unit/tiny_gguf.h"

#define TENSOR(name) tiny_tensor_named(t, name)
#define Q "blk.0.attn_q.weight"
#define EPS "llama.attention.layer_norm_rms_epsilon"

/* A string array whose second item states this length. */
static void put_bad_strings(tiny *t, uint64_t stated) {
    uint8_t items[17] = {1, 0, 0, 0, 0, 0, 0, 0, 'a'};
    memcpy(items + 9, &stated, sizeof stated);
    tiny_array(t, "x.strings", IG_GGUF_STRING, 2, items, sizeof items);
}

static void put_long_string(tiny *t, uint64_t stated) {
    tiny_raw(t, "x.string", IG_GGUF_STRING, &stated, sizeof stated);
}

static void put_nan(tiny *t, const char *key) { tiny_f32(t, key, NAN); }

/* X(name, wanted status, what the error names, the change) */
#define READER_CASES(X)                                                                                                \
    X(magic_wrong, IG_E_FORMAT, "magic", t->magic[3] = 'X')                                                            \
    X(magic_old, IG_E_FORMAT, "magic", memcpy(t->magic, "ggjt", 4))                                                    \
    X(version_0, IG_E_UNSUPPORTED, "version 0", t->version = 0)                                                        \
    X(version_1, IG_E_UNSUPPORTED, "version 1", t->version = 1)                                                        \
    X(version_4, IG_E_UNSUPPORTED, "version 4", t->version = 4)                                                        \
    X(version_big_endian_2, IG_E_UNSUPPORTED, "big-endian", t->version = 0x02000000)                                   \
    X(version_big_endian_3, IG_E_UNSUPPORTED, "big-endian", t->version = 0x03000000)                                   \
    X(keys_too_many, IG_E_FORMAT, "keys", t->n_values_stated = 1 << 20)                                                \
    X(keys_2_to_63, IG_E_FORMAT, "keys", t->n_values_stated = INT64_MIN)                                               \
    X(keys_all_ones, IG_E_FORMAT, "keys", t->n_values_stated = -2)                                                     \
    X(keys_one_more, IG_E_FORMAT, "tensor 0", t->n_values_stated = t->n_values + 1)                                    \
    X(tensors_too_many, IG_E_FORMAT, "tensors", t->n_tensors_stated = 1 << 24)                                         \
    X(tensors_2_to_63, IG_E_FORMAT, "tensors", t->n_tensors_stated = INT64_MIN)                                        \
    X(tensors_all_ones, IG_E_FORMAT, "tensors", t->n_tensors_stated = -2)                                              \
    X(tensors_one_more, IG_E_FORMAT, "tensor 11", t->n_tensors_stated = t->n_tensors + 1)                              \
    X(key_empty, IG_E_FORMAT, "key 9", tiny_u32(t, "", 1))                                                             \
    X(key_long, IG_E_FORMAT, "name of 65536 bytes", tiny_key(t, "x")->key_bytes = 65536)                               \
    X(key_past_end, IG_E_FORMAT, "the name", tiny_key(t, "x")->key_bytes = 65535)                                      \
    X(key_2_to_63, IG_E_FORMAT, "key 9", tiny_key(t, "x")->key_bytes = INT64_MIN)                                      \
    X(key_all_ones, IG_E_FORMAT, "key 9", tiny_key(t, "x")->key_bytes = -2)                                            \
    X(key_control, IG_E_FORMAT, "control character", tiny_u32(t, "x\033[2J", 1))                                       \
    X(key_twice, IG_E_FORMAT, "'general.name' appears twice", tiny_u32(t, "general.nam_", 1),                          \
      tiny_key(t, "general.nam_")->key[11] = 'e')                                                                      \
    X(type_13, IG_E_FORMAT, "'x.y': unknown value type 13", tiny_raw(t, "x.y", 13, "", 1))                             \
    X(type_all_ones, IG_E_FORMAT, "'x.y': unknown value type", tiny_raw(t, "x.y", UINT32_MAX, "", 1))                  \
    X(bool_2, IG_E_FORMAT, "'x.y': a boolean is 2", tiny_bool(t, "x.y", 2))                                            \
    X(bool_255, IG_E_FORMAT, "'x.y': a boolean is 255", tiny_bool(t, "x.y", 255))                                      \
    X(bool_in_array, IG_E_FORMAT, "'x.y': a boolean is 7", tiny_array(t, "x.y", IG_GGUF_BOOL, 2, "\1\7", 2))           \
    X(array_of_arrays, IG_E_UNSUPPORTED, "'x.y': an array of arrays",                                                  \
      tiny_array(t, "x.y", IG_GGUF_ARRAY, 1, "abcdefghijkl", 12))                                                      \
    X(array_type, IG_E_FORMAT, "'x.y': unknown value type 99", tiny_array(t, "x.y", 99, 1, "a", 1))                    \
    X(array_past_end, IG_E_FORMAT, "'x.y': 1048576 items", tiny_array(t, "x.y", IG_GGUF_U8, 1 << 20, "a", 1))          \
    X(array_2_to_61, IG_E_FORMAT, "'x.y'", tiny_array(t, "x.y", IG_GGUF_F64, UINT64_MAX / 8 + 1, "a", 1))              \
    X(array_all_ones, IG_E_FORMAT, "'x.y'", tiny_array(t, "x.y", IG_GGUF_U32, UINT64_MAX, "a", 1))                     \
    X(array_strings_many, IG_E_FORMAT, "'x.y'", tiny_array(t, "x.y", IG_GGUF_STRING, 1ull << 40, "a", 1))              \
    X(string_past_end, IG_E_FORMAT, "'x.string'", put_long_string(t, 1 << 20))                                         \
    X(string_2_to_63, IG_E_FORMAT, "'x.string'", put_long_string(t, 1ull << 63))                                       \
    X(string_all_ones, IG_E_FORMAT, "'x.string'", put_long_string(t, UINT64_MAX))                                      \
    X(strings_item_past_end, IG_E_FORMAT, "'x.strings'", put_bad_strings(t, 1 << 20))                                  \
    X(strings_item_all_ones, IG_E_FORMAT, "'x.strings'", put_bad_strings(t, UINT64_MAX - 7))                           \
    X(alignment_0, IG_E_FORMAT, "'general.alignment'", tiny_u32(t, "general.alignment", 0))                            \
    X(alignment_4, IG_E_FORMAT, "'general.alignment'", tiny_u32(t, "general.alignment", 4))                            \
    X(alignment_24, IG_E_FORMAT, "'general.alignment'", tiny_u32(t, "general.alignment", 24))                          \
    X(alignment_huge, IG_E_FORMAT, "'general.alignment'", tiny_u32(t, "general.alignment", 1u << 31))                  \
    X(alignment_negative, IG_E_FORMAT, "'general.alignment'", tiny_i32(t, "general.alignment", -32))                   \
    X(alignment_text, IG_E_FORMAT, "'general.alignment' is of type string", tiny_string(t, "general.alignment", "32")) \
    X(split, IG_E_UNSUPPORTED, "'split.count' is 3: where the others are", tiny_u32(t, "split.count", 3))              \
    X(split_huge, IG_E_FORMAT, "'split.count'", tiny_u64(t, "split.count", UINT64_MAX))                                \
    X(name_empty, IG_E_FORMAT, "tensor 11", tiny_add(t, "", IG_TYPE_F32, 8, 0))                                        \
    X(name_long, IG_E_FORMAT, "name of 65 bytes",                                                                      \
      tiny_add(t, "01234567890123456789012345678901234567890123456789012345678901234", IG_TYPE_F32, 8, 0))             \
    X(name_all_ones, IG_E_FORMAT, "tensor 11", tiny_add(t, "x", IG_TYPE_F32, 8, 0)->name_bytes = -2)                   \
    X(name_control, IG_E_FORMAT, "control character", tiny_add(t, "x\ny", IG_TYPE_F32, 8, 0))                          \
    X(name_twice, IG_E_FORMAT, "'" Q "' appears twice", tiny_add(t, Q, IG_TYPE_F32, 8, 0))                             \
    X(dims_0, IG_E_FORMAT, "'" Q "': 0 dimensions", TENSOR(Q)->n_dims = 0)                                             \
    X(dims_5, IG_E_FORMAT, "'" Q "': 5 dimensions", TENSOR(Q)->n_dims = 5)                                             \
    X(dims_all_ones, IG_E_FORMAT, "'" Q "': 4294967295 dimensions", TENSOR(Q)->n_dims = UINT32_MAX)                    \
    X(dim_0, IG_E_FORMAT, "'" Q "': dimension 1 is 0", TENSOR(Q)->dims[1] = 0)                                         \
    X(dim_first_0, IG_E_FORMAT, "'" Q "': dimension 0 is 0", TENSOR(Q)->dims[0] = 0)                                   \
    X(dim_negative, IG_E_FORMAT, "'" Q "'", TENSOR(Q)->dims[1] = (uint64_t)-8)                                         \
    X(dim_product_wraps, IG_E_FORMAT, "'" Q "'", TENSOR(Q)->dims[0] = 1ull << 32, TENSOR(Q)->dims[1] = 1ull << 32)     \
    X(dim_product_wraps_small, IG_E_FORMAT, "'" Q "'", TENSOR(Q)->dims[0] = 8, TENSOR(Q)->dims[1] = (1ull << 61) + 8)  \
    X(dim_bytes_wrap, IG_E_FORMAT, "'" Q "'", TENSOR(Q)->dims[0] = 1ull << 31, TENSOR(Q)->dims[1] = 1ull << 32)        \
    X(dim_large, IG_E_FORMAT, "'" Q "'", TENSOR(Q)->dims[1] = 1 << 20)                                                 \
    X(block_split, IG_E_FORMAT, "'" Q "': rows of 8 elements", TENSOR(Q)->type = IG_TYPE_Q8_0)                         \
    X(block_split_k, IG_E_FORMAT, "'" Q "': rows of 128", TENSOR(Q)->type = IG_TYPE_Q4_K, TENSOR(Q)->dims[0] = 128)    \
    X(type_iq4_nl, IG_E_FORMAT, "'" Q "': rows of 8 elements", TENSOR(Q)->type = 20)                                   \
    X(type_i32, IG_E_UNSUPPORTED, "'" Q "': type I32", TENSOR(Q)->type = 26)                                           \
    X(type_gone, IG_E_UNSUPPORTED, "'" Q "': unknown type 4", TENSOR(Q)->type = 4)                                     \
    X(type_unknown, IG_E_UNSUPPORTED, "'" Q "': unknown type 4294967295", TENSOR(Q)->type = UINT32_MAX)                \
    X(offset_unaligned, IG_E_FORMAT, "'" Q "': offset 1000", TENSOR(Q)->offset = 1000)                                 \
    X(offset_past_end, IG_E_FORMAT, "'" Q "'", TENSOR(Q)->offset = 1 << 20)                                            \
    X(offset_wraps, IG_E_FORMAT, "'" Q "'", TENSOR(Q)->offset = -32)                                                   \
    X(offset_2_to_63, IG_E_FORMAT, "'" Q "'", TENSOR(Q)->offset = INT64_MIN)                                           \
    X(overlap_same, IG_E_FORMAT, "overlap", TENSOR(Q)->offset = 0)                                                     \
    X(overlap_part, IG_E_FORMAT, "overlap", TENSOR(Q)->offset = 32)                                                    \
    X(data_cut, IG_E_FORMAT, "cut short", t->cut = 64)                                                                 \
    X(data_missing, IG_E_FORMAT, "cut short", t->cut = 1500)

#define MODEL_CASES(X)                                                                                                 \
    X(architecture_missing, IG_E_FORMAT, "'general.architecture' is missing",                                          \
      tiny_drop_key(t, "general.architecture"))                                                                        \
    X(architecture_number, IG_E_FORMAT, "'general.architecture' is of type u32",                                       \
      tiny_u32(t, "general.architecture", 1))                                                                          \
    X(architecture_other, IG_E_UNSUPPORTED, "'gemma9'", tiny_string(t, "general.architecture", "gemma9"))              \
    X(architecture_escapes, IG_E_UNSUPPORTED, "'a?[2J??2J'",                                                           \
      tiny_string(t, "general.architecture", "a\033[2J\302\2332J"))                                                    \
    X(architecture_prefix, IG_E_UNSUPPORTED, "'llama5'", tiny_string(t, "general.architecture", "llama5"))             \
    X(adapter, IG_E_UNSUPPORTED, "'general.type' is 'adapter'", tiny_string(t, "general.type", "adapter"))             \
    X(layers_missing, IG_E_FORMAT, "'llama.block_count' is missing", tiny_drop_key(t, "llama.block_count"))            \
    X(layers_0, IG_E_FORMAT, "'llama.block_count' is 0", tiny_u32(t, "llama.block_count", 0))                          \
    X(layers_513, IG_E_FORMAT, "'llama.block_count' is 513", tiny_u32(t, "llama.block_count", 513))                    \
    X(layers_array, IG_E_FORMAT, "'llama.block_count' is of type array",                                               \
      tiny_array(t, "llama.block_count", IG_GGUF_U8, 1, "\1", 1))                                                      \
    X(layers_more, IG_E_FORMAT, "'blk.1.attn_norm.weight' is missing", tiny_u32(t, "llama.block_count", 2))            \
    X(heads_0, IG_E_FORMAT, "'llama.attention.head_count' is 0", tiny_u32(t, "llama.attention.head_count", 0))         \
    X(heads_3, IG_E_FORMAT, "'llama.attention.head_count'", tiny_u32(t, "llama.attention.head_count", 3))              \
    X(heads_huge, IG_E_FORMAT, "'llama.attention.head_count'", tiny_u64(t, "llama.attention.head_count", 1ull << 40))  \
    X(kv_heads_0, IG_E_FORMAT, "head_count_kv' is 0", tiny_u32(t, "llama.attention.head_count_kv", 0))                 \
    X(kv_heads_4, IG_E_FORMAT, "head_count_kv' (4)", tiny_u32(t, "llama.attention.head_count_kv", 4))                  \
    X(kv_heads_negative, IG_E_FORMAT, "head_count_kv' is -1", tiny_i32(t, "llama.attention.head_count_kv", -1))        \
    X(width_0, IG_E_FORMAT, "'llama.embedding_length' is 0", tiny_u32(t, "llama.embedding_length", 0))                 \
    X(width_huge, IG_E_FORMAT, "'llama.embedding_length'", tiny_u32(t, "llama.embedding_length", UINT32_MAX))          \
    X(width_16, IG_E_FORMAT, "tensor 'token_embd.weight' has shape", tiny_u32(t, "llama.embedding_length", 16))        \
    X(ff_0, IG_E_FORMAT, "'llama.feed_forward_length' is 0", tiny_u32(t, "llama.feed_forward_length", 0))              \
    X(ff_8, IG_E_FORMAT, "tensor 'blk.0.ffn_gate.weight' has shape [8, 16], must be [8, 8]",                           \
      tiny_u32(t, "llama.feed_forward_length", 8))                                                                     \
    X(ctx_0, IG_E_FORMAT, "'llama.context_length' is 0", tiny_u32(t, "llama.context_length", 0))                       \
    X(ctx_2_to_63, IG_E_FORMAT, "'llama.context_length'", tiny_u64(t, "llama.context_length", 1ull << 63))             \
    X(eps_nan, IG_E_FORMAT, "'" EPS "' is not finite", put_nan(t, EPS))                                                \
    X(eps_missing, IG_E_FORMAT, "'" EPS "' is 0", tiny_drop_key(t, EPS))                                               \
    X(eps_negative, IG_E_FORMAT, "'" EPS "' is -1", tiny_f32(t, EPS, -1))                                              \
    X(eps_large, IG_E_FORMAT, "'" EPS "' is 2", tiny_f32(t, EPS, 2))                                                   \
    X(theta_0, IG_E_FORMAT, "'llama.rope.freq_base' is 0", tiny_f32(t, "llama.rope.freq_base", 0))                     \
    X(theta_infinite, IG_E_FORMAT, "'llama.rope.freq_base'", tiny_f32(t, "llama.rope.freq_base", INFINITY))            \
    X(rot_odd, IG_E_FORMAT, "'llama.rope.dimension_count' is 3", tiny_u32(t, "llama.rope.dimension_count", 3))         \
    X(rot_wide, IG_E_FORMAT, "'llama.rope.dimension_count' is 8", tiny_u32(t, "llama.rope.dimension_count", 8))        \
    X(key_dim_odd, IG_E_FORMAT, "'llama.rope.dimension_count' is 5", tiny_u32(t, "llama.attention.key_length", 5),     \
      tiny_u32(t, "llama.attention.value_length", 5))                                                                  \
    X(value_dim, IG_E_UNSUPPORTED, "value_length' is 2", tiny_u32(t, "llama.attention.value_length", 2))               \
    X(vocab_missing, IG_E_FORMAT, "'llama.vocab_size' is missing", tiny_drop_key(t, "llama.vocab_size"))               \
    X(vocab_other, IG_E_FORMAT, "tensor 'token_embd.weight' has shape [8, 6], must be [8, 7]",                         \
      tiny_u32(t, "llama.vocab_size", 7))                                                                              \
    X(tokens_empty, IG_E_FORMAT, "'tokenizer.ggml.tokens'",                                                            \
      tiny_array(t, "tokenizer.ggml.tokens", IG_GGUF_STRING, 0, NULL, 0))                                              \
    X(tokens_number, IG_E_FORMAT, "'tokenizer.ggml.tokens'", tiny_u32(t, "tokenizer.ggml.tokens", 6))                  \
    X(scaling_longrope, IG_E_UNSUPPORTED, "'llama.rope.scaling.type' is 'longrope'",                                   \
      tiny_string(t, "llama.rope.scaling.type", "longrope"))                                                           \
    X(scaling_yarn, IG_E_FORMAT, "rope.scaling.factor' is 0", tiny_string(t, "llama.rope.scaling.type", "yarn"))       \
    X(scaling_betas, IG_E_FORMAT, "are 1 and 0.5", tiny_string(t, "llama.rope.scaling.type", "yarn");                  \
      tiny_f32(t, "llama.rope.scaling.factor", 4); tiny_f32(t, "llama.rope.scaling.yarn_beta_fast", 0.5))              \
    X(scaling_gain, IG_E_UNSUPPORTED, "yarn_ext_factor'", tiny_f32(t, "llama.rope.scaling.yarn_ext_factor", 0.5))      \
    X(scaling_0, IG_E_FORMAT, "rope.scaling.factor' is 0", tiny_string(t, "llama.rope.scaling.type", "linear"))        \
    X(scaling_tiny, IG_E_FORMAT, "rope.scaling.factor' is 1e-30", tiny_f32(t, "llama.rope.scaling.factor", 1e-30f))    \
    X(scaling_negative, IG_E_FORMAT, "rope.scaling.factor' is -2", tiny_f32(t, "llama.rope.scaling.factor", -2))       \
    X(scaling_text, IG_E_FORMAT, "rope.scaling.factor' is of type string",                                             \
      tiny_string(t, "llama.rope.scaling.factor", "2"))                                                                \
    X(window_negative, IG_E_FORMAT, "sliding_window' is -1", tiny_i32(t, "llama.attention.sliding_window", -1))        \
    X(window_qwen, IG_E_UNSUPPORTED, "'qwen2.attention.sliding_window' is 16", make_qwen(t),                           \
      tiny_u32(t, "qwen2.attention.sliding_window", 16))                                                               \
    X(experts, IG_E_FORMAT, "'llama.expert_used_count' is missing", tiny_u32(t, "llama.expert_count", 8))              \
    X(softcap, IG_E_UNSUPPORTED, "softcapping' is 30", tiny_f32(t, "llama.final_logit_softcapping", 30))               \
    X(embedding_scale, IG_E_UNSUPPORTED, "'llama.embedding_scale' is 12", tiny_f32(t, "llama.embedding_scale", 12))    \
    X(not_causal, IG_E_UNSUPPORTED, "'llama.attention.causal' is 0", tiny_bool(t, "llama.attention.causal", 0))        \
    X(key_unknown, IG_E_UNSUPPORTED, "'llama.attention.something'", tiny_u32(t, "llama.attention.something", 1))       \
    X(tensor_missing, IG_E_FORMAT, "'" Q "' is missing", tiny_drop_tensor(t, Q))                                       \
    X(tensor_extra, IG_E_UNSUPPORTED, "'blk.0.attn_sinks.weight' is not used",                                         \
      tiny_add(t, "blk.0.attn_sinks.weight", IG_TYPE_F32, 2, 0))                                                       \
    X(tensor_of_layer_1, IG_E_UNSUPPORTED, "'blk.1.attn_q.weight' is not used",                                        \
      tiny_add(t, "blk.1.attn_q.weight", IG_TYPE_F32, 8, 8))                                                           \
    X(tensor_3_dims, IG_E_FORMAT, "'" Q "' has shape [8, 8, 1]", TENSOR(Q)->n_dims = 3)                                \
    X(bias_alone, IG_E_FORMAT, "'blk.1.attn_q.bias' is missing", two_layers(t),                                        \
      tiny_add(t, "blk.0.attn_q.bias", 0, 8, 0))                                                                       \
    X(norm_quantised, IG_E_UNSUPPORTED, "'output_norm.weight' is of type Q8_0", wide_model(t))                         \
    X(rope_factors_0, IG_E_FORMAT, "'rope_freqs.weight' holds 0", tiny_add(t, "rope_freqs.weight", IG_TYPE_F32, 2, 0)) \
    X(rope_factors_short, IG_E_FORMAT, "'rope_freqs.weight' has shape",                                                \
      tiny_add(t, "rope_freqs.weight", IG_TYPE_F32, 1, 0))

static void two_layers(tiny *t) {
    int n = t->n_tensors;
    tiny_u32(t, "llama.block_count", 2);
    for (int i = 0; i < n; i++) {
        if (strncmp(t->tensors[i].name, "blk.0.", 6) != 0) continue;
        tiny_tensor *x = &t->tensors[t->n_tensors++];
        *x = t->tensors[i];
        x->name[4] = '1';
    }
}

static void make_qwen(tiny *t) {
    tiny_string(t, "general.architecture", "qwen2");
    for (int i = 0; i < t->n_values; i++)
        if (strncmp(t->values[i].key, "llama.", 6) == 0) memcpy(t->values[i].key, "qwen2", 5);
}

/* 32 wide, so that a block fits a row. */
static void wide_model(tiny *t) {
    tiny_u32(t, "llama.embedding_length", 32);
    for (int i = 0; i < t->n_tensors; i++)
        for (uint32_t d = 0; d < t->tensors[i].n_dims; d++)
            if (t->tensors[i].dims[d] == TINY_D) t->tensors[i].dims[d] = 32;
    TENSOR("output_norm.weight")->type = IG_TYPE_Q8_0;
}

#define DEFINE_CASE(name, status, field, ...) \
    static void change_##name(tiny *t) { __VA_ARGS__; }
#define LIST_CASE(name, status, field, ...) {#name, status, field, change_##name},

READER_CASES(DEFINE_CASE)
MODEL_CASES(DEFINE_CASE)

static const struct {
    const char *name;
    ig_status wanted;
    const char *field;
    void (*change)(tiny *t);
} cases[] = {READER_CASES(LIST_CASE) MODEL_CASES(LIST_CASE)};

static ig_status load(const uint8_t *bytes, size_t n, ig_error *err) {
    ig_gguf *g;
    ig_config c;
    ig_weights w;
    ig_status s = ig_gguf_open_memory(&g, bytes, n, "hostile.gguf", err);
    if (s) return s;
    s = ig_config_from_gguf(&c, g, err);
    if (!s) s = ig_weights_bind(&w, &c, g, NULL, NULL, err);
    if (!s) ig_weights_close(&w);
    ig_gguf_close(g);
    return s;
}

static void refuses_cases(void **state) {
    (void)state;
    int n_wrong = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tiny t = tiny_valid();
        size_t n;
        ig_error err = {0};
        cases[i].change(&t);
        uint8_t *bytes = tiny_write(&t, &n);
        memory_count_start(-1);
        ig_status s = load(bytes, n, &err);
        memory_count_stop();
        bool is_right = s == cases[i].wanted && err.status == s && strstr(err.text, "hostile.gguf: ") &&
                        strstr(err.text, cases[i].field) && memory_count.n_taken == memory_count.n_given &&
                        memory_count.largest <= n + (1 << 20);
        for (const char *p = err.text; *p; p++) is_right = is_right && (unsigned char)*p >= 0x20;
        if (!is_right) {
            n_wrong++;
            print_error("%s: status %d, wanted %d naming %s: %s (%zu bytes at once of %zu)\n", cases[i].name, s,
                        cases[i].wanted, cases[i].field, err.text, memory_count.largest, n);
        }
        free(bytes);
    }
    assert_int_equal(n_wrong, 0);
}

/* What the cases change is all that is wrong with them. */
static void accepts_neutral_changes(void **state) {
    (void)state;
    tiny t = tiny_valid();
    size_t n;
    ig_error err = {0};
    tiny_u32(&t, "llama.expert_count", 0);
    tiny_f32(&t, "llama.embedding_scale", 1);
    tiny_bool(&t, "llama.attention.causal", 1);
    tiny_u32(&t, "llama.rope.dimension_count", 2);
    tiny_u64(&t, "llama.attention.key_length", 4);
    tiny_u64(&t, "llama.attention.value_length", 4);
    tiny_u32(&t, "split.count", 1);
    tiny_string(&t, "general.type", "model");
    tiny_string(&t, "llama.rope.scaling.type", "none");
    tiny_u32(&t, "llamas.unrelated", 1);
    tiny_add(&t, "output.weight", IG_TYPE_F32, TINY_D, TINY_VOCAB);
    tiny_add(&t, "blk.0.attn_q.bias", IG_TYPE_F32, TINY_D, 0);
    uint8_t *bytes = tiny_write(&t, &n);
    if (load(bytes, n, &err)) fail_msg("%s", err.text);
    free(bytes);
}

/* As many keys and tensors as the reader allows, in as few bytes as possible. */
static void bounds_memory(void **state) {
    (void)state;
    const uint64_t n_values = 16384, n_tensors = 32768;
    ig_buffer b = {0};
    ig_error err = {0};
    const uint32_t version = 3, u8 = IG_GGUF_U8, one = 1, f32 = IG_TYPE_F32;
    const uint64_t name_bytes = 3, dim = 1;
    ig_buffer_text(&b, "GGUF");
    ig_buffer_add(&b, &version, 4);
    ig_buffer_add(&b, &n_tensors, 8);
    ig_buffer_add(&b, &n_values, 8);
    for (uint64_t i = 0; i < n_values; i++) {
        const char key[3] = {(char)('0' + i % 64), (char)('0' + i / 64 % 64), (char)('0' + i / 4096)};
        ig_buffer_add(&b, &name_bytes, 8);
        ig_buffer_add(&b, key, 3);
        ig_buffer_add(&b, &u8, 4);
        ig_buffer_add(&b, "", 1);
    }
    for (uint64_t i = 0; i < n_tensors; i++) {
        const char name[3] = {(char)('0' + i % 64), (char)('0' + i / 64 % 64), (char)('0' + i / 4096)};
        uint64_t offset = 32 * i;
        ig_buffer_add(&b, &name_bytes, 8);
        ig_buffer_add(&b, name, 3);
        ig_buffer_add(&b, &one, 4);
        ig_buffer_add(&b, &dim, 8);
        ig_buffer_add(&b, &f32, 4);
        ig_buffer_add(&b, &offset, 8);
    }
    ig_gguf *g;
    memory_count_start(-1);
    ig_status s = ig_gguf_open_memory(&g, b.data, b.size, "many.gguf", &err);
    memory_count_stop();
    assert_int_equal(s, IG_E_FORMAT); /* the data is missing */
    assert_non_null(strstr(err.text, "cut short"));
    assert_true(memory_count.largest <= b.size + (1 << 20));
    for (int i = 0; i < 2; i++) { /* one more of either */
        uint64_t counts[2] = {n_tensors, n_values};
        counts[i]++;
        memcpy(b.data + 8, counts, sizeof counts);
        assert_int_equal(ig_gguf_open_memory(&g, b.data, b.size, "many.gguf", &err), IG_E_LIMIT);
        assert_non_null(strstr(err.text, "many.gguf: header: "));
    }
    ig_buffer_close(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_cases),
        cmocka_unit_test(accepts_neutral_changes),
        cmocka_unit_test(bounds_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
