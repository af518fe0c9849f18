#include "tests/unit/base/check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "daemon/supervisor/worker_link.h"

struct pair {
    int told; /* messages */
    struct worker_link link;
    struct spawn_asks asks;
    int worker; /* the other end */
};

static void open_pair(struct pair *p)
{
    int fds[2];

    *p = (struct pair){0};
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
    worker_link_open(&p->link, fds[0]);
    p->worker = fds[1];
}

static void close_pair(struct pair *p)
{
    worker_link_release(&p->link);
    spawn_fact_set_text(&p->asks.path, NULL);
    close(p->worker);
}

static bool worker_sends(struct pair *p, const char *text)
{
    assert_true(send(p->worker, text, strlen(text), 0) >= 0);
    return worker_link_hear(&p->link, &p->asks);
}

static void check_told(struct pair *p, const char *expected)
{
    char text[1024] = "";
    ssize_t n;

    worker_link_tell(&p->link, &p->asks);
    n = recv(p->worker, text, sizeof(text) - 1, MSG_DONTWAIT);
    char *number = n < 0 ? NULL : strstr(text, ",\"number\":");
    if (number) { /* behind what the test expects */
        assert_int_equal(atoi(number + strlen(",\"number\":")), ++p->told);
        strcpy(number, "}");
    }
    assert_string_equal(n < 0 ? "" : text, expected);
}

#define NEWS(commit, error, stale, stop, allowed, step)                                                      \
    "{\"commit\":" commit ",\"error\":" error ",\"stale\":" stale ",\"stop\":" stop ",\"allowed\":" allowed  \
    ",\"stop_step\":" step "}"

static void a_commit_is_answered_once_it_is_committed(void **state)
{
    struct pair p;

    (void)state;
    open_pair(&p);
    check_told(&p, ""); /* there is nothing to say yet */
    assert_true(worker_sends(&p, "{\"op\":\"commit\",\"id\":5,\"path\":\"/a\",\"step\":10,\"bytes\":3}"));
    assert_int_equal(p.asks.commit, 1);
    assert_string_equal(p.asks.path, "/a");
    assert_true(p.asks.step == 10 && p.asks.bytes == 3 && !p.asks.heeds);
    worker_link_answer(&p.link, &(struct spawn_answer){.commit = 1});
    check_told(&p, NEWS("5", "null", "false", "false", "0", "0"));
    check_told(&p, "");
    /* the answer to the last commit is none to this one */
    assert_true(worker_sends(&p, "{\"op\":\"commit\",\"id\":6,\"path\":\"/b\",\"step\":20,\"bytes\":3}"));
    worker_link_answer(&p.link, &(struct spawn_answer){.commit = 1, .allowed = 4});
    check_told(&p, NEWS("0", "null", "false", "false", "4", "0"));
    worker_link_answer(&p.link,
                       &(struct spawn_answer){.commit = 2, .error = "no", .stale = true, .allowed = 4});
    check_told(&p, NEWS("6", "\"no\"", "true", "false", "4", "0"));
    close_pair(&p);
}

static void promises_only_grow(void **state)
{
    struct pair p;

    (void)state;
    open_pair(&p);
    assert_true(worker_sends(&p, "{\"op\":\"heed\"}"));
    assert_true(p.asks.heeds && !p.asks.promise);
    assert_true(worker_sends(&p, "{\"op\":\"promise\",\"step\":12}"));
    assert_true(worker_sends(&p, "{\"op\":\"promise\",\"step\":7}"));
    assert_int_equal(p.asks.promise, 12);
    worker_link_stop(&p.link);
    check_told(&p, NEWS("0", "null", "false", "true", "0", "0"));
    close_pair(&p);
}

/* Some ranks may have stopped there. */
static void the_step_to_stop_at_never_changes(void **state)
{
    struct pair p;

    (void)state;
    open_pair(&p);
    worker_link_answer(&p.link, &(struct spawn_answer){.allowed = 12, .stop_step = 15});
    check_told(&p, NEWS("0", "null", "false", "false", "12", "15"));
    worker_link_answer(&p.link, &(struct spawn_answer){.allowed = 20, .stop_step = 20});
    check_told(&p, NEWS("0", "null", "false", "false", "20", "15"));
    close_pair(&p);
}

static void bad_requests_change_nothing(void **state)
{
    static const char *const bad[] = {
        "[1]",
        "{\"op\":\"other\"}",
        "{\"op\":1}",
        "{\"op\":\"promise\"}",
        "{\"op\":\"promise\",\"step\":0}",
        "{\"op\":\"commit\",\"id\":1,\"step\":1}",
        "{\"op\":\"commit\",\"id\":1,\"step\":1,\"path\":\"relative\"}",
        "{\"op\":\"commit\",\"id\":1,\"step\":-1,\"path\":\"/a\"}",
        "{\"op\":\"commit\",\"id\":1,\"step\":1,\"path\":\"/a\",\"bytes\":-1}",
    };
    struct pair p;

    (void)state;
    open_pair(&p);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        if (worker_sends(&p, bad[i]))
            fail_msg("accepted: %s", bad[i]);
        assert_int_equal(p.link.refused, i + 1);
    }
    assert_true(!p.asks.commit && !p.asks.path && !p.asks.heeds && !p.asks.promise);
    close_pair(&p);
}

static void a_refused_commit_is_answered(void **state)
{
    static const char *const refused = "\"expected a step from 0 on and a number of bytes\"";
    CLEANUP(free_text) char *news = xasprintf(NEWS("7", "%s", "false", "false", "0", "0"), refused);
    struct pair p;

    (void)state;
    open_pair(&p);
    assert_true(worker_sends(&p, "{\"op\":\"commit\",\"id\":6,\"path\":\"/a\",\"step\":1,\"bytes\":3}"));
    worker_link_answer(&p.link, &(struct spawn_answer){.commit = 1});
    check_told(&p, NEWS("6", "null", "false", "false", "0", "0"));
    assert_false(worker_sends(&p, "{\"op\":\"commit\",\"id\":7,\"path\":\"/a\",\"step\":-1,\"bytes\":3}"));
    check_told(&p, news);
    check_told(&p, "");
    /* the next one is not answered before the coordinator has it */
    assert_true(worker_sends(&p, "{\"op\":\"commit\",\"id\":8,\"path\":\"/a\",\"step\":2,\"bytes\":3}"));
    check_told(&p, "");
    worker_link_answer(&p.link, &(struct spawn_answer){.commit = 2});
    check_told(&p, NEWS("8", "null", "false", "false", "0", "0"));
    close_pair(&p);
}

/* The worker would wait for the answer. */
static void what_cannot_be_answered_closes_the_link(void **state)
{
    static const char *const bad[] = {
        "{",
        "{\"op\":\"commit\",\"id\":1,\"step\":9223372036854775808,\"path\":\"/a\"}",
        "{\"op\":\"commit\",\"id\":0,\"step\":1,\"path\":\"/a\"}",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct pair p;
        char text[8];

        open_pair(&p);
        assert_false(worker_sends(&p, bad[i]));
        assert_int_equal(p.link.refused, 1);
        assert_int_equal(p.link.fd, -1);
        assert_int_equal(recv(p.worker, text, sizeof(text), MSG_DONTWAIT), 0);
        assert_true(!p.asks.commit && !p.asks.path);
        close_pair(&p);
    }
}

static void a_worker_that_does_not_read_blocks_nobody(void **state)
{
    struct pair p;
    int64_t step = 0;
    char text[1024], last[1024] = "";

    (void)state;
    open_pair(&p);
    while (!p.link.blocked) {
        worker_link_answer(&p.link, &(struct spawn_answer){.allowed = ++step});
        worker_link_tell(&p.link, &p.asks);
    }
    while (recv(p.worker, text, sizeof(text), MSG_DONTWAIT) > 0)
        ;
    p.link.blocked = false; /* as spawn_hear_worker does, when the socket is writable */
    worker_link_tell(&p.link, &p.asks);
    assert_true(recv(p.worker, last, sizeof(last) - 1, MSG_DONTWAIT) > 0);
    CLEANUP(free_text) char *newest = xasprintf("\"allowed\":%lld,", (long long)step);
    assert_non_null(strstr(last, newest)); /* the last state, not the first that did not fit */
    close_pair(&p);
}

static void a_worker_may_close_its_end(void **state)
{
    struct pair p;

    (void)state;
    open_pair(&p);
    close(p.worker);
    p.worker = -1;
    assert_false(worker_link_hear(&p.link, &p.asks));
    assert_int_equal(p.link.fd, -1);
    worker_link_stop(&p.link);
    worker_link_tell(&p.link, &p.asks);
    close_pair(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_commit_is_answered_once_it_is_committed),
        cmocka_unit_test(promises_only_grow),
        cmocka_unit_test(the_step_to_stop_at_never_changes),
        cmocka_unit_test(bad_requests_change_nothing),
        cmocka_unit_test(a_refused_commit_is_answered),
        cmocka_unit_test(what_cannot_be_answered_closes_the_link),
        cmocka_unit_test(a_worker_that_does_not_read_blocks_nobody),
        cmocka_unit_test(a_worker_may_close_its_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
