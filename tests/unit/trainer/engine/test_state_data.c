/* Tests which data a run may continue with: state_check_data. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trainer/engine/state.h"

static enum err_code check_data(const struct dataset *d, int64_t bytes, uint64_t digest)
{
    const struct train_spec spec = {.seed = 1};
    const struct engine n = {.spec = &spec, .train = (struct dataset *)(uintptr_t)d};
    const struct snapshot_place place = {
        .step = 5, .seed = 1, .data_bytes = bytes, .data_digest = digest, .epoch_samples = d->count};
    struct err e = {0};
    return state_check_data(&n, &place, &e);
}

/* Earlier versions wrote no mark of images and labels: their snapshots stay usable. */
static void images_continue_with_the_same_files(void **state)
{
    const struct dataset images = {.count = 9, .mark = {30, 7}};
    (void)state;
    assert_int_equal(check_data(&images, 30, 7), ERR_OK);
    assert_int_equal(check_data(&images, 0, 0), ERR_OK);
    assert_int_equal(check_data(&images, 30, 8), ERR_FAILED_PRECONDITION);
    assert_int_equal(check_data(&images, 31, 7), ERR_FAILED_PRECONDITION);
}

static void a_text_continues_with_the_same_file(void **state)
{
    const struct dataset text = {.count = 9, .windows = true, .mark = {30, 7}};
    (void)state;
    assert_int_equal(check_data(&text, 30, 7), ERR_OK);
    assert_int_equal(check_data(&text, 30, 8), ERR_FAILED_PRECONDITION);
    assert_int_equal(check_data(&text, 0, 0), ERR_FAILED_PRECONDITION);
}

static void synthetic_data_does_not_follow_files(void **state)
{
    const struct dataset made = {.count = 9};
    (void)state;
    assert_int_equal(check_data(&made, 0, 0), ERR_OK);
    assert_int_equal(check_data(&made, 30, 7), ERR_FAILED_PRECONDITION);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(images_continue_with_the_same_files),
        cmocka_unit_test(a_text_continues_with_the_same_file),
        cmocka_unit_test(synthetic_data_does_not_follow_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
