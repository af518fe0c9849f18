#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/conf/option.h"
#include "base/mem.h"

struct sample {
    bool follow;
    const char *output, *tee;
    char *name;
    int64_t rank, slots;
    double rate;
    int first, last, fd;
    char **set;
    int64_t keep_ms;
};

/* Parses a range such as "3-7". */
static bool parse_range(const char *text, void *at)
{
    struct sample *s = at;
    int end = 0;
    return sscanf(text, "%d-%d%n", &s->first, &s->last, &end) == 2 && !text[end];
}

static bool is_digit(const char *text)
{
    return *text >= '0' && *text <= '9' && !text[1];
}

static const struct option_spec table[] = {
    {.name = "follow",
     .key = "follow",
     .letter = 'f',
     .type = OPTION_FLAG,
     .offset = offsetof(struct sample, follow),
     .help = "go on until the end"},
    {.name = "name",
     .key = "name",
     .type = OPTION_COPY,
     .offset = offsetof(struct sample, name),
     .value = "NAME",
     .help = "a name of one's own, which is told in so many words that --help has to break the line once",
     .default_text = "host name"},
    {.name = "rank",
     .letter = 'r',
     .type = OPTION_INT,
     .offset = offsetof(struct sample, rank),
     .value = "R",
     .help = "a rank"},
    {.name = "slots",
     .key = "slots",
     .type = OPTION_INT,
     .offset = offsetof(struct sample, slots),
     .value = "N",
     .min = 1,
     .max = 4096,
     .help = "workers"},
    {.name = "rate",
     .key = "rate",
     .type = OPTION_REAL,
     .offset = offsetof(struct sample, rate),
     .value = "X",
     .min = 0.5,
     .max = INFINITY,
     .help = "a rate"},
    {.name = "output",
     .letter = 'o',
     .type = OPTION_CHOICE,
     .offset = offsetof(struct sample, output),
     .value = "table|json",
     .help = "a form"},
    {.name = "ports",
     .key = "ports",
     .type = OPTION_PARSED,
     .value = "A-B",
     .parse = parse_range,
     .expected = "a range such as 1-9",
     .help = "a range"},
    {.name = "fd", .type = OPTION_FD, .offset = offsetof(struct sample, fd), .value = "FD", .help = "a pipe"},
    {.name = "tee",
     .type = OPTION_TEXT,
     .offset = offsetof(struct sample, tee),
     .value = "0-9",
     .fits = is_digit,
     .otherwise = "3",
     .help = "a stream"},
    {.name = "set-key-of-the-file",
     .key = "set",
     .type = OPTION_TEXTS,
     .offset = offsetof(struct sample, set),
     .value = "K=V",
     .help = "a key"},
    {.name = "secret", .type = OPTION_FLAG, .offset = offsetof(struct sample, follow), .hidden = true},
    {0},
};

static enum err_code parse_words(struct sample *s, struct option_arguments *args, struct err *e,
                                 const char *const *words)
{
    static char *argv[32];
    int argc = 0;
    for (; words[argc] && argc < (int)ARRAY_LEN(argv) - 1; argc++)
        argv[argc] = (char *)(uintptr_t)words[argc];
    assert_null(words[argc]); /* all words fit into argv */
    argv[argc] = NULL;
    return option_parse((struct option_set[]){{table, s}, {NULL, NULL}}, argc, argv, NULL, args, e);
}

#define WORDS(...) ((const char *const[]){"cmd", __VA_ARGS__, NULL})

static void test_all_forms(void **state)
{
    (void)state;
    struct sample s = {0};
    struct option_arguments args;
    struct err e;
    assert_int_equal(parse_words(&s, &args, &e,
                                 WORDS("a", "--name=x", "-r3", "--set_key_of-the-file", "k=1", "-o", "json",
                                       "b", "-f", "--set-key-of-the-file", "l=2", "--rate=1e2", "--ports",
                                       "3-7", "--fd", "4", "-", "--", "--name")),
                     ERR_OK);
    assert_string_equal(s.name, "x");
    assert_int_equal(s.rank, 3);
    assert_string_equal(s.output, "json");
    assert_true(s.follow);
    assert_true(s.rate == 100);
    assert_int_equal(s.first, 3);
    assert_int_equal(s.last, 7);
    assert_int_equal(s.fd, 4);
    assert_int_equal(strv_len(s.set), 2);
    assert_string_equal(s.set[1], "l=2");
    assert_int_equal(args.count, 3);
    assert_string_equal(args.list[1], "b");
    assert_string_equal(args.list[2], "-");
    assert_string_equal(args.tail[0], "--name");
    assert_null(args.tail[1]);
    option_release(table, &s);
    assert_null(s.set);
    assert_null(s.name);
    option_arguments_release(&args);
}

static void test_value_that_may_be_left_out(void **state)
{
    (void)state;
    struct sample s = {0};
    struct option_arguments args;
    struct err e;
    assert_int_equal(parse_words(&s, &args, &e, WORDS("--tee", "train.py")), ERR_OK);
    assert_string_equal(s.tee, "3");
    assert_int_equal(args.count, 1);
    option_arguments_release(&args);
    assert_int_equal(parse_words(&s, &args, &e, WORDS("--tee", "1", "train.py")), ERR_OK);
    assert_string_equal(s.tee, "1");
    option_arguments_release(&args);
}

static void refuse_words(const char *const *words, const char *message)
{
    struct sample s = {0};
    struct option_arguments args;
    struct err e;
    assert_int_equal(parse_words(&s, &args, &e, words), ERR_INVALID_ARGUMENT);
    assert_string_equal(e.msg, message);
    option_release(table, &s);
    option_arguments_release(&args);
}

static void test_misuse(void **state)
{
    (void)state;
    refuse_words(WORDS("--nmae", "x"), "unknown option '--nmae', did you mean '--name'?");
    refuse_words(WORDS("--foll"), "unknown option '--foll', did you mean '--follow'?");
    refuse_words(WORDS("--secrt"), "unknown option '--secrt'");
    refuse_words(WORDS("--xyzzy"), "unknown option '--xyzzy'");
    refuse_words(WORDS("-x"), "unknown option '-x'");
    refuse_words(WORDS("--rank", "two"), "invalid value for option '--rank': expected a number, got 'two'");
    refuse_words(WORDS("--rank", "-1"), "invalid value for option '--rank': expected a number, got '-1'");
    refuse_words(WORDS("--rank=99999999999999999999"),
                 "invalid value for option '--rank': expected a number, got '99999999999999999999'");
    refuse_words(WORDS("--slots", "abc"),
                 "invalid value for option '--slots': expected a number from 1 to 4096, got 'abc'");
    refuse_words(WORDS("--slots", "0"),
                 "invalid value for option '--slots': expected a number from 1 to 4096, got '0'");
    refuse_words(WORDS("--slots", "4097"),
                 "invalid value for option '--slots': expected a number from 1 to 4096, got '4097'");
    refuse_words(WORDS("--slots", "1.5"),
                 "invalid value for option '--slots': expected a whole number from 1 to 4096, got '1.5'");
    refuse_words(WORDS("--slots="),
                 "invalid value for option '--slots': expected a number from 1 to 4096, got ''");
    refuse_words(WORDS("--rate", "0.4"),
                 "invalid value for option '--rate': expected a number of at least 0.5, got '0.4'");
    refuse_words(WORDS("--rate", "nan"),
                 "invalid value for option '--rate': expected a number of at least 0.5, got 'nan'");
    refuse_words(WORDS("--ports", "9"),
                 "invalid value for option '--ports': expected a range such as 1-9, got '9'");
    refuse_words(WORDS("--fd", "-1"),
                 "invalid value for option '--fd': expected the number of a file descriptor, got '-1'");
    refuse_words(WORDS("--name"), "option '--name' requires a value: NAME");
    refuse_words(WORDS("-r"), "option '--rank' requires a value: R");
    refuse_words(WORDS("-o", "yaml"),
                 "invalid value for option '--output': expected one of table|json, got 'yaml'");
    refuse_words(WORDS("-o", "tab"),
                 "invalid value for option '--output': expected one of table|json, got 'tab'");
    refuse_words(WORDS("--follow=yes"), "option '--follow' does not take a value, got 'yes'");
}

static void test_abbreviations_where_allowed(void **state)
{
    (void)state;
    const struct option_rules rules = {.abbreviations = true};
    struct sample s = {0};
    const struct option_set sets[] = {{table, &s}, {NULL, NULL}};
    struct option_arguments args;
    struct err e;
    char *good[] = {(char[]){"cmd"}, (char[]){"--foll"}, (char[]){"--set_key=k=1"},
                    (char[]){"--n"}, (char[]){"x"},      NULL};
    assert_int_equal(option_parse(sets, 5, good, &rules, &args, &e), ERR_OK);
    assert_true(s.follow);
    assert_string_equal(s.set[0], "k=1");
    assert_string_equal(s.name, "x");
    option_release(table, &s);
    option_arguments_release(&args);
    char *unclear[] = {(char[]){"cmd"}, (char[]){"--s=1"}, NULL};
    assert_int_equal(option_parse(sets, 2, unclear, &rules, &args, &e), ERR_INVALID_ARGUMENT);
    assert_string_equal(e.msg,
                        "option '--s' is ambiguous: it may mean --slots, --set-key-of-the-file or --secret");
    option_arguments_release(&args);
}

static void test_variables(void **state)
{
    (void)state;
    char *const env[] = {(char[]){"X_RANK=5"}, (char[]){"X_FOLLOW=0"}, (char[]){"X_NAME=v"},
                         (char[]){"X_SET_KEY_OF_THE_FILE=k=1"}, NULL};
    char *const wrong[] = {(char[]){"X_RANK=five"}, NULL};
    static const struct option_spec some[] = {
        {.name = "rank", .type = OPTION_INT, .offset = offsetof(struct sample, rank)},
        {.name = "follow", .type = OPTION_FLAG, .offset = offsetof(struct sample, follow)},
        {.name = "name", .type = OPTION_COPY, .offset = offsetof(struct sample, name)},
        {.name = "set-key-of-the-file", .type = OPTION_TEXTS, .offset = offsetof(struct sample, set)},
        {0},
    };
    struct sample s = {.name = xstrdup("typed")};
    struct err e;
    assert_int_equal(option_environment(some, &s, "X_", env, &e), ERR_OK);
    assert_int_equal(s.rank, 5);
    assert_false(s.follow);
    assert_string_equal(s.name, "typed"); /* the command line wins */
    assert_string_equal(s.set[0], "k=1");
    s.rank = 0;
    assert_int_equal(option_environment(some, &s, "X_", wrong, &e), ERR_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "X_RANK: invalid value for option '--rank': expected a number, got 'five'");
    option_release(some, &s);
}

/* A key that has no option. */
static const struct conf_field more[] = {
    {.key = "keep", .type = CONF_DURATION, .offset = offsetof(struct sample, keep_ms)},
    {0},
};

static enum err_code read_file(struct sample *s, const char *text, struct err *e)
{
    struct conf_field *fields = option_conf_fields(table, more);
    struct conf_doc *doc = NULL;
    enum err_code code = conf_open(&doc, text, strlen(text), "f.yaml", e);
    if (code == ERR_OK)
        code = conf_read(doc, fields, s, e);
    if (doc)
        conf_close(doc);
    free(fields);
    return code;
}

static void test_file_then_command_line(void **state)
{
    (void)state;
    struct sample s = {0};
    struct option_arguments args;
    struct err e = {0};
    if (read_file(&s, "name: box\nslots: 2\nfollow: true\nrate: 2.5\nports: 1-2\nset: [a, b]\nkeep: 2s\n",
                  &e))
        fail_msg("%s", e.msg);
    assert_string_equal(s.name, "box");
    assert_true(s.follow);
    assert_true(s.rate == 2.5);
    assert_int_equal(s.last, 2);
    assert_int_equal(s.keep_ms, 2000);
    assert_int_equal(
        parse_words(&s, &args, &e,
                    WORDS("--slots", "7", "--set-key-of-the-file", "c", "--set-key-of-the-file", "d")),
        ERR_OK);
    assert_string_equal(s.name, "box");
    assert_int_equal(s.slots, 7);
    assert_int_equal(strv_len(s.set), 2); /* the command line's list replaces the file's */
    assert_string_equal(s.set[0], "c");
    option_arguments_release(&args);
    option_release(table, &s);
}

static void test_file_and_command_line_share_their_checks(void **state)
{
    (void)state;
    struct sample s = {0};
    struct err e;
    assert_int_equal(read_file(&s, "slots: 5000\n", &e), ERR_INVALID_ARGUMENT);
    assert_string_equal(
        e.msg, "f.yaml:1:8: invalid value for 'slots': expected a number from 1 to 4096, got '5000'");
    assert_int_equal(read_file(&s, "ports: x\n", &e), ERR_INVALID_ARGUMENT);
    assert_string_equal(e.msg,
                        "f.yaml:1:8: invalid value for 'ports': expected a range such as 1-9, got 'x'");
    assert_int_equal(read_file(&s, "rank: 1\n", &e), ERR_INVALID_ARGUMENT); /* an option that is not a key */
    assert_non_null(strstr(e.msg, "unknown key 'rank'"));
    option_release(table, &s);
}

static void test_help(void **state)
{
    (void)state;
    CLEANUP(buf_release) struct buf out = {0};
    option_help(table, &out);
    assert_string_equal(
        out.data, "  -f, --follow                go on until the end\n"
                  "      --name NAME             a name of one's own, which is told in so many words that"
                  " --help has to\n"
                  "                              break the line once (default: host name)\n"
                  "  -r, --rank R                a rank\n"
                  "      --slots N               workers\n"
                  "      --rate X                a rate\n"
                  "  -o, --output table|json     a form\n"
                  "      --ports A-B             a range\n"
                  "      --fd FD                 a pipe\n"
                  "      --tee 0-9               a stream\n"
                  "      --set-key-of-the-file K=V\n"
                  "                              a key\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_forms),
        cmocka_unit_test(test_value_that_may_be_left_out),
        cmocka_unit_test(test_misuse),
        cmocka_unit_test(test_abbreviations_where_allowed),
        cmocka_unit_test(test_variables),
        cmocka_unit_test(test_file_then_command_line),
        cmocka_unit_test(test_file_and_command_line_share_their_checks),
        cmocka_unit_test(test_help),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
