/* SPDX-License-Identifier: Apache-2.0
 *
 * Completions and texts between two others (/infill) as llama-server has its own: an answer for each prompt, and
 * replies that are flat.
 */
#include "server/api.h"

#include <string.h>

/* ---- prompts -------------------------------------------------------------------------------------- */

/* Beside those that are read what clients send, and would change little or nothing. */
#define IDLE "t_max_prompt_ms", "t_max_predict_ms", "n_indent"

static bool read_both_sides(ig_exchange *x) {
    const char *before = "", *after = "", *line = "";
    const json_t *extras = ig_field(x->body, "input_extra");
    if (!ig_field_text(x->call, x->body, "input_prefix", &before) ||
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
    size_t n_text = x->only_reads ? 0 : k->n_text;
    json_t *text = ig_text_stringn(k->text ? k->text : "", x->is_stream ? 0 : n_text); /* or else it has been told */
    json_t *out = json_pack("{s:i, s:o, s:O*, s:b, s:s, s:s, s:s, s:i, s:i, s:i, s:b, s:b, s:o, s:o}", "index", (int)i,
                            "content", text, "tokens", x->only_reads ? NULL : ids, "stop", 1, "stop_type", why,
                            "stopping_word", word, "model", x->model_name, "tokens_predicted", r->n_tokens,
                            "tokens_evaluated", r->n_prompt, "tokens_cached", r->n_prompt + r->n_tokens, "truncated", 0,
                            "has_new_line", k->text && memchr(k->text, '\n', n_text) != NULL, "timings",
                            ig_choice_timings(k), "infinigen", ig_choice_cost(k));
    return with_scores(out, x->only_reads ? json_null() : ig_choice_logprobs(k, k->n_tokens - k->n_tokens_sent));
}

/* A list, if there are several prompts. */
static json_t *reply(ig_exchange *x) {
    json_t *all = json_array();
    bool ok = true;
    for (size_t i = 0; i < x->n_choices; i++) {
        json_t *ids = x->returns_ids ? ig_choice_new_ids(&x->choices[i]) : NULL, *one = reply_with(x, i, ids);
        json_decref(ids);
        ok &= json_array_append_new(all, one) == 0;
    }
    if (!ok || x->n_choices != 1) return ig_json_if(ok, all);
    json_t *only = json_incref(json_array_get(all, 0));
    json_decref(all);
    return only;
}

static bool tell(ig_exchange *x, json_t *choice) {
    bool is_last = json_is_string(json_object_get(choice, "finish_reason")), ok = true;
    size_t i = (size_t)json_integer_value(json_object_get(choice, "index"));
    json_t *text = json_object_get(choice, "text"), *scores = json_object_get(choice, "logprobs"),
           *ids = json_object_get(choice, "token_ids");
    if (is_last)
        ok = ig_stream_event(x, NULL, reply_with(x, i, ids));
    else if (!x->only_reads && (json_string_length(text) || json_array_size(scores)))
        ok = ig_stream_event(x, NULL,
                             with_scores(json_pack("{s:i, s:O, s:O*, s:b, s:i, s:i}", "index", (int)i, "content", text,
                                                   "tokens", ids, "stop", 0, "tokens_predicted", x->choices[i].n_seen,
                                                   "tokens_evaluated", x->prompts[x->choices[i].prompt].n_ids),
                                         json_incref(scores)));
    json_decref(choice);
    return ok;
}

/* Nothing follows the events that say "stop". */
static bool end(ig_exchange *x) {
    (void)x;
    return true;
}

static const char *const native_fields[] = {"prompt", "n_probs", IDLE, NULL};
static const char *const infill_fields[] = {"prompt", "input_prefix", "input_suffix", "input_extra", "n_probs", IDLE,
                                            NULL};

const ig_api ig_api_native = {.prefix = "cmpl-",
                              .texts = "prompt",
                              .fields = native_fields,
                              .is_native = true,
                              .samples_as_run = true,
                              .read = ig_exchange_read_prompts,
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
