/* SPDX-License-Identifier: Apache-2.0
 *
 * The stored panels of the levels that have AVX2 (panel_avx2.h), in which most quantised types come.
 */
#ifndef IG_KERNEL_MATMUL_AVX2_H
#define IG_KERNEL_MATMUL_AVX2_H

#include "kernel/kernel.h"

#define IG_DECLARE_PANELS(type)                    \
    size_t ig_panel_bytes_##type##_avx2(int n_in); \
    void ig_panel_put_##type##_avx2(void *panel, const void *w, size_t row_bytes, int n_rows, int n_in);
IG_DECLARE_PANELS(q4_0)
IG_DECLARE_PANELS(q4_1)
IG_DECLARE_PANELS(q5_0)
IG_DECLARE_PANELS(q5_1)
IG_DECLARE_PANELS(q4_k)
IG_DECLARE_PANELS(q5_k)
IG_DECLARE_PANELS(q6_k)
IG_DECLARE_PANELS(mxfp4)
#undef IG_DECLARE_PANELS

#endif
