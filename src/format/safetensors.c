/* SPDX-License-Identifier: Apache-2.0
 *
 * The safetensors reader. Each file is a length, a JSON header and the data. Headers are parsed with jansson and
 * turned into tensor views at once; only the names are copied. With an index, every tensor must lie in the shard that
 * the index says, and every shard must be a plain file name in the same directory.
 */
#include "format/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/compiler.h"
#include "base/error.h"
#include "format/extent.h"
#include "format/json.h"
#include "format/names.h"

enum {
    MAX_HEADER_BYTES = 100 * 1000 * 1000, /* the format's own limit */
    MAX_INDEX_BYTES = 64 << 20,
    MAX_SHARDS = 4096,
    MAX_TENSORS = 1 << 18, /* one for each matrix of each expert, and its scales */
    MAX_NAME_BYTES = 512,
    MIN_TENSOR_BYTES = 48, /* of a tensor's description */
};

typedef struct shard {
    ig_file file;
    char *path;
} shard;

struct ig_safetensors {
    char *path; /* the directory */
    size_t n_shards, n_tensors;
    shard *shards;
    ig_tensor *tensors;
    ig_name *names; /* [n_tensors], sorted */
    void *replaced; /* where tensors lie that took the place of the files' */
};

static char *copy_text(const char *text) {
    size_t n = strlen(text) + 1;
    char *copy = malloc(n);
    if (copy) memcpy(copy, text, n);
    return copy;
}

/* "directory/name", or NULL. */
static char *join_path(const char *directory, const char *name, const char *end) {
    ig_buffer b = {0};
    ig_buffer_text(&b, directory);
    ig_buffer_text(&b, "/");
    ig_buffer_text(&b, name);
    ig_buffer_text(&b, end);
    if (b.failed) ig_buffer_close(&b);
    return b.data;
}

/* ---- one file ---------------------------------------------------------- */

static ig_status read_dtype(ig_tensor *t, const json_t *info, const char *path, const char *name, ig_error *err) {
    static const ig_type types[] = {IG_TYPE_F32, IG_TYPE_F16, IG_TYPE_BF16, IG_TYPE_F8_E4M3,
                                    IG_TYPE_I8,  IG_TYPE_U8,  IG_TYPE_I32,  IG_TYPE_I64};
    const char *dtype = json_string_value(json_object_get(info, "dtype"));
    if (!dtype) return ig_fail(err, IG_E_FORMAT, "%s: tensor '%.120s': 'dtype' is missing or no string", path, name);
    for (size_t i = 0; i < IG_COUNT(types); i++) {
        t->type = types[i];
        if (strcmp(dtype, ig_type_get(t->type)->name) == 0) return IG_OK;
    }
    return ig_fail(
        err, IG_E_UNSUPPORTED,
        "%s: tensor '%.120s': dtype '%.20s' is not supported, only F32, F16, BF16, F8_E4M3, I8, U8, I32 and I64", path,
        name, dtype);
}

static ig_status read_shape(ig_tensor *t, const json_t *info, const char *path, const char *name, ig_error *err) {
    const json_t *shape = json_object_get(info, "shape");
    size_t n = json_array_size(shape);
    if (!json_is_array(shape) || n > 8)
        return ig_fail(err, IG_E_FORMAT, "%s: tensor '%.120s': 'shape' must be a list of at most 8 numbers", path,
                       name);
    uint64_t bytes = (uint64_t)ig_type_get((uint32_t)t->type)->block_bytes;
    t->n_dims = n > 4 ? 4 : n ? (int)n : 1;
    for (size_t d = 0; d < 4; d++) t->dims[d] = 1;
    for (size_t d = 0; d < n; d++) {
        const json_t *item = json_array_get(shape, d);
        if (!json_is_integer(item) || json_integer_value(item) <= 0)
            return ig_fail(err, IG_E_FORMAT, "%s: tensor '%.120s': 'shape' item %zu is no positive integer", path, name,
                           d);
        uint64_t dim = (uint64_t)json_integer_value(item);
        t->dims[n - 1 - d < 4 ? n - 1 - d : 3] *= dim; /* those beyond four count as one */
        if (__builtin_mul_overflow(bytes, dim, &bytes) || bytes > SIZE_MAX / 2)
            return ig_fail(err, IG_E_FORMAT, "%s: tensor '%.120s': the product of 'shape' is too large", path, name);
    }
    t->n_bytes = (size_t)bytes;
    return IG_OK;
}

/* Checks data_offsets against the data. */
static ig_status read_offsets(ig_tensor *t, ig_extent *e, const json_t *info, const ig_file *data, const char *path,
                              const char *name, ig_error *err) {
    const json_t *offsets = json_object_get(info, "data_offsets");
    const json_t *first = json_array_get(offsets, 0), *last = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(first) || !json_is_integer(last))
        return ig_fail(err, IG_E_FORMAT, "%s: tensor '%.120s': 'data_offsets' must be two integers", path, name);
    json_int_t begin = json_integer_value(first), end = json_integer_value(last);
    if (begin < 0 || end <= begin)
        return ig_fail(err, IG_E_FORMAT, "%s: tensor '%.120s': 'data_offsets' %lld to %lld are no range", path, name,
                       (long long)begin, (long long)end);
    if ((uint64_t)end > data->size)
        return ig_fail(
            err, IG_E_FORMAT,
            "%s: tensor '%.120s': 'data_offsets' end at %lld, past the %zu bytes of data (is the file cut short?)",
            path, name, (long long)end, data->size);
    if ((uint64_t)(end - begin) != t->n_bytes)
        return ig_fail(err, IG_E_FORMAT,
                       "%s: tensor '%.120s': 'data_offsets' span %lld bytes, 'shape' and 'dtype' make %zu", path, name,
                       (long long)(end - begin), t->n_bytes);
    size_t unit = (size_t)ig_type_get((uint32_t)t->type)->block_bytes;
    t->data = data->data + begin;
    if ((uintptr_t)t->data % unit)
        return ig_fail(
            err, IG_E_UNSUPPORTED,
            "%s: tensor '%.120s': its data is not aligned; write the file anew with a current safetensors library",
            path, name);
    *e = (ig_extent){(uint64_t)begin, (uint64_t)end, 0};
    return IG_OK;
}

/* Room for all tensors of a header of header_bytes with n entries, one of which may be none. */
static ig_status grow_tensors(ig_safetensors *s, size_t n, size_t header_bytes, const char *path, ig_error *err) {
    if (n > 1 + header_bytes / MIN_TENSOR_BYTES)
        return ig_fail(err, IG_E_FORMAT, "%s: header: %zu bytes cannot describe %zu tensors", path, header_bytes, n);
    if (n > MAX_TENSORS - s->n_tensors)
        return ig_fail(err, IG_E_LIMIT, "%s: header: more than %d tensors", path, MAX_TENSORS);
    size_t bytes = (s->n_tensors + n + 1) * sizeof *s->tensors;
    ig_tensor *tensors = realloc(s->tensors, bytes);
    if (!tensors) return ig_fail_memory(err, "tensor list", bytes);
    s->tensors = tensors;
    return IG_OK;
}

static ig_status copy_name(ig_tensor *t, const char *name, const char *path, ig_error *err) {
    size_t n = strlen(name);
    if (n == 0 || n > MAX_NAME_BYTES)
        return ig_fail(err, IG_E_FORMAT, "%s: tensor '%.120s': its name has %zu bytes, must be 1 to %d", path, name, n,
                       MAX_NAME_BYTES);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f)
            return ig_fail(err, IG_E_FORMAT, "%s: tensor '%.120s': its name holds a control character", path, name);
    t->name = copy_text(name);
    return t->name ? IG_OK : ig_fail_memory(err, "tensor name", n + 1);
}

/* One entry of a header; `data` is what data_offsets count from. */
static ig_status read_tensor(ig_tensor *t, ig_extent *e, const char *name, const json_t *info, const ig_file *data,
                             const char *path, ig_error *err) {
    if (!json_is_object(info))
        return ig_fail(err, IG_E_FORMAT, "%s: tensor '%.120s': its description is no object", path, name);
    ig_status s = read_dtype(t, info, path, name, err);
    if (!s) s = read_shape(t, info, path, name, err);
    if (!s) s = read_offsets(t, e, info, data, path, name, err);
    if (!s) s = copy_name(t, name, path, err);
    return s;
}

/* Appends the tensors of a parsed header. */
static ig_status add_tensors(ig_safetensors *s, json_t *header, size_t header_bytes, const ig_file *data,
                             const char *path, ig_error *err) {
    const char *name;
    json_t *info;
    size_t first = s->n_tensors, n = json_object_size(header);
    ig_status status = grow_tensors(s, n, header_bytes, path, err);
    if (status) return status;
    ig_extent *extents = calloc(n + 1, sizeof *extents);
    if (!extents) return ig_fail_memory(err, "tensor list", n * sizeof *extents);
    json_object_foreach(header, name, info) {
        if (strcmp(name, "__metadata__") == 0) continue;
        ig_tensor t = {0};
        ig_extent e = {0};
        status = read_tensor(&t, &e, name, info, data, path, err);
        if (status) break;
        e.i = s->n_tensors;
        extents[s->n_tensors - first] = e;
        s->tensors[s->n_tensors++] = t;
    }
    const ig_extent *e = status ? NULL : ig_extents_overlap(extents, s->n_tensors - first);
    if (e)
        status = ig_fail(err, IG_E_FORMAT, "%s: tensors '%.120s' and '%.120s' overlap", path, s->tensors[e[-1].i].name,
                         s->tensors[e->i].name);
    free(extents);
    return status;
}

static ig_status parse_file(ig_safetensors *s, const ig_file *f, const char *path, ig_error *err) {
    uint64_t n;
    if (f->size < sizeof n)
        return ig_fail(err, IG_E_FORMAT, "%s: header length: the file has only %zu bytes", path, f->size);
    memcpy(&n, f->data, sizeof n);
    if (n > MAX_HEADER_BYTES)
        return ig_fail(err, IG_E_FORMAT, "%s: header length %llu is more than the %d allowed", path,
                       (unsigned long long)n, MAX_HEADER_BYTES);
    if (n > f->size - sizeof n)
        return ig_fail(err, IG_E_FORMAT, "%s: header length %llu reaches past the end of the file", path,
                       (unsigned long long)n);
    const char *text = (const char *)f->data + sizeof n;
    if (n == 0 || text[0] != '{') return ig_fail(err, IG_E_FORMAT, "%s: header: no JSON object", path);
    json_t *header;
    ig_status status = ig_json_parse(&header, text, (size_t)n, path, err);
    if (status) return status;
    ig_file data = {.data = f->data + sizeof n + n, .size = f->size - sizeof n - (size_t)n};
    status = add_tensors(s, header, (size_t)n, &data, path, err);
    json_decref(header);
    return status;
}

/* ---- directories ------------------------------------------------------- */

/* Opens one shard; `path` becomes the reader's. */
static ig_status add_shard(ig_safetensors *s, char *path, ig_error *err) {
    if (!path) return ig_fail_memory(err, "shard path", strlen(s->path));
    if (s->n_shards >= MAX_SHARDS) {
        free(path);
        return ig_fail(err, IG_E_LIMIT, "%s: more than %d shards", s->path, MAX_SHARDS);
    }
    shard *shards = realloc(s->shards, (s->n_shards + 1) * sizeof *shards);
    if (!shards) {
        free(path);
        return ig_fail_memory(err, "shard list", (s->n_shards + 1) * sizeof *shards);
    }
    s->shards = shards;
    shard *new_shard = &shards[s->n_shards++];
    *new_shard = (shard){.path = path};
    return ig_file_open(&new_shard->file, path, err);
}

/* Checks that the index says of the tensors from number `first` on that they are in `file`. */
static ig_status check_indexed(const ig_safetensors *s, size_t first, const char *file, const json_t *map,
                               const char *index, ig_error *err) {
    for (size_t i = first; i < s->n_tensors; i++) {
        const char *name = s->tensors[i].name, *stated = json_string_value(json_object_get(map, name));
        if (!stated)
            return ig_fail(err, IG_E_FORMAT, "%s: 'weight_map' lacks tensor '%.120s' of shard '%.80s'", index, name,
                           file);
        if (strcmp(stated, file) != 0)
            return ig_fail(err, IG_E_FORMAT, "%s: 'weight_map' puts tensor '%.120s' into '%.80s', but it is in '%.80s'",
                           index, name, stated, file);
    }
    return IG_OK;
}

/* The data and tensors of the shards that are open, checked against the map of an index unless that is NULL. */
static ig_status read_shards(ig_safetensors *s, const json_t *map, const char *index, ig_loading *copy, ig_error *err) {
    ig_status status = IG_OK;
    for (size_t i = 0; copy && i < s->n_shards; i++) copy->total += s->shards[i].file.size;
    for (size_t i = 0; !status && i < s->n_shards; i++) {
        shard *next = &s->shards[i];
        size_t first = s->n_tensors;
        status = ig_file_take(&next->file, next->path, copy, err);
        if (!status) status = parse_file(s, &next->file, next->path, err);
        if (!status && map) status = check_indexed(s, first, strrchr(next->path, '/') + 1, map, index, err);
    }
    return status;
}

/* A plain file name in the same directory. */
static bool is_plain_name(const char *file) {
    return file[0] && file[0] != '.' && !strchr(file, '/') && !strchr(file, '\\') && !strstr(file, "..");
}

static ig_status add_shards(ig_safetensors *s, const json_t *map, const char *index, ig_error *err) {
    const char *name;
    json_t *file;
    json_t *opened = json_object(); /* the shards already open */
    ig_status status = opened ? IG_OK : ig_fail_memory(err, "shard list", 1);
    json_object_foreach((json_t *)(uintptr_t)map, name, file) {
        if (status) break;
        const char *text = json_string_value(file);
        if (!text || !is_plain_name(text)) {
            status =
                ig_fail(err, IG_E_FORMAT, "%s: 'weight_map': shard '%.80s' of tensor '%.120s' is no plain file name",
                        index, text ? text : "", name);
        } else if (!json_object_get(opened, text)) {
            status = add_shard(s, join_path(s->path, text, ""), err);
            if (!status && json_object_set_new(opened, text, json_true()) != 0)
                status = ig_fail_memory(err, "shard list", strlen(text));
        }
    }
    json_decref(opened);
    return status;
}

static ig_status sort_names(ig_safetensors *s, ig_error *err) {
    free(s->names);
    s->names = calloc(s->n_tensors + 1, sizeof *s->names);
    if (!s->names) return ig_fail_memory(err, "tensor list", s->n_tensors * sizeof *s->names);
    for (size_t i = 0; i < s->n_tensors; i++) s->names[i] = (ig_name){s->tensors[i].name, i};
    const char *twice = ig_names_sort(s->names, s->n_tensors);
    return twice ? ig_fail(err, IG_E_FORMAT, "%s: tensor '%.120s' appears twice", s->path, twice) : IG_OK;
}

static ig_status open_index(ig_safetensors *s, const char *index, ig_loading *copy, ig_error *err) {
    char *text;
    size_t n;
    ig_status status = ig_file_read(&text, &n, index, MAX_INDEX_BYTES, err);
    if (status) return status;
    json_t *root;
    status = ig_json_parse(&root, text, n, index, err);
    free(text);
    if (status) return status;
    json_t *map = json_object_get(root, "weight_map");
    if (!json_is_object(map) || json_object_size(map) == 0)
        status = ig_fail(err, IG_E_FORMAT, "%s: 'weight_map' is missing or no object", index);
    else
        status = add_shards(s, map, index, err);
    if (!status) status = read_shards(s, map, index, copy, err);
    if (!status) status = sort_names(s, err);
    const char *name;
    json_t *file;
    json_object_foreach(map, name, file) {
        if (status) break;
        if (!ig_safetensors_tensor(s, name))
            status = ig_fail(err, IG_E_FORMAT, "%s: 'weight_map': tensor '%.120s' is not in shard '%.80s'", index, name,
                             json_string_value(file));
    }
    json_decref(root);
    return status;
}

static ig_status open_directory(ig_safetensors *s, const char *name, ig_loading *copy, ig_error *err) {
    ig_status status;
    char *single = join_path(s->path, name, ".safetensors");
    char *index = join_path(s->path, name, ".safetensors.index.json");
    char *pickle = join_path(s->path, strcmp(name, "model") == 0 ? "pytorch_model" : name, ".bin");
    if (!single || !index || !pickle) {
        status = ig_fail_memory(err, "path", strlen(s->path));
    } else if (ig_path_exists(single)) {
        status = add_shard(s, single, err);
        single = NULL;
        if (!status) status = read_shards(s, NULL, NULL, copy, err);
    } else if (ig_path_exists(index)) {
        status = open_index(s, index, copy, err);
    } else if (ig_path_exists(pickle)) {
        status = ig_fail(err, IG_E_UNSUPPORTED, "%s: pickled weights are not supported, convert them to safetensors",
                         pickle);
    } else {
        status =
            ig_fail(err, IG_E_NOT_FOUND, "%s: no %s.safetensors and no %s.safetensors.index.json", s->path, name, name);
    }
    free(single);
    free(index);
    free(pickle);
    return status;
}

/* Of a directory, shards called `name`; or of one in memory. */
static ig_status open_reader(ig_safetensors **out, const char *path, const char *name, const ig_file *memory,
                             ig_loading *copy, ig_error *err) {
    *out = NULL;
    ig_safetensors *s = calloc(1, sizeof *s);
    if (!s) return ig_fail_memory(err, "safetensors reader", sizeof *s);
    s->path = copy_text(path);
    ig_status status;
    if (!s->path)
        status = ig_fail_memory(err, "path", strlen(path));
    else
        status = memory ? parse_file(s, memory, path, err) : open_directory(s, name, copy, err);
    if (!status && !s->names) status = sort_names(s, err);
    if (status) {
        ig_safetensors_close(s);
        return status;
    }
    *out = s;
    return IG_OK;
}

ig_status ig_safetensors_open(ig_safetensors **out, const char *directory, const char *name, ig_loading *copy,
                              ig_error *err) {
    return open_reader(out, directory, name, NULL, copy, err);
}

ig_status ig_safetensors_open_memory(ig_safetensors **out, const void *data, size_t n_bytes, const char *name,
                                     ig_error *err) {
    ig_file memory = {.data = data, .size = n_bytes};
    return open_reader(out, name, NULL, &memory, NULL, err);
}

void ig_safetensors_close(ig_safetensors *s) {
    if (!s) return;
    for (size_t i = 0; i < s->n_shards; i++) {
        ig_file_close(&s->shards[i].file);
        free(s->shards[i].path);
    }
    for (size_t i = 0; i < s->n_tensors; i++) free((char *)(uintptr_t)s->tensors[i].name);
    free(s->replaced);
    free(s->shards);
    free(s->tensors);
    free(s->names);
    free(s->path);
    free(s);
}

ig_status ig_safetensors_replace(ig_safetensors *s, const bool *is_gone, const ig_tensor *tensors, size_t n,
                                 void *memory, ig_error *err) {
    size_t n_kept = 0;
    s->replaced = memory;
    for (size_t i = 0; i < s->n_tensors; i++) {
        if (is_gone[i])
            free((char *)(uintptr_t)s->tensors[i].name);
        else
            s->tensors[n_kept++] = s->tensors[i];
    }
    s->n_tensors = n_kept;
    size_t bytes = (n_kept + n + 1) * sizeof *s->tensors;
    ig_tensor *all = realloc(s->tensors, bytes);
    if (!all) {
        for (size_t i = 0; i < n; i++) free((char *)(uintptr_t)tensors[i].name);
        return ig_fail_memory(err, "tensor list", bytes);
    }
    s->tensors = all;
    memcpy(all + n_kept, tensors, n * sizeof *all);
    s->n_tensors += n;
    return sort_names(s, err);
}

bool ig_safetensors_is_replaced(const ig_safetensors *s) { return s->replaced != NULL; }

size_t ig_safetensors_n_tensors(const ig_safetensors *s) { return s->n_tensors; }
const char *ig_safetensors_path(const ig_safetensors *s) { return s->path; }

size_t ig_safetensors_n_files(const ig_safetensors *s) { return s->n_shards; }

const ig_file *ig_safetensors_file(const ig_safetensors *s, size_t i, const char **path) {
    *path = s->shards[i].path;
    return &s->shards[i].file;
}

const char *ig_safetensors_changed(const ig_safetensors *s) {
    for (size_t i = 0; i < s->n_shards; i++)
        if (ig_file_is_changed(&s->shards[i].file)) return s->shards[i].path;
    return NULL;
}

const ig_tensor *ig_safetensors_tensor_at(const ig_safetensors *s, size_t i) {
    return i < s->n_tensors ? &s->tensors[i] : NULL;
}

const ig_tensor *ig_safetensors_tensor(const ig_safetensors *s, const char *name) {
    const ig_name *found = ig_names_find(s->names, s->n_tensors, name);
    return found ? &s->tensors[found->i] : NULL;
}
