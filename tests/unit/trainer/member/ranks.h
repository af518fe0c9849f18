#ifndef DDP_TESTS_UNIT_TRAINER_MEMBER_RANKS_H
#define DDP_TESTS_UNIT_TRAINER_MEMBER_RANKS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>
#include <unistd.h>

#include "trainer/member/coll/coll.h"

/* A process group of forked processes on this machine. Nodes are simulated: the ranks of one node have a
 * node_rank and a directory of their own, so ranks of different nodes connect by TCP. */

#define RANKS_MAX 64

struct ranks_shared { /* memory that all ranks and the test share */
    atomic_int counter, flag;
    uint64_t hash[RANKS_MAX];
    int code[RANKS_MAX];
    char result[262144];
};
struct ranks {
    int world;
    int node_of[RANKS_MAX];
    const char *host; /* NULL: 127.0.0.1 */
    bool no_directory;
    bool pairs; /* connections for coll_exchange */
    int timeout_ms;
    const void *arg;
    /* filled by ranks_start */
    struct ranks_shared *shared;
    char directory[64];
    struct coll_listener *listeners[RANKS_MAX];
    uint8_t addresses[RANKS_MAX][512];
    struct coll_peer peers[RANKS_MAX];
    pid_t pids[RANKS_MAX];
};
/* Fills the config of a rank; a test may change it. */
void ranks_config(const struct ranks *r, int rank, struct coll_config *out);
/* Opens the group or fails the rank. */
struct coll_group *ranks_open(const struct ranks *r, int rank);

typedef void (*ranks_fn)(struct ranks *r, int rank);
void ranks_prepare(struct ranks *r); /* listeners and shared memory */
void ranks_start(struct ranks *r, ranks_fn fn);
/* Waits for all ranks. Returns true if each ended with exit code 0, or by SIGKILL if it is `victim` (-1:
 * none). Releases everything but `shared`. */
bool ranks_finish(struct ranks *r, int victim);
bool ranks_run(struct ranks *r, ranks_fn fn); /* prepares, starts and finishes */
void ranks_release(struct ranks *r);          /* shared */

uint64_t ranks_hash(const void *data, size_t size);

/* For use in a rank: ends it with a message if the condition is false. */
#define RANK_CHECK(cond)                                                                                     \
    do {                                                                                                     \
        if (!(cond)) {                                                                                       \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond);                                       \
            _exit(1);                                                                                        \
        }                                                                                                    \
    } while (0)
#define RANK_OK(call, e)                                                                                     \
    do {                                                                                                     \
        if (call) {                                                                                          \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, (e)->msg);                         \
            _exit(1);                                                                                        \
        }                                                                                                    \
    } while (0)

#endif
