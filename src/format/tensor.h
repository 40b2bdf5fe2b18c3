/* SPDX-License-Identifier: Apache-2.0
 *
 * A named view of a tensor in a mapped file. Views never own.
 */
#ifndef IG_FORMAT_TENSOR_H
#define IG_FORMAT_TENSOR_H

#include "base/type.h"
#include "infinigen.h"

typedef struct ig_tensor {
    const char *name; /* NUL-terminated, owned by the file's reader */
    ig_type type;
    int n_dims;       /* 1..4 */
    uint64_t dims[4]; /* fastest first (GGUF order; safetensors shapes are reversed); unused ones 1 */
    const void *data; /* inside the mapping, n_bytes long: checked when the file was opened */
    size_t n_bytes;
} ig_tensor;

#endif
