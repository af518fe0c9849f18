#ifndef DDP_CLIENT_SCREEN_SCREEN_FOLLOW_H
#define DDP_CLIENT_SCREEN_SCREEN_FOLLOW_H

#include "client/screen/screen_parts.h"

/* Prints a job as it runs (--follow): each state of the job goes in, lines about what is new come out. On a
 * terminal the progress line is redrawn in place. In a pipe every line is final, so progress lines are
 * limited to one in 2 s in the first minute, one in 10 s in the first hour, then one in a minute. No clock,
 * no output. */
struct follow_view {
    struct term term; /* the caller sets now_ms before each update */
    bool brief;       /* for `run`: only failures, no first line and no progress */
    bool
        own; /* of `run`, whose coordinator ends with it: no advice to ask that later, failures as if brief */
    bool streams; /* of a command, whose output is printed, too: failures as if brief */
    /* Before the update with the job's end, as for failed_ranks_find and failed_ranks_print; or NULL */
    const Ddp__V1__ProbeJobReply *probe;
    bool (*seen)(void *user, int rank);
    void *seen_by;
    bool tells_end; /* brief, but prints the last line of a train job that does not fail */
    /* private: what was printed so far */
    bool headed, drawn, ended, away, yielded, unsaved, waits_for_space;
    int64_t first_ms, starting_ms, last_line_ms, last_step, generation, failed_generation;
    int32_t failed_rank;
    char said[256]; /* the reason that was printed last while the job was queued */
};

void follow_view_init(struct follow_view *v, struct term term);
void follow_view_update(struct follow_view *v, const Ddp__V1__JobStatus *job, struct buf *out);
/* The coordinator does not answer; printed once until it does again. */
void follow_view_away(struct follow_view *v, struct buf *out);
/* The job's own output begins: erases the line that is redrawn. From here on all lines stay, and progress is not shown. */
void follow_view_yield(struct follow_view *v, struct buf *out);
/* Ends the line that is redrawn, so that other text can follow. */
void follow_view_break(struct follow_view *v, struct buf *out);

#endif
