/* The memory of a micro-batch. If the device has host memory, samples are gathered in place. Otherwise they
 * are gathered in host memory and uploaded; an upload has read them when it returns, so the next samples are
 * gathered while the device computes. */
#include "trainer/engine/micro_batch.h"

#include <stdlib.h>

#include "base/mem.h"

#define LINE 16 /* floats in a cache line */

struct micro_batch_sizes { /* elements */
    size_t x, y, token, label, sample;
};

static size_t whole_lines(size_t n)
{
    return (n + LINE - 1) / LINE * LINE;
}

static struct micro_batch_sizes micro_batch_sizes(const struct dataset *d, int64_t rows)
{
    size_t in = (size_t)(rows * d->in), out = (size_t)(rows * d->out);
    if (d->windows)
        return (struct micro_batch_sizes){.token = in, .label = in, .sample = (size_t)rows};
    if (d->loss == LOSS_CROSS_ENTROPY)
        return (struct micro_batch_sizes){.x = in, .label = (size_t)rows};
    return (struct micro_batch_sizes){.x = in, .y = out};
}

/* Assigns the arrays to memory. Returns the end of the used part. */
static void *micro_batch_cut(struct dataset_rows *to, void *memory, const struct micro_batch_sizes *size)
{
    float *at = memory;
    to->x = at;
    to->y = to->x + whole_lines(size->x);
    to->token = (int32_t *)(void *)(to->y + whole_lines(size->y));
    to->label = to->token + whole_lines(size->token);
    return to->label + whole_lines(size->label);
}

/* Makes one allocation on the device: tally and outcome, each on cache lines of its own, then the largest
 * micro-batch. If the device has host memory, the samples' numbers are the host's index. */
enum err_code micro_batch_open(struct engine *n, int64_t rows, struct err *e)
{
    struct micro_batch_sizes size = micro_batch_sizes(n->train, rows);
    size_t elements =
        whole_lines(size.x) + whole_lines(size.y) + whole_lines(size.token) + whole_lines(size.label);
    size_t head = 2 * LINE * sizeof(float), tail = n->device->host ? 0 : size.sample * sizeof(*n->sample);
    void *memory = NULL;
    _Static_assert(sizeof(struct device_tally) <= LINE * sizeof(float), "a tally fits its line");
    _Static_assert(sizeof(struct engine_outcome) <= LINE * sizeof(float), "an outcome fits its line");
    n->batch_bytes = head + elements * sizeof(float) + tail;
    if (device_alloc(n->device, n->batch_bytes, "batch", &memory, e))
        return e->code;
    n->tally = memory;
    n->outcome = (void *)((float *)memory + LINE);
    n->sample = micro_batch_cut(&n->batch, (char *)memory + head, &size);
    n->index = xcalloc((size_t)rows, sizeof(*n->index));
    n->host_batch = n->batch;
    n->staged.rows = -1;
    if (n->device->host)
        n->sample = n->index;
    else
        micro_batch_cut(&n->host_batch, n->host_memory = xcalloc(elements, sizeof(float)), &size);
    return ERR_OK;
}

void micro_batch_close(struct engine *n)
{
    free(n->index);
    free(n->host_memory);
    n->device->ops->free(n->device, n->tally);
    n->index = NULL;
    n->host_memory = NULL;
    n->tally = NULL;
}

static void upload_floats(struct engine *n, void *to, const void *from, size_t bytes)
{
    if (bytes)
        n->device->ops->upload(n->device, to, from, bytes);
}

static void upload_rows(struct engine *n, const struct dataset *d, int64_t rows)
{
    struct micro_batch_sizes size = micro_batch_sizes(d, rows);
    upload_floats(n, n->batch.x, n->host_batch.x, size.x * sizeof(float));
    upload_floats(n, n->batch.y, n->host_batch.y, size.y * sizeof(float));
    upload_floats(n, n->batch.token, n->host_batch.token, size.token * sizeof(int32_t));
    upload_floats(n, n->batch.label, n->host_batch.label, size.label * sizeof(int32_t));
    upload_floats(n, n->sample, n->index, size.sample * sizeof(*n->sample));
}

/* Uploads host_batch to the memory that the model reads. */
static void micro_batch_hand_over(struct engine *n, const struct dataset *d, int64_t rows,
                                  struct model_batch *out)
{
    if (!n->device->host)
        upload_rows(n, d, rows);
    n->staged.rows = -1;
    *out = (struct model_batch){
        .x = n->batch.x,
        .y = n->batch.y,
        .token = n->batch.token,
        .label = n->batch.label,
        .rows = rows,
        .sample = n->sample,
        .step = n->step,
    };
}

enum err_code micro_batch_load(struct engine *n, const struct dataset *d, int64_t rows,
                               struct model_batch *out, struct err *e)
{
    if (dataset_gather(d, n->index, rows, &n->host_batch, e))
        return e->code;
    micro_batch_hand_over(n, d, rows, out);
    return ERR_OK;
}

/* ---- training's */

/* The part of a micro-batch in this rank's share, of the step after `taken` samples. */
static void share_part(const struct engine *n, int64_t taken, int64_t micro, struct sampler_batch *out)
{
    const struct engine_share *share = &n->share;
    int64_t left = share->most - taken, step = left < share->batch ? left : share->batch;
    int64_t size = (step + n->sampler.accumulate - 1) / n->sampler.accumulate, from = micro * size;
    int64_t count = step - from < size ? step - from : size;
    *out = (struct sampler_batch){share->first + taken + from, 1, count > 0 ? count : 0};
}

static enum err_code micro_batch_gather(struct engine *n, const struct cursor *cursor, int64_t micro,
                                        struct err *e)
{
    struct sampler_batch part;
    n->staged.rows = -1;
    if (n->share.given) {
        share_part(n, cursor->position, micro, &part);
        deal_indices(&n->deal, &n->sampler, part.first, part.count, n->index);
    } else {
        sampler_batch(&n->sampler, cursor, micro, &part);
        sampler_indices(&n->sampler, cursor, &part, n->index);
    }
    if (dataset_gather(n->train, n->index, part.count, &n->host_batch, e))
        return e->code;
    n->staged = (struct engine_staged){*cursor, micro, part.count, n->sampler.rank};
    return ERR_OK;
}

static bool micro_batch_is_staged(const struct engine *n, const struct cursor *cursor, int64_t micro)
{
    const struct engine_staged *s = &n->staged;
    return s->rows >= 0 && s->cursor.epoch == cursor->epoch && s->cursor.position == cursor->position &&
           s->micro == micro && s->shard == n->sampler.rank;
}

enum err_code micro_batch_next(struct engine *n, int64_t micro, struct model_batch *out, struct err *e)
{
    struct cursor at = engine_position(n, n->share.taken);
    if (!micro_batch_is_staged(n, &at, micro) && micro_batch_gather(n, &at, micro, e))
        return e->code;
    micro_batch_hand_over(n, n->train, n->staged.rows, out);
    return ERR_OK;
}

/* An error is ignored here: it will occur again when the samples are due, and is reported then. */
void micro_batch_stage(struct engine *n, const struct cursor *cursor, int64_t micro)
{
    struct err later;
    if (!n->device->host && micro_batch_gather(n, cursor, micro, &later))
        n->staged.rows = -1;
}
