# SPDX-License-Identifier: Apache-2.0
"""What an experiment is, and what all of them share: commands, rows, claims and the verdict.

An experiment is data: which commands to run, how their reports become rows, which plots to draw of the rows, and what the
paper claims of them. A row is a dictionary whose keys are the headings of a table; " %" and " MB" at the end of a heading are
its unit. A claim says whether the rows bear out one thing that the paper found; the verdict counts claims.
"""
import csv
import dataclasses
import os
import statistics
from typing import Callable


@dataclasses.dataclass(frozen=True)
class Setup:
    """What the commands of an experiment depend on."""
    model: str
    text: str
    quick: bool
    limit: int            # tokens that the model was trained for
    kv_bytes: float       # keys and values of a token in 16 bits
    weights: int = 0      # bytes
    alpha: float = 4      # the paper's threshold: 4 with OPT, 5 with Llama
    group: int = 1        # query heads for each KV head
    models: tuple = ()    # all that were asked for
    tasks: tuple = ()     # (questions, examples or None): files
    help: str = ""        # the program's options: not all programs that -b may name have all of them
    device: str = "cpu"   # where it computes

    def offers(self, *words):
        """Those that the program knows."""
        return tuple(word for word in words if word in self.help)

    def pick(self, quick, whole):
        return quick if self.quick else whole

    @property
    def context(self):
        """The paper measures at 2048 tokens."""
        return min(self.pick(1024, 2048), self.limit)

    def lengths(self, *lengths):
        most = min(self.limit, self.pick(2048, 32768))
        return tuple(n for n in lengths if n <= most) or (most,)

    def kv_ram(self, tokens, share=1 / 3):
        """RAM for a share of the keys and values of so many tokens; the rest lies on disk."""
        return int(self.kv_bytes * tokens * share)

    def limit_kv(self, tokens, paged=False):
        """A third of the keys and values in fast memory: RAM with a disk behind, or a GPU's with RAM behind. Where the system
        moves their pages, it decides how much is in a GPU's."""
        if self.device == "cpu":
            return {"kv_ram": self.kv_ram(tokens), "kv_map": paged}
        return {"kv_map": True} if paged else {"kv_vram": self.kv_ram(tokens)}

    def limit_weights(self, size):
        return {"weights_ram" if self.device == "cpu" else "weights_vram": size}

    def on_device(self, words):
        """The command, told where to compute if it does."""
        return words if self.device == "cpu" or words[0] not in ("bench", "perplexity", "eval") else [*words, "--device", self.device]


@dataclasses.dataclass(frozen=True)
class Claim:
    says: str        # what the paper found
    holds: bool      # do the rows bear it out?
    seen: str        # the numbers that tell
    why: str = ""    # if not: the reason as far as the rows tell


@dataclasses.dataclass(frozen=True)
class Plot:
    """A picture of rows. kind: lines, bars or stack; y: one column or several; by: the column that tells lines apart."""
    kind: str
    x: str
    y: tuple
    by: str = ""
    log: str = ""                      # of "x" and "y" those whose axes are logarithmic
    title: str = ""
    where: Callable = lambda row: True


@dataclasses.dataclass(frozen=True)
class Experiment:
    id: str
    title: str
    found: str                                # what the paper found, and how, in a few sentences
    commands: Callable[[Setup], list]
    rows: Callable[[Setup, list], list]
    claims: Callable[[list], list]
    plots: tuple = ()
    paper: tuple = ()                         # rows with figures of the paper
    note: str = ""                            # in what this differs from the paper's protocol
    timed: bool = False                       # are the claims about time? They then need a quiet machine
    together: bool = False                    # one for all models


VERDICTS = {"agrees": "Agrees", "part": "Agrees in part", "differs": "Does not agree", "open": "Open"}


def verdict(claims):
    """(key of VERDICTS, sentence). All claims hold: agrees; none: differs; some: in part. Without claims it is open."""
    if not claims:
        return "open", "Open: there is nothing to compare at this size."
    held, failed = [c for c in claims if c.holds], [c for c in claims if not c.holds]
    key = "agrees" if not failed else "part" if held else "differs"
    parts = ["; ".join(f"{c.says} ({c.seen})" for c in held)] if held else []
    if failed:
        missed = "; ".join(f"{c.says} ({c.seen}{': ' + c.why if c.why else ''})" for c in failed)
        parts.append(("not borne out: " if held else "") + missed)
    return key, f"{VERDICTS[key]}: {'; '.join(parts)}."


# Commands. A word of one may be a list, a command that writes a file whose name then stands there, or a dictionary, which
# is written to such a file as a line of JSON. OUT in a command is the name of the file that it writes.
OUT = "{out}"


def command(verb, model, **options):
    """command("bench", "m", n=8, kv_policy=("full", "h2o")) is bench -m m -n 8 --kv-policy full,h2o. None and False leave out."""
    words = [verb, *(["-m", model] if model else [])]
    for name, value in options.items():
        flag = f"-{name}" if len(name) == 1 else "--" + name.replace("_", "-")
        if value is True:
            words.append(flag)
        elif value is False:
            continue
        elif isinstance(value, (list, dict)):
            words += [flag, value]
        elif value is not None:
            words += [flag, ",".join(map(str, value)) if isinstance(value, tuple) else str(value)]
    return words


def perplexity(setup, context, tail, policies, **options):
    """All but the last `tail` tokens are dense."""
    return command("perplexity", setup.model, f=setup.text, c=context, dense_prefix=-tail, chunks=1, kv_policy=policies,
                   **options, json=True)


# Rows.
def runs(result):
    """The runs of a report; that of a single one has its figures at the top."""
    report = result.report
    return report["runs"] if "runs" in report else [{**report.get("kv", {}), **report}]


def plans(result):
    """The plans of `inspect`."""
    return result.report.get("plans") or [{"batch": 1, **result.report}]


def figures(run, *settings):
    """The row of a run of `perplexity`, with the settings that were listed."""
    full = run["policy"] == "full"
    return {"policy": run["policy"], **{name: None if full and name != "context" else run[name] for name in settings},
            "perplexity": run["perplexity"], "KL": run.get("kl"), "used %": 100 * run["selected_share"]}


def where(rows, **wanted):
    """Rows that have all these values; "_" in a name stands for a blank."""
    return [r for r in rows if all(r.get(k.replace("_", " "), r.get(k)) == v for k, v in wanted.items())]


def one(rows, **wanted):
    found = where(rows, **wanted)
    if not found:
        raise LookupError(f"no row with {wanted}")
    return found[0]


def read_trace(path):
    """The rows of a CSV file as dictionaries of numbers."""
    with open(path, newline="", encoding="utf-8") as file:
        return [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]


def grouped(rows, *keys):
    """{(values of keys): rows}, in order of the values."""
    groups = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return dict(sorted(groups.items()))


def mean(rows, key):
    return statistics.fmean(row[key] for row in rows)


def name_of(model):
    return os.path.splitext(os.path.basename(model.rstrip("/")))[0]


# Words for numbers.
def short(value, digits=3):
    """12.3, 0.0456, 1290: a number for people."""
    if value is None:
        return ""
    if isinstance(value, (bool, str)):
        return str(value)
    if isinstance(value, int) or value == int(value) and abs(value) < 1e15:
        return str(int(value))
    return f"{value:.0f}" if abs(value) >= 10 ** digits else f"{value:.{digits}g}"


def listed(values, unit=""):
    return ", ".join(short(v) + unit for v in values)


def above(value, base):
    """+4.2 %: how far value is above base."""
    return f"{100 * (value / base - 1):+.1f} %"
