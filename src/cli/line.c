/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages from lines: those of the editor on a terminal, else as they come.
 */
#define _GNU_SOURCE
#include "cli/line.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/keyboard.h"

typedef struct text {
    char *data; /* [cap], ends with a NUL */
    size_t n, cap;
} text;

struct ig_cli_reader {
    ig_cli_editor *editor; /* NULL: lines come plainly */
    bool is_terminal;      /* both ways; else nobody is prompted */
    bool goes_on;          /* the line at hand continues a message */
    text line, message;
};

static bool append(text *t, const char *data, size_t n) {
    if (t->n + n + 1 > t->cap) {
        size_t cap = 2 * (t->n + n + 1);
        char *more = realloc(t->data, cap);
        if (!more) return false;
        t->data = more;
        t->cap = cap;
    }
    memcpy(t->data + t->n, data, n);
    t->n += n;
    t->data[t->n] = 0;
    return true;
}

ig_cli_reader *ig_cli_reader_open(void) {
    ig_cli_reader *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    r->is_terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    ig_cli_hold_keys(false);
    if (r->is_terminal) r->editor = ig_cli_editor_open();
    if (r->editor) ig_cli_hold_keys(true);
    return r;
}

void ig_cli_reader_close(ig_cli_reader *r) {
    if (!r) return;
    ig_cli_editor_close(r->editor);
    ig_cli_release_keys();
    free(r->line.data);
    free(r->message.data);
    free(r);
}

size_t ig_cli_reader_length(const ig_cli_reader *r) { return r->message.n; }

bool ig_cli_reader_is_terminal(const ig_cli_reader *r) { return r->is_terminal; }

/* A line of the terminal's own editing, or of a pipe. */
static ig_cli_read read_plain(ig_cli_reader *r, const char *prompt) {
    int key = 0;
    bool has_memory = true;
    r->line.n = 0;
    ig_cli_release_keys();
    if (r->is_terminal) {
        fputs(prompt, stdout);
        ig_cli_flush();
    }
    while (key != '\n' && has_memory) {
        key = ig_cli_key(-1);
        if (key == IG_KEY_RESUMED) continue;
        if (key < 0) break;
        has_memory = append(&r->line, &(char){(char)key}, 1);
    }
    ig_cli_hold_keys(false);
    if (key == IG_KEY_INTERRUPTED) {
        if (r->is_terminal) putchar('\n');
        return IG_READ_INTERRUPTED;
    }
    if (!has_memory) return IG_READ_NO_MEMORY;
    return r->line.n ? IG_READ_MESSAGE : IG_READ_END;
}

/* One line with its newline, if it has one. */
static ig_cli_read read_line(ig_cli_reader *r, const char **line, size_t *n) {
    const char *prompt = r->goes_on ? ". " : "> ";
    if (r->editor) {
        ig_cli_read got = ig_cli_editor_line(r->editor, prompt, line, n);
        if (got == IG_READ_MESSAGE && *n > 1) ig_cli_editor_keep(r->editor, *line, r->goes_on);
        return got;
    }
    ig_cli_read got = read_plain(r, prompt);
    *line = r->line.data;
    *n = got == IG_READ_MESSAGE ? r->line.n : 0;
    return got;
}

ig_cli_read ig_cli_reader_next(ig_cli_reader *r, const char **message) {
    static const char quote[] = "\"\"\"";
    text *m = &r->message;
    bool quoted = false, continues = true;
    ig_cli_read got = IG_READ_MESSAGE;
    if (ig_cli_interrupted()) ig_cli_key(0); /* drops what was typed before that, as the terminal does */
    ig_cli_forget_interrupt();
    m->n = 0;
    for (r->goes_on = false; continues; r->goes_on = true) {
        const char *line;
        size_t n;
        got = read_line(r, &line, &n);
        if (n && line[n - 1] == '\n') n--;
        if (!r->is_terminal && n && line[n - 1] == '\r') n--;
        if (got != IG_READ_MESSAGE) {
            if (n) append(m, line, n);
            break;
        }
        bool is_one = !memchr(line, '\n', n); /* else a paste, whose quotes and backslashes are its own */
        if (is_one && !r->goes_on && n >= 3 && memcmp(line, quote, 3) == 0) {
            quoted = true;
            line += 3;
            n -= 3;
        }
        bool closes = quoted && n >= 3 && memcmp(line + n - 3, quote, 3) == 0;
        bool joins = is_one && !quoted && n && line[n - 1] == '\\';
        if (closes) n -= 3;
        if (joins) n--;
        continues = joins || (quoted && !closes);
        if (!append(m, line, n)) return IG_READ_NO_MEMORY;
        /* The newline after an opening """ alone is not part of the message. */
        if (continues && !(quoted && m->n == 0) && !append(m, "\n", 1)) return IG_READ_NO_MEMORY;
    }
    if (r->editor) ig_cli_editor_save(r->editor);
    if (got == IG_READ_NO_MEMORY) return got;
    if (got == IG_READ_END && m->n) got = IG_READ_MESSAGE; /* the last line of a pipe */
    while (m->n && m->data[m->n - 1] == '\n') m->data[--m->n] = 0;
    *message = m->n ? m->data : "";
    return got;
}
