#ifndef DDP_DAEMON_AGENT_LOGS_LOG_SEARCH_H
#define DDP_DAEMON_AGENT_LOGS_LOG_SEARCH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/match/pattern.h"
#include "daemon/agent/logs/log_dates.h"

/* Searches a log for the lines that match a pattern, for one reader. The file is read once, from the start. A line may have any
 * length. Only the part that the pattern searches is kept in memory (base/match/pattern.h). If the line matches, all of it
 * is read again.
 *
 * A line is searched when it is complete. The last line waits for its end as long as its writer runs. A hole in the file
 * (base/cut_file.h) ends a line.
 *
 * With `tail` the search first reads the whole log and keeps only the places of the last matching lines. Then it starts at
 * the first of these. */

#define LOG_SEARCH_TAIL 10000 /* the most lines of a tail: their places are kept in memory */

struct log_search {
    struct pattern *pattern; /* borrowed; other searches use it too, between the calls */
    struct pattern_line line;
    bool line_matches;                /* an earlier part of it was sent already */
    int64_t line_start;               /* in the file: of the line that is being searched */
    int64_t at;                       /* where to read next */
    int64_t pending_from, pending_to; /* the part of a matching line that must be read again */
    bool within;                      /* an earlier part of that line was taken before */
    /* the tail: places of lines are collected up to the offset `until` */
    bool collecting;
    int64_t until;
    int64_t *places; /* a ring of `most` */
    size_t most, found;
    /* matching text that was not taken yet */
    struct buf out;
    struct log_region {
        int64_t from, to;
    } * regions; /* its places in the file */
    size_t region_count, region_cap;
    struct err why; /* the search has failed and cannot go on; all zeros: it has not */
};

enum log_search_result {
    LOG_SEARCH_FULL,   /* `out` has the wanted number of bytes */
    LOG_SEARCH_PAUSED, /* the budget is used up */
    LOG_SEARCH_END,    /* the file has no more at present */
    LOG_SEARCH_FAILED, /* the error says why; `out` has what matched before */
};

/* Begins at `offset`. within: the offset lies in a line that is known to match. tail: 0, or up to LOG_SEARCH_TAIL lines. */
void log_search_begin(struct log_search *s, struct pattern *pattern, int64_t offset, bool within,
                      int64_t tail);
void log_search_move(struct log_search *s,
                     int64_t offset); /* begins there instead; only before the first search */
/* Adds matching lines to s->out, up to `wanted` bytes. *budget: the steps that are left, of some nanoseconds each. last: the
 * file does not grow any more, so its last line is complete. */
enum log_search_result log_search_run(struct log_search *s, int fd, const struct stat *st, bool last,
                                      size_t wanted, int64_t *budget, struct err *e);
/* Returns the offset at which another search would continue this one. *within as in log_search_begin. */
int64_t log_search_place(const struct log_search *s, bool *within);
/* Sets the runs of s->out, as log_runs_find does. */
void log_search_date(const struct log_search *s, struct log_runs *runs, int notes, int64_t *notes_at,
                     bool standard_error, const struct stat *st);
void log_search_clear(struct log_search *s); /* after s->out was taken */
void log_search_release(struct log_search *s);

#endif
