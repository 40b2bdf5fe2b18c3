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

static void test_amounts(void **state) {
    (void)state;
    static const struct {
        const char *text;
        double share;
        uint64_t number; /* both 0: refused */
    } budgets[] = {{"10%", 0.10, 0}, {"0.25", 0.25, 0},   {"512", 0, 512}, {"1", 0, 1},       {"12.5%", 0.125, 0},
                   {"100%", 1, 0},   {"1.0", 1, 0},       {"1.", 1, 0},    {"1e-3", 1e-3, 0}, {"0", 0, 0},
                   {"-5", 0, 0},     {"101%", 0, 0},      {"1.5", 0, 0},   {"512.0", 0, 0},   {"0.0", 0, 0},
                   {"x", 0, 0},      {"10%%", 0, 0},      {"", 0, 0},      {"nan", 0, 0},     {"inf", 0, 0},
                   {"1e30", 0, 0},   {"5000000000", 0, 0}},
      limits[] = {{"80%", 0.8, 0},   {"0.8", 0.8, 0},     {"1.0", 1, 0}, {"1", 0, 1},    {"512M", 0, 512u << 20},
                  {"1.5K", 0, 1536}, {"1.5KiB", 0, 1536}, {"0", 0, 0},   {"101%", 0, 0}, {"80.5", 0, 0},
                  {"1.5X", 0, 0},    {"%", 0, 0},         {"", 0, 0}};
    ig_cli_options o;
    for (size_t i = 0; i < sizeof budgets / sizeof budgets[0]; i++) {
        bool ok = PARSE(&o, "run", "-m", "M", "--kv-budget", (char *)budgets[i].text);
        if (ok != (budgets[i].share > 0 || budgets[i].number)) fail_msg("--kv-budget '%s'", budgets[i].text);
        if (!ok) continue;
        assert_true(fabs(o.kv_budget.share - budgets[i].share) <= 1e-12);
        assert_int_equal(o.kv_budget.number, budgets[i].number);
    }
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        bool ok = PARSE(&o, "run", "-m", "M", "--kv-limit", (char *)limits[i].text);
        if (ok != (limits[i].share > 0 || limits[i].number)) fail_msg("--kv-limit '%s'", limits[i].text);
        if (!ok) continue;
        assert_true(fabs(o.kv_limit.share - limits[i].share) <= 1e-12);
        assert_int_equal(o.kv_limit.number, limits[i].number);
    }
}

static void test_biases(void **state) {
    (void)state;
    static const char *const wrong[] = {"",      "5",      "5*1",  "-5+1",  "+1",           "a+1",
                                        "5+",    "5+x",    "5+1x", "5+-1",  "4294967296+1", "5+nan",
                                        "5+inf", "5+1e99", " 5+1", "5.5+1", "5 + 1",        "5+ 1"};
    ig_cli_options o;
    assert_true(PARSE(&o, "run", "-m", "M", "--logit-bias", "15043+1.5", "--logit-bias=0-inf", "--logit-bias", "7-2"));
    assert_int_equal(o.logit_bias.n, 3);
    assert_int_equal(o.logit_bias.v[0].id, 15043);
    assert_true(o.logit_bias.v[0].bias == 1.5f);
    assert_true(o.logit_bias.v[1].id == 0 && o.logit_bias.v[1].bias == -INFINITY);
    assert_true(o.logit_bias.v[2].id == 7 && o.logit_bias.v[2].bias == -2);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        if (PARSE(&o, "run", "-m", "M", "--logit-bias", (char *)wrong[i])) fail_msg("--logit-bias '%s'", wrong[i]);
    char *many[4 + 2 * (IG_CLI_BIASES_MAX + 1)] = {"infinigen", "run", "-m", "M"};
    for (int i = 0; i <= IG_CLI_BIASES_MAX; i++) many[4 + 2 * i] = "--logit-bias", many[5 + 2 * i] = "1+1";
    int n = 4 + 2 * IG_CLI_BIASES_MAX;
    assert_true(ig_cli_parse(&o, ig_cli_find_verb("run"), n, many));
    assert_false(ig_cli_parse(&o, ig_cli_find_verb("run"), n + 2, many));
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
        cmocka_unit_test(test_table),   cmocka_unit_test(test_values), cmocka_unit_test(test_positionals),
        cmocka_unit_test(test_amounts), cmocka_unit_test(test_biases), cmocka_unit_test(test_nearest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
