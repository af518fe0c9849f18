#ifndef DDP_TRAINER_MEMBER_SYNC_STRATEGY_H
#define DDP_TRAINER_MEMBER_SYNC_STRATEGY_H

#include "trainer/member/sync/sync.h"

/* A strategy: one constant of struct sync_ops, in a file of its own, and a row in the table in sync.c, which
 * calls it. Threads: the owner's only. Functions that are NULL do nothing.
 *
 * A strategy exchanges data in one of two places, or in both: gradients between backward and the optimizer
 * (grads_ready, before_step), or whatever it likes at the end of a round of steps (begin, join; only with
 * local_steps). `begin` starts the exchange of the round in s->state, `join` waits for that in s->under_way
 * and applies what came; `overlap` steps are made between the two. Until join has succeeded the parameters
 * stay this rank's own, so that a rank that loses its peers has lost nothing. */

struct sync_ops {
    const char *name;
    /* Each rank steps on its own gradients: they are divided by its own samples, and ranks differ until a
     * round ends. False: gradients are those of all ranks, and so is the loss of every step. */
    bool local_steps;
    struct sync_array arrays[SYNC_MAX_ARRAYS]; /* of config.count floats each */

    enum err_code (*open)(struct sync *s, struct err *e);
    void (*close)(struct sync *s); /* also after a failed open, and after an abort */

    void (*grads_ready)(struct sync *s, size_t offset, size_t count);
    enum err_code (*before_step)(struct sync *s, struct err *e);

    enum err_code (*begin)(struct sync *s, struct err *e); /* NULL: ranks never meet */
    enum err_code (*join)(struct sync *s, struct err *e);

    void (*save)(const struct sync *s, struct sync_state *out); /* beyond what sync.c fills in */
    void (*load)(struct sync *s, const struct sync_state *in);  /* the arrays are loaded already */
};

extern const struct sync_ops sync_allreduce_ops, sync_average_ops;

struct sync {
    const struct sync_ops *ops;
    struct coll_group *group; /* borrowed */
    struct sync_config config;
    float *arrays[SYNC_MAX_ARRAYS]; /* by place in ops->arrays */
    float *carrier;                 /* see sync_carrier; params or grads unless open says otherwise */
    int64_t round, overlap;         /* steps; set by open */
    bool voted;
    struct sync_state state; /* since the last exchange began */
    struct sync_state
        under_way; /* what the exchange between begin and join is about; steps 0: there is none */
    void *own;     /* the strategy's */
};

/* sync_open with a strategy that need not be in the table. */
MUST_CHECK enum err_code sync_open_as(struct sync **out, const struct sync_ops *ops, struct coll_group *group,
                                      const struct sync_config *config, struct err *e);

#endif
