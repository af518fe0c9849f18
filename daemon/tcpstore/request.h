#ifndef DDP_DAEMON_TCPSTORE_REQUEST_H
#define DDP_DAEMON_TCPSTORE_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* The requests of PyTorch's TCPStore clients. A request is one byte with the command and then its arguments. Numbers
 * have the byte order of the machine. A piece is its length in 8 bytes and then its bytes:
 *
 *   SET key value            -                 CHECK n key...      0 all are there, 1 not all
 *   COMPARE_SET key old new  the value         WAIT n key...       0 when all are there
 *   GET key                  the value         CANCEL_WAIT         1
 *   ADD key i64              the sum, i64      GETNUMKEYS          i64
 *   APPEND key value         -                 DELETE_KEY key      i64: how many were deleted
 *   MULTI_GET n key...       n values          QUEUE_PUSH key v    -
 *   MULTI_SET n (key v)...   -                 QUEUE_POP key       i64: how many were there; then the first of them
 *   PING u32                 the same u32      QUEUE_LEN key       i64
 *   BARRIER key i64          0 when that many  LIST_KEYS           i64: how many keys have values; then these keys
 *                            have called it
 *
 * There are two dialects, which number the commands differently. PyTorch 2.1 and later begin a connection with
 * VALIDATE (0) and a magic number. Older versions do not, and 0 is SET. There the magic number would be the lower
 * half of the length of a key, 1 GB, which is above the limit here. So the first five bytes tell the dialects apart,
 * and the first byte alone if it is not 0. */

enum tcpstore_dialect { TCPSTORE_UNKNOWN, TCPSTORE_PLAIN, TCPSTORE_VALIDATED };

enum tcpstore_command {
    TCPSTORE_VALIDATE,
    TCPSTORE_SET,
    TCPSTORE_COMPARE_SET,
    TCPSTORE_GET,
    TCPSTORE_ADD,
    TCPSTORE_CHECK,
    TCPSTORE_WAIT,
    TCPSTORE_GETNUMKEYS,
    TCPSTORE_DELETE_KEY,
    TCPSTORE_APPEND,
    TCPSTORE_MULTI_GET,
    TCPSTORE_MULTI_SET,
    TCPSTORE_CANCEL_WAIT,
    TCPSTORE_PING,
    TCPSTORE_QUEUE_PUSH,
    TCPSTORE_QUEUE_POP,
    TCPSTORE_QUEUE_LEN,
    TCPSTORE_LIST_KEYS,
    TCPSTORE_BARRIER,
};

/* The limits of one request. Those of keys and values are PyTorch's own. */
enum {
    TCPSTORE_KEY_MAX = 8 << 10,
    TCPSTORE_VALUE_MAX = 8 << 20,
    TCPSTORE_KEYS_MAX = 128 << 10,
    TCPSTORE_REQUEST_MAX = 32 << 20,
};

struct tcpstore_piece {
    const void *data;
    size_t size;
};

/* The pieces point into the bytes that were parsed. */
struct tcpstore_request {
    enum tcpstore_command command;
    struct tcpstore_piece key, value;
    struct tcpstore_piece expected; /* COMPARE_SET: the value that `value` replaces */
    int64_t number;                 /* ADD, PING, BARRIER */
    uint64_t count;                 /* CHECK, WAIT, MULTI_GET: keys; MULTI_SET: pairs */
    struct tcpstore_piece list;     /* their bytes, for tcpstore_list_take */
};

/* The state of the parser of one connection. All zero: a new connection. */
struct tcpstore_parser {
    enum tcpstore_dialect dialect; /* TCPSTORE_UNKNOWN until the first request is whole */
    size_t want; /* bytes of the next request that must be there before another try makes sense */
    /* Of the list of an unfinished request: the number of complete keys (or pairs), and their end, counted from the start of the
     * request. */
    uint64_t list_count;
    size_t list_end;
};

/* Reads the request at the beginning of the bytes. *used is its length, or 0 if its end has not come yet. Then the
 * next call must pass the same bytes, followed by new ones. It does not read complete keys of a list again, because a
 * peer may send a long list in many small segments. INVALID_ARGUMENT: not this protocol, or above a limit. */
MUST_CHECK enum err_code tcpstore_request_parse(struct tcpstore_parser *p, const void *bytes, size_t size,
                                                struct tcpstore_request *out, size_t *used, struct err *e);
/* Takes the next piece of a list that tcpstore_request_parse has checked. */
struct tcpstore_piece tcpstore_list_take(struct tcpstore_piece *list);

#endif
