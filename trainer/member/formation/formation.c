#include "trainer/member/formation/formation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "trainer/device/comm.h"
#include "trainer/member/link/watch.h"

#define CONNECT_MS 60000

enum err_code formation_listen(struct formation *f, const char *address, const char *directory, struct err *e)
{
    *f = (struct formation){0};
    return coll_listen(&f->listener, address, directory, e);
}

/* ---- joining */

static enum err_code make_device_id(void *arg, uint8_t *out, size_t cap, size_t *size, struct err *e)
{
    struct device *device = arg;
    return device->comm->make_id(out, cap, size, e);
}

void formation_be_told(struct formation *f, struct link_group *info)
{
    f->info = *info;
    f->rank = info->rank;
    f->world_size = info->world_size;
    *info = (struct link_group){0};
}

enum err_code formation_join(struct formation *f, struct link *link, const struct link_member *as,
                             struct link_join *request, struct device *device, bool wants_id, struct err *e)
{
    struct link_group info;
    uint8_t address[512];
    request->address = address;
    request->address_size = coll_listener_address(f->listener, address, sizeof(address));
    request->make_bootstrap = wants_id ? make_device_id : NULL;
    request->bootstrap_arg = device;
    if (link_join(link, as, request, &info, e))
        return e->code;
    formation_be_told(f, &info);
    if (f->world_size != as->world_size || f->rank != as->rank)
        return err_set(e, ERR_ABORTED,
                       "this process was started as rank %d of %d, but the coordinator says rank %d of %d",
                       f->rank, f->world_size, as->rank, as->world_size);
    return ERR_OK;
}

/* ---- forming */

/* Called on the Watch thread. */
static void generation_over(void *arg, int64_t generation)
{
    struct formation *f = arg;
    coll_listener_abort(f->listener, generation);
    if (f->woken)
        f->woken();
}

static enum err_code open_group(struct formation *f, const struct formation_config *c, struct err *e)
{
    const struct link_group *info = &f->info;
    struct coll_peer *peers = xcalloc((size_t)info->world_size, sizeof(*peers));
    for (int r = 0; r < info->world_size; r++)
        peers[r] = (struct coll_peer){r, info->peers[r].node_rank, info->peers[r].local_rank,
                                      info->peers[r].address, info->peers[r].address_size};
    struct coll_config config = {
        .job = c->job,
        .generation = info->generation,
        .rank = f->rank,
        .world_size = f->world_size,
        .peers = peers,
        .bootstrap = info->bootstrap,
        .bootstrap_size = info->bootstrap_size,
        .loopback = info->loopback,
        .tree = c->tree,
        .device = c->device,
        .timeout_ms = CONNECT_MS,
    };
    memcpy(config.key, info->key, sizeof(config.key));
    enum err_code code = coll_open(&f->group, f->listener, &config, e);
    explicit_bzero(config.key, sizeof(config.key));
    free(peers);
    if (code == ERR_UNAVAILABLE || code == ERR_DEADLINE_EXCEEDED)
        e->code = ERR_ABORTED; /* a peer was lost after Join */
    return code ? e->code : ERR_OK;
}

static enum err_code attach_arrays(struct formation *f, const struct formation_config *c, struct err *e)
{
    if (coll_attach(f->group, c->params, e))
        return err_wrap(e, "parameters");
    if (coll_attach(f->group, c->grads, e))
        return err_wrap(e, "gradients");
    for (size_t i = 0; i < c->extra_count; i++)
        if (coll_attach(f->group, &c->extra[i], e))
            return err_wrap(e, "arrays of the sync strategy");
    return ERR_OK;
}

enum err_code formation_form(struct formation *f, const struct formation_config *c, struct err *e)
{
    f->woken = c->woken;
    if (c->link) {
        link_heed_signal(c->link, c->stop_signal);
        f->link = c->link;
        if (link_watch(c->link, generation_over, f, e))
            return e->code;
    }
    if (open_group(f, c, e) || formation_check_devices(f, c->device, e) || attach_arrays(f, c, e))
        return e->code;
    struct sync_config config = {
        .spec = c->sync,
        .world_size = f->world_size,
        .params = c->params->data,
        .grads = c->grads->data,
        .count = c->params->count,
        .device = c->device,
        .thread = -1,
    };
    for (size_t i = 0; i < c->extra_count; i++)
        config.arrays[i] = c->extra[i].data;
    return sync_open(&f->sync, f->group, &config, e);
}

enum err_code formation_end(struct formation *f, struct err *e)
{
    if (f->link)
        link_unwatch(f->link); /* the Watch thread may abort the group until here */
    f->link = NULL;
    if (f->group && coll_end(f->group, e))
        return e->code;
    sync_close(f->sync);
    coll_close(f->group);
    coll_listener_free(f->listener);
    link_group_release(&f->info);
    *f = (struct formation){0};
    return ERR_OK;
}

/* ---- what ranks tell each other */

enum err_code formation_agree(struct formation *f, int root, const struct err *found, struct err *e)
{
    struct err told = *found;
    if (coll_broadcast(f->group, &told, sizeof(told), root, e))
        return e->code;
    if (told.code)
        *e = told;
    return told.code;
}

void formation_name_rank(const struct formation *f, int rank, struct buf *out)
{
    const char *node = f->info.peers ? f->info.peers[rank].node : NULL;
    buf_printf(out, "rank %d", rank);
    if (node && *node)
        buf_printf(out, " (%s)", node);
}

struct device_kind_name {
    char name[16];
};

/* "cuda on rank 0 (box1), rank 1 (box1)" */
static void list_kind(const struct formation *f, const struct device_kind_name *all,
                      const struct device_kind_name *which, struct buf *out)
{
    const char *before = " on ";
    buf_printf(out, "%s%s", out->len ? "; " : "", which->name);
    for (int r = 0; r < f->world_size; r++) {
        if (strcmp(all[r].name, which->name))
            continue;
        buf_puts(out, before);
        formation_name_rank(f, r, out);
        before = ", ";
    }
}

static enum err_code compare_kinds(const struct formation *f, const struct device_kind_name *all,
                                   struct err *e)
{
    CLEANUP(buf_release) struct buf said = {0};
    const struct device_kind_name *other = NULL;
    for (int r = 0; r < f->world_size && !other; r++)
        other = strcmp(all[r].name, all[0].name) ? &all[r] : NULL;
    if (!other)
        return ERR_OK;
    list_kind(f, all, &all[0], &said);
    list_kind(f, all, other, &said);
    return err_set(e, ERR_FAILED_PRECONDITION,
                   "ranks compute on different devices, set device: cpu or device: cuda (%.150s)", said.data);
}

/* Each rank applies the optimizer itself. On devices of different kinds, parameters would diverge by rounding
 * alone. */
enum err_code formation_check_devices(struct formation *f, const struct device *device, struct err *e)
{
    struct device_kind_name mine = {{0}}, *all = xcalloc((size_t)f->world_size, sizeof(*all));
    snprintf(mine.name, sizeof(mine.name), "%s", device->ops->name);
    enum err_code code = coll_allgather(f->group, &mine, sizeof(mine), all, e);
    if (!code)
        code = compare_kinds(f, all, e);
    free(all);
    return code;
}
