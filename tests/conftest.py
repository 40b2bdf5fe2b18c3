# SPDX-License-Identifier: Apache-2.0
"""Black-box tests of the program: what it prints where, its exit status, its files.

INFINIGEN (or INFINIGEN_BIN) names the program. Tests that need a real model use smollm2-135m: the file named by
INFINIGEN_TEST_MODEL, or the one in the program's cache; without it they are skipped.
"""
import contextlib
import functools
import glob
import json
import os
import pty
import random
import select
import shutil
import signal
import subprocess
import time

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
TINY_MODELS = os.path.join(HERE, "golden", "models")
# Of the user who runs the tests: the program under test gets folders of its own.
USER_CACHE = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")

# What a shell starts in the background ignores these, and so would the programs under test.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


class Program:
    def __init__(self, path, home):
        self.path = path
        self.home = home
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("IG_", "INFINIGEN_", "XDG_"))}
        self.env.update(HOME=home, XDG_CACHE_HOME=home + "/cache", XDG_CONFIG_HOME=home + "/config",
                        XDG_STATE_HOME=home + "/state", TERM="xterm", LC_ALL="C.UTF-8")

    def environment(self, args):
        """A sanitizer looks for leaks by tracing the program, which its sandbox forbids."""
        off = "detect_leaks=0:" + self.env.get("ASAN_OPTIONS", "")
        return {**self.env, "ASAN_OPTIONS": off} if "--sandbox" in args else self.env

    def start(self, *args, env=None, **kw):
        kw = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **kw}
        return subprocess.Popen([self.path, *map(str, args)], env={**self.environment(args), **(env or {})}, **kw)

    def __call__(self, *args, stdin=b"", env=None, cwd=None):
        """Runs to the end. Bytes in, (status, bytes, bytes) out."""
        stdin = stdin.encode() if isinstance(stdin, str) else stdin
        p = self.start(*args, env=env, stdin=subprocess.PIPE, cwd=cwd)
        out, err = p.communicate(stdin, timeout=300)
        return p.returncode, out, err


class Terminal:
    """The program on a terminal of its own, or another that starts it: the program and its arguments are added to `by`."""

    def __init__(self, program, *args, by=()):
        self.seen = b""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            try:
                argv = [*by, program.path, *map(str, args)]
                os.execvpe(argv[0], argv, program.env)
            finally:
                os._exit(127)

    def type(self, text):
        time.sleep(0.2)  # as a person: libedit takes the terminal over just after it has shown its prompt
        os.write(self.fd, text.encode())

    def read_until(self, wanted, seconds=60):
        """What was printed since the last call, up to and with `wanted`."""
        end = time.monotonic() + seconds
        while wanted not in self.seen:
            assert time.monotonic() < end, f"{wanted!r} did not come: {self.seen!r}"
            if not self._read():
                break
        assert wanted in self.seen, f"ended without {wanted!r}: {self.seen!r}"
        at = self.seen.index(wanted) + len(wanted)
        text, self.seen = self.seen[:at], self.seen[at:]
        return text

    def _read(self):
        if not select.select([self.fd], [], [], 0.2)[0]:
            return True
        try:
            data = os.read(self.fd, 65536)
        except OSError:
            return False
        self.seen += data
        return bool(data)

    def finish(self, seconds=60):
        """The rest of what it prints, and its exit status."""
        end = time.monotonic() + seconds
        while self._read():
            assert time.monotonic() < end, f"still running: {self.seen!r}"
        status = os.waitpid(self.pid, 0)[1]
        os.close(self.fd)
        return self.seen, os.waitstatus_to_exitcode(status)


@pytest.fixture
def program(tmp_path):
    path = os.environ.get("INFINIGEN") or os.environ.get("INFINIGEN_BIN")
    if not path:
        pytest.skip("INFINIGEN does not name the program")
    return Program(os.path.abspath(path), str(tmp_path))


@pytest.fixture
def terminal(program):
    try:
        for fd in pty.openpty():
            os.close(fd)
    except OSError as error:  # a chroot without /dev/pts
        pytest.skip(f"no terminal can be had: {error}")
    return functools.partial(Terminal, program)


@pytest.fixture(scope="session")
def model():
    path = os.environ.get("INFINIGEN_TEST_MODEL") or os.path.join(USER_CACHE, "infinigen/models/smollm2-135m.gguf")
    if not os.path.isfile(path):
        pytest.skip("smollm2-135m is not in the cache")
    return path


@pytest.fixture
def tiny():
    """A tiny model without a tokenizer, and its golden folder."""
    path = os.path.join(TINY_MODELS, "llama31")
    if not os.path.isdir(path):
        pytest.skip("no tiny models")
    return path


def one_line(err):
    """The error is one line that names the program."""
    text = err.decode()
    assert text.startswith("infinigen"), text
    assert text.count("\n") == 1 and text.endswith("\n"), text
    return text


def of_threads(pid, name):
    """The file of this name in /proc of each thread; one may end meanwhile."""
    texts = []
    for path in glob.glob(f"/proc/{pid}/task/*/{name}"):
        with contextlib.suppress(OSError), open(path, encoding="ascii") as f:
            texts.append(f.read())
    return texts


def byte_letters():
    """The character that stands for each byte in GPT-2's vocabulary."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in plain]
    return {**{b: chr(b) for b in plain}, **{b: chr(256 + i) for i, b in enumerate(rest)}}


def make_model(folder, name="llama31"):
    """A tiny model of the golden tests with a tokenizer of single bytes and a chat template."""
    shutil.copytree(os.path.join(TINY_MODELS, name), folder)
    config = json.loads((folder / "config.json").read_text())
    config["max_position_embeddings"] = 16384
    (folder / "config.json").write_text(json.dumps(config))
    words = ["<pad>", "<s>", "</s>", *(letter for _, letter in sorted(byte_letters().items()))]
    words += [f"<{i}>" for i in range(len(words), config["vocab_size"])]
    (folder / "vocab.json").write_text(json.dumps({word: i for i, word in enumerate(words)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    template = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
                "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
                "{% endif %}")
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template, "eos_token": "</s>"}))
    return folder


# Tokens of gpt-oss's format, and a template that writes it and wants the same of its variables.
CHANNEL, MESSAGE, START, END, CONSTRAIN, RETURN, CALL = range(270, 277)
MARKS = {CHANNEL: "<|channel|>", MESSAGE: "<|message|>", START: "<|start|>", END: "<|end|>", CONSTRAIN: "<|constrain|>",
         RETURN: "<|return|>", CALL: "<|call|>"}
CHANNEL_TEMPLATE = (
    "{% for t in tools %}{{ '// ' + t.function.description }}\n{% endfor %}{{ reasoning_effort }}{% for m in messages %}"
    "{% if m.tool_calls %}{% if m.content and m.thinking %}{{ raise_exception('both') }}{% endif %}"
    "{% if m.content or m.thinking %}<|start|>assistant<|channel|>analysis<|message|>{{ m.content or m.thinking }}<|end|>{% endif %}"
    "<|start|>assistant to=functions.{{ m.tool_calls[0].function.name }}<|channel|>commentary json<|message|>"
    "{{ m.tool_calls[0].function.arguments | tojson }}<|call|>"
    "{% elif m.role == 'assistant' %}<|start|>assistant<|channel|>final<|message|>{{ m.content }}<|end|>"
    "{% else %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '\n' * 100 if far else '<|start|>assistant' }}{% endif %}")


RECIPIENT_TEMPLATE = (  # Muse Glimmer's
    "{% for t in tools %}{{ t.function.name }}\n{% endfor %}"
    "{% for m in messages %}{% if m.role == 'assistant' %}{% if m.reasoning_content %}"
    "{{ '<|start|>assistant to=self<|message|>' + m.reasoning_content + '<|eom|>' }}{% endif %}"
    "{% for t in m.tool_calls %}<|start|>assistant to={{ t.function.name }}<|message|><atem:function_calls>\n"
    "<atem:invoke name=\"{{ t.function.name }}\">\n{% for k, v in t.function.arguments.items() %}<atem:parameter name=\"{{ k }}\">"
    "{{ v if v is string else v | tojson }}</atem:parameter>\n{% endfor %}</atem:invoke>\n</atem:function_calls>"
    "{{ '<|eot|>' if loop.last else '<|eom|>' }}{% else %}<|start|>assistant to=user<|message|>{{ m.content }}<|eot|>{% endfor %}"
    "{% else %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|eot|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '\n' * 100 if far else '<|start|>assistant' }}{% endif %}")


def make_channel_model(folder, recipients=False):
    """Such a model, that answers in channels, or to recipients."""
    make_model(folder)
    template, marks = CHANNEL_TEMPLATE, MARKS
    if recipients:
        template, marks = RECIPIENT_TEMPLATE, {**MARKS, END: "<|eom|>", RETURN: "<|eot|>"}
    vocabulary = {name: i for name, i in json.loads((folder / "vocab.json").read_text()).items() if i not in MARKS}
    (folder / "vocab.json").write_text(json.dumps({**vocabulary, **{text: i for i, text in marks.items()}}))
    added = {str(i): {"content": text, "special": True} for i, text in marks.items()}
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"chat_template": template, "eos_token": marks[RETURN], "added_tokens_decoder": added}))
    return folder


def words(n, seed):
    """n bytes of text, a token each."""
    chance = random.Random(seed)
    return "".join(chance.choice("abcdefghijklmnopqrstuvwxyz ") for _ in range(n - 1)) + "."
