/* SPDX-License-Identifier: Apache-2.0
 *
 * Sorted names: how the readers find tensors and keys and see that none appears twice.
 * Sorting, unlike hashing, has no bad case that a hostile file could choose.
 */
#ifndef IG_FORMAT_NAMES_H
#define IG_FORMAT_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

typedef struct ig_name {
    const char *text; /* NUL-terminated, borrowed */
    size_t i;         /* what it names */
} ig_name;

/* Sorts by text. Returns a text that appears twice, NULL if there is none. */
const char *ig_names_sort(ig_name *names, size_t n);
/* The entry of sorted names, NULL if absent. */
const ig_name *ig_names_find(const ig_name *names, size_t n, const char *text);

/* Whether there is such an end, and something before it. */
static inline bool ig_name_ends_with(const char *name, const char *end) {
    size_t length = strlen(name), n = strlen(end);
    return length > n && strcmp(name + length - n, end) == 0;
}

#endif
