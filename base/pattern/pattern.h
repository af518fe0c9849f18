#ifndef DDP_BASE_PATTERN_PATTERN_H
#define DDP_BASE_PATTERN_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* A POSIX extended regular expression that searches the lines of a log. It comes from a user whom a node does not
 * trust, so time and memory have limits, whatever the expression and the lines are:
 * - an expression has at most PATTERN_BYTES bytes, repetition counts up to PATTERN_REPEAT, and at most PATTERN_STATES states
 *   when its repetitions are written out. There are no back references.
 * - a search never goes back. It follows all states at once (Thompson 1968), and keeps the sets of states that it has met
 *   as states of a deterministic automaton; when there are too many of them it forgets them and goes on.
 * - a search takes a budget of steps and stops when it is used up, also in the middle of a line.
 * - a line is never held in memory: it may be of any length, and come in pieces.
 *
 * The C library's regcomp and regexec keep none of these promises.
 *
 * Characters are those of UTF-8. Bytes that are not UTF-8 match nothing but hold up nothing. Classes such as [:alpha:]
 * are those of ASCII, and ranges such as [a-z] go by code points, whatever the locale is. */
#define PATTERN_BYTES 1000
#define PATTERN_REPEAT 255 /* POSIX's RE_DUP_MAX */
#define PATTERN_STATES 10000

struct pattern;

/* INVALID_ARGUMENT: the message says what is wrong and where. The caller frees *out. */
MUST_CHECK enum err_code pattern_compile(const char *text, struct pattern **out, struct err *e);
void pattern_free(struct pattern *p); /* NULL is allowed */

/* Where the search of a line is. All zeros: at the line's start. One line is searched at a time with the same pattern;
 * another one may be searched meanwhile if pattern_line_save was called. */
struct pattern_line {
    bool begun, matched;
    uint16_t state;  /* of the pattern's automaton */
    uint16_t *saved; /* the set of states, while another line is searched */
    size_t count;
};

/* Goes on with the next bytes of the line, which has no line end. Returns how many were searched: all of them, or fewer
 * if *budget, the number of steps, is used up. line->matched: the line matches, whatever follows. A step takes some nanoseconds. */
size_t pattern_line_feed(struct pattern *p, struct pattern_line *line, const char *data, size_t size,
                         int64_t *budget);
/* The line ends here: returns whether it matches. */
bool pattern_line_end(struct pattern *p, struct pattern_line *line);
void pattern_line_save(const struct pattern *p, struct pattern_line *line);
void pattern_line_release(struct pattern_line *line); /* makes it all zeros */

#endif
