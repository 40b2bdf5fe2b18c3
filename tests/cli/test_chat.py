# SPDX-License-Identifier: Apache-2.0
"""Conversations, on a pipe and on a terminal, with a tiny model whose tokens are single bytes."""
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import termios
import time

import pytest
from conftest import CHANNEL, END, MESSAGE, START, make_channel_model, make_model, one_line, words

# An answer that is still being made when somebody has typed (see Terminal.type): 1000 tokens take 0.16 s on a fast processor.
LONG_ANSWER = ("-n", "8000")
PASTE, PASTE_END = "\033[200~", "\033[201~"


@pytest.fixture(scope="module")
def talker(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("chat") / "model")


@pytest.fixture
def chat(program, talker):
    def start(*args, messages, greedy=True):
        args = ["-m", talker, "-t", "1", *args, *(["--temp", "0"] if greedy else [])]
        return program("chat", *args, stdin="".join(message + "\n" for message in messages))
    return start


@pytest.fixture
def talk(program, terminal, talker):
    def start(*args, **kw):
        t = terminal("chat", "-m", talker, "-t", "1", "--temp", "0", *args, **kw)
        if b"\033[?2004h" not in t.read_until(b"/help lists") and program.env["TERM"] != "dumb":
            os.close(t.fd)  # the terminal hangs up
            os.waitpid(t.pid, 0)
            pytest.skip("built without libedit")
        t.read_until(b"> ")
        return t
    return start


@pytest.mark.parametrize("message", ("/undo", "/again", "/nothing", "/undo now", "/save name"))
def test_a_script_is_told_what_failed(chat, message):
    status, out, err = chat(messages=[message, "/help"])
    assert status == 1 and b"/again" in out
    one_line(err)


def test_input_that_cannot_be_read(program, talker, tmp_path):
    with_folder = os.open(tmp_path, os.O_RDONLY)
    p = program.start("chat", "-m", talker, stdin=with_folder)
    _, err = p.communicate(timeout=60)
    os.close(with_folder)
    assert p.returncode == 1 and "standard input: Is a directory" in one_line(err)


def test_zero_byte(chat):
    """Such a message is left out: what stands before the byte is another message."""
    status, out, err = chat("-n", "4", messages=["a\0b", "\0", "/help"])
    assert status == 1 and out.startswith(b"/help") and err.count(b"contains a zero byte: it is left out") == 2


@pytest.mark.parametrize("flags, typed", (("-p one", "one"), ("-f FILE", "one"), ("-f FILE -p two", '"""\none\n\ntwo\n"""')))
def test_first_message(chat, tmp_path, flags, typed):
    """Of the flags is as if it had been typed."""
    (tmp_path / "file").write_text("one\n")
    flags = flags.replace("FILE", str(tmp_path / "file")).split()
    status, out, err = chat("-n", "8", *flags, messages=["three"])
    assert status == 0 and out and err == b""
    assert out == chat("-n", "8", messages=[typed, "three"])[1]
    assert chat("-n", "8", "-p", "/exit", messages=["three"])[1].count(b"\n") >= 2  # no command
    status, _, err = chat("-f", tmp_path / "none", messages=["three"])
    assert status == 1 and "No such file" in one_line(err)


@pytest.mark.parametrize("number", (signal.SIGINT, signal.SIGTERM))
def test_first_answer_is_stopped(program, talker, number):
    """Then a script's conversation is over."""
    p = program.start("chat", "-m", talker, "-t", "1", "--temp", "0", "-p", "one", *LONG_ANSWER, "-c", "16000", stdin=subprocess.PIPE)
    try:
        assert p.stdout.read(1)
        p.send_signal(number)
        assert p.wait(timeout=20) == 130  # though nothing ends its standard input
    finally:
        p.kill()
        p.communicate()


# ---- channels -----------------------------------------------------------------------------------------------


def next_message(channel, text):
    return f'<[{END}]> <[{START}]> "assistant" <[{CHANNEL}]> "{channel}" <[{MESSAGE}]> "{text}"'


def test_channels(program, tmp_path):
    """Thoughts of a model that answers in channels are shown as other models write them, and leave the conversation."""
    model = make_channel_model(tmp_path / "model")
    grammar = f'root ::= "Well. " {next_message("analysis", "Hm <b>.")} {next_message("final", "So.")}'
    shown = b"Well. <think>\nHm <b>.\n</think>\n\nSo."
    for flags in ([], ["--json"]):
        status, out, err = program("run", "-m", model, "-p", "a", "--grammar", grammar, *flags)
        assert status == 0 and (json.loads(out)["text"].encode() if flags else out) == shown, (out, err)
    status, out, err = program("run", "-m", model, "-p", "a", "-n", 29, "--grammar", grammar)
    assert status == 0 and out == b"Well. <think>\nHm", (out, err)
    raw = "Well. <|end|><|start|>assistant<|channel|>analysis<|message|>Hm <b>.<|end|><|start|>assistant<|channel|>final<|message|>So."
    for flags in (["--special"], ["--raw", "--special"]):
        status, out, err = program("run", "-m", model, "-p", "a", "--grammar", grammar, *flags)
        assert status == 0 and out.decode() == raw
    store = ["--kv-store", tmp_path / "kv"]
    status, out, err = program("chat", "-m", model, "--grammar", grammar, *store, stdin=b"a\nb\n/save it\n")
    assert status == 0 and out == 2 * (shown + b"\n"), (out, err)
    status, out, err = program("chat", "-m", model, *store, stdin=b"/resume it\n/save it\n")
    notes = [p.read_bytes() for p in (tmp_path / "kv").rglob("*") if p.is_file() and b"Well. So." in p.read_bytes()]
    assert notes and not any(b"Hm <b>" in n for n in notes)


def test_recipients(program, tmp_path):
    model = make_channel_model(tmp_path / "model", recipients=True)
    grammar = (f'root ::= "Hm." <[{END}]> <[{START}]> "assistant to=self" <[{MESSAGE}]> "Well." <[{END}]> <[{START}]>'
               f' "assistant to=user" <[{MESSAGE}]> "So."')
    status, out, err = program("run", "-m", model, "-p", "a", "--grammar", grammar)
    assert status == 0 and out == b"Hm.<think>\nWell.\n</think>\n\nSo.", (out, err)


# ---- turns --------------------------------------------------------------------------------------------------


def test_oldest_turns_leave(chat):
    """The last message is longer than half of the context: it is answered as if nothing but the system prompt had been
    before it."""
    long = words(250, 1)
    alone = chat("-c", "400", "-n", "30", "-sys", "Be brief.", messages=[long])
    other = chat("-c", "400", "-n", "30", messages=[long])
    assert alone[0] == 0 and alone[1] != other[1]
    status, out, err = chat("-c", "400", "-n", "30", "-sys", "Be brief.", messages=["One.", "Two.", long])
    assert status == 0 and out.endswith(alone[1])
    assert re.search(r"context of 400 tokens .* the oldest 2 of 2 turns leave it \(\d+ tokens\)", one_line(err))


def test_context_never_ends_a_conversation(chat):
    """Turns leave in bulk, not at every message, and no more than has to."""
    messages = [words(50, seed) for seed in range(30)]
    status, out, err = chat("-c", "1000", "-n", "20", messages=messages)
    assert status == 0
    left = [tuple(map(int, found)) for found in re.findall(rb"the oldest (\d+) of (\d+) turns leave it .(\d+) tok", err)]
    assert len(left) == err.count(b"\n") and 2 <= len(left) <= 10
    # From 980 tokens or more to half of the context, or a turn (of at most 300 tokens) less.
    assert all(0 < n < of and 480 <= n_tokens <= 800 for n, of, n_tokens in left)


def test_message_that_does_not_fit(chat):
    """It is left out, and the turns before it stay."""
    expected = chat("-c", "400", "-n", "20", messages=["One.", "Two."])
    status, out, err = chat("-c", "400", "-n", "20", messages=["One.", words(500, 1), "Two."])
    assert (status, out) == (1, expected[1])
    assert "the message alone makes a prompt of" in one_line(err) and "the context holds 400" in one_line(err)
    # One that is far too long is not counted to its end.
    status, out, err = chat("-c", "400", "-n", "20", messages=["One.", "x " * 600000, "Two."])
    assert (status, out) == (1, expected[1]) and "the prompt has more than 400 tokens" in one_line(err)


def test_answer_at_the_end_of_the_context(chat):
    status, out, err = chat("-c", "300", messages=["One.", "Two."])
    first, *rest = err.decode().splitlines()
    assert status == 0 and "the context of 300 tokens is full, which ends the answer" in first
    assert "the oldest 1 of 1 turns" in rest[0]
    # Both answers are those of fresh conversations.
    assert out == b"".join(chat("-c", "300", messages=[message])[1] for message in ("One.", "Two."))


def test_undo(chat):
    one, two, after_one = (chat("-n", "20", messages=m)[1] for m in (["One."], ["Two."], ["One.", "Two."]))
    assert after_one == one + after_one[len(one):] and not after_one.endswith(two)
    status, out, err = chat("-n", "20", messages=["One.", "/undo", "Two."])
    assert (status, out, err) == (0, one + two, b"")
    assert chat("-n", "20", messages=["One.", "Two.", "/undo", "Two."])[1] == after_one + after_one[len(one):]
    status, out, err = chat("-n", "20", messages=["One.", "/undo", "/undo", "/again"])
    assert (status, out) == (1, one) and err.count(b"\n") == 2


def test_again(chat):
    one, after_one = (chat("-n", "20", messages=m)[1] for m in (["One."], ["One.", "Two."]))
    # The old answer is not there when the new one is made, nor the message twice.
    assert chat("-n", "20", messages=["One.", "/again", "Two."])[1] == one + after_one
    args = ["-n", "20", "--temp", "2", "--seed", "3"]
    status, out, err = chat(*args, messages=["One.", "/again"], greedy=False)
    first = chat(*args, messages=["One."], greedy=False)[1]
    assert (status, err) == (0, b"") and out.startswith(first) and out != first + first


def test_commands(chat):
    status, out, err = chat(messages=["/help", "/nonsense\033[2J"])
    assert status == 1 and b"\033" not in err
    for command in (b"/help", b"/again", b"/undo", b"/reset", b"/stats", b"/exit"):
        assert command in out and command in one_line(err).encode()


# ---- keys ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command, wanted", [
    ("/set temp 0", "no such command"),
    ("/?", "no such command"),
    ("/undo it", "/undo stands alone"),
])
def test_no_message_of_a_wrong_command(chat, command, wanted):
    expected = chat("-n", "5", messages=["One."])[1]
    status, out, err = chat("-n", "5", messages=[command, "One."])
    assert (status, out) == (1, expected) and wanted in one_line(err)


@pytest.mark.parametrize("message", [" /set temp 0", "/etc/fstab has what?", "// a comment"])
def test_message_with_a_slash(chat, message):
    status, out, err = chat("-n", "5", messages=[message])
    assert status == 0 and len(out) > 1 and err == b""


@pytest.mark.parametrize("end", ["/exit ", "/quit\t", "/bye\r"])
def test_blanks_after_a_command(chat, end):
    assert chat("-n", "5", messages=["One.\r", end, "Two."]) == chat("-n", "5", messages=["One."])


def test_cancelled_search(talk):
    """Ctrl-C in a history search comes back to an empty prompt."""
    t = talk("-n", "5")
    t.type("find me\n")
    t.read_until(b"\n> ")
    t.type("\x12find")
    t.read_until(b"bck:")
    t.type("\x03")
    t.read_until(b"> ")
    t.type("/help\n")
    t.read_until(b"/reset")
    t.read_until(b"> ")
    t.type("\x04")
    assert t.finish()[1] == 0


def test_ctrl_c_at_the_prompt(talk):
    t = talk("-n", "5")
    t.type("never sent")
    t.type("\x03")
    assert b"/exit" not in t.read_until(b"\n> ")
    t.type("\x03")
    assert b"Ctrl-D or /exit" in t.read_until(b"\n> ")
    t.type("/again\n")
    t.read_until(b"there is no message")
    t.read_until(b"> ")
    t.type("\x04")
    assert t.finish()[1] == 0


def prompt_size(err):
    return int(re.search(rb"a prompt of (\d+) tokens", err).group(1))


@pytest.mark.parametrize("n_lines", (12, 3000))
def test_paste(talk, chat, n_lines):
    """One message with its newlines, however long; what it holds does not drive the terminal, nor stop the program."""
    lines = [f"line {i} of what is pasted" for i in range(n_lines)]
    text = "\n".join([*lines, '"""', "quoted \\", "control \033[31m\x03\x1a\x04 \a\u20ac", "/exit"])
    # A token is a byte, and an error tells how many there are.
    template = prompt_size(chat("-c", "64", messages=["x" * 64])[2]) - 64
    t = talk("-c", "64", "-n", "5")
    start = time.monotonic()
    t.type(PASTE + text.replace("\n", "\r") + "\r" + PASTE_END)
    t.read_until(b"control ^[[31m^C^Z^D ^G\xe2\x82\xac")
    t.type("and more\n")
    seen = t.read_until(b"it is left out")
    assert time.monotonic() - start < 20
    assert b"\033[31m" not in seen and b"\a" not in seen
    assert prompt_size(seen) - template == len((text + "\nand more").encode())
    t.read_until(b"> ")
    t.type("/exit\n")
    assert t.finish()[1] == 0


def test_cut_paste(talk):
    """A paste whose end never comes does not hold the keyboard; the one after it comes whole."""
    t = talk("-n", "5")
    t.type(PASTE + "one\rtwo")
    t.read_until(b"two")
    t.type(" three")
    t.read_until(b"three")
    t.type("\x03")
    t.read_until(b"\n> ")
    t.type(f"{PASTE}/ex{PASTE_END}it\n")
    assert t.finish()[1] == 0


def test_keys_during_an_answer(talk):
    """They do not show in it, and are there at the next prompt; a paste among them is still one."""
    t = talk(*LONG_ANSWER)
    t.type("hello\n")
    t.read_until(b"hello")
    t.read_until(b"\n")
    t.type("typed " + PASTE + "ahead\rof it" + PASTE_END)
    answer = t.read_until(b"\n> ")
    assert b"typed" not in answer and b"ahead" not in answer
    t.read_until(b"typed")
    t.read_until(b"ahead\r\nof it")
    t.type("\x03")
    t.read_until(b"\n> ")
    t.type("\x04")
    assert t.finish()[1] == 0


def echoes(t):
    """Whether the terminal shows keys and cuts them into lines, as it did before the program came."""
    modes = termios.tcgetattr(t.fd)[3]
    return bool(modes & termios.ECHO), bool(modes & termios.ICANON), bool(modes & termios.ISIG)


def finish_with_modes(t):
    """What finish() gives, and the modes that the terminal is left in."""
    kept = os.dup(t.fd)
    seen, status = t.finish()
    t.fd = kept
    modes = echoes(t)
    os.close(kept)
    return seen, status, modes


@pytest.mark.parametrize("end", ("/exit", signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGABRT))
@pytest.mark.parametrize("is_answering", (False, True))
def test_terminal_is_given_back(talk, end, is_answering):
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    t = talk("-n", "20" if end == "/exit" else "-1", "-c", "30000")
    assert echoes(t)[:2] == (False, False)
    if is_answering:
        t.type("hello\n")
        t.read_until(b"hello\r\n")
        assert echoes(t)[:2] == (False, False)
    if end == "/exit":
        t.type("/exit\n")
    else:
        os.kill(t.pid, end)
    seen, status, modes = finish_with_modes(t)
    assert modes == (True, True, True) and b"\033[?2004l" in seen
    assert status == (0 if end == "/exit" else 130 if end == signal.SIGTERM else -end)


def test_lines_are_wrapped_where_the_terminal_ends(talk):
    """The way back to the beginning of a line leads up two."""
    t = talk("-n", "1", by=("sh", "-c", 'stty cols 20 rows 24; exec "$0" "$@"'))
    t.type("x" * 50)
    t.read_until(b"x" * 12)
    t.type("\x01y")  # Ctrl-A
    assert b"\x1b[2A" in t.read_until(b"> y")
    t.type("\x15/exit\n")
    assert t.finish()[1] == 0


def test_second_ctrl_c(talk):
    t = talk("-c", "30000")
    t.type("hello\n")
    t.read_until(b"hello\r\n")
    os.kill(t.pid, signal.SIGSTOP)  # so that the first one is not obeyed before the second comes
    for _ in range(2):
        os.kill(t.pid, signal.SIGINT)
    os.kill(t.pid, signal.SIGTERM)
    os.kill(t.pid, signal.SIGCONT)
    _, status, modes = finish_with_modes(t)
    assert status in (-signal.SIGINT, -signal.SIGTERM) and modes == (True, True, True)


@pytest.mark.parametrize("is_answering", (False, True))
def test_stop_and_go_on(talk, is_answering):
    if not shutil.which("bash"):
        pytest.skip("no bash")
    shell = 'set -m; "$0" "$@"; echo stopped; read -r; fg; echo ended with $?'
    t = talk(*LONG_ANSWER, by=("bash", "-c", shell))
    t.type("half")
    t.read_until(b"half")
    if is_answering:
        t.type("\n")
        t.read_until(b"\n")
    t.type("\x1a")
    assert b"\033[?2004l" in t.read_until(b"stopped")
    assert echoes(t) == (True, True, True)
    t.type("\n")
    t.read_until(b"\033[?2004h")
    if is_answering:
        t.read_until(b"\n> ")
    else:
        t.read_until(b"half")
    assert echoes(t)[:2] == (False, False)
    t.type("\x03")
    t.read_until(b"\n> ")
    t.type("\x04")
    t.read_until(b"ended with 0")
    t.finish()


def test_terminal_without_editing(program, talk):
    """Lines are those of the terminal, as in a build without libedit."""
    program.env["TERM"] = "dumb"
    t = talk(*LONG_ANSWER)
    assert echoes(t) == (True, True, True)
    t.type("one \\\n")
    t.read_until(b". ")
    t.type("two\n")
    t.read_until(b"two\r\n")
    t.type("/help\n")
    assert b"/help" not in t.read_until(b"\n> ")
    t.read_until(b"/reset")
    t.read_until(b"> ")
    t.type("never sent")
    t.type("\x03")
    t.read_until(b"\n> ")
    t.type("/undo\n/undo\n")
    t.read_until(b"no turn")
    t.type("\x04")
    seen, status, modes = finish_with_modes(t)
    assert status == 0 and modes == (True, True, True) and b"\033[?2004" not in seen


def history_of(program, folder="state/infinigen"):
    """Entries, as libedit writes them."""
    with open(os.path.join(program.home, folder, "history"), encoding="utf-8") as f:
        return [line.replace(r"\012", "\n").replace(r"\134", "\\") for line in f.read().splitlines()[1:]]


def test_history_of_two_conversations(program, talk):
    """Each adds what it has; a conversation that is killed has lost nothing."""
    first, second = talk("-n", "5"), talk("-n", "5")
    for t, line in ((first, "one\\\nmore\n"), (second, "two\n"), (first, "three\n"), (second, "four\n")):
        t.type(line)
        t.read_until(b"\n> ")
    second.type("/exit\n")
    assert second.finish()[1] == 0
    os.kill(first.pid, signal.SIGKILL)
    first.finish()
    assert history_of(program) == ["one\\\nmore\n", "two\n", "three\n", "four\n", "/exit\n"]
    assert os.listdir(program.home + "/state/infinigen") == ["history"]


@pytest.mark.parametrize("target", ("elsewhere/history", "/dev/null"))
def test_history_behind_a_link(program, talk, target):
    """The link stays, also to what is not there yet or is no file."""
    os.makedirs(program.home + "/state/infinigen")
    os.makedirs(program.home + "/elsewhere")
    link = program.home + "/state/infinigen/history"
    os.symlink(os.path.join(program.home, target), link)
    for line in ("one", "two"):
        t = talk("-n", "5")
        t.type(line + "\n")
        t.read_until(b"\n> ")
        t.type("\x04")
        assert t.finish()[1] == 0
    assert os.path.islink(link) and not os.path.isfile("/dev/null")
    if target != "/dev/null":
        assert history_of(program, "elsewhere") == ["one\n", "two\n"]


def test_history_on_a_full_disk(program, talk):
    """It keeps what it has, and nothing is left beside it."""
    t = talk("-n", "5")
    t.type("one\n")
    t.read_until(b"\n> ")
    resource.prlimit(t.pid, resource.RLIMIT_FSIZE, (16, resource.RLIM_INFINITY))
    t.type("two\n")
    t.read_until(b"\n> ")
    assert history_of(program) == ["one\n"]
    resource.prlimit(t.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    t.type("\x04")
    assert t.finish()[1] == 0 and history_of(program) == ["one\n", "two\n"]
    assert os.listdir(program.home + "/state/infinigen") == ["history"]


# ---- saved conversations ------------------------------------------------------------------------------------


def stored_tokens(err):
    """Of /stats: tokens of prompts computed, and read from the store."""
    found = re.search(rb"prompt +(\d+) tokens .*?(?:and (\d+) that were stored)?\n", err)
    return int(found.group(1)), int(found.group(2) or 0)


def forget_kv(store):
    """The notes stay."""
    for name in os.listdir(store):
        if name.startswith(("kv-", "index")):
            os.unlink(store / name)


def test_save_and_resume(chat, tmp_path):
    """The next answer reads the keys and values of the whole conversation, and is the same if there are none."""
    store = tmp_path / "kv"
    args = ["-n", "40", "--kv-store", store, "--kv-budget", "10%"]
    status, out, err = chat(*args, "-sys", "Be brief.", messages=[words(300, 1), "Two.", "/save talk", "/save old"])
    assert (status, err) == (0, b"")
    status, out, err = chat(*args, messages=["/resume talk", "Three.", "/stats"])
    computed, stored = stored_tokens(err)
    # Two answers of 40 tokens, 300 and 4 of messages, and the template's; but for a piece and the new message.
    assert status == 0 and stored >= 384 and computed < 100
    forget_kv(store)
    again = chat(*args, messages=["/resume talk", "Three.", "/stats"])
    assert again[:2] == (0, out) and stored_tokens(again[2])[1] == 0
    # The system prompt came back as well.
    assert chat(*args, messages=["/resume talk", "/again"])[1] != chat(*args, messages=[words(300, 1), "Two."])[1]
    status, out, err = chat(*args, messages=["/resume"])
    assert status == 0 and re.fullmatch(rb"old +\d+ B +20\d\d-\d\d-\d\d \d\d:\d\d\ntalk +\d+ B +20.*\n", out)


def test_resume_with_other_settings(chat, tmp_path, monkeypatch):
    """What is saved is a conversation, whatever keys and values it had."""
    args = ["-n", "20", "--kv-store", tmp_path / "kv"]
    assert chat(*args, messages=["One.", "/save talk"])[0] == 0
    asked = ["/resume talk", "Two."]
    wanted = chat(*args, "--kv-type", "q8", messages=asked)
    assert wanted[0] == 0 and wanted[1]
    monkeypatch.setenv("IG_CPU_MASK", "scalar")
    status, out, err = chat(*args, messages=asked)
    assert (status, err) == (0, b"") and out


def test_resume_replaces(chat, tmp_path):
    args = ["-n", "20", "--kv-store", tmp_path / "kv"]
    one = chat(*args, messages=["One.", "/save one"])[1]
    first, rest = chat(*args, messages=["Other.", "/resume one", "/again"])[1], chat("-n", "20", messages=["Other."])[1]
    assert first == rest + one
    # It can be saved under its name again, with what was added.
    chat(*args, messages=["/resume one", "Two.", "/save one"])
    status, out, err = chat(*args, messages=["/resume one", "/undo", "/undo", "/undo"])
    assert status == 1 and "no turn to take back" in one_line(err)


def test_saved_bytes_are_what_they_were(program, talker, tmp_path):
    """Also what is no UTF-8."""
    args = ["chat", "-m", talker, "-t", "1", "--temp", "0", "-n", "30", "--kv-store", tmp_path / "kv"]
    status, out, err = program(*args, stdin=b"\xff\xfe \xc3( \x01 \"quoted\\ one\"\n/save bytes\n")
    assert (status, err) == (0, b"")
    status, again, err = program(*args, stdin=b"/resume bytes\n/again\n")
    assert (status, again, err) == (0, out, b"")


@pytest.mark.parametrize("command, wanted", [
    ("/save talk", "there is no turn to save"),
    ("/resume", "nothing is saved"),
    ("/resume talk", "no conversation 'talk' is saved"),
    ("/resume a b", "a name is 1 to 64 letters"),
    ("/resume \033[2J", "a name is 1 to 64 letters"),
    ("/resume " + 65 * "x", "a name is 1 to 64 letters"),
    ("/resume .x", "a name is 1 to 64 letters"),
    ("/resumes", "no such command"),
])
def test_nothing_to_resume(chat, tmp_path, command, wanted):
    expected = chat("-n", "5", messages=["One."])[1]
    status, out, err = chat("-n", "5", "--kv-store", tmp_path / "kv", messages=[command, "One."])
    assert (status, out) == (1, expected) and wanted in one_line(err) and b"\033" not in err


def test_no_name_to_save(chat, tmp_path):
    for name in "", " ..", " a/b", " two words":
        status, out, err = chat("-n", "5", "--kv-store", tmp_path / "kv", messages=["One.", "/save" + name])
        assert status == 1 and "a name is 1 to 64 letters" in one_line(err)
    status, out, err = chat("-n", "5", messages=["One.", "/save talk"])
    assert status == 1 and "--kv-store DIR says where" in one_line(err)


def test_damaged_note(chat, tmp_path):
    store = tmp_path / "kv"
    args = ["-n", "20", "--kv-store", store]
    chat(*args, messages=["One.", "/save talk"])
    note, = (store / name for name in os.listdir(store) if name.startswith("note-"))
    data = note.read_bytes()
    note.write_bytes(data.replace(b"One.", b"Two."))
    status, out, err = chat(*args, messages=["/resume talk", "Three."])
    assert status == 1 and out == chat("-n", "20", messages=["Three."])[1]
    assert "the note 'talk' is damaged" in one_line(err)


def test_save_where_nothing_is_shared(chat, tmp_path):
    """The messages are saved, and a line says that they alone are."""
    args = ["-n", "20", "--kv-store", tmp_path / "kv", "--kv-policy", "h2o"]
    status, one, err = chat(*args, messages=["One.", "/save talk"])
    warning, line = err.splitlines(keepends=True)
    assert status == 0 and b"takes nothing from a store" in warning and "h2o cannot take over" in one_line(line)
    assert chat(*args, messages=["/resume talk", "/again"])[:2] == (0, one)


def test_a_second_writer(chat, talk, tmp_path):
    """It reads, and cannot save."""
    args = ["-n", "20", "--kv-store", tmp_path / "kv"]
    chat(*args, messages=["One.", "/save talk"])
    t = talk(*args)
    status, out, err = chat(*args, messages=["/resume talk", "Two.", "/save talk"])
    warning, line = err.splitlines(keepends=True)
    assert status == 1 and out and b"nothing new is kept" in warning and "another process" in one_line(line)
    t.type("\x04")
    assert t.finish()[1] == 0


def test_interrupted_save(chat, talk, tmp_path):
    """The conversation goes on, its messages are saved, and a resume computes the rest."""
    store = tmp_path / "kv"
    args = ["-n", "20", "-c", "16000", "-b", "64", "--kv-store", store]
    assert chat(*args, messages=[words(12000, 1), "/save talk"])[0] == 0
    expected = chat(*args, messages=["/resume talk", "Two."])
    forget_kv(store)
    t = talk(*args)
    t.type("/resume talk\n")
    t.read_until(b"talk is resumed: 1 turn\r")
    t.read_until(b"> ")
    t.type("/save more\n")
    end = time.monotonic() + 60
    while sum(name.endswith(".igkv") and name.startswith("note-") for name in os.listdir(store)) < 2:
        assert time.monotonic() < end
        time.sleep(0.001)
    os.kill(t.pid, signal.SIGINT)
    t.read_until(b"more is saved; what is missing")
    t.read_until(b"> ")
    t.type("Two.\n")
    t.read_until(b"Two.\r\n")
    t.read_until(b"\n> ")
    t.type("\x04")
    assert t.finish()[1] == 0
    assert chat(*args, messages=["/resume more", "Two."]) == expected


def test_killed_after_an_answer(chat, talk, tmp_path):
    """What its prompt has computed is kept."""
    store, message = tmp_path / "kv", words(200, 1)
    t = talk("-n", "5", "--kv-store", store)
    t.type(message + "\n")
    t.read_until(message[-20:].encode() + b"\r\n")
    t.read_until(b"\n> ")
    os.kill(t.pid, signal.SIGKILL)
    t.finish()
    status, out, err = chat("-n", "5", "--kv-store", store, messages=[message, "/stats"])
    assert status == 0 and stored_tokens(err)[1] >= 192


def test_what_is_taken_back_is_said(talk):
    t = talk("-n", "5")
    t.type("hi\n")
    t.read_until(b"\n> ")
    t.type("/undo\n")
    t.read_until(b"the last turn is taken back: 0 turns left")
    t.type("/reset\n")
    t.read_until(b"the conversation is forgotten")
    t.type("/stats\n")
    t.read_until(b"memory ")
    t.type("/exit\n")
    assert t.finish()[1] == 0


def test_store_that_vanishes(talk, tmp_path):
    """Costs a line, and no answer."""
    store = tmp_path / "kv"
    t = talk("-n", "5", "--kv-store", store)
    shutil.rmtree(store)
    t.type(words(200, 1) + "\n")
    seen = t.read_until(b"\n> ")
    assert seen.count(b"KV store ") == 1
    t.type("/exit\n")
    assert t.finish()[1] == 0
