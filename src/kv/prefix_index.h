/* SPDX-License-Identifier: Apache-2.0
 *
 * The index of stored prefixes in SQLite: all statements are here, by name, prepared when they are first used. It says
 * where a piece should lie, what was used when and what takes how much room; what is true the data files say.
 *
 * A statement that fails is noted: the ones after it do nothing either until begin() or ig_prefix_index_fail(). One
 * thread at a time.
 */
#ifndef IG_KV_PREFIX_INDEX_H
#define IG_KV_PREFIX_INDEX_H

#include <sqlite3.h>

#include "kv/prefix_record.h"

#define IG_PREFIX_INDEX_NAME "index.db"

/* One for each statement, with its arguments: i number, x id, t text. A "row" is what ig_prefix_index_find() reads. */
typedef enum ig_prefix_query {
    /* pieces */
    IG_Q_FIND,          /* xx root, id: row */
    IG_Q_ADD_ROOT,      /* xtt hash, model, kind */
    IG_Q_ADD_PIECE,     /* xxxiiiiii root, id, parent, number, tokens, file, offset, bytes, used */
    IG_Q_ADD_PENDING,   /* xxiiiii id, parent, number, tokens, offset, bytes, file */
    IG_Q_IS_PENDING,    /* xi id, file */
    IG_Q_NEXT_PENDING,  /* ii number, file: the next one, parent */
    IG_Q_KEEP_PENDING,  /* xii root, file, used */
    IG_Q_CLEAR_PENDING, /* */
    IG_Q_TOUCH,         /* ii used, piece */
    IG_Q_REMOVE_PIECE,  /* i piece */
    IG_Q_LAST_USE,      /* : newest use */
    IG_Q_COUNT_PIECES,  /* : n */
    /* what may leave */
    IG_Q_PROTECT, /* i piece; no row changes if it is already */
    IG_Q_CLEAR_PROTECTED,
    IG_Q_CHILD_USE,     /* i piece: newest use of its children, NULL without */
    IG_Q_OLDEST,        /* row */
    IG_Q_OLDEST_FILE,   /* file, newest use */
    IG_Q_BUMP_FILE,     /* i file: changes what in it is older than children elsewhere */
    IG_Q_EMPTY_FILE,    /* file, bytes; of a file without pieces */
    IG_Q_PIECE_OF_FILE, /* i file: row */
    IG_Q_FORGET,        /* ii file, offset; for this connection only */
    /* files and holes */
    IG_Q_ADD_FILE,    /* iii file, size, bytes that count */
    IG_Q_FILE,        /* i file: size, bytes */
    IG_Q_SHRINK_FILE, /* ii bytes, file */
    IG_Q_REMOVE_FILE, /* i file */
    IG_Q_NEXT_FILE,   /* i file: the next one, size */
    IG_Q_LAST_FILE,   /* : file */
    IG_Q_ADD_HOLE,    /* iii file, offset, bytes */
    IG_Q_NEXT_HOLE,   /* : file, offset, bytes */
    IG_Q_REMOVE_HOLE, /* ii file, offset */
    IG_Q_SUM_BYTES,   /* : of files and notes */
    /* notes */
    IG_Q_ADD_NOTE, /* xtii root, name, bytes, written; replaces */
    IG_Q_CLEAR_NOTES,
    IG_Q_REMOVE_NOTE, /* xt root, name */
    IG_Q_NOTE,        /* xt root, name: bytes */
    IG_Q_NOTES,       /* x root: name, bytes, written */
    IG_Q_NEXT_NOTE, /* it root row, name: root row, hash, name, bytes, written, model, kind; what is no name is left out
                     */
    /* tools */
    IG_Q_NEXT_END,      /* i piece: row of the next piece without children */
    IG_Q_NEXT_PIECE,    /* i piece: row of the next piece */
    IG_Q_NEXT_ROOT,     /* i root row: the next one, hash, model */
    IG_Q_ROOT_PIECE,    /* i root row: row of one of its pieces */
    IG_Q_WAS_FORGOTTEN, /* i file: of a piece in it */
    IG_Q_NEXT_ORPHAN,   /* i piece: row of the next piece whose parent should be there and is not */
    IG_Q_ROOT_OF,       /* i piece: hash, model, kind */
    IG_Q_PIECE,         /* i piece: row */
    IG_Q_PARENT,        /* i piece: row of its parent */
    IG_Q_CHILD,         /* i piece: row of one of its children */
    IG_Q_IDS_BETWEEN,   /* xx lowest, highest: row */
    IG_Q_REMOVE_ROOTS,  /* roots that have nothing */
    IG_Q_N
} ig_prefix_query;

typedef struct ig_prefix_index {
    sqlite3 *db;
    sqlite3_stmt *statements[IG_Q_N]; /* NULL: not prepared yet */
    bool failed;
    bool is_corrupt; /* something in it has been found to be so, since it was opened */
    int code;        /* SQLite's, of the first failure */
    char text[200];
} ig_prefix_index;

typedef enum ig_prefix_index_mode {
    IG_PREFIX_INDEX_WRITE,
    IG_PREFIX_INDEX_TOUCH, /* of another process: only times of use are written */
    IG_PREFIX_INDEX_READ,
    IG_PREFIX_INDEX_IN_MEMORY /* a private one that never becomes a file */
} ig_prefix_index_mode;

/* Opens index.db of a directory, or with NULL a private one that goes with the connection. False: it cannot be opened
 * or is not a database. `store` and the version are compared in ig_prefix_index_is_of(). */
bool ig_prefix_index_open(ig_prefix_index *ix, const char *directory, ig_prefix_index_mode mode);
void ig_prefix_index_close(ig_prefix_index *ix);
/* Whether its tables are of this version, whole, and of this store. */
bool ig_prefix_index_is_of(ig_prefix_index *ix, const ig_prefix_id *store, bool check_all);
/* Makes the tables of an empty one. */
bool ig_prefix_index_create(ig_prefix_index *ix, const ig_prefix_id *store);
/* Gives the connection the tables of its own: what is pending, protected, forgotten. */
bool ig_prefix_index_prepare(ig_prefix_index *ix);

bool ig_prefix_index_begin(ig_prefix_index *ix);
/* Commits, or rolls back if anything has failed since; true if all of it happened. */
bool ig_prefix_index_end(ig_prefix_index *ix);
/* Runs a statement that has no rows, with arguments of the kinds that `kinds` names; true if it succeeded. */
bool ig_prefix_index_do(ig_prefix_index *ix, ig_prefix_query q, const char *kinds, ...);
/* The number in the first column of a statement's only row, or `otherwise`. */
int64_t ig_prefix_index_ask(ig_prefix_index *ix, int64_t otherwise, ig_prefix_query q, const char *kinds, ...);
/* A statement, for what has other rows; NULL after a failure. */
sqlite3_stmt *ig_prefix_index_query(ig_prefix_index *ix, ig_prefix_query q, const char *kinds, ...);
/* True: there is a row. Nothing is left of a statement that has none. */
bool ig_prefix_index_step(ig_prefix_index *ix, sqlite3_stmt *statement);
/* A column of its row; NULL is "", and what is longer than `cap` is cut. */
void ig_prefix_index_text(char *to, size_t cap, sqlite3_stmt *statement, int column);
/* An id; false: the column holds none. */
bool ig_prefix_index_id(ig_prefix_id *out, sqlite3_stmt *statement, int column);
/* The noted failure as IG_E_IO, or IG_E_MEMORY; it is then forgotten. */
ig_status ig_prefix_index_fail(ig_prefix_index *ix, const char *directory, ig_error *err);

typedef struct ig_prefix_row {
    int64_t piece;
    ig_prefix_id id, parent;
    int number, n_tokens;
    uint64_t file, offset, bytes; /* bytes: of the record */
    int64_t used;                 /* microseconds since 1970 */
} ig_prefix_row;
/* A statement's first row, if it has one. The arguments may lie in *out. */
bool ig_prefix_index_find(ig_prefix_index *ix, ig_prefix_row *out, ig_prefix_query q, const char *kinds, ...);

#endif
