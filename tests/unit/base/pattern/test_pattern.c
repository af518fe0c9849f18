#include "tests/unit/base/check.h"

#include <regex.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/pattern/pattern.h"

static struct pattern *compile(const char *text)
{
    struct pattern *p;
    struct err e;

    if (pattern_compile(text, &p, &e))
        fail_msg("%s: %s", text, e.msg);
    return p;
}

/* Searches the line in pieces of `piece` bytes, with small budgets, while another line is searched with the same pattern. */
static bool search(struct pattern *p, const char *line, size_t piece)
{
    struct pattern_line a = {0}, other = {0};
    size_t size = strlen(line), at = 0;
    bool matched;

    while (at < size) {
        int64_t budget = piece == SIZE_MAX ? INT64_MAX / 2 : 5;

        at += pattern_line_feed(p, &a, line + at, size - at < piece ? size - at : piece, &budget);
        if (piece == SIZE_MAX)
            continue;
        pattern_line_save(p, &a);
        budget = 10;
        pattern_line_feed(p, &other, "ab", 2, &budget);
        pattern_line_save(p, &other);
    }
    matched = pattern_line_end(p, &a);
    pattern_line_release(&a);
    pattern_line_release(&other);
    return matched;
}

static void expect(const char *text, const char *line, bool wanted)
{
    struct pattern *p = compile(text);

    if (search(p, line, SIZE_MAX) != wanted || search(p, line, 1) != wanted)
        fail_msg("'%s' in '%s': expected %s", text, line, wanted ? "a match" : "none");
    pattern_free(p);
}

static void expressions_match_as_posix_says(void **state)
{
    (void)state;
    expect("a", "cat", true);
    expect("^a", "cat", false);
    expect("t$", "cat", true);
    expect("^$", "", true);
    expect("^$", "x", false);
    expect("$^", "", true);
    expect("a|^b|c$", "xxc", true);
    expect("(ab|cd)+e", "xxabcde", true);
    expect("^(ab?){2,3}$", "aab", true);
    expect("^(ab?){2,3}$", "aaaa", false);
    expect("^a{0}$", "", true);
    expect("^a{,2}$", "aaa", false);
    expect("a{2,}", "baab", true);
    expect("()", "", true);
    expect("loss=[0-9.]+", "step=3 loss=1.25", true);
    expect("[]a]", "]", true);
    expect("^[^]a]$", "]", false);
    expect("[a-]", "-", true);
    expect("^[[:space:][:digit:]]+$", " 12\t", true);
    expect("[[.-.]]", "-", true);
    expect("\\[x\\]", "[x]", true);
    expect("a\\.b", "axb", false);
    expect("}]", "}]", true);
    expect("x", "a long line that ends otherwise", false);
}

static void characters_are_those_of_utf8(void **state)
{
    (void)state;
    expect("^.{3}$", "\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80", true);
    expect("^.{4}$", "\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80", false);
    expect("^\xC3\xA4+$", "\xC3\xA4\xC3\xA4", true);
    expect("^[\xC3\xA4\xC3\xB6]$", "\xC3\xB6", true);
    expect("^[\xC3\xA4\xC3\xB6]$", "\xC3\xBC", false);
    expect("^[^\xC3\xA4]$", "\xC3\xA4", false);
    expect("^[^\xC3\xA4]$", "\xC3\xA5", true);
    expect("^[^a]$", "\xF0\x9F\x98\x80", true);
    expect("^[\xC2\x80-\xE2\x82\xAC]$", "\xE0\xA4\x85", true); /* U+0905 */
    expect("^[\xC2\x80-\xE2\x82\xAC]$", "\xE2\x82\xAD", false);
    expect("^[\xE2\x82\xAC-\xF0\x9F\x98\x80]$", "\xF0\x9F\x98\x80", true);
    expect("^[\xE2\x82\xAC-\xF0\x9F\x98\x80]$", "\xF0\x9F\x98\x81", false);
    expect("^[\xE2\x82\xAC-\xF0\x9F\x98\x80]$", "\xF0\x90\x80\x80", true);
    expect("^a.b$",
           "a\xFF"
           "b",
           false); /* as GNU grep: a byte that is not UTF-8 is no character */
    expect("b$",
           "a\xFF"
           "b",
           true);
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
    CLEANUP(free_text) char *tall = xmalloc(2001);
    CLEANUP(free_text) char *many = xmalloc(PATTERN_BYTES + 2);

    (void)state;
    expect_refused("", "empty");
    expect_refused("a(b", "no ')' (character 2");
    expect_refused("\xC3\xA4\xC3\xA4(b", "no ')' (character 3");
    expect_refused("ab)", "closes no group: write \\) for the character (character 3");
    expect_refused("*a", "nothing here to repeat");
    expect_refused("a|+", "(character 3");
    expect_refused("a{2", "such as {2}, {2,} or {2,5} (character 2");
    expect_refused("a{3,2}", "such as {2}");
    expect_refused("a{256}", "up to 255");
    expect_refused("a{1,99999999999}", "up to 255");
    expect_refused("a{x}", "up to 255");
    expect_refused("[a", "is not closed");
    expect_refused("[", "is not closed");
    expect_refused("[z-a]", "'z-a' ends before it begins");
    expect_refused("[[:digits:]]", "unknown character class '[:digits:]'");
    expect_refused("[[.ab.]]", "only a single character");
    expect_refused("\\d+", "write [0-9]");
    expect_refused("(a)\\1", "back references");
    expect_refused("a\\", "ends in a backslash");
    expect_refused("a\\<b", "does not exist");
    expect_refused("a\nb", "no line contains a line end");
    expect_refused("\xFF", "not UTF-8");
    expect_refused("[\xC3]", "not UTF-8");
    memset(tall, '(', 1000);
    tall[1000] = '\0';
    expect_refused(tall, "more than 100 groups");
    memset(many, 'a', PATTERN_BYTES + 1);
    many[PATTERN_BYTES + 1] = '\0';
    expect_refused(many, "at most 1000");
}

static void an_expression_that_grows_too_large_is_refused(void **state)
{
    (void)state;
    expect_refused("((a{1,255}){1,255}){1,255}", "too large");
    expect_refused("(((){255}){255}){255}", "too large");
    expect_refused("(((){0,255}){0,255}){0,255}", "too large");
    expect_refused("(.{255}){255}", "too large");
}

/* A deterministic automaton of this expression would have 2^200 states, and a search that goes back would never end. */
static void a_hostile_expression_needs_little(void **state)
{
    struct pattern *p = compile("(a|b)*a(a|b){200}$");
    struct pattern *nested = compile("^((a+)+)+$");
    CLEANUP(free_text) char *line = xmalloc(100001);
    uint32_t random = 1;
    int64_t budget = 400000000, before = budget;
    struct pattern_line a = {0};

    (void)state;
    for (size_t i = 0; i < 100000; i++)
        line[i] = (char)('a' + ((random = random * 1664525 + 1013904223) >> 24 & 1));
    line[100000] = '\0';
    assert_int_equal(pattern_line_feed(p, &a, line, 100000, &budget), 100000);
    assert_true(pattern_line_end(p, &a) == (line[100000 - 201] == 'a'));
    assert_true(before - budget > 100000); /* it was counted */
    pattern_line_release(&a);
    memset(line, 'a', 99999);
    line[99999] = 'b';
    assert_false(search(nested, line, SIZE_MAX));
    line[99999] = 'a';
    assert_true(search(nested, line, SIZE_MAX));
    pattern_free(p);
    pattern_free(nested);
}

static void a_search_stops_when_its_budget_is_used_up(void **state)
{
    struct pattern *p = compile("x");
    struct pattern_line a = {0};
    int64_t budget = 300;
    size_t n = pattern_line_feed(p, &a, "aa", 2, &budget); /* makes sets, which cost more than a byte */

    (void)state;
    assert_int_equal(n, 2);
    assert_in_range(budget, 1, 299);
    budget = 3;
    assert_int_equal(pattern_line_feed(p, &a, "aaaaaaaa", 8, &budget), 3);
    assert_int_equal(budget, 0);
    assert_int_equal(pattern_line_feed(p, &a, "aaaaa", 5, &budget), 0);
    budget = 1000;
    assert_int_equal(pattern_line_feed(p, &a, "ax", 2, &budget), 2);
    assert_true(a.matched);
    pattern_free(p);
    pattern_line_release(&a);
}

static uint32_t seed = 12345;

static uint32_t draw(uint32_t below)
{
    seed = seed * 1664525 + 1013904223;
    return (seed >> 8) % below;
}

static void draw_expression(char *out, size_t size, int depth)
{
    static const char *const atoms[] = {"a", "b", "c", ".", "[ab]", "[^a]", "[b-c]", "[^[:digit:]c]"};
    static const char *const counts[] = {"", "", "", "*", "+", "?", "{2}", "{1,3}", "{2,}", "{0,2}"};
    char left[256] = "", right[256] = "";

    switch (depth > 3 ? 0 : draw(5)) {
    case 0:
    case 1:
        snprintf(out, size, "%s%s", atoms[draw(8)], counts[draw(10)]);
        return;
    case 2:
    case 3:
        draw_expression(left, sizeof(left), depth + 1);
        draw_expression(right, sizeof(right), depth + 1);
        snprintf(out, size, draw(3) ? "%.120s%.120s" : "(%.110s|%.110s)", left, right);
        return;
    default:
        draw_expression(left, sizeof(left), depth + 1);
        snprintf(out, size, "(%.120s)%s", left, counts[draw(10)]);
    }
}

/* The C library in its locale "C" is the reference. */
static void expressions_match_as_in_the_c_library(void **state)
{
    int matches = 0, searches = 0;

    (void)state;
    for (int round = 0; round < 3000; round++) {
        char body[256], text[300], line[16];
        struct pattern *p;
        regex_t reference;
        struct err e;

        draw_expression(body, sizeof(body), 0);
        snprintf(text, sizeof(text), "%s%s%s", draw(2) ? "^" : "", body, draw(2) ? "$" : "");
        if (regcomp(&reference, text, REG_EXTENDED | REG_NOSUB))
            continue; /* it was cut off in a group */
        assert_ok(pattern_compile(text, &p, &e), &e);
        for (int i = 0; i < 10; i++, searches++) {
            const uint32_t length = draw(12);
            bool wanted;

            for (uint32_t at = 0; at < length; at++)
                line[at] = "abc1"[draw(4)];
            line[length] = '\0';
            wanted = regexec(&reference, line, 0, NULL, 0) == 0;
            if (search(p, line, SIZE_MAX) != wanted || search(p, line, 1 + draw(3)) != wanted)
                fail_msg("'%s' in '%s': expected %s", text, line, wanted ? "a match" : "none");
            matches += wanted;
        }
        regfree(&reference);
        pattern_free(p);
    }
    assert_in_range(matches, searches / 10, searches * 9 / 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(expressions_match_as_posix_says),
        cmocka_unit_test(characters_are_those_of_utf8),
        cmocka_unit_test(a_bad_expression_is_refused_with_its_place),
        cmocka_unit_test(an_expression_that_grows_too_large_is_refused),
        cmocka_unit_test(a_hostile_expression_needs_little),
        cmocka_unit_test(a_search_stops_when_its_budget_is_used_up),
        cmocka_unit_test(expressions_match_as_in_the_c_library),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
