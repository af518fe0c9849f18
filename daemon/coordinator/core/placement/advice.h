#ifndef DDP_DAEMON_COORDINATOR_CORE_PLACEMENT_ADVICE_H
#define DDP_DAEMON_COORDINATOR_CORE_PLACEMENT_ADVICE_H

#include "base/buf.h"
#include "daemon/coordinator/core/model.h"

/* What a user should know at submit: whether the nodes can run the job at all, whether it can start now, and
 * if not, which smaller ask would run. Changes nothing but node->place, which each placement pass counts anew. */
struct advice {
    bool possible; /* the present nodes could run the job if no other job used them */
    bool starts;   /* they can run it now */
    /* "2 nodes are alive, the job needs 3; with --nodes 2 it would start now". NULL: the job starts, or
     * without `now` it only waits for other jobs. Heap-owned. */
    char *text;
};

/* job: any with a spec and a user; it need not be among the core's jobs. now: it is to start at once. */
void advice_make(const struct core *core, const struct job *job, bool now, struct advice *out);

/* The flags with which the job, which waits in the queue, would start now: "--nodes 1". The caller frees; NULL: there are none.
 * Changes nothing but node->place. */
char *advice_at_once(const struct core *core, const struct job *job);

/* Some nodes of the job's last generation, which had `had` nodes, lack parts of its snapshots. Appends the command after which
 * it continues without them: " `ddpctl drain box2` continues without its parts,". Appends nothing if there is no such
 * command. Changes nothing but node->place. */
void advice_print_without(const struct core *core, const struct job *job, int64_t had, char *const *lacking,
                          struct buf *text);

#endif
