/* The text of chosen algorithms: see gemm_choices.h. */
#include "trainer/device/cuda/gemm/gemm_choices.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum { HEX_DIGITS = GEMM_ALGORITHM_WORDS * 16, SHAPE_NUMBERS = 15 };
#define TITLE "ddp algorithms 1"

void gemm_choices_release(struct gemm_choices *c)
{
    free(c->items);
    *c = (struct gemm_choices){0};
}

const struct gemm_choice *gemm_choices_find(const struct gemm_choices *c, const struct gemm_shape *shape)
{
    for (size_t i = 0; i < c->count; i++)
        if (!memcmp(&c->items[i].shape, shape, sizeof(*shape)))
            return &c->items[i];
    return NULL;
}

void gemm_choices_put(struct gemm_choices *c, const struct gemm_choice *choice)
{
    size_t at = 0;
    while (at < c->count && memcmp(&c->items[at].shape, &choice->shape, sizeof(choice->shape)))
        at++;
    if (at == GEMM_CHOICES_MOST)
        return;
    if (at == c->count) {
        c->items = array_grow(c->items, c->count, &c->cap, sizeof(*c->items));
        c->count++;
    }
    c->items[at] = *choice;
}

/* ---- print */

static void print_choice(struct buf *out, const struct gemm_choice *c)
{
    const struct gemm_shape *s = &c->shape;
    buf_printf(out, "%lld %lld %lld %d %d %d %d %d %d %d %u %u %u %u %u ", (long long)s->m, (long long)s->n,
               (long long)s->k, s->adds, s->untuned, s->type, s->out, s->trans_a, s->trans_b, s->epilogue,
               s->align_a, s->align_b, s->align_c, s->align_aux, s->align_bias);
    for (int i = 0; !c->apart && i < GEMM_ALGORITHM_WORDS; i++)
        buf_printf(out, "%016" PRIx64, c->algorithm[i]);
    buf_puts(out, c->apart ? "apart\n" : "\n");
}

void gemm_choices_print(const struct gemm_choices *c, const char *device, size_t library, struct buf *out)
{
    buf_printf(out, TITLE "\ndevice %s\nlibrary cuBLASLt %zu\n", device, library);
    for (size_t i = 0; i < c->count; i++)
        print_choice(out, &c->items[i]);
}

/* ---- parse */

/* Cuts the next line, without its line end. Returns false if there is no further line, or no line end. */
static bool take_line(const char **at, const char *end, const char **line, size_t *length)
{
    const char *stop = *at < end ? memchr(*at, '\n', (size_t)(end - *at)) : NULL;
    if (!stop)
        return false;
    *line = *at;
    *length = (size_t)(stop - *at);
    *at = stop + 1;
    return true;
}

/* Cuts a number of at most 18 digits and the space behind it. */
static bool take_number(const char **at, const char *end, int64_t *out)
{
    const char *p = *at;
    int64_t value = 0;
    while (p < end && *p >= '0' && *p <= '9' && p - *at < 18)
        value = value * 10 + (*p++ - '0');
    if (p == *at || p == end || *p != ' ')
        return false;
    *at = p + 1;
    *out = value;
    return true;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool parse_algorithm(const char *text, size_t length, struct gemm_choice *out)
{
    out->apart = length == 5 && !memcmp(text, "apart", 5);
    if (out->apart)
        return true;
    if (length != HEX_DIGITS)
        return false;
    for (size_t i = 0; i < HEX_DIGITS; i++) {
        int digit = hex_digit(text[i]);
        if (digit < 0)
            return false;
        out->algorithm[i / 16] = out->algorithm[i / 16] << 4 | (uint64_t)digit;
    }
    return true;
}

static bool parse_choice(const char *line, size_t length, struct gemm_choice *out)
{
    int64_t n[SHAPE_NUMBERS];
    const char *at = line, *end = line + length;
    *out = (struct gemm_choice){0};
    for (int i = 0; i < SHAPE_NUMBERS; i++)
        if (!take_number(&at, end, &n[i]) || (i >= 3 && n[i] > INT32_MAX))
            return false;
    out->shape = (struct gemm_shape){.m = n[0],
                                     .n = n[1],
                                     .k = n[2],
                                     .adds = (int32_t)n[3],
                                     .untuned = (int32_t)n[4],
                                     .type = (int32_t)n[5],
                                     .out = (int32_t)n[6],
                                     .trans_a = (int32_t)n[7],
                                     .trans_b = (int32_t)n[8],
                                     .epilogue = (int32_t)n[9],
                                     .align_a = (uint32_t)n[10],
                                     .align_b = (uint32_t)n[11],
                                     .align_c = (uint32_t)n[12],
                                     .align_aux = (uint32_t)n[13],
                                     .align_bias = (uint32_t)n[14]};
    return parse_algorithm(at, (size_t)(end - at), out);
}

/* Checks the first three lines, and moves *at behind them. */
static enum err_code parse_head(const char **at, const char *end, const char *device, size_t library,
                                struct err *e)
{
    CLEANUP(buf_release) struct buf own = {0};
    const struct gemm_choices none = {0};
    const char *start = *at, *line;
    size_t length = 0;
    if (!take_line(at, end, &line, &length) || length != strlen(TITLE) || memcmp(line, TITLE, length) != 0)
        return err_set(e, ERR_DATA_LOSS, "kept algorithms: the text does not begin with '" TITLE "'");
    const char *names = *at;
    if (!take_line(at, end, &line, &length) || !take_line(at, end, &line, &length))
        return err_set(e, ERR_DATA_LOSS, "kept algorithms: the text ends early");
    gemm_choices_print(&none, device, library, &own);
    size_t head = (size_t)(*at - start);
    if (own.len == head && !memcmp(own.data, start, head))
        return ERR_OK;
    return err_set(
        e, ERR_FAILED_PRECONDITION,
        "the kept algorithms are of another kind of device or library (%.*s, %.*s), here: device %s, "
        "library cuBLASLt %zu",
        (int)(line - 1 - names), names, (int)length, line, device, library);
}

enum err_code gemm_choices_parse(struct gemm_choices *out, const char *device, size_t library,
                                 const char *text, size_t size, struct err *e)
{
    CLEANUP(gemm_choices_release) struct gemm_choices got = {0};
    const char *at = text, *end = text + size, *line;
    size_t length = 0;
    if (parse_head(&at, end, device, library, e))
        return e->code;
    for (int number = 4; at < end; number++) {
        struct gemm_choice choice;
        if (!take_line(&at, end, &line, &length) || !parse_choice(line, length, &choice))
            return err_set(e, ERR_DATA_LOSS, "kept algorithms: line %d is damaged", number);
        if (got.count == GEMM_CHOICES_MOST || gemm_choices_find(&got, &choice.shape))
            return err_set(e, ERR_DATA_LOSS, "kept algorithms: line %d is one too many", number);
        gemm_choices_put(&got, &choice);
    }
    gemm_choices_release(out);
    *out = got;
    got = (struct gemm_choices){0};
    return ERR_OK;
}
