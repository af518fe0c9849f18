/* Tests the notes of when a worker's logs grew. The test writes to the files as a worker does; its clock stands still. */
#include "tests/unit/base/check.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "daemon/supervisor/log_times.h"
#include "daemon/supervisor/protocol/log_note.h"

struct fixture {
    struct log_times times;
    char dir[64];
    int out, err, notes; /* as the worker and a reader have them */
};

static int make_log_files(void **state)
{
    struct fixture *f = xcalloc(1, sizeof(*f));
    struct log_files files;
    struct err e;

    strcpy(f->dir, "/tmp/ddp-test-times-XXXXXX");
    if (!mkdtemp(f->dir) || log_place_make(f->dir, geteuid(), getegid(), &files, &e))
        return -1;
    CLEANUP(free_text) char *path = xasprintf("%s/%s", f->dir, LOG_NOTE_FILE);
    f->out = dup(files.out);
    f->err = dup(files.err);
    f->notes = open(path, O_RDONLY);
    log_times_begin(&f->times, &files);
    *state = f;
    return f->notes < 0 || files.out >= 0 ? -1 : 0;
}

static int remove_log_files(void **state)
{
    struct fixture *f = *state;
    struct err e;

    log_times_end(&f->times, 0);
    close(f->out);
    close(f->err);
    close(f->notes);
    enum err_code code = file_remove_tree(f->dir, &e);
    free(f);
    return code ? -1 : 0;
}

static void write_bytes(int fd, size_t count)
{
    char bytes[64] = {0};

    assert_int_equal(write(fd, bytes, count), count);
}

static bool is_readable(int fd)
{
    struct pollfd p = {fd, POLLIN, 0};

    return fd >= 0 && poll(&p, 1, 0) == 1;
}

static void expect_note(struct fixture *f, bool standard_error, int64_t size)
{
    uint8_t bytes[LOG_NOTE_SIZE];

    assert_int_equal(read(f->notes, bytes, sizeof(bytes)), sizeof(bytes));
    const struct log_note note = log_note_decode(bytes);
    assert_int_equal(note.standard_error, standard_error);
    assert_int_equal(note.size, size);
    assert_true(note.wall_us > 1600000000000000);
}

static void expect_no_note(struct fixture *f)
{
    uint8_t byte;

    assert_int_equal(read(f->notes, &byte, 1), 0);
}

static void growth_is_noted_in_its_order(void **state)
{
    struct fixture *f = *state;

    assert_false(is_readable(log_times_descriptor(&f->times, 0)));
    write_bytes(f->err, 3);
    assert_true(is_readable(log_times_descriptor(&f->times, 0)));
    write_bytes(f->out, 5);
    write_bytes(f->out, 5);
    log_times_take(&f->times, 0);
    expect_note(f, true, 3);
    expect_note(f, false, 10);
    expect_no_note(f);
    assert_false(is_readable(log_times_descriptor(&f->times, 0)));
    write_bytes(f->out, 1);
    log_times_take(&f->times, 0);
    expect_note(f, false, 11);
    expect_no_note(f);
}

/* A burst gets its notes at once, output without end one every few milliseconds. */
static void notes_pause_while_output_goes_on(void **state)
{
    struct fixture *f = *state;
    int64_t now = 0;
    int taken = 0;

    for (; log_times_descriptor(&f->times, now) >= 0; taken++) {
        assert_true(taken < 1000);
        write_bytes(f->out, 1);
        log_times_take(&f->times, now);
    }
    assert_true(taken >= LOG_TIMES_AT_ONCE);
    assert_int_equal(log_times_due(&f->times, now), now + LOG_TIMES_PAUSE_MS);
    write_bytes(f->out, 1);
    now += LOG_TIMES_PAUSE_MS;
    assert_true(is_readable(log_times_descriptor(&f->times, now)));
    log_times_take(&f->times, now);
    assert_int_equal(log_times_descriptor(&f->times, now), -1);
    assert_true(log_times_descriptor(&f->times, now + 10000) >= 0);
}

static void many_notes_become_rare(void **state)
{
    struct fixture *f = *state;
    int64_t now = 0;

    f->times.count = 4 * LOG_TIMES_DOUBLE;
    log_times_take(&f->times, now);
    assert_int_equal(f->times.paid_ms, LOG_TIMES_PAUSE_MS << 4);
    f->times.count = INT64_MAX / 2;
    f->times.paid_ms = 0;
    log_times_take(&f->times, now);
    assert_int_equal(f->times.paid_ms, LOG_TIMES_MOST_MS);
}

static void the_end_notes_what_is_left(void **state)
{
    struct fixture *f = *state;

    write_bytes(f->err, 2);
    log_times_end(&f->times, 0);
    expect_note(f, true, 2);
    assert_int_equal(log_times_descriptor(&f->times, 0), -1);
    assert_int_equal(log_times_due(&f->times, 0), INT64_MAX);
    write_bytes(f->err, 2);
    log_times_take(&f->times, 0);
    expect_no_note(f);
}

/* The next worker gets the instance of the last one, and hears nothing of that worker's files. */
static void an_instance_is_used_again(void **state)
{
    struct fixture *f = *state;
    struct log_files files;
    struct err e;
    const int watch = f->times.watch;

    write_bytes(f->out, 2);
    log_times_end(&f->times, 0);
    assert_true(fcntl(watch, F_GETFD) >= 0); /* it is not closed, which takes long */
    expect_note(f, false, 2);
    write_bytes(f->out, 2);
    assert_ok(log_place_make(f->dir, geteuid(), getegid(), &files, &e), &e);
    log_times_begin(&f->times, &files);
    assert_int_equal(f->times.watch, watch);
    assert_false(is_readable(log_times_descriptor(&f->times, 0)));
    write_bytes(f->err, 3);
    log_times_take(&f->times, 0);
    expect_note(f, true, 3);
    expect_no_note(f);
}

/* A program may truncate its own log: the sizes go on from there. */
static void a_truncated_log_is_noted_anew(void **state)
{
    struct fixture *f = *state;

    write_bytes(f->out, 20);
    log_times_take(&f->times, 0);
    expect_note(f, false, 20);
    assert_int_equal(ftruncate(f->out, 0), 0);
    write_bytes(f->out, 4);
    log_times_take(&f->times, 0);
    expect_note(f, false, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(growth_is_noted_in_its_order, make_log_files, remove_log_files),
        cmocka_unit_test_setup_teardown(notes_pause_while_output_goes_on, make_log_files, remove_log_files),
        cmocka_unit_test_setup_teardown(many_notes_become_rare, make_log_files, remove_log_files),
        cmocka_unit_test_setup_teardown(the_end_notes_what_is_left, make_log_files, remove_log_files),
        cmocka_unit_test_setup_teardown(an_instance_is_used_again, make_log_files, remove_log_files),
        cmocka_unit_test_setup_teardown(a_truncated_log_is_noted_anew, make_log_files, remove_log_files),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
