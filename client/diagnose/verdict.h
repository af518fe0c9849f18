#ifndef DDP_CLIENT_DIAGNOSE_VERDICT_H
#define DDP_CLIENT_DIAGNOSE_VERDICT_H

#include "base/buf.h"
#include "proto/ddp.pb-c.h"

/* From what is known of a job's workers to the cause, in one sentence. A function of the reply alone: no
 * clock, no input or output.
 *
 * Of a job that runs and says nothing, the rank is looked for that all others wait for. In order: one whose
 * process is stopped, traced or stuck in the kernel; one that uses no CPU time while others do (those spin in
 * a collective); of ranks that are all asleep, one that sleeps elsewhere than in a wait for its peers. Of a
 * job that failed, the first failure is told apart from those that it brought about. */

enum verdict_kind {
    VERDICT_QUEUED,     /* waits for a place */
    VERDICT_STARTING,   /* someone has not come yet */
    VERDICT_RUNNING,    /* nothing is wrong */
    VERDICT_SLOW,       /* runs, and one rank holds up the others */
    VERDICT_STOPPED,    /* a rank's process is stopped by a signal, or by a debugger */
    VERDICT_KERNEL,     /* ... is stuck in the kernel */
    VERDICT_LEFT_EARLY, /* a rank has ended well while its peers go on */
    VERDICT_ASLEEP,     /* one rank does nothing, the others wait for it */
    VERDICT_WAITING,    /* all wait, nobody stands out */
    VERDICT_SILENT,     /* all compute, nobody says anything */
    VERDICT_UNSEEN,     /* no node could look */
    VERDICT_RESTARTING,
    VERDICT_STOPPING,
    VERDICT_FAILED,
    VERDICT_ENDED, /* well, or by the user's wish */
};
const char *verdict_name(enum verdict_kind kind); /* "stopped", "left_early" */

struct verdict {
    enum verdict_kind kind;
    struct buf sentence;              /* one line, no full stop */
    struct buf details;               /* lines, each ended; may be empty */
    struct buf next;                  /* commands and other advice, a line each */
    const Ddp__V1__WorkerProbe *rank; /* whom it names, or NULL; borrowed from the reply */
    int64_t pid;                      /* of the process that is meant, 0: none */
};

void verdict_find(const Ddp__V1__ProbeJobReply *reply, struct verdict *out); /* *out zeroed before */
void verdict_release(struct verdict *v);                                     /* for CLEANUP too */

/* The process that does a worker's work: a shell or launcher that only waits for one child is passed over,
 * and one that is stopped or stuck is preferred. NULL: none was seen. */
const Ddp__V1__ProcessProbe *verdict_process(const Ddp__V1__WorkerProbe *worker);
const char *verdict_state(const char *state);        /* "T" to "stopped" */
bool verdict_halted(const Ddp__V1__ProcessProbe *p); /* by a signal or a debugger */
/* How sure it is that its wait is not for a peer, 0 to 3: 0 is what collectives wait in. */
int verdict_elsewhere(const Ddp__V1__ProcessProbe *p);

/* verdict_process.c has the four above; verdict_end.c: jobs that failed, or begin anew */
void verdict_failed(const Ddp__V1__ProbeJobReply *reply, struct verdict *v);

/* What both files use. */
void verdict_who(struct buf *out, const Ddp__V1__WorkerProbe *w); /* "rank 1 on n2" */

#endif
