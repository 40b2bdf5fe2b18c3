# SPDX-License-Identifier: Apache-2.0
"""Memory that is short: what does not fit goes to disk or waits; no request fails for it, and nothing is computed twice."""
import concurrent.futures

import pytest

from conftest import words
from serving import TEXT, Server, served

N, LENGTH = 20, 512  # conversations; tokens of the document of each
ROUNDS = [[words(LENGTH, seed) + question for seed in range(N)] for question in (" Who?", " And why is it so?")]
alone = []  # what a server with one place and enough memory answers, once for all tests


def ask_all(server, texts, at_a_time):
    """Answers, and how many tokens of each prompt were taken from earlier ones."""
    def ask(text):
        status, reply, _ = server.ask(TEXT, {"prompt": text, "max_tokens": 12, "temperature": 0, "ignore_eos": True,
                                             "infinigen": {"budget": 0.3}})
        assert status == 200, reply
        return reply["choices"][0]["text"], reply["usage"]["prompt_tokens_details"]["cached_tokens"]

    with concurrent.futures.ThreadPoolExecutor(at_a_time) as pool:
        found = list(pool.map(ask, texts))
    return [answer for answer, _ in found], [cached for _, cached in found]


@pytest.fixture
def wanted(program, served):
    if not alone:
        with Server(program, served, "-c", 560, "-np", 1) as plain:
            alone.extend(ask_all(plain, texts, 1)[0] for texts in ROUNDS)
    return alone


@pytest.mark.parametrize("places", (N, 4))
def test_conversations_beyond_ram(program, served, wanted, tmp_path, places):
    """RAM for four of twenty documents. With fewer places the store has what the disk tier does not plan for."""
    args = ["-c", 560, "-np", places, "--kv-ram", "2600K", "--kv-disk-path", tmp_path]
    if places < N:
        args += ["--kv-store", tmp_path / "store"]
    with Server(program, served, *args) as s:
        for i, texts in enumerate(ROUNDS):
            answers, cached = ask_all(s, texts, N)
            assert answers == wanted[i]
            assert min(cached) >= i * LENGTH and (i or max(cached) == 0)
        numbers = s.numbers()
        assert numbers["infinigen_requests_failed_total"] == 0
        assert numbers['infinigen_kv_bytes{tier="ram"}'] <= 2600 << 10


def test_disk_for_two(program, served, wanted, tmp_path):
    """RAM and disk hold the tokens of two conversations: the others stand still and go on."""
    args = ["-c", 560, "-np", 6, "--kv-ram", "2M", "--kv-disk", "1200K", "--kv-disk-path", tmp_path]
    with Server(program, served, *args) as s:
        assert ask_all(s, ROUNDS[0], N)[0] == wanted[0]
        numbers = s.numbers()
        assert numbers["infinigen_requests_failed_total"] == 0
        # Each prompt was computed once: what was taken over is what was not computed.
        assert numbers["infinigen_prompt_tokens_total"] == sum(map(len, ROUNDS[0]))
