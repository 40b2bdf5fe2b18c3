# SPDX-License-Identifier: Apache-2.0
"""Sampling that turns away from repetitions."""
from conftest import one_line

PROMPT = "a b c d. a b c d. a b c d. a b"
GREEDY = ("--raw", "-p", PROMPT, "-n", "3", "--temp", "0")


def test_flags_of_repetitions(program, model):
    """What breaks them can have escapes, and be none."""
    def run(*flags):
        status, out, err = program("run", "-m", model, *GREEDY, *flags)
        assert (status, err) == (0, b"")
        return out

    dry = ("--dry-multiplier", "50")
    assert run().startswith(b" c") and not run(*dry).startswith(b" c")
    assert run(*dry, "--dry-allowed-length", "30").startswith(b" c")
    assert run(*dry, "--dry-penalty-last-n", "4").startswith(b" c")
    assert run(*dry, "--dry-sequence-breaker", " b").startswith(b" c")
    assert not run(*dry, "-e", "--dry-sequence-breaker", r"\n").startswith(b" c")
    assert run(*dry, "-e", "--dry-sequence-breaker", r"\x20b").startswith(b" c")
    assert not run(*dry, "--dry-sequence-breaker", "none").startswith(b" c")


def test_breakers_that_are_none(program, model):
    for text, message in (("", "is empty"), ("x" * 129, "1 to 128 bytes"), (r"a\x00", "zero byte")):
        status, _, err = program("run", "-m", model, *GREEDY, "-e", "--dry-multiplier", "1", "--dry-sequence-breaker", text)
        assert status in (1, 2) and message in one_line(err), err
