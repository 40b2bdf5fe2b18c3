/* SPDX-License-Identifier: Apache-2.0
 *
 * `infinigen kv`: what is stored in a directory of KV, whether it is well, and taking things out.
 */
#define _GNU_SOURCE
#include "cli/app.h"
#include "infinigen_tools.h"

#include <string.h>
#include <time.h>

enum { ID_SHOWN = 12 };

/* ---- text ---------------------------------------------------------------- */

/* "5 min ago" */
static const char *age_text(char out[32], double seconds) {
    static const struct {
        double seconds;
        const char *unit;
    } units[] = {{86400, "days"}, {3600, "h"}, {60, "min"}, {1, "s"}};
    for (size_t i = 0; i < 4; i++) {
        if (seconds < (i ? 1 : 2) * units[i].seconds) continue;
        snprintf(out, 32, "%.0f %s ago", seconds / units[i].seconds, units[i].unit);
        return out;
    }
    snprintf(out, 32, "now");
    return out;
}

static double age_of(const ig_stored_item *item) {
    double age = (double)time(NULL) - item->used;
    return age > 0 ? age : 0;
}

/* "1 piece", "5 pieces" */
static const char *count_text(char out[32], uint64_t n, const char *unit) {
    snprintf(out, 32, "%llu %s%s", (unsigned long long)n, unit, n == 1 ? "" : "s");
    return out;
}

/* A column of at most `most` bytes of text from a file, which may hold anything. */
static void put_column(const char *text, int width, size_t most) {
    int n = (int)strnlen(text, most);
    ig_cli_put(text, (size_t)n);
    printf("%*s", n < width ? width - n : 0, "");
}

/* ---- ls ------------------------------------------------------------------ */

typedef struct listing {
    json_t *prefixes, *notes; /* NULL: text */
    int n;
} listing;

static json_t *json_of(const ig_stored_item *item) {
    json_t *r = json_object();
    bool is_note = item->note[0];
    json_object_set_new(r, is_note ? "name" : "id", ig_text_string(is_note ? item->note : item->id));
    json_object_set_new(r, "root", ig_text_string(item->root));
    json_object_set_new(r, "model", ig_text_string(item->model));
    json_object_set_new(r, "kind", ig_text_string(item->kind));
    if (!is_note) json_object_set_new(r, "tokens", json_integer((json_int_t)item->n_tokens));
    json_object_set_new(r, "bytes", json_integer((json_int_t)item->bytes));
    json_object_set_new(r, "used", json_integer((json_int_t)item->used));
    json_object_set_new(r, "age", json_real(age_of(item)));
    if (!is_note) json_object_set_new(r, "whole", json_boolean(item->is_whole));
    return r;
}

static bool list_item(void *user, const ig_stored_item *item) {
    listing *l = user;
    char size[32], age[32], tokens[32] = "note";
    if (l->prefixes) {
        json_array_append_new(item->note[0] ? l->notes : l->prefixes, json_of(item));
        return ig_cli_interrupted();
    }
    if (!l->n++)
        printf("%-*s  %8s  %9s  %-12s  %-28s  %s\n", ID_SHOWN, "id", "tokens", "size", "last use", "model", "kind");
    if (!item->note[0]) snprintf(tokens, sizeof tokens, "%llu", (unsigned long long)item->n_tokens);
    put_column(item->note[0] ? item->note : item->id, ID_SHOWN, item->note[0] ? 64 : ID_SHOWN);
    printf("  %8s  %9s  %-12s  ", tokens, ig_cli_size(size, item->bytes), age_text(age, age_of(item)));
    put_column(item->model, 28, SIZE_MAX);
    printf("  ");
    ig_cli_put(item->kind, strlen(item->kind));
    printf("%s\n", item->is_whole ? "" : "  (its beginning has left)");
    return ig_cli_interrupted();
}

/* The exit code, or one for files of which nothing is known. */
static int tell_unread(const ig_cli_options *o, const ig_stored_info *info, int code) {
    if (!info->n_unread || code) return code;
    return ig_cli_complain(o, "%s: %llu files cannot be opened, and what they hold is not counted", o->kv_store,
                           (unsigned long long)info->n_unread);
}

static int list(const ig_cli_options *o, ig_stored *stored) {
    ig_error err;
    char size[32], pieces[32];
    ig_stored_info info;
    listing l = {0};
    if (o->json) l = (listing){json_array(), json_array(), 0};
    ig_stored_get_info(stored, &info);
    ig_status status = ig_stored_list(stored, list_item, &l, &err);
    if (status) {
        json_decref(l.prefixes);
        json_decref(l.notes);
        return ig_cli_fail(o, &err);
    }
    int code = IG_EXIT_OK;
    if (o->json)
        code = ig_cli_print_json(json_pack("{s:o, s:I, s:I, s:o, s:o}", "directory", ig_text_string(o->kv_store),
                                           "pieces", (json_int_t)info.n_pieces, "bytes", (json_int_t)info.bytes,
                                           "prefixes", l.prefixes, "notes", l.notes));
    else
        printf("%s in %s\n", ig_cli_size(size, info.bytes), count_text(pieces, info.n_pieces, "piece"));
    return tell_unread(o, &info, code);
}

/* ---- verify -------------------------------------------------------------- */

typedef struct checking {
    json_t *damaged; /* NULL: text */
    ig_cli_progress bar;
} checking;

static bool tell_damaged(void *user, const ig_stored_item *item) {
    checking *c = user;
    const char *id = item->note[0] ? item->note : item->id;
    if (c->damaged) {
        json_t *r = json_object();
        json_object_set_new(r, "file", ig_text_string(item->file));
        if (item->id[0]) json_object_set_new(r, "id", ig_text_string(item->id));
        if (item->note[0]) json_object_set_new(r, "name", ig_text_string(item->note));
        json_object_set_new(r, "model", ig_text_string(item->model));
        json_object_set_new(r, "damage", ig_text_string(item->damage));
        json_array_append_new(c->damaged, r);
        return false;
    }
    ig_cli_progress_end(&c->bar);
    put_column(id[0] ? id : item->file, 0, SIZE_MAX);
    printf(": ");
    ig_cli_put(item->damage, strlen(item->damage));
    putchar('\n');
    return false;
}

static bool show_progress(void *user, uint64_t done, uint64_t total) {
    checking *c = user;
    return ig_cli_on_progress(&c->bar, done, total);
}

static int verify(const ig_cli_options *o, ig_stored *stored) {
    ig_error err;
    char size[32], pieces[32], notes[32];
    ig_stored_health h;
    checking c = {o->json ? json_array() : NULL, ig_cli_progress_start("checking", "bytes")};
    ig_status status = ig_stored_verify(&h, stored, tell_damaged, show_progress, &c, &err);
    ig_cli_progress_end(&c.bar);
    if (status) {
        json_decref(c.damaged);
        return ig_cli_fail(o, &err);
    }
    int code = IG_EXIT_OK;
    if (o->json)
        code = ig_cli_print_json(json_pack("{s:o, s:I, s:I, s:I, s:I, s:o}", "directory", ig_text_string(o->kv_store),
                                           "pieces", (json_int_t)h.n_pieces, "notes", (json_int_t)h.n_notes, "bytes",
                                           (json_int_t)h.bytes, "foreign_files", (json_int_t)h.n_foreign, "damaged",
                                           c.damaged));
    else
        printf("%s and %s, %s: %s\n", count_text(pieces, h.n_pieces, "piece"), count_text(notes, h.n_notes, "note"),
               ig_cli_size(size, h.bytes), h.n_damaged ? "not all is well" : "all is well");
    if (!h.n_damaged) return code;
    return ig_cli_complain(o, "%s: %llu damaged", o->kv_store, (unsigned long long)h.n_damaged);
}

/* ---- gc, rm -------------------------------------------------------------- */

static int report_freed(const ig_cli_options *o, ig_stored *stored, const ig_stored_freed *freed) {
    char size[32], left[32], count[32];
    ig_stored_info info;
    ig_stored_get_info(stored, &info);
    if (o->json) {
        int code = ig_cli_print_json(
            json_pack("{s:o, s:I, s:I, s:I, s:I, s:I}", "directory", ig_text_string(o->kv_store), "removed_pieces",
                      (json_int_t)freed->n_pieces, "removed_notes", (json_int_t)freed->n_notes, "freed_bytes",
                      (json_int_t)freed->bytes, "pieces", (json_int_t)info.n_pieces, "bytes", (json_int_t)info.bytes));
        return tell_unread(o, &info, code);
    }
    printf("removed %s", count_text(count, freed->n_pieces, "piece"));
    if (freed->n_notes) printf(" and %s", count_text(count, freed->n_notes, "note"));
    printf(", %s; %s in %s", ig_cli_size(size, freed->bytes), ig_cli_size(left, info.bytes),
           count_text(count, info.n_pieces, "piece"));
    printf(" %s left\n", info.n_pieces == 1 ? "is" : "are");
    return tell_unread(o, &info, IG_EXIT_OK);
}

static int collect(const ig_cli_options *o, ig_stored *stored) {
    ig_error err;
    ig_stored_freed freed;
    if (ig_stored_gc(&freed, stored, o->kv_store_size ? o->kv_store_size : UINT64_MAX, &err))
        return ig_cli_fail(o, &err);
    return report_freed(o, stored, &freed);
}

static int remove_what(const ig_cli_options *o, ig_stored *stored) {
    ig_error err;
    ig_stored_freed freed, sum = {0};
    ig_stored_what what = o->all ? IG_STORED_ALL : o->note ? IG_STORED_NOTE : o->model ? IG_STORED_MODEL : IG_STORED_ID;
    int n = what == IG_STORED_ID ? o->n_words : 1;
    for (int i = 0; i < n; i++) {
        const char *name = what == IG_STORED_ID ? o->words[i] : what == IG_STORED_NOTE ? o->note : o->model;
        if (ig_stored_remove(&freed, stored, what, name, &err)) {
            if (i > 0) report_freed(o, stored, &sum); /* what came before is gone */
            return ig_cli_fail(o, &err);
        }
        sum.n_pieces += freed.n_pieces;
        sum.n_notes += freed.n_notes;
        sum.bytes += freed.bytes;
    }
    return report_freed(o, stored, &sum);
}

/* ---- all ----------------------------------------------------------------- */

static const struct {
    const char *name;
    bool write;
    int (*run)(const ig_cli_options *o, ig_stored *stored);
} actions[] = {{"ls", false, list}, {"verify", false, verify}, {"gc", true, collect}, {"rm", true, remove_what}};

static int refuse(const ig_cli_options *o, const char *why) {
    ig_cli_complain(o, "%s", why);
    return IG_EXIT_USAGE;
}

/* What was given must be of use to the action. */
static int check_options(const ig_cli_options *o, const char *action) {
    bool is_rm = strcmp(action, "rm") == 0, is_gc = strcmp(action, "gc") == 0;
    int n = (o->n_words > 0) + (o->note != NULL) + (o->model != NULL) + o->all;
    if (!o->kv_store) return refuse(o, "--kv-store DIR is missing");
    if (o->kv_store_size && !is_gc) return refuse(o, "--kv-store-size is for gc");
    if (is_rm && !n) return refuse(o, "remove what? ID..., --note NAME, --model NAME or --all");
    if (is_rm && n > 1) return refuse(o, "ID..., --note, --model, --all: one of them only");
    if (!is_rm && o->all) return refuse(o, "--all is for rm");
    if (!is_rm && o->note) return refuse(o, "--note is for rm");
    if (!is_rm && o->model) return refuse(o, "--model is for rm");
    if (!is_rm && o->n_words) {
        ig_cli_complain(o, "one argument too many: '%s'", o->words[0]);
        return IG_EXIT_USAGE;
    }
    for (int i = 0; i < o->n_words; i++) {
        size_t n_digits = strspn(o->words[i], "0123456789abcdefABCDEF");
        if (n_digits && n_digits <= 32 && !o->words[i][n_digits]) continue;
        ig_cli_complain(o, "'%s' is no id: 1 to 32 hexadecimal digits, as ls shows them", o->words[i]);
        return IG_EXIT_USAGE;
    }
    return IG_EXIT_OK;
}

int ig_cli_kv(const ig_cli_options *given) {
    ig_cli_options own = *given, *o = &own;
    ig_error err;
    ig_stored *stored;
    size_t i = 0;
    if (!o->rest) return refuse(o, "what to do? ls, verify, gc or rm");
    while (i < 4 && strcmp(actions[i].name, o->rest) != 0) i++;
    if (i == 4) {
        ig_cli_complain(o, "'%s' is not one of ls, verify, gc, rm", o->rest);
        return IG_EXIT_USAGE;
    }
    bool takes_ids = strcmp(o->rest, "rm") == 0 && !o->note && !o->model && !o->all;
    if (!o->kv_store && (takes_ids ? o->n_words > 1 : o->n_words == 1)) /* the only thing that could be meant */
        o->kv_store = o->words[--own.n_words];
    int code = check_options(o, o->rest);
    if (code) return code;
    ig_cli_catch_interrupts(false);
    if (ig_stored_open(&stored, o->kv_store, actions[i].write, &err)) return ig_cli_fail(o, &err);
    code = actions[i].run(o, stored);
    ig_stored_close(stored);
    return code;
}
