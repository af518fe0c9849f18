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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_map_finds_no_key),
        cmocka_unit_test(the_map_agrees_with_an_array),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
