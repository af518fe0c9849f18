/* If all ranks have the same state (all-reduce, or a world of one), a snapshot is that state, and writers write it. If
 * each rank has a state of its own (parameters until the round ends, moments even then), the writers write the shared
 * model, and each rank writes its own part where it is: only digests of the parts cross the network
 * (trainer/snapshot/parts.h). If ranks have divided the moments among them (shard: optimizer), the writers write the parameters, and
 * each rank writes its moments as its part (trainer/snapshot/divided.h). */
#include "trainer/keep.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "trainer/engine/state.h"
#include "trainer/member/link/commit.h"
#include "trainer/member/link/watch.h"
#include "trainer/moments.h"
#include "trainer/parameters.h"
#include "trainer/progress.h"
#include "trainer/rebalance.h"
#include "trainer/signals.h"
#include "trainer/test_wait.h"

/* How long the last snapshot of a finished run waits for space or another resource, and its pauses. Without this snapshot all steps
 * since the one before are lost, and another attempt would make them again for the same full disk. */
#define SPACE_WAIT_MS (10 * 60 * 1000)
#define SPACE_PAUSE_LEAST_MS 500
#define SPACE_PAUSE_MOST_MS 15000
#define LOOK_MS 100 /* a pause ends this long after a stop */
#define LOCK_WAIT_MS 5000

/* ---- who writes what ranks share: rank 0, and where snapshot.dir is not shared the first rank of every other node */

/* Whether no other rank of this rank's node has a lower local rank. A node's local rank 0 is not always a member: a round with
 * sync.quorum closes without late ranks. */
static bool first_of_node(const struct formation *f)
{
    const struct link_peer *own = &f->info.peers[f->rank];
    for (int r = 0; r < f->world_size; r++)
        if (f->info.peers[r].node_rank == own->node_rank && f->info.peers[r].local_rank < own->local_rank)
            return false;
    return true;
}

/* The rank that writes the shared files of this rank's directory: a writer of its node, else rank 0. *writers: how many there are, one
 * for each directory. */
static enum err_code find_home(struct trainer *t, bool writer, int *writers, struct err *e)
{
    const struct formation *f = &t->formation;
    bool *all = xcalloc((size_t)f->world_size, sizeof(*all));
    enum err_code code = coll_allgather(f->group, &writer, sizeof(writer), all, e);
    t->home = *writers = 0;
    for (int r = 0; !code && r < f->world_size; r++) {
        *writers += all[r];
        if (all[r] && f->info.peers[r].node_rank == f->info.peers[f->rank].node_rank)
            t->home = r;
    }
    free(all);
    return code;
}

static enum err_code choose_writer(struct trainer *t, bool *writer, int *writers, struct err *e)
{
    CLEANUP(free_text)
    char *mark = xasprintf("%s/.shared-j%lld-g%lld", t->snapshot_dir, (long long)link_place(t->link)->job,
                           (long long)t->formation.info.generation);
    *writer = t->formation.rank == 0;
    if (t->formation.rank == 0 &&
        (file_mkdirs(t->snapshot_dir, 0755, e) || file_write_atomic(mark, "", 0, 0644, e)))
        return err_wrap(e, "snapshot.dir");
    if (coll_barrier(t->formation.group, e))
        return e->code;
    if (t->formation.rank != 0 && first_of_node(&t->formation))
        *writer = !file_exists(mark);
    if (find_home(t, *writer, writers, e))
        return e->code;
    if (t->formation.rank == 0)
        unlink(mark);
    return ERR_OK;
}

static enum err_code commit_snapshot(void *arg, const struct snapshot_place *place,
                                     const struct snapshot_files *files, struct err *e)
{
    struct trainer *t = arg;
    struct link_snapshot s = {.step = place->step,
                              .bytes = files->bytes,
                              .parts = (int)place->parts,
                              .digest = files->path ? files->digest : NULL,
                              .path = files->path,
                              .patience_ms = t->patience_ms};
    return link_commit_snapshot(t->link, &s, e);
}

/* Copies the state, beside the next step: keep_await_copy. */
static enum err_code copy_state(void *arg, float *state, struct err *e)
{
    const struct trainer *t = arg;
    struct state_array arrays[STATE_ARRAYS_MAX];
    const size_t count = state_arrays(&t->engine, arrays);
    for (size_t i = 0, at = 0; i < count; at += arrays[i++].count) {
        if (i + 1 == count)
            test_wait_copy(t);
        if (fault_hit("snapshot.copy"))
            return err_set(e, ERR_INTERNAL, "the state cannot be copied");
        if (state_fetch(&t->engine, &arrays[i], state + at, e))
            return e->code;
    }
    return ERR_OK;
}

static void tell_failed_snapshot(void *arg, const struct snapshot_place *place, const struct err *why)
{
    const struct trainer *t = arg;
    link_snapshot_failure(t->link, place->step, why);
}

/* A stop must be quick, and a generation that is over commits no snapshot. */
static bool must_not_wait(const struct trainer *t)
{
    return link_over(t->link) || link_stop_asked(t->link) || trainer_stop_signal;
}

/* A generation that is over commits no snapshot (commit.c). A worker that stops on request is still a member, so its snapshot is written.
 * Only if several directories get the same whole snapshot, another writer may have committed it already. It then counts, and this
 * node's copy is written to its end (mark_unanswered). */
static bool snapshot_is_over(void *arg, const struct snapshot_place *place)
{
    const struct trainer *t = arg;
    return link_over(t->link) && (place->parts || t->writers == 1);
}

static bool pause_for_space(void *arg, const struct snapshot_place *place, const struct err *why,
                            int64_t left_ms, int tries)
{
    const struct trainer *t = arg;
    const struct timespec look = {.tv_nsec = LOOK_MS * 1000000};
    int64_t pause = tries < 5 ? SPACE_PAUSE_LEAST_MS << tries : SPACE_PAUSE_MOST_MS;
    if (pause > left_ms)
        pause = left_ms;
    /* Each failure is logged and reported, so that this rank does not count as silent, and a coordinator that has
     * restarted knows that it waits. */
    log_warn("snapshot_waits", "step=%lld left_s=%lld why=%s", (long long)place->step,
             (long long)(left_ms / 1000), LOG_Q(why->msg));
    link_snapshot_waits(t->link, place->step, why, left_ms);
    for (const int64_t end = clock_boot_ms() + pause; !must_not_wait(t) && clock_boot_ms() < end;)
        nanosleep(&look, NULL);
    return !must_not_wait(t);
}

/* Whether the holder is a process of this job. */
static bool holder_is_own(const struct trainer *t, const struct snapshot_holder *holder)
{
    const struct link_place *place = link_place(t->link);
    return *place->cluster && holder->job == place->job && !strcmp(holder->cluster, place->cluster);
}

/* Whether the holder may end within LOCK_WAIT_MS. With sync.quorum, a generation that goes on from memory forms beside late ranks,
 * which keep their locks until they come back. Members have released theirs before they joined, and ranks that were lost have ended
 * before that generation formed. So the holder is late, or its node cannot be reached. */
static bool holder_may_end(const struct trainer *t, const struct snapshot_holder *holder)
{
    return !(t->sync.quorum && t->formation.info.live && holder_is_own(t, holder));
}

static enum err_code lock_take(struct trainer *t, struct snapshot_holder *holder, struct err *e)
{
    struct snapshot_place own = {.job = link_place(t->link)->job, .generation = t->formation.info.generation};
    snprintf(own.cluster, sizeof(own.cluster), "%s", link_place(t->link)->cluster);
    return snapshot_lock_take(&t->dir_lock, t->snapshot_dir, &own, holder, e);
}

/* Waits a few seconds, because the last process that wrote here may still be ending. */
static enum err_code try_lock(struct trainer *t, struct snapshot_holder *holder, struct err *e)
{
    const struct timespec look = {.tv_nsec = LOOK_MS * 1000000};
    const int64_t until = clock_boot_ms() + LOCK_WAIT_MS;
    for (;;) {
        *e = (struct err){0};
        if (lock_take(t, holder, e) != ERR_ALREADY_EXISTS || clock_boot_ms() >= until ||
            !holder_may_end(t, holder))
            return e->code;
        if (link_over(t->link))
            return err_set(e, ERR_ABORTED, "the generation is over");
        nanosleep(&look, NULL);
    }
}

/* A writer that went on without the lock takes it before a later snapshot, if its holder has ended meanwhile. */
static void lock_later(struct trainer *t)
{
    struct snapshot_holder holder;
    struct err e = {0};
    if (t->saver && t->writer && t->dir_lock.fd < 0 && lock_take(t, &holder, &e) == ERR_OK)
        log_info("snapshot_dir_locked", "dir=%s", LOG_Q(t->snapshot_dir));
}

/* FAILED_PRECONDITION: another run writes into this directory. Each would remove the other's snapshots. */
static enum err_code lock_dir(struct trainer *t, struct err *e)
{
    struct snapshot_holder holder;
    struct err ignored;
    if (file_mkdirs(t->snapshot_dir, 0755, &ignored)) {
        /* of another node than rank 0's; the first snapshot reports it */
    }
    const enum err_code code = try_lock(t, &holder, e);
    if (!code || code == ERR_ABORTED)
        return code;
    CLEANUP(free_text) char *who = snapshot_holder_name(&holder);
    /* The rank goes on without the lock if the file system has none, or if a process of the same job holds it. That process may be late,
     * or on a node that is cut off; it can commit nothing any more, and its files have other names. */
    const bool own = holder_is_own(t, &holder);
    if (code != ERR_ALREADY_EXISTS || own) {
        if (!t->lock_warned)
            log_warn("snapshot_dir_not_locked", "dir=%s holder=%s why=%s", LOG_Q(t->snapshot_dir),
                     LOG_Q(own ? who : ""), LOG_Q(e->msg));
        t->lock_warned = true;
        *e = (struct err){0};
        return ERR_OK;
    }
    return err_set(
        e, ERR_FAILED_PRECONDITION,
        "%s is in use: %s writes its snapshots there; wait for it, or set another train.snapshot.dir",
        t->snapshot_dir, who);
}

/* If the user restarted the job from scratch, moves its former snapshots to another directory. Else moves those of other
 * runs that this generation's snapshots would replace. */
static enum err_code set_aside(const struct trainer *t, struct err *e)
{
    const struct link_group *g = &t->formation.info;
    struct snapshot_place own = {.job = link_place(t->link)->job,
                                 .generation = g->generation,
                                 .step = g->source_rank >= 0 ? g->source.step : -1};
    snprintf(own.cluster, sizeof(own.cluster), "%s", link_place(t->link)->cluster);
    if (!g->scratch_generation)
        return snapshot_set_others_aside(t->snapshot_dir, &own, e);
    return snapshot_set_aside(t->snapshot_dir, &own, t->formation.info.scratch_generation, e);
}

/* A writer that did not get the answer to its commit does not know that the snapshot counts, and would remove it as one
 * that was never committed. */
static void mark_unanswered(const struct trainer *t)
{
    const struct link_group *g = &t->formation.info;
    for (size_t i = 0; i < g->committed_count; i++) {
        const struct link_committed *c = &g->committed[i];
        CLEANUP(free_text)
        char *path =
            xasprintf("%s/step-%lld-g%lld", t->snapshot_dir, (long long)c->step, (long long)c->generation);
        CLEANUP(free_text) char *mark = xasprintf("%s/COMMITTED.json", path);
        struct err e = {0};
        if (!file_exists(path) || file_exists(mark))
            continue;
        if (snapshot_mark_digest(path, c->digest, &e))
            log_warn("snapshot_mark_failed", "why=%s", LOG_Q(e.msg));
        else
            log_info("snapshot_marked", "path=%s why=\"the answer to its commit was lost\"", LOG_Q(path));
    }
}

/* Whether each rank writes its part of the moments. A part exists once, so where nodes have directories of their own, a node that is
 * lost takes moments with it. There each writer writes a whole copy, unless the job wants parts. */
static bool snapshot_divides(const struct trainer *t)
{
    const enum moments_type kept = t->spec->snapshot.moments;
    return t->engine.optim->part && t->engine.optim->whole_floats > 0 && t->formation.world_size > 1 &&
           (kept == MOMENTS_PARTS || (kept == MOMENTS_AUTO && t->writers == 1));
}

enum err_code keep_open(struct trainer *t, struct err *e)
{
    bool writer = false, differ = sync_ranks_differ(t->formation.sync);
    t->divides = false;
    t->patience_ms = 0;
    if (!t->snapshot_dir)
        return ERR_OK;
    if (choose_writer(t, &writer, &t->writers, e))
        return e->code;
    t->divides = snapshot_divides(t);
    if (t->divides)
        state_ranges(&t->engine, &t->ranges);
    if (!writer && !differ && !t->divides)
        return ERR_OK;
    if (writer && lock_dir(t, e))
        return err_wrap(e, "snapshot.dir");
    /* Done before this generation writes its first snapshot. */
    if (writer && set_aside(t, e))
        return err_wrap(e, "snapshot.dir");
    if (writer)
        mark_unanswered(t);
    struct saver_config config = {
        .dir = t->snapshot_dir,
        .keep = t->spec->snapshot.keep,
        .keep_best = t->spec->snapshot.keep_best,
        .after = t->formation.info.scratch_generation,
        .layout = &t->engine.layout,
        .parts = differ || t->divides ? t->formation.world_size : 0,
        .ranges = t->divides ? &t->ranges : NULL,
        .part = t->formation.rank,
        .writer = t->writer = writer,
        .copy = copy_state,
        .commit = commit_snapshot,
        .failed = tell_failed_snapshot,
        .pause = pause_for_space,
        .over = snapshot_is_over,
        .arg = t,
    };
    return saver_open(&t->saver, &config, e);
}

void keep_close(struct trainer *t)
{
    saver_close(t->saver);
    t->saver = NULL;
    snapshot_lock_release(&t->dir_lock);
    divided_release(&t->ranges);
}

size_t keep_bytes(const struct trainer *t)
{
    return t->saver ? saver_bytes(t->saver) : 0;
}

/* ---- taking a snapshot */

/* Whether a snapshot needs the states of all ranks. At the end of a round parameters are equal, so one state
 * is enough for an optimizer without moments. */
static bool snapshot_wants_parts(const struct trainer *t)
{
    bool own = !sync_settled(t->formation.sync);
    for (size_t i = 0; i < t->engine.layout.moment_count; i++)
        own |= t->engine.own[i] && !t->engine.unused[i];
    return own && sync_ranks_differ(t->formation.sync);
}

/* All ranks write their parts, or none does. A rank that is still writing the snapshot before cannot. */
static enum err_code all_are_free(struct trainer *t, bool *all_free, struct err *e)
{
    const struct formation *f = &t->formation;
    bool mine = !t->saver || !saver_busy(t->saver), *all = xcalloc((size_t)f->world_size, sizeof(*all));
    enum err_code code = coll_allgather(f->group, &mine, sizeof(mine), all, e);
    *all_free = true;
    for (int r = 0; !code && r < f->world_size; r++)
        *all_free &= all[r];
    free(all);
    return code;
}

/* Tells all ranks what this one's part will hold. */
static enum err_code list_parts(struct trainer *t, const struct snapshot_place *place, int64_t local_samples,
                                struct err *e)
{
    const struct formation *f = &t->formation;
    const char *node = f->info.peers[f->rank].node;
    const struct optim *o = t->engine.optim;
    struct snapshot_part mine = {.home = t->home};
    if (t->divides) {
        mine.digest = snapshot_part_digest_divided(&t->ranges, saver_state(t->saver));
        mine.first = (int64_t)divided_parameters_before(&t->engine.layout, o->first);
        mine.count = (int64_t)divided_parameters_before(&t->engine.layout, o->first + o->count) - mine.first;
    } else
        mine.digest = snapshot_part_digest(&t->engine.layout, place, saver_state(t->saver), local_samples);
    snprintf(mine.node, sizeof(mine.node), "%s", node ? node : "");
    return coll_allgather(f->group, &mine, sizeof(mine), saver_parts(t->saver), e);
}

static void fill_place(const struct trainer *t, const struct sync_state *round, bool differ,
                       struct snapshot_place *out)
{
    state_place(&t->engine, out);
    out->job = link_place(t->link)->job;
    out->generation = t->formation.info.generation;
    out->world_size = t->formation.world_size;
    out->round_steps = differ ? round->steps : 0;
    out->round_samples = differ ? round->global_samples : 0;
    if (differ && t->sync.fragments > 1) {
        out->turn = round->turn;
        out->turn_steps = round->turn_steps;
    }
    out->fragments = differ ? round->fragments : 0;
    out->parts = differ || t->divides ? t->formation.world_size : 0;
    out->divided = t->divides;
    out->own_params = differ && !sync_settled(t->formation.sync);
    snprintf(out->cluster, sizeof(out->cluster), "%s", link_place(t->link)->cluster);
}

/* Ranks that stop within a round may be at different steps. The snapshot has the position of the rank that has made the most
 * steps. The part of a rank that has made fewer steps has the position of that rank. */
static enum err_code place_agree(struct trainer *t, struct snapshot_place *place, struct err *e)
{
    const struct formation *f = &t->formation;
    const struct snapshot_place own = *place;
    int64_t *all = xcalloc((size_t)f->world_size, sizeof(*all));
    int newest = 0;
    enum err_code code = coll_allgather(f->group, &own.step, sizeof(own.step), all, e);
    for (int r = 0; !code && r < f->world_size; r++)
        newest = all[r] > all[newest] ? r : newest;
    free(all);
    if (code || coll_broadcast(f->group, place, sizeof(*place), newest, e))
        return e->code;
    if (place->step > own.step)
        place->behind =
            (struct snapshot_behind){place->step - own.step, own.epoch, own.position, own.samples};
    log_info("stopped_in_round", "rank=%d step=%lld behind=%lld", f->rank, (long long)own.step,
             (long long)place->behind.steps);
    return ERR_OK;
}

/* shard: optimizer, parts. This rank's moments, and the parameters if it is a writer. */
static enum err_code stage_part(struct trainer *t, struct err *e)
{
    const struct engine *n = &t->engine;
    const struct device_ops *ops = n->device->ops;
    if (n->optim->floats > 0)
        ops->download(n->device, saver_state(t->saver), n->optim->state, n->optim->floats * sizeof(float));
    if (saver_model(t->saver))
        ops->download(n->device, saver_model(t->saver), n->params.data, n->model->count * sizeof(float));
    return ops->wait(n->device, e);
}

/* Copies to host memory. Downloads of a device that failed leave zeros, which must not become a snapshot. */
static enum err_code stage_state(struct trainer *t, bool differ, struct err *e)
{
    struct device *d = t->engine.device;
    float *state = t->saver && !t->divides ? saver_state(t->saver) : NULL;
    if (t->divides)
        return stage_part(t, e);
    if (state)
        state_out(&t->engine, state);
    /* The writers copy whole moments, so a snapshot is the same as without `shard`. */
    if (t->engine.optim->part && t->formation.world_size > 1 &&
        moments_gather(t, state ? state + t->engine.model->count : NULL, e))
        return e->code;
    if (differ && saver_model(t->saver))
        d->ops->download(d, saver_model(t->saver), sync_shared(t->formation.sync),
                         t->engine.model->count * sizeof(float));
    return d->ops->wait(d, e);
}

/* Whether the state can be copied beside the next step. With rounds, what follows this step changes parameters, too.
 * With shard: optimizer, moments are sent through the array of the gradients, which the next step needs. The digest
 * of a rank's part is needed at once. */
static bool copies_beside(const struct trainer *t, bool differ)
{
    return !differ && !t->engine.optim->part && sync_votes_each_step(t->formation.sync) &&
           state_can_fetch(&t->engine);
}

static enum err_code stage_snapshot(struct trainer *t, struct err *e)
{
    struct sync_state round = {0};
    struct snapshot_place place;
    if (sync_join(t->formation.sync, e) || parameters_complete(t, e))
        return e->code;
    bool differ = snapshot_wants_parts(t), keep = t->saver && !saver_busy(t->saver);
    const bool together = differ || t->engine.optim->part; /* all ranks take part, or none does */
    if (together && all_are_free(t, &keep, e))
        return e->code;
    if (!keep) {
        if (t->saver && t->writer)
            log_info("snapshot_skipped", "step=%lld why=\"the one before is still being written\"",
                     (long long)t->engine.step);
        return ERR_OK;
    }
    if (!together && !t->writer)
        return ERR_OK;
    sync_save(t->formation.sync, &round);
    fill_place(t, &round, differ, &place);
    if (differ && t->stopped_within && place_agree(t, &place, e))
        return e->code;
    if (copies_beside(t, differ)) {
        BUG_ON(t->engine.partial);
        if (t->engine.device->ops->wait(t->engine.device, e))
            return e->code;
        saver_submit_copy(t->saver, &place);
        return ERR_OK;
    }
    if (stage_state(t, differ, e) ||
        ((differ || t->divides) && list_parts(t, &place, round.local_samples, e)))
        return e->code;
    if (t->saver)
        saver_submit(t->saver, &place, round.local_samples);
    return ERR_OK;
}

void keep_await_copy(struct trainer *t)
{
    if (!t->saver || !saver_copies(t->saver))
        return;
    const int64_t began = clock_mono_ns();
    log_info("snapshot_copy_awaited", "step=%lld", (long long)t->engine.step);
    saver_await_copy(t->saver);
    rebalance_waited(t, clock_mono_ns() - began);
}

void keep_await(struct trainer *t)
{
    struct err before = {0};
    if (t->saver && saver_wait(t->saver, &before))
        log_warn("snapshot_failed_before", "why=%s", LOG_Q(before.msg));
}

enum err_code keep_snapshot(struct trainer *t, bool last, struct err *e)
{
    if (!t->snapshot_dir)
        return ERR_OK;
    if (last) {
        keep_await(t);
        t->patience_ms = t->stopped ? 0 : test_wait_space(SPACE_WAIT_MS);
        if (t->saver)
            saver_set_last(t->saver, t->patience_ms);
    }
    progress_saved(t);
    lock_later(t);
    /* The last snapshot may be of the same step of this rank, but of other steps of other ranks. */
    if ((t->stopped_within || t->last_snapshot_step != t->engine.step) && stage_snapshot(t, e))
        return e->code;
    t->last_snapshot_step = t->engine.step;
    t->last_snapshot_ms = clock_boot_ms();
    if (!last || !t->saver)
        return ERR_OK;
    if (saver_wait(t->saver, e) && !(e->code == ERR_CANCELLED && link_given_up(t->link))) {
        /* The generation ended during the wait for space. The next generation may continue from the state in memory. */
        if (e->code == ERR_RESOURCE_EXHAUSTED && link_over(t->link))
            e->code = ERR_CANCELLED;
        return err_wrap(e, "the last snapshot");
    }
    progress_saved(t);
    return ERR_OK;
}
