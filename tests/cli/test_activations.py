# SPDX-License-Identifier: Apache-2.0
"""What `inspect --activations` measures, against the first layer of tiny OPTs computed in plain Python."""
import json
import math
import os

import pytest
from conftest import TINY_MODELS, make_model, one_line
from plain_opt import EACH, HEADS, Weights, cosine, dot, make_ids, output, weights_of

N = 72
RATIOS = [0.1, 0.2, 0.3, 0.4]
COLUMNS = [3, 6, 9, 12]


def run_layer(w, ids, pre):
    """The layer's input, queries, keys, what attention and the feed-forward part add, and the next layer's input."""
    attention, ffn = "layers.0.self_attn_layer_norm", "layers.0.final_layer_norm"
    h = w.embed(ids)
    x = [w.norm(attention, row) for row in h] if pre else h
    q, k, v = (w.project(kind, x) for kind in "qkv")
    mixed = [sum((output(weights_of(q, k, p, head), v, head) for head in range(HEADS)), []) for p in range(len(ids))]
    attended = w.project("out", mixed)
    after = [[a + b for a, b in zip(*rows)] for rows in zip(h, attended)]
    if not pre:
        after = [w.norm(attention, row) for row in after]
    x = [w.norm(ffn, row) for row in after] if pre else after
    fed = [w.linear("layers.0.fc2", [max(0, u) for u in w.linear("layers.0.fc1", row)]) for row in x]
    following = [[a + b for a, b in zip(*rows)] for rows in zip(after, fed)]
    if not pre:
        following = [w.norm(ffn, row) for row in following]
    return h, q, k, attended, fed, following


def eigenvectors(a):
    """Of a symmetric matrix, by falling eigenvalue: Jacobi's rotations."""
    n = len(a)
    a, vectors = [list(row) for row in a], [[float(i == j) for j in range(n)] for i in range(n)]
    for _ in range(12):
        for p in range(n):
            for q in range(p + 1, n):
                if abs(a[p][q]) < 1e-13 * math.sqrt(abs(a[p][p] * a[q][q])):
                    continue
                angle = 0.5 * math.atan2(2 * a[p][q], a[q][q] - a[p][p])
                c, s = math.cos(angle), math.sin(angle)
                for row in a:
                    row[p], row[q] = c * row[p] - s * row[q], s * row[p] + c * row[q]
                a[p], a[q] = ([c * x - s * y for x, y in zip(a[p], a[q])], [s * x + c * y for x, y in zip(a[p], a[q])])
                vectors[p], vectors[q] = ([c * x - s * y for x, y in zip(vectors[p], vectors[q])],
                                          [s * x + c * y for x, y in zip(vectors[p], vectors[q])])
    return [vectors[i] for i in sorted(range(n), key=lambda i: -a[i][i])]


def columns_of(rows):
    return list(zip(*rows))


def magnitudes(rows):
    return [sum(map(abs, column)) for column in columns_of(rows)]


def shares(rows, best):
    energy = [dot(column, column) for column in columns_of(rows)]
    ordered = sorted(energy, reverse=True) if best else energy
    return [sum(ordered[:n]) / sum(energy) for n in COLUMNS]


@pytest.mark.parametrize("name,pre", [("opt", True), ("opt-350m-like", False)])
def test_against_plain_python(program, tmp_path, name, pre):
    model = os.path.join(TINY_MODELS, name)
    if not os.path.isdir(model):
        pytest.skip("no tiny models")
    ids = make_ids(N)
    (tmp_path / "ids").write_text(" ".join(map(str, ids + ids)))
    status, out, err = program("inspect", "-m", model, "--tokens", tmp_path / "ids", "-c", N, "--json")
    assert (status, err) == (0, b"")
    report = json.loads(out)["activations"]
    assert report["tokens"] == N and report["ratios"] == RATIOS and report["columns"] == COLUMNS
    first, second = report["layers"][:2]
    h, q, k, attended, fed, following = run_layer(Weights(model), ids, pre)

    assert first["cosine"] is None
    for key, other in ("input", h), ("attention", attended), ("ffn", fed):
        assert second["cosine"][key] == pytest.approx(sum(map(cosine, following, other)) / N, abs=1e-3), key

    sums = {key: [0] * len(COLUMNS) for key in ("q", "k", "q_skewed", "k_skewed")}
    for head, measured in enumerate(first["heads"]):
        part = slice(head * EACH, (head + 1) * EACH)
        queries, keys = [row[part] for row in q], [row[part] for row in k]
        columns = columns_of(queries)
        a = eigenvectors([[dot(x, y) for y in columns] for x in columns])
        rows = {"q": queries, "k": keys, **{key: [[dot(row, column) for column in a] for row in x]
                                            for key, x in (("q_skewed", queries), ("k_skewed", keys))}}
        assert measured.keys() == rows.keys()
        for key, x in rows.items():
            tolerance = 0.02 if "skewed" in key else 1e-3  # eigenvalues may lie close together
            assert measured[key] == pytest.approx(magnitudes(x), rel=tolerance), (head, key)
            sums[key] = [s + share / HEADS for s, share in zip(sums[key], shares(x, "skewed" not in key))]
    for key, expected in sums.items():
        assert first["energy"][key] == pytest.approx(expected, abs=2e-3), key

    layers = report["layers"]
    for key in ("input", "attention", "ffn"):
        assert report["cosine"][key] == pytest.approx(sum(layer["cosine"][key] for layer in layers[1:]) / (len(layers) - 1))
    for key in sums:
        means = [sum(column) / len(layers) for column in columns_of([layer["energy"][key] for layer in layers])]
        assert report["energy"][key] == pytest.approx(means)


def test_table(program, tmp_path):
    model = make_model(tmp_path / "bytes")
    text = "a calm sea and a long way home " * 10
    status, out, err = program("inspect", model, "--activations", "-", stdin=text)
    assert (status, err) == (0, b"")
    lines = out.decode().split("\nActivations over ")[1].splitlines()
    table = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("|")]
    report = json.loads(program("inspect", model, "--activations", "-", "--json", stdin=text)[1])["activations"]
    assert int(lines[0].split()[0]) == report["tokens"]
    assert table[0][:5] == ["layer", "input", "attention", "FFN", "Q 0.1"] and table[0][-1] == "K 0.4"
    assert [row[0] for row in table[2:]] == [*map(str, range(len(report["layers"]))), "mean"]
    assert table[2][1:4] == ["", "", ""]
    for row, layer in zip(table[2:], [*report["layers"], report]):
        if layer["cosine"]:
            assert [float(cell) for cell in row[1:4]] == pytest.approx(list(layer["cosine"].values()), abs=6e-4)
        cells = [cell.split(", ") for cell in row[4:]]
        for (plain, skewed), cell in zip([(k, r) for k in "qk" for r in range(4)], cells):
            expected = [100 * layer["energy"][part][skewed] for part in (plain, plain + "_skewed")]
            assert [float(c) for c in cell] == pytest.approx(expected, abs=0.51)


def test_what_is_not_measured(program, tmp_path):
    model = make_model(tmp_path / "bytes")
    (tmp_path / "text").write_text("a calm sea and a long way home " * 10)
    for flags, message, wanted in ((["--tokens", tmp_path / "text"], "give one", 2), (["-c", "100,200"], "no list", 2),
                                   (["-c", "4"], "text of 4 tokens", 2)):
        status, out, err = program("inspect", model, "--activations", tmp_path / "text", *flags)
        assert status == wanted and out == b"" and message in one_line(err), flags
    status, out, err = program("inspect", model, "--activations", tmp_path / "none")
    assert status == 1 and out == b"" and "none" in one_line(err)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"model_type": "mamba"}')
    status, out, err = program("inspect", tmp_path / "model", "--activations", tmp_path / "text")
    assert status == 1 and out == b"" and one_line(err)
