# SPDX-License-Identifier: Apache-2.0
"""A server of several models: which there are, who answers, and what happens to processes."""
import contextlib
import json
import os
import re
import signal
import threading
import time

import pytest

from conftest import make_model, one_line
from serving import CHAT, TEXT, Server, request, said, served, user


class Many(Server):
    """A server of the models in a folder."""

    def __init__(self, program, folder, *args, env=None):
        super().__init__(program, None, "--models-dir", folder, "-c", 2048, "-np", 2, *args, env=env)


@pytest.fixture
def folder(tmp_path):
    for name in ("one", "two", "three"):
        make_model(tmp_path / "models" / name)
    (tmp_path / "models" / "broken.gguf").write_bytes(b"GGUF and no more")
    (tmp_path / "models" / "notes.txt").write_text("no model")
    return tmp_path / "models"


def stages(server):
    return {m["id"]: m["status"]["value"] for m in server.ask("/v1/models")[1]["data"]}


def wait_for(server, name, stage, seconds=20):
    end = time.monotonic() + seconds
    while stages(server)[name] != stage:
        assert time.monotonic() < end, (name, stage, stages(server))
        time.sleep(0.05)


def text(server, model, n=4, **more):
    return server.ask(TEXT, {"model": model, "prompt": "a b c", "max_tokens": n, "temperature": 0, **more})


def children_of(pid):
    here = ""
    for thread in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(FileNotFoundError):  # it has ended since
            with open(f"/proc/{pid}/task/{thread}/children") as f:
                here += f.read()
    return {int(p) for p in here.split()}


def test_models_come_when_they_are_asked(program, folder):
    with Many(program, folder, "--models-max", 2) as s:
        assert stages(s) == dict.fromkeys(["one", "two", "three", "broken"], "unloaded")
        assert s.ask("/v1/models/two")[1]["path"] == f"{folder}/two"
        assert s.ask("/v1/models/four")[0] == 404 and not children_of(s.process.pid)
        for name in "one", "two":
            status, reply, _ = text(s, name)
            assert status == 200 and reply["model"] == name and len(children_of(s.process.pid)) <= 2
        assert stages(s) == {"one": "loaded", "two": "loaded", "three": "unloaded", "broken": "unloaded"}
        assert [m["name"] for m in s.ask("/api/ps")[1]["models"]] == ["one", "two"]
        assert {m["name"] for m in s.ask("/api/tags")[1]["models"]} == set(stages(s))
        assert text(s, "one")[0] == 200  # two was asked before it
        assert text(s, "three")[0] == 200
        assert stages(s) == {"one": "loaded", "two": "unloaded", "three": "loaded", "broken": "unloaded"}
    assert b"three: ready: three" in s.said
    assert not os.path.exists(os.path.dirname(re.search(rb"the socket (\S+)", s.said)[1]))


def test_every_api(program, folder):
    """Replies are those of the model's own process, whole and in parts."""
    with Many(program, folder) as s:
        ask = {"model": "one", "messages": user("a"), "max_tokens": 6, "temperature": 0}
        whole = s.ask(CHAT, ask)[1]["choices"][0]["message"]["content"]
        assert said(s.events(CHAT, ask), True) == whole
        status, lines, _ = s.ask("/api/chat", {"model": "one:latest", "messages": user("a"),
                                               "options": {"num_predict": 6, "temperature": 0}})
        lines = [json.loads(line) for line in lines.splitlines()]
        assert status == 200 and "".join(line["message"]["content"] for line in lines) == whole
        assert s.ask("/api/show", {"name": "one"})[1]["details"]["format"] == "gguf"
        assert s.ask("/tokenize", {"model": "one", "content": "a b"})[1]["count"] > 0
        assert s.ask("/props?model=one")[1]["model_alias"] == "one" == s.ask("/props")[1]["model_alias"]
        assert "infinigen_requests_running" in s.ask("/metrics")[1]
        assert s.ask("/lora-adapters", [])[1] == {"success": True}
        assert s.ask("/v1/messages", {**ask, "max_tokens": 2})[1]["type"] == "message"
        assert b"HTTP/1.1 200" in s.send(request(ask, CHAT)) and s.ask("/health", method="HEAD")[0] == 200
        body = json.dumps(ask).encode()
        chunks = (b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                  b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))
        reply = json.loads(s.send(chunks).partition(b"\r\n\r\n")[2])
        assert reply["choices"][0]["message"]["content"] == whole
        old = b"POST /v1/chat/completions HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
        stream = json.dumps({**ask, "stream": True}).encode()
        got = s.send(old % (len(stream), stream))
        assert b"data: [DONE]" in got and b"chunked" not in got


def test_what_is_refused(program, folder):
    with Many(program, folder) as s:
        status, reply, _ = text(s, "four")
        assert status == 404 and reply["error"]["code"] == "model_not_found"
        status, reply, _ = s.ask(TEXT, {"prompt": "a"})
        assert status == 400 and reply["error"]["param"] == "model"
        assert s.ask("/props")[0] == 400 and s.ask("/props?model=one")[0] == 503 and s.ask("/slots?model=x")[0] == 404
        assert s.ask(TEXT, raw=b"{")[0] == 400 and s.ask(TEXT, {"model": 4})[0] == 400
        assert text(s, "one", temperature="hot")[0] == 400  # as its own process has it
        status, reply, _ = text(s, "broken")
        assert status == 500 and "log" in reply["error"]["message"] and stages(s)["broken"] == "unloaded"
        assert text(s, "two")[0] == 200
    assert b"broken.gguf" in s.said


def test_models_make_room_when_they_are_done(program, folder):
    """One in memory: a long answer of one comes to its end before another model is loaded, and nobody starves."""
    with Many(program, folder, "--models-max", 1) as s:
        assert text(s, "one")[0] == 200
        got = {}
        long = threading.Thread(target=lambda: got.update(one=text(s, "one", 400, ignore_eos=True)))
        long.start()
        time.sleep(0.2)
        assert text(s, "two")[0] == 200
        long.join(60)
        assert got["one"][0] == 200 and got["one"][1]["usage"]["completion_tokens"] == 400
        askers = [threading.Thread(target=lambda n=n, i=i: got.update({(n, i): text(s, n)[0]}))
                  for i in range(3) for n in ("one", "two", "three")]
        for a in askers:
            a.start()
        for a in askers:
            a.join(120)
        del got["one"]
        assert set(got.values()) == {200} and len(got) == 9 and len(children_of(s.process.pid)) <= 1


def test_nobody_starves(program, folder):
    """Two that go on asking for one model keep nobody else from another."""
    with Many(program, folder, "--models-max", 1) as s:
        is_over, got = threading.Event(), []

        def go_on():
            while not is_over.is_set():
                got.append(text(s, "one", 2)[0])
        askers = [threading.Thread(target=go_on) for _ in range(2)]
        for a in askers:
            a.start()
        assert text(s, "two")[0] == 200 and text(s, "three")[0] == 200
        is_over.set()
        for a in askers:
            a.join(60)
        assert got and set(got) == {200}


def test_names_in_queries(program, folder):
    (folder / "one").rename(folder / "my own model")
    make_model(folder / "two:latest")
    with Many(program, folder) as s:
        assert text(s, "two:latest")[1]["model"] == "two:latest" and text(s, "my own model:latest")[1]["model"] == "my own model"
        assert text(s, "two")[1]["model"] == "two"
        for query in "my%20own%20model", "my+own+model":
            assert s.ask(f"/props?a=b&model={query}")[1]["model_alias"] == "my own model"
        status, reply, _ = s.ask("/tokenize?model=my+own+model", {"content": "a"})
        assert status == 200 and s.ask("/props")[1]["model_alias"] == "my own model"
        for query in "two%zz", "x" * 2000, "":
            assert s.ask(f"/props?model={query}")[0] == 404


def test_a_signal_to_all_of_them(program, folder):
    """Ctrl-C: who waits for a model or an answer gets it."""
    with Many(program, folder, "-c", 8192) as s:
        assert text(s, "one")[0] == 200
        got = []
        asks = [threading.Thread(target=lambda n=n: got.append(text(s, n, 200, ignore_eos=True))) for n in ("one", "two")]
        for a in asks:
            a.start()
        time.sleep(0.05)
        assert not {os.getpgid(p) for p in children_of(s.process.pid)} & {os.getpgid(s.process.pid)}
        assert s.stop(signal.SIGINT) == 0
        for a in asks:
            a.join(60)
        assert [r[0] for r in got] == [200, 200]


def test_at_a_socket(program, folder, tmp_path):
    path = tmp_path / "socket"
    for i in range(10):
        p = program.start("serve", "--models-dir", folder, "--unix", path)
        while not path.exists():
            assert p.poll() is None
        time.sleep(i * 0.001)
        p.terminate()
        assert p.wait(20) == 0 and not path.exists(), p.stderr.read()
        p.communicate()


def test_models_sleep(program, folder):
    with Many(program, folder, "--sleep-idle-seconds", 0.5, env=None) as s:
        assert text(s, "one", 1500, ignore_eos=True)[0] == 200 and stages(s)["one"] == "loaded"  # however long it answers
        wait_for(s, "one", "unloaded")
        assert text(s, "one")[0] == 200
    status, _, err = program("serve", "-m", folder / "one", "--sleep-idle-seconds", 5)
    assert status == 2 and "--sleep-idle-seconds" in one_line(err)


def test_load_and_unload(program, folder, served):
    with Many(program, folder) as s:
        assert s.ask("/models/load", {"model": "one"})[1] == {"success": True} and stages(s)["one"] == "loaded"
        assert s.ask("/models/unload", {"model": "one"})[1] == {"success": True}
        wait_for(s, "one", "unloaded")
        shown = s.ask("/api/show", {"model": "one:latest"})[1]  # which loads none
        assert shown["details"]["format"] == "gguf" and shown["capabilities"] and stages(s)["one"] == "unloaded"
        assert shown["model_info"]["general.basename"] == "one" and s.ask("/api/show", {"model": "broken"})[0] == 500
        for ask in ({}, {"keep_alive": "0s"}):
            reply = s.ask("/api/generate", {"model": "one", **ask})[1]
            assert reply["done"] and reply["done_reason"] == ("unload" if ask else "load")
        wait_for(s, "one", "unloaded")
        assert s.ask("/models/load", {"model": "four"})[0] == 404
    with Server(program, served, "-c", 256) as s:
        assert s.ask("/models/load", {"model": "served"})[0] == 404


def test_a_client_that_leaves(program, folder):
    """Nothing more is computed for it."""
    with Many(program, folder) as s:
        assert text(s, "one")[0] == 200
        c = s.connect()
        c.sendall(request({"model": "one", "prompt": "a", "max_tokens": 1900, "ignore_eos": True, "stream": True}))
        assert b"200 OK" in c.recv(4096)
        c.close()
        s.wait_for("infinigen_requests_running", 0)
        assert text(s, "one")[0] == 200


def test_a_process_that_is_killed(program, folder):
    with Many(program, folder) as s:
        assert text(s, "one")[0] == 200
        (child,) = children_of(s.process.pid)
        c = s.connect()
        c.sendall(request({"model": "one", "prompt": "a", "max_tokens": 1900, "ignore_eos": True, "stream": True}))
        assert b"200 OK" in c.recv(4096)
        os.kill(child, signal.SIGKILL)
        while c.recv(65536):
            pass  # the end comes
        c.close()
        assert text(s, "one")[0] == 200 and children_of(s.process.pid) != {child}
    assert b"one: its process was ended by signal 9" in s.said


@pytest.mark.parametrize("number", (signal.SIGTERM, signal.SIGINT, signal.SIGKILL))
def test_processes_end_with_the_server(program, folder, number):
    with Many(program, folder) as s:
        assert text(s, "one")[0] == 200 and text(s, "two")[0] == 200
        children = children_of(s.process.pid)
        assert len(children) == 2
        assert s.stop(number) in (0, -signal.SIGKILL)
        end = time.monotonic() + 20
        while any(os.path.exists(f"/proc/{p}") for p in children):
            assert time.monotonic() < end
            time.sleep(0.05)


def test_answers_end_before_the_server(program, folder):
    with Many(program, folder) as s:
        assert text(s, "one")[0] == 200
        got = []
        asks = threading.Thread(target=lambda: got.append(text(s, "one", 300, ignore_eos=True)))
        asks.start()
        time.sleep(0.2)
        assert s.stop() == 0
        asks.join(60)
        assert got[0][0] == 200 and got[0][1]["usage"]["completion_tokens"] == 300


def test_keys_and_pages(program, folder):
    """Both are seen to here, and the processes know nothing of them."""
    env = {"INFINIGEN_API_KEY": "secret"}
    with Many(program, folder, "--allowed-origins", "*", env=env) as s:
        assert text(s, "one")[0] == 401 and s.ask("/v1/models")[0] == 401
        s.headers = {"Authorization": "Bearer secret", "Origin": "http://elsewhere.example"}
        status, _, headers = text(s, "one")
        assert status == 200 and headers["access-control-allow-origin"] == "http://elsewhere.example"
        (child,) = children_of(s.process.pid)
        with open(f"/proc/{child}/environ") as f:
            assert "secret" not in f.read()
        page, _, _ = s.ask("/", headers={"Origin": f"http://127.0.0.1:{s.port}"})
        assert page == 200


def test_command_line(program, folder, tmp_path):
    status, _, err = program("serve", "--port", 0)
    assert status == 1 and "no model is here" in one_line(err)
    status, _, err = program("serve", "--models-dir", tmp_path / "none")
    assert status == 1 and "none: No such file" in one_line(err)
    status, _, err = program("serve", "--models-dir", folder, "--alias", "x")
    assert status == 2 and "--alias" in one_line(err)
    with Many(program, folder, "--sandbox", "--log-format", "json") as s:
        assert text(s, "two")[0] == 200
        assert s.ask("/infill", {"model": "two", "prompt": "a"})[0] == 400
    lines = [json.loads(line) for line in s.said.splitlines()]
    asked = [(line.get("name"), line["client"], line["status"]) for line in lines if "client" in line]
    assert asked == [("two", "127.0.0.1", 200), ("two", "127.0.0.1", 400)]  # as the server saw it, and once
    assert [line["path"] for line in lines if line.get("name") == "two" and "path" in line] == [TEXT, "/infill"]
