# SPDX-License-Identifier: Apache-2.0
"""Text in and out, on smollm2-135m."""
import json
import math
import os
import re
import signal
import struct
import subprocess
import time

import pytest
from conftest import one_line, words

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
GREEDY = ["--temp", "0", "-n", "12"]
TEXT = "The sea was calm. A boat went out at dawn, and the men in it sang of the long way home. " * 30


def test_run_sources_of_text(program, model, tmp_path):
    """-p, an argument, -f, and a pipe are the same."""
    status, out, err = program("run", "-m", model, *GREEDY, "-p", "The capital of France is")
    assert status == 0 and err == b"" and len(out) > 5
    (tmp_path / "text").write_text("The capital of France is")
    assert program("run", model, "The capital of France is", *GREEDY)[1] == out
    assert program("run", model, "The", "capital", *GREEDY, "of France", "is")[1] == out
    assert program("run", "-m", model, *GREEDY, "The", "capital of", "France is")[1] == out
    assert program("run", "-m", model, "The capital of France is", *GREEDY)[1] == out
    assert program("run", "-m", model, *GREEDY, "-f", tmp_path / "text")[1] == out
    assert program("run", "-m", model, *GREEDY, "-f", "-", stdin="The capital of France is")[1] == out
    assert program("run", "-m", model, *GREEDY, stdin="The capital of France is")[1] == out
    assert program("run", "-m", model, *GREEDY, "--chat", "-p", "The capital of France is")[1] == out
    raw = program("run", "-m", model, *GREEDY, "--raw", "-p", "The capital of France is")[1]
    assert raw != out and b"Paris" in raw
    assert program("run", "-m", model, *GREEDY, "--raw", "-e", "-p", r"The capital of France\x20is")[1] == raw


def test_run_json(program, model):
    args = ["run", "-m", model, *GREEDY, "--raw", "-p", "The capital of France is"]
    text = program(*args)[1].decode()
    status, out, err = program(*args, "--json", "-t", "1", "--kv-policy", "full", "-c", "256")
    report = json.loads(out)
    assert status == 0 and err == b""
    assert report["text"] == text and report["model"] == model
    assert report["policy"] == "full" and report["threads"] == 1 and report["context"] == 256
    assert report["tokens_prompt"] == 5 and report["tokens_generated"] == 12 and report["finish"] == "length"
    for name in ("load", "prompt_tps", "generation_tps", "first_token"):
        assert report["speed"][name] > 0
    assert report["memory"]["weights"] > 9e7 and report["memory"]["sketch"] == 0
    assert report["memory"]["peak_rss"] > 1e7 and report["memory"]["kv"] == report["kv"]["ram"] > 0
    assert report["kv"]["type"] == "f16" and report["kv"]["selected_share"] == 1


def test_least_ram_is_of_the_context_that_a_long_prompt_gets(program, model, tmp_path):
    """Without -c, a RAM limit that is too small is refused with the least for the context that will be used."""
    data = open(model, "rb").read()
    stated = b"llama.context_length" + struct.pack("<II", 4, 8192)
    assert data.count(stated) == 1
    longer = tmp_path / "longer.gguf"
    longer.write_bytes(data.replace(stated, stated[:-4] + struct.pack("<I", 32768)))
    (tmp_path / "text").write_text("x " * 9000)
    n = json.loads(program("tokenize", "-m", model, "-f", tmp_path / "text", "--json")[1])["tokens_prompt"]
    assert n > 8192

    def least(*args):
        status, out, err = program("run", "-m", longer, "--raw", "-f", tmp_path / "text", "-n", "8", "--kv-ram", "1K", *args)
        assert status == 1 and out == b""
        return int(re.search(r"at least (\d+)", one_line(err)).group(1))

    assert least() == least("-c", n + 8) > least("-c", n)


def test_run_budget(program, model):
    def share(*flags):
        report = json.loads(program("run", "-m", model, "--raw", "-p", TEXT, "-n", "8", "--temp", "0", "--json", *flags)[1])
        return report["kv"]["selected_share"], report["text"], report["memory"]["sketch"]

    full = share("--kv-policy", "full")
    tenth = share("--kv-budget", "10%")
    assert full[0] == 1 and 0.05 < tenth[0] < 0.25 and tenth[2] > 0
    everything = share("--kv-budget", "100%")
    assert everything[0] == 1 and everything[1] == full[1]
    assert abs(share("--kv-budget", "0.1")[0] - tenth[0]) < 1e-9
    assert share("--kv-budget", "64")[0] < full[0]
    assert share("--kv-budget", "100%", "--kv-mass", "0.9")[0] < 1
    assert share()[0] < 0.5, "this text is not short"


def test_short_prompts_are_full(program, model):
    """Selecting among few entries gains nothing: the default policy does not, and its texts are those of full."""
    prompts = ["The capital of France is", "Once upon a time, there was a little", "def fibonacci(n):",
               "The three primary colours are"]

    def texts(*flags):
        return [program("run", "-m", model, "--raw", "--temp", "0", "-n", "60", "-p", p, *flags)[1] for p in prompts]

    full = texts("--kv-policy", "full")
    assert texts() == full
    assert texts("--kv-budget", "10%") != full


def test_run_seed(program, model):
    args = ["run", "-m", model, "--raw", "-p", "Once upon a time", "-n", "16", "--json", "--temp", "1.5", "--min-p", "0"]
    first = json.loads(program(*args)[1])
    again = json.loads(program(*args, "--seed", first["seed"])[1])
    assert first["seed"] >= 0 and again["text"] == first["text"] and again["seed"] == first["seed"]
    other = json.loads(program(*args, "--seed", first["seed"] + 1)[1])
    assert other["text"] != first["text"]


def test_run_bias_and_penalties(program, model):
    args = ["run", "-m", model, "--raw", "-p", "One, two, three, four, five,", "--temp", "0", "-n", "16", "--json"]
    plain = json.loads(program(*args)[1])["text"]
    first = program("tokenize", "-m", model, "--ids", "-p", plain)[1].split()[0].decode()
    forbidden = json.loads(program(*args, "--logit-bias", f"{first}-inf")[1])["text"]
    word = program("tokenize", "-m", model, "--decode", "-p", first)[1].decode()
    assert plain.startswith(word.rstrip("\n")) and not forbidden.startswith(word.rstrip("\n"))
    for flag in ("--presence-penalty", "--frequency-penalty"):
        assert json.loads(program(*args, flag, "50")[1])["text"] != plain
    hot = ["--temp", "5", "--min-p", "0", "--top-p", "1", "--top-k", "0", "--seed", "3"]
    wild = json.loads(program(*args, *hot)[1])["text"]
    assert wild != plain and json.loads(program(*args, *hot, "--typical", "0.01")[1])["text"] != wild
    assert json.loads(program(*args, *hot, "--top-n-sigma", "0.001")[1])["text"] == plain
    status, _, err = program(*args, "--logit-bias", "99999999+1")
    assert status == 2 and "token 99999999 is not in the vocabulary" in one_line(err)


def test_run_stop_and_system(program, model):
    args = ["run", "-m", model, "--raw", "-p", "One, two, three, four, five,", "--temp", "0", "-n", "20", "--json"]
    plain = json.loads(program(*args)[1])
    stop = plain["text"][8:11]
    report = json.loads(program(*args, "--stop", "never said", "-r", stop)[1])
    assert report["finish"] == "stop" and stop not in report["text"] and plain["text"].startswith(report["text"])
    status, _, err = program(*args, "--system", "Be brief.")
    assert status == 2 and "--raw" in one_line(err) and "--system" in one_line(err)
    escaped = json.loads(program(*args, "-e", "-r", "".join(rf"\x{byte:02x}" for byte in stop.encode()))[1])
    assert escaped["finish"] == "stop" and escaped["text"] == report["text"]
    with_system = json.loads(program("run", "-m", model, "-p", "Hi", "--system", "Speak like a pirate.", *GREEDY, "--json")[1])
    without = json.loads(program("run", "-m", model, "-p", "Hi", *GREEDY, "--json")[1])
    assert with_system["tokens_prompt"] != without["tokens_prompt"]


def test_run_stop_at_a_cut_character(program, model):
    """What stands at the end for a character whose rest did not come is text, too."""
    lead = program("tokenize", "-m", model, "--ids", "-p", "\U0001f999")[1].split()[0].decode()
    args = ["run", "-m", model, "--raw", "-p", "One", "--logit-bias", f"{lead}+1000", "-n", "1", "--json"]
    assert json.loads(program(*args)[1])["text"] == "\ufffd"
    report = json.loads(program(*args, "--stop", "\ufffd")[1])
    assert report["finish"] == "stop" and report["text"] == ""


def test_run_context_limit(program, model):
    status, out, err = program("run", "-m", model, "--raw", "-p", TEXT, "-c", "64")
    assert status == 1 and out == b""
    assert 64 < int(re.search(r"the prompt has (\d+) tokens, but the context holds 64", one_line(err)).group(1)) < len(TEXT)
    # Long ones are not tokenised to their end, be they of words or of blanks.
    for text in TEXT * 20000, " " * 1000000:
        status, out, err = program("run", "-m", model, "--raw", "-c", "64", stdin=text)
        assert status == 1 and "more than 64 tokens, but the context holds 64" in one_line(err)
    report = json.loads(program("run", "-m", model, "--raw", "-p", "Once", "-c", "16", "--json", "--ignore-eos")[1])
    assert report["finish"] == "context" and report["tokens_generated"] <= 16


def test_first_interrupt_keeps_what_there_is(program, model):
    for json_flag in ([], ["--json"]):
        p = program.start("run", "-m", model, "--raw", "-p", "A long story:", "--ignore-eos", *json_flag)
        if json_flag:
            time.sleep(2)
        else:
            first = p.stdout.read(20)  # more than one token: the first one is the prompt's
        p.send_signal(signal.SIGINT)
        out, err = p.communicate(timeout=30)
        assert p.returncode == 130
        if json_flag:
            report = json.loads(out)
            assert report["finish"] == "interrupted" and report["tokens_generated"] > 0
        else:
            assert first and b"generation" in err and b"tokens/s" in err


def test_full_disk_ends_the_generation(program, model):
    with open("/dev/full", "wb") as full:
        p = program.start("run", "-m", model, "--raw", "-p", "A long story:", "--ignore-eos", stdout=full)
        _, err = p.communicate(timeout=30)
    assert p.returncode == 1 and "standard output: No space left" in err.decode()


def test_a_reader_that_leaves(program, model):
    """Where SIGPIPE is ignored, the run ends without a word, as any other output that nobody reads."""
    read, write = os.pipe()
    os.close(read)
    p = program.start("run", "-m", model, "--raw", "-p", "A long story:", "--ignore-eos", stdout=write, restore_signals=False)
    os.close(write)
    _, err = p.communicate(timeout=30)
    assert p.returncode == 1 and err == b""


def test_closed_standard_streams(program, model, tmp_path):
    """No file that is opened takes the place of a closed stream: the text does not get into the trace."""
    trace = tmp_path / "trace.csv"
    run = ["run", "-m", model, "--raw", "-p", "A long story:", "-n", "4", "--kv-trace", str(trace)]
    for closed, status in ((">&-", 1), ("2>&-", 0), ("<&- >&- 2>&-", 1)):
        p = subprocess.run(["sh", "-c", 'exec "$0" "$@" ' + closed, program.path, *run], env=program.env, check=False,
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
        assert p.returncode == status, closed
        first, *lines = trace.read_bytes().splitlines() or [b""]  # nothing where no step has come
        assert first.startswith(b"step,layer,") or (status and not first), closed
        assert all(re.fullmatch(rb"(\d+,){9}\d+", line) for line in lines) and (lines or status), closed


def test_a_trace_that_cannot_be_written(program, model):
    run = ["run", "-m", model, "--raw", "-p", "A long story:", *GREEDY]
    status, out, err = program(*run, "--kv-trace", "/dev/full")
    assert status == 1 and out == program(*run)[1] and "/dev/full" in one_line(err)


def test_statistics_come_after_the_text(program, model, tmp_path):
    (tmp_path / "text").write_text(TEXT)
    p = program.start("perplexity", "-m", model, "-f", tmp_path / "text", "-c", "64", "--chunks", "1", "-v",
                      stderr=subprocess.STDOUT)
    out = p.communicate(timeout=60)[0].decode()
    assert p.returncode == 0 and 0 < out.index("Final estimate") < out.index("tokens/s")


def test_statistics_begin_a_line(program, model):
    """Where both streams go to one place; a standard output of its own stays as it is."""
    run = ["run", "-m", model, "--raw", "-p", "The capital of France is", "-n", "1", "--temp", "0"]
    text = program(*run)[1]
    assert text and not text.endswith(b"\n")
    status, out, err = program(*run, "-v")
    assert status == 0 and out == text and b"generation" in err
    p = program.start(*run, "-v", stderr=subprocess.STDOUT)
    assert text + b"\nprompt " in p.communicate(timeout=60)[0]


def test_the_folder_of_the_disk_tier(program, model):
    """Named as it is, in an error, and made where it is not there."""
    run = ["run", "-m", model, "--raw", "-p", TEXT, "-n", "2", "--kv-disk", "8K"]
    status, _, err = program(*run)
    assert status == 1 and program.home + "/cache/infinigen/kv: " in one_line(err)
    assert os.listdir(program.home + "/cache/infinigen/kv") == []


def test_run_on_a_terminal(terminal, model):
    t = terminal("run", "-m", model, "-p", "Hi", *GREEDY)
    text, status = t.finish()
    assert status == 0 and b"tokens/s" in text and b"seed" in text


def test_control_characters(program, terminal, model):
    text = "a\x1b[31mred\x07\u009bx\n"
    ids = program("tokenize", "-m", model, "--ids", "-p", text)[1].decode().strip()
    assert program("tokenize", "-m", model, "--decode", "-p", ids)[1].decode() == text
    shown, status = terminal("tokenize", "-m", model, "--decode", "-p", ids).finish()
    assert status == 0 and b"\x1b" not in shown and b"\x07" not in shown and b"\xc2\x9b" not in shown
    assert b"a^[[31mred^G^[[x" in shown
    pieces = program("tokenize", "-m", model, "-p", text)[1]
    assert b"\x1b" not in pieces and b"\xc2\x9b" not in pieces


def test_tokenize(program, model):
    text = "Hello  world, ünïcode \U0001f600\r\n\ttwo <|im_end|>"
    status, out, err = program("tokenize", "-m", model, "--ids", stdin=text)
    assert (status, err) == (0, b"")
    ids = [int(w) for w in out.split()]
    assert out == (" ".join(map(str, ids)) + "\n").encode()
    assert json.loads(program("tokenize", model, text, "--json")[1])["tokens"] == ids
    assert program("tokenize", "-m", model, "--decode", stdin=out)[1].decode() == text
    assert program("tokenize", "-m", model, "--decode", "-p", str(ids))[1].decode() == text
    special = program("tokenize", "-m", model, "--ids", "--special", stdin=text)[1].split()
    assert len(special) < len(ids)
    assert program("tokenize", "-m", model, "--ids", stdin="")[:2] == (0, b"\n")
    assert len(program("tokenize", "-m", model, stdin=text)[1].splitlines()) == len(ids)
    for bad, message in (("1 x", "is not a token id"), ("-1", "is not between"), ("1 99999999999", "is not between")):
        status, out, err = program("tokenize", "-m", model, "--decode", "-p", bad)
        assert status == 2 and out == b"" and message in one_line(err)


def test_perplexity(program, model, tmp_path):
    (tmp_path / "text").write_text(TEXT)
    args = ["perplexity", "-m", model, "-f", tmp_path / "text"]
    status, out, err = program(*args, "-c", "128", "--json")
    report = json.loads(out)
    assert status == 0 and err == b"" and len(report["chunks"]) >= 4
    assert report["tokens_scored"] == sum(c["tokens_scored"] for c in report["chunks"])
    assert all(c["tokens_scored"] == 128 - 64 - 1 for c in report["chunks"])
    nll = sum(c["nll"] * c["tokens_scored"] for c in report["chunks"]) / report["tokens_scored"]
    assert report["nll"] == pytest.approx(nll) and report["perplexity"] == pytest.approx(math.exp(nll))
    lines = program(*args, "-c", "128", "--chunks", "2")[1].decode().splitlines()
    assert lines[0].startswith("[1]") and "[2]" in lines[0] and "[3]" not in lines[0]
    assert lines[1].startswith("Final estimate: PPL = ")
    status, _, err = program(*args, "-c", "8192")
    assert status == 1 and "less than one chunk" in one_line(err)


def test_interrupts_between_single_steps(program, model, tmp_path):
    """A chunk, or a prompt of bench, that is one step of the model: a measurement ends after the one at hand."""
    (tmp_path / "text").write_text(TEXT * 20)
    p = program.start("perplexity", "-m", model, "-f", tmp_path / "text", "-c", "64")
    assert p.stdout.read(1) == b"["
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=60)
    done, of = map(int, re.search(rb"\nEstimate after (\d+) of (\d+) chunks: PPL = ", out).groups())
    assert p.returncode == 130 and "interrupted" in one_line(err) and 1 <= done < of

    p = program.start("bench", "-m", model, "-p", "512", "-n", "0", "-r", "1000")
    time.sleep(2)
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=60)
    assert p.returncode == 130 and "interrupted" in one_line(err) and b"pp512" not in out


def test_perplexity_dense_prefix(program, model, tmp_path):
    (tmp_path / "text").write_text(TEXT)
    args = ["perplexity", "-m", model, "-f", tmp_path / "text", "-c", "256", "--chunks", "1", "--json"]
    dense = json.loads(program(*args, "--dense-prefix", "128", "--kv-policy", "full")[1])
    sparse = json.loads(program(*args, "--dense-prefix", "128", "--kv-policy", "infinigen", "--kv-budget", "20%")[1])
    assert dense["tokens_scored"] == sparse["tokens_scored"] == 128
    assert dense["kv"]["selected_share"] == 1 and sparse["kv"]["selected_share"] < 0.5
    assert abs(sparse["nll"] - dense["nll"]) < 0.3 and sparse["nll"] != dense["nll"]
    # Scored one by one or in one pass: the second half of the chunk is the same text.
    half = json.loads(program(*args)[1])
    assert half["tokens_scored"] == 127 and abs(half["nll"] - dense["nll"]) < 0.05


def test_quality_on_real_text(program, model):
    """A twentieth of the entries is nearly as good as all of them, owing to the estimate of what is not read."""
    args = ["perplexity", "-m", model, "-f", f"{ROOT}/docs/commands.md", "-c", "3072", "--dense-prefix", "2944", "--chunks", "1",
            "--kv-sketch", "none", "--kv-budget", "5%", "--json"]
    policies = ["--kv-policy", "full,infinigen,window"]
    full, infinigen, window = json.loads(program(*args, *policies)[1])["runs"]
    alone = json.loads(program(*args, "--kv-policy", "full,infinigen", "--no-kv-rest")[1])["runs"][1]
    assert infinigen["selected_share"] < 0.051
    assert infinigen["kl"] < 0.025 and 2 * infinigen["kl"] < alone["kl"] < window["kl"]
    assert abs(infinigen["nll"] - full["nll"]) < 0.05


def test_chat_on_a_pipe(program, model):
    status, out, err = program("chat", "-m", model, *GREEDY, stdin='Say hello.\n/reset\n"""\nSay\nbye.\n"""\n/exit\nnever\n')
    assert (status, err) == (0, b"") and out.count(b"\n") >= 2


def test_chat_on_a_terminal(program, terminal, model):
    t = terminal("chat", "-m", model, "--temp", "0")
    t.read_until(b"> ")
    t.type("/help\n")
    t.read_until(b"/reset")
    t.read_until(b"> ")
    t.type("Tell a very long story about the sea.\n")
    t.read_until(b"sea.\r\n")
    t.read_until(b" ")
    time.sleep(0.5)
    t.type("\x03")  # stops the answer, not the program
    t.read_until(b"\n> ")
    t.type("one \\\n")
    t.read_until(b". ")
    t.type("\x03")  # withdraws the line
    t.read_until(b"> ")
    t.type("/stats\n")
    t.read_until(b"tokens/s")
    t.read_until(b"> ")
    t.type("\x04")
    assert t.finish()[1] == 0
    with open(program.home + "/state/infinigen/history", encoding="utf-8") as f:
        assert "very" in f.read()


def test_a_store_is_of_the_weights_wherever_they_lie(program, model, tmp_path):
    """Mapped, copied, or copied and then put in another order."""
    args = "run", "-m", model, "--raw", "-p", words(300, 1), "-n", 1, "-c", 1024, "-t", 2, "--json", "--kv-store", tmp_path / "kv"
    stored = [json.loads(program(*args, *how)[1])["tokens_stored"] for how in ([], ["--no-mmap"], ["--no-mmap", "--no-repack"])]
    assert stored[0] == 0 and stored[1] == stored[2] >= 128
