#include "tests/unit/base/check.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uv.h>

#include "base/clock.h"
#include "base/mem.h"
#include "daemon/agent/observe/process.h"
#include "daemon/agent/observe/worker_monitor.h"

/* The monitor on a loop of its own, with real children; sent messages are recorded. */
struct fixture {
    uv_loop_t loop;
    struct worker_monitor *watch;
    bool full;
    int activities, answers;
    size_t quiet;    /* in the newest Activity */
    int64_t idle_ms; /* of the first one in it */
    char state[4];
    int64_t probe; /* of the newest answer */
    size_t workers;
    bool probed;
    char process_state[4];
    int64_t report_age;
};

static enum err_code take_message(void *ctx, const Ddp__V1__AgentUp *up, struct err *e)
{
    struct fixture *d = ctx;

    if (d->full)
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "full");
    if (up->body_case == DDP__V1__AGENT_UP__BODY_ACTIVITY) {
        d->activities++;
        d->quiet = up->activity->n_spawns;
        d->idle_ms = d->quiet ? up->activity->spawns[0]->idle_ms : -1;
        strcpy(d->state, d->quiet ? up->activity->spawns[0]->state : "");
        return ERR_OK;
    }
    assert_int_equal(up->body_case, DDP__V1__AGENT_UP__BODY_PROBE_ANSWER);
    d->answers++;
    d->probe = up->probe_answer->probe;
    d->workers = up->probe_answer->n_workers;
    if (d->workers) {
        const Ddp__V1__WorkerProbe *w = up->probe_answer->workers[0];
        d->probed = w->probed;
        d->report_age = w->report_age_ms;
        strcpy(d->process_state, w->n_processes ? w->processes[0]->state : "");
    }
    return ERR_OK;
}

static int fixture_open(void **state)
{
    struct fixture *d = xcalloc(1, sizeof(*d));
    struct worker_monitor_options options = {"/nonexistent", "box1", take_message, d};

    assert_int_equal(uv_loop_init(&d->loop), 0);
    d->watch = worker_monitor_create(&d->loop, &options);
    *state = d;
    return 0;
}

static int fixture_close(void **state)
{
    struct fixture *d = *state;

    worker_monitor_close(d->watch);
    uv_run(&d->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&d->loop), 0);
    free(d);
    return 0;
}

static void on_tick(uv_timer_t *timer)
{
    (void)timer;
}

/* Turns the loop until done(d), within a deadline. */
static void turn_until(struct fixture *d, bool (*done)(const struct fixture *d))
{
    int64_t end = clock_boot_ms() + 20000;
    uv_timer_t tick;

    uv_timer_init(&d->loop, &tick);
    uv_timer_start(&tick, on_tick, 10, 10);
    while (!done(d) && clock_boot_ms() < end)
        uv_run(&d->loop, UV_RUN_ONCE);
    uv_close((uv_handle_t *)&tick, NULL);
    uv_run(&d->loop, UV_RUN_NOWAIT);
    assert_true(done(d));
}

static bool process_sleeps(pid_t pid)
{
    struct process p;

    return process_read(pid, &p) && p.state == 'S';
}

/* Starts a child; it sleeps when this returns. */
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

static bool says_quiet(const struct fixture *d)
{
    return d->quiet == 1;
}

static bool says_stopped(const struct fixture *d)
{
    return d->quiet == 1 && !strcmp(d->state, "T");
}

static bool probe_answered(const struct fixture *d)
{
    return d->answers > 0;
}

static void an_idle_worker_is_reported_once_per_session(void **state)
{
    struct fixture *d = *state;
    pid_t pid = sleeper_start();
    struct monitored_worker who = {.job = 7, .spawn = 3, .first_generation = 1, .pid = pid};

    worker_monitor_set(d->watch, &who, 1);
    turn_until(d, says_quiet);
    assert_true(d->idle_ms >= 1500);
    d->quiet = 0;
    worker_monitor_new_session(d->watch);
    turn_until(d, says_quiet);
    kill(pid, SIGSTOP);
    turn_until(d, says_stopped);
    sleeper_end(pid);
}

static void activity_that_could_not_be_sent_is_sent_later(void **state)
{
    struct fixture *d = *state;
    pid_t pid = sleeper_start();
    struct monitored_worker who = {.job = 7, .spawn = 3, .first_generation = 1, .pid = pid};
    Ddp__V1__Probe probe = DDP__V1__PROBE__INIT;

    d->full = true;
    probe.probe = 1;
    probe.job = 7;
    worker_monitor_set(d->watch, &who, 1);
    worker_monitor_probe(d->watch, &probe); /* its answer is lost: the stream is full */
    int64_t end_ms = clock_boot_ms() + 2500;
    while (clock_boot_ms() < end_ms) /* long enough for a message that must not come */
        uv_run(&d->loop, UV_RUN_ONCE);
    assert_int_equal(d->activities, 0);
    d->full = false;
    turn_until(d, says_quiet);
    sleeper_end(pid);
}

static void a_probe_is_answered_with_the_workers_of_its_job(void **state)
{
    struct fixture *d = *state;
    pid_t pid = sleeper_start();
    struct monitored_worker who[] = {{.job = 7, .spawn = 3, .first_generation = 2, .pid = pid},
                                     {.job = 8, .spawn = 1, .first_generation = 1, .pid = pid}};
    Ddp__V1__Probe probe = DDP__V1__PROBE__INIT;

    worker_monitor_set(d->watch, who, 2);
    worker_monitor_reported(d->watch, 7, 3);
    probe.probe = 41;
    probe.job = 7;
    worker_monitor_probe(d->watch, &probe);
    turn_until(d, probe_answered);
    assert_int_equal(d->probe, 41);
    assert_int_equal(d->workers, 1);
    assert_true(d->probed);
    assert_string_equal(d->process_state, "S");
    assert_true(d->report_age >= 0);
    d->answers = 0;
    probe.probe = 42;
    probe.job = 9; /* no worker of it lives here */
    worker_monitor_probe(d->watch, &probe);
    turn_until(d, probe_answered);
    assert_int_equal(d->probe, 42);
    assert_int_equal(d->workers, 0);
    sleeper_end(pid);
}

static void without_workers_a_probe_is_answered_at_once(void **state)
{
    struct fixture *d = *state;
    Ddp__V1__Probe probe = DDP__V1__PROBE__INIT;

    probe.probe = 5;
    worker_monitor_probe(d->watch, &probe);
    assert_int_equal(d->answers, 1);
    assert_int_equal(d->workers, 0);
}

int main(void)
{
#define TEST(test) cmocka_unit_test_setup_teardown(test, fixture_open, fixture_close)
    const struct CMUnitTest tests[] = {
        TEST(an_idle_worker_is_reported_once_per_session),
        TEST(activity_that_could_not_be_sent_is_sent_later),
        TEST(a_probe_is_answered_with_the_workers_of_its_job),
        TEST(without_workers_a_probe_is_answered_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
