/* A worker has ended. This module decides whether the exit ends its generation, whether that counts as a
 * restart of the job, whether a restart could help at all, and which rank failed first.
 *
 * The happy path: all ranks exit with 0, each of these exits means nothing bad, and the job succeeds when the
 * last one is settled. Failure modes: the first exit that means something bad ends the generation and is
 * named as its cause; the other ranks then end because of it. When the exit of the real culprit is reported
 * only after that of a victim, the cause is replaced (exit_came_first). */
#include "daemon/coordinator/core/failure/exit_cause.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/worker/exits.h"
#include "daemon/coordinator/core/emit.h"
#include "daemon/coordinator/core/failure/node_fault.h"
#include "daemon/coordinator/core/failure/restart_rule.h"
#include "daemon/coordinator/core/failure/stall.h"
#include "daemon/coordinator/core/generation_end.h"
#include "daemon/coordinator/core/model.h"
#include "daemon/coordinator/core/nodes/accounts.h"
#include "daemon/coordinator/core/nodes/nodes.h"
#include "daemon/coordinator/core/placement/left_out.h"

/* Generations in a row that such a failure may end without counting as a restart. Beyond that it is probably
 * the job's own fault, and retries must end. */
#define PORT_RETRIES 20 /* the master port was in use */
#define NODE_RETRIES 5  /* a node could not start a process */
#define MESSAGE_BYTES 1024
#define TAIL_BYTES 16384
#define WEIGHT_ERROR 2 /* of exit_weight: the program's own exit code */

static char *copy_bounded(const char *text, size_t most)
{
    return text && *text ? xasprintf("%.*s", (int)most, text) : NULL;
}

static void record_exit(struct spawn *s, const struct spawn_fact *fact)
{
    if (!fact) {
        s->r.lost = true;
        text_set(&s->r.message, "%s", "its node does not know it");
        return;
    }
    s->r.exit_known = !fact->lost;
    s->r.lost = fact->lost;
    s->r.stopped = fact->stopped;
    s->r.code = fact->code;
    s->r.signal = fact->signal;
    s->r.out_of_memory = fact->out_of_memory;
    s->r.ended_ms = fact->ended_ms;
    if (fact->started_ms)
        s->r.started_ms = fact->started_ms;
    if (fact->pid)
        s->r.pid = fact->pid;
    /* a worker that was ended because it stood still says so already, which explains more than its SIGTERM */
    if (!s->stalled) {
        free(s->r.message);
        s->r.message = copy_bounded(fact->message, MESSAGE_BYTES);
    }
    free(s->r.stderr_tail);
    s->r.stderr_tail = copy_bounded(fact->stderr_tail, TAIL_BYTES);
}

static void add_to_message(struct spawn *s, const char *more)
{
    CLEANUP(free_text) char *said = steal(s->r.message);

    s->r.message = said ? xasprintf("%s; %s", said, more) : xstrdup(more);
}

/* The trainer found its node unfit before its first step, so another node may well do. */
static bool exit_blames_node(const struct spawn *s, const struct spawn_fact *fact)
{
    return s->job->spec.kind == JOB_TRAIN && !fact->lost && !fact->signal &&
           (fact->code == EXIT_NODE_TROUBLE || fact->code == EXIT_NO_ADDRESS);
}

/* How likely an exit is the cause of a failure, from 0 (it followed from the loss of a peer) to 4 (it is the cause). If one of two
 * exits allows a restart and the other does not, their weights differ, so that the order of their reports does not matter.
 * error: the result of restart_rule_is_error for the exit. */
static int exit_weight(const struct spawn *s, int code, int signal, bool error)
{
    int number = restart_rule_signal(code, signal);

    /* A trainer's exit code says whether it lost a peer or failed by itself. */
    if (s->job->spec.kind == JOB_TRAIN && !signal &&
        (code == EXIT_PEER_LOST || code == EXIT_NO_RESTART || code == EXIT_NODE_TROUBLE ||
         code == EXIT_NO_ADDRESS))
        return code == EXIT_PEER_LOST ? 0 : 4;
    if (restart_rule_gpu_is_sick(s))
        return 4;
    /* Programs that lose a peer often abort in a library or run into SIGPIPE. So a peer's error comes first. */
    if (number)
        return number == SIGABRT || number == SIGPIPE ? 1 : 4;
    /* A program that asks for another try says what it needs, and memory that ran out is known. An error may be a
     * consequence of either. */
    return error ? WEIGHT_ERROR : 3;
}

/* Whether a command that should run ended with 0 because it was stopped, although nobody here has ordered that. The records of
 * a coordinator before a restore had the order. Or its supervisor got a signal, and is too old to say so. */
static bool exit_obeyed_unknown_order(const struct spawn *s, const struct spawn_fact *fact)
{
    return fact->stopped && s->job->spec.kind == JOB_COMMAND && !fact->code && !fact->signal;
}

static bool node_is_synced(const struct core *core, const struct spawn *s)
{
    const struct node *node = core_find_node(core, s->r.node);

    return !node || node->synced;
}

/* "rank 1 cannot run on box2: exit code 78: ddp-trainer: rank 1: /data/text.txt: no such file". Every user sees this text, so it
 * does not quote private logs. */
static void describe_node_fault(const struct spawn *s, const struct spawn_fact *fact, struct buf *text)
{
    const char *tail = fact->stderr_tail ? fact->stderr_tail : "", *last_line = strrchr(tail, '\n');

    buf_printf(text, "rank %d cannot run on %s", s->rank->r.rank, s->r.node);
    if (!fact->not_started)
        buf_printf(text, ": exit code %d", fact->code);
    if (!fact->not_started && *tail && s->job->spec.logs != JOB_LOGS_PRIVATE)
        buf_printf(text, ": %.300s", last_line ? last_line + 1 : tail);
}

/* Says what the exit means to a generation that should still run: fills `cause`, but for its text, which goes
 * to `text`, and counts the job's retries. node_fault: what node_fault_ended says. Returns false if the exit is nothing bad. */
static bool exit_classify(const struct core *core, struct spawn *s, const struct spawn_fact *fact,
                          bool node_fault, struct failure_cause *cause, struct buf *text)
{
    struct job *job = s->job;
    bool native = job->spec.kind == JOB_TRAIN;
    const char *tail = fact && fact->stderr_tail ? fact->stderr_tail : "", *last_line = strrchr(tail, '\n');
    int64_t ago = fact ? core->now.wall_ms - fact->ended_ms : 0;

    cause->spawn = s;
    cause->charged = true;
    cause->exit_code = 125;
    if (!fact && s->doubtful) {
        /* It has ended since the backup, or was never started. A restored database is not the fault of the job. */
        cause->charged = false;
        buf_printf(text, "the restored records have rank %d on %s, but the node does not have it",
                   s->rank->r.rank, s->r.node);
    } else if (!fact || fact->lost) {
        /* Nobody knows how the worker ended, so it may be its own fault. */
        buf_printf(text, "rank %d on %s ended, and its exit code is unknown", s->rank->r.rank, s->r.node);
    } else if (fact->port_busy) {
        /* The coordinator chose the port, and another process took it before rank 0 could bind it. The next
         * generation gets another port. */
        cause->charged = ++job->port_retries > PORT_RETRIES;
        buf_printf(text, "port %d on %s was already in use", s->rank->generation->r.master_port, s->r.node);
    } else if (fact->not_started && fact->no_account) {
        /* The node is excluded for this user (accounts.c), so this cannot repeat there. */
        cause->charged = false;
        buf_printf(text, "%s could not start rank %d", s->r.node, s->rank->r.rank);
    } else if (fact->not_started && fact->node_trouble) {
        /* The node lacks something (memory, descriptors). It rests, and other nodes are tried. A node that cannot keep its wish is
         * not counted, since nothing is placed on it until it can. */
        cause->charged = node_is_synced(core, s) && ++job->node_retries > NODE_RETRIES;
        buf_printf(text, "%s could not start rank %d", s->r.node, s->rank->r.rank);
    } else if (node_fault) {
        /* The job leaves this node out, so this cannot happen again at once. */
        cause->charged = false;
        cause->of_node = true;
        describe_node_fault(s, fact, text);
    } else if (fact->not_started) {
        /* No such command, no such directory: every restart would fail in the same way. */
        cause->fatal = true;
        cause->exit_code = fact->code ? fact->code : 125;
        buf_printf(text, "rank %d could not start on %s", s->rank->r.rank, s->r.node);
    } else if (fact->lease_expired) {
        /* The supervisor stopped it because nobody renewed the lease: not the fault of the job. */
        cause->charged = false;
        buf_printf(text, "rank %d on %s was stopped when its lease ran out", s->rank->r.rank, s->r.node);
    } else if (fact->interrupted) {
        /* As with a lost node, the exit code says nothing about the program: 0 is not a success, and 1 is not an error. */
        cause->exit_code = fact->signal ? 128 + fact->signal : fact->code ? fact->code : 125;
        buf_printf(text, "rank %d on %s was interrupted: its supervisor was told to stop, as at a shutdown",
                   s->rank->r.rank, s->r.node);
    } else if (exit_obeyed_unknown_order(s, fact)) {
        cause->charged = false; /* lost records are not the fault of the job */
        buf_printf(text, "rank %d on %s was stopped by a request that the restored records do not have",
                   s->rank->r.rank, s->r.node);
    } else if (exit_blames_node(s, fact)) {
        cause->charged = ++job->node_retries > NODE_RETRIES;
        if (fact->code == EXIT_NODE_TROUBLE)
            buf_printf(text, "%s allows rank %d too few open files (ulimit -n)", s->r.node, s->rank->r.rank);
        else
            buf_printf(text, "rank %d on %s cannot resolve the coordinator's name: %.300s", s->rank->r.rank,
                       s->r.node, last_line ? last_line + 1 : tail);
    } else if (fact->code || fact->signal) {
        cause->exit_code = fact->signal ? 128 + fact->signal : fact->code;
        buf_printf(text, "rank %d ", s->rank->r.rank);
        if (fact->out_of_memory)
            buf_puts(text, "ran out of memory, ");
        buf_printf(text, fact->signal ? "killed by signal %d on %s" : "exited with code %d on %s",
                   fact->signal ? fact->signal : fact->code, s->r.node);
        if (ago >= 0 && ago < 60000) /* otherwise the two clocks disagree */
            buf_printf(text, ", noticed after %s", text_duration(ago).text);
        /* A trainer says by this code that a restart would only repeat the failure (bad input, a loss of
         * nan). */
        cause->fatal = native && !fact->signal && fact->code == EXIT_NO_RESTART;
        cause->error = restart_rule_is_error(s, fact);
        cause->follows = !native && exit_weight(s, fact->code, fact->signal, cause->error) < WEIGHT_ERROR;
    } else if (native && s->rank->generation->r.state != GENERATION_RUNNING) {
        /* Exit code 0 is a failure too: a trainer that leaves before the first step has trained nothing, and
         * its peers would wait for it until the join timeout. */
        buf_printf(text, "rank %d exited on %s before all ranks had joined", s->rank->r.rank, s->r.node);
    } else {
        return false;
    }
    /* Nothing that a worker wrote can be about the signal that killed it. */
    if (fact && fact->message && *fact->message && (fact->not_started || !fact->signal))
        buf_printf(text, ": %.300s", fact->message);
    return true;
}

/* Whether this exit is the real cause of a failure for which another rank was named. When a worker dies, its
 * sockets close before its supervisor can reap it, so a peer that failed because of it may be reported first.
 * The name then passes to this worker, if it ended by itself and its exit is the more likely cause. */
static bool exit_came_first(const struct spawn *s, const struct spawn_fact *fact)
{
    const struct job *job = s->job;
    const struct generation *g = s->rank->generation;
    const struct spawn *seen = g->r.failed_spawn ? job_find_spawn(job, g->r.failed_spawn) : NULL;

    /* A failure that does not count as a restart (a port in use, an expired lease) has no culprit among the
     * ranks. */
    if (g != job_current(job) || g->r.state != GENERATION_FAILED || !g->r.charged)
        return false;
    /* A rank that stood still was found by looking at all ranks: that cannot have been seen too early. */
    if (!seen || !seen->r.exit_known || seen->stalled)
        return false;
    if (!job->r.reason || !g->r.reason || strcmp(job->r.reason, g->r.reason) != 0)
        return false; /* a user or a time limit has ended the job since, and that is its reason now */
    /* The job would fail because of a peer's exit code. If this worker ran and nobody saw its end, its supervisor or
     * node was lost, and that caused the peer's error. */
    if (restart_rule_waits(job) && (!fact || fact->lost) && s->r.pid)
        return true;
    /* The first one named was stopped after that, or interrupted: either is certain to be a cause. */
    if (seen->r.stopped)
        return false;
    /* A peer that lost this worker may have been reported before it. */
    if (fact && fact->interrupted && !fact->lease_expired)
        return exit_weight(seen, seen->r.code, seen->r.signal, g->r.error) < 4;
    /* It did not end by itself: it was told to stop, like every rank of a failed generation. */
    if (!fact || fact->stopped || fact->lost || fact->not_started || fact->port_busy || fact->lease_expired)
        return false;
    return (fact->code || fact->signal) &&
           exit_weight(s, fact->code, fact->signal, restart_rule_is_error(s, fact)) >
               exit_weight(seen, seen->r.code, seen->r.signal, g->r.error);
}

void exit_cause_apply(struct core *core, struct spawn *s, const struct spawn_fact *fact)
{
    struct generation *g = s->rank->generation;
    struct failure_cause cause = {0};
    CLEANUP(buf_release) struct buf text = {0}, still = {0};
    /* Workers of a generation that drains or has ended are expected to exit, with whatever code. */
    bool meant_to_run = g == job_current(s->job) && generation_open(g) && g->r.state != GENERATION_DRAINING;
    const bool node_fault = g == job_current(s->job) && node_fault_ended(core, s, fact);
    bool bad = meant_to_run && exit_classify(core, s, fact, node_fault, &cause, &text);
    bool replaces = false;
    /* The fault of another node has closed the generation. That of this node is known now, too, without another try. */
    const bool closed_for_node = node_fault && g->r.state == GENERATION_CLOSED && g->r.failed_spawn;
    if (closed_for_node)
        describe_node_fault(s, fact, &text);

    if (bad && s->rank->generation->r.state == GENERATION_RUNNING && fact &&
        (fact->code || fact->signal == SIGABRT)) /* libraries abort when a collective takes too long */
        stall_name_rank(core, s, fact->stderr_tail ? fact->stderr_tail : "", &still);
    if (still.len)
        buf_printf(&text, "; %s", still.data);

    if (exit_came_first(s, fact) && exit_classify(core, s, fact, node_fault, &cause, &text)) {
        replaces = true;
        cause.text = text.data;
        generation_replace_cause(core, s->rank->generation, &cause);
    }
    if (spawn_is_late(s))
        emit_event(core, s->job, "late_rank_ended",
                   "rank %d (%s), which was late, has ended: its change is dropped", s->rank->r.rank,
                   s->r.node);
    /* Done before the generation fails, so that this worker does not count as one of its living workers. */
    record_exit(s, fact);
    if (still.len)
        add_to_message(s, still.data);
    spawn_mark_dead(core, s);
    if (fact && fact->no_account && s->node)
        accounts_refused(core, s->node, s->job, fact->message);
    else if (fact && (fact->node_trouble || exit_blames_node(s, fact)) && s->node)
        nodes_rest(core, s->node);
    if (bad) {
        cause.text = text.data;
        generation_fail(core, g, &cause);
    }
    if (node_fault && (bad || replaces || closed_for_node) && s->job->r.state == JOB_RECOVERING)
        left_out_add(core, s->job, s->r.node, text.data);
}
