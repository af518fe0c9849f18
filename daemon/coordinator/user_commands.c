#include "daemon/coordinator/user_commands.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "proto/ddp.pb-c.h"
#include "proto/rpc_client.h"

#define CALL_MS 10000

static enum err_code coordinator_call(const char *state, const char *method, const void *request,
                                      void **reply, struct err *e)
{
    CLEANUP(free_text) char *address = xasprintf("unix:%s/coordinator.sock", state);
    struct rpc_channel *channel;
    if (rpc_channel_open(&channel, address, NULL, e) != ERR_OK)
        return e->code;
    enum err_code code =
        rpc_channel_call(channel, &ddp__v1__cluster__descriptor, method, request, reply, CALL_MS, 0, e);
    rpc_channel_close(channel);
    if (code != ERR_UNAVAILABLE && code != ERR_DEADLINE_EXCEEDED)
        return code;
    const struct err failure = *e;
    return err_set(e, ERR_UNAVAILABLE,
                   "no coordinator answers at %s: users can be changed only while it runs, so start it first"
                   " (%.160s)",
                   address, failure.msg);
}

static const char *minute_text(char out[20], int64_t ms)
{
    const time_t seconds = (time_t)(ms / 1000);
    struct tm tm;
    strftime(out, 20, "%Y-%m-%d %H:%M", localtime_r(&seconds, &tm));
    return out;
}

static enum err_code users_print(const char *state, struct err *e)
{
    const Ddp__V1__ListUsersRequest request = DDP__V1__LIST_USERS_REQUEST__INIT;
    CLEANUP(rpc_release) void *message = NULL;
    char added[20], made[20];
    if (coordinator_call(state, "ListUsers", &request, &message, e) != ERR_OK)
        return e->code;
    const Ddp__V1__ListUsersReply *reply = message;
    printf("%-20s %-8s %-17s %s\n", "NAME", "ROLE", "ADDED", "TOKEN MADE");
    for (size_t i = 0; i < reply->n_users; i++)
        printf("%-20s %-8s %-17s %s\n", reply->users[i]->name, reply->users[i]->role,
               minute_text(added, reply->users[i]->created_ms), minute_text(made, reply->users[i]->token_ms));
    return ERR_OK;
}

/* Only the token goes to stdout, so that it can be piped; the rest goes to stderr. */
static enum err_code user_change(const char *state, const char *method, const char *name, const char *role,
                                 struct err *e)
{
    Ddp__V1__UserRequest request = DDP__V1__USER_REQUEST__INIT;
    CLEANUP(rpc_release) void *message = NULL;
    request.name = (char *)(uintptr_t)name;
    if (role)
        request.role = (char *)(uintptr_t)role;
    if (coordinator_call(state, method, &request, &message, e) != ERR_OK)
        return e->code;
    const Ddp__V1__UserReply *reply = message;
    if (!reply->token[0]) {
        fprintf(stderr, "user %s is removed; the token no longer works\n", name);
        return ERR_OK;
    }
    fprintf(stderr,
            "user %s, role %s; the token is shown only once: store it in ~/.config/ddp/token (mode 0600) or "
            "in DDP_TOKEN:\n",
            name, reply->user ? reply->user->role : "?");
    puts(reply->token);
    return ERR_OK;
}

enum err_code user_command(const char *state, char *const *words, const char *role, struct err *e)
{
    static const struct {
        const char *word, *method;
    } changes[] = {{"add", "AddUser"}, {"remove", "RemoveUser"}, {"token", "RenewUserToken"}};
    const size_t count = words ? strv_len(words) : 0;
    if (role && !(count && strcmp(words[0], "add") == 0))
        return err_set(e, ERR_INVALID_ARGUMENT, "option '--role' works only with user add");
    if (count == 1 && strcmp(words[0], "list") == 0)
        return users_print(state, e);
    for (size_t i = 0; count == 2 && i < ARRAY_LEN(changes); i++)
        if (strcmp(words[0], changes[i].word) == 0)
            return user_change(state, changes[i].method, words[1], role, e);
    return err_set(
        e, ERR_INVALID_ARGUMENT,
        "expected user add NAME [--role view|submit|operate], user list, user remove NAME or user token NAME");
}
