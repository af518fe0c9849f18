/* What an expression matches in a line, which expressions are refused, and the limits of a search. */
#include "tests/unit/base/check.h"

#include <string.h>

#include "base/match/pattern.h"
#include "base/mem.h"

static struct pattern *compile_text(const char *text)
{
    struct pattern *p;
    struct err e;

    if (pattern_compile(text, &p, &e))
        fail_msg("%s: %s", text, e.msg);
    return p;
}

/* The line comes in pieces of `piece` bytes. */
static enum err_code search_pieces(struct pattern *p, const char *line, size_t piece, bool *matched,
                                   struct err *e)
{
    CLEANUP(pattern_line_release) struct pattern_line l = {0};
    const size_t size = strlen(line);

    for (size_t at = 0; at < size; at += piece)
        pattern_line_add(&l, line + at, size - at < piece ? size - at : piece);
    return pattern_line_end(p, &l, matched, e);
}

static void expect_match(const char *text, const char *line, bool wanted)
{
    struct pattern *p = compile_text(text);

    for (size_t piece = 1; piece < 100; piece += 98) {
        bool matched;
        struct err e;
        assert_ok(search_pieces(p, line, piece, &matched, &e), &e);
        if (matched != wanted)
            fail_msg("'%s' in '%s': expected %s", text, line, wanted ? "a match" : "none");
    }
    pattern_free(p);
}

static void lines_are_searched(void **state)
{
    (void)state;
    expect_match("a", "cat", true);
    expect_match("^a", "cat", false);
    expect_match("t$", "cat", true);
    expect_match("^$", "", true);
    expect_match("^$", "x", false);
    expect_match("loss=(nan|[0-9.]+$)", "step=3 loss=1.25", true);
    expect_match("loss=(nan|[0-9.]+$)", "step=3 loss=1.25 lr=1", false);
    expect_match("\\bstep \\d+\\b", "at step 12: ok", true);
    expect_match("(?i)error", "ValueError: x", true);
    expect_match("^[[:space:]]+File", "  File \"train.py\"", true);
}

static void characters_are_those_of_utf8(void **state)
{
    (void)state;
    expect_match("^.{3}$", "\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80", true);
    expect_match("^.{4}$", "\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80", false);
    expect_match("^[^\xC3\xA4]$", "\xC3\xA5", true);
    /* a byte that is not UTF-8 is no character */
    expect_match("^a.b$", "a\xFF\x62", false);
    expect_match("b$", "a\xFF\x62", true);
}

static void expect_refused(const char *text, const char *words)
{
    struct pattern *p;
    struct err e;

    assert_int_equal(pattern_compile(text, &p, &e), ERR_INVALID_ARGUMENT);
    if (!strstr(e.msg, words))
        fail_msg("'%s': got '%s'", text, e.msg);
}

static void a_bad_expression_is_refused_with_its_place(void **state)
{
    CLEANUP(free_text) char *many = xmalloc(PATTERN_BYTES + 2);

    (void)state;
    expect_refused("", "empty");
    expect_refused("a(b", "missing closing parenthesis (character 4 of 'a(b')");
    expect_refused("\xC3\xA4\xC3\xA4)", "unmatched closing parenthesis (character 3");
    expect_refused("*a", "does not follow a repeatable item (character 1");
    expect_refused("[z-a]", "(character 4");
    expect_refused("\\C", "\\C is disabled");
    expect_refused("\xFF", "UTF-8");
    expect_refused("(((a{9999}){999}){999}){9}", "too large");
    memset(many, 'a', PATTERN_BYTES + 1);
    many[PATTERN_BYTES + 1] = '\0';
    expect_refused(many, "at most 1000");
}

static void a_search_that_takes_too_long_is_an_error(void **state)
{
    char line[] = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab";
    struct pattern *p = compile_text("^((a+)+)+$");
    bool matched;
    struct err e;

    (void)state;
    assert_int_equal(search_pieces(p, line, 100, &matched, &e), ERR_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(e.msg, "takes too long on a line of 49 bytes"));
    assert_false(matched);
    line[48] = 'a';
    assert_ok(search_pieces(p, line, 100, &matched, &e), &e);
    assert_true(matched);
    pattern_free(p);
    /* The expression cannot raise the limit. */
    p = compile_text("(*LIMIT_MATCH=4000000000)^((a+)+)+$");
    line[48] = 'b';
    assert_int_equal(search_pieces(p, line, 100, &matched, &e), ERR_RESOURCE_EXHAUSTED);
    pattern_free(p);
}

/* PCRE2 counts its steps anew at each place where a match may begin, and goes over the rest of the line in one step. */
static void a_long_line_does_not_multiply_the_limit(void **state)
{
    static const char *const texts[] = {"[a-z]*+[0-9]", "(?:a?){14}[bc]", "(*NO_AUTO_POSSESS)[a-z]*+[0-9]"};
    CLEANUP(free_text) char *line = xmalloc(PATTERN_LINE_BYTES + 1);

    (void)state;
    memset(line, 'a', PATTERN_LINE_BYTES);
    line[PATTERN_LINE_BYTES] = '\0';
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct pattern *p = compile_text(texts[i]);
        bool matched;
        struct err e;
        assert_int_equal(search_pieces(p, line, PATTERN_LINE_BYTES, &matched, &e), ERR_RESOURCE_EXHAUSTED);
        assert_false(matched);
        /* The next line has its own limit. */
        assert_ok(search_pieces(p, "aaaaaaaaaaaaaaaab1", 18, &matched, &e), &e);
        assert_true(matched);
        pattern_free(p);
    }
}

static void a_long_line_is_searched_up_to_a_limit(void **state)
{
    CLEANUP(free_text) char *line = xmalloc(2 * PATTERN_LINE_BYTES);
    static const struct {
        const char *text;
        size_t at; /* of the only 'b' in the line */
        bool matched;
    } cases[] = {
        {"b", PATTERN_LINE_BYTES - 1, true},
        {"b", PATTERN_LINE_BYTES, false},
        {"ab$", PATTERN_LINE_BYTES - 1, false},
        {"^a", PATTERN_LINE_BYTES, true},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct pattern *p = compile_text(cases[i].text);
        bool matched;
        struct err e;
        memset(line, 'a', 2 * PATTERN_LINE_BYTES - 1);
        line[2 * PATTERN_LINE_BYTES - 1] = '\0';
        line[cases[i].at] = 'b';
        assert_ok(search_pieces(p, line, 1000, &matched, &e), &e);
        assert_int_equal(matched, cases[i].matched);
        pattern_free(p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_searched),
        cmocka_unit_test(characters_are_those_of_utf8),
        cmocka_unit_test(a_bad_expression_is_refused_with_its_place),
        cmocka_unit_test(a_search_that_takes_too_long_is_an_error),
        cmocka_unit_test(a_long_line_does_not_multiply_the_limit),
        cmocka_unit_test(a_long_line_is_searched_up_to_a_limit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
