# SPDX-License-Identifier: Apache-2.0
"""./demo with programs in place of the real ones: what it says of what they answer. The real thing takes minutes."""
import glob
import os
import shutil
import stat
import subprocess
import sys
import time

import pytest

DEMO = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../demo")

# A model whose tokens are words. RAM: what it needs at least; TEXTS: what it writes from RAM, disk, and with infinigen.
PROGRAM = '''import json, os, sys, time
verb, args = sys.argv[1], sys.argv[2:]
def value(name): return args[args.index(name) + 1] if name in args else None
if verb == os.environ.get("FAIL"): sys.exit("infinigen: broken")
if verb == "tokenize":
    print(*open(value("-f")).read().split())
elif verb == "inspect":
    print(json.dumps({"memory": {"kv": 400}}))
elif verb == "perplexity":
    print(json.dumps({"runs": [{"perplexity": 10}, {"perplexity": 10.5}]}))
elif verb == "run":
    policy, ram = value("--kv-policy"), int(value("--kv-ram") or 400)
    least = int(os.environ.get("RAM", "0"))
    if ram < least: sys.exit(f"infinigen: {ram} bytes of RAM are too few: this context needs at least {least}")
    if value("-p"): sys.exit(0)
    if os.environ.get("SLEEP"): time.sleep(60)
    at = 2 if policy == "infinigen" else 1 if ram < 400 else 0
    with open(value("--kv-trace"), "w") as f:
        print("step,layer,entries,selected,fetched_bytes,hits,misses,ram_bytes,disk_bytes,stall_us", file=f)
        for step in range(3):
            for layer in range(2):
                fetched = 10**9 if step == 0 else (0, 4 * 10**6, 10**6)[at]
                print(step, layer, 9, 9, fetched, 0, 0, 0, 0, (0, 100000, 10000)[at], sep=",", file=f)
    kv = {"selected_share": (1, 1, 0.05)[at], **({"disk": 3 * 10**6} if at else {})}
    print(json.dumps({"text": os.environ.get("TEXTS", " 73914.| 73914.| 73914.").split("|")[at], "policy": policy,
                      "memory": {"kv": ram, "sketch": 0, "peak_rss": 10**8}, "kv": kv,
                      "speed": {"generation_tps": (20, 4, 10)[at]}}))
'''


def executable(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def place(tmp_path):
    if not os.path.exists(DEMO):
        pytest.skip("no ./demo here")
    shutil.copy(DEMO, tmp_path / "demo")
    executable(tmp_path / "tools/install-deps", "#!/bin/sh\nexit ${NO_DEPS:-0}\n")
    executable(tmp_path / "bin/cmake", "#!/bin/sh\n[ -z \"$NO_BUILD\" ] || { echo error: no; exit 1; }\n")
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


def test_table(place):
    status, out, err = demo(place, place / "text")
    assert (status, err) == (0, "")
    rows = {line[:34].strip(): line[34:].split() for line in out.splitlines()}
    assert "Answer of infinigen: 73914. (right)" in out
    assert rows["fetched per generated token, MB"] == ["0.0", "8.0", "2.0"]  # without the prompt's
    assert rows["generation, tokens/s"] == ["20.0", "4.0", "10.0"]
    assert rows["of that time waiting for the disk"] == ["0%", "80%", "20%"]
    assert rows["entries used"] == ["100.0%", "100.0%", "5.0%"]
    assert "With 25% of the keys and values in RAM, infinigen generates at 2.5 times the speed of full,\n" \
           "and fetches 25% as much per token; with all of them in RAM, full generates at 5.0 times that speed." in out
    assert "full 10.000, infinigen 10.500, +5.00%" in out


def test_least_ram(place):
    status, out, _ = demo(place, place / "text", RAM="300")
    assert status == 0 and "With 75% of the keys and values" in out


def test_wrong_answers(place):
    status, out, _ = demo(place, place / "text", TEXTS=" 73914.| 73914.| 5\nand 73914")
    assert status == 0 and "Answer of infinigen: 5 (wrong; full answers: 73914.)" in out
    status, out, _ = demo(place, place / "text", TEXTS="||")
    assert status == 0 and "(wrong" in out
    status, out, err = demo(place, place / "text", TEXTS=" 73914.| 7391| 73914.")
    assert status == 1 and "error in the program" in err


def test_failures(place):
    (place / "short").write_text("word " * 1000)
    for args, env, said in [((place / "none",), {}, f"{place}/none cannot be read"), ((place,), {}, "cannot be read"),
                            ((place / "short",), {}, "the text has only 1000 tokens"),
                            ((place / "text",), {"NO_BUILD": "1"}, "the build failed"),
                            ((place / "text",), {"FAIL": "fetch"}, "could not be fetched"),
                            ((place / "text",), {"FAIL": "tokenize"}, "could not be tokenised"),
                            ((place / "text",), {"FAIL": "inspect"}, "could not be inspected"),
                            ((place / "text",), {"FAIL": "run"}, "broken"),
                            ((place / "text",), {"FAIL": "perplexity"}, "could not be measured")]:
        status, _, err = demo(place, *args, **env)
        assert status == 1 and said in err.splitlines()[-1], (args, env, err)
    assert demo(place, place / "text", NO_DEPS="1")[0] == 1
    for args in (("a", "b"), ("--help",)):
        assert demo(place, *args)[::2] == (2, "usage: ./demo [FILE]\n")


def test_interrupt(place):
    p = start(place, place / "text", SLEEP="1")
    for line in p.stdout:
        if line.startswith("A prompt of"):
            break
    time.sleep(0.5)
    os.killpg(p.pid, 2)
    _, err = p.communicate(timeout=30)
    assert p.returncode == 130 and err.splitlines()[-1] == "demo: interrupted"
    assert glob.glob(f"{place}/tmp/*") == []
