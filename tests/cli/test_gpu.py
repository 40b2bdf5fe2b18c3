# SPDX-License-Identifier: Apache-2.0
"""--device cuda as a user has it, with the GPU that the tests stand in for (tests/device/cuda_on_cpu.h)."""
import json
import os
import subprocess
import sys

import pytest

from conftest import Program, make_model, one_line, words


@pytest.fixture
def gpu(program, tmp_path):
    """The program on that GPU."""
    path = os.path.join(os.path.dirname(program.path), "tests/infinigen-on-fibers")
    if not os.path.exists(path):
        pytest.skip("this build has no stand-in for a GPU")
    on_fibers = Program(path, str(tmp_path))
    return lambda verb, *flags: on_fibers(verb, *flags, "--device", "cuda")


@pytest.fixture
def small(tmp_path):
    """A tiny model with a tokenizer, and a text of 200 tokens."""
    (tmp_path / "text").write_text(words(200, 3))
    return str(make_model(tmp_path / "model"))


def test_policies_are_those_of_the_cpu(program, gpu, small, tmp_path):
    flags = ["perplexity", "-m", small, "-f", str(tmp_path / "text"), "-c", "96", "--dense-prefix", "80", "--chunks", "1", "--json",
             "--kv-policy", "full,infinigen,quest,h2o,window,infinigen-osdi24,oracle", "--kv-budget", "30%"]
    here, there = (json.loads(p(*flags)[1])["runs"] for p in (program, gpu))
    assert len(here) == len(there) == 7
    for a, b in zip(here, there):
        assert a["policy"] == b["policy"] and abs(a["selected_share"] - b["selected_share"]) < 0.01
        assert abs(a["perplexity"] / b["perplexity"] - 1) < 0.01
        assert abs(a.get("kl", 0) - b.get("kl", 0)) < 0.01


def test_nothing_changes_a_text(gpu, small, tmp_path):
    """Where weights, keys and values lie, and what is stored."""
    run = ["run", "-m", small, "--raw", "-f", str(tmp_path / "text"), "-c", "256", "-n", "4", "--temp", "0", "-v"]
    store = ["--kv-store", str(tmp_path / "store")]
    status, text, err = gpu(*run)
    assert status == 0 and text and b"came from RAM" in err
    for flags in (["--kv-vram", "0"], ["--kv-vram", "24K"], ["--kv-map"], ["--weights-vram", "1600K"], store, store):
        assert gpu(*run, *flags)[:2] == (0, text), flags
    assert b"were stored" in gpu(*run, *store)[2]
    for flags in (["--kv-map", "--kv-ram", "1M"], ["--weights-ram", "2M"]):
        status, out, err = gpu(*run, *flags)
        assert status != 0 and out == b"" and one_line(err.splitlines(True)[-1])


def test_bench_counts_what_comes_from_ram(gpu, small):
    flags = ["bench", "-m", small, "-p", "8", "-n", "3", "-d", "48", "-r", "1", "-b", "2", "--kv-policy", "full", "--breakdown",
             "-o", "json"]
    read = {}
    for vram in ("0", "auto"):
        rows = json.loads(gpu(*flags, "--kv-vram", vram)[1])
        step, = (r["step"] for r in rows if r["n_gen"])
        assert step["seconds"] == pytest.approx(sum(step["parts"].values()), rel=1e-3)
        read[vram] = step["vram_read_bytes"]
    assert 0 <= read["auto"] < read["0"] / 2  # of what the steps read all may be there by then


def test_what_a_gpu_measured_is_told_without_what_failed(program, tmp_path):
    """The table of tools/check-gpu, of runs one of which was cut off."""
    row = {"device": "cuda:0", "policy": "full", "n_prompt": 0, "n_gen": 64, "n_depth": 8, "batch": 1, "step": None,
           "weight_bytes_per_step": None}
    for name, speed in (("vram-infinigen-0.25-auto", 30.0), ("vram-full-0-auto", 20.0)):
        (tmp_path / f"{name}.json").write_text(json.dumps([{**row, "median_ts": speed}]))
    (tmp_path / "vram-full-1-late.json").write_text("[{")
    (tmp_path / "ppl-full-0.json").write_text("{}")
    bench = os.path.join(os.path.dirname(program.path), "tests/bench-gpu-on-fibers")
    if not os.path.exists(bench):
        pytest.skip("this build has no stand-in for a GPU")
    bounds = subprocess.run([bench, "1"], capture_output=True, check=True)
    (tmp_path / "bounds.json").write_bytes(bounds.stdout)
    tool = os.path.join(os.path.dirname(__file__), "../../tools/gpu_table.py")
    done = subprocess.run([sys.executable, tool, str(tmp_path)], capture_output=True, text=True, check=True)
    assert "1.50 times as fast as full, all fetched" in done.stdout and "is not JSON" in done.stdout
    assert done.stdout.count("tokens/s") == 2 and "of the bus" in done.stdout
