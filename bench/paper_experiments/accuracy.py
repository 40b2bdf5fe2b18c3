# SPDX-License-Identifier: Apache-2.0
"""What leaving entries out costs: Figures 11, 12, 13, 17 and 19, Table 2.

The measure is KL to `full`, the mean divergence of the predictions of the next token, beside perplexity: at the size of
these runs perplexity moves by chance by more than what is looked for.
"""
import statistics

from .core import OUT, Claim, Experiment, Plot, above, command, figures, listed, name_of, one, perplexity, runs, short, where

PAPERS = "infinigen-osdi24"    # the paper's method as published


# Figure 11
def relative_size(run):
    """Per cent of the cache that is used; fewer bits count as fewer entries."""
    bits = {"f16": 16, "q8": 8, "q4": 4, "q2": 2, "q1": 1}[run["kv_type"]]
    return 100 * run["selected_share"] * bits / 16


def fig11_commands(s):
    made = command("tasks", s.model, f=s.text, c=s.pick(320, 1024), n=s.pick(1, 3), o=OUT,
                   task=("pass_key", "niah_multikey_1", "niah_multikey_2", "kv_retrieval")[:s.pick(3, 4)])
    sweeps = [dict(kv_policy=("full", PAPERS), kv_alpha=s.pick((2, 4, 6), (2, 4, 5, 7, 9)), kv_budget="60%"),
              dict(kv_policy=("full", "h2o"), kv_budget=s.pick(("6.25%", "25%"), ("6.25%", "12.5%", "25%", "50%")),
                   kv_recent=8),
              dict(kv_policy="full", kv_type=("f16", *s.offers("q8", "q4", "q2", "q1")))]
    return [command("eval", s.model, task=task, dense_prefix="20%", json=True, **sweep,
                    **(dict(shots=5, shots_file=shots, limit=s.pick(10, 200)) if shots else {}))
            for task, shots in (s.tasks or [(made, None)]) for sweep in sweeps]


def fig11_rows(_, results):
    rows = []
    for result in results:
        for run in runs(result):
            quantised = run["kv_type"] != "f16"
            rows.append({"task": "made" if result.report["task"].endswith(".out") else name_of(result.report["task"]),
                         "questions": result.report["questions"],
                         "policy": "full " + run["kv_type"] if quantised else run["policy"],
                         "method": "fewer bits" if quantised else run["policy"],
                         "alpha": run["alpha"], "budget": run["budget"] if run["policy"] == "h2o" else None,
                         "size %": relative_size(run), "right %": 100 * run["accuracy"],
                         "as full %": 100 * run.get("same_tokens", run["agreement"])})
    return [r for i, r in enumerate(rows) if r["policy"] != "full" or r not in rows[:i]]


def at(points, x):
    """Between points [(x, y)]; outside of them the nearest one."""
    points = sorted(points)
    for (x0, y0), (x1, y1) in zip(points, points[1:]):
        if x0 <= x <= x1:
            return y0 + (y1 - y0) * (x - x0) / ((x1 - x0) or 1)
    return points[0][1] if x < points[0][0] else points[-1][1]


def fig11_claims(rows):
    """Each task has curves of its own, and counts once in the means."""
    tasks = list(dict.fromkeys(r["task"] for r in rows))

    def curves(method):
        return [[(r["size %"], r["as full %"]) for r in where(rows, task=task, method=method)] for task in tasks]
    ours = curves(PAPERS)
    claims = []
    for rival in ("h2o", "fewer bits"):
        pairs = [(curve, its) for curve, its in zip(ours, curves(rival)) if its]
        if not pairs:
            continue
        smallest = [min(its)[0] for _, its in pairs]
        small = statistics.mean(smallest)
        mine = statistics.mean(at(curve, x) for (curve, _), x in zip(pairs, smallest))
        its = statistics.mean(at(its, x) for (_, its), x in zip(pairs, smallest))
        claims.append(Claim(f"at {short(small)} % of the cache, the smallest of {rival}, InfiniGen answers more as full does",
                            mine > its, f"{short(mine)} % of the tokens against {short(its)} %"))
    best, size = (statistics.mean(values) for values in zip(*(max((y, x) for x, y in curve) for curve in ours)))
    claims.append(Claim("with more of the cache it equals full", best >= 97, f"{short(best)} % of the tokens at best",
                        f"at {short(size)} % of the cache"))
    return claims


# Figure 12
def fig12_commands(s):
    tail = s.context - s.context // 5
    by = s.pick(128, 256)
    return [perplexity(s, s.context, tail, ("full", "infinigen", PAPERS), kv_alpha=s.alpha, kv_budget="20%", by=by),
            perplexity(s, s.context, tail, ("full", "h2o"), kv_budget=s.context * 3 // 80, kv_sinks=0, kv_recent=1, by=by)]


def fig12_rows(_, results):
    both = runs(results[0]) + [r for r in runs(results[1]) if r["policy"] != "full"]
    return [{"policy": run["policy"], "position": part["last"] + 1, "perplexity": part["perplexity"], "KL": part.get("kl"),
             "used %": 100 * run["selected_share"]}
            for run in both for part in run["positions"] if part["tokens_scored"] > 1]


def fig12_claims(rows):
    kl = {p: [r["KL"] for r in where(rows, policy=p)] for p in (PAPERS, "h2o")}
    paired = list(zip(where(rows, policy=PAPERS), where(rows, policy="full")))
    worse = sum(a["perplexity"] / b["perplexity"] for a, b in paired) / len(paired)
    half = len(kl["h2o"]) // 2
    early, late = sum(kl["h2o"][:half]) / half, sum(kl["h2o"][-half:]) / half
    return [Claim("InfiniGen stays within 5 % of full's perplexity", worse < 1.05, f"{above(worse, 1)} on average",
                  f"it selects {short(paired[0][0]['used %'])} % of the entries; Figure 17 tells what more give"),
            Claim("H2O is further from full than InfiniGen in every part", all(a > b for a, b in zip(kl["h2o"], kl[PAPERS])),
                  f"KL {listed(kl['h2o'])} against {listed(kl[PAPERS])}"),
            Claim("H2O drifts away as the text goes on", late > early, f"KL {short(early)} in the first half, {short(late)} after",
                  f"it is at KL {short(kl['h2o'][0])} from the first part on")]


# Figure 13
def fig13_commands(s):
    return [perplexity(s, s.context, 64, ("full", PAPERS), kv_partial=0.1, kv_alpha=99)
            + ["--kv-sketch", "own", "--kv-sketch", "none"]]


def fig13_rows(_, results):
    return [{"skewing": "full" if r["policy"] == "full" else "with" if r["sketch"] else "without", **figures(r)}
            for r in runs(results[0])]


def fig13_claims(rows):
    kl = [one(rows, skewing=w)["KL"] for w in ("with", "without")]
    return [Claim("without skewing more is lost", kl[1] > 1.1 * kl[0], f"KL {short(kl[0])} with, {short(kl[1])} without")]


# Table 2
def table2_commands(s):
    return [perplexity(s, s.context, s.context // s.pick(4, 2), ("full", PAPERS), kv_alpha=s.alpha, kv_limit=("100%", "80%"),
                       kv_evict=("fifo", "lru", "counter"))]


def table2_rows(_, results):
    return [{"pool": "full" if r["policy"] == "full" else f"80 % {r['evict']}" if r["limit"] else "100 %", **figures(r)}
            for r in runs(results[0]) if r["policy"] != "full" or not r["limit"]]


def table2_claims(rows):
    ppl = {r["pool"]: r["perplexity"] for r in rows}
    kl = {r["pool"]: r["KL"] for r in rows}
    base = ppl["100 %"]
    return [Claim("FIFO is ruinous", ppl["80 % fifo"] > 1.1 * base, f"{above(ppl['80 % fifo'], base)} over no limit")] + [
        Claim(f"{rule} costs nothing", abs(ppl[f"80 % {rule}"] / base - 1) < 0.02,
              f"{above(ppl[f'80 % {rule}'], base)} over no limit",
              "what is dropped here is dropped for ever, where the published code drops one entry again and again"
              if kl[f"80 % {rule}"] > kl["100 %"] else "chance: KL is not higher")
        for rule in ("lru", "counter")]


# Figure 17
def fig17_commands(s):
    tail = s.pick(64, 256)
    return [perplexity(s, s.context, tail, ("full", PAPERS), kv_alpha=s.pick((1, 2, 4, 6, 9), tuple(range(1, 10)))),
            perplexity(s, s.context, tail, ("full", PAPERS),
                       kv_partial=s.pick((0.1, 0.3, 0.6, 1), (0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1)))]


def fig17_rows(_, results):
    return [{"sweep": sweep, "alpha": r["alpha"], "ratio": r["partial"], **figures(r),
             "partial keys MB": r["memory"]["sketch"] / 1e6, "entries of a step": r["step"]["entries_used"],
             "step ms": 1e3 * r["step"]["seconds"]}
            for sweep, result in zip(("alpha", "ratio"), results) for r in runs(result) if r["policy"] != "full"]


FLAT = 0.05    # nats above the end of a sweep: about 5 % of perplexity


def flat(rows, key, value):
    """A claim: from `value` on KL is within FLAT of the end of the sweep."""
    points = sorted((r[key], r["KL"]) for r in rows)
    end = points[-1][1]
    start = next(x for x, kl in points if kl - end < FLAT)
    return Claim(f"from {key} {value} on quality is flat", at(points, value) - end < FLAT,
                 f"KL {short(at(points, value))} there, {short(end)} at {short(points[-1][0])}", f"here from {short(start)} on")


def fig17_claims(rows):
    alpha, ratio = where(rows, sweep="alpha"), where(rows, sweep="ratio")
    first, last = alpha[0], alpha[-1]
    least, most = ratio[0], ratio[-1]
    grows = last["entries of a step"] / first["entries of a step"]
    return [flat(alpha, "alpha", 4), flat(ratio, "ratio", 0.3),
            Claim("more alpha reads more", grows > 1.5, f"{grows:.1f} times the entries of a step at alpha 9"),
            Claim("more ratio reads no more, and takes more memory",
                  most["entries of a step"] < 1.5 * least["entries of a step"]
                  and most["partial keys MB"] > 2 * least["partial keys MB"],
                  f"{most['entries of a step'] / least['entries of a step']:.2f} times the entries, "
                  f"{most['partial keys MB'] / least['partial keys MB']:.1f} times the memory")]


# Figure 19
def fig19_commands(s):
    return [perplexity(s, s.lengths(512, 1024, 2048, 4096, 8192, 16384, 32768), s.pick(64, 128),
                       ("full", "infinigen", PAPERS, "quest", "window", "h2o"), kv_alpha=s.alpha, kv_budget=64)]


def fig19_rows(_, results):
    return [figures(r, "context") for r in runs(results[0])]


def fig19_claims(rows):
    lengths = sorted({r["context"] for r in rows})
    kl = {p: [one(rows, policy=p, context=n)["KL"] for n in lengths] for p in ("h2o", PAPERS, "infinigen")}
    gap = [a - b for a, b in zip(kl["h2o"], kl[PAPERS])]
    return [Claim("H2O is further from full at every length", min(gap) > 0,
                  f"KL {listed(kl['h2o'])} against {listed(kl[PAPERS])} at {listed(lengths)} tokens"),
            Claim("the gap widens with length", gap[-1] > gap[0], f"from {short(gap[0])} to {short(gap[-1])}",
                  f"InfiniGen's own KL goes from {short(kl[PAPERS][0])} to {short(kl[PAPERS][-1])}")]


SWEEP = ("full", "infinigen", PAPERS, "h2o")
EXPERIMENTS = [
    Experiment(
        "fig11", "Answers against the size of the cache",
        "With five examples before each question, InfiniGen equals the full cache while it uses over 10 % of it. Below that it is "
        "better than H2O and than fewer bits. (Figure 11: five tasks, OPT and Llama-2 of 6.7 to 30B, every row past 20 % of a "
        "text sparse.)",
        fig11_commands, fig11_rows, fig11_claims,
        plots=(Plot("lines", "size %", ("as full %",), by="method", log="x", where=lambda r: r["policy"] != "full",
                    title="Tokens of the answers that are those of full"),),
        note="Without --tasks, generated tasks stand in: needles, pass keys, values of keys. As so few questions are asked, what "
             "counts is the share of the tokens that are those of full; with choices, of the answers."),
    Experiment(
        "fig12", "Perplexity along a text",
        "InfiniGen stays near the full cache in every chunk of 256 positions; H2O with 3.75 % drifts away. (Figure 12: OPT-13B, "
        "2048 tokens, alpha 4; Llama-2-13B, 4096 tokens, alpha 5.2; the first 20 % dense.)",
        fig12_commands, fig12_rows, fig12_claims,
        note="As in the paper, H2O holds 3.75 % of the whole text from the beginning on, half of it the most recent entries.",
        plots=(Plot("lines", "position", ("KL",), by="policy", log="y", where=lambda r: r["KL"], title="KL to full by position"),
               Plot("lines", "position", ("perplexity",), by="policy", title="Perplexity by position"))),
    Experiment(
        "fig13", "Without skewing",
        "With a partial ratio of 0.1 and always the most entries, quality falls much without skewing on OPT-6.7B, little on "
        "Llama-2. (Figure 13: five tasks.)",
        fig13_commands, fig13_rows, fig13_claims,
        plots=(Plot("bars", "skewing", ("KL",), where=lambda r: r["KL"], title="KL to full"),)),
    Experiment(
        "table2", "A pool of 80 %",
        "A pool that holds 80 % of the entries costs nothing with the rules LRU and counter; FIFO is ruinous. (Table 2: perplexity, "
        "2048 tokens.)",
        table2_commands, table2_rows, table2_claims,
        plots=(Plot("bars", "pool", ("perplexity",), title="Perplexity by rule of eviction"),),
        paper=tuple({"model": m, "text": t, "100 %": full, "80 % fifo": fifo, "80 % lru": full, "80 % counter": full}
                    for m, t, full, fifo in (("OPT-6.7B", "WikiText-2", 11.68, 19.64), ("OPT-13B", "WikiText-2", 10.55, 30.99),
                                             ("OPT-30B", "WikiText-2", 10.14, 30.66), ("Llama-2-7B", "WikiText-2", 5.69, 22.26),
                                             ("Llama-2-13B", "WikiText-2", 5.25, 21.41), ("OPT-6.7B", "PTB", 13.86, 16.82)))),
    Experiment(
        "fig17", "Alpha and the partial ratio",
        "Accuracy is flat from alpha 4 and from a ratio of 0.3 on; latency grows with alpha and hardly with the ratio, whose memory "
        "doubles. (Figure 17: OPT-6.7B and OPT-13B; alpha 1 to 9, ratio 0.1 to 1.)",
        fig17_commands, fig17_rows, fig17_claims,
        plots=(Plot("lines", "alpha", ("KL",), log="y", where=lambda r: r["sweep"] == "alpha", title="KL to full by alpha"),
               Plot("lines", "ratio", ("KL",), log="y", where=lambda r: r["sweep"] == "ratio", title="KL to full by ratio")),
        note="Latency is judged by the entries that a step reads; times are in the table."),
    Experiment(
        "fig19", "64 entries of longer and longer texts",
        "With 64 entries kept, the gap between InfiniGen and H2O or fewer bits widens with the length. (Figure 19: Llama-2-7B-32K, "
        "WikiText-2, up to 32K tokens.)",
        fig19_commands, fig19_rows, fig19_claims,
        plots=(Plot("lines", "context", ("KL",), by="policy", log="xy", where=lambda r: r["KL"], title="KL to full by length"),)),
]
