/* Tests the lock of a snapshot directory. A second flock of one process conflicts with the first, as that of another process does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "tests/unit/trainer/snapshot/snapshot_fixture.h"
#include "trainer/snapshot/dir_lock.h"

static struct snapshot_place place_of(const char *cluster)
{
    struct snapshot_place place = {.job = 7, .generation = 2};
    snprintf(place.cluster, sizeof(place.cluster), "%s", cluster);
    return place;
}

static void a_second_run_learns_who_holds_the_directory(void **state)
{
    struct snapshot_place first = place_of("0a4cce5ea7f50222"), second = place_of("");
    struct snapshot_lock lock = {.fd = -1}, other = {.fd = -1};
    struct snapshot_holder holder;
    struct err e = {0};
    (void)state;
    assert_int_equal(snapshot_lock_take(&lock, fixture_dir, &first, &holder, &e), ERR_OK);
    assert_int_equal(snapshot_lock_take(&other, fixture_dir, &second, &holder, &e), ERR_ALREADY_EXISTS);
    assert_int_equal(other.fd, -1);
    assert_int_equal(holder.job, 7);
    assert_string_equal(holder.cluster, first.cluster);
    assert_int_equal(holder.pid, getpid());
    CLEANUP(free_text) char *name = snapshot_holder_name(&holder);
    assert_non_null(strstr(name, "job 7 of cluster 0a4cce5e on "));
    snapshot_lock_release(&lock);
    snapshot_lock_release(&lock);
    assert_false(fixture_file_exists(SNAPSHOT_LOCK_FILE));
    assert_int_equal(snapshot_lock_take(&other, fixture_dir, &second, &holder, &e), ERR_OK);
    snapshot_lock_release(&other);
}

/* The file of a killed process; of a process on a full disk, which could not write its name. */
static void a_file_without_a_holder_means_nothing(void **state)
{
    struct snapshot_place place = place_of("c");
    struct snapshot_lock lock = {.fd = -1}, other = {.fd = -1};
    struct snapshot_list list = {0};
    struct snapshot_holder holder;
    struct err e = {0};
    (void)state;
    CLEANUP(free_text) char *path = xasprintf("%s/%s", fixture_dir, SNAPSHOT_LOCK_FILE);
    assert_int_equal(file_write_atomic(path, "of before", 9, 0600, &e), ERR_OK);
    assert_int_equal(snapshot_lock_take(&lock, fixture_dir, &place, &holder, &e), ERR_OK);
    assert_int_equal(snapshot_scan(fixture_dir, &list, &e), ERR_OK);
    assert_int_equal(list.count, 0);
    assert_null(list.unusable);
    snapshot_list_release(&list);
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(snapshot_lock_take(&other, fixture_dir, &place, &holder, &e), ERR_ALREADY_EXISTS);
    CLEANUP(free_text) char *name = snapshot_holder_name(&holder);
    assert_string_equal(name, "another process");
    snapshot_lock_release(&lock);
}

static void a_directory_that_cannot_be_locked_is_told_apart(void **state)
{
    struct snapshot_place place = place_of("c");
    struct snapshot_lock lock = {.fd = -1};
    struct snapshot_holder holder;
    struct err e = {0};
    (void)state;
    CLEANUP(free_text) char *dir = xasprintf("%s/missing", fixture_dir);
    assert_int_equal(snapshot_lock_take(&lock, dir, &place, &holder, &e), ERR_NOT_FOUND);
    assert_int_equal(lock.fd, -1);
    snapshot_lock_release(&lock);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SNAPSHOT_TEST(a_second_run_learns_who_holds_the_directory),
        SNAPSHOT_TEST(a_file_without_a_holder_means_nothing),
        SNAPSHOT_TEST(a_directory_that_cannot_be_locked_is_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
