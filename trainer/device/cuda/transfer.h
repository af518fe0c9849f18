#ifndef DDP_TRAINER_DEVICE_CUDA_TRANSFER_H
#define DDP_TRAINER_DEVICE_CUDA_TRANSFER_H

#include "trainer/device/cuda/cuda.h"

/* Copies between host and device. They go through slots of pinned memory, so the host's memory may be ordinary. */

enum err_code cuda_slots_open(struct cuda_slot *slots, int count, struct err *e);
void cuda_slots_close(struct cuda_slot *slots, int count);
size_t cuda_slot_piece(size_t bytes, size_t from); /* the bytes of the piece that begins at offset `from` */
void cuda_upload(struct device *d, void *to, const void *from_host, size_t bytes);
void cuda_download(struct device *d, void *to_host, const void *from, size_t bytes);
void cuda_copy(struct device *d, void *to, const void *from, size_t bytes);
void cuda_zero(struct device *d, void *to, size_t bytes);

#endif
