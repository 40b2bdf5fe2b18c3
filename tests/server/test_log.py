# SPDX-License-Identifier: Apache-2.0
"""What the server writes on standard error: a line for each request that computes or is refused, no text of clients."""
import fcntl
import http.client
import json
import os
import re
import signal
import time
import urllib.parse

import pytest
from serving import CHAT, TEXT, Server, request, served, user

SECRET = "a secret word"


def lines(server, n, seconds=20):
    """The first n lines after the one that says that it is ready."""
    end = time.monotonic() + seconds
    while len(found := server.said.decode().split("ready:", 1)[1].splitlines()[1:]) < n:
        assert time.monotonic() < end, server.said
        time.sleep(0.01)
    return found


def ask_all(server):
    """Two answers, one request that is refused, one that a client leaves, one that is not worth a line."""
    body = {"prompt": SECRET * 8, "max_tokens": 4, "temperature": 0, "ignore_eos": True}
    assert server.ask(TEXT, body)[0] == 200
    lines(server, 1)
    server.events(TEXT, body)
    lines(server, 2)
    assert server.ask(CHAT + "/none%22%5c", {"messages": user(SECRET)})[0] == 404
    lines(server, 3)
    server.ask("/health")
    with server.connect() as s:
        s.sendall(request({**body, "max_tokens": 1900, "stream": True}))
        got = b""
        while got.count(b"data: ") < 3:
            got += s.recv(4096)
    return lines(server, 4)


def test_json(program, served):
    with Server(program, served, "-c", 2048, "--log-format", "json") as server:
        whole, stream, refused, left = map(json.loads, ask_all(server)[:4])
        assert all(json.loads(line)["message"] for line in server.said.decode().splitlines()[:2])
    for line in (whole, stream, refused, left):
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"]) and line["client"] == "127.0.0.1"
    assert list(whole) == ["time", "level", "id", "client", "method", "path", "status", "complete", "prompt_tokens",
                           "cached_tokens", "new_tokens", "first_token_ms", "total_ms"]
    assert whole["id"].startswith("cmpl-") and whole["level"] == "info"
    n = len(SECRET) * 8
    for line, cached in ((whole, 0), (stream, (n - 1) // 16 * 16)):
        assert (line["method"], line["path"], line["status"], line["complete"]) == ("POST", TEXT, 200, True)
        assert (line["prompt_tokens"], line["cached_tokens"], line["new_tokens"]) == (n, cached, 4)
        assert 0 < line["first_token_ms"] < line["total_ms"]
    assert (refused["status"], refused["level"], refused["id"], refused["error"]) == (404, "warn", None, "not_found_error")
    assert refused["path"] == CHAT + '/none"\\' and "prompt_tokens" not in refused
    assert (left["status"], left["complete"], left["level"]) == (200, False, "warn") and left["new_tokens"] < 1900
    assert SECRET.encode() not in server.said


def test_text(program, served):
    with Server(program, served, "-c", 2048) as server:
        whole, stream, refused, left = ask_all(server)[:4]
    form = r"infinigen serve: 127\.0\.0\.1 POST \"/v1/completions\": 200{}, prompt 104 \({} cached\), new {}, first after \d+ ms, done after \d+ ms"
    assert re.fullmatch(form.format("", 0, 4), whole) and re.fullmatch(form.format("", 96, 4), stream)
    assert re.fullmatch(form.format(", not read to its end", r"\d+", r"\d+"), left)
    assert re.fullmatch(r'infinigen serve: 127.0.0.1 POST "/v1/chat/completions/none\\"\\\\": 404, done after \d+ ms', refused)
    assert SECRET.encode() not in server.said


def test_failures(program, served):
    """What is not the client's fault is told with its reason, of a stream that had begun too."""
    why = "the answer took longer than is allowed"
    body = {"prompt": SECRET, "max_tokens": 16000, "ignore_eos": True}
    for form in ("json", "text"):
        with Server(program, served, "-c", 16384, "--request-timeout", 0.2, "--log-format", form) as server:
            assert server.ask(TEXT, body)[0] == 503
            lines(server, 1)
            assert why in server.ask(TEXT, {**body, "stream": True})[1].split("\n\n")[-2]
            lines(server, 2)
            assert server.ask("/nothing")[0] == 404
            whole, stream, refused = lines(server, 3)
        if form == "json":
            for line, status in ((whole, 503), (stream, 200)):
                line = json.loads(line)
                assert (line["status"], line["complete"], line["level"]) == (status, True, "error")
                assert (line["error"], line["reason"]) == ("unavailable_error", why)
            assert "reason" not in json.loads(refused)
        else:
            assert whole.endswith(f' ms, failed: "{why}"') and stream.endswith(f' ms, failed: "{why}"'), (whole, stream)
            assert "failed" not in refused


def test_long_request(program, served):
    """Of the first line, which a client may make long, the beginning is shown."""
    ask = b"A" * 4000 + b" /" + b"b" * 4000 + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    for form, line in ((), "infinigen serve: 127.0.0.1 " + "A" * 32 + ' "/' + "b" * 255 + '": 404, '), \
                      (("--log-format", "json"), '"method":"' + "A" * 32 + '","path":"/' + "b" * 255 + '",'):
        with Server(program, served, "-c", 256, *form) as server:
            assert server.send(ask).startswith(b"HTTP/1.1 404 ")
            assert line in lines(server, 1)[0]


def test_wrong_path(program, served):
    """It is shown as it was sent."""
    with Server(program, served, "-c", 256) as server:
        assert server.ask("/a%41b%zzc%41")[0] == 400
        assert ' "/a%41b%zzc%41": 400' in lines(server, 1)[0]


def test_prompts_if_asked(program, served):
    with Server(program, served, "-c", 2048, "--log-format", "json", "--log-prompts") as server:
        body = {"prompt": SECRET, "max_tokens": 2}
        server.ask(TEXT, body)
        assert json.loads(json.loads(lines(server, 1)[0])["body"]) == body
    with Server(program, served, "-c", 2048, "--log-prompts") as server:
        server.ask(TEXT, body)
        assert SECRET in lines(server, 1)[0]


def test_nothing_drives_a_terminal(program, served):
    """Controls of one byte and of two, and what turns the direction of a text; languages stay readable."""
    hidden = "\u001b\u007f\u0085\u009b\u00ad\u061c\u200b\u200f\u2028\u202e\u2066\ufeff"
    shown = "\u00a0\u00e9\u0633\u4e2d\u20ac\U0001f600~"
    for form in ("json", "text"):
        with Server(program, served, "-c", 2048, "--log-prompts", "--log-format", form) as server:
            assert server.ask("/" + urllib.parse.quote("\u009b\u00e9\u202e"))[0] == 404
            line = lines(server, 1)[0]
            assert '"/\\u009b\u00e9\\u202e"' in line
            raw = json.dumps({"prompt": hidden[1:] + shown, "max_tokens": 2}, ensure_ascii=False).encode()
            assert server.ask(TEXT, raw=raw)[0] == 200
            line = lines(server, 2)[1]
        assert shown in line and not any(c in server.said.decode() for c in hidden)
        if form == "json":
            assert json.loads(json.loads(line)["body"])["prompt"] == hidden[1:] + shown


def test_warnings(program, served):
    """Of a server that is on no terminal too; what each request would repeat comes once."""
    with Server(program, served, "-c", 20000) as server:
        for _ in range(3):
            server.ask(TEXT, {"prompt": SECRET, "max_tokens": 2})
        lines(server, 3)
        assert server.said.count(b"context of 20000 tokens is more than the 16384 the model was trained for") == 1


def test_reader_that_ends(program, served):
    """What the server says is lost once nobody reads it any more, and nothing else is."""
    with Server(program, served, "-c", 2048) as server:
        with open(os.devnull, "rb") as nothing:
            os.dup2(nothing.fileno(), server.process.stderr.fileno())  # the pipe ends with the read that waits at it
        for _ in range(3):
            assert server.ask("/nothing")[0] == 404
            server.reader.join(10)  # that read has taken one line at most
        assert not server.said.count(b": 404") > 1 and server.ask("/health")[0] == 200


@pytest.mark.parametrize("how", ("text", "json"))
def test_reader_that_stops(program, served, how):
    """Answers, and the end, do not wait for who reads the log; who goes on with it is told what is missing."""
    r, w = os.pipe()
    fcntl.fcntl(w, fcntl.F_SETPIPE_SZ, 8192)
    p = program.start("serve", "-m", served, "--port", 0, "-c", 256, "--log-format", how, stderr=w)
    os.close(w)
    text = b""
    while b"ready:" not in text:
        text += os.read(r, 4096)
    port = int(re.search(rb"http://127.0.0.1:(\d+)", text)[1])

    def ask(n):
        for _ in range(n):
            c = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            c.request("GET", "/nothing")
            assert c.getresponse().status == 404
            c.close()
    ask(300)
    time.sleep(1)  # those that wait are left out
    text = os.read(r, 8192)
    assert 10 < text.count(b"404,") < 300
    ask(1)
    time.sleep(0.2)
    said = os.read(r, 8192).decode().splitlines()
    told, = [line for line in said if "nobody read the log" in line]
    assert how == "text" or json.loads(told)["level"] == "warn"
    ask(300)
    p.send_signal(signal.SIGTERM)
    assert p.wait(30) == 0
    os.close(r)
