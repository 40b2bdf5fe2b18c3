# SPDX-License-Identifier: Apache-2.0
"""What a choice costs in fast memory, and what it gives: every policy and type of keys and values on one scale."""
from .core import Claim, Experiment, Plot, perplexity, runs, short, where


def frontier_commands(s):
    length, tail = min(s.limit, s.pick(2048, 8192)), s.pick(64, 256)
    everything = ("f16", *s.offers("q8", "q4"))
    return [perplexity(s, length, tail, ("full", "infinigen"), kv_type=everything),
            perplexity(s, length, tail, ("full", "infinigen"), kv_type=everything[:2], kv_ram=s.kv_ram(length, 1 / 4)),
            perplexity(s, length, tail, ("full", "h2o"), kv_budget=("5%", "10%", "20%", "40%")),
            perplexity(s, length, tail, ("full", "infinigen"), kv_limit=("100%", "50%", "25%"))]


SERIES = (("", lambda run: True), (" on disk", lambda run: True),    # what follows has those before as its measure of KL
          ("", lambda run: run["policy"] == "h2o"), (" limited", lambda run: run["limit"]))


def frontier_rows(_, results):
    rows = []
    for (kept, wanted), result in zip(SERIES, results):
        for run in filter(wanted, runs(result)):
            memory = run["memory"]
            rows.append({"choice": run["policy"] + kept, "type": run["kv_type"],
                         "setting": run["budget"] if run["policy"] == "h2o" else run["limit"],
                         "RAM MB": (memory["kv"] + memory["sketch"]) / 1e6, "KL": run.get("kl") or 0.0,
                         "perplexity": run["perplexity"], "read per token MB": run["read_bytes_per_token"] / 1e6})
    return rows


def frontier_claims(rows):
    kept = {c: [r for r in where(rows, choice=c) if r["type"] == "f16"] for c in {r["choice"] for r in rows}}
    whole, = kept["full"]
    exact, = kept["full on disk"]
    ours, = kept["infinigen on disk"]
    dropped = [r for r in rows if r["choice"] in ("h2o", "infinigen limited") and r["RAM MB"] <= ours["RAM MB"]]
    best = min(dropped, key=lambda r: r["KL"], default=None)
    claims = [Claim("with a disk behind, the default policy takes less than half the memory", ours["RAM MB"] < whole["RAM MB"] / 2,
                    f"{short(ours['RAM MB'])} of {short(whole['RAM MB'])} MB, sketch and all"),
              Claim("and reads a tenth at most of what full reads there",
                    ours["read per token MB"] < exact["read per token MB"] / 10,
                    f"{short(ours['read per token MB'])} against {short(exact['read per token MB'])} MB for a token")]
    return claims + ([Claim("nothing that drops entries is as near to full in as much memory", ours["KL"] < best["KL"],
                            f"KL {short(ours['KL'])} against {short(best['KL'])} of {best['choice']} at best")] if best else [])


EXPERIMENTS = [
    Experiment(
        "frontier", "Quality against bytes in fast memory",
        "The paper counts entries. What a machine has is bytes: keys and values in all their types, sketch and tables. On disk "
        "means that a quarter of the keys and values lies in RAM.",
        frontier_commands, frontier_rows, frontier_claims,
        plots=(Plot("lines", "RAM MB", ("KL",), by="choice", log="xy", where=lambda r: r["KL"],
                    title="KL to full by what lies in fast memory"),),
        note="What is read in a step tells what full on disk costs, whose answers are exact."),
]
