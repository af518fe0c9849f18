#ifndef DDP_DAEMON_AGENT_LOGS_LOG_SEARCH_H
#define DDP_DAEMON_AGENT_LOGS_LOG_SEARCH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/match/pattern.h"
#include "daemon/agent/logs/log_dates.h"

/* Searches a log for the lines that match a pattern, for one reader. The file is read once from the start on. A line may have
 * any length: what the pattern searches of it is held in memory (base/match/pattern.h), and all of it is read again if it matches.
 *
 * A line counts when it has ended: while its writer goes on, the last line waits for its end. A hole in the file
 * (base/cut_file.h) ends a line.
 *
 * With `tail` the search first goes over the whole log and keeps only the places of the last matching lines; then it starts
 * at the first of these. */

#define LOG_SEARCH_TAIL 10000 /* the most lines of a tail: their places are held in memory */

struct log_search {
    struct pattern *pattern; /* borrowed; other searches use it between the calls */
    struct pattern_line line;
    bool line_matches;                /* an earlier part of it was sent already */
    int64_t line_start;               /* in the file: of the line that is being searched */
    int64_t at;                       /* where to read next */
    int64_t pending_from, pending_to; /* part of a line that matches, which is to be read again */
    bool within;                      /* a part of that line was taken before */
    /* the tail: until `until` was searched, the places of lines are collected */
    bool collecting;
    int64_t until;
    int64_t *places; /* a ring of `most` */
    size_t most, found;
    /* what has matched and was not taken yet */
    struct buf out;
    struct log_region {
        int64_t from, to;
    } * regions; /* its places in the file */
    size_t region_count, region_cap;
    struct err why; /* the search has failed and cannot go on; all zeros: it has not */
};

enum log_search_result {
    LOG_SEARCH_FULL,   /* `out` has as many bytes as were wanted */
    LOG_SEARCH_PAUSED, /* the budget is used up */
    LOG_SEARCH_END,    /* the file has no more at present */
    LOG_SEARCH_FAILED, /* the error says why; `out` has what matched before */
};

/* Begins at `offset`. within: there a line goes on of which an earlier part matched. tail: 0, or up to LOG_SEARCH_TAIL. */
void log_search_begin(struct log_search *s, struct pattern *pattern, int64_t offset, bool within,
                      int64_t tail);
void log_search_move(struct log_search *s,
                     int64_t offset); /* begins there instead; nothing was searched yet */
/* Adds what matches to s->out, up to `wanted` bytes. *budget: the steps that are left, of some nanoseconds each. last: the file does not grow any more, so its last line has ended. */
enum log_search_result log_search_run(struct log_search *s, int fd, const struct stat *st, bool last,
                                      size_t wanted, int64_t *budget, struct err *e);
/* Where another search would have to begin to find what this one has not added to `out`; *within as above. */
int64_t log_search_place(const struct log_search *s, bool *within);
/* Sets the runs of s->out, as log_runs_find does. */
void log_search_date(const struct log_search *s, struct log_runs *runs, int notes, int64_t *notes_at,
                     bool standard_error, const struct stat *st);
void log_search_clear(struct log_search *s); /* s->out was taken */
void log_search_release(struct log_search *s);

#endif
