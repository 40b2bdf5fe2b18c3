# SPDX-License-Identifier: Apache-2.0
"""Models of the Hugging Face hub, from a server that answers as the hub does."""
import hashlib
import http.server
import json
import os
import re
import signal
import threading
import time
import urllib.parse

import pytest
from conftest import make_model, one_line


class Hub(http.server.ThreadingHTTPServer):
    """Repositories of files. Large ones are answered by an address elsewhere, which must not see the token."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = {}    # repository -> path -> bytes
        self.private = {}  # repository -> token
        self.asked = []    # paths, without queries
        self.cut = 0       # so many answers end early
        self.slow = False

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server_port}"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def reply(self, status, body=b"", **fields):
        self.send_response(status)
        for name, value in fields.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.server.slow and len(body) > 1000:
            self.wfile.write(body[:1000])
            time.sleep(20)
        if self.server.cut and len(body) > 1000:
            self.server.cut -= 1
            self.wfile.write(body[:len(body) // 2])
            self.close_connection = True
            return
        self.wfile.write(body)

    def do_GET(self):
        hub, url = self.server, urllib.parse.urlparse(self.path)
        path = urllib.parse.unquote(url.path)
        hub.asked.append(path)
        if path.startswith("/elsewhere/"):
            assert "Authorization" not in self.headers
            repository, name = re.fullmatch(r"/elsewhere/([^/]+/[^/]+)/(.+)", path).groups()
            body, start = hub.files[repository][name], self.headers.get("Range")
            if not start:
                return self.reply(200, body)
            first = int(re.fullmatch(r"bytes=(\d+)-", start).group(1))
            return self.reply(206, body[first:], Content_Range=f"bytes {first}-{len(body) - 1}/{len(body)}")
        listed = re.fullmatch(r"/api/models/([^/]+/[^/]+)/tree/main", path)
        resolved = re.fullmatch(r"/([^/]+/[^/]+)/resolve/main/(.+)", path)
        repository = (listed or resolved).group(1)
        token = hub.private.get(repository)
        if repository not in hub.files or (token and self.headers.get("Authorization") != f"Bearer {token}"):
            return self.reply(401, b'{"error":"Invalid username or password."}')
        files = hub.files[repository]
        if listed:
            assert url.query == "recursive=true"
            return self.reply(200, json.dumps([entry(*f) for f in sorted(files.items())] + [{"type": "directory", "path": "x"}]).encode())
        if is_large(resolved.group(2)):
            return self.reply(302, Location=f"http://localhost:{hub.server_port}/elsewhere/{repository}/{urllib.parse.quote(resolved.group(2))}")
        if url.query != "cached":
            return self.reply(307, Location=f"{url.path}?cached")  # on the hub itself
        return self.reply(200, files[resolved.group(2)])

    def log_message(self, *args):
        pass


def is_large(path):
    return path.endswith((".gguf", ".safetensors"))


def entry(path, data):
    """As the hub lists it: of large files the SHA-256 is known."""
    e = {"type": "file", "oid": hashlib.sha1(data).hexdigest(), "size": len(data), "path": path}
    if path.endswith("config.json"):
        e["lfs"] = None  # as some that stand in for the hub have it
    if is_large(path):
        e["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
    return e


@pytest.fixture
def hub():
    server = Hub()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def fetch(program, hub):
    def run(name, **env):
        return program("fetch", name, env={"HF_ENDPOINT": hub.address + "/", "HF_TOKEN": "", "HF_HOME": "/none", **env})
    return run


GGUF = b"GGUF" + b"x" * 5000


def fetched(fetch, name, **env):
    status, out, err = fetch(name, **env)
    assert (status, err) == (0, b"")
    with open(out.decode().strip(), "rb") as f:
        return out.decode().strip(), f.read()


def test_which_file(program, hub, fetch):
    hub.files["o/r"] = {f"m-{kind}.gguf": GGUF + kind.encode() for kind in ("BF16", "F16", "Q4_K_M", "Q8_0")}
    hub.files["o/r"] |= {"README.md": b"text", "mmproj-Q8_0.gguf": b"pictures", "a b/UD {1..3}%.gguf": GGUF + b"odd"}
    for name, data in (("o/r", b"Q4_K_M"), ("o/r:q8_0", b"Q8_0"), ("o/r:F16", b"F16"), ("o/r:m-BF16.gguf", b"BF16"),
                       ("o/r:UD {1..3}%.gguf", b"odd")):
        path, got = fetched(fetch, name)
        assert got == GGUF + data and "/infinigen/hub/o/r/" in path
    status, out, err = fetch("o/r:Q5_0")
    assert status == 1 and out == b""
    assert "no GGUF file is 'Q5_0'; there are a b/UD {1..3}%.gguf, m-BF16.gguf" in one_line(err)
    del hub.files["o/r"]["m-Q4_K_M.gguf"]
    assert fetched(fetch, "o/r")[1] == GGUF + b"Q8_0"
    listed = program("fetch")[1].decode()
    assert "o/r:m-Q8_0.gguf " in listed and "o/r:m-F16.gguf " in listed
    names = [m["name"] for m in json.loads(program("fetch", "--json")[1])["models"]]
    assert "o/r:m-BF16.gguf" in names


def test_folders_of_a_repository(program, hub, fetch):
    """Files of one name and size, and a name that leads out of the folder."""
    hub.files["o/r"] = {"de/m-Q8_0.gguf": GGUF + b"de", "en/m-Q8_0.gguf": GGUF + b"en", "en/../../m-F16.gguf": GGUF}
    assert fetched(fetch, "o/r:de/m-Q8_0.gguf")[1] == GGUF + b"de"
    path, data = fetched(fetch, "o/r:en/m-Q8_0.gguf")
    assert data == GGUF + b"en" and path.endswith("/o/r/en/m-Q8_0.gguf")
    listed = program("fetch")[1].decode()
    assert "o/r:de/m-Q8_0.gguf " in listed and "o/r:en/m-Q8_0.gguf " in listed
    assert fetch("o/r:F16")[0] == 1


def test_long_names(hub, fetch):
    """As long as they may be, found again without the hub's help, and one byte longer."""
    repository, folder = "o/" + "r" * 90, "f" * 60
    name = f"{folder}/{'m' * 84}.gguf"
    hub.files[repository] = {name: GGUF}
    path, data = fetched(fetch, repository)
    assert data == GGUF and path.endswith(name) and len(name) == 150
    hub.files[repository] = {"m" + name: GGUF}
    assert fetch(repository)[0] == 1


def test_several_at_once(program, hub):
    hub.files["o/r"] = {f"m-{i}.gguf": GGUF + b"%d" % i for i in range(500)} | {"x-Q4_K_M.gguf": GGUF}
    runs = [program.start("fetch", "o/r", env={"HF_ENDPOINT": hub.address}) for _ in range(4)]
    for p in runs:
        out, err = p.communicate(timeout=60)
        assert (p.returncode, err) == (0, b"") and out.endswith(b"x-Q4_K_M.gguf\n")


def test_parts_that_are_not_listed(hub, fetch):
    hub.files["o/r"] = {f"m-Q8_0-0000{i}-of-00003.gguf": GGUF for i in (1, 3)}
    status, _, err = fetch("o/r")
    assert status == 1 and "does not list all files" in one_line(err)


def test_part_of_another_version(hub, fetch):
    """What had come of a file that has changed since is not gone on with."""
    hub.files["o/r"], hub.cut = {"m.gguf": GGUF + b"1" * 90000}, 100
    assert fetch("o/r")[0] == 1
    hub.files["o/r"], hub.cut = {"m.gguf": b"2" * 2000}, 0
    assert fetched(fetch, "o/r")[1] == b"2" * 2000


def test_what_changed_is_fetched_anew(hub, fetch):
    hub.files["o/r"] = {"m.gguf": GGUF + b"1"}
    assert fetched(fetch, "o/r")[1] == GGUF + b"1"
    hub.files["o/r"] = {"m.gguf": GGUF + b"2"}
    assert fetched(fetch, "o/r")[1] == GGUF + b"2"
    hub.asked.clear()
    fetched(fetch, "o/r")
    assert hub.asked == ["/api/models/o/r/tree/main"]


def test_model_in_parts(hub, fetch):
    hub.files["o/r"] = {f"Q8_0/m-Q8_0-0000{i}-of-00003.gguf": GGUF + b"%d" % i for i in (1, 2, 3)}
    hub.files["o/r"]["Q2_K/m-Q2_K-00001-of-00002.gguf"] = GGUF
    path, got = fetched(fetch, "o/r")
    assert path.endswith("m-Q8_0-00001-of-00003.gguf") and got == GGUF + b"1"
    assert sorted(n for n in os.listdir(os.path.dirname(path)) if n[0] != ".") == [f"m-Q8_0-0000{i}-of-00003.gguf" for i in (1, 2, 3)]


def test_folder_of_safetensors(program, hub, tmp_path):
    """Run as it stands, and the second time without the hub."""
    folder = make_model(tmp_path / "model")
    hub.files["o/r"] = {f.name: f.read_bytes() for f in folder.iterdir() if f.is_file()}
    hub.files["o/r"] |= {"consolidated.safetensors": b"x" * 5000, "README.md": b"text", "onnx/model.safetensors": b"x"}
    env = {"HF_ENDPOINT": hub.address}
    run = ["run", "-hf", "o/r", "--raw", "-n", "3", "--temp", "0", "hello"]
    status, out, err = program(*run, env=env)
    assert status == 0, err
    assert out == program("run", "-m", folder, *run[3:])[1]
    assert not any("consolidated" in path or "README" in path or "onnx" in path for path in hub.asked)
    hub.asked.clear()
    assert program(*run, env=env)[:2] == (0, out) and hub.asked == []
    assert "o/r  " in program("fetch")[1].decode()
    os.unlink(next(program_file(program, "o/r", ".safetensors")))
    assert program(*run, env=env)[:2] == (0, out) and len(hub.asked) == 3  # the list, the file, and where it leads


def program_file(program, repository, end):
    folder = f"{program.home}/cache/infinigen/hub/{repository}"
    return (os.path.join(folder, n) for n in os.listdir(folder) if n.endswith(end))


def test_token(hub, fetch, tmp_path):
    hub.files["o/r"], hub.private["o/r"] = {"m.gguf": GGUF}, "hf_secret"
    hub.files["o/f"], hub.private["o/f"] = {"config.json": b"{}", "model.safetensors": GGUF}, "hf_secret"
    status, _, err = fetch("o/r")
    assert status == 1 and "there is no such repository, or HF_TOKEN must hold a token" in one_line(err)
    assert fetched(fetch, "o/r", HF_TOKEN="hf_secret")[1] == GGUF
    assert fetch("o/f", HF_TOKEN="hf_secret")[0] == 0
    assert fetched(fetch, "o/r", HF_TOKEN="hf_secret\n")[1] == GGUF
    status, _, err = fetch("o/r", HF_TOKEN="hf\nsecret")
    assert status == 1 and "holds no token" in one_line(err) and "secret" not in one_line(err)
    hub.files["o/s"], hub.private["o/s"] = {"m.gguf": GGUF}, "hf_other"
    (tmp_path / "token").write_text("hf_other\n")
    assert fetched(fetch, "o/s", HF_HOME=str(tmp_path))[1] == GGUF


def test_goes_on_after_a_cut(hub, fetch):
    """Within a run, and in the next one, which asks only for what is missing."""
    data = bytes(range(256)) * 400
    hub.files["o/r"], hub.cut = {"m.gguf": data}, 2
    assert fetched(fetch, "o/r")[1] == data
    hub.files["o/s"], hub.cut = {"m.gguf": data}, 100
    status, _, err = fetch("o/s")
    assert status == 1 and "bytes too early" in one_line(err)
    hub.cut = 0
    hub.asked.clear()
    assert fetched(fetch, "o/s")[1] == data


def test_interrupt_keeps_what_has_come(program, hub, fetch):
    hub.files["o/r"], hub.slow = {"m.gguf": GGUF}, True
    p = program.start("fetch", "o/r", env={"HF_ENDPOINT": hub.address})
    part = f"{program.home}/cache/infinigen/hub/o/r/.m.gguf.part/wheels/part"
    for _ in range(200):
        if os.path.exists(part) and hub.asked[-1].startswith("/elsewhere"):
            break
        time.sleep(0.05)
    p.send_signal(signal.SIGINT)
    _, err = p.communicate(timeout=20)
    assert p.returncode == 130 and "interrupted, the next try goes on from here" in one_line(err)
    hub.slow = False
    assert fetched(fetch, "o/r")[1] == GGUF


def test_wrong_bytes_are_not_kept(hub, fetch):
    hub.files["o/r"] = {"m.gguf": GGUF}
    path, _ = fetched(fetch, "o/r")
    os.unlink(path)
    part = os.path.dirname(path) + "/.m.gguf.part/wheels"
    os.makedirs(part)
    with open(part + "/part", "wb") as f:
        f.write(b"y" * 100)
    status, _, err = fetch("o/r")
    assert status == 1 and "its SHA-256 is" in one_line(err) and not os.path.exists(path)
    assert fetched(fetch, "o/r")[1] == GGUF


@pytest.mark.parametrize("files, message", [
    ({"README.md": b"x"}, "neither GGUF files nor safetensors with a config.json"),
    ({"model.safetensors": GGUF}, "neither GGUF files nor"),
    ({"mmproj.gguf": GGUF}, "neither GGUF files nor"),
    ({"../m.gguf/.": GGUF, "..": GGUF}, "neither GGUF files nor"),
])
def test_nothing_to_run(hub, fetch, files, message):
    hub.files["o/r"] = files
    status, out, err = fetch("o/r")
    assert status == 1 and out == b"" and message in one_line(err)


def test_no_list(hub, fetch, monkeypatch):
    hub.files["o/r"] = {"m.gguf": GGUF}
    monkeypatch.setattr(json, "dumps", lambda *_: "<html>")
    status, _, err = fetch("o/r")
    assert status == 1 and "is no list of files" in one_line(err)
    status, _, err = fetch("o/r", HF_ENDPOINT="http://127.0.0.1:1")
    assert status == 1 and "Connection refused" in one_line(err)


@pytest.mark.parametrize("name", ["o", "o/r/s", "/r", "o/", "o/r:", "../r", "o/.r", "o/r s", "o//r"])
def test_names(program, hub, name):
    status, _, err = program("run", "-hf", name, "-p", "x", env={"HF_ENDPOINT": hub.address})
    assert status == 2 and "is not of the form OWNER/REPOSITORY" in one_line(err) and hub.asked == []


def test_model_of_both_kinds(program):
    status, _, err = program("run", "-m", "x", "-hf", "o/r", "-p", "x")
    assert status == 2 and "-m and -hf both name a model" in one_line(err)
    status, _, err = program("run", "-m", "o/r", "-p", "x")
    assert status == 1 and "o/r: no such file (-hf o/r gets a model" in one_line(err)
