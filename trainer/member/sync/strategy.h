#ifndef DDP_TRAINER_MEMBER_SYNC_STRATEGY_H
#define DDP_TRAINER_MEMBER_SYNC_STRATEGY_H

#include "trainer/member/sync/sync.h"

/* A strategy is a constant of struct sync_ops in a file of its own, with a row in the table in sync.c, which
 * calls it, and one for its keys in base/job/job_sync.c. Threads: the owner's only. Functions that are NULL do nothing.
 *
 * A strategy exchanges data in one or both of two places: gradients between backward and the optimizer
 * (grads_ready, before_step), or any data at the end of a round of steps (begin, join; only with
 * local_steps). `begin` starts the exchange of the round in s->state. `join` waits for the exchange in
 * s->under_way and applies its result. `overlap` steps are made between the two. Until join has succeeded,
 * the parameters stay this rank's own, so a rank that loses its peers loses nothing. */

struct sync_ops {
    const char *name;
    /* True: each rank steps on its own gradients, which are divided by its own samples, and ranks differ
     * until a round ends. False: gradients, and the loss of every step, are those of all ranks. */
    bool local_steps;
    struct sync_array arrays[SYNC_MAX_ARRAYS]; /* the strategy's own arrays, of config.count floats each */
    /* Whether a job needs this array; NULL: it needs all arrays. */
    bool (*wants)(const struct sync_spec *spec, size_t array);
    bool (*wants_pairs)(const struct sync_spec *spec, int world_size); /* see sync_wants_pairs; NULL: false */

    enum err_code (*open)(struct sync *s, struct err *e);
    void (*close)(struct sync *s); /* even after a failed open, and after an abort */

    /* For sync_tune. The strategy and its arrays are the same with `to`; check_tune checks the rest, and changes
     * nothing. tuned: config.spec has changed. */
    enum err_code (*check_tune)(const struct sync *s, const struct sync_spec *to, struct err *e);
    void (*tuned)(struct sync *s);

    void (*grads_ready)(struct sync *s, size_t offset, size_t count);
    enum err_code (*before_step)(struct sync *s, struct err *e);
    /* With config.parts. Each rank gets the parameters that others have updated. gather_pieces, await_pieces: see
     * sync_gather_pieces. */
    enum err_code (*gather)(struct sync *s, struct err *e);
    void (*gather_pieces)(struct sync *s, const struct sync_pieces *pieces);
    enum err_code (*await_pieces)(struct sync *s, size_t count, struct err *e);

    void (*at_step)(struct sync *s, int64_t step);
    void (*start)(struct sync *s); /* called after the parameters were copied to s->shared */
    enum err_code (*begin)(struct sync *s, struct err *e); /* NULL: the strategy has no rounds */
    enum err_code (*join)(struct sync *s, struct err *e);
    /* Replaces the single exchange by which sync_settle ends a round early; NULL: that exchange. */
    enum err_code (*settle)(struct sync *s, struct err *e);

    /* sync_take_feedback; NULL: there is none. */
    enum err_code (*take_feedback)(struct sync *s, const struct sync_state *round, struct err *e);

    /* For sync_leave, if `begin` was called and the exchange was not joined: keeps what `take` needs. */
    void (*leave)(struct sync *s, struct sync_state *out);
    /* For sync_take_exchange: as `join`, except that shared arrays are filled in already. */
    void (*take)(struct sync *s, const struct sync_state *in);

    /* Saves the fields that sync.c does not fill in. */
    void (*save)(const struct sync *s, struct sync_state *out);
    void (*load)(struct sync *s, const struct sync_state *in); /* called after the arrays were loaded */
};

extern const struct sync_ops sync_allreduce_ops, sync_average_ops, sync_diloco_ops;

#define SYNC_SHARED 0 /* index of the shared model among the arrays of a strategy that has one */

struct sync {
    const struct sync_ops *ops;
    bool local_steps;         /* for this step: ops->local_steps, unless at_step changes it */
    float *shared;            /* the model that the last exchange made; NULL: parameters are the model */
    bool uneven;              /* parameters differ between ranks although a round has just ended */
    struct coll_group *group; /* borrowed */
    struct sync_config config;
    float *arrays[SYNC_MAX_ARRAYS]; /* in the order of ops->arrays */
    float *carrier;                 /* see sync_carrier; params or grads unless `open` sets another array */
    int64_t round, overlap;         /* in steps; set by open */
    int64_t next_step; /* steps that the run has made, as sync_at_step and sync_after_step tell */
    int64_t steps;     /* of the whole run */
    bool ending;       /* sync_end_round was called, with made_at_end */
    int64_t made_at_end;
    bool idle;     /* the exchange under way, of sync_settle, has no steps, although it is counted as one */
    bool held;     /* sync_hold_round was called */
    size_t pieces; /* of a gather, for which the owner has not waited yet */
    int64_t waited_ns;
    bool voted;
    bool votes_kept; /* of an exchange that was joined between two steps */
    float votes[SYNC_MAX_TAIL];
    int64_t rounds;          /* exchanges that the group has made */
    struct sync_round made;  /* of the exchange that is under way, or of the last one */
    uint64_t bytes_before;   /* bytes that this rank had sent when the exchange began */
    bool made_told;          /* sync_take_round has returned it, or there is none */
    double *squares_room;    /* device memory for squares_on_device; NULL on the host */
    struct sync_state state; /* the round since the last exchange began */
    struct sync_state
        under_way; /* the round whose exchange is between begin and join; steps 0: there is none */
    bool failed;   /* `begin` has failed, and the round's state is still in `state` */
    void *own;     /* the strategy's own state */
};

/* Calls `begin`, and moves the round's state to under_way. */
MUST_CHECK enum err_code sync_begin(struct sync *s, struct err *e);
/* For `settle`: begins and joins one exchange. An exchange is about a round, so it counts as one step if none was made since the last
 * one. */
MUST_CHECK enum err_code sync_settle_once(struct sync *s, struct err *e);
/* Waits for the sum that coll_start began. Succeeds only if the sum is known to be complete, on any device,
 * so that it may be applied. */
MUST_CHECK enum err_code sync_await_sum(struct sync *s, struct err *e);

/* The error of an exchange in which this rank's parameters are not finite (OUT_OF_RANGE), or another rank's (ABORTED). Returns its
 * code. */
MUST_CHECK enum err_code sync_not_finite(const struct sync *s, int rank, struct err *e);

/* A float of the arrays, in the device's memory. Reading it waits for the device. */
void sync_put_float(struct sync *s, float *to, float x);
float sync_get_float(struct sync *s, const float *from);

/* Fills in norm and agreement of the round; `join` calls it. squares: of D; lengths: the sum over ranks of weight times length of the delta. */
void sync_measure(struct sync *s, double squares, double lengths);

/* For tests: with DDP_TEST_KILL_IN_ROUND="2:sum:5" each process that is rank 2 is killed in the fifth exchange that it makes:
 * begin: before it says what it has; sum: before the sum; commit: when it has the sum and has not applied it. */
void sync_test_kill(const struct sync *s, const char *phase);

/* As sync_open, with a strategy that need not be in the table; for tests. */
MUST_CHECK enum err_code sync_open_as(struct sync **out, const struct sync_ops *ops, struct coll_group *group,
                                      const struct sync_config *config, struct err *e);

#endif
