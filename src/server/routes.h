/* SPDX-License-Identifier: Apache-2.0
 *
 * What is answered at which path.
 */
#ifndef IG_SERVER_ROUTES_H
#define IG_SERVER_ROUTES_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

typedef struct ig_call ig_call; /* call.h */
typedef struct ig_api ig_api;   /* api.h */

typedef struct ig_route {
    const char *path;    /* one that ends with a slash, and is more: what is below it */
    const char *methods; /* "GET, HEAD" or "POST" */
    bool is_public;
    void (*handle)(ig_call *c); /* answers by ig_reply...(), a stream, or a refusal */
    const ig_api *api;          /* whose form its errors have; NULL: OpenAI's */
} ig_route;
extern const ig_route ig_server_routes[]; /* ends with a NULL path */

void ig_route_answers(ig_call *c); /* by the route's API */
void ig_route_ollama(ig_call *c);  /* the same, but for those that want no answer */
void ig_route_ollama_models(ig_call *c);
void ig_route_ollama_loaded(ig_call *c);
void ig_route_ollama_embed(ig_call *c);
void ig_route_ollama_show(ig_call *c);
void ig_route_ollama_version(ig_call *c);
void ig_route_count_tokens(ig_call *c);
void ig_route_input_tokens(ig_call *c);
void ig_route_models(ig_call *c);
void ig_route_load(ig_call *c);
void ig_route_unload(ig_call *c);
void ig_route_health(ig_call *c);
void ig_route_version(ig_call *c);
void ig_route_metrics(ig_call *c);
void ig_route_tokenize(ig_call *c);
void ig_route_detokenize(ig_call *c);
void ig_route_tokenizer_info(ig_call *c);
void ig_route_apply_template(ig_call *c);
void ig_route_props(ig_call *c);
void ig_route_adapters(ig_call *c);
void ig_route_slots(ig_call *c);
void ig_route_openapi(ig_call *c);
void ig_route_page(ig_call *c);

/* A model in a list of models, and the list, with what Anthropic's clients read of both. Take what they add to. */
json_t *ig_model_entry(json_t *model, int64_t created);
json_t *ig_models_list(json_t *list);

#endif
