# SPDX-License-Identifier: Apache-2.0
"""Pictures of rows, as SVG with text that stays text. A policy has the same colour in all of them."""
import collections
import io
import os

os.environ.setdefault("MPLCONFIGDIR", "/tmp/infinigen-matplotlib")
import matplotlib  # noqa: E402

matplotlib.use("svg")
from matplotlib import pyplot  # noqa: E402

from .core import short  # noqa: E402

COLOURS = {"infinigen": "#c0392b", "infinigen-osdi24": "#e59866", "oracle": "#7f8c8d", "full": "#2c3e50", "quest": "#2471a3",
           "window": "#1e8449", "h2o": "#9a6b00", "KV": "#c0392b", "weights": "#7f8c8d"}
OTHERS = ["#8e44ad", "#16a085", "#d68910", "#2e86c1", "#a04000", "#707b7c", "#27ae60", "#cb4335", "#5d6d7e", "#b7950b"]
MARKS = [("o", "-"), ("s", ":"), ("^", "-.")]  # of lines that share a colour
STYLE = {"svg.fonttype": "none", "svg.hashsalt": "infinigen", "font.family": "sans-serif", "font.size": 10,
         "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": "#888888", "axes.grid": True,
         "grid.color": "#e5e5e5", "axes.axisbelow": True, "legend.frameon": False, "axes.titlesize": 11}


def colour(name, number):
    """A policy's own, also where its settings follow its name; other names have theirs in order."""
    return COLOURS.get(str(name)) or COLOURS.get(str(name).split(" ")[0]) or OTHERS[number % len(OTHERS)]


def series(plot, rows):
    """[(name, xs, ys)]: a line for each value of `by`, or for each column of y."""
    lines = {}
    for row in filter(plot.where, rows):
        for column in plot.y:
            name = " ".join(filter(None, [short(row.get(plot.by)) if plot.by else "", column if len(plot.y) > 1 else ""]))
            if row.get(column) is not None and row.get(plot.x) is not None:
                xs, ys = lines.setdefault(name, ([], []))
                xs.append(row[plot.x])
                ys.append(row[column])
    return [(name, xs, ys) for name, (xs, ys) in lines.items()]


def draw_lines(axes, plot, lines):
    drawn = collections.Counter()
    for i, (name, xs, ys) in enumerate(lines):
        points, ink = sorted(zip(xs, ys)), colour(name, i)
        marker, style = MARKS[drawn[ink] % len(MARKS)]
        axes.plot(*zip(*points), label=name, marker=marker, markersize=4.5, color=ink,
                  linestyle="--" if name in ("oracle", "full", "weights") else style,
                  linewidth=2.5 if name == "infinigen" else 1.5)
        drawn[ink] += 1
    for axis in plot.log:
        getattr(axes, f"set_{axis}scale")("log", **({"base": 2} if axis == "x" else {}))
    if "x" in plot.log:
        axes.xaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda x, _: short(x)))
        axes.xaxis.set_minor_locator(matplotlib.ticker.NullLocator())


def draw_bars(axes, plot, lines, stacked):
    places = list(dict.fromkeys(x for _, xs, _ in lines for x in xs))
    width = 0.8 / (1 if stacked else len(lines))
    floor = [0.0] * len(places)
    for i, (name, xs, ys) in enumerate(lines):
        values = dict(zip(xs, ys))
        heights = [values.get(place, 0) for place in places]
        at = [p + (0 if stacked else (i - (len(lines) - 1) / 2) * width) for p in range(len(places))]
        colours = [colour(place, k) for k, place in enumerate(places)] if len(lines) == 1 else colour(name, i)
        axes.bar(at, heights, width * 0.95, bottom=floor if stacked else None, label=name, color=colours)
        if stacked:
            floor = [a + b for a, b in zip(floor, heights)]
    axes.set_xticks(range(len(places)), [short(place).replace("infinigen-", "infinigen-\n") for place in places])
    axes.grid(axis="x", visible=False)
    if "y" in plot.log:
        axes.set_yscale("log")


def draw(plot, rows):
    """SVG of a plot, or None if the rows have nothing for it."""
    lines = series(plot, rows)
    if not lines:
        return None
    with pyplot.rc_context(STYLE):
        figure, axes = pyplot.subplots(figsize=(7, 3.6), layout="constrained")
        if plot.kind == "lines":
            draw_lines(axes, plot, lines)
            axes.set_xlabel(plot.x)
        else:
            draw_bars(axes, plot, lines, plot.kind == "stack")
        axes.set_ylabel(plot.y[0] if len(plot.y) == 1 else "")
        axes.set_title(plot.title, loc="left")
        if len(lines) > 1:
            axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None}, facecolor="white")
        pyplot.close(figure)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def describe(plot, rows):
    """What the picture shows, for those who do not see it."""
    names = [name for name, _, _ in series(plot, rows) if name]
    what = " and ".join(plot.y) if len(plot.y) < 4 else f"{len(plot.y)} parts"
    return f"{plot.title or what}: {what} against {plot.x}" + (f", of {', '.join(names)}" if plot.by and names else "")
