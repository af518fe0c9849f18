#include "trainer/member/coll/coll.h"
#include "trainer/member/coll/device_comm.h"
#include "trainer/member/coll/listener.h"
#include "trainer/member/coll/shared_memory.h"
#include "trainer/member/coll/staged.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "trainer/device/comm.h"
#include "trainer/member/coll/fd_passing.h"
#include "trainer/member/coll/group.h"
#include "trainer/member/coll/pairs.h"
#include "trainer/member/coll/relay_path.h"
#include "trainer/member/coll/ring.h"
#include "trainer/member/coll/shm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum err_code coll_stopped(struct err *e)
{
    return err_set(e, ERR_ABORTED,
                   "the process group is over: a peer is gone, or another generation is forming");
}

/* ---- stopping */

static void group_stop(struct coll_group *g)
{
    uint64_t one = 1;

    if (!atomic_exchange(&g->stop.set, true) && write(g->stop.event, &one, sizeof(one)) < 0)
        BUG_ON(errno != EAGAIN);
}

void coll_fail(struct coll_group *g)
{
    group_stop(g);
    shm_abort(g);
    ring_abort(g);
    pairs_abort(g);
    device_comm_abort(g);
}

void coll_abort(struct coll_group *g, int64_t generation)
{
    /* A late message about an earlier generation does not concern this group. */
    if (generation < g->generation)
        return;
    group_stop(g);
    device_comm_abort(g);
    if (atomic_load(&g->formed)) {
        shm_abort(g);
        ring_abort(g);
        pairs_abort(g);
    }
}

int coll_stop_fd(const struct coll_group *g)
{
    return g->stop.event;
}

/* ---- forming */

static const struct coll_ops *group_kind(const struct coll_layout *l)
{
    if (l->world_size == 1)
        return &coll_single_ops;
    return l->nodes == 1 ? &coll_shared_memory_ops : &coll_hierarchical_ops;
}

static enum err_code group_form(struct coll_group *g, struct coll_listener *l, int64_t deadline,
                                struct err *e)
{
    g->ops = group_kind(&g->layout);
    if (g->layout.locals > 1 && shm_open_node(g, l, deadline, e))
        return e->code;
    if (g->layout.nodes > 1 && g->layout.local < g->layout.rings && ring_open(g, l, deadline, e))
        return e->code;
    atomic_store(&g->formed, true);
    /* An abort before `formed` was set did not reach the connections, so it is passed on now. */
    if (atomic_load(&g->stop.set)) {
        coll_fail(g);
        return coll_stopped(e);
    }
    return g->ops->barrier(g, e);
}

/* Returns when all ranks have opened their pairs. */
static enum err_code pairs_open_all(struct coll_group *g, struct coll_listener *l, int64_t deadline,
                                    struct err *e)
{
    g->opening_pairs = true;
    if (pairs_open(g, l, deadline, e) || g->ops->barrier(g, e))
        return e->code;
    g->opening_pairs = false;
    return ERR_OK;
}

static size_t cache_size(void)
{
    long size = sysconf(_SC_LEVEL3_CACHE_SIZE);

    return size > 0 ? (size_t)size : (size_t)16 << 20;
}

static enum err_code group_check_config(const struct coll_config *c, struct err *e)
{
    if (c->world_size < 1 || c->rank < 0 || c->rank >= c->world_size)
        return err_set(e, ERR_INVALID_ARGUMENT, "rank %d of %d does not exist", c->rank, c->world_size);
    return ERR_OK;
}

enum err_code coll_open(struct coll_group **out, struct coll_listener *l, const struct coll_config *c,
                        struct err *e)
{
    int64_t limit = c->timeout_ms > 0 ? c->timeout_ms : 60000, deadline = clock_boot_ms() + limit;
    struct coll_group *g;
    struct err stuck = {0};
    enum err_code rc;

    if (group_check_config(c, e))
        return e->code;
    g = xcalloc(1, sizeof(*g));
    g->job = c->job;
    g->generation = c->generation;
    g->tree = c->tree;
    g->bf16 = c->bf16;
    g->device = c->device && !c->device->host ? c->device : NULL;
    memcpy(g->key, c->key, sizeof(g->key));
    if (c->relay) {
        g->relay = *c->relay;
        g->relayed = xcalloc(2 * (size_t)c->world_size, sizeof(*g->relayed));
    }
    g->cache = cache_size();
    g->stop.event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    rc = g->stop.event < 0 ? err_sys(e, errno, "eventfd") : coll_layout_init(&g->layout, c, e);
    if (!rc) {
        g->listener = l;
        rc = coll_listener_begin(l, g, e);
    }
    if (!rc)
        rc = group_form(g, l, deadline, e);
    /* The ranks start together here, however late the last one was, so the time counts from now on. */
    if (!rc && c->pairs && g->layout.nodes > 1) {
        deadline = clock_boot_ms() + limit;
        rc = pairs_open_all(g, l, deadline, e);
    }
    if (!rc)
        relay_path_log(g);
    if (!rc)
        rc = device_comm_form(g, c, deadline, e);
    if (rc) {
        if (coll_end(g, &stuck)) {
            coll_fail(g); /* so that the peers need not wait until this process exits */
            *out = g;
        } else {
            coll_close(g);
        }
        return err_wrap(e, "job %lld generation %lld rank %d", (long long)c->job, (long long)c->generation,
                        c->rank);
    }
    *out = g;
    return ERR_OK;
}

static void detach_array(struct coll_group *g, struct coll_array *a)
{
    bool shared = g->shm && !a->memory->device;

    fd_unmap_array(g, a);
    free(a->maps);
    device_array_close(&a->staging);
    /* After an abort, a peer on this node may still be in the middle of a sum that writes to its mapping. */
    if (shared && atomic_load(&g->stop.set))
        a->memory->stale = true;
    if (!a->owned)
        return;
    if (!g->late.code || !a->memory->device) /* otherwise the device may still be working on the array */
        device_array_close(a->memory);
    free(a->memory);
}

void coll_close(struct coll_group *g)
{
    struct err e = {0};

    if (!g)
        return;
    if (coll_end(g, &e))
        log_error("group_end", "why=%s", LOG_Q(e.msg));
    for (size_t i = 0; i < g->array_count; i++)
        detach_array(g, &g->arrays[i]);
    free(g->arrays);
    pairs_close(g);
    ring_close(g);
    shm_close(g);
    free(g->gathered);
    coll_layout_release(&g->layout);
    close_fd(&g->stop.event);
    explicit_bzero(g->key, sizeof(g->key));
    explicit_bzero(&g->relay, sizeof(g->relay));
    free(g->relayed);
    free(g);
}

/* ---- arrays */

/* Checks first that the group is not over: other ranks may still be reading the data of the last call. */
enum err_code coll_call_begin(struct coll_group *g, struct err *e)
{
    g->calls++;
    return atomic_load(&g->stop.set) ? coll_stopped(e) : ERR_OK;
}

/* Arrays in device memory need host memory for staging, except in a world of one, or if the device has
 * collectives of its own. A rank that has no memory (`failed`) still takes part, so that the others learn of
 * it.
 */
static enum err_code map_array(struct coll_group *g, struct coll_array *a, const struct err *failed,
                               struct err *e)
{
    bool sums_here = !g->device || (g->layout.world_size > 1 && !atomic_load(&g->comm));
    struct device_array *host = g->device ? &a->staging : a->memory;
    struct err mine = *failed;

    /* This rank's error is returned after it has taken part, because the other ranks of its node wait for it.
     */
    if (sums_here && g->device && !mine.code)
        (void)!device_array_open(host, NULL, a->count, &mine);
    if (sums_here && !mine.code)
        (void)!device_array_place(host, g->shm != NULL, &mine);
    if (sums_here && g->shm && fd_share_array(g, a, mine.code ? NULL : host, e)) {
        /* Ranks of a node agree on RESOURCE_EXHAUSTED alone. After another error a rank of the node may be
         * waiting still, so the group is over. */
        if (e->code != ERR_RESOURCE_EXHAUSTED)
            coll_fail(g);
        else if (mine.code)
            *e = mine;
        return e->code;
    }
    if (mine.code) {
        *e = mine;
        return e->code;
    }
    if (sums_here && !g->shm) {
        a->maps = xcalloc((size_t)g->layout.locals, sizeof(*a->maps));
        a->maps[g->layout.local] = host->data;
    }
    a->on_device = g->device ? a->memory->data : NULL;
    return ERR_OK;
}

/* Every rank gets here with its own result, whatever the error, because the others wait for it. */
static enum err_code alloc_agree(struct coll_group *g, enum err_code rc, struct err *e)
{
    uint8_t mine = (uint8_t)rc, *all;
    int failed = -1;
    struct err other = {0};

    /* Ranks of one node have agreed already (fd_share_array). In a group that is over nobody waits. */
    if ((g->layout.nodes == 1 && !atomic_load(&g->comm)) || atomic_load(&g->stop.set))
        return rc;
    all = xcalloc((size_t)g->layout.world_size, 1);
    if (g->ops->allgather(g, &mine, 1, all, &other)) {
        free(all);
        *e = other;
        return e->code;
    }
    for (int r = 0; r < g->layout.world_size && failed < 0; r++)
        failed = all[r] ? r : -1;
    if (failed >= 0 && !rc)
        rc = all[failed] == ERR_RESOURCE_EXHAUSTED
                 ? err_set(e, ERR_RESOURCE_EXHAUSTED, "rank %d does not have enough memory", failed)
                 : err_set(e, (enum err_code)all[failed], "rank %d cannot attach its array to the group: %s",
                           failed, err_code_name((enum err_code)all[failed]));
    free(all);
    return rc;
}

static enum err_code attach_array(struct coll_group *g, struct device_array *memory, bool owned,
                                  const struct err *failed, struct err *e)
{
    struct coll_array a = {.memory = memory, .owned = owned, .count = memory->count};
    enum err_code rc;

    a.bytes = device_array_pages(a.count); /* of the host memory that ranks of a node share, also for a device's array */
    rc = alloc_agree(g, map_array(g, &a, failed, e), e);
    if (rc) {
        detach_array(g, &a);
        return rc;
    }
    g->arrays = array_grow(g->arrays, g->array_count, &g->array_cap, sizeof(a));
    g->arrays[g->array_count++] = a;
    return ERR_OK;
}

enum err_code coll_attach(struct coll_group *g, struct device_array *memory, struct err *e)
{
    struct err none = {0};

    BUG_ON(memory->device != g->device);
    return coll_call_begin(g, e) ? e->code : attach_array(g, memory, false, &none, e);
}

enum err_code coll_alloc(struct coll_group *g, size_t count, float **out, struct err *e)
{
    struct device_array *memory;
    struct err failed = {0};

    if (count > SIZE_MAX / 8)
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "an array of %zu floats is too large for any memory",
                       count);
    if (coll_call_begin(g, e))
        return e->code;
    memory = xcalloc(1, sizeof(*memory));
    (void)!device_array_open(memory, g->device, count, &failed); /* attach_array tells the other ranks */
    if (attach_array(g, memory, true, &failed, e))
        return e->code;
    *out = memory->data;
    return ERR_OK;
}

const struct coll_array *coll_find_array(const struct coll_group *g, const float *data, size_t count,
                                         size_t *at)
{
    for (size_t i = 0; i < g->array_count; i++) {
        const struct coll_array *a = &g->arrays[i];
        const float *base = a->memory->data;

        if (data >= base && data <= base + a->count && count <= a->count - (size_t)(data - base)) {
            *at = (size_t)(data - base);
            return a;
        }
    }
    return NULL;
}

/* ---- calls */

/* Any error of the device's own collectives ends the group. */
enum err_code coll_comm_failed(struct coll_group *g, const struct err *e)
{
    coll_fail(g);
    return e->code;
}

static enum err_code sum_start(struct coll_group *g, float *data, size_t count, enum device_type wire,
                               struct err *e)
{
    const bool half = wire == DEVICE_BF16;
    struct comm *c = atomic_load(&g->comm);
    size_t at = 0;
    const struct coll_array *a = coll_find_array(g, data, count, &at);

    BUG_ON(!a);
    if (coll_call_begin(g, e))
        return e->code;
    BUG_ON(half && !g->bf16);
    if (c)
        return (half ? g->device->comm->allreduce_bf16 : g->device->comm->allreduce)(c, data, count, e)
                   ? coll_comm_failed(g, e)
                   : ERR_OK;
    if (a->on_device)
        return staged_allreduce(g, a, at, count, wire, e);
    return (half ? g->ops->allreduce_bf16 : g->ops->allreduce)(g, a, at, count, e);
}

enum err_code coll_start(struct coll_group *g, float *data, size_t count, struct err *e)
{
    return sum_start(g, data, count, DEVICE_F32, e);
}

enum err_code coll_start_bf16(struct coll_group *g, float *data, size_t count, struct err *e)
{
    return sum_start(g, data, count, DEVICE_BF16, e);
}

enum err_code coll_join(struct coll_group *g, struct err *e)
{
    struct comm *c = atomic_load(&g->comm);

    return c && g->device->comm->join(c, e) ? coll_comm_failed(g, e) : ERR_OK;
}

enum err_code coll_allreduce(struct coll_group *g, float *data, size_t count, struct err *e)
{
    return coll_start(g, data, count, e) ? e->code : coll_join(g, e);
}

enum err_code coll_broadcast(struct coll_group *g, void *data, size_t size, int root, struct err *e)
{
    BUG_ON(root < 0 || root >= g->layout.world_size);
    return coll_call_begin(g, e) ? e->code : g->ops->broadcast(g, data, size, root, e);
}

#define BROADCAST_PIECE ((size_t)1 << 20) /* floats */

static enum err_code broadcast_pieces(struct coll_group *g, float *data, size_t count, int root,
                                      struct err *e)
{
    struct device *d = g->device;
    bool source = g->layout.rank == root;
    float *room = xcalloc(count < BROADCAST_PIECE ? count : BROADCAST_PIECE, sizeof(*room));
    enum err_code code = ERR_OK;

    for (size_t at = 0, n; !code && at < count; at += n) {
        n = count - at < BROADCAST_PIECE ? count - at : BROADCAST_PIECE;
        if (source)
            d->ops->download(d, room, data + at, n * sizeof(*room));
        code = coll_broadcast(g, room, n * sizeof(*room), root, e);
        if (!code && !source)
            d->ops->upload(d, data + at, room, n * sizeof(*room));
    }
    free(room);
    return code;
}

enum err_code coll_broadcast_floats(struct coll_group *g, float *data, size_t count, int root, struct err *e)
{
    struct comm *c = atomic_load(&g->comm);

    BUG_ON(root < 0 || root >= g->layout.world_size);
    if (g->layout.world_size == 1 || count == 0)
        return ERR_OK;
    if (!g->device)
        return coll_broadcast(g, data, count * sizeof(*data), root, e);
    if (!c)
        return broadcast_pieces(g, data, count, root, e);
    if (coll_call_begin(g, e))
        return e->code;
    return g->device->comm->broadcast(c, data, count * sizeof(*data), root, e) ? coll_comm_failed(g, e)
                                                                               : coll_join(g, e);
}

enum err_code coll_allgather(struct coll_group *g, const void *mine, size_t size, void *out, struct err *e)
{
    return coll_call_begin(g, e) ? e->code : g->ops->allgather(g, mine, size, out, e);
}

enum err_code coll_exchange(struct coll_group *g, const void *mine, const size_t *offsets, void *out,
                            struct err *e)
{
    return coll_call_begin(g, e) ? e->code : g->ops->exchange(g, mine, offsets, out, e);
}

enum err_code coll_barrier(struct coll_group *g, struct err *e)
{
    return coll_call_begin(g, e) ? e->code : g->ops->barrier(g, e);
}

bool coll_overlaps(const struct coll_group *g)
{
    return g->ops->overlaps && !g->device;
}

int coll_world_size(const struct coll_group *g)
{
    return g->layout.world_size;
}

int coll_nodes(const struct coll_group *g)
{
    return g->layout.nodes;
}

int64_t coll_joined_ns(const struct coll_group *g)
{
    struct comm *c = atomic_load(&g->comm);

    return c ? g->device->comm->joined_ns(c) : -1;
}

void coll_get_stats(const struct coll_group *g, struct coll_stats *out)
{
    *out = (struct coll_stats){.bytes = g->bytes, .wait_ns = g->wait_ns, .calls = g->calls};
}
