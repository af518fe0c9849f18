/* Keys from the bytes of a terminal: also in pieces that nobody expects. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "client/top/top_keys.h"

static void check_key(const char *bytes, size_t len, enum top_key_kind kind, const char *text)
{
    struct top_key key;

    assert_int_equal(top_key_take(bytes, strlen(bytes), &key), len);
    assert_int_equal(key.kind, kind);
    assert_string_equal(key.text, text);
}

static void the_bytes_of_each_key_are_read(void **state)
{
    (void)state;
    check_key("", 0, TOP_KEY_OTHER, "");
    check_key("qx", 1, TOP_KEY_CHARACTER, "q");
    check_key("\xc3\xa9x", 2, TOP_KEY_CHARACTER, "\xc3\xa9");
    check_key("\xe5\xad\x97", 3, TOP_KEY_CHARACTER, "\xe5\xad\x97");
    check_key("\xe5\xad", 1, TOP_KEY_OTHER, ""); /* cut */
    check_key("\xff", 1, TOP_KEY_OTHER, "");
    check_key("\r", 1, TOP_KEY_ENTER, "");
    check_key("\x7f", 1, TOP_KEY_BACKSPACE, "");
    check_key("\x01", 1, TOP_KEY_OTHER, "");
    check_key("\033", 1, TOP_KEY_ESCAPE, "");
    check_key("\033q", 1, TOP_KEY_ESCAPE, "");
    check_key("\033[A\033[B", 3, TOP_KEY_UP, "");
    check_key("\033OB", 3, TOP_KEY_DOWN, "");
    check_key("\033[5~", 4, TOP_KEY_PAGE_UP, "");
    check_key("\033[6~q", 4, TOP_KEY_PAGE_DOWN, "");
    check_key("\033[H", 3, TOP_KEY_HOME, "");
    check_key("\033[1;5Cq", 6, TOP_KEY_OTHER, "");
    check_key("\033[", 2, TOP_KEY_OTHER, "");
    check_key("\033[99999", 7, TOP_KEY_OTHER, "");
    check_key("\033O", 2, TOP_KEY_OTHER, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_bytes_of_each_key_are_read)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
