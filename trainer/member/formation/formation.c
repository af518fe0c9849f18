#include "trainer/member/formation/formation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/mem.h"
#include "trainer/device/comm.h"
#include "trainer/member/link/watch.h"

#define CONNECT_MS 60000
/* NCCL's ranks meet one after the other at the rank that made the id, and each opens connections to others. */
#define CONNECT_RANK_MS 100
/* In a group with pairs, each rank shakes hands with every other rank, 32 at a time (coll/handshake.c). Through a relay, one
 * handshake takes two seconds or more: most of it is the wait for the direct way. */
#define CONNECT_PAIR_MS 250

enum err_code formation_listen(struct formation *f, const char *address, const char *directory, struct err *e)
{
    *f = (struct formation){0};
    return coll_listen(&f->listener, address, directory, e);
}

/* ---- joining */

static enum err_code make_device_id(void *arg, int world_size, uint8_t *out, size_t cap, size_t *size,
                                    struct err *e)
{
    struct device *device = arg;
    return device->comm->make_id(world_size, out, cap, size, e);
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
    /* A later generation's world size is not known before Join. */
    if ((as->world_size && f->world_size != as->world_size) || f->rank != as->rank)
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

int formation_connect_ms(int world_size, bool pairs)
{
    return CONNECT_MS + (CONNECT_RANK_MS + (pairs ? CONNECT_PAIR_MS : 0)) * world_size;
}

const struct coll_relay *formation_find_relay(const struct formation *f, struct coll_relay *out)
{
    const struct link_group *info = &f->info;
    if (!info->relay_host)
        return NULL;
    *out = (struct coll_relay){.address.port = info->relay_port};
    snprintf(out->address.host, sizeof(out->address.host), "%s", info->relay_host);
    memcpy(out->ticket, info->relay_ticket, sizeof(out->ticket));
    return out;
}

static enum err_code open_group(struct formation *f, const struct formation_config *c, struct err *e)
{
    const struct link_group *info = &f->info;
    struct coll_peer *peers = xcalloc((size_t)info->world_size, sizeof(*peers));
    for (int r = 0; r < info->world_size; r++)
        peers[r] = (struct coll_peer){r, info->peers[r].node_rank, info->peers[r].local_rank,
                                      info->peers[r].address, info->peers[r].address_size};
    const bool pairs = sync_wants_pairs(&c->sync, f->world_size);
    struct coll_relay relay;
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
        .free_order = c->free_order,
        .bf16 = c->sync.type == SYNC_ALLREDUCE && c->sync.wire == WIRE_BF16,
        .pairs = pairs,
        .device = c->device,
        .relay = formation_find_relay(f, &relay),
        .timeout_ms = formation_connect_ms(f->world_size, pairs),
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
        f->link = c->link;
        if (link_watch(c->link, generation_over, f, e))
            return e->code;
    }
    /* Before the arrays: from another text may follow another vocabulary, and then arrays of other sizes. */
    if (open_group(f, c, e) || formation_check_ranks(f, c, e) || attach_arrays(f, c, e))
        return e->code;
    return formation_open_sync(f, c, e);
}

enum err_code formation_open_sync(struct formation *f, const struct formation_config *c, struct err *e)
{
    sync_close(f->sync);
    f->sync = NULL;
    struct sync_config config = {
        .spec = c->sync,
        .rank = f->rank,
        .world_size = f->world_size,
        .params = c->params->data,
        .grads = c->grads->data,
        .count = c->params->count,
        .tail = c->tail,
        .parts = c->parts,
        .tensors = c->tensors,
        .tensor_count = c->tensor_count,
        .device = c->device,
        .thread = -1,
    };
    for (size_t i = 0; i < c->extra_count; i++)
        config.arrays[i] = c->extra[i].data;
    return sync_open(&f->sync, f->group, &config, e);
}

void formation_abort(struct formation *f)
{
    if (f->group)
        coll_abort(f->group, f->info.generation);
}

enum err_code formation_end(struct formation *f, struct sync_state *round, struct err *e)
{
    if (f->link)
        link_unwatch(f->link); /* the Watch thread may abort the group until here */
    f->link = NULL;
    if (f->group && coll_end(f->group, e))
        return e->code;
    if (f->sync && round)
        sync_leave(f->sync, round);
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

/* The kind of a rank's device ("cuda"), the device's name (equal names give equal bits), and the data that the rank reads. */
struct rank_facts {
    char kind[16], name[96];
    struct formation_data data;
};

/* "cuda on rank 0 (box1), rank 1 (box1)"; which: one of all, by its kind or by its name */
static void list_arithmetic(const struct formation *f, const struct rank_facts *all,
                            const struct rank_facts *which, bool by_kind, struct buf *out)
{
    const char *before = " on ";
    buf_printf(out, "%s%s", out->len ? "; " : "", by_kind ? which->kind : which->name);
    for (int r = 0; r < f->world_size; r++) {
        if (by_kind ? strcmp(all[r].kind, which->kind) : strcmp(all[r].name, which->name))
            continue;
        buf_puts(out, before);
        formation_name_rank(f, r, out);
        before = ", ";
    }
}

/* The rank that the others must be like: the one whose state they take. */
static int model_rank(const struct formation *f)
{
    return f->info.source_rank > 0 ? f->info.source_rank : 0;
}

/* The code with which this rank fails. If there is a state to continue from, a rank that is like the state's source only leaves
 * this group, and can join the next one. So only the ranks that differ end with an error, and the coordinator blames their nodes. */
static enum err_code unlike_code(const struct formation *f, bool differs)
{
    return f->info.source_rank >= 0 && !differs ? ERR_ABORTED : ERR_FAILED_PRECONDITION;
}

/* The first rank that differs from the model rank, or NULL. */
static const struct rank_facts *find_other(const struct formation *f, const struct rank_facts *all,
                                           bool by_kind)
{
    const struct rank_facts *model = &all[model_rank(f)];
    for (int r = 0; r < f->world_size; r++)
        if (by_kind ? strcmp(all[r].kind, model->kind) : strcmp(all[r].name, model->name))
            return &all[r];
    return NULL;
}

static enum err_code compare_arithmetic(const struct formation *f, const struct rank_facts *all,
                                        bool same_bits, bool one_model, struct err *e)
{
    CLEANUP(buf_release) struct buf said = {0};
    bool by_kind = true;
    const struct rank_facts *other = find_other(f, all, by_kind);
    if (!other)
        other = find_other(f, all, by_kind = false);
    if (!other)
        return ERR_OK;
    const struct rank_facts *model = &all[model_rank(f)], *mine = &all[f->rank];
    const enum err_code code =
        unlike_code(f, by_kind ? strcmp(mine->kind, model->kind) : strcmp(mine->name, model->name));
    list_arithmetic(f, all, model, by_kind, &said);
    list_arithmetic(f, all, other, by_kind, &said);
    if (by_kind)
        return err_set(e, code,
                       "ranks compute on different devices: set device: cpu or device: cuda (%.150s)",
                       said.data);
    if (same_bits)
        return err_set(e, code,
                       "reproducible: world needs the same arithmetic on all ranks: set train.isa to an "
                       "instruction set that all CPUs have (%.130s)",
                       said.data);
    if (one_model)
        return err_set(e, code, "optimizer muon needs the same model of GPU on all ranks (%.300s)",
                       said.data);
    if (f->rank == 0)
        log_warn("ranks_compute_differently",
                 "devices=%s effect=\"the bits of the result depend on which rank runs on which device\"",
                 LOG_Q(said.data));
    return ERR_OK;
}

static bool data_differs(const struct formation_data *a, const struct formation_data *b)
{
    return a->bytes != b->bytes || a->digest != b->digest;
}

/* Each rank takes its share from an order of all samples. In a copy with other samples the order is another one, so some samples
 * would be taken twice in an epoch and others never, although the parameters stay equal. */
static enum err_code compare_data(const struct formation *f, const struct rank_facts *all, struct err *e)
{
    CLEANUP(buf_release) struct buf first = {0}, who = {0};
    const int model = model_rank(f);
    const struct formation_data *right = &all[model].data, *other = NULL;
    int others = 0;
    for (int r = 0; r < f->world_size; r++) {
        if (!data_differs(&all[r].data, right))
            continue;
        if (!other)
            formation_name_rank(f, r, &who);
        other = other ? other : &all[r].data;
        others++;
    }
    if (!other)
        return ERR_OK;
    const enum err_code code = unlike_code(f, data_differs(&all[f->rank].data, right));
    formation_name_rank(f, model, &first);
    if (other->bytes == right->bytes)
        return err_set(
            e, code,
            "ranks read different data (%d of %d unlike rank %d): %.50s and %.50s both have %lld bytes, but their contents differ: "
            "copy the same files to all nodes",
            others, f->world_size, model, who.data, first.data, (long long)other->bytes);
    return err_set(
        e, code,
        "ranks read different data (%d of %d unlike rank %d): %.50s has %lld bytes, %.50s has %lld: copy the same files to all "
        "nodes",
        others, f->world_size, model, who.data, (long long)other->bytes, first.data, (long long)right->bytes);
}

/* Each rank applies the optimizer itself. On devices of different kinds, parameters would diverge by rounding
 * alone. */
enum err_code formation_check_ranks(struct formation *f, const struct formation_config *c, struct err *e)
{
    struct rank_facts mine = {.data = c->data}, *all = xcalloc((size_t)f->world_size, sizeof(*all));
    snprintf(mine.kind, sizeof(mine.kind), "%s", c->device->ops->name);
    snprintf(mine.name, sizeof(mine.name), "%s", c->device->name);
    enum err_code code = coll_allgather(f->group, &mine, sizeof(mine), all, e);
    if (!code)
        code = compare_data(f, all, e);
    if (!code)
        code = compare_arithmetic(f, all, c->tree, c->one_model, e);
    free(all);
    return code;
}
