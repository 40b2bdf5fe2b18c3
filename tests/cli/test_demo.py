# SPDX-License-Identifier: Apache-2.0
"""./demo: once with the real model; then with programs in place of the real ones, what it says of what they answer."""
import glob
import os
import re
import shutil
import stat
import subprocess
import sys
import time

import pytest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")

# A model whose tokens are words. RAM: what it needs at least; WRONG: which answers are; OTHER: `full` differs on disk.
PROGRAM = '''import json, os, sys, time
verb, args = sys.argv[1], sys.argv[2:]
def value(name): return args[args.index(name) + 1] if name in args else None
if verb == os.environ.get("FAIL"): sys.exit("infinigen: broken")
policies, ram = (value("--kv-policy") or "").split(","), int(value("--kv-ram") or 400)
if verb == "tokenize":
    print(*open(value("-f")).read().split())
elif verb == "inspect":
    least = int(os.environ.get("RAM", "0"))
    if ram < least: sys.exit(f"infinigen: {ram} bytes of RAM are too few: this context needs at least {least}")
    print(json.dumps({"memory": {"kv": ram, "sketch": 100 * ("infinigen" in policies)}}))
elif verb == "eval":
    if os.environ.get("SLEEP"): time.sleep(60)
    questions = [json.loads(line) for line in open(value("--task"))]
    disk, runs = bool(value("--kv-ram")), []
    with open(value("-o"), "w") as f:
        for q in questions:
            assert q["prompt"].count(q["answer"] + ".") == 2 and len(q["prompt"].split()) < int(value("-c"))
            for policy in policies:
                right = policy not in os.environ.get("WRONG", "-") or q is not questions[1]
                text = q["answer"] if right else "soup"
                if disk and policy == "full": text += os.environ.get("OTHER", "")
                print(json.dumps({"right": right, "text": text, **({"policy": policy} if disk else {})}), file=f)
    for policy in policies:
        at = 2 if policy == "infinigen" else 1 if disk else 0
        runs.append({"policy": policy, "selected_share": (1, 1, 0.05)[at], "generation_tps": (20, 4, 10)[at],
                     "read_bytes_per_token": (0, 8 * 10**6, 2 * 10**6)[at], "stall_share": (0, 0.8, 0.2)[at]})
    print(json.dumps({"runs": runs} if disk else {"kv": {"selected_share": 1}, "speed": {"generation_tps": 20}}))
'''


def executable(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def place(tmp_path):
    shutil.copy(f"{ROOT}/demo", tmp_path / "demo")
    executable(tmp_path / "tools/install-deps", "#!/bin/sh\nexit ${NO_DEPS:-0}\n")
    for tool in ("build", "watch"):
        shutil.copy(f"{ROOT}/tools/{tool}", tmp_path / "tools")
    executable(tmp_path / "bin/cmake", "#!/bin/sh\necho '[7/9] at it'; [ -z \"$NO_BUILD\" ] || { echo error: no; exit 1; }\n")
    executable(tmp_path / "build/release/infinigen", f"#!{sys.executable} -IS\n" + PROGRAM)
    (tmp_path / "tmp").mkdir()
    (tmp_path / "text").write_text("word " * 2000)
    return tmp_path


def start(place, *args, **env):
    env = {**os.environ, "PATH": f"{place}/bin:{os.environ['PATH']}", "TMPDIR": f"{place}/tmp", **env}
    return subprocess.Popen([place / "demo", *args], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, start_new_session=True)


def demo(place, *args, **env):
    p = start(place, *args, **env)
    out, err = p.communicate(timeout=60)
    assert glob.glob(f"{place}/tmp/*") == []
    return p.returncode, out, err


def test_real_model(program, model, tmp_path):
    """All of it but installing and building: every answer is right, in RAM and from disk."""
    if os.path.realpath(program.path) != os.path.realpath(f"{ROOT}/build/release/infinigen"):
        pytest.skip("./demo runs build/release/infinigen, and this is another program")
    (tmp_path / "tools").mkdir()
    for file in ("demo", "tools/build", "tools/watch"):
        shutil.copy(f"{ROOT}/{file}", tmp_path / file)
    for folder in ("build", "examples"):
        os.symlink(os.path.realpath(f"{ROOT}/{folder}"), tmp_path / folder)
    for tool in ("tools/install-deps", "bin/cmake"):
        executable(tmp_path / tool, "#!/bin/sh\n")
    (tmp_path / "cache/infinigen/models").mkdir(parents=True)
    os.symlink(os.path.realpath(model), tmp_path / "cache/infinigen/models/smollm2-135m.gguf")
    (tmp_path / "tmp").mkdir()
    p = start(tmp_path, **{**program.env, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"})
    out, err = p.communicate(timeout=900)
    assert p.returncode == 0, (out, err)
    assert [line.split()[-3:] for line in out.splitlines() if line.startswith("right answers")] == [["3", "of", "3"]]
    assert out.count("(right)") == 3 and "(wrong)" not in out
    assert glob.glob(f"{tmp_path}/tmp/*") == []


def test_table(place):
    status, out, err = demo(place, place / "text")
    assert (status, err) == (0, "")
    rows = {line[:36].strip(): line[36:].split() for line in out.splitlines()}
    assert rows["policy"] == ["full", "full", "infinigen"]
    assert rows["right answers"] == ["3", "of", "3"] * 3 and out.count("(right)") == 3
    assert rows["entries used"] == ["100.0%", "100.0%", "5.0%"]
    assert rows["read from disk per token, MB"] == ["0.0", "8.0", "2.0"]
    assert rows["tokens per second"] == ["20.0", "4.0", "10.0"]
    assert rows["of that time waiting for the disk"] == ["0%", "80%", "20%"]
    assert "With 25% of the keys and values in RAM, 50% with the sketch, infinigen is 2.5 times as fast as full\n" \
           "and reads 25% as much per token. With all of them in RAM, full is 5.0 times as fast." in out
    for words in ("Building", "Fetching", "half a minute"):
        assert words in out


def test_long_text_is_cut(place):
    (place / "text").write_text("word " * 9000)
    status, out, _ = demo(place, place / "text")
    assert status == 0 and "A text of 6000 tokens" in out


def test_least_ram(place):
    status, out, _ = demo(place, place / "text", RAM="300")
    assert status == 0 and "With 75% of the keys and values" in out


def test_wrong_answers(place):
    status, out, err = demo(place, place / "text", WRONG="infinigen")
    assert status == 1 and out.count("(wrong)") == 1 and "soup (wrong)" in out
    assert err == "demo: an answer is wrong, and full in RAM has all of them right\n"
    status, _, err = demo(place, place / "text", WRONG="full,infinigen")
    assert status == 1 and err == "demo: an answer is wrong\n"
    status, _, err = demo(place, place / "text", OTHER="!")
    assert status == 1 and "error in the program" in err


def test_failures(place):
    (place / "short").write_text("word " * 819)
    (place / "few").write_text("words and words " * 300)
    for args, env, said in [((place / "none",), {}, f"{place}/none cannot be read"), ((place,), {}, "cannot be read"),
                            ((place / "short",), {"NO_DEPS": "1"}, "is too short"),
                            ((place / "few",), {}, "the text has only 900 tokens"),
                            ((place / "text",), {"NO_BUILD": "1"}, "the build failed"),
                            ((place / "text",), {"FAIL": "fetch"}, "could not be fetched"),
                            ((place / "text",), {"FAIL": "tokenize"}, "could not be tokenised"),
                            ((place / "text",), {"FAIL": "inspect"}, "could not be inspected"),
                            ((place / "text",), {"FAIL": "eval"}, "could not be asked")]:
        status, _, err = demo(place, *args, **env)
        assert status == 1 and said in err.splitlines()[-1], (args, env, err)
    assert demo(place, place / "text", NO_DEPS="1")[0] == 1
    for args in (("a", "b"), ("--help",)):
        assert demo(place, *args)[::2] == (2, "usage: ./demo [FILE]\n")


def test_interrupt(place):
    p = start(place, place / "text", SLEEP="1")
    for line in p.stdout:
        if line.startswith("A text of"):
            break
    time.sleep(0.5)
    os.killpg(p.pid, 2)
    _, err = p.communicate(timeout=30)
    assert p.returncode == 130 and err.splitlines()[-1] == "demo: interrupted"
    assert glob.glob(f"{place}/tmp/*") == []


WATCHED = "#!/bin/sh\nfor i in 1 2 3; do echo \"[$i/3] making\"; sleep ${PAUSE:-0.7}; done; echo oops >&2; exit ${STATUS:-0}\n"


def test_watch_in_a_pipe(tmp_path):
    executable(tmp_path / "work", WATCHED)
    env = {**os.environ, "PAUSE": "2.2", "STATUS": "3", "WATCH_SECONDS": "5"}
    p = subprocess.run([f"{ROOT}/tools/watch", tmp_path / "log", tmp_path / "work"], env=env, capture_output=True, text=True,
                       timeout=60)
    assert p.returncode == 3 and p.stdout == ""
    assert re.match(r"  0:0\d  \[[23]/3\] making\n", p.stderr)  # the second one where a machine is slow
    assert (tmp_path / "log").read_text().endswith("[3/3] making\noops\n")


def test_watch_on_a_terminal(program, terminal, tmp_path):
    """A line that is written over again, and gone at the end; the words of a program with its own bar are not touched."""
    executable(tmp_path / "work", WATCHED)
    program.path = f"{ROOT}/tools/watch"
    program.env["PAUSE"] = "2"
    seen, status = terminal(tmp_path / "log", tmp_path / "work").finish()
    assert status == 0 and b"making" in seen and seen.endswith(b"\r\x1b[K") and b"\n" not in seen and b"oops" not in seen
    seen, status = terminal("-", tmp_path / "work").finish()
    assert (status, seen) == (0, b"[1/3] making\r\n[2/3] making\r\n[3/3] making\r\noops\r\n")
