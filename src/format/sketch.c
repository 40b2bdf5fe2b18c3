/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading and writing sketch files. Offsets in the header, numbers of 4 bytes unless said otherwise:
 *
 *      0 "IGSKETCH"   8 version   12 bits   16 identity of the model (8 bytes)
 *     24 layers      28 heads     32 head_dim   36 rank   40 context   44 kind: 1 balanced, 2 skew
 *     48 checksum of bytes 0..47 and of all after 63 (8 bytes)         56 zero (8 bytes)
 */
#define _GNU_SOURCE
#include "format/sketch.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/error.h"
#include "base/little.h"

enum {
    VERSION = 2,
    HEADER = 64,
    AT_VERSION = 8,
    AT_BITS = 12,
    AT_MODEL = 16,
    AT_SHAPE = 24, /* layers, heads, head_dim, rank, context */
    AT_KIND = 44,
    AT_CHECKSUM = 48,
    AT_ZERO = 56,
    MAX_LAYERS = 512,
    MAX_HEADS = 1 << 16,
};

static const char magic[8] = {'I', 'G', 'S', 'K', 'E', 'T', 'C', 'H'};

static bool is_possible(const ig_sketch_shape *s) {
    return s->n_layers >= 1 && s->n_layers <= MAX_LAYERS && s->n_heads >= 1 && s->n_heads <= MAX_HEADS &&
           s->head_dim >= 8 && s->head_dim <= IG_KV_DIMS && s->head_dim % 8 == 0 && s->rank >= 8 &&
           s->rank <= s->head_dim && s->rank % 8 == 0 && s->n_ctx >= 1 && s->n_ctx <= IG_CTX_MAX &&
           (s->kind == IG_SKETCH_BALANCED || (s->kind == IG_SKETCH_SKEW && s->rank == s->head_dim));
}

int ig_sketch_bits(ig_sketch_kind kind) { return kind == IG_SKETCH_SKEW ? 16 : 4; }

const char *ig_sketch_kind_name(ig_sketch_kind kind) {
    return kind == IG_SKETCH_SKEW ? "skew" : kind == IG_SKETCH_BALANCED ? "balanced" : "none";
}

size_t ig_sketch_head_floats(const ig_sketch_shape *s) {
    size_t d = (size_t)s->head_dim;
    return (size_t)s->rank * (s->kind == IG_SKETCH_SKEW ? d : 2 * d + 1);
}

size_t ig_sketch_file_bytes(const ig_sketch_shape *s) {
    if (!is_possible(s)) return 0;
    return HEADER + (size_t)s->n_layers * (size_t)s->n_heads * ig_sketch_head_floats(s) * sizeof(float);
}

static uint64_t checksum(const uint8_t *header, const void *maps, size_t n_bytes) {
    return XXH3_64bits_withSeed(maps, n_bytes, XXH3_64bits(header, AT_CHECKSUM));
}

/* ---- reading ------------------------------------------------------------- */

static ig_status read_header(ig_sketch_shape *s, const uint8_t *data, size_t n_bytes, const char *name, ig_error *err) {
    if (n_bytes < HEADER || memcmp(data, magic, sizeof magic) != 0)
        return ig_fail(err, IG_E_FORMAT, "%s: not a sketch file", name);
    if (ig_get_u32(data + AT_VERSION) != VERSION)
        return ig_fail(err, IG_E_UNSUPPORTED,
                       "%s: sketch file of version %u, this program reads version %d: prepare it anew", name,
                       (unsigned)ig_get_u32(data + AT_VERSION), VERSION);
    uint32_t kind = ig_get_u32(data + AT_KIND);
    if (kind != IG_SKETCH_BALANCED && kind != IG_SKETCH_SKEW)
        return ig_fail(err, IG_E_UNSUPPORTED, "%s: a sketch of kind %u, which this program does not know", name,
                       (unsigned)kind);
    s->kind = (ig_sketch_kind)kind;
    if (ig_get_u32(data + AT_BITS) != (uint32_t)ig_sketch_bits(s->kind))
        return ig_fail(err, IG_E_UNSUPPORTED, "%s: a sketch of %u bits; only %d are supported", name,
                       (unsigned)ig_get_u32(data + AT_BITS), ig_sketch_bits(s->kind));
    int *const fields[] = {&s->n_layers, &s->n_heads, &s->head_dim, &s->rank, &s->n_ctx};
    for (size_t i = 0; i < IG_COUNT(fields); i++) {
        uint32_t v = ig_get_u32(data + AT_SHAPE + 4 * i);
        *fields[i] = v <= IG_CTX_MAX ? (int)v : -1;
    }
    s->model = ig_get_u64(data + AT_MODEL);
    if (ig_get_u64(data + AT_ZERO))
        return ig_fail(err, IG_E_FORMAT, "%s: sketch file is damaged: bytes %d to %d of its header are not zero", name,
                       AT_ZERO, HEADER - 1);
    if (!is_possible(s)) return ig_fail(err, IG_E_FORMAT, "%s: sketch file with an impossible shape", name);
    size_t wanted = ig_sketch_file_bytes(s);
    if (n_bytes != wanted)
        return ig_fail(err, IG_E_FORMAT, "%s: sketch file of %zu bytes, its header says %zu", name, n_bytes, wanted);
    return IG_OK;
}

/* Columns of length 1 keep a mapped key within the range of 16-bit floats. Whether they are at right angles decides
 * only how good the choice of entries is. */
static bool has_unit_columns(const ig_sketch_shape *s, const float *columns) {
    size_t d = (size_t)s->head_dim, n = (size_t)s->n_layers * (size_t)s->n_heads * d;
    for (size_t i = 0; i < n; i++) {
        double length = 0;
        for (size_t j = 0; j < d; j++) length += (double)columns[i * d + j] * (double)columns[i * d + j];
        if (!(fabs(length - 1) < 1e-3)) return false;
    }
    return true;
}

ig_status ig_sketch_file_open_memory(ig_sketch_file *out, const uint8_t *data, size_t n_bytes, const char *name,
                                     ig_error *err) {
    *out = (ig_sketch_file){0};
    ig_sketch_shape shape;
    ig_status s = read_header(&shape, data, n_bytes, name, err);
    if (s) return s;
    if (ig_get_u64(data + AT_CHECKSUM) != checksum(data, data + HEADER, n_bytes - HEADER))
        return ig_fail(err, IG_E_FORMAT, "%s: sketch file is damaged: its checksum is wrong", name);
    const float *maps = (const float *)(const void *)(data + HEADER);
    for (size_t i = 0; i < (n_bytes - HEADER) / sizeof(float); i++)
        if (!isfinite(maps[i]))
            return ig_fail(err, IG_E_FORMAT, "%s: sketch file with numbers that are not finite", name);
    if (shape.kind == IG_SKETCH_SKEW && !has_unit_columns(&shape, maps))
        return ig_fail(err, IG_E_FORMAT, "%s: sketch file whose matrices are not orthogonal", name);
    out->shape = shape;
    out->checksum = ig_get_u64(data + AT_CHECKSUM);
    out->maps = maps;
    return IG_OK;
}

ig_status ig_sketch_file_open(ig_sketch_file *out, const char *path, ig_error *err) {
    ig_file file;
    ig_loading copy = {0};
    *out = (ig_sketch_file){0};
    ig_status s = ig_file_open(&file, path, err);
    if (!s) s = ig_file_take(&file, path, &copy, err);
    if (!s) s = ig_sketch_file_open_memory(out, file.data, file.size, path, err);
    if (s)
        ig_file_close(&file);
    else
        out->file = file;
    return s;
}

void ig_sketch_file_close(ig_sketch_file *f) {
    ig_file_close(&f->file);
    *f = (ig_sketch_file){0};
}

static const float *head_maps(const ig_sketch_file *f, int layer, int head) {
    return f->maps + ((size_t)layer * (size_t)f->shape.n_heads + (size_t)head) * ig_sketch_head_floats(&f->shape);
}

const float *ig_sketch_query_map(const ig_sketch_file *f, int layer, int head) { return head_maps(f, layer, head); }

const float *ig_sketch_skew(const ig_sketch_file *f, int layer, int head) { return head_maps(f, layer, head); }

const float *ig_sketch_key_map(const ig_sketch_file *f, int layer, int head) {
    return ig_sketch_query_map(f, layer, head) + (size_t)f->shape.rank * (size_t)f->shape.head_dim;
}

const float *ig_sketch_offset(const ig_sketch_file *f, int layer, int head) {
    return ig_sketch_key_map(f, layer, head) + (size_t)f->shape.rank * (size_t)f->shape.head_dim;
}

/* ---- writing ------------------------------------------------------------- */

static void fill_header(uint8_t header[HEADER], const ig_sketch_shape *s, const float *maps, size_t n_bytes) {
    memset(header, 0, HEADER);
    memcpy(header, magic, sizeof magic);
    ig_put_u32(header + AT_VERSION, VERSION);
    ig_put_u32(header + AT_BITS, (uint32_t)ig_sketch_bits(s->kind));
    ig_put_u32(header + AT_KIND, (uint32_t)s->kind);
    ig_put_u64(header + AT_MODEL, s->model);
    const int fields[] = {s->n_layers, s->n_heads, s->head_dim, s->rank, s->n_ctx};
    for (size_t i = 0; i < IG_COUNT(fields); i++) ig_put_u32(header + AT_SHAPE + 4 * i, (uint32_t)fields[i]);
    ig_put_u64(header + AT_CHECKSUM, checksum(header, maps, n_bytes));
}

static bool write_all(int fd, const void *data, size_t n_bytes) {
    const char *p = data;
    while (n_bytes) {
        ssize_t n = write(fd, p, n_bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        p += n;
        n_bytes -= (size_t)n;
    }
    return true;
}

/* Puts the name of a file on the disk as well; where the system cannot do that, nothing is lost but certainty. */
static void sync_folder(const char *path) {
    const char *slash = strrchr(path, '/');
    char *folder = slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
    int fd = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
    free(folder);
}

enum { NUMBER_BYTES = 32, NAMES_TRIED = 1000 };

/* A new file beside the one that it will replace, in `name`; -1 and errno. */
static int open_beside(char *name, size_t n_name, const char *path) {
    int fd = -1;
    for (int i = 0; i < NAMES_TRIED && fd < 0; i++) {
        snprintf(name, n_name, "%s.%d-%d", path, (int)getpid(), i);
        fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd < 0 && errno != EEXIST) break;
    }
    return fd;
}

/* A link is not followed: the rename would take its place, not that of what it names. */
ig_status ig_sketch_file_check_output(const char *path, ig_error *err) {
    struct stat st;
    if (lstat(path, &st) != 0 || S_ISREG(st.st_mode)) return IG_OK; /* what cannot be looked at, cannot be written */
    return ig_fail(err, IG_E_IO, "%s: %s", path, S_ISDIR(st.st_mode) ? "is a directory" : "is not a regular file");
}

ig_status ig_sketch_file_save(const char *path, const ig_sketch_shape *shape, const float *maps, ig_error *err) {
    uint8_t header[HEADER];
    size_t total = ig_sketch_file_bytes(shape);
    if (!total) return ig_fail(err, IG_E_ARG, "%s: a sketch cannot have this shape", path);
    ig_status refused = ig_sketch_file_check_output(path, err);
    if (refused) return refused;
    size_t n_name = strlen(path) + NUMBER_BYTES;
    char *temporary = malloc(n_name);
    if (!temporary) return ig_fail_memory(err, path, n_name);
    fill_header(header, shape, maps, total - HEADER);
    int fd = open_beside(temporary, n_name, path);
    if (fd < 0) {
        ig_status s = ig_fail(err, IG_E_IO, "%s: %s", path, strerror(errno));
        free(temporary);
        return s;
    }
    bool done = write_all(fd, header, HEADER) && write_all(fd, maps, total - HEADER) && fsync(fd) == 0;
    int why = errno;
    if (close(fd) != 0 && done) done = false, why = errno;
    if (done && rename(temporary, path) != 0) done = false, why = errno;
    if (done)
        sync_folder(path);
    else
        unlink(temporary);
    free(temporary);
    return done ? IG_OK : ig_fail(err, IG_E_IO, "%s: %s", path, strerror(why));
}
