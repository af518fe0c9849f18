#include "tests/unit/base/check.h"

#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"

static void writer_places_commas_and_keys(void **state)
{
    CLEANUP(buf_release) struct buf text = {0};
    struct jout o = {.buf = &text};

    (void)state;
    jout_open(&o, NULL, '{');
    jout_int(&o, "step", 12);
    jout_open(&o, "list", '[');
    jout_bool(&o, NULL, true);
    jout_text(&o, NULL, NULL);
    jout_open(&o, NULL, '{');
    jout_close(&o, '}');
    jout_close(&o, ']');
    jout_raw(&o, "raw", "[1]");
    jout_close(&o, '}');
    assert_string_equal(text.data, "{\"step\":12,\"list\":[true,null,{}],\"raw\":[1]}");
}

static void writer_escapes(void **state)
{
    CLEANUP(buf_release) struct buf text = {0};
    struct jout o = {.buf = &text};

    (void)state;
    jout_text(&o, NULL, "a\"\\\n\t\x01é\xff\xed\xa0\x80\xf4\x90\x80\x80\xc3");
    assert_string_equal(text.data,
                        "\"a\\\"\\\\\\n\\t\\u0001é\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\"");
    buf_clear(&text);
    o = (struct jout){.buf = &text};
    jout_text(&o, NULL, "\x7f\xc2\x9b\xc2\xa0"); /* DEL and U+009B are controls; U+00A0 is text */
    assert_string_equal(text.data, "\"\\u007f\\u009b\xc2\xa0\"");
}

static void reals_read_back_the_same(void **state)
{
    const double values[] = {
        0, 0.1, 1e-3, 1.0 / 3, -2.5e-300, 1e22, 123456789.123, 5e-324, 1.7976931348623157e308};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(values); i++) {
        CLEANUP(buf_release) struct buf text = {0};
        CLEANUP(json_release) json_t *back = NULL;
        struct jout o = {.buf = &text};
        struct err e = {0};

        jout_real(&o, NULL, values[i]);
        assert_ok(json_parse(text.data, text.len, 100, &back, &e), &e);
        assert_true(json_number_value(back) == values[i]);
    }
}

static void reals_are_short_and_nan_becomes_null(void **state)
{
    CLEANUP(buf_release) struct buf text = {0};
    struct jout o = {.buf = &text};

    (void)state;
    jout_open(&o, NULL, '[');
    jout_real(&o, NULL, 0.1);
    jout_real(&o, NULL, NAN);
    jout_real(&o, NULL, -INFINITY);
    jout_close(&o, ']');
    assert_string_equal(text.data, "[0.1,null,null]");
}

static void refuse_text(const char *text, const char *message)
{
    struct err e = {0};
    json_t *value = NULL;

    assert_int_equal(json_parse(text, strlen(text), 1000, &value, &e), ERR_INVALID_ARGUMENT);
    assert_null(value);
    if (!strstr(e.msg, message))
        fail_msg("\"%s\" gave \"%s\", not \"%s\"", text, e.msg, message);
}

static void reader_is_strict(void **state)
{
    char deep[200] = {0};

    (void)state;
    refuse_text("{\"a\": 1,\n \"a\": 2}", "JSON:2:");
    refuse_text("{\"a\": NaN}", "JSON:1:");
    refuse_text("{} x", "end of file expected");
    refuse_text("", "JSON:");
    refuse_text("{\"a\"", "JSON:1:");
    memset(deep, '[', 65);
    refuse_text(deep, "more than 64 levels deep");
}

static void reader_keeps_its_limits(void **state)
{
    struct err e = {0};
    json_t *value = NULL;

    (void)state;
    assert_int_equal(json_parse("[1,2]", 5, 4, &value, &e), ERR_RESOURCE_EXHAUSTED);
    assert_ok(json_parse("\"[[[[{{{{\\\"\"", 12, 64, &value, &e), &e); /* brackets in a string do not count */
    json_decref(value);
}

static void members_have_defaults(void **state)
{
    const char *text = "{\"s\":\"x\",\"i\":7,\"r\":2.5,\"b\":true}";
    CLEANUP(json_release) json_t *v = NULL;
    struct err e = {0};

    (void)state;
    assert_ok(json_parse(text, strlen(text), 100, &v, &e), &e);
    assert_string_equal(json_get_text(v, "s", "-"), "x");
    assert_string_equal(json_get_text(v, "i", "-"), "-");
    assert_int_equal(json_get_int(v, "i", 1), 7);
    assert_int_equal(json_get_int(v, "r", 1), 1);
    assert_true(json_get_real(v, "r", 0) == 2.5);
    assert_true(json_get_real(v, "i", 0) == 7);
    assert_true(json_get_bool(v, "b", false));
    assert_false(json_get_bool(v, "none", false));
    assert_int_equal(json_get_int(NULL, "i", 3), 3);
}

static void utf8_is_recognised(void **state)
{
    (void)state;
    assert_true(json_text_valid("") && json_text_valid("gr\xc3\xb6\xc3\x9f"
                                                       "e \xf0\x9f\x90\x9f"));
    assert_false(json_text_valid("a\xff") || json_text_valid("\xc3") || json_text_valid("\xed\xa0\x80"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writer_places_commas_and_keys),
        cmocka_unit_test(writer_escapes),
        cmocka_unit_test(reals_read_back_the_same),
        cmocka_unit_test(reals_are_short_and_nan_becomes_null),
        cmocka_unit_test(reader_is_strict),
        cmocka_unit_test(reader_keeps_its_limits),
        cmocka_unit_test(members_have_defaults),
        cmocka_unit_test(utf8_is_recognised),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
