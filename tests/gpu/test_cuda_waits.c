/* Runs the plugin's device while other work on the GPU does not end, like an NCCL sum whose peer hangs. Two things
 * must not wait for that work: growing a workspace, and choosing algorithms.
 * Runs on the emulated GPU, whose cudaFree waits for all work, as the real one does. Also tests invalid environment
 * variables. */
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

static bool peer_hangs;

static bool run_until_peer_is_back(void *closure)
{
    (void)closure;
    return !peer_hangs;
}

static struct device *open_with_hanging_work(cudaStream_t *beside)
{
    struct device *d = NULL;
    struct err e = {0};
    emulated_restart(0, 0);
    peer_hangs = false;
    if (cuda_open(&d, &e))
        fail_msg("%s", e.msg);
    assert_int_equal(cudaStreamCreateWithFlags(beside, cudaStreamNonBlocking), cudaSuccess);
    peer_hangs = true;
    assert_int_equal(emulated_enqueue(*beside, "hangs", run_until_peer_is_back, "", 1), cudaSuccess);
    assert_int_equal(cudaStreamQuery(*beside), cudaErrorNotReady);
    (void)cudaGetLastError();
    return d;
}

static void close_with_hanging_work(struct device *d, cudaStream_t beside)
{
    struct err e = {0};
    if (d->ops->wait(d, &e))
        fail_msg("%s", e.msg);
    assert_int_equal(cudaStreamQuery(beside), cudaErrorNotReady);
    peer_hangs = false;
    device_close(d);
    assert_int_equal(cudaStreamDestroy(beside), cudaSuccess);
    assert_int_equal(emulated_device_bytes(), 0);
}

static void a_growing_workspace_does_not_wait(void **state)
{
    cudaStream_t beside;
    struct device *d = open_with_hanging_work(&beside);
    struct device_sizes sizes = {.n = {128, 1024, 1024}, .vocab = 50257, .type = DEVICE_BF16};
    struct err e = {0};
    size_t bytes = d->bytes;
    (void)state;
    for (int i = 0; i < 2; i++, sizes.n.rows *= 2) {
        size_t before = d->workspace;
        assert_int_equal(d->ops->reserve(d, &sizes, &e), ERR_OK);
        assert_true(d->workspace > before);
    }
    assert_int_equal(d->bytes, bytes);
    close_with_hanging_work(d, beside);
}

static void choosing_algorithms_does_not_wait(void **state)
{
    cudaStream_t beside;
    CLEANUP(buf_release) struct buf text = {0};
    void *memory = NULL;
    struct err e = {0};
    (void)state;
    assert_int_equal(setenv("DDP_CUDA_TUNE", "1", 1), 0);
    struct device *d = open_with_hanging_work(&beside);
    unsetenv("DDP_CUDA_TUNE");
    assert_int_equal(d->ops->alloc(d, (size_t)3 * 64 * 64 * sizeof(float), &memory, &e), ERR_OK);
    d->ops->choose(d, true);
    for (int64_t n = 16; n <= 64; n *= 2) {
        float *at = memory;
        struct device_product h = {.m = n, .n = n, .k = n, .a = at, .b = at + 64 * 64, .c = at + 2 * 64 * 64};
        d->ops->product(d, &h);
    }
    d->ops->choose(d, false);
    d->ops->choices(d, &text);
    buf_putc(&text, '\0');
    assert_non_null(strstr(text.data, "\n64 64 64 ")); /* so it was measured */
    peer_hangs = false;
    d->ops->free(d, memory);
    peer_hangs = true;
    assert_int_equal(emulated_enqueue(beside, "hangs", run_until_peer_is_back, "", 1), cudaSuccess);
    close_with_hanging_work(d, beside);
}

/* As while the next step computes: the copy of a snapshot has its own stream. */
static void a_fetch_does_not_wait_for_computing(void **state)
{
    static const char want[] = "what was there before";
    char got[sizeof(want)] = "";
    cudaStream_t beside;
    struct device *d = open_with_hanging_work(&beside);
    struct err e = {0};
    void *memory = NULL;
    (void)state;
    assert_int_equal(d->ops->alloc(d, sizeof(want), &memory, &e), ERR_OK);
    d->ops->upload(d, memory, want, sizeof(want));
    if (d->ops->wait(d, &e))
        fail_msg("%s", e.msg);
    assert_int_equal(emulated_enqueue(cuda_of(d)->stream, "hangs", run_until_peer_is_back, "", 1),
                     cudaSuccess);
    d->ops->zero(d, memory, sizeof(want)); /* behind the work that hangs */
    if (d->ops->fetch(d, got, memory, sizeof(want), &e))
        fail_msg("%s", e.msg);
    assert_memory_equal(got, want, sizeof(want));
    assert_int_equal(cudaStreamQuery(cuda_of(d)->stream), cudaErrorNotReady);
    peer_hangs = false;
    d->ops->download(d, got, memory, sizeof(want));
    assert_int_equal(got[0], 0);
    d->ops->free(d, memory);
    peer_hangs = true;
    assert_int_equal(emulated_enqueue(beside, "hangs", run_until_peer_is_back, "", 1), cudaSuccess);
    close_with_hanging_work(d, beside);
}

static void a_fetch_from_a_gpu_that_hangs_fails(void **state)
{
    char got[8] = "";
    cudaStream_t beside;
    struct device *d = open_with_hanging_work(&beside);
    struct err e = {0};
    void *memory = NULL;
    (void)state;
    assert_int_equal(d->ops->alloc(d, sizeof(got), &memory, &e), ERR_OK);
    assert_int_equal(emulated_enqueue(cuda_of(d)->fetch_stream, "hangs", run_until_peer_is_back, "", 1),
                     cudaSuccess);
    cuda_of(d)->fetch_patience_ns = 1000000;
    assert_int_equal(d->ops->fetch(d, got, memory, sizeof(got), &e), ERR_INTERNAL);
    assert_non_null(strstr(e.msg, "nothing has come"));
    peer_hangs = false;
    if (d->ops->wait(d, &e))
        fail_msg("%s", e.msg);
    d->ops->free(d, memory);
    peer_hangs = true;
    assert_int_equal(emulated_enqueue(beside, "hangs", run_until_peer_is_back, "", 1), cudaSuccess);
    close_with_hanging_work(d, beside);
}

static void an_invalid_workspace_limit_is_refused(void **state)
{
    static const char *const wrong[] = {"", "-1", "512M", "1048577", "99999999999999999999"};
    static const char *const right[] = {"0", "1048576"};
    struct device *d = NULL;
    struct err e = {0};
    (void)state;
    emulated_restart(0, 0);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(setenv("DDP_CUDNN_WORKSPACE_MB", wrong[i], 1), 0);
        assert_int_equal(cuda_open(&d, &e), ERR_INVALID_ARGUMENT);
        assert_non_null(strstr(e.msg, "invalid value for DDP_CUDNN_WORKSPACE_MB"));
        assert_non_null(strstr(e.msg, "expected a number of megabytes from 0 to 1048576"));
    }
    for (size_t i = 0; i < sizeof(right) / sizeof(right[0]); i++) {
        assert_int_equal(setenv("DDP_CUDNN_WORKSPACE_MB", right[i], 1), 0);
        assert_int_equal(cuda_open(&d, &e), ERR_OK);
        device_close(d);
    }
    unsetenv("DDP_CUDNN_WORKSPACE_MB");
    assert_int_equal(emulated_device_bytes(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_growing_workspace_does_not_wait),
        cmocka_unit_test(choosing_algorithms_does_not_wait),
        cmocka_unit_test(a_fetch_does_not_wait_for_computing),
        cmocka_unit_test(a_fetch_from_a_gpu_that_hangs_fails),
        cmocka_unit_test(an_invalid_workspace_limit_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
