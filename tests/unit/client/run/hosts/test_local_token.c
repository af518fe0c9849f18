#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "client/run/hosts/local_token.h"

static char home[] = "/tmp/ddp-test-XXXXXX";

static int make_home(void **state)
{
    (void)state;
    unsetenv("XDG_STATE_HOME");
    return !mkdtemp(home) || setenv("HOME", home, 1);
}

static int remove_home(void **state)
{
    (void)state;
    struct err e;
    return file_remove_tree(home, &e) != ERR_OK;
}

static void test_token_is_made_once_and_private(void **state)
{
    (void)state;
    CLEANUP(free_text) char *path = local_token_file();
    CLEANUP(free_text) char *first = NULL;
    CLEANUP(free_text) char *second = NULL;
    struct stat st;
    struct err e;
    assert_int_equal(local_token_get(&first, &e), ERR_OK);
    assert_int_equal(strlen(first), 64);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(local_token_get(&second, &e), ERR_OK);
    assert_string_equal(first, second);
    assert_int_equal(chmod(path, 0644), 0);
    assert_int_equal(local_token_get(&second, &e), ERR_PERMISSION_DENIED);
    assert_int_equal(unlink(path), 0);
}

/* Whoever owns the file knows the token, whatever its mode is. */
static void test_token_file_of_another_user(void **state)
{
    (void)state;
    CLEANUP(free_text) char *path = local_token_file();
    char *token = NULL;
    struct err e;
    if (geteuid() != 0)
        skip(); /* only root can give a file away */
    assert_int_equal(local_token_get(&token, &e), ERR_OK);
    free(token);
    assert_int_equal(chown(path, 1, (gid_t)-1), 0);
    assert_int_equal(local_token_get(&token, &e), ERR_PERMISSION_DENIED);
    assert_non_null(strstr(e.msg, "belongs to uid 1, not to this user: remove the file"));
    assert_int_equal(unlink(path), 0);
}

static void check_one_race(void)
{
    enum { COUNT = 8 };
    char token[COUNT][65] = {{0}};
    int pipes[COUNT][2], start[2];
    assert_int_equal(pipe(start), 0);
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(pipe(pipes[i]), 0);
        if (fork() == 0) {
            char *mine, byte;
            struct err e;
            close(start[1]);
            if (read(start[0], &byte, 1) != 0) /* until the parent closes its end */
                _exit(1);
            _exit(local_token_get(&mine, &e) == ERR_OK && write(pipes[i][1], mine, 64) == 64 ? 0 : 1);
        }
        close(pipes[i][1]);
    }
    close(start[0]);
    close(start[1]);
    for (int i = 0, status; i < COUNT; i++) {
        assert_true(wait(&status) > 0);
        assert_int_equal(status, 0);
    }
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(read(pipes[i][0], token[i], 64), 64);
        assert_string_equal(token[i], token[0]);
        close(pipes[i][0]);
    }
}

/* Processes that start together find one token. */
static void test_token_of_a_race(void **state)
{
    (void)state;
    CLEANUP(free_text) char *path = local_token_file();
    for (int i = 0; i < 20; i++) {
        check_one_race();
        assert_int_equal(unlink(path), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_token_is_made_once_and_private),
        cmocka_unit_test(test_token_file_of_another_user),
        cmocka_unit_test(test_token_of_a_race),
    };
    return cmocka_run_group_tests(tests, make_home, remove_home);
}
