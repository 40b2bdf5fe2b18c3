# SPDX-License-Identifier: Apache-2.0
"""`infinigen perplexity` of several policies and budgets, on smollm2-135m."""
import json
import signal
import time

import pytest
from conftest import one_line

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
            assert run["kl"] == 0 and run["selected_share"] == 1
        else:
            assert 0 < run["kl"] < 1 and run["selected_share"] < 0.5
        assert run["kl"] == pytest.approx(sum(c["kl"] for c in run["chunks"]) / 2 if run["kl"] else 0)


def test_table(program, args):
    status, out, err = program(*args, "--kv-policy", "full,window", "--kv-budget", "100%,48")
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in out.decode().splitlines()]
    assert status == 0 and err == b"" and len(lines) == 5
    assert lines[0] == ["policy", "budget", "used", "fetched", "blocks", "perplexity", "vs full", "KL", "tokens/s"]
    assert lines[2][:5] == ["full", ""] + ["100.00 %"] * 3 and lines[2][6:8] == ["", ""]
    # All entries are all entries, whoever chooses them.
    assert lines[3][:2] == ["window", "100 %"] and lines[3][5] == lines[2][5] and lines[3][6:8] == ["+0.00 %", "0.00000"]
    assert lines[4][:2] == ["window", "48"] and lines[4][5] != lines[2][5] and float(lines[4][7]) > 0


def test_table_without_full(program, args):
    out = program(*args, "--kv-policy", "window,oracle", "--chunks", "1")[1].decode()
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in out.splitlines()]
    assert [line[1] for line in lines[2:]] == ["own", "own"] and lines[2][6:8] == ["", ""]
    report = json.loads(program(*args, "--kv-policy", "window,oracle", "--chunks", "1", "--json", "--audit", "4",
                                "--kv-recent", "8")[1])
    window, oracle = report["runs"]
    assert window["budget"] is None and "kl" not in window
    assert 0 < window["audit"]["mass_mean"] < oracle["audit"]["mass_mean"] <= 1
    assert window["audit"]["mass_p1"] < oracle["audit"]["mass_p1"]
    layers = oracle["audit"]["layers"]
    assert layers[:1] == [None] and all(0 < mass <= 1.001 for mass in layers[1:])


def test_what_makes_no_sense(program, args, tmp_path):
    for flags, message in ((["--dense-prefix", "0"], "need --dense-prefix"),
                           (["--kv-trace", tmp_path / "trace"], "--kv-trace takes one")):
        status, out, err = program(*args, "--kv-policy", "full,window", *flags)
        assert status == 2 and out == b"" and message in err.decode()
    status, out, err = program(*args, "--kv-policy", "full,infinigen", "--kv-sketch", tmp_path / "text")
    assert status == 1 and out == b"" and "text" in one_line(err)


def test_an_interrupt_keeps_whole_chunks(program, args):
    p = program.start(*args, "--chunks", "-1", "--json", "--kv-policy", "window,full")
    time.sleep(4)
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=60)
    if p.returncode == 0:
        pytest.skip("it was done by then")
    assert p.returncode == 130 and "interrupted" in err.decode()
    if out:
        report = json.loads(out)
        assert report["interrupted"] is True
        assert len({run["tokens_scored"] for run in report["runs"]}) == 1
        assert all(run["tokens_scored"] == 48 * len(run["chunks"]) for run in report["runs"])
