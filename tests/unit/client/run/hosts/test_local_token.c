#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "client/interrupts.h"
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

#define HEAD                                                                                                 \
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
#define ROW(address, port, state, uid)                                                                       \
    "   0: " address ":" port " 00000000:0000 " state " 00000000:00000000 00:00000000 00000000  " uid        \
    "        0 123 1 0 100 0 0 10 0\n"

static void test_owner_of_a_port(void **state)
{
    (void)state;
    static const struct {
        const char *table;
        enum port_owner owner;
    } cases[] = {
        {HEAD, PORT_OF_NOBODY},
        {"", PORT_OF_NOBODY},
        {HEAD ROW("0100007F", "72D8", "0A", "1000"), PORT_OF_THIS_USER},
        {HEAD ROW("00000000", "72D8", "0A", "1000"), PORT_OF_THIS_USER},
        {HEAD ROW("0100007F", "72D8", "0A", "   7"), PORT_OF_ANOTHER},
        {HEAD ROW("00000000000000000000000001000000", "72D8", "0A", "7"), PORT_OF_ANOTHER},
        {HEAD ROW("0000000000000000FFFF00000100007F", "72D8", "0A", "7"), PORT_OF_ANOTHER},
        {HEAD ROW("00000000000000000000000000000000", "72D8", "0A", "1000"), PORT_OF_THIS_USER},
        /* a connection, another port, and an address of the network do not count */
        {HEAD ROW("0100007F", "72D8", "01", "7") ROW("0100007F", "72D9", "0A", "7")
             ROW("0200A8C0", "72D8", "0A", "7"),
         PORT_OF_NOBODY},
        /* one listener of another user is enough */
        {HEAD ROW("0100007F", "72D8", "0A", "1000") ROW("00000000", "72D8", "0A", "7"), PORT_OF_ANOTHER},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_int_equal(local_port_owner_in(cases[i].table, 29400, 1000), cases[i].owner);
}

static void raise_interrupt(int number)
{
    (void)number;
    raise(SIGINT);
}

/* A signal that asks ddpctl to end ends the look in the middle of a long table. It may also come just before or
 * after a look, so there are several attempts. */
static void test_interrupted_look(void **state)
{
    (void)state;
    enum { ROWS = 20000, ATTEMPTS = 50 };
    const struct itimerval soon = {.it_value = {.tv_usec = 1000}};
    CLEANUP(buf_release) struct buf table = {0};
    enum port_owner owner = PORT_OF_THIS_USER;
    buf_puts(&table, HEAD);
    for (int i = 0; i < ROWS; i++)
        buf_puts(&table, ROW("0100007F", "1F90", "01", "1000"));
    buf_puts(&table, ROW("0100007F", "72D8", "0A", "1000"));
    buf_putc(&table, 0);
    assert_int_equal(local_port_owner_in(table.data, 29400, 1000), PORT_OF_THIS_USER);
    interrupts_catch_these((const int[]){SIGINT, 0});
    assert_true(signal(SIGALRM, raise_interrupt) != SIG_ERR);
    for (int i = 0; i < ATTEMPTS && owner == PORT_OF_THIS_USER; i++) {
        const int before = interrupts_count();
        assert_int_equal(setitimer(ITIMER_REAL, &soon, NULL), 0);
        while (interrupts_count() == before && owner == PORT_OF_THIS_USER)
            owner = local_port_owner_in(table.data, 29400, 1000);
    }
    assert_int_equal(owner, PORT_OF_NOBODY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_token_is_made_once_and_private),
        cmocka_unit_test(test_token_file_of_another_user),
        cmocka_unit_test(test_token_of_a_race),
        cmocka_unit_test(test_owner_of_a_port),
        cmocka_unit_test(test_interrupted_look),
    };
    return cmocka_run_group_tests(tests, make_home, remove_home);
}
