#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "client/run/launch/remote_launch.h"
#include "client/text/shell_quote.h"

static bool every_program(const char *program)
{
    return program != NULL;
}

static bool no_program(const char *program)
{
    return program == NULL;
}

static char box1[] = "box1", box2[] = "box2";
static char *two_hosts[] = {box1, box2, NULL};

static struct run_request request_with(const char *launcher, char **hosts)
{
    return (struct run_request){.node_rank = -1, .launcher = (char *)(uintptr_t)launcher, .hosts = hosts};
}

static void expect_choice(const char *name, char **hosts, enum batch_system kind, bool launched,
                          enum launcher expected)
{
    struct run_request l = request_with(name, hosts);
    struct batch_allocation a = {.kind = kind, .launched = launched};
    enum launcher launcher;
    struct err e;
    assert_int_equal(launcher_choose(&l, &a, every_program, &launcher, &e), ERR_OK);
    assert_int_equal(launcher, expected);
}

static void test_choice(void **state)
{
    (void)state;
    expect_choice(NULL, NULL, BATCH_NONE, false, LAUNCHER_NONE);
    expect_choice(NULL, NULL, BATCH_SLURM, false, LAUNCHER_NONE); /* srun is used only when it is asked for */
    expect_choice(NULL, two_hosts, BATCH_NONE, false, LAUNCHER_SSH);
    expect_choice("auto", two_hosts, BATCH_NONE, false, LAUNCHER_SSH);
    expect_choice("auto", NULL, BATCH_SLURM, false, LAUNCHER_SRUN);
    expect_choice(NULL, two_hosts, BATCH_SLURM, false, LAUNCHER_SRUN);
    expect_choice("auto", NULL, BATCH_PBS, false, LAUNCHER_PBSDSH);
    expect_choice("ssh", NULL, BATCH_PBS, false, LAUNCHER_SSH);
    expect_choice("mpirun", two_hosts, BATCH_NONE, false, LAUNCHER_MPIRUN);
}

/* The tasks that srun, pbsdsh and mpirun start have the same arguments, and must not start others. */
static void test_launched_task_starts_nothing(void **state)
{
    (void)state;
    expect_choice("auto", NULL, BATCH_SLURM, true, LAUNCHER_NONE);
    expect_choice("srun", two_hosts, BATCH_SLURM, true, LAUNCHER_NONE);
    expect_choice("mpirun", NULL, BATCH_OPEN_MPI, true, LAUNCHER_NONE);
    expect_choice("pbsdsh", NULL, BATCH_PBS, true, LAUNCHER_NONE);
}

static void test_pbs_without_pbsdsh(void **state)
{
    (void)state;
    struct run_request l = request_with("auto", NULL);
    struct batch_allocation a = {.kind = BATCH_PBS};
    enum launcher launcher;
    struct err e;
    assert_int_equal(launcher_choose(&l, &a, no_program, &launcher, &e), ERR_OK);
    assert_int_equal(launcher, LAUNCHER_SSH);
}

static void launcher_is_refused(struct run_request l, const char *why)
{
    struct batch_allocation a = {0};
    enum launcher launcher;
    struct err e;
    assert_int_equal(launcher_choose(&l, &a, every_program, &launcher, &e), ERR_INVALID_ARGUMENT);
    if (!strstr(e.msg, why))
        fail_msg("it says: %s", e.msg);
}

static void test_contradictions(void **state)
{
    (void)state;
    struct run_request l = request_with("auto", NULL);
    launcher_is_refused(l, "give --hosts");
    l = request_with(NULL, two_hosts);
    l.standalone = true;
    launcher_is_refused(l, "--standalone");
    l = request_with(NULL, two_hosts);
    l.node_rank = 1;
    launcher_is_refused(l, "--node-rank");
}

/* The shell must read the words back unchanged. */
static void test_quotes(void **state)
{
    static const char *const words[] = {"plain-1.py", "",  "two words", "it's", "$HOME `id` \"x\" \\ !",
                                        "a\nb",       "~", "*"};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        CLEANUP(buf_release) struct buf line = {0};
        char back[64];
        buf_puts(&line, "printf %s ");
        shell_quote(&line, words[i]);
        FILE *pipe = popen(line.data, "r");
        assert_non_null(pipe);
        back[fread(back, 1, sizeof(back) - 1, pipe)] = 0;
        assert_int_equal(pclose(pipe), 0);
        assert_string_equal(back, words[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_launched_task_starts_nothing),
        cmocka_unit_test(test_pbs_without_pbsdsh),
        cmocka_unit_test(test_contradictions),
        cmocka_unit_test(test_quotes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
