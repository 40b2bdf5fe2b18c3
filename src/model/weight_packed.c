/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights in whole numbers, and in floats of 4 bits: see weight_unpack.h. A whole number stands for (code - zero) times
 * the scale of its group; groups are neighbours in a row, mostly.
 */
#include <limits.h>
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "base/memory.h"
#include "format/names.h"
#include "model/unpacking.h"

enum { ROWS = 8, BLOCK = 32 /* of a tile */, AWQ_BITS = 4 };

/* ---- numbers ------------------------------------------------------------------------------------ */

static uint32_t word_at(const ig_tensor *t, size_t i) {
    uint32_t w;
    memcpy(&w, (const uint8_t *)t->data + i * sizeof w, sizeof w);
    return w;
}

static float scale_of(const ig_unpacked *p, int row, int g) {
    const ig_tensor *t = p->scales;
    size_t i = (size_t)(row * p->scale_row + g * p->scale_column);
    uint16_t half;
    if (t->type == IG_TYPE_F32) return ig_bits_f32(word_at(t, i));
    memcpy(&half, (const uint8_t *)t->data + i * sizeof half, sizeof half);
    return t->type == IG_TYPE_F16 ? ig_f16_f32(half) : ig_bf16_f32(half);
}

/* Where AWQ has number i of eight in a word. */
static const uint8_t awq_places[8] = {0, 4, 1, 5, 2, 6, 3, 7};

static int middle(const ig_unpacked *p) { return 1 << (p->bits - 1); }

static int zero_of(const ig_unpacked *p, int row, int g) {
    if (!p->zeros) return middle(p);
    int in_word = 32 / p->bits, n_words = p->n_out / in_word, n_groups = p->n_in / p->group;
    int word = row / in_word, place = row % in_word;
    size_t at = p->order == IG_CODES_ROWS ? (size_t)word * (size_t)n_groups + (size_t)g
                                          : (size_t)g * (size_t)n_words + (size_t)word;
    if (p->order == IG_CODES_AWQ) place = awq_places[place];
    return (int)(word_at(p->zeros, at) >> (p->bits * place) & ((1u << p->bits) - 1)) + p->zero_offset;
}

/* Codes of n rows, and of BLOCK columns, in words of `bits`. */
static inline void read_words(uint8_t codes[ROWS][BLOCK], const ig_unpacked *p, int row, int n, int column, int bits) {
    const size_t in_word = 32 / (size_t)bits, n_across = (size_t)p->n_in / in_word, n_out = (size_t)p->n_out;
    for (size_t i = 0; i < BLOCK / in_word; i++)
        for (size_t r = 0; r < (size_t)n; r++) {
            size_t x = (size_t)column / in_word + i, y = (size_t)row + r;
            uint32_t word = word_at(p->codes, p->order == IG_CODES_GPTQ ? x * n_out + y : y * n_across + x);
            for (size_t k = 0; k < in_word; k++)
                codes[r][i * in_word + k] = (uint8_t)(word >> ((size_t)bits * k) & ((1u << bits) - 1));
        }
}

static inline void read_awq(uint8_t codes[ROWS][BLOCK], const ig_unpacked *p, int row, int column) {
    for (int i = 0; i < BLOCK; i++) {
        uint32_t word = word_at(p->codes, ((size_t)(column + i) * (size_t)p->n_out + (size_t)row) / ROWS);
        for (int r = 0; r < ROWS; r++) codes[r][i] = (uint8_t)(word >> (AWQ_BITS * awq_places[r]) & 15);
    }
}

static inline void read_bytes(uint8_t codes[ROWS][BLOCK], const ig_unpacked *p, int row, int n, int column) {
    for (int r = 0; r < n; r++) {
        const uint8_t *from = (const uint8_t *)p->codes->data + (size_t)(row + r) * (size_t)p->n_in + (size_t)column;
        for (int i = 0; i < BLOCK; i++) codes[r][i] = from[i] ^ 0x80u;
    }
}

static inline void read_pairs(uint8_t codes[ROWS][BLOCK], const ig_unpacked *p, int row, int n, int column) {
    for (int r = 0; r < n; r++) {
        size_t at = ((size_t)ig_unpack_row(p, row + r) * (size_t)p->n_in + (size_t)column) / 2;
        const uint8_t *from = (const uint8_t *)p->codes->data + at;
        for (int i = 0; i < BLOCK; i++) codes[r][i] = from[i / 2] >> (i % 2 * 4) & 15;
    }
}

static void read_codes(uint8_t codes[ROWS][BLOCK], const ig_unpacked *p, int row, int n, int column) {
    if (p->order == IG_CODES_AWQ)
        read_awq(codes, p, row, column);
    else if (p->order == IG_CODES_BYTES)
        read_bytes(codes, p, row, n, column);
    else if (p->order == IG_CODES_PAIRS)
        read_pairs(codes, p, row, n, column);
    else if (p->bits == 4)
        read_words(codes, p, row, n, column, 4);
    else
        read_words(codes, p, row, n, column, 8);
}

/* What a block of a row begins with in the type that it becomes: scales. Returns the bytes. */
static size_t write_scales(uint8_t *to, const ig_unpacked *p, int row, int column) {
    int g = column / p->group;
    if (p->order == IG_CODES_PAIRS) {
        *to = ((const uint8_t *)p->scales->data)[(size_t)ig_unpack_row(p, row) * (size_t)(p->n_in / BLOCK) + (size_t)g];
        return 1;
    }
    float scale = scale_of(p, row, g);
    const uint16_t halves[] = {ig_f32_f16(scale), ig_f32_f16(-scale * (float)zero_of(p, row, g))};
    size_t n = p->made.type == IG_TYPE_Q4_1 ? sizeof halves : sizeof *halves;
    memcpy(to, halves, n);
    return n;
}

/* A block of Q8_0 of weights that no other one may have. */
static void write_rounded(uint8_t *to, const ig_unpacked *p, const uint8_t codes[BLOCK], int row, int column) {
    float w[BLOCK], most = 0;
    for (int i = 0; i < BLOCK; i++) {
        int g = p->groups ? (int)word_at(p->groups, (size_t)(column + i)) : (column + i) / p->group;
        w[i] = (float)(codes[i] - zero_of(p, row, g)) * scale_of(p, row, g);
        most = fmaxf(most, fabsf(w[i]));
    }
    uint16_t half = ig_f32_f16(most / 127);
    float scale = ig_f16_f32(half);
    memcpy(to, &half, sizeof half);
    for (int i = 0; i < BLOCK; i++)
        to[sizeof half + (size_t)i] = (uint8_t)(int8_t)(scale > 0 ? fmaxf(-127, fminf(rintf(w[i] / scale), 127)) : 0);
}

static void write_block(uint8_t *to, const ig_unpacked *p, const uint8_t codes[BLOCK], int row, int column) {
    if (p->is_rounded) {
        write_rounded(to, p, codes, row, column);
        return;
    }
    to += write_scales(to, p, row, column);
    for (int i = 0; i < BLOCK && p->bits == 8; i++) to[i] = codes[i] ^ 0x80u;
    for (int i = 0; i < BLOCK / 2 && p->bits == 4; i++) to[i] = (uint8_t)(codes[i] | codes[i + BLOCK / 2] << 4);
}

/* n rows, at most ROWS, tile by tile. */
static void write_some(uint8_t *to, const ig_unpacked *p, int row, int n, size_t row_bytes) {
    size_t block_bytes = (size_t)ig_type_get((uint32_t)p->made.type)->block_bytes;
    for (int i = 0; i < p->n_in; i += BLOCK, to += block_bytes) {
        uint8_t codes[ROWS][BLOCK];
        read_codes(codes, p, row, n, i);
        for (int r = 0; r < n; r++) write_block(to + (size_t)r * row_bytes, p, codes[r], row + r, i);
    }
}

static void write_tiles(uint8_t *to, const ig_unpacked *p, int row, int n, size_t row_bytes) {
    for (int i = 0; i < n; i += ROWS)
        write_some(to + (size_t)i * row_bytes, p, row + i, ig_min_int(n - i, ROWS), row_bytes);
}

/* A row of NVFP4: blocks of 64 with four scales in front. */
static void write_sixteen(uint8_t *to, const ig_unpacked *p, int row) {
    const size_t n_in = (size_t)p->n_in, y = (size_t)row;
    const uint8_t *codes = (const uint8_t *)p->codes->data + y * n_in / 2,
                  *scales = (const uint8_t *)p->scales->data + y * n_in / 16;
    for (size_t i = 0; i < n_in; i += 16, codes += 8) {
        uint8_t *block = to + i / 64 * 36, *pairs = block + 4 + i % 64 / 2;
        block[i % 64 / 16] = *scales++;
        for (int k = 0; k < 8; k++) {
            int shift = k % 2 * 4;
            pairs[k] = (uint8_t)((codes[k / 2] >> shift & 15) | (codes[k / 2 + 4] >> shift & 15) << 4);
        }
    }
}

static void write_sixteens(uint8_t *to, const ig_unpacked *p, int row, int n, size_t row_bytes) {
    for (int i = 0; i < n; i++) write_sixteen(to + (size_t)i * row_bytes, p, row + i);
}

static void write_factor(uint8_t *to, const ig_unpacked *p, int row, int n, size_t row_bytes) {
    (void)row, (void)n, (void)row_bytes;
    memcpy(to, &p->factor, sizeof p->factor);
}

/* ---- what there is ------------------------------------------------------------------------------ */

/* Whether it is a matrix of such elements, n_rows times n_cols of them. */
static bool is_matrix(const ig_tensor *t, ig_type type, int64_t n_rows, int64_t n_cols) {
    return t->type == type && t->n_dims == 2 && t->dims[1] == (uint64_t)n_rows && t->dims[0] == (uint64_t)n_cols;
}

/* Whose columns are in which group, unless these lie one behind the other; then numbers below 0 say nothing. */
static void set_groups(ig_unpacker *u, ig_unpacked *p, const ig_tensor *groups) {
    bool are_in_order = true, are_known = true;
    if (!groups || u->status) return;
    if (groups->type != IG_TYPE_I32 || groups->n_dims != 1 || groups->dims[0] != (uint64_t)p->n_in) {
        ig_unpack_fail(u, groups, "does not have a number for each column");
        return;
    }
    for (int i = 0; i < p->n_in; i++) {
        int32_t g = (int32_t)word_at(groups, (size_t)i);
        are_in_order = are_in_order && (g < 0 || g == i / p->group);
        are_known = are_known && g >= 0 && g < p->n_in / p->group;
    }
    if (are_in_order) return;
    if (!are_known) ig_unpack_fail(u, groups, "holds numbers that are not those of groups");
    p->groups = groups;
}

/* All scales must be such that 16-bit floats hold them. */
static void check_numbers(ig_unpacker *u, ig_unpacked *p) {
    bool are_in_middle = true;
    for (int row = 0; row < p->n_out && !u->status; row++)
        for (int g = 0; g < p->n_in / p->group; g++) {
            int zero = zero_of(p, row, g);
            if (!(fabsf(scale_of(p, row, g)) * 512 < 65504)) {
                ig_unpack_fail(u, p->scales, "holds a scale that 16-bit floats do not");
                return;
            }
            are_in_middle = are_in_middle && zero == middle(p);
        }
    p->is_rounded = p->groups || p->group % BLOCK || (p->bits == 8 && !are_in_middle);
    p->made.type = p->is_rounded || p->bits == 8 ? IG_TYPE_Q8_0 : are_in_middle ? IG_TYPE_Q4_0 : IG_TYPE_Q4_1;
}

/* A matrix of whole numbers with codes, scales and zeros of these sizes. */
static void add(ig_unpacker *u, ig_unpacked p, size_t n_end, const ig_tensor *groups) {
    if (!u->status && p.n_in % BLOCK)
        ig_unpack_fail(u, p.codes, "has rows of no multiple of 32 weights, which is not supported");
    set_groups(u, &p, groups);
    p.write = write_tiles;
    if (!u->status) check_numbers(u, &p);
    ig_unpack_put(u, p, n_end, ".weight", 0);
}

/* AWQ's and GPTQ's tell themselves and their bits by their shapes. */
static void add_quantized(ig_unpacker *u, const ig_tensor *t, size_t n_end) {
    const ig_tensor *scales = ig_unpack_take(u, t, n_end, ".scales", true),
                    *zeros = ig_unpack_take(u, t, n_end, ".qzeros", true),
                    *groups = ig_unpack_take(u, t, n_end, ".g_idx", false);
    if (u->status) return;
    int64_t n_out = (int64_t)scales->dims[0], n_groups = (int64_t)scales->dims[1], n_words = (int64_t)zeros->dims[0],
            width = (int64_t)t->dims[0], height = (int64_t)t->dims[1];
    int64_t bits = n_out > 0 ? 32 * n_words / n_out : 0,
            n_in = width == n_out ? height * 32 / (bits ? bits : 1) : height;
    ig_unpacked p = {
        .codes = t, .scales = scales, .zeros = zeros, .order = width == n_out ? IG_CODES_GPTQ : IG_CODES_AWQ};
    bool is_awq = p.order == IG_CODES_AWQ;
    if ((bits != 4 && (bits != 8 || is_awq)) || 32 * n_words != n_out * bits || n_out > INT_MAX || n_in > INT_MAX ||
        n_groups > n_in || n_in % n_groups || !ig_type_is_float(scales->type) || scales->n_dims != 2 ||
        !is_matrix(zeros, IG_TYPE_I32, n_groups, n_words) ||
        !is_matrix(t, IG_TYPE_I32, is_awq ? n_in : n_in * bits / 32, is_awq ? n_words : n_out)) {
        ig_unpack_fail(u, t, "and its scales and zeros do not have the shapes of AWQ's or GPTQ's in 4 or 8 bits");
        return;
    }
    p.bits = (int)bits, p.n_out = (int)n_out, p.n_in = (int)n_in, p.group = (int)(n_in / n_groups);
    p.scale_row = 1, p.scale_column = n_out;
    p.zero_offset = is_awq ? 0 : u->c->file.zero_offset;
    add(u, p, n_end, groups);
}

/* Sizes of the scales: of groups of a row, of rows, or one. */
static bool set_scales(ig_unpacked *p) {
    const ig_tensor *t = p->scales;
    uint64_t across = t->dims[0], down = t->dims[1];
    if (!ig_type_is_float(t->type) || t->n_dims > 2) return false;
    if (t->n_dims == 1) down = across, across = 1;
    if (down != (uint64_t)p->n_out && (down != 1 || across != 1)) return false;
    if (across > (uint64_t)p->n_in || (uint64_t)p->n_in % across) return false;
    p->group = p->n_in / (int)across;
    p->scale_row = down == 1 ? 0 : (int64_t)across;
    p->scale_column = across == 1 ? 0 : 1;
    return true;
}

/* Those of compressed-tensors; `shape` states that of the matrix. */
static void add_compressed(ig_unpacker *u, const ig_tensor *t, size_t n_end) {
    const ig_tensor *shape = ig_unpack_take(u, t, n_end, ".weight_shape", true);
    ig_unpacked p = {.codes = t, .order = IG_CODES_ROWS};
    int64_t sizes[2] = {0};
    p.scales = ig_unpack_take(u, t, n_end, ".weight_scale", true);
    p.zeros = ig_unpack_take(u, t, n_end, ".weight_zero_point", false);
    const ig_tensor *groups = ig_unpack_take(u, t, n_end, ".weight_g_idx", false);
    if (u->status) return;
    if ((shape->type == IG_TYPE_I64 || shape->type == IG_TYPE_I32) && shape->n_dims == 1 && shape->dims[0] == 2)
        for (size_t i = 0; i < 2; i++) {
            sizes[i] = (int32_t)word_at(shape, i);
            if (shape->type == IG_TYPE_I64) memcpy(&sizes[i], (const int64_t *)shape->data + i, sizeof sizes[i]);
        }
    bool is_known = sizes[0] > 0 && sizes[1] > 0 && sizes[0] <= INT_MAX && sizes[1] <= INT_MAX;
    int64_t bits = is_known ? 32 * (int64_t)t->dims[0] / sizes[1] : 0;
    p.bits = (int)bits, p.n_out = (int)sizes[0], p.n_in = (int)sizes[1];
    is_known = is_known && (bits == 4 || bits == 8) && sizes[1] * bits % 32 == 0 &&
               is_matrix(t, IG_TYPE_I32, sizes[0], sizes[1] * bits / 32) && set_scales(&p);
    if (is_known && p.zeros)
        is_known = sizes[0] * bits % 32 == 0 && is_matrix(p.zeros, IG_TYPE_I32, sizes[0] * bits / 32, p.n_in / p.group);
    if (is_known)
        add(u, p, n_end, groups);
    else
        ig_unpack_fail(u, t, "and its scales, zeros and shape do not fit each other");
}

static void add_bytes(ig_unpacker *u, const ig_tensor *t, size_t n_end) {
    ig_unpacked p = {.codes = t, .order = IG_CODES_BYTES, .bits = 8};
    p.scales = ig_unpack_take(u, t, n_end, ".weight_scale", true);
    if (u->status) return;
    if (t->n_dims == 2 && t->dims[0] <= INT_MAX && t->dims[1] <= INT_MAX)
        p.n_in = (int)t->dims[0], p.n_out = (int)t->dims[1];
    if (ig_unpack_take(u, t, n_end, ".weight_zero_point", false))
        ig_unpack_fail(u, t, "has zeros, which is not supported with 8 bits");
    else if (!p.n_in || !set_scales(&p))
        ig_unpack_fail(u, t, "and its scales do not fit each other");
    else
        add(u, p, n_end, NULL);
}

/* Floats of 4 bits, of all experts. */
static void add_floats(ig_unpacker *u, const ig_tensor *t, size_t n_end) {
    const ig_tensor *scales = ig_unpack_take(u, t, n_end, "_scales", true);
    const uint64_t *d = t->dims;
    ig_unpacked p = {
        .codes = t, .scales = scales, .write = write_tiles, .order = IG_CODES_PAIRS, .bits = 4, .group = BLOCK};
    if (u->status) return;
    if (t->n_dims != 4 || d[0] != BLOCK / 2 || d[1] > INT_MAX / BLOCK || d[2] > INT_MAX / d[3] ||
        scales->type != IG_TYPE_U8 || scales->n_dims != 3 || memcmp(scales->dims, d + 1, 3 * sizeof *d) != 0) {
        ig_unpack_fail(u, t, "and its scales do not have the shapes of MXFP4's");
        return;
    }
    p.n_in = (int)d[1] * BLOCK;
    p.n_out = (int)(d[2] * d[3]);
    if (ig_name_ends_with(t->name, "gate_up_proj_blocks")) p.n_mixed = (int)d[2];
    if (p.n_mixed % 2) ig_unpack_fail(u, t, "has an odd number of rows");
    p.made.type = IG_TYPE_MXFP4;
    ig_unpack_put(u, p, n_end, "", (int)d[3]);
}

/* The number of a tensor of one; 0: it is none. */
static float number_of(const ig_tensor *t) {
    float x = t && t->type == IG_TYPE_F32 && t->n_bytes == sizeof x ? ig_bits_f32(word_at(t, 0)) : 0;
    return isfinite(x) && x > 0 ? x : 0;
}

/* Scales have no sign, and all are numbers. */
static bool are_scales(const ig_tensor *t) {
    const uint8_t *code = t->data;
    for (size_t i = 0; i < t->n_bytes; i++)
        if (code[i] >= IG_F8_NAN) return false;
    return true;
}

static void add_sixteens(ig_unpacker *u, const ig_tensor *t, size_t n_end) {
    const ig_tensor *divisor = ig_unpack_take(u, t, n_end, ".weight_global_scale", false);
    ig_unpacked p = {.codes = t, .write = write_sixteens},
                f = {.codes = t, .write = write_factor, .n_in = 1, .n_out = 1};
    p.scales = ig_unpack_take(u, t, n_end, ".weight_scale", true);
    float whole = number_of(divisor ? divisor : ig_unpack_take(u, t, n_end, ".weight_scale_2", true));
    if (u->status) return;
    if (t->n_dims != 2 || t->dims[0] > INT_MAX / 2 || t->dims[0] % 32 || t->dims[1] > INT_MAX || !(whole > 0) ||
        !is_matrix(p.scales, IG_TYPE_F8_E4M3, (int64_t)t->dims[1], (int64_t)t->dims[0] / 8) || !are_scales(p.scales)) {
        ig_unpack_fail(u, t, "and its scales are not those of NVFP4, in rows of a multiple of 64");
        return;
    }
    p.n_in = 2 * (int)t->dims[0], p.n_out = (int)t->dims[1];
    p.made.type = IG_TYPE_NVFP4;
    ig_unpack_put(u, p, n_end, ".weight", 0);
    f.factor = divisor ? 1 / whole : whole;
    f.made.type = IG_TYPE_F32, f.made.n_dims = 1;
    ig_unpack_put(u, f, n_end, ".scale", 0);
}

void ig_unpack_packed(ig_unpacker *u) {
    static const struct {
        const char *end;
        ig_type type;
        void (*add)(ig_unpacker *u, const ig_tensor *t, size_t n_end);
    } forms[] = {{".qweight", IG_TYPE_I32, add_quantized}, {".weight_packed", IG_TYPE_I32, add_compressed},
                 {".weight", IG_TYPE_I8, add_bytes},       {".weight_packed", IG_TYPE_U8, add_sixteens},
                 {".weight", IG_TYPE_U8, add_sixteens},    {"_blocks", IG_TYPE_U8, add_floats}};
    for (size_t i = 0; i < ig_safetensors_n_tensors(u->s); i++)
        for (size_t k = 0; k < IG_COUNT(forms) && !u->status; k++) {
            const ig_tensor *t = ig_safetensors_tensor_at(u->s, i);
            if (t->type == forms[k].type && ig_name_ends_with(t->name, forms[k].end))
                forms[k].add(u, t, strlen(forms[k].end));
        }
}
