/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of tensor element types.
 */
#include "base/type.h"

static const ig_type_info types[IG_TYPE_COUNT] = {
    [IG_TYPE_F32] = {"F32", 1, 4},       [IG_TYPE_F16] = {"F16", 1, 2},       [IG_TYPE_BF16] = {"BF16", 1, 2},
    [IG_TYPE_Q4_0] = {"Q4_0", 32, 18},   [IG_TYPE_Q4_1] = {"Q4_1", 32, 20},   [IG_TYPE_Q5_0] = {"Q5_0", 32, 22},
    [IG_TYPE_Q5_1] = {"Q5_1", 32, 24},   [IG_TYPE_Q8_0] = {"Q8_0", 32, 34},   [IG_TYPE_Q2_K] = {"Q2_K", 256, 84},
    [IG_TYPE_Q3_K] = {"Q3_K", 256, 110}, [IG_TYPE_Q4_K] = {"Q4_K", 256, 144}, [IG_TYPE_Q5_K] = {"Q5_K", 256, 176},
    [IG_TYPE_Q6_K] = {"Q6_K", 256, 210},
};

const ig_type_info *ig_type_get(uint32_t type) {
    if (type >= IG_TYPE_COUNT || !types[type].name) return NULL;
    return &types[type];
}
