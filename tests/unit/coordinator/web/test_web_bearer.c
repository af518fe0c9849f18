/* What the page's server shows on the unix socket. */
#include "tests/unit/base/check.h"

#include <string.h>

#include "base/mem.h"
#include "daemon/coordinator/web/web_bearer.h"

static const char key[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

static void what_is_printed_is_parsed(void **state)
{
    CLEANUP(free_text) char *text = web_bearer_print(key, BEARER_TOKEN, "10.0.0.7", "a,b,c");
    struct web_bearer bearer;
    (void)state;
    assert_true(web_bearer_parse(key, text, strlen(text), &bearer));
    assert_int_equal(bearer.kind, BEARER_TOKEN);
    assert_string_equal(bearer.address, "10.0.0.7");
    assert_int_equal(bearer.len, 5);
    assert_memory_equal(bearer.value, "a,b,c", 5);
}

/* What begins with the key never becomes a caller on the socket, who may do everything. */
static void a_text_with_the_key_is_never_taken_for_another_caller(void **state)
{
    static const char *const rests[] = {"", ",", ",l", ",l,", ",l,10.0.0.7", ",x,10.0.0.7,1", "l,,1", ",,,"};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rests); i++) {
        CLEANUP(free_text) char *text = xasprintf("%s%s", key, rests[i]);
        struct web_bearer bearer = {.kind = BEARER_LOGIN};
        assert_true(web_bearer_parse(key, text, strlen(text), &bearer));
        assert_int_equal(bearer.kind, 0);
    }
}

static void another_key_is_none(void **state)
{
    static const char *const texts[] = {
        "", "0", "1123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef,l,,1",
        "0123456789abcdef,l,,1"};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct web_bearer bearer;
        assert_false(web_bearer_parse(key, texts[i], strlen(texts[i]), &bearer));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_printed_is_parsed),
        cmocka_unit_test(a_text_with_the_key_is_never_taken_for_another_caller),
        cmocka_unit_test(another_key_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
