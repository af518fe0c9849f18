#include "trainer/member/sync/internal.h"

#include "base/mem.h"

#include <stdlib.h>

#define BUCKET (1u << 20)

static const struct sync_ops *const strategies[] = {
    [SYNC_ALLREDUCE] = &sync_allreduce_ops,
    [SYNC_AVERAGE] = &sync_average_ops,
};

enum err_code sync_open(struct sync **out, struct coll_group *group, const struct sync_config *config,
                        struct err *e)
{
    struct sync *s;

    if ((size_t)config->type >= ARRAY_LEN(strategies))
        return err_set(e, ERR_INVALID_ARGUMENT, "unknown sync type %d", (int)config->type);
    if (config->type == SYNC_AVERAGE && config->every < 1)
        return err_set(e, ERR_INVALID_ARGUMENT, "sync.every must be at least 1");
    s = xcalloc(1, sizeof(*s));
    s->ops = strategies[config->type];
    s->group = group;
    s->config = *config;
    if (!s->config.bucket)
        s->config.bucket = BUCKET;
    if (s->ops->before_step)
        s->runner = bucket_open(group, config->overlap < 0 ? coll_overlaps(group) : config->overlap > 0);
    *out = s;
    return ERR_OK;
}

void sync_close(struct sync *s)
{
    if (!s)
        return;
    bucket_close(s->runner);
    free(s);
}

int64_t sync_divisor(const struct sync *s, int64_t local_samples, int64_t global_samples)
{
    int64_t n = s->ops->local_mean ? local_samples : global_samples;

    return n > 0 ? n : 1;
}

void sync_grads_ready(struct sync *s, size_t offset, size_t count)
{
    BUG_ON(offset > s->config.count || count > s->config.count - offset);
    if (s->ops->grads_ready && count)
        s->ops->grads_ready(s, offset, count);
}

enum err_code sync_before_step(struct sync *s, struct err *e)
{
    return s->ops->before_step ? s->ops->before_step(s, e) : ERR_OK;
}

enum err_code sync_after_step(struct sync *s, int64_t local_samples, int64_t global_samples, struct err *e)
{
    if (!s->ops->after_step)
        return ERR_OK;
    s->state.steps++;
    s->state.local_samples += local_samples;
    s->state.global_samples += global_samples;
    return s->ops->after_step(s, e);
}

enum err_code sync_settle(struct sync *s, struct err *e)
{
    return s->ops->settle ? s->ops->settle(s, e) : ERR_OK;
}

bool sync_settled(const struct sync *s)
{
    return s->state.steps == 0;
}

void sync_save(const struct sync *s, struct sync_state *out)
{
    *out = s->state;
}

void sync_restore(struct sync *s, const struct sync_state *in)
{
    s->state = *in;
}
