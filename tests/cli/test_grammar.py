# SPDX-License-Identifier: Apache-2.0
"""Answers that are bound to a grammar or a JSON schema."""
import json
import re

import pytest
from conftest import make_model, one_line

GRAMMAR = 'root ::= "<" [0-9]{2} ">"'
SCHEMA = {"type": "object", "required": ["city", "size"], "additionalProperties": False,
          "properties": {"city": {"type": "string", "maxLength": 20}, "size": {"type": "integer", "minimum": 1, "maximum": 999}}}


@pytest.fixture
def worded(tmp_path):
    return make_model(tmp_path / "worded")


def test_run(program, worded, tmp_path):
    (tmp_path / "g").write_text(GRAMMAR)
    (tmp_path / "s").write_text(json.dumps(SCHEMA))
    for flags in (["--grammar", GRAMMAR], ["--grammar-file", tmp_path / "g"]):
        status, out, err = program("run", "-m", worded, "--raw", "-p", "a", "-s", 1, *flags)
        assert status == 0 and re.fullmatch(b"<[0-9]{2}>", out), (out, err)
    for flags in (["-j", json.dumps(SCHEMA)], ["--json-schema", json.dumps(SCHEMA)], ["-jf", tmp_path / "s"]):
        status, out, err = program("run", "-m", worded, "--raw", "-p", "a", "-s", 1, "-n", 200, "--json", *flags)
        assert status == 0, err
        report = json.loads(out)
        city = json.loads(report["text"])
        assert list(city) == ["city", "size"] and 1 <= city["size"] <= 999 and report["finish"] == "end"


def test_real_model(program, model):
    status, out, err = program("run", "-m", model, "-p", "Name the largest city of France and its country.", "--temp", 0, "-j", json.dumps({
        "type": "object", "required": ["city", "country"],
        "properties": {"city": {"type": "string", "maxLength": 30}, "country": {"type": "string", "maxLength": 30}}}))
    assert status == 0 and json.loads(out)["city"] == "Paris", (out, err)


def test_every_answer_of_a_chat(program, model):
    status, out, err = program("chat", "-m", model, "--temp", 0, "--grammar", 'root ::= "yes" | "no"', stdin=b"Is snow white?\nIs it hot?\n")
    assert status == 0 and re.fullmatch(b"(yes|no)\n(yes|no)\n", out), (out, err)


def test_refused(program, worded, tiny, tmp_path):
    for flags, wanted, needle in (
            (["--grammar", "root ::= ("], 2, "--grammar: grammar, line 1"), (["--grammar", "a ::= a"], 2, "no rule 'root'"),
            (["-j", "{"], 2, "--json-schema: "), (["-j", '{"not": {}}'], 2, "'not' is not supported"),
            (["-jf", tmp_path / "none"], 1, "none"), (["-j", "{}", "--grammar", GRAMMAR], 2, "more than one grammar"),
            (["--grammar-file", "/dev/null"], 1, "no rule 'root'")):
        status, out, err = program("run", "-m", worded, "--raw", "-p", "a", "-n", 1, *flags)
        assert status == wanted and needle in one_line(err), (flags, out, err)
    (tmp_path / "zero").write_bytes(b"root ::= \"a\0b\"")
    status, out, err = program("run", "-m", worded, "--raw", "-p", "a", "--grammar-file", tmp_path / "zero")
    assert status == 1 and "a zero byte" in one_line(err)
    status, out, err = program("serve", "-m", worded, "--grammar", GRAMMAR)
    assert status == 2 and "requests carry it" in one_line(err)
