/* SPDX-License-Identifier: Apache-2.0
 *
 * Arguments as Gemma 4 writes them: {name:<|"|>text<|"|>,list:[1,true,{x:null}]}. Names are bare, and texts stand as
 * they are between two marks. They become JSON; what is cut off is closed where it ends.
 */
#define _GNU_SOURCE
#include "server/answers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct reader {
    const char *at, *end, *quote;
    FILE *to;
} reader;

static bool is_one_of(char c, const char *all) { return memchr(all, c, strlen(all)) != NULL; }

/* False: nothing comes behind them. */
static bool pass_blanks(reader *r) {
    while (r->at < r->end && is_one_of(*r->at, " \t\r\n")) r->at++;
    return r->at < r->end;
}

/* The bytes up to one of these, without blanks at their end. */
static size_t word_before(reader *r, const char *ends) {
    const char *begin = r->at;
    while (r->at < r->end && !is_one_of(*r->at, ends)) r->at++;
    size_t n = (size_t)(r->at - begin);
    while (n && is_one_of(begin[n - 1], " \t\r\n")) n--;
    return n;
}

static bool put_text(reader *r, const char *text, size_t n) {
    json_t *v = ig_text_stringn(text, n);
    char *quoted = ig_text_of_json(v, JSON_ENCODE_ANY);
    bool ok = quoted && fputs(quoted, r->to) >= 0;
    free(quoted);
    json_decref(v);
    return ok;
}

/* A number, true, false or null as it is, all else as a text. */
static bool read_word(reader *r) {
    const char *word = r->at;
    size_t n = word_before(r, ",]}");
    bool has_no_memory;
    json_t *v = ig_json_of_text(word, n, JSON_DECODE_ANY, NULL, &has_no_memory);
    bool is_json = v && !json_is_string(v) && !json_is_object(v) && !json_is_array(v);
    json_decref(v);
    return is_json ? fwrite(word, 1, n, r->to) == n : n && put_text(r, word, n);
}

/* Behind the first of its marks. */
static bool read_text(reader *r) {
    size_t n_quote = strlen(r->quote);
    const char *text = r->at, *end = memmem(text, (size_t)(r->end - text), r->quote, n_quote);
    r->at = end ? end + n_quote : r->end;
    return put_text(r, text, (size_t)((end ? end : r->end) - text));
}

/* The name of a member, unless no value follows. */
static bool read_name(reader *r, bool is_first) {
    const char *name = r->at;
    size_t n = word_before(r, ":,{}[]");
    if (r->at == r->end) return true;
    if (!n || *r->at++ != ':') return false;
    if (!pass_blanks(r)) return true;
    if (!is_first) fputs(", ", r->to);
    return put_text(r, name, n) && fputs(": ", r->to) >= 0;
}

static bool read_value(reader *r, int depth); /* there is something */

/* An object or a list, up to what closes it. */
static bool read_items(reader *r, char close, int depth) {
    fputc(*r->at++, r->to);
    for (bool is_first = true; pass_blanks(r) && *r->at != close; is_first = false) {
        if (!is_first && *r->at++ != ',') return false;
        if (!pass_blanks(r)) break;
        if (close == '}' && !read_name(r, is_first)) return false;
        if (close == ']' && !is_first) fputs(", ", r->to);
        if (r->at < r->end && !read_value(r, depth + 1)) return false;
    }
    fputc(close, r->to);
    return true;
}

static bool read_value(reader *r, int depth) {
    size_t left = (size_t)(r->end - r->at), n_quote = strlen(r->quote), n = left < n_quote ? left : n_quote;
    bool is_list = *r->at == '[';
    if (memcmp(r->at, r->quote, n) == 0) return r->at += n, read_text(r);
    if (!is_list && *r->at != '{') return read_word(r);
    if (depth == IG_SERVER_DEPTH_MAX || !read_items(r, is_list ? ']' : '}', depth)) return false;
    if (r->at < r->end) r->at++;
    return true;
}

char *ig_tool_quoted_json(const char *text, size_t n, const char *quote, size_t *n_read, bool *is_whole) {
    char *out = NULL;
    size_t n_out = 0;
    reader r = {text, text + n, quote, n && *text == '{' ? open_memstream(&out, &n_out) : NULL};
    if (!r.to) return NULL;
    bool ok = read_items(&r, '}', 0) && !ferror(r.to);
    *is_whole = r.at < r.end;
    *n_read = (size_t)(r.at - text) + *is_whole;
    if (fclose(r.to) == 0 && ok) return out;
    free(out);
    return NULL;
}
