#include "trainer/snapshot/safetensors.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"

#define HEADER_LIMIT ((uint64_t)64 << 20)
#define DATA_ALIGN 64 /* the header is padded with spaces, so that data is aligned in a mapped file */

static const struct {
    const char *name;
    int bytes; /* bytes of an element; 0: unknown type */
} types[] = {
    [SAFETENSORS_F32] = {"F32", 4},
    [SAFETENSORS_F16] = {"F16", 2},
    [SAFETENSORS_BF16] = {"BF16", 2},
    [SAFETENSORS_OTHER] = {"", 0},
};

static int64_t shape_product(const struct safetensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->dims; i++)
        n *= t->shape[i];
    return n;
}

/* ---- writing */

static void print_tensor(struct jout *o, const struct safetensor *t, uint64_t from)
{
    jout_open(o, t->name, '{');
    jout_text(o, "dtype", "F32");
    jout_open(o, "shape", '[');
    for (int i = 0; i < t->dims; i++)
        jout_int(o, NULL, t->shape[i]);
    jout_close(o, ']');
    jout_open(o, "data_offsets", '[');
    jout_int(o, NULL, (int64_t)from);
    jout_int(o, NULL, (int64_t)from + shape_product(t) * 4);
    jout_close(o, ']');
    jout_close(o, '}');
}

static void print_header(struct buf *out, const struct safetensor *tensors, size_t count,
                         const char *metadata)
{
    CLEANUP(buf_release) struct buf json = {0};
    struct jout o = {.buf = &json};
    uint64_t at = 0;
    jout_open(&o, NULL, '{');
    jout_raw(&o, "__metadata__", metadata);
    for (size_t i = 0; i < count; i++) {
        print_tensor(&o, &tensors[i], at);
        at += (uint64_t)shape_product(&tensors[i]) * 4;
    }
    jout_close(&o, '}');
    while ((json.len + 8) % DATA_ALIGN)
        buf_putc(&json, ' ');
    uint64_t length = htole64(json.len);
    buf_append(out, &length, sizeof(length));
    buf_append(out, json.data, json.len);
}

enum err_code safetensors_ask(const struct safetensors_check *check, const char *path, struct err *e)
{
    if (check && check->over(check->arg))
        return err_set(e, ERR_CANCELLED, "%s: not wanted any more", path);
    return ERR_OK;
}

enum err_code safetensors_write(const char *path, const struct safetensor *tensors, size_t count,
                                const char *metadata, const struct safetensors_check *check, struct err *e)
{
    CLEANUP(buf_release) struct buf header = {0};
    CLEANUP(close_fd) int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0)
        return err_sys(e, errno, "%s", path);
    print_header(&header, tensors, count, metadata);
    if (fd_write_all(fd, header.data, header.len, e))
        return err_wrap(e, "%s", path);
    for (size_t i = 0; i < count; i++) {
        if (safetensors_ask(check, path, e))
            return e->code;
        if (fd_write_all(fd, tensors[i].data, (size_t)shape_product(&tensors[i]) * 4, e))
            return err_wrap(e, "%s", path);
    }
    if (safetensors_ask(check, path, e))
        return e->code;
    if (fsync(fd) < 0)
        return err_sys(e, errno, "%s", path);
    return ERR_OK;
}

/* ---- reading */

static enum err_code tensor_bad(const struct safetensors *f, const char *name, const char *why, struct err *e)
{
    return err_set(e, ERR_DATA_LOSS, "%s: tensor '%.96s': %s", f->path, name, why);
}

static enum err_code read_shape(const struct safetensors *f, const char *name, const json_t *shape,
                                struct safetensor *t, struct err *e)
{
    if (!json_is_array(shape) || json_array_size(shape) > SAFETENSORS_DIMS)
        return tensor_bad(f, name, "invalid shape: expected a list of at most 4 numbers", e);
    t->dims = (int)json_array_size(shape);
    int64_t room = INT64_MAX / 4;
    for (int i = 0; i < t->dims; i++) {
        const json_t *d = json_array_get(shape, (size_t)i);
        t->shape[i] = json_is_integer(d) ? (int64_t)json_integer_value(d) : -1;
        if (t->shape[i] < 1 || t->shape[i] > room)
            return tensor_bad(f, name, "invalid shape: expected positive sizes whose product fits in memory",
                              e);
        room /= t->shape[i];
    }
    return ERR_OK;
}

static enum err_code read_offsets(const struct safetensors *f, const char *name, const json_t *offsets,
                                  struct safetensor *t, struct err *e)
{
    const json_t *from = json_array_get(offsets, 0), *to = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(from) || !json_is_integer(to) ||
        json_integer_value(from) < 0 || json_integer_value(to) < json_integer_value(from))
        return tensor_bad(f, name, "invalid data_offsets: expected two numbers in rising order", e);
    t->from = (uint64_t)json_integer_value(from);
    t->to = (uint64_t)json_integer_value(to);
    if (t->to > f->data_size)
        return tensor_bad(f, name, "its data ends after the end of the file: truncated or damaged", e);
    uint64_t bytes = (uint64_t)types[t->type].bytes;
    if (bytes && t->to - t->from != (uint64_t)shape_product(t) * bytes)
        return tensor_bad(f, name, "its data_offsets do not match its shape", e);
    return ERR_OK;
}

static enum err_code read_tensor(const struct safetensors *f, const char *name, const json_t *value,
                                 struct safetensor *t, struct err *e)
{
    if (strlen(name) >= sizeof(t->name))
        return tensor_bad(f, name, "its name is too long", e);
    strcpy(t->name, name);
    if (!json_is_object(value))
        return tensor_bad(f, name, "expected an object", e);
    const char *dtype = json_get_text(value, "dtype", "");
    t->type = SAFETENSORS_F32;
    while (t->type != SAFETENSORS_OTHER && strcmp(dtype, types[t->type].name))
        t->type++;
    if (read_shape(f, name, json_object_get(value, "shape"), t, e))
        return e->code;
    return read_offsets(f, name, json_object_get(value, "data_offsets"), t, e);
}

static int by_place(const void *a, const void *b)
{
    const struct safetensor *x = a, *y = b;
    return x->from < y->from ? -1 : x->from > y->from;
}

static enum err_code check_cover(const struct safetensors *f, struct err *e)
{
    uint64_t at = 0;
    for (size_t i = 0; i < f->count; i++) {
        if (f->tensors[i].from != at)
            return tensor_bad(f, f->tensors[i].name,
                              "its data overlaps that of another tensor, or leaves a hole", e);
        at = f->tensors[i].to;
    }
    if (at != f->data_size)
        return err_set(e, ERR_DATA_LOSS, "%s: expected %llu bytes of data, as the header says, got %llu",
                       f->path, (unsigned long long)at, (unsigned long long)f->data_size);
    return ERR_OK;
}

static enum err_code take_metadata(struct safetensors *f, json_t *root, struct err *e)
{
    json_t *m = json_object_get(root, "__metadata__");
    const char *key;
    json_t *value;
    if (m && !json_is_object(m))
        return err_set(e, ERR_DATA_LOSS, "%s: invalid __metadata__: expected an object", f->path);
    json_object_foreach(m, key, value) if (!json_is_string(value)) return err_set(
        e, ERR_DATA_LOSS, "%s: invalid __metadata__ '%.64s': expected a string", f->path, key);
    f->metadata = m ? json_incref(m) : json_object();
    json_object_del(root, "__metadata__");
    return ERR_OK;
}

enum err_code safetensors_parse(struct safetensors *f, const char *json, size_t size, struct err *e)
{
    CLEANUP(json_release) json_t *root = NULL;
    const char *key;
    json_t *value;
    if (size == 0 || json[0] != '{')
        return err_set(e, ERR_DATA_LOSS, "%s: not a safetensors file: no JSON header", f->path);
    if (json_parse(json, size, size, &root, e)) {
        e->code = ERR_DATA_LOSS;
        return err_wrap(e, "%s: damaged header", f->path);
    }
    if (!json_is_object(root))
        return err_set(e, ERR_DATA_LOSS, "%s: the header is not an object", f->path);
    if (take_metadata(f, root, e))
        return e->code;
    f->tensors = xcalloc(json_object_size(root) + 1, sizeof(*f->tensors));
    json_object_foreach(root, key, value)
    {
        if (read_tensor(f, key, value, &f->tensors[f->count], e))
            return e->code;
        f->count++;
    }
    /* Sorted by position, so that one pass finds gaps and overlaps. */
    qsort(f->tensors, f->count, sizeof(*f->tensors), by_place);
    return check_cover(f, e);
}

static enum err_code read_at(const struct safetensors *f, void *out, size_t size, uint64_t at, struct err *e)
{
    return fd_read_at(f->fd, out, size, at, e) ? err_wrap(e, "%s", f->path) : ERR_OK;
}

static enum err_code read_header(struct safetensors *f, struct err *e)
{
    struct stat st;
    uint64_t length = 0;
    if (fstat(f->fd, &st) < 0)
        return err_sys(e, errno, "%s", f->path);
    if (!S_ISREG(st.st_mode) || st.st_size < 8)
        return err_set(e, ERR_DATA_LOSS, "%s: not a safetensors file: shorter than 8 bytes", f->path);
    if (read_at(f, &length, sizeof(length), 0, e))
        return e->code;
    length = le64toh(length);
    if (length > HEADER_LIMIT || length > (uint64_t)st.st_size - 8)
        return err_set(e, ERR_DATA_LOSS,
                       "%s: header of %llu bytes in a file of %lld: truncated or not safetensors", f->path,
                       (unsigned long long)length, (long long)st.st_size);
    f->data_start = 8 + length;
    f->data_size = (uint64_t)st.st_size - f->data_start;
    CLEANUP(free_text) char *json = xmalloc((size_t)length + 1);
    if (read_at(f, json, (size_t)length, 8, e))
        return e->code;
    return safetensors_parse(f, json, (size_t)length, e);
}

enum err_code safetensors_open(struct safetensors **out, const char *path, struct err *e)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(e, errno, "%s", path);
    struct safetensors *f = xcalloc(1, sizeof(*f));
    f->fd = fd;
    f->path = xstrdup(path);
    if (read_header(f, e)) {
        safetensors_close(f);
        return e->code;
    }
    *out = f;
    return ERR_OK;
}

void safetensors_close(struct safetensors *f)
{
    if (!f)
        return;
    close_fd(&f->fd);
    json_release(&f->metadata);
    free(f->tensors);
    free(f->path);
    free(f);
}

static enum err_code check_shape(const struct safetensors *f, const struct safetensor *t, int dims,
                                 const int64_t *shape, struct err *e)
{
    CLEANUP(buf_release) struct buf got = {0}, expected = {0};
    if (t->dims == dims && !memcmp(t->shape, shape, (size_t)dims * sizeof(*shape)))
        return ERR_OK;
    for (int i = 0; i < t->dims; i++)
        buf_printf(&got, "%s%lld", i ? "," : "", (long long)t->shape[i]);
    for (int i = 0; i < dims; i++)
        buf_printf(&expected, "%s%lld", i ? "," : "", (long long)shape[i]);
    return err_set(e, ERR_FAILED_PRECONDITION, "%s: tensor '%s': expected shape (%s), got (%s)", f->path,
                   t->name, expected.data ? expected.data : "", got.data ? got.data : "");
}

const struct safetensor *safetensors_find(const struct safetensors *f, const char *name)
{
    for (size_t i = 0; i < f->count; i++)
        if (!strcmp(f->tensors[i].name, name))
            return &f->tensors[i];
    return NULL;
}

static float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* IEEE 754 binary16: sign, 5 bits of exponent, 10 of fraction. */
static float from_half(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = (h >> 10) & 31, fraction = h & 1023;
    if (exponent == 31)
        return from_bits(sign | 0x7f800000 | fraction << 13);
    if (exponent == 0) { /* zero, or below the normal range: fraction * 2^-24 */
        float value = (float)fraction * 0x1p-24f;
        return sign ? -value : value;
    }
    return from_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

/* Widens elements of two bytes, which lie in the upper half of the memory that they will fill. */
static void elements_widen(float *out, size_t count, enum safetensors_type type)
{
    const char *from = (const char *)out + count * 2;
    for (size_t i = 0; i < count; i++) {
        uint16_t h;
        memcpy(&h, from + i * 2, sizeof(h));
        h = le16toh(h);
        out[i] = type == SAFETENSORS_F16 ? from_half(h) : from_bits((uint32_t)h << 16);
    }
}

enum err_code safetensors_read_head(const struct safetensors *f, const char *name, int dims,
                                    const int64_t *shape, bool head, float *out, struct err *e)
{
    const struct safetensor *t = safetensors_find(f, name);
    struct safetensor want = {.dims = dims};
    if (!t)
        return err_set(e, ERR_NOT_FOUND, "%s: tensor '%s' is missing", f->path, name);
    memcpy(want.shape, shape, (size_t)dims * sizeof(*shape));
    /* The first rows of a larger tensor are enough. */
    if (head && dims > 0 && t->dims == dims && t->shape[0] > shape[0])
        want.shape[0] = t->shape[0];
    if (check_shape(f, t, dims, want.shape, e))
        return e->code;
    if (t->type == SAFETENSORS_OTHER)
        return err_set(e, ERR_FAILED_PRECONDITION,
                       "%s: tensor '%s': unsupported type, expected F32, F16 or BF16", f->path, name);
    memcpy(want.shape, shape, (size_t)dims * sizeof(*shape));
    size_t count = (size_t)shape_product(&want), bytes = (size_t)types[t->type].bytes;
    /* Narrow elements are read to the end of the memory and widened in place. */
    if (read_at(f, (char *)out + count * (4 - bytes), count * bytes, f->data_start + t->from, e))
        return e->code;
    if (bytes == 2)
        elements_widen(out, count, t->type);
    return ERR_OK;
}

enum err_code safetensors_read(const struct safetensors *f, const char *name, int dims, const int64_t *shape,
                               float *out, struct err *e)
{
    return safetensors_read_head(f, name, dims, shape, false, out, e);
}
