/* The table of who may use the HTTP interface (docs/reference/http.md). */
#include "tests/unit/base/check.h"

#include <string.h>

#include "base/buf.h"
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
        const enum err_code code = web_access_check(&(struct web_rules){.key = key}, &rows[i].caller, &e);
        if (code != (rows[i].allowed ? ERR_OK : ERR_PERMISSION_DENIED))
            fail_msg("row %zu: code %d, %s", i, code, e.msg);
    }
}

static bool has_name(void *user, const char *name)
{
    (void)user;
    return strcmp(name, "box1.example.org") == 0 || strcmp(name, "fd00::7") == 0;
}

static void the_table_of_a_server_with_logins(void **state)
{
    static const struct {
        struct web_caller caller;
        bool allowed;
    } rows[] = {
        {{"GET", "/api/jobs", "box1.example.org:29602", NULL, NULL, NULL}, true},
        {{"GET", "/api/jobs", "box1.example.org", NULL, NULL, NULL}, true},
        {{"GET", "/api/jobs", "[fd00::7]:29602", NULL, NULL, NULL}, true},
        {{"GET", "/api/jobs", "localhost:29602", NULL, NULL, NULL}, true},
        {{"GET", "/", "evil.example", NULL, NULL, NULL}, false},
        {{"GET", "/", "box1.example.org.evil.example", NULL, NULL, NULL}, false},
        {{"GET", "/", "box1.example.org:80@evil.example", NULL, NULL, NULL}, false},
        {{"GET", "/", "box1.example.org:x", NULL, NULL, NULL}, false},
        {{"GET", "/", "[fd00::7", NULL, NULL, NULL}, false},
        {{"GET", "/", "[fd00::7]x", NULL, NULL, NULL}, false},
        {{"GET", "/", "", NULL, NULL, NULL}, false},
        {{"GET", "/", NULL, NULL, NULL, NULL}, false},
        {{"GET", "/api/jobs", "box1.example.org", "https://box1.example.org", NULL, NULL}, true},
        {{"GET", "/api/jobs", "box1.example.org", "http://box1.example.org", NULL, NULL}, false},
        {{"GET", "/api/jobs", "box1.example.org:29602", "https://box1.example.org", NULL, NULL}, false},
        {{"POST", "/api/login", "box1.example.org", NULL, NULL, NULL}, false},
        {{"POST", "/api/login", "box1.example.org", "https://evil.example", NULL, "1"}, false},
        {{"POST", "/api/login", "box1.example.org", "https://box1.example.org", NULL, "1"}, true},
    };
    const struct web_rules rules = {.tls = true, .has_name = has_name};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct err e = {0};
        const enum err_code code = web_access_check(&rules, &rows[i].caller, &e);
        if (code != (rows[i].allowed ? ERR_OK : ERR_PERMISSION_DENIED))
            fail_msg("row %zu: code %d, %s", i, code, e.msg);
    }
}

static void a_cookie_is_found_once(void **state)
{
    static const struct {
        const char *header;
        bool found;
    } rows[] = {
        {"ddp=%s", true},
        {"a=b; ddp=%s; c=d", true},
        {"a=b;ddp=%s", true},
        {"ddp=%s;", true},
        {"xddp=%s", false},
        {"ddpx=%s", false},
        {"ddp=%s0", false},
        {"ddp=0%s", false},
        {"ddp=\"%s\"", false},
        {"ddp = %s", false},
        {"DDP=%s", false},
        {"ddp=%1$s; ddp=%1$s", false},
        {"ddp=; ddp=%s", false},
        {"ddp", false},
        {"", false},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        CLEANUP(buf_release) struct buf header = {0};
        char value[WEB_KEY_TEXT] = "";
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-extra-args"
        buf_printf(&header, rows[i].header, key);
#pragma GCC diagnostic pop
        if (web_access_cookie(header.data ? header.data : "", "ddp", value) != rows[i].found)
            fail_msg("row %zu: %s", i, rows[i].header);
        if (rows[i].found)
            assert_string_equal(value, key);
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
        cmocka_unit_test(the_table_of_a_server_with_logins),
        cmocka_unit_test(a_cookie_is_found_once),
        cmocka_unit_test(keys_are_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
