/* Tests the text of chosen algorithms. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "trainer/device/cuda/gemm/gemm_choices.h"

#define DEVICE "NVIDIA H200, CUDA 13.0"

static struct gemm_choice choice_of(int64_t m, bool apart)
{
    struct gemm_choice c = {.apart = apart};
    c.shape = (struct gemm_shape){
        .m = m, .n = 3072, .k = 32768, .adds = 1, .type = 1, .trans_a = 1, .epilogue = 164};
    c.shape.align_a = 256;
    c.shape.align_bias = 32;
    for (int i = 0; !apart && i < GEMM_ALGORITHM_WORDS; i++)
        c.algorithm[i] = UINT64_C(0xfedcba9876543210) + (uint64_t)(m * 8 + i);
    return c;
}

static void what_is_printed_is_read_again(void **state)
{
    CLEANUP(gemm_choices_release) struct gemm_choices some = {0}, read = {0};
    CLEANUP(buf_release) struct buf text = {0};
    struct err e = {0};
    (void)state;
    for (int i = 0; i < 40; i++) {
        struct gemm_choice c = choice_of(768 + i, i % 3 == 0);
        gemm_choices_put(&some, &c);
        gemm_choices_put(&some, &c); /* replaces it */
    }
    gemm_choices_print(&some, DEVICE, 130100, &text);
    assert_int_equal(gemm_choices_parse(&read, DEVICE, 130100, text.data, text.len, &e), ERR_OK);
    assert_int_equal(read.count, 40);
    assert_memory_equal(read.items, some.items, 40 * sizeof(*read.items));
    struct gemm_shape other = choice_of(768, true).shape;
    assert_non_null(gemm_choices_find(&read, &other));
    other.align_c = 16;
    assert_null(gemm_choices_find(&read, &other));
}

static void other_devices_and_libraries_are_told_apart(void **state)
{
    CLEANUP(gemm_choices_release) struct gemm_choices some = {0};
    CLEANUP(buf_release) struct buf text = {0};
    struct err e = {0};
    (void)state;
    gemm_choices_print(&some, DEVICE, 130100, &text);
    assert_int_equal(gemm_choices_parse(&some, DEVICE, 130200, text.data, text.len, &e),
                     ERR_FAILED_PRECONDITION);
    assert_string_equal(e.msg,
                        "the kept algorithms are of another kind of device or library (device " DEVICE
                        ", library cuBLASLt 130100), here: device " DEVICE ", library cuBLASLt 130200");
    assert_int_equal(gemm_choices_parse(&some, "NVIDIA A100", 130100, text.data, text.len, &e),
                     ERR_FAILED_PRECONDITION);
}

/* Changes or cuts each byte in turn. Nothing is taken from a damaged text, except for a digit that became another. */
static void a_damaged_text_is_refused(void **state)
{
    CLEANUP(gemm_choices_release) struct gemm_choices some = {0};
    CLEANUP(buf_release) struct buf text = {0};
    struct gemm_choice first = choice_of(1, false), second = choice_of(2, true);
    struct err e = {0};
    (void)state;
    gemm_choices_put(&some, &first);
    gemm_choices_put(&some, &second);
    gemm_choices_print(&some, DEVICE, 130100, &text);
    for (size_t i = 0; i < text.len; i++) {
        CLEANUP(gemm_choices_release) struct gemm_choices read = {0};
        char was = text.data[i];
        text.data[i] = '!';
        assert_int_not_equal(gemm_choices_parse(&read, DEVICE, 130100, text.data, text.len, &e), ERR_OK);
        text.data[i] = was;
        bool whole_lines = i > 0 && text.data[i - 1] == '\n';
        assert_true(gemm_choices_parse(&read, DEVICE, 130100, text.data, i, &e) != ERR_OK || whole_lines);
        assert_true(read.count < 2);
    }
    gemm_choices_print(&some, DEVICE, 130100, &text); /* twice, one behind the other */
    assert_int_equal(gemm_choices_parse(&some, DEVICE, 130100, text.data, text.len, &e), ERR_DATA_LOSS);
    assert_int_equal(some.count, 2);
}

static void no_more_are_kept_than_there_is_room_for(void **state)
{
    CLEANUP(gemm_choices_release) struct gemm_choices some = {0};
    (void)state;
    for (int i = 0; i < GEMM_CHOICES_MOST + 10; i++) {
        struct gemm_choice c = choice_of(i, true);
        gemm_choices_put(&some, &c);
    }
    assert_int_equal(some.count, GEMM_CHOICES_MOST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_printed_is_read_again),
        cmocka_unit_test(other_devices_and_libraries_are_told_apart),
        cmocka_unit_test(a_damaged_text_is_refused),
        cmocka_unit_test(no_more_are_kept_than_there_is_room_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
