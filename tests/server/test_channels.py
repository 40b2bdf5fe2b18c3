# SPDX-License-Identifier: Apache-2.0
"""Answers that are messages in channels, as those of gpt-oss: thoughts, text and calls of tools, told apart, and bound."""
import pytest

from conftest import CALL, CHANNEL, CONSTRAIN, END, MESSAGE, RETURN, START, make_channel_model
from serving import CHAT, Server, served, server, user
from test_thoughts import message, thoughts_of_stream
from test_tools import CLOCK, PLACE, SUM, TOOLS, check_call, prompt

FORM = {"grammar": 'root ::= "xyz"'}


@pytest.fixture
def harmony(program, tmp_path):
    with Server(program, make_channel_model(tmp_path / "model"), "-c", 2048) as s:
        yield s


def script(server, *parts):
    """Tokens of marks and characters, each of which comes once, in this order, where what the answer is bound to allows it.
    The prompt's are far from them."""
    ids = [i for p in parts for i in ([p] if isinstance(p, int) else server.ask("/tokenize", {"content": p})[1]["tokens"])]
    assert len(set(ids)) == len(ids)
    return {"logit_bias": {str(t): 100 - 7 * i for i, t in enumerate(ids)}, "presence_penalty": 1000, "repeat_last_n": 100,
            "temperature": 0, "max_tokens": 300, "chat_template_kwargs": {"far": True}}


def check(server, how, thoughts, content, names=(), finish="stop"):
    """The same whole and in a stream; what the calls are."""
    said, end = message(server, **how)
    assert (said.get("reasoning_content", ""), said["content"], end) == (thoughts, content, finish)
    calls = [c["function"] for c in said.get("tool_calls", [])]
    assert [c["name"] for c in calls] == list(names)
    got, (text, streamed, end) = thoughts_of_stream(server, **how)
    assert (got, text, [c["function"] for c in streamed], end) == (thoughts, content or None, calls, finish)
    return said.get("tool_calls", [])


def test_a_plain_answer(harmony):
    check(harmony, script(harmony, CHANNEL, "final", MESSAGE, "XY", RETURN), "", "XY")
    said, _ = message(harmony, **script(harmony, CHANNEL, "final", MESSAGE, "XY", END, START))
    assert said["content"] == "XY"
    # without any channel
    check(harmony, script(harmony, "XY", RETURN), "", "XY")
    check(harmony, {**script(harmony, "XYZ"), "max_tokens": 2}, "", "XY", finish="length")


def test_scores_end_with_the_text(harmony):
    """Marks count for what they are written as, also where nobody is shown them."""
    how = {**script(harmony, CHANNEL, "final", MESSAGE, "XYZPQ", RETURN), "messages": user("a"), "logprobs": True, "stop": ["ZP"]}
    reply = harmony.ask(CHAT, how)[1]["choices"][0]
    assert reply["message"]["content"] == "XY" and [t["token"] for t in reply["logprobs"]["content"]][-2:] == ["X", "Y"]
    told = [t["token"] for e in harmony.events(CHAT, how) for c in e["choices"] for t in (c["logprobs"] or {"content": []})["content"]]
    assert told == [t["token"] for t in reply["logprobs"]["content"]]


def test_forms_behind_thoughts(harmony):
    thinks = script(harmony, CHANNEL, "a", "X<Y", END)
    check(harmony, {**thinks, **FORM}, "X<Y", "xyz")
    check(harmony, {**thinks, **FORM, "max_tokens": 13}, "X<Y", "", finish="length")
    check(harmony, {**script(harmony, CHANNEL, "f"), **FORM}, "", "xyz")
    # where thoughts stay in the answer, one that has a form has none; without one they are as they were written
    check(harmony, {**thinks, **FORM, "reasoning_format": "none"}, "", "xyz")
    how = {**script(harmony, CHANNEL, "a", MESSAGE, "X", END, "Y", RETURN), "tools": [CLOCK], "repeat_last_n": 20}
    check(harmony, {**how, "reasoning_format": "none"}, "", "<|channel|>analysis<|message|>X<|end|>Y")
    check(harmony, how, "X", "Y")


@pytest.mark.parametrize("thoughts, where", (("XY", (CHANNEL, "a", MESSAGE, "XY", END, " ")), ("", (CHANNEL, "c", " ", CONSTRAIN))))
def test_calls(harmony, thoughts, where):
    for more in ({}, {"tool_choice": "required"}, FORM):
        how = {**script(harmony, *where), "tools": TOOLS, **more}
        said, finish = message(harmony, **how)
        assert finish == "tool_calls" and said["content"] is None and len(said["tool_calls"]) == 1, said
        name = said["tool_calls"][0]["function"]["name"]
        for call in check(harmony, how, thoughts, None, [name], "tool_calls"):
            check_call(call)
    for tool in TOOLS:
        one = {"tool_choice": {"type": "function", "function": {"name": tool["function"]["name"]}}}
        check_call(*check(harmony, {**how, **one}, thoughts, None, [tool["function"]["name"]], "tool_calls"))


def test_a_preamble(harmony):
    how = {**script(harmony, CHANNEL, "c", MESSAGE, "XY", END, " "), "tools": [CLOCK]}
    check(harmony, how, "", "XY", ["clock"], "tool_calls")
    # which a call that must be made has not
    check(harmony, {**how, "tool_choice": "required"}, "", None, ["clock"], "tool_calls")


def test_what_the_model_reads(harmony):
    call = {"id": "1", "type": "function", "function": {"name": "math.add", "arguments": '{"a": 1, "b": 2}'}}
    messages = [*user("a"), {"role": "assistant", "content": "b", "reasoning_content": "Hm.", "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "1", "content": "three"}]
    told = prompt(harmony, messages, tools=[PLACE, SUM], reasoning_effort="high")
    assert told == ("// The weather of a place.\n// \nhigh<|start|>user<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>Hm.<|end|>"
                    '<|start|>assistant to=functions.math.add<|channel|>commentary json<|message|>{"a": 1, "b": 2}<|call|>'
                    "<|start|>tool<|message|>three<|end|><|start|>assistant")
    messages[1]["reasoning_content"] = ""
    assert "<|channel|>analysis<|message|>b<|end|>" in prompt(harmony, messages)
    messages[1]["tool_calls"].append(call)
    status, reply, _ = harmony.ask(CHAT, {"messages": messages})
    assert status == 400 and reply["error"]["param"] == "messages[1].tool_calls"


def test_an_answer_that_goes_on(harmony):
    """With the final message, which its prompt ends within; or behind a whole one."""
    begun = [*user("a"), {"role": "assistant", "content": "Well," + "-" * 100}]
    for fields, content in ((FORM, "xyz"), ({**script(harmony, "XY", RETURN)}, "XY")):
        check(harmony, {"messages": begun, "continue_final_message": True, **fields}, "", content)
    how = {"messages": begun, "continue_final_message": True, "tools": [CLOCK]}
    check(harmony, {**how, **script(harmony, "XY", END, " ")}, "", "XY", ["clock"], "tool_calls")
    check(harmony, {**how, "tool_choice": "required", **script(harmony, " ")}, "", None, ["clock"], "tool_calls")
    check(harmony, {"messages": begun, "add_generation_prompt": False, **script(harmony, START, CHANNEL, "f"), **FORM}, "", "xyz")


def test_other_interfaces(harmony):
    how = {**script(harmony, CHANNEL, "a", MESSAGE, "XY", END, " ")}
    tool = {"name": "clock", "input_schema": {"type": "object", "additionalProperties": False}}
    status, reply, _ = harmony.ask("/v1/messages", {**how, "model": "model", "messages": user("a"), "tools": [tool]})
    assert status == 200, reply
    thought, use = reply["content"]
    assert (thought["thinking"], use["name"], reply["stop_reason"]) == ("XY", "clock", "tool_use")
    how["max_output_tokens"] = how.pop("max_tokens")
    status, reply, _ = harmony.ask("/v1/responses", {**how, "input": "a", "tools": [{"type": "function", "name": "clock"}]})
    assert status == 200 and [i["type"] for i in reply["output"]] == ["reasoning", "function_call"], reply


# ---- recipients: messages to the model itself and to the user -----------------------------------------------


def test_recipients(program, tmp_path):
    with Server(program, make_channel_model(tmp_path / "model", recipients=True), "-c", 2048) as s:
        check(s, script(s, " to=user", MESSAGE, "XY", RETURN), "", "XY")
        check(s, script(s, "XY", RETURN), "", "XY")
        thinks = script(s, " to=self", MESSAGE, "X", END)
        check(s, {**thinks, **FORM}, "X", "xyz")
        check(s, {**thinks, "max_tokens": 11}, "X", "", finish="length")
        check(s, {**script(s, " to=u"), **FORM}, "", "xyz")
        check(s, {**script(s, "x"), **FORM, "reasoning_format": "none"}, "", "xyz")
        told = prompt(s, [*user("a"), {"role": "assistant", "content": "b", "reasoning_content": "Hm."}, *user("c")])
        assert told == ("<|start|>user<|message|>a<|eot|><|start|>assistant to=self<|message|>Hm.<|eom|><|start|>assistant to=user"
                        "<|message|>b<|eot|><|start|>user<|message|>c<|eot|><|start|>assistant")
        call = {"id": "1", "type": "function", "function": {"name": "math.add", "arguments": '{"a": 1, "b": "2\\n"}'}}
        told = prompt(s, [*user("a"), {"role": "assistant", "content": "", "tool_calls": [call]},
                          {"role": "tool", "tool_call_id": "1", "content": "three"}], tools=[SUM])
        assert told == ('math.add\n<|start|>user<|message|>a<|eot|><|start|>assistant to=math.add<|message|><atem:function_calls>\n'
                        '<atem:invoke name="math.add">\n<atem:parameter name="a">1</atem:parameter>\n<atem:parameter name="b">2\n'
                        '</atem:parameter>\n</atem:invoke>\n</atem:function_calls><|eot|><|start|>tool<|message|>three<|eot|>'
                        "<|start|>assistant")


def test_calls_to_recipients(program, tmp_path):
    with Server(program, make_channel_model(tmp_path / "model", recipients=True), "-c", 2048) as s:
        for thoughts, text, where in (("", None, (" to=c",)), ("X", None, (" to=self", MESSAGE, "X", END)),
                                      ("", "XY", (" to=user", MESSAGE, "XY", END))):
            how = {**script(s, *where), "tools": [CLOCK], "parallel_tool_calls": False}
            if thoughts:
                how["tool_choice"] = "required"
            check_call(*check(s, how, thoughts, text, ["clock"], "tool_calls"))
        for tool in TOOLS:
            name = tool["function"]["name"]
            how = {**script(s, " "), "tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": name}}}
            check_call(*check(s, how, "", None, [name], "tool_calls"))
        several = {**script(s, " to=c"), "tools": [CLOCK], "tool_choice": "required", "max_tokens": 400}
        said, _ = message(s, **several)
        assert 1 <= len(said["tool_calls"]) <= 16 and all(c["function"]["name"] == "clock" for c in said["tool_calls"])


def test_other_calls_of_recipients(program, tmp_path):
    """Calls in a form that is not known are not read, and tools refused."""
    folder = make_channel_model(tmp_path / "model", recipients=True)
    path = folder / "tokenizer_config.json"
    path.write_text(path.read_text().replace("atem:invoke", "atem:call"))
    with Server(program, folder, "-c", 2048) as s:
        status, reply, _ = s.ask(CHAT, {"messages": user("a"), "tools": [CLOCK]})
        assert status == 400 and reply["error"]["param"] == "tools"
        assert s.ask(CHAT, {"messages": user("a"), "tools": [CLOCK], "tool_choice": "none", "max_tokens": 1})[0] == 200
