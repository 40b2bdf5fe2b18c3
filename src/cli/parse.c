/* SPDX-License-Identifier: Apache-2.0
 *
 * Command line to ig_cli_options, driven by the option table. Accepts
 * `--name VALUE`, `--name=VALUE`, `-x VALUE`, `-xVALUE`, and `--` before
 * positional arguments. A value may begin with a dash (`-n -1`); values.c reads it.
 * What is wrong is said in one line.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "cli/llama_flags.h"
#include "cli/values.h"

size_t ig_cli_next_name(const char **start, const char **names) {
    const char *p = *names;
    while (*p == ',' || *p == ' ') p++;
    size_t n = strcspn(p, ",");
    *start = p;
    *names = p + n;
    return n;
}

bool ig_cli_has_name(const char *names, const char *name, size_t n_name) {
    const char *start;
    size_t n;
    while ((n = ig_cli_next_name(&start, &names)) > 0)
        if (n == n_name && strncmp(start, name, n) == 0) return true;
    return false;
}

static const ig_cli_option *find_option(const char *name, size_t n_name, unsigned verbs) {
    for (const ig_cli_option *row = ig_cli_option_table; row->names; row++)
        if ((row->verbs & verbs) && ig_cli_has_name(row->names, name, n_name)) return row;
    return NULL;
}

/* ---- suggestions --------------------------------------------------------- */

enum { NEAREST_MAX = 40 };

static int edit_distance(const char *a, const char *b) {
    size_t n = strlen(a), m = strlen(b);
    int row[NEAREST_MAX + 1];
    if (n > NEAREST_MAX || m > NEAREST_MAX) return NEAREST_MAX;
    for (size_t j = 0; j <= m; j++) row[j] = (int)j;
    for (size_t i = 1; i <= n; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= m; j++) {
            int best = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            if (row[j] + 1 < best) best = row[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[m];
}

const char *ig_cli_nearest(const char *typed, const char *const *candidates) {
    const char *best = NULL;
    int best_distance = strlen(typed) < 3 ? 2 : 3;
    for (; *candidates; candidates++) {
        int d = edit_distance(typed, *candidates);
        if (strlen(typed) >= 3 && strncmp(typed, *candidates, strlen(typed)) == 0) d = 1;
        if (d < best_distance) {
            best_distance = d;
            best = *candidates;
        }
    }
    return best;
}

/* The long name of this verb that is nearest to what was typed, without its dashes; NULL if none is near. */
static const char *nearest_name(const ig_cli_verb *verb, const char *typed) {
    static char names[512][64];
    static const char *list[513];
    size_t n = 0, length;
    for (const ig_cli_option *row = ig_cli_option_table; row->names; row++) {
        const char *rest = row->names, *start;
        while ((row->verbs & verb->bit) && (length = ig_cli_next_name(&start, &rest)) > 0) {
            if (n == 512 || strncmp(start, "--", 2) != 0) continue;
            snprintf(names[n], sizeof names[n], "%.*s", (int)length - 2, start + 2);
            list[n] = names[n];
            n++;
        }
    }
    list[n] = NULL;
    return ig_cli_nearest(typed + strspn(typed, "-"), list);
}

/* The option of this verb that has what was typed as one of its values, as -o has json; NULL if none has. */
static const ig_cli_option *option_with_choice(const ig_cli_verb *verb, const char *typed) {
    for (const ig_cli_option *row = ig_cli_option_table; row->names; row++) {
        if (!(row->verbs & verb->bit) || row->kind != IG_KIND_CHOICE) continue;
        for (int i = 0; row->choices[i]; i++)
            if (strcmp(row->choices[i], typed + strspn(typed, "-")) == 0) return row;
    }
    return NULL;
}

/* What is said of an option that this verb does not have: which verbs do, or what may have been meant. */
static void report_unknown_option(const ig_cli_verb *verb, const char *typed) {
    const char *near = NULL;
    unsigned others = 0;
    size_t n = strcspn(typed, "=");
    for (const ig_cli_option *row = ig_cli_option_table; row->names; row++)
        if (ig_cli_has_name(row->names, typed, n)) others |= row->verbs;
    fprintf(stderr, "infinigen %s: ", verb->name);
    if (others) {
        fprintf(stderr, "no option '%.*s' here, only with", (int)n, typed);
        for (const ig_cli_verb *v = ig_cli_verbs; v->name; v++) {
            if (v->bit & others) fprintf(stderr, " %s%s", v->name, (others &= ~v->bit) ? "," : "");
        }
        const ig_cli_option *row = option_with_choice(verb, typed);
        if (row)
            fprintf(stderr, "; did you mean %.*s %s?", (int)strcspn(row->names, ","), row->names,
                    typed + strspn(typed, "-"));
    } else {
        fprintf(stderr, "unknown option '%s'", typed);
        if ((near = nearest_name(verb, typed))) fprintf(stderr, "; did you mean --%s?", near);
    }
    fprintf(stderr, " (see 'infinigen %s --help')\n", verb->name);
}

/* ---- arguments ----------------------------------------------------------- */

/* Whether a value that follows its letter, as in -t4, can be one: -temp is a mistake, not -t with the value "emp". */
static bool may_follow_letter(const ig_cli_option *row, const char *arg, unsigned verbs) {
    char with_dashes[64];
    snprintf(with_dashes, sizeof with_dashes, "-%s", arg);
    if (row->kind == IG_KIND_FLAG || find_option(with_dashes, strlen(with_dashes), verbs)) return false;
    bool is_text = row->kind == IG_KIND_TEXT || row->kind == IG_KIND_TEXTS || row->choices;
    return is_text || strchr("+-.0123456789", arg[2]);
}

/* The option of an argument, the length of its name, and the value in the same argument, or NULL. */
static const ig_cli_option *split_argument(size_t *n, const char **value, const char *arg, unsigned verbs) {
    const char *equals = strchr(arg, '=');
    *n = strlen(arg);
    *value = NULL;
    const ig_cli_option *row = find_option(arg, *n, verbs);
    size_t n_before = equals ? (size_t)(equals - arg) : 0;
    bool is_split = equals && (arg[1] == '-' || find_option(arg, n_before, verbs) ||
                               ig_cli_find_llama_flag(NULL, arg, n_before, verbs));
    if (!row && is_split) {
        *n = n_before;
        *value = equals + 1;
        row = find_option(arg, *n, verbs);
    } else if (!row && arg[1] != '-' && !ig_cli_find_llama_flag(NULL, arg, *n, verbs)) {
        row = find_option(arg, 2, verbs);
        if (row && !may_follow_letter(row, arg, verbs)) row = NULL;
        if (row) *n = 2, *value = arg + 2;
    }
    return row;
}

static bool take_value(ig_cli_options *o, const ig_cli_option *row, const char *name, size_t n, const char *value) {
    char why[IG_CLI_WHY_BYTES] = "";
    ig_cli_culprit wrong = {value, 0};
    /* No file has an empty name, and no text ends with an empty one. */
    bool is_empty = !*value && (row->kind == IG_KIND_TEXTS || (row->kind == IG_KIND_TEXT && strcmp(row->arg, "TEXT")));
    if (is_empty) snprintf(why, sizeof why, "is empty");
    if (!is_empty && ig_cli_set_value(o, row, value, &wrong, why)) return o->has_row[row - ig_cli_option_table] = true;
    fprintf(stderr, "infinigen %s: %.*s: '%.*s' %s", o->verb->name, (int)n, name, (int)wrong.n, wrong.text, why);
    if (strncmp(why, "is not between", 14) == 0) fprintf(stderr, " (%s)", row->help);
    fputc('\n', stderr);
    return false;
}

/* A flag of llama.cpp at argv[*i], whose name is n long. */
static bool take_llama_flag(ig_cli_options *o, const ig_cli_llama_flag *flag, const char *owner, size_t n, int *i,
                            int argc, char **argv) {
    const char *arg = argv[(*i)++], *value = arg[n] == '=' ? arg + n + 1 : NULL;
    bool takes = flag->value == IG_LLAMA_VALUE ||
                 (flag->value == IG_LLAMA_SWITCH && *i < argc && ig_cli_is_switch_value(argv[*i]));
    if (takes && !value && *i < argc) value = argv[(*i)++];
    if (flag->value == IG_LLAMA_VALUE && !value) {
        fprintf(stderr, "infinigen %s: %s needs a value\n", o->verb->name, arg);
        return false;
    }
    if (flag->means)
        return take_value(o, find_option(flag->means, strlen(flag->means), o->verb->bit), arg, n, value ? value : "");
    if (flag->offset) {
        *(const char **)(void *)((char *)o + flag->offset) = value;
        return true;
    }
    if (ig_cli_passes_over(flag, value)) return true;
    fprintf(stderr, "infinigen %s: '%.*s%s%s' is %s's: here %s\n", o->verb->name, (int)n, arg, value ? " " : "",
            value ? value : "", owner, flag->instead);
    return false;
}

/* Long names may be written with underscores, as llama.cpp takes them; in place. */
static void write_dashes(char *arg) {
    size_t n = strncmp(arg, "--", 2) == 0 ? strcspn(arg, "=") : 0;
    for (size_t i = 2; i < n; i++)
        if (arg[i] == '_') arg[i] = '-';
}

/* One option at argv[*i]; moves *i past it and its value. */
static bool take_option(ig_cli_options *o, int *i, int argc, char **argv) {
    const char *arg = argv[*i], *value;
    size_t n;
    write_dashes(argv[*i]);
    const ig_cli_option *row = split_argument(&n, &value, arg, o->verb->bit);
    if (!row) {
        const char *owner = NULL;
        const ig_cli_llama_flag *flag = ig_cli_find_llama_flag(&owner, arg, n, o->verb->bit);
        if (flag) return take_llama_flag(o, flag, owner, n, i, argc, argv);
        report_unknown_option(o->verb, arg);
        return false;
    }
    ++*i;
    if (row->kind == IG_KIND_FLAG && value) {
        fprintf(stderr, "infinigen %s: %.*s takes no value\n", o->verb->name, (int)n, arg);
        return false;
    }
    if (row->kind != IG_KIND_FLAG && !value) {
        if (*i >= argc) {
            fprintf(stderr, "infinigen %s: %s needs a value: %s %s\n", o->verb->name, arg, arg, row->arg);
            return false;
        }
        value = argv[(*i)++];
    }
    return take_value(o, row, arg, n, value ? value : "");
}

/* Gives words to the positionals in their order; one that ends in "..." has all that are left. */
static bool take_words(ig_cli_options *o, char **words, int n) {
    const char *const *names = o->verb->positionals;
    int k = 0;
    for (int i = 0; i < n; i++, k++) {
        if (k < 2 && names[k] && strcmp(names[k], "MODEL") == 0 && o->model) k++;
        if (k >= 2 || !names[k]) {
            fprintf(stderr, "infinigen %s: one argument too many: '%s' (see 'infinigen %s --help')\n", o->verb->name,
                    words[i], o->verb->name);
            return false;
        }
        if (strstr(names[k], "...")) {
            o->words = (const char *const *)words + i;
            o->n_words = n - i;
            return true;
        }
        *(strcmp(names[k], "MODEL") == 0 ? &o->model : &o->rest) = words[i];
    }
    return true;
}

/* Backslash escapes in the texts of an option, in place: argv is the program's own. */
static bool unescape(const ig_cli_options *o, const char *name, const char *const *texts, int n) {
    for (int i = 0; i < n; i++) {
        char *text = (char *)(uintptr_t)texts[i];
        size_t size = text ? ig_cli_unescape(text, strlen(text)) : 0;
        if (!text || strlen(text) == size) continue;
        fprintf(stderr, "infinigen %s: %s: a text cannot hold a zero byte\n", o->verb->name, name);
        return false;
    }
    return true;
}

static bool unescape_texts(const ig_cli_options *o) {
    return unescape(o, "-sys", &o->system, 1) && unescape(o, "-r", o->stops.v, o->stops.n) &&
           unescape(o, "--dry-sequence-breaker", o->dry_breakers.v, o->dry_breakers.n);
}

bool ig_cli_has_settings(const ig_cli_options *o) {
    return o->kv_type.n > 1 || o->kv_alpha.n > 1 || o->kv_partial.n > 1 || o->kv_limit.n > 1 || o->kv_evict.n > 1 ||
           o->kv_sketch.n > 1;
}

static bool has_lists(const ig_cli_options *o) {
    return o->kv_policy.n > 1 || o->kv_budget.n > 1 || ig_cli_has_settings(o) || o->contexts.n > 1;
}

/* The first of the options that say how this program computes, which measuring a server leaves no room for; NULL: none.
 */
static const char *find_of_engine(const ig_cli_options *o) {
    const void *const of_server[] = {&o->server,   &o->clients, &o->shared, &o->api_key,     &o->seed,   &o->model,
                                     &o->n_prompt, &o->n_gen,   &o->format, &o->repetitions, &o->verbose};
    for (const ig_cli_option *row = ig_cli_option_table; row->names; row++) {
        bool is_of_server = !o->has_row[row - ig_cli_option_table];
        for (size_t i = 0; i < sizeof of_server / sizeof *of_server; i++)
            is_of_server |= (const char *)o + row->offset == (const char *)of_server[i];
        if (!is_of_server) return row->names;
    }
    return NULL;
}

/* What options cannot be together, known before a model is looked for. */
static const char *find_conflict(const ig_cli_options *o) {
    if (o->raw && o->chat) return "--raw and --chat exclude each other";
    bool is_reasoning = (o->reasoning_effort && strcmp(o->reasoning_effort, "default") != 0) ||
                        (o->reasoning && strcmp(o->reasoning, "auto") != 0);
    if (o->raw && (o->chat_template || o->template_kwargs || is_reasoning))
        return "--chat-template, --reasoning, --reasoning-effort and --chat-template-kwargs are for a chat template, "
               "which --raw leaves out";
    if (o->raw && o->system) return "--raw gives the text as it is: there is no place for --system in it";
    if (o->kv_limit.n && (o->kv_ram || o->kv_disk))
        return "--kv-limit drops entries for ever, --kv-ram and --kv-disk keep them: give one or the other";
    if (o->device && strcmp(o->device, "cpu") == 0) {
        if (o->kv_map && (!o->kv_ram || o->kv_disk))
            return "--kv-map on the CPU goes with --kv-ram SIZE, without --kv-disk";
        if (o->kv_vram && o->kv_vram != UINT64_MAX)
            return "--kv-vram is for a GPU: leave it out, or give --device cuda";
        if (o->weights_vram) return "--weights-vram is for a GPU: leave it out, or give --device cuda";
    }
    if (o->verb->bit & IG_VERB_SERVE) {
        bool is_of_many =
            ig_cli_is_given(o, &o->models_dir) || ig_cli_is_given(o, &o->models_max) || o->sleep_idle >= 0;
        if (o->model && is_of_many)
            return "--models-dir, --models-max and --sleep-idle-seconds are for a server of several models: with -m it "
                   "has one, which stays in memory";
        if (o->predict == 0) return "-n 0 would leave answers empty: -1 is to the end of the context";
    }
    bool has_load = o->clients.n || o->shared.share > 0 || o->shared.number;
    if ((o->verb->bit & IG_VERB_BENCH) && !o->server && (has_load || o->api_key))
        return "--clients, --shared and --api-key are for a server: give --server URL";
    const char *of_engine = o->server ? find_of_engine(o) : NULL;
    if (of_engine) {
        static char text[160];
        snprintf(text, sizeof text, "--server measures a server as it is: %s is not for it", of_engine);
        return text;
    }
    if (o->kv_trace && has_lists(o)) return "--kv-trace takes one policy and one setting of each kind";
    if (o->audit_keys.n && !o->audit_trace) return "--audit-keys are columns of --audit-trace, which is not given";
    if (o->audit_trace && has_lists(o)) return "--audit-trace takes one policy and one setting of each kind";
    if (o->kv_sketch.n > 1 && !(o->verb->bit & IG_VERB_LISTS)) return "this verb takes one --kv-sketch";
    return NULL;
}

bool ig_cli_is_given(const ig_cli_options *o, const void *value) {
    bool is_given = false;
    for (const ig_cli_option *row = ig_cli_option_table; row->names; row++)
        is_given |= o->has_row[row - ig_cli_option_table] && (const char *)o + row->offset == (const char *)value;
    return is_given;
}

int ig_cli_pass_on(const char **out, const ig_cli_options *o, const void *const *dropped) {
    ig_cli_options scratch = {.verb = o->verb};
    int n_out = 0;
    for (int i = 2, at; (at = i) < o->argc && strcmp(o->argv[i], "--") != 0;) {
        size_t n;
        const char *value;
        const ig_cli_option *row = split_argument(&n, &value, o->argv[i], o->verb->bit);
        if (!take_option(&scratch, &i, o->argc, o->argv)) break; /* it was taken before */
        bool is_kept = true;
        for (size_t d = 0; row && dropped[d]; d++) is_kept = is_kept && (const char *)o + row->offset != dropped[d];
        while (is_kept && at < i) out[n_out++] = o->argv[at++];
    }
    return n_out;
}

bool ig_cli_parse(ig_cli_options *o, const ig_cli_verb *verb, int argc, char **argv) {
    memset(o, 0, sizeof *o);
    o->verb = verb;
    o->argc = argc;
    o->argv = argv;
    char why[IG_CLI_WHY_BYTES];
    ig_cli_culprit wrong;
    for (const ig_cli_option *row = ig_cli_option_table; row->names; row++)
        if ((row->verbs & verb->bit) && row->initial && !ig_cli_set_value(o, row, row->initial, &wrong, why))
            return false;

    /* Options first, so that the meaning of a positional does not depend on whether -m stands before it. */
    int n_words = 0;
    bool only_words = false;
    for (int i = 2; i < argc;) {
        char *arg = argv[i];
        if (!only_words && strcmp(arg, "--") == 0) {
            only_words = true;
            i++;
        } else if (!only_words && arg[0] == '-' && arg[1]) {
            if (!take_option(o, &i, argc, argv)) return false;
        } else {
            argv[2 + n_words++] = arg;
            i++;
        }
    }
    if (o->hub && o->model) {
        fprintf(stderr, "infinigen %s: -m and -hf both name a model: give one\n", verb->name);
        return false;
    }
    if (o->draft_hub && o->draft_model) {
        fprintf(stderr, "infinigen %s: -md and -hfd both name a draft model: give one\n", verb->name);
        return false;
    }
    if (o->hub) o->model = o->hub;
    if (o->draft_hub) o->draft_model = o->draft_hub;
    if (!take_words(o, argv + 2, n_words)) return false;
    if (o->help) return true;
    if (!ig_cli_settle_llama_flags(o) || (o->escape && !unescape_texts(o))) return false;
    const char *conflict = find_conflict(o);
    if (conflict) {
        fprintf(stderr, "infinigen %s: %s\n", verb->name, conflict);
        return false;
    }
    if ((verb->bit & IG_VERB_NEEDS_MODEL) && !o->model && !o->server) {
        fprintf(
            stderr,
            "infinigen %s: no model given: -m MODEL (a file, a directory, or a name from 'infinigen fetch'), or -hf "
            "OWNER/REPO\n",
            verb->name);
        return false;
    }
    return true;
}
