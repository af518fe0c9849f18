/* Opening a worker: device, data, model; then the group of its generation and the arrays that live in it. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "trainer/device/comm.h"
#include "trainer/trainer.h"

void trainer_take_shard(struct trainer *t, int j)
{
    t->sampler.rank = t->rank * t->shards + j;
}

/* Samples are dealt to shards: a rank is one, or several where the world size must not show. */
static enum err_code open_sampler(struct trainer *t, struct err *e)
{
    const struct train_spec *s = t->spec;
    bool world = s->reproducible == REPRODUCIBLE_WORLD;
    int64_t accumulate = s->accumulate > 0 ? s->accumulate : 1;
    if (world && s->shards % t->world_size)
        return err_set(e, ERR_INVALID_ARGUMENT,
                       "reproducible: world with %lld shards wants a world size that divides them, not %d",
                       (long long)s->shards, t->world_size);
    t->shards = world ? (int)s->shards / t->world_size : 1;
    t->sampler = (struct sampler){
        .samples = t->train->count,
        .global = s->global_batch ? s->global_batch : s->batch * t->world_size * accumulate,
        .accumulate = accumulate,
        .seed = (uint64_t)s->seed,
        .shuffle = s->data.shuffle,
        .pad = s->data.pad,
        .world_size = t->world_size * t->shards,
    };
    trainer_take_shard(t, 0);
    return ERR_OK;
}

/* Tensors lie in rising order. */
static void exempt(struct trainer *t)
{
    for (size_t i = 0; i < t->model->tensor_count; i++)
        if (!t->model->tensors[i].decay)
            optim_exempt(t->optim, t->model->tensors[i].offset, t->model->tensors[i].count);
}

/* 2^n shards: the sums of 1, 2, 4, ... of them that wait. */
static enum err_code open_spares(struct trainer *t, struct err *e)
{
    size_t bytes = (t->model->count + TAIL_FLOATS) * sizeof(float);
    while (1 << t->spare_count < t->shards)
        t->spare_count++;
    t->spare = xcalloc((size_t)t->spare_count + 1, sizeof(*t->spare));
    for (int l = 0; l < t->spare_count; l++) {
        void *memory = NULL;
        if (device_alloc(t->device, bytes, "gradients of a shard", &memory, e))
            return e->code;
        t->spare[l] = memory;
    }
    return ERR_OK;
}

static void close_spares(struct trainer *t)
{
    for (int l = 0; l < t->spare_count; l++)
        t->device->ops->free(t->device, t->spare[l]);
    free(t->spare);
}

/* The peak is that of a language model's matrix products. What is resident afterwards, the math library
 * included, is there whatever the model's size. */
static enum err_code open_device(struct trainer *t, struct err *e)
{
    enum device_type type = t->spec->precision == PRECISION_BF16 ? DEVICE_BF16 : DEVICE_F32;
    if (trainer_choose_device(t, e))
        return e->code;
    if (t->spec->model.type == MODEL_GPT && device_peak(t->device, type, &t->peak_flops, e))
        return e->code;
    t->sizes.program = sizes_resident();
    return ERR_OK;
}

static enum err_code open_compute(struct trainer *t, struct err *e)
{
    if (open_device(t, e) || dataset_open(&t->train, &t->test, t->spec, e))
        return e->code;
    if (open_sampler(t, e))
        return e->code;
    int64_t rows = sampler_max_rows(&t->sampler);
    if (model_open(&t->model, t->spec, t->train->loss, t->train->in, t->train->out, rows, t->device, e) ||
        optim_open(&t->optim, t->spec, t->model->count, t->device, e))
        return e->code;
    exempt(t);
    if (batch_open(t, rows, e) || compare_open(t, e))
        return e->code;
    return open_spares(t, e);
}

/* ---- joining */

/* What of the cluster's own a snapshot is: its job, or 0 where the numbers are another cluster's. */
static int64_t job_of(const struct trainer *t, const struct snapshot_found *f)
{
    return strcmp(f->cluster, link_place(t->link)->cluster) ? 0 : f->job;
}

/* One rank a node offers what lies in snapshot.dir: all of the node see the same. The coordinator chooses,
 * but nobody can vouch for another cluster's that is not committed, and a worker on its own has no restarts
 * to go on from. */
static enum err_code find_offers(const struct trainer *t, struct snapshot_list *found,
                                 struct link_offer **offers, size_t *count, struct err *unreadable,
                                 struct err *e)
{
    *offers = NULL;
    *count = 0;
    if (!t->snapshot_dir || t->config->local_rank != 0)
        return ERR_OK;
    if (snapshot_scan(t->snapshot_dir, found, e)) {
        if (!link_has_coordinator(t->link))
            return err_wrap(e, "snapshot.dir");
        /* The coordinator knows whether the job has anything there to go on from. */
        log_warn("snapshot_dir_unreadable", "why=%s", LOG_Q(e->msg));
        found->unusable = strv_append(found->unusable, e->msg);
        *unreadable = *e;
        *e = (struct err){0};
    }
    if (t->spec->resume == RESUME_NEVER || (t->config->standalone && t->spec->resume == RESUME_AUTO))
        return ERR_OK;
    *offers = xcalloc(found->count + 1, sizeof(**offers));
    for (size_t i = 0; i < found->count; i++) {
        const struct snapshot_found *f = &found->items[i];
        if (!f->committed && (t->config->standalone || !job_of(t, f)))
            continue;
        (*offers)[(*count)++] =
            (struct link_offer){job_of(t, f), f->generation, f->step, f->digest, f->path, f->committed};
    }
    return ERR_OK;
}

/* Starting from scratch beside somebody's snapshots would sooner or later replace them. What the coordinator
 * knows of it has refused at submit; this is for directories that it does not know. */
static enum err_code check_directory_is_ours(const struct trainer *t, const struct snapshot_list *found,
                                             struct err *e)
{
    if (t->spec->resume == RESUME_CONTINUE || t->group_info.source_rank >= 0 ||
        t->group_info.scratch_generation) /* what is there is set aside */
        return ERR_OK;
    for (size_t i = 0; i < found->count; i++) {
        const struct snapshot_found *f = &found->items[i];
        if (f->committed && (t->config->standalone || job_of(t, f) != link_place(t->link)->job))
            return err_set(
                e, ERR_FAILED_PRECONDITION,
                "%s holds snapshots of another run (step %lld), say --set train.resume=continue or "
                "--set train.snapshot.dir=%s2",
                t->spec->snapshot.dir, (long long)f->step, t->spec->snapshot.dir);
    }
    return ERR_OK;
}

static void free_offers(struct link_offer **offers)
{
    free(*offers);
}

static enum err_code make_id(void *arg, uint8_t *out, size_t cap, size_t *size, struct err *e)
{
    struct trainer *t = arg;
    return t->device->comm->make_id(out, cap, size, e);
}

/* Whether the group will have an id of the device's: making one leaves a thread that waits for all ranks. */
static bool wants_id(const struct trainer *t)
{
    return t->device->comm && t->world_size > 1 && t->spec->reproducible != REPRODUCIBLE_WORLD;
}

static enum err_code join(struct trainer *t, struct err *e)
{
    CLEANUP(snapshot_list_release) struct snapshot_list found = {0};
    CLEANUP(free_offers) struct link_offer *offers = NULL;
    struct err unreadable = {0};
    uint8_t address[512];
    size_t count = 0;
    if (find_offers(t, &found, &offers, &count, &unreadable, e) ||
        coll_listen(&t->listener, link_place(t->link)->address, link_place(t->link)->directory, e))
        return e->code;
    struct link_join request = {
        .address = address,
        .address_size = coll_listener_address(t->listener, address, sizeof(address)),
        .offers = offers,
        .offer_count = count,
        .unusable = found.unusable,
        .make_bootstrap = wants_id(t) ? make_id : NULL,
        .bootstrap_arg = t,
    };
    if (link_join(t->link, link_first_member(t->link), &request, &t->group_info, e))
        return e->code;
    if (t->group_info.world_size != t->world_size || t->group_info.rank != t->rank)
        return err_set(e, ERR_ABORTED, "joined as rank %d of %d, started as %d of %d", t->group_info.rank,
                       t->group_info.world_size, t->rank, t->world_size);
    if (unreadable.code && t->group_info.source_rank < 0) { /* nobody knows what would be started over */
        *e = unreadable;
        return err_wrap(e, "snapshot.dir");
    }
    return check_directory_is_ours(t, &found, e);
}

static void stale(void *arg, int64_t current_generation)
{
    (void)current_generation;
    struct trainer *t = arg;
    coll_listener_abort(t->listener, t->group_info.generation);
    trainer_wake();
}

static enum err_code form_group(struct trainer *t, struct err *e)
{
    const struct link_group *g = &t->group_info;
    struct coll_peer *peers = xcalloc((size_t)g->world_size, sizeof(*peers));
    for (int r = 0; r < g->world_size; r++)
        peers[r] = (struct coll_peer){r, g->peers[r].node_rank, g->peers[r].local_rank, g->peers[r].address,
                                      g->peers[r].address_size};
    struct coll_config config = {
        .job = link_place(t->link)->job,
        .generation = g->generation,
        .rank = t->rank,
        .world_size = t->world_size,
        .peers = peers,
        .bootstrap = g->bootstrap,
        .bootstrap_size = g->bootstrap_size,
        .loopback = g->loopback,
        .tree = t->spec->reproducible == REPRODUCIBLE_WORLD,
        .device = t->device,
        .timeout_ms = 60000,
    };
    memcpy(config.key, g->key, sizeof(config.key));
    link_heed_signal(t->link, &trainer_stop_signal);
    enum err_code code = link_watch(t->link, stale, t, e);
    if (!code)
        code = coll_open(&t->group, t->listener, &config, e);
    free(peers);
    if (code == ERR_UNAVAILABLE || code == ERR_DEADLINE_EXCEEDED)
        e->code = ERR_ABORTED; /* a peer went away after Join */
    return code ? e->code : ERR_OK;
}

static enum err_code open_arrays(struct trainer *t, struct err *e)
{
    size_t count = t->model->count + TAIL_FLOATS;
    if (coll_alloc(t->group, count, &t->params, e))
        return err_wrap(e, "parameters");
    if (coll_alloc(t->group, count, &t->grads, e))
        return err_wrap(e, "gradients");
    struct sync_config config = {
        .spec = t->spec->sync,
        .world_size = t->world_size,
        .params = t->params,
        .grads = t->grads,
        .count = count,
        .device = t->device,
        .thread = -1,
    };
    return sync_open(&t->sync, t->group, &config, e);
}

/* ---- who writes snapshots: rank 0, and where snapshot.dir is not shared the first rank of every other node
 */

static enum err_code choose_writer(struct trainer *t, bool *writer, struct err *e)
{
    CLEANUP(free_text)
    char *mark = xasprintf("%s/.shared-j%lld-g%lld", t->snapshot_dir, (long long)link_place(t->link)->job,
                           (long long)t->group_info.generation);
    *writer = t->rank == 0;
    if (t->rank == 0 && (file_mkdirs(t->snapshot_dir, 0755, e) || file_write_atomic(mark, "", 0, 0644, e)))
        return err_wrap(e, "snapshot.dir");
    if (coll_barrier(t->group, e))
        return e->code;
    if (t->rank != 0 && t->config->local_rank == 0)
        *writer = !file_exists(mark);
    if (coll_barrier(t->group, e))
        return e->code;
    if (t->rank == 0)
        unlink(mark);
    return ERR_OK;
}

static enum err_code commit(void *arg, const struct snapshot_place *place, const struct snapshot_files *files,
                            struct err *e)
{
    struct trainer *t = arg;
    struct link_snapshot s = {
        .step = place->step, .bytes = files->bytes, .digest = files->digest, .path = files->path};
    return link_commit_snapshot(t->link, &s, e);
}

static void tell_failure(void *arg, const struct snapshot_place *place, const struct err *why)
{
    const struct trainer *t = arg;
    link_snapshot_failure(t->link, place->step, why);
}

/* The user had the job begin again: what it had before stays, out of the way of what comes now. */
static enum err_code set_aside(const struct trainer *t, struct err *e)
{
    struct snapshot_place own = {.job = link_place(t->link)->job};
    if (!t->group_info.scratch_generation)
        return ERR_OK;
    snprintf(own.cluster, sizeof(own.cluster), "%s", link_place(t->link)->cluster);
    return snapshot_set_aside(t->snapshot_dir, &own, t->group_info.scratch_generation, e);
}

static enum err_code open_saver(struct trainer *t, struct err *e)
{
    bool writer = false;
    if (sync_ranks_differ(t->sync)) {
        t->scratch = calloc(snapshot_floats(&t->layout), sizeof(float));
        if (!t->scratch)
            return err_set(e, ERR_RESOURCE_EXHAUSTED,
                           "a copy of one rank's state (%zu floats): out of memory",
                           snapshot_floats(&t->layout));
    }
    if (!t->snapshot_dir)
        return ERR_OK;
    if (choose_writer(t, &writer, e))
        return e->code;
    if (!writer)
        return ERR_OK;
    if (set_aside(t, e))
        return err_wrap(e, "snapshot.dir");
    struct saver_config config = {
        .dir = t->snapshot_dir,
        .keep = t->spec->snapshot.keep,
        .keep_best = t->spec->snapshot.keep_best,
        .after = t->group_info.scratch_generation,
        .layout = &t->layout,
        .max_parts = sync_ranks_differ(t->sync) ? t->world_size : 0,
        .commit = commit,
        .failed = tell_failure,
        .arg = t,
    };
    return saver_open(&t->saver, &config, e);
}

static enum err_code absolute_dir(struct trainer *t, struct err *e)
{
    char here[PATH_MAX];
    const char *dir = t->spec->snapshot.dir;
    if (!dir)
        return ERR_OK;
    if (dir[0] == '/') {
        t->snapshot_dir = xstrdup(dir);
        return ERR_OK;
    }
    if (!getcwd(here, sizeof(here)))
        return err_set(e, ERR_FAILED_PRECONDITION, "the current directory cannot be told");
    t->snapshot_dir = xasprintf("%s/%s", here, dir);
    return ERR_OK;
}

/* What the devices of all ranks do together. */
static enum err_code sum_peaks(struct trainer *t, struct err *e)
{
    double mine = t->peak_flops, *all = xcalloc((size_t)t->world_size, sizeof(*all));
    enum err_code code = coll_allgather(t->group, &mine, sizeof(mine), all, e);
    t->peak_flops = 0.0;
    for (int r = 0; !code && r < t->world_size; r++)
        t->peak_flops += all[r];
    free(all);
    return code;
}

enum err_code trainer_open(struct trainer *t, const struct trainer_config *config, struct link *link,
                           struct err *e)
{
    *t = (struct trainer){.config = config, .spec = &config->job.train, .link = link};
    t->rank = link_first_member(link)->rank;
    t->world_size = link_first_member(link)->world_size;
    t->loss = t->lr = t->grad_norm = t->val_loss = t->val_acc = t->best_loss = NAN;
    t->last_snapshot_step = t->digest_step = t->agreed_step = t->val_step = -1;
    if (absolute_dir(t, e) || open_compute(t, e))
        return e->code;
    trainer_describe(t);
    if (join(t, e) || form_group(t, e) || trainer_check_devices(t, e) || open_arrays(t, e) ||
        open_saver(t, e))
        return e->code;
    if (sum_peaks(t, e))
        return e->code;
    sizes_take(t);
    sizes_log(t);
    t->last_snapshot_ms = t->last_eval_ms = clock_boot_ms();
    return ERR_OK;
}

bool trainer_close(struct trainer *t)
{
    struct err e = {0};
    link_cancel(t->link);
    saver_close(t->saver);   /* its commits go by the report */
    link_close(t->link); /* its Watch thread may abort the group */
    if (t->group && coll_end(t->group, &e)) {
        log_error("device_stuck", "rank=%d why=%s", t->rank, LOG_Q(e.msg));
        return false;
    }
    sync_close(t->sync);
    coll_close(t->group);
    coll_listener_free(t->listener);
    link_group_release(&t->group_info);
    free(t->scratch);
    free(t->snapshot_dir);
    buf_release(&t->config_json);
    buf_release(&t->vocab_json);
    free(t->tensors);
    batch_close(t);
    compare_close(t);
    close_spares(t);
    optim_free(t->optim);
    model_free(t->model);
    dataset_free(t->train);
    dataset_free(t->test);
    device_close(t->device);
    return true;
}
