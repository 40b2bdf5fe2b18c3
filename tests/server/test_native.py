# SPDX-License-Identifier: Apache-2.0
"""Completions as llama-server has its own (/completion)."""
from conftest import words
from serving import CHAT, TEXT, Server, served, server, user

PATH = "/completion"


def test_is_the_text_of_a_completion(server):
    ask = {"prompt": words(40, 3), "temperature": 0, "ignore_eos": True}
    wanted = server.ask(TEXT, {**ask, "max_tokens": 12})[1]
    status, reply, _ = server.ask(PATH, {**ask, "n_predict": 12, "cache_prompt": True, "samplers": ["top_k"], "id_slot": -1})
    assert status == 200 and reply["content"] == wanted["choices"][0]["text"]
    assert reply["stop"] and reply["stop_type"] == "limit" and reply["stopping_word"] == "" and not reply["truncated"]
    assert (reply["tokens_evaluated"], reply["tokens_predicted"]) == (wanted["usage"]["prompt_tokens"], 12)
    assert server.ask(TEXT, {**ask, "n_predict": 12})[1]["choices"] == wanted["choices"]
    ids = server.ask("/tokenize", {"content": ask["prompt"], "add_special": True})[1]["tokens"]
    assert server.ask(PATH, {**ask, "prompt": ids, "n_predict": 12})[1]["content"] == reply["content"]
    word = reply["content"][4:6]
    stopped = server.ask(PATH, {**ask, "n_predict": 12, "stop": [word]})[1]
    assert (stopped["stop_type"], stopped["stopping_word"]) == ("word", word)
    assert stopped["content"] == reply["content"][:reply["content"].index(word)]


def test_ends_with_the_context(server):
    reply = server.ask(PATH, {"prompt": words(40, 3), "temperature": 0, "ignore_eos": True})[1]
    assert reply["tokens_evaluated"] + reply["tokens_predicted"] == 2048 and reply["stop_type"] == "limit"


def test_only_reads(server):
    prompt = words(200, 9)
    reply = server.ask(PATH, {"prompt": prompt, "n_predict": 0})[1]
    assert reply["content"] == "" and reply["tokens_predicted"] == 0 and reply["tokens_evaluated"] > 100
    assert server.ask(PATH, {"prompt": prompt, "n_predict": 2})[1]["timings"]["cache_n"] >= 64


def test_streams(server):
    ask = {"prompt": words(40, 3), "temperature": 0, "ignore_eos": True, "n_predict": 12}
    whole = server.ask(PATH, ask)[1]
    found = server.native_events(PATH, ask)
    assert len(found) > 1 and "".join(e["content"] for e in found) == whole["content"]
    assert found[-1]["tokens_predicted"] == 12


def test_scores_of_tokens(server):
    """n_probs: those that a completion has as logprobs, token by token, in a stream as well."""
    ask = {"prompt": words(40, 3), "temperature": 0, "ignore_eos": True}
    wanted = server.ask(TEXT, {**ask, "max_tokens": 12, "logprobs": 3})[1]["choices"][0]["logprobs"]
    found = server.ask(PATH, {**ask, "n_predict": 12, "n_probs": 3})[1]
    scores = found["completion_probabilities"]
    assert [s["token"] for s in scores] == wanted["tokens"] and [s["logprob"] for s in scores] == wanted["token_logprobs"]
    assert all(len(s["top_logprobs"]) == 3 and s["top_logprobs"][0]["id"] == s["id"] for s in scores)
    text = b"".join(bytes(s["bytes"]) for s in scores)
    assert text.decode(errors="replace")[:4] == found["content"][:4]
    told = server.native_events(PATH, {**ask, "n_predict": 12, "n_probs": 3})
    assert sum((e.get("completion_probabilities", []) for e in told), []) == scores
    assert "".join(e["content"] for e in told) == found["content"]
    for none in ({}, {"n_probs": 0}, {"logprobs": False}):
        assert "completion_probabilities" not in server.ask(PATH, {**ask, "n_predict": 2, **none})[1]


def test_what_it_does_not_take(server):
    for field, body in (("prompt", {"prompt": ["a", "b"]}), ("prompt", {}), ("n", {"prompt": "a", "n": 2}),
                        ("input_prefix", {"prompt": "a", "input_prefix": "b"}), ("n_probs", {"prompt": "a", "n_probs": 21}), ("logprobs", {"prompt": "a", "logprobs": 2}),
                        ("n_predict", {"prompt": "a", "n_predict": -3})):
        status, reply, _ = server.ask(PATH, body)
        assert status == 400 and reply["error"]["param"] == field, body


def test_answers_that_nobody_limits(program, served):
    """Have what the server's -n says."""
    ask = {"prompt": words(40, 3), "temperature": 0, "ignore_eos": True}
    with Server(program, served, "-c", 512, "-n", 5) as s:
        assert s.ask(PATH, ask)[1]["tokens_predicted"] == 5
        for path, body in ((TEXT, ask), (CHAT, {**ask, "prompt": None, "messages": user("one")})):
            assert s.ask(path, body)[1]["usage"]["completion_tokens"] == 5
            assert s.ask(path, {**body, "max_tokens": 9})[1]["usage"]["completion_tokens"] == 9
            assert s.ask(path, {**body, "max_tokens": 9, "n_predict": 3})[1]["usage"]["completion_tokens"] == 9
