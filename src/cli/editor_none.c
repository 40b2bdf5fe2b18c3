/* SPDX-License-Identifier: Apache-2.0
 *
 * In the place of editor.c where the program is built without libedit: lines come as the terminal gives them.
 */
#include "cli/line.h"

ig_cli_editor *ig_cli_editor_open(void) { return NULL; }

void ig_cli_editor_close(ig_cli_editor *e) { (void)e; }

ig_cli_read ig_cli_editor_line(ig_cli_editor *e, const char *prompt, const char **line, size_t *n) {
    (void)e;
    (void)prompt;
    *line = "";
    *n = 0;
    return IG_READ_END;
}

void ig_cli_editor_keep(ig_cli_editor *e, const char *line, bool goes_on) {
    (void)e;
    (void)line;
    (void)goes_on;
}

void ig_cli_editor_save(ig_cli_editor *e) { (void)e; }
