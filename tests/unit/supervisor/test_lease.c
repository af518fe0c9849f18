#include "tests/unit/base/check.h"

#include "daemon/supervisor/lease.h"

static void a_lease_counts_from_the_sending(void **state)
{
    struct lease l = {0};

    (void)state;
    assert_false(lease_held(&l));
    lease_renew(&l, 1000, 60000);
    assert_true(lease_held(&l));
    assert_int_equal(lease_end(&l), 61000);
    lease_renew(&l, 5000, 60000);
    assert_int_equal(lease_end(&l), 65000);
}

static void an_older_heartbeat_does_not_renew(void **state)
{
    struct lease l = {0};

    (void)state;
    lease_renew(&l, 5000, 60000);
    lease_renew(&l, 1000, 600000);
    lease_renew(&l, 9000, 0);
    assert_int_equal(lease_end(&l), 65000);
}

static void sigterm_comes_a_grace_before_the_end(void **state)
{
    struct lease l = {0};

    (void)state;
    lease_renew(&l, 1000, 60000);
    assert_int_equal(lease_term(&l, 5000), 56000);
    assert_int_equal(lease_term(&l, 50000), 51000); /* the grace is at most a sixth of the lease */
    assert_int_equal(lease_term(&l, 0), lease_end(&l));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lease_counts_from_the_sending),
        cmocka_unit_test(an_older_heartbeat_does_not_renew),
        cmocka_unit_test(sigterm_comes_a_grace_before_the_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
