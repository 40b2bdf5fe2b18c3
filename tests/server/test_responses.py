# SPDX-License-Identifier: Apache-2.0
"""/v1/responses: what a chat with the same messages answers, as items, whole and as events."""
import json

import pytest

from conftest import make_model
from serving import Server, served, server
from test_messages import caller, chat
from test_thoughts import BEGUN, MARK, biases
from test_tools import FORMS, with_template

PATH, COUNT = "/v1/responses", "/v1/responses/input_tokens"
TOOL = {"type": "function", "name": "get_weather", "description": "The weather of a place.", "parameters": {
    "type": "object", "required": ["place"], "properties": {"place": {"type": "string", "maxLength": 6}}}}
END = {"completed": "response.completed", "incomplete": "response.incomplete"}


def events(server, body):
    found = server.named_events(PATH, body)
    assert [e["sequence_number"] for e in found] == list(range(len(found)))
    return found


def put_together(found):
    """The items that deltas tell of, which are those of the last event."""
    assert [e["type"] for e in found][:2] == ["response.created", "response.in_progress"]
    assert found[0]["response"]["status"] == "in_progress" and found[0]["response"]["output"] == []
    items, texts = [], []
    for e in found[2:-1]:
        kind = e["type"].removeprefix("response.")
        if kind == "output_item.added":
            assert e["output_index"] == len(items) and e["item"]["status"] == "in_progress"
            items.append(e["item"])
            texts.append("")
            continue
        assert e["output_index"] == len(items) - 1
        if kind == "output_item.done":
            assert e["item"]["id"] == items[-1]["id"]
            items[-1] = e["item"]
            whole = e["item"]["arguments"] if e["item"]["type"] == "function_call" else e["item"]["content"][0]["text"]
            assert whole == texts[-1]
            continue
        assert e["item_id"] == items[-1]["id"]
        if kind.endswith(".delta"):
            texts[-1] += e["delta"]
        elif kind.endswith("text.done"):
            assert e["text"] == texts[-1]
        elif kind == "function_call_arguments.done":
            assert e["arguments"] == texts[-1]
        else:
            assert kind in ("content_part.added", "content_part.done")
    last = found[-1]["response"]
    assert found[-1]["type"] == END[last["status"]] and last["output"] == items and last["id"] == found[0]["response"]["id"]
    return last


def plain(items):
    """Without what is made anew in each answer."""
    return [{k: v for k, v in item.items() if k not in ("id", "call_id")} for item in items]


def same(server, body):
    """The reply, which a stream tells the same of."""
    status, reply, _ = server.ask(PATH, body)
    assert status == 200, reply
    told = put_together(events(server, body))
    assert reply["id"].startswith("resp_") and reply["object"] == "response"
    assert reply.keys() == told.keys()
    for key in reply.keys() - {"id", "created_at", "output", "usage", "timings", "infinigen"}:
        assert told[key] == reply[key], key
    assert plain(told["output"]) == plain(reply["output"])
    assert len({item["id"] for item in reply["output"]}) == len(reply["output"])
    for usage in (reply["usage"], told["usage"]):
        assert usage["input_tokens"] == server.ask(COUNT, body)[1]["input_tokens"]
        assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
        assert usage["input_tokens_details"].keys() == {"cached_tokens", "cache_write_tokens"}
    return reply


def text_of(reply):
    [item] = reply["output"]
    [part] = item["content"]
    assert (item["type"], item["role"], part["type"], part["annotations"]) == ("message", "assistant", "output_text", [])
    return part["text"]


def test_is_what_a_chat_answers(server):
    reply = same(server, {"instructions": "be brief", "max_output_tokens": 12, "temperature": 0, "input": [
        {"role": "user", "content": "ab"},
        {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [
            {"type": "output_text", "text": "cd", "annotations": []}]},
        {"role": "user", "content": [{"type": "input_text", "text": "e"}, {"type": "input_text", "text": "f"}]}]})
    choice, usage = chat(server, [{"role": "system", "content": "be brief"}, {"role": "user", "content": "ab"},
                                  {"role": "assistant", "content": "cd"}, {"role": "user", "content": "ef"}])
    assert text_of(reply) == choice["message"]["content"]
    assert reply["status"] == {"length": "incomplete", "stop": "completed"}[choice["finish_reason"]]
    assert (reply["incomplete_details"] is None) == (reply["status"] == "completed")
    assert reply["usage"]["output_tokens"] == usage["completion_tokens"]
    assert (reply["instructions"], reply["max_output_tokens"], reply["tools"]) == ("be brief", 12, [])
    assert text_of(same(server, {"input": "ab", "max_output_tokens": 12, "temperature": 0})) == \
        chat(server, [{"role": "user", "content": "ab"}])[0]["message"]["content"]


def test_lists_scores(server):
    body = {"input": "ab", "max_output_tokens": 6, "temperature": 0, "top_logprobs": 2}
    reply = same(server, body)
    choice, _ = chat(server, [{"role": "user", "content": "ab"}], max_tokens=6, logprobs=True, top_logprobs=2)
    assert reply["output"][0]["content"][0]["logprobs"] == choice["logprobs"]["content"]
    assert sum((e["logprobs"] for e in events(server, body) if e["type"] == "response.output_text.delta"), []) == \
        choice["logprobs"]["content"]
    more = {"include": ["message.output_text.logprobs"], "top_logprobs": 0}
    assert len(same(server, {**body, **more})["output"][0]["content"][0]["logprobs"]) == 6
    assert same(server, {**body, "top_logprobs": 0})["output"][0]["content"][0]["logprobs"] == []


def test_calls_tools(caller):
    body = {"tools": [TOOL], "seed": 5, "max_output_tokens": 200, "input": [{"role": "user", "content": "ab"}]}
    for choice in ("required", {"type": "function", "name": "get_weather"}):
        reply = same(caller, {**body, "tool_choice": choice, "parallel_tool_calls": False})
        call = reply["output"][-1]
        assert (call["type"], call["name"], reply["status"]) == ("function_call", "get_weather", "completed")
        assert list(json.loads(call["arguments"])) == ["place"]
    after = {**body, "input": [*body["input"], {"role": "assistant", "content": "wait"}, call,
                               {"type": "function_call_output", "call_id": call["call_id"], "output": "dry"},
                               {"role": "user", "content": "so?"}]}
    messages = [{"role": "user", "content": "ab"},
                {"role": "assistant", "content": "wait", "tool_calls": [{"id": call["call_id"], "type": "function", "function": {
                    "name": "get_weather", "arguments": call["arguments"]}}]},
                {"role": "tool", "tool_call_id": call["call_id"], "content": "dry"}, {"role": "user", "content": "so?"}]
    tools = [{"type": "function", "function": {k: TOOL[k] for k in ("name", "description", "parameters")}}]
    assert caller.ask(COUNT, after)[1]["input_tokens"] == chat(caller, messages, tools=tools)[1]["prompt_tokens"]
    without = caller.ask(COUNT, {**body, "tool_choice": "none"})[1]["input_tokens"]
    assert without < caller.ask(COUNT, body)[1]["input_tokens"]


def test_tells_thoughts(program, tmp_path):
    with Server(program, with_template(tmp_path / "model", BEGUN), "-c", 2048) as s:
        body = {"max_output_tokens": 30, "grammar": 'root ::= "xyz"', **biases(s, "ab" + MARK), "input": [
            {"role": "user", "content": "a"},
            {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
            {"role": "assistant", "content": "cd"}, {"role": "user", "content": "e"}]}
        thoughts, text = same(s, body)["output"]
        assert (thoughts["type"], thoughts["content"]) == ("reasoning", [{"type": "reasoning_text", "text": "ab"}])
        assert text["content"][0]["text"] == "xyz"
        assert 0 < same(s, body)["usage"]["output_tokens_details"]["reasoning_tokens"] <= 2
        scored = same(s, {**body, "top_logprobs": 1})["output"][1]["content"][0]["logprobs"]
        assert b"xyz" in b"".join(bytes(t["bytes"]) for t in scored) and len(scored) <= 3
        messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "cd", "reasoning_content": "hm"},
                    {"role": "user", "content": "e"}]
        assert s.ask(COUNT, body)[1]["input_tokens"] == chat(s, messages)[1]["prompt_tokens"]


def test_has_a_form(server):
    schema = {"type": "object", "properties": {"a": {"enum": ["xy"]}}, "required": ["a"], "additionalProperties": False}
    reply = same(server, {"input": "ab", "temperature": 0, "text": {"format": {"type": "json_schema", "name": "x", "schema": schema}}})
    assert json.loads(text_of(reply)) == {"a": "xy"}
    json.loads(text_of(same(server, {"input": "ab", "seed": 3, "text": {"format": {"type": "json_schema", "name": "x", "schema": {
        "type": "array", "maxItems": 2, "items": {"type": "boolean"}}}}})))


def test_an_answer_of_nothing_is_a_message(server):
    assert text_of(same(server, {"input": "ab", "grammar": 'root ::= ""'})) == ""


@pytest.mark.parametrize("body, words", [
    ({"input": []}, "input must be"),
    ({"input": None}, "input must be"),
    ({"input": 7}, "input must be"),
    ({"input": [7]}, "input[0]"),
    ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0]"),
    ({"input": [{"type": "message", "content": "a"}]}, "a message has a role"),
    ({"input": [{"role": "king", "content": "a"}]}, "role"),
    ({"input": [{"role": "user"}]}, "input[0].content must be"),
    ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input[0].content[0]"),
    ({"input": [{"role": "user", "content": [{"type": "input_text", "text": 7}]}]}, "input[0].content[0]"),
    ({"input": [{"type": "function_call", "name": "a"}]}, "a function_call has a call_id"),
    ({"input": [{"type": "function_call_output", "output": "a"}]}, "a function_call_output has a call_id"),
    ({"input": [{"type": "reasoning", "summary": "much"}]}, "thoughts must be a list"),
    ({"instructions": 7}, "content must be a string"),
    ({"tools": ["web_search"]}, "tools[0]"),
    ({"tools": {}}, "tools must be a list"),
    ({"tools": [{"type": "function"}]}, "name"),
    ({"tool_choice": "some"}, "tool_choice"),
    ({"tool_choice": "required"}, "there are no tools"),
    ({"text": {"format": {"type": "xml"}}}, "response_format"),
    ({"text": {"verbosity": 3}}, "verbosity"),
    ({"text": 7}, "text must be an object"),
    ({"reasoning": 7}, "reasoning must be an object"),
    ({"include": 7}, "include must be a list"),
    ({"top_logprobs": 99}, "top_logprobs"),
    ({"max_output_tokens": "many"}, "max_tokens"),
    ({"previous_response_id": "resp_1"}, "not kept here"),
    ({"conversation": "conv_1"}, "not kept here"),
    ({"background": True}, "background"),
    ({"truncation": "auto"}, "truncation"),
    ({"n": 2}, "n is no field of /v1/responses"),
])
def test_refuses(server, body, words):
    status, reply, _ = server.ask(PATH, {"input": "ab", "max_output_tokens": 2, **body})
    assert status == 400 and reply["error"]["type"] == "invalid_request_error" and words in reply["error"]["message"], reply
    status, reply, _ = server.ask(PATH, {"input": "ab", "max_output_tokens": 2, "stream": True, **body})
    assert status == 400, reply


def test_what_asks_for_nothing_is_taken(server):
    status, reply, _ = server.ask(PATH, {
        "input": "ab", "max_output_tokens": 2, "store": True, "background": False, "truncation": "disabled", "metadata": {"a": "b"},
        "include": ["reasoning.encrypted_content"], "previous_response_id": None, "service_tier": "auto", "prompt_cache_key": "x",
        "stream": False, "stream_options": None, "text": {"format": {"type": "text"}, "verbosity": "low"}, "max_tool_calls": 3,
        "reasoning": {"effort": None, "summary": "auto"}, "tools": [{"type": "web_search"}], "tool_choice": "auto"})
    assert status == 200 and reply["metadata"] == {"a": "b"} and reply["store"] is False, reply


def test_a_failure_is_the_last_event(program, tmp_path):
    """An answer that takes longer than is allowed."""
    with Server(program, make_model(tmp_path / "model"), "-c", 100000, "--request-timeout", 1) as s:
        body = {"input": "ab", "max_output_tokens": 90000, "ignore_eos": True}
        found = events(s, body)
        assert [e["type"] for e in found][-1] == "response.failed"
        failed = found[-1]["response"]
        assert failed["status"] == "failed" and "longer than is allowed" in failed["error"]["message"], failed["error"]
        assert s.ask(PATH, body)[0] == 503
