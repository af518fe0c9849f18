#include "tests/unit/base/check.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uv.h>

#include "base/clock.h"
#include "base/mem.h"
#include "daemon/agent/observe/process.h"
#include "daemon/agent/observe/worker_monitor.h"
#include "daemon/agent/observe/worker_samples.h"

/* The monitor runs on a loop of its own and watches child processes. The fixture records what it sends. */
struct fixture {
    uv_loop_t loop;
    struct worker_monitor *monitor;
    bool full;
    int activities, answers;
    size_t quiet;    /* workers in the newest Activity */
    int64_t idle_ms; /* of the first worker in the newest Activity */
    int cpu_permille;
    char state[4], waits_in[64], stack[SAMPLE_STACK_TEXT];
    int64_t probe; /* from here on: of the newest answer to a probe */
    size_t workers;
    bool probed;
    char process_state[4];
    int64_t report_age;
    int usages;
    double cpu, memory, watts;
};

static enum err_code take_message(void *ctx, const Ddp__V1__AgentUp *up, struct err *e)
{
    struct fixture *f = ctx;

    if (f->full)
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "full");
    if (up->body_case == DDP__V1__AGENT_UP__BODY_ACTIVITY) {
        f->activities++;
        f->quiet = up->activity->n_spawns;
        f->idle_ms = f->quiet ? up->activity->spawns[0]->idle_ms : -1;
        f->cpu_permille = f->quiet ? up->activity->spawns[0]->cpu_permille : 0;
        strcpy(f->state, f->quiet ? up->activity->spawns[0]->state : "");
        strcpy(f->waits_in, f->quiet ? up->activity->spawns[0]->waits_in : "");
        strcpy(f->stack, f->quiet ? up->activity->spawns[0]->stack : "");
        return ERR_OK;
    }
    if (up->body_case == DDP__V1__AGENT_UP__BODY_USAGE) {
        f->usages++;
        f->cpu = up->usage->spawns[0]->usage->cpu;
        f->memory = up->usage->spawns[0]->usage->memory_bytes;
        f->watts = up->usage->spawns[0]->usage->gpu_watts;
        return ERR_OK;
    }
    assert_int_equal(up->body_case, DDP__V1__AGENT_UP__BODY_PROBE_ANSWER);
    f->answers++;
    f->probe = up->probe_answer->probe;
    f->workers = up->probe_answer->n_workers;
    if (f->workers) {
        const Ddp__V1__WorkerProbe *w = up->probe_answer->workers[0];
        f->probed = w->probed;
        f->report_age = w->report_age_ms;
        strcpy(f->process_state, w->n_processes ? w->processes[0]->state : "");
    }
    return ERR_OK;
}

static void add_gpus(void *ctx, int64_t job, int64_t spawn, struct usage *out)
{
    (void)ctx;
    if (job == 7 && spawn == 3)
        usage_add_gpu(out, 0.5, 1 << 20, 300, 50);
}

static int fixture_open(void **state)
{
    struct fixture *f = xcalloc(1, sizeof(*f));
    struct worker_monitor_options options = {.log_dir = "/nonexistent",
                                             .node = "box1",
                                             .send = take_message,
                                             .ctx = f,
                                             .add_gpus = add_gpus,
                                             .usage_ms = 1000};

    assert_int_equal(uv_loop_init(&f->loop), 0);
    f->monitor = worker_monitor_create(&f->loop, &options);
    *state = f;
    return 0;
}

static int fixture_close(void **state)
{
    struct fixture *f = *state;

    worker_monitor_close(f->monitor);
    uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&f->loop), 0);
    free(f);
    return 0;
}

static void on_tick(uv_timer_t *timer)
{
    (void)timer;
}

/* Runs the loop until `done` is true; fails the test after a deadline. */
static void run_loop_until(struct fixture *f, bool (*done)(const struct fixture *f))
{
    int64_t end = clock_boot_ms() + 20000 * test_slow();
    uv_timer_t tick;

    uv_timer_init(&f->loop, &tick);
    uv_timer_start(&tick, on_tick, 10, 10);
    while (!done(f) && clock_boot_ms() < end)
        uv_run(&f->loop, UV_RUN_ONCE);
    uv_close((uv_handle_t *)&tick, NULL);
    uv_run(&f->loop, UV_RUN_NOWAIT);
    assert_true(done(f));
}

static bool process_sleeps(pid_t pid)
{
    struct process p;

    return process_read(pid, &p) && p.state == 'S';
}

/* Starts a child, and returns once it sleeps. */
static pid_t sleeper_start(void)
{
    pid_t parent = getpid(), pid = fork();

    if (pid) {
        int64_t end_ms = clock_boot_ms() + 30000;
        while (!process_sleeps(pid)) {
            assert_true(clock_boot_ms() < end_ms);
            sched_yield();
        }
        return pid;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (getppid() == parent)
        pause();
    _exit(0);
}

static void sleeper_end(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static bool says_quiet(const struct fixture *f)
{
    return f->quiet == 1;
}

static bool says_stopped(const struct fixture *f)
{
    return f->quiet == 1 && !strcmp(f->state, "T");
}

static bool says_in_kernel(const struct fixture *f)
{
    return f->quiet == 1 && !strcmp(f->state, "D");
}

static bool probe_answered(const struct fixture *f)
{
    return f->answers > 0;
}

static void an_idle_worker_is_reported_once_per_session(void **state)
{
    struct fixture *f = *state;
    pid_t pid = sleeper_start();
    struct monitored_worker who = {.job = 7, .spawn = 3, .first_generation = 1, .pid = pid};

    worker_monitor_set(f->monitor, &who, 1);
    run_loop_until(f, says_quiet);
    assert_true(f->idle_ms >= 1500);
    f->quiet = 0;
    worker_monitor_new_session(f->monitor);
    run_loop_until(f, says_quiet);
    kill(pid, SIGSTOP);
    run_loop_until(f, says_stopped);
    sleeper_end(pid);
}

/* A child of the worker waits for the child of a vfork, in state D. The agent reports the call in which the child
 * waits, and its stack if this account may read it, not the call of the worker itself. */
static void a_worker_in_the_kernel_is_reported_with_its_place(void **state)
{
    struct fixture *f = *state;
    pid_t parent = getpid(), pid = fork();
    struct monitored_worker who = {.job = 7, .spawn = 3, .first_generation = 1, .pid = pid};

    if (!pid) {
        for (int depth = 0; depth < 2; depth++) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            pid_t me = getpid();
            if (getppid() != parent || syscall(SYS_clone, (depth ? CLONE_VFORK : 0) | SIGCHLD, 0, 0, 0, 0))
                break;
            parent = me;
        }
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        while (getppid() == parent)
            pause();
        _exit(0);
    }
    worker_monitor_set(f->monitor, &who, 1);
    run_loop_until(f, says_in_kernel);
    assert_string_equal(f->waits_in, "clone");
    if (*f->stack)
        assert_non_null(strstr(f->stack, "clone"));
    sleeper_end(pid);
}

static void activity_that_could_not_be_sent_is_sent_later(void **state)
{
    struct fixture *f = *state;
    pid_t pid = sleeper_start();
    struct monitored_worker who = {.job = 7, .spawn = 3, .first_generation = 1, .pid = pid};
    Ddp__V1__Probe probe = DDP__V1__PROBE__INIT;

    f->full = true;
    probe.probe = 1;
    probe.job = 7;
    worker_monitor_set(f->monitor, &who, 1);
    worker_monitor_probe(f->monitor, &probe); /* the stream is full, so the answer is lost */
    int64_t end_ms = clock_boot_ms() + 2500;
    while (clock_boot_ms() < end_ms) /* long enough for an Activity to be sent, if the stream were not full */
        uv_run(&f->loop, UV_RUN_ONCE);
    assert_int_equal(f->activities, 0);
    f->full = false;
    run_loop_until(f, says_quiet);
    sleeper_end(pid);
}

static void a_probe_is_answered_with_the_workers_of_its_job(void **state)
{
    struct fixture *f = *state;
    pid_t pid = sleeper_start();
    struct monitored_worker who[] = {{.job = 7, .spawn = 3, .first_generation = 2, .pid = pid},
                                     {.job = 8, .spawn = 1, .first_generation = 1, .pid = pid}};
    Ddp__V1__Probe probe = DDP__V1__PROBE__INIT;

    worker_monitor_set(f->monitor, who, 2);
    worker_monitor_reported(f->monitor, 7, 3);
    probe.probe = 41;
    probe.job = 7;
    worker_monitor_probe(f->monitor, &probe);
    run_loop_until(f, probe_answered);
    assert_int_equal(f->probe, 41);
    assert_int_equal(f->workers, 1);
    assert_true(f->probed);
    assert_string_equal(f->process_state, "S");
    assert_true(f->report_age >= 0);
    f->answers = 0;
    probe.probe = 42;
    probe.job = 9; /* no worker of job 9 runs on this node */
    worker_monitor_probe(f->monitor, &probe);
    run_loop_until(f, probe_answered);
    assert_int_equal(f->probe, 42);
    assert_int_equal(f->workers, 0);
    sleeper_end(pid);
}

static bool says_usage(const struct fixture *f)
{
    return f->usages > 0 && f->cpu > 0.01;
}

/* The worker sleeps; its child computes. */
static void a_worker_is_measured_with_its_children(void **state)
{
    struct fixture *f = *state;
    pid_t parent = getpid(), pid = fork();
    struct monitored_worker who = {.job = 7, .spawn = 3, .first_generation = 1, .pid = pid};

    if (!pid) {
        pid_t worker = getpid();

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(0);
        if (!fork()) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            while (getppid() == worker)
                ;
            _exit(0);
        }
        while (getppid() == parent)
            pause();
        _exit(0);
    }
    worker_monitor_set(f->monitor, &who, 1);
    run_loop_until(f, says_usage);
    assert_true(f->memory > 4096 && f->watts == 300);
    sleeper_end(pid);
}

static bool says_computing(const struct fixture *f)
{
    return f->quiet == 1 && f->idle_ms < 0 && f->cpu_permille > 0;
}

static bool says_usage_often(const struct fixture *f)
{
    return f->usages >= 4;
}

/* Each reading sends the usage. What the worker does is sent once. */
static void a_silent_worker_that_computes_is_reported_once(void **state)
{
    struct fixture *f = *state;
    pid_t parent = getpid(), pid = fork();
    struct monitored_worker who = {
        .job = 7, .spawn = 3, .first_generation = 1, .pid = pid, .stall_timeout_ms = 1000};

    if (!pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        while (getppid() == parent)
            ;
        _exit(0);
    }
    worker_monitor_set(f->monitor, &who, 1);
    worker_monitor_reported(f->monitor, 7, 3);
    run_loop_until(f, says_computing);
    f->activities = f->usages = 0;
    run_loop_until(f, says_usage_often);
    assert_true(f->activities < 3); /* its share of a busy machine may change */
    sleeper_end(pid);
}

static void without_workers_a_probe_is_answered_at_once(void **state)
{
    struct fixture *f = *state;
    Ddp__V1__Probe probe = DDP__V1__PROBE__INIT;

    probe.probe = 5;
    worker_monitor_probe(f->monitor, &probe);
    assert_int_equal(f->answers, 1);
    assert_int_equal(f->workers, 0);
}

int main(void)
{
#define TEST(test) cmocka_unit_test_setup_teardown(test, fixture_open, fixture_close)
    const struct CMUnitTest tests[] = {
        TEST(an_idle_worker_is_reported_once_per_session),
        TEST(a_worker_in_the_kernel_is_reported_with_its_place),
        TEST(activity_that_could_not_be_sent_is_sent_later),
        TEST(a_probe_is_answered_with_the_workers_of_its_job),
        TEST(a_worker_is_measured_with_its_children),
        TEST(a_silent_worker_that_computes_is_reported_once),
        TEST(without_workers_a_probe_is_answered_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
