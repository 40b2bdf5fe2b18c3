# SPDX-License-Identifier: Apache-2.0
"""Ranking documents: /v1/rerank and what others call it, by a model that has a row instead of an output matrix."""
import json
import math
import struct

import pytest

from conftest import make_model, one_line
from serving import CHAT, TEXT, Server, served, user

RANK = "/v1/rerank"
DOCUMENTS = ["aa bb", "a much longer text about cats", "x", "aa bb"]


def add_rows(folder, name, rows):
    """A tensor of floats behind those of a safetensors file; `rows`: its rows."""
    path = folder / "model.safetensors"
    data = path.read_bytes()
    n = struct.unpack("<Q", data[:8])[0]
    head, body = json.loads(data[8:8 + n]), data[8 + n:]
    flat = [x for row in rows for x in row]
    head[name] = {"dtype": "F32", "shape": [len(rows), len(rows[0])], "data_offsets": [len(body), len(body) + 4 * len(flat)]}
    head = json.dumps(head).encode()
    head += b" " * (-len(head) % 8)
    path.write_bytes(struct.pack("<Q", len(head)) + head + body + struct.pack(f"<{len(flat)}f", *flat))


def rows_of(d, n):
    return [[math.sin(3 * k + i * (k + 1)) / 8 for i in range(d)] for k in range(n)]


@pytest.fixture
def ranker(program, tmp_path):
    folder = make_model(tmp_path / "ranker")
    d = json.loads((folder / "config.json").read_text())["hidden_size"]
    add_rows(folder, "score.weight", rows_of(d, 1))
    with Server(program, folder, "-c", 2048) as s:
        s.row = rows_of(d, 1)[0]
        yield s


def rank(s, documents, path=RANK, **fields):
    status, reply, _ = s.ask(path, {"query": "which?", "documents": documents, **fields})
    assert status == 200, reply
    return reply


def test_scores_are_of_the_last_state(ranker):
    reply = rank(ranker, DOCUMENTS)
    assert reply["object"] == "list" and reply["model"] == "ranker" and reply["usage"]["prompt_tokens"] > 4 * 60
    scores = {r["index"]: r["relevance_score"] for r in reply["results"]}
    assert [r["index"] for r in reply["results"]] == sorted(scores, key=lambda i: (-scores[i], i)) and len(scores) == 4
    assert scores[0] == scores[3] and len(set(scores.values())) == 3 and all(0 < x < 1 for x in scores.values())
    for i, text in enumerate(DOCUMENTS):
        assert rank(ranker, [text])["results"] == [{"index": 0, "relevance_score": scores[i]}]
    # the vector of the prompt is the state at length 1: on the same side of the row
    prompt = ("<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
              'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n<Instruct>: Given a '
              "web search query, retrieve relevant passages that answer the query\n<Query>: which?\n<Document>: aa bb"
              "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n")
    status, reply, _ = ranker.ask("/v1/embeddings", {"input": prompt})
    v = reply["data"][0]["embedding"]
    logit = math.log(scores[0] / (1 - scores[0]))
    cosine = sum(x * a for x, a in zip(v, ranker.row))
    assert status == 200 and (logit > 0) == (cosine > 0)


def test_forms(ranker):
    best = rank(ranker, DOCUMENTS)["results"][0]
    for path in ("/rerank", "/v1/reranking", "/reranking", "/v2/rerank"):
        assert rank(ranker, DOCUMENTS, path, top_n=1)["results"] == [best]
    objects = [{"text": d} for d in DOCUMENTS]
    assert rank(ranker, objects, return_documents=True, top_n=1)["results"] == [
        {**best, "document": {"text": DOCUMENTS[best["index"]]}}]
    status, reply, _ = ranker.ask("/rerank", {"query": "which?", "texts": DOCUMENTS, "return_text": True})
    assert status == 200 and reply[0] == {"index": best["index"], "score": best["relevance_score"],
                                          "text": DOCUMENTS[best["index"]]}
    assert rank(ranker, DOCUMENTS, instruct="Another")["results"][0]["relevance_score"] != best["relevance_score"]
    assert len(rank(ranker, ["a"] * 200)["results"]) == 200


def test_what_is_refused(ranker):
    for field, body in (("query", {"documents": ["a"]}), ("documents", {"query": "a"}), ("documents", {"query": "a", "documents": []}),
                        ("documents", {"query": "a", "documents": [4]}), ("documents", {"query": "a", "documents": "b"}),
                        ("top_n", {"query": "a", "documents": ["a"], "top_n": 0}), ("query", {"query": 4, "documents": ["a"]}),
                        ("texts", {"query": "a", "texts": [None]}), ("model", {"query": "a", "documents": ["a"], "model": "x"})):
        status, reply, _ = ranker.ask(RANK, body)
        assert status in (400, 404) and reply["error"]["param"] == field, (field, reply)
    assert ranker.ask(RANK, {"query": "a", "documents": ["a " * 3000]})[1]["error"]["code"] == "context_length_exceeded"
    for path, body in ((CHAT, {"messages": user("a")}), (TEXT, {"prompt": "a"})):
        status, reply, _ = ranker.ask(path, body)
        assert status == 400 and "ranks texts, and writes none" in reply["error"]["message"]


def test_others_do_not_rank(program, served):
    with Server(program, served, "-c", 512, "--reranking") as s:
        status, reply, _ = s.ask(RANK, {"query": "a", "documents": ["b"]})
        assert status == 400 and "does not rank" in reply["error"]["message"]


def test_too_many_rows(program, tmp_path):
    folder = make_model(tmp_path / "two")
    add_rows(folder, "score.weight", rows_of(json.loads((folder / "config.json").read_text())["hidden_size"], 2))
    status, _, err = program("run", "-m", folder, "--raw", "-p", "a", "-n", "1")
    assert status == 1 and "2 rows" in one_line(err)
