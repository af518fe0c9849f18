#include "client/job_logs.h"

#include <stdlib.h>

#include "base/mem.h"

void job_logs_init(struct job_logs *l, struct link *link, int64_t job)
{
    *l = (struct job_logs){.link = link, .job = job};
}

bool job_logs_are_open(const struct job_logs *l)
{
    return l->stream != NULL;
}

static void job_logs_close(struct job_logs *l)
{
    rpc_stream_close(l->stream);
    l->stream = NULL;
}

enum err_code job_logs_open(struct job_logs *l, struct err *e)
{
    Ddp__V1__ReadLogsRequest request = DDP__V1__READ_LOGS_REQUEST__INIT;
    if (link_check_owner(l->link, e) != ERR_OK)
        return e->code;
    if (l->incomplete) /* from the start would be twice */
        return err_set(e, ERR_FAILED_PRECONDITION,
                       "the coordinator is older and cannot go on with the output");
    Ddp__V1__LogPlace **places = xcalloc(l->count + 1, sizeof(*places));
    for (size_t i = 0; i < l->count; i++)
        places[i] = &l->places[i];
    request.job = l->job;
    request.rank = -1;
    request.follow = request.both = request.all_generations = true;
    request.places = places;
    request.n_places = l->count;
    const enum err_code code = rpc_stream_open(&l->stream, l->link->channel, &ddp__v1__cluster__descriptor,
                                               "ReadLogs", &request, 0, 0, e);
    free(places);
    return code;
}

static void job_logs_note_place(struct job_logs *l, const Ddp__V1__LogData *data)
{
    size_t i = 0;
    if (!data->data.len)
        return;
    l->incomplete = l->incomplete || !data->offset;
    while (i < l->count && (l->places[i].generation != data->generation || l->places[i].rank != data->rank ||
                            l->places[i].standard_error != data->standard_error))
        i++;
    if (i == l->count) {
        l->places = array_grow(l->places, l->count, &l->cap, sizeof(*l->places));
        ddp__v1__log_place__init(&l->places[l->count++]);
    }
    l->places[i].generation = data->generation;
    l->places[i].rank = data->rank;
    l->places[i].standard_error = data->standard_error;
    l->places[i].offset = data->offset;
}

enum err_code job_logs_next(struct job_logs *l, int64_t wait_ms, Ddp__V1__LogData **data, struct err *e)
{
    void *message = NULL;
    *data = NULL;
    const enum err_code code = rpc_stream_next(l->stream, wait_ms, &message, e);
    if (code == ERR_DEADLINE_EXCEEDED && !rpc_stream_ended(l->stream))
        return ERR_OK;
    if (code != ERR_OK) {
        job_logs_close(l);
        return code;
    }
    l->over = !message;
    *data = message;
    if (message)
        job_logs_note_place(l, message);
    return ERR_OK;
}

void job_logs_release(struct job_logs *l)
{
    job_logs_close(l);
    free(l->places);
    *l = (struct job_logs){0};
}
