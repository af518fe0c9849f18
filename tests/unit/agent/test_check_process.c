#include "tests/unit/base/check.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "daemon/agent/preflight/check_process.h"

#define TEXT(s) ((char *)(uintptr_t)(s))

/* ---- links */

static const uint8_t key[CHECK_KEY] = "0123456789abcde", wrong[CHECK_KEY] = "0123456789abcdX";

/* A listener in a process of its own, as it is in use; its ports go to *out. */
static pid_t serve(Ddp__V1__CheckListenResult *out)
{
    const struct check_ports ports = {24100, 24199};
    int fds[2];
    pid_t pid;

    check_listen_open(&ports, fds, out);
    assert_true(fds[0] >= 0 && fds[1] >= 0);
    assert_true(out->master_port >= 24100 && out->master_port <= 24199);
    assert_true(out->other_port > 0);
    pid = fork();
    if (!pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(!check_listen_serve(fds, key, 30000, 3));
    }
    close(fds[0]);
    close(fds[1]);
    return pid;
}

static void dial(int32_t *ports, size_t count, const uint8_t *with, bool measure, Ddp__V1__CheckLink ***links,
                 size_t *got)
{
    Ddp__V1__CheckTarget target = DDP__V1__CHECK_TARGET__INIT, *list[] = {&target};
    Ddp__V1__CheckConnect ask = DDP__V1__CHECK_CONNECT__INIT;

    target.node = TEXT("box2");
    target.address = TEXT("127.0.0.1");
    target.ports = ports;
    target.n_ports = count;
    target.measure = measure;
    ask.targets = list;
    ask.n_targets = 1;
    ask.key = (ProtobufCBinaryData){CHECK_KEY, (uint8_t *)(uintptr_t)with};
    check_connect(&ask, links, got);
}

static void ports_are_reached_and_the_link_measured(void **state)
{
    Ddp__V1__CheckListenResult listen;
    Ddp__V1__CheckLink **links;
    pid_t pid = serve(&listen);
    int32_t ports[] = {listen.master_port, listen.other_port};
    size_t count;
    int status;

    (void)state;
    dial(ports, 2, key, true, &links, &count);
    assert_int_equal(count, 2);
    for (size_t i = 0; i < 2; i++) {
        assert_string_equal(links[i]->problem, "");
        assert_true(links[i]->connect_ms > 0);
        assert_string_equal(links[i]->node, "box2");
        assert_int_equal(links[i]->port, ports[i]);
    }
    assert_true(links[0]->bytes_per_s > 0);
    assert_true(links[1]->bytes_per_s == 0); /* one is enough */
    check_links_free(links, count);
    assert_int_equal(waitpid(pid, &status, 0), pid); /* two to reach it and one to measure: all have come */
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void another_key_is_somebody_elses(void **state)
{
    Ddp__V1__CheckListenResult listen;
    Ddp__V1__CheckLink **links;
    pid_t pid = serve(&listen);
    int32_t port = listen.other_port;
    size_t count;

    (void)state;
    dial(&port, 1, wrong, true, &links, &count);
    assert_non_null(strstr(links[0]->problem, "somebody else answers"));
    assert_true(links[0]->bytes_per_s == 0);
    check_links_free(links, count);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static void a_closed_port_is_refused(void **state)
{
    Ddp__V1__CheckListenResult listen;
    Ddp__V1__CheckLink **links;
    pid_t pid = serve(&listen);
    int32_t port = listen.other_port;
    size_t count;

    (void)state;
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    dial(&port, 1, key, true, &links, &count);
    assert_int_equal(strncmp(links[0]->problem, "refused", 7), 0);
    check_links_free(links, count);
}

static void an_address_that_is_none_has_no_route(void **state)
{
    Ddp__V1__CheckTarget target = DDP__V1__CHECK_TARGET__INIT, *list[] = {&target};
    Ddp__V1__CheckConnect ask = DDP__V1__CHECK_CONNECT__INIT;
    Ddp__V1__CheckLink **links;
    int32_t port = 1;
    size_t count;

    (void)state;
    target.address = TEXT("no.such.name.invalid");
    target.ports = &port;
    target.n_ports = 1;
    ask.targets = list;
    ask.n_targets = 1;
    ask.key = (ProtobufCBinaryData){CHECK_KEY, (uint8_t *)(uintptr_t)key};
    check_connect(&ask, &links, &count);
    assert_int_equal(count, 1);
    assert_true(*links[0]->problem);
    check_links_free(links, count);
}

/* ---- places */

struct place {
    char dir[64];
    Ddp__V1__CheckPlace ask;
    Ddp__V1__CheckPlaceResult got;
};

static int open_place(void **state)
{
    struct place *p = xcalloc(1, sizeof(*p));

    strcpy(p->dir, "/tmp/ddp-test-check-XXXXXX");
    ddp__v1__check_place__init(&p->ask);
    *state = p;
    return mkdtemp(p->dir) ? 0 : -1;
}

static int close_place(void **state)
{
    struct place *p = *state;
    struct err e;

    (void)!chdir("/");
    assert_int_equal(file_remove_tree(p->dir, &e), ERR_OK);
    free(p);
    return 0;
}

static void put(const struct place *p, const char *name, const char *text, size_t size)
{
    CLEANUP(free_text) char *path = xasprintf("%s/%s", p->dir, name);
    struct err e;

    assert_int_equal(file_write_atomic(path, text, size, 0644, &e), ERR_OK);
}

static void data_is_told_apart_by_content_and_by_name(void **state)
{
    struct place *p = *state;
    char *paths[] = {p->dir}, first[80];

    p->ask.paths = paths;
    p->ask.n_paths = 1;
    p->ask.hash = true;
    put(p, "a", "123", 3);
    put(p, "b", "45", 2);
    struct check_place *c = check_place_look(&p->ask, &p->got);
    assert_string_equal(p->got.paths[0]->problem, "");
    assert_int_equal(p->got.paths[0]->files, 2);
    assert_int_equal(p->got.paths[0]->bytes, 5);
    assert_false(p->got.paths[0]->sampled);
    strcpy(first, p->got.paths[0]->digest);
    check_place_free(c);

    c = check_place_look(&p->ask, &p->got);
    assert_string_equal(p->got.paths[0]->digest, first);
    check_place_free(c);

    put(p, "b", "46", 2);
    c = check_place_look(&p->ask, &p->got);
    assert_string_not_equal(p->got.paths[0]->digest, first);
    check_place_free(c);

    p->ask.hash = false;
    c = check_place_look(&p->ask, &p->got);
    assert_string_equal(p->got.paths[0]->digest, "");
    assert_int_equal(p->got.paths[0]->bytes, 5);
    check_place_free(c);
}

static void large_files_are_sampled_at_both_ends(void **state)
{
    struct place *p = *state;
    size_t size = 9 << 20;
    char *text = xcalloc(1, size), *paths[] = {p->dir}, first[80];

    p->ask.paths = paths;
    p->ask.n_paths = 1;
    p->ask.hash = true;
    put(p, "big", text, size);
    struct check_place *c = check_place_look(&p->ask, &p->got);
    assert_true(p->got.paths[0]->sampled);
    strcpy(first, p->got.paths[0]->digest);
    check_place_free(c);
    text[size - 1] = 1;
    put(p, "big", text, size);
    c = check_place_look(&p->ask, &p->got);
    assert_string_not_equal(p->got.paths[0]->digest, first);
    check_place_free(c);
    free(text);
}

/* More than can be read while somebody waits: what comes first by name is read, of the rest the sizes count.
 */
static void of_much_data_the_first_is_read(void **state)
{
    struct place *p = *state;
    char *paths[] = {p->dir}, first[80], name[128];

    p->ask.paths = paths;
    p->ask.n_paths = 1;
    p->ask.hash = true;
    for (int i = 0; i < 17; i++) {
        snprintf(name, sizeof(name), "%s/%02d", p->dir, i);
        put(p, name + strlen(p->dir) + 1, "", 0);
        assert_int_equal(truncate(name, 8 << 20), 0);
    }
    struct check_place *c = check_place_look(&p->ask, &p->got);
    assert_true(p->got.paths[0]->sampled);
    assert_int_equal(p->got.paths[0]->bytes, (int64_t)17 * (8 << 20));
    strcpy(first, p->got.paths[0]->digest);
    check_place_free(c);
    assert_int_equal(truncate(name, (8 << 20) - 1), 0); /* the last */
    c = check_place_look(&p->ask, &p->got);
    assert_string_not_equal(p->got.paths[0]->digest, first);
    check_place_free(c);
}

static void what_is_missing_is_named(void **state)
{
    struct place *p = *state;
    CLEANUP(free_text) char *gone = xasprintf("%s/gone", p->dir);
    CLEANUP(free_text) char *below = xasprintf("%s/file/out", p->dir);
    CLEANUP(free_text) char *fine = xasprintf("%s/new/deep", p->dir);
    char *paths[] = {gone}, *writable[] = {below, fine};
    char *command[] = {TEXT("no-such-interpreter"), TEXT("-m"), TEXT("train.py"), TEXT("words")};

    put(p, "file", "x", 1);
    p->ask.workdir = gone;
    p->ask.paths = paths;
    p->ask.n_paths = 1;
    p->ask.writable = writable;
    p->ask.n_writable = 2;
    p->ask.command = command;
    p->ask.n_command = 4;
    struct check_place *c = check_place_look(&p->ask, &p->got);
    assert_non_null(strstr(p->got.workdir_problem, "/gone: does not exist"));
    assert_string_equal(p->got.interpreter_problem, "no-such-interpreter: not found in PATH");
    assert_int_equal(p->got.n_paths, 2); /* and the script: "-m" and "words" are no files */
    assert_string_equal(p->got.paths[0]->problem, "does not exist");
    assert_non_null(strstr(p->got.paths[1]->path, "/gone/train.py"));
    assert_int_equal(p->got.n_problems, 1);
    assert_non_null(strstr(p->got.problems[0], "/file/out cannot be written"));
    assert_true(p->got.memory_bytes > 0 && p->got.memory_free > 0 && p->got.disk_free > 0);
    check_place_free(c);
}

static void the_jobs_own_path_finds_the_interpreter(void **state)
{
    struct place *p = *state;
    CLEANUP(free_text) char *program = xasprintf("%s/python-x", p->dir);
    CLEANUP(free_text) char *path = xasprintf("PATH=%s", p->dir);
    static const char script[] = "#!/bin/sh\necho Python 9.9\necho more\n";
    char *env[] = {path}, *command[] = {TEXT("python-x")};
    CLEANUP(free_text) char *before = xstrdup(getenv("PATH"));

    put(p, "python-x", script, sizeof(script) - 1);
    assert_int_equal(chmod(program, 0755), 0);
    p->ask.workdir = p->dir;
    p->ask.env = env;
    p->ask.n_env = 1;
    p->ask.command = command;
    p->ask.n_command = 1;
    p->ask.hash = true;
    struct check_place *c = check_place_look(&p->ask, &p->got);
    assert_string_equal(p->got.interpreter, program);
    assert_string_equal(p->got.interpreter_version, "Python 9.9");
    check_place_free(c);
    setenv("PATH", before, 1);
}

int main(void)
{
#define PLACE(test) cmocka_unit_test_setup_teardown(test, open_place, close_place)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ports_are_reached_and_the_link_measured),
        cmocka_unit_test(another_key_is_somebody_elses),
        cmocka_unit_test(a_closed_port_is_refused),
        cmocka_unit_test(an_address_that_is_none_has_no_route),
        PLACE(data_is_told_apart_by_content_and_by_name),
        PLACE(large_files_are_sampled_at_both_ends),
        PLACE(of_much_data_the_first_is_read),
        PLACE(what_is_missing_is_named),
        PLACE(the_jobs_own_path_finds_the_interpreter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
