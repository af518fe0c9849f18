#include "daemon/coordinator/core/notices.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/mem.h"
#include "daemon/coordinator/core/emit.h"
#include "daemon/coordinator/core/model.h"

const char *const notice_names[] = {"started",   "restarted", "stalled",  "succeeded", "failed", "cancelled",
                                    "node_lost", "drained",   "gpu_sick", "gpus_idle", NULL};

/* What a job's own `tell` hears. */
#define TELL_KINDS                                                                                           \
    (1u << NOTICE_RESTARTED | 1u << NOTICE_STALLED | 1u << NOTICE_SUCCEEDED | 1u << NOTICE_FAILED |          \
     1u << NOTICE_CANCELLED | 1u << NOTICE_GPUS_IDLE)

static bool pattern_list_has(char *const *patterns, const char *text)
{
    if (!patterns)
        return true;
    for (; *patterns; patterns++)
        if (fnmatch(*patterns, text, 0) == 0)
            return true;
    return false;
}

/* job NULL: an event of a node. */
static bool hook_wants(const struct core_hook *hook, const struct job *job, enum notice_kind kind)
{
    if (!(hook->on & 1u << kind))
        return false;
    if (!job)
        return !hook->users && !hook->jobs;
    return pattern_list_has(hook->users, job->r.user ? job->r.user : "") &&
           pattern_list_has(hook->jobs, job->r.name ? job->r.name : "");
}

static bool tell_wants(const struct job *job, enum notice_kind kind)
{
    return job && job->spec.tell && TELL_KINDS & 1u << kind;
}

bool notice_wanted(const struct core *core, const struct job *job, enum notice_kind kind)
{
    for (size_t i = 0; i < core->config.hook_count; i++)
        if (hook_wants(&core->config.hooks[i], job, kind))
            return true;
    return tell_wants(job, kind);
}

static void notice_all(struct core *core, const struct job *job, const char *node, enum notice_kind kind,
                       const char *text)
{
    struct notice_record notice = {
        .time_ms = core->now.wall_ms,
        .job = job ? job->r.id : 0,
        .generation = job ? job->r.generation : 0,
        .what = (char *)notice_names[kind],
        .text = (char *)text,
        .name = job ? job->r.name : NULL,
        .user = job ? job->r.user : NULL,
        .node = (char *)node,
    };

    for (size_t i = 0; i < core->config.hook_count; i++) {
        if (!hook_wants(&core->config.hooks[i], job, kind))
            continue;
        notice.hook = core->config.hooks[i].name;
        emit_notice(core, &notice);
    }
    if (!tell_wants(job, kind))
        return;
    char own[32];
    snprintf(own, sizeof(own), "#%" PRId64, job->r.id);
    notice.hook = own;
    notice.url = job->spec.tell;
    notice.shape = job->spec.tell_as;
    emit_notice(core, &notice);
}

#define TEXT_BYTES 1024

void notice_job(struct core *core, const struct job *job, enum notice_kind kind, const char *fmt, ...)
{
    char text[TEXT_BYTES];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    notice_all(core, job, "", kind, text);
}

void notice_node(struct core *core, const char *node, enum notice_kind kind, const char *fmt, ...)
{
    char text[TEXT_BYTES];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    notice_all(core, NULL, node, kind, text);
}
