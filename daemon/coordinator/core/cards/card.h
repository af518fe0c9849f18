#ifndef DDP_DAEMON_COORDINATOR_CORE_CARDS_CARD_H
#define DDP_DAEMON_COORDINATOR_CORE_CARDS_CARD_H

#include "daemon/coordinator/core/model.h"

/* Copies of a job's records that nodes keep; card.c describes them. */

/* How far a job has come; g: its current generation, or NULL. */
int64_t card_stage(const struct job_record *job, const struct generation_record *g);
/* node: a name. A user may have said `forget`, so that the node itself is not known any more. */
int64_t card_progress(const struct job *job, const char *node);
void card_heads(struct core *core, struct node *node, const struct core_hello *hello);
/* Notes that this revision of the node's wish carries the cards that are due. */
void card_offer(struct core *core, struct node *node);
/* The node's facts have answered the wish of that revision. */
void card_kept(struct core *core, struct node *node, int64_t revision);
/* Retention removes the job: cards of it do not bring it back. */
void card_removed(struct core *core, int64_t job);
/* Sends the job's new card to the nodes that have an older one. */
void card_changed(struct core *core, const struct job *job);
/* whole: all records of the job, else those that a card holds. For records_release. */
void card_records(const struct job *job, bool whole, struct records *out);
int card_compare_spawns(const void *a, const void *b); /* struct spawn_record, for qsort: by number */
/* Whether our records have known a job of this number, and have removed it since. Numbers of the gap were
 * given out by records that are lost: a card may bring such a job back, but only once. */
bool card_number_is_known(const struct core *core, int64_t job);
/* Whether two progresses are of the same generation, and one counts more changes. */
bool card_changes_differ(int64_t a, int64_t b);
bool card_due(const struct core *core, const struct node *node, const struct node_card *card);

#endif
