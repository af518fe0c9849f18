/* The users that the database has when the coordinator starts. */
#include "tests/unit/base/check.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/coordinator/service/access/users.h"
#include "daemon/coordinator/service/service_state.h"

/* The database has the user ana. */
enum err_code __wrap_store_users(struct store *s, struct user_record **out, size_t *count, struct err *e);
enum err_code __wrap_store_users(struct store *s, struct user_record **out, size_t *count, struct err *e)
{
    (void)s, (void)e;
    *out = xcalloc(1, sizeof **out);
    **out = (struct user_record){.name = xstrdup("ana"), .role = xstrdup("view")};
    *count = 1;
    return ERR_OK;
}

static enum err_code open_with(const char *shared_user, struct err *e)
{
    const struct service_options options = {.shared_user = shared_user};
    struct service s = {.options = &options};
    const enum err_code code = users_open(&s, e);
    users_close(&s);
    return code;
}

static void no_user_has_the_name_of_the_cluster_token(void **state)
{
    struct err e = {0};
    (void)state;
    assert_int_equal(open_with("shared", &e), ERR_OK);
    assert_int_equal(open_with("ana", &e), ERR_FAILED_PRECONDITION);
    assert_string_equal(
        e.msg, "shared_user: there is a user 'ana', who would get the rights of the cluster token: choose "
               "another name in coordinator.yaml and start again; `ddp-coordinator user remove ana` then "
               "frees this one");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_user_has_the_name_of_the_cluster_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
