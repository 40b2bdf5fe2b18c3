# SPDX-License-Identifier: Apache-2.0
"""`infinigen bench` with a disk tier and with the tokens of a text, on a tiny model whose tokens are bytes."""
import csv
import io
import json
import os
import re
import subprocess

import pytest
from conftest import one_line
from conftest import TINY_MODELS, make_model, words

DEPTH, STEPS = 1500, 16
CONTEXT = DEPTH + STEPS  # of a sequence
THREADS = 2


@pytest.fixture(autouse=True)
def no_warnings(program):
    """What does nothing in some of the runs is said, and is not what is tested here."""
    program.env["IG_LOG"] = "error"


@pytest.fixture
def args(program, tmp_path):
    (tmp_path / "text").write_text(words(3 * CONTEXT, 3))
    return ["bench", "-m", make_model(tmp_path / "model"), "-t", THREADS, "-p", "0", "-n", STEPS, "-d", DEPTH, "-r", "1"]


def least_ram(program, args, tmp_path):
    """Flags for as little RAM as can be."""
    (tmp_path / "kv").mkdir(exist_ok=True)
    flags = ["--kv-disk", "1G", "--kv-disk-path", tmp_path / "kv", "--kv-ram"]
    return [*flags, re.search(r"at least (\d+)", one_line(program(*args, *flags, "1K")[2])).group(1)]


@pytest.fixture
def disk(program, args, tmp_path):
    return least_ram(program, args, tmp_path)


def measure(program, *args):
    status, out, err = program(*args, "-o", "json")
    assert (status, err) == (0, b"")
    return json.loads(out)


def test_what_the_disk_costs(program, args, tmp_path):
    """The sizes are those of a memory that the sequences of a batch share."""
    args = [*args, "-f", tmp_path / "text", "-p", "8", "--kv-policy", "full,infinigen", "--kv-budget", "32", "-b", "1,2"]
    rows = measure(program, *args, *least_ram(program, args, tmp_path))
    assert [r["n_gen"] for r in rows] == [0, 16, 16] * 2
    assert all(r["read_bytes_per_step"] is r["stall_share"] is None for r in rows if not r["n_gen"])
    assert all(r["kv_on"] == "disk" for r in rows)
    full, full_2, sparse, sparse_2 = (r for r in rows if r["n_gen"])
    assert 0 < sparse["read_bytes_per_step"] < full["read_bytes_per_step"]
    assert full_2["read_bytes_per_step"] > 2 * full["read_bytes_per_step"]  # one has the room of two
    assert sparse_2["read_bytes_per_step"] > sparse["read_bytes_per_step"]
    assert all(0 < r["stall_share"] < 1 for r in (full, full_2))
    in_ram = measure(program, *args)
    assert all(r["read_bytes_per_step"] is r["stall_share"] is None for r in in_ram)


def test_columns(program, args, disk, tmp_path):
    args = [*args, "-p", "8", "--kv-policy", "full"]
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in program(*args, *disk)[1].decode().splitlines()]
    assert lines[0][-2:] == ["read/step", "stalled"] and {len(line) for line in lines} == {14}
    assert lines[2][-2:] == ["", ""]
    assert re.fullmatch(r"\d+\.\d\d MB", lines[3][-2]) and re.fullmatch(r"\d+\.\d %", lines[3][-1])
    assert b"stalled" not in program(*args)[1]
    assert b"stalled" not in program(*args, "--kv-map", "--kv-ram", "1G", "--kv-disk-path", tmp_path)[1]  # the system reads
    for flags, has_disk in ((disk, True), ([], False)):
        prompt, steps = csv.DictReader(io.StringIO(program(*args, *flags, "-o", "csv")[1].decode()))
        assert prompt["read_bytes_per_step"] == prompt["stall_share"] == ""
        assert (steps["read_bytes_per_step"] != "") == (steps["stall_share"] != "") == has_disk


def test_the_text_is_what_is_computed(program, args, tmp_path):
    """Steps follow the text, as those of `perplexity` do."""
    flags = ["-f", tmp_path / "text", "--kv-policy", "infinigen", "--kv-budget", "60%", "--kv-inertia", "0", "--kv-mass",
             "0.3"]
    perplexity = ["perplexity", *args[1:5], *flags, "-c", CONTEXT + 1, "--dense-prefix", DEPTH, "--chunks", "1", "--json"]
    text, = measure(program, *args, *flags)
    scored = json.loads(program(*perplexity)[1])["kv"]["selected_share"]
    random, = measure(program, *args, *flags[2:])
    assert text["selected_share"] == pytest.approx(scored, rel=1e-6) != random["selected_share"]
    assert text["selected_share"] == measure(program, *args, "-b", "2", *flags)[0]["selected_share"]
    again = program(*args, *flags[2:], "-o", "json", "-f", "-", stdin=(tmp_path / "text").read_bytes())
    assert again[0] == 0 and json.loads(again[1])[0]["selected_share"] == text["selected_share"]


def test_random_tokens_are_the_same_for_all(program, args):
    """A repetition, and a policy after others, decodes what the first one did."""
    flags = ["--kv-budget", "60%", "--kv-inertia", "0", "--kv-mass", "0.3", "--kv-policy"]
    alone, = measure(program, *args, *flags, "infinigen")
    again = measure(program, *args, "-r", "2", *flags, "full,infinigen")[1]
    assert again["selected_share"] == alone["selected_share"]
    assert again["step"]["entries_used"] == alone["step"]["entries_used"]


def test_a_text_that_is_too_short(program, args, tmp_path):
    for n, ok in ((CONTEXT - 1, False), (CONTEXT, True)):
        (tmp_path / "text").write_text(words(n, 4))
        status, out, err = program(*args, "-f", tmp_path / "text", "-b", "2")
        assert (status == 0 and err == b"") if ok else (status == 1 and out == b"")
        if not ok:
            assert f"text: {n} tokens are less than the {CONTEXT} that -d, -p and -n need" in one_line(err)
    status, out, err = program(*args, "-f", tmp_path / "none")
    assert status == 1 and out == b"" and "No such file" in one_line(err)


def test_a_context_can_be_full(program):
    """A prompt, or what is generated behind one token, may be all that a model has positions for."""
    for p, n, ok in ((256, 0, True), (0, 255, True), (257, 0, False), (0, 256, False)):
        status, _, err = program("bench", "-m", f"{TINY_MODELS}/opt", "-p", p, "-n", n, "-r", 1, "-t", 1)
        assert status == 0 if ok else status and "256 only" in one_line(err)


def test_a_batch_fits_a_step(program, args):
    status, out, err = program(*args, "-b", "1,2", "-ub", "1")
    assert status == 2 and not out and "-b 2: steps of at most 1 tokens hold fewer" in one_line(err)


def test_prompts_that_are_stored(program, args, tmp_path):
    """Reading a long prompt takes less time than computing it; what cannot be read has no time."""
    store = ["--kv-store", tmp_path / "store"]
    lengths = ["-d", "0", "-r", "3", "-p", "8,1500"]
    short, long, steps = measure(program, *args, *lengths, *store)
    assert short["stored_ns"] is steps["stored_ns"] is None
    assert 0 < long["stored_ns"] < long["avg_ns"] / 2
    listed = json.loads(program("kv", "ls", *store, "--json")[1])
    assert max(p["tokens"] for p in listed["prefixes"]) == 1472  # whole pieces
    assert all(row["stored_ns"] is None for row in measure(program, *args, *lengths))
    # Again nothing is computed for the store; a depth counts as a part of the prompt.
    bytes_before = listed["bytes"]
    deep, _ = measure(program, *args, *store, "-d", "1000", "-p", "480")
    assert deep["stored_ns"] > 0 and json.loads(program("kv", "ls", *store, "--json")[1])["bytes"] == bytes_before
    drops, _ = measure(program, *args, *store, "-p", "480", "--kv-policy", "h2o", "-d", "0")
    assert drops["stored_ns"] is None


def test_what_stands_before_is_stored(program, args, tmp_path):
    """A depth is computed once for several policies, and once for several runs; no step chooses anything else for it."""
    args = [*args, "-f", tmp_path / "text", "-p", "64", "-b", "1,2", "--kv-budget", "5%"]
    store = ["--kv-store", tmp_path / "store"]
    policies = ("full", "infinigen", "h2o", "quest")

    def steps(*more):
        return [(r["policy"], r["batch"], r["step"]["entries_used"]) for r in measure(program, *args, *more) if r["n_gen"]]

    alone = [row for p in policies for row in steps("--kv-policy", p)]
    assert steps("--kv-policy", ",".join(policies)) == alone
    assert steps("--kv-policy", ",".join(policies), *store) == alone
    listed = json.loads(program("kv", "ls", *store, "--json")[1])
    assert sorted(p["tokens"] for p in listed["prefixes"]) == [DEPTH - DEPTH % 64, (DEPTH + 64) // 64 * 64]
    assert steps("--kv-policy", ",".join(policies), *store) == alone
    again = json.loads(program("kv", "ls", *store, "--json")[1])
    assert again["bytes"] == listed["bytes"] and len(again["prefixes"]) == 2


def test_depths_come_first(program, args):
    rows = measure(program, *args, "-d", "64,0", "--kv-policy", "full,window")
    assert [(r["n_depth"], r["policy"]) for r in rows] == [(64, "full"), (64, "window"), (0, "full"), (0, "window")]


def test_column_of_stored_prompts(program, args, tmp_path):
    args = [*args, "-d", "0", "-p", "400", "--kv-store", tmp_path / "store"]
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in program(*args)[1].decode().splitlines()]
    assert lines[0][-1] == "stored" and {len(line) for line in lines} == {13}
    assert re.fullmatch(r"\d+\.\d ms", lines[2][-1]) and lines[3][-1] == ""
    prompt, steps = csv.DictReader(io.StringIO(program(*args, "-o", "csv")[1].decode()))
    assert re.fullmatch(r"GB/s of \d+\.\d", lines[0][9]) and float(prompt["read_gb_per_s"]) > 0
    assert int(prompt["stored_ns"]) > 0 and steps["stored_ns"] == ""
    status, out, err = program(*args[:-1], tmp_path / "not" / "there")
    assert status == 1 and "not/there" in one_line(err)


def parts_are_the_step(step):
    """Every moment belongs to one part, also to `other`."""
    assert set(step["parts"]) == {"project", "append", "guess", "select", "rest", "wait", "attend", "ffn", "head", "other"}
    assert all(seconds >= 0 for seconds in step["parts"].values())
    assert sum(step["parts"].values()) == pytest.approx(step["seconds"], rel=1e-6)
    for part, seconds in step["parts"].items():
        assert 0 <= step["busy"][part] <= THREADS * seconds + 1e-4
        assert (step["busy"][part] > 0) == (step["tasks"][part] > 0)
    assert step["tasks"]["ffn"] >= 2 * THREADS


def test_breakdown(program, args, tmp_path):
    """What a step takes, with a disk tier and without; parts that a policy does not have are nothing, or nearly."""
    args = [*args, "-f", tmp_path / "text", "--kv-policy", "full,infinigen,window", "--kv-budget", "64", "-b", "1,2"]
    rows = measure(program, *args, *least_ram(program, args, tmp_path), "--breakdown")
    assert [(r["policy"], r["kv_on"], r["batch"]) for r in rows] == [
        (p, on, b) for p in ("full", "infinigen", "window") for on in ("disk", "ram") for b in (1, 2)]
    layers, heads = 3, 2
    config = json.loads((args[2] / "config.json").read_text())
    layers, heads = config["num_hidden_layers"], config["num_key_value_heads"]
    for r in rows:
        step = r["step"]
        parts_are_the_step(step)
        # Steps at 1501, 1502, ...: each sees itself and what was before.
        seen = sum(range(DEPTH + 1, DEPTH + STEPS + 1)) / STEPS * layers * heads * r["batch"]
        assert step["entries_seen"] == pytest.approx(seen)
        dense = seen / layers
        used = {"full": seen, "window": dense + 64 * (layers - 1) * heads * r["batch"]}
        if r["policy"] in used:
            assert step["entries_used"] == pytest.approx(used[r["policy"]])
        assert dense < step["entries_used"] <= seen
        assert (step["read_bytes"] > 0) == (r["kv_on"] == "disk") or r["policy"] == "window"
        assert (step["parts"]["rest"] > 0) == (r["policy"] == "infinigen")
        assert step["parts"]["ffn"] > 0 and step["parts"]["head"] > 0 and step["parts"]["attend"] > 0
    full = [r["step"]["parts"]["wait"] for r in rows if r["policy"] == "full" and r["batch"] == 1]
    assert full[0] > 10 * full[1]  # from disk, and nothing to wait for


def test_breakdown_of_streamed_weights(program, args, tmp_path):
    """What a guess waits for, the next layer's queries' weights, is no part of the guess."""
    args = [*args, "--kv-policy", "infinigen", "--kv-budget", "64", "--speculate", "late"]
    least = re.search(r"at least (\d+)", one_line(program(*args, "--weights-ram", "1K")[2])).group(1)
    for row in measure(program, *args, *least_ram(program, args, tmp_path), "--weights-ram", least, "--breakdown"):
        step = row["step"]
        parts_are_the_step(step)
        assert row["weight_stall_share"] * step["seconds"] <= step["parts"]["wait"] + 1e-6


def test_numbers_of_threads(program, args):
    """Each is measured by itself, with all tests."""
    rows = measure(program, *args, "-t", "1,3", "-b", "1,2")
    assert [(r["n_threads"], r["batch"]) for r in rows] == [(1, 1), (1, 2), (3, 1), (3, 2)]
    assert [r["n_threads"] for r in measure(program, *args, "-t", "-1,1")] == [len(os.sched_getaffinity(0)), 1]
    table = program(*args, "-t", "2,1", "--breakdown")[1].decode().splitlines()
    assert [row.split("|")[1].strip() for row in table] == ["threads", "------:", "2", "", "", "1", "", ""]
    for wrong in "-2", "1,", "2000":
        status, out, err = program(*args, "-t", wrong)
        assert status == 2 and out == b"" and one_line(err)


def test_breakdown_as_a_table(program, args, tmp_path):
    lines = [[cell.strip() for cell in line.split("|")[1:-1]]
             for line in program(*args, "--breakdown", "--kv-policy", "full")[1].decode().splitlines()]
    assert len(lines) == 5 and {len(line) for line in lines} == {21}
    assert lines[0][7:] == ["step ms", "project", "append", "guess", "select", "rest", "wait", "attend", "ffn", "head", "other",
                            "used", "seen", "read/step"]
    assert sum(map(float, lines[2][8:18])) == pytest.approx(float(lines[2][7]), abs=0.006)
    assert [line[5] for line in lines[3:]] == ["busy, %", "tasks"]
    assert 0 < float(lines[3][15]) <= 101 and float(lines[4][15]) >= 2  # of the feed-forward part
    assert sum(map(float, lines[4][8:18])) == pytest.approx(float(lines[4][7]), abs=10)
    row, = csv.DictReader(io.StringIO(program(*args, "--kv-policy", "full", "-o", "csv")[1].decode()))
    assert float(row["ffn"]) > 0 and float(row["entries_seen"]) == float(row["entries_used"])
    status, out, err = program(*args, "-n", "0", "--breakdown")
    assert status == 2 and out == b"" and "--breakdown" in one_line(err)


def test_every_report_has_the_parts(program, args, tmp_path):
    common = [*args[1:5], "--json"]
    perplexity = ["perplexity", *common, "-f", tmp_path / "text", "-c", "128", "--dense-prefix", "100", "--chunks", "1"]
    parts_are_the_step(json.loads(program(*perplexity)[1])["step"])
    for run in json.loads(program(*perplexity, "--kv-policy", "full,window")[1])["runs"]:
        parts_are_the_step(run["step"])
    (tmp_path / "task").write_text(json.dumps({"prompt": words(100, 1), "answer": "abc"}) + "\n")
    parts_are_the_step(json.loads(program("eval", *common, "--task", tmp_path / "task")[1])["step"])
    report = json.loads(program("run", *common, "--raw", "-p", words(50, 2), "-n", "20", "--ignore-eos")[1])
    parts_are_the_step(report["step"])


def test_a_store_that_another_program_writes(program, args, tmp_path):
    """Said once, not for each session."""
    store = ["--kv-store", tmp_path / "store"]
    chat = program.start("chat", *args[1:3], "-c", "512", *store, stdin=subprocess.PIPE)
    try:
        chat.stdin.write(b"/resume\n")
        chat.stdin.flush()
        assert b"nothing is saved" in chat.stderr.readline()
        status, _, err = program(*args, "-d", "64", "-p", "200", *store, env={"IG_LOG": "warn"})
        assert status == 0 and "nothing new is kept: another process" in one_line(err)
    finally:
        chat.communicate()
