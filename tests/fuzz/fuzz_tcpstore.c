#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/tcpstore/conversation.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LIMIT = 1 << 16 };

/* What a client sends, in pieces of at most `cut` bytes. Returns the answers; *code is how it ended. */
static struct buf answers_of(const uint8_t *data, size_t size, size_t cut, enum err_code *code)
{
    struct tcpstore_table *t = tcpstore_table_create(LIMIT, tcpstore_conversation_woken, NULL);
    struct tcpstore_conversation c = {0};
    struct buf all = {0};
    struct err e = {0};

    *code = ERR_OK;
    while (size && !*code) {
        size_t n = size < cut ? size : cut, before;

        buf_append(&c.in, data, n);
        data += n;
        size -= n;
        do { /* answers are read at once, and requests behind a full buffer go on */
            before = c.in.len;
            *code = tcpstore_converse(&c, t, SIZE_MAX, &e);
            BUG_ON(*code && (*code != e.code || !e.msg[0]));
            buf_append(&all, c.out.data, c.out.len);
            buf_clear(&c.out);
        } while (!*code && c.in.len != before);
        BUG_ON(tcpstore_table_bytes(t) > LIMIT);
    }
    tcpstore_conversation_release(&c, t);
    BUG_ON(!size && !*code && tcpstore_table_bytes(t) > LIMIT);
    tcpstore_table_free(t);
    return all;
}

/* Any bytes are answered or refused within the limit, and the same however they are cut. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum err_code whole_code, cut_code;
    CLEANUP(buf_release) struct buf whole = answers_of(data, size, size, &whole_code);
    CLEANUP(buf_release) struct buf cut = answers_of(data, size, 7, &cut_code);

    BUG_ON(whole_code != cut_code);
    BUG_ON(whole.len != cut.len || (whole.len && memcmp(whole.data, cut.data, whole.len)));
    return 0;
}
