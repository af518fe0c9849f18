#include "tests/unit/base/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "daemon/agent/preflight/check_place.h"

#define TEXT(s) ((char *)(uintptr_t)(s))

struct place {
    char dir[64];
    Ddp__V1__CheckPlace ask;
    Ddp__V1__CheckPlaceResult got;
};

static int open_place(void **state)
{
    struct place *p = xcalloc(1, sizeof(*p));

    strcpy(p->dir, "/tmp/ddp-test-check-XXXXXX");
    ddp__v1__check_place__init(&p->ask);
    *state = p;
    return mkdtemp(p->dir) ? 0 : -1;
}

static int close_place(void **state)
{
    struct place *p = *state;
    struct err e;

    (void)!chdir("/");
    assert_int_equal(file_remove_tree(p->dir, &e), ERR_OK);
    free(p);
    return 0;
}

static void put_file(const struct place *p, const char *name, const char *text, size_t size)
{
    CLEANUP(free_text) char *path = xasprintf("%s/%s", p->dir, name);
    struct err e;

    assert_int_equal(file_write_atomic(path, text, size, 0644, &e), ERR_OK);
}

static void data_differs_by_content_and_by_name(void **state)
{
    struct place *p = *state;
    char *paths[] = {p->dir}, first[80];

    p->ask.paths = paths;
    p->ask.n_paths = 1;
    p->ask.hash = true;
    put_file(p, "a", "123", 3);
    put_file(p, "b", "45", 2);
    struct check_place *c = check_place_look(&p->ask, &p->got);
    assert_string_equal(p->got.paths[0]->problem, "");
    assert_int_equal(p->got.paths[0]->files, 2);
    assert_int_equal(p->got.paths[0]->bytes, 5);
    assert_false(p->got.paths[0]->sampled);
    strcpy(first, p->got.paths[0]->digest);
    check_place_free(c);

    c = check_place_look(&p->ask, &p->got);
    assert_string_equal(p->got.paths[0]->digest, first);
    check_place_free(c);

    put_file(p, "b", "46", 2);
    c = check_place_look(&p->ask, &p->got);
    assert_string_not_equal(p->got.paths[0]->digest, first);
    check_place_free(c);

    p->ask.hash = false;
    c = check_place_look(&p->ask, &p->got);
    assert_string_equal(p->got.paths[0]->digest, "");
    assert_int_equal(p->got.paths[0]->bytes, 5);
    check_place_free(c);
}

static void large_files_are_sampled_in_three_places(void **state)
{
    struct place *p = *state;
    size_t size = 9 << 20;
    char *text = xcalloc(1, size), *paths[] = {p->dir}, first[80];

    p->ask.paths = paths;
    p->ask.n_paths = 1;
    p->ask.hash = true;
    put_file(p, "big", text, size);
    struct check_place *c = check_place_look(&p->ask, &p->got);
    assert_true(p->got.paths[0]->sampled);
    strcpy(first, p->got.paths[0]->digest);
    check_place_free(c);
    text[size - 1] = 1;
    put_file(p, "big", text, size);
    c = check_place_look(&p->ask, &p->got);
    assert_string_not_equal(p->got.paths[0]->digest, first);
    check_place_free(c);
    free(text);
}

/* More data than a check reads: the first files by name are read, of the others only the sizes count. */
static void of_much_data_only_the_first_files_are_read(void **state)
{
    struct place *p = *state;
    char *paths[] = {p->dir}, first[80], name[128];

    p->ask.paths = paths;
    p->ask.n_paths = 1;
    p->ask.hash = true;
    for (int i = 0; i < 17; i++) {
        snprintf(name, sizeof(name), "%s/%02d", p->dir, i);
        put_file(p, name + strlen(p->dir) + 1, "", 0);
        assert_int_equal(truncate(name, 8 << 20), 0);
    }
    struct check_place *c = check_place_look(&p->ask, &p->got);
    assert_true(p->got.paths[0]->sampled);
    assert_int_equal(p->got.paths[0]->bytes, (int64_t)17 * (8 << 20));
    strcpy(first, p->got.paths[0]->digest);
    check_place_free(c);
    assert_int_equal(truncate(name, (8 << 20) - 1), 0); /* the last file */
    c = check_place_look(&p->ask, &p->got);
    assert_string_not_equal(p->got.paths[0]->digest, first);
    check_place_free(c);
}

static void scripts_are_compared_by_content_without_being_asked(void **state)
{
    struct place *p = *state;
    char *command[] = {TEXT("sh"), TEXT("train.py")};
    char first[65];

    put_file(p, "train.py", "lr = 0.1", 8);
    p->ask.workdir = p->dir;
    p->ask.command = command;
    p->ask.n_command = 2;
    struct check_place *c = check_place_look(&p->ask, &p->got);
    assert_int_equal(snprintf(first, sizeof(first), "%s", p->got.paths[0]->digest), 64);
    check_place_free(c);

    put_file(p, "train.py", "lr = 0.2", 8);
    c = check_place_look(&p->ask, &p->got);
    assert_int_equal(p->got.paths[0]->bytes, 8);
    assert_string_not_equal(p->got.paths[0]->digest, first);
    check_place_free(c);
}

static void of_many_scripts_only_the_first_are_read(void **state)
{
    struct place *p = *state;
    enum { FILES = 18, READ = 16 };
    char *text = xcalloc(1, 1 << 20), *command[1 + FILES + 1] = {TEXT("sh")}, names[FILES][8];

    for (int i = 0; i < FILES; i++) {
        snprintf(names[i], sizeof(names[i]), "%02d.py", i);
        put_file(p, names[i], text, 1 << 20);
        command[1 + i] = names[i];
    }
    p->ask.workdir = p->dir;
    p->ask.command = command;
    p->ask.n_command = 1 + FILES;
    struct check_place *c = check_place_look(&p->ask, &p->got);
    for (int i = 0; i < FILES; i++) {
        assert_int_equal(strlen(p->got.paths[i]->digest), i < READ ? 64 : 0);
        assert_int_equal(p->got.paths[i]->bytes, 1 << 20);
    }
    check_place_free(c);

    p->ask.hash = true; /* asked for, all are read */
    c = check_place_look(&p->ask, &p->got);
    assert_int_equal(strlen(p->got.paths[FILES - 1]->digest), 64);
    check_place_free(c);
    free(text);
}

static void missing_files_are_named(void **state)
{
    struct place *p = *state;
    CLEANUP(free_text) char *gone = xasprintf("%s/gone", p->dir);
    CLEANUP(free_text) char *below = xasprintf("%s/file/out", p->dir);
    CLEANUP(free_text) char *fine = xasprintf("%s/new/deep", p->dir);
    char *paths[] = {gone}, *writable[] = {below, fine};
    char *command[] = {TEXT("no-such-interpreter"), TEXT("-m"), TEXT("train.py"), TEXT("words")};

    put_file(p, "file", "x", 1);
    p->ask.workdir = gone;
    p->ask.paths = paths;
    p->ask.n_paths = 1;
    p->ask.writable = writable;
    p->ask.n_writable = 2;
    p->ask.command = command;
    p->ask.n_command = 4;
    struct check_place *c = check_place_look(&p->ask, &p->got);
    assert_non_null(strstr(p->got.workdir_problem, "/gone: does not exist"));
    assert_string_equal(p->got.interpreter_problem, "no-such-interpreter: not found in PATH");
    assert_int_equal(p->got.n_paths, 2); /* the script as well; "-m" and "words" are not files */
    assert_string_equal(p->got.paths[0]->problem, "does not exist");
    assert_non_null(strstr(p->got.paths[1]->path, "/gone/train.py"));
    assert_int_equal(p->got.n_problems, 1);
    assert_non_null(strstr(p->got.problems[0], "/file/out cannot be written"));
    assert_true(p->got.memory_bytes > 0 && p->got.memory_free > 0 && p->got.disk_free > 0);
    check_place_free(c);
}

static void the_jobs_own_path_finds_the_interpreter(void **state)
{
    struct place *p = *state;
    CLEANUP(free_text) char *program = xasprintf("%s/python-x", p->dir);
    CLEANUP(free_text) char *path = xasprintf("PATH=%s", p->dir);
    static const char script[] = "#!/bin/sh\necho Python 9.9\necho more\n";
    char *env[] = {path}, *command[] = {TEXT("python-x")};
    CLEANUP(free_text) char *before = xstrdup(getenv("PATH"));

    put_file(p, "python-x", script, sizeof(script) - 1);
    assert_int_equal(chmod(program, 0755), 0);
    p->ask.workdir = p->dir;
    p->ask.env = env;
    p->ask.n_env = 1;
    p->ask.command = command;
    p->ask.n_command = 1;
    p->ask.hash = true;
    struct check_place *c = check_place_look(&p->ask, &p->got);
    assert_string_equal(p->got.interpreter, program);
    assert_string_equal(p->got.interpreter_version, "Python 9.9");
    check_place_free(c);
    setenv("PATH", before, 1);
}

int main(void)
{
#define PLACE(test) cmocka_unit_test_setup_teardown(test, open_place, close_place)
    const struct CMUnitTest tests[] = {
        PLACE(data_differs_by_content_and_by_name),
        PLACE(large_files_are_sampled_in_three_places),
        PLACE(of_much_data_only_the_first_files_are_read),
        PLACE(missing_files_are_named),
        PLACE(scripts_are_compared_by_content_without_being_asked),
        PLACE(of_many_scripts_only_the_first_are_read),
        PLACE(the_jobs_own_path_finds_the_interpreter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
