#include "proto/rpc_spawn_fact.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"

/* Most spawns ask for nothing, and have no such message. */
static void asks_pack(const struct spawn_asks *asks, Ddp__V1__SpawnFact *out)
{
    if (!asks->commit && !asks->heeds && !asks->promise)
        return;
    out->asks = xcalloc(1, sizeof(*out->asks));
    ddp__v1__spawn_asks__init(out->asks);
    out->asks->commit = asks->commit;
    out->asks->step = asks->step;
    out->asks->bytes = asks->bytes;
    if (asks->path)
        out->asks->path = (char *)asks->path;
    out->asks->heeds = asks->heeds;
    out->asks->promise = asks->promise;
}

void rpc_spawn_fact_pack(const struct spawn_fact *fact, bool with_tail, Ddp__V1__SpawnFact *out)
{
    char *line, *rest;
    size_t cap = 0;

    ddp__v1__spawn_fact__init(out);
    out->job = fact->job;
    out->spawn = fact->spawn;
    out->state = (char *)spawn_state_name(fact->state);
    out->pid = fact->pid;
    out->started_ms = fact->started_ms;
    out->ended_ms = fact->ended_ms;
    out->code = fact->code;
    out->signal = fact->signal;
    out->out_of_memory = fact->out_of_memory;
    out->lost = fact->lost;
    out->not_started = fact->not_started;
    out->port_busy = fact->port_busy;
    out->lease_expired = fact->lease_expired;
    out->node_trouble = fact->node_trouble;
    out->no_account = fact->no_account;
    out->stopped = fact->stopped;
    out->interrupted = fact->interrupted;
    if (fact->message)
        out->message = (char *)fact->message;
    asks_pack(&fact->asks, out);
    if (!with_tail || !fact->stderr_tail)
        return;
    rest = xstrdup(fact->stderr_tail); /* all lines are one text, cut; the first one owns it */
    while ((line = strsep(&rest, "\n"))) {
        out->stderr_tail = array_grow(out->stderr_tail, out->n_stderr_tail, &cap, sizeof(*out->stderr_tail));
        out->stderr_tail[out->n_stderr_tail++] = line;
    }
}

void rpc_spawn_fact_release(Ddp__V1__SpawnFact *message)
{
    free(message->asks);
    message->asks = NULL;
    free(message->stderr_tail ? message->stderr_tail[0] : NULL);
    free(message->stderr_tail);
    message->stderr_tail = NULL;
    message->n_stderr_tail = 0;
}

void rpc_spawn_fact_unpack(const Ddp__V1__SpawnFact *message, struct spawn_fact *out)
{
    CLEANUP(buf_release) struct buf tail = {0};

    *out = (struct spawn_fact){
        .job = message->job,
        .spawn = message->spawn,
        .pid = message->pid,
        .started_ms = message->started_ms,
        .ended_ms = message->ended_ms,
        .code = message->code,
        .signal = message->signal,
        .out_of_memory = message->out_of_memory,
        .lost = message->lost,
        .not_started = message->not_started,
        .port_busy = message->port_busy,
        .lease_expired = message->lease_expired,
        .node_trouble = message->node_trouble,
        .no_account = message->no_account,
        .stopped = message->stopped,
        .interrupted = message->interrupted,
        .message = message->message[0] ? xstrdup(message->message) : NULL,
    };
    if (!spawn_state_parse(message->state, &out->state))
        out->state = SPAWN_STARTING; /* of a newer agent: it is there, and has not ended */
    if (message->asks)
        out->asks = (struct spawn_asks){
            .commit = message->asks->commit,
            .step = message->asks->step,
            .bytes = message->asks->bytes,
            .path = message->asks->path[0] ? xstrdup(message->asks->path) : NULL,
            .heeds = message->asks->heeds,
            .promise = message->asks->promise,
        };
    for (size_t i = 0; i < message->n_stderr_tail; i++)
        buf_printf(&tail, "%s%s", i ? "\n" : "", message->stderr_tail[i]);
    if (message->n_stderr_tail)
        out->stderr_tail = buf_steal(&tail);
}
