/* Tests that the reader of safetensors files refuses every header that does not describe its file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "tests/unit/trainer/snapshot/snapshot_fixture.h"
#include "trainer/snapshot/safetensors.h"

static void hostile_headers(void **state)
{
    static const struct {
        const char *json, *says;
        uint64_t data;
    } rows[] = {
        {"", "no JSON header", 0},
        {"[1]", "no JSON header", 0},
        {"{\"a\":", "damaged header", 0},
        {"{\"a\":1}", "'a': expected an object", 0},
        {"{\"a\":{\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[0,4]}}",
         "its data_offsets do not match its shape", 4},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}",
         "'a': invalid shape: expected positive sizes", 4},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,4]}}",
         "invalid shape: expected positive sizes", 4},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1],\"data_offsets\":[0,4]}}", "at most 4 numbers", 4},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}",
         "expected two numbers in rising order", 4},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}",
         "expected two numbers in rising order", 4},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4.5]}}",
         "expected two numbers in rising order", 4},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", "ends after the end of the file",
         4},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}",
         "its data_offsets do not match its shape", 4},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
         "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
         "overlaps", 4},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", "leaves a hole", 8},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
         "expected 4 bytes of data, as the header says, got 9", 9},
        {"{\"__metadata__\":{\"a\":1}}", "invalid __metadata__ 'a': expected a string", 0},
        {"{\"__metadata__\":[]}", "invalid __metadata__: expected an object", 0},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        CLEANUP(free_text) char *path = xasprintf("%s/x.safetensors", fixture_dir);
        CLEANUP(buf_release) struct buf file = {0};
        struct safetensors *f = NULL;
        struct err e = {0};
        uint64_t length = strlen(rows[i].json);
        buf_append(&file, &length, 8);
        buf_puts(&file, rows[i].json);
        for (uint64_t j = 0; j < rows[i].data; j++)
            buf_putc(&file, 0);
        assert_int_equal(file_write_atomic(path, file.data, file.len, 0600, &e), ERR_OK);
        assert_int_equal(safetensors_open(&f, path, &e), ERR_DATA_LOSS);
        if (!strstr(e.msg, rows[i].says) || !strstr(e.msg, path))
            fail_msg("row %zu: '%s' does not say '%s'", i, e.msg, rows[i].says);
    }
}

static void a_header_longer_than_the_file(void **state)
{
    static const uint64_t lengths[] = {9, 1 << 20, (uint64_t)1 << 40, UINT64_MAX, UINT64_MAX - 7};
    CLEANUP(free_text) char *path = xasprintf("%s/x.safetensors", fixture_dir);
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
        char bytes[16] = {0};
        struct safetensors *f = NULL;
        struct err e = {0};
        memcpy(bytes, &lengths[i], 8);
        assert_int_equal(file_write_atomic(path, bytes, sizeof(bytes), 0600, &e), ERR_OK);
        assert_int_equal(safetensors_open(&f, path, &e), ERR_DATA_LOSS);
        assert_non_null(strstr(e.msg, path));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SNAPSHOT_TEST(hostile_headers),
        SNAPSHOT_TEST(a_header_longer_than_the_file),
    };
    log_init("test_safetensors", LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
