# SPDX-License-Identifier: Apache-2.0
"""The server: what it answers is what `run` answers; who asks wrongly is told so, who goes away is forgotten."""
import concurrent.futures
import http.client
import json
import math
import os
import signal
import socket
import struct
import time

import pytest

from conftest import make_model, words
from serving import Server, said

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"


@pytest.fixture
def served(tmp_path):
    return make_model(tmp_path / "served")


@pytest.fixture
def server(program, served):
    with Server(program, served, "-c", 2048, "-np", 4) as s:
        yield s


def user(text):
    return [{"role": "user", "content": text}]


def run_text(program, model, prompt, n, *flags):
    status, out, err = program("run", "-m", model, "-c", 2048, "-p", prompt, "-n", n, "--temp", 0, "--json", "-t", 2,
                               *flags)
    assert status == 0, err
    return json.loads(out)


def same_text(ours, theirs):
    """run shows what is left of a character that was cut off; the server does not."""
    return ours == theirs or ours + "\ufffd" == theirs


# ---- answers ----


def test_answers_are_those_of_run(program, server, served):
    for prompt, n in (("What is a cache?", 20), (words(300, 1), 9)):
        expected = run_text(program, served, prompt, n)
        status, reply, _ = server.ask(CHAT, {"messages": user(prompt), "max_tokens": n, "temperature": 0})
        assert status == 200, reply
        assert same_text(reply["choices"][0]["message"]["content"], expected["text"])
        assert reply["choices"][0]["finish_reason"] == ("stop" if expected["finish"] == "end" else "length")
        assert reply["usage"]["prompt_tokens"] == expected["tokens_prompt"]
        assert reply["usage"]["completion_tokens"] == expected["tokens_generated"]
        assert reply["usage"]["total_tokens"] == expected["tokens_prompt"] + expected["tokens_generated"]
        assert reply["object"] == "chat.completion" and reply["id"].startswith("chatcmpl-")
        expected = run_text(program, served, prompt, n, "--raw")
        reply = server.ask(TEXT, {"prompt": prompt, "max_tokens": n, "temperature": 0})[1]
        assert same_text(reply["choices"][0]["text"], expected["text"])
        assert reply["object"] == "text_completion" and reply["id"].startswith("cmpl-")


def test_streams(server):
    for path, chat, question in ((CHAT, True, {"messages": user("ab")}), (TEXT, False, {"prompt": "ab"})):
        body = {**question, "max_tokens": 12, "temperature": 0}
        whole = server.ask(path, body)[1]
        events = server.events(path, {**body, "stream_options": {"include_usage": True}})
        choice = whole["choices"][0]
        assert said(events, chat) == (choice["message"]["content"] if chat else choice["text"])
        assert events[-1]["choices"] == []
        assert events[-1]["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]
        assert all(e["usage"] is None for e in events[:-1])
        assert [e["choices"][0]["finish_reason"] for e in events[:-1]][-1] == choice["finish_reason"]
        assert len({e["id"] for e in events}) == 1
        if chat:
            assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
        running = server.events(path, {**body, "stream_options": {"continuous_usage_stats": True}})
        assert all(e["usage"]["total_tokens"] >= e["usage"]["prompt_tokens"] for e in running)


def test_eight_at_once(program, server, served):
    """Different prompts, options and policies, some of them streamed: each answer is as if it were alone."""
    policies = ["infinigen", "full", "window", "quest"]
    asked = [{"prompt": words(40 + 90 * i, i), "max_tokens": 10 + i, "temperature": 0 if i % 2 else 1.3, "seed": i,
              "infinigen": {"policy": policies[i % 4], "budget": 24 + i}} for i in range(8)]
    alone = [server.ask(TEXT, {**a, "cache_salt": f"alone {i}"})[1]["choices"] for i, a in enumerate(asked)]
    for _ in range(3):
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            together = list(pool.map(lambda i: said(server.events(TEXT, asked[i]), False) if i % 3 else
                                     server.ask(TEXT, asked[i])[1]["choices"][0]["text"], range(8)))
        assert together == [c[0]["text"] for c in alone]
    expected = run_text(program, served, asked[1]["prompt"], 11, "--raw", "--kv-policy", "full")
    assert same_text(together[1], expected["text"])


def test_prefixes(server):
    body = {"prompt": words(900, 5), "max_tokens": 8, "temperature": 0, "logprobs": 2}
    first, second = server.ask(TEXT, body)[1], server.ask(TEXT, body)[1]
    salted = server.ask(TEXT, {**body, "cache_salt": "x"})[1]
    assert first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] >= 880
    assert salted["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert first["choices"] == second["choices"] == salted["choices"]
    assert second["timings"]["cache_n"] == second["infinigen"]["cached_tokens"] >= 880


def test_store_outlives_the_server(program, served, tmp_path):
    body = {"prompt": words(900, 5), "max_tokens": 8, "temperature": 0}
    flags = ["-c", 1024, "--kv-store", tmp_path / "store"]
    with Server(program, served, *flags) as s:
        first = s.ask(TEXT, body)[1]
        s.wait_for("infinigen_requests_running", 0)
        time.sleep(1)  # it is made safe once there is nothing else to do
        s.process.kill()
        s.process.wait()
    with Server(program, served, *flags) as s:
        second = s.ask(TEXT, body)[1]
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] >= 880
    assert first["choices"] == second["choices"]


def test_little_memory(program, served, tmp_path):
    """More conversations than RAM holds: the rest lies on disk, and all are answered as with enough."""
    prompts = [words(1200, i) for i in range(6)]
    answers = []
    for flags in ([], ["--kv-ram", "2M", "--kv-disk", "256M", "--kv-disk-path", tmp_path]):
        with Server(program, served, "-c", 2048, "-np", 3, *flags) as s, \
                concurrent.futures.ThreadPoolExecutor(6) as pool:
            asked = [{"prompt": p, "max_tokens": 10, "temperature": 0} for p in prompts]
            answers.append([r[1]["choices"][0]["text"] for r in pool.map(lambda a: s.ask(TEXT, a), asked * 2)])
            moved = s.numbers()["infinigen_kv_spilled_bytes_total"]
    assert moved > 1e6
    assert answers[0] == answers[1]


# ---- options ----


def test_stop_strings(server):
    body = {"prompt": "abc", "max_tokens": 40, "temperature": 0}
    text = server.ask(TEXT, body)[1]["choices"][0]["text"]
    at = next(i for i in range(3, len(text) - 3) if text.find(text[i:i + 2]) == i and "\ufffd" not in text[i:i + 2])
    for stop in (text[at:at + 2], ["never", text[at:at + 2]]):
        choice = server.ask(TEXT, {**body, "stop": stop})[1]["choices"][0]
        assert choice["text"] == text[:at] and choice["finish_reason"] == "stop"
        assert said(server.events(TEXT, {**body, "stop": stop}), False) == text[:at]
    # what might have begun a stop string is not lost where the answer ends
    begun = text[-1] + "#never#"
    if "\ufffd" not in begun:
        assert said(server.events(TEXT, {**body, "stop": begun}), False) == text


def test_several_choices(server):
    body = {"prompt": ["ab", [70, 71, 72]], "n": 2, "max_tokens": 5, "temperature": 1.5, "seed": 7}
    reply = server.ask(TEXT, body)[1]
    assert [c["index"] for c in reply["choices"]] == [0, 1, 2, 3]
    assert reply["usage"]["prompt_tokens"] == 5 and reply["usage"]["completion_tokens"] == 20
    again = server.ask(TEXT, body)[1]
    assert [c["text"] for c in again["choices"]] == [c["text"] for c in reply["choices"]]
    assert reply["choices"][0]["text"] != reply["choices"][1]["text"]
    events = server.events(TEXT, body)
    assert [said(events, False, i) for i in range(4)] == [c["text"] for c in reply["choices"]]
    single = server.ask(TEXT, {**body, "prompt": [70, 71, 72], "n": 1})[1]["choices"][0]["text"]
    assert single == reply["choices"][2]["text"]


def test_logprobs(server):
    chat = server.ask(CHAT, {"messages": user("ab"), "max_tokens": 6, "temperature": 0, "logprobs": True,
                             "top_logprobs": 3})[1]["choices"][0]["logprobs"]["content"]
    assert len(chat) == 6
    for token in chat:
        assert len(token["top_logprobs"]) == 3
        assert token["logprob"] == max(t["logprob"] for t in token["top_logprobs"]) <= 0
        assert bytes(token["bytes"]).decode(errors="replace").startswith(token["token"][:1])
    body = {"prompt": "abcdef", "max_tokens": 1, "temperature": 0, "logprobs": 1, "echo": True}
    choice = server.ask(TEXT, body)[1]["choices"][0]
    scores = choice["logprobs"]
    assert choice["text"].startswith("abcdef")
    assert len(scores["tokens"]) == len(scores["token_logprobs"]) == len(scores["top_logprobs"]) == 7
    assert scores["token_logprobs"][0] is None and scores["top_logprobs"][0] is None
    assert scores["tokens"][:6] == list("abcdef") and scores["text_offset"] == list(range(7))
    assert scores["token_logprobs"][6] == max(scores["top_logprobs"][6].values())
    nothing = server.ask(TEXT, {**body, "max_tokens": 0})[1]["choices"][0]
    assert nothing["text"] == "abcdef"
    assert nothing["logprobs"]["token_logprobs"] == scores["token_logprobs"][:6]
    named = server.ask(TEXT, {**body, "return_tokens_as_token_ids": True})[1]["choices"][0]["logprobs"]
    assert all(t.startswith("token_id:") for t in named["tokens"])


def test_biases_and_penalties(server):
    ids = server.ask("/tokenize", {"content": "Q"})[1]["tokens"]
    choice = server.ask(TEXT, {"prompt": "ab", "max_tokens": 5, "temperature": 0,
                               "logit_bias": {str(ids[0]): 100}})[1]["choices"][0]
    assert choice["text"] == "QQQQQ"
    choice = server.ask(TEXT, {"prompt": "ab", "max_tokens": 9, "temperature": 0, "frequency_penalty": 1000,
                               "logit_bias": {str(ids[0]): 100}, "logprobs": 0})[1]["choices"][0]
    assert choice["text"].count("Q") == 1


# ---- tokens, and what the server is ----


def test_tokens(server):
    assert server.ask("/tokenize", {"content": "ab"})[1]["tokens"] == server.ask(
        "/tokenize", {"prompt": "ab", "add_special_tokens": False})[1]["tokens"]
    reply = server.ask("/tokenize", {"content": "h\u00e9", "with_pieces": True, "return_token_strs": True})[1]
    assert reply["count"] == 3 and len(reply["token_strs"]) == 3 and reply["tokens"][0]["piece"] == "h"
    ids = [t["id"] for t in reply["tokens"]]
    back = server.ask("/detokenize", {"tokens": ids})[1]
    assert back["content"] == back["prompt"] == "h\u00e9"
    prompt = server.ask("/apply-template", {"messages": user("hi")})[1]["prompt"]
    assert prompt == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert server.ask("/tokenizer_info")[1]["eos_token"] == "</s>"
    assert server.ask("/tokenize", {"messages": user("hi")})[1]["count"] > 10


def test_what_it_is(server):
    assert server.ask("/health")[:2] == (200, {"status": "ok"})
    assert "version" in server.ask("/version")[1]
    models = server.ask("/v1/models")[1]["data"]
    assert [m["id"] for m in models] == ["served"]
    assert server.ask("/v1/models/served")[1] == models[0]
    assert server.ask("/v1/models/other")[0] == 404
    assert server.ask("/props")[1]["total_slots"] == 4
    slots = server.ask("/slots")[1]
    assert len(slots) == 4 and not any(s["is_processing"] for s in slots)
    paths = server.ask("/openapi.json")[1]["paths"]
    assert CHAT in paths and "/v1/models/{model}" in paths
    server.ask(TEXT, {"prompt": "ab", "max_tokens": 3})
    numbers = server.numbers()
    assert numbers["infinigen_generated_tokens_total"] == 3
    assert numbers['infinigen_time_to_first_token_seconds_bucket{le="+Inf"}'] == 1
    assert numbers["infinigen_time_between_tokens_seconds_count"] == 2
    assert all(name.startswith("infinigen_") and ":" not in name for name in numbers)


def test_page(server):
    status, first, headers = server.ask("/")
    policy = headers["content-security-policy"]
    nonce = policy.split("script-src 'nonce-")[1].split("'")[0]
    assert status == 200 and headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in policy and "connect-src 'self'" in policy and "unsafe" not in policy
    assert first.count(f'nonce="{nonce}"') == 2 and "{{nonce}}" not in first
    assert nonce not in server.ask("/")[1]
    # nothing from elsewhere, and nothing that the policy forbids or that takes text for markup
    for word in ("http://", "https://", "src=", "innerHTML", "outerHTML", "insertAdjacent", "eval(", " style=", " onclick="):
        assert word not in first, word


# ---- what is refused ----

WRONG = [
    ({"prompt": "a", "tools": [{}]}, "tools"), ({"prompt": "a", "nonsense": 1}, "nonsense"),
    ({"prompt": "a", "response_format": {"type": "json_object"}}, "response_format"),
    ({"prompt": "a", "max_tokens": "3"}, "max_tokens"), ({"prompt": "a", "max_tokens": 1.5}, "max_tokens"),
    ({"prompt": "a", "max_tokens": -1}, "max_tokens"), ({"prompt": "a", "temperature": "hot"}, "temperature"),
    ({"prompt": "a", "temperature": -0.1}, "temperature"), ({"prompt": "a", "temperature": True}, "temperature"),
    ({"prompt": "a", "top_p": 0}, "top_p"), ({"prompt": "a", "n": 17}, "n"), ({"prompt": "a", "n": 0}, "n"),
    ({"prompt": "a", "stop": [""]}, "stop"), ({"prompt": "a", "stop": ["x"] * 17}, "stop"),
    ({"prompt": "a", "stop": 3}, "stop"), ({"prompt": "a", "stop": "x" * 257}, "stop"),
    ({"prompt": "a", "logprobs": 21}, "logprobs"), ({"prompt": "a", "logprobs": True}, "logprobs"),
    ({"prompt": "a", "logit_bias": {"x": 1}}, "logit_bias"), ({"prompt": "a", "logit_bias": {"1": 101}}, "logit_bias"),
    ({"prompt": "a", "logit_bias": []}, "logit_bias"), ({"prompt": "a", "stream": "yes"}, "stream"),
    ({"prompt": "a", "stream_options": {"include_usage": True}}, "stream_options"),
    ({"prompt": "a", "stream": True, "stream_options": {"x": 1}}, "stream_options.x"),
    ({"prompt": "a", "suffix": "b"}, "suffix"), ({"prompt": "a", "best_of": 2}, "best_of"),
    ({"prompt": "a", "seed": "x"}, "seed"), ({"prompt": "a", "model": 1}, "model"),
    ({"prompt": "a", "infinigen": {"policy": "none"}}, "infinigen.policy"),
    ({"prompt": "a", "infinigen": {"budget": 0}}, "infinigen.budget"),
    ({"prompt": "a", "infinigen": {"colour": 0}}, "infinigen.colour"), ({"prompt": "a", "cache_salt": 1}, "cache_salt"),
    ({}, "prompt"), ({"prompt": None}, "prompt"), ({"prompt": []}, "prompt"), ({"prompt": ""}, "prompt"),
    ({"prompt": 3}, "prompt"), ({"prompt": [1, "a"]}, "prompt"), ({"prompt": [1, -1]}, "prompt"),
    ({"prompt": [10 ** 9]}, "prompt"), ({"prompt": [[1], 2]}, "prompt"), ({"prompt": ["a"] * 129}, "prompt"),
    ({"prompt": "a", "messages": []}, "messages"), ({"prompt": "a", "echo": 1}, "echo"),
]
WRONG_CHAT = [
    ({"messages": []}, "messages"), ({"messages": "hi"}, "messages"), ({"messages": [1]}, "messages"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": 1, "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": "x", "tool_calls": [1]}]}, "messages[0].tool_calls"),
    ({"messages": user("x"), "top_logprobs": 2}, "top_logprobs"), ({"messages": user("x"), "logprobs": 2}, "logprobs"),
    ({"messages": user("x"), "tool_choice": "required"}, "tool_choice"),
    ({"messages": user("x"), "response_format": {"type": "json_schema", "json_schema": {}}}, "response_format"),
    ({"messages": user("x"), "prompt": "x"}, "prompt"), ({"messages": user("x"), "modalities": ["audio"]}, "modalities"),
]


def test_wrong_fields(server):
    for path, wrong in ((TEXT, WRONG), (CHAT, WRONG_CHAT)):
        for body, field in wrong:
            status, reply, _ = server.ask(path, body)
            assert status == 400, (body, reply)
            error = reply["error"]
            assert error["param"] == field, (body, error)
            assert error["type"] == "invalid_request_error" and error["message"]
    # null is as if it were not there, and what changes nothing is not looked at
    assert server.ask(TEXT, {"prompt": "a", "max_tokens": 1, "stop": None, "logprobs": None, "seed": None, "tools": None,
                             "user": "x", "best_of": 1, "suffix": ""})[0] == 200
    assert server.ask(CHAT, {"messages": [{"role": "developer", "content": [{"type": "text", "text": "a"}]},
                                          {"role": "user", "content": "b", "name": "x"}], "max_tokens": 1,
                             "tool_choice": "none", "tools": []})[0] == 200


def test_long_prompts(server):
    for body in ({"prompt": words(3000, 1)}, {"prompt": [70] * 3000}):
        status, reply, _ = server.ask(TEXT, body)
        assert status == 400 and reply["error"]["code"] == "context_length_exceeded"
    status, reply, _ = server.ask(CHAT, {"messages": user(words(3000, 1))})
    assert status == 400 and reply["error"]["code"] == "context_length_exceeded"
    full = server.ask(TEXT, {"prompt": [70] * 2047, "max_tokens": 50, "ignore_eos": True, "temperature": 0})[1]
    assert full["usage"]["completion_tokens"] == 2 and full["choices"][0]["finish_reason"] == "length"


def test_wrong_bodies(server):
    deep = b'{"prompt":' + b"[" * 100000 + b"]" * 100000 + b"}"
    for raw in (b"", b"{", b"[]", b"3", b"null", b'{"prompt":"\xff"}', b'{"prompt":"a\\u0000b"}', b'{"prompt":"\\ud800"}',
                b'{"prompt":"a","prompt":"b"}', b'{"prompt":"a","max_tokens":1e999}', deep, b'{"prompt":"a"} x',
                b'{"prompt":"a","max_tokens":' + b"9" * 400 + b"}"):
        status, reply, _ = server.ask(TEXT, raw=raw)
        assert status == 400 and reply["error"]["type"] == "invalid_request_error", (raw[:40], reply)
    assert server.ask(TEXT, raw=b"{}", headers={"Content-Type": "text/plain"})[0] == 415
    assert server.ask("/health")[0] == 200


def test_paths_and_methods(server):
    for path in ("/nothing", "/v1", "/v1/embeddings", "//health", "/health/", "/v1/models/", "/../health", "/health%00x"):
        status, reply, _ = server.ask(path)
        assert status == 404 and reply["error"]["type"] == "not_found_error", path
    for method, path, allowed in (("GET", CHAT, "POST"), ("POST", "/health", "GET, HEAD"), ("DELETE", "/slots", "GET, HEAD"),
                                  ("OPTIONS", CHAT, "POST"), ("PUT", TEXT, "POST")):
        status, reply, headers = server.ask(path, method=method)
        assert status == 405 and headers["allow"] == allowed, (method, path)
        assert "access-control-allow-origin" not in headers
    status, text, headers = server.ask("/health", method="HEAD")
    assert status == 200 and not text
    status, reply, _ = server.ask(TEXT, {"prompt": "a", "model": "gpt-4"})
    assert status == 404 and reply["error"]["code"] == "model_not_found"


# ---- who may ask ----


def test_hosts_and_origins(server):
    for host in ("evil.example", "127.0.0.1.evil.example", "evil.example:80", "", "[::1", "localhost:x", "192.168.0.1"):
        got = server.send(f"GET /v1/models HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        assert b" 403 " in got.split(b"\r\n")[0] or (not host and b" 400 " in got.split(b"\r\n")[0]), (host, got)
    for host in ("localhost", "LOCALHOST:8080", "127.0.0.1", "[::1]:8080"):
        got = server.send(f"GET /v1/models HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        assert b" 200 " in got.split(b"\r\n")[0], (host, got)
    own = f"http://127.0.0.1:{server.port}"
    assert server.ask("/v1/models", headers={"Origin": own})[0] == 200
    for origin in ("http://evil.example", "null", f"http://127.0.0.1:{server.port + 1}"):
        assert server.ask("/v1/models", headers={"Origin": origin})[0] == 403


def test_keys(program, served, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("# keys\nfirst-key\n\nsecond-key\n")
    with Server(program, served, "-c", 256, "--api-key", "third-key", "--api-key-file", keys) as s:
        def status(key, path="/v1/models", method=None):
            return s.ask(path, headers={"Authorization": key} if key else {}, method=method)[0]
        paths = [p.replace("{model}", "served") for p in s.ask("/openapi.json", headers={
            "Authorization": "Bearer first-key"})[1]["paths"]]
        for path in paths:
            public = path in ("/", "/health", "/v1/health", "/version")
            assert (status(None, path) != 401) == public, path
        assert status(None, "/nothing") == 401
        for key in ("first-key", "second-key", "third-key"):
            assert status("Bearer " + key) == 200
            assert status(key) == 401 and status("Bearer " + key + "x") == 401 and status("Bearer " + key[:-1]) == 401
        assert status("Bearer # keys") == 401 and status("Bearer ") == 401 and status("Basic first-key") == 401
        headers = s.ask("/v1/models")[2]
        assert headers["www-authenticate"] == "Bearer"
        assert s.send(b"GET /v1/models HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer first-key\r\n"
                      b"Connection: close\r\n\r\n").startswith(b"HTTP/1.1 200 ")  # behind a proxy
        keys.write_text("fourth-key\n")
        s.process.send_signal(signal.SIGHUP)
        end = time.monotonic() + 20
        while status("Bearer fourth-key") != 200:
            assert time.monotonic() < end
        assert status("Bearer first-key") == 401 and status("Bearer third-key") == 200
        keys.write_text("")
        s.process.send_signal(signal.SIGHUP)
        end = time.monotonic() + 20
        while b"stay as they are" not in s.said:
            assert time.monotonic() < end
            time.sleep(0.05)
        assert status("Bearer fourth-key") == 200
        assert b"fourth-key" not in s.said


def test_refuses_to_start(program, served, tmp_path, tiny):
    for flags, word in ((["--host", "0.0.0.0"], b"--api-key"), (["--host", "no.such.host.invalid", "--api-key", "k"], b"--host"),
                        (["--api-key-file", tmp_path / "none"], b"none"), (["--api-key", "a b"], b"--api-key"),
                        (["--unix", "/x" * 100], b"--unix"), (["-np", 600], b"600"), (["-np", 16, "-b", 8], b"16")):
        status, _, err = program("serve", "-m", served, *flags)
        assert status in (1, 2) and word in err and err.count(b"\n") == 1, (flags, err)
    status, _, err = program("serve", "-m", tiny)
    assert status != 0 and b"tokenizer" in err


def test_unix_socket(program, served, tmp_path):
    path = tmp_path / "socket"
    for _ in range(2):  # one that is left behind is replaced
        with Server(program, served, "-c", 256, "--unix", path) as s:
            assert os.stat(path).st_mode & 0o77 == 0
            with socket.socket(socket.AF_UNIX) as c:
                c.connect(str(path))
                c.sendall(b"GET /health HTTP/1.1\r\nHost: anything\r\nConnection: close\r\n\r\n")
                assert c.recv(4096).startswith(b"HTTP/1.1 200 ")
            s.process.kill()
            s.process.wait()


# ---- clients that behave badly ----


def request(body, path=TEXT):
    data = json.dumps(body).encode()
    return (f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(data)}\r\n\r\n").encode() + data


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
        for c in held:
            c.close()
        s.wait_for("infinigen_requests_running", 0)
        assert s.ask(TEXT, {"prompt": "ab", "max_tokens": 1})[0] == 200


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
    before = server.ask(TEXT, {"prompt": " " * 20_000_000})
    assert before[0] == 400 and before[1]["error"]["code"] == "context_length_exceeded"


def test_slow_clients_block_nobody(server):
    slow = []
    for i in range(60):
        slow.append(server.connect())
        slow[-1].sendall(b"GET /health HTTP/1.1\r\nHost: loc" if i % 2 else b"POST /v1/completions HTTP/1.1\r\n"
                         b"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
    start = time.monotonic()
    assert server.ask(TEXT, {"prompt": "ab", "max_tokens": 2})[0] == 200
    assert server.ask("/health")[0] == 200
    assert time.monotonic() - start < 5
    for s in slow:  # and none of them is waited for much longer than it may take
        s.settimeout(30)
        s.recv(100000)
        s.close()
    assert 5 < time.monotonic() - start < 30
    server.wait_for("infinigen_http_connections", 1)


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
    with Server(program, served, "-c", 8192) as s:
        c = s.connect()
        c.sendall(request({"prompt": "ab", "max_tokens": 8000, "ignore_eos": True, "stream": True}))
        s.wait_for("infinigen_requests_running", 1)
        s.process.send_signal(signal.SIGTERM)
        end = time.monotonic() + 20
        while b"ending" not in s.said:
            assert time.monotonic() < end
            time.sleep(0.01)
        assert s.stop(seconds=5) == 0


# ---- log-likelihoods ----


def test_scores_are_those_of_eval(program, server, served, tmp_path):
    """What lm-evaluation-harness computes from echo and logprobs is what `eval` computes."""
    query, choices = "The first thing is", [" a house", " another one", " x"]
    task = tmp_path / "task.jsonl"
    task.write_text(json.dumps({"query": query, "choices": choices, "answer": 0}) + "\n")
    status, _, err = program("eval", "-m", served, "--task", task, "-o", tmp_path / "out.jsonl", "--kv-policy", "full",
                             "-t", 2)
    assert status == 0, err
    expected = json.loads((tmp_path / "out.jsonl").read_text().splitlines()[0])
    scores = next(v for v in expected.values() if isinstance(v, list) and len(v) == 3 and isinstance(v[0], float))
    n = server.ask("/tokenize", {"prompt": query})[1]["count"]
    for choice, score in zip(choices, scores):
        reply = server.ask(TEXT, {"prompt": query + choice, "max_tokens": 1, "temperature": 0, "logprobs": 1, "echo": True,
                                  "seed": 1234})[1]
        ours = math.fsum(reply["choices"][0]["logprobs"]["token_logprobs"][n:-1])
        assert ours == pytest.approx(score, rel=1e-6)


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
