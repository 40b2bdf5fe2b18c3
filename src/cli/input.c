/* SPDX-License-Identifier: Apache-2.0
 *
 * What comes in from outside other than flags: texts from files and standard
 * input, environment variables, and the folders of the user.
 */
#define _GNU_SOURCE
#include "cli/app.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/server.h"

ig_cli_environment ig_cli_read_environment(void) {
    const char *pid = getenv("LISTEN_PID"), *n = getenv("LISTEN_FDS");
    bool is_ours = pid && n && atol(pid) == (long)getpid();
    const char *key = getenv("INFINIGEN_API_KEY"), *hub = getenv("HF_ENDPOINT");
    return (ig_cli_environment){.cpu = getenv("IG_CPU_MASK"),
                                .log = getenv("IG_LOG"),
                                .api_key = key && *key ? key : NULL,
                                .hub = hub && *hub ? hub : "https://huggingface.co",
                                .listeners = is_ours ? n : NULL,
                                .is_handed_on = getenv(IG_SERVER_HANDED_ON) != NULL};
}

/* ---- paths ---------------------------------------------------------------- */

bool ig_cli_path(char *path, size_t cap, ig_cli_place place, const char *rest) {
    static const struct {
        const char *variable, *fallback;
    } places[] = {{"XDG_CACHE_HOME", ".cache"}, {"XDG_CONFIG_HOME", ".config"}, {"XDG_STATE_HOME", ".local/state"}};
    const char *base = getenv(places[place].variable), *home = getenv("HOME");
    int n;
    if (base && base[0] == '/') {
        n = snprintf(path, cap, "%s/infinigen/%s", base, rest);
    } else {
        if (!home || home[0] != '/') {
            struct passwd *user = getpwuid(getuid());
            home = user ? user->pw_dir : NULL;
        }
        if (!home) return false;
        n = snprintf(path, cap, "%s/%s/infinigen/%s", home, places[place].fallback, rest);
    }
    return n > 0 && (size_t)n < cap;
}

bool ig_cli_make_folders(const char *path) {
    char part[4096];
    for (size_t i = 1; path[i] && i < sizeof part; i++) {
        if (path[i] != '/') continue;
        memcpy(part, path, i);
        part[i] = 0;
        if (mkdir(part, 0777) != 0 && errno != EEXIST) return false;
    }
    return true;
}

/* ---- texts ---------------------------------------------------------------- */

/* No file of gigabytes is a text that a model reads, nor is what has no end, such as /dev/zero. */
static int read_all(ig_cli_text *out, const ig_cli_options *o, int fd, const char *name) {
    const size_t most = (size_t)1 << 30;
    size_t cap = 1 << 16;
    struct stat st;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0)
        cap = (size_t)st.st_size <= most ? (size_t)st.st_size + 2 : most;
    char *data = malloc(cap);
    size_t n = 0;
    for (;;) {
        if (data && cap - n < 2) {
            char *more = realloc(data, cap *= 2);
            if (!more) free(data);
            data = more;
        }
        if (!data) return ig_cli_complain(o, "%s: out of memory for %zu bytes", name, cap);
        ssize_t got = read(fd, data + n, cap - n - 1);
        if (got < 0) {
            if (errno == EINTR && !ig_cli_interrupted()) continue;
            int code = ig_cli_fail_file(o, name);
            free(data);
            return code;
        }
        if (got == 0) break;
        n += (size_t)got;
        if (n > most) {
            free(data);
            return ig_cli_complain(o, "%s: a text of more than 1 GiB", name);
        }
    }
    data[n] = 0;
    *out = (ig_cli_text){data, n};
    return IG_EXIT_OK;
}

int ig_cli_read_file(ig_cli_text *out, const ig_cli_options *o, const char *path) {
    if (strcmp(path, "-") == 0) return read_all(out, o, STDIN_FILENO, "standard input");
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return ig_cli_fail_file(o, path);
    int code = read_all(out, o, fd, path);
    close(fd);
    return code;
}

static int hex_value(char c) {
    return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
}

size_t ig_cli_unescape(char *text, size_t n) {
    static const char from[] = "nrt\\\"'", to[] = "\n\r\t\\\"'";
    size_t n_out = 0;
    for (size_t i = 0; i < n; i++) {
        char c = text[i], next = i + 1 < n ? text[i + 1] : 0;
        const char *found = next ? strchr(from, next) : NULL;
        int high, low;
        if (c == '\\' && found) {
            c = to[found - from];
            i++;
        } else if (c == '\\' && next == 'x' && i + 3 < n && (high = hex_value(text[i + 2])) >= 0 &&
                   (low = hex_value(text[i + 3])) >= 0) {
            c = (char)(high * 16 + low);
            i += 3;
        }
        text[n_out++] = c;
    }
    text[n_out] = 0;
    return n_out;
}

/* The words with blanks between them. */
static int join(ig_cli_text *out, const ig_cli_options *o, const char *const *words, int n_words) {
    size_t n = 0;
    for (int i = 0; i < n_words; i++) n += strlen(words[i]) + 1;
    char *data = malloc(n), *end = data;
    if (!data) return ig_cli_complain(o, "out of memory for %zu bytes", n);
    for (int i = 0; i < n_words; i++) {
        end = stpcpy(end, words[i]);
        *end++ = ' ';
    }
    *--end = 0;
    *out = (ig_cli_text){data, n - 1};
    if (o->escape) out->n = ig_cli_unescape(data, out->n);
    return IG_EXIT_OK;
}

/* The file, a blank line, and what is said of it. */
static int read_both(ig_cli_text *out, const ig_cli_options *o) {
    ig_cli_text file, said = {0};
    int code = ig_cli_read_file(&file, o, o->file);
    if (code) return code;
    code = o->prompt ? join(&said, o, &o->prompt, 1) : join(&said, o, o->words, o->n_words);
    while (file.n && file.data[file.n - 1] == '\n') file.n--;
    char *data = code ? NULL : realloc(file.data, file.n + said.n + 3);
    if (!code && !data) code = ig_cli_complain(o, "out of memory for %zu bytes", file.n + said.n + 3);
    if (!code) {
        memcpy(data + file.n, "\n\n", 2);
        memcpy(data + file.n + 2, said.data, said.n + 1);
        *out = (ig_cli_text){data, file.n + 2 + said.n};
    } else {
        free(file.data);
    }
    free(said.data);
    return code;
}

/* Whether a file or a pipe with something in it is standard input. */
static bool is_piped_in(void) {
    struct stat st;
    int n = 0;
    if (fstat(STDIN_FILENO, &st)) return false;
    if (S_ISREG(st.st_mode)) return lseek(STDIN_FILENO, 0, SEEK_CUR) < st.st_size;
    return S_ISFIFO(st.st_mode) && ioctl(STDIN_FILENO, FIONREAD, &n) == 0 && n > 0;
}

void ig_cli_warn_of_unread_input(const ig_cli_options *o) {
    if ((o->prompt || o->n_words) && !o->file && is_piped_in())
        ig_cli_log((void *)o, IG_LOG_WARN, "what comes from standard input is not read: -f - puts it before the text");
}

int ig_cli_read_input(ig_cli_text *out, const ig_cli_options *o) {
    if (o->prompt && o->n_words) {
        ig_cli_complain(o, "more than one text: give -p or the words after the model");
        return IG_EXIT_USAGE;
    }
    if (o->file && (o->prompt || o->n_words)) return read_both(out, o);
    if (o->prompt) return join(out, o, &o->prompt, 1);
    if (o->n_words) return join(out, o, o->words, o->n_words);
    if (o->file) return ig_cli_read_file(out, o, o->file);
    if (isatty(STDIN_FILENO)) {
        ig_cli_complain(o, "no text: give -p TEXT, -f FILE, or pipe it in");
        return IG_EXIT_USAGE;
    }
    return ig_cli_read_file(out, o, "-");
}

int ig_cli_read_plain_file(ig_cli_text *out, const ig_cli_options *o, const char *path) {
    int code = ig_cli_read_file(out, o, path);
    if (code || strlen(out->data) == out->n) return code;
    free(out->data);
    *out = (ig_cli_text){0};
    return ig_cli_complain(o, "%s: it contains a zero byte", path);
}

/* What is wrong in a file (NULL: in an option) is not wrong usage. */
static int fail_grammar(const ig_cli_options *o, const char *path, const ig_error *err) {
    const char *option = o->grammar ? "--grammar" : "--json-schema", *text = o->grammar ? o->grammar : o->schema;
    bool is_path = !path && access(text, R_OK) == 0;
    ig_cli_complain(o, "%s: %s%s", path ? path : option, err->text,
                    !is_path     ? ""
                    : o->grammar ? " (--grammar-file reads a file)"
                                 : " (-jf reads a file)");
    return path || err->status == IG_E_MEMORY ? IG_EXIT_FAILED : IG_EXIT_USAGE;
}

int ig_cli_read_grammar(char **gbnf, const ig_cli_options *o) {
    const char *text = o->grammar ? o->grammar : o->schema, *path = o->grammar_file ? o->grammar_file : o->schema_file;
    bool is_schema = o->schema || o->schema_file;
    ig_cli_text read = {0};
    ig_error err = {0};
    *gbnf = NULL;
    if (!!o->grammar + !!o->grammar_file + !!o->schema + !!o->schema_file > 1) {
        ig_cli_complain(o, "more than one grammar: give one of --grammar, --grammar-file, -j and -jf");
        return IG_EXIT_USAGE;
    }
    if (!text && !path) return IG_EXIT_OK;
    int code = path ? ig_cli_read_plain_file(&read, o, path) : IG_EXIT_OK;
    if (text && !(read.data = strdup(text))) code = ig_cli_complain(o, "out of memory for %zu bytes", strlen(text));
    if (code) return code;
    if (text) read.n = strlen(text);
    if (is_schema && ig_schema_to_gbnf(gbnf, read.data, read.n, &err)) code = fail_grammar(o, path, &err);
    if (!is_schema && ig_grammar_check(read.data, &err)) code = fail_grammar(o, path, &err);
    if (is_schema)
        free(read.data);
    else
        *gbnf = read.data;
    return code;
}
