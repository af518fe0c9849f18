#include "tests/unit/base/check.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "daemon/agent/preflight/check_link.h"

#define TEXT(s) ((char *)(uintptr_t)(s))

static const uint8_t key[CHECK_KEY] = "0123456789abcde", wrong[CHECK_KEY] = "0123456789abcdX";

/* Starts a listener in a process of its own, as the agent does, and stores its ports in *out. */
static pid_t listener_start(Ddp__V1__CheckListenResult *out)
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

static void dial_ports(int32_t *ports, size_t count, const uint8_t *with, bool measure,
                       Ddp__V1__CheckLink ***links, size_t *got)
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
    pid_t pid = listener_start(&listen);
    int32_t ports[] = {listen.master_port, listen.other_port};
    size_t count;
    int status;

    (void)state;
    dial_ports(ports, 2, key, true, &links, &count);
    assert_int_equal(count, 2);
    for (size_t i = 0; i < 2; i++) {
        assert_string_equal(links[i]->problem, "");
        assert_true(links[i]->connect_ms > 0);
        assert_string_equal(links[i]->node, "box2");
        assert_int_equal(links[i]->port, ports[i]);
    }
    assert_true(links[0]->bytes_per_s > 0);
    assert_true(links[1]->bytes_per_s == 0); /* one port of a target is measured */
    check_links_free(links, count);
    assert_int_equal(waitpid(pid, &status, 0), pid); /* three calls: two to reach the ports, one to measure */
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void another_key_is_refused(void **state)
{
    Ddp__V1__CheckListenResult listen;
    Ddp__V1__CheckLink **links;
    pid_t pid = listener_start(&listen);
    int32_t port = listen.other_port;
    size_t count;

    (void)state;
    dial_ports(&port, 1, wrong, true, &links, &count);
    assert_non_null(strstr(links[0]->problem, "another program answers"));
    assert_true(links[0]->bytes_per_s == 0);
    check_links_free(links, count);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static void a_closed_port_refuses_the_connection(void **state)
{
    Ddp__V1__CheckListenResult listen;
    Ddp__V1__CheckLink **links;
    pid_t pid = listener_start(&listen);
    int32_t port = listen.other_port;
    size_t count;

    (void)state;
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    dial_ports(&port, 1, key, true, &links, &count);
    assert_non_null(strstr(links[0]->problem, "connection refused"));
    check_links_free(links, count);
}

static void an_invalid_address_has_no_route(void **state)
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ports_are_reached_and_the_link_measured),
        cmocka_unit_test(another_key_is_refused),
        cmocka_unit_test(a_closed_port_refuses_the_connection),
        cmocka_unit_test(an_invalid_address_has_no_route),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
