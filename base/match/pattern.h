#ifndef DDP_BASE_MATCH_PATTERN_H
#define DDP_BASE_MATCH_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/* Regular expressions that search the lines of logs: Perl's, as PCRE2 reads them (pcre2pattern(3)), in UTF-8. An expression
 * comes from a user whom a node does not trust, and PCRE2 goes back and tries again, so there are limits:
 * - an expression has at most PATTERN_BYTES bytes, and its compiled form at most 64 KiB (PCRE2's own limit).
 * - a line is searched in its first PATTERN_LINE_BYTES bytes. Then `$` does not match, since the line goes on.
 * - the search of a line takes at most PATTERN_TIME_NS of the thread's time and PATTERN_HEAP_KIB of memory. PCRE2's own limit of
 *   steps is not enough: it counts anew at each place where a match may begin, and a step may go over the whole line. From each such
 *   place PATTERN_STEPS are allowed. A line that needs more is an error, never silently "no match".
 *
 * Bytes that are not UTF-8 match nothing, but do not stop the search. */
#define PATTERN_BYTES 1000
#define PATTERN_LINE_BYTES (64 << 10)
#define PATTERN_STEPS 200000
#define PATTERN_TIME_NS 100000000
#define PATTERN_HEAP_KIB 4096

struct pattern;

/* INVALID_ARGUMENT: the message says what is wrong and where. The caller frees *out. */
MUST_CHECK enum err_code pattern_compile(const char *text, struct pattern **out, struct err *e);
void pattern_free(struct pattern *p); /* NULL is allowed */
/* Makes the limit of a line's search smaller than PATTERN_TIME_NS; it stays at least a few microseconds. */
void pattern_limit_time(struct pattern *p, int64_t ns);

/* A line that comes in pieces. All zeros: its start. */
struct pattern_line {
    struct buf text; /* its first PATTERN_LINE_BYTES */
    bool cut;        /* it is longer */
};

/* Adds the next bytes of the line, which has no line end. */
void pattern_line_add(struct pattern_line *line, const char *data, size_t size);
/* The line ends here: sets *matched. RESOURCE_EXHAUSTED: the search took too many steps or too much memory. */
MUST_CHECK enum err_code pattern_line_end(struct pattern *p, const struct pattern_line *line, bool *matched,
                                          struct err *e);
void pattern_line_clear(struct pattern_line *line); /* the next line begins; memory is kept */
void pattern_line_release(struct pattern_line *line);

#endif
