/* SPDX-License-Identifier: Apache-2.0
 *
 * Models of the Hugging Face hub. Its list of a repository's files, with their sizes and SHA-256, is kept beside them,
 * so that what is there is found again without a network. Which file is taken is as in llama.cpp: of the kind that was
 * asked for, else Q4_K_M, else Q8_0, else the first. A repository without GGUF files is taken as a folder of
 * safetensors.
 */
#define _GNU_SOURCE
#include "cli/hub.h"

#include <ctype.h>
#include <errno.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define LIST ".list.json" /* beside the files */
enum { NAME_BYTES_MAX = 100, PATH_BYTES_MAX = 150, LIST_BYTES_MAX = 1 << 25, SMALL_FILE_MAX = 256 << 20 };

typedef struct hub {
    const ig_cli_options *o;
    const char *name; /* as it was given */
    char repository[NAME_BYTES_MAX + 1];
    const char *which; /* what is behind the colon; "": nothing */
    char address[512];
    json_t *list;
} hub;

/* A file of the list. */
typedef struct hub_file {
    const char *path, *base; /* in the repository; without its folders */
    const char *sha256;      /* "": not known */
    uint64_t bytes;
} hub_file;

/* ---- names ------------------------------------------------------------------------ */

bool ig_cli_hub_is_name(const char *text) {
    size_t n = strcspn(text, ":"), n_slashes = 0;
    if (n > NAME_BYTES_MAX || !isalnum((unsigned char)text[0])) return false;
    for (size_t i = 0; i < n; i++) {
        unsigned char before = i ? (unsigned char)text[i - 1] : '/';
        if (text[i] == '/')
            n_slashes++;
        else if (!isalnum((unsigned char)text[i]) && (!strchr("._-", text[i]) || before == '/'))
            return false;
    }
    return n_slashes == 1 && text[n - 1] != '/' && (!text[n] || text[n + 1]);
}

static const char *base_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcasecmp(text + n - m, end) == 0;
}

size_t ig_cli_number_of_part(const char *path) {
    static const char form[] = "#####-of-#####.gguf";
    size_t n = strlen(path), m = sizeof form - 1;
    if (n <= m) return 0;
    for (size_t i = 0; i < m; i++)
        if (form[i] == '#' ? !isdigit((unsigned char)path[n - m + i]) : form[i] != path[n - m + i]) return 0;
    return n - m;
}

/* ---- the list ---------------------------------------------------------------------- */

/* Whether it can lie in a folder of ours as it is called: no part of it leads elsewhere, or is hidden. */
static bool is_plain(const char *path) {
    for (const char *part = path;; part++) {
        if (*part == '.' || *part == '/' || !*part) return false;
        part += strcspn(part, "/");
        if (!*part) return strlen(path) <= PATH_BYTES_MAX;
    }
}

static hub_file file_at(const hub *h, size_t i) {
    json_t *entry = json_array_get(h->list, i), *large = json_object_get(entry, "lfs");
    const char *path = json_string_value(json_object_get(entry, "path")),
               *sha256 = json_string_value(json_object_get(large, "oid"));
    json_int_t bytes = json_integer_value(json_object_get(json_is_object(large) ? large : entry, "size"));
    const char *type = json_string_value(json_object_get(entry, "type"));
    bool is_file = path && type && strcmp(type, "file") == 0;
    bool is_sum = sha256 && strlen(sha256) == 64 && strspn(sha256, "0123456789abcdef") == 64;
    if (!is_file || bytes <= 0 || !is_plain(path)) path = "";
    return (hub_file){path, base_of(path), is_sum ? sha256 : "", (uint64_t)bytes};
}

/* Whether the file's name has the kind of weights in it, as in "model-Q8_0.gguf". */
static bool has_kind(const hub_file *f, const char *kind) {
    size_t n = strlen(kind);
    for (const char *at = f->path; (at = strcasestr(at, kind)); at++)
        if ((at[n] == '.' || at[n] == '-' || at[n] == '/') && (at == f->path || !isalnum((unsigned char)at[-1])))
            return true;
    return false;
}

/* A model, and not what sees pictures or was measured of one. */
static bool is_model(const hub_file *f) {
    return ends_with(f->path, ".gguf") && !strcasestr(f->base, "mmproj") && !strcasestr(f->base, "imatrix");
}

static bool is_later_part(const char *base) {
    size_t number = ig_cli_number_of_part(base);
    return number && atoi(base + number) != 1;
}

/* The GGUF file that is meant; false: none. Of several that are one model the first. */
static bool find_model(const hub *h, const char *kind, hub_file *out) {
    for (size_t i = 0; i < json_array_size(h->list); i++) {
        *out = file_at(h, i);
        bool is_named = strcmp(out->path, h->which) == 0 || strcmp(out->base, h->which) == 0;
        if (is_named && ends_with(out->path, ".gguf")) return true;
        if (!is_model(out) || is_later_part(out->base)) continue;
        if (!kind || has_kind(out, kind)) return true;
    }
    return false;
}

/* Whether a file belongs to the model of `first`. */
static bool belongs(const hub_file *f, const hub_file *first) {
    size_t n = (size_t)(first->base - first->path) + ig_cli_number_of_part(first->base);
    if (!ig_cli_number_of_part(first->base)) return strcmp(f->path, first->path) == 0;
    return strlen(f->path) == strlen(first->path) && strncmp(f->path, first->path, n) == 0 &&
           strcmp(f->path + n + 5, first->path + n + 5) == 0;
}

/* Of a repository without GGUF files: weights, configuration and tokenizer. */
static bool is_of_folder(const hub_file *f) {
    static const char *const ends[] = {".json", ".jinja", ".model", ".txt"};
    if (strcmp(f->base, f->path) != 0 || !*f->path) return false;
    if (ends_with(f->path, ".safetensors")) return strncmp(f->path, "model", 5) == 0;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ends_with(f->path, ends[i])) return f->bytes <= SMALL_FILE_MAX;
    return false;
}

/* ---- getting ------------------------------------------------------------------------ */

/* "<address><before><path, as addresses write it>"; false if too long. */
static bool add_address(char *out, size_t cap, const hub *h, const char *before, const char *path) {
    int n = snprintf(out, cap, "%s%s", h->address, before);
    for (; n > 0 && (size_t)n + 4 < cap && *path; path++)
        n += snprintf(out + n, cap - (size_t)n,
                      isalnum((unsigned char)*path) || strchr("/._-~", *path) ? "%c" : "%%%02X", (unsigned char)*path);
    return n > 0 && (size_t)n + 4 < cap && !*path;
}

/* Gets what is at "<address><head>OWNER/REPOSITORY<tail><path>" into the cache's folder, as its path, or without one as
 * `base`. */
static int get(char *path, size_t cap, const hub *h, const char *head, const char *tail, const hub_file *f) {
    char before[NAME_BYTES_MAX + 64];
    ig_cli_source s = {.origin = IG_ORIGIN_URL, .first = 1, .last = 1, .is_of_hub = true, .bytes = f->bytes};
    snprintf(before, sizeof before, "%s%s%s", head, h->repository, tail);
    snprintf(s.name, sizeof s.name, "%s", *f->path ? f->base : h->name);
    snprintf(s.sha256, sizeof s.sha256, "%s", f->sha256);
    snprintf(s.place, sizeof s.place, "hub/%s/%.*s", h->repository, PATH_BYTES_MAX, *f->path ? f->path : f->base);
    if (!add_address(s.from, sizeof s.from, h, before, f->path))
        return ig_cli_complain(h->o, "%s: %s: the name is too long", h->name, f->path);
    return ig_cli_source_get(path, cap, &s, h->o);
}

/* The list as it is now, or as it was when something was fetched last; NULL if there is none. */
static json_t *read_list(const hub *h, const char *path) {
    struct stat st;
    ig_cli_text text = {0};
    bool failed;
    if (stat(path, &st) != 0 || st.st_size > LIST_BYTES_MAX || ig_cli_read_file(&text, h->o, path)) return NULL;
    json_t *list = ig_json_of_text(text.data, text.n, 0, NULL, &failed);
    free(text.data);
    if (json_is_array(list)) return list;
    json_decref(list);
    return NULL;
}

/* Where a file of the repository lies in the cache, or with "" its folder. */
static bool cached_path(char *path, size_t cap, const hub *h, const char *file) {
    char rest[NAME_BYTES_MAX + PATH_BYTES_MAX + 8];
    snprintf(rest, sizeof rest, "hub/%s/%s", h->repository, file);
    return ig_cli_path(path, cap, IG_PLACE_CACHE, rest);
}

/* Files that are others now than when they were fetched go, and with them what stands for a whole folder. */
static void forget_changed(const hub *h, json_t *old) {
    size_t i, k;
    json_t *entry, *before;
    json_array_foreach(old, i, before) json_array_foreach(h->list, k, entry) {
        hub_file f = file_at(h, k);
        bool is_same_file = json_equal(json_object_get(before, "path"), json_object_get(entry, "path"));
        if (!is_same_file || !*f.path) continue;
        if (json_equal(json_object_get(before, "oid"), json_object_get(entry, "oid"))) continue;
        ig_cli_source s = {.name = ""};
        snprintf(s.place, sizeof s.place, "hub/%s/%s", h->repository, f.path);
        ig_cli_source_forget(&s);
        snprintf(s.place, sizeof s.place, "hub/%s/config.json", h->repository);
        ig_cli_source_forget(&s);
    }
}

static int ask_with_lock(hub *h) {
    static const hub_file list = {.path = "", .base = ".list.new", .sha256 = ""};
    char path[4200], kept[4200];
    if (!cached_path(path, sizeof path, h, list.base) || !cached_path(kept, sizeof kept, h, LIST))
        return ig_cli_complain(h->o, "no home folder is known: set XDG_CACHE_HOME");
    unlink(path);
    int code = get(path, sizeof path, h, "/api/models/", "/tree/main?recursive=true", &list);
    if (code) return code;
    json_t *old = read_list(h, kept), *fresh = read_list(h, path);
    json_decref(h->list);
    h->list = fresh;
    if (fresh) forget_changed(h, old);
    json_decref(old);
    if (fresh && rename(path, kept) != 0) return ig_cli_complain(h->o, "%s: %s", kept, strerror(errno));
    unlink(path);
    return h->list ? IG_EXIT_OK
                   : ig_cli_complain(h->o, "%s: what %s says of it is no list of files", h->name, h->address);
}

/* One process at a time. */
static int ask_for_list(hub *h) {
    char path[4200];
    if (!cached_path(path, sizeof path, h, ".list.lock") || !ig_cli_make_folders(path))
        return ig_cli_complain(h->o, "no folder for models can be made: set XDG_CACHE_HOME");
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) return ig_cli_complain(h->o, "%s: %s", path, strerror(errno));
    while (flock(fd, LOCK_EX) != 0 && errno == EINTR && !ig_cli_interrupted()) continue;
    int code = ask_with_lock(h);
    close(fd);
    return code;
}

/* What is meant is not there: what is. */
static int complain_of_choice(const hub *h) {
    char names[400] = "";
    size_t n = 0;
    if (!*h->which)
        return ig_cli_complain(h->o, "%s: the repository has neither GGUF files nor safetensors with a config.json",
                               h->name);
    for (size_t i = 0; i < json_array_size(h->list); i++) {
        hub_file f = file_at(h, i);
        if (!is_model(&f) || is_later_part(f.base)) continue;
        if (n + strlen(f.path) + 8 > sizeof names) {
            snprintf(names + n, sizeof names - n, ", ...");
            break;
        }
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", n ? ", " : "", f.path);
    }
    if (!*names) return ig_cli_complain(h->o, "%s: the repository has no GGUF file", h->name);
    return ig_cli_complain(h->o, "%s: no GGUF file is '%s'; there are %s", h->name, h->which, names);
}

/* Whether file number i is one of those that `first`, or if that is NULL a folder, is made of. */
static bool is_wanted(const hub *h, size_t i, const hub_file *first, hub_file *out) {
    *out = file_at(h, i);
    return first ? belongs(out, first) : is_of_folder(out);
}

/* Whether all of them are there. */
static bool are_there(const hub *h, const hub_file *first) {
    for (size_t i = 0; i < json_array_size(h->list); i++) {
        char path[4200];
        struct stat st;
        hub_file f;
        if (!is_wanted(h, i, first, &f)) continue;
        bool is_there = cached_path(path, sizeof path, h, f.path) && stat(path, &st) == 0;
        if (!is_there || (uint64_t)st.st_size != f.bytes) return false;
    }
    return true;
}

/* Gets all but the one that stands for all of them, or that one. */
static int get_some(const hub *h, const hub_file *first, bool is_last) {
    int code = IG_EXIT_OK;
    for (size_t i = 0; !code && i < json_array_size(h->list); i++) {
        char path[4200];
        hub_file f;
        if (!is_wanted(h, i, first, &f)) continue;
        if (is_last == (strcmp(f.path, first ? first->path : "config.json") == 0))
            code = get(path, sizeof path, h, "/", "/resolve/main/", &f);
    }
    return code;
}

/* Whether the list has all files of a model in several. */
static bool has_all_parts(const hub *h, const hub_file *first) {
    size_t number = ig_cli_number_of_part(first->base);
    int n = 0, wanted = number ? atoi(first->base + number + sizeof "#####-of-" - 1) : 1;
    for (size_t i = 0; i < json_array_size(h->list); i++) {
        hub_file f;
        n += is_wanted(h, i, first, &f);
    }
    return n == wanted;
}

/* Gets all that `first`, or if that is NULL a folder, is made of. */
static int get_all(const hub *h, const hub_file *first) {
    if (first && !has_all_parts(h, first))
        return ig_cli_complain(h->o, "%s: %s: the hub does not list all files of this model", h->name, first->path);
    int code = get_some(h, first, false);
    return code ? code : get_some(h, first, true);
}

static bool is_model_folder(const hub *h) {
    bool has_config = false, has_weights = false;
    for (size_t i = 0; i < json_array_size(h->list); i++) {
        hub_file f = file_at(h, i);
        has_config |= strcmp(f.path, "config.json") == 0;
        has_weights |= is_of_folder(&f) && ends_with(f.path, ".safetensors");
    }
    return has_config && has_weights;
}

/* What is meant: *first: the one file, or the first of several; NULL: the folder. False: the list has nothing of it. */
static bool choose(const hub *h, hub_file *file, const hub_file **first) {
    static const char *const liked[] = {"Q4_K_M", "Q8_0", NULL};
    bool is_file = *h->which && find_model(h, h->which, file);
    for (size_t i = 0; i < 3 && !is_file && !*h->which; i++) is_file = find_model(h, liked[i], file);
    *first = is_file ? file : NULL;
    return is_file || (!*h->which && is_model_folder(h));
}

/* One more model, "hub/OWNER/REPOSITORY/FILE" or the folder of such a file. */
static bool add_model(ig_cli_sources *out, const char *place, bool is_folder, uint64_t bytes) {
    const char *owner = place + sizeof "hub/" - 1, *end = strchr(strchr(owner, '/') + 1, '/');
    ig_cli_source *s = ig_cli_sources_add(out);
    if (!s) return false;
    s->is_folder = is_folder;
    if (!is_folder) s->bytes = bytes;
    snprintf(s->name, sizeof s->name, "%.*s%s%.200s", (int)(end - owner), owner, is_folder ? "" : ":",
             is_folder ? "" : end + 1);
    snprintf(s->place, sizeof s->place, "%.*s", is_folder ? (int)(end - place) : (int)strlen(place), place);
    return true;
}

/* Models in a folder of the cache, in which repositories lie two folders deep. False: no memory. */
static bool add_cached(ig_cli_sources *out, const char *folder, int depth) {
    char path[4200];
    struct dirent **entries;
    bool ok = true;
    int n = ig_cli_path(path, sizeof path, IG_PLACE_CACHE, folder) ? scandir(path, &entries, NULL, alphasort) : -1;
    for (int i = 0; i < n; i++) {
        const char *file = entries[i]->d_name;
        char place[400];
        struct stat st;
        bool is_folder = depth == 2 && strcmp(file, "config.json") == 0;
        bool is_model_file = depth >= 2 && ends_with(file, ".gguf") && !is_later_part(file);
        bool fits = snprintf(place, sizeof place, "%s/%s", folder, file) < (int)sizeof place;
        if (ok && fits && file[0] != '.' && ig_cli_path(path, sizeof path, IG_PLACE_CACHE, place) && !stat(path, &st)) {
            if (S_ISDIR(st.st_mode) && depth < 5) ok = add_cached(out, place, depth + 1);
            if (S_ISREG(st.st_mode) && (is_folder || is_model_file))
                ok = add_model(out, place, is_folder, (uint64_t)st.st_size);
        }
        free(entries[i]);
    }
    if (n >= 0) free(entries);
    return ok;
}

bool ig_cli_hub_add_cached(ig_cli_sources *out) { return add_cached(out, "hub", 0); }

int ig_cli_hub_get(char *path, size_t cap, const char *name, bool anew, const ig_cli_options *o) {
    hub h = {.o = o, .name = name, .which = ""};
    char list[4200];
    hub_file file;
    const hub_file *first = NULL;
    if (!ig_cli_hub_is_name(name))
        return ig_cli_complain(o, "%s: is not of the form OWNER/REPOSITORY or OWNER/REPOSITORY:WHICH", name),
               IG_EXIT_USAGE;
    size_t n = strcspn(name, ":");
    memcpy(h.repository, name, n);
    if (name[n]) h.which = name + n + 1;
    snprintf(h.address, sizeof h.address, "%s", ig_cli_read_environment().hub);
    for (size_t end = strlen(h.address); end && h.address[end - 1] == '/'; end--) h.address[end - 1] = 0;
    if (!anew && cached_path(list, sizeof list, &h, LIST)) h.list = read_list(&h, list);
    int code = IG_EXIT_OK;
    if (!h.list || !choose(&h, &file, &first) || !are_there(&h, first)) {
        code = ask_for_list(&h);
        if (!code) code = choose(&h, &file, &first) ? get_all(&h, first) : complain_of_choice(&h);
    }
    if (!code && !cached_path(path, cap, &h, first ? first->path : ""))
        code = ig_cli_complain(o, "the cache's path is too long");
    json_decref(h.list);
    return code;
}
