/* SPDX-License-Identifier: Apache-2.0
 *
 * Chat prompts.
 */
#include "token/chat.h"

#include <string.h>

#include "base/error.h"

static void add_token(ig_buffer *out, const ig_tokenizer *t, int32_t id) {
    char text[IG_TOKEN_BYTES_MAX];
    size_t n = id < 0 ? 0 : ig_tokenizer_piece(t, id, true, text, sizeof text);
    ig_buffer_add(out, text, n < sizeof text ? n : 0);
}

ig_status ig_chat_open(ig_chat *c, const ig_tokenizer *t, ig_error *err) {
    const char *text = ig_tokenizer_chat_template(t);
    *c = (ig_chat){.drops_bos = ig_tokenizer_adds_bos(t)};
    if (!text) return IG_OK;
    add_token(&c->bos, t, ig_tokenizer_bos(t));
    add_token(&c->eos, t, ig_tokenizer_eos(t));
    if (c->bos.failed || c->eos.failed) return ig_fail_memory(err, "chat template", IG_TOKEN_BYTES_MAX);
    ig_status s = ig_jinja_parse(&c->template, text, strlen(text), &c->why);
    return s == IG_E_MEMORY ? ig_fail(err, s, "%s", c->why.text) : IG_OK;
}

void ig_chat_close(ig_chat *c) {
    ig_jinja_close(c->template);
    ig_buffer_close(&c->bos);
    ig_buffer_close(&c->eos);
    c->template = NULL;
}

static bool set_token(json_t *variables, const char *name, const ig_buffer *text) {
    return json_object_set_new_nocheck(variables, name,
                                       json_stringn_nocheck(text->data ? text->data : "", text->size)) == 0;
}

ig_status ig_chat_render(ig_buffer *out, const ig_chat *c, json_t *variables, ig_error *err) {
    ig_buffer text = {0};
    if (!set_token(variables, "bos_token", &c->bos) || !set_token(variables, "eos_token", &c->eos))
        return ig_fail_memory(err, "chat prompt", c->bos.size + c->eos.size);
    ig_status s = ig_jinja_render(&text, c->template, variables, time(NULL), err);
    size_t n =
        c->drops_bos && c->bos.size && text.size >= c->bos.size && memcmp(text.data, c->bos.data, c->bos.size) == 0
            ? c->bos.size
            : 0;
    if (!s && text.size) ig_buffer_add(out, text.data + n, text.size - n);
    ig_buffer_close(&text);
    return s || !out->failed ? s : ig_fail_memory(err, "chat prompt", out->size);
}
