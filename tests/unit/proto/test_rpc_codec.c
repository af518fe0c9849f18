#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/mem.h"
#include "proto/ddp.pb-c.h"
#include "proto/health.pb-c.h"
#include "proto/rpc_address.h"
#include "proto/rpc_codec.h"
#include "proto/rpc_status.h"

static enum err_code unpack_up(const void *data, size_t len, struct err *e)
{
    void *message = NULL;
    enum err_code code = rpc_unpack(&ddp__v1__agent_up__descriptor, data, len, &message, e);

    assert_true((code == ERR_OK) == (message != NULL));
    rpc_free(message);
    return code;
}

static void messages_pack_and_unpack(void **state)
{
    CLEANUP(buf_release) struct buf bytes = {0};
    Ddp__V1__JobStatus in = DDP__V1__JOB_STATUS__INIT, *out = NULL;
    char *nodes[] = {(char *)"box1", (char *)"k\xc3\xb6ln"};
    struct err e;

    (void)state;
    in.job = 7;
    in.nodes = nodes;
    in.n_nodes = 2;
    assert_int_equal(rpc_pack(&in, &bytes, &e), ERR_OK);
    assert_int_equal(rpc_unpack(&ddp__v1__job_status__descriptor, bytes.data, bytes.len, (void **)&out, &e),
                     ERR_OK);
    assert_int_equal(out->job, 7);
    assert_string_equal(out->nodes[1], "k\xc3\xb6ln");
    rpc_free(out);
    assert_int_equal(rpc_unpack(&ddp__v1__job_status__descriptor, NULL, 0, (void **)&out, &e), ERR_OK);
    rpc_free(out);
}

static void utf8_is_checked(void **state)
{
    static const char *const good[] = {
        "", "a", "\xc2\x80", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"};
    static const char *const bad[] = {"\x80",
                                      "\xc1\xbf",
                                      "\xe0\x9f\xbf",
                                      "\xed\xa0\x80",
                                      "\xf0\x8f\xbf\xbf",
                                      "\xf4\x90\x80\x80",
                                      "\xf5\x80\x80\x80",
                                      "\xc3",
                                      "\xe2\x82",
                                      "a\xff"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        assert_true(rpc_utf8_valid(good[i], strlen(good[i])));
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_false(rpc_utf8_valid(bad[i], strlen(bad[i])));
    assert_false(rpc_utf8_valid("a\0b", 3));
}

static void invalid_utf8_is_replaced(void **state)
{
    char text[] = "ok \xff\xc3\xa9 \xe2\x82 end\xc3";

    (void)state;
    rpc_utf8_clean(text);
    assert_string_equal(text, "ok ?\xc3\xa9 ?? end?");
}

static void invalid_text_is_neither_packed_nor_unpacked(void **state)
{
    CLEANUP(buf_release) struct buf bytes = {0};
    Ddp__V1__AgentUp up = DDP__V1__AGENT_UP__INIT;
    Ddp__V1__Hello hello = DDP__V1__HELLO__INIT;
    struct err e;

    (void)state;
    hello.node = (char *)"b\xff";
    up.body_case = DDP__V1__AGENT_UP__BODY_HELLO;
    up.hello = &hello;
    assert_int_equal(rpc_pack(&up, &bytes, &e), ERR_INTERNAL);
    assert_string_equal(e.msg, "Hello.node: not UTF-8 text");
    assert_int_equal(unpack_up("\x0a\x04\x0a\x02"
                               "b\xff",
                               6, &e),
                     ERR_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "Hello.node: not UTF-8 text");
    assert_int_equal(unpack_up("\x0a\x05\x0a\x03"
                               "a\0b",
                               7, &e),
                     ERR_INVALID_ARGUMENT);
    assert_int_equal(unpack_up("\x0a\x05\x0a\x03"
                               "aab",
                               7, &e),
                     ERR_OK);
}

static void malformed_messages_are_refused(void **state)
{
    static const struct {
        const char *bytes;
        size_t len;
    } bad[] = {
        {"\x0a\x7f", 2},                                      /* a length above the rest */
        {"\x00", 1},                                          /* field 0 */
        {"\x0b", 1},                                          /* a group */
        {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 11}, /* a varint without end */
        {"\x09\x01", 2},                                      /* a cut fixed64 */
        {"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11}, /* a length of 2^64 - 1 */
    };
    struct err e;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(unpack_up(bad[i].bytes, bad[i].len, &e), ERR_INVALID_ARGUMENT);
}

static void a_small_message_cannot_take_much_memory(void **state)
{
    CLEANUP(buf_release) struct buf bytes = {0};
    Ddp__V1__GetMetricsReply *out;
    struct err e;

    (void)state;
    for (int i = 0; i < 200 * 1000; i++)
        buf_append(&bytes, "\x0a\x00", 2); /* an empty MetricPoint */
    assert_int_equal(
        rpc_unpack(&ddp__v1__get_metrics_reply__descriptor, bytes.data, bytes.len, (void **)&out, &e),
        ERR_RESOURCE_EXHAUSTED);
    assert_int_equal(rpc_unpack(&ddp__v1__get_metrics_reply__descriptor, bytes.data, 200, (void **)&out, &e),
                     ERR_OK);
    assert_int_equal(out->n_points, 100);
    rpc_free(out);
}

static void a_reply_with_10000_points_unpacks(void **state)
{
    CLEANUP(buf_release) struct buf bytes = {0};
    Ddp__V1__GetMetricsReply in = DDP__V1__GET_METRICS_REPLY__INIT, *out;
    Ddp__V1__MetricPoint point = DDP__V1__METRIC_POINT__INIT;
    Ddp__V1__MetricPoint **points = xcalloc(10000, sizeof(*points));
    struct err e;

    (void)state;
    point.name = (char *)"lr";
    point.value = 1;
    for (int i = 0; i < 10000; i++)
        points[i] = &point;
    in.points = points;
    in.n_points = 10000;
    assert_int_equal(rpc_pack(&in, &bytes, &e), ERR_OK);
    assert_int_equal(
        rpc_unpack(&ddp__v1__get_metrics_reply__descriptor, bytes.data, bytes.len, (void **)&out, &e),
        ERR_OK);
    rpc_free(out);
    free(points);
}

/* ---- the definition in ddp.proto ---- */

static void walk_type(const ProtobufCMessageDescriptor *type, const ProtobufCMessageDescriptor **above,
                      int depth)
{
    assert_true(depth < RPC_DEPTH);
    for (int i = 0; i < depth; i++)
        if (above[i] == type)
            fail_msg("%s contains itself", type->name);
    above[depth] = type;
    for (unsigned i = 0; i < type->n_fields; i++)
        if (type->fields[i].type == PROTOBUF_C_TYPE_MESSAGE)
            walk_type(type->fields[i].descriptor, above, depth + 1);
}

static void no_message_contains_itself(void **state)
{
    const ProtobufCServiceDescriptor *services[] = {
        &ddp__v1__cluster__descriptor, &ddp__v1__agent__descriptor, &ddp__v1__rendezvous__descriptor,
        &grpc__health__v1__health__descriptor};
    const ProtobufCMessageDescriptor *above[RPC_DEPTH];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(services); i++)
        for (unsigned m = 0; m < services[i]->n_methods; m++) {
            walk_type(services[i]->methods[m].input, above, 0);
            walk_type(services[i]->methods[m].output, above, 0);
        }
}

static void error_codes_map_to_grpc_and_back(void **state)
{
    struct err e;

    (void)state;
    assert_int_equal(rpc_status_read(0, "", 0, &e), ERR_OK);
    assert_int_equal(rpc_status_read(10, "stale", 5, &e), ERR_ABORTED);
    assert_string_equal(e.msg, "stale");
    assert_int_equal(rpc_status_read(99, "x\xffy", 3, &e), ERR_UNKNOWN);
    assert_string_equal(e.msg, "x?y");
    assert_int_equal(rpc_status_read(5, "", 0, &e), ERR_NOT_FOUND);
    assert_non_null(strstr(e.msg, "NOT_FOUND"));
    assert_int_equal(rpc_status_of_call(1, "", 0, 0, &e), ERR_UNAVAILABLE);
    assert_int_equal(rpc_status_of_call(1, "", 0, 1, &e), ERR_CANCELLED);
    for (int code = 1; code <= 16; code++) {
        assert_int_equal(rpc_status_read(code, "t", 1, &e), code);
        assert_int_equal(rpc_status_code(&e), code);
    }
}

/* The caller asks in a loop between other work, so this must not wait until the other process accepts. */
static void a_socket_without_a_listener_is_absent(void **state)
{
    char dir[] = "/tmp/ddp-absent-XXXXXX";
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    CLEANUP(close_fd) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(at.sun_path, sizeof(at.sun_path), "%s/socket", dir);
    CLEANUP(free_text) char *address = xasprintf("unix:%s", at.sun_path);
    assert_true(rpc_address_absent(address));
    assert_int_equal(bind(fd, (const struct sockaddr *)&at, sizeof(at)), 0);
    assert_true(rpc_address_absent(address));
    assert_int_equal(listen(fd, 0), 0);
    for (int i = 0; i < 3; i++) /* more connections than the queue holds */
        assert_false(rpc_address_absent(address));
    assert_false(rpc_address_absent("localhost:1"));
    unlink(at.sun_path);
    rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_pack_and_unpack),
        cmocka_unit_test(utf8_is_checked),
        cmocka_unit_test(invalid_utf8_is_replaced),
        cmocka_unit_test(invalid_text_is_neither_packed_nor_unpacked),
        cmocka_unit_test(malformed_messages_are_refused),
        cmocka_unit_test(a_small_message_cannot_take_much_memory),
        cmocka_unit_test(a_reply_with_10000_points_unpacks),
        cmocka_unit_test(no_message_contains_itself),
        cmocka_unit_test(error_codes_map_to_grpc_and_back),
        cmocka_unit_test(a_socket_without_a_listener_is_absent),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
