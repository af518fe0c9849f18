/* What is decoded, against the format's definition in double precision. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/member/sync/wire.h"

static const size_t counts[] = {1, 2, 3, 63, 64, 65, 127, 128, 1000, 1037};
#define COUNTS (sizeof(counts) / sizeof(counts[0]))
#define MOST ((size_t)1037)

static const enum wire_type wires[] = {WIRE_FP32, WIRE_BF16, WIRE_INT8, WIRE_INT4};
#define WIRES (sizeof(wires) / sizeof(wires[0]))

static void values_fill(float *x, size_t count)
{
    uint32_t state = 12345;

    for (size_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = ((float)(state >> 8) / 8388608.0f - 1.0f) * ldexpf(1.0f, (int)(i / 64 % 40) - 30);
    }
}

/* Nearest bf16, ties to even: 8 significant bits. */
static double bf16_nearest(double x)
{
    int exponent;
    double mantissa = frexp(x, &exponent);

    return ldexp(nearbyint(ldexp(mantissa, 8)), exponent - 8);
}

static double value_decoded(enum wire_type wire, const float *block, size_t count, size_t i)
{
    double limit = wire == WIRE_INT8 ? 127 : 7, most = 0, scale;

    if (wire == WIRE_FP32)
        return (double)block[i];
    if (wire == WIRE_BF16)
        return bf16_nearest((double)block[i]);
    for (size_t k = 0; k < count; k++)
        most = fmax(most, fabs((double)block[k]));
    scale = bf16_nearest((double)((float)most / (float)limit));
    return scale > 0 ? nearbyint((double)(block[i] / (float)scale)) * scale : 0;
}

static void values_are_those_of_the_definition(void **state)
{
    float x[MOST], sum[MOST];

    (void)state;
    values_fill(x, MOST);
    for (size_t c = 0; c < COUNTS; c++)
        for (size_t w = 0; w < WIRES; w++) {
            size_t count = counts[c], bytes = wire_bytes(wires[w], count);
            uint8_t *codes = malloc(bytes + 1);

            codes[bytes] = 0xa5;
            assert_true(wire_encode(wires[w], x, count, codes));
            assert_int_equal(codes[bytes], 0xa5);
            for (size_t i = 0; i < count; i++)
                sum[i] = (float)i;
            wire_add(wires[w], codes, count, 0.25f, sum);
            for (size_t i = 0; i < count; i++) {
                size_t block = i / WIRE_BLOCK * WIRE_BLOCK;
                size_t in_block = count - block < WIRE_BLOCK ? count - block : WIRE_BLOCK;
                float q = (float)value_decoded(wires[w], x + block, in_block, i - block);

                if (sum[i] != (float)i + 0.25f * q)
                    fail_msg("wire %d, %zu of %zu: %g", (int)wires[w], i, count, (double)sum[i]);
            }
            free(codes);
        }
}

static void sizes_are_small(void **state)
{
    (void)state;
    assert_int_equal(wire_bytes(WIRE_FP32, 1037), 4 * 1037);
    assert_int_equal(wire_bytes(WIRE_BF16, 1037), 2 * 1037);
    assert_int_equal(wire_bytes(WIRE_INT8, 1037), 1037 + 2 * 17);
    assert_int_equal(wire_bytes(WIRE_INT4, 1037), 16 * 34 + 2 + 7);
    assert_int_equal(wire_bytes(WIRE_INT4, 0), 0);
}

/* What was not sent is kept, and goes out later: the sum of all that was sent follows the sum of the deltas.
 * */
static void the_error_is_the_part_that_was_not_sent(void **state)
{
    float x[MOST], kept[MOST] = {0}, sent[MOST] = {0};
    uint8_t codes[4 * MOST];

    (void)state;
    values_fill(x, MOST);
    for (size_t w = 0; w < WIRES; w++) {
        memset(kept, 0, sizeof(kept));
        memset(sent, 0, sizeof(sent));
        for (int round = 0; round < 20; round++) {
            for (size_t i = 0; i < MOST; i++)
                kept[i] += x[i];
            assert_true(wire_encode(wires[w], kept, MOST, codes));
            wire_add(wires[w], codes, MOST, 1.0f, sent);
            wire_subtract(wires[w], codes, MOST, kept);
        }
        for (size_t i = 0; i < MOST; i++)
            if (fabs((double)sent[i] + (double)kept[i] - 20 * (double)x[i]) >
                1e-4 * ldexp(1, (int)(i / 64 % 40) - 30))
                fail_msg("wire %d, element %zu", (int)wires[w], i);
    }
}

static void zeros_and_the_smallest_numbers(void **state)
{
    float x[100] = {0}, sum[100] = {0};
    uint8_t codes[400];

    (void)state;
    x[70] = 1e-44f; /* its scale rounds to 0 or to the smallest there is */
    x[80] = -FLT_MIN;
    for (size_t w = 0; w < WIRES; w++) {
        memset(sum, 0, sizeof(sum));
        assert_true(wire_encode(wires[w], x, 100, codes));
        wire_add(wires[w], codes, 100, 1.0f, sum);
        for (size_t i = 0; i < 100; i++)
            assert_true(fabs((double)sum[i] - (double)x[i]) <= (double)FLT_MIN / 8);
        for (size_t i = 0; i < 64; i++)
            assert_true(sum[i] == 0.0f);
    }
    x[80] = 0;
    assert_true(wire_encode(WIRE_INT4, x, 100, codes));
}

static void values_that_are_not_finite_are_refused(void **state)
{
    static const float bad[] = {INFINITY, -INFINITY, NAN};
    uint8_t codes[4 * MOST];
    float x[MOST];

    (void)state;
    values_fill(x, MOST);
    for (size_t w = 0; w < WIRES; w++)
        for (size_t k = 0; k < 3; k++)
            for (size_t at = 0; at < MOST; at += 61) {
                float was = x[at];

                x[at] = bad[k];
                assert_false(wire_encode(wires[w], x, MOST, codes));
                x[at] = was;
            }
    x[5] = FLT_MAX; /* finite, but not in bf16 */
    assert_true(wire_encode(WIRE_FP32, x, MOST, codes));
    assert_false(wire_encode(WIRE_BF16, x, MOST, codes));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_those_of_the_definition),
        cmocka_unit_test(sizes_are_small),
        cmocka_unit_test(the_error_is_the_part_that_was_not_sent),
        cmocka_unit_test(zeros_and_the_smallest_numbers),
        cmocka_unit_test(values_that_are_not_finite_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
