/* SPDX-License-Identifier: Apache-2.0
 *
 * The man page in roff, made from the verb list and the option table:
 * `infinigen man > infinigen.1`.
 */
#define _GNU_SOURCE
#include "cli/cli.h"

#include <string.h>

/* Text with roff's special characters escaped: backslashes, dashes, and a dot or quote at a line's start. */
static void put_text(const char *text) {
    bool line_start = true;
    for (; *text; text++) {
        if (line_start && (*text == '.' || *text == '\'')) fputs("\\&", stdout);
        if (*text == '\\')
            fputs("\\e", stdout);
        else if (*text == '-')
            fputs("\\-", stdout);
        else
            putchar(*text);
        line_start = *text == '\n';
    }
}

static void put_option(const ig_cli_option *row) {
    fputs(".TP\n\\fB", stdout);
    put_text(row->names);
    fputs("\\fR", stdout);
    if (row->arg) {
        fputs(" \\fI", stdout);
        put_text(row->arg);
        fputs("\\fR", stdout);
    }
    putchar('\n');
    put_text(row->help);
    for (const char *const *c = row->choices; c && *c; c++) {
        fputs(c == row->choices ? ": " : ", ", stdout);
        put_text(*c);
    }
    if (ig_cli_is_list(row->kind) && strcmp(row->arg, "LIST") != 0 && !strstr(row->arg, "..."))
        fputs("; several, separated by commas, with perplexity, eval, bench and inspect", stdout);
    if (row->initial) {
        fputs(" (default ", stdout);
        put_text(row->initial);
        fputs(")", stdout);
    }
    fputs(".\n", stdout);
}

/* Paragraphs; indented lines are examples and tables, which stay as they are. */
static void put_details(const char *details) {
    bool is_example = false;
    for (const char *p = details; *p;) {
        size_t n = strcspn(p, "\n");
        char line[512];
        snprintf(line, sizeof line, "%.*s", (int)n, p);
        if (is_example != (line[0] == ' ')) fputs(is_example ? ".fi\n" : ".nf\n", stdout);
        is_example = line[0] == ' ';
        if (n) {
            put_text(line);
            putchar('\n');
        } else {
            fputs(".PP\n", stdout);
        }
        p += n;
        if (*p) p++;
    }
    if (is_example) fputs(".fi\n", stdout);
}

static void put_verb(const ig_cli_verb *v) {
    printf(".SS infinigen %s", v->name);
    for (int k = 0; k < 2 && v->positionals[k]; k++) printf(" [%s]", v->positionals[k]);
    putchar('\n');
    put_text(v->summary);
    fputs(".\n", stdout);
    if (v->details) {
        fputs(".PP\n", stdout);
        put_details(v->details);
    }
    for (const ig_cli_option *row = ig_cli_option_table; row->names; row++)
        if ((row->verbs & v->bit) && row->verbs != IG_VERB_ALL) put_option(row);
}

static void put_policies(void) {
    const ig_policy_info *policy;
    fputs(".SH POLICIES\nThe rules of \\-\\-kv\\-policy that choose the entries which attention uses.\n", stdout);
    for (size_t i = 0; (policy = ig_cache_policy(i)); i++) {
        fputs(".TP\n\\fB", stdout);
        put_text(policy->name);
        fputs("\\fR\n", stdout);
        put_text(policy->help);
        fputs(".\n", stdout);
    }
}

int ig_cli_man(const ig_cli_options *o) {
    (void)o;
    printf(".TH INFINIGEN 1 \"\" \"infinigen %s\" \"User Commands\"\n", ig_version());
    fputs(
        ".SH NAME\ninfinigen \\- large language models whose KV cache outgrows the fast memory\n"
        ".SH SYNOPSIS\n.B infinigen\n\\fIVERB\\fR [\\fIoptions\\fR]\n"
        ".SH DESCRIPTION\n"
        "Runs large language models on the CPU, or on a GPU. A policy keeps the whole KV cache and lets attention "
        "read\n"
        "only the entries that matter for the next token.\n"
        ".PP\nStandard output carries the result. Warnings go to standard error, and progress bars and statistics, "
        "which\n"
        "vanish where that is not a terminal. Ctrl\\-C ends a generation, which still prints its statistics; a second "
        "one ends the\n"
        "program at once.\n"
        ".PP\n\\fIMODEL\\fR is a GGUF file, a Hugging Face directory, or a name that\n.B infinigen fetch\nknows.\n"
        ".SH VERBS\n",
        stdout);
    for (const ig_cli_verb *v = ig_cli_verbs; v->name; v++) put_verb(v);
    put_policies();
    fputs(
        ".SH EXIT STATUS\n0: done. 1: failed, with one line on standard error. 2: usage error. 130: interrupted.\n"
        ".SH ENVIRONMENT\n"
        ".TP\n.B IG_CPU_MASK\nhighest instruction set to use, as \\-\\-cpu: scalar; avx2, avxvnni, avx512, amx "
        "(x86-64); "
        "neon, dotprod, i8mm (aarch64).\n"
        ".TP\n.B IG_LOG\nerror, warn, info or debug: what is logged on standard error, terminal or not.\n"
        ".TP\n.B HF_ENDPOINT\nthe hub of \\-hf, if it is another one.\n"
        ".TP\n.B HF_TOKEN\nthe token that the hub is told; else it is read from the file HF_TOKEN_PATH, or token in "
        "HF_HOME "
        "(default ~/.cache/huggingface).\n"
        ".TP\n.B INFINIGEN_API_KEY\nthe key of infinigen serve, unless there is \\-\\-api\\-key.\n"
        ".TP\n.B XDG_CACHE_HOME\nfetched models and texts are kept in its folder infinigen (default ~/.cache).\n"
        ".TP\n.B XDG_CONFIG_HOME\nits file infinigen/models.txt names further models (default ~/.config).\n"
        ".TP\n.B XDG_STATE_HOME\nthe chat history is kept in its folder infinigen (default ~/.local/state).\n",
        stdout);
    return IG_EXIT_OK;
}
