#include "tests/unit/base/check.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "tests/unit/base/failing_readdir.h"

static char dir[64];

static int make_dir(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/ddp-base-file-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
    struct err e;

    (void)state;
    return file_remove_tree(dir, &e) ? -1 : 0;
}

static char *in_dir(const char *name)
{
    static char path[256];

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return path;
}

static void atomic_write_replaces(void **state)
{
    CLEANUP(buf_release) struct buf text = {0};
    struct err e = {0};
    struct stat st;

    (void)state;
    assert_ok(file_write_atomic(in_dir("a"), "one", 3, 0644, &e), &e);
    assert_ok(file_write_atomic(in_dir("a"), "two!", 4, 0600, &e), &e);
    assert_ok(file_read(in_dir("a"), 100, &text, &e), &e);
    assert_string_equal(text.data, "two!");
    assert_int_equal(stat(in_dir("a"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
}

static int syncs;
int __real_fsync(int fd);
int __wrap_fsync(int fd);

int __wrap_fsync(int fd)
{
    syncs++;
    return __real_fsync(fd);
}

static void only_a_durable_write_is_synced(void **state)
{
    CLEANUP(buf_release) struct buf text = {0};
    struct err e = {0};

    (void)state;
    assert_ok(file_write_renamed(in_dir("d"), "one", 3, 0644, true, &e), &e);
    assert_int_equal(syncs, 2); /* the file and its directory */
    assert_ok(file_write_renamed(in_dir("d"), "two", 3, 0644, false, &e), &e);
    assert_int_equal(syncs, 2);
    assert_ok(file_read(in_dir("d"), 100, &text, &e), &e);
    assert_string_equal(text.data, "two");
}

static int count_entries(void)
{
    struct dirent **names;
    int n = scandir(dir, &names, NULL, NULL);

    for (int i = 0; i < n; i++)
        free(names[i]);
    if (n >= 0)
        free(names);
    return n;
}

static void atomic_write_leaves_nothing_on_failure(void **state)
{
    struct err e = {0};
    int before;

    (void)state;
    assert_ok(file_mkdirs(in_dir("full"), 0700, &e), &e); /* a directory cannot be replaced by a file */
    before = count_entries();
    assert_int_not_equal(file_write_atomic(in_dir("full"), "x", 1, 0644, &e), ERR_OK);
    assert_non_null(strstr(e.msg, "full"));
    assert_int_equal(count_entries(), before);
    assert_int_equal(rmdir(in_dir("full")), 0);
    assert_ok(file_mkdirs(in_dir("empty"), 0700, &e), &e);
    assert_int_not_equal(file_write_atomic(in_dir("empty/no/such"), "x", 1, 0644, &e), ERR_OK);
    assert_int_equal(rmdir(in_dir("empty")), 0);
}

static void read_refuses_files_above_its_limit(void **state)
{
    CLEANUP(buf_release) struct buf text = {0};
    struct err e = {0};

    (void)state;
    assert_ok(file_write_atomic(in_dir("b"), "12345", 5, 0644, &e), &e);
    assert_ok(file_read(in_dir("b"), 5, &text, &e), &e);
    assert_int_equal(file_read(in_dir("b"), 4, &text, &e), ERR_RESOURCE_EXHAUSTED);
    assert_int_equal(file_read(in_dir("none"), 4, &text, &e), ERR_NOT_FOUND);
    assert_non_null(strstr(e.msg, "/none: No such file"));
}

static void mkdirs_like_mkdir_p(void **state)
{
    struct err e = {0};

    (void)state;
    assert_ok(file_mkdirs(in_dir("x/y/z"), 0755, &e), &e);
    assert_ok(file_mkdirs(in_dir("x/y/z/"), 0755, &e), &e);
    assert_true(file_exists(in_dir("x/y/z")));
    assert_ok(file_write_atomic(in_dir("x/f"), "", 0, 0644, &e), &e);
    assert_int_equal(file_mkdirs(in_dir("x/f"), 0755, &e), ERR_INVALID_ARGUMENT);
    assert_int_not_equal(file_mkdirs(in_dir("x/f/g"), 0755, &e), ERR_OK);
}

static void remove_tree_does_not_follow_links(void **state)
{
    char target[256];
    struct err e = {0};

    (void)state;
    assert_ok(file_mkdirs(in_dir("keep"), 0755, &e), &e);
    assert_ok(file_write_atomic(in_dir("keep/f"), "1", 1, 0644, &e), &e);
    strcpy(target, in_dir("keep"));
    assert_ok(file_mkdirs(in_dir("gone/deep"), 0755, &e), &e);
    assert_int_equal(symlink(target, in_dir("gone/link")), 0);
    assert_ok(file_remove_tree(in_dir("gone"), &e), &e);
    assert_false(file_exists(in_dir("gone")));
    assert_true(file_exists(in_dir("keep/f")));
    assert_ok(file_remove_tree(in_dir("gone"), &e), &e);
}

static void lock_is_exclusive_and_ends_with_its_holder(void **state)
{
    struct err e = {0};
    int fd = -1, other = -1;

    (void)state;
    assert_ok(file_lock(in_dir("lock"), &fd, &e), &e);
    assert_int_equal(file_lock(in_dir("lock"), &other, &e), ERR_FAILED_PRECONDITION);
    assert_int_equal(other, -1);
    assert_non_null(strstr(e.msg, "held by another process"));
    close(fd);
    assert_ok(file_lock(in_dir("lock"), &other, &e), &e);
    close(other);
}

static void an_error_is_not_the_end_of_a_directory(void **state)
{
    (void)state;
    for (int fails = 0; fails < 2; fails++) {
        DIR *d = opendir("/");
        struct dirent *entry = NULL;
        struct err e = {0};
        int entries = 0;

        assert_non_null(d);
        entries_until_error = fails ? 2 : -1;
        errno = ENOENT; /* of an earlier call */
        while (!file_next_entry(d, "/there", &entry, &e) && entry)
            entries++;
        entries_until_error = -1;
        closedir(d);
        assert_null(entry);
        assert_int_equal(e.code, fails ? ERR_INTERNAL : ERR_OK);
        if (fails)
            assert_string_equal(e.msg, "read directory /there: Input/output error");
        assert_true(fails ? entries == 2 : entries > 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_a_durable_write_is_synced), /* the first: it counts all syncs */
        cmocka_unit_test(atomic_write_replaces),
        cmocka_unit_test(atomic_write_leaves_nothing_on_failure),
        cmocka_unit_test(read_refuses_files_above_its_limit),
        cmocka_unit_test(mkdirs_like_mkdir_p),
        cmocka_unit_test(remove_tree_does_not_follow_links),
        cmocka_unit_test(an_error_is_not_the_end_of_a_directory),
        cmocka_unit_test(lock_is_exclusive_and_ends_with_its_holder),
    };

    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
