/* Tests the environment variables that the plugin sets for NCCL. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdlib.h>

#include "trainer/device/cuda/nccl/nccl.h"
#include "trainer/device/cuda/nccl/nccl_environment.h"

/* With reproducible: none, NCCL chooses algorithm, protocol, and the number of thread blocks. */
static void test_environment_without_an_order(void **state)
{
    (void)state;
    nccl_comm_ops.prepare(false);
    assert_null(getenv("NCCL_ALGO"));
    assert_null(getenv("NCCL_PROTO"));
    assert_null(getenv("NCCL_NVLS_ENABLE"));
    assert_string_equal(getenv("NCCL_RAS_ENABLE"), "0");
}

/* Environment variables of NCCL that the user has set are not changed. */
static void test_environment(void **state)
{
    (void)state;
    setenv("NCCL_ALGO", "Tree", 1);
    nccl_environment(true);
    assert_string_equal(getenv("NCCL_ALGO"), "Tree");
    assert_string_equal(getenv("NCCL_PROTO"), "Simple");
    assert_string_equal(getenv("NCCL_RAS_ENABLE"), "0");
}

static const char *interface_at(const char *address, const char *said)
{
    unsetenv("NCCL_SOCKET_IFNAME");
    unsetenv("NCCL_SOCKET_FAMILY");
    if (said)
        setenv("NCCL_SOCKET_IFNAME", said, 1);
    setenv("DDP_NODE_ADDRESS", address, 1);
    nccl_environment(true);
    unsetenv("DDP_NODE_ADDRESS");
    return getenv("NCCL_SOCKET_IFNAME");
}

/* NCCL uses the interface of the node's address. */
static void test_interface_of_the_nodes_address(void **state)
{
    (void)state;
    assert_string_equal(interface_at("127.0.0.1", NULL), "=lo");
    assert_string_equal(getenv("NCCL_SOCKET_FAMILY"), "AF_INET");
    assert_string_equal(interface_at("127.0.0.1", "eth1"), "eth1");
    assert_null(getenv("NCCL_SOCKET_FAMILY"));
    assert_null(
        interface_at("192.0.2.1", NULL)); /* a documentation address (RFC 5737), which no interface has */
    assert_null(interface_at("localhost", NULL)); /* a host name: peers may resolve it to another address */
    assert_null(interface_at("::1", NULL));       /* NCCL does not use that interface */
    assert_null(interface_at("", NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_environment_without_an_order),
        cmocka_unit_test(test_environment),
        cmocka_unit_test(test_interface_of_the_nodes_address),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
