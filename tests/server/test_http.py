# SPDX-License-Identifier: Apache-2.0
"""HTTP to the letter: what could be read in two ways is refused, always with JSON and the connection's end, and never is a part
of one request taken for the next one."""
import json
import re

import pytest

from serving import Server, served

BODY = '{"content":"ab"}'
POST = "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
GET = "GET /health HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = POST + "Transfer-Encoding: chunked\r\n\r\n"
ONE_CHUNK = "10\r\n" + BODY + "\r\n0\r\n\r\n"

# name: (request, the status of its one reply)
TABLE = {
    # the first line
    "plain": (GET + "\r\n", 200), "two blanks": ("GET  /health HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
    "a blank before it": (" " + GET + "\r\n", 400), "empty lines before it": ("\r\n\r\n" + GET + "\r\n", 200),
    "no version": ("GET /health\r\n\r\n", 400), "small letters": ("GET /health http/1.1\r\nHost: localhost\r\n\r\n", 400),
    "letters after the version": ("GET /health HTTP/1.1x\r\nHost: localhost\r\n\r\n", 400),
    "HTTP/2": ("GET /health HTTP/2.0\r\nHost: localhost\r\n\r\n", 505), "HTTP/2's greeting": ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    "HTTP/0.9": ("GET /health HTTP/0.9\r\n\r\n", 505), "HTTP/1.2": ("GET /health HTTP/1.2\r\nHost: localhost\r\n\r\n", 200),
    "a method of wrong characters": ("G@T /health HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
    "TLS": ("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400), "NUL in the path": ("GET /hea\0lth HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "as for a proxy": ("GET http://localhost/health HTTP/1.1\r\nHost: localhost\r\n\r\n", 200),
    "as for a proxy, another host": ("GET http://evil/health HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
    "a long path": (f"GET /{'a' * 9000} HTTP/1.1\r\nHost: localhost\r\n\r\n", 414),
    "a first line without an end": ("GET /" + "a" * 70000, 414),
    # lines
    "bare line feeds": ("GET /health HTTP/1.1\nHost: localhost\n\n", 400), "one of them": ("GET /health HTTP/1.1\r\nHost: localhost\nX: y\r\n\r\n", 400),
    "at the end": ("GET /health HTTP/1.1\r\nHost: localhost\r\n\n", 400), "a bare carriage return": ("GET /health HTTP/1.1\r\nHost: localhost\rX: y\r\n\r\n", 400),
    "a folded line": (GET + "X: a\r\n b\r\n\r\n", 400), "a folded length": (POST + "Content-Length:\r\n 16\r\n\r\n" + BODY, 400),
    "a blank line that is not empty": (POST + "Content-Length: 16\r\n\t\r\n\r\n" + BODY, 400), "a first field with a blank": ("GET /health HTTP/1.1\r\n Host: localhost\r\n\r\n", 400),
    # fields
    "a blank before the colon": (POST + "Content-Length : 16\r\n\r\n" + BODY, 400), "the same of chunks": (POST + "Transfer-Encoding : chunked\r\n\r\n" + ONE_CHUNK, 400),
    "no colon": (GET + "Bad\r\n\r\n", 400), "no name": (GET + ": x\r\n\r\n", 400), "a wrong name": (GET + "A(b: c\r\n\r\n", 400),
    "NUL in a value": (GET + "A: b\0c\r\n\r\n", 400), "a control character": (GET + "A: b\x01c\r\n\r\n", 400),
    "no Host": ("GET /health HTTP/1.1\r\n\r\n", 400), "two of them": (GET + "Host: localhost\r\n\r\n", 400),
    "101 fields": (GET + "A: b\r\n" * 101 + "\r\n", 431), "100 fields": (GET + "A: b\r\n" * 99 + "\r\n", 200),
    "a long field": (GET + f"A: {'b' * 33000}\r\n\r\n", 431), "fields without an end": (GET + "A: b\r\n" * 20000, 431),
    "two keys": (GET + "Authorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n", 400),
    # the length
    "a length": (POST + "Content-Length: 16\r\n\r\n" + BODY, 200), "blanks after it": (POST + "Content-Length: 16 \r\n\r\n" + BODY, 200),
    **{f"the length {n}": (POST + f"Content-Length: {n}\r\n\r\n" + BODY, 400) for n in ("+16", "-16", "0x10", "", "1 6", "16, 16", "16,", "1e1", "16.0", "\v16")},
    "two lengths": (POST + "Content-Length: 16\r\nContent-Length: 17\r\n\r\n" + BODY, 400), "two equal ones": (POST + "Content-Length: 16\r\nContent-Length: 16\r\n\r\n" + BODY, 400),
    "a length past all numbers": (POST + "Content-Length: 99999999999999999999\r\n\r\n" + BODY, 413), "2^64 + 16": (POST + "Content-Length: 18446744073709551632\r\n\r\n" + BODY, 413),
    "no length": (POST + "\r\n", 411), "length and chunks": (POST + "Content-Length: 16\r\nTransfer-Encoding: chunked\r\n\r\n" + ONE_CHUNK, 400),
    "chunks and length": (POST + "Transfer-Encoding: chunked\r\nContent-Length: 16\r\n\r\n" + ONE_CHUNK, 400),
    "a body that nobody wants": (GET + "Content-Length: 5\r\n\r\nhello", 200),
    # chunks
    "chunks": (CHUNKED + ONE_CHUNK, 200), "several": (CHUNKED + "6\r\n" + BODY[:6] + "\r\nA\r\n" + BODY[6:] + "\r\n0\r\n\r\n", 200),
    "an extension and a trailer": (CHUNKED + "10;x=1\r\n" + BODY + "\r\n0\r\nX: y\r\n\r\n", 200),
    **{f"the chunk's length {n!r}"[:40]: (CHUNKED + n + "\r\n" + BODY + "\r\n0\r\n\r\n", 400)
       for n in ("0x10", " 10", "10 ", "+10", "-1", "", "xyz", "10;\x01", "f" * 17, "1" + "0" * 16, "0" * 300 + "10", "10;" + "a" * 9000)},
    "a chunk past all numbers": (CHUNKED + "f" * 16 + "\r\n" + BODY, 413), "a chunk that is too large": (CHUNKED + "7fffffff\r\n" + BODY, 413),
    "a bare line feed after a length": (CHUNKED + "10\n" + BODY + "\r\n0\r\n\r\n", 400), "after a chunk": (CHUNKED + "10\r\n" + BODY + "\n0\r\n\r\n", 400),
    "no line's end after a chunk": (CHUNKED + "10\r\n" + BODY + "XX0\r\n\r\n", 400), "a wrong trailer": (CHUNKED + "10\r\n" + BODY + "\r\n0\r\n X: y\r\n\r\n", 400),
    "many trailers": (CHUNKED + "10\r\n" + BODY + "\r\n0\r\n" + "X: y\r\n" * 300 + "\r\n", 400),
    **{f"the coding {c}": (POST + f"Transfer-Encoding: {c}\r\n\r\n" + ONE_CHUNK, 400) for c in ("gzip, chunked", "xchunked", "chunked, chunked", "\vchunked", "identity", "")},
    "two codings": (POST + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n" + ONE_CHUNK, 400),
    "chunks in HTTP/1.0": (POST.replace("1.1", "1.0") + "Transfer-Encoding: chunked\r\n\r\n" + ONE_CHUNK, 400),
    "another expectation": (POST + "Expect: x\r\nContent-Length: 16\r\n\r\n" + BODY, 417),
}


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    import os
    from conftest import Program, make_model
    path = os.environ.get("INFINIGEN") or pytest.skip("INFINIGEN does not name the program")
    folder = tmp_path_factory.mktemp("raw")
    with Server(Program(os.path.abspath(path), str(folder)), make_model(folder / "served"), "-c", 256) as s:
        yield s


def replies(got):
    """(status, head, body) of each; whatever is not a whole reply fails."""
    out = []
    while got:
        head, body = got.split(b"\r\n\r\n", 1)
        assert head.startswith(b"HTTP/1.1 "), got
        n = re.search(rb"Content-Length: (\d+)", head)
        out.append((int(head[9:12]), head, body[:int(n[1])] if n else b""))
        got = body[int(n[1]):] if n else body
    return out


@pytest.mark.parametrize("name", TABLE)
def test_one_reply(raw, name):
    """Behind each stands a request for another path: it is answered after one that is right, and never after one that is wrong."""
    request, expected = TABLE[name]
    got = replies(raw.send((request + "GET /version HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").encode("latin1")))
    assert got[0][0] == expected, got
    if expected in (200, 411):
        assert len(got) == 2 and b'"version"' in got[1][2], got
    else:
        assert len(got) == 1 and b"Connection: close" in got[0][1]
        error = json.loads(got[0][2])["error"]
        assert error["message"] and {"type", "param", "code"} <= set(error)


def test_one_after_the_other(raw):
    """Requests that come at once, or a byte at a time."""
    three = (POST + "Content-Length: 16\r\n\r\n" + BODY) * 2 + CHUNKED + ONE_CHUNK
    three = (three + GET + "Connection: close\r\n\r\n").encode()
    assert [r[0] for r in replies(raw.send(three))] == [200] * 4
    with raw.connect() as s:
        for byte in three:
            s.sendall(bytes([byte]))
        got = b""
        while more := s.recv(65536):
            got += more
    assert [r[0] for r in replies(got)] == [200] * 4


def test_versions(raw):
    old = raw.send(GET.replace("1.1", "1.0").encode() + b"\r\n" + GET.encode() + b"\r\n")
    assert len(replies(old)) == 1 and b"Connection: close" in old
    kept = raw.send(GET.replace("1.1", "1.0").encode() + b"Connection: keep-alive\r\n\r\n" + GET.encode() + b"Connection: close\r\n\r\n")
    assert len(replies(kept)) == 2
    bare = replies(raw.send(b"GET /health HTTP/1.0\r\n\r\n"))
    assert [r[0] for r in bare] == [200]  # without Host


def test_hosts_without_a_path(raw):
    """As for a proxy: what follows the host may be left out."""
    for target in ("http://localhost", "http://localhost?a=b", "http://localhost/"):
        got = raw.send(f"GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        assert got.startswith(b"HTTP/1.1 200 ") and b"text/html" in got, target


def test_lines_of_one_list(raw):
    """Whether the connection goes on is said in any of several lines."""
    for lines, n in (("keep-alive\r\nConnection: close", 1), ("x\r\nconnection: y, CLOSE", 1), ("x\r\nConnection: keep-alive", 2)):
        got = raw.send((GET + f"Connection: {lines}\r\n\r\n" + GET + "Connection: close\r\n\r\n").encode())
        assert [r[0] for r in replies(got)] == [200] * n, lines


def test_streams_of_old_clients(raw):
    stream = json.dumps({"prompt": "ab", "max_tokens": 3, "stream": True})
    whole = raw.send((POST.replace("/tokenize", "/v1/completions").replace("1.1", "1.0") + f"Content-Length: {len(stream)}\r\n\r\n" + stream).encode())
    assert b"chunked" not in whole and whole.endswith(b"data: [DONE]\n\n")


def test_expect_continue(raw):
    """The body is asked for only if it is wanted."""
    with raw.connect() as s:
        s.sendall((POST + "Expect: 100-continue\r\nContent-Length: 16\r\n\r\n").encode())
        assert s.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        s.sendall(BODY.encode())
        assert s.recv(1000).startswith(b"HTTP/1.1 200 ")
    for length in ("16", str(1 << 30)):
        path = "/nothing" if length == "16" else "/tokenize"
        got = raw.send((POST.replace("/tokenize", path) + f"Expect: 100-continue\r\nContent-Length: {length}\r\n\r\n").encode())
        assert got.split()[1] in (b"404", b"413")
