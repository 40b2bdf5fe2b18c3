/* SPDX-License-Identifier: Apache-2.0
 *
 * Documents in the order in which they answer a query. Each is a prompt, with the query, that asks whether it does; the
 * model's answer is a number that the last state makes (ig_model_rank()).
 */
#include "server/api.h"

#include <stdlib.h>
#include <string.h>

/* What Qwen3-Reranker was trained with (its model card), around query and document. */
static const char before[] =
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query "
    "and the Instruct provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n"
    "<|im_start|>user\n<Instruct>: ",
                  usual[] = "Given a web search query, retrieve relevant passages that answer the query",
                  between[] = "\n<Query>: ", middle[] = "\n<Document>: ",
                  after[] = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";

/* ---- requests -------------------------------------------------------------------------------- */

enum { PROMPTS_BYTES_MAX = 64 << 20 }; /* of all prompts, each of which has the query */

/* A document is a text, or has one. */
static const char *text_of(const json_t *document) {
    return json_string_value(json_is_object(document) ? ig_field(document, "text") : document);
}

/* "documents", or "texts" as Text Embeddings Inference calls them. */
static json_t *documents_of(const json_t *body, bool *is_tei) {
    json_t *texts = ig_field(body, "texts");
    *is_tei = texts && !ig_field(body, "documents");
    return *is_tei ? texts : ig_field(body, "documents");
}

static bool translate(ig_translation *t) {
    static const char *const known[] = {
        "query",       "documents", "texts",      "top_n", "model", "instruct",   "return_documents",
        "return_text", "truncate",  "raw_scores", "user",  "lora",  "cache_salt", "infinigen",
        NULL};
    static const char *const kept[] = {"model", "lora", "cache_salt", "infinigen", NULL};
    const char *query = NULL, *instruct = usual;
    bool is_tei, flag, is_raw = false;
    int64_t most;
    json_t *documents = documents_of(t->body, &is_tei), *one;
    const char *field = is_tei ? "texts" : "documents";
    size_t i;
    if (!t->call->server->info.ranks)
        return ig_refuse(t->call, 400, NULL,
                         "this model does not rank: one for that is needed, such as Qwen3-Reranker");
    if (!ig_field_others(t->call, t->body, "", known) || !ig_field_text(t->call, t->body, "query", &query) ||
        !ig_field_text(t->call, t->body, "instruct", &instruct) ||
        !ig_field_int(t->call, t->body, "top_n", 1, INT32_MAX, &most) ||
        !ig_field_bool(t->call, t->body, "return_documents", &flag) ||
        !ig_field_bool(t->call, t->body, "return_text", &flag) ||
        !ig_field_bool(t->call, t->body, "truncate", &flag) || /* what is too long is refused in any case */
        !ig_field_bool(t->call, t->body, "raw_scores", &is_raw))
        return false;
    if (is_raw) return ig_refuse(t->call, 400, "raw_scores", "raw_scores must be false: scores are from 0 to 1");
    if (!query) return ig_refuse(t->call, 400, "query", "query is missing");
    if (!json_is_array(documents) || json_array_size(documents) == 0)
        return ig_refuse(t->call, 400, field, "%s must be a list of texts", field);
    size_t n_each = sizeof before + sizeof after + strlen(instruct) + strlen(query), n = json_array_size(documents);
    if (n_each > PROMPTS_BYTES_MAX / n)
        return ig_refuse(t->call, 400, field, "%zu texts are too many, each with a query of %zu bytes", n,
                         strlen(query));
    json_object_clear(t->out);
    json_t *prompts = json_array();
    ig_translation_set(t, t->out, "prompt", prompts);
    json_array_foreach(documents, i, one) {
        const char *text = text_of(one);
        if (!text) return ig_refuse(t->call, 400, field, "%s: item %zu is no text", field, i);
        ig_translation_append(t, prompts,
                              json_sprintf("%s%s%s%s%s%s%s", before, instruct, between, query, middle, text, after));
    }
    for (const char *const *k = kept; *k; k++)
        if (ig_field(t->body, *k)) ig_translation_set(t, t->out, *k, json_incref(ig_field(t->body, *k)));
    return true;
}

static json_t *body(ig_call *c, const json_t *body) { return ig_translate(c, body, translate); }

/* ---- replies --------------------------------------------------------------------------------- */

typedef struct score {
    size_t document;
    double value;
} score;

/* The best first, of equal ones that which comes first. */
static int compare(const void *a, const void *b) {
    const score *x = a, *y = b;
    if (x->value != y->value) return x->value < y->value ? 1 : -1;
    return x->document < y->document ? -1 : 1;
}

static json_t *result_json(const score *s, const json_t *documents, bool is_tei, bool has_text) {
    json_t *out =
        json_pack("{s:I, s:f}", "index", (json_int_t)s->document, is_tei ? "score" : "relevance_score", s->value);
    const char *text = text_of(json_array_get(documents, s->document));
    if (!has_text || !out) return out;
    json_t *own = is_tei ? json_string(text) : json_pack("{s:s}", "text", text);
    return ig_json_if(json_object_set_new(out, is_tei ? "text" : "document", own) == 0, out);
}

static json_t *reply(ig_exchange *x) {
    bool is_tei, has_text = false;
    const json_t *documents = documents_of(x->given, &is_tei);
    json_t *list = json_array();
    json_int_t n_tokens = 0;
    int64_t most = (int64_t)x->n_choices;
    score *all = calloc(x->n_choices, sizeof *all);
    bool ok = all && list;
    ig_field_int(x->call, x->given, "top_n", 1, INT32_MAX, &most);
    ig_field_bool(x->call, x->given, is_tei ? "return_text" : "return_documents", &has_text);
    for (size_t i = 0; ok && i < x->n_choices; i++)
        all[i] = (score){i, ig_model_rank(x->call->server->o->model, x->choices[i].vector)};
    for (size_t i = 0; i < x->n_prompts; i++) n_tokens += x->prompts[i].n_ids;
    if (ok) qsort(all, x->n_choices, sizeof *all, compare);
    for (size_t i = 0; ok && i < x->n_choices && (int64_t)i < most; i++)
        ok = json_array_append_new(list, result_json(&all[i], documents, is_tei, has_text)) == 0;
    free(all);
    list = ig_json_if(ok, list);
    if (!list || is_tei) return list;
    return json_pack("{s:s, s:s, s:o, s:{s:I, s:I}}", "object", "list", "model", x->model_name, "results", list,
                     "usage", "prompt_tokens", n_tokens, "total_tokens", n_tokens);
}

static const char *const fields[] = {"prompt", NULL};
const ig_api ig_api_rerank = {.prefix = "rank-",
                              .object = "list",
                              .fields = fields,
                              .read = ig_exchange_read_prompts,
                              .wants_states = true,
                              .texts = "documents",
                              .translate = body,
                              .reply = reply};
