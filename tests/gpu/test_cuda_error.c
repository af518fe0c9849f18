/* Tests which errors end CUDA's context: against a list, and against the comments of CUDA's own header. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "trainer/device/cuda/cuda.h"
#include "trainer/device/cuda/error.h"

static bool ends_context(int number)
{
    struct err e = {0};
    bool yes = cuda_ends_context((cudaError_t)number);
    (void)cuda_error((cudaError_t)number, "a test", &e);
    assert_int_equal(yes, strstr(e.msg, "this process must end") != NULL);
    return yes;
}

static void context_errors_match_the_list(void **state)
{
    static const int fatal[] = {214, 220, 226, 700, 702, 710, 716, 719, 721, 810, 911};
    static const int others[] = {1, 9, 400, 701, 703, 704, 705, 708, 711, 712, 713, 720, 802, 900, 909};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(fatal); i++)
        assert_true(ends_context(fatal[i]));
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        assert_false(ends_context(others[i]));
}

static bool range_contains(const char *from, const char *end, const char *word)
{
    const char *at = strstr(from, word);
    return at && at < end;
}

/* For nearly all errors that end the context, the comment in the header says that the process must be relaunched.
 * Three have no such sentence: uncorrectable memory (214), uncorrectable NVLink (220), and the destroyed context
 * (709). */
static void context_errors_match_the_header(void **state)
{
    const char *path = getenv("CUDA_DRIVER_TYPES");
    CLEANUP(buf_release) struct buf text = {0};
    struct err e = {0};
    int found = 0;
    (void)state;
    if (!path || !file_exists(path))
        skip();
    assert_int_equal(file_read(path, 4 << 20, &text, &e), ERR_OK);
    const char *at = strstr(text.data, "enum __device_builtin__ cudaError"), *end, *equals;
    assert_non_null(at);
    while ((at = strstr(at, "/**")) && (end = strstr(at, "*/"))) {
        if (!(equals = strchr(end, '=')))
            break;
        int number = atoi(equals + 1);
        bool relaunched = range_contains(at, end, "relaunched");
        if (number != 214 && number != 220 && number != 709)
            assert_int_equal(ends_context(number), relaunched);
        found += relaunched;
        at = end;
        if (number == 999)
            break;
    }
    assert_true(found > 8);
}

/* A missing GPU lets `device: auto` use the CPU. One that is there and not ready yet is tried again. */
static void only_a_missing_gpu_is_unavailable(void **state)
{
    struct err e = {0};
    (void)state;
    assert_int_equal(cuda_error(cudaErrorNoDevice, "a test", &e), ERR_UNAVAILABLE);
    assert_int_equal(cuda_error(cudaErrorInsufficientDriver, "a test", &e), ERR_UNAVAILABLE);
    assert_int_equal(cuda_error(cudaErrorSystemNotReady, "a test", &e), ERR_INTERNAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(context_errors_match_the_list),
        cmocka_unit_test(context_errors_match_the_header),
        cmocka_unit_test(only_a_missing_gpu_is_unavailable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
