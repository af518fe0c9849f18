#include "daemon/agent/logs/log_patterns.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum err_code log_patterns_get(struct log_patterns *l, const char *text, struct pattern **out, struct err *e)
{
    struct log_pattern *empty = NULL;

    for (size_t i = 0; i < LOG_PATTERNS_MOST; i++) {
        struct log_pattern *x = &l->list[i];

        if (x->users && strcmp(x->text, text) == 0) {
            x->users++;
            *out = x->pattern;
            return ERR_OK;
        }
        if (!x->users)
            empty = x;
    }
    if (!empty)
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "too many searches of logs on this node: try again later");
    if (pattern_compile(text, &empty->pattern, e))
        return e->code;
    empty->text = xstrdup(text);
    empty->users = 1;
    *out = empty->pattern;
    return ERR_OK;
}

const char *log_patterns_text(const struct log_patterns *l, const struct pattern *pattern)
{
    for (size_t i = 0; i < LOG_PATTERNS_MOST; i++)
        if (l->list[i].users && l->list[i].pattern == pattern)
            return l->list[i].text;
    return "";
}

void log_patterns_put(struct log_patterns *l, const struct pattern *pattern)
{
    for (size_t i = 0; i < LOG_PATTERNS_MOST; i++) {
        struct log_pattern *x = &l->list[i];

        if (!x->users || x->pattern != pattern || --x->users)
            continue;
        pattern_free(x->pattern);
        free(x->text);
        *x = (struct log_pattern){0};
    }
}
