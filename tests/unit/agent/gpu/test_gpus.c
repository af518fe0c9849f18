/* Tests with a stand-in driver which GPUs the agent offers, when a GPU counts as sick, and for how long. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "daemon/agent/gpu/gpu_choice.h"
#include "daemon/agent/gpu/gpu_health.h"
#include "daemon/agent/gpu/gpus.h"

struct fixture {
    char dir[32];
    char *file;
    uv_loop_t loop;
    struct gpus *gpus;
    const char *leased; /* a UUID; NULL: none */
    int changes, arrivals;
    int64_t patience_ms;
};

static void write_file(const struct fixture *f, const char *text)
{
    struct err e;

    if (file_write_atomic(f->file, text, strlen(text), 0600, &e))
        fail_msg("%s", e.msg);
}

static int set_up(void **state)
{
    struct fixture *f = xcalloc(1, sizeof(*f));

    f->patience_ms = 20000;
    strcpy(f->dir, "/tmp/ddp-gpus-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    f->file = xasprintf("%s/nvml", f->dir);
    setenv("STANDIN_NVML", f->file, 1);
    assert_int_equal(uv_loop_init(&f->loop), 0);
    *state = f;
    return 0;
}

static void close_gpus(struct fixture *f)
{
    gpus_close(steal(f->gpus));
    uv_run(&f->loop, UV_RUN_DEFAULT);
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    static const char *const files[] = {"nvml", "gpus.json"};

    close_gpus(f);
    assert_int_equal(uv_loop_close(&f->loop), 0);
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        CLEANUP(free_text) char *path = xasprintf("%s/%s", f->dir, files[i]);
        unlink(path);
    }
    rmdir(f->dir);
    free(f->file);
    free(f);
    return 0;
}

static void on_change(void *user)
{
    ((struct fixture *)user)->changes++;
}

static void on_arrival(void *user)
{
    ((struct fixture *)user)->arrivals++;
}

static bool is_leased(void *user, const char *uuid)
{
    const char *leased = ((const struct fixture *)user)->leased;

    return leased && !strcmp(leased, uuid);
}

static enum err_code open_gpus(struct fixture *f, const char *configured, const char *visible, struct err *e)
{
    struct gpus_options options = {.state = f->dir,
                                   .configured = configured,
                                   .visible = visible,
                                   .leased = is_leased,
                                   .on_change = on_change,
                                   .on_arrival = on_arrival,
                                   .patience_ms = f->patience_ms,
                                   .user = f};

    return gpus_open(&f->gpus, &f->loop, &options, e);
}

static Ddp__V1__Gpu *gpu_message(struct fixture *f, size_t at)
{
    size_t count;
    Ddp__V1__Gpu **list = gpus_messages(f->gpus, &count);

    assert_true(at < count);
    return list[at];
}

static void on_tick(uv_timer_t *timer)
{
    (void)timer;
}

/* Runs the loop until the GPU has this health, or, with -1 for `healthy`, until the driver has come. */
static void wait_for_health(struct fixture *f, size_t at, int healthy)
{
    int64_t end = clock_boot_ms() + 20000;
    uv_timer_t tick;

    uv_timer_init(&f->loop, &tick);
    uv_timer_start(&tick, on_tick, 20, 20);
    while (healthy < 0 ? !f->arrivals : gpu_message(f, at)->healthy != healthy) {
        assert_true(clock_boot_ms() < end);
        uv_run(&f->loop, UV_RUN_ONCE);
    }
    uv_close((uv_handle_t *)&tick, NULL);
    uv_run(&f->loop, UV_RUN_NOWAIT);
}

#define TWO                                                                                                  \
    "uuid=GPU-aa1 name=NVIDIA_H200 memory=141 used=3 temperature=61 power=540 load=71\n"                     \
    "uuid=GPU-ab2 name=NVIDIA_H200 memory=141 temperature=50 power=100\n"

static void the_drivers_values_are_reported(void **state)
{
    struct fixture *f = *state;
    struct err e;

    write_file(f, TWO);
    assert_int_equal(open_gpus(f, NULL, NULL, &e), ERR_OK);
    assert_int_equal(gpus_count(f->gpus), 2);
    const Ddp__V1__Gpu *g = gpu_message(f, 0);
    assert_string_equal(g->uuid, "GPU-aa1");
    assert_string_equal(g->name, "H200");
    assert_true(g->memory_bytes == INT64_C(141) << 30 && g->memory_used == INT64_C(3) << 30);
    assert_int_equal(g->temperature, 61);
    assert_int_equal(g->power_watts, 540);
    assert_true(g->utilisation > 0.70 && g->utilisation < 0.72);
    assert_true(g->healthy && !g->lost);
    assert_string_equal(g->driver, "580.65.06");
}

static void a_driver_without_optional_calls_works(void **state)
{
    struct fixture *f = *state;
    struct err e;

    write_file(f, "uuid=GPU-aa1 bare=1\n");
    assert_int_equal(open_gpus(f, NULL, NULL, &e), ERR_OK);
    assert_int_equal(gpus_count(f->gpus), 1);
    assert_true(gpu_message(f, 0)->healthy);
    assert_string_equal(gpu_message(f, 0)->name, "");
    assert_int_equal(gpu_message(f, 0)->temperature, 0);
    write_file(
        f, "uuid=GPU-aa1 bare=1 lost=1\n"); /* this driver sends no events: the next reading finds the loss */
    wait_for_health(f, 0, false);
    assert_true(gpu_message(f, 0)->lost);
}

static void a_gpu_lost_before_leaves_the_others_their_numbers(void **state)
{
    struct fixture *f = *state;
    struct err e;

    write_file(f, "uuid=GPU-aa1 lost=1\nuuid=GPU-bb2\n");
    assert_int_equal(open_gpus(f, "1", NULL, &e), ERR_OK);
    assert_int_equal(gpus_count(f->gpus), 1);
    assert_string_equal(gpu_message(f, 0)->uuid, "GPU-bb2");
    assert_int_equal(gpu_message(f, 0)->index, 1);
}

static _Atomic int64_t boot_ms_added; /* the thread that reads the driver looks at the clock, too */
int64_t __real_clock_boot_ms(void);
int64_t __wrap_clock_boot_ms(void);

int64_t __wrap_clock_boot_ms(void)
{
    return __real_clock_boot_ms() + boot_ms_added;
}

static void the_usage_of_a_gpu_is_what_its_driver_tells(void **state)
{
    struct fixture *f = *state;
    struct usage u;
    struct err e;

    write_file(
        f,
        "uuid=GPU-aa1 memory=141 used=3 temperature=61 power=540 load=71\nuuid=GPU-aa2 memory=141 bare=1\n");
    assert_int_equal(open_gpus(f, NULL, NULL, &e), ERR_OK);
    usage_init(&u);
    gpus_add_usage(f->gpus, "GPU-aa1", &u);
    gpus_add_usage(f->gpus, "GPU-aa9", &u);
    assert_int_equal(u.gpus, 1);
    assert_true(u.gpu_most == 0.71 && u.values[USAGE_GPU_WATTS] == 540);
    boot_ms_added = 20000; /* the driver has not answered since: nobody knows whether the GPU is idle */
    usage_init(&u);
    gpus_add_usage(f->gpus, "GPU-aa1", &u);
    boot_ms_added = 0;
    assert_true(u.gpus == 1 && u.gpu_most != u.gpu_most);
    usage_init(&u);
    gpus_add_usage(f->gpus, "GPU-aa1", &u);
    gpus_add_usage(f->gpus, "GPU-aa2", &u); /* tells no utilisation, which is not 0 */
    assert_true(u.gpus == 2 && u.gpu_least != u.gpu_least);
}

/* Without a driver, or while the driver cannot count its GPUs, the agent offers none. */
static void a_driver_may_come_later(void **state)
{
    struct fixture *f = *state;
    struct err e;

    for (int counts = 0; counts < 2; counts++) {
        if (counts)
            write_file(f, "uncounted=1 uuid=GPU-aa1\n");
        assert_int_equal(open_gpus(f, counts ? "1" : NULL, NULL, &e), ERR_OK);
        assert_int_equal(gpus_count(f->gpus), 0);
        write_file(f, TWO);
        wait_for_health(f, 0, -1);
        assert_int_equal(f->arrivals, 1);
        /* The configured list applies to a late driver too. */
        assert_int_equal(gpus_count(f->gpus), counts ? 1 : 2);
        assert_string_equal(gpu_message(f, 0)->uuid, counts ? "GPU-ab2" : "GPU-aa1");
        write_file(f, TWO "uuid=GPU-ac3\n");
        close_gpus(f);
        write_file(f, "");
        f->arrivals = 0;
    }
}

/* The agent does not wait longer than patience_ms for a driver when it starts. */
static void a_slow_driver_counts_as_late(void **state)
{
    struct fixture *f = *state;
    struct err e;

    f->patience_ms = 50;
    write_file(f, "uuid=GPU-aa1 slow=2000\n");
    assert_int_equal(open_gpus(f, NULL, NULL, &e), ERR_OK);
    assert_int_equal(gpus_count(f->gpus), 0);
    wait_for_health(f, 0, -1);
    assert_string_equal(gpu_message(f, 0)->uuid, "GPU-aa1");
}

static void a_wrong_list_offers_none_when_the_driver_comes_late(void **state)
{
    struct fixture *f = *state;
    struct err e;

    assert_int_equal(open_gpus(f, "0,7", NULL, &e), ERR_OK);
    write_file(f, TWO);
    for (int64_t end = clock_boot_ms() + 20000;
         uv_loop_alive(&f->loop);) { /* it ends: there is no GPU to poll */
        assert_true(clock_boot_ms() < end);
        uv_run(&f->loop, UV_RUN_ONCE);
    }
    assert_int_equal(gpus_count(f->gpus), 0);
    assert_int_equal(f->arrivals, 0);
}

static void a_gpu_missing_after_a_restart_is_lost(void **state)
{
    struct fixture *f = *state;
    struct err e;

    write_file(f, TWO);
    assert_int_equal(open_gpus(f, NULL, NULL, &e), ERR_OK);
    close_gpus(f);
    f->leased = "GPU-ab2";
    write_file(f, "uuid=GPU-aa1 name=NVIDIA_H200\n");
    assert_int_equal(open_gpus(f, NULL, NULL, &e), ERR_OK);
    assert_int_equal(gpus_count(f->gpus), 2);
    assert_true(gpu_message(f, 0)->healthy);
    assert_string_equal(gpu_message(f, 1)->uuid, "GPU-ab2");
    assert_string_equal(gpu_message(f, 1)->name, "H200");
    assert_int_equal(gpu_message(f, 1)->index, 1);
    assert_true(gpu_message(f, 1)->lost && !gpu_message(f, 1)->healthy);
    assert_non_null(strstr(gpu_message(f, 1)->problem, "not listed by the driver any more"));
    gpus_clear_faults(f->gpus);
    assert_true(gpu_message(f, 1)->lost); /* it is still missing */
    close_gpus(f);
    f->leased = NULL; /* no worker leases it, but it still needs repair */
    /* No error: GPU 1 of the list existed before the loss. */
    assert_int_equal(open_gpus(f, "0,1", NULL, &e), ERR_OK);
    assert_int_equal(gpus_count(f->gpus), 1);
    assert_true(gpu_message(f, 0)->lost);
    close_gpus(f);
    write_file(f, TWO);
    assert_int_equal(open_gpus(f, NULL, NULL, &e), ERR_OK);
    assert_int_equal(gpus_count(f->gpus), 2);
    assert_true(
        gpu_message(f, 1)->lost); /* the driver lists it again, but the operator has not cleared the fault */
    gpus_clear_faults(f->gpus);
    assert_true(gpu_message(f, 1)->healthy);
}

static void a_missing_gpu_that_was_well_and_free_is_left_out(void **state)
{
    struct fixture *f = *state;
    struct err e;

    write_file(f, TWO);
    assert_int_equal(open_gpus(f, NULL, NULL, &e), ERR_OK);
    close_gpus(f);
    f->leased = "GPU-ab2"; /* GPU-ab2 still exists, but is not offered any more; its worker continues */
    assert_int_equal(open_gpus(f, "0", NULL, &e), ERR_OK);
    assert_int_equal(gpus_count(f->gpus), 1);
    close_gpus(f);
    write_file(f, "uuid=GPU-ad4\n");
    assert_int_equal(open_gpus(f, NULL, NULL, &e), ERR_OK);
    assert_int_equal(gpus_count(f->gpus), 1);
    assert_string_equal(gpu_message(f, 0)->uuid, "GPU-ad4");
}

static void lists_narrow_the_offered_gpus(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *configured, *visible;
        size_t count;
        const char *first;
    } cases[] = {
        {"1", NULL, 1, "GPU-ab2"},
        {"GPU-aa", NULL, 1, "GPU-aa1"},
        {NULL, "1,0", 2, "GPU-aa1"},
        {"0, 1", "1", 1, "GPU-ab2"},
        {"0", "1", 0, NULL},
        {"none", NULL, 0, NULL},
        {NULL, "", 0, NULL},
        {NULL, "-1", 0, NULL},
        {"all", "GPU-ab2", 1, "GPU-ab2"},
        {NULL, "0,7,1", 1, "GPU-aa1"},
        {NULL, "MIG-x", 0, NULL},
        {NULL, "GPU-a", 0, NULL},
    };
    struct err e;

    write_file(f, TWO);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        assert_int_equal(open_gpus(f, cases[i].configured, cases[i].visible, &e), ERR_OK);
        if (gpus_count(f->gpus) != cases[i].count)
            fail_msg("case %zu: %zu GPUs", i, gpus_count(f->gpus));
        if (cases[i].first)
            assert_string_equal(gpu_message(f, 0)->uuid, cases[i].first);
        close_gpus(f);
    }
    assert_int_equal(open_gpus(f, "2", NULL, &e), ERR_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "gpus: there is no GPU 2: this machine has 2 (nvidia-smi -L lists them)");
    assert_int_equal(open_gpus(f, "GPU-x", NULL, &e), ERR_INVALID_ARGUMENT);
    assert_int_equal(open_gpus(f, "MIG-123", NULL, &e), ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(e.msg, "switch MIG off"));
}

static void a_gpu_is_sick_after_an_xid_until_it_is_cleared(void **state)
{
    struct fixture *f = *state;
    struct err e;

    write_file(f, TWO);
    assert_int_equal(open_gpus(f, NULL, NULL, &e), ERR_OK);
    write_file(f, "uuid=GPU-aa1 xids=31@1,13@1\nuuid=GPU-ab2 xids=31@1,94@1\n");
    wait_for_health(f, 1, false);
    assert_true(gpu_message(f, 0)->healthy); /* Xids 31 and 13 are faults of programs */
    assert_true(strstr(gpu_message(f, 1)->problem, "Xid 94 at ") == gpu_message(f, 1)->problem);
    assert_false(gpu_message(f, 1)->lost);
    assert_true(f->changes >= 1);
    close_gpus(f);
    write_file(f, TWO);
    /* The fault is kept over a restart of the agent. */
    assert_int_equal(open_gpus(f, NULL, NULL, &e), ERR_OK);
    assert_false(gpu_message(f, 1)->healthy);
    assert_true(gpu_message(f, 0)->healthy);
    gpus_clear_faults(f->gpus);
    assert_true(gpu_message(f, 1)->healthy);
    close_gpus(f);
    assert_int_equal(open_gpus(f, NULL, NULL, &e), ERR_OK);
    assert_true(gpu_message(f, 1)->healthy);
}

static void faults_that_nvml_still_reports_stay(void **state)
{
    struct fixture *f = *state;
    struct err e;

    write_file(f, "uuid=GPU-aa1 ecc=2\nuuid=GPU-ab2 mig=1\nuuid=GPU-ac3 slowed=64\nuuid=GPU-ad4 stuck=1\n");
    assert_int_equal(open_gpus(f, NULL, NULL, &e), ERR_OK);
    assert_non_null(strstr(gpu_message(f, 0)->problem, "2 memory errors"));
    assert_non_null(strstr(gpu_message(f, 1)->problem, "MIG"));
    gpus_clear_faults(f->gpus);
    assert_false(gpu_message(f, 0)->healthy);
    assert_false(gpu_message(f, 1)->healthy);
    assert_true(gpu_message(f, 2)->healthy); /* a slow GPU is not sick */
    assert_string_equal(gpu_message(f, 2)->problem, "is slowed down by heat");
    assert_non_null(strstr(gpu_message(f, 3)->problem, "needs a reset, the driver said"));
}

static void the_worst_xid_is_reported(void **state)
{
    struct gpu_health h = {0};
    struct nvml_reading r = {.xids = {63, 79, 31}};

    (void)state;
    assert_true(gpu_health_update(&h, &r, 1, 0));
    assert_true(h.sick && h.lost);
    assert_non_null(strstr(h.problem, "Xid 79 at "));
    assert_non_null(strstr(h.problem, "power-cycle, then run ddpctl undrain"));
    memset(r.xids, 0, sizeof(r.xids));
    r.lost = true; /* the same loss, now without an Xid */
    assert_false(gpu_health_update(&h, &r, 1, 0));
    gpu_health_clear(&h);
    assert_true(gpu_health_update(&h, &r, 1, 0));
    assert_non_null(strstr(h.problem, "fell off the bus at "));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_drivers_values_are_reported),
        TEST(a_driver_without_optional_calls_works),
        TEST(a_gpu_lost_before_leaves_the_others_their_numbers),
        TEST(the_usage_of_a_gpu_is_what_its_driver_tells),
        TEST(a_driver_may_come_later),
        TEST(a_slow_driver_counts_as_late),
        TEST(a_wrong_list_offers_none_when_the_driver_comes_late),
        TEST(a_gpu_missing_after_a_restart_is_lost),
        TEST(a_missing_gpu_that_was_well_and_free_is_left_out),
        TEST(lists_narrow_the_offered_gpus),
        TEST(a_gpu_is_sick_after_an_xid_until_it_is_cleared),
        TEST(faults_that_nvml_still_reports_stay),
        TEST(the_worst_xid_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
