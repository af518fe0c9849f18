#include "base/web/web_server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include <microhttpd.h>

#include "base/mem.h"
#include "base/net/tcp_listen.h"
#include "base/web/web_access.h"
#include "base/web/web_guests.h"
#include "base/web/web_page.h"
#include "base/web/web_stream.h"
#include "base/web/web_tls.h"
#include "base/web/web_workers.h"

#define CONNECTIONS 256
#define STREAMS 128     /* of these; the other connections are left for requests */
#define GUESTS 64       /* of these; a guest is a connection that has shown neither the key nor a login */
#define PER_ADDRESS 192 /* if strangers can reach the server */
#define TIMEOUT_S 30
#define THREADS 6
#define DRAINED_MOST (16 << 20) /* a longer body ends the connection */
#define LOGIN_DRAINED_MOST (64 << 10)
#define WAITING 64 /* requests that wait for a thread */

struct web_server {
    struct web_options options;
    struct web_page page;
    struct web_workers *workers;
    struct MHD_Daemon *daemon;
    struct web_tls *tls; /* NULL: plain text */
    struct web_rules rules;
    char cookie[32]; /* its name */
    uint16_t port;
    bool ending;
    /* used by the server's thread only */
    size_t streams;
    struct web_guests guests;
};

/* One request, from its first line to its end. The server's thread owns it, and a worker between web_workers_add and
 * MHD_resume_connection. */
struct web_exchange {
    struct web_task task; /* first */
    struct web_server *server;
    struct MHD_Connection *connection;
    char *uri;
    char address[64];
    struct web_login *login; /* NULL: none */
    struct web_request request;
    struct web_reply reply;
    struct buf body;
    bool parsed, too_large, queued, streams;
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

/* With TLS, browsers take a cookie of such a name only from this host itself. The port is a part of the name because servers on
 * other ports of the host get and set the same cookies. */
static void server_name_cookie(struct web_server *s)
{
    snprintf(s->cookie, sizeof(s->cookie), "%sddp-%u", s->tls ? "__Host-" : "", (unsigned)s->port);
}

static void server_add_cookie(const struct web_server *s, struct MHD_Response *response, const char *secret)
{
    char text[256];
    snprintf(text, sizeof(text), "%s=%s; Path=/; Max-Age=%d; HttpOnly; SameSite=Strict%s", s->cookie, secret,
             *secret ? WEB_LOGIN_S : 0, s->tls ? "; Secure" : "");
    MHD_add_response_header(response, "Set-Cookie", text);
}

static enum MHD_Result server_send(struct web_exchange *x, unsigned status)
{
    struct buf *body = &x->reply.body;
    const size_t size = body->len;
    struct MHD_Response *response =
        MHD_create_response_from_buffer(size, buf_steal(body), MHD_RESPMEM_MUST_FREE);
    *body = (struct buf){0};
    if (response && x->reply.secret)
        server_add_cookie(x->server, response, x->reply.secret);
    return server_queue(x->connection, status, response, "application/json", NOTHING_ALLOWED);
}

/* 401 asks the browser to log in, which only a server with logins can offer. */
static unsigned server_status(const struct web_exchange *x, enum err_code code)
{
    return code == ERR_UNAUTHENTICATED && x->server->options.door ? 401 : web_reply_status(code);
}

static enum MHD_Result server_refuse(struct web_exchange *x, const struct err *e)
{
    web_reply_fail(&x->reply, e);
    return server_send(x, server_status(x, e->code));
}

static size_t exchange_body_most(const struct web_exchange *x)
{
    return x->request.route == WEB_LOGIN ? WEB_LOGIN_BODY_MOST : WEB_BODY_MOST;
}

static enum MHD_Result server_refuse_size(struct web_exchange *x)
{
    struct err e;
    err_set(&e, ERR_INVALID_ARGUMENT, "the body is larger than %zu bytes", exchange_body_most(x));
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
    const struct web_stream_end end = {&s->ending, s->options.door, x->login};
    struct web_levels *levels = x->login ? x->login->levels : s->options.levels;
    if (web_stream_create(&response, x->connection, &x->request, levels, &end, &e) != ERR_OK)
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
    const struct web_asker asker = {x->login, x->address};
    o->answer(o->user, &asker, &x->request, &x->reply);
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
        return server_send(x, server_status(x, x->reply.code));
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

/* The address of the other end, an IPv4 one without the form that it has on a socket for both. */
static void exchange_find_address(struct web_exchange *x)
{
    static const char mapped[] = "::ffff:";
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(x->connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const struct sockaddr *peer = info ? info->client_addr : NULL;
    const socklen_t size =
        peer && peer->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    if (!peer || getnameinfo(peer, size, x->address, sizeof(x->address), NULL, 0, NI_NUMERICHOST) != 0)
        snprintf(x->address, sizeof(x->address), "unknown");
    if (strncmp(x->address, mapped, strlen(mapped)) == 0)
        memmove(x->address, x->address + strlen(mapped), strlen(x->address + strlen(mapped)) + 1);
}

/* Called before the request is parsed, so that without a login nobody learns which requests are valid. */
static enum err_code exchange_find_login(struct web_exchange *x, const char *path, struct err *e)
{
    const struct web_door *door = x->server->options.door;
    char secret[WEB_KEY_TEXT];
    if (!door || strncmp(path, "/api/", 5) != 0 || strcmp(path, "/api/login") == 0)
        return ERR_OK;
    const char *cookies = server_header(x->connection, "Cookie");
    if (cookies && web_access_cookie(cookies, x->server->cookie, secret))
        x->login = door->find(door->user, secret);
    return x->login ? ERR_OK : err_set(e, ERR_UNAUTHENTICATED, "log in with your token: POST /api/login");
}

/* The request has shown the key or a login, so its connection is no longer a guest. */
static void exchange_admit(struct web_exchange *x)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(x->connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    web_guests_remove(&x->server->guests, info->socket_context);
}

static enum err_code exchange_check(struct web_exchange *x, const char *method, struct err *e)
{
    const struct web_server *s = x->server;
    CLEANUP(free_text) char *path = xasprintf("%.*s", (int)strcspn(x->uri, "?"), x->uri);
    const struct web_caller caller = {
        .method = method,
        .path = path,
        .host = server_header(x->connection, "Host"),
        .origin = server_header(x->connection, "Origin"),
        .key = server_header(x->connection, "X-DDP-Key"),
        .confirm = server_header(x->connection, "X-DDP"),
    };
    if (web_access_check(&s->rules, &caller, e) != ERR_OK || exchange_find_login(x, path, e) != ERR_OK ||
        web_request_parse(&x->request, method, x->uri, e) != ERR_OK)
        return e->code;
    if (!s->options.door && (x->request.route == WEB_LOGIN || x->request.route == WEB_LOGOUT))
        return err_set(e, ERR_NOT_FOUND, "this server has a key in place of logins");
    if (s->options.door ? x->login != NULL : x->request.route != WEB_PAGE) /* all other routes need the key */
        exchange_admit(x);
    return ERR_OK;
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
        exchange_find_address(x);
        if (exchange_check(x, method, &e) != ERR_OK)
            return server_refuse(x, &e);
        x->parsed = true;
        const size_t drained = x->request.route == WEB_LOGIN ? LOGIN_DRAINED_MOST : DRAINED_MOST;
        if (length && strtoull(length, NULL, 10) > drained)
            return server_refuse_size(x);
        return MHD_YES;
    }
    if (*upload_size) { /* a body that is too large is read to its end, so that the client reads the answer */
        x->too_large = x->too_large || x->body.len + *upload_size > exchange_body_most(x);
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
    if (x->login)
        s->options.door->give_back(s->options.door->user, x->login);
    if (x->request.body)
        explicit_bzero(x->request.body, x->request.body_size); /* it may hold a token */
    web_request_release(&x->request);
    web_reply_release(&x->reply);
    buf_release(&x->body);
    free(x->uri);
    free(x);
    *state = NULL;
}

static void server_note_connection(void *user, struct MHD_Connection *connection, void **context,
                                   enum MHD_ConnectionNotificationCode what)
{
    struct web_server *s = user;
    struct web_guest *guest = *context;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        *context = guest = xcalloc(1, sizeof(*guest));
        guest->fd = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
        web_guests_add(&s->guests, guest);
    } else {
        web_guests_remove(&s->guests, guest);
        free(guest);
    }
}

static enum MHD_Result server_on_connection(void *user, const struct sockaddr *address, socklen_t size)
{
    struct web_server *s = user;
    (void)address;
    (void)size;
    web_tls_use(s->tls); /* this thread makes the handshake, too */
    return MHD_YES;
}

static bool server_has_name(void *user, const char *name)
{
    const struct web_server *s = user;
    return web_tls_has_name(s->tls, name);
}

/* A bound socket for the server. */
static enum err_code server_bind(const struct web_options *o, int *fd, struct err *e)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(o->port)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int one = 1;
    *fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*fd < 0 || setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) != 0 ||
        bind(*fd, (const struct sockaddr *)&at, sizeof(at)) != 0)
        return err_sys(e, errno, "listen on 127.0.0.1:%u", (unsigned)o->port);
    return ERR_OK;
}

static enum err_code server_start(struct web_server *s, int fd, struct err *e)
{
    const struct web_options *o = &s->options;
    const struct MHD_OptionItem tls[] = {
        {MHD_OPTION_HTTPS_CERT_CALLBACK, (intptr_t)0, web_tls_callback()},
        {MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)(uintptr_t) "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"},
        {MHD_OPTION_END, 0, NULL},
    };
    const struct MHD_OptionItem plain[] = {{MHD_OPTION_END, 0, NULL}};
    /* poll, because with epoll libmicrohttpd misses the end of a stream that comes together with data, and holds such a
     * connection until its timeout. Requests that were broken off would use up all connections. */
    const unsigned flags = MHD_USE_POLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ITC;
    if (s->tls && MHD_is_feature_supported(MHD_FEATURE_HTTPS_CERT_CALLBACK) != MHD_YES)
        return err_set(e, ERR_UNIMPLEMENTED, "this machine's libmicrohttpd has no TLS");
    if (listen(fd, SOMAXCONN) != 0)
        return err_sys(e, errno, "listen for the web page");
    errno = 0; /* libmicrohttpd sets it for some failures only */
    s->daemon =
        MHD_start_daemon(flags | (s->tls ? MHD_USE_TLS : 0), 0, server_on_connection, s, server_on_request, s,
                         MHD_OPTION_LISTEN_SOCKET, (MHD_socket)fd, MHD_OPTION_CONNECTION_LIMIT,
                         (unsigned)CONNECTIONS, MHD_OPTION_PER_IP_CONNECTION_LIMIT,
                         (unsigned)(o->door ? PER_ADDRESS : 0), MHD_OPTION_CONNECTION_TIMEOUT,
                         (unsigned)TIMEOUT_S, MHD_OPTION_NOTIFY_CONNECTION, server_note_connection, s,
                         MHD_OPTION_URI_LOG_CALLBACK, server_on_line, s, MHD_OPTION_NOTIFY_COMPLETED,
                         server_on_end, s, MHD_OPTION_ARRAY, s->tls ? tls : plain, MHD_OPTION_END);
    return s->daemon ? ERR_OK : err_sys(e, errno ? errno : EIO, "start the web page's server");
}

enum err_code web_server_open(struct web_server **out, const struct web_options *options, struct err *e)
{
    struct web_server *s = xcalloc(1, sizeof(*s));
    CLEANUP(close_fd) int fd = options->door ? options->listener : -1;
    s->options = *options;
    s->guests.most = GUESTS;
    web_page_init(&s->page, options->page, options->page_size);
    s->workers = web_workers_create(THREADS, WAITING);
    if ((!options->door && server_bind(options, &fd, e) != ERR_OK) ||
        (options->tls && web_tls_open(&s->tls, options->tls, e) != ERR_OK)) {
        web_server_close(s);
        return e->code;
    }
    s->port = tcp_bound_port(fd);
    s->rules = (struct web_rules){
        .key = options->key, .tls = s->tls, .has_name = s->tls ? server_has_name : NULL, .user = s};
    server_name_cookie(s);
    if (server_start(s, fd, e) != ERR_OK) {
        web_server_close(s);
        return e->code;
    }
    fd = -1; /* libmicrohttpd closes it */
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
    web_workers_end(s->workers); /* every suspended request has been resumed with its answer */
    if (s->daemon) {
        /* Resumes the streams, too: none may be suspended when the server stops. */
        if (s->options.door)
            s->options.door->wake(s->options.door->user);
        else
            web_levels_tick(s->options.levels);
        MHD_stop_daemon(s->daemon);
    }
    web_workers_free(s->workers);
    web_page_release(&s->page);
    web_tls_close(s->tls);
    free(s);
}
