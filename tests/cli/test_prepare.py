# SPDX-License-Identifier: Apache-2.0
"""`infinigen prepare` and the sketches that later runs find, on smollm2-135m."""
import json
import os
import random

from conftest import TINY_MODELS, make_model, one_line

TEXT = "The keeper of the tower wound the clock on Mondays, and wrote the day and the hour into a book. " * 20


def sketch_bytes(program, model, *flags):
    status, out, err = program("inspect", "-m", model, "--json", *flags)
    assert status == 0, err
    return json.loads(out)["memory"]["sketch"]


def test_prepare(program, model, tmp_path):
    plain = sketch_bytes(program, model, "-c", "1000")
    (tmp_path / "text").write_text(TEXT)
    status, out, err = program("prepare", "-m", model, "-c", "1000", "--text", tmp_path / "text")
    path = out.decode().rstrip("\n")
    assert status == 0 and err == b"" and path.startswith(program.home + "/cache/infinigen/sketches/")
    assert os.listdir(os.path.dirname(path)) == [os.path.basename(path)]
    assert sketch_bytes(program, model, "-c", "1000") == plain + os.path.getsize(path)
    assert sketch_bytes(program, model, "-c", "1000", "--kv-sketch", "none") == plain
    assert sketch_bytes(program, model, "-c", "1000", "--kv-policy", "full") == 0

    run = ["run", "-m", model, "--raw", "-p", TEXT, "-n", "8", "--temp", "0", "-c", "1000"]
    whole = program(*run, "--kv-budget", "100%")
    assert whole[0] == 0 and whole[1] == program(*run, "--kv-policy", "full")[1]
    assert program(*run, "--kv-budget", "20%")[0] == 0

    # Made for less than the context, or damaged: runs do without it.
    assert sketch_bytes(program, model, "-c", "1001") == sketch_bytes(program, model, "-c", "1001", "--kv-sketch", "none")
    with open(path, "r+b") as f:
        f.seek(1000)
        f.write(b"damage")
    assert sketch_bytes(program, model, "-c", "1000") == plain
    status, out, err = program("inspect", "-m", model, "--kv-sketch", path)
    assert status == 1 and out == b"" and "checksum" in one_line(err)


def test_a_smaller_sketch(program, model, tmp_path):
    path = tmp_path / "half.igs"
    (tmp_path / "text").write_text(TEXT)
    args = ["prepare", "-m", model, "-c", "1000", "--text", tmp_path / "text", "--rank", "32", "-o", path]
    assert program(*args)[0] == 0
    plain = sketch_bytes(program, model, "-c", "1000", "--kv-sketch", "none")
    assert sketch_bytes(program, model, "-c", "1000", "--kv-sketch", path) < plain + os.path.getsize(path)


def test_prepare_to_a_file(program, model, tmp_path):
    path = str(tmp_path / "a.igs")
    args = ["prepare", model, "-c", "500", "--rank", "16", "-o", path, "--text", "-", "--json"]
    status, out, err = program(*args, stdin=TEXT)
    report = json.loads(out)
    assert status == 0 and err == b"" and report["path"] == path and report["bytes"] == os.path.getsize(path)
    assert report["model"] == model and report["architecture"] == "llama"
    assert report["kind"] == "balanced" and report["rank"] == 16 and report["bits"] == 4 and report["context"] == 500
    first = open(path, "rb").read()
    assert program(*args, stdin=TEXT)[0] == 0 and open(path, "rb").read() == first
    assert sketch_bytes(program, model, "-c", "500", "--kv-sketch", path) != sketch_bytes(program, model, "-c", "500")

    opt = os.path.join(TINY_MODELS, "opt")
    status, out, err = program("inspect", "-m", opt, "-c", "200", "--kv-sketch", path)
    assert status == 2 and "another model" in one_line(err)


def test_prepare_replaces_plain_files_only(program, model, tmp_path):
    """The sketch takes a file's place: not that of a device, a pipe or a link."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "plain").write_text("text")
    (tmp_path / "link").symlink_to("plain")
    for name, message in (("pipe", "is not a regular file"), ("link", "is not a regular file"), (".", "is a directory")):
        status, out, err = program("prepare", "-m", model, "-c", "500", "-o", tmp_path / name)
        assert status == 1 and out == b"" and message in one_line(err)
    assert sorted(os.listdir(tmp_path)) == ["link", "pipe", "plain"] and (tmp_path / "plain").read_text() == "text"
    assert (tmp_path / "link").is_symlink() and (tmp_path / "pipe").is_fifo()


def test_skew(program, model, tmp_path):
    paper = ["run", "-m", model, "--raw", "-p", TEXT, "-n", "8", "--temp", "0", "-c", "1000", "--kv-policy",
             "infinigen-osdi24"]
    folder = program.home + "/cache/infinigen/sketches"
    assert sketch_bytes(program, model, *paper[10:]) > 0 and not os.path.exists(folder)
    unskewed = program(*paper, "--kv-sketch", "none")
    assert unskewed[0] == 0 and not os.path.exists(folder)

    # Made at first use, and then used as it is, beside what infinigen has.
    first = program(*paper)
    assert first[0] == 0 and first[2] == b""
    name, = os.listdir(folder)
    path = os.path.join(folder, name)
    assert name.endswith("-skew.igs") and os.path.getsize(path) == 64 + 30 * 9 * 64 * 64 * 4
    made = os.stat(path)
    assert program(*paper)[1] == first[1]
    assert os.stat(path).st_mtime_ns == made.st_mtime_ns and os.stat(path).st_ino == made.st_ino
    other = str(tmp_path / "other.igs")
    status, out, err = program("prepare", model, "--kind", "skew", "-o", other, "--json")
    report = json.loads(out)
    assert status == 0 and report["kind"] == "skew" and report["context"] == 2048
    assert open(other, "rb").read() == open(path, "rb").read()
    assert program(*paper, "--kv-sketch", other)[1] == first[1]

    # One that is damaged or of an older version is made anew; one that was named is refused.
    for version in (b"\1", b"\2"):
        with open(path, "r+b") as f:
            f.seek(8)
            f.write(version + b"\0\0\0" * 2)
        status, out, err = program("inspect", "-m", model, "--kv-policy", "infinigen-osdi24", "--kv-sketch", path)
        assert status == 1 and out == b"" and ("anew" if version == b"\1" else "bits") in one_line(err)
        assert program(*paper)[1] == first[1]
        assert open(other, "rb").read() == open(path, "rb").read()
    status, out, err = program("run", "-m", model, "-p", "x", "--kv-sketch", other)
    assert status == 2 and "takes the kind balanced" in one_line(err)
    status, out, err = program("prepare", model, "--kind", "skew", "-c", "500", "-o", other)
    assert status == 2 and "no context" in one_line(err)


def test_prepare_refuses(program, model, tmp_path):
    for flags, word, wanted in ((["--rank", "12"], "multiple of 8", 2), (["--rank", "128"], "head dimension", 2),
                                (["-o", tmp_path / "no" / "a.igs"], "a.igs", 1),
                                (["--text", tmp_path / "none"], "none", 1)):
        status, out, err = program("prepare", "-m", model, "-c", "300", *flags)
        assert status == wanted and out == b"" and word in one_line(err)
    status, out, err = program("prepare", "-m", model, "--text", "-", stdin="too short")
    assert status == 2 and "too few" in one_line(err)


def test_tokens(program, tmp_path):
    """A model without a tokenizer is prepared and measured from ids, as one with a tokenizer is from the text of these."""
    chance = random.Random(5)
    opt = os.path.join(TINY_MODELS, "opt")
    vocabulary = json.loads(open(os.path.join(opt, "config.json")).read())["vocab_size"]
    ids = [chance.randrange(vocabulary) for _ in range(300)]
    (tmp_path / "ids").write_text(" ".join(map(str, ids[:150])) + "\n" + "\t".join(map(str, ids[150:])) + "\n")
    measure = ["perplexity", "-m", opt, "--tokens", tmp_path / "ids", "-c", "100", "--dense-prefix", "60", "--json",
               "--kv-policy", "full,infinigen-osdi24", "--kv-alpha", "1"]
    status, out, err = program(*measure)
    assert status == 1 and out == b"" and "no tokenizer: 'infinigen prepare --kind skew --tokens FILE'" in one_line(err)
    for kind in ("balanced", "skew"):
        status, out, err = program("prepare", "-m", opt, "--kind", kind, "--tokens", tmp_path / "ids", "--json")
        assert (status, err) == (0, b"")
    assert json.loads(out)["context"] == 256 and "-skew" in json.loads(out)["path"]
    full, skewed = json.loads(program(*measure)[1])["runs"]
    assert skewed["tokens_scored"] == 120 and 0 < skewed["kl"] and skewed["selected_share"] < 0.5
    plain = json.loads(program(*measure, "--kv-sketch", "none")[1])["runs"][1]
    assert plain["nll"] != skewed["nll"] and plain["sketch"] is None

    # The same ids from a text: a token is a byte.
    model = make_model(tmp_path / "bytes")
    (tmp_path / "text").write_text("a calm sea and a long way home " * 10)
    (tmp_path / "same").write_bytes(program("tokenize", "-m", model, "-f", tmp_path / "text", "--ids")[1])
    by_text, by_ids = (json.loads(program("perplexity", "-m", model, *text, "-c", "64", "--json")[1])
                       for text in (["-f", tmp_path / "text"], ["--tokens", tmp_path / "same"]))
    assert by_text["nll"] == by_ids["nll"]


def test_models_with_learned_sinks(program, tmp_path):
    """Moments of keys, which a sink changes, are the balanced kind's alone."""
    (tmp_path / "ids").write_text(" ".join(str(i) for i in range(3, 90)))
    for kind in ("balanced", "skew"):
        status, out, err = program("prepare", "-m", os.path.join(TINY_MODELS, "granite-swa"), "--kind", kind, "--tokens", tmp_path / "ids", "-o", tmp_path / kind)
        assert (status, err) == (0, b"") and (tmp_path / kind).stat().st_size > 0


def test_a_folder_that_is_not_there(program, tmp_path):
    """Said before the model is looked for, and anything is computed."""
    status, out, err = program("prepare", "-m", "/none", "-o", tmp_path / "none" / "x.igs")
    assert status == 1 and out == b"" and "none/x.igs: No such file or directory" in one_line(err)


def test_what_are_no_tokens(program, tmp_path):
    opt = os.path.join(TINY_MODELS, "opt")
    for text, message in (("", "no tokens"), (" \n", "no tokens"), ("1 2 x", "number 3"), ("1 -2", "number 2"), ("1 2,3", "number 2"),
                          ("1 99999999999999999999", "number 2"), ("1 2147483648", "number 2"), ("1\x002", "number 2")):
        (tmp_path / "ids").write_bytes(text.encode())
        status, out, err = program("prepare", "-m", opt, "--tokens", tmp_path / "ids", "-o", tmp_path / "out")
        assert status == 1 and out == b"" and message in one_line(err), text
    for verb in ("prepare", "perplexity"):
        status, out, err = program(verb, "-m", opt, "--tokens", tmp_path / "ids", "-f", tmp_path / "ids")
        assert status == 2 and "give one" in one_line(err)
