# SPDX-License-Identifier: Apache-2.0
"""What the server answers is what `run` answers."""
import concurrent.futures
import json
import re
import shutil
import time

from conftest import make_model, words
from serving import CHAT, TEXT, Server, said, served, server, user


def run_text(program, model, prompt, n, *flags):
    status, out, err = program("run", "-m", model, "-c", 2048, "-p", prompt, "-n", n, "--temp", 0, "--json", "-t", 2,
                               *flags)
    assert status == 0, err
    return json.loads(out)


def same_text(ours, theirs):
    """run shows what is left of a character that was cut off; the server does not."""
    return ours == theirs or ours + "\ufffd" == theirs


# ---- answers ----


def test_answers_are_those_of_run(program, server, served):
    for prompt, n in (("What is a cache?", 20), (words(300, 1), 9)):
        expected = run_text(program, served, prompt, n)
        status, reply, _ = server.ask(CHAT, {"messages": user(prompt), "max_tokens": n, "temperature": 0})
        assert status == 200, reply
        assert same_text(reply["choices"][0]["message"]["content"], expected["text"])
        assert reply["choices"][0]["finish_reason"] == ("stop" if expected["finish"] == "end" else "length")
        assert reply["usage"]["prompt_tokens"] == expected["tokens_prompt"]
        assert reply["usage"]["completion_tokens"] == expected["tokens_generated"]
        assert reply["usage"]["total_tokens"] == expected["tokens_prompt"] + expected["tokens_generated"]
        assert reply["object"] == "chat.completion" and reply["id"].startswith("chatcmpl-")
        expected = run_text(program, served, prompt, n, "--raw")
        reply = server.ask(TEXT, {"prompt": prompt, "max_tokens": n, "temperature": 0})[1]
        assert same_text(reply["choices"][0]["text"], expected["text"])
        assert reply["object"] == "text_completion" and reply["id"].startswith("cmpl-")


def test_predictions(server):
    """What an answer is expected to be changes the time that it takes, and is counted."""
    ask = {"messages": user("What is a cache?"), "max_tokens": 40, "temperature": 0}
    plain = server.ask(CHAT, ask)[1]
    text = plain["choices"][0]["message"]["content"]
    assert "completion_tokens_details" not in plain["usage"]
    for content in (text, [{"type": "text", "text": text[:9]}, {"type": "text", "text": text[9:]}]):
        reply = server.ask(CHAT, {**ask, "prediction": {"type": "content", "content": content}})[1]
        assert reply["choices"] == plain["choices"]
        details = reply["usage"]["completion_tokens_details"]
        made, came = (reply["timings"].get(name, 0) for name in ("draft_n", "draft_n_accepted"))
        assert details["accepted_prediction_tokens"] <= came and details["rejected_prediction_tokens"] <= made - came
    empty = server.ask(CHAT, {**ask, "prediction": {"type": "content", "content": ""}})[1]
    assert empty["usage"]["completion_tokens_details"] == {"accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0}
    for wrong in (words(3000, 4), "x" * 2000000, text + " hi" * 100 + "x" * 2000000):
        status, reply, _ = server.ask(CHAT, {**ask, "prediction": {"type": "content", "content": wrong}})
        assert status == 200 and reply["choices"] == plain["choices"], reply
    for bad in ({"type": "image", "content": text}, {"type": "content"}, {"type": "content", "content": 3}, text,
                {"type": "content", "content": [{"type": "image_url", "image_url": "x"}]}):
        status, reply, _ = server.ask(CHAT, {**ask, "prediction": bad})
        assert status == 400 and reply["error"]["param"].startswith("prediction"), bad
    assert server.ask(CHAT, {**ask, "prediction": None})[1]["choices"] == plain["choices"]


def test_a_draft_model(program, server, served, tmp_path):
    """It changes no answer, of several at once either."""
    draft = shutil.copytree(served, tmp_path / "draft")
    asked = [{"messages": user(words(40 + 9 * i, i)), "max_tokens": 30, "temperature": i % 2, "seed": 3} for i in range(6)]
    expected = [server.ask(CHAT, ask)[1]["choices"] for ask in asked]
    with Server(program, served, "-c", 2048, "-np", 3, "-md", draft) as s:
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            for _ in range(2):
                replies = pool.map(lambda ask: s.ask(CHAT, ask)[1], asked)
                assert [r["choices"] for r in replies] == expected
        status, reply, _ = s.ask(CHAT, {**asked[0], "kv_policy": "h2o"})
        assert status == 200, reply


def test_lines_of_streams(server):
    """What Unicode takes for the end of a line is none of the stream's."""
    text = "\u2028a\u2029\u2029\u0085b\u00e9\u2026\u20ac c\u2028"
    body = {"prompt": text, "echo": True, "max_tokens": 2, "temperature": 0, "stream": True}
    lines = server.ask(TEXT, body)[1].splitlines()
    assert all(line.startswith("data: ") for line in lines if line)
    events = [json.loads(line[6:]) for line in lines if line and line != "data: [DONE]"]
    # An event may hold what several steps made: the prompt need not come alone.
    assert said(events, False).startswith(text)


def test_characters_that_a_prompt_begins(server):
    """Tokens of a prompt may end within one, which the answer may end, or not."""
    tokens = server.ask("/tokenize", {"content": "x\U0001f389y\u20acz\u00e9"})[1]["tokens"]
    for n in range(1, len(tokens) + 1):
        body = {"prompt": tokens[:n], "echo": True, "max_tokens": 3, "temperature": 0}
        whole = server.ask(TEXT, body)[1]["choices"][0]["text"]
        assert said(server.events(TEXT, body), False) == whole, n


def test_without_the_beginning_of_an_answer(server):
    """The prompt of a chat ends where /apply-template says."""
    for last in (user("ab"), user("ab") + [{"role": "assistant", "content": "The"}]):
        for begins in (True, False):
            question = {"messages": last, "add_generation_prompt": begins}
            how = {"max_tokens": 9, "temperature": 0, "ignore_eos": True}
            prompt = server.ask("/apply-template", question)[1]["prompt"]
            assert prompt.endswith("assistant\n") == begins
            chat, text = server.ask(CHAT, {**question, **how})[1], server.ask(TEXT, {"prompt": prompt, **how})[1]
            assert chat["choices"][0]["message"]["content"] == text["choices"][0]["text"]
            assert chat["usage"]["prompt_tokens"] == text["usage"]["prompt_tokens"]


def test_what_requests_do_not_say(program, served, server):
    """Is what the server's flags say of sampling."""
    ask = {"prompt": "ab", "max_tokens": 12, "ignore_eos": True, "seed": 3}
    own = {"temperature": 1.3, "top_k": 50, "top_p": 0.9, "min_p": 0.01, "typical_p": 0.9, "repeat_penalty": 1.2, "presence_penalty": 0.1}
    flags = [f"--{k.replace('_', '-')}={v}" for k, v in own.items()]
    with Server(program, served, "-c", 256, *flags) as s:
        text = [s.ask(TEXT, {**ask, **more})[1]["choices"][0]["text"] for more in ({}, {"temperature": 0})]
    told = [server.ask(TEXT, {**ask, **own, **more})[1]["choices"][0]["text"] for more in ({}, {"temperature": 0})]
    assert text == told and text[0] != text[1]


def test_repetitions_are_turned_away_from(program, served, server):
    """DRY: greedy answers of a model that repeats itself, by flags and by fields alike; and what is no number of it."""
    ask = {"prompt": "abcabcabcabcab", "max_tokens": 12, "ignore_eos": True, "temperature": 0}
    bias = {"logit_bias": {str(t): 100 for t in server.ask("/tokenize", {"content": "abc", "add_special": False})[1]["tokens"]}}
    own = {"dry_multiplier": 500, "dry_base": 1, "dry_allowed_length": 3, "dry_penalty_last_n": 100}
    plain = server.ask(TEXT, {**ask, **bias})[1]["choices"][0]["text"]
    told = server.ask(TEXT, {**ask, **bias, **own})[1]["choices"][0]["text"]
    assert set(plain + told) <= set("abc") and len(plain) == len(told) == 12
    assert told[0] != "c" and plain != told # behind "cab"
    broken = {**own, "dry_sequence_breakers": ["b"]}
    assert server.ask(TEXT, {**ask, **bias, **broken})[1]["choices"][0]["text"] != told
    # a line feed ends repetitions, unless there is a list without it, or an empty one
    (a,) = server.ask("/tokenize", {"content": "a", "add_special": False})[1]["tokens"]
    lines = {**own, "prompt": "a\na\na\n", "max_tokens": 1, "dry_allowed_length": 1, "temperature": 0, "logit_bias": {str(a): 100}}
    texts = [server.ask(TEXT, {**lines, **more})[1]["choices"][0]["text"]
             for more in ({}, {"dry_multiplier": 0}, {"dry_sequence_breakers": []}, {"dry_sequence_breakers": ["x"]})]
    assert texts[0] == texts[1] == "a" and texts[2] == texts[3] != "a"
    flags = [f"--{k.replace('_', '-')}={v}" for k, v in own.items()]
    for more, expected in (([], told), (["--dry-sequence-breaker", "b"], None)):
        with Server(program, served, "-c", 256, *flags, *more) as s:
            text = s.ask(TEXT, {**ask, **bias})[1]["choices"][0]["text"]
            assert text == (expected or server.ask(TEXT, {**ask, **bias, **broken})[1]["choices"][0]["text"])
            status, reply, _ = s.ask("/completion", {**ask, "n_predict": 12, "logit_bias": bias["logit_bias"]})
            assert status == 200 and reply["content"] == text
    for wrong in ({"dry_base": 0.5}, {"dry_allowed_length": 0}, {"dry_sequence_breakers": "x"}, {"dynatemp_range": -1},
                  {"dry_sequence_breakers": [""]}, {"dry_sequence_breakers": ["x" * 129]}, {"dry_penalty_last_n": "all"}):
        status, reply, _ = server.ask(TEXT, {**ask, **wrong})
        assert status == 400 and reply["error"]["param"] == next(iter(wrong))


def test_what_a_model_says_of_sampling(program, served, server, tmp_path):
    """Holds for requests that say nothing of it, and where no flag does."""
    shutil.copytree(served, tmp_path / "advised")
    advice = {"temperature": 0.6, "top_k": 5, "top_p": 0.9, "do_sample": True}
    (tmp_path / "advised" / "generation_config.json").write_text(json.dumps(advice))
    ask = {"prompt": "ab", "max_tokens": 20, "ignore_eos": True, "seed": 3}
    for flags, own in (([], {}), (["--temp", 1], {"temperature": 1}), (["--top-k", 0, "--top-p", 1], {"top_k": 0, "top_p": 1})):
        with Server(program, tmp_path / "advised", "-c", 256, *flags) as s:
            text = s.ask(TEXT, ask)[1]["choices"][0]["text"]
        assert text == server.ask(TEXT, {**ask, **advice, **own})[1]["choices"][0]["text"], flags


def test_the_next_turn(program, served):
    """Computes the answer before it as a part of its prompt, or takes it from the cache if it is told to."""
    how = {"max_tokens": 120, "temperature": 0, "ignore_eos": True}
    for flags in ([], ["--reuse-answers"]):
        with Server(program, served, "-c", 1024, *flags) as s:
            tokens = s.ask("/tokenize", {"content": words(40, 1)})[1]["tokens"]
            first = s.ask(TEXT, {"prompt": tokens, **how, "logprobs": 0, "return_tokens_as_token_ids": True})[1]
            said = [int(t.removeprefix("token_id:")) for t in first["choices"][0]["logprobs"]["tokens"]]
            again = s.ask(TEXT, {"prompt": tokens + said + [70], **how})[1]["usage"]
            assert (again["prompt_tokens_details"]["cached_tokens"] > len(tokens)) == bool(flags), (flags, again)


def test_going_on_with_a_message(server):
    """The prompt ends where the message does, as its writer has it, and the answer is only what follows."""
    how = {"max_tokens": 9, "temperature": 0, "ignore_eos": True}
    begun = user("ab") + [{"role": "assistant", "content": " \nThe cat \n"}]
    prompt = server.ask("/apply-template", {"messages": begun, "continue_final_message": True})[1]["prompt"]
    behind = server.ask("/apply-template", {"messages": begun})[1]["prompt"]
    assert prompt.endswith("The cat \n") and behind.startswith(prompt.rstrip())
    chat = server.ask(CHAT, {"messages": begun, "continue_final_message": True, "add_generation_prompt": False, **how})[1]
    text = server.ask(TEXT, {"prompt": prompt, **how})[1]
    assert chat["choices"][0]["message"]["content"] == text["choices"][0]["text"]
    for text in ("<", "end", "im", "|>", "assistant", "ab", "<|im_end|>"):  # which stand in the prompt for other reasons, too
        begun = user("ab " + text) + [{"role": "assistant", "content": text}]
        prompt = server.ask("/apply-template", {"messages": begun, "continue_final_message": True})[1]["prompt"]
        assert prompt == server.ask("/apply-template", {"messages": begun[:1]})[1]["prompt"] + text
    for wrong in ({"messages": user("ab")}, {"messages": user("ab") + [{"role": "assistant", "content": " "}]},
                  {"messages": begun, "add_generation_prompt": True}):
        assert server.ask(CHAT, {**wrong, "continue_final_message": True, **how})[0] == 400, wrong


def test_how_much_to_think(program, tmp_path):
    """Is told to the template, under the names that templates have for it."""
    folder = make_model(tmp_path / "thinker")
    template = "{{ reasoning_effort }} {{ enable_thinking }} {% for m in messages %}{{ m['content'] }}{% endfor %}"
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template, "eos_token": "</s>"}))
    with Server(program, folder, "-c", 256) as s:
        for effort, told in ((None, "  a"), ("low", "low  a"), ("none", "none False a")):
            question = {"messages": user("a"), "reasoning_effort": effort}
            assert s.ask("/apply-template", question)[1]["prompt"] == told
            assert s.ask(CHAT, {**question, "max_tokens": 1})[0] == 200
        assert s.ask(CHAT, {"messages": user("a"), "reasoning_effort": 3})[0] == 400


def test_other_ways_to_write_numbers(server):
    """A length without end, whole numbers with a point, and the likeliest tokens only."""
    body = {"prompt": "ab", "ignore_eos": True, "temperature": 0}
    nine = server.ask(TEXT, {**body, "max_tokens": 9})[1]["choices"]
    assert server.ask(TEXT, {**body, "max_tokens": 9.0, "n": 1.0, "seed": 3.0})[1]["choices"] == nine
    ids = server.ask("/tokenize", {"prompt": "ab"})[1]["tokens"]
    points = [float(i) for i in ids]
    for prompt in (points, [points]):
        assert server.ask(TEXT, {**body, "prompt": prompt, "max_tokens": 9, "best_of": 1.0})[1]["choices"] == nine
    assert server.ask("/detokenize", {"tokens": points})[1] == server.ask("/detokenize", {"tokens": ids})[1]
    scored = server.ask(TEXT, {**body, "logprobs": 0, "return_tokens_as_token_ids": True})[1]["choices"][0]["logprobs"]
    stop = float(scored["tokens"][0].split(":")[1])
    assert server.ask(TEXT, {**body, "stop_token_ids": [stop]})[1]["choices"][0]["finish_reason"] == "stop"
    assert server.ask(TEXT, {**body, "max_tokens": 9, "temperature": 2, "top_p": 0})[1]["choices"] == nine
    for path, question in ((TEXT, body), (CHAT, {"messages": user("ab"), "ignore_eos": True})):
        usage = server.ask(path, {**question, "max_tokens": -1})[1]["usage"]
        assert usage["total_tokens"] >= 2048


def test_streams(server):
    for path, chat, question in ((CHAT, True, {"messages": user("ab")}), (TEXT, False, {"prompt": "ab"})):
        body = {**question, "max_tokens": 12, "temperature": 0}
        whole = server.ask(path, body)[1]
        events = server.events(path, {**body, "stream_options": {"include_usage": True}})
        choice = whole["choices"][0]
        assert said(events, chat) == (choice["message"]["content"] if chat else choice["text"])
        assert events[-1]["choices"] == []
        assert events[-1]["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]
        assert all("usage" not in e for e in events[:-1])  # some clients pass over what has it
        assert [e["choices"][0]["finish_reason"] for e in events[:-1]][-1] == choice["finish_reason"]
        assert len({e["id"] for e in events}) == 1
        if chat:
            assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
        running = server.events(path, {**body, "stream_options": {"continuous_usage_stats": True}})
        assert all(e["usage"]["total_tokens"] >= e["usage"]["prompt_tokens"] for e in running)


def test_a_stream_has_no_scores_of_a_stop_string(server):
    """As a reply has none: they are held back as the text is."""
    body = {"prompt": "ab", "max_tokens": 8, "temperature": 0, "logprobs": 1, "n": 8, "stop": ["a"], "grammar": 'root ::= "bb" "a" "c"'}
    want = [c["logprobs"]["tokens"] for c in server.ask(TEXT, body)[1]["choices"]]
    for _ in range(6):
        told = [[] for _ in want]
        for event in server.events(TEXT, body):
            for c in event["choices"]:
                told[c["index"]] += (c["logprobs"] or {"tokens": []})["tokens"]
        assert told == want


def test_a_stream_tells_how_far_it_is(program, served):
    """With a prompt, piece by piece, and how fast it writes, as llama-server does."""
    prompt, course = words(1800, 5), {"return_progress": True, "timings_per_token": True}
    with Server(program, served, "-c", 2048, "-ub", 64) as server:
        for path, body in ((CHAT, {"messages": [{"role": "user", "content": prompt}]}), (TEXT, {"prompt": "a" + prompt}),
                           ("/completion", {"prompt": "b" + prompt})):
            body = {**body, "max_tokens": 4, "ignore_eos": True, "temperature": 0}
            ask = server.native_events if path == "/completion" else server.events
            plain = ask(path, body)
            assert not any("prompt_progress" in e for e in plain) and not any("timings" in e for e in plain[:-1])
            events = ask(path, {**body, "cache_prompt": False, "return_token_ids": True, **course})
            told = [e["prompt_progress"] for e in events if "prompt_progress" in e]
            done = [p["processed"] for p in told]
            assert told and done == sorted(done) and done[-1] == told[-1]["total"] and told[0]["cache"] == 0
            assert all(p["total"] == done[-1] and p["time_ms"] >= 0 for p in told)
            made = [e["timings"] for e in events if "timings" in e]
            assert len(made) > 1 and all(t["prompt_n"] == done[-1] and t["predicted_n"] > 0 for t in made)
            assert [t["predicted_n"] for t in made] == sorted(t["predicted_n"] for t in made) and made[-1]["predicted_n"] == 4
            again = ask(path, {**body, **course})
            assert next(e["prompt_progress"]["cache"] for e in again if "prompt_progress" in e) > 0
            text = [e["content"] for e in events] if path == "/completion" else said(events, path == CHAT)
            assert "".join(text) == "".join([e["content"] for e in plain] if path == "/completion" else said(plain, path == CHAT))


def test_eight_at_once(program, server, served):
    """Different prompts, options and policies, some of them streamed: each answer is as if it were alone."""
    policies = ["infinigen", "full", "window", "quest"]
    asked = [{"prompt": words(40 + 90 * i, i), "max_tokens": 10 + i, "temperature": 0 if i % 2 else 1.3, "seed": i,
              "infinigen": {"policy": policies[i % 4], "budget": 24 + i}} for i in range(8)]
    alone = [server.ask(TEXT, {**a, "cache_salt": f"alone {i}"})[1]["choices"] for i, a in enumerate(asked)]
    for _ in range(3):
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            together = list(pool.map(lambda i: said(server.events(TEXT, asked[i]), False) if i % 3 else
                                     server.ask(TEXT, asked[i])[1]["choices"][0]["text"], range(8)))
        assert together == [c[0]["text"] for c in alone]
    expected = run_text(program, served, asked[1]["prompt"], 11, "--raw", "--kv-policy", "full")
    assert same_text(together[1], expected["text"])


def test_prefixes(server):
    body = {"prompt": words(900, 5), "max_tokens": 8, "temperature": 0, "logprobs": 2}
    first, second = server.ask(TEXT, body)[1], server.ask(TEXT, body)[1]
    salted = server.ask(TEXT, {**body, "cache_salt": "x"})[1]
    assert first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] >= 880
    assert salted["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert first["choices"] == second["choices"] == salted["choices"]
    assert second["timings"]["cache_n"] == second["infinigen"]["cached_tokens"] >= 880


def test_store_outlives_the_server(program, served, tmp_path):
    body = {"prompt": words(900, 5), "max_tokens": 8, "temperature": 0}
    flags = ["-c", 1024, "--kv-store", tmp_path / "store"]
    with Server(program, served, *flags) as s:
        first = s.ask(TEXT, body)[1]
        s.wait_for("infinigen_requests_running", 0)
        time.sleep(1)  # it is made safe once there is nothing else to do
        s.process.kill()
        s.process.wait()
    with Server(program, served, *flags) as s:
        second = s.ask(TEXT, body)[1]
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] >= 880
    assert first["choices"] == second["choices"]


def test_little_memory(program, served, tmp_path):
    """More conversations than RAM holds: the rest lies on disk, and all are answered as with enough."""
    prompts = [words(1200, i) for i in range(6)]
    answers = []
    for flags in ([], ["--kv-ram", "2M", "--kv-disk", "256M", "--kv-disk-path", tmp_path]):
        with Server(program, served, "-c", 2048, "-np", 3, *flags) as s, \
                concurrent.futures.ThreadPoolExecutor(6) as pool:
            asked = [{"prompt": p, "max_tokens": 10, "temperature": 0} for p in prompts]
            answers.append([r[1]["choices"][0]["text"] for r in pool.map(lambda a: s.ask(TEXT, a), asked * 2)])
            moved = s.numbers()["infinigen_kv_spilled_bytes_total"]
    assert moved > 1e6
    assert answers[0] == answers[1]


# ---- options ----


def test_stop_strings(server):
    body = {"prompt": "abc", "max_tokens": 40, "temperature": 0}
    text = server.ask(TEXT, body)[1]["choices"][0]["text"]
    at = next(i for i in range(3, len(text) - 3) if text.find(text[i:i + 2]) == i and "\ufffd" not in text[i:i + 2])
    for stop in (text[at:at + 2], ["never", text[at:at + 2]]):
        choice = server.ask(TEXT, {**body, "stop": stop})[1]["choices"][0]
        assert choice["text"] == text[:at] and choice["finish_reason"] == "stop"
        assert said(server.events(TEXT, {**body, "stop": stop}), False) == text[:at]
    # what might have begun a stop string is not lost where the answer ends
    begun = text[-1] + "#never#"
    if "\ufffd" not in begun:
        assert said(server.events(TEXT, {**body, "stop": begun}), False) == text


def test_what_ends_an_answer(server):
    """Tokens and strings that end it, and for how long none may."""
    body = {"prompt": "abc", "max_tokens": 40, "temperature": 0, "ignore_eos": True}
    whole = server.ask(TEXT, {**body, "logprobs": 0, "return_tokens_as_token_ids": True})[1]["choices"][0]
    ids = [int(t.split(":")[1]) for t in whole["logprobs"]["tokens"]]
    at = next(i for i in range(5, 40) if ids[i] not in ids[:i])
    for stream in (False, True):
        def ask(**more):
            if stream:
                events = server.events(TEXT, {**body, **more, "stream_options": {"include_usage": True}})
                return said(events, False), events[-2]["choices"][0]["finish_reason"], events[-1]["usage"]["completion_tokens"]
            reply = server.ask(TEXT, {**body, **more})[1]
            return reply["choices"][0]["text"], reply["choices"][0]["finish_reason"], reply["usage"]["completion_tokens"]
        text, finish, n = ask(stop_token_ids=[ids[at], 1])
        assert whole["text"].startswith(text) and (finish, n) == ("stop", at)
        later = ask(stop_token_ids=[ids[at]], min_tokens=at + 3)  # it does not come at first
        assert later[2] >= at + 3 and later[0].startswith(text) and later[0] != whole["text"][:len(later[0])]
        stop = next(whole["text"][i] for i in range(3, 30) if whole["text"][i] not in whole["text"][:i] + "\ufffd")
        cut = whole["text"].index(stop)
        assert ask(stop=[stop])[:2] == (whole["text"][:cut], "stop")
        assert ask(stop=[stop], include_stop_str_in_output=True)[0] == whole["text"][:cut + 1]
        assert ask(stop=[stop], min_tokens=40)[:2] == (whole["text"], "length")
    q = str(server.ask("/tokenize", {"content": "Q"})[1]["tokens"][0])
    reply = server.ask(TEXT, {**body, "logit_bias": {q: 100}, "stop": ["QQ"], "min_tokens": 1})[1]  # it is complete after the second
    assert (reply["choices"][0]["text"], reply["usage"]["completion_tokens"]) == ("", 2)
    for wrong, field in (({"min_tokens": 41}, "min_tokens"), ({"min_tokens": -1}, "min_tokens"), ({"stop_token_ids": 3}, "stop_token_ids"),
                         ({"stop_token_ids": ["x"]}, "stop_token_ids"), ({"include_stop_str_in_output": 1}, "include_stop_str_in_output")):
        status, reply, _ = server.ask(TEXT, {**body, **wrong})
        assert status == 400 and reply["error"]["param"] == field


def test_several_choices(server):
    body = {"prompt": ["ab", [70, 71, 72]], "n": 2, "max_tokens": 5, "temperature": 1.5, "seed": 7}
    reply = server.ask(TEXT, body)[1]
    assert [c["index"] for c in reply["choices"]] == [0, 1, 2, 3]
    assert reply["usage"]["prompt_tokens"] == 5 and reply["usage"]["completion_tokens"] == 20
    again = server.ask(TEXT, body)[1]
    assert [c["text"] for c in again["choices"]] == [c["text"] for c in reply["choices"]]
    assert reply["choices"][0]["text"] != reply["choices"][1]["text"]
    events = server.events(TEXT, body)
    assert [said(events, False, i) for i in range(4)] == [c["text"] for c in reply["choices"]]
    single = server.ask(TEXT, {**body, "prompt": [70, 71, 72], "n": 1})[1]["choices"][0]["text"]
    assert single == reply["choices"][2]["text"]


def test_logprobs(server):
    chat = server.ask(CHAT, {"messages": user("ab"), "max_tokens": 6, "temperature": 0, "logprobs": True,
                             "top_logprobs": 3})[1]["choices"][0]["logprobs"]["content"]
    assert len(chat) == 6
    for token in chat:
        assert len(token["top_logprobs"]) == 3
        assert token["logprob"] == max(t["logprob"] for t in token["top_logprobs"]) <= 0
        assert bytes(token["bytes"]).decode(errors="replace").startswith(token["token"][:1])
    body = {"prompt": "abcdef", "max_tokens": 1, "temperature": 0, "logprobs": 1, "echo": True}
    choice = server.ask(TEXT, body)[1]["choices"][0]
    scores = choice["logprobs"]
    assert choice["text"].startswith("abcdef")
    assert len(scores["tokens"]) == len(scores["token_logprobs"]) == len(scores["top_logprobs"]) == 7
    assert scores["token_logprobs"][0] is None and scores["top_logprobs"][0] is None
    assert scores["tokens"][:6] == list("abcdef") and scores["text_offset"] == list(range(7))
    assert scores["token_logprobs"][6] == max(scores["top_logprobs"][6].values())
    nothing = server.ask(TEXT, {**body, "max_tokens": 0})[1]["choices"][0]
    assert nothing["text"] == "abcdef"
    assert nothing["logprobs"]["token_logprobs"] == scores["token_logprobs"][:6]
    named = server.ask(TEXT, {**body, "return_tokens_as_token_ids": True})[1]["choices"][0]["logprobs"]
    assert all(t.startswith("token_id:") for t in named["tokens"])


def test_ids_of_tokens(server):
    """As vLLM returns them, and llama-server; the last one too that ends an answer."""
    prompt = server.ask("/tokenize", {"content": "abc"})[1]["tokens"]
    body = {"prompt": "abc", "max_tokens": 6, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
    named = server.ask(TEXT, {**body, "logprobs": 0, "return_tokens_as_token_ids": True})[1]["choices"][0]
    wanted = [int(t.split(":")[1]) for t in named["logprobs"]["tokens"]]
    assert named["token_ids"] == wanted and len(wanted) == 6 and named["prompt_token_ids"] == prompt
    events = server.events(TEXT, {**body, "n": 2})
    for i in range(2):
        parts = [c for e in events for c in e["choices"] if c["index"] == i]
        assert sum((c["token_ids"] for c in parts), []) == wanted
        assert [c["prompt_token_ids"] for c in parts if "prompt_token_ids" in c] == [prompt]
    end = server.ask("/detokenize", {"tokens": [2]})[1]["content"]
    chat = {"messages": user("ab"), "max_tokens": 5, "temperature": 0, "return_token_ids": True, "logit_bias": {"2": 100}}
    reply = server.ask(CHAT, chat)[1]
    assert reply["choices"][0]["token_ids"] == [2] and reply["choices"][0]["message"]["content"] == "", end
    rendered = server.ask("/tokenize", {"messages": user("ab")})[1]["tokens"]
    assert reply["prompt_token_ids"] == rendered and reply["usage"]["prompt_tokens"] == len(rendered)
    events = server.events(CHAT, chat)
    assert [e["prompt_token_ids"] for e in events if "prompt_token_ids" in e] == [rendered]
    assert sum((c["token_ids"] for e in events for c in e["choices"]), []) == [2]
    native = {"prompt": "abc", "n_predict": 6, "temperature": 0, "ignore_eos": True, "return_tokens": True}
    assert server.ask("/completion", native)[1]["tokens"] == wanted
    events = server.native_events("/completion", native)
    assert sum((e["tokens"] for e in events), []) == wanted
    ended = {**native, "ignore_eos": False, "logit_bias": {"2": 100}}
    assert server.ask("/completion", ended)[1]["tokens"] == [2]
    assert sum((e["tokens"] for e in server.native_events("/completion", ended)), []) == [2]
    assert "tokens" not in server.ask("/completion", {**native, "return_tokens": False})[1]
    status, reply, _ = server.ask(TEXT, {**body, "max_tokens": 2000, "prompt": [[5] * 40] * 128, "logprobs": 3})
    assert status == 400 and "1285120 scores and ids" in reply["error"]["message"], reply


def check_special_tokens(server):
    body = {"prompt": "abc", "max_tokens": 2, "temperature": 0, "ignore_eos": True, "logit_bias": {"1": 100}}
    plain, shown = (server.ask(TEXT, {**body, "skip_special_tokens": skips})[1]["choices"][0]["text"]
                    for skips in (True, False))
    assert (plain, shown) == ("", "<s><s>")
    chat = {"messages": user("ab"), **{k: v for k, v in body.items() if k != "prompt"}, "skip_special_tokens": False}
    assert server.ask(CHAT, chat)[1]["choices"][0]["message"]["content"] == "<s><s>"


def test_special_tokens_in_the_text(program, served):
    path = served / "tokenizer_config.json"
    special = {"1": {"content": "<s>", "special": True}}
    path.write_text(json.dumps({**json.loads(path.read_text()), "added_tokens_decoder": special}))
    with Server(program, served, "-c", 256) as server:
        check_special_tokens(server)


def test_many_scores(server):
    """A stream lists those of a long prompt in parts; more than a reply can hold are refused."""
    body = {"prompt": words(300, 8), "max_tokens": 3, "temperature": 0, "logprobs": 2, "echo": True, "n": 2}
    whole = server.ask(TEXT, body)[1]["choices"]
    events = server.events(TEXT, body)
    for k in whole:
        parts = [c for e in events for c in e["choices"] if c["index"] == k["index"]]
        assert said(events, False, k["index"]) == k["text"] and parts[-1]["finish_reason"] == k["finish_reason"]
        lists = [c["logprobs"] for c in parts if c["logprobs"]]
        assert len(lists) > 4 and max(len(p["tokens"]) for p in lists) <= 64
        for field, values in k["logprobs"].items():
            assert [v for p in lists for v in p[field]] == values
    status, reply, _ = server.ask(TEXT, {**body, "prompt": [[5] * 1000] * 128, "n": 1, "logprobs": 20})
    assert status == 400 and reply["error"]["param"] == "logprobs" and "too much for a reply" in reply["error"]["message"]


def test_scores_of_answers_are_limited(program, served):
    """As many as could come; a stream, which keeps none of them, may have more."""
    with Server(program, served, "-c", 16384, "-np", 1, "--kv-policy", "window") as s:
        body = {"prompt": "a", "max_tokens": 12000, "n": 16, "logprobs": 20}
        status, reply, _ = s.ask(TEXT, body)
        assert status == 400 and reply["error"]["param"] == "logprobs"
        assert re.search(r"\b4032000 scores and ids .* too much for a reply: at most 1048576; ", reply["error"]["message"])
        chat = {"messages": user("a"), "logprobs": True, "top_logprobs": 20, "n": 16}
        assert "too much for a reply" in s.ask(CHAT, chat)[1]["error"]["message"]  # all of the context, as nothing else is said
        end = {str(t): 100 for t in s.ask("/tokenize", {"content": "Q"})[1]["tokens"]}
        ends = {"logit_bias": end, "stop": "Q", "temperature": 0}
        assert s.ask(CHAT, {**chat, **ends, "n": 1})[0] == 200  # a million is enough for one of them
        assert s.ask(TEXT, {**body, **ends, "logprobs": None})[0] == 200
        events = s.events(TEXT, {**body, **ends})
        assert len([1 for e in events for c in e["choices"] if c["finish_reason"] == "stop"]) == 16


def test_biases_and_penalties(server):
    ids = server.ask("/tokenize", {"content": "Q"})[1]["tokens"]
    choice = server.ask(TEXT, {"prompt": "ab", "max_tokens": 5, "temperature": 0,
                               "logit_bias": {str(ids[0]): 100}})[1]["choices"][0]
    assert choice["text"] == "QQQQQ"
    choice = server.ask(TEXT, {"prompt": "ab", "max_tokens": 9, "temperature": 0, "frequency_penalty": 1000,
                               "logit_bias": {str(ids[0]): 100}, "logprobs": 0})[1]["choices"][0]
    assert choice["text"].count("Q") == 1
