/* SPDX-License-Identifier: Apache-2.0
 *
 * Chat templates. What is wanted is what Jinja 2 itself makes of each, with the settings of Hugging Face's libraries.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "format/json.h"
#include "jinja/jinja.h"
#include "sanitized.h"

static const char variables[] =
    "{\"a\": 1, \"s\": \"h\\u00e9L w\\u00f6\", \"l\": [3, 1, 2], \"d\": {\"b\": 1, \"a\": [1, 2.5, null, true], "
    "\"items\": 7}, \"n\": null, \"messages\": [{\"role\": \"user\", \"content\": \" hi \"}, {\"role\": \"assistant\", "
    "\"content\": null, \"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": {\"x\": 1}}}]}, {\"role\": "
    "\"tool\", \"content\": \"<r>\"}], \"bos_token\": \"<s>\", \"add_generation_prompt\": true}";

static json_t *parse_json(const char *text) {
    json_t *json = NULL;
    ig_error err;
    if (ig_json_parse(&json, text, strlen(text), "variables", &err)) fail_msg("%s", err.text);
    return json;
}

/* Parses and renders. The template lies in a block of its size. */
static ig_status render_bytes(ig_buffer *out, const char *text, size_t n, const json_t *json, ig_error *err) {
    ig_jinja *t = NULL;
    char *exact = malloc(n ? n : 1);
    assert_non_null(exact);
    memcpy(exact, text, n);
    ig_status s = ig_jinja_parse(&t, exact, n, err);
    free(exact);
    if (!s) s = ig_jinja_render(out, t, json, 0, err);
    ig_jinja_close(t);
    return s;
}

static ig_status render(ig_buffer *out, const char *text, const json_t *json, ig_error *err) {
    return render_bytes(out, text, strlen(text), json, err);
}

static const struct {
    const char *template, *want;
} cases[] = {
    /* blanks */
    {"x\n", "x"},
    {"x\n\n", "x\n"},
    {"a\r\nb\rc", "a\nb\nc"},
    {"  {% if a %}\nx\n  {% endif %}\ny", "x\ny"},
    {"a {%- if a -%}  b  {%- endif %} c", "ab c"},
    {"{%+ if a %}b{% endif +%}\nc", "b\nc"},
    {" {{- a -}}  b", "1b"},
    {"   {# c #}\n x {# d #} y\n{#- e -#}\n z", " x  yz"},
    {"{% raw %}{{ x }}{% endraw %}", "{{ x }}"},
    {"  {% raw -%} {% y {%- endraw %}\nz", "{% yz"},
    {"{{ '}}' }}{{ {'a': {}} }}", "}}{'a': {}}"},
    {"{% if a %}{% endif %}\n\nx", "\nx"},
    {"a\n  {{ a }}\n", "a\n  1"},
    /* values */
    {"{{ a }} {{ n }} {{ true }} {{ 1.0 }} {{ x }} {{ l }} {{ d }}",
     "1 None True 1.0  [3, 1, 2] {'b': 1, 'a': [1, 2.5, None, True], 'items': 7}"},
    {"{{ ['a', \"it's\", 'q\"', none, (1,), ()] }}", "['a', \"it's\", 'q\"', None, (1,), ()]"},
    {"{{ 1e16 }} {{ 1e15 }} {{ 0.1 + 0.2 }} {{ 1e-5 }} {{ 1e-4 }} {{ -0.0 }} {{ 1e400 }}",
     "1e+16 1000000000000000.0 0.30000000000000004 1e-05 0.0001 -0.0 inf"},
    {"{{ '\\n\\x41\\u00e9\\101\\q\\\\' }}{{ 'a' \"b\" }}",
     "\nA\xc3\xa9"
     "A\\q\\ab"},
    {"{{ ['\\n', '\\x00', '\\u200b', '\xc3\xa9'] }}", "['\\n', '\\x00', '\\u200b', '\xc3\xa9']"},
    {"{{ 1 == 1.0 == true }}{{ [1] == (1,) }}{{ {'a': 1} == {'a': true} }}{{ x == y }}{{ x == none }}",
     "TrueFalseTrueTrueFalse"},
    {"{{ {1: 'x', true: 'y', none: 2} }}", "{1: 'y', None: 2}"},
    {"{{ not '' }}{{ '' or 'y' }}{{ 0 and x.y }}{{ l and 'z' }}", "Truey0z"},
    /* numbers */
    {"{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 3 // 0.5 }} {{ -3.5 % 2 }}",
     "3 -4 2 3.5 1024 0.5 6.0 0.5"},
    {"{{ 2 + 3 * 4 - 1 }} {{ -2 ** 2 }} {{ -2|abs }} {{ (-2)|abs }} {{ true + 1 }} {{ +true }}", "13 4 2 2 2 1"},
    {"{{ 2.5|round }} {{ 2.675|round(2) }} {{ 3.2|round(0, 'ceil') }} {{ 7|round }} {{ '12'|int }} {{ ' 1.7 '|int }} "
     "{{ 'x'|int(5) }} {{ none|int }} {{ 'y'|float }}",
     "2.0 2.67 4.0 7 12 1 5 0 0.0"},
    {"{{ 9223372036854775807 }} {{ -9223372036854775807 - 1 }}", "9223372036854775807 -9223372036854775808"},
    /* operators */
    {"{{ 1 < 2 < 3 }}{{ 1 < 3 < 2 }}{{ 'a' in 'abc' }}{{ 1 in l }}{{ 'b' in d }}{{ 'z' not in d }}{{ 'a' in x }}",
     "TrueFalseTrueTrueTrueTrueFalse"},
    {"{{ 'ab' * 2 }}{{ 2 * 'x' }}{{ [1] * 2 + [3] }}{{ 'a' ~ 1 ~ none ~ 1.0 }}", "ababxx[1, 1, 3]a1None1.0"},
    {"{{ 'x' if false }}{{ 'x' if a else 'y' }}{{ 1 if false else 2 if false else 3 }}", "x3"},
    {"{{ a is defined }}{{ x is not defined }}{{ 3 is odd }}{{ 4 is divisibleby 2 }}{{ a is eq 1 and true }}{{ 'a' is "
     "in ['a'] }}",
     "TrueTrueTrueTrueTrueTrue"},
    {"{{ d is mapping }}{{ l is sequence }}{{ s is iterable }}{{ s is string }}{{ a is number }}{{ true is integer "
     "}}{{ x is iterable }}{{ n is none }}",
     "TrueTrueTrueTrueTrueFalseTrueTrue"},
    {"{{ 'A' is upper }}{{ 'a1' is lower }}{{ '1' is lower }}{{ range is callable }}{{ true is sameas true }}{{ 1 is "
     "sameas true }}",
     "TrueTrueFalseTrueTrueFalse"},
    {"{{ ('<' | safe) + '&' }}{{ '<' | safe ~ '&' }}", "<&amp;<&"},
    {"{{ (' < ' | safe | trim) + '&' }}{{ ('<b' | safe)[:1] + '&' }}{{ ('<b' | safe)[::2] + '&' }}{{ ('<' | safe) * 2 "
     "+ '&' }}{{ ('<' | safe).strip().upper() + '&' }}{{ ('<' | safe | replace('a', 'b')) + '&' }}",
     "<&amp;<&amp;<&amp;<<&amp;<&amp;<&"},
    {"{{ '\xc7\x86\xc7\x86'.title() }}{{ '\xc4\xb8'.islower() }}{{ '\xc7\x85'.isupper() }}",
     "\xc7\x85\xc7\x86TrueFalse"},
    /* subscripts */
    {"{{ s[1] }}{{ s[-1] }}{{ s[::-1] }}{{ s[1:3] }}{{ s[-3:] }}{{ s[:-1] }}{{ s[9] }}{{ s[5:2] }}",
     "\xc3\xa9\xc3\xb6\xc3\xb6w L\xc3\xa9h\xc3\xa9L w\xc3\xb6h\xc3\xa9L w"},
    {"{{ none[1:] }}{{ a[::0] }}{{ d[:1] is defined }}{{ 'ab'['x':] is defined }}{{ none[:1] == '' }}",
     "FalseFalseFalse"},
    {"{{ l[::-1] }}{{ l[1:] }}{{ l[::2] }}{{ l[5:1:-2] }}{{ l[9] is defined }}{{ l[true] }}",
     "[2, 1, 3][1, 2][3, 2][2]False1"},
    {"{{ d.b }}{{ d['b'] }}{{ d['items'] }}{{ d.items is defined }}{{ d.zz is defined }}{{ d['get']('b') }}{{ [[1, "
     "2]].0.1 }}",
     "117TrueFalse12"},
    {"{{ n.x }}{{ n['x'] is defined }}{{ messages[0].role }}{{ messages[1]['tool_calls'][0].function.arguments.x }}",
     "Falseuser1"},
    /* tags */
    {"{% if x %}1{% elif a %}2{% else %}3{% endif %}{% if x %}1{% elif n %}2{% else %}3{% endif %}", "23"},
    {"{% for m in messages %}{{ m.role }}{% if not loop.last %},{% endif %}{% endfor %}", "user,assistant,tool"},
    {"{% for i in l if i > 1 %}{{ loop.index }}/{{ loop.length }}{{ loop.first }}{{ loop.last }}{{ i }};{% else "
     "%}none{% endfor %}",
     "1/2TrueFalse3;2/2FalseTrue2;"},
    {"{% for i in [] %}{% else %}empty{% endfor %}{% for i in x %}{% else %}undefined{% endfor %}", "emptyundefined"},
    {"{% for i in l %}{{ loop.previtem }}<{{ loop.nextitem }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.cycle('a', "
     "'b') }}{{ loop.depth0 }};{% endfor %}",
     "<132a0;3<221b0;1<10a0;"},
    {"{% for i in [1, 1, 2, 2.0, 1] %}{{ loop.changed(i) }}{{ loop.changed(i, none) }}{{ loop.changed(i, none) }};{% "
     "endfor "
     "%}",
     "TrueTrueFalse;TrueTrueFalse;TrueTrueFalse;TrueTrueFalse;TrueTrueFalse;"},
    {"{% for i in l %}{{ loop.changed() }}{% for j in l %}{{ loop.changed(i) }}{% endfor %}{% endfor %}",
     "TrueTrueFalseFalseFalseTrueFalseFalseFalseTrueFalseFalse"},
    {"{% for i in [1, 1, 2, 2.0, 1] %}{{ loop.changed(i) }}{% endfor %}{% for i in l %}{{ loop.changed(loop) }}{% "
     "endfor %}",
     "TrueFalseTrueFalseTrueTrueFalseFalse"},
    {"{% set c = cycler('a', 2, none) %}{{ c.current }}{% for i in l %}{{ c.next() }}{% endfor %}{{ c.next() }}{{ "
     "c.current }}{{ c.reset() }}{{ c.current }}",
     "aa2Nonea2Nonea"},
    {"{% set c = cycler(l) %}{{ c.next() }}{{ c.next() }}{{ c.x is defined }}{{ c.next is callable }}{{ c is callable "
     "}}{{ "
     "c is iterable }}{{ c == c }}{{ c == cycler(l) }}",
     "[3, 1, 2][3, 1, 2]FalseTrueFalseFalseTrueFalse"},
    {"{% set c = joiner() %}{% set d = joiner(none) %}{% for i in l %}{{ c() }}{{ d() }}{{ i }}{% endfor %}{{ c is "
     "callable }}",
     "3, None1, None2True"},
    {"{% for i in l %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}",
     "3"},
    {"{% for i in l %}{% break %}{% else %}e{% endfor %}", "e"},
    {"{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c "
     "}}{% endfor %}",
     "b=1;a=[1, 2.5, None, True];items=7;123"},
    {"{% set x = 1 %}{% for i in l %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}", "4231"},
    {"{% if true %}{% set q = 5 %}{% endif %}{{ q }}{% set p, r = 1, 2 %}{{ p }}{{ r }}", "512"},
    {"{% set ns = namespace(x=1) %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}{{ ns.y is defined "
     "}}",
     "7False"},
    {"{% set ns = namespace(f=false) %}{% for i in l if not ns.f %}{{ i }}{% set ns.f = true %}{% endfor %}", "3"},
    {"{% set x %}a{{ a }}{% endset %}{{ x }}{% set x | upper | trim %} abc {% endset %}{{ x }}", "a1ABC"},
    {"{% filter upper %}abc{% endfilter %}{% with q = a, r = 2 %}{{ q }}{{ r }}{% endwith %}{{ q }}", "ABC12"},
    {"{% generation %}g{% set z = 1 %}{% endgeneration %}{{ z }}", "g"},
    /* macros */
    {"{% macro m(a, b=2) %}{{ a }}-{{ b }};{% endmacro %}{{ m(1) }}{{ m(1, b=3) }}{{ m(b=1, a=2) }}{{ m() }}",
     "1-2;1-3;2-1;-2;"},
    {"{% macro w(x) %}<{{ caller(x) }}>{% endmacro %}{% call(y) w(5) %}[{{ y }}]{% endcall %}", "<[5]>"},
    {"{% macro f(n) %}{{ n }}{% if n %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}", "3210"},
    {"{% macro g() %}{{ q }}{% endmacro %}{% set q = 1 %}{{ g() }}{% for q in [2] %}{{ g() }}{% endfor %}{% set q = 3 "
     "%}{{ g() }}",
     "113"},
    {"{% macro k(a, b=a) %}{{ b }}{% endmacro %}{{ k(4) }}{{ k(4, none) }}", "4None"},
    /* as Gemma 4's template writes arguments */
    {"{%- macro f(x, bare=true) -%}{%- if x is string -%}{{- '<|\"|>' + x + '<|\"|>' -}}{%- elif x is boolean -%}"
     "{{- 'true' if x else 'false' -}}{%- elif x is mapping -%}{{- '{' -}}{%- set ns = namespace(more=false) -%}"
     "{%- for k, v in x | dictsort -%}{%- if ns.more %},{% endif -%}{%- set ns.more = true -%}"
     "{{- k if bare else f(k) -}}:{{- f(v, bare=bare) -}}{%- endfor -%}{{- '}' -}}{%- elif x is sequence -%}["
     "{%- for i in x -%}{{- f(i, bare=bare) -}}{{- ',' if not loop.last -}}{%- endfor -%}]{%- else -%}{{- x -}}"
     "{%- endif -%}{%- endmacro -%}{{ f({'z': d, 'A': s}) }} {{ f(d, bare=False) | trim }}",
     "{A:<|\"|>h\xc3\xa9L w\xc3\xb6<|\"|>,z:{a:[1,2.5,None,true],b:1,items:7}} "
     "{<|\"|>a<|\"|>:[1,2.5,None,true],<|\"|>b<|\"|>:1,<|\"|>items<|\"|>:7}"},
    /* json */
    {"{{ d|tojson }}", "{\"b\": 1, \"a\": [1, 2.5, null, true], \"items\": 7}"},
    {"{{ d|tojson(indent=2) }}",
     "{\n  \"b\": 1,\n  \"a\": [\n    1,\n    2.5,\n    null,\n    true\n  ],\n  \"items\": 7\n}"},
    {"{{ d|tojson(sort_keys=true, separators=(',', ':')) }}", "{\"a\":[1,2.5,null,true],\"b\":1,\"items\":7}"},
    {"{{ '\\u00e9\\U0001F600\\n\\x01\"/<'|tojson }}{{ '\\u00e9\\U0001F600'|tojson(ensure_ascii=true) }}",
     "\"\xc3\xa9\xf0\x9f\x98\x80\\n\\u0001\\\"/<\"\"\\u00e9\\ud83d\\ude00\""},
    {"{{ [1.0, 1e16, none, true, (1, 2), {}, []]|tojson }}{{ {1: 2, none: 3}|tojson }}",
     "[1.0, 1e+16, null, true, [1, 2], {}, []]{\"1\": 2, \"null\": 3}"},
    /* filters */
    {"{{ l|sort }}{{ l|sort(reverse=true) }}{{ l|join(',') }}{{ l|length }}{{ l|first }}{{ l|last }}{{ l|min }}{{ "
     "l|max }}{{ l|sum }}{{ l|reverse|list }}",
     "[1, 2, 3][3, 2, 1]3,1,2332136[2, 1, 3]"},
    {"{{ messages|map(attribute='role')|list }}{{ messages|selectattr('role', 'equalto', 'user')|list|length }}{{ "
     "messages|rejectattr('content')|map(attribute='role')|join }}",
     "['user', 'assistant', 'tool']1assistant"},
    {"{{ l|map('string')|join('-') }}{{ l|select('gt', 1)|list }}{{ l|reject('odd')|list }}{{ ['b', 'A', 'a']|sort "
     "}}{{ ['b', 'A', 'a']|unique|list }}",
     "3-1-2[3, 2][2]['A', 'a', 'b']['b', 'A']"},
    {"{{ d|dictsort }}{{ d|items|list }}{{ {'B': 1, 'a': 0}|dictsort }}{{ {'B': 1, 'a': 0}|dictsort(by='value') }}",
     "[('a', [1, 2.5, None, True]), ('b', 1), ('items', 7)][('b', 1), ('a', [1, 2.5, None, True]), ('items', 7)][('a', "
     "0), ('B', 1)][('a', 0), ('B', 1)]"},
    {"{{ 'a\\nb\\n\\nc'|indent }}|{{ 'a\\nb'|indent(2, true) }}|{{ 'a\\n\\nb'|indent(2, blank=true) }}",
     "a\n    b\n\n    c|  a\n  b|a\n  \n  b"},
    {"{{ x|default('b') }}{{ ''|default('b', true) }}{{ n|d('z') }}{{ x|default }}{{ x|length }}", "bbNone0"},
    {"{{ ' x '|trim }}{{ 'xxaxx'|trim('x') }}{{ s|upper }}{{ s|title }}{{ 'hELLO w'|capitalize }}{{ \"o'n-a\"|title }}",
     "xaH\xc3\x89L W\xc3\x96H\xc3\xa9l W\xc3\xb6Hello wO'n-A"},
    {"{{ 'abcb'|replace('b', 1) }}{{ 'abcb'|replace('b', '', 1) }}{{ 'a b_c'|wordcount }}{{ '<&>'|e }}{{ l|batch(2, "
     "0)|list }}{{ 5|string + 'x' }}",
     "a1c1acb2&lt;&amp;&gt;[[3, 1], [2, 0]]5x"},
    /* methods */
    {"{{ ' a b  c '.split() }}{{ 'a,b,c'.split(',', 1) }}{{ 'a,b,c'.rsplit(',', 1) }}{{ ' a b  c '.split(none, 1) }}{{ "
     "' a b  c '.rsplit(none, 1) }}",
     "['a', 'b', 'c']['a', 'b,c']['a,b', 'c']['a', 'b  c '][' a b', 'c']"},
    {"{{ 'xyaxy'.strip('yx') }}{{ '\\n a\\n'.lstrip('\\n') }}{{ ' a '.rstrip() }}{{ 'a\\nb\\r\\nc'.splitlines() }}",
     "a a\n a['a', 'b', 'c']"},
    {"{{ 'abc'.startswith(('x', 'a')) }}{{ 'abc'.endswith('c') }}{{ 'abc'.removeprefix('a') }}{{ "
     "'abc'.removesuffix('c') }}",
     "TrueTruebcab"},
    {"{{ 'h\xc3\xa9"
     "c'.find('c') }}{{ 'abab'.rfind('ab') }}{{ 'abc'.find('z') }}{{ 'abab'.count('ab') }}{{ 'abc'.replace('', '-') "
     "}}{{ '-'.join(['a', 'b']) }}",
     "22-12-a-b-c-a-b"},
    {"{{ s.upper() }}{{ \"it's\".title() }}{{ 'aB'.capitalize() }}{{ '12'.isdigit() }}{{ 'a'.isalpha() }}{{ ' "
     "'.isspace() }}",
     "H\xc3\x89L W\xc3\x96It'SAbTrueTrueTrue"},
    {"{{ '{}{}{{}}'.format(1, 'x') }}{{ '{1}{0}{n}'.format(1, 2, n=3) }}", "1x{}213"},
    {"{{ d.get('zz') }}{{ d.get('zz', 3) }}{{ d.keys()|list }}{{ d.values()|list|length }}{{ l.index(1) }}{{ "
     "l.count(3) }}",
     "None3['b', 'a', 'items']311"},
    /* functions */
    {"{% for i in range(3) %}{{ i }}{% endfor %}{{ range(1, 10, 3)|list }}{{ range(5, 0, -2)|list }}",
     "012[1, 4, 7][5, 3, 1]"},
    {"{{ dict(a=1) }}{{ dict({'x': 1}, y=2) }}{{ namespace(a=1).a }}", "{'a': 1}{'x': 1, 'y': 2}1"},
    {"{{ 1 if true else l|nosuch }}{% if false %}{{ l|nosuch }}{% endif %}", "1"},
};

static void test_rendered(void **state) {
    (void)state;
    json_t *json = parse_json(variables);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ig_buffer out = {0};
        ig_error err;
        ig_buffer_text(&out, ">"); /* what is there stays */
        if (render(&out, cases[i].template, json, &err)) fail_msg("%s: %s", cases[i].template, err.text);
        if (strcmp(out.data + 1, cases[i].want) != 0) fail_msg("%s: '%s'", cases[i].template, out.data);
        ig_buffer_close(&out);
    }
    json_decref(json);
}

static const struct {
    const char *template;
    ig_status status;
    const char *needle;
} refused[] = {
    {"{{ x.y }}", IG_E_FORMAT, "line 1: 'x' is undefined"},
    {"\n\n{{ x() }}", IG_E_FORMAT, "line 3: 'x'"},
    {"{{ d.zz.y }}", IG_E_FORMAT, "'zz' is undefined"},
    {"{{ x + 1 }}", IG_E_FORMAT, "'x' is undefined"},
    {"{{ 'a' + 1 }}", IG_E_FORMAT, "'str' and 'int'"},
    {"{{ 'a' < 1 }}", IG_E_FORMAT, "no order"},
    {"{{ 1 / 0 }}", IG_E_FORMAT, "division by zero"},
    {"{{ 0x10 }}", IG_E_FORMAT, "otherwise than by decimal digits"},
    {"{{ 1_000 }}", IG_E_FORMAT, "otherwise than by decimal digits"},
    {"{{ 5|length }}", IG_E_FORMAT, "no length"},
    {"{% for i in 5 %}{% endfor %}", IG_E_FORMAT, "'int' is not a list"},
    {"{% for a, b in [(1,)] %}{% endfor %}", IG_E_FORMAT, "1 values for 2 names"},
    {"{{ x|tojson }}", IG_E_FORMAT, "cannot be JSON"},
    {"{{ 'a'.split('') }}", IG_E_FORMAT, "split by an empty"},
    {"{{ {[]: 1} }}", IG_E_FORMAT, "cannot be a key"},
    {"{% set d.x = 1 %}", IG_E_FORMAT, "no namespace"},
    {"{{ l.append(1) }}", IG_E_FORMAT, "'append' is undefined"},
    {"{{ d.pop('b') }}", IG_E_FORMAT, "'pop' is undefined"},
    {"{{ d.__class__.x }}", IG_E_FORMAT, "'__class__' is undefined"},
    {"{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", IG_E_FORMAT, "the macro 'm'"},
    {"{% macro m(a) %}{% endmacro %}{{ m(b=2) }}", IG_E_FORMAT, "the macro 'm'"},
    {"{{ l|join(1, 2, 3) }}", IG_E_FORMAT, "takes 0 to 2"},
    {"{{ l|join(x=2) }}", IG_E_FORMAT, "the argument 'x'"},
    {"{{ x[1:] }}", IG_E_FORMAT, "'x' is undefined"},
    {"{{ a[1:] + 1 }}", IG_E_FORMAT, "'item' is undefined"},
    {"{{ l[::0] }}", IG_E_FORMAT, "step of a slice"},
    {"{{ raise_exception('no ' ~ a) }}", IG_E_ARG, "no 1"},
    {"{{ l|nosuch }}", IG_E_UNSUPPORTED, "line 1: there is no filter 'nosuch'"},
    {"{{ l is nosuch }}", IG_E_UNSUPPORTED, "no test 'nosuch'"},
    {"{% if true %}{{ l|nosuch }}{% endif %}", IG_E_UNSUPPORTED, "'nosuch'"},
    {"{% if true %}{% for i in l %}{{ l|nosuch }}{% endfor %}{% endif %}", IG_E_UNSUPPORTED, "'nosuch'"},
    {"{{ l|map('nosuch')|list }}", IG_E_UNSUPPORTED, "'nosuch'"},
    {"{% include 'x' %}", IG_E_UNSUPPORTED, "the tag 'include'"},
    {"{{ cycler() }}", IG_E_FORMAT, "at least one item"},
    {"{{ joiner(1, 2) }}", IG_E_FORMAT, "takes 0 to 1 arguments"},
    {"{% extends 'x' %}", IG_E_UNSUPPORTED, "the tag 'extends'"},
    {"{{ '%s' % 1 }}", IG_E_UNSUPPORTED, "formatting"},
    {"{{ f(*l) }}", IG_E_UNSUPPORTED, "arguments from a list"},
    {"{% for i in l recursive %}{% endfor %}", IG_E_UNSUPPORTED, "recursive"},
    {"{{ '{:>3}'.format(1) }}", IG_E_UNSUPPORTED, "format()"},
    {"a\n{% if a %}", IG_E_FORMAT, "line 2: elif else endif is wanted"},
    {"{{ a", IG_E_FORMAT, "an output does not end"},
    {"{% if a", IG_E_FORMAT, "a tag does not end"},
    {"{# a", IG_E_FORMAT, "a comment does not end"},
    {"{% raw %}a", IG_E_FORMAT, "a raw block"},
    {"{{ 'a }}", IG_E_FORMAT, "a string does not end"},
    {"{{ }}", IG_E_FORMAT, "an expression is wanted"},
    {"{{ a b }}", IG_E_FORMAT, "'}}' is wanted, and there is b"},
    {"{{ (a] }}", IG_E_FORMAT, ") is wanted"},
    {"{{ a) }}", IG_E_FORMAT, "a bracket closes"},
    {"{{ a ? b }}", IG_E_FORMAT, "means nothing"},
    {"{{ '\\x4' }}", IG_E_FORMAT, "an escape"},
    {"{{ '\\ud800' }}", IG_E_FORMAT, "an escape"},
    {"{{ 007 }}", IG_E_FORMAT, "begins with 0"},
    {"{% endif %}", IG_E_UNSUPPORTED, "'endif'"},
    {"{% break %}", IG_E_FORMAT, "no loop"},
    {"{% for i in l %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}", IG_E_FORMAT, "no loop"},
    {"{% set true = 1 %}", IG_E_FORMAT, "a name is wanted"},
    {"{% set 1 = 1 %}", IG_E_FORMAT, "a name is wanted"},
    {"{{ f(a=1, 2) }}", IG_E_FORMAT, "a name is wanted"},
    {"{% macro m(a=1, b) %}{% endmacro %}", IG_E_FORMAT, "a default"},
    {"\xff", IG_E_FORMAT, "UTF-8"},
    {"{{ 9223372036854775808 }}", IG_E_LIMIT, "too large"},
};

static void test_refused(void **state) {
    (void)state;
    json_t *json = parse_json(variables);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        ig_buffer out = {0};
        ig_error err = {0};
        ig_status s = render(&out, refused[i].template, json, &err);
        if (s != refused[i].status || !strstr(err.text, refused[i].needle))
            fail_msg("%s: %d: %s", refused[i].template, s, err.text);
        assert_int_equal(err.status, s);
        assert_int_equal(out.size, 0);
        ig_buffer_close(&out);
    }
    json_decref(json);
}

/* ---- bounds ------------------------------------------------------------ */

#define ROUNDS "{% for i in range(100000) %}"
#define LONG "{% set t = 'a' * 8000000 %}"
static const char *const endless[] = {
    "{{ 'a' * 1000000000 }}",
    "{{ [0] * 1000000000 }}",
    "{% set ns = namespace(x='a') %}" ROUNDS "{% set ns.x = ns.x + ns.x %}{% endfor %}",
    "{% set ns = namespace(x=['a']) %}" ROUNDS "{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
    "{% set ns = namespace(x='a') %}" ROUNDS "{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x|tojson }}",
    ROUNDS ROUNDS "{% endfor %}{% endfor %}",
    ROUNDS ROUNDS "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa{% endfor %}{% endfor %}",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}",
    LONG "{{ t|replace('a', t) }}",
    LONG "{{ [t, t]|join(t) }}",
    "{% set t = ' ' * 8000000 %}" ROUNDS "{% set u = t.strip() %}{% endfor %}",
    LONG ROUNDS "{% set u = 'b' in t %}{% endfor %}",
    LONG ROUNDS "{% set u = t.startswith(t) %}{% endfor %}",
    LONG "{% set d = {t: 1} %}" ROUNDS "{% set u = d[t] %}{% endfor %}",
    LONG "{{ t|list }}",
    LONG "{{ t.split('a') }}",
    LONG "{{ t.strip(t) }}",
    "{{ 'a\nb'|indent(1000000000) }}",
    "{{ range(100001) }}",
    "{{ 3 ** 1000000000 }}",
    "{{ 9223372036854775807 + 1 }}",
    "{{ (-9223372036854775807 - 1) // -1 }}",
    "{{ (-9223372036854775807 - 1)|abs }}",
};

static void test_endless(void **state) {
    (void)state;
    json_t *json = parse_json(variables);
    const size_t n = sizeof endless / sizeof *endless;
    for (size_t i = 0; i < n; i += n / TIMES(n)) { /* some seconds each under sanitizers */
        ig_buffer out = {0};
        ig_error err = {0};
        ig_status s = render(&out, endless[i], json, &err);
        if (s != IG_E_LIMIT) fail_msg("%s: %d: %s", endless[i], s, err.text);
        ig_buffer_close(&out);
    }
    json_decref(json);
}

/* A megabyte of one thing over and over. */
static void test_repeated(void **state) {
    (void)state;
    static const char *const units[] = {"{{ ",  "{% if a %}", "{% for i in l %}",
                                        "{#",   "{% raw %}",  "{%   ",
                                        "(",    "{{ (",       "{{ [",
                                        "{{ -", "{{ not ",    "{{ a.",
                                        "'a' ", "-",          "not ",
                                        "a+",   "\n",         "{{-",
                                        " "};
    static const char *const heads[] = {"", "{{ ", "{{ a", "{% if 1 ", "{% macro m("};
    const size_t most = (size_t)1 << 20, size = TIMES(most);
    json_t *json = parse_json(variables);
    char *text = test_malloc(most + 1);
    for (size_t h = 0; h < sizeof heads / sizeof *heads; h++)
        for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
            ig_buffer out = {0};
            ig_error err = {0};
            size_t n = strlen(units[u]), n_head = strlen(heads[h]);
            for (size_t i = 0; i < size; i++) text[i] = i < n_head ? heads[h][i] : units[u][(i - n_head) % n];
            ig_status s = render_bytes(&out, text, size, json, &err);
            if (s && err.status != s) fail_msg("%s%s: %d", heads[h], units[u], s);
            ig_buffer_close(&out);
        }
    ig_error err;
    ig_jinja *t;
    memset(text, ' ', most + 1);
    assert_int_equal(ig_jinja_parse(&t, text, most + 1, &err), IG_E_LIMIT);
    test_free(text);
    json_decref(json);
}

/* Templates cut off at any place neither crash nor read past their end. */
static void test_cut(void **state) {
    (void)state;
    json_t *json = parse_json(variables);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t n = 0; n < strlen(cases[i].template); n++) {
            ig_buffer out = {0};
            ig_error err = {0};
            ig_status s = render_bytes(&out, cases[i].template, n, json, &err);
            if (s) assert_int_equal(err.status, s);
            ig_buffer_close(&out);
        }
    json_decref(json);
}

/* Variables that are nested more deeply than values may be, and none. */
static void test_odd_variables(void **state) {
    (void)state;
    enum { DEPTH = 1000 };
    char text[2 * DEPTH + 16] = "{\"x\":";
    ig_buffer out = {0};
    ig_error err;
    for (int i = 0; i < DEPTH; i++) strcat(text, "[");
    for (int i = 0; i < DEPTH; i++) strcat(text, "]");
    json_t *json = parse_json(strcat(text, "}"));
    assert_int_equal(render(&out, "x", json, &err), IG_E_LIMIT);
    assert_int_equal(render(&out, "x", NULL, &err), IG_E_ARG);
    json_decref(json);
}

/* A conversation of so many turns that a look at all later ones from each takes more than a fixed number of steps. */
static void test_long_conversation(void **state) {
    (void)state;
    static const char ahead[] =
        "{% for m in l %}{% for x in l[loop.index:] %}{% if x.a %}{% endif %}{% endfor %}{% endfor "
        "%}{{ l | length }}";
    json_t *json = json_object(), *list = json_array();
    for (int i = 0; i < 2500; i++) json_array_append_new(list, json_pack("{s:i}", "a", i));
    json_object_set_new(json, "l", list);
    ig_buffer out = {0};
    ig_error err = {0};
    if (render(&out, ahead, json, &err)) fail_msg("%s", err.text);
    assert_memory_equal(out.data, "2500", out.size);
    ig_buffer_close(&out);
    json_decref(json);
}

static void test_time(void **state) {
    (void)state;
    static const char text[] = "{{ strftime_now('%d %b %Y') }}";
    ig_buffer out = {0};
    ig_error err;
    ig_jinja *t;
    json_t *json = json_object();
    assert_int_equal(ig_jinja_parse(&t, text, strlen(text), &err), IG_OK);
    assert_int_equal(ig_jinja_render(&out, t, json, 1700000000, &err), IG_OK);
    assert_non_null(strstr(out.data, " Nov 2023"));
    assert_int_equal(out.size, 11);
    ig_buffer_close(&out);
    assert_int_equal(render(&out, "{{ strftime_now('%c' * 100) }}", json, &err), IG_E_LIMIT);
    ig_jinja_close(t);
    json_decref(json);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rendered), cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_endless),  cmocka_unit_test(test_repeated),
                                       cmocka_unit_test(test_cut),      cmocka_unit_test(test_odd_variables),
                                       cmocka_unit_test(test_time),     cmocka_unit_test(test_long_conversation)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
