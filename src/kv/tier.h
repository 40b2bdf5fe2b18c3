/* SPDX-License-Identifier: Apache-2.0
 *
 * The seam of the KV store's slower tiers: a tier keeps 4 KiB blocks in numbered slots and moves them to and from
 * frames of the pool. It knows nothing of tokens, layers or policies.
 *
 * Both directions are asynchronous. A call that starts a transfer hands out a ticket, and each ticket is handed to
 * wait() exactly once, in any order. Until then the tier uses the frames: those being written must not change, those
 * being read hold nothing yet. After a failed wait() no frame of a read may be used, and of a write the caller still
 * has the frames: it may keep them and free the slots. The tier stays usable.
 *
 * All memory is taken at open. A tier belongs to one thread at a time; a transfer goes on by itself except that the
 * rest of one that came back short, and room for more than some thousand requests, need a call of the tier.
 */
#ifndef IG_KV_TIER_H
#define IG_KV_TIER_H

#include <sys/types.h>

#include "infinigen.h"

typedef struct ig_tier ig_tier;
typedef uint32_t ig_slot;   /* where a block lies in the tier, from 0 */
typedef uint64_t ig_ticket; /* a transfer under way; 0: none, done at once */

enum { IG_TIER_TICKETS = 256 }; /* tickets handed out and not waited for yet; one more is refused with IG_E_LIMIT */

typedef struct ig_tier_info {
    bool has_ring;        /* bytes move by io_uring; else by threads */
    bool is_direct;       /* past the system's page cache */
    bool is_memory;       /* the "disk" is a file system that lies in RAM: spilling to it saves nothing */
    uint64_t cap_bytes;   /* what the slots take when all are used */
    uint64_t room_bytes;  /* of these, what the disk had room for when the tier was opened */
    uint64_t left_bytes;  /* of these, what the tier has not taken yet */
    dev_t device;         /* the disk */
    uint64_t table_bytes; /* RAM that the tier's own tables take when all slots are used */
} ig_tier_info;

/* Since open, except where "now" is said. Every block is IG_FRAME_BYTES. */
typedef struct ig_tier_stats {
    uint64_t bytes_written, bytes_read;       /* moved without error */
    uint64_t bytes_passed_over;               /* read on top, because they lie between others */
    uint64_t requests_written, requests_read; /* what they took, neighbours joined */
    uint64_t n_retries;                       /* requests that came back short and were continued */
    uint64_t n_failed_blocks;
    double wait_seconds;         /* the caller stood still for transfers */
    uint32_t requests_in_flight; /* now */
    uint64_t used_bytes;         /* in slots, now */
} ig_tier_stats;

typedef struct ig_tier_ops {
    /* Waits for what is under way, gives everything back. Tickets need not have been waited for. */
    void (*close)(ig_tier *t);

    /* Starts to write n blocks and says in slots[n] where each will lie: side by side where there is room for that,
     * all or none. IG_E_LIMIT: more than the tier's cap; IG_E_IO: the disk is full or broken. */
    ig_status (*write)(ig_tier *t, ig_ticket *ticket, ig_slot *slots, const uint8_t *const *frames, size_t n,
                       ig_error *err);

    /* Starts to read n slots into n frames, in one batch, what lies together in larger requests. A slot whose write is
     * still under way is waited for. Slots whose write failed are refused. `ahead`: nobody waits for them yet; reads
     * that are not ahead overtake them. */
    ig_status (*read)(ig_tier *t, ig_ticket *ticket, const ig_slot *slots, uint8_t *const *frames, size_t n, bool ahead,
                      ig_error *err);

    /* Until the transfer is done; whether all its blocks arrived unharmed. Ends the ticket. */
    ig_status (*wait)(ig_tier *t, ig_ticket ticket, ig_error *err);

    /* Whether wait() would return at once. Also keeps transfers going that need the caller's thread. */
    bool (*poll)(ig_tier *t, ig_ticket ticket);

    /* Slots whose blocks are not needed any more. Waits for transfers of just these, if there are any. */
    void (*free_slots)(ig_tier *t, const ig_slot *slots, size_t n);

    void (*info)(const ig_tier *t, ig_tier_info *info);
    void (*stats)(const ig_tier *t, ig_tier_stats *stats);
} ig_tier_ops;

struct ig_tier {
    const ig_tier_ops *ops;
};

#endif
