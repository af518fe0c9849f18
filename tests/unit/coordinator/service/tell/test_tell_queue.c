#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/coordinator/service/tell/tell_queue.h"

/* When a hook's next notice is tried, and when one is given up. */

static void send_notice(struct tell_queue *q, int64_t id)
{
    assert_true(tell_queue_due(q, q->next_at));
    q->sent_id = id;
    assert_false(tell_queue_due(q, q->next_at)); /* one at a time */
}

static void success_goes_on_at_once(void **state)
{
    struct tell_queue q = {.waiting = 2};
    (void)state;
    send_notice(&q, 5);
    assert_false(tell_queue_done(&q, &(struct tell_result){.ok = true}, 1000, 77));
    assert_int_equal(q.last_id, 5);
    assert_int_equal(q.waiting, 1);
    assert_int_equal(q.ok_ms, 77);
    assert_true(tell_queue_due(&q, 1000));
    tell_queue_release(&q);
}

static void a_failure_is_repeated_later_and_later(void **state)
{
    struct tell_queue q = {.waiting = 1};
    int64_t now = 1000, wait = 0;
    (void)state;
    for (int i = 0; i < 20; i++) {
        send_notice(&q, 5);
        assert_false(tell_queue_done(&q, &(struct tell_result){.text = "no answer"}, now, 1));
        assert_true(q.next_at - now >= wait);
        wait = q.next_at - now;
        assert_false(tell_queue_due(&q, q.next_at - 1));
        now = q.next_at;
    }
    assert_int_equal(wait, TELL_LONGEST_RETRY_MS);
    assert_int_equal(q.waiting, 1); /* a dead endpoint loses nothing by itself */
    assert_int_equal(q.last_id, 0);
    assert_string_equal(q.error, "no answer");
    tell_queue_release(&q);
}

static void the_other_side_says_when(void **state)
{
    struct tell_queue q = {.waiting = 1};
    (void)state;
    send_notice(&q, 5);
    assert_false(tell_queue_done(&q, &(struct tell_result){.retry_ms = 30000}, 1000, 1));
    assert_int_equal(q.next_at, 31000);
    tell_queue_release(&q);
}

static void a_notice_that_is_refused_gives_way(void **state)
{
    struct tell_queue q = {.waiting = 2};
    bool dropped = false;
    int tries = 0;
    (void)state;
    for (; !dropped; tries++) {
        send_notice(&q, 5);
        dropped =
            tell_queue_done(&q, &(struct tell_result){.refused = true, .text = "HTTP 400"}, q.next_at, 1);
    }
    assert_int_equal(tries, TELL_REFUSALS_MOST);
    assert_int_equal(q.last_id, 5);
    assert_int_equal(q.waiting, 1);
    assert_int_equal(q.dropped, 1);
    send_notice(&q, 6); /* the next notice has all its tries */
    assert_false(tell_queue_done(&q, &(struct tell_result){.refused = true}, q.next_at, 1));
    tell_queue_release(&q);
}

static void what_was_trimmed_meanwhile_counts_once(void **state)
{
    struct tell_queue q = {.waiting = 3};
    (void)state;
    send_notice(&q, 5);
    q.last_id = 8; /* trimmed, with two that came after it */
    q.waiting = 1;
    assert_false(tell_queue_done(&q, &(struct tell_result){.ok = true}, 1, 1));
    assert_int_equal(q.last_id, 8);
    assert_int_equal(q.waiting, 1);
    tell_queue_release(&q);
}

static void new_queues_come_before_those_that_failed(void **state)
{
    struct tell_queue late = {.waiting = 1, .next_at = 900}, later = {.waiting = 1, .next_at = 950};
    struct tell_queue fresh = {.waiting = 1}, idle = {0}, sent = {.waiting = 1, .sent_id = 3};
    struct tell_queue *const all[] = {&idle, &sent, &later, &late, &fresh};
    (void)state;
    assert_ptr_equal(tell_queue_first(all, 5, 1000), &fresh);
    assert_ptr_equal(tell_queue_first(all, 4, 1000), &late);
    assert_ptr_equal(tell_queue_first(all, 3, 1000), &later);
    assert_null(tell_queue_first(all, 3, 949));
    assert_null(tell_queue_first(all, 2, 1000));
    assert_null(tell_queue_first(all, 0, 1000));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(success_goes_on_at_once),
        cmocka_unit_test(a_failure_is_repeated_later_and_later),
        cmocka_unit_test(new_queues_come_before_those_that_failed),
        cmocka_unit_test(the_other_side_says_when),
        cmocka_unit_test(a_notice_that_is_refused_gives_way),
        cmocka_unit_test(what_was_trimmed_meanwhile_counts_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
