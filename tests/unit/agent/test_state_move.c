#include "tests/unit/base/check.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/paths.h"
#include "daemon/agent/state_move.h"

/* `from` holds the state of an older agent, of which a supervisor still runs; `to` is the new directory. */

struct setup {
    char *root, *from, *to;
};

static void put_file(const char *dir, const char *name, const char *text)
{
    CLEANUP(free_text) char *path = paths_join(dir, name);
    struct err e;

    assert_ok(file_write_atomic(path, text, strlen(text), 0600, &e), &e);
}

static bool file_holds(const char *dir, const char *name, const char *text)
{
    CLEANUP(free_text) char *path = paths_join(dir, name);
    CLEANUP(buf_release) struct buf found = {0};
    struct err e;

    return !file_read(path, 100, &found, &e) && strcmp(found.data, text) == 0;
}

static void open_setup(struct setup *s)
{
    char dir[] = "/tmp/ddp-adopt-XXXXXX";
    CLEANUP(free_text) char *job = NULL;
    struct err e;

    s->root = xstrdup(mkdtemp(dir));
    s->from = paths_join(s->root, "old");
    s->to = paths_join(s->root, "new");
    job = paths_join(s->from, "run/7");
    assert_ok(file_mkdirs(job, 0700, &e), &e);
    put_file(s->from, "instance", "abc\n");
    put_file(s->from, "wish", "w");
    put_file(s->from, "ddp.db", "the coordinator's");
    put_file(job, "exit.1", "code 0");
}

static void close_setup(struct setup *s)
{
    struct err e;

    assert_ok(file_remove_tree(s->root, &e), &e);
    free(s->root);
    free(s->from);
    free(s->to);
}

static void adopt_state(const struct setup *s, const char *expected)
{
    CLEANUP(free_text) char *used = NULL;
    struct err e;

    assert_ok(state_move(s->from, s->to, &used, &e), &e);
    assert_string_equal(used, expected);
}

static void state_moves_and_old_paths_lead_to_it(void **state)
{
    struct setup s;

    (void)state;
    open_setup(&s);
    adopt_state(&s, s.to);
    assert_true(file_holds(s.to, "instance", "abc\n") && file_holds(s.to, "wish", "w"));
    assert_true(file_holds(s.to, "run/7/exit.1", "code 0"));
    assert_true(file_holds(s.from, "ddp.db", "the coordinator's"));
    assert_false(file_holds(s.from, "instance", "abc\n"));
    put_file(s.from, "run/7/exit.2",
             "code 1"); /* written by a supervisor that was started with the old path */
    assert_true(file_holds(s.to, "run/7/exit.2", "code 1"));
    put_file(s.to, "wish", "newer");
    adopt_state(&s, s.to); /* a second time: nothing is left to move */
    assert_true(file_holds(s.to, "wish", "newer"));
    close_setup(&s);
}

static void a_new_node_has_no_state_to_move(void **state)
{
    struct setup s;
    CLEANUP(free_text) char *instance = NULL;

    (void)state;
    open_setup(&s);
    instance = paths_join(s.from, "instance");
    assert_int_equal(unlink(instance), 0);
    adopt_state(&s, s.to);
    assert_false(file_holds(s.to, "wish", "w"));
    close_setup(&s);
}

static void an_interrupted_move_is_finished(void **state)
{
    struct setup s;
    CLEANUP(free_text) char *run = NULL, *link = NULL;
    struct err e;

    (void)state;
    open_setup(&s);
    assert_ok(file_mkdirs(s.to, 0700, &e), &e);
    run = paths_join(s.from, "run");
    link = paths_join(s.to, "run");
    assert_int_equal(symlink(link, link), 0); /* as if the agent was killed before the exchange */
    adopt_state(&s, s.to);
    assert_true(file_holds(s.to, "run/7/exit.1", "code 0") && file_holds(s.from, "run/7/exit.1", "code 0"));
    close_setup(&s);
}

static void moves_that_are_not_safe_are_refused(void **state)
{
    struct setup s;
    CLEANUP(free_text) char *lock = NULL, *wish = NULL;
    char *used = NULL;
    struct err e;
    int fd;

    (void)state;
    open_setup(&s);
    lock = paths_join(s.from, "agent.lock");
    assert_ok(file_lock(lock, &fd, &e), &e);
    assert_int_equal(state_move(s.from, s.to, &used, &e), ERR_FAILED_PRECONDITION);
    assert_non_null(strstr(e.msg, "an older ddp-agent still runs"));
    close(fd);
    if (geteuid() == 0) { /* a file that the coordinator's account could have written */
        wish = paths_join(s.from, "wish");
        assert_int_equal(lchown(wish, 1, 1), 0);
        assert_int_equal(state_move(s.from, s.to, &used, &e), ERR_FAILED_PRECONDITION);
        assert_non_null(strstr(e.msg, "chown -R -h 0 "));
        assert_true(file_holds(s.from, "wish", "w") && file_holds(s.from, "instance", "abc\n"));
        assert_false(file_holds(s.to, "wish", "w"));
    }
    close_setup(&s);
}

/* The account that owns the old directory could make this agent start its programs as root. */
static void files_of_another_user_are_moved_back(void **state)
{
    static const char *const names[] = {"run", "wish", "instance"};

    (void)state;
    if (geteuid())
        skip();
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        CLEANUP(free_text) char *old = NULL;
        struct setup s;
        char *used = NULL;
        struct stat st;
        struct err e;

        open_setup(&s);
        old = paths_join(s.from, names[i]);
        assert_int_equal(lchown(old, 1, 1), 0);
        assert_int_equal(state_move(s.from, s.to, &used, &e), ERR_FAILED_PRECONDITION);
        assert_int_equal(lstat(old, &st), 0);
        /* The file is back in the old directory, and nothing of it is in the new one. */
        assert_int_equal(st.st_uid, 1);
        assert_false(file_holds(s.to, names[i], "w") || file_holds(s.to, "instance", "abc\n"));
        assert_int_equal(lchown(old, 0, 0), 0);
        adopt_state(&s, s.to);
        assert_true(file_holds(s.to, "run/7/exit.1", "code 0") && file_holds(s.to, "wish", "w"));
        close_setup(&s);
    }
}

static void a_link_is_not_taken_for_the_lock(void **state)
{
    CLEANUP(free_text) char *lock = NULL, *target = NULL;
    char *used = NULL;
    struct setup s;
    struct err e;

    (void)state;
    open_setup(&s);
    lock = paths_join(s.from, "agent.lock");
    target = paths_join(s.root, "made-by-root");
    assert_int_equal(symlink(target, lock), 0);
    assert_int_not_equal(state_move(s.from, s.to, &used, &e), ERR_OK);
    assert_false(file_exists(target));
    close_setup(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(state_moves_and_old_paths_lead_to_it),
        cmocka_unit_test(a_new_node_has_no_state_to_move),
        cmocka_unit_test(an_interrupted_move_is_finished),
        cmocka_unit_test(moves_that_are_not_safe_are_refused),
        cmocka_unit_test(files_of_another_user_are_moved_back),
        cmocka_unit_test(a_link_is_not_taken_for_the_lock),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
