#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "client/cmd/submit/job_text.h"

static void test_command_becomes_a_job_file(void **state)
{
    (void)state;
    char *const command[] = {(char[]){"python3"}, (char[]){"my \"train\".py"}, (char[]){"--lr"},
                             (char[]){"50"}, NULL};
    struct job_flags flags = {
        .nodes = "1:2", .procs = "4", .max_restarts = "5", .restart_on = "any", .time_limit = "2h"};
    CLEANUP(free_text) char *text = NULL;
    CLEANUP(free_text) char *here = getcwd(NULL, 0);
    struct job_spec spec;
    struct err e;
    flags.env = strv_append(NULL, "A=b: c");
    assert_int_equal(job_text_from_command(command, &flags, &text, &e), ERR_OK);
    assert_int_equal(job_parse(&spec, text, strlen(text), "job", &e), ERR_OK);
    assert_int_equal(spec.kind, JOB_COMMAND);
    assert_string_equal(spec.name, "my--train-");
    assert_string_equal(spec.command[1], "my \"train\".py");
    assert_string_equal(spec.command[3], "50");
    assert_int_equal(spec.nodes_min, 1);
    assert_int_equal(spec.nodes_max, 2);
    assert_int_equal(spec.procs_per_node, 4);
    assert_int_equal(spec.max_restarts, 5);
    assert_int_equal(spec.restart_on, RESTART_ON_ANY);
    assert_int_equal(spec.time_limit_ms, 7200000);
    assert_string_equal(spec.env[0], "A=b: c");
    assert_string_equal(spec.workdir, here);
    job_release(&spec);
    strv_free(flags.env);
}

static void assert_named(const char *line, const char *name)
{
    struct job_flags flags = {0};
    CLEANUP(free_text) char *words = xstrdup(line), *text = NULL;
    char **command = NULL, *rest = NULL;
    struct job_spec spec;
    struct err e;
    for (char *word = strtok_r(words, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        command = strv_append(command, word);
    assert_int_equal(job_text_from_command(command, &flags, &text, &e), ERR_OK);
    assert_int_equal(job_parse(&spec, text, strlen(text), "job", &e), ERR_OK);
    assert_string_equal(spec.name, name);
    job_release(&spec);
    strv_free(command);
}

static void test_command_is_named_after_its_program(void **state)
{
    (void)state;
    assert_named("/usr/bin/python3 -u src/train.v2.py data.py", "train.v2");
    assert_named("bash run.sh", "run");
    assert_named("bin/train x.py", "train");
    assert_named("python3 -c print() x.py", "python3");
    assert_named("python3 -m pkg.train x.py", "python3");
    assert_named("sh -c true", "sh");
}

static void test_message_names_the_bad_flag(void **state)
{
    (void)state;
    char *const command[] = {(char[]){"true"}, NULL};
    char *const nothing[] = {NULL};
    char *text = NULL;
    struct err e;
    struct buf others = {0};
    struct job_flags flags = {.nodes = "none"};
    assert_int_equal(job_text_from_command(command, &flags, &text, &e), ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(e.msg, "nodes"));
    flags = (struct job_flags){0};
    assert_int_equal(job_text_from_command(nothing, &flags, &text, &e), ERR_INVALID_ARGUMENT);
    flags.env = strv_append(NULL, "=x");
    assert_int_equal(job_text_from_command(command, &flags, &text, &e), ERR_INVALID_ARGUMENT);
    strv_free(flags.env);
    assert_int_equal(job_text_from_file("/no/such.yaml", &flags, &text, &others, &e), ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(e.msg, "/no/such.yaml"));
    assert_null(text);
}

static void test_train_paths_become_absolute(void **state)
{
    (void)state;
    const char *stored =
        "workdir: /w\ntrain:\n  model: {type: linear, in: 20, out: 1}\n  data: {type: synthetic, samples: "
        "8}\n"
        "  optimizer: {type: sgd, lr: 0.1}\n  batch: 4\n  epochs: 1\n  snapshot: {dir: ./out, every: 5}\n";
    struct job_flags flags = {.set = strv_append(NULL, "train.epochs=20")};
    CLEANUP(free_text) char *text = NULL;
    struct job_spec spec;
    struct err e = {0};
    if (job_text_change(stored, &flags, &text, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    assert_int_equal(job_parse(&spec, text, strlen(text), "job", &e), ERR_OK);
    assert_string_equal(spec.train.snapshot.dir, "/w/out");
    assert_int_equal(spec.train.epochs, 20);
    job_release(&spec);
    char **missing = job_text_missing(text);
    assert_int_equal(strv_len(missing), 1);
    assert_string_equal(missing[0], "workdir /w does not exist on this machine");
    strv_free(missing);
    strv_free(flags.set);
}

static char *const environment[] = {
    (char[]){"PATH=/bin"}, (char[]){"WANDB_MODE=offline"}, (char[]){"DDP_TOKEN=secret"},
    (char[]){"PWD=/x"},    (char[]){"SECRET=1"},           NULL,
};

static void check_carried(const char *export, const char *wanted)
{
    CLEANUP(buf_release) struct buf got = {0};
    char **exports = export ? strv_append(NULL, export) : NULL, **list = NULL;
    struct err e;
    assert_int_equal(job_text_environment(environment, exports, &list, &e), ERR_OK);
    for (size_t i = 0; list && list[i]; i++)
        buf_printf(&got, "%s ", list[i]);
    assert_string_equal(got.data ? got.data : "", wanted);
    strv_free(list);
    strv_free(exports);
}

static void check_unset(const char *export, bool unset)
{
    char **exports = strv_append(NULL, export), **list = job_text_unset_exports(environment, exports);
    assert_int_equal(strv_len(list), unset);
    if (unset)
        assert_string_equal(list[0], export);
    strv_free(list);
    strv_free(exports);
}

static void test_exports_without_a_variable(void **state)
{
    (void)state;
    check_unset("SECRET", false);
    check_unset("SECRE", true);
    check_unset("S*", false);
    check_unset("NCCL_*", true);
    check_unset("ALL", false);
    check_unset("NONE", false);
    assert_null(job_text_unset_exports(environment, NULL));
}

static void check_export_refused(const char *export)
{
    char **exports = strv_append(NULL, export), **list = NULL;
    struct err e;
    assert_int_equal(job_text_environment(environment, exports, &list, &e), ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(e.msg, export));
    strv_free(exports);
}

static void test_exports_in_the_form_of_sbatch(void **state)
{
    (void)state;
    check_export_refused("SECRET=1");
    check_export_refused("ALL,SECRET");
}

static void test_environment(void **state)
{
    (void)state;
    check_carried(NULL, "PATH=/bin WANDB_MODE=offline ");
    check_carried("SECRET", "PATH=/bin WANDB_MODE=offline SECRET=1 ");
    check_carried("NONE", "");
    check_carried("ALL", "PATH=/bin WANDB_MODE=offline SECRET=1 ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_command_becomes_a_job_file),
        cmocka_unit_test(test_command_is_named_after_its_program),
        cmocka_unit_test(test_message_names_the_bad_flag),
        cmocka_unit_test(test_train_paths_become_absolute),
        cmocka_unit_test(test_environment),
        cmocka_unit_test(test_exports_without_a_variable),
        cmocka_unit_test(test_exports_in_the_form_of_sbatch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
