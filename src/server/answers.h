/* SPDX-License-Identifier: Apache-2.0
 *
 * What answers of a chat are made of: thoughts, text, and calls of tools.
 *
 * Thoughts are what reasoning models write before they answer. Tools are functions of the client's that a model may
 * call. The model reads of them in its prompt and writes calls into its answers, each model in a form of its own, which
 * its chat template shows. A model whose template knows no tools is told in words, and writes calls as Hermes and Qwen
 * do.
 */
#ifndef IG_SERVER_ANSWERS_H
#define IG_SERVER_ANSWERS_H

#include "server/exchange.h"

enum {
    IG_TOOL_MARK_BYTES = 256,
    IG_TOOL_NAME_BYTES = 128, /* of a name at most */
    IG_TOOL_ID_BYTES = 9,     /* of an id of ours: Mistral's templates take no other number */
    IG_MARK_TOKENS_MAX = 2 * IG_TOOL_MARK_BYTES,
    IG_TOOL_ID_MARK = '\1' /* stands in marks for an id of letters and digits */
};

/* ---- how a model writes calls (tool_format.c) ------------------------------------------ */

/* BEGIN CALL (BETWEEN CALL)* END, where a CALL is BEFORE, the name, MIDDLE, arguments, AFTER. Most are empty. Arguments
 * are an object of JSON; or one whose names are bare and whose texts stand between two QUOTEs, if there is one (Gemma
 * 4); or each is KEY, its name, VALUE, a text or other JSON, VALUE_END (Qwen3-Coder, GLM 4.5). */
struct ig_tool_format {
    bool is_native;                           /* as the model's template has it */
    bool is_bare;                             /* an answer is a call if it is a JSON object with a name and arguments */
    bool has_pairs;                           /* arguments are no object */
    bool has_lists;                           /* several calls in an answer */
    bool has_channels;                        /* a call is a message, which has no marks here */
    bool has_recipients;                      /* or one to the function, with marks in its body */
    bool has_controls;                        /* control tokens are among the marks */
    bool takes_tools;                         /* the template has a place for them */
    bool takes_system;                        /* and messages of the system */
    bool needs_description, needs_parameters; /* the template fails where a tool has none */
    /* What the template takes of messages with calls: no content rather than an empty one, arguments as text, what the
     * calls have returned ("tool_responses"); a text beside them is left out, which it would show behind that. */
    bool wants_null, wants_text, takes_results, drops_text;
    char begin[IG_TOOL_MARK_BYTES], before[IG_TOOL_MARK_BYTES], middle[IG_TOOL_MARK_BYTES], after[IG_TOOL_MARK_BYTES],
        between[IG_TOOL_MARK_BYTES], end[IG_TOOL_MARK_BYTES], quote[IG_TOOL_MARK_BYTES], key[IG_TOOL_MARK_BYTES],
        value[IG_TOOL_MARK_BYTES], value_end[IG_TOOL_MARK_BYTES];
};

/* Muse Glimmer's, behind a head that has the name, too. */
extern const ig_tool_format ig_tool_to_recipients;
/* Tries the model's template with calls, unless these are messages (channels; else NULL). IG_E_MEMORY. */
ig_status ig_tool_format_find(ig_tool_format *f, const ig_model *model, const ig_channel_form *channels, ig_error *err);

/* The tokens of a mark; 0: it is too long. */
size_t ig_mark_tokens(int32_t ids[IG_MARK_TOKENS_MAX], const ig_model *model, const char *mark);
/* Bytes of a mark that no text before it has where answers are bound to have it: up to where it begins again like this,
 * has a blank, or a word in <> ends. */
size_t ig_mark_word(const char *mark);
/* What an answer's first call begins with, up to its name. */
void ig_tool_first_mark(char mark[2 * IG_TOOL_MARK_BYTES], const ig_tool_format *f);
/* Whether control tokens, which have no text, are among those of a mark. */
bool ig_mark_has_controls(const ig_model *model, const char *mark);

/* ---- thoughts (thoughts.c) ------------------------------------------------------------------ */

struct ig_thought_marks {
    const char *begin, *end;
    const ig_channel_form *channels; /* these are of messages, as which calls and texts are written, too; or NULL */
};

/* Those that a chat template has; NULL: none that is known. */
const ig_thought_marks *ig_thought_marks_find(const char *chat_template);
/* Where an answer begins, after a prompt. Of one with channels this is what it is within, if anything. */
ig_thought_stage ig_thoughts_after(const ig_thought_marks *marks, const char *prompt, size_t n);
/* The same after a message that an answer goes on with. */
ig_thought_stage ig_thoughts_within(const ig_thought_marks *marks, const char *text);

/* ---- parts of an answer ------------------------------------------------------------------------ */

typedef enum ig_part_kind {
    IG_PART_WAIT, /* what comes next is not known yet; or, at the end, there is nothing more */
    IG_PART_THOUGHT,
    IG_PART_TEXT,
    IG_PART_CALL,
    IG_PART_ARGUMENTS /* more of the arguments of the last call */
} ig_part_kind;

typedef struct ig_part {
    ig_part_kind kind;
    size_t at, n; /* thoughts, text and arguments: these bytes of the answer */
    json_t *call; /* "id", "type", "function" with "name" and "arguments", as far as they are there; the caller's. NULL:
                     no memory */
} ig_part;

/* A call as replies have it, with an id of its own. NULL: no memory. (tool_calls.c) */
json_t *ig_tool_call_json(const char *name, size_t n_name, const char *arguments, size_t n_arguments);
/* The next part of an answer of which n bytes are there; is_whole: and no more will come. Blanks around thoughts,
 * before a call and behind the last belong to no part. (thoughts.c) */
ig_part ig_part_next(ig_part_reader *r, const ig_exchange *x, const char *text, size_t n, bool is_whole);
/* Bytes of it that parts were told of. */
size_t ig_part_told(const ig_part_reader *r);
/* The same without thoughts. A call without marks is one only of `tools` (NULL: any). (tool_calls.c) */
ig_part ig_tool_next(ig_tool_reader *r, const ig_tool_format *f, const json_t *tools, const char *text, size_t n,
                     bool is_whole);

/* ---- what a request says of tools (tool_ask.c) ----------------------------------------------- */

/* "tools", "tool_choice" and "parallel_tool_calls" of a body; false: refused, and there is nothing to close. */
bool ig_tools_read(ig_call *c, const json_t *body, ig_tools *out);
void ig_tools_close(ig_tools *tools);
/* The tool of this name among the first `n` of a checked list; NULL: there is none. */
const json_t *ig_tool_find(const json_t *list, const char *name, size_t n);
/* Whether this is a name for a function. */
bool ig_tool_is_name(const char *name, size_t n);

/* ---- arguments with quotes (tool_quotes.c) ------------------------------------------------------ */

/* The JSON of such an object, which begins at `text`; *n_read: its bytes. Of one that is cut off (*is_whole) what is
 * there. The caller's; NULL: it is none, or there is no memory. */
char *ig_tool_quoted_json(const char *text, size_t n, const char *quote, size_t *n_read, bool *is_whole);

/* ---- values of arguments that are no object (tool_value.c) ------------------------------------- */

/* What a schema of a function refers to, itself if to none; NULL: nothing. */
const json_t *ig_tool_schema(const json_t *function, const json_t *schema);
/* The schema of a function's argument of this name, behind a reference to another; NULL: there is none. */
const json_t *ig_tool_parameter(const json_t *function, const char *name);

typedef enum ig_tool_value {
    IG_TOOL_TEXT_VALUE, /* as it stands, without quotes */
    IG_TOOL_JSON_VALUE,
    IG_TOOL_ANY_VALUE /* JSON if it is that, no text, and of a type that is stated; else a text */
} ig_tool_value;
/* How one is written where arguments are no object. */
ig_tool_value ig_tool_value_of(const json_t *parameter);
/* Whether a value is of a type that is stated, or none is. */
bool ig_tool_takes(const json_t *parameter, const json_t *value);
/* Whether a value is valid under a schema of a function, but for patterns, formats and what is put together by allOf,
 * not and if. */
bool ig_tool_fits(const json_t *function, const json_t *schema, const json_t *value);

/* ---- the form of answers (answer_grammar.c) ------------------------------------------------------ */

/* Puts in the place of x->grammar one that also has the thoughts before it, and calls that may or must be made. False:
 * refused. */
bool ig_exchange_constrain(ig_exchange *x);

#endif
