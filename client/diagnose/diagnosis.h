#ifndef DDP_CLIENT_DIAGNOSE_DIAGNOSIS_H
#define DDP_CLIENT_DIAGNOSE_DIAGNOSIS_H

#include "base/buf.h"
#include "proto/ddp.pb-c.h"

/* From what is known of a job's workers to the cause, in one sentence. A function of the reply alone: no
 * clock, no input or output.
 *
 * Of a job that runs and says nothing, the rank is looked for that all others wait for. In order: one whose
 * process is stopped, traced or stuck in the kernel; one that uses no CPU time while others do (those spin in
 * a collective); of ranks that are all asleep, one that sleeps elsewhere than in a wait for its peers. Of a
 * job that failed, the first failure is told apart from those that it brought about. */

enum diagnosis_kind {
    DIAGNOSIS_QUEUED,     /* waits for a place */
    DIAGNOSIS_STARTING,   /* someone has not come yet */
    DIAGNOSIS_RUNNING,    /* nothing is wrong */
    DIAGNOSIS_SLOW,       /* runs, and one rank holds up the others */
    DIAGNOSIS_STOPPED,    /* a rank's process is stopped by a signal, or by a debugger */
    DIAGNOSIS_KERNEL,     /* ... is stuck in the kernel */
    DIAGNOSIS_LEFT_EARLY, /* a rank has ended well while its peers go on */
    DIAGNOSIS_ASLEEP,     /* one rank does nothing, the others wait for it */
    DIAGNOSIS_WAITING,    /* all wait, nobody stands out */
    DIAGNOSIS_SILENT,     /* all compute, nobody says anything */
    DIAGNOSIS_UNSEEN,     /* no node could look */
    DIAGNOSIS_RESTARTING,
    DIAGNOSIS_STOPPING,
    DIAGNOSIS_FAILED,
    DIAGNOSIS_ENDED, /* well, or by the user's wish */
};
const char *diagnosis_name(enum diagnosis_kind kind); /* "stopped", "left_early" */

struct diagnosis {
    enum diagnosis_kind kind;
    struct buf sentence;              /* one line, no full stop */
    struct buf details;               /* lines, each ended; may be empty */
    struct buf next;                  /* commands and other advice, a line each */
    const Ddp__V1__WorkerProbe *rank; /* whom it names, or NULL; borrowed from the reply */
    int64_t pid;                      /* of the process that is meant, 0: none */
};

void diagnosis_find(const Ddp__V1__ProbeJobReply *reply, struct diagnosis *out); /* *out zeroed before */
void diagnosis_release(struct diagnosis *d);                                     /* for CLEANUP too */

#endif
