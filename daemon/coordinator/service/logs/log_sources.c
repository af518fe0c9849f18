#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/coordinator/service/commit_queue.h"
#include "daemon/coordinator/service/handles.h"
#include "daemon/coordinator/service/logs/log_stream.h"
#include "daemon/coordinator/service/service_state.h"

/* Chooses the files that a call reads. */

#define LOGS_MOST                                                                                            \
    2000 /* in one call, because each step looks at all of them; a single generation may have more */

static int compare_log_places(const void *a, const void *b)
{
    const Ddp__V1__LogPlace *x = a, *y = b;

    if (x->generation != y->generation)
        return x->generation < y->generation ? -1 : 1;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return !!x->standard_error - !!y->standard_error;
}

void log_stream_take_places(struct log_stream *x, Ddp__V1__LogPlace *const *places, size_t count)
{
    x->places = xcalloc(count + 1, sizeof *x->places);
    for (size_t i = 0; i < count; i++)
        x->places[x->place_count++] = *places[i];
    qsort(x->places, count, sizeof *x->places, compare_log_places);
}

/* A client whose connection was lost continues where it was. For the log of a spawn that was a member of several
 * generations, it may name several places. It has received everything before the last of them. */
static void log_read_go_to_place(struct log_read *r)
{
    const struct log_stream *x = r->stream;
    Ddp__V1__LogPlace key = DDP__V1__LOG_PLACE__INIT;
    key.generation = r->generation;
    key.rank = r->rank;
    key.standard_error = r->standard_error;
    const Ddp__V1__LogPlace *p =
        bsearch(&key, x->places, x->place_count, sizeof *x->places, compare_log_places);
    if (!p || p->offset <= r->offset)
        return;
    r->offset = p->offset;
    r->begun = true;
}

/* *end: the end of the stream's list, which moves on. */
static void log_stream_add_read(struct log_stream *x, struct log_read ***end, const struct rank_record *rank,
                                const struct spawn_record *spawn, bool standard_error)
{
    struct log_read *r = xcalloc(1, sizeof *r);
    *r = (struct log_read){.stream = x,
                           .handle = service_handle(x->service),
                           .node = xstrdup(rank->node),
                           .spawn = spawn->spawn,
                           .started = spawn->pid > 0 || spawn->started_ms > 0,
                           .rank = rank->rank,
                           .generation = rank->generation,
                           .first_generation = spawn->first_generation,
                           .first_local_rank = spawn->first_local_rank,
                           .standard_error = standard_error};
    log_read_go_to_place(r);
    handles_put(&x->service->reads, r->handle, r);
    x->service->stats.log_reads++;
    x->read_count++;
    **end = r;
    *end = &r->next;
}

static int compare_spawn_number(const void *number, const void *spawn)
{
    const int64_t a = *(const int64_t *)number, b = ((const struct spawn_record *)spawn)->spawn;

    return (a > b) - (a < b);
}

/* The log belongs to the spawn, which may hold ranks of several generations. */
static const struct spawn_record *find_rank_spawn(const struct records *records,
                                                  const struct rank_record *rank)
{
    return bsearch(&rank->spawn, records->spawns, records->spawn_count, sizeof *records->spawns,
                   compare_spawn_number); /* the store returns a job's spawns in the order of their numbers */
}

/* The reads that a stream has already, in an order in which those of a spawn are found without a look at all of them. */
struct read_index {
    struct log_read **list;
    size_t count;
};

static int compare_log_files(const struct log_read *a, int64_t generation, int local_rank, const char *node)
{
    if (a->first_generation != generation)
        return a->first_generation < generation ? -1 : 1;
    if (a->first_local_rank != local_rank)
        return a->first_local_rank < local_rank ? -1 : 1;
    return strcmp(a->node, node);
}

static int compare_read_files(const void *a, const void *b)
{
    const struct log_read *x = *(struct log_read *const *)a, *y = *(struct log_read *const *)b;
    return compare_log_files(x, y->first_generation, y->first_local_rank, y->node);
}

/* Returns the end of the stream's list. */
static struct log_read **read_index_make(struct read_index *index, struct log_stream *x)
{
    struct log_read **end = &x->reads;
    *index = (struct read_index){.list = xcalloc(x->read_count + 1, sizeof(struct log_read *))};
    for (; *end; end = &(*end)->next)
        index->list[index->count++] = *end;
    qsort(index->list, index->count, sizeof *index->list, compare_read_files);
    return end;
}

/* Whether the stream reads the spawn's log already, because the spawn has outlived an earlier generation. Its reads
 * continue, under the spawn's new rank. */
static bool read_index_go_on(const struct read_index *index, const struct rank_record *rank,
                             const struct spawn_record *spawn)
{
    size_t first = 0, end = index->count;
    bool found = false;

    while (first < end) {
        const size_t middle = first + (end - first) / 2;
        if (compare_log_files(index->list[middle], spawn->first_generation, spawn->first_local_rank,
                              spawn->node) < 0)
            first = middle + 1;
        else
            end = middle;
    }
    for (; first < index->count; first++) { /* stdout and stderr */
        struct log_read *r = index->list[first];
        if (compare_log_files(r, spawn->first_generation, spawn->first_local_rank, spawn->node) != 0)
            break;
        r->rank = rank->rank;
        r->generation = rank->generation;
        log_read_go_to_place(r);
        found = true;
    }
    return found;
}

static void log_stream_add_generation(struct log_stream *x, const struct records *records, int64_t generation)
{
    /* The spawns of one generation differ, so only the reads from before it can be those of one of them. */
    struct read_index before;
    struct log_read **end = read_index_make(&before, x);

    for (size_t i = 0; i < records->rank_count; i++) {
        const struct rank_record *rank = &records->ranks[i];
        if (rank->generation != generation || (x->rank >= 0 && rank->rank != x->rank))
            continue;
        const struct spawn_record *spawn = find_rank_spawn(records, rank);
        if (!spawn || read_index_go_on(&before, rank, spawn))
            continue;
        if (x->standard_out)
            log_stream_add_read(x, &end, rank, spawn, false);
        if (x->standard_error)
            log_stream_add_read(x, &end, rank, spawn, true);
    }
    free(before.list);
    x->generation = generation;
}

enum err_code log_stream_open_generations(struct log_stream *x, int64_t wanted, struct err *e)
{
    const struct job_record *job = core_job(x->service->core, x->job);
    if (!job)
        return err_set(e, ERR_NOT_FOUND, "there is no job %lld", (long long)x->job);
    if (wanted > job->generation)
        return err_set(e, ERR_NOT_FOUND, "job %lld has no generation %lld, the newest is %lld",
                       (long long)x->job, (long long)wanted, (long long)job->generation);
    if (!wanted && job->generation <= x->generation)
        return ERR_OK;
    CLEANUP(records_release) struct records records;
    if (store_load_job(x->service->store, x->job, &records, e) != ERR_OK) {
        if (e->code == ERR_DATA_LOSS)
            commit_queue_damaged(x->service, e);
        return e->code;
    }
    int64_t first = wanted ? wanted : x->generation + 1;
    if (!wanted && x->generation == 0 && !x->all)
        first = job->generation;
    if (!wanted && x->generation == 0 && x->all && x->first_generation > first)
        first = x->first_generation < job->generation ? x->first_generation : job->generation;
    for (int64_t g = first; g <= (wanted ? wanted : job->generation); g++) {
        log_stream_add_generation(x, &records, g);
        if (g > first && x->read_count > LOGS_MOST)
            return err_set(
                e, ERR_RESOURCE_EXHAUSTED,
                "the generations of job %lld have more than %d logs: ask for one generation (-g N) or "
                "one rank (--rank R)",
                (long long)x->job, LOGS_MOST);
    }
    return ERR_OK;
}
