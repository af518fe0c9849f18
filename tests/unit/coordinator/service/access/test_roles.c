/* Every method of the services has a row that says who may call it; unknown methods have none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "daemon/coordinator/service/access/roles.h"
#include "proto/ddp.pb-c.h"

static const ProtobufCServiceDescriptor *const services[] = {
    &ddp__v1__cluster__descriptor, &ddp__v1__agent__descriptor, &ddp__v1__rendezvous__descriptor};

static void every_method_has_a_row(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(services); i++)
        for (unsigned k = 0; k < services[i]->n_methods; k++) {
            const char *method = services[i]->methods[k].name;
            const struct access_row *row = access_find(services[i]->name, method);
            if (!row)
                fail_msg("%s.%s: add a row to roles.c that says who may call it", services[i]->name, method);
            assert_true(row->to && row->to[0]);
        }
    assert_null(access_find("ddp.v1.Cluster", "Nothing"));
    assert_null(access_find("ddp.v1.Agent", "SubmitJob"));
}

static void roles_are_parsed_and_required_by_methods(void **state)
{
    (void)state;
    assert_int_equal(role_of("submit"), ROLE_SUBMIT);
    assert_int_equal(role_of("none"), ROLE_NONE);
    assert_int_equal(role_of(""), ROLE_NONE);
    assert_int_equal(role_of("Operate"), ROLE_NONE);
    assert_string_equal(role_name(ROLE_OPERATE), "operate");
    assert_int_equal(access_role(access_find("ddp.v1.Cluster", "GetJob")->access), ROLE_VIEW);
    assert_int_equal(access_role(access_find("ddp.v1.Cluster", "CancelJob")->access), ROLE_SUBMIT);
    assert_int_equal(access_role(access_find("ddp.v1.Cluster", "DrainNode")->access), ROLE_OPERATE);
    assert_int_equal(access_role(access_find("ddp.v1.Cluster", "AddUser")->access), ROLE_NONE);
    assert_int_equal(access_role(access_find("ddp.v1.Agent", "Session")->access), ROLE_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_method_has_a_row),
        cmocka_unit_test(roles_are_parsed_and_required_by_methods),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
