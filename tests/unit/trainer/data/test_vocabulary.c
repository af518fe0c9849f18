/* Tests the symbols of a text, their numbers, and vocab.json. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "trainer/data/vocabulary.h"

static struct vocabulary text_scan(const char *text)
{
    struct vocabulary v;
    struct err e = {0};
    assert_int_equal(vocabulary_scan(&v, SYMBOL_CHARACTER, text, strlen(text), "t.txt", &e), ERR_OK);
    return v;
}

static void characters_are_numbered_in_rising_order(void **state)
{
    struct vocabulary v = text_scan("b\na\xc3\xa9"
                                    "a\xf0\x9f\x98\x80");
    (void)state;
    assert_int_equal(v.count, 5);
    assert_int_equal(vocabulary_find(&v, '\n'), 0);
    assert_int_equal(vocabulary_find(&v, 'a'), 1);
    assert_int_equal(vocabulary_find(&v, 0xe9), 3);
    assert_int_equal(vocabulary_find(&v, 0x1f600), 4);
    assert_int_equal(vocabulary_find(&v, 'c'), -1);
    assert_int_equal(vocabulary_find(&v, 0x10ffff), -1);
    vocabulary_release(&v);
}

static void an_encoded_text_decodes_to_itself(void **state)
{
    static const char text[] = "na\xc3\xafve \xe2\x82\xac \xf0\x9f\x98\x80 and plain\n";
    struct vocabulary v = text_scan(text);
    CLEANUP(buf_release) struct buf back = {0};
    struct err e = {0};
    int32_t *numbers;
    size_t count;
    (void)state;
    assert_int_equal(vocabulary_encode(&v, text, strlen(text), &numbers, &count, &e), ERR_OK);
    for (size_t i = 0; i < count; i++)
        vocabulary_put(&v, numbers[i], &back);
    assert_string_equal(back.data, text);
    free(numbers);
    assert_int_equal(vocabulary_encode(&v, "an x", 4, &numbers, &count, &e), ERR_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "'x' is not one of the 13 symbols of the model");
    vocabulary_release(&v);
}

static void bytes_are_their_own_numbers(void **state)
{
    struct vocabulary v;
    struct err e = {0};
    CLEANUP(buf_release) struct buf back = {0};
    int32_t *numbers;
    size_t count;
    (void)state;
    assert_int_equal(vocabulary_scan(&v, SYMBOL_BYTE, "\xff\0", 2, "t", &e), ERR_OK);
    assert_int_equal(v.count, 256);
    assert_int_equal(vocabulary_encode(&v, "\xff\0z", 3, &numbers, &count, &e), ERR_OK);
    assert_int_equal(count, 3);
    assert_int_equal(numbers[0], 255);
    assert_int_equal(numbers[1], 0);
    for (size_t i = 0; i < count; i++)
        vocabulary_put(&v, numbers[i], &back);
    assert_memory_equal(back.data, "\xff\0z", 3);
    free(numbers);
    vocabulary_release(&v);
}

/* A text that is cut anywhere: the character that the cut goes through is left to the next piece. */
static void a_text_is_cut_before_a_character_that_is_not_whole(void **state)
{
    static const char text[] = "aé€𝄞a";
    static const size_t ends[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 11};
    (void)state;
    for (size_t size = 0; size < sizeof(text); size++)
        assert_int_equal(utf8_whole(text, size), ends[size]);
    /* Invalid bytes are not left, because the next piece could not tell where they are. */
    assert_int_equal(utf8_whole("a\xff", 2), 2);
    assert_int_equal(utf8_whole("a\x80\x80\x80\x80", 5), 5);
    assert_int_equal(utf8_whole("\xc3\x80\x80", 3), 3);
}

static void bytes_that_are_not_utf8_are_named(void **state)
{
    static const struct {
        const char *text;
        size_t size;
        const char *says;
    } bad[] = {
        {"ab\xff", 3, "t.txt: byte 2 is not UTF-8: to train on any bytes, set train.data.symbols to byte"},
        {"a\xc3", 2, "byte 1 is not UTF-8"},        /* truncated */
        {"\xc0\xaf", 2, "byte 0 is not UTF-8"},     /* overlong */
        {"\xed\xa0\x80", 3, "byte 0 is not UTF-8"}, /* a surrogate */
        {"\xf4\x90\x80\x80", 4, "byte 0 is not UTF-8"},
        {"\xc3\x41", 2, "byte 0 is not UTF-8"},
        {"ab\0", 3, "byte 2 is a NUL"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct vocabulary v;
        struct err e = {0};
        assert_int_equal(vocabulary_scan(&v, SYMBOL_CHARACTER, bad[i].text, bad[i].size, "t.txt", &e),
                         ERR_DATA_LOSS);
        assert_non_null(strstr(e.msg, bad[i].says));
        vocabulary_release(&v);
    }
}

static void json_reads_back(void **state)
{
    struct vocabulary v = text_scan("\"\\\n\x01 z\xe2\x82\xac"), back;
    CLEANUP(buf_release) struct buf json = {0};
    struct err e = {0};
    (void)state;
    vocabulary_print(&v, &json);
    assert_int_equal(vocabulary_parse(&back, json.data, json.len, "vocab.json", &e), ERR_OK);
    assert_int_equal(back.count, v.count);
    assert_memory_equal(back.symbols, v.symbols, (size_t)v.count * sizeof(*v.symbols));
    vocabulary_release(&v);
    vocabulary_release(&back);
}

static void invalid_vocab_json_is_refused(void **state)
{
    static const struct {
        const char *json, *says;
    } bad[] = {
        {"{\"a\":0,\"bc\":1}", "vocab.json: expected a single character, got 'bc'"},
        {"{\"a\":1,\"b\":0}", "does not have the number that follows"},
        {"{\"a\":\"0\"}", "does not have the number that follows"},
        {"{}", "has no characters"},
        {"{\"a\":0", "vocab.json"},
        {"{\"\":0}", "expected a single character, got ''"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct vocabulary v;
        struct err e = {0};
        assert_int_equal(vocabulary_parse(&v, bad[i].json, strlen(bad[i].json), "vocab.json", &e),
                         ERR_DATA_LOSS);
        assert_non_null(strstr(e.msg, bad[i].says));
        vocabulary_release(&v);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(characters_are_numbered_in_rising_order),
        cmocka_unit_test(an_encoded_text_decodes_to_itself),
        cmocka_unit_test(bytes_are_their_own_numbers),
        cmocka_unit_test(a_text_is_cut_before_a_character_that_is_not_whole),
        cmocka_unit_test(bytes_that_are_not_utf8_are_named),
        cmocka_unit_test(json_reads_back),
        cmocka_unit_test(invalid_vocab_json_is_refused),
    };
    return cmocka_run_group_tests_name("vocabulary", tests, NULL, NULL);
}
