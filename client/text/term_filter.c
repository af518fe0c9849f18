#include "client/text/term_filter.h"

#include <string.h>

#include "base/mem.h"

/* A parser of terminal control sequences (ECMA-48, and xterm's behaviour) with seven states. A sequence is
 * held back until it is complete, and written only if it is known to be harmless. So no terminal can parse
 * the output in another way than this filter. */

enum { GROUND, ESCAPE, ESCAPE_MORE, CSI, STRING, STRING_ESCAPE, CHARACTER };

#define ESC 0x1b
#define CAN 0x18
#define SUB 0x1a
#define ST 0x9c /* the one-byte string terminator */

static void filter_step(struct term_filter *f, unsigned char c, struct buf *out);

static void filter_hold(struct term_filter *f, unsigned char c)
{
    /* A sequence that does not fit is too long for a colour and will be removed: only its length is counted.
     */
    if (f->held_size < sizeof(f->held))
        f->held[f->held_size] = c;
    f->held_size++;
}

static void filter_enter(struct term_filter *f, int state)
{
    f->state = state;
    f->held_size = 0;
}

/* The end of a CSI sequence: its parameters are held, and c is its final byte. Colour and movement within the
 * line pass. With "<", "=", ">" or "?", or with bytes between the parameters and the end, it is another
 * command, and it is removed. */
static void filter_csi_end(struct term_filter *f, unsigned char c, struct buf *out)
{
    bool plain = f->held_size <= sizeof(f->held);

    for (size_t i = 0; plain && i < f->held_size; i++)
        plain =
            (f->held[i] >= '0' && f->held[i] <= '9') || f->held[i] == ';' || (f->held[i] == ':' && c == 'm');
    if (plain && strchr("mCDGK", c)) {
        buf_puts(out, "\033[");
        buf_append(out, f->held, f->held_size);
        buf_putc(out, (char)c);
        if (c == 'm')
            f->coloured = f->held_size > 1 || (f->held_size == 1 && f->held[0] != '0');
    }
    filter_enter(f, GROUND);
}

/* Writes the bytes of an incomplete UTF-8 character. Bytes that are C1 controls by themselves become '?'. */
static void filter_flush(struct term_filter *f, struct buf *out)
{
    for (size_t i = 0; i < f->held_size; i++)
        buf_putc(out, f->held[i] >= 0x80 && f->held[i] < 0xa0 ? '?' : (char)f->held[i]);
    filter_enter(f, GROUND);
}

static size_t character_size(unsigned char first)
{
    return first >= 0xf0 && first <= 0xf4 ? 4 : first >= 0xe0 ? 3 : 2;
}

/* True if c may follow the held bytes (Unicode, table 3-7). Overlong forms are not allowed: some decoders
 * read them as control characters. */
static bool character_goes_on(const struct term_filter *f, unsigned char c)
{
    unsigned char first = f->held[0], least = 0x80, most = 0xbf;

    if (f->held_size == 1) {
        least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
        most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    }
    return c >= least && c <= most;
}

/* A C1 control, as one byte or as a UTF-8 character, begins the same sequence as ESC and a letter. */
static void filter_c1(struct term_filter *f, unsigned char c)
{
    switch (c) {
    case 0x9b:
        filter_enter(f, CSI);
        break;
    case 0x90: /* DCS */
    case 0x98: /* SOS */
    case 0x9d: /* OSC */
    case 0x9e: /* PM */
    case 0x9f: /* APC */
        filter_enter(f, STRING);
        break;
    default:
        filter_enter(f, GROUND);
    }
}

static void filter_character(struct term_filter *f, unsigned char c, struct buf *out)
{
    if (!character_goes_on(f, c)) {
        filter_flush(f, out);
        filter_step(f, c, out);
        return;
    }
    filter_hold(f, c);
    if (f->held_size < character_size(f->held[0]))
        return;
    if (f->held[0] == 0xc2 && c < 0xa0) {
        filter_c1(f, c);
        return;
    }
    buf_append(out, f->held, f->held_size);
    filter_enter(f, GROUND);
}

static void filter_ground(struct term_filter *f, unsigned char c, struct buf *out)
{
    if (c == ESC)
        filter_enter(f, ESCAPE);
    else if (c >= 0xc2 && c <= 0xf4) {
        filter_enter(f, CHARACTER);
        filter_hold(f, c);
    } else if (c >= 0x80 && c < 0xa0)
        filter_c1(f, c);
    else if ((c >= 0x20 && c != 0x7f) || c == '\n' || c == '\r' || c == '\b' || c == '\t')
        buf_putc(out, (char)c);
}

static void filter_escape(struct term_filter *f, unsigned char c)
{
    if (c >= 0x40 && c < 0x60) /* ESC [ is the C1 control 0x9b, and so on */
        filter_c1(f, c + 0x40);
    else
        filter_enter(f, c >= 0x20 && c < 0x30 ? ESCAPE_MORE : GROUND); /* ESC ( B chooses characters */
}

/* Control strings have no length limit. Here the end of a line ends a string, so that a stray ESC ] does not
 * remove the rest of a log. */
static void filter_string(struct term_filter *f, unsigned char c, struct buf *out)
{
    if (c == ESC)
        f->state = STRING_ESCAPE;
    else if (c == '\a' || c == CAN || c == SUB || c == ST)
        filter_enter(f, GROUND);
    else if (c == '\n') {
        filter_enter(f, GROUND);
        buf_putc(out, '\n');
    }
}

static void filter_step(struct term_filter *f, unsigned char c, struct buf *out)
{
    const bool control = c < 0x20;

    switch (f->state) {
    case CHARACTER:
        filter_character(f, c, out);
        return;
    case STRING:
        filter_string(f, c, out);
        return;
    case STRING_ESCAPE:
        filter_enter(f, ESCAPE); /* ESC \ ends the string, ESC and another byte begin a new sequence */
        filter_step(f, c, out);
        return;
    case GROUND:
        filter_ground(f, c, out);
        return;
    default:
        break;
    }
    /* a control character, or a byte that no sequence has, ends an unfinished sequence */
    if (control || c >= 0x7f) {
        filter_enter(f, GROUND);
        filter_ground(f, c, out);
    } else if (f->state == ESCAPE) {
        filter_escape(f, c);
    } else if (f->state == CSI && c < 0x40) {
        filter_hold(f, c);
    } else if (f->state == CSI) {
        filter_csi_end(f, c, out);
    } else if (c >= 0x30) { /* ESCAPE_MORE */
        filter_enter(f, GROUND);
    }
}

void term_filter_add(struct term_filter *f, const char *data, size_t len, struct buf *out)
{
    for (size_t i = 0; i < len; i++)
        filter_step(f, (unsigned char)data[i], out);
}

void term_filter_finish(struct term_filter *f, struct buf *out)
{
    if (f->state == CHARACTER)
        filter_flush(f, out);
    if (f->coloured)
        buf_puts(out, "\033[0m");
    *f = (struct term_filter){0};
}

bool term_filter_leaves_colour(const char *text, size_t len, bool before)
{
    while (len) {
        const char *at = memrchr(text, ESC, len);
        if (!at)
            return before;
        const char *end = at + 2;
        while (end < text + len && strchr("0123456789;:", *end))
            end++;
        if (end < text + len && *end == 'm')
            return end - at > 3 || (end - at == 3 && at[2] != '0');
        len = (size_t)(at - text);
    }
    return before;
}
