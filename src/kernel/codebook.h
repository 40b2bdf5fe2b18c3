/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocks of the codebook formats, which take 1.6 to 3.4 bits a weight: IQ1_S, IQ1_M, IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS
 * and IQ3_S. Of 256 elements eight at a time are an entry of a book, or two entries of four; of IQ2 and IQ3 they are
 * magnitudes, with a bit each for the sign.
 *
 * For all levels a block is 256 codes of up to 7 bits and 16 scales:
 *
 *     w = d * unit * step * (code - offset)
 *
 * - ig_<type>_entry(p, k): magnitudes of elements 8 k to 8 k + 7 of the block at p, a byte each, the first the lowest
 * - ig_<type>_signs(p, g): bits of elements 32 g to 32 g + 31, set where they are negative, as their ig_signs says
 * - ig_<type>_steps(bytes, p): a byte for each 16 elements, an odd number of 1 to 31
 * - ig_<type>_d(p): d, the bits of a 16-bit float
 */
#ifndef IG_KERNEL_CODEBOOK_H
#define IG_KERNEL_CODEBOOK_H

#include <stdbool.h>
#include <stdint.h>

#include "kernel/parts.h"

/* X(TYPE, type, unit, offset, signs): the largest magnitude is the offset. */
#define IG_BOOK_TYPES(X) IG_IQ1_TYPES(X) IG_IQ2_TYPES(X) IG_IQ3_TYPES(X)
#define IG_IQ1_TYPES(X)                         \
    X(IQ1_S, iq1_s, 0.125f, 9, IG_SIGNS_EIGHTH) \
    X(IQ1_M, iq1_m, 0.125f, 9, IG_SIGNS_EIGHTH)
#define IG_IQ2_TYPES(X)                            \
    X(IQ2_XXS, iq2_xxs, 0.125f, 43, IG_SIGNS_EVEN) \
    X(IQ2_XS, iq2_xs, 0.125f, 43, IG_SIGNS_EVEN)   \
    X(IQ2_S, iq2_s, 0.125f, 43, IG_SIGNS_ALL)
#define IG_IQ3_TYPES(X)                           \
    X(IQ3_XXS, iq3_xxs, 0.25f, 62, IG_SIGNS_EVEN) \
    X(IQ3_S, iq3_s, 1, 15, IG_SIGNS_ALL)

/* Of IQ1 they are those of an eighth, which is 1 of a code, by which numbers are more or less. Of the others they are
 * the numbers' own: all are stored, or seven of eight, of which an even number is set. */
typedef enum ig_signs { IG_SIGNS_EIGHTH, IG_SIGNS_EVEN, IG_SIGNS_ALL } ig_signs;

/* Numbers of an entry, a byte each; those of IQ1 are codes but for an eighth more or less. */
#define ig_book_iq1_s ig_book_iq1
#define ig_book_iq1_m ig_book_iq1
extern const uint64_t ig_book_iq1[2048], ig_book_iq2_xxs[256], ig_book_iq2_xs[512], ig_book_iq2_s[1024];
extern const uint32_t ig_book_iq3_xxs[256], ig_book_iq3_s[512];
/* The same as places of numbers among the levels (codebook_entries.h): of 2 bits, of IQ3 of 3. */
extern const uint16_t ig_places_iq2_xxs[256], ig_places_iq2_xs[512], ig_places_iq2_s[1024];
extern const uint16_t ig_places_iq3_xxs[256], ig_places_iq3_s[512];

typedef uint64_t (*ig_book_entry_fn)(const uint8_t *p, int k);
typedef uint32_t (*ig_book_signs_fn)(const uint8_t *p, int g);

#define IG_BYTES(x) (0x0101010101010101ull * (x))

/* ---- entries and signs ------------------------------------------------------------- */

static inline uint32_t ig_book_word(const uint8_t *p) { return p[0] | (uint32_t)p[1] << 8; }

/* Of IG_SIGNS_EVEN four times seven signs to four times eight. */
static inline uint32_t ig_even_signs(uint32_t v) {
    v = (v & 0x7f) | (v << 1 & 0x7f00) | (v << 2 & 0x7f0000) | (v << 3 & 0x7f000000);
    uint32_t odd = v ^ v >> 4;
    odd ^= odd >> 2;
    return v | ((odd ^ odd >> 1) & 0x01010101) << 7;
}

/* d; of each 32 elements four indices, and in 32 bits four times seven signs and the scale */
static inline uint64_t ig_iq2_xxs_entry(const uint8_t *p, int k) { return ig_book_iq2_xxs[p[2 + k / 4 * 8 + k % 4]]; }
static inline uint32_t ig_iq2_xxs_signs(const uint8_t *p, int g) { return ig_read_u32(p + 6 + 8 * g); }

/* d; indices of 9 bits below seven signs; 16 scales of 4 bits */
static inline uint64_t ig_iq2_xs_entry(const uint8_t *p, int k) {
    return ig_book_iq2_xs[ig_book_word(p + 2 + 2 * k) & 511];
}
static inline uint32_t ig_iq2_xs_signs(const uint8_t *p, int g) {
    uint64_t v = ig_read_u64(p + 2 + 8 * g);
    return (uint32_t)((v >> 9 & 127) | (v >> 25 & 127) << 7 | (v >> 41 & 127) << 14 | (v >> 57 & 127) << 21);
}

/* d, indices[32], signs[32], upper bits of indices[8], 16 scales of 4 bits */
static inline uint64_t ig_iq2_s_entry(const uint8_t *p, int k) {
    uint32_t high = (uint32_t)p[66 + k / 4] >> 2 * (k % 4) & 3;
    return ig_book_iq2_s[p[2 + k] | high << 8];
}
static inline uint32_t ig_iq2_s_signs(const uint8_t *p, int g) { return ig_read_u32(p + 34 + 4 * g); }

/* d, indices[64]; of each 32 elements, in 32 bits, four times seven signs and the scale */
static inline uint64_t ig_iq3_xxs_entry(const uint8_t *p, int k) {
    const uint8_t *index = p + 2 + 2 * k;
    return ig_book_iq3_xxs[index[0]] | (uint64_t)ig_book_iq3_xxs[index[1]] << 32;
}
static inline uint32_t ig_iq3_xxs_signs(const uint8_t *p, int g) { return ig_read_u32(p + 66 + 4 * g); }

/* d, indices[64], upper bits of indices[8], signs[32], 8 scales of 4 bits */
static inline uint64_t ig_iq3_s_entry(const uint8_t *p, int k) {
    const uint8_t *index = p + 2 + 2 * k;
    uint32_t high = (uint32_t)p[66 + k / 4] >> 2 * (k % 4);
    return ig_book_iq3_s[index[0] | (high & 1) << 8] | (uint64_t)ig_book_iq3_s[index[1] | (high & 2) << 7] << 32;
}
static inline uint32_t ig_iq3_s_signs(const uint8_t *p, int g) { return ig_read_u32(p + 74 + 4 * g); }

/* d, indices[32]; of each 32 elements, in 16 bits, upper bits of four indices, the scale and the sign of an eighth */
static inline uint64_t ig_iq1_s_entry(const uint8_t *p, int k) {
    return ig_book_iq1[p[2 + k] | (ig_book_word(p + 34 + k / 4 * 2) << 8 >> 3 * (k % 4) & 0x700)];
}
static inline uint32_t ig_iq1_s_signs(const uint8_t *p, int g) { return p[35 + 2 * g] & 0x80 ? UINT32_MAX : 0; }

/* indices[32]; upper bits of indices and the sign of an eighth, 4 bits; in 16 bits each 4 bits of d above 4 scales */
static inline uint64_t ig_iq1_m_entry(const uint8_t *p, int k) {
    return ig_book_iq1[p[k] | ((uint32_t)p[32 + k / 2] << 8 >> 4 * (k % 2) & 0x700)];
}
static inline uint32_t ig_iq1_m_signs(const uint8_t *p, int g) {
    uint32_t v = ig_book_word(p + 32 + 2 * g) >> 3;
    return ((v & 1) | (v << 4 & 0x100) | (v << 8 & 0x10000) | (v << 12 & 0x1000000)) * 255;
}

/* ---- scales ------------------------------------------------------------------------- */

/* Byte i of four to bytes 2 i and 2 i + 1. */
static inline uint64_t ig_each_twice(uint32_t four) {
    uint64_t v = (four | (uint64_t)four << 16) & 0x0000ffff0000ffffull;
    v = (v | v << 8) & 0x00ff00ff00ff00ffull;
    return v | v << 8;
}

/* Eight nibbles to bytes. */
static inline uint64_t ig_nibble_bytes(uint32_t nibbles) {
    uint64_t v = ig_each_twice(nibbles);
    return (v & 0x000f000f000f000full) | (v >> 4 & 0x0f000f000f000f00ull);
}

static inline uint64_t ig_odd_steps(uint64_t bytes) { return 2 * bytes + IG_BYTES(1); }

static inline void ig_steps_of_eight(uint64_t bytes[2], uint64_t eight) {
    bytes[0] = ig_odd_steps(ig_each_twice((uint32_t)eight));
    bytes[1] = ig_odd_steps(ig_each_twice((uint32_t)(eight >> 32)));
}

/* In the top nibbles of 8 bytes, `stride` apart. */
static inline void ig_steps_of_tops(uint64_t bytes[2], const uint8_t *p, int stride) {
    uint64_t eight = 0;
    for (int i = 0; i < 8; i++) eight |= (uint64_t)(p[i * stride] >> 4) << 8 * i;
    ig_steps_of_eight(bytes, eight);
}

static inline void ig_iq2_xxs_steps(uint64_t bytes[2], const uint8_t *p) { ig_steps_of_tops(bytes, p + 9, 8); }
static inline void ig_iq3_xxs_steps(uint64_t bytes[2], const uint8_t *p) { ig_steps_of_tops(bytes, p + 69, 4); }

static inline void ig_iq2_xs_steps(uint64_t bytes[2], const uint8_t *p) {
    for (int i = 0; i < 2; i++) bytes[i] = ig_odd_steps(ig_nibble_bytes(ig_read_u32(p + 66 + 4 * i)));
}

static inline void ig_iq2_s_steps(uint64_t bytes[2], const uint8_t *p) { ig_iq2_xs_steps(bytes, p + 8); }

static inline void ig_iq3_s_steps(uint64_t bytes[2], const uint8_t *p) {
    ig_steps_of_eight(bytes, ig_nibble_bytes(ig_read_u32(p + 106)));
}

static inline void ig_iq1_s_steps(uint64_t bytes[2], const uint8_t *p) {
    uint64_t eight = 0;
    for (int i = 0; i < 8; i++) eight |= (uint64_t)(p[35 + 2 * i] >> 4 & 7) << 8 * i;
    ig_steps_of_eight(bytes, eight);
}

static inline void ig_iq1_m_steps(uint64_t bytes[2], const uint8_t *p) {
    for (int i = 0; i < 2; i++) {
        uint64_t eight = 0;
        for (int j = 0; j < 8; j++)
            eight |= (uint64_t)(ig_book_word(p + 48 + 4 * i + j / 4 * 2) >> 3 * (j % 4) & 7) << 8 * j;
        bytes[i] = ig_odd_steps(eight);
    }
}

static inline uint16_t ig_iq1_m_d(const uint8_t *p) {
    return (uint16_t)(p[49] >> 4 | (p[51] & 0xf0) | (p[53] >> 4) << 8 | (p[55] >> 4) << 12);
}

static inline uint16_t ig_iq1_s_d(const uint8_t *p) { return (uint16_t)ig_book_word(p); }
static inline uint16_t ig_iq2_xxs_d(const uint8_t *p) { return (uint16_t)ig_book_word(p); }
static inline uint16_t ig_iq2_xs_d(const uint8_t *p) { return (uint16_t)ig_book_word(p); }
static inline uint16_t ig_iq2_s_d(const uint8_t *p) { return (uint16_t)ig_book_word(p); }
static inline uint16_t ig_iq3_xxs_d(const uint8_t *p) { return (uint16_t)ig_book_word(p); }
static inline uint16_t ig_iq3_s_d(const uint8_t *p) { return (uint16_t)ig_book_word(p); }

#endif
