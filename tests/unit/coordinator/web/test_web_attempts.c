/* How many wrong tokens an address may send. */
#include "tests/unit/base/check.h"

#include <stdio.h>

#include "daemon/coordinator/web/web_attempts.h"

static void an_address_waits_until_its_minute_is_over(void **state)
{
    struct web_attempts *a = web_attempts_create();
    (void)state;
    assert_int_equal(web_attempts_wait_ms(a, "10.0.0.7", 1000), 0);
    for (int i = 1; i <= WEB_ATTEMPTS_MOST; i++) {
        assert_int_equal(web_attempts_wait_ms(a, "10.0.0.7", 1000 + i), 0);
        assert_int_equal(web_attempts_add(a, "10.0.0.7", 1000 + i), i);
    }
    assert_int_equal(web_attempts_wait_ms(a, "10.0.0.7", 2001), 59000);
    assert_int_equal(web_attempts_wait_ms(a, "10.0.0.8", 2001), 0);
    assert_int_equal(web_attempts_wait_ms(a, "10.0.0.7", 61000), 1);
    assert_int_equal(web_attempts_wait_ms(a, "10.0.0.7", 61001), 0);
    assert_int_equal(web_attempts_add(a, "10.0.0.7", 61001), 1);
    web_attempts_free(a);
}

static void a_network_of_ipv6_counts_as_one_address(void **state)
{
    struct web_attempts *a = web_attempts_create();
    char address[40];
    (void)state;
    for (int i = 1; i <= WEB_ATTEMPTS_MOST; i++) {
        snprintf(address, sizeof(address), "2001:db8:0:7::%x", i);
        web_attempts_add(a, address, 0);
    }
    assert_true(web_attempts_wait_ms(a, "2001:db8:0:7:ffff::1", 0) > 0);
    assert_int_equal(web_attempts_wait_ms(a, "2001:db8:0:8::1", 0), 0);
    web_attempts_free(a);
}

static void many_addresses_displace_the_oldest(void **state)
{
    struct web_attempts *a = web_attempts_create();
    char address[40];
    (void)state;
    for (int i = 0; i < WEB_ATTEMPTS_MOST; i++)
        web_attempts_add(a, "10.0.0.7", 0);
    for (int i = 0; i < 1023; i++) {
        snprintf(address, sizeof(address), "10.1.%d.%d", i / 256, i % 256);
        assert_int_equal(web_attempts_add(a, address, 1 + i), 1);
    }
    assert_true(web_attempts_wait_ms(a, "10.0.0.7", 2000) > 0);
    web_attempts_add(a, "10.2.0.1", 2000);
    assert_int_equal(web_attempts_wait_ms(a, "10.0.0.7", 2000), 0);
    assert_int_equal(web_attempts_add(a, "10.1.0.0", 2000), 2);
    web_attempts_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_address_waits_until_its_minute_is_over),
        cmocka_unit_test(a_network_of_ipv6_counts_as_one_address),
        cmocka_unit_test(many_addresses_displace_the_oldest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
