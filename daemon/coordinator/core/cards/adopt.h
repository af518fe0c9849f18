#ifndef DDP_DAEMON_COORDINATOR_CORE_CARDS_ADOPT_H
#define DDP_DAEMON_COORDINATOR_CORE_CARDS_ADOPT_H

#include "daemon/coordinator/core/model.h"

/* Restored records are brought up to date with the cards of the nodes; adopt.c describes how. */
enum err_code adopt_check(const struct core *core, const struct core_hello *hello, struct err *e);
void adopt_cards(struct core *core, const struct core_hello *hello);
/* Nodes know more than the records: starts the time of learning. numbered:
 * next_job is already above every job number that was ever assigned. */
void adopt_begin(struct core *core, int64_t seen_epoch, bool numbered);
void adopt_go_on(struct core *core); /* the coordinator restarted during the time of learning */
bool adopt_learning(const struct core *core);
void adopt_tick(struct core *core);

#endif
