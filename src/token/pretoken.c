/* SPDX-License-Identifier: Apache-2.0
 *
 * Pre-tokenisers on PCRE2. The expressions are the models' own and come partly from files. The known ones are linear:
 * they only go back within one run of blanks, once. Of all others the work is counted: PCRE2 calls back before every
 * item of the expression that it tries, and how far the match has moved on since then is what the item has cost. Its
 * own match limit counts otherwise with and without its compiler, and not what one item reads.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "token/pretoken.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

#define CONTRACTIONS "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
#define TAIL " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define MELLUM2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)"
#define GPT2 MELLUM2 "|\\s+"
#define LLAMA3 CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|" TAIL
#define QWEN2 CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|" TAIL
#define QWEN35                                                                            \
    CONTRACTIONS                                                                          \
    "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" \
    "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define SEED_CODER \
    CONTRACTIONS   \
    "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define DEEPSEEK3                                                                                        \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|" \
    " ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define SPARK                                                                                            \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|" \
    " ?[\\p{P}\\p{S}]+|[\\r\\n]|\\s+(?!\\S)|\\s+"
/* Groups of three digits from the end of a number, so that the first one may have fewer. */
#define DIGITS_FROM_END "(?<!\\p{N})\\p{N}{1,2}(?=(?:\\p{N}{3})*+(?!\\p{N}))|\\p{N}{3}"
/* The same of numbers behind which no letter stands, "\\d{1,3}(?=(?:\\d{3})*\\b)": others are left whole. */
#define DIGITS_OF_WORDS "(?<!\\d)\\d++\\B(*SKIP)(*F)|(?<!\\d)\\d{1,3}(?=(?:\\d{3})*+\\b)|\\d{3}"
#define ASIAN                                                                       \
    "[\\x{4e00}-\\x{9fff}\\x{3400}-\\x{4dbf}\\x{8c48}-\\x{faff}\\x{3040}-\\x{309f}" \
    "\\x{30a0}-\\x{30ff}\\x{ff65}-\\x{ff9f}\\x{2f00}-\\x{2fdf}\\x{e40}-\\x{e7f}"    \
    "\\x{e80}-\\x{eff}\\x{1780}-\\x{17ff}\\x{1000}-\\x{109f}\\x{aa60}-\\x{aa7f}"    \
    "\\x{a9e0}-\\x{a9ff}\\x{ac00}-\\x{d7af}\\x{1100}-\\x{11ff}]+"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define FOLDED "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
/* As it stands in a tokenizer.json, so that it is known there, too. */
#define GPT4O                                                                                                 \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" FOLDED "?|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" FOLDED \
    "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define GPT4O_BY_DIGITS                                                                                       \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" FOLDED "?|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" FOLDED \
    "?|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define TEKKEN                                                                          \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER \
    "*|\\p{N}|"                                                                         \
    " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

#define BAILING                                                                                                 \
    "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|" \
    "\\s+(?!\\S)|\\s+"
/* Words of K-EXAONE go on behind single blanks; nothing of them is ever given back. */
#define PHRASES                                                                                                \
    FOLDED                                                                                                     \
    "|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*+(?: \\p{L}\\p{M}*+)*+)++|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|" \
    "\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"
/* UPPER and LOWER without Chinese characters, as what is neither these nor anything else. */
#define UPPER_BUT_HAN "[^\\p{sc:Han}\\p{Ll}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}]"
#define LOWER_BUT_HAN "[^\\p{sc:Han}\\p{Lu}\\p{Lt}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}]"
#define KIMI                                                                         \
    "\\p{sc:Han}+|[^\\r\\n\\p{L}\\p{N}]?" UPPER_BUT_HAN "*" LOWER_BUT_HAN "+" FOLDED \
    "?|[^\\r\\n\\p{L}\\p{N}]?" UPPER_BUT_HAN "+" LOWER_BUT_HAN "*" FOLDED            \
    "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* Letters of bicameral alphabets, as the tokenizers of DeepSeek list them, and Chinese, Japanese and Korean. */
#define CASED                                                                                     \
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-Ֆ"    \
    "Ⴀ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗ" \
    "ὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇ"    \
    "ℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲ"  \
    "ⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓" \
    "𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
#define EAST_ASIAN "[一-龥ࠀ-一가-퟿]+"

const char ig_pretoken_gpt2[] = GPT2;

enum { IGNORE_MERGES = 1, ADD_BOS = 2 };
enum { STEPS_MAX = 6 }; /* of those that are known */

/* Names of GGUF's tokenizer.ggml.pre. */
static const struct known {
    const char *names; /* separated by blanks */
    int flags;
    const char *steps[STEPS_MAX];
} known[] = {
    {"gpt-2 phi-2 jina-es jina-de jina-v2-es jina-v2-de gigachat mpt olmo jais exaone4 trillion "
     "modern-bert "
     "mellum a.x-4.0 granite-docling",
     0,
     {GPT2}},
    {"smollm starcoder refact command-r codeshell exaone minerva-7b", 0, {"\\p{N}", GPT2}},
    {"mellum2", 0, {"\\p{N}", MELLUM2}},
    {"llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2", IGNORE_MERGES | ADD_BOS, {LLAMA3}},
    {"dbrx smaug-bpe chatglm-bpe", 0, {LLAMA3}},
    {"glm4 glm5", IGNORE_MERGES, {LLAMA3}},
    {"minicpm5", IGNORE_MERGES, {"\\p{N}{1,3}", LLAMA3}},
    {"qwen2 stablelm2 hunyuan megrez deepseek-r1-qwen solar-open grok-2", 0, {QWEN2}},
    {"qwen35", 0, {QWEN35}},
    {"deepseek-coder", 0, {"[\r\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", EAST_ASIAN, "\\p{N}"}},
    {"deepseek-llm",
     0,
     {"[\r\n]", "\\s?[" CASED "]+", "\\s?[!-/:-~！-／：-～‘-‟　-。]+", "\\s+$", EAST_ASIAN, "\\p{N}+"}},
    {"afmoe", 0, {DIGITS_FROM_END, ASIAN, DEEPSEEK3}},
    {"deepseek-v3 hunyuan-dense joyai-llm hy_v4", 0, {"\\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK3}},
    {"spark2_5", 0, {"\\p{N}", "[一-龥぀-ゟ゠-ヿ]+", SPARK}},
    {"laguna", 0, {"[^\\n]+|\\n+", QWEN2}},
    {"seed-coder", 0, {SEED_CODER}},
    {"bailingmoe bailingmoe2 llada-moe", 0, {BAILING}},
    {"exaone-moe", 0, {PHRASES}},
    {"kimi-k2", 0, {KIMI}},
    {"gpt-4o llama4 kanana2 talkie minimax-m2", 0, {GPT4O}},
    {"youtu",
     IGNORE_MERGES,
     {"[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+",
      GPT4O_BY_DIGITS}},
    {"tiny_aya cohere2moe", 0, {DIGITS_OF_WORDS, GPT4O}},
    {"tekken", IGNORE_MERGES | ADD_BOS, {TEKKEN}},
    {"falcon", 0, {"[\\p{P}\\$\\+<=>\\^~\\|`]+", GPT2, "[0-9][0-9][0-9]"}},
    {"default", 0, {"[\\p{P}\\$\\+<=>\\^~\\|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}},
};

static bool is_known(ig_text expression) {
    for (size_t i = 0; i < IG_COUNT(known); i++)
        for (int k = 0; k < STEPS_MAX && known[i].steps[k]; k++)
            if (ig_text_is(expression, known[i].steps[k])) return true;
    return false;
}

/* The largest number in braces that are no argument of an escape such as \p{L}: how often one item must repeat. */
static uint64_t largest_repeat(ig_text e) {
    uint64_t largest = 1, n = 0;
    for (size_t i = 0; i < e.size; i++) {
        char c = e.data[i];
        bool is_digit = c >= '0' && c <= '9';
        n = is_digit && n < UINT16_MAX ? 10 * n + (uint64_t)(c - '0') : 0;
        if (n > largest) largest = n;
        if (c != '\\' || ++i == e.size) continue;
        /* What stands behind \x and the like is no number of repeats. */
        if (strchr("NPgkopux", e.data[i]) && i + 1 < e.size && e.data[i + 1] == '{')
            while (i + 1 < e.size && e.data[i] != '}') i++;
    }
    return largest;
}

/* What one item of an expression costs at a place where it does not move on: at most as many characters as it must have
 * or look back on, each compared with what may be a class as long as the expression. */
static uint32_t weigh(const pcre2_code *re, ig_text expression) {
    uint32_t behind = 0;
    pcre2_pattern_info(re, PCRE2_INFO_MAXLOOKBEHIND, &behind);
    return (uint32_t)(1 + (largest_repeat(expression) + behind) * expression.size / 1024);
}

static ig_status compile(pcre2_code **out, ig_text expression, uint32_t options, const char *where, ig_error *err) {
    int code;
    size_t at;
    uint32_t back_references = 0;
    pcre2_compile_context *lines = pcre2_compile_context_create(NULL);
    if (!lines) return ig_fail_memory(err, where, expression.size);
    pcre2_set_newline(lines, PCRE2_NEWLINE_LF);
    *out = pcre2_compile((PCRE2_SPTR)expression.data, expression.size, options, &code, &at, lines);
    pcre2_compile_context_free(lines);
    if (!*out) {
        PCRE2_UCHAR why[160] = "";
        if (code == PCRE2_ERROR_HEAP_FAILED) return ig_fail_memory(err, where, expression.size);
        pcre2_get_error_message(code, why, sizeof why);
        return ig_fail(err, IG_E_FORMAT, "%s: regular expression, at byte %zu: %s", where, at, (const char *)why);
    }
    pcre2_pattern_info(*out, PCRE2_INFO_BACKREFMAX, &back_references);
    if (back_references) {
        pcre2_code_free(*out);
        return ig_fail(err, IG_E_UNSUPPORTED, "%s: regular expression: back references are not supported", where);
    }
    pcre2_jit_compile(*out, PCRE2_JIT_COMPLETE); /* without it matching is slower, and the same */
    return IG_OK;
}

ig_status ig_pretoken_add(ig_pretoken *p, ig_text expression, bool literal, const char *where, ig_error *err) {
    if (p->n_steps == IG_PRETOKEN_STEPS_MAX)
        return ig_fail(err, IG_E_LIMIT, "%s: more than %d expressions", where, IG_PRETOKEN_STEPS_MAX);
    if (expression.size > IG_PRETOKEN_BYTES_MAX - p->n_bytes)
        return ig_fail(err, IG_E_LIMIT, "%s: more than %d bytes of expressions", where, IG_PRETOKEN_BYTES_MAX);
    ig_pretoken_step step = {.keep_match = true, .keep_gap = true};
    bool counted = literal || !is_known(expression);
    uint32_t options = PCRE2_UTF | (literal ? PCRE2_LITERAL : PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C) |
                       (counted ? PCRE2_AUTO_CALLOUT | PCRE2_NO_START_OPTIMIZE : 0);
    pcre2_code *re;
    ig_status s = compile(&re, expression, options, where, err);
    if (s) return s;
    step.code = re;
    step.weight = counted ? weigh(re, expression) : 0;
    size_t n_where = strlen(where) + 1;
    step.where = malloc(n_where);
    if (!step.where) {
        pcre2_code_free(re);
        return ig_fail_memory(err, where, n_where);
    }
    memcpy(step.where, where, n_where);
    p->steps[p->n_steps++] = step;
    p->n_bytes += expression.size;
    return IG_OK;
}

static bool has_name(const char *names, ig_text name) {
    for (const char *at = names; at; at = strchr(at, ' ')) {
        at += *at == ' ';
        size_t n = strcspn(at, " ");
        if (n == name.size && memcmp(at, name.data, n) == 0) return true;
    }
    return false;
}

ig_status ig_pretoken_named(ig_pretoken *p, ig_text name, bool *ignore_merges, bool *add_bos, const char *where,
                            ig_error *err) {
    for (size_t i = 0; i < IG_COUNT(known); i++) {
        if (!has_name(known[i].names, name)) continue;
        *ignore_merges = (known[i].flags & IGNORE_MERGES) != 0;
        *add_bos = (known[i].flags & ADD_BOS) != 0;
        for (int k = 0; k < STEPS_MAX && known[i].steps[k]; k++) {
            ig_text expression = {known[i].steps[k], strlen(known[i].steps[k])};
            ig_status s = ig_pretoken_add(p, expression, false, where, err);
            if (s) return s;
        }
        return IG_OK;
    }
    return ig_fail(err, IG_E_UNSUPPORTED, "%s: unknown pre-tokeniser '%.*s'", where, IG_SHOW(name));
}

void ig_pretoken_close(ig_pretoken *p) {
    for (int i = 0; i < p->n_steps; i++) {
        pcre2_code_free(p->steps[i].code);
        free(p->steps[i].where);
    }
    *p = (ig_pretoken){0};
}

typedef struct splitter { /* one ig_pretoken_run() */
    const ig_pretoken *p;
    const char *text;
    pcre2_match_data *data[IG_PRETOKEN_STEPS_MAX]; /* one per step: the steps' matches are interleaved */
    pcre2_match_context *context;
    ig_pretoken_sink *sink;
    uint32_t weight; /* of the step that is being matched */
    size_t seen;     /* where its match was at the last call back */
    ig_error *err;
} splitter;

static int count_work(pcre2_callout_block *block, void *user) {
    splitter *s = user;
    size_t at = block->current_position;
    s->sink->work += s->weight * (uint64_t)(1 + (at > s->seen ? at - s->seen : 0));
    s->seen = at;
    return s->sink->work > s->sink->allowed ? PCRE2_ERROR_CALLOUT : 0;
}

static ig_status fail_match(const splitter *s, int rc, int i_step, size_t at) {
    PCRE2_UCHAR why[160] = "its expression is not made for such a text";
    if (rc != PCRE2_ERROR_CALLOUT) pcre2_get_error_message(rc, why, sizeof why);
    return ig_fail(s->err, rc == PCRE2_ERROR_NOMEMORY ? IG_E_MEMORY : IG_E_LIMIT,
                   "%s: expression %d: splitting the text at byte %zu takes too much work: %s",
                   s->p->steps[i_step].where, i_step + 1, at, (const char *)why);
}

/* The next match of a step in text[at..end) from `from`; start = stop = end if there is none. */
static ig_status next_match(splitter *s, int i_step, size_t at, size_t end, size_t from, size_t *start, size_t *stop) {
    const ig_pretoken_step *step = &s->p->steps[i_step];
    PCRE2_SPTR piece = (PCRE2_SPTR)s->text + at;
    s->weight = step->weight;
    s->seen = from - at;
    uint64_t work = s->sink->work;
    int rc = pcre2_match(step->code, piece, end - at, from - at, PCRE2_NO_UTF_CHECK, s->data[i_step], s->context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
        s->sink->work = work; /* counted as on machines without the compiler */
        s->seen = from - at;
        rc = pcre2_match(step->code, piece, end - at, from - at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, s->data[i_step],
                         s->context);
    }
    if (rc == PCRE2_ERROR_NOMATCH) {
        *start = *stop = end;
        return IG_OK;
    }
    if (rc < 0) return fail_match(s, rc, i_step, from);
    const size_t *range = pcre2_get_ovector_pointer(s->data[i_step]);
    *start = at + range[0];
    *stop = at + range[1];
    if (*start < from || *stop < *start)
        return ig_fail(s->err, IG_E_UNSUPPORTED, "%s: expression %d matches backwards", step->where, i_step + 1);
    return IG_OK;
}

/* Splits text[at..end) by the steps from i_step on. Recursion is as deep as there are steps. */
static ig_status split(splitter *s, int i_step, size_t at, size_t end) {
    if (at == end) return IG_OK;
    if (i_step == s->p->n_steps) return s->sink->word(s->sink->user, at, end - at, s->err);
    const ig_pretoken_step *step = &s->p->steps[i_step];
    ig_status status;
    size_t done = at, from = at, start = end, stop = end;
    while (from < end) {
        status = next_match(s, i_step, at, end, from, &start, &stop);
        if (!status && step->keep_gap) status = split(s, i_step + 1, done, start);
        if (!status && step->keep_match) status = split(s, i_step + 1, start, stop);
        if (status) return status;
        done = from = stop;
        if (start == stop && from < end) /* an empty match splits; the search goes on behind the next character */
            do from++;
            while (from < end && (s->text[from] & 0xc0) == 0x80);
    }
    return step->keep_gap ? split(s, i_step + 1, done, end) : IG_OK;
}

ig_status ig_pretoken_run(const ig_pretoken *p, ig_pretoken_sink *sink, const char *text, size_t n, ig_error *err) {
    splitter s = {.p = p, .text = text, .sink = sink, .err = err};
    ig_status status = IG_OK;
    s.context = pcre2_match_context_create(NULL);
    bool ok = s.context != NULL;
    for (int i = 0; i < p->n_steps && ok; i++) ok = (s.data[i] = pcre2_match_data_create(1, NULL)) != NULL;
    if (!ok) {
        status = ig_fail_memory(err, "splitting text", sizeof s);
    } else {
        if (!sink->allowed) sink->allowed = IG_PRETOKEN_WORK_FREE;
        sink->allowed += IG_PRETOKEN_WORK_PER_BYTE * (uint64_t)n;
        pcre2_set_match_limit(s.context, UINT32_MAX); /* the work is counted instead */
        pcre2_set_heap_limit(s.context, 256 * 1024);  /* KiB */
        pcre2_set_callout(s.context, count_work, &s);
        status = split(&s, 0, 0, n);
    }
    for (int i = 0; i < p->n_steps; i++) pcre2_match_data_free(s.data[i]);
    pcre2_match_context_free(s.context);
    return status;
}
