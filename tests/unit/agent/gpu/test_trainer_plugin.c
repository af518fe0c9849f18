/* Tests the query for the GPU plugin of ddp-trainer. Shell scripts stand in for ddp-trainer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "daemon/agent/gpu/trainer_plugin.h"

struct fixture {
    char dir[32];
    char *path;
    uv_loop_t loop;
    char nccl[32], version[64];
    int answers;
};

static int set_up(void **state)
{
    struct fixture *f = xcalloc(1, sizeof(*f));

    strcpy(f->dir, "/tmp/ddp-plugin-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    f->path = xasprintf("%s/trainer", f->dir);
    assert_int_equal(uv_loop_init(&f->loop), 0);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(uv_loop_close(&f->loop), 0);
    unlink(f->path);
    rmdir(f->dir);
    free(f->path);
    free(f);
    return 0;
}

static void on_answer(void *user, const char *nccl, const char *version)
{
    struct fixture *f = user;

    f->answers++;
    snprintf(f->nccl, sizeof(f->nccl), "%s", nccl);
    snprintf(f->version, sizeof(f->version), "%s", version);
}

static void write_script(const struct fixture *f, const char *script)
{
    CLEANUP(free_text) char *text = xasprintf("#!/bin/sh\n%s\n", script);
    struct err e;

    if (file_write_atomic(f->path, text, strlen(text), 0700, &e))
        fail_msg("%s", e.msg);
}

static void the_plugins_libraries_are_reported(void **state)
{
    struct fixture *f = *state;
    static const char *const cases[][3] = {
        {"[ $1 = --plugin ] && echo '{\"version\": \"CUDA 13.0, cuDNN 9.19.0\", \"nccl\": \"2.28.9\"}'",
         "2.28.9", "CUDA 13.0, cuDNN 9.19.0"},
        {"echo '{\"why\": \"libcuda.so.1 is missing\"}'", "none", ""},
        {"echo usage >&2; exit 2", "none", ""},
        {"yes", "none", ""}, /* it never ends, and prints too much */
        {"kill -9 $$", "none", ""},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        write_script(f, cases[i][0]);
        (void)trainer_plugin_ask(&f->loop, f->path, on_answer, f);
        uv_run(&f->loop, UV_RUN_DEFAULT);
        assert_int_equal(f->answers, (int)i + 1);
        assert_string_equal(f->nccl, cases[i][1]);
        assert_string_equal(f->version, cases[i][2]);
    }
}

static void a_trainer_that_does_not_start_has_no_plugin(void **state)
{
    struct fixture *f = *state;

    (void)trainer_plugin_ask(&f->loop, "/nowhere/ddp-trainer", on_answer, f);
    assert_int_equal(f->answers, 0); /* the callback is called from the loop, never from trainer_plugin_ask */
    uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_int_equal(f->answers, 1);
    assert_string_equal(f->nccl, "none");
}

static void a_query_can_be_cancelled(void **state)
{
    struct fixture *f = *state;

    write_script(f, "exec sleep 1000");
    trainer_plugin_close(trainer_plugin_ask(&f->loop, f->path, on_answer, f));
    uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_int_equal(f->answers, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_plugins_libraries_are_reported),
        TEST(a_trainer_that_does_not_start_has_no_plugin),
        TEST(a_query_can_be_cancelled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
