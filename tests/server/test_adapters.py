# SPDX-License-Identifier: Apache-2.0
"""Adapters by request: an answer is that of a server whose model has just what the request takes."""
import json
import os
import shutil
import struct
import threading

import pytest
from conftest import TINY_MODELS
from serving import CHAT, TEXT, Server, served, user  # noqa: F401 (a fixture)

ADAPTER = os.path.join(TINY_MODELS, "llama31", "adapter")
PROMPT = "a long text of many words, " * 12
QUESTION = {"prompt": PROMPT, "max_tokens": 12, "temperature": 0, "logprobs": 2, "ignore_eos": True}


@pytest.fixture
def adapted(program, served):  # noqa: F811
    if not os.path.exists(ADAPTER):
        pytest.skip("no tiny models")
    with Server(program, served, "-c", 1024, "-np", 4, "--alias", "base", "--lora", f"one={ADAPTER},two={ADAPTER}:-2",
                "--lora", ADAPTER, "--lora", f"one={ADAPTER}", "--lora-init-without-apply") as s:
        assert b"an adapter is called 'one', as another or the model is" in s.said
        yield s


def answer(server, **more):
    status, reply, _ = server.ask(TEXT, {**QUESTION, **more})
    assert status == 200, reply
    return reply["choices"][0]["text"], reply["choices"][0]["logprobs"]


def take(*scales):
    return [{"id": i, "scale": scale} for i, scale in enumerate(scales) if scale]


def test_each_takes_its_own(program, served, adapted):  # noqa: F811
    wanted = {}
    for scale in (0, 1, -2, 0.25):
        with Server(program, served, "-c", 1024, *(["--lora", f"{ADAPTER}:{scale}"] if scale else [])) as s:
            wanted[scale] = answer(s)
    assert len({str(w) for w in wanted.values()}) == 4
    asked = [({}, 0), ({"model": "base"}, 0), ({"model": "one"}, 1), ({"model": "adapter"}, 1), ({"model": "two"}, -2),
             ({"lora": take(1)}, 1), ({"lora": take(0, -2)}, -2), ({"lora": take(0, 0, 0.25)}, 0.25),
             ({"model": "one", "lora": []}, 0), ({"lora": None}, 0)]
    got = [None] * len(asked)

    def ask(i):
        got[i] = answer(adapted, **asked[i][0])

    for _ in range(2):  # the second time most of the prompt is there
        threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(asked))]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        for (fields, scale), text in zip(asked, got):
            assert text == wanted[scale], fields


def as_floats(source, folder):
    """The adapter with its numbers in F32."""
    shutil.copytree(source, folder)
    path = folder / "adapter_model.safetensors"
    data = path.read_bytes()
    n, = struct.unpack("<Q", data[:8])
    head, blob = json.loads(data[8:8 + n]), b""
    for name, t in head.items():
        if name == "__metadata__":
            continue
        begin, end = (8 + n + at for at in t["data_offsets"])
        words = struct.unpack("<%dH" % ((end - begin) // 2), data[begin:end])
        assert t["dtype"] == "BF16"
        t.update(dtype="F32", data_offsets=[len(blob), len(blob) + 4 * len(words)])
        blob += struct.pack("<%dI" % len(words), *(word << 16 for word in words))
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + blob)
    return folder


def test_of_several_types(program, served, tmp_path):  # noqa: F811
    """Nothing of one depends on which others are loaded."""
    if not os.path.exists(ADAPTER):
        pytest.skip("no tiny models")
    files = {"halves": ADAPTER, "floats": as_floats(ADAPTER, tmp_path / "floats")}
    wanted = {}
    for name, file in files.items():
        with Server(program, served, "-c", 1024, "--lora", file) as s:
            wanted[name] = answer(s)
    assert wanted["halves"] != wanted["floats"]  # they are multiplied in other ways
    lora = [part for name, file in files.items() for part in ("--lora", f"{name}={file}:1")]
    with Server(program, served, "-c", 1024, *lora, "--lora-init-without-apply") as s:
        for name in files:
            assert answer(s, model=name) == wanted[name]


def test_what_others_take(adapted):
    plain, adapter = answer(adapted), answer(adapted, model="one")
    assert [(a["id"], a["name"], a["path"], a["scale"]) for a in adapted.ask("/lora-adapters")[1]] == [
        (0, "one", ADAPTER, 0), (1, "two", ADAPTER, 0), (2, "adapter", ADAPTER, 0), (3, "one", ADAPTER, 0)]
    assert adapted.ask("/lora-adapters", take(0, 0, 0.1))[0] == 200
    assert [a["scale"] for a in adapted.ask("/lora-adapters")[1]] == [0, 0, 0.1, 0]
    assert adapted.ask("/lora-adapters", take(1))[:2] == (200, {"success": True})
    assert [a["scale"] for a in adapted.ask("/lora-adapters")[1]] == [1, 0, 0, 0]
    assert answer(adapted) == adapter and answer(adapted, lora=[]) == plain
    status, reply, _ = adapted.ask("/lora-adapters", [{"id": 1, "scale": 2}, {"id": 4, "scale": 1}])
    assert status == 400 and "item 1: there is no such adapter" in reply["error"]["message"] and not reply["error"]["param"]
    assert [a["scale"] for a in adapted.ask("/lora-adapters")[1]] == [1, 0, 0, 0]  # all of a list, or nothing
    assert adapted.ask("/lora-adapters", [])[0] == 200
    assert answer(adapted) == plain


def test_stored_prompts(program, served, tmp_path):  # noqa: F811
    """Of two adapters that are called the same, one after the other, each has its own; and the model has its own."""
    if not os.path.exists(ADAPTER):
        pytest.skip("no tiny models")
    other = shutil.copytree(ADAPTER, tmp_path / "other")
    config = json.loads((other / "adapter_config.json").read_text())
    (other / "adapter_config.json").write_text(json.dumps({**config, "lora_alpha": 3 * config["lora_alpha"]}))
    found = {}
    for adapter in (ADAPTER, other, ADAPTER, other):
        with Server(program, served, "-c", 1024, "--lora", f"it={adapter}", "--lora-init-without-apply", "--kv-store",
                    tmp_path / "store") as s:
            texts = [answer(s, **more) for more in ({}, {"model": "it"}, {"lora": take(-1)})]
            assert found.setdefault(adapter, texts) == texts
    assert found[ADAPTER][0] == found[other][0] and found[ADAPTER][1] != found[other][1] != found[other][2]


def test_names(adapted):
    models = adapted.ask("/v1/models")[1]["data"]
    assert [m["id"] for m in models] == ["base", "one", "two", "adapter", "one"]
    assert [m.get("parent") for m in models] == [None, "base", "base", "base", "base"]
    assert adapted.ask("/v1/models/two")[1] == models[2] and models[2]["root"] == ADAPTER
    status, reply, _ = adapted.ask("/v1/models/three")
    assert status == 404 and reply["error"]["code"] == "model_not_found"
    chat = {"model": "one", "messages": user("a"), "max_tokens": 4, "temperature": 0}
    status, reply, _ = adapted.ask(CHAT, chat)
    assert status == 200 and reply["model"] == "one"
    other = adapted.ask(CHAT, {**chat, "model": "base"})[1]
    assert other["model"] == "base" and other["choices"] != reply["choices"]
    text = reply["choices"][0]["message"]["content"]
    for path, fields in (("/v1/messages", {}), ("/api/chat", {"model": "one:latest", "stream": False})):
        status, reply, _ = adapted.ask(path, {"model": "one", "messages": user("a"), "max_tokens": 4, "temperature": 0,
                                              "options": {"num_predict": 4, "temperature": 0}, **fields})
        assert status == 200 and reply["model"] == "one", reply
        assert (reply["content"][0]["text"] if path == "/v1/messages" else reply["message"]["content"]) == text
    assert [m["name"] for m in adapted.ask("/api/tags")[1]["models"]] == ["base", "one", "two", "adapter", "one"]
    assert adapted.ask("/api/chat", {"model": "two:latest", "messages": []})[1]["model"] == "two"
    for path, fields in ((CHAT, {"messages": user("a")}), ("/api/chat", {"messages": user("a")}), (TEXT, {"prompt": "a"})):
        status, reply, _ = adapted.ask(path, {"model": "ones", **fields})
        assert status == 404 and "adapters" in str(reply["error"]), path


@pytest.mark.parametrize("lora, message", [
    ({}, "lora must be a list"), ([1], "item 0 must be an object"), ([{"id": 1}], "item 0 must be an object"),
    ([{"id": 4, "scale": 1}], "item 0: there is no such adapter, of 4"),
    ([{"id": 0.5, "scale": 1}], "item 0: there is no such adapter"), ([{"id": -1, "scale": 1}], "there is no such"),
    ([{"id": 0, "scale": "1"}], "scale must be a number from -1000 to 1000"),
    ([{"id": 0, "scale": 1e30}], "scale must be a number"), ([{"id": 0, "scale": 1}] * 5, "more than the server's 4")])
def test_what_is_refused(adapted, lora, message):
    status, reply, _ = adapted.ask(TEXT, {**QUESTION, "lora": lora})
    assert status == 400 and message in reply["error"]["message"]
    assert answer(adapted)[0]
