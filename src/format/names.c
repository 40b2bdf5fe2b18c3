/* SPDX-License-Identifier: Apache-2.0
 *
 * Sorted names.
 */
#include "format/names.h"

#include <stdlib.h>
#include <string.h>

static int compare(const void *a, const void *b) {
    return strcmp(((const ig_name *)a)->text, ((const ig_name *)b)->text);
}

const char *ig_names_sort(ig_name *names, size_t n) {
    if (n < 2) return NULL;
    qsort(names, n, sizeof *names, compare);
    for (size_t i = 1; i < n; i++)
        if (strcmp(names[i - 1].text, names[i].text) == 0) return names[i].text;
    return NULL;
}

const ig_name *ig_names_find(const ig_name *names, size_t n, const char *text) {
    ig_name wanted = {text, 0};
    return n ? bsearch(&wanted, names, n, sizeof *names, compare) : NULL;
}
