#include "client/text/json_print.h"

#include <string.h>

#include "base/crypto/id.h"
#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "proto/ddp.pb-c.h"

static void json_print_message(struct jout *o, const char *key, const ProtobufCMessage *message);

static void json_print_value(struct jout *o, const ProtobufCFieldDescriptor *f, const char *key,
                             const void *at)
{
    switch (f->type) { /* `at` has the C type that protobuf-c uses for the field's type */
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32:
        jout_int(o, key, *(const int32_t *)at);
        return;
    case PROTOBUF_C_TYPE_ENUM: {
        const ProtobufCEnumValue *value =
            protobuf_c_enum_descriptor_get_value(f->descriptor, *(const int *)at);
        jout_text(o, key, value ? value->name : NULL);
        return;
    }
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
        jout_int(o, key, *(const int64_t *)at);
        return;
    case PROTOBUF_C_TYPE_DOUBLE:
        jout_real(o, key, *(const double *)at);
        return;
    case PROTOBUF_C_TYPE_BOOL:
        jout_bool(o, key, *(const protobuf_c_boolean *)at);
        return;
    case PROTOBUF_C_TYPE_STRING:
        jout_text(o, key, *(char *const *)at);
        return;
    case PROTOBUF_C_TYPE_MESSAGE:
        json_print_message(o, key, *(ProtobufCMessage *const *)at);
        return;
    case PROTOBUF_C_TYPE_BYTES: {
        const ProtobufCBinaryData *bytes = at;
        CLEANUP(free_text) char *hex = xmalloc(2 * bytes->len + 1);
        hex_encode(hex, bytes->data, bytes->len);
        jout_text(o, key, hex);
        return;
    }
    default:
        BUG_ON("a field type that ddp.proto does not use");
    }
}

static size_t json_value_size(const ProtobufCFieldDescriptor *f)
{
    switch (f->type) {
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32:
        return sizeof(int32_t);
    case PROTOBUF_C_TYPE_ENUM:
    case PROTOBUF_C_TYPE_BOOL:
        return sizeof(int);
    case PROTOBUF_C_TYPE_BYTES:
        return sizeof(ProtobufCBinaryData);
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_MESSAGE:
        return sizeof(void *);
    default:
        return sizeof(int64_t);
    }
}

static void json_print_metrics(struct jout *o, const char *key, Ddp__V1__Metric *const *list, size_t count)
{
    jout_open(o, key, '{');
    for (size_t i = 0; i < count; i++)
        jout_real(o, list[i]->name, list[i]->value);
    jout_close(o, '}');
}

static void json_print_field(struct jout *o, const ProtobufCMessage *message,
                             const ProtobufCFieldDescriptor *f)
{
    const char *base = (const char *)message, *at = base + f->offset;
    if (f->label != PROTOBUF_C_LABEL_REPEATED) {
        json_print_value(o, f, f->name, at);
        return;
    }
    size_t count = *(const size_t *)(const void *)(base + f->quantifier_offset);
    const char *items = *(char *const *)(const void *)at;
    if (f->descriptor ==
        &ddp__v1__metric__descriptor) { /* an object by name is easier for scripts than a list */
        json_print_metrics(o, f->name, (Ddp__V1__Metric *const *)(const void *)items, count);
        return;
    }
    jout_open(o, f->name, '[');
    for (size_t i = 0; i < count; i++)
        json_print_value(o, f, NULL, items + i * json_value_size(f));
    jout_close(o, ']');
}

static void json_print_message(struct jout *o, const char *key, const ProtobufCMessage *message)
{
    if (!message) {
        jout_raw(o, key, "null");
        return;
    }
    jout_open(o, key, '{');
    for (unsigned i = 0; i < message->descriptor->n_fields; i++)
        json_print_field(o, message, &message->descriptor->fields[i]);
    jout_close(o, '}');
}

void json_print(const ProtobufCMessage *message, struct buf *out)
{
    struct jout o = {.buf = out};
    json_print_message(&o, NULL, message);
    buf_putc(out, '\n');
}
