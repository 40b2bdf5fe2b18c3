# SPDX-License-Identifier: Apache-2.0
"""Time and memory: Figures 14, 15, 16 and 18, and what the sketches take.

On a CPU the slower tier is the disk, where the paper has the host's memory behind PCI Express: a third of the keys and values
lies in RAM, the rest on disk. On a GPU it is as in the paper: all of them lie in the host's memory, and a third has copies on the
GPU. What is read in a step tells more than its time on a machine that does other work.
"""
from .accuracy import PAPERS
from .core import Claim, Experiment, Plot, command, listed, name_of, one, perplexity, plans, runs, short, where

RIVALS = ("full", "h2o", PAPERS, "infinigen")


def generation(s, depth, n, batch, policies=RIVALS, paged=False, times=1, **options):
    return command("bench", s.model, f=s.text, p=0, n=n, d=depth, b=batch, r=s.pick(1, times), kv_policy=policies,
                   kv_alpha=s.alpha, **s.limit_kv((depth + n) * batch, paged), **options, o="json")


def lines(results, slow=True):
    """The lines of reports of `bench` whose keys and values lay in the slower tier, or in fast memory beside them, each with
    its "method"."""
    for result in results:
        mapped = "--kv-map" in result.words    # paged by the system
        for line in result.report:
            if mapped or slow == (line["kv_on"] == "disk" or "--kv-vram" in result.words):
                bits = "" if line["kv_type"] == "f16" else " " + line["kv_type"]
                yield {**line, "method": line["policy"] + bits + (" mapped" if mapped else "")}


def read_mb(line):
    """MB that a step reads of the slower tier. None where the system pages: that is not counted by step."""
    from_disk, to_gpu = line["read_bytes_per_step"], (line.get("step") or {}).get("vram_read_bytes")
    return (to_gpu if from_disk is None else from_disk) / 1e6 if from_disk is not None or to_gpu else None


def faster(rows, key, rivals, factor=1.0):
    """A claim for each rival: the paper's method takes less of `key`."""
    mine = one(rows, method=PAPERS)[key]
    return [Claim(f"InfiniGen is faster than {rival}", mine * factor < one(rows, method=rival)[key],
                  f"{one(rows, method=rival)[key] / mine:.2f} times as fast") for rival in rivals]


# Figure 14
def fig14_shape(s):
    return s.pick((480, 16, 4), (1920, 128, 20))


def fig14_commands(s):
    prompt, n, batch = fig14_shape(s)
    return [command("bench", s.model, f=s.text, p=prompt, n=0, r=1, kv_policy=RIVALS, kv_alpha=s.alpha, o="json"),
            command("bench", s.model, f=s.text, p=prompt, n=0, r=1, kv_policy="full", kv_type="q4", o="json"),
            generation(s, prompt, n, batch, times=3), generation(s, prompt, n, batch, "full", kv_type="q4", times=3),
            *(generation(s, prompt, max(8, n // 8), batch, ("full", "h2o"), paged=True) for _ in s.offers("--kv-map"))]


def fig14_rows(s, results):
    n = fig14_shape(s)[1]    # of the slowest methods fewer are made
    prompts = {(x["policy"], x["kv_type"]): x["avg_ns"] / 1e9 for x in lines(results[:2], slow=False)}
    rows = []
    for line in lines(results[2:]):
        prompt, made = prompts[line["policy"], line["kv_type"]] * line["batch"], n * line["batch"] / line["avg_ts"]
        rows.append({"method": line["method"], "prompts s": prompt, "generation s": made, "total s": prompt + made,
                     "tokens/s": line["avg_ts"], "read per step MB": read_mb(line),
                     "used %": 100 * line["selected_share"]})
    return rows


def fig14_claims(rows):
    read = {r["method"]: r["read per step MB"] for r in rows}
    return [Claim("InfiniGen reads less of the slower tier than full", read[PAPERS] < read["full"] / 2,
                  f"{short(read[PAPERS])} MB a step against {short(read['full'])}")] + faster(
        rows, "generation s", ("full", "full q4", "h2o", *(r["method"] for r in rows if r["method"] == "full mapped")))


# Figure 15
def fig15_commands(s):
    prompt, n, _ = fig14_shape(s)
    return [c for batch in s.pick((1, 2, 4), (4, 8, 12, 16, 20))
            for c in (generation(s, prompt, n, batch), generation(s, prompt, n, batch, "full", kv_type="q4"))]


def fig15_rows(_, results):
    return [{"method": line["method"], "sequences": line["batch"], "tokens/s": line["avg_ts"],
             "read per step MB": read_mb(line)} for line in lines(results)]


def fig15_claims(rows):
    gain = {}
    for name in sorted({r["method"] for r in rows}):
        speeds = [r["tokens/s"] for r in sorted(where(rows, method=name), key=lambda r: r["sequences"])]
        gain[name] = speeds[-1] / speeds[0]
    most = max(r["sequences"] for r in rows)
    last = {r["method"]: r["tokens/s"] for r in where(rows, sequences=most)}
    return [Claim(f"InfiniGen gains more from larger batches than {rival}", gain[PAPERS] > gain[rival],
                  f"{gain[PAPERS]:.2f} times against {gain[rival]:.2f}") for rival in ("full q4", "h2o")] + [
        Claim(f"with {most} sequences it is faster than {rival}", last[PAPERS] > last[rival],
              f"{short(last[PAPERS])} tokens/s against {short(last[rival])}") for rival in ("full", "full q4", "h2o")]


# Figure 16
def fig16a_commands(s):
    n, batch = s.pick(16, 128), s.pick(4, 8)
    depths = s.pick((256, 512, 1024), (384, 896, 1408, 1920))
    contexts = tuple(min(d + s.pick(64, 128), s.limit) for d in depths)
    return [perplexity(s, contexts, s.pick(32, 64), PAPERS, kv_alpha=s.alpha),
            *(generation(s, d, n, batch, RIVALS[:3]) for d in depths)]


def fig16a_rows(_, results):
    counts = [(r["context"], r["selected_share"] * r["context"]) for r in runs(results[0])]
    rows = []
    for (context, count), result in zip(counts, results[1:]):
        line = {x["method"]: x for x in lines([result])}
        rows.append({"tokens": context, "entries selected": count,
                     **{f"{name} over full": line["full"]["avg_ns"] / line[name]["avg_ns"] for name in (PAPERS, "h2o")},
                     **{f"{name} reads MB": read_mb(line[name]) for name in ("full", PAPERS)}})
    return rows


def fig16a_claims(rows):
    ours, h2o, counts = ([r[k] for r in rows] for k in (f"{PAPERS} over full", "h2o over full", "entries selected"))
    growth = rows[-1]["tokens"] / rows[0]["tokens"]
    return [Claim("what is selected grows far slower than the length", counts[-1] / counts[0] < growth ** 0.75,
                  f"{listed(counts)} entries; paper 37, 60, 66, 73 at 512 to 2048"),
            Claim("the gain over full grows with the length", ours[-1] > ours[0], f"{listed(ours)} times"),
            Claim("at the longest it gains more than H2O", ours[-1] > h2o[-1], f"{short(ours[-1])} against {short(h2o[-1])} times")]


def fig16b_cases(s):
    """[(setup, room for weights)]: all models, and the largest with 70 % of its weights in RAM, or on the GPU."""
    largest = max(s.models, key=lambda m: m.weights)
    return [(m, None) for m in s.models] + [(largest, int(0.7 * largest.weights)) for _ in s.offers("--weights-ram")]


def fig16b_commands(s):
    prompt, n, _ = fig14_shape(s)
    return [c for m, share in fig16b_cases(s) for c in (
        generation(m, prompt, n, 4, RIVALS[:3], **s.limit_weights(share)),
        command("inspect", m.model, c=prompt + n, b=4, kv_policy="full", json=True))]


def fig16b_rows(s, results):
    rows = []
    for (setup, share), speed, plan in zip(fig16b_cases(s), results[::2], results[1::2]):
        line = {x["method"]: x for x in lines([speed])}
        rows.append({"model": name_of(setup.model) + (", room for 70 % of the weights" if share else ""),
                     "parameters M": plan.report["n_params"] / 1e6,
                     "weights MB": plan.report["memory"]["weights"] / 1e6, "KV MB": plan.report["memory"]["kv"] / 1e6,
                     **{f"{name} over full": line["full"]["avg_ns"] / line[name]["avg_ns"] for name in (PAPERS, "h2o")}})
    return sorted(rows, key=lambda r: r["parameters M"])


def fig16b_claims(rows):
    return [Claim(f"InfiniGen gains more than H2O with {r['model']}", r[f"{PAPERS} over full"] > r["h2o over full"],
                  f"{r[f'{PAPERS} over full']:.2f} against {r['h2o over full']:.2f} times full") for r in rows]


# Figure 18
PARTS = ("project", "append", "guess", "select", "rest", "wait", "attend", "ffn", "head", "other")


def fig18_commands(s):
    depth, batch = s.pick(1024, 2048) - 32, s.pick(2, 8)
    commands = [generation(s, depth, 16, batch, times=3, breakdown=True)]
    if s.device != "cpu":    # on a CPU `bench` measures the ideal beside the others
        commands.append(command("bench", s.model, f=s.text, p=0, n=16, d=depth, b=batch, r=s.pick(1, 3), kv_policy="full",
                                breakdown=True, o="json"))
    return commands


def fig18_rows(_, results):
    ideal = next(x for x in lines(results, slow=False) if x["policy"] == "full")
    return [{"method": "ideal" if line is ideal else line["method"], **{f"{p} ms": 1e3 * line["step"]["parts"][p] for p in PARTS},
             "step ms": 1e3 * line["step"]["seconds"], "times ideal": line["step"]["seconds"] / ideal["step"]["seconds"]}
            for line in [*lines(results), ideal]]


def fig18_claims(rows):
    full, ours, h2o = (one(rows, method=m) for m in ("full", PAPERS, "h2o"))
    waits = full["wait ms"] / full["step ms"]
    return [Claim("full mostly waits for the slower tier", waits > 0.5, f"{100 * waits:.0f} % of a step; paper 96.9 %",
                  f"{100 * (full['attend ms'] + full['ffn ms'] + full['project ms']) / full['step ms']:.0f} % of it is computing here"),
            Claim("InfiniGen is within twice the ideal", ours["times ideal"] < 2, f"{ours['times ideal']:.2f} times; paper 1.52"),
            Claim("the others are further from it", min(full["times ideal"], h2o["times ideal"]) > ours["times ideal"],
                  f"full {full['times ideal']:.2f}, h2o {h2o['times ideal']:.2f} times; paper 3.90 to 18.55",
                  "what h2o keeps fits in RAM here" if h2o["wait ms"] < 0.05 * h2o["step ms"] else "")]


# Memory
def memory_commands(s):
    return [command("inspect", s.model, c=s.limit, kv_policy=("full", PAPERS, "infinigen", "quest", "h2o"), json=True)]


def memory_rows(s, results):
    return [{"policy": p["policy"], "weights MB": p["memory"]["weights"] / 1e6, "KV MB": p["memory"]["kv"] / 1e6,
             "sketch MB": p["memory"]["sketch"] / 1e6, "sketch of KV %": 100 * p["memory"]["sketch"] / p["memory"]["kv"],
             "query heads for each KV head": s.group} for p in plans(results[0])]


def memory_claims(rows):
    ours = one(rows, policy=PAPERS)
    share, group = ours["sketch of KV %"], ours["query heads for each KV head"]
    return [Claim("partial keys take about 15 % of the keys and values", 10 <= share <= 20, f"{short(share)} % at a ratio of 0.3",
                  f"a partial cache for each of the {group} query heads of a KV head, {short(share / group)} % each")]


EXPERIMENTS = [
    Experiment(
        "fig14", "Seconds by method",
        "InfiniGen takes 61.0 s where H2O takes 99.6, INT4 182.6 and unified memory 2008: up to 3 times as fast as other ways to "
        "manage the cache. (Figure 14: OPT-13B, 20 sequences, 1920 tokens and 128 made.)",
        fig14_commands, fig14_rows, fig14_claims,
        plots=(Plot("bars", "method", ("generation s",), title="Seconds of the generation"),
               Plot("bars", "method", ("read per step MB",), title="Read from the slower tier in a step, MB")),
        paper=tuple({"method": m, "total s": t} for m, t in (("unified memory", 2008), ("INT4", 182.6), ("H2O", 99.6),
                                                             ("InfiniGen", 61.0))),
        note="The prompts are computed one after the other, and cost every method the same: what is compared is the generation.",
        timed=True),
    Experiment(
        "fig15", "Throughput by batch",
        "With 4 to 20 sequences InfiniGen goes from 27.4 to 42.0 tokens a second, INT4 from 12.2 to 14.0, H2O from 21.3 to 25.7. "
        "(Figure 15: OPT-13B.)",
        fig15_commands, fig15_rows, fig15_claims,
        plots=(Plot("lines", "sequences", ("tokens/s",), by="method", title="Tokens a second, all sequences together"),),
        paper=({"method": "InfiniGen", "4": 27.36, "20": 41.99}, {"method": "INT4", "4": 12.22, "20": 14.02},
               {"method": "H2O", "4": 21.31, "20": 25.70}),
        note="RAM for a third of the keys and values of all sequences together, at each size of the batch.", timed=True),
    Experiment(
        "fig16a", "Gain by length",
        "The gain over the full cache grows with the length to 5.28, that of INT4 and H2O stands at 1.92 and 3.40: on average 37, 60, "
        "66 and 73 entries are above the threshold at 512, 1024, 1536 and 2048 tokens. (Figure 16a: OPT-13B, 8 sequences.)",
        fig16a_commands, fig16a_rows, fig16a_claims,
        plots=(Plot("lines", "tokens", (f"{PAPERS} over full", "h2o over full"), title="Times as fast as full"),
               Plot("lines", "tokens", ("entries selected",), title="Entries that a query head selects")), timed=True),
    Experiment(
        "fig16b", "Gain by size of the model",
        "InfiniGen's gain grows with the model, 1.17 times better at 13B than at 6.7B and 1.34 at 30B; INT4 and H2O gain less. "
        "(Figure 16b: OPT of 6.7, 13 and 30B.)",
        fig16b_commands, fig16b_rows, fig16b_claims,
        plots=(Plot("bars", "model", (f"{PAPERS} over full", "h2o over full"), title="Times as fast as full"),),
        timed=True, together=True),
    Experiment(
        "fig18", "The parts of a step",
        "Transfer is 96.9 % of a step of FlexGen and 91.8 % of one of H2O. InfiniGen takes 1.52 times as long as an ideal that "
        "transfers nothing, the others 3.90 to 18.55 times. (Figure 18: one block of OPT-13B, 2048 tokens, 8 sequences.)",
        fig18_commands, fig18_rows, fig18_claims,
        plots=(Plot("stack", "method", tuple(f"{p} ms" for p in PARTS), title="Milliseconds of a step"),),
        paper=tuple({"method": m, "ms": t, "times ideal": x} for m, t, x in (
            ("ideal", 1.51, 1), ("InfiniGen", 2.29, 1.52), ("H2O", 5.89, 3.90), ("FlexGen", 28.0, 18.55))),
        note="The ideal is full with all keys and values in RAM; the paper's figures in milliseconds are calculated from its ratios.",
        timed=True),
    Experiment(
        "memory", "What the sketches take",
        "Partial query weights take 2.5 % of the parameters, partial keys 15 % of the keys and values, at a ratio of 0.3.",
        memory_commands, memory_rows, memory_claims,
        plots=(Plot("bars", "policy", ("KV MB", "sketch MB"), title="Keys and values, and the sketch beside them, MB"),),
        note="With rotary positions there are no partial query weights. h2o keeps a tenth of the entries only."),
]
