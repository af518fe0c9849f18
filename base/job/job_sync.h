#ifndef DDP_BASE_JOB_JOB_SYNC_H
#define DDP_BASE_JOB_JOB_SYNC_H

#include "base/buf.h"
#include "base/job/job.h"

/* The map `sync` below `train`. */

/* Rounds are too long if their agreement (trainer/member/sync/sync.h) is below SYNC_LOW_AGREEMENT in SYNC_LOW_ROUNDS
 * rounds in a row. */
#define SYNC_LOW_AGREEMENT 0.1
#define SYNC_LOW_ROUNDS 5

/* The outer optimizer if the job file has none: measured by tests/bench/averaging (docs/explanation/averaging.md). */
#define SYNC_OUTER_LR 0.9
#define SYNC_OUTER_MOMENTUM 0.8

/* CONF_CUSTOM: the function of the key; at is the struct train_spec */
enum err_code job_sync_read(const struct conf_node *node, void *at, struct err *e);
/* The outer optimizer of a run of so many steps (0: unknown) whose job file has none: another one if rounds are few. */
void job_sync_suit_rounds(struct sync_spec *s, int64_t steps);
/* Calls job_sync_suit_rounds if the map `train` has no key of the outer optimizer. All of the map must have been read. */
void job_sync_choose_outer(struct train_spec *train, const struct conf_node *map);
/* Whether the job's key `reproducible` allows a strategy whose rounds do not depend on the clock. */
bool job_sync_is_allowed(const struct train_spec *train, enum sync_type type);
/* For reproducible: world: refuses strategies whose arithmetic depends on the number of ranks. */
MUST_CHECK enum err_code job_sync_check_world(const struct train_spec *train, const struct conf_node *place,
                                              struct err *e);
/* Whether ranks that keep in step by `from` can go on by `to` without a restart: both are one strategy, whose arrays are
 * the same. The ranges of `to` have been checked. FAILED_PRECONDITION names the key that cannot change. */
MUST_CHECK enum err_code job_sync_check_change(const struct sync_spec *from, const struct sync_spec *to,
                                               struct err *e);
/* Whether diloco with these values gives the plain mean of the ranks' parameters. */
bool job_sync_is_mean(const struct sync_spec *s);
/* For the key `reproducible`: refuses a choice, and rounds, that depend on the clock. */
MUST_CHECK enum err_code job_sync_check_clock(const struct train_spec *train, const struct conf_node *place,
                                              struct err *e);
/* Refuses a quorum that the job's ranks cannot have. train: the map; NULL in a command job. */
MUST_CHECK enum err_code job_sync_check_quorum(const struct job_spec *spec, const struct conf_node *train,
                                               struct err *e);
void job_sync_print(struct buf *out, const struct train_spec *train);

#endif
