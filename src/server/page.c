/* SPDX-License-Identifier: Apache-2.0
 *
 * The page at "/", which is compiled in (page.html). Its script and its style carry a number that only this reply's
 * policy names, so that nothing else can run in it.
 */
#define _GNU_SOURCE
#include "server/call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static const unsigned char page[] = {
#include "server/page_html.h"
};

static const char mark[] = "{{nonce}}";
enum { NONCE_CHARACTERS = 32 };

static bool make_nonce(char nonce[NONCE_CHARACTERS + 1]) {
    unsigned char random[NONCE_CHARACTERS / 2];
    if (getrandom(random, sizeof random, 0) != sizeof random) return false;
    for (size_t i = 0; i < sizeof random; i++) snprintf(nonce + 2 * i, 3, "%02x", random[i]);
    return true;
}

/* The page with the number in place of each mark; its length. */
static size_t fill_in(char *to, const char *nonce) {
    const char *at = (const char *)page, *end = at + sizeof page, *found;
    char *out = to;
    while ((found = memmem(at, (size_t)(end - at), mark, sizeof mark - 1))) {
        out = mempcpy(out, at, (size_t)(found - at));
        out = mempcpy(out, nonce, NONCE_CHARACTERS);
        at = found + sizeof mark - 1;
    }
    out = mempcpy(out, at, (size_t)(end - at));
    return (size_t)(out - to);
}

void ig_route_page(ig_call *c) {
    char nonce[NONCE_CHARACTERS + 1], fields[512];
    char *text = malloc(sizeof page + 8 * (size_t)NONCE_CHARACTERS);
    if (text && make_nonce(nonce)) {
        snprintf(
            fields, sizeof fields,
            "Content-Security-Policy: default-src 'none'; script-src 'nonce-%s'; style-src 'nonce-%s'; connect-src "
            "'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\nReferrer-Policy: no-referrer\r\n",
            nonce, nonce);
        ig_reply(c, 200, "text/html; charset=utf-8", fields, text, fill_in(text, nonce));
    } else {
        ig_refuse(c, 500, NULL, "the page cannot be made");
    }
    free(text);
}
