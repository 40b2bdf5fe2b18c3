/* SPDX-License-Identifier: Apache-2.0
 *
 * The weights of a Hugging Face directory: NAME.safetensors, or the shards that
 * NAME.safetensors.index.json names. Untrusted bytes -> tensor views.
 */
#ifndef IG_FORMAT_SAFETENSORS_H
#define IG_FORMAT_SAFETENSORS_H

#include "base/file.h"
#include "format/tensor.h"

typedef struct ig_safetensors ig_safetensors;

/* Opens all shards of `directory`, whose names begin with `name`: "model", or "adapter_model". They are mapped, or
 * copied if `copy` is not NULL. */
ig_status ig_safetensors_open(ig_safetensors **out, const char *directory, const char *name, ig_loading *copy,
                              ig_error *err);
/* One file from memory of the caller's that outlives the reader and is aligned to 8 bytes; `name` stands for
 * the path in errors. */
ig_status ig_safetensors_open_memory(ig_safetensors **out, const void *data, size_t n_bytes, const char *name,
                                     ig_error *err);
void ig_safetensors_close(ig_safetensors *s);
size_t ig_safetensors_n_tensors(const ig_safetensors *s);
const ig_tensor *ig_safetensors_tensor_at(const ig_safetensors *s, size_t i);
const ig_tensor *ig_safetensors_tensor(const ig_safetensors *s, const char *name); /* NULL: absent */
const char *ig_safetensors_path(const ig_safetensors *s);                          /* the directory as given */
size_t ig_safetensors_n_files(const ig_safetensors *s);
/* Takes tensors away, and adds n others, whose names and memory (both malloc) become the reader's even if that fails.
 */
ig_status ig_safetensors_replace(ig_safetensors *s, const bool *is_gone, const ig_tensor *tensors, size_t n,
                                 void *memory, ig_error *err);
/* Whether it has any such tensors. */
bool ig_safetensors_is_replaced(const ig_safetensors *s);
const ig_file *ig_safetensors_file(const ig_safetensors *s, size_t i, const char **path);
/* The path of a mapped shard that has changed since it was opened; NULL: none has. */
const char *ig_safetensors_changed(const ig_safetensors *s);

#endif
