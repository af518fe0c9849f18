/* Commits: records survive a reopen, moves are compare-and-set, a list of changes is all or nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "store/store_state.h"
#include "store_test.h"

static int commit_setup(void **state)
{
    *state = make_dir();
    return 0;
}

static int commit_teardown(void **state)
{
    remove_dir(*state);
    return 0;
}

static void check_job(const struct job_record *got, const struct job_record *want)
{
    assert_int_equal(got->id, want->id);
    assert_string_equal(got->request_id, want->request_id);
    assert_memory_equal(got->body_digest, want->body_digest, DIGEST_BYTES);
    assert_string_equal(got->name, want->name);
    assert_string_equal(got->user, want->user);
    assert_string_equal(got->job_file, want->job_file);
    assert_int_equal(strv_len(got->env), strv_len(want->env));
    for (size_t i = 0; want->env[i]; i++)
        assert_string_equal(got->env[i], want->env[i]);
    assert_int_equal(got->state, want->state);
    assert_null(got->reason);
    assert_int_equal(got->created_ms, want->created_ms);
    assert_int_equal(got->next_spawn, want->next_spawn);
    assert_int_equal(got->stop_signal, want->stop_signal);
}

static void check_generation(const struct generation_record *got, const struct generation_record *want)
{
    assert_int_equal(got->number, want->number);
    assert_int_equal(got->state, want->state);
    assert_int_equal(got->world_size, want->world_size);
    assert_string_equal(got->master_addr, want->master_addr);
    assert_int_equal(got->bootstrap_size, want->bootstrap_size);
    assert_memory_equal(got->bootstrap, want->bootstrap, want->bootstrap_size);
    assert_memory_equal(got->key, want->key, sizeof want->key);
    assert_true(got->has_key);
    assert_false(got->charged);
    assert_true(got->error && got->has_step);
    assert_int_equal(got->last_step, 1200);
    assert_int_equal(got->source_rank, -1);
    assert_null(got->source_path);
}

static void check_spawn(const struct spawn_record *got, const struct spawn_record *want)
{
    assert_int_equal(got->spawn, want->spawn);
    assert_int_equal(strv_len(got->gpu_uuids), 2);
    assert_string_equal(got->gpu_uuids[1], "GPU-bbbb");
    assert_memory_equal(got->token, want->token, 32);
    assert_memory_equal(got->token_hash, want->token_hash, 32);
    assert_int_equal(got->signal, 9);
    assert_string_equal(got->stderr_tail, want->stderr_tail);
    assert_int_equal(got->pid, want->pid);
}

static void every_record_survives_a_reopen(void **state)
{
    struct store *s = must_open(*state);
    struct job_record job = sample_job(1);
    struct node_record node = {.name = T("box1"),
                               .instance = T("i"),
                               .state = NODE_JOINING,
                               .cpu_slots = 8,
                               .port_first = 29700,
                               .port_last = 30699,
                               .memory_bytes = 1LL << 40,
                               .gpus = T("[]")};
    struct generation_record generation = sample_generation(1, 1);
    struct rank_record rank = sample_rank(1, 1, 3);
    struct spawn_record spawn = sample_spawn(1, 4);
    static char *nodes[] = {T("box1"), NULL};
    struct snapshot_record snapshot = {.job = 1,
                                       .generation = 1,
                                       .step = 500,
                                       .bytes = 3300000,
                                       .committed_ms = 8,
                                       .digest = T("abc"),
                                       .path = T("/out/step-500"),
                                       .nodes = nodes};
    const struct change changes[] = {
        {.kind = CHANGE_RANK_INSERT,
         .rank = &rank}, /* before its generation: foreign keys are checked at the commit */
        {.kind = CHANGE_GENERATION_INSERT, .generation = &generation},
        {.kind = CHANGE_JOB_INSERT, .job = &job},
        {.kind = CHANGE_NODE_INSERT, .node = &node},
        {.kind = CHANGE_SPAWN_INSERT, .spawn = &spawn},
        {.kind = CHANGE_SNAPSHOT_PUT, .snapshot = &snapshot},
    };
    must_commit(s, changes, ARRAY_LEN(changes));
    store_close(s);
    s = must_open(*state);
    struct err e = {0};
    CLEANUP(records_release) struct records got;
    assert_int_equal(store_load(s, &got, &e), ERR_OK);
    assert_int_equal(got.job_count, 1);
    check_job(&got.jobs[0], &job);
    assert_int_equal(got.generation_count, 1);
    check_generation(&got.generations[0], &generation);
    assert_int_equal(got.rank_count, 1);
    assert_int_equal(got.ranks[0].rank, 3);
    assert_int_equal(got.ranks[0].address_size, 3);
    assert_int_equal(got.spawn_count, 1);
    check_spawn(&got.spawns[0], &spawn);
    assert_int_equal(got.node_count, 1);
    assert_int_equal(got.nodes[0].memory_bytes, 1LL << 40);
    assert_int_equal(got.snapshot_count, 1);
    assert_string_equal(got.snapshots[0].nodes[0], "box1");
    assert_int_equal(got.next_job, 2);
    const struct change gone = {.kind = CHANGE_SNAPSHOT_DELETE, .snapshot = &snapshot};
    must_commit(s, &gone, 1);
    const struct change old = {
        .kind = CHANGE_GENERATION_DELETE, .id = generation.job, .generation_number = generation.number};
    must_commit(s, &old, 1);
    CLEANUP(records_release) struct records after;
    assert_int_equal(store_load(s, &after, &e), ERR_OK);
    assert_int_equal(after.snapshot_count, 0);
    assert_int_equal(after.generation_count, 0);
    assert_int_equal(after.rank_count, 0);
    assert_int_equal(store_commit(s, &gone, 1, &e), ERR_INTERNAL);
    assert_int_equal(store_commit(s, &old, 1, &e), ERR_INTERNAL);
    store_close(s);
}

static void a_move_is_compare_and_set(void **state)
{
    struct store *s = must_open(*state);
    struct err e = {0};
    insert_job(s, 1);
    const struct change start = {
        .kind = CHANGE_JOB_MOVE, .id = 1, .from = JOB_QUEUED, .to = JOB_STARTING, .text = T("placed")};
    must_commit(s, &start, 1);
    assert_int_equal(store_commit(s, &start, 1, &e), ERR_INTERNAL); /* it is no longer queued */
    const struct change missing = {.kind = CHANGE_JOB_MOVE, .id = 2, .from = JOB_QUEUED, .to = JOB_STARTING};
    assert_int_equal(store_commit(s, &missing, 1, &e), ERR_INTERNAL);
    CLEANUP(records_release) struct records got;
    assert_int_equal(store_load(s, &got, &e), ERR_OK);
    assert_int_equal(got.jobs[0].state, JOB_STARTING);
    assert_string_equal(got.jobs[0].reason, "placed");
    store_close(s);
}

static void every_state_machine_is_compare_and_set(void **state)
{
    struct store *s = must_open(*state);
    struct err e = {0};
    insert_job(s, 1);
    struct generation_record generation = sample_generation(1, 1);
    struct rank_record rank = sample_rank(1, 1, 0);
    struct node_record node = {.name = T("box1"), .state = NODE_ALIVE};
    const struct change inserts[] = {
        {.kind = CHANGE_GENERATION_INSERT, .generation = &generation},
        {.kind = CHANGE_RANK_INSERT, .rank = &rank},
        {.kind = CHANGE_NODE_INSERT, .node = &node},
    };
    must_commit(s, inserts, ARRAY_LEN(inserts));
    const struct change moves[] = {
        {.kind = CHANGE_GENERATION_MOVE,
         .id = 1,
         .generation_number = 1,
         .from = GENERATION_FORMING,
         .to = GENERATION_READY},
        {.kind = CHANGE_RANK_MOVE,
         .id = 1,
         .generation_number = 1,
         .rank_number = 0,
         .from = RANK_ASSIGNED,
         .to = RANK_SPAWNED},
        {.kind = CHANGE_NODE_MOVE, .name = T("box1"), .from = NODE_ALIVE, .to = NODE_SUSPECT},
    };
    for (size_t i = 0; i < ARRAY_LEN(moves); i++) {
        must_commit(s, &moves[i], 1);
        assert_int_equal(store_commit(s, &moves[i], 1, &e), ERR_INTERNAL);
    }
    CLEANUP(records_release) struct records got;
    assert_int_equal(store_load(s, &got, &e), ERR_OK);
    assert_int_equal(got.generations[0].state, GENERATION_READY);
    assert_int_equal(got.ranks[0].state, RANK_SPAWNED);
    assert_int_equal(got.nodes[0].state, NODE_SUSPECT);
    store_close(s);
}

static void a_put_does_not_change_the_state(void **state)
{
    struct store *s = must_open(*state);
    struct err e = {0};
    insert_job(s, 1);
    char request[32];
    struct job_record job = numbered_job(1, request);
    job.state = JOB_SUCCEEDED; /* ignored: only a move, which checks the table of states, changes it */
    job.restarts_used = 2;
    job.goal = JOB_CANCELLED; /* a put may change the goal */
    const struct change put = {.kind = CHANGE_JOB_PUT, .job = &job};
    must_commit(s, &put, 1);
    CLEANUP(records_release) struct records got;
    assert_int_equal(store_load(s, &got, &e), ERR_OK);
    assert_int_equal(got.jobs[0].state, JOB_QUEUED);
    assert_int_equal(got.jobs[0].restarts_used, 2);
    assert_int_equal(got.jobs[0].goal, JOB_CANCELLED);
    store_close(s);
}

static void a_list_of_changes_is_all_or_nothing(void **state)
{
    struct store *s = must_open(*state);
    struct err e = {0};
    struct job_record job = sample_job(1);
    struct event_record event = sample_event(1, "queued");
    struct generation_record orphan = sample_generation(99, 1);
    const struct change changes[] = {
        {.kind = CHANGE_JOB_INSERT, .job = &job},
        {.kind = CHANGE_EVENT, .event = &event},
        {.kind = CHANGE_GENERATION_INSERT, .generation = &orphan}, /* no such job */
    };
    assert_int_equal(store_commit(s, changes, ARRAY_LEN(changes), &e), ERR_INTERNAL);
    CLEANUP(records_release) struct records got;
    assert_int_equal(store_load(s, &got, &e), ERR_OK);
    assert_int_equal(got.job_count, 0);
    struct event_record *events;
    size_t count;
    assert_int_equal(store_events(s, 1, 0, 10, &events, &count, &e), ERR_OK);
    assert_int_equal(count, 0);
    must_commit(s, changes, 2); /* after a refusal the store can still commit */
    store_close(s);
}

static void a_request_id_makes_one_job(void **state)
{
    struct store *s = must_open(*state);
    struct err e = {0};
    struct job_record one = sample_job(1), two = sample_job(2);
    const struct change first = {.kind = CHANGE_JOB_INSERT, .job = &one};
    const struct change second = {.kind = CHANGE_JOB_INSERT, .job = &two};
    must_commit(s, &first, 1);
    assert_int_equal(store_commit(s, &second, 1, &e), ERR_INTERNAL);
    store_close(s);
}

static void ids_are_never_reused(void **state)
{
    struct store *s = must_open(*state);
    struct err e = {0};
    insert_job(s, 7);
    struct event_record event = sample_event(7, "gone with its job");
    const struct change forget[] = {
        {.kind = CHANGE_EVENT, .event = &event},
        {.kind = CHANGE_JOB_FORGET, .id = 7},
        {.kind = CHANGE_LOST_NUMBER_REMOVED, .id = 7},
    };
    must_commit(s, forget, 3);
    store_close(s);
    s = must_open(*state);
    CLEANUP(records_release) struct records got;
    assert_int_equal(store_load(s, &got, &e), ERR_OK);
    assert_int_equal(got.job_count, 0);
    assert_int_equal(got.next_job, 8);
    assert_int_equal(got.removed_count, 1);
    assert_int_equal(got.removed[0], 7);
    struct event_record *events;
    size_t count;
    assert_int_equal(store_events(s, 7, 0, 10, &events, &count, &e), ERR_OK);
    assert_int_equal(count, 0);
    store_close(s);
}

static void cancel_job(struct store *s, int64_t id)
{
    const struct change moves[] = {
        {.kind = CHANGE_JOB_MOVE, .id = id, .from = JOB_QUEUED, .to = JOB_CANCELLED, .text = T("by ana")},
    };
    must_commit(s, moves, 1);
}

/* Of a finished job, load returns the newest generation, the newest failed one, which says how the job ended,
 * and those with a spawn that may still live and hold its slots. */
static void load_skips_old_generations_of_finished_jobs(void **state)
{
    struct store *s = must_open(*state);
    struct err e = {0};
    insert_job(s, 1);
    insert_job(s, 2);
    struct generation_record g[] = {sample_generation(1, 1), sample_generation(1, 2), sample_generation(1, 3),
                                    sample_generation(1, 4), sample_generation(2, 1)};
    struct spawn_record spawns[] = {sample_spawn(1, 1), sample_spawn(1, 2), sample_spawn(1, 3),
                                    sample_spawn(1, 4), sample_spawn(2, 1)};
    spawns[0].node = T("box0"); /* only of a generation that is not loaded */
    g[0].failed_spawn = 1;      /* an older failure: not loaded */
    g[1].failed_spawn = 2;
    g[2].failed_spawn = g[3].failed_spawn = g[4].failed_spawn = 0;
    for (size_t i = 0; i < ARRAY_LEN(g); i++)
        g[i].error = false;
    for (size_t i = 0; i < ARRAY_LEN(g); i++) {
        struct rank_record rank = sample_rank(g[i].job, g[i].number, 0);
        rank.spawn = spawns[i].spawn;
        spawns[i].dead = true;
        const struct change changes[] = {{.kind = CHANGE_GENERATION_INSERT, .generation = &g[i]},
                                         {.kind = CHANGE_RANK_INSERT, .rank = &rank},
                                         {.kind = CHANGE_SPAWN_INSERT, .spawn = &spawns[i]}};
        must_commit(s, changes, 3);
    }
    cancel_job(s, 1);
    CLEANUP(records_release) struct records got;
    assert_int_equal(store_load(s, &got, &e), ERR_OK);
    assert_int_equal(got.job_count, 2);
    const size_t generations_with_newest = got.generation_count;
    assert_int_equal(got.generations[0].number, 2);
    assert_int_equal(got.spawns[0].spawn, 2);
    spawns[2].dead = false;
    const struct change alive = {.kind = CHANGE_SPAWN_PUT, .spawn = &spawns[2]};
    must_commit(s, &alive, 1);
    CLEANUP(records_release) struct records more;
    assert_int_equal(store_load(s, &more, &e), ERR_OK);
    assert_int_equal(more.generation_count, generations_with_newest + 1);
    CLEANUP(records_release) struct records whole;
    assert_int_equal(store_load_job(s, 1, &whole, &e), ERR_OK);
    assert_int_equal(whole.generation_count, 4);
    assert_int_equal(whole.spawn_count, 4);
    CLEANUP(records_release) struct records none;
    assert_int_equal(store_load_job(s, 99, &none, &e), ERR_NOT_FOUND);
    char **nodes;
    assert_int_equal(store_job_nodes(s, 1, &nodes, &e), ERR_OK);
    assert_int_equal(strv_len(nodes), 2);
    assert_string_equal(nodes[0], "box0");
    assert_string_equal(nodes[1], spawns[1].node);
    strv_free(nodes);
    assert_int_equal(store_job_nodes(s, 99, &nodes, &e), ERR_OK);
    assert_null(nodes);
    store_close(s);
}

/* The last two errors explain together why a finished job did not start again. */
static void load_keeps_the_last_two_errors_of_finished_jobs(void **state)
{
    struct store *s = must_open(*state);
    struct err e = {0};
    insert_job(s, 1);
    for (int64_t number = 1; number <= 4; number++) {
        struct generation_record g = sample_generation(1, number);
        struct rank_record rank = sample_rank(1, number, 0);
        struct spawn_record spawn = sample_spawn(1, number);
        g.failed_spawn = rank.spawn = number;
        g.error = number != 3; /* a fault between them */
        spawn.dead = true;
        const struct change changes[] = {{.kind = CHANGE_GENERATION_INSERT, .generation = &g},
                                         {.kind = CHANGE_RANK_INSERT, .rank = &rank},
                                         {.kind = CHANGE_SPAWN_INSERT, .spawn = &spawn}};
        must_commit(s, changes, 3);
    }
    cancel_job(s, 1);
    CLEANUP(records_release) struct records got;
    assert_int_equal(store_load(s, &got, &e), ERR_OK);
    assert_int_equal(got.generation_count, 2);
    assert_int_equal(got.generations[0].number, 2);
    assert_int_equal(got.generations[1].number, 4);
    assert_int_equal(got.spawn_count, 2);
    store_close(s);
}

/* A spawn has one record, but a rank in each generation that it was a member of. */
static void a_spawn_in_two_generations_is_loaded_once(void **state)
{
    struct store *s = must_open(*state);
    struct err e = {0};
    insert_job(s, 1);
    struct generation_record g[] = {sample_generation(1, 1), sample_generation(1, 2)};
    struct rank_record ranks[] = {sample_rank(1, 1, 0), sample_rank(1, 2, 1)};
    struct spawn_record spawn = sample_spawn(1, 1);
    g[0].state = GENERATION_CLOSED;
    g[0].failed_spawn = 0;
    ranks[1].spawn = 1;
    const struct change changes[] = {{.kind = CHANGE_GENERATION_INSERT, .generation = &g[0]},
                                     {.kind = CHANGE_GENERATION_INSERT, .generation = &g[1]},
                                     {.kind = CHANGE_RANK_INSERT, .rank = &ranks[0]},
                                     {.kind = CHANGE_RANK_INSERT, .rank = &ranks[1]},
                                     {.kind = CHANGE_SPAWN_INSERT, .spawn = &spawn}};
    must_commit(s, changes, ARRAY_LEN(changes));
    CLEANUP(records_release) struct records got, finished;
    assert_int_equal(store_load(s, &got, &e), ERR_OK);
    assert_int_equal(got.generation_count, 2);
    assert_int_equal(got.rank_count, 2);
    assert_int_equal(got.spawn_count, 1);
    assert_int_equal(got.spawns[0].first_generation, 1);
    assert_int_equal(got.spawns[0].first_local_rank, 1);
    cancel_job(s, 1);
    /* The job is over but its spawn still lives, so both generations are loaded, and the spawn once. */
    assert_int_equal(store_load(s, &finished, &e), ERR_OK);
    assert_int_equal(finished.generation_count, 2);
    assert_int_equal(finished.spawn_count, 1);
    store_close(s);
}

static void events_are_paged_and_trimmed(void **state)
{
    struct store *s = must_open(*state);
    struct err e = {0};
    insert_job(s, 1);
    for (int i = 0; i < 20; i++) {
        struct event_record mine = sample_event(1, i % 2 ? "odd" : "even"), cluster = sample_event(0, "node");
        const struct change changes[] = {{.kind = CHANGE_EVENT, .event = &mine},
                                         {.kind = CHANGE_EVENT, .event = &cluster}};
        must_commit(s, changes, 2);
    }
    struct event_record *events;
    size_t count;
    assert_int_equal(store_events(s, 1, -1, 5, &events, &count, &e), ERR_OK);
    assert_int_equal(count, 5);
    assert_string_equal(events[1].text, "odd");
    const int64_t last = events[4].id;
    store_events_free(events, count);
    assert_int_equal(store_events(s, 1, last, 100, &events, &count, &e), ERR_OK);
    assert_int_equal(count, 15);
    assert_true(events[0].id > last);
    store_events_free(events, count);
    assert_int_equal(store_events(s, 1, 0, 3, &events, &count, &e), ERR_OK); /* the newest */
    assert_int_equal(count, 3);
    assert_true(events[0].id > last && events[2].id > events[0].id);
    const int64_t newest = events[2].id;
    store_events_free(events, count);
    assert_int_equal(store_events(s, 1, newest, 3, &events, &count, &e), ERR_OK);
    assert_int_equal(count, 0);
    bool more = true;
    assert_int_equal(store_trim_events(s, 4, &more, &e), ERR_OK);
    assert_false(more);
    for (int64_t job = 0; job < 2; job++) {
        assert_int_equal(store_events(s, job, 0, 100, &events, &count, &e), ERR_OK);
        assert_int_equal(count, 4);
        store_events_free(events, count);
    }
    store_close(s);
}

static void add_events(struct store *s, int jobs, int each)
{
    const size_t count = (size_t)jobs * (size_t)each;
    struct change *changes = xcalloc(count, sizeof *changes);
    struct event_record *events = xcalloc(count, sizeof *events);
    for (size_t i = 0; i < count; i++) {
        events[i] = sample_event((int64_t)i / each + 1, "x");
        changes[i] = (struct change){.kind = CHANGE_EVENT, .event = &events[i]};
    }
    must_commit(s, changes, count);
    free(changes);
    free(events);
}

static int trim_all_events(struct store *s, int64_t keep)
{
    struct err e = {0};
    bool more = true;
    int calls = 0;
    for (; more; calls++)
        if (store_trim_events(s, keep, &more, &e) != ERR_OK)
            fail_msg("%s", e.msg);
    return calls;
}

/* The loop waits for each call, so none of them may visit all events. */
static void events_are_trimmed_in_parts(void **state)
{
    enum { JOBS = 600, EACH = 25 };
    struct store *s = must_open(*state);
    struct err e = {0};
    struct event_record *events;
    size_t count;
    for (int id = 1; id <= JOBS; id++)
        insert_job(s, id);
    add_events(s, JOBS, EACH);
    assert_true(trim_all_events(s, 20) > 2);
    for (int64_t job = 1; job <= JOBS; job++) {
        assert_int_equal(store_events(s, job, 0, 100, &events, &count, &e), ERR_OK);
        assert_int_equal(count, 20);
        store_events_free(events, count);
    }
    /* Visited events are not visited again, also by the next process. The mark of that is a smaller limit that has no effect. */
    store_close(s);
    s = must_open(*state);
    struct event_record mine = sample_event(7, "new");
    must_commit(s, &(struct change){.kind = CHANGE_EVENT, .event = &mine}, 1);
    assert_int_equal(trim_all_events(s, 10), 1);
    for (int64_t job = 6; job <= 8; job++) {
        assert_int_equal(store_events(s, job, 0, 100, &events, &count, &e), ERR_OK);
        assert_int_equal(count, job == 7 ? 10 : 20);
        store_events_free(events, count);
    }
    store_close(s);
}

static void users_are_found_by_name(void **state)
{
    struct store *s = must_open(*state);
    struct err e = {0};
    struct user_record ana = {
        .name = (char *)"ana", .role = (char *)"submit", .created_ms = 5, .token_ms = 5};
    struct user_record ben = {.name = (char *)"ben", .role = (char *)"view", .created_ms = 6, .token_ms = 6};
    memset(ben.token_hash, 7, sizeof ben.token_hash);
    const struct change add[] = {{.kind = CHANGE_USER_PUT, .user = &ben},
                                 {.kind = CHANGE_USER_PUT, .user = &ana}};
    must_commit(s, add, 2);
    memset(ana.token_hash, 9, sizeof ana.token_hash);
    ana.token_ms = 8;
    must_commit(s, &(struct change){.kind = CHANGE_USER_PUT, .user = &ana}, 1);
    struct user_record *users;
    size_t count;
    assert_int_equal(store_users(s, &users, &count, &e), ERR_OK);
    assert_int_equal(count, 2);
    assert_string_equal(users[0].name, "ana");
    assert_int_equal(users[0].token_hash[31], 9);
    assert_int_equal(users[0].token_ms, 8);
    assert_string_equal(users[1].role, "view");
    store_users_free(users, count);
    const struct change gone = {.kind = CHANGE_USER_DELETE, .name = (char *)"ana"};
    must_commit(s, &gone, 1);
    assert_int_equal(store_commit(s, &gone, 1, &e), ERR_INTERNAL); /* a missing user: a bug of the caller */
    assert_int_equal(store_users(s, &users, &count, &e), ERR_OK);
    assert_int_equal(count, 1);
    store_users_free(users, count);
    store_close(s);
}

static void write_audit_of(struct store *s, int64_t time_ms, const char *who, const char *what)
{
    struct audit_record r = {.time_ms = time_ms,
                             .who = (char *)(uintptr_t)who,
                             .origin = (char *)"10.0.0.7",
                             .what = (char *)(uintptr_t)what,
                             .text = (char *)"cancel job 12"};
    must_commit(s, &(struct change){.kind = CHANGE_AUDIT, .audit = &r}, 1);
}

static void write_audit(struct store *s, int64_t time_ms, const char *what)
{
    write_audit_of(s, time_ms, "ana", what);
}

static size_t count_audit(struct store *s, int64_t since_ms, const char *what)
{
    struct err e = {0};
    struct audit_record *list;
    size_t count, found = 0;
    assert_int_equal(store_audit(s, since_ms, 1000, &list, &count, &e), ERR_OK);
    for (size_t i = 0; i < count; i++)
        found += strcmp(list[i].what, what) == 0;
    store_audit_free(list, count);
    return found;
}

/* Refused calls may fill a tenth of the log only, so that a flood of them does not push out real changes. */
static void the_audit_log_is_bounded(void **state)
{
    struct store *s = must_open(*state);
    struct err e = {0};
    struct audit_record *list;
    size_t count;
    for (int64_t i = 1; i <= 30; i++)
        write_audit(s, i, "job_cancel");
    for (int64_t i = 31; i <= 60; i++)
        write_audit(s, i, STORE_AUDIT_REFUSED);
    assert_int_equal(store_audit(s, 29, 3, &list, &count, &e), ERR_OK);
    assert_int_equal(count, 3);
    assert_int_equal(list[0].time_ms, 58);
    assert_int_equal(list[2].time_ms, 60);
    store_audit_free(list, count);
    assert_int_equal(store_trim_audit(s, 11, 50, &e), ERR_OK);
    assert_int_equal(count_audit(s, 0, "job_cancel"), 20); /* the first ten have times before 11 ms */
    assert_int_equal(count_audit(s, 0, STORE_AUDIT_REFUSED), 5);
    assert_int_equal(store_trim_audit(s, 0, 10, &e), ERR_OK);
    assert_int_equal(count_audit(s, 0, "job_cancel") + count_audit(s, 0, STORE_AUDIT_REFUSED), 10);
    store_close(s);
}

static int64_t busy_timeout(const struct store *s)
{
    struct err e = {0};
    int64_t ms;
    assert_int_equal(db_int(s->db, "PRAGMA busy_timeout", -1, &ms, &e), ERR_OK);
    return ms;
}

/* The caller's loop repeats a failed commit and must not stand still each time. */
static void only_the_first_commit_waits_for_a_lock(void **state)
{
    struct store *s = must_open(*state);
    CLEANUP(free_text) char *path = xasprintf("%s/ddp.db", (char *)*state);
    sqlite3 *other;
    struct err e = {0};
    struct event_record event = sample_event(0, "queued");
    const struct change change = {.kind = CHANGE_EVENT, .event = &event};
    assert_int_equal(db_open(&other, path, DB_SYNC_FULL, &e), ERR_OK);
    assert_int_equal(db_exec(other, "BEGIN IMMEDIATE", &e), ERR_OK);
    assert_int_equal(busy_timeout(s), DB_BUSY_MS);
    assert_int_equal(store_commit(s, &change, 1, &e), ERR_UNAVAILABLE);
    assert_int_equal(busy_timeout(s), 0);
    assert_int_equal(store_commit(s, &change, 1, &e), ERR_UNAVAILABLE);
    assert_int_equal(busy_timeout(s), 0);
    assert_int_equal(db_exec(other, "ROLLBACK", &e), ERR_OK);
    must_commit(s, &change, 1);
    assert_int_equal(busy_timeout(s), DB_BUSY_MS);
    db_close(&other);
    store_close(s);
}

static size_t count_audit_of(struct store *s, const char *who)
{
    struct err e = {0};
    struct audit_record *list;
    size_t count, found = 0;
    assert_int_equal(store_audit(s, 0, 1000, &list, &count, &e), ERR_OK);
    for (size_t i = 0; i < count; i++)
        found += strcmp(list[i].who, who) == 0;
    store_audit_free(list, count);
    return found;
}

static void a_caller_cannot_displace_the_audit_lines_of_others(void **state)
{
    struct store *s = must_open(*state);
    struct err e = {0};
    struct audit_record *list;
    size_t count;
    for (int64_t i = 1; i <= 10; i++)
        write_audit_of(s, i, "olga", "user_add");
    for (int64_t i = 11; i <= 40; i++)
        write_audit_of(s, i, "ben", "job_submit");
    for (int64_t i = 41; i <= 140; i++)
        write_audit_of(s, i, "ana", "job_hold");
    assert_int_equal(store_trim_audit(s, 0, 140, &e), ERR_OK); /* all fit */
    assert_int_equal(count_audit(s, 0, "job_hold"), 100);
    assert_int_equal(store_trim_audit(s, 0, 60, &e), ERR_OK);
    assert_int_equal(count_audit_of(s, "olga"), 10);
    assert_int_equal(count_audit_of(s, "ben"), 25);
    assert_int_equal(count_audit_of(s, "ana"), 25);
    assert_int_equal(store_audit(s, 0, 1000, &list, &count, &e), ERR_OK);
    assert_int_equal(list[10].time_ms, 16); /* each keeps its newest */
    assert_int_equal(list[59].time_ms, 140);
    store_audit_free(list, count);
    store_close(s);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, commit_setup, commit_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_record_survives_a_reopen),
        TEST(a_move_is_compare_and_set),
        TEST(every_state_machine_is_compare_and_set),
        TEST(a_put_does_not_change_the_state),
        TEST(a_list_of_changes_is_all_or_nothing),
        TEST(a_request_id_makes_one_job),
        TEST(ids_are_never_reused),
        TEST(load_skips_old_generations_of_finished_jobs),
        TEST(load_keeps_the_last_two_errors_of_finished_jobs),
        TEST(a_spawn_in_two_generations_is_loaded_once),
        TEST(events_are_paged_and_trimmed),
        TEST(events_are_trimmed_in_parts),
        TEST(users_are_found_by_name),
        TEST(the_audit_log_is_bounded),
        TEST(only_the_first_commit_waits_for_a_lock),
        TEST(a_caller_cannot_displace_the_audit_lines_of_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
