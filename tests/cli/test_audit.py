# SPDX-License-Identifier: Apache-2.0
"""What audits say, against attention of the first layer of a tiny OPT computed here, in plain Python, from its weights."""
import csv
import json
import os

import pytest
from conftest import TINY_MODELS, one_line
from plain_opt import HEADS, Weights, cosine, make_ids, output, weights_of

OPT = os.path.join(TINY_MODELS, "opt")
N, PREFIX = 72, 56


@pytest.fixture(scope="module")
def layer():
    """ids, and attention's weights [position][head] of each token over those up to itself, and the values [position]."""
    if not os.path.isdir(OPT):
        pytest.skip("no tiny models")
    ids, w = make_ids(N), Weights(OPT)
    x = [w.norm("layers.0.self_attn_layer_norm", row) for row in w.embed(ids)]
    q, k, v = (w.project(kind, x) for kind in "qkv")
    return ids, {(p, h): weights_of(q, k, p, h) for p in range(PREFIX, N - 1) for h in range(HEADS)}, v


@pytest.fixture
def audit(program, layer, tmp_path):
    def run(*flags):
        (tmp_path / "ids").write_text(" ".join(map(str, layer[0])))
        status, out, err = program("perplexity", "-m", OPT, "--tokens", tmp_path / "ids", "-c", N, "--dense-prefix", PREFIX, "--json",
                                   "--kv-dense-layers", "0", "--audit-trace", tmp_path / "audits", *flags)
        assert (status, err) == (0, b"")
        with open(tmp_path / "audits") as f:
            rows = [{k: float(v) if v else None for k, v in row.items()} for row in csv.DictReader(f)]
        return json.loads(out), rows
    return run


def test_against_plain_python(audit, layer):
    """Of a policy of which it is plain what it uses."""
    _, weights, values = layer
    sinks = 3
    report, rows = audit("--kv-policy", "window", "--kv-budget", "20", "--kv-sinks", sinks, "--kv-recent", "8")
    rows_0 = [row for row in rows if row["layer"] == 0]
    assert len(rows_0) == (N - 1 - PREFIX) * HEADS and len(rows) == 4 * len(rows_0)
    for row in rows_0:
        p, head = PREFIX + int(row["step"]), int(row["head"])
        full, used = weights[p, head], int(row["used"])
        assert row["seen"] == p + 1 and used == 20
        kept = [w if i < sinks or i > p - used + sinks else 0 for i, w in enumerate(full)]
        assert sum(w > 0 for w in kept) == used
        assert row["mass"] == pytest.approx(sum(kept), abs=2e-3)
        assert row["cosine"] == pytest.approx(cosine(kept, full), abs=2e-3)
        assert row["output_cosine"] == pytest.approx(cosine(output(kept, values, head), output(full, values, head)), abs=5e-3)
        ordered, needed = sorted(full, reverse=True), 0
        while sum(ordered[:needed]) < 0.9:
            needed += 1
        assert abs(row["needed"] - needed) <= 1
    audits = report["audit"]
    for key in "mass", "cosine", "output_cosine", "needed":
        assert audits[key + "_mean"] == pytest.approx(sum(row[key] for row in rows) / len(rows), rel=1e-5)
    assert audits["layers"][0] == pytest.approx(sum(row["mass"] for row in rows_0) / len(rows_0), rel=1e-5)


def test_weights_of_keys(audit, layer):
    """Full attention's, of those that are there, whatever the policy uses or has dropped."""
    _, weights, _ = layer
    keys = (0, 3, 40, PREFIX, N - 2)
    for flags in (["--kv-policy", "window", "--kv-sinks", "1", "--kv-recent", "4", "--kv-budget", "6"],
                  ["--kv-policy", "h2o", "--kv-budget", "20", "--kv-recent", "2"]):
        _, rows = audit(*flags, "--audit-keys", ",".join(map(str, keys)))
        rows = [row for row in rows if row["layer"] == 0]
        assert len(rows) == (N - 1 - PREFIX) * HEADS
        for row in rows:
            full = weights[PREFIX + int(row["step"]), int(row["head"])]
            for key in keys:
                seen = row[f"key_{key}"]
                assert seen is None if key >= row["seen"] else seen == pytest.approx(full[key], abs=2e-3, rel=2e-2)


def test_what_is_dropped_counts(audit, layer):
    """What heavy hitters are compared with is everything that was ever there, of which they hold a part."""
    report, rows = audit("--kv-policy", "h2o", "--kv-budget", "20", "--kv-recent", "2", "--kv-sinks", "0")
    assert report["kv"]["dropped"] > 0 and 0.2 < report["audit"]["mass_mean"] < 0.9
    for row in rows:
        assert row["seen"] == PREFIX + row["step"] + 1 and row["used"] == 20
        if row["layer"] == 0:
            ordered = sorted(layer[1][PREFIX + int(row["step"]), int(row["head"])], reverse=True)
            assert sum(ordered[-20:]) < row["mass"] < sum(ordered[:20]) + 2e-3
            assert sum(ordered[:int(row["needed"]) + 1]) >= 0.9 > sum(ordered[:int(row["needed"]) - 2])


@pytest.mark.parametrize("flags", [["--kv-policy", "infinigen", "--kv-limit", "50%", "--kv-recent", "4"],
                                   ["--kv-policy", "infinigen", "--kv-limit", "50%", "--kv-evict", "fifo", "--kv-type", "q8",
                                    "--kv-recent", "4"]])
def test_limits(audit, layer, flags):
    """What a limit has dropped counts as not held."""
    _, weights, _ = layer
    report, rows = audit(*flags, "--no-kv-rest", "--kv-budget", "100%")
    for row in rows:
        assert row["seen"] == PREFIX + row["step"] + 1 and row["used"] <= N / 2 + 1
        assert 0 < row["mass"] < 0.999
    assert report["kv"]["dropped"] > 0 and report["audit"]["mass_mean"] < 0.99
    tolerance = 1 if "q8" not in flags else 2
    for row in rows:
        if row["layer"] == 0:
            ordered = sorted(weights[PREFIX + int(row["step"]), int(row["head"])], reverse=True)
            assert sum(ordered[:int(row["needed"]) + tolerance]) >= 0.9 > sum(ordered[:max(0, int(row["needed"]) - tolerance - 1)])


def test_nothing_changes_by_looking(program, layer, tmp_path):
    (tmp_path / "ids").write_text(" ".join(map(str, layer[0])))
    common = ["perplexity", "-m", OPT, "--tokens", tmp_path / "ids", "-c", N, "--dense-prefix", PREFIX, "--json", "--kv-policy",
              "full,h2o,infinigen", "--kv-budget", "16", "--kv-recent", "4", "--kv-limit", "100%"]
    with_audit, without = (json.loads(program(*common, *more)[1])["runs"] for more in (["--audit", "2"], []))
    assert [run["nll"] for run in with_audit] == [run["nll"] for run in without]
    h2o, sparse = with_audit[1:]
    assert h2o["audit"]["n"] == sparse["audit"]["n"] * 2 // 3  # two dense layers of four, one of four
    assert 0.1 < h2o["audit"]["mass_mean"] < 0.95 and "audit" not in without[1]
    status, out, err = program(*common, "--audit-trace", tmp_path / "x")
    assert status == 2 and "--audit-trace takes one" in one_line(err)
    status, out, err = program(*common, "--audit-keys", "3")
    assert status == 2 and "--audit-keys are columns of --audit-trace" in one_line(err)
