# SPDX-License-Identifier: Apache-2.0
"""Factors that GGUF files keep beside matrices, as those with weights in NVFP4 do."""
import os
import struct

import pytest
from conftest import TINY_MODELS
from gguf_file import F32, Gguf

GPT_OSS = os.path.join(TINY_MODELS, "gpt-oss")
TOKENS = os.path.join(GPT_OSS, "golden/tokens.i32")
MODEL = os.path.join(GPT_OSS, "model.gguf")
BF16 = 30


def times_power(data, dims, powers):
    """Numbers in BF16, matrix i times 2 to the power of powers[i]."""
    n = dims[0] * dims[1]
    words = list(struct.unpack("<%dH" % (n * len(powers)), data[:2 * n * len(powers)]))
    for i, word in enumerate(words):
        exponent = word >> 7 & 255
        assert exponent == 0 or exponent + powers[i // n] > 0
        words[i] = word + (powers[i // n] << 7) if exponent else word
    return struct.pack("<%dH" % len(words), *words)


def logits(program, model, tmp_path):
    out = tmp_path / "logits"
    status, _, err = program("logits", "-m", model, "--tokens", TOKENS, "-o", out)
    assert (status, err) == (0, b"")
    return out.read_bytes()


def read(path):
    if not os.path.exists(path):
        pytest.skip("no tiny models")
    with open(path, "rb") as file:
        return Gguf(file.read())


def test_factors_of_powers_of_two_change_no_bit(program, tmp_path):
    """Matrices of a layer, of each expert and of logits are divided by their factors; biases are not."""
    g = read(MODEL)
    n_scaled = 0
    for name, (dims, kind, data) in list(g.tensors.items()):
        if kind != BF16 or not name.endswith(".weight") or name.startswith("token_embd"):
            continue
        powers = [-1 - (n_scaled + i) % 3 for i in range(dims[2] if len(dims) == 3 else 1)]
        g.tensors[name] = (dims, kind, times_power(data, dims, powers))
        factors = struct.pack("<%df" % len(powers), *(2.0 ** -p for p in powers))
        g.tensors[name[:-len("weight")] + "scale"] = ((len(powers),), F32, factors)
        n_scaled += 1
    assert n_scaled > 20 and any(len(dims) == 3 for dims, *_ in g.tensors.values())
    g.tensors["blk.0.attn_q.input_scale"] = ((1,), F32, struct.pack("<f", 3))  # of activations in 4 bits
    g.write(tmp_path / "scaled.gguf")
    plain = logits(program, MODEL, tmp_path)
    assert logits(program, tmp_path / "scaled.gguf", tmp_path) == plain

    halved = g.tensors["blk.1.attn_q.scale"]
    g.tensors["blk.1.attn_q.scale"] = (halved[0], F32, struct.pack("<f", 0.5 * struct.unpack("<f", halved[2][:4])[0]))
    g.write(tmp_path / "scaled.gguf")
    assert logits(program, tmp_path / "scaled.gguf", tmp_path) != plain


def test_factors_that_make_no_sense_are_refused(program, tmp_path):
    for name, dims, values, message in (
            ("blk.0.attn_q.scale", (2,), (1, 1), b"'blk.0.attn_q.scale' has shape [2], must be [1]"),
            ("blk.0.ffn_up_exps.scale", (1,), (1,), b"'blk.0.ffn_up_exps.scale' has shape [1], must be [6]"),
            ("blk.0.attn_q.scale", (1,), (float("nan"),), b"'blk.0.attn_q.scale' holds a value that is not finite"),
            ("token_embd.scale", (1,), (1,), b"'token_embd.scale' is not used")):
        g = read(MODEL)
        g.tensors[name] = (dims, F32, struct.pack("<%df" % len(values), *values))
        g.write(tmp_path / "wrong.gguf")
        status, _, err = program("logits", "-m", tmp_path / "wrong.gguf", "--tokens", TOKENS, "-o",
                                 tmp_path / "out")
        assert status == 1 and message in err, (name, err)
