#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/digest.h"
#include "base/file.h"
#include "base/mem.h"
#include "trainer/data/corpus.h"
#include "trainer/data/dataset.h"

static char directory[] = "/tmp/ddp-windows-XXXXXX";

static char *write_bytes(const char *name, const void *bytes, size_t size)
{
    char *path = xasprintf("%s/%s", directory, name);
    struct err e = {0};
    assert_int_equal(file_write_atomic(path, bytes, size, 0600, &e), ERR_OK);
    return path;
}

static char *write_text(const char *name, const char *text)
{
    return write_bytes(name, text, strlen(text));
}

static struct train_spec spec_of(enum data_type type, char *path, int64_t context)
{
    struct train_spec s = {.model = {.type = MODEL_GPT, .context = context}};
    s.data.type = type;
    s.data.path = path;
    s.data.split = 0.5;
    return s;
}

static void window_row(const struct dataset *d, int64_t index, int32_t *token, int32_t *label)
{
    struct err e = {0};
    struct dataset_rows out = {.token = token, .label = label};
    assert_int_equal(dataset_gather(d, &index, 1, &out, &e), ERR_OK);
}

static void dataset_refused(const struct train_spec *s, enum err_code code, const char *words)
{
    struct dataset *train = NULL, *test = NULL;
    struct err e = {0};
    assert_int_equal(dataset_open(&train, &test, s, &e), code);
    assert_null(train);
    assert_null(test);
    if (!strstr(e.msg, words))
        fail_msg("'%s' is not in '%s'", words, e.msg);
}

/* "abracadabra" by character has the symbols a b c d r and the numbers 01402030140. */
static void text_is_read_by_character(void **state)
{
    CLEANUP(free_text) char *path = write_text("a.txt", "abracadabraabracadabra");
    struct train_spec s = spec_of(DATA_TEXT, path, 4);
    struct dataset *train, *test;
    struct err e = {0};
    int32_t token[4], label[4];
    (void)state;
    assert_int_equal(dataset_open(&train, &test, &s, &e), ERR_OK);
    assert_true(train->windows && test->windows);
    assert_int_equal(train->out, 5);
    assert_int_equal(train->in, 4);
    assert_int_equal(train->count, 11 - 4); /* one window at each position */
    assert_int_equal(test->count, 2);       /* adjacent windows: (11 - 1) / 4 */
    assert_int_equal(train->vocabulary->count, 5);
    window_row(train, 1, token, label);
    assert_memory_equal(token, ((int32_t[]){1, 4, 0, 2}), sizeof(token));
    assert_memory_equal(label, ((int32_t[]){4, 0, 2, 0}), sizeof(label));
    window_row(train, 6, token, label);
    assert_memory_equal(label, ((int32_t[]){0, 1, 4, 0}), sizeof(label)); /* the last symbol of the split */
    window_row(test, 1, token, label);
    assert_memory_equal(token, ((int32_t[]){2, 0, 3, 0}), sizeof(token));
    assert_memory_equal(label, ((int32_t[]){0, 3, 0, 1}), sizeof(label));
    dataset_free(train);
    dataset_free(test);
}

/* A character of several bytes counts as one symbol; by byte there are more symbols. */
static void characters_beyond_ascii(void **state)
{
    CLEANUP(free_text) char *path = write_text("u.txt", "aé€𝄞aé€𝄞aé€𝄞aé€𝄞");
    struct train_spec s = spec_of(DATA_TEXT, path, 3);
    struct dataset *train, *test;
    struct err e = {0};
    int32_t token[3], label[3];
    (void)state;
    assert_int_equal(dataset_open(&train, &test, &s, &e), ERR_OK);
    assert_int_equal(train->out, 4);
    assert_int_equal(train->count, 8 - 3);
    window_row(train, 1, token, label);
    assert_memory_equal(token, ((int32_t[]){1, 2, 3}), sizeof(token));
    assert_memory_equal(label, ((int32_t[]){2, 3, 0}), sizeof(label));
    dataset_free(train);
    dataset_free(test);
    s.data.symbols = SYMBOL_BYTE;
    assert_int_equal(dataset_open(&train, &test, &s, &e), ERR_OK);
    assert_int_equal(train->out, 256);
    assert_int_equal(train->count, 20 - 3);
    window_row(train, 0, token, label);
    assert_memory_equal(token, ((int32_t[]){'a', 0xc3, 0xa9}), sizeof(token));
    dataset_free(train);
    dataset_free(test);
}

/* 300 different characters: each takes two bytes when decoded. */
static void many_characters(void **state)
{
    char text[3 * 700 + 1], *at = text;
    struct train_spec s;
    struct dataset *train, *test;
    struct err e = {0};
    int32_t token[5], label[5];
    (void)state;
    for (uint32_t i = 0; i < 700; i++)
        at += utf8_encode(0x4e00 + i % 300, at);
    CLEANUP(free_text) char *path = write_bytes("many.txt", text, (size_t)(at - text));
    s = spec_of(DATA_TEXT, path, 5);
    assert_int_equal(dataset_open(&train, &test, &s, &e), ERR_OK);
    assert_int_equal(train->out, 300);
    window_row(train, 296, token, label);
    assert_memory_equal(token, ((int32_t[]){296, 297, 298, 299, 0}), sizeof(token));
    dataset_free(train);
    dataset_free(test);
}

static void validation_file(void **state)
{
    CLEANUP(free_text) char *path = write_text("train.txt", "abcabc");
    CLEANUP(free_text) char *good = write_text("good.txt", "cbacb");
    CLEANUP(free_text) char *bad = write_text("bad.txt", "abxab");
    CLEANUP(free_text)
    char *worse = write_text("worse.txt", "ab\xc3\xa9"
                                          "ab");
    struct train_spec s = spec_of(DATA_TEXT, path, 2);
    struct dataset *train, *test;
    struct err e = {0};
    int32_t token[2], label[2];
    (void)state;
    s.data.val_path = good;
    assert_int_equal(dataset_open(&train, &test, &s, &e), ERR_OK);
    assert_int_equal(train->count, 4); /* the whole file */
    assert_int_equal(test->count, 2);
    window_row(test, 1, token, label);
    assert_memory_equal(label, ((int32_t[]){2, 1}), sizeof(label));
    dataset_free(train);
    dataset_free(test);
    s.data.val_path = bad;
    dataset_refused(&s, ERR_DATA_LOSS, "bad.txt: byte 2 (0x78) does not occur in the training text");
    s.data.val_path = worse;
    dataset_refused(&s, ERR_DATA_LOSS, "byte 2 (0xc3) does not occur in the training text");
}

static char *write_tokens(const char *name, const int32_t *header, size_t count)
{
    uint16_t tokens[64];
    char bytes[1024 + sizeof(tokens)] = {0};
    size_t at = header ? 1024 : 0;
    if (header)
        memcpy(bytes, header, 3 * sizeof(*header));
    for (size_t i = 0; i < count; i++)
        tokens[i] = (uint16_t)(1000 * i);
    memcpy(bytes + at, tokens, count * 2);
    return write_bytes(name, bytes, at + count * 2);
}

static void token_files_of_both_formats(void **state)
{
    CLEANUP(free_text) char *bare = write_tokens("bare.bin", NULL, 20);
    CLEANUP(free_text) char *headed = write_tokens("headed.bin", (int32_t[]){20240520, 1, 20}, 20);
    struct dataset *train, *test;
    struct err e = {0};
    int32_t token[3], label[3];
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct train_spec s = spec_of(DATA_TOKENS, i ? headed : bare, 3);
        s.model.vocab = 20000;
        assert_int_equal(dataset_open(&train, &test, &s, &e), ERR_OK);
        assert_int_equal(train->out, 20000);
        assert_int_equal(train->count, 7);
        assert_int_equal(test->count, 3);
        assert_null(train->vocabulary);
        window_row(test, 0, token, label);
        assert_memory_equal(token, ((int32_t[]){10000, 11000, 12000}), sizeof(token));
        assert_memory_equal(label, ((int32_t[]){11000, 12000, 13000}), sizeof(label));
        dataset_free(train);
        dataset_free(test);
    }
}

static enum err_code window_gather(const struct dataset *d, int64_t index, int32_t *token, struct err *e)
{
    int32_t label[4];
    struct dataset_rows rows = {.token = token, .label = label};
    return dataset_gather(d, &index, 1, &rows, e);
}

/* In a small file the invalid token is found when the file is opened, in both formats. */
static void an_invalid_token(void **state)
{
    CLEANUP(free_text) char *bare = write_tokens("large.bin", NULL, 20);
    CLEANUP(free_text) char *headed = write_tokens("behind.bin", (int32_t[]){20240520, 1, 20}, 20);
    struct train_spec s = spec_of(DATA_TOKENS, bare, 3);
    (void)state;
    s.model.vocab = 8000;
    dataset_refused(&s, ERR_DATA_LOSS, "large.bin: token 8 is 8000, but model.vocab is 8000");
    s.data.path = headed;
    dataset_refused(&s, ERR_DATA_LOSS, "behind.bin: token 8 is 8000, but model.vocab is 8000");
}

/* Not every page of 65 MiB is read when the file is opened. */
static void an_invalid_token_in_a_large_file(void **state)
{
    const off_t size = 65 << 20;
    CLEANUP(free_text) char *path = write_bytes("vast.bin", "\0\0", 2);
    CLEANUP(close_fd) int fd = open(path, O_WRONLY | O_CLOEXEC);
    struct train_spec s = spec_of(DATA_TOKENS, path, 4);
    struct dataset *train, *test;
    struct err e = {0};
    int32_t token[4];
    (void)state;
    s.model.vocab = 8000;
    assert_int_equal(ftruncate(fd, size), 0);
    assert_int_equal(pwrite(fd, "\x40\x1f", 2, 3 * 4096), 2);
    assert_int_equal(dataset_open(&train, &test, &s, &e), ERR_OK);
    assert_int_equal(window_gather(train, 6144 - 5, token, &e), ERR_OK);
    assert_int_equal(window_gather(train, 6144 - 4, token, &e), ERR_DATA_LOSS); /* the last label */
    assert_non_null(strstr(e.msg, "vast.bin: token 6144 is 8000, but model.vocab is 8000"));
    dataset_free(train);
    dataset_free(test);
    assert_int_equal(pwrite(fd, "\x40\x1f", 2, size - 2), 2);
    dataset_refused(&s, ERR_DATA_LOSS, "token 34078719 is 8000");
}

/* The file becomes shorter while it is open: the read returns an error that names the file, and neither zeros
 * nor a signal. */
static void a_file_that_becomes_shorter(void **state)
{
    CLEANUP(free_text) char *tokens = write_tokens("shorter.bin", NULL, 20);
    CLEANUP(free_text) char *text = write_text("shorter.txt", "abracadabraabracadabra");
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct train_spec s = spec_of(i ? DATA_TEXT : DATA_TOKENS, i ? text : tokens, 4);
        struct dataset *train, *test;
        struct err e = {0};
        int32_t token[4];
        s.model.vocab = 50257;
        assert_int_equal(dataset_open(&train, &test, &s, &e), ERR_OK);
        assert_int_equal(truncate(s.data.path, 9), 0);
        assert_int_equal(window_gather(train, i ? 4 : 0, token, &e), i ? ERR_OK : ERR_DATA_LOSS);
        assert_int_equal(window_gather(train, 5, token, &e), ERR_DATA_LOSS);
        assert_non_null(strstr(e.msg, i ? "shorter.txt: has no byte 9: truncated"
                                        : "shorter.bin: has no byte 10: truncated"));
        dataset_free(train);
        dataset_free(test);
    }
}

/* ---- a text that is longer than the blocks in which it is read */

enum { BLOCK = 256 << 10, UNIT = 10 };

/* The file that becomes shorter while it is opened: before which read of it, and how long it is then. */
static struct {
    const char *path; /* NULL: none */
    int64_t size;
    int reads;
} shortened;

static int reads_made, reads_before_advice; /* the second: -1 before posix_fadvise is called */

int __wrap_posix_fadvise(int fd, off_t at, off_t size, int advice);
int __wrap_posix_fadvise(int fd, off_t at, off_t size, int advice)
{
    (void)fd;
    (void)at;
    (void)size;
    assert_int_equal(advice, POSIX_FADV_RANDOM);
    reads_before_advice = reads_made;
    return 0;
}

enum err_code __wrap_fd_read_at(int fd, void *out, size_t size, uint64_t at, struct err *e);
enum err_code __real_fd_read_at(int fd, void *out, size_t size, uint64_t at, struct err *e);
enum err_code __wrap_fd_read_at(int fd, void *out, size_t size, uint64_t at, struct err *e)
{
    reads_made++;
    if (shortened.path && shortened.reads-- == 0)
        assert_int_equal(truncate(shortened.path, shortened.size), 0);
    return __real_fd_read_at(fd, out, size, at, e);
}

/* Fills a text of `size` bytes: `first` letters a, then characters of 1 to 4 bytes, then letters a. The caller frees. */
static char *long_text(size_t first, size_t size)
{
    char *text = xmalloc(size);
    memset(text, 'a', size);
    for (size_t at = first; at + UNIT <= size; at += UNIT)
        memcpy(text + at, "aé€𝄞", UNIT);
    return text;
}

/* Blocks end after each byte of each character. The symbols are those of the text in one piece, and the mark is its digest. */
static void characters_across_the_ends_of_blocks(void **state)
{
    const size_t size = 2 * BLOCK + 777;
    (void)state;
    for (size_t first = 0; first < UNIT; first++) {
        CLEANUP(free_text) char *text = long_text(first, size);
        CLEANUP(free_text) char *path = write_bytes("long.txt", text, size);
        struct corpus c;
        struct err e = {0};
        int64_t i = 0;
        assert_int_equal(corpus_open_text(&c, path, SYMBOL_CHARACTER, NULL, &e), ERR_OK);
        assert_int_equal(c.symbols, 4);
        assert_int_equal(c.mark.bytes, size);
        assert_true(c.mark.digest == digest64(0, text, size));
        for (size_t at = 0; at < size; i++) {
            uint32_t symbol;
            int32_t number;
            at += utf8_decode(text + at, size - at, &symbol);
            assert_int_equal(corpus_read(&c, i, 1, &number, &e), ERR_OK);
            if (number != vocabulary_find(&c.vocabulary, symbol))
                fail_msg("first %zu: symbol %lld has number %d", first, (long long)i, (int)number);
        }
        assert_int_equal(c.count, i);
        corpus_release(&c);
    }
}

static void long_text_refused(const char *path, const struct vocabulary *known, const char *says)
{
    struct corpus c;
    struct err e = {0};
    assert_int_equal(corpus_open_text(&c, path, SYMBOL_CHARACTER, known, &e), ERR_DATA_LOSS);
    if (!strstr(e.msg, says))
        fail_msg("'%s' is not in '%s'", says, e.msg);
}

static void invalid_bytes_across_the_ends_of_blocks_are_named(void **state)
{
    const size_t size = 2 * BLOCK + 777;
    CLEANUP(free_text) char *text = long_text(0, size);
    struct corpus known;
    struct err e = {0};
    (void)state;
    CLEANUP(free_text) char *good = write_bytes("good-long.txt", text, size);
    assert_int_equal(corpus_open_text(&known, good, SYMBOL_CHARACTER, NULL, &e), ERR_OK);
    memset(text + BLOCK - 14, 'a', 30);      /* both ends are those of a character */
    memcpy(text + BLOCK - 2, "\xf0\x9d", 2); /* the first half of a character */
    CLEANUP(free_text) char *half = write_bytes("half.txt", text, size);
    long_text_refused(half, NULL, "half.txt: byte 262142 is not UTF-8");
    long_text_refused(half, &known.vocabulary, "half.txt: byte 262142 is not UTF-8");
    memcpy(text + BLOCK - 2, "\x80\x80", 2); /* bytes that only follow others */
    CLEANUP(free_text) char *lone = write_bytes("lone.txt", text, size);
    long_text_refused(lone, NULL, "lone.txt: byte 262142 is not UTF-8");
    memcpy(text + BLOCK - 2, "\xc3\xbf", 2);
    CLEANUP(free_text) char *other = write_bytes("other.txt", text, size);
    long_text_refused(other, &known.vocabulary,
                      "other.txt: the character at byte 262142 does not occur in the training text");
    memset(text, 'a', size);
    text[size - 1] = '\xe2';
    CLEANUP(free_text) char *end = write_bytes("end.txt", text, size);
    long_text_refused(end, NULL, "end.txt: byte 525064 is not UTF-8");
    corpus_release(&known);
    /* One byte for each character: its numbers are not kept, and only checked. */
    memset(text, 'a', size);
    CLEANUP(free_text) char *letters = write_bytes("letters.txt", text, size);
    assert_int_equal(corpus_open_text(&known, letters, SYMBOL_CHARACTER, NULL, &e), ERR_OK);
    text[BLOCK] = 'b';
    CLEANUP(free_text) char *letter = write_bytes("letter.txt", text, size);
    long_text_refused(letter, &known.vocabulary,
                      "letter.txt: byte 262144 (0x62) does not occur in the training text");
    corpus_release(&known);
}

/* A file is cut by another program while this one reads it for its mark, then its vocabulary, then its numbers. */
static void a_file_that_becomes_shorter_while_it_is_opened(void **state)
{
    const size_t size = 2 * BLOCK + 777;
    CLEANUP(free_text) char *text = long_text(0, size);
    (void)state;
    for (int reads = 0; reads < 9; reads++) {
        CLEANUP(free_text) char *path = write_bytes("cut.txt", text, size);
        shortened.path = path;
        shortened.size = 100;
        shortened.reads = reads;
        long_text_refused(path, NULL, "cut.txt: has no byte ");
        shortened.path = NULL;
    }
    CLEANUP(free_text) char *tokens = write_bytes("cut.bin", text, size - 1);
    struct train_spec s = spec_of(DATA_TOKENS, tokens, 4);
    s.model.vocab = 1 << 15;
    shortened.path = tokens;
    shortened.reads = 3; /* the mark is taken: its header */
    dataset_refused(&s, ERR_DATA_LOSS, "cut.bin: has no byte 100: truncated");
    shortened.path = NULL;
}

/* Reads one after the other are those in which read-ahead helps. */
static void only_windows_of_a_large_file_are_read_without_read_ahead(void **state)
{
    CLEANUP(free_text) char *path = write_bytes("ahead.bin", "\0\0", 2);
    struct corpus c;
    struct err e = {0};
    (void)state;
    for (int large = 0; large < 2; large++) {
        assert_int_equal(truncate(path, (1 << 30) + 2 * large), 0);
        reads_made = 0;
        reads_before_advice = -1;
        assert_int_equal(corpus_open_tokens(&c, path, 50257, &e), ERR_OK);
        assert_true(reads_made > 512);
        assert_int_equal(reads_before_advice, large ? reads_made : -1);
        corpus_release(&c);
    }
}

/* Snapshots hold the mark of a large file, too. */
static void the_mark_of_a_large_file_stays_the_same(void **state)
{
    const off_t size = 65 << 20;
    CLEANUP(free_text) char *path = write_bytes("mark.bin", "abcd", 4);
    CLEANUP(close_fd) int fd = open(path, O_WRONLY | O_CLOEXEC);
    struct corpus c;
    struct err e = {0};
    (void)state;
    assert_int_equal(ftruncate(fd, size), 0);
    assert_int_equal(pwrite(fd, "efgh", 4, size - 4), 4);
    assert_int_equal(corpus_open_tokens(&c, path, 1 << 16, &e), ERR_OK);
    assert_int_equal(c.mark.bytes, size);
    assert_true(c.mark.digest == 0x7e8f7ff10f87ba11u);
    corpus_release(&c);
}

static void unusable_files_are_refused(void **state)
{
    CLEANUP(free_text) char *empty = write_text("empty.txt", "");
    CLEANUP(free_text) char *small = write_text("small.txt", "abcabc");
    CLEANUP(free_text) char *latin = write_text("latin.txt", "abc\xe9xyz");
    CLEANUP(free_text) char *odd = write_text("odd.bin", "abc");
    CLEANUP(free_text) char *newer = write_tokens("newer.bin", (int32_t[]){20240520, 2, 20}, 20);
    CLEANUP(free_text) char *cut = write_tokens("cut.bin", (int32_t[]){20240520, 1, 21}, 20);
    CLEANUP(free_text) char *wide = write_tokens("wide.bin", (int32_t[]){20240801, 7, 20}, 20);
    CLEANUP(free_text) char *none = xasprintf("%s/none.txt", directory);
    struct train_spec s = spec_of(DATA_TEXT, none, 4);
    (void)state;
    dataset_refused(&s, ERR_NOT_FOUND, "none.txt");
    s.data.path = directory;
    dataset_refused(&s, ERR_FAILED_PRECONDITION, "not a file");
    s.data.path = empty;
    dataset_refused(&s, ERR_FAILED_PRECONDITION, "the file is empty");
    s.data.path = small;
    dataset_refused(&s, ERR_FAILED_PRECONDITION,
                    "the training split is too short for a context of 4: expected at least 5 symbols, got 3");
    s.model.context = 2;
    s.data.split = 0.9;
    dataset_refused(
        &s, ERR_FAILED_PRECONDITION,
        "the validation split is too short for a context of 2: expected at least 3 symbols, got 1");
    s.data.split = 0.5;
    s.model.vocab = 2;
    dataset_refused(&s, ERR_FAILED_PRECONDITION,
                    "model.vocab: expected at least 3, the number of symbols, got 2");
    s.data.path = latin;
    dataset_refused(&s, ERR_DATA_LOSS, "byte 3 is not UTF-8");
    s = spec_of(DATA_TOKENS, odd, 1);
    s.model.vocab = 50257;
    dataset_refused(&s, ERR_DATA_LOSS, "not a file of 16-bit tokens: its size, 3 bytes, is odd");
    s.data.path = newer;
    dataset_refused(&s, ERR_DATA_LOSS, "unsupported version of a token file: expected 1, got 2");
    s.data.path = cut;
    dataset_refused(&s, ERR_DATA_LOSS,
                    "truncated or damaged: expected 21 tokens, as its header says, got 20.0");
    s.data.path = wide;
    dataset_refused(&s, ERR_DATA_LOSS, "unsupported 32-bit tokens (magic 20240801): convert them to 16 bits");
}

static void the_mark_depends_on_both_files(void **state)
{
    CLEANUP(free_text) char *one = write_text("m1.txt", "abcabcabcabc");
    CLEANUP(free_text) char *two = write_text("m2.txt", "abcabcabcabd");
    char *paths[3][2] = {{one, NULL}, {one, one}, {one, two}};
    struct dataset_mark marks[3];
    struct err e = {0};
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct train_spec s = spec_of(DATA_TEXT, paths[i][0], 2);
        struct dataset *train, *test;
        s.data.symbols = SYMBOL_BYTE;
        s.data.val_path = paths[i][1];
        assert_int_equal(dataset_open(&train, &test, &s, &e), ERR_OK);
        marks[i] = train->mark;
        dataset_free(train);
        dataset_free(test);
    }
    assert_int_equal(marks[0].bytes, 12);
    assert_int_equal(marks[1].bytes, 24);
    assert_true(marks[1].digest != marks[0].digest && marks[1].digest != marks[2].digest);
}

static int make_directory(void **state)
{
    (void)state;
    return mkdtemp(directory) ? 0 : -1;
}

static int remove_directory(void **state)
{
    struct err e = {0};
    (void)state;
    return file_remove_tree(directory, &e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_read_by_character),
        cmocka_unit_test(characters_beyond_ascii),
        cmocka_unit_test(many_characters),
        cmocka_unit_test(validation_file),
        cmocka_unit_test(token_files_of_both_formats),
        cmocka_unit_test(an_invalid_token),
        cmocka_unit_test(an_invalid_token_in_a_large_file),
        cmocka_unit_test(a_file_that_becomes_shorter),
        cmocka_unit_test(characters_across_the_ends_of_blocks),
        cmocka_unit_test(invalid_bytes_across_the_ends_of_blocks_are_named),
        cmocka_unit_test(a_file_that_becomes_shorter_while_it_is_opened),
        cmocka_unit_test(only_windows_of_a_large_file_are_read_without_read_ahead),
        cmocka_unit_test(the_mark_of_a_large_file_stays_the_same),
        cmocka_unit_test(unusable_files_are_refused),
        cmocka_unit_test(the_mark_depends_on_both_files),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
