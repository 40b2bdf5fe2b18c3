/* SPDX-License-Identifier: Apache-2.0
 *
 * What a verb writes: standard output, and files, never one that it reads.
 */
#define _GNU_SOURCE
#include "cli/app.h"
#include "cli/hub.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- streams ------------------------------------------------------------ */

static int output_error; /* the first one of standard output: stdio does not keep its number */

/* All of it: of what a signal cuts short, or a reader who shares the descriptor made not to wait, stdio would forget
 * the rest. */
static ssize_t write_all(void *cookie, const char *bytes, size_t n) {
    int fd = (int)(intptr_t)cookie;
    for (size_t done = 0; done < n;) {
        ssize_t more = write(fd, bytes + done, n - done);
        if (more > 0) done += (size_t)more;
        if (more >= 0 || errno == EINTR) continue;
        if (errno == EAGAIN) {
            poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, -1);
            continue;
        }
        if (fd == STDOUT_FILENO && !output_error) output_error = errno;
        return 0;
    }
    return (ssize_t)n;
}

static int close_fd(void *fd) { return close((int)(intptr_t)fd); }

/* fileno() does not know its descriptor. */
static FILE *open_stream(int fd) {
    FILE *f = fopencookie((void *)(intptr_t)fd, "w", (cookie_io_functions_t){.write = write_all, .close = close_fd});
    if (f) setvbuf(f, NULL, isatty(fd) ? _IOLBF : _IOFBF, BUFSIZ);
    return f;
}

void ig_cli_open_output(void) {
    FILE *out = open_stream(STDOUT_FILENO);
    if (out) stdout = out;
}

int ig_cli_flush(void) {
    if (fflush(stdout) != 0 && !output_error) output_error = errno;
    return output_error;
}

/* ---- files -------------------------------------------------------------- */

static bool is_file(const struct stat *a, const char *path) {
    struct stat b;
    return path && stat(path, &b) == 0 && a->st_dev == b.st_dev && a->st_ino == b.st_ino;
}

static bool is_one_of(const struct stat *a, const ig_cli_texts *paths) {
    bool is = false;
    for (int i = 0; i < paths->n; i++) is = is || is_file(a, paths->v[i]);
    return is;
}

/* Whether it is one of the files that a model's directory is read from, under whatever name. */
static bool is_part(const struct stat *a, const char *directory) {
    static const char *const ends[] = {".safetensors", ".json", ".model", ".jinja"};
    bool is = false;
    DIR *d = directory ? opendir(directory) : NULL;
    for (struct dirent *e; d && !is && (e = readdir(d));) {
        char path[4096];
        const char *end = strrchr(e->d_name, '.');
        int n = snprintf(path, sizeof path, "%s/%s", directory, e->d_name);
        for (size_t i = 0; end && n > 0 && (size_t)n < sizeof path && i < sizeof ends / sizeof *ends; i++)
            is = is || (strcmp(end, ends[i]) == 0 && is_file(a, path));
    }
    if (d) closedir(d);
    return is;
}

/* Whether it is one of the parts of a GGUF model, NAME-00001-of-00003.gguf. */
static bool is_gguf_part(const struct stat *a, const char *model) {
    char path[4096];
    size_t number = model ? ig_cli_number_of_part(model) : 0;
    if (!number) return false;
    const char *rest = model + number + 5;
    int n = atoi(rest + sizeof "-of-" - 1);
    bool is = false;
    for (int i = 1; i <= n && !is; i++) {
        snprintf(path, sizeof path, "%.*s%05d%s", (int)number, model, i, rest);
        is = is_file(a, path);
    }
    return is;
}

static bool is_of_model(const struct stat *a, const char *model) {
    return is_file(a, model) || is_part(a, model) || is_gguf_part(a, model);
}

static bool is_of_adapter(const struct stat *a, const ig_cli_options *o) {
    ig_cli_adapters adapters = {0};
    bool is = false;
    ig_cli_read_adapters(&adapters, o);
    for (int i = 0; i < adapters.n; i++) is = is || is_of_model(a, adapters.list[i].path);
    ig_cli_free_adapters(&adapters);
    return is;
}

/* Another output of the same run. */
static bool is_output(const struct stat *a, const char *other, const char *path) {
    return other && other != path && is_file(a, other);
}

int ig_cli_check_output(const ig_cli_options *o, const char *model, const char *path) {
    struct stat st;
    if (strcmp(path, "-") == 0) {
        ig_cli_complain(o, "-: the name of a file is wanted");
        return IG_EXIT_USAGE;
    }
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode)) return IG_EXIT_OK;
    bool is_read = is_of_model(&st, model) || is_of_model(&st, o->draft_model) || is_of_adapter(&st, o) ||
                   is_file(&st, o->file) || is_file(&st, o->tokens) || is_file(&st, o->grammar_file) ||
                   is_file(&st, o->chat_template) || is_file(&st, o->schema_file) || is_file(&st, o->sources) ||
                   is_one_of(&st, &o->tasks) || is_one_of(&st, &o->shots_files) || is_one_of(&st, &o->kv_sketch) ||
                   is_output(&st, o->kv_trace, path) || is_output(&st, o->audit_trace, path);
    return is_read
               ? ig_cli_complain(o, "%s: would be overwritten, and is read or written already: name another file", path)
               : IG_EXIT_OK;
}

int ig_cli_open_file(FILE **out, const ig_cli_options *o, const char *model, const char *path, bool is_kept) {
    int code = ig_cli_check_output(o, model, path);
    *out = NULL;
    if (code) return code;
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | (is_kept ? 0 : O_TRUNC), 0666);
    *out = fd >= 0 ? open_stream(fd) : NULL;
    if (*out) return IG_EXIT_OK;
    code = ig_cli_fail_file(o, path);
    if (fd >= 0) close(fd);
    return code;
}

int ig_cli_create_file(FILE **out, const ig_cli_options *o, const char *model, const char *path) {
    return ig_cli_open_file(out, o, model, path, false);
}

int ig_cli_end_file(FILE *f, const ig_cli_options *o, const char *path, int code) {
    struct stat st;
    errno = 0;
    if (fclose(f) != 0 && !code) code = ig_cli_complain(o, "%s: %s", path, errno ? strerror(errno) : "writing failed");
    char *file = code ? realpath(path, NULL) : NULL; /* what a link names */
    if (file && stat(file, &st) == 0 && S_ISREG(st.st_mode)) unlink(file);
    free(file);
    return code;
}
