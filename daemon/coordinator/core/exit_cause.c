/* What a worker's end means: to the generation that it was a member of, and whose failure it was that ended
 * it.
 */
#include "daemon/coordinator/core/exit_cause.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/exits.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/coordinator/core/accounts.h"
#include "daemon/coordinator/core/emit.h"
#include "daemon/coordinator/core/generation_end.h"
#include "daemon/coordinator/core/model.h"
#include "daemon/coordinator/core/nodes.h"
#include "daemon/coordinator/core/text.h"

#define PORT_RETRIES 20 /* taken ports in a row that are not the job's fault */
#define NODE_RETRIES 5  /* so with nodes that cannot start a process */
#define MESSAGE_BYTES 1024
#define TAIL_BYTES 16384

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
    if (!s->stalled) {
        free(s->r.message);
        s->r.message = copy_bounded(fact->message, MESSAGE_BYTES);
    }
    free(s->r.stderr_tail);
    s->r.stderr_tail = copy_bounded(fact->stderr_tail, TAIL_BYTES);
}

static const char *last_stderr_line(const struct spawn_fact *fact)
{
    const char *tail = fact->stderr_tail ? fact->stderr_tail : "", *end = strrchr(tail, '\n');

    return end ? end + 1 : tail;
}

/* A trainer that found its node unfit before it began. */
static bool exit_blames_node(const struct spawn *s, const struct spawn_fact *fact)
{
    return s->job->spec.kind == JOB_TRAIN && !fact->lost && !fact->signal &&
           (fact->code == EXIT_NODE_TROUBLE || fact->code == EXIT_NO_ADDRESS);
}

/* What the exit means to a generation that is still meant to run; false: nothing bad. */
static bool exit_classify(const struct core *core, struct spawn *s, const struct spawn_fact *fact,
                          struct failure_cause *cause, struct buf *text)
{
    struct job *job = s->job;
    bool native = job->spec.kind == JOB_TRAIN;
    char ago[TEXT_AGO];

    cause->spawn = s;
    cause->charged = true;
    cause->exit_code = 125;
    if (!fact || fact->lost) {
        buf_printf(text, "rank %d on %s was lost: its exit was not seen", s->r.rank, s->r.node);
    } else if (fact->port_busy) {
        cause->charged = ++job->port_retries > PORT_RETRIES;
        buf_printf(text, "port %d on %s was already in use", s->generation->r.master_port, s->r.node);
    } else if (fact->not_started && fact->no_account) {
        cause->charged = false;
        buf_printf(text, "%s could not start rank %d", s->r.node, s->r.rank);
    } else if (fact->not_started && fact->node_trouble) {
        cause->charged = ++job->node_retries > NODE_RETRIES;
        buf_printf(text, "%s could not start rank %d", s->r.node, s->r.rank);
    } else if (fact->not_started) {
        cause->fatal = true;
        cause->exit_code = fact->code ? fact->code : 125;
        buf_printf(text, "rank %d could not start on %s", s->r.rank, s->r.node);
    } else if (fact->lease_expired) {
        cause->charged = false;
        buf_printf(text, "rank %d on %s was stopped when its lease ran out", s->r.rank, s->r.node);
    } else if (exit_blames_node(s, fact)) {
        cause->charged = ++job->node_retries > NODE_RETRIES;
        if (fact->code == EXIT_NODE_TROUBLE)
            buf_printf(text, "%s allows rank %d too few open files (ulimit -n)", s->r.node, s->r.rank);
        else
            buf_printf(text, "rank %d on %s cannot resolve the coordinator's name: %.300s", s->r.rank,
                       s->r.node, last_stderr_line(fact));
    } else if (fact->code || fact->signal) {
        cause->exit_code = fact->signal ? 128 + fact->signal : fact->code;
        buf_printf(text, "rank %d ", s->r.rank);
        if (fact->out_of_memory)
            buf_puts(text, "ran out of memory, ");
        buf_printf(text, fact->signal ? "killed by signal %d on %s" : "exited with code %d on %s",
                   fact->signal ? fact->signal : fact->code, s->r.node);
        buf_puts(text, text_noticed(ago, core->now.wall_ms - fact->ended_ms));
        cause->fatal = native && !fact->signal && fact->code == EXIT_NO_RESTART;
    } else if (native && s->generation->r.state != GENERATION_RUNNING) {
        buf_printf(text, "rank %d exited on %s before all ranks had joined", s->r.rank, s->r.node);
    } else {
        return false;
    }
    if (fact && fact->message && *fact->message && (fact->not_started || !fact->signal))
        buf_printf(text, ": %.300s", fact->message);
    return true;
}

/* How much an end speaks for itself as the cause, against what a peer's end leads to: programs that lose a
 * peer exit with a code, abort, or run into SIGPIPE. A shell's 128 + N is its child's signal, where there is
 * one of that number: 255 is what -1 becomes. A native worker knows what is its own. */
static int exit_weight(const struct job *job, int code, int signal)
{
    int number = signal ? signal : code > 128 && code - 128 <= SIGRTMAX ? code - 128 : 0;

    if (job->spec.kind == JOB_TRAIN && !signal &&
        (code == EXIT_PEER_LOST || code == EXIT_NO_RESTART || code == EXIT_NODE_TROUBLE ||
         code == EXIT_NO_ADDRESS))
        return code == EXIT_PEER_LOST ? 0 : 2;
    return number && number != SIGABRT && number != SIGPIPE ? 2 : 1;
}

/* A member's files are closed before its supervisor can see its end, so that a peer which failed for want of
 * it may be seen first. It is the cause all the same if it ended on its own, and in a way that says so, while
 * the peer's end does not. What was not charged (a taken port, a lease) has a cause of its own. */
static bool exit_came_first(const struct spawn *s, const struct spawn_fact *fact)
{
    const struct job *job = s->job;
    const struct generation *g = s->generation;
    const struct spawn *seen = g->r.failed_spawn ? job_find_spawn(job, g->r.failed_spawn) : NULL;

    if (g != job_current(job) || g->r.state != GENERATION_FAILED || !g->r.charged || !seen ||
        !seen->r.exit_known || seen->stalled)
        return false;
    if (!fact || fact->stopped || fact->lost || fact->not_started || fact->port_busy || fact->lease_expired)
        return false;
    if (!job->r.reason || !g->r.reason || strcmp(job->r.reason, g->r.reason) != 0)
        return false; /* a user, or a time limit, has said something else since */
    return (fact->code || fact->signal) &&
           exit_weight(job, fact->code, fact->signal) > exit_weight(job, seen->r.code, seen->r.signal);
}

/* What followed from the failure stays as it is, charged once; only its name is another, and what that means.
 */
static void replace_cause(struct core *core, struct spawn *s, const struct failure_cause *cause)
{
    struct job *job = s->job;
    struct generation *g = s->generation;

    log_info("cause_found", "job=%" PRId64 " gen=%" PRId64 " rank=%d why=%s", job->r.id, g->r.number,
             s->r.rank, LOG_Q(cause->text));
    g->r.failed_spawn = s->r.spawn;
    text_set(&g->r.reason, "%s", cause->text);
    emit_generation(core, g, CHANGE_GENERATION_PUT);
    emit_event(core, job, "rank_failed", "%s: this failure came first", cause->text);
    text_set(&job->r.reason, "%s", cause->text);
    job->changed = true;
    if (job->r.state == JOB_STOPPING)
        job->r.exit_code = cause->exit_code;
    else
        text_set(&job->r.last_restart, "%.240s", cause->text);
    emit_job(core, job, CHANGE_JOB_PUT);
    if (cause->fatal && job->r.state == JOB_RECOVERING)
        job_stop(core, job, JOB_FAILED, cause->exit_code, false, cause->text);
}

void exit_cause_apply(struct core *core, struct spawn *s, const struct spawn_fact *fact)
{
    struct generation *g = s->generation;
    struct failure_cause cause = {0};
    CLEANUP(buf_release) struct buf text = {0};
    bool meant_to_run = g == job_current(s->job) && generation_open(g) && g->r.state != GENERATION_DRAINING;
    bool bad = meant_to_run && exit_classify(core, s, fact, &cause, &text);

    if (exit_came_first(s, fact) && exit_classify(core, s, fact, &cause, &text)) {
        cause.text = text.data;
        replace_cause(core, s, &cause);
    }
    record_exit(s, fact);
    spawn_mark_dead(core, s);
    if (fact && fact->no_account && s->node)
        accounts_refused(core, s->node, s->job, fact->message);
    else if (fact && (fact->node_trouble || exit_blames_node(s, fact)) && s->node)
        nodes_rest(core, s->node);
    if (bad) {
        cause.text = text.data;
        generation_fail(core, g, &cause);
    }
}
