#include "tests/unit/base/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "daemon/supervisor/outcome.h"

static int make_dir(void **state)
{
    *state = xstrdup("/tmp/ddp-test-XXXXXX");
    return mkdtemp(*state) ? 0 : -1;
}

static int remove_dir(void **state)
{
    struct err e;
    int rc = file_remove_tree(*state, &e) ? -1 : 0;

    free(*state);
    return rc;
}

static void put_file(const char *dir, const char *name, const char *text)
{
    CLEANUP(free_text) char *path = xasprintf("%s/%s", dir, name);
    struct err e;

    assert_int_equal(file_write_atomic(path, text, strlen(text), 0644, &e), ERR_OK);
}

static void check_message(const char *dir, const char *wanted)
{
    CLEANUP(free_text) char *message = outcome_message(dir);

    if (!wanted)
        assert_null(message);
    else
        assert_string_equal(message, wanted);
}

static void the_last_lines_of_stderr_are_kept(void **state)
{
    CLEANUP(buf_release) struct buf text = {0};

    assert_null(outcome_tail(*state, "stderr.log"));
    for (int i = 0; i < 100; i++)
        buf_printf(&text, "line %d\n", i);
    put_file(*state, "stderr.log", text.data);
    CLEANUP(free_text) char *tail = outcome_tail(*state, "stderr.log");
    assert_int_equal(strncmp(tail, "line 80\n", 8), 0);
    assert_string_equal(strrchr(tail, '\n'), "\nline 99");
}

static void the_message_of_torchruns_error_file_is_read(void **state)
{
    check_message(*state, NULL);
    put_file(*state, "error.json",
             "{\"message\": {\"message\": \"ValueError: bad\\nmore\", \"extraInfo\": {}}}");
    check_message(*state, "ValueError: bad");
    put_file(*state, "error.json", "{\"message\": \"plain\"}");
    check_message(*state, "plain");
    put_file(*state, "error.json", "{\"message\": ");
    check_message(*state, NULL);
    put_file(*state, "error.json", "");
    check_message(*state, NULL);
}

/* A supervisor may be root, and the files that it reads were made by a user. */
static void links_and_fifos_are_not_opened(void **state)
{
    CLEANUP(free_text) char *link = xasprintf("%s/error.json", (char *)*state);
    CLEANUP(free_text) char *fifo = xasprintf("%s/stderr.log", (char *)*state);
    CLEANUP(free_text) char *target = xasprintf("%s/secret", (char *)*state);

    put_file(*state, "secret", "{\"message\": \"secret\"}");
    assert_int_equal(symlink(target, link), 0);
    check_message(*state, NULL);
    assert_int_equal(unlink(link), 0);
    assert_int_equal(mkfifo(link, 0600), 0);
    check_message(*state, NULL);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_null(outcome_tail(*state, "stderr.log"));
}

static void a_busy_port_is_recognized_in_the_last_lines(void **state)
{
    struct spawn_order order = {.master_port = 29512};

    (void)state;
    assert_true(outcome_port_busy(&order, "bind to 0.0.0.0:29512: Address already in use"));
    assert_true(outcome_port_busy(&order, "EADDRINUSE (29512)"));
    assert_false(outcome_port_busy(&order, "bind to 0.0.0.0:29513: Address already in use"));
    assert_false(outcome_port_busy(&order, "step 129512: EADDRINUSE"));
    assert_false(outcome_port_busy(&order, "step 295121: EADDRINUSE"));
    assert_true(outcome_port_busy(&order, "step 129512: port 29512: EADDRINUSE"));
    assert_false(outcome_port_busy(&order, NULL));
    order.master_port = 0; /* another node has rank 0 */
    assert_false(outcome_port_busy(&order, "bind to 0.0.0.0:29512: Address already in use"));
}

static void an_address_in_use_may_be_that_of_the_store(void **state)
{
    struct spawn_order order = {.master_port = 29512, .store = true};

    (void)state;
    assert_true(outcome_address_busy(&order, "OSError: [Errno 98] Address already in use"));
    assert_false(
        outcome_address_busy(&order, "bind to 0.0.0.0:29512: Address already in use")); /* which is known */
    assert_false(outcome_address_busy(&order, "ValueError: no such shard"));
    assert_false(outcome_address_busy(&order, NULL));
    order.store = false;
    assert_false(outcome_address_busy(&order, "OSError: [Errno 98] Address already in use"));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_dir, remove_dir)
    const struct CMUnitTest tests[] = {
        TEST(the_last_lines_of_stderr_are_kept),
        TEST(the_message_of_torchruns_error_file_is_read),
        TEST(links_and_fifos_are_not_opened),
        cmocka_unit_test(a_busy_port_is_recognized_in_the_last_lines),
        cmocka_unit_test(an_address_in_use_may_be_that_of_the_store),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
