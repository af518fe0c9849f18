#include "trainer/gather_cut.h"

#include "base/err.h"
#include "base/mem.h"

#define PIECE ((size_t)1 << 18) /* floats of a piece, at least */
/* Between two pieces a link is idle until both ends have woken up, which takes long if other processes use the cores. */
#define PIECES_MOST 16
#define LINE 16 /* floats */

static void lane_cut(size_t *cuts, size_t count, size_t begin, size_t end)
{
    const size_t each = ((end - begin + count - 1) / count + LINE - 1) / LINE * LINE;
    for (size_t i = 0; i <= count; i++)
        cuts[i] = begin + i * each < end ? begin + i * each : end;
}

size_t gather_cut(size_t floats, size_t lanes, size_t middle, size_t **cuts)
{
    size_t count = (floats + PIECE - 1) / PIECE;
    BUG_ON(lanes < 1 || lanes > GATHER_LANES);
    count = count > PIECES_MOST ? PIECES_MOST : count;
    *cuts = xcalloc(lanes * (count + 1), sizeof(**cuts));
    lane_cut(*cuts, count, 0, lanes == 1 ? floats : middle);
    if (lanes > 1)
        lane_cut(*cuts + count + 1, count, middle, floats);
    return count;
}
