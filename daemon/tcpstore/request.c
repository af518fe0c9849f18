#include "daemon/tcpstore/request.h"

#include <string.h>

#define MAGIC 0x3C85F7CEu /* the argument of VALIDATE */

/* A reader of the bytes that have come. `want` is what the request needs at least, as far as it is known. */
struct request_cursor {
    const uint8_t *at;
    size_t left, taken, want;
};

static void cursor_skip(struct request_cursor *c, size_t size)
{
    BUG_ON(size > c->left);
    c->at += size;
    c->left -= size;
    c->taken += size;
}

/* False: the bytes have not come yet. */
static bool cursor_take(struct request_cursor *c, void *out, size_t size)
{
    c->want = c->taken + size;
    if (c->left < size)
        return false;
    memcpy(out, c->at, size);
    cursor_skip(c, size);
    return true;
}

static enum err_code cursor_refuse(struct err *e, const char *what, uint64_t got, uint64_t most)
{
    return err_set(e, ERR_INVALID_ARGUMENT, "expected %s of at most %llu bytes, got %llu", what,
                   (unsigned long long)most, (unsigned long long)got);
}

/* UNAVAILABLE: the bytes have not come yet. */
static enum err_code request_take_piece(struct request_cursor *c, const char *what, size_t most,
                                        struct tcpstore_piece *out, struct err *e)
{
    uint64_t size;

    if (!cursor_take(c, &size, sizeof(size)))
        return ERR_UNAVAILABLE;
    if (size > most)
        return cursor_refuse(e, what, size, most);
    c->want = c->taken + size;
    if (c->want > TCPSTORE_REQUEST_MAX)
        return cursor_refuse(e, "a request", c->want, TCPSTORE_REQUEST_MAX);
    if (c->left < size)
        return ERR_UNAVAILABLE;
    *out = (struct tcpstore_piece){c->at, size};
    cursor_skip(c, size);
    return ERR_OK;
}

static enum err_code key_take(struct request_cursor *c, struct tcpstore_piece *out, struct err *e)
{
    return request_take_piece(c, "a key", TCPSTORE_KEY_MAX, out, e);
}

static enum err_code value_take(struct request_cursor *c, struct tcpstore_piece *out, struct err *e)
{
    return request_take_piece(c, "a value", TCPSTORE_VALUE_MAX, out, e);
}

/* Checks a list of keys, or of pairs of a key and a value, beginning where the last call stopped. */
static enum err_code list_take(struct request_cursor *c, bool pairs, struct tcpstore_parser *p,
                               struct tcpstore_request *r, struct err *e)
{
    struct tcpstore_piece ignored;
    const uint8_t *begin;
    enum err_code code;

    if (!cursor_take(c, &r->count, sizeof(r->count)))
        return ERR_UNAVAILABLE;
    if (r->count > TCPSTORE_KEYS_MAX)
        return err_set(e, ERR_INVALID_ARGUMENT, "expected at most %d keys, got %llu", TCPSTORE_KEYS_MAX,
                       (unsigned long long)r->count);
    begin = c->at;
    if (p->list_count)
        cursor_skip(c, p->list_end - c->taken);
    while (p->list_count < r->count) {
        code = key_take(c, &ignored, e);
        if (!code && pairs)
            code = value_take(c, &ignored, e);
        if (code)
            return code;
        p->list_count++;
        p->list_end = c->taken;
    }
    r->list = (struct tcpstore_piece){begin, (size_t)(c->at - begin)};
    return ERR_OK;
}

struct tcpstore_piece tcpstore_list_take(struct tcpstore_piece *list)
{
    const uint8_t *at = list->data;
    struct tcpstore_piece piece;
    uint64_t size;

    memcpy(&size, at, sizeof(size));
    piece = (struct tcpstore_piece){at + sizeof(size), size};
    list->data = at + sizeof(size) + size;
    list->size -= sizeof(size) + size;
    return piece;
}

static enum err_code number_take(struct request_cursor *c, size_t size, int64_t *out)
{
    int64_t number = 0;

    if (!cursor_take(c, &number, size))
        return ERR_UNAVAILABLE;
    *out = number; /* a number of 4 bytes is only echoed, so the bytes it fills do not matter */
    return ERR_OK;
}

static enum err_code arguments_take(struct request_cursor *c, struct tcpstore_parser *p,
                                    struct tcpstore_request *r, struct err *e)
{
    enum err_code code;

    switch (r->command) {
    case TCPSTORE_GETNUMKEYS:
    case TCPSTORE_LIST_KEYS:
    case TCPSTORE_CANCEL_WAIT:
    case TCPSTORE_VALIDATE: /* only as the first request, where dialect_find has read it */
        return ERR_OK;
    case TCPSTORE_PING:
        return number_take(c, 4, &r->number);
    case TCPSTORE_CHECK:
    case TCPSTORE_WAIT:
    case TCPSTORE_MULTI_GET:
        return list_take(c, false, p, r, e);
    case TCPSTORE_MULTI_SET:
        return list_take(c, true, p, r, e);
    default:
        break;
    }
    code = key_take(c, &r->key, e);
    if (code)
        return code;
    switch (r->command) {
    case TCPSTORE_ADD:
    case TCPSTORE_BARRIER:
        return number_take(c, 8, &r->number);
    case TCPSTORE_COMPARE_SET:
        code = value_take(c, &r->expected, e);
        return code ? code : value_take(c, &r->value, e);
    case TCPSTORE_SET:
    case TCPSTORE_APPEND:
    case TCPSTORE_QUEUE_PUSH:
        return value_take(c, &r->value, e);
    default: /* the key is the only argument */
        return ERR_OK;
    }
}

/* Finds the command of a byte. The plain dialect has no VALIDATE, and its 7 is WATCH_KEY, for a callback that only
 * C++ programs could set; it is not served. */
static bool command_decode(enum tcpstore_dialect dialect, uint8_t byte, enum tcpstore_command *out)
{
    static const enum tcpstore_command plain[] = {
        TCPSTORE_SET,  TCPSTORE_COMPARE_SET, TCPSTORE_GET,      TCPSTORE_ADD,       TCPSTORE_CHECK,
        TCPSTORE_WAIT, TCPSTORE_GETNUMKEYS,  TCPSTORE_VALIDATE, TCPSTORE_DELETE_KEY};

    if (dialect == TCPSTORE_VALIDATED)
        *out = (enum tcpstore_command)byte;
    else if (byte < sizeof(plain) / sizeof(plain[0]))
        *out = plain[byte];
    else
        return false;
    return *out > TCPSTORE_VALIDATE && *out <= TCPSTORE_BARRIER;
}

/* Finds the dialect of a connection's first bytes; UNAVAILABLE: more of them are needed. A VALIDATE is taken. */
static enum err_code dialect_find(struct request_cursor *c, enum tcpstore_dialect *dialect)
{
    struct request_cursor ahead = *c;
    uint32_t magic;
    uint8_t byte;

    if (!cursor_take(&ahead, &byte, sizeof(byte)) || (!byte && !cursor_take(&ahead, &magic, sizeof(magic)))) {
        c->want = ahead.want;
        return ERR_UNAVAILABLE;
    }
    *dialect = !byte && magic == MAGIC ? TCPSTORE_VALIDATED : TCPSTORE_PLAIN;
    if (*dialect == TCPSTORE_VALIDATED)
        *c = ahead;
    return ERR_OK;
}

enum err_code tcpstore_request_parse(struct tcpstore_parser *p, const void *bytes, size_t size,
                                     struct tcpstore_request *out, size_t *used, struct err *e)
{
    struct request_cursor c = {.at = bytes, .left = size, .want = 1};
    enum tcpstore_dialect kind = p->dialect;
    enum err_code code = ERR_OK;
    uint8_t byte = 0;

    *out = (struct tcpstore_request){.command = TCPSTORE_VALIDATE};
    *used = 0;
    if (kind == TCPSTORE_UNKNOWN)
        code = dialect_find(&c, &kind);
    if (!code && !c.taken) { /* not a VALIDATE */
        if (!cursor_take(&c, &byte, sizeof(byte)))
            code = ERR_UNAVAILABLE;
        else if (!command_decode(kind, byte, &out->command))
            return err_set(e, ERR_INVALID_ARGUMENT, "not a request of PyTorch's TCPStore (first byte %u)",
                           byte);
        else
            code = arguments_take(&c, p, out, e);
    }
    p->want = c.want;
    if (code == ERR_UNAVAILABLE)
        return ERR_OK;
    if (code)
        return code;
    p->dialect = kind;
    p->list_count = p->list_end = 0;
    *used = c.taken;
    return ERR_OK;
}
