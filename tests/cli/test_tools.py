# SPDX-License-Identifier: Apache-2.0
"""Scripts that make what the documentation shows, and the one that checks where it points."""
import json
import os
import shutil
import subprocess
import sys

import pytest

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


@pytest.mark.parametrize("words, said", [
    (["bench/needles", "NONE"], "needles: "), (["bench/needles", "--words", "99,999999", "LICENSE"], "words are too few for a passage of 999999"), (["bench/needles", "--words", "0", "LICENSE"], "a passage has at least 50"),
    (["bench/compare", "--llama-bench", "NONE", "LICENSE"], "compare: "), (["bench/serve", "--llama-server", "NONE", "LICENSE"], "serve: "),
    (["bench/compare", "--llama-bench", "true", "--infinigen", "NONE", "NONE"], "compare: ")])
def test_what_a_bench_lacks_is_said_in_a_line(words, said, tmp_path):
    path, *args = [{"NONE": tmp_path / "none", "LICENSE": f"{ROOT}/LICENSE"}.get(word, word) for word in words]
    done = script(f"{ROOT}/{path}", *args)
    assert done.returncode == 1 and said in done.stderr.splitlines()[-1] and "Traceback" not in done.stderr


def test_quality_is_measured_again_for_another_program_or_text(tmp_path):
    program, text = tmp_path / "infinigen", tmp_path / "text.txt"
    program.write_text(f"#!/bin/sh\necho x >> '{tmp_path}/calls'\necho table\n")
    program.chmod(0o755)
    text.write_text("Once")

    def calls():
        subprocess.run([f"{ROOT}/bench/quality", "-b", program, "-o", tmp_path / "out", text], check=True, capture_output=True)
        return (tmp_path / "calls").read_text().count("x")
    once = calls()
    assert once > 0 and calls() == once
    program.write_text(program.read_text() + "# another build\n")
    assert calls() == 2 * once
    text.write_text("Twice")
    assert calls() == 3 * once


def test_a_server_that_fails_does_not_leave_the_other(tmp_path):
    other = tmp_path / "llama-server"
    other.write_text(f"""#!{sys.executable}
import http.server, os, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
open({str(tmp_path / "pid")!r}, "w").write(str(os.getpid()))
http.server.HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()
""")
    other.chmod(0o755)
    done = script(f"{ROOT}/bench/serve", "--llama-server", other, "--infinigen", "/bin/false", f"{ROOT}/LICENSE")
    assert done.returncode == 1 and "/bin/false serve" in done.stderr
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


@pytest.mark.parametrize("lengths, tests", [("-p 8 -n 2", ["prompt 8", "generate 2"]), ("-p 8 -n 0", ["prompt 8"]),
                                            ("-p 0 -n 2", ["generate 2"])])
def test_compare(lengths, tests, tmp_path):
    ours = os.path.abspath(os.environ["INFINIGEN"])
    other = tmp_path / "llama-bench"
    other.write_text(f'#!/bin/sh\nexec "{ours}" bench "$@"\n')
    other.chmod(0o755)
    done = script(f"{ROOT}/bench/compare", "--llama-bench", other, "--infinigen", ours, "-r", 1, *lengths.split(),
                  f"{ROOT}/tests/golden/models/llama31")
    rows = [line.split(" | ") for line in done.stdout.splitlines()[4:]]
    assert done.returncode == 0 and [row[1] for row in rows] == tests + ["peak memory, MB"], done.stderr


def test_the_picture_is_that_of_the_table():
    with open(f"{ROOT}/docs/quality.svg", encoding="utf-8") as f:
        assert f.read() == script(f"{ROOT}/tools/plot_quality.py").stdout


def test_rules_of_text(tmp_path):
    (tmp_path / "tools").mkdir()
    check = shutil.copy(f"{ROOT}/tools/check-text", tmp_path / "tools")
    good, licence = "a\n", "/* SPDX-License-Identifier: Apache-2.0 */\n"
    files = {"it's a page.md": good, "a.c": licence, "blank.md": "a \n", "return.md": "a\r\n", "end.md": "a", "tab.c": licence + "\ta\n",
             "none.c": good, "mark.h": licence + "/* TO" "DO */\n", "twice.h": licence + "/* of a */\n/* of b */\n"}
    for name, text in files.items():
        (tmp_path / name).write_bytes(text.encode())
    done = subprocess.run([check], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout == ("trailing blanks:\n./blank.md:1:a \ncarriage returns:\n./return.md\nno newline at the end:\n./end.md\n"
                           "tabs:\n./tab.c:2:\ta\nno licence line:\n./none.c\na comment that belongs to nothing:\n./twice.h:3\nleft-over marks:\n./mark.h:2:/* TO" "DO */\n")
    for name in "blank.md", "return.md", "end.md", "tab.c", "none.c", "mark.h", "twice.h":
        (tmp_path / name).unlink()
    done = subprocess.run([check], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


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
