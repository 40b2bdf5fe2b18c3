/* SPDX-License-Identifier: Apache-2.0
 *
 * The command line: every row of the option table is sound, defaults and
 * values arrive where they belong, and shares and lists are read rightly.
 */
#define _GNU_SOURCE
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "cli/cli.h"

/* Parses "verb word word ...", NULL-terminated. */
static bool parse(ig_cli_options *o, char **argv) {
    int argc = 0;
    while (argv[argc]) argc++;
    const ig_cli_verb *verb = ig_cli_find_verb(argv[1]);
    assert_non_null(verb);
    return ig_cli_parse(o, verb, argc, argv);
}

#define PARSE(o, ...) parse(o, (char *[]){"infinigen", __VA_ARGS__, NULL})

/* No verb has two options of one name, and all defaults are read. */
static void test_table(void **state) {
    (void)state;
    for (const ig_cli_verb *v = ig_cli_verbs; v->name; v++) {
        ig_cli_options o;
        assert_true(ig_cli_parse(&o, v, 3, (char *[]){"infinigen", (char *)v->name, "--help", NULL}));
        for (const ig_cli_option *a = ig_cli_option_table; a->names; a++)
            for (const ig_cli_option *b = a + 1; b->names; b++) {
                if (!(a->verbs & b->verbs & v->bit)) continue;
                char names[256], others[256], *rest = NULL;
                snprintf(names, sizeof names, "%s", a->names);
                snprintf(others, sizeof others, ", %s,", b->names);
                for (char *name = strtok_r(names, ", ", &rest); name; name = strtok_r(NULL, ", ", &rest)) {
                    char wanted[80];
                    snprintf(wanted, sizeof wanted, " %s,", name);
                    if (strstr(others, wanted)) fail_msg("%s: %s is there twice", v->name, name);
                }
            }
    }
    for (const ig_cli_option *row = ig_cli_option_table; row->names; row++) {
        assert_true(row->verbs != 0 && row->help[0]);
        assert_int_equal(row->kind == IG_KIND_FLAG, row->arg == NULL);
        assert_int_equal(row->kind == IG_KIND_CHOICE || row->kind == IG_KIND_CHOICES, row->choices != NULL);
    }
}

static void test_values(void **state) {
    (void)state;
    ig_cli_options o;
    assert_true(PARSE(&o, "run", "-m", "M", "-p", "-text", "-n", "-1", "-t4", "--top-k=7", "--temperature", "0",
                      "--stop", "a", "-r", "b", "--raw"));
    assert_string_equal(o.model, "M");
    assert_string_equal(o.prompt, "-text");
    assert_int_equal(o.predict, -1);
    assert_int_equal(o.threads, 4);
    assert_int_equal(o.top_k, 7);
    assert_true(o.temperature == 0 && o.top_p == 0.95 && o.min_p == 0.05);
    assert_int_equal(o.stops.n, 2);
    assert_string_equal(o.stops.v[1], "b");
    assert_true(o.raw && !o.json);
    assert_int_equal(o.seed, -1);

    assert_true(PARSE(&o, "bench", "M", "-p", "0,128", "-b", "1,8,3", "--kv-policy", "full,infinigen"));
    assert_string_equal(o.model, "M");
    assert_int_equal(o.n_prompt.n, 2);
    assert_int_equal(o.batches.v[1], 8);
    assert_int_equal(o.policies.n, 2);
    assert_string_equal(o.policies.v[0], "full");
    assert_int_equal(o.repetitions, 5);
}

/* What stands alone is the model, or the text if -m names the model; "--" ends the options. */
static void test_positionals(void **state) {
    (void)state;
    ig_cli_options o;
    assert_true(PARSE(&o, "run", "M", "text"));
    assert_string_equal(o.model, "M");
    assert_string_equal(o.rest[1], "text");
    assert_true(PARSE(&o, "run", "text", "-m", "M"));
    assert_string_equal(o.model, "M");
    assert_string_equal(o.rest[1], "text");
    assert_true(PARSE(&o, "run", "-m", "M", "--", "--raw"));
    assert_string_equal(o.rest[1], "--raw");
    assert_false(o.raw);
    assert_true(PARSE(&o, "fetch"));
    assert_null(o.rest[0]);
}

static void test_shares(void **state) {
    (void)state;
    static const struct {
        const char *text;
        double value; /* < 0: refused */
    } cases[] = {{"10%", 0.10}, {"0.25", 0.25}, {"512", 512}, {"1", 1.5},  {"12.5%", 0.125}, {"100%", 1},
                 {"0", -1},     {"-5", -1},     {"101%", -1}, {"1.5", -1}, {"x", -1},        {"10%%", -1},
                 {"", -1},      {"nan", -1},    {"inf", -1},  {"1e30", -1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ig_cli_options o;
        bool ok = PARSE(&o, "run", "-m", "M", "--kv-budget", (char *)cases[i].text);
        if (ok != (cases[i].value >= 0)) fail_msg("--kv-budget '%s'", cases[i].text);
        if (ok) assert_true(fabs(o.kv_budget - cases[i].value) <= 1e-12);
    }
}

static void test_nearest(void **state) {
    (void)state;
    static const char *const names[] = {"run", "perplexity", "tokenize", NULL};
    assert_string_equal(ig_cli_nearest("rnu", names), "run");
    assert_string_equal(ig_cli_nearest("perp", names), "perplexity");
    assert_string_equal(ig_cli_nearest("tokenise", names), "tokenize");
    assert_null(ig_cli_nearest("serve", names));
}

int main(void) {
    ig_cli_open_options();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),  cmocka_unit_test(test_values),  cmocka_unit_test(test_positionals),
        cmocka_unit_test(test_shares), cmocka_unit_test(test_nearest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
