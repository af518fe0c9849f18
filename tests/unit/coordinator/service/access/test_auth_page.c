/* Whom a call of the web page's server counts as. It comes over the unix socket, whose other callers may do everything. */
#include "tests/unit/base/check.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/crypto/id.h"
#include "base/mem.h"
#include "daemon/coordinator/service/access/auth.h"
#include "daemon/coordinator/service/service_state.h"
#include "daemon/coordinator/web/web_bearer.h"
#include "daemon/coordinator/web/web_site.h"

#define OPERATOR_TOKEN "ddpu_olga"
#define CLUSTER_TOKEN "cluster-token"
#define AGENT_TOKEN "ddpa_agent"

static struct identity seen;

void __wrap_rpc_call_set_identity(struct rpc_call *call, void *identity, void (*release)(void *));
void __wrap_rpc_call_set_identity(struct rpc_call *call, void *identity, void (*release)(void *))
{
    (void)call;
    seen = *(const struct identity *)identity;
    release(identity);
}

void __wrap_audit_refused(struct service *s, const char *who, const char *origin, const char *method,
                          const char *why);
void __wrap_audit_refused(struct service *s, const char *who, const char *origin, const char *method,
                          const char *why)
{
    (void)s, (void)who, (void)method, (void)why;
    assert_non_null(strstr(origin, "web page"));
}

struct fixture {
    struct service_options options;
    struct service service;
    struct user_record olga;
};

static int open_fixture(void **state)
{
    struct fixture *f = xcalloc(1, sizeof(*f));
    struct err e;
    const struct web_site_options site = {.address = "127.0.0.1:0", .socket = "unix:/nonexistent/socket"};
    f->options =
        (struct service_options){.token = CLUSTER_TOKEN, .agent_token = AGENT_TOKEN, .shared_user = "shared"};
    f->olga = (struct user_record){.name = (char *)"olga", .role = (char *)"operate"};
    digest_sha256(f->olga.token_hash, OPERATOR_TOKEN, strlen(OPERATOR_TOKEN));
    f->service.options = &f->options;
    f->service.users = &f->olga;
    f->service.user_count = 1;
    assert_int_equal(web_site_open(&f->service.site, &site, &e), ERR_OK);
    *state = f;
    return 0;
}

static int close_fixture(void **state)
{
    struct fixture *f = *state;
    web_site_close(f->service.site);
    free(f);
    return 0;
}

static enum err_code call_with(struct fixture *f, enum rpc_peer_kind peer_kind, const char *service,
                               const char *method, const char *token)
{
    const struct rpc_peer peer = {.kind = peer_kind, .uid = 0, .address = "unix"};
    const struct rpc_auth auth = {service, method, token, strlen(token), &peer};
    struct err e = {0};
    seen = (struct identity){0};
    return auth_check(NULL, &auth, &f->service, &e);
}

static enum err_code call_as(struct fixture *f, const char *service, const char *method,
                             enum web_bearer_kind kind, const char *value)
{
    CLEANUP(free_text) char *token = web_bearer_print(web_site_key(f->service.site), kind, "10.0.0.7", value);
    return call_with(f, RPC_PEER_UNIX, service, method, token);
}

#define CLUSTER "ddp.v1.Cluster"

static void a_token_counts_as_over_tcp_but_not_on_the_socket(void **state)
{
    static const struct {
        const char *token, *service, *method;
        enum err_code code;
    } rows[] = {
        {OPERATOR_TOKEN, CLUSTER, "WhoAmI", ERR_OK},
        {OPERATOR_TOKEN, CLUSTER, "DrainNode", ERR_OK},
        {OPERATOR_TOKEN, CLUSTER, "ListUsers", ERR_PERMISSION_DENIED},
        {OPERATOR_TOKEN, CLUSTER, "AddUser", ERR_PERMISSION_DENIED},
        {OPERATOR_TOKEN, "ddp.v1.Agent", "Session", ERR_PERMISSION_DENIED},
        {CLUSTER_TOKEN, CLUSTER, "WhoAmI", ERR_OK},
        {CLUSTER_TOKEN, CLUSTER, "AddUser", ERR_PERMISSION_DENIED},
        {CLUSTER_TOKEN, "ddp.v1.Agent", "Session", ERR_PERMISSION_DENIED},
        {CLUSTER_TOKEN, "ddp.v1.Rendezvous", "Join", ERR_UNAUTHENTICATED},
        {AGENT_TOKEN, CLUSTER, "WhoAmI", ERR_PERMISSION_DENIED},
        {AGENT_TOKEN, "ddp.v1.Agent", "Session", ERR_PERMISSION_DENIED},
        {"ddpu_wrong", CLUSTER, "WhoAmI", ERR_UNAUTHENTICATED},
        {"", CLUSTER, "WhoAmI", ERR_UNAUTHENTICATED},
    };
    struct fixture *f = *state;
    for (int insecure = 0; insecure < 2; insecure++) {
        f->options.insecure = insecure; /* changes nothing here */
        for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
            const enum err_code code =
                call_as(f, rows[i].service, rows[i].method, BEARER_TOKEN, rows[i].token);
            if (code != rows[i].code)
                fail_msg("row %zu: %s", i, err_code_name(code));
        }
    }
    assert_int_equal(call_as(f, CLUSTER, "WhoAmI", BEARER_TOKEN, OPERATOR_TOKEN), ERR_OK);
    assert_string_equal(seen.name, "olga");
    assert_string_equal(seen.origin, "10.0.0.7, web page");
    assert_false(seen.may_serve);
}

static void a_login_counts_while_it_lasts(void **state)
{
    struct fixture *f = *state;
    struct web_logins *logins = web_site_logins(f->service.site);
    char secret[WEB_KEY_TEXT], number[24];
    struct err e;
    assert_int_equal(web_logins_add(logins, "olga", clock_boot_ms(), secret, &e), ERR_OK);
    struct web_login *login = web_logins_find(logins, secret, clock_boot_ms());
    snprintf(number, sizeof(number), "%llu", (unsigned long long)web_login_number(login));
    web_logins_give_back(logins, login);
    assert_int_equal(call_as(f, CLUSTER, "DrainNode", BEARER_LOGIN, number), ERR_OK);
    assert_string_equal(seen.name, "olga");
    assert_true(seen.has_record); /* so that its streams end with the token */
    assert_int_equal(call_as(f, CLUSTER, "ListJobs", BEARER_USER, "olga"), ERR_OK);
    assert_int_equal(call_as(f, CLUSTER, "AddUser", BEARER_LOGIN, number), ERR_PERMISSION_DENIED);
    assert_int_equal(call_as(f, CLUSTER, "ListJobs", BEARER_LOGIN, secret), ERR_UNAUTHENTICATED);
    snprintf(secret, sizeof(secret), "%sx", number);
    assert_int_equal(call_as(f, CLUSTER, "ListJobs", BEARER_LOGIN, secret), ERR_UNAUTHENTICATED);
    assert_int_equal(call_as(f, CLUSTER, "ListJobs", BEARER_USER, "shared"), ERR_UNAUTHENTICATED);
    f->olga.role = (char *)"view"; /* removed and added again */
    assert_int_equal(call_as(f, CLUSTER, "DrainNode", BEARER_LOGIN, number), ERR_PERMISSION_DENIED);
    f->service.user_count = 0;
    assert_int_equal(call_as(f, CLUSTER, "ListJobs", BEARER_LOGIN, number), ERR_UNAUTHENTICATED);
    f->service.user_count = 1;
    web_logins_end_user(logins, "olga");
    assert_int_equal(call_as(f, CLUSTER, "ListJobs", BEARER_LOGIN, number), ERR_UNAUTHENTICATED);
    assert_int_equal(call_as(f, CLUSTER, "ListJobs", BEARER_USER, "olga"), ERR_UNAUTHENTICATED);
}

static void a_broken_bearer_has_no_rights(void **state)
{
    static const char *const rests[] = {"", ",", ",l", ",l,,", ",u,,", ",x,10.0.0.7,1", ",l,10.0.0.7,0"};
    struct fixture *f = *state;
    for (size_t i = 0; i < ARRAY_LEN(rests); i++) {
        CLEANUP(free_text) char *token = xasprintf("%s%s", web_site_key(f->service.site), rests[i]);
        assert_int_equal(call_with(f, RPC_PEER_UNIX, CLUSTER, "WhoAmI", token), ERR_UNAUTHENTICATED);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_token_counts_as_over_tcp_but_not_on_the_socket, open_fixture,
                                        close_fixture),
        cmocka_unit_test_setup_teardown(a_login_counts_while_it_lasts, open_fixture, close_fixture),
        cmocka_unit_test_setup_teardown(a_broken_bearer_has_no_rights, open_fixture, close_fixture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
