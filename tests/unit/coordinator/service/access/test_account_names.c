/* The loop waits for a lookup of an account, so there are few of them. */
#include "tests/unit/base/check.h"

#include <pwd.h>
#include <unistd.h>

#include "daemon/coordinator/service/access/account_names.h"

static int lookups;
static char *account; /* NULL: the directory server does not answer */

struct passwd *__wrap_getpwuid(uid_t uid);
struct passwd *__wrap_getpwuid(uid_t uid)
{
    static struct passwd entry;
    entry.pw_uid = uid;
    entry.pw_name = account;
    lookups++;
    return account ? &entry : NULL;
}

static void a_name_is_looked_up_once(void **state)
{
    (void)state;
    struct account_names names = {0};
    lookups = 0;
    account = (char[]){"ana"};
    account_names_open(&names, 0);
    const int first = lookups;
    assert_true(first == (geteuid() ? 2 : 1));
    for (int64_t now = 0; now < 10 * 60000; now += 1000) {
        assert_string_equal(account_names_find(&names, 0, now), "ana");
        assert_string_equal(account_names_find(&names, geteuid(), now), "ana");
    }
    assert_int_equal(lookups, first);
    for (uid_t uid = 1000; uid < 1010; uid++)
        assert_string_equal(account_names_find(&names, uid, 0), "ana");
}

static void a_missing_name_is_looked_up_each_minute(void **state)
{
    (void)state;
    struct account_names names = {0};
    lookups = 0;
    account = NULL;
    for (int64_t now = 0; now < 60000; now += 1000)
        assert_null(account_names_find(&names, 7, now));
    assert_int_equal(lookups, 1);
    account = (char[]){"ana"};
    assert_string_equal(account_names_find(&names, 7, 60000), "ana");
    assert_int_equal(lookups, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_is_looked_up_once),
        cmocka_unit_test(a_missing_name_is_looked_up_each_minute),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
