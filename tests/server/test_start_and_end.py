# SPDX-License-Identifier: Apache-2.0
"""Signals while the server starts, files of keys that keep it from starting, and the end that it comes to by itself."""
import http.client
import json
import os
import signal
import socket
import subprocess
import time

import pytest

from conftest import one_line
from serving import TEXT, Server, request, served


def wait_until_caught(process, number, seconds=20):
    """Until the process catches the signal: from then on it loads the model."""
    end = time.monotonic() + seconds
    while True:
        assert time.monotonic() < end
        with open(f"/proc/{process.pid}/status") as f:
            fields = dict(line.split(":", 1) for line in f)
        if int(fields["SigCgt"], 16) >> (number - 1) & 1:
            return


FLAGS = "--port", 0, "-t", 2, "-c", 2048


@pytest.mark.parametrize("number", (signal.SIGTERM, signal.SIGINT))
def test_signal_ends_the_start(program, served, number):
    """Whenever it comes, before or after the model is there."""
    for i in range(60):
        p = program.start("serve", "-m", served, *FLAGS)
        wait_until_caught(p, number)
        time.sleep(i * 0.0001)
        p.send_signal(number)
        try:
            assert p.wait(20) in (0, 130), (i, p.stderr.read())
        finally:
            p.kill()
            p.communicate()


@pytest.mark.parametrize("number", (signal.SIGTERM, signal.SIGINT, signal.SIGHUP))
def test_no_socket_stays_behind(program, model, tmp_path, number):
    """Whenever the signal comes once the socket is there: mostly while the model is opened."""
    path = tmp_path / "socket"
    for i in range(20):
        p = program.start("serve", "-m", model, "-t", 2, "-c", 256, "--unix", path)
        while not path.exists():
            assert p.poll() is None, p.stderr.read()
        time.sleep(i * 0.001)
        p.send_signal(number)
        try:
            assert p.wait(20) in (0, 130), (i, p.stderr.read())
            assert not path.exists(), i
        finally:
            p.kill()
            p.communicate()


def test_says_that_it_is_loading(program, model):
    """From its first moment on whoever asks gets an answer, and is told to come back until the model is there."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    for _ in range(5):  # a model may be there before the first question is
        p = program.start("serve", "-m", model, "--port", port, "-t", 2, "-c", 256)
        replies = []
        while not replies or replies[-1][0] != 200:
            assert p.poll() is None
            c = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            try:
                c.request("POST" if len(replies) % 2 else "GET", TEXT if len(replies) % 2 else "/health", b"x" * 100000)
                r = c.getresponse()
                replies.append((r.status, r.read(), r.getheader("Retry-After")))
            except ConnectionRefusedError:
                assert not replies
            c.close()
        p.terminate()
        assert p.wait(20) == 0
        p.communicate()
        if len(replies) > 1:
            break
    for status, body, again in replies[:-1]:
        assert (status, again) == (503, "1") or status == 400, (status, body)  # it is there, and a body is no JSON
    error = json.loads(replies[0][1])["error"]
    assert error["message"] == "the model is being loaded" and error["type"] == "unavailable_error"


def test_keys_are_read_again_once_it_is_ready(program, model, tmp_path):
    """A model that takes some time to load: the signal comes while that is done, and waits."""
    keys = tmp_path / "keys"
    keys.write_text("k\n")
    p = program.start("serve", "-m", model, *FLAGS, "--api-key-file", keys)
    wait_until_caught(p, signal.SIGTERM)
    p.send_signal(signal.SIGHUP)
    said = [p.stderr.readline() for _ in range(3)]
    assert b"ready:" in said[1] and b"keys were read again" in said[2], (p.poll(), said)
    p.terminate()
    p.communicate(timeout=20)
    assert p.returncode == 0


@pytest.mark.parametrize("is_ignored", (False, True), ids=("terminal", "nohup"))
def test_the_end_of_its_terminal(program, model, is_ignored):
    """Ends a server that has no keys to read again, but not under nohup."""
    p = program.start("serve", "-m", model, *FLAGS,
                      preexec_fn=(lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)) if is_ignored else None)
    while b"ready:" not in p.stderr.readline():
        assert p.poll() is None
    p.send_signal(signal.SIGHUP)
    if is_ignored:
        with pytest.raises(subprocess.TimeoutExpired):
            p.wait(0.5)
        p.terminate()
    assert p.wait(20) == 0
    p.communicate()


def test_files_that_hold_no_keys(program, served, tmp_path):
    """One that would never come to its end is not read, and no line is cut in two."""
    os.mkfifo(tmp_path / "pipe")
    texts = {"long": "#" * (1 << 20) + "\n", "nul": "a\0b\n", "cut": "#" + " " * 510 + "secret\n", "key": "k" * 256}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    for path, why in (("pipe", "a plain file"), ("/dev/zero", "a plain file"), ("long", "at most 1048576 bytes"),
                      (".", "a plain file"), ("nul", "printable ASCII"), ("cut", "no key in it"), ("key", "1 to 255 bytes")):
        p = program.start("serve", "-m", served, *FLAGS, "--api-key-file", tmp_path / path)
        try:
            assert why in one_line(p.communicate(timeout=20)[1]) and p.returncode == 2, path
        finally:
            p.kill()


def overwrite(path):
    with open(path, "r+b") as f:
        f.seek(os.path.getsize(path) // 2)
        f.write(bytes(1000))


CHANGED = b"was changed while it was in use; open the model again"


@pytest.mark.parametrize("while_running, flags", ((False, []), (True, []), (False, ["--sandbox"])))
def test_model_changes(program, served, while_running, flags):
    """The server ends, as it can answer nothing any more; with a status at which it is started anew."""
    s = Server(program, served, "-c", 2048, *flags)
    kept = http.client.HTTPConnection("127.0.0.1", s.port, timeout=60)
    kept.connect()
    assert s.ask("/health")[0] == 200
    body = {"prompt": "ab", "max_tokens": 2000, "ignore_eos": True, "stream": True}
    if while_running:
        with s.connect() as c:
            c.sendall(request(body))
            got = c.recv(4096)
            overwrite(served / "model.safetensors")
            while b"error" not in got:
                got += c.recv(65536)
        assert CHANGED in got
    else:
        overwrite(served / "model.safetensors")
        status, reply, _ = s.ask(TEXT, body)
        assert status == 500 and CHANGED.decode() in reply["error"]["message"]
    kept.request("GET", "/health")
    try:
        assert kept.getresponse().status == 503
    except http.client.RemoteDisconnected:
        pass  # it has ended already
    assert s.process.wait(20) == 1
    s.reader.join(10)
    last = s.said.splitlines()[-1]
    assert last.startswith(b"infinigen serve: ") and CHANGED in last
