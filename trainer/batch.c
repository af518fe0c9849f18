/* The memory of a micro-batch, and how samples get there. */
#include <stdlib.h>

#include "base/mem.h"
#include "trainer/trainer.h"

#define LINE 16 /* floats of a cache line */

struct batch_sizes { /* elements */
    size_t x, y, token, label;
};

static size_t whole_lines(size_t n)
{
    return (n + LINE - 1) / LINE * LINE;
}

static struct batch_sizes sizes_of(const struct dataset *d, int64_t rows)
{
    size_t in = (size_t)(rows * d->in), out = (size_t)(rows * d->out);
    if (d->windows)
        return (struct batch_sizes){.token = in, .label = in};
    if (d->loss == LOSS_CROSS_ENTROPY)
        return (struct batch_sizes){.x = in, .label = (size_t)rows};
    return (struct batch_sizes){.x = in, .y = out};
}

static void cut(struct dataset_rows *to, void *memory, const struct batch_sizes *n)
{
    float *at = memory;
    to->x = at;
    to->y = to->x + whole_lines(n->x);
    to->token = (int32_t *)(void *)(to->y + whole_lines(n->y));
    to->label = to->token + whole_lines(n->token);
}

/* One allocation on the device: the tally, on a cache line of its own, and the largest micro-batch. */
enum err_code batch_open(struct trainer *t, int64_t rows, struct err *e)
{
    struct batch_sizes n = sizes_of(t->train, rows);
    size_t elements = whole_lines(n.x) + whole_lines(n.y) + whole_lines(n.token) + whole_lines(n.label);
    size_t head = LINE * sizeof(float);
    void *memory = NULL;
    _Static_assert(sizeof(struct device_tally) <= LINE * sizeof(float), "a tally fits its line");
    if (device_alloc(t->device, head + elements * sizeof(float), "batch", &memory, e))
        return e->code;
    t->tally = memory;
    cut(&t->batch, (char *)memory + head, &n);
    t->batch_bytes = head + elements * sizeof(float);
    t->index = xcalloc((size_t)rows, sizeof(*t->index));
    t->host_batch = t->batch;
    if (!t->device->host)
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

static void upload(struct trainer *t, const struct dataset *d, int64_t rows)
{
    const struct device_ops *ops = t->device->ops;
    struct batch_sizes n = sizes_of(d, rows);
    ops->upload(t->device, t->batch.x, t->host_batch.x, n.x * sizeof(float));
    ops->upload(t->device, t->batch.y, t->host_batch.y, n.y * sizeof(float));
    ops->upload(t->device, t->batch.token, t->host_batch.token, n.token * sizeof(int32_t));
    ops->upload(t->device, t->batch.label, t->host_batch.label, n.label * sizeof(int32_t));
}

enum err_code batch_load(struct trainer *t, const struct dataset *d, int64_t rows, struct model_batch *out,
                         struct err *e)
{
    if (dataset_gather(d, t->index, rows, &t->host_batch, e))
        return e->code;
    if (!t->device->host)
        upload(t, d, rows);
    *out = (struct model_batch){
        .x = t->batch.x,
        .y = t->batch.y,
        .token = t->batch.token,
        .label = t->batch.label,
        .rows = rows,
        .sample = t->index,
        .step = t->step,
    };
    return ERR_OK;
}
