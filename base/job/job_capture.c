#include "base/job/job_capture.h"

#include <stdlib.h>
#include <string.h>

#include "base/job/job_print.h"
#include "base/mem.h"

#define EXPECTED "none, auto, {pattern: EXPRESSION} or {tensorboard: DIR}"
#define TEXT_MOST 1000 /* bytes, as base/match/pattern.h allows */

static enum err_code read_place(const struct conf_node *node, struct job_capture *c, struct err *e)
{
    struct {
        char *pattern, *dir;
    } keys = {NULL, NULL};
    static const struct conf_field fields[] = {
        {"pattern", CONF_TEXT, 0}, {"tensorboard", CONF_TEXT, sizeof(char *)}, {0}};
    enum err_code code = conf_read_map(node, fields, &keys, e);

    if (!code && !keys.pattern == !keys.dir)
        code = conf_fail(node, e, "'capture' needs one of the keys 'pattern' and 'tensorboard'");
    else if (!code && !*(keys.pattern ? keys.pattern : keys.dir))
        code = conf_fail(node, e, "the value in 'capture' is empty");
    else if (!code && strlen(keys.pattern ? keys.pattern : keys.dir) > TEXT_MOST)
        code = conf_fail(node, e, "the value in 'capture' has more than %d bytes", TEXT_MOST);
    else if (!code && keys.pattern && !strstr(keys.pattern, "(?<") && !strstr(keys.pattern, "(?P<"))
        code = conf_fail(
            node, e, "'pattern' in 'capture' has no named group, so no metric: write 'loss (?<loss>\\S+)'");
    if (code) {
        free(keys.pattern);
        free(keys.dir);
        return code;
    }
    job_capture_release(c);
    c->from = keys.pattern ? JOB_CAPTURE_PATTERN : JOB_CAPTURE_TENSORBOARD;
    c->text = keys.pattern ? keys.pattern : keys.dir;
    return ERR_OK;
}

enum err_code job_capture_read(const struct conf_node *node, void *at, struct err *e)
{
    struct job_capture *c = at;
    const char *word = conf_scalar(node);

    if (conf_is_map(node))
        return read_place(node, c, e);
    if (!word || (strcmp(word, "none") != 0 && strcmp(word, "auto") != 0))
        return conf_refuse(node, "capture", EXPECTED, e);
    job_capture_release(c);
    c->from = strcmp(word, "none") == 0 ? JOB_CAPTURE_NONE : JOB_CAPTURE_AUTO;
    return ERR_OK;
}

void job_capture_print(struct buf *out, const struct job_capture *c)
{
    if (c->from == JOB_CAPTURE_AUTO)
        return;
    if (c->from == JOB_CAPTURE_NONE) {
        buf_puts(out, "capture: none\n");
        return;
    }
    buf_printf(out, "capture:\n  %s: ", c->from == JOB_CAPTURE_PATTERN ? "pattern" : "tensorboard");
    job_quote(out, c->text);
    buf_putc(out, '\n');
}

void job_capture_release(struct job_capture *c)
{
    free(c->text);
    *c = (struct job_capture){0};
}
