/* SPDX-License-Identifier: Apache-2.0
 *
 * What meets the user's eye: progress bars, errors, and text that cannot
 * drive the terminal; and the keys that stop a run.
 */
#define _GNU_SOURCE
#include "cli/app.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/keyboard.h"
#include "text/clock.h"

/* ---- errors --------------------------------------------------------------- */

int ig_cli_complain(const ig_cli_options *o, const char *format, ...) {
    char text[8192];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    ig_text_make_harmless(text); /* names of files, and what others answered */
    ig_cli_clear_bar();
    ig_cli_flush();
    fprintf(stderr, "infinigen %s: %s\n", o->verb->name, text);
    return IG_EXIT_FAILED;
}

int ig_cli_fail_file(const ig_cli_options *o, const char *path) {
    bool is_stopped = errno == EINTR && ig_cli_interrupted();
    ig_cli_complain(o, "%s: %s", path, is_stopped ? "interrupted" : strerror(errno));
    return is_stopped ? IG_EXIT_INTERRUPTED : IG_EXIT_FAILED;
}

int ig_cli_fail(const ig_cli_options *o, const ig_error *err) {
    if (err->status == IG_E_INTERRUPTED) {
        ig_cli_complain(o, "interrupted");
        return IG_EXIT_INTERRUPTED;
    }
    ig_cli_complain(o, "%s", err->text[0] ? err->text : ig_status_text(err->status));
    return err->status == IG_E_ARG ? IG_EXIT_USAGE : IG_EXIT_FAILED;
}

/* ---- Ctrl-C --------------------------------------------------------------- */

static volatile sig_atomic_t interrupt_signal;

static pthread_t main_thread;

/* Threads of libraries may be given the signal: it is handed to the one that waits for it. The second one kills. */
static void note_interrupt(int number) {
    if (!pthread_equal(pthread_self(), main_thread)) {
        pthread_kill(main_thread, number);
        return;
    }
    if (interrupt_signal) {
        ig_cli_release_keys();
        signal(number, SIG_DFL);
        raise(number);
    }
    interrupt_signal = number;
}

void ig_cli_catch_interrupts(bool with_hangup) {
    /* No SA_RESTART: reading from a terminal or pipe must end too. */
    struct sigaction action = {.sa_handler = note_interrupt};
    struct sigaction hup;
    main_thread = pthread_self();
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    bool is_ignored = sigaction(SIGHUP, NULL, &hup) == 0 && hup.sa_handler == SIG_IGN; /* by nohup */
    if (with_hangup && !is_ignored) sigaction(SIGHUP, &action, NULL);
}

void ig_cli_forget_interrupt(void) { interrupt_signal = 0; }

int ig_cli_interrupted(void) { return interrupt_signal; }

/* ---- progress ------------------------------------------------------------- */

const char *ig_cli_size(char out[32], uint64_t bytes) {
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    double v = (double)bytes;
    int u = 0;
    while (v >= 999.5 && u < 6) {
        v /= 1000;
        u++;
    }
    snprintf(out, 32, u && v < 99.95 ? "%.1f %s" : "%.0f %s", v, units[u]);
    return out;
}

static atomic_bool bar_is_shown;

void ig_cli_clear_bar(void) {
    if (atomic_exchange(&bar_is_shown, false)) fputs("\r\033[K", stderr);
}

ig_cli_progress ig_cli_progress_start(const char *label, const char *unit) {
    return (ig_cli_progress){label, unit, ig_text_seconds(), 0, isatty(STDERR_FILENO) == 1};
}

void ig_cli_progress_show(ig_cli_progress *p, uint64_t done, uint64_t total) {
    double now = ig_text_seconds();
    /* What takes less than a fifth of a second needs no bar. */
    if (!p->visible || total == 0 || now - p->start < 0.2 || now - p->shown < 0.1) return;
    p->shown = now;
    if (done > total) done = total;

    struct winsize size;
    int columns = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col ? size.ws_col : 80;
    char bar[31], have[32], want[32], line[256];
    double share = (double)done / (double)total, left = share > 0 ? (now - p->start) * (1 - share) / share : 0;
    for (int i = 0; i < 30; i++) bar[i] = i < (int)(share * 30) ? '#' : '.';
    bar[30] = 0;
    if (strcmp(p->unit, "bytes") == 0) {
        ig_cli_size(have, done);
        ig_cli_size(want, total);
    } else {
        snprintf(have, sizeof have, "%llu", (unsigned long long)done);
        snprintf(want, sizeof want, "%llu %s", (unsigned long long)total, p->unit);
    }
    snprintf(line, sizeof line, "%s [%s] %3.0f%%  %s of %s  %d:%02d left", p->label, bar, share * 100, have, want,
             (int)left / 60, (int)left % 60);
    fprintf(stderr, "\r%.*s\033[K", columns - 1, line);
    atomic_store(&bar_is_shown, true);
    fflush(stderr);
}

void ig_cli_progress_end(ig_cli_progress *p) {
    if (p->visible && p->shown > 0) ig_cli_clear_bar();
    p->shown = 0;
}

bool ig_cli_on_progress(void *user, uint64_t done, uint64_t total) {
    ig_cli_progress *p = user;
    if (done < total)
        ig_cli_progress_show(p, done, total);
    else
        ig_cli_progress_end(p);
    return ig_cli_interrupted() != 0;
}

/* ---- output --------------------------------------------------------------- */

void ig_cli_put(const char *text, size_t n) {
    static int is_terminal = -1;
    if (is_terminal < 0) is_terminal = isatty(STDOUT_FILENO);
    if (!is_terminal) {
        fwrite(text, 1, n, stdout);
    } else {
        for (size_t i = 0; i < n; i++) {
            unsigned char c = (unsigned char)text[i];
            if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f)
                printf("^%c", c ^ 0x40);
            else if (ig_text_is_c1(text + i, n - i))
                printf("^[%c", (unsigned char)text[++i] - 0x40);
            else
                putchar(c);
        }
    }
    ig_cli_flush();
}
