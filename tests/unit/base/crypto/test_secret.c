#include "tests/unit/base/check.h"

#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/crypto/secret.h"
#include "base/mem.h"

#define NOBODY 65534

static char dir[] = "/tmp/ddp-secret-XXXXXX";

static char *make_token(mode_t mode)
{
    char *path = xasprintf("%s/token", dir);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, "abc\n", 4), 4);
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
    return path;
}

static enum err_code read_mode(mode_t mode, struct err *e)
{
    CLEANUP(free_text) char *path = make_token(mode);
    CLEANUP(buf_release) struct buf text = {0};
    enum err_code code = secret_read(path, 100, &text, e);

    if (!code)
        assert_string_equal(text.data, "abc\n");
    return code;
}

static void a_file_that_others_may_read_is_refused(void **state)
{
    static const mode_t closed[] = {0600, 0400, 0640, 0440},
                        open[] = {0644, 0604, 0602, 0660, 0620, 0666, 0641};
    struct err e = {0};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(closed); i++)
        assert_ok(read_mode(closed[i], &e), &e);
    for (size_t i = 0; i < ARRAY_LEN(open); i++) {
        assert_int_equal(read_mode(open[i], &e), ERR_PERMISSION_DENIED);
        assert_non_null(strstr(e.msg, "run `chmod 600 /tmp/ddp-secret-"));
    }
}

/* Reads as the user nobody, in a child, because this process must stay root. Returns 0 if the message
 * contains the sentence. */
static int read_as_nobody(const char *path, const char *sentence)
{
    pid_t pid = fork();
    int status = -1;

    if (!pid) {
        struct err e = {0};
        struct buf text = {0};
        if (setgroups(0, NULL) || setgid(NOBODY) || setuid(NOBODY))
            _exit(2);
        (void)!secret_read(path, 100, &text, &e);
        _exit(e.code && strstr(e.msg, sentence) ? 0 : 1);
    }
    assert_true(pid > 0 && waitpid(pid, &status, 0) == pid);
    return status;
}

static void the_message_names_who_may_not_read(void **state)
{
    CLEANUP(free_text) char *path = make_token(0640);

    (void)state;
    if (geteuid() != 0)
        skip();
    assert_int_equal(chown(path, NOBODY, 1), 0);
    assert_int_equal(read_as_nobody(path, "a group that this program is not in may read it"), 0);
    assert_int_equal(chown(path, 1, 1), 0);
    assert_int_equal(chmod(path, 0600), 0);
    assert_int_equal(read_as_nobody(path, "nobody may not read it: run `chgrp nogroup /tmp"), 0);
    assert_int_equal(chown(path, NOBODY, 1), 0);
    assert_int_equal(chmod(path, 0), 0);
    assert_int_equal(read_as_nobody(path, "its owner may not read it: run `chmod 600 /tmp"), 0);
    assert_int_equal(chmod(dir, 0700), 0); /* now the directory keeps nobody out, not the file */
    assert_int_equal(read_as_nobody(path, ": Permission denied"), 0);
    assert_int_equal(chmod(dir, 0755), 0);
}

static void a_pipe_of_any_mode_is_read(void **state)
{
    CLEANUP(free_text) char *path = NULL;
    CLEANUP(buf_release) struct buf text = {0};
    struct err e = {0};
    int fds[2];

    (void)state;
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(write(fds[1], "abc", 3), 3);
    close(fds[1]);
    path = xasprintf("/dev/fd/%d", fds[0]);
    assert_ok(secret_read(path, 100, &text, &e), &e);
    assert_string_equal(text.data, "abc");
    close(fds[0]);
}

static void oversized_and_missing_files_are_refused(void **state)
{
    CLEANUP(free_text) char *path = make_token(0600);
    CLEANUP(buf_release) struct buf text = {0};
    struct err e = {0};

    (void)state;
    assert_int_equal(secret_read(path, 3, &text, &e), ERR_RESOURCE_EXHAUSTED);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(secret_read(path, 100, &text, &e), ERR_NOT_FOUND);
}

static int open_dir(void **state)
{
    (void)state;
    return mkdtemp(dir) && chmod(dir, 0755) == 0 ? 0 : -1;
}

static int remove_dir(void **state)
{
    (void)state;
    return rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_that_others_may_read_is_refused),
        cmocka_unit_test(the_message_names_who_may_not_read),
        cmocka_unit_test(a_pipe_of_any_mode_is_read),
        cmocka_unit_test(oversized_and_missing_files_are_refused),
    };

    return cmocka_run_group_tests(tests, open_dir, remove_dir);
}
