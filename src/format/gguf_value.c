/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading GGUF metadata values: scalars with checks that name file and key, array items, and values as text.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "format/gguf.h"

static const char *const type_names[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                         "bool", "string", "array", "u64", "i64", "f64"};

static bool is_int(ig_gguf_type t) { return t <= IG_GGUF_I32 || t == IG_GGUF_U64 || t == IG_GGUF_I64; }

/* Item i as an integer; a u64 above INT64_MAX becomes INT64_MAX. */
static int64_t load_int(ig_gguf_type type, const uint8_t *data, uint64_t i) {
    union {
        uint8_t u8;
        int8_t i8;
        uint16_t u16;
        int16_t i16;
        uint32_t u32;
        int32_t i32;
        uint64_t u64;
        int64_t i64;
    } u;
#define LOAD(field) memcpy(&u.field, data + i * sizeof u.field, sizeof u.field)
    /* clang-format off */
    switch (type) {
    case IG_GGUF_BOOL:
    case IG_GGUF_U8: LOAD(u8); return u.u8;
    case IG_GGUF_I8: LOAD(i8); return u.i8;
    case IG_GGUF_U16: LOAD(u16); return u.u16;
    case IG_GGUF_I16: LOAD(i16); return u.i16;
    case IG_GGUF_U32: LOAD(u32); return u.u32;
    case IG_GGUF_I32: LOAD(i32); return u.i32;
    case IG_GGUF_U64: LOAD(u64); return u.u64 > INT64_MAX ? INT64_MAX : (int64_t)u.u64;
    case IG_GGUF_I64: LOAD(i64); return u.i64;
    default: return 0;
    }
        /* clang-format on */
#undef LOAD
}

static double load_float(ig_gguf_type type, const uint8_t *data, uint64_t i) {
    float f;
    double d;
    if (type == IG_GGUF_F32) {
        memcpy(&f, data + i * sizeof f, sizeof f);
        return (double)f;
    }
    if (type == IG_GGUF_F64) {
        memcpy(&d, data + i * sizeof d, sizeof d);
        return d;
    }
    return (double)load_int(type, data, i);
}

/* Item i; a single string is item 0. */
static ig_text load_string(const ig_gguf_value *v, uint64_t i) {
    uint64_t n, at = v->offsets ? v->offsets[i] : sizeof n;
    memcpy(&n, v->data + at - sizeof n, sizeof n);
    return (ig_text){(const char *)v->data + at, (size_t)n};
}

static void set_wrong_kind(const ig_gguf *g, const ig_gguf_value *v, const char *wanted, ig_status *status,
                           ig_error *err) {
    if (*status) return;
    *status = ig_fail(err, IG_E_FORMAT, "%s: key '%.80s' is of type %s, must be %s", ig_gguf_path(g), v->key,
                      type_names[v->type], wanted);
}

bool ig_gguf_int(const ig_gguf *g, const char *key, int64_t min, int64_t max, int64_t *out, ig_status *status,
                 ig_error *err) {
    const ig_gguf_value *v = ig_gguf_find(g, key);
    if (!v) return false;
    if (!is_int(v->type)) {
        set_wrong_kind(g, v, "an integer", status, err);
        return false;
    }
    int64_t x = load_int(v->type, v->data, 0);
    if (x < min || x > max) {
        if (!*status)
            *status = ig_fail(err, IG_E_FORMAT, "%s: key '%.80s' is %" PRId64 ", must be %" PRId64 " to %" PRId64,
                              ig_gguf_path(g), key, x, min, max);
        return false;
    }
    *out = x;
    return true;
}

bool ig_gguf_float(const ig_gguf *g, const char *key, double *out, ig_status *status, ig_error *err) {
    const ig_gguf_value *v = ig_gguf_find(g, key);
    if (!v) return false;
    if (v->type != IG_GGUF_F32 && v->type != IG_GGUF_F64 && !is_int(v->type)) {
        set_wrong_kind(g, v, "a number", status, err);
        return false;
    }
    double x = load_float(v->type, v->data, 0);
    if (!isfinite(x)) {
        if (!*status) *status = ig_fail(err, IG_E_FORMAT, "%s: key '%.80s' is not finite", ig_gguf_path(g), key);
        return false;
    }
    *out = x;
    return true;
}

bool ig_gguf_bool(const ig_gguf *g, const char *key, bool *out, ig_status *status, ig_error *err) {
    const ig_gguf_value *v = ig_gguf_find(g, key);
    if (!v) return false;
    if (v->type != IG_GGUF_BOOL) {
        set_wrong_kind(g, v, "bool", status, err);
        return false;
    }
    *out = v->data[0] != 0;
    return true;
}

bool ig_gguf_string(const ig_gguf *g, const char *key, ig_text *out, ig_status *status, ig_error *err) {
    const ig_gguf_value *v = ig_gguf_find(g, key);
    if (!v) return false;
    if (v->type != IG_GGUF_STRING) {
        set_wrong_kind(g, v, "string", status, err);
        return false;
    }
    *out = load_string(v, 0);
    return true;
}

ig_text ig_gguf_array_string(const ig_gguf_value *v, uint64_t i) { return load_string(v, i); }
int64_t ig_gguf_array_int(const ig_gguf_value *v, uint64_t i) { return load_int(v->item_type, v->data, i); }
double ig_gguf_array_float(const ig_gguf_value *v, uint64_t i) { return load_float(v->item_type, v->data, i); }

/* ---- values as text ---------------------------------------------------- */

enum { PRINT_ITEMS = 8 };

typedef struct writer {
    char *text;
    size_t cap, size; /* size: what is wanted so far */
} writer;

static void put(writer *w, const char *text, size_t n) {
    if (w->size < w->cap) memcpy(w->text + w->size, text, n < w->cap - w->size ? n : w->cap - w->size);
    w->size += n;
}

/* A string in quotes if asked for; control characters as escapes. */
static void put_string(writer *w, ig_text s, bool quoted) {
    if (quoted) put(w, "\"", 1);
    for (size_t i = 0; i < s.size; i++) {
        unsigned char c = (unsigned char)s.data[i];
        char escape[8];
        if (c == '\n') {
            put(w, "\\n", 2);
        } else if (quoted && (c == '"' || c == '\\')) {
            put(w, "\\", 1);
            put(w, &s.data[i], 1);
        } else if (c < 0x20 || c == 0x7f) {
            put(w, escape, (size_t)snprintf(escape, sizeof escape, "\\x%02x", c));
        } else {
            put(w, &s.data[i], 1);
        }
    }
    if (quoted) put(w, "\"", 1);
}

static void put_item(writer *w, const ig_gguf_value *v, uint64_t i) {
    char number[64];
    int n;
    if (v->item_type == IG_GGUF_STRING) {
        put_string(w, load_string(v, i), v->type == IG_GGUF_ARRAY);
        return;
    }
    if (v->item_type == IG_GGUF_BOOL)
        n = snprintf(number, sizeof number, "%s", v->data[i] ? "true" : "false");
    else if (v->item_type == IG_GGUF_F32 || v->item_type == IG_GGUF_F64)
        n = snprintf(number, sizeof number, "%.*g", v->item_type == IG_GGUF_F32 ? 7 : 15,
                     load_float(v->item_type, v->data, i));
    else if (v->item_type == IG_GGUF_U64)
        n = snprintf(number, sizeof number, "%" PRIu64, (uint64_t)load_int(IG_GGUF_I64, v->data, i));
    else
        n = snprintf(number, sizeof number, "%" PRId64, load_int(v->item_type, v->data, i));
    put(w, number, (size_t)n);
}

size_t ig_gguf_print(const ig_gguf_value *v, char *text, size_t cap) {
    writer w = {text, cap ? cap - 1 : 0, 0};
    bool is_array = v->type == IG_GGUF_ARRAY;
    if (is_array) put(&w, "[", 1);
    for (uint64_t i = 0; i < v->n_items && i < PRINT_ITEMS; i++) {
        if (i) put(&w, ", ", 2);
        put_item(&w, v, i);
    }
    if (is_array && v->n_items > PRINT_ITEMS) {
        char rest[64];
        put(&w, rest, (size_t)snprintf(rest, sizeof rest, ", ... (%" PRIu64 " items)", v->n_items));
    }
    if (is_array) put(&w, "]", 1);
    if (cap) text[w.size < w.cap ? w.size : w.cap] = 0;
    return w.size;
}
