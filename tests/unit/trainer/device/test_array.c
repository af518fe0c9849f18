/* Tests arrays that outlive process groups: their content when they move, and which processes can still reach
 * them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>
#include <sys/mman.h>

#include "trainer/device/array.h"

enum { COUNT = 5000 };

static void array_fill(struct device_array *a)
{
    for (size_t i = 0; i < a->count; i++)
        a->data[i] = (float)i;
}

static void check_filled(const struct device_array *a)
{
    for (size_t i = 0; i < a->count; i++)
        assert_true(a->data[i] == (float)i);
}

static float *map_as_a_peer(const struct device_array *a)
{
    void *at = mmap(NULL, a->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, a->fd, 0);

    assert_ptr_not_equal(at, MAP_FAILED);
    return at;
}

static void an_array_begins_zeroed_and_private(void **state)
{
    struct device_array a;
    struct err e = {0};

    (void)state;
    assert_int_equal(device_array_open(&a, NULL, COUNT, &e), ERR_OK);
    assert_int_equal(a.fd, -1);
    assert_int_equal((uintptr_t)a.data & 63, 0);
    for (size_t i = 0; i < COUNT; i++)
        assert_true(a.data[i] == 0.0f);
    device_array_close(&a);
    device_array_close(&a);
}

static void an_array_moves_to_shared_memory_once_and_keeps_its_content(void **state)
{
    struct device_array a;
    struct err e = {0};
    float *at;

    (void)state;
    assert_int_equal(device_array_open(&a, NULL, COUNT, &e), ERR_OK);
    array_fill(&a);
    assert_int_equal(device_array_place(&a, true, &e), ERR_OK);
    check_filled(&a);
    at = a.data;
    assert_int_equal(device_array_place(&a, true, &e), ERR_OK);
    /* The rank is alone on its node now, so the array need not move. */
    assert_int_equal(device_array_place(&a, false, &e), ERR_OK);
    assert_ptr_equal(a.data, at);
    float *peer = map_as_a_peer(&a);
    peer[7] = -1.0f;
    assert_true(a.data[7] == -1.0f);
    munmap(peer, a.bytes);
    device_array_close(&a);
}

static void a_peer_of_an_aborted_group_cannot_reach_the_array(void **state)
{
    (void)state;
    for (int shared = 0; shared < 2; shared++) {
        struct device_array a;
        struct err e = {0};

        assert_int_equal(device_array_open(&a, NULL, COUNT, &e), ERR_OK);
        assert_int_equal(device_array_place(&a, true, &e), ERR_OK);
        array_fill(&a);
        float *peer = map_as_a_peer(&a);
        a.stale = true;
        assert_int_equal(device_array_place(&a, shared, &e), ERR_OK);
        assert_false(a.stale);
        peer[7] = -1.0f; /* as a peer in the middle of a sum does */
        check_filled(&a);
        munmap(peer, a.bytes);
        device_array_close(&a);
    }
}

static void an_array_larger_than_memory_is_refused(void **state)
{
    struct device_array a;
    struct err e = {0};

    (void)state;
    assert_int_equal(device_array_open(&a, NULL, SIZE_MAX / 4, &e), ERR_RESOURCE_EXHAUSTED);
    device_array_close(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_array_begins_zeroed_and_private),
        cmocka_unit_test(an_array_moves_to_shared_memory_once_and_keeps_its_content),
        cmocka_unit_test(a_peer_of_an_aborted_group_cannot_reach_the_array),
        cmocka_unit_test(an_array_larger_than_memory_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
