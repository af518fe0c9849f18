#include "daemon/agent/wish.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/id.h"
#include "base/mem.h"
#include "base/paths.h"
#include "proto/rpc_codec.h"

/* The file: "ddp wish 1\n", SHA-256 of the rest, the packed message. */
static const char magic[] = "ddp wish 1\n";
#define MAGIC_BYTES (sizeof(magic) - 1)
#define WISH_MAX (64u << 20)

static enum err_code read_wish(const char *path, Ddp__V1__Wish **out, struct err *e)
{
    CLEANUP(buf_release) struct buf text = {0};
    uint8_t digest[DIGEST_BYTES];
    size_t head = MAGIC_BYTES + DIGEST_BYTES;
    void *wish = NULL;

    if (file_read(path, WISH_MAX, &text, e))
        return e->code;
    if (text.len < head || memcmp(text.data, magic, MAGIC_BYTES))
        return err_set(e, ERR_DATA_LOSS, "%s: not a kept wish", path);
    digest_sha256(digest, text.data + head, text.len - head);
    if (memcmp(digest, text.data + MAGIC_BYTES, DIGEST_BYTES))
        return err_set(e, ERR_DATA_LOSS, "%s is damaged", path);
    if (rpc_unpack(&ddp__v1__wish__descriptor, text.data + head, text.len - head, &wish, e))
        return err_wrap(e, "%s", path);
    *out = wish;
    return ERR_OK;
}

static enum err_code write_wish(const char *path, const Ddp__V1__Wish *wish, struct err *e)
{
    CLEANUP(buf_release) struct buf body = {0};
    CLEANUP(buf_release) struct buf text = {0};
    uint8_t digest[DIGEST_BYTES];

    if (rpc_pack(wish, &body, e))
        return e->code;
    digest_sha256(digest, body.data ? body.data : "", body.len);
    buf_append(&text, magic, MAGIC_BYTES);
    buf_append(&text, digest, sizeof(digest));
    buf_append(&text, body.data ? body.data : "", body.len);
    return file_write_atomic(path, text.data, text.len, 0600, e);
}

enum err_code wish_open(struct wish_store *out, const char *state, struct err *e)
{
    *out = (struct wish_store){.path = paths_join(state, "wish")};
    if (!file_exists(out->path))
        return ERR_OK;
    if (read_wish(out->path, &out->wish, e)) {
        err_wrap(e, "the kept wish (remove the file when no worker runs here any more)");
        wish_close(out);
        return e->code;
    }
    return ERR_OK;
}

void wish_close(struct wish_store *w)
{
    rpc_free(w->wish);
    free(w->path);
    memset(w, 0, sizeof(*w));
}

enum err_code wish_accept(struct wish_store *w, const Ddp__V1__Wish *wish, struct err *e)
{
    const Ddp__V1__Wish *old = w->wish;
    CLEANUP(buf_release) struct buf body = {0};
    void *copy = NULL;

    if (old && strcmp(old->cluster_id, wish->cluster_id))
        return err_set(e, ERR_FAILED_PRECONDITION,
                       "this node belongs to cluster %.8s, not %.8s; ddp-agent --rejoin changes that",
                       old->cluster_id, wish->cluster_id);
    if (old && (wish->epoch < old->epoch || (wish->epoch == old->epoch && wish->revision < old->revision)))
        return err_set(e, ERR_FAILED_PRECONDITION,
                       "wish %" PRId64 ".%" PRId64 " is older than the kept one, %" PRId64 ".%" PRId64,
                       wish->epoch, wish->revision, old->epoch, old->revision);
    if (rpc_pack(wish, &body, e) || write_wish(w->path, wish, e))
        return e->code;
    if (rpc_unpack(&ddp__v1__wish__descriptor, body.data ? body.data : "", body.len, &copy, e))
        return e->code;
    rpc_free(w->wish);
    w->wish = copy;
    return ERR_OK;
}

enum err_code wish_forget(struct wish_store *w, struct err *e)
{
    if (unlink(w->path) && errno != ENOENT)
        return err_sys(e, errno, "%s", w->path);
    rpc_free(w->wish);
    w->wish = NULL;
    return ERR_OK;
}

const Ddp__V1__GroupWish *wish_group(const Ddp__V1__Wish *wish, int64_t job)
{
    for (size_t i = 0; wish && i < wish->n_groups; i++)
        if (wish->groups[i]->job == job)
            return wish->groups[i];
    return NULL;
}

bool wish_any(const Ddp__V1__Wish *wish)
{
    for (size_t i = 0; wish && i < wish->n_groups; i++)
        if (wish->groups[i]->n_spawns)
            return true;
    return false;
}

static bool holds(const Ddp__V1__GroupWish *group, const char *uuid)
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
        if (holds(wish->groups[i], uuid))
            return true;
    return false;
}
