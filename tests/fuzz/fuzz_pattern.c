#include <stdint.h>
#include <string.h>

#include "base/match/pattern.h"
#include "base/mem.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Returns what the search of the line says, which comes in pieces of `piece` bytes. */
static enum err_code line_search(struct pattern *p, const char *text, size_t size, size_t piece,
                                 bool *matched)
{
    CLEANUP(pattern_line_release) struct pattern_line line = {0};
    struct err e = {0};

    for (size_t at = 0; at < size; at += piece)
        pattern_line_add(&line, text + at, size - at < piece ? size - at : piece);
    return pattern_line_end(p, &line, matched, &e);
}

/* The first line of the input is the expression. Any input gives a message, or the same answer however a line is divided. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *end = memchr(data, '\n', size);
    const size_t first = end ? (size_t)(end - data) : size;
    CLEANUP(free_text) char *text = xmalloc(first + 1);
    struct pattern *p = NULL;
    struct err e = {0};

    memcpy(text, data, first);
    text[first] = '\0';
    if (pattern_compile(text, &p, &e)) {
        BUG_ON(e.code != ERR_INVALID_ARGUMENT || !e.msg[0]);
        return 0;
    }
    if (end) {
        bool whole, pieces;
        const enum err_code code = line_search(p, (const char *)end + 1, size - first - 1, size, &whole);
        BUG_ON(code != ERR_OK && code != ERR_RESOURCE_EXHAUSTED);
        BUG_ON(line_search(p, (const char *)end + 1, size - first - 1, 3, &pieces) != code ||
               whole != pieces);
    }
    pattern_free(p);
    return 0;
}
