/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers as files of the project keep them: the lowest byte first, at any address.
 */
#ifndef IG_BASE_LITTLE_H
#define IG_BASE_LITTLE_H

#include <stdint.h>

static inline uint32_t ig_get_u32(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}
static inline uint64_t ig_get_u64(const uint8_t *p) { return ig_get_u32(p) | (uint64_t)ig_get_u32(p + 4) << 32; }

static inline void ig_put_u32(uint8_t *p, uint32_t v) {
    for (int i = 0; i < 4; i++) p[i] = (uint8_t)(v >> 8 * i);
}
static inline void ig_put_u64(uint8_t *p, uint64_t v) {
    ig_put_u32(p, (uint32_t)v);
    ig_put_u32(p + 4, (uint32_t)(v >> 32));
}

#endif
