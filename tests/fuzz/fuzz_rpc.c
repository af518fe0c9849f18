#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "proto/ddp.pb-c.h"
#include "proto/health.pb-c.h"
#include "proto/rpc_codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The first byte selects a message type that a server or a client reads; the rest is the message. A message
 * that unpacks can be packed; the result unpacks, and packs to the same bytes again. */
static const ProtobufCMessageDescriptor *const types[] = {
    &ddp__v1__agent_up__descriptor,
    &ddp__v1__agent_down__descriptor,
    &ddp__v1__submit_job_request__descriptor,
    &ddp__v1__join_request__descriptor,
    &ddp__v1__join_reply__descriptor,
    &ddp__v1__commit_snapshot_request__descriptor,
    &ddp__v1__report_snapshot_failure_request__descriptor,
    &ddp__v1__job_status__descriptor,
    &ddp__v1__list_nodes_reply__descriptor,
    &ddp__v1__log_data__descriptor,
    &grpc__health__v1__health_check_request__descriptor,
};

static void repack_message(const ProtobufCMessageDescriptor *type, const void *message)
{
    CLEANUP(buf_release) struct buf first = {0}, second = {0};
    void *again = NULL;
    struct err e;

    BUG_ON(rpc_pack(message, &first, &e) != ERR_OK);
    if (rpc_unpack(type, first.data, first.len, &again, &e)) {
        BUG_ON(e.code != ERR_RESOURCE_EXHAUSTED); /* fewer bytes of the same message allow less memory */
        return;
    }
    BUG_ON(rpc_pack(again, &second, &e) != ERR_OK);
    BUG_ON(first.len != second.len || (first.len && memcmp(first.data, second.data, first.len) != 0));
    rpc_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const ProtobufCMessageDescriptor *type;
    void *message = NULL;
    struct err e = {0};

    if (size == 0)
        return 0;
    type = types[data[0] % ARRAY_LEN(types)];
    if (rpc_unpack(type, data + 1, size - 1, &message, &e)) {
        BUG_ON(message || (e.code != ERR_INVALID_ARGUMENT && e.code != ERR_RESOURCE_EXHAUSTED) || !e.msg[0]);
        return 0;
    }
    repack_message(type, message);
    rpc_free(message);
    return 0;
}
