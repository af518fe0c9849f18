/* Opens a worker, joins and leaves a generation, and closes the worker. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/digest.h"
#include "base/host_memory.h"
#include "base/log.h"
#include "base/mem.h"
#include "trainer/compare.h"
#include "trainer/engine/describe.h"
#include "trainer/engine/state.h"
#include "trainer/keep.h"
#include "trainer/live.h"
#include "trainer/member/link/watch.h"
#include "trainer/moments.h"
#include "trainer/parameters.h"
#include "trainer/peer_loss.h"
#include "trainer/rebalance.h"
#include "trainer/resume.h"
#include "trainer/round/live_round.h"
#include "trainer/round/timed_round.h"
#include "trainer/signals.h"
#include "trainer/trainer.h"
#include "trainer/tune.h"

/* ---- for the process's life */

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
        return err_set(e, ERR_FAILED_PRECONDITION, "cannot read the current directory");
    t->snapshot_dir = xasprintf("%s/%s", here, dir);
    return ERR_OK;
}

/* The arrays that any strategy keeps: those of `sync: auto`. A run may resume by another strategy. */
static void list_optional(const char *out[ENGINE_MAX_EXTRA + 1])
{
    struct sync_array all[SYNC_MAX_ARRAYS];
    size_t count = sync_arrays(&(struct sync_spec){.type = SYNC_AUTO}, all), kept = 0;
    for (size_t i = 0; i < count; i++)
        if (all[i].kept)
            out[kept++] = all[i].name;
}

enum err_code trainer_open(struct trainer *t, struct trainer_config *config, struct link *link, struct err *e)
{
    const struct link_member *first = link_first_member(link);
    *t = (struct trainer){.config = config, .spec = &config->job.train, .link = link, .dir_lock.fd = -1};
    t->last_snapshot_step = t->digest_step = t->agreed_step = t->served_step = -1;
    link_heed_signal(link, &trainer_stop_signal);
    struct engine_config engine = {
        .spec = t->spec,
        .device = config->job.device,
        .local_rank = config->local_rank,
        .local_ranks = config->local_world_size,
        .resumes = first->generation > 1,
        .standalone = config->standalone,
    };
    struct sync_array arrays[SYNC_MAX_ARRAYS];
    _Static_assert(SYNC_MAX_ARRAYS <= ENGINE_MAX_EXTRA, "the engine holds all arrays of a strategy");
    engine.extra_count = sync_arrays(&t->spec->sync, arrays);
    for (size_t i = 0; i < engine.extra_count; i++)
        engine.extras[i] = (struct engine_extra){arrays[i].name, arrays[i].kept, arrays[i].own};
    list_optional(engine.optional);
    if (absolute_dir(t, e) || engine_open(&t->engine, &engine, e))
        return e->code;
    /* Before Join, because the other ranks wait for this rank from then on. */
    return engine_take_share(&t->engine, first->rank, first->world_size, e);
}

void trainer_close(struct trainer *t)
{
    link_close(t->link);
    moments_release(t);
    free(t->snapshot_dir);
    if (t->room)
        t->engine.device->ops->free(t->engine.device, t->room);
    engine_close(&t->engine);
}

/* ---- for a generation */

/* Whether sums must be taken in the tree's order. The device's own collectives have another order, so they
 * are not used then. */
static bool wants_tree(const struct trainer *t)
{
    return t->spec->reproducible == REPRODUCIBLE_WORLD;
}

/* With all-reduce, every rank computes the same update itself. The matrix products in Muon's update are
 * rounded differently by two models of GPU. CPUs give the same bits (trainer/device/cpu/muon.c). */
static bool wants_one_model(const struct trainer *t)
{
    return t->spec->optimizer.type == OPTIMIZER_MUON &&
           (t->spec->sync.type == SYNC_ALLREDUCE || t->spec->sync.type == SYNC_AUTO) &&
           !t->engine.device->host;
}

/* Sums the peak rates of all ranks' devices. */
static enum err_code sum_peaks(struct trainer *t, struct err *e)
{
    double mine = t->engine.peak_flops, *all = xcalloc((size_t)t->formation.world_size, sizeof(*all));
    enum err_code code = coll_allgather(t->formation.group, &mine, sizeof(mine), all, e);
    t->peak_flops = 0.0;
    for (int r = 0; !code && r < t->formation.world_size; r++)
        t->peak_flops += all[r];
    free(all);
    return code;
}

/* Continues a round that the last group could not end. Its samples are those of the ranks that are still
 * there. At the start there is no such round. A generation that goes on from memory has none either if its ranks came from
 * an all-reduce: a shared array is older than their parameters. */
static enum err_code carry_round(struct trainer *t, bool rounds, struct err *e)
{
    const bool live = t->formation.info.live;
    if (live && !live_has_rounds(t))
        t->round = (struct sync_state){0};
    if (trainer_compare_places(t, e))
        return e->code;
    live_round_cut_short(t);
    /* The place may have moved within the round, to which no work belongs. */
    if (live_has_rounds(t) && (t->round_timed || t->sync.every_ms) && !t->owed)
        t->served_step = t->engine.step;
    if (live_has_rounds(t) || (rounds && !live))
        sync_load(t->formation.sync, &t->round);
    else
        sync_start(t->formation.sync);
    /* A round of steps that ends within a job of rounds of a given time. */
    if (live_has_rounds(t) && !t->round_timed && t->sync.every_ms && t->round.steps)
        sync_end_round(t->formation.sync, t->engine.step, 0);
    if (live)
        sync_at_step(t->formation.sync, t->engine.step, engine_total_steps(&t->engine));
    t->carried = true;
    t->made_before = sync_rounds(t->formation.sync);
    if (t->samples_lost && t->formation.rank == 0)
        log_warn("samples_lost",
                 "step=%lld samples=%lld why=\"a lost rank had trained with them since the last exchange\"",
                 (long long)t->engine.step, (long long)t->samples_lost);
    return ERR_OK;
}

bool trainer_stays(const struct trainer *t)
{
    const struct job_spec *job = &t->config->job;
    /* Before `sync: auto` has chosen, no state is worth keeping. */
    const bool chosen = t->spec->sync.type != SYNC_AUTO || t->chosen.facts.world_size > 0;
    return chosen && !t->outdated && !t->no_room && job->max_replacements > 0 &&
           link_has_coordinator(t->link);
}

/* The state of an earlier generation is not what the group starts with. */
static void forget_run(struct trainer *t)
{
    moments_release(t);
    state_forget(&t->engine);
    t->round = (struct sync_state){0};
    memset(t->made_in, 0, sizeof(t->made_in));
    t->sync = (struct sync_spec){0};
    t->chosen = (struct live_choice){0};
    link_set_stays(t->link, trainer_stays(t), peer_loss_wake);
    t->last_snapshot_step = t->agreed_step = t->served_step = -1;
    t->snapshot_due = t->eval_due = false;
}

enum err_code trainer_join(struct trainer *t, const struct link_member *as, struct err *e)
{
    const struct link_place *place = link_place(t->link);
    CLEANUP(resume_release) struct resume_offers o = {0};
    struct device *device = t->engine.device;
    const bool later = as->generation != link_first_member(t->link)->generation;
    /* The steps of a round of a given time count when the round ends. Step 1 shows that this rank has a state in the first round. */
    const bool first_round = t->spec->sync.every_ms && t->round.apart && t->round.steps > 0;
    const int64_t step = first_round && !t->engine.step ? 1 : t->engine.step;
    const int64_t live_step = t->engine.whole ? step : 0;
    link_set_stays(t->link, trainer_stays(t), peer_loss_wake);
    /* A process that has a state needs no snapshot: the group starts with this state or a later one. */
    if ((!live_step && resume_find(t, &o, e)) ||
        formation_listen(&t->formation, place->address, place->directory, e))
        return e->code;
    struct link_join request = {.offers = o.offers,
                                .offer_count = o.count,
                                .unusable = o.found.unusable,
                                .live_step = live_step,
                                .computes = device->name};
    bool wants_id = device->comm && !wants_tree(t);
    if (formation_join(&t->formation, t->link, as, &request, device, wants_id, e)) {
        /* The coordinator has changed its mind about a process that stays; Watch brings its word. */
        if (later && (e->code == ERR_PERMISSION_DENIED || e->code == ERR_UNAUTHENTICATED ||
                      e->code == ERR_FAILED_PRECONDITION))
            e->code = ERR_ABORTED;
        return e->code;
    }
    if (resume_check(t, &o, e))
        return e->code;
    resume_take_source(t, &o);
    if (!t->formation.info.live && later)
        forget_run(t);
    return trainer_form(t, true, e);
}

/* The caller frees. */
static struct sync_tensor *list_tensors(const struct model *m)
{
    struct sync_tensor *out = xcalloc(m->tensor_count, sizeof(*out));
    for (size_t i = 0; i < m->tensor_count; i++)
        out[i] = (struct sync_tensor){m->tensors[i].offset, m->tensors[i].count};
    return out;
}

static struct formation_data data_of(const struct engine *n)
{
    const uint64_t digests[] = {dataset_digest(n->train), dataset_digest(n->test)};
    return (struct formation_data){n->train->mark.bytes, digest64(0, digests, sizeof(digests))};
}

/* parts: world_size + 1 of them. */
static void fill_config(struct trainer *t, bool watched, const struct sync_tensor *tensors, size_t *parts,
                        struct formation_config *out)
{
    struct engine *n = &t->engine;
    *out = (struct formation_config){
        .link = watched ? t->link : NULL,
        .woken = peer_loss_wake,
        .job = link_place(t->link)->job,
        .device = n->device,
        .tree = wants_tree(t),
        .free_order = t->spec->reproducible == REPRODUCIBLE_NONE,
        .one_model = wants_one_model(t),
        .data = data_of(n),
        .sync = t->sync,
        .params = &n->params,
        .grads = &n->grads,
        .extra = n->extra,
        .extra_count = n->extra_count,
        .tail = TAIL_FLOATS,
        .parts = engine_divide(n, t->formation.world_size, parts) ? parts : NULL,
        .tensors = tensors,
        .tensor_count = n->model->tensor_count,
    };
}

/* Snapshots hold the arrays of the strategy in use, not all that `sync: auto` has room for. */
static void use_arrays(struct trainer *t)
{
    struct sync_array used[SYNC_MAX_ARRAYS];
    size_t count = sync_arrays(&t->sync, used);
    for (size_t i = 0; i < t->engine.extra_count; i++) {
        bool found = false;
        for (size_t k = 0; k < count; k++)
            found |= strcmp(used[k].name, t->engine.extras[i].name) == 0;
        describe_use(&t->engine, t->engine.extras[i].name, found);
    }
}

static enum err_code form_group(struct trainer *t, bool watched, struct err *e)
{
    struct sync_tensor *tensors = list_tensors(t->engine.model);
    struct formation_config config;
    t->sync = t->spec->sync;
    if (t->sync.type == SYNC_AUTO)
        sync_choice_base(&t->sync); /* until trainer_choose_sync */
    t->facts = (struct sync_facts){0};
    use_arrays(t);
    size_t *parts = xcalloc((size_t)t->formation.world_size + 1, sizeof(*parts));
    fill_config(t, watched, tensors, parts, &config);
    enum err_code code = formation_form(&t->formation, &config, e);
    free(tensors);
    free(parts);
    /* The program was replaced on a node while this process ran. It makes room for one of the new version, and the job
     * goes on from its snapshot. A group of new processes that differ in version would fail again, so that is final. */
    if (code == ERR_INVALID_ARGUMENT && t->formation.info.live) {
        code = e->code = ERR_ABORTED;
        t->outdated = true;
        link_set_stays(t->link, false, peer_loss_wake);
    }
    return code;
}

enum err_code trainer_open_sync(struct trainer *t, const struct sync_spec *spec, struct err *e)
{
    struct sync_tensor *tensors = list_tensors(t->engine.model);
    struct formation_config config;
    t->sync = *spec;
    use_arrays(t);
    size_t *parts = xcalloc((size_t)t->formation.world_size + 1, sizeof(*parts));
    fill_config(t, false, tensors, parts, &config);
    enum err_code code = formation_open_sync(&t->formation, &config, e);
    free(tensors);
    free(parts);
    return code;
}

void trainer_take_sizes(struct trainer *t)
{
    memory_take(&t->sizes, &t->engine, keep_bytes(t),
                t->formation.world_size > 1 ? t->config->local_world_size - 1 : 0);
}

/* malloc grants more memory than there is, and the kernel kills the rank when it uses it. */
static void warn_of_memory(const struct trainer *t)
{
    const size_t ranks = (size_t)t->config->local_world_size,
                 needed = (t->sizes.sum - t->sizes.peers) * (ranks ? ranks : 1);
    struct host_memory memory;
    if (!t->engine.device->host || t->config->local_rank)
        return;
    host_memory_read(&memory);
    if (memory.total && needed > (size_t)memory.total)
        log_warn("memory_short",
                 "needed_bytes=%zu total_bytes=%lld why=\"the ranks on this node need more memory than the "
                 "node or its cgroup has\"",
                 needed, (long long)memory.total);
}

enum err_code trainer_form(struct trainer *t, bool watched, struct err *e)
{
    struct engine *n = &t->engine;
    struct formation *f = &t->formation;
    /* The last formation had rounds, so the shared model is in its array. */
    bool rounds = t->spec->sync.type != SYNC_AUTO || t->sync.type != SYNC_ALLREDUCE;
    t->digest_step = -1; /* the new group has not compared yet */
    t->resumed = t->told_sizes = t->owed = t->in_round = t->round_timed = t->carried = false;
    t->stopped_within = t->apart = false;
    t->behind = t->brought = t->late_samples = 0;
    if (!f->info.live)
        t->last_snapshot_ms = t->last_eval_ms = clock_boot_ms();
    if (engine_take_share(n, f->rank, f->world_size, e) || form_group(t, watched, e) || tune_begin(t, e) ||
        (f->info.live && live_share(t, e)) || carry_round(t, rounds, e) || keep_open(t, e) || sum_peaks(t, e))
        return e->code;
    parameters_open(t);
    attention_log(n);
    trainer_take_sizes(t);
    memory_log(&t->sizes, n, f->rank);
    warn_of_memory(t);
    t->interval = (struct interval){.since_ns = clock_mono_ns()}; /* the group's counters begin at 0 */
    return ERR_OK;
}

/* Records the exchanges of the formation that has ended, and the one that was under way. */
static void note_exchanges(struct trainer *t, int64_t generation)
{
    for (int64_t i = t->made_before + 1; i <= t->round.rounds; i++)
        t->made_in[i % LIVE_ROUNDS_KEPT] = generation;
    if (t->round.sent.begun)
        t->sent_in = generation;
    t->carried = false;
}

bool trainer_leave(struct trainer *t)
{
    struct err e = {0};
    timed_round_release(t);
    rebalance_end(t);
    moments_leave(t);
    parameters_close(t);
    keep_close(t); /* first, because its commits use the link and belong to this generation */
    const int64_t generation = t->formation.info.generation;
    const bool carried = t->carried;
    /* A generation that failed to form has not got as far as the round that this rank holds. */
    if (formation_end(&t->formation, carried ? &t->round : NULL, &e) == ERR_OK) {
        if (carried)
            note_exchanges(t, generation);
        return true;
    }
    log_error("device_stuck", "rank=%d why=%s", t->formation.rank, LOG_Q(e.msg));
    return false;
}
