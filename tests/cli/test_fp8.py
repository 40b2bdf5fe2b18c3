# SPDX-License-Identifier: Apache-2.0
"""Directories with weights in FP8: what is shown of them, and scales that are missing or wrong."""
import json
import os
import shutil
import struct

import pytest
from conftest import TINY_MODELS, one_line

MODEL = os.path.join(TINY_MODELS, "qwen3-fp8")
SCALES = "model.layers.0.self_attn.q_proj.weight_scale_inv"


@pytest.fixture
def copy(tmp_path):
    shutil.copytree(MODEL, tmp_path / "fp8")
    return tmp_path / "fp8"


def change_data(folder, name, at, data):
    """Writes `data` at byte `at` of a tensor."""
    path = folder / "model.safetensors"
    content = bytearray(path.read_bytes())
    n = struct.unpack("<Q", content[:8])[0]
    begin = 8 + n + json.loads(content[8:8 + n])[name]["data_offsets"][0] + at
    content[begin:begin + len(data)] = data
    path.write_bytes(content)


def refusal(program, folder):
    code, _, err = program("logits", "-m", folder, "--tokens", os.path.join(MODEL, "golden/tokens.i32"), "-o", os.devnull)
    assert code == 1
    return one_line(err)


def test_shown(program):
    code, out, _ = program("inspect", MODEL, "--tensors")
    assert code == 0
    assert any("q_proj.weight " in line and "F8_E4M3" in line for line in out.decode().splitlines())


def test_scales_are_missing(program, copy):
    path = copy / "model.safetensors"
    path.write_bytes(path.read_bytes().replace(SCALES.encode(), SCALES[:-1].encode() + b"x"))
    assert f"tensor '{SCALES[:-4]}' is missing, the scales of" in refusal(program, copy)


@pytest.mark.parametrize("blocks", [None, [64, 128], [128, 64]])
def test_blocks_of_another_size(program, copy, blocks):
    config = json.loads((copy / "config.json").read_text())
    config["quantization_config"]["weight_block_size"] = blocks
    (copy / "config.json").write_text(json.dumps(config))
    assert "which is not that of scales of" in refusal(program, copy)


@pytest.mark.parametrize("scale, wanted", [(float("nan"), "not finite"), (-1.0, "holds a scale of -1")])
def test_wrong_scales(program, copy, scale, wanted):
    change_data(copy, SCALES, 4, struct.pack("<f", scale))
    assert wanted in refusal(program, copy)


@pytest.mark.parametrize("code", [0x7f, 0xff])
def test_a_weight_is_no_number(program, copy, code):
    change_data(copy, "model.layers.1.mlp.down_proj.weight", 1000, bytes([code]))
    assert "not finite" in refusal(program, copy)
