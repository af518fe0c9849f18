#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "client/run/launch/launch_message.h"

static void test_place_is_parsed_back(void **state)
{
    (void)state;
    char id[] = "run-1", host[] = "fd00::1", env[] = "/home/a,b/file";
    struct launch_message at = {.rank = 1, .count = 4, .port = 12345, .id = id, .host = host, .env = env},
                          back;
    CLEANUP(free_text) char *text = launch_message_text(&at);
    struct err e;
    assert_string_equal(text, "1,4,12345,run-1,fd00::1,/home/a,b/file");
    assert_int_equal(launch_message_parse(text, &back, &e), ERR_OK);
    assert_int_equal(back.rank, 1);
    assert_int_equal(back.count, 4);
    assert_int_equal(back.port, 12345);
    assert_string_equal(back.id, id);
    assert_string_equal(back.host, host);
    assert_string_equal(back.env, env);
    launch_message_release(&back);
}

static void test_invalid_places_are_refused(void **state)
{
    static const char *const texts[] = {
        "",           "1", "1,2,3,a,b", "4,4,12345,a,b,-", "-2,4,1,a,b,-", "0,4,0,a,b,-", "0,4,99999,a,b,-",
        "x,4,1,a,b,-"};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct launch_message at;
        struct err e;
        assert_int_equal(launch_message_parse(texts[i], &at, &e), ERR_INVALID_ARGUMENT);
    }
}

static void test_fills_what_is_unset(void **state)
{
    (void)state;
    char id[] = "run-1", host[] = "box1", none[] = "";
    struct launch_message at = {.rank = 0, .count = 2, .port = 12345, .id = id, .host = host, .env = none};
    struct run_request l = {.node_rank = -1, .is_host = -1};
    launch_message_apply(&at, &l);
    assert_int_equal(l.nodes_max, 2);
    assert_int_equal(l.node_rank, 0);
    assert_int_equal(l.is_host, 1);
    assert_int_equal(l.port, 12345);
    assert_string_equal(l.host, "box1");
    assert_string_equal(l.id, "run-1");
    run_request_release(&l);
    l = (struct run_request){
        .node_rank = -1, .is_host = -1, .nodes_min = 1, .nodes_max = 2, .id = xstrdup("456")};
    at.rank = -1;
    at.host = none;
    launch_message_apply(&at, &l);
    assert_int_equal(l.nodes_min, 1);
    assert_int_equal(l.node_rank, -1);
    assert_int_equal(l.is_host, -1);
    assert_null(l.host);
    assert_string_equal(l.id, "456");
    run_request_release(&l);
    l = (struct run_request){.node_rank = -1, .is_host = -1};
    at.id = none; /* an id that was typed may have a comma, so it is among the arguments */
    launch_message_apply(&at, &l);
    assert_null(l.id);
    run_request_release(&l);
}

/* A child with this stdin. It exits with 2 if nothing came, and with 3 if something else came. Otherwise it
 * writes a byte to `ready` and waits for the end of its lifeline. */
static pid_t receiver_start(const int lifeline[2], int ready)
{
    char dash[] = "-";
    struct launch_message at = {.env = dash};
    struct err e;
    pid_t pid = fork();
    if (pid)
        return pid;
    dup2(lifeline[0], STDIN_FILENO);
    close(lifeline[0]);
    close(lifeline[1]);
    if (launch_message_receive(&at, &e) != ERR_OK)
        _exit(2);
    const char *token = getenv("DDP_TOKEN"), *path = getenv("PATH");
    if (!token || strcmp(token, "secret") != 0 || !path || strcmp(path, "/a b:/c=d") != 0)
        _exit(3);
    if (write(ready, "", 1) != 1)
        _exit(4);
    while (true)
        pause();
}

static int status_of(pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

/* The lifeline is a socket under sshd, a pipe under other launchers. */
static void receives_and_ends(bool socket, bool before)
{
    char token[] = "DDP_TOKEN=secret", path[] = "PATH=/a b:/c=d", byte;
    char *const environment[] = {token, path, NULL};
    size_t size;
    int lifeline[2], ready[2];
    CLEANUP(free_text) char *packed = launch_message_pack(environment, &size);
    assert_int_equal(socket ? socketpair(AF_UNIX, SOCK_STREAM, 0, lifeline) : pipe(lifeline), 0);
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(write(lifeline[1], packed, size), (ssize_t)size);
    pid_t child = receiver_start(lifeline, ready[1]);
    if (!before)
        assert_int_equal(read(ready[0], &byte, 1), 1);
    close(lifeline[1]);
    int status = status_of(child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGTERM);
    close(lifeline[0]);
    close(ready[0]);
    close(ready[1]);
}

static void test_receives_environment_and_ends_with_the_lifeline(void **state)
{
    (void)state;
    receives_and_ends(false, false);
    receives_and_ends(true, false);
    receives_and_ends(false, true);
    receives_and_ends(true, true);
}

static void test_bytes_on_the_lifeline_are_signals(void **state)
{
    char token[] = "DDP_TOKEN=secret", path[] = "PATH=/a b:/c=d", byte;
    char *const environment[] = {token, path, NULL};
    const char number = SIGUSR1;
    size_t size;
    int lifeline[2], ready[2];
    (void)state;
    CLEANUP(free_text) char *packed = launch_message_pack(environment, &size);
    assert_int_equal(pipe(lifeline), 0);
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(write(lifeline[1], packed, size), (ssize_t)size);
    pid_t child = receiver_start(lifeline, ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(write(lifeline[1], &number, 1), 1);
    int status = status_of(child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGUSR1);
    for (int i = 0; i < 2; i++) {
        close(lifeline[i]);
        close(ready[i]);
    }
}

static void test_launcher_that_died(void **state)
{
    int ends[2];
    (void)state;
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "DDP_TOKEN=sec", 13), 13);
    pid_t child = receiver_start(ends, -1);
    close(ends[1]);
    int status = status_of(child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_place_is_parsed_back),
        cmocka_unit_test(test_invalid_places_are_refused),
        cmocka_unit_test(test_fills_what_is_unset),
        cmocka_unit_test(test_receives_environment_and_ends_with_the_lifeline),
        cmocka_unit_test(test_bytes_on_the_lifeline_are_signals),
        cmocka_unit_test(test_launcher_that_died),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
