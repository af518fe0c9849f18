/* Digests of the parameters. Ranks that ought to hold the same compare theirs now and then: a bit that
 * flipped in one's memory would otherwise go into every sum and every snapshot unseen. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/digest.h"
#include "base/mem.h"
#include "trainer/trainer.h"

#define PIECE ((size_t)1 << 18) /* floats, brought to the host at a time; whole blocks of a digest */

static size_t blocks(size_t floats)
{
    return (floats + DIGEST_BLOCK - 1) / DIGEST_BLOCK;
}

enum err_code compare_open(struct trainer *t, struct err *e)
{
    void *memory = NULL;
    if (!t->device->ops->digest)
        return ERR_OK;
    if (device_alloc(t->device, blocks(t->model->count) * sizeof(uint64_t), "sums of a digest", &memory, e))
        return e->code;
    t->block_sums = memory;
    return ERR_OK;
}

void compare_close(struct trainer *t)
{
    if (t->device)
        t->device->ops->free(t->device, t->block_sums);
}

static uint64_t digest_by_sums(struct trainer *t)
{
    const struct device_ops *ops = t->device->ops;
    size_t count = t->model->count, n = blocks(count);
    uint64_t all = 0, *sums = xcalloc(n, sizeof(*sums));
    ops->digest(t->device, t->block_sums, t->params, count);
    ops->download(t->device, sums, t->block_sums, n * sizeof(*sums));
    for (size_t at = 0; at < count; at += PIECE)
        all = digest64_sums(all, sums + at / DIGEST_BLOCK,
                            (count - at < PIECE ? count - at : PIECE) * sizeof(float));
    free(sums);
    return all;
}

/* In pieces, also where the memory is the host's: the number must not depend on the device. */
static uint64_t digest_by_pieces(struct trainer *t)
{
    const struct device_ops *ops = t->device->ops;
    float *room = t->device->host ? NULL : xcalloc(PIECE, sizeof(*room));
    uint64_t all = 0;
    for (size_t at = 0; at < t->model->count; at += PIECE) {
        size_t n = t->model->count - at < PIECE ? t->model->count - at : PIECE;
        if (room)
            ops->download(t->device, room, t->params + at, n * sizeof(float));
        all = digest64(all, room ? room : t->params + at, n * sizeof(float));
    }
    free(room);
    return all;
}

/* How many hold what rank r holds. */
static int agreeing(const uint64_t *all, int world, int r)
{
    int n = 0;
    for (int i = 0; i < world; i++)
        n += all[i] == all[r];
    return n;
}

/* One rank of those that most agree with; -1: no side has more than another. */
static int majority(const uint64_t *all, int world)
{
    int best = 0;
    for (int r = 1; r < world; r++)
        if (agreeing(all, world, r) > agreeing(all, world, best))
            best = r;
    for (int r = 0; r < world; r++)
        if (all[r] != all[best] && agreeing(all, world, r) == agreeing(all, world, best))
            return -1;
    return best;
}

/* "rank 2 (box1), rank 3 (box2)": those that do not hold what `right` holds; all where nobody is. */
static void list_odd(const struct trainer *t, const uint64_t *all, int right, struct buf *out)
{
    for (int r = 0; r < t->world_size; r++) {
        const char *node = t->group_info.peers ? t->group_info.peers[r].node : NULL;
        if (right >= 0 && all[r] == all[right])
            continue;
        buf_printf(out, "%srank %d", out->len ? ", " : "", r);
        if (node && *node)
            buf_printf(out, " (%s)", node);
    }
}

/* The odd ones fail for good; the others end as a consequence. */
static enum err_code judge(struct trainer *t, const uint64_t *all, struct err *e)
{
    CLEANUP(buf_release) struct buf odd = {0};
    int right = majority(all, t->world_size);
    bool mine = right < 0 || all[t->rank] != all[right];
    if (agreeing(all, t->world_size, 0) == t->world_size) {
        t->agreed_step = t->step;
        return ERR_OK;
    }
    list_odd(t, all, right, &odd);
    err_set(e, mine ? ERR_DATA_LOSS : ERR_ABORTED, "%.120s: parameters differ from %s since step %lld",
            odd.data, right < 0 ? "each other" : "the other ranks'", (long long)t->step);
    if (t->agreed_step >= 0)
        snprintf(e->msg + strlen(e->msg), sizeof(e->msg) - strlen(e->msg), ", they agreed at step %lld",
                 (long long)t->agreed_step);
    snprintf(e->msg + strlen(e->msg), sizeof(e->msg) - strlen(e->msg), " (silent corruption)");
    return e->code;
}

enum err_code trainer_compare(struct trainer *t, struct err *e)
{
    if (sync_join(t->sync, e))
        return e->code;
    if (!sync_settled(t->sync) || t->digest_step == t->step)
        return ERR_OK;
    t->digest = t->block_sums ? digest_by_sums(t) : digest_by_pieces(t);
    t->digest_step = t->step;
    if (t->device->ops->wait(t->device, e))
        return e->code;
    uint64_t *all = xcalloc((size_t)t->world_size, sizeof(*all));
    enum err_code code = coll_allgather(t->group, &t->digest, sizeof(t->digest), all, e);
    if (!code)
        code = judge(t, all, e);
    free(all);
    return code;
}
