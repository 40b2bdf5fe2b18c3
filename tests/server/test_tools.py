# SPDX-License-Identifier: Apache-2.0
"""Tools: what the model is told of them, calls in its answers, what they returned, in each form that templates have."""
import json
import re
import time

import pytest

from conftest import make_model
from serving import CHAT, Server, server, served, user

PLACE = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a place.",
    "parameters": {"type": "object", "required": ["place"], "properties": {
        "place": {"type": "string", "maxLength": 6}, "unit": {"enum": ["c", "f"]}}}}}
SUM = {"type": "function", "function": {
    "name": "math.add", "parameters": {"type": "object", "required": ["a", "b"], "properties": {
        "a": {"$ref": "#/$defs/n"}, "b": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "integer", "minimum": 0, "maximum": 99}}}}}
CLOCK = {"type": "function", "function": {"name": "clock"}}
TOOLS = [PLACE, SUM, CLOCK]

PLAIN = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
NO_SYSTEM = "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}" + PLAIN
WITH_TOOLS = ("{% for t in tools %}{{ t | tojson }}\n{% endfor %}{% for m in messages %}<|{{ m.role }}|>"
              "{% if m.content %}{{ m.content }}{% endif %}CALLS\n{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}")
EACH = "{% for c in m.tool_calls %}ONE{% if not loop.last %}BETWEEN{% endif %}{% endfor %}"


def template(one, between="", begin="", end=""):
    calls = "{% if m.tool_calls %}" + begin + EACH.replace("ONE", one).replace("BETWEEN", between) + end + "{% endif %}"
    return WITH_TOOLS.replace("CALLS", calls)


class one_by_one(str):
    """A form whose arguments are no object."""

    def __new__(cls, call, pair):
        form = super().__new__(cls, call)
        form.pair = pair
        return form

    def __mod__(self, of):
        pairs = [self.pair % (k, v if isinstance(v, str) else json.dumps(v)) for k, v in json.loads(of[1]).items()]
        return str(self) % (of[0], "".join(pairs))


QUOTED = """{%- macro quoted(x) -%}
{%- if x is string -%}{{- '<|"|>' + x + '<|"|>' -}}
{%- elif x is mapping -%}{{- '{' -}}{%- for k, v in x | dictsort -%}{{- k }}:{{ quoted(v) -}}{{- ',' if not loop.last -}}{%- endfor -%}{{- '}' -}}
{%- elif x is sequence -%}[{%- for v in x -%}{{- quoted(v) -}}{{- ',' if not loop.last -}}{%- endfor -%}]
{%- else -%}{{- x | tojson -}}{%- endif -%}
{%- endmacro -%}
"""


class with_quotes(str):
    """One whose arguments have bare names and texts between marks, as Gemma 4's."""

    def __mod__(self, of):
        return str(self) % (of[0], self.write(json.loads(of[1])))

    def write(self, v):
        if isinstance(v, str):
            return f'<|"|>{v}<|"|>'
        if isinstance(v, dict):
            return "{" + ",".join(f"{k}:{self.write(v[k])}" for k in sorted(v)) + "}"
        return "[" + ",".join(map(self.write, v)) + "]" if isinstance(v, list) else json.dumps(v)


# name of a form: template, and what a call of a name with arguments is in a conversation
FORMS = {
    "marks": (template('<tool_call>\n{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}\n</tool_call>',
                       "\n"), '<tool_call>\n{"name": "%s", "arguments": %s}\n</tool_call>'),
    "list": (template('{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}, "id": "{{ c.id }}"}', ", ",
                      "[TOOL_CALLS] [", "]"), '[TOOL_CALLS] [{"name": "%s", "arguments": %s, "id": "ID"}]'),
    "named": (template("[TOOL_CALLS]{{ c.function.name }}[ARGS]{{ c.function.arguments | tojson }}"), "[TOOL_CALLS]%s[ARGS]%s"),
    "text": (template("<call {{ c.function.name }}>{{ c.function.arguments + '' }}</call>"), "<call %s>%s</call>"),
    "bare": (template('{% if m.tool_calls | length > 1 %}{{ raise_exception("one call only") }}{% endif %}'
                      '{"name": "{{ c.function.name }}", "parameters": {{ c.function.arguments | tojson }}}'),
             '{"name": "%s", "parameters": %s}'),
    "pairs": (template('<tool_call>\n<function={{ c.function.name }}>\n{% for k, v in c.function.arguments | items %}'
                       '<parameter={{ k }}>\n{{ v if v is string else v | tojson }}\n</parameter>\n{% endfor %}</function>\n</tool_call>', "\n"),
              one_by_one("<tool_call>\n<function=%s>\n%s</function>\n</tool_call>", "<parameter=%s>\n%s\n</parameter>\n")),
    "keys": (template('<tool_call>{{ c.function.name }}\n{% for k, v in c.function.arguments.items() %}<arg_key>{{ k }}</arg_key>\n'
                      '<arg_value>{{ v if v is string else v | tojson }}</arg_value>\n{% endfor %}</tool_call>', "\n"),
             one_by_one("<tool_call>%s\n%s</tool_call>", "<arg_key>%s</arg_key>\n<arg_value>%s</arg_value>\n")),
    "close": (template('<tool_call>{{ c.function.name }}{% for k, v in c.function.arguments.items() %}<arg_key>{{ k }}</arg_key>'
                       '<arg_value>{{ v if v is string else v | tojson }}</arg_value>{% endfor %}</tool_call>', "{{ '\n' }}"),
              one_by_one("<tool_call>%s%s</tool_call>", "<arg_key>%s</arg_key><arg_value>%s</arg_value>")),
    "quotes": (QUOTED + template("<|tool_call>call:{{ c.function.name }}{{ quoted(c.function.arguments) }}<tool_call|>"),
               with_quotes("<|tool_call>call:%s%s<tool_call|>")),
    "words": (PLAIN, '<tool_call>\n{"name": "%s", "arguments": %s}\n</tool_call>'),
    "no_system": (NO_SYSTEM, '<tool_call>\n{"name": "%s", "arguments": %s}\n</tool_call>'),
}


def with_template(folder, text, **more):
    make_model(folder)
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": text, "eos_token": "</s>", **more}))
    return folder


@pytest.fixture(params=FORMS)
def form(request, program, tmp_path):
    text, call = FORMS[request.param]
    with Server(program, with_template(tmp_path / "model", text), "-c", 4096, "-np", 4) as s:
        s.form, s.call = request.param, call
        yield s


def ask(server, messages=None, **fields):
    return server.ask(CHAT, {"messages": messages or user("a"), "tools": TOOLS, "max_tokens": 900, "seed": 5, **fields})[:2]


def prompt(server, messages, **fields):
    status, reply, _ = server.ask("/apply-template", {"messages": messages, **fields})
    assert status == 200, reply
    return reply["prompt"]


def check_call(call):
    assert call["type"] == "function" and re.fullmatch("[a-zA-Z0-9]{9}", call["id"])
    name, given = call["function"]["name"], json.loads(call["function"]["arguments"])
    if name == "get_weather":
        assert len(given["place"]) <= 6 and given.get("unit", "c") in ("c", "f") and set(given) <= {"place", "unit"}
    elif name == "math.add":
        assert set(given) == {"a", "b"} and all(isinstance(v, int) and 0 <= v <= 99 for v in given.values())
    else:
        assert name == "clock" and given == {}


def of_stream(events):
    """The message that the events of a choice make, and why it ended."""
    text, calls, finish = None, [], None
    for choice in (c for e in events for c in e["choices"] if c["index"] == 0):
        text = (text or "") + choice["delta"]["content"] if choice["delta"].get("content") else text
        for call in choice["delta"].get("tool_calls", []):
            index = call.pop("index")
            if index == len(calls):
                calls.append(call)
            else:  # more of the arguments
                assert index == len(calls) - 1 and list(call) == ["function"] and list(call["function"]) == ["arguments"]
                calls[-1]["function"]["arguments"] += call["function"]["arguments"]
        finish = choice["finish_reason"] or finish
    return text, calls, finish


def functions(calls):
    return [c["function"] for c in calls]


def test_calls_that_must_be_made(form):
    seen, most = set(), 0
    for seed in range(8):
        fields = {"tool_choice": "required", "parallel_tool_calls": seed % 2 == 0, "seed": seed, "temperature": 1.5, "max_tokens": 400}
        status, reply = ask(form, **fields)
        assert status == 200, reply
        choice = reply["choices"][0]
        message, finish = choice["message"], choice["finish_reason"]
        assert message["tool_calls"], choice
        # with many allowed, a model of random weights may not come to an end
        assert finish == "tool_calls" and message["content"] is None or seed % 2 == 0 and finish == "length"
        assert seed % 2 == 0 or len(message["tool_calls"]) == 1
        most = max(most, len(message["tool_calls"]))
        for call in message["tool_calls"][:-1 if finish == "length" else None]:
            check_call(call)
            seen.add(call["function"]["name"])
        text, calls, end = of_stream(form.events(CHAT, {"messages": user("a"), "tools": TOOLS, **fields}))
        assert (text, end) == (message["content"], finish) and functions(calls) == functions(message["tool_calls"])
    assert len(seen) > 1 and (most > 1) == (form.form != "bare")


def test_calls_of_some_of_the_tools(form):
    """The prompt tells of all."""
    fields = {"temperature": 1.5, "max_tokens": 400, "parallel_tool_calls": False}
    some = [{"type": "function", "function": {"name": "clock"}}, {"type": "function", "name": "math.add"}]  # as chats and Responses write them
    whole = ask(form, **fields, tool_choice="required")[1]["usage"]["prompt_tokens"]
    for seed in range(6):
        for choice in ({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": some}},
                       {"type": "allowed_tools", "mode": "required", "tools": some}):
            status, reply = ask(form, **fields, seed=seed, tool_choice=choice)
            assert status == 200 and reply["usage"]["prompt_tokens"] == whole, reply
            assert [c["function"]["name"] in ("clock", "math.add") for c in reply["choices"][0]["message"]["tool_calls"]] == [True]
    assert ask(form, **fields, tool_choice={"type": "allowed_tools", "mode": "auto", "tools": some * 3})[0] == 200
    for wrong in ({"mode": "some", "tools": some}, {"mode": "auto", "tools": []}, {"mode": "auto"}, {"mode": "auto", "tools": [{"name": "none"}]}, {"mode": "auto", "tools": [7]}, {"mode": "auto", "tools": some * 129}):
        status, reply = ask(form, **fields, tool_choice={"type": "allowed_tools", **wrong})
        assert status == 400 and reply["error"]["param"] == "tool_choice", reply


def test_arguments_are_objects(form):
    """Whatever else their schema would allow."""
    function = {"name": "f", "parameters": {"type": ["object", "null"], "properties": {"x": {"type": "boolean"}}, "required": ["x"]}}
    for seed in range(4):
        message = form.ask(CHAT, {"messages": user("a"), "tools": [{"type": "function", "function": function}], "seed": seed,
                                  "tool_choice": "required", "parallel_tool_calls": False})[1]["choices"][0]["message"]
        assert list(json.loads(message["tool_calls"][0]["function"]["arguments"])) == ["x"]
    for wrong in ("string", ["null", "array"], 3):
        function["parameters"]["type"] = wrong
        assert form.ask(CHAT, {"messages": user("a"), "tools": [{"type": "function", "function": function}]})[0] == 400


def test_a_call_by_name(form):
    status, reply = ask(form, tool_choice={"type": "function", "function": {"name": "math.add"}}, n=3)
    assert status == 200, reply
    for choice in reply["choices"]:
        assert [c["function"]["name"] for c in choice["message"]["tool_calls"]] == ["math.add"]
        check_call(choice["message"]["tool_calls"][0])
    assert len({c["id"] for k in reply["choices"] for c in k["message"]["tool_calls"]}) == 3


def test_what_the_model_reads(form):
    """The tools, its own calls as it wrote them, and what they returned."""
    calls = [{"id": "abcdefghi", "type": "function", "function": {"name": "math.add", "arguments": '{"a": 1, "b": 2}'}}]
    messages = [*user("What is 1 + 2?"), {"role": "assistant", "content": None, "tool_calls": calls},
                {"role": "tool", "tool_call_id": "abcdefghi", "content": "three"}, *user("Thanks.")]
    told = prompt(form, messages, tools=TOOLS)
    for tool in TOOLS:
        assert json.dumps(tool, ensure_ascii=False) in told
    written = (form.call % ("math.add", '{"a": 1, "b": 2}')).replace('"ID"', '"abcdefghi"')
    assert told.count("<|assistant|>" + written) == 1
    is_told = form.form in ("words", "no_system")
    assert ("<|user|><tool_response>\nthree\n</tool_response>\n" if is_told else "<|tool|>three") in told
    # without tools, or if none may be called, the conversation is the same
    assert prompt(form, messages, tools=TOOLS, tool_choice="none") == prompt(form, messages)
    assert told.endswith(prompt(form, messages)[-60:]) and "get_weather" not in prompt(form, messages)
    # content beside calls
    messages[1]["content"] = "Let me see."
    assert "<|assistant|>Let me see." + ("\n" if is_told else "") + written in prompt(form, messages)
    # tokens are those of this prompt
    status, reply, _ = form.ask("/tokenize", {"messages": messages, "tools": TOOLS})
    assert status == 200 and reply["count"] >= len(prompt(form, messages, tools=TOOLS))


def test_system_messages_and_tools_in_words(program, tmp_path):
    with Server(program, with_template(tmp_path / "model", PLAIN), "-c", 2048) as s:
        told = prompt(s, [{"role": "system", "content": "Be kind."}, *user("a")], tools=TOOLS)
        assert told.startswith("<|system|>Be kind.\n\nYou can call") and told.count("<|system|>") == 1
        assert prompt(s, user("a"), tools=TOOLS).startswith("<|system|>You can call")
        results = [{"role": "tool", "content": str(i)} for i in range(3)]
        assert prompt(s, [*user("a"), *results]).count("<|user|>") == 2
    with Server(program, with_template(tmp_path / "other", NO_SYSTEM), "-c", 2048) as s:
        told = prompt(s, user("hello"), tools=TOOLS)
        assert told.startswith("<|user|>You can call") and "\n\nhello\n<|assistant|>" in told


def test_results_that_stand_with_their_calls(program, tmp_path):
    """As in Gemma 4's first templates; an answer behind them is of the same message, and a text before them is left out."""
    results = "{% for r in m.tool_responses %}<result>{{ r.name }}:{{ r.response }}</result>{% endfor %}{{ m.content or '' }}"
    text = FORMS["quotes"][0].replace("{% if m.content %}{{ m.content }}{% endif %}", "")
    assert text.count("{% endif %}\n{% endfor %}{% if add_generation_prompt %}") == 1
    text = text.replace("{% endif %}\n{% endfor %}{% if add_generation_prompt %}",
                        "{% endif %}" + results + "\n{% endfor %}{% if add_generation_prompt %}")
    call = "<|tool_call>call:clock{}<tool_call|>"
    messages = [*user("a"), {"role": "assistant", "content": "Let me see.", "tool_calls": [call_of(), {**call_of(), "id": "2"}]},
                {"role": "tool", "tool_call_id": "1", "content": "noon"}, {"role": "tool", "content": "one"}]
    answers = [{"role": "assistant", "content": "It is noon."}, *user("b")]
    with Server(program, with_template(tmp_path / "model", text), "-c", 2048) as s:
        told = f"<|assistant|>{call}{call}<result>clock:noon</result><result>:one</result>"
        assert prompt(s, messages, tools=TOOLS).endswith(told + "\n<|assistant|>")
        assert prompt(s, messages + answers, tools=TOOLS).endswith(told + "It is noon.\n<|user|>b\n<|assistant|>")
        assert prompt(s, messages + answers[:1], tools=TOOLS, continue_final_message=True).endswith(told + "It is noon.")
        assert s.ask("/apply-template", {"messages": messages, "tools": TOOLS, "continue_final_message": True})[0] == 400


def test_templates_that_want_all_of_a_tool(program, tmp_path):
    text = FORMS["marks"][0].replace("{{ t | tojson }}", "{{ t.function.name + t.function.description + (t.function.parameters.properties | tojson) }}")
    with Server(program, with_template(tmp_path / "model", text), "-c", 2048) as s:
        assert prompt(s, user("a"), tools=[CLOCK, PLACE]).startswith('clock{}\nget_weatherThe weather of a place.{"place": ')
    text = FORMS["marks"][0].replace("{{ t | tojson }}", "{% if t.function.parameters %}{{ t.function.parameters.properties | tojson }}{% endif %}{{ t.function.name }}")
    bare = [{"type": "function", "function": {"name": "bare", "parameters": p}} for p in ({"type": "object"}, {})]
    with Server(program, with_template(tmp_path / "other", text), "-c", 2048) as s:
        for tool in bare:
            assert prompt(s, user("a"), tools=[tool]).startswith("{}bare\n")


def test_templates_in_which_users_and_assistants_take_turns(program, tmp_path):
    """As Mistral's: neither calls nor results are turns."""
    turns = ("{% set n = namespace(i=0) %}{% for m in messages if m.role != 'tool' and not m.tool_calls %}"
             "{% if (m.role == 'user') != (n.i % 2 == 0) %}{{ raise_exception('turns') }}{% endif %}{% set n.i = n.i + 1 %}{% endfor %}")
    with Server(program, with_template(tmp_path / "model", turns + FORMS["list"][0]), "-c", 2048) as s:
        assert prompt(s, user("a"), tools=[CLOCK]).startswith('{"type": "function"')


def test_names_that_are_there_twice(program, tmp_path):
    """Behind the name there would be that of the one call that was tried: such tools are told of in words."""
    text = template("<to {{ c.function.name }}><call {{ c.function.name }}>{{ c.function.arguments | tojson }}</call>")
    with Server(program, with_template(tmp_path / "model", text), "-c", 2048) as s:
        assert "You can call" in prompt(s, user("a"), tools=[CLOCK])


def test_an_answer_may_have_calls(program, tmp_path):
    """Text first, as far as the model goes on with it, then calls: here it is led to each by a bias."""
    with Server(program, with_template(tmp_path / "model", FORMS["marks"][0]), "-c", 2048) as s:
        mark = {str(s.ask("/tokenize", {"content": "<"})[1]["tokens"][0]): 100}
        status, reply = ask(s, grammar='root ::= "no"', logit_bias=mark, parallel_tool_calls=False)
        assert status == 200 and reply["choices"][0]["finish_reason"] == "tool_calls", reply
        for call in reply["choices"][0]["message"]["tool_calls"]:
            check_call(call)
        status, reply = ask(s, grammar='root ::= "no"', logit_bias={k: -100 for k in mark})
        assert status == 200 and reply["choices"][0]["message"]["content"] == "no", reply
        assert "tool_calls" not in reply["choices"][0]["message"]
        # a plain answer is what it would be, and a stream of it has the same text
        plain = {"temperature": 0, "max_tokens": 40, "logit_bias": {k: -100 for k in mark}}
        told = prompt(s, user("a"), tools=TOOLS)
        alone = s.ask("/v1/completions", {"prompt": told, "grammar": "root ::= .*", **plain})[1]["choices"][0]["text"]
        reply = ask(s, **plain)[1]["choices"][0]
        assert reply["message"]["content"] == alone and reply["finish_reason"] == "length"
        text, calls, finish = of_stream(s.events(CHAT, {"messages": user("a"), "tools": TOOLS, **plain}))
        assert (text, calls, finish) == (alone, [], "length")
        for n in range(1, 9):
            assert ask(s, tool_choice="required", max_tokens=n)[1]["choices"][0]["message"]["content"] == ""
        # cut off before its arguments it is no call, and no text; cut off within them it has what is there
        reply = ask(s, tool_choice="required", max_tokens=30)[1]["choices"][0]
        assert reply["message"]["content"] == "" and reply["finish_reason"] == "length"
        one = {"tool_choice": {"type": "function", "function": {"name": "get_weather"}}, "temperature": 0}
        whole = ask(s, **one)[1]
        for n in range(30, whole["usage"]["completion_tokens"]):
            cut = ask(s, **one, max_tokens=n)[1]["choices"][0]
            calls = functions(cut["message"].get("tool_calls", []))
            if calls and calls[0]["arguments"] not in ("{", functions(whole["choices"][0]["message"]["tool_calls"])[0]["arguments"]):
                break
        assert calls[0]["arguments"].startswith("{") and cut["finish_reason"] == "length" and not cut["message"]["content"]
        # logprobs are of all tokens, those of calls too
        reply = ask(s, tool_choice="required", logprobs=True)[1]
        assert len(reply["choices"][0]["logprobs"]["content"]) == reply["usage"]["completion_tokens"]
        events = s.events(CHAT, {"messages": user("a"), "tools": TOOLS, "tool_choice": "required", "logprobs": True, "seed": 5})
        listed = [t for e in events for c in e["choices"] if c["logprobs"] for t in c["logprobs"]["content"]]
        assert len(listed) == reply["usage"]["completion_tokens"]


@pytest.mark.parametrize("form, marks", [("named", ["[TOOL_CALLS]", "[ARGS]"]), ("quotes", ["<|tool_call>", "<tool_call|>", '<|"|>'])])
def test_marks_that_are_control_tokens(program, tmp_path, form, marks):
    """They have no text, and yet calls begin with them."""
    ids = {mark: 270 + i for i, mark in enumerate(marks)}
    special = {str(i): {"content": mark, "special": True} for mark, i in ids.items()}
    folder = with_template(tmp_path / "model", FORMS[form][0], added_tokens_decoder=special)
    vocabulary = {name: i for name, i in json.loads((folder / "vocab.json").read_text()).items() if i not in ids.values()}
    (folder / "vocab.json").write_text(json.dumps({**vocabulary, **ids}))
    with Server(program, folder, "-c", 2048) as s:
        assert s.ask("/tokenize", {"content": marks[0]})[1]["tokens"] == [270]
        for fields in ({"tool_choice": "required"}, {"logit_bias": {"270": 100}}):
            reply = ask(s, parallel_tool_calls=False, **fields)[1]["choices"][0]
            assert reply["finish_reason"] == "tool_calls" and reply["message"]["content"] is None
            for call in reply["message"]["tool_calls"]:
                check_call(call)
        assert ask(s, max_tokens=20, logit_bias={"270": -100})[1]["choices"][0]["message"]["content"]


def test_schemas_that_are_not_known(server):
    """They are the model's business, unless they are strict."""
    odd = {"type": "function", "function": {"name": "odd", "parameters": {"type": "object", "not": {"required": ["a"]}}}}
    status, reply = ask(server, tools=[odd], tool_choice="required", max_tokens=1500)
    assert status == 200, reply
    odd["function"]["strict"] = True
    status, reply = ask(server, tools=[odd])
    assert status == 400 and reply["error"]["param"] == "tools" and "not" in reply["error"]["message"]


def test_schemas_that_refer_in_ever_more_ways(program, tmp_path):
    """A call that a text within a grammar happens to be is looked at for a bounded time."""
    many = {f"a{i}": {"anyOf": [{"$ref": f"#/$defs/a{i + 1}"}] * 2} for i in range(40)}
    tool = {"type": "function", "function": {"name": "f", "strict": True, "parameters": {
        "type": "object", "properties": {"x": {"$ref": "#/$defs/a0"}}, "$defs": {**many, "a40": {"type": "integer"}}}}}
    call = '{"name": "f", "parameters": {"x": "y"}}'
    with Server(program, make_model(tmp_path / "model"), "-c", 8192) as s:
        status, reply = ask(s, tools=[tool], max_tokens=300, grammar=f"root ::= {json.dumps(call)}")
    assert status == 200 and reply["choices"][0]["message"]["content"] == call, reply


def test_arguments_one_by_one_whose_schemas_are_odd(program, tmp_path):
    """Lengths count only where they are integers, and an id stands in marks alone."""
    odd = {"type": "function", "function": {"name": "odd", "parameters": {"type": "object", "required": ["a", "b\1"], "properties": {
        "a": {"type": "string", "maxLength": 5.0}, "b\1": {"const": "\1"}}}}}
    with Server(program, with_template(tmp_path / "model", FORMS["close"][0]), "-c", 2048) as s:
        given = []
        for seed in range(8):
            choice = ask(s, tools=[odd], tool_choice="required", parallel_tool_calls=False, max_tokens=300, temperature=1.5, seed=seed)[1]["choices"][0]
            arguments = functions(choice["message"]["tool_calls"])[0]["arguments"]
            given.append(json.loads(arguments))
            assert choice["finish_reason"] != "tool_calls" or given[-1]["b\1"] == "\1"
        assert any(one["a"] for one in given)


NODE = {"type": "object", "required": ["Name"], "properties": {
    "Name": {"enum": ["b c", 'q"\\', 3, None]}, "inner": {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 2}}}
NESTED = {"type": "object", "required": ["tree", "n"], "$defs": {"node": NODE}, "properties": {
    "tree": {"$ref": "#/$defs/node"}, "n": {"type": "integer", "minimum": -5, "maximum": 70}, "text": {"type": ["string", "null"], "maxLength": 3},
    "either": {"anyOf": [{"type": "boolean"}, {"type": "array", "items": {"const": "x:y,{"}, "minItems": 2, "maxItems": 3}]},
    "map": {"type": "object", "additionalProperties": {"type": "boolean"}}, "empty": {"type": "object", "properties": {}}}}


def check_node(node):
    assert node["Name"] in NODE["properties"]["Name"]["enum"] and set(node) <= {"Name", "inner"} and len(node.get("inner", [])) <= 2
    for one in node.get("inner", []):
        check_node(one)


def check_nested(given):
    assert set(given) <= set(NESTED["properties"]) and -5 <= given["n"] <= 70 and list(given) == sorted(given)
    assert given.get("text") is None or len(given["text"]) <= 3
    assert given.get("either", True) in (True, False, ["x:y,{"] * 2, ["x:y,{"] * 3) and given.get("empty", {}) == {}
    assert all(isinstance(v, bool) for v in given.get("map", {}).values())
    check_node(given["tree"])


def test_arguments_with_quotes(program, tmp_path):
    """All of their schema counts, in objects and lists within too."""
    nested = {"type": "function", "function": {"name": "nested", "parameters": NESTED}}
    seen, n = set(), 0
    with Server(program, with_template(tmp_path / "model", FORMS["quotes"][0]), "-c", 2048) as s:
        assert "<|tool_call>call:" not in prompt(s, user("a"), tools=[nested])  # no example in words
        for seed in range(24):
            choice = ask(s, tools=[nested], tool_choice="required", parallel_tool_calls=False, max_tokens=500, temperature=1.0, seed=seed)[1]["choices"][0]
            given = json.loads(functions(choice["message"]["tool_calls"])[0]["arguments"])  # closed if it was cut off
            if choice["finish_reason"] == "tool_calls":
                check_nested(given)
                seen |= set(given)
                n += 1
    assert n > 5 and {"tree", "n"} < seen


WIDE = {"type": "object", "properties": {f"p{i}": {"type": "boolean"} for i in range(300)}}


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("form, properties", [
    ("quotes", {f"a{i}": {"enum": [str(i)]} for i in range(3900)}),
    ("pairs", {f"a{i}": {"$ref": "#/$defs/wide"} for i in range(500)})])
def test_arguments_with_large_schemas(program, tmp_path, form, properties, strict):
    """Each has all of it in the grammar where arguments are no JSON object: what takes too long is refused, or the model's business."""
    large = {"type": "function", "function": {"name": "large", "strict": strict, "parameters": {
        "type": "object", "properties": properties, "$defs": {"wide": WIDE}}}}
    text = FORMS[form][0].replace("{{ t | tojson }}", "{{ t.function.name }}")
    with Server(program, with_template(tmp_path / "model", text), "-c", 2048) as s:
        begin = time.monotonic()
        status, reply = ask(s, tools=[large], tool_choice="required", max_tokens=20)
        assert time.monotonic() - begin < 10
        assert status == (400 if strict else 200), reply
        assert not strict or "too large" in reply["error"]["message"]


def call_of(name="clock", arguments="{}"):
    return {"id": "1", "type": "function", "function": {"name": name, "arguments": arguments}}


REFUSED = [
    ({"tools": {}}, "tools"), ({"tools": [3]}, "tools"), ({"tools": [{"type": "function"}]}, "tools"),
    ({"tools": [{"type": "web_search"}]}, "tools"), ({"tools": [{"type": "function", "function": {}}]}, "tools"),
    ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools"), ({"tools": [CLOCK, CLOCK]}, "tools"),
    ({"tools": [{"type": "function", "function": {"name": "a", "parameters": []}}]}, "tools"),
    ({"tools": [{"type": "function", "function": {"name": "a", "strict": 3}}]}, "strict"),
    ({"tools": [CLOCK] * 300}, "tools"), ({"tool_choice": "any"}, "tool_choice"), ({"tool_choice": {}}, "tool_choice"),
    ({"tool_choice": {"type": "function", "function": {"name": "other"}}}, "tool_choice"),
    ({"tool_choice": {"type": "allowed_tools"}}, "tool_choice"), ({"tools": None, "tool_choice": "required"}, "tool_choice"),
    ({"tools": [], "tool_choice": "required"}, "tool_choice"), ({"parallel_tool_calls": 1}, "parallel_tool_calls"),
    ({"functions": [CLOCK["function"]]}, "functions"),
    ({"messages": [{"role": "user", "content": "a", "tool_calls": [call_of()]}]}, "messages[0].tool_calls"),
    ({"messages": [{"role": "assistant", "tool_calls": {}}]}, "messages[0].tool_calls"),
    ({"messages": [{"role": "assistant", "tool_calls": [call_of("")]}]}, "messages[0].tool_calls"),
    ({"messages": [{"role": "assistant", "tool_calls": [call_of(arguments=3)]}]}, "messages[0].tool_calls"),
    ({"messages": [{"role": "tool"}]}, "messages[0].content"),
    ({"messages": [{"role": "function", "content": "a"}]}, "messages[0].role"),
]


def test_refused(server):
    for fields, param in REFUSED:
        status, reply = ask(server, **fields)
        assert status == 400 and reply["error"]["param"] == param, (fields, reply)
    assert server.ask("/v1/completions", {"prompt": "a", "tools": TOOLS})[0] == 400
    for fields in ({"tools": []}, {"tools": None}, {"tool_choice": "auto", "tools": []}, {"tool_choice": "none"}):
        assert ask(server, max_tokens=2, **fields)[0] == 200
    for odd in ("", "no JSON", "[1]", {"a": 1}):
        messages = [*user("a"), {"role": "assistant", "tool_calls": [call_of(arguments=odd)]}, {"role": "tool", "content": "b"}]
        assert ask(server, messages, max_tokens=2)[0] == 200, odd
