# SPDX-License-Identifier: Apache-2.0
"""/v1/messages: what a chat with the same messages answers, in Anthropic's form, whole and as events."""
import json

import pytest

from conftest import make_model
from serving import CHAT, Server, served, server
from test_thoughts import BEGUN, MARK, biases
from test_tools import FORMS, with_template

PATH, COUNT = "/v1/messages", "/v1/messages/count_tokens"
TOOL = {"name": "get_weather", "description": "The weather of a place.", "input_schema": {
    "type": "object", "required": ["place"], "properties": {"place": {"type": "string", "maxLength": 6}}}}


@pytest.fixture
def caller(program, tmp_path):
    with Server(program, with_template(tmp_path / "model", FORMS["marks"][0]), "-c", 4096, "-np", 4) as s:
        yield s


def put_together(found):
    """The message that events tell of."""
    names = [e["type"] for e in found]
    assert names[0] == "message_start" and names[-2:] == ["message_delta", "message_stop"]
    message, inputs, is_open = dict(found[0]["message"]), {}, False
    assert message["content"] == [] and message["stop_reason"] is None
    for name, value in zip(names[1:-2], found[1:-2]):
        blocks = message["content"]
        if name == "content_block_start":
            assert not is_open and value["index"] == len(blocks)
            blocks.append(dict(value["content_block"]))
            is_open = True
            continue
        assert is_open and value["index"] == len(blocks) - 1
        if name == "content_block_stop":
            is_open = False
            continue
        assert name == "content_block_delta"
        delta = value["delta"]
        if delta["type"] == "input_json_delta":
            inputs[value["index"]] = inputs.get(value["index"], "") + delta["partial_json"]
        else:
            kind = delta["type"].removesuffix("_delta")
            blocks[-1][kind] += delta[kind]
    assert not is_open
    for index, text in inputs.items():
        assert message["content"][index]["input"] == {}
        message["content"][index]["input"] = json.loads(text)
    message.update(found[-2]["delta"], usage=found[-2]["usage"])
    return message


def same(server, body):
    """The reply, which a stream tells the same of."""
    status, reply, _ = server.ask(PATH, body)
    assert status == 200, reply
    told = put_together(server.named_events(PATH, body))
    assert reply["id"].startswith("msg_") and told["id"].startswith("msg_")
    for key in ("type", "role", "model", "content", "stop_reason", "stop_sequence"):
        if key == "content":  # ids of calls are made anew
            strip = lambda blocks: [{k: v for k, v in b.items() if k != "id"} for b in blocks]
            assert strip(told[key]) == strip(reply[key])
        else:
            assert told[key] == reply[key]
    for usage in (reply["usage"], told["usage"]):
        assert usage["input_tokens"] + usage["cache_read_input_tokens"] == server.ask(COUNT, body)[1]["input_tokens"]
    assert told["usage"]["output_tokens"] == reply["usage"]["output_tokens"]
    return reply


def chat(server, messages, **more):
    status, reply, _ = server.ask(CHAT, {"messages": messages, "temperature": 0, "max_tokens": 12, **more})
    assert status == 200, reply
    return reply["choices"][0], reply["usage"]


def test_is_what_a_chat_answers(server):
    reply = same(server, {"system": "be brief", "max_tokens": 12, "temperature": 0, "messages": [
        {"role": "user", "content": "ab"}, {"role": "assistant", "content": [{"type": "text", "text": "cd"}]},
        {"role": "user", "content": [{"type": "text", "text": "e"}, {"type": "text", "text": "f", "cache_control": {"type": "ephemeral"}}]}]})
    choice, usage = chat(server, [{"role": "system", "content": "be brief"}, {"role": "user", "content": "ab"},
                                  {"role": "assistant", "content": "cd"}, {"role": "user", "content": "ef"}])
    assert reply["content"] == [{"type": "text", "text": choice["message"]["content"]}]
    assert reply["stop_reason"] == {"length": "max_tokens", "stop": "end_turn"}[choice["finish_reason"]]
    assert reply["usage"]["output_tokens"] == usage["completion_tokens"]


def test_says_which_sequence_has_ended_it(server):
    body = {"max_tokens": 12, "temperature": 0, "messages": [{"role": "user", "content": "ab"}]}
    text = same(server, body)["content"][0]["text"]
    stop = text[3:6]
    reply = same(server, {**body, "stop_sequences": ["no such text", stop]})
    assert (reply["stop_reason"], reply["stop_sequence"]) == ("stop_sequence", stop)
    assert "".join(b["text"] for b in reply["content"]) == text[:text.index(stop)]


def test_goes_on_with_an_answer(server):
    reply = same(server, {"max_tokens": 8, "temperature": 0, "messages": [
        {"role": "user", "content": "ab"}, {"role": "assistant", "content": "so it"}]})
    choice, _ = chat(server, [{"role": "user", "content": "ab"}, {"role": "assistant", "content": "so it"}], max_tokens=8,
                     continue_final_message=True, add_generation_prompt=False)
    assert reply["content"][0]["text"] == choice["message"]["content"]


def test_calls_tools(caller):
    body = {"max_tokens": 200, "tools": [TOOL], "seed": 5, "messages": [{"role": "user", "content": "ab"}]}
    for choice in ({"type": "any", "disable_parallel_tool_use": True}, {"type": "tool", "name": "get_weather"}):
        reply = same(caller, {**body, "tool_choice": choice})
        call = reply["content"][-1]
        assert (reply["stop_reason"], call["type"], call["name"]) == ("tool_use", "tool_use", "get_weather")
        assert list(call["input"]) == ["place"] and len(call["input"]["place"]) <= 6
    after = {**body, "messages": [*body["messages"], {"role": "assistant", "content": [{"type": "text", "text": "wait"}, call]},
                                  {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call["id"], "content": "dry"},
                                                               {"type": "text", "text": "so?"}]}]}
    counted = caller.ask(COUNT, after)[1]["input_tokens"]
    messages = [{"role": "user", "content": "ab"},
                {"role": "assistant", "content": "wait", "tool_calls": [{"id": call["id"], "type": "function", "function": {
                    "name": "get_weather", "arguments": json.dumps(call["input"])}}]},
                {"role": "tool", "tool_call_id": call["id"], "content": "dry"}, {"role": "user", "content": "so?"}]
    tools = [{"type": "function", "function": {"name": TOOL["name"], "description": TOOL["description"], "parameters": TOOL["input_schema"]}}]
    assert counted == chat(caller, messages, tools=tools)[1]["prompt_tokens"]
    no_tools = caller.ask(COUNT, {**body, "tool_choice": {"type": "none"}})[1]["input_tokens"]
    assert no_tools < caller.ask(COUNT, body)[1]["input_tokens"]


def test_tells_thoughts(program, tmp_path):
    with Server(program, with_template(tmp_path / "model", BEGUN), "-c", 2048) as s:
        body = {"max_tokens": 30, "grammar": 'root ::= "xyz"', **biases(s, "ab" + MARK), "messages": [
            {"role": "user", "content": "a"}, {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm", "signature": ""}, {"type": "redacted_thinking", "data": "x"},
                {"type": "text", "text": "cd"}]}, {"role": "user", "content": "e"}]}
        reply = same(s, body)
        assert reply["content"] == [{"type": "thinking", "thinking": "ab", "signature": ""}, {"type": "text", "text": "xyz"}]
        messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "cd", "reasoning_content": "hm"},
                    {"role": "user", "content": "e"}]
        assert s.ask(COUNT, body)[1]["input_tokens"] == chat(s, messages)[1]["prompt_tokens"]


def test_system_messages_and_documents(server):
    """Within the list, too; and a document of plain text is its text."""
    end = {"max_tokens": 6, "temperature": 0}
    chat = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "system", "content": "c"}, {"role": "user", "content": "d"}]
    same(server, {"messages": chat, **end})
    want = server.ask(CHAT, {"messages": chat, **end})[1]["choices"][0]["message"]["content"]
    assert server.ask(PATH, {"messages": chat, **end})[1]["content"][0]["text"] == want
    assert server.ask(COUNT, {"messages": chat})[1]["input_tokens"] > server.ask(COUNT, {"messages": chat[:2]})[1]["input_tokens"]
    document = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "sky"}}
    parts = [{"type": "text", "text": "sky"}, {"type": "text", "text": "ab"}]
    with_document = server.ask(PATH, {"messages": [{"role": "user", "content": [document, parts[1]]}], **end})[1]
    assert with_document["content"] == server.ask(PATH, {"messages": [{"role": "user", "content": parts}], **end})[1]["content"]


def test_reads_without_an_answer(server):
    body = {"messages": [{"role": "user", "content": "ab"}], "max_tokens": 0}
    for reply in (server.ask(PATH, body)[1], put_together(server.named_events(PATH, body))):
        assert reply["content"] in ([], [{"type": "text", "text": ""}]) and reply["stop_reason"] == "max_tokens" and reply["usage"]["output_tokens"] == 0


def test_leaves_out_tools_that_a_server_would_run(caller):
    body = {"messages": [{"role": "user", "content": "ab"}], "max_tokens": 4, "temperature": 0}
    both = caller.ask(PATH, {**body, "tools": [{"type": "web_search_20250305", "name": "web_search"}, TOOL]})
    assert both[0] == 200 and both[1]["content"] == caller.ask(PATH, {**body, "tools": [TOOL]})[1]["content"]
    assert caller.ask(PATH, {**body, "thinking": {"type": "between_tools"}})[0] == 200


def test_models_as_its_clients_read_them(server):
    listed = server.ask("/v1/models")[1]
    model = listed["data"][0]
    assert listed["has_more"] is False and listed["first_id"] == listed["last_id"] == model["id"]
    assert model["type"] == "model" and model["display_name"] == model["id"] and model["created_at"].endswith("Z")
    assert server.ask("/v1/models/" + model["id"])[1] == model


@pytest.mark.parametrize("body, words", [
    ({"messages": []}, "messages must be a list"),
    ({"messages": "ab"}, "messages must be a list"),
    ({"messages": [{"role": "tool", "content": "a"}]}, "messages[0].role must be user, assistant or system"),
    ({"messages": [{"role": "system", "content": [{"type": "tool_result"}]}]}, "of a system only blocks of type text"),
    ({"messages": [{"role": "system", "content": [{"type": "document", "source": {"type": "text", "data": "a"}}]}]}, "of a system only blocks of type text"),
    ({"messages": [{"role": "user", "content": [{"type": "document", "source": {"type": "url", "url": "x"}}]}]}, "messages[0].content[0]"),
    ({"messages": [{"role": "user"}]}, "messages[0].content must be"),
    ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "messages[0].content[0]"),
    ({"messages": [{"role": "user", "content": [7]}]}, "messages[0].content[0]"),
    ({"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "a"}]}]}, "a tool_use has a name"),
    ({"messages": [{"role": "assistant", "content": [{"type": "tool_use", "name": "a", "input": []}]}]}, "an object as input"),
    ({"tools": [7]}, "tools[0]"),
    ({"tools": {}}, "tools must be a list"),
    ({"tools": [{"input_schema": {}}]}, "name"),
    ({"tool_choice": {"type": "some"}}, "tool_choice"),
    ({"tool_choice": {"type": "any"}}, "there are no tools"),
    ({"thinking": {"type": "much"}}, "thinking"),
    ({"output_config": {"format": {"type": "xml"}}}, "output_config.format"),
    ({"output_format": {"type": "xml"}}, "output_format"),
    ({"mcp_servers": [{"url": "x"}]}, "mcp_servers"),
    ({"thread": {"type": "create"}}, "conversations are not kept"),
    ({"n": 2}, "n is no field"),
    ({"max_tokens": "many"}, "max_tokens"),
    ({"stop_sequences": [7]}, "stop"),
    ({"system": [{"type": "image"}]}, "only parts of type text"),
])
def test_refuses(server, body, words):
    for path in (PATH, COUNT):
        status, reply, _ = server.ask(path, {"messages": [{"role": "user", "content": "ab"}], "max_tokens": 2, **body})
        if path == COUNT and body.keys() & {"max_tokens", "stop_sequences", "mcp_servers"}:
            assert status == 200
            continue
        assert status == 400 and reply["type"] == "error" and reply["error"]["type"] == "invalid_request_error", reply
        assert words in reply["error"]["message"]
        details = {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}
        assert reply["error"].get("details") == (details if "thread" in body else None)


def test_takes_a_key_in_its_own_field(program, tmp_path):
    with Server(program, make_model(tmp_path / "model"), "--api-key", "a-key") as s:
        body = {"max_tokens": 2, "messages": [{"role": "user", "content": "ab"}]}
        assert s.ask(PATH, body, headers={"X-Api-Key": "a-key"})[0] == 200
        for headers in ({}, {"X-Api-Key": "b-key"}, {"X-Api-Key": "a-key", "Authorization": "Bearer b-key"}):
            status, reply, _ = s.ask(PATH, body, headers=headers)
            assert status == 401 and reply["error"]["type"] == "authentication_error", headers
