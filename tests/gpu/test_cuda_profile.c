/* Tests the profile of operations (DDP_CUDA_PROFILE), through the plugin's interface, on the emulated device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "trainer/device/device.h"

static char directory[] = "/tmp/ddp-profile-XXXXXX";
static char path[128]; /* of the profile, with the process id */

static int directory_make(void **state)
{
    (void)state;
    char asked[64];
    if (!mkdtemp(directory))
        return -1;
    (void)snprintf(asked, sizeof(asked), "%s/profile", directory);
    (void)snprintf(path, sizeof(path), "%s.%ld", asked, (long)getpid());
    return setenv("DDP_CUDA_PROFILE", asked, 1);
}

static int directory_remove(void **state)
{
    (void)state;
    (void)unlink(path);
    return rmdir(directory);
}

static struct device *profiled_open(void)
{
    struct device *d = NULL;
    struct err e = {0};
    if (device_open(&d, DEVICE_CUDA, 0, 1, 1, &e))
        fail_msg("%s", e.msg);
    return d;
}

static void sizes_reserve(struct device *d)
{
    struct device_sizes sizes = {.n = {1, 1, 16}, .vocab = 2, .head_rows = 1, .type = DEVICE_F32};
    struct err e = {0};
    assert_int_equal(d->ops->reserve(d, &sizes, &e), ERR_OK);
}

/* Closes the device and returns the text of its profile. */
static char *closed_read(struct device *d)
{
    struct err e = {0};
    assert_int_equal(d->ops->wait(d, &e), ERR_OK);
    device_close(d);
    static char text[8192];
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof(text) - 1, f)] = 0;
    assert_int_equal(fclose(f), 0);
    return text;
}

/* Operations are counted by kind and shape, with their least work. Operations before reserve() are left out. */
static void operations_are_counted(void **state)
{
    (void)state;
    enum { M = 4, N = 6, K = 8 };
    struct device *d = profiled_open();
    struct err e = {0};
    void *p = NULL;
    assert_int_equal(d->ops->alloc(d, 4096, &p, &e), ERR_OK);
    struct device_product h = {.m = M, .n = N, .k = K, .a = p, .b = p, .c = (char *)p + 2048};
    assert_null(d->ops->record);
    d->ops->zero(d, p, 999); /* before reserve */
    sizes_reserve(d);
    for (int i = 0; i < 3; i++)
        d->ops->product(d, &h);
    h.beta = 1.0f;
    d->ops->product(d, &h);
    d->ops->zero(d, p, 100);
    const char *said = closed_read(d);
    assert_null(strstr(said, "999 bytes"));
    const char *set = strstr(said, "\"shape\": \"nn 4 x 6 x 8\", \"calls\": 3");
    assert_non_null(set);
    assert_non_null(strstr(set, "\"flops\": 384, \"bytes\": 416")); /* 2 M N K; 4 (M K + K N + M N) */
    const char *adds = strstr(said, "\"shape\": \"nn 4 x 6 x 8, adds\", \"calls\": 1");
    assert_non_null(adds);
    assert_non_null(strstr(adds, "\"flops\": 384, \"bytes\": 512"));
    assert_non_null(strstr(said, "\"name\": \"zero\", \"shape\": \"100 bytes\", \"calls\": 1"));
    assert_non_null(strstr(said, "\"name\": \"between\", \"shape\": \"operations\", \"calls\": 4"));
    assert_non_null(strstr(said, "{\"rows\": 4, \"lost\": 0}\n"));
}

/* More operations than events, and more shapes than rows: every call of a row is counted, and the others are reported. */
static void many_operations(void **state)
{
    (void)state;
    enum { CALLS = 5000, SHAPES = 300 };
    struct device *d = profiled_open();
    struct err e = {0};
    void *p = NULL;
    assert_int_equal(d->ops->alloc(d, 4096, &p, &e), ERR_OK);
    sizes_reserve(d);
    for (int i = 0; i < CALLS; i++)
        d->ops->zero(d, p, 8);
    char *said = closed_read(d);
    assert_non_null(strstr(said, "\"shape\": \"8 bytes\", \"calls\": 5000"));
    assert_non_null(strstr(said, "{\"rows\": 2, \"lost\": 0}\n"));
    d = profiled_open();
    assert_int_equal(d->ops->alloc(d, 4096, &p, &e), ERR_OK);
    sizes_reserve(d);
    for (size_t i = 1; i <= SHAPES; i++)
        d->ops->zero(d, p, i);
    (void)closed_read(d);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    char line[512] = "", last[512] = "";
    while (fgets(line, sizeof(line), f))
        (void)snprintf(last, sizeof(last), "%s", line);
    assert_int_equal(fclose(f), 0);
    assert_string_equal(last,
                        "{\"rows\": 256, \"lost\": 45}\n"); /* one row is for the time between operations */
}

/* If the file cannot be written, the run succeeds nevertheless. */
static void nowhere_to_write(void **state)
{
    (void)state;
    char *before = getenv("DDP_CUDA_PROFILE");
    char kept[64];
    (void)snprintf(kept, sizeof(kept), "%s", before);
    assert_int_equal(setenv("DDP_CUDA_PROFILE", "/nowhere/profile", 1), 0);
    struct device *d = profiled_open();
    struct err e = {0};
    sizes_reserve(d);
    assert_int_equal(d->ops->wait(d, &e), ERR_OK);
    device_close(d);
    assert_int_equal(setenv("DDP_CUDA_PROFILE", kept, 1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operations_are_counted),
        cmocka_unit_test(many_operations),
        cmocka_unit_test(nowhere_to_write),
    };
    return cmocka_run_group_tests(tests, directory_make, directory_remove);
}
