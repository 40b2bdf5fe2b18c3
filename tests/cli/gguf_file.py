# SPDX-License-Identifier: Apache-2.0
"""GGUF files that are read, changed and written."""
import struct

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
UINT, FLOAT, TEXT, ARRAY = 4, 6, 8, 9
F32 = 0


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


class Gguf:
    """Its metadata as bytes, and its tensors: name -> (dims, type, data)."""

    def __init__(self, data):
        self.data, self.at = data, 4
        version, n_tensors, self.n_keys = self.take("<IQQ")
        begin = self.at
        for _ in range(self.n_keys):
            self.skip_text()
            self.skip_value(self.take("<I")[0])
        self.head, infos = data[begin:self.at], []
        for _ in range(n_tensors):
            n, = self.take("<Q")
            name = data[self.at:self.at + n].decode()
            self.at += n
            dims = self.take("<%dQ" % self.take("<I")[0])
            infos.append((name, dims, *self.take("<IQ")))
        first = (self.at + 31) // 32 * 32
        ends = sorted(offset for *_, offset in infos)[1:] + [len(data) - first]
        end_of = dict(zip(sorted(offset for *_, offset in infos), ends))
        self.tensors = {name: (dims, kind, data[first + offset:first + end_of[offset]])
                        for name, dims, kind, offset in infos}

    def take(self, form):
        values = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return values

    def skip_text(self):
        n, = self.take("<Q")
        self.at += n

    def skip_value(self, kind):
        if kind == TEXT:
            self.skip_text()
        elif kind == ARRAY:
            inner, n = self.take("<IQ")
            for _ in range(n):
                self.skip_value(inner)
        else:
            self.at += SIZES[kind]

    def write(self, path):
        infos, blob = b"", b""
        for name, (dims, kind, data) in self.tensors.items():
            infos += text(name) + struct.pack("<I", len(dims))
            infos += struct.pack("<%dQ" % len(dims), *dims) + struct.pack("<IQ", kind, len(blob))
            blob += data + b"\0" * (-len(data) % 32)
        all_of = b"GGUF" + struct.pack("<IQQ", 3, len(self.tensors), self.n_keys) + self.head + infos
        path.write_bytes(all_of + b"\0" * (-len(all_of) % 32) + blob)

    @classmethod
    def new(cls, **values):
        """Of texts and numbers; their keys have dots for pairs of underscores."""
        g = cls.__new__(cls)
        g.head, g.n_keys, g.tensors = b"", len(values), {}
        for key, value in values.items():
            kind, form = {str: (TEXT, None), int: (UINT, "<I"), float: (FLOAT, "<f")}[type(value)]
            g.head += text(key.replace("__", ".")) + struct.pack("<I", kind)
            g.head += struct.pack(form, value) if form else text(value)
        return g
