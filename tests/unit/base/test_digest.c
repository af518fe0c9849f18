#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/digest.h"

/* Wherever a single bit changes, the digest changes. */
static void every_bit_changes_the_digest(void **state)
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

static void order_and_size_change_the_digest(void **state)
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

/* Snapshots and reports contain digests, so a new version must compute the same numbers. */
static void digests_stay_the_same_between_versions(void **state)
{
    static uint32_t words[5000];

    (void)state;
    for (uint32_t i = 0; i < 5000; i++)
        words[i] = i * i;
    assert_true(digest64(0, "", 0) == 0x0u);
    assert_true(digest64(0, words, sizeof(words)) == 0xab90ac8d62ecdc90u);
}

/* A file is read in pieces: blocks, and a last piece of any size. */
static void pieces_of_whole_blocks_give_the_same_digest(void **state)
{
    static uint32_t words[2500];
    const char *bytes = (const char *)words;

    (void)state;
    for (uint32_t i = 0; i < 2500; i++)
        words[i] = 0x85ebca6bu * i;
    for (size_t size = 2 * 4 * DIGEST_BLOCK - 3; size < 2 * 4 * DIGEST_BLOCK + 6; size++) {
        uint64_t digest = digest64_begin(7, size);
        size_t at = 0;
        for (; at + 4 * DIGEST_BLOCK <= size; at += 4 * DIGEST_BLOCK)
            digest = digest64_add(digest, bytes + at, 4 * DIGEST_BLOCK);
        assert_true(digest64_add(digest, bytes + at, size - at) == digest64(7, words, size));
    }
}

/* A device computes the sums of blocks itself; the digest of these sums is the same. */
static void sums_of_blocks_give_the_same_digest(void **state)
{
    static uint32_t words[2500];
    static const size_t counts[] = {0, 1, 1023, 1024, 1025, 2048, 2500};
    uint64_t sums[3];

    (void)state;
    for (uint32_t i = 0; i < 2500; i++)
        words[i] = 0x9e370001u * i;
    for (size_t c = 0; c < sizeof(counts) / sizeof(*counts); c++) {
        size_t n = counts[c];
        for (size_t b = 0; b * DIGEST_BLOCK < n; b++) {
            size_t at = b * DIGEST_BLOCK, left = n - at;
            sums[b] = 0;
            for (size_t i = 0; i < left && i < DIGEST_BLOCK; i++)
                sums[b] += (uint64_t)words[at + i] * (2654435761u * (uint32_t)(i + 1) | 1);
            assert_true(sums[b] == digest64_sum(words + at, left < DIGEST_BLOCK ? left : DIGEST_BLOCK));
        }
        assert_true(digest64_sums(7, sums, n * 4) == digest64(7, words, n * 4));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_bit_changes_the_digest),
        cmocka_unit_test(order_and_size_change_the_digest),
        cmocka_unit_test(digests_stay_the_same_between_versions),
        cmocka_unit_test(pieces_of_whole_blocks_give_the_same_digest),
        cmocka_unit_test(sums_of_blocks_give_the_same_digest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
