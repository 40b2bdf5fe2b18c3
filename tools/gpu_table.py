#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gpu_table.py FOLDER: what tools/check-gpu has measured, a row each, and how one compares with the other. A file that is missing
or broken leaves out what needs it."""
import glob
import json
import os
import sys


def files_of(folder):
    """What the files say, by their names."""
    found = {}
    for path in sorted(glob.glob(os.path.join(folder, "*.json"))):
        try:
            with open(path) as f:
                found[os.path.basename(path)[:-5]] = json.load(f)
        except ValueError:
            print(f"{path}: is not JSON")
    return found


def describe_bounds(b):
    """Lines of what bench/gpu.c measured."""
    gb = {name: b[name] / 1e9 for name in ("to_gpu", "from_gpu", "within_gpu", "gather", "gather_with_few_heads", "in_place", "from_copies")}
    us = {name: b[name] * 1e6 for name in ("wait_seconds", "launch_seconds", "launch_seconds_in_graph")}
    flops = ", ".join(f"{name.replace('_in', ' into the FFN').replace('_out', ' out of it')} {x / 1e12:.0f}"
                      for name, x in b.get("prompt_flops", {}).items())
    return (f"GB/s: {gb['to_gpu']:.1f} to the GPU, {gb['from_gpu']:.1f} from it, {gb['within_gpu']:.0f} within it; blocks gathered "
            f"{gb['gather']:.1f} ({b['gather'] / b['to_gpu']:.0%} of the bus), with 2 KV heads "
            f"{gb['gather_with_few_heads']:.1f} ({b['gather_with_few_heads'] / b['to_gpu']:.0%}), rows read in place {gb['in_place']:.1f}, "
            f"from copies {gb['from_copies']:.0f}\n"
            f"TFLOP/s of prompts: {flops}\n"
            f"us: {us['wait_seconds']:.1f} for a wait, {us['launch_seconds']:.2f} for a launch, "
            f"{us['launch_seconds_in_graph']:.2f} in a graph")


def describe(name, row):
    """A line."""
    step = row.get("step") or {}
    kv, weights = step.get("vram_read_bytes") or 0, row.get("weight_bytes_per_step") or 0
    text = (f"{name:28} {row['device']:8} {row['policy']:16} {row['n_prompt']:5} prompt, {row['n_gen']:3} new after {row['n_depth']:5}, "
            f"batch {row['batch']}: {row['median_ts']:10.1f} tokens/s")
    if kv:
        text += f", {kv / 1e6:.2f} MB of keys and values to the GPU in a step"
    if weights:
        text += f", weights copied in a step {weights / 1e6:.1f} MB"
    if (kv or weights) and step.get("seconds"):
        text += f", {(kv + weights) / step['seconds'] / 1e9:.1f} GB/s over the bus"
    if weights and row.get("weight_stall_share") is not None:
        text += f", {row['weight_stall_share']:.0%} of the time waited for"
    parts = step.get("parts")
    if name.startswith("breakdown") and parts:
        text += ", of a step " + ", ".join(f"{part} {seconds / step['seconds']:.0%}" for part, seconds in parts.items() if seconds)
    return text


def compare(found):
    """Ratios of tokens a second."""
    def speed(name):
        return next((r["median_ts"] for r in found.get(name, []) if r["n_gen"]), None)

    ours = speed("vram-infinigen-0.25-auto")
    for other, what in (("vram-full-0-auto", "full, all fetched"), ("vram-full-0.25-auto", "full with a quarter in the GPU's memory"),
                        ("vram-full-1-auto", "full, all in the GPU's memory"), ("vram-full-managed", "full in managed memory"),
                        ("vram-infinigen-osdi24-0", "infinigen-osdi24, all fetched"),
                        ("vram-infinigen-osdi24-0.25", "infinigen-osdi24 with a quarter in the GPU's memory"),
                        ("vram-infinigen-0.25-none", "itself without guesses"),
                        ("vram-infinigen-0.25-late", "itself with guesses in each step")):
        if ours and speed(other):
            print(f"infinigen with a quarter in the GPU's memory: {ours / speed(other):.2f} times as fast as {what}")


def main():
    files = files_of(sys.argv[1])
    if "bounds" in files:
        print(describe_bounds(files["bounds"]))
    found = {name: rows for name, rows in files.items() if isinstance(rows, list)}
    for name, rows in found.items():
        for row in rows:
            print(describe(name, row))
    compare(found)


main()
