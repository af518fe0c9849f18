#ifndef DDP_CLIENT_TEXT_ALIKE_H
#define DDP_CLIENT_TEXT_ALIKE_H

#include <stdbool.h>
#include <stdint.h>

/* Whether lines of two ranks have the same meaning. */

/* The rank that wrote a line. */
struct line_owner {
    const char *node;
    int64_t rank, local_rank, pid;
};

/* True if the lines differ at most in
 * - the numbers of their owners: rank, local rank, pid, and the name of the node;
 * - addresses: 0x7f12, 10.0.0.1:29700, [10.0.0.1]:41234, port 41234, fd 7;
 * - times: 14:03:07.214, 2026-11-30, and durations with a unit (30 s, 600012 milliseconds);
 * - the number after a time of day, which in messages of C++ libraries is the thread's.
 * Other numbers must be equal, such as line numbers of source files, steps, indexes and exit codes. */
bool lines_are_alike(const struct line_owner *a, const char *x, const struct line_owner *b, const char *y);

#endif
