#include "base/web/web_exchange.h"

#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/web/web_headers.h"
#include "base/web/web_stream.h"

#define STREAMS 128             /* of all connections; the others are left for requests */
#define BYTES (128 << 20)       /* of bodies and answers in memory */
#define DRAINED_MOST (16 << 20) /* a longer body ends the connection */
#define SMALL_DRAINED_MOST (64 << 10)
/* of one user, where several users log in */
#define USER_CONNECTIONS 96
#define USER_STREAMS 64
#define USER_BYTES (32 << 20)

/* From its first line to its end. The server's thread owns it, and a worker between web_workers_add and
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
    size_t received; /* of the body, with what is not kept of it */
    bool parsed, too_large, crowded, queued;
    bool closes; /* the answer ends the connection */
};

static struct web_server_connection *exchange_connection(const struct web_exchange *x)
{
    return MHD_get_connection_info(x->connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
}

/* Notes that the request needs this much memory; false: it may not. */
static bool exchange_hold(struct web_exchange *x, size_t bytes)
{
    struct web_connection *held = &exchange_connection(x)->held;
    const struct web_connections *all = &x->server->connections;
    held->bytes = 0;
    if ((held->owner && web_connections_share(all, held->owner).bytes + bytes > USER_BYTES) ||
        web_connections_share(all, 0).bytes + bytes > BYTES)
        return false;
    held->bytes = bytes;
    return true;
}

/* ---- replies */

static void exchange_add_headers(struct MHD_Response *response, const char *type, const char *policy)
{
    MHD_add_response_header(response, "Content-Type", type);
    MHD_add_response_header(response, "Cache-Control", "no-store");
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    MHD_add_response_header(response, "Referrer-Policy", "no-referrer");
    MHD_add_response_header(response, "Cross-Origin-Resource-Policy", "same-origin");
    MHD_add_response_header(response, "Content-Security-Policy", policy);
}

static enum MHD_Result exchange_queue(struct MHD_Connection *connection, unsigned status,
                                      struct MHD_Response *response, const char *type, const char *policy)
{
    if (!response)
        return MHD_NO;
    exchange_add_headers(response, type, policy);
    const enum MHD_Result result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

#define NOTHING_ALLOWED "default-src 'none'; frame-ancestors 'none'"

static void exchange_add_cookie(const struct web_server *s, struct MHD_Response *response, const char *secret)
{
    char text[256];
    snprintf(text, sizeof(text), "%s=%s; Path=/; Max-Age=%d; HttpOnly; SameSite=Strict%s", s->cookie, secret,
             *secret ? WEB_LOGIN_S : 0, s->tls ? "; Secure" : "");
    MHD_add_response_header(response, "Set-Cookie", text);
}

static enum MHD_Result exchange_send(struct web_exchange *x, unsigned status)
{
    struct buf *body = &x->reply.body;
    const size_t size = body->len;
    struct MHD_Response *response =
        MHD_create_response_from_buffer(size, buf_steal(body), MHD_RESPMEM_MUST_FREE);
    *body = (struct buf){0};
    if (response && x->reply.secret)
        exchange_add_cookie(x->server, response, x->reply.secret);
    if (response && x->closes)
        MHD_add_response_header(response, "Connection", "close");
    return exchange_queue(x->connection, status, response, "application/json", NOTHING_ALLOWED);
}

/* 401 asks the browser to log in, which only a server with logins can offer. */
static unsigned exchange_status(const struct web_exchange *x, enum err_code code)
{
    return code == ERR_UNAUTHENTICATED && x->server->options.door ? 401 : web_reply_status(code);
}

static enum MHD_Result exchange_refuse(struct web_exchange *x, const struct err *e)
{
    web_reply_fail(&x->reply, e);
    return exchange_send(x, exchange_status(x, e->code));
}

static size_t exchange_body_most(const struct web_exchange *x)
{
    const enum web_route route = x->request.route;
    return route < WEB_SUBMIT ? 0 : route >= WEB_LOGIN ? WEB_LOGIN_BODY_MOST : WEB_BODY_MOST;
}

static size_t exchange_drained_most(const struct web_exchange *x)
{
    return exchange_body_most(x) == WEB_BODY_MOST ? DRAINED_MOST : SMALL_DRAINED_MOST;
}

static enum MHD_Result exchange_refuse_size(struct web_exchange *x)
{
    struct err e;
    err_set(&e, ERR_INVALID_ARGUMENT, "the body is larger than %zu bytes", exchange_body_most(x));
    web_reply_fail(&x->reply, &e);
    return exchange_send(x, 413);
}

/* libmicrohttpd sends no answer in the middle of a body, so one without an end would be cut off without a reason. Everybody may
 * send a login, and no client needs to send it in chunks. */
static enum MHD_Result exchange_refuse_chunks(struct web_exchange *x)
{
    struct err e;
    err_set(&e, ERR_INVALID_ARGUMENT,
            "a login needs the header Content-Length; its body may not come in chunks");
    web_reply_fail(&x->reply, &e);
    x->closes = true;
    return exchange_send(x, 411);
}

static enum MHD_Result exchange_refuse_crowd(struct web_exchange *x)
{
    struct err e;
    err_set(&e, ERR_UNAVAILABLE, "too many large requests and answers are in progress: try again");
    buf_release(&x->reply.body); /* it is large */
    return exchange_refuse(x, &e);
}

static const char *exchange_header(struct MHD_Connection *connection, const char *name)
{
    return MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
}

static enum MHD_Result exchange_send_page(struct web_exchange *x)
{
    const struct web_page *page = &x->server->page;
    const char *accepted = exchange_header(x->connection, "Accept-Encoding");
    const bool zipped = page->zipped.len && accepted && strstr(accepted, "gzip");
    struct MHD_Response *response = MHD_create_response_from_buffer(
        zipped ? page->zipped.len : page->size, (void *)(uintptr_t)(zipped ? page->zipped.data : page->html),
        MHD_RESPMEM_PERSISTENT);
    if (response && zipped)
        MHD_add_response_header(response, "Content-Encoding", "gzip");
    if (response)
        MHD_add_response_header(response, "Vary", "Accept-Encoding");
    return exchange_queue(x->connection, MHD_HTTP_OK, response, "text/html; charset=utf-8", page->policy);
}

static enum MHD_Result exchange_send_stream(struct web_exchange *x)
{
    struct web_server *s = x->server;
    struct MHD_Response *response = NULL;
    struct err e;
    struct web_connection *held = &exchange_connection(x)->held;
    const bool full = web_connections_share(&s->connections, 0).streams >= STREAMS;
    if (full ||
        (held->owner && web_connections_share(&s->connections, held->owner).streams >= USER_STREAMS)) {
        err_set(&e, ERR_RESOURCE_EXHAUSTED, "%d viewers%s watch already", full ? STREAMS : USER_STREAMS,
                full ? "" : " of this user");
        return exchange_refuse(x, &e);
    }
    const struct web_stream_end end = {&s->ending, s->options.door, x->login};
    struct web_levels *levels = x->login ? x->login->levels : s->options.levels;
    if (web_stream_create(&response, x->connection, &x->request, levels, &end, &e) != ERR_OK)
        return exchange_refuse(x, &e);
    held->streams = true;
    return exchange_queue(x->connection, MHD_HTTP_OK, response, "text/event-stream", NOTHING_ALLOWED);
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
    web_connections_wait(&x->server->connections, &exchange_connection(x)->held, 0);
    if (x->too_large)
        return exchange_refuse_size(x);
    if (x->crowded)
        return exchange_refuse_crowd(x);
    if (x->request.route == WEB_PAGE)
        return exchange_send_page(x);
    if (x->request.route == WEB_WATCH)
        return exchange_send_stream(x);
    if (x->queued) {
        /* An order that has been carried out must not be answered with "try again"; such answers are small. */
        const bool fits = exchange_hold(x, x->request.body_size + x->reply.body.len);
        return fits || x->request.route >= WEB_SUBMIT ? exchange_send(x, exchange_status(x, x->reply.code))
                                                      : exchange_refuse_crowd(x);
    }
    x->request.body_size = x->body.len;
    x->request.body = buf_steal(&x->body);
    x->body = (struct buf){0};
    x->queued = true;
    /* Without a login there are no users to tell apart, except that all who log in count as one. */
    x->task.owner = x->login ? x->login->levels : x->server->options.door ? (const void *)x->server : NULL;
    x->task.slow = x->request.route == WEB_LOGS || x->request.route == WEB_WHY; /* ask nodes */
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
    const char *cookies = exchange_header(x->connection, "Cookie");
    if (cookies && web_access_cookie(cookies, x->server->cookie, secret))
        x->login = door->find(door->user, secret);
    return x->login ? ERR_OK
                    : err_set(e, ERR_UNAUTHENTICATED, "not logged in: send your token with POST /api/login");
}

/* The request has shown no login that is valid. Otherwise a user could log out, keep the connections by such requests, and log in for
 * others. */
static void exchange_admit_guest(struct web_exchange *x)
{
    struct web_server_connection *connection = exchange_connection(x);
    connection->held.owner = 0;
    if (!connection->guest.waits)
        web_guests_add(&x->server->guests, &connection->guest);
}

/* The request has shown the key or a login, so its connection is no longer a guest. */
static enum err_code exchange_admit(struct web_exchange *x, struct err *e)
{
    struct web_server *s = x->server;
    struct web_server_connection *connection = exchange_connection(x);
    connection->held.owner = x->login ? x->login->owner : 0;
    if (x->login && web_connections_share(&s->connections, x->login->owner).connections > USER_CONNECTIONS) {
        connection->held.owner = 0;
        x->closes = true;
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "this user has %d connections already", USER_CONNECTIONS);
    }
    web_guests_remove(&s->guests, &connection->guest);
    return ERR_OK;
}

static enum MHD_Result exchange_note_header(void *headers, enum MHD_ValueKind kind, const char *name,
                                            const char *value)
{
    (void)kind;
    web_headers_add(headers, name, value);
    return MHD_YES;
}

static enum err_code exchange_check_headers(struct web_exchange *x, struct err *e)
{
    struct web_headers headers = {0};
    MHD_get_connection_values(x->connection, MHD_HEADER_KIND, exchange_note_header, &headers);
    x->closes = web_headers_check(&headers, e) != ERR_OK; /* where the next request begins is not known */
    return x->closes ? e->code : ERR_OK;
}

static enum err_code exchange_check(struct web_exchange *x, const char *method, struct err *e)
{
    const struct web_server *s = x->server;
    CLEANUP(free_text) char *path = xasprintf("%.*s", (int)strcspn(x->uri, "?"), x->uri);
    const struct web_caller caller = {
        .method = method,
        .path = path,
        .host = exchange_header(x->connection, "Host"),
        .origin = exchange_header(x->connection, "Origin"),
        .key = exchange_header(x->connection, "X-DDP-Key"),
        .confirm = exchange_header(x->connection, "X-DDP"),
    };
    if (exchange_check_headers(x, e) != ERR_OK || web_access_check(&s->rules, &caller, e) != ERR_OK ||
        exchange_find_login(x, path, e) != ERR_OK ||
        web_request_parse(&x->request, method, x->uri, e) != ERR_OK)
        return e->code;
    if (!s->options.door && (x->request.route == WEB_LOGIN || x->request.route == WEB_LOGOUT))
        return err_set(e, ERR_NOT_FOUND, "this server has a key in place of logins");
    if (s->options.door ? x->login != NULL : x->request.route != WEB_PAGE) /* all other routes need the key */
        return exchange_admit(x, e);
    return ERR_OK;
}

static enum MHD_Result exchange_take_body(struct web_exchange *x, const char *data, size_t size)
{
    x->received += size;
    if (x->received > exchange_drained_most(x))
        return MHD_NO; /* ends the connection: a chunked body may have no end */
    /* A body that is too large is read to its end, so that the client reads the answer. */
    x->too_large = x->too_large || x->received > exchange_body_most(x);
    x->crowded = x->crowded || (!x->too_large && !exchange_hold(x, x->received));
    if (x->too_large || x->crowded)
        buf_release(&x->body);
    else
        buf_append(&x->body, data, size);
    return MHD_YES;
}

enum MHD_Result web_exchange_go_on(void *server, struct MHD_Connection *connection, const char *url,
                                   const char *method, const char *version, const char *upload,
                                   size_t *upload_size, void **state)
{
    struct web_exchange *x = *state;
    struct err e;
    (void)server;
    (void)url;
    (void)version;
    x->connection = connection;
    if (!x->parsed) { /* the headers have arrived; a refusal now ends the connection before the body */
        const char *length = exchange_header(connection, "Content-Length");
        exchange_find_address(x);
        const bool refused = exchange_check(x, method, &e) != ERR_OK;
        if (x->server->options.door && !x->login)
            exchange_admit_guest(x);
        if (refused)
            return exchange_refuse(x, &e);
        x->parsed = true;
        if (x->request.route == WEB_LOGIN && exchange_header(connection, "Transfer-Encoding"))
            return exchange_refuse_chunks(x);
        if (length && strtoull(length, NULL, 10) > exchange_drained_most(x))
            return exchange_refuse_size(x);
        return MHD_YES;
    }
    if (*upload_size) {
        const size_t size = *upload_size;
        *upload_size = 0;
        return exchange_take_body(x, upload, size);
    }
    return exchange_answer(x);
}

void *web_exchange_begin(void *server, const char *uri, struct MHD_Connection *connection)
{
    struct web_exchange *x = xcalloc(1, sizeof(*x));
    x->server = server;
    x->connection = connection;
    x->uri = xstrdup(uri);
    x->task.run = exchange_run;
    return x;
}

void web_exchange_end(void *server, struct MHD_Connection *connection, void **state,
                      enum MHD_RequestTerminationCode why)
{
    struct web_server *s = server;
    struct web_exchange *x = *state;
    (void)connection;
    (void)why;
    if (!x)
        return;
    struct web_connection *held = &exchange_connection(x)->held;
    held->streams = false;
    held->bytes = 0;
    web_connections_wait(&s->connections, held, clock_boot_ms());
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
