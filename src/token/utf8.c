/* SPDX-License-Identifier: Apache-2.0
 *
 * UTF-8 stepping, repair and normal forms. Character properties come from utf8proc. Its own normaliser sorts
 * combining marks by exchanging neighbours, which is quadratic on long runs of them, so the
 * decomposition here sorts runs itself and leaves only the composition to utf8proc.
 */
#include "token/utf8.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

size_t ig_utf8_next(const char *text, size_t n, uint32_t *code) {
    const unsigned char *p = (const unsigned char *)text;
    unsigned char c = p[0];
    if (c < 0x80) {
        *code = c;
        return 1;
    }
    size_t size = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;
    if (c < 0xc2 || c > 0xf4 || size > n) return 0;
    uint32_t u = c & (0xffu >> (size + 1));
    for (size_t i = 1; i < size; i++) {
        if ((p[i] & 0xc0) != 0x80) return 0;
        u = u << 6 | (p[i] & 0x3fu);
    }
    if ((size == 3 && (u < 0x800 || (u >= 0xd800 && u < 0xe000))) || (size == 4 && (u < 0x10000 || u > 0x10ffff)))
        return 0;
    *code = u;
    return size;
}

bool ig_utf8_is_space(uint32_t c) {
    return (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) ||
           c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool ig_utf8_is_word(uint32_t c) {
    switch (utf8proc_category((utf8proc_int32_t)c)) {
        case UTF8PROC_CATEGORY_LU:
        case UTF8PROC_CATEGORY_LL:
        case UTF8PROC_CATEGORY_LT:
        case UTF8PROC_CATEGORY_LM:
        case UTF8PROC_CATEGORY_LO:
        case UTF8PROC_CATEGORY_MN:
        case UTF8PROC_CATEGORY_MC:
        case UTF8PROC_CATEGORY_ME:
        case UTF8PROC_CATEGORY_ND:
        case UTF8PROC_CATEGORY_NL:
        case UTF8PROC_CATEGORY_PC:
            return true;
        default:
            return c == 0x200c || c == 0x200d || (c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) ||
                   (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189);
    }
}

const char *ig_utf8_repair(ig_buffer *copy, const char *text, size_t n) {
    uint32_t code;
    bool copied = false;
    for (size_t at = 0, size; at < n; at += size) {
        size = ig_utf8_next(text + at, n - at, &code);
        /* PCRE2 counts U+180E as a space, Unicode does not; U+200B is of the same kind otherwise. */
        if (size && code != 0x180e) continue;
        if (!copied) {
            copy->size = 0;
            ig_buffer_add(copy, text, n);
            if (copy->failed) return NULL;
            copied = true;
        }
        memcpy(copy->data + at, size ? "\xe2\x80\x8b" : "\x1a", size ? size : 1);
        if (!size) size = 1;
    }
    return copied ? copy->data : text;
}

typedef struct code_buffer { /* decomposed characters of a chunk */
    utf8proc_int32_t *codes;
    size_t n, cap;
} code_buffer;

/* Room for n more; false without memory. */
static bool reserve_codes(code_buffer *b, size_t n) {
    if (b->cap - b->n >= n) return true;
    size_t cap = (b->n + n) * 2;
    utf8proc_int32_t *codes = realloc(b->codes, cap * sizeof *codes);
    if (!codes) return false;
    b->codes = codes;
    b->cap = cap;
    return true;
}

static int combining_class(utf8proc_int32_t code) {
    return code < 0x300 ? 0 : utf8proc_get_property(code)->combining_class;
}

/* Stable counting sort of a run of combining marks by their class. */
static bool sort_marks(utf8proc_int32_t *codes, size_t n) {
    bool sorted = true;
    for (size_t i = 1; i < n && sorted; i++) sorted = combining_class(codes[i - 1]) <= combining_class(codes[i]);
    if (sorted) return true;
    utf8proc_int32_t *copy = malloc(n * sizeof *copy);
    if (!copy) return false;
    size_t starts[257] = {0};
    memcpy(copy, codes, n * sizeof *copy);
    for (size_t i = 0; i < n; i++) starts[combining_class(copy[i]) + 1]++;
    for (int c = 0; c < 256; c++) starts[c + 1] += starts[c];
    for (size_t i = 0; i < n; i++) codes[starts[combining_class(copy[i])]++] = copy[i];
    free(copy);
    return true;
}

static bool sort_all_marks(code_buffer *b) {
    for (size_t i = 0; i < b->n;) {
        size_t end = i;
        while (end < b->n && combining_class(b->codes[end]) != 0) end++;
        if (end > i + 1 && !sort_marks(b->codes + i, end - i)) return false;
        i = end + 1;
    }
    return true;
}

/* Normalises a chunk of valid UTF-8 that begins where nothing before it can combine. */
static bool normalize_chunk(ig_buffer *out, code_buffer *b, const char *text, size_t n, ig_normal_form form) {
    utf8proc_option_t options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
    if (form == IG_NORMAL_NFKC || form == IG_NORMAL_NFKD) options |= UTF8PROC_COMPAT;
    uint32_t code;
    b->n = 0;
    for (size_t at = 0; at < n;) {
        at += ig_utf8_next(text + at, n - at, &code);
        if (!reserve_codes(b, 32)) return false; /* the longest decomposition is 18 */
        utf8proc_ssize_t k = utf8proc_decompose_char((utf8proc_int32_t)code, b->codes + b->n, 32, options, NULL);
        if (k < 0 || k > 32) return false;
        b->n += (size_t)k;
    }
    if (!sort_all_marks(b)) return false;
    if (form == IG_NORMAL_NFC || form == IG_NORMAL_NFKC) {
        utf8proc_ssize_t k =
            utf8proc_normalize_utf32(b->codes, (utf8proc_ssize_t)b->n, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
        if (k < 0) return false;
        b->n = (size_t)k;
    }
    for (size_t i = 0; i < b->n; i++) {
        utf8proc_uint8_t bytes[4];
        ig_buffer_add(out, bytes, (size_t)utf8proc_encode_char(b->codes[i], bytes));
    }
    return !out->failed;
}

bool ig_utf8_normalize(ig_buffer *out, const char *text, size_t n, ig_normal_form form) {
    code_buffer b = {0};
    uint32_t code;
    bool ok = true;
    for (size_t start = 0, at = 0, size = 0; start < n && ok; start = at) {
        while (at < n && (unsigned char)text[at] < 0x80) at++;
        size_t plain = at - start; /* ASCII, already in every normal form */
        if (at < n) size = ig_utf8_next(text + at, n - at, &code);
        /* The last of it may combine with what follows. */
        if (at < n && size && plain) plain--;
        ig_buffer_add(out, text + start, plain);
        if (at == n) break;
        if (size == 0) { /* an invalid byte combines with nothing */
            ig_buffer_add(out, text + at++, 1);
            continue;
        }
        while (at < n && (unsigned char)text[at] >= 0x80 && (size = ig_utf8_next(text + at, n - at, &code)) != 0)
            at += size;
        ok = normalize_chunk(out, &b, text + start + plain, at - start - plain, form);
    }
    free(b.codes);
    return ok && !out->failed;
}

bool ig_utf8_decode_letters(ig_buffer *out, const char *text, size_t n) {
    for (size_t at = 0, size; at < n; at += size) {
        uint32_t c;
        size = ig_utf8_next(text + at, n - at, &c);
        if (size == 0) return false;
        if (c >= 0x100 && c < 0x144) { /* 0..32, 127..160, 173 in order */
            c -= 0x100;
            c = c < 33 ? c : c < 67 ? c + 94 : 173;
        } else if (c < 33 || c > 255 || (c > 126 && c < 161) || c == 173) {
            return false;
        }
        char byte = (char)c;
        ig_buffer_add(out, &byte, 1);
    }
    return true;
}
