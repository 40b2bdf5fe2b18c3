# SPDX-License-Identifier: Apache-2.0
"""A server under load is killed at random moments (tools/check-serve-kills). After each kill every byte of its store must
have the right checksum, a new server must open it, and answers must be those of a server without a store."""
import http.client
import json
import os
import random
import signal
import threading
import time

from conftest import words
from serving import TEXT, Server, served

N_TEXTS, N_TOKENS, CLIENTS = 40, 16, 4


def question(text):
    return {"prompt": text, "max_tokens": N_TOKENS, "temperature": 0, "ignore_eos": True}


def load(port, texts, chance, is_over):
    """Asks for ever; what a killed server does not answer is no matter."""
    while not is_over.is_set():
        c = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        try:
            body = {**question(chance.choice(texts)), "stream": chance.random() < 0.5}
            c.request("POST", TEXT, json.dumps(body), {"Content-Type": "application/json"})
            c.getresponse().read()
        except (OSError, http.client.HTTPException):
            time.sleep(0.01)
        c.close()


def kill_under_load(server, texts, chance):
    is_over = threading.Event()
    clients = [threading.Thread(target=load, args=(server.port, texts, random.Random(chance.random()), is_over))
               for _ in range(CLIENTS)]
    for c in clients:
        c.start()
    time.sleep(chance.uniform(0.02, 7 if chance.random() < 0.2 else 1.5))  # pieces are made safe every 5 seconds
    server.process.send_signal(signal.SIGKILL)
    server.process.wait()
    is_over.set()
    for c in clients:
        c.join()


def test_kills(program, served, tmp_path):
    rounds = int(os.environ.get("ROUNDS", 50))
    seed = int(os.environ.get("SEED") or random.randrange(1 << 30))
    chance = random.Random(seed)
    print(f"seed {seed}")
    # Some begin alike, so that pieces are shared.
    texts = [words(300, i % 7) + words(chance.randrange(20, 900), 100 + i) for i in range(N_TEXTS)]
    with Server(program, served, "-c", 2048, "-np", 3) as plain:
        answers = [plain.ask(TEXT, question(t))[1]["choices"][0]["text"] for t in texts]
    store = ["--kv-store", tmp_path / "store"]
    args = ["-c", 2048, "-np", 3, *store, "--kv-store-size", "24M", "--kv-ram", "6M", "--kv-disk-path", tmp_path]
    taken = 0
    for i in range(rounds):
        with Server(program, served, *args) as server:
            k = chance.randrange(N_TEXTS)
            reply = server.ask(TEXT, question(texts[k]))[1]
            assert reply["choices"][0]["text"] == answers[k], f"round {i}, text {k}"
            taken += reply["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
            kill_under_load(server, texts, chance)
        status, out, err = program("kv", "verify", *store)
        assert status == 0, f"round {i}: {(out + err).decode()}"
    print(f"{taken} of {rounds} answers after a kill took a part of their prompt from the store")
    assert taken > 0 or rounds < 10
