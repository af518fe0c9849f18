#ifndef DDP_TESTS_UNIT_TRAINER_MEMBER_SYNC_QUADRATIC_H
#define DDP_TESTS_UNIT_TRAINER_MEMBER_SYNC_QUADRATIC_H

#include "tests/unit/trainer/member/ranks.h"
#include "trainer/member/sync/strategy.h"

/* Ranks that train by a strategy on a quadratic loss, whose minimum depends on the rank. */

/* Tensors of odd sizes, with gaps, so that a block that crossed a bound would show. */
#define TENSORS 6
extern const struct sync_tensor quadratic_tensors[TENSORS];
enum {
    TAIL = 3,
    PARAMS = 1040,
    COUNT = PARAMS + TAIL,
    EVERY = 6,
    STEPS = 6 * EVERY + 2,
    ROUNDS = 6,
    STEPS_MOST = 5
};
#define RATE 0.05f

struct quadratic {
    struct sync_spec spec;
    bool same_data;      /* all ranks have the samples of rank 0 */
    bool idle;           /* each of the first three ranks in turn has no samples in a round */
    int reopen_after;    /* steps, then a snapshot and back from it; 0: never */
    int dies_at_gather;  /* rank 1, in its second round */
    int fails_at_gather; /* all ranks; they then open the strategy again */
    int thread;
    bool timed; /* rounds of a given time: quadratic_steps */
    bool far;   /* arrays are in memory that is not the host's */
};
struct quadratic quadratic_setup(enum wire_type wire); /* diloco */

int64_t quadratic_samples(const struct quadratic *u, int rank, int step);
int64_t quadratic_samples_of_all(const struct quadratic *u, int world, int step);
/* Steps of the rank in a round of a given time: unlike, and 1 at least. */
int quadratic_steps(int rank, int round);
/* The run's steps as a rank counts them that has made `steps` of this round. Ranks may differ. */
int64_t quadratic_progress(int round, int steps);
double quadratic_gradient(const struct quadratic *u, double x, int rank, size_t i);
double quadratic_start(size_t i);

/* Whether the tensor belongs to the fragment. */
bool quadratic_in_fragment(const struct quadratic *u, size_t tensor, int fragment);
/* Owners have whole blocks, dealt in rows. -1: everybody gets the codes of all. */
int quadratic_owner(const struct quadratic *u, int world, int fragment, size_t element);

struct member {
    struct coll_group *group;
    struct sync_config config;
    struct sync *sync;
};
void member_open(struct ranks *r, int rank, const struct sync_spec *spec, int thread, struct member *m);
void member_close(struct member *m);
/* Backward and optimizer. */
void member_compute(const struct member *m, const struct quadratic *u, int step);
/* This call of coll_allgather, from 1 on, ends the process. The linker passes the calls on to quadratic.c. */
void member_dies_at_gather(int call);

#define LAYOUTS 5
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) /* ten times as slow */
#define LAYOUT_STEP 2
#else
#define LAYOUT_STEP 1
#endif
extern const struct ranks quadratic_layouts[LAYOUTS]; /* 1, 2, 3, 3 and 5 ranks */
#define WIRES 4
extern const enum wire_type quadratic_wires[WIRES];
/* Trains, and compares the shared model of all ranks after each step. Returns the bytes that rank 0 has sent. out: PARAMS
 * floats. */
int quadratic_run(const struct ranks *layout, const struct quadratic *u, float *out, uint64_t *hash);

#endif
