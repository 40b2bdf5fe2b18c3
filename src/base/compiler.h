/* SPDX-License-Identifier: Apache-2.0
 *
 * Compiler extensions, all of them, under names of our own; and what C has no function for.
 */
#ifndef IG_BASE_COMPILER_H
#define IG_BASE_COMPILER_H

#if defined(__GNUC__)
#define IG_PRINTF(at, first) __attribute__((format(printf, at, first)))
#else
#define IG_PRINTF(at, first)
#endif

/* Between two looks at what another thread writes. On ARM a hint that would be meant for it (yield) does nothing on
 * most processors. */
#if defined(__x86_64__)
#define IG_RELAX() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define IG_RELAX() __asm__ volatile("isb" ::: "memory")
#else
#define IG_RELAX() ((void)0)
#endif

/* A function that kernels of a GPU call as well. */
#if defined(__CUDACC__)
#define IG_ANYWHERE __host__ __device__
#else
#define IG_ANYWHERE
#endif

#define IG_COUNT(array) (sizeof(array) / sizeof(array)[0])

static inline int ig_min_int(int a, int b) { return a < b ? a : b; }
static inline int ig_max_int(int a, int b) { return a > b ? a : b; }

#endif
