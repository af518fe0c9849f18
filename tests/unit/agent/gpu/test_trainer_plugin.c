/* Scripts in place of ddp-trainer answer the query for the plugin for GPUs. */
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
    struct fixture *b = xcalloc(1, sizeof(*b));

    strcpy(b->dir, "/tmp/ddp-plugin-XXXXXX");
    assert_non_null(mkdtemp(b->dir));
    b->path = xasprintf("%s/trainer", b->dir);
    assert_int_equal(uv_loop_init(&b->loop), 0);
    *state = b;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *b = *state;

    assert_int_equal(uv_loop_close(&b->loop), 0);
    unlink(b->path);
    rmdir(b->dir);
    free(b->path);
    free(b);
    return 0;
}

static void on_answer(void *user, const char *nccl, const char *version)
{
    struct fixture *b = user;

    b->answers++;
    snprintf(b->nccl, sizeof(b->nccl), "%s", nccl);
    snprintf(b->version, sizeof(b->version), "%s", version);
}

static void write_script(const struct fixture *b, const char *script)
{
    CLEANUP(free_text) char *text = xasprintf("#!/bin/sh\n%s\n", script);
    struct err e;

    if (file_write_atomic(b->path, text, strlen(text), 0700, &e))
        fail_msg("%s", e.msg);
}

static void the_plugins_libraries_are_reported(void **state)
{
    struct fixture *b = *state;
    static const char *const cases[][3] = {
        {"[ $1 = --plugin ] && echo '{\"version\": \"CUDA 13.0, cuDNN 9.19.0\", \"nccl\": \"2.28.9\"}'",
         "2.28.9", "CUDA 13.0, cuDNN 9.19.0"},
        {"echo '{\"why\": \"libcuda.so.1 is missing\"}'", "none", ""},
        {"echo usage >&2; exit 2", "none", ""},
        {"yes", "none", ""}, /* it never ends, and prints too much */
        {"kill -9 $$", "none", ""},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        write_script(b, cases[i][0]);
        (void)trainer_plugin_ask(&b->loop, b->path, on_answer, b);
        uv_run(&b->loop, UV_RUN_DEFAULT);
        assert_int_equal(b->answers, (int)i + 1);
        assert_string_equal(b->nccl, cases[i][1]);
        assert_string_equal(b->version, cases[i][2]);
    }
}

static void a_trainer_that_does_not_start_has_no_plugin(void **state)
{
    struct fixture *b = *state;

    (void)trainer_plugin_ask(&b->loop, "/nowhere/ddp-trainer", on_answer, b);
    assert_int_equal(b->answers, 0); /* the answer comes from the loop only */
    uv_run(&b->loop, UV_RUN_DEFAULT);
    assert_int_equal(b->answers, 1);
    assert_string_equal(b->nccl, "none");
}

static void a_query_can_be_cancelled(void **state)
{
    struct fixture *b = *state;

    write_script(b, "exec sleep 1000");
    trainer_plugin_close(trainer_plugin_ask(&b->loop, b->path, on_answer, b));
    uv_run(&b->loop, UV_RUN_DEFAULT);
    assert_int_equal(b->answers, 0);
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
