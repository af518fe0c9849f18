#ifndef DDP_DAEMON_COORDINATOR_SERVICE_LOGS_LOG_STREAM_H
#define DDP_DAEMON_COORDINATOR_SERVICE_LOGS_LOG_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/match/pattern.h"
#include "daemon/coordinator/service/logs/log_gaps.h"
#include "daemon/coordinator/service/logs/log_piece.h"
#include "daemon/coordinator/service/logs/log_tail_read.h"
#include "proto/ddp.pb-c.h"
#include "proto/rpc_server.h"

/* A user's call for logs, and its reads of files. Shared by logs.c, which explains them, log_sources.c and log_copies.c. Loop
 * thread. */

struct service;
struct agent_session;

struct log_read {
    struct log_stream *stream;
    uint64_t handle;
    uint64_t session; /* the agent session that was asked for the current piece; 0: none, or it is gone */
    char *node;
    int rank;
    int64_t spawn, generation; /* in which the spawn has this rank */
    int64_t first_generation, offset;
    int first_local_rank; /* with first_generation: where the agent finds the log of the rank's spawn */
    size_t piece, got;    /* bytes of the current piece: asked for, arrived */
    bool begun;           /* data has arrived: continue at `offset` */
    bool within;          /* `offset` is within a line that matches `grep` */
    bool waits;           /* the agent has sent all that was written */
    bool standard_error;
    bool last;             /* the agent has sent the end of the file */
    bool ended;            /* there is nothing more to do; log_stream_step frees it */
    bool noted;            /* the client was told why its part is incomplete */
    bool started;          /* according to the records, the rank's process was started */
    struct log_piece held; /* data that was not passed to the client yet */
    struct log_read *next;
};

/* A node that cannot be reached. */
struct log_absent_node {
    char *name;
    struct log_absence parts;
};

struct log_stream {
    struct service *service;
    struct rpc_call *rpc;
    int64_t job;
    int64_t generation;                       /* the newest one that was opened; 0: none */
    int64_t tail_bytes, tail_lines, since_ms; /* where to begin in each file; 0: not given */
    char *grep;                               /* what lines must match (base/match/pattern.h); empty: all */
    struct pattern *pattern;                  /* `grep`, compiled to search copies; NULL: all */
    int64_t search_ns;                        /* time that is left to search copies */
    struct log_absent_node *absent; /* nodes that cannot be reached; each gets a note for the client */
    size_t absent_count, absent_cap;
    struct log_gaps gaps;            /* ranks whose nodes have no log of them */
    bool passed, told;               /* the client has received output; has received a note */
    bool incomplete;                 /* requested output is missing: the last message says so */
    size_t read_count, node_reads;   /* node_reads: log_share.c */
    uint64_t pass;                   /* a new number for each look at the reads; see agent_session.log_full */
    int64_t ready_us, next_ready_us; /* output that was written until this time may be passed on */
    int rank;                        /* -1: all */
    int64_t first_generation;
    bool follow, standard_out, standard_error;
    bool newest;        /* the request named no generation */
    bool all;           /* all generations, from `first_generation` on */
    bool holds;         /* new output waits for a tick */
    bool times;         /* the client wants to know when its data was written */
    bool due;           /* log_stream_step has something to do */
    bool nodes_changed; /* a session began or ended, or a node is lost */
    struct log_read *reads;
    Ddp__V1__LogPlace *places; /* where the client wants to continue */
    size_t place_count;
    struct log_stream *next, *prev;
};

/* logs.c */
/* If the client reads slowly, the note is dropped, so that no queue is needed. rank -1: of no rank. */
void log_stream_note(struct log_stream *x, int rank, int64_t generation, const char *note);
bool log_stream_job_ended(const struct log_stream *x);
void log_stream_drop_reads(struct log_stream *x); /* and tells the agents */
/* If the read's piece has come and was not passed on yet: ends the read at the agent, so that another one can take its place.
 * It is asked for again, from its offset, when its piece was passed on. */
bool log_read_park(struct log_read *r, struct agent_session *session);

/* log_sources.c */
/* Where the client wants to continue: one place for each log, in any order. Only the size of a message limits their
 * number. */
void log_stream_take_places(struct log_stream *x, Ddp__V1__LogPlace *const *places, size_t count);
/* Opens the reads of the generation `wanted`. For 0, opens the newest one or, if one is open already, all
 * that have started since. */
MUST_CHECK enum err_code log_stream_open_generations(struct log_stream *x, int64_t wanted, struct err *e);

/* log_copies.c */
void log_read_take_copy(struct log_read *r);       /* ends the read with the coordinator's copy of its log */
void log_stream_tell_absent(struct log_stream *x); /* one note for each node whose copies were used */
/* At the end: notes that say why output is missing. A second call does nothing. The client itself reports output that its
 * options left out. */
void log_stream_explain(struct log_stream *x);

#endif
