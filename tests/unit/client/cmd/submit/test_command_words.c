#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/paths.h"
#include "client/cmd/submit/command_words.h"

static char home[] = "/tmp/ddp-test-XXXXXX";

static void put_file(const char *name, mode_t mode)
{
    CLEANUP(free_text) char *path = paths_join(home, name);
    struct err e;
    assert_int_equal(file_write_atomic(path, "x\n", 2, mode, &e), ERR_OK);
    assert_int_equal(chmod(path, mode), 0);
}

static int make_home(void **state)
{
    (void)state;
    struct err e;
    CLEANUP(free_text) char *dir = NULL;
    if (!mkdtemp(home))
        return -1;
    dir = paths_join(home, "dir.py");
    put_file("train.py", 0644);
    put_file("closed.py", 0);
    put_file("job", 0644);
    put_file("sh", 0644); /* a file of the name of a program in PATH */
    return file_mkdirs(dir, 0755, &e) != ERR_OK;
}

static int remove_home(void **state)
{
    (void)state;
    struct err e;
    return file_remove_tree(home, &e) != ERR_OK;
}

static void test_what_begins_a_command(void **state)
{
    (void)state;
    static const char *const commands[] = {"train.py", "python3", "./bench", "job", "a.yaml.py", "-"};
    static const char *const files[] = {"job.yaml", "dir/job.yml", "/dev/stdin", "/dev/fd/63"};
    for (size_t i = 0; i < ARRAY_LEN(commands); i++)
        assert_true(command_words_begin(commands[i]));
    for (size_t i = 0; i < ARRAY_LEN(files); i++)
        assert_false(command_words_begin(files[i]));
}

static void check_words(struct command_form form, const char *python, char *const *tail, const char *wanted)
{
    CLEANUP(buf_release) struct buf line = {0};
    struct err e;
    char **words;
    assert_int_equal(command_words_make(&form, tail, python, &words, &e), ERR_OK);
    for (size_t i = 0; words[i]; i++)
        buf_printf(&line, "%s%s", i ? " " : "", words[i]);
    strv_free(words);
    assert_string_equal(line.data, wanted);
}

#define TAIL(...) ((char *const[]){(char *)(uintptr_t)__VA_ARGS__, NULL})

static void test_words_to_execute(void **state)
{
    (void)state;
    static char lr[] = "--lr";
    check_words((struct command_form){0}, NULL, TAIL("train.py", lr), "python3 -u train.py --lr");
    check_words((struct command_form){0}, "/venv/python", TAIL("train.py"), "/venv/python -u train.py");
    check_words((struct command_form){0}, NULL, TAIL("python3", lr), "python3 --lr");
    check_words((struct command_form){.module = true}, NULL, TAIL("pkg.train"), "python3 -u -m pkg.train");
    check_words((struct command_form){.no_python = true}, NULL, TAIL("train.py"), "train.py");
    check_words((struct command_form){.run_path = true}, NULL, TAIL("a.zip"), "python3 -u a.zip");
}

static void test_contradictions(void **state)
{
    (void)state;
    struct command_form both = {.module = true, .no_python = true};
    struct err e;
    char **words;
    assert_int_equal(command_words_make(&both, TAIL("x"), NULL, &words, &e), ERR_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "--no-python and --module contradict each other");
    both = (struct command_form){.module = true, .run_path = true};
    assert_int_equal(command_words_make(&both, TAIL("x"), NULL, &words, &e), ERR_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "--module and --run-path contradict each other");
}

static void accept_word(struct command_form form, const char *word, const char *workdir)
{
    struct err e;
    if (command_words_check(&form, word, workdir, false, &e) != ERR_OK)
        fail_msg("%s", e.msg);
}

static void refuse_word(struct command_form form, const char *word, const char *message)
{
    struct err e;
    assert_int_equal(command_words_check(&form, word, home, false, &e), ERR_INVALID_ARGUMENT);
    assert_string_equal(e.msg, message);
}

static void test_scripts(void **state)
{
    (void)state;
    const struct command_form plain = {0}, module = {.module = true}, run_path = {.run_path = true};
    accept_word(plain, "train.py", home);
    accept_word(module, "no_such.py", home);
    /* the nodes may have a directory that is not here */
    accept_word(plain, "train.py", "/no/such/dir");
    accept_word(plain, "/no/such/dir/train.py", home);
    refuse_word(plain, "trian.py",
                "script 'trian.py': no such file (if only the nodes have it, type python3 before it)");
    refuse_word(run_path, "trian",
                "script 'trian': no such file (if only the nodes have it, type python3 before it)");
    struct err e; /* `run` looks for it on this machine */
    assert_int_equal(command_words_check(&plain, "/no/such/dir/trian.py", home, true, &e),
                     ERR_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "script '/no/such/dir/trian.py': no such file");
    refuse_word(plain, "dir.py", "script 'dir.py': is a directory; give a file in it");
    if (geteuid() != 0) /* root reads every file */
        refuse_word(plain, "closed.py", "script 'closed.py': Permission denied; run `chmod +r closed.py`");
}

static void test_programs(void **state)
{
    (void)state;
    const struct command_form plain = {0};
    accept_word(plain, "sh", home);
    accept_word(plain, "only_on_the_nodes", home);
    accept_word(plain, "./job", home);
    refuse_word(plain, "./dir.py/", "'./dir.py/' is a directory; give a script or a command");
    refuse_word(plain, "job",
                "no command 'job' in PATH; a job file's name ends in .yaml, and the program in this "
                "directory is ./job");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_begins_a_command),
        cmocka_unit_test(test_words_to_execute),
        cmocka_unit_test(test_contradictions),
        cmocka_unit_test(test_scripts),
        cmocka_unit_test(test_programs),
    };
    return cmocka_run_group_tests(tests, make_home, remove_home);
}
