/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights that are packed: see weight_unpack.h. All of them are found and checked first, then one block of memory is
 * taken, and then they are written to it, tile by tile. A weight in whole numbers is (code - zero) times the scale of
 * its group; groups are neighbours in a row, mostly.
 */
#include "model/weight_unpack.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/half.h"
#include "base/memory.h"
#include "format/names.h"

enum { ROWS = 8, BLOCK = 32 /* of a tile */, TASK_ROWS = 64, AWQ_BITS = 4 };

/* Where codes lie; words have 32 bits, eight codes of 4 or four of 8. */
typedef enum code_order {
    OF_AWQ,   /* qweight [n_in][words of rows], qzeros [groups][words of rows], scales [groups][n_out] */
    OF_GPTQ,  /* qweight [words of columns][n_out], qzeros and scales alike, g_idx [n_in]: the group of each column */
    OF_ROWS,  /* compressed-tensors: weight_packed [n_out][words of columns], weight_scale [n_out][groups],
                 weight_zero_point [words of rows][groups] or none, weight_shape */
    OF_BYTES, /* weight [n_out][n_in] with a sign, and weight_scale */
    OF_PAIRS, /* gpt-oss, floats of 4 bits: gate_up_proj_blocks [experts][n_out][n_in / 32][16], whose rows are of gate
                 and up in turn, down_proj_blocks, and _scales [experts][n_out][n_in / 32], exponents */
    OF_SIXTEENS, /* NVFP4: weight_packed (modelopt: weight) [n_out][n_in / 2] pairs, weight_scale [n_out][n_in / 16] in
                    FP8, and for all of a matrix a divisor, weight_global_scale (modelopt: a factor, weight_scale_2) */
    OF_FACTOR,   /* that as a tensor of its own */
    OF_COLUMNS,  /* floats of experts as they are, ig_expert_order */
    OF_HEADS,    /* floats of q, k and v, or their biases, are_heads_mixed */
} code_order;

typedef struct packed {
    const ig_tensor *codes, *scales, *zeros; /* zeros == NULL: all are in the middle */
    const ig_tensor *groups;                 /* [n_in] int32; NULL: columns lie in groups one behind the other */
    bool is_rounded; /* no type has such groups or zeros: weights become Q8_0 with scales of their own */
    code_order order;
    int bits, n_out, n_in, group, zero_offset;
    int64_t scale_row, scale_column; /* how far the next one is */
    float factor;                    /* OF_FACTOR */
    int n_mixed; /* rows of a matrix, of which every other one belongs to its second half; 0: they are in order */
    int n_rows;  /* OF_COLUMNS: of a matrix; OF_HEADS: of a head */
    ig_tensor made;
} packed;

typedef struct unpacker {
    ig_safetensors *s;
    ig_device *d;
    const ig_config *c;
    bool *is_gone; /* [tensors] */
    packed *all;   /* [n], at most so many */
    size_t n, n_bytes;
    ig_status status; /* the first failure */
    ig_error *err;
} unpacker;

/* ---- numbers ------------------------------------------------------------------------------------ */

static uint32_t word_at(const ig_tensor *t, size_t i) {
    uint32_t w;
    memcpy(&w, (const uint8_t *)t->data + i * sizeof w, sizeof w);
    return w;
}

static float scale_of(const packed *p, int row, int g) {
    const ig_tensor *t = p->scales;
    size_t i = (size_t)(row * p->scale_row + g * p->scale_column);
    uint16_t half;
    if (t->type == IG_TYPE_F32) return ig_bits_f32(word_at(t, i));
    memcpy(&half, (const uint8_t *)t->data + i * sizeof half, sizeof half);
    return t->type == IG_TYPE_F16 ? ig_f16_f32(half) : ig_bf16_f32(half);
}

/* Where AWQ has number i of eight in a word. */
static const uint8_t awq_places[8] = {0, 4, 1, 5, 2, 6, 3, 7};

static int middle(const packed *p) { return 1 << (p->bits - 1); }

static int zero_of(const packed *p, int row, int g) {
    if (!p->zeros) return middle(p);
    int in_word = 32 / p->bits, n_words = p->n_out / in_word, n_groups = p->n_in / p->group;
    int word = row / in_word, place = row % in_word;
    size_t at =
        p->order == OF_ROWS ? (size_t)word * (size_t)n_groups + (size_t)g : (size_t)g * (size_t)n_words + (size_t)word;
    if (p->order == OF_AWQ) place = awq_places[place];
    return (int)(word_at(p->zeros, at) >> (p->bits * place) & ((1u << p->bits) - 1)) + p->zero_offset;
}

/* Codes of n rows, and of BLOCK columns, in words of `bits`. */
static inline void read_words(uint8_t codes[ROWS][BLOCK], const packed *p, int row, int n, int column, int bits) {
    const size_t in_word = 32 / (size_t)bits, n_across = (size_t)p->n_in / in_word, n_out = (size_t)p->n_out;
    for (size_t i = 0; i < BLOCK / in_word; i++)
        for (size_t r = 0; r < (size_t)n; r++) {
            size_t x = (size_t)column / in_word + i, y = (size_t)row + r;
            uint32_t word = word_at(p->codes, p->order == OF_GPTQ ? x * n_out + y : y * n_across + x);
            for (size_t k = 0; k < in_word; k++)
                codes[r][i * in_word + k] = (uint8_t)(word >> ((size_t)bits * k) & ((1u << bits) - 1));
        }
}

static inline void read_awq(uint8_t codes[ROWS][BLOCK], const packed *p, int row, int column) {
    for (int i = 0; i < BLOCK; i++) {
        uint32_t word = word_at(p->codes, ((size_t)(column + i) * (size_t)p->n_out + (size_t)row) / ROWS);
        for (int r = 0; r < ROWS; r++) codes[r][i] = (uint8_t)(word >> (AWQ_BITS * awq_places[r]) & 15);
    }
}

static inline void read_bytes(uint8_t codes[ROWS][BLOCK], const packed *p, int row, int n, int column) {
    for (int r = 0; r < n; r++) {
        const uint8_t *from = (const uint8_t *)p->codes->data + (size_t)(row + r) * (size_t)p->n_in + (size_t)column;
        for (int i = 0; i < BLOCK; i++) codes[r][i] = from[i] ^ 0x80u;
    }
}

/* Row y of what is made. */
static int row_of(const packed *p, int y) {
    int half = p->n_mixed / 2, in_matrix = half ? y % p->n_mixed : 0;
    return half ? y - in_matrix + in_matrix % half * 2 + in_matrix / half : y;
}

static inline void read_pairs(uint8_t codes[ROWS][BLOCK], const packed *p, int row, int n, int column) {
    for (int r = 0; r < n; r++) {
        size_t at = ((size_t)row_of(p, row + r) * (size_t)p->n_in + (size_t)column) / 2;
        const uint8_t *from = (const uint8_t *)p->codes->data + at;
        for (int i = 0; i < BLOCK; i++) codes[r][i] = from[i / 2] >> (i % 2 * 4) & 15;
    }
}

static void read_codes(uint8_t codes[ROWS][BLOCK], const packed *p, int row, int n, int column) {
    if (p->order == OF_AWQ)
        read_awq(codes, p, row, column);
    else if (p->order == OF_BYTES)
        read_bytes(codes, p, row, n, column);
    else if (p->order == OF_PAIRS)
        read_pairs(codes, p, row, n, column);
    else if (p->bits == 4)
        read_words(codes, p, row, n, column, 4);
    else
        read_words(codes, p, row, n, column, 8);
}

/* What a block of a row begins with in the type that it becomes: scales. Returns the bytes. */
static size_t write_scales(uint8_t *to, const packed *p, int row, int column) {
    int g = column / p->group;
    if (p->order == OF_PAIRS) {
        *to = ((const uint8_t *)p->scales->data)[(size_t)row_of(p, row) * (size_t)(p->n_in / BLOCK) + (size_t)g];
        return 1;
    }
    float scale = scale_of(p, row, g);
    const uint16_t halves[] = {ig_f32_f16(scale), ig_f32_f16(-scale * (float)zero_of(p, row, g))};
    size_t n = p->made.type == IG_TYPE_Q4_1 ? sizeof halves : sizeof *halves;
    memcpy(to, halves, n);
    return n;
}

/* A block of Q8_0 of weights that no other one may have. */
static void write_rounded(uint8_t *to, const packed *p, const uint8_t codes[BLOCK], int row, int column) {
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

static void write_block(uint8_t *to, const packed *p, const uint8_t codes[BLOCK], int row, int column) {
    if (p->is_rounded) {
        write_rounded(to, p, codes, row, column);
        return;
    }
    to += write_scales(to, p, row, column);
    for (int i = 0; i < BLOCK && p->bits == 8; i++) to[i] = codes[i] ^ 0x80u;
    for (int i = 0; i < BLOCK / 2 && p->bits == 4; i++) to[i] = (uint8_t)(codes[i] | codes[i + BLOCK / 2] << 4);
}

/* n rows, at most ROWS, tile by tile. */
static void write_tiles(uint8_t *to, const packed *p, int row, int n, size_t row_bytes) {
    size_t block_bytes = (size_t)ig_type_get((uint32_t)p->made.type)->block_bytes;
    for (int i = 0; i < p->n_in; i += BLOCK, to += block_bytes) {
        uint8_t codes[ROWS][BLOCK];
        read_codes(codes, p, row, n, i);
        for (int r = 0; r < n; r++) write_block(to + (size_t)r * row_bytes, p, codes[r], row + r, i);
    }
}

/* A row of NVFP4: blocks of 64 with four scales in front. */
static void write_sixteens(uint8_t *to, const packed *p, int row) {
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

/* n rows of a matrix that lies by columns. */
static void write_turned(uint8_t *to, const packed *p, int row, int n, size_t row_bytes) {
    const size_t bytes = row_bytes / (size_t)p->n_in, n_rows = (size_t)p->n_rows, matrix = (size_t)row / n_rows;
    const uint8_t *from = (const uint8_t *)p->codes->data + matrix * n_rows * row_bytes;
    size_t at[TASK_ROWS];
    for (int r = 0; r < n; r++) at[r] = ((size_t)row_of(p, row + r) - matrix * n_rows) * bytes;
    for (size_t x = 0; x < (size_t)p->n_in; x++, from += n_rows * bytes)
        for (size_t r = 0; r < (size_t)n; r++) memcpy(to + r * row_bytes + x * bytes, from + at[r], bytes);
}

/* Row y of q, then k, then v. */
static void write_of_heads(uint8_t *to, const packed *p, int y, size_t row_bytes) {
    int n_heads = p->n_out / (3 * p->n_rows), part = y / (n_heads * p->n_rows), head = y / p->n_rows % n_heads;
    size_t from = (size_t)((3 * head + part) * p->n_rows + y % p->n_rows);
    memcpy(to, (const uint8_t *)p->codes->data + from * row_bytes, row_bytes);
}

static void write_rows(void *arg, int task, int thread) {
    const packed *p = arg;
    const size_t row_bytes = ig_type_row_bytes(ig_type_get((uint32_t)p->made.type), (size_t)p->n_in);
    int end = ig_min_int(p->n_out, (task + 1) * TASK_ROWS);
    (void)thread;
    for (int row = task * TASK_ROWS, n; row < end; row += n) {
        uint8_t *to = (uint8_t *)(uintptr_t)p->made.data + (size_t)row * row_bytes;
        bool is_single = p->order == OF_SIXTEENS || p->order == OF_FACTOR || p->order == OF_HEADS;
        n = is_single ? 1 : ig_min_int(end - row, p->order == OF_COLUMNS ? p->n_rows - row % p->n_rows : ROWS);
        if (p->order == OF_HEADS)
            write_of_heads(to, p, row, row_bytes);
        else if (p->order == OF_COLUMNS)
            write_turned(to, p, row, n, row_bytes);
        else if (p->order == OF_FACTOR)
            memcpy(to, &p->factor, sizeof p->factor);
        else if (p->order == OF_SIXTEENS)
            write_sixteens(to, p, row);
        else
            write_tiles(to, p, row, n, row_bytes);
    }
}

/* ---- what there is ------------------------------------------------------------------------------ */

static void fail_at(unpacker *u, const ig_tensor *t, const char *why) {
    if (!u->status)
        u->status = ig_fail(u->err, IG_E_FORMAT, "%s: tensor '%.120s' %s", ig_safetensors_path(u->s), t->name, why);
}

/* The tensor's name (malloc) with another end instead of one of n bytes. NULL: no memory, which is a failure. */
static char *name_with(unpacker *u, const ig_tensor *t, size_t n, const char *end) {
    ig_buffer name = {0};
    ig_buffer_format(&name, "%.*s%s", (int)(strlen(t->name) - n), t->name, end);
    if (!name.failed) return name.data;
    ig_buffer_close(&name);
    if (!u->status) u->status = ig_fail_memory(u->err, "tensor name", strlen(t->name));
    return NULL;
}

/* The tensor beside this one, of that name; it is gone then. NULL: absent. */
static const ig_tensor *take_beside(unpacker *u, const ig_tensor *t, size_t n, const char *end, bool is_needed) {
    char *name = name_with(u, t, n, end);
    const ig_tensor *found = name ? ig_safetensors_tensor(u->s, name) : NULL;
    if (found) u->is_gone[found - ig_safetensors_tensor_at(u->s, 0)] = true;
    if (!found && is_needed && !u->status)
        u->status = ig_fail(u->err, IG_E_FORMAT, "%s: tensor '%.120s' is missing, beside '%.120s'",
                            ig_safetensors_path(u->s), name, t->name);
    free(name);
    return found;
}

/* Whether it is a matrix of such elements, n_rows times n_cols of them. */
static bool is_matrix(const ig_tensor *t, ig_type type, int64_t n_rows, int64_t n_cols) {
    return t->type == type && t->n_dims == 2 && t->dims[1] == (uint64_t)n_rows && t->dims[0] == (uint64_t)n_cols;
}

static bool is_float(const ig_tensor *t) {
    return t->type == IG_TYPE_F32 || t->type == IG_TYPE_F16 || t->type == IG_TYPE_BF16;
}

/* Whose columns are in which group, unless these lie one behind the other; then numbers below 0 say nothing. */
static void set_groups(unpacker *u, packed *p, const ig_tensor *groups) {
    bool are_in_order = true, are_known = true;
    if (!groups || u->status) return;
    if (groups->type != IG_TYPE_I32 || groups->n_dims != 1 || groups->dims[0] != (uint64_t)p->n_in) {
        fail_at(u, groups, "does not have a number for each column");
        return;
    }
    for (int i = 0; i < p->n_in; i++) {
        int32_t g = (int32_t)word_at(groups, (size_t)i);
        are_in_order = are_in_order && (g < 0 || g == i / p->group);
        are_known = are_known && g >= 0 && g < p->n_in / p->group;
    }
    if (are_in_order) return;
    if (!are_known) fail_at(u, groups, "holds numbers that are not those of groups");
    p->groups = groups;
}

/* All scales must be such that 16-bit floats hold them. */
static void check_numbers(unpacker *u, packed *p) {
    bool are_in_middle = true;
    for (int row = 0; row < p->n_out && !u->status; row++)
        for (int g = 0; g < p->n_in / p->group; g++) {
            int zero = zero_of(p, row, g);
            if (!(fabsf(scale_of(p, row, g)) * 512 < 65504)) {
                fail_at(u, p->scales, "holds a scale that 16-bit floats do not");
                return;
            }
            are_in_middle = are_in_middle && zero == middle(p);
        }
    p->is_rounded = p->groups || p->group % BLOCK || (p->bits == 8 && !are_in_middle);
    p->made.type = p->is_rounded || p->bits == 8 ? IG_TYPE_Q8_0 : are_in_middle ? IG_TYPE_Q4_0 : IG_TYPE_Q4_1;
}

/* What becomes n_matrices of one shape, or (0) one without a dimension for their number; its name has another end
 * instead of one of n bytes. */
static void put(unpacker *u, packed p, size_t n, const char *end, int n_matrices) {
    if (!u->status) p.made.name = name_with(u, p.codes, n, end);
    if (u->status) return;
    p.made.n_dims = n_matrices ? 3 : p.order == OF_FACTOR ? 1 : 2;
    p.made.dims[0] = (uint64_t)p.n_in;
    p.made.dims[1] = (uint64_t)(p.n_out / ig_max_int(n_matrices, 1));
    p.made.dims[2] = (uint64_t)ig_max_int(n_matrices, 1);
    p.made.dims[3] = 1;
    p.made.n_bytes = (size_t)p.n_out * ig_type_row_bytes(ig_type_get((uint32_t)p.made.type), (size_t)p.n_in);
    u->n_bytes += ig_round_up(p.made.n_bytes, IG_ALIGN);
    u->is_gone[p.codes - ig_safetensors_tensor_at(u->s, 0)] = true;
    u->all[u->n++] = p;
}

/* A matrix of whole numbers with codes, scales and zeros of these sizes. */
static void add(unpacker *u, packed p, size_t n_end, const ig_tensor *groups) {
    if (!u->status && p.n_in % BLOCK)
        fail_at(u, p.codes, "has rows of no multiple of 32 weights, which is not supported");
    set_groups(u, &p, groups);
    if (!u->status) check_numbers(u, &p);
    put(u, p, n_end, ".weight", 0);
}

/* AWQ's and GPTQ's tell themselves and their bits by their shapes. */
static void add_quantized(unpacker *u, const ig_tensor *t, size_t n_end) {
    const ig_tensor *scales = take_beside(u, t, n_end, ".scales", true),
                    *zeros = take_beside(u, t, n_end, ".qzeros", true),
                    *groups = take_beside(u, t, n_end, ".g_idx", false);
    if (u->status) return;
    int64_t n_out = (int64_t)scales->dims[0], n_groups = (int64_t)scales->dims[1], n_words = (int64_t)zeros->dims[0],
            width = (int64_t)t->dims[0], height = (int64_t)t->dims[1];
    int64_t bits = n_out > 0 ? 32 * n_words / n_out : 0,
            n_in = width == n_out ? height * 32 / (bits ? bits : 1) : height;
    packed p = {.codes = t, .scales = scales, .zeros = zeros, .order = width == n_out ? OF_GPTQ : OF_AWQ};
    bool is_awq = p.order == OF_AWQ;
    if ((bits != 4 && (bits != 8 || is_awq)) || 32 * n_words != n_out * bits || n_out > INT_MAX || n_in > INT_MAX ||
        n_groups > n_in || n_in % n_groups || !is_float(scales) || scales->n_dims != 2 ||
        !is_matrix(zeros, IG_TYPE_I32, n_groups, n_words) ||
        !is_matrix(t, IG_TYPE_I32, is_awq ? n_in : n_in * bits / 32, is_awq ? n_words : n_out)) {
        fail_at(u, t, "and its scales and zeros do not have the shapes of AWQ's or GPTQ's in 4 or 8 bits");
        return;
    }
    p.bits = (int)bits, p.n_out = (int)n_out, p.n_in = (int)n_in, p.group = (int)(n_in / n_groups);
    p.scale_row = 1, p.scale_column = n_out;
    p.zero_offset = is_awq ? 0 : u->c->zero_offset;
    add(u, p, n_end, groups);
}

/* Sizes of the scales: of groups of a row, of rows, or one. */
static bool set_scales(packed *p) {
    const ig_tensor *t = p->scales;
    uint64_t across = t->dims[0], down = t->dims[1];
    if (!is_float(t) || t->n_dims > 2) return false;
    if (t->n_dims == 1) down = across, across = 1;
    if (down != (uint64_t)p->n_out && (down != 1 || across != 1)) return false;
    if (across > (uint64_t)p->n_in || (uint64_t)p->n_in % across) return false;
    p->group = p->n_in / (int)across;
    p->scale_row = down == 1 ? 0 : (int64_t)across;
    p->scale_column = across == 1 ? 0 : 1;
    return true;
}

/* Those of compressed-tensors; `shape` states that of the matrix. */
static void add_compressed(unpacker *u, const ig_tensor *t, size_t n_end) {
    const ig_tensor *shape = take_beside(u, t, n_end, ".weight_shape", true);
    packed p = {.codes = t, .order = OF_ROWS};
    int64_t sizes[2] = {0};
    p.scales = take_beside(u, t, n_end, ".weight_scale", true);
    p.zeros = take_beside(u, t, n_end, ".weight_zero_point", false);
    const ig_tensor *groups = take_beside(u, t, n_end, ".weight_g_idx", false);
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
        fail_at(u, t, "and its scales, zeros and shape do not fit each other");
}

static void add_bytes(unpacker *u, const ig_tensor *t, size_t n_end) {
    packed p = {.codes = t, .order = OF_BYTES, .bits = 8};
    p.scales = take_beside(u, t, n_end, ".weight_scale", true);
    if (u->status) return;
    if (t->n_dims == 2 && t->dims[0] <= INT_MAX && t->dims[1] <= INT_MAX)
        p.n_in = (int)t->dims[0], p.n_out = (int)t->dims[1];
    if (take_beside(u, t, n_end, ".weight_zero_point", false))
        fail_at(u, t, "has zeros, which is not supported with 8 bits");
    else if (!p.n_in || !set_scales(&p))
        fail_at(u, t, "and its scales do not fit each other");
    else
        add(u, p, n_end, NULL);
}

/* Floats of 4 bits, of all experts. */
static void add_floats(unpacker *u, const ig_tensor *t, size_t n_end) {
    const ig_tensor *scales = take_beside(u, t, n_end, "_scales", true);
    const uint64_t *d = t->dims;
    packed p = {.codes = t, .scales = scales, .order = OF_PAIRS, .bits = 4, .group = BLOCK};
    if (u->status) return;
    if (t->n_dims != 4 || d[0] != BLOCK / 2 || d[1] > INT_MAX / BLOCK || d[2] > INT_MAX / d[3] ||
        scales->type != IG_TYPE_U8 || scales->n_dims != 3 || memcmp(scales->dims, d + 1, 3 * sizeof *d) != 0) {
        fail_at(u, t, "and its scales do not have the shapes of MXFP4's");
        return;
    }
    p.n_in = (int)d[1] * BLOCK;
    p.n_out = (int)(d[2] * d[3]);
    if (ig_name_ends_with(t->name, "gate_up_proj_blocks")) p.n_mixed = (int)d[2];
    if (p.n_mixed % 2) fail_at(u, t, "has an odd number of rows");
    p.made.type = IG_TYPE_MXFP4;
    put(u, p, n_end, "", (int)d[3]);
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

static void add_sixteens(unpacker *u, const ig_tensor *t, size_t n_end) {
    const ig_tensor *divisor = take_beside(u, t, n_end, ".weight_global_scale", false);
    packed p = {.codes = t, .order = OF_SIXTEENS}, f = {.codes = t, .order = OF_FACTOR, .n_in = 1, .n_out = 1};
    p.scales = take_beside(u, t, n_end, ".weight_scale", true);
    float whole = number_of(divisor ? divisor : take_beside(u, t, n_end, ".weight_scale_2", true));
    if (u->status) return;
    if (t->n_dims != 2 || t->dims[0] > INT_MAX / 2 || t->dims[0] % 32 || t->dims[1] > INT_MAX || !(whole > 0) ||
        !is_matrix(p.scales, IG_TYPE_F8_E4M3, (int64_t)t->dims[1], (int64_t)t->dims[0] / 8) || !are_scales(p.scales)) {
        fail_at(u, t, "and its scales are not those of NVFP4, in rows of a multiple of 64");
        return;
    }
    p.n_in = 2 * (int)t->dims[0], p.n_out = (int)t->dims[1];
    p.made.type = IG_TYPE_NVFP4;
    put(u, p, n_end, ".weight", 0);
    f.factor = divisor ? 1 / whole : whole;
    f.made.type = IG_TYPE_F32;
    put(u, f, n_end, ".scale", 0);
}

/* Experts' matrices of a layer, as one tensor of floats. */
typedef struct stacked {
    bool is_one, is_down;
    uint64_t n_in, n_out;
} stacked;

static stacked stacked_at(const unpacker *u, const ig_tensor *t) {
    stacked s = {.is_down = ig_name_ends_with(t->name, ".experts.down_proj")};
    s.is_one = is_float(t) && t->n_dims == 3 && (s.is_down || ig_name_ends_with(t->name, ".experts.gate_up_proj"));
    s.n_in = (uint64_t)(s.is_down ? u->c->d_ff : u->c->d_model);
    s.n_out = s.is_down ? (uint64_t)u->c->d_model : 2 * (uint64_t)u->c->d_ff;
    return s;
}

/* Transformers writes those of some families by rows, too. The sizes of one of both tensors tell. */
static bool are_by_rows(const unpacker *u) {
    for (size_t i = 0; i < ig_safetensors_n_tensors(u->s); i++) {
        const ig_tensor *t = ig_safetensors_tensor_at(u->s, i);
        stacked s = stacked_at(u, t);
        if (s.is_one && s.n_in != s.n_out && t->dims[0] == s.n_in && t->dims[1] == s.n_out) return true;
    }
    return false;
}

static void find_turned(unpacker *u) {
    if (are_by_rows(u)) return;
    for (size_t i = 0; i < ig_safetensors_n_tensors(u->s) && !u->status; i++) {
        const ig_tensor *t = ig_safetensors_tensor_at(u->s, i);
        const stacked s = stacked_at(u, t);
        /* Where sizes are others binding says what is wrong. */
        if (!s.is_one || t->dims[0] != s.n_out || t->dims[1] != s.n_in || t->dims[2] > INT_MAX / s.n_out) continue;
        bool is_mixed = u->c->expert_order == IG_EXPERTS_BY_MIXED_COLUMNS && !s.is_down;
        packed p = {.codes = t,
                    .order = OF_COLUMNS,
                    .n_in = (int)s.n_in,
                    .n_out = (int)(s.n_out * t->dims[2]),
                    .n_rows = (int)s.n_out,
                    .n_mixed = is_mixed ? (int)s.n_out : 0,
                    .made.type = t->type};
        put(u, p, 0, "", (int)t->dims[2]);
    }
}

static void find_heads(unpacker *u) {
    const ig_config *c = u->c;
    const uint64_t n_out = 3 * (uint64_t)c->n_heads * (uint64_t)c->head_dim;
    for (size_t i = 0; i < ig_safetensors_n_tensors(u->s) && !u->status; i++) {
        const ig_tensor *t = ig_safetensors_tensor_at(u->s, i);
        bool is_matrix = ig_name_ends_with(t->name, ".query_key_value.weight") && t->n_dims == 2,
             is_bias = ig_name_ends_with(t->name, ".query_key_value.bias") && t->n_dims == 1;
        if (!strstr(t->name, ".query_key_value.")) continue;
        /* What is packed, or has scales of rows, would lie in turns still. */
        if (u->is_gone[i] || !is_float(t) || !(is_matrix || is_bias) || t->dims[is_matrix] != n_out ||
            t->dims[0] > INT_MAX) {
            fail_at(u, t, "is not of floats, in rows of q, k and v in turns");
            return;
        }
        packed p = {.codes = t,
                    .order = OF_HEADS,
                    .n_in = is_bias ? 1 : (int)t->dims[0],
                    .n_out = (int)n_out,
                    .n_rows = c->head_dim,
                    .made.type = t->type};
        put(u, p, 0, "", 0);
        if (is_bias && !u->status)
            memcpy(u->all[u->n - 1].made.dims, t->dims, sizeof t->dims), u->all[u->n - 1].made.n_dims = 1;
    }
}

static void find_all(unpacker *u) {
    static const struct {
        const char *end;
        ig_type type;
        void (*add)(unpacker *u, const ig_tensor *t, size_t n_end);
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

/* ---- all of it ---------------------------------------------------------------------------------- */

static void unpack_all(unpacker *u, uint8_t *to, ig_loading *loading) {
    loading->total += u->n_bytes;
    for (size_t i = 0; i < u->n && !u->status; i++) {
        packed *p = &u->all[i];
        p->made.data = to;
        to += ig_round_up(p->made.n_bytes, IG_ALIGN);
        if (!u->d->ops->is_plan) u->d->ops->parallel(u->d, (p->n_out + TASK_ROWS - 1) / TASK_ROWS, write_rows, p);
        ig_file_forget(p->codes->data, p->codes->n_bytes);
        u->status = ig_loading_add(loading, p->made.n_bytes, u->err);
    }
}

static ig_status replace(unpacker *u, ig_loading *loading) {
    ig_tensor *made = calloc(u->n, sizeof *made);
    /* Not ig_pages_reserve(), which promises more than there is. */
    void *memory = made ? calloc(1, u->n_bytes) : NULL;
    if (!memory) {
        free(made);
        return ig_fail_memory(u->err, "weights that are unpacked", u->n_bytes);
    }
    unpack_all(u, memory, loading);
    for (size_t i = 0; i < u->n; i++) made[i] = u->all[i].made;
    if (!u->status) {
        u->status = ig_safetensors_replace(u->s, u->is_gone, made, u->n, memory, u->err);
        u->n = 0; /* the names are the reader's now */
    } else {
        free(memory);
    }
    free(made);
    return u->status;
}

ig_status ig_weights_unpack(ig_safetensors *s, ig_device *d, const ig_config *c, ig_loading *loading, ig_error *err) {
    size_t n = ig_safetensors_n_tensors(s);
    unpacker u = {.s = s, .d = d, .c = c, .err = err};
    u.is_gone = calloc(n + 1, sizeof *u.is_gone);
    u.all = calloc(n + 1, sizeof *u.all);
    if (u.is_gone && u.all)
        find_all(&u);
    else
        u.status = ig_fail_memory(err, "tensor list", n * sizeof *u.all);
    if (!u.status && c->expert_order) find_turned(&u);
    if (!u.status && c->are_heads_mixed) find_heads(&u);
    if (!u.status && u.n) u.status = replace(&u, loading);
    for (size_t i = 0; i < u.n; i++) free((char *)(uintptr_t)u.all[i].made.name);
    free(u.all);
    free(u.is_gone);
    return u.status;
}
