/* SPDX-License-Identifier: Apache-2.0
 *
 * Stored prefixes: pieces of KV that outlive the process, in a directory that several processes and models share.
 *
 * A piece is what `piece_tokens` consecutive tokens take in all layers and heads (K, V, lines): some 50 KB to many MB,
 * scattered over small memory areas. Pieces form chains: each names its parent, the first one the root, which says of
 * what the pieces are. The ids are hashes that the caller computes; the store trusts them only to find a piece,
 * and confirms it by its tokens.
 *
 * Data files are written once and then only lose what leaves: a file holds the pieces of one commit, appears under its
 * name when all of it is on the disk, and only then enters the index. Every piece carries its own header and checksums
 * (prefix_record.h), which alone decide what is served. The index (SQLite, WAL) is a cache of these headers, and is
 * made anew from them when it is missing, broken or another's. So what a commit has reported survives kill -9 and a
 * loss of power, and what is torn is never served.
 *
 *     writer       lock of the one process that writes, with its number
 *     store.id     the store's own number, which all files carry
 *     kv-*.igkv    pieces        note-*.igkv    notes        *.tmp    not finished; the next writer removes them
 *     index.db     and what SQLite keeps beside it
 *
 * Threads: any number of them may use one store at the same time. Reads run beside each other and beside a put, which
 * takes turns with other puts and commits. Other processes may read at any time. No memory grows with the store,
 * unless no disk has room for its index.
 */
#ifndef IG_KV_PREFIX_STORE_H
#define IG_KV_PREFIX_STORE_H

#include <sys/uio.h>

#include "kv/prefix_id.h"

typedef struct ig_prefix_store ig_prefix_store;

enum {
    IG_PREFIX_TOKENS_MIN = 16, /* of a piece; a power of two */
    IG_PREFIX_TOKENS_MAX = 512,
    IG_PREFIX_TEXT = 128,         /* bytes of a name for people, with its NUL; what is longer is cut */
    IG_PREFIX_NAME = 65,          /* the same of a note's name, which is not cut but refused */
    IG_PREFIX_NOTE_MAX = 1 << 24, /* bytes of a note */
    IG_PREFIX_PAYLOAD_MAX = 1 << 30,
};

/* For tests: sees the result of each call on a data file (0 or more, or -errno) and returns the one to go on with. */
typedef enum ig_prefix_call {
    IG_PREFIX_READ,
    IG_PREFIX_WRITE,
    IG_PREFIX_SYNC,
    IG_PREFIX_RENAME,
    IG_PREFIX_PUNCH,
    IG_PREFIX_REMOVE
} ig_prefix_call;
typedef int (*ig_prefix_fault_fn)(void *user, ig_prefix_call call, int result);

typedef struct ig_prefix_store_options {
    const char *directory; /* made if missing, with mode 0700, if the one above it is there */
    uint64_t max_bytes;    /* of all data files; 0: no limit */
    ig_prefix_id root;     /* of what pieces are read and written: model identity, KV type, layout, instruction set,
                              version; the first piece's parent */
    ig_prefix_id notes;    /* the root of notes, which outlive a change of what pieces depend on */
    const char *model;     /* name for people ("smollm2-135m q8_0"), kept with the data, shown by ls */
    const char *kind;      /* likewise: "f16, avx2" */
    int piece_tokens;
    size_t piece_bytes; /* of a payload, at most IG_PREFIX_PAYLOAD_MAX */
    bool read_only;     /* write nothing at all; the directory must be there */
    bool must_exist;    /* IG_E_NOT_FOUND if there is no store yet, and none is made */
    bool no_punch;      /* for tests: as where the file system cannot make holes */
    ig_prefix_fault_fn fault;
    void *fault_user;
} ig_prefix_store_options;

/* Opens for writing if no other process (or store of this one) does; else for reading, which is no error, as it is
 * where a store that is there cannot be written to (a full disk). The first call that writes, and can by then, makes a
 * reader the writer. What a killed process left behind is cleaned when the store is opened for writing. An option out
 * of its range is IG_E_ARG. `read_only` with a piece_bytes of 0 opens no root: for prefix_tool.h. */
ig_status ig_prefix_store_open(ig_prefix_store **out, const ig_prefix_store_options *options, ig_error *err);
/* What was put and not committed is not kept. */
void ig_prefix_store_close(ig_prefix_store *s);
/* NULL: it writes; else one line for the log: "another process (pid 123) writes to ...". Not while others write. */
const char *ig_prefix_store_why_read_only(const ig_prefix_store *s);
/* Whether that is because another process wrote when it was opened, and no fault. */
bool ig_prefix_store_is_taken(const ig_prefix_store *s);

/* Of `piece_tokens` tokens. number: 0 for the first one, whose parent is the root, or what a salt makes of it. */
typedef struct ig_prefix_piece {
    ig_prefix_id id, parent;
    int number;
    const int32_t *tokens;
} ig_prefix_piece;

/* Whether the index knows such a piece that is kept. Cheap; promises nothing about the data. */
bool ig_prefix_store_has(ig_prefix_store *s, const ig_prefix_piece *piece);

/* Notes that a piece is used which the caller has without reading it, and with it those before it; false if it is not
 * kept. As cheap. */
bool ig_prefix_store_use(ig_prefix_store *s, ig_prefix_id id);

/* Whether the piece is found if it is put: it is the first one, or its parent is kept or to be kept with the next
 * commit. As cheap. */
bool ig_prefix_store_leads_to(ig_prefix_store *s, const ig_prefix_piece *piece);

/* IG_E_IO if the store lies on this disk, and another piece would leave less than n_bytes free there. */
ig_status ig_prefix_store_check_room(const ig_prefix_store *s, dev_t device, uint64_t n_bytes, ig_error *err);

/* Reads the payload into the areas to[0..n), which together have piece_bytes.
 *     IG_E_NOT_FOUND   there is no such piece, or it has just left
 *     IG_E_FORMAT      it is damaged, or of other tokens: it is forgotten
 *     IG_E_IO          the disk says no; the piece stays
 * After an error the areas may hold anything. */
ig_status ig_prefix_store_read(ig_prefix_store *s, const ig_prefix_piece *piece, const struct iovec *to, int n,
                               ig_error *err);

/* Writes a piece, which is kept and can be read from the next commit on. Nothing is done if it is there already. Its
 * parent need not be there: but then it is found by nobody until it is. What has not been used for the longest time
 * leaves for it; never what this commit holds or descends from.
 *     IG_E_UNSUPPORTED the store is open for reading, and cannot be written to yet
 *     IG_E_LIMIT       it does not fit into max_bytes
 *     IG_E_IO          the disk is full or says no: this piece is not written, those put before it still are
 */
ig_status ig_prefix_store_put(ig_prefix_store *s, const ig_prefix_piece *piece, const struct iovec *from, int n,
                              ig_error *err);
/* Once it has returned IG_OK all that was put is kept whatever happens. After an error none of it is. Notes what was
 * read, too, and where the store is only read, nothing else. */
ig_status ig_prefix_store_commit(ig_prefix_store *s, ig_error *err);

typedef struct ig_prefix_store_stats {
    uint64_t n_pieces;                                     /* of all roots */
    uint64_t bytes, max_bytes;                             /* taken by data files, as far as this process knows */
    uint64_t n_read, read_bytes, n_written, written_bytes; /* pieces and payload, by this store since it was opened */
    uint64_t n_evicted, n_damaged;                         /* pieces, likewise */
} ig_prefix_store_stats;
void ig_prefix_store_get_stats(ig_prefix_store *s, ig_prefix_store_stats *out);

/* Notes: bytes under a name, of their own root, such as a saved conversation. They count in max_bytes but never leave
 * by themselves. A name is 1 to 64 of the characters A-Z a-z 0-9 . _ - and does not begin with a dot: IG_E_ARG. */

/* Replaces the note as a whole or not at all; with IG_OK it is kept whatever happens. Errors as for put; more than
 * IG_PREFIX_NOTE_MAX bytes are IG_E_LIMIT. After IG_E_IO or IG_E_MEMORY the note is the old one or the new one, and
 * after a loss of power it may be the other. */
ig_status ig_prefix_store_note_put(ig_prefix_store *s, const char *name, const void *bytes, size_t n, ig_error *err);
/* malloc'ed, with a NUL behind it that is not counted. IG_E_NOT_FOUND, IG_E_FORMAT, IG_E_IO. */
ig_status ig_prefix_store_note_get(ig_prefix_store *s, const char *name, void **bytes, size_t *n, ig_error *err);
ig_status ig_prefix_store_note_remove(ig_prefix_store *s, const char *name, ig_error *err);

typedef struct ig_prefix_note {
    char name[IG_PREFIX_NAME];
    uint64_t bytes;
    double written; /* seconds since 1970 */
} ig_prefix_note;
/* Calls `each` for every note of the root of notes, by name; true stops. It must not use the store. */
ig_status ig_prefix_store_note_list(ig_prefix_store *s, bool (*each)(void *user, const ig_prefix_note *note),
                                    void *user, ig_error *err);

#endif
