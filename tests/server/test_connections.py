# SPDX-License-Identifier: Apache-2.0
"""Clients that behave badly are forgotten, and the server's end."""
import concurrent.futures
import http.client
import json
import os
import resource
import shutil
import signal
import socket
import struct
import subprocess
import time

import pytest

from conftest import words
from serving import TEXT, Server, request, said, served, server


# ---- clients that behave badly ----


def test_client_goes_away(server):
    """Whether it waits for a stream or for the whole: its place is free at once."""
    for stream in (True, False):
        before = server.numbers()["infinigen_requests_cancelled_total"]
        asked = [server.connect() for _ in range(6)]
        for s in asked:
            s.sendall(request({"prompt": "ab", "max_tokens": 2000, "ignore_eos": True, "stream": stream}))
        server.wait_for("infinigen_requests_running", 4)
        server.wait_for("infinigen_requests_waiting", 2)
        for s in asked:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            s.close()
        start = time.monotonic()
        server.wait_for("infinigen_requests_running", 0)
        assert time.monotonic() - start < 2
        server.wait_for("infinigen_requests_cancelled_total", before + 6)
    assert server.ask(TEXT, {"prompt": "ab", "max_tokens": 2})[0] == 200


def test_full_queue(program, served):
    with Server(program, served, "-c", 2048, "-np", 1, "--queue", 2) as s:
        long = {"prompt": "ab", "max_tokens": 2000, "ignore_eos": True, "stream": True}
        held = []
        for waiting in range(3):
            held.append(s.connect())
            held[-1].sendall(request(long))
            s.wait_for("infinigen_requests_running", 1)
            s.wait_for("infinigen_requests_waiting", waiting)
        status, reply, headers = s.ask(TEXT, {"prompt": "ab"})
        assert status == 503 and headers["retry-after"] and reply["error"]["code"] == "queue_full"
        for many, field in (({"prompt": "ab", "n": 3}, "n"), ({"prompt": ["ab"] * 3}, "prompt")):  # never is there room
            status, reply, headers = s.ask(TEXT, many)
            assert status == 400 and reply["error"]["param"] == field and "retry-after" not in headers
        for c in held:
            c.close()
        s.wait_for("infinigen_requests_waiting", 0)
        s.wait_for("infinigen_requests_running", 0)
        assert s.ask(TEXT, {"prompt": "ab", "max_tokens": 1})[0] == 200


def test_a_client_leaves_room_for_others(program, served):
    """An eighth of the queue; another client is one of another address."""
    with Server(program, served, "-c", 2048, "-np", 1, "--queue", 8) as s:
        long = {"prompt": "ab", "max_tokens": 2000, "ignore_eos": True, "stream": True}
        with s.connect() as first, s.connect() as many, socket.create_connection(("127.0.0.1", s.port), 60, ("127.0.0.2", 0)) as other:
            first.sendall(request(long))
            s.wait_for("infinigen_requests_running", 1)
            many.sendall(request({**long, "n": 7}))
            s.wait_for("infinigen_requests_waiting", 7)
            status, reply, headers = s.ask(TEXT, {"prompt": "ab"})
            assert status == 503 and headers["retry-after"] and reply["error"]["code"] == "queue_full"
            assert s.ask(TEXT, {"prompt": "ab", "n": 8})[0] == 400
            other.sendall(request(long))
            s.wait_for("infinigen_requests_waiting", 8)


def test_malformed_http(server):
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
    good = b'{"prompt":"a","max_tokens":1}'
    bad = [b"\r\n\r\n\r\nnonsense\r\n\r\n", b"GET\r\n\r\n", b"GET /health HTTP/9.9\r\nHost: localhost\r\n\r\n",
           b"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n",
           head + b"Content-Length: +29\r\n\r\n" + good, head + b"Content-Length: -1\r\n\r\n" + good,
           head + b"Content-Length: 29\r\nContent-Length: 30\r\n\r\n" + good,
           head + b"Content-Length: 29\r\nTransfer-Encoding: chunked\r\n\r\n" + good,
           head + b"Transfer-Encoding: gzip\r\n\r\n" + good,
           head + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n" + good,
           head + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n" + good,
           head + b"Content-Length: 99999999999999999999999\r\n\r\n" + good,
           b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\nConnection: close\r\n\r\n",
           b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
           b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 200000 + b"\r\n\r\n",
           b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"X: a\r\n" * 200 + b"Connection: close\r\n\r\n"]
    for data in bad:
        got = server.send(data)
        assert not got or got.split(b" ")[1][:1] in (b"4", b"5") and b" 500 " not in got[:20], (data[:80], got[:200])
    chunked = head + b"Transfer-Encoding: chunked\r\n\r\n"
    chunked += b"".join(b"%x\r\n%s\r\n" % (len(good[i:i + 5]), good[i:i + 5]) for i in range(0, len(good), 5))
    assert server.send(chunked + b"0\r\n\r\n").startswith(b"HTTP/1.1 200 ")
    two = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /version HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    got = server.send(two)
    assert got.count(b"HTTP/1.1 200 ") == 2 and b'"version"' in got
    assert server.ask("/health")[0] == 200


def test_large_bodies(server):
    head = (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n")
    assert server.send(head % 10 ** 9 + b'{"prompt":"').startswith(b"HTTP/1.1 413 ")
    got = server.send(head.replace(b"Content-Length: %d", b"Transfer-Encoding: chunked\r\nConnection: close")
                      + b"".join(b"100000\r\n" + b" " * 0x100000 + b"\r\n" for _ in range(34)) + b"0\r\n\r\n")
    assert got.startswith(b"HTTP/1.1 413 ")
    with server.connect() as s:  # a client that sends the whole of it first still sees the answer
        s.sendall(head % 2 ** 27)
        for _ in range(128):
            s.sendall(b" " * 2 ** 20)
        assert s.recv(1000).startswith(b"HTTP/1.1 413 ")
    got = server.send(b"POST /nothing HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
                      + (b"100000\r\n" + b" " * 0x100000 + b"\r\n") * 34)  # without an end
    assert got.startswith(b"HTTP/1.1 404 ")
    before = server.ask(TEXT, {"prompt": " " * 20_000_000})
    assert before[0] == 400 and before[1]["error"]["code"] == "context_length_exceeded"


SLOW = {"heads": b"GET /health HTTP/1.1\r\nHost: loc", "nothing": b"",
        "bodies": b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                  b"Content-Length: 100\r\n\r\n{"}


def test_slow_clients_block_nobody(program, served):
    """500 of one address, more than it may have: the oldest make room, and others are answered from this same address."""
    with Server(program, served, "-c", 512, "--header-timeout", 60, "--body-timeout", 60) as s:
        for data in SLOW.values():
            slow = []
            for _ in range(500):
                slow.append(s.connect())
                slow[-1].sendall(data)
                if len(slow) % 50 == 0:
                    assert s.ask("/health")[0] == 200
            assert s.ask(TEXT, {"prompt": "ab", "max_tokens": 2})[0] == 200
            s.wait_for("infinigen_http_connections", 1, 256)  # those that were dropped end by themselves
            for c in slow:
                c.close()
        s.wait_for("infinigen_http_connections", 1)


def limited(program, path, ulimit):
    """The program, with less that it may open."""
    path.write_text(f"#!/bin/sh\nulimit {ulimit}\nexec {program.path} \"$@\"\n")
    path.chmod(0o755)
    return type(program)(str(path), program.home)


def test_few_open_files(program, served, tmp_path):
    """The limit is raised where it may be, else there are fewer connections; those that wait make room for others."""
    def may_open(s):
        return resource.prlimit(s.process.pid, resource.RLIMIT_NOFILE)
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] >= 1024 + 256:
        with Server(limited(program, tmp_path / "soft", "-Sn 300"), served, "-c", 512) as s:
            assert may_open(s)[0] == 1024 + 256 and b"ulimit" not in s.said
    with Server(limited(program, tmp_path / "hard", "-n 100"), served, "-c", 512) as s:
        assert may_open(s) == (100, 100) and b"at most 50 connections, not 1024" in s.said
        held = [s.connect() for _ in range(120)]
        assert s.ask("/health")[0] == 200
        n = len(os.listdir(f"/proc/{s.process.pid}/fd"))
        resource.prlimit(s.process.pid, resource.RLIMIT_NOFILE, (n - 10, 100))  # less than it was told
        held += [s.connect() for _ in range(20)]
        assert s.ask("/health")[0] == 200
        for c in held:
            c.close()


def test_slow_clients_are_cut_off(program, served):
    with Server(program, served, "-c", 512, "--header-timeout", 1, "--body-timeout", 1, "--keep-alive", 1) as s:
        for what, data in SLOW.items():
            got = s.send(data)  # which waits for the end
            assert (b" 408 " in got.split(b"\r\n")[0] and got.endswith(b"}")) if data else not got, (what, got)
        with s.connect() as c:  # a byte now and then does not help
            c.settimeout(0.2)
            start = time.monotonic()
            with pytest.raises((BrokenPipeError, ConnectionResetError)):
                while time.monotonic() < start + 30:
                    c.sendall(b"A")
                    time.sleep(0.2)
        with s.connect() as c:
            c.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert c.recv(10000) and not c.recv(10000)  # idle


def test_a_body_that_stops(program, served):
    """Many bytes buy time for more of them, not for silence; a slow body that goes on comes to its end."""
    def head(n):
        return (f"POST {TEXT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
                f"Content-Length: {n}\r\n\r\n").encode()

    with Server(program, served, "-c", 512, "--body-timeout", 1.5) as s:
        start = time.monotonic()
        got = s.send(head(2 << 20) + b" " * (1 << 20))
        assert b" 408 " in got.split(b"\r\n")[0] and 1 < time.monotonic() - start < 10, got
        body = json.dumps({"prompt": "ab", "max_tokens": 1}).encode().rjust(5 << 10)
        with s.connect() as c:
            c.sendall(head(len(body)))
            for i in range(0, len(body), 512):
                time.sleep(0.25)
                c.sendall(body[i:i + 512])
            assert c.recv(100).startswith(b"HTTP/1.1 200 ")


def test_nobody_who_has_asked_is_dropped(program, served):
    """Many whole requests at the same moment, and room for a few: each is answered, if only that there is no room."""
    long = {"prompt": "ab", "max_tokens": 8000, "ignore_eos": True, "stream": True}
    with Server(program, served, "-c", 8192, "-np", 4, "--max-connections-per-address", 4) as s:
        busy = [s.connect() for _ in range(3)]
        for c in busy:
            c.sendall(request(long))
            assert c.recv(100).startswith(b"HTTP/1.1 200 ")
        for _ in range(3):
            s.process.send_signal(signal.SIGSTOP)
            asked = [s.connect() for _ in range(40)]
            for c in asked:
                c.sendall(request({"prompt": "ab", "max_tokens": 1}).replace(b"\r\n", b"\r\nConnection: close\r\n", 1))
            s.process.send_signal(signal.SIGCONT)
            for c in asked:
                got = b""
                while more := c.recv(65536):
                    got += more
                assert got[:13] in (b"HTTP/1.1 200 ", b"HTTP/1.1 503 ") and got.rstrip().endswith(b"}"), got
        for c in busy:
            c.close()


def test_limits(program, served):
    endless = {"prompt": "ab", "max_tokens": 16000, "ignore_eos": True}
    with Server(program, served, "-c", 16384, "-np", 2, "--max-body", 1024, "--max-connections-per-address", 2) as s:
        busy = [s.connect() for _ in range(2)]
        for c in busy:
            c.sendall(request({**endless, "stream": True}))
            assert c.recv(100).startswith(b"HTTP/1.1 200 ")
        got = s.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")  # nobody of them waits for its client
        assert got.startswith(b"HTTP/1.1 503 ") and b"Retry-After" in got and json.loads(got.split(b"\r\n\r\n")[1])["error"]
        for c in busy:
            c.close()
    with Server(program, served, "-c", 16384, "--max-body", 1024, "--request-timeout", 0.5, "--any-model") as s:
        assert s.ask(TEXT, {"prompt": "ab", "max_tokens": 1, "model": "gpt-4"})[1]["model"] == "served"
        assert s.ask(TEXT, {"prompt": "a" * 1100})[0] == 413
        for stream in (False, True):  # they take too long
            status, reply, headers = s.ask(TEXT, {**endless, "stream": stream})
            if stream:
                assert status == 200 and "request_timeout" in reply and "[DONE]" not in reply
            else:
                assert status == 503 and reply["error"]["code"] == "request_timeout" and headers["x-should-retry"] == "false"


@pytest.mark.skipif(not shutil.which("slowhttptest"), reason="slowhttptest is not installed")
@pytest.mark.parametrize("kind", ["-H", "-B", "-X"])
def test_slowhttptest(program, served, kind):
    """Heads, bodies and readers that are slow."""
    with Server(program, served, "-c", 512) as s:
        attack = subprocess.Popen(["slowhttptest", kind, "-c", "500", "-r", "250", "-i", "1", "-l", "6", "-p", "1", "-u",
                                   f"http://127.0.0.1:{s.port}/openapi.json", "-w", "10", "-y", "20", "-n", "1", "-z", "32"],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            for _ in range(20):
                assert s.ask("/health")[0] == 200
                assert s.ask(TEXT, {"prompt": "ab", "max_tokens": 2})[0] == 200
                time.sleep(0.2)
        finally:
            attack.kill()
            attack.wait()


def test_reader_that_never_reads(server):
    with server.connect() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.sendall(request({"prompt": "ab", "max_tokens": 2000, "ignore_eos": True, "stream": True, "logprobs": 20}))
        server.wait_for("infinigen_requests_running", 1)
        assert server.ask(TEXT, {"prompt": "ab", "max_tokens": 2})[0] == 200
    server.wait_for("infinigen_requests_running", 0)


def test_many_leave_at_random(server):
    """After clients that left at all moments nothing is left of them."""
    def leave(i):
        with server.connect() as s:
            s.sendall(request({"prompt": words(20 + 37 * i % 500, i), "max_tokens": 300, "ignore_eos": True,
                               "stream": i % 3 > 0, "n": 1 + i % 2})[:None if i % 5 else 60])
            time.sleep(i % 7 * 0.02)
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        list(pool.map(leave, range(60)))
    server.wait_for("infinigen_requests_running", 0)
    server.wait_for("infinigen_requests_waiting", 0)
    server.wait_for("infinigen_http_connections", 1)
    n = server.numbers()
    assert n["infinigen_requests_failed_total"] == 0
    body = {"prompt": words(300, 1), "max_tokens": 9, "temperature": 0}
    assert server.ask(TEXT, body)[1]["choices"] == server.ask(TEXT, {**body, "cache_salt": "new"})[1]["choices"]


# ---- its end ----


def test_drain(program, served):
    with Server(program, served, "-c", 2048, "--drain-timeout", 600) as s, \
            concurrent.futures.ThreadPoolExecutor(2) as pool:
        long = {"prompt": "ab", "max_tokens": 1500, "ignore_eos": True, "temperature": 0}
        stream, whole = pool.submit(s.events, TEXT, long), pool.submit(s.ask, TEXT, long)
        s.wait_for("infinigen_requests_running", 2)
        s.process.send_signal(signal.SIGTERM)
        events = stream.result(600)
        assert events[-1]["choices"][0]["finish_reason"] == "length"
        assert whole.result(600)[1]["choices"][0]["text"] == said(events, False)
        assert s.process.wait(30) == 0
        with pytest.raises(OSError):
            s.connect()


def test_second_signal_ends_at_once(program, served):
    with Server(program, served, "-c", 8192, "-np", 4) as s:
        kept = http.client.HTTPConnection("127.0.0.1", s.port, timeout=60)
        kept.request("GET", "/health")
        assert kept.getresponse().read()
        long = [s.connect() for _ in range(8)]  # seconds of work, however slow this test is
        for c in long:
            c.sendall(request({"prompt": "ab", "max_tokens": 8000, "ignore_eos": True, "stream": True}))
        s.wait_for("infinigen_requests_running", 4)
        s.process.send_signal(signal.SIGTERM)
        end = time.monotonic() + 20
        while b"ending" not in s.said:
            assert time.monotonic() < end
            time.sleep(0.01)
        kept.request("POST", TEXT, json.dumps({"prompt": "ab"}), {"Content-Type": "application/json"})
        r = kept.getresponse()
        assert r.status == 503 and r.headers["Retry-After"] and json.load(r)["error"]["code"] is None
        assert s.stop(seconds=5) == 0


def test_what_ends_with_the_server_is_told(program, served):
    """Those that it has no time to answer, whether they run or wait: an error, after which to come again."""
    long = {"prompt": "ab", "max_tokens": 8000, "ignore_eos": True}
    with Server(program, served, "-c", 8192, "-np", 2, "--drain-timeout", 0.2) as s, \
            concurrent.futures.ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(s.ask, TEXT, {**long, "stream": i % 2 > 0}) for i in range(4)]
        s.wait_for("infinigen_requests_running", 2)
        s.wait_for("infinigen_requests_waiting", 2)
        s.process.send_signal(signal.SIGTERM)
        for i, (status, reply, headers) in enumerate(a.result(30) for a in asked):
            assert status == (200 if i % 2 else 503), reply
            error = json.loads(reply.strip().split("\n\n")[-1][6:]) if i % 2 else reply
            assert error["error"]["type"] == "unavailable_error" and "shut down" in error["error"]["message"]
            assert i % 2 or headers["retry-after"] == "1"


# ---- connections ----


def test_keep_alive(server):
    c = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    for i in range(5):
        c.request("POST", TEXT, json.dumps({"prompt": "ab", "max_tokens": 2, "stream": i % 2 == 1}),
                  {"Content-Type": "application/json"})
        r = c.getresponse()
        assert r.status == 200 and r.read()
    c.request("POST", TEXT, "{", {"Content-Type": "application/json"})
    r = c.getresponse()
    assert r.status == 400 and r.read()
    c.request("GET", "/health")
    assert c.getresponse().status == 200
