# SPDX-License-Identifier: Apache-2.0
"""Looking after stored KV. The stores are written here, from what src/kv/prefix_record.c says of the format."""
import ctypes
import ctypes.util
import fcntl
import json
import os
import re
import struct
import time

import pytest
from conftest import one_line

STORE = bytes(range(16))
ROOT, OTHER = bytes([0xaa] * 16), bytes([0xbb] * 16)
PAYLOAD = b"keys and values " * 640  # 10240 bytes
RECORD = 4096 + 12288


class Hash128(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


@pytest.fixture
def xxh():
    name = ctypes.util.find_library("xxhash")
    if not name:
        pytest.skip("no libxxhash")
    lib = ctypes.CDLL(name)
    lib.XXH3_128bits.restype = Hash128
    lib.XXH3_128bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]

    def digest(data):
        h = lib.XXH3_128bits(data, len(data))
        return struct.pack(">QQ", h.high, h.low)
    return digest


def header(xxh, magic, root, payload, file=0, offset=0, piece=None, model="mine q8_0", kind="f16 infinigen", name=""):
    page = bytearray(4096)
    struct.pack_into("<8sI", page, 0, magic, 1)
    struct.pack_into("=I", page, 12, 0x01020304)
    page[16:32], page[32:48] = STORE, root
    if piece:
        page[48:64], page[64:80] = piece[0], piece[1]
        struct.pack_into("<II", page, 80, piece[2], 16)
        struct.pack_into("<16i", page, 512, *range(16))
    struct.pack_into("<Q", page, 88, len(payload))
    page[96:112] = xxh(payload)
    if piece:
        struct.pack_into("<QQ", page, 112, file, offset)
    for at, text in (128, model), (256, kind), (384, name):
        page[at:at + len(text.encode())] = text.encode()
    page[4080:] = xxh(bytes(page[:4080]))
    return bytes(page)


def pieces(xxh, folder, file, chain, root=ROOT, **kw):
    """A file with a chain: [(id, parent, number)]."""
    data = b""
    for piece in chain:
        data += header(xxh, b"IGPREFIX", root, PAYLOAD, file, len(data), piece, **kw) + PAYLOAD.ljust(12288, b"\0")
    (folder / f"kv-{file:016x}.igkv").write_bytes(data)


def note(xxh, folder, name, text, root=ROOT):
    digest = xxh(root + name.encode().ljust(65, b"\0")).hex()
    (folder / f"note-{digest}.igkv").write_bytes(header(xxh, b"IGKVNOTE", root, text, name=name) + text)


def piece_id(n):
    return bytes([n] * 16)


@pytest.fixture
def store(xxh, tmp_path):
    folder = tmp_path / "store"
    folder.mkdir()
    chain = [(piece_id(1), ROOT, 0), (piece_id(2), piece_id(1), 1), (piece_id(3), piece_id(2), 2)]
    pieces(xxh, folder, 1000, chain)
    pieces(xxh, folder, 1001, [(piece_id(4), piece_id(1), 1)])
    pieces(xxh, folder, 1002, [(piece_id(5), OTHER, 0)], OTHER, model="theirs \u2713 \u202e", kind="q8")
    note(xxh, folder, "talk", b"said and done")
    for file, age in (1000, 30), (1001, 20), (1002, 10):
        path = folder / f"kv-{file:016x}.igkv"
        os.utime(path, (time.time() - age, time.time() - age))
    return folder


def kv(program, *args):
    status, out, err = program("kv", *args)
    assert status == 0, err
    return out.decode()


def listed(program, store):
    report = json.loads(kv(program, "ls", "--kv-store", store, "--json"))
    assert report["directory"] == str(store)
    return report


def test_ls(program, store):
    begin = time.time()
    report = listed(program, store)
    end = time.time()
    assert report["pieces"] == 5 and report["bytes"] == 5 * RECORD + 4096 + 13
    by_id = {p["id"]: p for p in report["prefixes"]}
    assert set(by_id) == {piece_id(n).hex() for n in (3, 4, 5)}
    three = by_id[piece_id(3).hex()]
    assert three["tokens"] == 48 and three["bytes"] == 3 * RECORD and three["whole"] is True
    assert three["root"] == ROOT.hex() and three["model"] == "mine q8_0" and three["kind"] == "f16 infinigen"
    assert three["used"] == int(os.stat(store / "kv-00000000000003e8.igkv").st_mtime)
    assert 29 < three["age"] and begin - 2 < three["used"] + three["age"] < end + 2
    assert report["notes"] == [{"name": "talk", "root": ROOT.hex(), "model": "mine q8_0", "kind": "f16 infinigen",
                                "bytes": 4096 + 13, "used": report["notes"][0]["used"],
                                "age": report["notes"][0]["age"]}]
    before = sorted(os.listdir(store))
    out = kv(program, "ls", "--kv-store", store)
    assert sorted(os.listdir(store)) == before  # looking changes nothing
    assert kv(program, "ls", store).splitlines()[-1] == out.splitlines()[-1]
    lines = out.splitlines()
    assert re.search(r"^030303030303 +48 +49.2 kB +\d+ s ago +mine q8_0 +f16 infinigen$", out, re.M)
    assert re.search(r"^talk +note ", out, re.M)
    assert lines[-1] == "86.0 kB in 5 pieces"


def test_verify(program, store):
    assert kv(program, "verify", "--kv-store", store) == "5 pieces and 1 note, 86.0 kB: all is well\n"
    with open(store / "kv-00000000000003e8.igkv", "r+b") as f:
        f.seek(RECORD + 4096 + 100)
        f.write(b"x")
    status, out, err = program("kv", "verify", "--kv-store", store)
    assert status == 1 and "1 damaged" in one_line(err)
    assert f"{piece_id(2).hex()}: its checksum is wrong" in out.decode()
    status, out, err = program("kv", "verify", "--kv-store", store, "--json")
    report = json.loads(out)
    assert status == 1 and report["pieces"] == 5 and report["notes"] == 1 and report["foreign_files"] == 0
    assert [d["id"] for d in report["damaged"]] == [piece_id(2).hex()]
    assert report["damaged"][0]["file"] == "kv-00000000000003e8.igkv"


def test_gc(program, store):
    (store / "kv-0000000000000009.igkv.tmp").write_bytes(b"torn" * 2000)
    (store / "mine.txt").write_text("not of the store")
    assert kv(program, "gc", "--kv-store", store).startswith("removed 0 pieces, 8.0 kB; 86.0 kB in 5 pieces are left")
    assert not (store / "kv-0000000000000009.igkv.tmp").exists() and (store / "mine.txt").exists()
    report = json.loads(kv(program, "gc", "--kv-store", store, "--kv-store-size", "60K", "--json"))
    assert report["removed_pieces"] == 2 and report["pieces"] == 3 and report["bytes"] == 3 * RECORD + 4096 + 13
    assert report["freed_bytes"] == 2 * RECORD and report["removed_notes"] == 0
    assert {p["id"] for p in listed(program, store)["prefixes"]} == {piece_id(n).hex() for n in (4, 5)}
    assert json.loads(kv(program, "gc", "--kv-store", store, "--kv-store-size", "1", "--json"))["pieces"] == 0
    assert [n["name"] for n in listed(program, store)["notes"]] == ["talk"]


def test_gc_tells_what_damage_took(program, store):
    """What is damaged leaves when the files are read anew: before anything else does, but its room counts."""
    with open(store / "kv-00000000000003e8.igkv", "r+b") as f:  # without it the third piece has no beginning
        f.seek(RECORD + 100)
        f.write(b"x")
    (store / "kv-00000000000003ea.igkv").write_bytes(b"y" * RECORD)
    report = json.loads(kv(program, "gc", store, "--json"))
    assert report["removed_pieces"] == 1 and report["pieces"] == 2
    assert report["freed_bytes"] == 3 * RECORD and report["bytes"] == 2 * RECORD + 4096 + 13
    assert kv(program, "gc", store).startswith("removed 0 pieces, 0 B;")


def test_rm(program, store):
    assert "removed 2 pieces" in kv(program, "rm", "--kv-store", store, "0303")  # the first one has another end
    assert "removed 2 pieces" in kv(program, "rm", "0404", "--kv-store", store)
    status, _, err = program("kv", "rm", "--kv-store", store, "0303")
    assert status == 1 and "nothing has an id that begins with 0303" in one_line(err)
    assert "removed 0 pieces and 1 note," in kv(program, "rm", "--kv-store", store, "--note", "talk")
    status, _, err = program("kv", "rm", "--kv-store", store, "--model", "mine")
    assert status == 1 and "nothing of the model 'mine'" in one_line(err)
    assert "removed 1 piece," in kv(program, "rm", "--kv-store", store, "--model", "theirs")
    assert listed(program, store)["bytes"] == 0
    assert "removed 0 pieces" in kv(program, "rm", "--all", store)
    assert not [name for name in os.listdir(store) if name.startswith(("kv-", "note-"))]


def test_rm_of_several(program, store):
    """What was removed before one that is not there is told."""
    status, out, err = program("kv", "rm", "--kv-store", store, "0303", "ffff", "--json")
    assert status == 1 and json.loads(out)["removed_pieces"] == 2 and "begins with ffff" in one_line(err)


def test_ids_that_begin_alike(program, store, xxh):
    pieces(xxh, store, 1003, [(bytes.fromhex("03037777" + "00" * 12), ROOT, 0)])
    status, _, err = program("kv", "rm", "--kv-store", store, "0303")
    assert status == 2 and "several ids begin with 0303" in one_line(err)
    assert "removed 1 piece," in kv(program, "rm", "--kv-store", store, "030377")


def test_beside_a_writer(program, store):
    kv(program, "gc", "--kv-store", store)
    with open(store / "writer", "r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert listed(program, store)["pieces"] == 5
        kv(program, "verify", "--kv-store", store)
        for action in ["gc"], ["rm", "--all"]:
            status, out, err = program("kv", *action, "--kv-store", store)
            assert status == 1 and out == b"" and "another process" in one_line(err)
    assert listed(program, store)["pieces"] == 5


@pytest.mark.parametrize("action", [["ls"], ["verify"], ["gc"], ["rm", "--all"]])
def test_no_store(program, tmp_path, action):
    status, out, err = program("kv", *action, "--kv-store", tmp_path / "nowhere")
    assert status == 1 and out == b"" and "No such file" in one_line(err)
    assert not (tmp_path / "nowhere").exists()
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "a file").write_text("of somebody")
    status, out, err = program("kv", *action, "--kv-store", empty)
    assert status == 1 and out == b"" and "no KV is stored there" in one_line(err)
    assert os.listdir(empty) == ["a file"]


def test_names_cannot_drive_a_terminal(program, store, xxh):
    """Control characters in a header make it no header; what is left is shown as text."""
    pieces(xxh, store, 1004, [(piece_id(6), ROOT, 0)], model="a\x1b[31mb")
    report = listed(program, store)
    assert report["pieces"] == 5
    assert b"\x1b" not in program("kv", "ls", "--kv-store", store)[1]
