# SPDX-License-Identifier: Apache-2.0
"""Answers that are bound to a form: each way to ask for one, and what is refused."""
import json
import re

from serving import CHAT, TEXT, said, server, served, user

CITY = {"type": "object", "required": ["name", "size"], "additionalProperties": False,
        "properties": {"name": {"type": "string", "maxLength": 8}, "size": {"type": "integer", "minimum": 1, "maximum": 40}}}
GRAMMAR = "root ::= \"<\" [0-9]{2} \">\""


def ask(server, path=CHAT, **fields):
    question = {"messages": user("a")} if path == CHAT else {"prompt": "a"}
    return server.ask(path, {**question, "max_tokens": 400, "seed": 3, **fields})[:2]


def text_of(reply):
    choice = reply["choices"][0]
    return choice.get("text") or choice["message"]["content"]


def is_city(text):
    city = json.loads(text)
    return list(city) == ["name", "size"] and len(city["name"]) <= 8 and 1 <= city["size"] <= 40


WAYS = [
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "city", "strict": True, "schema": CITY}}}, is_city),
    ({"response_format": {"type": "json_object", "schema": CITY}}, is_city),
    ({"json_schema": CITY}, is_city), ({"guided_json": CITY}, is_city), ({"guided_json": json.dumps(CITY)}, is_city),
    ({"structured_outputs": {"json": CITY}}, is_city),
    ({"grammar": GRAMMAR}, lambda t: re.fullmatch("<[0-9]{2}>", t)),
    ({"guided_grammar": GRAMMAR}, lambda t: re.fullmatch("<[0-9]{2}>", t)),
    ({"structured_outputs": {"grammar": GRAMMAR}}, lambda t: re.fullmatch("<[0-9]{2}>", t)),
    ({"guided_choice": ["yes", "no \"\\\n\u00e4"]}, lambda t: t in ("yes", "no \"\\\n\u00e4")),
    ({"guided_regex": "[a-c]{2}(-\\d)?"}, lambda t: re.fullmatch("[a-c]{2}(-[0-9])?", t)),
    ({"regex": "\"[a-c]\""}, lambda t: re.fullmatch("\"[a-c]\"", t)),
    ({"structured_outputs": {"regex": "[a-c]{2}"}}, lambda t: re.fullmatch("[a-c]{2}", t)),
    ({"structured_outputs": {"choice": ["red", "reddish"]}}, lambda t: t in ("red", "reddish")),
]


def test_every_way(server):
    for fields, fits in WAYS:
        for path in (CHAT, TEXT):
            status, reply = ask(server, path, **fields)
            assert status == 200, (fields, reply)
            assert fits(text_of(reply)), (fields, text_of(reply))
            assert reply["choices"][0]["finish_reason"] == "stop"


def test_each_choice_by_itself(server):
    """Several choices, in a stream, next to others without a form, have each a form of their own."""
    status, reply = ask(server, n=4, grammar=GRAMMAR, temperature=2)
    texts = [c["message"]["content"] for c in reply["choices"]]
    assert status == 200 and all(re.fullmatch("<[0-9]{2}>", t) for t in texts) and len(set(texts)) > 1
    events = server.events(CHAT, {"messages": user("a"), "max_tokens": 400, "seed": 3, "grammar": GRAMMAR, "n": 4, "temperature": 2})
    assert [said(events, True, i) for i in range(4)] == texts
    assert text_of(ask(server, temperature=0, max_tokens=9)[1]) == text_of(ask(server, temperature=0, max_tokens=9, grammar="")[1])


def test_cut_off(server):
    status, reply = ask(server, grammar="root ::= [a-z]{200}", max_tokens=5)
    assert status == 200 and reply["choices"][0]["finish_reason"] == "length" and text_of(reply).isalpha()


def test_logprobs_are_the_models_own(server):
    status, reply = ask(server, grammar="root ::= \"zq\"", logprobs=True)
    assert status == 200 and text_of(reply) == "zq"
    assert all(-30 < t["logprob"] < 0 for t in reply["choices"][0]["logprobs"]["content"])


REFUSED = [
    ({"grammar": "root ::= ("}, "grammar"), ({"grammar": 3}, "grammar"), ({"grammar": "a ::= \"b\""}, "grammar"),
    ({"grammar": "root ::= root"}, "grammar"), ({"json_schema": {"type": "nothing"}}, "json_schema"),
    ({"json_schema": {"not": {}}}, "json_schema"), ({"guided_json": "{"}, "guided_json"), ({"guided_json": []}, "guided_json"),
    ({"guided_choice": "a"}, "guided_choice"), ({"guided_choice": ["a", 3]}, "guided_choice"),
    ({"guided_json_object": 1}, "guided_json_object"), ({"structured_outputs": []}, "structured_outputs"),
    ({"structured_outputs": {"regex": "(?=a)"}}, "structured_outputs.regex"), ({"guided_regex": "("}, "guided_regex"),
    ({"structured_outputs": {"ebnf": "a"}}, "structured_outputs.ebnf"), ({"regex": ["a"]}, "regex"),
    ({"structured_outputs": {"json": {"not": {}}}}, "structured_outputs.json"),
    ({"response_format": {"type": "json_schema"}}, "response_format"), ({"response_format": "json"}, "response_format"),
    ({"response_format": {}}, "response_format"), ({"response_format": {"type": "regex"}}, "response_format"),
    ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": 3}}}}, "response_format.json_schema.schema"),
    ({"grammar": GRAMMAR, "json_schema": CITY}, "json_schema"),
    ({"response_format": {"type": "json_object"}, "structured_outputs": {"choice": ["a"]}}, "structured_outputs.choice"),
]


def test_large_integers(server):
    """What does not fit 64 bits is a number all the same, wherever it stands."""
    large = 18446744073709551615
    schema = {"type": "integer", "minimum": 0, "maximum": large, "title": f"{large}\\\"{large}"}
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    for more in ({}, {"metadata": {"a": [large, -large * 10, 1.5, 10 ** 400 % large, [large]], "b": f"\\{large}"}}):
        status, reply = ask(server, response_format=form, **more)
        assert status == 200 and 0 <= int(text_of(reply)) < 10 ** 16, reply
    for wrong in (b'{"prompt": "a", "seed": 18446744073709551615}', b'{"prompt": "a", "x": 1' + b"0" * 400 + b"}",
                  b'{"prompt": "a", "seed": 018446744073709551615}', b'{"prompt": 18446744073709551615'):
        assert server.ask(TEXT, raw=wrong)[0] == 400, wrong


def test_refused(server):
    for fields, name in REFUSED:
        status, reply = ask(server, **fields)
        assert status == 400 and reply["error"]["param"] == name, (fields, reply)
    for fields in ({"grammar": ""}, {"grammar": None}, {"guided_choice": []}, {"guided_json_object": False},
                   {"structured_outputs": {}}, {"response_format": {"type": "text"}}, {"response_format": None}):
        assert ask(server, max_tokens=1, **fields)[0] == 200, fields


def test_hostile(server):
    """What is too large is refused, and what is too ambiguous to follow ends by itself; others are answered."""
    deep = {"type": "array"}
    for _ in range(40):
        deep = {"type": "array", "items": deep}
    for fields in ({"grammar": "root ::= " + "(" * 100000}, {"grammar": "root ::= \"a\"{100000}{100000}"},
                   {"grammar": "root ::= " + "\"a\" | " * 10 ** 6}, {"json_schema": {"type": "string", "maxLength": 10 ** 12}}):
        status, reply = ask(server, **fields)
        assert status == 400, reply
    assert ask(server, json_schema=deep, max_tokens=3)[0] in (200, 400)
    status, reply = ask(server, grammar="root ::= \"a\" root \"b\" | \"a\" root \"c\"")
    assert status == 400 and "too much work" in reply["error"]["message"]
    assert ask(server, grammar=GRAMMAR)[0] == 200
