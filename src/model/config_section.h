/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the reading of GGUF metadata: the model's own section, and what families have of their own. The first
 * thing that is wrong stays in the section, and what is read from then on means nothing.
 */
#ifndef IG_MODEL_CONFIG_SECTION_H
#define IG_MODEL_CONFIG_SECTION_H

#include "model/config_check.h"

typedef struct ig_section {
    const ig_gguf *g;
    const char *path, *architecture; /* keys begin with "<architecture>." */
    ig_status status;                /* the first failure */
    ig_error *err;
} ig_section;

/* "<architecture>.<name>" */
typedef struct ig_section_key {
    char text[128];
} ig_section_key;

ig_section_key ig_section_name(const ig_section *r, const char *name);
/* An integer; `absent` if it is not there, required if absent is -1. */
int ig_section_int(ig_section *r, const char *name, int max, int absent);
/* One of 0 to max; 0 if it is not there. */
int ig_section_count(ig_section *r, const char *name, int max);
/* The same for each of n layers: a list, or one number for all. */
void ig_section_list(ig_section *r, const char *name, int max, int *out, int n);
/* True or false for each layer, if the key has a list. */
bool ig_section_flags(ig_section *r, const ig_config *c, const char *name, bool *flags);
/* Numbers of layers where all layers with a window must have one number, and the others too; a kind that no layer is of
 * has the other's. */
void ig_section_read_kinds(ig_section *r, const ig_config *c, const char *name, int max, int *local, int *other);
double ig_section_number(ig_section *r, const char *name, double absent);
/* The same, low to high if it is stated; within the limits of scales. */
double ig_section_ranged(ig_section *r, const char *name, double low, double high, double absent);
double ig_section_scale(ig_section *r, const char *name, double absent);

/* What several families have: windows of layers that rotate by frequencies of a base of their own, all but every last
 * of `pattern`, or but every first of -`pattern`, unless a list says which; and experts, if there are any, as many in
 * all layers. */
void ig_section_read_local_windows(ig_section *r, ig_config *c, int pattern, double local_theta);
void ig_section_read_experts(ig_section *r, ig_config *c);

/* The same of later models, whose first layers have none and whose last one may guess tokens ahead. */
void ig_section_read_later_experts(ig_section *r, ig_config *c);
void ig_section_read_groups(ig_section *r, ig_config *c);
/* Experts whose scores are sigmoids, with a bias where some are chosen; and with what their shares add up to, too. */
void ig_gguf_read_sigmoid_experts(ig_section *r, ig_config *c);
void ig_gguf_read_sigmoid_shares(ig_section *r, ig_config *c);
/* Windows, if there are any, and which frequencies layers with and without one rotate by; or that there are none, which
 * Qwen's files do not say. */
void ig_gguf_read_windows(ig_section *r, ig_config *c, int pattern, ig_rope_set local, ig_rope_set other);
void ig_gguf_read_no_window(ig_section *r, ig_config *c);

/* Families that others with experts are like. */
void ig_gguf_read_cohere2(ig_section *r, ig_config *c);
void ig_gguf_read_hunyuan(ig_section *r, ig_config *c);
void ig_gguf_read_qwen3(ig_section *r, ig_config *c);

/* config_gguf_experts.c */
void ig_gguf_read_afmoe(ig_section *r, ig_config *c);
void ig_gguf_read_bailingmoe2(ig_section *r, ig_config *c);
void ig_gguf_read_cohere2moe(ig_section *r, ig_config *c);
void ig_gguf_read_deepseek(ig_section *r, ig_config *c);
void ig_gguf_read_ernie4_5_moe(ig_section *r, ig_config *c);
void ig_gguf_read_exaone_moe(ig_section *r, ig_config *c);
void ig_gguf_read_glm4moe(ig_section *r, ig_config *c);
void ig_gguf_read_gpt_oss(ig_section *r, ig_config *c);
void ig_gguf_read_hunyuan_moe(ig_section *r, ig_config *c);
void ig_gguf_read_hy_v3(ig_section *r, ig_config *c);
void ig_gguf_read_laguna(ig_section *r, ig_config *c);
void ig_gguf_read_llama4(ig_section *r, ig_config *c);
void ig_gguf_read_mellum(ig_section *r, ig_config *c);
void ig_gguf_read_kimi_linear(ig_section *r, ig_config *c);
void ig_gguf_read_minimax_m2(ig_section *r, ig_config *c);
void ig_gguf_read_minimax_m3(ig_section *r, ig_config *c);
void ig_gguf_read_olmoe(ig_section *r, ig_config *c);
void ig_gguf_read_qwen2moe(ig_section *r, ig_config *c);
void ig_gguf_read_qwen3moe(ig_section *r, ig_config *c);

/* config_latent.c */
void ig_gguf_read_deepseek2(ig_section *r, ig_config *c);
void ig_gguf_read_deepseek32(ig_section *r, ig_config *c);
void ig_gguf_read_glm_dsa(ig_section *r, ig_config *c);
/* config_gemma4.c */
void ig_gguf_read_gemma4(ig_section *r, ig_config *c);

typedef struct ig_gguf_family {
    const char *name; /* the file's general.architecture */
    ig_rope_kind rope;
    void (*read)(ig_section *r, ig_config *c); /* what is its own */
    const char *own[24];                       /* keys that it uses, which must be neutral in others */
} ig_gguf_family;

/* NULL: there is none of this name. */
const ig_gguf_family *ig_gguf_family_named(ig_text name);

#endif
