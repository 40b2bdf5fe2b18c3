# SPDX-License-Identifier: Apache-2.0
"""Who asks wrongly is told so, who may not ask as well."""
import json
import os
import signal
import socket
import time

import pytest

from conftest import words
from serving import CHAT, TEXT, Server, request, served, server, user


# ---- what is refused ----

WRONG = [
    ({"prompt": "a", "tools": [{}]}, "tools"), ({"prompt": "a", "user": 1}, "user"),
    ({"prompt": "a", "response_format": {"type": "xml"}}, "response_format"),
    ({"prompt": "a", "max_tokens": "3"}, "max_tokens"), ({"prompt": "a", "max_tokens": 1.5}, "max_tokens"),
    ({"prompt": "a", "max_tokens": -2}, "max_tokens"),
    ({"prompt": "a", "max_tokens": 1e18}, "max_tokens"), ({"prompt": "a", "seed": 1e300}, "seed"), ({"prompt": "a", "temperature": "hot"}, "temperature"),
    ({"prompt": "a", "temperature": -0.1}, "temperature"), ({"prompt": "a", "temperature": True}, "temperature"),
    ({"prompt": "a", "top_p": -0.1}, "top_p"), ({"prompt": "a", "n": 17}, "n"), ({"prompt": "a", "n": 0}, "n"),
    ({"prompt": "a", "stop": ["x"] * 65}, "stop"),
    ({"prompt": "a", "stop": 3}, "stop"), ({"prompt": "a", "stop": "x" * 257}, "stop"),
    ({"prompt": "a", "logprobs": 21}, "logprobs"), ({"prompt": "a", "logprobs": True}, "logprobs"),
    ({"prompt": "a", "logit_bias": {"x": 1}}, "logit_bias"), ({"prompt": "a", "logit_bias": {"1": 101}}, "logit_bias"),
    ({"prompt": "a", "logit_bias": {"99999999": 1}}, "logit_bias"),
    ({"prompt": "a", "logit_bias": [[1]]}, "logit_bias"), ({"prompt": "a", "logit_bias": [["1", 101]]}, "logit_bias"),
    ({"prompt": "a", "logit_bias": {"1": False}}, "logit_bias"), ({"prompt": "a", "stream": "yes"}, "stream"),
    ({"prompt": "a", "stream_options": {"include_usage": True}}, "stream_options"),
    ({"prompt": "a", "suffix": "b"}, "suffix"), ({"prompt": "a", "best_of": 2}, "best_of"),
    ({"prompt": "a", "seed": "x"}, "seed"), ({"prompt": "a", "model": 1}, "model"),
    ({"prompt": "a", "infinigen": {"policy": "none"}}, "infinigen.policy"),
    ({"prompt": "a", "infinigen": {"budget": 0}}, "infinigen.budget"),
    ({"prompt": "a", "infinigen": {"policy": "h2o"}}, "infinigen"),
    ({"prompt": "a", "infinigen": {"colour": 0}}, "infinigen.colour"), ({"prompt": "a", "cache_salt": 1}, "cache_salt"),
    ({}, "prompt"), ({"prompt": None}, "prompt"), ({"prompt": []}, "prompt"), ({"prompt": ""}, "prompt"),
    ({"prompt": 3}, "prompt"), ({"prompt": [1, "a"]}, "prompt"), ({"prompt": [1, -1]}, "prompt"),
    ({"prompt": [10 ** 9]}, "prompt"), ({"prompt": [1.5]}, "prompt"), ({"prompt": "a", "stop_token_ids": [1.5]}, "stop_token_ids"),
    ({"prompt": "a", "best_of": 1.5}, "best_of"), ({"prompt": [[1], 2]}, "prompt"), ({"prompt": ["a"] * 129}, "prompt"),
    ({"prompt": "a", "messages": [1]}, "messages"), ({"prompt": "a", "echo": 1}, "echo"),
]
WRONG_CHAT = [
    ({"messages": []}, "messages"), ({"messages": "hi"}, "messages"), ({"messages": [1]}, "messages"),
    ({"messages": [{"role": "function", "content": "x"}]}, "messages[0].role"),
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
    for stop in ("", [""], ["", "zz"]):
        assert server.ask(TEXT, {"prompt": "a", "max_tokens": 1, "stop": stop})[0] == 200
    empty = [{"role": r, "content": None} for r in ("assistant", "tool")]
    assert server.ask(CHAT, {"messages": user("a") + empty + user("b"), "max_tokens": 1})[0] == 200


def test_stop_strings_are_strings(server):
    error = server.ask(TEXT, {"prompt": "a", "stop": [None]})[1]["error"]
    assert error["param"] == "stop" and error["message"] == "stop: all of the list must be strings"


def test_answers_of_clients(server):
    """As they come back: without content, which was null, or with the reason why there is no answer."""
    def prompt(content):
        return server.ask("/apply-template", {"messages": [*user("a"), {"role": "assistant", **content}, *user("b")]})

    assert prompt({}) == prompt({"content": None}) == prompt({"content": ""}) and prompt({})[0] == 200
    parts = [{"type": "refusal", "refusal": "I can't"}, {"type": "text", "text": " help."}]
    assert prompt({"content": parts})[1] == prompt({"content": "I can't help."})[1]
    for wrong in ([{"type": "refusal", "text": "no"}], [{"type": "refusal", "refusal": None}], [{"refusal": "no"}], [None]):
        status, reply, _ = prompt({"content": wrong})
        assert status == 400 and reply["error"]["param"] == "messages[1].content"
    for role in ("user", "system", "tool"):
        status, reply, _ = server.ask(CHAT, {"messages": [{"role": role, "content": parts}], "max_tokens": 1})
        assert status == 400 and reply["error"]["param"] == "messages[0].content"


# Known to other servers, and not here: with a value that asks for something, and one that asks for nothing.
ABSENT = [
    ("functions", [{"name": "f"}], []),
    ("function_call", "auto", "none"), ("ebnf", "root ::= x", ""),
    ("modalities", ["text", "audio"], ["text"]), ("audio", {"voice": "alloy"}, None),
    ("web_search_options", {"x": 1}, {}), ("use_beam_search", True, False), ("best_of", 3, 1), ("length_penalty", 2, 1),
    ("prompt_logprobs", 1, None), ("truncate_prompt_tokens", 5, None), ("logits_processors", ["x"], []),
    ("allowed_token_ids", [1], []), ("bad_words", ["x"], []), ("mirostat", 2, 0), ("tfs_z", 0.8, 1),
    ("n_probs", 3, 0), ("chat_template", "{{ x }}", None), ("image_data", [{}], []),
    ("spaces_between_special_tokens", False, True), ("post_sampling_probs", True, False), ("add_special_tokens", False, True),
]


def test_what_is_not_there(server):
    for question, path in (({"prompt": "a"}, TEXT), ({"messages": user("a")}, CHAT)):
        tools = [("tools", [{"type": "function"}], []), ("tool_choice", "auto", "none"), ("reasoning_effort", "high", "none"),
                 ("continue_final_message", True, False)] if path == TEXT else []
        for field, asks, nothing in [*ABSENT, *tools, ("suffix", "b", "")]:
            status, reply, _ = server.ask(path, {**question, "max_tokens": 1, field: asks})
            assert status == 400 and reply["error"]["param"] == field, (field, reply)
        status, reply, _ = server.ask(path, {**question, "max_tokens": 1, **{f: nothing for f, _, nothing in ABSENT}})
        assert status == 200, reply
    image = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}]
    assert server.ask(CHAT, {"messages": image})[1]["error"]["param"] == "messages[0].content"
    for field, wrong in (("tools", {}), ("tools", False), ("suffix", []), ("echo", 0), ("mirostat", False), ("json_schema", 3),
                         ("tool_choice", []), ("metadata", "x"), ("parallel_tool_calls", 1), ("truncate_prompt_tokens", 0),
                         ("add_generation_prompt", 1)):
        status, reply, _ = server.ask(CHAT, {"messages": user("a"), field: wrong})
        assert status == 400 and reply["error"]["param"] == field, field


def test_both_lengths(server):
    """max_completion_tokens counts, whatever the other one is."""
    for most, later, wanted in ((0, 5, 5), (7, 5, 5), (5, None, 5)):
        body = {"prompt": "a", "max_tokens": most, "max_completion_tokens": later, "ignore_eos": True, "temperature": 0}
        status, reply, _ = server.ask(TEXT, body)
        assert status == 200 and reply["usage"]["completion_tokens"] == wanted
    status, reply, _ = server.ask(TEXT, {"prompt": "a", "max_tokens": 5, "max_completion_tokens": 0})
    assert status == 200 and reply["usage"]["completion_tokens"] == 0 and reply["choices"][0]["text"] == ""


def test_unknown_fields(server):
    """They are passed over and logged once, by a name that is safe to show; those of `infinigen` are refused."""
    body = {"prompt": "a", "max_tokens": 3, "temperature": 0}
    plain = server.ask(TEXT, body)[1]["choices"]
    for _ in range(2):
        assert server.ask(TEXT, {**body, "no_such_field": "a secret", "\x1b[31mred": 1})[1]["choices"] == plain
    assert server.said.count(b"no_such_field") == 1 and b"secret" not in server.said
    assert b"?[31mred" in server.said and b"\x1b" not in server.said
    for i in range(20):
        assert server.ask(TEXT, {**body, **{f"x{i}_{j}": 1 for j in range(20)}})[0] == 200
    assert server.said.count(b"passed over") <= 64
    assert server.ask(CHAT, {"messages": [{"role": "user", "content": "b", "x": 1}], "max_tokens": 1, "stream": True,
                             "stream_options": {"x": 1}})[0] == 200
    status, reply, _ = server.ask(TEXT, {**body, "infinigen": {"polcy": "full"}})
    assert status == 400 and reply["error"]["param"] == "infinigen.polcy"


def test_small_bodies_that_are_much_work(server):
    """Take time and memory in proportion to their size."""
    began = time.monotonic()
    results = [{"role": "tool", "content": "", "tool_call_id": "x"}] * 30000
    status, reply, _ = server.ask("/apply-template", {"messages": user("a") + results})
    assert status == 200 and reply["prompt"].count("<tool_response>") == 30000
    once = "a" * 300000
    begun = user(2 * once) + [{"role": "assistant", "content": once + "b"}]
    assert server.ask("/apply-template", {"messages": begun, "continue_final_message": True})[0] == 200
    assert time.monotonic() - began < 20
    for inner in ('{"a":[' + "{}," * 1100000 + "{}]}", '{"a":' * 70 + "1" + "}" * 70):
        call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": inner}}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        assert server.ask("/apply-template", {"messages": user("a") + [message]})[0] == 400
    assert server.ask(TEXT, {"prompt": "a", "cache_salt": "x" * 1025})[1]["error"]["param"] == "cache_salt"
    large = "# " + "x" * 9000000 + '\nroot ::= "a"'
    assert server.ask(TEXT, {"prompt": ["q"] * 16, "grammar": large, "max_tokens": 1})[0] == 400


def test_forms_that_cannot_begin(server):
    """Are the client's fault."""
    for grammar in ("root ::= <[500]>", 'root ::= ("a"? "b"? "c"?){9000}'):
        status, reply, _ = server.ask(TEXT, {"prompt": "a", "grammar": grammar, "max_tokens": 2})
        assert status == 400 and reply["error"]["type"] == "invalid_request_error", reply


def test_long_prompts(server):
    for body in ({"prompt": words(3000, 1)}, {"prompt": [70] * 3000}):
        status, reply, _ = server.ask(TEXT, body)
        assert status == 400 and reply["error"]["code"] == "context_length_exceeded"
        assert reply["error"]["message"].startswith("This model's maximum context length is 2048 tokens")
    status, reply, _ = server.ask(CHAT, {"messages": user(words(3000, 1))})
    assert status == 400 and reply["error"]["code"] == "context_length_exceeded"
    for n, n_left in ((2040, 8), (2047, 1), (2048, 1)):  # with the prompt no more than the context, but for one token in any case
        full = server.ask(TEXT, {"prompt": [70] * n, "max_tokens": 50, "ignore_eos": True, "temperature": 0})[1]
        assert full["usage"]["completion_tokens"] == n_left and full["choices"][0]["finish_reason"] == "length"


def test_wrong_bodies(server):
    deep = b'{"prompt":' + b"[" * 100000 + b"]" * 100000 + b"}"
    wide = b'{"prompt":[' + b"1," * 1200000 + b"1]}"
    for raw in (deep.replace(b"[" * 100000, b"[" * 64).replace(b"]" * 100000, b"]" * 64), wide,
                b"", b"{", b"[]", b"3", b"null", b'{"prompt":"\xff"}', b'{"prompt":"a\\u0000b"}', b'{"prompt":"\\ud800"}',
                b'{"prompt":"a","prompt":"b"}', b'{"prompt":"a","max_tokens":1e999}', deep, b'{"prompt":"a"} x',
                b'{"prompt":"a","max_tokens":1\0}',
                b'{"prompt":"a","max_tokens":' + b"9" * 400 + b"}"):
        status, reply, _ = server.ask(TEXT, raw=raw)
        assert status == 400 and reply["error"]["type"] == "invalid_request_error", (raw[:40], reply)
    small, form = b'{"prompt":"a","max_tokens":1}', {"Content-Type": "application/x-www-form-urlencoded"}
    own = f"http://127.0.0.1:{server.port}"
    none = {"Content-Type": None}
    for headers, expected in (({"Content-Type": "text/plain"}, 415), (none, 200), ({**none, "Origin": own}, 415), (form, 200), ({**form, "Sec-Fetch-Site": "cross-site"}, 415),
                              ({**form, "Origin": own}, 415), ({"Content-Type": "application/json; charset=utf-8", "Origin": own}, 200)):
        assert server.ask(TEXT, raw=small, headers=headers)[0] == expected, headers
    for coding, expected in (("gzip", 415), ("identity", 200)):
        assert server.ask(TEXT, {"prompt": "a", "max_tokens": 1}, headers={"Content-Encoding": coding})[0] == expected
    assert server.ask("/health")[0] == 200


def test_paths_and_methods(server):
    for path in ("/nothing", "/v1", "/v1/images", "//health", "/health/", "/v1/models/", "/../health", "/%2e%2e/health", "/HEALTH"):
        status, reply, _ = server.ask(path)
        assert status == 404 and reply["error"]["type"] == "not_found_error", path
    for path in ("/health%00x", "/%zz", "/health%0d%0aX:y"):
        assert server.ask(path)[0] == 400, path
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
        status, _, headers = server.ask("/v1/models", headers={"Origin": origin})
        assert status == 403 and "access-control-allow-origin" not in headers


@pytest.mark.parametrize("allowed", ("https://a.example,http://localhost:3000", '["https://a.example"]', "*"))
def test_pages_that_are_allowed(program, served, allowed):
    asks = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type,x-stainless-os"}
    key = {"Authorization": "Bearer k"}
    with Server(program, served, "-c", 256, "--api-key", "k", "--allowed-origins", allowed) as s:
        for origin in ("https://a.example", "https://b.example", "null", "https://a.example.b", "https://a.exampl", "x" * 300):
            fine = origin == "https://a.example" or (allowed == "*" and len(origin) < 300)
            status, _, headers = s.ask("/v1/completions", headers={**asks, "Origin": origin}, method="OPTIONS")
            assert status == (200 if fine else 403), origin
            assert headers.get("access-control-allow-origin") == (origin if fine else None)
            if fine:
                assert headers["access-control-allow-headers"] == "Authorization, *" and headers["vary"] == "Origin"
            for with_key in (key, {}):  # what is refused says so to the page as well
                status, _, headers = s.ask(TEXT, {"prompt": "a", "max_tokens": 1}, headers={**with_key, "Origin": origin})
                assert status == ((200 if with_key else 401) if fine else 403), (origin, with_key)
                assert headers.get("access-control-allow-origin") == (origin if fine else None)
        assert s.ask("/v1/completions", headers=asks, method="OPTIONS")[0] == 405


def test_pages_without_a_key(program, served):
    code, _, said = program("serve", "-m", served, "-c", 256, "--port", 0, "--allowed-origins", "*")
    assert code == 2 and b"any page" in said
    with Server(program, served, "-c", 256, "--allowed-origins", "https://a.example") as s:
        status, _, headers = s.ask("/health", headers={"Origin": "https://a.example"})
        assert status == 200 and headers["access-control-allow-origin"] == "https://a.example"


def test_keys(program, served, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("# keys\nfirst-key\n\nsecond-key\n")
    with Server(program, served, "-c", 256, "--api-key", "third-key", "--api-key-file", keys) as s:
        def status(key, path="/v1/models", method=None):
            return s.ask(path, headers={"Authorization": key} if key else {}, method=method)[0]
        paths = [p.replace("{model}", "served") for p in s.ask("/openapi.json", headers={
            "Authorization": "Bearer first-key"})[1]["paths"]]
        for path in paths:
            public = path in ("/", "/health", "/v1/health", "/version", "/api/version")
            assert (status(None, path) != 401) == public, path
        assert status(None, "/nothing") == 401
        for key in ("first-key", "second-key", "third-key"):
            assert status("Bearer " + key) == 200
            assert status(key) == 401 and status("Bearer " + key + "x") == 401 and status("Bearer " + key[:-1]) == 401
        codes = [s.ask("/v1/models", headers=h)[1]["error"]["code"] for h in ({}, {"Authorization": "Bearer x"})]
        assert codes == [None, "invalid_api_key"]
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


def test_key_of_the_environment(program, served):
    """It is the default of --api-key; an empty one is none."""
    for flags, right, given in (([], "k1", "k1"), (["--api-key", "k2"], "k2", "k1"), ([], None, "")):
        with Server(program, served, "-c", 256, *flags, env={"INFINIGEN_API_KEY": given}) as s:
            for key in ("k1", "k2"):
                expected = 200 if right in (key, None) else 401
                assert s.ask("/v1/models", headers={"Authorization": f"Bearer {key}"})[0] == expected


def test_a_key_is_one_client(program, served, tmp_path):
    """However it is written: who has nothing that runs is next, not who spells the key of one that has another way."""
    keys = tmp_path / "keys"
    keys.write_text("one\nother\n")
    with Server(program, served, "-c", 4096, "-np", 2, "--api-key-file", keys) as s:
        s.headers = {"Authorization": "Bearer one"}
        asked = []
        for key, path, n, running, waiting in (("Bearer one", TEXT, 4000, 1, 0), ("bearer one", TEXT, 4000, 2, 0),
                                               ("BEARER   one", TEXT, 200, 2, 1), ("Bearer other", CHAT, 2, 2, 2)):
            body = {"messages": user("ab")} if path == CHAT else {"prompt": "ab"}
            asked.append(s.connect())
            asked[-1].sendall(request({**body, "max_tokens": n, "ignore_eos": True}, path).replace(
                b"\r\n", f"\r\nAuthorization: {key}\r\n".encode(), 1))
            s.wait_for("infinigen_requests_running", running)
            s.wait_for("infinigen_requests_waiting", waiting)
        asked[1].close()
        end = time.monotonic() + 20
        while s.said.count(b": 200") < 2:
            assert time.monotonic() < end, s.said
            time.sleep(0.01)
        assert s.said.index(b"/chat/completions\": 200") < s.said.index(b"/v1/completions\": 200")
        asked[0].close()


def test_refuses_to_start(program, served, tmp_path, tiny):
    for flags, word in ((["--host", "0.0.0.0"], b"--api-key"), (["--host", "no.such.host.invalid", "--api-key", "k"], b"--host"),
                        (["--api-key-file", tmp_path / "none"], b"none"), (["--api-key", "a b"], b"--api-key"),
                        (["--unix", "/x" * 100], b"--unix"), (["-np", 600], b"600"), (["-np", 16, "-b", 8], b"16")):
        status, _, err = program("serve", "-m", served, *flags)
        assert status in (1, 2) and word in err and err.count(b"\n") == 1, (flags, err)
    status, _, err = program("serve", "-m", tiny)
    assert status != 0 and b"tokenizer" in err
    with socket.create_server(("127.0.0.1", 0)) as taken:
        status, _, err = program("serve", "-m", served, "--port", taken.getsockname()[1])
        assert status == 1 and err.endswith(b"Address already in use (--port N; 0: any that is free)\n")


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


def test_the_unix_socket_of_another(program, served, tmp_path):
    """Who ends slowly does not take away the socket that the next server has made meanwhile."""
    path = tmp_path / "socket"
    with Server(program, served, "-c", 1000, "--unix", path) as s, socket.socket(socket.AF_UNIX) as c:
        c.connect(str(path))
        body = json.dumps({"prompt": "ab", "max_tokens": 900, "ignore_eos": True, "stream": True}).encode()
        c.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
                  % (len(body), body))
        assert c.recv(15) == b"HTTP/1.1 200 OK"
        s.process.send_signal(signal.SIGTERM)
        end = time.monotonic() + 20
        while path.exists():
            assert time.monotonic() < end
            time.sleep(0.005)
        with Server(program, served, "-c", 256, "--unix", path):
            while c.recv(65536):
                pass
            s.process.wait(60)
            assert path.exists()
        assert not path.exists()
