#ifndef DDP_CLIENT_SCREEN_JSON_PRINT_H
#define DDP_CLIENT_SCREEN_JSON_PRINT_H

#include <protobuf-c/protobuf-c.h>

#include "base/buf.h"

/* `-o json`: a message with the field names of proto/ddp.proto as keys, which never change their meaning.
 * Every field is printed, absent messages as null; metrics are an object, {"loss": 1.4}; bytes are hex; not
 * finite numbers null. One line, with its end. */
void json_print(const ProtobufCMessage *message, struct buf *out);

#endif
