#include "store_test.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"

char *make_dir(void)
{
    const char *base = getenv("TMPDIR");
    char *dir = xasprintf("%s/ddp-store-XXXXXX", base ? base : "/tmp");
    assert_non_null(mkdtemp(dir));
    return dir;
}

void remove_dir(char *dir)
{
    struct err e = {0};
    assert_int_equal(file_remove_tree(dir, &e), ERR_OK);
    free(dir);
}

struct job_record sample_job(int64_t id)
{
    static char *env[] = {T("FOO=bar"), T("EMPTY="), T("LATIN=\xe9t\xe9"), NULL};
    return (struct job_record){
        .id = id,
        .request_id = T("request"),
        .name = T("kjv"),
        .user = T("ana"),
        .job_file = T("nodes: 2\n"),
        .env = env,
        .state = JOB_QUEUED,
        .reason = NULL,
        .created_ms = 1000,
        .next_spawn = 1,
        .stop_signal = 2,
        .body_digest = {1, 2, 3},
    };
}

struct job_record numbered_job(int64_t id, char request_id[32])
{
    struct job_record job = sample_job(id);
    snprintf(request_id, 32, "r-%lld", (long long)id);
    job.request_id = request_id;
    return job;
}

struct generation_record sample_generation(int64_t job, int64_t number)
{
    static uint8_t bootstrap[] = {0, 1, 0, 255};
    return (struct generation_record){
        .job = job,
        .number = number,
        .state = GENERATION_FORMING,
        .world_size = 4,
        .node_count = 2,
        .master_port = 29700,
        .master_addr = T("10.0.0.1"),
        .bootstrap = bootstrap,
        .bootstrap_size = sizeof bootstrap,
        .key = {9, 8, 7},
        .has_key = true,
        .source_rank = -1,
        .source_digest = T("d"),
        .created_ms = 5,
        .error = true,
        .has_step = true,
        .last_step = 1200,
    };
}

struct rank_record sample_rank(int64_t job, int64_t generation, int rank)
{
    static uint8_t address[] = {0, 'x', 0};
    return (struct rank_record){
        .job = job,
        .generation = generation,
        .rank = rank,
        .node_rank = rank / 2,
        .local_rank = rank % 2,
        .node = T("box1"),
        .spawn = rank + 1,
        .state = RANK_ASSIGNED,
        .address = address,
        .address_size = sizeof address,
    };
}

struct spawn_record sample_spawn(int64_t job, int64_t spawn)
{
    static char *gpus[] = {T("GPU-aaaa"), T("GPU-bbbb"), NULL};
    return (struct spawn_record){
        .job = job,
        .spawn = spawn,
        .first_generation = 1,
        .first_local_rank = 1,
        .node = T("box1"),
        .cpu_slot = 2,
        .gpu_uuids = gpus,
        .token = {1, 1},
        .token_hash = {2, 2},
        .code = 3,
        .signal = 9,
        .message = T("killed"),
        .stderr_tail = T("line 1\nline 2"),
        .pid = 4711,
        .started_ms = 1,
        .ended_ms = 2,
        .last_commit = 6,
    };
}

struct event_record sample_event(int64_t job, const char *text)
{
    return (struct event_record){
        .time_ms = 7, .job = job, .generation = 1, .what = T("job_moved"), .text = T(text)};
}

struct store *must_open(const char *dir)
{
    struct err e = {0};
    struct store *s = NULL;
    if (store_open(&s, dir, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    return s;
}

void must_commit(struct store *s, const struct change *changes, size_t count)
{
    struct err e = {0};
    if (store_commit(s, changes, count, &e) != ERR_OK)
        fail_msg("%s", e.msg);
}

void insert_job(struct store *s, int64_t id)
{
    char request[32];
    struct job_record job = numbered_job(id, request);
    struct change c = {.kind = CHANGE_JOB_INSERT, .job = &job};
    must_commit(s, &c, 1);
}
