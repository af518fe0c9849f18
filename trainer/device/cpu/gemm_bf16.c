/* bf16 products by oneDNN's matmul primitive. Compiling a primitive takes milliseconds, so primitives are
 * kept by shape. A training run has about twenty shapes, and a few more if the last micro-batch of an epoch
 * is shorter. If there are too many, the oldest primitive is released. */
#include "trainer/device/cpu/gemm_bf16.h"

#include <dnnl.h>
#include <stdlib.h>

#include "base/mem.h"

#define KEPT 64

struct shape {
    bool trans_a, trans_b, add, biased;
    enum device_type out;
    int64_t m, n, k;
};

struct compiled {
    struct shape shape;
    dnnl_primitive_t run;
    dnnl_memory_t a, b, c, bias;
};

struct cpu_bf16 {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    struct compiled kept[KEPT];
    size_t count, oldest;
};

static enum err_code dnnl_failed(struct err *e, const char *what, dnnl_status_t status)
{
    if (status == dnnl_unimplemented)
        return err_set(e, ERR_UNIMPLEMENTED, "oneDNN: no bf16 products on this CPU");
    return err_set(e, ERR_INTERNAL, "oneDNN: %s failed with status %d", what, (int)status);
}

static void compiled_release(struct compiled *p)
{
    if (p->run)
        dnnl_primitive_destroy(p->run);
    if (p->a)
        dnnl_memory_destroy(p->a);
    if (p->b)
        dnnl_memory_destroy(p->b);
    if (p->c)
        dnnl_memory_destroy(p->c);
    if (p->bias)
        dnnl_memory_destroy(p->bias);
    *p = (struct compiled){0};
}

enum err_code cpu_bf16_open(struct cpu_bf16 **out, struct err *e)
{
    struct cpu_bf16 *g = xcalloc(1, sizeof(*g));
    dnnl_status_t status = dnnl_engine_create(&g->engine, dnnl_cpu, 0);
    if (status == dnnl_success)
        status = dnnl_stream_create(&g->stream, g->engine, dnnl_stream_default_flags);
    if (status != dnnl_success) {
        cpu_bf16_close(g);
        return dnnl_failed(e, "opening the CPU", status);
    }
    *out = g;
    return ERR_OK;
}

void cpu_bf16_close(struct cpu_bf16 *g)
{
    if (!g)
        return;
    for (size_t i = 0; i < g->count; i++)
        compiled_release(&g->kept[i]);
    if (g->stream)
        dnnl_stream_destroy(g->stream);
    if (g->engine)
        dnnl_engine_destroy(g->engine);
    free(g);
}

/* oneDNN 2 describes a matrix by a plain struct, oneDNN 3 by an object that must be destroyed. */
#if DNNL_VERSION_MAJOR >= 3
#define MATRIX(description) (description)
static void matrix_release(dnnl_memory_desc_t *d)
{
    if (*d)
        dnnl_memory_desc_destroy(*d);
}
#else
#define MATRIX(description) (&(description))
static void matrix_release(dnnl_memory_desc_t *d)
{
    (void)d;
}
#endif

/* Describes a (rows,cols) factor. A transposed factor lies in memory as (cols,rows). */
static dnnl_status_t matrix_describe(dnnl_memory_desc_t *d, int64_t rows, int64_t cols, bool transposed,
                                     dnnl_data_type_t type)
{
    dnnl_dims_t dims = {rows, cols}, strides = {transposed ? 1 : cols, transposed ? rows : 1};
#if DNNL_VERSION_MAJOR >= 3
    return dnnl_memory_desc_create_with_strides(d, 2, dims, type, strides);
#else
    return dnnl_memory_desc_init_by_strides(d, 2, dims, type, strides);
#endif
}

/* bias: NULL if there is none. */
static dnnl_status_t product_describe(dnnl_primitive_desc_t *out, const struct cpu_bf16 *g,
                                      dnnl_primitive_attr_t attr, const dnnl_memory_desc_t *a,
                                      const dnnl_memory_desc_t *b, const dnnl_memory_desc_t *bias,
                                      const dnnl_memory_desc_t *c)
{
#if DNNL_VERSION_MAJOR >= 3
    return dnnl_matmul_primitive_desc_create(out, g->engine, *a, *b, bias ? *bias : NULL, *c, attr);
#else
    dnnl_matmul_desc_t op;
    dnnl_status_t status = dnnl_matmul_desc_init(&op, a, b, bias, c);

    return status == dnnl_success ? dnnl_primitive_desc_create(out, &op, attr, g->engine, NULL) : status;
#endif
}

static dnnl_status_t product_append_sum(dnnl_post_ops_t after)
{
#if DNNL_VERSION_MAJOR >= 3
    return dnnl_post_ops_append_sum(after, 1.0f, 0, dnnl_data_type_undef);
#else
    return dnnl_post_ops_append_sum(after, 1.0f);
#endif
}

/* Compiles a product; add: beta is 1, so the result is added to c. */
static dnnl_status_t product_compile(dnnl_primitive_t *run, const struct cpu_bf16 *g, bool add,
                                     const dnnl_memory_desc_t *a, const dnnl_memory_desc_t *b,
                                     const dnnl_memory_desc_t *bias, const dnnl_memory_desc_t *c)
{
    dnnl_primitive_desc_t desc = NULL;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t after = NULL;
    dnnl_status_t status = dnnl_primitive_attr_create(&attr);

    /* c += a b is a product with a post-operation that adds the former content of c. */
    if (status == dnnl_success && add) {
        status = dnnl_post_ops_create(&after);
        if (status == dnnl_success)
            status = product_append_sum(after);
        if (status == dnnl_success)
            status = dnnl_primitive_attr_set_post_ops(attr, after);
    }
    if (status == dnnl_success)
        status = product_describe(&desc, g, attr, a, b, bias, c);
    if (status == dnnl_success)
        status = dnnl_primitive_create(run, desc);
    if (desc)
        dnnl_primitive_desc_destroy(desc);
    if (after)
        dnnl_post_ops_destroy(after);
    if (attr)
        dnnl_primitive_attr_destroy(attr);
    return status;
}

static enum err_code shape_compile(struct cpu_bf16 *g, const struct shape *s, struct compiled *out,
                                   struct err *e)
{
    dnnl_memory_desc_t a = {0}, b = {0}, c = {0}, bias = {0};
    struct compiled p = {.shape = *s};
    dnnl_status_t status = matrix_describe(&a, s->m, s->k, s->trans_a, dnnl_bf16);
    if (status == dnnl_success)
        status = matrix_describe(&b, s->k, s->n, s->trans_b, dnnl_bf16);
    if (status == dnnl_success)
        status = matrix_describe(&c, s->m, s->n, false, s->out == DEVICE_BF16 ? dnnl_bf16 : dnnl_f32);
    if (status == dnnl_success)
        status = matrix_describe(&bias, 1, s->n, false, dnnl_f32);
    if (status == dnnl_success)
        status = product_compile(&p.run, g, s->add, &a, &b, s->biased ? &bias : NULL, &c);
    /* The memory objects have no memory yet: each call sets their pointers. */
    if (status == dnnl_success)
        status = dnnl_memory_create(&p.a, MATRIX(a), g->engine, DNNL_MEMORY_NONE);
    if (status == dnnl_success)
        status = dnnl_memory_create(&p.b, MATRIX(b), g->engine, DNNL_MEMORY_NONE);
    if (status == dnnl_success)
        status = dnnl_memory_create(&p.c, MATRIX(c), g->engine, DNNL_MEMORY_NONE);
    if (status == dnnl_success)
        status = dnnl_memory_create(&p.bias, MATRIX(bias), g->engine, DNNL_MEMORY_NONE);
    matrix_release(&a);
    matrix_release(&b);
    matrix_release(&c);
    matrix_release(&bias);
    if (status != dnnl_success) {
        compiled_release(&p);
        return dnnl_failed(e, "compiling a bf16 product", status);
    }
    *out = p;
    return ERR_OK;
}

static bool shape_same(const struct shape *a, const struct shape *b)
{
    return a->trans_a == b->trans_a && a->trans_b == b->trans_b && a->add == b->add &&
           a->biased == b->biased && a->out == b->out && a->m == b->m && a->n == b->n && a->k == b->k;
}

static enum err_code shape_find(struct cpu_bf16 *g, const struct shape *s, struct compiled **out,
                                struct err *e)
{
    struct compiled made;
    for (size_t i = 0; i < g->count; i++)
        if (shape_same(&g->kept[i].shape, s)) {
            *out = &g->kept[i];
            return ERR_OK;
        }
    if (shape_compile(g, s, &made, e))
        return e->code;
    *out = &g->kept[g->count < KEPT ? g->count++ : g->oldest++ % KEPT];
    compiled_release(*out);
    **out = made;
    return ERR_OK;
}

/* oneDNN's interface takes factors as void *, but only reads them. */
static void *dnnl_factor(const void *p)
{
    return (void *)(uintptr_t)p;
}

enum err_code cpu_bf16_gemm(struct cpu_bf16 *g, const struct device_product *h, const float *bias,
                            struct err *e)
{
    struct shape s = {.trans_a = h->trans_a,
                      .trans_b = h->trans_b,
                      .add = h->beta != 0.0f,
                      .biased = bias != NULL,
                      .out = h->out,
                      .m = h->m,
                      .n = h->n,
                      .k = h->k};
    struct compiled *p = NULL;
    BUG_ON(h->beta != 0.0f && (h->beta != 1.0f || h->out != DEVICE_F32));
    if (shape_find(g, &s, &p, e))
        return e->code;
    dnnl_memory_set_data_handle(p->a, dnnl_factor(h->a));
    dnnl_memory_set_data_handle(p->b, dnnl_factor(h->b));
    dnnl_memory_set_data_handle(p->c, h->c);
    dnnl_memory_set_data_handle(p->bias, dnnl_factor(bias));
    dnnl_exec_arg_t args[] = {
        {DNNL_ARG_SRC, p->a}, {DNNL_ARG_WEIGHTS, p->b}, {DNNL_ARG_DST, p->c}, {DNNL_ARG_BIAS, p->bias}};
    dnnl_status_t status = dnnl_primitive_execute(p->run, g->stream, bias ? 4 : 3, args);
    if (status == dnnl_success)
        status = dnnl_stream_wait(g->stream);
    return status == dnnl_success ? ERR_OK : dnnl_failed(e, "a bf16 product", status);
}

bool cpu_bf16_works(struct cpu_bf16 *g)
{
    static const uint16_t one = 0x3f80;
    const float bias = 2.0f;
    struct err e = {0};
    float product = 0.0f;
    uint16_t biased = 0;
    struct device_product h = {
        .type = DEVICE_BF16, .m = 1, .n = 1, .k = 1, .a = &one, .b = &one, .c = &product};
    if (cpu_bf16_gemm(g, &h, NULL, &e) || product != 1.0f)
        return false;
    h.out = DEVICE_BF16;
    h.c = &biased;
    return !cpu_bf16_gemm(g, &h, &bias, &e) && biased == 0x4040;
}
