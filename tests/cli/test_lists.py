# SPDX-License-Identifier: Apache-2.0
"""Lists of settings in `perplexity`, `eval`, `bench` and `inspect`, on a tiny model whose tokens are bytes."""
import json
import os
import shutil

import pytest
from conftest import TINY_MODELS, make_model, one_line, words
from gguf_file import Gguf

SETTINGS = ("policy", "budget", "kv_type", "alpha", "partial", "limit", "evict", "sketch")


@pytest.fixture(autouse=True)
def no_warnings(program):
    """What does nothing in some of the runs is said, and is not what is tested here."""
    program.env["IG_LOG"] = "error"


@pytest.fixture
def args(tmp_path):
    (tmp_path / "text").write_text(words(700, 3))
    return ["-m", make_model(tmp_path / "model"), "-t", "2", "--kv-sinks", "1", "--kv-recent", "4"]


def flags_of(run):
    """A run's settings as flags."""
    flags = ["--kv-policy", run["policy"], "--kv-type", run["kv_type"], "--kv-sketch", run["sketch"] or "none"]
    for key, flag in (("budget", "--kv-budget"), ("alpha", "--kv-alpha"), ("partial", "--kv-partial"), ("limit", "--kv-limit"),
                      ("evict", "--kv-evict")):
        if run[key] is not None and (key, run["policy"]) != ("budget", "full"):
            flags += [flag, run[key]]
    return flags


def test_runs_are_what_they_are_alone(program, args, tmp_path):
    common = ["perplexity", *args, "-f", tmp_path / "text", "--chunks", "2", "--dense-prefix", "-24", "--json"]
    status, out, err = program(*common, "-c", "96,160", "--kv-policy", "full,infinigen-osdi24,window", "--kv-budget", "24",
                               "--kv-type", "f16,q4", "--kv-alpha", "1,9", "--kv-limit", "100%,50%", "--kv-evict", "fifo,lru",
                               "--kv-sketch", "none")
    report = json.loads(out)
    runs = report["runs"]
    assert (status, err) == (0, b"") and "context" not in report
    assert [run["context"] for run in runs] == [96] * 24 + [160] * 24
    assert all(run["dense_prefix"] == run["context"] - 24 for run in runs)
    # Of each type: no limit, or half with two rules; alpha is for one policy only.
    of_type = [(run["policy"], run["alpha"], run["limit"], run["evict"]) for run in runs[:12]]
    assert len(set(of_type)) == 12
    assert of_type == [("full", None, limit, rule) for limit, rule in ((None, None), (0.5, "fifo"), (0.5, "lru"))] + [
        ("infinigen-osdi24", alpha, limit, rule) for alpha in (1, 9)
        for limit, rule in ((None, None), (0.5, "fifo"), (0.5, "lru"))] + [
        ("window", None, limit, rule) for limit, rule in ((None, None), (0.5, "fifo"), (0.5, "lru"))]
    assert [run["kv_type"] for run in runs[:24]] == ["f16"] * 12 + ["q4"] * 12
    assert runs[0]["kl"] == 0 < runs[12]["kl"]
    for run in runs[1:24:5] + runs[-1:]:
        alone = json.loads(program(*common, "-c", run["context"], *flags_of(run))[1])
        assert [c["nll"] for c in alone["chunks"]] == [c["nll"] for c in run["chunks"]], run
        assert alone["context"] == run["context"] and alone["kv"]["type"] == run["kv_type"]


def test_a_store_changes_no_figure(program, args, tmp_path):
    """What is computed before the policies' turn is taken from a store, and of every policy the figures stay what they are."""
    (tmp_path / "asked").write_text("".join(json.dumps({"context": words(300, 5 + n), "question": " so", "answers": ["x"],
                                                        "max_tokens": 8}) + "\n" for n in range(2)))
    common = [*args, "--kv-budget", "24", "--kv-type", "f16,q4", "--json", "--kv-policy"]
    scored = ["perplexity", *common, "full,infinigen,infinigen-osdi24", "--kv-limit", "100%,50%", "-f", tmp_path / "text", "-c", "160",
              "--chunks", "2", "--dense-prefix", "-24"]
    asked = ["eval", *common, "full,infinigen,h2o,infinigen-osdi24", "--task", tmp_path / "asked", "-c", "400"]
    store = ["--kv-store", tmp_path / "store"]
    figures = lambda report: [(r["policy"], r.get("nll"), r.get("same_tokens"), r.get("tokens_generated"),
                               r["step"]["entries_used"]) for r in report["runs"]]
    for command in (scored, asked):
        without = json.loads(program(*command)[1])
        for _ in range(2):
            status, out, err = program(*command, *store)
            assert (status, err) == (0, b"") and figures(json.loads(out)) == figures(without)
    listed = json.loads(program("kv", "ls", *store, "--json")[1])
    assert len(listed["prefixes"]) >= 4


def test_contexts_without_a_policy(program, args, tmp_path):
    common = ["perplexity", *args, "-f", tmp_path / "text", "--chunks", "2", "--json"]
    runs = json.loads(program(*common, "-c", "64,128,64")[1])["runs"]
    for run in runs:
        assert json.loads(program(*common, "-c", run["context"])[1])["nll"] == run["nll"] and "kl" not in run
    assert [run["context"] for run in runs] == [64, 128]
    for flags, message in ((["-c", "64,800"], "less than one chunk of 800"), (["-c", "64", "--kv-type", "f16,q8"], "--dense-prefix"),
                           (["-c", "64,32", "--dense-prefix", "40"], "chunks of 32"),
                           (["-c", "32", "--dense-prefix", "-32"], "chunks of 32")):
        status, out, err = program(*common, *flags)
        assert status and out == b"" and message in one_line(err)


def test_table(program, args, tmp_path):
    out = program("perplexity", *args, "-f", tmp_path / "text", "--chunks", "1", "--dense-prefix", "-8", "-c", "64,96",
                  "--kv-policy", "full,infinigen-osdi24", "--kv-alpha", "2,5", "--kv-sketch", "none")[1].decode()
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in out.splitlines()]
    assert lines[0][:4] == ["context", "settings", "policy", "budget"] and {len(line) for line in lines} == {12}
    assert [line[:3] for line in lines[2:]] == [[c, s, p] for c in ("64", "96") for s, p in (
        ("", "full"), ("alpha 2", "infinigen-osdi24"), ("alpha 5", "infinigen-osdi24"))]


def test_questions(program, args, tmp_path):
    """Each answer is that of a session with these settings alone, whatever the others keep."""
    questions = [{"context": words(80, i), "question": words(9, 50 + i), "max_tokens": 6} for i in range(3)]
    (tmp_path / "task").write_text("".join(json.dumps(q) + "\n" for q in questions))

    def ask(*flags):
        status, out, err = program("eval", *args, "--task", tmp_path / "task", "--ignore-eos", "--json", "-o", tmp_path / "out",
                                   *flags)
        assert (status, err) == (0, b"")
        return json.loads(out), [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    report, answers = ask("--kv-policy", "full,window", "--kv-budget", "12", "--kv-type", "q4,f16", "--kv-limit", "100%,60%")
    runs = report["runs"]
    assert len(runs) == 8 and len({tuple(run[key] for key in SETTINGS) for run in runs}) == 8
    assert [run["same_tokens"] == 1 for run in runs if (run["policy"], run["kv_type"], run["limit"]) == ("full", "f16", None)] == [True]
    for run in runs:
        _, alone = ask(*flags_of(run))
        mine = [a["text"] for a in answers if all(a[key] == run[key] for key in SETTINGS)]
        assert mine == [a["text"] for a in alone] and len(mine) == 3
    assert len({tuple(a["text"] for a in answers[i::8]) for i in range(8)}) > 2


def test_benches(program, args):
    common = ["bench", *args, "-p", "0", "-n", "2", "-d", "64", "-r", "1"]
    lists = ["--kv-policy", "full,infinigen-osdi24", "--kv-sketch", "none", "--kv-alpha", "1,20", "--kv-budget", "100%,16"]
    rows = json.loads(program(*common, *lists, "-o", "json")[1])
    assert [(r["policy"], r["alpha"], r["budget"]) for r in rows] == [("full", None, 1)] + [
        ("infinigen-osdi24", alpha, budget) for budget in (1, 16) for alpha in (1, 20)]
    assert rows[1]["selected_share"] <= rows[2]["selected_share"] and rows[4]["selected_share"] < rows[2]["selected_share"]
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in program(*common, *lists)[1].decode().splitlines()]
    assert lines[0][-2:] == ["budget", "settings"] and {len(line) for line in lines} == {14}
    assert [line[-2:] for line in lines[2:]] == [["", ""], ["100%", "alpha 1"], ["100%", "alpha 20"], ["16", "alpha 1"],
                                                ["16", "alpha 20"]]


def test_memory(program, args):
    """KV grows with context and sequences, weights do not."""
    report = json.loads(program("inspect", *args[:2], "--json", "-c", "256,1024,256", "-b", "1,4", "--kv-policy", "full",
                                "--kv-type", "f16,q8")[1])
    plans = report["plans"]
    assert [(p["kv_type"], p["context"], p["batch"]) for p in plans] == [
        (t, c, b) for t in ("f16", "q8") for c in (256, 1024) for b in (1, 4)]
    assert report["memory"] == plans[0]["memory"] and len({p["memory"]["weights"] for p in plans}) == 1
    kv = [p["memory"]["kv"] for p in plans]
    # Two of f16 for each number of a head: K and V of every layer and KV head.
    of_token = 2 * 2 * report["n_layers"] * report["n_kv_heads"] * report["head_dim"]
    assert kv[2] == pytest.approx(1024 * of_token, rel=0.15) and kv[3] == pytest.approx(4 * kv[2], rel=0.1)
    assert kv[6] < 0.6 * kv[2]
    table = program("inspect", *args[:2], "-c", "256,1024")[1].decode()
    assert "| context | batch |" in table and "|    1024 |     1 |" in table
    assert "plans" not in json.loads(program("inspect", *args[:2], "--json")[1])


def test_what_takes_no_list(program, args):
    for flags in (["--kv-alpha", "1,2"], ["--kv-type", "f16,q8"], ["--kv-policy", "full,window"]):
        status, out, err = program("run", *args, "-p", "a", *flags)
        assert status == 2 and out == b"" and "takes one" in one_line(err)


def test_the_most_exact_full_is_the_reference(program, args, tmp_path):
    common = ["perplexity", *args, "-f", tmp_path / "text", "-c", "160", "--chunks", "1", "--dense-prefix", "-24",
              "--kv-policy", "full,infinigen", "--kv-budget", "24", "--kv-type", "q4,f16", "--kv-limit", "50%,100%"]
    runs = json.loads(program(*common, "--json")[1])["runs"]
    assert [(r["policy"], r["kv_type"], r["limit"]) for r in runs if r["reference"]] == [("full", "f16", None)]
    assert [r["kl"] == 0 for r in runs] == [r["reference"] for r in runs]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in program(*common)[1].decode().splitlines() if "| full " in line]
    assert [row[0] for row in rows if "reference" in row] == ["f16"]


@pytest.mark.parametrize("verb", ("perplexity", "eval"))
def test_full_with_a_limit(program, args, tmp_path, verb):
    """It uses what is left, as others do with a budget of all; what is counted and scored is the same."""
    text = (tmp_path / "text").read_text()
    (tmp_path / "task").write_text(json.dumps({"query": text[:150], "choices": [text[150:170], text[300:320]], "answer": 0}) + "\n")
    flags = {"perplexity": ["-f", tmp_path / "text", "-c", "160", "--dense-prefix", "130", "--chunks", "1"],
             "eval": ["--task", tmp_path / "task", "-o", tmp_path / "answers"]}[verb]
    status, out, err = program(verb, *args, *flags, "-b", "64", "--kv-policy", "full,infinigen", "--kv-budget", "100%",
                               "--kv-limit", "30%", "--json")
    full, other = json.loads(out)["runs"]
    fields = ["selected_share", "fetched_share", "block_share"] + (["nll"] if verb == "perplexity" else [])
    assert status == 0 and [full[k] for k in fields] == [other[k] for k in fields]
    assert 0.25 < full["selected_share"] < 0.4 and full["step"]["entries_used"] < full["step"]["entries_seen"]
    if verb == "eval":
        full, other = (json.loads(line)["log_likelihoods"] for line in (tmp_path / "answers").read_text().splitlines())
        assert full == other


def test_a_sketch_for_less_is_not_told(program, args, tmp_path):
    """In longer contexts it is not used, and reports do not say that it was."""
    text, sketch = tmp_path / "text", tmp_path / "sketch.igs"
    assert program("prepare", *args[:4], "-f", text, "-c", "160", "-o", sketch)[0] == 0
    (tmp_path / "task").write_text(json.dumps({"query": text.read_text()[:170], "choices": ["a", "b"], "answer": 0}) + "\n")
    common = [*args, "--kv-sketch", sketch, "--kv-policy", "full,infinigen"]
    scored = ["perplexity", *common, "-f", text, "-c", "160,200", "--dense-prefix", "-8", "--chunks", "1"]
    runs = json.loads(program(*scored, "--json")[1])["runs"]
    assert [(r["context"], r["sketch"]) for r in runs if r["policy"] != "full"] == [(160, str(sketch)), (200, None)]
    rows = program(*scored, "--kv-sketch", "own")[1].decode()
    assert rows.count("sketch sketch.igs") == 1 and rows.count("sketch none") == 3
    timed = program("bench", *common, "-p", "0", "-n", "4", "-d", "156,157", "-r", "1", "-o", "json")[1]
    assert [r["sketch"] for r in json.loads(timed) if r["policy"] != "full"] == [str(sketch), None]
    runs = json.loads(program("eval", *common, "--task", tmp_path / "task", "--json")[1])["runs"]
    assert [r["sketch"] for r in runs] == [None, None]
    plans = json.loads(program("inspect", *common, "-c", "160,161", "--json")[1])["plans"]
    assert [(p["context"], p["sketch"]) for p in plans if p["policy"] != "full"] == [(160, str(sketch)), (161, None)]


def test_a_part_of_the_model_is_not_overwritten(program, tiny, tmp_path):
    shutil.copytree(tiny, tmp_path / "parts")
    part = tmp_path / "parts/model.safetensors"
    before = part.read_bytes()
    (tmp_path / "link").symlink_to(part)
    (tmp_path / "tokens").write_bytes(b"\0" * 64)
    for path in part, tmp_path / "link":
        status, out, err = program("logits", "-m", tmp_path / "parts", "--tokens", tmp_path / "tokens", "-o", path)
        assert status == 1 and "would be overwritten" in one_line(err)
    assert part.read_bytes() == before
    assert program("logits", "-m", tmp_path / "parts", "--tokens", tmp_path / "tokens", "-o", tmp_path / "parts/logits")[0] == 0


def test_a_later_part_of_a_gguf_model_is_not_overwritten(program, tmp_path):
    with open(os.path.join(TINY_MODELS, "gpt-oss/model.gguf"), "rb") as file:
        whole = Gguf(file.read())
    tensors = list(whole.tensors.items())
    for i in range(2):
        part = Gguf.new(split__no=i, split__count=2, split__tensors__count=len(tensors))
        if i == 0:
            part.head, part.n_keys = whole.head + part.head, whole.n_keys + part.n_keys
        part.tensors = dict(tensors[i::2])
        part.write(tmp_path / f"m-0000{i + 1}-of-00002.gguf")
    before = (tmp_path / "m-00002-of-00002.gguf").read_bytes()
    (tmp_path / "tokens").write_bytes(b"\0" * 64)
    logits = ["logits", "-m", tmp_path / "m-00001-of-00002.gguf", "--tokens", tmp_path / "tokens", "-o"]
    status, out, err = program(*logits, tmp_path / "m-00002-of-00002.gguf")
    assert status == 1 and "would be overwritten" in one_line(err)
    assert (tmp_path / "m-00002-of-00002.gguf").read_bytes() == before
    assert program(*logits, tmp_path / "other")[0] == 0


def test_an_adapter_is_not_overwritten(program, tmp_path):
    model, adapter = os.path.join(TINY_MODELS, "llama31"), tmp_path / "adapter"
    shutil.copytree(os.path.join(model, "adapter"), adapter)
    before = (adapter / "adapter_model.safetensors").read_bytes()
    (tmp_path / "tokens").write_bytes(b"\0" * 64)
    status, out, err = program("logits", "-m", model, "--lora", f"a={adapter}:0.5", "--tokens", tmp_path / "tokens",
                               "-o", adapter / "adapter_model.safetensors")
    assert status == 1 and "would be overwritten" in one_line(err)
    assert (adapter / "adapter_model.safetensors").read_bytes() == before


def test_no_model_is_overwritten(program, args, tmp_path):
    model = args[1]
    shutil.copytree(model, tmp_path / "copy")
    weights = tmp_path / "copy/model.safetensors"
    before = weights.read_bytes()
    for flags in (["tasks", "-m", tmp_path / "copy", "--task", "vt", "-c", "4096", "-n", "1", "-o", weights],
                  ["run", "-m", model, "-md", tmp_path / "copy", "--raw", "-p", "a", "-n", "2", "--kv-trace", weights]):
        status, out, err = program(*flags)
        assert status == 1 and "would be overwritten" in one_line(err), err
        assert weights.read_bytes() == before


@pytest.mark.parametrize("flag", ("--kv-trace", "--audit-trace"))
def test_a_command_that_is_refused_changes_no_trace(program, args, tmp_path, flag):
    path = tmp_path / "trace"
    path.write_text("an earlier one, longer than what comes" * 1000)
    before = path.read_text()
    run = ["run", *args[:4], "--raw", "-p", "a b c", "-n", "2", flag, path]
    status, out, err = program(*run, "--kv-ram", "1")
    assert status != 0 and path.read_text() == before, err
    status, out, err = program(*run)
    assert status == 0, err
    assert path.read_text().startswith("step,layer,") and "earlier" not in path.read_text()


def test_two_outputs_are_two_files(program, args, tmp_path):
    (tmp_path / "task").write_text(json.dumps({"query": "a", "choices": ["b", "c"], "answer": 0}) + "\n")
    (tmp_path / "same").write_text("")
    status, out, err = program("eval", *args[:4], "--task", tmp_path / "task", "-o", tmp_path / "same", "--audit-trace", tmp_path / "same")
    assert status == 1 and "would be overwritten" in one_line(err)


@pytest.mark.parametrize("verb", ("run", "perplexity", "eval", "logits", "tasks", "prepare"))
def test_what_is_read_is_not_overwritten(program, args, tmp_path, verb):
    path, text = tmp_path / "text", words(700, 3)
    if verb == "eval":
        text = json.dumps({"query": "a", "choices": ["b", "c"], "answer": 0}) + "\n"
    if verb == "logits":
        text = "\0" * 64  # 16 tokens
    path.write_text(text)
    flags = {"run": ["--raw", "-n", "2", "-f", path, "--kv-trace", tmp_path / "link"],
             "perplexity": ["-f", path, "-c", "96", "--audit-trace", tmp_path / "link"],
             "eval": ["--task", path, "-o", tmp_path / "link"],
             "logits": ["--tokens", path, "-o", tmp_path / "link"],
             "tasks": ["-f", path, "-o", tmp_path / "link"],
             "prepare": ["-f", path, "-o", tmp_path / "link"]}
    (tmp_path / "link").symlink_to(path)
    model = args[:4] if verb != "tasks" else []
    status, out, err = program(verb, *model, *flags[verb])
    assert status == 1 and "would be overwritten, and is read or written already: name another file" in one_line(err), err
    assert path.read_text() == text


@pytest.mark.parametrize("flag", ("--grammar-file", "-jf", "--sources"))
def test_no_trace_over_what_is_read(program, args, tmp_path, flag):
    path, text = tmp_path / "read", {"--grammar-file": 'root ::= "a"', "-jf": "{}", "--sources": "# none"}[flag]
    path.write_text(text)
    status, out, err = program("run", *args[:4], "--raw", "-p", "a", "-n", "2", flag, path, "--kv-trace", path)
    assert status == 1 and "would be overwritten" in one_line(err), err
    assert path.read_text() == text
