/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz target: a JSON schema or a grammar and, after a NUL, a text. What is a schema must become a grammar that is one;
 * a grammar then reads the text, and must read the same after it has forgotten all states but one.
 */
#include <stdlib.h>
#include <string.h>

#include "grammar/automaton.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

enum { WORK = 1 << 16 };

static void expect(bool is_right) {
    if (!is_right) abort();
}

static void read_text(ig_automaton *a, const uint8_t *text, size_t n) {
    ig_automaton_allow(a, WORK);
    uint16_t at = ig_automaton_start(a);
    for (size_t i = 0; i < n && at > IG_STATE_DEAD; i++) {
        uint16_t next = ig_automaton_step(a, at, text[i]), again = ig_automaton_step(a, at, text[i]);
        expect(next == again || next == IG_STATE_FULL);
        if (i % 7 == 3) {
            bool accepts = ig_automaton_accepts(a, at), is_end = ig_automaton_is_end(a, at);
            at = ig_automaton_renew(a, at);
            expect(ig_automaton_accepts(a, at) == accepts && ig_automaton_is_end(a, at) == is_end);
            again = ig_automaton_step(a, at, text[i]);
            expect((again == IG_STATE_DEAD) == (next == IG_STATE_DEAD) || next == IG_STATE_FULL ||
                   again == IG_STATE_FULL);
        }
        at = again;
    }
}

static void use_grammar(const char *gbnf, bool must_be_one, const uint8_t *text, size_t n) {
    ig_rules rules;
    ig_automaton *a;
    ig_error err;
    ig_status s = ig_rules_parse(&rules, gbnf, &err);
    expect(!must_be_one || s != IG_E_FORMAT);
    expect(s == IG_OK || (err.status == s && err.text[0]));
    if (s || ig_automaton_open(&a, &rules, &err)) return;
    read_text(a, text, n);
    ig_automaton_close(a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    const uint8_t *end = memchr(data, 0, n_bytes), *text = end ? end + 1 : data + n_bytes;
    size_t n = end ? (size_t)(end - data) : n_bytes, n_text = (size_t)(data + n_bytes - text);
    char *source = malloc(n + 1), *gbnf;
    ig_error err;
    if (!source) return 0;
    memcpy(source, data, n);
    source[n] = 0;
    if (ig_schema_to_gbnf(&gbnf, source, n, &err) == IG_OK) {
        use_grammar(gbnf, true, text, n_text);
        free(gbnf);
    }
    use_grammar(source, false, text, n_text);
    free(source);
    return 0;
}
