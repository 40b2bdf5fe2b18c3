#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the tiny models of tests/golden/models and their golden outputs.

Needs torch, transformers, safetensors and numpy. The outputs are in the repository (llama2 and qwen2 left out, to
keep it small), so nobody has to run this to run the tests; run it to add a model.

    tools/make_golden_models.py OUT_DIR [FIRST_SEED]

For every model it writes an ordinary Hugging Face directory (config.json, model.safetensors,
generation_config.json) and little-endian arrays:

    golden/tokens.i32    int32 [n]: the prompt
    golden/logits.f32    float32 [48, vocab]: logits after each of the last 48 tokens of the prompt
    golden/greedy.i32    int32 [g]: greedy continuation of the prompt
    golden/golden.json   shapes, margins of the greedy tokens, library versions

Everything is computed in float32 with eager attention from the weights as stored (float16 or bfloat16 according
to the model).
"""
import json, os, sys
import numpy as np
import torch
import transformers
from transformers import (LlamaConfig, LlamaForCausalLM, OPTConfig, OPTForCausalLM,
                          Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM,
                          MistralConfig, MistralForCausalLM)

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
    raise SystemExit(f"unknown model {name}")


def published_rope_keys(path):
    """Write RoPE settings as the published models do: rope_theta and rope_scaling.

    transformers 5 writes one "rope_parameters" object instead; real directories
    hold either form, so the qwen3 model keeps the new one.
    """
    config = json.load(open(path))
    rope = config.pop("rope_parameters", None)
    if rope is None:
        return
    config["rope_theta"] = rope.pop("rope_theta")
    kind = rope.get("rope_type", "default")
    config["rope_scaling"] = rope if kind != "default" else None
    json.dump(config, open(path, "w"), indent=2, sort_keys=True)


def main(out, first_seed=1000):
    names = ["opt", "opt-350m-like", "llama2", "llama31", "qwen2", "qwen3", "mistral", "qwen2-yarn"]
    for seed, name in enumerate(names):
        torch.manual_seed(first_seed + seed)
        model, dtype = build(name)
        # spread the weights out: default initialisation gives almost flat logits
        with torch.no_grad():
            for p_name, p in model.named_parameters():
                if p.dim() > 1:
                    p.mul_(4.0)
                elif "norm" in p_name and "weight" in p_name:
                    p.add_(0.2 * torch.randn_like(p))
                else:
                    p.add_(0.1 * torch.randn_like(p))
        model.tie_weights()
        folder = os.path.join(out, name)
        os.makedirs(os.path.join(folder, "golden"), exist_ok=True)
        model.to(dtype).save_pretrained(folder, safe_serialization=True)
        model = type(model).from_pretrained(folder, dtype=torch.float32,
                                            attn_implementation="eager").eval()
        if name != "qwen3":
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
        g = os.path.join(folder, "golden")
        tokens.numpy().astype("<i4").tofile(f"{g}/tokens.i32")
        logits[-ROWS:].astype("<f4").tofile(f"{g}/logits.f32")
        np.array(greedy, "<i4").tofile(f"{g}/greedy.i32")
        meta = dict(model=name, stored_dtype=str(dtype), prompt=PROMPT, vocab=VOCAB, greedy=GREEDY,
                    greedy_margin=greedy_margin,
                    torch=torch.__version__, transformers=transformers.__version__)
        json.dump(meta, open(f"{g}/golden.json", "w"), indent=1)
        print(name, logits.std(), min(greedy_margin), greedy[:8])


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1000)
