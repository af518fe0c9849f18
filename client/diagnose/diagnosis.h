#ifndef DDP_CLIENT_DIAGNOSE_DIAGNOSIS_H
#define DDP_CLIENT_DIAGNOSE_DIAGNOSIS_H

#include "base/buf.h"
#include "client/diagnose/bound.h"
#include "proto/ddp.pb-c.h"

/* `ddpctl why`: from the nodes' probes of a job's workers to the cause, in one sentence. Depends on the reply
 * only: no clock, no input or output.
 *
 * If a running job produces nothing, its ranks are usually waiting for one of them, the culprit. It is, in
 * this order:
 * 1. a rank whose process is stopped, held by a debugger, or stuck in the kernel, since it cannot go on;
 * 2. a rank that has exited with code 0 while its peers go on;
 * 3. a rank that uses no CPU time while the others do, since they spin in a collective;
 * 4. if all are asleep, a rank that sleeps in something other than a wait for peers, or fell asleep first.
 *
 * If a job failed, the first failure is told apart from the later failures that it caused. */

enum diagnosis_kind {
    DIAGNOSIS_QUEUED,     /* waits for a place */
    DIAGNOSIS_STARTING,   /* a rank has not joined yet */
    DIAGNOSIS_RUNNING,    /* nothing is wrong */
    DIAGNOSIS_SLOW,       /* runs, but one rank holds up the others */
    DIAGNOSIS_LINK,       /* runs, but all ranks wait for the link between the nodes */
    DIAGNOSIS_STOPPED,    /* a rank's process is stopped by a signal, or by a debugger */
    DIAGNOSIS_KERNEL,     /* a rank's process is stuck in the kernel */
    DIAGNOSIS_LEFT_EARLY, /* a rank has exited with code 0 while its peers go on */
    DIAGNOSIS_ASLEEP,     /* one rank does nothing, the others wait for it */
    DIAGNOSIS_WAITING,    /* all ranks wait, and none stands out */
    DIAGNOSIS_SILENT,     /* all ranks compute, but none has written or reported anything */
    DIAGNOSIS_UNSEEN,     /* no node has answered */
    DIAGNOSIS_RESTARTING,
    DIAGNOSIS_STOPPING,
    DIAGNOSIS_FAILED,
    DIAGNOSIS_ENDED, /* succeeded, or was cancelled */
};
const char *diagnosis_name(enum diagnosis_kind kind); /* "stopped", "left_early" */

struct diagnosis {
    enum diagnosis_kind kind;
    enum bound_kind bound;            /* of a job that runs */
    struct buf sentence;              /* one line, no full stop */
    struct buf details;               /* evidence: lines, each with its end; may be empty */
    struct buf next;                  /* what to do: commands and other advice, a line each */
    const Ddp__V1__WorkerProbe *rank; /* the rank that the sentence names, or NULL; borrowed from the reply */
    int64_t pid;                      /* the process that the sentence names, 0: none */
};

void diagnosis_find(const Ddp__V1__ProbeJobReply *reply,
                    struct diagnosis *out);  /* *out is zeroed by the caller */
void diagnosis_release(struct diagnosis *d); /* for CLEANUP too */

#endif
