/* SPDX-License-Identifier: Apache-2.0
 *
 * What the server can do, as OpenAPI 3.1: made from the table of routes and, for the fields of requests, from the text
 * below, which says the same as ask.c and routes.c check.
 */
#define _GNU_SOURCE
#include "server/api.h"

#include <string.h>

#define TEXT "{\"type\":[\"string\",\"null\"]}"
#define BOOL "{\"type\":[\"boolean\",\"null\"]}"
#define NUMBER(min, max) "{\"type\":[\"number\",\"null\"],\"minimum\":" min ",\"maximum\":" max "}"
#define WHOLE(min, max) "{\"type\":[\"integer\",\"null\"],\"minimum\":" min ",\"maximum\":" max "}"
#define TEXTS "{\"type\":[\"array\",\"null\"],\"items\":{\"type\":\"string\"}}"
#define OBJECT "{\"type\":[\"object\",\"null\"]}"
/* Of a function. */
#define NAME "{\"type\":\"string\",\"minLength\":1,\"maxLength\":128,\"pattern\":\"^[a-zA-Z0-9_.:/-]+$\"}"
#define SCHEMA(name) "{\"$ref\":\"#/components/schemas/" name "\"}"
/* The end of an object: fields that nobody knows are passed over. */
#define OTHERS ",\"additionalProperties\":true}"

static const char messages[] =
    "{\"type\":\"array\",\"minItems\":1,\"items\":{\"type\":\"object\",\"required\":[\"role\"],"
    "\"properties\":{\"role\":{\"enum\":[\"system\",\"developer\",\"user\",\"assistant\",\"tool\"]},"
    "\"content\":{\"oneOf\":[{\"type\":\"string\"},{\"type\":\"array\",\"items\":{\"type\":\"object\","
    "\"required\":[\"type\",\"text\"],\"properties\":{\"type\":{\"const\":\"text\"},"
    "\"text\":{\"type\":\"string\"}}}}]},\"tool_calls\":{\"type\":\"array\",\"items\":{\"type\":\"object\","
    "\"required\":[\"function\"],\"properties\":{\"id\":{\"type\":\"string\"},\"type\":{\"const\":\"function\"},"
    "\"function\":{\"type\":\"object\",\"required\":[\"name\"],\"properties\":{\"name\":" NAME
    ",\"arguments\":{\"type\":[\"string\",\"object\"]}}}}}},\"tool_call_id\":" TEXT ",\"reasoning_content\":" TEXT
    "},"
    "\"anyOf\":[{\"required\":[\"content\"]},{\"required\":[\"tool_calls\"],"
    "\"properties\":{\"role\":{\"const\":\"assistant\"}}}]" OTHERS "}";
static const char tools[] =
    "{\"type\":[\"array\",\"null\"],\"maxItems\":256,\"items\":{\"type\":\"object\",\"required\":[\"type\","
    "\"function\"],\"properties\":{\"type\":{\"const\":\"function\"},\"function\":{\"type\":\"object\","
    "\"required\":[\"name\"],\"properties\":{\"name\":" NAME ",\"description\":" TEXT ",\"parameters\":" OBJECT
    ",\"strict\":" BOOL "}" OTHERS "}" OTHERS "}";
static const char tool_choice[] =
    "{\"oneOf\":[{\"enum\":[\"none\",\"auto\",\"required\",null]},{\"type\":\"object\",\"required\":[\"type\","
    "\"function\"],\"properties\":{\"type\":{\"const\":\"function\"},\"function\":{\"type\":\"object\","
    "\"required\":[\"name\"],\"properties\":{\"name\":" NAME "}}}}]}";
/* What makes a prompt of a conversation. */
#define CONVERSATION                                                                             \
    "\"messages\":" SCHEMA("Messages") ",\"tools\":" SCHEMA("Tools") ",\"tool_choice\":" SCHEMA( \
        "ToolChoice") ",\"parallel_tool_calls\":" BOOL ",\"add_generation_prompt\":" BOOL        \
                      ",\"continue_final_message\":" BOOL ",\"reasoning_effort\":" TEXT          \
                      ",\"chat_template_kwargs\":" OBJECT ",\"enable_thinking\":" BOOL
/* Of both kinds of answers. */
static const char sampling[] =
    "{\"n\":" WHOLE("1", "16") ",\"stop\":{\"oneOf\":[{\"type\":\"string\",\"minLength\":1,\"maxLength\":256},"
    "{\"type\":\"array\",\"maxItems\":64,\"items\":{\"type\":\"string\",\"minLength\":1,\"maxLength\":256}},"
    "{\"type\":\"null\"}]},\"seed\":" WHOLE("-9223372036854775808", "9223372036854775807")
    ",\"temperature\":" NUMBER("0", "1000") ",\"top_p\":" NUMBER("0", "1") ",\"top_k\":" WHOLE("-1", "2147483647")
    ",\"min_p\":" NUMBER("0", "1") ",\"typical_p\":" NUMBER("0.001", "1") ",\"top_n_sigma\":" NUMBER("-1", "1000")
    ",\"xtc_probability\":" NUMBER("0", "1") ",\"xtc_threshold\":" NUMBER("0", "1")
    ",\"dynatemp_range\":" NUMBER("0", "1000") ",\"dynatemp_exponent\":" NUMBER("0", "1000")
    ",\"dry_multiplier\":" NUMBER("0", "1000") ",\"dry_base\":" NUMBER("1", "1000")
    ",\"dry_allowed_length\":" WHOLE("1", "2147483647") ",\"dry_penalty_last_n\":" WHOLE("-1", "2147483647")
    ",\"dry_sequence_breakers\":{\"type\":[\"array\",\"null\"],\"maxItems\":64,\"items\":{\"type\":\"string\","
    "\"minLength\":1,\"maxLength\":128}}"
    ",\"repeat_penalty\":" NUMBER("0.01", "100") ",\"repetition_penalty\":" NUMBER("0.01", "100")
    ",\"repeat_last_n\":" WHOLE("-1", "2147483647") ",\"presence_penalty\":" NUMBER("-1000", "1000")
    ",\"frequency_penalty\":" NUMBER("-1000", "1000") ",\"logit_bias\":{\"type\":[\"object\",\"null\"],"
    "\"maxProperties\":1024,\"propertyNames\":{\"pattern\":\"^[0-9]{1,9}$\"},\"additionalProperties\":"
    "{\"type\":\"number\",\"minimum\":-100,\"maximum\":100}},\"ignore_eos\":" BOOL
    ",\"min_tokens\":" WHOLE("0", "2147483647") ",\"stop_token_ids\":{\"type\":[\"array\",\"null\"],"
    "\"maxItems\":1024,\"items\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":2147483647}}"
    ",\"include_stop_str_in_output\":" BOOL ",\"n_predict\":" WHOLE("-1", "2147483647") ",\"max_tokens\":" WHOLE("-1", "2147483647") ",\"max_completion_tokens\":" WHOLE("-1", "2147483647") ",\"stream\":" BOOL ",\"stream_options\":{\"type\":[\"object\",\"null\"],\"properties\":{\"include_usage\":" BOOL
    ",\"continuous_usage_stats\":" BOOL "}" OTHERS ",\"return_tokens_as_token_ids\":" BOOL ",\"return_token_ids\":" BOOL ",\"return_tokens\":" BOOL ",\"skip_special_tokens\":" BOOL ",\"cache_salt\":" TEXT ",\"lora\":{\"oneOf\":[" SCHEMA("Adapters") ",{\"type\":\"null\"}]}"
    ",\"response_format\":{\"type\":[\"object\",\"null\"],\"required\":[\"type\"],\"properties\":{\"type\":{\"enum\":"
    "[\"text\",\"json_object\",\"json_schema\"]},\"schema\":" OBJECT ",\"json_schema\":" OBJECT "}" OTHERS
    ",\"grammar\":" TEXT ",\"json_schema\":" OBJECT ",\"guided_grammar\":" TEXT
    ",\"guided_json\":{\"type\":[\"object\",\"string\",\"null\"]},\"guided_json_object\":" BOOL
    ",\"guided_choice\":" TEXTS ",\"guided_regex\":" TEXT ",\"regex\":" TEXT ",\"structured_outputs\":{\"type\":[\"object\",\"null\"],\"properties\":{\"grammar\":" TEXT
    ",\"json\":{\"type\":[\"object\",\"string\",\"null\"]},\"json_object\":" BOOL ",\"choice\":" TEXTS
    ",\"regex\":" TEXT "},\"additionalProperties\":false}"
    ",\"infinigen\":{\"type\":[\"object\",\"null\"],\"properties\":{\"policy\":" SCHEMA("Policy")
    ",\"budget\":" NUMBER("0.0001", "16777216") ",\"mass\":" NUMBER("0.001", "1") ",\"locality\":" NUMBER("0", "1")
    ",\"inertia\":" NUMBER("0", "1000") ",\"n_sinks\":" WHOLE("0", "16777216") ",\"n_recent\":" WHOLE("1", "16777216")
    ",\"n_dense_layers\":" WHOLE("-1", "100000") "},\"additionalProperties\":false}}";
static const char chat_body[] =
    "{\"type\":\"object\",\"required\":[\"messages\"],\"properties\":{" CONVERSATION
    ",\"reasoning_format\":{\"enum\":[\"none\",\"auto\",\"deepseek\",null]},\"model\":" SCHEMA(
        "Model") ",\"logprobs\":" BOOL ",\"top_logprobs\":" WHOLE("0", "20") "}" OTHERS;
static const char completions_body[] =
    "{\"type\":\"object\",\"required\":[\"prompt\"],\"properties\":{\"model\":" SCHEMA("Model")
    ",\"prompt\":{\"oneOf\":[{\"type\":\"string\",\"minLength\":1}," SCHEMA("Tokens") ",{\"type\":\"array\","
    "\"minItems\":1,\"maxItems\":128,\"items\":{\"oneOf\":[{\"type\":\"string\",\"minLength\":1}," SCHEMA("Tokens")
    "]}}]},\"echo\":" BOOL ",\"suffix\":" TEXT ",\"logprobs\":{\"oneOf\":[" WHOLE("0", "20") ",{\"const\":false}]}}" OTHERS;
static const char native_body[] =
    "{\"type\":\"object\",\"required\":[\"prompt\"],\"properties\":{\"prompt\":{\"oneOf\":[{\"type\":\"string\","
    "\"minLength\":1}," SCHEMA("Tokens") "]},\"t_max_predict_ms\":" WHOLE(
        "-1", "2147483647") ",\"model\":" SCHEMA("Model") "}" OTHERS;
static const char infill_body[] =
    "{\"type\":\"object\",\"properties\":{\"input_prefix\":" TEXT ",\"input_suffix\":" TEXT ",\"prompt\":" TEXT
    ",\"input_extra\":{\"type\":[\"array\",\"null\"],\"maxItems\":1024,\"items\":{\"type\":\"object\",\"required\":"
    "[\"text\"],\"properties\":{\"filename\":{\"type\":\"string\"},\"text\":{\"type\":\"string\"}}}}"
    ",\"t_max_predict_ms\":" WHOLE("-1", "2147483647") ",\"model\":" SCHEMA("Model") "}" OTHERS;
static const char tokenize_body[] =
    "{\"type\":\"object\",\"properties\":{\"content\":{\"type\":\"string\"},\"prompt\":{\"type\":\"string\"}"
    "," CONVERSATION ",\"add_special\":" BOOL ",\"add_special_tokens\":" BOOL ",\"parse_special\":" BOOL
    ",\"with_pieces\":" BOOL ",\"return_token_strs\":" BOOL ",\"model\":" TEXT
    "},\"oneOf\":[{\"required\":[\"content\"]},"
    "{\"required\":[\"prompt\"]},{\"required\":[\"messages\"]}]" OTHERS;
static const char detokenize_body[] =
    "{\"type\":\"object\",\"required\":[\"tokens\"],\"properties\":{\"tokens\":" SCHEMA("Tokens") ",\"model\":" TEXT
                                                                                                  "}" OTHERS;
static const char template_body[] = "{\"type\":\"object\",\"required\":[\"messages\"],\"properties\":{" CONVERSATION
                                    ",\"model\":" SCHEMA("Model") "}" OTHERS;

/* Of the fields of these two those of the conversation, and the commonest others. */
static const char responses_body[] =
    "{\"type\":\"object\",\"required\":[\"input\"],\"properties\":{\"model\":" SCHEMA(
        "Model") ",\"input\":{\"oneOf\":[{\"type\":\"string\"},{\"type\":\"array\",\"minItems\":1,\"items\":{"
                 "\"type\":\"object\",\"required\":[\"role\",\"content\"],\"properties\":{\"type\":{\"const\":\"message\"},"
                 "\"role\":{\"const\":\"user\"},\"content\":{\"oneOf\":[{\"type\":\"string\"},{\"type\":\"array\","
                 "\"minItems\":1,\"items\":{\"type\":\"object\",\"required\":[\"type\",\"text\"],\"properties\":{"
                 "\"type\":{\"const\":\"input_text\"},\"text\":{\"type\":\"string\"}}}}]}}}}]},\"instructions\":" TEXT
    ",\"max_output_tokens\":" WHOLE("1", "2147483647") ",\"temperature\":" NUMBER("0", "1000") ",\"top_p\":" NUMBER(
        "0", "1") ",\"top_logprobs\":" WHOLE("0", "20") ",\"store\":" BOOL ",\"stream\":" BOOL "}" OTHERS;
static const char messages_body[] =
    "{\"type\":\"object\",\"required\":[\"messages\"],\"properties\":{\"model\":" SCHEMA(
        "Model") ",\"messages\":{\"type\":\"array\",\"minItems\":1,\"items\":{\"type\":\"object\",\"required\":[\"role\","
                 "\"content\"],\"properties\":{\"role\":{\"const\":\"user\"},\"content\":{\"oneOf\":[{\"type\":\"string\"},"
                 "{\"type\":\"array\",\"minItems\":1,\"items\":{\"type\":\"object\",\"required\":[\"type\",\"text\"],"
                 "\"properties\":{\"type\":{\"const\":\"text\"},\"text\":{\"type\":\"string\"}}}}]}}}},\"system\":" TEXT
    ",\"max_tokens\":" WHOLE("-1", "2147483647") ",\"stop_sequences\":{\"type\":[\"array\",\"null\"],\"maxItems\":64,"
    "\"items\":{\"type\":\"string\",\"minLength\":1,\"maxLength\":256}},\"temperature\":" NUMBER("0", "1000")
    ",\"top_p\":" NUMBER("0", "1") ",\"top_k\":" WHOLE("-1", "2147483647") ",\"stream\":" BOOL "}" OTHERS;

static const char ollama_chat_body[] =
    "{\"type\":\"object\",\"properties\":{\"model\":" SCHEMA(
        "Model") ",\"messages\":{\"type\":\"array\",\"items\":{\"type\":\"object\",\"required\":[\"role\",\"content\"],"
                 "\"properties\":{\"role\":{\"const\":\"user\"},\"content\":{\"type\":\"string\"}},"
                 "\"additionalProperties\":false}},\"stream\":" BOOL "}" OTHERS;
static const char ollama_prompt_body[] =
    "{\"type\":\"object\",\"properties\":{\"model\":" SCHEMA("Model") ",\"prompt\":" TEXT ",\"system\":" TEXT
                                                                      ",\"raw\":" BOOL ",\"stream\":" BOOL "}" OTHERS;

#define TEXT_OR_TEXTS \
    "{\"oneOf\":[{\"type\":\"string\",\"minLength\":1}," SCHEMA("Tokens") ",{\"type\":\"array\",\"minItems\":1,"         \
    "\"maxItems\":256,\"items\":{\"oneOf\":[{\"type\":\"string\",\"minLength\":1}," SCHEMA("Tokens") "]}}]}"
static const char embeddings_body[] = "{\"type\":\"object\",\"required\":[\"input\"],\"properties\":{\"model\":" SCHEMA(
    "Model") ",\"input\":" TEXT_OR_TEXTS
             ",\"encoding_format\":{\"enum\":[\"float\",\"base64\"]},\"dimensions\":" SCHEMA(
                 "Dimensions") ",\"user\":" TEXT "}" OTHERS;
static const char ollama_embed_body[] =
    "{\"type\":\"object\",\"required\":[\"input\"],\"properties\":{\"model\":" SCHEMA(
        "Model") ",\"input\":" TEXT_OR_TEXTS ",\"dimensions\":" SCHEMA("Dimensions") "}" OTHERS;
static const char ollama_embeddings_body[] =
    "{\"type\":\"object\",\"required\":[\"prompt\"],\"properties\":{\"model\":" SCHEMA(
        "Model") ",\"prompt\":{\"type\":\"string\"}}" OTHERS;

static const char rerank_body[] =
    "{\"type\":\"object\",\"required\":[\"query\",\"documents\"],\"properties\":{\"model\":" SCHEMA(
        "Model") ",\"query\":{\"type\":\"string\"},\"documents\":{\"type\":\"array\",\"minItems\":1,\"maxItems\":256,"
                 "\"items\":{\"type\":\"string\"}},\"top_n\":" WHOLE("1", "2147483647") ",\"return_documents\":" BOOL
    "}" OTHERS;

static json_t *body_of(const ig_route *r) {
    const char *text = r->api == &ig_api_chat                 ? chat_body
                       : r->api == &ig_api_messages           ? messages_body
                       : r->api == &ig_api_responses          ? responses_body
                       : r->api == &ig_api_completions        ? completions_body
                       : r->api == &ig_api_ollama_prompt      ? ollama_prompt_body
                       : r->handle == ig_route_ollama         ? ollama_chat_body
                       : r->api == &ig_api_native             ? native_body
                       : r->api == &ig_api_infill             ? infill_body
                       : r->api == &ig_api_embeddings         ? embeddings_body
                       : r->api == &ig_api_rerank             ? rerank_body
                       : r->api == &ig_api_ollama_embed       ? ollama_embed_body
                       : r->api == &ig_api_ollama_embeddings  ? ollama_embeddings_body
                       : r->handle == ig_route_tokenize       ? tokenize_body
                       : r->handle == ig_route_detokenize     ? detokenize_body
                       : r->handle == ig_route_apply_template ? template_body
                       : r->handle == ig_route_adapters       ? SCHEMA("Adapters")
                                                              : "{\"type\":\"object\"}";
    json_t *schema = json_loads(text, 0, NULL), *common = json_loads(sampling, 0, NULL);
    if (r->handle == ig_route_answers && !r->api->translate)
        json_object_update_missing(json_object_get(schema, "properties"), common);
    json_decref(common);
    return json_pack("{s:b, s:{s:{s:o}}}", "required", 1, "content", "application/json", "schema", schema);
}

static json_t *responses_of(const ig_route *r, bool is_post) {
    static const struct {
        const char *status, *what;
        bool posts; /* only where there is a body */
    } errors[] = {{"400", "The request is not as it must be; param names the field.", false},
                  {"401", "A key is needed.", false},
                  {"403", "This Host or Origin may not ask.", false},
                  {"404", "There is no such thing.", false},
                  {"405", "Another method: Allow.", false},
                  {"408", "The request did not come to its end in time.", false},
                  {"411", "Content-Length is missing.", true},
                  {"413", "The body is too large.", false},
                  {"414", "The first line is too long.", false},
                  {"415", "The body is not JSON.", true},
                  {"417", "Expect other than 100-continue.", false},
                  {"431", "Too many header fields.", false},
                  {"500", "The server failed.", false},
                  {"503", "Too much waits already, or the server ends: Retry-After.", false},
                  {"505", "Not HTTP/1.1.", false}};
    const char *kind = r->handle == ig_route_metrics ? "text/plain"
                       : r->handle == ig_route_page  ? "text/html"
                                                     : "application/json";
    const bool is_ollamas = r->api && r->api->are_lines; /* whose errors are a text */
    json_t *all = json_pack("{s:{s:s, s:{s:{}}}}", "200", "description", "The answer.", "content", kind);
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        if (!errors[i].posts || is_post)
            json_object_set_new(all, errors[i].status,
                                json_pack("{s:s, s:{s:{s:{s:s}}}}", "description", errors[i].what, "content",
                                          "application/json", "schema", "$ref",
                                          is_ollamas ? "#/components/schemas/Refusal" : "#/components/schemas/Error"));
    bool may_stream = r->handle == ig_route_ollama || (r->handle == ig_route_answers && !r->api->wants_states);
    if (may_stream)
        json_object_set_new(json_object_get(json_object_get(all, "200"), "content"),
                            is_ollamas ? "application/x-ndjson" : "text/event-stream", json_object());
    return all;
}

static bool has_rest(const ig_route *r) { return r->path[1] && r->path[strlen(r->path) - 1] == '/'; }

static json_t *operation_of(const ig_route *r, bool is_post) {
    json_t *operation = json_pack("{s:o}", "responses", responses_of(r, is_post));
    if (is_post) json_object_set_new(operation, "requestBody", body_of(r));
    if (r->is_public) json_object_set_new(operation, "security", json_array());
    if (has_rest(r))
        json_object_set_new(operation, "parameters",
                            json_pack("[{s:s, s:s, s:b, s:{s:s}}]", "name", "model", "in", "path", "required", 1,
                                      "schema", "$ref", "#/components/schemas/Name"));
    return operation;
}

static void add_route(json_t *paths, const ig_route *r) {
    json_t *item = json_object(), *path = has_rest(r) ? json_sprintf("%s{model}", r->path) : json_string(r->path);
    if (strstr(r->methods, "GET")) json_object_set_new(item, "get", operation_of(r, false));
    if (strstr(r->methods, "POST")) json_object_set_new(item, "post", operation_of(r, true));
    json_object_set_new(paths, json_string_value(path), item);
    json_decref(path);
}

static json_t *adapters_of(const ig_server *s) {
    int n = s->info.n_adapters;
    json_t *item =
        json_pack("{s:s, s:[s,s], s:{s:{s:s, s:i, s:i}, s:{s:s, s:i, s:i}}}", "type", "object", "required", "id",
                  "scale", "properties", "id", "type", "integer", "minimum", 0, "maximum", n ? n - 1 : 0, "scale",
                  "type", "number", "minimum", -IG_ADAPTER_SCALE_MAX, "maximum", IG_ADAPTER_SCALE_MAX);
    return json_pack("{s:s, s:i, s:o}", "type", "array", "maxItems", n, "items", item);
}

/* What depends on the model and the program. */
static json_t *schemas_of(const ig_server *s) {
    json_t *policies = json_pack("[n]");
    const ig_policy_info *policy;
    for (size_t i = 0; (policy = ig_cache_policy(i)); i++) json_array_append_new(policies, json_string(policy->name));
    json_t *error = json_pack("{s:s, s:[s], s:{s:{s:s, s:[s,s], s:{s:{s:s}, s:{s:s}}}}}", "type", "object", "required",
                              "error", "properties", "error", "type", "object", "required", "message", "type",
                              "properties", "message", "type", "string", "type", "type", "string");
    json_t *tokens = json_pack("{s:s, s:i, s:i, s:{s:s, s:i, s:i}}", "type", "array", "minItems", 1, "maxItems",
                               ig_scheduler_ctx(s->scheduler), "items", "type", "integer", "minimum", 0, "maximum",
                               s->info.n_vocab - 1);
    json_t *dimensions =
        json_pack("{s:[s,s], s:i, s:i}", "type", "integer", "null", "minimum", 1, "maximum", s->info.d_model);
    json_t *refusal = json_pack("{s:s, s:[s], s:{s:{s:s}}}", "type", "object", "required", "error", "properties",
                                "error", "type", "string");
    json_t *or_none = json_copy(s->adapters.names);
    json_array_append_new(or_none, json_null());
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:{s:O}, s:{s:o}}", "Adapters", adapters_of(s),
                     "Error", error, "Refusal", refusal, "Tokens", tokens, "Dimensions", dimensions, "Policy",
                     json_pack("{s:o}", "enum", policies), "Messages", json_loads(messages, 0, NULL), "Tools",
                     json_loads(tools, 0, NULL), "ToolChoice", json_loads(tool_choice, 0, NULL), "Name", "enum",
                     s->adapters.names, "Model", "enum", or_none);
}

void ig_route_openapi(ig_call *c) {
    json_t *paths = json_object(), *all;
    for (const ig_route *r = ig_server_routes; r->path; r++)
        if (r->handle != ig_route_load && r->handle != ig_route_unload) add_route(paths, r); /* are of several models */
    all = json_pack("{s:s, s:{s:s, s:s}, s:o, s:{s:o, s:{s:{s:s, s:s}}}}", "openapi", "3.1.0", "info", "title",
                    "infinigen", "version", ig_version(), "paths", paths, "components", "schemas",
                    schemas_of(c->server), "securitySchemes", "bearer", "type", "http", "scheme", "bearer");
    if (ig_server_has_keys(c->server)) json_object_set_new(all, "security", json_pack("[{s:[]}]", "bearer"));
    ig_reply_json(c, all);
}
