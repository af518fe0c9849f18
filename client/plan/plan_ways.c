#include "client/plan/plan_ways.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/job/sync_choice.h"
#include "base/mem.h"
#include "client/cmd/submit/job_text.h"
#include "client/plan/plan_trainer.h"

static const struct {
    enum sync_type type;
    const char *name, *shard, *sync; /* sync: if the job's own strategy is another one */
} ways[PLAN_WAYS] = {
    {SYNC_ALLREDUCE, "allreduce", "train.shard=none", "train.sync={type: allreduce}"},
    {SYNC_ALLREDUCE, "shard: optimizer", "train.shard=optimizer", "train.sync={type: allreduce}"},
    {SYNC_AVERAGE, "average", "train.shard=none", "train.sync={type: average, every: 16}"},
    {SYNC_DILOCO, "diloco", "train.shard=none", "train.sync={type: diloco, every: 50, wire: int4}"},
};

static void way_name(struct plan_way *way)
{
    CLEANUP(buf_release) struct buf text = {0};
    if (way->shard == SHARD_OPTIMIZER)
        buf_puts(&text, "shard: optimizer");
    else
        sync_print(&text, &way->sync);
    snprintf(way->name, sizeof(way->name), "%s", text.data);
}

/* A job that cannot be trained in this way is no error: the others are planned. */
static enum err_code way_text(struct plan *p, size_t i, const char *text, char **changed, struct err *e)
{
    struct plan_way *way = &p->ways[i];
    char **set = strv_append(NULL, ways[i].shard);
    if (p->job.train.sync.type != ways[i].type)
        set = strv_append(set, ways[i].sync);
    const struct job_flags flags = {.set = set};
    if (job_text_change(text, &flags, changed, e) != ERR_OK) {
        snprintf(way->name, sizeof(way->name), "%s", ways[i].name);
        snprintf(way->refused, sizeof(way->refused), "%.190s", e->msg);
        e->code = ERR_OK;
    }
    strv_free(set);
    return e->code;
}

static enum err_code way_size(struct plan *p, size_t i, const char *text, struct err *e)
{
    CLEANUP(free_text) char *changed = NULL;
    CLEANUP(job_release) struct job_spec spec = {0};
    struct plan_way *way = &p->ways[i];
    if (way_text(p, i, text, &changed, e) != ERR_OK || *way->refused)
        return e->code;
    if (job_parse(&spec, changed, strlen(changed), "job file", e) != ERR_OK)
        return e->code;
    way->sync = spec.train.sync;
    way->shard = spec.train.shard;
    way_name(way);
    return plan_trainer_sizes(changed, p->machine.ranks, p->machine.ranks / p->machine.nodes,
                              p->machine.gpu ? p->memory : 0, &way->sizes, e);
}

enum err_code plan_ways_size(struct plan *p, const char *text, struct err *e)
{
    for (size_t i = 0; i < PLAN_WAYS; i++)
        if (way_size(p, i, text, e) != ERR_OK)
            return e->code;
    return ERR_OK;
}

enum err_code plan_alone_text(const struct plan *p, const char *text, int64_t threads, const char *directory,
                              char **out, struct err *e)
{
    const struct plan_sizes *s = &p->ways[0].sizes;
    const struct train_spec *train = &p->job.train;
    char **set = NULL;
    CLEANUP(free_text)
    char *batch = train->global_batch ? xasprintf("train.global_batch=%.0f", s->rows * s->micro_batches)
                                      : xasprintf("train.batch=%.0f", s->rows);
    CLEANUP(free_text) char *cores = xasprintf("train.threads=%lld", (long long)threads);
    CLEANUP(free_text) char *snapshots = xasprintf("train.snapshot.dir=%s", directory);
    static const char *const always[] = {
        "nodes=1",          "procs_per_node=1",  "device=cpu",         "train.sync={type: allreduce}",
        "train.shard=none", "train.log_every=1", "train.resume=never", "train.eval={every: never}"};
    for (size_t i = 0; i < ARRAY_LEN(always); i++)
        set = strv_append(set, always[i]);
    set = strv_append(set, batch);
    if (!train->threads)
        set = strv_append(set, cores);
    if (train->snapshot.dir)
        set = strv_append(strv_append(set, snapshots), "train.snapshot.keep_best=0");
    const struct job_flags flags = {.set = set};
    enum err_code code = job_text_change(text, &flags, out, e);
    strv_free(set);
    return code;
}

void plan_ways_step(struct plan *p)
{
    for (size_t i = 0; i < PLAN_WAYS; i++) {
        struct plan_way *way = &p->ways[i];
        if (!*way->refused)
            plan_step(&way->sizes, &p->machine, &way->sync, way->shard, &way->step);
    }
}

void plan_release(struct plan *p)
{
    for (size_t i = 0; i < PLAN_WAYS; i++)
        plan_sizes_release(&p->ways[i].sizes);
    job_release(&p->job);
}
