#include "tests/unit/coordinator/core/core_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "tests/unit/coordinator/core/core_fixture_kept.h"

static void random_bytes(void *ctx, void *out, size_t size)
{
    struct core_fixture *f = ctx;

    for (size_t i = 0; i < size; i++)
        ((uint8_t *)out)[i] =
            (uint8_t)((f->seed = f->seed * 6364136223846793005u + 1442695040888963407u) >> 33);
}

static void create_core(struct core_fixture *f)
{
    f->core = core_create(&f->config, &(struct core_env){random_bytes, f});
}

static struct {
    char node[16];
    uint64_t session;
} sessions[64];
static size_t session_count;

int fixture_setup(void **state)
{
    struct core_fixture *f = xcalloc(1, sizeof(*f));

    session_count = 0;
    log_init("test", LOG_ERROR);
    core_config_defaults(&f->config);
    snprintf(f->config.cluster_id, sizeof(f->config.cluster_id), "c1");
    f->now = (struct core_now){1000000, 1700000000000};
    f->events = xstrdup("");
    f->kept.next_job = 1;
    create_core(f);
    *state = f;
    return 0;
}

int fixture_teardown(void **state)
{
    struct core_fixture *f = *state;

    core_free(f->core);
    core_out_release(&f->out);
    records_release(&f->kept);
    free(f->events);
    free(f);
    return 0;
}

/* ---- calls and time */

void fixture_clear(struct core_fixture *f)
{
    fixture_keep_changes(f);
    core_out_clear(&f->out);
    f->kept_from = 0;
}

static void hand_in(struct core_fixture *f, const struct core_event *event)
{
    core_event(f->core, event, f->now, &f->out);
    fixture_keep_changes(f);
}

void fixture_restart(struct core_fixture *f)
{
    struct err e = {0};

    fixture_clear(f);
    core_free(f->core);
    f->config.epoch++;
    create_core(f);
    assert_int_equal(core_load(f->core, &f->kept, f->now, &f->out, &e), ERR_OK);
    fixture_keep_changes(f);
}

static void pass_to(struct core_fixture *f, int64_t end)
{
    while (core_next_deadline(f->core) <= end) {
        int64_t at = core_next_deadline(f->core);
        if (at > f->now.boot_ms) {
            f->now.wall_ms += at - f->now.boot_ms;
            f->now.boot_ms = at;
        }
        core_tick(f->core, f->now, &f->out);
        fixture_keep_changes(f);
        assert_true(core_next_deadline(f->core) > f->now.boot_ms);
    }
    f->now.wall_ms += end - f->now.boot_ms;
    f->now.boot_ms = end;
}

void fixture_pass(struct core_fixture *f, int64_t ms)
{
    core_tick(f->core, f->now, &f->out);
    pass_to(f, f->now.boot_ms + ms);
}

/* ---- nodes */

static uint64_t session_of(const char *node)
{
    for (size_t i = session_count; i-- > 0;)
        if (!strcmp(sessions[i].node, node))
            return sessions[i].session;
    fail_msg("no session of %s", node);
    return 0;
}

void fixture_accounts(struct core_fixture *f, const char *node, const char *const *pairs)
{
    struct core_event event = {.kind = CORE_HEARTBEAT, .session = session_of(node)};
    struct core_account list[8];

    for (; *pairs; pairs += 2)
        list[event.heartbeat.account_count++] = (struct core_account){pairs[0], pairs[1]};
    event.heartbeat.accounts = list;
    hand_in(f, &event);
}

void fixture_pass_beating(struct core_fixture *f, int64_t ms, const char *nodes)
{
    int64_t end = f->now.boot_ms + ms;

    while (f->now.boot_ms < end) {
        CLEANUP(free_text) char *list = xstrdup(nodes);
        for (char *name = strtok(list, " "); name; name = strtok(NULL, " "))
            hand_in(f, &(struct core_event){.kind = CORE_HEARTBEAT, .session = session_of(name)});
        core_tick(f->core, f->now, &f->out);
        fixture_keep_changes(f);
        pass_to(f, f->now.boot_ms + 3000 < end ? f->now.boot_ms + 3000 : end);
    }
}

uint64_t fixture_hello(struct core_fixture *f, const char *node, const char *instance, int cpu_slots,
                       int gpus)
{
    struct core_gpu list[8];
    char uuids[8][40];
    struct core_event event = {.kind = CORE_HELLO, .session = ++f->handles};

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
        .procs = f->procs,
        .seat = f->seat,
        .turn = f->turn,
        .gpus = list,
        .gpu_count = (size_t)gpus,
        .gpu_slots = f->gpu_slots,
        .nccl = f->nccl,
        .plugin = f->plugin,
        .keeps_cards = f->keeps_cards,
    };
    hand_in(f, &event);
    if (session_count == ARRAY_LEN(sessions))
        session_count = 0;
    snprintf(sessions[session_count].node, sizeof(sessions[0].node), "%s", node);
    sessions[session_count++].session = event.session;
    return event.session;
}

void fixture_facts(struct core_fixture *f, const char *node, const struct spawn_fact *facts, size_t count)
{
    struct core_wish wish;
    struct err e = {0};
    struct core_event event = {.kind = CORE_FACTS, .session = session_of(node)};

    assert_int_equal(core_wish(f->core, node, &wish, &e), ERR_OK);
    event.facts.epoch = wish.epoch;
    event.facts.revision = wish.revision;
    event.facts.facts = facts;
    event.facts.count = count;
    core_wish_release(&wish);
    hand_in(f, &event);
}

uint64_t fixture_node(struct core_fixture *f, const char *node, int cpu_slots)
{
    uint64_t session = fixture_hello(f, node, node, cpu_slots, 0);

    fixture_facts(f, node, NULL, 0);
    return session;
}

uint64_t fixture_member(struct core_fixture *f, const char *node, int procs, int seat, int turn)
{
    f->procs = procs;
    f->seat = seat;
    f->turn = turn;
    uint64_t session = fixture_node(f, node, 8);
    f->procs = f->seat = f->turn = 0;
    return session;
}

void fixture_goodbye(struct core_fixture *f, uint64_t session)
{
    hand_in(f, &(struct core_event){.kind = CORE_GOODBYE, .session = session});
}

/* Sends a fact about each spawn of the node's wish. With `obey`, the spawns that the wish stops have exited;
 * `about` replaces the fact about its spawn. */
static void tell_facts(struct core_fixture *f, const char *node, const struct spawn_fact *about, bool obey)
{
    struct spawn_fact facts[64];
    struct core_wish wish;
    struct err e = {0};
    size_t count = 0;

    assert_int_equal(core_wish(f->core, node, &wish, &e), ERR_OK);
    for (size_t g = 0; g < wish.group_count; g++)
        for (size_t i = 0; i < wish.groups[g].spawn_count; i++) {
            const struct core_wish_spawn *s = &wish.groups[g].spawns[i];
            facts[count] = (struct spawn_fact){
                .job = wish.groups[g].job, .spawn = s->spawn, .state = SPAWN_RUNNING, .pid = 100 + s->spawn};
            if (obey && s->stop != CORE_STOP_NONE) {
                facts[count].state = SPAWN_EXITED;
                facts[count].stopped = true;
                facts[count].signal = s->stop == CORE_STOP_SNAPSHOT ? 0 : 15;
                facts[count].ended_ms = f->now.wall_ms;
            }
            if (about && about->job == facts[count].job && about->spawn == s->spawn)
                facts[count] = *about;
            count++;
        }
    core_wish_release(&wish);
    fixture_facts(f, node, facts, count);
}

void fixture_all_run(struct core_fixture *f, const char *node)
{
    tell_facts(f, node, NULL, false);
}

void fixture_all_obey(struct core_fixture *f, const char *node)
{
    tell_facts(f, node, NULL, true);
}

void fixture_both_obey(struct core_fixture *f)
{
    fixture_all_obey(f, "box1");
    fixture_all_obey(f, "box2");
}

void fixture_fact(struct core_fixture *f, int64_t job, int rank, struct spawn_fact fact)
{
    char node[32];

    snprintf(node, sizeof(node), "%s", fixture_node_of(f, job, rank));
    fact.job = job;
    fact.spawn = fixture_spawn(f, job, rank);
    tell_facts(f, node, &fact, false);
}

void fixture_exit(struct core_fixture *f, int64_t job, int rank, int code, int signal)
{
    fixture_fact(f, job, rank,
                 (struct spawn_fact){
                     .state = SPAWN_EXITED, .code = code, .signal = signal, .ended_ms = f->now.wall_ms - 12});
}

void fixture_operator(struct core_fixture *f, enum core_event_kind kind, const char *node)
{
    struct core_event event = {.kind = kind, .call = ++f->handles};

    event.node.name = node;
    hand_in(f, &event);
}

enum node_state fixture_node_state(const struct core_fixture *f, const char *node)
{
    const struct node_record *r = core_node(f->core, node);

    assert_non_null(r);
    return r->state;
}

/* ---- jobs */

int64_t fixture_submit(struct core_fixture *f, const char *file)
{
    struct core_event event = {.kind = CORE_SUBMIT, .call = ++f->handles};
    char id[32];
    const char *device = strstr(file, "device:")         ? ""
                         : strstr(file, "gpus_per_proc") ? "device: cuda\n"
                                                         : "device: cpu\n";
    CLEANUP(free_text)
    char *whole =
        xasprintf("%s%s%s", device, file, strstr(file, "train:") || strstr(file, "command:") ? "" : COMMAND);

    snprintf(id, sizeof(id), "r%d", (int)f->handles);
    event.submit.request_id = id;
    event.submit.job_file = whole;
    event.submit.user = "ana";
    digest_sha256(event.submit.digest, whole, strlen(whole));
    hand_in(f, &event);
    const struct core_effect *reply = fixture_reply(f, event.call);
    assert_non_null(reply);
    if (reply->err.code)
        fail_msg("submit: %s", reply->err.msg);
    return reply->job;
}

int64_t fixture_running_job(struct core_fixture *f, const char *file)
{
    fixture_node(f, "box1", 4);
    fixture_node(f, "box2", 4);
    int64_t job = fixture_submit(f, file);
    fixture_form(f, job);
    return job;
}

void fixture_cancel(struct core_fixture *f, int64_t job, bool kill)
{
    struct core_event event = {.kind = CORE_CANCEL, .call = ++f->handles};

    event.cancel.job = job;
    event.cancel.kill = kill;
    hand_in(f, &event);
}

static enum err_code change_job(struct core_fixture *f, struct core_event event)
{
    event.call = ++f->handles;
    hand_in(f, &event);
    assert_non_null(fixture_reply(f, event.call));
    return fixture_reply(f, event.call)->err.code;
}

enum err_code fixture_resize(struct core_fixture *f, int64_t job, int64_t min, int64_t max)
{
    return change_job(f, (struct core_event){.kind = CORE_RESIZE, .resize = {job, min, max}});
}

enum err_code fixture_tune(struct core_fixture *f, int64_t job, const char *assignment)
{
    char *assignments[] = {(char *)(uintptr_t)assignment, NULL};

    return change_job(f, (struct core_event){.kind = CORE_TUNE, .who = "ana", .tune = {job, assignments}});
}

enum err_code fixture_order(struct core_fixture *f, enum core_event_kind kind, int64_t job, int64_t priority,
                            bool flag)
{
    return change_job(
        f, (struct core_event){.kind = kind,
                               .who = "ana",
                               .order = {.job = job, .priority = priority, .relative = flag, .hold = flag}});
}

enum err_code fixture_checked_priority(struct core_fixture *f, int64_t job, int64_t priority, int64_t seen)
{
    return change_job(
        f, (struct core_event){.kind = CORE_PRIORITY,
                               .who = "ana",
                               .order = {.job = job, .priority = priority, .checked = true, .seen = seen}});
}

enum err_code fixture_restart_job(struct core_fixture *f, int64_t job)
{
    return change_job(f, (struct core_event){.kind = CORE_RESTART, .resize = {.job = job}});
}

enum err_code fixture_from_scratch(struct core_fixture *f, int64_t job)
{
    return change_job(
        f, (struct core_event){.kind = CORE_RESTART, .resize = {.job = job, .from_scratch = true}});
}

void fixture_looked(struct core_fixture *f, int64_t job, const char *node, bool found)
{
    hand_in(f, &(struct core_event){
                   .kind = CORE_LOOKED, .session = session_of(node), .looked = {.job = job, .found = found}});
}

enum job_state fixture_job(const struct core_fixture *f, int64_t job)
{
    const struct job_record *r = core_job(f->core, job);

    assert_non_null(r);
    return r->state;
}

const struct generation_record *fixture_generation(const struct core_fixture *f, int64_t job)
{
    return core_generation(f->core, job, core_job(f->core, job)->generation);
}

static const struct rank_record *rank_of(const struct core_fixture *f, int64_t job, int rank)
{
    const struct rank_record *r = core_rank(f->core, job, core_job(f->core, job)->generation, rank);

    assert_non_null(r);
    return r;
}

const char *fixture_node_of(const struct core_fixture *f, int64_t job, int rank)
{
    return rank_of(f, job, rank)->node;
}

int64_t fixture_spawn(const struct core_fixture *f, int64_t job, int rank)
{
    return rank_of(f, job, rank)->spawn;
}

const char *fixture_waits(struct core_fixture *f, int64_t job)
{
    static struct core_job_status status;
    struct err e = {0};

    assert_int_equal(core_job_status(f->core, job, false, &status, &e), ERR_OK);
    core_job_status_release(
        &(struct core_job_status){.nodes = status.nodes, .ranks = status.ranks, .notes = status.notes});
    return status.reason;
}

enum core_stop fixture_stop(const struct core_fixture *f, int64_t job, int rank)
{
    enum core_stop stop = CORE_STOP_NONE;
    struct core_wish wish;
    struct err e = {0};

    assert_int_equal(core_wish(f->core, fixture_node_of(f, job, rank), &wish, &e), ERR_OK);
    for (size_t g = 0; g < wish.group_count; g++)
        for (size_t i = 0; i < wish.groups[g].spawn_count; i++)
            if (wish.groups[g].job == job && wish.groups[g].spawns[i].spawn == fixture_spawn(f, job, rank))
                stop = wish.groups[g].spawns[i].stop;
    core_wish_release(&wish);
    return stop;
}

bool fixture_said(const struct core_fixture *f, const char *text)
{
    return strstr(f->events, text) != NULL;
}

/* ---- native workers */

static struct core_event from_worker(struct core_fixture *f, enum core_event_kind kind, int64_t job,
                                     int64_t spawn)
{
    struct core_event event = {.kind = kind, .call = ++f->handles};

    event.member.job = job;
    event.member.spawn = spawn;
    return event;
}

uint64_t fixture_join_telling(struct core_fixture *f, int64_t job, int rank, const struct core_offer *offers,
                              size_t count, char *const *unusable)
{
    struct core_event event = from_worker(f, CORE_JOIN, job, fixture_spawn(f, job, rank));
    char address[16];

    event.join.generation = core_job(f->core, job)->generation;
    event.join.rank = rank;
    event.join.address_size = (size_t)snprintf(address, sizeof(address), "addr%d", rank);
    event.join.address = (const uint8_t *)address;
    event.join.offers = offers;
    event.join.offer_count = count;
    event.join.unusable = unusable;
    event.join.unusable_count = strv_len(unusable);
    event.join.stays = f->stays;
    event.join.live_step = f->live_step;
    event.join.version = f->version;
    event.join.computes = f->computes;
    hand_in(f, &event);
    return event.call;
}

uint64_t fixture_join_with(struct core_fixture *f, int64_t job, int rank, const struct core_offer *offers,
                           size_t count)
{
    return fixture_join_telling(f, job, rank, offers, count, NULL);
}

uint64_t fixture_join(struct core_fixture *f, int64_t job, int rank)
{
    return fixture_join_with(f, job, rank, NULL, 0);
}

void fixture_gone(struct core_fixture *f, int64_t job, int rank, uint64_t call)
{
    struct core_event event = from_worker(f, CORE_CALL_GONE, job, fixture_spawn(f, job, rank));

    event.call = call;
    hand_in(f, &event);
}

void fixture_put(struct core_fixture *f, int64_t job, const char *bytes)
{
    struct core_event event = from_worker(f, CORE_PUT_BOOTSTRAP, job, fixture_spawn(f, job, 0));

    event.bootstrap.generation = core_job(f->core, job)->generation;
    event.bootstrap.bytes = (const uint8_t *)bytes;
    event.bootstrap.size = strlen(bytes);
    hand_in(f, &event);
}

void fixture_form(struct core_fixture *f, int64_t job)
{
    int world = fixture_generation(f, job)->world_size;

    for (int rank = 0; rank < world; rank++) {
        char node[32];
        snprintf(node, sizeof(node), "%s", fixture_node_of(f, job, rank));
        fixture_all_run(f, node);
    }
    for (int rank = 0; core_job_spec(f->core, job)->kind == JOB_TRAIN && rank < world; rank++)
        fixture_join(f, job, rank);
    if (core_job_spec(f->core, job)->kind == JOB_TRAIN)
        fixture_put(f, job, "bootstrap");
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
}

enum err_code fixture_commit(struct core_fixture *f, int64_t job, int64_t spawn, int64_t generation,
                             int64_t step, const char *digest)
{
    struct core_event event = from_worker(f, CORE_COMMIT_SNAPSHOT, job, spawn);

    event.snapshot.generation = generation;
    event.snapshot.step = step;
    event.snapshot.digest = digest;
    event.snapshot.path = "/out/step";
    hand_in(f, &event);
    return fixture_reply(f, event.call)->err.code;
}

enum err_code fixture_commit_part(struct core_fixture *f, int64_t job, int rank, int64_t step, int parts,
                                  const char *digest, bool *pending)
{
    struct core_event event = from_worker(f, CORE_COMMIT_SNAPSHOT, job, fixture_spawn(f, job, rank));

    event.snapshot.generation = core_job(f->core, job)->generation;
    event.snapshot.step = step;
    event.snapshot.bytes = 100;
    event.snapshot.parts = parts;
    event.snapshot.digest = digest;
    event.snapshot.path = *digest ? "/out/step" : "";
    hand_in(f, &event);
    *pending = fixture_reply(f, event.call)->pending;
    return fixture_reply(f, event.call)->err.code;
}

enum err_code fixture_snapshot_failed(struct core_fixture *f, int64_t job, int rank, int64_t step,
                                      const char *why)
{
    return fixture_snapshot_waits(f, job, rank, step, why, 0);
}

enum err_code fixture_snapshot_waits(struct core_fixture *f, int64_t job, int rank, int64_t step,
                                     const char *why, int64_t waits_ms)
{
    struct core_event event = from_worker(f, CORE_SNAPSHOT_FAILED, job, fixture_spawn(f, job, rank));

    event.snapshot.generation = core_job(f->core, job)->generation;
    event.snapshot.step = step;
    event.snapshot.why = why;
    event.snapshot.waits_ms = waits_ms;
    hand_in(f, &event);
    return fixture_reply(f, event.call)->err.code;
}

void fixture_report_captured(struct core_fixture *f, int64_t job, int rank, const struct metric_line *line,
                             const char *captured, const char *note)
{
    struct metric_report report = {
        .job = job, .spawn = fixture_spawn(f, job, rank), .line = line, .captured = captured, .note = note};
    struct core_event event = {.kind = CORE_REPORTS, .session = session_of(fixture_node_of(f, job, rank))};

    event.reports.reports = &report;
    event.reports.count = 1;
    hand_in(f, &event);
}

void fixture_report_line(struct core_fixture *f, int64_t job, int rank, const struct metric_line *line)
{
    fixture_report_captured(f, job, rank, line, NULL, NULL);
}

void fixture_report(struct core_fixture *f, int64_t job, int rank, int64_t step, const char *metric,
                    double value)
{
    struct metric_line line = {.has_step = true, .step = step};

    if (metric)
        assert_true(metric_line_add(&line, metric, value));
    fixture_report_line(f, job, rank, &line);
}

/* The spawn knows its newest generation. */
static struct core_event watch_of(struct core_fixture *f, int64_t job, int64_t spawn)
{
    struct core_event event = from_worker(f, CORE_WATCH, job, spawn);
    const struct rank_record *rank = core_spawn_rank(f->core, job, spawn);

    event.watch.generation = rank ? rank->generation : 0;
    event.watch.stays = f->stays;
    event.watch.ready = f->ready;
    event.watch.broken = event.watch.record = f->broken;
    event.watch.arrived = f->arrived;
    event.watch.gathered = f->gathered;
    event.watch.holds = f->holds;
    return event;
}

uint64_t fixture_watch(struct core_fixture *f, int64_t job, int64_t spawn)
{
    return fixture_watch_failed(f, job, spawn, 0);
}

uint64_t fixture_watch_failed(struct core_fixture *f, int64_t job, int64_t spawn, int64_t step)
{
    struct core_event event = watch_of(f, job, spawn);

    event.watch.failed_step = step;
    hand_in(f, &event);
    return event.call;
}

uint64_t fixture_watch_in(struct core_fixture *f, int64_t job, int64_t spawn, int64_t generation)
{
    struct core_event event = watch_of(f, job, spawn);

    event.watch.generation = generation;
    event.watch.record = true;
    hand_in(f, &event);
    return event.call;
}

uint64_t fixture_watch_telling(struct core_fixture *f, int64_t job, int64_t spawn, int64_t revision,
                               int64_t step)
{
    struct core_event event = watch_of(f, job, spawn);

    event.watch.revision = revision;
    event.watch.step = step;
    event.watch.record = true;
    hand_in(f, &event);
    return event.call;
}

/* ---- effects */

const struct core_effect *fixture_reply(const struct core_fixture *f, uint64_t call)
{
    for (size_t i = f->out.effect_count; i-- > 0;)
        if (f->out.effects[i].call == call)
            return &f->out.effects[i];
    return NULL;
}

size_t fixture_effects(const struct core_fixture *f, enum core_effect_kind kind)
{
    size_t count = 0;

    for (size_t i = 0; i < f->out.effect_count; i++)
        count += f->out.effects[i].kind == kind;
    return count;
}
