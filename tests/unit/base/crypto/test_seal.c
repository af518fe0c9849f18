#include "tests/unit/base/check.h"

#include <string.h>

#include "base/crypto/seal.h"
#include "base/mem.h"

static const uint8_t key[SEAL_KEY] = {1, 2, 3}, other_key[SEAL_KEY] = {1, 2, 4};

static void a_sealed_box_opens_with_its_key(void **state)
{
    CLEANUP(buf_release) struct buf box = {0}, again = {0}, text = {0};
    struct err e;

    (void)state;
    seal_close(&box, key, "c1", "hello", 5);
    seal_close(&again, key, "c1", "hello", 5);
    assert_true(box.len == again.len && memcmp(box.data, again.data, box.len) != 0);
    assert_null(memmem(box.data, box.len, "hello", 5));
    assert_ok(seal_open(&text, key, "c1", box.data, box.len, &e), &e);
    assert_string_equal(text.data, "hello");
}

static void a_changed_or_foreign_box_is_refused(void **state)
{
    CLEANUP(buf_release) struct buf box = {0}, text = {0};
    struct err e;

    (void)state;
    seal_close(&box, key, "c1", "hello", 5);
    assert_int_equal(seal_open(&text, other_key, "c1", box.data, box.len, &e), ERR_DATA_LOSS);
    assert_int_equal(seal_open(&text, key, "c2", box.data, box.len, &e), ERR_DATA_LOSS);
    for (size_t i = 0; i < box.len; i++) {
        box.data[i] ^= 1;
        assert_int_equal(seal_open(&text, key, "c1", box.data, box.len, &e), ERR_DATA_LOSS);
        box.data[i] ^= 1;
        assert_int_equal(seal_open(&text, key, "c1", box.data, i, &e), ERR_DATA_LOSS);
    }
    assert_int_equal(text.len, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sealed_box_opens_with_its_key),
        cmocka_unit_test(a_changed_or_foreign_box_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
