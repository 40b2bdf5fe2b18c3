/* SPDX-License-Identifier: Apache-2.0
 *
 * The head of an HTTP/1.1 request (RFC 9112), and the lines of a body in chunks. What could be read in two ways, by a
 * proxy in one and here in the other, is refused: bare line feeds, folded lines, blanks before a colon, a length that
 * is anything but digits, a length together with chunks, fields that appear twice and must not.
 */
#ifndef IG_SERVER_HEAD_H
#define IG_SERVER_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    IG_HEAD_BYTES_MAX = 32 << 10, /* of all lines */
    IG_HEAD_LINE_MAX = 8 << 10,   /* of the first one */
    IG_HEAD_FIELDS_MAX = 100,
    IG_CHUNK_LINE_MAX = 256
};

typedef struct ig_head_field {
    const char *name, *value;
} ig_head_field;

typedef struct ig_head {
    const char *method, *path; /* the path decoded, without what follows a question mark, */
    const char *query;         /* which is this, as it was sent; NULL: nothing */
    bool is_1_0;
    bool closes;         /* the connection, after the reply */
    bool wants_continue; /* "100 Continue" before it sends its body */
    bool has_length, is_chunked;
    uint64_t length; /* of the body; UINT64_MAX: as much or more */
    size_t n_fields;
    ig_head_field fields[IG_HEAD_FIELDS_MAX];
} ig_head;

/* Bytes of the head that the text begins with; 0: its end has not come yet. `seen` bytes are known to have no end. A
 * head that is wrong in any case ends where that is known. */
size_t ig_head_find(const char *text, size_t n, size_t seen);
/* Reads the head text[0..n), which ends where ig_head_find() says, has one byte more, is changed, and lasts as long as
 * *out. 0, or the status of the refusal and *why, which is a literal. */
unsigned ig_head_read(ig_head *out, char *text, size_t n, const char **why);
/* The value of a field, of which there is one; NULL: none. */
const char *ig_head_value(const ig_head *h, const char *name);

/* The value of a name in the query, decoded, of less than `cap` bytes. False: there is none such. */
bool ig_head_query(const ig_head *h, const char *name, char *out, size_t cap);

/* A line that says how long a chunk is, or a field after the last one (a trailer), without its line feed. */
bool ig_chunk_size(uint64_t *size, const char *line, size_t n);
bool ig_chunk_is_trailer(const char *line, size_t n);

#endif
