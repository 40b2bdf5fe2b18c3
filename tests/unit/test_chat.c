/* SPDX-License-Identifier: Apache-2.0
 *
 * Chat prompts. The templates are shortened to the marks and literals in which real ones differ; the prompts are what
 * Jinja makes of the whole templates.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "token/chat.h"

#define CHATML                                                                                                       \
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + " \
    "'\\n'}}{% endfor %}"
#define SMOLLM                                                                                                         \
    "{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou are SmolLM<|im_end|>\n' }}{% " \
    "endif %}" CHATML
#define QWEN25                                                                                              \
    "{%- if tools %}{{- '<|im_start|>system\\n' }}{{- 'not this' }}{{- \"# Tools<|im_end|>\" }}{%- else %}" \
    "{{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}{%- else %}"                  \
    "{{- '<|im_start|>system\\nYou\\'re Qwen.\\n\"Ok\"<|im_end|>\\n' }}{%- endif %}" CHATML
#define QWEN3 "{%- set ns = namespace(last_query_index=0) %}{{ '</think>' }}{{ x|trim }}" CHATML
#define QWQ "{%- set content = message.content.split('</think>')[-1].lstrip('\\n') %}" CHATML
#define QWQ_LATER "{%- if not loop.last %}" QWQ
#define YI                                                                                                \
    "{{ system_message }}{{ '<|im_start|>user\\n' + content + '<|im_end|>\\n<|im_start|>assistant\\n' }}" \
    "{{ content + '<|im_end|>' + '\\n' }}"
#define THINKING                                                      \
    "{% if not add_generation_prompt is defined %}{% endif %}" CHATML \
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n<think>\\n' }}{%- endif %}"
#define LLAMA2                                                                       \
    "DEFAULT{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' %}" \
    "{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{{ ' ' + content.strip() + ' ' + eos_token }}"
#define LLAMA2_DEFAULT "{% elif true == true %}{% set system_message = 'Be good.\\nDon\\'t lie.' %}" LLAMA2
#define LLAMA2_NO_DEFAULT "{% elif false == true %}{% set system_message = 'Be good.' %}" LLAMA2
#define LLAMA3                                                                                              \
    "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim + " \
    "'<|eot_id|>' }}"
#define LLAMA3_SYSTEM                                                                                 \
    "{{ '<|start_header_id|>system<|end_header_id|>\\n\\n' + system_message + '<|eot_id|>' }}" LLAMA3 \
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n<think>' }}"
#define LLAMA31                                                                                   \
    "{%- set date_string = \"26 Jul 2024\" %}{{- \"Cutting Knowledge Date: December 2023\\n\" }}" \
    "{{- \"Today Date: \" + date_string + \"\\n\\n\" }}" LLAMA3
#define MISTRAL_TURN(open, close, answer)                                                                           \
    "{%- if message['role'] == 'user' %}{{- '" open "' + message['content'] + '" close "' }}{%- else %}{{- " answer \
    " }}"
#define MISTRAL01 MISTRAL_TURN("[INST] ", " [/INST]", "message['content'] + eos_token + ' ' ")
#define MISTRAL02 MISTRAL_TURN("[INST] ", " [/INST]", "message['content'] + eos_token")
#define MISTRAL_V1                                                                           \
    "{% if loop.first and system_message is defined %}" MISTRAL_TURN(" [INST] ", " [/INST]", \
                                                                     "' ' + message['content'] + eos_token")
#define MISTRAL_V3                                                                        \
    "{% if loop.last and system_message is defined %}" MISTRAL_TURN("[INST] ", "[/INST]", \
                                                                    "\" \" + message[\"content\"]|trim + eos_token")

static const ig_chat_message plain[] = {{"user", "Hi"}};
static const ig_chat_message talk[] = {{"system", "S "}, {"user", " a "}, {"assistant", " b\n"}, {"user", "c"}};
static const ig_chat_message no_system[] = {{"user", " a "}, {"assistant", " b\n"}, {"user", "c"}};
static const ig_chat_message reasoned[] = {
    {"user", "a"}, {"assistant", "<think>\nhm\n</think>\n\nb"}, {"user", "c"}, {"assistant", "<think>so</think>d"}};
static const ig_chat_message answered[] = {{"user", "a"}, {"assistant", "b"}};
#define MESSAGES(m) m, sizeof(m) / sizeof *(m)

static const struct {
    ig_chat_format format;
    const char *template;
    const ig_chat_message *messages;
    size_t n;
    bool add_assistant;
    const char *want;
} cases[] = {
    {IG_CHAT_CHATML, CHATML, MESSAGES(plain), true, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"},
    {IG_CHAT_CHATML, CHATML, MESSAGES(talk), false,
     "<|im_start|>system\nS <|im_end|>\n<|im_start|>user\n a <|im_end|>\n<|im_start|>assistant\n "
     "b\n<|im_end|>\n<|im_start|>user\nc<|im_end|>\n"},
    {IG_CHAT_CHATML, THINKING, MESSAGES(plain), true,
     "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n"},
    {IG_CHAT_CHATML, SMOLLM, MESSAGES(plain), true,
     "<|im_start|>system\nYou are SmolLM<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"},
    {IG_CHAT_CHATML, QWEN25, MESSAGES(plain), false,
     "<|im_start|>system\nYou're Qwen.\n\"Ok\"<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"},
    {IG_CHAT_CHATML, QWEN25, talk, 2, false, "<|im_start|>system\nS <|im_end|>\n<|im_start|>user\n a <|im_end|>\n"},
    {IG_CHAT_CHATML, QWEN3, MESSAGES(reasoned), false,
     "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n<|im_start|>user\nc<|im_end|>\n"
     "<|im_start|>assistant\n<think>\nso\n</think>\n\nd<|im_end|>\n"},
    {IG_CHAT_CHATML, QWEN3, MESSAGES(answered), true,
     "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n<think>\n\n</"
     "think>\n\nb<|im_end|>\n<|im_start|>assistant\n"},
    {IG_CHAT_CHATML, QWQ, MESSAGES(reasoned), false,
     "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n<|im_start|>user\nc<|im_end|>\n"
     "<|im_start|>assistant\nd<|im_end|>\n"},
    {IG_CHAT_CHATML, QWQ_LATER, MESSAGES(reasoned), false,
     "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n<|im_start|>user\nc<|im_end|>\n"
     "<|im_start|>assistant\n<think>so</think>d<|im_end|>\n"},
    {IG_CHAT_LLAMA3, LLAMA3_SYSTEM, MESSAGES(plain), true,
     "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n<"
     "think>"},
    {IG_CHAT_CHATML, YI, MESSAGES(plain), true, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"},
    {IG_CHAT_LLAMA2, LLAMA2, MESSAGES(talk), true,
     "[INST] <<SYS>>\nS \n<</SYS>>\n\n a [/INST] b </s><s>[INST] c [/INST]"},
    {IG_CHAT_LLAMA2, LLAMA2_DEFAULT, MESSAGES(plain), true,
     "[INST] <<SYS>>\nBe good.\nDon't lie.\n<</SYS>>\n\nHi [/INST]"},
    {IG_CHAT_LLAMA2, LLAMA2_NO_DEFAULT, MESSAGES(plain), true, "[INST] Hi [/INST]"},
    {IG_CHAT_LLAMA3, LLAMA3, MESSAGES(no_system), true,
     "<|start_header_id|>user<|end_header_id|>\n\na<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nb<|eot_"
     "id|>"
     "<|start_header_id|>user<|end_header_id|>\n\nc<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"},
    {IG_CHAT_LLAMA3, LLAMA31, MESSAGES(plain), false,
     "<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\nToday Date: 26 Jul "
     "2024\n\n<|eot_id|>"
     "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"},
    {IG_CHAT_LLAMA3, LLAMA31, talk, 2, false,
     "<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\nToday Date: 26 Jul "
     "2024\n\nS<|eot_id|>"
     "<|start_header_id|>user<|end_header_id|>\n\na<|eot_id|>"},
    {IG_CHAT_MISTRAL, MISTRAL01, MESSAGES(no_system), true, "[INST]  a  [/INST] b\n</s> [INST] c [/INST]"},
    {IG_CHAT_MISTRAL, MISTRAL02, MESSAGES(no_system), true, "[INST]  a  [/INST] b\n</s>[INST] c [/INST]"},
    {IG_CHAT_MISTRAL, MISTRAL_V1, MESSAGES(talk), true, " [INST] S \n\n a  [/INST]  b\n</s> [INST] c [/INST]"},
    {IG_CHAT_MISTRAL, MISTRAL_V3, MESSAGES(talk), true, "[INST]  a [/INST] b</s>[INST] S \n\nc[/INST]"},
};

static void test_prompts(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ig_buffer out = {0};
        ig_error err;
        assert_int_equal(ig_chat_detect(cases[i].template), cases[i].format);
        if (ig_chat_render(&out, cases[i].format, cases[i].template, cases[i].messages, cases[i].n,
                           cases[i].add_assistant, &err))
            fail_msg("case %zu: %s", i, err.text);
        assert_string_equal(out.data, cases[i].want);
        ig_buffer_close(&out);
    }
}

static void test_unknown(void **state) {
    (void)state;
    static const char *const templates[] = {"",
                                            "{{ messages }}",
                                            "<|im_start|>only",
                                            "<|im_start|>a<|im_sep|>b<|im_end|>",
                                            "[INST]",
                                            "[SYSTEM_PROMPT][INST][/INST]",
                                            "<|user|>{{ content }}",
                                            "<|start_header_id|>",
                                            "'<|start_header_id|>system<|end_header_id|>\\n\\nCall functions.'" LLAMA3};
    ig_buffer out = {0};
    ig_error err;
    assert_int_equal(ig_chat_detect(NULL), IG_CHAT_UNKNOWN);
    for (size_t i = 0; i < sizeof templates / sizeof *templates; i++)
        assert_int_equal(ig_chat_detect(templates[i]), IG_CHAT_UNKNOWN);
    assert_int_equal(ig_chat_render(&out, IG_CHAT_UNKNOWN, "x", plain, 1, true, &err), IG_E_UNSUPPORTED);
    assert_string_equal(ig_chat_name(IG_CHAT_UNKNOWN), "");
    assert_string_equal(ig_chat_name(IG_CHAT_LLAMA2), "llama2");
}

static void test_refused(void **state) {
    (void)state;
    ig_buffer out = {0};
    ig_error err;
    assert_int_equal(ig_chat_render(&out, IG_CHAT_CHATML, CHATML, plain, 0, true, &err), IG_E_ARG);
    assert_int_equal(ig_chat_render(&out, IG_CHAT_MISTRAL, MISTRAL02, talk, 4, true, &err), IG_E_UNSUPPORTED);
    assert_int_equal(ig_chat_render(&out, IG_CHAT_CHATML, YI, talk, 4, true, &err), IG_E_UNSUPPORTED);
    assert_string_equal(err.text, "this model's chat template takes no system message");
    assert_int_equal(ig_chat_render(&out, IG_CHAT_CHATML, "", talk, 4, true, &err), IG_OK);
    const ig_chat_message twice[] = {{"user", "a"}, {"user", "b"}};
    assert_int_equal(ig_chat_render(&out, IG_CHAT_LLAMA2, LLAMA2, twice, 2, true, &err), IG_E_ARG);
    assert_non_null(strstr(err.text, "chat message 2"));
    ig_buffer_close(&out);
}

/* Templates cut off at any place neither crash nor read past their end. */
static void test_cut_templates(void **state) {
    (void)state;
    static const char *const templates[] = {SMOLLM, QWEN25, LLAMA2_DEFAULT, LLAMA31, MISTRAL01, MISTRAL_V1, MISTRAL_V3};
    for (size_t i = 0; i < sizeof templates / sizeof *templates; i++) {
        size_t size = strlen(templates[i]);
        for (size_t n = 0; n <= size; n++) {
            char *cut = test_malloc(n + 1);
            memcpy(cut, templates[i], n);
            cut[n] = 0;
            for (int format = IG_CHAT_CHATML; format <= IG_CHAT_MISTRAL; format++) {
                ig_buffer out = {0};
                ig_error err;
                ig_status s = ig_chat_render(&out, (ig_chat_format)format, cut, plain, 1, true, &err);
                assert_int_equal(s, IG_OK);
                assert_non_null(strstr(out.data, "Hi"));
                ig_buffer_close(&out);
            }
            test_free(cut);
        }
    }
}

/* A megabyte of literals that never end, or end without what is looked for. Reading on to the end from each of them
 * would take many minutes. */
static void test_endless_literals(void **state) {
    (void)state;
    static const char *const units[] = {"set system_message = 'a", "'<|im_start|>system\na\\",
                                        "\\'<|im_start|>system\n"};
    size_t size = (size_t)1 << 20;
    char *template = test_malloc(size + 1);
    for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
        size_t n = strlen(units[u]);
        for (size_t i = 0; i < size; i++) template[i] = units[u][i % n];
        memcpy(template, "<|im_start|>system true == true ", 32);
        template[size] = 0;
        for (int format = IG_CHAT_CHATML; format <= IG_CHAT_LLAMA2; format++) {
            ig_buffer out = {0};
            ig_error err;
            assert_int_equal(ig_chat_render(&out, (ig_chat_format)format, template, plain, 1, true, &err), IG_OK);
            assert_non_null(strstr(out.data, "Hi"));
            ig_buffer_close(&out);
        }
    }
    test_free(template);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_prompts), cmocka_unit_test(test_unknown),
                                       cmocka_unit_test(test_refused), cmocka_unit_test(test_cut_templates),
                                       cmocka_unit_test(test_endless_literals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
