# SPDX-License-Identifier: Apache-2.0
"""What the paper observes before it proposes anything: Figures 2, 4, 5 and 20."""
import statistics

from .core import OUT, Claim, Experiment, Plot, command, grouped, listed, mean, perplexity, plans, read_trace, runs, short, where


# Figure 2
def fig2_commands(s):
    lengths = s.lengths(256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
    return [command("inspect", s.model, c=lengths, b=16, kv_policy="full", json=True),
            command("inspect", s.model, c=s.context, b=(1, 2, 4, 8, 16, 32, 64), kv_policy="full", json=True)]


def fig2_rows(_, results):
    return [{"sweep": sweep, "tokens": p["context"], "sequences": p["batch"], "KV": p["memory"]["kv"] / 1e6,
             "weights": p["memory"]["weights"] / 1e6, "KV of weights": p["memory"]["kv"] / p["memory"]["weights"]}
            for sweep, result in zip(("length", "batch"), results) for p in plans(result)]


def fig2_claims(rows):
    claims = []
    for sweep, key in (("length", "tokens"), ("batch", "sequences")):
        part = where(rows, sweep=sweep)
        growth = [(b["KV"] / a["KV"]) / (b[key] / a[key]) for a, b in zip(part, part[1:])]
        claims.append(Claim(f"keys and values grow in step with the {sweep}", all(abs(g - 1) < 0.05 for g in growth),
                            f"{part[0]['KV']:.0f} to {part[-1]['KV']:.0f} MB"))
    most = max(rows, key=lambda r: r["KV of weights"])
    return claims + [Claim("they outgrow the weights", most["KV of weights"] > 1,
                           f"{most['KV of weights']:.1f} times the weights, {most['sequences']} sequences of {most['tokens']}")]


# Figure 4
def fig4_commands(s):
    tail = s.context - s.context // 4
    every = s.pick(24, 16)
    exact = dict(kv_mass=1, kv_locality=0, kv_inertia=0, no_kv_rest=True)
    settings = {"h2o": dict(kv_sinks=0, kv_recent=1), "oracle": dict(kv_sinks=0, kv_recent=1, **exact), "infinigen": {}}
    return [perplexity(s, s.context, tail, policy, kv_budget=s.context // 10, kv_dense_layers=2, **own, audit=every,
                       audit_trace=OUT) for policy, own in settings.items()]


def fig4_rows(_, results):
    rows = []
    for result in results:
        policy = runs(result)[0]["policy"]
        for (seen,), heads in grouped(read_trace(result.path), "seen").items():
            rows.append({"policy": policy, "tokens": int(seen), "cosine": mean(heads, "cosine"),
                         "cosine of the output": mean(heads, "output_cosine"), "weight held %": 100 * mean(heads, "mass")})
    return rows


def halves(values):
    """Means of the first half and of the second."""
    half = len(values) // 2
    return statistics.fmean(values[:half]), statistics.fmean(values[-half:])


def fig4_claims(rows):
    cosine = {p: [r["cosine"] for r in where(rows, policy=p)] for p in ("h2o", "oracle", "infinigen")}
    early, late = halves(cosine["h2o"])
    weights = {p: statistics.fmean(c) for p, c in cosine.items()}
    output = {p: mean(where(rows, policy=p), "cosine of the output") for p in cosine}
    seen = lambda p: f"cosine {weights[p]:.3f}, of the output {output[p]:.3f}"
    return [Claim("what H2O keeps is further from full attention than the best choice of as many entries",
                  1 - weights["h2o"] > 1.25 * (1 - weights["oracle"]), f"{seen('h2o')}; best choice {seen('oracle')}"),
            Claim("and moves away as the text goes on", late < early, f"cosine {early:.3f} in the first half, {late:.3f} after",
                  f"with the best choice {', '.join(f'{x:.3f}' for x in halves(cosine['oracle']))}: later texts are easier"
                  if halves(cosine["oracle"])[1] > halves(cosine["oracle"])[0] else ""),
            Claim("a choice among all entries stays nearer", output["infinigen"] > output["h2o"], f"infinigen {seen('infinigen')}")]


def full_attention(s, context, tail, every, **more):
    """A trace of what full attention looks at in all layers: of a policy that leaves nothing out, as `full` has no audits."""
    return perplexity(s, context, tail, "oracle", kv_budget="99%", kv_mass=1, kv_dense_layers=0, audit=every, audit_trace=OUT,
                      **more)


# Figure 5
def fig5_commands(s):
    return [full_attention(s, s.context, s.pick(16, 32), 1)]


def fig5_rows(_, results):
    rows = []
    for (layer,), heads in grouped(read_trace(results[0].path), "layer").items():
        needed = sorted(h["needed"] for h in heads)
        steps = [mean(group, "needed") for group in grouped(heads, "step").values()]
        rows.append({"layer": int(layer), "keys, mean": statistics.fmean(needed),
                     "keys, 10th percentile": needed[len(needed) // 10], "keys, 90th percentile": needed[-1 - len(needed) // 10], "least of a step": min(steps),
                     "most of a step": max(steps), "of keys": int(max(h["seen"] for h in heads))})
    return rows


def fig5_claims(rows):
    first = rows[0]["keys, mean"]
    others = [r["keys, mean"] for r in rows[1:]]
    moves = statistics.median(r["most of a step"] / r["least of a step"] for r in rows[1:])
    return [Claim("layer 0 needs many keys", first > 2 * statistics.median(others),
                  f"{first:.0f} of {rows[0]['of keys']}, the others {statistics.median(others):.0f} in the middle"),
            Claim("layers differ", max(others) > 3 * min(others), f"{min(others):.0f} to {max(others):.0f} keys"),
            Claim("steps differ", moves > 1.1, f"in the middle layer the most of a step is {moves:.2f} times the least; paper 1.23")]


# Table 1, and the columns that skewing works on
def activations(s):
    return [command("inspect", s.model, c=s.context, activations=s.text, json=True)]


def table1_rows(_, results):
    layers = results[0].report["activations"]["layers"]
    return [{"layer": i, **layer["cosine"]} for i, layer in enumerate(layers) if layer["cosine"]]


def table1_claims(rows):
    cosine = {key: mean(rows, key) for key in ("input", "attention", "ffn")}
    return [Claim("what enters a layer is much like what entered the one before", cosine["input"] > 0.85,
                  f"cosine {cosine['input']:.2f}; paper 0.89 to 0.97"),
            Claim("and little like what attention and FFN add to it", max(cosine["attention"], cosine["ffn"]) < 0.5,
                  f"{cosine['attention']:.2f} and {cosine['ffn']:.2f}; paper 0.27 to 0.37")]


def columns_rows(_, results):
    told = results[0].report["activations"]
    even = [n / len(told["layers"][0]["heads"][0]["q"]) for n in told["columns"]]
    names = {"queries": "q", "queries, skewed": "q_skewed", "keys": "k", "keys, skewed": "k_skewed"}
    return [{"of": name, "columns %": 100 * share, "energy in them %": 100 * energy}
            for name, key in names.items() for share, energy in zip(even, told["energy"][key])]


def columns_claims(rows):
    few = {name: [r["energy in them %"] for r in where(rows, of=name)] for name in dict.fromkeys(r["of"] for r in rows)}
    share = where(rows, of="queries")[0]["columns %"]
    return [Claim(f"a few columns of {of} stand out", few[of][0] > 3 * share,
                  f"{short(few[of][0])} % of the energy in the best {short(share)} % of the columns") for of in ("queries", "keys")] + [
        Claim(f"skewing gathers the energy of {of} in fewer columns", few[f"{of}, skewed"][0] > few[of][0],
              f"{short(few[of][0])} to {short(few[of + ', skewed'][0])} %",
              "its matrix is made from queries alone" if few["queries, skewed"][0] > few["queries"][0] else "")
        for of in ("queries", "keys")]


# Figure 20
def fig20_commands(s):
    return [full_attention(s, n, 16, 4) for n in s.lengths(512, 1024, 2048, 4096, 8192, 16384, 32768)]


def fig20_rows(_, results):
    rows = []
    for result in results:
        heads = [h for h in read_trace(result.path) if h["layer"] > 1]
        few = sum(h["needed"] < 0.01 * h["seen"] for h in heads)
        rows.append({"tokens": runs(result)[0]["context"], "queries that need under 1 % of the keys %": 100 * few / len(heads),
                     "keys needed": mean(heads, "needed"), "keys needed %": 100 * mean(heads, "needed") / mean(heads, "seen")})
    return rows


def fig20_claims(rows):
    few = [r["queries that need under 1 % of the keys %"] for r in rows]
    share = [r["keys needed %"] for r in rows]
    return [Claim("the share of queries that need under 1 % of the keys grows with length", few[-1] > few[0],
                  f"{listed(few, ' %')} at {listed(r['tokens'] for r in rows)} tokens"),
            Claim("the share of the keys that is needed falls", share[-1] < share[0], listed(share, " %"))]


# Figure 20, over time
def waking_commands(s):
    length = min(s.limit, s.pick(1024, 8192))
    half = length // 2
    return [full_attention(s, length, half, s.pick(2, 4), audit_keys=f"8-{half - 1}+{half // 32}")]


def longest_sleep(weights):
    """(tokens that the key slept, its weight when it woke) of its longest sleep. `weights`: (step, weight, even share).
    It sleeps while it has less than an even share, and has woken once it has ten times that."""
    longest, since = (0, 0), None
    for step, weight, even in weights:
        if weight < even:
            since = step if since is None else since
        elif weight >= 10 * even:
            longest = max(longest, (step - since, weight)) if since is not None else longest
            since = None
    return longest


def waking_rows(_, results):
    heads = [h for h in read_trace(results[0].path) if h["layer"] > 1]
    keys = [column for column in heads[0] if column.startswith("key_")]
    weights = {(key, *head): [(h["step"], h[key], 1 / h["seen"]) for h in part]
               for head, part in grouped(heads, "layer", "head").items() for key in keys}
    slept = {key: longest_sleep(w) for key, w in weights.items()}
    last = max(h["step"] for h in heads)
    key, layer, head = best = max(slept, key=lambda k: (slept[k][0] >= last / 4, slept[k][1]))
    example = f"key {key[4:]}, layer {layer:.0f}, head {head:.0f}"
    rows, tokens = [], 8
    while tokens <= last:
        rows.append({"shows": "all", "tokens": tokens, "keys that slept so long and woke %":
                     100 * sum(n >= tokens for n, _ in slept.values()) / len(slept), "weight %": None, "even shares": None})
        tokens *= 2
    return rows + [{"shows": example, "tokens": step, "keys that slept so long and woke %": None, "weight %": 100 * w,
                    "even shares": w / even} for step, w, even in weights[best]]


def waking_claims(rows):
    woke = where(rows, shows="all")
    example = [r for r in rows if r["shows"] != "all"]
    most = max(example, key=lambda r: r["weight %"])
    before = [r["weight %"] for r in example if r["tokens"] < most["tokens"]]
    few = woke[-2] if len(woke) > 1 else woke[-1]
    seen = "keys that slept so long and woke %"
    return [Claim("keys to which a head gave next to nothing for long come back", few[seen] > 0.1,
                  f"{short(few[seen])} % of them after {few['tokens']} tokens or more"),
            Claim("and may have a hundred times an even share then, so that a cache that dropped them would miss them",
                  bool(before) and most["even shares"] > 100 and statistics.median(before) < most["weight %"] / 100,
                  f"{most['shows']}: in the middle {short(statistics.median(before or [0]))} %, then {short(most['weight %'])} %, "
                  f"{short(most['even shares'])} times an even share")]


GB_PER_TOKEN = 2 * 2 * 48 * 7168 / 1e9    # OPT-30B: keys and values in 16 bits, 48 layers, 7168 wide
EXPERIMENTS = [
    Experiment(
        "fig2", "Keys and values against weights",
        "Keys and values grow with length and batch, and soon are larger than the weights. (Figure 2: OPT-30B, lengths with 16 "
        "sequences, batches of 2048 tokens.)",
        fig2_commands, fig2_rows, fig2_claims,
        plots=(Plot("lines", "tokens", ("KV", "weights"), log="x", where=lambda r: r["sweep"] == "length",
                    title="MB, 16 sequences, by length"),
               Plot("lines", "sequences", ("KV", "weights"), log="x", where=lambda r: r["sweep"] == "batch", title="MB by batch")),
        paper=tuple({"tokens": n, "sequences": b, "KV GB": n * b * GB_PER_TOKEN, "weights GB": 60.0}
                    for n, b in ((2048, 1), (2048, 16), (8192, 16))),
        note="The paper's figures are calculated from the shape of OPT-30B."),
    Experiment(
        "fig4", "What H2O keeps drifts away",
        "With 200 of 2000 entries, attention under H2O leaves the direction of full attention after about 200 steps; the best choice "
        "of as many entries at every step stays near. (Figure 4: OPT-6.7B, PG-19, cosine of attention weights.)",
        fig4_commands, fig4_rows, fig4_claims,
        plots=(Plot("lines", "tokens", ("cosine",), by="policy", title="Cosine of attention weights to those of full attention"),
               Plot("lines", "tokens", ("cosine of the output",), by="policy", title="Cosine of attention's output")),
        note="The first quarter of the text is dense. As many entries for all, a tenth of the whole text, at every step. Mean over all "
             "query heads of all layers but the first two."),
    Experiment(
        "fig5", "Keys that hold 0.9 of the attention",
        "Layer 0 needs many keys, deeper ones few, and how many changes from step to step: 172, 164, 146, 154 and 140 for five tokens "
        "in a row in layer 18. (Figure 5: OPT-6.7B, 2000 tokens.)",
        fig5_commands, fig5_rows, fig5_claims,
        plots=(Plot("lines", "layer", ("keys, 90th percentile", "keys, mean", "keys, 10th percentile"), log="y",
                    title="Keys that hold 0.9 of the weight, by layer"),),
        paper=tuple({"tokens": n, "keys in layer 18": k} for n, k in ((500, 80), (1000, 146), (1500, 160), (2000, 164)))),
    Experiment(
        "table1", "Neighbouring layers are alike",
        "The input of a layer is much like that of the layer before, cosine 0.89 to 0.97, so that the one layer can guess what the "
        "next one will look for; outputs of attention and FFN are not, 0.27 to 0.37. (Table 1.)",
        activations, table1_rows, table1_claims,
        plots=(Plot("lines", "layer", ("input", "attention", "ffn"),
                    title="Cosine of a layer's input to the input before, and to what was added"),),
        paper=tuple({"model": m, "input": x} for m, x in (("OPT-6.7B", .95), ("OPT-13B", .96), ("OPT-30B", .97),
                                                          ("Llama-2-7B", .89), ("Llama-2-13B", .91)))),
    Experiment(
        "skewing", "Few columns tell most",
        "Some columns of queries and keys are far larger than others; skewing makes them fewer and larger still, so that a "
        "part of the columns predicts the scores. (Section 4.2.)",
        activations, columns_rows, columns_claims,
        plots=(Plot("lines", "columns %", ("energy in them %",), by="of", title="Energy in so many of a head's columns, %"),),
        note="The best columns before skewing, the first ones after; mean over heads and layers."),
    Experiment(
        "fig20", "The longer the text, the smaller the share",
        "Up to a million tokens, more and more queries give nearly all their weight to under 1 % of the keys; keys that nothing "
        "needed for thousands of steps come back. (Figure 20: Llama-3-8B-1048K.)",
        fig20_commands, fig20_rows, fig20_claims,
        plots=(Plot("lines", "tokens", ("queries that need under 1 % of the keys %",), log="x",
                    title="Queries that need under 1 % of the keys, %"),),
        note="Keys that hold 0.9 of the weight, layers 2 and up."),
    Experiment(
        "waking", "Keys that sleep wake up",
        "Keys that nothing looked at for thousands of tokens get much weight again, so that a cache that dropped them could not answer. "
        "(Figure 20, right: one key of Llama-3-8B-1048K over time.)",
        waking_commands, waking_rows, waking_claims,
        plots=(Plot("lines", "tokens", ("weight %",), by="shows", where=lambda r: r["shows"] != "all",
                    title="Weight of one key of one head over time, %"),
               Plot("lines", "tokens", ("keys that slept so long and woke %",), log="x", where=lambda r: r["shows"] == "all",
                    title="Keys that slept for so many tokens and woke, %")),
        note="Full attention's weights of 32 keys, in all heads of layers 2 and up, over the second half of the text. A key sleeps while "
             "it has less than an even share of the weight, and has woken once it has ten times that. The example is the one "
             "that had most then, of those that slept a quarter of the time or more."),
]
