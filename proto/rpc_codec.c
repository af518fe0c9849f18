#include "proto/rpc_codec.h"

#include <stdlib.h>
#include <string.h>

/* protobuf-c trusts its input in three ways that a server cannot: it unpacks without a depth limit,
 * allocates many times the bytes that it reads, and accepts any bytes as a string (ending it at the first
 * NUL). So the bytes are first checked against the descriptor, and then unpacked with an allocator that
 * counts. */

bool rpc_utf8_valid(const void *text, size_t len)
{
    const uint8_t *p = text, *end = p + len;

    while (p < end) {
        uint32_t c = *p++;
        int more = 0;

        if (c == 0)
            return false;
        if (c < 0x80)
            continue;
        if (c >= 0xc2 && c <= 0xdf) {
            more = 1;
            c &= 0x1f;
        } else if (c >= 0xe0 && c <= 0xef) {
            more = 2;
            c &= 0x0f;
        } else if (c >= 0xf0 && c <= 0xf4) {
            more = 3;
            c &= 0x07;
        } else {
            return false;
        }
        if (end - p < more)
            return false;
        for (int i = 0; i < more; i++, p++) {
            if ((*p & 0xc0) != 0x80)
                return false;
            c = c << 6 | (*p & 0x3f);
        }
        if ((more == 2 && c < 0x800) || (more == 3 && c < 0x10000) || c > 0x10ffff ||
            (c >= 0xd800 && c <= 0xdfff))
            return false;
    }
    return true;
}

char *rpc_utf8_clean(char *text)
{
    for (char *p = text; *p;) {
        size_t rest = strlen(p), n = 1;

        while (n <= 4 && n <= rest && !rpc_utf8_valid(p, n))
            n++;
        if (n > 4 || n > rest) {
            *p = '?';
            n = 1;
        }
        p += n;
    }
    return text;
}

/* ---- checking received bytes ---- */

struct wire {
    const uint8_t *at, *end;
};

static bool wire_varint(struct wire *w, uint64_t *out)
{
    uint64_t value = 0;

    for (int shift = 0; shift < 70 && w->at < w->end; shift += 7) {
        uint8_t byte = *w->at++;

        if (shift < 64)
            value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) {
            *out = value;
            return true;
        }
    }
    return false;
}

static bool wire_skip(struct wire *w, size_t n)
{
    if ((size_t)(w->end - w->at) < n)
        return false;
    w->at += n;
    return true;
}

/* Reads one field's tag and passes its value; a length-delimited one is left in *body. */
static bool wire_field(struct wire *w, uint32_t *id, bool *delimited, struct wire *body)
{
    uint64_t tag, value;

    if (!wire_varint(w, &tag) || tag >> 3 == 0 || tag >> 3 > 0x1fffffff)
        return false;
    *id = (uint32_t)(tag >> 3);
    *delimited = false;
    switch (tag & 7) {
    case 0:
        return wire_varint(w, &value);
    case 1:
        return wire_skip(w, 8);
    case 5:
        return wire_skip(w, 4);
    case 2:
        if (!wire_varint(w, &value) || value > (uint64_t)(w->end - w->at))
            return false;
        *delimited = true;
        body->at = w->at;
        body->end = w->at + value;
        return wire_skip(w, (size_t)value);
    default:
        return false;
    }
}

static enum err_code check_wire(const ProtobufCMessageDescriptor *type, struct wire w, int depth,
                                struct err *e)
{
    if (depth > RPC_DEPTH)
        return err_set(e, ERR_INVALID_ARGUMENT, "%s: nested too deeply", type->short_name);
    while (w.at < w.end) {
        const ProtobufCFieldDescriptor *field;
        struct wire body = {0};
        bool delimited;
        uint32_t id;

        if (!wire_field(&w, &id, &delimited, &body))
            return err_set(e, ERR_INVALID_ARGUMENT, "not a %s", type->short_name);
        field = protobuf_c_message_descriptor_get_field(type, id);
        if (!field || !delimited)
            continue;
        if (field->type == PROTOBUF_C_TYPE_STRING && !rpc_utf8_valid(body.at, (size_t)(body.end - body.at)))
            return err_set(e, ERR_INVALID_ARGUMENT, "%s.%s: not UTF-8 text", type->short_name, field->name);
        if (field->type == PROTOBUF_C_TYPE_MESSAGE && check_wire(field->descriptor, body, depth + 1, e))
            return e->code;
    }
    return ERR_OK;
}

struct meter {
    size_t left;
    bool spent;
};

static void *meter_alloc(void *user, size_t size)
{
    struct meter *m = user;

    if (size + 16 > m->left) {
        m->spent = true;
        return NULL;
    }
    m->left -= size + 16; /* malloc's overhead */
    return malloc(size);
}

static void meter_free(void *user, void *data)
{
    (void)user;
    free(data);
}

enum err_code rpc_unpack(const ProtobufCMessageDescriptor *type, const void *data, size_t len, void **out,
                         struct err *e)
{
    struct meter meter = {.left = RPC_UNPACK_SPARE + RPC_UNPACK_FACTOR * len};
    ProtobufCAllocator allocator = {.alloc = meter_alloc, .free = meter_free, .allocator_data = &meter};
    static const uint8_t nothing[1];
    const uint8_t *bytes = len ? data : nothing;
    ProtobufCMessage *message;

    if (check_wire(type, (struct wire){bytes, bytes + len}, 1, e))
        return e->code;
    message = protobuf_c_message_unpack(type, &allocator, len, bytes);
    if (!message && meter.spent)
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "%s: too large when unpacked", type->short_name);
    if (!message)
        return err_set(e, ERR_INVALID_ARGUMENT, "not a %s", type->short_name);
    *out = message;
    return ERR_OK;
}

void rpc_free(void *message)
{
    if (message)
        protobuf_c_message_free_unpacked(message, NULL); /* the counting allocator uses malloc */
}

void rpc_release(void *message_pointer)
{
    void **message = message_pointer;

    rpc_free(*message);
    *message = NULL;
}

/* ---- checking a message to send ---- */

static enum err_code check_message(const ProtobufCMessage *message, struct err *e);

static enum err_code check_value(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
                                 const void *value, struct err *e)
{
    const void *pointer = *(void *const *)value;

    if (!pointer)
        return ERR_OK;
    if (field->type == PROTOBUF_C_TYPE_MESSAGE)
        return check_message(pointer, e);
    if (!rpc_utf8_valid(pointer, strlen(pointer)))
        return err_set(e, ERR_INTERNAL, "%s.%s: not UTF-8 text", message->descriptor->short_name,
                       field->name);
    return ERR_OK;
}

static enum err_code check_field(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
                                 struct err *e)
{
    const uint8_t *base = (const uint8_t *)message;
    const uint8_t *at = base + field->offset;

    if (field->label == PROTOBUF_C_LABEL_REPEATED) {
        size_t count = *(const size_t *)(base + field->quantifier_offset);
        const uint8_t *list = *(const uint8_t *const *)at;

        for (size_t i = 0; i < count; i++)
            if (check_value(message, field, list + i * sizeof(void *), e))
                return e->code;
        return ERR_OK;
    }
    if ((field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) &&
        *(const uint32_t *)(base + field->quantifier_offset) != field->id)
        return ERR_OK;
    return check_value(message, field, at, e);
}

static enum err_code check_message(const ProtobufCMessage *message, struct err *e)
{
    for (unsigned i = 0; i < message->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &message->descriptor->fields[i];

        if (field->type != PROTOBUF_C_TYPE_STRING && field->type != PROTOBUF_C_TYPE_MESSAGE)
            continue;
        if (check_field(message, field, e))
            return e->code;
    }
    return ERR_OK;
}

enum err_code rpc_pack_check(const void *message, size_t *size, struct err *e)
{
    if (check_message(message, e))
        return e->code;
    *size = protobuf_c_message_get_packed_size(message);
    return ERR_OK;
}

struct buf_sink {
    ProtobufCBuffer base;
    struct buf *out;
};

static void sink_append(ProtobufCBuffer *base, size_t len, const uint8_t *data)
{
    buf_append(((struct buf_sink *)base)->out, data, len);
}

enum err_code rpc_pack(const void *message, struct buf *out, struct err *e)
{
    struct buf_sink sink = {.base = {.append = sink_append}, .out = out};
    size_t size;

    if (rpc_pack_check(message, &size, e))
        return e->code;
    protobuf_c_message_pack_to_buffer(message, &sink.base);
    return ERR_OK;
}
