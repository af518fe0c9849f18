#include "base/web/web_server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/net/tcp_listen.h"
#include "base/web/web_exchange.h"
#include "base/web/web_tls.h"

#define CONNECTIONS 256
#define GUESTS 64        /* of these; a guest is a connection that has shown neither the key nor a login */
#define PER_ADDRESS 192  /* if strangers can reach the server */
#define TIMEOUT_S 30     /* without a byte in either direction */
#define REQUEST_MS 60000 /* until a request has come whole */

static const struct web_workers_limits worker_limits = {
    .threads = 6, .slow = 4, .waiting = 128, .owner_threads = 3, .owner_slow = 2, .owner_waiting = 32};

/* With TLS, browsers take a cookie of such a name only from this host itself. The port is a part of the name because servers on
 * other ports of the host get and set the same cookies. */
static void server_name_cookie(struct web_server *s)
{
    snprintf(s->cookie, sizeof(s->cookie), "%sddp-%u", s->tls ? "__Host-" : "", (unsigned)s->port);
}

static void server_note_connection(void *user, struct MHD_Connection *connection, void **context,
                                   enum MHD_ConnectionNotificationCode what)
{
    struct web_server *s = user;
    struct web_server_connection *c = *context;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        const int64_t now = clock_boot_ms();
        *context = c = xcalloc(1, sizeof(*c));
        c->guest.fd = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
        c->held.fd = c->guest.fd;
        web_guests_add(&s->guests, &c->guest);
        web_connections_add(&s->connections, &c->held, now);
        web_server_tick(s, now);
    } else {
        web_guests_remove(&s->guests, &c->guest);
        web_connections_remove(&s->connections, &c->held);
        free(c);
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
        MHD_start_daemon(flags | (s->tls ? MHD_USE_TLS : 0), 0, server_on_connection, s, web_exchange_go_on,
                         s, MHD_OPTION_LISTEN_SOCKET, (MHD_socket)fd, MHD_OPTION_CONNECTION_LIMIT,
                         (unsigned)CONNECTIONS, MHD_OPTION_PER_IP_CONNECTION_LIMIT,
                         (unsigned)(o->door ? PER_ADDRESS : 0), MHD_OPTION_CONNECTION_TIMEOUT,
                         (unsigned)TIMEOUT_S, MHD_OPTION_NOTIFY_CONNECTION, server_note_connection, s,
                         MHD_OPTION_URI_LOG_CALLBACK, web_exchange_begin, s, MHD_OPTION_NOTIFY_COMPLETED,
                         web_exchange_end, s, MHD_OPTION_ARRAY, s->tls ? tls : plain, MHD_OPTION_END);
    return s->daemon ? ERR_OK : err_sys(e, errno ? errno : EIO, "start the web page's server");
}

enum err_code web_server_open(struct web_server **out, const struct web_options *options, struct err *e)
{
    struct web_server *s = xcalloc(1, sizeof(*s));
    CLEANUP(close_fd) int fd = options->door ? options->listener : -1;
    s->options = *options;
    s->guests.most = GUESTS;
    web_connections_init(&s->connections);
    web_page_init(&s->page, options->page, options->page_size);
    s->workers = web_workers_create(&worker_limits);
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

void web_server_tick(struct web_server *s, int64_t now_ms)
{
    web_connections_end_late(&s->connections, now_ms - REQUEST_MS);
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
    web_connections_release(&s->connections);
    web_page_release(&s->page);
    web_tls_close(s->tls);
    free(s);
}
