/* SPDX-License-Identifier: Apache-2.0
 *
 * Values of options: see values.h. Every number is checked against the range that its row states.
 */
#include "cli/values.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The most entries that can be asked for: more than any context has. */
static const double count_of_all = 2147483647.0;

static bool parse_int(int *out, const char *text, double min, double max, char why[IG_CLI_WHY_BYTES]) {
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (end == text || *end) {
        snprintf(why, IG_CLI_WHY_BYTES, "is not a whole number");
        return false;
    }
    if (errno || (double)v < min || (double)v > max) {
        snprintf(why, IG_CLI_WHY_BYTES, "is not between %.0f and %.0f", min, max);
        return false;
    }
    *out = (int)v;
    return true;
}

static bool parse_number(double *out, const char *text, double min, double max, char why[IG_CLI_WHY_BYTES]) {
    char *end;
    double v = strtod(text, &end);
    if (end == text || *end || !isfinite(v)) {
        snprintf(why, IG_CLI_WHY_BYTES, "is not a number");
        return false;
    }
    if (v < min || v > max) {
        snprintf(why, IG_CLI_WHY_BYTES, "is not between %g and %g", min, max);
        return false;
    }
    *out = v;
    return true;
}

/* A share has a percent sign or, as reports write it, a decimal point or an exponent: "1" is a number, "1.0" the whole.
 * "1.5G" is a size. */
static bool is_share(const char *text) {
    return strpbrk(text, "%.eE") && !isalpha((unsigned char)text[strlen(text) - 1]);
}

static bool parse_amount(ig_cli_amount *out, const char *text, char why[IG_CLI_WHY_BYTES]) {
    char *end;
    double v = strtod(text, &end);
    bool percent = end != text && *end == '%' && !end[1], share = is_share(text);
    if (end == text || (*end && !percent) || !isfinite(v)) {
        snprintf(why, IG_CLI_WHY_BYTES, "is neither a number of tokens nor a share like 10%%");
        return false;
    }
    if (v <= 0 || v > (percent ? 100 : share ? 1 : count_of_all)) {
        snprintf(why, IG_CLI_WHY_BYTES,
                 "is out of range: give 1 or more tokens, or a share above 0%% and up to 100%% (a percent sign, a "
                 "decimal point or an exponent makes it one)");
        return false;
    }
    *out = share ? (ig_cli_amount){.share = percent ? v / 100 : v} : (ig_cli_amount){.number = (uint64_t)v};
    return true;
}

/* "4096", "512M", "1.5G", "64MiB"; max 0: any */
static bool parse_size(uint64_t *out, const char *text, double min, double max, char why[IG_CLI_WHY_BYTES]) {
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
        snprintf(why, IG_CLI_WHY_BYTES, "is not a size such as 512M or 2G");
        return false;
    }
    if (v < 1 || v >= 0x1p62) {
        snprintf(why, IG_CLI_WHY_BYTES, "is out of range: give bytes, or a size such as 512M or 2G");
        return false;
    }
    if (max > 0 && (v < min || v > max)) {
        snprintf(why, IG_CLI_WHY_BYTES, "is not between %.0f and %.0f bytes", min, max);
        return false;
    }
    *out = (uint64_t)v;
    return true;
}

static bool parse_limit(ig_cli_amount *out, const char *text, char why[IG_CLI_WHY_BYTES]) {
    *out = (ig_cli_amount){0};
    if (!is_share(text)) return parse_size(&out->number, text, 0, 0, why);
    if (parse_amount(out, text, why)) return true;
    snprintf(why, IG_CLI_WHY_BYTES, "is neither a size such as 512M nor a share above 0%% and up to 100%%");
    return false;
}

static bool parse_room(uint64_t *out, const char *text, char why[IG_CLI_WHY_BYTES]) {
    bool named = strcmp(text, "auto") == 0 || strcmp(text, "0") == 0;
    if (!named) return parse_size(out, text, 0, 0, why);
    *out = *text == '0' ? 0 : UINT64_MAX;
    return true;
}

static bool parse_seed(int64_t *out, const char *text, char why[IG_CLI_WHY_BYTES]) {
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (end == text || *end || errno || v < -1) {
        snprintf(why, IG_CLI_WHY_BYTES, "is neither -1 nor a number from 0 to 2^63 - 1");
        return false;
    }
    *out = v;
    return true;
}

/* Adds "15043+1.5" or "29905-inf": a token's id, and what is added to its logit. */
static bool parse_bias(ig_cli_biases *out, const char *text, char why[IG_CLI_WHY_BYTES]) {
    char *sign, *end;
    if (out->n == IG_CLI_BIASES_MAX) {
        snprintf(why, IG_CLI_WHY_BYTES, "is one too many: at most %d", IG_CLI_BIASES_MAX);
        return false;
    }
    long long id = isdigit((unsigned char)text[0]) ? strtoll(text, &sign, 10) : -1;
    float bias = id >= 0 && (*sign == '+' || *sign == '-') ? strtof(sign, &end) : NAN;
    if (id > INT32_MAX || isnan(bias) || bias == INFINITY || end == sign || *end) {
        snprintf(why, IG_CLI_WHY_BYTES, "is not a token's id and a number with its sign, such as 15043+1 or 29905-inf");
        return false;
    }
    out->v[out->n++] = (ig_logit_bias){(int32_t)id, bias};
    return true;
}

int ig_cli_find_choice(const char *text, const char *const *choices, char why[IG_CLI_WHY_BYTES]) {
    for (int i = 0; choices[i]; i++)
        if (strcmp(text, choices[i]) == 0) return i;
    size_t used = (size_t)snprintf(why, IG_CLI_WHY_BYTES, "is not one of");
    for (const char *const *c = choices; *c && used < IG_CLI_WHY_BYTES; c++)
        used += (size_t)snprintf(why + used, IG_CLI_WHY_BYTES - used, "%s %s", c == choices ? "" : ",", *c);
    return -1;
}

/* The same, as the text that stays. */
static const char *find_choice(const char *text, const char *const *choices, char why[IG_CLI_WHY_BYTES]) {
    int i = ig_cli_find_choice(text, choices, why);
    return i < 0 ? NULL : choices[i];
}

/* "128", or a range as llama-bench has them: "1-4", "128-512+128", "128-1024*2". */
static bool add_range(ig_cli_ints *list, const ig_cli_option *row, const char *item, char why[IG_CLI_WHY_BYTES]) {
    char first[64], last[64], step[64] = "1", how = '+', more;
    int n = sscanf(item, "%63[0-9]-%63[0-9]%c%63[0-9]%c", first, last, &how, step, &more), from, to, by = 1;
    if (n != 2 && n != 4) {
        if (!parse_int(&from, item, row->min, row->max, why)) return false;
        to = from;
        how = '+';
    } else {
        if (!parse_int(&from, first, row->min, row->max, why) || !parse_int(&to, last, row->min, row->max, why) ||
            !parse_int(&by, step, 0, row->max, why))
            return false;
        bool grows = (how == '+' && by > 0) || (how == '*' && by > 1 && from > 0);
        if (!grows || from > to) {
            snprintf(why, IG_CLI_WHY_BYTES, "is not a range like 128-512+128 or 128-1024*2");
            return false;
        }
    }
    for (long long v = from; v <= to; v = how == '*' ? v * by : v + by) {
        if (list->n == IG_CLI_LIST_MAX) {
            snprintf(why, IG_CLI_WHY_BYTES, "is too long a list");
            return false;
        }
        list->v[list->n++] = (int)v;
    }
    return true;
}

bool ig_cli_is_list(ig_cli_kind kind) {
    return kind == IG_KIND_INTS || kind == IG_KIND_NUMBERS || kind == IG_KIND_AMOUNTS || kind == IG_KIND_LIMITS ||
           kind == IG_KIND_CHOICES;
}

typedef union any_list {
    int n;
    ig_cli_ints ints;
    ig_cli_numbers numbers;
    ig_cli_amounts amounts;
    ig_cli_texts texts;
} any_list;

/* One element, for which there is room. */
static bool add_item(any_list *list, const ig_cli_option *row, const char *item, char why[IG_CLI_WHY_BYTES]) {
    if (row->kind == IG_KIND_INTS) return add_range(&list->ints, row, item, why);
    int i = list->n++;
    if (row->kind == IG_KIND_NUMBERS) return parse_number(&list->numbers.v[i], item, row->min, row->max, why);
    if (row->kind == IG_KIND_AMOUNTS) return parse_amount(&list->amounts.v[i], item, why);
    if (row->kind == IG_KIND_LIMITS) return parse_limit(&list->amounts.v[i], item, why);
    return (list->texts.v[i] = find_choice(item, row->choices, why)) != NULL;
}

static size_t list_bytes(ig_cli_kind kind) {
    return kind == IG_KIND_INTS      ? sizeof(ig_cli_ints)
           : kind == IG_KIND_NUMBERS ? sizeof(ig_cli_numbers)
           : kind == IG_KIND_CHOICES ? sizeof(ig_cli_texts)
                                     : sizeof(ig_cli_amounts);
}

static bool parse_list(const ig_cli_option *row, void *out, const char *text, bool one, ig_cli_culprit *wrong,
                       char why[IG_CLI_WHY_BYTES]) {
    any_list list = {0};
    for (const char *p = text;; p++) {
        size_t n = strcspn(p, ",");
        char item[64];
        if (list.n == IG_CLI_LIST_MAX || n >= sizeof item) {
            snprintf(why, IG_CLI_WHY_BYTES, "is too long a list");
            return false;
        }
        snprintf(item, sizeof item, "%.*s", (int)n, p);
        if (!add_item(&list, row, item, why)) {
            *wrong = (ig_cli_culprit){p, n};
            return false;
        }
        p += n;
        if (!*p) break;
    }
    if (one && list.n > 1) {
        snprintf(why, IG_CLI_WHY_BYTES, "is a list, and this verb takes one");
        return false;
    }
    memcpy(out, &list, list_bytes(row->kind));
    return true;
}

/* What is listed twice is one, as policies and settings are (pairs.c); true. */
static bool drop_repeated(ig_cli_ints *list) {
    int n = 0;
    for (int i = 0, k; i < list->n; i++) {
        for (k = 0; k < n && list->v[k] != list->v[i]; k++) {
        }
        if (k == n) list->v[n++] = list->v[i];
    }
    list->n = n;
    return true;
}

bool ig_cli_set_value(ig_cli_options *o, const ig_cli_option *row, const char *text, ig_cli_culprit *wrong,
                      char why[IG_CLI_WHY_BYTES]) {
    void *out = (char *)o + row->offset;
    *wrong = (ig_cli_culprit){text, strlen(text)};
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
        case IG_KIND_SIZE:
            return parse_size(out, text, row->min, row->max, why);
        case IG_KIND_ROOM:
            return parse_room(out, text, why);
        case IG_KIND_SEED:
            return parse_seed(out, text, why);
        case IG_KIND_TEXT:
            *(const char **)out = text;
            return true;
        case IG_KIND_TEXTS: {
            ig_cli_texts *list = out;
            if (list->n == IG_CLI_LIST_MAX) {
                snprintf(why, IG_CLI_WHY_BYTES, "is one too many: at most %d", IG_CLI_LIST_MAX);
                return false;
            }
            list->v[list->n++] = text;
            return true;
        }
        case IG_KIND_BIASES:
            return parse_bias(out, text, why);
        case IG_KIND_CHOICE:
            return (*(const char **)out = find_choice(text, row->choices, why)) != NULL;
        case IG_KIND_INTS: /* bench measures again what is listed again, as llama-bench does */
            return parse_list(row, out, text, false, wrong, why) &&
                   (o->verb->bit == IG_VERB_BENCH || drop_repeated(out));
        case IG_KIND_NUMBERS:
        case IG_KIND_AMOUNTS:
        case IG_KIND_LIMITS:
        case IG_KIND_CHOICES:
            return parse_list(row, out, text, !(o->verb->bit & IG_VERB_LISTS), wrong, why);
    }
    return false;
}
