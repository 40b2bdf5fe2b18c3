/* SPDX-License-Identifier: Apache-2.0
 *
 * Offsets in a header of 4096 bytes; numbers are little-endian, ids and hashes are 16 bytes, the highest first. What is
 * not named is zero.
 *
 *      0 "IGPREFIX", "IGKVNOTE"    8 version (4)    12 0x01020304 as the machine has it (4)
 *     16 store    32 root    48 id    64 parent    80 number (4)    84 tokens (4)    88 bytes of the payload (8)
 *     96 hash of the payload    112 file (8)    120 offset in it (8)
 *    128 model (128)    256 kind (128)    384 name of a note (65)
 *    512 the tokens, 4 bytes each (2048)
 *   4080 hash of bytes 0..4079
 * Whatever the version, the first 16 bytes and the hash are where they are: so another version is told from damage.
 *
 * The hashes are XXH3-128: they find damage, not forgery. Who can write to the directory can also forge.
 */
#define _GNU_SOURCE
#include "kv/prefix_record.h"

#include <string.h>

#include <xxhash.h>

#include "base/little.h"

enum {
    VERSION = 1,
    AT_VERSION = 8,
    AT_ORDER = 12,
    AT_STORE = 16,
    AT_ROOT = 32,
    AT_ID = 48,
    AT_PARENT = 64,
    AT_NUMBER = 80,
    AT_N_TOKENS = 84,
    AT_PAYLOAD = 88,
    AT_HASH = 96,
    AT_FILE = 112,
    AT_OFFSET = 120,
    AT_MODEL = 128,
    AT_KIND = 256,
    AT_NAME = 384,
    AT_TOKENS = 512,
    AT_CHECKSUM = IG_PREFIX_PAGE - 16,
};

static const char magic_piece[8] = {'I', 'G', 'P', 'R', 'E', 'F', 'I', 'X'};
static const char magic_note[8] = {'I', 'G', 'K', 'V', 'N', 'O', 'T', 'E'};
static const uint32_t order = 0x01020304;

void ig_prefix_put_id(uint8_t to[16], const ig_prefix_id *id) {
    for (int i = 0; i < 8; i++) {
        to[i] = (uint8_t)(id->high >> (56 - 8 * i));
        to[8 + i] = (uint8_t)(id->low >> (56 - 8 * i));
    }
}

ig_prefix_id ig_prefix_get_id(const uint8_t from[16]) {
    ig_prefix_id id = {0};
    for (int i = 0; i < 8; i++) {
        id.high = id.high << 8 | from[i];
        id.low = id.low << 8 | from[8 + i];
    }
    return id;
}

uint64_t ig_prefix_record_bytes(uint64_t payload_bytes) {
    return IG_PREFIX_PAGE + (payload_bytes + IG_PREFIX_PAGE - 1) / IG_PREFIX_PAGE * IG_PREFIX_PAGE;
}

bool ig_prefix_is_name(const char *name) {
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    size_t n = strspn(name, allowed);
    return n >= 1 && n < IG_PREFIX_NAME && !name[n] && name[0] != '.';
}

static ig_prefix_id checksum(const uint8_t *page) {
    XXH128_hash_t h = XXH3_128bits(page, AT_CHECKSUM);
    return (ig_prefix_id){h.low64, h.high64};
}

bool ig_prefix_hash(ig_prefix_id *out, const struct iovec *areas, int n) {
    XXH3_state_t *state = XXH3_createState();
    if (!state) return false;
    XXH3_128bits_reset(state);
    for (int i = 0; i < n; i++)
        if (areas[i].iov_len) XXH3_128bits_update(state, areas[i].iov_base, areas[i].iov_len);
    XXH128_hash_t h = XXH3_128bits_digest(state);
    XXH3_freeState(state);
    *out = (ig_prefix_id){h.low64, h.high64};
    return true;
}

/* ---- writing ------------------------------------------------------------- */

void ig_prefix_record_write(uint8_t page[IG_PREFIX_PAGE], const ig_prefix_record *r) {
    memset(page, 0, IG_PREFIX_PAGE);
    memcpy(page, r->is_note ? magic_note : magic_piece, sizeof magic_piece);
    ig_put_u32(page + AT_VERSION, VERSION);
    memcpy(page + AT_ORDER, &order, sizeof order);
    ig_prefix_put_id(page + AT_STORE, &r->store);
    ig_prefix_put_id(page + AT_ROOT, &r->root);
    ig_put_u64(page + AT_PAYLOAD, r->payload_bytes);
    ig_prefix_put_id(page + AT_HASH, &r->payload_hash);
    memcpy(page + AT_MODEL, r->model, strnlen(r->model, IG_PREFIX_TEXT - 1));
    memcpy(page + AT_KIND, r->kind, strnlen(r->kind, IG_PREFIX_TEXT - 1));
    if (r->is_note) {
        memcpy(page + AT_NAME, r->name, strnlen(r->name, IG_PREFIX_NAME - 1));
    } else {
        ig_prefix_put_id(page + AT_ID, &r->id);
        ig_prefix_put_id(page + AT_PARENT, &r->parent);
        ig_put_u32(page + AT_NUMBER, (uint32_t)r->number);
        ig_put_u32(page + AT_N_TOKENS, (uint32_t)r->n_tokens);
        ig_put_u64(page + AT_FILE, r->file);
        ig_put_u64(page + AT_OFFSET, r->offset);
        for (int i = 0; i < r->n_tokens; i++) ig_put_u32(page + AT_TOKENS + 4 * i, (uint32_t)r->tokens[i]);
    }
    ig_prefix_id sum = checksum(page);
    ig_prefix_put_id(page + AT_CHECKSUM, &sum);
}

/* ---- reading ------------------------------------------------------------- */

static bool is_hole(const uint8_t *page) { return !page[0] && memcmp(page, page + 1, IG_PREFIX_PAGE - 1) == 0; }

/* A text of `cap` bytes that ends within them and holds nothing a terminal would obey. */
static bool read_text(char *to, const uint8_t *from, size_t cap) {
    if (!memchr(from, 0, cap)) return false;
    for (size_t i = 0; from[i]; i++) {
        if (from[i] < 0x20 || from[i] == 0x7f) return false;
        to[i] = (char)from[i];
    }
    return true;
}

static bool read_piece(ig_prefix_record *r, const uint8_t *page) {
    uint32_t number = ig_get_u32(page + AT_NUMBER), n = ig_get_u32(page + AT_N_TOKENS);
    r->id = ig_prefix_get_id(page + AT_ID);
    r->parent = ig_prefix_get_id(page + AT_PARENT);
    r->file = ig_get_u64(page + AT_FILE);
    r->offset = ig_get_u64(page + AT_OFFSET);
    if (n < IG_PREFIX_TOKENS_MIN || n > IG_PREFIX_TOKENS_MAX || (n & (n - 1))) return false;
    if (number >= IG_CTX_MAX / n) return false;
    if (r->payload_bytes < 1 || r->payload_bytes > IG_PREFIX_PAYLOAD_MAX) return false;
    r->number = (int)number;
    r->n_tokens = (int)n;
    for (uint32_t i = 0; i < n; i++) r->tokens[i] = (int32_t)ig_get_u32(page + AT_TOKENS + 4 * i);
    return true;
}

ig_prefix_header ig_prefix_record_read(ig_prefix_record *r, const uint8_t page[IG_PREFIX_PAGE]) {
    uint32_t mark;
    if (is_hole(page)) return IG_PREFIX_HOLE;
    memset(r, 0, sizeof *r);
    r->is_note = memcmp(page, magic_note, sizeof magic_note) == 0;
    if (!r->is_note && memcmp(page, magic_piece, sizeof magic_piece) != 0) return IG_PREFIX_DAMAGED;
    ig_prefix_id sum = checksum(page), stored = ig_prefix_get_id(page + AT_CHECKSUM);
    memcpy(&mark, page + AT_ORDER, sizeof mark);
    if (!ig_prefix_same(&sum, &stored)) return IG_PREFIX_DAMAGED;
    if (ig_get_u32(page + AT_VERSION) != VERSION || mark != order) return IG_PREFIX_FOREIGN;
    r->store = ig_prefix_get_id(page + AT_STORE);
    r->root = ig_prefix_get_id(page + AT_ROOT);
    r->payload_bytes = ig_get_u64(page + AT_PAYLOAD);
    r->payload_hash = ig_prefix_get_id(page + AT_HASH);
    if (!read_text(r->model, page + AT_MODEL, IG_PREFIX_TEXT) || !read_text(r->kind, page + AT_KIND, IG_PREFIX_TEXT))
        return IG_PREFIX_DAMAGED;
    if (!r->is_note) return read_piece(r, page) ? IG_PREFIX_VALID : IG_PREFIX_DAMAGED;
    if (!read_text(r->name, page + AT_NAME, IG_PREFIX_NAME) || !ig_prefix_is_name(r->name)) return IG_PREFIX_DAMAGED;
    return r->payload_bytes <= IG_PREFIX_NOTE_MAX ? IG_PREFIX_VALID : IG_PREFIX_DAMAGED;
}
