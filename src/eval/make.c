/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of tasks, and the search for the most filler that fits. How long a
 * sample is grows nearly evenly with its filler, so that a few samples of
 * other sizes tell where to look.
 */
#define _GNU_SOURCE
#include "eval/make_parts.h"

#include <stdlib.h>
#include <string.h>

#define ONE_KEY .n_keys = 1, .n_values = 1, .n_asked = 1

/* What is not named is false, 0, or noise. */
static const ig_eval_recipe recipes[] = {
    {.name = "niah_single_1", .build = ig_eval_build_needles, .least = 1, .haystack = IG_EVAL_NOISE, ONE_KEY},
    {.name = "niah_single_2", .build = ig_eval_build_needles, .least = 1, .haystack = IG_EVAL_ESSAY, ONE_KEY},
    {.name = "niah_single_3",
     .build = ig_eval_build_needles,
     .least = 1,
     .haystack = IG_EVAL_ESSAY,
     .uuid_values = true,
     ONE_KEY},
    {.name = "niah_multikey_1",
     .build = ig_eval_build_needles,
     .least = 1,
     .haystack = IG_EVAL_ESSAY,
     .n_keys = 4,
     .n_values = 1,
     .n_asked = 1},
    {.name = "niah_multikey_2", .build = ig_eval_build_needles, .least = 1, .haystack = IG_EVAL_NEEDLES, ONE_KEY},
    {.name = "niah_multikey_3",
     .build = ig_eval_build_needles,
     .least = 1,
     .haystack = IG_EVAL_NEEDLES,
     .uuid_keys = true,
     .uuid_values = true,
     ONE_KEY},
    {.name = "niah_multivalue",
     .build = ig_eval_build_needles,
     .least = 1,
     .haystack = IG_EVAL_ESSAY,
     .n_keys = 1,
     .n_values = 4,
     .n_asked = 1},
    {.name = "niah_multiquery",
     .build = ig_eval_build_needles,
     .least = 1,
     .haystack = IG_EVAL_ESSAY,
     .n_keys = 4,
     .n_values = 1,
     .n_asked = 4},
    {.name = "vt", .build = ig_eval_build_chain, .least = 5},
    {.name = "cwe", .build = ig_eval_build_common, .least = 1},
    {.name = "fwe", .build = ig_eval_build_frequent, .least = 64},
    {.name = "kv_retrieval", .build = ig_eval_build_pairs, .least = 1, .sweeps = true},
    {.name = "pass_key", .build = ig_eval_build_pass_key, .least = 1, .sweeps = true},
    {.name = "records", .build = ig_eval_build_records, .least = 1},
    {.name = "multi_turn",
     .build = ig_eval_build_turns,
     .least = 1,
     .haystack = IG_EVAL_ESSAY,
     .n_keys = 10,
     .n_values = 1,
     .n_asked = 5},
    {.name = "facts_1", .build = ig_eval_build_facts, .match = "any", .least = 1},
    {.name = "facts_2", .build = ig_eval_build_facts, .match = "any", .least = 1, .harder = true},
    {.name = "number_string", .build = ig_eval_build_pass_key, .least = 1, .sweeps = true, .harder = true},
    {.name = "math_find", .build = ig_eval_build_find, .match = "number", .least = 4},
    {.name = "code_run", .build = ig_eval_build_calls, .match = "number", .least = 20},
};

enum { N_RECIPES = sizeof recipes / sizeof recipes[0] };

const char *ig_eval_make_name(size_t i) { return i < N_RECIPES ? recipes[i].name : NULL; }

/* ---- what builders call -------------------------------------------------------- */

void ig_eval_sample_ask(ig_eval_sample *s, const char *question, const char *prefix, json_t *answers, int max_tokens) {
    json_t *turn = json_pack("{s:s, s:s, s:o, s:s, s:i}", "question", question, "answer_prefix", prefix, "answers",
                             answers, "match", s->recipe->match ? s->recipe->match : "all", "max_tokens", max_tokens);
    if (!turn || json_array_append_new(s->turns, turn) != 0) s->no_memory = true;
}

double ig_eval_sample_depth(const ig_eval_sample *s) {
    return s->o->n_all > 1 ? (double)s->o->i_sample / (double)(s->o->n_all - 1) : 0.5;
}

uint32_t *ig_eval_sample_names(ig_eval_sample *s, size_t n, bool syllables) {
    uint32_t *names = syllables ? ig_eval_syllable_names(&s->random, n) : ig_eval_names(&s->random, n);
    if (!names && n > IG_EVAL_SYLLABLES)
        s->status = ig_text_fail(s->err, IG_E_ARG, "%s: there are no %zu different names", s->recipe->name, n);
    else if (!names)
        s->no_memory = true;
    return names;
}

/* ---- one build ----------------------------------------------------------------- */

static ig_status count(int64_t *out, const ig_eval_sample *s, const char *text, size_t n) {
    *out = s->o->count(s->o->user, text, n, s->err);
    return *out >= 0 ? IG_OK : s->err->status;
}

/* Units of the sample whose context is `text`: all that is read, as one text, and all that may be written. */
static ig_status measure(int64_t *out, const ig_eval_sample *s, const char *text) {
    char *all = NULL;
    size_t n = 0, i;
    int64_t made = 0;
    json_t *turn;
    FILE *f = open_memstream(&all, &n);
    if (!f) return ig_text_fail(s->err, IG_E_MEMORY, "out of memory for a sample");
    fputs(text, f);
    json_array_foreach(s->turns, i, turn) {
        fputs(json_string_value(json_object_get(turn, "question")), f);
        fputs(json_string_value(json_object_get(turn, "answer_prefix")), f);
        made += json_integer_value(json_object_get(turn, "max_tokens")) * s->o->token_units;
    }
    ig_status status = fclose(f) == 0 ? count(out, s, all, n)
                                      : ig_text_fail(s->err, IG_E_MEMORY, "out of memory for a sample of %zu bytes", n);
    free(all);
    *out += made;
    return status;
}

typedef struct built {
    char *context;
    json_t *turns;
    int64_t size;
} built;

static void drop(built *b) {
    free(b->context);
    json_decref(b->turns);
    *b = (built){0};
}

/* The sample with n units of filler. */
static ig_status build(built *out, const ig_eval_recipe *recipe, const ig_eval_make_options *o, int n, ig_error *err) {
    char start[128];
    size_t n_context = 0;
    ig_eval_sample s = {.recipe = recipe, .o = o, .n = n, .turns = json_array(), .err = err};
    *out = (built){.turns = s.turns};
    snprintf(start, sizeof start, "%s/%d/%d/%d", recipe->name, o->length, o->i_sample, o->seed);
    s.random = ig_eval_random_of(start);
    s.context = open_memstream(&out->context, &n_context);
    if (s.context) recipe->build(&s);
    if (s.context && fclose(s.context) != 0) s.no_memory = true;
    if (!s.context || !s.turns || s.no_memory)
        s.status = ig_text_fail(err, IG_E_MEMORY, "%s: out of memory for %d units of filler", recipe->name, n);
    if (!s.status) s.status = measure(&out->size, &s, out->context);
    if (s.status) drop(out);
    return s.status;
}

/* ---- the most that fits --------------------------------------------------------- */

enum { FILLER_MAX = 1 << 22 };

typedef struct search {
    const ig_eval_recipe *recipe;
    const ig_eval_make_options *o;
    ig_error *err;
    built best;         /* of `fits` units */
    int fits, too_many; /* too_many: 0 until known */
    int64_t size_too_many;
} search;

static ig_status try(search *s, int n) {
    built b;
    ig_status status = build(&b, s->recipe, s->o, n, s->err);
    if (status) return status;
    if (b.size <= s->o->length) {
        drop(&s->best);
        s->best = b;
        s->fits = n;
    } else {
        s->too_many = n;
        s->size_too_many = b.size;
        drop(&b);
    }
    return IG_OK;
}

/* Where the length would be reached if it grew evenly from `a` units to `b`; within the two ends. */
static int aim(const search *s, int a, int64_t size_a, int b, int64_t size_b, int64_t low, int64_t high) {
    int64_t rise = size_b > size_a ? size_b - size_a : 1, at = a + (s->o->length - size_a) * (b - a) / rise;
    return (int)(at < low ? low : at > high ? high : at);
}

/* From two small samples to one beyond the length, and then between what fits and what does not. Every third step
 * halves what is left, so that the search ends soon whatever the sizes are. */
static ig_status find_most(search *s) {
    int least = s->recipe->least;
    ig_status status = try(s, least);
    if (status) return status;
    if (s->too_many)
        return ig_text_fail(s->err, IG_E_LIMIT, "%s does not fit into a length of %d: it takes at least %lld",
                            s->recipe->name, s->o->length, (long long)s->size_too_many);
    int64_t size_least = s->best.size;
    for (int step = least > 16 ? least : 16; !status && !s->too_many && s->fits < FILLER_MAX; step *= 2) {
        int n = s->fits == least
                    ? least + step
                    : aim(s, least, size_least, s->fits, s->best.size, s->fits + 1, FILLER_MAX) + step / 16;
        status = try(s, n < FILLER_MAX ? n : FILLER_MAX);
    }
    for (int i = 1; !status && s->too_many - s->fits > 1; i++) {
        int middle = s->fits + (s->too_many - s->fits) / 2;
        status = try(s, i % 3 == 0 ? middle
                                   : aim(s, s->fits, s->best.size, s->too_many, s->size_too_many, (int64_t)s->fits + 1,
                                         (int64_t)s->too_many - 1));
    }
    return status;
}

/* A sample with one question has its fields, one with several has a list of them. */
static json_t *line_of(const search *s) {
    json_t *line =
        json_pack("{s:s, s:i, s:s}", "task", s->recipe->name, "length", s->o->length, "context", s->best.context);
    if (!line) return NULL;
    json_object_set_new(line, "size", json_integer((json_int_t)s->best.size));
    if (s->recipe->sweeps) {
        ig_eval_sample sample = {.o = s->o};
        json_object_set_new(line, "depth", json_real(ig_eval_sample_depth(&sample)));
    }
    if (json_array_size(s->best.turns) == 1)
        json_object_update(line, json_array_get(s->best.turns, 0));
    else
        json_object_set(line, "questions", s->best.turns);
    return line;
}

ig_status ig_eval_make(json_t **out, const char *task, const ig_eval_make_options *options, ig_error *err) {
    search s = {.o = options, .err = err};
    *out = NULL;
    for (size_t i = 0; i < N_RECIPES; i++)
        if (strcmp(recipes[i].name, task) == 0) s.recipe = &recipes[i];
    if (!s.recipe) return ig_text_fail(err, IG_E_NOT_FOUND, "no task '%s'", task);
    ig_status status = find_most(&s);
    if (!status) *out = line_of(&s);
    if (!status && !*out) status = ig_text_fail(err, IG_E_MEMORY, "%s: out of memory for a sample", task);
    drop(&s.best);
    return status;
}
