# SPDX-License-Identifier: Apache-2.0
"""Chat templates: what they are told, and others in place of the model's own."""
import json

from conftest import make_model, one_line


def test_what_the_template_is_told(program, tmp_path):
    """By options, in run and chat alike: a template that refuses anything else shows what came."""
    folder = make_model(tmp_path / "model")
    template = "{{ raise_exception(messages[0].content ~ '|' ~ enable_thinking ~ '|' ~ reasoning_effort ~ '|' ~ more) }}"
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template, "eos_token": "</s>"}))
    told = ("--reasoning", "on", "--reasoning-effort", "high", "--chat-template-kwargs", '{"more": ["x", 1.5]}')
    for verb, how in (("run", {"stdin": "hi"}), ("chat", {"stdin": "hi\n"})):
        status, out, err = program(verb, "-m", folder, "-n", "2", *told, **how)
        assert status == 2 and "hi|True|high|['x', 1.5]" in err.decode()
    for wrong in ("[1]", "{", '{"messages": []}'):
        status, out, err = program("run", "-m", folder, "-n", "2", "--chat-template-kwargs", wrong, stdin="hi")
        assert status == 2 and "--chat-template-kwargs" in one_line(err)
    status, out, err = program("run", "-m", folder, "--raw", "--reasoning", "off", stdin="hi")
    assert status == 2 and "template" in one_line(err)


def test_another_template(program, tmp_path):
    """Of a file or as it stands; the model's own shows nothing of what came."""
    folder = make_model(tmp_path / "model")
    template = "{{ raise_exception('seen ' ~ messages[0].content) }}"
    (tmp_path / "t.jinja").write_text(template)
    for flags in (("--chat-template-file", tmp_path / "t.jinja"), ("--chat-template", template)):
        for verb, how in (("run", {"stdin": "hi"}), ("chat", {"stdin": "hi\n"})):
            status, _, err = program(verb, "-m", folder, "-n", "2", *flags, **how)
            assert status == 2 and b"seen hi" in err
    plain = program("run", "-m", folder, "-n", "4", "--temp", "0", stdin="hi")
    own = json.loads((folder / "tokenizer_config.json").read_text())["chat_template"]
    (folder / "tokenizer_config.json").write_text('{"eos_token": "</s>"}')
    again = program("run", "-m", folder, "-n", "4", "--temp", "0", "--chat-template", own, stdin="hi")
    assert plain[0] == 0 and again == plain
    assert program("run", "-m", folder, "-n", "4", "--temp", "0", stdin="hi")[1] != plain[1]


def test_template_that_cannot_be_had(program, tmp_path):
    folder = make_model(tmp_path / "model")
    (tmp_path / "zero").write_bytes(b"{{ 1 }}\0")
    for value, message in (("chatml", "no file 'chatml'"), (tmp_path / "zero", "zero byte"), ("{% if %}", "chat template")):
        status, _, err = program("run", "-m", folder, "-n", "2", "--chat-template", value, stdin="hi")
        assert status in (1, 2) and message in one_line(err), err
    status, _, err = program("run", "-m", folder, "-n", "2", "--raw", "--chat-template", "{{ 1 }}", stdin="hi")
    assert status == 2 and "--raw leaves out" in one_line(err)
