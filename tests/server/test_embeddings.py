# SPDX-License-Identifier: Apache-2.0
"""Embeddings by OpenAI's and Ollama's API: vectors of length 1, whatever else is being answered."""
import base64
import json
import math
import os
import struct
import threading

import pytest

from conftest import TINY_MODELS, make_model
from serving import TEXT, Server, served, server

EMBED = "/v1/embeddings"
WORDS = ["aa bb", "a much longer text about cats", "x"]


def vectors(s, texts, **fields):
    status, reply, _ = s.ask(EMBED, {"input": texts, **fields})
    assert status == 200 and reply["object"] == "list", reply
    assert [d["index"] for d in reply["data"]] == list(range(len(reply["data"])))
    return [d["embedding"] for d in reply["data"]]


def near(a, b):
    return len(a) == len(b) and all(abs(x - y) < 1e-6 for x, y in zip(a, b))


def test_texts_and_tokens(server):
    all_of = vectors(server, WORDS)
    assert all(abs(math.hypot(*v) - 1) < 1e-5 for v in all_of) and not near(all_of[0], all_of[1])
    for text, v in zip(WORDS, all_of):
        assert vectors(server, text) == [v]
        ids = server.ask("/tokenize", {"content": text, "add_special": True})[1]["tokens"]
        assert vectors(server, ids) == vectors(server, [ids]) == [v]
    reply = server.ask("/embeddings", {"input": WORDS, "model": server.ask("/v1/models")[1]["data"][0]["id"]})[1]
    n = sum(len(server.ask("/tokenize", {"content": w, "add_special": True})[1]["tokens"]) for w in WORDS)
    assert reply["usage"] == {"prompt_tokens": n, "total_tokens": n}
    assert len(vectors(server, ["a"] * 200)) == 200


def test_forms(server):
    whole = vectors(server, "aa bb")[0]
    coded = base64.b64decode(vectors(server, "aa bb", encoding_format="base64")[0])
    assert near(struct.unpack(f"<{len(whole)}f", coded), whole)
    for n in (1, 2, 3, 16):
        first, length = whole[:n], math.hypot(*whole[:n])
        assert near(vectors(server, "aa bb", dimensions=n)[0], [x / length for x in first])
        coded = base64.b64decode(vectors(server, "aa bb", dimensions=n, encoding_format="base64", user="me")[0])
        assert len(coded) == 4 * n


def test_pooling(program, tmp_path):
    """Of one token the mean is the last; of more it is that of the texts that end at each."""
    by = {}
    for kind in ("auto", "last", "mean"):
        with Server(program, make_model(tmp_path / kind), "-c", 512, "--pooling", kind) as s:
            ids = s.ask("/tokenize", {"content": "some words of a text"})[1]["tokens"]
            by[kind] = vectors(s, [ids[:1], ids])
    assert by["auto"] == by["last"] and near(by["mean"][0], by["last"][0]) and not near(by["mean"][1], by["last"][1])
    code, _, err = program("serve", "-m", TINY_MODELS, "--pooling", "cls")
    assert code == 2 and b"mean" in err


def test_beside_answers(server):
    alone = vectors(server, WORDS)
    plain = {"prompt": "once", "max_tokens": 60, "temperature": 0, "ignore_eos": True}
    text = server.ask(TEXT, plain)[1]["choices"][0]["text"]
    got = []
    asking = [threading.Thread(target=lambda: got.append(server.ask(TEXT, plain)[1]["choices"][0]["text"])) for _ in range(3)]
    asking += [threading.Thread(target=lambda: got.append(vectors(server, WORDS))) for _ in range(3)]
    for t in asking:
        t.start()
    for t in asking:
        t.join()
    assert len(got) == 6 and all(g in (text, alone) for g in got)


def test_answers_do_not_wait_behind_texts(program, tmp_path):
    """Of one client, whose texts all wait at once."""
    with Server(program, make_model(tmp_path / "model"), "-c", 1024, "-np", 2) as s:
        got = []
        many = threading.Thread(target=lambda: got.append(vectors(s, [[i % 200 + 5] * 900 for i in range(200)])))
        many.start()
        while many.is_alive() and not s.ask("/slots")[1][0]["is_processing"]:
            pass
        for _ in range(5):
            assert s.ask(TEXT, {"prompt": "a", "max_tokens": 1})[0] == 200
        assert not got
        many.join()
        assert len(got[0]) == 200


def test_refused(server):
    n = server.ask("/props")[1]["default_generation_settings"]["n_ctx"]
    for body, field in (({}, "input"), ({"input": []}, "input"), ({"input": {"a": 1}}, "input"), ({"input": 3}, "input"),
                        ({"input": "a", "dimensions": 0}, "dimensions"), ({"input": "a", "dimensions": 100000}, "dimensions"),
                        ({"input": "a", "encoding_format": "int8"}, "encoding_format"), ({"input": [[]]}, "input"),
                        ({"input": "a", "encoding_format": 3}, "encoding_format"), ({"input": [1, "a"]}, "input"),
                        ({"input": "a", "model": "other"}, "model"), ({"input": [1] * (n + 1)}, "input"), ({"input": ["a"] * 2300}, "input")):
        status, reply, _ = server.ask(EMBED, body)
        assert status in (400, 404) and reply["error"]["param"] == field, (body, reply)


def test_ollama(server):
    want = vectors(server, WORDS)
    status, reply, _ = server.ask("/api/embed", {"input": WORDS, "truncate": True, "options": {}, "keep_alive": "5m"})
    assert status == 200 and reply["embeddings"] == want and reply["prompt_eval_count"] > 2 and reply["total_duration"] > 0
    name = reply["model"] + ":latest"
    assert server.ask("/api/embed", {"input": WORDS[0], "model": name})[1]["embeddings"] == want[:1]
    assert server.ask("/api/embeddings", {"prompt": WORDS[1], "model": name})[1] == {"embedding": want[1]}
    for nothing in ("", []):
        assert server.ask("/api/embed", {"input": nothing})[1] == {"model": reply["model"], "embeddings": []}
    for path, body in (("/api/embed", {"input": [[]]}), ("/api/embed", {"input": [], "model": "other"}), ("/api/embed", {}), ("/api/embeddings", {"prompt": ["a"]}), ("/api/embed", {"model": "other", "input": "a"}),
                       ("/api/embed", {"input": "a", "options": 3}), ("/api/embed", {"input": "a", "truncate": "x"}),
                       ("/api/embeddings", {"prompt": "a", "options": 3})):
        status, reply, _ = server.ask(path, body)
        assert status in (400, 404) and isinstance(reply["error"], str), reply


def test_a_directory_for_embeddings(program, tmp_path):
    """As sentence-transformers writes them: nothing before names of tensors, and how states become a vector."""
    whole, own = make_model(tmp_path / "whole"), make_model(tmp_path / "own")
    path = own / "model.safetensors"
    data = path.read_bytes()
    n = 8 + struct.unpack("<Q", data[:8])[0]
    head = json.dumps({k.removeprefix("model."): v for k, v in json.loads(data[8:n]).items()}).encode()
    head += b" " * (-len(head) % 8)
    path.write_bytes(struct.pack("<Q", len(head)) + head + data[n:])
    config = json.loads((own / "config.json").read_text())
    (own / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": False}))
    (own / "1_Pooling").mkdir()
    seen = []
    for folder, kind, modes in ((whole, "last", None), (own, "auto", {"lasttoken": True, "mean_tokens": False}),
                                (whole, "mean", None), (own, "auto", {"lasttoken": False, "mean_tokens": True})):
        if modes:
            (own / "1_Pooling/config.json").write_text(json.dumps({f"pooling_mode_{k}": v for k, v in modes.items()}))
        with Server(program, folder, "-c", 512, "--pooling", kind) as s:
            seen.append(vectors(s, WORDS))
    assert seen[0] == seen[1] and seen[2] == seen[3] and seen[0] != seen[2]
    dense = [{"type": "sentence_transformers.models." + kind} for kind in ("Transformer", "Pooling", "Dense")]
    for modes, modules, want in (({}, [], seen[2]), ({"pooling_mode": "mean"}, dense[:2], seen[2]), ({"pooling_mode": ["lasttoken"]}, [], seen[0]),
                                 ({"pooling_mode_cls_token": True}, [], None), ({"pooling_mode": "cls"}, [], None),
                                 ({"pooling_mode": ["mean", "lasttoken"]}, [], None), ({"pooling_mode": "mean"}, dense, None),
                                 ({"pooling_mode_mean_tokens": True, "pooling_mode_lasttoken": True}, [], None)):
        (own / "1_Pooling/config.json").write_text(json.dumps(modes))
        (own / "modules.json").write_text(json.dumps(modules))
        with Server(program, own, "-c", 512) as s:
            if want:
                assert vectors(s, WORDS) == want, modes
            else:
                status, reply, _ = s.ask(EMBED, {"input": "a"})
                assert status == 400 and "--pooling" in reply["error"]["message"], modes
                assert s.ask(TEXT, {"prompt": "a", "max_tokens": 2})[0] == 200
    with Server(program, own, "-c", 512, "--pooling", "mean") as s:
        assert vectors(s, WORDS) == seen[2]


@pytest.mark.parametrize("name", ["lfm2", "mistral"])
def test_families(program, tmp_path, name):
    """States and windows: a text's vector is the same in whatever pieces it is read."""
    if not os.path.exists(os.path.join(TINY_MODELS, name)):
        pytest.skip("no tiny models")
    seen = []
    for n in (512, 17):
        with Server(program, make_model(tmp_path / str(n), name), "-c", 512, "-b", n) as s:
            seen.append(vectors(s, [[i % 200 + 5 for i in range(150)]]))
    assert near(seen[0][0], seen[1][0])
