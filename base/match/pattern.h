#ifndef DDP_BASE_MATCH_PATTERN_H
#define DDP_BASE_MATCH_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/* Regular expressions that search the lines of logs, with the syntax of Perl (PCRE2, pcre2pattern(3)), in UTF-8. Nodes do not
 * trust the users who write the expressions, and PCRE2 can take exponential time, so there are limits:
 * - An expression has at most PATTERN_BYTES bytes, and its compiled form at most 64 KiB (PCRE2's own limit).
 * - Only the first PATTERN_LINE_BYTES bytes of a line are searched. In a longer line `$` does not match there.
 * - The search of a line takes at most PATTERN_TIME_NS of the thread's CPU time and PATTERN_HEAP_KIB of memory. A line that
 *   needs more is an error, never "no match". PCRE2's own limit, PATTERN_STEPS, is not enough: it starts again at each place
 *   where a match may begin, and one step may read the whole line.
 *
 * Bytes that are not UTF-8 match nothing, but do not stop the search. */
#define PATTERN_BYTES 1000
#define PATTERN_LINE_BYTES (64 << 10)
#define PATTERN_STEPS 200000
#define PATTERN_TIME_NS 100000000
#define PATTERN_HEAP_KIB 4096

struct pattern;

/* INVALID_ARGUMENT: the message says what is wrong and at which character. The caller frees *out. */
MUST_CHECK enum err_code pattern_compile(const char *text, struct pattern **out, struct err *e);
void pattern_free(struct pattern *p); /* NULL is allowed */
/* Sets a limit below PATTERN_TIME_NS for the search of a line; it is at least a few microseconds. */
void pattern_limit_time(struct pattern *p, int64_t ns);

/* A line that is received in pieces. All zeros: an empty line. */
struct pattern_line {
    struct buf text; /* its first PATTERN_LINE_BYTES */
    bool cut;        /* the line is longer */
};

/* Adds the next bytes of the line, without a line end. */
void pattern_line_add(struct pattern_line *line, const char *data, size_t size);
/* Searches the line, which is complete, and sets *matched. RESOURCE_EXHAUSTED: the search took too much time or memory. */
MUST_CHECK enum err_code pattern_line_end(struct pattern *p, const struct pattern_line *line, bool *matched,
                                          struct err *e);
/* The named groups of an expression, "loss (?<loss>[0-9.]+)", in the order of their names. After a search that matched,
 * *found and *len say where in the line the group matched; *found is NULL if it took no part in the match. False: there is no
 * group `i`. */
bool pattern_group(const struct pattern *p, const struct pattern_line *line, size_t i, const char **name,
                   const char **found, size_t *len);
void pattern_line_clear(struct pattern_line *line); /* for the next line; keeps the memory */
void pattern_line_release(struct pattern_line *line);

#endif
