/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights that Hugging Face directories hold as whole numbers of 4 or 8 bits, as AWQ, GPTQ and compressed-tensors write
 * them, in NVFP4, or in MXFP4 (gpt-oss), become tensors of types that GGUF files have too, which kernels know: the same
 * numbers in another order, in memory. So do experts' matrices that lie by columns, and
 * rows of q, k and v in turns, head by head.
 */
#ifndef IG_MODEL_WEIGHT_UNPACK_H
#define IG_MODEL_WEIGHT_UNPACK_H

#include "device/device.h"
#include "format/safetensors.h"
#include "model/config.h"

/* Puts one tensor "....weight" in the place of each "....qweight", "....weight_packed" or "....weight" of bytes, and of
 * what belongs to it. Whole numbers become Q4_0 where zero is in the middle of the codes, else Q4_1 (whose minimum is a
 * 16-bit float, up to 1/128 of a step away), or Q8_0; where groups are no neighbours ("desc_act") or no multiples of
 * 32, or 8 bits have other zeros, they are rounded to Q8_0. NVFP4 gets its factor as "....scale", and "...._blocks" of
 * MXFP4 lose this end. What was read leaves memory again. Of the configuration count zero_offset, what is added to
 * zeros of "qzeros", expert_order and are_heads_mixed. What differs from what these formats are is an error by name.
 * Where a device only plans all are zeros. */
ig_status ig_weights_unpack(ig_safetensors *s, ig_device *d, const ig_config *c, ig_loading *loading, ig_error *err);

#endif
