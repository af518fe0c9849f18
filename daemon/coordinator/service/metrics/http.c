#include "daemon/coordinator/service/metrics/http.h"

#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <microhttpd.h>

#include "base/mem.h"
#include "daemon/coordinator/service/metrics/openmetrics.h"

#define CONNECTIONS 32
#define TIMEOUT_S 10

struct http {
    struct MHD_Daemon *daemon;
    pthread_mutex_t lock; /* protects text, which the loop writes and the server's thread reads */
    struct buf text;      /* in Prometheus' text format */
};

static enum MHD_Result http_respond(struct MHD_Connection *connection, unsigned status, const char *type,
                                    const char *data, size_t size)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(size, (void *)(uintptr_t)data, MHD_RESPMEM_MUST_COPY);
    if (!response)
        return MHD_NO;
    MHD_add_response_header(response, "Content-Type", type);
    const enum MHD_Result result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result http_respond_text(struct MHD_Connection *connection, unsigned status, const char *text)
{
    return http_respond(connection, status, "text/plain; charset=utf-8", text, strlen(text));
}

/* The page that was published last, in the format that the client asks for. The caller holds the lock. */
static enum MHD_Result http_respond_page(struct http *h, struct MHD_Connection *connection)
{
    const char *accept = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_ACCEPT);
    CLEANUP(buf_release) struct buf text = {0};

    if (!openmetrics_accepted(accept))
        return http_respond(connection, MHD_HTTP_OK, "text/plain; version=0.0.4; charset=utf-8", h->text.data,
                            h->text.len);
    openmetrics_print(h->text.data, &text);
    return http_respond(connection, MHD_HTTP_OK, OPENMETRICS_TYPE, text.data, text.len);
}

static enum MHD_Result http_on_request(void *user, struct MHD_Connection *connection, const char *url,
                                       const char *method, const char *version, const char *upload,
                                       size_t *upload_size, void **state)
{
    struct http *h = user;
    (void)version;
    (void)upload;
    *upload_size = 0;
    *state = h;
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
        return http_respond_text(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET is supported\n");
    if (strcmp(url, "/metrics") != 0)
        return http_respond_text(connection, MHD_HTTP_NOT_FOUND, "metrics are at /metrics\n");
    pthread_mutex_lock(&h->lock);
    const enum MHD_Result result = http_respond_page(h, connection);
    pthread_mutex_unlock(&h->lock);
    return result;
}

/* Resolves "host:port" or "[v6]:port"; the caller frees with freeaddrinfo. */
static enum err_code http_resolve_address(const char *address, struct addrinfo **out, struct err *e)
{
    CLEANUP(free_text) char *copy = xstrdup(address);
    char *colon = strrchr(copy, ':');
    if (!colon)
        return err_set(e, ERR_INVALID_ARGUMENT, "--metrics '%s': expected host:port", address);
    *colon = '\0';
    char *host = copy;
    const size_t len = strlen(host);
    if (len >= 2 && host[0] == '[' && host[len - 1] == ']') {
        host[len - 1] = '\0';
        host++;
    }
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    const int rc = getaddrinfo(host, colon + 1, &hints, out);
    if (rc != 0)
        return err_set(e, ERR_INVALID_ARGUMENT, "--metrics '%s': %s", address, gai_strerror(rc));
    return ERR_OK;
}

enum err_code http_open(struct http **out, const char *address, struct err *e)
{
    struct addrinfo *to = NULL;
    if (http_resolve_address(address, &to, e) != ERR_OK)
        return e->code;
    struct http *h = xcalloc(1, sizeof *h);
    pthread_mutex_init(&h->lock, NULL);
    buf_puts(&h->text, "");
    /* poll, because with epoll libmicrohttpd misses the end of a stream that comes together with data, and holds such a
     * connection until its timeout. A few broken-off requests would use up all connections. */
    unsigned flags = MHD_USE_POLL_INTERNAL_THREAD | MHD_USE_ITC;
    if (to->ai_family == AF_INET6)
        flags |= MHD_USE_IPv6;
    errno = 0; /* libmicrohttpd sets it for some failures only */
    h->daemon = MHD_start_daemon(flags, 0, NULL, NULL, http_on_request, h, MHD_OPTION_SOCK_ADDR, to->ai_addr,
                                 MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS,
                                 MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)TIMEOUT_S, MHD_OPTION_END);
    const int failed = errno;
    freeaddrinfo(to);
    if (!h->daemon) {
        http_close(h);
        return err_sys(e, failed ? failed : EADDRINUSE,
                       "listen for metrics on %s (--metrics none disables them)", address);
    }
    *out = h;
    return ERR_OK;
}

void http_publish(struct http *h, struct buf *text)
{
    if (!h) {
        buf_release(text);
        return;
    }
    pthread_mutex_lock(&h->lock);
    struct buf old = h->text; /* swapped, so that nothing is freed or copied while the lock is held */
    h->text = *text;
    pthread_mutex_unlock(&h->lock);
    *text = (struct buf){0};
    buf_release(&old);
}

void http_close(struct http *h)
{
    if (!h)
        return;
    if (h->daemon)
        MHD_stop_daemon(h->daemon);
    pthread_mutex_destroy(&h->lock);
    buf_release(&h->text);
    free(h);
}
