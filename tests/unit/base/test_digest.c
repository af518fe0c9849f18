#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/digest.h"

/* Every single bit shows, wherever it is. */
static void every_bit_counts(void **state)
{
    static uint32_t words[2100];
    uint64_t before;

    (void)state;
    memset(words, 0x3c, sizeof(words));
    before = digest64(0, words, sizeof(words));
    for (size_t i = 0; i < 2100; i += 7)
        for (int bit = 0; bit < 32; bit += 31) {
            words[i] ^= 1u << bit;
            assert_true(digest64(0, words, sizeof(words)) != before);
            words[i] ^= 1u << bit;
        }
    assert_true(digest64(0, words, sizeof(words)) == before);
}

static void order_and_size_count(void **state)
{
    uint32_t ab[2] = {1, 2}, ba[2] = {2, 1}, none[4] = {0};
    unsigned char odd[3] = {1, 2, 3}, other[3] = {1, 2, 4};

    (void)state;
    assert_true(digest64(0, ab, sizeof(ab)) != digest64(0, ba, sizeof(ba)));
    assert_true(digest64(0, none, 8) != digest64(0, none, 16));
    assert_true(digest64(0, odd, 3) != digest64(0, other, 3));
    assert_true(digest64(0, odd, 0) != digest64(1, odd, 0));
    assert_true(digest64(digest64(0, ab, 8), ba, 8) != digest64(digest64(0, ba, 8), ab, 8));
}

/* Kept in snapshots and reports: the numbers must not change from one version to the next. */
static void known_numbers(void **state)
{
    static uint32_t words[5000];

    (void)state;
    for (uint32_t i = 0; i < 5000; i++)
        words[i] = i * i;
    assert_true(digest64(0, "", 0) == 0x0u);
    assert_true(digest64(0, words, sizeof(words)) == 0xab90ac8d62ecdc90u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_bit_counts),
        cmocka_unit_test(order_and_size_count),
        cmocka_unit_test(known_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
