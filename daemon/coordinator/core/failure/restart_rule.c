/* Tells a fault from an error of the program, and an error from its repetition.
 *
 * A fault is a lost node, GPU or supervisor, a signal that ddp did not send, memory that ran out, a rank that stands
 * still, or an exit code that asks for another try. All other exit codes are errors of the program: the next
 * generation would most likely end in the same way. With `restart_on: any` the job restarts even so, until the same error
 * comes twice. */
#include "daemon/coordinator/core/failure/restart_rule.h"

#include <inttypes.h>
#include <signal.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/worker/exits.h"
#include "daemon/coordinator/core/nodes/inventory.h"

/* An error this soon after the start comes from how the program starts, whatever step it had reached. */
#define SOON_MS 10000

int restart_rule_signal(int code, int signal)
{
    /* 255 is not such a code: programs that return -1 exit with it. */
    return signal ? signal : code > 128 && code - 128 <= SIGRTMAX ? code - 128 : 0;
}

bool restart_rule_gpu_is_sick(const struct spawn *s)
{
    for (char **uuid = s->node ? s->r.gpu_uuids : NULL; uuid && *uuid; uuid++) {
        const struct core_gpu *gpu = inventory_find(s->node, *uuid);
        if (gpu && !gpu->healthy)
            return true;
    }
    return false;
}

bool restart_rule_is_error(const struct spawn *s, const struct spawn_fact *fact)
{
    if (!fact || fact->lost || fact->out_of_memory || restart_rule_signal(fact->code, fact->signal))
        return false;
    /* A trainer tells errors that a restart would repeat by a code of their own, which always ends the job. Its
     * other failures are those of a device, a file or a connection. */
    if (s->job->spec.kind == JOB_TRAIN)
        return fact->code == EXIT_USAGE;
    /* What a program says when its GPU fails is not known, but the GPU's node has reported the GPU. */
    return fact->code && fact->code != EXIT_TRY_AGAIN && !restart_rule_gpu_is_sick(s);
}

/* ---- the same failure twice */

/* The last line that is not empty, and its length; NULL: there is none. */
static const char *find_last_line(const char *text, size_t *len)
{
    size_t end = text ? strlen(text) : 0, start;

    while (end && strchr(" \t\r\n", text[end - 1]))
        end--;
    for (start = end; start && text[start - 1] != '\n';)
        start--;
    *len = end - start;
    return *len ? text + start : NULL;
}

/* Without a line on stderr, nothing shows that two failures are the same one. */
static bool exits_look_alike(const struct spawn_record *a, const struct spawn_record *b)
{
    size_t n, m;
    const char *x = find_last_line(a->stderr_tail, &n), *y = find_last_line(b->stderr_tail, &m);

    return a->code == b->code && x && y && n == m && !memcmp(x, y, n);
}

/* Both times are those of the worker's node. */
static bool ended_soon(const struct spawn_record *s)
{
    return s->started_ms && s->ended_ms >= s->started_ms && s->ended_ms - s->started_ms < SOON_MS;
}

static const struct spawn_record *find_culprit_of(const struct generation *g)
{
    const struct spawn *s = job_find_spawn(g->job, g->r.failed_spawn);

    return s ? &s->r : NULL;
}

/* The last generation before `g` that an error ended. Faults and drains in between prove nothing about the program. */
static const struct generation *find_error_before(const struct generation *g)
{
    for (size_t i = g->job->generation_count; i-- > 0;) {
        const struct generation *other = g->job->generations[i];
        if (other->r.number < g->r.number && other->r.error)
            return other;
    }
    return NULL;
}

static bool generations_fail_alike(const struct generation *first, const struct generation *second)
{
    const struct spawn_record *a = find_culprit_of(first), *b = find_culprit_of(second);
    bool same_step = first->r.has_step && second->r.has_step && first->r.last_step == second->r.last_step;

    return a && b && exits_look_alike(a, b) && ((ended_soon(a) && ended_soon(b)) || same_step);
}

/* ---- what follows */

enum restart_refusal restart_rule_refuses(const struct job *job)
{
    const struct generation *g = job_current(job), *before;

    if (!g || !g->r.error)
        return REFUSAL_NONE;
    if (job->spec.restart_on == RESTART_ON_FAULT)
        return REFUSAL_ERROR;
    before = find_error_before(g);
    return before && generations_fail_alike(before, g) ? REFUSAL_REPEAT : REFUSAL_NONE;
}

bool restart_rule_waits(const struct job *job)
{
    return job->r.state == JOB_RECOVERING && restart_rule_refuses(job) != REFUSAL_NONE;
}

/* "failed twice in the same way: exit code 1 and the last line 'ValueError: no such shard' on stderr, within 10 s of
 * the start of generation 1 and of generation 2: not restarted". Every user sees this text, so it does not quote private
 * logs. */
static void explain_repeat(const struct job *job, struct buf *out)
{
    const struct generation *g = job_current(job), *before = find_error_before(g);
    const struct spawn_record *s = find_culprit_of(g);
    size_t len;
    const char *line = find_last_line(s->stderr_tail, &len);

    buf_printf(out, "failed twice in the same way: exit code %d and the ", s->code);
    if (job->spec.logs == JOB_LOGS_PRIVATE)
        buf_puts(out, "same last line on stderr, ");
    else
        buf_printf(out, "last line '%.*s' on stderr, ", (int)(len < 200 ? len : 200), line);
    if (ended_soon(s) && ended_soon(find_culprit_of(before)))
        buf_printf(out, "within %d s of the start of generation %" PRId64 " and of generation %" PRId64,
                   SOON_MS / 1000, before->r.number, g->r.number);
    else
        buf_printf(out, "at step %s of generation %" PRId64 " and of generation %" PRId64,
                   text_count(g->r.last_step).text, before->r.number, g->r.number);
    buf_puts(out, ": not restarted; correct the program, then start the job again");
}

char *restart_rule_explain(const struct job *job)
{
    const struct generation *g = job_current(job);
    enum restart_refusal refusal = restart_rule_refuses(job);
    struct buf out = {0};

    /* If no restart was left, that alone has ended the job. */
    if (refusal == REFUSAL_NONE || job->r.restarts_used >= job->spec.max_restarts)
        return NULL;
    /* A user or the time limit may have ended it meanwhile. */
    if (!job->r.reason || !g->r.reason || strcmp(job->r.reason, g->r.reason) != 0)
        return NULL;
    if (refusal == REFUSAL_REPEAT)
        explain_repeat(job, &out);
    else
        buf_puts(
            &out,
            "not restarted, because the program itself failed (restart_on: fault); --restart-on any restarts "
            "it after errors, too");
    return buf_steal(&out);
}
