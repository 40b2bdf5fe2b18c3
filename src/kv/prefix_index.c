/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables and statements. Temporary tables are the connection's own: what is pending until a commit, which pieces must
 * not leave until then, and what a reader, which cannot remove rows, has found damaged.
 */
#define _GNU_SOURCE
#include "kv/prefix_index.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

enum { VERSION = 1, BUSY_MS = 5000, BUSY_TOUCH_MS = 100 };

#define PLACE                                                                                                   \
    "file INTEGER NOT NULL CHECK(file >= 0), offset INTEGER NOT NULL CHECK(offset >= 0 AND offset % 4096 = 0)," \
    " bytes INTEGER NOT NULL CHECK(bytes BETWEEN 8192 AND 2147483648)"

/* As SQLite keeps them: an index with other tables is another's. The checks are of what the code relies on. */
static const char *const schema[] = {
    "CREATE TABLE store(id BLOB NOT NULL) STRICT",
    "CREATE TABLE roots(root INTEGER PRIMARY KEY CHECK(root > 0), hash BLOB NOT NULL UNIQUE CHECK(length(hash) = 16),"
    " model TEXT NOT NULL, kind TEXT NOT NULL) STRICT",
    "CREATE TABLE files(file INTEGER PRIMARY KEY CHECK(file >= 0), size INTEGER NOT NULL CHECK(size >= 0),"
    " bytes INTEGER NOT NULL CHECK(bytes >= 0 AND bytes <= size)) STRICT",
    "CREATE TABLE pieces(piece INTEGER PRIMARY KEY CHECK(piece > 0), root INTEGER NOT NULL,"
    " id BLOB NOT NULL CHECK(length(id) = 16), parent BLOB NOT NULL CHECK(length(parent) = 16),"
    " number INTEGER NOT NULL CHECK(number BETWEEN 0 AND 16777216),"
    " tokens INTEGER NOT NULL CHECK(tokens BETWEEN 16 AND 512), " PLACE
    ", used INTEGER NOT NULL, UNIQUE(root, id)) STRICT",
    "CREATE INDEX pieces_by_parent ON pieces(root, parent)",
    "CREATE INDEX pieces_by_use ON pieces(used, number DESC)",
    "CREATE INDEX pieces_by_file ON pieces(file, offset)",
    "CREATE INDEX pieces_by_id ON pieces(id)",
    "CREATE TABLE holes(" PLACE ", PRIMARY KEY(file, offset)) STRICT, WITHOUT ROWID",
    "CREATE TABLE notes(root INTEGER NOT NULL, name TEXT NOT NULL, bytes INTEGER NOT NULL CHECK(bytes >= 4096),"
    " written INTEGER NOT NULL, PRIMARY KEY(root, name)) STRICT, WITHOUT ROWID",
};

/* In memory: of a full disk they ask nothing. */
static const char own_tables[] =
    "PRAGMA temp_store = MEMORY;"
    "CREATE TEMP TABLE pending(id BLOB PRIMARY KEY, parent BLOB, number INTEGER, tokens INTEGER, offset INTEGER,"
    " bytes INTEGER, file INTEGER);"
    "CREATE TEMP TABLE protected(piece INTEGER PRIMARY KEY);"
    "CREATE TEMP TABLE forgotten(file INTEGER, offset INTEGER, PRIMARY KEY(file, offset)) WITHOUT ROWID;";

#define ROW "SELECT p.piece, p.id, p.parent, p.number, p.tokens, p.file, p.offset, p.bytes, p.used FROM pieces p "
#define ROOT "(SELECT root FROM roots WHERE hash = ?1)"
#define CHILDREN "pieces c WHERE c.root = p.root AND c.parent = p.id"

static const char *const texts[IG_Q_N] = {
    [IG_Q_FIND] = ROW "WHERE p.root = " ROOT
                      " AND p.id = ?2 AND NOT EXISTS"
                      " (SELECT 1 FROM temp.forgotten f WHERE f.file = p.file AND f.offset = p.offset)",
    [IG_Q_ADD_ROOT] = "INSERT OR IGNORE INTO roots(hash, model, kind) VALUES(?1, ?2, ?3)",
    [IG_Q_ADD_PIECE] =
        "INSERT OR IGNORE INTO pieces(root, id, parent, number, tokens, file, offset, bytes, used)"
        " VALUES(" ROOT ", ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    [IG_Q_ADD_PENDING] = "INSERT OR REPLACE INTO temp.pending VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    [IG_Q_IS_PENDING] = "SELECT 1 FROM temp.pending WHERE id = ?1 AND file = ?2",
    [IG_Q_NEXT_PENDING] =
        "SELECT rowid, parent FROM temp.pending WHERE rowid > ?1 AND file = ?2 ORDER BY rowid LIMIT 1",
    [IG_Q_KEEP_PENDING] =
        "INSERT OR REPLACE INTO pieces(root, id, parent, number, tokens, file, offset, bytes, used)"
        " SELECT " ROOT
        ", id, parent, number, tokens, file, offset, bytes, ?3 FROM temp.pending"
        " WHERE file = ?2",
    [IG_Q_CLEAR_PENDING] = "DELETE FROM temp.pending",
    [IG_Q_TOUCH] = "UPDATE pieces SET used = ?1 WHERE piece = ?2 AND used < ?1",
    [IG_Q_REMOVE_PIECE] = "DELETE FROM pieces WHERE piece = ?1",
    [IG_Q_LAST_USE] = "SELECT max(used) FROM pieces",
    [IG_Q_COUNT_PIECES] = "SELECT count(*) FROM pieces",

    [IG_Q_PROTECT] = "INSERT OR IGNORE INTO temp.protected VALUES(?1)",
    [IG_Q_CLEAR_PROTECTED] = "DELETE FROM temp.protected",
    [IG_Q_CHILD_USE] = "SELECT (SELECT max(c.used) FROM " CHILDREN ") FROM pieces p WHERE p.piece = ?1",
    [IG_Q_OLDEST] =
        ROW "WHERE p.piece NOT IN (SELECT piece FROM temp.protected) ORDER BY p.used, p.number DESC LIMIT 1",
    [IG_Q_OLDEST_FILE] =
        "SELECT file, max(used) AS newest FROM pieces GROUP BY file"
        " HAVING NOT max(piece IN (SELECT piece FROM temp.protected))"
        " ORDER BY newest, max(number) DESC LIMIT 1",
    [IG_Q_BUMP_FILE] = "UPDATE pieces AS p SET used = (SELECT max(c.used) FROM " CHILDREN
                       ") WHERE p.file = ?1 AND p.used < (SELECT max(c.used) FROM " CHILDREN ")",
    [IG_Q_EMPTY_FILE] =
        "SELECT file, bytes FROM files WHERE NOT EXISTS"
        " (SELECT 1 FROM pieces p WHERE p.file = files.file) LIMIT 1",
    [IG_Q_PIECE_OF_FILE] = ROW "WHERE p.file = ?1 LIMIT 1",
    [IG_Q_FORGET] = "INSERT OR IGNORE INTO temp.forgotten VALUES(?1, ?2)",

    [IG_Q_ADD_FILE] = "INSERT OR REPLACE INTO files VALUES(?1, ?2, ?3)",
    [IG_Q_FILE] = "SELECT size, bytes FROM files WHERE file = ?1",
    [IG_Q_SHRINK_FILE] = "UPDATE files SET bytes = max(0, bytes - ?1) WHERE file = ?2",
    [IG_Q_REMOVE_FILE] = "DELETE FROM files WHERE file = ?1",
    [IG_Q_NEXT_FILE] = "SELECT file, size FROM files WHERE file > ?1 ORDER BY file LIMIT 1",
    [IG_Q_LAST_FILE] = "SELECT max(file) FROM files",
    [IG_Q_ADD_HOLE] = "INSERT OR REPLACE INTO holes VALUES(?1, ?2, ?3)",
    [IG_Q_NEXT_HOLE] = "SELECT file, offset, bytes FROM holes LIMIT 1",
    [IG_Q_REMOVE_HOLE] = "DELETE FROM holes WHERE file = ?1 AND offset = ?2",
    [IG_Q_SUM_BYTES] = "SELECT (SELECT total(bytes) FROM files) + (SELECT total(bytes) FROM notes)",

    [IG_Q_ADD_NOTE] = "INSERT OR REPLACE INTO notes VALUES(" ROOT ", ?2, ?3, ?4)",
    [IG_Q_CLEAR_NOTES] = "DELETE FROM notes",
    [IG_Q_REMOVE_NOTE] = "DELETE FROM notes WHERE root = " ROOT " AND name = ?2",
    [IG_Q_NOTE] = "SELECT bytes FROM notes WHERE root = " ROOT " AND name = ?2",
    [IG_Q_NOTES] = "SELECT name, bytes, written FROM notes WHERE root = " ROOT " ORDER BY name",
    [IG_Q_NEXT_NOTE] =
        "SELECT n.root, r.hash, n.name, n.bytes, n.written, r.model, r.kind FROM notes n JOIN roots r"
        " USING(root) WHERE (n.root, n.name) > (?1, ?2) AND length(CAST(n.name AS BLOB)) = length(n.name)"
        " AND length(n.name) BETWEEN 1 AND 64 AND n.name NOT GLOB '*[^-A-Za-z0-9._]*' AND n.name NOT GLOB '.*'"
        " ORDER BY n.root, n.name LIMIT 1",

    [IG_Q_NEXT_END] = ROW "WHERE p.piece > ?1 AND NOT EXISTS (SELECT 1 FROM " CHILDREN ") ORDER BY p.piece LIMIT 1",
    [IG_Q_NEXT_PIECE] = ROW "WHERE p.piece > ?1 ORDER BY p.piece LIMIT 1",
    [IG_Q_NEXT_ROOT] = "SELECT root, hash, model FROM roots WHERE root > ?1 ORDER BY root LIMIT 1",
    [IG_Q_ROOT_PIECE] = ROW "WHERE p.root = ?1 LIMIT 1",
    [IG_Q_WAS_FORGOTTEN] = "SELECT 1 FROM temp.forgotten WHERE file = ?1",
    [IG_Q_NEXT_ORPHAN] = ROW
    "WHERE p.piece > ?1 AND p.number > 0 AND NOT EXISTS (SELECT 1 FROM pieces q WHERE q.root = p.root AND"
    " q.id = p.parent AND q.number = p.number - 1) ORDER BY p.piece LIMIT 1",
    [IG_Q_ROOT_OF] = "SELECT r.hash, r.model, r.kind FROM roots r JOIN pieces p USING(root) WHERE p.piece = ?1",
    [IG_Q_PIECE] = ROW "WHERE p.piece = ?1",
    [IG_Q_PARENT] = ROW
    "JOIN pieces x ON x.root = p.root AND x.parent = p.id AND x.number = p.number + 1"
    " WHERE x.piece = ?1",
    [IG_Q_CHILD] = ROW
    "JOIN pieces x ON p.root = x.root AND p.parent = x.id AND p.number = x.number + 1"
    " WHERE x.piece = ?1 LIMIT 1",
    [IG_Q_IDS_BETWEEN] = ROW "WHERE p.id BETWEEN ?1 AND ?2 ORDER BY p.id, p.piece LIMIT 1",
    [IG_Q_REMOVE_ROOTS] =
        "DELETE FROM roots WHERE root NOT IN (SELECT root FROM pieces)"
        " AND root NOT IN (SELECT root FROM notes)",
};

/* ---- failures ------------------------------------------------------------ */

static void note_failure(ig_prefix_index *ix, int code) {
    ix->is_corrupt |= code == SQLITE_CORRUPT;
    if (ix->failed) return;
    ix->failed = true;
    ix->code = code;
    snprintf(ix->text, sizeof ix->text, "%s",
             ix->db && code != SQLITE_CORRUPT ? sqlite3_errmsg(ix->db) : sqlite3_errstr(code));
}

ig_status ig_prefix_index_fail(ig_prefix_index *ix, const char *directory, ig_error *err) {
    ig_status status = ix->code == SQLITE_NOMEM ? IG_E_MEMORY : IG_E_IO;
    ig_fail(err, status, "KV store %s: index: %s%s", directory, ix->failed ? ix->text : "unknown error",
            ix->is_corrupt ? "; who opens the store next to write there makes it anew" : "");
    ix->failed = false;
    return status;
}

static bool execute(ig_prefix_index *ix, const char *text) {
    if (ix->failed) return false;
    int code = sqlite3_exec(ix->db, text, NULL, NULL, NULL);
    if (code != SQLITE_OK) note_failure(ix, code);
    return code == SQLITE_OK;
}

/* ---- opening ------------------------------------------------------------- */

/* The file is made here, so that it is the user's alone; SQLite gives those beside it the same mode. One that is there
 * is not opened: closing it would take the locks of another store of this process away. */
static bool is_plain_file(const char *path, bool make) {
    struct stat st;
    if (lstat(path, &st) == 0) return S_ISREG(st.st_mode);
    int fd = make && errno == ENOENT ? open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600) : -1;
    if (fd >= 0) close(fd);
    return fd >= 0;
}

static int open_database(ig_prefix_index *ix, const char *directory, ig_prefix_index_mode mode) {
    int flags = SQLITE_OPEN_NOMUTEX | (mode == IG_PREFIX_INDEX_READ ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE);
    /* "": a file without a name, which is in memory while it is small. */
    if (!directory)
        return sqlite3_open_v2(mode == IG_PREFIX_INDEX_IN_MEMORY ? ":memory:" : "", &ix->db,
                               SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, NULL);
    /* "file:..." would be a URI. */
    char *path = sqlite3_mprintf("%s%s/%s", directory[0] == '/' ? "" : "./", directory, IG_PREFIX_INDEX_NAME);
    if (!path) return SQLITE_NOMEM;
    int code = SQLITE_CANTOPEN;
    if (is_plain_file(path, mode == IG_PREFIX_INDEX_WRITE)) code = sqlite3_open_v2(path, &ix->db, flags, NULL);
    sqlite3_free(path);
    return code;
}

bool ig_prefix_index_open(ig_prefix_index *ix, const char *directory, ig_prefix_index_mode mode) {
    *ix = (ig_prefix_index){0};
    int code = open_database(ix, directory, mode);
    if (code != SQLITE_OK) {
        note_failure(ix, code);
        return false;
    }
    sqlite3_busy_timeout(ix->db, mode == IG_PREFIX_INDEX_TOUCH ? BUSY_TOUCH_MS : BUSY_MS);
    /* What the file says of itself is not trusted: no functions or tables that it defines, checked cells. */
    sqlite3_db_config(ix->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(ix->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    sqlite3_db_config(ix->db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, NULL);
    sqlite3_db_config(ix->db, SQLITE_DBCONFIG_ENABLE_VIEW, 0, NULL);
    /* Of an index that was replaced meanwhile, a reader must not remove the log by its name. */
    if (mode != IG_PREFIX_INDEX_WRITE) sqlite3_db_config(ix->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    if (!directory) return true;
    if (mode == IG_PREFIX_INDEX_WRITE && !execute(ix, "PRAGMA journal_mode = WAL")) return false;
    return execute(ix, "PRAGMA synchronous = NORMAL; PRAGMA cell_size_check = ON; PRAGMA secure_delete = ON");
}

void ig_prefix_index_close(ig_prefix_index *ix) {
    for (int i = 0; i < IG_Q_N; i++) sqlite3_finalize(ix->statements[i]);
    sqlite3_close(ix->db);
    *ix = (ig_prefix_index){0};
}

/* One row and column of a statement that is used once. */
static int64_t ask_number(ig_prefix_index *ix, const char *text) {
    sqlite3_stmt *s = NULL;
    int64_t n = -1;
    if (sqlite3_prepare_v2(ix->db, text, -1, &s, NULL) == SQLITE_OK && sqlite3_step(s) == SQLITE_ROW)
        n = sqlite3_column_int64(s, 0);
    sqlite3_finalize(s);
    return n;
}

/* Not the trees of the indexes, which takes longest: what they lead to is compared with the data anyway. */
static bool is_sound(ig_prefix_index *ix) {
    sqlite3_stmt *s = NULL;
    const char *said = NULL;
    if (sqlite3_prepare_v2(ix->db, "PRAGMA quick_check(1)", -1, &s, NULL) == SQLITE_OK && sqlite3_step(s) == SQLITE_ROW)
        said = (const char *)sqlite3_column_text(s, 0);
    bool is = said && strcmp(said, "ok") == 0;
    sqlite3_finalize(s);
    return is;
}

static bool has_schema(ig_prefix_index *ix) {
    static const char text[] = "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY rowid";
    sqlite3_stmt *s = NULL;
    size_t n = 0;
    bool is = sqlite3_prepare_v2(ix->db, text, -1, &s, NULL) == SQLITE_OK;
    while (is && sqlite3_step(s) == SQLITE_ROW) {
        const char *sql = (const char *)sqlite3_column_text(s, 0);
        is = sql && n < IG_COUNT(schema) && strcmp(sql, schema[n]) == 0;
        n++;
    }
    sqlite3_finalize(s);
    return is && n == IG_COUNT(schema);
}

bool ig_prefix_index_is_of(ig_prefix_index *ix, const ig_prefix_id *store, bool check_all) {
    sqlite3_stmt *s = NULL;
    uint8_t id[16];
    ig_prefix_put_id(id, store);
    if (ask_number(ix, "PRAGMA user_version") != VERSION || !has_schema(ix)) return false;
    bool is = sqlite3_prepare_v2(ix->db, "SELECT id FROM store", -1, &s, NULL) == SQLITE_OK &&
              sqlite3_step(s) == SQLITE_ROW && sqlite3_column_bytes(s, 0) == sizeof id &&
              memcmp(sqlite3_column_blob(s, 0), id, sizeof id) == 0;
    sqlite3_finalize(s);
    return is && (!check_all || is_sound(ix));
}

bool ig_prefix_index_create(ig_prefix_index *ix, const ig_prefix_id *store) {
    char text[96];
    for (size_t i = 0; i < IG_COUNT(schema); i++)
        if (!execute(ix, schema[i])) return false;
    snprintf(text, sizeof text, "INSERT INTO store VALUES(x'%016llx%016llx'); PRAGMA user_version = %d",
             (unsigned long long)store->high, (unsigned long long)store->low, VERSION);
    return execute(ix, text);
}

bool ig_prefix_index_prepare(ig_prefix_index *ix) { return execute(ix, own_tables); }

/* ---- statements ---------------------------------------------------------- */

static void roll_back(ig_prefix_index *ix) {
    if (!sqlite3_get_autocommit(ix->db)) sqlite3_exec(ix->db, "ROLLBACK", NULL, NULL, NULL);
}

bool ig_prefix_index_begin(ig_prefix_index *ix) {
    ix->failed = false;
    roll_back(ix); /* what could not be, without memory */
    return execute(ix, "BEGIN IMMEDIATE");
}

bool ig_prefix_index_end(ig_prefix_index *ix) {
    if (execute(ix, "COMMIT")) return true;
    roll_back(ix);
    return false;
}

/* Binds the arguments of the kinds that `kinds` names; NULL after a failure. */
static sqlite3_stmt *query(ig_prefix_index *ix, ig_prefix_query q, const char *kinds, va_list args) {
    uint8_t id[16];
    int code = SQLITE_OK;
    if (ix->failed) return NULL;
    if (!ix->statements[q])
        code = sqlite3_prepare_v3(ix->db, texts[q], -1, SQLITE_PREPARE_PERSISTENT, &ix->statements[q], NULL);
    sqlite3_stmt *s = ix->statements[q];
    sqlite3_reset(s);
    for (int i = 0; kinds[i] && code == SQLITE_OK; i++) {
        if (kinds[i] == 'i') {
            code = sqlite3_bind_int64(s, i + 1, va_arg(args, int64_t));
        } else if (kinds[i] == 't') {
            code = sqlite3_bind_text(s, i + 1, va_arg(args, const char *), -1, SQLITE_TRANSIENT);
        } else {
            ig_prefix_put_id(id, va_arg(args, const ig_prefix_id *));
            code = sqlite3_bind_blob(s, i + 1, id, sizeof id, SQLITE_TRANSIENT);
        }
    }
    if (code == SQLITE_OK) return s;
    note_failure(ix, code);
    return NULL;
}

sqlite3_stmt *ig_prefix_index_query(ig_prefix_index *ix, ig_prefix_query q, const char *kinds, ...) {
    va_list args;
    va_start(args, kinds);
    sqlite3_stmt *s = query(ix, q, kinds, args);
    va_end(args);
    return s;
}

bool ig_prefix_index_step(ig_prefix_index *ix, sqlite3_stmt *s) {
    if (!s) return false;
    int code = sqlite3_step(s);
    if (code == SQLITE_ROW) return true;
    if (code != SQLITE_DONE) note_failure(ix, code);
    sqlite3_reset(s);
    return false;
}

int64_t ig_prefix_index_ask(ig_prefix_index *ix, int64_t otherwise, ig_prefix_query q, const char *kinds, ...) {
    va_list args;
    va_start(args, kinds);
    sqlite3_stmt *s = query(ix, q, kinds, args);
    va_end(args);
    if (!ig_prefix_index_step(ix, s)) return otherwise;
    int64_t n = sqlite3_column_type(s, 0) == SQLITE_NULL ? otherwise : sqlite3_column_int64(s, 0);
    sqlite3_reset(s);
    return n;
}

bool ig_prefix_index_do(ig_prefix_index *ix, ig_prefix_query q, const char *kinds, ...) {
    va_list args;
    va_start(args, kinds);
    sqlite3_stmt *s = query(ix, q, kinds, args);
    va_end(args);
    while (ig_prefix_index_step(ix, s)) continue;
    return !ix->failed;
}

void ig_prefix_index_text(char *to, size_t cap, sqlite3_stmt *s, int column) {
    const unsigned char *text = sqlite3_column_text(s, column);
    snprintf(to, cap, "%s", text ? (const char *)text : "");
}

bool ig_prefix_index_id(ig_prefix_id *out, sqlite3_stmt *s, int column) {
    if (sqlite3_column_bytes(s, column) != 16) return false;
    *out = ig_prefix_get_id(sqlite3_column_blob(s, column));
    return true;
}

static bool is_possible(const ig_prefix_row *row) {
    return row->number >= 0 && row->number < IG_CTX_MAX && row->n_tokens >= IG_PREFIX_TOKENS_MIN &&
           row->n_tokens <= IG_PREFIX_TOKENS_MAX && row->file <= INT64_MAX && row->offset < IG_PREFIX_FILE_MAX &&
           row->offset % IG_PREFIX_PAGE == 0 && row->bytes >= 2 * IG_PREFIX_PAGE && row->bytes <= 1ull << 31;
}

bool ig_prefix_index_find(ig_prefix_index *ix, ig_prefix_row *out, ig_prefix_query q, const char *kinds, ...) {
    va_list args;
    va_start(args, kinds);
    sqlite3_stmt *s = query(ix, q, kinds, args);
    va_end(args);
    if (!ig_prefix_index_step(ix, s)) return false;
    bool has_ids = ig_prefix_index_id(&out->id, s, 1) && ig_prefix_index_id(&out->parent, s, 2);
    out->piece = sqlite3_column_int64(s, 0);
    out->number = sqlite3_column_int(s, 3);
    out->n_tokens = sqlite3_column_int(s, 4);
    out->file = (uint64_t)sqlite3_column_int64(s, 5);
    out->offset = (uint64_t)sqlite3_column_int64(s, 6);
    out->bytes = (uint64_t)sqlite3_column_int64(s, 7);
    out->used = sqlite3_column_int64(s, 8);
    sqlite3_reset(s);
    if (has_ids && is_possible(out)) return true;
    note_failure(ix, SQLITE_CORRUPT);
    return false;
}
