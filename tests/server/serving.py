# SPDX-License-Identifier: Apache-2.0
"""What tests of the server share: starting it, asking it, plain sockets."""
import http.client
import json
import re
import signal
import socket
import threading
import time

import pytest

from conftest import make_model

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"


class Server:
    """`infinigen serve` on a port of its own. What it says is kept in `said`."""

    def __init__(self, program, model, *args, env=None):
        self.headers = {}  # of all that is asked
        self.process = program.start("serve", *(("-m", model) if model else ()), "--port", 0, "-t", 2, *args, env=env)
        self.said = b""
        self.is_ready = threading.Event()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        assert self.is_ready.wait(120), self.said
        assert self.process.poll() is None, self.said
        found = re.search(rb"http://(\S+):(\d+)", self.said)
        self.port = int(found[2]) if found else None

    def _read(self):
        for line in self.process.stderr:
            self.said += line
            if b"ready:" in line:
                self.is_ready.set()
        self.is_ready.set()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """It has ended as it should, or as the test has ended it."""
        is_over = self.process.poll() is not None
        status = self.process.returncode if is_over else self.stop()
        self.reader.join(10)
        assert status in (0, -signal.SIGKILL), self.said

    def stop(self, number=signal.SIGTERM, seconds=60):
        self.process.send_signal(number)
        return self.process.wait(seconds)

    def ask(self, path, body=None, method=None, headers=None, raw=None):
        """(status, object or text, headers)."""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        headers = {**self.headers, **(headers or {})}
        if body is not None or raw is not None:
            headers.setdefault("Content-Type", "application/json")
            headers = {k: v for k, v in headers.items() if v is not None}
        c.request(method or ("GET" if body is None and raw is None else "POST"), path,
                  raw if raw is not None else None if body is None else json.dumps(body), headers)
        r = c.getresponse()
        data, out = r.read(), {k.lower(): v for k, v in r.getheaders()}
        c.close()
        kind = out.get("content-type", "")
        return r.status, json.loads(data) if kind == "application/json" and data else data.decode(), out

    def events(self, path, body, **kw):
        """The events of a stream; the last one must be [DONE]."""
        status, text, headers = self.ask(path, {**body, "stream": True}, **kw)
        assert status == 200 and headers["content-type"].startswith("text/event-stream"), (status, text)
        events = [e for e in text.split("\n\n") if e and not e.startswith(":")]
        assert all(e.startswith("data: ") and "\n" not in e for e in events)
        assert events[-1] == "data: [DONE]"
        return [json.loads(e[6:]) for e in events[:-1]]

    def native_events(self, path, body):
        """As llama-server streams what is not OpenAI's: nothing follows the event that says "stop"."""
        status, text, headers = self.ask(path, {**body, "stream": True})
        assert status == 200 and headers["content-type"].startswith("text/event-stream")
        found = [e for e in text.split("\n\n") if e and not e.startswith(":")]
        assert all(e.startswith("data: {") for e in found)
        found = [json.loads(e[6:]) for e in found]
        stops = {i: [e["stop"] for e in found if e["index"] == i] for i in {e["index"] for e in found}}
        assert all(of == [False] * (len(of) - 1) + [True] for of in stops.values())
        return found

    def named_events(self, path, body):
        """The events of a stream whose names are the types that they tell of."""
        status, text, headers = self.ask(path, {**body, "stream": True})
        assert status == 200 and headers["content-type"].startswith("text/event-stream"), text
        found = []
        for first, second in (e.split("\n") for e in text.split("\n\n") if e and not e.startswith(":")):
            assert first.startswith("event: ") and second.startswith("data: ")
            found.append(json.loads(second[6:]))
            assert found[-1]["type"] == first[7:]
        return found

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def send(self, data):
        """Raw bytes; all that comes until the connection ends, or nothing more comes."""
        with self.connect() as s:
            s.settimeout(20)
            got = b""
            try:
                s.sendall(data)
                while more := s.recv(65536):
                    got += more
            except (TimeoutError, ConnectionError):
                pass
            return got

    def numbers(self):
        text = self.ask("/metrics")[1]
        return {line.split()[0]: float(line.split()[1]) for line in text.splitlines() if not line.startswith("#")}

    def wait_for(self, name, least, most=None, seconds=20):
        """Until the number is `least`, or between this and `most`."""
        end = time.monotonic() + seconds
        while not least <= (now := self.numbers()[name]) <= (least if most is None else most):
            assert time.monotonic() < end, (name, least, most, now)
            time.sleep(0.01)


def said(events, chat, index=0):
    """The text of a stream."""
    choices = [c for e in events for c in e["choices"] if c["index"] == index]
    return "".join(c["delta"].get("content") or "" if chat else c["text"] for c in choices)


@pytest.fixture
def served(tmp_path):
    return make_model(tmp_path / "served")


@pytest.fixture
def server(program, served):
    with Server(program, served, "-c", 2048, "-np", 4) as s:
        yield s


def user(text):
    return [{"role": "user", "content": text}]


def request(body, path=TEXT):
    data = json.dumps(body).encode()
    return (f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(data)}\r\n\r\n").encode() + data
