/* SPDX-License-Identifier: Apache-2.0
 *
 * What config.json says of how weights are quantised: "quantization_config". Most is told by tensors' types and shapes
 * (weight_binder.c, weight_unpack.c); here is what these do not tell, and what is not supported is refused. How
 * activations would be quantised does not matter.
 */
#include <string.h>

#include "base/block_scales.h"
#include "base/error.h"
#include "format/json.h"
#include "format/names.h"
#include "model/config_hf.h"

/* Rows and columns of blocks, a list of two; null: there are none. */
static void read_blocks(ig_hf_reader *r, ig_config *c, const json_t *object, const char *key) {
    const json_t *list = ig_hf_get(object, key);
    int *const to[] = {&c->file.fp8_block_rows, &c->file.fp8_block_cols};
    for (size_t i = 0; list && i < 2; i++) {
        const json_t *n = json_array_get(list, i);
        if (json_array_size(list) != 2 || !json_is_integer(n) || json_integer_value(n) < 1 ||
            json_integer_value(n) > IG_MAX_WIDTH || (i && json_integer_value(n) % IG_SCALES_UNIT)) {
            ig_hf_fail_kind(r, key, "two integers above 0, the second a multiple of 64");
            return;
        }
        *to[i] = (int)json_integer_value(n);
    }
}

/* "compressed-tensors": every group of layers must be in FP8, NVFP4, or whole numbers of 4 or 8 bits. */
static void read_groups(ig_hf_reader *r, ig_config *c, const json_t *quantization) {
    const json_t *groups = ig_hf_get(quantization, "config_groups"), *group;
    const char *key;
    json_object_foreach((json_t *)(uintptr_t)groups, key, group) {
        const json_t *weights = ig_hf_get(group, "weights");
        if (!weights) continue; /* of activations alone */
        int bits = ig_hf_int(r, weights, "num_bits", 64, IG_HF_ABSENT);
        const char *type = ig_hf_text(r, weights, "type", "");
        bool is_float = strcmp(type, "float") == 0, is_int = strcmp(type, "int") == 0;
        bool is_nvfp4 = is_float && bits == 4 && ig_hf_int(r, weights, "group_size", IG_MAX_WIDTH, 0) == 16;
        bool is_known = is_nvfp4 || ((is_float || is_int) && bits == 8) || (is_int && bits == 4);
        if (!r->status && !is_known)
            r->status = ig_fail(r->err, IG_E_UNSUPPORTED,
                                "%s: 'config_groups': weights of %d bits of type '%.20s' are not supported, only of "
                                "'float' with 8, or with 4 in groups of 16, and of 'int' with 4 or 8",
                                r->path, bits == IG_HF_ABSENT ? 0 : bits, type);
        read_blocks(r, c, weights, "block_structure");
    }
}

/* Bits of AWQ's and GPTQ's. Single layers may have others, which the shapes of their tensors tell. */
static void check_bits(ig_hf_reader *r, const json_t *quantization, bool is_awq) {
    int bits = ig_hf_int(r, quantization, "bits", 64, 4);
    const char *version = is_awq ? ig_hf_text(r, quantization, "version", "gemm") : "gemm";
    if (r->status) return;
    if (bits != 4 && (bits != 8 || is_awq))
        r->status = ig_fail(r->err, IG_E_UNSUPPORTED, "%s: 'quantization_config': 'bits' is %d, only 4%s supported",
                            r->path, bits, is_awq ? " is" : " and 8 are");
    else if (strcmp(version, "gemm") != 0 && strcmp(version, "GEMM") != 0)
        r->status =
            ig_fail(r->err, IG_E_UNSUPPORTED,
                    "%s: 'quantization_config': 'version' '%.40s' is not supported, only 'gemm'", r->path, version);
}

void ig_hf_read_quantization(ig_hf_reader *r, ig_config *c) {
    const json_t *q = ig_hf_get(r->root, "quantization_config");
    if (!q || r->status) return;
    const char *method = ig_hf_text(r, q, "quant_method", ""), *algorithm = ig_hf_text(r, q, "quant_algo", ""),
               *format = ig_hf_text(r, q, "checkpoint_format", ""), *order = ig_hf_text(r, q, "packing_format", "");
    bool is_auto_round = strcmp(method, "auto-round") == 0,
         is_awq = strcmp(method, "awq") == 0 || (is_auto_round && ig_name_ends_with(order, "awq")),
         is_gptq = strcmp(method, "gptq") == 0 || (is_auto_round && ig_name_ends_with(order, "gptq"));
    if (json_object_size(ig_hf_get(q, "transform_config"))) ig_hf_refuse(r, "transform_config", "set");
    if (strcmp(method, "fp8") == 0)
        read_blocks(r, c, q, "weight_block_size");
    else if (strcmp(method, "compressed-tensors") == 0)
        read_groups(r, c, q);
    else if (is_awq || is_gptq)
        check_bits(r, q, is_awq);
    else if (!r->status && strcmp(method, "mxfp4") != 0 &&
             (strcmp(method, "modelopt") != 0 || (strcmp(algorithm, "FP8") != 0 && strcmp(algorithm, "NVFP4") != 0)))
        r->status = ig_fail(r->err, IG_E_UNSUPPORTED,
                            "%s: 'quantization_config': weights as '%.40s'%s%.40s makes them are not supported, only "
                            "FP8, NVFP4, AWQ, GPTQ and compressed-tensors",
                            r->path, method, *algorithm ? " by " : "", algorithm);
    /* The first form of GPTQ's files has zeros less 1. */
    c->file.zero_offset = is_gptq && strcmp(format, "gptq_v2") != 0;
}
