/* Tests that the loop thread never waits for the account database, and what the look-ups of its pool say. */
#include "tests/unit/base/check.h"

#include <errno.h>
#include <pthread.h>
#include <pwd.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <uv.h>

#include "daemon/agent/accounts.h"

/* The test's own account database and clock replace the C library's. Names that begin with "hang" are answered only after
 * database_go_on. */
static pthread_mutex_t database_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t database_moves = PTHREAD_COND_INITIALIZER;
static bool database_hangs;
static atomic_bool unreadable;
static uid_t known_uid;

static atomic_llong skew_ms; /* the test's clock is ahead by this */

int clock_gettime(clockid_t clock, struct timespec *now)
{
    long rc = syscall(SYS_clock_gettime, clock, now);

    if (clock == CLOCK_BOOTTIME)
        now->tv_sec += skew_ms / 1000;
    return (int)rc;
}

static void database_set(bool hangs)
{
    pthread_mutex_lock(&database_mutex);
    database_hangs = hangs;
    pthread_cond_broadcast(&database_moves);
    pthread_mutex_unlock(&database_mutex);
}

int getpwnam_r(const char *name, struct passwd *entry, char *texts, size_t size, struct passwd **found)
{
    (void)size;
    pthread_mutex_lock(&database_mutex);
    while (database_hangs && !strncmp(name, "hang", 4))
        pthread_cond_wait(&database_moves, &database_mutex);
    pthread_mutex_unlock(&database_mutex);
    *found = NULL;
    if (unreadable)
        return EIO;
    if (!strcmp(name, "nobody-of-that-name"))
        return 0;
    strcpy(texts, name);
    *entry = (struct passwd){.pw_name = texts, .pw_dir = texts, .pw_shell = texts, .pw_uid = known_uid};
    *found = entry;
    return 0;
}

struct database {
    uv_loop_t loop;
    struct accounts *accounts;
    int changes;
};

static void on_accounts_change(void *ctx)
{
    ((struct database *)ctx)->changes++;
}

static void database_open(struct database *d)
{
    struct accounts_options options = {.node = "box1", .on_change = on_accounts_change, .ctx = d};

    alarm(60 * (unsigned)test_slow()); /* ends a test whose loop thread waits */
    *d = (struct database){0};
    known_uid = ACCOUNT_FIRST_UID;
    unreadable = false;
    database_set(false);
    assert_int_equal(uv_loop_init(&d->loop), 0);
    d->accounts = accounts_create(&d->loop, &options);
}

static void database_close(struct database *d)
{
    accounts_close(d->accounts);
    uv_run(&d->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&d->loop), 0);
}

static size_t refused_users(struct database *d)
{
    size_t count;

    accounts_messages(d->accounts, &count);
    return count;
}

static void a_database_that_hangs_delays_nothing_but_its_answers(void **state)
{
    const struct account *found;
    struct database d;
    struct err e;

    (void)state;
    database_open(&d);
    database_set(true);
    accounts_refused(d.accounts, "hanging-ben", "no account hanging-ben on box1");
    assert_int_equal(refused_users(&d), 1); /* as each heartbeat does */
    assert_int_equal(refused_users(&d), 1);
    /* the look-up of a start does not wait behind that of a refused user */
    assert_int_equal(accounts_find(d.accounts, "ana", &found, &e), ERR_UNAVAILABLE);
    while (!d.changes)
        uv_run(&d.loop, UV_RUN_ONCE);
    assert_ok(accounts_find(d.accounts, "ana", &found, &e), &e);
    assert_string_equal(found->home, "ana");
    assert_int_equal(found->uid, ACCOUNT_FIRST_UID);
    assert_int_equal(refused_users(&d), 1);
    database_set(false);
    while (d.changes < 2)
        uv_run(&d.loop, UV_RUN_ONCE);
    assert_int_equal(refused_users(&d), 0); /* hanging-ben has an account by now */
    /* closed while a look-up is under way */
    database_set(true);
    assert_int_equal(accounts_find(d.accounts, "hanging-carl", &found, &e), ERR_UNAVAILABLE);
    accounts_close(d.accounts);
    d.accounts = NULL;
    database_set(false);
    database_close(&d);
}

static enum err_code looked_up(struct database *d, const char *name, struct err *e)
{
    const struct account *found;
    int before = d->changes;

    assert_int_equal(accounts_find(d->accounts, name, &found, e), ERR_UNAVAILABLE);
    while (d->changes == before)
        uv_run(&d->loop, UV_RUN_ONCE);
    return accounts_find(d->accounts, name, &found, e);
}

static void an_unreadable_database_is_not_a_missing_account(void **state)
{
    struct database d;
    struct err e;

    (void)state;
    database_open(&d);
    assert_int_equal(looked_up(&d, "nobody-of-that-name", &e), ERR_NOT_FOUND);
    assert_string_equal(e.msg, "no account nobody-of-that-name");
    unreadable = true;
    assert_int_equal(looked_up(&d, "ana", &e), ERR_UNAVAILABLE);
    assert_string_equal(e.msg, "account ana: Input/output error");
    database_close(&d);
}

static void a_start_that_has_waited_too_long_is_a_fault_of_the_node(void **state)
{
    const struct account *found;
    struct database d;
    struct err e;

    (void)state;
    database_open(&d);
    database_set(true);
    assert_int_equal(accounts_find(d.accounts, "hanging-ana", &found, &e), ERR_UNAVAILABLE);
    skew_ms += 30000;
    assert_int_equal(accounts_find(d.accounts, "hanging-ana", &found, &e), ERR_RESOURCE_EXHAUSTED);
    assert_non_null(
        strstr(e.msg, "the account database has not answered for 3")); /* 30 s, or a little more */
    assert_non_null(strstr(e.msg, " s: account hanging-ana"));
    database_set(false);
    while (!d.changes)
        uv_run(&d.loop, UV_RUN_ONCE);
    assert_ok(accounts_find(d.accounts, "hanging-ana", &found, &e), &e);
    /* each answer ends the wait, even if the last one was not long ago */
    for (int i = 0; i < 3; i++) {
        skew_ms += 20000;
        assert_int_equal(looked_up(&d, "hanging-ana", &e), ERR_OK);
    }
    database_close(&d);
}

static void a_refused_user_stays_refused_under_a_system_account(void **state)
{
    struct database d;

    (void)state;
    database_open(&d);
    known_uid = ACCOUNT_FIRST_UID - 1;
    accounts_refused(d.accounts, "daemonic", "a system account");
    assert_int_equal(refused_users(&d), 1);
    while (!d.changes)
        uv_run(&d.loop, UV_RUN_ONCE);
    assert_int_equal(refused_users(&d), 1);
    for (int i = 0; i < 100; i++) { /* the list is bounded */
        char name[16];
        snprintf(name, sizeof(name), "user%d", i);
        accounts_refused(d.accounts, name, "no account");
    }
    assert_int_equal(refused_users(&d), 64);
    database_close(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_database_that_hangs_delays_nothing_but_its_answers),
        cmocka_unit_test(an_unreadable_database_is_not_a_missing_account),
        cmocka_unit_test(a_start_that_has_waited_too_long_is_a_fault_of_the_node),
        cmocka_unit_test(a_refused_user_stays_refused_under_a_system_account),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
