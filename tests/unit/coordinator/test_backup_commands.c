/* Which backups are named when the coordinator refuses to start. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/mem.h"
#include "daemon/coordinator/backup_commands.h"
#include "store/backup.h"
#include "tests/unit/store/store_test.h"

static void back_up_as(const char *state, const char *name, int second)
{
    CLEANUP(free_text) char *to = xasprintf("%s/backup/%s", state, name);
    const struct timespec times[2] = {{1000 + second, 0}, {1000 + second, 0}};
    struct err e = {0};
    if (backup_make(state, to, NULL, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    assert_int_equal(utimensat(AT_FDCWD, to, times, 0), 0);
}

static void backups_with_own_names_are_not_cut_off(void **unused)
{
    (void)unused;
    char *state = make_dir();
    CLEANUP(buf_release) struct buf out = {0};
    struct store *s = must_open(state);
    back_up_as(state, "monday.db", 0);
    for (int i = 1; i <= 8; i++) {
        CLEANUP(free_text) char *name = xasprintf("ddp-2026010%dT000000Z.db", i);
        back_up_as(state, name, i);
    }
    restore_put_choices(&(struct config){.state = state}, &out);
    assert_non_null(strstr(out.data, "/backup/monday.db  ("));
    assert_non_null(strstr(out.data, "ddp-20260104T000000Z.db"));
    assert_null(strstr(out.data, "ddp-20260103T000000Z.db"));
    assert_non_null(strstr(out.data, "\n    and 3 older automatic backups\n"));
    store_close(s);
    remove_dir(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(backups_with_own_names_are_not_cut_off)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
