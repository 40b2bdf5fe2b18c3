/* SPDX-License-Identifier: Apache-2.0
 *
 * Made tasks about people: records to be written down again, and documents
 * from which one fact is asked.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "eval/make_parts.h"

enum { FIELDS = 5, NAMES = 3, FACT_TOKENS = 32 }; /* NAMES: of a person alone, so that no two have a fact in common */

static const char *const first_names[] = {"Ada",  "Boris", "Clara", "David", "Edith", "Felix", "Greta", "Hugo",
                                          "Irma", "Jonas", "Karin", "Louis", "Marta", "Nils",  "Olga",  "Peter"};

#define COUNT(list) (sizeof(list) / sizeof(list)[0])

static void capital_name(char out[IG_EVAL_NAME_BYTES], uint32_t name) {
    ig_eval_name(out, name);
    out[0] = (char)(out[0] - 'a' + 'A');
}

/* ---- records ------------------------------------------------------------------------------- */

static const char *const field_names[FIELDS] = {"name", "town", "firm", "number", "telephone"};
typedef struct record {
    char fields[FIELDS][48];
} record;

/* With three names of its own: no field of one record is a field of another. */
static void draw_record(record *out, ig_eval_sample *s, const uint32_t names[NAMES], int i) {
    char word[NAMES][IG_EVAL_NAME_BYTES];
    for (int k = 0; k < NAMES; k++) capital_name(word[k], names[k]);
    snprintf(out->fields[0], sizeof out->fields[0], "%s %s",
             first_names[ig_eval_random_below(&s->random, COUNT(first_names))], word[0]);
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

/* NULL: the sample says why. */
static record *draw_records(ig_eval_sample *s, int n) {
    uint32_t *names = ig_eval_sample_names(s, NAMES * (size_t)n, true);
    record *r = names ? malloc((size_t)n * sizeof *r) : NULL;
    if (names && !r) s->no_memory = true;
    for (int i = 0; r && i < n; i++) draw_record(&r[i], s, names + NAMES * i, i);
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
void ig_eval_build_records(ig_eval_sample *s) {
    enum { EXAMPLE = 2 };
    int n = s->n;
    record *r = draw_records(s, EXAMPLE + n);
    if (!r) return;
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

/* ---- documents ------------------------------------------------------------------------------ */

static const char *const trades[] = {"baker",  "clockmaker", "surveyor", "printer", "gardener", "nurse",
                                     "lawyer", "tailor",     "painter",  "teacher", "chemist",  "bookkeeper"};
static const char *const habits[] = {"keeps bees behind the house", "plays the violin on Sundays",
                                     "collects old maps",           "walks to work in all weathers",
                                     "speaks four languages",       "has never learned to swim",
                                     "repairs bicycles for others", "reads one newspaper a week"};

typedef struct person {
    char name[48], town[IG_EVAL_NAME_BYTES], firm[IG_EVAL_NAME_BYTES];
    const char *first, *trade;
    int year, spouse;
} person;

static void draw_person(person *out, ig_eval_sample *s, const uint32_t names[NAMES]) {
    char surname[IG_EVAL_NAME_BYTES];
    out->first = first_names[ig_eval_random_below(&s->random, COUNT(first_names))];
    out->trade = trades[ig_eval_random_below(&s->random, COUNT(trades))];
    out->year = 1900 + (int)ig_eval_random_below(&s->random, 100);
    capital_name(surname, names[0]);
    capital_name(out->town, names[1]);
    capital_name(out->firm, names[2]);
    snprintf(out->name, sizeof out->name, "%s %s", out->first, surname);
}

/* Five to eight sentences, those behind the first in an order that is drawn. */
static void put_document(ig_eval_sample *s, int number, const person *all, const person *p) {
    enum { FACTS = 4 };
    FILE *f = s->context;
    uint32_t order[FACTS + COUNT(habits)];
    size_t n = FACTS + ig_eval_random_below(&s->random, 4),
           first_habit = ig_eval_random_below(&s->random, COUNT(habits));
    for (size_t i = 0; i < n; i++) order[i] = (uint32_t)i;
    ig_eval_random_shuffle(&s->random, order, n);
    fprintf(f, "Document %d:\nThis is about %s.", number, p->name);
    for (size_t i = 0; i < n; i++) {
        fprintf(f, " %s ", p->first);
        if (order[i] == 0)
            fprintf(f, "was born in %s in %d.", p->town, p->year);
        else if (order[i] == 1)
            fprintf(f, "is a %s by trade.", p->trade);
        else if (order[i] == 2)
            fprintf(f, "works for %s.", p->firm);
        else if (order[i] == 3)
            fprintf(f, "is married to %s.", all[p->spouse].name);
        else
            fprintf(f, "%s.", habits[(first_habit + order[i]) % COUNT(habits)]);
    }
    fputs("\n\n", f);
}

/* One fact of the person, or where the person's spouse was born. */
static void ask_fact(ig_eval_sample *s, const person *all, const person *p) {
    const char *spouse = all[p->spouse].name;
    char question[160], prefix[160], year[16];
    snprintf(year, sizeof year, "%d", p->year);
    const struct {
        const char *question, *prefix, *answer;
    } facts[] = {{"Where was %s born?", "%s was born in", p->town},
                 {"In which year was %s born?", "%s was born in the year", year},
                 {"What is the trade of %s?", "The trade of %s is that of a", p->trade},
                 {"For which firm does %s work?", "%s works for", p->firm},
                 {"To whom is %s married?", "%s is married to", spouse},
                 {"Where was the person born to whom %s is married?", "The person to whom %s is married was born in",
                  all[p->spouse].town}};
    size_t i = s->recipe->harder ? COUNT(facts) - 1 : (size_t)s->o->i_sample % (COUNT(facts) - 1);
    char asked[80], begun[80];
    snprintf(asked, sizeof asked, facts[i].question, p->name);
    snprintf(begun, sizeof begun, facts[i].prefix, p->name);
    snprintf(question, sizeof question, "Question: %s Answer from the documents above, in a few words.", asked);
    snprintf(prefix, sizeof prefix, " Answer: %s", begun);
    ig_eval_sample_ask(s, question, prefix, json_pack("[s]", facts[i].answer), FACT_TOKENS);
}

/* A unit of filler is a couple: two documents, which stand anywhere. */
void ig_eval_build_facts(ig_eval_sample *s) {
    size_t n = 2 * (size_t)s->n;
    uint32_t *names = ig_eval_sample_names(s, NAMES * n, true);
    if (!names) return;
    uint32_t *order = ig_eval_random_draw(&s->random, n, n);
    person *all = malloc(n * sizeof *all);
    if (order && all) {
        for (size_t i = 0; i < n; i++) {
            draw_person(&all[i], s, names + NAMES * i);
            all[i].spouse = (int)(i ^ 1);
        }
        fputs("Read the documents below. You will be asked about one of them afterwards.\n\n", s->context);
        for (size_t i = 0; i < n; i++) put_document(s, (int)i + 1, all, &all[order[i]]);
        ask_fact(s, all, &all[ig_eval_random_below(&s->random, n)]);
    } else
        s->no_memory = true;
    free(all);
    free(order);
    free(names);
}
