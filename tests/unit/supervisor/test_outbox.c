#include "tests/unit/base/check.h"

#include <stdlib.h>

#include "base/mem.h"
#include "daemon/supervisor/outbox.h"

static void the_outbox_drops_the_oldest(void **state)
{
    struct outbox *o = xcalloc(1, sizeof(*o));

    (void)state;
    assert_null(outbox_first(o));
    for (int i = 0; i < OUTBOX_COUNT + 5; i++)
        outbox_push(o, xasprintf("%d", i), 4);
    assert_int_equal(o->count, OUTBOX_COUNT);
    assert_int_equal(o->dropped, 5);
    assert_string_equal(outbox_first(o)->text, "5");
    outbox_push(o, xstrdup("huge"), OUTBOX_BYTES);
    assert_int_equal(o->count, 1);
    assert_int_equal(o->dropped, 5 + OUTBOX_COUNT);
    outbox_release(o);
    assert_int_equal(o->bytes, 0);
    free(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_outbox_drops_the_oldest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
