#include "tests/unit/base/check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/file_at.h"
#include "base/mem.h"

#define USER 65534 /* a job's user */

static char dir[64];
static int top = -1;

static int make_dir(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/ddp-file-at-XXXXXX");
    top = mkdtemp(dir) ? open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    return top >= 0 ? 0 : -1;
}

static int remove_dir(void **state)
{
    struct err e;

    (void)state;
    close_fd(&top);
    return file_remove_tree(dir, &e) ? -1 : 0;
}

static void put_file(int at, const char *name, mode_t mode)
{
    int fd = openat(at, name, O_WRONLY | O_CREAT | O_CLOEXEC, mode);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, "text", 4), 4);
    close(fd);
}

static void directories_are_created_or_opened(void **state)
{
    struct stat st;
    struct err e;
    int fd = -1;

    (void)state;
    assert_int_equal(file_at_open_dir(top, "a/b", &fd, &e), ERR_NOT_FOUND);
    assert_ok(file_at_make_dirs(top, "a/b/c", 0751, true, &fd, &e), &e);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0751 & ~umask(022));
    close(fd);
    assert_ok(file_at_open_dir(top, "a/b/c", &fd, &e), &e);
    close(fd);
    assert_int_equal(file_at_open_dir(top, "a/../..", &fd, &e), ERR_INVALID_ARGUMENT);
}

static void symlinks_in_a_path_are_not_followed(void **state)
{
    struct err e;
    int fd = -1;

    (void)state;
    assert_int_equal(mkdirat(top, "real", 0755), 0);
    assert_int_equal(mkdirat(top, "real/below", 0755), 0);
    assert_int_equal(symlinkat("real", top, "link"), 0);
    assert_int_not_equal(file_at_open_dir(top, "link", &fd, &e), ERR_OK);
    assert_int_not_equal(file_at_open_dir(top, "link/below", &fd, &e), ERR_OK);
    assert_int_not_equal(file_at_make_dirs(top, "link/below/new", 0755, true, &fd, &e), ERR_OK);
    assert_int_equal(faccessat(top, "real/below/new", F_OK, 0), -1);
}

static void another_users_directory_in_a_path_is_refused(void **state)
{
    struct err e;
    int fd = -1;

    (void)state;
    if (geteuid())
        skip();
    assert_int_equal(mkdirat(top, "his", 0755), 0);
    assert_int_equal(fchownat(top, "his", USER, USER, 0), 0);
    assert_int_equal(file_at_make_dirs(top, "his/ours", 0755, true, &fd, &e), ERR_PERMISSION_DENIED);
    assert_non_null(strstr(e.msg, "his belongs to uid 65534"));
    assert_ok(file_at_make_dirs(top, "his", 0755, true, &fd, &e), &e); /* the last directory may */
    close(fd);
    assert_ok(file_at_make_dirs(top, "his/ours", 0755, false, &fd, &e), &e);
    close(fd);
}

static void only_plain_files_of_the_directorys_owner_are_read(void **state)
{
    struct stat st;
    struct err e;
    int fd = -1;

    (void)state;
    put_file(top, "plain", 0600);
    assert_ok(file_at_open_plain(top, "plain", O_RDONLY, &fd, &st, &e), &e);
    assert_int_equal(st.st_size, 4);
    close(fd);
    assert_int_equal(file_at_open_plain(top, "none", O_RDONLY, &fd, &st, &e), ERR_NOT_FOUND);
    assert_int_equal(symlinkat("plain", top, "to-plain"), 0);
    assert_int_equal(file_at_open_plain(top, "to-plain", O_RDONLY, &fd, &st, &e), ERR_INVALID_ARGUMENT);
    assert_int_equal(mkfifoat(top, "fifo", 0600), 0);
    assert_int_equal(file_at_open_plain(top, "fifo", O_RDONLY, &fd, &st, &e), ERR_INVALID_ARGUMENT);
    assert_int_equal(file_at_open_plain(top, ".", O_RDONLY, &fd, &st, &e), ERR_INVALID_ARGUMENT);
}

/* Where fs.protected_hardlinks is on, a user cannot make such a link. Where it is off, the file's owner shows
 * that the file is not the user's. */
static void a_hard_link_to_roots_file_is_not_read(void **state)
{
    struct stat st;
    struct err e;
    int at = -1, fd = -1;

    (void)state;
    if (geteuid())
        skip();
    put_file(top, "secret", 0600);
    assert_ok(file_at_make_dirs(top, "leaf", 0755, true, &at, &e), &e);
    assert_int_equal(fchown(at, USER, USER), 0);
    assert_int_equal(linkat(top, "secret", at, "stdout.log", 0), 0);
    assert_int_equal(file_at_open_plain(at, "stdout.log", O_RDONLY, &fd, &st, &e), ERR_PERMISSION_DENIED);
    assert_int_equal(file_at_open_append(at, "stdout.log", 0640, USER, USER, &fd, &e), ERR_PERMISSION_DENIED);
    assert_int_equal(fstatat(top, "secret", &st, 0), 0);
    assert_int_equal(st.st_uid, 0);
    close(at);
}

static void a_log_file_is_created_and_given_to_the_user(void **state)
{
    uid_t user = geteuid() ? geteuid() : USER;
    gid_t group = geteuid() ? getegid() : USER;
    struct stat st;
    struct err e;
    int fd = -1;

    (void)state;
    assert_ok(file_at_open_append(top, "log", 0640, user, group, &fd, &e), &e);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0640);
    assert_int_equal(st.st_uid, user);
    assert_int_equal(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
    assert_true(fcntl(fd, F_GETFL) & O_APPEND);
    close(fd);
    assert_ok(file_at_open_append(top, "log", 0640, user, group, &fd, &e), &e); /* it exists now */
    close(fd);
}

/* A user may move a file of root from one of the user's directories to another. */
static void a_file_of_root_in_a_users_directory_is_not_given_away(void **state)
{
    struct stat st;
    struct err e;
    int at = -1, fd = -1;

    (void)state;
    if (geteuid())
        skip();
    put_file(top, "core", 0600);
    assert_ok(file_at_make_dirs(top, "his", 0755, true, &at, &e), &e);
    assert_int_equal(renameat(top, "core", at, "stdout.log"), 0);
    assert_ok(file_at_open_append(at, "stdout.log", 0640, 0, 0, &fd, &e), &e);
    close(fd);
    assert_int_equal(fchown(at, USER, USER), 0);
    assert_int_equal(file_at_open_append(at, "stdout.log", 0640, USER, USER, &fd, &e), ERR_PERMISSION_DENIED);
    assert_int_equal(fstatat(at, "stdout.log", &st, 0), 0);
    assert_int_equal(st.st_uid, 0);
    assert_int_equal(fchown(at, 0, 0), 0); /* as after a crash between creating and giving */
    assert_ok(file_at_open_append(at, "stdout.log", 0640, USER, USER, &fd, &e), &e);
    close(fd);
    close(at);
}

static void symlinks_fifos_and_hard_links_are_not_opened_for_append(void **state)
{
    struct err e;
    int fd = -1;

    (void)state;
    put_file(top, "target", 0600);
    assert_int_equal(symlinkat("target", top, "a-link"), 0);
    assert_int_not_equal(file_at_open_append(top, "a-link", 0640, USER, USER, &fd, &e), ERR_OK);
    assert_int_equal(mkfifoat(top, "a-fifo", 0600), 0); /* without a reader: open must not wait */
    assert_int_not_equal(file_at_open_append(top, "a-fifo", 0640, USER, USER, &fd, &e), ERR_OK);
    assert_int_equal(linkat(top, "target", top, "a-name", 0), 0);
    assert_int_equal(file_at_open_append(top, "a-name", 0640, USER, USER, &fd, &e), ERR_PERMISSION_DENIED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(directories_are_created_or_opened),
        cmocka_unit_test(symlinks_in_a_path_are_not_followed),
        cmocka_unit_test(another_users_directory_in_a_path_is_refused),
        cmocka_unit_test(only_plain_files_of_the_directorys_owner_are_read),
        cmocka_unit_test(a_hard_link_to_roots_file_is_not_read),
        cmocka_unit_test(a_log_file_is_created_and_given_to_the_user),
        cmocka_unit_test(a_file_of_root_in_a_users_directory_is_not_given_away),
        cmocka_unit_test(symlinks_fifos_and_hard_links_are_not_opened_for_append),
    };

    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
