# SPDX-License-Identifier: Apache-2.0
"""`infinigen serve --sandbox`: within it, everything that a server does still works."""
import ctypes
import os
import signal
import time

import pytest

from conftest import TINY_MODELS, make_model, of_threads, one_line, words
from serving import Server

LANDLOCK_CREATE_RULESET = 444


@pytest.fixture(autouse=True)
def landlock():
    if ctypes.CDLL(None, use_errno=True).syscall(LANDLOCK_CREATE_RULESET, None, 0, 1) < 1:
        pytest.skip("this kernel has no Landlock")


def question(text, **more):
    return {"prompt": text, "max_tokens": 8, "temperature": 0, "ignore_eos": True, **more}


def test_a_server_within(program, tmp_path):
    """A store, a disk tier, other policies, streams and keys; each thread is filtered."""
    model, keys = make_model(tmp_path / "model"), tmp_path / "keys"
    (tmp_path / "disk").mkdir()
    keys.write_text("one\n")
    texts = [words(1200, seed) for seed in range(6)]
    args = ["-c", 2048, "-np", 2]
    with Server(program, model, *args) as plain:
        wanted = [plain.ask("/v1/completions", question(t))[1]["choices"][0]["text"] for t in texts]
    args += ["--sandbox", "--kv-ram", "4M", "--kv-disk-path", tmp_path / "disk", "--kv-store", tmp_path / "store",
             "--api-key-file", keys]
    key = {"Authorization": "Bearer one"}
    with Server(program, model, *args) as s:
        for text, answer in zip(texts, wanted):
            status, reply, _ = s.ask("/v1/completions", question(text), headers=key)
            assert status == 200 and reply["choices"][0]["text"] == answer
        status, reply, _ = s.ask("/v1/completions", question(texts[0], infinigen={"policy": "quest"}), headers=key)
        assert status == 200
        assert s.events("/v1/completions", question(texts[1]), headers=key)
        states = of_threads(s.process.pid, "status")
        assert len(states) >= 4 and all("Seccomp:\t2" in state and "NoNewPrivs:\t1" in state for state in states)
        text = s.ask("/metrics", headers=key)[1]
        assert 'infinigen_kv_bytes{tier="disk"} 0\n' not in text
        keys.write_text("two\n")
        s.process.send_signal(signal.SIGHUP)
        end = time.monotonic() + 20
        while b"keys were read again" not in s.said and time.monotonic() < end:
            time.sleep(0.05)
        assert s.ask("/v1/models", headers=key)[0] == 401
        assert s.ask("/v1/models", headers={"Authorization": "Bearer two"})[0] == 200
    assert os.listdir(tmp_path / "disk") == []
    # What it has stored serves the next one.
    with Server(program, model, *args) as s:
        reply = s.ask("/v1/completions", question(texts[2]), headers={"Authorization": "Bearer two"})[1]
        assert reply["choices"][0]["text"] == wanted[2] and reply["usage"]["prompt_tokens_details"]["cached_tokens"] > 1000


def test_adapters_that_lie_elsewhere(program, tmp_path):
    adapter = os.path.join(TINY_MODELS, "llama31", "adapter")
    if not os.path.exists(adapter):
        pytest.skip("no tiny models")
    with Server(program, make_model(tmp_path / "model"), "-c", 256, "--sandbox", "--lora", f"one={adapter}:2") as s:
        replies = [s.ask("/v1/completions", question("abc", lora=lora))[1]["choices"][0]["text"] for lora in (None, [])]
        assert replies[0] != replies[1]


def test_what_a_start_reads(program, tmp_path):
    """A directory of links, as in the cache of the hub, and a template."""
    files, links = make_model(tmp_path / "blobs"), tmp_path / "snapshots" / "model"
    links.mkdir(parents=True)
    for name in os.listdir(files):
        (links / name).symlink_to(os.path.join("..", "..", "blobs", name))
    (tmp_path / "template").write_text("{{ messages[0].content }}")
    with Server(program, links, "-c", 256, "--sandbox", "--chat-template", tmp_path / "template") as s:
        asked = {"messages": [{"role": "user", "content": "abc"}], "max_tokens": 1}
        assert s.ask("/v1/chat/completions", asked)[0] == 200


def test_a_socket(program, tmp_path):
    model, path = make_model(tmp_path / "model"), tmp_path / "socket"
    with Server(program, model, "-c", 256, "--sandbox", "--unix", path) as s:
        assert path.is_socket()
        s.process.kill()
        s.process.wait()
    with Server(program, model, "-c", 256, "--sandbox", "--unix", path):  # takes the place of the one that is left
        assert path.is_socket()
    assert not path.exists()


def test_folders_must_be_there(program, tmp_path):
    model = make_model(tmp_path / "model")
    serve = ["serve", "-m", model, "--port", "0", "--sandbox"]
    for flag in ("--api-key-file", "--kv-store"):
        status, _, err = program(*serve, flag, tmp_path / "none" / "there")
        assert status == 1 and "none/there: No such file" in one_line(err)
    status, _, err = program(*serve, "--kv-ram", "4M", "--kv-disk-path", tmp_path / "none")
    assert status == 1 and "none: No such file" in one_line(err)
