/* Tests the emulator: correct programs give correct numbers in every order, and wrong programs are detected. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cublasLt.h>

#include "emulate.h"
#include "test_emulate_kernels.h"

enum { SEEDS = 12 };

static void *device_memory(size_t bytes)
{
    void *p = NULL;
    assert_int_equal(cudaMalloc(&p, bytes), cudaSuccess);
    return p;
}

static void *device_with(const void *from, size_t bytes)
{
    void *p = device_memory(bytes);
    assert_int_equal(cudaMemcpy(p, from, bytes, cudaMemcpyHostToDevice), cudaSuccess);
    return p;
}

static void read_back(void *to, const void *from, size_t bytes)
{
    assert_int_equal(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost), cudaSuccess);
}

static cudaStream_t stream_new(void)
{
    cudaStream_t s = NULL;
    assert_int_equal(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), cudaSuccess);
    return s;
}

static void stream_finish(cudaStream_t s)
{
    assert_int_equal(cudaStreamSynchronize(s), cudaSuccess);
}

static void test_threads(void **state)
{
    (void)state;
    int n = 5000, *host = calloc((size_t)n, sizeof *host);
    for (unsigned seed = 0; seed < SEEDS; seed++) {
        emulated_restart(seed, 0);
        cudaStream_t s = stream_new();
        int *x = device_memory(sizeof *x * (size_t)n);
        kernel_index(s, x, n, seed % 2 ? 1024 : 33);
        assert_int_equal(cudaGetLastError(), cudaSuccess);
        stream_finish(s);
        read_back(host, x, sizeof *x * (size_t)n);
        for (int i = 0; i < n; i++)
            assert_int_equal(host[i], i);
        kernel_reverse(s, x, 1000, 1);
        stream_finish(s);
        read_back(host, x, sizeof *x * (size_t)n);
        for (int i = 0; i < n; i++)
            assert_int_equal(host[i], i < 1000 ? 999 - i : i);
        cudaFree(x);
        cudaStreamDestroy(s);
    }
    assert_int_equal(emulated_device_bytes(), 0);
    free(host);
}

static void test_barriers_and_shuffles(void **state)
{
    (void)state;
    float x[777];
    double sum = 0.0, got;
    for (int i = 0; i < 777; i++)
        sum += (double)(x[i] = (float)((i * 7919) % 1000));
    for (unsigned seed = 0; seed < SEEDS; seed++) {
        emulated_restart(seed, 0);
        cudaStream_t s = stream_new();
        float *on = device_with(x, sizeof x);
        double *to = device_memory(sizeof *to);
        kernel_sum(s, to, on, 777);
        stream_finish(s);
        read_back(&got, to, sizeof got);
        assert_true(got == sum);
        cudaFree(on);
        cudaFree(to);
        cudaStreamDestroy(s);
    }
}

static void test_lanes(void **state)
{
    (void)state;
    int got[224];
    for (unsigned seed = 0; seed < SEEDS; seed++) {
        emulated_restart(seed, 0);
        int *x = device_memory(sizeof got);
        kernel_lanes(NULL, x);
        read_back(got, x, sizeof got);
        for (int i = 0; i < 32; i++) {
            assert_int_equal(got[i], 5);
            assert_int_equal(got[32 + i], i ^ 3);
            assert_int_equal(got[64 + i], i < 30 ? i + 2 : i);
            assert_int_equal(got[96 + i], i ? i - 1 : 0);
            assert_int_equal(got[128 + i], 0x49249249);
            assert_int_equal(got[160 + i], i < 16 ? 0 : 17);
            assert_int_equal(got[192 + i], i / 8 * 8 + 1);
        }
        cudaFree(x);
    }
}

static uint16_t bf16_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static void test_matrix_product(void **state)
{
    (void)state;
    uint16_t a[256], b[128];
    float x[256], y[128], got[128];
    for (int i = 0; i < 256; i++)
        a[i] = bf16_of(x[i] = (float)(i * 37 % 19 - 9));
    for (int i = 0; i < 128; i++)
        b[i] = bf16_of(y[i] = (float)(i * 53 % 17 - 8));
    uint16_t *on_a = device_with(a, sizeof a), *on_b = device_with(b, sizeof b);
    float *c = device_memory(sizeof got);
    kernel_product(NULL, c, on_a, on_b);
    read_back(got, c, sizeof got);
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 8; j++) {
            float sum = 0.0f;
            for (int k = 0; k < 16; k++)
                sum += x[i * 16 + k] * y[k * 8 + j];
            assert_true(got[i * 8 + j] == sum);
        }
    cudaFree(on_a);
    cudaFree(on_b);
    cudaFree(c);
}

/* ---- wrong programs */

static void launch_fails(void (*launch)(cudaStream_t, int *), const char *with)
{
    for (unsigned seed = 0; seed < SEEDS; seed++) {
        emulated_restart(seed, 0);
        int *x = device_memory(4096);
        cudaStream_t s = stream_new();
        launch(s, x);
        assert_int_equal(cudaStreamSynchronize(s), cudaErrorLaunchFailure);
        assert_int_equal(cudaPeekAtLastError(), cudaErrorLaunchFailure); /* the error stays */
        assert_int_equal(cudaFree(x), cudaErrorLaunchFailure);
        if (!strstr(emulated_fault(), with))
            fail_msg("seed %u: '%s' lacks '%s'", seed, emulated_fault(), with);
        emulated_restart(0, 0);
        cudaFree(x);
        cudaStreamDestroy(s);
        int got[32], *to = device_memory(sizeof got); /* after a restart, the next launch succeeds */
        kernel_index(NULL, to, 32, 32);
        read_back(got, to, sizeof got);
        assert_int_equal(got[31], 31);
        cudaFree(to);
    }
}

static void test_divergence(void **state)
{
    (void)state;
    launch_fails(kernel_ends_early,
                 "kernel ends_early: block (0,0,0): 1 of 64 threads ended, 63 wait at the barrier of");
    launch_fails(kernel_two_barriers, "others at that of");
    launch_fails(kernel_lane_missing, "1 of 32 threads ended, 31 for lanes of their mask, ffffffff, at");
}

/* Returns how many of 1000 copied numbers are wrong with this seed. */
static int wrong_copies(unsigned seed, int late)
{
    int x[1000], wrong = 0;
    emulated_restart(seed, 0);
    for (int i = 0; i < 1000; i++)
        x[i] = i;
    int *on = device_with(x, sizeof x);
    kernel_copy(NULL, on, 1000, late);
    read_back(x, on, sizeof x);
    for (int i = 0; i < 1000; i++)
        wrong += x[i] != 999 - i;
    cudaFree(on);
    return wrong;
}

static void test_copies(void **state)
{
    (void)state;
    for (unsigned seed = 0; seed < SEEDS; seed++) {
        assert_int_equal(wrong_copies(seed, 0), 0);
        int late = wrong_copies(seed, 1);
        assert_true(late > 0 && (!seed || late < 1000)); /* with a seed, some copies were done at once */
    }
    launch_fails(kernel_copy_forgotten, "copies under way");
}

static void test_missing_barrier(void **state)
{
    (void)state;
    int x[256], wrong = 0;
    for (unsigned seed = 1; seed <= SEEDS; seed++) {
        emulated_restart(seed, 0);
        for (int i = 0; i < 256; i++)
            x[i] = i;
        int *on = device_with(x, sizeof x);
        kernel_reverse(NULL, on, 256, 0);
        read_back(x, on, sizeof x);
        for (int i = 0; i < 256; i++)
            wrong += x[i] != 255 - i;
        cudaFree(on);
    }
    assert_true(wrong > 0);
}

static void test_poison(void **state)
{
    (void)state;
    float got[2], fresh;
    emulated_restart(0, 0);
    float *x = device_memory(sizeof got);
    read_back(&fresh, x, sizeof fresh);
    assert_true(isnan(fresh));
    kernel_poison(NULL, x);
    read_back(got, x, sizeof got);
    assert_true(isnan(got[0]) && isnan(got[1]));
    cudaFree(x);
}

static void test_block_order(void **state)
{
    (void)state;
    int got, seen = 0, *x;
    for (unsigned seed = 1; seed <= SEEDS; seed++) {
        emulated_restart(seed, 0);
        x = device_memory(sizeof *x);
        kernel_last_block(NULL, x, 16);
        read_back(&got, x, sizeof got);
        seen |= 1 << got;
        cudaFree(x);
    }
    assert_true(seen & (seen - 1)); /* several blocks were the last one, depending on the seed */
}

static int killed_by(void (*what)(void))
{
    int status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        signal(SIGSEGV, SIG_DFL); /* instead of cmocka's handler */
        signal(SIGABRT, SIG_DFL);
        what();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void stray_behind(void)
{
    emulated_restart(0, 0);
    float *x = device_memory(1000);
    kernel_stray(NULL, x, 256);
}

static void touch_from_host(void)
{
    emulated_restart(1, 0);
    *(volatile float *)device_memory(64) = 1.0f;
}

static void stray_a_little(void)
{
    emulated_restart(0, 0);
    /* the write goes into the 24 unused bytes up to the next multiple of 256 */
    float *x = device_memory(1000);
    kernel_stray(NULL, x, 250);
    if (cudaFree(x) == cudaSuccess && cudaPeekAtLastError() == cudaErrorIllegalAddress)
        abort();
}

static void test_strays(void **state)
{
    (void)state;
    assert_int_equal(killed_by(stray_behind), SIGSEGV);
    assert_int_equal(killed_by(touch_from_host), SIGSEGV);
    assert_int_equal(killed_by(stray_a_little), SIGABRT);
}

static void test_limits(void **state)
{
    (void)state;
    emulated_restart(0, 0);
    kernel_greedy(NULL);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidValue);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    kernel_index(NULL, NULL, 1, 2048);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidConfiguration);
    void *p;
    assert_int_equal(cudaMalloc(&p, (size_t)1 << 50), cudaErrorMemoryAllocation);
    assert_int_equal(cudaGetLastError(), cudaErrorMemoryAllocation);
    assert_int_equal(cudaMemset((void *)&p, 0, 1), cudaErrorInvalidValue); /* host memory */
    cudaGetLastError();
}

/* ---- streams */

/* Copies 2 to x on one stream and adds x to y, which is 0, on another stream. event: the second stream waits for the
 * first. Returns y. */
static float two_streams(unsigned seed, bool event)
{
    float x = 2.0f, zero = 0.0f, got;
    emulated_restart(seed, 0);
    cudaStream_t s = stream_new(), t = stream_new();
    cudaEvent_t e;
    assert_int_equal(cudaEventCreateWithFlags(&e, cudaEventDisableTiming), cudaSuccess);
    float *on_x = device_with(&zero, sizeof x), *y = device_with(&zero, sizeof zero);
    assert_int_equal(cudaMemcpyAsync(on_x, &x, sizeof x, cudaMemcpyHostToDevice, s), cudaSuccess);
    assert_int_equal(cudaEventRecord(e, s), cudaSuccess);
    if (event)
        assert_int_equal(cudaStreamWaitEvent(t, e, 0), cudaSuccess);
    kernel_add(t, y, on_x, 1);
    stream_finish(t);
    read_back(&got, y, sizeof got);
    stream_finish(s);
    cudaEventDestroy(e);
    cudaStreamDestroy(s);
    cudaStreamDestroy(t);
    cudaFree(on_x);
    cudaFree(y);
    return got;
}

static void test_missing_event(void **state)
{
    (void)state;
    int wrong = 0;
    for (unsigned seed = 0; seed < SEEDS; seed++) {
        assert_true(two_streams(seed, true) == 2.0f);
        wrong += two_streams(seed, false) != 2.0f;
    }
    assert_true(wrong > 0);
}

/* A copy from ordinary host memory reads it during the call; a copy from pinned memory reads it when the copy
 * runs. */
static void test_staging(void **state)
{
    (void)state;
    int late = 0;
    for (unsigned seed = 1; seed <= SEEDS; seed++) {
        emulated_restart(seed, 0);
        cudaStream_t s = stream_new();
        float ordinary = 1.0f, *pinned, got[2], *x = device_memory(sizeof got);
        assert_int_equal(cudaHostAlloc((void **)&pinned, sizeof *pinned, 0), cudaSuccess);
        *pinned = 1.0f;
        cudaMemcpyAsync(x, &ordinary, 4, cudaMemcpyHostToDevice, s);
        cudaMemcpyAsync(x + 1, pinned, 4, cudaMemcpyHostToDevice, s);
        ordinary = *pinned = 5.0f;
        stream_finish(s);
        read_back(got, x, sizeof got);
        assert_true(got[0] == 1.0f);
        late += got[1] == 5.0f;
        cudaFreeHost(pinned);
        cudaFree(x);
        cudaStreamDestroy(s);
    }
    assert_int_equal(late, SEEDS);
}

static void test_queries_make_progress(void **state)
{
    (void)state;
    for (unsigned seed = 0; seed < SEEDS; seed++) {
        float got, one = 1.0f, zero = 0.0f;
        emulated_restart(seed, 0);
        cudaStream_t s = stream_new();
        cudaEvent_t e;
        assert_int_equal(cudaEventCreate(&e), cudaSuccess);
        float *x = device_with(&one, 4), *y = device_with(&zero, 4);
        for (int i = 0; i < 100; i++)
            kernel_add(s, y, x, 1);
        assert_int_equal(cudaEventRecord(e, s), cudaSuccess);
        cudaError_t asked = cudaEventQuery(e);
        assert_true(asked == (seed ? cudaErrorNotReady : cudaSuccess));
        for (int i = 0; asked && i < 1000; i++)
            asked = cudaEventQuery(e);
        assert_int_equal(asked, cudaSuccess);
        read_back(&got, y, 4);
        assert_true(got == 100.0f);
        cudaEventDestroy(e);
        cudaStreamDestroy(s);
        cudaFree(x);
        cudaFree(y);
    }
}

static void test_graphs(void **state)
{
    (void)state;
    for (unsigned seed = 0; seed < SEEDS; seed++) {
        float got, one = 1.0f;
        emulated_restart(seed, 0);
        cudaStream_t s = stream_new();
        cudaGraph_t g;
        cudaGraphExec_t exec;
        void *none;
        float *x = device_with(&one, 4), *y = device_memory(4);
        assert_int_equal(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal), cudaSuccess);
        cudaMemsetAsync(y, 0, 4, s);
        kernel_add(s, y, x, 1);
        kernel_add(s, x, y, 1);
        assert_int_equal(cudaStreamEndCapture(s, &g), cudaSuccess);
        assert_int_equal(cudaGraphInstantiate(&exec, g, 0), cudaSuccess);
        assert_int_equal(cudaGraphDestroy(g), cudaSuccess);
        for (int i = 0; i < 3; i++) /* the capture ran nothing, and each launch doubles x */
            assert_int_equal(cudaGraphLaunch(exec, s), cudaSuccess);
        stream_finish(s);
        read_back(&got, x, 4);
        assert_true(got == 8.0f);
        assert_int_equal(cudaGraphExecDestroy(exec), cudaSuccess);

        assert_int_equal(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal), cudaSuccess);
        assert_int_equal(cudaMalloc(&none, 4), cudaErrorStreamCaptureUnsupported);
        assert_int_equal(cudaStreamEndCapture(s, &g), cudaErrorStreamCaptureInvalidated);
        cudaGetLastError();
        stream_finish(s);
        cudaStreamDestroy(s);
        cudaFree(x);
        cudaFree(y);
    }
}

static void test_fault(void **state)
{
    (void)state;
    emulated_restart(0, 2);
    void *p;
    assert_int_equal(cudaMalloc(&p, 4), cudaSuccess);
    assert_int_equal(cudaStreamSynchronize(NULL), cudaErrorLaunchFailure);
    assert_int_equal(cudaFree(p), cudaErrorLaunchFailure);
    assert_int_equal(cudaGetLastError(), cudaErrorLaunchFailure);
    assert_int_equal(cudaGetLastError(), cudaErrorLaunchFailure);
    emulated_restart(0, 0);
    assert_int_equal(cudaFree(p), cudaSuccess);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads),         cmocka_unit_test(test_barriers_and_shuffles),
        cmocka_unit_test(test_lanes),           cmocka_unit_test(test_matrix_product),
        cmocka_unit_test(test_divergence),      cmocka_unit_test(test_copies),
        cmocka_unit_test(test_missing_barrier), cmocka_unit_test(test_poison),
        cmocka_unit_test(test_block_order),     cmocka_unit_test(test_strays),
        cmocka_unit_test(test_limits),          cmocka_unit_test(test_missing_event),
        cmocka_unit_test(test_staging),         cmocka_unit_test(test_queries_make_progress),
        cmocka_unit_test(test_graphs),          cmocka_unit_test(test_fault),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
