/* SPDX-License-Identifier: Apache-2.0
 *
 * Text between two others, as editors want it for code: the prompt of a model that has marks for that (FIM), for
 * "suffix" of completions and for /infill (native.c).
 */
#include "server/exchange.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUFFIX_SHARE = 4 /* of what the context holds one part is for what follows, if that is so long */ };

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
    ig_token_list all[IG_INFILL_EXTRAS_MAX];
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
