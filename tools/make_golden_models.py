#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the tiny models of tests/golden/models and their golden outputs.

Needs torch, transformers, peft, safetensors, gguf and numpy. The outputs are in the repository (but those that would
show nothing new, to keep it small), so nobody has to run this to run the tests; run it to add a model.

    tools/make_golden_models.py OUT_DIR [FIRST_SEED [MODEL...]]

For every model it writes an ordinary Hugging Face directory (config.json, model.safetensors,
generation_config.json; of a model that is run from a GGUF file alone that file in its place) and little-endian arrays:

    golden/tokens.i32    int32 [n]: the prompt
    golden/logits.f32    float32 [48, vocab]: logits after each of the last 48 tokens of the prompt
    golden/greedy.i32    int32 [g]: greedy continuation of the prompt
    golden/golden.json   shapes, margins of the greedy tokens, library versions

llama31 has an adapter, too, as PEFT writes it (adapter/), and golden/adapter_logits.f32, the logits with it.

Everything is computed in float32 with eager attention from the weights as stored (float16 or bfloat16 according
to the model). Models with experts want a seed at which no token chooses between two of nearly the same score: rounding
decides there, and logits are 0.2 off (qwen3moe is of seed 1100, glm4moe of 1501, deepseek2 of 5300, deepseek3 of
10700, glm4-lite of 2314). So do those with recurrences, whose norms enlarge what was rounded (qwen3.5, granite4-h,
nemotron-h, lfm2 and lfm2-moe are of 1600, qwen3.5-moe of 1500, qwen3-next of 1300, qwen3-next-folder of 1330, nemotron-h-moe and nemotron-h-latent of 1900)
and models with indexers, whose tokens choose entries (deepseek32 is of 1102, glm-dsa of 1037, minimax-m3 of 1045).
cohere2-moe and exaone-moe are of 1100, mistral4 of 1300, lfm3 of 1200, falcon-h1 of 1600.
"""
import json, os, re, shutil, sys
import gguf
import numpy as np
import torch
import transformers
from transformers import ApertusConfig, ApertusForCausalLM, LagunaConfig, LagunaForCausalLM
from transformers import (LlamaConfig, LlamaForCausalLM, OPTConfig, OPTForCausalLM,
                          Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM,
                          MistralConfig, MistralForCausalLM, Gemma3ForCausalLM, Gemma3TextConfig,
                          GraniteConfig, GraniteForCausalLM, Olmo3Config, Olmo3ForCausalLM,
                          Phi3Config, Phi3ForCausalLM, SmolLM3Config, SmolLM3ForCausalLM,
                          GraniteMoeConfig, GraniteMoeForCausalLM, MixtralConfig, MixtralForCausalLM,
                          OlmoeConfig, OlmoeForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM,
                          Glm4MoeConfig, Glm4MoeForCausalLM, GptOssConfig, GptOssForCausalLM,
                          AfmoeConfig, AfmoeForCausalLM, CohereConfig, CohereForCausalLM, Cohere2Config,
                          Cohere2ForCausalLM, Gemma2Config, Gemma2ForCausalLM, Mistral4Config, ExaoneMoeConfig, ExaoneMoeForCausalLM,
                          Qwen2MoeConfig, Qwen2MoeForCausalLM, ArceeConfig, ArceeForCausalLM, NemotronConfig,
                          NemotronForCausalLM, HunYuanMoEV1Config, HunYuanMoEV1ForCausalLM,
                          Mistral4ForCausalLM, Cohere2MoeConfig, Cohere2MoeForCausalLM, Dots1Config, Dots1ForCausalLM, GemmaConfig,
                          GemmaForCausalLM, SolarOpenConfig, SolarOpenForCausalLM, Ernie4_5Config, Ernie4_5ForCausalLM, Exaone4Config, Exaone4ForCausalLM,
                          Glm4Config, Glm4ForCausalLM, HunYuanDenseV1Config, HunYuanDenseV1ForCausalLM,
                          MiniMaxM2Config, MiniMaxM2ForCausalLM, Mistral3Config, Mistral3ForConditionalGeneration,
                          SeedOssConfig, SeedOssForCausalLM, GlmConfig, GlmForCausalLM,
                          Ernie4_5_MoeConfig, Ernie4_5_MoeForCausalLM,
                          FalconH1Config, FalconH1ForCausalLM, Lfm2Config, Lfm2ForCausalLM, Lfm2MoeConfig, Lfm2MoeForCausalLM,
                          NemotronHConfig, NemotronHForCausalLM, GraniteMoeHybridConfig,
                          GraniteMoeHybridForCausalLM, GraniteSWAConfig, GraniteSWAForCausalLM,
                          HYV3Config, HYV3ForCausalLM, MellumConfig, MellumForCausalLM,
                          Gemma3Config, Gemma3ForConditionalGeneration, Gemma4TextConfig, Gemma4ForCausalLM,
                          Qwen2_5_VLConfig,
                          Qwen2_5_VLForConditionalGeneration, Qwen3VLConfig, Qwen3VLForConditionalGeneration,
                          Qwen3VLMoeConfig, Qwen3VLMoeForConditionalGeneration, Qwen3_5Config,
                          Qwen3_5ForConditionalGeneration, Qwen3_5MoeTextConfig, Qwen3_5MoeForCausalLM,
                          Qwen3NextConfig, Qwen3NextForCausalLM,
                          DeepseekV2Config, DeepseekV2ForCausalLM, DeepseekV3Config, DeepseekV3ForCausalLM, DeepseekV32Config, DeepseekV32ForCausalLM,
                          GlmMoeDsaConfig, GlmMoeDsaForCausalLM, MiniMaxM3VLConfig, MiniMaxM3VLTextConfig,
                          MiniMaxM3SparseForConditionalGeneration, KimiLinearConfig, KimiLinearForCausalLM,
                          Glm4MoeLiteConfig, Glm4MoeLiteForCausalLM, Lfm3Config, Lfm3ForCausalLM, MuseGlimmerConfig, MuseGlimmerTextConfig,
                          MuseGlimmerForConditionalGeneration, YoutuConfig, YoutuForCausalLM, Llama4TextConfig, Llama4ForCausalLM, GPTNeoXConfig, GPTNeoXForCausalLM, Starcoder2Config,
                          PhiConfig, PhiForCausalLM, StableLmConfig, StableLmForCausalLM,
                          Starcoder2ForCausalLM)

VOCAB = 512
PROMPT, GREEDY = 96, 32
ROWS = 48  # logits kept: those of the last tokens of the prompt


def build(name):
    common = dict(vocab_size=VOCAB, bos_token_id=1, eos_token_id=2, pad_token_id=0)
    if name == "opt":
        cfg = OPTConfig(**common, hidden_size=128, num_hidden_layers=4, num_attention_heads=4,
                        ffn_dim=256, max_position_embeddings=256, word_embed_proj_dim=128,
                        do_layer_norm_before=True, activation_function="relu")
        return OPTForCausalLM(cfg), torch.float16
    if name == "opt-350m-like":   # post layer norm and a projected embedding, as OPT-350m has
        cfg = OPTConfig(**common, hidden_size=128, num_hidden_layers=3, num_attention_heads=4,
                        ffn_dim=256, max_position_embeddings=256, word_embed_proj_dim=64,
                        do_layer_norm_before=False, activation_function="relu")
        return OPTForCausalLM(cfg), torch.float16
    if name == "llama2":          # multi-head attention
        cfg = LlamaConfig(**common, hidden_size=128, intermediate_size=344, num_hidden_layers=4,
                          num_attention_heads=4, num_key_value_heads=4,
                          max_position_embeddings=256, rms_norm_eps=1e-5)
        return LlamaForCausalLM(cfg), torch.float16
    if name == "llama31":         # grouped queries, llama3 RoPE scaling, tied embeddings as in 3.2
        cfg = LlamaConfig(**common, hidden_size=192, intermediate_size=384, num_hidden_layers=4,
                          num_attention_heads=6, num_key_value_heads=2, head_dim=32,
                          max_position_embeddings=1024, rms_norm_eps=1e-5,
                          rope_theta=500000.0, tie_word_embeddings=True,
                          rope_scaling=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0,
                                            high_freq_factor=4.0,
                                            original_max_position_embeddings=64))
        return LlamaForCausalLM(cfg), torch.bfloat16
    if name == "qwen2":           # biases on q, k, v
        cfg = Qwen2Config(**common, hidden_size=128, intermediate_size=256, num_hidden_layers=4,
                          num_attention_heads=4, num_key_value_heads=2,
                          max_position_embeddings=256, rope_theta=1000000.0)
        return Qwen2ForCausalLM(cfg), torch.bfloat16
    if name == "qwen3":           # RMS norm on every query and key head
        cfg = Qwen3Config(**common, hidden_size=128, intermediate_size=256, num_hidden_layers=3,
                          num_attention_heads=4, num_key_value_heads=2, head_dim=64,
                          max_position_embeddings=256, rope_theta=1000000.0)
        return Qwen3ForCausalLM(cfg), torch.bfloat16
    if name == "mistral":         # sliding window attention
        cfg = MistralConfig(**common, hidden_size=128, intermediate_size=256, num_hidden_layers=3,
                            num_attention_heads=4, num_key_value_heads=2, head_dim=32,
                            max_position_embeddings=256, sliding_window=48)
        return MistralForCausalLM(cfg), torch.bfloat16
    if name == "qwen2-yarn":      # YaRN, as Qwen2.5's model cards state it for long contexts: the config's own length stays
        cfg = Qwen2Config(**common, hidden_size=96, intermediate_size=160, num_hidden_layers=2,
                          num_attention_heads=3, num_key_value_heads=1, max_position_embeddings=32,
                          tie_word_embeddings=True,
                          rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=4.0,
                                               original_max_position_embeddings=32))
        return Qwen2ForCausalLM(cfg), torch.bfloat16
    if name == "gemma3":          # norms around, windows with frequencies of their own, gelu, scaled embeddings
        cfg = Gemma3TextConfig(**common, hidden_size=80, intermediate_size=160, num_hidden_layers=4,
                               num_attention_heads=4, num_key_value_heads=2, head_dim=32, query_pre_attn_scalar=24,
                               max_position_embeddings=256, sliding_window=24,
                               layer_types=["sliding_attention", "sliding_attention", "full_attention",
                                            "sliding_attention"],
                               rope_parameters=dict(
                                   full_attention=dict(rope_type="linear", rope_theta=1000000.0, factor=8.0),
                                   sliding_attention=dict(rope_type="default", rope_theta=10000.0)))
        return Gemma3ForCausalLM(cfg), torch.bfloat16
    if name == "granite":         # scales of embeddings, residuals, attention and logits
        cfg = GraniteConfig(**common, hidden_size=96, intermediate_size=160, num_hidden_layers=3,
                            num_attention_heads=3, num_key_value_heads=1, max_position_embeddings=256,
                            rope_theta=10000.0, embedding_multiplier=1.5,
                            residual_multiplier=0.22, attention_multiplier=0.05, logits_scaling=0.75)
        return GraniteForCausalLM(cfg), torch.bfloat16
    if name == "olmo3":           # norms of what attention and the FFN give, of all heads at once, windows, YaRN beside
        cfg = Olmo3Config(**common, hidden_size=96, intermediate_size=160, num_hidden_layers=4,
                          num_attention_heads=3, num_key_value_heads=3, max_position_embeddings=128, sliding_window=24,
                          rope_parameters=dict(
                              full_attention=dict(rope_type="yarn", rope_theta=10000.0, factor=4.0,
                                                  original_max_position_embeddings=32),
                              sliding_attention=dict(rope_type="default", rope_theta=10000.0)))
        return Olmo3ForCausalLM(cfg), torch.bfloat16
    if name == "phi3":            # q, k, v and gate, up in one matrix each, heads rotated in part, two sets of factors
        cfg = Phi3Config(**common, hidden_size=128, intermediate_size=160, num_hidden_layers=3,
                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
                         original_max_position_embeddings=32,
                         rope_parameters=dict(rope_type="longrope", rope_theta=10000.0, partial_rotary_factor=0.75,
                                              short_factor=[1.0] * 12, long_factor=[1 + 0.2 * i for i in range(12)]))
        return Phi3ForCausalLM(cfg), torch.bfloat16
    if name == "smollm3":         # every other layer does not rotate
        cfg = SmolLM3Config(**common, hidden_size=96, intermediate_size=160, num_hidden_layers=4,
                            num_attention_heads=3, num_key_value_heads=1, max_position_embeddings=256,
                            rope_theta=10000.0, tie_word_embeddings=True, no_rope_layers=[1, 0, 1, 0])
        return SmolLM3ForCausalLM(cfg), torch.bfloat16
    if name == "qwen3moe":        # experts whose shares add up to 1
        cfg = Qwen3MoeConfig(**common, hidden_size=64, intermediate_size=160, num_hidden_layers=3,
                             num_attention_heads=4, num_key_value_heads=2, head_dim=32,
                             max_position_embeddings=256, rope_theta=1000000.0, moe_intermediate_size=32,
                             num_experts=6, num_experts_per_tok=2, norm_topk_prob=True)
        return Qwen3MoeForCausalLM(cfg), torch.bfloat16
    if name == "olmoe":           # experts whose shares do not, norms of all heads at once
        cfg = OlmoeConfig(**common, hidden_size=64, intermediate_size=32, num_hidden_layers=3,
                          num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=256,
                          rope_theta=10000.0, num_experts=5, num_experts_per_tok=3)
        return OlmoeForCausalLM(cfg), torch.bfloat16
    if name == "mixtral":
        cfg = MixtralConfig(**common, hidden_size=64, intermediate_size=32, num_hidden_layers=3,
                            num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=256,
                            rope_theta=10000.0, num_local_experts=4, num_experts_per_tok=2)
        return MixtralForCausalLM(cfg), torch.bfloat16
    if name == "granitemoe":      # all experts' matrices of a layer in one tensor, gate and up in one matrix, scales
        cfg = GraniteMoeConfig(**common, hidden_size=64, intermediate_size=32, num_hidden_layers=3,
                               num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=256,
                               rope_theta=10000.0, embedding_multiplier=1.5, residual_multiplier=0.22,
                               attention_multiplier=0.05, logits_scaling=0.75,
                               num_local_experts=6, num_experts_per_tok=2)
        return GraniteMoeForCausalLM(cfg), torch.bfloat16
    if name == "gpt-oss":         # sinks, a limited gate, biases everywhere, YaRN whose blend is not of whole numbers
        cfg = GptOssConfig(**common, hidden_size=64, intermediate_size=32, num_hidden_layers=4,
                           num_attention_heads=4, num_key_value_heads=2, head_dim=32, sliding_window=24,
                           max_position_embeddings=128, num_local_experts=6, num_experts_per_tok=2,
                           rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, beta_fast=32.0,
                                                beta_slow=1.0, truncate=False, original_max_position_embeddings=32))
        return GptOssForCausalLM(cfg), torch.bfloat16
    if name == "glm4moe":         # a layer without experts, one for all tokens beside them, sigmoids with biases
        cfg = Glm4MoeConfig(**common, hidden_size=64, intermediate_size=160, num_hidden_layers=4,
                            num_attention_heads=4, num_key_value_heads=2, head_dim=32, attention_bias=True,
                            max_position_embeddings=256, moe_intermediate_size=32, n_routed_experts=6,
                            n_shared_experts=2, num_experts_per_tok=2, first_k_dense_replace=1,
                            routed_scaling_factor=1.5, use_qk_norm=True, rope_theta=10000.0)
        model = Glm4MoeForCausalLM(cfg)
        for layer in model.model.layers[1:]:
            torch.nn.init.normal_(layer.mlp.gate.e_score_correction_bias, std=0.1)
        return model, torch.bfloat16
    if name == "mistral-wide":    # heads so wide that 16 tokens take two blocks of keys and values
        cfg = MistralConfig(**common, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                            num_attention_heads=2, num_key_value_heads=1, head_dim=128,
                            max_position_embeddings=256, sliding_window=40)
        return MistralForCausalLM(cfg), torch.bfloat16
    if name == "glm4":            # norms around, gate and up in one matrix, half of each head rotated, in adjacent pairs
        cfg = Glm4Config(**common, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=3,
                         num_key_value_heads=1, head_dim=32, max_position_embeddings=256, rope_theta=10000.0)
        return Glm4ForCausalLM(cfg), torch.bfloat16
    if name == "cohere":          # attention and feed-forward parts side by side, plain layer norms
        cfg = CohereConfig(**common, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4,
                           num_key_value_heads=4, max_position_embeddings=256, rope_theta=10000.0, logit_scale=4.0)
        return CohereForCausalLM(cfg), torch.bfloat16
    if name == "cohere2":         # the same with windows, and layers without one that do not rotate
        cfg = Cohere2Config(**common, hidden_size=64, intermediate_size=96, num_hidden_layers=5, num_attention_heads=4,
                            num_key_value_heads=2, max_position_embeddings=256, rope_theta=10000.0, logit_scale=4.0,
                            sliding_window=24)
        return Cohere2ForCausalLM(cfg), torch.bfloat16
    if name == "cohere2-moe":     # and with experts, averaged with one for all, behind a layer without any
        cfg = Cohere2MoeConfig(**common, hidden_size=64, intermediate_size=48, num_hidden_layers=5, num_attention_heads=4,
                               num_key_value_heads=2, head_dim=16, max_position_embeddings=256, rope_theta=10000.0,
                               logit_scale=4.0, sliding_window=24, num_experts=6, num_experts_per_tok=2,
                               num_shared_experts=1, expert_selection_fn="sigmoid", first_k_dense_replace=1,
                               prefix_dense_intermediate_size=96)
        return Cohere2MoeForCausalLM(cfg), torch.bfloat16
    if name == "gemma2":          # scores and logits have caps, every other layer a window
        cfg = Gemma2Config(**common, hidden_size=64, intermediate_size=96, num_hidden_layers=4, num_attention_heads=4,
                           num_key_value_heads=2, head_dim=16, max_position_embeddings=256, sliding_window=24,
                           query_pre_attn_scalar=20, attn_logit_softcapping=1.0, final_logit_softcapping=20.0)
        return Gemma2ForCausalLM(cfg), torch.bfloat16
    if name == "mistral4":        # latents with experts, and queries that grow
        cfg = Mistral4Config(**common, hidden_size=64, intermediate_size=96, moe_intermediate_size=48, num_hidden_layers=3,
                             num_attention_heads=4, num_key_value_heads=4, n_shared_experts=1, n_routed_experts=6,
                             kv_lora_rank=48, q_lora_rank=40, qk_rope_head_dim=16, v_head_dim=32, qk_nope_head_dim=24,
                             num_experts_per_tok=2, max_position_embeddings=1024,
                             rope_parameters=dict(type="yarn", rope_type="yarn", rope_theta=10000.0, factor=64.0,
                                                  original_max_position_embeddings=16, beta_fast=32.0, beta_slow=1.0,
                                                  mscale_all_dim=1.0, mscale=1.0, llama_4_scaling_beta=0.5))
        return Mistral4ForCausalLM(cfg), torch.bfloat16
    if name == "exaone-moe":      # windows, norms of heads, experts by sigmoids behind a layer without any
        cfg = ExaoneMoeConfig(**common, hidden_size=64, intermediate_size=64, num_hidden_layers=5, num_attention_heads=4,
                              num_key_value_heads=2, max_position_embeddings=256, sliding_window=24,
                              rope_parameters=dict(rope_type="default", rope_theta=10000.0), moe_intermediate_size=32,
                              num_experts=4, num_experts_per_tok=2, num_shared_experts=1)
        return ExaoneMoeForCausalLM(cfg), torch.bfloat16
    if name == "qwen2-moe":       # a gated expert for all tokens, shares that do not add up to 1
        cfg = Qwen2MoeConfig(**common, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4,
                             num_key_value_heads=2, max_position_embeddings=256, rope_theta=10000.0,
                             moe_intermediate_size=48, shared_expert_intermediate_size=80, num_experts=6,
                             num_experts_per_tok=2)
        return Qwen2MoeForCausalLM(cfg), torch.bfloat16
    if name == "arcee":           # feed-forward parts of squares without a gate
        cfg = ArceeConfig(**common, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4,
                          num_key_value_heads=2, max_position_embeddings=256,
                          rope_parameters=dict(rope_type="default", rope_theta=10000.0))
        return ArceeForCausalLM(cfg), torch.bfloat16
    if name == "nemotron":        # and layer norms, whose weights are around 0; heads rotated in part
        cfg = NemotronConfig(**common, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4,
                             num_key_value_heads=2, max_position_embeddings=256,
                             rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5))
        return NemotronForCausalLM(cfg), torch.bfloat16
    if name == "hunyuan-moe":     # norms of heads that follow RoPE, experts beside one for all tokens
        cfg = HunYuanMoEV1Config(**common, hidden_size=64, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
                                 num_key_value_heads=2, head_dim=16, max_position_embeddings=32768, num_experts=6,
                                 moe_topk=2, rope_parameters=dict(rope_type="dynamic", rope_theta=10000.0, alpha=1000.0,
                                                                  factor=1.0))
        return HunYuanMoEV1ForCausalLM(cfg), torch.bfloat16
    if name == "exaone4":         # norms of parts, of heads, and layers without a window that do not rotate
        cfg = Exaone4Config(**common, hidden_size=96, intermediate_size=96, num_hidden_layers=4,
                            num_attention_heads=3, num_key_value_heads=1, max_position_embeddings=256,
                            rope_theta=10000.0, sliding_window=24, sliding_window_pattern=4)
        return Exaone4ForCausalLM(cfg), torch.bfloat16
    if name == "hunyuan":         # norms of heads that follow RoPE, whose base is stretched
        cfg = HunYuanDenseV1Config(**common, hidden_size=64, intermediate_size=96, num_hidden_layers=3,
                                   num_attention_heads=3, num_key_value_heads=1, head_dim=32,
                                   max_position_embeddings=32768, tie_word_embeddings=True,
                                   rope_parameters=dict(rope_type="dynamic", rope_theta=10000.0, alpha=1000.0,
                                                        factor=1.0))
        return HunYuanDenseV1ForCausalLM(cfg), torch.bfloat16
    if name == "minimax-m2":      # experts by sigmoids, norms of all heads at once, heads rotated in part
        cfg = MiniMaxM2Config(**common, hidden_size=64, intermediate_size=32, num_hidden_layers=3,
                              num_attention_heads=4, num_key_value_heads=2, head_dim=32, rotary_dim=16,
                              max_position_embeddings=256, rope_theta=10000.0, num_local_experts=6,
                              num_experts_per_tok=2)
        model = MiniMaxM2ForCausalLM(cfg)
        for layer in model.model.layers:
            torch.nn.init.normal_(layer.mlp.e_score_correction_bias, std=0.1)
        return model, torch.bfloat16
    if name == "ministral3":      # the text part of a model that sees pictures; queries that grow with their position
        text = dict(**common, model_type="ministral3", hidden_size=64, intermediate_size=96, num_hidden_layers=3,
                    num_attention_heads=3, num_key_value_heads=1, head_dim=32, max_position_embeddings=128,
                    rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, mscale=1.0,
                                         mscale_all_dim=1.0, original_max_position_embeddings=32,
                                         llama_4_scaling_beta=0.1))
        eyes = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, head_dim=8,
                    image_size=28, patch_size=14, model_type="pixtral")
        return Mistral3ForConditionalGeneration(Mistral3Config(text_config=text, vision_config=eyes)), torch.bfloat16
    if name == "glm":             # GLM-4 from before 2025, without norms of what attention and the FFN give
        cfg = GlmConfig(**common, hidden_size=96, intermediate_size=96, num_hidden_layers=3, num_attention_heads=3,
                        num_key_value_heads=1, head_dim=32, max_position_embeddings=256, rope_theta=10000.0,
                        attention_bias=True)
        return GlmForCausalLM(cfg), torch.bfloat16
    if name == "ernie4_5-moe":    # softmax first, then biases where experts are chosen
        cfg = Ernie4_5_MoeConfig(**common, hidden_size=64, intermediate_size=96, num_hidden_layers=4,
                                 num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
                                 rope_theta=10000.0, moe_intermediate_size=48, moe_num_experts=6, moe_k=2,
                                 moe_num_shared_experts=1, moe_layer_start_index=1)
        model = Ernie4_5_MoeForCausalLM(cfg)
        for layer in model.model.layers[1:]:
            torch.nn.init.normal_(layer.mlp.gate.moe_statics.e_score_correction_bias, std=0.05)
        return model, torch.bfloat16
    if name == "granite4-h":      # layers of Mamba 2, beside experts
        cfg = GraniteMoeHybridConfig(**common, hidden_size=96, intermediate_size=32, shared_intermediate_size=48,
                                     num_hidden_layers=5, num_attention_heads=3, num_key_value_heads=1,
                                     max_position_embeddings=256, embedding_multiplier=1.5, residual_multiplier=0.5,
                                     attention_multiplier=0.05, logits_scaling=0.75, num_local_experts=6,
                                     num_experts_per_tok=2, position_embedding_type="nope",
                                     layer_types=["mamba", "attention", "mamba", "mamba", "attention"],
                                     mamba_n_heads=6, mamba_d_head=32, mamba_n_groups=2, mamba_d_state=16,
                                     tie_word_embeddings=True)
        model = GraniteMoeHybridForCausalLM(cfg)
        for part, x in model.named_parameters():  # the class begins with the same numbers in all heads
            if part.endswith((".D", ".dt_bias", "conv1d.bias")):
                torch.nn.init.normal_(x, std=0.5)
        return model, torch.bfloat16
    if name.startswith("falcon-h1"):  # attention and Mamba 2 side by side, with a factor for every product
        cfg = FalconH1Config(**common, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4,
                             num_key_value_heads=2, head_dim=32, max_position_embeddings=256, rope_theta=100000.0,
                             mamba_d_ssm=96, mamba_n_heads=6, mamba_d_head=16, mamba_n_groups=2, mamba_d_state=32,
                             mamba_rms_norm=name.endswith("normed"), mamba_norm_before_gate=False,
                             embedding_multiplier=1.5, lm_head_multiplier=0.75, key_multiplier=0.4,
                             attention_in_multiplier=0.9, attention_out_multiplier=0.7, ssm_in_multiplier=1.2,
                             ssm_out_multiplier=0.6, ssm_multipliers=[0.8, 1.1, 0.7, 1.3, 0.9],
                             mlp_multipliers=[0.9, 0.5])
        model = FalconH1ForCausalLM(cfg)
        for part, x in model.named_parameters():  # the class begins with the same numbers in all heads
            if part.endswith((".D", ".dt_bias", "conv1d.bias")):
                torch.nn.init.normal_(x, std=0.5)
        return model, torch.bfloat16
    if name == "lfm3":                # and layers with windows, norms around, and a gate for each head
        cfg = Lfm3Config(**common, hidden_size=64, intermediate_size=96, num_hidden_layers=6, num_attention_heads=4,
                         num_key_value_heads=2, head_dim=32, max_position_embeddings=256, sliding_window=24,
                         layer_types=["conv", "conv", "full_attention", "sliding_attention", "conv", "full_attention"])
        return Lfm3ForCausalLM(cfg), torch.bfloat16
    if name.startswith("lfm2"):       # layers of short convolutions
        own = dict(hidden_size=64, intermediate_size=144, num_hidden_layers=5, num_attention_heads=2,
                   num_key_value_heads=1, max_position_embeddings=256,
                   layer_types=["conv", "full_attention", "conv", "conv", "full_attention"],
                   rope_parameters=dict(rope_type="default", rope_theta=10000.0))
        if name == "lfm2":
            return Lfm2ForCausalLM(Lfm2Config(**common, **own, block_multiple_of=32)), torch.bfloat16
        model = Lfm2MoeForCausalLM(Lfm2MoeConfig(**common, **own, moe_intermediate_size=32, num_experts=6,
                                                 num_experts_per_tok=2, num_dense_layers=1))
        for part, x in model.named_buffers():
            if part.endswith("expert_bias"):
                torch.nn.init.normal_(x, std=0.05)
        return model, torch.bfloat16
    if name.startswith("nemotron-h"):  # layers of Mamba 2, and such as have no feed-forward part
        has_experts = name.endswith(("moe", "latent"))
        ffn = "moe" if has_experts else "mlp"
        kinds = ["linear_attention", ffn, "linear_attention", "full_attention", ffn, "linear_attention", ffn,
                 "full_attention", ffn]
        experts = dict(n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=32,
                       moe_shared_expert_intermediate_size=48, routed_scaling_factor=2.5) if has_experts else {}
        if name.endswith("latent"):  # Nemotron 3 Super
            experts["moe_latent_size"] = 32
        cfg = NemotronHConfig(**common, hidden_size=64, intermediate_size=96, num_attention_heads=2, head_dim=32,
                              num_key_value_heads=1, max_position_embeddings=256, layers_block_type=kinds,
                              mamba_num_heads=4, mamba_head_dim=32, n_groups=2, ssm_state_size=16, **experts)
        model = NemotronHForCausalLM(cfg)
        for part, x in list(model.named_parameters()) + list(model.named_buffers()):
            if part.endswith((".D", ".dt_bias", "conv1d.bias", "e_score_correction_bias")):
                torch.nn.init.normal_(x, std=0.05 if "score" in part else 0.5)
        return model, torch.bfloat16
    if name == "apertus":
        rope = {"rope_type": "llama3", "rope_theta": 12000000.0, "factor": 8.0, "original_max_position_embeddings": 64,
                "low_freq_factor": 1.0, "high_freq_factor": 4.0}
        cfg = ApertusConfig(**common, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=3,
                            num_key_value_heads=1, head_dim=32, max_position_embeddings=256, rope_parameters=rope)
        return ApertusForCausalLM(cfg), torch.bfloat16
    if name == "laguna":          # layers with a window have other heads, and rotate otherwise
        kinds = ["full_attention", *["sliding_attention"] * 3, "full_attention"]
        rope = {"full_attention": {"rope_type": "yarn", "rope_theta": 500000.0, "factor": 4.0, "partial_rotary_factor": 0.5,
                                   "original_max_position_embeddings": 64},
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0}}
        cfg = LagunaConfig(**common, hidden_size=64, intermediate_size=96, num_hidden_layers=5, num_attention_heads=2,
                           num_attention_heads_per_layer=[2, 3, 3, 3, 2], num_key_value_heads=1, head_dim=32,
                           max_position_embeddings=256, sliding_window=20, layer_types=kinds, rope_parameters=rope,
                           num_experts=6, num_experts_per_tok=2, moe_intermediate_size=32,
                           shared_expert_intermediate_size=48, moe_routed_scaling_factor=2.5)
        model = LagunaForCausalLM(cfg)
        for part, x in list(model.named_parameters()) + list(model.named_buffers()):
            if part.endswith("e_score_correction_bias"):
                torch.nn.init.normal_(x, std=0.05)
        return model, torch.bfloat16
    if name == "granite4":        # of the hybrid class, but all layers attend
        cfg = GraniteMoeHybridConfig(**common, hidden_size=64, intermediate_size=96, shared_intermediate_size=96,
                                     num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=1,
                                     max_position_embeddings=256, rope_theta=10000.0, embedding_multiplier=1.5,
                                     residual_multiplier=0.22, attention_multiplier=0.05, logits_scaling=0.75,
                                     num_local_experts=0, num_experts_per_tok=0, position_embedding_type="rope",
                                     layer_types=["attention"] * 3, mamba_n_heads=4, tie_word_embeddings=True)
        return GraniteMoeHybridForCausalLM(cfg), torch.bfloat16
    if name == "ernie4_5":
        cfg = Ernie4_5Config(**common, hidden_size=64, intermediate_size=96, num_hidden_layers=3,
                             num_attention_heads=3, num_key_value_heads=1, head_dim=32, max_position_embeddings=256)
        return Ernie4_5ForCausalLM(cfg), torch.bfloat16
    if name == "seed-oss":
        cfg = SeedOssConfig(**common, hidden_size=64, intermediate_size=96, num_hidden_layers=3,
                            num_attention_heads=3, num_key_value_heads=1, head_dim=32, max_position_embeddings=256,
                            rope_theta=10000.0, attention_bias=True, attention_out_bias=True)
        return SeedOssForCausalLM(cfg), torch.bfloat16
    if name == "hy-v3":           # as glm4moe, but all of a head is rotated
        cfg = HYV3Config(**common, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4,
                         num_key_value_heads=2, head_dim=32, max_position_embeddings=256, rope_theta=10000.0,
                         moe_intermediate_size=32, num_experts=6, num_experts_per_tok=2, num_shared_experts=1,
                         router_scaling_factor=1.5, initializer_range=0.02)
        model = HYV3ForCausalLM(cfg)
        for layer in model.model.layers[1:]:
            torch.nn.init.normal_(layer.mlp.e_score_correction_bias, std=0.1)
        return model, torch.bfloat16
    if name == "mellum":          # experts and windows, YaRN in layers without one
        cfg = MellumConfig(**common, hidden_size=64, intermediate_size=96, num_hidden_layers=4, num_attention_heads=4,
                           num_key_value_heads=2, head_dim=32, max_position_embeddings=128, sliding_window=24,
                           moe_intermediate_size=32, num_experts=6, num_experts_per_tok=2,
                           layer_types=["sliding_attention"] * 3 + ["full_attention"],
                           rope_parameters=dict(
                               full_attention=dict(rope_type="yarn", rope_theta=10000.0, factor=4.0,
                                                   original_max_position_embeddings=32),
                               sliding_attention=dict(rope_type="default", rope_theta=10000.0)))
        return MellumForCausalLM(cfg), torch.bfloat16
    if name == "granite-swa":     # windows, sinks, and layers that do not rotate
        cfg = GraniteSWAConfig(**common, hidden_size=64, intermediate_size=96, num_hidden_layers=4,
                               num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=256,
                               rope_theta=10000.0, embedding_multiplier=1.5, residual_multiplier=0.22,
                               attention_multiplier=0.05, logits_scaling=0.75, sliding_window=24,
                               layer_rope_theta=[0, 10000.0, 10000.0, 10000.0])
        return GraniteSWAForCausalLM(cfg), torch.bfloat16
    if name == "afmoe":           # sigmoids gate attention, norms around, layers without a window do not rotate
        cfg = AfmoeConfig(**common, hidden_size=64, intermediate_size=96, num_hidden_layers=4, num_attention_heads=4,
                          num_key_value_heads=2, head_dim=32, max_position_embeddings=256, rope_theta=10000.0,
                          moe_intermediate_size=32, num_experts=6, num_experts_per_tok=2, num_shared_experts=1,
                          num_dense_layers=1, route_scale=1.5, sliding_window=24, mup_enabled=True)
        model = AfmoeForCausalLM(cfg)
        for layer in model.model.layers[1:]:
            torch.nn.init.normal_(layer.mlp.expert_bias, std=0.1)
        return model, torch.bfloat16
    if name == "muse-glimmer":    # the same without experts; norms of embeddings, and of heads without weights
        cfg = MuseGlimmerTextConfig(vocab_size=VOCAB, bos_token_id=1, eos_token_id=2, pad_token_id=0, hidden_size=64,
                                    intermediate_size=96, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
                                    head_dim=32, max_position_embeddings=256, sliding_window=24, output_multiplier=0.25, qk_scale_factor=1.5,
                                    rope_parameters=dict(rope_type="default", rope_theta=10000.0))
        vision = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2)
        return MuseGlimmerForConditionalGeneration(MuseGlimmerConfig(text_config=cfg.to_dict(), vision_config=vision, out_hidden_size=32,
                                                   projector_hidden_size=32)), torch.bfloat16
    if name == "gemma":
        cfg = GemmaConfig(**common, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=3,
                          num_key_value_heads=1, head_dim=32, max_position_embeddings=256)
        return GemmaForCausalLM(cfg), torch.bfloat16
    if name in ("dots1", "solar-open"):
        mixture = dict(**common, hidden_size=64, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
                       head_dim=32, max_position_embeddings=256, moe_intermediate_size=32, n_routed_experts=6,
                       num_experts_per_tok=2, n_shared_experts=1, routed_scaling_factor=1.5, norm_topk_prob=True)
        if name == "dots1":
            model = Dots1ForCausalLM(Dots1Config(**mixture, intermediate_size=96, first_k_dense_replace=1))
        else:
            model = SolarOpenForCausalLM(SolarOpenConfig(**mixture))
        for layer in model.model.layers[1:]:
            torch.nn.init.normal_(layer.mlp.gate.e_score_correction_bias, std=0.1)
        return model, torch.bfloat16
    if name == "gemma3-pictures":
        text = dict(**common, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=2,
                    num_key_value_heads=1, head_dim=32, query_pre_attn_scalar=32, max_position_embeddings=256,
                    sliding_window=24, layer_types=["sliding_attention", "full_attention", "sliding_attention"])
        eyes = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=28,
                    patch_size=14)
        cfg = Gemma3Config(text_config=text, vision_config=eyes, mm_tokens_per_image=4, image_token_index=511)
        return Gemma3ForConditionalGeneration(cfg), torch.bfloat16
    if name.startswith("gemma4"):  # other heads in layers with a window, keys that are values, scales of layers, a cap
        kinds = "sfssf" if name == "gemma4-e" else "sssf"
        cfg = Gemma4TextConfig(**common, hidden_size=80, intermediate_size=96, num_hidden_layers=len(kinds),
                               num_attention_heads=4, num_key_value_heads=4, head_dim=16, global_head_dim=32,
                               num_global_key_value_heads=2, attention_k_eq_v=name != "gemma4-e", sliding_window=24,
                               layer_types=[dict(s="sliding_attention", f="full_attention")[k] for k in kinds],
                               max_position_embeddings=256, final_logit_softcapping=8.0,
                               vocab_size_per_layer_input=VOCAB,
                               hidden_size_per_layer_input=32 if name == "gemma4-e" else 0,
                               num_kv_shared_layers=2 if name == "gemma4-e" else 0,  # these and wider FFNs: E2B
                               use_double_wide_mlp=name == "gemma4-e", enable_moe_block=name == "gemma4-moe",
                               num_experts=8, top_k_experts=2, moe_intermediate_size=32)
        model = Gemma4ForCausalLM(cfg)
        for i, layer in enumerate(model.model.layers):
            layer.layer_scalar.fill_(0.5 + 0.25 * i)
        return model, torch.bfloat16
    if name in ("qwen2_5-vl", "qwen3-vl", "qwen3-vl-moe"):
        text = dict(**common, hidden_size=96, intermediate_size=96, num_hidden_layers=3, num_attention_heads=3,
                    num_key_value_heads=1, head_dim=32, max_position_embeddings=256,
                    rope_parameters=dict(rope_type="default", rope_theta=10000.0, mrope_section=[4, 6, 6]))
        eyes = dict(depth=1, hidden_size=16, intermediate_size=16, num_heads=2, out_hidden_size=96, patch_size=14)
        if name == "qwen2_5-vl":
            return Qwen2_5_VLForConditionalGeneration(Qwen2_5_VLConfig(text_config=text, vision_config=eyes)), torch.bfloat16
        eyes["deepstack_visual_indexes"] = [0]
        if name == "qwen3-vl":
            return Qwen3VLForConditionalGeneration(Qwen3VLConfig(text_config=text, vision_config=eyes)), torch.bfloat16
        text.update(moe_intermediate_size=32, num_experts=6, num_experts_per_tok=2)
        return Qwen3VLMoeForConditionalGeneration(Qwen3VLMoeConfig(text_config=text, vision_config=eyes)), torch.bfloat16
    if name.startswith(("qwen3.5", "qwen3-next")):  # layers with a recurrence, gates in the matrix of queries
        text = dict(**common, hidden_size=96, intermediate_size=160, num_hidden_layers=5, num_attention_heads=3,
                    num_key_value_heads=1, head_dim=32, max_position_embeddings=256, linear_key_head_dim=16,
                    linear_value_head_dim=32, linear_num_key_heads=2, linear_num_value_heads=4,
                    layer_types=["linear_attention", "full_attention", "linear_attention", "linear_attention",
                                 "full_attention"],
                    rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5,
                                         mrope_section=[3, 3, 2], mrope_interleaved=True))
        if name == "qwen3.5":
            eyes = dict(depth=1, hidden_size=16, intermediate_size=16, num_heads=2, out_hidden_size=96, patch_size=14)
            cfg = Qwen3_5Config(text_config=text, vision_config=eyes)
            return Qwen3_5ForConditionalGeneration(cfg), torch.bfloat16
        del text["intermediate_size"]
        if name.startswith("qwen3-next"):
            text["rope_parameters"] = dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5)
            cfg = Qwen3NextConfig(**text, intermediate_size=48, moe_intermediate_size=32,
                                  shared_expert_intermediate_size=48, num_experts=6, num_experts_per_tok=2)
            return Qwen3NextForCausalLM(cfg), torch.bfloat16
        cfg = Qwen3_5MoeTextConfig(**text, moe_intermediate_size=32, shared_expert_intermediate_size=48, num_experts=6,
                                   num_experts_per_tok=2)
        return Qwen3_5MoeForCausalLM(cfg), torch.bfloat16
    if name == "youtu":           # latent attention without experts
        cfg = YoutuConfig(**common, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4,
                          num_key_value_heads=4, qk_nope_head_dim=24, qk_rope_head_dim=8, kv_lora_rank=32, q_lora_rank=40, v_head_dim=16, initializer_range=0.02, tie_word_embeddings=False,
                          max_position_embeddings=256, rope_parameters=dict(rope_type="default", rope_theta=10000.0))
        return YoutuForCausalLM(cfg), torch.bfloat16
    if name == "kimi-linear":     # states whose rows decay by themselves, and latents that do not rotate
        cfg = KimiLinearConfig(**common, hidden_size=64, intermediate_size=96, moe_intermediate_size=32,
                               num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=4,
                               num_local_experts=8, num_experts_per_tok=2, n_shared_experts=1, kv_lora_rank=32,
                               qk_rope_head_dim=8, qk_nope_head_dim=24, v_head_dim=16, linear_head_dim=16,
                               linear_num_heads=4, linear_conv_kernel_dim=4, max_position_embeddings=2560,
                               layer_types=2 * ["linear_attention", "full_attention"])
        model = KimiLinearForCausalLM(cfg)
        for part, x in list(model.named_parameters()) + list(model.named_buffers()):
            if part.endswith("e_score_correction_bias"):
                torch.nn.init.normal_(x, std=0.1)
            elif part.endswith("mlp.gate.weight"):
                x.data.mul_(2.0)
        return model, torch.bfloat16
    if name == "minimax-m3":      # an indexer that chooses blocks, from the second layer on
        own = MiniMaxM3VLTextConfig(**common, hidden_size=64, intermediate_size=32, dense_intermediate_size=96,
                                    shared_intermediate_size=32, num_hidden_layers=4, num_attention_heads=8,
                                    num_key_value_heads=2, head_dim=16, rotary_dim=8, num_local_experts=8,
                                    num_experts_per_tok=2, routed_scaling_factor=2.0, max_position_embeddings=2560,
                                    mlp_layer_types=["dense", "sparse", "sparse", "sparse"],
                                    layer_types=["full_attention"] + 3 * ["minimax_m3_sparse"],
                                    index_n_heads=2, index_head_dim=32, index_block_size=8, index_topk_blocks=5,
                                    index_local_blocks=2, rope_parameters=dict(rope_type="default", rope_theta=10000.0,
                                                                               partial_rotary_factor=0.5))
        eyes = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, patch_size=4)
        model = MiniMaxM3SparseForConditionalGeneration(MiniMaxM3VLConfig(
            text_config=own, vision_config=eyes, projector_hidden_size=16, image_token_index=5, video_token_index=6))
        for part, x in list(model.named_parameters()) + list(model.named_buffers()):
            if part.endswith("e_score_correction_bias"):
                torch.nn.init.normal_(x, std=0.1)
            elif part.endswith("mlp.gate.weight"):
                x.data.mul_(2.0)
        return model, torch.bfloat16
    if name in ("deepseek2", "deepseek3", "deepseek32", "glm-dsa", "glm4-lite"):  # latent attention
        own = dict(**common, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4,
                   num_key_value_heads=4, qk_nope_head_dim=24, qk_rope_head_dim=8, moe_intermediate_size=32)
        stretch = dict(rope_type="yarn", rope_theta=10000.0, factor=40.0, beta_fast=32.0, beta_slow=1.0,
                       original_max_position_embeddings=64)
        if name == "deepseek2":   # of V2-Lite: queries without a latent, experts by softmax
            stretch.update(mscale=0.707, mscale_all_dim=0.707)
            cfg = DeepseekV2Config(**own, kv_lora_rank=32, q_lora_rank=None, v_head_dim=16, first_k_dense_replace=1,
                                   max_position_embeddings=2560, rope_parameters=stretch, n_routed_experts=8,
                                   num_experts_per_tok=2, n_shared_experts=2, topk_method="greedy",
                                   norm_topk_prob=False, routed_scaling_factor=1.0, n_group=1, topk_group=1,
                                   scoring_func="softmax", moe_layer_freq=1)
            model = DeepseekV2ForCausalLM(cfg)
        elif name == "deepseek32":  # the same with an indexer
            stretch.update(mscale=1.0, mscale_all_dim=1.0)
            cfg = DeepseekV32Config(**own, kv_lora_rank=32, q_lora_rank=40, v_head_dim=16, first_k_dense_replace=1,
                                    max_position_embeddings=2560, rope_parameters=stretch, n_routed_experts=16,
                                    num_experts_per_tok=3, n_shared_experts=1, n_group=4, topk_group=2,
                                    norm_topk_prob=True, routed_scaling_factor=2.5,
                                    index_n_heads=16, index_head_dim=16, index_topk=80)
            model = DeepseekV32ForCausalLM(cfg)
        elif name == "glm-dsa":   # some layers go by the indexer of another
            own.update(num_hidden_layers=4)
            cfg = GlmMoeDsaConfig(**own, kv_lora_rank=32, q_lora_rank=40, v_head_dim=16, first_k_dense_replace=1,
                                  max_position_embeddings=2560, n_routed_experts=8, num_experts_per_tok=2,
                                  n_shared_experts=1, n_group=1, topk_group=1, routed_scaling_factor=2.5,
                                  rope_parameters=dict(rope_type="default", rope_theta=1000000.0),
                                  index_n_heads=12, index_head_dim=24, index_topk=80,
                                  indexer_types=["full", "shared", "full", "shared"])
            model = GlmMoeDsaForCausalLM(cfg)
        elif name == "deepseek3":  # experts by sigmoids with biases, of the best groups alone
            stretch.update(mscale=1.0, mscale_all_dim=1.0)
            cfg = DeepseekV3Config(**own, kv_lora_rank=32, q_lora_rank=40, v_head_dim=16, first_k_dense_replace=1,
                                   max_position_embeddings=2560, rope_parameters=stretch, n_routed_experts=16,
                                   num_experts_per_tok=3, n_shared_experts=1, n_group=4, topk_group=2,
                                   norm_topk_prob=True, routed_scaling_factor=2.5, topk_method="noaux_tc",
                                   scoring_func="sigmoid", moe_layer_freq=1)
            model = DeepseekV3ForCausalLM(cfg)
        else:                     # rows as wide as published ones, no groups, no YaRN
            own.update(qk_rope_head_dim=64)
            cfg = Glm4MoeLiteConfig(**own, kv_lora_rank=512, q_lora_rank=32, v_head_dim=32, n_routed_experts=8,
                                    num_experts_per_tok=3, n_shared_experts=1, n_group=1, topk_group=1,
                                    norm_topk_prob=True, routed_scaling_factor=1.8, topk_method="noaux_tc",
                                    first_k_dense_replace=1, max_position_embeddings=256,
                                    rope_parameters=dict(rope_type="default", rope_theta=1000000.0,
                                                         partial_rotary_factor=1.0))
            model = Glm4MoeLiteForCausalLM(cfg)
        for part, x in list(model.named_parameters()) + list(model.named_buffers()):
            if part.endswith("e_score_correction_bias"):
                torch.nn.init.normal_(x, std=0.1)
            elif part.endswith(("q_proj.weight", "q_b_proj.weight")):
                x.data.mul_(6.0 if name == "glm4-lite" else 4.0)  # so that scores differ: YaRN makes them larger
            elif part.endswith("mlp.gate.weight"):
                x.data.mul_(2.0)  # so that experts differ by more than what is rounded
        return model, torch.bfloat16
    if name == "gpt-neox":        # parts side by side with a norm each, heads whose first part rotates, gelu
        cfg = GPTNeoXConfig(**common, hidden_size=96, intermediate_size=160, num_hidden_layers=4, num_attention_heads=3,
                            max_position_embeddings=256, rotary_pct=0.25)
        return GPTNeoXForCausalLM(cfg), torch.float16
    if name == "phi":             # parts side by side with one norm, heads whose first part rotates, biases everywhere
        cfg = PhiConfig(**common, hidden_size=96, intermediate_size=384, num_hidden_layers=3, num_attention_heads=3,
                        max_position_embeddings=256, partial_rotary_factor=0.5)
        return PhiForCausalLM(cfg), torch.float16
    if name.startswith("stablelm"):  # norms with biases, heads whose first part rotates; and side by side, biases of queries
        cfg = StableLmConfig(**common, hidden_size=96, intermediate_size=160, num_hidden_layers=3, num_attention_heads=3,
                             num_key_value_heads=1, max_position_embeddings=256, partial_rotary_factor=0.25,
                             use_qkv_bias=name == "stablelm2", use_parallel_residual=name == "stablelm2")
        return StableLmForCausalLM(cfg), torch.bfloat16
    if name == "starcoder2":      # norms and matrices with biases, gelu in its tanh form, a window
        cfg = Starcoder2Config(**common, hidden_size=96, intermediate_size=160, num_hidden_layers=3, num_attention_heads=3,
                               num_key_value_heads=1, max_position_embeddings=256, sliding_window=24)
        return Starcoder2ForCausalLM(cfg), torch.bfloat16
    if name.startswith("llama4"):  # layers attend to chunks and rotate, or queries grow; and with experts, every other layer
        moe = name == "llama4-moe"
        cfg = Llama4TextConfig(**common, hidden_size=64, intermediate_size=32, intermediate_size_mlp=96, num_hidden_layers=5,
                               num_attention_heads=4, num_key_value_heads=2, head_dim=32, max_position_embeddings=256,
                               num_experts_per_tok=1, num_local_experts=6, interleave_moe_layer_step=2,
                               moe_layers=None if moe else [], attention_chunk_size=8192 if moe else 20,
                               floor_scale=8192 if moe else 24, attn_scale=0.1 if moe else 0.4)
        model = Llama4ForCausalLM(cfg)
        for part, x in model.named_parameters():
            if part.endswith("router.weight"):
                x.data.mul_(4.0)  # so that experts differ by more than what is rounded
        return model, torch.bfloat16
    raise SystemExit(f"unknown model {name}")


class GgufFile:
    """model.gguf in place of a Hugging Face directory: what all architectures have."""

    def __init__(self, model, folder, architecture):
        c = model.config
        self.folder = folder
        self.w = w = gguf.GGUFWriter(os.path.join(folder, "model.gguf"), architecture)
        w.add_vocab_size(c.vocab_size)
        w.add_context_length(c.max_position_embeddings)
        w.add_embedding_length(c.hidden_size)
        w.add_block_count(c.num_hidden_layers)
        w.add_feed_forward_length(c.intermediate_size)
        w.add_head_count(c.num_attention_heads)
        w.add_head_count_kv(c.num_key_value_heads)
        w.add_key_length(c.head_dim)
        w.add_value_length(c.head_dim)
        w.add_layer_norm_rms_eps(c.rms_norm_eps)
        w.add_expert_used_count(c.num_experts_per_tok)
        w.add_rope_freq_base(c.rope_parameters["rope_theta"])

    def add(self, name, tensor):
        tensor = tensor.detach().contiguous()
        if tensor.dim() > 1 and not name.endswith(".bias") and "conv1d" not in name:
            bits = tensor.to(torch.bfloat16).view(torch.uint8).numpy()
            self.w.add_tensor(name, bits, raw_dtype=gguf.GGMLQuantizationType.BF16)
        else:
            self.w.add_tensor(name, tensor.float().numpy())

    def close(self):
        self.w.write_header_to_file()
        self.w.write_kv_data_to_file()
        self.w.write_tensors_to_file()
        self.w.close()
        for name in ("config.json", "generation_config.json", "model.safetensors"):
            os.remove(os.path.join(self.folder, name))


def write_gpt_oss(model, folder):
    """As llama.cpp converts it: gate and up apart, matrices [out][in], each layer's experts in one tensor."""
    c, rope = model.config, model.config.rope_parameters
    file = GgufFile(model, folder, "gpt-oss")
    add, w = file.add, file.w
    w.add_expert_feed_forward_length(c.intermediate_size)
    w.add_sliding_window(c.sliding_window)
    w.add_expert_count(c.num_local_experts)
    w.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    w.add_rope_scaling_factor(rope["factor"])
    w.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    add("token_embd.weight", model.model.embed_tokens.weight)
    add("output_norm.weight", model.model.norm.weight)
    add("output.weight", model.lm_head.weight)
    for i, layer in enumerate(model.model.layers):
        a, m, e = layer.self_attn, layer.mlp, layer.mlp.experts
        parts = dict(attn_q=a.q_proj, attn_k=a.k_proj, attn_v=a.v_proj, attn_output=a.o_proj, ffn_gate_inp=m.router)
        for name, part in parts.items():
            add(f"blk.{i}.{name}.weight", part.weight)
            add(f"blk.{i}.{name}.bias", part.bias)
        add(f"blk.{i}.attn_norm.weight", layer.input_layernorm.weight)
        add(f"blk.{i}.post_attention_norm.weight", layer.post_attention_layernorm.weight)
        add(f"blk.{i}.attn_sinks.weight", a.sinks)
        both = e.gate_up_proj.transpose(1, 2)
        add(f"blk.{i}.ffn_gate_exps.weight", both[:, ::2])
        add(f"blk.{i}.ffn_up_exps.weight", both[:, 1::2])
        add(f"blk.{i}.ffn_down_exps.weight", e.down_proj.transpose(1, 2))
        add(f"blk.{i}.ffn_gate_exps.bias", e.gate_up_proj_bias[:, ::2])
        add(f"blk.{i}.ffn_up_exps.bias", e.gate_up_proj_bias[:, 1::2])
        add(f"blk.{i}.ffn_down_exps.bias", e.down_proj_bias)
    file.close()


def write_llama4(model, folder):
    """As llama.cpp converts it: gate and up apart, matrices [out][in], each layer's experts in one tensor."""
    c = model.config
    c.intermediate_size, of_experts = c.intermediate_size_mlp, c.intermediate_size
    file = GgufFile(model, folder, "llama4")
    add, w = file.add, file.w
    w.add_expert_feed_forward_length(of_experts)
    w.add_expert_count(c.num_local_experts)
    w.add_interleave_moe_layer_step(c.interleave_moe_layer_step)
    add("token_embd.weight", model.model.embed_tokens.weight)
    add("output_norm.weight", model.model.norm.weight)
    add("output.weight", model.lm_head.weight)
    for i, layer in enumerate(model.model.layers):
        a, m = layer.self_attn, layer.feed_forward
        for name, part in dict(attn_q=a.q_proj, attn_k=a.k_proj, attn_v=a.v_proj, attn_output=a.o_proj).items():
            add(f"blk.{i}.{name}.weight", part.weight)
        add(f"blk.{i}.attn_norm.weight", layer.input_layernorm.weight)
        add(f"blk.{i}.ffn_norm.weight", layer.post_attention_layernorm.weight)
        ffn, end = (m.shared_expert, "_shexp") if layer.is_moe_layer else (m, "")
        for name, part in dict(ffn_gate=ffn.gate_proj, ffn_up=ffn.up_proj, ffn_down=ffn.down_proj).items():
            add(f"blk.{i}.{name}{end}.weight", part.weight)
        if not layer.is_moe_layer:
            continue
        gate, up = m.experts.gate_up_proj.transpose(1, 2).chunk(2, dim=1)
        add(f"blk.{i}.ffn_gate_inp.weight", m.router.weight)
        add(f"blk.{i}.ffn_gate_exps.weight", gate)
        add(f"blk.{i}.ffn_up_exps.weight", up)
        add(f"blk.{i}.ffn_down_exps.weight", m.experts.down_proj.transpose(1, 2))
    file.close()


def write_qwen3_next(model, folder):
    """As llama.cpp converts it: queries, keys and values of all heads one below the other, norms with their offset."""
    c = model.config
    file = GgufFile(model, folder, "qwen3next")
    add, w = file.add, file.w
    w.add_expert_feed_forward_length(c.moe_intermediate_size)
    w.add_expert_shared_feed_forward_length(c.shared_expert_intermediate_size)
    w.add_expert_count(c.num_experts)
    w.add_ssm_conv_kernel(c.linear_conv_kernel_dim)
    w.add_ssm_state_size(c.linear_key_head_dim)
    w.add_ssm_group_count(c.linear_num_key_heads)
    w.add_ssm_time_step_rank(c.linear_num_value_heads)
    w.add_ssm_inner_size(c.linear_value_head_dim * c.linear_num_value_heads)
    w.add_array("qwen3next.attention.recurrent_layers", [t == "linear_attention" for t in c.layer_types])
    w.add_rope_dimension_count(int(c.head_dim * c.rope_parameters["partial_rotary_factor"]))
    add("token_embd.weight", model.model.embed_tokens.weight)
    add("output_norm.weight", model.model.norm.weight + 1)
    add("output.weight", model.lm_head.weight)
    k_heads, d_k = c.linear_num_key_heads, c.linear_key_head_dim
    d_v = c.linear_value_head_dim * (c.linear_num_value_heads // k_heads)
    for i, layer in enumerate(model.model.layers):
        m = layer.mlp
        add(f"blk.{i}.attn_norm.weight", layer.input_layernorm.weight + 1)
        add(f"blk.{i}.post_attention_norm.weight", layer.post_attention_layernorm.weight + 1)
        if c.layer_types[i] == "full_attention":
            a = layer.self_attn
            for name, part in dict(attn_q=a.q_proj, attn_k=a.k_proj, attn_v=a.v_proj, attn_output=a.o_proj).items():
                add(f"blk.{i}.{name}.weight", part.weight)
            add(f"blk.{i}.attn_q_norm.weight", a.q_norm.weight + 1)
            add(f"blk.{i}.attn_k_norm.weight", a.k_norm.weight + 1)
        else:
            a = layer.linear_attn
            by_head = a.in_proj_qkvz.weight.view(k_heads, -1, c.hidden_size)
            q, k, v, z = (part.reshape(-1, c.hidden_size) for part in by_head.split([d_k, d_k, d_v, d_v], dim=1))
            add(f"blk.{i}.attn_qkv.weight", torch.cat([q, k, v]))
            add(f"blk.{i}.attn_gate.weight", z)
            add(f"blk.{i}.ssm_ba.weight", a.in_proj_ba.weight)
            add(f"blk.{i}.ssm_conv1d.weight", a.conv1d.weight.squeeze(1))
            add(f"blk.{i}.ssm_a", -a.A_log.exp())
            add(f"blk.{i}.ssm_dt.bias", a.dt_bias)
            add(f"blk.{i}.ssm_norm.weight", a.norm.weight)
            add(f"blk.{i}.ssm_out.weight", a.out_proj.weight)
        add(f"blk.{i}.ffn_gate_inp.weight", m.gate.weight)
        gate, up = m.experts.gate_up_proj.chunk(2, dim=1)
        add(f"blk.{i}.ffn_gate_exps.weight", gate)
        add(f"blk.{i}.ffn_up_exps.weight", up)
        add(f"blk.{i}.ffn_down_exps.weight", m.experts.down_proj)
        add(f"blk.{i}.ffn_gate_inp_shexp.weight", m.shared_expert_gate.weight.squeeze(0))
        add(f"blk.{i}.ffn_gate_shexp.weight", m.shared_expert.gate_proj.weight)
        add(f"blk.{i}.ffn_up_shexp.weight", m.shared_expert.up_proj.weight)
        add(f"blk.{i}.ffn_down_shexp.weight", m.shared_expert.down_proj.weight)
    file.close()


def fp8(w, block, scale_name):
    """Codes of a matrix in FP8 with a scale for each block (rows, columns), "row", or (None) the whole."""
    n_out, n_in = w.shape
    rows, cols = (n_out, n_in) if block is None else (1, n_in) if block == "row" else block
    down, across = -(-n_out // rows), -(-n_in // cols)
    padded = torch.zeros(down * rows, across * cols)
    padded[:n_out, :n_in] = w
    blocks = padded.reshape(down, rows, across, cols)
    scale = (blocks.abs().amax(dim=(1, 3)) / 448).clamp(min=1e-12)
    scale = scale.bfloat16().float() if block == "row" else scale
    codes = (blocks / scale[:, None, :, None]).to(torch.float8_e4m3fn)
    tensors = {"weight": codes.reshape(padded.shape)[:n_out, :n_in].contiguous(),
               scale_name: scale.reshape(()) if block is None else scale.bfloat16() if block == "row" else scale}
    if block is None:
        tensors["activation_scale"] = torch.tensor(1.0)
    return tensors, (codes.float() * scale[:, None, :, None]).reshape(padded.shape)[:n_out, :n_in].contiguous()


def whole_numbers(w, group, bits, is_symmetric, dtype):
    """Codes of 0 to 2^bits - 1 of a matrix, zeros and scales of its groups, and what these make."""
    n_out, n_in = w.shape
    groups, middle = w.reshape(n_out, -1, group), 1 << (bits - 1)
    low, high = groups.amin(dim=2).clamp(max=0), groups.amax(dim=2).clamp(min=0)
    if is_symmetric:
        scale, zero = (torch.maximum(-low, high) / (middle - 1)).to(dtype), torch.full(low.shape, middle)
    else:
        scale = ((high - low) / (2 * middle - 1)).to(dtype)
        zero = (-low / scale.float()).round().int()
    codes = (groups / scale.float()[..., None] + zero[..., None]).round().clamp(0, 2 * middle - 1).int()
    return codes.reshape(n_out, n_in), zero, scale, ((codes - zero[..., None]) * scale.float()[..., None]).reshape(n_out, n_in)


def words(codes, bits, places=range(8)):
    """32-bit words of neighbours in the last dimension."""
    n = 32 // bits
    parts = codes.reshape(*codes.shape[:-1], -1, n).to(torch.int64)
    word = sum(parts[..., i] << (bits * place) for i, place in zip(range(n), places))
    return torch.where(word >= 1 << 31, word - (1 << 32), word).to(torch.int32).contiguous()


def awq(w):
    codes, zero, scale, exact = whole_numbers(w, 32, 4, False, torch.float16)
    order = (0, 4, 1, 5, 2, 6, 3, 7)
    return {"qweight": words(codes.T, 4, order), "qzeros": words(zero.T, 4, order), "scales": scale.T.contiguous()}, exact


def gptq(w):
    codes, zero, scale, exact = whole_numbers(w, 32, 4, True, torch.float16)
    return {"qweight": words(codes, 4).T.contiguous(), "qzeros": words(zero.T - 1, 4), "scales": scale.T.contiguous(),
            "g_idx": torch.arange(w.shape[1], dtype=torch.int32) // 32}, exact


def compressed(w, group, is_symmetric):
    codes, zero, scale, exact = whole_numbers(w, group or w.shape[1], 4, is_symmetric, torch.bfloat16)
    tensors = {"weight_packed": words(codes, 4), "weight_scale": scale, "weight_shape": torch.tensor(w.shape)}
    if not is_symmetric:
        tensors["weight_zero_point"] = words(zero.T, 4).T.contiguous()
    return tensors, exact


def compressed_bytes(w):
    codes, _, scale, exact = whole_numbers(w, w.shape[1], 8, True, torch.bfloat16)
    return {"weight": (codes - 128).to(torch.int8), "weight_scale": scale}, exact


def mxfp4(w, key):
    """Experts' matrices [experts][n_in][n_out] of gpt-oss, with a power of two for each 32 weights of a column."""
    values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    w = w.transpose(1, 2)
    groups = w.reshape(*w.shape[:2], -1, 32)
    exponent = torch.ceil(torch.log2(groups.abs().amax(dim=-1).clamp(min=1e-12) / 6))
    scaled = groups / 2 ** exponent[..., None]
    index = (scaled.abs()[..., None] - values).abs().argmin(dim=-1)
    codes = (index + 8 * (scaled < 0)).to(torch.uint8)
    exact = values[index] * torch.where(scaled < 0, -1, 1) * 2 ** exponent[..., None]
    return {key + "_blocks": (codes[..., ::2] | codes[..., 1::2] << 4).contiguous(),
            key + "_scales": (exponent + 127).to(torch.uint8)}, exact.reshape(w.shape).transpose(1, 2).contiguous()


def nvfp4(w):
    """Pairs of a row's neighbours, with a scale in FP8 for each 16, and one for all of a matrix."""
    values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    groups = w.reshape(w.shape[0], -1, 16)
    whole = 448 * 6 / w.abs().max()
    scale = (groups.abs().amax(dim=-1) / 6 * whole).to(torch.float8_e4m3fn)
    scaled = groups / (scale.float() / whole).clamp(min=1e-12)[..., None]
    index = (scaled.abs()[..., None] - values).abs().argmin(dim=-1)
    codes = (index + 8 * (scaled < 0)).to(torch.uint8).reshape(w.shape)
    exact = values[index] * torch.where(scaled < 0, -1, 1) * (scale.float() / whole)[..., None]
    return {"weight_packed": (codes[:, ::2] | codes[:, 1::2] << 4).contiguous(), "weight_scale": scale,
            "weight_global_scale": whole.reshape(1), "input_global_scale": torch.tensor([1.0])}, exact.reshape(w.shape)


def fp8_config(block):
    return dict(quant_method="fp8", activation_scheme="dynamic" if block else "static", weight_block_size=block,
                modules_to_not_convert=["lm_head"])


def compressed_config(form, **weights):
    group = dict(targets=["Linear"], weights=weights)
    if form != "pack-quantized":
        group["input_activations"] = dict(num_bits=8, type=weights["type"], strategy="token", dynamic=True)
    return dict(quant_method="compressed-tensors", format=form, ignore=["lm_head"], quantization_status="compressed",
                config_groups=dict(group_0=group))


# How published directories keep quantised matrices: what one becomes, and "quantization_config".
QUANTISED = {
    "qwen3-fp8": (lambda w: fp8(w, (2, 64), "weight_scale_inv"), fp8_config((2, 64))),  # as Qwen and DeepSeek do, but for the size
    "deepseek3-fp8": (lambda w: fp8(w, (16, 64), "weight_scale_inv"), fp8_config((16, 64))),
    "qwen3.5-moe-fp8": (lambda w: fp8(w, (128, 128), "weight_scale_inv"), fp8_config((128, 128))),
    "ministral3-fp8": (lambda w: fp8(w, None, "weight_scale_inv"), fp8_config(None)),  # one scale for a matrix, as Mistral does
    "phi3-fp8": (lambda w: fp8(w, "row", "weight_scale"),  # as llm-compressor does
                 compressed_config("float-quantized", num_bits=8, type="float", strategy="channel", symmetric=True)),
    "qwen3-awq": (awq, dict(quant_method="awq", bits=4, group_size=32, zero_point=True, version="gemm")),
    "smollm3-gptq": (gptq, dict(quant_method="gptq", bits=4, group_size=32, sym=True, desc_act=False)),
    "phi3-int4": (lambda w: compressed(w, None, False),
                  compressed_config("pack-quantized", num_bits=4, type="int", strategy="channel", symmetric=False)),
    "olmoe-int4": (lambda w: compressed(w, 32, True),
                   compressed_config("pack-quantized", num_bits=4, type="int", strategy="group", group_size=32, symmetric=True)),
    "qwen2-int8": (compressed_bytes, compressed_config("int-quantized", num_bits=8, type="int", strategy="channel", symmetric=True)),
    "gpt-oss-mxfp4": (mxfp4, dict(quant_method="mxfp4", modules_to_not_convert=["model.layers.*.self_attn", "lm_head"])),
    "qwen3-nvfp4": (nvfp4, compressed_config("nvfp4-pack-quantized", num_bits=4, type="float", strategy="tensor_group",
                                             group_size=16, symmetric=True)),
}


def unquantised(name):
    """The model that it is one of."""
    return name.rpartition("-")[0] if name in QUANTISED else name


def write_quantised(folder, name):
    """Matrices of layers quantised, and in `folder`/exact the same model in float32, which is to be removed."""
    from safetensors.torch import load_file, save_file
    quantise, settings = QUANTISED[name]
    path, exact = os.path.join(folder, "model.safetensors"), os.path.join(folder, "exact")
    config_path = os.path.join(folder, "config.json")
    config = json.load(open(config_path))
    stored, plain = {}, {}
    for key, w in load_file(path).items():
        plain[key] = w.float()
        if w.dim() == 3 and quantise is mxfp4:
            tensors, plain[key] = quantise(w.float(), key)
            stored.update(tensors)
            continue
        is_matrix = quantise is not mxfp4 and w.dim() == 2 and ".layers." in key and key.endswith("_proj.weight") and "visual" not in key and "vision" not in key
        if not is_matrix:
            stored[key] = w
            continue
        tensors, plain[key] = quantise(w.float())
        stored.update({key[:-len("weight")] + end: t for end, t in tensors.items()})
    os.makedirs(exact)
    json.dump(config, open(os.path.join(exact, "config.json"), "w"))
    save_file(plain, os.path.join(exact, "model.safetensors"), metadata={"format": "pt"})
    save_file(stored, path, metadata={"format": "pt"})
    config["quantization_config"] = settings
    json.dump(config, open(config_path, "w"), indent=2, sort_keys=True)
    return exact


def published_mlp_names(path):
    """Layers without experts have their matrices elsewhere than the others, which transformers does not write."""
    from safetensors.torch import load_file, save_file
    tensors = {re.sub(r"block_sparse_moe\.(gate|up|down)_proj", r"mlp.\1_proj", name): x
               for name, x in load_file(path).items()}
    save_file(tensors, path, metadata={"format": "pt"})


def published_rope_keys(path):
    """Write RoPE settings as the published models do: rope_theta and rope_scaling.

    transformers 5 writes one "rope_parameters" object instead; real directories
    hold either form, so the qwen3 model keeps the new one.
    """
    config = json.load(open(path))
    rope = config.get("rope_parameters")
    if rope is None or "full_attention" in rope:
        return
    del config["rope_parameters"]
    if "partial_rotary_factor" in rope:
        config["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
    config["rope_theta"] = rope.pop("rope_theta")
    kind = rope.get("rope_type", "default")
    config["rope_scaling"] = rope if kind != "default" else None
    if config["model_type"] == "deepseek_v2":  # deepseek3 keeps what transformers adds
        rope["type"] = rope.pop("rope_type")
        del config["head_dim"], config["qk_head_dim"]
    json.dump(config, open(path, "w"), indent=2, sort_keys=True)


def write_adapter(folder, seed):
    """A low-rank adapter of several matrices of each layer, and what the model makes of the prompt with it."""
    import peft
    torch.manual_seed(seed)
    tokens = torch.from_numpy(np.fromfile(os.path.join(folder, "golden/tokens.i32"), "<i4").astype("int64"))[None]
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    model = peft.get_peft_model(model, peft.LoraConfig(
        r=4, lora_alpha=6, rank_pattern={"down_proj": 2}, target_modules=["q_proj", "v_proj", "o_proj", "up_proj", "down_proj"],
        use_rslora=True)).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "lora_" in name:
                p.copy_((0.05 * torch.randn_like(p)).bfloat16().float())
        logits = model(tokens).logits[0].float().numpy()
    model.to(torch.bfloat16).save_pretrained(os.path.join(folder, "adapter"), safe_serialization=True)
    os.remove(os.path.join(folder, "adapter", "README.md"))
    config = os.path.join(folder, "adapter", "adapter_config.json")
    with open(config) as file:
        text = file.read().replace(folder, os.path.basename(folder))
    with open(config, "w") as file:
        file.write(text)
    logits[-ROWS:].astype("<f4").tofile(os.path.join(folder, "golden/adapter_logits.f32"))


def main(out, first_seed=1000, only=()):
    names = ["opt", "opt-350m-like", "llama2", "llama31", "qwen2", "qwen3", "mistral", "qwen2-yarn",
             "gemma3", "granite", "olmo3", "phi3", "smollm3", "qwen3moe", "olmoe", "mixtral", "granitemoe", "gpt-oss",
             "glm4moe", "mistral-wide", "glm4", "exaone4", "hunyuan", "minimax-m2", "ministral3", "ernie4_5", "seed-oss", "glm",
             "ernie4_5-moe", "granite4", "hy-v3", "mellum", "granite-swa", "afmoe", "gemma", "dots1",
             "solar-open",
             "gemma3-pictures", "qwen2_5-vl", "qwen3-vl", "qwen3-vl-moe", "qwen3.5", "qwen3.5-moe", "qwen3-next",
             "granite4-h", "nemotron-h", "nemotron-h-moe", "lfm2", "lfm2-moe", "gemma4", "gemma4-moe", "gemma4-e",
             "deepseek2", "deepseek3", "glm4-lite", "cohere", "cohere2", "cohere2-moe", "gemma2", "mistral4",
             "exaone-moe", "qwen2-moe", "arcee", "nemotron", "hunyuan-moe", "muse-glimmer", "lfm3", "youtu",
             *QUANTISED, "nemotron-h-latent", "laguna", "apertus", "qwen3-next-folder", "deepseek32", "glm-dsa",
             "minimax-m3", "kimi-linear", "llama4", "llama4-moe", "gpt-neox", "starcoder2", "falcon-h1", "phi",
             "stablelm", "stablelm2"]
    for seed, name in enumerate(names):
        if only and name not in only:
            continue
        torch.manual_seed(first_seed + seed)
        model, dtype = build(unquantised(name))
        # spread the weights out: default initialisation gives almost flat logits
        with torch.no_grad():
            for p_name, p in model.named_parameters():
                if p_name.endswith(("_bias", "sinks")):  # of experts and heads: so large that they count
                    p.add_(2 * torch.randn_like(p))
                elif p.dim() > 1:
                    is_head = (p_name.startswith(("lm_head", "embed_out")) if name in ("gpt-oss", "gpt-oss-mxfp4", "mistral4", "exaone-moe", "qwen2-moe", "arcee", "nemotron", "hunyuan-moe", "muse-glimmer", "llama4", "llama4-moe", "gpt-neox", "phi", "stablelm", "stablelm2") else
                               name.startswith(("gemma2", "gemma4")) and p_name == "model.embed_tokens.weight")
                    p.mul_(16.0 if is_head else 4.0)
                elif "norm" in p_name and "weight" in p_name:
                    p.add_(0.2 * torch.randn_like(p))
                    if name.startswith("gemma4") and "q_norm" in p_name:
                        p.mul_(0.2)  # scores have no scale
                else:
                    p.add_(0.1 * torch.randn_like(p))
        if name == "gpt-oss-mxfp4":  # rounding must not choose other experts
            model.config.num_experts_per_tok = model.config.num_local_experts
        model.tie_weights()
        folder = os.path.join(out, name)
        os.makedirs(os.path.join(folder, "golden"), exist_ok=True)
        model.to(dtype).save_pretrained(folder, safe_serialization=True)
        if name == "kimi-linear":
            published_mlp_names(os.path.join(folder, "model.safetensors"))
        exact = write_quantised(folder, name) if name in QUANTISED else folder
        model = type(model).from_pretrained(exact, dtype=torch.float32,
                                            attn_implementation="eager").eval()
        if exact != folder:
            shutil.rmtree(exact)
        if name not in ("qwen3", "gpt-oss", "gpt-oss-mxfp4"):
            published_rope_keys(os.path.join(folder, "config.json"))
        generator = torch.Generator().manual_seed(first_seed + 500 + seed)
        tokens = torch.randint(3, VOCAB, (1, PROMPT), generator=generator)
        tokens[0, 0] = 2 if name.startswith("opt") else 1
        with torch.no_grad():
            logits = model(tokens).logits[0].float().numpy()
            ids = tokens
            greedy, greedy_margin = [], []
            for _ in range(GREEDY):
                last = model(ids, use_cache=False).logits[0, -1]
                top = last.topk(2).values
                nxt = int(last.argmax())
                greedy.append(nxt)
                greedy_margin.append(float(top[0] - top[1]))
                ids = torch.cat([ids, torch.tensor([[nxt]])], dim=1)
        if name == "gpt-oss":
            write_gpt_oss(model, folder)
        if name == "llama4-moe":
            write_llama4(model, folder)
        if name == "qwen3-next":
            write_qwen3_next(model, folder)
        g = os.path.join(folder, "golden")
        tokens.numpy().astype("<i4").tofile(f"{g}/tokens.i32")
        logits[-ROWS:].astype("<f4").tofile(f"{g}/logits.f32")
        if name == "llama31":
            write_adapter(folder, first_seed)
        np.array(greedy, "<i4").tofile(f"{g}/greedy.i32")
        meta = dict(model=name, stored_dtype=str(dtype), prompt=PROMPT, vocab=VOCAB, greedy=GREEDY,
                    greedy_margin=greedy_margin,
                    torch=torch.__version__, transformers=transformers.__version__)
        json.dump(meta, open(f"{g}/golden.json", "w"), indent=1)
        print(name, logits.std(), min(greedy_margin), greedy[:8])


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1000, sys.argv[3:])
