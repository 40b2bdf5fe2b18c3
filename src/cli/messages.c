/* SPDX-License-Identifier: Apache-2.0
 *
 * A list of messages, and its JSON: written by this program, but read as if by anybody.
 */
#define _GNU_SOURCE
#include "cli/messages.h"

#include <stdlib.h>
#include <string.h>

#include "text/json.h"

enum { VERSION = 1 };

bool ig_cli_messages_add(ig_cli_messages *m, const char *role, const char *content) {
    if (m->n == m->cap) {
        size_t cap = m->cap ? 2 * m->cap : 16;
        ig_chat_message *more = realloc(m->v, cap * sizeof *more);
        if (!more) return false;
        m->v = more;
        m->cap = cap;
    }
    char *copy = strdup(content);
    if (!copy) return false;
    m->v[m->n++] = (ig_chat_message){role, copy};
    return true;
}

void ig_cli_messages_cut(ig_cli_messages *m, size_t keep) {
    while (m->n > keep) free((char *)m->v[--m->n].content);
}

void ig_cli_messages_close(ig_cli_messages *m) {
    ig_cli_messages_cut(m, 0);
    free(m->v);
    *m = (ig_cli_messages){0};
}

size_t ig_cli_messages_system(const ig_cli_messages *m) { return m->n && strcmp(m->v[0].role, "system") == 0 ? 1 : 0; }

/* ---- writing -------------------------------------------------------------- */

static json_t *hex_of(const char *bytes) {
    size_t n = strlen(bytes);
    char *hex = malloc(2 * n + 1);
    for (size_t i = 0; hex && i < n; i++) snprintf(hex + 2 * i, 3, "%02x", (unsigned char)bytes[i]);
    json_t *value = hex ? json_stringn(hex, 2 * n) : NULL;
    free(hex);
    return value;
}

static json_t *json_of(const ig_chat_message *message) {
    json_t *content = json_string(message->content); /* NULL if it is no UTF-8 */
    return content ? json_pack("{s:s, s:o}", "role", message->role, "content", content)
                   : json_pack("{s:s, s:o}", "role", message->role, "hex", hex_of(message->content));
}

char *ig_cli_messages_write(const ig_cli_messages *m) {
    json_t *list = json_array();
    bool ok = list != NULL;
    for (size_t i = 0; ok && i < m->n; i++) ok = json_array_append_new(list, json_of(&m->v[i])) == 0;
    json_t *all = ok ? json_pack("{s:i, s:O}", "version", VERSION, "messages", list) : NULL;
    char *text = ig_text_of_json(all, JSON_COMPACT);
    json_decref(all);
    json_decref(list);
    return text;
}

/* ---- reading -------------------------------------------------------------- */

static int digit_value(char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; }

/* Bytes of hexadecimal digits, in place; no NUL among them. */
static bool from_hex(char *text) {
    size_t n = 0;
    for (const char *p = text; *p; p += 2) {
        int high = digit_value(p[0]), low = high < 0 ? -1 : digit_value(p[1]);
        if (low < 0 || high + low == 0) return false;
        text[n++] = (char)(16 * high + low);
    }
    text[n] = 0;
    return true;
}

/* The role that message i must have. */
static const char *role_of(const ig_cli_messages *m, const char *role) {
    if (m->n == 0 && strcmp(role, "system") == 0) return "system";
    return (m->n - ig_cli_messages_system(m)) % 2 ? "assistant" : "user";
}

static const char *read_message(ig_cli_messages *m, json_t *value) {
    const char *role, *wanted, *content = NULL, *hex = NULL;
    if (json_unpack(value, "{s:s, s?s, s?s!}", "role", &role, "content", &content, "hex", &hex) || !content == !hex)
        return "a message is not one";
    wanted = role_of(m, role);
    if (strcmp(role, wanted) != 0) return "the messages are out of order";
    if (!ig_cli_messages_add(m, wanted, content ? content : hex)) return "out of memory";
    return content || from_hex((char *)m->v[m->n - 1].content) ? NULL : "a message is not one";
}

static const char *read_all(ig_cli_messages *m, json_t *root) {
    json_t *list, *value;
    int version;
    size_t i;
    const char *wrong = NULL;
    if (json_unpack(root, "{s:i}", "version", &version)) return "it is no conversation";
    if (version != VERSION) return "another version of the program saved it";
    if (json_unpack(root, "{s:i, s:o!}", "version", &version, "messages", &list) || !json_is_array(list))
        return "it is no conversation";
    json_array_foreach(list, i, value) if ((wrong = read_message(m, value))) return wrong;
    return m->n && strcmp(m->v[m->n - 1].role, "user") != 0 ? NULL : "the messages are out of order";
}

const char *ig_cli_messages_read(ig_cli_messages *m, const char *text, size_t n) {
    static const char no_memory[] = "there is no memory for it";
    bool failed;
    ig_json_take_loss();
    json_t *root = ig_json_of_text(text, n, JSON_REJECT_DUPLICATES, NULL, &failed);
    const char *wrong = root ? read_all(m, root) : failed ? no_memory : "it is no JSON";
    if (root && wrong && ig_json_take_loss()) wrong = no_memory;
    json_decref(root);
    if (wrong) ig_cli_messages_close(m);
    return wrong;
}
