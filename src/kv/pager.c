/* SPDX-License-Identifier: Apache-2.0
 *
 * The mapped file and its pages. Which pages are in RAM the system says (mincore); they leave by being unmapped,
 * written and dropped from the page cache, neighbours together. A frame is a page.
 */
#define _GNU_SOURCE
#include "kv/pager.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "kv/tier_disk_file.h"

enum { RUN = 256 /* pages looked at, or dropped, at once */ };

typedef struct layer_pages {
    uint64_t used; /* number of the use; 0: never */
    size_t resident;
} layer_pages;

struct ig_kv_pager {
    ig_disk_file file;
    uint8_t *frames;
    size_t n_frames, max_resident;
    layer_pages *layers; /* [n_layers] */
    int n_layers, now;   /* the layer in use; -1: none yet */
    uint64_t n_uses;
    uint8_t *has_left; /* [n_frames] */
    ig_kv_pager_stats stats;
};

ig_status ig_kv_pager_open(ig_kv_pager **out, const char *directory, size_t n_frames, int n_layers, uint64_t max_bytes,
                           ig_error *err) {
    *out = NULL;
    long page = sysconf(_SC_PAGESIZE);
    if (page > IG_FRAME_BYTES)
        return ig_fail(err, IG_E_UNSUPPORTED, "pages of %ld bytes are too large to leave keys and values to them",
                       page);
    ig_kv_pager *p = calloc(1, sizeof *p);
    size_t bytes = n_frames * IG_FRAME_BYTES;
    if (!p) return ig_fail_memory(err, "KV pager", sizeof *p);
    *p = (ig_kv_pager){.file.fd = -1, .n_frames = n_frames, .n_layers = n_layers, .now = -1};
    p->max_resident = (size_t)(max_bytes / IG_FRAME_BYTES);
    p->layers = calloc((size_t)n_layers, sizeof *p->layers);
    p->has_left = ig_pages_reserve(n_frames);
    ig_status s = IG_OK;
    if (!p->layers || !p->has_left) s = ig_fail_memory(err, "KV pager", n_frames);
    if (!s) s = ig_disk_file_open(&p->file, directory, bytes, false, err);
    if (!s && p->file.is_memory)
        s = ig_fail(err, IG_E_ARG, "%s lies in RAM: pages of a file there cannot leave", directory);
    if (!s) s = ig_disk_file_grow(&p->file, bytes, err);
    if (!s && p->file.cannot_reserve) /* a full disk would end the process at any write to memory */
        s = ig_fail(err, IG_E_UNSUPPORTED, "%s: its file system cannot reserve room for a file that is mapped",
                    directory);
    if (!s) {
        void *frames = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, p->file.fd, 0);
        if (frames == MAP_FAILED)
            s = ig_fail(err, IG_E_IO, "%s: cannot map %zu bytes: %s", directory, bytes, strerror(errno));
        else
            p->frames = frames;
    }
    if (s) {
        ig_kv_pager_close(p);
        return s;
    }
    madvise(p->frames, bytes, MADV_RANDOM); /* the page that is touched, and none beside it */
    *out = p;
    return IG_OK;
}

void ig_kv_pager_close(ig_kv_pager *p) {
    if (!p) return;
    if (p->frames) munmap(p->frames, p->n_frames * IG_FRAME_BYTES);
    ig_disk_file_close(&p->file);
    ig_pages_release(p->has_left, p->n_frames);
    free(p->layers);
    free(p);
}

uint8_t *ig_kv_pager_frames(const ig_kv_pager *p) { return p->frames; }

/* The frames from `at` on that lie side by side, at most RUN. */
static size_t count_run(uint8_t *const *at, size_t n) {
    size_t run = 1;
    while (run < n && run < RUN && at[run] == at[0] + run * IG_FRAME_BYTES) run++;
    return run;
}

static size_t count_resident(uint8_t *first, size_t n) {
    unsigned char in_ram[RUN];
    size_t count = 0;
    if (mincore(first, n * IG_FRAME_BYTES, in_ram) != 0) return 0;
    for (size_t i = 0; i < n; i++) count += in_ram[i] & 1;
    return count;
}

/* Counts the pages of a layer that are in RAM, and those that came back since it was last looked at. */
static void look_at(ig_kv_pager *p, int layer, uint8_t *const *frames, size_t n) {
    layer_pages *l = &p->layers[layer];
    size_t count = 0, came = 0;
    unsigned char in_ram[RUN];
    for (size_t i = 0, run; i < n; i += run) {
        run = 1;
        if (!frames[i]) continue;
        run = count_run(frames + i, n - i);
        if (mincore(frames[i], run * IG_FRAME_BYTES, in_ram) != 0) continue;
        uint8_t *left = p->has_left + (size_t)(frames[i] - p->frames) / IG_FRAME_BYTES;
        for (size_t k = 0; k < run; k++) {
            bool here = in_ram[k] & 1;
            count += here;
            came += here && left[k] == 1;
            if (here && left[k]) left[k] = 2; /* came back */
        }
    }
    p->stats.read_bytes += came * IG_FRAME_BYTES;
    l->resident = count;
}

/* At least n pages of a layer leave, if it has as many. */
static void drop(ig_kv_pager *p, int layer, uint8_t *const *frames, size_t n_blocks, size_t n) {
    layer_pages *l = &p->layers[layer];
    size_t gone = 0;
    for (size_t i = 0, run; i < n_blocks && gone < n; i += run) {
        run = 1;
        if (!frames[i]) continue;
        run = count_run(frames + i, n_blocks - i);
        size_t in_ram = count_resident(frames[i], run), bytes = run * IG_FRAME_BYTES;
        if (!in_ram) continue;
        off_t at = (off_t)(frames[i] - p->frames);
        uint8_t *left = p->has_left + (size_t)at / IG_FRAME_BYTES;
        madvise(frames[i], bytes, MADV_DONTNEED);
        sync_file_range(p->file.fd, at, (off_t)bytes,
                        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
        posix_fadvise(p->file.fd, at, (off_t)bytes, POSIX_FADV_DONTNEED);
        for (size_t k = 0; k < run; k++) {
            p->stats.written_bytes += left[k] ? 0 : IG_FRAME_BYTES;
            left[k] = 1;
        }
        gone += in_ram;
    }
    p->stats.n_left += gone;
    l->resident -= gone < l->resident ? gone : l->resident;
}

/* The layer used longest ago that has pages in RAM; -1: none but the one in use. */
static int find_oldest(const ig_kv_pager *p) {
    int oldest = -1;
    for (int l = 0; l < p->n_layers; l++)
        if (l != p->now && p->layers[l].resident && (oldest < 0 || p->layers[l].used < p->layers[oldest].used))
            oldest = l;
    return oldest;
}

static size_t count_all(const ig_kv_pager *p) {
    size_t sum = 0;
    for (int l = 0; l < p->n_layers; l++) sum += p->layers[l].resident;
    return sum;
}

void ig_kv_pager_use(ig_kv_pager *p, int layer, uint8_t *const *frames, size_t layer_blocks) {
    if (layer == p->now) return; /* another sequence of the step */
    double start = ig_clock_seconds();
    if (p->now >= 0) look_at(p, p->now, frames + (size_t)p->now * layer_blocks, layer_blocks);
    p->now = layer;
    p->layers[layer].used = ++p->n_uses;
    size_t wanted = 0;
    for (size_t i = 0; i < layer_blocks; i++) wanted += frames[(size_t)layer * layer_blocks + i] != NULL;
    for (int l = find_oldest(p); l >= 0; l = find_oldest(p)) {
        size_t others = count_all(p) - p->layers[layer].resident, excess = others + wanted;
        if (excess <= p->max_resident) break;
        excess -= p->max_resident;
        size_t before = p->layers[l].resident;
        drop(p, l, frames + (size_t)l * layer_blocks, layer_blocks, excess);
        if (p->layers[l].resident == before) p->layers[l].resident = 0; /* they have left by themselves */
    }
    p->stats.seconds += ig_clock_seconds() - start;
}

void ig_kv_pager_get_stats(const ig_kv_pager *p, ig_kv_pager_stats *out) {
    *out = p->stats;
    out->resident_bytes = count_all(p) * IG_FRAME_BYTES;
}
