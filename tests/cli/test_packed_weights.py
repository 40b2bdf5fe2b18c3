# SPDX-License-Identifier: Apache-2.0
"""Directories whose weights are unpacked (AWQ, GPTQ, compressed-tensors, MXFP4): what is shown, and what is refused."""
import json
import os
import shutil

import pytest
from conftest import TINY_MODELS, one_line

MODELS = {"qwen3-awq": "Q4_1", "smollm3-gptq": "Q4_0", "phi3-int4": "Q4_1", "olmoe-int4": "Q4_0", "qwen2-int8": "Q8_0",
          "gpt-oss-mxfp4": "MXFP4", "qwen3-nvfp4": "NVFP4"}
TOKENS = os.path.join(TINY_MODELS, "qwen3-awq", "golden/tokens.i32")


def refusal(program, folder, *options):
    code, _, err = program("logits", "-m", folder, "--tokens", TOKENS, "-o", os.devnull, *options)
    assert code == 1
    return one_line(err)


@pytest.mark.parametrize("model", MODELS)
def test_shown(program, model):
    code, out, _ = program("inspect", os.path.join(TINY_MODELS, model), "--tensors")
    lines = out.decode().splitlines()
    assert code == 0
    assert any("_proj" in line and f" {MODELS[model]} " in line for line in lines)
    assert not any(end in line for line in lines for end in ("qzeros", "g_idx", "weight_scale", "I32"))


@pytest.mark.parametrize("change, wanted", [
    ({"swiglu_limit": 5}, "'swiglu_limit'"),
    ({"swiglu_alpha": 2}, "'swiglu_alpha'"),
])
def test_other_gpt_oss(program, tmp_path, change, wanted):
    shutil.copytree(os.path.join(TINY_MODELS, "gpt-oss-mxfp4"), tmp_path / "m")
    config = json.loads((tmp_path / "m/config.json").read_text())
    config.update(change)
    (tmp_path / "m/config.json").write_text(json.dumps(config))
    assert wanted in refusal(program, tmp_path / "m")


@pytest.mark.parametrize("change, wanted", [
    ({"bits": 3}, "'bits' is 3, only 4 is supported"),
    ({"version": "gemv"}, "'version' 'gemv' is not supported, only 'gemm'"),
    ({"quant_method": "bitsandbytes"}, "weights as 'bitsandbytes' makes them are not supported"),
])
def test_other_settings(program, tmp_path, change, wanted):
    shutil.copytree(os.path.join(TINY_MODELS, "qwen3-awq"), tmp_path / "m")
    config = json.loads((tmp_path / "m/config.json").read_text())
    config["quantization_config"].update(change)
    (tmp_path / "m/config.json").write_text(json.dumps(config))
    assert wanted in refusal(program, tmp_path / "m")


def test_no_limit(program):
    folder = os.path.join(TINY_MODELS, "qwen3-awq")
    assert "they cannot have a limit (weights_ram)" in refusal(program, folder, "--weights-ram", "1M")


def test_copied_gives_the_same(program, tmp_path):
    folder = os.path.join(TINY_MODELS, "smollm3-gptq")
    for name, options in (("a", []), ("b", ["--no-mmap"]), ("c", ["--no-repack"])):
        code, _, err = program("logits", "-m", folder, "--tokens", TOKENS, "-o", tmp_path / name, *options)
        assert code == 0, err
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes() == (tmp_path / "c").read_bytes()


def test_rows_in_turns(program, tmp_path):
    """Rows of q, k and v that lie head by head are put in order as floats, or else refused."""
    shutil.copytree(os.path.join(TINY_MODELS, "gpt-neox"), tmp_path / "m")
    path = tmp_path / "m/model.safetensors"
    data = path.read_bytes()
    for old, new in ((b"query_key_value.bias", b"query_key_value.bins"), (b"query_key_value.weight", b"query_key_value.scales")):
        path.write_bytes(data.replace(old, new, 1))
        assert "is not of floats, in rows of q, k and v in turns" in refusal(program, tmp_path / "m")
