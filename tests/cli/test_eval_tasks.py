# SPDX-License-Identifier: Apache-2.0
"""Generated answers of `infinigen eval`: what they must hold, how much goes through the policy, questions in turn, tables by
task and length. Mostly on a tiny model of random weights, whose tokens are bytes: what it writes under `full` is taken as
right."""
import json

import pytest
from conftest import make_model, one_line
from test_eval import answers, evaluate, write

CONTEXT = "The quick brown fox jumps over the lazy dog, and so on and on, until the evening comes. " * 3
SMALL = ["--kv-recent", 4, "--kv-sinks", 1]


@pytest.fixture
def tiny_model(tmp_path):
    return make_model(tmp_path / "model")


def ask(program, model, tmp_path, rows, *args):
    """The reports, and what was answered."""
    report, = evaluate(program, model, "--task", write(tmp_path / "t.jsonl", rows), "-o", tmp_path / "answers", *args)
    return report, answers(tmp_path / "answers")


def tokens_of(text):
    """A piece for each token that the tiny model wrote: bytes stand for themselves, others are written as <number>."""
    return [piece for piece in text.replace("<", "\0<").replace(">", ">\0").split("\0") if piece.startswith("<")]


def test_strings_anywhere(program, tiny_model, tmp_path):
    question = {"context": CONTEXT, "question": "What comes?", "max_tokens": 40}
    report, (line,) = ask(program, tiny_model, tmp_path, [question], "--kv-policy", "full")
    assert "accuracy" not in report and report["tokens_generated"] == 40 and line["tokens_prompt"] == len(CONTEXT) + 11
    pieces = list(dict.fromkeys(tokens_of(line["text"])))
    assert len(pieces) > 3
    early, late, none = pieces[0], pieces[-1], "no such words"
    rows = [{**question, "answers": a, "match": m} for a, m in (
        ([late, early, none], "all"), ([none, late], "any"), ([early], "all"), ([none], "any"), ([early, late], "all"))]
    report, lines = ask(program, tiny_model, tmp_path, rows, "--kv-policy", "full")
    assert [x["score"] for x in lines] == [pytest.approx(2 / 3), 1, 1, 0, 1]
    assert [x["right"] for x in lines] == [False, True, True, False, True]
    assert report["accuracy"] == pytest.approx((2 / 3 + 3) / 5) and 0.1 < report["accuracy_error"] < 0.3
    # It ends as soon as nothing more can change.
    assert [x["tokens_generated"] == 40 for x in lines] == [True, False, False, True, False]
    assert lines[2]["tokens_generated"] < lines[1]["tokens_generated"] == lines[4]["tokens_generated"]
    assert all(line["text"].startswith(x["text"]) for x in lines)


def test_case_is_ignored(program, model, tmp_path):
    rows = [{"prompt": "One two three four five six seven eight nine ten. One two three four five six", "answers": [word],
             "max_tokens": 6} for word in (" SEVEN eight", " seven nine")]
    report, lines = ask(program, model, tmp_path, rows, "--kv-policy", "full")
    assert [x["score"] for x in lines] == [1, 0] and report["accuracy"] == 0.5


def test_the_first_number(program, model, tmp_path):
    """It must be the whole number, whatever stands before it; its sign counts."""
    counted, below = "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19", "-1 -2 -3 -4 -5 -6 -7 -8 -9 -10 -11 -12 -13"
    rows = [{"prompt": prompt, "answers": [a], "match": "number", "max_tokens": n} for prompt, a, n in (
        (counted, "20", 9), (counted, "2", 9), (counted, "-20", 9), (counted, "21", 9), (counted, "20", 3), (counted, "2", 1),
        (below, "-14", 9), (below, "14", 9))]
    report, lines = ask(program, model, tmp_path, rows, "--kv-policy", "full")
    assert lines[0]["text"].split()[0] == "20", "the model counts on"
    assert [x["score"] for x in lines] == [1, 0, 0, 0, 1, 0, 1, 0] and report["accuracy"] == 3 / 8
    # It ends at what stands behind the number, or where no more may come.
    assert lines[0]["text"] == lines[1]["text"] and lines[0]["text"].strip() == "20" and lines[0]["tokens_generated"] < 6


def test_what_goes_through_the_policy(program, tiny_model, tmp_path):
    """The whole question where it is apart, the last 8 tokens of a prompt, and what --dense-prefix says."""
    question, policy = "And what comes after that, I wonder?", ["--kv-policy", "quest", "--kv-budget", 24, *SMALL]
    apart = {"context": CONTEXT, "question": question, "answer_prefix": " It is", "max_tokens": 30}
    whole = {"prompt": CONTEXT + question + " It is", "max_tokens": 30}
    n = len(whole["prompt"])

    def text(row, *args):
        return ask(program, tiny_model, tmp_path, [row], *policy, *args)[1][0]["text"]
    assert text(apart) == text(whole, "--dense-prefix", len(CONTEXT)) != text(whole)
    assert text(whole) == text(whole, "--dense-prefix", n - 8) == text(apart, "--dense-prefix", n - 8)
    assert text(whole, "--dense-prefix", "100%") == text(whole, "--dense-prefix", n) != text(whole)
    assert text(apart, "--dense-prefix", "20%") == text(whole, "--dense-prefix", n // 5)
    choice = [{"query": CONTEXT.strip(), "choices": [" abc", " xyz"], "answer": 0}]
    found = [ask(program, tiny_model, tmp_path, choice, *policy, *args)[1][0]["log_likelihoods"]
             for args in ([], ["--dense-prefix", len(CONTEXT) - 2], ["--dense-prefix", "20%"])]
    assert found[0] == found[1] != found[2]
    status, out, err = program("eval", "-m", tiny_model, "--task", tmp_path / "t.jsonl", "--dense-prefix", "0")
    assert status == 2 and out == b"" and "--dense-prefix: '0' is out of range" in one_line(err)


def test_one_context_is_computed_once(program, tiny_model, tmp_path):
    """Of several questions about it, on lines or in turn: what is written to disk tells, beside what one of them keeps there.
    (What goes before it is written is never written, so that less may be.)"""
    context, questions = CONTEXT * 8, ["Who jumps?", "Over whom, then?", "Until when?"]
    rows = [{"context": context, "question": q, "max_tokens": 8} for q in questions]
    turns = [{"context": context, "questions": [{"question": q, "max_tokens": 8} for q in questions]}]
    lines = []
    for part in (rows[-1:], rows, turns):
        report, found = ask(program, tiny_model, tmp_path, part, "-ub", 64, "--kv-policy", "infinigen", "--kv-disk", "100M")
        assert report["kv"]["written_bytes"] < 1.5 * report["kv"]["disk"]
        lines.append(found)
    assert {**lines[1][2], "line": 1} == lines[0][0]
    assert lines[2][0]["turns"][0]["text"] == lines[1][0]["text"]


def test_questions_in_turn(program, model, tmp_path):
    context = "The secret number of Lisbon is 48213. The secret number of Vienna is 90712. The secret number of Oslo is 33965."
    asked = [f"\nThe secret number of {city} is" for city in ("Vienna", "Lisbon", "Oslo")]
    row = {"context": context, "questions": [{"question": question, "answers": [answer], "max_tokens": 8}
                                             for question, answer in zip(asked, ("90712", "48213", "not that"))]}
    report, (line,) = ask(program, model, tmp_path, [row], "--kv-policy", "full")
    assert report["questions"] == 1 and report["accuracy"] == pytest.approx(2 / 3)
    assert report["turns"] == [{"questions": 1, "accuracy": score} for score in (1, 1, 0)]
    assert [turn["score"] for turn in line["turns"]] == [1, 1, 0] and not line["right"]
    # The third question is read after the two before it, with their answers.
    whole = {"prompt": f"{context}{asked[0]} 90712{asked[1]} 48213{asked[2]}", "max_tokens": 8}
    n = len(program("tokenize", "-m", model, "--ids", "-p", context)[1].split())
    alone = ask(program, model, tmp_path, [whole], "--kv-policy", "full", "--dense-prefix", n)[1][0]["text"]
    assert line["turns"][2]["text"] == alone and "33965" in alone
    status, out, err = program("eval", "-m", model, "--task", write(tmp_path / "t.jsonl", [row]), "--kv-policy", "full,h2o")
    assert status == 0 and out.decode().count("\n  in turn: 1.0000 1.0000 0.0000\n") >= 1


def test_chat(program, tiny_model, tmp_path):
    question = "And what comes after that, I wonder?"
    before, after = f"<|im_start|>user\n{CONTEXT}", f"{question}<|im_end|>\n<|im_start|>assistant\nIt is"
    policy = ["--kv-policy", "window", "--kv-budget", 16, *SMALL]
    row = {"context": CONTEXT, "question": question, "answer_prefix": " It is", "max_tokens": 30}
    line, = ask(program, tiny_model, tmp_path, [row], *policy, "--chat")[1]
    plain, = ask(program, tiny_model, tmp_path, [{"prompt": before + after, "max_tokens": 30}], *policy, "--dense-prefix",
                 len(before))[1]
    assert line == plain and line["tokens_prompt"] == len(before + after)
    choices = write(tmp_path / "c.jsonl", [{"query": "x", "choices": [" a", " b"], "answer": 0}])
    status, _, err = program("eval", "-m", tiny_model, "--task", choices, "--chat")
    assert status == 2 and "c.jsonl: --chat is for questions whose answer is generated" in one_line(err)
    (tiny_model / "tokenizer_config.json").write_text("{}")
    status, _, err = program("eval", "-m", tiny_model, "--task", tmp_path / "t.jsonl", "--chat")
    assert status == 1 and "has no chat template" in one_line(err)


def test_chat_in_turn(program, model, tmp_path):
    """What stands between an answer and the next question is the template's."""
    row = {"context": "My cat is called Minka. My dog is called Rex.", "questions": [
        {"question": f"\nHow is my {pet} called?", "answer_prefix": f" Your {pet} is called", "answers": [name],
         "max_tokens": 8} for pet, name in (("cat", "Minka"), ("dog", "Rex"))]}
    report, (line,) = ask(program, model, tmp_path, [row], "--kv-policy", "full", "--chat")
    assert report["accuracy"] == 1 and [turn["text"] for turn in line["turns"]] == [" Minka", " Rex"]


@pytest.fixture
def grouped(program, tiny_model, tmp_path):
    """Two tasks of two lengths, and one that `full` cannot do."""
    contexts = {(task, length): f"{task}, {length}. {CONTEXT}" for task in ("b", "a") for length in (200, 100)}
    rows = [{"context": c, "question": "What?", "max_tokens": 24, "task": t, "length": n} for (t, n), c in contexts.items()]
    right = [tokens_of(x["text"])[-1] for x in ask(program, tiny_model, tmp_path, rows, "--kv-policy", "full")[1]]
    rows = [{**row, "answers": [answer]} for row, answer in zip(rows, right)]
    rows += [{**row, "answers": ["no such words"]} for row in rows[:1]]
    return rows + [{**rows[0], "task": "hard", "length": 50, "answers": ["no such words"]}]


def test_by_task_and_length(program, tiny_model, tmp_path, grouped):
    report, _ = ask(program, tiny_model, tmp_path, grouped, "--kv-policy", "full,window", "--kv-budget", 16, *SMALL)
    full, window = report["runs"]
    keys = [(x["task"], x["length"]) for x in full["tasks"]]
    assert keys == [("b", 100), ("b", 200), ("a", 100), ("a", 200), ("hard", 50)]
    assert [x["accuracy"] for x in full["tasks"]] == [1, 0.5, 1, 1, 0]
    assert [x["questions"] for x in full["tasks"]] == [1, 2, 1, 1, 1]
    assert [x["counts"] for x in full["tasks"]] == [x["counts"] for x in window["tasks"]] == [True] * 4 + [False]
    assert full["summary"]["accuracy"] == pytest.approx(3.5 / 4) and full["summary"]["groups"] == 4
    assert full["summary"]["worst"]["share_of_full"] == 1
    counted = window["tasks"][:4]
    assert window["summary"]["accuracy"] == pytest.approx(sum(x["accuracy"] for x in counted) / 4)
    assert window["summary"]["accuracy"] < 0.8
    shares = [x["accuracy"] / y["accuracy"] for x, y in zip(counted, full["tasks"])]
    worst = window["summary"]["worst"]
    assert worst["share_of_full"] == min(shares) and (worst["task"], worst["length"]) == keys[shares.index(min(shares))]
    assert full["same_answers"] == full["same_tokens"] == 1 and window["same_answers"] < 1
    assert 0 <= window["same_tokens"] < 1
    mean = sum(x["same_tokens"] * x["questions"] for x in window["tasks"]) / 6
    assert window["same_tokens"] == pytest.approx(mean)
    alone, _ = ask(program, tiny_model, tmp_path, grouped, "--kv-policy", "window", "--kv-budget", 16, *SMALL)
    assert [x["accuracy"] for x in alone["tasks"]] == [x["accuracy"] for x in window["tasks"]]
    assert alone["summary"]["groups"] == 5 and "worst" not in alone["summary"] and "same_tokens" not in alone


def test_full_alone_counts_what_it_cannot_do(program, tiny_model, tmp_path, grouped):
    """It is compared with nothing: its mean is of the same tasks as that of any other policy by itself."""
    report, _ = ask(program, tiny_model, tmp_path, grouped, "--kv-policy", "full")
    assert report["summary"] == {"groups": 5, "accuracy": pytest.approx(3.5 / 5)}
    assert [set(x) for x in report["tasks"]] == [{"task", "length", "questions", "accuracy", "counts"}] * 5


def test_nothing_expected(program, tiny_model, tmp_path, grouped):
    """There are no accuracies then: not by task and length, nor by length and depth."""
    rows = [{k: v for k, v in row.items() if k != "answers"} | {"context_words": 9, "depth": 0.5} for row in grouped]
    report, _ = ask(program, tiny_model, tmp_path, rows, "--kv-policy", "full,window", "--kv-budget", 16, *SMALL)
    for run in report["runs"]:
        assert run["summary"] == {"groups": 0, "worst": None} and run["cells"] == [] and "accuracy" not in run
        assert [set(x) for x in run["tasks"]] == [{"task", "length", "questions", "counts", "same_answers", "same_tokens"}] * 5
    rows.append({**rows[0], "answers": grouped[0]["answers"]})  # one of "b" at 200 that says what is right
    report, _ = ask(program, tiny_model, tmp_path, rows, "--kv-policy", "full")
    assert report["accuracy"] == 1 and report["summary"] == {"groups": 1, "accuracy": 1}
    assert [x.get("accuracy") for x in report["tasks"]] == [None, 1, None, None, None]
    assert [(x["questions"], x["accuracy"]) for x in report["cells"]] == [(1, 1)]
    out = program("eval", "-m", tiny_model, "--task", tmp_path / "t.jsonl", "--kv-policy", "full")[1].decode()
    assert [x.split()[-1] for x in out.split("\n\n")[1].splitlines()[1:]] == ["100.0", "full", "full", "100.0"]


def test_table_by_task_and_length(program, tiny_model, tmp_path, grouped):
    args = ["eval", "-m", tiny_model, "--task", write(tmp_path / "t.jsonl", grouped), "--kv-policy", "window,full",
            "--kv-budget", 16, *SMALL]
    out = program(*args)[1].decode()
    lines = [line.split() for line in out.split("\n\n")[1].splitlines()]
    assert lines[0] == ["task,", "by", "length", "policy", "budget", "50", "100", "200"]
    assert [line[0] for line in lines[1::2]] == ["b", "a", "hard", "mean", "worst"] and len(lines) == 10
    assert lines[2] == ["full", "100.0", "50.0"] and lines[4] == ["full", "100.0", "100.0"]
    assert lines[5] == ["hard", "window", "16", "(0.0)"] and lines[6] == ["full", "(0.0)"]
    assert lines[8] == ["full", "100.0", "75.0"]
    assert lines[9][:3] == ["worst", "window", "16"] and lines[9][-3:] == ["%", "of", "full"]
    head, first, *_ = program(*args, "--kv-type", "f16,q8")[1].decode().split("\n\n")[1].splitlines()
    assert head.split()[3:6] == ["policy", "settings", "budget"] and len(head) == len(first)
    many = [{**grouped[0], "length": n, "max_tokens": 1} for n in range(1, 27)]
    write(tmp_path / "t.jsonl", many)
    assert program(*args)[1].decode().endswith("\nmore than 24 lengths: --json has them\n")


def test_made_tasks_can_be_asked(program, tiny_model, tmp_path):
    """Each kind, in the length it was made for: nothing is skipped."""
    status, out, _ = program("tasks", "-m", tiny_model, "-c", 5000, "-n", 1, "-o", tmp_path / "made.jsonl", "--task",
                             "niah_multikey_3,vt,kv_retrieval,multi_turn")
    assert status == 0 and out == b""
    report, = evaluate(program, tiny_model, "--task", tmp_path / "made.jsonl", "-c", 5000, "--kv-policy", "full")
    assert report["questions"] == 4 and report["skipped"] == 0 and len(report["tasks"]) == 4
    assert [x["length"] for x in report["tasks"]] == [5000] * 4 and [x["questions"] for x in report["turns"]] == [1] * 5


def test_long_generations(program, tiny_model, tmp_path):
    """Nothing is expected: only what is the same counts. An end token ends an answer unless it is told not to."""
    row = {"prompt": "Once upon a time", "max_tokens": 300}
    report, lines = ask(program, tiny_model, tmp_path, [row], "--kv-policy", "full,window,infinigen", "--kv-budget",
                        "32,100%", "--ignore-eos", *SMALL)
    runs = {(r["policy"], r["budget"]): r for r in report["runs"]}
    assert all(x["tokens_generated"] == 300 and "accuracy" not in x for x in [*lines, *report["runs"][:0]])
    assert all("accuracy" not in run for run in report["runs"])
    assert runs["window", 1]["same_tokens"] == runs["infinigen", 1]["same_tokens"] == 1
    texts = [next(x["text"] for x in lines if (x["policy"], x["budget"]) == key) for key in (("full", 1), ("window", 32))]
    assert texts[0] != texts[1] and 0 < runs["window", 32]["same_tokens"] < 1 and runs["window", 32]["same_answers"] == 0


@pytest.mark.parametrize("row, message", [
    ({"context": "c"}, '"question" is missing'),
    ({"context": "c", "question": "q", "answers": "a"}, '"answers" is not an array of 1 to 100000 strings'),
    ({"context": "c", "questions": [{"question": "q", "answers": ["a"], "match": 7}]}, '"match" is not a string'),
    ({"prompt": "p", "answers": ["a"], "match": "some"}, '"match" is none of "all", "any" and "number"'),
    ({"prompt": "p", "answers": ["1a"], "match": "number"}, '"answers" is not one whole number, as "match" says'),
    ({"prompt": "p", "answers": ["1", "2"], "match": "number"}, '"answers" is not one whole number, as "match" says'),
    ({"prompt": "p", "answers": ["-"], "match": "number"}, '"answers" is not one whole number, as "match" says'),
    ({"prompt": "p", "answers": ["a"], "max_tokens": 10**7}, '"max_tokens" is not a whole number from 1 to 1048576'),
    ({"prompt": "p", "answers": ["a"], "task": "\x1b[2J"}, '"task" is not a word of 1 to 64 ASCII characters'),
])
def test_malformed_lines(program, tmp_path, row, message):
    status, out, err = program("eval", "-m", "none", "--task", write(tmp_path / "t.jsonl", [row]))
    assert status == 1 and out == b"" and f"t.jsonl:1: {message}" in one_line(err)
