/* SPDX-License-Identifier: Apache-2.0
 *
 * Command line to ig_cli_options, driven by the option table. Accepts
 * `--name VALUE`, `--name=VALUE`, `-x VALUE`, `-xVALUE`, and `--` before
 * positional arguments. A value may begin with a dash (`-n -1`). Every number
 * is checked against the range its row states; what is wrong is said in one
 * line.
 */
#define _GNU_SOURCE
#include "cli/cli.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The most entries that can be asked for: more than any context has. */
static const double count_of_all = 2147483647.0;

/* Returns the length of the next name of a "-m, --model" list and moves *names past it; 0 at the end. */
static size_t next_name(const char **start, const char **names) {
    const char *p = *names;
    while (*p == ',' || *p == ' ') p++;
    size_t n = strcspn(p, ",");
    *start = p;
    *names = p + n;
    return n;
}

void ig_cli_option_name(char name[64], const ig_cli_option *row) {
    const char *rest = row->names, *start;
    size_t n;
    while ((n = next_name(&start, &rest)) > 0 && strncmp(start, "--", 2) != 0) {
    }
    snprintf(name, 64, "%.*s", n > 2 ? (int)n - 2 : 0, start + 2);
}

static const ig_cli_option *find_option(const char *name, size_t n_name, unsigned verbs) {
    for (const ig_cli_option *row = ig_cli_option_table; row->names; row++) {
        if (!(row->verbs & verbs)) continue;
        const char *rest = row->names, *start;
        size_t n;
        while ((n = next_name(&start, &rest)) > 0)
            if (n == n_name && strncmp(start, name, n) == 0) return row;
    }
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

static void suggest_option(const ig_cli_verb *verb, const char *typed) {
    static char names[256][64];
    static const char *list[257];
    size_t n = 0;
    for (const ig_cli_option *row = ig_cli_option_table; row->names && n < 256; row++) {
        if (!(row->verbs & verb->bit)) continue;
        ig_cli_option_name(names[n], row);
        list[n] = names[n];
        n++;
    }
    list[n] = NULL;
    const char *near = ig_cli_nearest(typed + strspn(typed, "-"), list);
    fprintf(stderr, "infinigen %s: unknown option '%s'", verb->name, typed);
    if (near) fprintf(stderr, "; did you mean --%s?", near);
    fprintf(stderr, " (see 'infinigen %s --help')\n", verb->name);
}

/* ---- values -------------------------------------------------------------- */

static bool parse_int(int *out, const char *text, double min, double max, char why[128]) {
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (end == text || *end) {
        snprintf(why, 128, "is not a whole number");
        return false;
    }
    if (errno || (double)v < min || (double)v > max) {
        snprintf(why, 128, "is not between %.0f and %.0f", min, max);
        return false;
    }
    *out = (int)v;
    return true;
}

static bool parse_number(double *out, const char *text, double min, double max, char why[128]) {
    char *end;
    double v = strtod(text, &end);
    if (end == text || *end || !isfinite(v)) {
        snprintf(why, 128, "is not a number");
        return false;
    }
    if (v < min || v > max) {
        snprintf(why, 128, "is not between %g and %g", min, max);
        return false;
    }
    *out = v;
    return true;
}

/* A share has a percent sign or, as reports write it, a decimal point or an exponent: "1" is a number, "1.0" the whole.
 * "1.5G" is a size. */
static bool is_share(const char *text) {
    return strpbrk(text, "%.e") && !isalpha((unsigned char)text[strlen(text) - 1]);
}

static bool parse_amount(ig_cli_amount *out, const char *text, char why[128]) {
    char *end;
    double v = strtod(text, &end);
    bool percent = end != text && *end == '%' && !end[1], share = is_share(text);
    if (end == text || (*end && !percent) || !isfinite(v)) {
        snprintf(why, 128, "is neither a number of tokens nor a share like 10%%");
        return false;
    }
    if (v <= 0 || v > (percent ? 100 : share ? 1 : count_of_all)) {
        snprintf(why, 128, "is out of range: give 1 or more tokens, or a share above 0%% and up to 100%%");
        return false;
    }
    *out = share ? (ig_cli_amount){.share = percent ? v / 100 : v} : (ig_cli_amount){.number = (uint64_t)v};
    return true;
}

/* "4096", "512M", "1.5G", "64MiB" */
static bool parse_size(uint64_t *out, const char *text, char why[128]) {
    static const char units[] = "KMGT";
    char *end;
    double v = strtod(text, &end);
    bool number = end != text && isfinite(v);
    const char *unit = number && *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
    if (unit) {
        v = ldexp(v, 10 * (int)(unit - units + 1));
        end++;
        if (*end == 'i') end++;
    }
    if (*end == 'B' || *end == 'b') end++;
    if (!number || *end) {
        snprintf(why, 128, "is not a size such as 512M or 2G");
        return false;
    }
    if (v < 1 || v >= 0x1p62) {
        snprintf(why, 128, "is out of range");
        return false;
    }
    *out = (uint64_t)v;
    return true;
}

static bool parse_limit(ig_cli_amount *out, const char *text, char why[128]) {
    *out = (ig_cli_amount){0};
    if (!is_share(text)) return parse_size(&out->number, text, why);
    if (parse_amount(out, text, why)) return true;
    snprintf(why, 128, "is neither a size such as 512M nor a share above 0%% and up to 100%%");
    return false;
}

static bool parse_seed(int64_t *out, const char *text, char why[128]) {
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (end == text || *end || errno || v < -1) {
        snprintf(why, 128, "is neither -1 nor a number from 0 up");
        return false;
    }
    *out = v;
    return true;
}

/* Adds "15043+1.5" or "29905-inf": a token's id, and what is added to its logit. */
static bool parse_bias(ig_cli_biases *out, const char *text, char why[128]) {
    char *sign, *end;
    if (out->n == IG_CLI_BIASES_MAX) {
        snprintf(why, 128, "is one too many: at most %d", IG_CLI_BIASES_MAX);
        return false;
    }
    long long id = isdigit((unsigned char)text[0]) ? strtoll(text, &sign, 10) : -1;
    float bias = id >= 0 && (*sign == '+' || *sign == '-') ? strtof(sign, &end) : NAN;
    if (id > INT32_MAX || isnan(bias) || bias == INFINITY || end == sign || *end) {
        snprintf(why, 128, "is not a token's id and a number with its sign, such as 15043+1 or 29905-inf");
        return false;
    }
    out->v[out->n++] = (ig_logit_bias){(int32_t)id, bias};
    return true;
}

static const char *find_choice(const char *text, size_t n, const char *const *choices, char why[128]) {
    for (const char *const *c = choices; *c; c++)
        if (strlen(*c) == n && strncmp(*c, text, n) == 0) return *c;
    size_t used = (size_t)snprintf(why, 128, "is not one of");
    for (const char *const *c = choices; *c && used < 100; c++)
        used += (size_t)snprintf(why + used, 128 - used, "%s %s", c == choices ? "" : ",", *c);
    return NULL;
}

/* Comma lists: whole numbers into ig_cli_ints, budgets into ig_cli_amounts, choices into ig_cli_texts. */
static bool parse_list(const ig_cli_option *row, void *out, const char *text, char why[128]) {
    ig_cli_ints ints = {0};
    ig_cli_texts texts = {0};
    ig_cli_amounts amounts = {0};
    int n_items = 0;
    for (const char *p = text;; p++) {
        size_t n = strcspn(p, ",");
        char item[64];
        if (n_items == IG_CLI_LIST_MAX || n >= sizeof item) {
            snprintf(why, 128, "is too long a list");
            return false;
        }
        snprintf(item, sizeof item, "%.*s", (int)n, p);
        if (row->kind == IG_KIND_INTS) {
            if (!parse_int(&ints.v[n_items], item, row->min, row->max, why)) return false;
        } else if (row->kind == IG_KIND_AMOUNTS) {
            if (!parse_amount(&amounts.v[n_items], item, why)) return false;
        } else if (!(texts.v[n_items] = find_choice(item, n, row->choices, why))) {
            return false;
        }
        ints.n = texts.n = amounts.n = ++n_items;
        p += n;
        if (!*p) break;
    }
    if (row->kind == IG_KIND_INTS)
        *(ig_cli_ints *)out = ints;
    else if (row->kind == IG_KIND_AMOUNTS)
        *(ig_cli_amounts *)out = amounts;
    else
        *(ig_cli_texts *)out = texts;
    return true;
}

static bool set_value(ig_cli_options *o, const ig_cli_option *row, const char *text, char why[128]) {
    void *out = (char *)o + row->offset;
    switch (row->kind) {
        case IG_KIND_FLAG:
            *(bool *)out = true;
            return true;
        case IG_KIND_INT:
            return parse_int(out, text, row->min, row->max, why);
        case IG_KIND_NUMBER:
            return parse_number(out, text, row->min, row->max, why);
        case IG_KIND_AMOUNT:
            return parse_amount(out, text, why);
        case IG_KIND_LIMIT:
            return parse_limit(out, text, why);
        case IG_KIND_SIZE:
            return parse_size(out, text, why);
        case IG_KIND_SEED:
            return parse_seed(out, text, why);
        case IG_KIND_TEXT:
            *(const char **)out = text;
            return true;
        case IG_KIND_TEXTS: {
            ig_cli_texts *list = out;
            if (list->n == IG_CLI_LIST_MAX) {
                snprintf(why, 128, "is one too many: at most %d", IG_CLI_LIST_MAX);
                return false;
            }
            list->v[list->n++] = text;
            return true;
        }
        case IG_KIND_BIASES:
            return parse_bias(out, text, why);
        case IG_KIND_CHOICE:
            return (*(const char **)out = find_choice(text, strlen(text), row->choices, why)) != NULL;
        case IG_KIND_INTS:
        case IG_KIND_AMOUNTS:
        case IG_KIND_CHOICES:
            return parse_list(row, out, text, why);
    }
    return false;
}

/* ---- arguments ----------------------------------------------------------- */

/* One option at argv[*i]; moves *i past it and its value. */
static bool parse_option(ig_cli_options *o, int *i, int argc, char **argv) {
    const char *arg = argv[*i], *value = NULL, *equals = strchr(arg, '=');
    size_t n = strlen(arg);
    const ig_cli_option *row = find_option(arg, n, o->verb->bit);
    if (!row && equals && arg[1] == '-') {
        n = (size_t)(equals - arg);
        row = find_option(arg, n, o->verb->bit);
        value = equals + 1;
    } else if (!row && arg[1] != '-') {
        n = 2;
        row = find_option(arg, n, o->verb->bit);
        value = arg + 2;
        if (row && row->kind == IG_KIND_FLAG) row = NULL;
    }
    if (!row) {
        suggest_option(o->verb, arg);
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
    char why[128];
    if (!set_value(o, row, value, why)) {
        fprintf(stderr, "infinigen %s: %.*s: '%s' %s\n", o->verb->name, (int)n, arg, value, why);
        return false;
    }
    return true;
}

static bool take_positional(ig_cli_options *o, const char *arg) {
    for (int k = 0; k < 2 && o->verb->positionals[k]; k++) {
        bool is_model = strcmp(o->verb->positionals[k], "MODEL") == 0;
        if (o->rest[k] || (is_model && o->model)) continue;
        o->rest[k] = arg;
        if (is_model) o->model = arg;
        return true;
    }
    fprintf(stderr, "infinigen %s: one argument too many: '%s' (see 'infinigen %s --help')\n", o->verb->name, arg,
            o->verb->name);
    return false;
}

bool ig_cli_parse(ig_cli_options *o, const ig_cli_verb *verb, int argc, char **argv) {
    memset(o, 0, sizeof *o);
    o->verb = verb;
    char why[128];
    for (const ig_cli_option *row = ig_cli_option_table; row->names; row++)
        if ((row->verbs & verb->bit) && row->initial && !set_value(o, row, row->initial, why)) return false;

    /* Options first, so that the meaning of a positional does not depend on whether -m stands before it. */
    const char *words[8];
    int n_words = 0;
    bool only_words = false;
    for (int i = 2; i < argc;) {
        const char *arg = argv[i];
        if (!only_words && strcmp(arg, "--") == 0) {
            only_words = true;
            i++;
        } else if (!only_words && arg[0] == '-' && arg[1]) {
            if (!parse_option(o, &i, argc, argv)) return false;
        } else {
            if (n_words < 8) words[n_words++] = arg;
            i++;
        }
    }
    for (int k = 0; k < n_words; k++)
        if (!take_positional(o, words[k])) return false;
    if (o->help) return true;
    if ((verb->bit & IG_VERB_MODEL) && !o->model) {
        fprintf(stderr,
                "infinigen %s: no model given: -m MODEL (a file, a directory, or a name from 'infinigen fetch')\n",
                verb->name);
        return false;
    }
    return true;
}
