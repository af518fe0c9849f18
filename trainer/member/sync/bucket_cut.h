#ifndef DDP_TRAINER_MEMBER_SYNC_BUCKET_CUT_H
#define DDP_TRAINER_MEMBER_SYNC_BUCKET_CUT_H

#include <stddef.h>

/* Collects pieces of the gradients until they make a bucket. Backward goes from the end of the array to its start, so a piece usually
 * ends where the piece before it begins. The bounds of buckets follow from the pieces alone. */

#define BUCKET_FLOATS ((size_t)1 << 20) /* of a bucket, at least */

typedef void (*bucket_cut_fn)(void *arg, size_t at, size_t end); /* a bucket: floats [at, end) */

struct bucket_cut {
    size_t bucket; /* floats, at least */
    bucket_cut_fn put;
    void *arg;
    size_t at, count; /* of the pieces collected for the next bucket */
};

void bucket_cut_piece(struct bucket_cut *c, size_t offset, size_t count);
void bucket_cut_end(struct bucket_cut *c); /* after the last piece of a step */
/* Cuts an array without pieces, from its end. */
void bucket_cut_whole(const struct bucket_cut *c, size_t count);

#endif
