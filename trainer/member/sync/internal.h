#ifndef DDP_TRAINER_MEMBER_SYNC_INTERNAL_H
#define DDP_TRAINER_MEMBER_SYNC_INTERNAL_H

#include "trainer/member/sync/bucket.h"
#include "trainer/member/sync/sync.h"

/* A strategy. Absent functions do nothing. */
struct sync_ops {
    const char *name;
    bool local_mean; /* gradients are divided by this rank's own samples */
    void (*grads_ready)(struct sync *s, size_t offset, size_t count);
    enum err_code (*before_step)(struct sync *s, struct err *e);
    enum err_code (*after_step)(struct sync *s, struct err *e);
    enum err_code (*settle)(struct sync *s, struct err *e);
};
extern const struct sync_ops sync_allreduce_ops, sync_average_ops;

struct sync {
    const struct sync_ops *ops;
    struct coll_group *group; /* borrowed */
    struct sync_config config;
    struct bucket_runner *runner;  /* all-reduce only */
    size_t pending, pending_count; /* pieces gathered for the next bucket: where, how many floats */
    size_t covered;                /* floats handed over in this step */
    struct sync_state state;
};

#endif
