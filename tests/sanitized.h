/* SPDX-License-Identifier: Apache-2.0
 *
 * What differs under sanitizers and emulators (IS_EMULATED, from tests/CMakeLists.txt): the process's memory cannot be
 * counted, and everything takes ten times as long.
 */
#ifndef TESTS_SANITIZED_H
#define TESTS_SANITIZED_H

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define IS_SANITIZED 1
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IS_SANITIZED 1
#endif

/* How often a long test repeats what it repeats n times in a plain build. */
#if defined(IS_SANITIZED) || defined(IS_EMULATED)
#define TIMES(n) ((n) / 5)
#else
#define TIMES(n) (n)
#endif

#endif
