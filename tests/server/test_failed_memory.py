# SPDX-License-Identifier: Apache-2.0
"""An allocation that fails while a request is answered: the reply is the whole one, or it is an error, and the server
goes on. tests/server/failing_memory.c makes it fail."""
import contextlib
import http.client
import json
import mmap
import os
import random
import struct

import pytest

from serving import CHAT, TEXT, Server, served, user

FEW = 50  # allocations that fail, of each request
PLENTY = 1 << 40
TOOL = {"name": "get", "parameters": {"type": "object", "properties": {"a": {"enum": ["x", "y"]}}, "required": ["a"]}}
CALLS = {"messages": user("hi"), "tools": [{"type": "function", "function": TOOL}], "tool_choice": "required",
         "parallel_tool_calls": False, "max_tokens": 60, "temperature": 0}
ANSWER = {"max_tokens": 6, "temperature": 0, "ignore_eos": True}
REQUESTS = {
    "text": (TEXT, {"prompt": ["abc", "de"], "logprobs": 1, "echo": True, **ANSWER}),
    "text, streamed": (TEXT, {"prompt": "abc", "stream": True, "stream_options": {"include_usage": True}, **ANSWER}),
    "chat": (CHAT, {"messages": user("hi"), "logprobs": True, "top_logprobs": 2, **ANSWER}),
    "chat, streamed": (CHAT, {"messages": user("hi"), "stream": True, **ANSWER}),
    "calls": (CHAT, CALLS),
    "calls, streamed": (CHAT, {**CALLS, "stream": True}),
    "response, streamed": ("/v1/responses", {"input": "hi", "max_output_tokens": 6, "temperature": 0, "stream": True}),
    "message": ("/v1/messages", {"messages": user("hi"), "max_tokens": 6, "temperature": 0}),
    "message, streamed": ("/v1/messages", {"messages": user("hi"), "max_tokens": 6, "temperature": 0, "stream": True}),
    "Ollama's chat": ("/api/chat", {"messages": user("hi"), "stream": False,
                                    "options": {"num_predict": 6, "temperature": 0}}),
    "Ollama's, streamed": ("/api/chat", {"messages": user("hi"), "options": {"num_predict": 6, "temperature": 0}}),
    "completion, streamed": ("/completion", {"prompt": "abc", "n_predict": 6, "temperature": 0, "stream": True}),
    "tokens": ("/tokenize", {"content": "hello", "with_pieces": True}),
    "models": ("/v1/models", None),
}
OWN = {"id", "item_id", "call_id", "created_at"}  # texts that each reply has for itself
TOLD = {"content", "text", "delta", "arguments", "partial_json", "response", "thinking", "reasoning_content"}


class Memory:
    def __init__(self, path):
        path.write_bytes(struct.pack("q", -1))
        with open(path, "r+b") as f:
            self.number = mmap.mmap(f.fileno(), 8)

    @contextlib.contextmanager
    def failing(self, at):
        """The allocation number `at` fails; yields a function that tells how many there have been."""
        self.number[:] = struct.pack("q", at)
        yield lambda: at - struct.unpack("q", self.number[:])[0]
        self.number[:] = struct.pack("q", -1)


@pytest.fixture
def memory(tmp_path):
    return Memory(tmp_path / "memory")


@pytest.fixture
def server(program, served, memory, tmp_path):
    library = os.path.join(os.path.dirname(program.path), "tests/libfailing_memory.so")
    if not os.path.exists(library):
        pytest.skip("the library that fails allocations is not built here")
    env = {"LD_PRELOAD": library, "FAILING_MEMORY": str(tmp_path / "memory")}
    with Server(program, served, "-c", 1024, "-np", 2, "--draft", 0, env=env) as s:
        yield s


def documents(text):
    """What a body is made of, and whether it is a stream that has come to its end."""
    if text.startswith(("data: ", "event: ")):
        found = [e.split("data: ", 1)[1] for e in text.split("\n\n") if "data: " in e]
        last = text.rstrip().rsplit("\n\n", 1)[-1]
        ends = "[DONE]", '"stop":true', '"message_stop"', '"response.completed"', '"response.incomplete"'
        return [json.loads(e) for e in found if e != "[DONE]"], any(e in last for e in ends)
    if "}\n{" in text:
        found = [json.loads(line) for line in text.splitlines()]
        return found, found[-1].get("done", False)
    return [json.loads(text)], True


def summary(found, is_stream):
    """The texts at each place, and where there is something else. In a stream several tokens may come at once: what is
    told piece by piece is put together."""
    texts, places = {}, set()

    def walk(place, value):
        if isinstance(value, dict):
            for key, v in value.items():
                if key not in OWN and not key.startswith("draft_n"):
                    walk((*place, key), v)
        elif isinstance(value, list):
            for v in value:
                walk((*place, 0), v)
        elif isinstance(value, str) and (place[-1] in TOLD if place else False):
            texts[place] = texts.get(place, "") + value
        elif isinstance(value, str):
            places.add((*place, value))
        elif value is not None:
            places.add(place)

    for document in found:
        walk(((document.get("type"),) if is_stream else ()), document)
    return texts, places


def has_error(found):
    return any(e.get("error") or (e.get("response") or {}).get("error") for e in found if isinstance(e, dict) and
               not isinstance(e.get("response"), str))


def judge(server, request):
    """'whole' with a summary, or 'error', or 'cut'."""
    try:
        status, body, _ = server.ask(*request)
    except (http.client.HTTPException, ConnectionError):
        return "cut", None
    found, ended = ([body], True) if not isinstance(body, str) else documents(body)
    if status != 200:
        assert status in (500, 503) and has_error(found), (status, body)
        return "error", None
    if has_error(found):
        return "error", None
    assert ended, body
    return "whole", summary(found, isinstance(body, str))


@pytest.mark.parametrize("name", REQUESTS)
def test_replies_are_whole_or_errors(server, memory, name):
    request = REQUESTS[name]
    wanted = []
    for _ in range(4):  # at first prompts are computed, and later not
        with memory.failing(PLENTY) as count:
            kind, whole = judge(server, request)
            n = count()
        assert kind == "whole"
        wanted.append(whole)
    kinds = []
    few = min(FEW, n)
    for i in range(few):
        at = random.Random(f"{name} {i}").randrange(i * n // few, (i + 1) * n // few)
        with memory.failing(at):
            kind, got = judge(server, request)
        assert server.process.poll() is None, (at, server.said)
        assert kind != "whole" or got in wanted, (at, got)
        kinds.append(kind)
    assert "error" in kinds and kinds.count("cut") <= 2  # where a connection has no thread nobody is told
    with memory.failing(-1):
        assert judge(server, request)[0] == "whole"
