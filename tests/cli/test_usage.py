# SPDX-License-Identifier: Apache-2.0
"""Options, help, and what is made from the option table."""
import fcntl
import json
import os
import re
import select
import signal
import time

import pytest
from conftest import TINY_MODELS, make_model, one_line, words

VERBS = ["run", "chat", "tokenize", "logits", "perplexity", "eval", "tasks", "prepare", "bench", "inspect", "fetch", "kv",
         "devices", "completion", "man"]


def test_version(program):
    status, out, err = program("--version")
    assert status == 0 and err == b""
    assert re.fullmatch(rb"infinigen \d+\.\d+\.\d+\n", out)


def test_devices(program):
    status, out, _ = program("devices", "--json")
    report = json.loads(out)
    assert status == 0 and report["devices"][0]["device"] == "cpu"
    assert 0 < report["devices"][0]["free"] <= report["devices"][0]["memory"]
    status, out, err = program("devices")
    assert status == 0 and out.startswith(b"cpu ") and (report["cuda"] or b"without CUDA" in err)


def test_a_device_that_is_not_there(program, tiny):
    for name, code, words in (("cuda:999", 1, "cuda:999: "), ("tpu", 2, "is not one of cpu, cuda")):
        status, _, err = program("run", "-m", tiny, "--raw", "-p", "x", "--device", name)
        assert status == code and words in one_line(err)


@pytest.mark.parametrize("rows", (16, 512))
def test_inspect_plans_what_run_takes(program, tmp_path, rows):
    flags = ["-m", make_model(tmp_path / "model"), "-c", "2048", "-ub", rows, "-t", "2", "--json"]
    planned, taken = (json.loads(program(*verb, *flags)[1])["memory"] for verb in
                      (["inspect"], ["run", "-p", "x", "-n", "1"]))
    assert planned["scratch"] == taken["scratch"] > 0


def interrupt_where_it_waits(p):
    """Once its only thread has slept for a while."""
    end, n = time.monotonic() + 60, 0
    while n < 15 and time.monotonic() < end:
        n = n + 1 if open(f"/proc/{p.pid}/stat").read().rsplit(")", 1)[1].split()[0] == "S" else 0
        time.sleep(0.02)
    p.send_signal(signal.SIGINT)


def test_interrupted_while_nobody_reads(program, tmp_path):
    """What was to be printed is, once somebody does."""
    model = make_model(tmp_path / "model")
    for verb in (["run", "-p", "x", "-n", "8", "--json"], ["bench", "-p", "8", "-n", "0", "-r", "1"]):
        r, w = os.pipe()
        fcntl.fcntl(w, fcntl.F_SETPIPE_SZ, 4096)
        os.write(w, bytes(4096))
        p = program.start(*verb, "-m", model, "-t", "1", stdout=w)
        os.close(w)
        interrupt_where_it_waits(p)
        time.sleep(0.2)
        with open(r, "rb") as out:
            text = out.read()[4096:]
        assert b"Interrupted" not in p.communicate(timeout=60)[1] and p.returncode in (0, 130)
        assert json.loads(text) if "--json" in verb else b"pp8" in text


def test_interrupted_at_a_file(program, tmp_path):
    """A FIFO that nobody opens at its other end, and one that nobody reads."""
    model, fifo = make_model(tmp_path / "model"), tmp_path / "fifo"
    os.mkfifo(fifo)
    p = program.start("run", "-p", "x", "-n", "2", "--kv-trace", fifo, "-m", model, "-t", "1")
    interrupt_where_it_waits(p)
    assert b"fifo: interrupted" in p.communicate(timeout=60)[1] and p.returncode == 130
    r = os.open(fifo, os.O_RDWR)
    fcntl.fcntl(r, fcntl.F_SETPIPE_SZ, 4096)
    p = program.start("run", "-p", "x" * 200, "-n", "50", "--kv-trace", fifo, "-m", model, "-t", "1", "--ignore-eos")
    interrupt_where_it_waits(p)
    text = b""
    while p.poll() is None:
        text += os.read(r, 4096) if select.select([r], [], [], 0.05)[0] else b""
    while select.select([r], [], [], 0)[0]:
        text += os.read(r, 4096)
    os.close(r)
    assert p.returncode in (0, 130) and len(text) > 4096
    head, *rows = text.decode().splitlines()
    assert rows and all(row.count(",") == head.count(",") for row in rows)


def test_inspect_plans_for_a_gpu_that_is_not_there(program, tiny):
    """What lies where adds up, and a limit moves layers to page-locked memory."""
    inspect = ["inspect", "-m", tiny, "-c", "2048", "--device", "cuda:999"]
    status, out, err = program(*inspect, "--json", "--weights-vram", "1K")
    least = re.search(r"at least (\d+)", one_line(err)).group(1)
    assert (status, out) == (1, b"")
    all_there, limited = (json.loads(program(*inspect, "--json", *flags)[1]) for flags in
                          ([], ["--weights-vram", least, "--kv-vram", "64K"]))
    for report in (all_there, limited):
        memory = report["memory"]
        for place in ("gpu", "page_locked"):
            place = memory[place]
            assert sum(place[k] for k in ("weights", "slots", "kv", "sketch", "scratch")) == place["total"] > 0
        assert memory["page_locked"]["kv"] == memory["kv"] > 0
        assert memory["gpu"]["total"] + memory["page_locked"]["total"] + memory["sketch"] <= memory["total"]
    assert all_there["memory"]["page_locked"]["weights"] == all_there["memory"]["gpu"]["slots"] == 0
    assert limited["memory"]["gpu"]["weights"] + limited["memory"]["gpu"]["slots"] == int(least)
    assert limited["memory"]["page_locked"]["weights"] >= limited["weights"]["read_bytes_per_step"] > 0
    assert all_there["memory"]["gpu"]["kv"] < limited["memory"]["gpu"]["kv"] <= 64 << 10
    text = program(*inspect, "--weights-vram", least, "--kv-vram", "64K")[1].decode()
    assert re.search(r"^  KV  .* 0 B$", text, re.M)  # nothing of them where a GPU does not reach
    assert "page-locked" in text and "are copied in every step" in text and "(cuda:999 is not here)" in text
    assert "page-locked" in program(*inspect[:3], "-c", "256,512", *inspect[5:])[1].decode()
    status, _, err = program("run", "-m", tiny, "--raw", "-p", "x", "--weights-vram", "1G")
    assert status == 2 and "--weights-vram is for a GPU" in one_line(err)


def test_a_sandbox_is_for_the_cpu(program, tiny):
    status, _, err = program("serve", "-m", tiny, "--sandbox", "--device", "cuda")
    assert status == 2 and "--sandbox lets no driver" in one_line(err)


def test_help_names_every_verb(program):
    status, out, _ = program("--help")
    assert status == 0
    for verb in VERBS:
        assert re.search(rf"^  {verb} ", out.decode(), re.M)


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_a_verb(program, verb):
    for args in ([verb, "--help"], ["help", verb], [verb, "-h"]):
        status, out, err = program(*args)
        assert status == 0 and err == b""
        assert out.decode().startswith(f"Usage: infinigen {verb}")
        assert "--help" in out.decode()


def test_no_verb(program):
    status, out, err = program()
    assert status == 2 and out == b"" and b"Usage" in err


@pytest.mark.parametrize("args, message", [
    (["rnu"], "did you mean 'run'"),
    (["nonsense"], "no verb 'nonsense'"),
    (["pull", "x"], "no verb 'pull'; did you mean 'fetch'?"),
    (["run", "-m", "x", "--topk", "3"], "did you mean --top-k"),
    (["run", "-m", "x", "--n-predic", "3"], "did you mean --n-predict"),
    (["run", "-m", "x", "-temp", "3"], "unknown option '-temp'; did you mean --temp"),
    (["run", "-m", "x", "--size", "1G"], "unknown option '--size'"),
    (["inspect", "-m", "x", "-p", "hi"], "no option '-p' here, only with run, chat, tokenize, bench "),
    (["run", "-m", "", "-p", "y"], "-m: '' is empty"),
    (["run", "-m", "x", "-p", "y", "-c", "-1"], r"\(tokens the context holds"),
    (["run", "-p", "x"], "no model given"),
    (["run", "-m"], "-m needs a value"),
    (["run", "-m", "x", "--raw=yes"], "--raw takes no value"),
    (["run", "-m", "x", "-n", "many"], "'many' is not a whole number"),
    (["run", "-m", "x", "-n=many"], "-n: 'many' is not a whole number"),
    (["serve", "-m", "x", "-np=many"], "-np: 'many' is not a whole number"),
    (["serve", "-m", "x", "--max-body", "1"], "--max-body: '1' is not between 1024 and 1073741824 bytes"),
    (["bench", "-m", "x", "--server", "u", "-d", "0,4096"], "--server measures a server as it is: -d, --n-depth is not for it"),
    (["bench", "--server", "u", "--kv-policy", "window"], "--server measures a server as it is: --kv-policy is not"),
    (["bench", "--server", "u", "-p", "8", "-t", "3"], "--server measures a server as it is: -t, --threads is not"),
    (["run", "-m", "x", "-md", "y", "-hfd", "a/b", "-p", "x"], "-md and -hfd both name a draft model"),
    (["run", "-m", "x", "--raw", "--reasoning", "off", "-p", "x"], "for a chat template, which --raw leaves out"),
    (["run", "-m", "x", "--raw", "--chat-template-kwargs", "{}", "-p", "x"], "for a chat template, which --raw leaves out"),
    (["serve", "-m", "x", "--audit", "3"], "no option '--audit' here, only with "),
    (["run", "-m", "x", "-n", "99999999999999999999"], "is not between"),
    (["run", "-m", "x", "--top-p", "1.5"], "'1.5' is not between 0 and 1"),
    (["run", "-m", "x", "--top_p", "1.5"], "--top-p: '1.5' is not between 0 and 1"),
    (["serve", "-m", "x", "-n", "0"], "-n 0 would leave answers empty"),
    (["serve", "-m", "x", "--models-max", "3"], "for a server of several models"),
    (["serve", "-m", "x", "--models-dir", "y"], "for a server of several models"),
    (["run", "-hf", "one", "-p", "x"], "one: is not of the form OWNER/REPOSITORY"),
    (["run", "-m", "x", "--temp=nan"], "is not a number"),
    (["run", "-m", "x", "--logit-bias", "7"], "'7' is not a token's id and a number with its sign"),
    (["run", "-m", "x", "--typical", "0"], "'0' is not between 0.001 and 1"),
    (["run", "-m", "x", "--seed=-2"], "'-2'"),
    (["run", "-m", "x", "--kv-policy", "best"], "is not one of infinigen, "),
    (["run", "-m", "x", "--kv-budget", "0"], "out of range"),
    (["run", "-m", "x", "--kv-budget", "101%"], "out of range"),
    (["run", "-m", "x", "--kv-budget", "10x"], "neither a number of tokens nor a share"),
    (["run", "-m", "x", "--kv-limit", "0%"], "'0%' is neither a size such as 512M nor a share"),
    (["run", "-m", "x", "--kv-ram", "25%"], "'25%' is not a size such as 512M"),
    (["run", "-m", "x", "--kv-ram", "0.5"], "'0.5' is out of range: give bytes, or a size such as 512M or 2G"),
    (["run", "-m", "x", "-c", "16777217"], "is not between 0 and 16777216"),
    (["run", "-m", "x", "-b", "16385"], "is not between 1 and 16384"),
    (["run", "-m", "x", "-t", "1025"], "is not between -1 and 1024"),
    (["run", "-m", "x", "--cpu", "mmx"], "is not one of scalar, avx2, avxvnni, avx512, amx"),
    (["run", "-m", "x", "--raw", "--chat", "-p", "y"], "exclude each other"),
    (["run", "-m", "x", "--raw", "-sys", "z", "-p", "y"], "--raw gives the text as it is: there is no place for --system"),
    (["run", "-m", "x", "-p", "y", "--kv-limit", "50%", "--kv-ram", "1G"], "--kv-limit drops entries for ever"),
    (["bench", "-m", "x", "--kv-limit", "50%", "--kv-disk", "1G"], "--kv-limit drops entries for ever"),
    (["-m", "x", "-p", "y"], "an option comes after a verb: infinigen run -m"),
    (["run", "-m", "x", "-p", "a", "b"], "more than one text"),
    (["inspect", "x", "y"], "one argument too many: 'y'"),
    (["run", "-m", "x"], "text is empty"),
    (["bench", "-m", "x", "-p", "1,,2"], "is not a whole number"),
    (["bench", "-m", "x", "-p", "0", "-n", "0"], "nothing to measure"),
    (["bench", "-m", "x", "--kv-policy", "full,none"], "is not one of"),
    (["bench", "-m", "x", "-o", "xml"], "is not one of md, csv, json"),
    (["bench", "-m", "x", "--json"], "did you mean -o json?"),
    (["bench", "-m", "x", "-p", "1,a,2"], "-p: 'a' is not a whole number"),
    (["perplexity", "-m", "x", "--kv-policy", "full,none,quest"], "--kv-policy: 'none' is not one of .*oracle"),
    (["perplexity", "-m", "x"], "-f FILE is missing"),
    (["perplexity", "-m", "x", "-f", "y", "--dense-prefix", "511"], "leaves fewer than two tokens to score"),
    (["perplexity", "-m", "x", "-f", "y", "--dense-prefix", "-1"], "leaves fewer than two tokens to score"),
    (["tasks", "--task", "vt,niah"], "--task: 'niah' is not one of niah_single_1,.* vt, .*, multi_turn"),
    (["tasks", "-c", "0"], "is not between 1 and 16777216"),
    (["tasks", "-n", "0"], "is not between 1 and 1000000"),
    (["tasks", "vt"], "one argument too many: 'vt'"),
    (["logits", "-m", "x", "-o", "y"], "--tokens FILE is missing"),
    (["logits", "-m", "x", "--tokens", "y"], "-o FILE is missing"),
    (["kv"], "what to do? ls, verify, gc or rm"),
    (["kv", "list"], "'list' is not one of ls, verify, gc, rm"),
    (["kv", "ls"], "--kv-store DIR is missing"),
    (["kv", "ls", "x", "y"], "--kv-store DIR is missing"),
    (["run", "-m", "x", "-p", "y", "--kv-map"], "--kv-map on the CPU goes with --kv-ram SIZE"),
    (["run", "-m", "x", "-p", "y", "--kv-vram", "1G"], "--kv-vram is for a GPU"),
    (["kv", "ls", "--kv-store", "x", "y"], "one argument too many: 'y'"),
    (["kv", "ls", "--kv-store", "x", "--all"], "--all is for rm"),
    (["kv", "verify", "--kv-store", "x", "--kv-store-size", "1G"], "--kv-store-size is for gc"),
    (["kv", "rm", "--kv-store", "x"], "remove what? ID..., --note NAME, --model NAME or --all"),
    (["kv", "rm", "--kv-store", "x", "--all", "00"], "one of them only"),
    (["kv", "rm", "--kv-store", "x", "xyz"], "'xyz' is no id"),
    (["completion"], "bash, zsh or fish"),
    (["completion", "tcsh"], "is not one of"),
    (["help", "me"], "no verb 'me'"),
])
def test_usage_errors(program, args, message):
    status, out, err = program(*args)
    assert status == 2 and out == b""
    assert re.search(message, one_line(err)) or message in one_line(err)


@pytest.mark.parametrize("args, message", [
    (["run", "-ngl", "many"], "-ngl: 'many' is not a number of layers"),
    (["serve", "--slot-save-path", "x"], "'--slot-save-path x' is llama.cpp's: here --kv-store DIR keeps"),
    (["serve", "-to", "600"], "'-to 600' is llama.cpp's: here --header-timeout"),
    (["serve", "--cache-reuse", "256"], "'--cache-reuse 256' is llama.cpp's: here prompts share what they begin with"),
    (["run", "-cnv"], "'-cnv' is llama.cpp's: here a conversation is 'infinigen chat'"),
    (["chat", "-st"], "'infinigen run' answers once"),
    (["run", "-sysf", "x"], "--system"),
    (["run", "-ctk", "q8_0"], "-ctk q8_0: here keys and values are kept in one type"),
    (["run", "-tb", "7"], "-t sets them"),
    (["run", "-mu", "x/y"], "'infinigen fetch' lists, and -hf a model of the Hugging Face hub"),
    (["run", "-hff", "x.gguf"], "-hf OWNER/REPO:FILE takes a file"),
    (["perplexity", "--kl-divergence"], "--dense-prefix N"),
    (["bench", "-pg", "512,128"], "-p and -n are measured one by one"),
    (["bench", "-b", "2048"], "the size of a prompt's steps is -ub"),
    (["run", "--prompt-cache", "x.bin"], "'--prompt-cache x.bin' is llama.cpp's: here --kv-store DIR keeps what prompts"),
    (["bench", "-mmp", "0"], "'-mmp 0' is llama.cpp's: here weights are mapped"),
    (["serve", "--kv-cache-dtype", "fp8"], "'--kv-cache-dtype fp8' is vLLM's: here --kv-type q8 keeps keys and values in 8 bits"),
    (["serve", "--kv-offloading-size", "8"], "'--kv-offloading-size 8' is vLLM's: here all keys and values lie in RAM"),
    (["serve", "--cpu-offload-gb=8"], "'--cpu-offload-gb 8' is vLLM's: here --weights-vram SIZE"),
    (["serve", "--quantization", "awq"], "the model's file says that"),
    (["serve", "--speculative-config", "x"], "-md MODEL names a model that guesses what comes"),
    (["serve", "--prefill-assistant"], "requests with 'continue_final_message': true"),
    (["serve", "--no_cache_prompt"], "a request with 'cache_prompt': false"),
    (["run", "--completion-bash"], "'infinigen completion bash' prints it"),
    (["serve", "--seed", "5"], "'--seed 5' is llama.cpp's: here requests carry it"),
    (["run", "-ngl"], "-ngl needs a value"),
])
def test_flags_of_llama_cpp(program, args, message):
    """Named as what they are, not read as a letter and its value."""
    status, out, err = program(*args, *(["-m", "x"] if args[-1] != "-ngl" else []))
    assert status == 2 and out == b""
    assert message in one_line(err)
    status, _, err = program("run", "-fa", "on", "-ngl", "99", "-no-cnv", "-st", "-t", "2", "-tb", "2", "-p", "y", "-m", "x",
                             "--max-new-tokens", "3")
    assert status == 1 and "x: no such file" in one_line(err)


@pytest.mark.parametrize("flags, reason", (("--kv-policy h2o", "by the policy h2o"), ("--kv-limit 50%", "with --kv-limit"),
                                           ("--audit 4", "with --audit"), ("--kv-policy infinigen-osdi24", "infinigen-osdi24")))
def test_where_nothing_is_computed_ahead(program, tmp_path, flags, reason):
    model = make_model(tmp_path / "model")
    status, out, err = program("run", "-m", model, "-p", "one", "-n", 4, *flags.split(), "--draft", 5)
    assert status == 2 and out == b"" and reason in one_line(err)
    plain = program("run", "-m", model, "-p", "one", "-n", 4, "--temp", 0, "--draft", 0)
    assert program("run", "-m", model, "-p", "one", "-n", 4, "--temp", 0, "--draft-max", 64) == plain


def test_input_that_is_not_read(program, tmp_path):
    model, warning = make_model(tmp_path / "model"), b"standard input is not read: -f - puts it before the text"
    for flags, warns in ((("-p", "one"), True), (("-p", "one", "-f", "-"), False)):
        assert (warning in program("run", "-v", "-m", model, *flags, "-n", 2, stdin="two")[2]) == warns
    assert warning not in program("run", "-v", "-m", model, "-p", "one", "-n", 2, stdin="")[2]


@pytest.mark.parametrize("args, message", [
    (["run", "-m", "/no/such/model", "-p", "x"], "/no/such/model: no such file"),
    (["inspect", "no-such-model"], "no-such-model: no such file, nor a model"),
    (["inspect", "SmolLM2-135M"], "nor a model that 'infinigen fetch' knows; did you mean 'smollm2-135m'?"),
    (["fetch", "qwen2.5-coder"], "no model of this name is known: 'infinigen fetch' lists them; did you mean 'qwen2.5-"),
    (["inspect", "smollm2-135m.gguf"], "smollm2-135m.gguf: no such file\n"),
    (["inspect", "/"], "/: a directory without config.json is no Hugging Face model"),
    (["run", "-m", "/", "-f", "/no/such/text"], "/no/such/text: No such file"),
    (["perplexity", "-m", "/", "-f", "/no/such/text"], "/no/such/text: No such file"),
])
def test_missing_files(program, args, message):
    status, out, err = program(*args)
    assert status == 1 and out == b""
    assert message in one_line(err)


def test_malformed_model(program, tmp_path):
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"GGUF\x03\0\0\0" + b"\xff" * 64)
    for verb in (["inspect"], ["run", "-p", "x"], ["tokenize", "-p", "x"]):
        status, out, err = program(*verb, "-m", bad)
        assert status == 1 and out == b""
        assert "bad.gguf" in one_line(err)


def test_bad_environment(program, tiny):
    status, _, err = program("inspect", tiny, env={"IG_CPU_MASK": "mmx"})
    assert status == 2 and "IG_CPU_MASK" in one_line(err)
    status, _, err = program("inspect", tiny, env={"IG_LOG": "loud"})
    assert status == 2 and "IG_LOG" in one_line(err)


def options_of(program, verb):
    return set(re.findall(r"(?<=[ ,])--[a-z-]+", program(verb, "--help")[1].decode()))


def test_completion_knows_every_option(program):
    for shell, pattern in (("bash", "{}"), ("zsh", "{}"), ("fish", " -l {}")):
        status, out, _ = program("completion", shell)
        assert status == 0
        for name in options_of(program, "run") - {"--kv-"}:
            wanted = pattern.format(name.lstrip("-") if shell == "fish" else name)
            assert wanted in out.decode(), (shell, name)


def test_help_tells_what_policies_do(program):
    listed = program("run", "--help")[1].decode().split("\nPolicies:\n")[1]
    page = program("man")[1].decode().split(".SH POLICIES\n")[1].split(".SH ")[0].replace("\\-", "-")
    names = re.search(r"not one of (.*)", program("run", "-m", "x", "--kv-policy", "-")[2].decode())[1].split(", ")
    assert len(names) == 10 and re.findall(r"^  (\S+) +\S", listed, re.M) == names
    assert re.findall(r"^\.TP\n\\fB(.*)\\fR\n.", page, re.M) == names
    assert "Policies:" not in program("fetch", "--help")[1].decode()


def test_the_store_of_bench_has_its_own_words(program):
    assert "what stands before a test" in program("bench", "--help")[1].decode()
    assert "what stands before a test" not in program("run", "--help")[1].decode()


def test_man_page(program):
    status, out, _ = program("man")
    text = out.decode()
    assert status == 0 and text.startswith(".TH INFINIGEN 1")
    for verb in VERBS:
        assert f".SS infinigen {verb}" in text
    assert "kv\\-budget" in text and "EXIT STATUS" in text
    table = text[text.index("  infinigen kv ls"):text.index("ls and verify may run")]
    assert ".nf\n" + table in text and table.endswith("\n.fi\n.PP\n"), "a table's lines are not filled"


@pytest.mark.parametrize("flag", ["--kv-trace", "--audit-trace"])
def test_inspect_writes_no_trace(program, tmp_path, flag):
    trace = tmp_path / "trace.csv"
    trace.write_text("of a run")
    status, _, err = program("inspect", "-m", "any.gguf", flag, trace)
    assert status == 2 and flag in one_line(err) and trace.read_text() == "of a run"


OUTPUTS = [["man"], ["run", "--help"], ["--help"], ["completion", "bash"], ["completion", "fish"]]


@pytest.mark.parametrize("args", OUTPUTS)
def test_a_reader_that_has_enough(program, args):
    """As head: it is no news on the terminal, whether a write in the midst or the last one fails."""
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as pipe:
        p = program.start(*args, stdout=pipe, restore_signals=False)
        assert p.communicate()[1] == b"" and p.returncode == 1


def test_a_reader_that_is_slow(program):
    """Who shares the pipe may have made it one where writes do not wait: nothing is lost."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    p = program.start("man", stdout=write)
    os.close(write)
    time.sleep(0.3)
    with os.fdopen(read, "rb") as pipe:
        assert pipe.read() == program("man")[1]
    assert p.wait() == 0


@pytest.mark.parametrize("args", OUTPUTS)
def test_full_disk(program, args):
    with open("/dev/full", "wb") as full:
        p = program.start(*args, stdout=full)
        _, err = p.communicate()
    assert p.returncode == 1 and "No space left on device" in one_line(err)


@pytest.mark.parametrize("flags, message", [
    (["--kv-policy", "full", "--kv-budget", "10%"], "--kv-budget does nothing with the policy full"),
    (["--kv-alpha", "2"], "--kv-alpha does nothing without infinigen-osdi24"),
    (["--kv-policy", "window", "--kv-mass", "0.5"], "--kv-mass does nothing with the policy window"),
    (["--kv-policy", "full", "--kv-sinks", "3"], "--kv-sinks does nothing with the policy full"),
    (["--kv-store-size", "1G"], "--kv-store-size does nothing without --kv-store"),
    (["--kv-store", "kv", "--kv-limit", "50%"], "with --kv-limit nothing is taken from a store"),
    (["--kv-store", "kv", "--kv-policy", "h2o"], "the policy h2o takes nothing from a store"),
    (["--kv-store", "kv", "--kv-policy", "pyramidkv"], "the policy pyramidkv takes nothing from a store"),
    (["--device", "cpu", "-ngl", "99"], "-ngl 99: no GPU computes here"),
])
def test_options_that_do_nothing(program, tmp_path, flags, message):
    """A warning, which IG_LOG can forbid; on their own they are no error."""
    run = ["run", "-m", make_model(tmp_path / "model"), "--raw", "-p", "x", "-n", "1", *flags]
    status, _, err = program(*run, cwd=tmp_path)
    assert status == 0 and one_line(err) == f"infinigen: {message}" + one_line(err).partition(message)[2]
    assert program(*run, cwd=tmp_path, env={"IG_LOG": "error"})[::2] == (0, b"")


def test_options_that_a_model_s_own_policy_leaves_out(program, tmp_path):
    model = os.path.join(TINY_MODELS, "deepseek32")
    if not os.path.exists(model):
        pytest.skip("no tiny models")
    (tmp_path / "ids").write_text(" ".join(str(3 + i % 200) for i in range(64)))
    ask = ["perplexity", "-m", model, "--tokens", tmp_path / "ids", "-c", "64"]
    for flags, message in ((["--dense-prefix", "32", "--kv-mass", "0.5"], "--kv-mass does nothing with the policy indexer"),
                           (["--kv-budget", "10%"], None), (["--kv-policy", "full", "--kv-sketch", "none"], None)):
        status, _, err = program(*ask, *flags)
        assert status == 0 and err.decode().strip() == (f"infinigen: {message}" if message else ""), flags


@pytest.mark.parametrize("flags, messages", [
    (["--kv-limit", "50%"], ["without --dense-prefix entries are dropped between steps of -ub tokens only"]),
    (["--dense-prefix", "-8", "--kv-limit", "50%", "--kv-policy", "full,window"], ["--kv-limit holds for full as well"]),
    (["--dense-prefix", "-8", "--kv-type", "q4,q2", "--kv-policy", "full,window"], ["--kv-type holds for full as well"]),
    (["--dense-prefix", "-8", "--kv-type", "q4,f16", "--kv-policy", "full,window"], []),
    (["--dense-prefix", "-8", "--kv-limit", "50%", "--kv-policy", "full"], []),
    (["--dense-prefix", "-8", "--kv-limit", "50%,100%", "--kv-policy", "full,window"], []),
])
def test_measurements_say_what_changes_their_meaning(program, tmp_path, flags, messages):
    """To scripts as well."""
    (tmp_path / "text").write_text(words(400, 1))
    status, out, err = program("perplexity", "-m", make_model(tmp_path / "model"), "-f", tmp_path / "text", "-c", "256", *flags)
    lines = err.decode().splitlines()
    assert status == 0 and out and len(lines) == len(messages)
    assert all(f"infinigen: {message}" in line for message, line in zip(messages, lines))


@pytest.mark.parametrize("flags, message", [
    (["--kv-policy", "window"], "without --dense-prefix every token is computed with dense attention"),
    (["--kv-budget", "10%"], "without --dense-prefix every token is computed with dense attention"),
    (["--audit", "1"], "without --dense-prefix no token is there to audit"),
    (["--kv-policy", "full"], None), ([], None),
])
def test_perplexity_that_is_of_no_policy(program, tmp_path, flags, message):
    (tmp_path / "text").write_text(words(400, 1))
    score = ["perplexity", "-m", make_model(tmp_path / "model"), "-f", tmp_path / "text", "-c", "128", *flags]
    status, out, err = program(*score)
    assert status == 0 and (message in one_line(err) if message else err == b"")


def test_what_audits_find_is_told(program, tmp_path):
    """Without -v, too: on standard error, or behind a table a line for each policy."""
    (tmp_path / "text").write_text(words(400, 1))
    model, told = make_model(tmp_path / "model"), b"the entries used hold "
    score = ["perplexity", "-m", model, "-f", tmp_path / "text", "-c", "128", "--audit", "1", "--dense-prefix", "100", "--kv-policy"]
    status, out, err = program(*score, "window")
    assert status == 0 and told not in out and err.count(told) == err.count(b"\n") == 1
    status, out, err = program(*score, "full,window,quest")
    assert status == 0 and err == b"" and out.count(told) == 2 and b"Audit of window: " in out
    status, out, err = program("run", "-m", model, "--raw", "-p", "ab", "-n", "3", "--audit", "1")
    assert status == 0 and told not in out and err.count(told) == err.count(b"\n") == 1


def test_warnings_and_bars(terminal, tmp_path):
    """Each has a line of its own."""
    (tmp_path / "text").write_text(words(2400, 1))
    t = terminal("run", "-m", make_model(tmp_path / "model"), "-t", "1", "--cpu", "scalar", "-f", tmp_path / "text", "-n", "1",
                 "--kv-store", tmp_path / "store", "--kv-store-size", "1500K")
    t.read_until(b" left")
    assert t.read_until(b"infinigen: this prompt is kept up to").endswith(b"\r\x1b[Kinfinigen: this prompt is kept up to")
    t.type("\x03")
    t.finish()
