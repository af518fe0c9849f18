/* Tests listeners and their addresses: how a worker's address of its node is used, the encoded form, and
 * invalid addresses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/mem.h"
#include "tests/unit/trainer/member/ranks.h"

static void ranks_meet(struct ranks *r, int rank)
{
    struct coll_group *g = ranks_open(r, rank);
    struct err e = {0};

    RANK_OK(coll_barrier(g, &e), &e);
    coll_close(g);
}

static void nodes_are_reached_by_literals_and_by_names(void **state)
{
    static const char *const hosts[] = {"127.0.0.1", "::1", "[::1]", "localhost"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(hosts); i++) {
        struct ranks r = {.world = 2, .node_of = {0, 1}, .host = hosts[i]};

        assert_true(ranks_run(&r, ranks_meet));
        ranks_release(&r);
    }
}

/* No machine has 192.0.2.1. Like an address behind NAT, it is announced, and the listener listens on every
 * interface. */
static void an_address_of_another_machine_is_announced_unchanged(void **state)
{
    struct coll_listener *l;
    uint8_t address[512];
    struct err e = {0};

    (void)state;
    assert_int_equal(coll_listen(&l, "192.0.2.1", NULL, &e), ERR_OK);
    assert_int_equal(coll_listener_address(l, address, sizeof(address)), 6 + 9);
    assert_memory_equal(address + 4, "192.0.2.1", 9);
    coll_listener_free(l);
}

static void a_deep_directory_is_reached_too(void **state)
{
    struct coll_listener *l[2];
    uint8_t address[2][512];
    struct coll_peer peers[2];
    struct coll_config config = {.world_size = 2, .peers = peers, .timeout_ms = 20000};
    struct coll_group *g;
    struct err e = {0};
    char top[] = "/tmp/ddp-address-XXXXXX", deep[300];
    pid_t pid;

    (void)state;
    assert_non_null(mkdtemp(top));
    snprintf(deep, sizeof(deep), "%s/%0200d", top, 7);
    assert_int_equal(mkdir(deep, 0700), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(coll_listen(&l[i], NULL, deep, &e), ERR_OK);
        peers[i] = (struct coll_peer){.rank = i, .address = address[i]};
        peers[i].address_size = coll_listener_address(l[i], address[i], sizeof(address[i]));
    }
    pid = fork();
    config.rank = pid == 0;
    assert_int_equal(coll_open(&g, l[config.rank], &config, &e), ERR_OK);
    assert_int_equal(coll_barrier(g, &e), ERR_OK);
    coll_close(g);
    if (pid == 0)
        _exit(0);
    coll_listener_free(l[0]);
    coll_listener_free(l[1]);
    assert_int_equal(rmdir(deep), 0); /* the sockets are gone */
    assert_int_equal(file_remove_tree(top, &e), ERR_OK);
}

static void invalid_addresses_are_refused(void **state)
{
    static const char *const hosts[] = {"", "[]", "no.such.name.invalid", "10.0.0.256"};
    struct coll_listener *l;
    struct err e = {0};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(hosts); i++)
        assert_int_equal(coll_listen(&l, hosts[i], NULL, &e), ERR_INVALID_ARGUMENT);
    assert_int_equal(coll_listen(&l, NULL, "here", &e), ERR_INVALID_ARGUMENT);
    assert_int_equal(coll_listen(&l, NULL, "/no/such/directory", &e), ERR_NOT_FOUND);
}

/* A peer's address comes from the coordinator, which does not check it. */
static void an_invalid_peer_address_is_an_error_not_a_crash(void **state)
{
    uint8_t good[512], bad[512];
    struct coll_peer peers[2] = {{.rank = 0, .address = good}, {.rank = 1, .address = bad}};
    struct coll_config config = {.world_size = 2, .peers = peers, .timeout_ms = 1};
    struct coll_listener *l;
    struct coll_group *g;
    struct err e = {0};
    size_t size;

    (void)state;
    assert_int_equal(coll_listen(&l, "127.0.0.1", NULL, &e), ERR_OK);
    size = peers[0].address_size = coll_listener_address(l, good, sizeof(good));
    for (size_t cut = 0; cut < size; cut++) {
        memcpy(bad, good, size);
        peers[1].address_size = cut;
        assert_int_equal(coll_open(&g, l, &config, &e), ERR_INVALID_ARGUMENT);
        assert_non_null(strstr(e.msg, "rank 1"));
    }
    peers[1].address_size = size;
    memcpy(bad, good, size);
    bad[0]--; /* the version */
    assert_int_equal(coll_open(&g, l, &config, &e), ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(e.msg, "install the same version on all nodes"));
    for (size_t bit = 0; bit < 8 * size; bit++) {
        memcpy(bad, good, size);
        bad[bit / 8] ^= (uint8_t)(1 << bit % 8);
        /* Bytes 4 to 12 are the host. They are left alone: another host name would be looked up in DNS. */
        if (bit / 8 < 4 || bit / 8 >= 4 + 9)
            assert_int_not_equal(coll_open(&g, l, &config, &e), ERR_OK);
    }
    coll_listener_free(l);
}

static void ranks_that_do_not_exist_are_refused(void **state)
{
    uint8_t address[512];
    struct coll_peer peer = {.rank = 0, .address = address};
    struct coll_config config = {.peers = &peer};
    struct coll_listener *l;
    struct coll_group *g;
    struct err e = {0};

    (void)state;
    assert_int_equal(coll_listen(&l, NULL, NULL, &e), ERR_OK);
    peer.address_size = coll_listener_address(l, address, sizeof(address));
    for (config.world_size = 0; config.world_size < 2; config.world_size++) {
        config.rank = 1;
        assert_int_equal(coll_open(&g, l, &config, &e), ERR_INVALID_ARGUMENT);
    }
    config.world_size = 1;
    config.rank = 0;
    peer.rank = 1;
    assert_int_equal(coll_open(&g, l, &config, &e), ERR_INVALID_ARGUMENT);
    coll_listener_free(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_are_reached_by_literals_and_by_names),
        cmocka_unit_test(an_address_of_another_machine_is_announced_unchanged),
        cmocka_unit_test(a_deep_directory_is_reached_too),
        cmocka_unit_test(invalid_addresses_are_refused),
        cmocka_unit_test(an_invalid_peer_address_is_an_error_not_a_crash),
        cmocka_unit_test(ranks_that_do_not_exist_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
