#include "tests/unit/client/text/merge_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

void merge_add_text(struct output_merge *m, int rank, const char *text, int64_t now_ms)
{
    output_merge_add(m, rank, false, text, strlen(text), now_ms);
}

void merge_check_text(struct output_target *t, const char *expected)
{
    assert_string_equal(t->text.data ? t->text.data : "", expected);
    buf_clear(&t->text);
}

struct output_merge merge_for_terminal(void)
{
    struct output_merge m;
    output_merge_init(&m);
    m.targets[0].wanted = true;
    return m;
}
