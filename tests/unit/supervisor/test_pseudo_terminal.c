#include <fcntl.h>
#include <pty.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "daemon/supervisor/pseudo_terminal.h"
#include "tests/unit/base/check.h"

struct desk {
    struct pseudo_terminal terminal;
    int slave;
    char log[64];
};

static void desk_open(struct desk *d, unsigned output_modes)
{
    struct terminal_offer offer = {.size = {.ws_row = 24, .ws_col = 80}};
    int master, slave;
    struct err e;

    assert_int_equal(openpty(&master, &slave, NULL, NULL, NULL), 0); /* the user's */
    assert_int_equal(tcgetattr(slave, &offer.modes), 0);
    offer.modes.c_oflag = output_modes;
    close(master);
    close(slave);
    assert_ok(pseudo_terminal_open(&d->terminal, &offer, geteuid(), &d->slave, &e), &e);
    strcpy(d->log, "/tmp/ddp-terminal-XXXXXX");
    d->terminal.log = mkstemp(d->log);
    assert_true(d->terminal.log >= 0);
}

static void desk_write(struct desk *d, const char *text)
{
    assert_int_equal(write(d->slave, text, strlen(text)), strlen(text));
}

static void desk_check_log(const struct desk *d, const char *expected)
{
    CLEANUP(buf_release) struct buf text = {0};
    struct err e;

    assert_ok(file_read(d->log, 1 << 20, &text, &e), &e);
    assert_string_equal(text.len ? text.data : "", expected);
}

static void desk_close(struct desk *d)
{
    close_fd(&d->slave);
    pseudo_terminal_end(&d->terminal, 0);
    unlink(d->log);
}

static void the_log_has_what_was_written(void **state)
{
    struct desk d;
    struct winsize size;

    (void)state;
    desk_open(&d, OPOST | ONLCR);
    assert_int_equal(isatty(d.slave), 1);
    assert_int_equal(ioctl(d.slave, TIOCGWINSZ, &size), 0);
    assert_int_equal(size.ws_col, 80);
    desk_write(&d, "one\ntwo\r\nthree\r\r\n\n10%\r");
    close(d.slave);
    d.slave = -1;
    pseudo_terminal_copy(&d.terminal, SIZE_MAX, 0);
    assert_int_equal(d.terminal.master, -1); /* nobody has the other side */
    desk_check_log(&d, "one\ntwo\r\nthree\r\r\n\n10%\r");
    desk_close(&d);
}

static void what_is_not_changed_by_the_terminal_stays(void **state)
{
    struct desk d;

    (void)state;
    desk_open(&d, 0); /* as a full-screen program sets it */
    desk_write(&d, "one\r\ntwo\n\r");
    close(d.slave);
    d.slave = -1;
    pseudo_terminal_copy(&d.terminal, SIZE_MAX, 0);
    desk_check_log(&d, "one\r\ntwo\n\r");
    desk_close(&d);
}

static void a_carriage_return_waits_for_its_line_end(void **state)
{
    struct desk d;

    (void)state;
    desk_open(&d, OPOST | ONLCR);
    desk_write(&d, "50%\r");
    for (int i = 0; i < 2000 && !d.terminal.held; i++, usleep(1000))
        pseudo_terminal_copy(&d.terminal, SIZE_MAX, 100);
    desk_check_log(&d, "50%");
    assert_int_equal(pseudo_terminal_tick(&d.terminal, 100), 120);
    desk_check_log(&d, "50%");
    assert_int_equal(pseudo_terminal_tick(&d.terminal, 120), INT64_MAX);
    desk_check_log(&d, "50%\r");
    desk_close(&d);
}

/* A process of another session may keep the terminal, and write faster than it is read. */
static void the_end_does_not_wait_for_a_process_that_still_writes(void **state)
{
    struct desk d;

    (void)state;
    desk_open(&d, 0);
    close(d.terminal.master);
    close(d.terminal.log);
    d.terminal.master = open("/dev/zero", O_RDONLY | O_CLOEXEC); /* there is always more */
    d.terminal.log = open("/dev/null", O_WRONLY | O_CLOEXEC);
    alarm(60u * (unsigned)test_slow());
    pseudo_terminal_end(&d.terminal, 0);
    alarm(0);
    assert_int_equal(d.terminal.master, -1);
    desk_close(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_log_has_what_was_written),
        cmocka_unit_test(what_is_not_changed_by_the_terminal_stays),
        cmocka_unit_test(a_carriage_return_waits_for_its_line_end),
        cmocka_unit_test(the_end_does_not_wait_for_a_process_that_still_writes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
