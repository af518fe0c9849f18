#ifndef DDP_TESTS_UNIT_COORDINATOR_CORE_SNAPSHOTS_PARTS_FIXTURE_H
#define DDP_TESTS_UNIT_COORDINATOR_CORE_SNAPSHOTS_PARTS_FIXTURE_H

#include "tests/unit/coordinator/core/core_fixture.h"

/* Jobs with two ranks, on box1 and box2, whose snapshots have parts. Each node has its own directory, and its own part of each
 * snapshot. keys: further lines of the job file. */

#define SNAPSHOTS "  snapshot: {dir: /out, every: 10}\n"

/* Both ranks have committed steps 10 and 20. There is no other node; keys has `nodes`. */
int64_t parts_job_of_two(struct core_fixture *f, const char *keys);
/* The same, and box3 is free. */
int64_t parts_job_beside_box3(struct core_fixture *f, const char *keys);
/* A job that continues from the snapshots of another cluster, and has none of its own. box3 is free. */
int64_t parts_job_that_continues(struct core_fixture *f, const char *keys);

/* elsewhere: the nodes whose parts the rank does not see. */
struct core_offer parts_offer(int64_t job, int64_t step, char *const *elsewhere);
/* Each part holds moments that no other part has. */
struct core_offer parts_offer_divided(int64_t job, int64_t step, char *const *elsewhere);
/* Another cluster has written the directories of box1 and box2. This coordinator has no record of it. */
struct core_offer parts_offer_foreign(int64_t step, char *const *elsewhere);
extern char *const parts_on_box1[], *const parts_on_box2[];
/* Why box2 cannot use its part of step 20. */
extern char *const parts_gone[];

/* All nodes end and start what they are told to. */
void parts_all_obey(struct core_fixture *f);
/* The job's first rank was killed; its nodes start its processes again. */
void parts_kill_and_start(struct core_fixture *f, int64_t job);
/* box2 is lost, and box3 takes its place. */
void parts_lose_box2(struct core_fixture *f, int64_t job);
/* Whether the job waits for its snapshots. */
bool parts_wait(struct core_fixture *f, int64_t job);

#endif
