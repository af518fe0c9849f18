#ifndef DDP_DAEMON_COORDINATOR_CORE_CARDS_CARD_MERGE_H
#define DDP_DAEMON_COORDINATOR_CORE_CARDS_CARD_MERGE_H

#include <stdbool.h>
#include <stdint.h>

#include "store/change.h"

/* Two records of one job become one: ours, and those of a card. `ours` may be empty (no job). The rules do
 * not depend on the order in which cards are merged. Times: wall ms. */

/* Whether the card has exactly one job, with all that belongs to it, and a job file that this version can
 * read. */
bool card_merge_is_sound(const struct records *card);
/* Whether both sides have formed a different generation with the same number: they cannot be merged. */
bool card_merge_has_forked(const struct records *ours, const struct records *card);
/* Fills `out` with copies, for records_release. */
void card_merge(struct records *out, const struct records *ours, const struct records *card, int64_t now_ms);

const struct spawn_record *card_merge_find_spawn(const struct records *r, int64_t spawn); /* or NULL */
/* Marks a spawn of the merged records as dead from an unknown cause, and its rank as lost. */
void card_merge_end_spawn(struct records *merged, struct spawn_record *s, int64_t now_ms);

#endif
