/* SPDX-License-Identifier: Apache-2.0
 *
 * Help texts, made from the verb list and the option table.
 */
#define _GNU_SOURCE
#include "cli/cli.h"

#include <string.h>

enum { HELP_COLUMN = 34, HELP_WIDTH = 100 };

/* Prints `text` wrapped, with continuation lines indented to `column`; the cursor stands at `column`. */
static void print_wrapped(FILE *f, const char *text, int column) {
    int at = column;
    while (*text) {
        size_t n = strcspn(text, " \n");
        if (at > column && at + 1 + (int)n > HELP_WIDTH) {
            fprintf(f, "\n%*s", column, "");
            at = column;
        } else if (at > column) {
            fputc(' ', f);
            at++;
        }
        fprintf(f, "%.*s", (int)n, text);
        at += (int)n;
        text += n;
        if (*text == '\n') {
            fprintf(f, "\n%*s", column, "");
            at = column;
        }
        if (*text) text++;
    }
    fputc('\n', f);
}

static void print_option(FILE *f, const ig_cli_option *row, const ig_cli_verb *verb) {
    char left[160], text[512];
    size_t n = 0;
    bool has_letter = row->names[1] != '-';
    bool list = ig_cli_is_list(row->kind) && (verb->bit & IG_VERB_LISTS) && strcmp(row->arg, "LIST") &&
                !strstr(row->arg, "...");
    n = (size_t)snprintf(left, sizeof left, "  %s%s%s%s%s", has_letter ? "" : "    ", row->names, row->arg ? " " : "",
                         row->arg ? row->arg : "", list ? ",..." : "");
    size_t used = (size_t)snprintf(text, sizeof text, "%s", row->help);
    if (row->choices) {
        for (const char *const *c = row->choices; *c && used < sizeof text; c++)
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%s%s", c == row->choices ? " {" : "|", *c,
                                     c[1] ? "" : "}");
    }
    if (row->initial && used < sizeof text) snprintf(text + used, sizeof text - used, " [%s]", row->initial);
    if (n + 2 > HELP_COLUMN)
        fprintf(f, "%s\n%*s", left, HELP_COLUMN, "");
    else
        fprintf(f, "%-*s", HELP_COLUMN, left);
    print_wrapped(f, text, HELP_COLUMN);
}

static void print_policies(FILE *f) {
    const ig_policy_info *policy;
    fprintf(f, "\nPolicies:\n");
    for (size_t i = 0; (policy = ig_cache_policy(i)); i++) {
        fprintf(f, "  %-*s", HELP_COLUMN - 2, policy->name);
        print_wrapped(f, policy->help, HELP_COLUMN);
    }
}

static void print_verb_help(FILE *f, const ig_cli_verb *verb) {
    fprintf(f, "Usage: infinigen %s", verb->name);
    bool needs_model = verb->bit & IG_VERB_NEEDS_MODEL;
    if (needs_model) fprintf(f, " -m");
    for (int k = 0; k < 2 && verb->positionals[k]; k++)
        fprintf(f, k || !needs_model ? " [%s]" : " %s", verb->positionals[k]);
    fprintf(f, " [options]\n\n%s.\n", verb->summary);
    if (verb->details) fprintf(f, "\n%s\n", verb->details);
    fprintf(f, "\nOptions:\n");
    bool has_policies = false;
    for (const ig_cli_option *row = ig_cli_option_table; row->names; row++) {
        if (!(row->verbs & verb->bit)) continue;
        print_option(f, row, verb);
        has_policies = has_policies || !strcmp(row->names, "--kv-policy");
    }
    if (has_policies) print_policies(f);
}

void ig_cli_print_help(FILE *f, const ig_cli_verb *verb) {
    if (verb) {
        print_verb_help(f, verb);
        return;
    }
    fprintf(f,
            "infinigen %s: large language models whose KV cache outgrows the fast memory\n\n"
            "Usage: infinigen VERB [options]\n\nVerbs:\n",
            ig_version());
    for (const ig_cli_verb *v = ig_cli_verbs; v->name; v++) fprintf(f, "  %-12s %s\n", v->name, v->summary);
    fprintf(f,
            "\n'infinigen VERB --help' shows the options of a verb. Try:\n\n"
            "  infinigen run -m smollm2-135m -p \"What is a cache?\"\n"
            "  infinigen chat -m smollm2-135m\n");
}
