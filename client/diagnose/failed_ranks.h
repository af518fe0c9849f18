#ifndef DDP_CLIENT_DIAGNOSE_FAILED_RANKS_H
#define DDP_CLIENT_DIAGNOSE_FAILED_RANKS_H

#include "client/text/alike.h"
#include "proto/ddp.pb-c.h"

/* The ranks that failed by themselves, and their last lines on stderr. Ranks that wrote the same lines form a group, and the
 * lines are printed once: "stderr of ranks 0-7:". Ranks that ddp ended after the first failure are left out. */

struct buf;
struct failed_rank {
    struct line_owner owner;
    const Ddp__V1__WorkerProbe *worker; /* NULL: only job->failure is known */
    size_t count;                       /* its last lines: at most FAILED_LINES */
    char *const *lines;
    size_t group; /* 0: the group of the rank that failed first */
};
#define FAILED_LINES 5
struct failed_ranks {
    struct failed_rank *items; /* the rank that failed first, then the others by rank */
    size_t count, group_count;
    size_t group_from; /* failed_ranks_print leaves out the groups before it */
    bool
        first_is_told; /* the caller has just named the first rank: if it is alone, its lines get no heading */
    bool alone;        /* the job has one rank */
    bool advice_is_told; /* failed_ranks_print leaves out the advice */
};

/* probe: the coordinator's answer to ProbeJob, or NULL: then only the first rank is known. Both are borrowed. Without a
 * failed rank `count` is 0. */
void failed_ranks_find(struct failed_ranks *f, const Ddp__V1__JobStatus *job,
                       const Ddp__V1__ProbeJobReply *probe);
void failed_ranks_release(struct failed_ranks *f); /* for CLEANUP too */
/* Whether the rank is in the group of the rank that failed first. */
bool failed_ranks_are_one(const struct failed_ranks *f, int rank);
/* What to do about a failure whose cause is known to be common, in one sentence; NULL: nothing is known. */
const char *failed_ranks_advice(const struct failed_ranks *f);
/* Prints "stderr of ranks 0-7:" and the lines of each group, unless they are on the screen already. seen: whether the lines
 * of a rank are on the screen; NULL: no rank's lines are. label: text before each heading. Then prints the advice. Returns whether the lines of the
 * first group were printed. */
bool failed_ranks_print(const struct failed_ranks *f, const char *label, bool (*seen)(void *user, int rank),
                        void *user, struct buf *out);

#endif
