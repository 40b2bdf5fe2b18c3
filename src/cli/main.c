/* SPDX-License-Identifier: Apache-2.0
 *
 * The program `infinigen`: finds the verb, reads its options, runs it.
 */
#define _GNU_SOURCE
#include "cli/app.h"

#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* The verb for what other programs call so; NULL: none. */
static const char *verb_of_others(const char *name) {
    static const char *const others[][2] = {{"pull", "fetch"},      {"list", "fetch"},   {"ls", "fetch"},
                                            {"download", "fetch"},  {"show", "inspect"}, {"generate", "run"},
                                            {"complete", "run"},    {"server", "serve"}, {"start", "serve"},
                                            {"benchmark", "bench"}, {"cli", "chat"}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(others[i][0], name) == 0) return others[i][1];
    return NULL;
}

static int report_unknown_verb(const char *name) {
    if (name[0] == '-') {
        fprintf(stderr, "infinigen: an option comes after a verb: infinigen run %s (see 'infinigen --help')\n", name);
        return IG_EXIT_USAGE;
    }
    const char *names[32] = {NULL};
    for (size_t i = 0; i < 31 && ig_cli_verbs[i].name; i++) names[i] = ig_cli_verbs[i].name;
    const char *near = verb_of_others(name);
    if (!near) near = ig_cli_nearest(name, names);
    fprintf(stderr, "infinigen: no verb '%s'", name);
    if (near) fprintf(stderr, "; did you mean '%s'?", near);
    fprintf(stderr, " (see 'infinigen --help')\n");
    return IG_EXIT_USAGE;
}

/* Where a standard stream is closed, the next file to be opened would take its number, and receive what is meant for
 * the user. What holds the place here fails as a closed one does: it is open the wrong way round. */
static void hold_standard_streams(void) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0) return;
}

enum { STACK_BYTES = 256 << 10 }; /* the deepest calls need half of it */

/* A stack that cannot grow ends the program without a word. Where the limit may be raised, it is. */
static bool has_stack(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= STACK_BYTES) return true;
    limit.rlim_cur = limit.rlim_max < STACK_BYTES ? limit.rlim_max : STACK_BYTES;
    if (limit.rlim_cur == STACK_BYTES && setrlimit(RLIMIT_STACK, &limit) == 0) return true;
    fprintf(stderr, "infinigen: a stack of %d KiB is needed, but it may have only %llu (ulimit -s)\n",
            STACK_BYTES >> 10, (unsigned long long)limit.rlim_cur >> 10);
    return false;
}

int main(int argc, char **argv) {
    hold_standard_streams();
    if (!has_stack()) return IG_EXIT_FAILED;
    ig_cli_open_output();
    setlocale(LC_CTYPE, "");
    ig_json_begin();
    ig_cli_open_options();
    if (argc < 2) {
        ig_cli_print_help(stderr, NULL);
        return IG_EXIT_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) name = "help";
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0) name = "version";
    const ig_cli_verb *verb = ig_cli_find_verb(name);
    if (!verb) return report_unknown_verb(argv[1]);

    ig_cli_options o;
    if (!ig_cli_parse(&o, verb, argc, argv)) return IG_EXIT_USAGE;
    int code = IG_EXIT_OK;
    ig_cli_guard_files(&o);
    if (o.help)
        ig_cli_print_help(stdout, verb);
    else
        code = verb->run(&o);
    if (code == IG_EXIT_OK && o.json && ig_json_take_loss()) {
        fprintf(stderr, "infinigen: out of memory for the report, which is not whole\n");
        code = IG_EXIT_FAILED;
    }
    int why = ig_cli_flush();
    if ((why || ferror(stdout)) && code != IG_EXIT_FAILED) {
        /* Who reads no further, such as head, has what it wanted. */
        if (why != EPIPE) fprintf(stderr, "infinigen: standard output: %s\n", why ? strerror(why) : "writing failed");
        code = IG_EXIT_FAILED;
    }
    return code;
}
