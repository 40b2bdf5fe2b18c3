/* SPDX-License-Identifier: Apache-2.0
 *
 * The GGUF parser. The same walk over keys and tensor descriptions runs three times: the first finds where they end, so
 * that they can be copied, as a mapped file may change at any moment; the second checks and counts what the copy holds,
 * then exactly the memory that its bytes justify is taken, and the third fills that memory. Values stay where they are
 * in the copy and tensors where they are in the file; names are copied once more, to end them with a NUL.
 */
#include "format/gguf_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "format/extent.h"

enum {
    MAX_VALUES = 16384,
    MAX_KEY_BYTES = 65535,
    MAX_NAME_BYTES = 64,
    MIN_VALUE_BYTES = 8 + 1 + 4 + 1,          /* key length, key, type, value */
    MIN_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8, /* name length, name, n_dims, one dim, type, offset */
    DEFAULT_ALIGNMENT = 32,
    MIN_ALIGNMENT = 8,
    MAX_ALIGNMENT = 1 << 20,
};

typedef struct parser {
    ig_gguf *g;
    const uint8_t *data;      /* of the file, then of the copy of its head */
    size_t size, at;          /* bytes */
    size_t n_text, n_offsets; /* taken so far */
    ig_extent *extents;       /* [n_tensors]; NULL before the last walk */
    char where[112];          /* what is being read, for errors */
    ig_error *err;
} parser;

/* Bytes of a value by type; strings by their least. */
static const uint8_t value_bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 0, 8, 8, 8};
static ig_status fail_at(parser *p, const char *what) {
    return ig_fail(p->err, IG_E_FORMAT, "%s: %s: %s at byte %zu reaches past the end of the file", p->g->path, p->where,
                   what, p->at);
}

static ig_status read_u32(parser *p, uint32_t *out, const char *what) {
    if (p->size - p->at < sizeof *out) return fail_at(p, what);
    memcpy(out, p->data + p->at, sizeof *out);
    p->at += sizeof *out;
    return IG_OK;
}

static ig_status read_u64(parser *p, uint64_t *out, const char *what) {
    if (p->size - p->at < sizeof *out) return fail_at(p, what);
    memcpy(out, p->data + p->at, sizeof *out);
    p->at += sizeof *out;
    return IG_OK;
}

/* A key or name of at most max_bytes. *out is NULL before the last walk. */
static ig_status read_name(parser *p, const char **out, size_t max_bytes) {
    uint64_t n;
    ig_status s = read_u64(p, &n, "name length");
    if (s) return s;
    if (n == 0) return ig_fail(p->err, IG_E_FORMAT, "%s: %s: the name is empty", p->g->path, p->where);
    if (n > max_bytes)
        return ig_fail(p->err, IG_E_FORMAT, "%s: %s: a name of %llu bytes is longer than the %zu allowed", p->g->path,
                       p->where, (unsigned long long)n, max_bytes);
    if (n > p->size - p->at) return fail_at(p, "the name");
    const char *bytes = (const char *)p->data + p->at;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)bytes[i] < 0x20 || bytes[i] == 0x7f)
            return ig_fail(p->err, IG_E_FORMAT, "%s: %s: the name holds a control character", p->g->path, p->where);
    p->at += (size_t)n;
    *out = NULL;
    if (p->g->text) {
        char *copy = p->g->text + p->n_text;
        memcpy(copy, bytes, (size_t)n);
        copy[n] = 0;
        *out = copy;
    }
    p->n_text += (size_t)n + 1;
    return IG_OK;
}

/* Says what is read from here on: kind 'name', the name being the n bytes that end at the cursor. */
static void set_where(parser *p, const char *kind, size_t start) {
    size_t n = p->at - start;
    snprintf(p->where, sizeof p->where, "%s '%.*s'", kind, (int)(n < 80 ? n : 80), (const char *)p->data + start);
}

static ig_status read_strings(parser *p, ig_gguf_value *v) {
    uint64_t *offsets = NULL;
    if (v->type == IG_GGUF_ARRAY) {
        if (p->g->offsets) offsets = p->g->offsets + p->n_offsets;
        p->n_offsets += (size_t)v->n_items;
    }
    for (uint64_t i = 0; i < v->n_items; i++) {
        uint64_t n;
        ig_status s = read_u64(p, &n, "string length");
        if (s) return s;
        if (n > p->size - p->at) return fail_at(p, "a string");
        if (offsets) offsets[i] = (uint64_t)(p->data + p->at - v->data);
        p->at += (size_t)n;
    }
    v->offsets = offsets;
    return IG_OK;
}

static ig_status read_value_type(parser *p, ig_gguf_type *out) {
    uint32_t type;
    ig_status s = read_u32(p, &type, "value type");
    if (s) return s;
    if (type > IG_GGUF_F64)
        return ig_fail(p->err, IG_E_FORMAT, "%s: %s: unknown value type %u", p->g->path, p->where, type);
    *out = (ig_gguf_type)type;
    return IG_OK;
}

static ig_status read_value(parser *p, ig_gguf_value *v) {
    size_t start = p->at + 8;
    ig_status s = read_name(p, &v->key, MAX_KEY_BYTES);
    if (s) return s;
    set_where(p, "key", start);
    if ((s = read_value_type(p, &v->type))) return s;
    v->item_type = v->type;
    v->n_items = 1;
    if (v->type == IG_GGUF_ARRAY) {
        if ((s = read_value_type(p, &v->item_type))) return s;
        if (v->item_type == IG_GGUF_ARRAY)
            return ig_fail(p->err, IG_E_UNSUPPORTED, "%s: %s: an array of arrays", p->g->path, p->where);
        if ((s = read_u64(p, &v->n_items, "array length"))) return s;
    }
    size_t item = value_bytes[v->item_type];
    if (v->n_items > (p->size - p->at) / item)
        return ig_fail(p->err, IG_E_FORMAT, "%s: %s: %llu items reach past the end of the file", p->g->path, p->where,
                       (unsigned long long)v->n_items);
    v->data = p->data + p->at;
    v->offsets = NULL;
    if (v->item_type == IG_GGUF_STRING) return read_strings(p, v);
    size_t n = (size_t)v->n_items * item;
    if (v->item_type == IG_GGUF_BOOL)
        for (size_t i = 0; i < n; i++)
            if (v->data[i] > 1)
                return ig_fail(p->err, IG_E_FORMAT, "%s: %s: a boolean is %u", p->g->path, p->where, v->data[i]);
    p->at += n;
    return IG_OK;
}

static ig_status read_tensor_type(parser *p, ig_tensor *t, const ig_type_info **info) {
    uint32_t type;
    ig_status s = read_u32(p, &type, "tensor type");
    if (s) return s;
    *info = ig_type_get(type);
    if (*info && type < IG_TYPE_U8) {
        t->type = (ig_type)type;
        return IG_OK;
    }
    return ig_fail(p->err, IG_E_UNSUPPORTED, "%s: %s: unknown type %u", p->g->path, p->where, type);
}

/* Sets n_bytes; the dimensions are read. */
static ig_status size_tensor(parser *p, ig_tensor *t, const ig_type_info *info) {
    uint64_t n = t->dims[0] / (uint64_t)info->block;
    if (t->dims[0] % (uint64_t)info->block)
        return ig_fail(p->err, IG_E_FORMAT, "%s: %s: rows of %llu elements are no multiple of the %d in a block of %s",
                       p->g->path, p->where, (unsigned long long)t->dims[0], info->block, info->name);
    bool fits = true;
    for (int d = 1; d < 4; d++) fits = fits && !__builtin_mul_overflow(n, t->dims[d], &n);
    fits = fits && !__builtin_mul_overflow(n, (uint64_t)info->block_bytes, &n) && n <= p->g->file.size;
    if (!fits)
        return ig_fail(p->err, IG_E_FORMAT, "%s: %s: its dimensions make it larger than the file", p->g->path,
                       p->where);
    t->n_bytes = (size_t)n;
    return IG_OK;
}

static ig_status read_tensor(parser *p, ig_tensor *t, uint64_t *offset) {
    uint32_t n_dims;
    const ig_type_info *info;
    size_t start = p->at + 8;
    ig_status s = read_name(p, &t->name, MAX_NAME_BYTES);
    if (s) return s;
    set_where(p, "tensor", start);
    if ((s = read_u32(p, &n_dims, "number of dimensions"))) return s;
    if (n_dims < 1 || n_dims > 4)
        return ig_fail(p->err, IG_E_FORMAT, "%s: %s: %u dimensions, must be 1 to 4", p->g->path, p->where, n_dims);
    t->n_dims = (int)n_dims;
    for (int d = 0; d < 4; d++) {
        t->dims[d] = 1;
        if (d < t->n_dims && (s = read_u64(p, &t->dims[d], "dimension"))) return s;
        if (t->dims[d] == 0) return ig_fail(p->err, IG_E_FORMAT, "%s: %s: dimension %d is 0", p->g->path, p->where, d);
    }
    if ((s = read_tensor_type(p, t, &info))) return s;
    if ((s = size_tensor(p, t, info))) return s;
    return read_u64(p, offset, "offset");
}

/* The walk over everything before the data; fills what has memory. */
static ig_status walk(parser *p, size_t start) {
    ig_gguf *g = p->g;
    p->at = start;
    p->n_text = p->n_offsets = 0;
    for (size_t i = 0; i < g->n_values; i++) {
        ig_gguf_value v;
        snprintf(p->where, sizeof p->where, "key %zu", i);
        ig_status s = read_value(p, &v);
        if (s) return s;
        if (g->values) g->values[i] = v;
    }
    for (size_t i = 0; i < g->n_tensors; i++) {
        ig_tensor t;
        uint64_t offset;
        snprintf(p->where, sizeof p->where, "tensor %zu", i);
        ig_status s = read_tensor(p, &t, &offset);
        if (s) return s;
        if (!p->extents) continue;
        g->tensors[i] = t;
        p->extents[i] = (ig_extent){offset, 0, i};
    }
    return IG_OK;
}

static ig_status read_header(parser *p) {
    ig_gguf *g = p->g;
    uint32_t version;
    uint64_t n_tensors, n_values;
    snprintf(p->where, sizeof p->where, "header");
    if (p->size < 4 || memcmp(p->data, "GGUF", 4) != 0)
        return ig_fail(p->err, IG_E_FORMAT, "%s: not a GGUF file (magic missing); of safetensors give the directory",
                       g->path);
    p->at = 4;
    ig_status s = read_u32(p, &version, "version");
    if (s) return s;
    if (version == 0x02000000u || version == 0x03000000u)
        return ig_fail(p->err, IG_E_UNSUPPORTED, "%s: big-endian GGUF files are not supported", g->path);
    if (version != 2 && version != 3)
        return ig_fail(p->err, IG_E_UNSUPPORTED, "%s: GGUF version %u is not supported, only 2 and 3", g->path,
                       version);
    if ((s = read_u64(p, &n_tensors, "number of tensors"))) return s;
    if ((s = read_u64(p, &n_values, "number of keys"))) return s;
    size_t left = p->size - p->at;
    if (n_tensors > left / MIN_TENSOR_BYTES)
        return ig_fail(p->err, IG_E_FORMAT, "%s: header: the file cannot hold %llu tensors", g->path,
                       (unsigned long long)n_tensors);
    if (n_values > left / MIN_VALUE_BYTES)
        return ig_fail(p->err, IG_E_FORMAT, "%s: header: the file cannot hold %llu keys", g->path,
                       (unsigned long long)n_values);
    if (n_tensors > IG_GGUF_TENSORS_MAX || n_values > MAX_VALUES)
        return ig_fail(p->err, IG_E_LIMIT, "%s: header: %llu tensors and %llu keys, at most %d and %d are allowed",
                       g->path, (unsigned long long)n_tensors, (unsigned long long)n_values, IG_GGUF_TENSORS_MAX,
                       MAX_VALUES);
    g->n_tensors = (size_t)n_tensors;
    g->n_values = (size_t)n_values;
    return IG_OK;
}

/* Copies all that the walk has passed, and goes on with the copy. */
static ig_status copy_head(parser *p) {
    p->g->head = malloc(p->at);
    if (!p->g->head) return ig_fail_memory(p->err, "GGUF metadata", p->at);
    memcpy(p->g->head, p->data, p->at);
    p->data = p->g->head;
    p->size = p->at;
    return IG_OK;
}

/* Memory for what the walk counted. */
static ig_status take_memory(parser *p) {
    ig_gguf *g = p->g;
    g->values = calloc(g->n_values + 1, sizeof *g->values);
    g->tensors = calloc(g->n_tensors + 1, sizeof *g->tensors);
    g->keys = calloc(g->n_values + 1, sizeof *g->keys);
    g->names = calloc(g->n_tensors + 1, sizeof *g->names);
    g->text = malloc(p->n_text + 1);
    g->offsets = calloc(p->n_offsets + 1, sizeof *g->offsets);
    p->extents = calloc(g->n_tensors + 1, sizeof *p->extents);
    if (g->values && g->tensors && g->keys && g->names && g->text && g->offsets && p->extents) return IG_OK;
    return ig_fail_memory(p->err, "GGUF metadata", p->n_text + p->n_offsets * 8 + g->n_values * sizeof *g->values);
}

static ig_status index_names(parser *p) {
    ig_gguf *g = p->g;
    for (size_t i = 0; i < g->n_values; i++) g->keys[i] = (ig_name){g->values[i].key, i};
    const char *twice = ig_names_sort(g->keys, g->n_values);
    if (twice) return ig_fail(p->err, IG_E_FORMAT, "%s: key '%.80s' appears twice", g->path, twice);
    return ig_gguf_index_tensors(g, p->err);
}

ig_status ig_gguf_index_tensors(ig_gguf *g, ig_error *err) {
    for (size_t i = 0; i < g->n_tensors; i++) g->names[i] = (ig_name){g->tensors[i].name, i};
    const char *twice = ig_names_sort(g->names, g->n_tensors);
    return twice ? ig_fail(err, IG_E_FORMAT, "%s: tensor '%.80s' appears twice", g->path, twice) : IG_OK;
}

/* What the metadata says about the file itself. */
static ig_status read_layout(parser *p, uint64_t *alignment) {
    ig_status s = IG_OK;
    int64_t align = DEFAULT_ALIGNMENT;
    ig_gguf_int(p->g, "general.alignment", MIN_ALIGNMENT, MAX_ALIGNMENT, &align, &s, p->err);
    if (s) return s;
    if (align & (align - 1))
        return ig_fail(p->err, IG_E_FORMAT, "%s: key 'general.alignment' is %lld, no power of two", p->g->path,
                       (long long)align);
    *alignment = (uint64_t)align;
    return IG_OK;
}

/* Finds each tensor's bytes; the cursor is at the end of the descriptions. */
static ig_status place_tensors(parser *p) {
    ig_gguf *g = p->g;
    uint64_t alignment = 0;
    ig_status s = read_layout(p, &alignment);
    if (s) return s;
    uint64_t start = (p->at + alignment - 1) / alignment * alignment;
    uint64_t left = start < g->file.size ? g->file.size - start : 0;
    for (size_t i = 0; i < g->n_tensors; i++) {
        ig_tensor *t = &g->tensors[i];
        ig_extent *e = &p->extents[i];
        if (e->begin % alignment)
            return ig_fail(p->err, IG_E_FORMAT, "%s: tensor '%s': offset %llu is no multiple of the alignment %llu",
                           g->path, t->name, (unsigned long long)e->begin, (unsigned long long)alignment);
        if (e->begin > left || t->n_bytes > left - e->begin)
            return ig_fail(
                p->err, IG_E_FORMAT,
                "%s: tensor '%s': %zu bytes at offset %llu reach past the end of the file (is it cut short?)", g->path,
                t->name, t->n_bytes, (unsigned long long)e->begin);
        e->end = e->begin + t->n_bytes;
        t->data = g->file.data + start + e->begin;
    }
    const ig_extent *e = ig_extents_overlap(p->extents, g->n_tensors);
    if (e)
        return ig_fail(p->err, IG_E_FORMAT, "%s: tensors '%s' and '%s' overlap", g->path, g->tensors[e[-1].i].name,
                       g->tensors[e->i].name);
    return IG_OK;
}

ig_status ig_gguf_parse(ig_gguf *g, ig_error *err) {
    parser p = {.g = g, .data = g->file.data, .size = g->file.size, .err = err};
    ig_status s = read_header(&p);
    size_t start = p.at;
    if (!s) s = walk(&p, start);
    if (!s) s = copy_head(&p);
    if (!s) s = walk(&p, start);
    if (!s) s = take_memory(&p);
    if (!s) s = walk(&p, start);
    if (!s) s = index_names(&p);
    if (!s) s = place_tensors(&p);
    free(p.extents);
    return s;
}

ig_gguf *ig_gguf_new(const char *path) {
    size_t n = strlen(path) + 1;
    ig_gguf *g = calloc(1, sizeof *g);
    if (!g) return NULL;
    g->path = malloc(n);
    if (!g->path) {
        free(g);
        return NULL;
    }
    memcpy(g->path, path, n);
    return g;
}

ig_status ig_gguf_check_part(const ig_gguf *g, int number, int n_parts, ig_error *err) {
    ig_status s = IG_OK;
    int64_t count = 0, no = number;
    ig_gguf_int(g, "split.count", 0, 65535, &count, &s, err);
    ig_gguf_int(g, "split.no", 0, 65535, &no, &s, err);
    if (s || (n_parts == 1 && count <= 1)) return s;
    if (n_parts == 1)
        return ig_fail(err, IG_E_UNSUPPORTED,
                       "%s: key 'split.count' is %lld: where the others are is told by the name, which must be as in "
                       "NAME-00001-of-%05lld.gguf",
                       g->path, (long long)count, (long long)count);
    if (count != n_parts || no != number)
        return ig_fail(err, IG_E_FORMAT,
                       "%s: by its name it is file %d of %d of a model, by its keys file %lld of %lld", g->path,
                       number + 1, n_parts, (long long)no + 1, (long long)count);
    return IG_OK;
}

ig_status ig_gguf_open_memory(ig_gguf **out, const void *data, size_t n_bytes, const char *name, ig_error *err) {
    *out = NULL;
    ig_gguf *g = ig_gguf_new(name);
    if (!g) return ig_fail_memory(err, "GGUF reader", sizeof *g);
    g->file = (ig_file){.data = data, .size = n_bytes};
    ig_status s = ig_gguf_parse(g, err);
    if (!s) s = ig_gguf_check_part(g, 0, 1, err);
    if (s)
        ig_gguf_close(g);
    else
        *out = g;
    return s;
}

void ig_gguf_close(ig_gguf *g) {
    if (!g) return;
    for (size_t i = 0; i < g->n_others; i++) ig_gguf_close(g->others[i]);
    free(g->others);
    ig_file_close(&g->file);
    free(g->head);
    free(g->values);
    free(g->tensors);
    free(g->keys);
    free(g->names);
    free(g->text);
    free(g->offsets);
    free(g->path);
    free(g);
}

size_t ig_gguf_n_values(const ig_gguf *g) { return g->n_values; }
const ig_gguf_value *ig_gguf_value_at(const ig_gguf *g, size_t i) { return i < g->n_values ? &g->values[i] : NULL; }
size_t ig_gguf_n_tensors(const ig_gguf *g) { return g->n_tensors; }
const ig_tensor *ig_gguf_tensor_at(const ig_gguf *g, size_t i) { return i < g->n_tensors ? &g->tensors[i] : NULL; }
const char *ig_gguf_path(const ig_gguf *g) { return g->path; }

const ig_gguf_value *ig_gguf_find(const ig_gguf *g, const char *key) {
    const ig_name *name = ig_names_find(g->keys, g->n_values, key);
    return name ? &g->values[name->i] : NULL;
}

const ig_tensor *ig_gguf_tensor(const ig_gguf *g, const char *name) {
    const ig_name *found = ig_names_find(g->names, g->n_tensors, name);
    return found ? &g->tensors[found->i] : NULL;
}
