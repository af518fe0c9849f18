#include "base/web/web_server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include <microhttpd.h>

#include "base/mem.h"
#include "base/web/web_access.h"
#include "base/web/web_page.h"
#include "base/web/web_stream.h"
#include "base/web/web_workers.h"

#define CONNECTIONS 256
#define STREAMS 128 /* of these: the others are left for requests */
#define TIMEOUT_S 30
#define THREADS 6
#define DRAINED_MOST (16 << 20) /* a longer body ends the connection */
#define WAITING 64              /* requests that wait for a thread */

struct web_server {
    struct web_options options;
    struct web_page page;
    struct web_workers *workers;
    struct MHD_Daemon *daemon;
    uint16_t port;
    bool ending;
    size_t streams; /* used by the server's thread only */
};

/* One request, from its first line to its end. The server's thread owns it, and a worker between web_workers_add and
 * MHD_resume_connection. */
struct web_exchange {
    struct web_task task; /* first */
    struct web_server *server;
    struct MHD_Connection *connection;
    char *uri;
    struct web_request request;
    struct web_reply reply;
    struct buf body;
    bool parsed, too_large, queued, answered, streams;
};

/* ---- replies */

static void server_add_headers(struct MHD_Response *response, const char *type, const char *policy)
{
    MHD_add_response_header(response, "Content-Type", type);
    MHD_add_response_header(response, "Cache-Control", "no-store");
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    MHD_add_response_header(response, "Referrer-Policy", "no-referrer");
    MHD_add_response_header(response, "Cross-Origin-Resource-Policy", "same-origin");
    MHD_add_response_header(response, "Content-Security-Policy", policy);
}

static enum MHD_Result server_queue(struct MHD_Connection *connection, unsigned status,
                                    struct MHD_Response *response, const char *type, const char *policy)
{
    if (!response)
        return MHD_NO;
    server_add_headers(response, type, policy);
    const enum MHD_Result result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

#define NOTHING_ALLOWED "default-src 'none'; frame-ancestors 'none'"

static enum MHD_Result server_send(struct web_exchange *x, unsigned status)
{
    struct buf *body = &x->reply.body;
    const size_t size = body->len;
    struct MHD_Response *response =
        MHD_create_response_from_buffer(size, buf_steal(body), MHD_RESPMEM_MUST_FREE);
    *body = (struct buf){0};
    return server_queue(x->connection, status, response, "application/json", NOTHING_ALLOWED);
}

static enum MHD_Result server_refuse(struct web_exchange *x, const struct err *e)
{
    web_reply_fail(&x->reply, e);
    return server_send(x, web_reply_status(e->code));
}

static enum MHD_Result server_refuse_size(struct web_exchange *x)
{
    struct err e;
    err_set(&e, ERR_INVALID_ARGUMENT, "the body is larger than %d bytes", WEB_BODY_MOST);
    web_reply_fail(&x->reply, &e);
    return server_send(x, 413);
}

static const char *server_header(struct MHD_Connection *connection, const char *name)
{
    return MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
}

static enum MHD_Result server_send_page(struct web_exchange *x)
{
    const struct web_page *page = &x->server->page;
    const char *accepted = server_header(x->connection, "Accept-Encoding");
    const bool zipped = page->zipped.len && accepted && strstr(accepted, "gzip");
    struct MHD_Response *response = MHD_create_response_from_buffer(
        zipped ? page->zipped.len : page->size, (void *)(uintptr_t)(zipped ? page->zipped.data : page->html),
        MHD_RESPMEM_PERSISTENT);
    if (response && zipped)
        MHD_add_response_header(response, "Content-Encoding", "gzip");
    if (response)
        MHD_add_response_header(response, "Vary", "Accept-Encoding");
    return server_queue(x->connection, MHD_HTTP_OK, response, "text/html; charset=utf-8", page->policy);
}

static enum MHD_Result server_send_stream(struct web_exchange *x)
{
    struct web_server *s = x->server;
    struct MHD_Response *response = NULL;
    struct err e;
    if (s->streams >= STREAMS) {
        err_set(&e, ERR_RESOURCE_EXHAUSTED, "%d viewers watch already", STREAMS);
        return server_refuse(x, &e);
    }
    if (web_stream_create(&response, x->connection, &x->request, s->options.levels, &s->ending, &e) != ERR_OK)
        return server_refuse(x, &e);
    s->streams++;
    x->streams = true;
    return server_queue(x->connection, MHD_HTTP_OK, response, "text/event-stream", NOTHING_ALLOWED);
}

/* ---- requests */

static void exchange_run(struct web_task *task)
{
    struct web_exchange *x = (struct web_exchange *)task;
    const struct web_options *o = &x->server->options;
    o->answer(o->user, &x->request, &x->reply);
    MHD_resume_connection(x->connection);
}

/* The request is complete: answers it, or hands it to a worker. Called again when the worker has answered. */
static enum MHD_Result exchange_answer(struct web_exchange *x)
{
    struct err e;
    if (x->too_large)
        return server_refuse_size(x);
    if (x->request.route == WEB_PAGE)
        return server_send_page(x);
    if (x->request.route == WEB_WATCH)
        return server_send_stream(x);
    if (x->queued)
        return server_send(x, web_reply_status(x->reply.code));
    x->request.body_size = x->body.len;
    x->request.body = buf_steal(&x->body);
    x->body = (struct buf){0};
    x->queued = true;
    /* Suspended first: the worker may be done before web_workers_add returns. */
    MHD_suspend_connection(x->connection);
    if (web_workers_add(x->server->workers, &x->task))
        return MHD_YES;
    err_set(&e, ERR_UNAVAILABLE, "too many requests wait for an answer: try again");
    web_reply_fail(&x->reply, &e);
    MHD_resume_connection(x->connection);
    return MHD_YES;
}

static enum err_code exchange_check(struct web_exchange *x, const char *method, struct err *e)
{
    CLEANUP(free_text) char *path = xasprintf("%.*s", (int)strcspn(x->uri, "?"), x->uri);
    const struct web_caller caller = {
        .method = method,
        .path = path,
        .host = server_header(x->connection, "Host"),
        .origin = server_header(x->connection, "Origin"),
        .key = server_header(x->connection, "X-DDP-Key"),
        .confirm = server_header(x->connection, "X-DDP"),
    };
    if (web_access_check(x->server->options.key, &caller, e) != ERR_OK)
        return e->code;
    return web_request_parse(&x->request, method, x->uri, e);
}

static enum MHD_Result server_on_request(void *user, struct MHD_Connection *connection, const char *url,
                                         const char *method, const char *version, const char *upload,
                                         size_t *upload_size, void **state)
{
    struct web_exchange *x = *state;
    struct err e;
    (void)user;
    (void)url;
    (void)version;
    x->connection = connection;
    if (!x->parsed) { /* the headers have arrived; a refusal now ends the connection before the body */
        const char *length = server_header(connection, "Content-Length");
        if (exchange_check(x, method, &e) != ERR_OK)
            return server_refuse(x, &e);
        x->parsed = true;
        if (length && strtoull(length, NULL, 10) > DRAINED_MOST)
            return server_refuse_size(x);
        return MHD_YES;
    }
    if (*upload_size) { /* a body that is too large is read to its end, so that the client reads the answer */
        x->too_large = x->too_large || x->body.len + *upload_size > WEB_BODY_MOST;
        if (!x->too_large)
            buf_append(&x->body, upload, *upload_size);
        *upload_size = 0;
        return MHD_YES;
    }
    return exchange_answer(x);
}

/* Called with the request line: gives the exchange that later calls get as their state. */
static void *server_on_line(void *user, const char *uri, struct MHD_Connection *connection)
{
    struct web_exchange *x = xcalloc(1, sizeof(*x));
    x->server = user;
    x->connection = connection;
    x->uri = xstrdup(uri);
    x->task.run = exchange_run;
    return x;
}

static void server_on_end(void *user, struct MHD_Connection *connection, void **state,
                          enum MHD_RequestTerminationCode why)
{
    struct web_server *s = user;
    struct web_exchange *x = *state;
    (void)connection;
    (void)why;
    if (!x)
        return;
    if (x->streams)
        s->streams--;
    web_request_release(&x->request);
    buf_release(&x->reply.body);
    buf_release(&x->body);
    free(x->uri);
    free(x);
    *state = NULL;
}

enum err_code web_server_open(struct web_server **out, const struct web_options *options, struct err *e)
{
    struct web_server *s = xcalloc(1, sizeof(*s));
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(options->port)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    s->options = *options;
    web_page_init(&s->page, options->page, options->page_size);
    s->workers = web_workers_create(THREADS, WAITING);
    errno = 0; /* libmicrohttpd sets it for some failures only */
    s->daemon =
        MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ITC, 0, NULL,
                         NULL, server_on_request, s, MHD_OPTION_SOCK_ADDR, (struct sockaddr *)&at,
                         MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT,
                         (unsigned)TIMEOUT_S, MHD_OPTION_URI_LOG_CALLBACK, server_on_line, s,
                         MHD_OPTION_NOTIFY_COMPLETED, server_on_end, s, MHD_OPTION_END);
    if (!s->daemon) {
        const int failed = errno ? errno : EADDRINUSE;
        web_server_close(s);
        return err_sys(e, failed, "listen on 127.0.0.1:%u", (unsigned)options->port);
    }
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(s->daemon, MHD_DAEMON_INFO_BIND_PORT);
    s->port = info ? info->port : options->port;
    *out = s;
    return ERR_OK;
}

uint16_t web_server_port(const struct web_server *s)
{
    return s->port;
}

void web_server_close(struct web_server *s)
{
    if (!s)
        return;
    __atomic_store_n(&s->ending, true, __ATOMIC_RELEASE);
    web_workers_end(s->workers); /* every suspended request is resumed when its answer is there */
    if (s->daemon) {
        web_levels_tick(
            s->options
                .levels); /* and so are the streams, which must not be suspended when the server stops */
        MHD_stop_daemon(s->daemon);
    }
    web_workers_free(s->workers);
    web_page_release(&s->page);
    free(s);
}
