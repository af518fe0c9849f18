#include "base/event_file/event_read.h"

#include <math.h>
#include <string.h>

#include "base/event_file/crc32c.h"

#define HEADER_SIZE 12 /* length and its checksum */
#define FOOTER_SIZE 4

/* Numbers of fields and of types; event.proto, summary.proto and tensor.proto of TensorFlow. */
enum { EVENT_WALL_TIME = 1, EVENT_STEP = 2, EVENT_SUMMARY = 5, SUMMARY_VALUE = 1 };
enum { VALUE_TAG = 1, VALUE_SIMPLE = 2, VALUE_TENSOR = 8 };
enum { TENSOR_TYPE = 1, TENSOR_CONTENT = 4, TENSOR_FLOATS = 5, TENSOR_DOUBLES = 6 };
enum { TYPE_FLOAT = 1, TYPE_DOUBLE = 2 };

static uint64_t little_endian_get(const uint8_t *at, int bytes)
{
    uint64_t value = 0;

    for (int i = bytes; i-- > 0;)
        value = value << 8 | at[i];
    return value;
}

static bool header_is_right(const uint8_t *at)
{
    return (uint32_t)little_endian_get(at + 8, 4) == crc32c_masked(at, 8);
}

enum event_piece event_record_next(const uint8_t *bytes, size_t len, struct event_record *out)
{
    uint64_t size;

    *out = (struct event_record){0};
    if (len < HEADER_SIZE)
        return EVENT_MORE;
    if (!header_is_right(bytes)) {
        /* The length may be wrong, so the next record begins at the next header with a correct checksum. */
        do
            out->size++;
        while (out->size + HEADER_SIZE <= len && !header_is_right(bytes + out->size));
        return EVENT_DAMAGED;
    }
    size = little_endian_get(bytes, 8);
    if (size > (uint64_t)1 << 40) { /* the checksum is correct, but no record is that long */
        out->size = HEADER_SIZE;
        return EVENT_DAMAGED;
    }
    out->size = HEADER_SIZE + size + FOOTER_SIZE;
    if (size > EVENT_DATA_MOST)
        return EVENT_LONG;
    if (out->size > len)
        return EVENT_MORE;
    out->data = bytes + HEADER_SIZE;
    out->len = (size_t)size;
    return (uint32_t)little_endian_get(out->data + size, 4) == crc32c_masked(out->data, out->len)
               ? EVENT_DATA
               : EVENT_DAMAGED;
}

/* A protobuf message and the field that was read last. */
struct message {
    const uint8_t *at, *end;
    uint64_t field;
    int wire;
    uint64_t number;      /* wire types 0, 1 and 5 */
    const uint8_t *bytes; /* wire type 2 */
    size_t len;
};

static bool varint_get(struct message *m, uint64_t *out)
{
    *out = 0;
    for (int shift = 0; shift < 64 && m->at < m->end; shift += 7) {
        *out |= (uint64_t)(*m->at & 0x7f) << shift;
        if (!(*m->at++ & 0x80))
            return true;
    }
    return false;
}

static bool fixed_get(struct message *m, int bytes)
{
    if (m->end - m->at < bytes)
        return false;
    m->number = little_endian_get(m->at, bytes);
    m->at += bytes;
    return true;
}

/* Reads the next field. False: not well-formed. */
static bool field_get(struct message *m)
{
    uint64_t key, len;

    if (!varint_get(m, &key))
        return false;
    m->field = key >> 3;
    m->wire = (int)(key & 7);
    switch (m->wire) {
    case 0:
        return varint_get(m, &m->number);
    case 1:
        return fixed_get(m, 8);
    case 2:
        if (!varint_get(m, &len) || len > (uint64_t)(m->end - m->at))
            return false;
        m->bytes = m->at;
        m->len = (size_t)len;
        m->at += len;
        return true;
    case 5:
        return fixed_get(m, 4);
    default:
        return false;
    }
}

static struct message message_of(const uint8_t *data, size_t len)
{
    return (struct message){.at = data, .end = data + len};
}

static bool field_is(const struct message *m, uint64_t field, int wire)
{
    return m->field == field && m->wire == wire;
}

static double float_of(uint64_t number)
{
    const uint32_t bits = (uint32_t)number;
    float value;

    memcpy(&value, &bits, sizeof(value));
    return isfinite(value) ? (double)value : NAN;
}

static double double_of(uint64_t bits)
{
    double value;

    memcpy(&value, &bits, sizeof(value));
    return isfinite(value) ? value : NAN;
}

/* Sets *found if the tensor has one element of a known type. */
static bool tensor_read(const uint8_t *data, size_t len, double *value, bool *found)
{
    struct message m = message_of(data, len);
    uint64_t type = 0;

    while (m.at < m.end) {
        if (!field_get(&m))
            return false;
        if (field_is(&m, TENSOR_TYPE, 0))
            type = m.number;
        bool floats = field_is(&m, TENSOR_FLOATS, 2) ||
                      (field_is(&m, TENSOR_CONTENT, 2) && type == TYPE_FLOAT && m.len == 4);
        bool doubles = field_is(&m, TENSOR_DOUBLES, 2) ||
                       (field_is(&m, TENSOR_CONTENT, 2) && type == TYPE_DOUBLE && m.len == 8);
        if ((floats && m.len == 4) || field_is(&m, TENSOR_FLOATS, 5)) {
            *value = float_of(m.wire == 2 ? little_endian_get(m.bytes, 4) : m.number);
            *found = true;
        } else if ((doubles && m.len == 8) || field_is(&m, TENSOR_DOUBLES, 1)) {
            *value = double_of(m.wire == 2 ? little_endian_get(m.bytes, 8) : m.number);
            *found = true;
        }
    }
    return true;
}

/* A value of a summary. *found stays false if it is no scalar, such as an image. */
static bool value_read(const uint8_t *data, size_t len, struct event_scalar *out, bool *found)
{
    struct message m = message_of(data, len);
    bool named = false, scalar = false;

    while (m.at < m.end) {
        if (!field_get(&m))
            return false;
        if (field_is(&m, VALUE_TAG, 2)) {
            named = m.len && m.len < EVENT_TAG && !memchr(m.bytes, 0, m.len);
            memcpy(out->tag, m.bytes, named ? m.len : 0);
            out->tag[named ? m.len : 0] = 0;
        } else if (field_is(&m, VALUE_SIMPLE, 5)) {
            out->value = float_of(m.number);
            scalar = true;
        } else if (field_is(&m, VALUE_TENSOR, 2) && !tensor_read(m.bytes, m.len, &out->value, &scalar)) {
            return false;
        }
    }
    *found = named && scalar;
    return true;
}

static bool summary_read(const uint8_t *data, size_t len, double wall_s, int64_t step,
                         void (*fn)(void *ctx, const struct event_scalar *scalar), void *ctx)
{
    struct message m = message_of(data, len);

    while (m.at < m.end) {
        struct event_scalar scalar = {.wall_s = wall_s, .step = step};
        bool found = false;

        if (!field_get(&m))
            return false;
        if (!field_is(&m, SUMMARY_VALUE, 2))
            continue;
        if (!value_read(m.bytes, m.len, &scalar, &found))
            return false;
        if (found)
            fn(ctx, &scalar);
    }
    return true;
}

bool event_scalars(const uint8_t *data, size_t len, void (*fn)(void *ctx, const struct event_scalar *scalar),
                   void *ctx)
{
    struct message m = message_of(data, len), summary = {0};
    int64_t step = 0;
    double wall_s = 0;

    while (m.at < m.end) { /* the step may follow the summary */
        if (!field_get(&m))
            return false;
        if (field_is(&m, EVENT_STEP, 0))
            step = (int64_t)m.number;
        else if (field_is(&m, EVENT_WALL_TIME, 1))
            wall_s = double_of(m.number);
        else if (field_is(&m, EVENT_SUMMARY, 2))
            summary = m;
    }
    return !summary.bytes || summary_read(summary.bytes, summary.len, wall_s, step, fn, ctx);
}
