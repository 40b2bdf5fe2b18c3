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


def test_several_prompts(server):
    """A list of replies, each as that of its prompt alone; a stream has the events of all."""
    ask = {"temperature": 0, "ignore_eos": True, "n_predict": 8}
    prompts = [words(20, i) for i in range(3)]
    one = [server.ask(PATH, {**ask, "prompt": p})[1] for p in prompts]
    all_ = server.ask(PATH, {**ask, "prompt": prompts})[1]
    assert [(r["index"], r["content"], r["tokens_evaluated"]) for r in all_] == [
        (i, r["content"], r["tokens_evaluated"]) for i, r in enumerate(one)]
    told = server.native_events(PATH, {**ask, "prompt": prompts})
    for i, r in enumerate(one):
        assert "".join(e["content"] for e in told if e["index"] == i) == r["content"]
    assert sorted(e["index"] for e in told if e["stop"]) == [0, 1, 2]


def test_scores_end_where_the_text_does(server):
    """Of the tokens that are of a stop string alone there are none."""
    ask = {"prompt": words(40, 3), "temperature": 0, "ignore_eos": True, "n_predict": 12, "n_probs": 1}
    whole = server.ask(PATH, ask)[1]
    for n in range(1, 6):
        stop = whole["content"][4:4 + n]
        reply = server.ask(PATH, {**ask, "stop": [stop]})[1]
        texts = [bytes(s["bytes"]).decode(errors="replace") for s in reply["completion_probabilities"]]
        at = reply["content"]
        assert reply["stop_type"] == "word" and at == whole["content"][:whole["content"].index(stop)]
        assert "".join(texts).startswith(at) and (not texts or len("".join(texts[:-1])) < len(at))
        scores = server.ask(TEXT, {"prompt": ask["prompt"], "temperature": 0, "ignore_eos": True, "max_tokens": 12, "logprobs": 1,
                                   "stop": stop})[1]["choices"][0]
        assert scores["text"] == at and all(o < max(len(at), 1) for o in scores["logprobs"]["text_offset"])
        assert len(scores["logprobs"]["tokens"]) == len(reply["completion_probabilities"])


def test_nothing_is_taken_of_earlier_prompts(server):
    ask = {"prompt": words(200, 19), "n_predict": 2}
    server.ask(PATH, ask)
    assert server.ask(PATH, ask)[1]["timings"]["cache_n"] > 0
    for _ in range(2):
        assert server.ask(PATH, {**ask, "cache_prompt": False})[1]["timings"]["cache_n"] == 0
    assert server.ask(TEXT, {**ask, "cache_prompt": False})[1]["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


def test_what_is_not_taken_of_earlier_prompts_is_not_kept(program, served, tmp_path):
    """A store has no more of such requests, either."""
    with Server(program, served, "-c", 2048, "--kv-store", tmp_path / "kv") as s:
        ask = {"prompt": words(300, 19), "n_predict": 2}
        for i in range(3):
            assert s.ask(PATH, {**ask, "cache_prompt": False})[1]["timings"]["cache_n"] == 0
        several = s.ask(PATH, {**ask, "prompt": [ask["prompt"]] * 3, "cache_prompt": False})[1]
        assert [r["timings"]["cache_n"] for r in several] == [0, 0, 0]
        assert s.ask(PATH, ask)[1]["timings"]["cache_n"] == 0
        assert s.ask(PATH, ask)[1]["timings"]["cache_n"] > 0
    assert len(program("kv", "ls", tmp_path / "kv")[1].splitlines()) <= 3


def test_biases_of_texts(server):
    """A pair of llama-server's list may have a text, whose tokens all are meant."""
    ids = server.ask("/tokenize", {"content": "xyz", "add_special": False})[1]["tokens"]
    ask = {"prompt": "a", "n_predict": 6, "temperature": 0, "ignore_eos": True, "return_tokens": True}
    for bias in ([["xyz", 100]], [[t, 100] for t in ids]):
        assert set(server.ask(PATH, {**ask, "logit_bias": bias})[1]["tokens"]) <= set(ids)
    for bias in ([["xyz", 101]], [[[], 1]], [["x"]], [["", 1]], [["a " * 2000, 1]]):
        status, reply, _ = server.ask(PATH, {**ask, "logit_bias": bias})
        assert status == 400 and "item 0" in reply["error"]["message"]


def test_samples_as_run_does(program, served):
    """Without a word about it: not of all tokens, as OpenAI's paths do, but of the likely ones."""
    few = {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05}
    with Server(program, served, "-c", 512) as s:
        ask = {"prompt": words(40, 3), "ignore_eos": True, "seed": 5, "n_predict": 30}
        assert s.ask(PATH, ask)[1]["content"] == s.ask(PATH, {**ask, **few})[1]["content"]
        assert s.ask(TEXT, ask)[1]["choices"] != s.ask(TEXT, {**ask, **few})[1]["choices"]
        own = {"prompt": ask["prompt"], "raw": True, "stream": False}
        replies = [s.ask("/api/generate", {**own, "options": {"seed": 5, "num_predict": 30, **o}})[1]["response"] for o in ({}, few)]
        assert replies[0] == replies[1]
    with Server(program, served, "-c", 512, "--temp", 0) as s:  # what flags say holds there, too
        assert len({s.ask(PATH, {**ask, "seed": i})[1]["content"] for i in range(3)}) == 1


def test_a_stop_string_that_overlaps_itself(server):
    """The text ends at its first place."""
    ids = server.ask("/tokenize", {"content": "--", "add_special": False})[1]["tokens"]
    bias = {"logit_bias": {str(i): 100 for i in set(ids)}, "temperature": 0, "n_predict": 12, "n_probs": 1}
    for n in (2, 3):
        reply = server.ask(PATH, {"prompt": "a", **bias, "stop": ["-" * n]})[1]
        assert reply["stop_type"] == "word" and reply["content"] == "" and not reply.get("completion_probabilities")
    echoed = server.ask(TEXT, {"prompt": "ab cd", **bias, "n_probs": 0, "max_tokens": 8, "echo": True, "logprobs": 0, "stop": "--"})[1]["choices"][0]
    n = len(server.ask("/tokenize", {"content": "ab cd", "add_special": True})[1]["tokens"])
    assert echoed["text"] == "ab cd" and len(echoed["logprobs"]["tokens"]) == n


def test_fields_that_change_nothing(server):
    want = server.ask(PATH, {"prompt": "a", "n_predict": 3, "temperature": 0})[1]["content"]
    for field in ({"samplers": "kp"}, {"samplers": ["top_k"]}, {"id_slot": -1.0}, {"min_keep": 1}):
        assert server.ask(PATH, {"prompt": "a", "n_predict": 3, "temperature": 0, **field})[1]["content"] == want


def test_fields_that_are_wanted(server):
    ask = {"prompt": "ab", "n_predict": 3, "temperature": 0}
    whole = server.ask(PATH, ask)[1]
    some = server.ask(PATH, {**ask, "response_fields": ["content", "timings/predicted_n", "a/b", "content/x", "/", ""]})[1]
    assert some == {"content": whole["content"], "timings/predicted_n": 3}
    assert server.ask(PATH, {**ask, "response_fields": []})[1].keys() == whole.keys()
    several = server.ask(PATH, {**ask, "prompt": ["ab", "b"], "response_fields": ["index"]})[1]
    assert several == [{"index": 0}, {"index": 1}]
    last = server.native_events(PATH, {**ask, "response_fields": ["index", "stop"]})[-1]
    assert last == {"index": 0, "stop": True}
    for wanted in ("content", [1], ["a" * 129], ["a"] * 65):
        status, reply, _ = server.ask(PATH, {**ask, "response_fields": wanted})
        assert status == 400 and reply["error"]["param"] == "response_fields"


def test_seeds_below_0(server):
    """Are seeds, but for -1."""
    ask = {"prompt": words(40, 3), "ignore_eos": True, "temperature": 1.5, "max_tokens": 30}
    text = {i: {server.ask(TEXT, {**ask, "seed": i})[1]["choices"][0]["text"] for _ in range(2)} for i in (-1, -2, -7)}
    assert len(text[-2]) == len(text[-7]) == 1 and len(text[-1]) == 2 and text[-2] != text[-7]


def test_what_it_does_not_take(server):
    for field, body in (("prompt", {"prompt": []}), ("prompt", {}), ("n", {"prompt": "a", "n": 2}),
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
