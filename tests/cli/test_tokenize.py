# SPDX-License-Identifier: Apache-2.0
"""Tokenizers whose files are made for the test: no weights are needed."""
import json

import pytest
from conftest import one_line


@pytest.fixture
def make_tokenizer(tmp_path):
    def make(regex=None, **model):
        steps = [{"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}] if regex else []
        steps.append({"type": "ByteLevel", "add_prefix_space": False, "use_regex": not regex})
        (tmp_path / "tokenizer.json").write_text(json.dumps({
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
            "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"], **model}}))
        return tmp_path
    return make


def test_bytes_without_a_token(program, make_tokenizer):
    """As the tokenizers package has it, they are left out; but that is said."""
    status, out, err = program("tokenize", "-m", make_tokenizer(), "--ids", "-p", "abzé a")
    assert (status, out) == (0, b"2 0\n")
    assert "nothing for 4 bytes of the text" in one_line(err)
    assert program("tokenize", "-m", make_tokenizer(unk_token="b"), "--ids", "-p", "abz a") == (0, b"2 1 1 0\n", b"")


def test_expression_that_takes_too_much_work(program, make_tokenizer):
    status, out, err = program("tokenize", "-m", make_tokenizer("(?:(a)|b)*c|."), "--ids", stdin="ab" * 10000)
    assert (status, out) == (1, b"")
    assert "tokenizer.json: pre_tokenizer: expression 1: " in one_line(err)


def test_what_is_no_token(program, make_tokenizer, tmp_path):
    (tmp_path / "ids").write_text("0 1 hello\n2\n")
    for args, message in ((["-f", tmp_path / "ids"], "'hello' is not a token id"), (["-p", "0 3"], "token id 3 is not between 0 and 2"),
                          (["-p", "1,-2"], "token id -2 is not between 0 and 2"), (["-p", "x" * 30], f"'{'x' * 20}' is not a token id")):
        status, out, err = program("tokenize", "-m", make_tokenizer(), "--decode", *args)
        assert (status, out) == (2, b"") and message in one_line(err)


def test_terminal_is_not_driven(terminal, make_tokenizer, tmp_path):
    """What U+009B begins with, without its end, then bytes that would be a command behind an escape."""
    folder = make_tokenizer(vocab={"\u00c2": 0, "[": 1, "2": 2, "J": 3}, merges=[])
    (tmp_path / "ids").write_bytes(b"0 \033[2J")
    shown, status = terminal("tokenize", "-m", folder, "--decode", "-p", "0 1 2 3").finish()
    assert status == 0 and b"\xc2[2J" in shown and b"\033" not in shown
    shown, status = terminal("tokenize", "-m", folder, "--decode", "-f", tmp_path / "ids").finish()
    assert status == 2 and b"is not a token id" in shown and b"\033" not in shown
