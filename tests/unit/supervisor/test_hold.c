/* Locks on GPUs: who shares one, who does not, and where all users of a machine meet. */
#include "tests/unit/base/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "daemon/supervisor/hold.h"

static void all_users_meet_in_one_place(void **state)
{
    char own[] = "/tmp/ddp-hold-XXXXXX", shared[] = "/tmp/ddp-hold-XXXXXX";
    const char *places[] = {"/nowhere", own, shared};
    struct stat wanted, got;

    (void)state;
    assert_non_null(mkdtemp(own));
    assert_non_null(mkdtemp(shared));
    assert_int_equal(chmod(own, 0755), 0); /* as /run/lock is on many machines: we could, others could not */
    assert_int_equal(chmod(shared, 01777), 0);
    int fd = hold_open_dir(places, ARRAY_LEN(places));
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &got), 0);
    assert_int_equal(stat(shared, &wanted), 0);
    assert_true(got.st_ino == wanted.st_ino);
    close(fd);
    assert_int_equal(hold_open_dir(places, 2), -1);
    rmdir(own);
    rmdir(shared);
}

/* Of a lock that this test alone has; the file goes with it. */
static void unlink_locks(const char *uuid)
{
    static const char *const forms[] = {"/run/lock/ddp-%s.lock",   "/tmp/ddp-%s.lock",
                                        "/run/lock/ddp-%s.0.lock", "/tmp/ddp-%s.0.lock",
                                        "/run/lock/ddp-%s.1.lock", "/tmp/ddp-%s.1.lock"};

    for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
        char path[128];
        snprintf(path, sizeof(path), forms[i], uuid);
        unlink(path);
    }
}

static void who_shares_and_who_does_not_never_meet(void **state)
{
    char uuid[64];
    char *list[] = {uuid, NULL};
    int alone[HOLD_FDS], first[HOLD_FDS], second[HOLD_FDS], third[HOLD_FDS];
    struct err e;

    (void)state;
    snprintf(uuid, sizeof(uuid), "GPU-test-hold-%d", (int)getpid());
    assert_int_equal(hold_gpus(list, 1, alone, &e), ERR_OK);
    assert_int_equal(hold_gpus(list, 2, first, &e), ERR_ALREADY_EXISTS);
    hold_drop(alone);
    assert_int_equal(hold_gpus(list, 2, first, &e), ERR_OK);
    assert_int_equal(hold_gpus(list, 2, second, &e), ERR_OK);
    assert_int_equal(hold_gpus(list, 2, third, &e), ERR_ALREADY_EXISTS);
    assert_int_equal(hold_gpus(list, 1, alone, &e), ERR_ALREADY_EXISTS);
    assert_non_null(strstr(e.msg, "in use by another ddp job"));
    hold_drop(first);
    assert_int_equal(hold_gpus(list, 1, alone, &e), ERR_ALREADY_EXISTS);
    hold_drop(second);
    assert_int_equal(hold_gpus(list, 1, alone, &e), ERR_OK);
    hold_drop(alone);
    unlink_locks(uuid);
}

static void a_worker_may_have_as_many_as_a_job_may_say(void **state)
{
    char *list[65] = {NULL};
    int fds[HOLD_FDS];
    struct err e;

    (void)state;
    for (int i = 0; i < 64; i++)
        list[i] = xasprintf("GPU-test-many-%d-%d", (int)getpid(), i);
    assert_int_equal(hold_gpus(list, 2, fds, &e), ERR_OK);
    hold_drop(fds);
    for (int i = 0; i < 64; i++) {
        unlink_locks(list[i]);
        free(list[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_users_meet_in_one_place),
        cmocka_unit_test(who_shares_and_who_does_not_never_meet),
        cmocka_unit_test(a_worker_may_have_as_many_as_a_job_may_say),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
