#include "tests/unit/relay/relay_client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/unit/base/check.h"

int relay_client_knock(uint16_t port, uint8_t nonce[RELAY_NONCE])
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct timeval limit = {.tv_sec = 30 * test_slow()};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_true(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof(at)), 0);
    assert_int_equal(recv(fd, nonce, RELAY_NONCE, MSG_WAITALL), RELAY_NONCE);
    return fd;
}

int relay_client_ask(uint16_t port, const uint8_t key[RELAY_KEY], int64_t generation, int pair,
                     enum relay_end end)
{
    struct relay_hello hello = {.job = 7, .generation = generation, .end = end};
    uint8_t nonce[RELAY_NONCE], ticket[RELAY_TICKET], out[RELAY_HELLO];
    int fd = relay_client_knock(port, nonce);

    memcpy(hello.name, &pair, sizeof(pair));
    relay_make_ticket(ticket, key, 7, generation);
    relay_write_hello(out, &hello, ticket, nonce);
    assert_int_equal(send(fd, out, sizeof(out), MSG_NOSIGNAL), sizeof(out));
    return fd;
}

bool relay_client_paired(int fd)
{
    uint8_t byte = 0;

    return recv(fd, &byte, 1, 0) == 1 && byte == RELAY_PAIRED;
}

bool relay_client_closed(int fd)
{
    char bytes[4096];
    ssize_t n;

    do
        n = recv(fd, bytes, sizeof(bytes), 0);
    while (n > 0);
    return n == 0 || errno == ECONNRESET;
}
