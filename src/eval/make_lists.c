/* SPDX-License-Identifier: Apache-2.0
 *
 * Made tasks whose whole context counts: words to be counted, pairs of codes,
 * and records to be written down again.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "eval/make_parts.h"

enum { COMMON = 10, COMMON_TOKENS = 120, FREQUENT_TOKENS = 50, VALUE_TOKENS = 50, FIELDS = 5 };

/* Below this many tokens words come less often. (RULER: 4096, with words of fewer tokens.) */
enum { SHORT_TOKENS = 8192 };

static void fail_names(ig_eval_sample *s, const ig_eval_recipe *recipe, size_t n) {
    s->status = ig_text_fail(s->err, IG_E_LIMIT, "%s: there are no %zu different names", recipe->name, n);
}

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

void ig_eval_build_common(ig_eval_sample *s, const ig_eval_recipe *recipe) {
    bool is_short = s->o->length < (int64_t)SHORT_TOKENS * s->o->token_units;
    size_t n_example = is_short ? 20 : 40, n_words = COMMON + (size_t)s->n;
    uint32_t *names = ig_eval_names(&s->random, n_example + n_words);
    if (!names) {
        if (n_example + n_words > IG_EVAL_SYLLABLES)
            fail_names(s, recipe, n_example + n_words);
        else
            s->no_memory = true;
        return;
    }
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

void ig_eval_build_frequent(ig_eval_sample *s, const ig_eval_recipe *recipe) {
    size_t n = (size_t)s->n, vocabulary = (size_t)(s->o->length / s->o->token_units) / 50, n_list = 0;
    uint64_t first = ig_eval_random_below(&s->random, UINT64_C(1) << 40);
    uint32_t *list = malloc(n * sizeof *list);
    (void)recipe;
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

void ig_eval_build_pairs(ig_eval_sample *s, const ig_eval_recipe *recipe) {
    char key[37], value[37], asked[37] = "", expected[37] = "", question[128];
    int at = (int)(ig_eval_sample_depth(s) * (s->n - 1) + 0.5);
    (void)recipe;
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

/* ---- records ------------------------------------------------------------------------------- */

static const char *const field_names[FIELDS] = {"name", "town", "firm", "number", "telephone"};
static const char *const first_names[] = {"Ada",  "Boris", "Clara", "David", "Edith", "Felix", "Greta", "Hugo",
                                          "Irma", "Jonas", "Karin", "Louis", "Marta", "Nils",  "Olga",  "Peter"};

typedef struct record {
    char fields[FIELDS][48];
} record;

/* With three names of its own: no field of one record is a field of another. */
static void draw_record(record *out, ig_eval_sample *s, const uint32_t names[3], int i) {
    char word[3][IG_EVAL_NAME_BYTES];
    for (int k = 0; k < 3; k++) {
        ig_eval_name(word[k], names[k]);
        word[k][0] = (char)(word[k][0] - 'a' + 'A');
    }
    snprintf(out->fields[0], sizeof out->fields[0], "%s %s", first_names[ig_eval_random_below(&s->random, 16)],
             word[0]);
    snprintf(out->fields[1], sizeof out->fields[1], "%s", word[1]);
    snprintf(out->fields[2], sizeof out->fields[2], "%s", word[2]);
    /* The first digits count the records, the last ones are drawn. */
    snprintf(out->fields[3], sizeof out->fields[3], "%d%02d", 1000 + i, (int)ig_eval_random_below(&s->random, 100));
    snprintf(out->fields[4], sizeof out->fields[4], "0%d-%04d", 200 + (int)ig_eval_random_below(&s->random, 700), i);
}

static void put_prose(FILE *f, const record *r, uint64_t form) {
    const char *name = r->fields[0], *town = r->fields[1], *firm = r->fields[2], *number = r->fields[3],
               *telephone = r->fields[4];
    if (form == 0)
        fprintf(f, "%s lives in %s and works for %s. The staff number is %s, and the telephone %s.\n", name, town, firm,
                number, telephone);
    else if (form == 1)
        fprintf(f, "At %s, staff number %s belongs to %s of %s, whose telephone is %s.\n", firm, number, name, town,
                telephone);
    else
        fprintf(f, "Call %s to reach %s, number %s on the staff of %s, at home in %s.\n", telephone, name, number, firm,
                town);
}

static void put_json_list(FILE *f, const record *r, int n) {
    for (int i = 0; i < n; i++) {
        fputs(i ? ", {" : "{", f);
        for (int k = 0; k < FIELDS; k++) fprintf(f, "%s\"%s\": \"%s\"", k ? ", " : "", field_names[k], r[i].fields[k]);
        fputs("}", f);
    }
    fputs("]", f);
}

/* NULL: no memory, or too many for different names. */
static record *draw_records(ig_eval_sample *s, int n) {
    uint32_t *names = ig_eval_syllable_names(&s->random, 3 * (size_t)n);
    record *r = names ? malloc((size_t)n * sizeof *r) : NULL;
    for (int i = 0; r && i < n; i++) draw_record(&r[i], s, names + 3 * i, i);
    free(names);
    return r;
}

static const char records_task[] = "Each line below is about one person.\n\n";
static const char records_question[] =
    "\nWrite down all persons above in their order, as a JSON array with the fields name, town, firm, number and "
    "telephone.";

static void put_people(ig_eval_sample *s, const record *r, int n) {
    fputs(records_task, s->context);
    for (int i = 0; i < n; i++) put_prose(s->context, &r[i], ig_eval_random_below(&s->random, 3));
}

/* Tokens that the right answer takes, and an eighth more. */
static int count_answer(ig_eval_sample *s, const record *r, int n) {
    char *answer = NULL;
    size_t n_answer = 0;
    int64_t units = 0;
    FILE *f = open_memstream(&answer, &n_answer);
    if (f) put_json_list(f, r, n);
    if (!f || fclose(f) != 0)
        s->no_memory = true;
    else
        units = s->o->count(s->o->user, answer, n_answer, s->err);
    free(answer);
    if (units < 0) s->status = s->err->status;
    units /= s->o->token_units;
    return (int)(units + units / 8 + 8);
}

/* An example of two records stands before. */
void ig_eval_build_records(ig_eval_sample *s, const ig_eval_recipe *recipe) {
    enum { EXAMPLE = 2 };
    int n = s->n;
    if (3 * (n + EXAMPLE) > IG_EVAL_SYLLABLES) {
        fail_names(s, recipe, 3 * ((size_t)n + EXAMPLE));
        return;
    }
    record *r = draw_records(s, EXAMPLE + n);
    if (!r) {
        s->no_memory = true;
        return;
    }
    put_people(s, r, EXAMPLE);
    fprintf(s->context, "%s\n[", records_question);
    put_json_list(s->context, r, EXAMPLE);
    fputs("\n\n", s->context);
    put_people(s, r + EXAMPLE, n);
    json_t *expected = json_array();
    for (int i = 0; i < n * FIELDS; i++)
        json_array_append_new(expected, json_sprintf("\"%s\": \"%s\"", field_names[i % FIELDS],
                                                     r[EXAMPLE + i / FIELDS].fields[i % FIELDS]));
    ig_eval_sample_ask(s, records_question, "\n[", expected, count_answer(s, r + EXAMPLE, n));
    free(r);
}
