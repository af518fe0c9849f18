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

static bool everything(const char *program)
{
    return program != NULL;
}

static bool nothing(const char *program)
{
    return program == NULL;
}

static char box1[] = "box1", box2[] = "box2";
static char *two_hosts[] = {box1, box2, NULL};

static struct run_request asked(const char *launcher, char **hosts)
{
    return (struct run_request){.node_rank = -1, .launcher = (char *)(uintptr_t)launcher, .hosts = hosts};
}

static void chosen(const char *name, char **hosts, enum batch_system kind, bool launched,
                   enum launcher expected)
{
    struct run_request l = asked(name, hosts);
    struct batch_allocation a = {.kind = kind, .launched = launched};
    enum launcher launcher;
    struct err e;
    assert_int_equal(launcher_choose(&l, &a, everything, &launcher, &e), ERR_OK);
    assert_int_equal(launcher, expected);
}

static void test_choice(void **state)
{
    (void)state;
    chosen(NULL, NULL, BATCH_NONE, false, LAUNCHER_NONE);
    chosen(NULL, NULL, BATCH_SLURM, false, LAUNCHER_NONE); /* only when asked */
    chosen(NULL, two_hosts, BATCH_NONE, false, LAUNCHER_SSH);
    chosen("auto", two_hosts, BATCH_NONE, false, LAUNCHER_SSH);
    chosen("auto", NULL, BATCH_SLURM, false, LAUNCHER_SRUN);
    chosen(NULL, two_hosts, BATCH_SLURM, false, LAUNCHER_SRUN);
    chosen("auto", NULL, BATCH_PBS, false, LAUNCHER_PBSDSH);
    chosen("ssh", NULL, BATCH_PBS, false, LAUNCHER_SSH);
    chosen("mpirun", two_hosts, BATCH_NONE, false, LAUNCHER_MPIRUN);
}

/* What srun, pbsdsh and mpirun have started carries the same arguments. */
static void test_launched_launches_nothing(void **state)
{
    (void)state;
    chosen("auto", NULL, BATCH_SLURM, true, LAUNCHER_NONE);
    chosen("srun", two_hosts, BATCH_SLURM, true, LAUNCHER_NONE);
    chosen("mpirun", NULL, BATCH_OPEN_MPI, true, LAUNCHER_NONE);
    chosen("pbsdsh", NULL, BATCH_PBS, true, LAUNCHER_NONE);
}

static void test_pbs_without_pbsdsh(void **state)
{
    (void)state;
    struct run_request l = asked("auto", NULL);
    struct batch_allocation a = {.kind = BATCH_PBS};
    enum launcher launcher;
    struct err e;
    assert_int_equal(launcher_choose(&l, &a, nothing, &launcher, &e), ERR_OK);
    assert_int_equal(launcher, LAUNCHER_SSH);
}

static void refused(struct run_request l, const char *why)
{
    struct batch_allocation a = {0};
    enum launcher launcher;
    struct err e;
    assert_int_equal(launcher_choose(&l, &a, everything, &launcher, &e), ERR_INVALID_ARGUMENT);
    if (!strstr(e.msg, why))
        fail_msg("it says: %s", e.msg);
}

static void test_contradictions(void **state)
{
    (void)state;
    struct run_request l = asked("auto", NULL);
    refused(l, "give --hosts");
    l = asked(NULL, two_hosts);
    l.standalone = true;
    refused(l, "--standalone");
    l = asked(NULL, two_hosts);
    l.node_rank = 1;
    refused(l, "--node-rank");
}

/* As the shell reads them back. */
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
        cmocka_unit_test(test_launched_launches_nothing),
        cmocka_unit_test(test_pbs_without_pbsdsh),
        cmocka_unit_test(test_contradictions),
        cmocka_unit_test(test_quotes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
