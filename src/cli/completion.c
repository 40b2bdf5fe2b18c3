/* SPDX-License-Identifier: Apache-2.0
 *
 * Shell completion for bash, zsh and fish, made from the verb list and the
 * option table: verbs first, then the verb's options, then the values of
 * options that have a fixed set. Everything else completes to file names.
 */
#define _GNU_SOURCE
#include "cli/cli.h"

#include <string.h>

/* All spellings of an option, blank-separated. */
static void put_names(const char *names) {
    for (const char *p = names; *p; p++)
        if (*p != ',') putchar(*p);
}

static void put_choices(const ig_cli_option *row) {
    for (const char *const *c = row->choices; *c; c++) printf("%s%s", c == row->choices ? "" : " ", *c);
}

/* Text inside single quotes; a quote in it becomes `escape`. */
static void put_quoted(const char *text, const char *escape) {
    for (; *text; text++) {
        if (*text == '\'')
            fputs(escape, stdout);
        else
            putchar(*text);
    }
}

static void put_verb_names(void) {
    for (const ig_cli_verb *v = ig_cli_verbs; v->name; v++) printf("%s%s", v == ig_cli_verbs ? "" : " ", v->name);
}

static void put_bash(void) {
    fputs(
        "_infinigen() {\n    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} "
        "verb=${COMP_WORDS[1]} opts=\n"
        "    COMPREPLY=()\n    if [ \"$COMP_CWORD\" -eq 1 ]; then\n        COMPREPLY=($(compgen -W \"",
        stdout);
    put_verb_names();
    fputs(" --help --version\" -- \"$word\"))\n        return\n    fi\n    case \"$verb $before\" in\n", stdout);
    for (const ig_cli_verb *v = ig_cli_verbs; v->name; v++)
        for (const ig_cli_option *row = ig_cli_option_table; row->names; row++) {
            if (!(row->verbs & v->bit) || !row->choices) continue;
            char name[64];
            ig_cli_option_name(name, row);
            printf("    '%s --%s') COMPREPLY=($(compgen -W \"", v->name, name);
            put_choices(row);
            fputs("\" -- \"$word\")); return ;;\n", stdout);
        }
    fputs(
        "    'completion completion') COMPREPLY=($(compgen -W 'bash zsh fish' -- \"$word\")); return ;;\n"
        "    esac\n    case \"$verb\" in\n",
        stdout);
    for (const ig_cli_verb *v = ig_cli_verbs; v->name; v++) {
        printf("    %s) opts='", v->name);
        for (const ig_cli_option *row = ig_cli_option_table; row->names; row++)
            if (row->verbs & v->bit) {
                put_names(row->names);
                putchar(' ');
            }
        fputs("' ;;\n", stdout);
    }
    fputs(
        "    esac\n    if [[ $word == -* ]]; then\n        COMPREPLY=($(compgen -W \"$opts\" -- \"$word\"))\n"
        "    else\n        COMPREPLY=($(compgen -f -- \"$word\"))\n    fi\n}\n"
        "complete -o filenames -F _infinigen infinigen\n",
        stdout);
}

/* One _arguments line for each spelling. */
static void put_zsh_option(const ig_cli_option *row) {
    const char *p = row->names;
    while (*p) {
        p += strspn(p, ", ");
        size_t n = strcspn(p, ",");
        printf("            '%.*s[", (int)n, p);
        for (const char *h = row->help; *h; h++) {
            if (*h == '\'')
                fputs("'\\''", stdout);
            else if (strchr("[]:\\", *h))
                printf("\\%c", *h);
            else
                putchar(*h);
        }
        putchar(']');
        if (row->arg) {
            printf(":%s:", row->arg);
            if (row->choices) {
                putchar('(');
                put_choices(row);
                putchar(')');
            } else {
                fputs("_files", stdout);
            }
        }
        fputs("' \\\n", stdout);
        p += n;
    }
}

static void put_zsh(void) {
    fputs("#compdef infinigen\n_infinigen() {\n    if (( CURRENT == 2 )); then\n        local -a verbs=(\n", stdout);
    for (const ig_cli_verb *v = ig_cli_verbs; v->name; v++) {
        printf("            '%s:", v->name);
        put_quoted(v->summary, "'\\''");
        fputs("'\n", stdout);
    }
    fputs(
        "        )\n        _describe verb verbs\n        return\n    fi\n    local verb=$words[2]\n    shift words\n"
        "    (( CURRENT-- ))\n    case $verb in\n",
        stdout);
    for (const ig_cli_verb *v = ig_cli_verbs; v->name; v++) {
        printf("    %s)\n        _arguments \\\n", v->name);
        for (const ig_cli_option *row = ig_cli_option_table; row->names; row++)
            if (row->verbs & v->bit) put_zsh_option(row);
        fputs("            '*:file:_files'\n        ;;\n", stdout);
    }
    fputs("    esac\n}\n_infinigen \"$@\"\n", stdout);
}

static void put_fish(void) {
    for (const ig_cli_verb *v = ig_cli_verbs; v->name; v++) {
        printf("complete -c infinigen -n __fish_use_subcommand -f -a %s -d '", v->name);
        put_quoted(v->summary, "\\'");
        fputs("'\n", stdout);
    }
    for (const ig_cli_verb *v = ig_cli_verbs; v->name; v++)
        for (const ig_cli_option *row = ig_cli_option_table; row->names; row++) {
            if (!(row->verbs & v->bit)) continue;
            printf("complete -c infinigen -n '__fish_seen_subcommand_from %s'", v->name);
            const char *p = row->names;
            while (*p) {
                p += strspn(p, ", ");
                size_t n = strcspn(p, ",");
                if (strncmp(p, "--", 2) == 0)
                    printf(" -l %.*s", (int)n - 2, p + 2);
                else
                    printf(" -%c %.*s", n == 2 ? 's' : 'o', (int)n - 1, p + 1);
                p += n;
            }
            if (row->arg) fputs(" -r", stdout);
            if (row->choices) {
                fputs(" -f -a '", stdout);
                put_choices(row);
                putchar('\'');
            }
            fputs(" -d '", stdout);
            for (const char *h = row->help; *h; h++) {
                if (*h == '\'' || *h == '\\') putchar('\\');
                putchar(*h);
            }
            fputs("'\n", stdout);
        }
}

int ig_cli_completion(const ig_cli_options *o) {
    const char *shell = o->rest;
    if (!shell) {
        fprintf(stderr, "infinigen completion: for which shell? bash, zsh or fish\n");
        return IG_EXIT_USAGE;
    }
    if (strcmp(shell, "bash") == 0)
        put_bash();
    else if (strcmp(shell, "zsh") == 0)
        put_zsh();
    else if (strcmp(shell, "fish") == 0)
        put_fish();
    else {
        fprintf(stderr, "infinigen completion: '%s' is not one of bash, zsh, fish\n", shell);
        return IG_EXIT_USAGE;
    }
    return IG_EXIT_OK;
}
