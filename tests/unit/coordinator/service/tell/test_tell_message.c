#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"
#include "base/mem.h"
#include "daemon/coordinator/service/tell/tell_message.h"

/* Messages with hostile names and texts: each form must be valid, and must not say more than its text. */

#define T(text) ((char *)(uintptr_t)(text))

static const struct notice_record hostile = {
    .id = 7,
    .time_ms = 1700000000000,
    .job = 12,
    .generation = 3,
    .what = T("failed"),
    .text = T("<!channel> & \"quoted\" \\ back\x01\n\xff line\r\nPriority: max"),
    .name = T("a\"},{\"event\":\"x\r\nTitle: evil <@U1>"),
    .user = T("ana\xc3"),
    .node = T(""),
};
static const struct notice_record of_node = {.id = 8,
                                             .what = T("node_lost"),
                                             .text = T("node box1 is lost: no message for 9 s"),
                                             .name = T(""),
                                             .user = T(""),
                                             .node = T("box1")};

static json_t *must_parse(const struct buf *body)
{
    json_t *value = NULL;
    struct err e = {0};
    if (json_parse(body->data, body->len, 1 << 16, &value, &e) != ERR_OK)
        fail_msg("%s: %s", e.msg, body->data);
    return value;
}

static void json_of_hostile_texts_is_valid(void **state)
{
    CLEANUP(buf_release) struct buf body = {0};
    (void)state;
    tell_body(&hostile, TELL_JSON, "c1", &body);
    CLEANUP(json_release) json_t *value = must_parse(&body);
    assert_int_equal(json_get_int(value, "id", 0), 7);
    assert_string_equal(json_get_text(value, "event", ""), "failed");
    assert_string_equal(json_get_text(value, "name", ""), hostile.name);
    assert_int_equal(json_get_int(value, "job", 0), 12);
    assert_int_equal(json_object_size(value), 10);
    assert_null(strchr(body.data, '\n'));
}

static void an_event_of_a_node_has_no_job(void **state)
{
    CLEANUP(buf_release) struct buf body = {0};
    (void)state;
    tell_body(&of_node, TELL_JSON, "c1", &body);
    CLEANUP(json_release) json_t *value = must_parse(&body);
    assert_string_equal(json_get_text(value, "node", ""), "box1");
    assert_string_equal(json_get_text(value, "title", ""), "node box1 is lost");
    assert_null(json_object_get(value, "job"));
}

static void slack_gets_no_commands(void **state)
{
    CLEANUP(buf_release) struct buf body = {0};
    (void)state;
    tell_body(&hostile, TELL_SLACK, "c1", &body);
    CLEANUP(json_release) json_t *value = must_parse(&body);
    const char *text = json_get_text(value, "text", "");
    assert_int_equal(json_object_size(value), 1);
    assert_null(strpbrk(text, "<>"));
    assert_non_null(strstr(text, "&lt;!channel&gt; &amp; \"quoted\""));
}

static void headers_have_no_text_of_a_user(void **state)
{
    (void)state;
    char **headers = tell_headers(&hostile, TELL_NTFY);
    assert_int_equal(strv_len(headers), 3);
    assert_string_equal(headers[1], "Title: ddp: job 12 failed");
    assert_string_equal(headers[2], "Priority: high");
    strv_free(headers);
    headers = tell_headers(&of_node, TELL_NTFY);
    assert_string_equal(headers[1], "Title: ddp: node_lost");
    strv_free(headers);
    headers = tell_headers(&hostile, TELL_SLACK);
    assert_int_equal(strv_len(headers), 1);
    strv_free(headers);
}

static void ntfy_gets_the_text(void **state)
{
    CLEANUP(buf_release) struct buf body = {0};
    (void)state;
    tell_body(&of_node, TELL_NTFY, "c1", &body);
    assert_string_equal(body.data, "node box1 is lost: node box1 is lost: no message for 9 s");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_of_hostile_texts_is_valid),
        cmocka_unit_test(an_event_of_a_node_has_no_job),
        cmocka_unit_test(slack_gets_no_commands),
        cmocka_unit_test(headers_have_no_text_of_a_user),
        cmocka_unit_test(ntfy_gets_the_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
