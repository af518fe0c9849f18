#include "tests/unit/agent/logs/log_files.h"
#include "tests/unit/base/check.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cut_file.h"
#include "base/file.h"
#include "base/mem.h"
#include "daemon/agent/logs/log_readers.h"

struct fixture {
    char dir[64];
    struct log_readers *logs;
    struct buf got;
    int64_t offset; /* of the last chunk that had data */
    size_t last;    /* the number of bytes in that chunk */
    int chunks;
    bool over, ended, full;
    char error[128];
    int64_t next, size; /* of the last chunk */
    bool within, absent;
};

static enum err_code take_chunk(void *ctx, const Ddp__V1__LogChunk *chunk, struct err *e)
{
    struct fixture *d = ctx;

    if (d->full)
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "full");
    d->chunks++;
    if (chunk->data.len) {
        buf_append(&d->got, chunk->data.data, chunk->data.len);
        d->offset = chunk->offset;
        d->last = chunk->data.len;
    }
    d->over = chunk->end;
    d->next = chunk->next_offset;
    d->within = chunk->within;
    d->absent = chunk->absent;
    d->size = chunk->size;
    snprintf(d->error, sizeof(d->error), "%s", chunk->error);
    return ERR_OK;
}

static bool rank_ended(void *ctx, int64_t job, int64_t generation, int local_rank)
{
    struct fixture *d = ctx;

    assert_true(job == 7 && generation == 2 && local_rank == 1);
    return d->ended;
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

/* For the log that the tests write. */
static Ddp__V1__LogRead read_request(int64_t offset, int64_t limit)
{
    Ddp__V1__LogRead q = DDP__V1__LOG_READ__INIT;

    q.read = 5;
    q.job = 7;
    q.first_generation = 2;
    q.first_local_rank = 1;
    q.offset = offset;
    q.limit = limit;
    return q;
}

static void ask_for_log(struct fixture *d, int64_t offset, int64_t limit, int64_t tail, bool follow)
{
    Ddp__V1__LogRead q = read_request(offset, limit);

    q.tail_bytes = tail;
    q.follow = follow;
    log_readers_request(d->logs, &q);
}

static void a_read_reaches_the_end(void **state)
{
    struct fixture *d = *state;

    log_file_write(d->dir, 1, "stdout.log", "w", "one\ntwo\n");
    ask_for_log(d, 4, 0, 0, false);
    assert_false(log_readers_pump(d->logs));
    assert_string_equal(d->got.data, "two\n");
    assert_int_equal(d->offset, 4);
    assert_true(d->over);
}

static void a_read_returns_at_most_its_limit(void **state)
{
    struct fixture *d = *state;

    log_file_write(d->dir, 1, "stdout.log", "w", "0123456789");
    ask_for_log(d, 0, 4, 0, true);
    assert_false(log_readers_pump(d->logs)); /* nothing is left to send */
    assert_string_equal(d->got.data, "0123");
    assert_false(d->over);
    ask_for_log(d, 4, 100, 0, true);
    d->ended = true;
    assert_false(log_readers_pump(d->logs));
    assert_string_equal(d->got.data, "0123456789");
    assert_true(d->over);
}

/* The rest of the limit may be shorter than the line that stands for a hole, and any job can make a hole:
 * then no byte of the agent's own memory may be sent. */
static void a_hole_does_not_exceed_the_limit(void **state)
{
    struct fixture *d = *state;
    CLEANUP(free_text) char *path = xasprintf("%s/7/generation_2/box1/1/stdout.log", d->dir);

    log_file_write(d->dir, 1, "stdout.log", "w", "");
    assert_int_equal(truncate(path, 1 << 20), 0);
    log_file_write(d->dir, 1, "stdout.log", "a", "end\n");
    ask_for_log(d, 0, 10, 0, true);
    log_readers_pump(d->logs);
    assert_int_equal(d->last, 10);
    assert_memory_equal(d->got.data, "[ddp: 000\n", 10);
    d->ended = true;
    ask_for_log(d, d->offset + (int64_t)d->last, 0, 0, true);
    log_readers_pump(d->logs);
    assert_string_equal(d->got.data, "[ddp: 000\nend\n");
}

static void a_tail_starts_before_the_end(void **state)
{
    struct fixture *d = *state;

    log_file_write(d->dir, 1, "stdout.log", "w", "0123456789");
    ask_for_log(d, 0, 0, 3, false);
    log_readers_pump(d->logs);
    assert_string_equal(d->got.data, "789");
    assert_int_equal(d->offset, 7);
}

static void follow_handles_absence_growth_rotation_and_the_end(void **state)
{
    struct fixture *d = *state;

    ask_for_log(d, 0, 0, 0, true);
    assert_true(log_readers_pump(d->logs)); /* no file yet */
    log_file_write(d->dir, 1, "stdout.log", "w", "one\n");
    assert_true(log_readers_pump(d->logs));
    log_file_write(d->dir, 1, "stdout.log", "a", "two\n");
    assert_true(log_readers_pump(d->logs));
    assert_string_equal(d->got.data, "one\ntwo\n");
    log_file_write(d->dir, 1, "stdout.log", "w", "new\n"); /* the file was replaced by a shorter one */
    assert_true(log_readers_pump(d->logs));
    assert_string_equal(d->got.data, "one\ntwo\nnew\n");
    log_file_write(d->dir, 1, "stdout.log", "a", "last\n");
    d->ended = true;
    assert_false(log_readers_pump(d->logs));
    assert_string_equal(d->got.data, "one\ntwo\nnew\nlast\n");
    assert_true(d->over);
    assert_int_equal(log_readers_pump(d->logs), false);
}

static void a_missing_log_is_reported(void **state)
{
    struct fixture *d = *state;

    ask_for_log(d, 0, 0, 0, false);
    log_readers_pump(d->logs);
    assert_true(d->over && d->absent);
    assert_non_null(strstr(d->error, "no such log"));
}

static void the_end_tells_the_size_of_the_log(void **state)
{
    struct fixture *d = *state;

    log_file_write(d->dir, 1, "stdout.log", "w", "0123456789");
    ask_for_log(d, 10, 0, 0, false);
    log_readers_pump(d->logs);
    assert_true(d->over && !d->absent);
    assert_int_equal(d->size, 10);
}

static void ask_for_lines(struct fixture *d, const char *pattern, int64_t offset, bool within, int64_t limit)
{
    Ddp__V1__LogRead q = read_request(offset, limit);

    q.within = within;
    q.grep = (char *)pattern;
    log_readers_request(d->logs, &q);
}

/* A long search takes several turns, and a long line several requests. Every second request meets an agent that was started again. */
static void a_search_goes_on_over_turns_and_requests(void **state)
{
    struct fixture *d = *state;
    CLEANUP(buf_release) struct buf text = {0}, wanted = {0};

    d->ended = true;
    for (int i = 0; text.len < 8 << 20; i++)
        if (i % 20000)
            buf_printf(&text, "line %d without anything\n", i);
        else
            buf_printf(&text, "found %d %0300d\n", i, 0);
    for (const char *at = text.data; (at = strstr(at, "found")); at = strchr(at, '\n'))
        buf_append(&wanted, at, (size_t)(strchr(at, '\n') + 1 - at));
    log_file_write(d->dir, 1, "stdout.log", "w", text.data);
    int turns = 0;
    while (!d->over) {
        ask_for_lines(d, "^found", d->next, d->within, 100);
        if (turns % 2)
            log_readers_drop_all(d->logs);
        if (turns++ % 2)
            ask_for_lines(d, "^found", d->next, d->within, 100);
        while (log_readers_pump(d->logs))
            turns += 2;
    }
    assert_int_equal(d->got.len, wanted.len);
    assert_memory_equal(d->got.data, wanted.data, wanted.len);
    assert_in_range(turns, wanted.len / 100, 100000);
}

static void one_turn_searches_a_limited_part(void **state)
{
    struct fixture *d = *state;
    CLEANUP(free_text) char *text = xmalloc((100 << 20) + 1);

    memset(text, 'a', 100 << 20); /* one line, and an expression that is slow for each byte of it */
    text[100 << 20] = '\0';
    log_file_write(d->dir, 1, "stdout.log", "w", text);
    ask_for_lines(d, "(a|b)*c(a|b){100}", 0, false, 0);
    assert_true(log_readers_pump(d->logs));
    assert_false(d->over);
    ask_for_lines(d, "x|a$", 0, false, 0);
    while (log_readers_pump(d->logs))
        d->got.len = d->over ? d->got.len : 0;
    assert_true(d->over);
    assert_string_equal(d->error, "");
}

static void a_bad_expression_is_refused(void **state)
{
    struct fixture *d = *state;

    ask_for_lines(d, "a(", 0, false, 0);
    assert_true(d->over);
    assert_non_null(strstr(d->error, "missing closing parenthesis"));
    assert_false(log_readers_pump(d->logs));
    assert_int_equal(d->chunks, 1);
}

static void searches_on_a_node_are_limited(void **state)
{
    struct fixture *d = *state;
    Ddp__V1__LogRead q = DDP__V1__LOG_READ__INIT;
    char pattern[32];

    for (int i = 0; i < 40; i++) {
        q.read = 100 + i;
        snprintf(pattern, sizeof(pattern), "%d", i / 2); /* two readers of one pattern share it */
        q.grep = pattern;
        log_readers_request(d->logs, &q);
        assert_int_equal(d->over, i >= 32);
    }
    assert_non_null(strstr(d->error, "try again later"));
    q.read = 100;
    q.cancel = true;
    log_readers_request(d->logs, &q);
    q.read++;
    log_readers_request(d->logs, &q);
    q.cancel = d->over = false;
    log_readers_request(d->logs, &q);
    assert_false(d->over);
}

static void a_full_stream_loses_nothing(void **state)
{
    struct fixture *d = *state;

    log_file_write(d->dir, 1, "stdout.log", "w", "0123456789");
    d->full = true;
    ask_for_log(d, 0, 0, 0, false);
    assert_true(log_readers_pump(d->logs));
    assert_int_equal(d->chunks, 0);
    d->full = false;
    assert_false(log_readers_pump(d->logs));
    assert_string_equal(d->got.data, "0123456789");
    assert_true(d->over);
}

static void a_cancelled_read_sends_nothing(void **state)
{
    struct fixture *d = *state;
    Ddp__V1__LogRead q = DDP__V1__LOG_READ__INIT;

    ask_for_log(d, 0, 0, 0, true);
    q.read = 5;
    q.cancel = true;
    log_readers_request(d->logs, &q);
    assert_false(log_readers_pump(d->logs));
    assert_int_equal(d->chunks, 0);
}

static char *log_path(struct fixture *d)
{
    return xasprintf("%s/7/generation_2/box1/1/stdout.log", d->dir);
}

/* Asks from the offset at which the last chunk ended, as the coordinator does. */
static void a_part_that_was_cut_out_is_skipped(void **state)
{
    struct fixture *d = *state;
    CLEANUP(buf_release) struct buf text = {0};
    CLEANUP(free_text) char *path = log_path(d);
    CLEANUP(close_fd) int fd = -1;
    int64_t left_out;
    struct err e;
    enum err_code code;

    for (int i = 0; text.len < 4 << 20; i++)
        buf_printf(&text, "line %08d\n", i);
    log_file_write(d->dir, 1, "stdout.log", "w", text.data);
    fd = open(path, O_RDWR | O_CLOEXEC);
    code = cut_file_middle(fd, 100 << 10, 200 << 10, &left_out, &e);
    if (code == ERR_UNIMPLEMENTED)
        skip();
    assert_ok(code, &e);
    d->ended = true;
    for (int64_t at = 0; !d->over; at = d->offset + (int64_t)d->last) {
        d->full = d->chunks == 2; /* the stream refused this chunk once, so it was sent again */
        ask_for_log(d, at, 64 << 10, 0, true);
        log_readers_pump(d->logs);
        d->full = false;
        log_readers_pump(d->logs);
    }
    assert_null(memchr(d->got.data, 0, d->got.len));
    CLEANUP(free_text)
    char *said =
        xasprintf("\n[ddp: %015lld bytes of this log are left out here]\nline ", (long long)left_out);
    assert_non_null(strstr(d->got.data, said));
    assert_int_equal(d->got.len, text.len - (size_t)left_out + strlen(said) - strlen("\nline "));
    assert_int_equal(memcmp(d->got.data + d->got.len - 14, text.data + text.len - 14, 14), 0);
}

static void says_nothing_of_it(struct fixture *d)
{
    buf_clear(&d->got);
    d->over = false;
    ask_for_log(d, 0, 0, 0, false);
    log_readers_pump(d->logs);
    assert_int_equal(d->got.len, 0);
    assert_true(d->over);
    assert_true(d->error[0]);
    assert_int_equal(d->absent, strstr(d->error, "no such log") != NULL);
}

/* The agent may be root, and a log's directory belongs to the job's user. */
static void only_plain_files_are_read_as_logs(void **state)
{
    struct fixture *d = *state;
    CLEANUP(free_text) char *path = log_path(d);
    CLEANUP(free_text) char *leaf = xasprintf("%s/7/generation_2/box1/1", d->dir);
    CLEANUP(free_text) char *moved = xasprintf("%s/moved", d->dir);
    CLEANUP(free_text) char *secret = xasprintf("%s/secret", d->dir);
    struct err e;

    log_file_write(d->dir, 1, "stdout.log", "w", "x");
    assert_int_equal(unlink(path), 0);
    assert_ok(file_write_atomic(secret, "root:secret\n", 12, 0600, &e), &e);
    assert_int_equal(symlink(secret, path), 0);
    says_nothing_of_it(d);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    says_nothing_of_it(d);
    assert_int_equal(unlink(path), 0);
    if (!geteuid()) {
        assert_int_equal(link(secret, path), 0);
        assert_int_equal(chown(leaf, 65534, 65534), 0);
        says_nothing_of_it(d);
        assert_int_equal(unlink(path), 0);
    }
    log_file_write(d->dir, 1, "stdout.log", "w", "another's\n");
    assert_int_equal(rename(leaf, moved), 0);
    assert_int_equal(symlink(moved, leaf), 0); /* a link on the way */
    says_nothing_of_it(d);
}

/* The supervisor of an agent that is root makes the files before it gives the directory away. */
static void a_log_that_is_being_made_is_waited_for(void **state)
{
    struct fixture *d = *state;
    CLEANUP(free_text) char *path = log_path(d);
    CLEANUP(free_text) char *leaf = xasprintf("%s/7/generation_2/box1/1", d->dir);

    if (geteuid())
        return;
    log_file_write(d->dir, 1, "stdout.log", "w", "hello\n");
    assert_int_equal(chown(path, 65534, 65534), 0);
    ask_for_log(d, 0, 0, 0, true);
    log_readers_pump(d->logs);
    assert_false(d->over);
    assert_int_equal(d->got.len, 0);
    assert_int_equal(chown(leaf, 65534, 65534), 0);
    log_readers_pump(d->logs);
    assert_int_equal(d->got.len, strlen("hello\n"));
    assert_false(d->over);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_read_reaches_the_end, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(a_read_returns_at_most_its_limit, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(a_hole_does_not_exceed_the_limit, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(a_tail_starts_before_the_end, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(follow_handles_absence_growth_rotation_and_the_end, fixture_open,
                                        fixture_close),
        cmocka_unit_test_setup_teardown(a_missing_log_is_reported, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(the_end_tells_the_size_of_the_log, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(a_search_goes_on_over_turns_and_requests, fixture_open,
                                        fixture_close),
        cmocka_unit_test_setup_teardown(one_turn_searches_a_limited_part, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(a_bad_expression_is_refused, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(searches_on_a_node_are_limited, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(a_full_stream_loses_nothing, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(a_part_that_was_cut_out_is_skipped, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(only_plain_files_are_read_as_logs, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(a_log_that_is_being_made_is_waited_for, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(a_cancelled_read_sends_nothing, fixture_open, fixture_close),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
