#ifndef DDP_DAEMON_AGENT_OBSERVE_WORKER_ACTIVITY_H
#define DDP_DAEMON_AGENT_OBSERVE_WORKER_ACTIVITY_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/agent/observe/worker_samples.h"
#include "proto/ddp.pb-c.h"

/* Decides from samples whether a worker gets on. No clock, no I/O: times are arguments. A worker is
 *
 *   idle     when its processes have used less than 2 % of the CPU time for 1.5 s
 *   silent   when it has neither written nor reported for 30 s, or for half its stall_timeout if that is less
 *   stuck    when it is idle and its processes are stopped ('T') or wait in the kernel ('D')
 *
 * Which of these ends a generation, and when, is the coordinator's decision. Times are CLOCK_BOOTTIME ms,
 * those called wall are the wall clock's. */

struct worker_activity {
    bool seen;              /* there was a sample of it */
    char stuck;             /* state in the last sample */
    int64_t cpu_ms, cpu_at; /* CPU time and time of the sample from which idleness counts */
    int64_t busy_at;        /* time of the last sample in which the worker was busy */
    int64_t output_ms;      /* wall: time of its last output; 0: none */
    int64_t report_at;      /* time of its last report; 0: none */
    /* The start times that the coordinator was told last; 0: it was told that the worker is not idle, or
     * silent. */
    int64_t told_idle, told_silent;
    /* From the last sample that has them: the call in which it waits, and how likely it is that it waits for no
     * peer. */
    char call[PROCESS_CALL], target[PROCESS_TARGET], stack[SAMPLE_STACK_TEXT];
    int own_wait, told_own; /* told_own: what the coordinator was told last */
    int cpu_permille;       /* of one core, in the last counted sample */
    int told_cpu;           /* the same in the last message */
    int64_t told_at;        /* when that message was sent */
    char told_stuck;        /* the state that the coordinator was told last */
};

/* Takes in a sample that was taken at `at`. */
void worker_activity_update(struct worker_activity *a, const struct worker_sample *sample, int64_t at);
/* Whether it used little CPU time of late, so that it matters what it waits in. */
bool worker_activity_dozes(const struct worker_activity *a, int64_t now);
/* Fills *out but for job and spawn. True: it differs from what the coordinator was told last. */
bool worker_activity_tell(struct worker_activity *a, int64_t stall_timeout_ms, int64_t now, int64_t wall,
                          Ddp__V1__SpawnActivity *out);
/* A message with `said` was sent, because of this worker or another one. */
void worker_activity_sent(struct worker_activity *a, const Ddp__V1__SpawnActivity *said, int64_t now);

#endif
