/* The device's own collectives (comm.h), which sum arrays in device memory if the devices of all ranks have
 * the same ones. The group's own connections stay open: they carry values of the host, and show that a peer
 * is gone, which the device may never notice. Therefore a wait for the device checks them while a collective runs. */
#include "trainer/member/coll/device_comm.h"
#include "trainer/member/coll/group.h"
#include "trainer/member/coll/listener.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "trainer/device/comm.h"
#include "trainer/member/coll/ring.h"
#include "trainer/member/coll/shm.h"

#define END_MS 10000 /* default limit for ending the device's group */
#define LOOK_MS 10   /* between two checks of the connections */
#define GRACE_MS 500 /* how long a closed connection may mean that its peer has finished */

/* ---- who is there */

static bool hung_up(const int *fds, int count)
{
    for (int i = 0; i < count; i++) {
        struct pollfd p = {.fd = fds[i], .events = POLLRDHUP};
        if (fds[i] >= 0 && poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)))
            return true;
    }
    return false;
}

static bool peer_is_gone(const struct coll_group *g)
{
    int count = 0;
    const int *links = shm_links(g, &count);

    return hung_up(links, count) || ring_hung_up(g);
}

static enum err_code look_at_peers(struct coll_group *g, struct err *e)
{
    int64_t now = clock_boot_ms();

    if (atomic_load(&g->stop.set))
        return coll_stopped(e);
    if (now - g->looked_ms < LOOK_MS)
        return ERR_OK;
    g->looked_ms = now;
    if (!peer_is_gone(g))
        return ERR_OK;
    if (!g->gone_ms)
        g->gone_ms = now;
    /* The peer may have finished and left in order. In that case this wait ends by itself. */
    if (now - g->gone_ms < GRACE_MS)
        return ERR_OK;
    coll_fail(g);
    return coll_stopped(e);
}

static enum err_code while_group_waits(void *arg, struct err *e)
{
    return look_at_peers(arg, e);
}

static enum err_code while_device_waits(void *arg, struct err *e)
{
    struct coll_group *g = arg;
    struct comm *c = atomic_load(&g->comm);

    /* A rank that waits for its own work alone finishes it, although a peer is gone: it may go on with the result. */
    if (!c || !g->device->comm->busy(c))
        return ERR_OK;
    if (look_at_peers(g, e))
        return e->code;
    if (g->device->comm->check(c, e) == ERR_OK)
        return ERR_OK;
    coll_fail(g); /* any error of the device's collectives ends the group */
    return e->code;
}

/* ---- what everybody has */

struct means {
    char name[16]; /* "": the device has no collectives */
    int32_t version;
};

static void list_version(const struct means *all, int world_size, int32_t version, struct buf *out)
{
    const char *before = " on rank ";

    buf_printf(out, "%s%d.%d.%d", out->len ? "; " : "", version / 10000, version / 100 % 100, version % 100);
    for (int r = 0; r < world_size; r++)
        if (all[r].version == version) {
            buf_printf(out, "%s%d", before, r);
            before = ", ";
        }
}

/* Sets *same if all ranks have the same collectives. Different versions are an error, because they cannot
 * talk to each other. The caller has checked that the devices are of the same kind. */
static enum err_code means_compare(const struct means *all, int world_size, bool *same, struct err *e)
{
    CLEANUP(buf_release) struct buf said = {0};

    *same = all[0].name[0] != '\0';
    for (int r = 1; r < world_size; r++)
        *same &= memcmp(all[r].name, all[0].name, sizeof(all[r].name)) == 0;
    for (int r = 1; *same && r < world_size; r++) {
        if (all[r].version == all[0].version)
            continue;
        list_version(all, world_size, all[0].version, &said);
        list_version(all, world_size, all[r].version, &said);
        return err_set(e, ERR_FAILED_PRECONDITION,
                       "ranks have different versions of %s: install the same version on all nodes (%.150s)",
                       all[0].name, said.data);
    }
    return ERR_OK;
}

static enum err_code means_agree(struct coll_group *g, bool *same, struct err *e)
{
    const struct comm_ops *ops = g->device && !g->tree ? g->device->comm : NULL;
    struct means mine = {{0}}, *all = xcalloc((size_t)g->layout.world_size, sizeof(*all));

    if (ops) {
        strncpy(mine.name, ops->name, sizeof(mine.name) - 1);
        mine.version = ops->version();
    }
    enum err_code rc = g->ops->allgather(g, &mine, sizeof(mine), all, e);
    if (!rc)
        rc = means_compare(all, g->layout.world_size, same, e);
    free(all);
    return rc;
}

/* ---- */

enum err_code device_comm_form(struct coll_group *g, const struct coll_config *config, int64_t deadline,
                               struct err *e)
{
    int64_t left = deadline - clock_boot_ms();
    bool same = false;

    if (g->layout.world_size == 1)
        return ERR_OK;
    if (means_agree(g, &same, e))
        return e->code;
    /* Without common collectives, sums are staged through host memory. */
    if (!same) {
        if (g->device && g->device->no_comm && !g->tree)
            log_warn(
                "sums_through_host",
                "rank=%d why=%s effect=\"each step waits for the gradients to cross the host: install NCCL\"",
                config->rank, LOG_Q(g->device->no_comm));
        return ERR_OK;
    }
    struct comm_config how = {
        .id = config->bootstrap,
        .id_size = config->bootstrap_size,
        .rank = config->rank,
        .world_size = config->world_size,
        .reproducible = !config->free_order,
        .bf16 = config->bf16,
        .timeout_ms = left > 0 ? (int)left : 0,
        .watch = while_group_waits,
        .watch_arg = g,
    };
    g->end_ms = config->end_ms > 0 ? config->end_ms : END_MS;
    if (g->device->comm->open(&g->comm, g->device, &how, e))
        return e->code;
    /* The device may never notice that a peer is gone, so its waits check the connections. */
    if (g->device->ops->watch)
        g->device->ops->watch(g->device, while_device_waits, g);
    return ERR_OK;
}

void device_comm_abort(struct coll_group *g)
{
    struct comm *c = atomic_load(&g->comm);

    if (c)
        g->device->comm->abort(c);
}

static enum err_code end_late(const struct coll_group *g, struct err *e)
{
    if (g->late.code)
        *e = g->late;
    return g->late.code;
}

enum err_code coll_end(struct coll_group *g, struct err *e)
{
    struct comm *c = atomic_load(&g->comm);
    struct err said = {0};

    if (g->listener)
        coll_listener_end(g->listener); /* an abort of the listener does not reach the group from here on */
    g->listener = NULL;
    if (!c)
        return end_late(g, e);
    if (g->device->ops->watch)
        g->device->ops->watch(g->device, NULL, NULL);
    /* An orderly close waits for the peers. If one is gone, only an abort ends the wait. */
    if (atomic_load(&g->stop.set) || peer_is_gone(g))
        g->device->comm->abort(c);
    enum err_code code = g->device->comm->close(c, g->end_ms, &said);
    atomic_store(&g->comm, NULL);
    if (code == ERR_DEADLINE_EXCEEDED)
        g->late = said;
    else if (code)
        log_warn("group_end", "why=%s", LOG_Q(said.msg));
    return end_late(g, e);
}

enum err_code coll_leave_device(struct coll_group *g, struct err *e)
{
    struct coll_listener *l = g->listener;

    /* An abort must not use the communicator while it is closed, so none reaches the group until that is done. */
    if (coll_end(g, e))
        return e->code;
    g->listener = l;
    if (!l || coll_listener_begin(l, g, e) == ERR_OK)
        return ERR_OK;
    coll_fail(g);
    return e->code;
}
