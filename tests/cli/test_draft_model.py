# SPDX-License-Identifier: Apache-2.0
"""A draft model beside a model: the same text, told memory, and what is refused."""
import json
import os

import pytest

from conftest import make_model, one_line, words


@pytest.fixture
def pair(tmp_path):
    return make_model(tmp_path / "model"), make_model(tmp_path / "draft")


def test_the_text_is_the_same(program, pair):
    model, draft = pair
    run = ("run", "-m", model, "-c", 512, "-p", words(60, 2), "-n", 40, "--temp", 0, "-t", 2)
    plain = program(*run, "--draft", 0)
    assert plain[0] == 0
    for flags in (("-md", draft), ("--spec-draft-model", draft, "--draft-p-min", 0.5, "-ngld", 99, "-td", 2),
                  ("-md", draft, "--kv-type", "f16", "--spec-draft-n-max", 3, "--spec-type", "draft-simple")):
        assert program(*run, *flags)[:2] == plain[:2]


def test_its_memory_is_told(program, pair):
    model, draft = pair
    plain = json.loads(program("inspect", "-m", model, "-c", 512, "--json")[1])["memory"]
    plan = json.loads(program("inspect", "-m", model, "-c", 512, "-md", draft, "--json")[1])["memory"]
    assert "drafts" not in plain and plan["drafts"] > 0 and plan["total"] >= plain["total"] + plan["drafts"]
    assert b"drafts" in program("inspect", "-m", model, "-c", 512, "-md", draft)[1]


def test_what_is_refused(program, pair, tmp_path):
    model, draft = pair
    other = make_model(tmp_path / "other")
    tokens = json.loads((other / "vocab.json").read_text())
    tokens["<300>"], tokens["<301>"] = 301, 300
    (other / "vocab.json").write_text(json.dumps(tokens))
    run = ("run", "-m", model, "-p", "one", "-n", 2)
    for flags, code, message in ((("-md", tmp_path / "none.gguf"), 1, "none.gguf: no such file"),
                                 (("-md", "qwen2.5-coder-0.5"), 1, "did you mean 'qwen2.5-coder-0.5b'?"),
                                 (("-md", other), 2, "its token 300 is another text"),
                                 (("-md", draft, "--kv-policy", "h2o"), 2, "-md: leave it out"),
                                 (("-md", draft, "--kv-policy", "snapkv"), 2, "by the policy snapkv"),
                                 (("-md", draft, "--draft", 0), 2, "with --draft 0")):
        status, out, err = program(*run, *flags)
        assert status == code and out == b"" and message in one_line(err)
    status, _, err = program("perplexity", "-m", model, "-md", draft, "-f", os.devnull)
    assert status == 2 and "run, chat and serve take a draft model" in one_line(err)
    status, _, err = program(*run, "-md", make_model(tmp_path / "recurrent", "lfm2"))
    assert status == 1 and "recurrent layers cannot go back" in one_line(err)
