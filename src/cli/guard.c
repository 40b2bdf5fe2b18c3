/* SPDX-License-Identifier: Apache-2.0
 *
 * What the system tells the program about files by signals, which would end it without a word. Models are mapped: when
 * one becomes shorter or its disk fails meanwhile, the first touch of a page that cannot be had is a SIGBUS, in
 * whichever thread that happens. Nothing can be computed from there, so the handler says which model it was (with a
 * draft model, which two it may have been) and ends the program; the kernel drops the spill file, which has no name.
 * And a file that reaches the limit of `ulimit -f` is a SIGXFSZ: ignored, so that the write fails with an error like
 * any other.
 *
 * Handlers belong to programs: the library sets none.
 */
#define _GNU_SOURCE
#include "cli/app.h"

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "cli/keyboard.h"

static char line[8700]; /* what the handler says, made before: it may call next to nothing */
static size_t n_line;
static atomic_flag is_said = ATOMIC_FLAG_INIT;

static void on_bus_error(int number, siginfo_t *info, void *context) {
    (void)context;
    if (info->si_code == BUS_ADRERR) {
        while (atomic_flag_test_and_set(&is_said)) pause(); /* threads of a team come here together */
        ig_cli_release_keys();
        ssize_t written = write(STDERR_FILENO, line, n_line);
        (void)written;
        _exit(IG_EXIT_FAILED);
    }
    /* Broken memory, or sent by somebody. */
    ig_cli_release_keys();
    signal(number, SIG_DFL);
    raise(number);
}

void ig_cli_guard_files(const ig_cli_options *o) {
    signal(SIGXFSZ, SIG_IGN);
    if (!(o->verb->bit & IG_VERB_MODEL) || !o->model) return;
    /* On a terminal there may be half a line of text or of progress. */
    const char *draft = o->draft_model;
    snprintf(line, sizeof line,
             "%sinfinigen %s: %.4096s%s%.4096s: became shorter while it was in use, or its disk failed\n",
             isatty(STDERR_FILENO) ? "\n" : "", o->verb->name, o->model, draft ? " or " : "", draft ? draft : "");
    n_line = strlen(line);
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, NULL);
}
