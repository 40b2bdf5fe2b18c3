# SPDX-License-Identifier: Apache-2.0
"""What later papers ask of the method: long-context tasks (RULER's rules) and long generation."""
import statistics

from .accuracy import PAPERS
from .core import OUT, Claim, Experiment, Plot, command, grouped, mean, perplexity, runs, short, where

QUICK_TASKS = ("niah_single_2", "niah_multikey_2", "niah_multikey_3", "vt", "kv_retrieval", "pass_key")
TASKS = ("niah_single_1", "niah_single_2", "niah_single_3", "niah_multikey_1", "niah_multikey_2", "niah_multikey_3",
         "niah_multivalue", "niah_multiquery", "vt", "cwe", "fwe", "kv_retrieval", "pass_key", "records", "multi_turn",
         "facts_1", "facts_2", "number_string", "math_find", "code_run")


def ruler_commands(s):
    """Two for each task: whole they take hours, and are resumed between two of them."""
    commands = []
    for task in s.pick(QUICK_TASKS, TASKS):
        made = command("tasks", s.model, f=s.text, c=s.pick((640,), s.lengths(2048, 4096, 16384)), n=s.pick(2, 4), task=task,
                       o=OUT)
        commands += [command("eval", s.model, task=made, kv_policy=("full", "infinigen", "quest", "h2o", "window"),
                             kv_budget=s.pick("10%", ("10%", "5%")), kv_recent=16, json=True),
                     command("eval", s.model, task=made, kv_policy=("full", PAPERS), kv_alpha=s.alpha, json=True)]
    return commands


def ruler_rows(_, results):
    rows = []
    for run in [r for i, result in enumerate(results) for r in runs(result) if i % 2 == 0 or r["policy"] != "full"]:
        name = run["policy"] + (f" {100 * run['budget']:.0f} %" if run["policy"] not in ("full", PAPERS) else "")
        for task in run["tasks"]:
            rows.append({"policy": name, "task": task["task"], "length": task["length"], "questions": task["questions"],
                         "right %": 100 * task["accuracy"], "counts": task["counts"], "as full %": 100 * task["same_answers"]})
    return rows


def ruler_claims(rows):
    counted = [r for r in rows if r["counts"]]
    if not counted:
        return []
    scores = {p: mean(part, "right %") for (p,), part in grouped(counted, "policy").items()}
    full = {(r["task"], r["length"]): r["right %"] for r in where(counted, policy="full")}
    worst = min((r["right %"] / full[r["task"], r["length"]], r["task"]) for r in where(counted, policy="infinigen 10 %"))
    rivals = {p: v for p, v in scores.items() if p.split(" ")[0] in ("quest", "h2o", "window", PAPERS)}
    return [Claim("the published method falls behind full", scores[PAPERS] < scores["full"] - 1,
                  f"mean {short(scores[PAPERS])} against {short(scores['full'])}"),
            Claim("the default policy at 10 % is within a point of full", scores["infinigen 10 %"] >= scores["full"] - 1,
                  f"mean {short(scores['infinigen 10 %'])}"),
            Claim("no task of it is under 90 % of full", worst[0] >= 0.9, f"worst {worst[1]}, {100 * worst[0]:.0f} % of full"),
            Claim("its rivals lose more", max(rivals.values()) <= scores["infinigen 10 %"],
                  ", ".join(f"{p} {short(v)}" for p, v in rivals.items()))]


def long_commands(s):
    length = min(s.limit, s.pick(1024, 4096 + 128))
    question = {"context": "The history of the city begins with", "question": " a small harbour", "max_tokens": s.pick(256, 4000)}
    return [perplexity(s, length, length - 128, ("full", "infinigen", PAPERS), kv_alpha=s.alpha, by=s.pick(128, 512),
                       kv_budget="10%"),
            command("eval", s.model, task=question, kv_policy=("full", "infinigen", PAPERS), kv_alpha=s.alpha, kv_budget="10%",
                    ignore_eos=True, json=True)]


def long_rows(_, results):
    equal = {r["policy"]: 100 * r["same_tokens"] for r in runs(results[1])}
    made = {r["policy"]: r["tokens_generated"] for r in runs(results[1])}
    return [{"policy": run["policy"], "position": part["last"] + 1, "KL": part.get("kl"), "perplexity": part["perplexity"],
             "tokens as full %": equal[run["policy"]], "tokens made": made[run["policy"]]}
            for run in runs(results[0]) for part in run["positions"] if part["tokens_scored"] > 1]


def long_claims(rows):
    claims = []
    for policy in ("infinigen", PAPERS):
        kl = [r["KL"] for r in where(rows, policy=policy)]
        third = max(1, len(kl) // 3)
        early, late = statistics.fmean(kl[:third]), statistics.fmean(kl[-third:])
        claims.append(Claim(f"KL of {policy} does not grow with what is made", late <= 1.5 * early + 0.003,
                            f"{short(early)} in the first third, {short(late)} in the last",
                            f"{late / (early or 1e-9):.1f} times"))
    ours = where(rows, policy="infinigen")[0]
    claims.append(Claim("most greedy tokens of infinigen are those of full before they part", ours["tokens as full %"] >= 50,
                        f"{short(ours['tokens as full %'])} % of {ours['tokens made']}",
                        f"at a mean KL of {short(statistics.fmean(r['KL'] for r in where(rows, policy='infinigen')))}"))
    return claims


EXPERIMENTS = [
    Experiment(
        "tasks", "Long-context tasks",
        "Later papers (RULER's tasks in ShadowKV, RetrievalAttention, SCBench) find the published method far behind full attention, "
        "most with many keys: at 128K tokens 43.1 against 78.7, multi-key 3 at 0.",
        ruler_commands, ruler_rows, ruler_claims,
        plots=(Plot("bars", "task", ("right %",), by="policy", where=lambda r: r["counts"] and (
            r["policy"].endswith(" 10 %") or r["policy"] in ("full", PAPERS)), title="Right answers, those at 10 % and as published"),),
        note="Tasks that full answers to less than 20 % count in no mean."),
    Experiment(
        "long", "Long generation after a short prompt",
        "Later papers (RetroInfer, FreeKV) find that the published method loses in long generations. KL to full must not grow with "
        "what was made.",
        long_commands, long_rows, long_claims,
        plots=(Plot("lines", "position", ("KL",), by="policy", log="y", where=lambda r: r["KL"], title="KL to full by position"),)),
]
