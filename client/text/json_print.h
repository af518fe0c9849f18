#ifndef DDP_CLIENT_TEXT_JSON_PRINT_H
#define DDP_CLIENT_TEXT_JSON_PRINT_H

#include <protobuf-c/protobuf-c.h>

#include "base/buf.h"

/* `-o json`: prints a message as one line of JSON. Its keys are the field names of proto/ddp.proto, whose
 * meaning never changes. Every field is printed: an absent message as null, a number that is not finite as
 * null, bytes as hex, and metrics as an object, {"loss": 1.4}. */
void json_print(const ProtobufCMessage *message, struct buf *out);

#endif
