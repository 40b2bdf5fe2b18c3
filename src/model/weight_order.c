/* SPDX-License-Identifier: Apache-2.0
 *
 * Floats in another order than products want: see weight_unpack.h. Matrices of experts lie by columns, or rows of q, k
 * and v in turns.
 */
#include <limits.h>
#include <string.h>

#include "base/memory.h"
#include "format/names.h"
#include "model/unpacking.h"

/* n rows of one matrix that lies by columns. */
static void write_some(uint8_t *to, const ig_unpacked *p, int row, int n, size_t row_bytes) {
    const size_t bytes = row_bytes / (size_t)p->n_in, n_rows = (size_t)p->n_rows, matrix = (size_t)row / n_rows;
    const uint8_t *from = (const uint8_t *)p->codes->data + matrix * n_rows * row_bytes;
    size_t at[IG_UNPACK_ROWS];
    for (int r = 0; r < n; r++) at[r] = ((size_t)ig_unpack_row(p, row + r) - matrix * n_rows) * bytes;
    for (size_t x = 0; x < (size_t)p->n_in; x++, from += n_rows * bytes)
        for (size_t r = 0; r < (size_t)n; r++) memcpy(to + r * row_bytes + x * bytes, from + at[r], bytes);
}

static void write_turned(uint8_t *to, const ig_unpacked *p, int row, int n, size_t row_bytes) {
    for (int end = row + n; row < end; row += n, to += (size_t)n * row_bytes) {
        n = ig_min_int(end - row, p->n_rows - row % p->n_rows);
        write_some(to, p, row, n, row_bytes);
    }
}

/* Row y of q, then k, then v. */
static void write_of_head(uint8_t *to, const ig_unpacked *p, int y, size_t row_bytes) {
    int n_heads = p->n_out / (3 * p->n_rows), part = y / (n_heads * p->n_rows), head = y / p->n_rows % n_heads;
    size_t from = (size_t)((3 * head + part) * p->n_rows + y % p->n_rows);
    memcpy(to, (const uint8_t *)p->codes->data + from * row_bytes, row_bytes);
}

static void write_of_heads(uint8_t *to, const ig_unpacked *p, int row, int n, size_t row_bytes) {
    for (int i = 0; i < n; i++) write_of_head(to + (size_t)i * row_bytes, p, row + i, row_bytes);
}

/* Experts' matrices of a layer, as one tensor of floats. */
typedef struct stacked {
    bool is_one, is_down;
    uint64_t n_in, n_out;
} stacked;

static stacked stacked_at(const ig_unpacker *u, const ig_tensor *t) {
    stacked s = {.is_down = ig_name_ends_with(t->name, ".experts.down_proj")};
    s.is_one = ig_type_is_float(t->type) && t->n_dims == 3 &&
               (s.is_down || ig_name_ends_with(t->name, ".experts.gate_up_proj"));
    s.n_in = (uint64_t)(s.is_down ? u->c->d_ff : u->c->d_model);
    s.n_out = s.is_down ? (uint64_t)u->c->d_model : 2 * (uint64_t)u->c->d_ff;
    return s;
}

/* Transformers writes those of some families by rows, too. The sizes of one of both tensors tell. */
static bool are_by_rows(const ig_unpacker *u) {
    for (size_t i = 0; i < ig_safetensors_n_tensors(u->s); i++) {
        const ig_tensor *t = ig_safetensors_tensor_at(u->s, i);
        stacked s = stacked_at(u, t);
        if (s.is_one && s.n_in != s.n_out && t->dims[0] == s.n_in && t->dims[1] == s.n_out) return true;
    }
    return false;
}

void ig_unpack_turned(ig_unpacker *u) {
    if (are_by_rows(u)) return;
    for (size_t i = 0; i < ig_safetensors_n_tensors(u->s) && !u->status; i++) {
        const ig_tensor *t = ig_safetensors_tensor_at(u->s, i);
        const stacked s = stacked_at(u, t);
        /* Where sizes are others binding says what is wrong. */
        if (!s.is_one || t->dims[0] != s.n_out || t->dims[1] != s.n_in || t->dims[2] > INT_MAX / s.n_out) continue;
        bool is_mixed = u->c->file.expert_order == IG_EXPERTS_BY_MIXED_COLUMNS && !s.is_down;
        ig_unpacked p = {.codes = t,
                         .write = write_turned,
                         .n_in = (int)s.n_in,
                         .n_out = (int)(s.n_out * t->dims[2]),
                         .n_rows = (int)s.n_out,
                         .n_mixed = is_mixed ? (int)s.n_out : 0,
                         .made.type = t->type};
        ig_unpack_put(u, p, 0, "", (int)t->dims[2]);
    }
}

void ig_unpack_heads(ig_unpacker *u) {
    const ig_config *c = u->c;
    const uint64_t n_out = 3 * (uint64_t)c->n_heads * (uint64_t)c->head_dim;
    for (size_t i = 0; i < ig_safetensors_n_tensors(u->s) && !u->status; i++) {
        const ig_tensor *t = ig_safetensors_tensor_at(u->s, i);
        bool is_matrix = ig_name_ends_with(t->name, ".query_key_value.weight") && t->n_dims == 2,
             is_bias = ig_name_ends_with(t->name, ".query_key_value.bias") && t->n_dims == 1;
        if (!strstr(t->name, ".query_key_value.")) continue;
        /* What is packed, or has scales of rows, would lie in turns still. */
        if (u->is_gone[i] || !ig_type_is_float(t->type) || !(is_matrix || is_bias) || t->dims[is_matrix] != n_out ||
            t->dims[0] > INT_MAX) {
            ig_unpack_fail(u, t, "is not of floats, in rows of q, k and v in turns");
            return;
        }
        ig_unpacked p = {.codes = t,
                         .write = write_of_heads,
                         .n_in = is_bias ? 1 : (int)t->dims[0],
                         .n_out = (int)n_out,
                         .n_rows = c->head_dim,
                         .made = {.type = t->type, .n_dims = is_bias ? 1 : 2}};
        ig_unpack_put(u, p, 0, "", 0);
    }
}
