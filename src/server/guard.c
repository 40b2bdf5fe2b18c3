/* SPDX-License-Identifier: Apache-2.0
 *
 * Who may ask: keys, and what tells a browser that was led here by a foreign page (Host and Origin).
 */
#define _GNU_SOURCE
#include "server/call.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

/* ---- keys ------------------------------------------------------------------------------- */

static ig_status add_key(ig_server_keys *k, const char *key, size_t n, const char *from, ig_error *err) {
    if (n == 0 || n >= IG_SERVER_KEY_BYTES)
        return ig_text_fail(err, IG_E_ARG, "%s: a key has 1 to %d bytes", from, IG_SERVER_KEY_BYTES - 1);
    for (size_t i = 0; i < n; i++)
        if (key[i] <= ' ' || key[i] > '~')
            return ig_text_fail(err, IG_E_ARG, "%s: a key is of printable ASCII characters without blanks", from);
    if (k->n == IG_SERVER_KEYS_MAX)
        return ig_text_fail(err, IG_E_LIMIT, "%s: more than %d keys", from, IG_SERVER_KEYS_MAX);
    memset(k->keys[k->n], 0, sizeof k->keys[0]);
    memcpy(k->keys[k->n++], key, n);
    return IG_OK;
}

/* One a line; lines that begin with # and empty ones are none. What may never come to its end is not read. */
static ig_status read_file(ig_server_keys *k, const char *path, ig_error *err) {
    enum { BYTES_MAX = 1 << 20 };
    struct stat st;
    if (stat(path, &st) == 0 && (!S_ISREG(st.st_mode) || st.st_size > BYTES_MAX))
        return ig_text_fail(err, IG_E_ARG, "%s: keys are in a plain file of at most %d bytes", path, BYTES_MAX);
    FILE *f = fopen(path, "re");
    if (!f) return ig_text_fail(err, IG_E_IO, "%s: %s", path, strerror(errno));
    char *line = NULL;
    size_t room = 0, before = k->n;
    ssize_t n;
    ig_status s = IG_OK;
    while (!s && (n = getline(&line, &room, f)) >= 0) {
        while (n && (line[n - 1] == '\n' || line[n - 1] == '\r')) n--;
        if (n && line[0] != '#') s = add_key(k, line, (size_t)n, path, err);
    }
    if (!s && !feof(f)) s = ig_text_fail(err, IG_E_IO, "%s: %s", path, strerror(errno));
    if (!s && k->n == before) s = ig_text_fail(err, IG_E_ARG, "%s: there is no key in it", path);
    free(line);
    fclose(f);
    return s;
}

ig_status ig_server_read_keys(ig_server *s, ig_error *err) {
    ig_server_keys new = {.keys = calloc(IG_SERVER_KEYS_MAX, sizeof *new.keys)};
    if (!new.keys) return ig_text_fail(err, IG_E_MEMORY, "out of memory for keys");
    ig_status status = IG_OK;
    if (s->o->key) status = add_key(&new, s->o->key, strlen(s->o->key), "--api-key", err);
    if (!status && s->o->key_file) status = read_file(&new, s->o->key_file, err);
    if (status) {
        free(new.keys);
        return status;
    }
    pthread_mutex_lock(&s->keys.lock);
    free(s->keys.keys);
    s->keys.keys = new.keys;
    s->keys.n = new.n;
    pthread_mutex_unlock(&s->keys.lock);
    return IG_OK;
}

bool ig_server_has_keys(const ig_server *s) { return s->o->key || s->o->key_file; }

void ig_server_free_keys(ig_server_keys *k) {
    free(k->keys);
    k->keys = NULL;
}

/* How long it takes does not depend on how much of a key is right, nor on which. */
static bool is_key(ig_server_keys *k, const char *given) {
    unsigned char padded[IG_SERVER_KEY_BYTES] = {0};
    size_t n = strlen(given);
    memcpy(padded, given, n < sizeof padded ? n : sizeof padded - 1);
    unsigned is_any = 0;
    for (size_t i = 0; i < k->n; i++) {
        volatile unsigned char differs = n >= sizeof padded;
        for (size_t j = 0; j < sizeof padded; j++) differs |= padded[j] ^ (unsigned char)k->keys[i][j];
        is_any |= differs == 0;
    }
    return is_any != 0;
}

/* One that is right is the call's from here on. */
static bool has_key(ig_call *c) {
    ig_server_keys *k = &c->server->keys;
    const char *given = ig_head_value(c->head, "Authorization");
    if (given && strncasecmp(given, "Bearer ", 7) == 0)
        given += 7 + strspn(given + 7, " ");
    else
        given = ig_head_value(c->head, "X-Api-Key");
    pthread_mutex_lock(&k->lock);
    c->key = k->n && given && is_key(k, given) ? given : NULL;
    bool ok = k->n == 0 || c->key;
    pthread_mutex_unlock(&k->lock);
    return ok;
}

/* ---- hosts --------------------------------------------------------------------------------- */

static bool is_loopback(const char *host) {
    struct in_addr at;
    if (strcasecmp(host, "localhost") == 0 || strcmp(host, "::1") == 0) return true;
    return inet_pton(AF_INET, host, &at) == 1 && ntohl(at.s_addr) >> 24 == 127;
}

/* Of "name:port" or "[address]:port" what is before the port; false if it is none. */
static bool host_name(char name[256], const char *host) {
    bool is_address = host[0] == '[';
    host += is_address;
    size_t n = strcspn(host, is_address ? "]" : ":");
    const char *rest = host + n;
    if (is_address && *rest++ != ']') return false;
    if (n == 0 || n > 255 || (*rest && *rest != ':')) return false;
    if (*rest == ':' && rest[1 + strspn(rest + 1, "0123456789")]) return false;
    memcpy(name, host, n);
    name[n] = 0;
    return true;
}

/* A page of elsewhere may have a name that leads to this machine, but cannot choose what the browser calls it. With a
 * key it could do nothing, and the name may be a proxy's. No browser leaves it out, as HTTP/1.0 may. */
static bool is_host_fine(const ig_server *s, const char *host) {
    char name[256];
    if (!host || ig_server_has_keys(s) || s->is_unix) return true;
    if (!host_name(name, host)) return false;
    return is_loopback(name) || strcasecmp(name, s->o->host) == 0;
}

/* Whether the list, which may be written as JSON, has it. */
static bool is_listed(const char *list, const char *origin) {
    static const char between[] = ", []\"";
    size_t n;
    for (list += strspn(list, between); *list; list += n + strspn(list + n, between)) {
        n = strcspn(list, between);
        if ((n == 1 && *list == '*') || (strncasecmp(list, origin, n) == 0 && !origin[n])) return true;
    }
    return false;
}

/* None, the one that the page itself is from, or one that is allowed, which the reply tells the browser. */
static bool is_origin_fine(ig_call *c, const char *origin, const char *host) {
    const char *after = origin ? strstr(origin, "://") : NULL, *list = c->server->o->origins;
    if (!origin || (host && after && strcasecmp(after + 3, host) == 0)) return true;
    if (list && strlen(origin) <= IG_ORIGIN_BYTES && is_listed(list, origin)) c->origin = origin;
    return c->origin != NULL;
}

bool ig_server_may_enter(ig_call *c, bool is_public) {
    const char *host = ig_head_value(c->head, "Host");
    const char *origin = ig_head_value(c->head, "Origin");
    if (!is_host_fine(c->server, host))
        return ig_refuse(c, 403, NULL, "this server does not answer to that Host without a key");
    if (!is_origin_fine(c, origin, host)) return ig_refuse(c, 403, NULL, "pages of another Origin may not ask");
    if (is_public || has_key(c)) return true;
    bool has_one = ig_head_value(c->head, "Authorization") || ig_head_value(c->head, "X-Api-Key");
    if (has_one) c->refusal.code = "invalid_api_key";
    return ig_refuse(c, 401, NULL,
                     has_one ? "incorrect API key: the one that was given is not one of this server's"
                             : "a key is needed: Authorization: Bearer KEY, or X-Api-Key: KEY");
}
