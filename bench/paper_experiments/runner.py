# SPDX-License-Identifier: Apache-2.0
"""Runs commands of the program and keeps what each reported, so that nothing that was finished is run again.

OUT/raw/KEY.json holds a command's report and when and where it was made. KEY is a hash of the program and of the command; a
file that the command names counts by its size and time of change, as do those of a model's folder. A file appears when it is
whole.
"""
import dataclasses
import hashlib
import json
import os
import platform
import subprocess
import time

from .core import OUT


class Failed(Exception):
    """A command failed; the message is its error line."""


@dataclasses.dataclass(frozen=True)
class Result:
    report: object    # what the command printed, parsed
    path: str         # the file that it wrote, or None
    words: list       # the command as it was run
    when: str         # date and time of its start, UTC
    host: str
    busy: float       # load of the machine at the start, in cores
    cores: int
    seconds: float


def whole_file(path, text):
    with open(path + ".part", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(path + ".part", path)


def host():
    model = platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            model = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), model)
    except OSError:
        pass
    return f"{model}, {len(os.sched_getaffinity(0))} cores"


def files_named(words):
    """Of each file among the words what tells that it has changed."""
    for word in words:
        if isinstance(word, list):
            yield from files_named(word)
        elif isinstance(word, str) and os.path.isfile(word):
            status = os.stat(word)
            yield [word, status.st_size, status.st_mtime_ns]
        elif isinstance(word, str) and os.path.isfile(os.path.join(word, "config.json")):
            yield from files_named(os.path.join(word, name) for name in os.listdir(word))


def hash_of(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


class Runner:
    def __init__(self, program, folder):
        self.program, self.raw = program, os.path.join(folder, "raw")
        self.build = hash_of(program)
        os.makedirs(self.raw, exist_ok=True)
        self.version = self.output(["--version"]).strip()

    def output(self, words):
        # In a session of its own: Ctrl-C ends this script, which ends the program; a report that was cut short never counts.
        with subprocess.Popen([self.program, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, start_new_session=True) as child:
            try:
                out, err = child.communicate()
            except BaseException:
                child.kill()
                raise
        if child.returncode:
            raise Failed((err.strip().splitlines() or [f"exit status {child.returncode}"])[-1])
        return out

    def _place(self, words):
        key = json.dumps([self.build, words, sorted(files_named(words))], sort_keys=True)
        return os.path.join(self.raw, hashlib.sha256(key.encode()).hexdigest()[:20])

    def kept(self, words):
        return os.path.exists(self._place(words) + ".json")

    def __call__(self, words):
        """The result of a command, from its file if it has one."""
        place = self._place(words)
        if not self.kept(words):
            self._run(words, place)
        with open(place + ".json", encoding="utf-8") as file:
            kept = json.load(file)
        kept["path"] = os.path.join(self.raw, kept["path"]) if kept["path"] else None
        return Result(**kept)

    def _run(self, words, place):
        out = place + ".out"
        plain = [self._file(w) if isinstance(w, (list, dict)) else out + ".part" if w == OUT else w for w in words]
        busy, start = os.getloadavg()[0], time.time()
        text = self.output(plain)
        try:
            report = json.loads(text) if text.strip() else None
        except ValueError as error:
            raise Failed(f"{words[0]}: its report is not JSON: {error}") from None
        if isinstance(report, dict) and (report.get("interrupted") or report.get("failed")):
            raise Failed(f"{words[0]}: it was cut short")
        if OUT in words:
            os.replace(out + ".part", out)
        whole_file(place + ".json", json.dumps({
            "report": report, "path": os.path.basename(out) if OUT in words else None,
            "words": [out if w == out + ".part" else w for w in plain], "host": host(), "cores": len(os.sched_getaffinity(0)),
            "when": time.strftime("%Y-%m-%d %H:%M", time.gmtime(start)), "busy": busy, "seconds": time.time() - start}))

    def _file(self, word):
        if isinstance(word, list):
            return self(word).path
        path = self._place([word]) + ".jsonl"
        whole_file(path, json.dumps(word) + "\n")
        return path
