#include "base/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Length of the valid UTF-8 sequence at s (1 to 4), or 0. Overlong forms, surrogates and code points past
 * U+10FFFF are not valid. */
static size_t utf8_len(const unsigned char *s, size_t left)
{
    unsigned char low = 0x80, high = 0xbf;
    size_t n;

    if (s[0] < 0x80)
        return 1;
    if (s[0] < 0xc2 || s[0] > 0xf4) /* a continuation byte, an overlong form, or past U+10FFFF */
        return 0;
    n = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    if (n > left)
        return 0;
    /* These four first bytes limit the second byte: overlong forms, surrogates, code points past U+10FFFF. */
    if (s[0] == 0xe0)
        low = 0xa0;
    else if (s[0] == 0xed)
        high = 0x9f;
    else if (s[0] == 0xf0)
        low = 0x90;
    else if (s[0] == 0xf4)
        high = 0x8f;
    if (s[1] < low || s[1] > high)
        return 0;
    for (size_t i = 2; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    return n;
}

size_t json_char_length(const char *text)
{
    return utf8_len((const unsigned char *)text, 4); /* the NUL at the end continues no sequence */
}

bool json_text_valid(const char *text)
{
    for (size_t n; *text; text += n) {
        n = json_char_length(text);
        if (!n)
            return false;
    }
    return true;
}

static void put_char(struct buf *b, unsigned char c)
{
    switch (c) {
    case '"':
        buf_puts(b, "\\\"");
        break;
    case '\\':
        buf_puts(b, "\\\\");
        break;
    case '\n':
        buf_puts(b, "\\n");
        break;
    case '\t':
        buf_puts(b, "\\t");
        break;
    case '\r':
        buf_puts(b, "\\r");
        break;
    default:
        if (c < 0x20 || c == 0x7f) /* JSON allows DEL, but a terminal interprets it */
            buf_printf(b, "\\u%04x", c);
        else
            buf_putc(b, (char)c);
    }
}

static void put_string(struct buf *b, const char *text, size_t len)
{
    const unsigned char *s = (const unsigned char *)text;

    buf_putc(b, '"');
    for (size_t i = 0; i < len;) {
        size_t n = utf8_len(s + i, len - i);

        if (n == 1)
            put_char(b, s[i]);
        else if (n == 2 && s[i] == 0xc2 && s[i + 1] < 0xa0) /* C1 controls, which terminals interpret */
            buf_printf(b, "\\u%04x", s[i + 1]);
        else if (n)
            buf_append(b, s + i, n);
        else
            buf_puts(b, "\xef\xbf\xbd");
        i += n ? n : 1;
    }
    buf_putc(b, '"');
}

static void jout_start(struct jout *o, const char *key)
{
    if (o->need_comma)
        buf_putc(o->buf, ',');
    o->need_comma = true;
    if (key) {
        put_string(o->buf, key, strlen(key));
        buf_putc(o->buf, ':');
    }
}

void jout_open(struct jout *o, const char *key, char bracket)
{
    jout_start(o, key);
    buf_putc(o->buf, bracket);
    o->need_comma = false;
}

void jout_close(struct jout *o, char bracket)
{
    buf_putc(o->buf, bracket);
    o->need_comma = true;
}

void jout_text_n(struct jout *o, const char *key, const char *text, size_t len)
{
    jout_start(o, key);
    put_string(o->buf, text, len);
}

void jout_text(struct jout *o, const char *key, const char *text)
{
    if (text)
        jout_text_n(o, key, text, strlen(text));
    else
        jout_raw(o, key, "null");
}

void jout_int(struct jout *o, const char *key, int64_t value)
{
    jout_start(o, key);
    buf_printf(o->buf, "%lld", (long long)value);
}

void real_text(char out[REAL_TEXT], double value)
{
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(out, REAL_TEXT, "%.*g", digits, value);
        if (strtod(out, NULL) == value)
            break;
    }
}

void jout_real(struct jout *o, const char *key, double value)
{
    char text[REAL_TEXT];

    real_text(text, value);
    jout_raw(o, key, isfinite(value) ? text : "null");
}

void jout_bool(struct jout *o, const char *key, bool value)
{
    jout_raw(o, key, value ? "true" : "false");
}

void jout_raw(struct jout *o, const char *key, const char *json)
{
    jout_start(o, key);
    buf_puts(o->buf, json);
}

/* jansson itself allows 2048 levels. Brackets inside strings do not count. */
static bool too_deep(const char *text, size_t len)
{
    bool in_string = false;
    int depth = 0;

    for (size_t i = 0; i < len; i++) {
        char c = text[i];

        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            if (++depth > 64)
                return true;
        } else if (c == '}' || c == ']') {
            depth--;
        }
    }
    return false;
}

enum err_code json_parse(const char *text, size_t len, size_t limit, json_t **out, struct err *e)
{
    json_error_t why;
    json_t *value;

    if (len > limit)
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "JSON text of %zu bytes is larger than the limit of %zu",
                       len, limit);
    if (too_deep(text, len))
        return err_set(e, ERR_INVALID_ARGUMENT, "JSON is nested more than 64 levels deep");
    value = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &why);
    if (!value)
        return err_set(e, ERR_INVALID_ARGUMENT, "JSON:%d:%d: %s", why.line, why.column, why.text);
    *out = value;
    return ERR_OK;
}

void json_release(json_t **value)
{
    json_decref(*value);
    *value = NULL;
}

const char *json_get_text(const json_t *obj, const char *key, const char *fallback)
{
    const json_t *value = json_object_get(obj, key);

    return json_is_string(value) ? json_string_value(value) : fallback;
}

int64_t json_get_int(const json_t *obj, const char *key, int64_t fallback)
{
    const json_t *value = json_object_get(obj, key);

    return json_is_integer(value) ? json_integer_value(value) : fallback;
}

double json_get_real(const json_t *obj, const char *key, double fallback)
{
    const json_t *value = json_object_get(obj, key);

    return json_is_number(value) ? json_number_value(value) : fallback;
}

bool json_get_bool(const json_t *obj, const char *key, bool fallback)
{
    const json_t *value = json_object_get(obj, key);

    return json_is_boolean(value) ? json_boolean_value(value) : fallback;
}
