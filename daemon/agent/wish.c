#include "daemon/agent/wish.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/paths.h"
#include "daemon/agent/message_file.h"
#include "proto/rpc_codec.h"

/* The first line of the file (message_file.h). */
static const char magic[] = "ddp wish 1\n";

static enum err_code wish_read(const char *path, Ddp__V1__Wish **out, struct err *e)
{
    void *wish;

    if (message_file_read(path, magic, WISH_MAX, &ddp__v1__wish__descriptor, &wish, e))
        return e->code;
    *out = wish;
    return ERR_OK;
}

enum err_code wish_open(struct wish_store *out, const char *state, struct err *e)
{
    *out = (struct wish_store){.path = paths_join(state, "wish")};
    if (!file_exists(out->path))
        return ERR_OK;
    if (wish_read(out->path, &out->wish, e)) {
        err_wrap(
            e,
            "the saved orders of the coordinator (remove the file when no worker runs on this node any more)");
        wish_close(out);
        return e->code;
    }
    return ERR_OK;
}

void wish_close(struct wish_store *w)
{
    rpc_free(w->wish);
    rpc_free(w->unsaved);
    free(w->path);
    memset(w, 0, sizeof(*w));
}

static enum err_code wish_copy(const Ddp__V1__Wish *wish, Ddp__V1__Wish **out, struct err *e)
{
    CLEANUP(buf_release) struct buf body = {0};
    void *copy = NULL;

    if (rpc_pack(wish, &body, e) ||
        rpc_unpack(&ddp__v1__wish__descriptor, body.data ? body.data : "", body.len, &copy, e))
        return e->code;
    *out = copy;
    return ERR_OK;
}

static enum err_code wish_check(const Ddp__V1__Wish *kept, const Ddp__V1__Wish *wish, struct err *e)
{
    if (kept && strcmp(kept->cluster_id, wish->cluster_id))
        return err_set(
            e, ERR_FAILED_PRECONDITION,
            "this node belongs to cluster %.8s, but its orders come from cluster %.8s: to move the node, "
            "run ddp-agent --rejoin",
            kept->cluster_id, wish->cluster_id);
    if (kept &&
        (wish->epoch < kept->epoch || (wish->epoch == kept->epoch && wish->revision < kept->revision)))
        return err_set(e, ERR_FAILED_PRECONDITION,
                       "orders %" PRId64 ".%" PRId64 " are older than the saved ones, %" PRId64 ".%" PRId64,
                       wish->epoch, wish->revision, kept->epoch, kept->revision);
    return ERR_OK;
}

static enum err_code wish_save(struct wish_store *w, struct card_store *cards, const Ddp__V1__Wish *wish,
                               struct err *e)
{
    Ddp__V1__Wish bare = *wish, *copy;

    bare.cards = NULL; /* cards have files of their own */
    bare.n_cards = 0;
    if (wish_copy(&bare, &copy, e))
        return e->code;
    if (cards_keep(cards, wish->cards, wish->n_cards, e) ||
        message_file_write(w->path, magic, &bare, !w->brief, e)) {
        rpc_free(copy);
        if (e->code == ERR_FAILED_PRECONDITION) /* EBUSY, which does not mean that the wish is wrong */
            e->code = ERR_INTERNAL;
        return e->code;
    }
    rpc_free(w->wish);
    w->wish = copy;
    return ERR_OK;
}

enum err_code wish_accept(struct wish_store *w, struct card_store *cards, const Ddp__V1__Wish *wish,
                          struct err *e)
{
    Ddp__V1__Wish *last = w->unsaved; /* `wish` itself at another try */
    struct err unseen;

    if (wish_check(last ? last : w->wish, wish, e))
        return e->code;
    if (!wish_save(w, cards, wish, e)) {
        w->unsaved = NULL;
        rpc_free(last);
        return ERR_OK;
    }
    if (wish != last) {
        if (wish_copy(wish, &w->unsaved, &unseen))
            w->unsaved = NULL;
        rpc_free(last);
    }
    return e->code;
}

enum err_code wish_forget(struct wish_store *w, struct err *e)
{
    if (unlink(w->path) && errno != ENOENT)
        return err_sys(e, errno, "%s", w->path);
    rpc_free(w->wish);
    rpc_free(w->unsaved);
    w->wish = w->unsaved = NULL;
    return ERR_OK;
}

const Ddp__V1__GroupWish *wish_group(const Ddp__V1__Wish *wish, int64_t job)
{
    for (size_t i = 0; wish && i < wish->n_groups; i++)
        if (wish->groups[i]->job == job)
            return wish->groups[i];
    return NULL;
}

int64_t wish_first_generation(const Ddp__V1__SpawnWish *spawn)
{
    return spawn->first_generation ? spawn->first_generation : spawn->generation;
}

int wish_first_local_rank(const Ddp__V1__SpawnWish *spawn)
{
    return spawn->first_generation ? spawn->first_local_rank : spawn->local_rank;
}

bool wish_any(const Ddp__V1__Wish *wish)
{
    for (size_t i = 0; wish && i < wish->n_groups; i++)
        if (wish->groups[i]->n_spawns)
            return true;
    return false;
}

static bool group_leases_gpu(const Ddp__V1__GroupWish *group, const char *uuid)
{
    for (size_t i = 0; i < group->n_spawns; i++)
        for (size_t k = 0; k < group->spawns[i]->n_gpu_uuids; k++)
            if (!strcmp(group->spawns[i]->gpu_uuids[k], uuid))
                return true;
    return false;
}

bool wish_leases(const Ddp__V1__Wish *wish, const char *uuid)
{
    for (size_t i = 0; wish && i < wish->n_groups; i++)
        if (group_leases_gpu(wish->groups[i], uuid))
            return true;
    return false;
}
