#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "client/diagnose/diagnosis.h"
#include "client/diagnose/worker_probe.h"
#include "client/screen/screen_why.h"
#include "tests/unit/client/golden.h"

/* Tests which sentence ddpctl why derives from the probes of a job. Each row of the table is one pattern. */

#define TEXT(s) ((char *)(uintptr_t)(s))
#define RANKS 4
#define NEVER (-1)

struct rank_row {
    const char *state; /* of its process; NULL: it was not probed */
    const char *in, *on;
    int64_t idle, quiet, report; /* milliseconds; `report` is NEVER if no report came */
    bool ended;
    int code, signal;
    bool oom, lost;
    int64_t ended_ms;
    const char *message;
    double step_ms, wait_ms;
    int64_t samples; /* balance: speed */
    double sample_ms;
};

struct pattern {
    const char *name, *job_state, *reason;
    struct rank_row ranks[RANKS];
    int failed; /* the failed rank plus 1; 0 if none failed */
    enum diagnosis_kind kind;
    int rank; /* -1: none */
    const char *sentence;
    const char *sync; /* of a train job; NULL: a command */
    double exposed;   /* metric of the job */
};

#define TRAIN_JOB                                                                                                    \
    "train:\n  model: {type: linear, in: 20, out: 1}\n  data: {type: synthetic}\n  global_batch: 8\n  steps: 5000\n" \
    "  sync: "
#define STEPS(step, wait)                                                                                    \
    {                                                                                                        \
        "R", "", "", 0, 100, 100, .step_ms = (step), .wait_ms = (wait)                                       \
    }

#define WORKS(q)                                                                                             \
    {                                                                                                        \
        "R", "", "", 0, q, NEVER                                                                             \
    }
#define FUTEX                                                                                                \
    {                                                                                                        \
        "S", "futex", "", 12000, 12000, NEVER                                                                \
    }
#define SOCKET                                                                                               \
    {                                                                                                        \
        "S", "recv", "socket", 12000, 12000, NEVER                                                           \
    }
#define SPINS                                                                                                \
    {                                                                                                        \
        "R", "", "", 0, 12000, NEVER                                                                         \
    }
#define DONE(ms)                                                                                             \
    {                                                                                                        \
        NULL, "", "", NEVER, NEVER, NEVER, .ended = true, .ended_ms = (ms)                                   \
    }
#define FAILED(c, s, ms)                                                                                     \
    {                                                                                                        \
        NULL, "", "", NEVER, NEVER, NEVER, .ended = true, .code = (c), .signal = (s), .ended_ms = (ms)       \
    }

static const struct pattern patterns[] = {
    {"all is well",
     "running",
     "",
     {WORKS(300), WORKS(200), WORKS(900)},
     0,
     DIAGNOSIS_RUNNING,
     -1,
     "it runs, the last output or report was 0.2 s ago"},
    {"a collective between two lines is no standstill",
     "running",
     "",
     {FUTEX, {"S", "futex", "", 12000, 400, NEVER}},
     0,
     DIAGNOSIS_RUNNING,
     -1,
     "it runs, the last output or report was 0.4 s ago"},
    {"reports count as words",
     "running",
     "",
     {{"S", "futex", "", 9000, 12000, 700}, FUTEX},
     0,
     DIAGNOSIS_RUNNING,
     -1,
     "it runs, the last output or report was 0.7 s ago"},
    {"stopped, its peers in a socket",
     "running",
     "",
     {SOCKET, {"T", "recv", "socket", 12000, 12000, NEVER}, SOCKET},
     0,
     DIAGNOSIS_STOPPED,
     1,
     "rank 1 on n2 (pid 4101, python3) is stopped by a signal (such as SIGSTOP), without CPU time for 12 s; "
     "ranks 0 and 2 wait "
     "for it"},
    {"stopped, its peers spinning",
     "running",
     "",
     {SPINS, SPINS, {"T", "", "", 12000, 12000, NEVER}, SPINS},
     0,
     DIAGNOSIS_STOPPED,
     2,
     "rank 2 on n1 (pid 4102, python3) is stopped by a signal (such as SIGSTOP), without CPU time for 12 s; "
     "ranks 0, 1 and 3 "
     "wait for it"},
    {"stopped a moment ago, before anybody is silent",
     "running",
     "",
     {WORKS(100), {"T", "", "", 200, 200, NEVER}},
     0,
     DIAGNOSIS_STOPPED,
     1,
     "rank 1 on n2 (pid 4101, python3) is stopped by a signal (such as SIGSTOP); rank 0 waits for it"},
    {"in a debugger",
     "running",
     "",
     {{"t", "", "", 5000, 5000, NEVER}, FUTEX},
     0,
     DIAGNOSIS_STOPPED,
     0,
     "rank 0 on n1 (pid 4100, python3) is held by a debugger, without CPU time for 5.0 s; rank 1 waits for "
     "it"},
    {"a dead disk",
     "running",
     "",
     {FUTEX, FUTEX, {"D", "read", "/data/train.bin", 61000, 61000, NEVER}},
     0,
     DIAGNOSIS_KERNEL,
     2,
     "rank 2 on n1 (pid 4102, python3) has been stuck in the kernel for 1m01s, in read of /data/train.bin; ranks 0 "
     "and 1 wait "
     "for it"},
    {"a moment in the kernel",
     "running",
     "",
     {WORKS(100), {"D", "read", "/data", 100, 100, NEVER}},
     0,
     DIAGNOSIS_RUNNING,
     -1,
     "it runs, the last output or report was 0.1 s ago"},
    {"one asleep, the others spin",
     "running",
     "",
     {SPINS, FUTEX, SPINS, SPINS},
     0,
     DIAGNOSIS_ASLEEP,
     1,
     "rank 1 on n2 (pid 4101, python3) fell asleep first: no CPU time for 12 s, in futex; ranks 0, 2 and 3 "
     "wait for it"},
    {"one sleeps on purpose, the others in a socket",
     "running",
     "",
     {SOCKET, SOCKET, {"S", "nanosleep", "", 12500, 12500, NEVER}},
     0,
     DIAGNOSIS_ASLEEP,
     2,
     "rank 2 on n1 (pid 4102, python3) fell asleep first: no CPU time for 13 s, in nanosleep; ranks 0 and "
     "1 wait for it"},
    {"one waits for a pipe, as a dead loader's",
     "running",
     "",
     {{"S", "read", "pipe", 12000, 12000, NEVER}, FUTEX, FUTEX},
     0,
     DIAGNOSIS_ASLEEP,
     0,
     "rank 0 on n1 (pid 4100, python3) fell asleep first: no CPU time for 12 s, in read of a pipe; ranks 1 "
     "and 2 wait "
     "for it"},
    {"alike, but one long before",
     "running",
     "",
     {FUTEX, {"S", "futex", "", 60000, 60000, NEVER}, FUTEX},
     0,
     DIAGNOSIS_ASLEEP,
     1,
     "rank 1 on n2 (pid 4101, python3) fell asleep first: no CPU time for 1m00s, in futex; ranks 0 and 2 "
     "wait for it"},
    {"all alike",
     "running",
     "",
     {FUTEX, FUTEX, FUTEX},
     0,
     DIAGNOSIS_WAITING,
     -1,
     "all 3 ranks have slept for 12 s and none stands out: they wait for each other, or for something "
     "outside the job"},
    {"one rank alone",
     "running",
     "",
     {{"S", "read", "socket", 12000, 12000, NEVER}},
     0,
     DIAGNOSIS_ASLEEP,
     0,
     "rank 0 on n1 (pid 4100, python3) is asleep: no CPU time for 12 s, in read of a socket"},
    {"all compute and say nothing",
     "running",
     "",
     {SPINS, SPINS},
     0,
     DIAGNOSIS_SILENT,
     -1,
     "all ranks use CPU time, but none has written or reported anything for 12 s: a long step, or all spin in a collective"},
    {"one left, its peers wait",
     "running",
     "",
     {FUTEX, DONE(5000), FUTEX},
     0,
     DIAGNOSIS_LEFT_EARLY,
     1,
     "rank 1 on n2 (pid 4101) has exited with code 0; ranks 0 and 2 still run and wait for it"},
    {"one is done before the others",
     "running",
     "",
     {WORKS(100), DONE(5000)},
     0,
     DIAGNOSIS_LEFT_EARLY,
     1,
     "rank 1 on n2 (pid 4101) has exited with code 0; rank 0 still runs"},
    {"a stopped one before one that left",
     "running",
     "",
     {DONE(1), {"T", "", "", 3000, 3000, NEVER}},
     0,
     DIAGNOSIS_STOPPED,
     1,
     "rank 1 on n2 (pid 4101, python3) is stopped by a signal (such as SIGSTOP), without CPU time for 3.0 s"},
    {"one computes longer",
     "running",
     "",
     {{"R", "", "", 0, 100, 100, .step_ms = 50, .wait_ms = 10},
      {"R", "", "", 0, 100, 100, .step_ms = 50, .wait_ms = 1}},
     0,
     DIAGNOSIS_SLOW,
     1,
     "it runs, the last output or report was 0.1 s ago, held up by rank 1 on n2 (pid 4101, python3): it computes 49.0 "
     "ms a step, the "
     "others 40.0 ms"},
    {"all wait for the link, also the slowest",
     "running",
     "",
     {STEPS(1000, 700), STEPS(1000, 690)},
     0,
     DIAGNOSIS_LINK,
     -1,
     "it runs, the last output or report was 0.1 s ago; 69 % of each step waits for the link (95 Mbit/s): sync diloco "
     "every 8, wire int8 would run 3.0 times as fast",
     "{type: allreduce}",
     0.7},
    {"asleep, because the link takes long",
     "running",
     "",
     {{"S", "poll", "socket", 12000, 12000, 12000, .step_ms = 4000, .wait_ms = 3800},
      {"S", "poll", "socket", 12000, 12000, 12000, .step_ms = 4000, .wait_ms = 3800}},
     0,
     DIAGNOSIS_LINK,
     -1,
     "it runs, the last output or report was 12 s ago; 95 % of each step waits for the link (17 Mbit/s): sync diloco every "
     "32, wire int4 would run 19 times as fast",
     "{type: allreduce}",
     0.95},
    {"the job allows no other strategy",
     "running",
     "",
     {STEPS(1000, 700), STEPS(1000, 690)},
     0,
     DIAGNOSIS_LINK,
     -1,
     "it runs, the last output or report was 0.1 s ago; 69 % of each step waits for the link (95 Mbit/s)",
     "{type: allreduce}\n  reproducible: world\n  shards: 4",
     0.7},
    {"the wait is for a slow rank, not for the link",
     "running",
     "",
     {STEPS(1000, 700), STEPS(1000, 5)},
     0,
     DIAGNOSIS_SLOW,
     1,
     "it runs, the last output or report was 0.1 s ago, held up by rank 1 on n2 (pid 4101, python3): it computes 995.0 "
     "ms a step, the others 300.0 ms",
     "{type: allreduce}",
     0.7},
    {"ranks of different speeds have different portions",
     "running",
     "",
     {{"R", "", "", 0, 100, 100, .samples = 24, .sample_ms = 1.0},
      {"R", "", "", 0, 100, 100, .samples = 8, .sample_ms = 3.1}},
     0,
     DIAGNOSIS_RUNNING,
     -1,
     "it runs, the last output or report was 0.1 s ago; balance: n1 24, n2 8 samples of 32: n2 takes 3.1 times as long",
     "{type: allreduce}\n  balance: speed"},
    {"a rank has not reported its portion yet",
     "running",
     "",
     {{"R", "", "", 0, 100, 100, .samples = 24}, {"R", "", "", 0, 100, 100}},
     0,
     DIAGNOSIS_RUNNING,
     -1,
     "it runs, the last output or report was 0.1 s ago",
     "{type: allreduce}\n  balance: speed"},
    {"backward hides the wait",
     "running",
     "",
     {STEPS(1000, 700), STEPS(1000, 690)},
     0,
     DIAGNOSIS_RUNNING,
     -1,
     "it runs, the last output or report was 0.1 s ago",
     "{type: allreduce}",
     0.05},
    {"rounds wait for the link already",
     "running",
     "",
     {STEPS(1000, 700), STEPS(1000, 690)},
     0,
     DIAGNOSIS_RUNNING,
     -1,
     "it runs, the last output or report was 0.1 s ago",
     "{type: diloco}",
     0.7},
    {"nobody could look",
     "running",
     "",
     {{NULL, "", "", NEVER, NEVER, NEVER}},
     0,
     DIAGNOSIS_UNSEEN,
     -1,
     "no node has answered, so the state of its processes is unknown"},
    {"not all are here",
     "starting",
     "",
     {WORKS(100), {"S", "connect", "socket", 100, 100, NEVER}},
     0,
     DIAGNOSIS_STARTING,
     0,
     "it is starting, 2 of 2 ranks have not joined yet: rank 0 on n1 (pid 4100, python3) has not joined"},
    {"in the queue",
     "queued",
     "waits for 4 GPUs on box2",
     {{0}},
     0,
     DIAGNOSIS_QUEUED,
     -1,
     "it waits for 4 GPUs on box2"},
    {"a signal, then the others",
     "failed",
     "",
     {FAILED(1, 0, 5200), FAILED(0, 9, 5000), FAILED(0, 15, 5300)},
     2,
     DIAGNOSIS_FAILED,
     1,
     "rank 1 on n2 was killed by signal 9 (SIGKILL)"},
    {"out of memory",
     "failed",
     "",
     {{NULL, "", "", NEVER, NEVER, NEVER, .ended = true, .signal = 9, .oom = true, .ended_ms = 5000},
      FAILED(1, 0, 5100)},
     1,
     DIAGNOSIS_FAILED,
     0,
     "rank 0 on n1 ran out of memory, the kernel killed it"},
    {"its supervisor is gone, too",
     "failed",
     "",
     {{NULL, "", "", NEVER, NEVER, NEVER, .ended = true, .lost = true, .ended_ms = 5000}},
     1,
     DIAGNOSIS_FAILED,
     0,
     "rank 0 on n1 was lost with its supervisor, perhaps because the machine restarted: exit status unknown"},
    {"what its error file says",
     "failed",
     "",
     {{NULL, "", "", NEVER, NEVER, NEVER, .ended = true, .code = 1, .ended_ms = 5000,
       .message = "ValueError: bad shape"}},
     1,
     DIAGNOSIS_FAILED,
     0,
     "rank 0 on n1 exited with code 1: ValueError: bad shape"},
    {"a rank failed because its peer had left",
     "failed",
     "",
     {DONE(2000), FAILED(1, 0, 5000)},
     2,
     DIAGNOSIS_FAILED,
     1,
     "rank 1 on n2 exited with code 1, after rank 0 on n1 had exited with code 0, 3.0 s earlier"},
    {"ended because it stood still",
     "failed",
     "",
     {{NULL, "", "", NEVER, NEVER, NEVER, .ended = true, .signal = 15, .ended_ms = 5000,
       .message = "rank 0 on n1 (pid 4100) makes no progress"}},
     1,
     DIAGNOSIS_FAILED,
     0,
     "rank 0 on n1 (pid 4100) makes no progress"},
    {"no rank's fault",
     "failed",
     "time limit of 60 s",
     {FAILED(0, 15, 1)},
     0,
     DIAGNOSIS_FAILED,
     -1,
     "time limit of 60 s"},
    {"begins anew",
     "recovering",
     "",
     {FAILED(7, 0, 5000)},
     1,
     DIAGNOSIS_RESTARTING,
     0,
     "it is restarting: rank 0 on n1 exited with code 7"},
    {"by the user's wish",
     "cancelled",
     "by the user",
     {DONE(1)},
     0,
     DIAGNOSIS_ENDED,
     -1,
     "it was cancelled: by the user"},
};

struct fixture {
    Ddp__V1__JobStatus job;
    Ddp__V1__Progress progress;
    Ddp__V1__Metric metrics[2], *metric_list[2];
    char job_file[512];
    Ddp__V1__Failure failure;
    Ddp__V1__ProbeJobReply reply;
    Ddp__V1__WorkerProbe workers[RANKS], *worker_list[RANKS];
    Ddp__V1__ProcessProbe processes[RANKS], *process_list[RANKS];
    Ddp__V1__RankStatus ranks[RANKS], *rank_list[RANKS];
};

static void add_rank(struct fixture *f, int i, const struct rank_row *row)
{
    Ddp__V1__WorkerProbe *w = f->worker_list[i] = &f->workers[i];
    Ddp__V1__ProcessProbe *p = f->process_list[i] = &f->processes[i];
    ddp__v1__worker_probe__init(w);
    w->rank = i;
    w->node = TEXT(i % 2 ? "n2" : "n1");
    w->pid = 4100 + i;
    w->state = TEXT(row->ended ? "exited" : "spawned");
    w->ended = w->exit_known = row->ended;
    w->code = row->code;
    w->signal = row->signal;
    w->out_of_memory = row->oom;
    w->lost = row->lost;
    w->ended_ms = row->ended_ms;
    w->message = TEXT(row->message ? row->message : "");
    w->probed = row->state != NULL;
    w->idle_ms = row->idle;
    w->output_age_ms = row->quiet;
    w->report_age_ms = row->report;
    w->ms_per_step = row->step_ms;
    w->wait_ms = row->wait_ms;
    f->reply.n_workers++;
    f->rank_list[i] = &f->ranks[i];
    ddp__v1__rank_status__init(&f->ranks[i]);
    f->ranks[i].rank = i;
    f->ranks[i].node = w->node;
    f->ranks[i].samples = row->samples;
    f->ranks[i].sample_ms = row->sample_ms;
    f->job.ranks = f->rank_list;
    f->job.n_ranks++;
    if (!row->state)
        return;
    ddp__v1__process_probe__init(p);
    p->pid = w->pid;
    p->name = TEXT("python3");
    p->state = TEXT(row->state);
    p->waits_in = TEXT(row->in);
    p->waits_for = TEXT(row->on);
    w->n_processes = 1;
    w->processes = &f->process_list[i];
}

static void add_train_job(struct fixture *f, const struct pattern *p)
{
    static const char *const names[] = {"exposed", "gradient_bytes"};
    const double values[] = {p->exposed, 8.2e6};
    ddp__v1__progress__init(&f->progress);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        ddp__v1__metric__init(&f->metrics[i]);
        f->metrics[i].name = TEXT(names[i]);
        f->metrics[i].value = values[i];
        f->metric_list[i] = &f->metrics[i];
    }
    f->progress.metrics = f->metric_list;
    f->progress.n_metrics = ARRAY_LEN(names);
    f->job.progress = &f->progress;
    snprintf(f->job_file, sizeof(f->job_file), TRAIN_JOB "%s\n", p->sync);
    f->job.job_file = f->job_file;
}

static void build_status(struct fixture *f, const struct pattern *p)
{
    *f = (struct fixture){0};
    ddp__v1__job_status__init(&f->job);
    ddp__v1__probe_job_reply__init(&f->reply);
    f->job.job = 7;
    f->job.name = TEXT("gpt");
    f->job.state = TEXT(p->job_state);
    f->job.reason = TEXT(p->reason);
    f->reply.job = &f->job;
    f->reply.generation = 1;
    f->reply.workers = f->worker_list;
    for (int i = 0; i < RANKS && p->ranks[i].in; i++)
        add_rank(f, i, &p->ranks[i]);
    if (p->sync)
        add_train_job(f, p);
    if (!p->failed)
        return;
    ddp__v1__failure__init(&f->failure);
    f->failure.rank = p->failed - 1;
    f->failure.node = f->workers[p->failed - 1].node;
    f->failure.generation = 1;
    f->job.failure = &f->failure;
}

static void test_patterns(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(patterns); i++) {
        const struct pattern *p = &patterns[i];
        CLEANUP(diagnosis_release) struct diagnosis v = {0};
        struct fixture f;
        build_status(&f, p);
        diagnosis_find(&f.reply, &v);
        if (v.kind != p->kind || (v.rank ? v.rank->rank : -1) != p->rank ||
            strcmp(v.sentence.data, p->sentence) != 0)
            fail_msg("%s: %s, rank %d: %s", p->name, diagnosis_name(v.kind), v.rank ? v.rank->rank : -1,
                     v.sentence.data);
    }
}

static void test_why_explains_a_refused_restart(void **state)
{
    static const struct pattern refused = {.name = "an error",
                                           .job_state = "recovering",
                                           .reason = "",
                                           .ranks = {FAILED(1, 0, 5000)},
                                           .failed = 1};
    CLEANUP(diagnosis_release) struct diagnosis v = {0};
    struct fixture f;
    (void)state;
    build_status(&f, &refused);
    f.job.not_restarted = TEXT("not restarted, because the program itself failed");
    diagnosis_find(&f.reply, &v);
    assert_string_equal(v.sentence.data, "the job is ending: rank 0 on n1 exited with code 1");
    assert_non_null(strstr(v.details.data, "not restarted, because the program itself failed\n"));
}

/* sh waits for python3, which does the work. If a data loader is stopped, that one is named. */
static void test_process_that_does_the_work(void **state)
{
    (void)state;
    Ddp__V1__WorkerProbe w = DDP__V1__WORKER_PROBE__INIT;
    Ddp__V1__ProcessProbe p[3], *list[3] = {&p[0], &p[1], &p[2]};
    static const char *const names[] = {"sh", "python3", "python3"}, *const in[] = {"wait", "futex", "read"};
    for (size_t i = 0; i < 3; i++) {
        ddp__v1__process_probe__init(&p[i]);
        p[i].pid = 10 + (int64_t)i;
        p[i].parent = 9 + (int64_t)i;
        p[i].state = TEXT("S");
        p[i].name = TEXT(names[i]);
        p[i].waits_in = TEXT(in[i]);
    }
    w.processes = list;
    w.n_processes = 3;
    assert_int_equal(worker_probe_process(&w)->pid, 11);
    p[2].state = TEXT("T");
    assert_int_equal(worker_probe_process(&w)->pid, 12);
    w.n_processes = 0;
    assert_null(worker_probe_process(&w));
}

static void test_a_slow_rank_could_take_fewer_samples(void **state)
{
    static const struct {
        const char *sync;
        bool advised;
    } rows[] = {{"{type: allreduce}", true},
                {"{type: allreduce}\n  balance: speed", false},
                {"{type: allreduce}\n  reproducible: world\n  shards: 4", false},
                {"{type: average, every: 4}", false}};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const struct pattern slow = {.job_state = "running",
                                     .reason = "",
                                     .ranks = {STEPS(1000, 700), STEPS(1000, 5)},
                                     .sync = rows[i].sync,
                                     .exposed = 0.7};
        CLEANUP(diagnosis_release) struct diagnosis v = {0};
        struct fixture f;
        build_status(&f, &slow);
        diagnosis_find(&f.reply, &v);
        assert_int_equal(v.kind, DIAGNOSIS_SLOW);
        assert_int_equal(v.next.len && strstr(v.next.data, "balance: speed "), rows[i].advised);
    }
}

static void test_why_names_missing_ranks(void **state)
{
    static const struct pattern runs = {
        .job_state = "running", .reason = "", .ranks = {WORKS(100), WORKS(100)}};
    (void)state;
    for (int wanted = 2; wanted <= 3; wanted++) {
        CLEANUP(diagnosis_release) struct diagnosis v = {0};
        struct fixture f;
        build_status(&f, &runs);
        f.job.ranks_present = 2;
        f.job.ranks_wanted = wanted;
        f.job.missing = TEXT("rank 2 on n3 is late (2 rounds, 1m05s)");
        diagnosis_find(&f.reply, &v);
        assert_int_equal(v.kind, DIAGNOSIS_RUNNING);
        const char *line = "2 of 3 ranks: rank 2 on n3 is late (2 rounds, 1m05s)\n";
        assert_int_equal(v.details.len && strstr(v.details.data, line), wanted == 3);
    }
}

static const struct pattern *pattern_named(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(patterns); i++)
        if (strcmp(patterns[i].name, name) == 0)
            return &patterns[i];
    fail_msg("no pattern '%s'", name);
    return NULL;
}

static void test_screens(void **state)
{
    static const char *const shown[][2] = {{"stopped, its peers in a socket", "why-stopped"},
                                           {"a dead disk", "why-kernel"},
                                           {"a signal, then the others", "why-failed"},
                                           {"in the queue", "why-queued"},
                                           {"all wait for the link, also the slowest", "why-link"}};
    static char *stack[] = {TEXT("folio_wait_bit_common"), TEXT("filemap_read")},
                *tail[] = {TEXT("Traceback:"), TEXT("Killed\033[2J")};
    const struct term terminal = {.live = true, .colour = true, .columns = 120}, plain = {0};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(shown); i++) {
        CLEANUP(diagnosis_release) struct diagnosis v = {0};
        CLEANUP(buf_release) struct buf out = {0};
        struct fixture f;
        build_status(&f, pattern_named(shown[i][0]));
        f.processes[2].stack = stack;
        f.processes[2].n_stack = ARRAY_LEN(stack);
        f.workers[1].stderr_tail = tail;
        f.workers[1].n_stderr_tail = ARRAY_LEN(tail);
        diagnosis_find(&f.reply, &v);
        screen_why(&f.reply, &v, &plain, &out);
        CLEANUP(free_text) char *plain_name = xasprintf("%s.pipe", shown[i][1]);
        golden_check(plain_name, &out);
        screen_why(&f.reply, &v, &terminal, &out);
        CLEANUP(free_text) char *term_name = xasprintf("%s.term", shown[i][1]);
        golden_check(term_name, &out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_patterns),
                                       cmocka_unit_test(test_why_explains_a_refused_restart),
                                       cmocka_unit_test(test_process_that_does_the_work),
                                       cmocka_unit_test(test_a_slow_rank_could_take_fewer_samples),
                                       cmocka_unit_test(test_why_names_missing_ranks),
                                       cmocka_unit_test(test_screens)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
