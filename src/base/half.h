/* SPDX-License-Identifier: Apache-2.0
 *
 * 16-bit floats in portable C: IEEE binary16 and bfloat16, round to nearest even. And 8-bit floats.
 * Kernels have vector versions; these are the reference and serve everything not hot.
 */
#ifndef IG_BASE_HALF_H
#define IG_BASE_HALF_H

#include <stdint.h>
#include <string.h>

static inline float ig_bits_f32(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static inline uint32_t ig_f32_bits(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float ig_f16_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exp = (h >> 10) & 31u, man = h & 1023u;
    if (exp == 31) return ig_bits_f32(sign | 0x7f800000u | man << 13);
    if (exp) return ig_bits_f32(sign | (exp + 112) << 23 | man << 13);
    float f = (float)man * 0x1p-24f; /* zero or subnormal */
    return sign ? -f : f;
}

static inline uint16_t ig_f32_f16(float f) {
    uint32_t u = ig_f32_bits(f), sign = u >> 16 & 0x8000u, a = u & 0x7fffffffu;
    if (a > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);  /* NaN */
    if (a >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* rounds to infinity */
    if (a < 0x38800000u) {                                   /* subnormal: let the FPU round */
        uint32_t r = ig_f32_bits(ig_bits_f32(a) + 0.5f) - 0x3f000000u;
        return (uint16_t)(sign | r);
    }
    a += 0xfffu + (a >> 13 & 1u);
    return (uint16_t)(sign | (a - 0x38000000u) >> 13);
}

static inline float ig_bf16_f32(uint16_t h) { return ig_bits_f32((uint32_t)h << 16); }

/* E4M3 of the OCP's formats: a NaN of each sign, and no infinities. */
enum { IG_F8_NAN = 0x7f };
#define IG_F8_UNIT 0x1p8f

/* Its bits as those of a 16-bit float, which is 1 / IG_F8_UNIT of it. */
static inline uint16_t ig_f8_bits(uint8_t x) {
    return (x & IG_F8_NAN) == IG_F8_NAN ? 0x7e00u : (uint16_t)((x & 0x80u) << 8 | (x & 0x7fu) << 7);
}

static inline float ig_f8_f32(uint8_t x) { return IG_F8_UNIT * ig_f16_f32(ig_f8_bits(x)); }

static inline uint16_t ig_f32_bf16(float f) {
    uint32_t u = ig_f32_bits(f);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(u >> 16 | 0x40u);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

#endif
