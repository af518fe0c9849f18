#include "pieces.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

struct pieces pieces_open(const struct model *m)
{
    struct pieces p = {.end = m->count};
    double work = 0;
    p.left = model_units(m, NULL);
    assert_in_range(p.left, 1, ARRAY_LEN(p.units));
    assert_int_equal(model_units(m, p.units), p.left);
    assert_int_equal(p.units[0].begin, 0);
    assert_int_equal(p.units[p.left - 1].need, m->count);
    for (size_t i = 0; i < p.left; i++)
        work += p.units[i].work;
    assert_true(fabs(work - 1) < 1e-9);
    return p;
}

void pieces_ready(void *arg, size_t offset, size_t count)
{
    struct pieces *p = arg;
    assert_int_equal(offset + count, p->end);
    if (p->left)
        assert_int_equal(offset, p->units[--p->left].begin);
    p->end = offset;
    p->count++;
}
