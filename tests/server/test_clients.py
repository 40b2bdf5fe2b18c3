# SPDX-License-Identifier: Apache-2.0
"""The server with a client that people use: `openai` from the package index, in a virtual environment of its own, which
is made once. Skipped where it cannot be had."""
import json
import os
import subprocess
import sys

import pytest

from conftest import USER_CACHE, make_model
from serving import Server

SCRIPT = r"""
import json, sys, openai
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
scored = client.completions.create(model=model, prompt=[70, 71, 72], echo=True, logprobs=1, max_tokens=0)
out["scored"] = len(scored.choices[0].logprobs.token_logprobs)
with ThreadPoolExecutor(8) as pool:
    out["eight"] = list(pool.map(lambda i: client.completions.create(
        model=model, prompt="ab" * (i + 1), max_tokens=12, temperature=0).choices[0].text, range(8)))
out["alone"] = [client.completions.create(model=model, prompt="ab" * (i + 1), max_tokens=12, temperature=0,
                                          extra_body={"cache_salt": str(i)}).choices[0].text for i in range(8)]
for what, call in {
    "tools": lambda: client.chat.completions.create(model=model, messages=me, tools=[
        {"type": "function", "function": {"name": "f", "parameters": {}}}]),
    "other": lambda: client.chat.completions.create(model="gpt-4o", messages=me),
    "key": lambda: client.with_options(api_key="wrong").models.list(),
    "embeddings": lambda: client.embeddings.create(model=model, input="a"),
}.items():
    try:
        call()
    except openai.APIStatusError as error:
        out[what] = [type(error).__name__, error.param]
with client.chat.completions.create(model=model, messages=me, max_tokens=1500, stream=True,
                                    extra_body={"ignore_eos": True}) as left:
    for part in left:
        break
print(json.dumps(out))
"""


@pytest.fixture(scope="session")
def openai():
    """A python that has the client."""
    folder = os.path.join(USER_CACHE, "infinigen", "test-clients", "openai")
    python = os.path.join(folder, "bin", "python")
    is_there = os.path.exists(python) and subprocess.run([python, "-c", "import openai"]).returncode == 0
    if not is_there:
        made = subprocess.run([sys.executable, "-m", "venv", folder], capture_output=True)
        if made.returncode == 0:
            made = subprocess.run([python, "-m", "pip", "install", "-q", "openai"], capture_output=True)
        if made.returncode:
            pytest.skip("the client openai cannot be had: " + made.stderr.decode()[-200:])
    return python


def test_openai(program, tmp_path, openai):
    with Server(program, make_model(tmp_path / "served"), "-c", 2048, "-np", 8, "--api-key", "a-key") as s:
        p = subprocess.run([openai, "-c", SCRIPT, f"http://127.0.0.1:{s.port}/v1"], capture_output=True, timeout=300)
        assert p.returncode == 0, p.stderr.decode()
    out = json.loads(p.stdout)
    assert out["model"] == out["retrieved"] == "served"
    assert out["chat"] == out["stream"] and out["usage"] == out["stream_usage"] <= 9
    assert out["tops"] and set(out["tops"]) == {2}
    assert out["scored"] == 3
    assert out["eight"] == out["alone"]
    assert out["tools"] == ["BadRequestError", "tools"] and out["other"] == ["NotFoundError", "model"]
    assert out["key"][0] == "AuthenticationError" and out["embeddings"][0] == "NotFoundError"
