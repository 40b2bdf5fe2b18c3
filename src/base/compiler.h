/* SPDX-License-Identifier: Apache-2.0
 *
 * Compiler extensions, all of them, under names of our own.
 */
#ifndef IG_BASE_COMPILER_H
#define IG_BASE_COMPILER_H

#if defined(__GNUC__)
#define IG_PRINTF(at, first) __attribute__((format(printf, at, first)))
#define IG_LIKELY(x) __builtin_expect(!!(x), 1)
#define IG_UNLIKELY(x) __builtin_expect(!!(x), 0)
#else
#define IG_PRINTF(at, first)
#define IG_LIKELY(x) (x)
#define IG_UNLIKELY(x) (x)
#endif

#define IG_COUNT(array) (sizeof(array) / sizeof(array)[0])

#endif
