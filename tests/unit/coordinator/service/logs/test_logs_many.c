/* The logs of a job with thousands of ranks: what a call costs while it opens and at each step. And reads that continue under
 * another rank or in another session. */
#include "tests/unit/base/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "daemon/coordinator/service/access/auth.h"
#include "daemon/coordinator/service/access/identity.h"
#include "daemon/coordinator/service/agent_rpc.h"
#include "daemon/coordinator/service/commit_queue.h"
#include "daemon/coordinator/service/logs/log_stream.h"
#include "daemon/coordinator/service/logs/logs.h"
#include "daemon/coordinator/service/service_state.h"

#define NODES 1000
#define RANKS 8 /* of each node */
#define READS ((size_t)NODES * RANKS * 2)

/* ---- what is around the logs */

static struct job_record job;
static struct records present; /* of the job */
static struct agent_session sessions[NODES];
static struct service service;
static char client; /* its address stands for the user's call */
static void *client_user;
static bool client_is_slow;
static const struct rpc_call *over;    /* the call of a session that has ended; NULL: none */
static size_t compared, asked, looked; /* looked: at the data of one read */
static struct buf passed;              /* to the client: "0 line, " */

int __real_strcmp(const char *a, const char *b);
int __wrap_strcmp(const char *a, const char *b);
int __wrap_strcmp(const char *a, const char *b)
{
    compared++;
    return __real_strcmp(a, b);
}

size_t __real_log_piece_left(const struct log_piece *p);
size_t __wrap_log_piece_left(const struct log_piece *p);
size_t __wrap_log_piece_left(const struct log_piece *p)
{
    looked++;
    return __real_log_piece_left(p);
}

const struct job_record *__wrap_core_job(const struct core *core, int64_t id);
const struct job_record *__wrap_core_job(const struct core *core, int64_t id)
{
    (void)core, (void)id;
    return &job;
}

const struct node_record *__wrap_core_node(const struct core *core, const char *name);
const struct node_record *__wrap_core_node(const struct core *core, const char *name)
{
    static const struct node_record alive = {.state = NODE_ALIVE};
    (void)core, (void)name;
    return &alive;
}

enum err_code __wrap_store_load_job(struct store *s, int64_t id, struct records *out, struct err *e);
enum err_code __wrap_store_load_job(struct store *s, int64_t id, struct records *out, struct err *e)
{
    (void)s, (void)id, (void)e;
    *out = (struct records){.rank_count = present.rank_count, .spawn_count = present.spawn_count};
    out->ranks = xcalloc(present.rank_count, sizeof *out->ranks);
    out->spawns = xcalloc(present.spawn_count, sizeof *out->spawns);
    for (size_t i = 0; i < present.rank_count; i++)
        rank_record_copy(&out->ranks[i], &present.ranks[i]);
    for (size_t i = 0; i < present.spawn_count; i++)
        spawn_record_copy(&out->spawns[i], &present.spawns[i]);
    return ERR_OK;
}

void __wrap_commit_queue_flush(struct service *s);
void __wrap_commit_queue_flush(struct service *s)
{
    (void)s;
}

bool __wrap_caller_may_read(struct service *s, struct rpc_call *call, int64_t id);
bool __wrap_caller_may_read(struct service *s, struct rpc_call *call, int64_t id)
{
    (void)s, (void)call, (void)id;
    return true;
}

const struct identity *__wrap_caller_identity(const struct rpc_call *call);
const struct identity *__wrap_caller_identity(const struct rpc_call *call)
{
    static const struct identity ana = {.name = "ana"};
    (void)call;
    return &ana;
}

void __wrap_rpc_call_set_user(struct rpc_call *call, void *user);
void __wrap_rpc_call_set_user(struct rpc_call *call, void *user)
{
    (void)call;
    client_user = user;
}

void *__wrap_rpc_call_user(const struct rpc_call *call);
void *__wrap_rpc_call_user(const struct rpc_call *call)
{
    (void)call;
    return client_user;
}

bool __wrap_rpc_call_over(const struct rpc_call *call);
bool __wrap_rpc_call_over(const struct rpc_call *call)
{
    return call == over;
}

/* ---- an agent that answers, with files of which each byte was written at its own time */

#define AGENT_READS 256 /* the most that an agent serves */

static int64_t file_size; /* 0: this agent does not answer */
static struct {
    int64_t read, offset, left;
} served[AGENT_READS];
static size_t served_count;
static bool agent_overloaded;
/* what the client got */
static int64_t client_bytes, client_date;
static int client_notes;
static bool client_ended, client_disorder, client_incomplete;

static void agent_take(const Ddp__V1__LogRead *q)
{
    size_t i = 0;
    while (i < served_count && served[i].read != q->read)
        i++;
    if (q->cancel) {
        if (i < served_count)
            served[i] = served[--served_count];
        return;
    }
    if (i == AGENT_READS) {
        agent_overloaded = true;
        return;
    }
    served_count += i == served_count;
    served[i].read = q->read;
    served[i].offset = q->offset;
    served[i].left = q->limit;
}

static void client_take(const Ddp__V1__LogData *m)
{
    client_notes += m->note[0] != 0;
    client_incomplete |= m->incomplete;
    client_bytes += (int64_t)m->data.len;
    if (!m->data.len)
        return;
    client_disorder |= m->written_ms < client_date;
    client_date = m->written_ms;
}

/* Sends a piece to each read. follow: the files are still written. Returns whether there was one to send. */
static bool agent_turn(bool follow)
{
    bool sent = false;
    for (size_t i = served_count; i-- > 0;) {
        const int64_t rest = file_size - served[i].offset;
        const int64_t size = rest < served[i].left ? rest : served[i].left;
        const bool end = size < served[i].left;
        if (!served[i].left)
            continue; /* until the next piece is asked for */
        Ddp__V1__LogChunk chunk = DDP__V1__LOG_CHUNK__INIT;
        CLEANUP(free_text) char *data = xcalloc(1, (size_t)size + 1);
        int64_t bytes = size, us = (served[i].offset + 1) * 1000;
        chunk.read = served[i].read;
        chunk.offset = served[i].offset;
        chunk.data = (ProtobufCBinaryData){(size_t)size, (uint8_t *)data};
        chunk.n_run_us = chunk.n_run_bytes = size > 0;
        chunk.run_bytes = &bytes;
        chunk.run_us = &us;
        chunk.end = end && !follow;
        chunk.waits = end && follow;
        served[i].offset += size;
        served[i].left = 0;
        if (chunk.end)
            served[i] = served[--served_count];
        logs_chunk(&sessions[0], &chunk);
        sent = true;
    }
    return sent;
}

/* Until nothing happens any more. */
static void agent_answers(bool follow)
{
    do
        logs_push(&service);
    while (agent_turn(follow));
}

enum err_code __wrap_rpc_call_send(struct rpc_call *call, const void *message, struct err *e);
enum err_code __wrap_rpc_call_send(struct rpc_call *call, const void *message, struct err *e)
{
    const Ddp__V1__LogData *m = message;
    if (file_size && (const char *)call == &client)
        client_take(m);
    else if (file_size)
        agent_take(((const Ddp__V1__AgentDown *)message)->log_read);
    else if ((const char *)call != &client)
        asked++;
    else if (client_is_slow)
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "the client reads slowly");
    else
        buf_printf(&passed, "%d %.*s, ", m->rank, (int)m->data.len, (const char *)m->data.data);
    return ERR_OK;
}

void __wrap_rpc_call_finish(struct rpc_call *call);
void __wrap_rpc_call_finish(struct rpc_call *call)
{
    (void)call;
    client_ended = true;
    buf_puts(&passed, "end");
}

/* ---- a job */

static void add_rank(int64_t generation, int rank, const char *node, int64_t spawn, int64_t first_generation,
                     int first_rank)
{
    present.ranks = xrealloc(present.ranks, (present.rank_count + 1) * sizeof *present.ranks);
    present.ranks[present.rank_count++] =
        (struct rank_record){.generation = generation, .rank = rank, .node = xstrdup(node), .spawn = spawn};
    if (first_generation != generation)
        return; /* the spawn is there already */
    present.spawns = xrealloc(present.spawns, (present.spawn_count + 1) * sizeof *present.spawns);
    present.spawns[present.spawn_count++] = (struct spawn_record){.spawn = spawn,
                                                                  .first_generation = first_generation,
                                                                  .first_local_rank = first_rank,
                                                                  .node = xstrdup(node),
                                                                  .pid = 1};
}

static void name_node(char name[16], int node)
{
    snprintf(name, 16, "node%04d", node);
}

static void open_session(int number, const char *node)
{
    struct agent_session *x = &sessions[number];
    *x = (struct agent_session){.service = &service,
                                .rpc = (struct rpc_call *)x,
                                .handle = service_handle(&service),
                                .welcomed = true,
                                .dates_logs = true};
    agent_session_name(x, node);
}

static struct log_stream *open_logs(bool follow, bool both)
{
    Ddp__V1__ReadLogsRequest request = DDP__V1__READ_LOGS_REQUEST__INIT;
    request.rank = -1;
    request.both = both;
    request.follow = follow;
    logs_read((struct rpc_call *)&client, &request, &service);
    return service.logs;
}

/* A byte for each date. */
static void chunk_comes(const struct log_read *r, struct agent_session *session, const char *text,
                        const int64_t *dates, bool last)
{
    static int64_t ones[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    Ddp__V1__LogChunk chunk = DDP__V1__LOG_CHUNK__INIT;
    chunk.n_run_us = chunk.n_run_bytes = dates ? strlen(text) : 0;
    chunk.run_bytes = ones;
    chunk.run_us = (int64_t *)(uintptr_t)dates;
    chunk.end = last;
    chunk.read = (int64_t)r->handle;
    chunk.offset = r->offset;
    chunk.data = (ProtobufCBinaryData){strlen(text), (uint8_t *)(uintptr_t)text};
    logs_chunk(session, &chunk);
}

static int logs_setup(void **state)
{
    (void)state;
    service = (struct service){0};
    uv_loop_init(&service.loop);
    uv_timer_init(&service.loop, &service.logs_timer);
    job = (struct job_record){.generation = 1, .state = JOB_RUNNING};
    present = (struct records){0};
    client_is_slow = client_ended = client_disorder = client_incomplete = agent_overloaded = false;
    client_bytes = client_date = file_size = 0;
    client_notes = 0;
    served_count = 0;
    over = NULL;
    buf_release(&passed);
    passed = (struct buf){0};
    return 0;
}

static int logs_teardown(void **state)
{
    (void)state;
    logs_end((struct rpc_call *)&client, false);
    for (int i = 0; i < NODES; i++)
        free(steal(sessions[i].node));
    records_release(&present);
    buf_release(&passed);
    handles_release(&service.reads);
    handles_release(&service.named_sessions);
    uv_close((uv_handle_t *)&service.logs_timer, NULL);
    uv_run(&service.loop, UV_RUN_DEFAULT);
    return uv_loop_close(&service.loop);
}

/* ---- the tests */

static void thousands_of_logs_take_few_looks(void **state)
{
    char node[16];
    (void)state;
    for (int i = 0; i < NODES; i++) {
        name_node(node, i);
        open_session(i, node);
        for (int k = 0; k < RANKS; k++)
            add_rank(1, i * RANKS + k, node, i * RANKS + k + 1, 1, k);
    }
    compared = asked = 0;
    struct log_stream *x = open_logs(false, true);
    logs_push(&service);
    assert_int_equal(x->read_count, READS);
    assert_int_equal(asked, READS);
    assert_in_range(compared, 0, 2 * READS);

    compared = asked = looked = 0;
    struct log_read *r = x->reads;
    for (int i = 0; i < 100; i++, r = r->next) {
        chunk_comes(r, &sessions[i / (2 * RANKS)], "line\n", NULL, false);
        logs_push(&service);
    }
    assert_int_equal(compared, 0); /* all are owed the rest of their pieces */
    assert_int_equal(asked, 0);
    assert_in_range(looked, 0, 100 * 4 * READS);

    logs_node_changed(&service, "node0007");
    logs_push(&service);
    assert_in_range(compared, 0, 2 * READS);

    looked = 0;
    r = x->reads;
    for (size_t i = 0; i < READS; i++, r = r->next)
        chunk_comes(r, &sessions[i / (2 * RANKS)], "x", NULL, true);
    logs_push(&service);
    assert_null(x->reads);
    assert_in_range(looked, 0, 20 * READS);
}

static void data_is_passed_in_the_order_of_its_dates(void **state)
{
    static const int64_t dates[3][3] = {{10, 40, 50}, {20, 40, 60}, {5, 30, 70}};
    struct log_read *reads[3];
    (void)state;
    open_session(0, "box1");
    for (int i = 0; i < 3; i++)
        add_rank(1, i, "box1", i + 1, 1, i);
    struct log_stream *x = open_logs(false, false);
    logs_push(&service);
    reads[0] = x->reads, reads[1] = reads[0]->next, reads[2] = reads[1]->next;
    chunk_comes(reads[0], &sessions[0], "abc", dates[0], true);
    chunk_comes(reads[1], &sessions[0], "def", dates[1], false);
    logs_push(&service);
    assert_int_equal(passed.len, 0); /* what rank 2 wrote may be older */
    chunk_comes(reads[2], &sessions[0], "ghi", dates[2], true);
    logs_push(&service);
    assert_string_equal(passed.data,
                        "2 g, 0 a, 1 d, 2 h, 0 b, 1 e, 0 c, 1 f, "); /* rank 1 may write more before 70 */
    chunk_comes(reads[1], &sessions[0], "", NULL, true);
    logs_push(&service);
    assert_string_equal(strrchr(passed.data, '2'), "2 i, end");
}

/* The names of the ranks whose logs are read, in the order of the reads. */
static void expect_ranks(const struct log_stream *x, const char *wanted)
{
    CLEANUP(buf_release) struct buf text = {0};
    for (const struct log_read *r = x->reads; r; r = r->next)
        buf_printf(&text, "%d%s%d on %s, ", r->rank, r->standard_error ? "e" : "o", (int)r->generation,
                   r->node);
    assert_string_equal(text.data, wanted);
}

static void a_spawn_that_outlives_its_generation_has_one_read(void **state)
{
    (void)state;
    open_session(0, "box1");
    open_session(1, "box2");
    add_rank(1, 0, "box1", 1, 1, 0);
    add_rank(1, 1, "box2", 2, 1, 0);
    struct log_stream *x = open_logs(true, true);
    logs_push(&service);
    add_rank(2, 0, "box2", 2, 1, 0); /* it survives */
    add_rank(2, 1, "box1", 3, 2, 0);
    job.generation = 2;
    logs_job_changed(&service, 0);
    logs_push(&service);
    expect_ranks(x, "0o1 on box1, 0e1 on box1, 0o2 on box2, 0e2 on box2, 1o2 on box1, 1e2 on box1, ");
    assert_int_equal(x->read_count, 6);
}

static void data_that_is_held_does_not_hide_the_end_of_a_session(void **state)
{
    (void)state;
    open_session(0, "box1");
    add_rank(1, 0, "box1", 1, 1, 0);
    struct log_stream *x = open_logs(true, false);
    logs_push(&service);
    client_is_slow = true;
    chunk_comes(x->reads, &sessions[0], "line\n", NULL, false);
    logs_push(&service);
    over = sessions[0].rpc;
    logs_node_changed(&service, "box1");
    logs_push(&service);
    open_session(1, "box1");
    logs_node_changed(&service, "box1");
    logs_push(&service);
    client_is_slow = false;
    asked = 0;
    logs_sendable((struct rpc_call *)&client);
    logs_push(&service);
    assert_int_equal(asked, 1);
    assert_int_equal(x->reads->session, sessions[1].handle);
}

/* One node has more logs than its agent serves at a time. */
#define NODE_LOGS (AGENT_READS + 60)

static void open_node_logs(bool follow, int64_t size)
{
    open_session(0, "box1");
    for (int i = 0; i < NODE_LOGS; i++)
        add_rank(1, i, "box1", i + 1, 1, i);
    file_size = size;
    open_logs(follow, false);
    agent_answers(follow);
    assert_false(agent_overloaded);
    assert_false(client_disorder);
}

static void expect_all_logs(int64_t size)
{
    open_node_logs(false, size);
    assert_true(client_ended);
    assert_int_equal(client_notes, 0);
    assert_false(client_incomplete);
    assert_int_equal(client_bytes, NODE_LOGS * size);
}

static void a_read_that_has_ended_leaves_its_place_to_another(void **state)
{
    (void)state;
    expect_all_logs(5);
}

static void reads_of_long_logs_take_turns_at_a_node(void **state)
{
    (void)state;
    expect_all_logs(120000); /* three pieces */
}

static void followers_of_too_many_logs_are_told(void **state)
{
    (void)state;
    open_node_logs(true, 5);
    assert_int_equal(served_count, AGENT_READS);
    assert_int_equal(client_notes, NODE_LOGS - AGENT_READS);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, logs_setup, logs_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(thousands_of_logs_take_few_looks),
        TEST(data_is_passed_in_the_order_of_its_dates),
        TEST(a_spawn_that_outlives_its_generation_has_one_read),
        TEST(data_that_is_held_does_not_hide_the_end_of_a_session),
        TEST(a_read_that_has_ended_leaves_its_place_to_another),
        TEST(reads_of_long_logs_take_turns_at_a_node),
        TEST(followers_of_too_many_logs_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
