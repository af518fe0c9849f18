#include "client/run/run_error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "client/screen/screen_parts.h"

#define ERROR_FILE_MAX (1 << 20)

/* The time of the error. torchrun's file is {"message": {"message": "...", "extraInfo": {"timestamp":
 * "1700000000", ...}}} or {"message": "...", "timestamp": ...}. */
static double run_error_seconds(const json_t *file)
{
    const json_t *message = json_object_get(file, "message");
    const json_t *holder = json_is_object(message) ? json_object_get(message, "extraInfo") : file;
    const json_t *at = json_object_get(holder, "timestamp");
    if (json_is_number(at))
        return json_number_value(at);
    return json_is_string(at) ? strtod(json_string_value(at), NULL) : INFINITY;
}

static char *run_error_message(const json_t *file)
{
    const json_t *message = json_object_get(file, "message");
    const char *text =
        json_is_object(message) ? json_get_text(message, "message", "") : json_string_value(message);
    return xasprintf("%.*s", text ? (int)strcspn(text, "\n") : 0, text ? text : "");
}

static json_t *run_error_read_file(const char *dir, int local_rank)
{
    CLEANUP(free_text) char *path = xasprintf("%s/%d/error.json", dir, local_rank);
    CLEANUP(buf_release) struct buf text = {0};
    json_t *file = NULL;
    struct err ignored;
    if (file_read(path, ERROR_FILE_MAX, &text, &ignored) != ERR_OK ||
        json_parse(text.data, text.len, ERROR_FILE_MAX, &file, &ignored) != ERR_OK)
        return NULL;
    if (!json_is_object(file))
        json_release(&file);
    return file;
}

void run_error_find(struct run_error *out, const Ddp__V1__JobStatus *job, const char *node, const char *dir)
{
    *out = (struct run_error){.rank = -1};
    for (size_t i = 0; i < job->n_ranks; i++) {
        const Ddp__V1__RankStatus *r = job->ranks[i];
        CLEANUP(json_release) json_t *file = NULL;
        bool named = job->failure && job->failure->rank == r->rank;
        if (strcmp(r->node, node) != 0 || !(file = run_error_read_file(dir, r->local_rank)))
            continue;
        double at = run_error_seconds(file);
        /* the first error counts; within one second, that of the rank which the coordinator saw fail first */
        if (out->rank >= 0 && (at > out->seconds || (at == out->seconds && !named)))
            continue;
        run_error_release(out);
        *out = (struct run_error){
            .rank = r->rank, .seconds = at, .message = run_error_message(file), .file = steal(file)};
    }
}

void run_error_release(struct run_error *error)
{
    free(error->message);
    json_release(&error->file);
    *error = (struct run_error){.rank = -1};
}

/* The error file for a worker that left none: all that is known is how it ended. */
static json_t *run_error_from_failure(const Ddp__V1__Failure *failure)
{
    CLEANUP(buf_release) struct buf line = {0};
    screen_failure_line(failure, true, &line);
    CLEANUP(free_text) char *now = xasprintf("%lld", (long long)(clock_wall_ms() / 1000));
    return json_pack("{s:{s:s#,s:{s:s}}}", "message", "message", line.data, (int)line.len, "extraInfo",
                     "timestamp", now);
}

enum err_code run_error_copy(const struct run_error *error, const Ddp__V1__Failure *failure, const char *path,
                             struct err *e)
{
    CLEANUP(json_release)
    json_t *file = error->file ? json_deep_copy(error->file) : run_error_from_failure(failure);
    json_t *message = json_object_get(file, "message");
    if (json_is_object(message))
        json_object_set_new(message, "errorCode",
                            json_integer(failure->signal ? -failure->signal : failure->code));
    CLEANUP(free_text) char *text = file ? json_dumps(file, JSON_COMPACT) : NULL;
    if (!text)
        return err_set(e, ERR_INTERNAL, "%s: the error cannot be written as JSON", path);
    return file_write_atomic(path, text, strlen(text), 0644, e);
}
