/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "server/head.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* ---- characters ------------------------------------------------------------------------ */

/* Of methods and names of fields. */
static bool is_token_char(unsigned char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c && strchr("!#$%&'*+-.^_`|~", c) != NULL);
}

static bool is_token(const char *text, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!is_token_char((unsigned char)text[i])) return false;
    return n > 0;
}

static bool is_value(const char *text, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (((unsigned char)text[i] < ' ' && text[i] != '\t') || text[i] == 127) return false;
    return true;
}

/* -1: no hexadecimal digit. */
static int digit_of(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* ---- the end ------------------------------------------------------------------------------ */

size_t ig_head_find(const char *text, size_t n, size_t seen) {
    if (n && !is_token_char((unsigned char)text[0])) return n;
    const char *from = text + (seen > 3 ? seen - 3 : 0), *end = text + n, *at;
    for (; (at = memchr(from, '\n', (size_t)(end - from))); from = at + 1) {
        size_t before = (size_t)(at - text);
        if (before < 1 || at[-1] != '\r') return before + 1;
        if (before >= 3 && at[-2] == '\n') return before + 1;
    }
    return 0;
}

/* ---- the first line ------------------------------------------------------------------------- */

/* The character at *at, which is stepped over: %41 is A. -1: no such thing, or a character that no path has. */
static int next_character(const char **at) {
    int c = (unsigned char)*(*at)++;
    if (c == '%') {
        int high = digit_of(**at), low = high < 0 ? -1 : digit_of((*at)[1]);
        if (low < 0) return -1;
        c = 16 * high + low;
        *at += 2;
    }
    return c < ' ' || c == 127 ? -1 : c;
}

/* In place. False: the path is wrong, and stays as it was sent. */
static bool decode(char *path) {
    for (const char *at = path; *at;)
        if (next_character(&at) < 0) return false;
    char *to = path;
    for (const char *at = path; *at;) *to++ = (char)next_character(&at);
    *to = 0;
    return true;
}

/* "HTTP/1.1", or 1.0; later ones are read as 1.1. */
static unsigned read_version(ig_head *h, const char *text, const char **why) {
    if (strncmp(text, "HTTP/", 5) != 0 || text[5] < '0' || text[5] > '9' || text[6] != '.' || text[7] < '0' ||
        text[7] > '9' || text[8])
        return *why = "the request does not begin with a method, a path and a version", 400;
    h->is_1_0 = text[7] == '0';
    *why = "only HTTP/1.1 is spoken here";
    return text[5] == '1' ? 0 : 505;
}

/* As for a proxy, "http://host/path": the path, or nothing. *host is what stands before it, *n long; NULL: none. */
static char *skip_host(char *target, const char **host, size_t *n) {
    *host = NULL;
    if (strncasecmp(target, "http://", 7) != 0) return target;
    *host = target + 7;
    *n = strcspn(*host, "/?#");
    return target + 7 + *n;
}

/* Method, target and version, with one blank between them. */
static unsigned read_first(ig_head *h, char *line, const char **host, size_t *n_host, const char **why) {
    static const char wrong_path[] = "the path has a wrong character";
    char *target = strchr(line, ' '), *version = target ? strchr(target + 1, ' ') : NULL;
    *why = "the request does not begin with a method, a path and a version";
    if (!version) return 400;
    *target++ = *version++ = 0;
    if (!is_token(line, strlen(line))) return 400;
    unsigned status = read_version(h, version, why);
    if (status) return status;
    *why = wrong_path;
    for (const char *at = target; *at; at++)
        if ((unsigned char)*at <= ' ' || (unsigned char)*at >= 127) return 400;
    h->method = line;
    target = skip_host(target, host, n_host);
    target[strcspn(target, "#")] = 0;
    char *query = strchr(target, '?');
    if (query) *query++ = 0;
    h->query = query;
    h->path = *host && !*target ? "/" : target;
    return decode(target) ? 0 : 400;
}

/* ---- fields ------------------------------------------------------------------------------------ */

static bool is_blank(char c) { return c == ' ' || c == '\t'; }

/* "name: value", blanks around the value aside. */
static bool read_field(ig_head_field *f, char *line) {
    char *colon = strchr(line, ':');
    if (!colon || !is_token(line, (size_t)(colon - line))) return false;
    *colon = 0;
    char *value = colon + 1, *end = value + strlen(value);
    while (is_blank(*value)) value++;
    while (end > value && is_blank(end[-1])) end--;
    *end = 0;
    *f = (ig_head_field){line, value};
    return is_value(value, (size_t)(end - value));
}

static int count(const ig_head *h, const char *name) {
    int n = 0;
    for (size_t i = 0; i < h->n_fields; i++) n += strcasecmp(h->fields[i].name, name) == 0;
    return n;
}

const char *ig_head_value(const ig_head *h, const char *name) {
    for (size_t i = 0; i < h->n_fields; i++)
        if (strcasecmp(h->fields[i].name, name) == 0) return h->fields[i].value;
    return NULL;
}

/* Whether a word stands in a list with commas. */
static bool has_word(const char *list, const char *word) {
    size_t n = strlen(word);
    while (*list) {
        list += strspn(list, ", \t");
        size_t have = strcspn(list, ", \t");
        if (have == n && strncasecmp(list, word, n) == 0) return true;
        list += have;
    }
    return false;
}

/* The same of a field: all lines of its name are one list. */
static bool lists_word(const ig_head *h, const char *name, const char *word) {
    for (size_t i = 0; i < h->n_fields; i++)
        if (strcasecmp(h->fields[i].name, name) == 0 && has_word(h->fields[i].value, word)) return true;
    return false;
}

static bool read_length(ig_head *h, const char *digits) {
    if (!*digits || digits[strspn(digits, "0123456789")]) return false;
    for (h->length = 0; *digits; digits++) {
        unsigned digit = (unsigned)(*digits - '0');
        if (__builtin_mul_overflow(h->length, 10, &h->length) || __builtin_add_overflow(h->length, digit, &h->length)) {
            h->length = UINT64_MAX;
            break;
        }
    }
    return h->has_length = true;
}

/* What the fields say of the body and of the connection. */
static unsigned understand(ig_head *h, const char **why) {
    static const char *const once[] = {"Host",          "Content-Length", "Transfer-Encoding",
                                       "Authorization", "X-Api-Key",      "Origin",
                                       "Content-Type",  "Expect",         NULL};
    const char *length = ig_head_value(h, "Content-Length"), *coding = ig_head_value(h, "Transfer-Encoding"),
               *expect = ig_head_value(h, "Expect");
    for (int i = 0; once[i]; i++)
        if (count(h, once[i]) > 1) return *why = "header fields that contradict each other", 400;
    if (!h->is_1_0 && !ig_head_value(h, "Host")) return *why = "the header field Host is missing", 400;
    if (length && coding) return *why = "Content-Length together with Transfer-Encoding", 400;
    if (length && !read_length(h, length)) return *why = "Content-Length is no number", 400;
    if (coding && (h->is_1_0 || strcasecmp(coding, "chunked") != 0))
        return *why = "Transfer-Encoding other than chunked, or in HTTP/1.0", 400;
    h->is_chunked = coding != NULL;
    if (expect && strcasecmp(expect, "100-continue") != 0) return *why = "Expect other than 100-continue", 417;
    h->wants_continue = expect && !h->is_1_0;
    h->closes = lists_word(h, "Connection", "close") || (h->is_1_0 && !lists_word(h, "Connection", "keep-alive"));
    return 0;
}

/* ---- the whole ----------------------------------------------------------------------------------- */

/* The line at *text ends there, at its carriage return; *text is the next one. NULL: it does not end so. */
static char *take_line(char **text) {
    char *line = *text, *end = strchr(line, '\n');
    if (!end || end == line || end[-1] != '\r') return NULL;
    end[-1] = 0;
    *text = end + 1;
    return strchr(line, '\r') ? NULL : line;
}

unsigned ig_head_read(ig_head *h, char *text, size_t n, const char **why) {
    const char *host, *own;
    size_t n_host = 0;
    *h = (ig_head){.closes = true};
    *why = "the request is no HTTP, or has a character that no header has";
    text[n] = 0;
    if (strlen(text) != n) return 400;
    char *line = take_line(&text);
    if (!line) return 400;
    if (strlen(line) > IG_HEAD_LINE_MAX) return *why = "the first line is too long", 414;
    unsigned status = read_first(h, line, &host, &n_host, why);
    if (status) return status;
    *why = "a header field is not as it must be";
    while ((line = take_line(&text)) && *line) {
        if (h->n_fields == IG_HEAD_FIELDS_MAX) return *why = "too many header fields", 431;
        if (!read_field(&h->fields[h->n_fields++], line)) return 400;
    }
    if (!line || *text) return 400;
    own = ig_head_value(h, "Host");
    if (host && (!own || strlen(own) != n_host || strncasecmp(own, host, n_host) != 0))
        return *why = "the path and Host name different hosts", 400;
    return understand(h, why);
}

bool ig_head_query(const ig_head *h, const char *name, char *out, size_t cap) {
    size_t n = strlen(name), n_value;
    for (const char *at = h->query; at && *at; at += n_value + (at[n_value] == '&')) {
        bool is_it = strncmp(at, name, n) == 0 && at[n] == '=';
        n_value = strcspn(at, "&");
        if (!is_it) continue;
        bool fits = n_value - n - 1 < cap;
        snprintf(out, cap, "%.*s", (int)(n_value - n - 1), at + n + 1);
        if (!fits || !decode(out)) *out = 0;
        return true;
    }
    return false;
}

/* ---- chunks ---------------------------------------------------------------------------------------- */

bool ig_chunk_size(uint64_t *size, const char *line, size_t n) {
    size_t i = 0;
    for (*size = 0; i < n && digit_of(line[i]) >= 0; i++) {
        if (*size >> 60) return false;
        *size = *size << 4 | (unsigned)digit_of(line[i]);
    }
    if (i == 0 || n < i + 1 || line[n - 1] != '\r') return false;
    return i + 1 == n || (line[i] == ';' && is_value(line + i, n - 1 - i));
}

bool ig_chunk_is_trailer(const char *line, size_t n) {
    const char *colon = memchr(line, ':', n);
    if (!colon || line[n - 1] != '\r') return false;
    return is_token(line, (size_t)(colon - line)) && is_value(colon + 1, (size_t)(line + n - 1 - (colon + 1)));
}
