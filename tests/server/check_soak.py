# SPDX-License-Identifier: Apache-2.0
"""Mixed load on a server for a while (tools/check-soak): answers whole and streamed, clients that leave, that do not read, that
send rubbish, that find no place. Now and then all is quiet: then memory, descriptors and threads are counted, and after
the first third of the time must stay what they are."""
import http.client
import json
import os
import random
import socket
import threading
import time

from conftest import TINY_MODELS, words
from serving import CHAT, TEXT, Server, request, served, user

ROUND_SECONDS, CLIENTS = 20, 10
ADAPTER = os.path.join(TINY_MODELS, "llama31", "adapter")


def ask(port, path, body):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        c.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        r = c.getresponse()
        data = r.read()
        return r.status, data
    finally:
        c.close()


def question(text, scale):
    body = {"prompt": text, "max_tokens": 12, "temperature": 0, "ignore_eos": True}
    return {**body, "lora": [{"id": 0, "scale": scale}]} if scale else body


class Load:
    """What one client does, a thing chosen at random after the other; what is wrong with a server goes to `wrong`."""

    def __init__(self, port, texts, answers, seed):
        self.port, self.texts, self.answers, self.chance = port, texts, answers, random.Random(seed)
        self.wrong, self.counts = [], {}

    def whole(self):
        i, scale = self.chance.choice(list(self.answers))
        status, data = ask(self.port, TEXT, question(self.texts[i], scale))
        if status == 200 and json.loads(data)["choices"][0]["text"] != self.answers[i, scale]:
            self.wrong.append(f"text {i}, {scale} times the adapter: another answer")
        if status not in (200, 503):
            self.wrong.append(f"status {status}: {data[:200]}")

    def stream(self):
        body = {"messages": user(self.chance.choice(self.texts)[:400]), "max_tokens": 30, "stream": True,
                "temperature": 1, "stream_options": {"include_usage": True}}
        status, data = ask(self.port, CHAT, body)
        if status == 200 and not data.endswith(b"data: [DONE]\n\n"):
            self.wrong.append(f"a stream ended with {data[-100:]}")

    def several(self):
        status, data = ask(self.port, TEXT, {"prompt": [words(60, 1), words(200, 2)], "n": 2, "max_tokens": 5, "logprobs": 3})
        if status not in (200, 503):
            self.wrong.append(f"status {status}: {data[:200]}")

    def leave(self):
        with socket.create_connection(("127.0.0.1", self.port)) as s:
            s.sendall(request({"prompt": self.chance.choice(self.texts), "max_tokens": 900, "stream": True}))
            s.settimeout(20)
            if self.chance.random() < 0.7:
                s.recv(self.chance.randrange(1, 4000))

    def read_slowly(self):
        with socket.create_connection(("127.0.0.1", self.port)) as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            s.sendall(request({"prompt": self.texts[0], "max_tokens": 300, "stream": True, "logprobs": 5, "ignore_eos": True}))
            for _ in range(20):
                time.sleep(0.1)
                s.recv(64)

    def rubbish(self):
        data = self.chance.choice([
            b"GET / HTTP/1.1\r\n", b"\x16\x03\x01\x02\x00\x01\x00", b"POST /v1/completions HTTP/1.1\r\nContent-Length: 9\r\n\r\n{",
            b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\n\r\n", self.chance.randbytes(300),
            request({"prompt": 7}), request({"prompt": "a", "n": 99}), request([]), b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n"])
        with socket.create_connection(("127.0.0.1", self.port)) as s:
            s.settimeout(0.5)
            s.sendall(data)
            s.recv(1000)

    def look(self):
        for path in ("/metrics", "/slots", "/health", "/", "/v1/models"):
            c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
            c.request("GET", path)
            if (status := c.getresponse().status) != 200:
                self.wrong.append(f"{path}: status {status}")
            c.close()

    def run(self, until):
        ways = [self.whole] * 3 + [self.stream] * 2 + [self.several, self.leave, self.leave, self.read_slowly, self.rubbish, self.look]
        while time.monotonic() < until and not self.wrong:
            way = self.chance.choice(ways)
            try:
                way()
            except OSError as e:
                if way not in (self.leave, self.read_slowly, self.rubbish):
                    self.wrong.append(f"{way.__name__}: {e!r}")
            self.counts[way.__name__] = self.counts.get(way.__name__, 0) + 1


def measure(pid):
    status = dict(line.split(":\t", 1) for line in open(f"/proc/{pid}/status").read().splitlines())
    return int(status["VmRSS"].split()[0]), len(os.listdir(f"/proc/{pid}/fd")), int(status["Threads"])


def test_soak(program, request, tmp_path):
    seconds = 60 * float(os.environ.get("MINUTES", 10))
    served_model = request.getfixturevalue("model") if os.environ.get("REAL") else request.getfixturevalue("served")
    texts = [words(200, i % 5) + words(100 + 97 * i % 900, 100 + i) for i in range(24)]
    args, scales = ["-c", 2048, "-np", 4, "--queue", 6], [0]
    if not os.environ.get("REAL"):  # for which there is no adapter
        args += ["--lora", ADAPTER, "--lora-init-without-apply"]
        scales += [1, -0.5]
    with Server(program, served_model, *args) as plain:
        answers = {(i, scale): json.loads(ask(plain.port, TEXT, question(t, scale))[1])["choices"][0]["text"]
                   for i, t in enumerate(texts) for scale in scales}
    args += ["--kv-ram", os.environ.get("KV_RAM", "8M"), "--kv-disk", "64M", "--kv-disk-path", tmp_path, "--kv-store", tmp_path / "store",
             "--kv-store-size", "32M"]
    args += ["-md", served_model] if os.environ.get("DRAFT") else []
    found, counts = [], {}
    with Server(program, served_model, *args) as server:
        began = time.monotonic()
        while (now := time.monotonic()) < began + seconds or len(found) < 5:
            loads = [Load(server.port, texts, answers, random.random()) for _ in range(CLIENTS)]
            threads = [threading.Thread(target=load.run, args=(now + ROUND_SECONDS,)) for load in loads]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            wrong = [w for load in loads for w in load.wrong]
            assert not wrong and server.process.poll() is None, (wrong, server.said[-2000:])
            for load in loads:
                for name, n in load.counts.items():
                    counts[name] = counts.get(name, 0) + n
            server.wait_for("infinigen_requests_running", 0, seconds=60)
            server.wait_for("infinigen_http_connections", 1, seconds=60)
            time.sleep(0.5)
            found.append((time.monotonic() - began, *measure(server.process.pid)))
            print("%5.0f s: %d KiB, %d descriptors, %d threads" % found[-1], flush=True)
    print(counts)
    warm = [f for f in found if f[0] >= seconds / 3] or found[1:]
    assert len({f[2:] for f in warm}) == 1, "descriptors or threads are left"
    assert warm[-1][1] <= warm[0][1] * 1.01, "memory grows"
