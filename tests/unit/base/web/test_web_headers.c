/* Headers that a proxy and the server could read in different ways. */
#include "tests/unit/base/check.h"

#include "base/mem.h"
#include "base/web/web_headers.h"

struct header {
    const char *name, *value;
};

static enum err_code headers_check(const struct header *list, size_t count)
{
    struct web_headers headers = {0};
    struct err e;
    for (size_t i = 0; i < count; i++)
        web_headers_add(&headers, list[i].name, list[i].value);
    return web_headers_check(&headers, &e);
}

static void usual_headers_pass(void **state)
{
    const struct header none[] = {{"Host", "box1"}},
                        length[] = {{"Host", "box1"},
                                    {"content-length", "5"},
                                    {"X-DDP", "1"},
                                    {"Cookie", "a=b"}},
                        chunked[] = {
                            {"host", "box1"}, {"Transfer-Encoding", "Chunked"}, {"Origin", "http://box1"}};
    (void)state;
    assert_int_equal(headers_check(none, ARRAY_LEN(none)), ERR_OK);
    assert_int_equal(headers_check(length, ARRAY_LEN(length)), ERR_OK);
    assert_int_equal(headers_check(chunked, ARRAY_LEN(chunked)), ERR_OK);
}

static void ambiguous_headers_are_refused(void **state)
{
    static const struct header pairs[][2] = {
        {{"Content-Length", "5"}, {"Transfer-Encoding", "chunked"}},
        {{"Content-Length", "5"}, {"CONTENT-LENGTH", "6"}},
        {{"Transfer-Encoding", "chunked"}, {"Transfer-Encoding", "chunked"}},
        {{"X", "1"}, {"Transfer-Encoding", "identity"}},
        {{"X", "1"}, {"Transfer-Encoding", "gzip, chunked"}},
        {{"X", "1"}, {"Transfer-Encoding", NULL}},
        {{"X", "1"}, {"Transfer-Encoding ", "chunked"}},
        {{"X", "1"}, {"Content-Length\t", "5"}},
        {{"X", "1"}, {"", "5"}},
        {{"Host", "box1"}, {"host", "box2"}},
        {{"Origin", "http://box1"}, {"Origin", "http://box2"}},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(pairs); i++)
        assert_int_equal(headers_check(pairs[i], 2), ERR_INVALID_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(usual_headers_pass),
        cmocka_unit_test(ambiguous_headers_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
