/* SPDX-License-Identifier: Apache-2.0
 *
 * Asks for one needle.
 */
#include "eval/needle.h"

#include <string.h>

#include "eval/fail.h"

/* A blank before the answer, or a line end, costs tokens of their own. */
enum { ROOM_FOR_BLANKS = 8 };

int ig_eval_needle_room(const char *expected) {
    size_t n = strlen(expected);
    return (int)(n < 4096 ? n : 4096) + ROOM_FOR_BLANKS;
}

typedef struct answer {
    const char *expected;
    size_t n_matched; /* bytes of `expected` seen so far */
    bool decided;     /* right or wrong: no more tokens are needed */
    bool (*stopped)(void);
    ig_eval_needle_result *out;
    size_t n_text;
} answer;

/* An ig_text_fn. */
static bool on_text(void *user, const char *text, size_t n) {
    answer *a = user;
    for (size_t i = 0; i < n; i++) {
        bool is_blank = strchr(" \t\r\n", text[i]) && text[i];
        if (a->n_text == 0 && is_blank) continue;
        if (a->n_text + 1 < sizeof a->out->text) a->out->text[a->n_text] = text[i];
        a->n_text++;
        if (a->decided) continue;
        if (text[i] == a->expected[a->n_matched])
            a->decided = a->out->right = !a->expected[++a->n_matched];
        else
            a->decided = true;
    }
    return a->decided || (a->stopped && a->stopped());
}

ig_status ig_eval_needle(ig_eval_needle_result *out, ig_eval_reader *r, ig_sampler *sampler, const ig_eval_pair *prompt,
                         const char *expected, ig_error *err) {
    *out = (ig_eval_needle_result){0};
    answer a = {.expected = expected, .stopped = r->stopped, .out = out};
    ig_generate_options options = ig_generate_defaults();
    ig_generate_result result;
    options.n_predict = ig_eval_needle_room(expected);
    options.on_text = on_text;
    options.user = &a;
    ig_status status = ig_eval_feed(r, prompt->ids, prompt->n, IG_EVAL_NEEDLE_TAIL, err);
    if (!status) status = ig_generate(&result, r->s, sampler, &options, err);
    if (status) return status;
    if (result.finish == IG_FINISH_INTERRUPTED && !a.decided) return ig_eval_fail(err, IG_E_INTERRUPTED, "interrupted");
    out->n_tokens = result.n_tokens;
    return IG_OK;
}
