/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz target: a GGUF file up to bound weights. Every view handed out is read at both ends.
 */
#include <stdlib.h>
#include <string.h>

#include "model/weights.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static volatile unsigned seen;

static void read_all(const ig_gguf *g) {
    char text[64];
    for (size_t i = 0; i < ig_gguf_n_values(g); i++) {
        const ig_gguf_value *v = ig_gguf_value_at(g, i);
        if (ig_gguf_find(g, v->key) != v) abort();
        ig_gguf_print(v, text, sizeof text);
        for (uint64_t k = 0; v->item_type == IG_GGUF_STRING && k < v->n_items; k++) {
            ig_text s = ig_gguf_array_string(v, k);
            if (s.size) seen += (unsigned)s.data[0] + (unsigned)s.data[s.size - 1];
        }
    }
    for (size_t i = 0; i < ig_gguf_n_tensors(g); i++) {
        const ig_tensor *t = ig_gguf_tensor_at(g, i);
        if (ig_gguf_tensor(g, t->name) != t) abort();
        seen += *(const uint8_t *)t->data + ((const uint8_t *)t->data)[t->n_bytes - 1];
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    static ig_config c;
    ig_gguf *g;
    ig_weights w;
    ig_error err = {0};
    ig_status s = ig_gguf_open_memory(&g, data, n_bytes, "input", &err);
    if (!s) {
        read_all(g);
        s = ig_config_from_gguf(&c, g, &err);
        if (!s) s = ig_weights_bind(&w, &c, g, NULL, NULL, &err);
        if (!s) ig_weights_close(&w);
        ig_gguf_close(g);
    }
    if (s && (err.status != s || !strstr(err.text, "input"))) abort();
    return 0;
}
