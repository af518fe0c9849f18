#include "base/match/pattern.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#define CALLS_BETWEEN_LOOKS 64 /* at the clock; between two calls PCRE2 goes over the line once at most */

struct pattern {
    pcre2_general_context *memory;
    pcre2_code *code;
    pcre2_match_data *match;
    pcre2_match_context *limits;
    int64_t most_ns;
    /* the search of a line */
    uint32_t calls;
    int64_t began_ns; /* of the thread's time */
};

/* The limit counts the thread's CPU time, so that a busy machine does not turn a search into an error. */
static int64_t thread_time_ns(void)
{
    struct timespec t;

    BUG_ON(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t));
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* PCRE2 calls this before each item of the expression that it tries (PCRE2_AUTO_CALLOUT). Most searches end before the clock
 * is read for the first time. */
static int search_goes_on(pcre2_callout_block *unused, void *pattern)
{
    struct pattern *p = pattern;

    (void)unused;
    if (++p->calls % CALLS_BETWEEN_LOOKS)
        return 0;
    if (!p->began_ns)
        p->began_ns = thread_time_ns();
    return thread_time_ns() - p->began_ns > p->most_ns ? PCRE2_ERROR_MATCHLIMIT : 0;
}

/* Like all small allocations, these abort if there is no memory. */
static void *memory_get(size_t size, void *unused)
{
    (void)unused;
    return xmalloc(size);
}

static void memory_put(void *block, void *unused)
{
    (void)unused;
    free(block);
}

/* Returns the number of the character at this offset in bytes. */
static size_t place_of(const char *text, size_t offset)
{
    size_t place = 1;

    for (size_t i = 0; i < offset && text[i]; i++)
        place += ((unsigned char)text[i] & 0xC0) != 0x80;
    return place;
}

static enum err_code text_check(const char *text, struct err *e)
{
    const size_t size = strlen(text);

    if (!size)
        return err_set(e, ERR_INVALID_ARGUMENT, "the expression is empty: every line matches it");
    if (size > PATTERN_BYTES)
        return err_set(e, ERR_INVALID_ARGUMENT, "the expression has %zu bytes, and may have at most %d", size,
                       PATTERN_BYTES);
    return ERR_OK;
}

enum err_code pattern_compile(const char *text, struct pattern **out, struct err *e)
{
    /* UTF and the newline are set here, so the expression cannot change them with a leading (*UTF) or (*CR). */
    static const uint32_t options =
        PCRE2_UTF | PCRE2_MATCH_INVALID_UTF | PCRE2_NEVER_BACKSLASH_C | PCRE2_AUTO_CALLOUT;
    PCRE2_UCHAR why[160];
    PCRE2_SIZE offset;
    int code;

    if (text_check(text, e))
        return e->code;
    pcre2_general_context *memory = pcre2_general_context_create(memory_get, memory_put, NULL);
    pcre2_compile_context *how = pcre2_compile_context_create(memory);
    struct pattern *p = xcalloc(1, sizeof(*p));
    p->memory = memory;
    p->code = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED, options, &code, &offset, how);
    pcre2_compile_context_free(how);
    if (!p->code) {
        pattern_free(p);
        pcre2_get_error_message(code, why, sizeof(why));
        return err_set(e, ERR_INVALID_ARGUMENT, "%s (character %zu of '%s')", (const char *)why,
                       place_of(text, offset), text);
    }
    p->match = pcre2_match_data_create_from_pattern(p->code, memory);
    p->limits = pcre2_match_context_create(memory);
    p->most_ns = PATTERN_TIME_NS;
    pcre2_set_match_limit(p->limits, PATTERN_STEPS);
    pcre2_set_heap_limit(p->limits, PATTERN_HEAP_KIB);
    pcre2_set_callout(p->limits, search_goes_on, p);
    *out = p;
    return ERR_OK;
}

void pattern_free(struct pattern *p)
{
    if (!p)
        return;
    pcre2_match_context_free(p->limits);
    pcre2_match_data_free(p->match);
    pcre2_code_free(p->code);
    pcre2_general_context_free(p->memory);
    free(p);
}

void pattern_limit_time(struct pattern *p, int64_t ns)
{
    p->most_ns = ns < PATTERN_TIME_NS ? ns : PATTERN_TIME_NS;
}

void pattern_line_add(struct pattern_line *line, const char *data, size_t size)
{
    const size_t room = PATTERN_LINE_BYTES - line->text.len;

    line->cut |= size > room;
    buf_append(&line->text, data, size < room ? size : room);
}

enum err_code pattern_line_end(struct pattern *p, const struct pattern_line *line, bool *matched,
                               struct err *e)
{
    const char *text = line->text.len ? line->text.data : "";

    p->calls = 0;
    p->began_ns = 0;
    const int rc = pcre2_match(p->code, (PCRE2_SPTR)text, line->text.len, 0, line->cut ? PCRE2_NOTEOL : 0,
                               p->match, p->limits);
    PCRE2_UCHAR why[160];

    *matched = rc >= 0;
    if (rc >= 0 || rc == PCRE2_ERROR_NOMATCH)
        return ERR_OK;
    pcre2_get_error_message(rc, why, sizeof(why));
    return err_set(
        e, ERR_RESOURCE_EXHAUSTED,
        "the expression takes too long on a line of %zu bytes (%s): make it simpler, for example without "
        "repetitions within repetitions",
        line->text.len, (const char *)why);
}

bool pattern_group(const struct pattern *p, const struct pattern_line *line, size_t i, const char **name,
                   const char **found, size_t *len)
{
    uint32_t count = 0, size = 0;
    PCRE2_SPTR table = NULL;

    (void)pcre2_pattern_info(p->code, PCRE2_INFO_NAMECOUNT, &count);
    (void)pcre2_pattern_info(p->code, PCRE2_INFO_NAMEENTRYSIZE, &size);
    (void)pcre2_pattern_info(p->code, PCRE2_INFO_NAMETABLE, &table);
    if (i >= count)
        return false;
    table += i * size; /* the group's number in two bytes, then its name */
    const uint32_t group = (uint32_t)table[0] << 8 | table[1];
    const PCRE2_SIZE *at = pcre2_get_ovector_pointer(p->match) + (size_t)2 * group;
    const bool matched = line && group < pcre2_get_ovector_count(p->match) && at[0] != PCRE2_UNSET &&
                         at[0] <= at[1] && at[1] <= line->text.len;
    *name = (const char *)table + 2;
    *found = matched ? line->text.data + at[0] : NULL;
    *len = matched ? at[1] - at[0] : 0;
    return true;
}

void pattern_line_clear(struct pattern_line *line)
{
    buf_clear(&line->text);
    line->cut = false;
}

void pattern_line_release(struct pattern_line *line)
{
    buf_release(&line->text);
    line->cut = false;
}
