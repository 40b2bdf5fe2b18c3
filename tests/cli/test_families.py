# SPDX-License-Identifier: Apache-2.0
"""Families of GGUF files that are another one under their own names."""
import array
import json
import os
import random
import struct

import pytest
from conftest import TINY_MODELS
from gguf_file import F32, Gguf
from test_adapters import BF16, LLAMA, as_gguf, hf_tensors, logits, pair_rows

TOKENS = os.path.join(LLAMA, "golden/tokens.i32")
D, HEADS, KV_HEADS, HEAD, D_FF, EXPERTS, EXPERT_FF, LAYERS, VOCAB = 64, 2, 1, 32, 96, 8, 32, 3, 512


@pytest.fixture(autouse=True)
def has_models():
    if not os.path.exists(LLAMA):
        pytest.skip("no tiny models")


def renamed(g, old, new, **more):
    """The file under another architecture's name."""
    other = Gguf.new(general__architecture=new, **{f"{new}__{k}": v for k, v in more.items()})
    architecture = Gguf.new(general__architecture=old).head
    assert g.head.startswith(architecture)
    head = g.head[len(architecture):]
    for n in range(len(old) + 2, 100):  # the length of a key changes with the name
        key, longer = (struct.pack("<Q", n + len(name) - len(old)) + name.encode() + b"." for name in (old, new))
        head = head.replace(key, longer)
    other.head, other.n_keys, other.tensors = other.head + head, other.n_keys + g.n_keys - 1, dict(g.tensors)
    return other


@pytest.mark.parametrize("name, more", [
    ("internlm2", {}), ("minicpm", {"embedding_scale": 1.0, "residual_scale": 1.0, "logit_scale": 1.0})])
def test_as_llama(program, tmp_path, name, more):
    g = as_gguf(LLAMA)
    g.write(tmp_path / "llama.gguf")
    renamed(g, "llama", name, **more).write(tmp_path / "other.gguf")
    plain, other = (logits(program, tmp_path / f"{file}.gguf", tmp_path, tokens=TOKENS) for file in ("llama", "other"))
    assert plain == other


def numbers(*dims, scale=None, around=0.0):
    n = 1
    for d in dims:
        n *= d
    rng, scale = random.Random(f"{dims}{around}"), scale or 1.5 / dims[0] ** 0.5
    return dims, F32, array.array("f", [around + rng.gauss(0, scale) for _ in range(n)]).tobytes()


def mixture(name, norm, **more):
    """With all of a mixture that its family has no names of its own for."""
    keys = {"context_length": 512, "embedding_length": D, "block_count": LAYERS, "feed_forward_length": D_FF,
            "attention__head_count": HEADS, "attention__head_count_kv": KV_HEADS, "attention__key_length": HEAD,
            "attention__value_length": HEAD, "attention__layer_norm_rms_epsilon": 1e-5, "rope__freq_base": 1e4,
            "rope__dimension_count": HEAD // 2, "vocab_size": VOCAB, "expert_count": EXPERTS, "expert_used_count": 2,
            "expert_feed_forward_length": EXPERT_FF, "expert_shared_count": 1, "expert_weights_scale": 2.5,
            "expert_gating_func": 2, "leading_dense_block_count": 1, **more}
    g = Gguf.new(general__architecture=name, **{f"{name}__{k}": v for k, v in keys.items()})
    t = g.tensors
    t["token_embd.weight"], t["output.weight"] = numbers(D, VOCAB, scale=1), numbers(D, VOCAB, scale=0.3)
    t["output_norm.weight"] = numbers(D, scale=0.2, around=1.0)
    for layer in range(LAYERS):
        b = f"blk.{layer}."
        t[b + "attn_norm.weight"] = t[b + norm] = numbers(D, scale=0.2, around=1.0)
        t[b + "attn_q_norm.weight"] = t[b + "attn_k_norm.weight"] = numbers(HEAD, scale=0.2, around=1.0)
        t[b + "attn_output.weight"] = numbers(HEADS * HEAD, D)
        q, k = numbers(D, HEADS * HEAD), numbers(D, KV_HEADS * HEAD)
        t[b + "attn_q.weight"], t[b + "attn_k.weight"], t[b + "attn_v.weight"] = q, k, k
        shared = "" if layer == 0 else "_shexp"
        for part, dims in (("gate", (D, D_FF)), ("up", (D, D_FF)), ("down", (D_FF, D))):
            if not layer:
                t[b + f"ffn_{part}.weight"] = numbers(*dims)
                continue
            dims = tuple(EXPERT_FF if d == D_FF else d for d in dims)
            t[b + f"ffn_{part}{shared}.weight"] = numbers(*dims)
            t[b + f"ffn_{part}_exps.weight"] = numbers(*dims, EXPERTS)
        if layer:
            t[b + "ffn_gate_inp.weight"] = numbers(D, EXPERTS)
            t[b + "exp_probs_b.bias"] = numbers(EXPERTS, scale=0.3)
    return g


def join_heads(g):
    for layer in range(LAYERS):
        parts = [g.tensors.pop(f"blk.{layer}.attn_{part}.weight") for part in "qkv"]
        g.tensors[f"blk.{layer}.attn_qkv.weight"] = ((D, sum(p[0][1] for p in parts)), F32, b"".join(p[2] for p in parts))
    return g


def test_ling(program, tmp_path):
    """Where its experts are of all groups it is GLM 4.5's."""
    files = {"glm": mixture("glm4moe", "post_attention_norm.weight"),
             "all": join_heads(mixture("bailingmoe2", "ffn_norm.weight", expert_group_count=4, expert_group_used_count=4)),
             "wide": join_heads(mixture("bailingmoe2", "ffn_norm.weight", expert_shared_feed_forward_length=EXPERT_FF)),
             "best": join_heads(mixture("bailingmoe2", "ffn_norm.weight", expert_group_count=4, expert_group_used_count=1))}
    found = {}
    for name, g in files.items():
        g.write(tmp_path / f"{name}.gguf")
        found[name] = logits(program, tmp_path / f"{name}.gguf", tmp_path, tokens=TOKENS)
    assert found["glm"] == found["all"] == found["wide"] != found["best"]
    assert max(found["glm"]) > 1


def test_muse_glimmer(program, tmp_path):
    """A file as converters write it gives what the directory does: norms have the 1 in their weights, those of queries
    the scale of scores, and rows of queries and keys that turn together are side by side."""
    folder = os.path.join(TINY_MODELS, "muse-glimmer")
    c = json.loads(open(os.path.join(folder, "config.json")).read())["text_config"]
    keys = {"block_count": c["num_hidden_layers"], "embedding_length": c["hidden_size"],
            "feed_forward_length": c["intermediate_size"], "attention__head_count": c["num_attention_heads"],
            "attention__head_count_kv": c["num_key_value_heads"], "attention__key_length": c["head_dim"],
            "attention__value_length": c["head_dim"], "attention__layer_norm_rms_epsilon": c["rms_norm_eps"],
            "attention__sliding_window": c["sliding_window"], "vocab_size": c["vocab_size"],
            "rope__freq_base": c["rope_parameters"]["rope_theta"], "rope__dimension_count": c["head_dim"],
            "context_length": c["max_position_embeddings"], "logit_scale": c["output_multiplier"],
            "final_logit_softcapping": c["final_logit_softcapping"]}
    g = Gguf.new(general__architecture="muse-glimmer", **{f"muse-glimmer__{k}": v for k, v in keys.items()})
    parts = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
             "self_attn.o_proj": "attn_output", "self_attn.gate_proj": "attn_gate", "mlp.gate_proj": "ffn_gate",
             "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
             "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
             "post_feedforward_layernorm": "post_ffw_norm"}
    whole = {"embed_tokens": "token_embd", "norm": "output_norm", "head": "output"}
    for name, dims, words in hf_tensors(folder):
        if not name.startswith(("model.language_model.", "lm_head")):
            continue
        path = name.removeprefix("model.language_model.").replace("lm_", "").split(".")[:-1]
        full = whole.get(path[0]) or f"blk.{path[1]}.{parts['.'.join(path[2:])]}"
        if "attn_q" in full or "attn_k" in full:
            words = pair_rows(words, dims[0], c["head_dim"])
            norm = c["qk_scale_factor"] if "attn_q" in full else 1.0
            g.tensors[full + "_norm.weight"] = ((c["head_dim"],), F32, array.array("f", [norm] * c["head_dim"]).tobytes())
        if len(dims) == 1:
            values = array.array("f", struct.pack("<%dI" % dims[0], *(w << 16 for w in struct.unpack("<%dH" % dims[0], words))))
            words = array.array("f", [v + (full.startswith("blk")) for v in values]).tobytes()
        g.tensors[full + ".weight"] = (tuple(dims), F32 if len(dims) == 1 else BF16, words)
    g.write(tmp_path / "muse.gguf")
    tokens = os.path.join(folder, "golden/tokens.i32")
    ours, theirs = (logits(program, model, tmp_path, tokens=tokens) for model in (tmp_path / "muse.gguf", folder))
    assert max(abs(a - b) for a, b in zip(ours, theirs)) < 1e-2 and max(theirs) > 1


def test_indexers(program):
    """A model that brings an indexer along chooses by it unless told otherwise; others have none."""
    model = os.path.join(TINY_MODELS, "glm-dsa")
    code, out, err = program("inspect", model, "-c", "512", "--json")
    told = json.loads(out)
    assert code == 0 and told["policy"] == "indexer"
    assert (told["index_heads"], told["index_dim"], told["index_chosen"]) == (12, 24, 80)
    assert b"Indexer       12 heads of 24 choose 80 entries of a layer\n" in program("inspect", model)[1]
    code, out, err = program("bench", "-m", model, "-p", "0", "-n", "4", "-d", "200", "-r", "1")
    assert code == 0 and b"| indexer " in out and b"| infinigen " not in out
    blocks = program("inspect", os.path.join(TINY_MODELS, "minimax-m3"))[1]
    assert b"Indexer       2 heads of 32 choose 5 blocks of 8 entries of each KV head\n" in blocks
    code, out, err = program("inspect", LLAMA, "-c", "512", "--kv-policy", "indexer")
    assert code == 2 and b"brings no indexer along" in err and b"index_" not in program("inspect", LLAMA)[1]
