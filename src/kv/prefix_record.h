/* SPDX-License-Identifier: Apache-2.0
 *
 * The headers in data files of stored prefixes: one page before each payload. Pure functions on bytes; nothing here
 * opens a file. What passes ig_prefix_record_read() is within its ranges; whether it is what was looked for is the
 * caller's to compare.
 */
#ifndef IG_KV_PREFIX_RECORD_H
#define IG_KV_PREFIX_RECORD_H

#include "kv/prefix_store.h"

enum { IG_PREFIX_PAGE = 4096 };         /* records begin at multiples of it */
#define IG_PREFIX_FILE_MAX (1ull << 40) /* bytes of a file; larger ones are nobody's */

typedef struct ig_prefix_record {
    ig_prefix_id store; /* of the store */
    ig_prefix_id root;
    uint64_t payload_bytes; /* 1..IG_PREFIX_PAYLOAD_MAX, of a note 0..IG_PREFIX_NOTE_MAX */
    ig_prefix_id payload_hash;
    char model[IG_PREFIX_TEXT], kind[IG_PREFIX_TEXT];
    bool is_note;

    /* of a piece */
    ig_prefix_id id, parent;
    int number, n_tokens;
    uint64_t file, offset; /* where it lies: a header that was copied elsewhere is none */
    int32_t tokens[IG_PREFIX_TOKENS_MAX];

    char name[IG_PREFIX_NAME]; /* of a note */
} ig_prefix_record;

typedef enum ig_prefix_header {
    IG_PREFIX_VALID,
    IG_PREFIX_HOLE,    /* nothing but zeros */
    IG_PREFIX_FOREIGN, /* of another version or byte order */
    IG_PREFIX_DAMAGED
} ig_prefix_header;

void ig_prefix_record_write(uint8_t page[IG_PREFIX_PAGE], const ig_prefix_record *r);
ig_prefix_header ig_prefix_record_read(ig_prefix_record *r, const uint8_t page[IG_PREFIX_PAGE]);

/* Bytes of header and payload on the disk, a multiple of IG_PREFIX_PAGE. */
uint64_t ig_prefix_record_bytes(uint64_t payload_bytes);

/* The hash of areas that follow one another; false if there is no memory. */
bool ig_prefix_hash(ig_prefix_id *out, const struct iovec *areas, int n);

/* 16 bytes in the order in which people read them. */
void ig_prefix_put_id(uint8_t to[16], const ig_prefix_id *id);
ig_prefix_id ig_prefix_get_id(const uint8_t from[16]);

/* A name as notes may have it. */
bool ig_prefix_is_name(const char *name);

#endif
