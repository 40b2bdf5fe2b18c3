/* SPDX-License-Identifier: Apache-2.0
 *
 * Fields that nothing here looks at. What other servers know by this name and this one cannot do is refused, unless its
 * value asks for nothing; what nobody knows is passed over, and its name is logged once.
 */
#define _GNU_SOURCE
#include "server/parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Beside null, false and what is empty: a value that asks for nothing, or NULL. */
typedef struct absent_field {
    const char *name, *neutral;
} absent_field;

static const absent_field absent[] = {
    /* tools */
    {"tools", NULL},
    {"tool_choice", "none"},
    {"tool_calls", NULL},
    {"functions", NULL},
    {"function_call", "none"},
    {"web_search_options", NULL},
    /* forms of the answer */
    {"json_schema", NULL},
    {"grammar", NULL},
    {"grammar_triggers", NULL},
    {"regex", NULL},
    {"ebnf", NULL},
    {"structural_tag", NULL},
    {"structured_outputs", NULL},
    {"guided_json", NULL},
    {"guided_regex", NULL},
    {"guided_choice", NULL},
    {"guided_grammar", NULL},
    {"guided_json_object", NULL},
    {"guided_decoding_backend", NULL},
    {"guided_whitespace_pattern", NULL},
    {"verbosity", "medium"},
    {"reasoning", NULL},
    {"reasoning_effort", "none"},
    {"reasoning_format", "none"},
    {"enable_thinking", NULL},
    {"chat_template", NULL},
    {"chat_template_kwargs", NULL},
    {"continue_final_message", NULL},
    {"documents", NULL},
    /* other than text */
    {"audio", NULL},
    {"images", NULL},
    {"image_data", NULL},
    {"prompt_embeds", NULL},
    {"mm_processor_kwargs", NULL},
    {"input", NULL},
    {"encoding_format", "float"},
    {"dimensions", NULL},
    /* other ways to continue */
    {"suffix", NULL},
    {"input_prefix", NULL},
    {"input_suffix", NULL},
    {"input_extra", NULL},
    {"prediction", NULL},
    {"previous_response_id", NULL},
    {"conversation", NULL},
    {"background", NULL},
    {"truncate_prompt_tokens", NULL},
    {"prompt_logprobs", NULL},
    {"lora", NULL},
    {"kv_transfer_params", NULL},
    /* other ways to sample */
    {"use_beam_search", NULL},
    {"beam_width", "1"},
    {"num_beams", "1"},
    {"length_penalty", "1"},
    {"early_stopping", NULL},
    {"logits_processors", NULL},
    {"logits_processor_pattern", NULL},
    {"allowed_token_ids", NULL},
    {"bad_words", NULL},
    {"samplers", NULL},
    {"mirostat", "0"},
    {"dynatemp_range", "0"},
    {"dry_multiplier", "0"},
    {"top_a", "0"},
    {"tfs_z", "1"},
    {"eta_cutoff", "0"},
    {"epsilon_cutoff", "0"},
    {"penalty_alpha", "0"},
    {"n_predict", "-1"},
    {"n_probs", "0"},
    {"n_keep", "0"},
    {"n_discard", "0"},
    {"n_indent", "0"},
    {"t_max_predict_ms", "0"},
    {"id_slot", "-1"},
    /* of the other kind of answers */
    {"messages", NULL},
    {"prompt", NULL},
    {"echo", NULL},
    {"top_logprobs", "0"},
};

/* Those that would change nothing: their type is checked, and that is all. */
static const struct {
    const char *name;
    json_type type; /* JSON_TRUE: true or false */
} idle[] = {
    {"user", JSON_STRING},
    {"metadata", JSON_OBJECT},
    {"store", JSON_TRUE},
    {"service_tier", JSON_STRING},
    {"safety_identifier", JSON_STRING},
    {"prompt_cache_key", JSON_STRING},
    {"prompt_cache_retention", JSON_STRING},
    {"parallel_tool_calls", JSON_TRUE},
    {"include_obfuscation", JSON_TRUE},
    {"priority", JSON_INTEGER},
    {"request_id", JSON_STRING},
    {"timings_per_token", JSON_TRUE},
    {"return_progress", JSON_TRUE},
    {"name", JSON_STRING},
    {"refusal", JSON_STRING},
    {"annotations", JSON_ARRAY},
    {"reasoning_content", JSON_STRING},
};

bool ig_field_asks_nothing(const json_t *v, const char *neutral) {
    char *end;
    if (json_is_null(v) || json_is_false(v)) return true;
    if (json_is_array(v)) return json_array_size(v) == 0;
    if (json_is_object(v)) return json_object_size(v) == 0;
    const char *text = json_string_value(v);
    if (text) return !*text || (neutral && strcmp(text, neutral) == 0);
    return neutral && json_is_number(v) && strtod(neutral, &end) == json_number_value(v) && !*end;
}

static bool is_in(const char *const *list, const char *name) {
    for (; *list; list++)
        if (strcmp(*list, name) == 0) return true;
    return false;
}

/* One that this server has not logged yet; false once there is no place for more. */
static bool is_new(ig_server *s, const char name[IG_SERVER_FIELD_BYTES]) {
    ig_server_fields *f = &s->fields;
    bool is_known = false;
    pthread_mutex_lock(&f->lock);
    for (size_t i = 0; i < f->n; i++) is_known |= strcmp(f->names[i], name) == 0;
    bool has_room = !is_known && f->n < IG_SERVER_FIELDS_NOTED;
    if (has_room) memcpy(f->names[f->n++], name, IG_SERVER_FIELD_BYTES);
    pthread_mutex_unlock(&f->lock);
    return has_room;
}

/* The name comes from a client: only what a terminal shows as it is. */
static void note_unknown(ig_server *s, const char *name) {
    char shown[IG_SERVER_FIELD_BYTES] = {0};
    for (size_t i = 0; i + 1 < sizeof shown && name[i]; i++) shown[i] = name[i] > ' ' && name[i] < 127 ? name[i] : '?';
    if (is_new(s, shown)) ig_server_say(s, "passed over: requests have a field '%s', which is not known", shown);
}

static bool refuse_field(ig_call *c, const char *where, const char *name, const char *why) {
    char field[128];
    snprintf(field, sizeof field, "%s%s", where, name);
    return ig_refuse(c, 400, field, "%s %s", field, why);
}

/* One that is not null, nor looked at elsewhere. */
static bool check_other(ig_call *c, const char *where, const char *name, const json_t *value) {
    for (size_t i = 0; i < sizeof idle / sizeof *idle; i++)
        if (strcmp(idle[i].name, name) == 0)
            return json_typeof(value) == idle[i].type || (json_is_false(value) && idle[i].type == JSON_TRUE) ||
                   refuse_field(c, where, name, "is of a wrong type");
    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++)
        if (strcmp(absent[i].name, name) == 0)
            return ig_field_asks_nothing(value, absent[i].neutral) || refuse_field(c, where, name, "is not supported");
    note_unknown(c->server, name);
    return true;
}

bool ig_field_others(ig_call *c, const json_t *object, const char *where, const char *const *known) {
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)object, name, value) {
        if (json_is_null(value) || is_in(known, name)) continue;
        if (!check_other(c, where, name, value)) return false;
    }
    return true;
}

bool ig_field_only(ig_call *c, const json_t *object, const char *where, const char *const *known) {
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)object, name, value) {
        if (!json_is_null(value) && !is_in(known, name)) return refuse_field(c, where, name, "is not known");
    }
    return true;
}
