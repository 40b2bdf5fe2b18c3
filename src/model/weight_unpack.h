/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights that Hugging Face directories hold as whole numbers of 4 or 8 bits, as AWQ, GPTQ and compressed-tensors write
 * them, or as gpt-oss' in MXFP4, become tensors of types that GGUF files have too, which kernels know: the same numbers
 * in another order, in memory.
 */
#ifndef IG_MODEL_WEIGHT_UNPACK_H
#define IG_MODEL_WEIGHT_UNPACK_H

#include "device/device.h"
#include "format/safetensors.h"

/* Puts one tensor "....weight" in the place of each "....qweight", "....weight_packed" or "....weight" of bytes, and of
 * what belongs to it: Q4_0 where zero is in the middle of the codes, else Q4_1 (whose minimum is a 16-bit float, up to
 * 1/128 of a step away), or Q8_0. Where groups are no
 * neighbours ("desc_act") or no multiples of 32, or 8 bits have other zeros, weights are rounded to Q8_0. What was read
 * leaves memory again. zero_offset: what is added to zeros of "qzeros". What differs from what these formats are is an
 * error by name. Where a device only plans nothing is written. */
ig_status ig_weights_unpack(ig_safetensors *s, ig_device *d, int zero_offset, ig_loading *loading, ig_error *err);

#endif
