# SPDX-License-Identifier: Apache-2.0
"""Text between two others: llama-server's /infill and "suffix" of completions, for models with marks for it."""
import json

import pytest

from conftest import make_model, words
from serving import TEXT, Server

MARKS = {300: "<|fim_prefix|>", 301: "<|fim_suffix|>", 302: "<|fim_middle|>", 303: "<|file_sep|>", 304: "<|repo_name|>"}
PREFIX, SUFFIX, MIDDLE, FILE = 300, 301, 302, 303
HOW = {"temperature": 0, "ignore_eos": True}


@pytest.fixture(params=("bos", "no bos", "with a text", "qwen2"))  # DeepSeek-Coder's marks are no control tokens
def coder(request, program, tmp_path):
    folder = make_model(tmp_path / "coder")
    vocabulary = {name: i for name, i in json.loads((folder / "vocab.json").read_text()).items() if i not in MARKS}
    (folder / "vocab.json").write_text(json.dumps({**vocabulary, **{text: i for i, text in MARKS.items()}}))
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["added_tokens_decoder"] = {str(i): {"content": text, "special": request.param != "with a text"} for i, text in MARKS.items()}
    if request.param == "qwen2":
        config["tokenizer_class"] = "Qwen2Tokenizer"
    if request.param == "bos":
        config.update(add_bos_token=True, bos_token="<s>")
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    with Server(program, folder, "-c", 256) as s:
        s.bos = [1] if request.param == "bos" else []
        yield s


def ids(server, text):
    return server.ask("/tokenize", {"content": text, "add_special": False, "parse_special": False})[1]["tokens"]


def answer(server, tokens, n):
    reply = server.ask(TEXT, {"prompt": tokens, "max_tokens": n, "stop_token_ids": list(MARKS), **HOW})[1]
    return reply["choices"][0]["text"], reply["usage"]["prompt_tokens"]


def test_the_prompt(coder):
    """Is what the marks say, with what stands in the texts as text."""
    before, after = "one <|fim_suffix|> two ", " three"
    wanted = answer(coder, [*coder.bos, PREFIX, *ids(coder, before), SUFFIX, *ids(coder, after), MIDDLE], 9)
    status, reply, _ = coder.ask("/infill", {"input_prefix": "one <|fim_suffix|>", "prompt": " two ", "input_suffix": after, "n_predict": 9,
                                             "samplers": ["top_k", "infill"], "t_max_predict_ms": 60000, "cache_prompt": True, **HOW})
    assert status == 200 and (reply["content"], reply["tokens_evaluated"]) == wanted
    assert reply["tokens_predicted"] == 9 and reply["stop"] and reply["stop_type"] == "limit" and reply["timings"]["predicted_n"] == 9
    status, reply, _ = coder.ask(TEXT, {"prompt": before, "suffix": after, "max_tokens": 9, **HOW})
    assert status == 200 and (reply["choices"][0]["text"], reply["usage"]["prompt_tokens"]) == wanted
    streamed = "".join(e["choices"][0]["text"] for e in coder.events(TEXT, {"prompt": before, "suffix": after, "max_tokens": 9, **HOW}))
    assert streamed == wanted[0]


def test_other_files(coder):
    """Come first, each behind its name; where there is no room for all, the last ones."""
    files = [{"filename": f"{i}.py", "text": words(30, i)} for i in range(9)]
    told = [[FILE, *ids(coder, f"{f['filename']}\n{f['text']}\n")] for f in files]
    own = [PREFIX, *ids(coder, "a"), SUFFIX, *ids(coder, "b"), MIDDLE]
    for n in (1, 3, 9):
        fits = min(n, (256 - 5 - 8 - 2 - len(coder.bos)) // len(told[0]))
        prompt = [*coder.bos, *sum(told[n - fits:n], []), FILE, *own]
        reply = coder.ask("/infill", {"input_prefix": "a", "input_suffix": "b", "input_extra": files[:n], "n_predict": 5, **HOW})[1]
        assert (reply["content"], reply["tokens_evaluated"]) == answer(coder, prompt, 5), n


def test_more_than_there_is_room_for(coder):
    """The end of what comes before, the beginning of what comes after."""
    before, after = words(3000, 1) + "B", "A" + words(3000, 2)
    reply = coder.ask("/infill", {"input_prefix": before, "input_suffix": after, "n_predict": 4, **HOW})[1]
    room = 256 - 4 - 8
    n_after = room // 4
    prompt = [*coder.bos, PREFIX, *ids(coder, before[-(room - n_after):]), SUFFIX, *ids(coder, after[:n_after]), MIDDLE]
    assert (reply["content"], reply["tokens_evaluated"]) == answer(coder, prompt, 4)
    whole = coder.ask("/infill", {"input_prefix": before, "n_predict": -1, **HOW})[1]
    assert whole["tokens_evaluated"] + whole["tokens_predicted"] == 256


def test_texts_that_become_longer(coder):
    """Where a tokenizer takes characters apart, a text may have more tokens than bytes."""
    for before, after in (("\U0001D160" * 5, ""), ("a", "\U0001D160" * 4)):
        reply = coder.ask("/infill", {"input_prefix": before, "input_suffix": after, "n_predict": 4, **HOW})[1]
        prompt = [*coder.bos, PREFIX, *ids(coder, before), SUFFIX, *ids(coder, after), MIDDLE]
        assert (reply["content"], reply["tokens_evaluated"]) == answer(coder, prompt, 4)


def test_only_reading(coder):
    """Editors let the server read what will be asked next."""
    ask = {"input_prefix": words(100, 4), "input_suffix": words(60, 5), **HOW}
    reply = coder.ask("/infill", {**ask, "n_predict": 0, "samplers": []})[1]
    assert reply["content"] == "" and reply["tokens_predicted"] == 0 and reply["tokens_evaluated"] > 100
    assert coder.ask("/infill", {**ask, "n_predict": 3})[1]["timings"]["cache_n"] >= 64


def test_streams(coder):
    ask = {"input_prefix": "one two", "input_suffix": " three", "n_predict": 30, **HOW}
    whole = coder.ask("/infill", ask)[1]
    told = coder.native_events("/infill", ask)
    assert len(told) > 1 and "".join(e["content"] for e in told) == whole["content"]
    same = "tokens_predicted", "tokens_evaluated", "stop_type", "has_new_line", "model"
    assert told[-1]["content"] == "" and [told[-1][k] for k in same] == [whole[k] for k in same]
    assert all(0 < e["tokens_predicted"] <= 30 and e["tokens_evaluated"] == whole["tokens_evaluated"] for e in told)
    only, = coder.native_events("/infill", {**ask, "n_predict": 0})
    assert only["content"] == "" and only["tokens_predicted"] == 0


def test_time_is_limited(coder):
    """Once there is a line: what comes behind it is not waited for."""
    for text, is_cut in (("\n", True), ("a", False)):
        (token,) = ids(coder, text)
        ask = {"input_prefix": "a", "n_predict": 200, "logit_bias": {str(token): 100}, "t_max_predict_ms": 1, **HOW}
        for reply in (coder.ask("/infill", ask)[1], coder.native_events("/infill", ask)[-1]):
            assert reply["stop_type"] == "limit" and reply["has_new_line"] == is_cut
            assert (reply["tokens_predicted"] < 200) == is_cut


def test_refused(coder, program, tmp_path):
    for body, field in (({"input_extra": [{}]}, "input_extra"), ({"input_extra": {}}, "input_extra"), ({"input_prefix": 3}, "input_prefix"),
                        ({"t_max_predict_ms": "a"}, "t_max_predict_ms"), ({"n": 2}, "n"), ({"messages": [{}]}, "messages")):
        status, reply, _ = coder.ask("/infill", {"input_prefix": "a", "n_predict": 1, **body})
        assert status == 400 and reply["error"]["param"] == field, (body, reply)
    for body, field in (({"prompt": ["a"]}, "prompt"), ({"echo": True}, "echo"), ({"suffix": 3}, "suffix")):
        status, reply, _ = coder.ask(TEXT, {"prompt": "a", "suffix": "b", "max_tokens": 1, **body})
        assert status == 400 and reply["error"]["param"] == field, (body, reply)
    with Server(program, make_model(tmp_path / "plain"), "-c", 256) as s:
        for path, body in (("/infill", {"input_prefix": "a"}), (TEXT, {"prompt": "a", "suffix": "b"})):
            status, reply, _ = s.ask(path, body)
            assert status == 400 and "no marks" in reply["error"]["message"]
        assert s.ask(TEXT, {"prompt": "a", "suffix": "", "max_tokens": 1})[0] == 200
