/* SPDX-License-Identifier: Apache-2.0
 *
 * The stages of a tokenizer.json around its model: normalizer, pre_tokenizer, post_processor. Only what can be done
 * exactly is taken; anything else is refused by name.
 */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "token/hf.h"

typedef struct stages {
    ig_tokenizer *t;
    ig_json_place at;
    bool prepends, replaces; /* SentencePiece written as normalizers */
} stages;

typedef ig_status (*stage_fn)(stages *s, const json_t *stage, const char *type);

static ig_status fail_type(const stages *s, const char *type) {
    return ig_fail(s->at.err, IG_E_UNSUPPORTED, "%s: %s: type '%.64s' is not supported", s->at.path, s->at.field, type);
}

/* Hands a stage, or each of a Sequence (whose list has the name `list`), to `fn`. */
static ig_status each_stage(stages *s, const json_t *stage, const char *list, stage_fn fn) {
    if (!stage || json_is_null(stage)) return IG_OK;
    const char *type = json_string_value(json_object_get(stage, "type"));
    if (!type) return ig_json_fail(s->at, "has no type");
    if (strcmp(type, "Sequence") != 0) return fn(s, stage, type);
    const json_t *items = json_object_get(stage, list);
    if (!json_is_array(items)) return ig_json_fail(s->at, "a Sequence without its list");
    for (size_t i = 0; i < json_array_size(items); i++) {
        const json_t *item = json_array_get(items, i);
        type = json_string_value(json_object_get(item, "type"));
        if (!type) return ig_json_fail(s->at, "an item has no type");
        if (strcmp(type, "Sequence") == 0)
            return ig_fail(s->at.err, IG_E_UNSUPPORTED, "%s: %s: nested Sequence", s->at.path, s->at.field);
        ig_status status = fn(s, item, type);
        if (status) return status;
    }
    return IG_OK;
}

static ig_status read_normalizer(stages *s, const json_t *stage, const char *type) {
    static const char *const forms[] = {"", "NFC", "NFD", "NFKC", "NFKD"};
    ig_text text = {0}, pattern = {0};
    ig_status status = IG_OK;
    for (int form = IG_NORMAL_NFC; form <= IG_NORMAL_NFKD; form++) {
        if (strcmp(type, forms[form]) != 0) continue;
        if (s->t->form != IG_NORMAL_NONE)
            return ig_fail(s->at.err, IG_E_UNSUPPORTED, "%s: %s: two normal forms", s->at.path, s->at.field);
        s->t->form = (ig_normal_form)form;
        return IG_OK;
    }
    if (strcmp(type, "Prepend") == 0) {
        status = ig_json_text(stage, "prepend", &text, s->at);
        if (!status && ig_text_is(text, IG_BLANK) && !s->replaces) {
            s->prepends = true;
            return IG_OK;
        }
    } else if (strcmp(type, "Replace") == 0) {
        status = ig_json_text(stage, "content", &text, s->at);
        if (!status) status = ig_json_text(json_object_get(stage, "pattern"), "String", &pattern, s->at);
        if (!status && ig_text_is(text, IG_BLANK) && ig_text_is(pattern, " ")) {
            s->replaces = true;
            return IG_OK;
        }
    }
    return status ? status : fail_type(s, type);
}

static ig_status read_split(stages *s, const json_t *stage) {
    ig_pretoken *p = &s->t->pretoken;
    const json_t *pattern = json_object_get(stage, "pattern");
    ig_text regex = {0}, literal = {0}, behavior = {0};
    bool invert = false;
    ig_status status = ig_json_text(pattern, "Regex", &regex, s->at);
    if (!status) status = ig_json_text(pattern, "String", &literal, s->at);
    if (!status) status = ig_json_text(stage, "behavior", &behavior, s->at);
    if (!status) status = ig_json_bool(stage, "invert", &invert, s->at);
    if (status) return status;
    if (!regex.data && !literal.data) return ig_json_fail(s->at, "Split has no pattern");
    bool removed = ig_text_is(behavior, "Removed");
    if (!removed && !ig_text_is(behavior, "Isolated"))
        return ig_fail(s->at.err, IG_E_UNSUPPORTED, "%s: %s: Split behavior '%.32s' is not supported", s->at.path,
                       s->at.field, behavior.data ? behavior.data : "");
    char where[512];
    snprintf(where, sizeof where, "%s: %s", s->at.path, s->at.field);
    ig_buffer expression = {0};
    if (regex.data) {
        status = ig_hf_expression(&expression, regex.data, where, s->at.err);
        regex = (ig_text){expression.size ? expression.data : "", expression.size};
    }
    if (!status) status = ig_pretoken_add(p, regex.data ? regex : literal, !regex.data, where, s->at.err);
    ig_buffer_close(&expression);
    if (status || !removed) return status;
    p->steps[p->n_steps - 1].keep_match = invert;
    p->steps[p->n_steps - 1].keep_gap = !invert;
    return IG_OK;
}

static ig_status add_expression(stages *s, const char *expression) {
    char where[512];
    snprintf(where, sizeof where, "%s: %s", s->at.path, s->at.field);
    return ig_pretoken_add(&s->t->pretoken, (ig_text){expression, strlen(expression)}, false, where, s->at.err);
}

static ig_status read_metaspace(stages *s, const json_t *stage) {
    ig_tokenizer *t = s->t;
    ig_text blank = {0}, scheme = {0};
    bool split = true, prefix = true;
    ig_status status = ig_json_text(stage, "replacement", &blank, s->at);
    if (!status) status = ig_json_text(stage, "prepend_scheme", &scheme, s->at);
    if (!status) status = ig_json_bool(stage, "split", &split, s->at);
    if (!status) status = ig_json_bool(stage, "add_prefix_space", &prefix, s->at);
    if (status) return status;
    if (!ig_text_is(blank, IG_BLANK)) return ig_json_fail(s->at, "Metaspace with another replacement than U+2581");
    t->sentencepiece = t->prefix_once = t->blanks_last = t->added_are_normal = true;
    t->cut_every_blank = split;
    t->prefix = ig_text_is(scheme, "never") || (!scheme.data && !prefix) ? IG_PREFIX_NEVER
                : ig_text_is(scheme, "first")                            ? IG_PREFIX_FIRST
                                                                         : IG_PREFIX_ALWAYS;
    return IG_OK;
}

/* A Split at blanks where the normalizer has left none (Gemma). */
static bool splits_nothing(const stages *s, const json_t *stage, const char *type) {
    const char *pattern = json_string_value(json_object_get(json_object_get(stage, "pattern"), "String"));
    return s->replaces && strcmp(type, "Split") == 0 && pattern && strcmp(pattern, " ") == 0 &&
           !json_is_true(json_object_get(stage, "invert"));
}

static ig_status read_pretokenizer(stages *s, const json_t *stage, const char *type) {
    ig_tokenizer *t = s->t;
    bool on = true, prefix = true;
    ig_status status;
    if (splits_nothing(s, stage, type)) return IG_OK;
    if (t->sentencepiece) return fail_type(s, type);
    if (strcmp(type, "Split") == 0) return read_split(s, stage);
    if (strcmp(type, "Digits") == 0) {
        on = false;
        status = ig_json_bool(stage, "individual_digits", &on, s->at);
        return status ? status : add_expression(s, on ? "\\p{N}" : "\\p{N}+");
    }
    if (strcmp(type, "ByteLevel") == 0) {
        status = ig_json_bool(stage, "use_regex", &on, s->at);
        if (!status) status = ig_json_bool(stage, "add_prefix_space", &prefix, s->at);
        if (status) return status;
        if (prefix && t->pretoken.n_steps)
            return ig_fail(s->at.err, IG_E_UNSUPPORTED, "%s: %s: add_prefix_space behind another step", s->at.path,
                           s->at.field);
        t->rules.bytewise = t->prefix_once = true;
        t->prefix = prefix ? IG_PREFIX_ALWAYS : IG_PREFIX_NEVER;
        return on ? add_expression(s, ig_pretoken_gpt2) : IG_OK;
    }
    if (strcmp(type, "Metaspace") == 0 && !t->rules.bytewise && !t->pretoken.n_steps) return read_metaspace(s, stage);
    return fail_type(s, type);
}

/* The id that a template's special token stands for, -1 if it is not exactly one. */
static int64_t template_id(const json_t *stage, const json_t *special) {
    const char *name = json_string_value(json_object_get(special, "id"));
    const json_t *ids =
        name ? json_object_get(json_object_get(json_object_get(stage, "special_tokens"), name), "ids") : NULL;
    const json_t *id = json_array_get(ids, 0);
    return json_array_size(ids) == 1 && json_is_integer(id) ? json_integer_value(id) : -1;
}

static ig_status read_template(stages *s, const json_t *stage) {
    const json_t *single = json_object_get(stage, "single");
    bool in_text = false;
    if (!json_is_array(single)) return ig_json_fail(s->at, "TemplateProcessing without \"single\"");
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *item = json_array_get(single, i), *special = json_object_get(item, "SpecialToken");
        if (json_object_get(item, "Sequence")) {
            in_text = true;
            continue;
        }
        int64_t id = template_id(stage, special);
        bool *adds = in_text ? &s->t->adds_eos : &s->t->adds_bos;
        if (id < 0 || id > INT32_MAX) return ig_json_fail(s->at, "a SpecialToken has no id");
        if (*adds)
            return ig_fail(s->at.err, IG_E_UNSUPPORTED, "%s: %s: two special tokens side by side", s->at.path,
                           s->at.field);
        *adds = true;
        *(in_text ? &s->t->eos : &s->t->bos) = (int32_t)id;
    }
    return IG_OK;
}

static ig_status read_processor(stages *s, const json_t *stage, const char *type) {
    if (strcmp(type, "ByteLevel") == 0) return IG_OK;
    if (strcmp(type, "TemplateProcessing") == 0) return read_template(s, stage);
    return fail_type(s, type);
}

ig_status ig_hf_stages(ig_tokenizer *t, const json_t *root, const char *path, ig_error *err) {
    stages s = {.t = t, .at = {path, "normalizer", err}};
    ig_status status = each_stage(&s, json_object_get(root, "normalizer"), "normalizers", read_normalizer);
    if (status) return status;
    if (s.prepends && !s.replaces)
        return ig_fail(err, IG_E_UNSUPPORTED, "%s: normalizer: Prepend without Replace", path);
    s.at.field = "pre_tokenizer";
    if (s.replaces) {
        t->sentencepiece = true;
        t->prefix = s.prepends ? IG_PREFIX_ALWAYS : IG_PREFIX_NEVER;
    }
    status = each_stage(&s, json_object_get(root, "pre_tokenizer"), "pretokenizers", read_pretokenizer);
    if (status) return status;
    if (!t->rules.bytewise && !t->sentencepiece)
        return ig_fail(err, IG_E_UNSUPPORTED, "%s: pre_tokenizer: neither ByteLevel nor SentencePiece", path);
    if (t->sentencepiece && t->form != IG_NORMAL_NONE)
        return ig_fail(err, IG_E_UNSUPPORTED, "%s: normalizer: a normal form with SentencePiece", path);
    s.at.field = "post_processor";
    return each_stage(&s, json_object_get(root, "post_processor"), "processors", read_processor);
}
