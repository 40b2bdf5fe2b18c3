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

#include "base/error.h"
#include "cli/llama_flags.h"

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
    assert_int_equal(o.kv_policy.n, 2);
    assert_string_equal(o.kv_policy.v[0], "full");
    assert_int_equal(o.repetitions, 5);
}

static void assert_words(const ig_cli_options *o, const char *wanted) {
    char all[256] = "";
    for (int i = 0; i < o->n_words; i++)
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", i ? " " : "", o->words[i]);
    assert_string_equal(all, wanted);
}

/* What stands alone is the model, or the text if -m names the model; "--" ends the options. */
static void test_positionals(void **state) {
    (void)state;
    ig_cli_options o;
    assert_true(PARSE(&o, "run", "M", "text"));
    assert_string_equal(o.model, "M");
    assert_words(&o, "text");
    assert_true(PARSE(&o, "run", "text", "-m", "M"));
    assert_string_equal(o.model, "M");
    assert_words(&o, "text");
    assert_true(PARSE(&o, "run", "-m", "M", "--", "--raw"));
    assert_words(&o, "--raw");
    assert_false(o.raw);
    assert_true(PARSE(&o, "run", "M", "a", "-n", "3", "b", "c", "d", "e", "f", "g", "--raw", "h", "i"));
    assert_string_equal(o.model, "M");
    assert_words(&o, "a b c d e f g h i");
    assert_true(o.raw && o.predict == 3);
    assert_true(PARSE(&o, "fetch"));
    assert_null(o.rest);
    assert_true(PARSE(&o, "fetch", "M"));
    assert_string_equal(o.rest, "M");
    assert_false(PARSE(&o, "fetch", "M", "N"));
    assert_false(PARSE(&o, "inspect", "M", "N"));
}

static bool same_ints(const ig_cli_ints *list, int n, const int *wanted) {
    return list->n == n && memcmp(list->v, wanted, (size_t)n * sizeof *wanted) == 0;
}

/* As llama-bench has them. */
static void test_ranges(void **state) {
    (void)state;
    ig_cli_options o;
    assert_true(PARSE(&o, "bench", "M", "-p", "128-512+128,7", "-n", "1-3", "-d", "2-20*3"));
    assert_true(same_ints(&o.n_prompt, 5, (int[]){128, 256, 384, 512, 7}));
    assert_true(same_ints(&o.n_gen, 3, (int[]){1, 2, 3}));
    assert_true(same_ints(&o.depth, 3, (int[]){2, 6, 18}));
    static char *const wrong[] = {"1-",    "-1",   "5-2",    "1-9+0", "1-9*1", "0-9*2",
                                  "1-9/2", "1-9+", "1-9+2x", "1-33",  "1-2-3", "1-99999999999"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        if (PARSE(&o, "bench", "M", "-p", wrong[i])) fail_msg("-p '%s'", wrong[i]);
}

/* ---- llama.cpp's flags ---------------------------------------------------------- */

/* Every row can be reached, says what it must, and names options that there are. */
static void test_llama_table(void **state) {
    (void)state;
    for (const ig_cli_llama_flag *flag = ig_cli_llama_flags; flag->names; flag++) {
        const char *rest = flag->names, *name;
        size_t n;
        if (!flag->verbs) { /* a program's name */
            assert_null(strchr(flag->names, '-'));
            continue;
        }
        while ((n = ig_cli_next_name(&name, &rest)) > 0) {
            for (const ig_cli_verb *v = ig_cli_verbs; v->name; v++)
                if ((v->bit & flag->verbs) && ig_cli_find_llama_flag(NULL, name, n, v->bit) != flag)
                    fail_msg("%s: %.*s is there twice", v->name, (int)n, name);
            for (const ig_cli_option *row = ig_cli_option_table; row->names; row++)
                if ((row->verbs & flag->verbs) && ig_cli_has_name(row->names, name, n))
                    fail_msg("%.*s is an option as well", (int)n, name);
        }
        bool always = flag->passed_over && strcmp(flag->passed_over, "*") == 0;
        assert_int_equal(flag->instead == NULL, always || flag->means || flag->offset);
        if (!flag->means) continue;
        for (const ig_cli_verb *v = ig_cli_verbs; v->name; v++) {
            bool found = !(v->bit & flag->verbs);
            for (const ig_cli_option *row = ig_cli_option_table; row->names; row++)
                found |= (row->verbs & v->bit) && ig_cli_has_name(row->names, flag->means, strlen(flag->means));
            if (!found) fail_msg("%s: no %s for %s", v->name, flag->means, flag->names);
        }
    }
}

static void test_llama_flags(void **state) {
    (void)state;
    ig_cli_options o;
    assert_true(PARSE(&o, "run", "-m", "M", "-no-cnv", "-st", "-fa", "on", "-ngl", "0", "-fa", "-nkvo", "-t", "3",
                      "-tb", "3", "-ctk", "q8_0", "-ctv", "q8_0", "--n-gpu-layers=0", "--color", "-bf", "F", "-np",
                      "1"));
    assert_true(o.raw && o.threads == 3 && o.n_words == 0);
    assert_string_equal(o.kv_type.v[0], "q8");
    assert_string_equal(o.file, "F");
    assert_true(
        PARSE(&o, "bench", "M", "-ngl", "0", "-fa", "1", "-ub", "64", "-ctk", "f16", "-ctv", "f16", "-nkvo", "0"));
    assert_int_equal(o.batch, 64);
    assert_true(PARSE(&o, "run", "M", "-fa=on", "-ctk", "f16", "-nkvo", "true", "story"));
    assert_true(o.n_words == 2 && o.batch == 512);
    assert_true(PARSE(&o, "run", "M", "-ub", "1024") && o.batch == 1024);
    assert_true(PARSE(&o, "run", "M", "-ub", "64", "-b", "2048") && o.batch == 64);
    assert_true(PARSE(&o, "run", "M", "-b", "32", "-ub", "512") && o.batch == 32);
    assert_true(PARSE(&o, "run", "M", "-ngl", "0"));
    assert_string_equal(o.device, "cpu");
    static char *const layers[] = {"99", "20", "-1", "all", "auto"};
    for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++) {
        assert_true(PARSE(&o, "run", "M", "-ngl", layers[i]));
        assert_string_equal(o.device, "auto");
        assert_true(PARSE(&o, "run", "M", "-ngl", layers[i], "--device", "cpu"));
        assert_string_equal(o.device, "cpu");
    }
    assert_true(PARSE(&o, "chat", "M", "-cnv", "-i", "--keep", "-1", "--mirostat", "0"));
    static char *const wrong[][3] = {{"-ngl", "2x", NULL},    {"-ctk", "q8_0", NULL}, {"-ctk", "q5_1", NULL},
                                     {"-tb", "2", NULL},      {"-cnv", NULL, NULL},   {"-sysf", "F", NULL},
                                     {"--mlock", NULL, NULL}, {"-np", "2", NULL},     {"-ngl", NULL, NULL},
                                     {"-mli", NULL, NULL},    {"-bs", NULL, NULL},    {"--mirostat", "2", NULL}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        if (PARSE(&o, "run", "M", wrong[i][0], wrong[i][1])) fail_msg("%s", wrong[i][0]);
    assert_false(PARSE(&o, "run", "M", "-t", "4", "-tb", "2"));
    assert_false(PARSE(&o, "run", "M", "-t", "4", "-tb", "4abc"));
    assert_false(PARSE(&o, "run", "M", "-ctk", "q8_0", "-ctv", "f16"));
    assert_false(PARSE(&o, "run", "M", "-ctk", "q8_0", "-ctv", "q8_0", "--kv-type", "q4"));
}

/* What a letter is followed by is its value only if it can be. */
static void test_letters(void **state) {
    (void)state;
    ig_cli_options o;
    assert_true(PARSE(&o, "run", "-mM", "-n-1", "-t4", "-fFILE"));
    assert_true(o.predict == -1 && o.threads == 4);
    assert_string_equal(o.file, "FILE");
    static char *const wrong[] = {"-temp", "-model", "-prompt", "-seed", "-help", "-nab", "-n-predict", "-xyz"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        if (PARSE(&o, "run", "-m", "M", wrong[i])) fail_msg("%s", wrong[i]);
}

static void test_escapes(void **state) {
    (void)state;
    ig_cli_options o;
    char stop[] = "a\\n", system[] = "b\\x41", nul[] = "c\\x00", before[] = "d\\t";
    assert_true(PARSE(&o, "run", "-m", "M", "-r", stop, "-sys", system, "-e"));
    assert_string_equal(o.stops.v[0], "a\n");
    assert_string_equal(o.system, "bA");
    assert_true(PARSE(&o, "chat", "-m", "M", "-e", "-r", before));
    assert_string_equal(o.stops.v[0], "d\t");
    assert_true(PARSE(&o, "chat", "-m", "M", "-r", nul));
    assert_string_equal(o.stops.v[0], "c\\x00");
    assert_false(PARSE(&o, "chat", "-m", "M", "-e", "-r", nul));
}

static void test_empty_values(void **state) {
    (void)state;
    ig_cli_options o;
    static char *const names[] = {"-m", "-f", "-r", "-n", "-c", "--kv-trace", "--kv-policy", "--temp", "--kv-ram"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (PARSE(&o, "run", "M", names[i], "")) fail_msg("%s ''", names[i]);
    assert_true(PARSE(&o, "run", "M", "-sys", "", "-p", "")); /* a text may be empty */
}

static void test_amounts(void **state) {
    (void)state;
    static const struct {
        const char *text;
        double share;
        uint64_t number; /* both 0: refused */
    } budgets[] = {{"10%", 0.10, 0}, {"0.25", 0.25, 0},    {"512", 0, 512}, {"1", 0, 1},       {"12.5%", 0.125, 0},
                   {"100%", 1, 0},   {"1.0", 1, 0},        {"1.", 1, 0},    {"1e-3", 1e-3, 0}, {"0", 0, 0},
                   {"-5", 0, 0},     {"101%", 0, 0},       {"1.5", 0, 0},   {"512.0", 0, 0},   {"0.0", 0, 0},
                   {"x", 0, 0},      {"10%%", 0, 0},       {"", 0, 0},      {"nan", 0, 0},     {"inf", 0, 0},
                   {"1e30", 0, 0},   {"5000000000", 0, 0}, {"1E-1", 0.1, 0}},
      limits[] = {{"80%", 0.8, 0},   {"0.8", 0.8, 0},     {"1.0", 1, 0}, {"1", 0, 1},    {"512M", 0, 512u << 20},
                  {"1.5K", 0, 1536}, {"1.5KiB", 0, 1536}, {"0", 0, 0},   {"101%", 0, 0}, {"80.5", 0, 0},
                  {"1.5X", 0, 0},    {"%", 0, 0},         {"", 0, 0}};
    ig_cli_options o;
    for (size_t i = 0; i < sizeof budgets / sizeof budgets[0]; i++) {
        bool ok = PARSE(&o, "run", "-m", "M", "--kv-budget", (char *)budgets[i].text);
        if (ok != (budgets[i].share > 0 || budgets[i].number)) fail_msg("--kv-budget '%s'", budgets[i].text);
        if (!ok) continue;
        assert_true(fabs(o.kv_budget.v[0].share - budgets[i].share) <= 1e-12);
        assert_int_equal(o.kv_budget.v[0].number, budgets[i].number);
    }
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        bool ok = PARSE(&o, "run", "-m", "M", "--kv-limit", (char *)limits[i].text);
        if (ok != (limits[i].share > 0 || limits[i].number)) fail_msg("--kv-limit '%s'", limits[i].text);
        if (!ok) continue;
        assert_true(fabs(o.kv_limit.v[0].share - limits[i].share) <= 1e-12);
        assert_int_equal(o.kv_limit.v[0].number, limits[i].number);
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

/* The size that an error asks for is enough when it is given back, and not much more. */
static void test_sizes_of_errors(void **state) {
    (void)state;
    uint64_t cases[400] = {1, 1000, 1024, 1025, 35840000, 36175872, UINT64_MAX >> 4};
    size_t n = 7;
    for (uint64_t x = 3; n < 400 && x < UINT64_MAX >> 5; x = x * 9 / 7 + 1) cases[n++] = x;
    for (size_t i = 0; i < n; i++) {
        char text[64], size[64];
        ig_cli_options o;
        unsigned long long bytes;
        assert_int_equal(sscanf(ig_bytes_text(text, cases[i]), "%llu bytes (%63[^)])", &bytes, size), 2);
        assert_true(bytes == cases[i]);
        if (!PARSE(&o, "run", "-m", "M", "--kv-ram", size) || o.kv_ram < bytes ||
            (double)o.kv_ram > 1.1 * (double)bytes + 1024)
            fail_msg("%s", text);
    }
    char text[64];
    assert_string_equal(ig_bytes_text(text, 35840000), "35840000 bytes (34.2M)");
    assert_string_equal(ig_bytes_text(text, 3 << 20), "3145728 bytes (3.0M)");
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
        cmocka_unit_test(test_table),           cmocka_unit_test(test_values),  cmocka_unit_test(test_positionals),
        cmocka_unit_test(test_amounts),         cmocka_unit_test(test_biases),  cmocka_unit_test(test_nearest),
        cmocka_unit_test(test_sizes_of_errors), cmocka_unit_test(test_ranges),  cmocka_unit_test(test_llama_table),
        cmocka_unit_test(test_llama_flags),     cmocka_unit_test(test_letters), cmocka_unit_test(test_escapes),
        cmocka_unit_test(test_empty_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
