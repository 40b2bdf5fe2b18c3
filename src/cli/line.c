/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines from a terminal come through libedit, with the history kept under
 * $XDG_STATE_HOME/infinigen/history; from a pipe they come through getline.
 */
#define _GNU_SOURCE
#include "cli/line.h"

#include <errno.h>
#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wchar.h>

struct ig_cli_reader {
    EditLine *edit; /* NULL: not a terminal */
    History *history;
    char path[4096]; /* of the history; "": none */
    bool goes_on;    /* the prompt is that of a continued line */
    sigset_t open;   /* signals as they are outside of reading */
    char *line;      /* getline's buffer */
    size_t line_cap;
    char *message; /* [message_cap] */
    size_t n_message, message_cap;
};

static char *prompt_text(EditLine *edit) {
    static char first[] = "> ", next[] = ". ";
    ig_cli_reader *r = NULL;
    el_get(edit, EL_CLIENTDATA, &r);
    return r && r->goes_on ? next : first;
}

/* One character for libedit. Signals are blocked while a line is read and let in by ppoll() alone: a Ctrl-C that comes
 * just before it waits is not missed. */
static int read_char(EditLine *edit, wchar_t *out) {
    ig_cli_reader *r = NULL;
    mbstate_t state = {0};
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    el_get(edit, EL_CLIENTDATA, &r);
    for (;;) {
        char byte;
        if (ppoll(&input, 1, NULL, &r->open) < 0) return -1;
        ssize_t got = read(STDIN_FILENO, &byte, 1);
        if (got <= 0) return (int)got;
        size_t n = mbrtowc(out, &byte, 1, &state);
        if (n == (size_t)-2) continue; /* more bytes of this character */
        if (n == (size_t)-1) *out = 0xfffd;
        return 1;
    }
}

static void open_terminal(ig_cli_reader *r) {
    HistEvent event;
    /* libedit reads characters of the locale: without a UTF-8 one every accent would be lost. */
    if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0) setlocale(LC_CTYPE, "C.UTF-8");
    r->edit = el_init("infinigen", stdin, stdout, stderr);
    if (!r->edit) return;
    el_set(r->edit, EL_CLIENTDATA, r);
    el_set(r->edit, EL_PROMPT, prompt_text);
    el_set(r->edit, EL_GETCFN, read_char);
    el_set(r->edit, EL_EDITOR, "emacs");
    el_set(r->edit, EL_BIND, "^R", "em-inc-search-prev", NULL);
    r->history = history_init();
    if (r->history) {
        history(r->history, &event, H_SETSIZE, 1000);
        history(r->history, &event, H_SETUNIQUE, 1);
        el_set(r->edit, EL_HIST, history, r->history);
        if (ig_cli_path(r->path, sizeof r->path, IG_PLACE_STATE, "history"))
            history(r->history, &event, H_LOAD, r->path);
        else
            r->path[0] = 0;
    }
    el_source(r->edit, NULL);
}

ig_cli_reader *ig_cli_reader_open(void) {
    ig_cli_reader *r = calloc(1, sizeof *r);
    if (r && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO)) open_terminal(r);
    return r;
}

void ig_cli_reader_close(ig_cli_reader *r) {
    HistEvent event;
    if (!r) return;
    if (r->history) {
        if (r->path[0] && ig_cli_make_folders(r->path)) {
            mode_t before = umask(077); /* what was said to a model is private */
            history(r->history, &event, H_SAVE, r->path);
            umask(before);
        }
        history_end(r->history);
    }
    if (r->edit) el_end(r->edit);
    free(r->line);
    free(r->message);
    free(r);
}

bool ig_cli_reader_is_terminal(const ig_cli_reader *r) { return r->edit != NULL; }

/* One line with its newline. */
static ig_cli_read read_line(ig_cli_reader *r, const char **line, size_t *n) {
    if (r->edit) {
        int count = 0;
        sigset_t interrupts;
        sigemptyset(&interrupts);
        sigaddset(&interrupts, SIGINT);
        sigaddset(&interrupts, SIGTERM);
        sigprocmask(SIG_BLOCK, &interrupts, &r->open);
        errno = 0;
        *line = el_gets(r->edit, &count);
        int why = errno;
        sigprocmask(SIG_SETMASK, &r->open, NULL);
        if (!*line || count <= 0) return count < 0 && why == EINTR ? IG_READ_INTERRUPTED : IG_READ_END;
        *n = (size_t)count;
        return IG_READ_MESSAGE;
    }
    errno = 0;
    ssize_t got = getline(&r->line, &r->line_cap, stdin);
    *line = r->line;
    *n = got > 0 ? (size_t)got : 0;
    if (got > 0) return IG_READ_MESSAGE;
    return errno == EINTR ? IG_READ_INTERRUPTED : IG_READ_END;
}

static bool append(ig_cli_reader *r, const char *text, size_t n) {
    if (r->n_message + n + 1 > r->message_cap) {
        size_t cap = 2 * (r->n_message + n + 1);
        char *more = realloc(r->message, cap);
        if (!more) return false;
        r->message = more;
        r->message_cap = cap;
    }
    memcpy(r->message + r->n_message, text, n);
    r->n_message += n;
    r->message[r->n_message] = 0;
    return true;
}

ig_cli_read ig_cli_reader_next(ig_cli_reader *r, const char **message) {
    HistEvent event;
    bool quoted = false;
    r->n_message = 0;
    r->goes_on = false;
    ig_cli_read got;
    for (;;) {
        const char *line;
        size_t n;
        got = read_line(r, &line, &n);
        if (got != IG_READ_MESSAGE) break;
        if (r->history && n > 1) history(r->history, &event, r->goes_on ? H_APPEND : H_ENTER, line);
        if (n && line[n - 1] == '\n') n--;

        if (!quoted && !r->goes_on && n >= 3 && strncmp(line, "\"\"\"", 3) == 0) {
            quoted = true;
            line += 3;
            n -= 3;
        }
        bool closes = quoted && n >= 3 && strncmp(line + n - 3, "\"\"\"", 3) == 0;
        bool continues = !quoted && n && line[n - 1] == '\\';
        if (closes) n -= 3;
        if (continues) n--;
        if (!append(r, line, n)) return IG_READ_END;
        if (closes || (!quoted && !continues)) break;
        /* The newline after an opening """ alone is not part of the message. */
        if (!(quoted && r->n_message == 0) && !append(r, "\n", 1)) return IG_READ_END;
        r->goes_on = true;
    }
    r->goes_on = false;
    if (got == IG_READ_END && r->n_message) got = IG_READ_MESSAGE; /* the last line of a pipe */
    if (quoted && r->n_message && r->message[r->n_message - 1] == '\n') r->message[--r->n_message] = 0;
    *message = r->message;
    return got;
}
