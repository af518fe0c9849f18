#include "tests/unit/agent/logs/log_files.h"
#include "tests/unit/base/check.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "daemon/agent/logs/log_tail_sender.h"

struct fixture {
    char dir[64];
    struct log_tail_sender *sender;
    struct buf copy[2]; /* of stdout and stderr of spawn 4, as the coordinator joins the parts */
    int64_t offset[2];
    int64_t sent; /* bytes */
    int messages;
    bool full;
};

static enum err_code take_tail(void *ctx, const Ddp__V1__AgentUp *up, struct err *e)
{
    struct fixture *d = ctx;
    const Ddp__V1__LogTail *m = up->log_tail;
    int64_t covered = 0;

    if (d->full)
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "full");
    assert_int_equal(up->body_case, DDP__V1__AGENT_UP__BODY_LOG_TAIL);
    assert_int_equal(m->job, 7);
    assert_in_range(m->data.len, 1, LOG_TAIL_MOST);
    for (size_t i = 0; i < m->n_run_bytes; i++)
        covered += m->run_bytes[i];
    assert_int_equal(covered, m->data.len);
    d->messages++;
    d->sent += (int64_t)m->data.len;
    if (m->spawn != 4)
        return ERR_OK;
    struct buf *copy = &d->copy[m->standard_error];
    if (m->offset != d->offset[m->standard_error] + (int64_t)copy->len) {
        buf_clear(copy);
        d->offset[m->standard_error] = m->offset;
    }
    buf_append(copy, m->data.data, m->data.len);
    return ERR_OK;
}

static int fixture_open(void **state)
{
    struct fixture *d = xcalloc(1, sizeof(*d));
    struct log_tail_options options = {d->dir, "box1", take_tail, d};

    strcpy(d->dir, "/tmp/ddp-test-tails-XXXXXX");
    d->sender = mkdtemp(d->dir) ? log_tail_sender_create(&options) : NULL;
    *state = d;
    return d->sender ? 0 : -1;
}

static int fixture_close(void **state)
{
    struct fixture *d = *state;
    struct err e;
    enum err_code code = file_remove_tree(d->dir, &e);

    log_tail_sender_free(d->sender);
    buf_release(&d->copy[0]);
    buf_release(&d->copy[1]);
    free(d);
    return code ? -1 : 0;
}

static const struct log_tail_worker one = {7, 4, 2, 0, false}, one_exited = {7, 4, 2, 0, true};

static void what_is_new_is_sent_every_two_seconds(void **state)
{
    struct fixture *d = *state;

    log_file_write(d->dir, 0, "stdout.log", "w", "one\n");
    assert_int_equal(log_tail_sender_run(d->sender, &one, 1, 10000),
                     INT64_MAX); /* the coordinator wants none */
    assert_int_equal(d->messages, 0);
    log_tail_sender_set_rate(d->sender, 100000);
    assert_int_equal(log_tail_sender_run(d->sender, &one, 1, 10000), 12000);
    assert_string_equal(d->copy[0].data, "one\n");
    assert_int_equal(log_tail_sender_age(d->sender, 10500), 500);
    log_file_write(d->dir, 0, "stdout.log", "a", "two\n");
    log_file_write(d->dir, 0, "stderr.log", "w", "oops\n");
    assert_int_equal(log_tail_sender_run(d->sender, &one, 1, 11999), 12000);
    assert_int_equal(d->messages, 1);
    log_tail_sender_run(d->sender, &one, 1, 12000);
    assert_string_equal(d->copy[0].data, "one\ntwo\n");
    assert_string_equal(d->copy[1].data, "oops\n");
    assert_int_equal(d->sent, 13);
    log_tail_sender_run(d->sender, &one, 1, 14000); /* nothing new */
    assert_int_equal(d->messages, 3);
    assert_int_equal(log_tail_sender_age(d->sender, 14000), 0);
}

static void the_end_is_sent_before_the_worker_is_forgotten(void **state)
{
    struct fixture *d = *state;

    log_tail_sender_set_rate(d->sender, 100000);
    log_tail_sender_run(d->sender, &one, 1, 10000);
    log_file_write(d->dir, 0, "stdout.log", "w", "the end\n");
    log_tail_sender_run(d->sender, &one_exited, 1, 10100);
    assert_string_equal(d->copy[0].data, "the end\n");
    d->full = true;
    log_file_write(d->dir, 0, "stderr.log", "w", "a child of it\n");
    log_tail_sender_run(d->sender, NULL, 0, 13000);
    d->full = false;
    log_tail_sender_run(d->sender, NULL, 0, 16000);
    assert_string_equal(d->copy[1].data, "a child of it\n");
    assert_int_equal(log_tail_sender_run(d->sender, NULL, 0, 19000), INT64_MAX); /* it is forgotten */
}

/* Another worker writes more than may be sent, so that no pass is a whole one. */
static void a_worker_is_forgotten_in_an_interrupted_pass(void **state)
{
    struct fixture *d = *state;
    CLEANUP(free_text) char *text = xmalloc(70001);
    const struct log_tail_worker both[] = {one, {7, 5, 2, 1, false}};

    memset(text, 'x', 70000);
    text[70000] = '\0';
    log_tail_sender_set_rate(d->sender, 1000);
    log_file_write(d->dir, 0, "stdout.log", "w", "the end\n");
    log_file_write(d->dir, 1, "stdout.log", "w", text);
    log_tail_sender_run(d->sender, both, 2, 200000);
    assert_string_equal(d->copy[0].data, "the end\n");
    log_file_write(d->dir, 1, "stdout.log", "a", text);
    log_tail_sender_run(d->sender, &both[1], 1, 200200);
    assert_true(log_tail_sender_age(d->sender, 200200) > 0);
    log_file_write(d->dir, 0, "stdout.log", "a", "of nobody\n");
    log_tail_sender_run(d->sender, &both[1], 1, 400000);
    assert_int_equal(log_tail_sender_age(d->sender, 400000), 0);
    assert_string_equal(d->copy[0].data, "the end\n");
}

static void a_fast_writer_is_sent_its_last_part_only(void **state)
{
    struct fixture *d = *state;
    CLEANUP(free_text) char *text = xmalloc((1 << 20) + 1);

    memset(text, 'x', 1 << 20);
    text[1 << 20] = '\0';
    log_tail_sender_set_rate(d->sender, 100000);
    for (int i = 0; i < 10; i++) {
        log_file_write(d->dir, 0, "stdout.log", "a", text);
        log_tail_sender_run(d->sender, &one, 1, 100000 + 2000 * i);
    }
    assert_int_equal(d->offset[0] + (int64_t)d->copy[0].len, 10 << 20);
    assert_int_equal(d->copy[0].len, LOG_TAIL_MOST);
    assert_int_equal(d->sent, 10 * LOG_TAIL_MOST);
}

/* 40 workers that write more than the rate: each gets its turn. */
static void the_rate_is_kept_and_shared(void **state)
{
    struct fixture *d = *state;
    CLEANUP(free_text) char *text = xmalloc(70001);
    struct log_tail_worker workers[40];

    memset(text, 'x', 70000);
    text[70000] = '\0';
    for (int i = 0; i < 40; i++) {
        workers[i] = (struct log_tail_worker){7, i, 2, i, false};
        log_file_write(d->dir, i, "stdout.log", "w", text);
    }
    log_tail_sender_set_rate(d->sender, 65536);
    int64_t now = 100000;
    for (int64_t due; log_tail_sender_age(d->sender, now) < 0; now = due)
        due = log_tail_sender_run(d->sender, workers, 40, now);
    assert_int_equal(d->messages, 40);
    assert_in_range(now - 100000, 36000,
                    44000); /* 40 x 64 KiB at 64 KiB a second, and what had been saved up */
    assert_int_equal(d->copy[0].len, LOG_TAIL_MOST);
}

static void a_new_session_gets_everything_again(void **state)
{
    struct fixture *d = *state;

    log_file_write(d->dir, 0, "stdout.log", "w", "one\n");
    log_tail_sender_set_rate(d->sender, 100000);
    log_tail_sender_run(d->sender, &one, 1, 10000);
    buf_clear(&d->copy[0]);
    log_tail_sender_new_session(d->sender);
    assert_int_equal(log_tail_sender_age(d->sender, 10000), -1);
    assert_int_equal(log_tail_sender_run(d->sender, &one, 1, 10100), INT64_MAX);
    log_tail_sender_set_rate(d->sender, 100000);
    log_tail_sender_run(d->sender, &one, 1, 10200);
    assert_string_equal(d->copy[0].data, "one\n");
    log_file_write(d->dir, 0, "stdout.log", "w", "x\n"); /* the file was replaced by a shorter one */
    log_tail_sender_run(d->sender, &one, 1, 13000);
    assert_string_equal(d->copy[0].data, "x\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_new_is_sent_every_two_seconds, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(a_worker_is_forgotten_in_an_interrupted_pass, fixture_open,
                                        fixture_close),
        cmocka_unit_test_setup_teardown(the_end_is_sent_before_the_worker_is_forgotten, fixture_open,
                                        fixture_close),
        cmocka_unit_test_setup_teardown(a_fast_writer_is_sent_its_last_part_only, fixture_open,
                                        fixture_close),
        cmocka_unit_test_setup_teardown(the_rate_is_kept_and_shared, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(a_new_session_gets_everything_again, fixture_open, fixture_close),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
