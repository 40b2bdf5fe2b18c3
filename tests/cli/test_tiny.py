# SPDX-License-Identifier: Apache-2.0
"""Verbs that need weights but no tokenizer, on a tiny model of the golden tests."""
import array
import csv
import io
import json
import os
import re
import shutil
import struct

import pytest
from conftest import TINY_MODELS, one_line


def read_floats(path):
    values = array.array("f")
    with open(path, "rb") as f:
        values.frombytes(f.read())
    return values


def test_logits(program, tiny, tmp_path):
    out_file = tmp_path / "logits.f32"
    status, out, err = program("logits", "-m", tiny, "--tokens", tiny + "/golden/tokens.i32", "-o", out_file)
    assert (status, out, err) == (0, b"", b"")
    ours, golden = read_floats(out_file), read_floats(tiny + "/golden/logits.f32")
    n_tokens = os.path.getsize(tiny + "/golden/tokens.i32") // 4
    assert len(ours) % n_tokens == 0
    # The golden rows are those of the last tokens.
    assert max(abs(a - b) for a, b in zip(ours[-len(golden):], golden)) < 3e-2
    # In small steps, by another spelling, and to standard output: the same shape.
    status, out, _ = program("logits", tiny, f"--tokens={tiny}/golden/tokens.i32", "-o-", "-b", "7")
    assert status == 0 and len(out) == 4 * len(ours)


@pytest.mark.parametrize("tokens, message", [
    (b"", "not a list of 32-bit"),
    (b"\1\0\0", "not a list of 32-bit"),
    (struct.pack("<ii", 1, -1), "token 1 is -1"),
    (struct.pack("<i", 1 << 30), "token 0 is 1073741824"),
])
def test_logits_bad_tokens(program, tiny, tmp_path, tokens, message):
    (tmp_path / "tokens").write_bytes(tokens)
    status, _, err = program("logits", "-m", tiny, "--tokens", tmp_path / "tokens", "-o", tmp_path / "out")
    assert status == 1 and message in one_line(err)
    assert not (tmp_path / "out").exists()


def test_logits_unwritable(program, tiny):
    for path in ("/no/such/folder/x", "/dev/full"):
        status, _, err = program("logits", "-m", tiny, "--tokens", tiny + "/golden/tokens.i32", "-o", path)
        assert status == 1 and path in one_line(err)


def test_inspect(program, tiny):
    status, out, err = program("inspect", tiny, "-c", "100")
    assert status == 0 and err == b""
    assert "context of 100 tokens" in out.decode()
    status, out, _ = program("inspect", "-m", tiny, "-c", "100", "--json", "--tensors")
    report = json.loads(out)
    assert report["context"] == 100
    memory = report["memory"]
    assert memory["total"] >= memory["weights"] + memory["kv"] + memory["sketch"]
    assert sum(t["tensors"] for t in report["tensor_types"].values()) == len(report["tensors"])
    larger = json.loads(program("inspect", "-m", tiny, "-c", "1000", "--json")[1])
    assert larger["memory"]["kv"] > memory["kv"]
    dense = json.loads(program("inspect", "-m", tiny, "-c", "100", "--json", "--kv-policy", "full")[1])
    assert dense["memory"]["sketch"] == 0 and dense["policy"] == "full"


def gguf_text(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def foreign_gguf(architecture="gemma9"):
    """Well-formed, of an architecture and a type that are not known here."""
    tensors = (("token_embd.weight", 0, (8, 6), 192), ("blk.0.experts", 22, (256, 2), 164))
    data = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), 2)
    data += gguf_text("general.architecture") + struct.pack("<I", 8) + gguf_text(architecture)
    data += gguf_text("gemma9.block_count") + struct.pack("<II", 4, 1)
    offset = 0
    for name, kind, dims, size in tensors:
        data += gguf_text(name) + struct.pack("<IQQIQ", 2, *dims, kind, offset)
        offset += (size + 31) // 32 * 32
    return data + b"\0" * (-len(data) % 32) + b"\0" * offset


def test_inspect_shows_what_cannot_be_run(program, tiny, tmp_path):
    (tmp_path / "other.gguf").write_bytes(foreign_gguf())
    status, out, err = program("inspect", tmp_path / "other.gguf", "--tensors")
    assert (status, err) == (0, b"")
    for wanted in ("gemma9", "architecture 'gemma9' is not supported", "gemma9.block_count", "blk.0.experts", "IQ2_S"):
        assert wanted in out.decode(), wanted
    assert "Memory" not in out.decode()
    report = json.loads(program("inspect", tmp_path / "other.gguf", "--json", "--tensors")[1])
    assert report["architecture"] == "gemma9" and "'gemma9' is not supported" in report["unsupported"]
    assert report["n_params"] == 48 + 512 and report["metadata"]["gemma9.block_count"] == "1"
    assert report["tensors"][1] == {"name": "blk.0.experts", "type": "IQ2_S", "dims": [256, 2], "bytes": 164}
    assert "memory" not in report and "policy" not in report
    status, _, err = program("run", "-m", tmp_path / "other.gguf", "-p", "x")
    assert status == 1 and "'gemma9' is not supported" in one_line(err)

    (tmp_path / "other.gguf").write_bytes(foreign_gguf("a\033[2J\u009bb"))
    assert json.loads(program("inspect", tmp_path / "other.gguf", "--json")[1])["architecture"] == "a?[2J??b"

    shutil.copytree(tiny, tmp_path / "model")
    config = json.loads((tmp_path / "model/config.json").read_text())
    (tmp_path / "model/config.json").write_text(json.dumps({**config, "model_type": "gemma9", "architectures": ["Gemma9"]}))
    report = json.loads(program("inspect", tmp_path / "model", "--json")[1])
    assert "gemma9" in report["unsupported"] and report["tensor_types"] and "unsupported" not in json.loads(
        program("inspect", tiny, "--json")[1])


def test_text_needs_a_tokenizer(program, tiny):
    for args in (["run", "--raw", "-p", "x"], ["tokenize", "-p", "x"], ["chat"]):
        status, out, err = program(*args, "-m", tiny)
        assert status == 1 and out == b""
        one_line(err)


BENCH = ["bench", "-p", "16", "-n", "4", "-d", "0,32", "-b", "1,3", "-r", "3", "--kv-policy", "full,infinigen"]


def test_bench_json(program, tiny):
    status, out, err = program(*BENCH, "-m", tiny, "-o", "json", "-t", "1", "--kv-budget", "8")
    assert (status, err) == (0, b"")
    rows = json.loads(out)
    assert len(rows) == 2 * 2 * (1 + 2)
    for row in rows:
        assert row["n_threads"] == 1 and row["n_depth"] in (0, 32) and row["policy"] in ("full", "infinigen")
        assert len(row["samples_ns"]) == len(row["samples_ts"]) == 3
        assert bool(row["n_prompt"]) != bool(row["n_gen"])
        tokens = row["n_prompt"] or row["n_gen"] * row["batch"]
        assert row["samples_ts"][0] == pytest.approx(tokens / row["samples_ns"][0] * 1e9, rel=1e-3)
        assert row["avg_ts"] == pytest.approx(sum(row["samples_ts"]) / 3, rel=1e-6)
        assert row["median_ts"] == pytest.approx(sorted(row["samples_ts"])[1], rel=1e-6)
        assert row["peak_rss"] > 0 and row["model_n_params"] > 0
        assert (row["selected_share"] is not None) == (row["gb_per_s"] is not None) == bool(row["n_gen"])
        if row["policy"] == "full" and row["n_gen"]:
            assert row["selected_share"] == 1
    assert {r["batch"] for r in rows if r["n_gen"]} == {1, 3}


def test_bench_md_and_csv(program, tiny):
    status, out, _ = program(*BENCH, "-m", tiny)
    lines = out.decode().splitlines()
    assert status == 0 and len(lines) == 2 + 12
    assert len({line.count("|") for line in lines}) == 1 and len({len(line) for line in lines}) == 1
    assert re.search(r"\| pp16 ", lines[2]) and "tg4 @ d32" in out.decode()
    status, out, _ = program(*BENCH, "-m", tiny, "-o", "csv")
    rows = list(csv.DictReader(io.StringIO(out.decode())))
    assert len(rows) == 12 and float(rows[0]["avg_ts"]) > 0 and rows[0]["model_filename"] == tiny


def test_cpu_levels(program, tiny):
    for level in ("scalar", "avx2"):
        status, out, err = program("bench", "-m", tiny, "-p", "4", "-n", "0", "-r", "1", "-o", "json", "--cpu", level)
        if status == 0:
            assert json.loads(out)[0]["cpu"] in (level, "scalar")
        out = program("bench", "-m", tiny, "-p", "4", "-n", "0", "-r", "1", "-o", "json", env={"IG_CPU_MASK": level})[1]
        assert json.loads(out)[0]["cpu"] in (level, "scalar")


def test_log_is_asked_for(program, tiny):
    assert program("inspect", tiny)[2] == b""
    assert b"infinigen: " in program("inspect", tiny, env={"IG_LOG": "info"})[2]
    assert b"infinigen: " in program("inspect", tiny, "-v")[2]


def test_broken_directory(program, tiny, tmp_path):
    shutil.copytree(tiny, tmp_path / "model")
    os.truncate(tmp_path / "model" / "model.safetensors", 1000)
    status, out, err = program("inspect", tmp_path / "model")
    assert status == 1 and out == b"" and "model.safetensors" in one_line(err)


def test_inspect_counts_what_is_used(program):
    """What sees pictures is listed, but not counted, and does not stay in memory where the file is copied."""
    model = os.path.join(TINY_MODELS, "qwen3-vl")
    mapped, copied = (json.loads(program("inspect", model, "--json", "--tensors", *how)[1]) for how in ([], ["--no-mmap"]))
    unused = [t["bytes"] for t in mapped["tensors"] if "visual" in t["name"]]
    assert unused and all(t["used"] == ("visual" not in t["name"]) for t in mapped["tensors"])
    counted = mapped["tensor_types"]["BF16"]
    assert counted["tensors"] == len(mapped["tensors"]) - len(unused) and counted["bytes"] == 2 * mapped["n_params"]
    size = os.path.getsize(os.path.join(model, "model.safetensors"))
    assert copied["memory"]["private"] - mapped["memory"]["private"] == size - sum(unused)
    assert program("inspect", model, "--tensors")[1].count(b"  not used\n") == len(unused)
