/* Tests the environment variables that the plugin sets for NCCL. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/mem.h"
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

/* ---- machines with several interfaces, as directories like /sys/class/net */

struct nic {
    const char *name;
    int speed;        /* Mbit/s; 0: the driver does not know it */
    const char *more; /* a link or directory of the interface: master, lower_NAME; NULL: none */
    bool virtual, tunnel;
};
struct machine {
    const char *chosen; /* has the node's address */
    bool only;          /* NCCL is told to use it */
    struct nic nics[10];
};

static void file_put(const char *sys, const struct nic *nic, const char *file, int number)
{
    CLEANUP(free_text) char *path = xasprintf("%s/%s/%s", sys, nic->name, file);
    FILE *f = fopen(path, "we");

    assert_non_null(f);
    fprintf(f, "%d\n", number);
    fclose(f);
}

static void nic_put(const char *sys, const struct nic *nic)
{
    CLEANUP(free_text) char *path = xasprintf("%s/%s", sys, nic->name);

    assert_int_equal(mkdir(path, 0700), 0);
    file_put(sys, nic, "type", nic->tunnel ? 65534 : 1);
    file_put(sys, nic, "speed", nic->speed ? nic->speed : -1);
    if (!nic->virtual)
        file_put(sys, nic, "device", 0);
    if (nic->more)
        file_put(sys, nic, nic->more, 0);
}

static void one_interface_is_chosen_only_where_it_is_the_only_network_for_data(void **state)
{
    static const struct machine machines[] = {
        {"eth0", true, {{"eth0", 10000}}},
        {"eth1", true, {{"eth0", 1000}, {"eth1", 25000}, {"docker0", 0, .virtual = true}}},
        /* rails: a slow network for management, and an interface for each GPU */
        {"eth0", false, {{"eth0", 1000}, {"ib0", 400000}, {"ib1", 400000}, {"ib2", 400000}, {"ib3", 400000}}},
        {"eth1", false, {{"eth0", 1000}, {"eth1", 100000}, {"eth2", 100000}}},
        {"eth0", false, {{"eth0", 0}, {"eth1", 0}}},
        {"eth0", true, {{"eth0", 1000}, {"wlan0", 0, "phy80211"}}},
        {"wg0", true, {{"wg0", 0, .virtual = true, .tunnel = true}, {"eth0", 100000}, {"eth1", 100000}}},
        {"bond0",
         true,
         {{"bond0", 25000, .virtual = true},
          {"eth0", 25000, "master"},
          {"eth1", 25000, "master"},
          {"eth2", 1000}}},
        {"bond0", false, {{"bond0", 50000, .virtual = true}, {"eth0", 25000, "master"}, {"eth2", 100000}}},
        {"eth0.7", true, {{"eth0.7", 25000, "lower_eth0", .virtual = true}, {"eth0", 25000}}},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(machines); i++) {
        const struct machine *m = &machines[i];
        const char *names[ARRAY_LEN(m->nics)];
        char sys[] = "/tmp/ddp-nics-XXXXXX";
        struct err e = {0};
        size_t count = 0;

        assert_non_null(mkdtemp(sys));
        for (; count < ARRAY_LEN(m->nics) && m->nics[count].name; count++) {
            nic_put(sys, &m->nics[count]);
            names[count] = m->nics[count].name;
        }
        if (nccl_only_network(sys, names, count, m->chosen) != m->only)
            fail_msg("machine %zu", i);
        assert_int_equal(file_remove_tree(sys, &e), ERR_OK);
    }
}

/* ---- a library that does not know groups with several ids */

static void an_old_library_has_one_id_for_a_large_group(void **state)
{
    struct comm *_Atomic c = NULL;
    struct comm_config config = {.world_size = 600};
    uint8_t ids[4096];
    struct err e = {0};

    (void)state;
    setenv("DDP_STANDIN_NCCL_FAULT", "one-id", 1); /* before the library is opened */
    assert_int_equal(nccl_comm_ops.make_id(600, ids, sizeof(ids), &config.id_size, &e), ERR_OK);
    assert_int_equal(config.id_size, 128);
    config.id = ids;
    config.id_size = 256; /* made by a newer library */
    assert_int_equal(nccl_comm_ops.open(&c, NULL, &config, &e), ERR_FAILED_PRECONDITION);
    assert_non_null(strstr(e.msg, "several ids"));
    assert_null(c);
    unsetenv("DDP_STANDIN_NCCL_FAULT");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_environment_without_an_order),
        cmocka_unit_test(test_environment),
        cmocka_unit_test(test_interface_of_the_nodes_address),
        cmocka_unit_test(an_old_library_has_one_id_for_a_large_group),
        cmocka_unit_test(one_interface_is_chosen_only_where_it_is_the_only_network_for_data),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
