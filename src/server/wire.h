/* SPDX-License-Identifier: Apache-2.0
 *
 * Bytes of a connection, in both directions.
 */
#ifndef IG_SERVER_WIRE_H
#define IG_SERVER_WIRE_H

#include <sys/uio.h>

#include "server/head.h"
#include "server/state.h"

typedef struct ig_wire {
    ig_server *server;
    ig_connection *connection;
    int fd;
    bool is_broken; /* nothing can be sent any more */
    size_t at, n;   /* what has come and was not read is buffer[at..n) */
    char buffer[IG_HEAD_BYTES_MAX + (8 << 10)];
} ig_wire;

enum { IG_WIRE_GONE = 1 };
/* The next head, malloc'ed with room for one byte more. 0, the status of a refusal, or IG_WIRE_GONE. */
unsigned ig_wire_head(ig_wire *w, char **head, size_t *n);
/* At most so many of the next bytes, at least one; until the next call. False: no more come. */
bool ig_wire_some(ig_wire *w, size_t most, const char **data, size_t *n);
/* The next line, without its line feed; NULL: longer than IG_CHUNK_LINE_MAX. False: no more come. */
bool ig_wire_line(ig_wire *w, const char **line, size_t *n);
/* Changes parts. False: the client has gone, or does not read. */
bool ig_wire_send(ig_wire *w, struct iovec *parts, size_t n);
/* The last of it has been sent: for a while what still comes is dropped, since a reply may be lost where a connection
 * is closed before all of the request was read. */
void ig_wire_end(ig_wire *w);

#endif
