/* SPDX-License-Identifier: Apache-2.0
 *
 * The codebooks, of a byte for each number.
 */
#include "kernel/codebook.h"

#include "kernel/codebook_entries.h"

const uint64_t ig_book_iq1[2048] = {IG_BOOK_IQ1(IG_ENTRY_IQ1)};
const uint64_t ig_book_iq2_xxs[256] = {IG_BOOK_IQ2_XXS(IG_ENTRY_IQ2)};
const uint64_t ig_book_iq2_xs[512] = {IG_BOOK_IQ2_XS(IG_ENTRY_IQ2)};
const uint64_t ig_book_iq2_s[1024] = {IG_BOOK_IQ2_S(IG_ENTRY_IQ2)};
const uint32_t ig_book_iq3_xxs[256] = {IG_BOOK_IQ3_XXS(IG_ENTRY_IQ3_XXS)};
const uint32_t ig_book_iq3_s[512] = {IG_BOOK_IQ3_S(IG_ENTRY_IQ3_S)};

/* Bits 0..7 in bytes of their own, and what each makes of its byte. */
#define MASK_BIT(bits, j) (((uint64_t)(bits) >> (j)&1) * 255 << 8 * (j))
#define MASK(bits)                                                                                      \
    MASK_BIT(bits, 0) | MASK_BIT(bits, 1) | MASK_BIT(bits, 2) | MASK_BIT(bits, 3) | MASK_BIT(bits, 4) | \
        MASK_BIT(bits, 5) | MASK_BIT(bits, 6) | MASK_BIT(bits, 7)
#define MASKS4(bits) MASK(bits), MASK((bits) + 1), MASK((bits) + 2), MASK((bits) + 3)
#define MASKS16(bits) MASKS4(bits), MASKS4((bits) + 4), MASKS4((bits) + 8), MASKS4((bits) + 12)
#define MASKS64(bits) MASKS16(bits), MASKS16((bits) + 16), MASKS16((bits) + 32), MASKS16((bits) + 48)

const uint64_t ig_byte_masks[256] = {MASKS64(0), MASKS64(64), MASKS64(128), MASKS64(192)};
