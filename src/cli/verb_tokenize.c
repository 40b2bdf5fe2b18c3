/* SPDX-License-Identifier: Apache-2.0
 *
 * `infinigen tokenize`: text to tokens and back, with the tokenizer alone.
 */
#define _GNU_SOURCE
#include "cli/app.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool is_separator(char c) {
    return c == ' ' || c == ',' || c == '\n' || c == '\t' || c == '\r' || c == '[' || c == ']';
}

enum { WORD_SHOWN = 20 };

/* Token ids separated by blanks or commas, brackets allowed; the exit code. */
static int parse_ids(int32_t **ids, size_t *n, const ig_cli_app *app, const ig_cli_text *text) {
    *n = 0;
    *ids = malloc((text->n / 2 + 1) * sizeof **ids);
    if (!*ids) return ig_cli_complain(app->o, "out of memory");
    for (const char *p = text->data, *end = p + text->n; p < end;) {
        if (is_separator(*p)) {
            p++;
            continue;
        }
        char *after;
        errno = 0;
        long long id = strtoll(p, &after, 10);
        const char *word_end = p;
        while (word_end < end && word_end < p + WORD_SHOWN && !is_separator(*word_end)) word_end++;
        if (after == p || (after < end && !is_separator(*after)))
            return ig_cli_complain(app->o, "'%.*s' is not a token id", (int)(word_end - p), p), IG_EXIT_USAGE;
        if (errno || id < 0 || id >= app->info.n_vocab)
            return ig_cli_complain(app->o, "token id %.*s is not between 0 and %d", (int)(word_end - p), p,
                                   app->info.n_vocab - 1),
                   IG_EXIT_USAGE;
        (*ids)[(*n)++] = (int32_t)id;
        p = after;
    }
    return IG_EXIT_OK;
}

static int decode(const ig_cli_app *app, const ig_cli_text *text) {
    int32_t *ids = NULL;
    size_t n = 0;
    int code = parse_ids(&ids, &n, app, text);
    if (!code) {
        size_t n_bytes = ig_detokenize(app->model, ids, n, app->o->special, NULL, 0);
        char *bytes = malloc(n_bytes + 1);
        if (!bytes) {
            code = ig_cli_complain(app->o, "out of memory for %zu bytes", n_bytes);
        } else {
            ig_detokenize(app->model, ids, n, app->o->special, bytes, n_bytes);
            if (app->o->json) {
                json_t *report = json_object();
                json_object_set_new(report, "model", ig_text_string(app->path));
                json_object_set_new(report, "text", ig_text_stringn(bytes, n_bytes));
                code = ig_cli_print_json(report);
            } else {
                ig_cli_put(bytes, n_bytes);
            }
        }
        free(bytes);
    }
    free(ids);
    return code;
}

static void print_ids(const int32_t *ids, size_t n) {
    for (size_t i = 0; i < n; i++) printf(i ? " %d" : "%d", ids[i]);
    putchar('\n');
}

/* "  1234 'text'", one token a line; what would break the line is escaped. */
static void print_pieces(const ig_model *model, const int32_t *ids, size_t n) {
    char piece[IG_TOKEN_BYTES_MAX];
    for (size_t i = 0; i < n; i++) {
        size_t length = ig_detokenize(model, &ids[i], 1, true, piece, sizeof piece);
        if (length > sizeof piece) length = sizeof piece;
        printf("%7d '", ids[i]);
        for (size_t k = 0; k < length; k++) {
            unsigned char c = (unsigned char)piece[k];
            if (c == '\n')
                fputs("\\n", stdout);
            else if (c == '\t')
                fputs("\\t", stdout);
            else if (c < 0x20 || c == 0x7f)
                printf("\\x%02x", c);
            else if (ig_text_is_c1(piece + k, length - k))
                printf("\\xc2\\x%02x", (unsigned char)piece[++k]);
            else
                putchar(c);
        }
        fputs("'\n", stdout);
    }
}

static int print_json_ids(const ig_cli_app *app, const int32_t *ids, size_t n) {
    json_t *report = json_object(), *list = json_array();
    for (size_t i = 0; i < n; i++) json_array_append_new(list, json_integer(ids[i]));
    json_object_set_new(report, "model", ig_text_string(app->path));
    json_object_set_new(report, "tokens_prompt", json_integer((json_int_t)n));
    json_object_set_new(report, "tokens", list);
    return ig_cli_print_json(report);
}

static int encode(const ig_cli_app *app, const ig_cli_text *text) {
    const ig_cli_options *o = app->o;
    int32_t *ids = NULL;
    size_t n = 0;
    int flags = o->special ? IG_TOKENIZE_ADD_SPECIAL | IG_TOKENIZE_PARSE_SPECIAL : 0;
    int code = ig_cli_tokens(&ids, &n, app, text->data, text->n, flags);
    if (code) return code;
    if (o->json)
        code = print_json_ids(app, ids, n);
    else if (o->ids)
        print_ids(ids, n);
    else
        print_pieces(app->model, ids, n);
    free(ids);
    return code;
}

int ig_cli_tokenize(const ig_cli_options *o) {
    ig_cli_app app;
    ig_cli_text text = {0};
    int code = ig_cli_read_input(&text, o);
    if (code) return code;
    code = ig_cli_open(&app, o, true);
    if (!code && !app.info.has_tokenizer) code = ig_cli_complain(o, "%s has no tokenizer", app.path);
    if (!code) code = o->decode ? decode(&app, &text) : encode(&app, &text);
    free(text.data);
    return ig_cli_close(&app, code);
}
