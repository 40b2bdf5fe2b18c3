# SPDX-License-Identifier: Apache-2.0
"""`infinigen bench --server`: load on this program's server, and on one that does what servers should not."""
import csv
import http.server
import io
import json
import signal
import threading
import time

import pytest

from conftest import make_model, one_line
from serving import Server


@pytest.fixture
def server(program, tmp_path):
    with Server(program, make_model(tmp_path / "model"), "-c", 512, "-np", 4) as s:
        yield s


def measure(program, *args):
    status, out, err = program("bench", *args, "-o", "json")
    assert status == 0 and err == b"", (status, err)
    return json.loads(out)


def test_numbers(program, server):
    """What the tool reports is what the server counts."""
    at = f"127.0.0.1:{server.port}"
    before = server.numbers()
    rows = measure(program, "--server", at, "--clients", "1,3", "-p", "40,100", "-n", "6", "-r", "2")
    assert [(r["n_clients"], r["n_prompt"]) for r in rows] == [(1, 40), (3, 40), (1, 100), (3, 100)]
    for r in rows:
        n = 2 * r["n_clients"]
        assert (r["requests"], r["failed"], r["first_error"]) == (n, 0, None)
        assert (r["prompt_tokens"], r["generated_tokens"]) == (n * r["n_prompt"], n * 6)
        assert r["cached_tokens"] == 0  # prompts have nothing in common
        assert r["generated_ts"] == pytest.approx(r["generated_tokens"] / r["seconds"], rel=1e-6)
        assert 0 < r["first_token_seconds_median"] <= r["first_token_seconds_p90"] <= r["request_seconds_p99"]
        assert 0 <= r["between_tokens_seconds_median"] <= r["between_tokens_seconds_p99"] < r["seconds"]
        assert r["request_seconds_p99"] <= r["seconds"] and r["prompt_is_tokens"]
    after = server.numbers()
    probe = 1
    assert after["infinigen_requests_total"] - before["infinigen_requests_total"] == sum(r["requests"] for r in rows) + probe
    # A chunk of text comes late, after it was made: no more gaps than the server saw.
    gaps = after["infinigen_time_between_tokens_seconds_count"] - before["infinigen_time_between_tokens_seconds_count"]
    assert gaps == sum(5 * r["requests"] for r in rows) + probe


def test_shared_prompts(program, server):
    at = f"http://127.0.0.1:{server.port}/v1"
    same, = measure(program, "--server", at, "-p", "200", "-n", "2", "-r", "4", "--shared", "80%")
    assert same["n_shared"] == 160 and same["cached_tokens"] == 3 * 160
    by_number, = measure(program, "--server", at, "-p", "200", "-n", "2", "-r", "3", "--shared", "999", "--seed", "5")
    assert by_number["n_shared"] == 199 and by_number["cached_tokens"] == 2 * 192
    again, = measure(program, "--server", at, "-p", "200", "-n", "2", "-r", "3", "--shared", "999", "--seed", "5")
    assert again["seed"] == 5 and again["cached_tokens"] >= 3 * 192  # the same prompts


def test_forms(program, server):
    args = ["bench", "--server", f"127.0.0.1:{server.port}", "-p", "20", "-n", "3", "-r", "1", "--clients", "1,2"]
    head, line, *rows = program(*args)[1].decode().splitlines()
    assert len({row.count("|") for row in (head, line, *rows)}) == 1 and len(rows) == 2
    assert "pp20 tg3" in rows[0] and rows[0].split("|")[2].strip() == "1"
    rows = list(csv.DictReader(io.StringIO(program(*args, "-o", "csv")[1].decode())))
    assert [r["requests"] for r in rows] == ["1", "2"] and rows[0]["prompt_tokens"] == "20"


def test_keys(program, tmp_path):
    with Server(program, make_model(tmp_path / "model"), "-c", 512, "--api-key", "secret") as server:
        at = f"127.0.0.1:{server.port}"
        row, = measure(program, "--server", at, "--api-key", "secret", "-p", "9", "-n", "2", "-r", "1")
        assert program("bench", "--server", at, "-p", "9", "-n", "2", "-r", "1", env={"INFINIGEN_API_KEY": "secret"})[0] == 0
        assert row["requests"] == 1
        status, out, err = program("bench", "--server", at, "--api-key", "other")
        assert status == 1 and out == b"" and "status 401: incorrect API key" in one_line(err)


def test_wrong_usage(program):
    for args, text in ((["--clients", "2", "-m", "x"], "give --server"), (["--server", "x", "-p", "0"], "1 or more"),
                       (["--server", "x", "--kv-ram", "9M"], "as it is"), (["--server", "x", "--clients", "0"], "between")):
        status, out, err = program("bench", *args)
        assert status == 2 and out == b"" and text in one_line(err)
    status, out, err = program("bench", "--server", "127.0.0.1:9")
    assert status == 1 and "Couldn't connect" in one_line(err)
    status, out, err = program("bench", "--server", "file:///etc/passwd")
    assert status == 1 and "/etc/passwd/v1: " in one_line(err)


# ---- a server that fails ---------------------------------------------------------------

class Fake(http.server.BaseHTTPRequestHandler):
    """The first completion, which asks how prompts may look, is answered; the later ones as `ways` says."""
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def reply(self, status, value, **headers):
        data = json.dumps(value).encode()
        self.send_response(status)
        for name, text in headers.items():
            self.send_header(name.replace("_", "-"), text)
        self.send_header("Content-Length", len(data))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        self.server.n_lists += 1
        if self.server.lists_slowly:
            time.sleep(30)
        self.reply(200, {"data": [{"id": self.server.name}]})

    def stream(self, *events, whole=True):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for event in events:
            data = f": a comment\r\n\r\ndata: {event}\r\n\r\n".encode()
            for part in (data[:20], data[20:]):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
                self.wfile.flush()
        if whole:
            self.wfile.write(b"0\r\n\r\n")
        else:
            self.close_connection = True

    def answer(self, *more):
        text = json.dumps({"choices": [{"text": "x"}]})
        self.stream(text, json.dumps({"choices": [{"text": "\0"}]}), *more, "[DONE]")

    def do_POST(self):
        began = time.monotonic()
        self.do_completion()
        self.server.spans.setdefault(self.client_address, []).append((began, time.monotonic()))

    def do_completion(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        fake = self.server
        fake.bodies.append(body)
        way = fake.ways[(len(fake.bodies) - 2) % len(fake.ways)] if len(fake.bodies) > 1 else fake.first
        if way == "text" and isinstance(body["prompt"], list):
            self.reply(400, {"error": {"message": "prompt must be a string"}})
        elif way in ("fine", "text"):
            self.answer(json.dumps({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2,
                                                             "prompt_tokens_details": {"cached_tokens": 3}}}))
        elif way == "bare":
            self.answer()
        elif way == "busy":
            self.reply(503, {"error": {"message": "come again"}}, Retry_After="1")
        elif way == "cut":
            self.stream(json.dumps({"choices": [{"text": "x"}]}), whole=False)
        elif way == "endless":
            self.stream(json.dumps({"choices": [{"text": "x"}]}))
        elif way == "error":
            self.stream(json.dumps({"error": {"message": "it\x1b[31m\n\x9bbroke"}}), "[DONE]")
        elif way == "noise":
            self.stream("nothing that is JSON")
        elif way == "late":
            time.sleep(1)
            self.answer()
        elif way == "halting":
            text = json.dumps({"choices": [{"text": "x"}]})
            self.stream(text, whole=False)
            time.sleep(0.5)
            self.wfile.write(b"%x\r\ndata: %s\n\n\r\n0\r\n\r\n" % (len(text) + 8, text.encode()))
        elif way == "slow":
            self.stream(json.dumps({"choices": [{"text": "x"}]}), whole=False)
            time.sleep(30)


class FakeServer(http.server.ThreadingHTTPServer):
    daemon_threads, request_queue_size = True, 64


@pytest.fixture
def fake():
    server = FakeServer(("127.0.0.1", 0), Fake)
    server.bodies, server.first, server.ways, server.name = [], "fine", ["fine"], "fake"
    server.lists_slowly, server.n_lists = False, 0
    server.spans = {}  # of each connection: when requests began and ended
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def load(program, fake, *args):
    status, out, err = program("bench", "--server", f"127.0.0.1:{fake.server_port}", "-p", "9", "-n", "2", "-o", "json", *args)
    return status, json.loads(out)[0] if out else None, err.decode()


def test_what_is_asked(program, fake):
    status, row, err = load(program, fake, "-r", "2", "--clients", "2")
    assert (status, err) == (0, "") and (row["prompt_tokens"], row["generated_tokens"], row["cached_tokens"]) == (28, 8, 12)
    body = fake.bodies[-1]
    assert len(body["prompt"]) == 9 and all(8000 <= i <= 24000 for i in body["prompt"])
    assert {k: v for k, v in body.items() if k != "prompt"} == {
        "model": "fake", "max_tokens": 2, "temperature": 0, "ignore_eos": True, "stream": True,
        "stream_options": {"include_usage": True}}
    assert len({tuple(b["prompt"]) for b in fake.bodies}) == 5


@pytest.mark.parametrize("clients, ways", [(1, ["fine"]), (2, ["late"] + 19 * ["fine"])])
def test_clients_ask_at_once(program, fake, clients, ways):
    """A client asks again as soon as it has its answer, whatever the others wait for."""
    fake.ways = ways
    assert load(program, fake, "-r", "10", "--clients", clients)[0] == 0
    idle = sorted(after[0] - before[1] for spans in fake.spans.values() for before, after in zip(spans, spans[1:]))
    assert len(idle) >= 8 * clients and idle[len(idle) // 2] < 0.005, idle  # libcurl may open one connection more


def test_making_prompts_is_in_no_time(program, fake):
    """A request's time begins when it is sent, not while the other clients' prompts are made."""
    began = time.monotonic()
    row = load(program, fake, "-p", "100000", "-r", "1", "--clients", "16")[1]
    assert row["first_token_seconds_p99"] <= row["seconds"] < 0.7 * (time.monotonic() - began)


def test_without_usage(program, fake):
    fake.ways = ["bare"]
    row = load(program, fake, "-r", "3")[1]
    assert (row["prompt_tokens"], row["generated_tokens"], row["cached_tokens"]) == (27, 6, 0)


def test_texts_only(program, fake):
    fake.first, fake.ways = "text", ["text"]
    status, row, err = load(program, fake, "-r", "1", "--shared", "4")
    assert (status, err) == (0, "") and row["prompt_is_tokens"] is False
    assert isinstance(fake.bodies[-1]["prompt"], str) and len(fake.bodies[-1]["prompt"].split()) == 9


@pytest.mark.parametrize("way, text", [
    ("cut", "within a stream: "), ("endless", "a stream ended before its last event"), ("error", "it?[31m???broke"),
    ("noise", "no JSON object"), ("busy", "status 503: come again")])
def test_failures(program, fake, way, text):
    """They are counted, the rest is measured; the first is told, and the exit status tells of them."""
    fake.ways = [way, "fine"]
    began = time.monotonic()
    status, row, err = load(program, fake, "-r", "4")
    assert status == 1 and (row["requests"], row["failed"]) == (2, 2)
    assert text in row["first_error"] and "2 of 4 requests failed; the first: " in err and err.count("\n") == 1
    assert way != "busy" or time.monotonic() - began >= 2  # as Retry-After says
    fake.bodies.clear()
    fake.ways = [way]
    status, row, err = load(program, fake, "-r", "1")
    assert status == 1 and row["requests"] == 0 and row["first_token_seconds_p99"] == 0


def test_tests_go_on_after_a_failure(program, fake):
    fake.ways = ["cut"] + 5 * ["fine"]
    at = f"127.0.0.1:{fake.server_port}"
    status, out, err = program("bench", "--server", at, "-p", "9", "-n", "2,3", "-r", "2", "-o", "json")
    assert status == 1 and [(r["requests"], r["failed"]) for r in json.loads(out)] == [(1, 1), (2, 0)]
    assert "1 of 2 requests failed" in one_line(err)


def test_times_are_of_what_was_answered(program, fake):
    fake.ways = ["halting", "fine"]
    row = load(program, fake, "-r", "2")[1]
    assert (row["requests"], row["failed"]) == (1, 1) and "before its last event" in row["first_error"]
    assert 0 < row["between_tokens_seconds_p99"] < 0.4


def test_names_drive_no_terminal(program, fake):
    fake.name = "fa\x1b[2Jke"
    args = "bench", "--server", f"127.0.0.1:{fake.server_port}", "-p", "9", "-n", "2", "-r", "1"
    status, out, _ = program(*args)
    assert status == 0 and b"\x1b" not in out and b"fa?[2Jke" in out
    assert fake.bodies[-1]["model"] == fake.name


@pytest.mark.parametrize("what", ["models", "probe"])
def test_interrupt_before_the_first_test(program, fake, what):
    fake.lists_slowly, fake.first = what == "models", "slow"
    p = program.start("bench", "--server", f"127.0.0.1:{fake.server_port}")
    while not (fake.n_lists if what == "models" else fake.bodies):
        time.sleep(0.01)
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=10)
    assert p.returncode == 130 and out == b"" and one_line(err) == "infinigen bench: interrupted\n"


def test_interrupt(program, fake):
    fake.ways = ["fine", "fine", "slow"]
    p = program.start("bench", "--server", f"127.0.0.1:{fake.server_port}", "-r", "9", "-o", "json")
    while len(fake.bodies) < 4:
        time.sleep(0.01)
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=20)
    assert p.returncode == 130 and json.loads(out)[0]["requests"] == 2 and "interrupted" in one_line(err)
