/* SPDX-License-Identifier: Apache-2.0
 *
 * Shell completion for bash, zsh and fish, made from the verb list and the
 * option table: verbs, then the verb's options, then what can follow an
 * option, or come first: the values of a fixed set, also within a comma list,
 * models by name, files, or nothing. The names of models and texts are those
 * that `infinigen fetch` lists at that moment: texts in rows that begin with
 * --text, models in all others.
 */
#define _GNU_SOURCE
#include "cli/cli.h"

#include <string.h>

/* Verbs whose first word is one of a few. */
static const char shells[] = "bash zsh fish", actions[] = "ls verify gc rm";

/* ---- what can follow ---------------------------------------------------------- */

typedef enum follower { FOLLOW_NOTHING, FOLLOW_CHOICE, FOLLOW_LIST, FOLLOW_FILE, FOLLOW_MODEL } follower;

static follower follower_of(const ig_cli_option *row) {
    if (row->choices) return row->kind == IG_KIND_CHOICES ? FOLLOW_LIST : FOLLOW_CHOICE;
    if (strcmp(row->arg, "MODEL") == 0) return FOLLOW_MODEL;
    return strstr(row->arg, "FILE") || strcmp(row->arg, "DIR") == 0 ? FOLLOW_FILE : FOLLOW_NOTHING;
}

static bool starts_with(const ig_cli_verb *v, const char *positional) {
    return v->positionals[0] && strcmp(v->positionals[0], positional) == 0;
}

/* ---- pieces of text ------------------------------------------------------------ */

static void put_choices(const ig_cli_option *row) {
    for (const char *const *c = row->choices; *c; c++) printf("%s%s", c == row->choices ? "" : " ", *c);
}

static void put_verb_names(void) {
    for (const ig_cli_verb *v = ig_cli_verbs; v->name; v++) printf("%s%s", v == ig_cli_verbs ? "" : " ", v->name);
}

/* Text inside single quotes; each of `special` gets a backslash. */
static void put_quoted(const char *text, const char *special, const char *quote) {
    for (; *text; text++) {
        if (*text == '\'') {
            fputs(quote, stdout);
            continue;
        }
        if (strchr(special, *text)) putchar('\\');
        putchar(*text);
    }
}

/* ---- bash ----------------------------------------------------------------------- */

/* " -m --model ..." of the options of a verb, all or those with a value. */
static void put_bash_names(const ig_cli_verb *v, bool with_value) {
    for (const ig_cli_option *row = ig_cli_option_table; row->names; row++) {
        const char *rest = row->names, *name;
        size_t n;
        while ((row->verbs & v->bit) && (row->arg || !with_value) && (n = ig_cli_next_name(&name, &rest)) > 0)
            printf(" %.*s", (int)n, name);
    }
}

/* A case for each option with a value: 'run --kv-policy'|'chat --kv-policy') values='...' ;; */
static void put_bash_case(const ig_cli_option *row) {
    const char *separator = "    ";
    for (const ig_cli_verb *v = ig_cli_verbs; v->name; v++) {
        const char *rest = row->names, *name;
        size_t n;
        while ((row->verbs & v->bit) && (n = ig_cli_next_name(&name, &rest)) > 0) {
            printf("%s'%s %.*s'", separator, v->name, (int)n, name);
            separator = "|";
        }
    }
    fputs(") ", stdout);
    follower f = follower_of(row);
    if (row->choices) {
        printf("%svalues='", f == FOLLOW_LIST ? "list=1 " : "");
        put_choices(row);
        fputs("' ", stdout);
    }
    if (f == FOLLOW_MODEL) fputs("values=$(_infinigen_models) ", stdout);
    if (f == FOLLOW_MODEL || f == FOLLOW_FILE) fputs("files=1 ", stdout);
    fputs(";;\n", stdout);
}

static const char bash_head[] =
    "_infinigen_rows() { \"${COMP_WORDS[0]}\" fetch 2> /dev/null; }\n"
    "_infinigen_models() { _infinigen_rows | sed '/^-/d; s/ .*//'; }\n"
    "_infinigen_texts() { _infinigen_rows | sed -n 's/^--text \\([^ ]*\\).*/\\1/p'; }\n"
    "_infinigen() {\n"
    "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} verb=${COMP_WORDS[1]}\n"
    "    local prefix= values= options= takes= list= files= words=0 i\n"
    "    COMPREPLY=()\n"
    "    case $verb in\n";

/* The shell takes --name=value apart at the sign, unless COMP_WORDBREAKS was changed. */
static const char bash_split[] =
    "    esac\n"
    "    if [[ $word == = ]]; then\n"
    "        word=\n"
    "    elif [[ $before == = ]]; then\n"
    "        before=${COMP_WORDS[COMP_CWORD-2]}\n"
    "    elif [[ $word == --*=* ]]; then\n"
    "        before=${word%%=*} prefix=${word%%=*}= word=${word#*=}\n"
    "    fi\n"
    "    for ((i = 2; i < COMP_CWORD; i++)); do\n"
    "        case ${COMP_WORDS[i]} in\n"
    "        -m|--model) words=1 ;;\n"
    "        -*) ;;\n"
    "        *) ((words++)) ;;\n"
    "        esac\n"
    "        [[ $takes == *\" ${COMP_WORDS[i]} \"* ]] || continue\n"
    "        [[ ${COMP_WORDS[i+1]} == = ]] && ((i++))\n"
    "        ((i++))\n"
    "    done\n"
    "    case \"$verb $before\" in\n";

static const char bash_tail[] =
    "    esac\n"
    "    if [[ $list && $word == *,* ]]; then\n"
    "        prefix+=${word%,*}, word=${word##*,}\n"
    "    fi\n"
    "    COMPREPLY=($(compgen -P \"$prefix\" -W \"$values\" -- \"$word\"))\n"
    "    local IFS=$'\\n'\n"
    "    [[ $files ]] && COMPREPLY+=($(compgen -P \"$prefix\" -f -- \"$word\"))\n"
    "}\n"
    "complete -o filenames -F _infinigen infinigen\n";

static void put_bash(void) {
    fputs(bash_head, stdout);
    for (const ig_cli_verb *v = ig_cli_verbs; v->name; v++) {
        printf("    %s) options='", v->name);
        put_bash_names(v, false);
        fputs("' takes='", stdout);
        put_bash_names(v, true);
        fputs(" ' ;;\n", stdout);
    }
    fputs(bash_split, stdout);
    for (const ig_cli_option *row = ig_cli_option_table; row->names; row++)
        if (row->arg) put_bash_case(row);
    fputs("    *)\n        if ((COMP_CWORD == 1)); then\n            values='", stdout);
    put_verb_names();
    fputs(
        " --help --version'\n        elif [[ $word == -* ]]; then\n            values=$options\n"
        "        elif ((words == 0)); then\n            case $verb in\n",
        stdout);
    for (const ig_cli_verb *v = ig_cli_verbs; v->name; v++)
        if (starts_with(v, "MODEL")) printf("            %s) values=$(_infinigen_models) files=1 ;;\n", v->name);
    fputs("            fetch) values=$([[ \" ${COMP_WORDS[*]} \" == *\" --text \"* ]] && _infinigen_texts ||\n",
          stdout);
    fputs("                _infinigen_models) ;;\n", stdout);
    printf("            completion) values='%s' ;;\n", shells);
    printf("            kv) values='%s' ;;\n", actions);
    fputs("            help) values='", stdout);
    put_verb_names();
    fputs("' ;;\n            esac\n        fi ;;\n", stdout);
    fputs(bash_tail, stdout);
}

/* ---- zsh ------------------------------------------------------------------------ */

static void put_zsh_action(const ig_cli_option *row) {
    switch (follower_of(row)) {
        case FOLLOW_CHOICE:
            putchar('(');
            put_choices(row);
            putchar(')');
            break;
        case FOLLOW_LIST:
            printf("_values -s , %s ", row->arg);
            put_choices(row);
            break;
        case FOLLOW_FILE:
            fputs("_files", stdout);
            break;
        case FOLLOW_MODEL:
            fputs("_infinigen_models", stdout);
            break;
        case FOLLOW_NOTHING:
            putchar(' ');
    }
}

/* An _arguments line for each spelling: --name=VALUE, -xVALUE. With -m the first word is no model. */
static void put_zsh_option(const ig_cli_option *row) {
    const char *rest = row->names, *name;
    size_t n;
    while ((n = ig_cli_next_name(&name, &rest)) > 0) {
        bool is_model = row->arg && follower_of(row) == FOLLOW_MODEL;
        const char *joined = !row->arg ? "" : name[1] == '-' ? "=" : n == 2 ? "+" : "";
        printf("            '%s%s%.*s%s[", row->kind == IG_KIND_TEXTS ? "*" : "", is_model ? "(1)" : "", (int)n, name,
               joined);
        put_quoted(row->help, "[]:\\", "'\\''");
        putchar(']');
        if (row->arg) {
            putchar(':');
            put_quoted(row->arg, "[]:\\", "'\\''");
            putchar(':');
            put_zsh_action(row);
        }
        fputs("' \\\n", stdout);
    }
}

static void put_zsh_positionals(const ig_cli_verb *v) {
    if (starts_with(v, "MODEL"))
        fputs("            '1:model:_infinigen_models' '*:text: '\n", stdout);
    else if (starts_with(v, "NAME"))
        fputs("            '1:name:_infinigen_names'\n", stdout);
    else if (starts_with(v, "SHELL"))
        printf("            '1:shell:(%s)'\n", shells);
    else if (starts_with(v, "ACTION"))
        printf("            '1:action:(%s)' '*:id: '\n", actions);
    else if (starts_with(v, "VERB")) {
        fputs("            '1:verb:(", stdout);
        put_verb_names();
        fputs(")'\n", stdout);
    } else {
        fputs("            '*: : '\n", stdout);
    }
}

static const char zsh_head[] =
    "#compdef infinigen\n"
    "_infinigen_names() {\n"
    "    local -a rows names\n"
    "    rows=(${(f)\"$(_call_program models ${(q)program} fetch 2> /dev/null)\"})\n"
    "    names=(${${rows:#-*}%% *})\n"
    "    [[ $verb == fetch && -n ${words[(r)--text]} ]] && names=(${${${(M)rows:#--text *}#--text }%% *})\n"
    "    compadd \"$@\" -a names\n"
    "}\n"
    "_infinigen_models() { _alternative 'names:model:_infinigen_names' 'files:file:_files' }\n"
    "_infinigen() {\n"
    "    local program=$words[1] verb=$words[2]\n"
    "    if (( CURRENT == 2 )); then\n"
    "        local -a verbs\n"
    "        verbs=(\n";

/* As a file of $fpath this is the body of the function when it is first called; sourced, it registers it. */
static const char zsh_tail[] =
    "    esac\n"
    "}\n"
    "if [[ $funcstack[1] == _infinigen ]]; then\n"
    "    _infinigen \"$@\"\n"
    "else\n"
    "    (( $+functions[compdef] )) || { autoload -Uz compinit && compinit }\n"
    "    compdef _infinigen infinigen\n"
    "fi\n";

static void put_zsh(void) {
    fputs(zsh_head, stdout);
    for (const ig_cli_verb *v = ig_cli_verbs; v->name; v++) {
        printf("            '%s:", v->name);
        put_quoted(v->summary, ":\\", "'\\''");
        fputs("'\n", stdout);
    }
    fputs(
        "        )\n        _describe verb verbs\n        return\n    fi\n    shift words\n    (( CURRENT-- ))\n"
        "    case $verb in\n",
        stdout);
    for (const ig_cli_verb *v = ig_cli_verbs; v->name; v++) {
        printf("    %s)\n        _arguments \\\n", v->name);
        for (const ig_cli_option *row = ig_cli_option_table; row->names; row++)
            if (row->verbs & v->bit) put_zsh_option(row);
        put_zsh_positionals(v);
        fputs("        ;;\n", stdout);
    }
    fputs(zsh_tail, stdout);
}

/* ---- fish ----------------------------------------------------------------------- */

static const char fish_head[] =
    "function __infinigen_rows\n"
    "    set -l words (commandline -opc)\n"
    "    command $words[1] fetch 2> /dev/null\n"
    "end\n"
    "function __infinigen_models\n"
    "    __infinigen_rows | string match -v -- '-*' | string replace -r ' .*' ''\n"
    "end\n"
    "function __infinigen_texts\n"
    "    __infinigen_rows | string replace -fr -- '^--text ([^ ]*).*' '$1'\n"
    "end\n"
    "function __infinigen_list\n"
    "    set -l before (commandline -ct | string replace -r '^-.*=' '' | string replace -r '[^,]*$' '')\n"
    "    printf '%s\\n' \"$before\"$argv\n"
    "end\n"
    "complete -c infinigen -n __fish_use_subcommand -f\n";

static void put_fish_option(const ig_cli_verb *v, const ig_cli_option *row) {
    const char *rest = row->names, *name;
    size_t n;
    printf("complete -c infinigen -n '__fish_seen_subcommand_from %s'", v->name);
    while ((n = ig_cli_next_name(&name, &rest)) > 0) {
        if (strncmp(name, "--", 2) == 0)
            printf(" -l %.*s", (int)n - 2, name + 2);
        else
            printf(" -%c %.*s", n == 2 ? 's' : 'o', (int)n - 1, name + 1);
    }
    follower f = row->arg ? follower_of(row) : FOLLOW_NOTHING;
    if (row->arg) fputs(f == FOLLOW_FILE || f == FOLLOW_MODEL ? " -r -F" : " -x", stdout);
    if (f == FOLLOW_MODEL) fputs(" -a '(__infinigen_models)'", stdout);
    if (row->choices) {
        fputs(f == FOLLOW_LIST ? " -a '(__infinigen_list " : " -a '", stdout);
        put_choices(row);
        fputs(f == FOLLOW_LIST ? ")'" : "'", stdout);
    }
    fputs(" -d '", stdout);
    put_quoted(row->help, "\\", "\\'");
    fputs("'\n", stdout);
}

static void put_fish_positionals(const ig_cli_verb *v) {
    printf("complete -c infinigen -n '__fish_seen_subcommand_from %s", v->name);
    if (starts_with(v, "MODEL"))
        fputs("; and not __fish_contains_opt -s m model' -a '(__infinigen_models)'\n", stdout);
    else if (starts_with(v, "NAME"))
        fputs(
            "; and not __fish_contains_opt text' -f -a '(__infinigen_models)'\n"
            "complete -c infinigen -n '__fish_seen_subcommand_from fetch; and __fish_contains_opt text' -f "
            "-a '(__infinigen_texts)'\n",
            stdout);
    else if (starts_with(v, "SHELL"))
        printf("' -f -a '%s'\n", shells);
    else if (starts_with(v, "ACTION"))
        printf("' -f -a '%s'\n", actions);
    else if (starts_with(v, "VERB")) {
        fputs("' -f -a '", stdout);
        put_verb_names();
        fputs("'\n", stdout);
    } else {
        fputs("' -f\n", stdout);
    }
}

static void put_fish(void) {
    fputs(fish_head, stdout);
    for (const ig_cli_verb *v = ig_cli_verbs; v->name; v++) {
        printf("complete -c infinigen -n __fish_use_subcommand -f -a %s -d '", v->name);
        put_quoted(v->summary, "\\", "\\'");
        fputs("'\n", stdout);
    }
    for (const ig_cli_verb *v = ig_cli_verbs; v->name; v++) {
        put_fish_positionals(v);
        for (const ig_cli_option *row = ig_cli_option_table; row->names; row++)
            if (row->verbs & v->bit) put_fish_option(v, row);
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
