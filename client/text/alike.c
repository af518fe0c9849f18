#include "client/text/alike.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* Both lines are compared word by word. A word consists of letters, digits and the characters inside addresses and times.
 * The text between words must be equal. Words that differ are split into digits and other text. */

static bool is_in_word(char c)
{
    return isalnum((unsigned char)c) || (c && strchr(".:-_[]", c));
}

static size_t word_length(const char *at)
{
    size_t len = 0;
    while (is_in_word(at[len]))
        len++;
    return len;
}

static size_t digits_length(const char *at)
{
    return strspn(at, "0123456789");
}

/* "14:03", "14:03:07.214" */
static bool word_is_clock(const char *at, size_t len)
{
    size_t i = digits_length(at);
    return (i == 1 || i == 2) && len >= i + 3 && at[i] == ':' && digits_length(at + i + 1) == 2;
}

/* "2026-11-30", "2026-11-30T14:03:07" */
static bool word_is_date(const char *at, size_t len)
{
    return len >= 10 && digits_length(at) == 4 && at[4] == '-' && digits_length(at + 5) == 2 &&
           at[7] == '-' && digits_length(at + 8) == 2;
}

/* "0x7f12", "10.0.0.1:29700", "[10.0.0.1]:41234" */
static bool word_is_address(const char *at, size_t len)
{
    size_t dots = 0, i = 0;
    if (len > 2 && at[0] == '0' && at[1] == 'x')
        return true;
    for (; i < len && (isdigit((unsigned char)at[i]) || strchr(".:[]", at[i])); i++)
        dots += at[i] == '.';
    return dots == 3 + (at[len - 1] == '.') && i == len;
}

/* "30s", "600012 milliseconds": `at` is behind the digits. */
static bool text_begins_with_time_unit(const char *at)
{
    static const char *const units[] = {"s",       "ms",      "us",    "ns",           "m",
                                        "min",     "h",       "sec",   "secs",         "second",
                                        "seconds", "minutes", "hours", "milliseconds", "microseconds"};
    if (*at == '.')
        at += 1 + digits_length(at + 1);
    at += *at == ' ';
    for (size_t i = 0; i < ARRAY_LEN(units); i++) {
        const size_t unit = strlen(units[i]);
        if (strncmp(at, units[i], unit) == 0 && !isalnum((unsigned char)at[unit]))
            return true;
    }
    return false;
}

#define NAME_MOST                                                                                            \
    64 /* no longer word says what the number behind it is; a line may be one word of many kilobytes */

/* The word before the one that begins at `at`; *len 0: none. */
static const char *word_before(const char *line, const char *at, size_t *len)
{
    const char *end = at;
    while (end > line && end[-1] == ' ')
        end--;
    const char *start = end;
    while (start > line && start[-1] != ' ' && end - start <= NAME_MOST)
        start--;
    *len = end - start > NAME_MOST ? 0 : (size_t)(end - start);
    return start;
}

/* Whether the number after this word may differ: "port 41234", "fd 7", "14:03:07.214 4711". */
static bool number_follows_its_name(const char *line, const char *at)
{
    size_t len;
    const char *word = word_before(line, at, &len);
    return (len == 4 && strncmp(word, "port", 4) == 0) || (len == 2 && strncmp(word, "fd", 2) == 0) ||
           (len && word_is_clock(word, len));
}

static bool numbers_are_the_owners(const struct line_owner *a, int64_t x, const struct line_owner *b,
                                   int64_t y)
{
    return (x == a->rank && y == b->rank) || (x == a->local_rank && y == b->local_rank) ||
           (x == a->pid && y == b->pid);
}

struct reader {
    const struct line_owner *owner;
    const char *line, *at;
};

/* Skips a number in each line. Returns false if the numbers differ where they must be equal. */
static bool readers_pass_numbers(struct reader *r, struct reader *s)
{
    const size_t n = digits_length(r->at), m = digits_length(s->at);
    const char *x = r->at, *y = s->at;
    r->at += n;
    s->at += m;
    if (!n || !m)
        return false;
    return (n == m && strncmp(x, y, n) == 0) ||
           numbers_are_the_owners(r->owner, strtoll(x, NULL, 10), s->owner, strtoll(y, NULL, 10)) ||
           (text_begins_with_time_unit(r->at) && text_begins_with_time_unit(s->at)) ||
           (number_follows_its_name(r->line, x) && number_follows_its_name(s->line, y));
}

/* Whether the owner's node name stands here as a whole word: returns its length, or 0. */
static size_t node_length(const struct reader *r)
{
    const size_t len = r->owner->node ? strlen(r->owner->node) : 0;
    if (!len || strncmp(r->at, r->owner->node, len) != 0 || isalnum((unsigned char)r->at[len]))
        return 0;
    return len;
}

/* Skips the node names of both owners, as in "box1" and "box2:29700". */
static bool readers_pass_nodes(struct reader *r, struct reader *s)
{
    const size_t n = node_length(r), m = node_length(s);
    if (!n || !m)
        return false;
    r->at += n;
    s->at += m;
    if (*r->at == ':' && *s->at == ':' && digits_length(r->at + 1) && digits_length(s->at + 1)) {
        r->at += 1 + digits_length(r->at + 1);
        s->at += 1 + digits_length(s->at + 1);
    }
    return true;
}

/* Skips a word in each line if the words are equal, or of the same kind and this kind may differ. */
static bool readers_pass_words(struct reader *r, struct reader *s)
{
    const size_t n = word_length(r->at), m = word_length(s->at);
    const bool alike = (n == m && strncmp(r->at, s->at, n) == 0) ||
                       (word_is_clock(r->at, n) && word_is_clock(s->at, m)) ||
                       (word_is_date(r->at, n) && word_is_date(s->at, m)) ||
                       (n && m && word_is_address(r->at, n) && word_is_address(s->at, m));
    if (!alike)
        return readers_pass_nodes(r, s);
    r->at += n;
    s->at += m;
    return true;
}

bool lines_are_alike(const struct line_owner *a, const char *x, const struct line_owner *b, const char *y)
{
    struct reader r = {a, x, x}, s = {b, y, y};
    bool inside = false; /* a word whose pieces are compared */
    while (*r.at && *s.at) {
        if (!is_in_word(*r.at))
            inside = false;
        if (!inside && is_in_word(*r.at) && readers_pass_words(&r, &s))
            continue;
        inside = is_in_word(*r.at);
        if (isdigit((unsigned char)*r.at) && isdigit((unsigned char)*s.at)) {
            if (!readers_pass_numbers(&r, &s))
                return false;
        } else if (*r.at++ != *s.at++) {
            return false;
        }
    }
    return *r.at == *s.at;
}
