#ifndef DDP_DAEMON_AGENT_MESSAGE_FILE_H
#define DDP_DAEMON_AGENT_MESSAGE_FILE_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

/* A protobuf message in a file: a line that names the file's type, the SHA-256 of the message, and the packed
 * message. The file is written completely or not at all. *out is freed with rpc_free. DATA_LOSS: the file is
 * damaged, or of another type. synced: as for file_write_renamed. */
MUST_CHECK enum err_code message_file_read(const char *path, const char *magic, size_t most,
                                           const ProtobufCMessageDescriptor *type, void **out, struct err *e);
MUST_CHECK enum err_code message_file_write(const char *path, const char *magic, const void *message,
                                            bool synced, struct err *e);

#endif
