# SPDX-License-Identifier: Apache-2.0
"""Shell completion, as each shell does it. Shells that are missing are skipped."""
import os
import pty
import re
import select
import shutil
import subprocess
import time

import pytest

NAMES = {"smollm2-135m", "mine", "stray"}


@pytest.fixture
def shell_program(program, tmp_path):
    """The program on PATH as infinigen, with a model of the user's table and one that merely lies in the cache."""
    os.makedirs(tmp_path / "config/infinigen")
    os.makedirs(tmp_path / "cache/infinigen/models")
    (tmp_path / "config/infinigen/models.txt").write_text("mine - - file mine.gguf\n")
    (tmp_path / "cache/infinigen/models/stray.gguf").write_bytes(b"x")
    (tmp_path / "cache/infinigen/models/.part.gguf").write_bytes(b"x")
    os.makedirs(tmp_path / "bin")
    os.symlink(program.path, tmp_path / "bin/infinigen")
    os.makedirs(tmp_path / "here")
    (tmp_path / "here/a file.gguf").write_bytes(b"x")
    program.env["PATH"] = f"{tmp_path}/bin:{os.environ['PATH']}"
    return program


def run_shell(program, *args):
    p = subprocess.run(args, env=program.env, cwd=program.home + "/here", stdin=subprocess.DEVNULL, check=False, text=True,
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
    assert p.stderr == "", p.stderr
    return p.stdout.splitlines()


def complete_bash(program, line):
    """What bash would offer; the words are taken apart as it does, at blanks and at equals signs."""
    words = re.findall(r"=|[^ =]+", line) + ([""] if line.endswith(" ") else [])
    quoted = " ".join(f"'{word}'" for word in words)
    return set(run_shell(program, "bash", "--norc", "-c", "source <(infinigen completion bash); "
                         f"COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _infinigen; "
                         r"printf '%s\n' ${COMPREPLY[@]+\"${COMPREPLY[@]}\"}".replace('\\"', '"'))) - {""}


def complete_fish(program, line):
    offers = run_shell(program, "fish", "--no-config", "-c", f"infinigen completion fish | source; complete -C '{line}'")
    return {offer.split("\t")[0] for offer in offers}


class Zsh:
    """A zsh on a terminal of its own, which lists what it would offer."""

    def __init__(self, program, setup):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(program.home + "/here")
            os.execvpe("zsh", ["zsh", "-f", "-i"], {**program.env, "TERM": "dumb", "COLUMNS": "120", "LINES": "200"})
        self.seen = b""
        self.type("unset zle_bracketed_paste; unsetopt prompt_sp; zstyle ':completion:*' list-separator '##'\n")
        # A key that lists the matches and inserts nothing.
        self.type("zle -C list list-choices _main_complete; offer() { zle list; zle -R; print -n all'shown' }; "
                  "zle -N offer; bindkey '^X' offer\n")
        self.type(setup + "; PS1='rea''dy> '\n")
        self.read_until(b"ready> ")

    def type(self, text):
        os.write(self.fd, text.encode())

    def read_until(self, wanted, seconds=30):
        end = time.monotonic() + seconds
        while wanted not in self.seen:
            assert time.monotonic() < end, f"{wanted!r} did not come: {self.seen!r}"
            if select.select([self.fd], [], [], 0.2)[0]:
                self.seen += os.read(self.fd, 65536)
        at = self.seen.index(wanted) + len(wanted)
        text, self.seen = self.seen[:at], self.seen[at:]
        return text.decode()

    def offers(self, line):
        self.type(line + "\x18")
        offers = set(self.read_until(b"allshown").split())
        self.type("\x15echo e'nd'\n")
        self.read_until(b"end\r\n")
        self.read_until(b"ready> ")
        return offers

    def close(self):
        os.close(self.fd)
        os.waitpid(self.pid, 0)


def check(complete, is_list_whole):
    """What every shell must offer. In lists some offer the whole word, others what is added to it."""
    models = NAMES | {"qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b"}
    assert {"run", "perplexity"} <= complete("infinigen ")
    assert complete("infinigen perp") >= {"perplexity"}
    assert "--kv-policy" in complete("infinigen run --kv-pol")
    assert models <= complete("infinigen run -m ") and models <= complete("infinigen bench --model ")
    assert NAMES <= complete("infinigen run ") and NAMES <= complete("infinigen inspect --tensors ")
    assert "stray" in complete("infinigen fetch ") and "stray" in complete("infinigen run -n 3 s")
    assert not {".part", "--text", "grimm"} & complete("infinigen fetch ") and "--text" not in complete("infinigen run -m ")
    assert {"grimm", "wikitext-2"} <= complete("infinigen fetch --text ") and "stray" not in complete("infinigen fetch --text ")
    assert {"full", "window"} <= complete("infinigen run --kv-policy ")
    assert "stray" not in complete("infinigen run -m x ") and "stray" not in complete("infinigen run -n ")
    assert {"bash", "zsh", "fish"} <= complete("infinigen completion ")
    assert {"ls", "verify", "gc", "rm"} <= complete("infinigen kv ")
    whole = "full," if is_list_whole else ""
    offered = complete("infinigen perplexity --kv-policy full,inf")
    assert {whole + "infinigen", whole + "infinigen-osdi24"} <= offered and whole + "quest" not in offered


def test_bash(shell_program):
    if not shutil.which("bash"):
        pytest.skip("no bash")

    def complete(line):
        return complete_bash(shell_program, line)
    check(complete, True)
    assert complete("infinigen run --kv-policy=f") == {"full"}
    assert {"full", "quest"} <= complete("infinigen run --kv-policy=")
    assert complete("infinigen bench --kv-policy=full,window,q") == {"full,window,quest"}
    assert complete("infinigen run --kv-policy=full s") >= {"stray", "smollm2-135m"}
    assert "a file.gguf" in complete("infinigen run -m ") and "a file.gguf" in complete("infinigen run -f ")
    # A line that is not taken apart at the sign, as COMP_WORDBREAKS can say.
    line = "source <(infinigen completion bash); COMP_WORDS=(infinigen bench --kv-policy=full,q); COMP_CWORD=2; _infinigen; "
    assert run_shell(shell_program, "bash", "--norc", "-c", line + "echo ${COMPREPLY[@]}") == ["--kv-policy=full,quest"]


def test_fish(shell_program):
    if not shutil.which("fish"):
        pytest.skip("no fish")

    def complete(line):
        return complete_fish(shell_program, line)
    check(complete, True)
    assert complete("infinigen run --kv-policy=f") == {"--kv-policy=full"}
    assert "--kv-policy=full,infinigen" in complete("infinigen perplexity --kv-policy=full,inf")
    assert "a file.gguf" in complete("infinigen run -m ") and "a file.gguf" not in complete("infinigen fetch ")


@pytest.mark.parametrize("how", ["sourced", "sourced before compinit", "file"])
def test_zsh(shell_program, tmp_path, how):
    if not shutil.which("zsh"):
        pytest.skip("no zsh")
    folder = tmp_path / "functions"
    folder.mkdir()
    setup = "source <(infinigen completion zsh)"
    if how == "sourced":
        setup = "autoload -Uz compinit; compinit -u -D; " + setup
    elif how == "file":
        (folder / "_infinigen").write_bytes(shell_program("completion", "zsh")[1])
        setup = f"fpath=({folder} $fpath); autoload -Uz compinit; compinit -u -D"
    zsh = Zsh(shell_program, setup)
    try:
        if how != "file":
            assert "stray" in zsh.offers("infinigen run -m s")
        else:
            check(zsh.offers, False)
            assert "full" in zsh.offers("infinigen run --kv-policy=")
            assert "quest" in zsh.offers("infinigen bench --kv-policy=full,window,")
    finally:
        zsh.close()
