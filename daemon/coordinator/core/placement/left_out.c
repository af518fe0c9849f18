#include "daemon/coordinator/core/placement/left_out.h"

#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "daemon/coordinator/core/emit.h"
#include "daemon/coordinator/core/model.h"

#define FIRST_MS 300000
#define MOST_MS (4 * INT64_C(3600000))

static struct left_out *left_out_find(const struct job *job, const char *node)
{
    for (size_t i = 0; i < job->left_out_count; i++)
        if (!strcmp(job->left_out[i].node, node))
            return &job->left_out[i];
    return NULL;
}

const char *left_out_problem(const struct job *job, const struct node *node)
{
    const struct left_out *n = left_out_find(job, node->r.name);

    return n && n->until ? n->why : NULL;
}

/* Whether the job has to stop before it can start on another node. */
static bool stops_to_grow(const struct job *job)
{
    return job->spec.kind == JOB_COMMAND || !job->spec.max_replacements;
}

/* To try the node again, the job would be stopped now, although the node may still lack the same. */
static bool try_costs_work(const struct job *job)
{
    return stops_to_grow(job) && job->r.state != JOB_RECOVERING;
}

void left_out_add(struct core *core, struct job *job, const char *node, const char *why)
{
    struct left_out *n = left_out_find(job, node);

    if (!n) {
        job->left_out =
            array_grow(job->left_out, job->left_out_count, &job->left_out_cap, sizeof(*job->left_out));
        n = &job->left_out[job->left_out_count++];
        *n = (struct left_out){.node = xstrdup(node)};
    }
    n->pause_ms = !n->pause_ms ? FIRST_MS : n->pause_ms < MOST_MS / 2 ? 2 * n->pause_ms : MOST_MS;
    n->until = core->now.boot_ms + n->pause_ms;
    text_set(&n->why, "%s", why);
    if (stops_to_grow(job))
        emit_event(core, job, "node_left_out", "%s is left out, because the job could not run there", node);
    else
        emit_event(core, job, "node_left_out", "%s is left out for %s, because the job could not run there",
                   node, text_duration(n->pause_ms).text);
    core_wake(core, n->until);
    core_capacity_changed(core);
}

static void try_again(struct core *core, struct job *job, struct left_out *n)
{
    n->until = 0;
    job->changed = true;
    core_capacity_changed(core);
}

void left_out_node_back(struct core *core, const char *node)
{
    for (size_t i = 0; i < core->job_count; i++) {
        struct left_out *n = left_out_find(core->jobs[i], node);
        if (n && n->until)
            try_again(core, core->jobs[i], n);
    }
}

void left_out_forget(struct core *core, struct job *job)
{
    for (size_t i = 0; i < job->left_out_count; i++) {
        job->left_out[i].pause_ms = 0;
        try_again(core, job, &job->left_out[i]);
    }
}

void left_out_tick(struct core *core, struct job *job)
{
    for (size_t i = 0; i < job->left_out_count && !try_costs_work(job); i++)
        if (job->left_out[i].until && core->now.boot_ms >= job->left_out[i].until)
            try_again(core, job, &job->left_out[i]);
}

int64_t left_out_deadline(const struct job *job)
{
    int64_t at = INT64_MAX;

    for (size_t i = 0; i < job->left_out_count && !try_costs_work(job); i++)
        if (job->left_out[i].until && job->left_out[i].until < at)
            at = job->left_out[i].until;
    return at;
}

void left_out_notes(const struct core *core, const struct job *job, struct core_job_status *out)
{
    for (size_t i = 0; i < job->left_out_count && !job_finished(job); i++) {
        const struct left_out *n = &job->left_out[i];
        if (!n->until)
            continue;
        CLEANUP(free_text) char *note = NULL;
        if (try_costs_work(job))
            note = xasprintf("%s is left out while the job runs: %s", n->node, n->why);
        else
            note = xasprintf("%s is left out for another %s: %s", n->node,
                             text_duration(n->until - core->now.boot_ms).text, n->why);
        out->notes = strv_append(out->notes, note);
    }
}
