# SPDX-License-Identifier: Apache-2.0
"""The server with the clients that people use, from the package index, each in a virtual environment of its own, which is made
once, under ~/.cache/infinigen/test-clients. Those of openai are part of every run; INFINIGEN_TEST_CLIENTS=1 adds the
others, which are larger or slower, and INFINIGEN_TEST_EXAMPLES says how many requests schemathesis makes up for each path (20).
Skipped where they cannot be had."""
import functools
import json
import os
import pathlib
import subprocess
import sys

import pytest

from conftest import USER_CACHE, make_model
from serving import Server
from test_tokens import eval_scores

CLIENTS = {"openai-2": "openai>=2,<3", "openai-3": "openai>=3,<4", "llm": "llm", "langchain-openai": "langchain-openai", "instructor": "instructor",
           "lm-eval": "lm-eval[api]", "anthropic": "anthropic", "ollama": "ollama>=0.6", "agents": "openai-agents", "schemathesis": "schemathesis"}
wants_all = os.environ.get("INFINIGEN_TEST_CLIENTS") not in (None, "", "0")
large = pytest.mark.skipif(not wants_all, reason="only with INFINIGEN_TEST_CLIENTS=1")


@functools.cache
def folder_of(name):
    """The programs of a client's environment. A made one is marked, so that half a one is made again."""
    folder = pathlib.Path(USER_CACHE, "infinigen", "test-clients", name)
    mark = folder / "is-complete"
    if not mark.exists():
        for command in ([sys.executable, "-m", "venv", folder],
                        [folder / "bin/python", "-m", "pip", "install", "-q", "--disable-pip-version-check", CLIENTS[name]]):
            made = subprocess.run(command, capture_output=True)
            if made.returncode:
                pytest.skip(f"the client {name} cannot be had: {made.stderr.decode()[-200:]}")
        mark.touch()
    return folder / "bin"


def run(name, *args, env=None, cwd=None, status=0):
    """What a client's program prints. A program that begins with a dash is an option of its python."""
    folder = folder_of(name)
    args = [folder / "python", *args] if str(args[0]).startswith("-") else [folder / args[0], *args[1:]]
    p = subprocess.run([*map(str, args)], capture_output=True, timeout=600, cwd=cwd, env={**os.environ, **(env or {})})
    assert p.returncode == status, p.stdout.decode()[-3000:] + p.stderr.decode()[-3000:]
    return p.stdout.decode() + (p.stderr.decode() if status else "")


@pytest.fixture
def server(program, tmp_path):
    with Server(program, make_model(tmp_path / "served"), "-c", 2048, "-np", 8, "--api-key", "a-key") as s:
        s.url = f"http://127.0.0.1:{s.port}/v1"
        s.key = {"Authorization": "Bearer a-key"}
        yield s


# ---- anthropic ----

ANTHROPIC = r"""
import json, sys, anthropic
client = anthropic.Anthropic(base_url=sys.argv[1], api_key="a-key", max_retries=0)
ask = dict(model=sys.argv[2], max_tokens=9, system=[{"type": "text", "text": "be brief"}], messages=[{"role": "user", "content": "ab"}],
           extra_body={"temperature": 0})
whole = client.messages.create(**ask)
with client.messages.stream(**ask) as stream:
    text = "".join(stream.text_stream)
    told = stream.get_final_message()
out = {"whole": whole.content[0].text, "stream": text, "told": told.content[0].text, "reasons": [whole.stop_reason, told.stop_reason]}
ask.pop("max_tokens"), ask.pop("extra_body")
out["counted"] = client.messages.count_tokens(**ask).input_tokens - whole.usage.input_tokens - whole.usage.cache_read_input_tokens
ask.update(max_tokens=200, extra_body={"seed": 3}, tool_choice={"type": "any", "disable_parallel_tool_use": True}, tools=[
    {"name": "f", "input_schema": {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}}}}])
call = client.messages.create(**ask).content[-1]
with client.messages.stream(**ask) as stream:
    again = stream.get_final_message().content[-1]
out["calls"] = [[c.type, c.name, c.input] for c in (call, again)]
for what, bad in {"key": {}, "other": dict(model="claude"), "none": dict(messages=[])}.items():
    try:
        (client.with_options(api_key="wrong") if what == "key" else client).messages.create(**{**ask, **bad})
    except anthropic.APIStatusError as error:
        out[what] = type(error).__name__
print(json.dumps(out))
"""


@large
def test_anthropic(server):
    out = json.loads(run("anthropic", "-c", ANTHROPIC, server.url.removesuffix("/v1"), "served"))
    assert out["whole"] == out["stream"] == out["told"] and out["reasons"][0] == out["reasons"][1]
    assert out["counted"] == 0
    assert out["calls"][0] == out["calls"][1] and out["calls"][0][:2] == ["tool_use", "f"] and 0 <= out["calls"][0][2]["a"] <= 99
    assert (out["key"], out["other"], out["none"]) == ("AuthenticationError", "NotFoundError", "BadRequestError")


# ---- ollama ----

OLLAMA = r"""
import json, sys, ollama
client = ollama.Client(host=sys.argv[1], headers={"Authorization": "Bearer a-key"})
model = client.list().models[0].model
me, greedy = [{"role": "user", "content": "ab"}], {"temperature": 0, "num_predict": 9}
out = {"model": model, "loaded": client.ps().models[0].model, "can": client.show(model).capabilities}
out["chat"] = client.chat(model=model, messages=me, options=greedy).message.content
out["stream"] = "".join(p.message.content for p in client.chat(model=model, messages=me, options=greedy, stream=True))
out["prompt"] = client.generate(model=model, prompt="ab", options=greedy).response
out["raw"] = "".join(p.response for p in client.generate(model=model, prompt="ab", raw=True, options=greedy, stream=True))
schema = {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}}}
out["form"] = json.loads(client.chat(model=model, messages=me, format=schema, options={"seed": 3, "num_predict": 200}).message.content)["a"]
try:
    client.chat(model="llama3", messages=me)
except ollama.ResponseError as error:
    out["other"] = error.status_code
print(json.dumps(out))
"""


@large
def test_ollama(server):
    out = json.loads(run("ollama", "-c", OLLAMA, server.url.removesuffix("/v1")))
    assert out["model"] == out["loaded"] == "served" and "completion" in out["can"]
    assert out["chat"] == out["stream"] == out["prompt"] and out["raw"] and 0 <= out["form"] <= 99
    assert out["other"] == 404


# ---- openai ----

OPENAI = r"""
import json, sys, openai
from enum import Enum
from typing import Annotated, Optional
from pydantic import BaseModel, Field
from concurrent.futures import ThreadPoolExecutor
client = openai.OpenAI(base_url=sys.argv[1], api_key="a-key", max_retries=0)
me = [{"role": "user", "content": "ab"}]
model = client.models.list().data[0].id
out = {"model": model, "retrieved": client.models.retrieve(model).id}
chat = client.chat.completions.create(model=model, messages=me, max_completion_tokens=9, temperature=0, logprobs=True,
                                      top_logprobs=2)
out["chat"] = chat.choices[0].message.content
out["tops"] = [len(t.top_logprobs) for t in chat.choices[0].logprobs.content]
out["usage"] = chat.usage.completion_tokens
text, usage = "", None
for part in client.chat.completions.create(model=model, messages=me, max_tokens=9, temperature=0, stream=True,
                                           stream_options={"include_usage": True}):
    if part.choices:
        text += part.choices[0].delta.content or ""
    else:
        usage = part.usage.completion_tokens
out["stream"], out["stream_usage"] = text, usage
expected = client.chat.completions.create(model=model, messages=me, max_tokens=9, temperature=0,
                                          prediction={"type": "content", "content": text})
counts = expected.usage.completion_tokens_details
out["expected"] = [expected.choices[0].message.content, counts.accepted_prediction_tokens, counts.rejected_prediction_tokens]
scored = client.completions.create(model=model, prompt=[70, 71, 72], echo=True, logprobs=1, max_tokens=0)
out["scored"] = len(scored.choices[0].logprobs.token_logprobs)
with ThreadPoolExecutor(8) as pool:
    out["eight"] = list(pool.map(lambda i: client.completions.create(
        model=model, prompt="ab" * (i + 1), max_tokens=12, temperature=0).choices[0].text, range(8)))
out["alone"] = [client.completions.create(model=model, prompt="ab" * (i + 1), max_tokens=12, temperature=0,
                                          extra_body={"cache_salt": str(i)}).choices[0].text for i in range(8)]
for what, call in {
    "tools": lambda: client.chat.completions.create(model=model, messages=me, tools=[
        {"type": "function", "function": {"name": "f", "strict": True, "parameters": {"type": "object", "not": {}}}}]),
    "other": lambda: client.chat.completions.create(model="gpt-4o", messages=me),
    "key": lambda: client.with_options(api_key="wrong").models.list(),
    "format": lambda: client.chat.completions.create(model=model, messages=me, response_format={
        "type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": {"type": "object", "not": {}}}}),
    "long": lambda: client.chat.completions.create(model=model, messages=[{"role": "user", "content": "a" * 3000}]),
    "embeddings": lambda: client.embeddings.create(model=model, input="a", dimensions=0),
}.items():
    try:
        call()
    except openai.APIStatusError as error:
        out[what] = [type(error).__name__, error.param]
        out["code"] = error.code or out.get("code")
class Kind(Enum):
    one = "one"
    two = "two"
class Part(BaseModel):
    kind: Kind
    sizes: list[int] = Field(min_length=1, max_length=2)
class Whole(BaseModel):
    name: Annotated[str, Field(max_length=5)]
    part: Part
    other: Optional[Part]
    is_new: bool
parsed = [client.chat.completions.parse(model=model, messages=me, response_format=Whole, seed=i) for i in range(4)]
out["parsed"] = [p.choices[0].message.parsed.model_dump_json() for p in parsed]
out["contents"] = [p.choices[0].message.content for p in parsed]
out["finished"] = [p.choices[0].finish_reason for p in parsed]
tools = [openai.pydantic_function_tool(Part, name="part"), openai.pydantic_function_tool(Whole, name="whole")]
calls = dict(model=model, messages=me, tools=tools, tool_choice="required", parallel_tool_calls=False, seed=3)
whole = client.chat.completions.parse(**calls).choices[0]
with client.chat.completions.stream(**calls) as stream:
    events = [e for e in stream]
streamed = stream.get_final_completion().choices[0]
[call], [again] = whole.message.tool_calls, streamed.message.tool_calls
out["called"] = [[k.function.name, k.function.parsed_arguments.model_dump_json(), c.finish_reason]
                 for k, c in ((call, whole), (again, streamed))]
out["done"] = "tool_calls.function.arguments.done" if any(
    e.type == "tool_calls.function.arguments.done" for e in events) else ""
after = client.chat.completions.create(model=model, max_tokens=9, tools=tools, messages=[
    *me, whole.message, {"role": "tool", "tool_call_id": call.id, "content": "well"}])
out["after"] = after.usage.prompt_tokens
out["vectors"] = [d.embedding for d in client.embeddings.create(model=model, input=["a", "b c"]).data]
asked = dict(model=model, instructions="be brief", input=me, temperature=0)
response = client.responses.create(max_output_tokens=9, **asked)
with client.responses.stream(max_output_tokens=9, **asked) as stream:
    told = list(stream)
deltas, last = "".join(e.delta for e in told if e.type == "response.output_text.delta"), told[-1].response
out["responses"] = [response.output_text, deltas, last.output_text, client.chat.completions.create(
    model=model, messages=[{"role": "system", "content": "be brief"}, *me], max_tokens=9, temperature=0).choices[0].message.content]
out["response_end"] = [response.status, last.status, response.usage.output_tokens, last.usage.output_tokens]
form = client.responses.parse(text_format=Part, **asked).output_parsed
out["response_form"] = form.model_dump_json()
made = client.responses.create(model=model, input=me, tools=[{"type": "function", "name": "part", "strict": True,
                               "parameters": Part.model_json_schema()}], tool_choice="required", parallel_tool_calls=False, extra_body={"seed": 3})
Part.model_validate_json(made.output[-1].arguments)
back = [*me, *made.output, {"type": "function_call_output", "call_id": made.output[-1].call_id, "output": "well"}]
out["response_after"] = client.responses.create(model=model, input=back, max_output_tokens=5).usage.input_tokens
with client.chat.completions.create(model=model, messages=me, max_tokens=1500, stream=True,
                                    extra_body={"ignore_eos": True}) as left:
    for part in left:
        break
print(json.dumps(out))
"""


@pytest.mark.parametrize("version", ["openai-2", "openai-3"])
def test_openai(server, version):
    out = json.loads(run(version, "-c", OPENAI, server.url))
    assert out["model"] == out["retrieved"] == "served"
    assert out["chat"] == out["stream"] and out["usage"] == out["stream_usage"] <= 9
    assert out["expected"][0] == out["chat"] and min(out["expected"][1:]) >= 0
    assert out["tops"] and set(out["tops"]) == {2}
    assert out["scored"] == 3
    assert out["eight"] == out["alone"]
    assert out["tools"] == ["BadRequestError", "tools"] and out["other"] == ["NotFoundError", "model"]
    assert out["format"] == ["BadRequestError", "response_format.json_schema.schema"]
    assert [json.loads(x) for x in out["parsed"]] == [json.loads(x) for x in out["contents"]]
    assert set(out["finished"]) == {"stop"} and len(set(out["contents"])) > 1
    assert out["called"][0] == out["called"][1] and out["called"][0][2] == "tool_calls" and out["done"]
    assert out["after"] > 200
    assert len(set(out["responses"])) == 1 and out["responses"][0]
    assert out["response_end"][0] == out["response_end"][1] and out["response_end"][2] == out["response_end"][3]
    assert json.loads(out["response_form"])["kind"] in ("one", "two") and out["response_after"] > 20
    assert out["key"][0] == "AuthenticationError" and out["embeddings"] == ["BadRequestError", "dimensions"]
    assert len(out["vectors"]) == 2 and all(abs(sum(x * x for x in v) - 1) < 1e-4 for v in out["vectors"])
    assert out["long"] == ["BadRequestError", "messages"] and out["code"] == "context_length_exceeded"


# ---- openai's agents ----

AGENTS = r"""
import asyncio, json, sys
from agents import Agent, ModelSettings, Runner, function_tool, set_default_openai_client, set_tracing_disabled
from openai import AsyncOpenAI
set_default_openai_client(AsyncOpenAI(base_url=sys.argv[1], api_key="a-key", max_retries=0), use_for_tracing=False)
set_tracing_disabled(True)
called = []
@function_tool
def colour(of: int) -> str:
    called.append(of)
    return "red"
settings = ModelSettings(temperature=0, extra_body={"grammar": 'root ::= [a-z]{9}'})  # an answer that is cut off is an error there
agent = Agent(name="a", instructions="be brief", model="served", model_settings=settings)
caller = Agent(name="b", model="served", tools=[colour], tool_use_behavior="stop_on_first_tool", model_settings=ModelSettings(
    tool_choice="colour", parallel_tool_calls=False, extra_body={"seed": 3}))
async def main():
    whole = (await Runner.run(agent, "ab")).final_output
    streamed = Runner.run_streamed(agent, "ab")
    told = "".join([e.data.delta async for e in streamed.stream_events()
                    if e.type == "raw_response_event" and e.data.type == "response.output_text.delta"])
    result = (await Runner.run(caller, "ab")).final_output
    print(json.dumps({"texts": [whole, streamed.final_output, told], "called": called, "result": result}))
asyncio.run(main())
"""


@large
def test_agents(server):
    out = json.loads(run("agents", "-c", AGENTS, server.url))
    assert len(set(out["texts"])) == 1 and out["texts"][0]
    assert len(out["called"]) == 1 and isinstance(out["called"][0], int) and out["result"] == "red"


# ---- llm ----


@large
def test_llm(server, tmp_path):
    """A person's program, with a model for chats and one for texts."""
    (tmp_path / "llm").mkdir()
    (tmp_path / "llm" / "extra-openai-models.yaml").write_text("".join(
        f"- model_id: {name}\n  model_name: served\n  api_base: {server.url}\n  api_key_name: served\n  completion: {completes}\n"
        for name, completes in (("chat", "false"), ("text", "true"))))
    env = {"LLM_USER_PATH": str(tmp_path / "llm"), "OPENAI_API_KEY": "a-key"}
    for name, path, question in (("chat", "/v1/chat/completions", {"messages": [{"role": "user", "content": "ab"}]}),
                                 ("text", "/v1/completions", {"prompt": "ab"})):
        flags = ["-o", "temperature", 0, "-o", "max_tokens", 9, "-o", "seed", 4]
        choice = server.ask(path, {**question, "max_tokens": 9, "temperature": 0}, headers=server.key)[1]["choices"][0]
        for more in ([], ["--no-stream"]):
            said = run("llm", "llm", "-m", name, "--key", "a-key", "ab", *flags, *more, env=env)
            assert said.rstrip("\n") == (choice["text"] if name == "text" else choice["message"]["content"]).rstrip("\n")
    wrong = run("llm", "llm", "-m", "chat", "--key", "wrong", "ab", env=env, status=1)
    assert "incorrect API key" in wrong


# ---- langchain ----

LANGCHAIN = r"""
import json, sys
import openai
from langchain_core.messages import ToolMessage
from langchain_openai import ChatOpenAI, OpenAI
how = dict(base_url=sys.argv[1], api_key="a-key", model="served", temperature=0, max_tokens=9, max_retries=0)
chat, text = ChatOpenAI(**how), OpenAI(**how)
out = {"chat": chat.invoke("ab").content, "stream": "".join(part.content for part in chat.stream("ab")),
       "batch": [m.content for m in chat.batch(["ab", [("system", "a"), ("human", "b")]])],
       "text": text.invoke("ab"), "texts": text.generate(["ab", "cd"]).llm_output["token_usage"],
       "text_stream": "".join(text.stream("ab")), "usage": chat.invoke("ab").usage_metadata["output_tokens"]}
schema = {"title": "x", "type": "object", "properties": {"a": {"enum": ["b", "c"]}}, "required": ["a"]}
tool = {"type": "function", "function": {"name": "f", "description": "", "parameters": schema}}
for what, call in {"structured": lambda: ChatOpenAI(**{**how, "max_tokens": 60}).with_structured_output(schema, method="json_schema").invoke("ab"),
                   "tools": lambda: chat.bind_tools([{**tool, "function": {**tool["function"], "strict": True, "parameters": {"type": "object", "not": {}}}}]).invoke("ab")}.items():
    try:
        out[what] = call()
    except openai.BadRequestError as error:
        out[what] = error.param
how["max_tokens"] = 200
called = ChatOpenAI(**how).bind_tools([tool], tool_choice="f", parallel_tool_calls=False)
answer = called.invoke("ab")
out["called"] = [[c["name"], c["args"]] for c in answer.tool_calls]
parts = list(called.stream("ab"))
streamed = sum(parts[1:], parts[0])
out["streamed"] = [[c["name"], c["args"]] for c in streamed.tool_calls]
out["after"] = ChatOpenAI(**{**how, "max_tokens": 9}).invoke(
    [("human", "ab"), answer, ToolMessage("well", tool_call_id=answer.tool_calls[0]["id"])]).usage_metadata["input_tokens"]
out["by_function"] = ChatOpenAI(**how).with_structured_output(schema, method="function_calling").invoke("ab")
print(json.dumps(out))
"""


@large
def test_langchain(server):
    out = json.loads(run("langchain-openai", "-c", LANGCHAIN, server.url))
    assert out["chat"] == out["stream"] == out["batch"][0] and out["usage"] == 9
    assert out["text"] == out["text_stream"] and out["texts"]["completion_tokens"] == 18
    assert out["structured"]["a"] in "bc" and out["tools"] == "tools"
    assert out["called"] == out["streamed"] == [["f", {"a": out["called"][0][1]["a"]}]] and out["called"][0][1]["a"] in "bc"
    assert out["after"] > 50 and out["by_function"]["a"] in "bc"


# ---- instructor ----

INSTRUCTOR = r"""
import json, sys
import instructor, openai
from pydantic import BaseModel, Field
class City(BaseModel):
    name: str = Field(max_length=8)
    size: int = Field(ge=1, le=40)
client = instructor.from_openai(openai.OpenAI(base_url=sys.argv[1], api_key="a-key"), mode=instructor.Mode[sys.argv[2]])
city = client.chat.completions.create(model="served", response_model=City, messages=[{"role": "user", "content": "ab"}],
                                      max_retries=0, max_tokens=300)
print(city.model_dump_json())
"""


@large
@pytest.mark.parametrize("mode", ["TOOLS", "TOOLS_STRICT", "JSON_SCHEMA"])
def test_instructor(server, mode):
    city = json.loads(run("instructor", "-c", INSTRUCTOR, server.url, mode))
    assert len(city["name"]) <= 8 and 1 <= city["size"] <= 40


# ---- lm-eval ----

TASK = """task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {file}}}}}
test_split: test
output_type: {kind}
target_delimiter: ""
"""


@large
def test_lm_eval(program, model, tmp_path):
    """Log-likelihoods, rolling ones and replies, with the server's tokens; the first are those of `eval`."""
    questions = [("The capital of France is", [" Paris.", " London.", " a banana."]),
                 ("Water boils at a temperature of one hundred degrees", [" Celsius.", " Fahrenheit.", " miles."]),
                 ("Question: What do bees make?\nAnswer:", [" honey", " milk", " houses of stone"])]
    task = tmp_path / "choice.jsonl"
    task.write_text("".join(json.dumps({"query": q, "choices": c, "answer": 0}) + "\n" for q, c in questions))
    expected = eval_scores(program, model, task)
    for name, kind, more in (
            ("choice", "multiple_choice", 'doc_to_text: "{{query}}"\ndoc_to_choice: "{{choices}}"\ndoc_to_target: "{{answer}}"\n'),
            ("rolling", "loglikelihood_rolling", 'doc_to_text: ""\ndoc_to_target: "{{query}}"\nmetric_list: [{metric: word_perplexity}]\n'),
            ("reply", "generate_until", 'doc_to_text: "{{query}}"\ndoc_to_target: "{{choices[0]}}"\n'
             'generation_kwargs: {until: ["."], max_gen_toks: 8}\nmetric_list: [{metric: exact_match}]\n')):
        (tmp_path / f"{name}.yaml").write_text(TASK.format(name=name, kind=kind, file=task) + more)
    with Server(program, model, "-c", 1024) as s:
        url = f"http://127.0.0.1:{s.port}/v1/completions"
        run("lm-eval", "lm_eval", "run", "--model", "local-completions", "--model_args",
            f"model=smollm2-135m,base_url={url},tokenizer_backend=remote,num_concurrent=4", "--include_path", tmp_path,
            "--tasks", "choice,rolling,reply", "--output_path", tmp_path / "out", "--log_samples", cwd=tmp_path,
            env={"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(tmp_path / "hf")})
        greedy = [s.ask("/v1/completions", {"prompt": q, "max_tokens": 8, "temperature": 0, "stop": ["."]})[1]["choices"][0]["text"]
                  for q, _ in questions]

    def samples(name):
        [path] = (tmp_path / "out").glob(f"*/samples_{name}_*.jsonl")
        return sorted((json.loads(line) for line in path.read_text().splitlines()), key=lambda d: d["doc_id"])

    scores = [float(r[0][0]) for d in samples("choice") for r in d["resps"]]
    assert scores == pytest.approx(expected, abs=1e-6)
    assert [d["resps"][0][0] for d in samples("reply")] == greedy
    assert all(float(d["resps"][0][0][0] if isinstance(d["resps"][0][0], list) else d["resps"][0][0]) < -5 for d in samples("rolling"))


# ---- schemathesis ----


@large
def test_schemathesis(program, tmp_path):
    """Requests made up from /openapi.json, right and wrong ones: no status of the server's own failure, none that is not said."""
    with Server(program, make_model(tmp_path / "served"), "-c", 256, "-np", 8, "--request-timeout", 5) as s:
        out = run("schemathesis", "schemathesis", "run", f"http://127.0.0.1:{s.port}/openapi.json", "--checks",
                  "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance",
                  "--max-examples", os.environ.get("INFINIGEN_TEST_EXAMPLES", "20"), "--phases", "examples,coverage,fuzzing",
                  "--seed", "1", cwd=tmp_path)
        assert "FAILURES" not in out and "ERRORS" not in out, out[-3000:]
        assert s.ask("/health")[0] == 200
