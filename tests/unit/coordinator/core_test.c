#include "core_test.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"

static void random_bytes(void *ctx, void *out, size_t size)
{
    struct bench *b = ctx;

    for (size_t i = 0; i < size; i++)
        ((uint8_t *)out)[i] =
            (uint8_t)((b->seed = b->seed * 6364136223846793005u + 1442695040888963407u) >> 33);
}

static void create(struct bench *b)
{
    b->core = core_create(&b->config, &(struct core_env){random_bytes, b});
}

int bench_setup(void **state)
{
    struct bench *b = xcalloc(1, sizeof(*b));

    log_init("test", LOG_ERROR);
    core_config_defaults(&b->config);
    snprintf(b->config.cluster_id, sizeof(b->config.cluster_id), "c1");
    b->now = (struct core_now){1000000, 1700000000000};
    b->events = xstrdup("");
    b->kept.next_job = 1;
    create(b);
    *state = b;
    return 0;
}

int bench_teardown(void **state)
{
    struct bench *b = *state;

    core_free(b->core);
    core_out_release(&b->out);
    records_release(&b->kept);
    free(b->events);
    free(b);
    return 0;
}

/* ---- what a restart finds */

#define KEEP(array, count, cap, kind, fresh, same)                                                           \
    do {                                                                                                     \
        size_t at_ = 0;                                                                                      \
        while (at_ < (count) && !(same))                                                                     \
            at_++;                                                                                           \
        if (at_ < (count)) {                                                                                 \
            kind##_release(&(array)[at_]);                                                                   \
        } else {                                                                                             \
            (array) = array_grow((array), (count), &(cap), sizeof(*(array)));                                \
            (count)++;                                                                                       \
        }                                                                                                    \
        kind##_copy(&(array)[at_], fresh);                                                                   \
    } while (0)

static void keep_move(struct records *r, const struct change *c)
{
    for (size_t i = 0; c->kind == CHANGE_JOB_MOVE && i < r->job_count; i++)
        if (r->jobs[i].id == c->id)
            r->jobs[i].state = (enum job_state)c->to;
    for (size_t i = 0; c->kind == CHANGE_NODE_MOVE && i < r->node_count; i++)
        if (!strcmp(r->nodes[i].name, c->name))
            r->nodes[i].state = (enum node_state)c->to;
    for (size_t i = 0; c->kind == CHANGE_GENERATION_MOVE && i < r->generation_count; i++)
        if (r->generations[i].job == c->id && r->generations[i].number == c->generation_number)
            r->generations[i].state = (enum generation_state)c->to;
    for (size_t i = 0; c->kind == CHANGE_RANK_MOVE && i < r->rank_count; i++)
        if (r->ranks[i].job == c->id && r->ranks[i].generation == c->generation_number &&
            r->ranks[i].rank == c->rank_number)
            r->ranks[i].state = (enum rank_state)c->to;
}

#define KEEP_OTHERS(array, count, kind, same)                                                                \
    do {                                                                                                     \
        size_t kept_ = 0;                                                                                    \
        for (size_t at_ = 0; at_ < (count); at_++) {                                                         \
            if (same)                                                                                        \
                kind##_release(&(array)[at_]);                                                               \
            else                                                                                             \
                (array)[kept_++] = (array)[at_];                                                             \
        }                                                                                                    \
        (count) = kept_;                                                                                     \
    } while (0)

static void keep_not(struct records *r, int64_t job)
{
    KEEP_OTHERS(r->jobs, r->job_count, job_record, r->jobs[at_].id == job);
    KEEP_OTHERS(r->generations, r->generation_count, generation_record, r->generations[at_].job == job);
    KEEP_OTHERS(r->ranks, r->rank_count, rank_record, r->ranks[at_].job == job);
    KEEP_OTHERS(r->spawns, r->spawn_count, spawn_record, r->spawns[at_].job == job);
    KEEP_OTHERS(r->snapshots, r->snapshot_count, snapshot_record, r->snapshots[at_].job == job);
}

static void keep(struct bench *b, const struct change *c)
{
    struct records *r = &b->kept;

    switch (c->kind) {
    case CHANGE_JOB_INSERT:
        if (r->next_job <= c->job->id)
            r->next_job = c->job->id + 1;
        /* fall through */
    case CHANGE_JOB_PUT:
        KEEP(r->jobs, r->job_count, b->job_cap, job_record, c->job, r->jobs[at_].id == c->job->id);
        break;
    case CHANGE_NODE_INSERT:
    case CHANGE_NODE_PUT:
        KEEP(r->nodes, r->node_count, b->node_cap, node_record, c->node,
             !strcmp(r->nodes[at_].name, c->node->name));
        break;
    case CHANGE_NODE_DELETE:
        for (size_t i = 0; i < r->node_count; i++)
            if (!strcmp(r->nodes[i].name, c->name)) {
                node_record_release(&r->nodes[i]);
                r->nodes[i] = r->nodes[--r->node_count];
            }
        break;
    case CHANGE_GENERATION_INSERT:
    case CHANGE_GENERATION_PUT:
        KEEP(r->generations, r->generation_count, b->generation_cap, generation_record, c->generation,
             r->generations[at_].job == c->generation->job &&
                 r->generations[at_].number == c->generation->number);
        break;
    case CHANGE_RANK_INSERT:
    case CHANGE_RANK_PUT:
        KEEP(r->ranks, r->rank_count, b->rank_cap, rank_record, c->rank,
             r->ranks[at_].job == c->rank->job && r->ranks[at_].generation == c->rank->generation &&
                 r->ranks[at_].rank == c->rank->rank);
        break;
    case CHANGE_SPAWN_INSERT:
    case CHANGE_SPAWN_PUT:
        KEEP(r->spawns, r->spawn_count, b->spawn_cap, spawn_record, c->spawn,
             r->spawns[at_].job == c->spawn->job && r->spawns[at_].spawn == c->spawn->spawn);
        break;
    case CHANGE_SNAPSHOT_PUT:
        KEEP(r->snapshots, r->snapshot_count, b->snapshot_cap, snapshot_record, c->snapshot,
             r->snapshots[at_].job == c->snapshot->job && r->snapshots[at_].step == c->snapshot->step &&
                 r->snapshots[at_].generation == c->snapshot->generation);
        break;
    case CHANGE_SNAPSHOT_DELETE:
        for (size_t i = 0; i < r->snapshot_count; i++)
            if (r->snapshots[i].job == c->snapshot->job && r->snapshots[i].step == c->snapshot->step &&
                r->snapshots[i].generation == c->snapshot->generation) {
                snapshot_record_release(&r->snapshots[i]);
                r->snapshots[i] = r->snapshots[--r->snapshot_count];
            }
        break;
    case CHANGE_EVENT: {
        char *longer = xasprintf("%s%s\n", b->events, c->event->text);
        free(b->events);
        b->events = longer;
        break;
    }
    case CHANGE_JOB_PROGRESS:
        for (size_t i = 0; i < r->job_count; i++)
            if (r->jobs[i].id == c->id) {
                free(r->jobs[i].progress);
                r->jobs[i].progress = xstrdup(c->text);
            }
        break;
    case CHANGE_JOB_FORGET:
        keep_not(r, c->id);
        break;
    case CHANGE_LOST_NUMBER_REMOVED:
        r->removed = array_grow(r->removed, r->removed_count, &b->removed_cap, sizeof(*r->removed));
        r->removed[r->removed_count++] = c->id;
        break;
    case CHANGE_META:
        if (!strcmp(c->name, "gap_from"))
            r->gap_from = c->id;
        if (!strcmp(c->name, "gap_to"))
            r->gap_to = r->next_job = c->id;
        break;
    default:
        keep_move(r, c);
    }
}

static void commit(struct bench *b)
{
    for (; b->kept_from < b->out.change_count; b->kept_from++)
        keep(b, &b->out.changes[b->kept_from]);
}

void bench_clear(struct bench *b)
{
    commit(b);
    core_out_clear(&b->out);
    b->kept_from = 0;
}

static void say(struct bench *b, const struct core_event *event)
{
    core_event(b->core, event, b->now, &b->out);
    commit(b);
}

void bench_restart(struct bench *b)
{
    struct err e = {0};

    bench_clear(b);
    core_free(b->core);
    b->config.epoch++;
    create(b);
    assert_int_equal(core_load(b->core, &b->kept, b->now, &b->out, &e), ERR_OK);
    commit(b);
}

static void pass_to(struct bench *b, int64_t end)
{
    while (core_next_deadline(b->core) <= end) {
        int64_t at = core_next_deadline(b->core);
        if (at > b->now.boot_ms) {
            b->now.wall_ms += at - b->now.boot_ms;
            b->now.boot_ms = at;
        }
        core_tick(b->core, b->now, &b->out);
        commit(b);
        assert_true(core_next_deadline(b->core) > b->now.boot_ms);
    }
    b->now.wall_ms += end - b->now.boot_ms;
    b->now.boot_ms = end;
}

void bench_pass(struct bench *b, int64_t ms)
{
    core_tick(b->core, b->now, &b->out);
    pass_to(b, b->now.boot_ms + ms);
}

/* ---- nodes */

static struct {
    char node[16];
    uint64_t session;
} sessions[64];
static size_t session_count;

static uint64_t session_of(const char *node)
{
    for (size_t i = session_count; i-- > 0;)
        if (!strcmp(sessions[i].node, node))
            return sessions[i].session;
    fail_msg("no session of %s", node);
    return 0;
}

void bench_accounts(struct bench *b, const char *node, const char *const *pairs)
{
    struct core_event event = {.kind = CORE_HEARTBEAT, .session = session_of(node)};
    struct core_account list[8];

    for (; *pairs; pairs += 2)
        list[event.heartbeat.account_count++] = (struct core_account){pairs[0], pairs[1]};
    event.heartbeat.accounts = list;
    say(b, &event);
}

void bench_pass_beating(struct bench *b, int64_t ms, const char *nodes)
{
    int64_t end = b->now.boot_ms + ms;

    while (b->now.boot_ms < end) {
        CLEANUP(free_text) char *list = xstrdup(nodes);
        for (char *name = strtok(list, " "); name; name = strtok(NULL, " "))
            say(b, &(struct core_event){.kind = CORE_HEARTBEAT, .session = session_of(name)});
        core_tick(b->core, b->now, &b->out);
        commit(b);
        pass_to(b, b->now.boot_ms + 3000 < end ? b->now.boot_ms + 3000 : end);
    }
}

uint64_t bench_hello(struct bench *b, const char *node, const char *instance, int cpu_slots, int gpus)
{
    struct core_gpu list[8];
    char uuids[8][40];
    struct core_event event = {.kind = CORE_HELLO, .session = ++b->handles};

    for (int i = 0; i < gpus; i++) {
        snprintf(uuids[i], sizeof(uuids[i]), "GPU-%s-%d", node, i);
        list[i] = (struct core_gpu){.uuid = uuids[i], .name = (char *)"H200", .index = i, .healthy = true};
    }
    event.hello = (struct core_hello){
        .node = node,
        .instance = instance,
        .cluster_id = "c1",
        .address = "10.0.0.7",
        .log_dir = "/var/log/ddp",
        .version = "0.1.0",
        .cpu_slots = cpu_slots,
        .cores = cpu_slots,
        .port_first = 29700,
        .port_last = 29703,
        .procs = b->procs,
        .seat = b->seat,
        .turn = b->turn,
        .gpus = list,
        .gpu_count = (size_t)gpus,
        .gpu_slots = b->gpu_slots,
        .nccl = b->nccl,
        .plugin = b->plugin,
    };
    say(b, &event);
    if (session_count == ARRAY_LEN(sessions))
        session_count = 0;
    snprintf(sessions[session_count].node, sizeof(sessions[0].node), "%s", node);
    sessions[session_count++].session = event.session;
    return event.session;
}

void bench_facts(struct bench *b, const char *node, const struct core_fact *facts, size_t count)
{
    struct core_wish wish;
    struct err e = {0};
    struct core_event event = {.kind = CORE_FACTS, .session = session_of(node)};

    assert_int_equal(core_wish(b->core, node, &wish, &e), ERR_OK);
    event.facts.epoch = wish.epoch;
    event.facts.revision = wish.revision;
    event.facts.facts = facts;
    event.facts.count = count;
    core_wish_release(&wish);
    say(b, &event);
}

uint64_t bench_node(struct bench *b, const char *node, int cpu_slots)
{
    uint64_t session = bench_hello(b, node, node, cpu_slots, 0);

    bench_facts(b, node, NULL, 0);
    return session;
}

uint64_t bench_member(struct bench *b, const char *node, int procs, int seat, int turn)
{
    b->procs = procs;
    b->seat = seat;
    b->turn = turn;
    uint64_t session = bench_node(b, node, 8);
    b->procs = b->seat = b->turn = 0;
    return session;
}

void bench_goodbye(struct bench *b, uint64_t session)
{
    say(b, &(struct core_event){.kind = CORE_GOODBYE, .session = session});
}

/* Facts for the whole wish; `about` replaces what is said of its spawn, `obey` has stopped ones exited. */
static void tell(struct bench *b, const char *node, const struct core_fact *about, bool obey)
{
    struct core_fact facts[64];
    struct core_wish wish;
    struct err e = {0};
    size_t count = 0;

    assert_int_equal(core_wish(b->core, node, &wish, &e), ERR_OK);
    for (size_t g = 0; g < wish.group_count; g++)
        for (size_t i = 0; i < wish.groups[g].spawn_count; i++) {
            const struct core_wish_spawn *s = &wish.groups[g].spawns[i];
            facts[count] = (struct core_fact){
                .job = wish.groups[g].job, .spawn = s->spawn, .state = FACT_RUNNING, .pid = 100 + s->spawn};
            if (obey && s->stop != CORE_STOP_NONE) {
                facts[count].state = FACT_EXITED;
                facts[count].stopped = true;
                facts[count].signal = s->stop == CORE_STOP_SNAPSHOT ? 0 : 15;
                facts[count].ended_ms = b->now.wall_ms;
            }
            if (about && about->job == facts[count].job && about->spawn == s->spawn)
                facts[count] = *about;
            count++;
        }
    core_wish_release(&wish);
    bench_facts(b, node, facts, count);
}

void bench_all_run(struct bench *b, const char *node)
{
    tell(b, node, NULL, false);
}

void bench_all_obey(struct bench *b, const char *node)
{
    tell(b, node, NULL, true);
}

void bench_fact(struct bench *b, int64_t job, int rank, struct core_fact fact)
{
    char node[32];

    snprintf(node, sizeof(node), "%s", bench_node_of(b, job, rank));
    fact.job = job;
    fact.spawn = bench_spawn(b, job, rank);
    tell(b, node, &fact, false);
}

void bench_exit(struct bench *b, int64_t job, int rank, int code, int signal)
{
    bench_fact(b, job, rank,
               (struct core_fact){
                   .state = FACT_EXITED, .code = code, .signal = signal, .ended_ms = b->now.wall_ms - 12});
}

void bench_operator(struct bench *b, enum core_event_kind kind, const char *node)
{
    struct core_event event = {.kind = kind, .call = ++b->handles};

    event.node.name = node;
    say(b, &event);
}

enum node_state bench_node_state(const struct bench *b, const char *node)
{
    const struct node_record *r = core_node(b->core, node);

    assert_non_null(r);
    return r->state;
}

/* ---- jobs */

int64_t bench_submit(struct bench *b, const char *file)
{
    struct core_event event = {.kind = CORE_SUBMIT, .call = ++b->handles};
    char id[32];
    const char *device = strstr(file, "device:")         ? ""
                         : strstr(file, "gpus_per_proc") ? "device: cuda\n"
                                                         : "device: cpu\n";
    CLEANUP(free_text)
    char *whole =
        xasprintf("%s%s%s", device, file, strstr(file, "train:") || strstr(file, "command:") ? "" : COMMAND);

    snprintf(id, sizeof(id), "r%d", (int)b->handles);
    event.submit.request_id = id;
    event.submit.job_file = whole;
    event.submit.user = "ana";
    digest_sha256(event.submit.digest, whole, strlen(whole));
    say(b, &event);
    const struct core_effect *reply = bench_reply(b, event.call);
    assert_non_null(reply);
    if (reply->err.code)
        fail_msg("submit: %s", reply->err.msg);
    return reply->job;
}

void bench_cancel(struct bench *b, int64_t job, bool kill)
{
    struct core_event event = {.kind = CORE_CANCEL, .call = ++b->handles};

    event.cancel.job = job;
    event.cancel.kill = kill;
    say(b, &event);
}

static enum err_code change(struct bench *b, struct core_event event)
{
    event.call = ++b->handles;
    say(b, &event);
    assert_non_null(bench_reply(b, event.call));
    return bench_reply(b, event.call)->err.code;
}

enum err_code bench_resize(struct bench *b, int64_t job, int64_t min, int64_t max)
{
    return change(b, (struct core_event){.kind = CORE_RESIZE, .resize = {job, min, max}});
}

enum err_code bench_restart_job(struct bench *b, int64_t job)
{
    return change(b, (struct core_event){.kind = CORE_RESTART, .resize = {.job = job}});
}

enum err_code bench_from_scratch(struct bench *b, int64_t job)
{
    return change(b, (struct core_event){.kind = CORE_RESTART, .resize = {.job = job, .from_scratch = true}});
}

void bench_looked(struct bench *b, int64_t job, const char *node, bool found)
{
    say(b, &(struct core_event){
               .kind = CORE_LOOKED, .session = session_of(node), .looked = {.job = job, .found = found}});
}

enum job_state bench_job(const struct bench *b, int64_t job)
{
    const struct job_record *r = core_job(b->core, job);

    assert_non_null(r);
    return r->state;
}

const struct generation_record *bench_generation(const struct bench *b, int64_t job)
{
    return core_generation(b->core, job, core_job(b->core, job)->generation);
}

static const struct rank_record *rank_of(const struct bench *b, int64_t job, int rank)
{
    const struct rank_record *r = core_rank(b->core, job, core_job(b->core, job)->generation, rank);

    assert_non_null(r);
    return r;
}

const char *bench_node_of(const struct bench *b, int64_t job, int rank)
{
    return rank_of(b, job, rank)->node;
}

int64_t bench_spawn(const struct bench *b, int64_t job, int rank)
{
    return rank_of(b, job, rank)->spawn;
}

const char *bench_waits(struct bench *b, int64_t job)
{
    static struct core_job_status status;
    struct err e = {0};

    assert_int_equal(core_job_status(b->core, job, false, &status, &e), ERR_OK);
    core_job_status_release(
        &(struct core_job_status){.nodes = status.nodes, .ranks = status.ranks, .notes = status.notes});
    return status.reason;
}

enum core_stop bench_stop(const struct bench *b, int64_t job, int rank)
{
    enum core_stop stop = CORE_STOP_NONE;
    struct core_wish wish;
    struct err e = {0};

    assert_int_equal(core_wish(b->core, bench_node_of(b, job, rank), &wish, &e), ERR_OK);
    for (size_t g = 0; g < wish.group_count; g++)
        for (size_t i = 0; i < wish.groups[g].spawn_count; i++)
            if (wish.groups[g].job == job && wish.groups[g].spawns[i].spawn == bench_spawn(b, job, rank))
                stop = wish.groups[g].spawns[i].stop;
    core_wish_release(&wish);
    return stop;
}

bool bench_said(const struct bench *b, const char *text)
{
    return strstr(b->events, text) != NULL;
}

/* ---- native workers */

static struct core_event from_worker(struct bench *b, enum core_event_kind kind, int64_t job, int64_t spawn)
{
    struct core_event event = {.kind = kind, .call = ++b->handles};

    event.member.job = job;
    event.member.spawn = spawn;
    return event;
}

uint64_t bench_join_telling(struct bench *b, int64_t job, int rank, const struct core_offer *offers,
                            size_t count, char *const *unusable)
{
    struct core_event event = from_worker(b, CORE_JOIN, job, bench_spawn(b, job, rank));
    char address[16];

    event.join.generation = core_job(b->core, job)->generation;
    event.join.rank = rank;
    event.join.address_size = (size_t)snprintf(address, sizeof(address), "addr%d", rank);
    event.join.address = (const uint8_t *)address;
    event.join.offers = offers;
    event.join.offer_count = count;
    event.join.unusable = unusable;
    event.join.unusable_count = strv_len(unusable);
    say(b, &event);
    return event.call;
}

uint64_t bench_join_with(struct bench *b, int64_t job, int rank, const struct core_offer *offers,
                         size_t count)
{
    return bench_join_telling(b, job, rank, offers, count, NULL);
}

uint64_t bench_join(struct bench *b, int64_t job, int rank)
{
    return bench_join_with(b, job, rank, NULL, 0);
}

void bench_put(struct bench *b, int64_t job, const char *bytes)
{
    struct core_event event = from_worker(b, CORE_PUT_BOOTSTRAP, job, bench_spawn(b, job, 0));

    event.bootstrap.generation = core_job(b->core, job)->generation;
    event.bootstrap.bytes = (const uint8_t *)bytes;
    event.bootstrap.size = strlen(bytes);
    say(b, &event);
}

void bench_form(struct bench *b, int64_t job)
{
    int world = bench_generation(b, job)->world_size;

    for (int rank = 0; rank < world; rank++) {
        char node[32];
        snprintf(node, sizeof(node), "%s", bench_node_of(b, job, rank));
        bench_all_run(b, node);
    }
    for (int rank = 0; core_job_spec(b->core, job)->kind == JOB_TRAIN && rank < world; rank++)
        bench_join(b, job, rank);
    if (core_job_spec(b->core, job)->kind == JOB_TRAIN)
        bench_put(b, job, "bootstrap");
    assert_int_equal(bench_job(b, job), JOB_RUNNING);
}

enum err_code bench_commit(struct bench *b, int64_t job, int64_t spawn, int64_t generation, int64_t step,
                           const char *digest)
{
    struct core_event event = from_worker(b, CORE_COMMIT_SNAPSHOT, job, spawn);

    event.snapshot.generation = generation;
    event.snapshot.step = step;
    event.snapshot.digest = digest;
    event.snapshot.path = "/out/step";
    say(b, &event);
    return bench_reply(b, event.call)->err.code;
}

enum err_code bench_snapshot_failed(struct bench *b, int64_t job, int rank, int64_t step, const char *why)
{
    struct core_event event = from_worker(b, CORE_SNAPSHOT_FAILED, job, bench_spawn(b, job, rank));

    event.snapshot.generation = core_job(b->core, job)->generation;
    event.snapshot.step = step;
    event.snapshot.why = why;
    say(b, &event);
    return bench_reply(b, event.call)->err.code;
}

void bench_report(struct bench *b, int64_t job, int rank, int64_t step, const char *metric, double value)
{
    struct core_metric m = {metric, value};
    struct core_report report = {.job = job,
                                 .spawn = bench_spawn(b, job, rank),
                                 .step = step,
                                 .has_step = true,
                                 .metrics = &m,
                                 .metric_count = metric ? 1 : 0};
    struct core_event event = {.kind = CORE_REPORTS, .session = session_of(bench_node_of(b, job, rank))};

    event.reports.reports = &report;
    event.reports.count = 1;
    say(b, &event);
}

uint64_t bench_watch(struct bench *b, int64_t job, int64_t spawn)
{
    struct core_event event = from_worker(b, CORE_WATCH, job, spawn);

    say(b, &event);
    return event.call;
}

/* ---- what came out */

const struct core_effect *bench_reply(const struct bench *b, uint64_t call)
{
    for (size_t i = b->out.effect_count; i-- > 0;)
        if (b->out.effects[i].call == call)
            return &b->out.effects[i];
    return NULL;
}

size_t bench_effects(const struct bench *b, enum core_effect_kind kind)
{
    size_t count = 0;

    for (size_t i = 0; i < b->out.effect_count; i++)
        count += b->out.effects[i].kind == kind;
    return count;
}
