#include "daemon/agent/observe/worker_activity.h"

#include <stdlib.h>
#include <string.h>

#include "proto/rpc_codec.h"

#define BUSY_SHARE 50   /* a busy worker uses at least this part of the time: 2 % */
#define STEADY_MS 700   /* samples closer together say little: the kernel counts CPU time in ticks of 10 ms */
#define IDLE_MS 1500    /* without CPU time, until it counts as idle */
#define SILENT_MS 30000 /* without output or report, until it counts as silent */
#define MOVED_MS 500    /* a time that differs by more is told again */
#define CPU_RATIO 4     /* CPU time that grows or shrinks by more than this factor is reported again ... */
#define CPU_SLACK 100   /* ... if it differs by more than about this, too; permille of a core */
#define CPU_COMPUTES                                                                                         \
    250 /* ... or if it crosses this limit, from which the coordinator says that a rank computes (stall.c) */
#define CPU_PAUSE 5000 /* ms from the last message to a message with only a change of CPU time */

void worker_activity_update(struct worker_activity *a, const struct worker_sample *sample, int64_t at)
{
    int64_t used = sample->cpu_ms - a->cpu_ms, passed = at - a->cpu_at;

    if (!sample->there) /* it has just ended: its supervisor will say so */
        return;
    a->stuck = sample->stuck;
    a->output_ms = sample->output_ms;
    if (sample->wait) {
        memcpy(a->call, sample->call, sizeof(a->call));
        memcpy(a->target, sample->target, sizeof(a->target));
        memcpy(a->stack, sample->stack, sizeof(a->stack));
        a->own_wait = sample->own_wait;
    }
    /* too soon after the last counted sample (a probe takes one at once), and not clearly busy */
    if (a->seen && passed < STEADY_MS && used < STEADY_MS / 4)
        return;
    /* less CPU time than before: a child has ended, and no parent has waited for it, so its time is gone */
    if (!a->seen || used < 0 || used * BUSY_SHARE >= passed)
        a->busy_at = at;
    a->cpu_permille = a->seen && used > 0 && passed > 0 ? (int)(used * 1000 / passed) : 0;
    a->seen = true;
    a->cpu_ms = sample->cpu_ms;
    a->cpu_at = at;
}

/* The time since which there was neither output nor report. */
static int64_t silence_start(const struct worker_activity *a, int64_t now, int64_t wall)
{
    int64_t age = a->output_ms ? wall - a->output_ms : INT64_MAX;

    if (a->report_at && now - a->report_at < age)
        age = now - a->report_at;
    /* no output yet: it may still be starting. A negative age: the wall clock was set back */
    if (age == INT64_MAX || age < 0)
        age = 0;
    return now - age;
}

/* A short stall_timeout must not pass before the coordinator has heard of the silence. */
static int64_t silence_threshold(int64_t stall_timeout_ms)
{
    int64_t half = stall_timeout_ms / 2;

    return half && half < SILENT_MS ? half : SILENT_MS;
}

static bool time_moved(int64_t a, int64_t b)
{
    return (!a != !b) || llabs((long long)(a - b)) > MOVED_MS;
}

/* The coordinator compares the ranks of a job by ratio and with CPU_COMPUTES (stall.c), and acts on the result only with a stall_timeout.
 * The CPU time of a worker with several threads may change in each sample. So changes of CPU time are sent with
 * pauses. A short stall_timeout shortens the pause. */
static bool cpu_moved(const struct worker_activity *a, int cpu, int64_t stall_timeout_ms, int64_t now)
{
    const int64_t quarter = stall_timeout_ms / 4;

    if (!stall_timeout_ms || now - a->told_at < (quarter < CPU_PAUSE ? quarter : CPU_PAUSE))
        return false;
    if ((cpu >= CPU_COMPUTES) != (a->told_cpu >= CPU_COMPUTES))
        return true;
    return cpu > CPU_RATIO * a->told_cpu + CPU_SLACK || a->told_cpu > CPU_RATIO * cpu + CPU_SLACK;
}

bool worker_activity_dozes(const struct worker_activity *a, int64_t now)
{
    return a->seen && now - a->busy_at >= STEADY_MS;
}

bool worker_activity_tell(struct worker_activity *a, int64_t stall_timeout_ms, int64_t now, int64_t wall,
                          Ddp__V1__SpawnActivity *out)
{
    int64_t silent = silence_start(a, now, wall), idle = a->busy_at;
    char stuck;
    bool news;

    silent = a->seen && now - silent >= silence_threshold(stall_timeout_ms) ? silent : 0;
    idle = a->seen && now - idle >= IDLE_MS ? idle : 0;
    stuck = idle ? a->stuck : 0; /* a busy worker may wait for a disk at the moment of a sample */
    int own = idle ? a->own_wait : 0, cpu = silent ? a->cpu_permille : 0;
    if (silent && !idle && !cpu)
        cpu = 1; /* 0 means that the agent does not know */
    news = time_moved(silent, a->told_silent) || time_moved(idle, a->told_idle) || stuck != a->told_stuck ||
           own != a->told_own || cpu_moved(a, cpu, stall_timeout_ms, now);
    a->told_own = own;
    a->told_silent = silent;
    a->told_idle = idle;
    a->told_stuck = stuck;
    ddp__v1__spawn_activity__init(out);
    out->idle_ms = idle ? now - idle : -1;
    out->silent_ms = silent ? now - silent : -1;
    out->waits_in = idle ? a->call : (char *)"";
    out->waits_for = idle ? rpc_utf8_clean(a->target) : (char *)"";
    out->stack = idle ? a->stack : (char *)"";
    out->own_wait = own;
    out->cpu_permille = cpu;
    out->state = (char *)(stuck == 'T' ? "T" : stuck == 'D' ? "D" : "");
    return news;
}

void worker_activity_sent(struct worker_activity *a, const Ddp__V1__SpawnActivity *said, int64_t now)
{
    a->told_cpu = said->cpu_permille;
    a->told_at = now;
}
