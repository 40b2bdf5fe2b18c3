#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make_random_model.py FILE.gguf [SHAPE [TYPE [LAYERS]]]: a model of random numbers, with a tokenizer of single bytes. For speed,
where no model can be had: what it attends to is flat. bench/compare takes the file. SHAPE, and its layers if nothing else is said:

    1b       Qwen2.5 1.5B but for the vocabulary, as a Llama: 1.3 billion weights in 28 layers with 2 KV heads
    8b       Llama 3.1 8B but for the vocabulary: 7 billion weights in 32 layers
    qwen3moe layers of Qwen3-30B-A3B: 128 experts, 8 for a token; 2.1 GB for 6 of q4_k
    gpt-oss  layers of gpt-oss-20b: 32 experts, 4 for a token; 2.7 GB for 6 of mxfp4
    glm-flash layers of GLM-4.7-Flash, the first one without experts: latents of 512, 64 experts, 4 for a token; 1.8 GB for 6 of q4_k

TYPE: bf16, q8_0, q4_k or mxfp4 (experts alone; all else is q8_0); bf16 for the first two, mxfp4 for gpt-oss, else q4_k."""
import os
import struct
import sys
from types import SimpleNamespace

VOCAB = 512
SHAPES = {
    "1b": SimpleNamespace(name="llama", d=1536, ff=8960, heads=12, kv_heads=2, head_dim=128, experts=0, layers=28, type="bf16"),
    "8b": SimpleNamespace(name="llama", d=4096, ff=14336, heads=32, kv_heads=8, head_dim=128, experts=0, layers=32, type="bf16"),
    "qwen3moe": SimpleNamespace(name="qwen3moe", d=2048, ff=768, heads=32, kv_heads=4, head_dim=128, experts=128, used=8, layers=6,
                                type="q4_k"),
    "gpt-oss": SimpleNamespace(name="gpt-oss", d=2880, ff=2880, heads=64, kv_heads=8, head_dim=64, experts=32, used=4, layers=6,
                               type="mxfp4"),
    "glm-flash": SimpleNamespace(name="deepseek2", d=2048, ff=1536, heads=20, kv_heads=1, head_dim=576, experts=64, used=4, layers=6,
                                 type="q4_k", q_rank=768, kv_rank=512, rot=64, key=192, value=256),
}
# GGUF's number of the type, elements and bytes of a block, and its first bytes: scales that make small weights
TYPES = {"q4_k": (12, 256, 144, struct.pack("<ee", 1e-4, 8e-4)), "q8_0": (8, 32, 34, struct.pack("<e", 3e-4)),
         "mxfp4": (39, 32, 17, bytes([121])), "bf16": (30, 1, 2, None)}
U32, I32, F32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9


def text(s):
    return struct.pack("<Q", len(s.encode())) + s.encode()


def value(v):
    """A value of the metadata, with its type."""
    if isinstance(v, list):
        kind = STRING if isinstance(v[0], str) else I32
        return struct.pack("<IIQ", ARRAY, kind, len(v)) + b"".join(text(x) if kind == STRING else struct.pack("<i", x) for x in v)
    if isinstance(v, str):
        return struct.pack("<I", STRING) + text(v)
    if isinstance(v, bool):
        return struct.pack("<I?", BOOL, v)
    return struct.pack("<If", F32, v) if isinstance(v, float) else struct.pack("<II", U32, v)


def letters():
    """Characters that stand for bytes, as GPT-2 has them."""
    plain = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(b) if b in plain else chr(next(others)) for b in range(256)]


def metadata(m, n_layers):
    words = ["<pad>", "<s>", "</s>", *letters(), "ab"]
    words += [f"<{i}>" for i in range(len(words), VOCAB)]
    own = {"block_count": n_layers, "context_length": 131072, "embedding_length": m.d,
           "feed_forward_length": 3 * m.d if m.experts else m.ff, "attention.head_count": m.heads,
           "attention.head_count_kv": m.kv_heads, "attention.key_length": m.head_dim, "attention.value_length": m.head_dim,
           "attention.layer_norm_rms_epsilon": 1e-6, "rope.freq_base": 1e6}
    if m.experts:
        own |= {"expert_feed_forward_length": m.ff, "expert_count": m.experts, "expert_used_count": m.used}
    if m.name == "gpt-oss":
        own["attention.sliding_window"] = 128
    if m.name == "deepseek2":
        own |= {"attention.value_length": m.kv_rank, "attention.q_lora_rank": m.q_rank, "attention.kv_lora_rank": m.kv_rank,
                "attention.key_length_mla": m.key + m.rot, "attention.value_length_mla": m.value, "rope.dimension_count": m.rot,
                "leading_dense_block_count": 1, "expert_shared_count": 1, "expert_gating_func": 2, "expert_weights_norm": True,
                "expert_weights_scale": 1.8}
    return {"general.architecture": m.name, **{f"{m.name}.{k}": v for k, v in own.items()}, "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "qwen2", "tokenizer.ggml.tokens": words, "tokenizer.ggml.merges": ["a b"],
            "tokenizer.ggml.token_type": [1] * VOCAB, "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2}


def tensors(m, n_layers):
    """Names, and shapes as GGUF has them."""
    q, kv = m.heads * m.head_dim, m.kv_heads * m.head_dim
    layer = {"attn_norm.weight": (m.d,), "attn_q.weight": (m.d, q), "attn_k.weight": (m.d, kv), "attn_v.weight": (m.d, kv),
             "attn_output.weight": (q, m.d)}
    if m.name == "deepseek2":
        heads = m.heads * (m.key + m.rot)
        layer = {"attn_norm.weight": (m.d,), "attn_q_a.weight": (m.d, m.q_rank), "attn_q_a_norm.weight": (m.q_rank,),
                 "attn_q_b.weight": (m.q_rank, heads), "attn_kv_a_mqa.weight": (m.d, m.head_dim),
                 "attn_kv_a_norm.weight": (m.kv_rank,), "attn_k_b.weight": (m.key, m.kv_rank, m.heads),
                 "attn_v_b.weight": (m.kv_rank, m.value, m.heads), "attn_output.weight": (m.heads * m.value, m.d)}
    ffn = {"ffn_gate": (m.d, m.ff), "ffn_up": (m.d, m.ff), "ffn_down": (m.ff, m.d)}
    if m.experts:
        layer["ffn_gate_inp.weight"] = (m.d, m.experts)
        layer |= {f"{name}_exps.weight": (*shape, m.experts) for name, shape in ffn.items()}
    else:
        layer |= {f"{name}.weight": shape for name, shape in ffn.items()}
    plain = {f"{name}.weight": tuple(3 * m.d if n == m.ff else n for n in shape) for name, shape in ffn.items()}
    if m.name == "deepseek2":
        layer |= {f"{name}_shexp.weight": shape for name, shape in ffn.items()} | {"exp_probs_b.bias": (m.experts,)}
    if m.name != "gpt-oss":
        layer["ffn_norm.weight"] = (m.d,)
    if m.name == "qwen3moe":
        layer |= {"attn_q_norm.weight": (m.head_dim,), "attn_k_norm.weight": (m.head_dim,)}
    if m.name == "gpt-oss":
        layer |= {"post_attention_norm.weight": (m.d,), "attn_sinks.weight": (m.heads,), "ffn_gate_inp.bias": (m.experts,)}
        layer |= {f"attn_{k}.bias": (n,) for k, n in {"q": q, "k": kv, "v": kv, "output": m.d}.items()}
        layer |= {f"{name}_exps.bias": (shape[1], m.experts) for name, shape in ffn.items()}
    yield "token_embd.weight", (m.d, VOCAB)
    yield "output.weight", (m.d, VOCAB)
    yield "output_norm.weight", (m.d,)
    for i in range(n_layers):
        is_plain = m.name == "deepseek2" and i == 0
        own = {k: v for k, v in layer.items() if not k.startswith(("ffn_", "exp_")) or "norm" in k} | plain if is_plain else layer
        for name, shape in own.items():
            yield f"blk.{i}.{name}", shape


# The upper bytes of 32-bit floats: 1; magnitudes of 0.008 to 0.03; 32 to 128 for embeddings, so that tokens and their experts differ
ONES, SMALL, LARGE = 0x3f, 0x3c, 0x42


def kind_of(name, n_dims, kind):
    if name == "token_embd.weight":
        return LARGE
    if "norm" in name or n_dims == 1 or ".bias" in name or "gate_inp" in name:
        return ONES if "norm" in name else SMALL
    is_narrow = "attn_k_b" in name and kind == "q4_k"
    return TYPES["q8_0" if is_narrow or kind == "mxfp4" and "_exps" not in name else kind]


def with_top(data, each, top):
    """Random numbers of so many bytes, of which the upper one is this but for the sign."""
    data[each - 1::each] = data[each - 1::each].translate(bytes(top | i & 0x80 for i in range(256)))
    return data


def fill(kind, size):
    if kind == ONES:
        return struct.pack("<f", 1) * (size // 4)
    data = bytearray(os.urandom(size))
    if isinstance(kind, int):
        return with_top(data, 4, kind)
    if kind == TYPES["bf16"]:
        return with_top(data, 2, SMALL)
    for i, byte in enumerate(kind[3]):
        data[i::kind[2]] = bytes([byte]) * (size // kind[2])
    return data


def main(path, shape="1b", name=None, n_layers=None):
    m = SHAPES[shape]
    name, n_layers = name or m.type, int(n_layers or m.layers)
    header, at, parts = [], 0, []
    for tensor, dims in tensors(m, n_layers):
        kind, n = kind_of(tensor, len(dims), name), 1
        for x in dims:
            n *= x
        size = 4 * n if isinstance(kind, int) else n // kind[1] * kind[2]
        parts.append((kind, size))
        header.append(text(tensor) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims)
                      + struct.pack("<IQ", 0 if isinstance(kind, int) else kind[0], at))
        at += (size + 31) // 32 * 32
    values = metadata(m, n_layers)
    start = b"GGUF" + struct.pack("<IQQ", 3, len(header), len(values)) + b"".join(text(k) + value(v) for k, v in values.items())
    start += b"".join(header)
    with open(path, "wb") as f:
        f.write(start + bytes(-len(start) % 32))
        for kind, size in parts:
            f.write(fill(kind, size) + bytes(-size % 32))


if not 2 <= len(sys.argv) <= 5 or sys.argv[2:3] and sys.argv[2] not in SHAPES or sys.argv[3:4] and sys.argv[3] not in TYPES:
    sys.exit(__doc__)
main(*sys.argv[1:])
