/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding tensors and checking what they are: see weight_binder.h.
 */
#include "model/weight_binder.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "base/error.h"
#include "base/half.h"
#include "kernel/kernel.h"

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
    if (!ig_type_is_float(t->type)) {
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

/* The tensor of scales of the FP8 matrices of this name: "weight_scale_inv" by the format of DeepSeek's files, or
 * "weight_scale", beside "weight". */
static const ig_tensor *find_scales(ig_binder *b, const char *name) {
    static const char *const ends[] = {"_scale_inv", "_scale"};
    ig_tensor_name scales;
    for (size_t i = 0; i < IG_COUNT(ends); i++) {
        snprintf(scales.text, sizeof scales.text, "%.140s%s", name, ends[i]);
        const ig_tensor *t = ig_bind_find(b, scales.text);
        if (t) return t;
    }
    if (!b->status)
        b->status =
            ig_fail(b->err, IG_E_FORMAT, "%s: tensor '%s' is missing, the scales of '%s'", b->path, scales.text, name);
    return NULL;
}

/* Whether a tensor is so many numbers wide and high; some writers have dimensions of 1 behind both. */
static bool has_shape(const ig_tensor *t, int across, int down) {
    const uint64_t *d = t->dims, width = (uint64_t)across, height = (uint64_t)down;
    if (t->n_dims == 4) return d[0] == 1 && d[1] == width && d[2] == 1 && d[3] == height;
    if (t->n_dims == 2) return d[0] == width && d[1] == height;
    return t->n_dims == 1 && width == 1 && d[0] == height;
}

/* Of a matrix in FP8: for each of the blocks that the configuration states, for each row, or one for all of it. */
static ig_block_scales bind_block_scales(ig_binder *b, const char *name, int n_out, int n_in) {
    const ig_tensor *t = find_scales(b, name);
    int rows = b->c->file.fp8_block_rows, cols = b->c->file.fp8_block_cols;
    ig_block_scales s = {.n_rows = n_out, .n_cols = n_in, .n_across = 1};
    if (!t) return s;
    int across = cols ? (n_in + cols - 1) / cols : 1, down = rows ? (n_out + rows - 1) / rows : 1;
    if (rows && has_shape(t, across, down))
        s = (ig_block_scales){.n_rows = rows, .n_cols = cols, .n_across = across};
    else if (has_shape(t, 1, n_out))
        s.n_rows = 1;
    else if (!has_shape(t, 1, 1))
        b->status =
            ig_fail(b->err, IG_E_FORMAT, "%s: tensor '%.120s' has shape %s, which is not that of scales of '%s'",
                    b->path, t->name, shape_text(t->n_dims, t->dims).text, name);
    size_t n = (size_t)((n_out + s.n_rows - 1) / s.n_rows) * (size_t)s.n_across;
    s.s = ig_bind_floats(b, t->name, t->n_dims, t->dims, n, 1, false, true);
    for (size_t i = 0; s.s && i < n; i++)
        if (!(s.s[i] >= 0) && !b->status)
            b->status = ig_fail(b->err, IG_E_FORMAT, "%s: tensor '%.120s' holds a scale of %g", b->path, t->name,
                                (double)s.s[i]);
    return s;
}

ig_matrix ig_bind_first(ig_binder *b, const char *name, int n_dims, int n, int n_out, int n_in) {
    const uint64_t dims[] = {(uint64_t)n_in, (uint64_t)n_out, (uint64_t)n};
    ig_matrix m = {0};
    const ig_tensor *t = ig_bind_take(b, name, n_dims, dims, true);
    if (!t) return m;
    m = (ig_matrix){.w = t->data, .n_out = n_out, .n_in = n_in, .type = t->type};
    m.row_bytes = ig_type_row_bytes(ig_type_get((uint32_t)t->type), (size_t)n_in);
    if (m.type != IG_TYPE_F8_E4M3) return m;
    if (n > 1)
        b->status = ig_fail(b->err, IG_E_UNSUPPORTED, "%s: tensor '%s' is of type F8_E4M3 and holds %d matrices",
                            b->path, name, n);
    else
        m.block_scales = bind_block_scales(b, name, n_out, n_in);
    return m;
}

ig_matrix ig_bind_table(ig_binder *b, const char *name, int n_out, int n_in) {
    ig_matrix m = ig_bind_first(b, name, 2, 1, n_out, n_in);
    if (m.type == IG_TYPE_F8_E4M3 && !b->status)
        b->status = ig_fail(b->err, IG_E_UNSUPPORTED, "%s: tensor '%s' is of type F8_E4M3, which a table must not be",
                            b->path, name);
    return m;
}

const float *ig_bind_factors(ig_binder *b, const char *name, int n) {
    static const char weight[] = ".weight";
    size_t length = strlen(name), stem = length - (sizeof weight - 1);
    ig_tensor_name factors;
    if (length < sizeof weight || strcmp(name + stem, weight) != 0) return NULL;
    snprintf(factors.text, sizeof factors.text, "%.*s.scale", (int)stem, name);
    return ig_bind_vector(b, factors.text, n, false);
}

/* ---- adapters ----------------------------------------------------------------------------------- */

/* Of an adapter's matrix number i. */
static void put_low_rank(const ig_low_rank_part *to, const ig_adapter_pair *from, double scale, int i, int n_out) {
    const ig_kernels *k = ig_kernels_get(IG_CPU_SCALAR);
    int rank = to->a.n_out, n_in = to->a.n_in;
    size_t a_bytes = ig_type_row_bytes(ig_type_get((uint32_t)from->a->type), (size_t)n_in),
           b_bytes = ig_type_row_bytes(ig_type_get((uint32_t)from->b->type), (size_t)rank);
    const uint8_t *a = (const uint8_t *)from->a->data + (size_t)i * (size_t)rank * a_bytes,
                  *b = (const uint8_t *)from->b->data + (size_t)i * (size_t)n_out * b_bytes;
    uint8_t *to_a = (uint8_t *)(uintptr_t)to->a.w;
    float *to_b = (float *)(uintptr_t)to->b, row[IG_MAX_ADAPTER_RANK];
    for (int r = 0; r < rank; r++, to_a += to->a.row_bytes, a += a_bytes) {
        if (from->a->type == to->a.type)
            memcpy(to_a, a, a_bytes);
        else
            k->dequantize[from->a->type]((float *)(void *)to_a, a, n_in);
    }
    for (int o = 0; o < n_out; o++) {
        k->dequantize[from->b->type](row, b + (size_t)ig_adapter_row(from, o) * b_bytes, rank);
        for (int r = 0; r < rank; r++) to_b[(size_t)r * (size_t)n_out + (size_t)o] = (float)(scale * (double)row[r]);
    }
}

/* Room for it. Rows are of the file's type, or floats. */
static ig_low_rank_part take_part(ig_binder *b, int adapter, const ig_tensor *a, int n_out, int n_in) {
    bool is_plain = ig_type_get((uint32_t)a->type)->block == 1;
    ig_low_rank_part p = {.adapter = adapter,
                          .a = {.n_out = (int)a->dims[1], .n_in = n_in, .type = is_plain ? a->type : IG_TYPE_F32}};
    p.a.row_bytes = ig_type_row_bytes(ig_type_get((uint32_t)p.a.type), (size_t)n_in);
    p.a.w = ig_arena_take(&b->w->owned, ig_matrix_bytes(&p.a));
    p.b = ig_arena_take(&b->w->owned, (size_t)p.a.n_out * (size_t)n_out * sizeof *p.b);
    return p;
}

/* How many adapters these matrices have, 0 without any. The ranks of all together are bounded. */
static int count_parts(ig_binder *b, const char *name, int n, int n_out, int n_in) {
    int sum = 0, n_parts = 0;
    for (int i = 0; b->adapters && i < b->adapters->n && !b->status; i++) {
        ig_adapter_pair pair;
        b->status = ig_adapter_find(&pair, &b->adapters->files[i], name, n, n_out, n_in, b->err);
        if (b->status || !pair.a) continue;
        if (b->c->file.are_heads_mixed && strstr(name, ".query_key_value."))
            b->status = ig_fail(b->err, IG_E_UNSUPPORTED,
                                "%s: adapters of '%s', whose rows are of q, k and v in turns, are not supported",
                                b->path, name);
        sum += (int)pair.a->dims[1];
        n_parts++;
        if (sum > IG_MAX_ADAPTER_RANK)
            b->status = ig_fail(b->err, IG_E_LIMIT, "%s: adapters of '%s' are together of rank %d, must be at most %d",
                                b->path, name, sum, IG_MAX_ADAPTER_RANK);
    }
    b->w->low_rank = ig_max_int(b->w->low_rank, sum);
    return b->status ? 0 : n_parts;
}

const ig_low_rank *ig_bind_low_rank(ig_binder *b, const char *name, int n, int n_out, int n_in) {
    int n_parts = count_parts(b, name, n, n_out, n_in), found = 0;
    if (!n_parts) return NULL;
    ig_low_rank *list = ig_arena_take(&b->w->owned, (size_t)n * sizeof *list);
    ig_low_rank_part *parts = ig_arena_take(&b->w->owned, (size_t)n * (size_t)n_parts * sizeof *parts);
    for (int f = 0; f < b->adapters->n; f++) {
        ig_adapter_pair pair;
        if (ig_adapter_find(&pair, &b->adapters->files[f], name, n, n_out, n_in, NULL) || !pair.a) continue;
        double scale = ig_adapter_scale(&b->adapters->files[f], (int)pair.a->dims[1]);
        for (int i = 0; i < n; i++) {
            ig_low_rank_part part = take_part(b, f, pair.a, n_out, n_in);
            if (!list) continue; /* sizes are counted */
            put_low_rank(&part, &pair, scale, i, n_out);
            parts[i * n_parts + found] = part;
        }
        found++;
    }
    for (int i = 0; list && i < n; i++)
        list[i] = (ig_low_rank){.parts = parts + (size_t)i * (size_t)n_parts,
                                .n_parts = n_parts,
                                .n_out = n_out,
                                .n_adapters = b->adapters->n};
    return list;
}

/* ---- matrices ----------------------------------------------------------------------------------- */

ig_matrix ig_bind_plain(ig_binder *b, const char *name, int n_out, int n_in) {
    ig_matrix m = ig_bind_first(b, name, 2, 1, n_out, n_in);
    m.scale = ig_bind_factors(b, name, 1);
    m.low_rank = ig_bind_low_rank(b, name, 1, n_out, n_in);
    return m;
}

void ig_bind_multiply(ig_binder *b, ig_matrix *m, double by) {
    float *scale = ig_arena_take(&b->w->owned, sizeof *scale);
    if (m->low_rank && !b->status)
        b->status = ig_fail(b->err, IG_E_UNSUPPORTED,
                            "%s: adapters of matrices whose products are multiplied are not supported", b->path);
    if (m->bias && !b->status)
        b->status = ig_fail(b->err, IG_E_UNSUPPORTED,
                            "%s: biases of matrices whose products are multiplied are not supported", b->path);
    if (!scale) return;
    *scale = (float)by * (m->scale ? *m->scale : 1);
    m->scale = scale;
}

ig_matrix ig_bind_rows(ig_matrix m, int first, int n) {
    if (m.w) m.w = (const uint8_t *)m.w + (size_t)first * m.row_bytes;
    m.low_rank_row += first;
    m.block_scales.first += first;
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

ig_matrix ig_bind_turnable(const ig_matrix *m) {
    ig_matrix out = *m;
    out.w = NULL;
    if (m->type != IG_TYPE_F8_E4M3) return out;
    out.type = IG_TYPE_BF16;
    out.block_scales = (ig_block_scales){0};
    out.row_bytes = ig_type_row_bytes(ig_type_get(out.type), (size_t)out.n_in);
    return out;
}

void ig_bind_copy_rows(void *to, const ig_matrix *from, int first, int n) {
    const ig_kernels *k = ig_kernels_get(IG_CPU_SCALAR);
    const uint8_t *row = (const uint8_t *)from->w + (size_t)first * from->row_bytes;
    uint16_t *wide = to;
    if (from->type != IG_TYPE_F8_E4M3) {
        memcpy(to, row, (size_t)n * from->row_bytes);
        return;
    }
    for (int r = first; r < first + n; r++, row += from->row_bytes)
        for (int i = 0, m; i < from->n_in; i += m) {
            float w[IG_SCALES_UNIT];
            m = ig_min_int(from->n_in - i, IG_SCALES_UNIT);
            k->dequantize[from->type](w, row + i, m);
            ig_scale_codes(w, &from->block_scales, r, i, m);
            for (int j = 0; j < m; j++) *wide++ = ig_f32_bf16(w[j]);
        }
}

const float *ig_bind_part_scale(ig_binder *b, const char *part, int layer, const char *suffix, int n, double scale) {
    float *w = (float *)(uintptr_t)ig_bind_part_vector(b, part, layer, suffix, n, true), offset = b->norm_offset;
    for (int i = 0; w && i < n && (offset != 0 || scale != 1); i++) w[i] = (float)(scale * (double)(w[i] + offset));
    return w;
}

const float *ig_bind_scale(ig_binder *b, const char *part, int layer, int n, double scale) {
    return ig_bind_part_scale(b, part, layer, ".weight", n, scale);
}

ig_norm_weights ig_bind_norm(ig_binder *b, const char *part, int layer, double scale) {
    bool is_bare = ig_bind_find(b, ig_bind_name(b, part, layer, "").text) != NULL; /* some of Falcon-H1's are */
    const char *suffix = is_bare ? "" : ".weight";
    ig_norm_weights n = {.w = ig_bind_part_scale(b, part, layer, suffix, b->c->d_model, scale)};
    if (b->c->norms.kind == IG_NORM_LAYER) n.b = ig_bind_part_vector(b, part, layer, ".bias", b->c->d_model, true);
    return n;
}
