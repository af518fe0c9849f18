#ifndef DDP_TESTS_UNIT_TRAINER_MEMBER_FORMATION_MEETING_H
#define DDP_TESTS_UNIT_TRAINER_MEMBER_FORMATION_MEETING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "tests/unit/trainer/member/ranks.h"
#include "trainer/trainer.h"

/* Trainers in forked processes that form one group after another. They do the coordinator's part themselves: each writes
 * its address to memory that all share, and reads those of the others. */

enum { MEETING_RANKS = 8, MEETING_ROUNDS = 1024, MEETING_FLOATS = 16384 };

struct meeting { /* in shared memory, zero at first */
    atomic_int here[MEETING_ROUNDS];
    uint8_t address[2][MEETING_RANKS][512];
    size_t size[2][MEETING_RANKS];
    uint8_t id[2][256]; /* of the device's own collectives */
    size_t id_size[2];
};
struct meeting_place {
    int round; /* each group has a number of its own, from 0 */
    int64_t generation;
    int rank, world;
    bool apart;           /* every rank is on its own node */
    const int *node_of;   /* by rank, in place of `apart`: the node's number; NULL: not used */
    const int *local_of;  /* by rank: the number on the node; NULL: 0 for all */
    bool live;            /* the group goes on with the state of `source`, */
    int source;           /* else with nothing */
    bool upgraded;        /* the last rank is of another version than the others */
    int64_t committed;    /* the step of the only committed snapshot; 0: none */
    const char *job_file; /* rank 0's: the newest job file; NULL: the job was never tuned */
};

/* A trainer of a small model without a coordinator, on the device that DDP_TEST_DEVICE names (cpu). sync, more: the value of `sync` in the job file, and further lines
 * below `train`. */
void meeting_open_trainer(struct trainer *t, struct trainer_config *config, const char *sync,
                          const char *more);
/* The same, of an MLP with these sizes. */
void meeting_open_sizes(struct trainer *t, struct trainer_config *config, const char *sizes, const char *sync,
                        const char *more);
/* The same, of a whole job file. */
void meeting_open_job(struct trainer *t, struct trainer_config *config, const char *text);
/* Joins and forms the group. Fails the rank if not all come within 20 s. */
enum err_code meeting_form(struct ranks *r, struct meeting *m, struct trainer *t,
                           const struct meeting_place *at, struct err *e);
void meeting_close_trainer(struct trainer *t, struct trainer_config *config); /* leaves the group, too */

uint64_t meeting_hash(const struct trainer *t); /* of the state: at most MEETING_FLOATS floats */
void meeting_train(struct trainer *t, int64_t steps);

#endif
