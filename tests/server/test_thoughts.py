# SPDX-License-Identifier: Apache-2.0
"""Thoughts of reasoning models: told apart from the answer, in replies and streams, and before what has a form."""
import pytest

from serving import CHAT, Server, served, server, user
from test_tools import CLOCK, of_stream, prompt, with_template

# One that leaves thoughts to the model, and one that begins them, far from all other text.
OPEN = ("{% for m in messages %}<|{{ m.role }}|>{{ (m.reasoning_content or '') ~ m.content.split('</think>')[-1] }}\n{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>{% if quiet %}<think>\n\n</think>\n\n{% endif %}{% endif %}")
BEGUN = OPEN.replace("<|assistant|>", "<|assistant|><think>" + "\n" * 20)
MARK = "</think>"


@pytest.fixture
def thinking(program, tmp_path):
    with Server(program, with_template(tmp_path / "model", BEGUN), "-c", 2048) as s:
        yield s


def biases(server, text):
    """Each character comes once, in this order: what has come is less likely than all that has not."""
    ids = server.ask("/tokenize", {"content": text})[1]["tokens"]
    assert len(set(ids)) == len(text)
    return {"logit_bias": {str(t): 100 - 8 * i for i, t in enumerate(ids)}, "presence_penalty": 1000, "repeat_last_n": 12, "temperature": 0}


def message(server, **fields):
    status, reply, _ = server.ask(CHAT, {"messages": user("a"), "max_tokens": 30, **fields})
    assert status == 200, reply
    return reply["choices"][0]["message"], reply["choices"][0]["finish_reason"]


def thoughts_of_stream(server, **fields):
    events = server.events(CHAT, {"messages": user("a"), "max_tokens": 30, **fields})
    deltas = [c["delta"] for e in events for c in e["choices"]]
    return "".join(d.get("reasoning_content", "") for d in deltas), of_stream(events)


def test_thoughts_that_the_template_begins(thinking):
    how = {**biases(thinking, "ab" + MARK), "grammar": 'root ::= "xyz"'}
    said, finish = message(thinking, **how)
    assert (said["reasoning_content"], said["content"], finish) == ("ab", "xyz", "stop")
    assert thoughts_of_stream(thinking, **how) == ("ab", ("xyz", [], "stop"))
    # if wanted, they are in the answer
    said, _ = message(thinking, reasoning_format="none", **{**how, "grammar": 'root ::= "ab</think>xyz"'})
    assert said["content"] == "ab</think>xyz" and "reasoning_content" not in said
    # cut off within them
    said, finish = message(thinking, max_tokens=5, **how)
    assert (said["reasoning_content"], said["content"], finish) == ("ab</t", "", "length")
    # without any
    said, _ = message(thinking, **{**how, **biases(thinking, MARK)})
    assert said["content"] == "xyz" and "reasoning_content" not in said


def test_calls_behind_thoughts(thinking):
    how = {**biases(thinking, "ab" + MARK), "tools": [CLOCK], "tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 200}
    said, finish = message(thinking, **how)
    assert said["reasoning_content"] == "ab" and said["content"] is None and finish == "tool_calls"
    assert [c["function"]["name"] for c in said["tool_calls"]] == ["clock"]
    thoughts, (text, calls, finish) = thoughts_of_stream(thinking, **how)
    assert (thoughts, text, len(calls), finish) == ("ab", None, 1, "tool_calls")


def test_thoughts_that_the_model_may_begin(program, tmp_path):
    with Server(program, with_template(tmp_path / "model", OPEN), "-c", 2048) as s:
        mark = str(s.ask("/tokenize", {"content": "<"})[1]["tokens"][0])
        said, finish = message(s, logit_bias={mark: 100}, grammar='root ::= "x"')
        assert said["reasoning_content"].startswith("<") and (said["content"], finish) == ("", "length")
        for fields in ({"logit_bias": {mark: -100}}, {"logit_bias": {mark: 100}, "chat_template_kwargs": {"quiet": True}}):
            said, finish = message(s, grammar='root ::= "x"', **fields)
            assert (said["content"], finish) == ("x", "stop") and "reasoning_content" not in said
        # without a form nothing is bound, and a plain answer is what it would be
        plain = {"temperature": 0, "max_tokens": 20}
        alone = s.ask("/v1/completions", {"prompt": prompt(s, user("a")), **plain})[1]["choices"][0]["text"]
        assert message(s, **plain)[0]["content"] == alone
        # those of earlier answers are the template's
        told = prompt(s, [*user("a"), {"role": "assistant", "reasoning_content": "well", "content": "b"}])
        assert "<|assistant|>wellb" in told
        for wrong in ({"reasoning_format": "x"}, {"reasoning_format": 3}):
            assert s.ask(CHAT, {"messages": user("a"), **wrong})[1]["error"]["param"] == "reasoning_format"
        wrong = [*user("a"), {"role": "assistant", "reasoning_content": 3, "content": "b"}]
        assert s.ask(CHAT, {"messages": wrong})[0] == 400


def test_a_server_that_shows_thoughts(program, tmp_path):
    with Server(program, with_template(tmp_path / "model", BEGUN), "-c", 2048, "--reasoning-format", "none") as s:
        how = {**biases(s, "ab" + MARK), "max_tokens": 10}
        assert message(s, **how)[0] == {"role": "assistant", "content": "ab</think>", "refusal": None}
        assert message(s, **how, reasoning_format="auto")[0]["reasoning_content"] == "ab"


def test_what_templates_are_told_by_options(program, tmp_path):
    """Variables of the server are those of requests that do not say otherwise."""
    folder = with_template(tmp_path / "model", "{{ messages[0].content }}|{{ enable_thinking }}|{{ reasoning_effort }}")
    kwargs = '{"enable_thinking": false, "reasoning_effort": "low"}'
    for options in (("--reasoning", "off", "--reasoning-effort", "low"), ("--chat-template-kwargs", kwargs)):
        with Server(program, folder, "-c", 2048, *options) as s:
            assert prompt(s, user("a")) == "a|False|low"
            assert prompt(s, user("a"), reasoning_effort="high") == "a|False|high"
            assert prompt(s, user("a"), chat_template_kwargs={"enable_thinking": True}) == "a|True|low"
            assert prompt(s, user("a"), enable_thinking=True) == "a|True|low"
            assert prompt(s, user("a"), enable_thinking=True, chat_template_kwargs={"enable_thinking": False}) == "a|False|low"
    with Server(program, folder, "-c", 2048, "--reasoning-effort", "none") as s:
        assert prompt(s, user("a")) == "a|False|none"
        assert prompt(s, user("a"), reasoning_effort="high") == "a||high"
        assert prompt(s, user("a"), chat_template_kwargs={"enable_thinking": True}) == "a|True|none"
