/* SPDX-License-Identifier: Apache-2.0
 *
 * Generates answers token by token, and looks for what is expected in what was
 * added. (ig_generate() hands out text; here the tokens are compared too.)
 */
#include "eval/reply.h"

#include <stdlib.h>
#include <string.h>

void ig_eval_reply_close(ig_eval_reply *reply) {
    free(reply->ids);
    free(reply->text);
    *reply = (ig_eval_reply){0};
}

double ig_eval_reply_same(const ig_eval_reply *a, const ig_eval_reply *b) {
    int longer = a->n > b->n ? a->n : b->n, same = 0;
    while (same < a->n && same < b->n && a->ids[same] == b->ids[same]) same++;
    return longer ? (double)same / longer : 1;
}

/* ---- what was written ------------------------------------------------------- */

static ig_status add_token(ig_eval_reply *reply, int32_t id, ig_error *err) {
    if (reply->n == reply->cap) {
        int cap = reply->cap ? 2 * reply->cap : 64;
        int32_t *ids = realloc(reply->ids, (size_t)cap * sizeof *ids);
        if (!ids) return ig_text_fail(err, IG_E_MEMORY, "out of memory for an answer of %d tokens", cap);
        reply->ids = ids;
        reply->cap = cap;
    }
    reply->ids[reply->n++] = id;
    return IG_OK;
}

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

static ig_status add_text(ig_eval_reply *reply, const char *text, size_t n, bool skip_blanks, ig_error *err) {
    for (; n && skip_blanks && !reply->n_text && is_blank(*text); text++) n--;
    if (reply->n_text + n >= reply->cap_text) {
        size_t cap = 2 * (reply->n_text + n) + 256;
        char *more = realloc(reply->text, cap);
        if (!more) return ig_text_fail(err, IG_E_MEMORY, "out of memory for an answer of %zu bytes", cap);
        reply->text = more;
        reply->cap_text = cap;
    }
    memcpy(reply->text + reply->n_text, text, n);
    reply->n_text += n;
    reply->text[reply->n_text] = 0;
    return IG_OK;
}

/* ---- what it is worth --------------------------------------------------------- */

static char fold(char c) { return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c; }

/* Whether `wanted` stands at or after `from`. */
static bool holds(const ig_eval_reply *reply, size_t from, const char *wanted, size_t n) {
    for (size_t i = from; i + n <= reply->n_text; i++) {
        size_t k = 0;
        while (k < n && fold(reply->text[i + k]) == fold(wanted[k])) k++;
        if (k == n) return true;
    }
    return false;
}

/* Which of the expected strings were found so far. */
typedef struct found {
    unsigned char *is_found; /* [turn->n_answers] */
    int n;
} found;

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* Whether the first number of the text is that one; true is returned once a character stands behind the number. */
static bool judge_number(ig_eval_reply *reply, const char *wanted) {
    size_t begin = 0, end, n = strlen(wanted);
    while (begin < reply->n_text && !is_digit(reply->text[begin])) begin++;
    for (end = begin; end < reply->n_text && is_digit(reply->text[end]);) end++;
    if (begin && begin < end && reply->text[begin - 1] == '-') begin--;
    reply->score = end - begin == n && memcmp(reply->text + begin, wanted, n) == 0;
    return end < reply->n_text;
}

/* Looks at what was added from `before` on; true once nothing more can change the score. */
static bool judge(ig_eval_reply *reply, found *f, const ig_eval_turn *turn, size_t before) {
    if (turn->match == IG_EVAL_NUMBER) return judge_number(reply, turn->answers[0]);
    if (turn->match == IG_EVAL_BEGIN && turn->n_answers) {
        size_t n = strlen(turn->answers[0]), common = n < reply->n_text ? n : reply->n_text;
        bool begins = common == 0 || memcmp(reply->text, turn->answers[0], common) == 0;
        reply->score = begins && common == n;
        return !begins || common == n;
    }
    for (int i = 0; i < turn->n_answers; i++) {
        size_t n = strlen(turn->answers[i]);
        if (f->is_found[i] || !holds(reply, before >= n ? before - n + 1 : 0, turn->answers[i], n)) continue;
        f->is_found[i] = 1;
        f->n++;
    }
    if (turn->n_answers) reply->score = turn->match == IG_EVAL_ANY ? f->n > 0 : (double)f->n / turn->n_answers;
    return turn->n_answers && reply->score == 1;
}

/* ---- the loop -------------------------------------------------------------------- */

static ig_status generate(ig_eval_reply *out, ig_eval_reader *r, const ig_eval_turn *turn, found *f,
                          const ig_eval_reply_options *o, const ig_model *model, ig_error *err) {
    ig_detok_stream detok = {.started = true};
    char text[IG_TOKEN_BYTES_MAX];
    for (bool done = false; !done;) {
        if (r->stopped && r->stopped()) return ig_text_fail(err, IG_E_INTERRUPTED, "interrupted");
        int32_t id = ig_sampler_next(o->sampler, r->s);
        if (id < 0) return ig_text_fail(err, IG_E_ARG, "no token can come next");
        if (!o->ignore_end && ig_token_is_end(model, id)) return IG_OK;
        size_t before = out->n_text, n = ig_detok_push(&detok, model, id, false, text, sizeof text);
        ig_status status = add_token(out, id, err);
        if (!status) status = add_text(out, text, n, turn->match == IG_EVAL_BEGIN && turn->n_answers, err);
        if (status) return status;
        done = judge(out, f, turn, before) || out->n == turn->max_tokens;
        if (!done || o->goes_on) status = ig_session_decode(&r->s, &id, 1, err);
        if (status) return status;
    }
    return IG_OK;
}

ig_status ig_eval_reply_make(ig_eval_reply *out, ig_eval_reader *r, const ig_eval_turn *turn,
                             const ig_eval_reply_options *options, ig_error *err) {
    found f = {calloc((size_t)turn->n_answers + 1, 1), 0};
    out->n = 0;
    out->n_text = 0;
    out->score = 0;
    ig_status status = f.is_found ? add_text(out, "", 0, false, err)
                                  : ig_text_fail(err, IG_E_MEMORY, "out of memory for %d answers", turn->n_answers);
    if (!status) status = generate(out, r, turn, &f, options, r->model, err);
    free(f.is_found);
    return status;
}
