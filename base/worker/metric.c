#include "base/worker/metric.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* A reader of one line that allocates nothing. The coordinator reads the lines of all workers, and with
 * jansson each would take several times as long. What it accepts, jansson accepts too, except for the bare
 * words NaN and Infinity and for repeated names of members that are left out. */

#define SCAN_DEPTH 64

enum scan_kind { SCAN_INTEGER, SCAN_REAL, SCAN_NOT_A_NUMBER, SCAN_OTHER };

struct scan {
    const char *start, *at; /* the text ends with NUL, which no part of a line may contain */
    int depth;
    struct err *e;
};

static bool scan_fail(struct scan *s, const char *problem)
{
    err_set(s->e, ERR_INVALID_ARGUMENT, "byte %lld of the line: %s", (long long)(s->at - s->start + 1),
            problem);
    return false;
}

static void scan_space(struct scan *s)
{
    while (*s->at == ' ' || *s->at == '\t' || *s->at == '\r' || *s->at == '\n')
        s->at++;
}

/* Skips space before the character and after it. */
static bool scan_char(struct scan *s, char c)
{
    scan_space(s);
    if (*s->at != c)
        return false;
    s->at++;
    scan_space(s);
    return true;
}

static bool scan_word(struct scan *s, const char *word)
{
    size_t len = strlen(word);

    if (strncmp(s->at, word, len) != 0)
        return false;
    s->at += len;
    return true;
}

static bool scan_hex(struct scan *s, unsigned *out)
{
    *out = 0;
    for (int i = 0; i < 4; i++, s->at++) {
        char c = *s->at;
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;

        if (digit < 0)
            return scan_fail(s, "expected four hexadecimal digits");
        *out = *out << 4 | (unsigned)digit;
    }
    return true;
}

/* The code point after "\u". */
static bool scan_code_point(struct scan *s, unsigned *out)
{
    unsigned low;

    if (!scan_hex(s, out))
        return false;
    if (*out >= 0xd800 && *out < 0xdc00) { /* the first half of a surrogate pair */
        if (!scan_word(s, "\\u") || !scan_hex(s, &low) || low < 0xdc00 || low > 0xdfff)
            return scan_fail(s, "expected the second half of a surrogate pair");
        *out = 0x10000 + ((*out - 0xd800) << 10) + (low - 0xdc00);
    } else if (*out == 0 || (*out >= 0xdc00 && *out < 0xe000)) {
        return scan_fail(s, "the escape names no character");
    }
    return true;
}

static size_t utf8_encode(unsigned c, char out[4])
{
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;

    for (size_t i = n; --i > 0; c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)(n == 1 ? c : (0xf00u >> n & 0xff) | c);
    return n;
}

/* Copies the text to *out, without NUL, and sets *len, which is larger than METRIC_NAME if it did not fit. */
static bool scan_string(struct scan *s, char out[METRIC_NAME], size_t *len)
{
    static const char escapes[] = "\"\\/bfnrt", escaped[] = "\"\\/\b\f\n\r\t";

    *len = 0;
    if (*s->at != '"')
        return scan_fail(s, "expected '\"'");
    for (s->at++; *s->at != '"';) {
        const char *special;
        char bytes[4] = {*s->at};
        size_t n = 1;
        unsigned c;

        if ((unsigned char)*s->at < 0x20)
            return scan_fail(s, *s->at ? "control character in a text" : "a text does not end");
        if (*s->at++ == '\\') {
            if (*s->at == 'u') {
                s->at++;
                if (!scan_code_point(s, &c))
                    return false;
                n = utf8_encode(c, bytes);
            } else {
                special = *s->at ? strchr(escapes, *s->at) : NULL;
                if (!special)
                    return scan_fail(s, "unknown escape");
                bytes[0] = escaped[special - escapes];
                s->at++;
            }
        }
        if (*len + n <= METRIC_NAME)
            memcpy(out + *len, bytes, n);
        *len += n;
    }
    s->at++;
    return true;
}

/* The name of a member and its colon. */
static bool scan_name(struct scan *s, char out[METRIC_NAME], size_t *len)
{
    if (!scan_string(s, out, len))
        return false;
    return scan_char(s, ':') || scan_fail(s, "expected ':'");
}

static bool scan_digits(struct scan *s)
{
    if (*s->at < '0' || *s->at > '9')
        return scan_fail(s, "expected a digit");
    while (*s->at >= '0' && *s->at <= '9')
        s->at++;
    return true;
}

static bool scan_number(struct scan *s, enum scan_kind *kind, int64_t *integer, double *real)
{
    const char *start = s->at;

    *kind = SCAN_INTEGER;
    s->at += *s->at == '-';
    if (*s->at == '0')
        s->at++; /* a digit that follows is not part of the number */
    else if (!scan_digits(s))
        return false;
    if (*s->at == '.') {
        *kind = SCAN_REAL;
        s->at++;
        if (!scan_digits(s))
            return false;
    }
    if (*s->at == 'e' || *s->at == 'E') {
        *kind = SCAN_REAL;
        s->at++;
        s->at += *s->at == '-' || *s->at == '+';
        if (!scan_digits(s))
            return false;
    }
    errno = 0;
    if (*kind == SCAN_INTEGER) {
        *integer = strtoll(start, NULL, 10);
        *real = (double)*integer;
        if (errno == ERANGE)
            return scan_fail(s, "the integer is too large");
    } else {
        *real = strtod(start, NULL);
        if (isinf(*real)) /* ERANGE is also set for tiny numbers, which are good */
            return scan_fail(s, "the number is too large");
    }
    return true;
}

static bool scan_value(struct scan *s, enum scan_kind *kind, int64_t *integer, double *real);

/* A list, or an object that is not the line itself. */
static bool scan_nested(struct scan *s, char end)
{
    char name[METRIC_NAME];
    enum scan_kind kind;
    int64_t integer;
    double real;
    size_t len;

    if (++s->depth >= SCAN_DEPTH)
        return scan_fail(s, "nested more than 64 levels deep");
    s->at++;
    if (!scan_char(s, end)) {
        do {
            if (end == '}' && !scan_name(s, name, &len))
                return false;
            if (!scan_value(s, &kind, &integer, &real))
                return false;
        } while (scan_char(s, ','));
        if (!scan_char(s, end))
            return scan_fail(s, end == '}' ? "expected ',' or '}'" : "expected ',' or ']'");
    }
    s->depth--;
    return true;
}

static bool scan_value(struct scan *s, enum scan_kind *kind, int64_t *integer, double *real)
{
    char text[METRIC_NAME];
    size_t len;

    *kind = SCAN_OTHER;
    if (*s->at == '{' || *s->at == '[')
        return scan_nested(s, *s->at == '{' ? '}' : ']');
    if (*s->at == '"')
        return scan_string(s, text, &len);
    if (scan_word(s, "true") || scan_word(s, "false"))
        return true;
    /* JSON has no NaN, but a loss that is NaN must be reported. */
    if (scan_word(s, "null") || scan_word(s, "NaN") || scan_word(s, "Infinity") ||
        scan_word(s, "-Infinity")) {
        *kind = SCAN_NOT_A_NUMBER;
        return true;
    }
    if (*s->at != '-' && (*s->at < '0' || *s->at > '9'))
        return scan_fail(s, "expected a value");
    return scan_number(s, kind, integer, real);
}

static bool line_has(const struct metric_line *l, const char *name)
{
    for (size_t i = 0; i < l->count; i++)
        if (!strcmp(l->metrics[i].name, name))
            return true;
    return false;
}

static bool scan_member(struct scan *s, struct metric_line *out)
{
    char name[METRIC_NAME + 1];
    enum scan_kind kind;
    int64_t integer = 0;
    double real = NAN;
    size_t len;

    if (!scan_name(s, name, &len))
        return false;
    if (!scan_value(s, &kind, &integer, &real))
        return false;
    if (kind == SCAN_OTHER || len >= METRIC_NAME)
        return true;
    name[len] = 0;
    bool step = kind == SCAN_INTEGER && !strcmp(name, "step");
    /* One of the two values is wrong, and nobody knows which. */
    if (step ? out->has_step : line_has(out, name))
        return scan_fail(s, "the line names a metric twice");
    if (step) {
        out->has_step = true;
        out->step = integer;
    } else {
        metric_line_add(out, name, real);
    }
    return true;
}

enum err_code metric_line_parse(const char *text, size_t len, struct metric_line *out, struct err *e)
{
    struct scan s = {.start = text, .at = text, .e = e};

    if (len > METRIC_LINE_MAX)
        return err_set(e, ERR_INVALID_ARGUMENT, "the line is longer than %d bytes", METRIC_LINE_MAX);
    if (!json_text_valid(text)) /* it travels in a field that must be UTF-8 */
        return err_set(e, ERR_INVALID_ARGUMENT, "the line is not UTF-8");
    out->has_step = false;
    out->step = 0;
    out->count = 0;
    if (!scan_char(&s, '{'))
        return err_set(e, ERR_INVALID_ARGUMENT,
                       "expected a JSON object such as {\"step\": 10, \"loss\": 1.4}");
    if (!scan_char(&s, '}')) {
        do
            if (!scan_member(&s, out))
                return e->code;
        while (scan_char(&s, ','));
        if (!scan_char(&s, '}')) {
            scan_fail(&s, "expected ',' or '}'");
            return e->code;
        }
    }
    if (s.at != text + len) {
        scan_fail(&s, "expected the end of the line");
        return e->code;
    }
    return ERR_OK;
}

bool metric_line_add(struct metric_line *l, const char *name, double value)
{
    size_t len = strlen(name);

    if (l->count == METRIC_LINE_COUNT || !len || len >= METRIC_NAME)
        return false;
    memcpy(l->metrics[l->count].name, name, len + 1);
    l->metrics[l->count++].value = value;
    return true;
}

void metric_line_encode(const struct metric_line *l, struct buf *out)
{
    struct jout o = {.buf = out};

    jout_open(&o, NULL, '{');
    if (l->has_step)
        jout_int(&o, "step", l->step);
    for (size_t i = 0; i < l->count; i++)
        if (isfinite(l->metrics[i].value))
            jout_real(&o, l->metrics[i].name, l->metrics[i].value);
    jout_close(&o, '}');
}

void metric_report_encode(struct jout *o, const struct metric_report *r)
{
    jout_int(o, "spawn", r->spawn);
    jout_int(o, "time_ms", r->time_ms);
    jout_text(o, "line", r->text);
    if (r->captured)
        jout_text(o, "captured", r->captured);
}

enum err_code metric_report_decode(struct metric_report *r, const json_t *obj, struct err *e)
{
    r->spawn = json_get_int(obj, "spawn", 0);
    r->time_ms = json_get_int(obj, "time_ms", 0);
    r->text = xstrdup(json_get_text(obj, "line", NULL));
    r->captured = xstrdup(json_get_text(obj, "captured", NULL));
    if (r->spawn <= 0 || !r->text)
        return err_set(e, ERR_INVALID_ARGUMENT, "report without a spawn or without a line");
    return ERR_OK;
}

void metric_report_release(struct metric_report *r)
{
    free((char *)r->text);
    free((char *)r->captured);
    memset(r, 0, sizeof(*r));
}
