/* The devices that a test of operations compares: see ops_side.h. */
#include "ops_side.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bf16.h"

enum { GUARD = 16 };

void side_must(bool ok, const char *what)
{
    if (ok)
        return;
    (void)fprintf(stderr, "gpu_ops: %s\n", what);
    exit(1);
}

void *side_host_alloc(size_t bytes)
{
    void *p = calloc(bytes + 64, 1);
    side_must(p, "no memory");
    return p;
}

/* ---- arrays of a side */

float side_random(struct side *s)
{
    return 2.0f * random_float(&s->random) - 1.0f;
}

void *side_new_bytes(struct side *s, const void *from, size_t bytes, size_t size)
{
    struct err e;
    size_t before = size <= 4 ? (size_t)s->shifted * size : 0, behind = GUARD * size;
    uint8_t *host = side_host_alloc(before + bytes + behind);
    void *p = NULL;
    side_must(!s->d->ops->alloc(s->d, before + bytes + behind, &p, &e), "no memory on the device");
    side_must(s->arrays < SIDE_ARRAYS, "too many arrays");
    memset(host, 0xff, before + bytes + behind); /* all bits set are a NaN */
    if (from)
        memcpy(host + before, from, bytes);
    s->d->ops->upload(s->d, p, host, before + bytes + behind);
    free(host);
    s->array[s->arrays++] = p;
    return (uint8_t *)p + before;
}

static void *side_new_array(struct side *s, enum device_type type, const float *from, int64_t n)
{
    uint16_t *narrow = side_host_alloc((size_t)n * sizeof(*narrow));
    for (int64_t i = 0; i < n && from; i++)
        narrow[i] = bf16_from_float(from[i]);
    void *p = side_new_bytes(s,
                             !from                ? NULL
                             : type == DEVICE_F32 ? (const void *)from
                                                  : narrow,
                             (size_t)n * device_size(type), device_size(type));
    free(narrow);
    return p;
}

void *side_new_blank(struct side *s, enum device_type type, int64_t n)
{
    return side_new_array(s, type, NULL, n);
}

void *side_new_noise(struct side *s, enum device_type type, bool rounded, float by, int64_t n)
{
    float *x = side_host_alloc((size_t)n * sizeof(*x));
    for (int64_t i = 0; i < n; i++) {
        x[i] = by * side_random(s);
        if (rounded && s->mode == DEVICE_BF16)
            x[i] = float_from_bf16(bf16_from_float(x[i]));
    }
    void *p = side_new_array(s, type, x, n);
    free(x);
    return p;
}

void *side_new_floats(struct side *s, float by, int64_t n)
{
    return side_new_noise(s, DEVICE_F32, false, by, n);
}
void *side_new_typed(struct side *s, float by, int64_t n)
{
    return side_new_noise(s, s->type, true, by, n);
}

void side_take(struct side *s, const char *name, const void *from, enum device_type type, int64_t n)
{
    size_t size = device_size(type), bytes = (size_t)n * size;
    uint8_t *host = side_host_alloc(bytes + GUARD * size);
    struct result *r = &s->result[s->results++];
    side_must(s->results <= SIDE_RESULTS, "too many results");
    s->d->ops->download(s->d, host, from, bytes + GUARD * size);
    *r = (struct result){.name = name, .x = side_host_alloc((size_t)n * sizeof(float)), .n = n, .type = type};
    for (int64_t i = 0; i < n; i++)
        r->x[i] =
            type == DEVICE_F32 ? ((float *)(void *)host)[i] : float_from_bf16(((uint16_t *)(void *)host)[i]);
    for (size_t i = bytes; i < bytes + GUARD * size; i++)
        if (host[i] != 0xff) {
            (void)printf("FAIL %s: written behind its end\n", name);
            s->failures++;
            break;
        }
    free(host);
}

void side_take_sum(struct side *s, const char *name, const void *from, enum device_type type, int64_t n,
                   int64_t depth)
{
    side_take(s, name, from, type, n);
    s->result[s->results - 1].depth = depth;
}

void side_take_exact(struct side *s, const char *name, const float *from, int64_t n)
{
    side_take(s, name, from, DEVICE_F32, n);
    s->result[s->results - 1].exact = true;
}

void side_take_doubles(struct side *s, const char *name, const double *from, int64_t n)
{
    double host[4];
    struct result *r = &s->result[s->results++];
    side_must(s->results <= SIDE_RESULTS && n <= 4, "too many results");
    s->d->ops->download(s->d, host, from, (size_t)n * sizeof(double));
    *r = (struct result){
        .name = name, .x = side_host_alloc((size_t)n * sizeof(float)), .n = n, .type = DEVICE_F32};
    for (int64_t i = 0; i < n; i++)
        r->x[i] = (float)host[i];
}

/* ---- comparing */

/* Returns the largest allowed relative error. The devices add in different orders and use different math libraries,
 * so results differ slightly, and a value may be rounded to the next bf16 number. */
static double result_limit(const struct side *s, const struct result *r)
{
    if (r->exact)
        return 0.0;
    if (r->newton)
        return s->mode == DEVICE_BF16 ? 4e-2 : 1e-5;
    if (r->type == DEVICE_BF16)
        return 4e-3;
    /* each addition rounds, in either direction, so the error of a long float sum grows with the square root of its length */
    return 2e-6 * fmax(1.0, sqrt((double)r->depth / 512.0));
}

static void side_compare(const struct side *cpu, struct side *gpu, const char *shape)
{
    side_must(cpu->results == gpu->results, "other results");
    for (int i = 0; i < cpu->results; i++) {
        const struct result *want = &cpu->result[i], *got = &gpu->result[i];
        double error = 0.0, whole = 0.0;
        for (int64_t j = 0; j < want->n; j++) {
            error += pow((double)want->x[j] - (double)got->x[j], 2);
            whole += pow((double)want->x[j], 2);
        }
        error = sqrt(error / (whole + 1e-30));
        bool ok = error <= result_limit(gpu, got);
        (void)printf("%s%s: %s %s %.1e\n", ok ? "" : "FAIL ", want->name,
                     cpu->mode == DEVICE_BF16 ? "bf16" : "float", shape, error);
        gpu->failures += !ok;
    }
}

static void side_same_bits(const struct side *one, struct side *two, const char *shape)
{
    for (int i = 0; i < one->results; i++)
        if (memcmp(one->result[i].x, two->result[i].x, (size_t)one->result[i].n * sizeof(float)) != 0) {
            (void)printf("FAIL %s: %s: other bits the second time\n", one->result[i].name, shape);
            two->failures++;
        }
}

void side_release(struct side *s)
{
    struct err e;
    side_must(!s->d->ops->wait(s->d, &e), "the device failed");
    for (int i = 0; i < s->results; i++)
        free(s->result[i].x);
    for (int i = 0; i < s->arrays; i++)
        s->d->ops->free(s->d, s->array[i]);
    s->arrays = s->results = 0;
}

int side_try(struct device *cpu, struct device *gpu, ops_try_fn *fn, const struct ops_shape *h, int shifted)
{
    char name[96];
    int failures = 0;
    struct err e;
    (void)snprintf(name, sizeof(name), "(%lld,%lld,%lld) vocab %lld p %.1f way %d at %d", (long long)h->rows,
                   (long long)h->context, (long long)h->width, (long long)h->vocab, (double)h->dropout,
                   h->way, shifted);
    /* enough for operations without tokens */
    struct device_sizes sizes = {{1, 1, 16}, 1, 2, 1, DEVICE_F32, false};
    if (h->vocab > 0)
        sizes =
            (struct device_sizes){{h->rows, h->context, h->width}, h->width, h->vocab, 1, DEVICE_F32, false};
    for (int bf16 = 0; bf16 < 2; bf16++) {
        enum device_type mode = bf16 ? DEVICE_BF16 : DEVICE_F32;
        struct side sides[3] = {{.d = cpu, .mode = mode}, {.d = gpu, .mode = mode}, {.d = gpu, .mode = mode}};
        for (int i = 0; i < 3; i++) {
            sizes.type = sides[i].type = i == 0 ? DEVICE_F32 : mode;
            sides[i].random = random_stream(1, (uint64_t)(h->rows * 7 + h->width));
            sides[i].shifted = shifted;
            side_must(!sides[i].d->ops->reserve(sides[i].d, &sizes, &e), "no room");
            fn(&sides[i], h);
            side_must(!sides[i].d->ops->wait(sides[i].d, &e), e.msg);
        }
        side_compare(&sides[0], &sides[1], name);
        side_same_bits(&sides[1], &sides[2], name);
        for (int i = 0; i < 3; i++) {
            failures += sides[i].failures;
            side_release(&sides[i]);
        }
    }
    return failures;
}

int side_try_case(struct device *cpu, struct device *gpu, const struct ops_case *c, int64_t row)
{
    /* rows whose length is not a multiple of 4 are unaligned in any case */
    const int shifts = c->large || (c->h.rows > 0 && row % 4 != 0) ? 1 : 2;
    int failures = 0;
    for (int shifted = 0; shifted < shifts; shifted++)
        failures += side_try(cpu, gpu, c->fn, &c->h, shifted);
    return failures;
}
