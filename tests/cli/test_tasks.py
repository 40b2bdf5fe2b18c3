# SPDX-License-Identifier: Apache-2.0
"""Made tasks: `infinigen tasks`. Lengths are of a tiny model's tokens, which are bytes, or of characters."""
import hashlib
import json
import re
import resource
import signal
import time

import pytest
from conftest import make_model, one_line

RULER = ["niah_single_1", "niah_single_2", "niah_single_3", "niah_multikey_1", "niah_multikey_2", "niah_multikey_3",
         "niah_multivalue", "niah_multiquery", "vt", "cwe", "fwe"]
ALL = RULER + ["kv_retrieval", "pass_key", "records", "multi_turn", "facts_1", "facts_2", "number_string", "math_find", "code_run"]
MATCHES = {"facts_1": "any", "facts_2": "any", "math_find": "number", "code_run": "number"}    # the others: all
NUMBER, UUID = r"[1-9][0-9]{6}", r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"


def make(program, *args):
    status, out, err = program("tasks", *args)
    assert status == 0 and err == b"", err
    return [json.loads(line) for line in out.decode().splitlines()]


def turns_of(line):
    return line.get("questions", [line])


def size_of(line, token):
    """What is read, and what may be written: `token` units for each token of it."""
    turns = turns_of(line)
    read = line["context"] + "".join(t["question"] + t["answer_prefix"] for t in turns)
    return len(read) + token * sum(t["max_tokens"] for t in turns)


def test_every_task(program):
    lines = make(program, "-c", "9000,40000", "-n", 3)
    assert [(x["task"], x["length"]) for x in lines] == [(t, n) for t in ALL for n in (9000, 40000) for _ in range(3)]
    for line in lines:
        assert line["unit"] == "characters" and all(t["match"] == MATCHES.get(line["task"], "all")
                                                          for t in turns_of(line))
        assert size_of(line, 4) == line["size"] <= line["length"], line["task"]
        # The next unit of filler would not have fitted: a line, a word, a record and its answer.
        assert line["size"] > line["length"] - 700, line["task"]
        for turn in turns_of(line):
            if line["task"] == "code_run":    # worked out below
                continue
            assert turn["answers"] and all(a and a not in turn["question"] + turn["answer_prefix"] for a in turn["answers"])
            if line["task"] != "records":
                assert all(a in line["context"] for a in turn["answers"]), line["task"]
    depths = {x["task"]: [y["depth"] for y in lines if y["task"] == x["task"]] for x in lines if "depth" in x}
    assert depths == {t: [0, 0.5, 1] * 2 for t in ("kv_retrieval", "pass_key", "number_string")}


def test_lengths_are_of_tokens(program, tmp_path):
    model = make_model(tmp_path / "model")
    lines = make(program, "-m", model, "-c", 6000, "-n", 2, "--task", "niah_single_2,vt,kv_retrieval,records")
    assert len(lines) == 8
    for line in lines:
        assert line["unit"] == "tokens" and size_of(line, 1) == line["size"]
        assert line["length"] - 400 < line["size"] <= line["length"]


def test_needles(program):
    for line in make(program, "-c", 20000, "-n", 4, "--task", ",".join(RULER[:8])):
        task, context = line["task"], line["context"]
        keys, values = (UUID if task.endswith("y_3") else r"[a-z]+-[a-z]+"), (UUID if task.endswith("_3") else NUMBER)
        needles = re.findall(rf"The secret (?:number|code) for ({keys}) is ({values})\.", context)
        asked = re.search(r" for (.*) that the text above gives\?", line["question"])[1]
        asked = re.split(r", and |, ", asked)
        assert sorted(v for k, v in needles if k in asked) == sorted(line["answers"]), task
        n_keys, n_needles = {"niah_multikey_1": (4, 4), "niah_multivalue": (1, 4), "niah_multiquery": (4, 4)}.get(task, (1, 1))
        if task in ("niah_multikey_2", "niah_multikey_3"):
            assert len(needles) > 100 and len({k for k, _ in needles}) == len(needles)
            assert len(needles) == context.count("\n")
        else:
            assert len(needles) == n_needles and len({k for k, _ in needles}) == n_keys
        assert len(asked) == (4 if task == "niah_multiquery" else 1)


def test_chains(program):
    for line in make(program, "-c", 9000, "-n", 5, "--task", "vt"):
        example, context = line["context"].split("\n\nIn the text below", 1)
        chain = re.findall(r"^LET ([A-Z]{5}) = (\w+)$", context, re.M)
        number = re.search(r"value (\d{5})\?", line["question"])[1]
        assert [v for _, v in chain] == [number] + [k for k, _ in chain][:-1]
        assert [k for k, _ in chain] == line["answers"] and len(set(line["answers"])) == 5
        solved = re.findall(r"^LET ([A-Z]{3}) = \w+$", example, re.M)
        assert example.endswith(" ".join(solved)) and len(solved) == 5


def test_words_that_are_counted(program):
    for length, often, seldom in ((20000, 6, 1), (40000, 30, 3)):
        line, = make(program, "-c", length, "-n", 1, "--task", "cwe")
        words = re.findall(r"(\d+)\. ([a-z]+-[a-z]+)", line["context"].rsplit("\n\n", 1)[1])
        counts = {w: [v for _, v in words].count(w) for _, w in words}
        assert [int(i) for i, _ in words] == list(range(1, len(words) + 1))
        assert {w for w in counts if counts[w] == often} == set(line["answers"]) and len(line["answers"]) == 10
        assert {counts[w] for w in counts} == {often, seldom}
    line, = make(program, "-c", 40000, "-n", 1, "--task", "fwe")
    words = re.findall(r"(?<=[ \n])(?:[a-z]{6}|\.\.\.)(?= |$)", line["context"].split("\n", 1)[1] + " ")
    ranks = sorted(set(words), key=words.count, reverse=True)
    assert ranks[0] == "..." and ranks[1:4] == line["answers"]
    counts = [words.count(w) for w in ranks]
    assert abs(counts[0] / counts[1] - 4) < 0.1 and abs(counts[0] / counts[3] - 16) < 1


def test_pairs_records_turns(program):
    lines = make(program, "-c", 12000, "-n", 3, "--task", "kv_retrieval,records,multi_turn,pass_key")
    for i, line in enumerate(lines[:3]):
        data = json.loads(line["context"].split("JSON data:\n")[1])
        keys = list(data)
        asked = re.search(UUID, line["question"])[0]
        assert len(data) > 80 and data[asked] == line["answers"][0]
        assert keys.index(asked) == round(i / 2 * (len(keys) - 1))
    for line in lines[3:6]:
        people = line["context"].rsplit("\n\n", 1)[1].splitlines()
        assert len(line["answers"]) == 5 * len(people) == len(set(line["answers"])) > 50
        for k, answer in enumerate(line["answers"]):
            value = json.loads("{" + answer + "}")
            assert list(value.values())[0] in people[k // 5]
    for line in lines[6:9]:
        asked = [re.search(r"for ([a-z-]+) that", t["question"])[1] for t in line["questions"]]
        assert len(set(asked)) == 5 and line["context"].count("The secret number for ") == 10
        for key, turn in zip(asked, line["questions"]):
            assert f"for {key} is {turn['answers'][0]}." in line["context"]
    for line in lines[9:] + make(program, "-c", 12000, "-n", 3, "--task", "number_string"):
        at = line["context"].index(line["answers"][0]) / len(line["context"])
        assert abs(at - line["depth"]) < 0.05
        assert line["task"] == "pass_key" or re.fullmatch(r"(?:(\d)\1(?!\1)){5}", line["answers"][0])


def person_of(document):
    find = lambda pattern: re.search(pattern, document)[1]
    assert 5 <= document.count(".") <= 8
    return find(r"about (.*?)\."), {"town": find(r"born in (\w+) in"), "year": find(r"born in \w+ in (\d+)\."),
                                   "trade": find(r"is a (\w+) by trade"), "firm": find(r"works for (\w+)\."),
                                   "spouse": find(r"is married to (.*?)\.")}


def test_documents(program):
    asked = set()
    for line in make(program, "-c", 12000, "-n", 5, "--task", "facts_1,facts_2"):
        documents = re.split(r"\n\nDocument \d+:\n", line["context"].strip())[1:]
        people = dict(map(person_of, documents))
        assert len(people) == len(documents) > 40
        assert all(people[p["spouse"]]["spouse"] == name for name, p in people.items())
        for fact in ("town", "firm"):
            assert len({p[fact] for p in people.values()}) == len(people)
        name = re.search(r"(?:was|of|does|is|whom) ([A-Z]\w+ [A-Z]\w+)\b", line["question"])[1]
        fact = next(f for word, f in (("to whom", "town"), ("Where", "town"), ("year", "year"), ("trade", "trade"),
                                      ("firm", "firm"), ("To whom", "spouse")) if word in line["question"])
        asked.add((line["task"], fact))
        person = people[people[name]["spouse"] if line["task"] == "facts_2" else name]
        assert line["answers"] == [person[fact]]
    assert asked == {("facts_2", "town"), *(("facts_1", f) for f in ("town", "year", "trade", "firm", "spouse"))}


def test_numbers_and_functions(program):
    lines = make(program, "-c", 9000, "-n", 14, "--task", "math_find")
    for i, line in enumerate(lines):
        numbers = json.loads(line["context"].split("\n")[1])
        up, middle = sorted(set(numbers)), sorted(numbers)[len(numbers) // 2]
        right = [*up[:-4:-1], *up[:3], middle][i % 7]
        assert line["answers"] == [str(right)] and len(numbers) % 2 and len(numbers) > 1000
        assert 0 <= up[0] < 20 and 79 < up[-1] < 100 and (up[0] == 0 or up[-1] == 99)
    assert len({re.search(r"the (.*?) number", line["question"])[1] for line in lines}) == 7
    for i, line in enumerate(make(program, "-c", 9000, "-n", 5, "--task", "code_run")):
        names, called = {}, []
        exec(line["context"].split("\n\n", 1)[1], names)
        asked = re.search(r"func_\d+\((-?\d+)\)", line["question"])
        assert line["answers"] == [str(eval(asked[0], names))] and -10 <= int(asked[1]) <= 10
        calls = dict(re.findall(r"def (func_\d+)\(x\):\n    return (\w+)", line["context"]))
        name = asked[0].split("(")[0]
        while name in calls:
            called.append(name)
            name = calls[name]
        assert len(called) == 2 + 2 * i and len(calls) > 100


def test_filler_of_a_text(program, tmp_path):
    text = " ".join(f"Sentence {i} is “quite good.” \n\n" for i in range(50)) + "word " * 100 + "x" * 3000
    (tmp_path / "text").write_text(text)
    line, = make(program, "-c", 8000, "-n", 1, "--task", "niah_single_2", "-f", tmp_path / "text")
    said = [int(i) for i in re.findall(r"Sentence (\d+) is “quite good.”", line["context"])]
    assert all(b == (a + 1) % 50 for a, b in zip(said, said[1:])) and len(said) > 50
    assert line["size"] > 7000
    # What is not UTF-8 is not written, and control characters are blanks.
    (tmp_path / "bytes").write_bytes(b"One.\0\xff two\x07three.\n")
    line, = make(program, "-c", 3000, "-n", 1, "--task", "niah_single_2", "-f", tmp_path / "bytes")
    assert "One. \ufffd two three." in line["context"]
    (tmp_path / "empty").write_bytes(b" \n\t\n")
    for args, message in ((["-f", tmp_path / "empty"], "empty: has no words"), (["-f", tmp_path / "none"], "none: No such file"),
                          (["-o", tmp_path / "no/folder"], "No such file"), (["-o", "/dev/full"], "No space left"),
                          (["-m", "/none"], "/none: no such file"),
                          (["-c", 700], "niah_single_1 does not fit into a length of 700: it takes")):
        status, out, err = program("tasks", *args)
        assert status == 1 and out == b"" and message in one_line(err), args
    # A later one that does not fit is known before the first is written.
    status, out, err = program("tasks", "-c", "4096,1024", "-o", tmp_path / "made")
    assert status == 1 and not (tmp_path / "made").exists()
    assert re.search(r"takes at least \d+ characters \(-c; --task", one_line(err))


def test_a_seed_repeats(program):
    whole = make(program, "-c", "7000,9000", "-n", 3)
    part = make(program, "-c", 9000, "-n", 3, "--task", "multi_turn,fwe")
    assert part == [x for t in ("multi_turn", "fwe") for x in whole if x["task"] == t and x["length"] == 9000]
    assert len({json.dumps(x) for x in whole}) == len(whole)
    other = make(program, "-c", 9000, "-n", 3, "--task", "fwe", "-s", 2)
    assert not any(x in whole for x in other)
    # On every machine: the same bytes as on the one where this was written.
    status, out, _ = program("tasks", "-c", 8000, "-n", 2, "--seed", 7)
    assert status == 0 and hashlib.sha256(out).hexdigest() == GOLDEN


GOLDEN = "9003bced9db518cbd878c10e8d6ad396be47b7b10339e522011dc2785f67e9c6"


def test_help_names_every_task(program):
    text = program("tasks", "--help")[1].decode()
    for task in ALL:
        assert re.search(rf"^ +{task} ", text, re.M)
    status, _, err = program("tasks", "--task", "x")
    assert status == 2 and "niah_single_1" in one_line(err)


@pytest.mark.parametrize("by_link", (False, True))
def test_what_is_cut_off_does_not_stay(program, tmp_path, by_link):
    """A file that may not grow so long, or a run that is interrupted, leaves nothing that looks like a task file."""
    made, name = tmp_path / "made", tmp_path / "name" if by_link else tmp_path / "made"
    if by_link:
        name.symlink_to(made)
    args = "tasks", "-c", 9000, "-n", 3, "-o", name
    p = program.start(*args, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100000, 100000)))
    err = p.communicate(timeout=60)[1]
    assert p.returncode == 1 and one_line(err) == f"infinigen tasks: {name}: File too large\n" and not made.exists()
    p = program.start("tasks", "-c", 9000, "-n", 100000, "-o", name)
    while not made.exists() or not made.stat().st_size:
        assert p.poll() is None
        time.sleep(0.005)
    p.send_signal(signal.SIGINT)
    err = p.communicate(timeout=60)[1]
    assert p.returncode == 130 and "interrupted" in one_line(err) and not made.exists()
