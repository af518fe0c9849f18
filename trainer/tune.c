#include "trainer/tune.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/job/job_tune.h"
#include "base/log.h"
#include "base/mem.h"
#include "trainer/member/link/tuning.h"

#define TEXT_MOST (1 << 20) /* as base/conf/conf.h allows */

float tune_vote(const struct trainer *t)
{
    return t->formation.rank == 0 && link_tune_asked(t->link);
}

/* The spec is changed in place: engine and formation refer to it. */
static enum err_code values_take(struct trainer *t, const char *text, struct err *e)
{
    CLEANUP(job_release) struct job_spec job = {0};
    struct train_spec *mine = &t->config->job.train;
    if (job_parse(&job, text, strlen(text), "the tuned job file", e))
        return e->code;
    if (job_tune_copy(&t->config->job, &job)) {
        if (sync_tune(t->formation.sync, &mine->sync, e))
            return err_wrap(e, "tune the job");
        t->sync = mine->sync;
    }
    optim_tune(t->engine.optim, mine);
    return ERR_OK;
}

/* text: rank 0's; NULL: nothing is taken over. */
static enum err_code values_share(struct trainer *t, int64_t revision, const char *text, struct err *e)
{
    struct coll_group *group = t->formation.group;
    bool first = t->formation.rank == 0;
    struct {
        int64_t revision, size;
    } head = {revision, first && text ? (int64_t)strlen(text) + 1 : 0};
    if (coll_broadcast(group, &head, sizeof(head), 0, e))
        return e->code;
    if (!head.size)
        return ERR_OK;
    if (head.size < 0 || head.size > TEXT_MOST)
        return err_set(e, ERR_INTERNAL, "rank 0 sends a job file of %" PRId64 " bytes", head.size);
    CLEANUP(free_text) char *copy = xcalloc(1, (size_t)head.size);
    if (first)
        memcpy(copy, text, (size_t)head.size);
    if (coll_broadcast(group, copy, (size_t)head.size, 0, e))
        return e->code;
    copy[head.size - 1] = '\0';
    if (values_take(t, copy, e))
        return e->code;
    t->revision = head.revision;
    if (first)
        log_info("tuned", "step=%" PRId64 " revision=%" PRId64, t->engine.step, head.revision);
    return ERR_OK;
}

enum err_code tune_take(struct trainer *t, struct err *e)
{
    bool first = t->formation.rank == 0;
    int64_t revision = t->revision;
    CLEANUP(free_text) char *text = first ? link_take_tuning(t->link, &revision) : NULL;
    /* Votes come with the end of an exchange, so this waits only if the owner has begun another one since. */
    if (sync_join(t->formation.sync, e) || values_share(t, revision, text, e))
        return e->code;
    if (first)
        link_tuned(t->link, t->revision, t->engine.step);
    return ERR_OK;
}

enum err_code tune_begin(struct trainer *t, struct err *e)
{
    const struct link_group *info = &t->formation.info;
    if (values_share(t, info->revision, info->job_file, e))
        return e->code;
    if (t->formation.rank == 0 && info->job_file)
        link_tuned(t->link, t->revision, 0);
    return ERR_OK;
}
