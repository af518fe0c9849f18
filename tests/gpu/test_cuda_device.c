/* Tests the GPU device through device.h only: memory, transfers, recordings, products, errors. argv[1], if there is
 * one, is the plugin. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "trainer/device/comm.h"
#include "trainer/device/device.h"

static struct device *open_device(void)
{
    struct device *d = NULL;
    struct err e = {0};
    if (device_open(&d, DEVICE_CUDA, 0, 1, 0, &e))
        fail_msg("%s", e.msg);
    return d;
}

static void *device_memory(struct device *d, size_t bytes)
{
    void *p = NULL;
    struct err e = {0};
    assert_int_equal(d->ops->alloc(d, bytes, &p, &e), ERR_OK);
    return p;
}

static void check_no_error(struct device *d)
{
    struct err e = {0};
    if (d->ops->wait(d, &e))
        fail_msg("%s", e.msg);
}

/* Sizes: larger than the ring of pinned slots, and one byte more or less than a slot. */
static void uploaded_data_downloads_the_same(void **state)
{
    const size_t piece = (size_t)4 << 20, sizes[] = {1, piece - 1, piece, piece + 1, 6 * piece + 3};
    struct device *d = open_device();
    struct err e = {0};
    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        size_t n = sizes[i];
        unsigned char *from = xcalloc(n, 1), *to = xcalloc(n, 1);
        void *p = device_memory(d, n), *q = device_memory(d, n);
        for (size_t j = 0; j < n; j++)
            from[j] = (unsigned char)(j * 7 + j / 4096 + i);
        d->ops->upload(d, p, from, n);
        d->ops->copy(d, q, p, n);
        d->ops->zero(d, p, n / 2);
        unsigned char kept = from[n - 1];
        from[n - 1]++; /* the upload has already copied the data */
        d->ops->download(d, to, q, n);
        from[n - 1] = kept;
        assert_memory_equal(from, to, n);
        memset(to, 0, n);
        check_no_error(d);
        if (d->ops->fetch(d, to, q, n, &e))
            fail_msg("%s", e.msg);
        assert_memory_equal(from, to, n);
        d->ops->download(d, to, p, n);
        memset(from, 0, n / 2);
        assert_memory_equal(from, to, n);
        d->ops->free(d, p);
        d->ops->free(d, q);
        free(from);
        free(to);
    }
    check_no_error(d);
    assert_int_equal(d->bytes, 0);
    device_close(d);
}

static void an_allocation_beyond_memory_is_an_error(void **state)
{
    struct device *d = open_device();
    struct err e = {0};
    void *p = NULL;
    (void)state;
    assert_int_equal(device_alloc(d, (size_t)1 << 50, "a great deal", &p, &e), ERR_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(e.msg, "1073741824 MiB needed"));
    assert_null(p);
    check_no_error(d);
    device_close(d);
}

static float download_first(struct device *d, const float *p)
{
    float x = 0.0f;
    d->ops->download(d, &x, p, sizeof(x));
    return x;
}

static void a_recording_is_replayed(void **state)
{
    struct device *d = open_device();
    float one = 1.0f, *x = device_memory(d, 4), *y = device_memory(d, 4);
    (void)state;
    d->ops->upload(d, x, &one, sizeof(one));
    assert_false(d->ops->replay(d, 7));
    d->ops->record(d, 7);
    d->ops->add(d, y, x, 1);
    d->ops->add(d, y, x, 1);
    assert_true(d->ops->recorded(d));
    assert_true(download_first(d, y) == 2.0f);
    assert_true(d->ops->replay(d, 7));
    assert_false(d->ops->replay(d, 8));
    assert_true(download_first(d, y) == 4.0f);
    for (uint64_t key = 100; key < 200; key++) { /* more recordings than the device keeps */
        d->ops->record(d, key);
        d->ops->add(d, y, x, 1);
        assert_true(d->ops->recorded(d));
    }
    assert_true(download_first(d, y) == 104.0f);
    assert_false(d->ops->replay(d, 7));
    assert_true(d->ops->replay(d, 199));
    check_no_error(d);
    device_close(d);
}

/* An allocation makes a recording fail. The recorded operations have not run, so the caller must call them again. From
 * then on nothing is recorded: operations run at once. */
static void a_recording_that_fails(void **state)
{
    struct device *d = open_device();
    struct err e = {0};
    float one = 1.0f, *x = device_memory(d, 4), *y = device_memory(d, 4);
    void *more = NULL;
    (void)state;
    d->ops->upload(d, x, &one, sizeof(one));
    d->ops->record(d, 7);
    d->ops->add(d, y, x, 1);
    (void)!d->ops->alloc(d, 64, &more, &e);
    assert_false(d->ops->recorded(d));
    assert_false(d->ops->replay(d, 7));
    assert_true(download_first(d, y) == 0.0f);
    d->ops->record(d, 7);
    d->ops->add(d, y, x, 1);
    assert_true(d->ops->recorded(d));
    assert_true(download_first(d, y) == 1.0f);
    assert_false(d->ops->replay(d, 7));
    check_no_error(d);
    device_close(d);
}

/* Tests c = a b + c, with a and b transposed or not, with the algorithm that cuBLASLt proposes first and with the
 * fastest. */
static void products_match_plain_sums(void **state)
{
    enum { M = 5, N = 7, K = 3 };
    (void)state;
    for (int way = 0; way < 16; way++) {
        assert_int_equal(setenv("DDP_CUDA_TUNE", way & 8 ? "1" : "0", 1), 0);
        struct device *d = open_device();
        bool ta = way & 1, tb = way & 2, adds = way & 4;
        float a[M * K], b[K * N], c[M * N], expected[M * N];
        for (int i = 0; i < M * K; i++)
            a[i] = (float)(i % 5 - 2);
        for (int i = 0; i < K * N; i++)
            b[i] = (float)(i % 7 - 3);
        for (int i = 0; i < M * N; i++) {
            int m = i / N, n = i % N;
            c[i] = (float)i;
            expected[i] = adds ? c[i] : 0.0f;
            for (int k = 0; k < K; k++)
                expected[i] += a[ta ? k * M + m : m * K + k] * b[tb ? n * K + k : k * N + n];
        }
        float *x = device_memory(d, sizeof(a)), *y = device_memory(d, sizeof(b)),
              *z = device_memory(d, sizeof(c));
        d->ops->upload(d, x, a, sizeof(a));
        d->ops->upload(d, y, b, sizeof(b));
        d->ops->upload(d, z, c, sizeof(c));
        struct device_product h = {.trans_a = ta,
                                   .trans_b = tb,
                                   .m = M,
                                   .n = N,
                                   .k = K,
                                   .a = x,
                                   .b = y,
                                   .beta = adds ? 1.0f : 0.0f,
                                   .c = z};
        if (way & 8) { /* this result is thrown away */
            d->ops->choose(d, true);
            d->ops->product(d, &h);
            d->ops->choose(d, false);
            d->ops->upload(d, z, c, sizeof(c));
        }
        d->ops->product(d, &h);
        d->ops->download(d, c, z, sizeof(c));
        check_no_error(d);
        assert_memory_equal(c, expected, sizeof(c));
        device_close(d);
    }
    unsetenv("DDP_CUDA_TUNE");
}

/* Runs a layer on 4 rows. Writes its n outputs before (z) and after (a) the activation. */
static void run_layer(struct device *d, float *z, float *a, size_t n)
{
    enum { IN = 16 };
    int64_t rows = 4, out = (int64_t)n / rows;
    float x[4 * IN], w[IN * IN], bias[IN];
    for (int i = 0; i < 4 * IN; i++)
        x[i] = (float)(i % 5 - 2) / 4.0f;
    for (int i = 0; i < IN * IN; i++)
        w[i] = (float)(i % 7 - 3) / 4.0f;
    for (int i = 0; i < IN; i++)
        bias[i] = (float)(i - 8) / 8.0f;
    float *from[] = {x, w, bias};
    const size_t bytes[] = {sizeof(x), sizeof(w), sizeof(bias)};
    float *on[3];
    void *kept[2] = {device_memory(d, n * 2), device_memory(d, n * 2)};
    uint16_t *narrow[3], got[64];
    for (int i = 0; i < 3; i++) {
        on[i] = device_memory(d, bytes[i]);
        narrow[i] = device_memory(d, bytes[i] / 2);
        d->ops->upload(d, on[i], from[i], bytes[i]);
        d->ops->narrow(d, narrow[i], on[i], bytes[i] / sizeof(float));
    }
    struct device_linear h = {.type = DEVICE_BF16,
                              .kept = DEVICE_BF16,
                              .rows = rows,
                              .in = IN,
                              .out = out,
                              .x = narrow[0],
                              .w = narrow[1],
                              .bias = on[2],
                              .typed = narrow[2],
                              .z = kept[0],
                              .kind = DEVICE_GELU_TANH,
                              .a = kept[1]};
    d->ops->linear(d, &h);
    for (int i = 0; i < 2; i++) {
        d->ops->download(d, got, kept[i], n * 2);
        for (size_t j = 0; j < n; j++) {
            uint32_t bits = (uint32_t)got[j] << 16;
            memcpy((i ? a : z) + j, &bits, sizeof(bits));
        }
    }
}

/* Returns whether the device computes the gradients of weights and bias in one product. */
static bool has_weight_grad(struct device *d)
{
    enum { SIDE = 16 };
    struct device_weight_grad h = {.type = DEVICE_BF16,
                                   .rows = SIDE,
                                   .in = SIDE,
                                   .out = SIDE,
                                   .x = device_memory(d, SIDE * SIDE * 2),
                                   .dy = device_memory(d, SIDE * SIDE * 2),
                                   .dw = device_memory(d, SIDE * SIDE * 4),
                                   .dbias = device_memory(d, SIDE * 4)};
    return d->ops->weight_grad(d, &h);
}

/* cuBLASLt may refuse an epilogue that its heuristic proposed. From then on, the device runs the activation, or the sums of
 * a bias's gradient, as a separate kernel. */
static void an_epilogue_that_is_refused(void **state)
{
    enum { N = 64 };
    float z[3][N], a[3][N];
    (void)state;
    struct device *d = open_device();
    run_layer(d, z[0], a[0], N);
    assert_true(has_weight_grad(d));
    check_no_error(d);
    const bool emulated = strncmp(d->name, "Emulated", 8) == 0;
    device_close(d);
    if (!emulated)
        return; /* a real cuBLASLt cannot be told to refuse */
    setenv("DDP_EMULATED_PLAIN_PRODUCTS", "1", 1);
    d = open_device();
    run_layer(d, z[1], a[1], N);
    assert_false(has_weight_grad(d));
    check_no_error(d);
    unsetenv("DDP_EMULATED_PLAIN_PRODUCTS");
    run_layer(d, z[2], a[2], N);
    assert_false(has_weight_grad(d));
    check_no_error(d);
    device_close(d);
    for (int i = 0; i < N; i++) {
        assert_float_equal(z[1][i], z[0][i], 0.02);
        assert_float_equal(a[1][i], a[0][i], 0.02);
    }
    assert_memory_equal(a[2], a[1], sizeof(a[1]));
}

/* After an error of the device, collectives fail, even before wait() reports the error. wait() still reports it
 * afterwards. */
static void a_device_error_stops_collectives(void **state)
{
    struct device *d = open_device();
    struct comm *_Atomic comm = NULL;
    struct err e = {0};
    uint8_t id[256];
    struct comm_config config = {.id = id, .world_size = 1, .timeout_ms = 60000};
    float *x = device_memory(d, 4);
    (void)state;
    if (!d->comm)
        skip();
    assert_int_equal(d->comm->make_id(1, id, sizeof(id), &config.id_size, &e), ERR_OK);
    assert_int_equal(d->comm->open(&comm, d, &config, &e), ERR_OK);
    assert_int_equal(d->comm->allreduce(comm, x, 1, &e), ERR_OK);
    d->ops->copy(d, NULL, x, 4);
    assert_int_equal(d->comm->allreduce(comm, x, 1, &e), ERR_INTERNAL);
    assert_non_null(strstr(e.msg, "invalid argument"));
    e = (struct err){0};
    assert_int_equal(d->ops->wait(d, &e), ERR_INTERNAL);
    assert_non_null(strstr(e.msg, "invalid argument"));
    assert_int_equal(d->comm->allreduce(comm, x, 1, &e), ERR_INTERNAL);
    assert_int_equal(d->comm->close(comm, 10000, &e), ERR_OK);
    check_no_error(d);
    device_close(d);
}

static void the_peak_is_measured(void **state)
{
    struct device *d = open_device();
    struct err e = {0};
    double flops = 0.0;
    (void)state;
    assert_int_equal(device_peak(d, DEVICE_BF16, &flops, &e), ERR_OK);
    assert_true(flops > 1e6);
    assert_int_equal(d->bytes, 0);
    device_close(d);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(uploaded_data_downloads_the_same),
        cmocka_unit_test(an_allocation_beyond_memory_is_an_error),
        cmocka_unit_test(a_recording_is_replayed),
        cmocka_unit_test(a_recording_that_fails),
        cmocka_unit_test(products_match_plain_sums),
        cmocka_unit_test(an_epilogue_that_is_refused),
        cmocka_unit_test(a_device_error_stops_collectives),
        cmocka_unit_test(the_peak_is_measured),
    };
    if (argc > 1)
        setenv("DDP_CUDA_PLUGIN", argv[1], 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
