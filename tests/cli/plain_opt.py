# SPDX-License-Identifier: Apache-2.0
"""The first layer of a tiny OPT in plain Python, from its weights."""
import functools
import json
import math
import os
import random
import struct

HEADS, WIDTH = 4, 128
EACH = WIDTH // HEADS


class Weights:
    def __init__(self, folder):
        with open(os.path.join(folder, "model.safetensors"), "rb") as f:
            size, = struct.unpack("<Q", f.read(8))
            self.header = json.loads(f.read(size))
            self.data = f.read()

    def __contains__(self, name):
        return "model.decoder." + name in self.header

    @functools.cache
    def rows(self, name):
        tensor = self.header["model.decoder." + name]
        begin, end = tensor["data_offsets"]
        values = struct.unpack(f"<{(end - begin) // 2}e", self.data[begin:end])
        width = tensor["shape"][-1]
        return [values[i:i + width] for i in range(0, len(values), width)]

    def linear(self, name, x):
        bias = self.rows(name + ".bias")[0] if name + ".bias" in self else [0] * len(self.rows(name + ".weight"))
        return [dot(row, x) + b for row, b in zip(self.rows(name + ".weight"), bias)]

    def norm(self, name, x):
        mean = sum(x) / len(x)
        deviation = math.sqrt(sum((v - mean) ** 2 for v in x) / len(x) + 1e-5)
        return [(v - mean) / deviation * w + b
                for v, w, b in zip(x, self.rows(name + ".weight")[0], self.rows(name + ".bias")[0])]

    def embed(self, ids):
        """The input of the first layer, [position][width]."""
        tokens, positions = self.rows("embed_tokens.weight"), self.rows("embed_positions.weight")
        x = [tokens[t] for t in ids]
        if "project_in.weight" in self:
            x = [self.linear("project_in", row) for row in x]
        return [[a + b for a, b in zip(row, positions[i + 2])] for i, row in enumerate(x)]

    def project(self, kind, x):
        return [self.linear(f"layers.0.self_attn.{kind}_proj", row) for row in x]


def dot(a, b):
    return sum(x * y for x, y in zip(a, b))


def cosine(a, b):
    return dot(a, b) / math.sqrt(dot(a, a) * dot(b, b))


def weights_of(queries, keys, position, head):
    """Attention's weights of a token over those up to itself."""
    part = slice(head * EACH, (head + 1) * EACH)
    scores = [dot(queries[position][part], keys[i][part]) / math.sqrt(EACH) for i in range(position + 1)]
    top = max(scores)
    odds = [math.exp(s - top) for s in scores]
    return [o / sum(odds) for o in odds]


def output(weights, values, head):
    return [sum(w * v[head * EACH + i] for w, v in zip(weights, values)) for i in range(EACH)]


def make_ids(n):
    chance = random.Random(7)
    return [chance.randrange(3, 512) for _ in range(n)]
