/* SPDX-License-Identifier: Apache-2.0
 *
 * A line of a terminal, edited with libedit; its history is kept under $XDG_STATE_HOME/infinigen/history.
 *
 * While a line is edited all keys are characters, Ctrl-C and Ctrl-Z too. Thus they mean the same wherever libedit waits
 * for one (in the middle of a search it would take a signal for the end of the input), and a paste that holds them
 * cannot stop the program. A paste comes between two marks of the terminal and goes into the line as it is: libedit
 * shows its newlines as such, and its control characters as ^X.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <histedit.h>
#include <langinfo.h>
#include <limits.h>
#include <locale.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>
#include <wchar.h>

#include "cli/keyboard.h"
#include "cli/line.h"

struct ig_cli_editor {
    EditLine *edit;
    History *history;
    char path[4096]; /* of the history; "": none */
    int n_unsaved;   /* entries that it does not have yet */
    const char *prompt;
    bool is_cancelled; /* the line at hand */
};

static ig_cli_editor *editor_of(EditLine *edit) {
    ig_cli_editor *e = NULL;
    el_get(edit, EL_CLIENTDATA, &e);
    return e;
}

static char *prompt_text(EditLine *edit) { return (char *)editor_of(edit)->prompt; }

/* One character for libedit. */
static int read_char(EditLine *edit, wchar_t *out) {
    mbstate_t state = {0};
    for (;;) {
        int key = ig_cli_key(-1);
        if (key == IG_KEY_RESUMED) {
            /* The modes of the terminal may be another program's: libedit sets what it thinks is not set. */
            el_set(edit, EL_PREP_TERM, 0);
            el_set(edit, EL_PREP_TERM, 1);
            el_set(edit, EL_REFRESH);
            continue;
        }
        if (key < 0) return key == IG_KEY_INTERRUPTED ? -1 : 0;
        size_t n = mbrtowc(out, &(char){(char)key}, 1, &state);
        if (n == (size_t)-2) continue; /* more bytes of this character */
        if (n == (size_t)-1) *out = 0xfffd;
        return 1;
    }
}

/* ---- keys of our own ------------------------------------------------------ */

static unsigned char cancel_line(EditLine *edit, int key) {
    (void)key;
    editor_of(edit)->is_cancelled = true;
    el_push(edit, "\n"); /* ends the line below all of it */
    return CC_NORM;
}

static unsigned char stop_program(EditLine *edit, int key) {
    (void)edit;
    (void)key;
    kill(0, SIGTSTP); /* as the terminal does: the whole job */
    return CC_NORM;
}

/* The bytes up to the mark that ends a paste, malloc'ed. Where it does not come, all until a second of silence. */
static char *read_paste(size_t *n_out) {
    static const char end[] = IG_PASTE_END;
    const size_t n_end = sizeof end - 1;
    size_t n = 0, cap = 0;
    char *data = NULL;
    for (;;) {
        int key = ig_cli_key(1000);
        if (key == IG_KEY_RESUMED) continue;
        if (key < 0) break;
        if (n == cap) {
            char *more = realloc(data, cap = cap ? 2 * cap : 4096);
            if (!more) break;
            data = more;
        }
        data[n++] = (char)key;
        if (n >= n_end && memcmp(data + n - n_end, end, n_end) == 0) {
            n -= n_end;
            break;
        }
    }
    *n_out = n;
    return data;
}

static unsigned char take_paste(EditLine *edit, int key) {
    (void)key;
    size_t n, n_text = 0;
    char *bytes = read_paste(&n);
    wchar_t *text = bytes ? malloc((n + 1) * sizeof *text) : NULL;
    mbstate_t state = {0};
    for (size_t i = 0, length; text && i < n; i += length) {
        wchar_t c;
        length = mbrtowc(&c, bytes + i, n - i, &state);
        if (length > n - i) { /* not UTF-8 */
            state = (mbstate_t){0};
            c = 0xfffd;
            length = 1;
        }
        if (length == 0) { /* a NUL ends lines of C */
            length = 1;
            continue;
        }
        text[n_text++] = c == '\r' ? '\n' : c;
    }
    if (text) {
        text[n_text] = 0;
        el_winsertstr(edit, text);
    }
    free(text);
    free(bytes);
    return CC_REFRESH;
}

static void bind_key(EditLine *edit, const char *key, const char *function) {
    if (!key[0]) return;
    el_set(edit, EL_BIND, key, function, NULL);
    el_set(edit, EL_BIND, "-a", key, function, NULL); /* vi's commands */
}

static void bind_keys(EditLine *edit) {
    struct termios modes;
    /* el_set() would make copies and never free them. */
    el_wset(edit, EL_ADDFN, L"ig-cancel-line", L"Withdraw the line", cancel_line);
    el_wset(edit, EL_ADDFN, L"ig-stop-program", L"Stop the program", stop_program);
    el_wset(edit, EL_ADDFN, L"ig-take-paste", L"Insert what the terminal pastes", take_paste);
    el_set(edit, EL_SETTY, "-d", "-isig", NULL);
    if (tcgetattr(STDIN_FILENO, &modes) == 0) {
        bind_key(edit, (char[]){(char)modes.c_cc[VINTR], 0}, "ig-cancel-line");
        bind_key(edit, (char[]){(char)modes.c_cc[VSUSP], 0}, "ig-stop-program");
    }
    bind_key(edit, IG_PASTE_BEGIN, "ig-take-paste");
}

/* ---- the editor ----------------------------------------------------------- */

static History *make_history(void) {
    HistEvent event;
    History *h = history_init();
    if (!h) return NULL;
    history(h, &event, H_SETSIZE, 1000);
    history(h, &event, H_SETUNIQUE, 1);
    return h;
}

static void open_history(ig_cli_editor *e) {
    HistEvent event;
    e->history = make_history();
    if (!e->history) return;
    el_set(e->edit, EL_HIST, history, e->history);
    if (ig_cli_path(e->path, sizeof e->path, IG_PLACE_STATE, "history"))
        history(e->history, &event, H_LOAD, e->path);
    else
        e->path[0] = 0;
}

/* The last n entries of a history, the oldest first, to another one. */
static void copy_entries(History *to, History *from, int n) {
    HistEvent event, entered;
    history(from, &event, H_FIRST); /* the newest */
    while (--n > 0 && history(from, &event, H_NEXT) >= 0) {
    }
    for (int got = history(from, &event, H_CURR); got >= 0; got = history(from, &event, H_PREV))
        history(to, &entered, H_ENTER, event.str);
}

/* A whole file, which takes the place of `path`. */
static bool write_history(History *h, const char *path) {
    char temporary[PATH_MAX + sizeof ".new"];
    HistEvent event;
    snprintf(temporary, sizeof temporary, "%s.new", path);
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    FILE *f = fd >= 0 ? fdopen(fd, "w") : NULL;
    bool done = f && history(h, &event, H_SAVE_FP, f) >= 0 && fflush(f) == 0 && !ferror(f);
    if (f)
        done &= fclose(f) == 0;
    else if (fd >= 0)
        close(fd);
    done = done && rename(temporary, path) == 0;
    if (!done && fd >= 0) unlink(temporary);
    return done;
}

/* Other conversations may have added to the file since it was read, and whatever ends this one leaves it whole: new
 * entries are added to what it has now, while its folder is locked. A link stays, and so does what is no history. */
static bool save_history(ig_cli_editor *e) {
    char path[PATH_MAX];
    HistEvent event;
    struct stat st;
    int fd = open(e->path, O_RDONLY | O_CREAT | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0600);
    if (fd >= 0) close(fd);
    if (!realpath(e->path, path)) return false;
    char *slash = strrchr(path, '/');
    *slash = 0;
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    *slash = '/';
    if (folder < 0) return false;
    flock(folder, LOCK_EX); /* where that cannot be had, entries of others may be lost */
    History *all = make_history();
    bool done = all && stat(path, &st) == 0 && S_ISREG(st.st_mode) &&
                (st.st_size == 0 || history(all, &event, H_LOAD, path) >= 0);
    if (done) {
        copy_entries(all, e->history, e->n_unsaved);
        done = write_history(all, path);
    }
    if (all) history_end(all);
    close(folder);
    return done;
}

ig_cli_editor *ig_cli_editor_open(void) {
    const char *terminal = getenv("TERM");
    if (!terminal || strcmp(terminal, "dumb") == 0) return NULL;
    ig_cli_editor *e = calloc(1, sizeof *e);
    if (!e) return NULL;
    e->prompt = "";
    /* libedit reads characters of the locale: without a UTF-8 one every accent would be lost. */
    if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0) setlocale(LC_CTYPE, "C.UTF-8");
    e->edit = el_init_fd("infinigen", stdin, stdout, stderr, STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO);
    if (!e->edit) {
        free(e);
        return NULL;
    }
    el_set(e->edit, EL_CLIENTDATA, e);
    el_set(e->edit, EL_PROMPT, prompt_text);
    el_set(e->edit, EL_GETCFN, read_char);
    el_set(e->edit, EL_EDITOR, "emacs");
    el_set(e->edit, EL_BIND, "^R", "em-inc-search-prev", NULL);
    open_history(e);
    el_source(e->edit, NULL);
    bind_keys(e->edit);
    el_set(e->edit, EL_SETTY, "-x", "-echo", "-icanon", NULL); /* between lines, as ig_cli_hold_keys() has it */
    return e;
}

void ig_cli_editor_close(ig_cli_editor *e) {
    if (!e) return;
    ig_cli_editor_save(e);
    if (e->history) history_end(e->history);
    el_end(e->edit);
    free(e);
}

ig_cli_read ig_cli_editor_line(ig_cli_editor *e, const char *prompt, const char **line, size_t *n) {
    int count = 0;
    e->prompt = prompt;
    e->is_cancelled = false;
    el_resize(e->edit);
    *line = el_gets(e->edit, &count);
    *n = *line && count > 0 ? (size_t)count : 0;
    if (e->is_cancelled || ig_cli_interrupted()) return IG_READ_INTERRUPTED;
    return *n ? IG_READ_MESSAGE : IG_READ_END;
}

void ig_cli_editor_keep(ig_cli_editor *e, const char *line, bool goes_on) {
    HistEvent event;
    if (!e->history) return;
    history(e->history, &event, goes_on ? H_APPEND : H_ENTER, line);
    e->n_unsaved += !goes_on;
}

void ig_cli_editor_save(ig_cli_editor *e) {
    if (e->n_unsaved && e->path[0] && ig_cli_make_folders(e->path) && save_history(e)) e->n_unsaved = 0;
}
