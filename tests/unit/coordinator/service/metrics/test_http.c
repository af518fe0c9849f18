/* The server of /metrics: broken-off requests do not keep out a scraper, and a client gets the format that it asks for. */
#include "tests/unit/base/check.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/mem.h"
#include "daemon/coordinator/service/metrics/http.h"

#define WAIT_S 20
#define BROKEN 40 /* more than the server takes connections */

static const char page[] = "# HELP ddp_test A gauge.\n# TYPE ddp_test gauge\nddp_test 1\n"
                           "# HELP ddp_calls_total Calls.\n# TYPE ddp_calls_total counter\n"
                           "ddp_calls_total{method=\"a\"} 2\n";
static const char openmetrics[] = "# HELP ddp_test A gauge.\n# TYPE ddp_test gauge\nddp_test 1\n"
                                  "# HELP ddp_calls Calls.\n# TYPE ddp_calls counter\n"
                                  "ddp_calls_total{method=\"a\"} 2\n# EOF\n";

/* Opens the server at the first free port and returns that port. */
static unsigned server_open(struct http **h)
{
    struct err e;
    struct buf text = {0};
    unsigned port = 20000 + (unsigned)getpid() % 10000;
    char address[32];
    do
        snprintf(address, sizeof(address), "127.0.0.1:%u", ++port);
    while (http_open(h, address, &e) != ERR_OK && port < 32768);
    assert_non_null(*h);
    buf_puts(&text, page);
    http_publish(*h, &text);
    return port;
}

static int client_connect(unsigned port)
{
    const struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct timeval limit = {.tv_sec = WAIT_S * test_slow()};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    assert_int_equal(connect(fd, (const struct sockaddr *)&at, sizeof(at)), 0);
    return fd;
}

static void client_send(int fd, const char *text)
{
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

/* accept: a header's line, or "". The reply has the type, and ends with the text. */
static void assert_reply(unsigned port, const char *accept, const char *type, const char *text)
{
    char reply[1024], request[256];
    size_t size = 0;
    ssize_t n;
    const int fd = client_connect(port);
    snprintf(request, sizeof(request),
             "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n%sConnection: close\r\n\r\n", accept);
    client_send(fd, request);
    while (size < sizeof(reply) - 1 && (n = recv(fd, reply + size, sizeof(reply) - 1 - size, 0)) > 0)
        size += (size_t)n;
    reply[size] = '\0';
    assert_non_null(strstr(reply, type));
    assert_non_null(strstr(reply, "\r\n\r\n"));
    assert_string_equal(strstr(reply, "\r\n\r\n") + 4, text);
    close(fd);
}

static void assert_scraped(unsigned port)
{
    assert_reply(port, "", "text/plain; version=0.0.4", page);
}

static void a_client_gets_the_format_that_it_asks_for(void **state)
{
    struct http *h = NULL;
    (void)state;
    const unsigned port = server_open(&h);
    assert_scraped(port);
    assert_reply(port, "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n",
                 "application/openmetrics-text; version=1.0.0", openmetrics);
    assert_reply(port, "Accept: text/plain\r\n", "text/plain; version=0.0.4", page);
    http_close(h);
}

/* The witness is older than the broken-off requests. A server that ends those only for their age has ended it before. */
static void broken_off_requests_do_not_keep_out_a_scraper(void **state)
{
    struct http *h = NULL;
    char c;
    (void)state;
    const unsigned port = server_open(&h);
    const int witness = client_connect(port);
    client_send(witness, "GET /metrics HTTP/1.1\r\nX-");
    assert_scraped(port); /* the server has the witness by now */
    for (int i = 0; i < BROKEN; i++) {
        const int fd = client_connect(port);
        client_send(fd, "GET /metrics HTTP/1.1\r\nX-");
        close(fd);
    }
    assert_scraped(port);
    assert_true(recv(witness, &c, 1, MSG_PEEK | MSG_DONTWAIT) < 0);
    close(witness);
    http_close(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_client_gets_the_format_that_it_asks_for),
        cmocka_unit_test(broken_off_requests_do_not_keep_out_a_scraper),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
