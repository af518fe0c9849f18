/* Tests how algorithms of products are chosen, and that a choice means the same in another process. Runs on the emulated
 * GPU, whose cuBLASLt has four algorithms and tells which one is the fastest. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/mem.h"
#include "tests/standins/cuda/emulate.h"
#include "trainer/device/cuda/cuda.h"

/* ---- the timer */

static bool earlier_work_is_done, began_too_early;

static bool run_earlier_work(void *closure)
{
    int *left = closure;
    earlier_work_is_done = --*left == 0;
    return earlier_work_is_done;
}

/* Each way's runs take these numbers of seconds, in turn. */
struct timed {
    int64_t seconds[2][GEMM_TIMED_RUNS];
    unsigned runs[2];
};

struct timed_run {
    int64_t seconds;
};

static bool run_for_seconds(void *closure)
{
    const struct timed_run *r = closure;
    began_too_early |= !earlier_work_is_done;
    emulated_pass(r->seconds * 1000000000);
    return true;
}

static bool timed_way(void *arg, int way, cudaStream_t stream)
{
    struct timed *t = arg;
    unsigned run = t->runs[way]++; /* the first is not timed */
    struct timed_run r = {run ? t->seconds[way][run - 1] : 1000};
    return emulated_enqueue(stream, "timed", run_for_seconds, &r, sizeof(r)) == cudaSuccess;
}

/* In any order of streams that events allow, the runs begin when the device's earlier work has ended. */
static void runs_begin_behind_earlier_work(void **state)
{
    (void)state;
    for (unsigned seed = 0; seed < 6; seed++) {
        struct timed t = {{{5, 5, 5, 5, 5, 5, 5}, {3, 3, 3, 3, 3, 3, 3}}, {0, 0}};
        struct gemm_timer *timer = NULL;
        cudaStream_t stream;
        struct err e = {0};
        int left = 20;
        emulated_restart(seed, 0);
        earlier_work_is_done = began_too_early = false;
        assert_int_equal(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
        assert_int_equal(gemm_timer_open(&timer, stream, &e), ERR_OK);
        assert_int_equal(emulated_enqueue(stream, "earlier", run_earlier_work, &left, sizeof(left)),
                         cudaSuccess);
        assert_int_equal(gemm_timer_fastest(timer, 2, timed_way, &t), 1);
        assert_int_equal(t.runs[0], GEMM_TIMED_RUNS + 1);
        assert_false(began_too_early);
        gemm_timer_close(timer);
        assert_int_equal(cudaStreamDestroy(stream), cudaSuccess);
    }
}

/* Some runs of the fastest way were slowed down by something else. By the sum of the times, the other way would win. */
static void the_median_counts(void **state)
{
    struct timed t = {{{2, 2, 90, 2, 90, 90, 2}, {5, 5, 5, 5, 5, 5, 5}}, {0, 0}};
    struct gemm_timer *timer = NULL;
    cudaStream_t stream;
    struct err e = {0};
    (void)state;
    emulated_restart(0, 0);
    earlier_work_is_done = true;
    assert_int_equal(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    assert_int_equal(gemm_timer_open(&timer, stream, &e), ERR_OK);
    assert_int_equal(gemm_timer_fastest(timer, 2, timed_way, &t), 0);
    gemm_timer_close(timer);
    assert_int_equal(cudaStreamDestroy(stream), cudaSuccess);
}

/* ---- choices of a device */

static struct device *open_choosing(const char *fastest)
{
    struct device *d = NULL;
    struct err e = {0};
    setenv("DDP_CUDA_TUNE", "1", 1);
    setenv("DDP_EMULATED_FASTEST", fastest, 1);
    emulated_restart(0, 0);
    if (cuda_open(&d, &e))
        fail_msg("%s", e.msg);
    assert_true(d->chooses);
    return d;
}

static void *random_memory(struct device *d, size_t floats)
{
    float *host = xcalloc(floats, sizeof(*host));
    void *p = NULL;
    struct err e = {0};
    uint32_t r = 7;
    for (size_t i = 0; i < floats; i++) {
        r = r * 1664525u + 1013904223u;
        host[i] = (float)(r >> 8) / 8388608.0f - 1.0f;
    }
    assert_int_equal(d->ops->alloc(d, floats * sizeof(*host), &p, &e), ERR_OK);
    d->ops->upload(d, p, host, floats * sizeof(*host));
    free(host);
    return p;
}

enum { SIDE = 64, RESULT = SIDE * SIDE };

/* Computes a float product on new memory. Its lowest bits depend on the algorithm. */
static void compute_product(struct device *d, float out[RESULT])
{
    void *c = random_memory(d, RESULT);
    struct device_product h = {.m = SIDE, .n = SIDE, .k = SIDE, .a = random_memory(d, RESULT), .c = c};
    struct err e = {0};
    h.b = h.a;
    d->ops->product(d, &h);
    d->ops->download(d, out, c, RESULT * sizeof(float));
    assert_int_equal(d->ops->wait(d, &e), ERR_OK);
}

static void choose_for(struct device *d, struct buf *text)
{
    float thrown_away[RESULT];
    d->ops->choose(d, true);
    compute_product(d, thrown_away);
    d->ops->choose(d, false);
    buf_clear(text);
    d->ops->choices(d, text);
}

static void a_choice_is_the_same_in_another_process(void **state)
{
    CLEANUP(buf_release) struct buf text = {0}, again = {0};
    float chosen[RESULT], first[RESULT], taken[RESULT];
    struct err e = {0};
    (void)state;
    struct device *d = open_choosing("2");
    compute_product(d, first); /* cuBLASLt's first algorithm is 3 */
    choose_for(d, &text);
    compute_product(d, chosen);
    assert_memory_not_equal(chosen, first, sizeof(chosen));
    device_close(d);

    d = open_choosing("1"); /* if it measured, it would choose another */
    assert_int_equal(d->ops->take_choices(d, text.data, text.len, &e), ERR_OK);
    compute_product(d, taken);
    assert_memory_equal(taken, chosen, sizeof(taken));
    choose_for(d, &again); /* a shape with a choice is not measured again */
    compute_product(d, taken);
    assert_memory_equal(taken, chosen, sizeof(taken));
    assert_int_equal(again.len, text.len);
    assert_memory_equal(again.data, text.data, text.len);
    device_close(d);
}

static void choices_of_another_gpu_are_not_taken(void **state)
{
    CLEANUP(buf_release) struct buf text = {0};
    struct err e = {0};
    (void)state;
    struct device *d = open_choosing("0");
    choose_for(d, &text);
    char *name = memchr(text.data, 'H', text.len); /* H200 */
    *name = 'B';
    assert_int_equal(d->ops->take_choices(d, text.data, text.len, &e), ERR_FAILED_PRECONDITION);
    assert_non_null(strstr(e.msg, "Emulated B200"));
    assert_non_null(strstr(e.msg, "Emulated H200"));
    *name = 'H';
    text.data[text.len - 2] = 'x';
    assert_int_equal(d->ops->take_choices(d, text.data, text.len, &e), ERR_DATA_LOSS);
    device_close(d);
}

/* The in-place scheme rounds a part of the sum to the result's type, so only float results may use it. */
static void only_float_results_are_summed_in_place(void **state)
{
    (void)state;
    for (int bf16 = 0; bf16 < 2; bf16++) {
        CLEANUP(buf_release) struct buf text = {0};
        struct device *d = open_choosing("3");
        void *a = random_memory(d, RESULT), *c = random_memory(d, RESULT);
        struct device_product h = {
            .type = DEVICE_BF16, .m = SIDE, .n = SIDE, .k = SIDE, .a = a, .b = a, .c = c};
        h.out = bf16 ? DEVICE_BF16 : DEVICE_F32;
        d->ops->choose(d, true);
        d->ops->product(d, &h);
        d->ops->choose(d, false);
        d->ops->choices(d, &text);
        buf_putc(&text, '\0');
        bool third = strstr(text.data, " 00000000006464700000000000000003");
        assert_int_equal(third, !bf16);
        device_close(d);
    }
}

/* ---- one product, or a product and a kernel */

static void run_layer(struct device *d, void *out, void *more)
{
    struct device_linear h = {.type = DEVICE_BF16,
                              .kept = DEVICE_BF16,
                              .rows = SIDE,
                              .in = SIDE,
                              .out = SIDE,
                              .x = random_memory(d, RESULT),
                              .w = random_memory(d, RESULT),
                              .bias = random_memory(d, SIDE),
                              .typed = random_memory(d, SIDE),
                              .z = more,
                              .kind = DEVICE_GELU_TANH,
                              .a = out};
    d->ops->linear(d, &h);
}

static void run_gradient(struct device *d, void *out, void *more)
{
    struct device_activation_grad h = {.kind = DEVICE_GELU_TANH,
                                       .type = DEVICE_BF16,
                                       .kept = DEVICE_BF16,
                                       .rows = SIDE,
                                       .in = SIDE,
                                       .out = SIDE,
                                       .dy = random_memory(d, RESULT),
                                       .w = random_memory(d, RESULT),
                                       .z = random_memory(d, RESULT),
                                       .dz = out,
                                       .a = more};
    if (d->ops->activation_grad(d, &h))
        return;
    struct device_product p = {.type = DEVICE_BF16,
                               .out = DEVICE_BF16,
                               .trans_b = true,
                               .m = SIDE,
                               .n = SIDE,
                               .k = SIDE,
                               .a = h.dy,
                               .b = h.w,
                               .c = out};
    d->ops->product(d, &p);
    d->ops->bias_activate_grad(d, h.kind, h.type, h.kept, out, more, random_memory(d, SIDE), out, h.z, SIDE,
                               SIDE);
}

/* `out` takes the gradient of the bias: its lowest bits are others in one product than in a kernel. */
static void run_weight_grad(struct device *d, void *out, void *more)
{
    struct device_weight_grad h = {.type = DEVICE_BF16,
                                   .rows = SIDE,
                                   .in = SIDE,
                                   .out = SIDE,
                                   .x = random_memory(d, RESULT),
                                   .dy = random_memory(d, RESULT),
                                   .dw = more,
                                   .dbias = out};
    d->ops->zero(d, more, RESULT * sizeof(float));
    d->ops->zero(d, out, SIDE * sizeof(float));
    if (d->ops->weight_grad(d, &h))
        return;
    struct device_product p = {.type = DEVICE_BF16,
                               .trans_a = true,
                               .m = SIDE,
                               .n = SIDE,
                               .k = SIDE,
                               .a = h.x,
                               .b = h.dy,
                               .beta = 1.0f,
                               .c = more};
    d->ops->product(d, &p);
    d->ops->bias_grad(d, DEVICE_BF16, out, h.dy, SIDE, SIDE);
}

static void the_faster_of_one_product_and_two_steps_is_kept(void **state)
{
    static void (*const operations[])(struct device *, void *, void *) = {run_layer, run_gradient,
                                                                          run_weight_grad};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(operations); i++)
        for (int slow = 0; slow < 2; slow++) {
            CLEANUP(buf_release) struct buf text = {0};
            struct err e = {0};
            uint16_t chosen[RESULT], taken[RESULT];
            if (slow)
                setenv("DDP_EMULATED_SLOW_EPILOGUES", "1", 1);
            struct device *d = open_choosing("0");
            void *out = random_memory(d, RESULT), *more = random_memory(d, RESULT);
            d->ops->choose(d, true);
            operations[i](d, out, more);
            d->ops->choose(d, false);
            operations[i](d, out, more);
            d->ops->download(d, chosen, out, sizeof(chosen));
            d->ops->choices(d, &text);
            buf_putc(&text, '\0');
            /* The kernel after a fast product takes real time on this machine. So only a slow epilogue is certain to
             * lose. */
            if (slow)
                assert_non_null(strstr(text.data, " apart\n"));
            device_close(d);
            unsetenv("DDP_EMULATED_SLOW_EPILOGUES");

            d = open_choosing("0");
            out = random_memory(d, RESULT);
            more = random_memory(d, RESULT);
            assert_int_equal(d->ops->take_choices(d, text.data, text.len - 1, &e), ERR_OK);
            operations[i](d, out, more);
            d->ops->download(d, taken, out, sizeof(taken));
            assert_int_equal(d->ops->wait(d, &e), ERR_OK);
            assert_memory_equal(taken, chosen, sizeof(taken));
            device_close(d);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_begin_behind_earlier_work),
        cmocka_unit_test(the_median_counts),
        cmocka_unit_test(a_choice_is_the_same_in_another_process),
        cmocka_unit_test(choices_of_another_gpu_are_not_taken),
        cmocka_unit_test(only_float_results_are_summed_in_place),
        cmocka_unit_test(the_faster_of_one_product_and_two_steps_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
