/* SPDX-License-Identifier: Apache-2.0
 *
 * Standard input, its terminal, and signals are of the whole program; so is the state kept here. The terminal is given
 * back by ig_cli_release_keys(), by a handler of each signal that ends the program, and while the program is stopped.
 */
#define _GNU_SOURCE
#include "cli/keyboard.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "cli/app.h"

static struct termios before, quiet; /* modes of the terminal */
static bool is_editing;
static volatile sig_atomic_t is_held, was_resumed;

/* Bytes that were read ahead. */
static unsigned char keys[4096];
static size_t i_key, n_keys;

/* ---- modes of the terminal ------------------------------------------------ */

static void set_modes(const struct termios *modes, const char *paste_mode) {
    /* In the background this would stop the program: there the terminal is another's. */
    if (tcgetpgrp(STDIN_FILENO) != getpgrp()) return;
    tcsetattr(STDIN_FILENO, TCSANOW, modes);
    if (!is_editing) return;
    ssize_t written = write(STDOUT_FILENO, paste_mode, strlen(paste_mode));
    (void)written;
}

static void set_before(void) { set_modes(&before, "\033[?2004l"); }

static void set_quiet(void) { set_modes(&quiet, "\033[?2004h"); }

static void on_death(int number) {
    ig_cli_release_keys();
    signal(number, SIG_DFL);
    raise(number);
}

static void on_continue(int number) {
    (void)number;
    int why = errno;
    if (is_held) set_quiet();
    was_resumed = 1;
    errno = why;
}

static void on_stop(int number) {
    int why = errno;
    struct sigaction again, stop = {.sa_handler = SIG_DFL};
    if (is_held) set_before();
    sigemptyset(&stop.sa_mask);
    sigaction(number, &stop, &again);
    raise(number); /* it is not blocked here: the program stops now, and on_continue() comes first when it goes on */
    sigaction(number, &again, NULL);
    errno = why;
}

static void catch_signals(void) {
    static const struct {
        int number, flags;
        void (*handler)(int);
    } caught[] = {
        {SIGTSTP, SA_RESTART | SA_NODEFER, on_stop},
        {SIGCONT, SA_RESTART, on_continue},
        {SIGHUP, SA_NODEFER, on_death},
        {SIGQUIT, SA_NODEFER, on_death},
        {SIGPIPE, SA_NODEFER, on_death},
        {SIGABRT, SA_NODEFER, on_death},
        {SIGSEGV, SA_NODEFER, on_death},
        {SIGILL, SA_NODEFER, on_death},
        {SIGFPE, SA_NODEFER, on_death},
        {SIGXCPU, SA_NODEFER, on_death},
        {SIGALRM, SA_NODEFER, on_death},
        {SIGUSR1, SA_NODEFER, on_death},
        {SIGUSR2, SA_NODEFER, on_death},
    };
    for (size_t i = 0; i < sizeof caught / sizeof *caught; i++) {
        struct sigaction old, action = {.sa_handler = caught[i].handler, .sa_flags = caught[i].flags};
        sigemptyset(&action.sa_mask);
        /* What somebody else handles, or ignores as nohup does, stays so. */
        if (sigaction(caught[i].number, NULL, &old) == 0 && !(old.sa_flags & SA_SIGINFO) && old.sa_handler == SIG_DFL)
            sigaction(caught[i].number, &action, NULL);
    }
}

void ig_cli_hold_keys(bool editing) {
    if (!is_held && tcgetattr(STDIN_FILENO, &before) != 0) return;
    quiet = before;
    quiet.c_lflag &= ~(tcflag_t)ECHO;
    if (editing) {
        /* The terminal's own lines end at 4095 bytes, and it would take keys that are the editor's. */
        quiet.c_lflag &= ~(tcflag_t)ICANON;
        quiet.c_cc[VMIN] = 1;
        quiet.c_cc[VTIME] = 0;
    }
    is_editing = editing;
    catch_signals();
    is_held = 1;
    set_quiet();
}

void ig_cli_release_keys(void) {
    if (is_held) set_before();
    is_held = 0;
}

/* ---- bytes ---------------------------------------------------------------- */

static int input_error; /* an errno */

/* Waits for bytes; how many there are, or an IG_KEY. Signals are let in by ppoll() alone: none that comes just before
 * it is missed. */
static int read_keys(int wait_ms) {
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    struct timespec wait = {wait_ms / 1000, wait_ms % 1000 * 1000000L};
    sigset_t awaited, open;
    sigemptyset(&awaited);
    sigaddset(&awaited, SIGINT);
    sigaddset(&awaited, SIGTERM);
    sigaddset(&awaited, SIGCONT);
    for (;;) {
        int ready = -1;
        sigprocmask(SIG_BLOCK, &awaited, &open);
        if (!ig_cli_interrupted() && !was_resumed) ready = ppoll(&input, 1, wait_ms < 0 ? NULL : &wait, &open);
        sigprocmask(SIG_SETMASK, &open, NULL);
        if (ig_cli_interrupted()) return IG_KEY_INTERRUPTED;
        if (was_resumed) {
            was_resumed = 0;
            return IG_KEY_RESUMED;
        }
        if (ready == 0) return IG_KEY_NONE;
        ssize_t got = ready < 0 ? -1 : read(STDIN_FILENO, keys, sizeof keys);
        if (got > 0) return (int)got;
        if (got == 0 || errno != EINTR) {
            input_error = got < 0 ? errno : 0;
            return IG_KEY_END;
        }
    }
}

int ig_cli_key_error(void) { return input_error; }

int ig_cli_key(int wait_ms) {
    if (i_key == n_keys || ig_cli_interrupted()) {
        int got = read_keys(wait_ms);
        i_key = 0;
        n_keys = got > 0 ? (size_t)got : 0;
        if (got < 0) return got;
    }
    return keys[i_key++];
}
