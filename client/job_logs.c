#include "client/job_logs.h"

#include <stdlib.h>

#include "base/mem.h"

#define CAUGHT_UP_MS 100 /* a shorter wait may fall between two messages */

void job_logs_init(struct job_logs *l, struct link *link, int64_t job)
{
    Ddp__V1__ReadLogsRequest request = DDP__V1__READ_LOGS_REQUEST__INIT;
    request.job = job;
    request.rank = -1;
    request.follow = request.both = request.all_generations = true;
    job_logs_init_request(l, link, &request);
}

void job_logs_init_request(struct job_logs *l, struct link *link, const Ddp__V1__ReadLogsRequest *request)
{
    *l = (struct job_logs){.link = link, .request = *request};
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
    Ddp__V1__ReadLogsRequest request = l->request;
    if (link_check_owner(l->link, e) != ERR_OK)
        return e->code;
    if (l->incomplete) /* from the start would be twice */
        return err_set(e, ERR_FAILED_PRECONDITION,
                       "the coordinator is older and cannot go on with the output");
    Ddp__V1__LogPlace **places = xcalloc(l->count + 1, sizeof(*places));
    for (size_t i = 0; i < l->count; i++)
        places[i] = &l->places[i];
    request.places = places;
    request.n_places = l->count;
    if (l->caught_up) /* a log of which nothing has come was empty; before, the tails of others are still due */
        request.tail_lines = request.tail_bytes = 0;
    if (l->count && !request.generation && !request.all_generations) {
        /* The newest generation may have become a new one. What is left of the one before comes first. */
        request.all_generations = true;
        request.first_generation = l->first_generation;
    }
    l->asked_generation = request.first_generation;
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
    if (!l->first_generation || data->generation < l->first_generation)
        l->first_generation = data->generation;
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

/* An older coordinator sends all generations where a newer one begins with first_generation. */
static bool job_logs_is_too_old(const struct job_logs *l, const Ddp__V1__LogData *data)
{
    return data->data.len && data->generation < l->asked_generation;
}

enum err_code job_logs_next(struct job_logs *l, int64_t wait_ms, Ddp__V1__LogData **data, struct err *e)
{
    void *message = NULL;
    *data = NULL;
    const enum err_code code = rpc_stream_next(l->stream, wait_ms, &message, e);
    if (code == ERR_DEADLINE_EXCEEDED && !rpc_stream_ended(l->stream)) {
        l->caught_up |= wait_ms >= CAUGHT_UP_MS;
        return ERR_OK;
    }
    if (code != ERR_OK) {
        job_logs_close(l);
        return code;
    }
    l->over = !message;
    *data = message;
    if (!message)
        return ERR_OK;
    if (job_logs_is_too_old(l, message)) {
        rpc_free(message);
        *data = NULL;
        return ERR_OK;
    }
    job_logs_note_place(l, message);
    return ERR_OK;
}

void job_logs_release(struct job_logs *l)
{
    job_logs_close(l);
    free(l->places);
    *l = (struct job_logs){0};
}
