#ifndef DDP_TESTS_UNIT_COORDINATOR_CORE_PLACEMENT_STAYING_JOB_H
#define DDP_TESTS_UNIT_COORDINATOR_CORE_PLACEMENT_STAYING_JOB_H

#include "daemon/coordinator/core/model.h"
#include "tests/unit/coordinator/core/core_fixture.h"

/* A train job whose workers say that they can go on in the next generation. */

#define SAVED TRAIN "  snapshot: {dir: /out, every: 10}\n"
#define FOUR "procs_per_node: 4\n"

/* All ranks run, at step 20, and say that they stay. Returns the job's number. */
int64_t staying_job(struct core_fixture *f, const char *file);
int64_t staying_job_of_four(struct core_fixture *f, const char *file); /* on box1 */
/* The same. Then rank 3 says that it does not stay, and rank 2 dies: ranks 0 and 1 wait until rank 3 is known dead. */
int64_t staying_job_waits(struct core_fixture *f, const char *file);
/* The next generation forms; its ranks have the state after this step in memory. */
void staying_job_rejoin(struct core_fixture *f, int64_t job, int64_t live_step);
/* The same on box1 and box2, which have one slot each. */
int64_t staying_job_on_two(struct core_fixture *f, const char *file);
/* The number of the job's handover; 0: there is none. */
int64_t staying_handover(const struct core_fixture *f, int64_t job);
/* The rank waits for the job's handover. Returns its Watch. */
uint64_t staying_rank_waits(struct core_fixture *f, int64_t job, int rank);
const struct spawn *staying_spawn(const struct core_fixture *f, int64_t job, int64_t number);
const struct job_record *staying_record(const struct core_fixture *f, int64_t job);
/* The last word of this Watch, as letters: member, wait, over. */
const char *staying_watch_says(const struct core_fixture *f, uint64_t call);

#endif
