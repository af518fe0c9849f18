#include "tests/unit/base/check.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "daemon/agent/logs/log_cluster.h"
#include "tests/unit/base/failing_readdir.h"

#define FIRST "1111aaaa2222bbbb"
#define SECOND "3333cccc4444dddd"

struct fixture {
    char dir[64];
};

static int fixture_open(void **state)
{
    struct fixture *f = xcalloc(1, sizeof(*f));

    strcpy(f->dir, "/tmp/ddp-test-cluster-XXXXXX");
    *state = f;
    return mkdtemp(f->dir) ? 0 : -1;
}

static int fixture_close(void **state)
{
    struct fixture *f = *state;
    struct err e;
    const enum err_code code = file_remove_tree(f->dir, &e);

    free(f);
    return code ? -1 : 0;
}

static void put_file(const struct fixture *f, const char *below)
{
    CLEANUP(free_text) char *path = xasprintf("%s/%s", f->dir, below);
    CLEANUP(free_text) char *dir = xstrdup(path);
    struct err e;

    *strrchr(dir, '/') = '\0';
    assert_ok(file_mkdirs(dir, 0755, &e), &e);
    assert_ok(file_write_atomic(path, below, strlen(below), 0644, &e), &e);
}

static bool fixture_has(const struct fixture *f, const char *below)
{
    CLEANUP(free_text) char *path = xasprintf("%s/%s", f->dir, below);

    return file_exists(path);
}

static void fixture_enter(const struct fixture *f, const char *node, const char *cluster)
{
    struct err e;

    assert_ok(log_cluster_enter(f->dir, node, cluster, &e), &e);
}

static void logs_of_the_same_cluster_stay(void **state)
{
    struct fixture *f = *state;

    fixture_enter(f, "box1", FIRST);
    fixture_enter(f, "box2", FIRST);
    put_file(f, "1/generation_1/box1/0/stdout.log");
    put_file(f, "1/generation_1/box2/0/stdout.log");
    fixture_enter(f, "box1", FIRST);
    fixture_enter(f, "box2", FIRST);
    assert_true(fixture_has(f, "1/generation_1/box1/0/stdout.log") &&
                fixture_has(f, "1/generation_1/box2/0/stdout.log"));
}

/* box2 shares the directory, and has not joined the new cluster yet. */
static void logs_of_a_former_cluster_move(void **state)
{
    struct fixture *f = *state;

    fixture_enter(f, "box1", FIRST);
    put_file(f, "1/generation_1/box1/0/stdout.log");
    put_file(f, "1/generation_2/box1/0/stdout.log");
    put_file(f, "1/generation_2/box2/0/stdout.log");
    put_file(f, "1/supervisor.box1.log");
    put_file(f, "2/generation_1/box1/0/stdout.log");
    put_file(f, "2024/notes");
    fixture_enter(f, "box1", SECOND);
    assert_true(fixture_has(f, "former_1111aaaa/1/generation_1/box1/0/stdout.log") &&
                fixture_has(f, "former_1111aaaa/1/generation_2/box1/0/stdout.log") &&
                fixture_has(f, "former_1111aaaa/1/supervisor.box1.log") &&
                fixture_has(f, "former_1111aaaa/2/generation_1/box1/0/stdout.log"));
    assert_true(!fixture_has(f, "1/generation_1") && !fixture_has(f, "1/generation_2/box1") &&
                !fixture_has(f, "1/supervisor.box1.log") && !fixture_has(f, "2"));
    assert_true(fixture_has(f, "1/generation_2/box2/0/stdout.log") && fixture_has(f, "2024/notes"));

    put_file(f, "1/generation_1/box1/0/stdout.log");
    fixture_enter(f, "box1", FIRST); /* and back, and away again */
    put_file(f, "1/generation_1/box1/0/stdout.log");
    fixture_enter(f, "box1", SECOND);
    assert_true(fixture_has(f, "former_3333cccc/1/generation_1/box1/0/stdout.log") &&
                fixture_has(f, "former_1111aaaa_2/1/generation_1/box1/0/stdout.log") &&
                !fixture_has(f, "1/generation_1"));
}

/* An older version recorded no cluster. If the node belonged to one, the logs are of that cluster's jobs. */
static void logs_of_an_older_agent(void **state)
{
    struct fixture *f = *state;
    struct err e;

    put_file(f, "1/generation_1/box1/0/stdout.log");
    assert_ok(log_cluster_note(f->dir, "box1", FIRST, &e), &e);
    fixture_enter(f, "box1", FIRST);
    assert_true(fixture_has(f, "1/generation_1/box1/0/stdout.log"));
    assert_ok(log_cluster_note(f->dir, "box1", SECOND, &e), &e); /* one is recorded */
    fixture_enter(f, "box1", FIRST);
    assert_true(fixture_has(f, "1/generation_1/box1/0/stdout.log"));

    put_file(f, "1/generation_1/box3/0/stdout.log");
    fixture_enter(f, "box3", FIRST);
    assert_true(fixture_has(f, "former_unknown/1/generation_1/box3/0/stdout.log"));
    assert_true(fixture_has(f, "1/generation_1/box1/0/stdout.log") && !fixture_has(f, "1/generation_1/box3"));
}

/* The cluster is not recorded before all logs have been moved, so that the next start of the agent moves the rest. */
static void a_directory_that_cannot_be_read_is_moved_later(void **state)
{
    struct fixture *f = *state;
    enum err_code codes[5];

    fixture_enter(f, "box1", FIRST);
    put_file(f, "1/generation_1/box1/0/stdout.log");
    for (size_t i = 0; i < ARRAY_LEN(codes); i++) {
        struct err e;

        entries_until_error = (int)i;
        codes[i] = log_cluster_enter(f->dir, "box1", SECOND, &e);
        entries_until_error = -1;
    }
    for (size_t i = 0; i < ARRAY_LEN(codes); i++)
        assert_int_equal(codes[i], ERR_INTERNAL);
    fixture_enter(f, "box1", SECOND);
    assert_true(!fixture_has(f, "1/generation_1") &&
                fixture_has(f, "former_1111aaaa/1/generation_1/box1/0/stdout.log"));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_open, fixture_close)
    const struct CMUnitTest tests[] = {
        TEST(logs_of_the_same_cluster_stay),
        TEST(logs_of_a_former_cluster_move),
        TEST(logs_of_an_older_agent),
        TEST(a_directory_that_cannot_be_read_is_moved_later),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
