/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz target: one safetensors file. Every view handed out is read at both ends, and again once packed weights are
 * unpacked.
 */
#include <stdlib.h>
#include <string.h>

#include "format/safetensors.h"
#include "model/weight_unpack.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static volatile unsigned seen;

static void look(const ig_safetensors *s) {
    for (size_t i = 0; i < ig_safetensors_n_tensors(s); i++) {
        const ig_tensor *t = ig_safetensors_tensor_at(s, i);
        if (ig_safetensors_tensor(s, t->name) != t) abort();
        seen += *(const uint8_t *)t->data + ((const uint8_t *)t->data)[t->n_bytes - 1];
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    static ig_device *device;
    ig_safetensors *s;
    ig_error err = {0};
    if (!device && ig_device_open_cpu(&device, IG_CPU_SCALAR, 1, &err)) abort();
    const ig_config config = {
        .file.zero_offset = 1, .file.expert_order = IG_EXPERTS_BY_MIXED_COLUMNS, .d_model = 4, .d_ff = 2};
    uint8_t *copy = malloc(n_bytes + 1); /* what is unpacked leaves memory */
    if (!copy) return 0;
    memcpy(copy, data, n_bytes);
    ig_status status = ig_safetensors_open_memory(&s, copy, n_bytes, "input", &err);
    if (!status) look(s);
    if (!status) status = ig_weights_unpack(s, device, &config, &(ig_loading){0}, &err);
    if (status && (err.status != status || !strstr(err.text, "input"))) abort();
    if (!status) look(s);
    ig_safetensors_close(s);
    free(copy);
    return 0;
}
