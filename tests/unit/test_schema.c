/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON schemas: their grammars, what is refused and why, and what clients may send to do harm.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/buffer.h"
#include "base/compiler.h"
#include "grammar/automaton.h"
#include "infinigen.h"

#include "count_memory.h"

#define SPACE "space ::= | \" \" | \"\\n\" [ \\t]{0,20}\n"
#define HEX "hex ::= [0-9A-Fa-f]\n"
#define CHAR                                                                                      \
    "char ::= [^\"\\\\\\x00-\\x1F\\x7F] | \"\\\\\" ([\"\\\\/bfnrt] | \"u\" char--unit)\n"         \
    "char--unit ::= [0-9A-CEFa-cef] hex{3} | [Dd] ([0-7] hex{2} | [89ABab] hex{2} \"\\\\u\" [Dd]" \
    " [C-Fc-f] hex{2})\n" HEX
#define STRING "string ::= \"\\\"\" char* \"\\\"\"\n"
#define INTEGER "integer ::= \"0\" | \"-\"? [1-9] [0-9]{0,15}\n"
#define BOOLEAN "boolean ::= \"true\" | \"false\"\n"
#define NIL "null ::= \"null\"\n"

static void expect(const char *schema, const char *gbnf) {
    ig_error err = {0};
    char *out;
    if (ig_schema_to_gbnf(&out, schema, strlen(schema), &err)) fail_msg("%s: %s", schema, err.text);
    assert_string_equal(out, gbnf);
    free(out);
}

static void expect_failure(const char *schema, size_t n, ig_status status, const char *why) {
    ig_error err = {0};
    char *out;
    ig_status s = ig_schema_to_gbnf(&out, schema, n, &err);
    if (s != status || !strstr(err.text, why)) fail_msg("%.200s: %d %s", schema, s, s ? err.text : out);
    assert_null(out);
}

static void types_and_values(void **state) {
    (void)state;
    expect("{\"type\": \"boolean\"}", "root ::= boolean\n" BOOLEAN);
    expect("{\"type\": [\"string\", \"null\"], \"title\": \"a\", \"x-b\": 1}",
           "root ::= string | null\n" STRING NIL CHAR);
    expect("{\"enum\": [\"a\\\"\", 0.1, {\"k\": [null]}, -3]}",
           "root ::= \"\\\"a\\\\\\\"\\\"\" | \"0.1\" | \"{\\\"k\\\":[null]}\" | \"-3\"\n");
    expect("{\"enum\": [\"a\", 1, null], \"type\": [\"integer\", \"null\"]}", "root ::= \"1\" | \"null\"\n");
    expect("{\"const\": true}", "root ::= \"true\"\n");
    expect("{\"anyOf\": [{\"type\": \"null\"}, {\"maxLength\": 2}]}",
           "root ::= null | 1\n1 ::= \"\\\"\" char{0,2} \"\\\"\"\n" NIL CHAR);
}

static void objects(void **state) {
    (void)state;
    expect("{\"properties\": {\"a\": {\"type\": \"null\"}, \"b\": {\"type\": \"null\"}}, \"required\": [\"a\"]}",
           "root ::= \"{\" space \"\\\"a\\\"\" \":\" space null (\",\" space \"\\\"b\\\"\" \":\" space null)? space "
           "\"}\"\n" NIL SPACE);
    expect("{\"properties\": {\"a\": {\"type\": \"null\"}, \"b\": {\"type\": \"null\"}, \"c\": {\"type\": \"null\"}}}",
           "root ::= \"{\" space ((\"\\\"a\\\"\" \":\" space null root--2 | \"\\\"b\\\"\" \":\" space null root--3"
           " | \"\\\"c\\\"\" \":\" space null) space)? \"}\"\n"
           "root--2 ::= (\",\" space \"\\\"b\\\"\" \":\" space null)? root--3\n"
           "root--3 ::= (\",\" space \"\\\"c\\\"\" \":\" space null)?\n" NIL SPACE);
    expect("{\"additionalProperties\": {\"type\": \"null\"}}",
           "root ::= \"{\" space ((root--more (\",\" space root--more)*) space)? \"}\"\n"
           "root--more ::= string \":\" space null\n" STRING NIL CHAR SPACE);
    expect("{\"type\": \"object\", \"additionalProperties\": false}", "root ::= \"{\" space \"}\"\n" SPACE);
}

/* Neither is there a way to write a declared name among the further ones. */
static void further_names(void **state) {
    (void)state;
    expect(
        "{\"properties\": {\"a\": {\"type\": \"null\"}, \"\\\"\": {\"type\": \"null\"}, \"a\xc3\xa9]\": {\"type\": "
        "\"null\"}},"
        " \"required\": [\"a\", \"\\\"\", \"a\xc3\xa9]\"], \"additionalProperties\": {\"type\": \"null\"}}",
        "root ::= \"{\" space \"\\\"a\\\"\" \":\" space null \",\" space \"\\\"\\\\\\\"\\\"\" \":\" space null \",\" "
        "space"
        " \"\\\"a\xc3\xa9]\\\"\" \":\" space null (\",\" space root--more)* space \"}\"\n"
        "root--more ::= \"\\\"\" root--key-0 \"\\\":\" space null\n"
        "root--key-0 ::= | \"a\" root--key-1 | [^\"\\\\\\x00-\\x1F\\x7Fa] char*\n"
        "root--key-1 ::= \"\xc3\xa9\" root--key-2 | [^\"\\\\\\x00-\\x1F\\x7F\\u00E9] char*\n"
        "root--key-2 ::= | \"]\" char+ | [^\"\\\\\\x00-\\x1F\\x7F\\]] char*\n" NIL CHAR SPACE);
}

static void arrays(void **state) {
    (void)state;
    expect("{\"items\": {\"type\": \"null\"}, \"maxItems\": 3}",
           "root ::= \"[\" space (null (\",\" space null){0,2} space)? \"]\"\n" NIL SPACE);
    expect("{\"items\": {\"type\": \"null\"}, \"minItems\": 1}",
           "root ::= \"[\" space null (\",\" space null)* space \"]\"\n" NIL SPACE);
    expect("{\"prefixItems\": [{\"type\": \"null\"}, {\"type\": \"boolean\"}], \"minItems\": 2, \"maxItems\": 2}",
           "root ::= \"[\" space null \",\" space boolean space \"]\"\n" BOOLEAN NIL SPACE);
    expect("{\"prefixItems\": [{\"type\": \"null\"}], \"items\": {\"type\": \"boolean\"}, \"minItems\": 3}",
           "root ::= \"[\" space null (\",\" space boolean){2,} space \"]\"\n" BOOLEAN NIL SPACE);
    expect("{\"items\": false}", "root ::= \"[\" space \"]\"\n" SPACE);
}

static void numbers(void **state) {
    (void)state;
    expect("{\"type\": \"integer\"}", "root ::= integer\n" INTEGER);
    expect("{\"type\": \"integer\", \"minimum\": 3, \"maximum\": 120}",
           "root ::= [3-9] | [1-9] [0-9] | \"1\" [0-1] [0-9] | \"120\"\n");
    expect("{\"type\": \"integer\", \"exclusiveMinimum\": -2.5}",
           "root ::= \"-\" ([1-2]) | [0-9] | [1-9] [0-9]{1,15}\n");
    expect("{\"type\": \"integer\", \"minimum\": 9223372036854775807}", "root ::= \"9223372036854775807\"\n");
    expect("{\"type\": \"integer\", \"maximum\": -9223372036854775808}", "root ::= \"-\" (\"9223372036854775808\")\n");
    expect("{\"type\": \"number\", \"minimum\": 0, \"maximum\": 1}",
           "root ::= (\"0\") (\".\" [0-9]{1,14})? | \"1\" (\".\" \"0\"{1,14})?\n");
    expect("{\"type\": \"number\", \"exclusiveMinimum\": 100000000000, \"exclusiveMaximum\": 100000000001}",
           "root ::= \"100000000000.\" ([1-9] [0-9]{0,2} | \"0\" ([1-9] [0-9]? | \"0\" ([1-9])))\n");
    expect("{\"type\": \"number\", \"minimum\": -100000000003, \"exclusiveMaximum\": -100000000001}",
           "root ::= \"-\" (\"100000000001.\" ([1-9] [0-9]{0,2} | \"0\" ([1-9] [0-9]? | \"0\" ([1-9]))) | "
           "(\"100000000002\") (\".\" [0-9]{1,3})? | \"100000000003\" (\".\" \"0\"{1,3})?)\n");
}

/* Whether a text is one of a schema's. */
static bool takes(const char *schema, const char *text) {
    char *gbnf;
    ig_error err;
    ig_rules rules;
    ig_automaton *a;
    if (ig_schema_to_gbnf(&gbnf, schema, strlen(schema), &err) || ig_rules_parse(&rules, gbnf, &err) ||
        ig_automaton_open(&a, &rules, &err))
        fail_msg("%s: %s", schema, err.text);
    free(gbnf);
    ig_automaton_allow(a, UINT64_MAX);
    uint16_t at = ig_automaton_start(a);
    for (; *text && at != IG_STATE_DEAD; text++) at = ig_automaton_step(a, at, (uint8_t)*text);
    bool is_taken = at != IG_STATE_DEAD && ig_automaton_accepts(a, at);
    ig_automaton_close(a);
    return is_taken;
}

/* Numbers behind an open bound may end with zeros, but must not be the bound. */
static void numbers_with_zeros(void **state) {
    static const char above_0[] = "{\"type\": \"number\", \"exclusiveMinimum\": 0}",
                      below_0[] = "{\"type\": \"number\", \"exclusiveMaximum\": 0}",
                      between[] = "{\"type\": \"number\", \"exclusiveMinimum\": 10, \"exclusiveMaximum\": 11}";
    static const struct {
        const char *schema, *text;
        bool is_taken;
    } all[] = {
        {"{\"type\": \"string\", \"format\": \"path\"}", "\"a/b\"", true}, /* a remark */
        {"{\"type\": \"string\", \"format\": \"password\", \"pattern\": \"^ab$\"}", "\"ab\"", true},
        {"{\"enum\": [\"a\"], \"format\": \"path\"}", "\"a\"", true},
        {"{\"type\": \"integer\", \"format\": \"count\"}", "7", true},
        {above_0, "0.50", true},
        {above_0, "0.1", true},
        {above_0, "0.10", true},
        {above_0, "0.00100", true},
        {above_0, "1", true},
        {above_0, "1.0", true},
        {above_0, "0", false},
        {above_0, "0.0", false},
        {above_0, "0.000", false},
        {above_0, "0.", false},
        {above_0, "-0.5", false},
        {above_0, "0.00000000000001", true},
        {above_0, "0.000000000000001", false}, /* one digit too many */
        {above_0, "0.12345678901234", true},
        {above_0, "0.123456789012345", false},
        {below_0, "-0.50", true},
        {below_0, "-0.0", false},
        {below_0, "-7.10", true},
        {between, "10.50", true},
        {between, "10.0", false},
        {between, "10", false},
        {between, "11", false},
        {between, "10.99", true},
    };
    (void)state;
    for (size_t i = 0; i < IG_COUNT(all); i++)
        if (takes(all[i].schema, all[i].text) != all[i].is_taken) fail_msg("%s: %s", all[i].schema, all[i].text);
    assert_true(
        takes("{\"type\": \"integer\", \"minimum\": 0, \"maximum\": 1.8446744073709552e19}", "1234567890123456"));
    assert_true(
        takes("{\"type\": \"integer\", \"minimum\": 0, \"maximum\": 18446744073709551615}", "1234567890123456"));
    assert_true(takes("{\"format\": \"date-time\", \"maxLength\": 32}", "\"2026-01-02T03:04:05Z\""));
    assert_true(takes("{\"type\": \"integer\", \"enum\": [\"a\", 1.0, 2.5, 3]}", "1.0"));
    assert_false(takes("{\"type\": \"integer\", \"enum\": [\"a\", 1.0, 2.5, 3]}", "2.5"));
}

static void patterns(void **state) {
    (void)state;
    expect("{\"pattern\": \"^ab+?\\\\d{2}(?:c|)[^\\\\w]$\"}",
           "root ::= \"\\\"\" ( \"a\" \"b\"+ [0-9]{2} ( \"c\" | )"
           " ([ !#-/:-@[\\]\\^`{-~] | \"\\\\\" [\"bfnrt\\\\]) ) \"\\\"\"\n");
    expect("{\"pattern\": \"\\\"\\\\\\\\\\\\n\xc3\xa9\"}",
           "root ::= \"\\\"\" ( char* \"\\\\\\\"\\\\\\\\\\\\n\\u00E9\" char* ) \"\\\"\"\n" CHAR);
    expect("{\"pattern\": \"^a|[\\\\x00-b]$\"}",
           "root ::= \"\\\"\" ( \"a\" char* | char* ([ !#-[\\]-b] | \"\\\\\" [\"\\\\bfnrt]) ) \"\\\"\"\n" CHAR);
}

static void references(void **state) {
    (void)state;
    expect("{\"$defs\": {\"a/b c\": {\"items\": {\"$ref\": \"#\"}}}, \"$ref\": \"#/$defs/a~1b%20c\"}",
           "root ::= \"[\" space (root (\",\" space root)* space)? \"]\"\n" SPACE);
    expect(
        "{\"properties\": {\"null\": {\"enum\": [1]}, \"b c\": {\"$ref\": \"#/properties/null\"}},"
        " \"required\": [\"null\", \"b c\"]}",
        "root ::= \"{\" space \"\\\"null\\\"\" \":\" space null-1 \",\" space \"\\\"b c\\\"\" \":\" space null-1 space "
        "\"}\"\n"
        "null-1 ::= \"1\"\n" SPACE);
    expect(
        "{\"$defs\": {\"A\": {\"required\": [\"a\"], \"properties\": {\"a\": {\"type\": \"null\"}}}},"
        " \"allOf\": [{\"$ref\": \"#/$defs/A\"}], \"properties\": {\"b\": {\"type\": \"null\"}}}",
        "root ::= \"{\" space (\"\\\"b\\\"\" \":\" space null root--2 | \"\\\"a\\\"\" \":\" space null) space \"}\"\n"
        "root--2 ::= \",\" space \"\\\"a\\\"\" \":\" space null\n" NIL SPACE);
}

static void what_is_not_supported_is_refused(void **state) {
    static const struct {
        const char *schema;
        ig_status status;
        const char *why;
    } cases[] = {
        {"", IG_E_FORMAT, "schema: line 1"},
        {"[]", IG_E_FORMAT, "#: is not a schema"},
        {"5", IG_E_FORMAT, "#: is not a schema"},
        {"false", IG_E_UNSUPPORTED, "#: 'false' allows nothing"},
        {"{\"a\": 1", IG_E_FORMAT, "schema: line 1"},
        {"{\"not\": {}}", IG_E_UNSUPPORTED, "#: 'not' is not supported"},
        {"{\"properties\": {\"a\": {\"not\": {}}}}", IG_E_UNSUPPORTED, "#/properties/a: 'not' is not supported"},
        {"{\"items\": {\"if\": {}}}", IG_E_UNSUPPORTED, "#/items: 'if' is not supported"},
        {"{\"patternProperties\": {}}", IG_E_UNSUPPORTED, "'patternProperties'"},
        {"{\"uniqueItems\": true}", IG_E_UNSUPPORTED, "'uniqueItems'"},
        {"{\"nullable\": true}", IG_E_UNSUPPORTED, "'nullable'"},
        {"{\"minimun\": 1}", IG_E_UNSUPPORTED, "'minimun'"},
        {"{\"items\": {\"$id\": \"a\"}}", IG_E_UNSUPPORTED, "#/items: '$id'"},
        {"{\"properties\": {\"a\": false}}", IG_E_UNSUPPORTED, "#/properties/a: 'false' allows nothing"},
        {"{\"type\": \"text\"}", IG_E_FORMAT, "'type' is not a type"},
        {"{\"type\": []}", IG_E_FORMAT, "'type'"},
        {"{\"enum\": []}", IG_E_UNSUPPORTED, "no value is allowed"},
        {"{\"enum\": [1], \"type\": \"string\"}", IG_E_UNSUPPORTED, "no value is allowed"},
        {"{\"enum\": [1], \"minimum\": 0}", IG_E_UNSUPPORTED, "'minimum' is not supported here"},
        {"{\"enum\": [1], \"const\": 1}", IG_E_UNSUPPORTED, "'enum' is not supported here"},
        {"{\"anyOf\": [{}], \"oneOf\": [{}]}", IG_E_UNSUPPORTED, "'anyOf' is not supported here"},
        {"{\"anyOf\": [{}], \"type\": \"string\"}", IG_E_UNSUPPORTED, "'type' is not supported here"},
        {"{\"anyOf\": []}", IG_E_FORMAT, "'anyOf' is not a list"},
        {"{\"anyOf\": [{}, {\"not\": {}}]}", IG_E_UNSUPPORTED, "#/anyOf/1: 'not'"},
        {"{\"allOf\": [{\"type\": \"string\"}, {\"minLength\": 1}]}", IG_E_UNSUPPORTED, "#/allOf/0: 'type' is not"},
        {"{\"allOf\": [{\"properties\": {\"a\": {}}}, {\"properties\": {\"a\": {}}}]}", IG_E_UNSUPPORTED,
         "'a' in several"},
        {"{\"allOf\": [{\"properties\": {\"a\": {}}}, {\"additionalProperties\": false}]}", IG_E_UNSUPPORTED,
         "#/allOf/1: 'additionalProperties'"},
        {"{\"allOf\": [{\"properties\": {}}, {\"anyOf\": [{}]}]}", IG_E_UNSUPPORTED, "#/allOf/1: 'anyOf'"},
        {"{\"$ref\": \"#/$defs/a\"}", IG_E_FORMAT, "'#/$defs/a': there is no such thing"},
        {"{\"$ref\": \"other.json\"}", IG_E_UNSUPPORTED, "'other.json' is not supported"},
        {"{\"$ref\": \"#/%0\"}", IG_E_FORMAT, "there is no such thing"},
        {"{\"$ref\": \"#/~2\"}", IG_E_FORMAT, "there is no such thing"},
        {"{\"$ref\": 1}", IG_E_FORMAT, "'$ref' is not a text"},
        {"{\"$ref\": \"#/$defs/a\", \"$defs\": {\"a\": {\"type\": \"string\"}}, \"maxLength\": 1}", IG_E_UNSUPPORTED,
         "'maxLength' is not supported here"},
        {"{\"$ref\": \"#\"}", IG_E_UNSUPPORTED, "leads back to itself"},
        {"{\"$ref\": \"#/$defs/a\", \"$defs\": {\"a\": {\"$ref\": \"#/$defs/b\"}, \"b\": {\"$ref\": \"#/$defs/a\"}}}",
         IG_E_UNSUPPORTED, "leads back to itself"},
        {"{\"anyOf\": [{\"type\": \"null\"}, {\"$ref\": \"#\"}]}", IG_E_UNSUPPORTED, "#: is a choice of itself"},
        {"{\"properties\": {\"a\": {\"$ref\": \"#\"}}, \"required\": [\"a\"]}", IG_E_UNSUPPORTED, "#: no value"},
        {"{\"items\": {\"$ref\": \"#\"}, \"minItems\": 1}", IG_E_UNSUPPORTED, "#: no value that it allows ever ends"},
        {"{\"required\": [\"a\"], \"properties\": {}}", IG_E_UNSUPPORTED, "'a' is required and not allowed"},
        {"{\"required\": [\"a\", \"a\"]}", IG_E_FORMAT, "'a' is required twice"},
        {"{\"properties\": []}", IG_E_FORMAT, "'properties'"},
        {"{\"properties\": {\"a\": {}}, \"minProperties\": 1}", IG_E_UNSUPPORTED, "'minProperties'"},
        {"{\"type\": \"object\", \"maxProperties\": 1}", IG_E_UNSUPPORTED, "'maxProperties'"},
        {"{\"prefixItems\": [{}], \"minItems\": 2}", IG_E_UNSUPPORTED, "'minItems' asks for more"},
        {"{\"minItems\": 2, \"maxItems\": 1}", IG_E_UNSUPPORTED, "'minItems' over 'maxItems'"},
        {"{\"minItems\": -1}", IG_E_FORMAT, "'minItems' is not a count"},
        {"{\"maxLength\": 10001}", IG_E_LIMIT, "'maxLength' is larger than 10000"},
        {"{\"format\": 3}", IG_E_FORMAT, "'format' is not a text"},
        {"{\"format\": \"regex\"}", IG_E_UNSUPPORTED, "'format' of 'regex'"},
        {"{\"format\": \"int32\", \"type\": \"integer\"}", IG_E_UNSUPPORTED, "'format' of 'int32'"},
        {"{\"format\": \"date-time\", \"maxLength\": 31}", IG_E_UNSUPPORTED, "'format' of 'date-time' and a length"},
        {"{\"format\": \"date\", \"maxLength\": 5}", IG_E_UNSUPPORTED, "'format' of 'date' and a length"},
        {"{\"pattern\": \"a\", \"minLength\": 1}", IG_E_UNSUPPORTED, "'pattern' and a length"},
        {"{\"type\": \"integer\", \"minimum\": 2, \"exclusiveMaximum\": 2}", IG_E_UNSUPPORTED, "no number between"},
        {"{\"type\": \"integer\", \"exclusiveMinimum\": 9223372036854775807}", IG_E_UNSUPPORTED, "no number between"},
        {"{\"type\": \"integer\", \"minimum\": 1e300}", IG_E_UNSUPPORTED, "'minimum' of 1e+300"},
        {"{\"type\": \"number\", \"minimum\": 0.5}", IG_E_UNSUPPORTED, "'minimum' of 0.5"},
        {"{\"type\": \"number\", \"minimum\": 100000000000000}", IG_E_UNSUPPORTED, "bounds of 15 digits"},
        {"{\"type\": \"number\", \"multipleOf\": 0.1}", IG_E_UNSUPPORTED, "'multipleOf'"},
        {"{\"minimum\": \"1\"}", IG_E_FORMAT, "'minimum' is not a number"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_failure(cases[i].schema, strlen(cases[i].schema), cases[i].status, cases[i].why);
}

static void patterns_that_are_no_grammar(void **state) {
    static const char *const patterns[] = {
        "(?=a)",  "(?!a)",     "(?<n>a)",       "(a)\\\\1", "\\\\bword", "\\\\p{L}",     "a**",    "*a",
        "a{2,1}", "a{0}",      "a{x}",          "(a",       "a)",        "[a",           "[]",     "[^]",
        "[b-a]",  "[\\\\d-z]", "a^b",           "a$b",      "(a|^b)",    "(a*)*",        "\\\\cA", "\\\\",
        "\\\\x4", "\\\\uD800", "\\\\u{110000}", "\\\\0",    "[\\\\x01]", "[^\\\\s\\\\S]"};
    (void)state;
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        ig_buffer b = {0};
        ig_buffer_format(&b, "{\"pattern\": \"%s\"}", patterns[i]);
        expect_failure(b.data, b.size, IG_E_UNSUPPORTED, "#: 'pattern': ");
        ig_buffer_close(&b);
    }
}

/* `head`, n times `one` with its number in the place of %d, and `tail`. */
static void expect_many(const char *head, const char *one, int n, const char *tail, ig_status status, const char *why) {
    ig_buffer b = {0};
    ig_buffer_text(&b, head);
    for (int i = 0; i < n; i++) {
        const char *number = strstr(one, "%d");
        ig_buffer_add(&b, one, number ? (size_t)(number - one) : strlen(one));
        if (number) ig_buffer_format(&b, "%d%s", i, number + 2);
    }
    ig_buffer_text(&b, tail);
    assert_false(b.failed);
    if (status)
        expect_failure(b.data, b.size, status, why);
    else {
        char *out;
        assert_int_equal(ig_schema_to_gbnf(&out, b.data, b.size, NULL), IG_OK);
        free(out);
    }
    ig_buffer_close(&b);
}

static void limits(void **state) {
    (void)state;
    expect_many("{\"description\": \"", "aaaaaaaaaaaaaaaa", 1 << 16, "\"}", IG_E_LIMIT, "1 MiB");
    expect_many("", "{\"items\": ", 3000, "", IG_E_FORMAT, "depth");
    expect_many("{\"enum\": [", "[", 3000, "", IG_E_FORMAT, "depth");
    expect_many("{\"properties\": {\"a\": {}", ", \"b%d\": {\"minLength\": 1}", 5000, "}}", IG_E_LIMIT, "4096 schemas");
    expect_many("{\"properties\": {\"a\": {}", ", \"b%d\": {\"minLength\": 1}", 4000, "}}", IG_OK, NULL);
    expect_many("{\"properties\": {\"a\": {}", ", \"b%d\": {}", 60000, "}}", IG_E_LIMIT, "larger than 4 MiB");
    expect_many("{\"properties\": {\"", "aaaaaaaa", 1 << 14, "\": {}}, \"additionalProperties\": true}", IG_E_LIMIT,
                "larger than 4 MiB");
    expect_many("{\"properties\": {\"a\": {}", ", \"b%d\": {\"maxLength\": 9999}", 50, "}}", IG_E_LIMIT, "repetitions");
    expect_many("{\"allOf\": [{}", ", {\"properties\": {\"a%d\": {}}}", 50, "]}", IG_E_LIMIT, "more than 32 schemas");
    expect_many("{\"a\": 0", ", \"x-%d\": 0", 300, "}", IG_E_LIMIT, "200 keywords");
    expect_many("{\"$ref\": \"#/", "aaaaaaaa", 200, "\"}", IG_E_LIMIT, "longer than 1024");
    expect_many("{\"$ref\": \"#/$defs/d0\", \"$defs\": {\"a\": {}", ", \"d%d\": {\"$ref\": \"#/$defs/d\"}", 1, "}}",
                IG_E_FORMAT, "no such thing");
    expect_many("", "{\"anyOf\": [{\"type\": \"null\"}, ", 100, "", IG_E_FORMAT, "schema: line 1");
    expect_many("{\"pattern\": \"", "aaaaaaaa", 1000, "\"}", IG_E_LIMIT, "4096 bytes");
    expect_many("{\"pattern\": \"", "(", 100, "\"}", IG_E_UNSUPPORTED, "so deep a group");
    expect_many("{\"pattern\": \"", "((a{100}){100}){100}", 1, "\"}", IG_E_LIMIT, "repeats more than 10000");
}

static void chains(void **state) {
    ig_buffer refs = {0}, choices = {0}, items = {0};
    char *out;
    (void)state;
    for (int i = 0; i < 3000; i++) {
        const char *head = i ? "" : "{\"$ref\": \"#/$defs/0\", \"$defs\": {\"3000\": {}";
        ig_buffer_format(&refs, "%s, \"%d\": {\"$ref\": \"#/$defs/%d\"}", head, i, i + 1);
        ig_buffer_format(&choices, "%s, \"%d\": {\"anyOf\": [{}, {\"$ref\": \"#/$defs/%d\"}]}", head, i, i + 1);
        ig_buffer_format(&items, "%s, \"%d\": {\"items\": {\"$ref\": \"#/$defs/%d\"}}", head, i, i + 1);
    }
    ig_buffer_text(&refs, "}}");
    ig_buffer_text(&choices, "}}");
    ig_buffer_text(&items, "}}");
    expect_failure(refs.data, refs.size, IG_E_UNSUPPORTED, "over too many others");
    expect_failure(choices.data, choices.size, IG_E_UNSUPPORTED, "too many others in a row");
    assert_int_equal(ig_schema_to_gbnf(&out, items.data, items.size, NULL), IG_OK);
    free(out);
    ig_buffer_close(&refs);
    ig_buffer_close(&choices);
    ig_buffer_close(&items);
}

/* Not all are told: jansson's reader of texts takes some for an error of the text, and values may be longer. */
static void survives_failing_memory(void **state) {
    long n_named = 0;
    static const char schema[] =
        "{\"$defs\": {\"A\": {\"type\": \"object\", \"properties\": {\"a\": {\"pattern\": \"^[a-z]+|b$\"}}}}, "
        "\"properties\":"
        " {\"n\": {\"anyOf\": [{\"type\": \"null\"}, {\"type\": \"integer\", \"minimum\": 1}]}, \"e\": {\"enum\": "
        "[1.5, \"x\"]},"
        " \"m\": {\"allOf\": [{\"$ref\": \"#/$defs/A\"}, {\"required\": [\"a\"]}]}}, \"additionalProperties\": true}";
    (void)state;
#ifndef MEMORY_IS_COUNTED
    skip();
#endif
    for (long fail_at = 0;; fail_at++) {
        ig_error err = {0};
        char *out;
        memory_count_start(fail_at);
        ig_status s = ig_schema_to_gbnf(&out, schema, sizeof schema - 1, &err);
        free(out);
        memory_count_stop();
        assert_int_equal(memory_count.n_taken, memory_count.n_given);
        if (memory_count.fail_at >= 0) { /* there was no such allocation: all have failed once */
            assert_int_equal(s, IG_OK);
            assert_true(fail_at > 100 && n_named > fail_at / 2);
            break;
        }
        n_named += s == IG_E_MEMORY;
    }
}

/* Of strings that grow while they are read or written, nothing is missing where memory fails at any of the steps. */
static void strings_are_whole_or_fail(void **state) {
    (void)state;
#ifndef MEMORY_IS_COUNTED
    skip();
#endif
    for (int n = 1; n <= 140; n += n < 40 ? 1 : 25) {
        char schema[480], *whole, *out;
        char letters[160];
        for (int i = 0; i < n; i++) letters[i] = (char)('a' + i % 26);
        letters[n] = 0;
        snprintf(schema, sizeof schema, "{\"properties\": {\"%s\": {\"const\": \"%s\"}}}", letters, letters);
        ig_error err = {0};
        assert_int_equal(ig_schema_to_gbnf(&whole, schema, strlen(schema), &err), IG_OK);
        for (long fail_at = 0;; fail_at++) {
            memory_count_start(fail_at);
            ig_status s = ig_schema_to_gbnf(&out, schema, strlen(schema), &err);
            memory_count_stop();
            if (!s) assert_string_equal(out, whole);
            if (s) assert_int_equal(s, IG_E_MEMORY);
            if (!s) free(out);
            if (memory_count.fail_at >= 0) break;
        }
        free(whole);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(types_and_values),
        cmocka_unit_test(strings_are_whole_or_fail),
        cmocka_unit_test(objects),
        cmocka_unit_test(further_names),
        cmocka_unit_test(arrays),
        cmocka_unit_test(numbers),
        cmocka_unit_test(numbers_with_zeros),
        cmocka_unit_test(patterns),
        cmocka_unit_test(references),
        cmocka_unit_test(what_is_not_supported_is_refused),
        cmocka_unit_test(patterns_that_are_no_grammar),
        cmocka_unit_test(limits),
        cmocka_unit_test(chains),
        cmocka_unit_test(survives_failing_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
