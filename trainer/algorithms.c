#include "trainer/algorithms.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "trainer/engine/describe.h"
#include "trainer/engine/rehearse.h"

#define TEXT_LIMIT ((size_t)1 << 20)

static enum err_code any_rank_chooses(struct trainer *t, bool *any, struct err *e)
{
    int world = t->formation.world_size, mine = t->engine.device->chooses;
    int *all = xcalloc((size_t)world, sizeof(*all));
    enum err_code code = coll_allgather(t->formation.group, &mine, sizeof(mine), all, e);
    *any = false;
    for (int r = 0; code == ERR_OK && r < world; r++)
        *any |= all[r];
    free(all);
    return code;
}

/* Returns the path of a file with kept algorithms, or NULL. The caller frees it. */
static char *kept_path(const struct trainer *t)
{
    const char *named = getenv("DDP_CUDA_TUNE");
    const struct link_group *info = &t->formation.info;
    CLEANUP(free_text) char *path = NULL;
    if (info->source_rank >= 0 && info->source.path)
        path = xasprintf("%s/" SNAPSHOT_ALGORITHMS_FILE, info->source.path);
    if (path && file_exists(path))
        return steal(path);
    return named && *named && strcmp(named, "1") != 0 ? xstrdup(named) : NULL;
}

static enum err_code read_kept(const struct trainer *t, struct buf *text, struct err *e)
{
    CLEANUP(free_text) char *path = kept_path(t);
    if (path && file_read(path, TEXT_LIMIT, text, e))
        return err_wrap(e, "kept algorithms (DDP_CUDA_TUNE)");
    return ERR_OK;
}

/* Sends the text of the root to all ranks. */
static enum err_code share_text(struct trainer *t, int root, struct buf *text, struct err *e)
{
    uint64_t size = text->len;
    if (coll_broadcast(t->formation.group, &size, sizeof(size), root, e))
        return e->code;
    if (t->formation.rank != root) {
        buf_clear(text);
        buf_reserve(text, (size_t)size + 1);
        text->len = (size_t)size;
    }
    return size ? coll_broadcast(t->formation.group, text->data, (size_t)size, root, e) : ERR_OK;
}

/* Takes the choices of the text. If they are for another kind of device, does a rehearsal if `rehearse` is set. */
static enum err_code take_or_rehearse(struct trainer *t, const struct buf *text, bool rehearse, struct err *e)
{
    struct device *d = t->engine.device;
    struct err why = {0};
    if (!d->chooses || !text->len)
        return ERR_OK;
    enum err_code code = d->ops->take_choices(d, text->data, text->len, &why);
    if (code == ERR_FAILED_PRECONDITION) {
        log_warn("algorithms_chosen_anew", "rank=%d why=%s", t->formation.rank, LOG_Q(why.msg));
        return rehearse ? engine_rehearse(&t->engine, e) : ERR_OK;
    }
    if (code)
        *e = why;
    return code;
}

static enum err_code root_rehearse(struct trainer *t, struct buf *text, struct err *e)
{
    struct device *d = t->engine.device;
    CLEANUP(buf_release) struct buf before = {0};
    buf_append(&before, text->data, text->len);
    if (!d->chooses)
        return ERR_OK;
    if (engine_rehearse(&t->engine, e))
        return e->code;
    buf_clear(text);
    d->ops->choices(d, text);
    bool same = before.len == text->len && (!text->len || !memcmp(before.data, text->data, text->len));
    log_info(same ? "algorithms_kept" : "algorithms_chosen", "rank=%d device=%s", t->formation.rank,
             LOG_Q(d->name));
    return ERR_OK;
}

enum err_code trainer_choose_algorithms(struct trainer *t, struct err *e)
{
    CLEANUP(buf_release) struct buf text = {0};
    struct formation *f = &t->formation;
    struct err found = {0};
    bool any = false;
    int root = f->info.source_rank >= 0 ? f->info.source_rank : 0;
    if (t->engine.device->host)
        return ERR_OK;
    if (any_rank_chooses(t, &any, e) || !any)
        return e->code;
    if (f->rank == root && f->info.live)
        t->engine.device->ops->choices(t->engine.device, &text);
    else if (f->rank == root && read_kept(t, &text, &found))
        log_error("algorithms_unreadable", "why=%s", LOG_Q(found.msg));
    if (formation_agree(f, root, &found, e) || share_text(t, root, &text, e) ||
        take_or_rehearse(t, &text, false, e))
        return e->code;
    if (f->rank == root && root_rehearse(t, &text, &found))
        log_error("algorithms_not_chosen", "why=%s", LOG_Q(found.msg));
    if (formation_agree(f, root, &found, e) || share_text(t, root, &text, e))
        return e->code;
    describe_algorithms(&t->engine, &text);
    return f->rank == root ? ERR_OK : take_or_rehearse(t, &text, true, e);
}
