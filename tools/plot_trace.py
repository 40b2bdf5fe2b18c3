#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws what `infinigen run --kv-trace FILE` wrote: the share of the entries that each layer of each step used, and per
step what was read from the disk tier, how many blocks were there in time, and how long the computation waited.

    plot_trace.py trace.csv                 writes trace.png
    plot_trace.py trace.csv -o figure.svg   the ending names the format
"""
import argparse
import collections
import csv
import os
import sys

COLUMNS = ["step", "layer", "entries", "selected", "fetched_bytes", "hits", "misses", "ram_bytes", "disk_bytes",
           "stall_us"]


class BadTrace(Exception):
    """What is wrong with the file, for the user."""


def read_trace(path):
    """Rows as dictionaries of numbers, in file order. The last line may be cut short: the program was ended."""
    rows = []
    with open(path, newline="", encoding="utf-8") as f:
        reader = csv.reader(f)
        if next(reader, None) != COLUMNS:
            raise BadTrace(f"{path}: not a trace: its first line should be {','.join(COLUMNS)}")
        bad = None
        for line in reader:
            if bad:
                raise BadTrace(f"{path}: line {bad} is not {len(COLUMNS)} numbers")
            try:
                numbers = [int(word) for word in line]
            except ValueError:
                numbers = []
            if len(numbers) != len(COLUMNS):
                bad = reader.line_num
                continue
            rows.append(dict(zip(COLUMNS, numbers)))
    if not rows:
        raise BadTrace(f"{path}: the trace holds no steps")
    return rows


def number_steps(rows):
    """Adds "time", the number of the step in the file: a session's own numbers begin anew with another session."""
    time = 0
    for before, row in zip([None, *rows], rows):
        if before and (row["step"] != before["step"] or row["layer"] <= before["layer"]):
            time += 1
        row["time"] = time


def share_map(rows):
    """[layer][step] share of the entries used; None where a layer did not say."""
    n_layers, n_steps = max(row["layer"] for row in rows) + 1, rows[-1]["time"] + 1
    shares = [[None] * n_steps for _ in range(n_layers)]
    for row in rows:
        shares[row["layer"]][row["time"]] = row["selected"] / row["entries"] if row["entries"] else None
    return shares


def per_step(rows):
    """Sums over the layers of each step, as lists by name, and the tiers' sizes at the end of it."""
    sums = collections.defaultdict(lambda: [0] * (rows[-1]["time"] + 1))
    for row in rows:
        for name in ("fetched_bytes", "hits", "misses", "stall_us"):
            sums[name][row["time"]] += row[name]
        for name in ("ram_bytes", "disk_bytes"):
            sums[name][row["time"]] = row[name]
    return sums


def draw(rows, path, title):
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import colors, pyplot
    number_steps(rows)
    shares = [[float("nan") if x is None else 100 * x for x in layer] for layer in share_map(rows)]
    sums = per_step(rows)
    has_disk = any(sums["disk_bytes"])
    figure, axes = pyplot.subplots(4 if has_disk else 2, 1, figsize=(10, 10 if has_disk else 6), sharex=True,
                                   height_ratios=[3, 1, 1, 1] if has_disk else [3, 1], layout="constrained")
    # Most shares are small: the root tells them apart.
    image = axes[0].imshow(shares, aspect="auto", origin="lower", interpolation="nearest",
                           norm=colors.PowerNorm(0.5, 0, 100))
    figure.colorbar(image, ax=axes[0], label="entries used, %")
    axes[0].set_ylabel("layer")
    axes[0].set_title(title)

    axes[1].plot([x / 1e6 for x in sums["ram_bytes"]], label="RAM")
    if has_disk:
        axes[1].plot([x / 1e6 for x in sums["disk_bytes"]], label="disk")
        axes[1].plot([x / 1e6 for x in sums["fetched_bytes"]], label="read in the step")
        axes[2].plot(sums["hits"], label="there in time")
        axes[2].plot(sums["misses"], label="waited for")
        axes[2].set_ylabel("blocks of 4 KiB")
        axes[2].legend(loc="upper right")
        axes[3].plot([x / 1e3 for x in sums["stall_us"]])
        axes[3].set_ylabel("stall, ms")
    axes[1].set_ylabel("MB")
    axes[1].legend(loc="upper right")
    axes[-1].set_xlabel("step")
    figure.savefig(path)


def main():
    parser = argparse.ArgumentParser(description="Draws a trace that `infinigen ... --kv-trace FILE` wrote.")
    parser.add_argument("trace", help="the CSV file")
    parser.add_argument("-o", "--output", help="the figure, .png, .svg or .pdf (default: beside the trace, .png)")
    o = parser.parse_args()
    output = o.output or os.path.splitext(o.trace)[0] + ".png"
    try:
        draw(read_trace(o.trace), output, os.path.basename(o.trace))
    except ModuleNotFoundError as error:
        return f"plot_trace.py: {error.name} is missing; `pip install matplotlib` provides it"
    except (BadTrace, OSError, ValueError) as error:
        return f"plot_trace.py: {error}"
    return 0


if __name__ == "__main__":
    sys.exit(main())
