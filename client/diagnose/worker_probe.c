#include "client/diagnose/worker_probe.h"

#include <string.h>

#include "base/mem.h"
#include "base/worker/process_wait.h"
#include "client/text/term.h"

/* A worker is often a shell or launcher with the real program as its child. This file finds the process that
 * does the work, and judges what it waits in. */

static bool probe_text_is(const char *text, const char *wanted)
{
    return strcmp(text, wanted) == 0;
}

static bool process_is_dead(const Ddp__V1__ProcessProbe *p)
{
    return probe_text_is(p->state, "Z") || probe_text_is(p->state, "X");
}

bool process_probe_halted(const Ddp__V1__ProcessProbe *p)
{
    return probe_text_is(p->state, "T") || probe_text_is(p->state, "t");
}

static bool process_only_waits(const Ddp__V1__ProcessProbe *p)
{
    static const char *const shells[] = {"sh", "bash", "dash"};
    if (probe_text_is(p->waits_in, "wait") || probe_text_is(p->waits_in, "do_wait"))
        return true;
    for (size_t i = 0; i < ARRAY_LEN(shells); i++)
        if (probe_text_is(p->name, shells[i]))
            return true;
    return false;
}

static const Ddp__V1__ProcessProbe *worker_only_child(const Ddp__V1__WorkerProbe *w, int64_t parent)
{
    const Ddp__V1__ProcessProbe *child = NULL;
    for (size_t i = 0; i < w->n_processes; i++) {
        if (w->processes[i]->parent != parent || process_is_dead(w->processes[i]))
            continue;
        if (child) /* with several children, none of them is the one that does the work */
            return NULL;
        child = w->processes[i];
    }
    return child;
}

/* A halted process anywhere in the tree stops the worker, and so does one that is stuck in the kernel.
 * Otherwise the walk goes from the worker's own process to its only child, as long as the process only waits.
 */
const Ddp__V1__ProcessProbe *worker_probe_process(const Ddp__V1__WorkerProbe *w)
{
    const Ddp__V1__ProcessProbe *p = w->n_processes ? w->processes[0] : NULL, *child;
    for (size_t i = 0; i < w->n_processes; i++)
        if (process_probe_halted(w->processes[i]))
            return w->processes[i];
    for (size_t i = 0; i < w->n_processes; i++)
        if (probe_text_is(w->processes[i]->state, "D"))
            return w->processes[i];
    for (size_t depth = 0; p && depth < w->n_processes && process_only_waits(p); depth++) {
        child = worker_only_child(w, p->pid);
        if (!child)
            break;
        p = child;
    }
    return p;
}

const char *process_probe_state(const char *state)
{
    static const char *const names[][2] = {{"R", "running"}, {"S", "asleep"}, {"D", "in kernel"},
                                           {"T", "stopped"}, {"t", "traced"}, {"Z", "zombie"},
                                           {"I", "idle"},    {"X", "dead"}};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (probe_text_is(state, names[i][0]))
            return names[i][1];
    return "";
}

int process_probe_elsewhere(const Ddp__V1__ProcessProbe *p)
{
    return p ? process_wait_own(p->waits_in, p->waits_for) : 0;
}

void worker_probe_name(struct buf *out, const Ddp__V1__WorkerProbe *w)
{
    term_printf_safe(out, "rank %d on %s", w->rank, w->node);
}

int64_t worker_probe_quiet_ms(const Ddp__V1__WorkerProbe *w)
{
    if (w->output_age_ms < 0 || (w->report_age_ms >= 0 && w->report_age_ms < w->output_age_ms))
        return w->report_age_ms;
    return w->output_age_ms;
}
