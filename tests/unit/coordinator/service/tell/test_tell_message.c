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
    .text = T("<!channel> & \"quoted\" \\ back\x01\n\xff @everyone @here **bold** line\r\nPriority: max"),
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
    assert_int_equal(json_object_size(value), 2);
    assert_false(json_get_bool(value, "mrkdwn", true)); /* "__init__" is no underlined word */
    assert_null(strpbrk(text, "<>"));
    assert_non_null(strstr(text, "&lt;!channel&gt; &amp; \"quoted\""));
    assert_non_null(strstr(text, "@U1")); /* only these two notify everybody: */
    assert_null(strstr(text, "@everyone"));
    assert_null(strstr(text, "@here"));
}

static void discord_gets_no_commands_and_no_format(void **state)
{
    CLEANUP(buf_release) struct buf body = {0};
    (void)state;
    tell_body(&hostile, TELL_DISCORD, "c1", &body);
    CLEANUP(json_release) json_t *value = must_parse(&body);
    assert_non_null(strstr(json_get_text(value, "content", ""), "\\*\\*bold\\*\\*"));
    const json_t *parse = json_object_get(json_object_get(value, "allowed_mentions"), "parse");
    assert_true(json_is_array(parse) && json_array_size(parse) == 0);
}

/* Discord refuses more than 2000 characters, and ntfy texts that are not UTF-8. */
static void a_long_text_is_cut_between_characters(void **state)
{
    char text[1024];
    struct notice_record n = hostile;
    static const struct {
        enum tell_shape shape;
        size_t most;
        const char *key, *filler;
    } cases[] = {{TELL_SLACK, 2000, "text", "&&"},
                 {TELL_DISCORD, 2000, "content", "**"},
                 {TELL_NTFY, 4096, NULL, "\xff\xff"}};
    (void)state;
    n.text = text;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        CLEANUP(buf_release) struct buf body = {0};
        memset(text, 0, sizeof text);
        while (strlen(text) + 2 < sizeof text)
            strcat(text, cases[i].filler);
        tell_body(&n, cases[i].shape, "c1", &body);
        CLEANUP(json_release) json_t *value = cases[i].key ? must_parse(&body) : NULL;
        const char *got = value ? json_get_text(value, cases[i].key, "") : body.data;
        assert_true(json_text_valid(got));
        assert_true(strlen(got) <= cases[i].most && strlen(got) > cases[i].most / 2);
        if (cases[i].shape == TELL_SLACK) /* no entity is cut */
            assert_string_equal(got + strlen(got) - 8, "&amp;...");
    }
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
        cmocka_unit_test(discord_gets_no_commands_and_no_format),
        cmocka_unit_test(a_long_text_is_cut_between_characters),
        cmocka_unit_test(headers_have_no_text_of_a_user),
        cmocka_unit_test(ntfy_gets_the_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
