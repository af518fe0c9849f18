#ifndef DDP_BASE_EVENT_FILE_CRC32C_H
#define DDP_BASE_EVENT_FILE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* CRC-32C (Castagnoli; RFC 3720, appendix B.4). crc: 0, or the CRC of the bytes before these. Any thread. */
uint32_t crc32c(uint32_t crc, const void *data, size_t len);
/* The form in which TFRecord files keep a CRC: rotated, plus a constant. */
uint32_t crc32c_masked(const void *data, size_t len);

#endif
