#include "base/event_file/event_write.h"

#include <string.h>

#include "base/event_file/crc32c.h"
#include "base/mem.h"

/* Protobuf: a key is the field's number and its wire type. */
enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };
enum { EVENT_WALL_TIME = 1, EVENT_STEP = 2, EVENT_FILE_VERSION = 3, EVENT_SUMMARY = 5 };
enum { SUMMARY_VALUE = 1, VALUE_TAG = 1, VALUE_SIMPLE = 2 };

static void little_endian_put(struct buf *out, uint64_t value, int bytes)
{
    for (; bytes; bytes--, value >>= 8)
        buf_putc(out, (char)(value & 0xff));
}

static void varint_put(struct buf *out, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        buf_putc(out, (char)(value | 0x80));
    buf_putc(out, (char)value);
}

static void key_put(struct buf *out, int field, int wire)
{
    varint_put(out, (uint64_t)(field << 3 | wire));
}

static void bytes_put(struct buf *out, int field, const void *data, size_t len)
{
    key_put(out, field, WIRE_BYTES);
    varint_put(out, len);
    buf_append(out, data, len);
}

static void wall_time_put(struct buf *event, double wall_s)
{
    uint64_t bits;

    memcpy(&bits, &wall_s, sizeof(bits));
    key_put(event, EVENT_WALL_TIME, WIRE_64);
    little_endian_put(event, bits, 8);
}

static void record_put(struct buf *out, const struct buf *event)
{
    const size_t start = out->len;

    little_endian_put(out, event->len, 8);
    little_endian_put(out, crc32c_masked(out->data + start, 8), 4);
    buf_append(out, event->data, event->len);
    little_endian_put(out, crc32c_masked(event->data, event->len), 4);
}

void event_put_version(struct buf *out, double wall_s)
{
    static const char version[] = "brain.Event:2";
    CLEANUP(buf_release) struct buf event = {0};

    wall_time_put(&event, wall_s);
    bytes_put(&event, EVENT_FILE_VERSION, version, sizeof(version) - 1);
    record_put(out, &event);
}

void event_put_scalar(struct buf *out, double wall_s, int64_t step, const char *tag, double value)
{
    CLEANUP(buf_release) struct buf event = {0};
    CLEANUP(buf_release) struct buf summary = {0};
    CLEANUP(buf_release) struct buf item = {0};
    const float simple = (float)value;
    uint32_t bits;

    memcpy(&bits, &simple, sizeof(bits));
    bytes_put(&item, VALUE_TAG, tag, strlen(tag));
    key_put(&item, VALUE_SIMPLE, WIRE_32);
    little_endian_put(&item, bits, 4);
    bytes_put(&summary, SUMMARY_VALUE, item.data, item.len);
    wall_time_put(&event, wall_s);
    key_put(&event, EVENT_STEP, WIRE_VARINT);
    varint_put(&event, (uint64_t)step);
    bytes_put(&event, EVENT_SUMMARY, summary.data, summary.len);
    record_put(out, &event);
}
