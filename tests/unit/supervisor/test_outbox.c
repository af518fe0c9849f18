#include "tests/unit/base/check.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "daemon/supervisor/outbox.h"
#include "daemon/supervisor/protocol/control.h"

static void the_outbox_drops_the_oldest(void **state)
{
    struct outbox *o = xcalloc(1, sizeof(*o));

    (void)state;
    assert_null(outbox_first(o));
    for (int i = 0; i < OUTBOX_COUNT + 5; i++)
        outbox_push(o, xasprintf("%d", i), 4);
    assert_int_equal(o->count, OUTBOX_COUNT);
    assert_int_equal(o->dropped, 5);
    assert_string_equal(outbox_first(o)->text, "5");
    outbox_push(o, xstrdup("huge"), OUTBOX_BYTES);
    assert_int_equal(o->count, 1);
    assert_int_equal(o->dropped, 5 + OUTBOX_COUNT);
    outbox_release(o);
    assert_int_equal(o->bytes, 0);
    free(o);
}

static void push_report(struct outbox *o, int64_t spawn)
{
    const struct control_message m = {.op = CONTROL_REPORT,
                                      .report = {.spawn = spawn, .time_ms = 5, .text = "{\"step\": 1}\n"}};
    struct buf text = {0};

    control_encode(&m, &text);
    const size_t len = text.len;
    outbox_push(o, buf_steal(&text), len);
}

static int64_t pop_report(struct outbox *o)
{
    CLEANUP(control_message_release) struct control_message m;
    const struct outbox_item *item = outbox_first(o);
    struct err e;

    assert_non_null(item);
    assert_int_equal(control_decode(&m, item->text, item->len, &e), ERR_OK);
    assert_string_equal(m.report.text, "{\"step\": 1}\n");
    outbox_pop(o);
    return m.report.spawn;
}

static void saved_reports_are_loaded_once(void **state)
{
    struct outbox *o = xcalloc(1, sizeof(*o));
    char path[] = "/tmp/ddp-outbox-XXXXXX";
    CLEANUP(buf_release) struct buf text = {0};
    struct err e;

    (void)state;
    close(mkstemp(path));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(outbox_save(o, path, &e), ERR_OK);
    assert_false(file_exists(path));
    assert_int_equal(outbox_load(o, path, &e), ERR_OK);
    assert_null(outbox_first(o));
    push_report(o, 1);
    push_report(o, 2);
    assert_int_equal(outbox_save(o, path, &e), ERR_OK);
    outbox_release(o);

    /* Damaged lines are left out: an end that is missing, another message, and text. */
    assert_int_equal(file_read(path, 10000, &text, &e), ERR_OK);
    buf_puts(&text, "{\"op\":\"synced\"}\nno report\n\n{\"op\":\"report\",\"spa");
    assert_int_equal(file_write_renamed(path, text.data, text.len, 0600, false, &e), ERR_OK);
    assert_int_equal(outbox_load(o, path, &e), ERR_OK);
    assert_int_equal(o->count, 2);
    assert_int_equal(pop_report(o), 1);
    assert_int_equal(pop_report(o), 2);
    assert_false(file_exists(path));
    free(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_outbox_drops_the_oldest),
        cmocka_unit_test(saved_reports_are_loaded_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
