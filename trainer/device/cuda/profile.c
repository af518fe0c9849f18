/* Measures operations with events: see profile.h. Events are read later, when the GPU has passed them. So the host runs
 * ahead of the GPU, as it does without a profile. */
#include "trainer/device/cuda/profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "trainer/device/cuda/cuda.h"
#include "trainer/device/cuda/error.h"

enum { PENDING = 1024, ROWS = 256, SAMPLES = 4096 };

/* Operations of one kind and shape. */
struct profile_row {
    struct profile_work work;
    int64_t calls;
    float *us; /* of the last SAMPLES calls */
};
struct profile_pending {
    cudaEvent_t from, to;
    int row;
};
struct profile {
    struct cuda_device *c;
    char *path;
    bool broken; /* CUDA had an error, so nothing more is measured */
    struct profile_tables tables;
    struct profile_row row[ROWS];
    int rows;
    int64_t lost;                            /* calls of operations that got no row */
    struct profile_pending pending[PENDING]; /* a ring */
    unsigned first, count;
};

static const struct profile_work between = {.name = "between", .shape = "operations"};

/* ---- rows */

/* Returns the number of the row, or -1 if there is no room for another one. */
static int row_find(struct profile *p, const struct profile_work *work)
{
    for (int i = 0; i < p->rows; i++)
        if (!strcmp(p->row[i].work.name, work->name) && !strcmp(p->row[i].work.shape, work->shape))
            return i;
    if (p->rows == ROWS)
        return -1;
    p->row[p->rows] = (struct profile_row){.work = *work, .us = xcalloc(SAMPLES, sizeof(float))};
    return p->rows++;
}

static void row_add(struct profile *p, int row, cudaEvent_t from, cudaEvent_t to)
{
    float ms = 0.0f;
    if (row < 0) {
        p->lost++;
        return;
    }
    if (cudaEventElapsedTime(&ms, from, to) != cudaSuccess) {
        (void)cudaGetLastError();
        p->broken = true;
        return;
    }
    struct profile_row *r = &p->row[row];
    r->us[r->calls++ % SAMPLES] = ms * 1e3f;
}

static void rows_forget(struct profile *p)
{
    for (int i = 0; i < p->rows; i++)
        free(p->row[i].us);
    p->rows = 0;
}

/* ---- events */

static struct profile_pending *pending_at(struct profile *p, unsigned i)
{
    return &p->pending[(p->first + i) % PENDING];
}

/* Reads the oldest n operations. The GPU has passed them. */
static void pending_read(struct profile *p, unsigned n)
{
    for (unsigned i = 0; i < n && !p->broken; i++) {
        const struct profile_pending *at = pending_at(p, i), *next = pending_at(p, i + 1);
        row_add(p, at->row, at->from, at->to);
        if (i + 1 < p->count)
            row_add(p, row_find(p, &between), at->to, next->from);
    }
    p->first += n;
    p->count -= n;
}

void profile_begin(struct profile *p)
{
    if (p->broken || !cuda_ready(p->c))
        return;
    /* The ring is full. The GPU has to pass only the older half of it, so it does not become idle. */
    if (p->count == PENDING) {
        if (!cuda_await(p->c, pending_at(p, PENDING / 2)->to))
            return;
        pending_read(p, PENDING / 2);
    }
    if (cudaEventRecord(pending_at(p, p->count)->from, p->c->stream) != cudaSuccess)
        p->broken = true;
}

void profile_end(struct profile *p, const struct profile_work *work)
{
    if (!work || p->broken || p->count == PENDING || !cuda_ready(p->c))
        return;
    struct profile_pending *at = pending_at(p, p->count);
    at->row = row_find(p, work);
    if (cudaEventRecord(at->to, p->c->stream) == cudaSuccess)
        p->count++;
    else
        p->broken = true;
}

void profile_restart(struct profile *p)
{
    p->count = 0;
    p->lost = 0;
    rows_forget(p);
    (void)row_find(p, &between); /* it has a row, however many shapes follow */
}

/* ---- opening and writing */

struct profile_tables *profile_tables(struct profile *p)
{
    return &p->tables;
}

static void profile_free(struct profile *p)
{
    rows_forget(p);
    for (size_t i = 0; i < PENDING; i++) {
        if (p->pending[i].from)
            (void)cudaEventDestroy(p->pending[i].from);
        if (p->pending[i].to)
            (void)cudaEventDestroy(p->pending[i].to);
    }
    free(p->path);
    free(p);
}

enum err_code profile_open(struct profile **out, struct cuda_device *c, struct err *e)
{
    const char *path = getenv("DDP_CUDA_PROFILE");
    *out = NULL;
    if (!path || !path[0])
        return ERR_OK;
    struct profile *p = xcalloc(1, sizeof(*p));
    p->c = c;
    p->path = xasprintf("%s.%ld", path, (long)getpid());
    cudaError_t code = cudaSuccess;
    for (size_t i = 0; i < PENDING && code == cudaSuccess; i++) {
        code = cudaEventCreate(&p->pending[i].from);
        if (code == cudaSuccess)
            code = cudaEventCreate(&p->pending[i].to);
    }
    if (code != cudaSuccess) {
        profile_free(p);
        return cuda_error(code, "measuring operations", e);
    }
    profile_restart(p);
    *out = p;
    return ERR_OK;
}

static int float_order(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void row_write(FILE *f, const struct profile_row *r)
{
    size_t n = r->calls < SAMPLES ? (size_t)r->calls : SAMPLES;
    qsort(r->us, n, sizeof(*r->us), float_order);
    (void)fprintf(
        f,
        "{\"name\": \"%s\", \"shape\": \"%s\", \"calls\": %lld, \"median_us\": %.3f, \"least_us\": %.3f, "
        "\"flops\": %.0f, \"bytes\": %.0f}\n",
        r->work.name, r->work.shape, (long long)r->calls, (double)r->us[n / 2], (double)r->us[0],
        r->work.flops, r->work.bytes);
}

static bool profile_write(const struct profile *p)
{
    FILE *f = fopen(p->path, "w");
    if (!f)
        return false;
    int rows = 0;
    for (int i = 0; i < p->rows; i++)
        if (p->row[i].calls > 0) {
            row_write(f, &p->row[i]);
            rows++;
        }
    /* the last line shows that the file is whole */
    bool ok = !p->broken && fprintf(f, "{\"rows\": %d, \"lost\": %lld}\n", rows, (long long)p->lost) > 0;
    return fclose(f) == 0 && ok;
}

void profile_close(struct profile *p)
{
    if (!p)
        return;
    if (p->count > 0 && !p->broken && cudaEventQuery(pending_at(p, p->count - 1)->to) == cudaSuccess)
        pending_read(p, p->count);
    (void)cudaGetLastError();
    if (!profile_write(p))
        log_warn("profile_not_written", "path=%s", LOG_Q(p->path));
    profile_free(p);
}
