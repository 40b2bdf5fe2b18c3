# SPDX-License-Identifier: Apache-2.0
"""/metrics: what it counts, and what Prometheus' own checker says of it."""
import math
import re
import shutil
import subprocess

import pytest

from conftest import words
from serving import TEXT, Server, served

GAUGES = ["requests_running", "requests_waiting", "places", "piece_tokens", "kv_bytes", "kv_limit_bytes", "kv_sketch_bytes",
          "kv_tokens", "kv_kept_tokens", "http_connections", "build_info"]
COUNTERS = ["requests_total", "requests_cancelled_total", "requests_failed_total", "prompt_tokens_total",
            "prompt_tokens_cached_total", "generated_tokens_total", "draft_tokens_total",
            "draft_hits_total", "steps_total", "step_seconds_total",
            "kv_fetched_bytes_total", "kv_spilled_bytes_total", "kv_blocks_demoted_total", "kv_blocks_recalled_total",
            "kv_vram_hits_total", "kv_vram_copied_total", "kv_vram_rows_total", "kv_vram_read_bytes_total",
            "kv_stall_seconds_total", "prefetch_hits_total", "prefetch_misses_total", "store_read_tokens_total",
            "store_put_tokens_total", "http_replies_total", "http_connections_lost_total"]
HISTOGRAMS = ["time_to_first_token_seconds", "time_between_tokens_seconds", "request_wait_seconds",
              "request_prompt_seconds", "request_seconds"]


@pytest.fixture
def busy(program, served, tmp_path):
    """A server that has something to count: two prompts of the same text, more than fits into RAM, one cut short."""
    (tmp_path / "disk").mkdir()
    args = ["--kv-ram", "4M", "--kv-disk", "64M", "--kv-disk-path", tmp_path / "disk", "--kv-store", tmp_path / "store"]
    with Server(program, served, "-c", 2048, "-np", 2, *args) as s:
        for seed in (1, 1, 2, 3, 4):
            assert s.ask(TEXT, {"prompt": words(1200, seed), "max_tokens": 4, "ignore_eos": True})[0] == 200
        assert s.ask(TEXT, {"prompt": ""})[0] == 400
        yield s


def test_what_is_counted(busy):
    busy.wait_for("infinigen_store_put_tokens_total", 4 * 1184, math.inf)  # a commit follows the answer
    text, numbers = busy.ask("/metrics")[1], busy.numbers()
    kinds = dict(re.findall(r"^# TYPE infinigen_(\S+) (\S+)$", text, re.M))
    assert kinds == {n: k for k, names in (("gauge", GAUGES), ("counter", COUNTERS), ("histogram", HISTOGRAMS)) for n in names}
    n = {name.removeprefix("infinigen_"): value for name, value in numbers.items()}
    assert (n["requests_total"], n["requests_running"], n["requests_waiting"], n["places"]) == (5, 0, 0, 2)
    assert (n["prompt_tokens_total"], n["generated_tokens_total"]) == (6000, 20)
    assert n["prompt_tokens_cached_total"] == 1199 // 16 * 16
    assert n['kv_bytes{tier="disk"}'] > 0 and n["kv_spilled_bytes_total"] > 0
    assert 0 < n['kv_bytes{tier="ram"}'] <= n['kv_limit_bytes{tier="ram"}'] == 4 << 20
    assert n['kv_limit_bytes{tier="disk"}'] == 64 << 20
    assert n['http_replies_total{status="4xx"}'] == 1
    for name, count in zip(HISTOGRAMS, (5, 15, 5, 5, 5)):
        buckets = [v for k, v in n.items() if k.startswith(name + "_bucket")]
        assert buckets == sorted(buckets) and len(buckets) == 17
        assert n[name + "_count"] == buckets[-1] == count and n[name + "_sum"] >= 0


def test_promtool(busy):
    if not shutil.which("promtool"):
        pytest.skip("promtool is missing (Debian's prometheus has it)")
    r = subprocess.run(["promtool", "check", "metrics"], input=busy.ask("/metrics")[1], capture_output=True, text=True)
    assert (r.returncode, r.stdout, r.stderr) == (0, "", "")
