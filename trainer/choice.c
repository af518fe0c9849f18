/* Which device a worker computes on; and that all of a job's ranks compute on devices of one kind. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/mem.h"
#include "trainer/trainer.h"

/* The agent names a worker's GPUs in its environment, as does whoever starts one by hand. */
static bool has_gpu(void)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    return visible && *visible;
}

/* A job that wants a GPU has one or fails; one that takes what there is takes a GPU where it was given one.
 */
enum err_code trainer_choose_device(struct trainer *t, struct err *e)
{
    const struct trainer_config *c = t->config;
    int rank = c->local_rank, ranks = c->local_world_size, threads = (int)t->spec->threads;
    bool wanted = c->job.device == JOB_DEVICE_CUDA;
    if (wanted || (c->job.device == JOB_DEVICE_AUTO && has_gpu())) {
        struct err why = {0};
        if (device_open(&t->device, DEVICE_CUDA, rank, ranks, threads, &why) == ERR_OK)
            return ERR_OK;
        if (why.code != ERR_UNAVAILABLE) {
            *e = why;
            return e->code;
        }
        if (wanted)
            return err_set(e, ERR_FAILED_PRECONDITION, "device: cuda: %s", why.msg);
        log_warn("device_fallback", "rank=%d device=cpu why=%s", t->rank, LOG_Q(why.msg));
    }
    return device_open(&t->device, DEVICE_CPU, rank, ranks, threads, e);
}

/* ---- one kind */

struct kind {
    char name[16];
};

/* "cuda on rank 0 (box1), rank 1 (box1)" */
static void list_kind(const struct trainer *t, const struct kind *all, const struct kind *which,
                      struct buf *out)
{
    const char *before = " on ";
    buf_printf(out, "%s%s", out->len ? "; " : "", which->name);
    for (int r = 0; r < t->world_size; r++) {
        const char *node = t->group_info.peers ? t->group_info.peers[r].node : NULL;
        if (strcmp(all[r].name, which->name))
            continue;
        buf_printf(out, "%srank %d", before, r);
        if (node && *node)
            buf_printf(out, " (%s)", node);
        before = ", ";
    }
}

static enum err_code judge(const struct trainer *t, const struct kind *all, struct err *e)
{
    CLEANUP(buf_release) struct buf said = {0};
    const struct kind *other = NULL;
    for (int r = 0; r < t->world_size && !other; r++)
        other = strcmp(all[r].name, all[0].name) ? &all[r] : NULL;
    if (!other)
        return ERR_OK;
    list_kind(t, all, &all[0], &said);
    list_kind(t, all, other, &said);
    return err_set(e, ERR_FAILED_PRECONDITION,
                   "ranks compute on different devices, say device: cpu or device: cuda (%.150s)", said.data);
}

/* Each rank applies the optimizer itself: devices of two kinds would drift apart by rounding alone. */
enum err_code trainer_check_devices(struct trainer *t, struct err *e)
{
    struct kind mine = {{0}}, *all = xcalloc((size_t)t->world_size, sizeof(*all));
    snprintf(mine.name, sizeof(mine.name), "%s", t->device->ops->name);
    enum err_code code = coll_allgather(t->group, &mine, sizeof(mine), all, e);
    if (!code)
        code = judge(t, all, e);
    free(all);
    return code;
}
