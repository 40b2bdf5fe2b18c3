# SPDX-License-Identifier: Apache-2.0
"""Directories whose experts' matrices lie by columns: the logits are those of files where they lie by rows."""
import array
import json
import os
import shutil
import struct

import pytest
from conftest import TINY_MODELS, one_line
from gguf_file import F32, Gguf
from test_adapters import hf_tensors, logits

LAYER = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
         "attn_output": "self_attn.o_proj"}
LLAMA4 = {**LAYER, "ffn_norm": "post_attention_layernorm", "ffn_gate_inp": "feed_forward.router", "ffn_gate": "feed_forward.gate_proj",
          "ffn_up": "feed_forward.up_proj", "ffn_down": "feed_forward.down_proj", "ffn_gate_shexp": "feed_forward.shared_expert.gate_proj",
          "ffn_up_shexp": "feed_forward.shared_expert.up_proj", "ffn_down_shexp": "feed_forward.shared_expert.down_proj"}
GPT_OSS = {**LAYER, "post_attention_norm": "post_attention_layernorm", "attn_sinks": "self_attn.sinks", "ffn_gate_inp": "mlp.router"}
OTHERS = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def write_model(folder, config, tensors):
    """tensors: name -> (shape, whether of 32-bit floats, bytes)."""
    head, blob = {}, b""
    for name, (shape, is_long, data) in tensors.items():
        head[name] = {"dtype": "F32" if is_long else "BF16", "shape": list(shape), "data_offsets": [len(blob), len(blob) + len(data)]}
        blob += data
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + blob)
    (folder / "config.json").write_text(json.dumps(config))


def turned(matrices):
    """Matrices [rows][words], each as columns one behind the other."""
    return b"".join(array.array("H", [row[x] for x in range(len(rows[0])) for row in rows]).tobytes() for rows in (
        [array.array("H", row) for row in m] for m in matrices))


def matrices_of(tensor):
    """[experts][rows] words of a GGUF tensor."""
    (n_in, n_out, n), _, data = tensor
    size = 2 * n_in
    return [[data[(e * n_out + r) * size:(e * n_out + r + 1) * size] for r in range(n_out)] for e in range(n)]


def from_gguf(g, names, experts, is_mixed):
    """The tensors of a directory; `experts` is what its names of theirs begin with."""
    out = {}
    for name, (dims, kind, data) in g.tensors.items():
        part, _, end = name.rpartition(".")
        layer = f"model.layers.{part.split('.')[1]}." if part.startswith("blk.") else ""
        part = part.split(".")[-1]
        n = 4 if kind == F32 else 2
        for d in dims:
            n *= d
        if part in OTHERS:
            out[f"{OTHERS[part]}.{end}"] = (dims[::-1], kind == F32, data[:n])
        elif part in names:
            own = names[part] if part == "attn_sinks" else f"{names[part]}.{end}"
            out[layer + own] = (dims[::-1], kind == F32, data[:n])
        elif part == "ffn_down_exps" and end == "weight":
            out[f"{layer}{experts}.down_proj"] = ((dims[2], dims[0], dims[1]), False, turned(matrices_of((dims, kind, data))))
        elif part == "ffn_down_exps":
            out[f"{layer}{experts}.down_proj_bias"] = (dims[::-1], True, data[:n])
        elif part == "ffn_gate_exps":
            up = g.tensors[name.replace("gate", "up")]
            if end == "weight":
                both = [sum(zip(a, b), ()) if is_mixed else [*a, *b] for a, b in zip(matrices_of((dims, kind, data)), matrices_of(up))]
                out[f"{layer}{experts}.gate_up_proj"] = ((dims[2], dims[0], 2 * dims[1]), False, turned(both))
            else:
                a, b = (array.array("f", x[:n]) for x in (data, up[2]))
                mixed = array.array("f", [v for pair in zip(a, b) for v in pair])
                out[f"{layer}{experts}.gate_up_proj_bias"] = ((dims[1], 2 * dims[0]), True, mixed.tobytes())
    return out


COMMON = {"vocab_size": 512, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "max_position_embeddings": 256,
          "tie_word_embeddings": False, "hidden_size": 64}


def golden(name):
    return os.path.join(TINY_MODELS, name, "golden/tokens.i32")


@pytest.mark.skipif(not os.path.exists(TINY_MODELS), reason="no tiny models")
class TestExperts:
    def test_llama4(self, program, tmp_path):
        source = os.path.join(TINY_MODELS, "llama4-moe/model.gguf")
        with open(source, "rb") as f:
            tensors = from_gguf(Gguf(f.read()), LLAMA4, "feed_forward.experts", False)
        config = {**COMMON, "model_type": "llama4_text", "num_hidden_layers": 5, "intermediate_size": 32, "intermediate_size_mlp": 96,
                  "num_local_experts": 6, "num_experts_per_tok": 1, "interleave_moe_layer_step": 2, "rms_norm_eps": 1e-5}
        want = logits(program, source, tmp_path, tokens=golden("llama4-moe"))
        for i, more in enumerate(({}, {"moe_layers": [1, 3]}, {"attn_temperature_tuning": 4, "no_rope_layers": []})):
            write_model(tmp_path / str(i), {**config, **more}, tensors)
            assert logits(program, tmp_path / str(i), tmp_path, tokens=golden("llama4-moe")) == want
        for i, (layers, message) in enumerate((([1], "moe_layers"), ([0, 3], "moe_layers"))):
            write_model(tmp_path / f"no-{i}", {**config, "moe_layers": layers}, {})
            status, _, err = program("logits", "-m", tmp_path / f"no-{i}", "--tokens", golden("llama4-moe"), "-o", os.devnull)
            assert status == 1 and message in one_line(err)
        name = "model.layers.1.feed_forward.experts.down_proj"
        write_model(tmp_path / "cut", config, {**tensors, name: ((6, 64, 31), False, tensors[name][2][:6 * 64 * 31 * 2])})
        status, _, err = program("logits", "-m", tmp_path / "cut", "--tokens", golden("llama4-moe"), "-o", os.devnull)
        assert status == 1 and name in one_line(err)

    def test_gpt_oss(self, program, tmp_path):
        source = os.path.join(TINY_MODELS, "gpt-oss/model.gguf")
        with open(source, "rb") as f:
            g = Gguf(f.read())
        tensors = from_gguf(g, GPT_OSS, "mlp.experts", True)
        with open(os.path.join(TINY_MODELS, "gpt-oss-mxfp4/config.json")) as f:
            config = {**json.load(f), "quantization_config": None, "num_experts_per_tok": 2}
        write_model(tmp_path / "m", config, tensors)
        want = logits(program, source, tmp_path, tokens=golden("gpt-oss"))
        assert logits(program, tmp_path / "m", tmp_path, tokens=golden("gpt-oss")) == want

    def test_qwen3_vl_moe(self, program, tmp_path):
        """By columns as published, or by rows as Transformers may write them: the sizes tell."""
        source = os.path.join(TINY_MODELS, "qwen3moe")
        with open(os.path.join(source, "config.json")) as f:
            config = {**json.load(f), "norm_topk_prob": True}
        shutil.copytree(source, tmp_path / "plain")
        (tmp_path / "plain/config.json").write_text(json.dumps(config))
        want = logits(program, tmp_path / "plain", tmp_path, tokens=golden("qwen3moe"))
        own = {n: (dims[::-1], False, data) for n, dims, data in hf_tensors(source)}
        first = "model.layers.0.mlp.experts."
        names = sorted(int(n[len(first):].split(".")[0]) for n in own if n.startswith(first) and n.endswith("up_proj.weight"))
        for by_columns in (False, True):
            tensors = {n.replace("model.", "model.language_model.", 1): t for n, t in own.items() if ".experts." not in n}
            for layer in range(config["num_hidden_layers"]):
                at = f"model.layers.{layer}.mlp.experts."
                for name, parts in (("gate_up_proj", ("gate_proj", "up_proj")), ("down_proj", ("down_proj",))):
                    all_, n_in = [], 0
                    for e in names:
                        rows = []
                        for part in parts:
                            (n_out, n_in), _, data = own[f"{at}{e}.{part}.weight"]
                            rows += [data[2 * n_in * r:2 * n_in * (r + 1)] for r in range(n_out)]
                        all_.append(rows)
                    shape = (len(names), n_in, len(all_[0])) if by_columns else (len(names), len(all_[0]), n_in)
                    data = turned(all_) if by_columns else b"".join(b"".join(m) for m in all_)
                    tensors[f"model.language_model.layers.{layer}.mlp.experts.{name}"] = (shape, False, data)
            whole = {"model_type": "qwen3_vl_moe", "tie_word_embeddings": config.get("tie_word_embeddings", False),
                     "text_config": {**config, "model_type": "qwen3_vl_moe_text", "norm_topk_prob": False}}
            write_model(tmp_path / f"m{by_columns}", whole, tensors)
            assert logits(program, tmp_path / f"m{by_columns}", tmp_path, tokens=golden("qwen3moe")) == want
            status, _, err = program("run", "-m", tmp_path / f"m{by_columns}", "--weights-ram", "1M", "-p", "a")
            assert not by_columns or (status == 1 and "experts by columns" in one_line(err))
