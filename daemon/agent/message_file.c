#include "daemon/agent/message_file.h"

#include <string.h>

#include "base/crypto/id.h"
#include "base/file.h"
#include "base/mem.h"
#include "proto/rpc_codec.h"

enum err_code message_file_read(const char *path, const char *magic, size_t most,
                                const ProtobufCMessageDescriptor *type, void **out, struct err *e)
{
    CLEANUP(buf_release) struct buf text = {0};
    uint8_t digest[DIGEST_BYTES];
    const size_t line = strlen(magic), head = line + DIGEST_BYTES;

    if (file_read(path, most, &text, e))
        return e->code;
    if (text.len < head || memcmp(text.data, magic, line))
        return err_set(e, ERR_DATA_LOSS, "%s: does not begin with \"%.*s\"", path, (int)line - 1, magic);
    digest_sha256(digest, text.data + head, text.len - head);
    if (memcmp(digest, text.data + line, DIGEST_BYTES))
        return err_set(e, ERR_DATA_LOSS, "%s is damaged", path);
    if (rpc_unpack(type, text.data + head, text.len - head, out, e))
        return err_wrap(e, "%s", path);
    return ERR_OK;
}

enum err_code message_file_write(const char *path, const char *magic, const void *message, bool synced,
                                 struct err *e)
{
    CLEANUP(buf_release) struct buf body = {0};
    CLEANUP(buf_release) struct buf text = {0};
    uint8_t digest[DIGEST_BYTES];

    if (rpc_pack(message, &body, e))
        return e->code;
    digest_sha256(digest, body.data ? body.data : "", body.len);
    buf_append(&text, magic, strlen(magic));
    buf_append(&text, digest, sizeof(digest));
    buf_append(&text, body.data ? body.data : "", body.len);
    return file_write_renamed(path, text.data, text.len, 0600, synced, e);
}
