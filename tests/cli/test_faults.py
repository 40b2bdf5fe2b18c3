# SPDX-License-Identifier: Apache-2.0
"""What can go wrong with the files of a run: the spill file of the KV cache, its directory, and the model.

A tiny model of the golden tests gets a tokenizer of single bytes, and prompts much larger than the smallest RAM that
the KV cache may have. Every fault must end in one line that says what and where, exit status 1, no token that the
run without the fault would not have printed, and an empty directory.
"""
import ctypes
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import time

import pytest
from conftest import HERE, TINY_MODELS, Program, make_model, of_threads, one_line, words

CONTEXT = 2400
LONG = 700  # tokens: a second or so, long enough to do something to the program meanwhile
METHODS = ([], ["--no-uring"])
FOR_EVER = -1


class Spill:
    """A model, a prompt, the least RAM for it, and an empty directory to spill into."""

    def __init__(self, program, model, faulty_io):
        self.program, self.model, self.faulty_io = program, model, faulty_io
        self.texts = {}
        self.prompt = words(1600, 1)

    def run(self, *args, policy="full", n=40):
        return ["run", "-m", self.model, "-t", "2", "--raw", "-p", self.prompt, "-n", n, "-c", CONTEXT, "-b", "64",
                "--temp", "1", "--min-p", "0", "--seed", "7", "--ignore-eos", "--kv-policy", policy, *args]

    def expected(self, *args, policy="full", n=40):
        """The text of a run without a disk."""
        key = (args, policy, n)
        if key not in self.texts:
            status, out, err = self.program(*self.run(*args, policy=policy, n=n))
            assert (status, err) == (0, b"") and len(out) > n
            self.texts[key] = out
        return self.texts[key]

    def least(self, *args):
        status, _, err = self.program(*args, "--kv-ram", "1K", "--kv-disk", "1G", "--kv-disk-path", self.program.home)
        assert status == 1
        return re.search(r"at least (\d+)", one_line(err)).group(1)

    def on_disk(self, args, folder, *more):
        """The command with as little RAM as can be."""
        return [*args, "--kv-ram", self.least(*args), "--kv-disk", "1G", "--kv-disk-path", folder, *more]

    def fault(self, what):
        if not self.faulty_io:
            pytest.skip("no C compiler")
        return {"LD_PRELOAD": self.faulty_io, "FAULTY_IO": what}


@pytest.fixture(scope="module")
def faulty_io(tmp_path_factory):
    compiler = next(filter(shutil.which, ("cc", "gcc", "clang")), None)
    if not compiler:
        return None
    path = str(tmp_path_factory.mktemp("faulty") / "faulty_io.so")
    subprocess.run([compiler, "-std=c11", "-shared", "-fPIC", "-o", path, os.path.join(HERE, "cli", "faulty_io.c"), "-ldl"],
                   check=True)
    return path


@pytest.fixture(scope="module")
def spill(tmp_path_factory, faulty_io):
    path = os.environ.get("INFINIGEN") or os.environ.get("INFINIGEN_BIN")
    if not path:
        pytest.skip("INFINIGEN does not name the program")
    home = tmp_path_factory.mktemp("home")
    return Spill(Program(os.path.abspath(path), str(home)), make_model(home / "model"), faulty_io)


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "spill"
    path.mkdir()
    yield path
    if path.exists():
        assert os.listdir(path) == []


def check_failure(spill, result, message, where, policy="full", n=40):
    status, out, err = result
    assert status == 1, err
    text = one_line(err)
    assert message in text and str(where) in text, text
    assert spill.expected(policy=policy, n=n).startswith(out)


# ---- no fault ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy, kv_type", (
    ("full", "f16"), ("infinigen", "f16"), ("quest", "f16"), ("window", "f16"), ("infinigen-osdi24", "f16"),
    ("full", "q8"), ("infinigen", "q4"), ("infinigen-osdi24", "q4"),
))
def test_same_text_as_in_ram(spill, folder, policy, kv_type):
    flags = () if kv_type == "f16" else ("--kv-type", kv_type)
    args = spill.on_disk(spill.run(*flags, policy=policy), folder)
    for method in METHODS:
        status, out, err = spill.program(*args, *method)
        assert (status, err) == (0, b"") and out == spill.expected(*flags, policy=policy), method
    report = json.loads(spill.program(*args, "--json")[1])
    assert report["kv"]["written_bytes"] > 3e5 and report["kv"]["demoted"] > 0
    assert report["kv"]["disk"] >= report["kv"]["written_bytes"] / 2


def test_directory_by_default(spill):
    """One of the program's own, made when needed."""
    args = spill.run()
    status, out, err = spill.program(*args, "--kv-ram", spill.least(*args))
    assert (status, err) == (0, b"") and out == spill.expected()
    assert os.listdir(spill.program.home + "/cache/infinigen/kv") == []
    status, out, err = spill.program(*args, "--kv-ram", "1G", env={"XDG_CACHE_HOME": __file__})  # no folder
    text = one_line(err)
    assert (status, out) == (1, b"") and "infinigen/kv/: the folder for keys and values cannot be made" in text
    assert "--kv-disk-path" in text and "No such file" not in text


def test_disk_that_is_ram(spill):
    """It works, saves nothing, and says so."""
    kind = subprocess.run(["stat", "-f", "-c", "%T", "/dev/shm"], capture_output=True, text=True).stdout.strip()
    if kind != "tmpfs" or not os.access("/dev/shm", os.W_OK):
        pytest.skip("no tmpfs at /dev/shm")
    args = spill.run()
    status, out, err = spill.program(*spill.on_disk(args, "/dev/shm"))
    assert status == 0 and out == spill.expected() and "/dev/shm lies in RAM" in one_line(err)


def test_too_little_ram(spill, folder):
    """Told before anything is computed, by what plans as by what runs, in the same words."""
    common = ["-m", spill.model, "-c", CONTEXT, "-ub", "64", "--kv-disk", "1G", "--kv-disk-path", folder, "--kv-ram"]
    least = int(spill.least(*spill.run()))
    for verb in (["run", "-p", "a", "-n", "1"], ["inspect"]):
        status, out, err = spill.program(*verb, *common, least - 1)
        assert (status, out) == (1, b"") and f"{least - 1} bytes of RAM" in one_line(err), verb
        size = re.search(rf"needs at least {least} bytes \((.*)\)\n", err.decode()).group(1)
        for enough in (least, size):
            assert spill.program(*verb, *common, enough)[::2] == (0, b""), (verb, enough)


# ---- a failing device ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("what, message", (
    (f"write:eio:0:{FOR_EVER}", "cannot write block 0 at byte 0: Input/output error"),
    ("write:eio:30:1", "cannot write block"),
    (f"write:enospc:30:{FOR_EVER}", "No space left on device"),
    (f"write:zero:30:{FOR_EVER}", "nothing is written of block"),
    (f"read:eio:0:{FOR_EVER}", "cannot read block"),
    ("read:eio:50:1", "Input/output error"),
    (f"read:zero:50:{FOR_EVER}", "it was cut short and lacks block"),
    ("read:flip:50:1", "is corrupt"),
))
def test_broken_device(spill, folder, what, message):
    for flags in ([], ["--json"]):
        result = spill.program(*spill.on_disk(spill.run(), folder), "--no-uring", *flags, env=spill.fault(what))
        check_failure(spill, result, message, folder)
        assert not flags or result[1] == b""


@pytest.mark.parametrize("what", ("read:short", "write:short", "read:eintr", "write:eintr"))
def test_slow_device_is_no_error(spill, folder, what):
    args = spill.on_disk(spill.run(), folder)
    result = spill.program(*args, "--no-uring", env=spill.fault(what + ":0:" + ("40" if "eintr" in what else "-1")))
    assert result == (0, spill.expected(), b"")


def spill_file(p, folder):
    """The open spill file of a running program, once something lies in it."""
    end = time.monotonic() + 60
    while time.monotonic() < end and p.poll() is None:
        for fd in os.listdir(f"/proc/{p.pid}/fd"):
            path = f"/proc/{p.pid}/fd/{fd}"
            try:
                if os.readlink(path).startswith(str(folder) + "/") and os.stat(path).st_blocks > 64:
                    return path
            except OSError:
                continue
        time.sleep(0.001)
    pytest.fail(f"no spill file: {p.communicate() if p.poll() is not None else 'too slow'}")


def stopped(p):
    p.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, p.pid, os.WSTOPPED)


def flip_bits(path):
    """One in every block."""
    with open(path, "r+b", buffering=0) as f:
        for at in range(0, os.fstat(f.fileno()).st_size, 4096):
            f.seek(at + 1234)
            byte = f.read(1)
            f.seek(at + 1234)
            f.write(bytes((byte[0] ^ 0x10,)))


def cut_short(path):
    os.truncate(path, 4096)


CUT_SHORT = "it was cut short and lacks block"


# A write behind the cut makes the file long again, with zeros where blocks were.
@pytest.mark.parametrize("policy", ("full", "infinigen"))
@pytest.mark.parametrize("harm, messages", ((flip_bits, ("is corrupt",)), (cut_short, (CUT_SHORT, "is corrupt"))))
def test_harmed_file(spill, folder, policy, harm, messages):
    """While the text is being made. It ends before the first token that the harm could have changed."""
    n = LONG
    for method in METHODS:
        p = spill.program.start(*spill.on_disk(spill.run(policy=policy, n=n), folder), *method)
        first = os.read(p.stdout.fileno(), 1)
        stopped(p)
        harm(spill_file(p, folder))
        p.send_signal(signal.SIGCONT)
        out, err = p.communicate(timeout=60)
        message = next((m for m in messages if m.encode() in err), messages[0])
        check_failure(spill, (p.returncode, first + out, err), message, folder, policy, n)
        assert 0 < len(first + out) < len(spill.expected(policy=policy, n=n))


def wait_until_idle(p):
    """Until all threads of a program sleep, and have for a while: nothing is being written."""
    end = time.monotonic() + 60
    n_looks = 0
    while n_looks < 10:
        assert time.monotonic() < end and p.poll() is None
        states = {stat.rpartition(")")[2].split()[0] for stat in of_threads(p.pid, "stat")}
        n_looks = n_looks + 1 if states == {"S"} else 0
        time.sleep(0.01)


@pytest.mark.parametrize("method", METHODS)
def test_file_cut_short_between_messages(spill, folder, method):
    """The next message is too short to fill a block (of 128 tokens): nothing is written, and the file stays short."""
    message = words(2000, 3) + "\n"
    args = ["chat", "-m", spill.model, "-t", "2", "-n", "10", "--temp", "0", "-c", CONTEXT, "-b", "64",
            "--kv-policy", "full", "--kv-type", "q4"]
    expected = spill.program(*args, stdin=message)[1]
    p = spill.program.start(*spill.on_disk(args, folder), *method, stdin=subprocess.PIPE)
    p.stdin.write(message.encode())
    p.stdin.flush()
    first = b""
    while len(first) < len(expected):
        first += os.read(p.stdout.fileno(), 4096) or pytest.fail(f"ended with {p.communicate()}")
    wait_until_idle(p)
    cut_short(spill_file(p, folder))
    out, err = p.communicate(b"on\n", timeout=60)
    assert (p.returncode, first) == (1, expected) and out in (b"", b"\n"), out
    assert CUT_SHORT in one_line(err) and str(folder) in err.decode()


def test_conversation_after_a_fault(spill, folder):
    """The message that met the fault fails; the next one is answered as if there had been none before it."""
    messages = [words(2000, 3), words(2100, 4)]
    args = ["chat", "-m", spill.model, "-t", "2", "-n", "30", "--temp", "0", "-c", CONTEXT, "-b", "64",
            "--kv-policy", "full"]
    expected = spill.program(*args, stdin=messages[1] + "\n")[1]
    args = spill.on_disk(args, folder, "--no-uring")
    for what in ("write:eio:0:1", "write:eio:0:20", "write:enospc:30:1", "read:eio:20:1", "read:flip:50:1"):
        status, out, err = spill.program(*args, stdin="\n".join(messages) + "\n", env=spill.fault(what))
        assert status == 1 and str(folder) in one_line(err), what
        assert out.endswith(expected) and out.count(b"\n") == expected.count(b"\n") + 1, what


# ---- a full disk ---------------------------------------------------------------------------------------------


def limit(what, n_bytes, hard=None):
    def set_limits():
        resource.setrlimit(what, (n_bytes, hard or n_bytes))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    return set_limits


def finish(p):
    out, err = p.communicate(timeout=60)
    return p.returncode, out, err


@pytest.mark.parametrize("n_bytes", (0, 4095, 1 << 20))
def test_limit_of_file_size(spill, folder, n_bytes):
    """`ulimit -f`, which the kernel enforces with a signal."""
    for method in METHODS:
        p = spill.program.start(*spill.on_disk(spill.run(), folder), *method, preexec_fn=limit(resource.RLIMIT_FSIZE, n_bytes))
        check_failure(spill, finish(p), "File too large", folder)


def test_limit_of_output_size(spill, tmp_path):
    out_file = tmp_path / "logits"
    tokens = os.path.join(TINY_MODELS, "llama31", "golden", "tokens.i32")
    p = spill.program.start("logits", "-m", spill.model, "--tokens", tokens, "-o", out_file,
                            preexec_fn=limit(resource.RLIMIT_FSIZE, 4096))
    status, _, err = finish(p)
    assert status == 1 and "File too large" in one_line(err) and not out_file.exists()


def test_limit_of_the_stores_size(spill, tmp_path):
    """The run goes on without its store, and says so even where nobody watches it."""
    p = spill.program.start("run", "-m", make_model(tmp_path / "model"), "--raw", "-p", words(300, 1), "-n", "1", "--kv-store", tmp_path / "store",
                            preexec_fn=limit(resource.RLIMIT_FSIZE, 10240))
    status, _, err = finish(p)
    assert status == 0 and "nothing new is kept: KV store" in one_line(err)


def test_full_tier(spill, folder):
    check_failure(spill, spill.program(*spill.on_disk(spill.run(), folder), "--kv-disk", "1M"),
                  "full at its limit of 1048576 bytes; what is in RAM lies there, too", folder)


@pytest.mark.parametrize("options, message", (("size=1m", "No space left on device"), ("ro", "Read-only file system")))
def test_file_system(spill, folder, options, message):
    """One of its own, in a name space of mounts that ends with the program."""
    unshare = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c",
               f'mount -t tmpfs -o {options} none "$0" && exec "$@"', folder]
    if not shutil.which("unshare") or subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    for method in METHODS:
        p = subprocess.run([*unshare, spill.program.path, *map(str, spill.on_disk(spill.run(), folder)), *method],
                           env={**spill.program.env, "IG_LOG": "error"}, capture_output=True, timeout=60, check=False)
        check_failure(spill, (p.returncode, p.stdout, p.stderr), message, folder)


# ---- the directory -------------------------------------------------------------------------------------------


def drop_privileges():
    """root may write anywhere; not without these two capabilities."""
    if os.geteuid() == 0:
        for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
            ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP


def test_unusable_directory(spill, folder, tmp_path):
    (tmp_path / "file").write_text("")
    for path, message in ((tmp_path / "none", "No such file or directory"), (tmp_path / "file", "Not a directory")):
        check_failure(spill, spill.program(*spill.on_disk(spill.run(), path)), message, path)
    args = spill.on_disk(spill.run(), folder)
    folder.chmod(0o555)
    p = spill.program.start(*args, preexec_fn=drop_privileges)
    check_failure(spill, finish(p), "Permission denied", folder)
    folder.chmod(0o755)


@pytest.mark.parametrize("method", METHODS)
def test_directory_vanishes(spill, folder, method):
    """The file stays as long as it is open."""
    p = spill.program.start(*spill.on_disk(spill.run(n=LONG), folder), *method)
    spill_file(p, folder)
    folder.rmdir()
    assert finish(p) == (0, spill.expected(n=LONG), b"")


# ---- the end of the process ----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_killed(spill, folder, method):
    p = spill.program.start(*spill.on_disk(spill.run(), folder), *method)
    spill_file(p, folder)
    p.kill()
    p.communicate(timeout=60)
    assert p.returncode == -signal.SIGKILL and os.listdir(folder) == []


def test_killed_with_a_name(spill, folder):
    """Where files cannot be without a name, one may be left by a process that is killed before it takes the name away.
    The next run removes it, and nothing else."""
    args = spill.on_disk(spill.run(), folder)
    assert spill.program(*args, env=spill.fault("unlink:kill:0:1"))[0] == -signal.SIGKILL
    left, = os.listdir(folder)
    assert re.fullmatch(r"infinigen-\d+-\d+\.kv", left)
    others = {f"infinigen-{os.getpid()}-0.kv", "infinigen-notes.kv", left + ".txt"}
    for name in others:
        (folder / name).write_text("")
    assert spill.program(*args, env=spill.fault("open:exist:0:-1")) == (0, spill.expected(), b"")
    assert set(os.listdir(folder)) == others
    for name in others:
        (folder / name).unlink()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("number", (signal.SIGINT, signal.SIGTERM))
def test_interrupted_while_spilling(spill, folder, method, number):
    args = spill.on_disk(spill.run(n=LONG), folder, "--json")
    p = spill.program.start(*args, *method)
    spill_file(p, folder)
    p.send_signal(number)
    status, out, err = finish(p)
    report = json.loads(out)
    assert (status, err) == (130, b"") and report["finish"] == "interrupted"
    assert spill.expected(n=LONG).decode(errors="replace").startswith(report["text"].rstrip("\ufffd"))


def test_interrupt_of_a_slow_device(spill, folder):
    """Only what was handed to it is waited for."""
    args = spill.on_disk(spill.run(), folder, "--no-uring")
    p = spill.program.start(*args, env=spill.fault("write:slow:0:-1"))
    spill_file(p, folder)
    p.send_signal(signal.SIGINT)
    status, out, err = finish(p)
    assert status == 130 and out == b"" and b"ended by interrupted" in err


# ---- measurements --------------------------------------------------------------------------------------------


def fail_in_the_middle(spill, args, two, tmp_path):
    """Runs until a read fails, some time after the first two pieces of work, which `two` limits it to."""
    calls = tmp_path / "calls"
    env = {**spill.fault("read:none:0:0"), "FAULTY_IO_CALLS": str(calls)}
    assert spill.program(*args, *two, env=env)[0] == 0
    status, out, err = spill.program(*args, env=spill.fault(f"read:eio:{int(calls.read_text()) * 3 // 2}:1"))
    assert status == 1 and "Input/output error" in one_line(err)
    return out


def test_perplexity_keeps_chunks(spill, folder, tmp_path):
    (tmp_path / "text").write_text(words(8 * 1200, 5))
    args = ["perplexity", "-m", spill.model, "-f", tmp_path / "text", "-c", "1200", "-b", "64", "-t", "2",
            "--kv-policy", "full"]
    whole = json.loads(spill.program(*args, "--json")[1])
    args = spill.on_disk(args, folder, "--no-uring")
    scored, estimate = fail_in_the_middle(spill, args, ("--chunks", "2"), tmp_path).decode().splitlines()
    n = scored.count(",")
    assert 2 <= n < 8 and estimate.startswith(f"Estimate after {n} of 8 chunks: PPL = ")
    report = json.loads(fail_in_the_middle(spill, [*args, "--json"], ("--chunks", "2"), tmp_path))
    assert report["failed"] is True and 2 <= len(report["chunks"]) < 8
    for ours, expected in zip(report["chunks"], whole["chunks"]):
        assert ours["nll"] == expected["nll"]
    assert spill.program(*args, "--json", env=spill.fault("read:eio:0:1"))[:2] == (1, b"")


def test_lists_with_a_policy_that_drops(spill, folder, tmp_path):
    """Its room comes from the same RAM; all score as they do without a disk."""
    (tmp_path / "text").write_text(words(2 * 1200, 6))
    lists = ["-m", spill.model, "-b", "64", "-t", "2", "-c", "1200", "--kv-policy", "full,h2o,infinigen"]
    table = ["perplexity", *lists, "-f", tmp_path / "text", "--dense-prefix", "1160", "--json"]
    # h2o needs a little more RAM than "full", which comes first and says what it needs
    disk = ["--kv-ram", int(spill.least(*table)) * 5 // 4, "--kv-disk", "1G", "--kv-disk-path", folder]
    status, out, err = spill.program(*table, *disk)
    assert (status, err) == (0, b"")
    ours, expected = (json.loads(text)["runs"] for text in (out, spill.program(*table)[1]))
    assert [run["nll"] for run in ours] == [run["nll"] for run in expected]
    assert all(run["read_bytes_per_token"] > 0 for run in ours if run["policy"] != "h2o")

    rows = [{"query": words(1100, i), "choices": [" yes" * 5, " no" * 5], "answer": 0} for i in range(3)]
    (tmp_path / "task.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    answers = tmp_path / "answers"
    ask = ["eval", *lists, "--task", tmp_path / "task.jsonl", "-o", answers]
    assert spill.program(*ask)[0] == 0
    expected = answers.read_text()
    assert spill.program(*ask, *disk)[::2] == (0, b"")
    assert answers.read_text().replace('"evict":"counter"', '"evict":null') == expected  # only with a disk is there a choice


def test_eval_keeps_answers(spill, folder, tmp_path):
    rows = [{"query": words(1100, i), "choices": [" yes" * 5, " no" * 5], "answer": 0} for i in range(8)]
    (tmp_path / "task.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    answers = tmp_path / "answers"
    args = ["eval", "-m", spill.model, "--task", tmp_path / "task.jsonl", "-c", "1200", "-b", "64", "-t", "2",
            "--kv-policy", "full", "-o", answers]
    assert spill.program(*args)[0] == 0
    of_rule = re.compile(r'"evict":[^,]*,')  # the rule by which blocks leave RAM is none where all are there
    whole = of_rule.sub("", answers.read_text()).splitlines()
    args = spill.on_disk(args, folder, "--no-uring")
    for flags in ([], ["--json"]):
        out = fail_in_the_middle(spill, [*args, *flags], ("--limit", "2"), tmp_path)
        kept = of_rule.sub("", answers.read_text()).splitlines()
        assert 2 <= len(kept) < 8 and kept == whole[:len(kept)]
        if flags:
            report = json.loads(out)
            assert report["questions"] == len(kept) and report["failed"] is True
        else:
            assert f"failed after {len(kept)} of 8 questions" in out.decode()


def test_bench_keeps_rows(spill, folder):
    args = ["bench", "-m", spill.model, "-t", "2", "-p", "16", "-n", "16", "-d", "1500", "-r", "1",
            "--kv-policy", "full", "-o", "json"]
    args = spill.on_disk(args, folder, "--no-uring")
    status, out, err = spill.program(*args, env=spill.fault("read:eio:60:1"))
    assert status == 1 and "Input/output error" in one_line(err) and len(json.loads(out or "[]")) < 2


# ---- the model -----------------------------------------------------------------------------------------------


CHANGED = "was changed while it was in use; open the model again"


def run_and_harm(spill, tmp_path, harm, *flags):
    """A long text under a copy of the model that is harmed once the text has begun."""
    shutil.rmtree(tmp_path / "model", ignore_errors=True)
    shutil.copytree(spill.model, tmp_path / "model")
    p = spill.program.start(*spill.run(n=LONG), "-m", tmp_path / "model", *flags)
    first = os.read(p.stdout.fileno(), 1)
    stopped(p)
    harm(tmp_path / "model" / "model.safetensors")
    p.send_signal(signal.SIGCONT)
    out, err = p.communicate(timeout=60)
    return p.returncode, first + out, err


def overwrite(path):
    with open(path, "r+b") as f:
        f.seek(os.path.getsize(path) // 2)
        f.write(bytes(200000))


def test_model_cut_short_while_in_use(spill, tmp_path):
    """The next step notices; the one at hand may find what is mapped gone, a signal, whichever thread touches it."""
    for threads in ("1", "4"):
        result = run_and_harm(spill, tmp_path, cut_short, "-t", threads)
        signalled = "became shorter while it was in use, or its disk failed"
        message = signalled if signalled.encode() in result[2] else CHANGED
        check_failure(spill, result, message, tmp_path / "model", n=LONG)


def test_model_overwritten_while_in_use(spill, tmp_path):
    """No token is made of what was not there when the model was opened."""
    for threads in ("1", "4"):
        result = run_and_harm(spill, tmp_path, overwrite, "-t", threads)
        check_failure(spill, result, CHANGED, tmp_path / "model", n=LONG)
        assert len(result[1]) < len(spill.expected(n=LONG))


@pytest.mark.parametrize("harm", (overwrite, cut_short, os.unlink))
def test_copied_model_needs_no_file(spill, tmp_path, harm):
    assert run_and_harm(spill, tmp_path, harm, "--no-mmap") == (0, spill.expected(n=LONG), b"")


def test_model_too_large_to_copy(spill, tmp_path):
    """Its holes take no disk; a map of it would do, were the address space not limited as well."""
    shutil.copytree(spill.model, tmp_path / "model")
    os.truncate(tmp_path / "model" / "model.safetensors", 64 << 30)
    limit = (8 << 30, 8 << 30)
    p = spill.program.start(*spill.run(n=4), "-m", tmp_path / "model", "--no-mmap",
                            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, limit))
    out, err = p.communicate(timeout=60)
    assert p.returncode == 1 and out == b""
    assert "out of memory" in one_line(err) and f"needs {64 << 30} bytes" in err.decode()


def test_memory_of_a_copied_model(spill):
    def memory(*flags):
        return json.loads(spill.program("inspect", "-m", spill.model, "--json", *flags)[1])["memory"]

    size = os.path.getsize(os.path.join(spill.model, "model.safetensors"))
    mapped, copied = memory(), memory("--no-mmap")
    assert copied["private"] - mapped["private"] == size and copied["weights"] >= copied["private"]
    assert mapped["private"] < size // 10 and copied["weights"] - mapped["weights"] < size // 10


# ---- little memory -------------------------------------------------------------------------------------------


def logits_of(tiny, *args):
    return "logits", "-m", tiny, "--tokens", tiny + "/golden/tokens.i32", *args


def test_small_stack(program, tiny, tmp_path):
    """`ulimit -s`: a stack that is too small is raised, or is an error and no crash. Threads have stacks of their own."""
    out_file = tmp_path / "logits"
    for soft, hard, status in ((64, 1024, 0), (256, 256, 0), (128, 128, 1)):
        p = program.start(*logits_of(tiny, "-t", "3", "-o", out_file),
                          preexec_fn=limit(resource.RLIMIT_STACK, soft << 10, hard << 10))
        code, _, err = finish(p)
        assert code == status, err
        assert status == 0 or f"only {hard} (ulimit -s)" in one_line(err)


def test_little_memory_for_threads(program, tiny, tmp_path):
    """`ulimit -v`: the stacks of 64 threads are not what takes the memory, and where even they do, that is said."""
    out_file = tmp_path / "logits"
    codes = set()
    for mib in (2048, 64):
        p = program.start(*logits_of(tiny, "-t", "64", "-o", out_file),
                          preexec_fn=limit(resource.RLIMIT_AS, mib << 20))
        code, _, err = finish(p)
        codes.add(code)
        assert code == 0 or (mib == 64 and "no memory for its stack" in one_line(err)), err
    assert 0 in codes


# ---- weights that are read in every step -------------------------------------------------------------------------


def least_weights(spill, *args):
    status, out, err = spill.program(*args, "--weights-ram", "1K")
    assert (status, out) == (1, b""), err
    return re.search(r"at least (\d+)", one_line(err)).group(1)


def test_weights_are_read_in_steps(spill):
    """The text is that of mapped weights; reports say what was read."""
    args = spill.run(n=10)
    args = [*args, "--weights-ram", least_weights(spill, *args)]
    assert spill.program(*args) == (0, spill.expected(n=10), b"")
    report = json.loads(spill.program(*args, "--json")[1])
    weights = report["weights"]
    assert report["memory"]["weights"] == report["memory"]["private"] == weights["ram"] <= int(args[-1])
    assert weights["read_bytes"] > 10 * weights["read_bytes_per_step"] > 0 and weights["streamed_layers"] > 2
    bench = ["bench", "-m", spill.model, "-p", "0", "-n", "4", "-b", "1,3", "-r", "1", *args[-2:]]
    for row in json.loads(spill.program(*bench, "-o", "json")[1]):
        assert row["weight_bytes_per_step"] == weights["read_bytes_per_step"] and 0 <= row["weight_stall_share"] <= 1
    assert b"weights/step" in spill.program(*bench)[1]


@pytest.mark.parametrize("fault", ("eio", "zero"))
def test_weights_that_cannot_be_read(spill, fault):
    """Ends the run with one line that names the file and the layer; short and interrupted reads do no harm."""
    args = spill.run(n=10)
    args = [*args, "--weights-ram", least_weights(spill, *args)]
    status, out, err = spill.program(*args, env=spill.fault(f"read:{fault}:60:{FOR_EVER}"))
    assert status == 1 and spill.expected(n=10).startswith(out)
    assert "model.safetensors" in one_line(err) and "weights of layer" in one_line(err)
    for harmless in ("short", "eintr"):
        assert spill.program(*args, env=spill.fault(f"read:{harmless}:0:40")) == (0, spill.expected(n=10), b"")


def test_weights_in_ram_or_mapped(spill):
    status, out, err = spill.program(*spill.run(), "--weights-ram", "1G", "--no-mmap")
    assert (status, out) == (2, b"") and "--no-mmap" in one_line(err)
