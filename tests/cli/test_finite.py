# SPDX-License-Identifier: Apache-2.0
"""Models with numbers that are not finite: every verb ends with one line that says where, and counts nothing of them.

The model is a tiny one with a tokenizer of single bytes, whose input embedding of the letter q, or another weight, is
broken.
"""
import json
import struct

import pytest
from conftest import one_line
from conftest import make_model, words

NAN = b"\xc0\x7f"  # 16-bit brain floats
HUGE = b"\x62\x7f"  # 3e38
LARGE = b"\xf0\x7c"  # 1e37
POLICIES = ("infinigen", "full", "infinigen-osdi24", "quest", "h2o", "snapkv", "window", "oracle")


def break_weight(folder, tensor, value, *rows, column=3):
    """One element of some rows, or of the first; returns the folder."""
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    n, = struct.unpack_from("<Q", data)
    info = json.loads(data[8:8 + n])[tensor]
    assert info["dtype"] == "BF16"
    for row in rows or (0,):
        at = 8 + n + info["data_offsets"][0] + 2 * (row * info["shape"][-1] + column)
        data[at:at + 2] = value
    path.write_bytes(data)
    return folder


def token(folder, letter):
    return json.loads((folder / "vocab.json").read_text())[letter]


@pytest.fixture
def no_q(tmp_path):
    """A model that the letter q breaks, and a text without that letter."""
    folder = make_model(tmp_path / "model", "mistral")
    break_weight(folder, "model.embed_tokens.weight", NAN, token(folder, "q"))
    return folder, words(600, 4).replace("q", "o")


def fails(result, *said):
    status, out, err = result
    text = one_line(err)
    assert status == 1 and all(part in text for part in said), text
    return out


@pytest.mark.parametrize("tensor, place", (
    ("self_attn.q_proj", "in the queries of layer 1"), ("self_attn.k_proj", "in the keys of layer 1"),
    ("self_attn.v_proj", "in the values of layer 1"), ("self_attn.o_proj", "after the attention of layer 1"),
    ("mlp.down_proj", "after the feed-forward part of layer 1"),
))
@pytest.mark.parametrize("flags", ([], ["--kv-type", "q8"], ["--kv-type", "q4"], ["--cpu", "scalar"]))
def test_run(program, tmp_path, tensor, place, flags):
    folder = break_weight(make_model(tmp_path / "model"), f"model.layers.1.{tensor}.weight", NAN)
    result = program("run", "-m", folder, "--raw", "-p", "the text", "-n", "4", *flags)
    assert fails(result, "not finite", f"nan {place} at position 0") == b""


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("kv_type", ("f16", "q4"))
def test_run_ends_where_it_breaks(program, tmp_path, policy, kv_type):
    """The text up to there is that of the whole model. Tokens that are no letters break it."""
    folder = make_model(tmp_path / "model", "mistral")
    args = ["run", "-m", folder, "--raw", "-p", words(120, 3), "-n", "60", "--temp", "1", "--min-p", "0", "--seed", "3",
            "--kv-policy", policy, "--kv-type", kv_type, "--ignore-eos"]
    whole = program(*args)[1]
    break_weight(folder, "model.embed_tokens.weight", NAN, *range(400, 512))
    out = fails(program(*args), "not finite: nan in the embedding of token 4")
    assert len(out) > 5 and out.endswith(b">") and whole.startswith(out) and out != whole


def test_overflow(program, tmp_path):
    """Of finite weights."""
    folder = break_weight(make_model(tmp_path / "model"), "model.layers.0.mlp.down_proj.weight", HUGE)
    fails(program("run", "-m", folder, "--raw", "-p", "the text", "-n", "4"), "the model's numbers are ", "position 0")


def test_perplexity(program, no_q, tmp_path):
    folder, text = no_q
    (tmp_path / "text").write_text(text[:300] + "q" + text[:200])
    for flags in ([], ["--dense-prefix", "32"]):
        args = ["perplexity", "-m", folder, "-f", tmp_path / "text", "-c", "100", *flags]
        whole = fails(program(*args), "not finite", "in the embedding of token")
        assert b"Estimate after 3 of 5 chunks: PPL = " in whole and b"nan" not in whole
        report = json.loads(fails(program(*args, "--json"), "not finite"))
        assert report["failed"] is True and len(report["chunks"]) == 3 and report["perplexity"] > 1
    args = ["perplexity", "-m", folder, "-f", tmp_path / "text", "-c", "100", "--dense-prefix", "32", "--kv-policy",
            "full,infinigen,h2o", "--kv-budget", "20%"]
    assert b"After 3 of 5 chunks." in fails(program(*args), "not finite")
    report = json.loads(fails(program(*args, "--json"), "not finite"))
    assert report["failed"] is True and [len(run["chunks"]) for run in report["runs"]] == [3, 3, 3]


def test_perplexity_beyond_all_numbers(program, tmp_path):
    """Finite logits, of which there is no finite perplexity."""
    folder = make_model(tmp_path / "model", "mistral")
    break_weight(folder, "lm_head.weight", LARGE, 500)
    (tmp_path / "text").write_text(words(300, 4))
    args = ["perplexity", "-m", folder, "-f", tmp_path / "text", "-c", "100", "--json"]
    for flags in ([], ["--dense-prefix", "32"]):
        assert fails(program(*args, *flags), "the perplexity is not finite") == b""


def test_eval(program, no_q, tmp_path):
    folder, text = no_q
    rows = [{"query": text[:80], "choices": [" yes", " no"], "answer": 0} for _ in range(2)]
    args = ["eval", "-m", folder, "--task", tmp_path / "task.jsonl", "-o", tmp_path / "answers", "--json"]
    for broken in ({"query": "q" + text[:80]}, {"choices": [" yes", " quite"]}):
        task = [*rows, {**rows[0], **broken}, rows[0]]
        (tmp_path / "task.jsonl").write_text("".join(json.dumps(row) + "\n" for row in task))
        for flags in ([], ["--kv-policy", "full,infinigen"]):
            report = json.loads(fails(program(*args, *flags), "not finite", "in the embedding of token"))
            assert report["questions"] == 2 and report["failed"] is True
            assert len((tmp_path / "answers").read_text().splitlines()) == 2 * (2 if flags else 1)
    needle = {"prompt": text[:50] + "q", "answer": "no"}
    (tmp_path / "task.jsonl").write_text(json.dumps(needle) + "\n")
    assert fails(program(*args), "not finite") == b""


def test_bench(program, no_q, tmp_path):
    folder, text = no_q
    (tmp_path / "text").write_text(text[:40] + "q" + text[:100])
    args = ["bench", "-m", folder, "-f", tmp_path / "text", "-r", "1", "-n", "0", "-o", "json"]
    rows = json.loads(fails(program(*args, "-p", "16,60"), "not finite"))
    assert [row["n_prompt"] for row in rows] == [16]
    assert fails(program(*args, "-p", "0", "-n", "20", "-d", "30"), "not finite") == b""


def test_logits_and_prepare(program, no_q, tmp_path):
    folder, text = no_q
    (tmp_path / "ids").write_bytes(struct.pack("<3i", 5, token(folder, "q"), 7))
    out = tmp_path / "out"
    fails(program("logits", "-m", folder, "--tokens", tmp_path / "ids", "-o", out), "at position 1")
    (tmp_path / "text").write_text(text[:300] + "q")
    fails(program("prepare", "-m", folder, "-f", tmp_path / "text", "-o", out), "at position 300")
    assert not out.exists()
