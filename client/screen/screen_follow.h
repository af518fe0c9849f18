#ifndef DDP_CLIENT_SCREEN_SCREEN_FOLLOW_H
#define DDP_CLIENT_SCREEN_SCREEN_FOLLOW_H

#include "client/screen/screen.h"

/* A job as it goes: fed with each state the coordinator tells, it says what is new. On a terminal the newest
 * line is redrawn in place; in a pipe a line is final, and progress lines come at a modest rate: every 2 s in
 * the first minute, every 10 s in the first hour, then every minute. */
struct follow_view {
    struct term term; /* now_ms is set anew before each update */
    bool brief;       /* `run`: no progress, no first line; only what went wrong */
    bool tells_end;   /* brief, yet a train job's end that is good is told: the loss, the last snapshot */
    /* what was said so far */
    bool headed, drawn, ended, away;
    int64_t first_ms, starting_ms, last_line_ms, last_step, generation, failed_generation;
    int32_t failed_rank;
    char said[256]; /* the last reason a queue gave */
};

void follow_view_init(struct follow_view *v, struct term term);
void follow_view_update(struct follow_view *v, const Ddp__V1__JobStatus *job, struct buf *out);
/* The coordinator does not answer (said once until it does again). */
void follow_view_away(struct follow_view *v, struct buf *out);
/* Leaves the redrawn line, so that other text can follow. */
void follow_view_break(struct follow_view *v, struct buf *out);

#endif
