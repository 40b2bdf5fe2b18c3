/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the reading of config.json: its fields, and RoPE. The first thing that is wrong stays in the reader, and
 * what is read from then on means nothing.
 */
#ifndef IG_MODEL_CONFIG_HF_H
#define IG_MODEL_CONFIG_HF_H

#include <jansson.h>

#include "model/config_check.h"

enum { IG_HF_ABSENT = -1, IG_HF_WINDOW = 4096 /* where a class with windows states none */ };

typedef struct ig_hf_reader {
    const json_t *root;
    const char *path;
    ig_status status; /* the first failure */
    ig_error *err;
} ig_hf_reader;

/* A field that is neither absent nor null, else NULL. */
const json_t *ig_hf_get(const json_t *object, const char *key);
/* An integer of 1 to max; `absent` if it is not there, required if absent is IG_HF_ABSENT. */
int ig_hf_int(ig_hf_reader *r, const json_t *object, const char *key, int max, int absent);
/* One of the root: as *out is where it is absent, required if *out is 0. */
void ig_hf_size(ig_hf_reader *r, int *out, const char *key, int max);
/* One of 0 to max, of the root; `absent` must be that too. */
int ig_hf_count(ig_hf_reader *r, const char *key, int max, int absent);
/* A number above 0; required if absent is IG_HF_ABSENT. */
double ig_hf_number(ig_hf_reader *r, const json_t *object, const char *key, double absent);
/* The same within the limits of scales, and of bases of frequencies. */
double ig_hf_scale(ig_hf_reader *r, const char *key, double absent);
double ig_hf_theta(ig_hf_reader *r, const json_t *object, const char *key, double absent);
bool ig_hf_bool(ig_hf_reader *r, const char *key, bool absent);
/* The text of a field, `absent` if it is not there. */
const char *ig_hf_text(ig_hf_reader *r, const json_t *object, const char *key, const char *absent);

/* It must be `wanted`, such as "an integer"; it has a value that is not supported. */
void ig_hf_fail_kind(ig_hf_reader *r, const char *key, const char *wanted);
void ig_hf_refuse(ig_hf_reader *r, const char *key, const char *value);

/* Both spellings: "rope_scaling" beside "rope_theta", or one "rope_parameters". What is stated nowhere is as c has it.
 */
void ig_hf_rope(ig_hf_reader *r, ig_config *c);
/* How weights are quantised, as the root states. */
void ig_hf_read_quantization(ig_hf_reader *r, ig_config *c);
/* The object of either spelling; NULL: there is none. */
const json_t *ig_hf_rope_object(const ig_hf_reader *r);
/* How queries grow with their position (Ministral 3), which it must state. */
void ig_hf_read_growth(ig_hf_reader *r, ig_config *c);

typedef struct ig_hf_family {
    const char *name; /* the file's model_type */
    void (*read)(ig_hf_reader *r, ig_config *c);
    const char *own[5];     /* fields that others may not have */
    const ig_config *sizes; /* NULL: files state all */
} ig_hf_family;

/* What several families have: fields that are absent are as c has them, if it does. */
void ig_hf_read_llama(ig_hf_reader *r, ig_config *c);
void ig_hf_read_granite(ig_hf_reader *r, ig_config *c);
/* Windows of the layers that "layer_types" names, if stated, else of those from number `from` on. */
void ig_hf_read_windows(ig_hf_reader *r, ig_config *c, int window, json_int_t from);
/* Which frequencies layers with a window (of `absent` tokens, if that is not stated) and, where there are any, the
 * others rotate by: unless "layer_types" says which these are, all but every last of `pattern` have one. */
void ig_hf_read_local_layers(ig_hf_reader *r, ig_config *c, int pattern, int absent, ig_rope_set local,
                             ig_rope_set other);
/* Those of models that rotate in layers with a window alone: all but every last of "sliding_window_pattern" have one.
 */
void ig_hf_read_turning_layers(ig_hf_reader *r, ig_config *c);
/* Which layers rotate and which attend to chunks (Llama 4). */
void ig_hf_read_chunks(ig_hf_reader *r, ig_config *c);
/* The field called `width` is an expert's. */
void ig_hf_read_experts(ig_hf_reader *r, ig_config *c, const char *width, int n_used);
void ig_hf_read_qwen_experts(ig_hf_reader *r, ig_config *c, int n_used, bool is_normed);
/* How much of a head is rotated, as an object states; and stated in one of two places. */
int ig_hf_n_rot(ig_hf_reader *r, const json_t *object, int head_dim, double absent);
int ig_hf_read_n_rot(ig_hf_reader *r, int head_dim, double absent);

/* The same of later models, whose first layers, n_plain unless that is stated, have none. */
void ig_hf_read_later_experts(ig_hf_reader *r, ig_config *c, int n_plain, bool is_normed);

/* Families that others with experts are like. */
void ig_hf_read_cohere2(ig_hf_reader *r, ig_config *c);
void ig_hf_read_hunyuan(ig_hf_reader *r, ig_config *c);
void ig_hf_read_qwen2(ig_hf_reader *r, ig_config *c);
void ig_hf_read_qwen3(ig_hf_reader *r, ig_config *c);

/* config_hf_experts.c */
void ig_hf_read_afmoe(ig_hf_reader *r, ig_config *c);
void ig_hf_read_cohere2_moe(ig_hf_reader *r, ig_config *c);
void ig_hf_read_dots1(ig_hf_reader *r, ig_config *c);
void ig_hf_read_ernie4_5_moe(ig_hf_reader *r, ig_config *c);
void ig_hf_read_exaone_moe(ig_hf_reader *r, ig_config *c);
void ig_hf_read_glm4_moe(ig_hf_reader *r, ig_config *c);
void ig_hf_read_gpt_oss(ig_hf_reader *r, ig_config *c);
void ig_hf_read_granitemoe(ig_hf_reader *r, ig_config *c);
void ig_hf_read_hunyuan_moe(ig_hf_reader *r, ig_config *c);
void ig_hf_read_hy_v3(ig_hf_reader *r, ig_config *c);
void ig_hf_read_laguna(ig_hf_reader *r, ig_config *c);
void ig_hf_read_llama4(ig_hf_reader *r, ig_config *c);
void ig_hf_read_mellum(ig_hf_reader *r, ig_config *c);
void ig_hf_read_kimi_linear(ig_hf_reader *r, ig_config *c);
void ig_hf_read_minimax_m2(ig_hf_reader *r, ig_config *c);
void ig_hf_read_minimax_m3(ig_hf_reader *r, ig_config *c);
void ig_hf_read_mixtral(ig_hf_reader *r, ig_config *c);
void ig_hf_read_olmoe(ig_hf_reader *r, ig_config *c);
void ig_hf_read_qwen2_moe(ig_hf_reader *r, ig_config *c);
void ig_hf_read_qwen3_moe(ig_hf_reader *r, ig_config *c);
void ig_hf_read_qwen3_vl_moe(ig_hf_reader *r, ig_config *c);
void ig_hf_read_solar_open(ig_hf_reader *r, ig_config *c);

/* config_latent.c */
void ig_hf_read_deepseek_v2(ig_hf_reader *r, ig_config *c);
void ig_hf_read_deepseek_v3(ig_hf_reader *r, ig_config *c);
void ig_hf_read_deepseek_v32(ig_hf_reader *r, ig_config *c);
void ig_hf_read_glm4_moe_lite(ig_hf_reader *r, ig_config *c);
void ig_hf_read_glm_moe_dsa(ig_hf_reader *r, ig_config *c);
void ig_hf_read_mistral4(ig_hf_reader *r, ig_config *c);
extern const ig_config ig_hf_kimi_linear_sizes, ig_hf_youtu_sizes;
void ig_hf_read_youtu(ig_hf_reader *r, ig_config *c);
/* config_gemma4.c */
extern const ig_config ig_hf_gemma4_sizes;
void ig_hf_read_gemma4(ig_hf_reader *r, ig_config *c);

/* Families whose layers do not all attend: config_hf_hybrid.c. */
void ig_hf_read_falcon_h1(ig_hf_reader *r, ig_config *c);
void ig_hf_read_granite4(ig_hf_reader *r, ig_config *c);
void ig_hf_read_lfm2(ig_hf_reader *r, ig_config *c);
void ig_hf_read_lfm2_moe(ig_hf_reader *r, ig_config *c);
extern const ig_config ig_hf_lfm3_sizes;
void ig_hf_read_lfm3(ig_hf_reader *r, ig_config *c);
void ig_hf_read_nemotron_h(ig_hf_reader *r, ig_config *c);
void ig_hf_read_qwen3_5(ig_hf_reader *r, ig_config *c);
void ig_hf_read_qwen3_5_moe(ig_hf_reader *r, ig_config *c);
void ig_hf_read_qwen3_next(ig_hf_reader *r, ig_config *c);

/* NULL: there is none of this name. */
const ig_hf_family *ig_hf_family_named(const char *name);

#endif
