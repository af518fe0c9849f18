#include "tests/unit/base/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/conf/conf.h"
#include "base/conf/conf_problems.h"
#include "base/mem.h"

struct target {
    char *text;
    int64_t count;
    double rate;
    bool yes;
    int color;
    int64_t time;
    int64_t pause;
    char **list;
    char **env;
    struct {
        int64_t depth;
    } inner;
};

static const char *const colors[] = {"red", "green", "blue", NULL};
static const struct conf_field inner_fields[] = {
    {"depth", CONF_INT, 0, .min = 1, .max = 9},
    {0},
};
static const struct conf_field fields[] = {
    {"text", CONF_TEXT, offsetof(struct target, text)},
    {"count", CONF_INT, offsetof(struct target, count), .min = 1, .max = 100},
    {"rate", CONF_REAL, offsetof(struct target, rate), .min = 0, .max = INFINITY, .above = true},
    {"yes", CONF_BOOL, offsetof(struct target, yes)},
    {"color", CONF_ENUM, offsetof(struct target, color), .names = colors},
    {"time", CONF_DURATION, offsetof(struct target, time), .min = 1000, .max = INFINITY},
    {"pause", CONF_DURATION, offsetof(struct target, pause), .min = 100, .max = 600e3},
    {"list", CONF_TEXTS, offsetof(struct target, list)},
    {"env", CONF_ENV, offsetof(struct target, env)},
    {"inner", CONF_STRUCT, offsetof(struct target, inner), .fields = inner_fields},
    {0},
};

static void target_release(struct target *t)
{
    free(t->text);
    strv_free(t->list);
    strv_free(t->env);
}

static enum err_code read_with(struct target *t, const char *text, const char *set, struct err *e)
{
    struct conf_doc *doc;
    enum err_code code;

    if (conf_open(&doc, text, strlen(text), "f.yaml", e))
        return e->code;
    code = set ? conf_set(doc, set, e) : ERR_OK;
    if (!code)
        code = conf_read(doc, fields, t, e);
    conf_close(doc);
    return code;
}

static void refuse_set(const char *text, const char *set, const char *message)
{
    CLEANUP(target_release) struct target t = {0};
    struct err e = {0};

    if (!read_with(&t, text, set, &e))
        fail_msg("accepted: %s", set ? set : text);
    assert_int_equal(e.code, ERR_INVALID_ARGUMENT);
    assert_string_equal(e.msg, message);
}

static void refuse_text(const char *text, const char *message)
{
    refuse_set(text, NULL, message);
}

static void every_type_is_read(void **state)
{
    static const char text[] = "# a comment\n"
                               "text: 12 o'clock\n"
                               "count: 010\n"
                               "rate: 1e-3\n"
                               "yes: true\n"
                               "color: blue\n"
                               "time: 15m\n"
                               "list: [a, 2, \"true\"]\n"
                               "env: {A: b, _C1: \"\"}\n"
                               "inner:\n"
                               "  depth: 3\n";
    CLEANUP(target_release) struct target t = {0};
    struct err e = {0};

    (void)state;
    assert_ok(read_with(&t, text, NULL, &e), &e);
    assert_string_equal(t.text, "12 o'clock");
    assert_int_equal(t.count, 10);
    assert_true(t.rate == 1e-3);
    assert_true(t.yes);
    assert_int_equal(t.color, 2);
    assert_int_equal(t.time, 900000);
    assert_int_equal(strv_len(t.list), 3);
    assert_string_equal(t.list[1], "2");
    assert_string_equal(t.env[0], "A=b");
    assert_string_equal(t.env[1], "_C1=");
    assert_int_equal(t.inner.depth, 3);
}

static void absent_keys_keep_their_defaults(void **state)
{
    CLEANUP(target_release) struct target t = {.text = xstrdup("old"), .count = 7};
    struct err e = {0};

    (void)state;
    assert_ok(read_with(&t, "", NULL, &e), &e);
    assert_ok(read_with(&t, "# nothing but words\n", NULL, &e), &e);
    assert_ok(read_with(&t, "text: new\n", NULL, &e), &e);
    assert_string_equal(t.text, "new");
    assert_int_equal(t.count, 7);
}

static void errors_of_syntax_name_line_and_column(void **state)
{
    (void)state;
    refuse_text("count: 1\n  yes: true\n", "f.yaml:2:6: mapping values are not allowed in this context");
    refuse_text(
        "text: \"open\ncount: 1\n",
        "f.yaml:3:1: found unexpected end of stream, while scanning a quoted scalar that starts at line 1");
    refuse_text("list: [a, b\n",
                "f.yaml:2:1: did not find expected ',' or ']', while parsing a flow sequence that "
                "starts at line 1");
    refuse_text("text: a\n\tcount: 1\n",
                "f.yaml:2:1: found a tab character that violates indentation, while scanning "
                "a plain scalar that starts at line 1");
    refuse_text("just words\n", "f.yaml:1:1: expected a map of 'key: value' lines");
    refuse_text("- a\n", "f.yaml:1:1: expected a map of 'key: value' lines");
    refuse_text("text: a\n---\ntext: b\n",
                "f.yaml:2:1: a second YAML document starts here: put only one into a file");
    refuse_text("text: \"\\0\"\n", "f.yaml:1:7: text must not contain a NUL byte");
    refuse_text("[a]: b\n", "f.yaml:1:1: a key must be text");
    refuse_text("text: \xff\n", "f.yaml: not UTF-8 text: invalid leading UTF-8 octet at byte 6");
}

static void anchors_aliases_and_tags_are_refused(void **state)
{
    static const char message[] = "anchors, aliases and tags are not supported: write the value out";
    char want[128];

    (void)state;
    snprintf(want, sizeof(want), "f.yaml:1:7: %s", message);
    refuse_text("text: &a b\n", want);
    refuse_text("text: !!int 3\n", want);
    refuse_text("text: *a\n", want);
}

static void size_depth_values_and_keys_are_limited(void **state)
{
    CLEANUP(buf_release) struct buf text = {0};
    CLEANUP(target_release) struct target t = {0};
    struct err e = {0};

    (void)state;
    for (int i = 0; i < 40; i++)
        buf_puts(&text, "[");
    assert_int_equal(read_with(&t, text.data, NULL, &e), ERR_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "f.yaml:1:33: nested too deeply: at most 32 levels are allowed");
    buf_clear(&text);
    buf_puts(&text, "list: [");
    for (int i = 0; i < 110000; i++)
        buf_puts(&text, "1,");
    assert_int_equal(read_with(&t, text.data, NULL, &e), ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(e.msg, "too many values"));
    buf_clear(&text);
    buf_puts(&text, "env:\n");
    for (int i = 0; i <= 1024; i++)
        buf_printf(&text, "  K%d: 1\n", i);
    assert_int_equal(read_with(&t, text.data, NULL, &e), ERR_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "f.yaml:1026:3: too many keys: at most 1024 are allowed in one map");
    while (text.len <= 1 << 20)
        buf_puts(&text, "# many words that mean nothing at all\n");
    assert_int_equal(read_with(&t, text.data, NULL, &e), ERR_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "f.yaml: larger than 1048576 bytes");
}

static void keys_are_checked(void **state)
{
    (void)state;
    refuse_text("text: a\ncuont: 1\n", "f.yaml:2:1: unknown key 'cuont', did you mean 'count'?");
    refuse_text("inner: {dept: 3}\n", "f.yaml:1:9: unknown key 'dept', did you mean 'depth'?");
    refuse_text("depth: 3\n", "f.yaml:1:1: unknown key 'depth', did you mean 'inner.depth'?");
    refuse_text("quantity: 1\n",
                "f.yaml:1:1: unknown key 'quantity', expected one of text, count, rate, yes, color, "
                "time, pause, list, env, inner");
    refuse_text("text: a\nyes: true\ntext: b\n", "f.yaml:3:1: key 'text' is given twice: line 1 has it, too");
}

static void errors_name_the_expected_type(void **state)
{
    (void)state;
    refuse_text("count: two\n", "f.yaml:1:8: invalid value for 'count': expected a whole number, got 'two'");
    refuse_text("count: 2.0\n", "f.yaml:1:8: invalid value for 'count': expected a whole number, got '2.0'");
    refuse_text("count: \"2\"\n",
                "f.yaml:1:8: invalid value for 'count': expected a whole number, got the text \"2\"");
    refuse_text("count: [2]\n",
                "f.yaml:1:8: invalid value for 'count': expected a whole number, got a list of 1 value");
    refuse_text("count:\n", "f.yaml:1:7: invalid value for 'count': expected a whole number, got no value");
    refuse_text("count: 0x10\n",
                "f.yaml:1:8: invalid value for 'count': expected a whole number, got '0x10'");
    refuse_text("rate: 1e-3x\n", "f.yaml:1:7: invalid value for 'rate': expected a number, got '1e-3x'");
    refuse_text("rate: .nan\n", "f.yaml:1:7: invalid value for 'rate': expected a number, got '.nan'");
    refuse_text("rate: nan\n", "f.yaml:1:7: invalid value for 'rate': expected a number, got 'nan'");
    refuse_text("yes: yes\n", "f.yaml:1:6: invalid value for 'yes': expected true or false, got 'yes'");
    refuse_text("color: pink\n",
                "f.yaml:1:8: invalid value for 'color': expected red, green or blue, got 'pink'");
    refuse_text("text: {a: b}\n", "f.yaml:1:7: invalid value for 'text': expected text, got a map");
    refuse_text("text: ~\n", "f.yaml:1:7: invalid value for 'text': expected text, got no value");
    refuse_text("list: a b\n",
                "f.yaml:1:7: invalid value for 'list': expected a list such as [first, second], got 'a b'");
    refuse_text("list: [a, [b]]\n",
                "f.yaml:1:11: invalid value for 'list': expected text in the list, got a list of 1 value");
    refuse_text(
        "env: [a]\n",
        "f.yaml:1:6: invalid value for 'env': expected a map such as {NAME: value}, got a list of 1 value");
    refuse_text("env: {1A: b}\n", "f.yaml:1:7: invalid name of an environment variable: '1A'");
    refuse_text(
        "env: {A: [b]}\n",
        "f.yaml:1:10: invalid value for 'A': expected text, or \"\" for an empty value, got a list of 1 value");
    refuse_text("inner: 3\n",
                "f.yaml:1:8: invalid value for 'inner': expected a map of keys and values, got '3'");
    refuse_text(
        "time: soon\n",
        "f.yaml:1:7: invalid value for 'time': expected a duration such as 90s, 15m, 2h or 1d, got 'soon'");
}

static void ranges_are_checked(void **state)
{
    (void)state;
    refuse_text("count: 0\n",
                "f.yaml:1:8: invalid value for 'count': expected a number from 1 to 100, got '0'");
    refuse_text("count: 101\n",
                "f.yaml:1:8: invalid value for 'count': expected a number from 1 to 100, got '101'");
    refuse_text("count: 99999999999999999999\n",
                "f.yaml:1:8: invalid value for 'count': 99999999999999999999 is too large");
    refuse_text("rate: 0\n", "f.yaml:1:7: invalid value for 'rate': expected a number above 0, got '0'");
    refuse_text("rate: 1e999\n", "f.yaml:1:7: invalid value for 'rate': 1e999 is too large");
    refuse_text("time: 0s\n",
                "f.yaml:1:7: invalid value for 'time': expected a duration of at least 1s, got '0s'");
    refuse_text("pause: 50ms\n",
                "f.yaml:1:8: invalid value for 'pause': expected a duration from 100ms to 10m, got '50ms'");
    refuse_text("pause: 20m\n",
                "f.yaml:1:8: invalid value for 'pause': expected a duration from 100ms to 10m, got '20m'");
    refuse_text("inner:\n  depth: 10\n",
                "f.yaml:2:10: invalid value for 'depth': expected a number from 1 to 9, got '10'");
}

static void required_keys(void **state)
{
    static const struct conf_field must[] = {{"a", CONF_INT, 0, .required = true}, {0}};
    static const struct conf_field outer[] = {{"inner", CONF_STRUCT, 0, .fields = must}, {0}};
    struct conf_doc *doc;
    struct err e = {0};
    int64_t a = 0;

    (void)state;
    assert_ok(conf_open(&doc, "inner: {}", 9, "f.yaml", &e), &e);
    assert_int_equal(conf_read(doc, outer, &a, &e), ERR_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "f.yaml:1:8: 'inner' has no key 'a', which is required");
    conf_close(doc);
    assert_ok(conf_open(&doc, "", 0, "f.yaml", &e), &e);
    assert_int_equal(conf_read(doc, must, &a, &e), ERR_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "f.yaml:1:1: the required key 'a' is missing");
    conf_close(doc);
}

static void set_replaces_and_adds(void **state)
{
    CLEANUP(target_release) struct target t = {0};
    struct err e = {0};

    (void)state;
    assert_ok(read_with(&t, "count: 2\n", "count=3", &e), &e);
    assert_int_equal(t.count, 3);
    assert_ok(read_with(&t, "count: 2\n", "inner.depth=4", &e), &e);
    assert_int_equal(t.inner.depth, 4);
    assert_ok(read_with(&t, "", "list=[x, y]", &e), &e);
    assert_string_equal(t.list[1], "y");
    assert_ok(read_with(&t, "text: a\n", "text=b=c", &e), &e);
    assert_string_equal(t.text, "b=c");
}

static void set_errors_name_the_option(void **state)
{
    (void)state;
    refuse_set("", "count=x", "--set count: invalid value for 'count': expected a whole number, got 'x'");
    refuse_set("", "inner.depht=1", "--set inner.depht: unknown key 'depht', did you mean 'depth'?");
    refuse_set("count: 1\n", "count.x=1", "--set count.x: invalid path: 'count' is not a map");
    refuse_set(
        "", "count",
        "invalid value for option '--set': expected PATH=VALUE, such as train.optimizer.lr=1e-3, got 'count'");
    refuse_set(
        "", "=1",
        "invalid value for option '--set': expected PATH=VALUE, such as train.optimizer.lr=1e-3, got '=1'");
    refuse_set("", "inner..depth=1", "--set inner..depth: invalid path: a key between two dots is empty");
    refuse_set("", "count=", "--set count: invalid value for 'count': expected a whole number, got no value");
}

static void printed_text_reads_back_the_same(void **state)
{
    static const char text[] =
        "text: \"5\"\ncount: 5\nlist: [\"a: b\", '#c', \"\", plain, \"line\\nbreak\"]\n"
        "env: {A: \"null\"}\n";
    CLEANUP(target_release) struct target t = {0};
    CLEANUP(free_text) char *printed = NULL;
    CLEANUP(free_text) char *again = NULL;
    struct conf_doc *doc;
    struct err e = {0};

    (void)state;
    assert_ok(conf_open(&doc, text, strlen(text), "f", &e), &e);
    assert_ok(conf_set(doc, "inner.depth=2", &e), &e);
    printed = conf_print(doc);
    conf_close(doc);
    assert_ok(read_with(&t, printed, NULL, &e), &e);
    assert_string_equal(t.text, "5");
    assert_string_equal(t.list[0], "a: b");
    assert_string_equal(t.list[1], "#c");
    assert_string_equal(t.list[2], "");
    assert_string_equal(t.list[4], "line\nbreak");
    assert_string_equal(t.env[0], "A=null");
    assert_int_equal(t.inner.depth, 2);
    assert_ok(conf_open(&doc, printed, strlen(printed), "f", &e), &e);
    again = conf_print(doc);
    conf_close(doc);
    assert_string_equal(again, printed);
}

static void durations_have_a_unit_and_a_limit(void **state)
{
    static const char *const exact[] = {"0s", "1500ms", "61s", "90m", "25h", "2d"};
    struct err e;
    int64_t ms;

    (void)state;
    assert_ok(conf_duration("90", &ms, &e), &e);
    assert_int_equal(ms, 90000);
    assert_ok(conf_duration("250ms", &ms, &e), &e);
    assert_int_equal(ms, 250);
    assert_ok(conf_duration("2h", &ms, &e), &e);
    assert_int_equal(ms, 7200000);
    assert_ok(conf_duration("1d", &ms, &e), &e);
    assert_int_equal(ms, 86400000);
    for (size_t i = 0; i < ARRAY_LEN(exact); i++) {
        assert_ok(conf_duration(exact[i], &ms, &e), &e);
        assert_string_equal(conf_duration_text(ms).text, exact[i]);
    }
    assert_int_equal(conf_duration("-1s", &ms, &e), ERR_INVALID_ARGUMENT);
    assert_int_equal(conf_duration("1 s", &ms, &e), ERR_INVALID_ARGUMENT);
    assert_int_equal(conf_duration("", &ms, &e), ERR_INVALID_ARGUMENT);
    assert_int_equal(conf_duration("999999d", &ms, &e), ERR_INVALID_ARGUMENT);
    assert_int_equal(conf_duration("99999999999999999999s", &ms, &e), ERR_INVALID_ARGUMENT);
}

static enum err_code refuse_all(const struct conf_doc *doc, void *context, struct err *e)
{
    const struct conf_node *list = conf_get(conf_get(conf_root(doc), "env"), "B");

    (void)context;
    return list ? conf_fail(list, e, "no list") : ERR_OK;
}

static void a_problem_is_marked_below_its_character(void **state)
{
    /* One with two bytes before the place, and one so long that only a part of the line is shown. */
    static const char short_line[] = "env: {A: \"\xc3\xbc\xc3\xbc\", B: [1]}\n";
    CLEANUP(buf_release) struct buf long_line = {0};

    (void)state;
    buf_puts(&long_line, "env: {A: \"");
    for (int i = 0; i < 200; i++)
        buf_puts(&long_line, "\xc3\xbc");
    buf_puts(&long_line, "\", B: [1]}\n");
    const char *const sources[] = {short_line, long_line.data};
    for (size_t i = 0; i < ARRAY_LEN(sources); i++) {
        CLEANUP(conf_problems_release) struct conf_problems problems = {0};
        CLEANUP(buf_release) struct buf out = {0};
        struct conf_doc *doc;
        struct err e;

        assert_ok(conf_open(&doc, sources[i], strlen(sources[i]), "f", &e), &e);
        conf_problems_find(doc, refuse_all, NULL, &problems);
        conf_close(doc);
        assert_int_equal(problems.count, 1);
        conf_problem_print(&problems.list[0], sources[i], &out);
        const char *shown = strstr(out.data, "\n    ") + 5, *marks = strstr(shown, "\n    ") + 5;
        size_t at = 0;
        for (size_t column = strcspn(marks, "^"); column; column--)
            for (at++; ((unsigned char)shown[at] & 0xC0) == 0x80;)
                at++;
        assert_int_equal(shown[at], '[');
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_is_read),
        cmocka_unit_test(absent_keys_keep_their_defaults),
        cmocka_unit_test(errors_of_syntax_name_line_and_column),
        cmocka_unit_test(anchors_aliases_and_tags_are_refused),
        cmocka_unit_test(size_depth_values_and_keys_are_limited),
        cmocka_unit_test(keys_are_checked),
        cmocka_unit_test(errors_name_the_expected_type),
        cmocka_unit_test(ranges_are_checked),
        cmocka_unit_test(required_keys),
        cmocka_unit_test(set_replaces_and_adds),
        cmocka_unit_test(set_errors_name_the_option),
        cmocka_unit_test(printed_text_reads_back_the_same),
        cmocka_unit_test(a_problem_is_marked_below_its_character),
        cmocka_unit_test(durations_have_a_unit_and_a_limit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
