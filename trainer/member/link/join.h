#ifndef DDP_TRAINER_MEMBER_LINK_JOIN_H
#define DDP_TRAINER_MEMBER_LINK_JOIN_H

#include "base/net/relay_hello.h"
#include "trainer/member/link/link.h"

/* Joins a generation, and returns what every member of it must know. The owner's thread only. */

/* A snapshot that this process could load. */
struct link_offer {
    int64_t job, generation, step;
    const char *digest, *path;
    bool committed;         /* it has a COMMITTED.json, which this process has checked */
    int parts;              /* that ranks wrote; 0: none */
    char *const *elsewhere; /* nodes that wrote the parts that this process does not see; NULL: none */
    bool needs_all;         /* it cannot be loaded without all of its parts */
};
struct link_committed { /* a snapshot of this job that the coordinator has committed */
    int64_t generation, step;
    char *digest;
};
/* Makes the bootstrap id. Called on rank 0 only, when all ranks have joined. Writes at most cap (4096)
 * bytes. */
typedef enum err_code (*link_bootstrap_fn)(void *arg, int world_size, uint8_t *out, size_t cap, size_t *size,
                                           struct err *e);
struct link_join {
    const uint8_t *address; /* of this rank's collectives, opaque */
    size_t address_size;
    const struct link_offer *offers;
    size_t offer_count;
    /* Snapshots that this process cannot use, with reasons; NULL-terminated, or NULL. */
    char *const *unusable;
    int64_t live_step;    /* the process has the state after this step in memory; 0: it has none */
    const char *computes; /* the name of its device; NULL: none */
    link_bootstrap_fn make_bootstrap; /* NULL, or in a world of one: 128 random bytes */
    void *bootstrap_arg;
};
struct link_peer {
    int rank, node_rank, local_rank;
    char *node;
    uint8_t *address;
    size_t address_size;
};
struct link_group {
    int64_t generation;
    int rank, world_size;
    struct link_peer *peers; /* world_size of them, by rank */
    uint8_t *bootstrap;
    size_t bootstrap_size;
    uint8_t key[32];
    bool loopback;    /* all members are on one node */
    char *relay_host; /* of a relay for members that cannot reach each other; NULL: there is none */
    uint16_t relay_port;
    uint8_t relay_ticket[RELAY_TICKET];
    int source_rank;          /* the rank that loads and broadcasts the state; -1: all start from scratch */
    bool live;                /* the source rank has the state in memory: source.step, and no file is read */
    struct link_offer source; /* the snapshot that the source rank loads; the group owns its texts */
    struct link_committed *committed; /* the newest ones */
    size_t committed_count;
    /* The job file that the generation starts with, and its revision; NULL: this process's own. */
    char *job_file;
    int64_t revision;
    int64_t scratch_generation; /* snapshots of the job up to this one do not count; 0: all do */
};
/* Checks that the coordinator's name resolves on this node, and retries for a while. The caller exits with a
 * code of its own if it does not: this tells the coordinator that the node is at fault, where a missing Join
 * would only tell it that a rank is missing. */
MUST_CHECK enum err_code link_find_coordinator(struct link *r, struct err *e);

/* Joins a generation, which must be later than all before; returns when all ranks have joined. as->world_size matters
 * only without a coordinator. Until it has
 * returned OK, link_over, link_stop_asked and the Watch thread refer to the generation before; from then on
 * link_over, link_stop_asked and commits refer to this generation. ABORTED: the generation is closed.
 * FAILED_PRECONDITION, PERMISSION_DENIED, UNAUTHENTICATED: not a member. CANCELLED: link_close, or SIGTERM's
 * link_cancel. */
MUST_CHECK enum err_code link_join(struct link *r, const struct link_member *as, const struct link_join *join,
                                   struct link_group *out, struct err *e);
void link_group_release(struct link_group *g);

#endif
