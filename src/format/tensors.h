/* SPDX-License-Identifier: Apache-2.0
 *
 * The tensors of files of either format: g, or st if that is NULL. Both NULL: there are none.
 */
#ifndef IG_FORMAT_TENSORS_H
#define IG_FORMAT_TENSORS_H

#include "format/gguf.h"
#include "format/safetensors.h"

static inline size_t ig_tensors_count(const ig_gguf *g, const ig_safetensors *st) {
    return g ? ig_gguf_n_tensors(g) : st ? ig_safetensors_n_tensors(st) : 0;
}

static inline const ig_tensor *ig_tensors_at(const ig_gguf *g, const ig_safetensors *st, size_t i) {
    return g ? ig_gguf_tensor_at(g, i) : ig_safetensors_tensor_at(st, i);
}

/* NULL: absent. */
static inline const ig_tensor *ig_tensors_find(const ig_gguf *g, const ig_safetensors *st, const char *name) {
    return g ? ig_gguf_tensor(g, name) : ig_safetensors_tensor(st, name);
}

#endif
