/* SPDX-License-Identifier: Apache-2.0
 *
 * Fields that nothing here looks at. What other servers know by this name and this one cannot do is refused, unless its
 * value asks for nothing; what nobody knows is passed over, and its name is logged once.
 */
#define _GNU_SOURCE
#include "server/call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What asks for nothing is, beside null, what is empty of this type, false or true if that is the type, and the word or
 * number `neutral`. */
typedef struct absent_field {
    const char *name;
    json_type type; /* JSON_NULL: only null asks for nothing */
    const char *neutral;
} absent_field;

static const absent_field absent[] = {
    /* tools */
    {"tools", JSON_ARRAY, NULL},
    {"tool_choice", JSON_STRING, "none"},
    {"functions", JSON_ARRAY, NULL},
    {"function_call", JSON_STRING, "none"},
    {"web_search_options", JSON_OBJECT, NULL},
    {"mcp_servers", JSON_ARRAY, NULL},
    {"container", JSON_STRING, NULL},
    {"compaction", JSON_OBJECT, NULL},
    /* forms of the answer */
    {"grammar_triggers", JSON_ARRAY, NULL},
    {"ebnf", JSON_STRING, NULL},
    {"structural_tag", JSON_STRING, NULL},
    {"guided_whitespace_pattern", JSON_STRING, NULL},
    {"reasoning", JSON_OBJECT, NULL},
    {"reasoning_effort", JSON_STRING, "none"},
    {"reasoning_format", JSON_STRING, "none"}, /* of a chat it says where thoughts go */
    {"chat_template", JSON_STRING, NULL},
    {"continue_final_message", JSON_FALSE, NULL},
    {"documents", JSON_ARRAY, NULL},
    {"spaces_between_special_tokens", JSON_TRUE, NULL},
    {"detokenize", JSON_TRUE, NULL},
    {"post_sampling_probs", JSON_FALSE, NULL},
    /* other than text */
    {"audio", JSON_OBJECT, NULL},
    {"images", JSON_ARRAY, NULL},
    {"image_data", JSON_ARRAY, NULL},
    {"prompt_embeds", JSON_STRING, NULL},
    {"mm_processor_kwargs", JSON_OBJECT, NULL},
    {"input", JSON_STRING, NULL},
    {"encoding_format", JSON_STRING, "float"},
    {"dimensions", JSON_NULL, NULL},
    /* other ways to continue */
    {"suffix", JSON_STRING, NULL},
    {"input_prefix", JSON_STRING, NULL},
    {"input_suffix", JSON_STRING, NULL},
    {"input_extra", JSON_ARRAY, NULL},
    {"previous_response_id", JSON_STRING, NULL},
    {"conversation", JSON_OBJECT, NULL},
    {"background", JSON_FALSE, NULL},
    {"truncate_prompt_tokens", JSON_NULL, NULL},
    {"add_special_tokens", JSON_TRUE, NULL},
    {"prompt_logprobs", JSON_FALSE, NULL},
    {"kv_transfer_params", JSON_OBJECT, NULL},
    /* other ways to sample */
    {"use_beam_search", JSON_FALSE, NULL},
    {"beam_width", JSON_REAL, "1"},
    {"num_beams", JSON_REAL, "1"},
    {"length_penalty", JSON_REAL, "1"},
    {"early_stopping", JSON_FALSE, NULL},
    {"logits_processors", JSON_ARRAY, NULL},
    {"logits_processor_pattern", JSON_STRING, NULL},
    {"allowed_token_ids", JSON_ARRAY, NULL},
    {"bad_words", JSON_ARRAY, NULL},
    {"mirostat", JSON_REAL, "0"},
    {"top_a", JSON_REAL, "0"},
    {"tfs_z", JSON_REAL, "1"},
    {"eta_cutoff", JSON_REAL, "0"},
    {"epsilon_cutoff", JSON_REAL, "0"},
    {"penalty_alpha", JSON_REAL, "0"},
    {"n_probs", JSON_REAL, "0"},
    {"n_discard", JSON_REAL, "0"},
    {"n_indent", JSON_REAL, "0"},
    {"t_max_predict_ms", JSON_REAL, "0"},
    /* of the other kind of answers */
    {"messages", JSON_ARRAY, NULL},
    {"prompt", JSON_STRING, NULL},
    {"echo", JSON_FALSE, NULL},
    {"top_logprobs", JSON_REAL, "0"},
};

/* Those that would change little or nothing: their type is checked, and what asks for something is logged once. */
static const struct {
    const char *name;
    json_type type;  /* JSON_TRUE: true or false; JSON_NULL: any */
    bool is_of_note; /* it asks for something, if it is not false, empty or below 0 */
} idle[] = {
    {"verbosity", JSON_STRING, true},
    {"user", JSON_STRING, false},
    {"metadata", JSON_OBJECT, false},
    {"store", JSON_TRUE, false},
    {"service_tier", JSON_STRING, false},
    {"safety_identifier", JSON_STRING, false},
    {"prompt_cache_key", JSON_STRING, false},
    {"prompt_cache_retention", JSON_STRING, false},
    {"parallel_tool_calls", JSON_TRUE, false},
    {"include_obfuscation", JSON_TRUE, false},
    {"priority", JSON_INTEGER, false},
    {"request_id", JSON_STRING, false},
    {"guided_decoding_backend", JSON_STRING, false},
    {"samplers", JSON_NULL, true},
    {"min_keep", JSON_INTEGER, false},
    {"n_keep", JSON_INTEGER, false},
    {"id_slot", JSON_INTEGER, true},
    {"name", JSON_STRING, false},
    {"refusal", JSON_STRING, false},
    {"annotations", JSON_ARRAY, false},
};

static bool asks_nothing(const absent_field *f, const json_t *v) {
    char *end;
    const char *text = json_string_value(v);
    if (json_is_number(v))
        return f->type == JSON_REAL && strtod(f->neutral, &end) == json_number_value(v) && end != f->neutral;
    if (json_typeof(v) != f->type) return false;
    if (text) return !*text || (f->neutral && strcmp(text, f->neutral) == 0);
    return json_array_size(v) == 0 && json_object_size(v) == 0;
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

static void note_one(ig_server *s, const char *kind, const char *name, const char *what) {
    char shown[IG_SERVER_FIELD_BYTES] = {0};
    for (size_t i = 0; i + 1 < sizeof shown && name[i]; i++) shown[i] = name[i] > ' ' && name[i] < 127 ? name[i] : '?';
    if (is_new(s, shown)) ig_server_say(s, "passed over: requests have a %s '%s', which %s", kind, shown, what);
}

static void note(ig_server *s, const char *name, const char *what) { note_one(s, "field", name, what); }

/* The name comes from a client: only what a terminal shows as it is. */
void ig_field_note(ig_server *s, const char *name) { note(s, name, "is not known"); }

void ig_field_note_tool(ig_server *s, const char *type) { note_one(s, "tool of the type", type, "is left out"); }

static bool refuse_field(ig_call *c, const char *where, const char *name, const char *why) {
    char field[128];
    snprintf(field, sizeof field, "%s%s", where, name);
    return ig_refuse(c, 400, field, "%s %s", field, why);
}

/* One that is not null, nor looked at elsewhere. */
static bool check_other(ig_call *c, const char *where, const char *name, const json_t *value) {
    for (size_t i = 0; i < sizeof idle / sizeof *idle; i++) {
        if (strcmp(idle[i].name, name) != 0) continue;
        int64_t whole = 0;
        bool is_fit = idle[i].type == JSON_NULL || json_typeof(value) == idle[i].type ||
                      (idle[i].type == JSON_TRUE && json_is_false(value)) ||
                      (idle[i].type == JSON_INTEGER && ig_json_whole(value, &whole));
        if (!is_fit) return refuse_field(c, where, name, "is of a wrong type");
        bool asks = json_is_number(value) ? json_number_value(value) >= 0
                                          : json_array_size(value) || json_string_length(value) || json_is_true(value);
        if (idle[i].is_of_note && asks) note(c->server, name, "changes nothing here");
        return true;
    }
    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++)
        if (strcmp(absent[i].name, name) == 0)
            return asks_nothing(&absent[i], value) || refuse_field(c, where, name, "is not supported here");
    ig_field_note(c->server, name);
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
