#include "base/thinning.h"

#include <math.h>

static void thinning_choose_bucket(const double *values, size_t first, size_t end, bool *keep)
{
    size_t least = end, most = end, odd = end;
    for (size_t i = first; i < end; i++) {
        keep[i] = false;
        if (!isfinite(values[i])) {
            odd = odd == end ? i : odd;
            continue;
        }
        if (least == end || values[i] < values[least])
            least = i;
        if (most == end || values[i] > values[most])
            most = i;
    }
    keep[end - 1] = true;
    if (least != end)
        keep[least] = keep[most] = true;
    if (odd != end)
        keep[odd] = true;
}

size_t thinning_choose(const double *values, size_t count, size_t buckets, bool *keep)
{
    size_t kept = 0;
    if (!buckets || buckets >= count)
        buckets = count; /* of one point each */
    for (size_t b = 0; b < buckets; b++)
        thinning_choose_bucket(values, count * b / buckets, count * (b + 1) / buckets, keep);
    for (size_t i = 0; i < count; i++)
        kept += keep[i];
    return kept;
}
