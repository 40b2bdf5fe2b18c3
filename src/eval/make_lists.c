/* SPDX-License-Identifier: Apache-2.0
 *
 * Made tasks whose context is one list: words to be counted, pairs of codes,
 * numbers to be compared, and functions that call each other.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "eval/make_parts.h"

enum { COMMON = 10, COMMON_TOKENS = 120, FREQUENT_TOKENS = 50, VALUE_TOKENS = 50, NUMBER_TOKENS = 12 };

/* Below this many tokens words come less often. (RULER: 4096, with words of fewer tokens.) */
enum { SHORT_TOKENS = 8192 };

/* ---- common words -------------------------------------------------------------------- */

/* "1. word 2. word ...", the first `COMMON` of n_words names `often` times each, the others `seldom` times, shuffled.
 */
static void put_numbered(ig_eval_sample *s, const uint32_t *names, size_t n_words, size_t often, size_t seldom) {
    size_t n = COMMON * often + (n_words - COMMON) * seldom, k = 0;
    uint32_t *list = malloc(n * sizeof *list);
    if (!list) {
        s->no_memory = true;
        return;
    }
    for (size_t i = 0; i < n_words; i++)
        for (size_t times = i < COMMON ? often : seldom; times; times--) list[k++] = names[i];
    ig_eval_random_shuffle(&s->random, list, n);
    for (size_t i = 0; i < n; i++) {
        char word[IG_EVAL_NAME_BYTES];
        ig_eval_name(word, list[i]);
        fprintf(s->context, "%s%zu. %s", i ? " " : "", i + 1, word);
    }
    free(list);
}

static const char common_task[] =
    "Below is a numbered list of words, and some of them come more often than the others. Keep in mind which these "
    "are.\n";
static const char common_question[] = "\nQuestion: Which 10 words come most often in the list above?";
static const char common_prefix[] = " Answer: The 10 words that come most often in the list are:";

void ig_eval_build_common(ig_eval_sample *s) {
    bool is_short = s->o->length < (int64_t)SHORT_TOKENS * s->o->token_units;
    size_t n_example = is_short ? 20 : 40, n_words = COMMON + (size_t)s->n;
    uint32_t *names = ig_eval_sample_names(s, n_example + n_words, false);
    if (!names) return;
    const uint32_t *own = names + n_example;
    char word[IG_EVAL_NAME_BYTES];
    fputs(common_task, s->context);
    put_numbered(s, names, n_example, is_short ? 3 : 10, is_short ? 1 : 3);
    fprintf(s->context, "%s%s", common_question, common_prefix);
    for (int i = 0; i < COMMON; i++) {
        ig_eval_name(word, names[i]);
        fprintf(s->context, " %d. %s", i + 1, word);
    }
    fprintf(s->context, "\n\n%s", common_task);
    put_numbered(s, own, n_words, is_short ? 6 : 30, is_short ? 1 : 3);
    json_t *answers = json_array();
    for (int i = 0; i < COMMON; i++) {
        ig_eval_name(word, own[i]);
        json_array_append_new(answers, json_string(word));
    }
    ig_eval_sample_ask(s, common_question, common_prefix, answers, COMMON_TOKENS);
    free(names);
}

/* ---- frequent words -------------------------------------------------------------------- */

/* How often the word of rank k (from 1) comes among n: n / (k^2 zeta(2)). */
static size_t times_of_rank(size_t n, size_t k) {
    return (size_t)((uint64_t)n * 1000000 / ((uint64_t)k * k * 1644934));
}

void ig_eval_build_frequent(ig_eval_sample *s) {
    size_t n = (size_t)s->n, vocabulary = (size_t)(s->o->length / s->o->token_units) / 50, n_list = 0;
    uint64_t first = ig_eval_random_below(&s->random, UINT64_C(1) << 40);
    uint32_t *list = malloc(n * sizeof *list);
    if (!list) {
        s->no_memory = true;
        return;
    }
    if (vocabulary < 5) vocabulary = 5;
    for (size_t k = 1; k <= vocabulary && times_of_rank(n, k); k++)
        for (size_t times = times_of_rank(n, k); times; times--) list[n_list++] = (uint32_t)k;
    ig_eval_random_shuffle(&s->random, list, n_list);
    fputs(
        "The text below is written in code words. Count how often each of them comes, and find the three that come "
        "most often.\n",
        s->context);
    for (size_t i = 0; i < n_list; i++) {
        char word[8] = "...";
        if (list[i] > 1) ig_eval_code(word, first, list[i]);
        fprintf(s->context, "%s%s", i ? " " : "", word);
    }
    free(list);
    json_t *answers = json_array();
    for (uint32_t k = 2; k <= 4; k++) {
        char word[8];
        ig_eval_code(word, first, k);
        json_array_append_new(answers, json_string(word));
    }
    ig_eval_sample_ask(s,
                       "\nQuestion: Which three code words come most often in the text above? The dots '...' are no "
                       "word. Explain nothing.",
                       " Answer: The three code words that come most often in the text above are:", answers,
                       FREQUENT_TOKENS);
}

/* ---- pairs of codes ---------------------------------------------------------------------- */

void ig_eval_build_pairs(ig_eval_sample *s) {
    char key[37], value[37], asked[37] = "", expected[37] = "", question[128];
    int at = (int)(ig_eval_sample_depth(s) * (s->n - 1) + 0.5);
    fputs(
        "The JSON object below has keys and their values. Give the value of the key that is named after it.\n\n"
        "JSON data:\n{",
        s->context);
    for (int i = 0; i < s->n; i++) {
        ig_eval_random_uuid(key, &s->random);
        ig_eval_random_uuid(value, &s->random);
        fprintf(s->context, "%s\"%s\": \"%s\"", i ? ", " : "", key, value);
        if (i != at) continue;
        memcpy(asked, key, sizeof key);
        memcpy(expected, value, sizeof value);
    }
    fputs("}\n", s->context);
    snprintf(question, sizeof question, "\nKey: \"%s\"", asked);
    ig_eval_sample_ask(s, question, "\nThe value of this key is:", json_pack("[s]", expected), VALUE_TOKENS);
}

/* ---- numbers ------------------------------------------------------------------------------ */

enum { NUMBERS = 100 };

/* The number of that rank, from 0, among the different ones: from the least up, or from the greatest down. */
static int find_rank(const int times[NUMBERS], int rank, bool from_greatest) {
    int found = -1;
    for (int i = 0; i < NUMBERS; i++) {
        int number = from_greatest ? NUMBERS - 1 - i : i;
        if (!times[number]) continue;
        found = number;
        if (rank-- == 0) break;
    }
    return found;
}

/* The one in the middle of all, of which there are an odd number. */
static int find_median(const int times[NUMBERS], int n) {
    int number = 0;
    for (int before = times[0]; before <= n / 2; before += times[number]) number++;
    return number;
}

/* Numbers from 0 to 99, one end of which is drawn from the outer fifth. What is asked goes through the samples. */
void ig_eval_build_find(ig_eval_sample *s) {
    static const char *const asked[] = {"largest",         "second largest", "third largest", "smallest",
                                        "second smallest", "third smallest", "median"};
    enum { MEDIAN = 6, FIFTH = NUMBERS / 5 };
    int kind = s->o->i_sample % (MEDIAN + 1), n = 2 * s->n + 1, times[NUMBERS] = {0};
    bool least_drawn = kind >= 3 && kind < MEDIAN;
    int drawn = (int)ig_eval_random_below(&s->random, FIFTH), least = least_drawn ? drawn : 0;
    char question[160], prefix[64];
    fputs("Below is a list of numbers. You will be asked for one of them afterwards.\n[", s->context);
    for (int i = 0; i < n; i++) {
        int number = least + (int)ig_eval_random_below(&s->random, (uint64_t)(NUMBERS - drawn));
        fprintf(s->context, "%s%d", i ? ", " : "", number);
        times[number]++;
    }
    fputs("]\n", s->context);
    int answer = kind == MEDIAN ? find_median(times, n) : find_rank(times, kind % 3, kind < 3);
    snprintf(question, sizeof question, "\nQuestion: What is the %s number in the list above?%s", asked[kind],
             kind == MEDIAN ? "" : " A number that comes several times counts once.");
    snprintf(prefix, sizeof prefix, " Answer: The %s number in the list is", asked[kind]);
    ig_eval_sample_ask(s, question, prefix, json_pack("[o]", json_sprintf("%d", answer)), NUMBER_TOKENS);
}

/* ---- functions ------------------------------------------------------------------------------ */

typedef struct function {
    int name, calls, adds; /* calls: -1 in the last layer */
} function;

/* The first of the n functions that stand in that layer of so many. */
static int layer_begin(int n, int layer, int n_layers) { return (int)(((int64_t)n * layer + n_layers - 1) / n_layers); }

/* Each calls one of the next layer. */
static void draw_functions(function *f, ig_eval_sample *s, const uint32_t *names, int n_layers) {
    for (int layer = 0; layer < n_layers; layer++) {
        int next = layer_begin(s->n, layer + 1, n_layers), n_next = layer_begin(s->n, layer + 2, n_layers) - next;
        for (int i = layer_begin(s->n, layer, n_layers); i < next; i++) {
            f[i].name = (int)names[i];
            f[i].adds = (int)ig_eval_random_below(&s->random, 30) - 12;
            f[i].calls = layer + 1 < n_layers ? next + (int)ig_eval_random_below(&s->random, (uint64_t)n_next) : -1;
        }
    }
}

static void put_function(FILE *out, const function *all, const function *f) {
    fprintf(out, "def func_%d(x):\n    return ", f->name);
    if (f->calls >= 0)
        fprintf(out, "func_%d(x)", all[f->calls].name);
    else
        fputs("x", out);
    fprintf(out, " %c %d\n\n", f->adds < 0 ? '-' : '+', abs(f->adds));
}

/* 2, 4, ..., 10 layers, by the number of the sample. */
void ig_eval_build_calls(ig_eval_sample *s) {
    char question[64], prefix[64];
    int n_layers = 2 + s->o->i_sample % 5 * 2;
    size_t n = (size_t)s->n;
    uint32_t *names = ig_eval_random_draw(&s->random, n, n), *order = ig_eval_random_draw(&s->random, n, n);
    function *all = malloc(n * sizeof *all);
    if (names && order && all) {
        draw_functions(all, s, names, n_layers);
        fputs("Below is a program. You will be asked for what one of its functions gives.\n\n", s->context);
        for (size_t i = 0; i < n; i++) put_function(s->context, all, &all[order[i]]);
        int asked = (int)ig_eval_random_below(&s->random, (uint64_t)layer_begin(s->n, 1, n_layers));
        int x = (int)ig_eval_random_below(&s->random, 21) - 10, y = x;
        for (int i = asked; i >= 0; i = all[i].calls) y += all[i].adds;
        snprintf(question, sizeof question, "Question: What is the value of func_%d(%d)?", all[asked].name, x);
        snprintf(prefix, sizeof prefix, " Answer: The value of func_%d(%d) is", all[asked].name, x);
        ig_eval_sample_ask(s, question, prefix, json_pack("[o]", json_sprintf("%d", y)), NUMBER_TOKENS);
    } else
        s->no_memory = true;
    free(all);
    free(order);
    free(names);
}
