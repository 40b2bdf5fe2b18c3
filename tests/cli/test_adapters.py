# SPDX-License-Identifier: Apache-2.0
"""Low-rank adapters: a model with them is the model into whose weights they were merged."""
import array
import json
import math
import os
import random
import shutil
import struct

import pytest
from conftest import TINY_MODELS, make_model, one_line
from gguf_file import F32, Gguf

BF16, RANK, ALPHA = 30, 4, 6.0
GPT_OSS, LLAMA = (os.path.join(TINY_MODELS, name) for name in ("gpt-oss", "llama31"))
HEAD = {"general__type": "adapter", "general__architecture": "gpt-oss", "adapter__type": "lora"}
ADAPTED = ["blk.0.attn_q.weight", "blk.0.attn_output.weight", "blk.1.attn_k.weight", "blk.1.ffn_gate_exps.weight",
           "blk.1.ffn_down_exps.weight", "blk.2.ffn_up_exps.weight", "blk.2.ffn_gate_inp.weight", "output.weight"]


@pytest.fixture(scope="module")
def gpt_oss():
    """The tiny model with the weights that are adapted here in F32."""
    if not os.path.exists(GPT_OSS):
        pytest.skip("no tiny models")
    with open(os.path.join(GPT_OSS, "model.gguf"), "rb") as file:
        g = Gguf(file.read())
    for name in ADAPTED:
        dims, kind, data = g.tensors[name]
        if kind == BF16:
            words = struct.unpack("<%dH" % (len(data) // 2), data)
            g.tensors[name] = (dims, F32, struct.pack("<%dI" % len(words), *(word << 16 for word in words)))
    return g


def numbers(n, seed):
    """That BF16 and F16 have, too."""
    rng = random.Random(seed)
    return array.array("f", [rng.choice((-1, 1)) * 2.0 ** rng.randint(-5, -3) for _ in range(n)])


def pack(values, kind):
    if kind == F32:
        return values.tobytes()
    if kind == BF16:
        return struct.pack("<%dH" % len(values), *(word >> 16 for word in array.array("I", values.tobytes())))
    return struct.pack("<%de" % len(values), *values)


@pytest.mark.parametrize("scale", ["5000", "nan", "-inf"])
def test_scales_out_of_range(program, scale):
    for verb in (("run", "-p", "a"), ("serve", "--lora-init-without-apply")):
        status, _, err = program(*verb, "-m", LLAMA, "--lora", f"{LLAMA}/adapter:{scale}")
        assert status == 2 and "must be a number from -1000 to 1000" in one_line(err)


def adapter_of(g, names, seed, kind=F32, rank=RANK, alpha=ALPHA, **head):
    a = Gguf.new(**{**HEAD, **head}, adapter__lora__alpha=alpha)
    for i, name in enumerate(names):
        n_in, n_out, *n = g.tensors[name][0]
        count = n[0] if n else 1
        a.tensors[name + ".lora_a"] = ((n_in, rank, *n), kind,
                                       pack(numbers(n_in * rank * count, f"a{seed}{name}"), kind))
        a.tensors[name + ".lora_b"] = ((rank, n_out, *n), kind,
                                       pack(numbers(rank * n_out * count, f"b{seed}{name}"), kind))
    return a


def merge(g, names, seed, scale, rank=RANK):
    """W += scale * B A, in place."""
    for name in names:
        (n_in, n_out, *n), kind, data = g.tensors[name]
        assert kind == F32
        count, w = n[0] if n else 1, array.array("f", data[:4 * n_in * n_out * (n[0] if n else 1)])
        a, b = numbers(n_in * rank * count, f"a{seed}{name}"), numbers(rank * n_out * count, f"b{seed}{name}")
        for row in range(n_out * count):
            first = row // n_out * rank * n_in
            for k in range(rank):
                factor = scale * b[row * rank + k]
                for i in range(n_in):
                    w[row * n_in + i] += factor * a[first + k * n_in + i]
        g.tensors[name] = (g.tensors[name][0], kind, w.tobytes())


def copy(g):
    other = Gguf.new()
    other.head, other.n_keys, other.tensors = g.head, g.n_keys, dict(g.tensors)
    return other


def logits(program, model, tmp_path, *args, tokens=GPT_OSS + "/golden/tokens.i32"):
    out = tmp_path / "logits"
    status, _, err = program("logits", "-m", model, "--tokens", tokens, "-o", out, *args)
    assert (status, err) == (0, b"")
    values = array.array("f")
    values.frombytes(out.read_bytes())
    return values


def difference(a, b):
    assert len(a) == len(b)
    return max(abs(x - y) for x, y in zip(a, b))


@pytest.mark.parametrize("kind", [F32, BF16, 1])
def test_it_is_as_merged(program, gpt_oss, tmp_path, kind):
    """Attention, experts, router and the output matrix."""
    model, lora, merged = tmp_path / "model.gguf", tmp_path / "lora.gguf", copy(gpt_oss)
    gpt_oss.write(model)
    adapter_of(gpt_oss, ADAPTED, 1, kind).write(lora)
    merge(merged, ADAPTED, 1, 0.25 * ALPHA / RANK)
    merged.write(tmp_path / "merged.gguf")
    plain, wanted = logits(program, model, tmp_path), logits(program, tmp_path / "merged.gguf", tmp_path)
    adapted = logits(program, model, tmp_path, "--lora", f"{lora}:0.25")
    assert difference(plain, wanted) > 0.5
    assert difference(adapted, wanted) < 2e-2
    # Neither threads, nor how a prompt is cut, nor where weights are change a bit.
    for args in (("-t", 3), ("-b", 7), ("--no-mmap",), ("--weights-ram", "1M"), ("--no-repack",)):
        assert logits(program, model, tmp_path, "--lora", f"{lora}:0.25", *args) == adapted, args
    assert logits(program, model, tmp_path, "--lora-scaled", f"{lora}:0") == plain


def test_several(program, gpt_oss, tmp_path):
    """Two are added up, whatever their ranks; by one option or two."""
    model, merged = tmp_path / "model.gguf", copy(gpt_oss)
    names = [ADAPTED[1:5], ADAPTED[:3]]
    gpt_oss.write(model)
    adapter_of(gpt_oss, names[0], 1).write(tmp_path / "1.gguf")
    adapter_of(gpt_oss, names[1], 2, rank=1, alpha=0).write(tmp_path / "a:2")
    merge(merged, names[0], 1, -0.25 * ALPHA / RANK)
    merge(merged, names[1], 2, 0.5, rank=1)  # of which alpha says nothing
    merged.write(tmp_path / "merged.gguf")
    wanted = logits(program, tmp_path / "merged.gguf", tmp_path)
    one = ["--lora", f"{tmp_path}/1.gguf:-0.25,{tmp_path}/a:2:0.5"]
    adapted = logits(program, model, tmp_path, *one)
    assert difference(adapted, wanted) < 2e-2
    assert logits(program, model, tmp_path, "--lora", f"{tmp_path}/1.gguf:-0.25", "--lora",
                  f"{tmp_path}/a:2:0.5") == adapted
    assert difference(logits(program, model, tmp_path, "--lora", f"{tmp_path}/1.gguf:-0.25,{tmp_path}/a:2"), wanted) > .1
    status, out, _ = program("inspect", "-m", model, *one, "--json")
    assert status == 0 and [a["scale"] for a in json.loads(out)["adapters"]] == [-0.25, 0.5]
    status, out, _ = program("inspect", "-m", model, *one)
    assert status == 0 and f"Adapter       {tmp_path}/a:2, 0.5 times".encode() in out


def test_what_is_refused(program, gpt_oss, tmp_path):
    model, lora = tmp_path / "model.gguf", tmp_path / "lora.gguf"
    gpt_oss.write(model)
    name = ADAPTED[0]
    n_in, n_out = gpt_oss.tensors[name][0]

    def refused(change, message, **head):
        a = adapter_of(gpt_oss, [name], 1, **head)
        change(a.tensors)
        a.write(lora)
        status, _, err = program("logits", "-m", model, "--lora", lora, "--tokens", GPT_OSS + "/golden/tokens.i32",
                                 "-o", tmp_path / "out")
        assert status == 1 and message.encode() in err and b"lora.gguf" in err, err

    def put(key, *tensor):
        return lambda tensors: tensors.update({key: tensor})

    a, b = name + ".lora_a", name + ".lora_b"
    floats = bytes(4 * (n_in + n_out) * 8)
    refused(lambda t: t.pop(b), f"tensor '{a}' lacks the other one of its pair")
    refused(lambda t: t.pop(a), f"tensor '{b}' lacks the other one of its pair")
    refused(put(b, (n_out, RANK), F32, floats), f"tensor '{b}' must have 1 times {n_out} rows of {RANK} numbers")
    refused(put(a, (n_in - 1, RANK), F32, floats), f"tensor '{a}' must have 1 times {RANK} rows of {n_in} numbers")
    refused(put(a, (n_in, RANK, 2), F32, floats), f"tensor '{a}' must have 1 times {RANK} rows of {n_in} numbers")
    refused(put(a, (n_in, 9000), F32, bytes(36000 * n_in)), f"tensor '{a}' is of rank 9000, must be 1 to 8192")
    refused(put("token_embd.weight.lora_a", (4, 4), F32, floats), "'token_embd.weight.lora_a' is for no matrix of this")
    refused(put("blk.99.attn_q.weight.lora_a", (4, 4), F32, floats), "'blk.99.attn_q.weight.lora_a' is for no matrix")
    refused(put("blk.0.attn_norm.weight", (4,), F32, floats), "'blk.0.attn_norm.weight' is for no matrix of this")
    refused(lambda t: None, "'general.architecture' is 'llama', must be 'gpt-oss'", general__architecture="llama")
    refused(lambda t: None, "'adapter.type' is 'vera', must be 'lora'", adapter__type="vera")
    refused(lambda t: None, "'adapter.alora.invocation_tokens' is set", adapter__alora__invocation_tokens="x")
    refused(lambda t: None, "'adapter.lora.alpha' is not finite", alpha=float("inf"))

    def asked(*args):
        status, _, err = program("logits", *args, "--tokens", GPT_OSS + "/golden/tokens.i32", "-o", tmp_path / "out")
        assert status
        return err

    adapter_of(gpt_oss, [name], 1).write(lora)
    assert b"'general.type' is 'adapter', not a model" in asked("-m", lora)
    assert b"'general.type' is '', must be 'adapter'" in asked("-m", model, "--lora", model)
    status, _, err = program("serve", "-m", model, "--enable-lora", "--lora-modules", f"mine={lora}")
    assert status == 2 and b"--lora NAME=FILE adds an adapter" in err
    assert b"no such file" in asked("-m", model, "--lora", tmp_path / "none").lower()
    assert b"a name is empty" in asked("-m", model, "--lora", f"{lora},")
    assert b"adapter_config.json" in asked("-m", model, "--lora", tmp_path)
    assert b"is no directory as PEFT writes" in asked("-m", LLAMA, "--lora", lora)


# ---- directories ------------------------------------------------------------------------------------


def write_peft(folder, tensors, **config):
    """Tensors of F32: name -> (rows, columns, values)."""
    folder.mkdir(exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "lora_alpha": ALPHA, **config}))
    header, blob = {}, b""
    for name, (rows, columns, values) in tensors.items():
        data = values.tobytes()
        header[name] = {"dtype": "F32", "shape": [rows, columns], "data_offsets": [len(blob), len(blob) + len(data)]}
        blob += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + blob)


def pair(name, n_out, n_in, seed):
    stem = f"base_model.model.model.layers.{name}.lora_"
    return {stem + "A.weight": (RANK, n_in, numbers(RANK * n_in, f"a{seed}")),
            stem + "B.weight": (n_out, RANK, numbers(n_out * RANK, f"b{seed}"))}


def test_as_peft_has_it(program, tmp_path):
    """tools/make_golden_models.py had PEFT make the adapter and the logits."""
    adapter = os.path.join(LLAMA, "adapter")
    if not os.path.exists(adapter):
        pytest.skip("no tiny models")
    golden = array.array("f")
    with open(os.path.join(LLAMA, "golden/adapter_logits.f32"), "rb") as file:
        golden.frombytes(file.read())
    tokens = os.path.join(LLAMA, "golden/tokens.i32")
    ours = logits(program, LLAMA, tmp_path, "--lora", adapter, tokens=tokens)
    assert difference(ours[-len(golden):], golden) < 3e-2
    plain = logits(program, LLAMA, tmp_path, tokens=tokens)
    assert difference(plain[-len(golden):], golden) > 1


def hf_tensors(folder):
    """Name, dimensions as GGUF has them, and BF16 words of each tensor."""
    with open(os.path.join(folder, "model.safetensors"), "rb") as file:
        data = file.read()
    n, = struct.unpack("<Q", data[:8])
    for name, t in json.loads(data[8:8 + n]).items():
        if name != "__metadata__":
            yield name, t["shape"][::-1], data[8 + n + t["data_offsets"][0]:8 + n + t["data_offsets"][1]]


def pair_rows(words, width, d):
    """Rows of heads of d that turn together come side by side."""
    rows = [words[i * 2 * width:(i + 1) * 2 * width] for i in range(len(words) // (2 * width))]
    return b"".join(rows[r // d * d + r % 2 * d // 2 + r % d // 2] for r in range(len(rows)))


def as_gguf(folder):
    """The tiny Llama as converters write it, but for its tokenizer: rows of queries and keys that turn together are
    side by side."""
    config = json.loads(open(os.path.join(folder, "config.json")).read())
    d, heads = config["head_dim"], {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    rope = config["rope_scaling"]
    g = Gguf.new(general__architecture="llama", llama__block_count=config["num_hidden_layers"],
                 llama__embedding_length=config["hidden_size"], llama__feed_forward_length=config["intermediate_size"],
                 llama__attention__head_count=heads["attn_q"], llama__attention__head_count_kv=heads["attn_k"],
                 llama__attention__key_length=d, llama__attention__value_length=d,
                 llama__attention__layer_norm_rms_epsilon=config["rms_norm_eps"], llama__vocab_size=config["vocab_size"],
                 llama__rope__freq_base=config["rope_theta"], llama__rope__dimension_count=d,
                 llama__context_length=config["max_position_embeddings"])
    parts = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
             "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
             "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
    for name, dims, words in hf_tensors(folder):
        layer, part = name.split(".")[2], ".".join(name.split(".")[3:-1])
        full = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}.get(name)
        full = full or f"blk.{layer}.{parts[part]}.weight"
        if parts.get(part) in heads:
            words = pair_rows(words, dims[0], d)
        if len(dims) == 1:
            words = struct.pack("<%dI" % dims[0], *(word << 16 for word in struct.unpack("<%dH" % dims[0], words)))
        g.tensors[full] = (dims, F32 if len(dims) == 1 else BF16, words)
    turns = [config["rope_theta"] ** (-2 * i / d) for i in range(d // 2)]
    factors = []
    for f in turns:  # Llama 3's
        wave, original = 2 * math.pi / f, rope["original_max_position_embeddings"]
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        smooth = (original / wave - low) / (high - low)
        factors.append(1 if wave < original / high else rope["factor"] if wave > original / low else
                       1 / ((1 - smooth) / rope["factor"] + smooth))
    g.tensors["rope_freqs.weight"] = ((d // 2,), F32, struct.pack("<%df" % (d // 2), *factors))
    return g


def test_a_directory_beside_a_gguf_model(program, tmp_path):
    """What PEFT says of a Hugging Face directory is said of a GGUF file of that model, too."""
    if not os.path.exists(LLAMA):
        pytest.skip("no tiny models")
    model, tokens = tmp_path / "model.gguf", os.path.join(LLAMA, "golden/tokens.i32")
    as_gguf(LLAMA).write(model)
    for adapter in ([], ["--lora", os.path.join(LLAMA, "adapter")]):
        ours = logits(program, model, tmp_path, *adapter, tokens=tokens)
        assert difference(ours, logits(program, LLAMA, tmp_path, *adapter, tokens=tokens)) < 3e-2
    write_peft(tmp_path / "peft", pair("0.self_attn.q_norm", 192, 192, 1))
    status, _, err = program("inspect", "-m", model, "--lora", tmp_path / "peft")
    assert status == 1 and b"q_norm.lora_A.weight' is for no matrix of this model that can be adapted" in err


def test_what_is_refused_of_directories(program, tmp_path):
    def refused(message, **config):
        write_peft(tmp_path / "peft", pair("0.self_attn.q_proj", 192, 192, 1), **config)
        status, _, err = program("logits", "-m", LLAMA, "--lora", tmp_path / "peft", "--tokens",
                                 LLAMA + "/golden/tokens.i32", "-o", tmp_path / "out")
        assert (status, err) == (0, b"") if not message else status == 1 and message in err, err

    if not os.path.exists(LLAMA):
        pytest.skip("no tiny models")
    refused(b"")
    refused(b"", use_dora=False, alpha_pattern={}, rank_pattern={"q_proj": 4}, alora_invocation_tokens=None)
    refused(b"'peft_type' is 'IA3', must be 'LORA'", peft_type="IA3")
    refused(b"'use_dora' is set", use_dora=True)
    refused(b"'alpha_pattern' is set", alpha_pattern={"q_proj": 3})
    refused(b"'fan_in_fan_out' is set", fan_in_fan_out=True)
    refused(b"'init_lora_weights' is 'pissa_niter_4', which", init_lora_weights="pissa_niter_4")
    refused(b"", init_lora_weights="gaussian")
    refused(b"'lora_alpha' must be a number", lora_alpha="8")
    (tmp_path / "peft" / "adapter_model.safetensors").unlink()
    status, _, err = program("inspect", "-m", LLAMA, "--lora", tmp_path / "peft")
    assert status == 1


def test_every_policy_has_it(program, tmp_path):
    """Also the one that guesses by a part of the weights: where everything is read, all say the same."""
    if not os.path.exists(LLAMA):
        pytest.skip("no tiny models")
    model = make_model(tmp_path / "model")
    args = ["run", "-m", model, "--raw", "-p", "a long text " * 30, "-n", 12, "--temp", 0, "--kv-budget", "100%", "--lora",
            os.path.join(LLAMA, "adapter")]
    full = program(*args, "--kv-policy", "full")
    assert full[0] == 0 and len(full[1]) > 10
    for policy in "infinigen", "infinigen-osdi24", "quest", "window":
        assert program(*args, "--kv-policy", policy)[:2] == full[:2], policy


def test_stored_tokens_are_not_shared_with_others(program, tmp_path):
    """What an adapter computed is of a model of its own, also where it is stored."""
    model = make_model(tmp_path / "model")
    write_peft(tmp_path / "peft", {**pair("1.self_attn.k_proj", 64, 192, 1), **pair("1.mlp.up_proj", 384, 192, 2)},
               use_rslora=True)
    args = ["run", "-m", model, "--raw", "-p", "a long text " * 100, "-n", 8, "--temp", 0, "-v"]
    lora = ["--lora", tmp_path / "peft"]
    store = ["--kv-store", tmp_path / "store"]
    alone = [program(*args, *more)[1] for more in ([], lora)]
    assert alone[0] != alone[1]
    for _ in range(2):
        assert [program(*args, *store, *more)[1] for more in ([], lora)] == alone
    half = [*lora[:1], f"{lora[1]}:0.5"]
    assert program(*args, *store, *half)[1] == program(*args, *half)[1]


def test_names_of_files(program, tmp_path):
    """What is a file is no name, and what is a name is no file."""
    if not os.path.exists(LLAMA):
        pytest.skip("no tiny models")
    for name in ("a", "r:2", "x=y"):
        shutil.copytree(os.path.join(LLAMA, "adapter"), tmp_path / name)
    os.chdir(tmp_path)
    for lora, name, path, scale in (("a", "a", "a", 1), ("a:0.5", "a", "a", 0.5), ("n=a:0.5", "n", "a", 0.5),
                                    ("r:2", "r:2", "r:2", 1), ("n=r:2", "n", "r:2", 1), ("n=r:2:3", "n", "r:2", 3),
                                    ("x=y", "x=y", "x=y", 1), ("x=y:2", "x=y", "x=y", 2), ("n=x=y", "n", "x=y", 1),
                                    ("./a/", "a", "./a/", 1)):
        status, out, err = program("inspect", "-m", os.path.abspath(LLAMA), "--lora", lora, "--json")
        assert status == 0, err
        assert json.loads(out)["adapters"] == [{"name": name, "path": path, "scale": scale}], lora
    for scale in ("1e300", "1001", "-2000", "nan"):
        status, _, err = program("inspect", "-m", LLAMA, "--lora", f"a:{scale}")
        assert status == 2 and b"the scale of an adapter must be a number from -1000 to 1000" in err
    status, _, err = program("inspect", "-m", LLAMA, "--lora", ",".join(["a"] * 65))
    assert status != 0 and b"at most 64 adapters" in err


def test_one_that_nobody_takes(program, tmp_path):
    """With a scale of 0 the model is the model: its stored prompts and sketches serve."""
    if not os.path.exists(LLAMA):
        pytest.skip("no tiny models")
    model, adapter = make_model(tmp_path / "model"), os.path.join(LLAMA, "adapter")
    text = tmp_path / "text"
    text.write_text("a long text of many words " * 200)
    status, _, err = program("prepare", "-m", model, "--text", text, "-c", 512, "-o", tmp_path / "sketch")
    assert status == 0, err
    args = ["run", "-m", model, "--raw", "-p", "a long text " * 30, "-n", 8, "--temp", 0, "-c", 512, "--kv-sketch",
            tmp_path / "sketch", "--kv-store", tmp_path / "store", "--json"]
    status, first, err = program(*args)
    assert status == 0, err
    status, second, err = program(*args, "--lora", f"{adapter}:0")
    assert status == 0, err
    first, second = (json.loads(out) for out in (first, second))
    assert first["text"] == second["text"] and second["tokens_stored"] > 0 == first["tokens_stored"]
    status, _, err = program(*args, "--lora", adapter)
    assert status == 2 and b"prepared for another model" in err
