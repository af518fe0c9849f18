/* Notices: they are part of their event's commit, each hook has its own in order, and old ones can be found. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "store/backup.h"
#include "store/notices.h"
#include "store_test.h"

static int notices_setup(void **state)
{
    *state = make_dir();
    return 0;
}

static int notices_teardown(void **state)
{
    remove_dir(*state);
    return 0;
}

static void write_notice(struct store *s, const char *hook, int64_t time_ms)
{
    struct notice_record notice = {.time_ms = time_ms,
                                   .job = 7,
                                   .generation = 2,
                                   .hook = T(hook),
                                   .what = T("failed"),
                                   .text = T("rank 1 was killed by signal 9"),
                                   .name = T("gpt"),
                                   .user = T("ana"),
                                   .url = T("https://ntfy.sh/x"),
                                   .shape = 3};
    const struct change change = {.kind = CHANGE_NOTICE, .notice = &notice};
    must_commit(s, &change, 1);
}

static int64_t next_time(struct store *s, const char *hook, int64_t *after)
{
    struct notice_record got;
    struct err e = {0};
    assert_int_equal(store_notice_next(s, hook, *after, &got, &e), ERR_OK);
    const int64_t time_ms = got.time_ms;
    *after = got.id;
    notice_record_release(&got);
    return time_ms;
}

static void each_hook_reads_its_own_in_order_after_a_reopen(void **state)
{
    struct store *s = must_open(*state);
    struct notice_queue *queues;
    struct notice_record got;
    size_t count;
    struct err e = {0};
    int64_t after = 0;
    write_notice(s, "mail", 10);
    write_notice(s, "chat", 20);
    write_notice(s, "mail", 30);
    store_close(s);
    s = must_open(*state);
    assert_int_equal(store_notice_queues(s, &queues, &count, &e), ERR_OK);
    assert_int_equal(count, 2);
    assert_string_equal(queues[1].hook, "mail");
    assert_int_equal(queues[1].waiting, 2);
    store_notice_queues_free(queues, count);
    assert_int_equal(store_notice_next(s, "mail", 0, &got, &e), ERR_OK);
    assert_int_equal(got.time_ms, 10);
    assert_int_equal(got.job, 7);
    assert_int_equal(got.generation, 2);
    assert_string_equal(got.what, "failed");
    assert_string_equal(got.name, "gpt");
    assert_string_equal(got.user, "ana");
    assert_string_equal(got.node, "");
    assert_string_equal(got.url, "https://ntfy.sh/x");
    assert_int_equal(got.shape, 3);
    after = got.id;
    notice_record_release(&got);
    assert_int_equal(next_time(s, "mail", &after), 30);
    assert_int_equal(next_time(s, "mail", &after), 0);
    store_close(s);
}

static void delivered_notices_are_deleted_up_to_an_id(void **state)
{
    struct store *s = must_open(*state);
    struct err e = {0};
    int64_t after = 0, deleted, start = 0;
    write_notice(s, "mail", 10);
    write_notice(s, "chat", 20);
    write_notice(s, "mail", 30);
    next_time(s, "mail", &after);
    assert_int_equal(store_notices_delete(s, "mail", after, &deleted, &e), ERR_OK);
    assert_int_equal(deleted, 1);
    assert_int_equal(next_time(s, "mail", &start), 30);
    start = 0;
    assert_int_equal(next_time(s, "chat", &start), 20);
    store_close(s);
}

static void several_hooks_are_deleted_at_once(void **state)
{
    struct store *s = must_open(*state);
    struct err e = {0};
    int64_t mail = 0, chat = 0, start = 0;
    write_notice(s, "mail", 10);
    write_notice(s, "chat", 20);
    write_notice(s, "mail", 30);
    write_notice(s, "chat", 40);
    next_time(s, "mail", &mail);
    next_time(s, "chat", &chat);
    const struct notice_mark marks[] = {{"mail", mail}, {"chat", chat}};
    assert_int_equal(store_notices_delete_each(s, marks, 2, &e), ERR_OK);
    store_close(s);
    s = must_open(*state);
    assert_int_equal(next_time(s, "mail", &start), 30);
    start = 0;
    assert_int_equal(next_time(s, "chat", &start), 40);
    store_close(s);
}

static void too_many_and_too_old_ones_are_found(void **state)
{
    struct store *s = must_open(*state);
    struct err e = {0};
    int64_t last, deleted, after = 0;
    for (int64_t i = 1; i <= 10; i++)
        write_notice(s, "mail", i);
    assert_int_equal(store_notices_excess(s, "mail", 10, 0, &last, &e), ERR_OK);
    assert_int_equal(last, 0);
    assert_int_equal(store_notices_excess(s, "mail", 4, 0, &last, &e), ERR_OK);
    assert_int_equal(store_notices_delete(s, "mail", last, &deleted, &e), ERR_OK);
    assert_int_equal(deleted, 6);
    assert_int_equal(next_time(s, "mail", &after), 7);
    assert_int_equal(store_notices_excess(s, "mail", 10, 9, &last, &e), ERR_OK); /* older than 9: 7 and 8 */
    assert_int_equal(store_notices_delete(s, "mail", last, &deleted, &e), ERR_OK);
    assert_int_equal(deleted, 2);
    store_close(s);
}

static void a_backup_has_them(void **state)
{
    struct store *s = must_open(*state);
    CLEANUP(free_text) char *file = xasprintf("%s/copy.db", (char *)*state);
    CLEANUP(buf_release) struct buf said = {0};
    struct err e = {0};
    int64_t after = 0, lost = 0, deleted;
    write_notice(s, "mail", 10);
    if (backup_make(*state, file, NULL, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    write_notice(s, "chat", 20);
    next_time(s, "chat", &lost);
    assert_int_equal(store_notices_delete(s, "mail", 100, &deleted, &e), ERR_OK);
    store_close(s);
    if (backup_restore(*state, file, &said, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    s = must_open(*state);
    assert_int_equal(next_time(s, "mail", &after), 10);
    assert_true(after < lost); /* the same id again */
    write_notice(s, "chat", 30);
    after = 0;
    assert_int_equal(next_time(s, "chat", &after), 30);
    assert_true(after > lost); /* another notice has another id, although the database does not know the lost one */
    store_close(s);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, notices_setup, notices_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(each_hook_reads_its_own_in_order_after_a_reopen),
        TEST(delivered_notices_are_deleted_up_to_an_id),
        TEST(several_hooks_are_deleted_at_once),
        TEST(too_many_and_too_old_ones_are_found),
        TEST(a_backup_has_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
