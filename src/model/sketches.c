/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "model/sketches.h"

#include <stdlib.h>
#include <sys/stat.h>

#include "base/error.h"

enum { KEPT = 2 }; /* that nobody uses: requests of two policies may take turns */

struct ig_shared_sketch {
    ig_sketch_file file;
    struct stat was; /* the file's, as it was opened */
    int n_users;
    ig_shared_sketch *next;
};

void ig_sketches_init(ig_sketches *all) {
    *all = (ig_sketches){0};
    pthread_mutex_init(&all->lock, NULL);
}

/* Those that nobody uses, but for the first `kept` of them. */
static void drop_unused(ig_shared_sketch **at, int kept) {
    while (*at) {
        ig_shared_sketch *s = *at;
        if (s->n_users || kept-- > 0) {
            at = &s->next;
            continue;
        }
        *at = s->next;
        ig_sketch_file_close(&s->file);
        free(s);
    }
}

void ig_sketches_close(ig_sketches *all) {
    drop_unused(&all->first, 0);
    pthread_mutex_destroy(&all->lock);
}

static bool is_same(const struct stat *a, const struct stat *b) {
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec &&
           a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

/* Out of the list; NULL: it is not there. */
static ig_shared_sketch *unlink_same(ig_sketches *all, const struct stat *now) {
    ig_shared_sketch **at = &all->first, *s;
    while (*at && !is_same(&(*at)->was, now)) at = &(*at)->next;
    s = *at;
    if (s) *at = s->next;
    return s;
}

static ig_status open_new(ig_shared_sketch **out, const char *path, const struct stat *was, ig_error *err) {
    ig_shared_sketch *s = *out = calloc(1, sizeof *s);
    if (!s) return ig_fail_memory(err, "sketch file", sizeof *s);
    s->was = *was;
    ig_status status = ig_sketch_file_open(&s->file, path, err);
    if (status) {
        free(s);
        *out = NULL;
    }
    return status;
}

/* To the front. */
static const ig_sketch_file *use(ig_sketches *all, ig_shared_sketch *s) {
    s->n_users++;
    s->next = all->first;
    all->first = s;
    drop_unused(&all->first, KEPT);
    return &s->file;
}

ig_status ig_sketches_take(const ig_sketch_file **out, ig_sketches *all, const char *path, ig_error *err) {
    struct stat now = {0};
    ig_shared_sketch *s = NULL, *own = NULL;
    ig_status status = IG_OK;
    *out = NULL;
    bool is_there = stat(path, &now) == 0; /* if not, opening says why */
    pthread_mutex_lock(&all->lock);
    if (is_there) s = unlink_same(all, &now);
    if (!s) { /* others go on meanwhile: reading and checking takes a while */
        pthread_mutex_unlock(&all->lock);
        status = open_new(&own, path, &now, err);
        pthread_mutex_lock(&all->lock);
        if (own && is_there) s = unlink_same(all, &now); /* someone else may have been quicker */
    }
    if (s || own) *out = use(all, s ? s : own);
    pthread_mutex_unlock(&all->lock);
    if (s && own) {
        ig_sketch_file_close(&own->file);
        free(own);
    }
    return status;
}

void ig_sketches_give(ig_sketches *all, const ig_sketch_file *f) {
    if (!f) return;
    pthread_mutex_lock(&all->lock);
    for (ig_shared_sketch *s = all->first; s; s = s->next) s->n_users -= &s->file == f;
    drop_unused(&all->first, KEPT);
    pthread_mutex_unlock(&all->lock);
}
