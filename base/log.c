#include "base/log.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct {
    char program[32];
    enum log_level least;
} logger = {"ddp", LOG_INFO};

static const char *const level_names[] = {"debug", "info", "warn", "error"};

void log_init(const char *program, enum log_level least)
{
    const char *wanted = getenv("DDP_LOG");

    snprintf(logger.program, sizeof(logger.program), "%s", program);
    logger.least = least;
    for (int i = LOG_DEBUG; wanted && i <= LOG_ERROR; i++)
        if (!strcmp(wanted, level_names[i]))
            logger.least = (enum log_level)i;
}

void log_line(enum log_level level, const char *event, const char *fmt, ...)
{
    char line[2048];
    struct timespec now;
    struct tm tm;
    size_t used;
    va_list ap;

    if (level < logger.least)
        return;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &tm);
    used = strftime(line, sizeof(line), "ts=%Y-%m-%dT%H:%M:%S", &tm);
    used += (size_t)snprintf(line + used, sizeof(line) - used, ".%03ldZ level=%s prog=%s event=%s ",
                             now.tv_nsec / 1000000, level_names[level], logger.program, event);
    va_start(ap, fmt);
    vsnprintf(line + used, sizeof(line) - used - 1, fmt, ap);
    va_end(ap);
    used = strlen(line);
    line[used++] = '\n';
    if (write(STDERR_FILENO, line, used) < 0)
        return; /* a log line that cannot be written cannot be reported either */
}

static size_t put_escaped(char *out, char c)
{
    switch (c) {
    case '\n':
        memcpy(out, "\\n", 2);
        return 2;
    case '"':
    case '\\':
        out[0] = '\\';
        out[1] = c;
        return 2;
    default:
        out[0] = c;
        return 1;
    }
}

/* The bytes of a control character, which a terminal would execute when a person prints the log: one below 0x20, DEL, or a C1
 * control in UTF-8. 0: another character. */
static size_t control_length(const char *text)
{
    const unsigned char *s = (const unsigned char *)text;

    if (s[0] == 0xc2 && s[1] >= 0x80 && s[1] < 0xa0)
        return 2;
    return (s[0] && s[0] < ' ') || s[0] == 0x7f;
}

static bool needs_quotes(const char *text)
{
    if (!*text)
        return true;
    for (; *text; text++)
        if (strchr(" =\"\\", *text) || control_length(text))
            return true;
    return false;
}

const char *log_quote(struct log_value *out, const char *text)
{
    size_t n = 0;

    if (!text)
        text = "";
    if (!needs_quotes(text)) {
        snprintf(out->text, sizeof(out->text), "%s", text);
        return out->text;
    }
    out->text[n++] = '"';
    while (*text && n < sizeof(out->text) - 4) {
        const size_t control = *text == '\n' ? 0 : control_length(text);

        n += put_escaped(out->text + n, control ? '?' : *text);
        text += control ? control : 1;
    }
    out->text[n++] = '"';
    out->text[n] = '\0';
    return out->text;
}
