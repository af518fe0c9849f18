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
    struct log_watch watch;
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
    log_watch_open(&f->watch);
    log_times_begin(&f->times, &f->watch, &files);
    *state = f;
    return f->notes < 0 || files.out >= 0 ? -1 : 0;
}

static int remove_log_files(void **state)
{
    struct fixture *f = *state;
    struct err e;

    log_times_end(&f->times, 0);
    log_watch_close(&f->watch);
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

    assert_false(is_readable(f->watch.fd));
    write_bytes(f->err, 3);
    assert_true(is_readable(f->watch.fd));
    write_bytes(f->out, 5);
    write_bytes(f->out, 5);
    log_times_hear(&f->watch, 0);
    expect_note(f, true, 3);
    expect_note(f, false, 10);
    expect_no_note(f);
    assert_false(is_readable(f->watch.fd));
    write_bytes(f->out, 1);
    log_times_hear(&f->watch, 0);
    expect_note(f, false, 11);
    expect_no_note(f);
}

/* A burst gets its notes at once, output without end one every few milliseconds. It does not wake the supervisor meanwhile. */
static void notes_pause_while_output_goes_on(void **state)
{
    struct fixture *f = *state;
    int64_t now = 0, taken = 0;

    do {
        assert_true(taken < 1000);
        write_bytes(f->out, 1);
        log_times_hear(&f->watch, now);
    } while (log_times_tick(&f->times, now) == INT64_MAX && ++taken);
    assert_true(taken >= LOG_TIMES_AT_ONCE);
    for (int64_t i = 1; i <= taken; i++)
        expect_note(f, false, i);
    expect_no_note(f);
    assert_int_equal(log_times_tick(&f->times, now), now + LOG_TIMES_PAUSE_MS);
    write_bytes(f->out, 1);
    assert_false(is_readable(f->watch.fd));
    now += LOG_TIMES_PAUSE_MS;
    assert_int_equal(log_times_tick(&f->times, now), INT64_MAX);
    expect_note(f, false, taken + 2);
    write_bytes(f->out, 1);
    assert_true(is_readable(f->watch.fd));
    log_times_hear(&f->watch, now);
    assert_int_equal(log_times_tick(&f->times, now), now + LOG_TIMES_PAUSE_MS);
    expect_no_note(f);
}

/* The order of the first writes is known when the pause is over. */
static void a_pause_keeps_the_order(void **state)
{
    struct fixture *f = *state;

    f->times.paid_ms = 1000;
    write_bytes(f->err, 3);
    write_bytes(f->out, 5);
    write_bytes(f->err, 1);
    log_times_hear(&f->watch, 0);
    expect_no_note(f);
    assert_int_equal(log_times_tick(&f->times, 1000), INT64_MAX);
    expect_note(f, true, 4);
    expect_note(f, false, 5);
    expect_no_note(f);
}

static void many_notes_become_rare(void **state)
{
    struct fixture *f = *state;

    f->times.count = 4 * LOG_TIMES_DOUBLE;
    write_bytes(f->out, 1);
    log_times_hear(&f->watch, 0);
    assert_int_equal(f->times.paid_ms, LOG_TIMES_PAUSE_MS << 4);
    f->times.count = INT64_MAX / 2;
    f->times.paid_ms = 0;
    write_bytes(f->out, 1);
    log_times_hear(&f->watch, 0);
    assert_int_equal(f->times.paid_ms, LOG_TIMES_MOST_MS);
}

static void the_end_notes_what_is_left(void **state)
{
    struct fixture *f = *state;

    write_bytes(f->err, 2);
    log_times_end(&f->times, 0);
    expect_note(f, true, 2);
    write_bytes(f->err, 2);
    log_times_hear(&f->watch, 0);
    assert_int_equal(log_times_tick(&f->times, 0), INT64_MAX);
    expect_no_note(f);
}

enum { MANY = 40 };

/* The ranks of a node, as many as there are, share one instance of inotify: their notes have the order in which they wrote. */
static void many_ranks_share_one_instance(void **state)
{
    struct fixture *f = *state;
    struct log_times times[MANY];
    int out[MANY], notes[MANY];
    int64_t last = 0;
    struct err e;

    for (int i = 0; i < MANY; i++) {
        CLEANUP(free_text) char *dir = xasprintf("%s/%d", f->dir, i);
        CLEANUP(free_text) char *path = xasprintf("%s/%s", dir, LOG_NOTE_FILE);
        struct log_files files;

        assert_ok(log_place_make(dir, geteuid(), getegid(), &files, &e), &e);
        out[i] = dup(files.out);
        notes[i] = open(path, O_RDONLY);
        log_times_begin(&times[i], &f->watch, &files);
    }
    for (int i = 0; i < MANY; i++)
        write_bytes(out[i * 27 % MANY], 1);
    log_times_hear(&f->watch, 0);
    for (int i = 0; i < MANY; i++) {
        uint8_t bytes[LOG_NOTE_SIZE];

        assert_int_equal(read(notes[i * 27 % MANY], bytes, sizeof(bytes)), sizeof(bytes));
        const struct log_note note = log_note_decode(bytes);
        assert_true(note.wall_us >= last);
        last = note.wall_us;
    }
    expect_no_note(f);
    for (int i = 0; i < MANY; i++) {
        log_times_end(&times[i], 0);
        close(out[i]);
        close(notes[i]);
    }
    assert_int_equal(f->watch.count, 2); /* the fixture's own files are watched as before */
    write_bytes(f->err, 1);
    log_times_hear(&f->watch, 0);
    expect_note(f, true, 1);
}

/* A worker may write before the supervisor watches its files. */
static void output_before_the_watch_is_noted(void **state)
{
    struct fixture *f = *state;
    struct log_files files;
    struct err e;

    write_bytes(f->out, 5);
    log_times_end(&f->times, 0);
    expect_note(f, false, 5);
    assert_ok(log_place_make(f->dir, geteuid(), getegid(), &files, &e), &e);
    write_bytes(f->err, 7);
    write_bytes(f->out, 3);
    log_times_begin(&f->times, &f->watch, &files);
    expect_note(f, false, 8);
    expect_note(f, true, 7);
    log_times_hear(&f->watch, 0);
    expect_no_note(f);
    write_bytes(f->err, 1);
    log_times_hear(&f->watch, 0);
    expect_note(f, true, 8);
}

/* A program may truncate its own log: the sizes go on from there. */
static void a_truncated_log_is_noted_anew(void **state)
{
    struct fixture *f = *state;

    write_bytes(f->out, 20);
    log_times_hear(&f->watch, 0);
    expect_note(f, false, 20);
    assert_int_equal(ftruncate(f->out, 0), 0);
    write_bytes(f->out, 4);
    log_times_hear(&f->watch, 0);
    expect_note(f, false, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(growth_is_noted_in_its_order, make_log_files, remove_log_files),
        cmocka_unit_test_setup_teardown(output_before_the_watch_is_noted, make_log_files, remove_log_files),
        cmocka_unit_test_setup_teardown(notes_pause_while_output_goes_on, make_log_files, remove_log_files),
        cmocka_unit_test_setup_teardown(many_notes_become_rare, make_log_files, remove_log_files),
        cmocka_unit_test_setup_teardown(the_end_notes_what_is_left, make_log_files, remove_log_files),
        cmocka_unit_test_setup_teardown(a_pause_keeps_the_order, make_log_files, remove_log_files),
        cmocka_unit_test_setup_teardown(many_ranks_share_one_instance, make_log_files, remove_log_files),
        cmocka_unit_test_setup_teardown(a_truncated_log_is_noted_anew, make_log_files, remove_log_files),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
