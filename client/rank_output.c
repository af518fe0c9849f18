#include "client/rank_output.h"

#include "client/interrupts.h"
#include "client/job_logs.h"

#define LOOK_MS 200

enum err_code rank_output_read(struct link *link, int64_t job, int rank, struct buf *out, struct err *e)
{
    struct job_logs logs;
    job_logs_init(&logs, link, job);
    enum err_code code = job_logs_open(&logs, e);
    while (!code && !logs.over) {
        Ddp__V1__LogData *data;
        code = job_logs_next(&logs, LOOK_MS, &data, e);
        if (!code && data && data->rank == rank && !data->standard_error)
            buf_append(out, data->data.data, data->data.len);
        rpc_free(data);
        if (!code && interrupts_count())
            code = err_set(e, ERR_CANCELLED, "interrupted");
    }
    job_logs_release(&logs);
    return code;
}
