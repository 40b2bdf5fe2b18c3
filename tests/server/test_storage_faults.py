# SPDX-License-Identifier: Apache-2.0
"""A disk that gets full, and a store that is damaged, under a server: it goes on, and answers with the right tokens."""
import concurrent.futures
import math
import os
import pathlib
import random
import shutil
import subprocess
import time

import pytest

from conftest import words
from serving import TEXT, Server, served


def question(text):
    return {"prompt": text, "max_tokens": 8, "temperature": 0, "ignore_eos": True}


def answer(server, text):
    status, reply, _ = server.ask(TEXT, question(text))
    return reply["choices"][0]["text"] if status == 200 else (status, reply)


@pytest.fixture
def texts():
    return [words(1500, seed) for seed in range(6)]


@pytest.fixture
def wanted(program, served, texts):
    with Server(program, served, "-c", 2048, "-np", 2) as plain:
        return [answer(plain, t) for t in texts]


class Within:
    """The program in a name space of mounts of its own, with a small file system at `folder`."""

    def __init__(self, program, folder, size):
        folder.mkdir()
        self.program = program
        self.by = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c",
                   f'mount -t tmpfs -o size={size} none "$0" && exec "$@"', str(folder)]
        if not shutil.which("unshare") or subprocess.run([*self.by, "true"], capture_output=True).returncode:
            pytest.skip("no file system can be mounted here")

    def start(self, *args, env=None):
        return subprocess.Popen([*self.by, self.program.path, *map(str, args)], env={**self.program.env, **(env or {})},
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def ask_all(server, texts, wanted):
    """Each twice, two at a time."""
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for _ in range(2):
            assert list(pool.map(lambda t: answer(server, t), texts)) == wanted


def disk_args(tmp_path):
    return ["-c", 2048, "-np", 2, "--kv-ram", "4M", "--kv-disk-path", tmp_path / "disk"]


def test_disk_is_full_of_what_is_kept(program, served, texts, wanted, tmp_path):
    """There is room for a request that runs: what is only kept for later ones leaves."""
    with Server(Within(program, tmp_path / "disk", "2m"), served, *disk_args(tmp_path)) as s:
        assert [answer(s, text) for text in texts] == wanted
        assert s.numbers()["infinigen_requests_failed_total"] == 0


def test_disk_is_too_small(program, served, texts, wanted, tmp_path):
    """What it has no room for is no context: it is refused before anything is computed."""
    with Server(Within(program, tmp_path / "disk", "1m"), served, *disk_args(tmp_path)) as s:
        n_ctx = s.ask("/slots")[1][0]["n_ctx"]
        assert 900 < n_ctx <= 1024 and b"contexts of %d tokens" % n_ctx in s.said
        for text in texts:
            status, reply = answer(s, text)
            assert status == 400 and reply["error"]["code"] == "context_length_exceeded"
        short = [t[:n_ctx - 20] for t in texts]
        alone = [answer(s, t) for t in short]
        ask_all(s, short, alone)
        assert all(isinstance(a, str) for a in alone) and s.numbers()["infinigen_requests_failed_total"] == 0


def test_disk_gets_full(program, served, texts, wanted, tmp_path):
    """By what others write: a request that finds no room fails alone, with the reason; the server goes on."""
    with Server(Within(program, tmp_path / "disk", "4m"), served, *disk_args(tmp_path)) as s:
        short = answer(s, texts[0][:100])
        filler = f"/proc/{s.process.pid}/root{tmp_path}/disk/filler"
        with open(filler, "wb", buffering=0) as f, pytest.raises(OSError):
            while True:
                f.write(bytes(4096))
        for text in texts:
            status, reply = answer(s, text)
            assert status == 500 and "No space left on device" in reply["error"]["message"]
        assert answer(s, texts[0][:100]) == short and isinstance(short, str)
        os.unlink(filler)
        ask_all(s, texts, wanted)


def has_no_name(fd):
    """Whether a descriptor is of such a file. A connection's may end while it is looked at."""
    try:
        return "(deleted)" in os.readlink(fd)
    except FileNotFoundError:
        return False


def spoil_spill_file(server):
    """Nothing that the disk tier holds now is what was written. The file has no name."""
    [path] = filter(has_no_name, pathlib.Path(f"/proc/{server.process.pid}/fd").iterdir())
    with open(path, "r+b") as f:
        f.write(b"x" * os.fstat(f.fileno()).st_size)


@pytest.fixture
def keeping(program, served, tmp_path):
    """A server that has room for all texts, most of it on disk."""
    (tmp_path / "disk").mkdir()
    with Server(program, served, *disk_args(tmp_path), "-np", 6) as s:
        yield s


def test_kept_blocks_are_lost(keeping, texts, wanted):
    """Who needs them fails, and is alone in that: who comes with the same prompt later computes it."""
    assert [answer(keeping, text) for text in texts] == wanted
    spoil_spill_file(keeping)
    for text, right in zip(texts, wanted):
        status, reply = answer(keeping, text)
        assert status == 500 and "is corrupt" in reply["error"]["message"]
        assert answer(keeping, text) == right


def test_sketch_of_what_is_lost(keeping, texts, wanted):
    """What another policy needs beside K and V is made from them; where they cannot be read the prompt is computed."""
    for text in texts:
        assert keeping.ask(TEXT, {**question(text), "infinigen": {"policy": "full"}})[0] == 200
    spoil_spill_file(keeping)
    assert [answer(keeping, text) for text in texts[:3]] == wanted[:3]


def test_store_is_full(program, served, texts, wanted, tmp_path):
    within = Within(program, tmp_path / "store", "3m")
    with Server(within, served, "-c", 2048, "-np", 2, "--kv-store", tmp_path / "store") as s:
        ask_all(s, texts, wanted)
        told = [line for line in s.said.splitlines() if b": KV store" in line or b": No space" in line]
        assert b"nothing after it" in b"".join(told) and len(told) <= 3, s.said


def test_store_has_room_again(program, served, texts, wanted, tmp_path):
    """After a while it is tried again, and what happens in between is told once."""
    within = Within(program, tmp_path / "store", "3m")
    with Server(within, served, "-c", 2048, "-np", 2, "--kv-store", tmp_path / "store") as s:
        filler = f"/proc/{s.process.pid}/root{tmp_path}/store/filler"
        with open(filler, "wb", buffering=0) as f, pytest.raises(OSError):
            while True:
                f.write(bytes(4096))
        assert [answer(s, text) for text in texts[:3]] == wanted[:3]
        os.unlink(filler)
        end = time.monotonic() + 60
        while s.numbers()["infinigen_store_put_tokens_total"] == 0:
            assert time.monotonic() < end, s.said
            answer(s, words(200, time.monotonic_ns()))
            time.sleep(1)
        assert s.said.count(b"nothing after it") == 1 and s.said.count(b"kept again") == 1, s.said
        kept = s.numbers()["infinigen_store_put_tokens_total"]
        assert answer(s, texts[2]) == wanted[2]  # what RAM has of it is kept now
        s.wait_for("infinigen_store_put_tokens_total", kept + len(texts[2]) // 64 * 64 - 64, math.inf)


def test_store_of_another_server(program, served, texts, wanted, tmp_path):
    """Who has only read it keeps prompts when the one that wrote it has ended."""
    args = ["-c", 2048, "-np", 2, "--kv-store", tmp_path / "store"]
    with Server(program, served, *args) as first, Server(program, served, *args) as s:
        assert b"nothing new is kept: another process" in s.said
        first.stop()
        end = time.monotonic() + 60
        while s.numbers()["infinigen_store_put_tokens_total"] == 0:
            assert time.monotonic() < end, s.said
            answer(s, words(200, time.monotonic_ns()))
            time.sleep(1)
        assert [answer(s, text) for text in texts[:2]] == wanted[:2]
        assert s.said.count(b"kept again") == 1, s.said


@pytest.mark.parametrize("harm", ("flip", "cut", "remove"))
def test_store_is_damaged(program, served, texts, wanted, tmp_path, harm):
    """Before a server starts, and while it runs."""
    store, chance = tmp_path / "store", random.Random(1)
    args = ["-c", 2048, "-np", 2, "--kv-store", store]

    def damage():
        files = sorted(f for f in store.rglob("*") if f.is_file() and not f.name.startswith("index"))
        for f in files:
            n = f.stat().st_size
            if harm == "remove":
                f.unlink()
            elif harm == "cut":
                os.truncate(f, n // 2)
            else:
                with open(f, "r+b") as out:
                    for _ in range(1 + n // 4096):
                        at = chance.randrange(n)
                        out.seek(at)
                        byte = out.read(1)[0]
                        out.seek(at)
                        out.write(bytes([byte ^ 1 << chance.randrange(8)]))
        return len(files)

    with Server(program, served, *args) as s:
        ask_all(s, texts[:4], wanted[:4])
    assert damage() > 0
    with Server(program, served, *args, "--kv-ram", "4M", "--kv-disk-path", tmp_path) as s:
        ask_all(s, texts[:4], wanted[:4])
        ask_all(s, texts[4:], wanted[4:])
        damage()
        ask_all(s, texts, wanted)
