# SPDX-License-Identifier: Apache-2.0
"""What the server says of tokens, of itself, and of texts that it scores."""
import json
import math
import os
import urllib.parse

import pytest

from serving import CHAT, TEXT, Server, served, server, user


# ---- tokens, and what the server is ----


def test_tokens(server, served):
    assert server.ask("/tokenize", {"content": "</s>"})[1]["count"] == 1 and server.ask(
        "/tokenize", {"content": "</s>", "parse_special": False})[1]["count"] > 1
    assert server.ask("/tokenize", {"content": "ab"})[1]["tokens"] == server.ask(
        "/tokenize", {"prompt": "ab", "add_special_tokens": False})[1]["tokens"]
    reply = server.ask("/tokenize", {"content": "h\u00e9", "with_pieces": True, "return_token_strs": True})[1]
    assert reply["count"] == 3 and len(reply["token_strs"]) == 3 and reply["tokens"][0]["piece"] == "h"
    assert [t["piece"] for t in reply["tokens"]] == ["h", [0xc3], [0xa9]]  # as llama.cpp has it
    ids = [t["id"] for t in reply["tokens"]]
    back = server.ask("/detokenize", {"tokens": ids})[1]
    assert back["content"] == back["prompt"] == "h\u00e9"
    prompt = server.ask("/apply-template", {"messages": user("hi")})[1]["prompt"]
    assert prompt == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert server.ask("/tokenizer_info")[1]["eos_token"] == "</s>"
    template = json.loads((served / "tokenizer_config.json").read_text())["chat_template"]
    assert server.ask("/props")[1]["chat_template"] == server.ask("/tokenizer_info")[1]["chat_template"] == template
    assert server.ask("/tokenize", {"messages": user("hi")})[1]["count"] > 10


def test_too_many_tokens(server):
    """What a text becomes in the reply is limited, as a request's values are."""
    text = {"content": " " + "\u9f98" * 100_000}  # three tokens each
    assert server.ask("/tokenize", text)[1]["count"] >= 300_000
    for more in ({"with_pieces": True}, {"with_pieces": True, "return_token_strs": True}):
        status, reply, _ = server.ask("/tokenize", {"content": text["content"] * (1 if len(more) > 1 else 2), **more})
        assert status == 400 and reply["error"]["param"] == "content", reply
    status, reply, _ = server.ask("/tokenize", {"prompt": "\u9f98" * 400_000})
    assert status == 400 and reply["error"]["param"] == "prompt" and "1048576" in reply["error"]["message"]


def test_what_it_is(server):
    assert server.ask("/health")[:2] == (200, {"status": "ok"})
    assert "version" in server.ask("/version")[1]
    models = server.ask("/v1/models")[1]["data"]
    assert [m["id"] for m in models] == ["served"]
    assert server.ask("/v1/models/served")[1] == models[0]
    assert server.ask("/v1/models/other")[0] == 404
    assert server.ask("/props")[1]["total_slots"] == 4
    assert server.ask("/lora-adapters")[1] == []
    slots = server.ask("/slots")[1]
    assert len(slots) == 4 and not any(s["is_processing"] for s in slots)
    assert server.ask("/tokenize", {"content": "a", "model": "other"})[0] == 404
    paths = server.ask("/openapi.json")[1]["paths"]
    assert CHAT in paths and "/v1/models/{model}" in paths
    server.ask(TEXT, {"prompt": "ab", "max_tokens": 3, "ignore_eos": True})
    numbers = server.numbers()
    assert numbers["infinigen_generated_tokens_total"] == 3
    assert numbers['infinigen_time_to_first_token_seconds_bucket{le="+Inf"}'] == 1
    assert numbers["infinigen_time_between_tokens_seconds_count"] == 2
    assert all(name.startswith("infinigen_") and ":" not in name for name in numbers)


def test_names_that_are_no_text(program, served, tmp_path):
    """What is not UTF-8 of a file's name, or of --alias, is a replacement character for clients."""
    path = os.fsencode(tmp_path) + b"/caf\xe9"
    os.rename(served, path)
    for flags, name in (([], "caf\ufffd"), (["--alias", b"m\xff\xc3"], "m\ufffd\ufffd")):
        with Server(program, os.fsdecode(path), "-c", 256, *map(os.fsdecode, flags)) as s:
            assert [m["id"] for m in s.ask("/v1/models")[1]["data"]] == [name]
            assert s.ask("/v1/models/" + urllib.parse.quote(name))[1]["id"] == name
            props = s.ask("/props")[1]
            assert props["model_alias"] == name and props["model_path"].startswith(f"{tmp_path}/caf\ufffd")
            status, reply, _ = s.ask(TEXT, {"prompt": "ab", "max_tokens": 2, "model": name})
            assert status == 200 and reply["model"] == name
            assert CHAT in s.ask("/openapi.json")[1]["paths"]


def test_page(server):
    status, first, headers = server.ask("/")
    policy = headers["content-security-policy"]
    nonce = policy.split("script-src 'nonce-")[1].split("'")[0]
    assert status == 200 and headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in policy and "connect-src 'self'" in policy and "unsafe" not in policy
    assert first.count(f'nonce="{nonce}"') == 2 and "{{nonce}}" not in first
    assert nonce not in server.ask("/")[1]
    # nothing from elsewhere, and nothing that the policy forbids or that takes text for markup
    for word in ("http://", "https://", "src=", "innerHTML", "outerHTML", "insertAdjacent", "eval(", " style=", " onclick="):
        assert word not in first, word


# ---- log-likelihoods ----


def eval_scores(program, model, task, *flags):
    """The log-likelihoods that `eval` computes, choices of all questions in order."""
    status, _, err = program("eval", "-m", model, "--task", task, "-o", f"{task}.out", "-t", 2, *flags)
    assert status == 0, err
    with open(f"{task}.out") as f:
        return [score for line in f for score in json.loads(line)["log_likelihoods"]]


def test_scores_are_those_of_eval(program, model, tmp_path):
    """What clients add up from echo and logprobs is what `eval` computes: where no entry is left out, to the last bits."""
    long = "".join(f"The colour of thing {i} is {'red' if i % 3 else 'blue'}. " for i in range(60))
    questions = [{"query": "The capital of France is", "choices": [" Paris.", " London, of course", " a"], "answer": 0},
                 {"query": long + "The colour of thing 7 is", "choices": [" red.", " blue."], "answer": 0}]
    task = tmp_path / "task.jsonl"
    task.write_text("".join(json.dumps(q) + "\n" for q in questions))
    full = eval_scores(program, model, task, "--kv-policy", "full")
    own = eval_scores(program, model, task)
    ours = []
    with Server(program, model, "-c", 2048) as s:
        for q in questions:
            n = s.ask("/tokenize", {"prompt": q["query"]})[1]["count"]
            for choice in q["choices"]:
                reply = s.ask(TEXT, {"prompt": q["query"] + choice, "max_tokens": 1, "temperature": 0, "logprobs": 1,
                                     "echo": True, "seed": 1234})[1]
                ours.append(math.fsum(reply["choices"][0]["logprobs"]["token_logprobs"][n:-1]))
    assert ours == pytest.approx(full, abs=1e-8)
    assert own[:3] == full[:3] and own[3:] != full[3:]
