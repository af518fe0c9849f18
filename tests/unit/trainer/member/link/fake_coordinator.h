#ifndef DDP_TESTS_UNIT_TRAINER_MEMBER_LINK_FAKE_COORDINATOR_H
#define DDP_TESTS_UNIT_TRAINER_MEMBER_LINK_FAKE_COORDINATOR_H

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"

/* A fake coordinator for the tests of a worker's link. It serves the calls that a worker of job 5 makes, on a
 * Unix socket and on a thread of its own, between fake_coordinator_open and fake_coordinator_close. A test
 * sets in `fake` what the coordinator answers, and reads there what the worker has sent: the atomic fields at
 * any time, the others once the call that fills them has returned. */

struct link;

extern struct fake_coordinator {
    /* what it answers */
    atomic_int refuse;     /* Join, CommitSnapshot and ReportSnapshotFailure fail with this code; 0: none */
    atomic_int generation; /* the generation that the worker is a member of */
    atomic_int pending;    /* so many Joins are answered with "pending" */
    atomic_int pending_commits;  /* so many commits are answered with "call again" */
    atomic_int refused_watch;    /* a Watch of this generation is refused, since it has not formed yet */
    atomic_bool short_watches;   /* a Watch ends after its first message */
    atomic_bool mute_watches;    /* a Watch gets no message before the test sends one */
    atomic_int watch_generation; /* a Watch reports this generation as the current one, */
    atomic_int watch_stop;       /* and with 1 that the worker shall stop */
    atomic_bool watch_wait;      /* a Watch reports that the generation is over and the worker is to wait, */
    atomic_bool watch_member_waits; /* or that it is to wait, although the generation goes on, */
    atomic_bool watch_next;         /* or that it is a member of watch_generation, as rank watch_rank */
    atomic_int watch_rank;
    atomic_int watch_handover; /* a Watch asks the worker to wait for this hand-over; 0: it does not */
    atomic_bool
        alone; /* the worker is the only rank; if it says that it has a state, it goes on from memory */
    atomic_bool old_parts; /* a Watch does not say that parts are counted */
    atomic_int revision;   /* of the job file; 0: the job was never tuned */
    /* what has arrived */
    atomic_int failed_step;                         /* of the last ReportSnapshotFailure */
    atomic_int failure_waits_ms;                    /* of the same */
    atomic_int watched_failure;                     /* the failed step of the last Watch */
    atomic_int joins, bootstraps, watches, commits; /* the number of calls */
    atomic_int parts, committed_step;               /* of the last commit */
    atomic_int first_committed_step;                /* of the first commit since a test set it to 0 */
    atomic_bool joined_stays, watched_stays;        /* of the last Join and the last Watch */
    atomic_bool watched_broken;                     /* of the last Watch */
    atomic_int live_step, watched_generation;       /* the same */
    atomic_int watched_ready, watched_gathered;     /* of the last Watch */
    uint8_t bootstrap[4096], address[64];
    atomic_size_t bootstrap_size, address_size;
    atomic_int told_revision, told_step; /* by the last Watch: the revision in use, and since when */
    char offered[64];                    /* by the last Join: "PATH@STEP" of its first snapshot */
    char unusable[64]; /* by the last Join: the last snapshot that the worker could not load */
    char said[64];     /* by the last Join: "VERSION COMPUTES" */
    char digest[80];   /* by the last commit: "DIGEST@STEP" */
    char failure[128]; /* by the last ReportSnapshotFailure: "STEP: REASON" */
} fake;

/* The setup and teardown of a group of tests: they make and remove the directory of the socket. */
extern char fake_directory[], fake_target[80]; /* the target is the address that workers connect to */
int fake_coordinator_make_directory(void **state);
int fake_coordinator_remove_directory(void **state);
/* The setup of each test: clears `fake`, and sets the environment of rank 0 of 2 in generation 4. */
int fake_coordinator_reset(void **state);

void fake_coordinator_open(void);
void fake_coordinator_close(void);
void fake_coordinator_send_watch(void); /* sends watch_generation and watch_stop to the worker that watches */

/* Puts a pipe with these bytes into the environment, as the token that the next link_open reads. */
void worker_give_token(const char *bytes, size_t size);
struct link *worker_link_open(void); /* opens a link with the token that the fake coordinator accepts */

/* Waits up to 20 s for the condition. If it does not come true, the program aborts: the worker's threads still run, and
 * the next test would change what they use. ThreadSanitizer reports threads that still run at an exit, but not at an abort. */
#define WAIT_FOR(cond)                                                                                       \
    do {                                                                                                     \
        int64_t until_ = clock_boot_ms() + 20000;                                                            \
        while (!(cond) && clock_boot_ms() < until_)                                                          \
            sched_yield();                                                                                   \
        if (!(cond)) {                                                                                       \
            fprintf(stderr, "%s:%d: not within 20 s: %s\n", __FILE__, __LINE__, #cond);                      \
            abort();                                                                                         \
        }                                                                                                    \
    } while (0)

#endif
