# SPDX-License-Identifier: Apache-2.0
"""Questions with a known answer: `infinigen eval`, on smollm2-135m."""
import array
import json
import math
import signal
import time

import pytest
from conftest import one_line

CAPITALS = [("France", "Paris"), ("Italy", "Rome"), ("Japan", "Tokyo"), ("Spain", "Madrid"), ("Egypt", "Cairo")]
FILLER = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again. "


@pytest.fixture(autouse=True)
def no_warnings(program):
    """What does nothing in some of the runs is said, and is not what is tested here."""
    program.env["IG_LOG"] = "error"


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def capitals(answer=0, wrong=" a kind of soup made of stones"):
    return [{"query": f"The capital of {country} is", "choices": [f" {city}", wrong], "answer": answer}
            for country, city in CAPITALS]


def needles(words=40):
    text = FILLER * words
    question = "The speckled hen comes to the kitchen door when she is called by the word"
    return [{"prompt": f"{text}{question} {word}. Remember it: {word}. {text}\n{question}", "answer": word,
             "context_words": 40 * words, "depth": 0.5} for word in ("marigold", "cinnamon")]


def evaluate(program, model, *args):
    status, out, err = program("eval", "-m", model, "--json", *args)
    assert status == 0 and err == b"", err
    reports = json.loads(out)
    return reports if isinstance(reports, list) else [reports]


def answers(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_choices(program, model, tmp_path):
    right, wrong = write(tmp_path / "right.jsonl", capitals()), write(tmp_path / "wrong.jsonl", capitals(answer=1))
    first, second = evaluate(program, model, "--task", right, "--task", wrong, "-o", tmp_path / "answers")
    assert first["task"] == str(right) and first["questions"] == 5 and first["skipped"] == 0 and first["shots"] == 0
    assert first["accuracy"] == 1 and first["accuracy_error"] == 0 and first["accuracy_norm"] == 1
    assert first["policy"] == "infinigen" and first["tokens_scored"] >= 5 * 6 and first["seconds"] > 0
    assert second["accuracy"] == 0 and "interrupted" not in second
    lines = answers(tmp_path / "answers")
    assert [line["task"] for line in lines] == ["right"] * 5 + ["wrong"] * 5
    assert lines[3]["line"] == 4 and lines[3]["chosen"] == 0 and lines[8]["answer"] == 1
    assert lines[3]["log_likelihoods"] == lines[8]["log_likelihoods"]


def test_log_likelihood(program, model, tmp_path):
    """What the logits of one dense pass say, as near as 8-bit activations let it be."""
    query, choice = "The capital of France is", " the city of Paris."
    task = write(tmp_path / "t.jsonl", [{"query": query, "choices": [choice, " no"], "answer": 0}])
    evaluate(program, model, "--task", task, "--kv-policy", "full", "-o", tmp_path / "answers")
    tokens = [[int(i) for i in program("tokenize", "-m", model, "--ids", "-p", text)[1].split()]
              for text in (query, query + choice)]
    (tmp_path / "tokens").write_bytes(array.array("i", tokens[1]).tobytes())
    assert program("logits", "-m", model, "--tokens", tmp_path / "tokens", "-o", tmp_path / "logits")[0] == 0
    logits = array.array("f", (tmp_path / "logits").read_bytes())
    n_vocab, expected = len(logits) // len(tokens[1]), 0
    for i in range(len(tokens[0]), len(tokens[1])):
        row = logits[(i - 1) * n_vocab:i * n_vocab]
        most = max(row)
        expected += row[tokens[1][i]] - most - math.log(sum(math.exp(x - most) for x in row))
    assert abs(answers(tmp_path / "answers")[0]["log_likelihoods"][0] - expected) < 0.6


def test_prefixes(program, model, tmp_path):
    task = write(tmp_path / "t.jsonl", [
        {"prefixes": ["She drank a cup of hot concrete", "She drank a cup of hot tea"],
         "suffix": " with milk.", "answer": 1},
        {"prefixes": ["The dog barked at the cat", "The equation barked at the cat"],
         "suffix": " and chased it up a tree.", "answer": 0}])
    report, = evaluate(program, model, "--task", task)
    assert report["accuracy"] == 1 and report["questions"] == 2 and "accuracy_norm" not in report


def test_shots(program, model, tmp_path):
    """The examples are put before the query as text."""
    shots = write(tmp_path / "shots.jsonl", [{"query": "Sea:", "choices": [" wet", " dry"], "answer": 0},
                                             {"query": "Sand:", "choices": [" wet", " dry"], "answer": 1}])
    query = {"query": "Rain:", "choices": [" wet", " dry"], "answer": 0}
    task = write(tmp_path / "t.jsonl", [query])
    by_hand = write(tmp_path / "u.jsonl", [{**query, "query": "Sea: wet\n\nSand: dry\n\nRain:"}])
    # Examples are computed as a batch of their own, unless the policy must see all of the prompt.
    for policy, difference in (("h2o", 0), ("infinigen", 0.3)):
        flags = ["--kv-policy", policy, "--kv-budget", "100%"]
        report, = evaluate(program, model, "--task", task, "--shots", 2, "--shots-file", shots, "-o", tmp_path / "a",
                           *flags)
        evaluate(program, model, "--task", by_hand, "-o", tmp_path / "b", *flags)
        evaluate(program, model, "--task", task, "-o", tmp_path / "c", *flags)
        a, b, c = (answers(tmp_path / name)[0]["log_likelihoods"] for name in "abc")
        assert report["shots"] == 2 and a == pytest.approx(b, abs=difference, rel=0)
        assert a != pytest.approx(c, abs=2 * difference, rel=0)


def test_needles(program, model, tmp_path):
    task = write(tmp_path / "n.jsonl", needles(8) + needles(40))
    report, = evaluate(program, model, "--task", task, "-c", 800, "--kv-policy", "full", "-o", tmp_path / "answers")
    assert report["questions"] == 2 and report["skipped"] == 2 and report["context"] == 800
    assert report["accuracy"] == 1 and report["tokens_generated"] >= 2
    assert report["cells"] == [{"context_words": 320, "depth": 0.5, "questions": 2, "accuracy": 1}]
    assert [(a["text"], a["right"]) for a in answers(tmp_path / "answers")] == [("marigold", True), ("cinnamon", True)]
    long = write(tmp_path / "l.jsonl", needles(8)[:1] + [{"prompt": "word " * 9000, "answer": "x"}])
    assert b"1 questions were skipped: longer than the context of 8192 tokens" in program("eval", "-m", model, "--task", long)[1]
    sparse, = evaluate(program, model, "--task", task, "--kv-budget", "10%", "-c", 800)
    assert sparse["kv"]["selected_share"] < 0.3 and sparse["questions"] == 2
    blanks = write(tmp_path / "b.jsonl", [{**row, "answer": f" {row['answer']}"} for row in needles(8)])
    assert evaluate(program, model, "--task", blanks)[0]["accuracy"] == 1
    wrong = write(tmp_path / "w.jsonl", [{**row, "answer": "99999"} for row in needles(8)])
    assert evaluate(program, model, "--task", wrong)[0]["accuracy"] == 0


def test_table(program, model, tmp_path):
    task, needle = write(tmp_path / "cities.jsonl", capitals()), write(tmp_path / "key.jsonl", needles(8))
    status, out, err = program("eval", "-m", model, "--task", task, "--task", needle, "--limit", 2,
                               "--kv-policy", "full")
    lines = out.decode().splitlines()
    assert status == 0 and err == b"" and len(lines) == 4
    assert lines[0].split() == ["task", "n", "acc", "+/-", "acc_norm", "policy", "KV", "used", "tokens/s"]
    assert lines[1].split()[:6] == ["cities", "2", "1.0000", "0.0000", "1.0000", "full"]
    assert lines[2].split()[:5] == ["key", "2", "1.0000", "0.0000", "full"]
    assert lines[3].split() == ["320", "words", "2", "1.0000", "at", "depth", "0.5:", "2/2"]


def test_budget_of_everything(program, model, tmp_path):
    task = write(tmp_path / "t.jsonl", capitals())
    for name, flags in (("a", ["--kv-policy", "full"]), ("b", ["--kv-budget", "100%"])):
        evaluate(program, model, "--task", task, "-o", tmp_path / name, *flags)
    settings = {"policy": None, "budget": None, "sketch": None}
    assert [a | settings for a in answers(tmp_path / "a")] == [b | settings for b in answers(tmp_path / "b")]


def expect_runs_as_alone(program, model, tmp_path, *args, policies, budgets):
    """One dense context for all gives the same bits as one for each; also where a policy must see the prompt."""
    report, = evaluate(program, model, *args, "--kv-policy", ",".join(policies), "--kv-budget", ",".join(budgets),
                       "-o", tmp_path / "answers")
    lines = answers(tmp_path / "answers")
    pairs = [(p, b) for p in policies for b in (["100%"] if p == "full" else budgets)]
    assert len(report["runs"]) == len(pairs) and "policy" not in report and "accuracy" not in report
    assert len(lines) == report["questions"] * len(pairs)
    for run, (policy, budget) in zip(report["runs"], pairs):
        single, = evaluate(program, model, *args, "--kv-policy", policy, "--kv-budget", budget,
                           "-o", tmp_path / "alone")
        key = {k: run[k] for k in ("policy", "budget", "kv_type", "alpha", "partial", "limit", "evict", "sketch")}
        expected = {"policy": policy, "budget": float(budget[:-1]) / 100 if "%" in budget else int(budget)}
        assert {**key, **expected} == key
        assert [line for line in lines if {k: line[k] for k in key} == key] == [
            {**line, **key} for line in answers(tmp_path / "alone")]
        for field in ("accuracy", "accuracy_norm", "tokens_scored", "tokens_generated", "cells"):
            assert run.get(field) == single.get(field), (policy, budget, field)
        for field in ("selected_share", "fetched_share"):
            assert run[field] == pytest.approx(single["kv"][field]), (policy, budget, field)
    return report


def test_runs_are_what_they_are_alone(program, model, tmp_path):
    shots = write(tmp_path / "shots.jsonl", capitals()[:2])
    task = write(tmp_path / "t.jsonl", capitals()[2:4] + [{**capitals()[3], "choices": [" Rome", " a soup"]}])
    args = ["--task", task, "--shots", 2, "--shots-file", shots, "--kv-recent", 4]
    report = expect_runs_as_alone(program, model, tmp_path, *args, policies=["h2o", "full", "infinigen", "window"],
                                  budgets=["10", "100%"])
    runs = {(r["policy"], r["budget"]): r for r in report["runs"]}
    assert report["questions"] == 3 and report["shots"] == 2 and report["runs"][0]["agreement"] == 1
    assert runs["window", 10]["selected_share"] < 0.8 < runs["window", 1]["selected_share"]
    assert runs["full", 1]["agreement"] == runs["window", 1]["agreement"]


def test_prefixes_and_needles_are_what_they_are_alone(program, model, tmp_path):
    prefixes = write(tmp_path / "p.jsonl", [
        {"prefixes": ["She drank a cup of hot concrete", "She drank a cup of hot tea"],
         "suffix": " with milk.", "answer": 1}] * 2)
    expect_runs_as_alone(program, model, tmp_path, "--task", prefixes, "--kv-recent", 1, "--kv-sinks", 1,
                         policies=["infinigen", "full"], budgets=["4"])
    needle = write(tmp_path / "n.jsonl", needles(8))
    report = expect_runs_as_alone(program, model, tmp_path, "--task", needle, policies=["full", "window", "quest"],
                                  budgets=["64"])
    full, window, quest = report["runs"]
    assert full["accuracy"] == 1 and full["agreement"] == 1
    # A window does not reach back to the needle.
    assert window["accuracy"] == 0 and window["agreement"] == 0 and quest["tokens_generated"] > 0


def test_table_of_runs(program, model, tmp_path):
    task, needle = write(tmp_path / "cities.jsonl", capitals()), write(tmp_path / "key.jsonl", needles(8)[:1])
    status, out, err = program("eval", "-m", model, "--task", task, "--task", needle, "--limit", 2,
                               "--kv-policy", "full,window", "--kv-budget", "100%,64")
    lines = [line.split() for line in out.decode().splitlines()]
    assert status == 0 and err == b"" and len(lines) == 1 + 3 + 3 * 2
    assert lines[0] == ["task", "n", "acc", "+/-", "acc_norm", "policy", "budget", "agree", "same", "KV", "used",
                        "tokens/s"]
    assert lines[1][:9] == ["cities", "2", "1.0000", "0.0000", "1.0000", "full", "1.0000", "100.0", "%"]
    assert lines[2][5:8] == ["window", "100%", "1.0000"] and lines[3][5:8] == ["window", "64", "1.0000"]
    assert lines[4][:6] == ["key", "1", "1.0000", "0.0000", "full", "1.0000"]
    assert lines[8][:7] == ["key", "1", "0.0000", "0.0000", "window", "64", "0.0000"]
    assert lines[9] == ["320", "words", "1", "0.0000", "at", "depth", "0.5:", "0/1"]


def test_answers_do_not_depend_on_earlier_questions(program, model, tmp_path):
    shots = write(tmp_path / "shots.jsonl", capitals()[:2])
    rows = capitals()[2:]
    for policy in ("full", "h2o"):
        found = []
        for name, part in (("whole", rows), ("last", rows[-1:])):
            evaluate(program, model, "--task", write(tmp_path / "t.jsonl", part), "--shots", 2, "--shots-file", shots,
                     "--kv-policy", policy, "-o", tmp_path / name)
            found.append(answers(tmp_path / name)[-1]["log_likelihoods"])
        assert found[0] == found[1], policy


def test_needles_in_one_text(program, model, tmp_path):
    """What they begin with is computed once: what is written to disk tells. It changes no answer, and no bit of it."""
    text = needles(8)[0]["prompt"].rsplit("\n", 1)[0]
    rows = [{"prompt": f"{text}\n{question}", "answer": "marigold"}
            for question in ("She comes when she is called by the word", "The hen comes to the word", "Her word, again, is")]
    found = []
    for part in (rows[-1:], rows):
        report, = evaluate(program, model, "--task", write(tmp_path / "t.jsonl", part), "-ub", 32, "--kv-policy", "infinigen",
                           "--kv-disk", "100M", "-o", tmp_path / "answers")
        assert report["kv"]["written_bytes"] < 1.5 * report["kv"]["disk"]
        found.append(answers(tmp_path / "answers")[-1])
    assert {**found[1], "line": 1} == found[0]


@pytest.mark.parametrize("policies", ["infinigen", "full,h2o"])
def test_interrupted(program, model, tmp_path, policies):
    task = write(tmp_path / "t.jsonl", capitals() * 2000)
    p = program.start("eval", "-m", model, "--task", task, "--json", "-o", tmp_path / "answers",
                      "--kv-policy", policies)
    end = time.monotonic() + 120
    while not (tmp_path / "answers").exists() or not (tmp_path / "answers").read_bytes():
        assert time.monotonic() < end and p.poll() is None
        time.sleep(0.02)
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=60)
    report = json.loads(out)
    assert p.returncode == 130 and one_line(err) == "infinigen eval: interrupted\n"
    assert report["interrupted"] is True and 0 < report["questions"] < 10000
    assert report["questions"] * len(report.get("runs", [0])) == len(answers(tmp_path / "answers"))


@pytest.mark.parametrize("rows, message", [
    ("", "t.jsonl: has no questions"),
    ("[]\n", "t.jsonl:1: is no JSON object"),
    ("{\n", "t.jsonl:1: no JSON"),
    ('{"text": "x"}\n', 't.jsonl:1: has none of the keys "choices", "prefixes", "prompt" and "context"'),
    ('{"query": "x", "choices": [" a", " b"], "answer": 0}\n{"query": "x", "choices": [" a", " b"]}\n',
     't.jsonl:2: "answer" is missing'),
])
def test_malformed_files(program, tmp_path, rows, message):
    (tmp_path / "t.jsonl").write_text(rows)
    status, out, err = program("eval", "-m", "none", "--task", tmp_path / "t.jsonl")
    assert status == 1 and out == b"" and message in one_line(err)


def test_byte_order_mark(program, tmp_path):
    """Before the first line it is no part of it; the second line is what is wrong."""
    (tmp_path / "t.jsonl").write_text('\ufeff{"query": "x", "choices": [" a", " b"], "answer": 0}\r\n[]\r\n')
    assert "t.jsonl:2: is no JSON object" in one_line(program("eval", "-m", "none", "--task", tmp_path / "t.jsonl")[2])


@pytest.mark.parametrize("args, message", [
    ([], "--task FILE is missing"),
    (["--task", "x", "--shots", "2"], "--shots needs a --shots-file for each --task"),
    (["--task", "x", "--task", "y", "--shots", "2", "--shots-file", "z"], "needs a --shots-file for each --task"),
    (["--task", "x", "--shots-file", "y"], "--shots-file needs --shots N"),
    (["--task", "x", "--limit", "-2"], "is not between"),
    (["--task", "x", "--kv-budget", "5%,10%", "--kv-trace", "y"], "--kv-trace takes one policy and one setting of each kind"),
])
def test_usage(program, args, message):
    status, out, err = program("eval", "-m", "none", *args)
    assert status == 2 and out == b"" and message in one_line(err)


def test_questions_that_cannot_be_asked(program, model, tmp_path):
    task = write(tmp_path / "t.jsonl", capitals())
    status, out, err = program("eval", "-m", model, "--task", task, "-c", 3)
    assert status == 1 and out == b"" and "every question is longer than the context of 3 tokens" in one_line(err)
    few = write(tmp_path / "few.jsonl", capitals()[:1])
    status, out, err = program("eval", "-m", model, "--task", task, "--shots", 2, "--shots-file", few)
    assert status == 1 and "few.jsonl: has 1 examples, not 2" in one_line(err)
    status, out, err = program("eval", "-m", model, "--task", tmp_path / "none.jsonl")
    assert status == 1 and "none.jsonl: No such file" in one_line(err)
    task = write(tmp_path / "key.jsonl", needles(1))
    status, out, err = program("eval", "-m", model, "--task", task, "--shots", 1, "--shots-file", few)
    assert status == 2 and "needles take no examples" in one_line(err)
