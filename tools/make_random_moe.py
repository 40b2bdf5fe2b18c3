#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make_random_moe.py FILE.gguf [TYPE [LAYERS]]: a mixture of experts of random numbers, and hardly a tokenizer. TYPE q4_k or
q8_0: with the shapes of Qwen3-30B-A3B's layers (128 experts, 8 for a token), 2.1 GB for 6 of q4_k; mxfp4: of gpt-oss-20b's (32
experts, 4 for a token; all else is q8_0), 2.7 GB for 6. LAYERS: 6. For speed, where no model can be had: bench/compare takes the
file."""
import os
import struct
import sys
from types import SimpleNamespace

VOCAB = 512
QWEN3 = SimpleNamespace(name="qwen3moe", d=2048, ff=768, heads=32, kv_heads=4, head_dim=128, experts=128, used=8)
GPT_OSS = SimpleNamespace(name="gpt-oss", d=2880, ff=2880, heads=64, kv_heads=8, head_dim=64, experts=32, used=4)
# GGUF's number of the type, elements and bytes of a block, and its first bytes: scales that make small weights
TYPES = {"q4_k": (12, 256, 144, struct.pack("<ee", 1e-4, 8e-4)), "q8_0": (8, 32, 34, struct.pack("<e", 3e-4)),
         "mxfp4": (39, 32, 17, bytes([121]))}
U32, I32, F32, STRING, ARRAY = 4, 5, 6, 8, 9


def text(s):
    return struct.pack("<Q", len(s.encode())) + s.encode()


def value(v):
    """A value of the metadata, with its type."""
    if isinstance(v, list):
        kind = STRING if isinstance(v[0], str) else I32
        return struct.pack("<IIQ", ARRAY, kind, len(v)) + b"".join(text(x) if kind == STRING else struct.pack("<i", x) for x in v)
    if isinstance(v, str):
        return struct.pack("<I", STRING) + text(v)
    return struct.pack("<If", F32, v) if isinstance(v, float) else struct.pack("<II", U32, v)


def metadata(m, n_layers):
    words = ["<pad>", "<s>", "</s>", "a", "b", "ab"]
    words += [f"<{i}>" for i in range(len(words), VOCAB)]
    own = {"block_count": n_layers, "context_length": 40960, "embedding_length": m.d, "feed_forward_length": 3 * m.d,
           "expert_feed_forward_length": m.ff, "expert_count": m.experts, "expert_used_count": m.used,
           "attention.head_count": m.heads, "attention.head_count_kv": m.kv_heads, "attention.key_length": m.head_dim,
           "attention.value_length": m.head_dim, "attention.layer_norm_rms_epsilon": 1e-6, "rope.freq_base": 1e6}
    if m is GPT_OSS:
        own["attention.sliding_window"] = 128
    return {"general.architecture": m.name, **{f"{m.name}.{k}": v for k, v in own.items()}, "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "qwen2", "tokenizer.ggml.tokens": words, "tokenizer.ggml.merges": ["a b"],
            "tokenizer.ggml.token_type": [1] * VOCAB, "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2}


def tensors(m, n_layers):
    """Names, and shapes as GGUF has them."""
    q, kv = m.heads * m.head_dim, m.kv_heads * m.head_dim
    layer = {"attn_norm.weight": (m.d,), "attn_q.weight": (m.d, q), "attn_k.weight": (m.d, kv), "attn_v.weight": (m.d, kv),
             "attn_output.weight": (q, m.d), "ffn_gate_inp.weight": (m.d, m.experts)}
    experts = {"ffn_gate_exps": (m.d, m.ff), "ffn_up_exps": (m.d, m.ff), "ffn_down_exps": (m.ff, m.d)}
    layer |= {f"{name}.weight": (*shape, m.experts) for name, shape in experts.items()}
    if m is QWEN3:
        layer |= {"ffn_norm.weight": (m.d,), "attn_q_norm.weight": (m.head_dim,), "attn_k_norm.weight": (m.head_dim,)}
    else:
        layer |= {"post_attention_norm.weight": (m.d,), "attn_sinks.weight": (m.heads,), "ffn_gate_inp.bias": (m.experts,)}
        layer |= {f"attn_{k}.bias": (n,) for k, n in {"q": q, "k": kv, "v": kv, "output": m.d}.items()}
        layer |= {f"{name}.bias": (shape[1], m.experts) for name, shape in experts.items()}
    yield "token_embd.weight", (m.d, VOCAB)
    yield "output.weight", (m.d, VOCAB)
    yield "output_norm.weight", (m.d,)
    for i in range(n_layers):
        for name, shape in layer.items():
            yield f"blk.{i}.{name}", shape


# The upper bytes of 32-bit floats: 1; magnitudes of 0.008 to 0.03; 32 to 128 for embeddings, so that tokens and their experts differ
ONES, SMALL, LARGE = 0x3f, 0x3c, 0x42


def kind_of(name, n_dims, kind):
    if name == "token_embd.weight":
        return LARGE
    if "norm" in name or n_dims == 1 or ".bias" in name or "gate_inp" in name:
        return ONES if "norm" in name else SMALL
    return TYPES[kind if "_exps" in name or kind != "mxfp4" else "q8_0"]


def fill(kind, size):
    if kind == ONES:
        return struct.pack("<f", 1) * (size // 4)
    data = bytearray(os.urandom(size))
    if isinstance(kind, int):
        data[3::4] = data[3::4].translate(bytes(kind | i & 0x80 for i in range(256)))
    else:
        for i, byte in enumerate(kind[3]):
            data[i::kind[2]] = bytes([byte]) * (size // kind[2])
    return data


def main():
    path, name, n_layers = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "q4_k", int(sys.argv[3]) if len(sys.argv) > 3 else 6
    m = GPT_OSS if name == "mxfp4" else QWEN3
    header, at, parts = [], 0, []
    for tensor, shape in tensors(m, n_layers):
        kind, n = kind_of(tensor, len(shape), name), 1
        for x in shape:
            n *= x
        size = 4 * n if isinstance(kind, int) else n // kind[1] * kind[2]
        parts.append((kind, size))
        header.append(text(tensor) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape)
                      + struct.pack("<IQ", 0 if isinstance(kind, int) else kind[0], at))
        at += (size + 31) // 32 * 32
    values = metadata(m, n_layers)
    start = b"GGUF" + struct.pack("<IQQ", 3, len(header), len(values)) + b"".join(text(k) + value(v) for k, v in values.items())
    start += b"".join(header)
    with open(path, "wb") as f:
        f.write(start + bytes(-len(start) % 32))
        for kind, size in parts:
            f.write(fill(kind, size) + bytes(-size % 32))


if len(sys.argv) < 2 or (len(sys.argv) > 2 and sys.argv[2] not in TYPES):
    sys.exit(__doc__)
main()
