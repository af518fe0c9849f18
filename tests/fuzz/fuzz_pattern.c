#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "base/pattern/pattern.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* In pieces of three bytes, after each of which another line is searched. */
static bool search_in_pieces(struct pattern *p, const char *line, size_t size)
{
    CLEANUP(pattern_line_release) struct pattern_line a = {0};
    bool matched;

    for (size_t at = 0; at < size;) {
        struct pattern_line other = {0};
        int64_t budget = 3;
        const size_t n = pattern_line_feed(p, &a, line + at, size - at < 3 ? size - at : 3, &budget);

        BUG_ON(n > size - at);
        at += n;
        pattern_line_save(p, &a);
        budget = 100;
        pattern_line_feed(p, &other, "other", 5, &budget);
        pattern_line_end(p, &other);
        pattern_line_release(&other);
        if (a.matched)
            return true;
    }
    matched = pattern_line_end(p, &a);
    return matched;
}

/* The first line of the input is the expression. Any input gives a message, or the same answer however a line is divided. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *end = memchr(data, '\n', size);
    const size_t first = end ? (size_t)(end - data) : size;
    CLEANUP(free_text) char *text = xmalloc(first + 1);
    CLEANUP(pattern_line_release) struct pattern_line line = {0};
    struct pattern *p = NULL;
    struct err e = {0};
    int64_t budget = INT64_MAX / 2;

    memcpy(text, data, first);
    text[first] = '\0';
    if (pattern_compile(text, &p, &e)) {
        BUG_ON(e.code != ERR_INVALID_ARGUMENT || !e.msg[0]);
        return 0;
    }
    if (end) {
        const char *rest = (const char *)end + 1;
        const size_t left = size - first - 1;

        pattern_line_feed(p, &line, rest, left, &budget);
        BUG_ON(search_in_pieces(p, rest, left) != pattern_line_end(p, &line));
    }
    pattern_free(p);
    return 0;
}
