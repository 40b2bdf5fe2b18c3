# SPDX-License-Identifier: Apache-2.0
"""What is written of an experiment: a table as Markdown and CSV, plots, and one HTML page of all that holds everything."""
import base64
import csv
import dataclasses
import html
import io
import shlex

from .core import VERDICTS, Experiment, short, verdict


@dataclasses.dataclass
class Section:
    """An experiment with one model: what came out."""
    experiment: Experiment
    model: str
    rows: list
    claims: list
    pictures: list    # (file name, alt text, SVG)
    results: list
    error: str = ""

    @property
    def name(self):
        return self.experiment.id if self.experiment.together else f"{self.experiment.id}-{self.model}"

    @property
    def verdict(self):
        return ("open", f"Open: it could not be run: {self.error}") if self.error else verdict(self.claims)


def columns(rows):
    """Headings in the order in which they first come, without those that are empty everywhere."""
    names = dict.fromkeys(name for row in rows for name in row)
    return [n for n in names if any(row.get(n) is not None for row in rows)]


def markdown(rows):
    names = columns(rows)
    number = {n: all(not isinstance(row.get(n), str) for row in rows) for n in names}
    lines = ["| " + " | ".join(names) + " |", "|" + "|".join("---:" if number[n] else "---" for n in names) + "|"]
    return "\n".join(lines + ["| " + " | ".join(short(row.get(n)) for n in names) + " |" for row in rows]) + "\n"


def as_csv(rows):
    out = io.StringIO()
    writer = csv.DictWriter(out, columns(rows), extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def html_table(rows):
    names = columns(rows)
    cells = lambda tag, words: "".join(f"<{tag}>{html.escape(word)}</{tag}>" for word in words)
    body = "".join(f"<tr>{cells('td', (short(row.get(n)) for n in names))}</tr>" for row in rows)
    return f'<div class="wide"><table><tr>{cells("th", names)}</tr>{body}</table></div>'


def scale(section):
    """The lengths that the commands name: "512 to 2048 tokens"."""
    lengths = [int(n) for r in section.results for flag, value in zip(r.words, r.words[1:]) if flag in ("-c", "-d")
               for n in value.split(",")]
    lengths += [r.report["context"] for r in section.results if r.words[0] == "eval"]
    if not lengths:
        return ""
    return (f"{min(lengths)} to " if min(lengths) < max(lengths) else "") + f"{max(lengths)} tokens"


def summary(sections):
    """A table of all: what was asked, at which size, and what came out."""
    return markdown([{"experiment": s.experiment.id, "": s.experiment.title, "model": s.model, "size": scale(s),
                      "outcome": s.verdict[1]} for s in sections])


def conditions(section):
    """When, where and under what load the commands ran."""
    first, last = section.results[0], section.results[-1]
    busy = max(r.busy / r.cores for r in section.results)
    took = sum(r.seconds for r in section.results)
    return (f"{scale(section)}; {first.when} to {last.when} UTC, {first.host}, {took:.0f} s"
            + (f". The machine was busy with other work ({busy:.1f} tasks a core): times are rough" if busy > 1.2 else ""))


def html_section(section):
    e, (key, sentence) = section.experiment, section.verdict
    model = "" if e.together else f" <small>{html.escape(section.model)}</small>"
    parts = [f'<section id="{section.name}"><h2>{html.escape(e.title)}{model}</h2>',
             f'<p class="verdict {key}">{html.escape(sentence)}</p>', f"<p>Paper: {html.escape(e.found)}</p>"]
    if e.note:
        parts.append(f"<p>Here: {html.escape(e.note)}</p>")
    for _, alt, svg in section.pictures:
        data = base64.b64encode(svg.encode()).decode()
        parts.append(f'<img alt="{html.escape(alt)}" src="data:image/svg+xml;base64,{data}"/>')
    if section.rows:
        fold = ("<details><summary>Table</summary>", "</details>") if len(section.rows) > 12 else ("", "")
        parts.append(fold[0] + html_table(section.rows) + fold[1])
    if e.paper:
        parts.append("<p>The paper's figures:</p>" + html_table(e.paper))
    if section.results:
        commands = "\n".join("infinigen " + shlex.join(r.words) for r in section.results)
        parts.append(f"<details><summary>Commands</summary><pre>{html.escape(commands)}</pre>"
                     f"<p>{html.escape(conditions(section))}</p></details>")
    return "\n".join([*parts, "</section>"])


PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"/><meta name="viewport" content="width=device-width, initial-scale=1"/>
<title>The experiments of the InfiniGen paper</title><style>
:root {{ color-scheme: light dark; --text: #222; --back: #fff; --line: #ddd; --soft: #666 }}
@media (prefers-color-scheme: dark) {{ :root {{ --text: #ddd; --back: #1b1c1e; --line: #3a3c40; --soft: #999 }} }}
body {{ font: 16px/1.5 sans-serif; color: var(--text); background: var(--back); max-width: 52rem; margin: 2rem auto; padding: 0 1rem }}
h2 {{ margin: 3rem 0 .5rem }} small, summary, nav {{ color: var(--soft) }} a {{ color: inherit }}
img {{ width: 100%; border-radius: 6px; margin: .5rem 0 }} .wide {{ overflow-x: auto }}
table {{ border-collapse: collapse; font-size: 14px }} td, th {{ border-bottom: 1px solid var(--line); padding: .2rem .7rem; text-align: right }}
td:first-child, th:first-child {{ text-align: left }} pre {{ overflow-x: auto; font-size: 13px }}
.verdict {{ border-left: 5px solid var(--mark); padding: .3rem .8rem; --mark: #888 }}
.agrees {{ --mark: #27ae60 }} .part {{ --mark: #e0a800 }} .differs {{ --mark: #c0392b }}
</style></head><body>
<h1>The experiments of the InfiniGen paper</h1>
<p>{about}</p>
{summary}
{sections}
</body></html>
"""


def page(sections, about):
    summary = "".join(f'<tr><td><a href="#{s.name}">{html.escape(s.experiment.title)}</a></td><td>{html.escape(s.model)}</td>'
                      f"<td>{VERDICTS[s.verdict[0]]}</td></tr>" for s in sections)
    return PAGE.format(about=html.escape(about), sections="\n".join(map(html_section, sections)),
                       summary=f'<div class="wide"><table><tr><th>Experiment</th><th>Model</th><th>Verdict</th></tr>{summary}</table></div>')
