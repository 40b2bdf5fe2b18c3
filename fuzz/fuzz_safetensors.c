/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz target: one safetensors file. Every view handed out is read at both ends.
 */
#include <stdlib.h>
#include <string.h>

#include "format/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static volatile unsigned seen;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    ig_safetensors *s;
    ig_error err = {0};
    ig_status status = ig_safetensors_open_memory(&s, data, n_bytes, "input", &err);
    if (status && (err.status != status || !strstr(err.text, "input"))) abort();
    for (size_t i = 0; !status && i < ig_safetensors_n_tensors(s); i++) {
        const ig_tensor *t = ig_safetensors_tensor_at(s, i);
        if (ig_safetensors_tensor(s, t->name) != t) abort();
        seen += *(const uint8_t *)t->data + ((const uint8_t *)t->data)[t->n_bytes - 1];
    }
    ig_safetensors_close(s);
    return 0;
}
