/* Event files for TensorBoard: their bytes, and what is read of good and of damaged ones. The expected bytes were written by
 * TensorBoard's own messages. */
#include "tests/unit/base/check.h"

#include <math.h>
#include <string.h>

#include "base/buf.h"
#include "base/event_file/crc32c.h"
#include "base/event_file/event_read.h"
#include "base/event_file/event_write.h"
#include "base/mem.h"

static const char version_record[] =
    "\x18\x00\x00\x00\x00\x00\x00\x00\xa3\x7f\x4b\x22\x09\x00\x00\x00\x00\x00\x00\xf8\x3f\x1a\x0d\x62\x72\x61"
    "\x69\x6e\x2e\x45\x76\x65\x6e\x74\x3a\x32\x2a\x28\x64\x6c";
static const char loss_record[] =
    "\x1b\x00\x00\x00\x00\x00\x00\x00\x1a\x0d\x9e\x13\x09\x00\x00\x00\x00\x00\x00\xf8\x3f\x10\xac\x02\x2a\x0d"
    "\x0a\x0b\x0a\x04\x6c\x6f\x73\x73\x15\x00\x00\x80\x3e\x99\x08\xde\xed";

struct seen {
    struct event_scalar scalars[64];
    size_t count, damaged, malformed;
};

static void scalar_keep(void *ctx, const struct event_scalar *scalar)
{
    struct seen *s = ctx;

    assert_true(s->count < ARRAY_LEN(s->scalars));
    s->scalars[s->count++] = *scalar;
}

static struct seen read_all(const void *bytes, size_t len)
{
    struct seen s = {0};
    const uint8_t *at = bytes;

    for (;;) {
        struct event_record r;
        enum event_piece piece = event_record_next(at, len, &r);

        if (piece == EVENT_MORE || r.size > len)
            return s;
        s.damaged += piece == EVENT_DAMAGED;
        if (piece == EVENT_DATA)
            s.malformed += !event_scalars(r.data, r.len, scalar_keep, &s);
        at += r.size;
        len -= r.size;
    }
}

static void checksums_are_those_of_the_standard(void **state)
{
    const char zeros[32] = {0};

    (void)state;
    assert_int_equal(crc32c(0, "123456789", 9), 0xe3069283);
    assert_int_equal(crc32c(0, zeros, 32), 0x8a9136aa); /* RFC 3720, appendix B.4 */
    assert_int_equal(crc32c(crc32c(0, "1234", 4), "56789", 5), 0xe3069283);
}

static void records_are_those_of_tensorboard(void **state)
{
    CLEANUP(buf_release) struct buf out = {0};

    (void)state;
    event_put_version(&out, 1.5);
    assert_int_equal(out.len, sizeof(version_record) - 1);
    assert_memory_equal(out.data, version_record, out.len);
    buf_clear(&out);
    event_put_scalar(&out, 1.5, 300, "loss", 0.25);
    assert_int_equal(out.len, sizeof(loss_record) - 1);
    assert_memory_equal(out.data, loss_record, out.len);
}

static void scalars_are_read_back(void **state)
{
    CLEANUP(buf_release) struct buf out = {0};

    (void)state;
    event_put_version(&out, 1.5);
    event_put_scalar(&out, 2, 10, "loss", 2.5);
    event_put_scalar(&out, 3, 20, "loss", NAN);
    event_put_scalar(&out, 3, -1, "lr", INFINITY);
    struct seen s = read_all(out.data, out.len);
    assert_int_equal(s.count, 3);
    assert_int_equal(s.damaged + s.malformed, 0);
    assert_int_equal(s.scalars[0].step, 10);
    assert_string_equal(s.scalars[0].tag, "loss");
    assert_true(s.scalars[0].value == 2.5);
    assert_true(isnan(s.scalars[1].value));
    assert_true(s.scalars[2].step == -1 && isnan(s.scalars[2].value));
}

static void scalars_may_be_tensors(void **state)
{
    static const char *const messages[] = {
        "\x09\x00\x00\x00\x00\x00\x00\xf8\x3f\x10\x07\x2a\x1e\x0a\x1c\x0a\x03\x61\x63\x63\x42\x08\x08\x01\x2a\x04"
        "\x00\x00\x00\x3f\x4a\x0b\x0a\x09\x0a\x07\x73\x63\x61\x6c\x61\x72\x73",
        "\x09\x00\x00\x00\x00\x00\x00\xf8\x3f\x10\x07\x2a\x1e\x0a\x1c\x0a\x03\x61\x63\x63\x42\x08\x08\x01\x22\x04"
        "\x00\x00\x00\x3f\x4a\x0b\x0a\x09\x0a\x07\x73\x63\x61\x6c\x61\x72\x73",
    };
    static const char two[] =
        "\x09\x00\x00\x00\x00\x00\x00\xf8\x3f\x10\x07\x2a\x22\x0a\x20\x0a\x03\x61\x63\x63\x42\x0c\x08\x01\x2a\x08"
        "\x00\x00\x80\x3f\x00\x00\x00\x40\x4a\x0b\x0a\x09\x0a\x07\x73\x63\x61\x6c\x61\x72\x73";
    static const char with_double[] =
        "\x09\x00\x00\x00\x00\x00\x00\xf8\x3f\x10\x07\x2a\x22\x0a\x20\x0a\x03\x61\x63\x63\x42\x0c\x08\x02\x32\x08"
        "\x9a\x99\x99\x99\x99\x99\xb9\x3f\x4a\x0b\x0a\x09\x0a\x07\x73\x63\x61\x6c\x61\x72\x73";
    struct seen s = {0};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(messages); i++)
        assert_true(event_scalars((const uint8_t *)messages[i], 43, scalar_keep, &s));
    assert_int_equal(s.count, 2);
    assert_true(s.scalars[0].value == 0.5 && s.scalars[1].value == 0.5 && s.scalars[1].step == 7);
    assert_true(event_scalars((const uint8_t *)with_double, sizeof(with_double) - 1, scalar_keep, &s));
    assert_true(s.count == 3 && s.scalars[2].value == 0.1);
    assert_true(event_scalars((const uint8_t *)two, sizeof(two) - 1, scalar_keep, &s));
    assert_int_equal(s.count, 3); /* a tensor with two elements is no scalar */
}

/* Whichever bit is wrong, the records before and after it are read. */
static void a_wrong_bit_costs_one_record(void **state)
{
    CLEANUP(buf_release) struct buf out = {0};

    (void)state;
    event_put_scalar(&out, 1, 1, "a", 1);
    const size_t from = out.len;
    event_put_scalar(&out, 2, 2, "b", 2);
    const size_t to = out.len;
    event_put_scalar(&out, 3, 3, "c", 3);
    for (size_t bit = from * 8; bit < to * 8; bit++) {
        out.data[bit / 8] ^= (char)(1 << bit % 8);
        struct seen s = read_all(out.data, out.len);
        out.data[bit / 8] ^= (char)(1 << bit % 8);
        assert_int_equal(s.count, 2);
        assert_int_equal(s.damaged, 1);
        assert_string_equal(s.scalars[0].tag, "a");
        assert_string_equal(s.scalars[1].tag, "c");
    }
}

static void a_file_that_is_being_written_is_read_as_far_as_it_goes(void **state)
{
    CLEANUP(buf_release) struct buf out = {0};

    (void)state;
    event_put_scalar(&out, 1, 1, "a", 1);
    const size_t whole = out.len;
    event_put_scalar(&out, 2, 2, "b", 2);
    for (size_t len = 0; len < out.len; len++) {
        struct seen s = read_all(out.data, len);
        assert_int_equal(s.count, len >= whole);
        assert_int_equal(s.damaged, 0);
    }
}

static void a_long_record_is_skipped(void **state)
{
    uint8_t header[12] = {0, 0, 0x20}; /* 2 MiB */
    struct event_record r;
    uint32_t crc;

    (void)state;
    crc = crc32c_masked(header, 8);
    for (int i = 0; i < 4; i++)
        header[8 + i] = (uint8_t)(crc >> 8 * i);
    assert_int_equal(event_record_next(header, sizeof(header), &r), EVENT_LONG);
    assert_int_equal(r.size, (2 << 20) + 16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checksums_are_those_of_the_standard),
        cmocka_unit_test(records_are_those_of_tensorboard),
        cmocka_unit_test(scalars_are_read_back),
        cmocka_unit_test(scalars_may_be_tensors),
        cmocka_unit_test(a_wrong_bit_costs_one_record),
        cmocka_unit_test(a_file_that_is_being_written_is_read_as_far_as_it_goes),
        cmocka_unit_test(a_long_record_is_skipped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
