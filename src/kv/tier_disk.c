/* SPDX-License-Identifier: Apache-2.0
 *
 * The disk tier. A transfer (a ticket, here a batch) is cut into requests of consecutive slots; a queue with threads of
 * its own carries them out; and what comes back is looked at here, on the caller's thread: short requests go back
 * into the queue, blocks that were read are compared with their checksums, and the first failure is noted in the
 * batch, as numbers, to become a sentence in wait().
 *
 * Starting a transfer does not wait for the device, unless some thousand requests are waiting already. Writes may take
 * half of them, so that reads find room beside write-behind; reads also overtake writes in the queue.
 */
#define _GNU_SOURCE
#include "kv/tier_disk.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "kv/tier_disk_file.h"
#include "kv/tier_disk_queue.h"
#include "kv/tier_disk_slots.h"

enum {
    SORTED_MAX = 4096, /* blocks of a read that are put in order together */
    NEAR = 9,        /* slots: a request costs as much as 8 to 10 more blocks in it, as measured (docs/speed-log.md) */
    IDLE_TRIES = 64, /* in a row without a block moved, then the request fails */
    REAPED_MAX = 64,
    REQUESTS = 2048 /* under way or waiting for their turn; then a call that starts more waits */
};

typedef enum failure { NO_FAILURE, IS_CORRUPT, IS_CUT_SHORT, IS_ERRNO } failure;

typedef struct batch {
    uint32_t version;    /* of the ticket that this place stands for now */
    uint32_t n_requests; /* not done yet */
    bool is_taken;
    ig_disk_kind kind;
    uint8_t failure; /* the first of the batch */
    int error;       /* errno, for IS_ERRNO */
    ig_slot slot;    /* where it happened */
} batch;

typedef struct place {
    ig_slot slot;
    uint8_t *frame;
} place;

typedef struct disk {
    ig_tier tier;
    ig_disk_file file;
    ig_slot_table slots;
    ig_disk_queue queue;
    bool has_queue;
    int broken; /* -errno once the queue is */

    unsigned n_in_flight, n_writes_in_flight, n_fresh; /* n_fresh: requests ever used */
    ig_disk_request *requests;                         /* [REQUESTS] */
    ig_disk_request *spare;                            /* list of those not in use */
    place *sorted;                                     /* [SORTED_MAX] */
    batch batches[IG_TIER_TICKETS];
    uint16_t spare_batches[IG_TIER_TICKETS];
    unsigned n_spare_batches;

    ig_disk_fault_fn fault;
    void *fault_user;
    ig_tier_stats stats;
} disk;

static disk *of(ig_tier *t) { return (disk *)(void *)t; }

/* ---- what comes back -------------------------------------------------------- */

static void note_failure(disk *d, const ig_disk_request *r, failure what, int error, uint32_t block) {
    batch *b = &d->batches[r->batch];
    if (b->failure) return;
    b->failure = (uint8_t)what;
    b->error = error;
    b->slot = r->first + block;
}

/* The request is over, all of its first n_done blocks moved. */
static void finish(disk *d, ig_disk_request *r) {
    uint32_t n_good = 0, n_wanted = 0;
    for (uint32_t i = 0; i < r->n_blocks; i++) {
        ig_slot slot = r->first + i;
        bool is_good = i < r->n_done;
        if (r->kind != IG_DISK_WRITE && !r->to[i].frame) continue;
        n_wanted++;
        d->slots.n_moving[slot]--;
        if (r->kind == IG_DISK_WRITE) {
            d->slots.state[slot] = is_good ? IG_SLOT_STORED : IG_SLOT_FAILED;
        } else if (is_good && r->to[i].hash != d->slots.checksum[slot]) {
            note_failure(d, r, IS_CORRUPT, 0, i);
            is_good = false;
        }
        n_good += is_good;
    }
    /* Without O_DIRECT the system must not keep in RAM what was sent to the disk to save RAM. */
    if (!d->file.is_direct)
        posix_fadvise(d->file.fd, (off_t)r->first * IG_FRAME_BYTES, (off_t)r->n_blocks * IG_FRAME_BYTES,
                      POSIX_FADV_DONTNEED);
    *(r->kind == IG_DISK_WRITE ? &d->stats.bytes_written : &d->stats.bytes_read) += (uint64_t)n_good * IG_FRAME_BYTES;
    d->stats.bytes_passed_over += (uint64_t)(r->n_blocks - n_wanted) * IG_FRAME_BYTES;
    d->stats.n_failed_blocks += n_wanted - n_good;
    d->batches[r->batch].n_requests--;
    d->n_in_flight--;
    if (r->kind == IG_DISK_WRITE) d->n_writes_in_flight--;
    r->is_in_flight = false;
    r->next = d->spare;
    d->spare = r;
}

static void fail_broken(disk *d, ig_disk_request *r) {
    note_failure(d, r, IS_ERRNO, -d->broken, r->n_done);
    finish(d, r);
}

/* After one try: over, or into the queue again with what is left. */
static void settle(disk *d, ig_disk_request *r) {
    int result = r->result;
    if (d->fault)
        result = d->fault(d->fault_user, r->kind == IG_DISK_WRITE, (uint64_t)ig_disk_request_offset(r),
                          (size_t)(r->n_blocks - r->n_done) * IG_FRAME_BYTES, result);
    uint32_t n_moved = result > 0 ? (uint32_t)result / IG_FRAME_BYTES : 0;
    r->n_done += n_moved;
    r->n_idle_tries = n_moved ? 0 : r->n_idle_tries + 1;
    /* Cancelled: the thread that had started it has ended. */
    bool may_go_on = result > 0 || result == -EINTR || result == -EAGAIN || result == -ECANCELED;
    if (r->n_done < r->n_blocks && may_go_on && r->n_idle_tries < IDLE_TRIES && !d->broken) {
        d->stats.n_retries++;
        ig_disk_queue_add(&d->queue, r);
        return;
    }
    if (r->n_done < r->n_blocks && result < 0)
        note_failure(d, r, IS_ERRNO, -result, r->n_done);
    else if (r->n_done < r->n_blocks)
        note_failure(d, r, IS_CUT_SHORT, 0, r->n_done);
    finish(d, r);
}

/* Looks at what has come back; with `wait` at least one try, if one is under way. */
static void reap(disk *d, bool wait) {
    ig_disk_request *done[REAPED_MAX];
    if (!d->n_in_flight) return;
    ssize_t n = ig_disk_queue_reap(&d->queue, done, REAPED_MAX, false);
    if (n == 0 && wait) {
        double start = ig_clock_seconds();
        n = ig_disk_queue_reap(&d->queue, done, REAPED_MAX, true);
        d->stats.wait_seconds += ig_clock_seconds() - start;
    }
    for (ssize_t i = 0; i < n; i++) settle(d, done[i]);
    if (n >= 0) {
        ig_disk_queue_start(&d->queue);
        return;
    }
    d->broken = (int)n;
    ig_disk_queue_halt(&d->queue); /* frames are given back now */
    for (unsigned i = 0; i < d->n_fresh; i++)
        if (d->requests[i].is_in_flight) fail_broken(d, &d->requests[i]);
}

/* ---- batches ---------------------------------------------------------------- */

static ig_status batch_open(disk *d, uint32_t *index, ig_disk_kind kind, ig_error *err) {
    if (d->broken) return ig_fail(err, IG_E_IO, "KV spill file in %s: %s", d->file.directory, strerror(-d->broken));
    if (!d->n_spare_batches)
        return ig_fail(err, IG_E_LIMIT, "KV spill file: more than %d transfers are under way", IG_TIER_TICKETS);
    *index = d->spare_batches[--d->n_spare_batches];
    batch *b = &d->batches[*index];
    *b = (batch){.version = b->version + 1, .is_taken = true, .kind = kind};
    return IG_OK;
}

static void batch_close(disk *d, batch *b) {
    b->is_taken = false;
    d->spare_batches[d->n_spare_batches++] = (uint16_t)(b - d->batches);
}

static ig_ticket ticket_of(const disk *d, uint32_t index) {
    return (uint64_t)d->batches[index].version << 32 | (index + 1);
}

/* The batch of a ticket; NULL if it was waited for already. */
static batch *batch_of(disk *d, ig_ticket ticket) {
    uint32_t index = (uint32_t)ticket - 1;
    if (index >= IG_TIER_TICKETS) return NULL;
    batch *b = &d->batches[index];
    return b->is_taken && b->version == (uint32_t)(ticket >> 32) ? b : NULL;
}

static ig_status batch_status(const disk *d, const batch *b, ig_error *err) {
    const char *directory = d->file.directory;
    unsigned long long at = (unsigned long long)b->slot * IG_FRAME_BYTES;
    switch ((failure)b->failure) {
        case NO_FAILURE:
            break;
        case IS_CORRUPT:
            return ig_fail(err, IG_E_IO, "KV spill file in %s: block %u at byte %llu is corrupt", directory, b->slot,
                           at);
        case IS_CUT_SHORT:
            return ig_fail(err, IG_E_IO, "KV spill file in %s: %s block %u at byte %llu", directory,
                           b->kind == IG_DISK_WRITE ? "nothing is written of" : "it was cut short and lacks", b->slot,
                           at);
        case IS_ERRNO:
            return ig_fail(err, IG_E_IO, "KV spill file in %s: cannot %s block %u at byte %llu: %s", directory,
                           b->kind == IG_DISK_WRITE ? "write" : "read", b->slot, at, strerror(b->error));
    }
    return IG_OK;
}

/* Starts one request for the slots of places [n], in order; waits for room in the queue. */
static void start(disk *d, uint32_t index, const place *places, size_t n, bool is_staged) {
    batch *b = &d->batches[index];
    while (d->n_in_flight == REQUESTS || (b->kind == IG_DISK_WRITE && d->n_writes_in_flight >= REQUESTS / 2)) {
        ig_disk_queue_start(&d->queue);
        reap(d, true);
    }
    ig_disk_request *r = d->spare ? d->spare : &d->requests[d->n_fresh++];
    if (d->spare) d->spare = r->next;
    r->first = places->slot;
    r->n_blocks = places[n - 1].slot - r->first + 1;
    r->n_done = r->n_idle_tries = 0;
    r->batch = index;
    r->kind = b->kind;
    r->is_staged = is_staged;
    r->is_in_flight = true;
    for (uint32_t i = 0; i < r->n_blocks; i++) {
        bool is_wanted = places->slot == r->first + i;
        if (r->kind == IG_DISK_WRITE)
            r->from[i] = (struct iovec){places->frame, IG_FRAME_BYTES};
        else
            r->to[i].frame = is_wanted ? places->frame : NULL;
        if (is_wanted) d->slots.n_moving[places++->slot]++;
    }
    b->n_requests++;
    d->n_in_flight++;
    if (r->kind == IG_DISK_WRITE) d->n_writes_in_flight++;
    (*(r->kind == IG_DISK_WRITE ? &d->stats.requests_written : &d->stats.requests_read))++;
    if (d->broken)
        fail_broken(d, r);
    else
        ig_disk_queue_add(&d->queue, r);
}

/* Shell sort: the C library's may allocate. In order already, the usual case, it costs one look. */
static void sort_places(place *p, size_t n) {
    static const size_t gaps[] = {1750, 701, 301, 132, 57, 23, 10, 4, 1};
    size_t i = 1;
    while (i < n && p[i - 1].slot <= p[i].slot) i++;
    if (i >= n) return;
    for (size_t g = 0; g < IG_COUNT(gaps); g++)
        for (i = gaps[g]; i < n; i++) {
            place x = p[i];
            size_t j = i;
            for (; j >= gaps[g] && p[j - gaps[g]].slot > x.slot; j -= gaps[g]) p[j] = p[j - gaps[g]];
            p[j] = x;
        }
}

/* How many of the places are neighbours in the file, and for a read also in memory. */
static size_t count_neighbours(const place *p, size_t n, bool is_write) {
    size_t i = 1;
    while (i < n && i < IG_DISK_BLOCKS_MAX && p[i].slot == p[0].slot + i &&
           (is_write || p[i].frame == p[0].frame + i * IG_FRAME_BYTES))
        i++;
    return i;
}

/* How many lie so close to each other that one request, passing over what is between them, is cheaper. */
static size_t count_near(const place *p, size_t n) {
    size_t i = 1;
    while (i < n && p[i].slot > p[i - 1].slot && p[i].slot - p[i - 1].slot <= NEAR &&
           p[i].slot - p[0].slot < IG_DISK_STAGED_MAX)
        i++;
    return i;
}

/* Starts the transfer of d->sorted[0, n), what lies together in few requests. */
static void start_places(disk *d, uint32_t index, size_t n) {
    bool is_write = d->batches[index].kind == IG_DISK_WRITE;
    sort_places(d->sorted, n);
    for (const place *p = d->sorted, *end = p + n; p < end;) {
        size_t left = (size_t)(end - p), plain = count_neighbours(p, left, is_write),
               near = is_write ? 0 : count_near(p, left);
        start(d, index, p, near > plain ? near : plain, near > plain);
        p += near > plain ? near : plain;
    }
}

/* ---- the seam --------------------------------------------------------------- */

/* Slots for n blocks that the file has room for. */
static ig_status take_slots(disk *d, ig_slot *slots, size_t n, ig_error *err) {
    if (!ig_slot_table_find(&d->slots, slots, n, d->slots.n_slots))
        return ig_fail(err, IG_E_LIMIT,
                       "KV spill file in %s: full at its limit of %llu bytes; what is in RAM lies there, too",
                       d->file.directory, (unsigned long long)d->file.cap);
    ig_slot last = 0;
    for (size_t i = 0; i < n; i++)
        if (slots[i] > last) last = slots[i];
    ig_status s = ig_disk_file_grow(&d->file, ((uint64_t)last + 1) * IG_FRAME_BYTES, err);
    /* On a full disk the holes of the file may do. */
    size_t n_have = (size_t)(d->file.size / IG_FRAME_BYTES);
    if (s && ig_slot_table_find(&d->slots, slots, n, n_have < d->slots.end ? d->slots.end : n_have)) {
        if (err) *err = (ig_error){0};
        s = IG_OK;
    }
    if (s == IG_OK) ig_slot_table_take(&d->slots, slots, n);
    return s;
}

static ig_status disk_write(ig_tier *t, ig_ticket *ticket, ig_slot *slots, const uint8_t *const *frames, size_t n,
                            ig_error *err) {
    disk *d = of(t);
    uint32_t index;
    *ticket = 0;
    if (!n) return IG_OK;
    ig_status s = batch_open(d, &index, IG_DISK_WRITE, err);
    if (s) return s;
    s = take_slots(d, slots, n, err);
    if (s) {
        batch_close(d, &d->batches[index]);
        return s;
    }
    *ticket = ticket_of(d, index);
    for (size_t done = 0, m; done < n; done += m) {
        m = n - done < SORTED_MAX ? n - done : SORTED_MAX;
        for (size_t i = 0; i < m; i++) {
            d->slots.checksum[slots[done + i]] = ig_disk_hash(frames[done + i]);
            d->sorted[i] = (place){slots[done + i], (uint8_t *)(uintptr_t)frames[done + i]};
        }
        start_places(d, index, m);
    }
    ig_disk_queue_start(&d->queue);
    return IG_OK;
}

/* Whether the slot holds a block; one that is still being written is waited for. */
static ig_status await_written(disk *d, ig_slot slot, ig_error *err) {
    bool is_known = slot < d->slots.end;
    while (is_known && d->slots.state[slot] == IG_SLOT_WRITING) reap(d, true);
    if (is_known && d->slots.state[slot] == IG_SLOT_STORED) return IG_OK;
    return ig_fail(err, IG_E_IO, "KV spill file in %s: block %u was not written", d->file.directory, slot);
}

static ig_status disk_read(ig_tier *t, ig_ticket *ticket, const ig_slot *slots, uint8_t *const *frames, size_t n,
                           bool ahead, ig_error *err) {
    disk *d = of(t);
    uint32_t index;
    *ticket = 0;
    for (size_t i = 0; i < n; i++) {
        ig_status s = await_written(d, slots[i], err);
        if (s) return s;
    }
    if (!n) return IG_OK;
    ig_status s = batch_open(d, &index, ahead ? IG_DISK_READ_AHEAD : IG_DISK_READ, err);
    if (s) return s;
    *ticket = ticket_of(d, index);
    for (size_t done = 0, m; done < n; done += m) {
        m = n - done < SORTED_MAX ? n - done : SORTED_MAX;
        for (size_t i = 0; i < m; i++) d->sorted[i] = (place){slots[done + i], frames[done + i]};
        start_places(d, index, m);
    }
    ig_disk_queue_start(&d->queue);
    return IG_OK;
}

static ig_status disk_wait(ig_tier *t, ig_ticket ticket, ig_error *err) {
    disk *d = of(t);
    if (!ticket) return IG_OK;
    batch *b = batch_of(d, ticket);
    if (!b) return ig_fail(err, IG_E_ARG, "KV spill file: this transfer was waited for already");
    while (b->n_requests) reap(d, true);
    batch_close(d, b);
    return batch_status(d, b, err);
}

static bool disk_poll(ig_tier *t, ig_ticket ticket) {
    disk *d = of(t);
    reap(d, false);
    const batch *b = batch_of(d, ticket);
    return !b || !b->n_requests;
}

static void disk_free_slots(ig_tier *t, const ig_slot *slots, size_t n) {
    disk *d = of(t);
    for (size_t i = 0; i < n; i++) {
        assert(slots[i] < d->slots.end && d->slots.state[slots[i]] != IG_SLOT_FREE);
        while (d->slots.n_moving[slots[i]]) reap(d, true);
        ig_slot_table_give(&d->slots, slots[i]);
    }
}

static void disk_info(const ig_tier *t, ig_tier_info *info) {
    const disk *d = (const disk *)(const void *)t;
    size_t table_bytes;
    ig_slot_table_plan(&table_bytes, d->slots.n_slots);
    *info = (ig_tier_info){
        .has_ring = d->queue.ring != NULL,
        .is_direct = d->file.is_direct,
        .is_memory = d->file.is_memory,
        .cap_bytes = d->file.cap,
        .room_bytes = d->file.room,
        .left_bytes = d->file.room > d->file.size ? d->file.room - d->file.size : 0,
        .device = d->file.device,
        .table_bytes = table_bytes + (size_t)d->queue.n_staging * IG_DISK_STAGED_MAX * IG_FRAME_BYTES + sizeof *d +
                       REQUESTS * sizeof *d->requests + SORTED_MAX * sizeof *d->sorted,
    };
}

static void disk_stats(const ig_tier *t, ig_tier_stats *stats) {
    const disk *d = (const disk *)(const void *)t;
    *stats = d->stats;
    stats->requests_in_flight = d->n_in_flight;
    stats->used_bytes = (uint64_t)(d->slots.end - d->slots.n_free) * IG_FRAME_BYTES;
}

static void disk_close(ig_tier *t) {
    disk *d = of(t);
    if (!d) return;
    while (d->n_in_flight) reap(d, true);
    if (d->has_queue) ig_disk_queue_close(&d->queue);
    ig_disk_file_close(&d->file);
    ig_slot_table_close(&d->slots);
    ig_pages_release(d->requests, REQUESTS * sizeof *d->requests);
    ig_free_aligned(d->sorted);
    free(d);
}

static const ig_tier_ops disk_ops = {
    .close = disk_close,
    .write = disk_write,
    .read = disk_read,
    .wait = disk_wait,
    .poll = disk_poll,
    .free_slots = disk_free_slots,
    .info = disk_info,
    .stats = disk_stats,
};

/* Tables of fixed size. */
static ig_status take_memory(disk *d, ig_error *err) {
    size_t n_bytes = REQUESTS * sizeof *d->requests + SORTED_MAX * sizeof *d->sorted;
    d->requests = ig_pages_reserve(REQUESTS * sizeof *d->requests);
    d->sorted = ig_alloc_aligned(SORTED_MAX * sizeof *d->sorted);
    if (!d->requests || !d->sorted) return ig_fail_memory(err, "requests of the KV spill file", n_bytes);
    for (unsigned i = IG_TIER_TICKETS; i-- > 0;) d->spare_batches[d->n_spare_batches++] = (uint16_t)i;
    return IG_OK;
}

ig_status ig_tier_disk_open(ig_tier **out, const ig_tier_disk_options *options, ig_error *err) {
    *out = NULL;
    uint64_t n_slots = options->cap_bytes / IG_FRAME_BYTES;
    if (n_slots == 0 || n_slots > UINT32_MAX)
        return ig_fail(err, IG_E_LIMIT, "KV spill file: a limit of %llu bytes; need 4 KiB to 16 TiB",
                       (unsigned long long)options->cap_bytes);
    if (options->n_staging > IG_DISK_STAGING_MAX)
        return ig_fail(err, IG_E_LIMIT, "KV spill file: %u staging buffers; need at most %d", options->n_staging,
                       IG_DISK_STAGING_MAX);
    if (options->depth == 1 || options->depth > IG_DISK_DEPTH_MAX)
        return ig_fail(err, IG_E_LIMIT, "KV spill file: a depth of %u; need 2 to %d", options->depth,
                       IG_DISK_DEPTH_MAX);
    disk *d = calloc(1, sizeof *d);
    if (!d) return ig_fail_memory(err, "KV disk tier", sizeof *d);
    d->tier.ops = &disk_ops;
    d->file.fd = -1;
    unsigned depth = options->depth ? options->depth : IG_DISK_DEPTH_DEFAULT;
    d->fault = options->fault;
    d->fault_user = options->fault_user;
    ig_status s = take_memory(d, err);
    if (s) goto fail;
    s = ig_slot_table_open(&d->slots, (size_t)n_slots, err);
    if (s) goto fail;
    s = ig_disk_file_open(&d->file, options->directory, n_slots * IG_FRAME_BYTES, options->no_tmpfile, err);
    if (s) goto fail;
    unsigned n_staging = options->n_staging ? options->n_staging : IG_DISK_STAGING_MAX;
    s = ig_disk_queue_open(&d->queue, d->file.fd, depth, n_staging, options->no_uring, err);
    if (s) goto fail;
    d->has_queue = true;
    *out = &d->tier;
    return IG_OK;
fail:
    disk_close(&d->tier);
    return s;
}
