#include "client/run/batch/nodelist.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"

#define MOST_NODES 65536
#define MOST_DIGITS 9 /* of a number in brackets */
#define MOST_BRACKETS 8

struct expansion {
    char **nodes;
    size_t count, cap;
    const char *whole; /* for messages */
    int brackets;      /* depth of the recursion */
    struct err *e;
};

static enum err_code nodelist_refuse(struct expansion *x, const char *what)
{
    return err_set(x->e, ERR_INVALID_ARGUMENT, "list of nodes '%.200s': %s", x->whole, what);
}

static enum err_code nodelist_add(struct expansion *x, const struct buf *name)
{
    if (!name->len)
        return nodelist_refuse(x, "an empty name");
    if (x->count >= MOST_NODES)
        return nodelist_refuse(x, "too many nodes");
    x->nodes = array_grow(x->nodes, x->count + 1, &x->cap, sizeof(*x->nodes));
    x->nodes[x->count++] = xstrdup(name->data);
    x->nodes[x->count] = NULL;
    return ERR_OK;
}

/* A number and its width in digits: 07 is 7 with width 2. */
static enum err_code nodelist_read_number(struct expansion *x, const char **at, long *value, int *width)
{
    const char *from = *at;
    for (*value = 0; isdigit((unsigned char)**at); ++*at)
        if (*at - from < MOST_DIGITS)
            *value = *value * 10 + (**at - '0');
    *width = (int)(*at - from);
    if (*width == 0 || *width > MOST_DIGITS)
        return nodelist_refuse(x, "a number is missing or too large");
    return ERR_OK;
}

static enum err_code nodelist_expand_name(struct expansion *x, struct buf *name, const char *text,
                                          const char *end);

/* text: what follows "[". Adds each of its numbers to the name, and expands what follows the bracket. */
static enum err_code nodelist_expand_bracket(struct expansion *x, struct buf *name, const char *text,
                                             const char *close, const char *end)
{
    size_t before = name->len;
    while (true) {
        long from, to;
        int width, ignored;
        if (nodelist_read_number(x, &text, &from, &width) != ERR_OK)
            return x->e->code;
        to = from;
        if (*text == '-') {
            text++;
            if (nodelist_read_number(x, &text, &to, &ignored) != ERR_OK)
                return x->e->code;
        }
        /* a limit of its own: a huge range must not be counted through first */
        if (to < from || to - from >= MOST_NODES)
            return nodelist_refuse(x, "a range is reversed or too long");
        for (long n = from; n <= to; n++) {
            buf_printf(name, "%0*ld", width, n);
            if (nodelist_expand_name(x, name, close + 1, end) != ERR_OK)
                return x->e->code;
            name->len = before;
            name->data[before] = 0;
        }
        if (text == close)
            return ERR_OK;
        if (*text++ != ',')
            return nodelist_refuse(x, "expected ',' or '-' between numbers");
    }
}

/* Appends the text up to its first bracket to the name, then expands the rest. */
static enum err_code nodelist_expand_name(struct expansion *x, struct buf *name, const char *text,
                                          const char *end)
{
    size_t before = name->len;
    const char *open = memchr(text, '[', (size_t)(end - text));
    if (x->brackets++ > MOST_BRACKETS)
        return nodelist_refuse(x, "too many brackets in a name");
    buf_append(name, text, (size_t)((open ? open : end) - text));
    enum err_code code =
        open ? nodelist_expand_bracket(x, name, open + 1, memchr(open, ']', (size_t)(end - open)), end)
             : nodelist_add(x, name);
    x->brackets--;
    name->len = before;
    name->data[before] = 0;
    return code;
}

/* The end of the name that begins at text: a comma outside of brackets. NULL: the brackets do not match. */
static const char *nodelist_name_end(const char *text)
{
    bool inside = false;
    for (; *text && (inside || *text != ','); text++) {
        if ((*text == '[') ? inside : (*text == ']') && !inside)
            return NULL;
        if (*text == '[' || *text == ']')
            inside = *text == '[';
    }
    return inside ? NULL : text;
}

enum err_code nodelist_expand(const char *text, char ***nodes, struct err *e)
{
    struct expansion x = {.whole = text, .e = e};
    CLEANUP(buf_release) struct buf name = {0};
    buf_puts(&name, "");
    while (true) {
        const char *end = nodelist_name_end(text);
        enum err_code code = end ? nodelist_expand_name(&x, &name, text, end)
                                 : nodelist_refuse(&x, "brackets that do not match");
        if (code != ERR_OK) {
            strv_free(x.nodes);
            return code;
        }
        if (!*end)
            break;
        text = end + 1;
    }
    *nodes = x.nodes;
    return ERR_OK;
}

static bool nodelist_read_count(const char **at, int64_t *value)
{
    char *end;
    if (!isdigit((unsigned char)**at))
        return false;
    errno = 0;
    *value = strtoll(*at, &end, 10);
    *at = end;
    return errno == 0;
}

int64_t nodelist_count_at(const char *text, int64_t node)
{
    int64_t value, times;
    while (nodelist_read_count(&text, &value)) {
        times = 1;
        if (text[0] == '(' && text[1] == 'x') {
            text += 2;
            if (!nodelist_read_count(&text, &times) || *text++ != ')')
                return -1;
        }
        if (node < times)
            return value;
        node -= times;
        if (*text++ != ',')
            return -1;
    }
    return -1;
}
