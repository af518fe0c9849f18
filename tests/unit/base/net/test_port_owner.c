/* Who listens at a port, from the kernel's tables of sockets. */
#include "tests/unit/base/check.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/net/port_owner.h"

#define HEAD                                                                                                 \
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
#define ROW(address, port, state, uid)                                                                       \
    "   0: " address ":" port " 00000000:0000 " state " 00000000:00000000 00:00000000 00000000  " uid        \
    "        0 123 1 0 100 0 0 10 0\n"

static void the_owner_is_who_listens(void **state)
{
    (void)state;
    static const struct {
        const char *table;
        enum port_owner owner;
    } cases[] = {
        {HEAD, PORT_OF_NOBODY},
        {"", PORT_OF_NOBODY},
        {HEAD ROW("0100007F", "72D8", "0A", "1000"), PORT_OF_THIS_USER},
        {HEAD ROW("00000000", "72D8", "0A", "1000"), PORT_OF_THIS_USER},
        {HEAD ROW("0100007F", "72D8", "0A", "   7"), PORT_OF_ANOTHER},
        {HEAD ROW("00000000000000000000000001000000", "72D8", "0A", "7"), PORT_OF_ANOTHER},
        {HEAD ROW("0000000000000000FFFF00000100007F", "72D8", "0A", "7"), PORT_OF_ANOTHER},
        {HEAD ROW("00000000000000000000000000000000", "72D8", "0A", "1000"), PORT_OF_THIS_USER},
        /* a connection, another port, and an address of the network do not count */
        {HEAD ROW("0100007F", "72D8", "01", "7") ROW("0100007F", "72D9", "0A", "7")
             ROW("0200A8C0", "72D8", "0A", "7"),
         PORT_OF_NOBODY},
        /* one listener of another user is enough */
        {HEAD ROW("0100007F", "72D8", "0A", "1000") ROW("00000000", "72D8", "0A", "7"), PORT_OF_ANOTHER},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_int_equal(port_owner_in(cases[i].table, 29400, 1000), cases[i].owner);
}

/* Rows of connections that have the port as the other end's, and of listeners behind them. */
static void a_long_table_is_read_to_its_end(void **state)
{
    (void)state;
    CLEANUP(buf_release) struct buf table = {0};
    buf_puts(&table, HEAD);
    for (int i = 0; i < 2000; i++)
        buf_puts(
            &table,
            "   0: 0100007F:1F90 0100007F:72D8 01 00000000:00000000 00:00000000 00000000  7        0 123 1 0 100 0 0 10 0\n");
    buf_puts(&table, ROW("0100007F", "72D8", "0A", "1000"));
    buf_putc(&table, 0);
    assert_int_equal(port_owner_in(table.data, 29400, 1000), PORT_OF_THIS_USER);
    assert_int_equal(port_owner_in(table.data, 29400, 1001), PORT_OF_ANOTHER);
    assert_int_equal(port_owner_in(table.data, 29401, 1000), PORT_OF_NOBODY);
}

static void a_socket_of_this_process_is_found(void **state)
{
    (void)state;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, len), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
    assert_int_equal(port_owner_find(ntohs(at.sin_port)), PORT_OF_NOBODY);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(port_owner_find(ntohs(at.sin_port)), PORT_OF_THIS_USER);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_owner_is_who_listens),
        cmocka_unit_test(a_long_table_is_read_to_its_end),
        cmocka_unit_test(a_socket_of_this_process_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
