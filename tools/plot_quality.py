#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws a table of docs/quality.md: KL against the budget, a line for each policy.

    tools/plot_quality.py > docs/quality.svg

Both axes are logarithmic. Nothing but Python is needed.
"""
import math
import os
import re

SOURCE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "docs/quality.md")
HEADING = "smollm2-135m, 8192 tokens ("
COLOURS = {"infinigen": "#c0392b", "oracle": "#7f8c8d", "quest": "#2471a3", "window": "#1e8449", "h2o": "#9a6b00",
           "snapkv": "#8e44ad", "pyramidkv": "#16a085"}
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 400, 70, 110, 50, 60
X_MIN, X_MAX, Y_MIN, Y_MAX = 2.2, 23, 0.002, 0.4


def read_table(path):
    """{policy: [(budget in per cent, KL)]} of the table below HEADING."""
    with open(path, encoding="utf-8") as file:
        lines = file.read().split(HEADING)[1].split("\n\n")[1].splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    budgets = [float(cell.rstrip(" %")) for cell in rows[0][1:]]
    return {row[0].strip("`"): [(x, float(re.match(r"[0-9.]+", cell)[0])) for x, cell in zip(budgets, row[1:]) if cell]
            for row in rows[2:]}


def scale(value, low, high, start, end):
    return start + (end - start) * math.log(value / low) / math.log(high / low)


def x_of(value):
    return scale(value, X_MIN, X_MAX, LEFT, WIDTH - RIGHT)


def y_of(value):
    return scale(value, Y_MIN, Y_MAX, HEIGHT - BOTTOM, TOP)


def draw(table):
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="13">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
           f'<text x="{LEFT}" y="24" font-size="15">How far predictions are from those with the whole cache '
           '(KL; lower is better)</text>']
    text = lambda x, y, words, more="": out.append(f'<text x="{x:.1f}" y="{y:.1f}" {more}>{words}</text>')
    line = lambda a, b, c, d, more: out.append(f'<line x1="{a:.1f}" y1="{b:.1f}" x2="{c:.1f}" y2="{d:.1f}" {more}/>')
    for y in (0.003, 0.01, 0.03, 0.1, 0.3):
        line(LEFT, y_of(y), WIDTH - RIGHT, y_of(y), 'stroke="#dddddd"')
        text(LEFT - 8, y_of(y) + 4, f"{y:g}", 'text-anchor="end"')
    for x in (2.5, 5, 10, 20):
        line(x_of(x), TOP, x_of(x), HEIGHT - BOTTOM, 'stroke="#eeeeee"')
        text(x_of(x), HEIGHT - BOTTOM + 18, f"{x:g} %", 'text-anchor="middle"')
    text(LEFT + 8, y_of(0.003) + 16, "what rounding alone does", 'fill="#888888" font-size="12"')
    text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 16, "entries that a step may use, of 8192 tokens (smollm2-135m, WikiText-2)",
         'text-anchor="middle"')
    labels = []  # lines end near each other: labels are moved apart
    for policy, points in sorted(table.items(), key=lambda item: item[1][-1][1]):
        own = 'stroke-width="3"' if policy == "infinigen" else 'stroke-width="1.5"'
        if policy == "oracle":
            own += ' stroke-dasharray="5 4"'
        path = " ".join(f"{x_of(x):.1f},{y_of(y):.1f}" for x, y in points)
        out.append(f'<polyline points="{path}" fill="none" stroke="{COLOURS[policy]}" {own}/>')
        y = y_of(points[-1][1]) + 4
        if labels and labels[-1] - y < 15:
            y = labels[-1] - 15
        labels.append(y)
        text(x_of(points[-1][0]) + 10, y, policy, f'fill="{COLOURS[policy]}"'
             + (' font-weight="bold"' if policy == "infinigen" else ""))
    return "\n".join(out + ["</svg>"])


if __name__ == "__main__":
    print(draw(read_table(SOURCE)))
