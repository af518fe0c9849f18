#include "tests/unit/client/golden.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"

void golden_check(const char *name, struct buf *text)
{
    CLEANUP(free_text) char *path = xasprintf("%s/%s", DDP_GOLDEN_DIR, name);
    CLEANUP(buf_release) struct buf wanted = {0};
    struct err e;
    if (getenv("DDP_GOLDEN_WRITE"))
        assert_int_equal(file_write_atomic(path, text->data ? text->data : "", text->len, 0644, &e), ERR_OK);
    if (file_read(path, 1 << 20, &wanted, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    assert_string_equal(text->data ? text->data : "", wanted.data ? wanted.data : "");
    buf_clear(text);
}
