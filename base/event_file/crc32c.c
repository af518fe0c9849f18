#include "base/event_file/crc32c.h"

#include <pthread.h>

#define POLYNOMIAL 0x82f63b78u /* reflected */
#define MASK_DELTA 0xa282ead8u

static uint32_t crc_table[256];
static pthread_once_t crc_once = PTHREAD_ONCE_INIT;

static void crc_table_fill(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;

        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ POLYNOMIAL : crc >> 1;
        crc_table[i] = crc;
    }
}

uint32_t crc32c(uint32_t crc, const void *data, size_t len)
{
    const uint8_t *at = data;

    pthread_once(&crc_once, crc_table_fill);
    crc = ~crc;
    for (; len; len--)
        crc = crc_table[(crc ^ *at++) & 0xff] ^ crc >> 8;
    return ~crc;
}

uint32_t crc32c_masked(const void *data, size_t len)
{
    const uint32_t crc = crc32c(0, data, len);

    return (crc >> 15 | crc << 17) + MASK_DELTA;
}
