# SPDX-License-Identifier: Apache-2.0
"""Ollama's API: what chats and completions answer with the same, in its form, whole and line by line."""
import http.client
import json

import pytest

from conftest import make_model
from serving import CHAT, TEXT, Server, served, server, user
from test_thoughts import BEGUN, MARK, biases
from test_tools import FORMS, with_template

ASK, GENERATE = "/api/chat", "/api/generate"
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "The weather of a place.", "parameters": {
    "type": "object", "required": ["place"], "properties": {"place": {"type": "string", "maxLength": 6}}}}}
GREEDY = {"temperature": 0, "num_predict": 12}


@pytest.fixture
def caller(program, tmp_path):
    with Server(program, with_template(tmp_path / "model", FORMS["marks"][0]), "-c", 4096, "-np", 4) as s:
        yield s


def lines(server, path, body):
    """What comes unless it is said that no stream is wanted."""
    c = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)
    c.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    r = c.getresponse()
    assert r.status == 200 and r.getheader("Content-Type") == "application/x-ndjson"
    parts = [json.loads(line) for line in r.read().splitlines()]
    c.close()
    assert all(not p["done"] for p in parts[:-1]) and parts[-1]["done"]
    return parts


def same(server, path, body):
    """The reply, which a stream tells the same of."""
    status, reply, _ = server.ask(path, {**body, "stream": False})
    assert status == 200, reply
    parts = lines(server, path, body)
    told, wanted = [[p.get("message", p) for p in parts], [reply.get("message", reply)]]
    for name in ("content", "response", "thinking"):
        assert "".join(p.get(name) or "" for p in told) == (wanted[0].get(name) or "")
    assert sum((p.get("tool_calls", []) for p in told), []) == wanted[0].get("tool_calls", [])
    for name in ("done_reason", "model", "eval_count", "prompt_eval_count"):
        assert parts[-1][name] == reply[name]
    assert reply["total_duration"] >= reply["eval_duration"] > 0
    return reply


def chat(server, messages, **more):
    status, reply, _ = server.ask(CHAT, {"messages": messages, "temperature": 0, "max_tokens": 12, **more})
    assert status == 200, reply
    return reply["choices"][0]["message"]["content"], reply["usage"]


def test_is_what_a_chat_answers(server):
    messages = [{"role": "system", "content": "be brief"}, *user("ab"), {"role": "assistant", "content": "cd"}, *user("ef")]
    reply = same(server, ASK, {"messages": messages, "options": GREEDY, "keep_alive": "5m"})
    text, usage = chat(server, messages)
    assert reply["message"] == {"role": "assistant", "content": text} and reply["done_reason"] == "length"
    assert (reply["prompt_eval_count"], reply["eval_count"]) == (usage["prompt_tokens"], usage["completion_tokens"])
    reply = same(server, GENERATE, {"system": "be brief", "prompt": "ab", "options": GREEDY})
    assert reply["response"] == chat(server, messages[:2])[0]


def test_options(server):
    """The sampler's, under Ollama's names; what is of no use here, and what is not known, is passed over."""
    own = {"temperature": 1.3, "top_k": 50, "top_p": 0.9, "min_p": 0.01, "typical_p": 0.9, "repeat_penalty": 1.2, "seed": 7,
           "presence_penalty": 0.1, "repeat_last_n": 30}
    reply = same(server, ASK, {"messages": user("ab"), "options": {**own, "num_predict": 15, "num_ctx": 4096, "num_gpu": 1, "num_gqa": None, "mirostat": 1, "tool_choice": "auto"}})
    assert reply["message"]["content"] == chat(server, user("ab"), **{**own, "max_tokens": 15})[0]
    text = same(server, ASK, {"messages": user("ab"), "options": GREEDY})["message"]["content"]
    stopped = same(server, ASK, {"messages": user("ab"), "options": {**GREEDY, "stop": [text[4:6]]}})
    assert stopped["message"]["content"] == text[:text.index(text[4:6])] and stopped["done_reason"] == "stop"
    for options, name in (({"top_p": 7}, "top_p"), (3, "options")):
        status, reply, _ = server.ask(ASK, {"messages": user("ab"), "options": options})
        assert status == 400 and name in reply["error"], reply


def test_scores(server):
    ask = {"messages": user("ab"), "options": GREEDY, "logprobs": True, "top_logprobs": 2}
    whole = server.ask(ASK, {**ask, "stream": False})[1]
    of_chat = server.ask(CHAT, {"messages": user("ab"), "temperature": 0, "max_tokens": 12, "logprobs": True, "top_logprobs": 2})[1]
    assert whole["logprobs"] == of_chat["choices"][0]["logprobs"]["content"] and len(whole["logprobs"]) == 12
    assert [s for line in lines(server, ASK, ask) for s in line.get("logprobs", [])] == whole["logprobs"]
    assert server.ask(GENERATE, {"prompt": "ab", "raw": True, "logprobs": True})[0] == 400
    for none in ({"logprobs": False}, {"top_logprobs": 0}, {"template": ""}):
        assert server.ask(GENERATE, {"prompt": "ab", "raw": True, "stream": False, "options": GREEDY, **none})[0] == 200
    status, reply, _ = server.ask(GENERATE, {"prompt": "ab", "template": "{{ .Prompt }}"})
    assert status == 400 and "not supported" in reply["error"]


def test_without_a_template(server):
    reply = same(server, GENERATE, {"prompt": "ab", "raw": True, "options": GREEDY})
    assert reply["response"] == server.ask(TEXT, {"prompt": "ab", "temperature": 0, "max_tokens": 12})[1]["choices"][0]["text"]
    status, reply, _ = server.ask(GENERATE, {"prompt": "ab", "suffix": "cd", "options": GREEDY})
    assert status == 400 and "text between" in reply["error"]  # this model has no marks for it


def test_goes_on_with_an_answer(server):
    messages = [*user("ab"), {"role": "assistant", "content": "so it"}]
    reply = same(server, ASK, {"messages": messages, "options": GREEDY})
    assert reply["message"]["content"] == chat(server, messages, continue_final_message=True, add_generation_prompt=False)[0]


def test_forms(server):
    schema = {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}}}
    for path, ask in ((ASK, {"messages": user("ab")}), (GENERATE, {"prompt": "ab"})):
        reply = same(server, path, {**ask, "format": schema, "options": {"num_predict": 200, "seed": 3}})
        assert 0 <= json.loads(reply.get("response") or reply["message"]["content"])["a"] <= 99
    assert server.ask(ASK, {"messages": user("ab"), "format": "xml"})[0] == 400
    assert same(server, ASK, {"messages": user("ab"), "format": "", "options": GREEDY})["message"]["content"]


def test_calls_tools(caller):
    body = {"tools": [TOOL], "tool_choice": "required", "options": {"num_predict": 300, "seed": 5}, "messages": user("ab")}
    calls = same(caller, ASK, body)["message"]["tool_calls"]
    assert calls and all(c["function"]["name"] == "get_weather" and list(c["function"]["arguments"]) == ["place"] for c in calls)
    after = [*user("ab"), {"role": "assistant", "content": "", "tool_calls": calls[:1]},
             {"role": "tool", "tool_name": "get_weather", "content": "dry"}]
    counted = same(caller, ASK, {"messages": after, "tools": [TOOL], "options": GREEDY})["prompt_eval_count"]
    theirs = [*user("ab"), {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": {
        "name": "get_weather", "arguments": json.dumps(calls[0]["function"]["arguments"])}}]},
        {"role": "tool", "name": "get_weather", "content": "dry"}]
    assert counted == chat(caller, theirs, tools=[TOOL])[1]["prompt_tokens"]


def test_tells_thoughts(program, tmp_path):
    with Server(program, with_template(tmp_path / "model", BEGUN), "-c", 2048) as s:
        how = {"grammar": 'root ::= "xyz"', **biases(s, "ab" + MARK), "options": {"num_predict": 30}}
        reply = same(s, ASK, {"messages": user("a"), **how})
        assert (reply["message"]["thinking"], reply["message"]["content"]) == ("ab", "xyz")
        reply = same(s, GENERATE, {"prompt": "a", **how})
        assert (reply["thinking"], reply["response"]) == ("ab", "xyz")
        assert "thinking" in s.ask("/api/show", {"model": "model"})[1]["capabilities"]


def test_what_is_there(server):
    name = server.ask("/v1/models")[1]["data"][0]["id"]
    found, = server.ask("/api/tags")[1]["models"]
    loaded, = server.ask("/api/ps")[1]["models"]
    assert found["name"] == found["model"] == loaded["model"] == name
    assert found["details"]["family"] == "llama" and found["size"] > 0 and found["details"]["quantization_level"] == "BF16"
    shown = server.ask("/api/show", {"model": name + ":latest"})[1]
    assert shown["capabilities"] == ["completion", "tools"] and "message" in shown["template"]
    assert shown["model_info"]["llama.context_length"] == 16384
    assert int(server.ask("/api/version")[1]["version"].split(".")[1]) >= 12  # of Ollama's API
    assert len(found["digest"]) == 64 and found["digest"] == loaded["digest"]
    for path, field in ((ASK, "message"), (GENERATE, "response")):  # to have it loaded
        status, reply, _ = server.ask(path, {"model": name})
        assert status == 200 and reply["done"] and reply["done_reason"] == "load" and field in reply
    assert same(server, ASK, {"model": name + ":latest", "messages": user("a"), "options": GREEDY})
    for path, body in ((ASK, {"messages": user("a")}), (GENERATE, {"prompt": "a"}), (ASK, {}), (GENERATE, {}), ("/api/show", {})):
        status, reply, _ = server.ask(path, {"model": "other", **body})
        assert status == 404 and "no model 'other'" in reply["error"]


def test_what_is_refused(server):
    for path, body, name in ((ASK, {"messages": [{"role": "user", "content": "a", "images": ["x"]}]}, "pictures"),
                             (GENERATE, {"prompt": "a", "images": ["x"]}, "pictures"), (ASK, {"messages": ["a"]}, "messages"),
                             (GENERATE, {"prompt": "a", "context": [1]}, "context"), (ASK, {"messages": {"a": 1}}, None),
                             (GENERATE, {"prompt": "a", "template": "{{ x }}"}, "template"), (ASK, {"messages": user("a"), "n": 2}, "n "),
                             (ASK, {"messages": user("a"), "think": 3}, "think"), (GENERATE, {"prompt": "a", "raw": 3}, "raw")):
        status, reply, _ = server.ask(path, body)
        assert status == (400 if name else 200) and (name or "done") in str(reply), (body, reply)
    status, reply, _ = server.ask("/api/pull", {"model": "a"})
    assert status == 404 and "/api/pull" in reply["error"]
    status, reply, _ = server.ask(ASK, raw=b"{")
    assert status == 400 and isinstance(reply["error"], str)


def test_defaults_of_the_server(program, tmp_path):
    """Hold here too; and what a template is told beside `think` stays."""
    folder = with_template(tmp_path / "model", "{{ messages[0].content }}{% if enable_thinking %}abc{% endif %}{% if b %}abcdef{% endif %}")
    with Server(program, folder, "-c", 1024, "-n", 8) as s:
        ask = {"messages": user("a"), "options": {"temperature": 0, "logit_bias": None}}
        assert same(s, ASK, ask)["eval_count"] <= 8
        assert same(s, ASK, {**ask, "options": {"temperature": 0, "num_predict": 9}})["eval_count"] <= 9
        sizes = [same(s, ASK, {**ask, **more})["prompt_eval_count"] for more in (
            {}, {"think": True}, {"chat_template_kwargs": {"b": True}}, {"think": True, "chat_template_kwargs": {"b": True}})]
        assert sizes[0] < sizes[1] < sizes[2] < sizes[3]
