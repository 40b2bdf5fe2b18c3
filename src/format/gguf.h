/* SPDX-License-Identifier: Apache-2.0
 *
 * GGUF version 2 and 3, little-endian: untrusted bytes -> metadata and tensor views.
 *
 * ig_gguf_open() checks everything once: magic, counts, every string, array and offset lies inside the file,
 * types are known, products don't overflow, tensors don't overlap, keys are unique. What
 * it hands out afterwards can be used without further checks of bounds, as long as the file keeps its length: metadata
 * are copied, and tensors, whose bytes are only numbers, may change with a mapped file.
 */
#ifndef IG_FORMAT_GGUF_H
#define IG_FORMAT_GGUF_H

#include <string.h>

#include "base/buffer.h"
#include "base/file.h"
#include "format/tensor.h"

typedef struct ig_gguf ig_gguf;

/* GGUF metadata value types, numbered as in the format. */
typedef enum ig_gguf_type {
    IG_GGUF_U8,
    IG_GGUF_I8,
    IG_GGUF_U16,
    IG_GGUF_I16,
    IG_GGUF_U32,
    IG_GGUF_I32,
    IG_GGUF_F32,
    IG_GGUF_BOOL,
    IG_GGUF_STRING,
    IG_GGUF_ARRAY,
    IG_GGUF_U64,
    IG_GGUF_I64,
    IG_GGUF_F64,
} ig_gguf_type;

static inline bool ig_text_equal(ig_text a, ig_text b) {
    return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

static inline bool ig_text_is(ig_text text, const char *wanted) {
    return ig_text_equal(text, (ig_text){wanted, strlen(wanted)});
}

typedef struct ig_gguf_value {
    const char *key; /* NUL-terminated */
    ig_gguf_type type;
    ig_gguf_type item_type;  /* of an array; arrays of arrays are refused */
    uint64_t n_items;        /* of an array, else 1 */
    const uint8_t *data;     /* first item, unaligned, little-endian; of strings their u64 length comes first */
    const uint64_t *offsets; /* arrays of strings: [n_items] offset of each item's bytes from data
                               (its u64 length lies 8 bytes before); else NULL */
} ig_gguf_value;

/* The file is mapped, or copied if `copy` is not NULL. If it is one of a model's several, NAME-00001-of-00003.gguf, all
 * are opened: tensors are those of all, and everything else is of the first. */
ig_status ig_gguf_open(ig_gguf **out, const char *path, ig_loading *copy, ig_error *err);
/* The same from memory of the caller's that outlives the reader and is aligned to 8 bytes; `name` stands for the
 * path in errors. */
ig_status ig_gguf_open_memory(ig_gguf **out, const void *data, size_t n_bytes, const char *name, ig_error *err);
void ig_gguf_close(ig_gguf *g);

size_t ig_gguf_n_values(const ig_gguf *g);
const ig_gguf_value *ig_gguf_value_at(const ig_gguf *g, size_t i);
const ig_gguf_value *ig_gguf_find(const ig_gguf *g, const char *key); /* NULL: absent */
size_t ig_gguf_n_tensors(const ig_gguf *g);
const ig_tensor *ig_gguf_tensor_at(const ig_gguf *g, size_t i);
const ig_tensor *ig_gguf_tensor(const ig_gguf *g, const char *name); /* NULL: absent */

/* Scalars; false if absent (*out is then untouched). A key of the wrong kind or out of range is an error
 * naming file and key: *status is set (once) and err filled. Any integer type is accepted for an integer. */
bool ig_gguf_int(const ig_gguf *g, const char *key, int64_t min, int64_t max, int64_t *out, ig_status *status,
                 ig_error *err);
bool ig_gguf_float(const ig_gguf *g, const char *key, double *out, ig_status *status, ig_error *err);
bool ig_gguf_bool(const ig_gguf *g, const char *key, bool *out, ig_status *status, ig_error *err);
bool ig_gguf_string(const ig_gguf *g, const char *key, ig_text *out, ig_status *status, ig_error *err);

/* Items of an array value of the right item type (i < n_items). */
ig_text ig_gguf_array_string(const ig_gguf_value *v, uint64_t i);
int64_t ig_gguf_array_int(const ig_gguf_value *v, uint64_t i);
double ig_gguf_array_float(const ig_gguf_value *v, uint64_t i);

const char *ig_gguf_path(const ig_gguf *g); /* of the first file */
size_t ig_gguf_n_files(const ig_gguf *g);
const ig_file *ig_gguf_file(const ig_gguf *g, size_t i, const char **path);
/* The path of a mapped file that has changed since it was opened; NULL: none has. */
const char *ig_gguf_changed(const ig_gguf *g);

/* A value as one line of text for people, arrays shortened; snprintf manner. */
size_t ig_gguf_print(const ig_gguf_value *v, char *text, size_t cap);

#endif
