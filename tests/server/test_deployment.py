# SPDX-License-Identifier: Apache-2.0
"""The samples of contrib/: behind nginx and HAProxy answers come as they are made; systemd finds no fault with its units, and
hands over a socket."""
import http.client
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import time

import pytest

from serving import TEXT, Server, served

CONTRIB = pathlib.Path(__file__).resolve().parent.parent.parent / "contrib"
KEY = {"Authorization": "Bearer secret", "Content-Type": "application/json"}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for_port(port, process, seconds=20):
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)
    process.kill()
    raise AssertionError(process.communicate()[0])


def tool(name):
    path = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
    return path or pytest.skip(f"{name} is missing")


@pytest.fixture
def server(program, served):
    with Server(program, served, "-c", 8192, "-np", 2, "--api-key", "secret") as s:
        yield s


def nginx(server, port, folder):
    sample = (CONTRIB / "nginx.conf").read_text().replace("127.0.0.1:8080", f"127.0.0.1:{server.port}")
    sample = sample.replace("listen 80;", f"listen 127.0.0.1:{port};")
    paths = "".join(f"{name}_temp_path {folder}/{name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    user = "user root;\n" if os.geteuid() == 0 else ""
    (folder / "nginx.conf").write_text(f"{user}daemon off;\npid {folder}/pid;\nerror_log stderr;\nevents {{}}\n"
                                       f"http {{\naccess_log off;\n{paths}{sample}}}\n")
    return [tool("nginx"), "-p", str(folder), "-e", "stderr", "-c", str(folder / "nginx.conf")]


def haproxy(server, port, folder):
    sample = (CONTRIB / "haproxy.cfg").read_text().replace("127.0.0.1:8080", f"127.0.0.1:{server.port}")
    sample = re.sub(r"\n *server two .*", "", sample).replace("bind :8000", f"bind 127.0.0.1:{port}")
    (folder / "haproxy.cfg").write_text(sample)
    return [tool("haproxy"), "-db", "-f", str(folder / "haproxy.cfg")]


@pytest.fixture(params=(nginx, haproxy))
def proxied(request, server, tmp_path):
    """A server, and the port of a proxy before it."""
    port = free_port()
    command = request.param(server, port, tmp_path)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    wait_for_port(port, process)
    yield server, port
    process.terminate()
    process.wait(20)


def ask(port, method, path, body=None, headers=KEY):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    c.request(method, path, body and json.dumps(body), headers)
    return c, c.getresponse()


def running(server):
    text = ask(server.port, "GET", "/metrics")[1].read().decode()
    return int(re.search(r"^infinigen_requests_running (\d+)$", text, re.M)[1])


def test_streams_come_as_they_are_made(proxied):
    server, port = proxied
    body = {"prompt": "a", "max_tokens": 6000, "ignore_eos": True, "stream": True}
    c, r = ask(port, "POST", TEXT, body)
    assert r.status == 200 and r.getheader("Content-Type").startswith("text/event-stream")
    assert r.readline().startswith(b"data: {") and running(server) == 1
    assert r.read().endswith(b"data: [DONE]\n\n")
    c, r = ask(port, "POST", TEXT, body)
    assert r.status == 200, r.read()
    assert r.readline().startswith(b"data: {") and running(server) == 1
    c.sock.close() if c.sock else r.close()  # a client that goes away is noticed through the proxy
    r.close()
    end = time.monotonic() + 20
    while running(server):
        assert time.monotonic() < end
        time.sleep(0.01)


def test_the_rest_comes_through(proxied):
    server, port = proxied
    text = "x" * 100000
    assert ask(port, "POST", "/tokenize", {"content": text})[1].status == 200
    assert ask(port, "GET", "/v1/models", headers={})[1].status == 401
    assert json.loads(ask(port, "GET", "/health", headers={})[1].read()) == {"status": "ok"}
    r = ask(port, "POST", TEXT, {"prompt": 7})[1]
    assert r.status == 400 and json.loads(r.read())["error"]["param"] == "prompt"


# ---- systemd -------------------------------------------------------------------------------


def test_units(tmp_path):
    analyze = tool("systemd-analyze")
    units = {"infinigen.service": tmp_path, "infinigen.socket": tmp_path, "infinigen-cuda.conf": tmp_path / "gpu/infinigen.service.d"}
    for name, folder in units.items():
        text = (CONTRIB / name).read_text().replace("/usr/local/bin/infinigen", shutil.which("true"))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    shutil.copy(tmp_path / "infinigen.service", tmp_path / "gpu")
    for folder in (tmp_path, tmp_path / "gpu"):
        files = [str(f) for f in folder.glob("infinigen.*") if f.is_file()]
        r = subprocess.run([analyze, "verify", "--man=no", *files], capture_output=True, text=True)
        ours = [line for line in (r.stdout + r.stderr).splitlines() if "infinigen" in line]
        assert not ours, ours
    r = subprocess.run([analyze, "security", "--offline=true", tmp_path / "infinigen.service"], capture_output=True, text=True)
    level = re.search(r"exposure level for infinigen.service: ([0-9.]+)", r.stdout)
    if not level:
        pytest.skip("this systemd-analyze judges no files")
    assert float(level[1]) <= 2


class Activated:
    """A program that is started with a socket as its descriptor 3, as systemd does it."""

    def __init__(self, program, listener):
        self.program, self.listener = program, listener

    def start(self, *args, env=None, n=1):
        script = f'LISTEN_PID=$$ LISTEN_FDS={n} exec "$@"'
        return subprocess.Popen(["sh", "-c", script, "sh", self.program.path, *map(str, args)], env=self.program.environment(args),
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, close_fds=False,
                                preexec_fn=lambda: os.dup2(self.listener.fileno(), 3))


@pytest.mark.parametrize("flags", ([], ["--sandbox"]))
def test_socket_activation(program, served, flags):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        for _ in range(2):  # the second one is started after the first, with the same socket
            with Server(Activated(program, listener), served, "-c", 256, *flags) as s:
                s.port = listener.getsockname()[1]
                assert s.ask("/health")[0] == 200
    with socket.create_server(("0.0.0.0", 0)) as listener:
        p = Activated(program, listener).start("serve", "-m", served, "-c", 256)
        assert b"without a key" in p.communicate(timeout=60)[1] and p.returncode != 0
    with socket.create_server(("127.0.0.1", 0)) as listener:  # nobody would answer at the others
        for n in ("2", "0", "one"):
            p = Activated(program, listener).start("serve", "-m", served, "-c", 256, n=n)
            assert b"one socket can be handed over" in p.communicate(timeout=60)[1] and p.returncode == 2


def test_places_to_listen_at(program, served, tmp_path):
    with Server(program, served, "-c", 256, "--host", "[::1]") as s:
        assert b"listening at http://[::1]:" in s.said
    for host, why in (("nosuch.invalid", b"--host nosuch.invalid: "), ("[::1", b"--host [::1: "), ("0.0.0.0", b"without a key")):
        p = program.start("serve", "-m", served, "-c", 256, "--host", host, "--port", 0)
        err = p.communicate(timeout=60)[1]
        assert p.returncode == 2 and why in err and (b"key" in err) == (why == b"without a key")
    p = program.start("serve", "-m", served, "-c", 256, "--unix", tmp_path)
    assert b"is there, and no socket" in p.communicate(timeout=60)[1] and p.returncode == 1


def test_activation_at_a_file(program, served, tmp_path):
    """The Host is a proxy's, and the file is not the server's to remove. At a port --unix opens nothing."""
    path = tmp_path / "socket"
    ask = b"GET /health HTTP/1.1\r\nHost: anything\r\nConnection: close\r\n\r\n"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        with Server(Activated(program, listener), served, "-c", 256, "--unix", path):
            with socket.socket(socket.AF_UNIX) as c:
                c.connect(str(path))
                c.sendall(ask)
                assert c.recv(4096).startswith(b"HTTP/1.1 200 ")
        assert path.exists()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with Server(Activated(program, listener), served, "-c", 256, "--unix", path) as s:
            s.port = listener.getsockname()[1]
            assert s.send(ask).startswith(b"HTTP/1.1 403 ")
