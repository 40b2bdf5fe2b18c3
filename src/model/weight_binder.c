/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding tensors and checking what they are: see weight_binder.h.
 */
#include "model/weight_binder.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/half.h"

const ig_tensor *ig_bind_tensor_at(const ig_binder *b, size_t i) { return ig_tensors_at(b->g, b->st, i); }

const ig_tensor *ig_bind_find(const ig_binder *b, const char *name) { return ig_tensors_find(b->g, b->st, name); }

ig_tensor_name ig_bind_expert_name(const ig_binder *b, const char *part, int layer, int expert, const char *suffix) {
    const int numbers[] = {layer, expert};
    ig_tensor_name n;
    size_t at = (size_t)snprintf(n.text, sizeof n.text, "%s", b->names.prefix);
    for (int i = 0; i < 2; i++) {
        const char *number = strstr(part, "%d");
        if (!number) break;
        at += (size_t)snprintf(n.text + at, sizeof n.text - at, "%.*s%d", (int)(number - part), part, numbers[i]);
        part = number + 2;
    }
    snprintf(n.text + at, sizeof n.text - at, "%s%s", part, suffix);
    return n;
}

ig_tensor_name ig_bind_name(const ig_binder *b, const char *part, int layer, const char *suffix) {
    return ig_bind_expert_name(b, part, layer, 0, suffix);
}

/* "[576, 49152]", fastest first as stored. */
static ig_tensor_name shape_text(int n_dims, const uint64_t *dims) {
    ig_tensor_name n = {"["};
    for (int d = 0; d < n_dims; d++) {
        size_t at = strlen(n.text);
        snprintf(n.text + at, sizeof n.text - at, "%s%llu", d ? ", " : "", (unsigned long long)dims[d]);
    }
    strcat(n.text, "]");
    return n;
}

const ig_tensor *ig_bind_take(ig_binder *b, const char *name, int n_dims, const uint64_t *dims, bool required) {
    const ig_tensor *t = b->status ? NULL : ig_bind_find(b, name);
    if (!t) {
        if (required && !b->status)
            b->status = ig_fail(b->err, IG_E_FORMAT, "%s: tensor '%s' is missing", b->path, name);
        return NULL;
    }
    if (t->n_dims != n_dims || memcmp(t->dims, dims, (size_t)n_dims * sizeof *dims) != 0) {
        b->status = ig_fail(b->err, IG_E_FORMAT, "%s: tensor '%s' has shape %s, must be %s", b->path, name,
                            shape_text(t->n_dims, t->dims).text, shape_text(n_dims, dims).text);
        return NULL;
    }
    b->used[t - ig_bind_tensor_at(b, 0)] = true;
    return t;
}

/* A number of a tensor of floats. */
static float number_at(const ig_tensor *t, size_t i) {
    uint16_t half;
    float x;
    if (t->type == IG_TYPE_F32) {
        memcpy(&x, (const char *)t->data + i * sizeof x, sizeof x);
        return x;
    }
    memcpy(&half, (const char *)t->data + i * sizeof half, sizeof half);
    return t->type == IG_TYPE_F16 ? ig_f16_f32(half) : ig_bf16_f32(half);
}

/* Float values of n_rows rows of n elements, which go to columns if that is asked for; false if one is not finite. */
static bool convert(float *to, const ig_tensor *t, size_t n_rows, size_t n, bool to_columns) {
    bool is_finite = true;
    for (size_t r = 0; r < n_rows; r++)
        for (size_t i = 0; i < n; i++) {
            float x = number_at(t, r * n + i);
            to[to_columns ? i * n_rows + r : r * n + i] = x;
            is_finite = is_finite && isfinite(x);
        }
    return is_finite;
}

const float *ig_bind_floats(ig_binder *b, const char *name, int n_dims, const uint64_t *dims, size_t n_vectors,
                            size_t n, bool to_columns, bool required) {
    const ig_tensor *t = ig_bind_take(b, name, n_dims, dims, required);
    if (!t) return NULL;
    if (t->type != IG_TYPE_F32 && t->type != IG_TYPE_F16 && t->type != IG_TYPE_BF16) {
        b->status = ig_fail(b->err, IG_E_UNSUPPORTED, "%s: tensor '%s' is of type %s, must be F32, F16 or BF16",
                            b->path, name, ig_type_get((uint32_t)t->type)->name);
        return NULL;
    }
    float *to = ig_arena_take(&b->w->owned, n_vectors * n * sizeof *to);
    if (to && !convert(to, t, n_vectors, n, to_columns)) {
        b->status = ig_fail(b->err, IG_E_FORMAT, "%s: tensor '%s' holds a value that is not finite", b->path, name);
        return NULL;
    }
    return to;
}

const float *ig_bind_vectors(ig_binder *b, const char *name, int n_dims, int n_vectors, int n, bool required) {
    const uint64_t dims[] = {(uint64_t)n, (uint64_t)n_vectors};
    return ig_bind_floats(b, name, n_dims, dims, (size_t)n_vectors, (size_t)n, false, required);
}

const float *ig_bind_vector(ig_binder *b, const char *name, int n, bool required) {
    return ig_bind_vectors(b, name, 1, 1, n, required);
}

const float *ig_bind_part_vector(ig_binder *b, const char *part, int layer, const char *suffix, int n, bool required) {
    return ig_bind_vector(b, ig_bind_name(b, part, layer, suffix).text, n, required);
}

ig_matrix ig_bind_first(ig_binder *b, const char *name, int n_dims, int n, int n_out, int n_in) {
    const uint64_t dims[] = {(uint64_t)n_in, (uint64_t)n_out, (uint64_t)n};
    ig_matrix m = {0};
    const ig_tensor *t = ig_bind_take(b, name, n_dims, dims, true);
    if (!t) return m;
    m = (ig_matrix){.w = t->data, .n_out = n_out, .n_in = n_in, .type = t->type};
    m.row_bytes = ig_type_row_bytes(ig_type_get((uint32_t)t->type), (size_t)n_in);
    return m;
}

ig_matrix ig_bind_table(ig_binder *b, const char *name, int n_out, int n_in) {
    return ig_bind_first(b, name, 2, 1, n_out, n_in);
}

const float *ig_bind_factors(ig_binder *b, const char *name, int n) {
    static const char weight[] = ".weight";
    size_t length = strlen(name), stem = length - (sizeof weight - 1);
    ig_tensor_name factors;
    if (!b->g || length < sizeof weight || strcmp(name + stem, weight) != 0) return NULL;
    snprintf(factors.text, sizeof factors.text, "%.*s.scale", (int)stem, name);
    return ig_bind_vector(b, factors.text, n, false);
}

/* The first of n matrices of a tensor of an adapter, copied. */
static ig_matrix copy_matrices(ig_binder *b, const ig_tensor *t) {
    ig_matrix m = {.n_out = (int)t->dims[1], .n_in = (int)t->dims[0], .type = t->type};
    void *copy = ig_arena_take(&b->w->owned, t->n_bytes);
    m.row_bytes = ig_type_row_bytes(ig_type_get((uint32_t)t->type), t->dims[0]);
    m.w = copy;
    if (copy) memcpy(copy, t->data, t->n_bytes);
    return m;
}

/* What one adapter adds, before what the others do. */
static ig_low_rank *add_low_rank(ig_binder *b, const ig_adapter_file *f, const ig_adapter_pair *p, int n,
                                 const ig_low_rank *others) {
    ig_low_rank *list = ig_arena_take(&b->w->owned, (size_t)n * sizeof *list);
    ig_matrix first_a = copy_matrices(b, p->a), first_b = copy_matrices(b, p->b);
    b->w->low_rank = ig_max_int(b->w->low_rank, first_a.n_out);
    b->w->low_rank_out = ig_max_int(b->w->low_rank_out, first_b.n_out);
    for (int i = 0; list && i < n; i++) {
        list[i] = (ig_low_rank){.a = first_a,
                                .b = first_b,
                                .scale = (float)ig_adapter_scale(f, first_a.n_out),
                                .next = others ? &others[i] : NULL};
        list[i].a.w = (const uint8_t *)first_a.w + (size_t)i * ig_matrix_bytes(&first_a);
        list[i].b.w = (const uint8_t *)first_b.w + (size_t)i * ig_matrix_bytes(&first_b);
        list[i].b.scale = &list[i].scale;
    }
    return list;
}

const ig_low_rank *ig_bind_low_rank(ig_binder *b, const char *name, int n, int n_out, int n_in) {
    const ig_low_rank *list = NULL;
    for (int i = b->adapters ? b->adapters->n : 0; i-- > 0 && !b->status;) {
        ig_adapter_file *f = &b->adapters->files[i];
        ig_adapter_pair pair;
        b->status = ig_adapter_find(&pair, f, name, n, n_out, n_in, b->err);
        if (!b->status && pair.a) list = add_low_rank(b, f, &pair, n, list);
    }
    return list;
}

ig_matrix ig_bind_plain(ig_binder *b, const char *name, int n_out, int n_in) {
    ig_matrix m = ig_bind_table(b, name, n_out, n_in);
    m.scale = ig_bind_factors(b, name, 1);
    m.low_rank = ig_bind_low_rank(b, name, 1, n_out, n_in);
    return m;
}

ig_matrix ig_bind_rows(ig_matrix m, int first, int n) {
    if (m.w) m.w = (const uint8_t *)m.w + (size_t)first * m.row_bytes;
    m.low_rank_row += first;
    m.n_out = n;
    return m;
}

void ig_bind_parts(ig_binder *b, const char *part, int layer, ig_matrix *const *parts, const int *n_out, int n,
                   int n_in) {
    int all = 0, row = 0;
    for (int i = 0; i < n; i++) all += n_out[i];
    ig_matrix m = ig_bind_plain(b, ig_bind_name(b, part, layer, ".weight").text, all, n_in);
    bool has_bias = ig_bind_find(b, ig_bind_name(b, part, 0, ".bias").text) != NULL;
    const float *bias = has_bias ? ig_bind_part_vector(b, part, layer, ".bias", all, true) : NULL;
    for (int i = 0; i < n; row += n_out[i++]) {
        *parts[i] = ig_bind_rows(m, row, n_out[i]);
        if (bias) parts[i]->bias = bias + row;
    }
}

ig_matrix ig_bind_matrix(ig_binder *b, const char *part, int layer, int n_out, int n_in) {
    ig_matrix m = ig_bind_plain(b, ig_bind_name(b, part, layer, ".weight").text, n_out, n_in);
    if (ig_bind_find(b, ig_bind_name(b, part, 0, ".bias").text))
        m.bias = ig_bind_part_vector(b, part, layer, ".bias", n_out, true);
    return m;
}

const float *ig_bind_part_scale(ig_binder *b, const char *part, int layer, const char *suffix, int n, double scale) {
    float *w = (float *)(uintptr_t)ig_bind_part_vector(b, part, layer, suffix, n, true), offset = b->c->norm_offset;
    for (int i = 0; w && i < n && (offset != 0 || scale != 1); i++) w[i] = (float)(scale * (double)(w[i] + offset));
    return w;
}

const float *ig_bind_scale(ig_binder *b, const char *part, int layer, int n, double scale) {
    return ig_bind_part_scale(b, part, layer, ".weight", n, scale);
}

ig_norm_weights ig_bind_norm(ig_binder *b, const char *part, int layer, double scale) {
    ig_norm_weights n = {.w = ig_bind_scale(b, part, layer, b->c->d_model, scale)};
    if (b->c->norm == IG_NORM_LAYER) n.b = ig_bind_part_vector(b, part, layer, ".bias", b->c->d_model, true);
    return n;
}
