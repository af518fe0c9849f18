/* The table of who may use the HTTP interface (docs/http.md). */
#include "tests/unit/base/check.h"

#include <string.h>

#include "base/mem.h"
#include "base/web/web_access.h"

#define OWN "127.0.0.1:8629"

static const char key[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

static void the_table_of_callers(void **state)
{
    static const struct {
        struct web_caller caller;
        bool allowed;
    } rows[] = {
        {{"GET", "/", OWN, NULL, NULL, NULL}, true},
        {{"GET", "/", "evil.example", NULL, NULL, NULL}, false},
        {{"GET", "/", NULL, NULL, NULL, NULL}, false},
        {{"GET", "/api/jobs", OWN, NULL, key, NULL}, true},
        {{"GET", "/api/jobs", OWN, NULL, NULL, NULL}, false},
        {{"GET", "/api/jobs", OWN, NULL, "", NULL}, false},
        {{"GET", "/api/jobs", OWN, NULL, "0123", NULL}, false},
        {{"GET", "/api/jobs", OWN, NULL, "1123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
          NULL},
         false},
        {{"GET", "/api/jobs", "localhost:9000", NULL, key, NULL}, true},
        {{"GET", "/api/jobs", "LOCALHOST", NULL, key, NULL}, true},
        {{"GET", "/api/jobs", "[::1]:8629", NULL, key, NULL}, true},
        {{"GET", "/api/jobs", "localhost.evil.example", NULL, key, NULL}, false},
        {{"GET", "/api/jobs", "127.0.0.1.evil.example:8629", NULL, key, NULL}, false},
        {{"GET", "/api/jobs", "127.0.0.1:", NULL, key, NULL}, false},
        {{"GET", "/api/jobs", "127.0.0.1:80@evil.example", NULL, key, NULL}, false},
        {{"GET", "/api/jobs", OWN, "http://" OWN, key, NULL}, true},
        {{"GET", "/api/jobs", OWN, "https://" OWN, key, NULL}, false},
        {{"GET", "/api/jobs", OWN, "http://127.0.0.1:9999", key, NULL}, false},
        {{"GET", "/api/jobs", OWN, "http://evil.example", key, NULL}, false},
        {{"GET", "/api/jobs", OWN, "null", key, NULL}, false},
        {{"POST", "/api/jobs", OWN, NULL, key, NULL}, false},
        {{"POST", "/api/jobs", OWN, NULL, key, "0"}, false},
        {{"POST", "/api/jobs", OWN, NULL, NULL, "1"}, false},
        {{"POST", "/api/jobs", OWN, "http://evil.example", key, "1"}, false},
        {{"POST", "/api/jobs", OWN, "http://" OWN, key, "1"}, true},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct err e = {0};
        const enum err_code code = web_access_check(key, &rows[i].caller, &e);
        if (code != (rows[i].allowed ? ERR_OK : ERR_PERMISSION_DENIED))
            fail_msg("row %zu: code %d, %s", i, code, e.msg);
    }
}

static void keys_are_random(void **state)
{
    char one[WEB_KEY_TEXT], two[WEB_KEY_TEXT];
    (void)state;
    web_access_new_key(one);
    web_access_new_key(two);
    assert_int_equal(strlen(one), WEB_KEY_TEXT - 1);
    assert_int_equal(strspn(one, "0123456789abcdef"), WEB_KEY_TEXT - 1);
    assert_string_not_equal(one, two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_of_callers),
        cmocka_unit_test(keys_are_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
