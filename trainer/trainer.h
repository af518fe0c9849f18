#ifndef DDP_TRAINER_TRAINER_H
#define DDP_TRAINER_TRAINER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "trainer/config.h"
#include "trainer/engine/engine.h"
#include "trainer/engine/memory.h"
#include "trainer/member/formation/formation.h"
#include "trainer/member/link/link.h"
#include "trainer/snapshot/saver.h"

/* One worker, owned by the main thread: what trains, which lives as long as the process (engine/), and its
 * place in the process group, which lives as long as a generation (member/). The files of this folder bring
 * the two together: they alone see both. */

struct interval { /* since the last report */
    int64_t since_ns, steps, samples;
    int64_t exposed_ns; /* in the sync of gradients: what backward did not hide */
    uint64_t wait_ns;
};

struct trainer {
    /* for the process's life */
    const struct trainer_config *config;
    const struct train_spec *spec;
    struct link *link;
    struct engine engine;
    char *snapshot_dir; /* absolute; NULL: no snapshots */

    /* for a generation's */
    struct formation formation;
    struct saver *saver; /* NULL: this rank writes no snapshots */
    float *scratch;      /* one state, where ranks differ; else NULL */
    double peak_flops;   /* of all ranks' devices; 0: not measured */
    struct memory_sizes sizes;
    bool told_sizes;

    /* the run */
    struct sync_state round; /* that the last formation left open */
    bool resumed;
    bool stopped, asked;              /* ended before its end; because the coordinator asked some rank to */
    uint64_t digest;                  /* of the parameters ... */
    int64_t digest_step, agreed_step; /* ... at that step; when all ranks' were the same. -1: never */
    int64_t last_snapshot_ms, last_eval_ms, last_snapshot_step;
    struct interval interval;
};

/* setup.c. Opens what does not depend on a group, but as large as the first place's share of the samples
 * demands. Takes the link over, also on an error; trainer_close is due in any case. */
MUST_CHECK enum err_code trainer_open(struct trainer *t, const struct trainer_config *config,
                                      struct link *link, struct err *e);
/* Joins a generation and forms its group with the engine's arrays. After an error, or when the generation is
 * over, trainer_leave is due. Errors as formation_join and formation_form have them. */
MUST_CHECK enum err_code trainer_join(struct trainer *t, const struct link_member *as, struct err *e);
/* The second half of it, where formation.info is there already. watched: by the link. */
MUST_CHECK enum err_code trainer_form(struct trainer *t, bool watched, struct err *e);
/* Parameters, moments and the place in the run stay: another generation may be joined. False: the device's
 * collectives did not end, the process must, by _exit: what is left belongs to them. */
MUST_CHECK bool trainer_leave(struct trainer *t);
void trainer_close(struct trainer *t); /* after trainer_leave */

/* loop.c: to the end, or until all agree to stop. */
MUST_CHECK enum err_code trainer_run(struct trainer *t, struct err *e);

extern volatile int trainer_stop_signal; /* set by SIGTERM's handler: its number */
extern volatile int trainer_running;     /* whether there is a state worth a snapshot */

#endif
