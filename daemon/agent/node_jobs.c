#include "daemon/agent/node_jobs.h"

#include <stdlib.h>

#include "base/mem.h"
#include "daemon/agent/reconcile.h"

bool node_jobs_wants(void *agent, int64_t job)
{
    struct agent *a = agent;

    return wish_group(a->wish.wish, job) != NULL;
}

int64_t *node_jobs_live(void *agent, size_t *count)
{
    struct agent *a = agent;
    const Ddp__V1__Wish *wish = a->wish.wish;
    size_t known_count;
    const struct spawn_fact **known = supervisors_known(a->supervisors, &known_count);
    int64_t *jobs = xcalloc(known_count + (wish ? wish->n_groups : 0) + 1, sizeof(*jobs));

    *count = 0;
    for (size_t i = 0; i < known_count; i++)
        jobs[(*count)++] = known[i]->job;
    for (size_t i = 0; wish && i < wish->n_groups; i++)
        jobs[(*count)++] = wish->groups[i]->job;
    free(known);
    return jobs;
}

static void known_free(const struct spawn_fact ***known)
{
    free(*known);
}

bool node_jobs_log_ended(void *agent, int64_t job, int64_t first_generation, int first_local_rank)
{
    struct agent *a = agent;
    const Ddp__V1__GroupWish *group = wish_group(a->wish.wish, job);
    size_t count;
    CLEANUP(known_free) const struct spawn_fact **known = supervisors_known(a->supervisors, &count);

    for (size_t i = 0; i < count; i++)
        if (known[i]->job == job && known[i]->first_generation == first_generation &&
            known[i]->first_local_rank == first_local_rank && known[i]->state != SPAWN_EXITED)
            return false;
    for (size_t i = 0; group && i < group->n_spawns; i++) {
        const Ddp__V1__SpawnWish *s = group->spawns[i];

        if (wish_first_generation(s) == first_generation && wish_first_local_rank(s) == first_local_rank &&
            reconcile_pending(group, s) && !supervisors_know(a->supervisors, job, s->spawn))
            return false; /* about to start: its log is still to come */
    }
    return true;
}

int64_t node_jobs_send_log_tails(struct agent *a, int64_t now)
{
    size_t count;
    CLEANUP(known_free) const struct spawn_fact **known = supervisors_known(a->supervisors, &count);
    struct log_tail_worker *workers = xcalloc(count + 1, sizeof(*workers));
    int64_t due;

    for (size_t i = 0; i < count; i++)
        workers[i] = (struct log_tail_worker){.job = known[i]->job,
                                              .spawn = known[i]->spawn,
                                              .first_generation = known[i]->first_generation,
                                              .first_local_rank = known[i]->first_local_rank,
                                              .exited = known[i]->state == SPAWN_EXITED};
    due = log_tail_sender_run(a->log_tails, workers, count, now);
    free(workers);
    return due;
}

static bool fact_is_live(const struct spawn_fact *fact)
{
    return fact->pid > 0 && (fact->state == SPAWN_RUNNING || fact->state == SPAWN_STOPPING);
}

void node_jobs_monitor(struct agent *a)
{
    size_t count, live = 0;
    const struct spawn_fact **known = supervisors_known(a->supervisors, &count);
    struct monitored_worker *list = xcalloc(count + 1, sizeof(*list));

    for (size_t i = 0; i < count; i++) {
        const struct spawn_fact *fact = known[i];
        const Ddp__V1__GroupWish *group = wish_group(a->wish.wish, known[i]->job);

        if (fact_is_live(fact))
            list[live++] = (struct monitored_worker){.job = known[i]->job,
                                                     .spawn = fact->spawn,
                                                     .pid = fact->pid,
                                                     .first_generation = fact->first_generation,
                                                     .first_local_rank = fact->first_local_rank,
                                                     .cgroup = (char *)(uintptr_t)fact->cgroup,
                                                     .stall_timeout_ms = group ? group->stall_timeout_ms : 0};
    }
    worker_monitor_set(a->monitor, list, live);
    free(list);
    free(known);
}
