#include "trainer/data/idx.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/buf.h"
#include "base/digest.h"
#include "base/file.h"
#include "base/mem.h"

#define IDX_UBYTE 8
#define IDX_LIMIT ((size_t)4 << 30) /* largest size of a file after decompression, in bytes */

static uint32_t big_endian(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

enum err_code idx_parse(struct idx_array *out, const uint8_t *bytes, size_t size, struct err *e)
{
    struct idx_array a = {.count = 1};
    if (size < 4 || bytes[0] != 0 || bytes[1] != 0)
        return err_set(e, ERR_DATA_LOSS, "not an IDX file: it must start with two zero bytes");
    if (bytes[2] != IDX_UBYTE)
        return err_set(e, ERR_DATA_LOSS, "unsupported IDX type: expected 0x08 (unsigned bytes), got 0x%02x",
                       bytes[2]);
    a.dims = bytes[3];
    if (a.dims < 1 || a.dims > IDX_DIMS)
        return err_set(e, ERR_DATA_LOSS, "unsupported number of IDX dimensions: expected 1 to %d, got %d",
                       IDX_DIMS, a.dims);
    size_t header = 4 + 4 * (size_t)a.dims;
    if (size < header)
        return err_set(e, ERR_DATA_LOSS, "truncated IDX header: expected %zu bytes, got %zu", header, size);
    for (int i = 0; i < a.dims; i++) {
        a.shape[i] = big_endian(bytes + 4 + 4 * i);
        /* Compared with IDX_LIMIT divided by the product so far, so that the product cannot overflow. */
        if (a.shape[i] < 1 || a.shape[i] > (int64_t)IDX_LIMIT / a.count)
            return err_set(e, ERR_DATA_LOSS, "IDX dimension %d has an invalid size: %lld", i,
                           (long long)a.shape[i]);
        a.count *= a.shape[i];
    }
    if (size - header != (size_t)a.count)
        return err_set(e, ERR_DATA_LOSS,
                       "truncated or damaged: expected %lld bytes of data, as the IDX header says, got %zu",
                       (long long)a.count, size - header);
    a.data = xmemdup(bytes + header, (size_t)a.count);
    *out = a;
    return ERR_OK;
}

void idx_release(struct idx_array *a)
{
    free(a->data);
    *a = (struct idx_array){0};
}

static void close_gz(gzFile *f)
{
    if (*f)
        gzclose_r(*f);
}

/* zlib reads plain files as they are and checks a gzip file's CRC and length at its end. */
static enum err_code read_maybe_gz(const char *path, struct buf *out, struct err *e)
{
    errno = 0;
    CLEANUP(close_gz) gzFile f = gzopen(path, "rbe");
    if (!f)
        return err_sys(e, errno ? errno : ENOMEM, "%s", path);
    gzbuffer(f, 1 << 17);
    CLEANUP(free_text) char *chunk = xmalloc(1 << 17);
    for (;;) {
        int n = gzread(f, chunk, 1 << 17);
        int code = Z_OK;
        const char *why = gzerror(f, &code);
        if (n < 0 || (code != Z_OK && code != Z_STREAM_END))
            return err_set(e, ERR_DATA_LOSS, "%s: truncated or damaged gzip file (%s)", path, why);
        if (n == 0)
            return ERR_OK;
        if (out->len + (size_t)n > IDX_LIMIT)
            return err_set(e, ERR_RESOURCE_EXHAUSTED, "%s: larger than %zu bytes", path, IDX_LIMIT);
        buf_append(out, chunk, (size_t)n);
    }
}

enum err_code idx_read(struct idx_array *out, const char *path, struct err *e)
{
    CLEANUP(buf_release) struct buf bytes = {0};
    CLEANUP(free_text) char *name = xstrdup(path);
    if (!file_exists(name)) {
        free(name);
        name = xasprintf("%s.gz", path);
        if (!file_exists(name))
            return err_set(e, ERR_NOT_FOUND, "%s: no such file, and %s does not exist either", path, name);
    }
    if (read_maybe_gz(name, &bytes, e))
        return e->code;
    if (idx_parse(out, (const uint8_t *)bytes.data, bytes.len, e))
        return err_wrap(e, "%s", name);
    return ERR_OK;
}

/* ---- the pair of files as a data set */

struct idx_set {
    struct dataset base;
    struct idx_array images, labels;
    float value[256]; /* the normalised value of each byte */
};

static void idx_set_free(struct dataset *d)
{
    struct idx_set *s = (struct idx_set *)(void *)d;
    idx_release(&s->images);
    idx_release(&s->labels);
    free(s);
}

static enum err_code idx_set_gather(const struct dataset *d, const int64_t *index, int64_t rows,
                                    const struct dataset_rows *out, struct err *e)
{
    const struct idx_set *s = (const struct idx_set *)(const void *)d;
    (void)e;
    for (int64_t i = 0; i < rows; i++) {
        const uint8_t *pixels = s->images.data + index[i] * d->in;
        for (int64_t j = 0; j < d->in; j++)
            out->x[i * d->in + j] = s->value[pixels[j]];
        out->label[i] = s->labels.data[index[i]];
    }
    return ERR_OK;
}

static const struct dataset_ops idx_ops = {.free = idx_set_free, .gather = idx_set_gather};

static enum err_code read_pair(struct idx_set *s, const char *dir, const char *split, struct err *e)
{
    CLEANUP(free_text) char *images = xasprintf("%s/%s-images-idx3-ubyte", dir, split);
    CLEANUP(free_text) char *labels = xasprintf("%s/%s-labels-idx1-ubyte", dir, split);
    if (idx_read(&s->images, images, e) || idx_read(&s->labels, labels, e))
        return e->code;
    if (s->images.dims < 2)
        return err_set(e, ERR_DATA_LOSS, "%s: expected images of at least 2 dimensions, got %d", images,
                       s->images.dims);
    if (s->labels.dims != 1 || s->labels.shape[0] != s->images.shape[0])
        return err_set(e, ERR_DATA_LOSS, "%s: %lld labels, but %lld images", labels,
                       (long long)s->labels.count, (long long)s->images.shape[0]);
    s->base.count = s->images.shape[0];
    s->base.in = s->images.count / s->images.shape[0];
    s->base.bytes = (size_t)(s->images.count + s->labels.count);
    return ERR_OK;
}

static int largest_label(const struct idx_set *s)
{
    int largest = 0;
    for (int64_t i = 0; i < s->labels.count; i++)
        largest = s->labels.data[i] > largest ? s->labels.data[i] : largest;
    return largest;
}

/* A square root by Newton's method from above, exact to double rounding after a few steps. libm's sqrt may
 * differ between machines. */
static double square_root(double x)
{
    double r = x > 1.0 ? x : 1.0;
    for (int i = 0; i < 64; i++)
        r = 0.5 * (r + x / r);
    return r;
}

/* A byte b becomes (b - mean) / deviation, both over every pixel of the training images. */
static void fill_values(const struct idx_set *train, float value[256])
{
    int64_t seen[256] = {0};
    for (int64_t i = 0; i < train->images.count; i++)
        seen[train->images.data[i]]++;
    double sum = 0.0, squares = 0.0, n = (double)train->images.count;
    for (int b = 0; b < 256; b++) {
        sum += (double)seen[b] * b;
        squares += (double)seen[b] * b * b;
    }
    double mean = sum / n, variance = squares / n - mean * mean;
    double deviation = variance > 1e-9 ? square_root(variance) : 1.0;
    for (int b = 0; b < 256; b++)
        value[b] = (float)((b - mean) / deviation);
}

static enum err_code open_both(struct idx_set *train, struct idx_set *test, const char *dir, struct err *e)
{
    if (read_pair(train, dir, "train", e) || read_pair(test, dir, "t10k", e))
        return e->code;
    if (train->base.in != test->base.in)
        return err_set(e, ERR_DATA_LOSS, "%s: training images have %lld pixels, but test images have %lld",
                       dir, (long long)train->base.in, (long long)test->base.in);
    int classes = largest_label(train) + 1;
    if (largest_label(test) >= classes)
        return err_set(e, ERR_DATA_LOSS, "%s: test label %d is larger than the largest training label, %d",
                       dir, largest_label(test), classes - 1);
    fill_values(train, train->value);
    memcpy(test->value, train->value, sizeof(test->value));
    train->base.out = test->base.out = classes;
    return ERR_OK;
}

/* Of the arrays, so that a file and its compressed form have the same mark. */
static struct dataset_mark arrays_mark(const struct idx_set *train, const struct idx_set *test)
{
    const struct idx_array *arrays[] = {&train->images, &train->labels, &test->images, &test->labels};
    struct dataset_mark mark = {0};
    for (size_t i = 0; i < ARRAY_LEN(arrays); i++) {
        mark.bytes += arrays[i]->count;
        mark.digest = digest64(mark.digest, arrays[i]->data, (size_t)arrays[i]->count);
    }
    return mark;
}

enum err_code idx_open_pair(struct dataset **train, struct dataset **test, const char *dir, struct err *e)
{
    struct idx_set *a = xcalloc(1, sizeof(*a)), *b = xcalloc(1, sizeof(*b));
    a->base = b->base = (struct dataset){.ops = &idx_ops, .loss = LOSS_CROSS_ENTROPY};
    if (open_both(a, b, dir, e)) {
        idx_set_free(&a->base);
        idx_set_free(&b->base);
        return e->code;
    }
    a->base.mark = arrays_mark(a, b);
    *train = &a->base;
    *test = &b->base;
    return ERR_OK;
}
