#ifndef DDP_TRAINER_TRAINER_H
#define DDP_TRAINER_TRAINER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/job/balance.h"
#include "base/job/sync_choice.h"
#include "trainer/config.h"
#include "trainer/engine/engine.h"
#include "trainer/engine/memory.h"
#include "trainer/engine/packed.h"
#include "trainer/engine/share.h"
#include "trainer/member/formation/formation.h"
#include "trainer/member/link/link.h"
#include "trainer/snapshot/dir_lock.h"
#include "trainer/snapshot/saver.h"

/* One worker, owned by the main thread. Its engine (engine/) lives as long as the process; its membership in
 * the process group (member/) lives as long as a generation. Only the files of this folder see both, and
 * bring them together. */

struct interval { /* counters since the last report */
    int64_t since_ns, steps, samples;
    int64_t
        exposed_ns;    /* time in the exchange of gradients that backward did not hide, by the host's clock */
    int64_t joined_ns; /* coll_joined_ns at the report */
    uint64_t wait_ns;
};

struct timed_round { /* round/timed_round.h */
    bool open;
    int64_t began_ns, steps;    /* steps of this rank */
    struct share_count *counts; /* of the last round, by rank; NULL: the generation has not made one */
    int64_t *fits;
};

struct rebalance_work {
    int64_t samples, steps;
    int64_t samples_ns; /* for the gradients of the samples */
    int64_t updates_ns; /* for the optimizer; 0 where it is not timed */
};

struct rebalance_piece { /* of the gradients */
    size_t offset, count;
};

struct rebalance {                  /* balance.h */
    int64_t began_step, check_step; /* check_step: after it, ranks gather their times */
    struct rebalance_work work;     /* of this rank, since the last decision */
    struct balance_speed *speeds;   /* of the last decision, by rank; NULL: the generation has made none */
    bool stand;                     /* portions were decided, or come from before */
    int uneven;                     /* decisions in a row that found faster portions */
    int needed;                     /* so many in a row change portions that stand */
    /* Until the decision after a change: the portions before it, and what the slowest rank needed for them. */
    int64_t *before, before_ns;
    /* Of the present step. */
    bool timed, holds;
    int64_t began_ns, exposed_ns, gradients_ns;
    struct rebalance_piece *held;
    size_t held_count, held_room;
};

#define LIVE_ROUNDS_KEPT 8

struct gather {                 /* of parameters, in pieces: parameters.h */
    size_t lanes, count;        /* as in sync_pieces; count 0: parameters do not come in pieces */
    size_t *cuts, *packed_cuts; /* of the parameters, and where these are in the packed array */
    size_t *parts;
    bool packed;
    size_t arrived;   /* pieces that were waited for and taken */
    struct err error; /* of the wait for a piece */
};

struct held_moments { /* shard: optimizer, between two generations: moments.h */
    float *data;      /* of a whole state; NULL: none */
    int64_t step;     /* the step after which these are the moments */
};

struct run_mark { /* a place of the run */
    int64_t step, epoch;
};

struct live_choice { /* what `sync: auto` chose; world_size 0 in facts: nothing */
    struct sync_spec sync;
    struct sync_facts facts;
};

struct trainer {
    /* These live as long as the process. */
    struct trainer_config *config;
    const struct train_spec *spec; /* the config's */
    struct link *link;
    struct engine engine;
    char *snapshot_dir; /* absolute; NULL: no snapshots */
    /* The choice that the engine's state follows. A generation that fails before it has a choice leaves it as it is. */
    struct live_choice chosen;
    bool outdated; /* it met a process of another version */
    bool no_room;  /* a rank lacks the memory to hold moments */
    struct held_moments held;
    /* Device memory for a part of a state that is sent to other ranks, and that this rank does not take; NULL: not needed yet. */
    void *room;

    /* These live as long as the generation. */
    struct formation formation;
    /* This rank is the source, and the files of its snapshot were not read before they were offered. */
    bool source_unread;
    struct saver *saver; /* NULL: this rank writes no snapshots */
    bool writer;         /* writes what ranks share */
    int writers;         /* how many ranks do so, one for each directory */
    /* Each rank writes its part of the moments (shard: optimizer); ranges: those of this rank. */
    bool divides;
    struct snapshot_ranges ranges;
    struct snapshot_lock dir_lock; /* of a writer, on its directory */
    bool lock_warned;              /* it cannot be locked, which was logged */
    int home;                      /* the rank that writes it into this rank's directory */
    double peak_flops;             /* sum over all ranks' devices; 0: not measured */
    struct memory_sizes sizes;
    bool told_sizes;
    struct sync_spec sync; /* how this formation keeps in step: the job's, or the choice of `sync: auto` */
    struct timed_round timed;
    struct rebalance rebalance;
    struct packed packed; /* if `packs`: how parameters are sent: parameters.h */
    bool packs;
    struct gather gather;
    struct sync_facts facts; /* `sync: auto`: what the choice follows from; world_size 0: none was made */

    /* The state of the run. */
    struct sync_state round; /* the round that the last formation left open */
    bool carried;            /* this formation's strategy has it, or has begun anew */
    bool in_round;           /* this formation goes on from memory within a round */
    bool round_timed;        /* which is one of a given time: live_round_timed */
    bool stopped_within;     /* the ranks stop within a round, maybe at different steps: round/round_stop.h */
    bool apart;              /* this formation has resumed at different steps of a round */
    int64_t
        behind; /* steps of the round that this rank has yet to make, and the newest rank of a live generation has made */
    int64_t
        brought; /* samples of the round that the newest rank counts; those of lost ranks are among them */
    int64_t samples_lost; /* by lost ranks, not reported yet */
    /* Rounds of a given time: samples of the open round that counted when a group went on within it, of all its ranks; and the
     * place up to which all that was due is done, as the place may move when a group goes on. */
    int64_t round_counted;
    struct run_mark served;
    int64_t
        late_samples; /* of this rank, which was late: as they count in the next exchange of this formation */
    int64_t samples_back; /* the same of all ranks, not reported yet */
    /* By exchange, modulo LIVE_ROUNDS_KEPT: the generation in which it was made. And how many this formation began with. */
    int64_t made_in[LIVE_ROUNDS_KEPT], made_before;
    int64_t sent_in; /* the generation of round.sent */
    bool resumed;
    /* Stopped: the run ended early; asked: because the coordinator asked a rank to stop. */
    bool stopped, asked;
    uint64_t digest; /* digest of the parameters at step digest_step */
    /* Step of `digest`, and the last step at which all ranks had the same digest; -1: none. */
    int64_t digest_step, agreed_step;
    int64_t last_snapshot_ms, last_eval_ms, last_snapshot_step;
    int64_t
        patience_ms; /* how long the last snapshot of a finished run waits for space; 0: not at its end yet */
    int64_t revision;    /* of the job file whose values are in use */
    bool told_round;     /* the first round is in the log */
    int low_rounds;      /* see sync_agreement_stays_low */
    bool snapshot_due;   /* and waits for the end of the round */
    bool eval_due;       /* the snapshot of the best evaluation was lost: another one takes its place */
    int64_t served_step; /* the last step after which this rank has done all that was due */
    int64_t handover;    /* the last hand-over for which this rank has waited: handover.h */
    bool handed_over;    /* it has ended the generation that this rank joined last */
    bool owed;           /* some rank has not: the generation ended meanwhile */
    struct interval interval;
    int64_t paced_ns; /* test_wait.h: when this process began its last step; 0: it has made none */
};

/* In setup.c. Opens the engine for this process's first share of the samples. Takes over the link, also on an
 * error. The caller must call trainer_close in any case. */
MUST_CHECK enum err_code trainer_open(struct trainer *t, struct trainer_config *config, struct link *link,
                                      struct err *e);
/* Whether this process keeps its state and goes on in the next generation if its generation ends. An exchange that was cut off
 * has not changed the state (trainer_step). */
bool trainer_stays(const struct trainer *t);
/* Joins a generation and forms its group with the engine's arrays. If the generation goes on from memory, the engine then
 * holds the state of the source rank. If not, a state of an earlier generation is gone: call trainer_restore. The caller must call trainer_leave when
 * the generation is over, even after an error. Returns the errors of formation_join and formation_form. */
MUST_CHECK enum err_code trainer_join(struct trainer *t, const struct link_member *as, struct err *e);
/* The second half of trainer_join, for a caller that has filled in formation.info. watched: the link watches
 * the generation. FAILED_PRECONDITION: the ranks do not hold the same place of the run. */
MUST_CHECK enum err_code trainer_form(struct trainer *t, bool watched, struct err *e);
/* Opens the strategy of the formation again, with these keys. The caller carries its state over. */
MUST_CHECK enum err_code trainer_open_sync(struct trainer *t, const struct sync_spec *spec, struct err *e);
void trainer_take_sizes(struct trainer *t); /* fills in `sizes` */
/* Leaves the generation. Parameters, moments and the position in the run stay in the engine, and a later trainer_join
 * uses them. Returns false if the device's collectives did not end: the process must then end by _exit and release
 * nothing. */
MUST_CHECK bool trainer_leave(struct trainer *t);
void trainer_close(struct trainer *t); /* after trainer_leave */

/* In loop.c. Trains to the end, or until the ranks agree to stop. */
MUST_CHECK enum err_code trainer_run(struct trainer *t, struct err *e);

#endif
