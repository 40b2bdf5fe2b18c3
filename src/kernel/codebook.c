/* SPDX-License-Identifier: Apache-2.0
 *
 * The codebooks, of a byte for each number, and as places.
 */
#include "kernel/codebook.h"

#include "kernel/codebook_entries.h"

const uint64_t ig_book_iq1[2048] = {IG_BOOK_IQ1(IG_ENTRY_IQ1)};
const uint64_t ig_book_iq2_xxs[256] = {IG_BOOK_IQ2_XXS(IG_ENTRY_IQ2)};
const uint64_t ig_book_iq2_xs[512] = {IG_BOOK_IQ2_XS(IG_ENTRY_IQ2)};
const uint64_t ig_book_iq2_s[1024] = {IG_BOOK_IQ2_S(IG_ENTRY_IQ2)};
const uint32_t ig_book_iq3_xxs[256] = {IG_BOOK_IQ3_XXS(IG_ENTRY_IQ3_XXS)};
const uint32_t ig_book_iq3_s[512] = {IG_BOOK_IQ3_S(IG_ENTRY_IQ3_S)};

#define PLACES(entry) entry,
const uint16_t ig_places_iq2_xxs[256] = {IG_BOOK_IQ2_XXS(PLACES)};
const uint16_t ig_places_iq2_xs[512] = {IG_BOOK_IQ2_XS(PLACES)};
const uint16_t ig_places_iq2_s[1024] = {IG_BOOK_IQ2_S(PLACES)};
const uint16_t ig_places_iq3_xxs[256] = {IG_BOOK_IQ3_XXS(PLACES)};
const uint16_t ig_places_iq3_s[512] = {IG_BOOK_IQ3_S(PLACES)};
