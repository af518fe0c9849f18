#include "tests/unit/base/check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sm.h"

/* The small modules: err, buf, clock, mem, sm and log. */

static void errors_get_prefixes_and_codes_of_errno(void **state)
{
    struct err e = {0};

    (void)state;
    assert_int_equal(err_set(&e, ERR_ABORTED, "generation %d", 3), ERR_ABORTED);
    assert_int_equal(err_wrap(&e, "join"), ERR_ABORTED);
    assert_string_equal(e.msg, "join: generation 3");
    assert_int_equal(err_sys(&e, ENOENT, "open %s", "x"), ERR_NOT_FOUND);
    assert_string_equal(e.msg, "open x: No such file or directory");
    assert_int_equal(err_sys(&e, ENOSPC, "w"), ERR_RESOURCE_EXHAUSTED);
    assert_int_equal(err_sys(&e, ECONNREFUSED, "w"), ERR_UNAVAILABLE);
    assert_string_equal(err_code_name(ERR_DATA_LOSS), "DATA_LOSS");
    assert_string_equal(err_code_name((enum err_code)99), "UNKNOWN");
}

static void long_messages_are_cut_not_overrun(void **state)
{
    char text[2000];
    struct err e = {0};

    (void)state;
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    err_set(&e, ERR_INTERNAL, "%s", text);
    err_wrap(&e, "%s", text);
    err_sys(&e, EIO, "%s", text);
    assert_int_equal(strlen(e.msg), sizeof(e.msg) - 1);
}

static void buffers_grow_and_shift(void **state)
{
    CLEANUP(buf_release) struct buf b = {0};
    char *stolen;

    (void)state;
    for (int i = 0; i < 1000; i++)
        buf_printf(&b, "%03d", i);
    assert_int_equal(b.len, 3000);
    buf_consume(&b, 2997);
    assert_string_equal(b.data, "999");
    stolen = buf_steal(&b);
    assert_string_equal(stolen, "999");
    free(stolen);
    stolen = buf_steal(&b);
    assert_string_equal(stolen, "");
    free(stolen);
}

static void string_lists(void **state)
{
    char **list = strv_append(strv_append(NULL, "a"), "b");
    char **copy = strv_dup(list);

    (void)state;
    strv_free(list);
    assert_int_equal(strv_len(copy), 2);
    assert_string_equal(copy[1], "b");
    strv_free(copy);
    assert_int_equal(strv_len(NULL), 0);
    strv_free(NULL);
}

enum { OPEN, BUSY, SHUT };
static const struct sm_state door_states[] = {
    [OPEN] = {"open", 1u << BUSY | 1u << SHUT},
    [BUSY] = {"busy", 1u << OPEN},
    [SHUT] = {"shut", 0},
};
static const struct sm door = {"door", door_states, 3};

/* Runs fn in a child. Returns the signal that ended the child, or 0. */
static int signal_of(void (*fn)(void))
{
    int status = 0;
    pid_t pid = fork();

    if (pid == 0) {
        close(STDERR_FILENO);
        fn();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void move_as_allowed(void)
{
    sm_check(&door, BUSY, OPEN);
}

static void move_out_of_the_end(void)
{
    sm_check(&door, SHUT, OPEN);
}

static void a_state_machine_allows_its_moves_only(void **state)
{
    (void)state;
    assert_true(sm_may(&door, OPEN, SHUT));
    assert_false(sm_may(&door, BUSY, SHUT));
    assert_false(sm_may(&door, -1, SHUT));
    assert_false(sm_may(&door, OPEN, 3));
    assert_false(sm_may(&door, OPEN, -1));
    assert_false(sm_may(&door, OPEN, 32 + SHUT));
    assert_true(sm_terminal(&door, SHUT));
    assert_false(sm_terminal(&door, OPEN));
    assert_int_equal(sm_find(&door, "busy"), BUSY);
    assert_int_equal(sm_find(&door, "ajar"), -1);
    assert_string_equal(sm_name(&door, 7), "?");
    assert_int_equal(signal_of(move_as_allowed), 0);
    assert_int_equal(signal_of(move_out_of_the_end), SIGABRT);
}

static void log_values_are_quoted_when_needed(void **state)
{
    (void)state;
    assert_string_equal(LOG_Q("plain"), "plain");
    assert_string_equal(LOG_Q("two words"), "\"two words\"");
    assert_string_equal(LOG_Q("a=\"b\"\n"), "\"a=\\\"b\\\"\\n\"");
    assert_string_equal(LOG_Q(""), "\"\"");
    assert_string_equal(LOG_Q(NULL), "\"\"");
    /* a terminal would execute these: ESC and BEL, DEL, and a C1 control in UTF-8 */
    assert_string_equal(LOG_Q("\x1b]0;owned\a\x1b[2J"), "\"?]0;owned??[2J\"");
    assert_string_equal(LOG_Q("a\x7f"), "\"a?\"");
    assert_string_equal(LOG_Q("a\xc2\x9bK b"), "\"a?K b\"");
    assert_string_equal(LOG_Q("\xc2\x9b"), "\"?\"");
    assert_string_equal(LOG_Q("\xc2\xb5s\xc3\x9f\xe2\x80\x9c"), "\xc2\xb5s\xc3\x9f\xe2\x80\x9c");
    assert_string_equal(LOG_Q("cut\xc2"), "cut\xc2");
}

static void log_is_one_line(void **state)
{
    CLEANUP(buf_release) struct buf text = {0};
    char chunk[4096];
    int ends[2], saved = dup(STDERR_FILENO);
    ssize_t n;

    (void)state;
    assert_int_equal(pipe(ends), 0);
    dup2(ends[1], STDERR_FILENO);
    log_init("ddp-test", LOG_INFO);
    log_debug("hidden", "x=1");
    log_info("node_joined", "job=%d why=%s", 7, LOG_Q("it came\nback"));
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(ends[1]);
    while ((n = read(ends[0], chunk, sizeof(chunk))) > 0)
        buf_append(&text, chunk, (size_t)n);
    close(ends[0]);
    assert_non_null(
        strstr(text.data, " level=info prog=ddp-test event=node_joined job=7 why=\"it came\\nback\"\n"));
    assert_null(strstr(text.data, "hidden"));
    assert_ptr_equal(strchr(text.data, '\n'), text.data + text.len - 1);
}

static void a_time_that_has_passed_leaves_no_wait(void **state)
{
    const int64_t now = clock_boot_ms(), hour = 3600000;

    (void)state;
    assert_int_equal(clock_left_ms(now), 0);
    assert_int_equal(clock_left_ms(now - 1), 0);
    assert_int_equal(clock_left_ms(now - hour), 0);
    assert_true(clock_left_ms(now + hour) > hour / 2 && clock_left_ms(now + hour) <= hour);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_get_prefixes_and_codes_of_errno),
        cmocka_unit_test(long_messages_are_cut_not_overrun),
        cmocka_unit_test(buffers_grow_and_shift),
        cmocka_unit_test(string_lists),
        cmocka_unit_test(a_state_machine_allows_its_moves_only),
        cmocka_unit_test(log_values_are_quoted_when_needed),
        cmocka_unit_test(log_is_one_line),
        cmocka_unit_test(a_time_that_has_passed_leaves_no_wait),
    };

    unsetenv("DDP_LOG");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
