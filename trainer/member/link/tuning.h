#ifndef DDP_TRAINER_MEMBER_LINK_TUNING_H
#define DDP_TRAINER_MEMBER_LINK_TUNING_H

#include "trainer/member/link/link.h"

/* A job that is tuned while it runs: the coordinator's job file has a revision, which Join and Watch bring to rank 0. Watch
 * tells the coordinator which revision is in use. Both directions are levels: the newest revision replaces others. */

/* Whether another revision of the job file waits than the one in use. Any thread. */
bool link_tune_asked(const struct link *r);
/* Returns that revision's text, which the caller frees; NULL: none waits. */
char *link_take_tuning(struct link *r, int64_t *revision);
/* Rank 0 says that all ranks use this revision since this step; 0: since the generation began. */
void link_tuned(struct link *r, int64_t revision, int64_t step);
/* Waits until the coordinator knows the revision in use: a job that ends right after link_tuned would take the report with
 * it. Gives up after some seconds, since the coordinator may be away. The owner's thread. */
void link_await_told(struct link *r);

#endif
