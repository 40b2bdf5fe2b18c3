#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make_random_moe.py FILE.gguf [TYPE [LAYERS]]: a mixture of experts of random numbers, with the shapes of Qwen3-30B-A3B's layers (128
experts, 8 for a token) and hardly a tokenizer. TYPE: q4_k or q8_0; LAYERS: 6, which make 2.1 GB of q4_k. For speed, where no
model can be had: bench/compare takes the file."""
import os
import struct
import sys

D, FF, HEADS, KV_HEADS, HEAD_DIM, EXPERTS, USED, VOCAB = 2048, 768, 32, 4, 128, 128, 8, 512
# GGUF's number of the type, elements and bytes of a block, and its first bytes: scales that make small weights
TYPES = {"q4_k": (12, 256, 144, struct.pack("<ee", 1e-4, 8e-4)), "q8_0": (8, 32, 34, struct.pack("<e", 3e-4))}
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


def metadata(n_layers):
    words = ["<pad>", "<s>", "</s>", "a", "b", "ab"]
    words += [f"<{i}>" for i in range(len(words), VOCAB)]
    own = {"block_count": n_layers, "context_length": 40960, "embedding_length": D, "feed_forward_length": 3 * D,
           "expert_feed_forward_length": FF, "expert_count": EXPERTS, "expert_used_count": USED, "attention.head_count": HEADS,
           "attention.head_count_kv": KV_HEADS, "attention.key_length": HEAD_DIM, "attention.value_length": HEAD_DIM,
           "attention.layer_norm_rms_epsilon": 1e-6, "rope.freq_base": 1e6}
    return {"general.architecture": "qwen3moe", **{"qwen3moe." + k: v for k, v in own.items()}, "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "qwen2", "tokenizer.ggml.tokens": words, "tokenizer.ggml.merges": ["a b"],
            "tokenizer.ggml.token_type": [1] * VOCAB, "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2}


def tensors(n_layers):
    """Names, and shapes as GGUF has them."""
    yield "token_embd", (D, VOCAB)
    yield "output_norm", (D,)
    for i in range(n_layers):
        for name, shape in {"attn_norm": (D,), "ffn_norm": (D,), "attn_q_norm": (HEAD_DIM,), "attn_k_norm": (HEAD_DIM,),
                            "attn_q": (D, HEADS * HEAD_DIM), "attn_k": (D, KV_HEADS * HEAD_DIM), "attn_v": (D, KV_HEADS * HEAD_DIM),
                            "attn_output": (HEADS * HEAD_DIM, D), "ffn_gate_inp": (D, EXPERTS), "ffn_gate_exps": (D, FF, EXPERTS),
                            "ffn_up_exps": (D, FF, EXPERTS), "ffn_down_exps": (FF, D, EXPERTS)}.items():
            yield f"blk.{i}.{name}", shape


def main():
    path, kind, n_layers = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "q4_k", int(sys.argv[3]) if len(sys.argv) > 3 else 6
    number, n_block, n_bytes, scales = TYPES[kind]
    header, at, sizes = [], 0, []
    for name, shape in tensors(n_layers):
        n = 1
        for x in shape:
            n *= x
        is_float = len(shape) == 1 or name.endswith("gate_inp") or name == "token_embd"
        sizes.append((4 * n if is_float else n // n_block * n_bytes, len(shape) == 1, is_float and (0x42 if name == "token_embd" else 0x3c)))
        header.append(text(name + ".weight") + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape)
                      + struct.pack("<IQ", 0 if is_float else number, at))
        at += (sizes[-1][0] + 31) // 32 * 32
    values = metadata(n_layers)
    start = b"GGUF" + struct.pack("<IQQ", 3, len(header), len(values)) + b"".join(text(k) + value(v) for k, v in values.items())
    start += b"".join(header)
    with open(path, "wb") as f:
        f.write(start + bytes(-len(start) % 32))
        for size, is_norm, is_float in sizes:
            if is_norm:
                data = struct.pack("<f", 1) * (size // 4)
            else:
                data = bytearray(os.urandom(size))
                if is_float:  # magnitudes of 0.008 to 0.03; of embeddings 32 to 128, so that tokens differ and so do their experts
                    data[3::4] = data[3::4].translate(bytes(is_float | i & 0x80 for i in range(256)))
                else:
                    for i, byte in enumerate(scales):
                        data[i::n_bytes] = bytes([byte]) * (size // n_bytes)
            f.write(data + bytes(-size % 32))


if len(sys.argv) < 2 or (len(sys.argv) > 2 and sys.argv[2] not in TYPES):
    sys.exit(__doc__)
main()
