/* SPDX-License-Identifier: Apache-2.0
 *
 * The routes that compute nothing: what the server is, its model, its tokens.
 */
#define _GNU_SOURCE
#include "server/exchange.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the server --------------------------------------------------------------------------- */

void ig_route_health(ig_call *c) {
    if (!atomic_load(&c->server->is_draining)) {
        ig_reply_json(c, json_pack("{s:s}", "status", "ok"));
        return;
    }
    ig_refuse(c, 503, NULL, "the server is being shut down");
    c->refusal.may_retry = true;
}

void ig_route_version(ig_call *c) { ig_reply_json(c, json_pack("{s:s}", "version", ig_version())); }

/* The scheduler never waits for this: it shows the state after the last step. */
void ig_route_slots(ig_call *c) {
    json_t *list = json_array();
    ig_scheduler_place p;
    for (int i = 0; ig_scheduler_get_place(c->server->scheduler, i, &p); i++)
        json_array_append_new(
            list, json_pack("{s:i, s:b, s:I, s:i, s:i, s:i, s:i, s:I, s:I, s:s}", "id", i, "is_processing", p.is_busy,
                            "id_task", (json_int_t)p.request, "n_ctx", ig_scheduler_ctx(c->server->scheduler),
                            "n_prompt_tokens", p.n_prompt, "n_past", p.n_held, "n_decoded", p.n_tokens, "kv_bytes",
                            (json_int_t)p.kv_bytes, "disk_bytes", (json_int_t)p.disk_bytes, "policy", p.policy));
    ig_reply_json(c, list);
}

/* ---- the model -------------------------------------------------------------------------------- */

json_t *ig_model_entry(json_t *model, int64_t created) {
    json_t *name = json_object_get(model, "id");
    bool ok = model && json_object_set_new(model, "type", json_string("model")) == 0 &&
              json_object_set(model, "display_name", name) == 0 &&
              json_object_set_new(model, "created_at", ig_json_time((time_t)created)) == 0;
    return ig_json_if(ok, model);
}

json_t *ig_models_list(json_t *list) {
    size_t n = json_array_size(list);
    json_t *first = json_object_get(json_array_get(list, 0), "id"),
           *last = json_object_get(json_array_get(list, n ? n - 1 : 0), "id");
    return json_pack("{s:s, s:o, s:b, s:O?, s:O?}", "object", "list", "data", list, "has_more", 0, "first_id", first,
                     "last_id", last);
}

static json_t *model_json(const ig_server *s) {
    return json_pack("{s:s, s:s, s:I, s:s, s:{s:I, s:I, s:i, s:i, s:i, s:s}}", "id", s->o->alias, "object", "model",
                     "created", (json_int_t)s->created, "owned_by", "infinigen", "meta", "n_params",
                     (json_int_t)s->info.n_params, "size", (json_int_t)s->info.weight_bytes, "n_ctx",
                     ig_scheduler_ctx(s->scheduler), "n_ctx_train", s->info.n_ctx_train, "n_vocab", s->info.n_vocab,
                     "architecture", s->info.architecture);
}

/* As vLLM lists them. */
static json_t *adapter_json(const ig_server *s, size_t number) {
    return json_pack("{s:s, s:s, s:I, s:s, s:s, s:o}", "id", ig_server_name(s, number), "object", "model", "created",
                     (json_int_t)s->created, "owned_by", "infinigen", "parent", s->o->alias, "root",
                     ig_text_string(s->info.adapters[number - 1].path));
}

static json_t *named_json(const ig_server *s, size_t number) {
    return ig_model_entry(number ? adapter_json(s, number) : model_json(s), s->created);
}

static json_t *models_json(const ig_server *s) {
    json_t *list = json_array();
    bool ok = true;
    for (size_t i = 0; ok && ig_server_name(s, i); i++) ok = json_array_append_new(list, named_json(s, i)) == 0;
    if (ok) return ig_models_list(list);
    json_decref(list);
    return NULL;
}

void ig_route_models(ig_call *c) {
    static const char below[] = "/v1/models/";
    const char *path = c->head->path,
               *name = strncmp(path, below, sizeof below - 1) == 0 ? path + sizeof below - 1 : NULL;
    int number = name ? ig_server_find(c->server, name, strlen(name)) : -1;
    if (!name)
        ig_reply_json(c, models_json(c->server));
    else if (number >= 0)
        ig_reply_json(c, named_json(c->server, (size_t)number));
    else
        ig_refuse_model(c, name);
}

static json_t *token_text(const ig_server *s, int32_t id) {
    char text[IG_TOKEN_BYTES_MAX];
    return ig_text_stringn(text, ig_token_bytes(s, id, text));
}

static json_t *special_json(const ig_server *s, int32_t id) { return id < 0 ? json_null() : token_text(s, id); }

static json_t *template_json(const ig_server *s) {
    return s->info.chat_template ? ig_text_string(s->info.chat_template) : json_null();
}

void ig_route_props(ig_call *c) {
    const ig_server *s = c->server;
    ig_scheduler_stats st;
    ig_scheduler_get_stats(s->scheduler, &st);
    const ig_cache_options *k = &s->o->scheduler.session.cache;
    ig_reply_json(
        c, json_pack("{s:i, s:o, s:s, s:o, s:o, s:o, s:s, s:{s:i}, s:{s:s, s:s, s:b, s:b}}", "total_slots", st.n_places,
                     "model_path", ig_text_string(s->info.path), "model_alias", s->o->alias, "chat_template",
                     template_json(s), "bos_token", special_json(s, ig_token_bos(s->o->model)), "eos_token",
                     special_json(s, ig_token_eos(s->o->model)), "build_info", ig_version(),
                     "default_generation_settings", "n_ctx", ig_scheduler_ctx(s->scheduler), "infinigen", "policy",
                     k->policy, "kv_type", k->memory.type ? k->memory.type : "f16", "has_disk",
                     k->memory.disk_bytes > 0, "has_store", k->memory.store_path != NULL));
}

void ig_route_tokenizer_info(ig_call *c) {
    const ig_server *s = c->server;
    ig_reply_json(
        c, json_pack("{s:s, s:o, s:o, s:n, s:o}", "tokenizer_class", s->info.architecture, "bos_token",
                     special_json(s, ig_token_bos(s->o->model)), "eos_token",
                     special_json(s, ig_token_eos(s->o->model)), "pad_token", "chat_template", template_json(s)));
}

/* ---- tokens ---------------------------------------------------------------------------------------- */

/* As llama.cpp has it: a text, or where it is none, such as a part of a character, its bytes. */
static json_t *piece_json(const ig_server *s, int32_t id) {
    char bytes[IG_TOKEN_BYTES_MAX];
    size_t n = ig_token_bytes(s, id, bytes);
    json_t *text = json_stringn(bytes, n);
    return text ? text : ig_reply_bytes(bytes, n);
}

/* What a request for tokens says, in either of two dialects: content and add_special (off), or prompt or messages and
 * add_special_tokens (on). */
typedef struct token_question {
    const char *content, *prompt;
    bool adds, parses, with_pieces, with_texts;
    char *text; /* of the messages */
    size_t n;
} token_question;

static bool read_question(ig_call *c, const json_t *body, token_question *q) {
    static const char *const known[] = {
        "content",       "prompt",      IG_CONVERSATION_FIELDS, "add_special", "add_special_tokens",
        "parse_special", "with_pieces", "return_token_strs",    "model",       NULL};
    const json_t *messages = ig_field(body, "messages");
    if (!ig_field_others(c, body, "", known) || !ig_field_model(c, body) ||
        !ig_field_text(c, body, "content", &q->content) || !ig_field_text(c, body, "prompt", &q->prompt))
        return false;
    if ((q->content != NULL) + (q->prompt != NULL) + (messages != NULL) != 1)
        return ig_refuse(c, 400, q->content ? "prompt" : "content", "one of content, prompt and messages is needed");
    q->adds = q->prompt != NULL;
    q->parses = true;
    bool ok =
        ig_field_bool(c, body, "add_special", &q->adds) && ig_field_bool(c, body, "add_special_tokens", &q->adds) &&
        ig_field_bool(c, body, "parse_special", &q->parses) && ig_field_bool(c, body, "with_pieces", &q->with_pieces) &&
        ig_field_bool(c, body, "return_token_strs", &q->with_texts);
    if (ok && messages) return ig_conversation_prompt(c, body, &q->text, &q->n, NULL);
    if (ok) q->n = json_string_length(ig_field(body, q->content ? "content" : "prompt"));
    return ok;
}

static json_t *tokens_json(const ig_call *c, const token_question *q, const ig_token_list *list) {
    json_t *tokens = json_array(), *texts = q->with_texts ? json_array() : json_null();
    for (size_t i = 0; i < list->n; i++) {
        json_t *id = json_integer(list->v[i]);
        if (q->with_pieces) id = json_pack("{s:o, s:o}", "id", id, "piece", piece_json(c->server, list->v[i]));
        json_array_append_new(tokens, id);
        if (q->with_texts) json_array_append_new(texts, token_text(c->server, list->v[i]));
    }
    return json_pack("{s:I, s:i, s:o, s:o}", "count", (json_int_t)list->n, "max_model_len",
                     ig_scheduler_ctx(c->server->scheduler), "tokens", tokens, "token_strs", texts);
}

/* More of a text than the context holds is of no use, but may be counted, as long as the reply has not too many values:
 * one for each token, two more for its piece, one for its text. */
static bool all_tokens(ig_call *c, const token_question *q, ig_token_list *out) {
    const char *field = q->text      ? "messages"
                        : q->content ? "content"
                                     : "prompt",
               *text = q->text      ? q->text
                       : q->content ? q->content
                                    : q->prompt;
    int flags = (q->adds ? IG_TOKENIZE_ADD_SPECIAL : 0) | (q->parses ? IG_TOKENIZE_PARSE_SPECIAL : 0);
    size_t most = IG_SERVER_NODES_MAX / (1 + 2 * (size_t)q->with_pieces + (size_t)q->with_texts);
    bool are_more;
    if (!ig_tokens_up_to(c, field, text, q->n, flags, most, out, &are_more)) return false;
    return !are_more ||
           ig_refuse(c, 400, field, "%s has more than %zu tokens, which is too much for a reply", field, most);
}

void ig_route_tokenize(ig_call *c) {
    token_question q = {0};
    ig_token_list tokens = {0};
    json_t *body = ig_body_object(c);
    if (body && read_question(c, body, &q) && all_tokens(c, &q, &tokens)) ig_reply_json(c, tokens_json(c, &q, &tokens));
    free(tokens.v);
    free(q.text);
    json_decref(body);
}

static bool read_ids(ig_call *c, const json_t *body, int32_t **ids, size_t *n) {
    static const char *const known[] = {"tokens", "model", NULL};
    const json_t *list = ig_field(body, "tokens");
    size_t i;
    json_t *id;
    if (!ig_field_others(c, body, "", known) || !ig_field_model(c, body)) return false;
    if (!json_is_array(list)) return ig_refuse(c, 400, "tokens", "tokens must be a list");
    *n = json_array_size(list);
    *ids = malloc((*n + 1) * sizeof **ids);
    if (!*ids) return ig_refuse(c, 500, NULL, "out of memory for %zu tokens", *n);
    json_array_foreach(list, i, id) {
        if (!ig_json_token(id, c->server->info.n_vocab, &(*ids)[i]))
            return ig_refuse(c, 400, "tokens", "tokens[%zu] is no token of the vocabulary of %d", i,
                             c->server->info.n_vocab);
    }
    return true;
}

void ig_route_detokenize(ig_call *c) {
    int32_t *ids = NULL;
    size_t n = 0;
    json_t *body = ig_body_object(c);
    if (body && read_ids(c, body, &ids, &n)) {
        size_t n_text = ig_detokenize(c->server->o->model, ids, n, true, NULL, 0);
        char *text = malloc(n_text + 1);
        if (text) {
            ig_detokenize(c->server->o->model, ids, n, true, text, n_text);
            json_t *value = ig_text_stringn(text, n_text);
            ig_reply_json(c, json_pack("{s:O, s:o}", "content", value, "prompt", value));
        } else {
            ig_refuse(c, 500, NULL, "out of memory for %zu bytes", n_text);
        }
        free(text);
    }
    free(ids);
    json_decref(body);
}

void ig_route_apply_template(ig_call *c) {
    static const char *const known[] = {IG_CONVERSATION_FIELDS, "model", NULL};
    char *text = NULL;
    size_t n = 0;
    json_t *body = ig_body_object(c);
    if (body && ig_field_others(c, body, "", known) && ig_field_model(c, body) &&
        ig_conversation_prompt(c, body, &text, &n, NULL))
        ig_reply_json(c, json_pack("{s:o}", "prompt", ig_text_stringn(text, n)));
    free(text);
    json_decref(body);
}
