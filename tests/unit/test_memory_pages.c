/* SPDX-License-Identifier: Apache-2.0
 *
 * Pages given back: what lies beside them stays, whatever the size of the system's pages.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"

enum { PAGE = 4096, N_PAGES = 64 };

static void only_what_is_given_back(void **state) {
    uint8_t *p = ig_pages_reserve(N_PAGES * PAGE);
    (void)state;
    assert_non_null(p);
    for (int begin = 0; begin < N_PAGES; begin += 7)
        for (int n = 0; begin + n <= N_PAGES; n += 5) {
            memset(p, 1, N_PAGES * PAGE);
            ig_pages_drop(p + begin * PAGE, (size_t)n * PAGE);
            for (int i = 0; i < N_PAGES * PAGE; i++)
                if (p[i] != (i / PAGE < begin || i / PAGE >= begin + n))
                    fail_msg("%d pages from %d: byte %d", n, begin, i);
        }
    ig_pages_release(p, N_PAGES * PAGE);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(only_what_is_given_back)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
