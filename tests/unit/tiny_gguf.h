/* SPDX-License-Identifier: Apache-2.0
 *
 * A tiny GGUF writer for tests: a valid one-layer model as a description that a test changes in one
 * place, and the bytes of what it then says. It writes what it is told, right or wrong.
 */
#ifndef TESTS_TINY_GGUF_H
#define TESTS_TINY_GGUF_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "format/gguf.h"

enum { TINY_MAX = 40, TINY_VALUE_MAX = 96, TINY_AUTO = -1 };
enum { TINY_D = 8, TINY_HEADS = 2, TINY_FF = 16, TINY_VOCAB = 6 };

typedef struct tiny_value {
    char key[80];
    int64_t key_bytes; /* stated length; TINY_AUTO: the true one */
    uint32_t type;
    uint8_t raw[TINY_VALUE_MAX];
    size_t n_raw;
} tiny_value;

typedef struct tiny_tensor {
    char name[80];
    int64_t name_bytes; /* as above */
    uint32_t n_dims, type;
    uint64_t dims[5];
    int64_t offset; /* TINY_AUTO: after the one before */
} tiny_tensor;

typedef struct tiny {
    char magic[5];
    uint32_t version;
    int64_t n_values_stated, n_tensors_stated; /* TINY_AUTO: the true ones */
    int n_values, n_tensors;
    tiny_value values[TINY_MAX];
    tiny_tensor tensors[TINY_MAX];
    size_t alignment, cut; /* bytes; cut: left out at the end */
} tiny;

/* ---- metadata ---- */

/* The value of this key, added if absent. */
static inline tiny_value *tiny_key(tiny *t, const char *key) {
    for (int i = 0; i < t->n_values; i++)
        if (strcmp(t->values[i].key, key) == 0) return &t->values[i];
    if (t->n_values == TINY_MAX) abort();
    tiny_value *v = &t->values[t->n_values++];
    *v = (tiny_value){.key_bytes = TINY_AUTO};
    strncpy(v->key, key, sizeof v->key - 1);
    return v;
}

static inline tiny_value *tiny_raw(tiny *t, const char *key, uint32_t type, const void *raw, size_t n) {
    tiny_value *v = tiny_key(t, key);
    if (n > sizeof v->raw) abort();
    v->type = type;
    v->n_raw = n;
    memcpy(v->raw, raw, n);
    return v;
}

static inline void tiny_u32(tiny *t, const char *key, uint32_t x) { tiny_raw(t, key, IG_GGUF_U32, &x, sizeof x); }
static inline void tiny_i32(tiny *t, const char *key, int32_t x) { tiny_raw(t, key, IG_GGUF_I32, &x, sizeof x); }
static inline void tiny_u64(tiny *t, const char *key, uint64_t x) { tiny_raw(t, key, IG_GGUF_U64, &x, sizeof x); }
static inline void tiny_f32(tiny *t, const char *key, float x) { tiny_raw(t, key, IG_GGUF_F32, &x, sizeof x); }
static inline void tiny_bool(tiny *t, const char *key, uint8_t x) { tiny_raw(t, key, IG_GGUF_BOOL, &x, sizeof x); }

static inline void tiny_string(tiny *t, const char *key, const char *x) {
    uint8_t raw[TINY_VALUE_MAX];
    uint64_t n = strlen(x);
    if (n > sizeof raw - sizeof n) abort();
    memcpy(raw, &n, sizeof n);
    memcpy(raw + sizeof n, x, n);
    tiny_raw(t, key, IG_GGUF_STRING, raw, sizeof n + n);
}

/* An array that states n_items and has n_raw bytes of items. */
static inline void tiny_array(tiny *t, const char *key, uint32_t item_type, uint64_t n_items, const void *items,
                              size_t n_raw) {
    uint8_t raw[TINY_VALUE_MAX];
    if (n_raw > sizeof raw - 12) abort();
    memcpy(raw, &item_type, 4);
    memcpy(raw + 4, &n_items, 8);
    if (n_raw) memcpy(raw + 12, items, n_raw);
    tiny_raw(t, key, IG_GGUF_ARRAY, raw, 12 + n_raw);
}

static inline void tiny_drop_key(tiny *t, const char *key) {
    tiny_value *v = tiny_key(t, key);
    *v = t->values[--t->n_values];
}

/* ---- tensors ---- */

static inline tiny_tensor *tiny_tensor_named(tiny *t, const char *name) {
    for (int i = 0; i < t->n_tensors; i++)
        if (strcmp(t->tensors[i].name, name) == 0) return &t->tensors[i];
    abort();
}

static inline tiny_tensor *tiny_add(tiny *t, const char *name, uint32_t type, uint64_t dim0, uint64_t dim1) {
    if (t->n_tensors == TINY_MAX) abort();
    tiny_tensor *x = &t->tensors[t->n_tensors++];
    *x = (tiny_tensor){.name_bytes = TINY_AUTO,
                       .n_dims = dim1 ? 2 : 1,
                       .type = type,
                       .dims = {dim0, dim1 ? dim1 : 1, 1, 1, 1},
                       .offset = TINY_AUTO};
    strncpy(x->name, name, sizeof x->name - 1);
    return x;
}

static inline void tiny_drop_tensor(tiny *t, const char *name) {
    tiny_tensor *x = tiny_tensor_named(t, name);
    *x = t->tensors[--t->n_tensors];
}

/* A valid model of architecture "llama". */
static inline tiny tiny_valid(void) {
    tiny t = {
        .magic = "GGUF", .version = 3, .n_values_stated = TINY_AUTO, .n_tensors_stated = TINY_AUTO, .alignment = 32};
    tiny_string(&t, "general.architecture", "llama");
    tiny_string(&t, "general.name", "tiny");
    tiny_u32(&t, "llama.block_count", 1);
    tiny_u32(&t, "llama.context_length", 64);
    tiny_u32(&t, "llama.embedding_length", TINY_D);
    tiny_u32(&t, "llama.feed_forward_length", TINY_FF);
    tiny_u32(&t, "llama.attention.head_count", TINY_HEADS);
    tiny_f32(&t, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    tiny_u32(&t, "llama.vocab_size", TINY_VOCAB);
    tiny_add(&t, "token_embd.weight", IG_TYPE_F32, TINY_D, TINY_VOCAB);
    tiny_add(&t, "output_norm.weight", IG_TYPE_F32, TINY_D, 0);
    tiny_add(&t, "blk.0.attn_norm.weight", IG_TYPE_F32, TINY_D, 0);
    tiny_add(&t, "blk.0.ffn_norm.weight", IG_TYPE_F16, TINY_D, 0);
    tiny_add(&t, "blk.0.attn_q.weight", IG_TYPE_F16, TINY_D, TINY_D);
    tiny_add(&t, "blk.0.attn_k.weight", IG_TYPE_F16, TINY_D, TINY_D);
    tiny_add(&t, "blk.0.attn_v.weight", IG_TYPE_BF16, TINY_D, TINY_D);
    tiny_add(&t, "blk.0.attn_output.weight", IG_TYPE_F32, TINY_D, TINY_D);
    tiny_add(&t, "blk.0.ffn_gate.weight", IG_TYPE_F16, TINY_D, TINY_FF);
    tiny_add(&t, "blk.0.ffn_up.weight", IG_TYPE_F16, TINY_D, TINY_FF);
    tiny_add(&t, "blk.0.ffn_down.weight", IG_TYPE_F16, TINY_FF, TINY_D);
    return t;
}

/* ---- bytes ---- */

static inline void tiny_put_text(ig_buffer *b, const char *text, int64_t stated) {
    uint64_t n = stated == TINY_AUTO ? strlen(text) : (uint64_t)stated;
    ig_buffer_add(b, &n, sizeof n);
    ig_buffer_text(b, text);
}

static inline void tiny_pad(ig_buffer *b, size_t unit) {
    while (b->size % unit) ig_buffer_add(b, "", 1);
}

/* Bytes of a tensor as its description says; 4096 if it has more than 2^17 elements. */
static inline size_t tiny_bytes(const tiny_tensor *x) {
    const ig_type_info *info = ig_type_get(x->type);
    const uint64_t most = 1 << 20;
    uint64_t n = 1;
    for (uint32_t d = 0; d < x->n_dims && d < 4 && n <= most; d++) n = x->dims[d] <= most ? n * x->dims[d] : most + 1;
    if (!info || n > most) return 4096;
    return ig_type_row_bytes(info, (size_t)n);
}

/* The file's bytes in a block of exactly *size bytes, so that a sanitizer sees any step beyond it. */
static inline uint8_t *tiny_write(const tiny *t, size_t *size) {
    ig_buffer b = {0};
    uint64_t n_tensors = t->n_tensors_stated == TINY_AUTO ? (uint64_t)t->n_tensors : (uint64_t)t->n_tensors_stated;
    uint64_t n_values = t->n_values_stated == TINY_AUTO ? (uint64_t)t->n_values : (uint64_t)t->n_values_stated;
    ig_buffer_add(&b, t->magic, 4);
    ig_buffer_add(&b, &t->version, 4);
    ig_buffer_add(&b, &n_tensors, 8);
    ig_buffer_add(&b, &n_values, 8);
    for (int i = 0; i < t->n_values; i++) {
        tiny_put_text(&b, t->values[i].key, t->values[i].key_bytes);
        ig_buffer_add(&b, &t->values[i].type, 4);
        ig_buffer_add(&b, t->values[i].raw, t->values[i].n_raw);
    }
    uint64_t offset = 0;
    for (int i = 0; i < t->n_tensors; i++) {
        const tiny_tensor *x = &t->tensors[i];
        uint64_t stated = x->offset == TINY_AUTO ? offset : (uint64_t)x->offset;
        tiny_put_text(&b, x->name, x->name_bytes);
        ig_buffer_add(&b, &x->n_dims, 4);
        for (uint32_t d = 0; d < x->n_dims && d < 5; d++) ig_buffer_add(&b, &x->dims[d], 8);
        ig_buffer_add(&b, &x->type, 4);
        ig_buffer_add(&b, &stated, 8);
        offset = (offset + tiny_bytes(x) + t->alignment - 1) / t->alignment * t->alignment;
    }
    tiny_pad(&b, t->alignment);
    for (uint64_t i = 0; i < offset; i++) ig_buffer_add(&b, "", 1);
    if (b.failed || b.size < t->cut) abort();
    *size = b.size - t->cut;
    uint8_t *exact = malloc(*size ? *size : 1);
    if (!exact) abort();
    memcpy(exact, b.data, *size);
    ig_buffer_close(&b);
    return exact;
}

#endif
