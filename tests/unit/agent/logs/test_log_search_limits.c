/* What readers get of searches that fail, and how searches share a turn of the agent's loop. */
#include "tests/unit/agent/logs/log_files.h"
#include "tests/unit/base/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "daemon/agent/logs/log_readers.h"

#define SLOW_LINE "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab\n"
#define SLOW_PATTERN "^found|^((a+)+)+$"

struct fixture {
    char dir[64];
    struct log_readers *logs;
    struct buf got;
    int ends, errors;
    bool full; /* the session accepts nothing */
};

static enum err_code take_chunk(void *ctx, const Ddp__V1__LogChunk *chunk, struct err *e)
{
    struct fixture *d = ctx;

    if (d->full)
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "full");
    buf_append(&d->got, chunk->data.data, chunk->data.len);
    d->ends += chunk->end;
    d->errors += strstr(chunk->error, "takes too long") != NULL;
    return ERR_OK;
}

static bool rank_ended(void *ctx, int64_t job, int64_t generation, int local_rank)
{
    (void)ctx;
    return job == 7 && generation == 2 && local_rank == 0;
}

static int fixture_open(void **state)
{
    struct fixture *d = xcalloc(1, sizeof(*d));
    struct log_readers_options options = {d->dir, "box1", take_chunk, rank_ended, d};

    strcpy(d->dir, "/tmp/ddp-test-logs-XXXXXX");
    d->logs = mkdtemp(d->dir) ? log_readers_create(&options) : NULL;
    *state = d;
    return d->logs ? 0 : -1;
}

static int fixture_close(void **state)
{
    struct fixture *d = *state;
    struct err e;
    enum err_code code = file_remove_tree(d->dir, &e);

    log_readers_free(d->logs);
    buf_release(&d->got);
    free(d);
    return code ? -1 : 0;
}

static void search_log(struct fixture *d, int64_t read, const char *pattern)
{
    Ddp__V1__LogRead q = DDP__V1__LOG_READ__INIT;

    q.read = read;
    q.job = 7;
    q.first_generation = 2;
    q.grep = (char *)pattern;
    log_readers_request(d->logs, &q);
}

static void a_search_that_fails_sends_first_what_it_has_found(void **state)
{
    struct fixture *d = *state;

    log_file_write(d->dir, 0, "stdout.log", "w", "found 1\nother\nfound 2\n" SLOW_LINE "found 3\n");
    search_log(d, 1, SLOW_PATTERN);
    while (log_readers_pump(d->logs))
        ;
    assert_int_equal(d->errors, 1);
    buf_append(&d->got, "", 1);
    assert_string_equal(d->got.data, "found 1\nfound 2\n");
}

/* The failed line must not be joined with the next one, and found to be another. */
static void a_failure_is_told_when_the_session_accepts_it(void **state)
{
    struct fixture *d = *state;

    log_file_write(d->dir, 0, "stdout.log", "w", SLOW_LINE "found\n");
    search_log(d, 1, "^(?=.*bfound)|^((a+)+)+$");
    d->full = true;
    assert_true(log_readers_pump(d->logs));
    d->full = false;
    assert_false(log_readers_pump(d->logs));
    assert_int_equal(d->errors, 1);
    assert_int_equal(d->got.len, 0);
}

#define READERS 8

/* Each of the lines takes as long as a whole turn. */
static void slow_lines_do_not_make_a_turn_long(void **state)
{
    struct fixture *d = *state;
    CLEANUP(buf_release) struct buf line = {0};
    int turns = 1;

    for (int i = 0; i < 60000; i++)
        buf_append(&line, "a", 1);
    buf_printf(&line, "b\n");
    log_file_write(d->dir, 0, "stdout.log", "w", line.data);
    for (int i = 0; i < READERS; i++)
        search_log(d, 1 + i, "[a-z]*+[0-9]");
    while (log_readers_pump(d->logs)) {
        assert_in_range(d->ends, turns == 1 ? 1 : 0, READERS - 1);
        turns++;
    }
    assert_int_equal(d->ends, READERS);
    assert_int_equal(d->errors, READERS);
    assert_true(turns > 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_search_that_fails_sends_first_what_it_has_found, fixture_open,
                                        fixture_close),
        cmocka_unit_test_setup_teardown(a_failure_is_told_when_the_session_accepts_it, fixture_open,
                                        fixture_close),
        cmocka_unit_test_setup_teardown(slow_lines_do_not_make_a_turn_long, fixture_open, fixture_close),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
