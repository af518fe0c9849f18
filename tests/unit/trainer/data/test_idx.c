/* Tests IDX files: valid files are read, also gzipped; every truncation and every kind of damage is an error
 * that names the file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "trainer/data/idx.h"

static char dir[64];

static int make_dir(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/ddp-idx-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
    struct err e;
    (void)state;
    return file_remove_tree(dir, &e) ? -1 : 0;
}

static char *path_of(const char *name)
{
    return xasprintf("%s/%s", dir, name);
}

static void file_put(const char *name, const uint8_t *bytes, size_t size)
{
    struct err e;
    CLEANUP(free_text) char *path = path_of(name);
    assert_int_equal(file_write_atomic(path, bytes, size, 0600, &e), ERR_OK);
}

static void put_gz(const char *name, const uint8_t *bytes, size_t size)
{
    CLEANUP(free_text) char *path = path_of(name);
    gzFile f = gzopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(gzwrite(f, bytes, (unsigned)size), size);
    assert_int_equal(gzclose(f), Z_OK);
}

static const uint8_t images[] = {0, 0, 8, 3,   0, 0,   0,   3, 0,   0, 0, 2, 0,   0,
                                 0, 2, 0, 255, 0, 255, 255, 0, 255, 0, 0, 0, 255, 255};
static const uint8_t labels[] = {0, 0, 8, 1, 0, 0, 0, 3, 2, 0, 1};

static enum err_code open_pair(struct err *e)
{
    struct dataset *train = NULL, *test = NULL;
    enum err_code code = idx_open_pair(&train, &test, dir, e);
    dataset_free(train);
    dataset_free(test);
    return code;
}

static void put_all(void)
{
    file_put("train-images-idx3-ubyte", images, sizeof(images));
    file_put("train-labels-idx1-ubyte", labels, sizeof(labels));
    put_gz("t10k-images-idx3-ubyte.gz", images, sizeof(images));
    put_gz("t10k-labels-idx1-ubyte.gz", labels, sizeof(labels));
}

static void a_pair_of_plain_and_gzipped_files(void **state)
{
    struct dataset *train = NULL, *test = NULL;
    struct err e = {0};
    float x[8];
    int32_t label[2];
    static const int64_t index[] = {2, 0};
    (void)state;
    put_all();
    assert_int_equal(idx_open_pair(&train, &test, dir, &e), ERR_OK);
    assert_int_equal(train->count, 3);
    assert_int_equal(train->in, 4);
    assert_int_equal(train->out, 3);
    assert_int_equal(test->count, 3);
    assert_int_equal(dataset_gather(test, index, 2, &(struct dataset_rows){.x = x, .label = label}, &e),
                     ERR_OK);
    assert_int_equal(label[0], 1);
    assert_int_equal(label[1], 2);
    /* half of the pixels are 0, half are 255: mean 127.5, deviation 127.5 */
    for (int i = 0; i < 4; i++) {
        assert_true(x[i] == (i < 2 ? -1.0f : 1.0f));
        assert_true(x[4 + i] == (i % 2 == 0 ? -1.0f : 1.0f));
    }
    dataset_free(train);
    dataset_free(test);
}

static struct dataset_mark mark_now(void)
{
    struct dataset *train = NULL, *test = NULL;
    struct err e = {0};
    assert_int_equal(idx_open_pair(&train, &test, dir, &e), ERR_OK);
    struct dataset_mark mark = train->mark;
    dataset_free(train);
    dataset_free(test);
    return mark;
}

/* Any byte of the four arrays changes the mark; compression does not. */
static void the_mark_depends_on_all_four_files(void **state)
{
    static const struct {
        const char *name;
        const uint8_t *bytes;
        size_t size;
    } files[] = {{"train-images-idx3-ubyte", images, sizeof(images)},
                 {"train-labels-idx1-ubyte", labels, sizeof(labels)},
                 {"t10k-images-idx3-ubyte", images, sizeof(images)},
                 {"t10k-labels-idx1-ubyte", labels, sizeof(labels)}};
    (void)state;
    put_all();
    const struct dataset_mark before = mark_now();
    assert_int_equal(before.bytes, 2 * (12 + 3));
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        uint8_t copy[sizeof(images)];
        memcpy(copy, files[i].bytes, files[i].size);
        file_put(files[i].name, copy, files[i].size); /* in place of the compressed file */
        assert_true(mark_now().digest == before.digest);
        copy[files[i].size - 2] ^= 1; /* a pixel, or a label of 0 */
        file_put(files[i].name, copy, files[i].size);
        assert_int_equal(mark_now().bytes, before.bytes);
        assert_true(mark_now().digest != before.digest);
        file_put(files[i].name, files[i].bytes, files[i].size);
    }
}

static void every_truncation_is_an_error(void **state)
{
    (void)state;
    for (size_t size = 0; size < sizeof(images); size++) {
        struct idx_array a;
        struct err e = {0};
        assert_int_equal(idx_parse(&a, images, size, &e), ERR_DATA_LOSS);
    }
    uint8_t longer[sizeof(images) + 1];
    struct idx_array a;
    struct err e = {0};
    memcpy(longer, images, sizeof(images));
    longer[sizeof(images)] = 0;
    assert_int_equal(idx_parse(&a, longer, sizeof(longer), &e), ERR_DATA_LOSS);
}

static void every_flipped_bit_of_the_header_is_an_error(void **state)
{
    (void)state;
    for (int bit = 0; bit < 16 * 8; bit++) {
        uint8_t copy[sizeof(images)];
        struct idx_array a;
        struct err e = {0};
        memcpy(copy, images, sizeof(images));
        copy[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_equal(idx_parse(&a, copy, sizeof(copy), &e), ERR_DATA_LOSS);
        assert_true(e.msg[0]);
    }
}

static void damaged_gzip_names_the_file(void **state)
{
    CLEANUP(free_text) char *path = path_of("t10k-images-idx3-ubyte.gz");
    CLEANUP(buf_release) struct buf whole = {0};
    struct err e = {0};
    (void)state;
    put_all();
    assert_int_equal(file_read(path, 1 << 20, &whole, &e), ERR_OK);
    for (size_t size = 2; size < whole.len; size++) {
        file_put("t10k-images-idx3-ubyte.gz", (const uint8_t *)whole.data, size);
        assert_int_equal(open_pair(&e), ERR_DATA_LOSS);
        assert_non_null(strstr(e.msg, path));
    }
    /* Starts after gzip's header, whose time and system do not matter. The last byte of the deflate stream
     * may end in bits without a meaning, so a change of that byte may pass; the checksum then guarantees the
     * same pixels. */
    int passed = 0;
    for (size_t at = 10; at < whole.len; at++) {
        whole.data[at] ^= 0x10;
        file_put("t10k-images-idx3-ubyte.gz", (const uint8_t *)whole.data, whole.len);
        if (open_pair(&e) == ERR_OK)
            passed++;
        else
            assert_true(e.code == ERR_DATA_LOSS && strstr(e.msg, path));
        whole.data[at] ^= 0x10;
    }
    assert_in_range(passed, 0, 1);
}

static void missing_and_mismatched_files(void **state)
{
    CLEANUP(free_text) char *path = path_of("train-labels-idx1-ubyte");
    static const uint8_t two[] = {0, 0, 8, 1, 0, 0, 0, 2, 2, 0};
    static const uint8_t beyond[] = {0, 0, 8, 1, 0, 0, 0, 3, 2, 0, 9};
    struct err e = {0};
    (void)state;
    put_all();
    file_put("train-labels-idx1-ubyte", two, sizeof(two));
    assert_int_equal(open_pair(&e), ERR_DATA_LOSS);
    assert_non_null(strstr(e.msg, "train-labels-idx1-ubyte: 2 labels, but 3 images"));
    put_all();
    put_gz("t10k-labels-idx1-ubyte.gz", beyond, sizeof(beyond));
    assert_int_equal(open_pair(&e), ERR_DATA_LOSS);
    assert_non_null(strstr(e.msg, "test label 9 is larger than the largest training label, 2"));
    put_all();
    assert_int_equal(unlink(path), 0);
    assert_int_equal(open_pair(&e), ERR_NOT_FOUND);
    assert_non_null(strstr(e.msg, path));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_pair_of_plain_and_gzipped_files, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(the_mark_depends_on_all_four_files, make_dir, remove_dir),
        cmocka_unit_test(every_truncation_is_an_error),
        cmocka_unit_test(every_flipped_bit_of_the_header_is_an_error),
        cmocka_unit_test_setup_teardown(damaged_gzip_names_the_file, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(missing_and_mismatched_files, make_dir, remove_dir),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
