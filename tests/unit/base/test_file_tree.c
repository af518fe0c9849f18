#include "tests/unit/base/check.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"

#define USER 65534 /* nobody: the account that a job runs as */
#define TRIES 100
#define DEPTH 3000
#define FILES 40 /* files of root in each try */

static char dir[64];

static int make_dir(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/ddp-file-tree-XXXXXX");
    return mkdtemp(dir) && !chmod(dir, 0711) ? 0 : -1;
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

static void fill_directory(const char *name, int count)
{
    int at = open(in_dir(name), O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    assert_true(at >= 0);
    for (int i = 0; i < count; i++) {
        char file[16];
        int fd;

        snprintf(file, sizeof(file), "f%d", i);
        fd = openat(at, file, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
        assert_true(fd >= 0);
        close(fd);
    }
    close(at);
}

static int files_in(const char *name)
{
    int at = open(in_dir(name), O_RDONLY | O_DIRECTORY | O_CLOEXEC), there = 0;

    for (int i = 0; at >= 0 && i < FILES; i++) {
        char file[16];

        snprintf(file, sizeof(file), "f%d", i);
        there += !faccessat(at, file, F_OK, AT_SYMLINK_NOFOLLOW);
    }
    if (at >= 0)
        close(at);
    return there;
}

/* Plays the job's user: keeps exchanging a directory of the user with a symlink to a directory of root, which
 * holds files of the same names, and makes both again when they are gone. */
static pid_t start_swapper(uid_t user)
{
    CLEANUP(free_text) char *victim = xstrdup(in_dir("victim"));
    int run = open(in_dir("run"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    pid_t pid = fork();

    assert_true(run >= 0 && pid >= 0);
    if (pid) {
        close(run);
        return pid;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (setgid(user) || setuid(user))
        _exit(1);
    for (;;) {
        if (!syscall(SYS_renameat2, run, "a", run, "b", RENAME_EXCHANGE))
            continue;
        if (mkdirat(run, "a", 0755) && errno == ENOENT)
            _exit(0); /* the run directory is gone */
        (void)!symlinkat(victim, run, "b");
    }
}

static void need_root(void)
{
    if (geteuid())
        skip();
}

/* Removes the tree while a directory is exchanged with a link to root's files. Returns how many of root's
 * files are lost. */
static int lost_in_a_try(uid_t user, int *removed)
{
    struct err e;
    pid_t swapper;
    int left;

    assert_int_equal(mkdir(in_dir("victim"), 0755), 0);
    fill_directory("victim", FILES);
    assert_int_equal(mkdir(in_dir("run"), 0700), 0);
    assert_int_equal(mkdir(in_dir("run/a"), 0700), 0);
    fill_directory("run/a", FILES);
    assert_int_equal(chown(in_dir("run/a"), user, user), 0);
    assert_int_equal(chown(in_dir("run"), user, user), 0);
    swapper = start_swapper(user);
    *removed += !file_remove_tree(in_dir("run"), &e);
    kill(swapper, SIGKILL);
    waitpid(swapper, NULL, 0);
    left = files_in("victim");
    assert_ok(file_remove_tree(in_dir("run"), &e), &e);
    assert_false(file_exists(in_dir("run")));
    assert_ok(file_remove_tree(in_dir("victim"), &e), &e);
    return FILES - left;
}

static void swap_many_times(uid_t user, int tries)
{
    int won = 0, lost = 0, removed = 0;

    for (int i = 0; i < tries; i++) {
        int files = lost_in_a_try(user, &removed);

        won += files > 0;
        lost += files;
    }
    print_message("%d of %d tries removed files of root, %d files in all; %d removed the tree at once\n", won,
                  tries, lost, removed);
    assert_int_equal(won, 0);
}

static void a_jobs_user_cannot_make_root_remove_its_files(void **state)
{
    (void)state;
    need_root();
    swap_many_times(USER, TRIES);
}

/* The same without a change of user: safe because the removal goes by descriptors, not by paths. */
static void a_directory_replaced_by_a_link_is_not_followed(void **state)
{
    (void)state;
    swap_many_times(geteuid(), TRIES / 4);
}

static void a_deep_tree_needs_few_descriptors(void **state)
{
    struct rlimit old, few;
    struct err e;
    int fd;

    (void)state;
    assert_int_equal(mkdir(in_dir("deep"), 0700), 0);
    fd = open(in_dir("deep"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i < DEPTH; i++) {
        int below;

        assert_int_equal(mkdirat(fd, "a-directory-of-many", 0700), 0);
        below = openat(fd, "a-directory-of-many", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(below >= 0);
        close(fd);
        fd = below;
    }
    close(fd);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    few = (struct rlimit){16, old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    assert_ok(file_remove_tree(in_dir("deep"), &e), &e);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    assert_false(file_exists(in_dir("deep")));
}

static void make_owned(const char *name, uid_t user, mode_t mode)
{
    assert_int_equal(mkdir(in_dir(name), 0755), 0);
    fill_directory(name, 3);
    assert_int_equal(chown(in_dir(name), user, user), 0);
    assert_int_equal(chmod(in_dir(name), mode), 0);
}

static void another_users_directories_of_any_mode_are_removed(void **state)
{
    struct err e;

    (void)state;
    need_root();
    make_owned("mixed", 0, 0711);
    make_owned("mixed/his", USER, 0700);
    make_owned("mixed/his/locked", USER, 0000);
    make_owned("mixed/his/locked/read", USER, 0555);
    make_owned("mixed/ours", 0, 0700);
    assert_int_equal(chmod(in_dir("mixed/his"), 0500), 0);
    assert_int_equal(mkfifo(in_dir("mixed/his/fifo"), 0600), 0);
    assert_ok(file_remove_tree(in_dir("mixed"), &e), &e);
    assert_false(file_exists(in_dir("mixed")));
}

/* The contents of a user's directory are removed with the user's rights, which do not suffice for root's. */
static void a_directory_of_root_inside_a_users_directory_stays(void **state)
{
    struct err e;

    (void)state;
    need_root();
    make_owned("moved", USER, 0755);
    make_owned("moved/roots", 0, 0755);
    assert_int_equal(file_remove_tree(in_dir("moved"), &e), ERR_PERMISSION_DENIED);
    assert_int_equal(files_in("moved/roots"), 3);
    assert_int_equal(geteuid(), 0);
    assert_int_equal(chown(in_dir("moved"), 0, 0), 0);
    assert_ok(file_remove_tree(in_dir("moved"), &e), &e);
}

static void another_file_system_stays(void **state)
{
    struct err e;

    (void)state;
    need_root();
    make_owned("mounted", 0, 0755);
    make_owned("mounted/on", 0, 0755);
    if (mount("none", in_dir("mounted/on"), "tmpfs", 0, "size=1m")) {
        print_message("no file system can be mounted here: %s\n", strerror(errno));
        skip();
    }
    fill_directory("mounted/on", 3);
    assert_int_not_equal(file_remove_tree(in_dir("mounted"), &e), ERR_OK);
    assert_non_null(strstr(e.msg, "another file system"));
    assert_int_equal(files_in("mounted/on"), 3);
    assert_int_equal(umount(in_dir("mounted/on")), 0);
    assert_ok(file_remove_tree(in_dir("mounted"), &e), &e);
}

static void a_link_or_a_file_is_removed_itself(void **state)
{
    CLEANUP(free_text) char *target = xstrdup(in_dir("target"));
    struct err e;

    (void)state;
    make_owned("target", geteuid(), 0755);
    assert_int_equal(symlink(target, in_dir("link")), 0);
    assert_ok(file_remove_tree(in_dir("link"), &e), &e);
    assert_int_equal(files_in("target"), 3);
    assert_ok(file_remove_tree(in_dir("target/f1"), &e), &e);
    assert_int_equal(files_in("target"), 2);
    assert_ok(file_remove_tree(in_dir("none/such"), &e), &e);
}

static void a_time_limit_applies_to_ones_own_directories(void **state)
{
    struct err e;

    (void)state;
    assert_ok(file_mkdirs(in_dir("own/below"), 0700, &e), &e);
    assert_ok(file_write_atomic(in_dir("own/below/file"), "x", 1, 0600, &e), &e);
    assert_int_equal(file_remove_tree_within(in_dir("own"), -1, &e),
                     ERR_DEADLINE_EXCEEDED); /* over already */
    assert_true(file_exists(in_dir("own/below/file")));
    assert_ok(file_remove_tree_within(in_dir("own"), 600000, &e), &e);
    assert_false(file_exists(in_dir("own")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_jobs_user_cannot_make_root_remove_its_files),
        cmocka_unit_test(a_directory_replaced_by_a_link_is_not_followed),
        cmocka_unit_test(a_deep_tree_needs_few_descriptors),
        cmocka_unit_test(another_users_directories_of_any_mode_are_removed),
        cmocka_unit_test(a_directory_of_root_inside_a_users_directory_stays),
        cmocka_unit_test(another_file_system_stays),
        cmocka_unit_test(a_time_limit_applies_to_ones_own_directories),
        cmocka_unit_test(a_link_or_a_file_is_removed_itself),
    };

    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
