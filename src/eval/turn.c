/* SPDX-License-Identifier: Apache-2.0
 *
 * What the model reads of a question: plain text, or a conversation in the
 * model's own template.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "eval/reply.h"

/* A text, and how much of it is computed dense where that is known. */
typedef struct reading {
    char *text;
    size_t n, n_dense;
} reading;

static ig_status fail_memory(ig_error *err) { return ig_text_fail(err, IG_E_MEMORY, "out of memory for a question"); }

static ig_status render(char **out, const ig_model *model, const ig_chat_message *messages, size_t n_messages,
                        ig_error *err) {
    size_t n = 0;
    ig_status status = ig_chat_prompt(&n, model, messages, n_messages, true, NULL, 0, err);
    *out = NULL;
    if (status) return status;
    *out = malloc(n + 1);
    return *out ? ig_chat_prompt(&n, model, messages, n_messages, true, *out, n + 1, err) : fail_memory(err);
}

/* Where `part` stands in `text` for the last time, templates being free to cut blanks off; NULL: nowhere. */
static const char *find_last(const char *text, const char *part) {
    size_t n = strlen(part), n_text = strlen(text);
    while (n && strchr(" \t\r\n", *part)) part++, n--;
    while (n && strchr(" \t\r\n", part[n - 1])) n--;
    for (size_t i = n_text >= n ? n_text - n + 1 : 0; n && i-- > 0;)
        if (memcmp(text + i, part, n) == 0) return text + i;
    return NULL;
}

/* The conversation's beginning, or what goes on after an answer. */
static ig_status read_chat(reading *out, const ig_model *model, const ig_eval_question *q, int i, ig_error *err) {
    static const char mark[] = "here-stands-the-answer";
    const ig_eval_turn *turn = &q->turns[i];
    const char *prefix = turn->prefix + strspn(turn->prefix, " \t\r\n"), *from;
    char *content = NULL, *rendered = NULL;
    int n = -1;
    if (asprintf(&content, "%s%s", i ? "" : q->context, turn->question) < 0) return fail_memory(err);
    ig_chat_message messages[3] = {{"user", "?"}, {"assistant", mark}, {"user", content}};
    ig_status status = render(&rendered, model, messages + (i ? 0 : 2), i ? 3 : 1, err);
    from = status ? NULL : i ? find_last(rendered, mark) : rendered;
    if (!status && !from)
        status = ig_text_fail(err, IG_E_UNSUPPORTED, "the chat template does not show what the model has answered");
    if (!status) n = asprintf(&out->text, "%s%s", from + (i ? strlen(mark) : 0), prefix);
    if (!status && n < 0) status = fail_memory(err);
    if (!status) {
        const char *question = q->is_apart && !i ? find_last(rendered, turn->question) : NULL;
        out->n = (size_t)n;
        out->n_dense = question ? (size_t)(question - rendered) : 0;
    }
    free(rendered);
    free(content);
    return status;
}

static ig_status read_plain(reading *out, const ig_eval_question *q, int i, ig_error *err) {
    const ig_eval_turn *turn = &q->turns[i];
    int n = asprintf(&out->text, "%s%s%s", i ? "" : q->context, turn->question, turn->prefix);
    if (n < 0) return fail_memory(err);
    out->n = (size_t)n;
    out->n_dense = q->is_apart && !i ? strlen(q->context) : 0;
    return IG_OK;
}

/* Tokens that the whole begins with and that stand for its first n_dense bytes alone, too. */
static ig_status count_dense(int *out, const ig_model *model, const reading *text, int flags, const int32_t *ids,
                             size_t n_ids, ig_error *err) {
    int32_t *head;
    size_t n_head = 0, common = 0;
    ig_status status = ig_eval_tokenize(&head, &n_head, model, text->text, text->n_dense, flags, err);
    while (!status && common < n_head && common < n_ids && head[common] == ids[common]) common++;
    *out = (int)common;
    free(head);
    return status;
}

ig_status ig_eval_encode_turn(ig_eval_pair *out, const ig_model *model, const ig_eval_question *q, int i, bool chat,
                              ig_error *err) {
    reading text = {0};
    int32_t *ids = NULL;
    size_t n = 0;
    int flags = chat ? IG_TOKENIZE_PARSE_SPECIAL : 0, n_dense = 0;
    *out = (ig_eval_pair){0};
    ig_status status = chat ? read_chat(&text, model, q, i, err) : read_plain(&text, q, i, err);
    if (!status) status = ig_eval_tokenize(&ids, &n, model, text.text, text.n, flags, err);
    if (!status && text.n_dense) status = count_dense(&n_dense, model, &text, flags, ids, n, err);
    if (!status) status = ig_eval_join(out, i ? -1 : ig_eval_first_token(model, n == 0), ids, n, err);
    if (!status && !i) {
        int n_first = out->n - (int)n, tail = out->n > IG_EVAL_PROMPT_TAIL ? out->n - IG_EVAL_PROMPT_TAIL : 1;
        out->n_dense = text.n_dense ? n_first + n_dense : tail;
        if (out->n_dense < 1) out->n_dense = 1;
    }
    free(ids);
    free(text.text);
    return status;
}
