/* SPDX-License-Identifier: Apache-2.0
 *
 * Text between two others, as editors want it for code: the prompt of a model that has marks for that (FIM), for
 * "suffix" of completions and for /infill, which is llama-server's.
 */
#include "server/parts.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SUFFIX_SHARE = 4, /* of what the context holds one part is for what follows, if that is so long */
    EXTRAS_MAX = 1024
};

/* ---- marks ------------------------------------------------------------------------------------ */

/* The one token that this text is; -1: it is none, or several. */
static int32_t token_of(const ig_model *m, const char *text) {
    int32_t id;
    size_t n = 0;
    bool is_read = text && !ig_tokenize(&n, m, text, strlen(text), IG_TOKENIZE_PARSE_SPECIAL, &id, 1, NULL);
    return is_read && n == 1 ? id : -1;
}

void ig_infill_find(ig_infill_marks *out, const ig_model *m) {
    static const struct {
        const char *prefix, *suffix, *middle, *file, *repository;
    } known[] = {
        {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|file_sep|>", "<|repo_name|>"}, /* Qwen */
        {"<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<file_sep>", "<repo_name>"}, /* StarCoder's tokenizers */
        {"<\uff5cfim\u2581begin\uff5c>", "<\uff5cfim\u2581hole\uff5c>", "<\uff5cfim\u2581end\uff5c>", NULL,
         NULL}, /* DeepSeek */
    };
    *out = (ig_infill_marks){-1, -1, -1, -1, -1};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        ig_infill_marks k = {token_of(m, known[i].prefix), token_of(m, known[i].suffix), token_of(m, known[i].middle),
                             token_of(m, known[i].file), token_of(m, known[i].repository)};
        if (k.prefix < 0 || k.suffix < 0 || k.middle < 0) continue;
        *out = k;
        return;
    }
}

/* ---- the prompt ------------------------------------------------------------------------------- */

static bool append(ig_token_list *to, size_t cap, const int32_t *v, size_t n) {
    if (to->n + n > cap) return false;
    if (n) memcpy(to->v + to->n, v, n * sizeof *v);
    to->n += n;
    return true;
}

/* Other texts of the same work, [{"filename": ..., "text": ...}], each behind its name: as many of the last ones as
 * there is room for. */
static bool add_extras(ig_exchange *x, const json_t *extras, const ig_infill_marks *m, size_t cap, ig_token_list *to) {
    size_t n = json_array_size(extras), first = n, used = 0;
    ig_token_list all[EXTRAS_MAX];
    bool ok = true;
    if (cap <= to->n) return true;
    while (ok && first > 0) {
        const json_t *one = json_array_get(extras, first - 1);
        const char *name = json_string_value(json_object_get(one, "filename")),
                   *text = json_string_value(json_object_get(one, "text"));
        json_t *whole = text ? json_sprintf("%s\n%s\n", name ? name : "", text) : NULL;
        ig_token_list *at = &all[n - first];
        if (!text) ok = ig_refuse(x->call, 400, "input_extra", "input_extra: item %zu has no text", first - 1);
        if (ok && !whole) ok = ig_refuse(x->call, 500, NULL, "out of memory for input_extra");
        ok = ok && ig_tokens_of_part(x->call, "input_extra", json_string_value(whole), json_string_length(whole), cap,
                                     false, at);
        json_decref(whole);
        if (!ok) break;
        used += at->n + 1;
        if (used > cap - to->n) {
            free(at->v);
            break;
        }
        first--;
    }
    size_t n_read = n - first;
    for (size_t i = n_read; i-- > 0;) { /* in their order */
        append(to, cap, &m->file, 1);
        append(to, cap, all[i].v, all[i].n);
        free(all[i].v);
    }
    return ok;
}

/* Of what is before and after the place at most what there is room for, and room for the answer is left. */
static bool make(ig_exchange *x, const ig_infill *in, ig_prompt *p) {
    const ig_server *s = x->call->server;
    const ig_infill_marks *m = &s->infill;
    size_t n_ctx = (size_t)ig_scheduler_ctx(s->scheduler), wanted = (size_t)x->ask.generate.n_predict, n_marks = 8;
    if (x->ask.generate.n_predict < 0 || wanted > n_ctx / 4) wanted = n_ctx / 4;
    if (n_ctx < wanted + 2 * n_marks) return ig_refuse_long(x->call, in->before_field, 0);
    size_t room = n_ctx - wanted - n_marks;
    ig_token_list before = {0}, after = {0}, all = {.v = malloc(n_ctx * sizeof *all.v)};
    int32_t bos = ig_token_bos(s->o->model);
    bool ok = all.v || ig_refuse(x->call, 500, NULL, "out of memory for a prompt");
    ok = ok &&
         ig_tokens_of_part(x->call, in->after_field, in->after, in->n_after, room / SUFFIX_SHARE, false, &after) &&
         ig_tokens_of_part(x->call, in->before_field, in->before, in->n_before, room - after.n, true, &before);
    size_t n_own = before.n + after.n;
    if (ok && ig_token_adds_bos(s->o->model) && bos >= 0) append(&all, n_ctx, &bos, 1);
    if (ok && m->file >= 0 && json_array_size(in->extras)) ok = add_extras(x, in->extras, m, room - n_own, &all);
    if (ok && m->file >= 0 && json_array_size(in->extras)) append(&all, n_ctx, &m->file, 1);
    ok = ok && append(&all, n_ctx, &m->prefix, 1) && append(&all, n_ctx, before.v, before.n) &&
         append(&all, n_ctx, &m->suffix, 1) && append(&all, n_ctx, after.v, after.n) &&
         append(&all, n_ctx, &m->middle, 1);
    free(before.v);
    free(after.v);
    p->ids = all.v;
    p->n_ids = (int)all.n;
    return ok;
}

/* The model's marks end an answer: behind them it would begin another text. */
static bool add_ends(ig_exchange *x, const ig_infill_marks *m) {
    const int32_t marks[] = {m->prefix, m->suffix, m->middle, m->file, m->repository};
    size_t n = x->ask.generate.n_stop_ids;
    int32_t *more = realloc(x->stop_ids, (n + sizeof marks / sizeof *marks) * sizeof *more);
    if (!more) return ig_refuse(x->call, 500, NULL, "out of memory for stop_token_ids");
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        if (marks[i] >= 0) more[n++] = marks[i];
    x->stop_ids = more;
    x->ask.generate.stop_ids = more;
    x->ask.generate.n_stop_ids = n;
    return true;
}

bool ig_infill_prompt(ig_exchange *x, const ig_infill *in) {
    const ig_infill_marks *m = &x->call->server->infill;
    if (m->prefix < 0)
        return ig_refuse(x->call, 400, in->after_field, "this model has no marks for text between two others (FIM)");
    x->prompts = calloc(1, sizeof *x->prompts);
    if (!x->prompts) return ig_refuse(x->call, 500, NULL, "out of memory for a prompt");
    x->n_prompts = 1;
    return make(x, in, &x->prompts[0]) && add_ends(x, m);
}

/* ---- /infill ------------------------------------------------------------------------------------ */

bool ig_infill_read(ig_exchange *x) {
    const char *before = "", *after = "", *line = "";
    const json_t *extras = ig_field(x->body, "input_extra");
    int64_t most_ms = 0;
    if (!ig_field_int(x->call, x->body, "t_max_predict_ms", -1, INT_MAX, &most_ms)) return false;
    x->most_seconds = most_ms > 0 ? (double)most_ms / 1e3 : 0;
    if (!ig_field_text(x->call, x->body, "input_prefix", &before) ||
        !ig_field_text(x->call, x->body, "input_suffix", &after) || !ig_field_text(x->call, x->body, "prompt", &line))
        return false;
    if (extras && (!json_is_array(extras) || json_array_size(extras) > EXTRAS_MAX))
        return ig_refuse(x->call, 400, "input_extra", "input_extra must be a list of at most %d texts", EXTRAS_MAX);
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

json_t *ig_infill_json(ig_exchange *x) {
    const ig_choice *k = &x->choices[0];
    const ig_request_result *r = &k->result;
    const char *end = r->finish == IG_FINISH_END ? "eos" : r->finish == IG_FINISH_STOP ? "word" : "limit";
    size_t n_text = x->only_reads ? 0 : k->n_text;
    int n_tokens = x->only_reads ? 0 : r->n_tokens;
    json_t *text = ig_text_stringn(k->text ? k->text : "", x->is_stream ? 0 : n_text); /* or else it has been told */
    return json_pack("{s:i, s:o, s:b, s:s, s:s, s:i, s:i, s:i, s:b, s:b, s:o, s:o}", "index", 0, "content", text,
                     "stop", 1, "stop_type", end, "model", x->call->server->o->alias, "tokens_predicted", n_tokens,
                     "tokens_evaluated", r->n_prompt, "tokens_cached", r->n_prompt + n_tokens, "truncated", 0,
                     "has_new_line", k->text && memchr(k->text, '\n', n_text) != NULL, "timings", ig_choice_timings(k),
                     "infinigen", ig_choice_cost(k));
}

bool ig_infill_tell(ig_exchange *x, json_t *choice) {
    bool is_last = json_is_string(json_object_get(choice, "finish_reason")), ok = true;
    json_t *text = json_object_get(choice, "text");
    if (is_last)
        ok = ig_stream_event(x, NULL, ig_infill_json(x));
    else if (!x->only_reads && json_string_length(text))
        ok = ig_stream_event(
            x, NULL,
            json_pack("{s:i, s:O, s:b, s:i, s:i}", "index", 0, "content", text, "stop", 0, "tokens_predicted",
                      x->choices[0].n_seen, "tokens_evaluated", x->prompts[0].n_ids));
    json_decref(choice);
    return ok;
}

/* Nothing follows the event that says "stop". */
bool ig_infill_end(ig_exchange *x) {
    (void)x;
    return true;
}
