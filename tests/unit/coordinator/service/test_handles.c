/* Compares the map from handles to pointers with a plain array, through growth and removals within runs of
 * occupied slots. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/mem.h"
#include "daemon/coordinator/service/handles.h"

enum { KEYS = 5000 };

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static void an_empty_map_finds_no_key(void **state)
{
    struct handles h = {0};
    (void)state;
    assert_null(handles_get(&h, 1));
    assert_null(handles_take(&h, 1));
    handles_release(&h);
}

static void the_map_agrees_with_an_array(void **state)
{
    struct handles h = {0};
    static char values[KEYS];
    static void *there[KEYS];
    uint64_t random = 88172645463325252u;
    size_t count = 0;
    (void)state;
    for (int round = 0; round < 200000; round++) {
        const uint64_t key = next_random(&random) % (KEYS - 1) + 1;
        if (there[key] && next_random(&random) % 2) {
            assert_ptr_equal(handles_take(&h, key), there[key]);
            there[key] = NULL;
            count--;
        } else if (!there[key]) {
            there[key] = &values[key];
            handles_put(&h, key, there[key]);
            count++;
        }
        assert_int_equal(h.count, count);
        const uint64_t other = next_random(&random) % (KEYS - 1) + 1;
        assert_ptr_equal(handles_get(&h, other), there[other]);
    }
    for (uint64_t key = 1; key < KEYS; key++)
        assert_ptr_equal(handles_take(&h, key), there[key]);
    assert_int_equal(h.count, 0);
    handles_release(&h);
}

static bool is_multiple(uint64_t key, const void *user)
{
    return key % *(const uint64_t *)user == 0;
}

static void a_sweep_removes_keys_and_gives_memory_back(void **state)
{
    struct handles h = {0};
    static char values[KEYS];
    const uint64_t three = 3, one = 1;
    (void)state;
    for (uint64_t key = 1; key < KEYS; key++)
        handles_put(&h, key, &values[key]);
    handles_sweep(&h, is_multiple, &three);
    assert_int_equal(h.count, KEYS - 1 - (KEYS - 1) / 3);
    for (uint64_t key = 1; key < KEYS; key++)
        assert_ptr_equal(handles_get(&h, key), key % 3 ? &values[key] : NULL);
    handles_sweep(&h, is_multiple, &one);
    assert_int_equal(h.count, 0);
    assert_int_equal(h.cap, 0);
    handles_put(&h, 7, values);
    assert_ptr_equal(handles_take(&h, 7), values);
    handles_release(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_map_finds_no_key),
        cmocka_unit_test(the_map_agrees_with_an_array),
        cmocka_unit_test(a_sweep_removes_keys_and_gives_memory_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
