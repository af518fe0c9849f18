#ifndef DDP_CLIENT_TOP_TOP_TERMINAL_H
#define DDP_CLIENT_TOP_TOP_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* The user's terminal as a screen that is drawn over: stdin passes each key, stdout shows the terminal's second screen. It gets its
 * modes, its cursor and its first screen back
 *   - in top_terminal_close,
 *   - before a signal ends the process (^C, TERM, HUP, QUIT, a crash), but not before SIGKILL,
 *   - before ^Z stops the process; `fg` takes it again.
 * One per process. */

bool top_terminal_possible(void); /* stdin and stdout are terminals that can do it */
bool top_terminal_open(void);     /* false: the terminal's modes cannot be changed */
void top_terminal_close(void);
/* Draws the screen: at most as many lines as the terminal has rows. */
void top_terminal_draw(const struct buf *lines);
/* Waits for keys, a new size of the terminal, or the process to be continued. Returns the number of bytes that were typed; -1: the
 * terminal is gone. */
long top_terminal_wait(int64_t wait_ms, char *bytes, size_t size);

#endif
