# SPDX-License-Identifier: Apache-2.0
"""`infinigen perplexity` of several policies and budgets, on smollm2-135m; of the disk tier on a tiny model."""
import json
import re
import signal
import time

import pytest
from conftest import one_line
from conftest import make_model, words

WORDS = "sea calm boat dawn men song long way home keeper tower clock day hour book stone river bread".split()
# No two sentences alike, so that the far past matters a little.
TEXT = " ".join(f"In year {1200 + 7 * i} the {WORDS[i % 18]} of the {WORDS[i * 7 % 18]} met the {WORDS[i * 5 % 17]}."
                for i in range(120))


@pytest.fixture
def args(model, tmp_path):
    (tmp_path / "text").write_text(TEXT)
    return ["perplexity", "-m", model, "-f", tmp_path / "text", "-c", "256", "--dense-prefix", "208", "--chunks", "2"]


def test_runs_are_what_they_are_alone(program, args):
    """One dense prefix for all gives the same bits as a prefix for each; also where a policy must see the prompt."""
    policies = ["infinigen", "full", "infinigen-osdi24"]
    status, out, err = program(*args, "--json", "--kv-policy", ",".join(policies), "--kv-budget", "20%,64")
    report = json.loads(out)
    assert status == 0 and err == b""
    assert report["context"] == 256 and report["dense_prefix"] == 208
    assert [(r["policy"], r["budget"]) for r in report["runs"]] == [
        ("infinigen", 0.2), ("infinigen", 64), ("full", 1), ("infinigen-osdi24", 0.2), ("infinigen-osdi24", 64)]
    for run in report["runs"]:
        alone = json.loads(program(*args, "--json", "--kv-policy", run["policy"], "--kv-budget",
                                   "64" if run["budget"] == 64 else "20%")[1])
        for field in ("perplexity", "perplexity_error", "nll", "tokens_scored"):
            assert run[field] == alone[field], (run["policy"], run["budget"], field)
        assert [c["nll"] for c in run["chunks"]] == [c["nll"] for c in alone["chunks"]]
        assert run["selected_share"] == pytest.approx(alone["kv"]["selected_share"])
        assert run["fetched_share"] == pytest.approx(alone["kv"]["fetched_share"])
        assert run["generation_tps"] > 0 and "audit" not in run
        if run["policy"] == "full":
            assert run["kl"] == run["tokens_compared"] == 0 and run["selected_share"] == 1
        else:
            assert run["tokens_compared"] == run["tokens_scored"] == 96
            assert 0 < run["kl"] < 1 and run["selected_share"] < 0.5
        assert run["kl"] == pytest.approx(sum(c["kl"] for c in run["chunks"]) / 2 if run["kl"] else 0)


def test_what_is_not_read(program, args):
    """What is not read is estimated by both policies that can, unless it is not wanted, and by no other."""
    lists = ["--json", "--kv-policy", "full,infinigen,oracle,window", "--kv-budget", "20%"]
    with_rest, without = (json.loads(program(*args, *lists, *more)[1])["runs"] for more in ([], ["--no-kv-rest"]))
    for policy, i in (("infinigen", 1), ("oracle", 2)):
        assert with_rest[i]["policy"] == policy
        assert with_rest[i]["nll"] != without[i]["nll"]
    assert with_rest[3]["nll"] == without[3]["nll"]


def test_table(program, args):
    status, out, err = program(*args, "--kv-policy", "full,window", "--kv-budget", "100%,48")
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in out.decode().splitlines()]
    assert status == 0 and err == b"" and len(lines) == 5
    assert lines[0] == ["policy", "budget", "used", "fetched", "blocks", "perplexity", "vs full", "KL", "KV RAM", "tokens/s"]
    assert lines[2][:5] == ["full", ""] + ["100.00 %"] * 3 and lines[2][6:8] == ["reference", ""]
    # All entries are all entries, whoever chooses them.
    assert lines[3][:2] == ["window", "100%"] and lines[3][5] == lines[2][5] and lines[3][6:8] == ["+0.00 %", "0.00000"]
    assert lines[4][:2] == ["window", "48"] and lines[4][5] != lines[2][5] and float(lines[4][7]) > 0


def test_budgets_as_they_were_given(program, args):
    """One entry is not the whole: 1 is a number, 1.0 a share. What a report or a table says means that as a flag, too."""
    args = [*args, "--chunks", "1", "--kv-policy", "window", "--kv-budget"]
    report = json.loads(program(*args, "1,64,100%,25%", "--json")[1])
    runs = report["runs"]
    assert [repr(r["budget"]) for r in runs] == ["1", "64", "1.0", "0.25"]
    assert runs[0]["selected_share"] < runs[1]["selected_share"] < runs[2]["selected_share"] == 1
    given_back = json.dumps([r["budget"] for r in runs])[1:-1].replace(" ", "")
    table = program(*args, given_back)[1].decode()
    budgets = [line.split("|")[2].strip() for line in table.splitlines()[2:]]
    assert budgets == ["1", "64", "100%", "25%"]
    for again in given_back, ",".join(budgets):
        same = json.loads(program(*args, again, "--json")[1])["runs"]
        for key in "budget", "nll", "selected_share":
            assert [r[key] for r in same] == [r[key] for r in runs], key


def test_table_without_full(program, args):
    out = program(*args, "--kv-policy", "window,oracle", "--chunks", "1")[1].decode()
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in out.splitlines()]
    assert [line[1] for line in lines[2:]] == ["own", "own"] and lines[2][6:8] == ["", ""]
    report = json.loads(program(*args, "--kv-policy", "window,oracle", "--chunks", "1", "--json", "--audit", "4",
                                "--kv-recent", "8")[1])
    window, oracle = report["runs"]
    assert window["budget"] is None and "kl" not in window
    assert 0 < window["audit"]["mass_mean"] < oracle["audit"]["mass_mean"] <= 1.001
    assert window["audit"]["mass_p1"] < oracle["audit"]["mass_p1"]
    layers = oracle["audit"]["layers"]
    assert layers[:1] == [None] and all(0 < mass <= 1.001 for mass in layers[1:])


def test_prompts_use_all(program, args):
    """Without a dense prefix nothing is decoded."""
    args = ["perplexity", *args[1:5], "-c", "64,128", "--chunks", "1"]
    runs = json.loads(program(*args, "--json")[1])["runs"]
    assert len(runs) == 2 and all(r["selected_share"] == r["fetched_share"] == r["block_share"] == 1 for r in runs)
    for line in program(*args)[1].decode().splitlines()[2:]:
        assert line.count("100.00 %") == 3 and line.split("|")[-2].strip() == ""


def test_statistics_without_a_policy(program, args):
    """Where nothing was generated they say nothing of a generation."""
    for flags, generates in ((["--dense-prefix", "0"], False), ([], True)):
        status, _, err = program(*args, *flags, "--chunks", "1", "-v")
        assert status == 0 and b"memory " in err and (b"generation" in err) == generates


def test_what_makes_no_sense(program, args, tmp_path):
    for flags, message in ((["--dense-prefix", "0"], "need --dense-prefix"),
                           (["--kv-trace", tmp_path / "trace"], "--kv-trace takes one")):
        status, out, err = program(*args, "--kv-policy", "full,window", *flags)
        assert status == 2 and out == b"" and message in err.decode()
    status, out, err = program(*args, "--kv-policy", "full,infinigen", "--kv-sketch", tmp_path / "text")
    assert status == 1 and out == b"" and "text" in one_line(err)


def interrupted(program, *args):
    """The report of a run that was interrupted once it had something to report, however fast the machine is."""
    for seconds in (0.25, 0.5, 1, 2, 4, 8, 16):
        p = program.start(*args, "--json")
        time.sleep(seconds)
        p.send_signal(signal.SIGINT)
        out, err = p.communicate(timeout=60)
        if p.returncode == -signal.SIGINT: # before it listened
            continue
        assert p.returncode == 130 and one_line(err) == "infinigen perplexity: interrupted\n"
        if out:
            report = json.loads(out)
            assert report["interrupted"] is True
            return report
    pytest.fail("nothing to report after 16 seconds")


def test_an_interrupt_keeps_whole_chunks(program, args, tmp_path):
    (tmp_path / "long").write_text(words(400000, 3))
    report = interrupted(program, *args, "-f", tmp_path / "long", "--chunks", "-1", "--kv-policy", "window,full")
    assert len({run["tokens_scored"] for run in report["runs"]}) == 1
    assert all(run["tokens_scored"] == 48 * len(run["chunks"]) for run in report["runs"])


def test_an_interrupt_between_prompts(program, tmp_path):
    """Chunks that are one step each end, too; the runs of the context that was cut short say so."""
    text = tmp_path / "text"
    text.write_text(words(400000, 3))
    report = interrupted(program, "perplexity", "-m", make_model(tmp_path / "model"), "-f", text, "-c", "128,256")
    assert report["runs"][-1]["interrupted"] is True
    for run in report["runs"]:
        assert run.get("interrupted", False) == (len(run["chunks"]) < 400000 // run["context"])


@pytest.fixture
def on_disk(program, tmp_path):
    """Steps after a long prefix; flags for a disk tier, and the least RAM beside it."""
    (tmp_path / "text").write_text(words(1600, 3))
    (tmp_path / "kv").mkdir()
    args = ["perplexity", "-m", make_model(tmp_path / "model"), "-t", "2", "-f", tmp_path / "text", "-c", "1600",
            "--dense-prefix", "1560", "-b", "64"]
    disk = ["--kv-disk", "1G", "--kv-disk-path", tmp_path / "kv", "--kv-ram"]
    err = one_line(program(*args, "--kv-policy", "full", *disk, "1K")[2])
    return args, disk, int(re.search(r"at least (\d+)", err).group(1))


def test_what_the_disk_costs(program, on_disk):
    """Only the steps count, not the prompt; and more is read the more is used."""
    args, disk, least = on_disk
    disk = [*disk, least]
    lists = ["--kv-policy", "full,infinigen", "--kv-budget", "32"]
    full, sparse = json.loads(program(*args, *lists, *disk, "--json")[1])["runs"]
    assert 0 < sparse["read_bytes_per_token"] < full["read_bytes_per_token"]
    assert 0 < full["stall_share"] < 1
    assert full["memory"]["kv"] == sparse["memory"]["kv"] <= least and full["memory"]["sketch"] == 0
    ram = sum(sparse["memory"].values())
    assert ram > least  # the sketch counts as well
    table = program(*args, *lists, *disk)[1].decode()
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
    assert lines[0][-2:] == ["read/step", "stalled"] and {len(line) for line in lines} == {12}
    assert lines[3][lines[0].index("KV RAM")] == f"{ram / 1e6:.1f} MB"
    assert re.fullmatch(r"\d+\.\d\d MB", lines[2][-2]) and re.fullmatch(r"\d+\.\d %", lines[2][-1])

    alone = json.loads(program(*args, "--kv-policy", "full", *disk, "--json")[1])["kv"]
    assert alone["read_bytes_per_token"] == pytest.approx(full["read_bytes_per_token"], rel=0.1)
    assert alone["read_bytes_per_token"] * 39 < alone["fetched_bytes_per_token"] * 1599
    assert 0 < alone["decode_stall"] < alone["stall"] and 0 < alone["stall_share"] < 1
    in_ram = json.loads(program(*args, *lists, "--json")[1])["runs"]
    assert all(run["read_bytes_per_token"] == run["stall_share"] == 0 for run in in_ram)
    assert "stalled" not in program(*args, *lists)[1].decode()


def test_what_the_disk_costs_after_others(program, on_disk):
    """A policy reads what it reads alone: its dense layer stays in RAM, whoever computed the prefix."""
    args, disk, least = on_disk
    disk = [*disk, least * 7 // 5, "--kv-budget", "32", "--json"]
    runs = json.loads(program(*args, "--kv-policy", "infinigen,full,window", *disk)[1])["runs"]
    for run in runs:
        alone = json.loads(program(*args, "--kv-policy", run["policy"], *disk)[1])["kv"]
        assert run["read_bytes_per_token"] == pytest.approx(alone["read_bytes_per_token"], rel=0.1, abs=5000)


def test_by_position(program, tmp_path):
    """Parts are of the chunk's positions, and all of them together are the whole; alone and beside others the same."""
    text = tmp_path / "text"
    text.write_text(words(900, 3))
    common = ["perplexity", "-m", make_model(tmp_path / "model"), "-f", text, "-c", "256", "--chunks", "3", "--json", "--by"]

    def whole(run, positions):
        parts = run["positions"]
        assert [(p["first"], p["last"]) for p in parts] == positions
        assert sum(p["tokens_scored"] for p in parts) == run["tokens_scored"]
        assert all(p["tokens_scored"] == 3 * (p["last"] - p["first"] + 1) for p in parts)
        assert sum(p["nll"] * p["tokens_scored"] for p in parts) == pytest.approx(run["nll"] * run["tokens_scored"])
        assert len({p["perplexity"] for p in parts}) == len(parts)
        return parts
    # The second half without the first of its tokens, which the token before predicts.
    dense = json.loads(program(*common, "50")[1])
    parts = whole(dense, [(129, 149), (150, 199), (200, 249), (250, 255)])
    assert [p["tokens_scored"] for p in parts] == [3 * n for n in (21, 50, 50, 6)]
    prefix = ["--dense-prefix", "100", "--kv-recent", "4", "--kv-sinks", "1"]
    positions = [(100, 127), (128, 191), (192, 255)]
    lists = json.loads(program(*common, "64", *prefix, "--kv-policy", "full,window,infinigen", "--kv-budget", "16")[1])
    for run in lists["runs"]:
        parts = whole(run, positions)
        assert [p["tokens_scored"] for p in parts] == [3 * n for n in (28, 64, 64)]
        assert sum(p.get("kl", 0) * p["tokens_scored"] for p in parts) == pytest.approx(run["kl"] * run["tokens_scored"])
        assert ("kl" in parts[0]) == (run["policy"] != "full")
        alone = json.loads(program(*common, "64", *prefix, "--kv-policy", run["policy"], "--kv-budget", "16")[1])
        assert [p["nll"] for p in alone["positions"]] == [p["nll"] for p in parts]
    assert "positions" not in json.loads(program(*common, "0")[1])


def test_table_by_position(program, tmp_path):
    text = tmp_path / "text"
    text.write_text(words(900, 3))
    common = ["perplexity", "-m", make_model(tmp_path / "model"), "-f", text, "-c", "256", "--chunks", "1", "--by", "100"]
    out = program(*common, "--dense-prefix", "100", "--kv-policy", "full,window", "--kv-budget", "16")[1].decode()
    tables = [[[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
              for table in out.split("\n\n")]
    assert [len(table) for table in tables] == [4, 4, 4]
    assert tables[1][0] == ["by position", "full", "window 16"] and tables[2][0] == ["KL by position", "full", "window 16"]
    assert [row[0] for row in tables[1][2:]] == [row[0] for row in tables[2][2:]] == ["100-199", "200-255"]
    assert all(float(row[1]) > 1 and float(row[2]) > 1 for row in tables[1][2:])
    assert all(row[1] == "" and float(row[2]) > 0 for row in tables[2][2:])
    lines = program(*common)[1].decode().splitlines()
    assert [re.sub(r"[0-9.]+ \+/- [0-9.]+", "X", line) for line in lines[-3:]] == [
        "Final estimate: PPL = X", "Positions 129-199: PPL = X", "Positions 200-255: PPL = X"]
