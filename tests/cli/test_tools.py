# SPDX-License-Identifier: Apache-2.0
"""Scripts that make what the documentation shows, and the one that checks where it points."""
import json
import os
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def script(path, *args):
    return subprocess.run([sys.executable, path, *map(str, args)], capture_output=True, text=True, timeout=60)


def test_the_runner_of_tests_takes_no_arguments():
    p = subprocess.run([os.path.join(ROOT, "test"), "--help"], capture_output=True, timeout=10, check=False)
    assert p.returncode == 2 and p.stdout == b"" and p.stderr.startswith(b"usage: ./test")


def test_needles():
    args = ["--words", "100,300", "--each", 4, f"{ROOT}/LICENSE"]
    out = script(f"{ROOT}/bench/needles", *args).stdout
    questions = [json.loads(line) for line in out.splitlines()]
    assert [q["context_words"] for q in questions] == [100] * 4 + [300] * 4
    for q in questions:
        passage, asked = q["prompt"].split("\n\n")
        city = asked.removeprefix("The secret number of ").removesuffix(" is")
        assert passage.count(f"The secret number of {city} is {q['answer']}.") == 1
        assert passage.count("The secret number of") == 5
        place = passage.index(q["answer"]) / len(passage)
        assert abs(place - q["depth"]) < 0.15
    assert script(f"{ROOT}/bench/needles", *args).stdout == out


def test_the_picture_is_that_of_the_table():
    with open(f"{ROOT}/docs/quality.svg", encoding="utf-8") as f:
        assert f.read() == script(f"{ROOT}/tools/plot_quality.py").stdout


def test_broken_links_are_found(tmp_path):
    for folder in ("tools", "docs"):
        (tmp_path / folder).mkdir()
    check = shutil.copy(f"{ROOT}/tools/check-links", tmp_path / "tools")
    (tmp_path / "docs/a.md").write_text("# A *fine* page: one\n[up](../README.md) [here](#a-fine-page-one) `tools/check-links`\n")
    (tmp_path / "README.md").write_text("# Top\n[a](docs/a.md#a-fine-page-one) [far](https://example.org/x)\n")
    done = script(check)
    assert (done.returncode, done.stdout) == (0, "")
    (tmp_path / "README.md").write_text("[a](docs/b.md) [b](docs/a.md#two) `tools/none` \n")
    done = script(check)
    assert done.returncode == 1
    assert done.stdout.splitlines() == ["README.md: docs/b.md", "README.md: docs/a.md#two",
                                        "README.md: tools/none"]
