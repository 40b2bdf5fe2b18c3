/* SPDX-License-Identifier: Apache-2.0
 *
 * Made tasks that hide a few lines in filler: needles, turns, the pass
 * key, a sequence of digits, and chains of variables.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "eval/make_parts.h"

enum { HIDDEN_MAX = 16, NEEDLE_TOKENS = 128, TURN_TOKENS = 32, PASS_KEY_TOKENS = 16, CHAIN_TOKENS = 30 };

/* ---- filler with something in it ------------------------------------------------- */

/* A line among the filler. */
typedef struct hidden {
    char text[160];
    int64_t before; /* the unit of filler that it stands before */
    int i;          /* which of them it is: the order of those that stand before the same unit */
} hidden;

static int compare_places(const void *a, const void *b) {
    const hidden *x = a, *y = b;
    return x->before != y->before ? (x->before > y->before) - (x->before < y->before) : x->i - y->i;
}

/* Distinct places among n units and the lines themselves. */
static void place_anywhere(ig_eval_sample *s, hidden *lines, int n_lines) {
    uint64_t drawn[HIDDEN_MAX];
    for (int i = 0; i < n_lines; i++) {
        bool again = true;
        while (again) {
            drawn[i] = ig_eval_random_below(&s->random, (uint64_t)(s->n + n_lines));
            again = false;
            for (int k = 0; k < i; k++) again = again || drawn[k] == drawn[i];
        }
    }
    for (int i = 0; i < n_lines; i++) {
        int earlier = 0;
        for (int k = 0; k < n_lines; k++) earlier += drawn[k] < drawn[i];
        lines[i].before = (int64_t)drawn[i] - earlier;
    }
}

/* At distinct ones of 40 depths from 0 to 100 %. */
static void place_at_depths(ig_eval_sample *s, hidden *lines, int n_lines) {
    uint32_t *depths = ig_eval_random_draw(&s->random, (size_t)n_lines, 40);
    if (!depths) s->no_memory = true;
    for (int i = 0; depths && i < n_lines; i++) {
        int percent = (int)((200 * depths[i] + 39) / 78); /* round(100 i / 39) */
        lines[i].before = (int64_t)s->n * percent / 100;
    }
    free(depths);
}

/* Units of filler; `put` writes number i. */
typedef void (*put_fn)(ig_eval_sample *s, void *user, int i);

static void put_all(ig_eval_sample *s, const char *separator, put_fn put, void *user, hidden *lines, int n_lines) {
    const char *between = "";
    int k = 0;
    for (int i = 0; i < n_lines; i++) lines[i].i = i;
    qsort(lines, (size_t)n_lines, sizeof *lines, compare_places);
    for (int i = 0; i <= s->n; i++) {
        for (; k < n_lines && lines[k].before <= i; k++, between = separator)
            fprintf(s->context, "%s%s", between, lines[k].text);
        if (i == s->n) break;
        fputs(between, s->context);
        put(s, user, i);
        between = separator;
    }
}

static void put_noise(ig_eval_sample *s, void *user, int i) {
    (void)user;
    (void)i;
    fputs(ig_eval_noise, s->context);
}

static void put_essay(ig_eval_sample *s, void *user, int i) {
    ig_eval_filler_put(s->context, s->o->filler, *(const uint64_t *)user, (uint64_t)i);
}

static void hide_in_noise(ig_eval_sample *s, hidden *lines, int n_lines) {
    put_all(s, "\n", put_noise, NULL, lines, n_lines);
}

static void hide_in_essay(ig_eval_sample *s, hidden *lines, int n_lines) {
    uint64_t start = ig_eval_filler_start(s->o->filler, &s->random);
    put_all(s, " ", put_essay, &start, lines, n_lines);
}

/* ---- needles ----------------------------------------------------------------------- */

enum { WORD_BYTES = 40 }; /* of a name, a number or a uuid */

static void draw_value(char out[WORD_BYTES], ig_eval_sample *s, bool uuid) {
    if (uuid)
        ig_eval_random_uuid(out, &s->random);
    else
        snprintf(out, WORD_BYTES, "%d", 1000000 + (int)ig_eval_random_below(&s->random, 9000000));
}

static void write_needle(char *out, size_t cap, const ig_eval_sample *s, const char *key, const char *value) {
    snprintf(out, cap, "The secret %s for %s is %s.", s->recipe->uuid_values ? "code" : "number", key, value);
}

/* Key number i of a sample, no two alike. Without names it is a uuid, drawn when it is wanted. */
static void get_key(char out[WORD_BYTES], const uint32_t *names, ig_eval_sample *s, int i) {
    if (names)
        ig_eval_name(out, names[i]);
    else
        ig_eval_random_uuid(out, &s->random);
}

/* Another needle with a key of its own. */
static void put_needle(ig_eval_sample *s, void *user, int i) {
    char key[WORD_BYTES], value[WORD_BYTES], line[160];
    get_key(key, user, s, s->recipe->n_keys + i);
    draw_value(value, s, s->recipe->uuid_values);
    write_needle(line, sizeof line, s, key, value);
    fputs(line, s->context);
}

/* What a needle task hides: n_keys x n_values lines, a key's after another's. */
typedef struct needles {
    hidden lines[HIDDEN_MAX];
    char keys[HIDDEN_MAX][WORD_BYTES], values[HIDDEN_MAX][WORD_BYTES]; /* values: as lines */
} needles;

static void hide_needles(needles *out, ig_eval_sample *s) {
    const ig_eval_recipe *recipe = s->recipe;
    uint32_t *names = NULL;
    int n_lines = recipe->n_keys * recipe->n_values;
    bool among_needles = recipe->haystack == IG_EVAL_NEEDLES;
    if (!recipe->uuid_keys) {
        names = ig_eval_sample_names(s, (size_t)recipe->n_keys + (among_needles ? (size_t)s->n : 0), false);
        if (!names) return;
    }
    for (int i = 0; i < recipe->n_keys; i++) get_key(out->keys[i], names, s, i);
    for (int i = 0; i < n_lines; i++) {
        char value[WORD_BYTES], line[sizeof out->lines[i].text];
        draw_value(value, s, recipe->uuid_values);
        write_needle(line, sizeof line, s, out->keys[i / recipe->n_values], value);
        memcpy(out->values[i], value, sizeof value);
        memcpy(out->lines[i].text, line, sizeof line);
    }
    if (recipe->haystack == IG_EVAL_ESSAY) {
        place_at_depths(s, out->lines, n_lines);
        hide_in_essay(s, out->lines, n_lines);
    } else {
        place_anywhere(s, out->lines, n_lines);
        put_all(s, "\n", among_needles ? put_needle : put_noise, names, out->lines, n_lines);
    }
    free(names);
}

/* "a, b, c, and d" */
static void list_keys(char *out, size_t cap, const needles *hay, int n) {
    size_t used = 0;
    for (int i = 0; i < n; i++)
        used += (size_t)snprintf(out + used, cap - used, "%s%s",
                                 i == 0      ? ""
                                 : i + 1 < n ? ", "
                                             : ", and ",
                                 hay->keys[i]);
}

/* Asks for the values of keys [first, first + n). */
static void ask_for(ig_eval_sample *s, const needles *hay, int first, int n, int max_tokens) {
    const ig_eval_recipe *recipe = s->recipe;
    char list[HIDDEN_MAX * WORD_BYTES], question[1024], prefix[1024];
    const char *what = recipe->uuid_values ? "code" : "number";
    needles asked = *hay;
    for (int i = 0; i < n; i++) memcpy(asked.keys[i], hay->keys[first + i], WORD_BYTES);
    list_keys(list, sizeof list, &asked, n);
    json_t *answers = json_array();
    for (int i = first * recipe->n_values; i < (first + n) * recipe->n_values; i++)
        json_array_append_new(answers, json_string(hay->values[i]));
    if (n * recipe->n_values == 1) {
        snprintf(question, sizeof question, "\nWhat is the secret %s for %s that the text above gives?", what, list);
        snprintf(prefix, sizeof prefix, " The secret %s for %s that the text gives is", what, list);
    } else {
        snprintf(question, sizeof question, "\nWhat are all the secret %ss for %s that the text above gives?", what,
                 list);
        snprintf(prefix, sizeof prefix, " The secret %ss for %s that the text gives are", what, list);
    }
    ig_eval_sample_ask(s, question, prefix, answers, max_tokens);
}

static void introduce(ig_eval_sample *s) {
    const ig_eval_recipe *recipe = s->recipe;
    const char *what = recipe->uuid_values ? "code" : "number";
    if (recipe->n_asked * recipe->n_values == 1)
        fprintf(s->context,
                "A secret %s stands somewhere in the text below. Keep it in mind: you will be asked for "
                "the %s afterwards.\n",
                what, what);
    else
        fprintf(s->context,
                "Some secret %ss stand somewhere in the text below. Keep them in mind: you will be asked "
                "for the %ss afterwards.\n",
                what, what);
}

void ig_eval_build_needles(ig_eval_sample *s) {
    needles hay = {0};
    introduce(s);
    hide_needles(&hay, s);
    ask_for(s, &hay, 0, s->recipe->n_asked, NEEDLE_TOKENS);
}

void ig_eval_build_turns(ig_eval_sample *s) {
    needles hay = {0};
    introduce(s);
    hide_needles(&hay, s);
    for (int i = 0; i < s->recipe->n_asked; i++) ask_for(s, &hay, i, 1, TURN_TOKENS);
}

/* ---- pass key ------------------------------------------------------------------------ */

/* Five digits; or five that differ from their neighbours, each twice, which are harder to repeat. */
static void draw_digits(char out[WORD_BYTES], ig_eval_sample *s) {
    int digit = 0;
    if (!s->recipe->harder) {
        snprintf(out, WORD_BYTES, "%d", 10000 + (int)ig_eval_random_below(&s->random, 90000));
        return;
    }
    for (int i = 0; i < 5; i++) {
        digit = (digit + 1 + (int)ig_eval_random_below(&s->random, 9)) % 10;
        out[2 * i] = out[2 * i + 1] = (char)('0' + digit);
    }
    out[10] = 0;
}

void ig_eval_build_pass_key(ig_eval_sample *s) {
    const char *what = s->recipe->harder ? "sequence of digits" : "pass key";
    char key[WORD_BYTES], question[64], prefix[64];
    hidden line;
    draw_digits(key, s);
    snprintf(line.text, sizeof line.text, "The %s is %s. Keep it in mind: %s is the %s.", what, key, key, what);
    line.before = (int64_t)(ig_eval_sample_depth(s) * s->n + 0.5);
    fputs(
        "One thing in the text below matters, and all the rest does not. Find it and keep it in mind: you will be "
        "asked for it afterwards.\n",
        s->context);
    hide_in_noise(s, &line, 1);
    snprintf(question, sizeof question, "\nWhat is the %s?", what);
    snprintf(prefix, sizeof prefix, " The %s is", what);
    ig_eval_sample_ask(s, question, prefix, json_pack("[s]", key), PASS_KEY_TOKENS);
}

/* ---- chains of variables --------------------------------------------------------------- */

enum { CHAIN = 5 };

typedef struct chain {
    char names[CHAIN][8];
    int number;
} chain;

/* Five names of n_letters, unlike each other. */
static void draw_chain(chain *out, ig_eval_sample *s, int n_letters) {
    for (int i = 0; i < CHAIN; i++) {
        bool again = true;
        while (again) {
            ig_eval_letters(out->names[i], n_letters, &s->random);
            again = false;
            for (int k = 0; k < i; k++) again = again || strcmp(out->names[k], out->names[i]) == 0;
        }
    }
    out->number = 10000 + (int)ig_eval_random_below(&s->random, 89999);
}

/* The lines in their order, in s->n lines of noise. */
static void hide_chain(ig_eval_sample *s, const chain *c) {
    hidden lines[CHAIN] = {0};
    place_anywhere(s, lines, CHAIN);
    qsort(lines, CHAIN, sizeof *lines, compare_places);
    snprintf(lines[0].text, sizeof lines[0].text, "LET %s = %d", c->names[0], c->number);
    for (int i = 1; i < CHAIN; i++)
        snprintf(lines[i].text, sizeof lines[i].text, "LET %s = %s", c->names[i], c->names[i - 1]);
    for (int i = 0, k = 0; i <= s->n; i++) {
        for (; k < CHAIN && lines[k].before <= i; k++) fprintf(s->context, "%s\n", lines[k].text);
        if (i < s->n) fprintf(s->context, "%s\n", ig_eval_noise);
    }
}

static const char chain_task[] =
    "In the text below names are given a value, some of them by way of other names. Keep track of which name has which "
    "value.\n\n";

void ig_eval_build_chain(ig_eval_sample *s) {
    enum { EXAMPLE_LINES = 5 };
    chain example, c;
    char question[256], prefix[256];
    int n = s->n;
    draw_chain(&example, s, 3);
    draw_chain(&c, s, 5);
    fputs(chain_task, s->context);
    s->n = EXAMPLE_LINES;
    hide_chain(s, &example);
    fprintf(s->context,
            "Question: Which names in the text above have the value %d? Answer: In the text above, %d names "
            "have the value %d:",
            example.number, CHAIN, example.number);
    for (int i = 0; i < CHAIN; i++) fprintf(s->context, " %s", example.names[i]);
    fprintf(s->context, "\n\n%s", chain_task);
    s->n = n;
    hide_chain(s, &c);
    snprintf(question, sizeof question, "Question: Which names in the text above have the value %d?", c.number);
    snprintf(prefix, sizeof prefix, " Answer: In the text above, %d names have the value %d:", CHAIN, c.number);
    json_t *answers = json_array();
    for (int i = 0; i < CHAIN; i++) json_array_append_new(answers, json_string(c.names[i]));
    ig_eval_sample_ask(s, question, prefix, answers, CHAIN_TOKENS);
}
