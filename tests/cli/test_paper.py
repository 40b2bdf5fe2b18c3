# SPDX-License-Identifier: Apache-2.0
"""bench/paper: runs, resumes, says what it found; and the rules by which it says so, on made-up rows."""
import csv
import html.parser
import os
import signal
import subprocess
import sys
import time
import types

import pytest

from conftest import make_model, words

BENCH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../bench")
sys.path.insert(0, BENCH)
from paper_experiments import EXPERIMENTS, accuracy, core, speed  # noqa: E402
from paper_experiments.core import Claim  # noqa: E402
from paper_experiments.runner import Runner, files_named  # noqa: E402

SCRIPT = os.path.join(BENCH, "paper")
PAPERS = accuracy.PAPERS

# Reports what the tests tell it to, and notes each call. `slow` makes perplexity hang after half a report.
FAKE = """#!{python}
import json, os, sys, time
verb = sys.argv[1]
with open("{folder}/calls", "a") as f:
    f.write(verb + "\\n")
if verb == "--version":
    print("infinigen 9")
elif verb == "inspect":
    print(json.dumps({{"architecture": "llama", "n_ctx_train": 4096, "n_heads": 6, "n_kv_heads": 2,
                      "memory": {{"kv": 1024000, "weights": 1}}}}))
elif verb == "perplexity":
    if os.path.exists("{folder}/slow"):
        print('{{"runs": [', flush=True)
        time.sleep(60)
    if os.path.exists("{folder}/broken"):
        sys.exit("infinigen perplexity: the disk is on fire")
    if os.path.exists("{folder}/short"):
        print('{{"runs": []}}')
        sys.exit(0)
    run = lambda policy, sketch, kl: {{"policy": policy, "sketch": sketch, "kl": kl, "perplexity": 9 + kl, "selected_share": 0.2}}
    print(json.dumps({{"runs": [run("full", None, 0.0), run("infinigen-osdi24", "s.igs", 0.02),
                               run("infinigen-osdi24", None, 0.08)]}}))
"""


@pytest.fixture
def fake(tmp_path):
    path = tmp_path / "infinigen"
    path.write_text(FAKE.format(python=sys.executable, folder=tmp_path))
    path.chmod(0o755)
    (tmp_path / "text.txt").write_text("Once upon a time.")
    return path


@pytest.fixture(scope="session")
def matplotlib():
    if subprocess.run(["/usr/bin/python3", "-c", "import matplotlib"], capture_output=True).returncode:
        pytest.skip("no python3-matplotlib")


def paper(folder, *args, **kw):
    p = subprocess.run([SCRIPT, "-f", folder / "text.txt", "-o", folder / "out", *map(str, args)], capture_output=True, text=True,
                       timeout=240, **kw)
    return p.returncode, p.stdout, p.stderr


def calls(folder):
    return (folder / "calls").read_text().split().count("perplexity")


class Balance(html.parser.HTMLParser):
    """Every element is closed, in order; pictures have words for those who do not see them."""

    def __init__(self, text):
        super().__init__()
        self.open, self.pictures = [], 0
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_startendtag(self, tag, attrs):
        if tag == "img":
            self.pictures += 1
            assert dict(attrs)["alt"] and dict(attrs)["src"].startswith("data:image/svg+xml;base64,")


def test_list(matplotlib, tmp_path):
    status, out, _ = paper(tmp_path, "--list")
    assert status == 0 and [line.split()[0] for line in out.splitlines()] == list(EXPERIMENTS)
    status, _, err = paper(tmp_path, "--only", "fig99")
    assert status == 2 and "fig99" in err


def test_run_and_again(matplotlib, fake, tmp_path):
    args = ["-b", fake, "--only", "fig13"]
    status, out, err = paper(tmp_path, *args)
    assert (status, err) == (0, "") and "1 commands, 1 to run" in out
    assert "Agrees: without skewing more is lost (KL 0.02 with, 0.08 without)." in out
    text = (tmp_path / "out/index.html").read_text()
    assert Balance(text).pictures == 1 and "Agrees: without skewing" in text
    with open(tmp_path / "out/tables/fig13-smollm2-135m.csv", newline="") as f:
        assert [row["KL"] for row in csv.DictReader(f)] == ["0.0", "0.02", "0.08"]
    assert "| without | infinigen-osdi24 | 9.08 | 0.08 | 20 |" in (tmp_path / "out/tables/fig13-smollm2-135m.md").read_text()
    assert "</svg>" in (tmp_path / "out/plots/fig13-smollm2-135m.svg").read_text()

    status, out, _ = paper(tmp_path, *args)
    assert status == 0 and "0 to run" in out and calls(tmp_path) == 1
    assert (tmp_path / "out/index.html").read_text() == text
    os.utime(tmp_path / "text.txt", (1, 1))  # another text
    assert paper(tmp_path, *args)[0] == 0 and calls(tmp_path) == 2


def test_another_build_of_the_same_version_counts(fake, tmp_path):
    Runner(fake, tmp_path)(["perplexity"])
    assert Runner(fake, tmp_path).kept(["perplexity"])
    fake.write_text(fake.read_text() + "# another build\n")
    assert not Runner(fake, tmp_path).kept(["perplexity"])


def test_a_model_folder_counts_by_its_files(tmp_path):
    model = tmp_path / "model"
    for name in "config.json", "model.safetensors":
        (model / "golden").mkdir(parents=True, exist_ok=True)
        (model / name).write_text("{}")
    before, words = sorted(files_named(["run", "-m", str(model)])), ["run", ["-m", str(model)], str(tmp_path)]
    assert sorted(files_named(words)) == before and len(before) == 2
    os.utime(model / "model.safetensors", (1, 1))
    assert sorted(files_named(words)) != before


def test_stopped(matplotlib, fake, tmp_path):
    (tmp_path / "slow").touch()
    args = ["-b", fake, "--only", "fig13"]
    p = subprocess.Popen([SCRIPT, "-f", tmp_path / "text.txt", "-o", tmp_path / "out", *map(str, args)], stdout=subprocess.DEVNULL,
                         stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "calls").exists() or not calls(tmp_path):
        assert p.poll() is None
        time.sleep(0.05)
    p.send_signal(signal.SIGINT)
    assert "goes on from here" in p.communicate(timeout=30)[1] and p.returncode == 1
    (tmp_path / "slow").unlink()
    assert "1 to run" in paper(tmp_path, *args)[1] and calls(tmp_path) == 2


def test_a_program_that_fails(matplotlib, fake, tmp_path):
    (tmp_path / "broken").touch()
    status, out, _ = paper(tmp_path, "-b", fake, "--only", "fig13")
    assert status == 1 and "Open: it could not be run: infinigen perplexity: the disk is on fire" in out
    Balance((tmp_path / "out/index.html").read_text())
    (tmp_path / "broken").unlink()
    assert paper(tmp_path, "-b", fake, "--only", "fig13")[0] == 0


def test_a_report_of_too_little_ends_its_experiment_alone(matplotlib, fake, tmp_path):
    (tmp_path / "short").touch()
    status, out, _ = paper(tmp_path, "-b", fake, "--only", "fig13,fig12,fig19")
    assert status == 1 and out.count("Open: it could not be run: ") == 3 and "too little was measured" in out


def test_without_matplotlib(tmp_path):
    (tmp_path / "matplotlib.py").write_text("raise ModuleNotFoundError(name='matplotlib')\n")
    bare = {**os.environ, "PYTHONPATH": str(tmp_path)}
    assert paper(tmp_path, "--list", env=bare)[0] == 0
    status, _, err = paper(tmp_path, "--quick", env=bare)
    assert status == 1 and "install-deps paper" in err and err.count("\n") == 1


def test_with_a_tiny_model(matplotlib, program, tmp_path):
    model = make_model(tmp_path / "tiny")
    (tmp_path / "text.txt").write_text(words(9000, 1))
    status, out, err = paper(tmp_path, "--quick", "-m", model, "-b", program.path, "--only", "fig2,fig5,fig13,memory",
                             env=program.env)
    assert (status, err) == (0, ""), out
    with open(tmp_path / "out/tables/fig5-tiny.csv", newline="") as f:
        rows = list(csv.DictReader(f))
    assert [row["layer"] for row in rows] == [str(i) for i in range(len(rows))]
    assert all(0 < float(row["keys, mean"]) <= float(row["of keys"]) <= 1024 for row in rows)
    Balance((tmp_path / "out/index.html").read_text())


# The rules.
def test_verdict():
    good, bad = Claim("a", True, "1"), Claim("b", False, "2", "chance")
    assert core.verdict([good]) == ("agrees", "Agrees: a (1).")
    assert core.verdict([good, bad]) == ("part", "Agrees in part: a (1); not borne out: b (2: chance).")
    assert core.verdict([bad]) == ("differs", "Does not agree: b (2: chance).")
    assert core.verdict([])[0] == "open"


def line(policy, **more):
    return {"policy": policy, **more}


def fig2(kv):
    return [{"sweep": "length", "tokens": n, "sequences": 16, "KV": kv * n, "weights": 60, "KV of weights": kv * n / 60}
            for n in (1, 2, 4)] + [{"sweep": "batch", "tokens": 1, "sequences": 1, "KV": kv, "weights": 60, "KV of weights": kv / 60}]


def fig4(h2o):
    return [line(p, **{"tokens": n, "cosine": c, "cosine of the output": c})
            for p, cs in (("h2o", h2o), ("oracle", (.95, .95)), ("infinigen", (.94, .94))) for n, c in zip((1, 2), cs)]


def fig5(first, others):
    return [{"layer": i, "keys, mean": n, "least of a step": n, "most of a step": n * 1.2, "of keys": 1000}
            for i, n in enumerate((first, *others))]


def table1(*cosines):
    return [{"layer": i, **dict(zip(("input", "attention", "ffn"), cosines))} for i in (1, 2)]


def skewing(*energy):
    return [{"of": of, "columns %": 10, "energy in them %": x}
            for of, x in zip(("queries", "queries, skewed", "keys", "keys, skewed"), energy)]


def fig20(*few):
    return [{"tokens": 512 << i, "queries that need under 1 % of the keys %": x, "keys needed %": 50 - x} for i, x in enumerate(few)]


def waking(asleep, awake, after=2):
    seen = "keys that slept so long and woke %"
    return [{"shows": "all", "tokens": n, seen: after / n, "weight %": None, "even shares": None} for n in (8, 16, 32)] + [
        {"shows": "key 3", "tokens": i, seen: None, "weight %": x, "even shares": 10 * x} for i, x in enumerate((asleep, asleep, awake, asleep))]


def fig11(ours, h2o, task="a", sizes=(5, 20)):
    curve = lambda method, ys: [{"task": task, "method": method, "size %": x, "as full %": y} for x, y in zip(sizes, ys)]
    return curve(PAPERS, ours) + curve("h2o", h2o)


def fig12(ours, h2o):
    return [line(p, **{"position": i, "perplexity": 10 * (1 + kl), "KL": kl, "used %": 5})
            for p, kls in (("full", (0, 0)), (PAPERS, ours), ("h2o", h2o)) for i, kl in enumerate(kls)]


def fig13(without):
    return [line(PAPERS, skewing="with", KL=.02), line(PAPERS, skewing="without", KL=without)]


def table2(fifo, others):
    return [{"pool": pool, "perplexity": p, "KL": p / 10} for pool, p in
            (("100 %", 10), ("80 % fifo", fifo), ("80 % lru", others), ("80 % counter", others))]


def fig17(kls, entries):
    alpha = [{"sweep": "alpha", "alpha": a, "KL": k, "entries of a step": n} for a, k, n in zip((1, 4, 9), kls, entries)]
    return alpha + [{"sweep": "ratio", "ratio": r, "KL": k, "entries of a step": 100, "partial keys MB": 10 * r}
                    for r, k in zip((.1, .3, 1), kls)]


def fig19(h2o):
    return [line(p, context=n, KL=k) for p, ks in (("h2o", h2o), (PAPERS, (.1, .1)), ("infinigen", (.01, .01)))
            for n, k in zip((512, 1024), ks)]


def fig14(ours, read):
    return [{"method": m, "generation s": t, "read per step MB": b}
            for m, t, b in ((PAPERS, ours, read), ("full", 9, 90), ("full q4", 8, 20), ("h2o", 7, 0))]


def fig15(ours):
    return [{"method": m, "sequences": n, "tokens/s": t}
            for m, ts in ((PAPERS, ours), ("full", (5, 5)), ("full q4", (5, 6)), ("h2o", (5, 6))) for n, t in zip((1, 4), ts)]


def fig16a(counts, gains):
    return [{"tokens": n, "entries selected": c, f"{PAPERS} over full": g, "h2o over full": 1.5}
            for n, c, g in zip((512, 2048), counts, gains)]


def fig16b(ours):
    return [{"model": "m", f"{PAPERS} over full": ours, "h2o over full": 1.5}]


def fig18(ours, wait):
    return [{"method": m, "step ms": 10, "wait ms": w, "attend ms": 1, "ffn ms": 1, "project ms": 1, "times ideal": x}
            for m, w, x in (("full", wait, 9), ("h2o", 1, 4), (PAPERS, 1, ours))]


def memory(share):
    return [line(PAPERS, **{"sketch of KV %": share, "query heads for each KV head": 3})]


def frontier(ours, read):
    return [{"choice": c, "type": "f16", "RAM MB": m, "KL": k, "read per token MB": r} for c, m, k, r in
            (("full", 90, 0, 0), ("infinigen", 110, .01, 0), ("full on disk", 23, 0, 80), ("infinigen on disk", *ours, read),
             ("h2o", 9, .3, 0), ("h2o", 80, .001, 0), ("infinigen limited", 30, .05, 0))]


def tasks(published, ours):
    return [line(p, task=t, length=512, counts=True, **{"right %": x}) for t in ("a", "b") for p, x in
            (("full", 90), ("infinigen 10 %", ours), ("infinigen 5 %", ours), ("quest 10 %", 80), (PAPERS, published))]


def long(kls):
    return [line(p, position=i, KL=k, **{"tokens as full %": 100 * (kls[0] >= kls[-1]), "tokens made": 9})
            for p in ("infinigen", PAPERS) for i, k in enumerate(kls)]


MADE_UP = [
    ("fig2", fig2(30), fig2(1)),
    ("fig4", fig4((.9, .7)), fig4((.95, .96))),
    ("fig5", fig5(500, (10, 20, 90)), fig5(15, (10, 20, 25))),
    ("table1", table1(.95, .3, .3), table1(.5, .9, .3)),
    ("skewing", skewing(40, 60, 40, 60), skewing(10, 60, 40, 20)),
    ("fig20", fig20(1, 5, 20), fig20(5, 5, 5)),
    ("waking", waking(.01, 40), waking(4, 6, 0)),
    ("fig11", fig11((90, 99), (50, 90)), fig11((40, 90), (50, 99))),
    ("fig12", fig12((.01, .01), (.1, .2)), fig12((.1, .3), (.2, .1))),
    ("fig13", fig13(.08), fig13(.02)),
    ("table2", table2(14, 10.1), table2(10.1, 14)),
    ("fig17", fig17((.9, .1, .09), (10, 50, 90)), fig17((.9, .8, .1), (10, 10, 10))),
    ("fig19", fig19((.3, .5)), fig19((.3, .05))),
    ("fig14", fig14(3, 5), fig14(10, 80)),
    ("fig15", fig15((5, 9)), fig15((5, 5))),
    ("fig16a", fig16a((37, 73), (1.5, 3)), fig16a((37, 140), (1.5, 1.2))),
    ("fig16b", fig16b(2), fig16b(1)),
    ("fig18", fig18(1.5, 9), fig18(5, 1)),
    ("memory", memory(15), memory(57)),
    ("frontier", frontier((40, .01), 1), frontier((60, .1), 20)),
    ("tasks", tasks(60, 90), tasks(95, 70)),
    ("long", long((.1, .1, .1)), long((.1, .2, .3))),
]


@pytest.mark.parametrize("name,bears_out,does_not", MADE_UP, ids=[m[0] for m in MADE_UP])
def test_rules(name, bears_out, does_not):
    """Each experiment agrees with rows as the paper has them, and notices rows that are not so."""
    claims = EXPERIMENTS[name].claims
    assert core.verdict(claims(bears_out))[0] == "agrees", claims(bears_out)
    assert core.verdict(claims(does_not))[0] in ("part", "differs"), claims(does_not)


def test_figure_11_has_curves_for_each_task():
    """A task on which everything is as full does says nothing of another, where too little is."""
    rows = fig11((98, 99), (90, 98)) + fig11((10, 60), (30, 80), task="b", sizes=(4, 30))
    first, best = EXPERIMENTS["fig11"].claims(rows)
    assert (first.holds, first.seen) == (False, "54 % of the tokens against 60 %") and "at 4.5 % of" in first.says
    assert (best.holds, best.seen) == (False, "79.5 % of the tokens at best")


def test_paged_rows_have_no_bytes_by_step():
    """Where the system pages, `bench` does not count what a step reads: the row says nothing there. Fewer tokens are made then, and
    the row has the time of as many as the others make."""
    line = {"policy": "full", "kv_type": "f16", "batch": 4, "avg_ns": 8e9, "avg_ts": 8.0, "selected_share": 1.0}

    def result(words, **more):
        return types.SimpleNamespace(words=words, report=[{**line, **more}])

    setup = core.Setup("m", "t", True, 8192, 1000.0)
    rows = EXPERIMENTS["fig14"].rows(setup, [
        result([], kv_on="ram"), result([], kv_on="ram", kv_type="q4"), result([], kv_on="disk", read_bytes_per_step=3e6),
        result(["--kv-map"], kv_on="ram", read_bytes_per_step=None, avg_ns=4e9)])
    assert [r["generation s"] for r in rows] == [8, 8]
    assert [(r["method"], r["read per step MB"]) for r in rows] == [("full", 3.0), ("full mapped", None)]


def test_h2o_holds_what_it_holds_in_the_paper():
    """A share of the whole text, from the first step on; and what it is compared with in Figure 4 the same, in the same layers."""
    setup = core.Setup("m", "t", False, 8192, 1000.0)

    def options(name):
        return [dict(zip(words, words[1:])) for words in EXPERIMENTS[name].commands(setup)]

    fig4, h2o = options("fig4"), options("fig12")[1]
    assert {(o["--kv-budget"], o["--kv-dense-layers"]) for o in fig4} == {("204", "2")}
    assert (h2o["--kv-budget"], h2o["--kv-sinks"], h2o["--kv-recent"]) == ("76", "0", "1")


def test_on_a_gpu_the_slower_tier_is_ram():
    """What has --kv-vram fetches from RAM; what has not is the ideal. Only commands that compute are told the device."""
    setup = core.Setup("m", "t", True, 8192, 1000.0, models=(core.Setup("m", "t", True, 8192, 1000.0, weights=100, device="cuda"),),
                       weights=100, help="--kv-map --weights-ram", device="cuda")
    for name in ("fig14", "fig15", "fig16a", "fig16b", "fig18"):
        for words in EXPERIMENTS[name].commands(setup):
            assert "--kv-ram" not in words and "--weights-ram" not in words and not {"--kv-map", "--kv-vram"} <= set(words)
    line = {"kv_type": "f16", "batch": 2, "avg_ns": 8e9, "kv_on": "ram", "read_bytes_per_step": None}
    step = {"seconds": 2e-3, "vram_read_bytes": 5e6, "parts": dict.fromkeys(speed.PARTS, 1e-4)}
    results = [types.SimpleNamespace(words=words, report=[{**line, "policy": p, "step": step} for p in policies])
               for words, policies in ((["--kv-vram", "9"], ("full", "h2o")), ([], ("full",)))]
    assert [r["method"] for r in EXPERIMENTS["fig18"].rows(setup, results)] == ["full", "h2o", "ideal"]
    assert speed.read_mb(results[0].report[0]) == 5
    assert setup.on_device(["bench", "-p", "1"]) == ["bench", "-p", "1", "--device", "cuda"]
    assert setup.on_device(["tasks", "-n", "1"]) == ["tasks", "-n", "1"]


def test_every_experiment_has_its_rules_tested():
    assert {name for name, _, _ in MADE_UP} == set(EXPERIMENTS)
