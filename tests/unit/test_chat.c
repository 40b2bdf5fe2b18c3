/* SPDX-License-Identifier: Apache-2.0
 *
 * Chat prompts: what a tokenizer's template makes of a conversation. The templates are of the kinds that real models
 * have, and the prompts are what Jinja makes of them.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "token/chat.h"
#include "unit/temp_dir.h"

#define CHATML                                                                                                     \
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\n" \
    "Be good.<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "         \
    "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
#define LLAMA2                                                                                                        \
    "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = "          \
    "messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif "  \
    "%}{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ "           \
    "raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if "      \
    "loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\n' + system_message + '\n<</SYS>>\n\n'" \
    " + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == "    \
    "'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}"    \
    "{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"
#define LLAMA31                                                                                              \
    "{{- bos_token }}\n{%- if not date_string is defined %}\n    {%- set date_string = \"26 Jul 2024\" %}\n" \
    "{%- endif %}\n{%- if messages[0]['role'] == 'system' %}\n    {%- set system_message = "                 \
    "messages[0]['content']|trim %}\n    {%- set messages = messages[1:] %}\n{%- else %}\n    {%- set "      \
    "system_message = \"\" %}\n{%- endif %}\n{{- \"<|start_header_id|>system<|end_header_id|>\\n\\n\" }}\n"  \
    "{{- \"Today Date: \" + date_string + \"\\n\\n\" }}\n{{- system_message }}\n{{- \"<|eot_id|>\" }}\n"     \
    "{%- for message in messages %}\n    {{- '<|start_header_id|>' + message['role'] + "                     \
    "'<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}\n{%- endfor %}\n{%- if "         \
    "add_generation_prompt %}\n    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}\n{%- endif %}\n"
#define THINKING                                                                                                     \
    "{%- for m in messages %}{{ m.role }}: {{ m.content.split('</think>')[-1].lstrip('\\n') }}\n{% endfor %}{%- if " \
    "enable_thinking is defined and enable_thinking is false %}<think></think>{%- endif %}"

#define TALK                                                                        \
    "{\"role\":\"system\",\"content\":\"S \"},{\"role\":\"user\",\"content\":\" a " \
    "\"},{\"role\":\"assistant\",\"content\":\" b\\n\"},{\"role\":\"user\",\"content\":\"c\"}"
#define PLAIN "{\"role\":\"user\",\"content\":\"Hi\"}"

static const struct {
    const char *template, *variables, *want;
} cases[] = {
    {CHATML, "{\"messages\":[" PLAIN "],\"add_generation_prompt\":true}",
     "<|im_start|>system\nBe good.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"},
    {CHATML, "{\"messages\":[" TALK "],\"add_generation_prompt\":false}",
     "<|im_start|>system\nS <|im_end|>\n<|im_start|>user\n a <|im_end|>\n<|im_start|>assistant\n b\n<|im_end|>\n"
     "<|im_start|>user\nc<|im_end|>\n"},
    /* the first BOS is left to the tokenizer, those that follow stay */
    {LLAMA2, "{\"messages\":[" TALK "]}",
     "[INST] <<SYS>>\nS \n<</SYS>>\n\n a [/INST] b <|end_of_text|><|begin_of_text|>[INST] c [/INST]"},
    {LLAMA31, "{\"messages\":[" TALK "],\"add_generation_prompt\":true}",
     "<|start_header_id|>system<|end_header_id|>\n\nToday Date: 26 Jul 2024\n\nS<|eot_id|><|start_header_id|>user"
     "<|end_header_id|>\n\na<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nb<|eot_id|><|start_header_id|>"
     "user<|end_header_id|>\n\nc<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"},
    {THINKING,
     "{\"messages\":[" PLAIN ",{\"role\":\"assistant\",\"content\":\"<think>hm</think>\\n\\nyes\"}],"
     "\"enable_thinking\":false}",
     "user: Hi\nassistant: yes\n<think></think>"},
};

/* A chat whose tokenizer has this template, with the tokens of Llama 3's. */
static ig_status open_chat(ig_chat *c, const char *template, ig_error *err) {
    static const char config[] =
        "{\"bos_token\":\"<|begin_of_text|>\",\"eos_token\":\"<|end_of_text|>\",\"add_bos_token\":true}";
    temp_dir dir = temp_dir_open();
    char path[512], *tokenizer = realpath("tests/data/tokenizers/llama3/tokenizer.json", NULL);
    ig_tokenizer *t;
    temp_dir_path(&dir, "tokenizer.json", path, sizeof path);
    temp_dir_write(&dir, "tokenizer_config.json", config, strlen(config));
    if (template) temp_dir_write(&dir, "chat_template.jinja", template, strlen(template));
    if (!tokenizer || symlink(tokenizer, path)) fail_msg("%s", path);
    ig_status s = ig_tokenizer_from_hf(&t, dir.path, 0, err);
    temp_dir_close(&dir);
    free(tokenizer);
    if (s) fail_msg("%s", err->text);
    s = ig_chat_open(c, t, err);
    ig_tokenizer_close(t);
    return s;
}

static void prompts(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ig_chat c;
        ig_error err;
        ig_buffer out = {0};
        assert_int_equal(open_chat(&c, cases[i].template, &err), IG_OK);
        json_t *variables = json_loads(cases[i].variables, 0, NULL);
        if (ig_chat_render(&out, &c, variables, &err)) fail_msg("case %zu: %s", i, err.text);
        assert_string_equal(out.data, cases[i].want);
        json_decref(variables);
        ig_buffer_close(&out);
        ig_chat_close(&c);
    }
}

static void refused(void **state) {
    (void)state;
    ig_chat c;
    ig_error err;
    ig_buffer out = {0};
    json_t *twice = json_loads("{\"messages\":[" PLAIN "," PLAIN "]}", 0, NULL);
    assert_int_equal(open_chat(&c, LLAMA2, &err), IG_OK);
    assert_int_equal(ig_chat_render(&out, &c, twice, &err), IG_E_ARG);
    assert_non_null(strstr(err.text, "must alternate"));
    assert_int_equal(out.size, 0);
    ig_chat_close(&c);
    assert_int_equal(open_chat(&c, "{{ messages[7].content.strip() }}", &err), IG_OK);
    assert_int_equal(ig_chat_render(&out, &c, twice, &err), IG_E_FORMAT);
    ig_chat_close(&c);
    json_decref(twice);
    /* a model can be used without the template that it has */
    assert_int_equal(open_chat(&c, "a\n{% if %}", &err), IG_OK);
    assert_null(c.template);
    assert_non_null(strstr(c.why.text, "line 2"));
    ig_chat_close(&c);
    assert_int_equal(open_chat(&c, NULL, &err), IG_OK);
    assert_true(!c.template && !c.why.status);
    ig_chat_close(&c);
}

/* Contents that are no UTF-8 go through as they are. */
static void any_bytes(void **state) {
    (void)state;
    ig_chat c;
    ig_error err;
    ig_buffer out = {0};
    json_t *variables = json_pack("{s:[{s:s, s:o}]}", "messages", "role", "user", "content",
                                  json_string_nocheck("\xff \xc3|\xed\xa0\x80 "));
    assert_int_equal(open_chat(&c, "{{ messages[0].content | trim }}.", &err), IG_OK);
    if (ig_chat_render(&out, &c, variables, &err)) fail_msg("%s", err.text);
    assert_string_equal(out.data, "\xff \xc3|\xed\xa0\x80.");
    ig_buffer_close(&out);
    ig_chat_close(&c);
    json_decref(variables);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompts),
        cmocka_unit_test(refused),
        cmocka_unit_test(any_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
