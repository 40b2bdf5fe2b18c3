/* SPDX-License-Identifier: Apache-2.0
 *
 * Completions and texts between two others (/infill) as llama-server has its own: an answer for each prompt, and
 * replies that are flat.
 */
#define _GNU_SOURCE
#include "server/api.h"

#include <stdio.h>
#include <string.h>

/* ---- prompts -------------------------------------------------------------------------------------- */

/* Beside those that are read what clients send, and would change little or nothing. */
#define IDLE "t_max_prompt_ms", "n_indent"

enum { FIELDS_MAX = 64, FIELD_BYTES_MAX = 128 }; /* of a reply that are wanted */

static bool check_wanted(ig_exchange *x) {
    const json_t *wanted = ig_field(x->body, "response_fields");
    size_t i;
    json_t *name;
    bool are_names = !wanted || (json_is_array(wanted) && json_array_size(wanted) <= FIELDS_MAX);
    json_array_foreach(wanted, i, name) are_names &=
        json_is_string(name) && json_string_length(name) <= FIELD_BYTES_MAX;
    return are_names || ig_refuse(x->call, 400, "response_fields",
                                  "response_fields must be a list of at most %d names, of up to %d bytes", FIELDS_MAX,
                                  FIELD_BYTES_MAX);
}

static bool read_prompts(ig_exchange *x) { return check_wanted(x) && ig_exchange_read_prompts(x); }

static bool read_both_sides(ig_exchange *x) {
    const char *before = "", *after = "", *line = "";
    const json_t *extras = ig_field(x->body, "input_extra");
    if (!check_wanted(x) || !ig_field_text(x->call, x->body, "input_prefix", &before) ||
        !ig_field_text(x->call, x->body, "input_suffix", &after) || !ig_field_text(x->call, x->body, "prompt", &line))
        return false;
    if (extras && (!json_is_array(extras) || json_array_size(extras) > IG_INFILL_EXTRAS_MAX))
        return ig_refuse(x->call, 400, "input_extra", "input_extra must be a list of at most %d texts",
                         IG_INFILL_EXTRAS_MAX);
    json_t *both = json_sprintf("%s%s", before, line);
    bool ok = both || ig_refuse(x->call, 500, NULL, "out of memory for input_prefix");
    ok = ok && ig_infill_prompt(x, &(ig_infill){.before_field = "input_prefix",
                                                .before = json_string_value(both),
                                                .n_before = json_string_length(both),
                                                .after_field = "input_suffix",
                                                .after = after,
                                                .n_after = strlen(after),
                                                .extras = extras});
    json_decref(both);
    return ok;
}

/* ---- replies -------------------------------------------------------------------------------------- */

/* Takes `value`, of which its tokens' scores become a part, if there are any. */
static json_t *with_scores(json_t *value, json_t *scores) {
    bool ok =
        scores && (json_array_size(scores) == 0 || json_object_set(value, "completion_probabilities", scores) == 0);
    json_decref(scores);
    return ig_json_if(ok, value);
}

/* `ids` are those of tokens that have not been told; NULL: nobody asks. */
static json_t *reply_with(ig_exchange *x, size_t i, json_t *ids) {
    ig_choice *k = &x->choices[i];
    const ig_request_result *r = &k->result;
    const char *why = r->finish == IG_FINISH_END ? "eos" : r->finish == IG_FINISH_STOP ? "word" : "limit";
    const char *word = r->finish == IG_FINISH_STOP ? x->stops[r->stop] : "";
    json_t *text = ig_text_stringn(k->text ? k->text : "", x->is_stream ? 0 : k->n_text); /* or else it has been told */
    json_t *out = json_pack("{s:i, s:o, s:O*, s:b, s:s, s:s, s:s, s:i, s:i, s:i, s:b, s:b, s:o, s:o}", "index", (int)i,
                            "content", text, "tokens", ids, "stop", 1, "stop_type", why, "stopping_word", word, "model",
                            x->model_name, "tokens_predicted", r->n_tokens, "tokens_evaluated", r->n_prompt,
                            "tokens_cached", r->n_prompt + r->n_tokens, "truncated", 0, "has_new_line",
                            k->text && memchr(k->text, '\n', k->n_text) != NULL, "timings", ig_choice_timings(k),
                            "infinigen", ig_choice_cost(k));
    return with_scores(out, ig_choice_logprobs(k, k->n_tokens - k->n_tokens_sent));
}

/* Of a reply, which it takes, the fields that are wanted, if that is said: "a/b" is b of a, under this name. */
static json_t *pick_fields(const ig_exchange *x, json_t *all) {
    const json_t *wanted = ig_field(x->body, "response_fields");
    size_t i;
    json_t *name, *some = json_array_size(wanted) ? json_object() : json_incref(all);
    bool ok = some != NULL;
    json_array_foreach(wanted, i, name) {
        char path[FIELD_BYTES_MAX + 1], *rest = NULL;
        snprintf(path, sizeof path, "%s", json_string_value(name));
        char *part = strtok_r(path, "/", &rest);
        json_t *value = part ? json_object_get(all, part) : NULL;
        while ((part = strtok_r(NULL, "/", &rest))) value = json_object_get(value, part);
        if (value) ok = ok && json_object_set(some, json_string_value(name), value) == 0;
    }
    json_decref(all);
    return ig_json_if(ok, some);
}

/* A list, if there are several prompts. */
static json_t *reply(ig_exchange *x) {
    json_t *all = json_array();
    bool ok = true;
    for (size_t i = 0; i < x->n_choices; i++) {
        json_t *ids = x->returns_ids ? ig_choice_new_ids(&x->choices[i]) : NULL, *one = reply_with(x, i, ids);
        json_decref(ids);
        ok &= json_array_append_new(all, pick_fields(x, one)) == 0;
    }
    if (!ok || x->n_choices != 1) return ig_json_if(ok, all);
    json_t *only = json_incref(json_array_get(all, 0));
    json_decref(all);
    return only;
}

static bool tell_part(ig_exchange *x, size_t i, const json_t *choice, json_t *ids) {
    json_t *event = json_pack("{s:i, s:O, s:O*, s:b, s:i, s:i}", "index", (int)i, "content",
                              json_object_get(choice, "text"), "tokens", ids, "stop", 0, "tokens_predicted",
                              x->choices[i].n_seen, "tokens_evaluated", x->prompts[x->choices[i].prompt].n_ids);
    if (event) ig_stream_add_course(x, event, choice);
    return ig_stream_event(x, NULL, with_scores(event, json_incref(json_object_get(choice, "logprobs"))));
}

static bool tell(ig_exchange *x, json_t *choice) {
    bool is_last = json_is_string(json_object_get(choice, "finish_reason")), ok = true;
    size_t i = (size_t)json_integer_value(json_object_get(choice, "index"));
    json_t *text = json_object_get(choice, "text"), *scores = json_object_get(choice, "logprobs"),
           *ids = json_object_get(choice, "token_ids");
    bool has_news = json_string_length(text) || json_array_size(scores);
    if (is_last)
        ok = ig_stream_event(x, NULL, pick_fields(x, reply_with(x, i, ids)));
    else if (x->choices[i].is_progress_new || has_news)
        ok = tell_part(x, i, choice, ids);
    json_decref(choice);
    return ok;
}

/* Nothing follows the events that say "stop". */
static bool end(ig_exchange *x) {
    (void)x;
    return true;
}

static const char *const native_fields[] = {"prompt", "n_probs", "response_fields", "t_max_predict_ms", IDLE, NULL};
static const char *const infill_fields[] = {"prompt",           "input_prefix", "input_suffix",
                                            "input_extra",      "n_probs",      "response_fields",
                                            "t_max_predict_ms", IDLE,           NULL};

const ig_api ig_api_native = {.prefix = "cmpl-",
                              .texts = "prompt",
                              .fields = native_fields,
                              .is_native = true,
                              .samples_as_run = true,
                              .read = read_prompts,
                              .reply = reply,
                              .tell = tell,
                              .end = end},
             ig_api_infill = {.prefix = "cmpl-",
                              .texts = "prompt",
                              .fields = infill_fields,
                              .is_native = true,
                              .samples_as_run = true,
                              .read = read_both_sides,
                              .reply = reply,
                              .tell = tell,
                              .end = end};
