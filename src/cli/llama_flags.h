/* SPDX-License-Identifier: Apache-2.0
 *
 * Flags of llama.cpp's programs, and vLLM's, that are no options of this one: users bring them along. What means the
 * same here is taken, what changes nothing here is passed over, and of the others the error says what to use instead.
 */
#ifndef IG_CLI_LLAMA_FLAGS_H
#define IG_CLI_LLAMA_FLAGS_H

#include "cli/cli.h"

typedef enum ig_cli_llama_value {
    IG_LLAMA_NONE,
    IG_LLAMA_VALUE,  /* the next argument, whatever it is */
    IG_LLAMA_SWITCH, /* the next argument if it is "on", "0" or the like */
} ig_cli_llama_value;

typedef struct ig_cli_llama_flag {
    const char *names; /* as in ig_cli_option */
    unsigned verbs;    /* 0: names is the program whose flags follow */
    ig_cli_llama_value value;
    const char *passed_over; /* with these values, blank-separated, nothing would differ; "*": with any and none */
    const char *means;       /* the option that it is here, or NULL */
    const char *instead;     /* ends the sentence "... is llama.cpp's: here ...", or another program's */
    size_t offset;           /* of the value in ig_cli_options: it depends on others whether it can be taken; 0: none */
} ig_cli_llama_flag;

extern const ig_cli_llama_flag ig_cli_llama_flags[]; /* ends with NULL names */

/* NULL: there is none. *owner becomes the program's name; may be NULL. */
const ig_cli_llama_flag *ig_cli_find_llama_flag(const char **owner, const char *name, size_t n_name, unsigned verbs);
/* Whether `text` can be the value of a switch. */
bool ig_cli_is_switch_value(const char *text);
/* Whether nothing would differ with this value, NULL being none. */
bool ig_cli_passes_over(const ig_cli_llama_flag *flag, const char *value);
/* Once all options are read: the flags whose values must agree with others. False after a usage error. */
bool ig_cli_settle_llama_flags(ig_cli_options *o);

#endif
