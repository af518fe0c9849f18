#ifndef DDP_TRAINER_MEMBER_FORMATION_FORMATION_H
#define DDP_TRAINER_MEMBER_FORMATION_FORMATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/job/job.h"
#include "trainer/device/array.h"
#include "trainer/member/coll/coll.h"
#include "trainer/member/link/join.h"
#include "trainer/member/sync/sync.h"

/* This process's membership in one generation of the job: its rank, the process group, and the strategy that
 * keeps the group in step. It lives from Join until the generation ends. The arrays that are trained live
 * longer, and can be attached to the next formation. The owner's thread only.
 *
 *     formation_listen    before Join, so that peers can reach this rank
 *     formation_join      by the link: rank, world size, peers, key
 *     formation_form      the group, with the caller's arrays attached to it, and the strategy
 *     ...
 *     formation_end       even after any of these failed; then formation_listen again for the next */

struct formation {
    struct coll_listener *listener;
    struct link_group info;
    int rank, world_size;
    struct link *link; /* the link that watches this generation; NULL: none does */
    struct coll_group *group;
    struct sync *sync;
    void (*woken)(void);
};

/* address, directory: as in struct link_place. */
MUST_CHECK enum err_code formation_listen(struct formation *f, const char *address, const char *directory,
                                          struct err *e);

/* request: the snapshots that this rank offers, those that it cannot use, and the state that it has; this call fills in
 * the address and the bootstrap id. wants_id: a group of several ranks will use the device's own collectives, so rank 0 must make
 * an id for them. */
MUST_CHECK enum err_code formation_join(struct formation *f, struct link *link, const struct link_member *as,
                                        struct link_join *request, struct device *device, bool wants_id,
                                        struct err *e);
/* Instead of formation_join, if the caller already knows the group. Takes info over. */
void formation_be_told(struct formation *f, struct link_group *info);

/* What a rank takes its samples from. */
struct formation_data {
    int64_t bytes;   /* of the files; 0: the data does not come from files */
    uint64_t digest; /* of both splits: dataset_digest */
};

struct formation_config {
    /* Watches the generation, if it has a coordinator; NULL: the generation is not watched. */
    struct link *link;
    void (*woken)(void); /* called on the watch's thread when the generation is over; or NULL */
    int64_t job;
    struct device *device;
    bool tree;       /* take sums that do not depend on the world size */
    bool free_order; /* as in coll_config */
    bool one_model;  /* all ranks need one model of device, because the optimizer's bits depend on it */
    struct formation_data data;
    struct sync_spec sync;
    const size_t *parts;                         /* as in sync_config */
    struct device_array *params, *grads, *extra; /* extra: the arrays of sync_arrays, in its order */
    size_t extra_count;
    size_t tail;                       /* floats at the arrays' end: loss and votes */
    const struct sync_tensor *tensors; /* the parameters; borrowed for the call */
    size_t tensor_count;
};
/* Forms the group and opens the strategy. ABORTED: a peer was lost, or the generation is over.
 * FAILED_PRECONDITION: the ranks do not fit together. */
MUST_CHECK enum err_code formation_form(struct formation *f, const struct formation_config *config,
                                        struct err *e);
/* The longest time for forming the group, in ms. A lost peer ends it earlier. pairs: as in coll_config. */
int formation_connect_ms(int world_size, bool pairs);
/* For coll_config.relay. NULL: there is no relay. */
const struct coll_relay *formation_find_relay(const struct formation *f, struct coll_relay *out);
/* Closes the strategy and opens it by config's keys, in the same group. No exchange may be under way. config->extra: at
 * least the arrays of sync_arrays. */
MUST_CHECK enum err_code formation_open_sync(struct formation *f, const struct formation_config *config,
                                             struct err *e);
/* Ends all waits of this rank for the others, and theirs for it: calls of the group return ABORTED from now on. */
void formation_abort(struct formation *f);
/* Leaves arrays and link as they are. round: where the strategy stands (sync_leave); NULL: it is not wanted. DEADLINE_EXCEEDED: the device's collectives did not end, so the process
 * must exit without touching the device again. */
MUST_CHECK enum err_code formation_end(struct formation *f, struct sync_state *round, struct err *e);

/* Collective: all ranks return the result that rank `root` found, so that all take the same branch. */
MUST_CHECK enum err_code formation_agree(struct formation *f, int root, const struct err *found,
                                         struct err *e);
/* Collective, of config's device, tree, one_model and data. FAILED_PRECONDITION: ranks read different data, or they compute on
 * devices of different kinds; or, with tree or one_model, on devices of different names, such as CPUs with different
 * instruction sets. Without these rank 0 logs the latter. If there is a state to continue from, ranks that are like its
 * source get ABORTED instead. */
MUST_CHECK enum err_code formation_check_ranks(struct formation *f, const struct formation_config *config,
                                               struct err *e);
/* Appends the rank and its node, as "rank 3 (box2)". */
struct buf;
void formation_name_rank(const struct formation *f, int rank, struct buf *out);

#endif
