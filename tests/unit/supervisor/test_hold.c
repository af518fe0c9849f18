/* Tests shared and exclusive locks on GPUs, and the lock directory that all users of a machine share. */
#include "tests/unit/base/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "daemon/supervisor/hold.h"

static void all_users_use_one_lock_directory(void **state)
{
    char own[] = "/tmp/ddp-hold-XXXXXX", shared[] = "/tmp/ddp-hold-XXXXXX";
    const char *places[] = {"/nowhere", own, shared};
    struct stat wanted, got;

    (void)state;
    assert_non_null(mkdtemp(own));
    assert_non_null(mkdtemp(shared));
    assert_int_equal(chmod(own, 0755),
                     0); /* as /run/lock on many machines: this user may write it, others may not */
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

/* The name of a lock that only this test uses; the file is removed at the end. */
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

static void shared_and_exclusive_holds_exclude_each_other(void **state)
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

/* The modes of the lock's files; 0: there is no such file. */
static void read_modes(const char *uuid, mode_t modes[2])
{
    static const char *const forms[] = {"/run/lock/ddp-%s.lock", "/tmp/ddp-%s.lock"};

    for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
        char path[128];
        struct stat st;
        snprintf(path, sizeof(path), forms[i], uuid);
        modes[i] = stat(path, &st) ? 0 : st.st_mode & 0777;
    }
}

static void only_a_new_lock_is_opened_to_all_users(void **state)
{
    char uuid[64], path[128];
    char *list[] = {uuid, NULL};
    int fds[HOLD_FDS];
    mode_t modes[2];
    struct err e;

    (void)state;
    snprintf(uuid, sizeof(uuid), "GPU-test-mode-%d", (int)getpid());
    const mode_t mask = umask(077);
    assert_int_equal(hold_gpus(list, 1, fds, &e), ERR_OK);
    hold_drop(fds);
    umask(mask);
    read_modes(uuid, modes);
    assert_true((modes[0] | modes[1]) == 0666);
    /* a private file that another user has moved to this name */
    snprintf(path, sizeof(path), modes[0] ? "/run/lock/ddp-%s.lock" : "/tmp/ddp-%s.lock", uuid);
    assert_int_equal(chmod(path, 0600), 0);
    assert_int_equal(hold_gpus(list, 1, fds, &e), ERR_OK);
    hold_drop(fds);
    read_modes(uuid, modes);
    assert_true((modes[0] | modes[1]) == 0600);
    unlink_locks(uuid);
}

static void a_worker_may_hold_as_many_gpus_as_a_job_file_allows(void **state)
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

static void a_lock_file_that_cannot_be_opened_is_not_a_gpu_in_use(void **state)
{
    char uuid[64], path[128];
    char *list[] = {uuid, NULL};
    int fds[HOLD_FDS];
    struct err e;

    (void)state;
    snprintf(uuid, sizeof(uuid), "GPU-test-link-%d", (int)getpid());
    /* links are not followed; the supervisor uses one of the two directories */
    snprintf(path, sizeof(path), "/run/lock/ddp-%s.lock", uuid);
    (void)!symlink("/nowhere", path);
    snprintf(path, sizeof(path), "/tmp/ddp-%s.lock", uuid);
    assert_int_equal(symlink("/nowhere", path), 0);
    assert_int_not_equal(hold_gpus(list, 1, fds, &e), ERR_OK);
    unlink_locks(uuid);
    assert_int_not_equal(e.code, ERR_ALREADY_EXISTS);
    assert_non_null(strstr(e.msg, "lock file of GPU-test-link-"));
    assert_non_null(strstr(e.msg, "Too many levels of symbolic links"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_users_use_one_lock_directory),
        cmocka_unit_test(shared_and_exclusive_holds_exclude_each_other),
        cmocka_unit_test(only_a_new_lock_is_opened_to_all_users),
        cmocka_unit_test(a_lock_file_that_cannot_be_opened_is_not_a_gpu_in_use),
        cmocka_unit_test(a_worker_may_hold_as_many_gpus_as_a_job_file_allows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
