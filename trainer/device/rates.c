#include "trainer/device/rates.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"

#define HOST_SIDE 768                 /* as device_peak measures */
#define HOST_ROWS 256                 /* rows for each thread */
#define HOST_FLOATS ((size_t)8 << 20) /* of each array, more than the caches of a core */
/* Sizes for other devices double until a piece of work takes AWAY_NS, or the largest size is reached. */
#define AWAY_NS 1000000
#define AWAY_SIDE 256
#define AWAY_SIDE_MOST 8192
#define AWAY_FLOATS ((size_t)64 << 10)
#define AWAY_FLOATS_MOST ((size_t)32 << 20)
#define AWAY_REPEATS 8
#define COPY_BYTES ((size_t)32 << 20)

const char *const device_rate_names[RATE_COUNT] = {"matrix", "memory", "upload", "download"};

bool device_rate_exists(const struct device *d, enum device_rate rate)
{
    return !d->host || rate == RATE_MATRIX || rate == RATE_MEMORY;
}

static size_t copy_bytes(const struct device_rates *r)
{
    const size_t bytes = r->sizes.floats * sizeof(float);
    return bytes < COPY_BYTES ? bytes : COPY_BYTES;
}

static enum err_code product_open(struct device_rates *r, struct err *e)
{
    const int64_t side = r->sizes.side;
    struct device *d = r->device;
    const enum device_type type = d->host ? DEVICE_F32 : DEVICE_BF16;
    const int64_t rows = d->host ? (int64_t)HOST_ROWS * d->threads : side;
    const size_t left = (size_t)(rows * side), right = (size_t)(side * side);
    if (device_alloc(d, (left + right) * device_size(type) + left * sizeof(float), "matrices to multiply",
                     &r->factors, e))
        return e->code;
    device_fill_random(d, type, r->factors, left + right);
    char *b = (char *)r->factors + left * device_size(type);
    r->product = (struct device_product){.type = type,
                                         .m = rows,
                                         .n = side,
                                         .k = side,
                                         .a = r->factors,
                                         .b = b,
                                         .c = b + right * device_size(type)};
    r->repeats = d->host ? 1 : AWAY_REPEATS;
    return ERR_OK;
}

static enum err_code memory_open(struct device_rates *r, struct err *e)
{
    struct device *d = r->device;
    const size_t bytes = r->sizes.floats * sizeof(float);
    void *x = NULL, *y = NULL;
    enum err_code code = device_alloc(d, bytes, "memory to measure with", &x, e);
    if (!code)
        code = device_alloc(d, bytes, "memory to measure with", &y, e);
    r->x = x;
    r->y = y;
    if (!d->host)
        r->host = xcalloc(1, copy_bytes(r));
    return code;
}

enum err_code rates_open(struct device_rates *r, struct device *d, const struct rate_sizes *sizes,
                         struct err *e)
{
    *r = (struct device_rates){.device = d, .sizes = *sizes};
    return product_open(r, e) || memory_open(r, e) ? e->code : ERR_OK;
}

/* The time of one piece of work at these sizes; the first one also loads kernels. */
static enum err_code rates_try(struct device *d, const struct rate_sizes *sizes, enum device_rate rate,
                               int64_t *took, struct err *e)
{
    struct device_rates r;
    double work;
    enum err_code code = rates_open(&r, d, sizes, e);
    for (int i = 0; i < 2 && !code; i++) {
        const int64_t from = clock_mono_ns();
        r.repeats = 1;
        code = rates_run(&r, rate, 0, &work, e);
        *took = clock_mono_ns() - from;
    }
    rates_close(&r);
    return code;
}

enum err_code rates_choose_sizes(struct device *d, struct rate_sizes *out, struct err *e)
{
    int64_t took = 0;
    *out = (struct rate_sizes){HOST_SIDE, HOST_FLOATS};
    if (d->host)
        return ERR_OK;
    *out = (struct rate_sizes){AWAY_SIDE, AWAY_FLOATS};
    enum err_code code;
    while ((code = rates_try(d, out, RATE_MATRIX, &took, e)) == ERR_OK && took < AWAY_NS &&
           out->side < AWAY_SIDE_MOST)
        out->side *= 2;
    if (code)
        return code;
    while ((code = rates_try(d, out, RATE_MEMORY, &took, e)) == ERR_OK && took < AWAY_NS &&
           out->floats < AWAY_FLOATS_MOST)
        out->floats *= 2;
    return code;
}

void rates_close(struct device_rates *r)
{
    struct device *d = r->device;
    d->ops->free(d, r->factors);
    d->ops->free(d, r->x);
    d->ops->free(d, r->y);
    free(r->host);
    *r = (struct device_rates){0};
}

/* One piece of work, up to its end. Returns its size. */
static double rates_piece(struct device_rates *r, enum device_rate rate)
{
    struct device *d = r->device;
    const struct device_product *p = &r->product;
    switch (rate) {
    case RATE_MATRIX:
        for (int i = 0; i < r->repeats; i++)
            d->ops->product(d, p);
        return 2.0 * (double)p->m * (double)p->n * (double)p->k * r->repeats;
    case RATE_MEMORY:
        d->ops->add(d, r->y, r->x, r->sizes.floats);
        return 3.0 * sizeof(float) * (double)r->sizes.floats;
    case RATE_UPLOAD:
        d->ops->upload(d, r->x, r->host, copy_bytes(r));
        return (double)copy_bytes(r);
    default:
        d->ops->download(d, r->host, r->x, copy_bytes(r));
        return (double)copy_bytes(r);
    }
}

enum err_code rates_run(struct device_rates *r, enum device_rate rate, int64_t least_ns, double *work,
                        struct err *e)
{
    const int64_t began = clock_mono_ns();
    *work = 0;
    do {
        *work += rates_piece(r, rate);
        if (r->device->ops->wait(r->device, e))
            return e->code;
    } while (clock_mono_ns() - began < least_ns);
    return ERR_OK;
}
