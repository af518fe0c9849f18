#ifndef DDP_TESTS_GPU_LIVES_H
#define DDP_TESTS_GPU_LIVES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/trainer/member/formation/meeting.h"

/* Processes with GPUs that continue through many generations: members are killed, new ones join, and the others keep their state in
 * device memory. The GPU is emulated, and a stand-in replaces NCCL. The ranks do the coordinator's work themselves, by a plan that all
 * of them know. A run of the plan without losses must give the same bits. One process, the witness, lives through all generations and
 * must hold no more memory, threads and files at the end than at the beginning. */

enum { SLOTS = 8, WITNESS = 1, ERAS_MOST = 256 };

/* ---- the plan: one era for each generation. Sets of slots are bits. */

enum end {
    IN_ORDER,      /* members leave between two steps, as in a hand-over */
    BEFORE_SUM,    /* members are killed before they send their part of a sum, so nobody has it */
    AFTER_SENDING, /* a member is killed with its part sent, so others may have the sum */
    FORMING,       /* a member is killed while NCCL forms, so no step is made */
    ENDS,
    WITHIN =
        ENDS, /* members are killed between two steps of a round; the others hear of it at steps of their own */
};
struct era {
    unsigned members, lost;
    enum end end;
    int steps; /* before the step in which members are lost; of averaging: exchanges, and then steps */
    int more;
    bool ahead;      /* all but rank 0, which collects what is summed, finish that step */
    bool late_abort; /* ncclCommAbort takes a while */
    bool unnoticed;  /* NCCL does not notice the loss */
    unsigned newest; /* members of the next generation that have the newest state */
};
struct plan {
    int count;
    struct era eras[ERAS_MOST];
};

unsigned draw(uint64_t *seed, unsigned below);
int size_of(unsigned slots);
bool has_slot(unsigned slots, int slot);
int rank_of(unsigned members, int slot);
int lowest_of(unsigned slots);
unsigned pick_one(uint64_t *seed, unsigned from); /* a random slot of the set, but not the witness */
int eras_wanted(int few);                         /* as DDP_TEST_ERAS says */

/* ---- */

struct scene {
    const struct plan *plan;
    const char *sync; /* of the job file */
    bool own_losses;  /* each rank's loss is that of its own samples, and must be the same, too */
    bool disturbed;   /* members are killed; else they leave in order, and eras of FORMING are left out */
    /* What a process does in an era in which the group has formed. A member that is killed does not return. */
    void (*work)(const struct scene *scene, struct trainer *t, const struct era *era, int slot);
};

/* Of this process, for the step or the forming in which members are lost. */
void faults_set(const struct era *era, int slot);
/* Runs the plan with losses and without. At the start of each era, and at the end, each slot must have the same state. */
void both_give_the_same_bits(const struct scene *scene);

#endif
