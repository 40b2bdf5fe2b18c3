#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make_random_model.py FOLDER [SHAPE [LAYERS]]: a model of random numbers in BF16, with a tokenizer of single bytes. SHAPE: 1b, a
Llama of 1.3 billion weights in 28 layers, or 8b, Llama 3.1 8B but for the vocabulary. For speed, where no model can be had:
what it attends to is flat."""
import json
import os
import struct
import sys

HEAD_DIM, VOCAB = 128, 512
SHAPES = {"1b": (1536, 8960, 12, 2, 28), "8b": (4096, 14336, 32, 8, 32)}
if len(sys.argv) < 2 or (len(sys.argv) > 2 and sys.argv[2] not in SHAPES):
    sys.exit(__doc__)
D, FF, HEADS, KV_HEADS, LAYERS = SHAPES[sys.argv[2] if len(sys.argv) > 2 else "1b"]


def shapes(n_layers):
    """Tensors of the file, in order."""
    yield "model.embed_tokens.weight", (VOCAB, D)
    for i in range(n_layers):
        at = f"model.layers.{i}."
        yield at + "input_layernorm.weight", (D,)
        yield at + "post_attention_layernorm.weight", (D,)
        yield at + "self_attn.q_proj.weight", (HEADS * HEAD_DIM, D)
        yield at + "self_attn.k_proj.weight", (KV_HEADS * HEAD_DIM, D)
        yield at + "self_attn.v_proj.weight", (KV_HEADS * HEAD_DIM, D)
        yield at + "self_attn.o_proj.weight", (D, HEADS * HEAD_DIM)
        yield at + "mlp.gate_proj.weight", (FF, D)
        yield at + "mlp.up_proj.weight", (FF, D)
        yield at + "mlp.down_proj.weight", (D, FF)
    yield "model.norm.weight", (D,)


def numbers(shape):
    """In BF16: ones of a norm, else magnitudes from 0.008 to 0.03."""
    if len(shape) == 1:
        return b"\x80\x3f" * shape[0]
    data = bytearray(os.urandom(2 * shape[0] * shape[1]))
    data[1::2] = data[1::2].translate(bytes(0x3c | i & 0x80 for i in range(256)))
    return data


def letters():
    """Characters that stand for bytes, as GPT-2 has them."""
    plain = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(b) if b in plain else chr(next(others)) for b in range(256)]


def main():
    folder, n_layers = sys.argv[1], int(sys.argv[3]) if len(sys.argv) > 3 else LAYERS
    os.makedirs(folder, exist_ok=True)

    def write(name, what):
        with open(os.path.join(folder, name), "w") as f:
            f.write(what if isinstance(what, str) else json.dumps(what))

    write("config.json", {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": D, "intermediate_size": FF,
                          "num_hidden_layers": n_layers, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
                          "head_dim": HEAD_DIM, "vocab_size": VOCAB, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
                          "rope_theta": 500000.0, "hidden_act": "silu", "tie_word_embeddings": True, "torch_dtype": "bfloat16",
                          "bos_token_id": 1, "eos_token_id": 2})
    words = ["<pad>", "<s>", "</s>", *letters()]
    words += [f"<{i}>" for i in range(len(words), VOCAB)]
    write("vocab.json", {word: i for i, word in enumerate(words)})
    write("merges.txt", "#version: 0.2\n")
    write("tokenizer_config.json", {"eos_token": "</s>"})
    header, at = {}, 0
    for name, shape in shapes(n_layers):
        end = at + 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(folder, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, shape in shapes(n_layers):
            f.write(numbers(shape))


main()
