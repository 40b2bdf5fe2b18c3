/* SPDX-License-Identifier: Apache-2.0
 *
 * Word lists and what is drawn from them.
 */
#include "eval/make_words.h"

#include <stdlib.h>
#include <string.h>

/* ---- names ----------------------------------------------------------------- */

static const char *const adjectives[128] = {
    "amber",   "ample",  "ancient", "arctic", "ashen",   "autumn",   "azure",  "bare",    "bitter", "blank",  "bold",
    "brave",   "brief",  "bright",  "brisk",  "broad",   "bronze",   "calm",   "careful", "cheap",  "civil",  "clean",
    "clear",   "clever", "close",   "cold",   "common",  "cosy",     "crisp",  "crude",   "curly",  "daily",  "damp",
    "dark",    "dear",   "deep",    "dense",  "distant", "double",   "dry",    "dull",    "dusty",  "eager",  "early",
    "eastern", "easy",   "empty",   "exact",  "fair",    "faint",    "famous", "fast",    "fierce", "final",  "firm",
    "flat",    "fond",   "formal",  "fresh",  "frosty",  "gentle",   "giant",  "glad",    "golden", "grand",  "grave",
    "great",   "green",  "grey",    "handy",  "happy",   "hardy",    "hasty",  "heavy",   "hidden", "high",   "hollow",
    "honest",  "humble", "icy",     "idle",   "inner",   "iron",     "jolly",  "keen",    "kind",   "large",  "late",
    "lazy",    "level",  "light",   "lively", "lonely",  "long",     "loud",   "loyal",   "lucky",  "mellow", "mild",
    "modest",  "narrow", "neat",    "noble",  "noisy",   "northern", "odd",    "olive",   "open",   "pale",   "patient",
    "plain",   "polite", "proud",   "quick",  "quiet",   "rapid",    "rare",   "rough",   "round",  "rusty",  "scarlet",
    "secure",  "sharp",  "silent",  "simple", "solid",   "steady",   "velvet",
};

static const char *const nouns[128] = {
    "acorn",   "anchor", "apron",    "arrow",   "badge",   "barrel",  "basket",  "beacon",  "bell",     "bench",
    "blanket", "boat",   "bottle",   "bridge",  "broom",   "brush",   "bucket",  "button",  "cabin",    "camel",
    "candle",  "canyon", "carpet",   "castle",  "chain",   "chair",   "cherry",  "circle",  "clock",    "cloud",
    "coast",   "comet",  "copper",   "coral",   "cradle",  "crane",   "crown",   "curtain", "desert",   "diary",
    "dragon",  "drum",   "eagle",    "engine",  "falcon",  "feather", "fence",   "ferry",   "fiddle",   "flute",
    "forest",  "fossil", "fountain", "garden",  "glacier", "glove",   "hammer",  "harbour", "hedge",    "helmet",
    "heron",   "island", "jacket",   "jungle",  "kettle",  "kite",    "ladder",  "lagoon",  "lamp",     "lantern",
    "lemon",   "letter", "lizard",   "magnet",  "mantle",  "maple",   "market",  "meadow",  "mirror",   "mitten",
    "monkey",  "mortar", "mountain", "needle",  "nickel",  "oar",     "orchard", "otter",   "oven",     "paddle",
    "palace",  "pebble", "pepper",   "piano",   "pigeon",  "pillow",  "planet",  "pocket",  "portrait", "pulley",
    "puzzle",  "quarry", "quill",    "rabbit",  "raven",   "ribbon",  "river",   "rocket",  "saddle",   "sail",
    "salmon",  "scarf",  "shovel",   "sparrow", "spoon",   "statue",  "sword",   "table",   "teapot",   "temple",
    "thimble", "ticket", "timber",   "tower",   "trumpet", "tulip",   "violin",  "window",
};

/* Numbers from IG_EVAL_PAIRS on are of syllables. */
uint32_t *ig_eval_syllable_names(ig_eval_random *r, size_t n) {
    uint32_t *names = n <= IG_EVAL_SYLLABLES ? malloc((n ? n : 1) * sizeof *names) : NULL;
    uint64_t first = ig_eval_random_next(r);
    /* The step has no factor in common with the number of names: none comes twice. */
    for (size_t i = 0; names && i < n; i++)
        names[i] = IG_EVAL_PAIRS + (uint32_t)((first % IG_EVAL_SYLLABLES + i * 100003) % IG_EVAL_SYLLABLES);
    return names;
}

uint32_t *ig_eval_names(ig_eval_random *r, size_t n) {
    return n <= IG_EVAL_PAIRS ? ig_eval_random_draw(r, n, IG_EVAL_PAIRS) : ig_eval_syllable_names(r, n);
}

void ig_eval_name(char out[IG_EVAL_NAME_BYTES], uint32_t name) {
    if (name < IG_EVAL_PAIRS) {
        snprintf(out, IG_EVAL_NAME_BYTES, "%s-%s", adjectives[name >> 7], nouns[name & 127]);
        return;
    }
    name -= IG_EVAL_PAIRS;
    for (int i = 0; i < 3; i++, name /= 70) {
        out[2 * i] = "bdfgklmnprstvz"[name % 70 / 5];
        out[2 * i + 1] = "aeiou"[name % 5];
    }
    out[6] = 0;
}

void ig_eval_code(char out[7], uint64_t first, uint32_t i) {
    const uint64_t all = 308915776; /* 26^6, which has no factor in common with the step */
    uint64_t code = (first % all + i * UINT64_C(104395301)) % all;
    for (int k = 0; k < 6; k++, code /= 26) out[k] = (char)('a' + code % 26);
    out[6] = 0;
}

void ig_eval_letters(char *out, int n, ig_eval_random *r) {
    for (int i = 0; i < n; i++) out[i] = (char)('A' + ig_eval_random_below(r, 26));
    out[n] = 0;
}

/* ---- built-in filler -------------------------------------------------------- */

const char ig_eval_noise[] =
    "The kettle is warm. The door is shut. The rain has stopped. Now we wait. Soon it is evening.";

static const char *const people[] = {
    "The baker",       "An old sailor",    "The schoolmaster",     "Her cousin",    "The ferryman",
    "A young painter", "The night porter", "My neighbour",         "The postman",   "A retired judge",
    "The miller",      "The apprentice",   "A travelling fiddler", "The gardener",  "The station master",
    "His aunt",        "The librarian",    "A fisherman",          "The innkeeper", "The new doctor",
    "A shepherd",      "The clockmaker",   "The mayor's clerk",    "The weaver",
};
static const char *const deeds[] = {
    "mended a broken cart",
    "counted the empty crates",
    "read a letter twice",
    "talked about the price of wool",
    "waited for the second train",
    "drew a map of the coast",
    "looked for a lost umbrella",
    "sold the last of the apples",
    "listened to the church choir",
    "painted the shutters blue",
    "wrote down the names of birds",
    "cooked soup for the whole street",
    "carried water up the hill",
    "told a long story about a wolf",
    "argued about an old fence",
    "swept the yard before noon",
    "learned a few words of Greek",
    "polished a pair of boots",
    "borrowed a ladder",
    "planted beans along the wall",
    "hummed a tune nobody knew",
    "folded the sheets with care",
    "watched the barges go by",
    "forgot to wind the clock",
};
static const char *const places[] = {
    "behind the town hall",
    "near the old bridge",
    "at the edge of the wood",
    "in the upper village",
    "beside the canal",
    "under the lime trees",
    "in a room above the shop",
    "on the way to the harbour",
    "at the end of the lane",
    "in the shade of the mill",
    "across from the bakery",
    "by the garden gate",
    "on the steps of the school",
    "in the back of the barn",
    "at the corner table",
    "near the railway yard",
    "on the far side of the field",
    "next to the fountain",
    "in front of the chapel",
    "down at the boathouse",
    "in the long corridor",
    "at the market",
    "by the kitchen stove",
    "on the north road",
};
static const char *const ends[] = {
    "while the rain went on",       "and nobody minded",
    "as on every Tuesday",          "until the lamps were lit",
    "though it was already late",   "and then went home",
    "before the frost came",        "as if there were no hurry",
    "while the dog slept",          "and said little about it",
    "because the weather was kind", "for most of the afternoon",
    "and thought of the sea",       "after a short quarrel",
    "without being asked",          "and was pleased with the result",
};

#define COUNT(list) (sizeof(list) / sizeof(list)[0])

static void put_built_in(FILE *f, uint64_t number) {
    uint64_t bits = ig_eval_random_mix(number * 0x9e3779b97f4a7c15u + 1);
    const char *person = people[bits % COUNT(people)], *deed = deeds[(bits >> 12) % COUNT(deeds)],
               *place = places[(bits >> 24) % COUNT(places)], *end = ends[(bits >> 36) % COUNT(ends)];
    switch (bits >> 60) {
        case 0:
        case 1:
        case 2:
            fprintf(f, "%s %s %s.", person, deed, place);
            break;
        case 3:
        case 4:
        case 5:
            fprintf(f, "%s %s, %s.", person, deed, end);
            break;
        default:
            fprintf(f, "%s %s %s, %s.", person, deed, place, end);
    }
}

/* ---- filler ----------------------------------------------------------------- */

/* A sentence is cut after so many words or bytes, whether it ends there or not. */
enum { WORDS_MAX = 60, SENTENCE_BYTES_MAX = 480 };

typedef struct span {
    size_t begin, n;
} span;

struct ig_eval_filler {
    char *text;      /* white space collapsed; NULL: built-in */
    span *sentences; /* [n] */
    size_t n;
};

/* Blanks and control characters become one blank each run, none at the ends; the length. */
static size_t collapse(char *out, const char *text, size_t n_text) {
    size_t n = 0;
    bool blank = false;
    for (size_t i = 0; i < n_text; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c <= ' ' || c == 0x7f) {
            blank = n > 0;
            continue;
        }
        if (blank) out[n++] = ' ';
        blank = false;
        out[n++] = (char)c;
    }
    return n;
}

static bool ends_sentence(const char *text, size_t begin, size_t end) {
    while (end > begin && strchr("\"')]", text[end - 1])) end--;
    if (end >= begin + 3 && memcmp(text + end - 3, "\xe2\x80\x9d", 3) == 0) end -= 3; /* a closing quotation mark */
    return end > begin && strchr(".!?", text[end - 1]);
}

/* Where the sentence that begins at `begin` ends. */
static size_t find_end(const char *text, size_t begin, size_t n) {
    int words = 0;
    for (size_t i = begin + 1; i < n; i++) {
        bool inside_character = ((unsigned char)text[i] & 0xc0) == 0x80;
        if (text[i] == ' ' && (ends_sentence(text, begin, i) || ++words == WORDS_MAX)) return i;
        if (i - begin >= SENTENCE_BYTES_MAX && !inside_character) return i;
    }
    return n;
}

static size_t split(span *sentences, const char *text, size_t n) {
    size_t count = 0;
    for (size_t begin = 0, end; begin < n; begin = end + (end < n && text[end] == ' ')) {
        end = find_end(text, begin, n);
        if (sentences) sentences[count] = (span){begin, end - begin};
        count++;
    }
    return count;
}

ig_status ig_eval_filler_open(ig_eval_filler **out, const char *name, const char *text, size_t n_text, ig_error *err) {
    ig_eval_filler *filler = *out = calloc(1, sizeof *filler);
    if (filler && !text) return IG_OK;
    if (filler) filler->text = malloc(n_text + 1);
    if (!filler || !filler->text)
        return ig_text_fail(err, IG_E_MEMORY, "%s: out of memory for %zu bytes", name, n_text);
    size_t n = collapse(filler->text, text, n_text);
    filler->n = split(NULL, filler->text, n);
    if (!filler->n) return ig_text_fail(err, IG_E_FORMAT, "%s: has no words", name);
    filler->sentences = calloc(filler->n, sizeof *filler->sentences);
    if (!filler->sentences)
        return ig_text_fail(err, IG_E_MEMORY, "%s: out of memory for %zu sentences", name, filler->n);
    split(filler->sentences, filler->text, n);
    return IG_OK;
}

void ig_eval_filler_close(ig_eval_filler *filler) {
    if (!filler) return;
    free(filler->sentences);
    free(filler->text);
    free(filler);
}

uint64_t ig_eval_filler_start(const ig_eval_filler *filler, ig_eval_random *r) {
    return filler->text ? ig_eval_random_below(r, filler->n) : ig_eval_random_next(r) >> 16;
}

void ig_eval_filler_put(FILE *f, const ig_eval_filler *filler, uint64_t start, uint64_t i) {
    if (!filler->text) {
        put_built_in(f, start + i);
        return;
    }
    const span *s = &filler->sentences[(start + i) % filler->n];
    fwrite(filler->text + s->begin, 1, s->n, f);
}
