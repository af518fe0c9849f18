#include "proto/rpc_health.h"

#include "base/mem.h"
#include "proto/health.pb-c.h"
#include "proto/rpc_call_state.h"
#include "proto/rpc_server_state.h"

/* The standard health service, open to all callers: SERVING until the server drains. */

#define WATCHERS_MAX 64

typedef Grpc__Health__V1__HealthCheckRequest health_request;
typedef Grpc__Health__V1__HealthCheckResponse health_response;

static bool health_knows(const struct rpc_server *server, const health_request *request)
{
    return request->service[0] == '\0' || rpc_server_find(server, request->service);
}

static health_response health_now(const struct rpc_server *server, bool known)
{
    health_response response = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;

    if (!known)
        response.status = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVICE_UNKNOWN;
    else if (server->is_draining)
        response.status = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__NOT_SERVING;
    else
        response.status = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING;
    return response;
}

static void check_start(struct rpc_call *call, const void *request, void *user)
{
    const struct rpc_server *server = user;
    health_response response = health_now(server, true);

    if (!health_knows(server, request))
        rpc_call_fail_with(call, ERR_NOT_FOUND, "no service of this name");
    else
        rpc_call_reply(call, &response);
}

static void watch_send(struct rpc_call *call, const struct rpc_server *server)
{
    health_response response = health_now(server, health_knows(server, call->request));
    struct err e;

    if (rpc_call_send(call, &response, &e))
        rpc_call_fail(call, &e);
}

static void watch_start(struct rpc_call *call, const void *request, void *user)
{
    struct rpc_server *server = user;

    (void)request;
    if (server->health_watchers == WATCHERS_MAX) {
        rpc_call_fail_with(call, ERR_RESOURCE_EXHAUSTED,
                           "too many clients watch the health of this server: at most %d are allowed",
                           WATCHERS_MAX);
        return;
    }
    server->health_watchers++;
    rpc_call_set_user(call, server);
    watch_send(call, server);
}

static void watch_end(struct rpc_call *call, bool cancelled)
{
    struct rpc_server *server = rpc_call_user(call);

    (void)cancelled;
    if (server)
        server->health_watchers--;
}

static const struct rpc_method health_methods[] = {
    {.name = "Check", .kind = RPC_UNARY, .on_start = check_start},
    {.name = "Watch", .kind = RPC_SERVER_STREAM, .on_start = watch_start, .on_end = watch_end},
    {0},
};

void rpc_health_init(struct rpc_server *server)
{
    server->health = (struct rpc_service){
        .descriptor = &grpc__health__v1__health__descriptor,
        .methods = health_methods,
        .user = server,
    };
    rpc_server_add_service(server, &server->health);
}

void rpc_health_drain(struct rpc_server *server)
{
    for (struct rpc_call *call = server->calls; call; call = call->next)
        if (call->service == &server->health && call->started && rpc_call_user(call) && !rpc_call_over(call))
            watch_send(call, server);
}
