/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of tensor element types.
 */
#include "base/type.h"

static const ig_type_info types[] = {
    [IG_TYPE_F32] = {"F32", 1, 4, true},
    [IG_TYPE_F16] = {"F16", 1, 2, true},
    [IG_TYPE_BF16] = {"BF16", 1, 2, true},
    [IG_TYPE_Q4_0] = {"Q4_0", 32, 18, true},
    [IG_TYPE_Q4_1] = {"Q4_1", 32, 20, true},
    [IG_TYPE_Q5_0] = {"Q5_0", 32, 22, true},
    [IG_TYPE_Q5_1] = {"Q5_1", 32, 24, true},
    [IG_TYPE_Q8_0] = {"Q8_0", 32, 34, true},
    [IG_TYPE_Q2_K] = {"Q2_K", 256, 84, true},
    [IG_TYPE_Q3_K] = {"Q3_K", 256, 110, true},
    [IG_TYPE_Q4_K] = {"Q4_K", 256, 144, true},
    [IG_TYPE_Q5_K] = {"Q5_K", 256, 176, true},
    [IG_TYPE_Q6_K] = {"Q6_K", 256, 210, true},
    [IG_TYPE_IQ1_S] = {"IQ1_S", 256, 50, true},
    [IG_TYPE_IQ1_M] = {"IQ1_M", 256, 56, true},
    [IG_TYPE_IQ2_XXS] = {"IQ2_XXS", 256, 66, true},
    [IG_TYPE_IQ2_XS] = {"IQ2_XS", 256, 74, true},
    [IG_TYPE_IQ2_S] = {"IQ2_S", 256, 82, true},
    [IG_TYPE_IQ3_XXS] = {"IQ3_XXS", 256, 98, true},
    [IG_TYPE_IQ3_S] = {"IQ3_S", 256, 110, true},
    [IG_TYPE_IQ4_NL] = {"IQ4_NL", 32, 18, true},
    [IG_TYPE_IQ4_XS] = {"IQ4_XS", 256, 136, true},
    [IG_TYPE_MXFP4] = {"MXFP4", 32, 17, true},
    [IG_TYPE_TQ1_0] = {"TQ1_0", 256, 54, true},
    [IG_TYPE_TQ2_0] = {"TQ2_0", 256, 66, true},
    [IG_TYPE_NVFP4] = {"NVFP4", 64, 36, true},
    [IG_TYPE_Q1_0] = {"Q1_0", 128, 18, true},
    [IG_TYPE_Q2_0] = {"Q2_0", 64, 18, true},
    [IG_TYPE_F8_E4M3] = {"F8_E4M3", 1, 1, true},
    [IG_TYPE_U8] = {"U8", 1, 1, false},
    /* such tensors can be listed, not computed with */
    [9] = {"Q8_1", 32, 36, false},
    [15] = {"Q8_K", 256, 292, false},
    [IG_TYPE_I8] = {"I8", 1, 1, false},
    [25] = {"I16", 1, 2, false},
    [IG_TYPE_I32] = {"I32", 1, 4, false},
    [IG_TYPE_I64] = {"I64", 1, 8, false},
    [28] = {"F64", 1, 8, false},
};

const ig_type_info *ig_type_get(uint32_t type) {
    if (type >= sizeof types / sizeof types[0] || !types[type].name) return NULL;
    return &types[type];
}
