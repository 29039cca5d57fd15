/* SPDX-License-Identifier: Apache-2.0 */
/* A command that speaks to a mount never waits for ever for its daemon. See watch.c. */
#ifndef HC_TOOL_WATCH_H
#define HC_TOOL_WATCH_H

#include <limits.h>

#include "tool/tool.h"

#define HC_WATCH_WAIT_S 10u

typedef int (*hc_watch_command_t)(const struct hc_tool *tool, int argc, char **argv);

/* Runs a command in a child. Returns its exit status, or ends by the signal that ended it;
 * HC_TOOL_FAILED with a message when the daemon did not answer for wait_s. */
int hc_watch_run(unsigned wait_s, hc_watch_command_t run, const struct hc_tool *tool, int argc,
		 char **argv);
/* In the command: this is the mount that it is going to ask. Returns when the daemon has answered
 * once. Without hc_watch_run: does nothing. */
void hc_watch_mount(const char *mount);
/* In the command: whether it has put the terminal into another mode, which must be undone. */
void hc_watch_screen(bool on);

#endif
