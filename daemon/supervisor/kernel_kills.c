#include "daemon/supervisor/kernel_kills.h"

/* Between the kill and the end of its process pass seconds on a machine that swaps. */
#define LATELY_MS 5000

void kernel_kills_begin(struct kernel_kills *k, long long count, int64_t now_ms)
{
    *k = (struct kernel_kills){count, count, now_ms};
}

bool kernel_kills_due(const struct kernel_kills *k, int64_t now_ms)
{
    return now_ms >= k->lately_ms + LATELY_MS;
}

void kernel_kills_note(struct kernel_kills *k, long long count, int64_t now_ms)
{
    *k = (struct kernel_kills){k->lately, count, now_ms};
}

bool kernel_kills_grew(const struct kernel_kills *k, long long count)
{
    return k->before >= 0 && count > k->before;
}
