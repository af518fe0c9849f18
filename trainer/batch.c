/* The memory of a micro-batch, and how samples get there. Where the device's memory is the host's they are
 * gathered in place. Else in host memory, from which an upload has read when it returns: so the next ones are
 * gathered while the device computes. */
#include <stdlib.h>

#include "base/mem.h"
#include "trainer/trainer.h"

#define LINE 16 /* floats of a cache line */

struct batch_sizes { /* elements */
    size_t x, y, token, label, sample;
};

static size_t whole_lines(size_t n)
{
    return (n + LINE - 1) / LINE * LINE;
}

static struct batch_sizes sizes_of(const struct dataset *d, int64_t rows)
{
    size_t in = (size_t)(rows * d->in), out = (size_t)(rows * d->out);
    if (d->windows)
        return (struct batch_sizes){.token = in, .label = in, .sample = (size_t)rows};
    if (d->loss == LOSS_CROSS_ENTROPY)
        return (struct batch_sizes){.x = in, .label = (size_t)rows};
    return (struct batch_sizes){.x = in, .y = out};
}

/* Returns the end. */
static void *cut(struct dataset_rows *to, void *memory, const struct batch_sizes *n)
{
    float *at = memory;
    to->x = at;
    to->y = to->x + whole_lines(n->x);
    to->token = (int32_t *)(void *)(to->y + whole_lines(n->y));
    to->label = to->token + whole_lines(n->token);
    return to->label + whole_lines(n->label);
}

/* One allocation on the device: tally and outcome, each on cache lines of its own, and the largest
 * micro-batch. Who its samples are is the host's index where that is the device's memory, too. */
enum err_code batch_open(struct trainer *t, int64_t rows, struct err *e)
{
    struct batch_sizes n = sizes_of(t->train, rows);
    size_t elements = whole_lines(n.x) + whole_lines(n.y) + whole_lines(n.token) + whole_lines(n.label);
    size_t head = 2 * LINE * sizeof(float), tail = t->device->host ? 0 : n.sample * sizeof(*t->sample);
    void *memory = NULL;
    _Static_assert(sizeof(struct device_tally) <= LINE * sizeof(float), "a tally fits its line");
    _Static_assert(sizeof(struct outcome) <= LINE * sizeof(float), "an outcome fits its line");
    t->batch_bytes = head + elements * sizeof(float) + tail;
    if (device_alloc(t->device, t->batch_bytes, "batch", &memory, e))
        return e->code;
    t->tally = memory;
    t->outcome = (void *)((float *)memory + LINE);
    t->sample = cut(&t->batch, (char *)memory + head, &n);
    t->index = xcalloc((size_t)rows, sizeof(*t->index));
    t->host_batch = t->batch;
    t->staged.rows = -1;
    if (t->device->host)
        t->sample = t->index;
    else
        cut(&t->host_batch, t->host_memory = xcalloc(elements, sizeof(float)), &n);
    return ERR_OK;
}

void batch_close(struct trainer *t)
{
    free(t->index);
    free(t->host_memory);
    if (t->device)
        t->device->ops->free(t->device, t->tally);
}

static void send(struct trainer *t, void *to, const void *from, size_t bytes)
{
    if (bytes)
        t->device->ops->upload(t->device, to, from, bytes);
}

static void upload(struct trainer *t, const struct dataset *d, int64_t rows)
{
    struct batch_sizes n = sizes_of(d, rows);
    send(t, t->batch.x, t->host_batch.x, n.x * sizeof(float));
    send(t, t->batch.y, t->host_batch.y, n.y * sizeof(float));
    send(t, t->batch.token, t->host_batch.token, n.token * sizeof(int32_t));
    send(t, t->batch.label, t->host_batch.label, n.label * sizeof(int32_t));
    send(t, t->sample, t->index, n.sample * sizeof(*t->sample));
}

/* From host_batch to where the model reads. */
static void hand_over(struct trainer *t, const struct dataset *d, int64_t rows, struct model_batch *out)
{
    if (!t->device->host)
        upload(t, d, rows);
    t->staged.rows = -1;
    *out = (struct model_batch){
        .x = t->batch.x,
        .y = t->batch.y,
        .token = t->batch.token,
        .label = t->batch.label,
        .rows = rows,
        .sample = t->sample,
        .step = t->step,
    };
}

enum err_code batch_load(struct trainer *t, const struct dataset *d, int64_t rows, struct model_batch *out,
                         struct err *e)
{
    if (dataset_gather(d, t->index, rows, &t->host_batch, e))
        return e->code;
    hand_over(t, d, rows, out);
    return ERR_OK;
}

/* ---- training's */

static enum err_code gather(struct trainer *t, const struct cursor *cursor, int64_t micro, struct err *e)
{
    struct sampler_batch part;
    t->staged.rows = -1;
    sampler_batch(&t->sampler, cursor, micro, &part);
    sampler_indices(&t->sampler, cursor, &part, t->index);
    if (dataset_gather(t->train, t->index, part.count, &t->host_batch, e))
        return e->code;
    t->staged = (struct staged){*cursor, micro, part.count, t->sampler.rank};
    return ERR_OK;
}

static bool is_staged(const struct trainer *t, const struct cursor *cursor, int64_t micro)
{
    const struct staged *s = &t->staged;
    return s->rows >= 0 && s->cursor.epoch == cursor->epoch && s->cursor.position == cursor->position &&
           s->micro == micro && s->rank == t->sampler.rank;
}

enum err_code batch_next(struct trainer *t, int64_t micro, struct model_batch *out, struct err *e)
{
    if (!is_staged(t, &t->cursor, micro) && gather(t, &t->cursor, micro, e))
        return e->code;
    hand_over(t, t->train, t->staged.rows, out);
    return ERR_OK;
}

/* What fails here fails again when it is due, and is told then. */
void batch_stage(struct trainer *t, const struct cursor *cursor, int64_t micro)
{
    struct err later;
    if (!t->device->host && gather(t, cursor, micro, &later))
        t->staged.rows = -1;
}
